//! The sending and the receiving machine against each other, over a network that may do anything between them.
//!
//! For: every order of facts: words of workers late, acks early, chunks corrupt, rails closed at any moment.
//! In and out: a list of numbers that picks what happens next; both machines at their end.
//! Invariants: what is on its way is in this test's hands, nothing else connects the machines.
//! Absent on purpose: payload, digests, files (engine/tests/sim).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use proptest::prelude::*;
use proto::error::Breach;
use proto::journal::{JournalHeader, encode_header, encode_record};
use proto::ledger::ChunkState;
use proto::manifest::{Entry, EntryKind, Meta};
use proto::recv::{Ready, Receiver};
use proto::send::{Assignment, FollowUp, Sender, Unit};
use proto::striped::{Join, Whole};
use proto::wire::chunk::PACK_FILE_BYTES_MAX;
use proto::wire::control::{ChunkRange, DigestKind, Want};

const CHUNK: u32 = 1 << 20;

fn file(bytes: u64, number: usize) -> Entry {
    Entry {
        id: 0,
        path: format!("f{number}").into_bytes().into(),
        kind: EntryKind::File { bytes },
        mode: 0o644,
        mtime_s: 0,
        mtime_ns: 0,
        meta: Meta {
            volume: number as u16 % 3,
            sparse: number % 2 == 1,
            striped: number % 4 > 1 && bytes > PACK_FILE_BYTES_MAX,
            ..Meta::default()
        },
    }
}

/// Where the chunks of a striped file stand, on so many volumes: by no rule that a lane could guess.
fn places(entry: &Entry, volumes: u64) -> Arc<Join> {
    let mut maps: Vec<_> = (0..volumes as u16)
        .map(|volume| (volume, encode_header(&JournalHeader::of(entry, CHUNK, DigestKind::Blake3)).to_vec()))
        .collect();
    for index in 0..entry.bytes().div_ceil(u64::from(CHUNK)) {
        let volume = (7 * index + index / volumes) % volumes;
        encode_record(index, &[[7; 32]], &mut maps[volume as usize].1);
    }
    Arc::new(Join::of(Whole::of(entry), &maps).expect("each chunk has a place"))
}

/// Everything between the machines.
struct Between {
    sender: Sender,
    receiver: Receiver,
    /// Handed to a worker, not read yet, by rail; then read, the word of it on its way.
    words: VecDeque<u64>,
    /// On rails, in order.
    rails: BTreeMap<u16, VecDeque<Assignment>>,
    /// To the sender: what the receiver said.
    said: VecDeque<Said>,
    /// To the receiver, in order: holes and ended files.
    words_of_files: VecDeque<(u64, Option<Vec<ChunkRange>>)>,
    hole_bytes: u64,
    next_rail: u16,
    landed: BTreeMap<(u64, u64), u32>,
    sent_bytes: u64,
    lost_bytes: u64,
    nacks_left: usize,
    closes_left: usize,
}

#[derive(Debug)]
enum Said {
    Acks(Vec<ChunkRange>),
    Nack(u64),
    Closed(u16),
    Committed(u64),
}

impl Between {
    fn new(sizes: &[u64], nacks: usize, closes: usize) -> Self {
        let (mut sender, mut receiver) = (Sender::new(CHUNK), Receiver::new(CHUNK));
        for (number, &bytes) in sizes.iter().enumerate() {
            let entry = sender.announce(file(bytes, number));
            receiver.on_entry((*entry).clone()).expect("in order");
            receiver.expect(entry.id, std::iter::empty());
            assert_eq!(sender.on_want(entry.id, &Want::All), Ok(FollowUp::Nothing));
        }
        sender.spread_over(sizes.len() as u16 % 4, 1);
        sender.scan_ended();
        receiver.on_scan_end(sizes.len() as u64).expect("the count fits");
        let mut between = Between {
            sender,
            receiver,
            words: VecDeque::new(),
            rails: BTreeMap::new(),
            said: VecDeque::new(),
            words_of_files: VecDeque::new(),
            hole_bytes: 0,
            next_rail: 0,
            landed: BTreeMap::new(),
            sent_bytes: 0,
            lost_bytes: 0,
            nacks_left: nacks,
            closes_left: closes,
        };
        between.open();
        between.open();
        between
    }

