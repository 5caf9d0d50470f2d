//! Which rail the next chunk goes over, where rails are unlike: shares by what each brings, and an end that waits for none.
//!
//! For: `Sender::next_chunk` with `Pace`.
//! In and out: rails as servers of a fixed rate in virtual time, told to the machine as a keeper tells them.
//! Invariants: virtual time only; the same run every time.
//! Absent on purpose: measuring rates, cutting rails (proto/src/session/paths.rs).

use std::collections::{BTreeMap, BTreeSet};

use proto::manifest::{Entry, EntryKind, Meta};
use proto::send::{Brings, Pace, Sender};
use proto::wire::control::{ChunkRange, Want};

const CHUNK: u64 = 1 << 20;
const MS: u64 = 1_000_000;

/// A sender of one file of so many chunks, all of which are wanted.
fn wanted(chunks: u64) -> Sender {
    let mut sender = Sender::new(CHUNK as u32);
    let kind = EntryKind::File { bytes: chunks * CHUNK };
    let path = Box::from(&b"f"[..]);
    let entry = Entry { id: 0, path, kind, mode: 0o644, mtime_s: 0, mtime_ns: 0, meta: Meta::default() };
    let id = sender.announce(entry).id;
    sender.scan_ended();
    sender.on_want(id, &Want::All).expect("a want");
    sender
}

/// Moves a file of `chunks` chunks over rails of these rates (bytes per second): when it is done, and what each brought.
fn run(chunks: u64, rates: &[u64], told: bool) -> (u64, Vec<u64>) {
    let mut sender = wanted(chunks);
    for rail in 0..rates.len() as u16 {
        sender.rail_up(rail);
        if told {
            let rate = rates[usize::from(rail)];
            sender.pace_rail(rail, Pace { rate, outstanding_max: rate / 4 + 2 * CHUNK });
        }
    }
    // A chunk leaves the hand when the one before it is through, as a bounded send buffer makes it.
    let (mut free_at, mut brought) = (vec![0_u64; rates.len()], vec![0; rates.len()]);
    let (mut now, mut ends) = (0, BTreeMap::new());
    while brought.iter().sum::<u64>() < chunks {
        while let Some(assignment) = sender.next_chunk(16) {
            let rail = usize::from(assignment.rail);
            free_at[rail] = free_at[rail].max(now) + CHUNK * 1_000_000_000 / rates[rail];
            sender.on_read(assignment.chunk);
            ends.insert((free_at[rail], assignment.chunk), assignment.rail);
        }
        let ((at, chunk), rail) = ends.pop_first().expect("something is on its way");
        now = at;
        brought[usize::from(rail)] += 1;
        sender.on_sent(rail);
        sender.on_acks(ChunkRange { first: chunk, end: chunk + 1 }).expect("it was out");
    }
    (now, brought)
}

#[test]
fn each_rail_brings_its_share_and_none_is_waited_for() {
    let unit = 12_500_000;
    for weights in [&[1_u64, 1, 2, 4][..], &[1, 10], &[1, 1, 1], &[3, 100, 100], &[1, 20, 20, 20]] {
        let rates: Vec<u64> = weights.iter().map(|weight| weight * unit).collect();
        let sum: u64 = rates.iter().sum();
        let chunks = 2000;
        let (ns, brought) = run(chunks, &rates, true);
        let ideal = chunks * CHUNK * 1000 / (sum / 1_000_000);
        let fastest = CHUNK * 1_000_000_000 / rates.iter().max().expect("one");
        assert!(ns <= ideal + 2 * fastest, "{weights:?}: {} ms, ideal {} ms", ns / MS, ideal / MS);
        for (rail, &chunks_of) in brought.iter().enumerate() {
            let share = chunks_of as f64 * sum as f64 / (chunks as f64 * rates[rail] as f64);
            assert!((0.9..1.1).contains(&share), "{weights:?}: rail {rail} brings {share:.2} of its weight");
        }
    }
}

#[test]
fn without_what_was_seen_the_end_waits_for_the_slowest() {
    // What the rule is for: were this as good, the rule could go.
    let rates = [1_250_000, 12_500_000];
    let (plain, told) = (run(400, &rates, false).0, run(400, &rates, true).0);
    assert!(plain > told + 5 * CHUNK * 1_000_000_000 / rates[1], "{} ms, {} ms", plain / MS, told / MS);
}

/// Chunks that a rail of unknown rate may owe (proto/src/session/paths.rs).
const HAND: usize = 4;

/// What the end of a job with stragglers was: when it was over, and the bytes that went again.
struct Tail {
    ns: u64,
    again: u64,
}

