//! What can be changed for transfers, to what, and at what risk: one table.
//!
//! For: `host plan` and `host apply`. In and out: facts → changes, each with its rule.
//! Invariants: a rule proposes only what differs from what is; it proposes nothing where the machine does not tell; its risk is told before
//! anything is done. Whether it helps here is not known until it was measured (`ab_check`).
//! Absent on purpose: reading values anew and writing them (place.rs).

use std::path::PathBuf;

use serde::Serialize;

use crate::place::{DEFAULT, Knob, Place, process};
use topology::facts::{Facts, Node};
use topology::nics::Nic;
use topology::tree::{Tree, programs};

/// A round trip for which socket buffers shall suffice: across an ocean.
const RTT_SECONDS: f64 = 0.1;
/// Rate of the largest buffers set here: more per stream is a matter of several streams.
const MBIT_MAX: u32 = 100_000;
/// Packets that wait for a core that is away 0.1 s, at 10 Gbit/s and 64 KiB each (netdev_max_backlog counts super-packets as one).
const BACKLOG: u32 = 16_384;

/// Flows of the tables of RFS: "32768 for a moderately loaded server" (scaling.rst).
const FLOWS: usize = 32_768;
/// Of a NIC that interrupts for each packet: at most 20,000 a second, and 62 KB of 10 Gbit/s meanwhile, a tenth of a ring of 512 packets.
const RX_USECS: u32 = 50;
/// What nearly every NIC and switch has that knows longer packets at all.
const JUMBO: u32 = 9000;
/// A job's memory, if nobody says otherwise, in pages of 2 MiB.
const HUGE_PAGES: u64 = 128;
const HUGE_BYTES: u64 = 2 << 20;

/// One rule.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// What `--rule` calls it.
    pub name: &'static str,
    /// Why it may help.
    pub why: &'static str,
    /// Who says so.
    pub source: &'static str,
    /// What it can spoil.
    pub risk: &'static str,
    /// Who else sets the same, and what happens then; empty: nobody known.
    pub conflicts: &'static str,
    /// Only where it was named: what it may spoil is not this host's alone, or is taken from others.
    pub by_name: bool,
    propose: fn(&Facts, &mut Vec<(Place, String)>),
}

/// A value to be set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    pub rule: &'static str,
    pub place: Place,
    pub old: String,
    pub new: String,
}

