//! Where a job's workers go on a machine of several NUMA nodes, and why.
//!
//! For: both ends of every job for which nobody measured a placement (`measured`) or said one.
//! In and out: addresses of this host that its paths leave by, its source or destination → nodes by weight, the node of each volume, a holding
//! place for each worker, what `--explain` says.
//! Invariants: where there is nothing to choose nothing is looked at; a job never waits for a place.
//! Absent on purpose: the rule (`engine::numa`), reading the machine (`topology::nodes`), interrupts: no job moves them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use engine::host::Hold;
use engine::numa::{Served, Why, deal};
use engine::tree::{Sinks, Sources};
use proto::negotiate::Choice;
use sys::fs::Dir;

use crate::job::driver::Way;
use topology::machine::nic_of;
use topology::nodes::{self, Nodes};
use topology::tree::Tree;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumaPlacement {
    /// Nodes that have cores of ours and something that the job serves, each with how much.
    pub weights: Vec<(u16, u32)>,
    /// The node of each volume.
    pub volumes: Vec<Option<u16>>,
    room: Vec<(u16, u32)>,
    why: String,
}

/// Where each of `count` workers of an end is held, and the node of each volume; what is chosen is said under the name `what`. Nothing, where there is
/// nothing to choose.
pub fn place(
    locals: &[IpAddr],
    way: &Way,
    count: usize,
    what: &'static str,
    choices: &mut Vec<Choice>,
) -> (Vec<Hold>, Vec<Option<u16>>) {
    let Some(nodes) = Nodes::here() else { return Default::default() };
    let Some(placement) = NumaPlacement::of(&nodes, locals, way) else { return Default::default() };
    let each = deal(&placement.room, &placement.weights, count);
    choices.push(placement.choice(&each, what));
    (each.into_iter().map(|home| hold(&nodes, home)).collect(), placement.volumes)
}

/// Threads on any core of a node, with memory there.
#[must_use]
pub fn hold(nodes: &Nodes, node: u16) -> Hold {
    Hold { cores: nodes.cores_of(node).to_vec(), exact: false, memory: Some(node), node: Some(node) }
}

impl NumaPlacement {
    /// Of the end of a job whose paths leave by these addresses. `None`: nothing that it serves tells a node with cores of ours.
    #[must_use]
    pub fn of(nodes: &Nodes, locals: &[IpAddr], way: &Way) -> Option<NumaPlacement> {
        let tree = Tree::here();
        let nics = locals.iter().flat_map(|local| nodes::of_nic(&tree, &nic_of(*local))).collect();
        let volumes = match way {
            Way::Send(source) => below_source(&tree, source),
            Way::Recv { sink, .. } => below_sink(&tree, sink),
        };
        NumaPlacement::serving(nodes.room(), &Served { nics, volumes })
    }

    fn serving(room: Vec<(u16, u32)>, served: &Served) -> Option<NumaPlacement> {
        let mut wish = served.wish()?;
        wish.nodes.retain(|(node, _)| room.iter().any(|(known, _)| known == node));
        if wish.nodes.is_empty() {
            return None;
        }
        let nodes: Vec<u16> = wish.nodes.iter().map(|(node, _)| *node).collect();
        let disks: BTreeSet<u16> = served.volumes.iter().flatten().copied().collect();
        let there = match wish.why {
            Why::Disks => {
                let each: Vec<String> = wish.nodes.iter().map(|(node, count)| format!("{count} on {node}")).collect();
                format!("its disks are on several nodes: {}", each.join(", "))
            }
            Why::Nic if !disks.is_empty() && !disks.iter().all(|node| nodes.contains(node)) => {
                format!("its NIC is there; its disk is on {}, and needs the cores less", list(disks.iter().copied()))
            }
            Why::Nic => "its NIC is there".to_owned(),
            Why::Disk => "its disk is there".to_owned(),
        };
        let why = format!("{there} (`longhaul host probe` measures what is faster)");
        Some(NumaPlacement { weights: wish.nodes, volumes: served.of_volumes(), room, why })
    }

