//! What a machine has: cores, NUMA nodes, NICs, disks, file systems, settings.
//!
//! For: `host show`. In and out: a tree → plain records, and a sentence for each thing that the machine hides.
//! Invariants: pure but for the tree; what is not told is `None`, never a guess; text of the machine is cut and free of control characters.
//! Absent on purpose: judgement, drawing (`tune`).

use serde::Serialize;

use crate::disks::{self, Disk, Mount};
use crate::nics::{self, Nic};
use crate::tree::{Tree, chosen, clean, list};

/// Settings of the kernel that matter to transfers; those that a kernel does not have are left out.
const SETTINGS: [&str; 23] = [
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/core/netdev_max_backlog",
    "net/core/default_qdisc",
    "net/core/rps_sock_flow_entries",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "net/ipv4/udp_mem",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_available_congestion_control",
    "net/ipv4/tcp_allowed_congestion_control",
    "net/ipv4/tcp_mtu_probing",
    "net/ipv4/tcp_slow_start_after_idle",
    "net/ipv4/tcp_sack",
    "net/ipv4/tcp_timestamps",
    "vm/dirty_ratio",
    "vm/dirty_background_ratio",
    "vm/swappiness",
    "vm/nr_hugepages",
    "vm/zone_reclaim_mode",
    "kernel/numa_balancing",
    "kernel/io_uring_disabled",
    "kernel/perf_event_paranoid",
];

/// A logical core.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Core {
    pub id: u32,
    pub package: Option<u32>,
    pub node: Option<u32>,
    /// First core of those that share the last-level cache with it.
    pub cache_group: Option<u32>,
    /// That cache: its level, and its bytes.
    pub cache_level: Option<u32>,
    pub cache_bytes: Option<u64>,
    /// Cores of one physical core, itself among them.
    pub siblings: Vec<u32>,
    pub isolated: bool,
    /// Busy since the machine's start, 0 to 1.
    pub busy: Option<f64>,
    pub governor: Option<String>,
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Node {
    pub id: u32,
    pub cores: Vec<u32>,
    pub total_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
    /// Of the free memory, what lies in blocks of 2 MiB and more, 0 to 1.
    pub unbroken: Option<f64>,
    /// Reserved, and of these free.
    pub huge_2m: Option<[u64; 2]>,
    pub huge_1g: Option<[u64; 2]>,
    /// To each node, as the firmware tells it (10: itself).
    pub distances: Vec<u32>,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Facts {
    pub cpu: Option<String>,
    pub kernel: Option<String>,
    /// Mean of the last minute.
    pub load: Option<f64>,
    pub cores: Vec<Core>,
    pub nodes: Vec<Node>,
    pub nics: Vec<Nic>,
    /// Interfaces without a device of their own.
    pub virtual_nics: Vec<String>,
    pub disks: Vec<Disk>,
    pub mounts: Vec<Mount>,
    /// Name and value.
    pub settings: Vec<(String, String)>,
    /// `always`, `madvise`, `never`.
    pub transparent_huge_pages: Option<String>,
    pub smt: Option<bool>,
    /// Programs that arrange interrupts, clocks or memory.
    pub running: Option<Vec<String>>,
    /// What this machine does not tell, and why that matters.
    pub hidden: Vec<String>,
}

impl Facts {
    /// A setting by name.
    #[must_use]
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The nodes' number of a core.
    #[must_use]
    pub fn node_of(&self, core: u32) -> Option<u32> {
        self.cores.iter().find(|known| known.id == core)?.node
    }
}

/// The number after a name like `node3`.
fn numbered(name: &str, word: &str) -> Option<u32> {
    name.strip_prefix(word)?.parse().ok()
}

/// Only the cores.
#[must_use]
pub fn places(tree: &Tree) -> Vec<Core> {
    cores(tree, &nodes(tree))
}

/// Reads all of it.
#[must_use]
pub fn read(tree: &Tree) -> Facts {
    let nodes = nodes(tree);
    let cores = cores(tree, &nodes);
    let (nics, virtual_nics) = nics::read(tree);
    let info = tree.text("proc/cpuinfo").unwrap_or_default();
    let line =
        info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| clean(name)));
    let settings = SETTINGS.iter().filter_map(|name| {
        let value = tree.text(&format!("proc/sys/{name}"))?;
        Some((name.replace('/', "."), clean(&value)))
    });
    let pages = tree.text("sys/kernel/mm/transparent_hugepage/enabled");
    let mut facts = Facts {
        cpu: line,
        kernel: tree.text("proc/sys/kernel/osrelease").map(|text| clean(&text)),
        load: tree.number("proc/loadavg"),
        cores,
        nodes,
        nics,
        virtual_nics,
        disks: disks::read(tree),
        mounts: disks::mounts(tree),
        settings: settings.collect(),
        transparent_huge_pages: pages.as_deref().and_then(chosen),
        smt: tree.number::<u8>("sys/devices/system/cpu/smt/active").map(|active| active == 1),
        running: tree.running(),
        hidden: Vec::new(),
    };
    if let [only] = &facts.nodes[..] {
        // Where there is one node, a device that does not tell is on it.
        let node = Some(only.id);
        facts.nics.iter_mut().for_each(|nic| nic.node = nic.node.or(node));
        facts.disks.iter_mut().for_each(|disk| disk.node = disk.node.or(node));
    }
    facts.hidden = hidden(tree, &facts);
    facts
}