/// All rules, those first whose effect others are measured with.
pub const RULES: &[Rule] = &[
    rule(
        "irqbalance",
        "moves interrupts every ten seconds, also those that somebody placed",
        "irqbalance(1); CERN and NTT presets stop it",
        "interrupts of other devices stay where they are while it is held",
        irqbalance,
    ),
    rule(
        "interrupts",
        "queues whose interrupts share a core share its time; each queue gets a core of the NIC's node",
        "Linux Documentation/core-api/irq/irq-affinity.rst",
        "cores that run something else lose time to the NIC",
        interrupts,
    )
    .against("irqbalance (the rule of that name holds it), tuned, drivers' own set-irq-affinity scripts: the last one wins"),
    rule(
        "xps",
        "each core sends by its own queue: no two cores wait for one lock",
        "Linux Documentation/networking/scaling.rst, XPS",
        "none known with as many queues as cores",
        xps,
    ),
    rule(
        "rings",
        "short rings drop bursts that come while the core does something else",
        "ESnet fasterdata, NIC tuning",
        "the link is down for a moment with some drivers; more memory; longer rings leave the cache",
        rings,
    )
    .against("NetworkManager and systemd-networkd set rings of a link that comes anew"),
    rule(
        "offloads",
        "without segmentation and joining every 1500 bytes pass the whole stack",
        "Linux Documentation/networking/segmentation-offloads.rst",
        "some drivers reset the link; joined packets hide sizes from captures on this host",
        offloads,
    )
    .against("NetworkManager, systemd-networkd: ethtool settings of a link that comes anew"),
    rule(
        "coalescing",
        "an interrupt for each packet, or for each few of them, spends a core on entering and leaving it; adaptive ones follow the load",
        "Linux Documentation/networking/ethtool-netlink.rst, COALESCE_SET; Documentation/networking/napi.rst, IRQ mitigation",
        "a lone packet waits up to that time for its interrupt; some drivers know only one of the two settings and refuse the other",
        coalescing,
    )
    .against("NetworkManager and systemd-networkd set it for a link that comes anew; tuned's latency profiles want the opposite; scripts of the driver"),
    rule(
        "socket-buffers",
        "a TCP stream has at most one buffer per round trip on its way; UDP drops what does not fit while the core is away",
        "RFC 7323; Linux Documentation/networking/ip-sysctl.rst",
        "every socket of this host may grow as far: memory",
        buffers,
    )
    .against("tuned and sysctl.d set the same at the start of the machine"),
    rule(
        "idle-start",
        "a stream that paused for a round trip begins anew",
        "RFC 5681 section 4.1; ip-sysctl.rst",
        "a burst after a pause may meet a path that has changed",
        idle,
    ),
    rule(
        "backlog",
        "packets handed to a core that is busy are dropped above this many",
        "Linux Documentation/admin-guide/sysctl/net.rst, netdev_max_backlog",
        "a longer queue of packets where the core cannot keep up at all",
        backlog,
    ),
    rule(
        "mtu-probing",
        "a path that drops what is too large without a word stops a stream for good",
        "RFC 4821; ip-sysctl.rst, tcp_mtu_probing",
        "none known: it acts only on streams that stand still",
        probing,
    ),
    rule(
        "governor",
        "a core that must speed up first adds its delay to every burst",
        "Linux Documentation/admin-guide/pm/cpufreq.rst",
        "power and heat",
        governor,
    )
    .against("tuned, tlp, power-profiles-daemon set it whenever the load or the supply changes"),
    rule(
        "page-migration",
        "moves pages after threads by faults; with threads and buffers placed it only costs",
        "sysctl/kernel.rst, numa_balancing",
        "programs that nobody placed run on far memory",
        migration,
    )
    .against("tuned, numad: the one moves pages, the other processes"),
    rule(
        "read-ahead",
        "a disk that is read in order by few readers wants more than 128 KiB in flight",
        "Linux Documentation/ABI/stable/sysfs-block, read_ahead_kb",
        "random readers of small pieces read more than they want",
        read_ahead,
    )
    .against("tuned (its disk plugin) and udev rules"),
    rule(
        "qdisc",
        "fq sends each flow's packets at its own pace: no burst of one fills a switch's queue, and none waits behind another",
        "tc-fq(8); ESnet fasterdata, Fair Queuing",
        "some cycles a packet; at many Gbit/s of one flow a few percent of a core",
        qdisc,
    )
    .against("a discipline that somebody chose (a shaper, netem) is left; links that come anew have net.core.default_qdisc"),
    rule(
        "rfs",
        "a flow's packets are handed to the core that reads them: no cache line of the socket crosses between cores",
        "Linux Documentation/networking/scaling.rst, RFS and accelerated RFS",
        "a look into a table for each packet; with steering by the NIC (ntuple) some drivers reset the link",
        rfs,
    )
    .against("ntuple rules set by hand: the NIC's table is shared; interrupts that irqbalance moves"),
    rule(
        "rps",
        "a NIC with fewer queues than its node has cores works for all packets on few of them; the kernel hands them on, by flow, to the others",
        "Linux Documentation/networking/scaling.rst, RPS, Suggested Configuration",
        "an interrupt between cores for each batch; where one core suffices it only costs, and cores that run something else lose time",
        rps,
    )
    .against("masks that somebody chose are left; tuned (its net plugin), cloud agents and udev rules set them when the NIC comes"),
    rule(
        "congestion-control",
        "CUBIC takes each loss for congestion, and fills the queue before it slows down; BBR models rate and round trip",
        "Cardwell and others, BBR, ACM Queue 14(5), 2016; Linux Documentation/networking/ip-sysctl.rst, tcp_congestion_control",
        "new TCP streams of every program here change their manners: BBR takes more than its share beside CUBIC in short queues, and loses more; those who are permitted may then choose it themselves",
        congestion,
    )
    .against("sysctl.d and tuned's network profiles set it at the start; programs that choose for themselves (TCP_CONGESTION); a route's congctl; streams that are open keep theirs")
    .by_name(),
    rule(
        "mtu",
        "a sixth of the packets, interrupts and heads",
        "RFC 2675's reasons; ESnet fasterdata, Jumbo Frames; CERN 2018, section 2",
        "the link is down for a moment; a switch or peer that has 1500 drops what is longer, without a word: ask for it on both ends",
        mtu,
    )
    .against("NetworkManager, systemd-networkd and DHCP (option 26) set it again when the link comes; streams that are open keep the old size")
    .by_name(),
    rule(
        "huge-pages",
        "a pool in pages of 2 MiB needs one entry of the translation cache where it needed 512",
        "Linux Documentation/admin-guide/mm/hugetlbpage.rst",
        "256 MiB of each node belong to programs that ask for such pages, and to nobody else",
        huge,
    )
    .against("vm.nr_hugepages of sysctl.d, tuned's profiles for databases, hugepages= of the kernel's command line")
    .by_name(),
    rule(
        "disk-scheduler",
        "an elevator costs time where there is no head to move",
        "Linux Documentation/block/switching-sched.rst",
        "fairness between programs that share the disk",
        scheduler,
    )
    .against("udev rules set it when the disk comes"),
];

