//! An arrangement in words: which group of cores, where the memory, whose interrupts; and the numbers that it means on a machine.
//!
//! For: recipes that are written once for all machines, and a search that changes one word at a time.
//! In and out: words and shapes → a placement, or `None` where the machine cannot be arranged so.
//! Invariants: words that mean the same here come to equal placements, so that nothing is tried twice.
//! Absent on purpose: which is good.

use super::shape::Shape;
use super::{Placement, Rings, Side};

/// Single cores are tried one by one on machines of at most so many.
const SINGLE_CORES_MAX: usize = 8;
/// Threads of the most streams that are tried.
pub const STREAMS: [u16; 6] = [1, 2, 4, 8, 12, 16];

/// Cores of the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Wherever the kernel puts them.
    Free,
    /// Those that take the interrupts.
    Same,
    /// The others of the interrupts' domain.
    Beside,
    /// Those of the home domain after the first four, of a small one the second half.
    Second,
    /// The other threads of the interrupts' physical cores.
    Sibling,
    /// The domain after the home.
    Away,
    /// The home domain, interrupts or not.
    Home,
    /// All of the home's memory node.
    Node,
    /// All of the next memory node.
    OtherNode,
    /// One core.
    Core(u16),
}

/// Where the interrupts go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Irqs {
    /// They stay.
    AsIs,
    /// The first so many cores of the home domain; of a domain that is not larger, half of it.
    First(u16),
}

/// Where the memory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Where it is touched first.
    Local,
    /// On the home's node.
    Home,
    /// On the next node.
    Away,
}

/// One end in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Words {
    /// Number of the domain that everything else is told from; 0: the card's.
    pub home: usize,
    /// Interrupts.
    pub irqs: Irqs,
    /// Workers.
    pub workers: Group,
    /// At most so many cores of the group; 0: all.
    pub most: u16,
    /// Each on a core of its own.
    pub exact: bool,
    /// Memory.
    pub memory: Memory,
    /// Rings.
    pub rings: Rings,
}

impl Words {
    /// As the machine is.
    pub const NONE: Words = Words {
        home: 0,
        irqs: Irqs::AsIs,
        workers: Group::Free,
        most: 0,
        exact: false,
        memory: Memory::Local,
        rings: Rings::AsIs,
    };

    /// What they mean on a machine.
    #[must_use]
    pub fn side(&self, shape: &Shape, streams: u16) -> Option<Side> {
        let domains = shape.domains();
        let home = domains.get(self.home)?;
        let irqs: Vec<u16> = match self.irqs {
            Irqs::AsIs => Vec::new(),
            Irqs::First(_) if !shape.movable => return None,
            Irqs::First(count) => {
                let half = home.len().div_ceil(2);
                home[..if usize::from(count) < home.len() { usize::from(count).max(1) } else { half }].to_vec()
            }
        };
        if self.rings == Rings::First && (irqs.is_empty() || !shape.rings) {
            return None;
        }
        let mut workers = self.cores(shape, &domains, if irqs.is_empty() { &shape.irqs } else { &irqs })?;
        if self.most > 0 {
            workers.truncate(self.most.into());
        }
        if self.exact {
            workers.truncate(streams.into());
        } else {
            // A set has no order.
            workers.sort_unstable();
        }
        let memory = self.node(shape, home)?;
        Some(Side { exact: self.exact && !workers.is_empty(), workers, memory, irqs, rings: self.rings })
    }