    fn open(&mut self) {
        self.sender.rail_up(self.next_rail);
        self.rails.insert(self.next_rail, VecDeque::new());
        self.next_rail += 1;
    }

    /// One thing happens; which, the number says. False: nothing of that kind could.
    fn step(&mut self, pick: u8) -> bool {
        match pick % 8 {
            0 => self.hand_out(),
            1 => self.hear(),
            2 | 3 => self.arrive(pick),
            4 => self.close(),
            5 => self.listen(),
            6 => self.end(),
            _ => self.speak(),
        }
    }

    fn hand_out(&mut self) -> bool {
        let Some(assignment) = self.sender.next_chunk(3) else { return self.map() };
        self.words.push_back(assignment.chunk);
        self.sent_bytes += assignment.unit.bytes();
        self.rails.get_mut(&assignment.rail).expect("only rails that are up are chosen").push_back(assignment);
        true
    }

    /// A file is looked at from some chunk on, some chunks far: every third is a hole, and so is the last, which is none of the machine's.
    fn map(&mut self) -> bool {
        let Some((entry, first)) = self.sender.next_unmapped() else { return false };
        if entry.meta.striped && !self.sender.has_places(entry.id) {
            self.sender.on_places(entry.id, places(&entry, 3));
            return true;
        }
        let chunks = entry.bytes().div_ceil(u64::from(CHUNK));
        let until = first + 1 + first % 7;
        let hole = |index: u64| ChunkRange { first: index, end: index + 1 + index % 2 };
        let holes: Vec<ChunkRange> = (first..until.min(chunks)).filter(|index| index % 3 == 0).map(hole).collect();
        let until = if until >= chunks { u64::MAX } else { until };
        let (told, due) = self.sender.on_map(entry.id, &holes, until);
        self.hole_bytes += told.iter().map(|it| (it.end - it.first) * u64::from(CHUNK)).sum::<u64>();
        self.words_of_files.push_back((entry.id, Some(told)));
        self.follow_up(due);
        true
    }

    fn follow_up(&mut self, due: FollowUp) {
        if let FollowUp::CheckSource(id) = due {
            self.sender.file_ended(id);
            self.words_of_files.push_back((id, None));
        }
    }

    /// A worker's word that a chunk was read reaches the sender, late as it may be.
    fn hear(&mut self) -> bool {
        let Some(chunk) = self.words.pop_front() else { return false };
        let due = self.sender.on_read(chunk);
        self.follow_up(due);
        true
    }

    fn end(&mut self) -> bool {
        let Some((id, holes)) = self.words_of_files.pop_front() else { return false };
        if let Some(holes) = holes {
            assert_eq!(self.receiver.on_holes(id, &holes), Ok(true), "all of it is missing still");
            return true;
        }
        let ready = self.receiver.on_file_end(id, None).expect("one end per file");
        self.ready(&ready);
        true
    }

    fn ready(&mut self, ready: &Ready) {
        if let Ready::File { entry, .. } = ready {
            self.receiver.resolve(*entry);
            self.said.push_back(Said::Committed(*entry));
        }
    }

    /// The first chunk of a rail arrives, sound or not.
    fn arrive(&mut self, pick: u8) -> bool {
        let count = self.rails.len();
        let Some((&rail, queue)) = self.rails.iter_mut().nth(usize::from(pick / 8) % count.max(1)) else {
            return false;
        };
        let Some(assignment) = queue.pop_front() else { return false };
        self.sender.on_sent(rail);
        if pick >= 128 && self.nacks_left > 0 {
            self.nacks_left -= 1;
            self.lost_bytes += assignment.unit.bytes();
            self.said.push_back(Said::Nack(assignment.chunk));
            return true;
        }
        self.receiver.ack(assignment.chunk).expect("a chunk id arrives once");
        match assignment.unit {
            Unit::Range { entry, index, offset, bytes } => {
                *self.landed.entry((entry.id, index)).or_default() += 1;
                let (at, ready) = self.receiver.on_landed(entry.id, offset, bytes).expect("it is wanted");
                assert_eq!(at, index);
                self.ready(&ready);
            }
            Unit::Pack { entries } => {
                for entry in entries {
                    *self.landed.entry((entry.id, 0)).or_default() += 1;
                    self.receiver.on_pack_file(entry.id, entry.bytes()).expect("it is wanted");
                    self.receiver.resolve(entry.id);
                    self.said.push_back(Said::Committed(entry.id));
                }
            }
        }
        true
    }

