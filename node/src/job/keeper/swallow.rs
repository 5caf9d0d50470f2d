//! A path that begins to swallow long packets under a running job, and does not say so.
//!
//! For: streams that stand still for good although the peer is there: a route changed to one with a smaller MTU and no ICMP.
//! In and out: what streams and the control session bring in; streams cut, and all that is dialled from then on made with small segments, out.
//! Invariants: a stream that is slow or whose peer's disk is, is left alone: nothing at all must have been acknowledged while small frames of
//! the session arrive; what is cut costs a repeat of what was on its way; the initiator alone dials, so it alone decides.
//! Absent on purpose: datagram rails (their search finds and leaves such holes, `proto::flow`), the same at the start of a session (link/shake.rs),
//! longer segments again later: a stream lasts as long as a job.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sys::sock::TcpInfo;

use super::{Closing, Keeper, Way};
use crate::job::rails::{Ask, CONTROL};
use crate::link::SMALL_SEGMENT;

/// Looked at so often.
const LOOK: Duration = Duration::from_millis(250);
/// Nothing acknowledged for so long and so many round trips: five of Linux's least retransmission timeouts, each twice the one before, are 6 s,
/// three are 1.4 s. A path that loses three times in a row whatever its size is down for all.
const SILENCE: Duration = Duration::from_secs(2);
const SILENCE_RTTS: u32 = 8;
/// So many packets were sent again meanwhile.
const AGAIN: u32 = 2;
/// The peer speaks twice a second: heard within this, it is there.
const THERE: Duration = Duration::from_millis(1200);
/// A rail that is cut at the other end was silent here for so long, if it was for this reason: paths that are several are cut sooner.
const SILENT: Duration = Duration::from_millis(400);
/// Of several paths, one on which that happened so many times in a row: each may go silent once for a reason of its own.
const TURNS: u8 = 2;
/// Streams that brought so much are not silent from their beginning.
const BROUGHT_BYTES: u64 = 1 << 20;

/// What is known of streams in this light.
#[derive(Debug)]
pub(super) struct Swallow {
    looked: Instant,
    /// By rail: bytes brought, since when while the peer was heard, and packets sent again by then.
    rails: BTreeMap<u16, (u64, Instant, u32)>,
    /// By path: streams lost in silence, one after another.
    turns: BTreeMap<usize, u8>,
    /// Bytes of the session when it last went on over another connection.
    changed: Option<u64>,
}

impl Swallow {
    pub(super) fn new() -> Swallow {
        Swallow { looked: Instant::now(), rails: BTreeMap::new(), turns: BTreeMap::new(), changed: None }
    }

    /// What a stream has brought at `now`, and what it sent again so far; how long it has been that much, and what went again since.
    fn look(&mut self, rail: u16, bytes: u64, again: u32, now: Instant) -> (Duration, u32) {
        let seen = self.rails.entry(rail).or_insert((bytes, now, again));
        if seen.0 != bytes {
            *seen = (bytes, now, again);
        }
        (now.saturating_duration_since(seen.1), again.wrapping_sub(seen.2))
    }

    /// A stream of this path was lost in silence. Is its path one that swallows?
    fn on_silent(&mut self, path: usize, alone: bool) -> bool {
        let turns = self.turns.entry(path).or_default();
        *turns = turns.saturating_add(1);
        alone || *turns >= TURNS
    }

    /// The session goes on over another connection, of which so many bytes came so far: none since the last time?
    fn on_changed(&mut self, bytes: u64) -> bool {
        self.changed.replace(bytes) == Some(bytes)
    }
}

/// Is something on its way of which nothing has been acknowledged for too long? A window that is shut is the peer's disk, not the path; a
/// short segment passes wherever anything does.
fn stands(info: &TcpInfo, (silent, again): (Duration, u32)) -> bool {
    let waits = info.unacked > 0 && info.send_window_bytes >= info.mss && info.mss > SMALL_SEGMENT;
    // After an outage TCP waits as long again as it lasted before it tries: then nothing was swallowed.
    waits && again >= AGAIN && silent >= SILENCE.max(Duration::from_micros(info.rtt_us.into()) * SILENCE_RTTS)
}