/// Moves a file over one rail on each path, of these rates, about which nothing is known while chunks are handed out: each takes as many as its
/// hands hold. `lead_ns`: until a rail that is cut is closed, and what it owed goes again; `None`: nobody is cut.
fn run_to_the_end(chunks: u64, rates: &[u64], lead_ns: Option<u64>) -> Tail {
    let mut sender = wanted(chunks);
    let mut brings: Vec<Brings> = Vec::new();
    for (path, &rate) in rates.iter().enumerate() {
        sender.rail_up(path as u16);
        brings.push(Brings { rail: path as u16, path, rate });
    }
    let (mut free_at, mut came) = (vec![0_u64; rates.len()], 0);
    let (mut now, mut ends, mut closes) = (0, BTreeMap::new(), BTreeSet::new());
    while came < chunks {
        while let Some(assignment) = sender.next_chunk(HAND) {
            let rail = usize::from(assignment.rail);
            free_at[rail] = free_at[rail].max(now) + CHUNK * 1_000_000_000 / rates[rail];
            sender.on_read(assignment.chunk);
            ends.insert((free_at[rail], assignment.chunk), assignment.rail);
        }
        for path in lead_ns.map_or(Vec::new(), |lead| sender.stragglers(lead, &brings)) {
            // What is on its way meanwhile may still come.
            closes.insert((now + lead_ns.unwrap_or(0), path as u16));
            brings.retain(|it| it.path != path);
            sender.rest_rail(path as u16);
        }
        let next = ends.keys().next().map(|(at, _)| *at);
        if let Some((at, rail)) = closes.first().copied().filter(|(at, _)| next.is_none_or(|next| *at < next)) {
            closes.pop_first();
            now = at;
            ends.retain(|_, over| *over != rail);
            sender.on_rail_closed(rail);
            continue;
        }
        let ((at, chunk), rail) = ends.pop_first().expect("something is on its way");
        (now, came) = (at, came + 1);
        sender.on_sent(rail);
        sender.on_acks(ChunkRange { first: chunk, end: chunk + 1 }).expect("it was out");
    }
    Tail { ns: now, again: sender.resent_bytes() }
}

#[test]
fn a_rail_ten_times_slower_adds_two_chunk_times_to_the_end_at_most_though_nobody_knew() {
    let fast = 25_000_000;
    let chunk_ns = CHUNK * 1_000_000_000 / fast;
    // Were nobody cut, most of these would end later by more than five chunk times; else the rule could go.
    let mut helps = 0;
    for chunks in [40, 105, 400, 1003] {
        for rates in
            [&[fast, fast / 10][..], &[fast / 10, fast], &[fast, fast / 10, fast / 10], &[fast, fast, fast / 20]]
        {
            let sum: u64 = rates.iter().sum();
            let ideal = chunks * CHUNK * 1000 / (sum / 1_000_000);
            let lead = 20 * MS;
            let (alone, helped) = (run_to_the_end(chunks, rates, None), run_to_the_end(chunks, rates, Some(lead)));
            let ms = |ns: u64| ns / MS;
            let slow = rates.iter().filter(|rate| **rate < fast).count() as u64;
            assert!(
                helped.ns <= ideal + 2 * slow * chunk_ns + lead,
                "{chunks} over {rates:?}: {} ms, ideal {} ms, left alone {} ms",
                ms(helped.ns),
                ms(ideal),
                ms(alone.ns)
            );
            assert!(alone.ns >= helped.ns && alone.again == 0);
            // What each slow rail had in hand, once.
            assert!(helped.again <= HAND as u64 * CHUNK * slow, "{} bytes again", helped.again);
            helps += u32::from(alone.ns > helped.ns + 5 * chunk_ns);
        }
    }
    assert!(helps >= 12, "{helps} of 16");
}

#[test]
fn two_rails_alike_are_never_cut_and_a_lone_path_has_nobody_to_help_it() {
    for rates in [&[25_000_000_u64, 25_000_000][..], &[25_000_000, 24_000_000], &[1_000_000]] {
        for chunks in [1, 2, 3, 50, 101] {
            assert_eq!(run_to_the_end(chunks, rates, Some(2 * MS)).again, 0, "{chunks} over {rates:?}");
        }
    }
}

#[test]
fn one_chunk_goes_over_the_fastest_and_a_lone_rail_takes_all() {
    assert_eq!(run(1, &[1_000_000, 50_000_000, 2_000_000], true).1, [0, 1, 0]);
    assert_eq!(run(7, &[1_000_000], true).1, [7]);
}