    /// What the receiver owes goes out, in the order the protocol asks for.
    fn speak(&mut self) -> bool {
        let mut ranges = Vec::new();
        self.receiver.next_acks(&mut ranges);
        let some = !ranges.is_empty();
        if some {
            self.said.push_back(Said::Acks(ranges));
        }
        some
    }

    /// A rail dies with what is on it; the receiver has acknowledged all that came before.
    fn close(&mut self) -> bool {
        if self.closes_left == 0 || self.rails.is_empty() {
            return false;
        }
        self.closes_left -= 1;
        let (rail, queue) = self.rails.pop_first().expect("not empty");
        self.lost_bytes += queue.iter().map(|assignment| assignment.unit.bytes()).sum::<u64>();
        self.sender.rail_down(rail);
        self.speak();
        self.said.push_back(Said::Closed(rail));
        self.open();
        true
    }

    fn listen(&mut self) -> bool {
        match self.said.pop_front() {
            None => return false,
            Some(Said::Acks(ranges)) => {
                ranges.into_iter().for_each(|range| self.sender.on_acks(range).expect("these were sent"));
            }
            Some(Said::Nack(chunk)) => {
                let due = self.sender.on_nack(chunk).expect("this was sent");
                assert_eq!(due, FollowUp::Nothing, "few enough to go on");
            }
            Some(Said::Closed(rail)) => self.sender.on_rail_closed(rail),
            Some(Said::Committed(id)) => {
                assert!(self.sender.on_committed(id).expect("announced").is_some(), "committed once");
            }
        }
        true
    }

    /// Nothing is chosen any more: everything that can happen does.
    fn run_out(&mut self) {
        (self.nacks_left, self.closes_left) = (0, 0);
        for _ in 0..100_000 {
            let done = (0..16).filter(|&pick| self.step(pick)).count();
            if done == 0 {
                return;
            }
        }
        panic!("it goes on for ever");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn every_order_of_facts_ends_with_everything_moved_once(
        sizes in prop::collection::vec(
            prop_oneof![Just(0_u64), 1..5000_u64, Just(128 << 10), Just((128 << 10) + 1), 1..6_000_000_u64,
                17_000_000..40_000_000_u64],
            0..25,
        ),
        picks in prop::collection::vec(any::<u8>(), 0..600),
        nacks in 0..6_usize,
        closes in 0..6_usize,
    ) {
        let mut between = Between::new(&sizes, nacks, closes);
        for pick in picks {
            between.step(pick);
        }
        between.run_out();
        let open = (between.sender.open_counts(), between.receiver.open_count());
        prop_assert_eq!(open, ((0, 0), 0), "entries and chunks left open");
        prop_assert!(between.sender.is_done() && between.receiver.is_done());
        prop_assert!(between.landed.values().all(|&count| count == 1), "nothing arrives twice");
        let once: u64 = sizes.iter().map(|&bytes| if bytes <= 128 << 10 { bytes + 48 } else { bytes }).sum();
        let moved = once - between.hole_bytes;
        prop_assert_eq!(between.sent_bytes, moved + between.lost_bytes, "what was lost goes again, and nothing else");
        prop_assert!(between.sender.resent_bytes() <= between.lost_bytes);
    }
}

#[test]
fn a_pack_that_keeps_coming_corrupt_loses_one_file_not_all() {
    let mut sender = Sender::new(CHUNK);
    let ids: Vec<u64> = (0..3).map(|number| sender.announce(file(10, number)).id).collect();
    for &id in &ids {
        assert_eq!(sender.on_want(id, &Want::All), Ok(FollowUp::Nothing));
    }
    sender.rail_up(0);
    for round in 0.. {
        let assignment = sender.next_chunk(100).expect("it goes again");
        assert_eq!(sender.on_read(assignment.chunk), FollowUp::Nothing);
        // What a receiver refuses was sent.
        sender.on_sent(0);
        match sender.on_nack(assignment.chunk).expect("it was sent") {
            FollowUp::Corrupt(id) => {
                assert_eq!((id, round), (ids[0], 8));
                sender.on_fault(id);
                break;
            }
            due => assert_eq!(due, FollowUp::Nothing),
        }
    }
    let assignment = sender.next_chunk(100).expect("the others go again");
    let Unit::Pack { entries } = assignment.unit else { panic!("a pack") };
    assert_eq!(entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), ids[1..]);
}

