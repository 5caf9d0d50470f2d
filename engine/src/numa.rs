//! NUMA placement: the node of each worker of a job that nobody has measured.
//!
//! For: jobs on machines with several nodes, where neither a search nor the user said where workers belong.
//! In and out: on which nodes the cards and the disks are that a job serves, and how many cores each node has for it → a node for each worker.
//! Invariants: no node is given more workers than it has cores while another has one left; a node without a core of ours is given none; the same
//! facts give the same homes.
//! Absent on purpose: which way is faster (a search finds out), reading the machine (the caller does), distances: all other nodes are equally far.
//!
//! Disks on several nodes decide, since whichever node the card is on, some of them are far from it. Else the card does: between worker and card a
//! byte crosses memory more often (a copy, the kernel's packets) than between worker and disk, which reads and writes the buf by itself.

use std::cmp::Reverse;

/// Nodes of what a job serves at one end, as far as the machine tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Served {
    /// Of each card behind its paths.
    pub cards: Vec<u16>,
    /// Of the disks below each volume.
    pub volumes: Vec<Vec<u16>>,
}

/// What decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Disks on several nodes.
    Disks,
    /// The card, or cards.
    Card,
    /// The only disk, or all of them: no card is there, or none tells.
    Disk,
}

/// Nodes by weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// Each with how much of what is served is there, by number.
    pub nodes: Vec<(u16, u32)>,
    /// What decided.
    pub why: Why,
}

fn counted(nodes: impl Iterator<Item = u16>) -> Vec<(u16, u32)> {
    let mut out: Vec<(u16, u32)> = Vec::new();
    for node in nodes {
        match out.iter_mut().find(|(known, _)| *known == node) {
            Some((_, count)) => *count += 1,
            None => out.push((node, 1)),
        }
    }
    out.sort_unstable();
    out
}

impl Served {
    /// Where it would have workers; `None`: nothing of it has a node.
    #[must_use]
    pub fn wish(&self) -> Option<Wish> {
        let disks = counted(self.volumes.iter().flatten().copied());
        let cards = counted(self.cards.iter().copied());
        let (nodes, why) = match (&disks[..], &cards[..]) {
            ([_, _, ..], _) => (disks, Why::Disks),
            (_, [_, ..]) => (cards, Why::Card),
            ([_], []) => (disks, Why::Disk),
            ([], []) => return None,
        };
        Some(Wish { nodes, why })
    }

    /// The node of each volume; `None`: its disks are on several, or do not tell.
    #[must_use]
    pub fn of_volumes(&self) -> Vec<Option<u16>> {
        let one = |nodes: &Vec<u16>| nodes.first().copied().filter(|first| nodes.iter().all(|node| node == first));
        self.volumes.iter().map(one).collect()
    }
}

/// A node for each of `count` workers, in the order in which rails take them: of those wished for in proportion, as many as there is room for (cores
/// by node), the others where most is left. With more workers than room they share it. Without room: none.
#[must_use]
pub fn deal(room: &[(u16, u32)], wish: &[(u16, u32)], count: usize) -> Vec<u16> {
    let all: u64 = room.iter().map(|(_, cores)| u64::from(*cores)).sum();
    let mut dealt = vec![0_u64; room.len()];
    let mut out = Vec::new();
    while all > 0 && out.len() < count {
        let rounds = out.len() as u64 / all + 1;
        let left = |at: usize| u64::from(room[at].1) * rounds - dealt[at];
        let weight = |at: usize| wish.iter().find(|(node, _)| *node == room[at].0).map_or(0, |(_, weight)| *weight);
        // The highest average (d'Hondt): in proportion at every length, so that the first few rails are, too.
        let due = |at: usize| (u64::from(weight(at)) << 24) / (dealt[at] + 1);
        let open = (0..room.len()).filter(|&at| left(at) > 0);
        let Some(at) = open.max_by_key(|&at| (due(at), left(at), Reverse(room[at].0))) else { break };
        dealt[at] += 1;
        out.push(room[at].0);
    }
    out
}

