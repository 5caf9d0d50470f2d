//! Paths that die, come back, slow down and stay away, in virtual time.
//!
//! For: every rule of dialling, pacing and cutting.
//! In and out: rates of paths over time in; cuts and dials with their times checked.
//! Invariants: no clock: a millisecond is a step.
//! Absent on purpose: whole jobs over these paths (the simulator of `engine`).

use alloc::vec;

use super::*;

fn at(ms: u64) -> Moment {
    Moment::from_ns(ms * 1_000_000)
}

const RTT: Duration = Duration::from_millis(20);
const LINK: Link = Link { rtt: RTT, chunk_bytes: 1 << 20, sends: true };
const ONE: Wanted = Wanted { streams: 1, datagrams: 0 };

/// A sender whose paths bring `rate(ms, path)` bytes per second; `None`: the path is down, and dials over it fail after 50 ms.
struct World {
    paths: Paths,
    bytes: Vec<u64>,
    next_rail: u16,
    wanted: Wanted,
    /// Dials on their way: when they end.
    dials: Vec<(u64, Dial)>,
    /// Rails that carry.
    rails: Vec<(u16, usize)>,
    /// Cuts and dials with their times.
    cuts: Vec<(u64, Cut)>,
    dialled: Vec<(u64, usize)>,
    news: Vec<(u64, usize, bool)>,
}

impl World {
    fn new(count: usize) -> World {
        World {
            paths: Paths::new(at(0), count),
            bytes: vec![0; count],
            next_rail: 0,
            wanted: Wanted { streams: count, datagrams: 0 },
            dials: Vec::new(),
            rails: Vec::new(),
            cuts: Vec::new(),
            dialled: Vec::new(),
            news: Vec::new(),
        }
    }

    fn run(&mut self, ms: core::ops::Range<u64>, rate: impl Fn(u64, usize) -> Option<u64>) {
        for ms in ms {
            let now = at(ms);
            for path in 0..self.bytes.len() {
                self.bytes[path] += rate(ms, path).unwrap_or(0) / 1000;
            }
            let over: Vec<Dial> = self.dials.extract_if(.., |(then, _)| *then <= ms).map(|(_, dial)| dial).collect();
            for dial in over {
                self.paths.on_dial_over(dial);
                if rate(ms, dial.path).is_some() {
                    if self.paths.on_rail_up(now, self.next_rail, dial.path, dial.kind) {
                        self.news.push((ms, dial.path, true));
                    }
                    self.rails.push((self.next_rail, dial.path));
                    self.next_rail += 1;
                } else if self.paths.on_dial_failed(now, dial.path, true, self.rails.len()).is_news {
                    self.news.push((ms, dial.path, false));
                }
            }
            for dial in self.paths.next_dials(now, self.wanted, self.rails.len()) {
                self.paths.on_dialled(now, dial);
                self.dialled.push((ms, dial.path));
                self.dials.push((ms + 50, dial));
            }
            if self.paths.is_due(now) {
                let of = |&(rail, path): &(u16, usize)| {
                    let bytes = self.bytes[path];
                    Sample { rail, seen: Some(Seen { bytes, sign: bytes, waits: true }), is_busy: true }
                };
                let samples: Vec<Sample> = self.rails.iter().map(of).collect();
                for cut in self.paths.on_samples(now, &LINK, &samples).cuts {
                    self.rails.retain(|(rail, _)| *rail != cut.rail);
                    self.paths.on_rail_gone(now, cut.rail);
                    self.cuts.push((ms, cut));
                }
            }
        }
    }

    fn dialled(&self, from: u64, path: usize) -> Vec<u64> {
        self.dialled.iter().filter(|(ms, of)| *ms >= from && *of == path).map(|(ms, _)| *ms).collect()
    }
}

#[test]
fn a_path_that_dies_is_cut_within_a_second_dialled_five_times_a_second_and_used_when_it_is_back() {
    let mut world = World::new(2);
    let rate = |ms, path| (path == 0 || !(3000..6000).contains(&ms)).then_some(10_000_000);
    world.run(0..9000, rate);
    assert_eq!(world.cuts.len(), 1, "{:?}", world.cuts);
    let (ms, cut) = world.cuts[0];
    assert!((3400..=3700).contains(&ms) && cut.path == 1 && cut.why == Why::Silent, "{ms} {cut:?}");
    let dialled = world.dialled(3000, 1);
    assert!((8..=12).contains(&dialled.len()), "each 200 ms and the 50 of a dial: {dialled:?}");
    assert_eq!(world.news.len(), 2, "away and there again are each said once: {:?}", world.news);
    assert!(world.news[1].0 <= 6250 && world.news[1].2, "{:?}", world.news);
    assert!(world.paths.carries(1), "it carries again");
    assert!(world.paths.bytes(1) > 50_000_000, "what it brought before counts: {}", world.paths.bytes(1));
}