#[test]
fn what_nobody_has_travels_while_the_rest_is_read_back() {
    let range = |first, end| ChunkRange { first, end };
    let mut sender = Sender::new(CHUNK);
    let id = sender.announce(file(6 << 20, 0)).id;
    sender.scan_ended();
    sender.rail_up(0);
    let mut receiver = Receiver::new(CHUNK);
    receiver.on_entry(Entry { id, ..file(6 << 20, 0) }).expect("in order");
    // Of six chunks a journal speaks of four.
    let ranges = receiver.expect(id, [0, 1, 3, 4].into_iter().map(|index| (index, ChunkState::Claimed)));
    assert_eq!(ranges, [range(2, 3), range(5, 6)]);
    assert_eq!(sender.on_want(id, &Want::MissingSoFar { ranges: ranges.clone() }), Ok(FollowUp::Nothing));
    assert_eq!(sender.on_want(id, &Want::MissingSoFar { ranges }), Err(Breach::WrongOrder), "once");
    let mut next = || {
        let assignment = sender.next_chunk(9)?;
        let Unit::Range { index, .. } = assignment.unit else { panic!("a range") };
        sender.on_sent(0);
        Some((index, sender.on_read(assignment.chunk)))
    };
    assert_eq!(next(), Some((2, FollowUp::Nothing)));
    assert_eq!(next(), Some((5, FollowUp::Nothing)), "the file is not read to its end yet");
    assert_eq!(next(), None);
    // A sender cannot take the place of what is being read back, nor end the file before.
    assert_eq!(receiver.on_landed(id, 0, CHUNK), Err(Breach::ChunkUnwanted));
    assert_eq!(receiver.on_file_end(id, None), Err(Breach::WrongOrder));
    for index in [2, 5] {
        assert_eq!(receiver.on_landed(id, index << 20, CHUNK), Ok((index, Ready::Nothing)));
    }
    // Two stand, one of them flushed; of the others nobody says so.
    assert!(receiver.claim_holds(id, 0, ChunkState::Durable) && receiver.claim_holds(id, 3, ChunkState::Landed));
    assert!(!receiver.claim_holds(id, 0, ChunkState::Durable), "once");
    assert!(!receiver.claim_holds(id, 2, ChunkState::Durable), "it came");
    let ranges = receiver.claims_end(id);
    assert_eq!(ranges, [range(1, 2), range(4, 5)]);
    assert_eq!(sender.on_want(id, &Want::Missing { ranges: ranges.clone() }), Ok(FollowUp::Nothing));
    assert_eq!(sender.on_want(id, &Want::Missing { ranges }), Err(Breach::WrongOrder), "once");
    let mut next = || {
        let assignment = sender.next_chunk(9)?;
        let Unit::Range { index, .. } = assignment.unit else { panic!("a range") };
        sender.on_sent(0);
        Some((index, sender.on_read(assignment.chunk)))
    };
    assert_eq!(next(), Some((1, FollowUp::Nothing)));
    assert_eq!(next(), Some((4, FollowUp::CheckSource(id))));
    for index in [1, 4] {
        receiver.on_landed(id, index << 20, CHUNK).expect("asked for");
    }
    assert_eq!(receiver.on_file_end(id, None), Ok(Ready::File { entry: id, sender_digest: None }));
    // All stands: the file is at its end with the word that says so.
    let id = {
        let mut sender = Sender::new(CHUNK);
        let id = sender.announce(file(2 << 20, 0)).id;
        assert_eq!(sender.on_want(id, &Want::MissingSoFar { ranges: vec![] }), Ok(FollowUp::Nothing));
        assert_eq!(sender.on_want(id, &Want::Missing { ranges: vec![] }), Ok(FollowUp::CheckSource(id)));
        id
    };
    assert_eq!(id, 0);
}

