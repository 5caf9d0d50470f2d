//! MODE E of GridFTP: a transfer over several data connections, in blocks that say where they belong.
//!
//! For: uploads and downloads of `globus-url-copy` and its kin (GFD.20 section 5, GFD.47), by whoever moves the bytes.
//! In and out: heads of blocks as they come on each connection → where their bytes go, or why the transfer is over; the other way, heads.
//! Invariants: a block that has a byte of another one, or one behind what the file may have, is refused before any of it is taken; what is over is known by
//! counting EODs and never by a connection's end; memory is bounded, whatever is said.
//! Absent on purpose: sockets, files, who dials (`session`).
//!
//! ```text
//! block   descriptor u8 │ count u64 │ offset u64 │ count bytes, which belong at offset        all numbers big endian
//! EOD     0x08: this connection brings no more of this transfer    CLOSE 0x04: nor of any later one
//! EOF     0x40: count is 0, and offset says how many EODs the transfer has, over all of its connections
//! ```

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Bytes of a head.
pub const HEAD_BYTES: usize = 17;
/// No more of this transfer on this connection.
pub const EOD: u8 = 0x08;
/// The connection is closed after the transfer.
pub const CLOSE: u8 = 0x04;
/// How many EODs there are, in the offset's place.
pub const EOF: u8 = 0x40;
/// Connections of a transfer: a file's worth of descriptors for each client is bounded by it.
pub const CONNECTIONS_MAX: u16 = 32;
/// Stretches that came apart from each other: of blocks of 1 MiB these are 4 GiB.
pub const APART_MAX: usize = 4096;
/// Blocks that say nothing at all, of a transfer.
pub const EMPTY_MAX: u32 = 1024;

/// What stands before the bytes of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    /// Bits of the descriptor.
    pub flags: u8,
    /// Bytes that follow.
    pub count: u64,
    /// Where they belong; with EOF: how many EODs there are.
    pub offset: u64,
}

impl Head {
    /// As it is sent.
    #[must_use]
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0] = self.flags;
        bytes[1..9].copy_from_slice(&self.count.to_be_bytes());
        bytes[9..].copy_from_slice(&self.offset.to_be_bytes());
        bytes
    }

    /// As it came.
    #[must_use]
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Head {
        let number = |at: usize| bytes[at..at + 8].iter().fold(0, |all, &byte| all << 8 | u64::from(byte));
        Head { flags: bytes[0], count: number(1), offset: number(9) }
    }

    /// The head that ends a transfer on one of its connections; the first one says how many there are.
    #[must_use]
    pub fn end(is_first: bool, connections: u64) -> Head {
        if is_first {
            Head { flags: EOD | EOF, count: 0, offset: connections }
        } else {
            Head { flags: EOD, count: 0, offset: 0 }
        }
    }
}

/// Why what came is no transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// A bit that is not one of GFD.20, or says that the sender doubts its own bytes.
    Flags,
    /// A byte that came before.
    Overlap,
    /// A byte behind the last one that the file may have.
    Beyond,
    /// EOF twice, with bytes, or with a number of EODs that cannot be.
    End,
    /// More EODs than were said.
    TooManyEnds,
    /// More stretches apart from each other, or more empty blocks, than anybody needs.
    TooMuch,
}

impl Broken {
    /// For the client.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Broken::Flags => "a block with a descriptor that is not one",
            Broken::Overlap => "a block with bytes that came before",
            Broken::Beyond => "a block behind the end of what was announced or may be",
            Broken::End => "an EOF that cannot be",
            Broken::TooManyEnds => "more EODs than EOF said",
            Broken::TooMuch => "too many pieces apart from each other, or blocks of nothing",
        }
    }
}

/// Which bytes there are, as stretches that do not touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stretches(BTreeMap<u64, u64>);

impl Stretches {
    /// Adds one, whose start is before its end; `most`: of stretches.
    ///
    /// # Errors
    /// Overlap, TooMuch; then nothing was added.
    pub fn add(&mut self, range: Range<u64>, most: usize) -> Result<(), Broken> {
        let before = self.0.range(..=range.start).next_back().map(|(&start, &end)| start..end);
        let after = self.0.range(range.start..).next().map(|(&start, &end)| start..end);
        if before.as_ref().is_some_and(|it| it.end > range.start)
            || after.as_ref().is_some_and(|it| it.start < range.end)
        {
            return Err(Broken::Overlap);
        }
        let joins_before = before.filter(|it| it.end == range.start);
        let joins_after = after.filter(|it| it.start == range.end);
        if joins_before.is_none() && joins_after.is_none() && self.0.len() >= most {
            return Err(Broken::TooMuch);
        }
        let start = joins_before.map_or(range.start, |it| it.start);
        let end = joins_after.map_or(range.end, |it| {
            self.0.remove(&it.start);
            it.end
        });
        self.0.insert(start, end);
        Ok(())
    }

