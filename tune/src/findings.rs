//! What is good for transfers, what is not, and why: one table.
//!
//! For: `host show`. In and out: facts, and what `host plan` would change → findings, each with its rule.
//! Invariants: a rule says nothing about what the machine does not tell; a rule is a hint with a source, not a verdict on a job: only measuring
//! tells whether it matters here (the sources contradict each other about placement).
//! Absent on purpose: changing anything.

use std::fmt;

use serde::Serialize;

use crate::place::Place;
use crate::rules::{self, Change};
use text::units;
use topology::disks::Disk;
use topology::facts::Facts;
use topology::nics::Nic;
use topology::tree::show_list;

/// A round trip for which socket buffers should suffice: across an ocean.
const RTT_SECONDS: f64 = 0.1;
/// Below this, a link is not worth tuning for.
const FAST_MBIT: u32 = 10_000;
/// Partitions begin at whole MiB since 2009 (parted, fdisk): a multiple of every erase block and stripe in use.
const PART_ALIGN: u64 = 1 << 20;

/// One rule.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// What it looks at.
    pub what: &'static str,
    /// Why it matters.
    pub why: &'static str,
    /// Who says so.
    pub source: &'static str,
    /// The rule of `host plan` that sets it; none: no setting of the host does.
    pub by: Option<&'static str>,
    /// Subject, whether it is as it should be, and how it is.
    check: fn(&Facts, &mut Vec<Said>),
}

/// What a rule found: subject, good, words.
type Said = (String, bool, String);

/// A finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    pub what: &'static str,
    /// A NIC, a disk, or `host`.
    pub subject: String,
    pub good: bool,
    /// The state that was found, in a sentence.
    pub says: String,
    pub why: &'static str,
    pub source: &'static str,
    /// The rule of `host plan` that changes it, and how many values; none: it changes nothing of it.
    pub plan: Option<Planned>,
}

/// What `host plan` would change of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Planned {
    pub rule: &'static str,
    pub values: usize,
    /// Only where the rule is named (`--rule`).
    pub by_name: bool,
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let option = if self.by_name { " --rule" } else { ":" };
        let values = if self.values == 1 { "value" } else { "values" };
        write!(f, "host plan{option} {} sets {} {values}", self.rule, self.values)
    }
}

/// All rules, in the order of the path of a byte.
pub const RULES: &[Rule] = &[
    rule(
        "PCIe link",
        "a NIC in a slot with fewer or slower lanes than it has cannot reach its rate",
        "PCI Express Base Specification; lspci(8)",
        pcie,
    ),
    rule(
        "queues",
        "each queue is one core's work; with fewer queues than streams, streams share cores",
        "Linux Documentation/networking/scaling.rst",
        queues,
    ),
    rule(
        "rings",
        "short rings drop bursts that come while the core does something else",
        "ESnet fasterdata, NIC tuning",
        rings,
    )
    .by("rings"),
    rule(
        "offloads",
        "without segmentation and joining every 1500 bytes pass the whole stack",
        "Linux Documentation/networking/segmentation-offloads.rst",
        offloads,
    )
    .by("offloads"),
    rule(
        "MTU",
        "six times the packets of 9000 bytes cost up to six times the work per byte, if the whole path takes 9000",
        "RFC 8899; ESnet fasterdata, MTU",
        mtu,
    )
    .by("mtu"),
    rule(
        "interrupts",
        "queues whose interrupts share a core share its time; another node's core reads the NIC's data through the link between sockets",
        "Linux Documentation/core-api/irq/irq-affinity.rst",
        interrupts,
    )
    .by("interrupts"),
    rule(
        "steering",
        "RPS hands packets to other cores by an interrupt each; NICs with as many queues as cores need none",
        "Linux Documentation/networking/scaling.rst",
        steering,
    ),
    rule(
        "socket buffers",
        "a TCP stream has at most one buffer per round trip on its way; UDP drops what does not fit while the core is away",
        "RFC 7323; ip-sysctl.rst",
        buffers,
    )
    .by("socket-buffers"),
    rule(
        "slow start after idle",
        "a stream that paused for a round trip begins anew",
        "RFC 9293, RFC 5681 4.1; ip-sysctl.rst",
        idle,
    )
    .by("idle-start"),
    rule(
        "clock governor",
        "a core that must speed up first adds its delay to every burst",
        "Linux Documentation/admin-guide/pm/cpufreq.rst",
        governor,
    )
    .by("governor"),
    rule(
        "interrupt balancer",
        "it moves interrupts every ten seconds: good where nobody placed them, bad where somebody did",
        "irqbalance(1)",
        balancer,
    )
    .by("irqbalance"),
    rule(
        "page migration",
        "moves pages after threads by faults; with threads and buffers placed it only costs",
        "sysctl/kernel.rst, numa_balancing",
        migration,
    )
    .by("page-migration"),
    rule(
        "huge pages",
        "rings and pools of 4 KiB pages cost TLB misses and pins per page",
        "Linux Documentation/admin-guide/mm/hugetlbpage.rst, transhuge.rst",
        huge,
    )
    .by("huge-pages"),
    rule(
        "memory fragmentation",
        "free memory in small pieces makes huge pages and large buffers slow or impossible to get",
        "proc(5), buddyinfo",
        fragments,
    ),
    rule(
        "io_uring",
        "without it every read and write is a call of its own",
        "sysctl/kernel.rst, io_uring_disabled",
        uring,
    ),
    rule(
        "disk scheduler",
        "an elevator costs time where there is no head to move, and saves seeks where there is",
        "Linux Documentation/block/switching-sched.rst",
        scheduler,
    )
    .by("disk-scheduler"),
    rule(
        "alignment",
        "a block that straddles two physical ones is two reads and two writes",
        "Linux Documentation/ABI/stable/sysfs-block, alignment_offset",
        alignment,
    ),
    rule("RAID stripe", "writes that are not whole stripes read the rest first (RAID 5 and 6)", "md(4)", stripe),
    rule("mount options", "each of these options makes a write wait, or every read a write", "mount(8)", options),
    rule(
        "NIC and disk together",
        "data that goes from one socket's disk to another's NIC crosses the link between them",
        "ACPI SLIT; numa(7)",
        together,
    ),
];