#[test]
fn misdeeds_have_their_names() {
    let mut sender = Sender::new(CHUNK);
    let id = sender.announce(file(3 << 20, 0)).id;
    let small = sender.announce(file(5, 1)).id;
    let range = |first, end| ChunkRange { first, end };
    let missing = |ranges: Vec<ChunkRange>| Want::Missing { ranges };
    assert_eq!(sender.on_want(7, &Want::All), Err(Breach::EntryUnknown));
    assert_eq!(sender.on_want(id, &missing(vec![range(0, 4)])), Err(Breach::WantOutOfRange));
    assert_eq!(sender.on_want(id, &missing(vec![range(1, 2), range(0, 1)])), Err(Breach::WantOutOfRange));
    assert_eq!(sender.on_want(id, &Want::All), Ok(FollowUp::Nothing));
    assert_eq!(sender.on_want(id, &Want::All), Err(Breach::WrongOrder));
    sender.rail_up(0);
    let chunk = sender.next_chunk(9).expect("there is work").chunk;
    assert_eq!(sender.on_acks(range(chunk, chunk + 2)), Err(Breach::ChunkUnknown));
    assert_eq!(sender.on_acks(range(chunk, chunk)), Err(Breach::ChunkUnknown));
    assert_eq!(sender.on_acks(range(chunk, chunk + 1)), Ok(()));
    assert_eq!(
        sender.on_acks(range(chunk, chunk + 1)),
        Err(Breach::ChunkUnknown),
        "also before the worker's word of it"
    );
    assert_eq!(sender.on_nack(chunk), Err(Breach::ChunkUnknown), "acknowledged is not corrupt");
    assert_eq!(sender.on_committed(9).err(), Some(Breach::EntryUnknown));

    let mut receiver = Receiver::new(CHUNK);
    let announced = |id, bytes| Entry { id, ..file(bytes, id as usize) };
    assert_eq!(receiver.on_entry(announced(1, 5)).err(), Some(Breach::EntryOutOfOrder));
    receiver.on_entry(announced(0, 3 << 20)).expect("in order");
    receiver.on_entry(announced(1, 5)).expect("in order");
    receiver.expect(0, std::iter::empty());
    receiver.expect(small, std::iter::empty());
    assert_eq!(receiver.on_landed(0, 1, CHUNK), Err(Breach::ChunkOutOfRange));
    assert_eq!(receiver.on_landed(0, 0, CHUNK - 1), Err(Breach::ChunkOutOfRange));
    assert_eq!(receiver.on_landed(0, 3 << 20, CHUNK), Err(Breach::ChunkOutOfRange));
    assert_eq!(receiver.on_landed(0, 0, CHUNK), Ok((0, Ready::Nothing)));
    assert_eq!(receiver.on_landed(0, 0, CHUNK), Err(Breach::ChunkTwice));
    assert_eq!(receiver.on_landed(4, 0, CHUNK), Err(Breach::EntryUnknown));
    assert_eq!(receiver.on_file_end(1, None), Err(Breach::WrongOrder), "packed files have no end of their own");
    assert_eq!(receiver.on_file_end(0, None), Ok(Ready::Nothing));
    assert_eq!(receiver.on_file_end(0, None), Err(Breach::WrongOrder));
    assert_eq!(receiver.on_pack_file(1, 6), Err(Breach::ChunkOutOfRange));
    assert_eq!(receiver.on_pack_file(1, 5), Ok(()));
    assert_eq!(receiver.on_pack_file(1, 5), Err(Breach::ChunkTwice));
    assert_eq!(receiver.on_scan_end(3), Err(Breach::EntryOutOfOrder));
    assert_eq!(receiver.ack(3), Ok(()));
    assert_eq!(receiver.ack(3), Err(Breach::ChunkTwice));
}

