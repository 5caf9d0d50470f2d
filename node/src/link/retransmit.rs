//! What was sent and may have to be sent once more: over another connection.
//!
//! For: a session that outlives its connection (`Link::carry_on`).
//! In and out: sealed bytes as they go to the kernel in; the same bytes from a given count on out.
//! Invariants: what the kernel has not seen acknowledged is always here; beyond that `KEPT_BYTES`, for what was acknowledged by something in
//! between and never read; nothing is let go of before the peer has said something over the connection that carries it.
//! Absent on purpose: opening, sealing: the bytes stay as they were, so nothing is ever sealed twice under one number.

use std::collections::VecDeque;

/// RetransmitBuffer beyond what is not acknowledged.
const KEPT_BYTES: usize = 64 << 10;

/// See the module. Counts are of the whole session.
#[derive(Debug, Default)]
pub(super) struct RetransmitBuffer {
    /// The last bytes sent, in order; only where somebody asked for it.
    bytes: VecDeque<u8>,
    on: bool,
    /// The session's bytes before this connection.
    before: u64,
    /// The peer spoke over this connection, or is known to use it.
    heard: bool,
}

impl RetransmitBuffer {
    /// From now on, `sent` bytes into the session.
    pub(super) fn begin(&mut self) {
        (self.on, self.heard) = (true, true);
    }

    pub(super) fn heard(&mut self) {
        self.heard = true;
    }

    /// The kernel took these; `sent` in all. `acked`: how many bytes of this connection the peer's kernel has.
    pub(super) fn push(&mut self, bytes: &[u8], sent: u64, acked: impl FnOnce() -> u64) {
        if !self.on {
            return;
        }
        self.bytes.extend(bytes);
        if self.bytes.len() > 2 * KEPT_BYTES && self.heard {
            let open = (sent - self.before).saturating_sub(acked());
            let keep = KEPT_BYTES.saturating_add(usize::try_from(open).unwrap_or(usize::MAX));
            self.bytes.drain(..self.bytes.len().saturating_sub(keep));
        }
    }

    /// A new connection: takes out what the peer lacks, who has `theirs` of `sent` bytes. `None`: it is not here any more, or was never sent.
    pub(super) fn rest(&mut self, sent: u64, theirs: u64, heard: bool) -> Option<Vec<u8>> {
        let lacks = usize::try_from(sent.checked_sub(theirs)?).ok()?;
        let from = self.bytes.len().checked_sub(lacks).filter(|_| self.on)?;
        (self.before, self.heard) = (theirs, heard);
        Some(self.bytes.drain(from..).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_acknowledged_is_there_and_little_more() {
        let mut kept = RetransmitBuffer::default();
        kept.begin();
        let (mut sent, portion) = (0, vec![7; 10_000]);
        for _ in 0..100 {
            sent += portion.len() as u64;
            kept.push(&portion, sent, || sent - 300_000.min(sent));
        }
        assert!(kept.bytes.len() >= 300_000 && kept.bytes.len() <= 300_000 + 2 * KEPT_BYTES + portion.len());
        assert_eq!(kept.rest(sent, sent + 1, true), None, "more than was sent");
        assert_eq!(kept.rest(sent, sent - 900_000, true), None, "long gone");
        assert_eq!(kept.rest(sent, sent - 250_000, false).map(|rest| rest.len()), Some(250_000));
    }

    #[test]
    fn nothing_is_let_go_of_before_the_peer_spoke() {
        let mut kept = RetransmitBuffer::default();
        kept.begin();
        let portion = vec![7; 200_000];
        kept.push(&portion, 200_000, || 200_000);
        assert!(kept.rest(200_000, 190_000, false).is_some());
        for count in 1..10 {
            kept.push(&portion, 190_000 + count * 200_000, || count * 200_000);
        }
        assert!(
            kept.rest(1_990_000, 190_000, false).is_some(),
            "all of it may have been lost with a connection that nobody used"
        );
    }
}