const fn rule(what: &'static str, why: &'static str, source: &'static str, check: fn(&Facts, &mut Vec<Said>)) -> Rule {
    Rule { what, why, source, by: None, check }
}

impl Rule {
    const fn by(self, rule: &'static str) -> Rule {
        Rule { by: Some(rule), ..self }
    }
}

/// What all rules find, beside what `host plan` would change: what it changes unasked is not good, and what no rule here looks at is said too, so
/// that both commands say the same of one machine.
#[must_use]
pub fn judge(facts: &Facts, changes: &[Change]) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut open: Vec<(String, &Change)> = changes.iter().map(|change| (change.subject(facts), change)).collect();
    for rule in RULES {
        let mut said = Vec::new();
        (rule.check)(facts, &mut said);
        for (subject, is_good, says) in said {
            let plan = rule.by.and_then(|by| take(&mut open, by, &subject, Some(&says)));
            let good = is_good && plan.is_none_or(|plan| plan.by_name);
            let (what, why, source) = (rule.what, rule.why, rule.source);
            found.push(Finding { what, subject, good, says, why, source, plan });
        }
    }
    while let Some((subject, first)) = open.first().cloned() {
        // Asked for by name only, and nothing here says that it is wanting.
        if let (Some(plan), Some(rule)) = (take(&mut open, first.rule, &subject, None), rules::named(first.rule))
            && !plan.by_name
        {
            let says = format!("{} = {}", first.place, first.old);
            let (what, why, source) = (rule.name, rule.why, rule.source);
            found.push(Finding { what, subject, good: false, says, why, source, plan: Some(plan) });
        }
    }
    found
}

/// Takes the changes by this rule of this subject out of those that no finding has yet.
fn take(open: &mut Vec<(String, &Change)>, rule: &str, subject: &str, says: Option<&str>) -> Option<Planned> {
    let before = open.len();
    open.retain(|(of, change)| change.rule != rule || of != subject || says.is_some_and(|says| !is_said(says, change)));
    let (values, rule) = (before - open.len(), rules::named(rule)?);
    (values > 0).then_some(Planned { rule: rule.name, values, by_name: rule.by_name })
}

/// Is a change of what is said there? Of several settings of the host each has its own finding, which begins with its name.
fn is_said(says: &str, change: &Change) -> bool {
    let name = change.place.to_string();
    !matches!(&change.place, Place::File(path) if path.starts_with("/proc/sys")) || says.starts_with(&name)
}

