//! Two ends in virtual time, with a connection that is as slow as TCP after a loss, and datagrams that are lost as often.

use alloc::vec;

use super::*;

fn at(ms: u64) -> Moment {
    Moment::from_ns(ms * 1_000_000)
}

/// xorshift64*: the same losses in every run.
struct Dice(u64);

impl Dice {
    fn is_lost(&mut self, percent: u64) -> bool {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33 < (percent << 31) / 100
    }
}

struct End {
    duplicates: Duplicates,
    sent: u64,
    got: Vec<u8>,
}

/// On its way to an end: when it is there, to which, what.
enum Word {
    Datagram { received: u64, next: Next },
    Stream { from: u64, bytes: Vec<u8> },
}

struct Path {
    rtt_ms: u64,
    percent: u64,
    /// The connection brings nothing.
    is_stuck: bool,
    dice: Dice,
    words: Vec<(u64, usize, Word)>,
    datagrams: usize,
    /// The connection brings in order: nothing sooner than this, to each end.
    in_order: [u64; 2],
}

impl Path {
    /// TCP's way: a lost segment comes after the timer, with three round trips, then six.
    fn stream(&mut self, ms: u64, to: usize, from: u64, bytes: &[u8]) {
        if self.is_stuck {
            return;
        }
        let mut there = ms + self.rtt_ms / 2;
        let mut timer = self.rtt_ms * 3;
        while self.dice.is_lost(self.percent) {
            there += timer;
            timer *= 2;
        }
        self.in_order[to] = self.in_order[to].max(there);
        self.words.push((self.in_order[to], to, Word::Stream { from, bytes: bytes.to_vec() }));
    }

    fn turn(&mut self, ms: u64, ends: &mut [End; 2]) {
        for (_, to, word) in self.words.extract_if(.., |it| it.0 <= ms).collect::<Vec<_>>() {
            let end = &mut ends[to];
            let received = end.got.len() as u64;
            let new = match word {
                Word::Stream { from, bytes } => end.duplicates.on_stream(at(ms), received, from, &bytes),
                Word::Datagram { received: told, next } => {
                    end.duplicates.on_told(at(ms), told, &next.beyond);
                    end.duplicates.on_piece(at(ms), received, next.offset, &next.bytes)
                }
            };
            end.got.extend(new);
        }
        for (who, end) in ends.iter_mut().enumerate() {
            while let Some(next) = end.duplicates.next(at(ms), end.got.len() as u64) {
                self.datagrams += 1;
                if !self.dice.is_lost(self.percent) {
                    let word = Word::Datagram { received: end.got.len() as u64, next };
                    self.words.push((ms + self.rtt_ms / 2, 1 - who, word));
                }
            }
        }
    }
}

fn end(rtt_ms: u64) -> End {
    End { duplicates: Duplicates::new(0, Duration::from_millis(rtt_ms)), sent: 0, got: Vec::new() }
}

/// What an end says as its n-th word.
fn words_of(nth: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at * 7 + nth * 13 + at / 251) as u8).collect()
}

/// Question and answer in turn, so many times: the time that each took, in milliseconds, and the datagrams of all.
fn talk(path: &mut Path, times: u64, bytes: usize) -> (Vec<u64>, usize) {
    let mut ends = [end(path.rtt_ms), end(path.rtt_ms)];
    let (mut took, mut said, mut whole) = (Vec::new(), 0, [Vec::new(), Vec::new()]);
    let (mut turn, mut began) = (0, 0);
    for ms in 0..10_000_000 {
        let has_heard = ends[turn].got.len() == whole[1 - turn].len();
        if has_heard && turn == 0 && said > 0 {
            took.push(ms - began);
        }
        if took.len() as u64 == times {
            assert!(ends[0].got == whole[1] && ends[1].got == whole[0], "all bytes, in order, once");
            return (took, path.datagrams);
        }
        if has_heard {
            began = if turn == 0 { ms } else { began };
            let word = words_of(said, bytes);
            let from = ends[turn].sent;
            ends[turn].sent += word.len() as u64;
            whole[turn].extend(&word);
            path.stream(ms, 1 - turn, from, &word);
            ends[turn].duplicates.on_sent(at(ms), from, &word);
            said += 1;
            turn = 1 - turn;
        }
        path.turn(ms, &mut ends);
    }
    panic!("it never ended: {} of {times}", took.len())
}

fn path(rtt_ms: u64, percent: u64, is_stuck: bool) -> Path {
    let dice = Dice(0x9E37_79B9_7F4A_7C15);
    Path { rtt_ms, percent, is_stuck, dice, words: Vec::new(), datagrams: 0, in_order: [0; 2] }
}

#[test]
fn a_word_and_its_answer_take_a_round_trip_where_a_tenth_is_lost_and_no_timer_of_tcps() {
    for rtt_ms in [10, 100, 600, 1000] {
        let (mut took, _) = talk(&mut path(rtt_ms, 10, false), 200, 400);
        took.sort_unstable();
        let (median, late, all) = (took[100], took[190], took.iter().sum::<u64>());
        assert!(median <= rtt_ms + 2, "{rtt_ms} ms: {median}");
        assert!(late <= rtt_ms * 5 / 2 + 40, "{rtt_ms} ms: 95 of 100 within two and a half round trips: {late}");
        assert!(all <= 200 * (rtt_ms * 3 / 2 + 10), "{rtt_ms} ms: {all}");
    }
}