#[test]
fn paths_that_are_all_silent_are_an_outage_and_none_is_cut() {
    let mut world = World::new(3);
    world.run(0..3000, |_, _| Some(10_000_000));
    // No byte moves any more.
    world.run(3000..30_000, |_, _| Some(0));
    assert_eq!(world.cuts, []);
    assert!(!world.paths.watches_itself(at(30_000), RTT), "dead streams are the session's to find");
    world.run(30_000..30_100, |_, path| Some(if path == 2 { 10_000_000 } else { 0 }));
    world.run(30_100..30_200, |_, path| Some(if path == 2 { 10_000_000 } else { 0 }));
    assert!(world.paths.watches_itself(at(30_200), RTT), "one path brings something");
    assert!(!Paths::new(at(0), 1).watches_itself(at(0), RTT));
}

#[test]
fn a_path_that_becomes_twenty_times_slower_is_cut_and_dialled_two_seconds_later() {
    let mut world = World::new(2);
    let rate = |ms, path| Some(if path == 1 && ms >= 5000 { 500_000 } else { 10_000_000 });
    world.run(0..9000, rate);
    let (ms, cut) = world.cuts[0];
    assert!((5900..=6300).contains(&ms), "{ms}");
    assert!(matches!(cut.why, Why::Slower(12..=20)), "{cut:?}");
    assert_eq!(world.dialled(ms, 1), [ms + 2000], "after the pause, and it stays: what it is now is its best");
    assert_eq!(world.cuts.len(), 1);
}

#[test]
fn all_paths_that_become_slow_together_stay() {
    let mut world = World::new(2);
    world.run(0..9000, |ms, _| Some(if ms >= 5000 { 500_000 } else { 10_000_000 }));
    assert_eq!(world.cuts, [], "the disk, or everybody's link: nobody else would carry more");
}

#[test]
fn a_rail_may_owe_what_it_brings_in_a_second_and_two_round_trips_and_four_chunks() {
    let mut paths = Paths::new(at(0), 2);
    paths.on_rail_up(at(0), 7, 0, Kind::Stream);
    let pace = |paths: &mut Paths, ms: u64| {
        let seen = Some(Seen { bytes: ms * 10_000, sign: ms, waits: true });
        paths.on_samples(at(ms), &LINK, &[Sample { rail: 7, seen, is_busy: true }]).paces[0].1
    };
    assert_eq!(pace(&mut paths, 0), Pace { rate: 0, outstanding_max: 4 << 20 });
    for ms in (100..=1000).step_by(100) {
        pace(&mut paths, ms);
    }
    assert_eq!(pace(&mut paths, 1100), Pace { rate: 10_000_000, outstanding_max: 10_400_000 + (4 << 20) });
    let receiver = Link { sends: false, ..LINK };
    assert_eq!(paths.on_samples(at(1200), &receiver, &[]), Look::default(), "the sender alone paces and cuts");
}

/// When one path is dialled whose dials all fail after `dial_ms`, and how it ends.
fn all_fail(paths: &mut Paths, from_ms: u64, dial_ms: u64, is_blocked: bool) -> (Vec<u64>, Failed) {
    let dial = Dial { path: 0, kind: Kind::Stream };
    let (mut ms, mut begun) = (from_ms, Vec::new());
    loop {
        if paths.next_dials(at(ms), ONE, 0) == [dial] {
            begun.push(ms - from_ms);
            paths.on_dialled(at(ms), dial);
            assert_eq!(paths.next_dials(at(ms), ONE, 0), [], "it is on its way");
            ms += dial_ms;
            paths.on_dial_over(dial);
            let failed = paths.on_dial_failed(at(ms), 0, is_blocked, 0);
            if failed.next != Next::Again {
                return (begun, failed);
            }
        }
        ms += 10;
    }
}