#[test]
fn a_file_that_is_slow_to_be_acknowledged_holds_its_share_and_no_more() {
    const FILES: u64 = 4;
    let mut sender = Sender::new(CHUNK);
    for number in 0..FILES {
        let mut entry = file(1000 * u64::from(CHUNK), 0);
        entry.path = format!("f{number}").into_bytes().into();
        entry.meta.volume = number as u16;
        sender.announce(entry);
    }
    sender.scan_ended();
    sender.spread_over(FILES as u16, 1);
    for id in 0..FILES {
        sender.on_want(id, &Want::All).expect("a want");
    }
    sender.rail_up(0);
    // 16 chunks may be on their way; file 0 is never acknowledged but once in ten rounds.
    let (mut out, mut sent) = (VecDeque::new(), [0_u64; FILES as usize]);
    for round in 0..1000 {
        while out.len() < 16 {
            let assignment = sender.next_chunk(64).expect("there is more");
            let Unit::Range { entry, .. } = &assignment.unit else { panic!("large files go by ranges") };
            out.push_back((entry.id, assignment.chunk));
            sender.on_read(assignment.chunk);
            sender.on_sent(0);
        }
        let slow = out.iter().filter(|(id, _)| *id == 0).count();
        assert!(slow <= 4, "a quarter is its share, not {slow}");
        let is_due = |id: u64| id != 0 || round % 10 == 0;
        let place = out.iter().position(|(id, _)| is_due(*id)).expect("others are on their way");
        let (id, chunk) = out.remove(place).expect("just found");
        sent[id as usize] += 1;
        sender.on_acks(ChunkRange { first: chunk, end: chunk + 1 }).expect("it was out");
    }
    assert!(sent[0] >= 90, "the slow one goes on: {sent:?}");
    let fast = &sent[1..];
    assert!(fast.iter().max() < fast.iter().min().map(|it| it + it / 10).as_ref(), "the others share alike: {sent:?}");
}

/// Four files, each for a disk of its own: whoever acknowledges nothing holds a quarter of what all may have on their way, however much room there is.
#[test]
fn a_file_whose_disk_stands_still_is_given_its_share_and_then_nothing() {
    let mut sender = Sender::new(CHUNK);
    for number in 0..4 {
        let mut entry = file(1000 * u64::from(CHUNK), 0);
        entry.path = format!("f{number}").into_bytes().into();
        sender.announce(entry);
    }
    sender.scan_ended();
    sender.spread_over(1, 4);
    (0..4).for_each(|id| _ = sender.on_want(id, &Want::All).expect("a want"));
    sender.rail_up(0);
    let (mut flying, mut sent) = ([0_u64; 4], [0_u64; 4]);
    // As much as there is to be had, acknowledged by three of the four, again and again.
    for round in 0..50 {
        let mut out = Vec::new();
        while let Some(assignment) = sender.next_chunk(64) {
            let Unit::Range { entry, .. } = &assignment.unit else { panic!("large files go by ranges") };
            out.push((entry.id, assignment.chunk));
            (flying[entry.id as usize], sent[entry.id as usize]) =
                (flying[entry.id as usize] + 1, sent[entry.id as usize] + 1);
            sender.on_read(assignment.chunk);
            sender.on_sent(0);
            assert!(out.len() < 100, "no more than all may have: {flying:?}");
        }
        assert_eq!(flying, [12; 4], "a quarter of 48 each, round {round}");
        for (id, chunk) in out.into_iter().filter(|(id, _)| *id != 0) {
            flying[id as usize] -= 1;
            sender.on_acks(ChunkRange { first: chunk, end: chunk + 1 }).expect("it was out");
        }
    }
    assert_eq!(sent, [12, 600, 600, 600], "the others go on");
}