const fn rule(
    name: &'static str,
    why: &'static str,
    source: &'static str,
    risk: &'static str,
    propose: fn(&Facts, &mut Vec<(Place, String)>),
) -> Rule {
    Rule { name, why, source, risk, conflicts: "", by_name: false, propose }
}

impl Rule {
    const fn against(self, conflicts: &'static str) -> Rule {
        Rule { conflicts, ..self }
    }

    const fn by_name(self) -> Rule {
        Rule { by_name: true, ..self }
    }
}

/// A rule by name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.name == name)
}

/// What these rules would change on this machine, or on that of a record; a place that cannot be read is passed over.
#[must_use]
pub fn plan(tree: &Tree, facts: &Facts, wanted: impl Fn(&Rule) -> bool) -> Vec<Change> {
    let mut changes = Vec::new();
    for rule in RULES.iter().filter(|rule| wanted(rule)) {
        let mut proposed = Vec::new();
        (rule.propose)(facts, &mut proposed);
        for (place, new) in proposed.into_iter().flat_map(|it| running(tree, it)) {
            let Some(old) = place.seen(tree) else { continue };
            // A discipline that somebody chose is left.
            let is_left = matches!(place, Place::Qdisc { .. }) && (!old.ends_with(DEFAULT) || is_fq(&old));
            if old != new && !is_left {
                changes.push(Change { rule: rule.name, place, old, new });
            }
        }
    }
    changes
}

/// A program by name is on this machine each process that has it; a record has no processes.
fn running(tree: &Tree, (place, new): (Place, String)) -> Vec<(Place, String)> {
    match (&place, tree) {
        (Place::Program { name, pid: 0, .. }, Tree::Here(_)) => programs(&[name.as_str()])
            .unwrap_or_default()
            .into_iter()
            .filter_map(|(_, pid)| {
                let (ticks, _) = process(pid)?;
                Some((Place::Program { name: name.clone(), pid, ticks }, new.clone()))
            })
            .collect(),
        _ => vec![(place, new)],
    }
}