#[test]
fn one_path_is_dialled_again_after_pauses_that_grow_and_given_up_after_five_failures_in_a_row() {
    let lost = Failed { is_news: false, next: Next::Lost };
    let mut paths = Paths::new(at(0), 1);
    let (begun, last) = all_fail(&mut paths, 0, 0, false);
    assert_eq!((begun, last), (vec![0, 400, 1200, 2400, 4000], lost));
    assert_eq!(paths.on_dial_failed(at(9000), 0, false, 1).next, Next::Again, "another rail carries");
    paths.on_session_moved();
    assert_eq!(paths.on_dial_failed(at(9000), 0, false, 0).next, Next::Again, "the peer was reached in between");
    let mut paths = Paths::new(at(0), 1);
    paths.on_rail_up(at(0), 7, 0, Kind::Stream);
    paths.on_rail_gone(at(0), 7);
    assert_eq!(all_fail(&mut paths, 60_000, 0, true).1, lost, "a path that worked once is an outage");
}

#[test]
fn a_network_that_never_let_a_rail_through_is_known_within_ten_seconds() {
    let never = Failed { is_news: false, next: Next::Never };
    let refused = all_fail(&mut Paths::new(at(0), 1), 0, 0, true);
    assert_eq!(refused, (vec![0, 400, 1200, 2400, 4000, 6000], never));
    let swallowed = all_fail(&mut Paths::new(at(0), 1), 0, 10_000, true);
    assert_eq!(swallowed, (vec![0], never));
    let mut paths = Paths::new(at(0), 1);
    let many = Wanted { streams: 8, datagrams: 0 };
    for dial in paths.next_dials(at(0), many, 0) {
        paths.on_dialled(at(0), dial);
        paths.on_dial_over(dial);
        assert_eq!(paths.on_dial_failed(at(1), 0, true, 0).next, Next::Again, "eight at once are one attempt");
    }
}

/// Five rails that stood in a path MTU black hole are cut and dialled anew with small segments; a dial that then fails is the first to fail.
#[test]
fn rails_that_were_cut_at_this_end_are_no_dials_that_failed() {
    for was_cut in [true, false] {
        let mut paths = Paths::new(at(0), 1);
        for rail in 0..5 {
            paths.on_rail_up(at(0), rail, 0, Kind::Stream);
        }
        for rail in 0..5 {
            if was_cut {
                paths.cut(at(1000), rail, at(1000));
            }
            paths.on_rail_gone(at(1000), rail);
        }
        let next = paths.on_dial_failed(at(2000), 0, true, 0).next;
        assert_eq!(next, if was_cut { Next::Again } else { Next::Lost }, "rails that die by themselves count");
    }
}

#[test]
fn several_paths_that_cannot_be_dialled_are_wrong_addresses_at_first_and_an_outage_later() {
    let mut paths = Paths::new(at(0), 2);
    let failed = |is_news, next| Failed { is_news, next };
    paths.on_dialled(at(0), Dial { path: 0, kind: Kind::Stream });
    assert_eq!(paths.on_dial_failed(at(0), 0, true, 0), failed(true, Next::Others), "the other is tried");
    assert_eq!(paths.on_dial_failed(at(0), 1, true, 0), failed(true, Next::Again));
    assert_eq!(paths.on_dial_failed(at(4999), 1, true, 0), failed(false, Next::Again));
    assert_eq!(paths.on_dial_failed(at(5000), 1, true, 0), failed(false, Next::Never));
    assert!(paths.on_rail_up(at(10), 1, 0, Kind::Stream), "it is there again");
    paths.on_rail_gone(at(20), 1);
    for ms in 20..10_000 {
        assert_eq!(paths.on_dial_failed(at(ms), 0, true, 0).next, Next::Others, "the watchdog bounds an outage");
    }
}

#[test]
fn a_path_without_udp_gets_one_tcp_rail_and_the_only_path_is_not_kept_for_itself() {
    let wanted = Wanted { streams: 0, datagrams: 4 };
    let mut paths = Paths::new(at(0), 2);
    assert!(paths.on_no_datagrams(at(0), 1));
    assert_eq!(paths.wanted_of(0, wanted), Wanted { streams: 0, datagrams: 2 });
    assert_eq!(paths.wanted_of(1, wanted), Wanted { streams: 1, datagrams: 0 });
    assert!(!Paths::new(at(0), 1).on_no_datagrams(at(0), 0));
}