fn live(facts: &Facts) -> impl Iterator<Item = &Nic> {
    facts.nics.iter().filter(|nic| nic.up)
}

fn host(out: &mut Vec<Said>, good: bool, says: String) {
    out.push(("host".to_owned(), good, says));
}

fn pcie(facts: &Facts, out: &mut Vec<Said>) {
    for nic in &facts.nics {
        let Some(link) = nic.pcie else { continue };
        let carries = link.bits_per_second();
        let narrow = link.width < link.width_max || link.speed < link.speed_max;
        let slow = nic.speed_mbit.is_some_and(|speed| carries < f64::from(speed) * 1e6);
        let now =
            format!("x{} at {} GT/s carries about {}", link.width, link.speed, units::show_bits_per_second(carries));
        let words = match (slow, narrow) {
            (true, _) => format!("{now}, less than the port's {} Gbit/s", nic.speed_mbit.unwrap_or(0) / 1000),
            (false, true) => format!("{now}; the NIC could have x{} at {} GT/s", link.width_max, link.speed_max),
            (false, false) => now,
        };
        // Fewer lanes than possible are no fault while they carry what the port does.
        out.push((nic.name.clone(), !slow && (!narrow || nic.speed_mbit.is_some()), words));
    }
}

fn queues(facts: &Facts, out: &mut Vec<Said>) {
    for nic in live(facts) {
        let near = facts.cores.iter().filter(|core| nic.node.is_none() || core.node == nic.node).count().max(1);
        let queues = nic.rx_queues.max(1);
        let could = nic.queues_max.map_or(queues, |most| (most as usize).max(queues)).min(near);
        let most = nic.queues_max.map_or(String::new(), |most| format!(" of {most} possible"));
        out.push((nic.name.clone(), queues >= could, format!("{queues} receive queues{most}, {near} cores near it")));
    }
}

fn rings(facts: &Facts, out: &mut Vec<Said>) {
    for nic in live(facts) {
        let Some([rx, tx]) = nic.rings.filter(|[rx, _]| rx[1] > 0) else { continue };
        // A NIC of 1 Gbit/s fills 256 in 3 ms; nobody is away so long.
        let good = rx[0] == rx[1] || nic.speed_mbit.is_some_and(|speed| speed < FAST_MBIT);
        out.push((nic.name.clone(), good, format!("rx {} of {}, tx {} of {}", rx[0], rx[1], tx[0], tx[1])));
    }
}

fn offloads(facts: &Facts, out: &mut Vec<Said>) {
    for nic in live(facts) {
        let known = [("TSO", nic.tso), ("GSO", nic.gso), ("GRO", nic.gro)];
        let off: Vec<&str> = known.iter().filter(|(_, on)| *on == Some(false)).map(|(name, _)| *name).collect();
        if known.iter().any(|(_, on)| on.is_some()) {
            let words =
                if off.is_empty() { "all on that it tells of".to_owned() } else { format!("off: {}", off.join(", ")) };
            out.push((nic.name.clone(), off.is_empty(), words));
        }
    }
}

fn mtu(facts: &Facts, out: &mut Vec<Said>) {
    for nic in live(facts) {
        if let (Some(mtu), Some(FAST_MBIT..)) = (nic.mtu, nic.speed_mbit) {
            out.push((nic.name.clone(), mtu >= 8900, format!("{mtu} bytes")));
        }
    }
}

fn interrupts(facts: &Facts, out: &mut Vec<Said>) {
    for nic in live(facts).filter(|nic| nic.irqs.len() > 2) {
        let mut placed: Vec<u32> = nic.irqs.iter().filter(|irq| irq.cores.len() == 1).map(|irq| irq.cores[0]).collect();
        placed.sort_unstable();
        let pinned = placed.len();
        placed.dedup();
        let far: Vec<u32> =
            placed.iter().copied().filter(|core| nic.node.is_some() && facts.node_of(*core) != nic.node).collect();
        let cores = facts.cores.len().max(1);
        let crowded = pinned > 0 && placed.len() < pinned.min(nic.rx_queues).min(cores);
        let mut words = format!(
            "{} interrupts on cores {}",
            nic.irqs.len(),
            if placed.is_empty() { "of the kernel's choice".to_owned() } else { show_list(&placed) }
        );
        if !far.is_empty() {
            words += &format!("; {} of another node than the NIC's: {}", far.len(), show_list(&far));
        }
        if crowded {
            words += "; several queues share a core";
        }
        out.push((nic.name.clone(), far.is_empty() && !crowded, words));
    }
}

