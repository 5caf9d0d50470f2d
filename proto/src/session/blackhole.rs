//! Path MTU black holes under a running job: long packets vanish and no ICMP message says so.
//!
//! For: TCP rails and the session's connection that stand still for good although the peer is there, because a route changed to a smaller MTU.
//! In and out: TCP counters of the rails and of the session in; rails to cut, paths on which small segments are used, and a new connection for
//! the session, out.
//! Invariants: a stream that is slow, or whose peer's disk is slow, is left alone: nothing at all must have been acknowledged while small frames
//! of the session arrive. What is cut costs a repeat of what was in flight. Only the end that dials can act on the remedy.
//! Absent on purpose: datagram rails (their path MTU search finds such holes: `flow`), black holes at the start of a session (the program's
//! handshake), longer segments again later: a stream lasts as long as its job.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::Moment;

/// TCP payload bytes per segment once a black hole is known: they pass wherever packets of 1280 bytes do (the least MTU of IPv6, RFC 8200 section 5),
/// under 60 bytes of IPv6 and TCP headers and 40 of one tunnel.
pub const SMALL_SEGMENT_BYTES: u32 = 1180;
/// Streams are looked at this often.
const LOOK: Duration = Duration::from_millis(250);
/// Nothing acknowledged for this long and for so many round trips: five of Linux's least retransmission timeouts (200 ms, each twice the one
/// before) are 6 s, three are 1.4 s. A path that loses three times in a row whatever the size is down for all packets.
const SILENCE: Duration = Duration::from_secs(2);
const SILENCE_RTTS: u32 = 8;
/// At least so many segments were retransmitted during the silence: one may be the repeat of a lost acknowledgement.
const RETRANSMITTED: u32 = 2;
/// The peer reports every 500 ms (`PULSE`): if it was heard within two reports and 200 ms, it is there.
const PEER_THERE: Duration = Duration::from_millis(1200);
/// A report is so late: the silence of the streams until now may be that of a short outage, and is counted anew. (`SEED=24755 LINKS=1` of the
/// simulator: two outages of a second, one after the other, with a retransmission lost in each, were taken for a black hole.)
const REPORT_LATE: Duration = Duration::from_millis(700);
/// A rail that the peer let go of for a black hole was silent here for this long: two of Linux's least retransmission timeouts. (With several paths
/// a rail is cut after 500 ms: see `paths`.)
const SILENT_BEFORE_CUT: Duration = Duration::from_millis(400);
/// With several paths, a path on which so many streams in a row were lost in silence: each may fall silent once for a reason of its own.
const STREAMS_LOST: u8 = 2;
/// A stream that moved this many bytes was not silent from its beginning.
const MOVED_BYTES: u64 = 1 << 20;

/// TCP counters of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stream {
    /// Bytes acknowledged (at the sending end) or received.
    pub bytes: u64,
    /// Segments retransmitted since the connection was made.
    pub retransmitted: u32,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Payload bytes of a segment.
    pub segment_bytes: u32,
    /// Segments in flight.
    pub in_flight: u32,
    /// The peer's receive window, bytes.
    pub window_bytes: u32,
}

/// What the driver sees at one moment.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// This end sends payload.
    pub sends: bool,
    /// Paths of the job.
    pub paths: usize,
    /// Time since the peer's last frame.
    pub peer_unheard: Duration,
    /// The session's connection; `None` where this end does not dial, or while the session is between two connections.
    pub session: Option<Stream>,
    /// TCP rails that carry: number, path and counters.
    pub rails: Vec<(u16, usize, Stream)>,
}

/// What is to be done about a black hole; nothing by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Remedy {
    /// Paths on which connections use small segments from now on.
    pub small_paths: Vec<usize>,
    /// A new connection for the session is to be made.
    pub reconnects: bool,
    /// Rails to cut: they are made again at once, with small segments.
    pub cut: Vec<u16>,
}

/// Counters of a stream when they last changed.
#[derive(Debug, Clone, Copy)]
struct Progress {
    bytes: u64,
    /// When `bytes` was first seen, while the peer was heard.
    since: Moment,
    /// Segments retransmitted by then.
    retransmitted: u32,
}

