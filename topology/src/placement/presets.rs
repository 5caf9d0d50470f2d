//! The fixed presets, by name: what founding documents and handbooks say is right, as contestants.
//!
//! For: a search that begins with what others found, and whose result can be held against each of them.
//! In and out: two shapes → names with their placements on these machines.
//! Invariants: a preset that a machine cannot follow in part is followed as far as it goes (without leave to move interrupts: the workers' part),
//! and one of which nothing is left is not there.
//! Sources: M. Galli, CERN summer student report 2018, section 2.2; A. Tsutsui et al., NTT, sections IV.B, IV.C. The figure that draws NTT's
//! patterns cannot be read in the copies there are; they are told from Table IV: A far ahead with long messages (beside, as the text has it), B
//! 0.63 of it (two threads and the interrupts on one core), C with every second thread slower (a thread on each core, the interrupts' too), D 0.83
//! of it, all threads alike (the other processor: the same 0.83 as Table III has for it).
//! Absent on purpose: any opinion.

use super::shape::Shape;
use super::spec::{Group, Irqs, Memory, Spec, Words};
use super::{Placement, Rings};

/// A preset.
#[derive(Debug, Clone, Copy)]
pub struct Preset {
    /// As tables name it.
    pub name: &'static str,
    /// What it says.
    pub says: &'static str,
    spec: Spec,
}

/// Streams of a preset that names no number: CERN's and NTT's.
const STREAMS: u16 = 4;

const fn words(irqs: Irqs, workers: Group, exact: bool) -> Words {
    Words { irqs, workers, exact, ..Words::NONE }
}

const fn preset(name: &'static str, says: &'static str, send: Words, recv: Words) -> Preset {
    Preset { name, says, spec: Spec { send, recv, streams: STREAMS } }
}

const BESIDE: Words = words(Irqs::First(1), Group::Beside, true);
const SAME: Words = words(Irqs::First(1), Group::Same, true);
const EACH: Words = words(Irqs::First(1), Group::Home, true);
const AWAY: Words = words(Irqs::First(1), Group::Away, true);
const SPREAD: Words = words(Irqs::First(4), Group::Beside, true);
const CERN: Words = Words {
    irqs: Irqs::First(4),
    workers: Group::Second,
    most: 4,
    exact: true,
    memory: Memory::Local,
    rings: Rings::First,
    home: 0,
};
const SET: Words = words(Irqs::AsIs, Group::Node, false);
const OTHER: Words = words(Irqs::AsIs, Group::OtherNode, false);

/// Every preset, in the order in which they are tried.
pub const PRESETS: [Preset; 12] = [
    preset("none", "the kernel places everything", Words::NONE, Words::NONE),
    preset(
        "CERN",
        "irqbalance off, interrupts on the first four cores of the NIC's node, flows to the first rings, application on the second four",
        CERN,
        CERN,
    ),
    preset("NTT A", "interrupts on one core, workers on the others of its processor", BESIDE, BESIDE),
    preset("NTT B", "workers on the interrupts' core", SAME, SAME),
    preset("NTT C", "a worker on each core, the interrupts' too", EACH, EACH),
    preset("NTT D", "workers on another processor than the interrupts", AWAY, AWAY),
    preset("NTT rule 1", "worker and interrupt on different cores of one processor, both ends", BESIDE, BESIDE),
    preset("NTT rule 2", "short messages: no sharing at the receiver", SAME, BESIDE),
    preset("NTT rule 3", "long messages: no sharing at the sender", BESIDE, SAME),
    preset("NTT rule 4", "long messages: anything but B; a worker on each core of the receiver", BESIDE, EACH),
    preset("NTT rule 5", "short messages: interrupts dominate, so they get several cores", SPREAD, SPREAD),
    preset("node set", "workers anywhere on the NIC's node", SET, SET),
];

/// The one that contradicts "node set" (EScp's notes), where there is another node.
const OTHER_NODE: Preset = preset("other node", "workers anywhere on the node after the NIC's", OTHER, OTHER);