fn steering(facts: &Facts, out: &mut Vec<Said>) {
    for nic in live(facts).filter(|nic| nic.rps_queues > 0) {
        let enough = nic.rx_queues >= facts.cores.len();
        out.push((nic.name.clone(), !enough, format!("RPS on {} of {} queues", nic.rps_queues, nic.rx_queues)));
    }
}

fn buffers(facts: &Facts, out: &mut Vec<Said>) {
    let fastest = live(facts).filter_map(|nic| nic.speed_mbit).max().unwrap_or(1000);
    let wanted = f64::from(fastest) * 1e6 / 8.0 * RTT_SECONDS;
    for (name, last) in [
        ("net.ipv4.tcp_rmem", true),
        ("net.ipv4.tcp_wmem", true),
        ("net.core.rmem_max", false),
        ("net.core.wmem_max", false),
    ] {
        let Some(most) = facts.setting(name).and_then(|value| value.split_whitespace().last()?.parse::<f64>().ok())
        else {
            continue;
        };
        // A UDP socket needs room for what comes while its core is away, 5 ms; a TCP stream for the whole round trip.
        let wanted = if last { wanted } else { wanted / RTT_SECONDS * 0.005 };
        let mib = |bytes: f64| format!("{:.1} MiB", bytes / f64::from(1 << 20));
        let reason = if last { "100 ms" } else { "5 ms" };
        host(
            out,
            most >= wanted,
            format!(
                "{name} at most {}, {reason} at {} Gbit/s are {}",
                mib(most),
                f64::from(fastest) / 1e3,
                mib(wanted)
            ),
        );
    }
}

fn idle(facts: &Facts, out: &mut Vec<Said>) {
    if let Some(value) = facts.setting("net.ipv4.tcp_slow_start_after_idle") {
        host(out, value == "0", format!("net.ipv4.tcp_slow_start_after_idle = {value}"));
    }
}

fn governor(facts: &Facts, out: &mut Vec<Said>) {
    let mut names: Vec<&str> = facts.cores.iter().filter_map(|core| core.governor.as_deref()).collect();
    names.sort_unstable();
    names.dedup();
    if !names.is_empty() {
        host(out, names == ["performance"], names.join(", "));
    }
}

fn balancer(facts: &Facts, out: &mut Vec<Said>) {
    let Some(running) = &facts.running else { return };
    let runs = running.iter().any(|name| name == "irqbalance");
    let placed = live(facts).any(|nic| nic.irqs.len() > 2 && nic.irqs.iter().all(|irq| irq.cores.len() == 1));
    if runs {
        host(
            out,
            !placed,
            format!(
                "irqbalance runs{}",
                if placed {
                    ", and every interrupt of a NIC is on one core: whoever placed them will be undone"
                } else {
                    ""
                }
            ),
        );
    } else {
        host(out, true, "irqbalance does not run".to_owned());
    }
    for name in running.iter().filter(|name| *name == "tuned" || *name == "tlp" || *name == "numad") {
        host(out, true, format!("{name} runs: it sets clocks, disks or placement by its own rules"));
    }
}

fn migration(facts: &Facts, out: &mut Vec<Said>) {
    if let (2.., Some(value)) = (facts.nodes.len(), facts.setting("kernel.numa_balancing")) {
        host(out, value == "0", format!("kernel.numa_balancing = {value}"));
    }
}

fn huge(facts: &Facts, out: &mut Vec<Said>) {
    let free: u64 = facts.nodes.iter().filter_map(|node| Some(node.huge_2m?[1])).sum();
    let words = facts.transparent_huge_pages.as_deref();
    if let Some(mode) = words {
        host(out, free > 0 || mode != "never", format!("{free} reserved ones of 2 MiB free; transparent ones: {mode}"));
    }
}

fn fragments(facts: &Facts, out: &mut Vec<Said>) {
    for node in &facts.nodes {
        if let Some(unbroken) = node.unbroken {
            out.push((
                format!("node {}", node.id),
                unbroken >= 0.5,
                format!("{:.0} % of the free memory in blocks of 2 MiB and more", unbroken * 100.0),
            ));
        }
    }
}

