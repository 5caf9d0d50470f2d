//! Memory nodes: which have cores of this process, and which a card or a file system's disks are on.
//!
//! For: jobs, whose workers are put beside what they serve (`engine::numa` decides).
//! In and out: /sys, or a record of another machine's → nodes by number.
//! Invariants: a machine with one node, or a process that was given the cores of one, has no `Nodes`: nothing else is looked at then; what is not told
//! has no node; only cores that this process may use.
//! Absent on purpose: choosing, distances.

use std::os::fd::AsFd;

use crate::disks;
use crate::tree::{Tree, list};

/// Devices upon devices (RAID on encryption on partitions; a VLAN on a bond): deeper than anybody builds.
const DEPTH: usize = 8;

/// Two or more nodes that have cores of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes {
    cores: Vec<(u16, Vec<usize>)>,
}

impl Nodes {
    /// Of this machine; `None`: there is nothing to choose, or the user chose already (`numactl`: a memory policy of the process).
    #[must_use]
    pub fn here() -> Option<Nodes> {
        let granted = sys::host::cores().ok()?.numbers;
        Nodes::of(&Tree::here(), &granted).filter(|_| !sys::mem::has_policy())
    }

    /// Of a tree, for a process that may use these cores.
    #[must_use]
    pub fn of(tree: &Tree, granted: &[usize]) -> Option<Nodes> {
        const AT: &str = "sys/devices/system/node";
        let names = tree.names(AT);
        let numbers: Vec<u16> = names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok()).collect();
        if numbers.len() < 2 {
            return None;
        }
        let own = |node: u16| {
            let all = list(&tree.text(&format!("{AT}/node{node}/cpulist"))?);
            let own: Vec<usize> = all.into_iter().map(|core| core as usize).filter(|it| granted.contains(it)).collect();
            (!own.is_empty()).then_some((node, own))
        };
        let cores: Vec<_> = numbers.into_iter().filter_map(own).collect();
        (cores.len() > 1).then_some(Nodes { cores })
    }

    /// How many cores each has.
    #[must_use]
    pub fn room(&self) -> Vec<(u16, u32)> {
        self.cores.iter().map(|(node, cores)| (*node, u32::try_from(cores.len()).unwrap_or(u32::MAX))).collect()
    }

    /// The cores of a node that this process may use.
    #[must_use]
    pub fn cores_of(&self, node: u16) -> &[usize] {
        self.cores.iter().find(|(known, _)| *known == node).map_or(&[], |(_, cores)| cores)
    }
}

/// Of the card, or of those below a bond, a VLAN, a bridge.
#[must_use]
pub fn of_card(tree: &Tree, name: &str) -> Vec<u16> {
    fn look(tree: &Tree, name: &str, depth: usize, out: &mut Vec<u16>) {
        let at = format!("sys/class/net/{name}");
        if let Some(node) = disks::node_at(tree, &at) {
            out.push(node);
        } else if depth < DEPTH {
            let names = tree.names(&at);
            names.iter().filter_map(|it| it.strip_prefix("lower_")).for_each(|it| look(tree, it, depth + 1, out));
        }
    }
    let mut out = Vec::new();
    look(tree, name, 0, &mut out);
    out
}

/// Of the disks below a block device (`sys/dev/block/8:1`, `sys/class/block/sda1`), each.
fn below(tree: &Tree, at: &str, depth: usize, out: &mut Vec<u16>) {
    let is_part = tree.text(&format!("{at}/partition")).is_some();
    let at = if is_part { format!("{at}/..") } else { at.to_owned() };
    if let Some(node) = disks::node_at(tree, &at) {
        out.push(node);
        return;
    }
    // A drive with several paths: the device is of none of its controllers.
    let controllers = tree.names(&format!("{at}/device"));
    let is_one = |name: &&String| name.strip_prefix("nvme").is_some_and(|rest| rest.parse::<u32>().is_ok());
    out.extend(controllers.iter().filter(is_one).filter_map(|it| disks::node_at(tree, &format!("{at}/device/{it}"))));
    if depth < DEPTH {
        let members = tree.names(&format!("{at}/slaves"));
        members.iter().for_each(|it| below(tree, &format!("sys/class/block/{it}"), depth + 1, out));
    }
}