/// Of workers with these homes the ones that a job takes, by index: `count` of them (at most all), dealt out as it wishes; of those with equal homes
/// another comes first at each `turn`.
#[must_use]
pub fn team(homes: &[u16], wish: &[(u16, u32)], turn: usize, count: usize) -> Vec<usize> {
    let mut waiting: Vec<(u16, Vec<usize>)> = Vec::new();
    for (node, workers) in counted(homes.iter().copied()) {
        let own: Vec<usize> = (0..homes.len()).filter(|&it| homes[it] == node).collect();
        let turn = turn % own.len();
        waiting.push((node, (0..workers as usize).rev().map(|it| own[(turn + it) % own.len()]).collect()));
    }
    let room = counted(homes.iter().copied());
    let take = |node: u16| waiting.iter_mut().find(|(known, _)| *known == node).and_then(|(_, own)| own.pop());
    deal(&room, wish, count.min(homes.len())).into_iter().filter_map(take).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(cards: &[u16], volumes: &[&[u16]]) -> Option<Wish> {
        Served { cards: cards.to_vec(), volumes: volumes.iter().map(|it| it.to_vec()).collect() }.wish()
    }

    #[test]
    fn disks_on_several_nodes_decide_then_the_card_then_the_disk() {
        let wish = |nodes: &[(u16, u32)], why| Some(Wish { nodes: nodes.to_vec(), why });
        assert_eq!(served(&[0], &[&[1], &[0], &[1]]), wish(&[(0, 1), (1, 2)], Why::Disks));
        assert_eq!(served(&[], &[&[0, 1]]), wish(&[(0, 1), (1, 1)], Why::Disks), "one file system over two");
        assert_eq!(served(&[1], &[&[0]]), wish(&[(1, 1)], Why::Card));
        assert_eq!(served(&[1, 0], &[&[0]]), wish(&[(0, 1), (1, 1)], Why::Card));
        assert_eq!(served(&[], &[&[1], &[1]]), wish(&[(1, 2)], Why::Disk));
        assert_eq!(served(&[], &[&[]]), None);
        let volumes = vec![vec![1, 1], vec![0, 1], vec![]];
        assert_eq!(Served { cards: Vec::new(), volumes }.of_volumes(), [Some(1), None, None]);
    }

    #[test]
    fn workers_are_dealt_out_in_proportion_and_none_loses_a_core() {
        let room = [(0, 4), (1, 4)];
        assert_eq!(deal(&room, &[(1, 1)], 3), [1, 1, 1]);
        assert_eq!(deal(&room, &[(1, 1)], 6), [1, 1, 1, 1, 0, 0], "as many as it has cores, the others elsewhere");
        assert_eq!(deal(&room, &[(0, 1), (1, 1)], 4), [0, 1, 0, 1]);
        assert_eq!(deal(&room, &[(0, 1), (1, 3)], 4), [1, 1, 0, 1], "one to three");
        assert_eq!(deal(&room, &[(0, 1)], 12), [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0], "more workers than cores");
        assert_eq!(deal(&[(0, 2), (1, 6)], &[], 4), [1, 1, 1, 1], "nothing is wished for: where most is left");
        assert_eq!(deal(&room, &[(7, 1)], 1), [0], "a node without a core of ours is given none");
        assert_eq!(deal(&[], &[(0, 1)], 2), []);
        assert_eq!(deal(&[(0, 0)], &[(0, 1)], 2), []);
    }

    #[test]
    fn a_job_takes_the_workers_near_it_first_and_another_at_each_turn() {
        let homes = [0, 1, 0, 1];
        assert_eq!(team(&homes, &[(1, 1)], 0, 2), [1, 3]);
        assert_eq!(team(&homes, &[(1, 1)], 1, 1), [3]);
        assert_eq!(team(&homes, &[(1, 1)], 0, 9), [1, 3, 0, 2], "then the others");
        assert_eq!(team(&homes, &[(0, 1), (1, 1)], 2, 4), [0, 1, 2, 3]);
        assert_eq!(team(&homes, &[(1, 1)], 5, 4).len(), 4);
    }
}