/// Does the kernel put fq there by itself?
fn is_fq(old: &str) -> bool {
    old.strip_suffix(DEFAULT).is_some_and(|kind| kind == "fq" || kind.ends_with(" of fq"))
}

impl Change {
    /// The NIC, the disk or the node that it is of, as findings name it; `host`: all of it.
    #[must_use]
    pub fn subject(&self, facts: &Facts) -> String {
        let path = match &self.place {
            Place::Nic { nic, .. } | Place::Qdisc { nic } => return nic.clone(),
            Place::Program { .. } => return "host".to_owned(),
            Place::File(path) => path.to_string_lossy(),
        };
        let below = |folder: &str| path.strip_prefix(folder)?.split('/').next().map(str::to_owned);
        let nic_of = |number: String| {
            let has = |nic: &&Nic| nic.irqs.iter().any(|irq| irq.number.to_string() == number);
            facts.nics.iter().find(has).map(|nic| nic.name.clone())
        };
        below("/sys/class/net/")
            .or_else(|| below("/sys/block/"))
            .or_else(|| below("/sys/devices/system/node/node").map(|id| format!("node {id}")))
            .or_else(|| below("/proc/irq/").and_then(nic_of))
            .unwrap_or_else(|| "host".to_owned())
    }
}

fn live(facts: &Facts) -> impl Iterator<Item = &Nic> {
    facts.nics.iter().filter(|nic| nic.up)
}

fn file(path: impl Into<PathBuf>) -> Place {
    Place::File(path.into())
}

fn sysctl(name: &str) -> Place {
    file(format!("/proc/sys/{}", name.replace('.', "/")))
}

/// Cores of the NIC's node, all of them where it has none.
fn near<'a>(facts: &'a Facts, nic: &'a Nic) -> impl Iterator<Item = u32> + 'a {
    facts.cores.iter().filter(|core| nic.node.is_none() || core.node == nic.node).map(|core| core.id)
}

fn irqbalance(facts: &Facts, out: &mut Vec<(Place, String)>) {
    if !facts.running.as_ref().is_some_and(|running| running.iter().any(|name| name == "irqbalance")) {
        return;
    }
    // Process 0: whichever has the name (`running` finds them).
    out.push((Place::Program { name: "irqbalance".to_owned(), pid: 0, ticks: 0 }, "held".to_owned()));
}

fn interrupts(facts: &Facts, out: &mut Vec<(Place, String)>) {
    for nic in live(facts) {
        let near: Vec<u32> = near(facts, nic).collect();
        // One interrupt, or one for changes of the link and one for all data: there is nothing to spread.
        if nic.irqs.len() < 3 || near.len() < 2 {
            continue;
        }
        for (number, irq) in nic.irqs.iter().enumerate() {
            let core = near[number % near.len()].to_string();
            out.push((file(format!("/proc/irq/{}/smp_affinity_list", irq.number)), core));
        }
    }
}

fn xps(facts: &Facts, out: &mut Vec<(Place, String)>) {
    for nic in live(facts).filter(|nic| nic.tx_queues > 1) {
        let cores: Vec<u32> = facts.cores.iter().map(|core| core.id).collect();
        for queue in 0..nic.tx_queues {
            let mine: Vec<u32> = cores
                .iter()
                .copied()
                .enumerate()
                .filter(|(at, _)| at % nic.tx_queues == queue)
                .map(|(_, core)| core)
                .collect();
            let path = format!("/sys/class/net/{}/queues/tx-{queue}/xps_cpus", nic.name);
            out.push((file(path), mask(&mine)));
        }
    }
}

/// A set of cores as /sys takes it: words of 32 bits in hex, the highest first, without the zeros before the first digit.
#[must_use]
pub fn mask(cores: &[u32]) -> String {
    let highest = cores.iter().max().map_or(0, |core| core / 32);
    let bits =
        |word: u32| cores.iter().filter(|core| **core / 32 == word).fold(0_u32, |bits, core| bits | 1 << (core % 32));
    let rest = (0..highest).rev().map(|word| format!(",{:08x}", bits(word)));
    format!("{:x}", bits(highest)) + &rest.collect::<String>()
}