fn cores(tree: &Tree, nodes: &[Node]) -> Vec<Core> {
    let isolated = list(&tree.text("sys/devices/system/cpu/isolated").unwrap_or_default());
    let stat = tree.text("proc/stat").unwrap_or_default();
    let online = tree.text("sys/devices/system/cpu/online").map(|text| list(&text)).unwrap_or_default();
    let counted = stat.lines().filter_map(|line| numbered(line.split_whitespace().next()?, "cpu"));
    let ids = if online.is_empty() { counted.collect() } else { online };
    let one = |id: u32| {
        let at = format!("sys/devices/system/cpu/cpu{id}");
        let siblings = tree.text(&format!("{at}/topology/thread_siblings_list")).map(|text| list(&text));
        // The highest index is the last level.
        let caches = tree.names(&format!("{at}/cache"));
        let last = caches.iter().filter_map(|name| numbered(name, "index")).max();
        let cache = |file: &str| last.and_then(|index| tree.text(&format!("{at}/cache/index{index}/{file}")));
        let shared = cache("shared_cpu_list");
        Core {
            id,
            package: tree.number(&format!("{at}/topology/physical_package_id")),
            node: nodes.iter().find(|node| node.cores.contains(&id)).map(|node| node.id),
            cache_group: shared.and_then(|text| list(&text).first().copied()),
            cache_level: cache("level").and_then(|text| text.parse().ok()),
            // `32768K` (Documentation/ABI/testing/sysfs-devices-system-cpu).
            cache_bytes: cache("size")
                .and_then(|text| text.strip_suffix('K')?.parse::<u64>().ok())
                .map(|kib| kib << 10),
            siblings: siblings.filter(|list| !list.is_empty()).unwrap_or_else(|| vec![id]),
            isolated: isolated.contains(&id),
            busy: busy(&stat, id),
            governor: tree.text(&format!("{at}/cpufreq/scaling_governor")).map(|text| clean(&text)),
        }
    };
    ids.into_iter().map(one).collect()
}

/// Share of ticks not spent idle or waiting for disks (proc(5): user nice system idle iowait irq softirq steal).
fn busy(stat: &str, core: u32) -> Option<f64> {
    let label = format!("cpu{core} ");
    let line = stat.lines().find_map(|line| line.strip_prefix(label.as_str()))?;
    let ticks: Vec<f64> = line.split_whitespace().take(8).filter_map(|word| word.parse().ok()).collect();
    let all: f64 = ticks.iter().sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    (all > 0.0).then(|| 1.0 - idle / all)
}