    /// The end of the stretch that has the byte at `at`. `None`: it is not there.
    #[must_use]
    pub fn end_from(&self, at: u64) -> Option<u64> {
        self.0.range(..=at).next_back().map(|(_, &end)| end).filter(|&end| end > at)
    }

    /// Behind the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(_, &end)| end)
    }

    /// Are all bytes before `end` there, and none behind?
    #[must_use]
    pub fn is_whole(&self, end: u64) -> bool {
        self.end() == end && (end == 0 || self.end_from(0) == Some(end))
    }
}

impl Stretches {
    /// Forgets all before `at`.
    pub fn forget_before(&mut self, at: u64) {
        while let Some((&start, &end)) = self.0.first_key_value().filter(|it| *it.0 < at) {
            self.0.remove(&start);
            if end > at {
                self.0.insert(at, end);
            }
        }
    }
}

/// What a head means for its connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Told {
    /// Where the bytes behind it belong; empty: none follow.
    pub bytes: Range<u64>,
    /// After them this connection brings no more of this transfer.
    pub is_end: bool,
    /// And is closed.
    pub closes: bool,
}

/// A transfer that comes, over all of its connections.
#[derive(Debug)]
pub struct Incoming {
    claimed: Stretches,
    limit: u64,
    expected: Option<u64>,
    ends: u64,
    empty: u32,
}

impl Incoming {
    /// Nothing came yet. No byte is taken at `limit` or behind it; those before `from` are there.
    #[must_use]
    pub fn new(from: u64, limit: u64) -> Incoming {
        let claimed = Stretches(if from > 0 { BTreeMap::from([(0, from)]) } else { BTreeMap::new() });
        Incoming { claimed, limit, expected: None, ends: 0, empty: 0 }
    }

    /// A head came, on any of the connections.
    ///
    /// # Errors
    /// Why this is no transfer: none of its bytes are to be taken.
    pub fn on_head(&mut self, head: &Head) -> Result<Told, Broken> {
        if head.flags & !(EOD | CLOSE | EOF) != 0 {
            return Err(Broken::Flags);
        }
        let is_end = head.flags & EOD != 0;
        if head.flags & EOF != 0 {
            let can_be = (1..=u64::from(CONNECTIONS_MAX)).contains(&head.offset);
            if self.expected.is_some() || head.count > 0 || !can_be {
                return Err(Broken::End);
            }
            self.expected = Some(head.offset);
        } else if head.count == 0 && !is_end {
            self.empty += 1;
            if self.empty > EMPTY_MAX {
                return Err(Broken::TooMuch);
            }
        }
        self.ends += u64::from(is_end);
        if self.ends > self.expected.unwrap_or(u64::from(CONNECTIONS_MAX)) {
            return Err(Broken::TooManyEnds);
        }
        let mut bytes = 0..0;
        if head.count > 0 {
            let end = head.offset.checked_add(head.count).filter(|&end| end <= self.limit).ok_or(Broken::Beyond)?;
            bytes = head.offset..end;
            self.claimed.add(bytes.clone(), APART_MAX)?;
        }
        Ok(Told { bytes, is_end, closes: head.flags & CLOSE != 0 })
    }

    /// Did as many connections say that they are at their end as there are?
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.expected == Some(self.ends)
    }

    /// Behind the last byte that was said to come.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.claimed.end()
    }

    /// Were all bytes up to the last one said to come?
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.claimed.is_whole(self.claimed.end())
    }
}

/// What is left of a range without those that the other end has (REST of MODE E).
#[must_use]
pub fn without(range: Range<u64>, have: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut have: Vec<&Range<u64>> = have.iter().filter(|it| it.start < it.end).collect();
    have.sort_unstable_by_key(|it| it.start);
    let (mut left, mut at) = (Vec::new(), range.start);
    for it in have {
        if it.start.min(range.end) > at {
            left.push(at..it.start.min(range.end));
        }
        at = at.max(it.end);
    }
    if at < range.end {
        left.push(at..range.end);
    }
    left
}

