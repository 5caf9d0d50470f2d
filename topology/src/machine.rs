//! This machine as a search for a placement sees it, and what its world is known by.
//!
//! For: `bench placement` and `host probe` at both ends, and jobs that ask whether a remembered placement still holds.
//! In and out: /sys and /proc, an address of this host → cores, the NIC behind the address, a number that changes when they do.
//! Invariants: only cores that this process may use; what another host says of itself is checked before it is used; the world's number does not
//! depend on where interrupts are just now (irqbalance moves them every ten seconds) nor on what was asked.
//! Absent on purpose: setting anything (`tune` does).

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::placement::shape::{CORES_MAX, Core, Shape};
use proto::checked::fnv;
use serde::{Deserialize, Serialize};

use crate::facts;
use crate::nics::{self, Nic};
use crate::tree::Tree;

/// One machine, as it crosses between two benches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The name of the host.
    pub host: String,
    /// The interface that leads to the other.
    #[serde(rename = "card")]
    pub nic: String,
    /// Kernel, cores and NIC in one number.
    pub world: u64,
    /// Each core's number, node, package, first core of its last-level cache, first core of its physical core.
    cores: Vec<[u16; 5]>,
    nic_node: Option<u16>,
    irqs: Vec<u16>,
    /// Its interrupts may be moved, and its operator asked for it.
    movable: bool,
    rings: bool,
}

/// The interface that has this address; `-`: none has.
#[must_use]
pub fn nic_of(local: IpAddr) -> String {
    let all = sys::host::interfaces().unwrap_or_default();
    all.into_iter().find(|it| it.addresses.contains(&local)).map_or_else(|| "-".to_owned(), |it| it.name)
}

/// What /sys and the driver tell of an interface.
#[must_use]
pub fn nic_named(tree: &Tree, nic: &str) -> Nic {
    nics::read_one(tree, nic, &format!("sys/class/net/{nic}"))
}

fn small(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

impl Machine {
    /// This one, as seen from the peer of a connection that begins at `local`. `may_move`: somebody asked for interrupts to be moved.
    #[must_use]
    pub fn here(local: IpAddr, may_move: bool) -> Machine {
        let (tree, nic) = (Tree::here(), nic_of(local));
        let known = nic_named(&tree, &nic);
        let granted = sys::host::cores().map(|cores| cores.numbers).unwrap_or_default();
        let all = facts::places(&tree);
        let one = |core: &facts::Core| {
            let cache = core.cache_group.unwrap_or(0);
            let physical = core.siblings.first().copied().unwrap_or(core.id);
            [core.id, core.node.unwrap_or(0), core.package.unwrap_or(0), cache, physical].map(small)
        };
        let is_granted = |core: &&facts::Core| granted.contains(&(core.id as usize));
        let cores: Vec<[u16; 5]> = all.iter().filter(is_granted).map(one).collect();
        // An interrupt that may come to every core is nowhere in particular.
        let placed = known.irqs.iter().filter(|irq| irq.cores.len() < all.len()).flat_map(|irq| &irq.cores);
        let irqs: BTreeSet<u16> = placed.map(|core| small(*core)).collect();
        let kernel = tree.text("proc/sys/kernel/osrelease").unwrap_or_default();
        let (rx, tx, count) = (known.rx_queues, known.tx_queues, known.irqs.len());
        let world = format!("{kernel}\n{cores:?}\n{:?} {:?} {rx} {tx} {count}", known.driver, known.speed_mbit);
        #[expect(clippy::disallowed_methods, reason = "opens to see whether it may be written, and writes nothing")]
        let is_writable = |path: String| std::fs::OpenOptions::new().write(true).open(path).is_ok();
        let first = known.irqs.first().map(|irq| format!("/proc/irq/{}/smp_affinity_list", irq.number));
        let door = first.unwrap_or_else(|| format!("/sys/class/net/{nic}/queues/rx-0/rps_cpus"));
        let movable = may_move && is_writable(door);
        Machine {
            host: sys::host::hostname(),
            world: fnv(&world),
            nic,
            cores,
            nic_node: known.node.map(small),
            irqs: irqs.into_iter().collect(),
            rings: movable && !known.irqs.is_empty() && known.queues_max.is_some_and(|most| most > 1),
            movable,
        }
    }

    /// As the search sees it; `None`: another host says what cannot be of itself.
    #[must_use]
    pub fn shape(&self) -> Option<Shape> {
        let core = |[id, node, package, cache, physical]: [u16; 5]| Core { id, node, package, cache, physical };
        let numbers: BTreeSet<u16> = self.cores.iter().map(|core| core[0]).collect();
        let good = (1..=usize::from(CORES_MAX)).contains(&self.cores.len())
            && numbers.len() == self.cores.len()
            && numbers.last().is_some_and(|last| *last < CORES_MAX);
        good.then(|| Shape {
            cores: self.cores.iter().copied().map(core).collect(),
            nic_node: self.nic_node,
            irqs: self.irqs.iter().copied().filter(|irq| numbers.contains(irq)).collect(),
            movable: self.movable,
            rings: self.rings,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_shape_and_the_same_world_twice() {
        let machine = Machine::here(IpAddr::from([127, 0, 0, 1]), false);
        let shape = machine.shape().expect("it is one");
        assert_eq!((machine.nic.as_str(), shape.movable), ("lo", false));
        assert_eq!(shape.cores.len(), sys::host::cores().unwrap().numbers.len());
        assert_eq!(Machine::here(IpAddr::from([127, 0, 0, 1]), true).world, machine.world);
        let text = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), machine);
        assert!(text.contains(r#""card":"lo""#), "a bench of an earlier version reads it: {text}");
    }

    #[test]
    fn what_another_host_says_of_itself_is_checked() {
        let good = Machine::here(IpAddr::from([127, 0, 0, 1]), false);
        for cores in [vec![], vec![[0; 5], [0; 5]], vec![[u16::MAX, 0, 0, 0, 0]]] {
            assert_eq!(Machine { cores, ..good.clone() }.shape(), None);
        }
    }
}