fn rings(facts: &Facts, out: &mut Vec<(Place, String)>) {
    for nic in live(facts) {
        let Some([rx, tx]) = nic.rings else { continue };
        // What a driver does not tell of stays as it is.
        let most = [rx, tx].map(|[now, most]| now.max(most).to_string());
        out.push((Place::Nic { nic: nic.name.clone(), knob: Knob::Rings }, most.join(" ")));
    }
}

fn offloads(facts: &Facts, out: &mut Vec<(Place, String)>) {
    for nic in live(facts) {
        for (knob, is) in [(Knob::Tso, nic.tso), (Knob::Gso, nic.gso), (Knob::Gro, nic.gro)] {
            if is == Some(false) {
                out.push((Place::Nic { nic: nic.name.clone(), knob }, "1".to_owned()));
            }
        }
    }
}

fn coalescing(facts: &Facts, out: &mut Vec<(Place, String)>) {
    for nic in live(facts) {
        let Some(([[usecs, frames], _], is_adaptive)) = nic.coalescing else { continue };
        let set = |knob, value: u32| (Place::Nic { nic: nic.name.clone(), knob }, value.to_string());
        match (is_adaptive, usecs, frames) {
            (true, ..) => {}
            // By no time and not by several packets: one interrupt for each. Drivers that adapt by themselves tell a time; one of them at a time,
            // for an adaptive NIC may show another time at each look, and that would be taken for drift.
            (_, 0, 0 | 1) => out.push(set(Knob::RxUsecs, RX_USECS)),
            _ => out.push(set(Knob::Adaptive, 1)),
        }
    }
}

fn buffers(facts: &Facts, out: &mut Vec<(Place, String)>) {
    let fastest = live(facts).filter_map(|nic| nic.speed_mbit).max().unwrap_or(1000).min(MBIT_MAX);
    let round_trip = (f64::from(fastest) * 1e6 / 8.0 * RTT_SECONDS) as u64;
    for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
        let Some(value) = facts.setting(name) else { continue };
        let mut three: Vec<u64> = value.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        if let [_, _, most] = &mut three[..]
            && *most < round_trip
        {
            *most = round_trip;
            let words: Vec<String> = three.iter().map(u64::to_string).collect();
            out.push((sysctl(name), words.join(" ")));
        }
    }
    for name in ["net.core.rmem_max", "net.core.wmem_max"] {
        // 5 ms of a core's absence, and never less than what is.
        let wanted = round_trip / 20;
        if facts.setting(name).and_then(|value| value.parse::<u64>().ok()).is_some_and(|is| is < wanted) {
            out.push((sysctl(name), wanted.to_string()));
        }
    }
}

/// Where the setting is another value.
fn wants(facts: &Facts, name: &str, good: impl Fn(&str) -> bool, new: &str, out: &mut Vec<(Place, String)>) {
    if facts.setting(name).is_some_and(|value| !good(value)) {
        out.push((sysctl(name), new.to_owned()));
    }
}

fn idle(facts: &Facts, out: &mut Vec<(Place, String)>) {
    wants(facts, "net.ipv4.tcp_slow_start_after_idle", |value| value == "0", "0", out);
}

fn backlog(facts: &Facts, out: &mut Vec<(Place, String)>) {
    let enough = |value: &str| value.parse::<u32>().is_ok_and(|is| is >= BACKLOG);
    wants(facts, "net.core.netdev_max_backlog", enough, &BACKLOG.to_string(), out);
}

fn probing(facts: &Facts, out: &mut Vec<(Place, String)>) {
    wants(facts, "net.ipv4.tcp_mtu_probing", |value| value != "0", "1", out);
}