/// A preset as these two machines can follow it.
#[derive(Debug, Clone)]
pub(super) struct Followed {
    pub names: Vec<&'static str>,
    pub spec: Spec,
    pub placement: Placement,
}

/// As far as a machine lets it be followed.
fn followed(words: Words, shape: &Shape, streams: u16) -> Option<Words> {
    let without_rings = Words { rings: Rings::AsIs, ..words };
    let without_irqs = Words { irqs: Irqs::AsIs, ..without_rings };
    [words, without_rings, without_irqs].into_iter().find(|it| it.side(shape, streams).is_some())
}

/// Those that can be followed, each once, with all its names; `streams`: in place of their own.
pub(super) fn of(send: &Shape, recv: &Shape, streams: Option<u16>) -> Vec<Followed> {
    let mut out: Vec<Followed> = Vec::new();
    for preset in PRESETS.iter().chain([&OTHER_NODE]) {
        let streams = streams.unwrap_or(preset.spec.streams);
        let (Some(one), Some(two)) =
            (followed(preset.spec.send, send, streams), followed(preset.spec.recv, recv, streams))
        else {
            continue;
        };
        let spec = Spec { send: one, recv: two, streams };
        let Some(placement) = spec.placement(send, recv) else { continue };
        match out.iter_mut().find(|it| it.placement == placement) {
            Some(same) => same.names.push(preset.name),
            None => out.push(Followed { names: Vec::from([preset.name]), spec, placement }),
        }
    }
    out
}

/// One of them by its name, with so many streams; `None`: nothing is left of it on these machines, or there is none of that name.
#[must_use]
pub fn named(name: &str, send: &Shape, recv: &Shape, streams: u16) -> Option<Placement> {
    let all = of(send, recv, Some(streams));
    all.into_iter().find(|it| it.names.contains(&name)).map(|it| it.placement)
}

#[cfg(test)]
mod tests {
    use super::super::shape::Core;
    use super::*;

    fn two_by_ten(movable: bool) -> Shape {
        let core = |id: u16| Core { id, node: id / 10, package: id / 10, cache: id / 10 * 10, physical: id };
        Shape { cores: (0..20).map(core).collect(), nic_node: Some(1), irqs: Vec::new(), movable, rings: true }
    }

    fn among(all: &[Followed], name: &str) -> Option<Placement> {
        all.iter().find(|it| it.names.contains(&name)).map(|it| it.placement.clone())
    }

    #[test]
    fn the_cern_preset_is_the_second_four_of_the_nics_node() {
        let shape = two_by_ten(true);
        let cern = among(&of(&shape, &shape, None), "CERN").expect("it can be followed");
        assert_eq!((cern.send.irqs, cern.send.workers, cern.streams), (vec![10, 11, 12, 13], vec![14, 15, 16, 17], 4));
        assert_eq!((cern.send.rings, cern.send.exact), (Rings::First, true));
    }

    #[test]
    fn presets_come_as_far_as_a_machine_lets_them_and_each_but_once() {
        let shape = two_by_ten(true);
        let all = of(&shape, &shape, None);
        assert_eq!(among(&all, "NTT A"), among(&all, "NTT rule 1"));
        assert_eq!(among(&all, "other node").expect("there").send.workers, (0..10).collect::<Vec<u16>>());
        for (at, one) in all.iter().enumerate() {
            assert!(all[..at].iter().all(|other| other.placement != one.placement), "{:?}", one.names);
        }
        // One core, nothing told, nothing to be moved.
        let bare =
            Shape { cores: vec![Core { id: 3, node: 0, package: 0, cache: 3, physical: 3 }], ..Shape::default() };
        let all = of(&bare, &bare, Some(1));
        assert!(among(&all, "none").is_some() && among(&all, "NTT D").is_none() && among(&all, "other node").is_none());
        assert!(all.iter().all(|it| it.placement.send.irqs.is_empty() && it.placement.streams == 1));
    }
}
