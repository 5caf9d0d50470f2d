//! Placement: which cores take the network's interrupts, which the workers, where their memory lies, how many streams; at both ends.
//!
//! For: finding by measurement what presets contradict each other about.
//! In and out: the shapes of two machines in; placements to try out, their rates in; a winner out, and what was found of every other.
//! Invariants: no I/O, no clock; a placement names only cores of its shape; the same seed and rates give the same trials.
//! Absent on purpose: setting and measuring it (`bench::placement`).
//!
//! The modules stand in the order in which a search meets them.

pub mod shape; // a machine as the search sees it
pub mod spec; // an arrangement in words: which group of cores, which memory
pub mod presets; // the fixed presets, by name
pub mod search; // what is tried next, and when it is enough
pub mod cached; // winners, as lines of a file
use std::fmt::{self, Write as _};

/// Which rings of a NIC are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rings {
    /// All of them, by the NIC's hash.
    AsIs,
    /// As many as cores take interrupts, so that no flow meets a ring without a core of its own.
    First,
}

/// How one end is arranged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Side {
    /// Cores of the workers, in order; empty: wherever the kernel puts them.
    pub workers: Vec<u16>,
    /// Each worker on one of them, in turn; else each on any of them.
    pub exact: bool,
    /// Node of their memory; `None`: that of the core which touches it first.
    pub memory: Option<u16>,
    /// Cores that take the NIC's interrupts, or what the kernel hands on of received packets; empty: as it is.
    pub irqs: Vec<u16>,
    /// Rings.
    pub rings: Rings,
}

impl Side {
    /// Nothing is arranged.
    pub const NONE: Side =
        Side { workers: Vec::new(), exact: false, memory: None, irqs: Vec::new(), rings: Rings::AsIs };

    /// The same with interrupts and rings as they are.
    #[must_use]
    pub fn without_irqs(self) -> Side {
        Side { irqs: Vec::new(), rings: Rings::AsIs, ..self }
    }

    /// How much it asks of a host: what ties are broken by, the least first.
    #[must_use]
    pub fn cost(&self) -> u16 {
        u16::from(!self.workers.is_empty())
            + u16::from(self.exact)
            + 2 * u16::from(self.memory.is_some())
            + 4 * u16::from(!self.irqs.is_empty())
            + 4 * u16::from(self.rings == Rings::First)
    }
}

/// How both ends are arranged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placement {
    /// The end that sends.
    pub send: Side,
    /// The end that receives.
    pub recv: Side,
    /// Streams, each with a worker at each end.
    pub streams: u16,
}

/// Numbers as `0-3,8`.
#[must_use]
pub fn list(numbers: &[u16]) -> String {
    let mut out = String::new();
    let mut at = 0;
    while at < numbers.len() {
        let first = numbers[at];
        let mut last = first;
        while at + 1 < numbers.len() && numbers[at + 1] == last.wrapping_add(1) {
            (at, last) = (at + 1, numbers[at + 1]);
        }
        let comma = if out.is_empty() { "" } else { "," };
        let _ = if first == last { write!(out, "{comma}{first}") } else { write!(out, "{comma}{first}-{last}") };
        at += 1;
    }
    out
}

/// `0-3,8` as numbers, in its order; `None`: it is none, or longer than a machine has cores.
#[must_use]
pub fn parse_list(text: &str) -> Option<Vec<u16>> {
    let mut out = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= shape::CORES_MAX || out.len() > usize::from(shape::CORES_MAX) {
            return None;
        }
        out.extend(first..=last);
    }
    Some(out)
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.workers[..], self.exact) {
            ([], _) => f.write_str("workers anywhere")?,
            (cores, true) => write!(f, "workers each on {}", list(cores))?,
            (cores, false) => write!(f, "workers within {}", list(cores))?,
        }
        if let Some(node) = self.memory {
            write!(f, ", memory on node {node}")?;
        }
        if !self.irqs.is_empty() {
            write!(f, ", interrupts on {}", list(&self.irqs))?;
        }
        if self.rings == Rings::First {
            write!(f, ", {} rings", self.irqs.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_written_and_read_in_their_order() {
        for (numbers, text) in
            [(vec![0], "0"), (vec![0, 1, 2, 8], "0-2,8"), (vec![4, 5, 0, 1], "4-5,0-1"), (vec![3, 1], "3,1")]
        {
            assert_eq!(list(&numbers), text);
            assert_eq!(parse_list(text), Some(numbers));
        }
        for text in ["", "a", "3-1", "0-99999999", "0-65535", "1,,2"] {
            assert_eq!(parse_list(text), None, "{text}");
        }
    }
}