fn migration(facts: &Facts, out: &mut Vec<(Place, String)>) {
    wants(facts, "kernel.numa_balancing", |value| value == "0", "0", out);
}

fn governor(facts: &Facts, out: &mut Vec<(Place, String)>) {
    for core in facts.cores.iter().filter(|core| core.governor.is_some()) {
        let path = format!("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", core.id);
        out.push((file(path), "performance".to_owned()));
    }
}

fn read_ahead(facts: &Facts, out: &mut Vec<(Place, String)>) {
    for disk in facts.disks.iter().filter(|disk| disk.read_ahead_bytes.is_some_and(|bytes| bytes < 4 << 20)) {
        out.push((file(format!("/sys/block/{}/queue/read_ahead_kb", disk.name)), "4096".to_owned()));
    }
}

fn scheduler(facts: &Facts, out: &mut Vec<(Place, String)>) {
    for disk in facts.disks.iter().filter(|disk| disk.rotational == Some(false) && disk.scheduler.is_some()) {
        out.push((file(format!("/sys/block/{}/queue/scheduler", disk.name)), "none".to_owned()));
    }
}

fn qdisc(facts: &Facts, out: &mut Vec<(Place, String)>) {
    out.extend(live(facts).map(|nic| (Place::Qdisc { nic: nic.name.clone() }, "fq".to_owned())));
}

fn rfs(facts: &Facts, out: &mut Vec<(Place, String)>) {
    for nic in live(facts).filter(|nic| nic.rx_queues > 0) {
        // The kernel rounds up to a power of two.
        let each = (FLOWS / nic.rx_queues).next_power_of_two();
        for queue in 0..nic.rx_queues {
            out.push((file(format!("/sys/class/net/{}/queues/rx-{queue}/rps_flow_cnt", nic.name)), each.to_string()));
        }
        if nic.ntuple == Some(false) && nic.rx_queues > 1 {
            out.push((Place::Nic { nic: nic.name.clone(), knob: Knob::Ntuple }, "1".to_owned()));
        }
    }
    let table = facts.setting("net.core.rps_sock_flow_entries").and_then(|value| value.parse::<usize>().ok());
    if table.is_some_and(|entries| entries < FLOWS) && !out.is_empty() {
        out.push((sysctl("net.core.rps_sock_flow_entries"), FLOWS.to_string()));
    }
}

fn rps(facts: &Facts, out: &mut Vec<(Place, String)>) {
    for nic in live(facts).filter(|nic| nic.rx_queues > 0 && nic.rps_queues == 0) {
        // Isolated ones the kernel takes out of the mask by itself, and would then show another one than was set.
        let is_free = |id: &u32| facts.cores.iter().any(|core| core.id == *id && !core.isolated);
        let cores: Vec<u32> = near(facts, nic).filter(is_free).collect();
        if nic.rx_queues >= cores.len() {
            continue;
        }
        for queue in 0..nic.rx_queues {
            out.push((file(format!("/sys/class/net/{}/queues/rx-{queue}/rps_cpus", nic.name)), mask(&cores)));
        }
    }
}

fn congestion(facts: &Facts, out: &mut Vec<(Place, String)>) {
    let words = |name: &str| facts.setting(name).map(|value| value.split_whitespace().collect::<Vec<_>>());
    let (Some(has), Some(now)) =
        (words("net.ipv4.tcp_available_congestion_control"), facts.setting("net.ipv4.tcp_congestion_control"))
    else {
        return;
    };
    if now == "bbr" || !has.contains(&"bbr") {
        return;
    }
    // What is made the default is permitted to everybody from then on, also after it is the default no more: set as a value of its own, it has its
    // own old one, and comes back. The kernel shows what is permitted in the order of what it has.
    if let Some(allowed) = words("net.ipv4.tcp_allowed_congestion_control")
        && !allowed.contains(&"bbr")
    {
        let with: Vec<&str> = has.into_iter().filter(|name| *name == "bbr" || allowed.contains(name)).collect();
        out.push((sysctl("net.ipv4.tcp_allowed_congestion_control"), with.join(" ")));
    }
    out.push((sysctl("net.ipv4.tcp_congestion_control"), "bbr".to_owned()));
}