/// One file on 16 disks, each of which reads a chunk in 10 ticks, disk 3 in `sick`; 32 chunks in hand over two rails that carry at once.
/// Ticks until all chunks but those of disk 3 were sent, the most that were being read from disk 3, and how many of all went over the rail of the
/// node that their disk is on (every other one), if `nodes` are told.
fn read_striped(chunks: u64, sick: u64, nodes: bool) -> (u64, usize, u64) {
    const DISKS: usize = 16;
    let mut sender = Sender::new(CHUNK);
    sender.spread_over(DISKS as u16, 1);
    if nodes {
        sender.lie_on((0..DISKS as u16).map(|disk| Some(disk % 2)).collect(), vec![0, 1]);
    }
    let mut near = 0;
    let mut entry = file(chunks * u64::from(CHUNK), 0);
    entry.meta.striped = true;
    let entry = sender.announce(entry);
    sender.scan_ended();
    sender.on_want(entry.id, &Want::All).expect("a want");
    let join = places(&entry, DISKS as u64);
    (0..2).for_each(|rail| sender.rail_up(rail));
    let mut disks: Vec<VecDeque<Assignment>> = vec![VecDeque::new(); DISKS];
    let (mut here, mut most, mut healthy, mut tick) = (vec![0; chunks as usize], 0, 0, 0_u64);
    let mut left = (0..chunks).filter(|index| join.volume_at(index * u64::from(CHUNK)) != Some(3)).count();
    while here.contains(&0) {
        tick += 1;
        for (disk, queue) in disks.iter_mut().enumerate() {
            if !tick.is_multiple_of(if disk == 3 { sick } else { 10 }) {
                continue;
            }
            let Some(assignment) = queue.pop_front() else { continue };
            let Unit::Range { index, .. } = assignment.unit else { panic!("large files go by ranges") };
            here[index as usize] += 1;
            sender.on_read(assignment.chunk);
            sender.on_sent(assignment.rail);
            sender.on_acks(ChunkRange { first: assignment.chunk, end: assignment.chunk + 1 }).expect("it was out");
            if disk != 3 {
                (healthy, left) = (tick, left - 1);
            }
        }
        loop {
            while let Some(assignment) = sender.next_chunk(16) {
                let Unit::Range { offset, .. } = assignment.unit else { panic!("large files go by ranges") };
                let disk = join.volume_at(offset).expect("inside");
                near += u64::from(disk % 2 == assignment.rail % 2);
                disks[usize::from(disk)].push_back(assignment);
            }
            let Some((entry, _)) = sender.next_unmapped() else { break };
            sender.on_places(entry.id, Arc::clone(&join));
        }
        if left > 32 {
            most = most.max(disks[3].len()); // after that it has all that is in hand
        }
    }
    assert!(here.iter().all(|&times| times == 1), "each chunk once");
    (healthy, most, near)
}

#[test]
fn a_striped_file_is_read_from_all_its_disks_at_once_and_a_slow_one_holds_its_share_and_no_more() {
    let chunks = 16 * 100;
    let (ticks, most, _) = read_striped(chunks, 10, false);
    assert!(ticks <= 1_020, "100 chunks of 10 ticks from each disk: {ticks}");
    assert!(most <= 3, "of 32 in hand: {most}");
    let (ticks, most, _) = read_striped(chunks, 100, false);
    assert!(ticks <= 1_020, "the others go on to the end: {ticks}");
    assert!(most <= 3, "of 32 in hand: {most}");
}

#[test]
fn a_chunk_goes_over_the_rail_of_its_disks_node_and_nothing_waits_for_that() {
    let chunks = 16 * 100;
    let (ticks, most, near) = read_striped(chunks, 10, true);
    assert!(ticks <= 1_020, "all disks are read at once: {ticks}");
    assert!(most <= 3, "of 32 in hand: {most}");
    assert!(near >= chunks * 9 / 10, "{near} of {chunks} were read on their node");
    let (_, _, by_chance) = read_striped(chunks, 10, false);
    assert!(by_chance <= chunks * 7 / 10, "it is not so by itself: {by_chance}");
    let (ticks, most, _) = read_striped(chunks, 100, true);
    assert!(ticks <= 1_020, "with a slow disk the others go on to the end: {ticks}");
    assert!(most <= 3, "of 32 in hand: {most}");
}

/// Large files on two volumes, each on its node, `[a, b]` of them, sent over a rail of either node; a chunk is gone a tick after it was handed out, one
/// for each rail. Ticks, and how many chunks went over the rail of their node.
fn read_by_file(files: [u64; 2], chunks: u64) -> (u64, u64) {
    let mut sender = Sender::new(CHUNK);
    for number in 0..files[0] + files[1] {
        let mut entry = file(chunks * u64::from(CHUNK), 0);
        entry.path = format!("f{number}").into_bytes().into();
        entry.meta.volume = u16::from(number >= files[0]);
        sender.announce(entry);
    }
    sender.scan_ended();
    sender.spread_over(2, 1);
    sender.lie_on(vec![Some(0), Some(1)], vec![0, 1]);
    for id in 0..files[0] + files[1] {
        sender.on_want(id, &Want::All).expect("a want");
    }
    (0..2).for_each(|rail| sender.rail_up(rail));
    let (mut ticks, mut near, mut queues) = (0, 0, [const { VecDeque::new() }; 2]);
    loop {
        while let Some(assignment) = sender.next_chunk(8) {
            let Unit::Range { entry, .. } = &assignment.unit else { panic!("large files go by ranges") };
            near += u64::from(entry.meta.volume == assignment.rail);
            queues[usize::from(assignment.rail)].push_back(assignment);
        }
        if queues.iter().all(VecDeque::is_empty) {
            return (ticks, near);
        }
        ticks += 1;
        for assignment in queues.iter_mut().filter_map(VecDeque::pop_front) {
            sender.on_read(assignment.chunk);
            sender.on_sent(assignment.rail);
            sender.on_acks(ChunkRange { first: assignment.chunk, end: assignment.chunk + 1 }).expect("it was out");
        }
    }
}

