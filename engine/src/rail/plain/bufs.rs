//! The memory of all transfers over plain rails: one pool, its bufs lent out some at a time.
//!
//! For: a process whose clients together have no more than was granted to it, however many they are.
//! In and out: so many bufs, when they are free.
//! Invariants: a transfer takes all that it will need before it begins, so none waits for bufs while it has some.
//! Absent on purpose: bufs of workers, which have pools of their own (`worker`).

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sys::mem::{Buf, Pool};

/// Bytes of a buf: what is received or read at once.
pub const BUF_BYTES: usize = 1 << 20;

/// The pool of all transfers of a process. Clones are the same pool.
#[derive(Debug, Clone)]
pub struct Bufs(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    pool: Mutex<Pool>,
    freed: Condvar,
    /// Who waits for `freed`, counted under the lock: mostly nobody does, and to wake nobody is a call to the kernel all the same.
    waiting: AtomicUsize,
}

/// Bufs that go home when this goes.
#[derive(Debug)]
pub struct Taken {
    /// Those that are here. What a transfer has elsewhere it puts back before it ends.
    pub bufs: Vec<Buf>,
    home: Bufs,
}

impl Bufs {
    /// As many bufs as fit into `bytes`, and at least two.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(bytes: u64) -> io::Result<Bufs> {
        let count = usize::try_from(bytes / BUF_BYTES as u64).unwrap_or(usize::MAX).max(2);
        let pool = Mutex::new(Pool::new(count, BUF_BYTES)?);
        Ok(Bufs(Arc::new(Shared { pool, freed: Condvar::new(), waiting: AtomicUsize::new(0) })))
    }

    /// Takes `most` bufs, or what there is of them but at least `least`, within this time. `None`: others have them.
    #[must_use]
    pub fn take(&self, least: usize, most: usize, within: Duration) -> Option<Taken> {
        let until = Instant::now() + within;
        let mut pool = self.0.pool.lock().unwrap_or_else(PoisonError::into_inner);
        while pool.free() < least {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            self.0.waiting.fetch_add(1, Ordering::Relaxed);
            (pool, _) = self.0.freed.wait_timeout(pool, left).unwrap_or_else(PoisonError::into_inner);
            self.0.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        let bufs = (0..most).map_while(|_| pool.take()).collect();
        Some(Taken { bufs, home: self.clone() })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut pool = self.home.0.pool.lock().unwrap_or_else(PoisonError::into_inner);
        self.bufs.drain(..).for_each(|buf| pool.give(buf));
        if self.home.0.waiting.load(Ordering::Relaxed) > 0 {
            self.home.0.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wants_more_than_is_free_waits_for_whoever_has_it_and_no_longer_than_said() {
        let bufs = Bufs::new(4 << 20).unwrap();
        let first = bufs.take(2, 4, Duration::ZERO).unwrap();
        assert_eq!(first.bufs.len(), 4);
        assert!(bufs.take(1, 1, Duration::from_millis(10)).is_none());
        std::thread::scope(|scope| {
            let second = scope.spawn(|| bufs.take(2, 3, Duration::from_secs(10)).map(|it| it.bufs.len()));
            std::thread::sleep(Duration::from_millis(20));
            drop(first);
            assert_eq!(second.join().unwrap(), Some(3));
        });
    }
}
