//! Who gets a buf, and whose is taken back, among all rails of a worker.
//!
//! For: the loop, before it calls a step that wants one.
//! In and out: the pool and the rails; a buf, or none for now.
//! Invariants: bufs that senders may not take are left to receivers, so two ends in one process cannot starve each other; a repair goes before
//! what was never sent.
//! Absent on purpose: how large the pool is (`host`).

use sys::mem::Buf;

use crate::platform::Platform;
use crate::rail::Rail;
use crate::worker::Worker;

impl<P: Platform> Worker<P> {
    /// A buf for a chunk that is sent for the first time.
    pub(super) fn buf_to_fill(&mut self, is_small: bool) -> Option<Buf> {
        let left = self.left_by_fill;
        let pool = self.platform.pool();
        let buf = if pool.free() > left { pool.take() } else { None };
        // Hundreds of jobs have all bufs away, for seconds where their peers are slow: a newcomer's small file does not wait for them.
        let buf = buf.or_else(|| if is_small { self.platform.pool().take_small() } else { None });
        // All rails are asked for something to unload once in an iteration, not by each of hundreds that wait.
        let freed = if buf.is_none() && self.may_unload { self.unload_oldest(None) } else { None };
        self.may_unload &= buf.is_some() || freed.is_some();
        let pool = self.platform.pool();
        buf.or_else(|| match freed? {
            Freed::Common => pool.take(),
            Freed::Apart if is_small => pool.take_small(),
            Freed::Apart => None,
        })
    }

    /// Bufs that chunks sent for the first time leave to others: to receivers, and one to repairs, which receivers may wait for.
    pub(super) fn count_left_by_fill(&self) -> usize {
        let has_datagrams = self.rails.iter().flatten().any(|rail| matches!(rail, Rail::Datagram(_)));
        self.reserve + usize::from(self.share.receivers > 0 && has_datagrams)
    }

    /// A buf to read a unit again into. Chunks that wait for their turn make room if nothing else does: repairs go before them. `is_begun`: the receiver
    /// has a part of it, and so a buf that others wait for.
    pub(super) fn buf_to_reload(&mut self, index: usize, is_begun: bool) -> Option<Buf> {
        let reserve = if self.share.receivers > 0 { self.reserve } else { 0 };
        while self.platform.pool().free() <= reserve {
            match self.unload_oldest(Some(index)) {
                Some(Freed::Common) => break,
                // Whoever took a common one in its place would take what is left to receivers.
                Some(Freed::Apart) => {}
                None => {
                    let own = self.rails[index].as_mut()?.feed()?.take_back_last();
                    return if is_begun { own.or_else(|| self.take_from_unbegun()) } else { own };
                }
            }
        }
        self.platform.pool().take()
    }

    /// The buf of a chunk of which nothing has arrived, on whatever rail: filled and not sent, or sent in vain. A receiver whose bufs are all held by parts of
    /// other chunks takes nothing of it; if the sender's bufs were all held by such chunks, both ends would wait for each other for good (seed 7473 of the simulator).
    fn take_from_unbegun(&mut self) -> Option<Buf> {
        let filled = self.rails.iter_mut().flatten().find_map(|rail| rail.datagram()?.feed()?.take_back_last());
        filled.or_else(|| self.rails.iter_mut().flatten().find_map(|rail| rail.datagram()?.unload_unarrived()))
    }

    /// Memory is short: the buf of the unit that was sent longest ago, on whatever rail, goes back to the pool. Of equals, one of the rail
    /// that asks.
    fn unload_oldest(&mut self, asking: Option<usize>) -> Option<Freed> {
        let oldest = self.rails.iter().enumerate().filter_map(|(index, rail)| match rail {
            Some(Rail::Datagram(rail)) => {
                let (sent_ns, unit) = rail.oldest_sent()?;
                Some((sent_ns, unit, asking != Some(index), index))
            }
            _ => None,
        });
        let (_, unit, _, index) = oldest.min()?;
        let buf = self.rails[index].as_mut()?.datagram()?.unload(unit)?;
        let freed = if buf.is_apart() { Freed::Apart } else { Freed::Common };
        self.platform.pool().give(buf);
        Some(freed)
    }
}

/// Which kind of buf went back to the pool.
#[derive(Clone, Copy)]
enum Freed {
    /// One that any chunk may have.
    Common,
    /// One of those that are kept apart for small chunks.
    Apart,
}