#[test]
fn a_session_whose_connection_brings_nothing_goes_on_in_datagrams() {
    for (rtt_ms, bytes) in [(10, 100), (100, 5_000), (1000, 20_000)] {
        let (took, _) = talk(&mut path(rtt_ms, 10, true), 20, bytes);
        let each = took.iter().sum::<u64>() / 20;
        // What is beyond the eager segments goes a round trip and a quarter later, each way.
        assert!(each <= rtt_ms * 6 + 60, "{rtt_ms} ms, {bytes} bytes: {each} ms each");
    }
}

#[test]
fn without_loss_a_word_goes_once_in_a_datagram_and_is_acknowledged() {
    let (took, datagrams) = talk(&mut path(100, 0, false), 50, 400);
    assert!(took.iter().all(|&it| it <= 102), "{took:?}");
    // The first of either end go twice.
    let again = 2 * 2 * TWICE as usize;
    assert!(datagrams <= 50 * 2 * 2 + again + 4, "{datagrams}: a word and what tells that it came");
}

#[test]
fn the_first_words_of_a_session_do_not_wait_for_a_datagram_that_is_lost() {
    for rtt_ms in [10, 100, 600] {
        // The connection brings nothing in time.
        let (mut late, sessions) = (0, 400);
        for seed in 1..=sessions {
            let mut path = path(rtt_ms, 10, true);
            path.dice = Dice(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
            let (took, _) = talk(&mut path, 2, 400);
            late += took.iter().filter(|&&it| it > rtt_ms + 12).count() as u64;
        }
        // One of a hundred words is lost twice, and a question is a word and its answer.
        assert!(late * 100 <= sessions * 2 * 4, "{rtt_ms} ms: {late} of {} took longer", sessions * 2);
    }
}

#[test]
fn a_manifest_does_not_go_twice() {
    let mut ends = [end(100), end(100)];
    let mut way = path(100, 0, false);
    let all = words_of(1, 300_000);
    // The connection takes 30 kB each 20 ms, and brings it.
    for ms in 0..2000 {
        if ms % 20 == 0 && ends[0].sent < 300_000 {
            let from = ends[0].sent;
            let bytes = &all[from as usize..(from + 30_000).min(300_000) as usize];
            way.stream(ms, 1, from, bytes);
            ends[0].sent += bytes.len() as u64;
            ends[0].duplicates.on_sent(at(ms), from, bytes);
        }
        way.turn(ms, &mut ends);
    }
    assert!(ends[1].got == all && ends[0].duplicates.segments.is_empty());
    assert!(way.datagrams <= 8 * 10 + 100, "{} of 273 segments went in datagrams", way.datagrams);
}

#[test]
fn what_a_hostile_peer_tells_or_sends_costs_a_bounded_memory_and_changes_nothing() {
    let mut it = Duplicates::new(500, Duration::from_millis(100));
    it.on_sent(at(0), 500, &vec![7; 1_000_000]);
    assert_eq!(it.segments.len(), KEPT, "the rest is the connection's alone");
    it.on_told(at(1), 1_000_501, &[]);
    it.on_told(at(1), u64::MAX, &[(0, u64::MAX)]);
    assert_eq!((it.segments.len(), it.acked), (KEPT, 500), "more than was ever sent");
    for nth in 0..10_000 {
        assert_eq!(it.on_piece(at(2), 1000, 1001 + nth * 7, &[1; 5]), []);
    }
    assert!(it.pieces.len() <= KEPT);
    assert_eq!(it.on_piece(at(2), 1000, 1000 + REACH, &[1; 5]), [], "beyond the reach");
    assert_eq!(it.on_piece(at(2), 1000, 10, &[1; 5]), [], "old");
    assert!(it.beyond(1000).len() <= RANGES_MAX);
    // The pieces that are in order with what comes are taken, those that it covers are let go of.
    let new = it.on_stream(at(3), 1000, 900, &[2; 100_000]);
    assert_eq!(new.len(), 99_900);
    assert!(it.pieces.is_empty());
}

#[test]
fn a_path_on_which_nothing_gets_through_is_tried_with_one_segment_and_ever_more_seldom() {
    let mut it = Duplicates::new(0, Duration::from_millis(100));
    it.on_sent(at(0), 0, &vec![7; 20_000]);
    let mut sent = 0;
    for ms in 0..60_000 {
        while it.next(at(ms), 0).is_some() {
            sent += 1;
        }
    }
    assert!(it.is_silent() && sent <= 19 * SILENT as usize + 25, "{sent} datagrams in a minute");
    it.on_sent(at(60_000), 20_000, &[7; 100]);
    assert!(it.due().is_some_and(|due| due > at(60_000)), "nothing is eager any more");
    it.on_path(at(60_001));
    assert_eq!((it.is_silent(), it.due()), (false, Some(at(60_001))), "another path begins anew");
}

#[test]
fn what_is_handed_in_again_for_another_connection_goes_once() {
    let mut it = Duplicates::new(0, Duration::from_millis(100));
    it.on_sent(at(0), 0, &[1; 100]);
    it.on_sent(at(1), 50, &[1; 100]);
    let offsets: Vec<(u64, usize)> = it.segments.iter().map(|it| (it.from, it.bytes.len())).collect();
    assert_eq!(offsets, [(0, 100), (100, 50)]);
}