#[test]
fn files_of_two_nodes_go_by_their_own_rails_and_a_free_rail_takes_what_there_is() {
    let (ticks, near) = read_by_file([10, 10], 100);
    assert!(ticks <= 1_010, "2000 chunks over two rails: {ticks}");
    assert!(near >= 1_900, "{near} of 2000 were read on their node");
    let (ticks, near) = read_by_file([20, 0], 100);
    assert!(ticks <= 1_010, "all on one node, and both rails are busy: {ticks}");
    assert!(near >= 900, "half of them: {near}");
}

#[test]
fn the_last_chunk_of_a_file_travels_whatever_its_map_says() {
    let mut sender = Sender::new(CHUNK);
    let entry = sender.announce(file(4 * u64::from(CHUNK), 1));
    assert_eq!(sender.on_want(entry.id, &Want::All), Ok(FollowUp::Nothing));
    let (told, due) = sender.on_map(entry.id, &[ChunkRange { first: 0, end: 4 }], u64::MAX);
    assert_eq!((told, due), (vec![ChunkRange { first: 0, end: 3 }], FollowUp::Nothing));
}

#[test]
fn holes_that_cannot_be_are_refused_by_name() {
    const CHUNKS: u64 = 20;
    let mut receiver = Receiver::new(CHUNK);
    let huge = (1 << 40) + 9 * u64::from(CHUNK);
    let (long, packed) = (CHUNKS * u64::from(CHUNK), 128 << 10);
    for (id, bytes) in [(0, long), (1, packed), (2, long), (3, huge), (4, long)] {
        let mut entry = Entry { id, ..file(bytes, 0) };
        entry.meta.sparse = id != 4;
        receiver.on_entry(entry).expect("in order");
        if id != 2 {
            receiver.expect(id, std::iter::empty());
        }
    }
    let mut holes = |id, first, end| receiver.on_holes(id, &[ChunkRange { first, end }]);
    assert_eq!(holes(5, 0, 1), Err(Breach::EntryUnknown));
    assert_eq!(holes(2, 0, 1), Err(Breach::WrongOrder), "nothing of it was asked for yet");
    assert_eq!(holes(1, 0, 1), Err(Breach::ChunkUnwanted), "a file of a pack has its zeros there");
    assert_eq!(holes(4, 0, 1), Err(Breach::ChunkUnwanted), "nobody said that it has holes");
    assert_eq!(holes(0, CHUNKS - 1, CHUNKS), Err(Breach::ChunkOutOfRange), "the last chunk travels");
    assert_eq!(holes(0, 0, u64::MAX), Err(Breach::ChunkOutOfRange), "beyond the file");
    assert_eq!(holes(3, 1 << 20, (1 << 20) + 1), Err(Breach::ChunkOutOfRange), "beyond the reach");
    assert_eq!(holes(3, 0, 1 << 20), Ok(true), "all of the reach in one range");
    assert_eq!(holes(0, 3, 5), Ok(true));
    assert_eq!(holes(0, 4, 6), Err(Breach::ChunkTwice));
    assert_eq!(receiver.on_landed(0, 3 * u64::from(CHUNK), CHUNK), Err(Breach::ChunkTwice), "a hole does not come");
    assert_eq!(receiver.on_file_end(0, None), Ok(Ready::Nothing));
    assert_eq!(receiver.on_holes(0, &[ChunkRange { first: 8, end: 9 }]), Err(Breach::WrongOrder), "after its end");
}
