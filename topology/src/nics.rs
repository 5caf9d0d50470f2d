//! NICs (network interface cards): what /sys and ethtool's calls tell of them.
//!
//! For: facts.rs. In and out: a tree → records. Invariants: as in facts.rs. Absent on purpose: interfaces without a device (they are named only).

use serde::Serialize;
use sys::nic as ask;

use crate::tree::{Tree, clean, list};

/// A link to the machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Pcie {
    /// Lanes.
    pub width: u32,
    pub width_max: u32,
    /// GT/s of a lane.
    pub speed: f64,
    pub speed_max: f64,
}

impl Pcie {
    /// What it can carry one way, bit/s: 8b/10b up to 5 GT/s, 128b/130b above (PCI Express Base Specification), a tenth for packet heads.
    #[must_use]
    pub fn bits_per_second(&self) -> f64 {
        let coding = if self.speed <= 5.0 { 0.8 } else { 128.0 / 130.0 };
        f64::from(self.width) * self.speed * 1e9 * coding * 0.9
    }
}

/// An interrupt and the cores that may take it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Irq {
    pub number: u32,
    pub cores: Vec<u32>,
}

/// A NIC's port.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Nic {
    pub name: String,
    pub driver: Option<String>,
    pub up: bool,
    pub speed_mbit: Option<u32>,
    pub mtu: Option<u32>,
    pub node: Option<u32>,
    pub pcie: Option<Pcie>,
    /// Queues in use.
    pub rx_queues: usize,
    pub tx_queues: usize,
    /// The most queues of each kind, or combined, that it can have.
    pub queues_max: Option<u32>,
    /// Descriptors now and at most: rx, tx.
    pub rings: Option<[[u32; 2]; 2]>,
    /// Microseconds and frames: rx, tx; adaptive rx.
    pub coalescing: Option<([[u32; 2]; 2], bool)>,
    pub tso: Option<bool>,
    pub gso: Option<bool>,
    pub gro: Option<bool>,
    pub lro: Option<bool>,
    /// It steers flows by rules.
    pub ntuple: Option<bool>,
    pub irqs: Vec<Irq>,
    /// Receive queues whose packets are handed to other cores by the kernel (RPS).
    pub rps_queues: usize,
    /// Transmit queues with cores of their own (XPS).
    pub xps_queues: usize,
}

/// NICs, and the names of what has no NIC.
#[must_use]
pub fn read(tree: &Tree) -> (Vec<Nic>, Vec<String>) {
    let (mut nics, mut others) = (Vec::new(), Vec::new());
    for name in tree.names("sys/class/net") {
        let at = format!("sys/class/net/{name}");
        if tree.target(&format!("{at}/device")).is_some() {
            nics.push(read_one(tree, &name, &at));
        } else if tree.text(&format!("{at}/mtu")).is_some() {
            others.push(clean(&name));
        }
    }
    (nics, others)
}

/// An interface, with a device of its own or not.
#[must_use]
pub fn read_one(tree: &Tree, name: &str, at: &str) -> Nic {
    // A virtio NIC is a child of the PCI device that has the node, the link and the interrupts.
    let parents = [format!("{at}/device"), format!("{at}/device/..")];
    let first = |of: &dyn Fn(&str) -> Option<u32>| parents.iter().find_map(|parent| of(parent));
    let queues = tree.names(&format!("{at}/queues"));
    let of_kind = |kind: &str| queues.iter().filter(|queue| queue.starts_with(kind)).cloned().collect::<Vec<String>>();
    let (rx, tx) = (of_kind("rx-"), of_kind("tx-"));
    // A mask of no core is zeros and commas.
    let masked = |queues: &[String], file: &str| {
        let has = |queue: &&String| {
            tree.text(&format!("{at}/queues/{queue}/{file}"))
                .is_some_and(|mask| mask.contains(|letter: char| letter != '0' && letter != ','))
        };
        queues.iter().filter(has).count()
    };
    let flag = |question| tree.ask_nic(name, question).and_then(|words| words.get(1).map(|word| *word != 0));
    let flags = tree.ask_nic(name, ("flags", ask::FLAGS)).and_then(|words| words.get(1).copied());
    let word = |words: &[u32], at: usize| words.get(at).copied().unwrap_or(0);
    Nic {
        name: clean(name),
        driver: tree.target(&format!("{at}/device/driver")).map(|text| clean(&text)),
        up: tree.text(&format!("{at}/operstate")).is_some_and(|state| state == "up"),
        // -1: the driver does not know.
        speed_mbit: tree
            .number::<i64>(&format!("{at}/speed"))
            .and_then(|speed| u32::try_from(speed).ok())
            .filter(|speed| *speed > 0),
        mtu: tree.number(&format!("{at}/mtu")),
        node: first(&|parent| {
            tree.number::<i64>(&format!("{parent}/numa_node")).and_then(|node| u32::try_from(node).ok())
        }),
        pcie: parents.iter().find_map(|parent| pcie(tree, parent)),
        rx_queues: rx.len(),
        tx_queues: tx.len(),
        queues_max: tree
            .ask_nic(name, ("channels", ask::CHANNELS))
            .map(|words| word(&words, 1).max(word(&words, 4)))
            .filter(|most| *most > 0),
        rings: tree
            .ask_nic(name, ("rings", ask::RINGS))
            .map(|words| [[word(&words, 5), word(&words, 1)], [word(&words, 8), word(&words, 4)]]),
        coalescing: tree.ask_nic(name, ("coalescing", ask::COALESCING)).map(|words| {
            ([[word(&words, 1), word(&words, 2)], [word(&words, 5), word(&words, 6)]], word(&words, 10) != 0)
        }),
        tso: flag(("tso", ask::TSO)),
        gso: flag(("gso", ask::GSO)),
        gro: flag(("gro", ask::GRO)),
        lro: flags.map(|flags| flags & (1 << 15) != 0),
        ntuple: flags.map(|flags| flags & (1 << 27) != 0),
        irqs: parents.iter().map(|parent| irqs(tree, parent)).find(|irqs| !irqs.is_empty()).unwrap_or_default(),
        rps_queues: masked(&rx, "rps_cpus"),
        xps_queues: masked(&tx, "xps_cpus"),
    }
}

/// The link of the device in this folder of /sys.
pub(crate) fn pcie(tree: &Tree, parent: &str) -> Option<Pcie> {
    // `16.0 GT/s PCIe`; `Unknown` where nobody knows.
    let speed = |file: &str| tree.number::<f64>(&format!("{parent}/{file}"));
    let link = Pcie {
        width: tree.number(&format!("{parent}/current_link_width"))?,
        width_max: tree.number(&format!("{parent}/max_link_width"))?,
        speed: speed("current_link_speed")?,
        speed_max: speed("max_link_speed")?,
    };
    // 255: a bus that has no lanes.
    (link.width > 0 && link.width < 64).then_some(link)
}

fn irqs(tree: &Tree, parent: &str) -> Vec<Irq> {
    let names = tree.names(&format!("{parent}/msi_irqs"));
    let one = |name: &String| {
        let number: u32 = name.parse().ok()?;
        let at = format!("proc/irq/{number}");
        let cores = tree.text(&format!("{at}/effective_affinity_list")).filter(|text| !text.is_empty());
        let cores = cores.or_else(|| tree.text(&format!("{at}/smp_affinity_list")))?;
        Some(Irq { number, cores: list(&cores) })
    };
    names.iter().filter_map(one).collect()
}