#[test]
fn rails_of_a_kind_that_is_not_wanted_rest_and_are_closed_when_empty_or_after_three_seconds() {
    let mut paths = Paths::new(at(0), 1);
    paths.on_rail_up(at(0), 0, 0, Kind::Stream);
    paths.on_rail_up(at(0), 1, 0, Kind::Stream);
    let udp = Wanted { streams: 0, datagrams: 1 };
    assert_eq!(paths.next_rests(at(0), udp, None), [], "they carry alone");
    paths.on_rail_up(at(1), 2, 0, Kind::Datagram);
    assert_eq!(paths.next_rests(at(1), udp, None), [0, 1]);
    assert!(paths.is_resting(0) && !paths.is_resting(2) && paths.is_resting(9));
    assert_eq!(paths.next_closes(at(2), &|rail| rail == 1), [1], "it is empty");
    assert_eq!(paths.next_closes(at(3000), &|_| false), []);
    assert_eq!(paths.next_closes(at(3001), &|_| false), [0], "its time is over");
    assert_eq!(paths.next_closes(at(60_000), &|_| false), [], "once");
}

#[test]
fn tcp_rails_beyond_the_plan_or_on_workers_out_of_it_rest_but_never_the_last_of_a_path() {
    let mut paths = Paths::new(at(0), 1);
    (0..4).for_each(|rail| _ = paths.on_rail_up(at(0), rail, 0, Kind::Stream));
    let two = Wanted { streams: 2, datagrams: 0 };
    assert_eq!(paths.next_rests(at(1), two, None), [], "the first plan is in force");
    assert_eq!(paths.next_rests(at(1), two, Some(&|_| false)), [], "none would be left");
    assert_eq!(paths.next_rests(at(1), two, Some(&|rail| rail != 1)), [1, 3], "out of the plan, and one too many");
}

#[test]
fn a_straggler_is_left_at_the_end_of_the_job_unless_it_waits_for_the_peers_disk_or_carries_alone() {
    let mut paths = Paths::new(at(0), 2);
    paths.on_rail_up(at(0), 0, 0, Kind::Stream);
    paths.on_rail_up(at(0), 1, 1, Kind::Stream);
    assert_eq!(paths.next_tail_look(at(4)), None, "each 5 ms");
    assert_eq!(paths.next_tail_look(at(5)).map(|brings| brings.len()), Some(2));
    assert_eq!(paths.on_straggler(at(5), 1), [], "nothing is in flight over it");
    let seen = Some(Seen { bytes: 1, sign: 1, waits: true });
    paths.on_samples(at(100), &LINK, &[Sample { rail: 1, seen, is_busy: true }]);
    assert_eq!(paths.on_straggler(at(100), 1), [1]);
    assert_eq!(paths.next_tail_look(at(105)).map(|brings| brings.len()), Some(1), "a rail that rests is not counted");
    paths.on_rail_gone(at(110), 1);
    let wanted = Wanted { streams: 2, datagrams: 0 };
    assert_eq!(paths.next_dials(at(9000), wanted, 1), [], "it is not dialled again for this job");
    paths.on_rail_gone(at(9000), 0);
    let paths_of: Vec<usize> = paths.next_dials(at(9200), wanted, 0).iter().map(|dial| dial.path).collect();
    assert_eq!(paths_of, [0, 1], "nobody else carries: better than none");
}

#[test]
fn udp_that_did_not_get_through_is_tried_again_and_taken_when_it_does() {
    let (tcp, udp) = (Wanted { streams: 2, datagrams: 0 }, Wanted { streams: 0, datagrams: 2 });
    let mut paths = Paths::new(at(0), 1);
    assert!(!paths.on_no_datagrams(at(0), 0));
    paths.on_rail_up(at(0), 0, 0, Kind::Stream);
    paths.on_rail_up(at(0), 1, 0, Kind::Stream);
    let mut tried = Vec::new();
    for ms in (0..200_000).step_by(100) {
        for dial in paths.next_dials(at(ms), tcp, 2) {
            assert_eq!(dial, Dial { path: 0, kind: Kind::Datagram });
            tried.push(ms);
            paths.on_dialled(at(ms), dial);
            paths.on_dial_over(dial);
            paths.on_no_datagrams(at(ms), 0);
        }
    }
    assert_eq!(tried, [5000, 15_000, 35_000, 75_000, 135_000, 195_000], "twice as long each time, up to a minute");
    paths.on_rail_up(at(200_000), 2, 0, Kind::Datagram);
    let dials = paths.next_dials(at(400_000), udp, 3);
    assert_eq!(
        dials,
        [Dial { path: 0, kind: Kind::Datagram }],
        "the second rail of two, and nothing is tried any more"
    );
}