fn uring(facts: &Facts, out: &mut Vec<Said>) {
    if let Some(value) = facts.setting("kernel.io_uring_disabled") {
        host(out, value == "0", format!("kernel.io_uring_disabled = {value}"));
    }
}

fn scheduler(facts: &Facts, out: &mut Vec<Said>) {
    for disk in &facts.disks {
        if let (Some(scheduler), Some(rotational)) = (&disk.scheduler, disk.rotational) {
            let plain = scheduler == "none" || scheduler == "noop";
            // What a virtual disk says of its head is nobody's knowledge; either is well there.
            let virt = disk.name.starts_with("vd")
                || disk.name.starts_with("loop")
                || disk.name.starts_with("md")
                || disk.name.starts_with("dm-");
            let good = virt || plain != rotational;
            out.push((
                disk.name.clone(),
                good,
                format!("{scheduler}{}", if rotational { ", it says that it is rotational" } else { "" }),
            ));
        }
    }
}

fn alignment(facts: &Facts, out: &mut Vec<Said>) {
    for disk in &facts.disks {
        let off = disk.misaligned_bytes.unwrap_or(0);
        let crooked: Vec<&str> = disk
            .parts
            .iter()
            .filter(|part| !part.start_bytes.is_multiple_of(unit(disk)))
            .map(|part| part.name.as_str())
            .collect();
        if off > 0 {
            out.push((disk.name.clone(), false, format!("off by {off} bytes")));
        } else if !crooked.is_empty() {
            out.push((
                disk.name.clone(),
                false,
                format!("not at a multiple of {}: {}", units::show_memory(unit(disk)), crooked.join(", ")),
            ));
        } else if !disk.parts.is_empty() {
            out.push((
                disk.name.clone(),
                true,
                format!("{} partitions at multiples of {}", disk.parts.len(), units::show_memory(unit(disk))),
            ));
        }
    }
}

/// What partitions should begin at.
fn unit(disk: &Disk) -> u64 {
    let optimal = u64::from(disk.optimal_bytes.unwrap_or(0));
    if optimal > PART_ALIGN && optimal.is_multiple_of(4096) { optimal } else { PART_ALIGN }
}

fn stripe(facts: &Facts, out: &mut Vec<Said>) {
    for disk in &facts.disks {
        let Some((level, chunk)) = &disk.raid else { continue };
        let optimal = u64::from(disk.optimal_bytes.unwrap_or(0));
        let words = format!(
            "{level} of {} disks, chunk {}, stripe {}",
            disk.members.len(),
            units::show_memory(*chunk),
            units::show_memory(optimal)
        );
        // Longhaul's chunks are 1 to 16 MiB: a stripe that divides one of these is written whole.
        let whole = optimal > 0 && (16_u64 << 20).is_multiple_of(optimal);
        out.push((disk.name.clone(), whole || !matches!(level.as_str(), "raid4" | "raid5" | "raid6"), words));
    }
}

fn options(facts: &Facts, out: &mut Vec<Said>) {
    for mount in facts.mounts.iter().filter(|mount| mount.source.starts_with("/dev/")) {
        let bad: Vec<&str> = mount
            .options
            .iter()
            .map(String::as_str)
            .filter(|option| ["sync", "dirsync", "strictatime", "discard", "data=journal"].contains(option))
            .collect();
        let words = if bad.is_empty() {
            format!("{}, nothing that slows it", mount.kind)
        } else {
            format!("{}: {}", mount.kind, bad.join(", "))
        };
        // Trimming at every delete is said, but it is some systems' choice and does not touch reads or writes.
        let good = bad.iter().all(|option| *option == "discard");
        out.push((mount.at.clone(), good, words));
    }
}

fn together(facts: &Facts, out: &mut Vec<Said>) {
    let nics: Vec<(&str, u32)> = live(facts).filter_map(|nic| Some((nic.name.as_str(), nic.node?))).collect();
    for disk in facts.disks.iter().filter(|_| facts.nodes.len() > 1 && !nics.is_empty()) {
        let Some(node) = disk.node else { continue };
        let near: Vec<&str> = nics.iter().filter(|(_, of)| *of == node).map(|(name, _)| *name).collect();
        let words = if near.is_empty() {
            format!("on node {node}, where no NIC is")
        } else {
            format!("on node {node}, with {}", near.join(", "))
        };
        out.push((disk.name.clone(), !near.is_empty(), words));
    }
}
