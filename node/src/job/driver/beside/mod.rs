//! Beside the workers: for how long the peer was not heard, and what the kernel's streams say of the way.
//!
//! For: the limiter, which cannot find in the workers' books what no worker waited for.
//! In and out: the peer's silence and `TCP_INFO` of each stream, every so often → times and losses of the whole job.
//! Invariants: a silence counts once it is over, and only if it was long; of a stream that is gone the last look stays.
//! Absent on purpose: the judgement (`proto::books`), what is done about silence (`reconnect.rs`, `watchdog.rs`).

pub mod looks; // how each rail goes, every so often
pub mod nics; // what the interfaces counted

use std::collections::BTreeMap;
use std::time::Duration;

use proto::session::Moment;

use self::looks::RailLooks;
use crate::job::driver::rails::Carries;
use crate::report::trace::Trace;

/// A peer that reports twice a second and was not heard for so long stood still, or the network did.
const SILENT_MIN: Duration = Duration::from_secs(2);
/// Between two looks at the streams: a system call for each.
const LOOK: Duration = Duration::from_millis(100);
/// Of that many streams at most; more of them are no one's limit alone.
const STREAMS_MAX: usize = 16;

/// What the kernel counted of one stream.
#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    sent: u64,
    resent: u64,
    in_flight: Duration,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Beside<'a> {
    /// How each rail goes.
    pub(super) looks: RailLooks<'a>,
    silence: Duration,
    silent: Duration,
    looked: Option<Moment>,
    streams: BTreeMap<u16, Stream>,
}

/// What stands beside the books of a job that is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BesideBooks {
    /// The peer was not heard, for seconds each time.
    pub silent: Duration,
    /// Of the busiest stream of a sender: data was on its way, and the receiver's window was open.
    pub in_flight: Duration,
    /// Bytes that streams of a sender sent, and of these again.
    pub sent: (u64, u64),
}

impl<'a> Beside<'a> {
    /// Of a job that begins now.
    pub(super) fn new(now: Moment, trace: Option<&'a Trace>) -> Self {
        let looks = RailLooks::new(now, trace);
        Beside { looks, silence: Duration::ZERO, silent: Duration::ZERO, looked: None, streams: BTreeMap::new() }
    }

    /// The peer is not heard for so long now.
    fn on_silence(&mut self, now: Duration) {
        if now < self.silence && self.silence >= SILENT_MIN {
            self.silent += self.silence;
        }
        self.silence = now;
    }

    /// Once per iteration: the peer is not heard for so long, and these are a sender's rails.
    pub(super) fn on_look(&mut self, now: Moment, silence: Duration, rails: Option<&BTreeMap<u16, Carries>>) {
        self.on_silence(silence);
        let Some(rails) = rails.filter(|_| self.looked.is_none_or(|looked| now.since(looked) >= LOOK)) else { return };
        self.looked = Some(now);
        for (&rail, it) in rails.iter().filter(|(_, it)| it.meter.is_none()).take(STREAMS_MAX) {
            let info = it.socket.upgrade().and_then(|socket| sys::sock::tcp_info(&*socket).ok());
            let Some(info) = info else { continue };
            let in_flight = Duration::from_micros(info.busy_time_us.saturating_sub(info.rwnd_limited_us));
            let stream = Stream { sent: info.bytes_sent, resent: info.bytes_retrans, in_flight };
            self.streams.insert(rail, stream);
        }
    }

    /// The whole job's.
    pub(super) fn told(&self) -> BesideBooks {
        let mut told = BesideBooks { silent: self.silent, ..BesideBooks::default() };
        for stream in self.streams.values() {
            told.in_flight = told.in_flight.max(stream.in_flight);
            told.sent = (told.sent.0 + stream.sent, told.sent.1 + stream.resent);
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_counts_once_it_is_over_and_only_if_it_was_long() {
        let mut beside = Beside::new(Moment::from_ns(0), None);
        for ms in [0, 400, 900, 0, 500, 1_900, 100] {
            beside.on_silence(Duration::from_millis(ms));
        }
        assert_eq!(beside.told().silent, Duration::ZERO, "reports come twice a second, or a bit later");
        for ms in [1_000, 2_500, 3_400, 0, 2_100, 50] {
            beside.on_silence(Duration::from_millis(ms));
        }
        assert_eq!(beside.told().silent, Duration::from_millis(5_500));
    }
}