/// Detector of path MTU black holes of one job.
#[derive(Debug, Clone)]
pub struct BlackHole {
    looked: Moment,
    rails: BTreeMap<u16, Progress>,
    session: Option<Progress>,
    /// By path: streams lost in silence, one after another.
    lost_streams: BTreeMap<usize, u8>,
    /// Bytes received over the session when it last moved to another connection.
    moved_at_bytes: Option<u64>,
}

impl BlackHole {
    /// A job that begins at `now`.
    #[must_use]
    pub fn new(now: Moment) -> BlackHole {
        BlackHole {
            looked: now,
            rails: BTreeMap::new(),
            session: None,
            lost_streams: BTreeMap::new(),
            moved_at_bytes: None,
        }
    }

    /// True if it is time for `on_streams`.
    #[must_use]
    pub fn is_due(&self, now: Moment) -> bool {
        now.since(self.looked) >= LOOK
    }

    /// Counters of all streams: does one stand still although the peer is there?
    pub fn on_streams(&mut self, now: Moment, facts: &Facts) -> Remedy {
        self.looked = now;
        let mut remedy = Remedy::default();
        if facts.peer_unheard > PEER_THERE {
            // An outage: a stream that is silent now tells nothing about sizes.
            self.rails.clear();
            self.session = None;
            return remedy;
        }
        if facts.peer_unheard > REPORT_LATE {
            self.rails.values_mut().chain(&mut self.session).for_each(|it| it.since = now);
        }
        if let Some(stream) = &facts.session
            && stands(stream, look(self.session.get_or_insert(Progress::of(stream, now)), stream, now))
        {
            self.session = None;
            remedy.small_paths.extend(0..facts.paths);
            remedy.reconnects = true;
        }
        let mut standing = Vec::new();
        for (rail, path, stream) in &facts.rails {
            let silent = look(self.rails.entry(*rail).or_insert(Progress::of(stream, now)), stream, now);
            if stream.bytes >= MOVED_BYTES && silent.0 < LOOK * 2 {
                self.lost_streams.remove(path);
            }
            if facts.sends && stands(stream, silent) {
                standing.push((*rail, *path));
            }
        }
        // With several paths `paths` cuts a silent rail while another one brings something; here those that all stand.
        if facts.paths < 2 || standing.len() == facts.rails.len() {
            for (rail, path) in standing {
                self.on_silent(path, facts.paths, &mut remedy);
                remedy.cut.push(rail);
            }
        }
        remedy
    }

    /// The peer lets go of a TCP rail: was it silent here, too?
    pub fn on_let_go(&mut self, now: Moment, rail: u16, path: usize, paths: usize) -> Remedy {
        let mut remedy = Remedy::default();
        if self.rails.get(&rail).is_some_and(|it| now.since(it.since) >= SILENT_BEFORE_CUT) {
            self.on_silent(path, paths, &mut remedy);
        }
        remedy
    }

    /// A TCP rail of this path was cut because it was silent.
    pub fn on_cut(&mut self, path: usize, paths: usize) -> Remedy {
        let mut remedy = Remedy::default();
        self.on_silent(path, paths, &mut remedy);
        remedy
    }

    /// The session moved to another connection, `bytes` were received over it so far. If none of them came over the last connection, the path
    /// drops the session's frames for their size.
    pub fn on_session_moved(&mut self, bytes: u64, paths: usize) -> Remedy {
        self.rails.clear();
        self.session = None;
        let is_hole = self.moved_at_bytes.replace(bytes) == Some(bytes);
        Remedy { small_paths: if is_hole { (0..paths).collect() } else { Vec::new() }, ..Remedy::default() }
    }

    fn on_silent(&mut self, path: usize, paths: usize, remedy: &mut Remedy) {
        let is_only = paths < 2;
        let lost = self.lost_streams.entry(path).or_default();
        *lost = lost.saturating_add(1);
        if is_only || *lost >= STREAMS_LOST {
            remedy.small_paths.push(path);
            // Frames of the session may be longer than what passes.
            remedy.reconnects |= is_only;
        }
    }
}

impl Progress {
    fn of(stream: &Stream, now: Moment) -> Progress {
        Progress { bytes: stream.bytes, since: now, retransmitted: stream.retransmitted }
    }
}

/// How long a stream has moved nothing, and what it retransmitted meanwhile.
fn look(progress: &mut Progress, stream: &Stream, now: Moment) -> (Duration, u32) {
    if progress.bytes != stream.bytes {
        *progress = Progress::of(stream, now);
    }
    (now.since(progress.since), stream.retransmitted.wrapping_sub(progress.retransmitted))
}