fn mtu(facts: &Facts, out: &mut Vec<(Place, String)>) {
    for nic in live(facts).filter(|nic| nic.mtu.is_some_and(|mtu| mtu < JUMBO)) {
        out.push((file(format!("/sys/class/net/{}/mtu", nic.name)), JUMBO.to_string()));
    }
}

fn huge(facts: &Facts, out: &mut Vec<(Place, String)>) {
    let has_room = |node: &&Node| node.free_bytes.is_some_and(|free| free > 4 * HUGE_PAGES * HUGE_BYTES);
    for node in facts.nodes.iter().filter(has_room).filter(|node| node.huge_2m.is_some_and(|[all, _]| all < HUGE_PAGES))
    {
        let path = format!("/sys/devices/system/node/node{}/hugepages/hugepages-2048kB/nr_hugepages", node.id);
        out.push((file(path), HUGE_PAGES.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_written_as_the_kernel_prints_it() {
        assert_eq!(mask(&[]), "0");
        assert_eq!(mask(&[0]), "1");
        assert_eq!(mask(&[0, 4]), "11");
        assert_eq!(mask(&[33]), "2,00000000");
        assert_eq!(mask(&[0, 63]), "80000000,00000001");
    }

    #[test]
    fn flow_tables_steering_long_packets_and_huge_pages_are_proposed_where_they_lack() {
        let tree = Tree::parse(
            "sys/class/net/ = e0\nsys/class/net/e0/device -> 0000\nsys/class/net/e0/operstate = up\nsys/class/net/e0/mtu = 1500\n\
             sys/class/net/e0/queues/ = rx-0 rx-1 rx-2 tx-0\nethtool/e0/flags = 37 0\nproc/sys/net/core/rps_sock_flow_entries = 0\n\
             sys/devices/system/node/ = node0 node1\nsys/devices/system/node/node0/meminfo = Node 0 MemFree: 4194304 kB\n\
             sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages = 0\n\
             sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages = 0\n\
             sys/devices/system/node/node1/meminfo = Node 1 MemFree: 4096 kB\n\
             sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages = 0\n\
             sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages = 0\n",
        )
        .unwrap();
        let facts = topology::facts::read(&tree);
        let said = |name: &str| {
            let mut out = Vec::new();
            (named(name).unwrap().propose)(&facts, &mut out);
            out.iter().map(|(place, value)| format!("{place} = {value}")).collect::<Vec<_>>().join("; ")
        };
        let counts: Vec<String> =
            (0..3).map(|at| format!("/sys/class/net/e0/queues/rx-{at}/rps_flow_cnt = 16384")).collect();
        assert_eq!(said("rfs"), counts.join("; ") + "; e0 ntuple = 1; net.core.rps_sock_flow_entries = 32768");
        assert_eq!(said("mtu"), "/sys/class/net/e0/mtu = 9000");
        let pages = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages = 128";
        assert_eq!(said("huge-pages"), pages, "a node without room is left");
        assert!(
            named("mtu").unwrap().by_name && named("huge-pages").unwrap().by_name && !named("rfs").unwrap().by_name
        );
    }

    /// What a rule proposes for a tree.
    fn said(name: &str, tree: &str) -> String {
        let facts = topology::facts::read(&Tree::parse(tree).unwrap());
        let mut out = Vec::new();
        (named(name).unwrap().propose)(&facts, &mut out);
        out.iter().map(|(place, value)| format!("{place} = {value}")).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn interrupts_for_each_packet_get_a_time_and_fixed_times_adapt() {
        let nic = |words: &str| {
            format!(
                "sys/class/net/ = e0\nsys/class/net/e0/device -> 0000\nsys/class/net/e0/operstate = up\n\
                 ethtool/e0/coalescing = 14 {words} 0 0 0 0 0 0 0 0 0 0 0 0\n"
            )
        };
        assert_eq!(said("coalescing", &nic("0 1 0 0 0 0 0 0 0 0")), "e0 rx-usecs = 50");
        assert_eq!(said("coalescing", &nic("3 0 0 0 3 0 0 0 0 0")), "e0 adaptive-rx = 1");
        assert_eq!(said("coalescing", &nic("0 64 0 0 0 0 0 0 0 0")), "e0 adaptive-rx = 1");
        assert_eq!(said("coalescing", &nic("0 0 0 0 0 0 0 0 0 1")), "", "it adapts already");
        assert_eq!(
            said("coalescing", "sys/class/net/ = e0\nsys/class/net/e0/device -> 0\nsys/class/net/e0/operstate = up\n"),
            "",
            "a driver that does not tell"
        );
    }

    #[test]
    fn packets_of_few_queues_go_to_the_cores_of_the_nics_node_but_for_isolated_ones_and_chosen_masks() {
        let tree = |queues: &str, more: &str| {
            format!(
                "sys/devices/system/cpu/online = 0-7\nsys/devices/system/cpu/isolated = 7\nsys/devices/system/node/ = node0 node1\n\
                 sys/devices/system/node/node0/cpulist = 0-3\nsys/devices/system/node/node1/cpulist = 4-7\n\
                 sys/class/net/ = e0\nsys/class/net/e0/device -> 0000\nsys/class/net/e0/operstate = up\n\
                 sys/class/net/e0/device/numa_node = 1\nsys/class/net/e0/queues/ = {queues} tx-0\n{more}"
            )
        };
        let path = |queue: u32| format!("/sys/class/net/e0/queues/rx-{queue}/rps_cpus = 70");
        assert_eq!(said("rps", &tree("rx-0", "")), path(0));
        assert_eq!(said("rps", &tree("rx-0 rx-1", "")), [path(0), path(1)].join("; "));
        assert_eq!(said("rps", &tree("rx-0 rx-1 rx-2", "")), "", "a queue for each core");
        assert_eq!(said("rps", &tree("rx-0 rx-1", "sys/class/net/e0/queues/rx-1/rps_cpus = 0c\n")), "", "chosen");
    }

    #[test]
    fn bbr_is_proposed_where_the_kernel_has_it_and_who_is_permitted_it_comes_back_too() {
        let tree = |has: &str, allowed: &str, now: &str| {
            format!(
                "proc/sys/net/ipv4/tcp_available_congestion_control = {has}\n\
                 proc/sys/net/ipv4/tcp_allowed_congestion_control = {allowed}\nproc/sys/net/ipv4/tcp_congestion_control = {now}\n"
            )
        };
        let rule = |has, allowed, now| said("congestion-control", &tree(has, allowed, now));
        assert_eq!(rule("reno cubic", "reno cubic", "cubic"), "");
        assert_eq!(rule("reno bbr cubic", "reno bbr", "bbr"), "");
        let set = "net.ipv4.tcp_congestion_control = bbr";
        assert_eq!(rule("reno bbr cubic", "reno bbr", "cubic"), set);
        let both = format!("net.ipv4.tcp_allowed_congestion_control = reno bbr cubic; {set}");
        assert_eq!(rule("reno bbr cubic dctcp", "reno cubic", "cubic"), both);
        assert!(named("congestion-control").unwrap().by_name, "it is every program's");
    }

    #[test]
    fn names_are_one_each_and_told_with_why_and_risk() {
        for (at, rule) in RULES.iter().enumerate() {
            assert!(RULES[..at].iter().all(|other| other.name != rule.name), "{}", rule.name);
            assert!(!rule.why.is_empty() && !rule.source.is_empty() && !rule.risk.is_empty());
        }
    }
}