    fn cores(&self, shape: &Shape, domains: &[Vec<u16>], irqs: &[u16]) -> Option<Vec<u16>> {
        let home = &domains[self.home];
        let node = shape.core(home[0])?.node;
        let told = |cores: Vec<u16>| (!cores.is_empty()).then_some(cores);
        let without = |cores: &[u16]| cores.iter().copied().filter(|core| !irqs.contains(core)).collect::<Vec<u16>>();
        match self.workers {
            Group::Free => Some(Vec::new()),
            Group::Same => told(irqs.iter().copied().filter(|core| shape.core(*core).is_some()).collect()),
            Group::Beside if irqs.is_empty() => None,
            Group::Beside => told(without(home)),
            Group::Second => told(home[home.len().div_ceil(2).min(4)..].to_vec()),
            Group::Sibling => {
                let physical: Vec<u16> = irqs.iter().filter_map(|core| Some(shape.core(*core)?.physical)).collect();
                let of_them = shape.cores.iter().filter(|core| physical.contains(&core.physical));
                told(without(&of_them.map(|core| core.id).collect::<Vec<u16>>()))
            }
            Group::Away if domains.len() < 2 => None,
            Group::Away => Some(domains[(self.home + 1) % domains.len()].clone()),
            Group::Home => Some(home.clone()),
            Group::Node => Some(shape.of_node(node)),
            Group::OtherNode => Some(shape.of_node(next_node(shape, node)?)),
            Group::Core(id) => shape.core(id).map(|core| Vec::from([core.id])),
        }
    }

    fn node(&self, shape: &Shape, home: &[u16]) -> Option<Option<u16>> {
        let node = shape.core(home[0])?.node;
        match self.memory {
            Memory::Local => Some(None),
            // With one node there is nothing to choose.
            _ if shape.nodes().len() < 2 => None,
            Memory::Home => Some(Some(node)),
            Memory::Away => next_node(shape, node).map(Some),
        }
    }

    /// These words with one of them changed, in each way that may mean something here. `which`: one of `WORDS`.
    pub(super) fn changed(&self, which: usize, shape: &Shape) -> Vec<Words> {
        let domains = shape.domains();
        match which {
            0 => {
                let groups = [
                    Group::Free,
                    Group::Same,
                    Group::Beside,
                    Group::Second,
                    Group::Sibling,
                    Group::Away,
                    Group::Home,
                    Group::Node,
                    Group::OtherNode,
                ];
                let few = if shape.cores.len() <= SINGLE_CORES_MAX { &shape.cores[..] } else { &[] };
                let single = few.iter().map(|core| Group::Core(core.id));
                let all = groups.into_iter().chain(single);
                all.flat_map(|workers| [true, false].map(|exact| Words { workers, exact, ..*self })).collect()
            }
            1 => (0..domains.len()).map(|home| Words { home, ..*self }).collect(),
            2 => [Irqs::AsIs, Irqs::First(1), Irqs::First(2), Irqs::First(4), Irqs::First(8)]
                .map(|irqs| Words { irqs, rings: if irqs == Irqs::AsIs { Rings::AsIs } else { self.rings }, ..*self })
                .to_vec(),
            3 => [Memory::Local, Memory::Home, Memory::Away].map(|memory| Words { memory, ..*self }).to_vec(),
            4 => [Rings::AsIs, Rings::First].map(|rings| Words { rings, ..*self }).to_vec(),
            _ => [0, 1, 2, 4].map(|most| Words { most, ..*self }).to_vec(),
        }
    }
}

/// Words of one end that are changed one at a time.
pub(super) const WORDS: usize = 6;

fn next_node(shape: &Shape, node: u16) -> Option<u16> {
    let nodes = shape.nodes();
    let at = nodes.iter().position(|it| *it == node)?;
    (nodes.len() > 1).then(|| nodes[(at + 1) % nodes.len()])
}

/// Both ends in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sketch {
    /// The end that sends.
    pub send: Words,
    /// The end that receives.
    pub recv: Words,
    /// Streams.
    pub streams: u16,
}

impl Sketch {
    /// The same at both ends.
    #[must_use]
    pub const fn both(words: Words, streams: u16) -> Sketch {
        Sketch { send: words, recv: words, streams }
    }

    /// What it means between two machines.
    #[must_use]
    pub fn placement(&self, send: &Shape, recv: &Shape) -> Option<Placement> {
        let streams = self.streams;
        Some(Placement { send: self.send.side(send, streams)?, recv: self.recv.side(recv, streams)?, streams })
    }
}