#[cfg(any(test, fuzzing))]
pub mod played; // blocks of anything at all

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn block(offset: u64, count: u64) -> Head {
        Head { flags: 0, count, offset }
    }

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let head = Head { flags: EOF | EOD, count: 0x0102_0304_0506_0708, offset: 9 };
        let bytes = head.encode();
        assert_eq!(bytes, [0x48, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!(Head::decode(&bytes), head);
        assert_eq!((Head::end(true, 3).offset, Head::end(false, 3).offset), (3, 0));
    }

    #[test]
    fn a_transfer_is_over_by_the_count_of_its_ends_and_not_before() {
        let mut incoming = Incoming::new(0, 100);
        assert_eq!(incoming.on_head(&block(50, 50)).unwrap().bytes, 50..100);
        assert!(incoming.on_head(&Head::end(false, 2)).unwrap().is_end && !incoming.is_over());
        assert!(!incoming.is_whole(), "the first half is missing");
        incoming.on_head(&block(0, 50)).unwrap();
        let told = incoming.on_head(&Head { flags: EOF | EOD | CLOSE, count: 0, offset: 2 }).unwrap();
        assert!(told.closes && incoming.is_over() && incoming.is_whole());
        assert_eq!(incoming.on_head(&Head::end(false, 2)), Err(Broken::TooManyEnds));
        // The count is known before the ends are: one of two is not all.
        let mut early = Incoming::new(0, 100);
        early.on_head(&Head { flags: EOF | EOD, count: 0, offset: 2 }).unwrap();
        assert!(!early.is_over(), "another connection is still to come");
        early.on_head(&Head::end(false, 2)).unwrap();
        assert!(early.is_over());
        // An empty file, and one whose last block has the EOD.
        let mut empty = Incoming::new(0, 100);
        empty.on_head(&Head::end(true, 1)).unwrap();
        assert!(empty.is_over() && empty.is_whole() && empty.end() == 0);
        let mut one = Incoming::new(0, 100);
        one.on_head(&Head { flags: EOD, count: 7, offset: 0 }).unwrap();
        one.on_head(&Head { flags: EOF, count: 0, offset: 1 }).unwrap();
        assert!(one.is_over() && one.end() == 7);
    }

    #[test]
    fn blocks_that_lie_are_refused_before_a_byte_is_taken() {
        let mut incoming = Incoming::new(10, 100);
        incoming.on_head(&block(20, 10)).unwrap();
        for (head, wanted) in [
            (block(25, 10), Broken::Overlap),
            (block(15, 6), Broken::Overlap),
            (block(5, 1), Broken::Overlap),
            (block(0, 100), Broken::Overlap),
            (block(20, 10), Broken::Overlap),
            (block(95, 6), Broken::Beyond),
            (block(u64::MAX, 2), Broken::Beyond),
            (block(0, u64::MAX), Broken::Beyond),
            (Head { flags: 0x20, count: 1, offset: 40 }, Broken::Flags),
            (Head { flags: EOF, count: 1, offset: 1 }, Broken::End),
            (Head { flags: EOF, count: 0, offset: 0 }, Broken::End),
            (Head { flags: EOF, count: 0, offset: 33 }, Broken::End),
        ] {
            assert_eq!(incoming.on_head(&head), Err(wanted), "{head:?}");
        }
        incoming.on_head(&Head { flags: EOF, count: 0, offset: 2 }).unwrap();
        assert_eq!(incoming.on_head(&Head { flags: EOF, count: 0, offset: 2 }), Err(Broken::End), "EOF twice");
    }

    #[test]
    fn what_is_held_of_blocks_is_bounded() {
        let mut incoming = Incoming::new(0, u64::MAX);
        for at in 0..APART_MAX as u64 {
            incoming.on_head(&block(at * 2 + 1, 1)).unwrap();
        }
        assert_eq!(incoming.on_head(&block(1 << 40, 1)), Err(Broken::TooMuch));
        incoming.on_head(&block(2, 1)).unwrap();
        incoming.on_head(&block(1 << 40, 1)).unwrap();
        for _ in 0..EMPTY_MAX {
            incoming.on_head(&block(0, 0)).unwrap();
        }
        assert_eq!(incoming.on_head(&block(0, 0)), Err(Broken::TooMuch), "one that never ends");
    }

    #[test]
    fn what_the_other_end_has_is_not_sent_again() {
        assert_eq!(without(0..100, &[]), vec![0..100]);
        assert_eq!(without(0..100, &[50..60, 0..10, 55..70]), vec![10..50, 70..100]);
        assert_eq!(without(0..100, &[90..200, 3..3]), vec![0..90]);
        assert!(without(0..100, &[0..40, 40..100]).is_empty());
        assert_eq!(without(20..30, &[0..5, 40..50]), vec![20..30]);
    }
}
