//! What of entries could not be kept, for the report.
//!
//! For: saying so by name and count, at both ends.
//! In and out: (what, path) of each entry; counts by kind and the first paths.
//! Invariants: does not grow with the number of entries.
//! Absent on purpose: entries that failed as a whole: these are faults.

use proto::manifest::Aspects;

/// So many paths are kept for the report; all are counted.
const PATHS_KEPT: usize = 100;
/// And so many bytes of them: a report escapes each into 7 at most, and must fit into one control frame with all else.
const PATH_BYTES_KEPT: usize = 2 << 10;

/// Counts by kind, and the first paths, of attributes that could not be kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unpreserved {
    counts: [u64; Aspects::NAMED.len()],
    first: Vec<(Aspects, Box<[u8]>)>,
    path_bytes: usize,
}

impl Unpreserved {
    /// This could not be kept of the entry with this path.
    pub fn add(&mut self, what: Aspects, path: &[u8]) {
        if what.is_empty() {
            return;
        }
        for (count, (aspect, _)) in self.counts.iter_mut().zip(Aspects::NAMED) {
            *count += u64::from(what.has(aspect));
        }
        let path_bytes = self.path_bytes + path.len();
        if self.first.len() < PATHS_KEPT && path_bytes <= PATH_BYTES_KEPT {
            self.path_bytes = path_bytes;
            self.first.push((what, path.into()));
        }
    }

    /// Counts by name, those that did not occur left out.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Aspects::NAMED.iter().zip(self.counts).filter(|&(_, count)| count > 0).map(|((_, name), count)| (*name, count))
    }

    /// The first entries.
    #[must_use]
    pub fn first(&self) -> &[(Aspects, Box<[u8]>)] {
        &self.first
    }
}