impl Keeper<'_, '_> {
    /// Once per turn: does a stream stand still although the peer is there?
    pub(super) fn watch_swallow(&mut self) {
        let now = Instant::now();
        if self.closing != Closing::Open || now - self.swallow.looked < LOOK {
            return;
        }
        self.swallow.looked = now;
        let sends = matches!(self.job.way, Way::Send(_));
        if self.peer_told.elapsed() > THERE {
            // An outage: what is silent now says nothing of sizes.
            self.swallow.rails.clear();
            return;
        }
        if self.session_stands(now) {
            (0..self.paths.len()).for_each(|path| self.go_small(path));
            self.job.rails.ask(0, Ask::Control);
        }
        let mut stuck = Vec::new();
        for (&rail, it) in self.carriers.iter().filter(|(_, it)| it.meter.is_none() && it.rests_until.is_none()) {
            let Some(info) = it.socket.upgrade().and_then(|socket| sys::sock::tcp_info(&*socket).ok()) else {
                continue;
            };
            let bytes = if sends { info.bytes_acked } else { info.bytes_received };
            let silent = self.swallow.look(rail, bytes, info.retrans, now);
            if bytes >= BROUGHT_BYTES && silent.0 < LOOK * 2 {
                self.swallow.turns.remove(&it.path);
            }
            if sends && stands(&info, silent) {
                stuck.push((rail, it.path));
            }
        }
        // Of several paths each is cut when it is silent (paths.rs).
        if stuck.is_empty() || self.paths.len() > 1 {
            return;
        }
        for &(rail, path) in &stuck {
            self.lost_in_silence(path);
            self.cut_rail(rail, now);
        }
    }

    /// Does a frame of the session go again and again in vain? Once for each connection.
    fn session_stands(&mut self, now: Instant) -> bool {
        if !self.job.rails.dials() || self.is_between() {
            return false;
        }
        let Ok(info) = sys::sock::tcp_info(self.job.link.as_fd()) else { return false };
        let silent = self.swallow.look(CONTROL, info.bytes_acked, info.retrans, now);
        let stands = stands(&info, silent);
        if stands {
            self.swallow.rails.remove(&CONTROL);
        }
        stands
    }

    /// The peer lets go of a rail: in silence?
    pub(super) fn was_let_go(&mut self, rail: u16) {
        let silent = self.swallow.rails.get(&rail).is_some_and(|(_, since, _)| since.elapsed() >= SILENT);
        if let Some(it) = self.carriers.get(&rail).filter(|it| it.meter.is_none() && silent) {
            self.lost_in_silence(it.path);
        }
    }

    /// A stream of this path stands still, or stood when it was cut.
    pub(super) fn lost_in_silence(&mut self, path: usize) {
        let alone = self.paths.len() < 2;
        if self.swallow.on_silent(path, alone) {
            self.go_small(path);
            if alone {
                // Frames of the session may be longer than what passes.
                self.job.rails.ask(path, Ask::Control);
            }
        }
    }

    /// The session goes on over another connection: if none of its bytes came over the last one, it is the path that swallows its frames.
    pub(super) fn session_changed(&mut self) {
        self.swallow.rails.clear();
        if self.swallow.on_changed(self.job.link.bytes_received()) && self.job.rails.dials() {
            (0..self.paths.len()).for_each(|path| self.go_small(path));
        }
    }

    fn go_small(&mut self, path: usize) {
        if self.job.rails.go_small(path) {
            let text = format!(
                "packets of the usual size do not get through to {} any more and nobody says so (a hole in path MTU discovery): segments of {} bytes are \
                 used from now on; `longhaul host apply --rule mtu-probing` at both ends, or the right MTU, mends it",
                self.peer_name(),
                SMALL_SEGMENT
            );
            self.said.push(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_as_silent_as_the_time_since_its_last_byte_and_a_path_swallows_when_all_of_it_is_silent() {
        let (mut swallow, begin) = (Swallow::new(), Instant::now());
        let at = |ms| begin + Duration::from_millis(ms);
        assert_eq!(swallow.look(3, 10, 7, at(0)), (Duration::ZERO, 0));
        assert_eq!(swallow.look(3, 10, 9, at(900)), (Duration::from_millis(900), 2));
        assert_eq!(swallow.look(3, 11, 9, at(1000)), (Duration::ZERO, 0));
        assert!(swallow.on_silent(0, true), "the only path");
        assert!(!swallow.on_silent(1, false), "one of several may be cut once for a reason of its own");
        assert!(swallow.on_silent(1, false));
        assert!(!swallow.on_changed(0), "a move");
        assert!(!swallow.on_changed(3000), "another one");
        assert!(swallow.on_changed(3000), "the connection was made, and then not a byte came");
    }
}