/// Is something in flight of which nothing was acknowledged for too long? A window that is shut is the peer's disk, not the path; a short segment
/// passes wherever anything does. After an outage TCP waits as long again as it lasted before it retransmits: then nothing was retransmitted.
fn stands(stream: &Stream, (silent, retransmitted): (Duration, u32)) -> bool {
    let waits = stream.in_flight > 0
        && stream.window_bytes >= stream.segment_bytes
        && stream.segment_bytes > SMALL_SEGMENT_BYTES;
    waits && retransmitted >= RETRANSMITTED && silent >= SILENCE.max(stream.rtt * SILENCE_RTTS)
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_ns(ms * 1_000_000)
    }

    /// A stream in flight over a path of 20 ms.
    fn stream(bytes: u64, retransmitted: u32) -> Stream {
        let rtt = Duration::from_millis(20);
        Stream { bytes, retransmitted, rtt, segment_bytes: 1448, in_flight: 10, window_bytes: 1 << 20 }
    }

    /// Looks each 250 ms over twenty seconds; the first remedy with its time.
    fn play(facts: impl Fn(u64) -> Facts) -> Option<(u64, Remedy)> {
        let mut hole = BlackHole::new(at(0));
        for ms in (0..20_000).step_by(10) {
            if hole.is_due(at(ms)) {
                let remedy = hole.on_streams(at(ms), &facts(ms));
                if remedy != Remedy::default() {
                    return Some((ms, remedy));
                }
            }
        }
        None
    }

    /// Carries until 3 s, then nothing is acknowledged and something is retransmitted each second.
    fn stuck(ms: u64) -> Stream {
        stream(1000 * ms.min(3000), (ms.saturating_sub(3000) / 500) as u32)
    }

    fn facts(ms: u64) -> Facts {
        Facts { sends: true, paths: 1, rails: vec![(3, 0, stuck(ms))], ..Facts::default() }
    }

    #[test]
    fn a_stream_is_as_silent_as_the_time_since_its_last_byte_and_a_path_is_a_black_hole_when_all_of_it_is_silent() {
        let mut progress = Progress::of(&stream(10, 7), at(0));
        assert_eq!(look(&mut progress, &stream(10, 7), at(0)), (Duration::ZERO, 0));
        assert_eq!(look(&mut progress, &stream(10, 9), at(900)), (Duration::from_millis(900), 2));
        assert_eq!(look(&mut progress, &stream(11, 9), at(1000)), (Duration::ZERO, 0));
        let mut hole = BlackHole::new(at(0));
        assert_eq!(hole.on_cut(0, 1).small_paths, [0], "the only path");
        assert_eq!(hole.on_cut(1, 2), Remedy::default(), "one of several may be cut once for a reason of its own");
        assert_eq!(hole.on_cut(1, 2).small_paths, [1]);
        assert!(hole.on_session_moved(0, 1).small_paths.is_empty(), "a migration");
        assert!(hole.on_session_moved(3000, 1).small_paths.is_empty(), "another one");
        assert_eq!(
            hole.on_session_moved(3000, 2).small_paths,
            [0, 1],
            "the connection was made, and then no byte came"
        );
    }

    #[test]
    fn a_stream_that_stands_for_two_seconds_beside_a_peer_that_speaks_is_cut_and_made_with_small_segments() {
        let (ms, remedy) = play(facts).expect("it is found");
        assert!((5000..=5500).contains(&ms), "{ms}");
        assert_eq!(remedy, Remedy { small_paths: vec![0], reconnects: true, cut: vec![3] });
    }

    #[test]
    fn a_session_that_stands_moves_all_paths_to_small_segments() {
        let session = |ms| Facts { session: Some(stuck(ms)), rails: vec![], paths: 2, ..facts(ms) };
        let (ms, remedy) = play(session).expect("it is found");
        assert!((5000..=5500).contains(&ms), "{ms}");
        assert_eq!(remedy, Remedy { small_paths: vec![0, 1], reconnects: true, cut: vec![] });
    }

    #[test]
    fn outages_shut_windows_small_segments_receivers_and_long_round_trips_are_no_black_hole() {
        let with = |ms, stream| Facts { rails: vec![(3, 0, stream)], ..facts(ms) };
        let none = |facts: &dyn Fn(u64) -> Facts, why: &str| assert_eq!(play(facts), None, "{why}");
        none(&|ms| Facts { peer_unheard: Duration::from_millis(1201), ..facts(ms) }, "the peer is silent, too");
        none(&|ms| with(ms, Stream { window_bytes: 1000, ..stuck(ms) }), "the peer's disk is slow");
        none(&|ms| with(ms, Stream { segment_bytes: SMALL_SEGMENT_BYTES, ..stuck(ms) }), "segments are small already");
        none(&|ms| with(ms, Stream { in_flight: 0, ..stuck(ms) }), "nothing is in flight");
        none(&|ms| with(ms, Stream { retransmitted: 1, ..stuck(ms) }), "nothing was retransmitted");
        none(&|ms| with(ms, stream(ms, ms as u32)), "a slow path that loses much");
        none(&|ms| Facts { sends: false, ..facts(ms) }, "the sender decides");
        let beside = |ms| vec![(3, 0, stuck(ms)), (4, 1, stream(1000 * ms, 0))];
        none(
            &|ms| Facts { paths: 2, rails: beside(ms), ..facts(ms) },
            "of several paths, the silent one is cut by `paths`",
        );
        let far = |ms| with(ms, Stream { rtt: Duration::from_millis(600), ..stuck(ms) });
        assert!(play(far).expect("found later").0 >= 7800, "eight round trips");
    }

    /// Nothing is acknowledged from 3 s on, over two short outages with a moment between them in which the peer was heard.
    #[test]
    fn two_short_outages_are_no_black_hole_and_a_peer_whose_report_was_late_once_is_no_excuse() {
        let unheard = |ms| Duration::from_millis(if (3000..4000).contains(&ms) { ms - 3000 } else { 0 });
        let with_late = |ms| Facts { peer_unheard: unheard(ms), ..facts(ms) };
        let short =
            |ms| if ms < 5600 { with_late(ms) } else { Facts { rails: vec![(3, 0, stream(1 << 20, 9))], ..facts(ms) } };
        assert_eq!(play(short), None, "acknowledged again after 2.6 s, 1.6 of them with the peer there");
        let (ms, _) = play(with_late).expect("it goes on being silent");
        assert!((5750..=6250).contains(&ms), "two seconds after the peer was heard in time: {ms}");
    }

    #[test]
    fn rails_of_several_paths_that_all_stand_beside_a_peer_that_speaks_are_cut_and_small_the_second_time() {
        let all = |ms| Facts { paths: 2, rails: vec![(3, 0, stuck(ms)), (4, 1, stuck(ms))], ..facts(ms) };
        let (ms, remedy) = play(all).expect("nobody else would cut them");
        assert!((5000..=5500).contains(&ms), "{ms}");
        assert_eq!(remedy, Remedy { cut: vec![3, 4], ..Remedy::default() });
        let mut hole = BlackHole::new(at(0));
        hole.on_cut(0, 2);
        hole.on_cut(1, 2);
        let next = |retransmitted| vec![(5, 0, stream(1000, retransmitted)), (6, 1, stream(1000, retransmitted))];
        hole.on_streams(at(3000), &Facts { rails: next(0), ..all(3000) });
        assert_eq!(hole.on_streams(at(6000), &Facts { rails: next(4), ..all(6000) }).small_paths, [0, 1]);
    }

    #[test]
    fn a_rail_that_the_peer_cut_counts_if_it_was_silent_here_and_traffic_takes_the_count_back() {
        let mut hole = BlackHole::new(at(0));
        let look = |hole: &mut BlackHole, ms, bytes| {
            let facts = Facts { paths: 2, rails: vec![(3, 1, stream(bytes, 0))], ..Facts::default() };
            hole.on_streams(at(ms), &facts);
        };
        look(&mut hole, 0, 7);
        assert_eq!(hole.on_let_go(at(399), 3, 1, 2), Remedy::default(), "not silent for long enough");
        assert_eq!(hole.on_let_go(at(400), 3, 1, 2), Remedy::default(), "the first");
        look(&mut hole, 500, MOVED_BYTES);
        assert_eq!(hole.on_cut(1, 2), Remedy::default(), "the count began again");
        assert_eq!(hole.on_cut(1, 2).small_paths, [1]);
        assert_eq!(hole.on_let_go(at(9000), 4, 1, 2), Remedy::default(), "a rail that nobody looked at");
    }
}
