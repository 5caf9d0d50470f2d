//! One call for each volume, side by side.
//!
//! For: calls that wait for disks.
//! In and out: work by volume in; results in the order of volumes out.
//! Invariants: with one volume no thread is made.
//! Absent on purpose: what the calls do.

use std::collections::BTreeMap;

/// A call for each volume, all at the same time: one that waits for its disk does not wait for the others first.
pub(crate) fn on_each<W: Send, T: Send>(work: BTreeMap<usize, W>, call: impl Fn(usize, W) -> T + Sync) -> Vec<T> {
    if work.len() < 2 {
        return work.into_iter().map(|(volume, work)| call(volume, work)).collect();
    }
    let call = &call;
    std::thread::scope(|scope| {
        let start = |(volume, work)| scope.spawn(move || call(volume, work));
        let threads: Vec<_> = work.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    })
}