/// Of each disk below the file system that this is on.
#[must_use]
pub fn of_disks(tree: &Tree, dev: u64, on: impl AsFd) -> Vec<u16> {
    let mut out = Vec::new();
    match sys::fs::device_numbers(dev) {
        (0, _) => {
            // btrfs has numbers of its own for each of its trees.
            let mount = sys::fs::mount_of(on).ok().filter(|mount| mount.fs_type == "btrfs");
            let device = mount.and_then(|it| std::fs::canonicalize(it.device).ok());
            let name = device.and_then(|it| Some(it.file_name()?.to_str()?.to_owned()));
            name.iter().flat_map(|name| beside(tree, name)).for_each(|at| below(tree, &at, 0, &mut out));
        }
        (major, minor) => below(tree, &format!("sys/dev/block/{major}:{minor}"), 0, &mut out),
    }
    out
}

/// All devices of the btrfs that this one is of.
fn beside(tree: &Tree, device: &str) -> Vec<String> {
    let sets = tree.names("sys/fs/btrfs").into_iter().map(|set| tree.names(&format!("sys/fs/btrfs/{set}/devices")));
    let own = sets.into_iter().find(|set| set.iter().any(|it| it == device)).unwrap_or_default();
    own.into_iter().map(|it| format!("sys/class/block/{it}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Tree {
        Tree::parse(include_str!("../records/four-drives.txt")).expect("a record")
    }

    fn disks_below(at: &str) -> Vec<u16> {
        let mut out = Vec::new();
        below(&machine(), at, 0, &mut out);
        out
    }

    #[test]
    fn only_cores_of_this_process_count_and_one_node_is_nothing_to_choose() {
        let all: Vec<usize> = (0..8).collect();
        let nodes = Nodes::of(&machine(), &all).expect("two nodes have cores");
        assert_eq!(nodes.room(), [(0, 4), (1, 4)], "the third has memory alone");
        assert_eq!(nodes.cores_of(1), [4, 5, 6, 7]);
        let some = Nodes::of(&machine(), &[3, 4, 5]).expect("taskset left cores of both");
        assert_eq!((some.room(), some.cores_of(0)), (vec![(0, 1), (1, 2)], &[3][..]));
        assert_eq!(Nodes::of(&machine(), &[0, 1, 2, 3]), None, "taskset chose the node");
        let one = Tree::parse("sys/devices/system/node/ = node0\nsys/devices/system/node/node0/cpulist = 0-7").unwrap();
        assert_eq!(Nodes::of(&one, &all), None);
        assert_eq!(Nodes::of(&Tree::parse("").unwrap(), &all), None, "/sys is hidden");
    }

    #[test]
    fn a_card_is_where_its_device_is_and_a_bond_where_its_cards_are() {
        let tree = machine();
        assert_eq!((of_card(&tree, "ens1"), of_card(&tree, "ens2")), (vec![0], vec![1]));
        assert_eq!(of_card(&tree, "bond0.7"), [0, 1], "a VLAN on a bond of both");
        assert_eq!(of_card(&tree, "eth9"), [1], "virtio: its parent is on the bus");
        assert_eq!((of_card(&tree, "lo"), of_card(&tree, "old0")), (vec![], vec![]), "-1 is no node");
    }

    #[test]
    fn a_file_system_is_where_all_its_disks_are() {
        assert_eq!(disks_below("sys/dev/block/259:0"), [0]);
        assert_eq!(disks_below("sys/dev/block/259:3"), [1], "a partition");
        assert_eq!(disks_below("sys/dev/block/9:0"), [0, 1, 1], "a RAID of two drives and a partition");
        assert_eq!(disks_below("sys/dev/block/253:0"), [0, 1, 1], "a volume on that RAID");
        assert_eq!(disks_below("sys/dev/block/259:9"), [0, 1], "a drive with two paths");
        assert_eq!(disks_below("sys/dev/block/8:0"), [1], "a SAS disk, some folders below its card");
        assert!(disks_below("sys/dev/block/7:0").is_empty(), "a loop device does not tell");
        let btrfs = beside(&machine(), "nvme1n1");
        assert_eq!(btrfs, ["sys/class/block/nvme0n1", "sys/class/block/nvme1n1"]);
        assert_eq!(beside(&machine(), "sdz"), Vec::<String>::new());
    }
}