    /// What is said of workers with these homes.
    #[must_use]
    pub fn choice(&self, homes: &[u16], what: &'static str) -> Choice {
        let count = |node: u16| homes.iter().filter(|home| **home == node).count();
        let all: BTreeSet<u16> = homes.iter().copied().collect();
        let value: Vec<String> = all.iter().map(|node| format!("{} on node {node}", count(*node))).collect();
        let is_away = |node: &u16| !self.weights.iter().any(|(known, _)| known == node);
        let full = if all.iter().any(is_away) { ", which has no more cores" } else { "" };
        Choice {
            what,
            value: format!("workers: {}", value.join(", ")),
            reason: self.why.replacen(" (", &format!("{full} ("), 1),
        }
    }
}

fn list(nodes: impl Iterator<Item = u16>) -> String {
    nodes.map(|node| format!("node {node}")).collect::<Vec<_>>().join(" and ")
}

/// Nodes of each volume's disks; a file system that several of its sources are on counts once.
fn below_source(tree: &Tree, source: &Sources) -> Vec<Vec<u16>> {
    let below = |volume: &engine::tree::source::LinuxSource| {
        let mut seen = BTreeSet::new();
        let roots = volume.roots().map(|(_, root)| below_folder(tree, &root.parent, &root.name, &mut seen));
        roots.collect::<Vec<_>>().concat()
    };
    source.trees().iter().map(below).collect()
}

fn below_sink(tree: &Tree, sink: &Sinks) -> Vec<Vec<u16>> {
    sink.trees().map(|volume| below_folder(tree, volume.base(), b"", &mut BTreeSet::new())).collect()
}

/// What stands under a name, or the folder itself, may be a file system of its own.
fn below_folder(tree: &Tree, folder: &Dir, name: &[u8], seen: &mut BTreeSet<u64>) -> Vec<u16> {
    let stat = if name.is_empty() { folder.stat_self() } else { folder.stat(name) };
    let Some(dev) = stat.ok().map(|stat| stat.dev).filter(|dev| seen.insert(*dev)) else { return Vec::new() };
    let own = if name.is_empty() { None } else { folder.open_dir(name).ok() };
    nodes::of_disks(tree, dev, own.as_ref().unwrap_or(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(nics: &[u16], volumes: &[&[u16]]) -> Option<NumaPlacement> {
        let volumes = volumes.iter().map(|it| it.to_vec()).collect();
        NumaPlacement::serving(vec![(0, 2), (1, 2)], &Served { nics: nics.to_vec(), volumes })
    }

    fn said(placement: &NumaPlacement, count: usize) -> (String, String) {
        let choice = placement.choice(&deal(&placement.room, &placement.weights, count), "placement here");
        (choice.value, choice.reason)
    }

    #[test]
    fn what_is_chosen_is_told_with_its_reason() {
        const PROBE: &str = "(`longhaul host probe` measures what is faster)";
        let told = |placement: Option<NumaPlacement>, count| said(&placement.expect("something tells"), count);
        let says = |value: &str, reason: &str| (value.to_owned(), format!("{reason} {PROBE}"));
        assert_eq!(told(placed(&[1], &[&[1]]), 2), says("workers: 2 on node 1", "its NIC is there"));
        let full = says("workers: 1 on node 0, 2 on node 1", "its NIC is there, which has no more cores");
        assert_eq!(told(placed(&[1], &[&[1]]), 3), full);
        let apart = "its NIC is there; its disk is on node 0, and needs the cores less";
        assert_eq!(told(placed(&[1], &[&[0]]), 1), says("workers: 1 on node 1", apart));
        let several = says("workers: 1 on node 0, 2 on node 1", "its disks are on several nodes: 1 on 0, 2 on 1");
        assert_eq!(told(placed(&[0], &[&[1], &[0], &[1]]), 3), several);
        assert_eq!(told(placed(&[], &[&[0]]), 2), says("workers: 2 on node 0", "its disk is there"));
    }

    #[test]
    fn threads_of_a_node_are_on_any_of_its_cores_with_memory_there() {
        let tree = Tree::parse(include_str!("../../../topology/records/four-drives.txt")).expect("a record");
        let nodes = Nodes::of(&tree, &[0, 1, 2, 3, 4, 5, 6, 7]).expect("two nodes have cores");
        let wanted = Hold { cores: vec![4, 5, 6, 7], exact: false, memory: Some(1), node: Some(1) };
        assert_eq!(hold(&nodes, 1), wanted);
    }

    #[test]
    fn where_no_core_of_ours_is_there_is_nothing_to_choose() {
        assert_eq!(placed(&[7], &[]), None, "the NIC's node was not granted");
        assert_eq!(placed(&[], &[&[]]), None);
    }
}
