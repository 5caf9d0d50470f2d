//! The parts of large files on a set, handed out volume by volume.
//!
//! For: reading a set as fast as all its disks: a file that is striped by chunk from all of them at once, others beside each other.
//! In and out: where the parts of a file stand in; the next part of a volume out, for threads that each read one volume only.
//! Invariants: each part is handed out once; a volume is at most `LEAD_MAX` parts ahead of the slowest, since digests wait for what lies
//! between (some 80 bytes each); a volume's threads take files in one order, so the slowest of the first file never waits.
//! Absent on purpose: reading, digests (files.rs).

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::content::Big;

/// Parts between the next of the slowest volume and those of the others: 10 MiB of digests, as in a job (`proto::send::lanes`).
const LEAD_MAX: u64 = 1 << 17;
/// Threads for each volume, at least: one digests while another reads.
const THREADS_MIN: usize = 2;
/// Files that wait for a volume, at most: each has a file open on each volume that has a piece of it.
const FILES_WAITING: usize = 4;

/// No part is left.
const NONE: u64 = u64::MAX;

/// What a thread of a volume takes, again and again until nothing of it is left for that volume.
pub(super) type Feed = Receiver<Arc<Spread>>;

/// A file that the threads of several volumes read.
#[derive(Debug)]
pub(super) struct Spread {
    pub(super) big: Big,
    lanes: Lanes,
}

impl Spread {
    pub(super) fn new(big: Big, volumes: usize) -> Spread {
        let lanes = Lanes::new(volumes, |volume, from| big.seek(volume, from));
        Spread { big, lanes }
    }

    /// The next part for a thread of this volume.
    pub(super) fn take(&self, volume: usize) -> Option<u64> {
        self.lanes.take(volume, |from| self.big.seek(volume, from))
    }
}

/// The threads' feeds, by volume; and the ends by which they are fed. One folder that is no set has none.
pub(super) fn feeds(volumes: usize, workers: usize) -> (Option<Feeder>, Vec<(usize, Feed)>) {
    if volumes < 2 {
        return (None, Vec::new());
    }
    let threads = workers.div_ceil(volumes).max(THREADS_MIN);
    let (mut gives, mut feeds) = (Vec::new(), Vec::new());
    for volume in 0..volumes {
        for _ in 0..threads {
            let (give, feed) = sync_channel(FILES_WAITING);
            gives.push((volume, give));
            feeds.push((volume, feed));
        }
    }
    (Some(Feeder { volumes, gives }), feeds)
}

/// See `feeds`.
#[derive(Debug)]
pub(super) struct Feeder {
    volumes: usize,
    gives: Vec<(usize, SyncSender<Arc<Spread>>)>,
}

impl Feeder {
    /// How many volumes there are.
    pub(super) fn volumes(&self) -> usize {
        self.volumes
    }

    /// Gives a file to the threads of all volumes that have a part of it. False: nobody takes any more.
    pub(super) fn give(&self, spread: &Arc<Spread>) -> bool {
        let has_part: Vec<bool> = spread.lanes.lock().iter().map(|&next| next != NONE).collect();
        self.gives.iter().filter(|(volume, _)| has_part[*volume]).all(|(_, give)| give.send(Arc::clone(spread)).is_ok())
    }
}

/// The next part of each volume.
#[derive(Debug)]
struct Lanes {
    next: Mutex<Box<[u64]>>,
    moved: Condvar,
}

/// What a volume is told.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    Part(u64),
    /// It is too far ahead.
    Wait,
    End,
}

impl Lanes {
    /// `seek` gives the first part from an index on that stands on a volume.
    fn new(volumes: usize, seek: impl Fn(usize, u64) -> Option<u64>) -> Lanes {
        let next = (0..volumes).map(|volume| seek(volume, 0).unwrap_or(NONE)).collect();
        Lanes { next: Mutex::new(next), moved: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Box<[u64]>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next part of this volume; waits while that is too far ahead.
    fn take(&self, volume: usize, seek: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let mut next = self.lock();
        loop {
            match turn(&mut next, volume, &seek) {
                Turn::Part(index) => {
                    drop(next);
                    self.moved.notify_all();
                    return Some(index);
                }
                Turn::Wait => next = self.moved.wait(next).unwrap_or_else(PoisonError::into_inner),
                Turn::End => return None,
            }
        }
    }
}

fn turn(next: &mut [u64], volume: usize, seek: impl Fn(u64) -> Option<u64>) -> Turn {
    let index = next[volume];
    let slowest = next.iter().copied().min().unwrap_or(NONE);
    if index == NONE {
        return Turn::End;
    }
    if index - slowest >= LEAD_MAX {
        return Turn::Wait;
    }
    next[volume] = seek(index + 1).unwrap_or(NONE);
    Turn::Part(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts 0, 3, 6, ... are on volume 0, those after each on 1 and 2.
    fn seek(volume: usize, from: u64) -> Option<u64> {
        (from..3 * LEAD_MAX).find(|part| part % 3 == volume as u64)
    }

    #[test]
    fn each_volume_has_its_parts_in_order_and_none_waits_for_one_that_is_little_behind() {
        let lanes = Lanes::new(3, seek);
        let of = |volume| [(); 4].map(|()| lanes.take(volume, |from| seek(volume, from)).expect("there are more"));
        assert_eq!(of(1), [1, 4, 7, 10]);
        assert_eq!(of(0), [0, 3, 6, 9]);
        assert_eq!(of(1), [13, 16, 19, 22]);
        assert_eq!(of(2), [2, 5, 8, 11]);
    }

    #[test]
    fn a_volume_far_ahead_waits_until_the_slowest_moves_and_ends_when_all_is_handed_out() {
        let lanes = Lanes::new(3, seek);
        let mut next = lanes.lock();
        next.copy_from_slice(&[LEAD_MAX, 1, 5]);
        assert_eq!(turn(&mut next, 0, |from| seek(0, from)), Turn::Part(LEAD_MAX), "within reach");
        next[0] = LEAD_MAX + 1;
        assert_eq!(turn(&mut next, 0, |from| seek(0, from)), Turn::Wait);
        drop(next);
        // The volume that waits is woken by the other's step: if it were not, this would not end.
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| lanes.take(0, |from| seek(0, from)));
            assert_eq!(lanes.take(1, |from| seek(1, from)), Some(1));
            assert_eq!(waiting.join().expect("it ends"), Some(LEAD_MAX + 1));
        });
        lanes.lock().copy_from_slice(&[NONE, 3 * LEAD_MAX - 2, NONE]);
        assert_eq!(lanes.take(0, |from| seek(0, from)), None);
        assert_eq!(lanes.take(1, |from| seek(1, from)), Some(3 * LEAD_MAX - 2));
        assert_eq!(lanes.take(1, |from| seek(1, from)), None);
    }
}