fn nodes(tree: &Tree) -> Vec<Node> {
    let at = "sys/devices/system/node";
    let buddies = tree.text("proc/buddyinfo").unwrap_or_default();
    let one = |id: u32| {
        let memory = tree.text(&format!("{at}/node{id}/meminfo")).unwrap_or_default();
        let kib = |label: &str| {
            let line = memory.lines().find(|line| line.contains(label))?;
            line.rsplit(':').next()?.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
        };
        let huge = |kib: u32| {
            let folder = format!("{at}/node{id}/hugepages/hugepages-{kib}kB");
            Some([tree.number(&format!("{folder}/nr_hugepages"))?, tree.number(&format!("{folder}/free_hugepages"))?])
        };
        Node {
            id,
            cores: tree.text(&format!("{at}/node{id}/cpulist")).map(|text| list(&text)).unwrap_or_default(),
            total_bytes: kib("MemTotal:"),
            free_bytes: kib("MemFree:"),
            unbroken: unbroken(&buddies, id),
            huge_2m: huge(2048),
            huge_1g: huge(1_048_576),
            distances: tree
                .text(&format!("{at}/node{id}/distance"))
                .map(|text| text.split_whitespace().filter_map(|word| word.parse().ok()).collect())
                .unwrap_or_default(),
        }
    };
    tree.names(at).iter().filter_map(|name| numbered(name, "node")).map(one).collect()
}

/// Order 9 of pages of 4 KiB is 2 MiB (Documentation/filesystems/proc.rst, buddyinfo).
#[expect(clippy::cast_precision_loss, reason = "a share with two digits")]
fn unbroken(buddies: &str, node: u32) -> Option<f64> {
    let label = format!("Node {node},");
    let (mut all, mut long) = (0_u64, 0_u64);
    for line in buddies.lines().filter(|line| line.starts_with(&label)) {
        let counts = line.split_whitespace().skip(4).map(|word| word.parse::<u64>().unwrap_or(0));
        for (order, count) in counts.enumerate().take(20) {
            let pages = count.saturating_mul(1 << order);
            all = all.saturating_add(pages);
            long = long.saturating_add(if order >= 9 { pages } else { 0 });
        }
    }
    (all > 0).then(|| long as f64 / all as f64)
}

fn hidden(tree: &Tree, facts: &Facts) -> Vec<String> {
    let mut out = Vec::new();
    let mut say = |is: bool, words: &str| {
        if is {
            out.push(words.to_owned());
        }
    };
    let cgroup = tree.text("proc/1/cgroup").unwrap_or_default();
    let boxed = ["docker", "kubepods", "lxc", "containerd"].iter().any(|word| cgroup.contains(word))
        || tree.text(".dockerenv").is_some()
        || tree.text("run/.containerenv").is_some();
    say(
        boxed,
        "this is a container: NICs, interrupts and settings of the machine around it may be others than those shown",
    );
    say(facts.cores.is_empty(), "cores: neither /sys nor /proc/stat can be read");
    say(
        facts.cores.iter().all(|core| core.cache_group.is_none()),
        "which cores share a cache: /sys has no cache topology here",
    );
    say(facts.nodes.is_empty(), "NUMA nodes: /sys/devices/system/node is not there; it is taken for one node");
    say(
        facts.cores.iter().all(|core| core.governor.is_none()),
        "clock governor: the cores' clocks are not this kernel's to set (a virtual machine, or firmware)",
    );
    say(facts.nics.is_empty(), "NICs: no interface here has a device; only the machine around sees it");
    for nic in &facts.nics {
        let mut lacks: Vec<&str> = Vec::new();
        for (is, word) in [
            (nic.speed_mbit.is_none(), "speed"),
            (nic.node.is_none() && facts.nodes.len() > 1, "NUMA node"),
            (nic.pcie.is_none(), "PCIe link"),
            (nic.rings.is_none(), "rings"),
            (nic.coalescing.is_none(), "interrupt moderation"),
            (nic.irqs.is_empty(), "interrupts"),
        ] {
            if is {
                lacks.push(word);
            }
        }
        say(
            !lacks.is_empty(),
            &format!(
                "{}: its driver ({}) does not report {}",
                nic.name,
                nic.driver.as_deref().unwrap_or("unknown"),
                lacks.join(", ")
            ),
        );
    }
    say(facts.disks.is_empty(), "disks: /sys/block shows none");
    say(facts.running.is_none(), "running programs: /proc cannot be listed");
    out
}
