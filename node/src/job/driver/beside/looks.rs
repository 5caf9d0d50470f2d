//! How each rail goes, every so often: for the trace of a job, and for `--json`.
//!
//! For: whoever asks afterwards, or meanwhile, what congestion control did.
//! In and out: meters of datagram rails, `TCP_INFO` of streams, the time → the last look at each rail; into the trace, if one is kept.
//! Invariants: without a trace a look costs a few loads, or a system call for each stream, once a second; with one, at each round trip of the nearest
//! rail, within 10 to 100 ms, and no more often than the trace keeps looks.
//! Absent on purpose: judging; what is kept (`report::trace`).

use std::collections::BTreeMap;
use std::time::Duration;

use proto::session::Moment;

use crate::job::driver::rails::Carries;
use crate::report::trace::Trace;
use crate::report::trace::sample::{RailFacts, RailId, Sample};

/// Looks at a rail of which a trace is kept: not more often, not more seldom.
const EVERY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(100));
/// And without a trace: as often as `--json` has a line.
const SELDOM: Duration = Duration::from_secs(1);

/// One rail, as it went at the last look.
#[derive(Debug, Clone, PartialEq)]
pub struct RailLook {
    /// Which rail of which session.
    pub id: RailId,
    /// Its transport, its controller, its path.
    pub facts: RailFacts,
    /// The figures of that moment.
    pub sample: Sample,
}

/// See the module.
#[derive(Debug)]
pub(in crate::job::driver) struct RailLooks<'a> {
    /// Where they are kept, if anywhere.
    trace: Option<&'a Trace>,
    /// The zero of the samples' time, ns.
    from_ns: u64,
    session: u32,
    next: Moment,
    /// The last look at each rail.
    pub(in crate::job::driver) last: Vec<RailLook>,
}

impl<'a> RailLooks<'a> {
    /// Of a session that begins now.
    pub(in crate::job::driver) fn new(now: Moment, trace: Option<&'a Trace>) -> Self {
        let trace = trace.filter(|it| it.is_on());
        let from_ns = trace.and_then(Trace::clock).map_or(now.as_ns(), |(began_ns, _)| began_ns);
        RailLooks { trace, from_ns, session: trace.map_or(0, Trace::next_session), next: now, last: Vec::new() }
    }

    /// Once per iteration, and once more at the end (`is_last`): these rails are up. `controller`: that of a sender's datagram rails.
    pub(in crate::job::driver) fn on_look(
        &mut self,
        (now, is_last): (Moment, bool),
        rails: &BTreeMap<u16, Carries>,
        controller: Option<&'static str>,
        path: &dyn Fn(usize) -> String,
    ) {
        if now < self.next && !is_last {
            return;
        }
        let at_ns = now.as_ns().saturating_sub(self.from_ns);
        self.last.clear();
        for (&rail, it) in rails {
            let Some(sample) = sample(it, at_ns, controller.is_some()) else { continue };
            let (transport, controller) =
                if it.meter.is_some() { ("udp", controller.unwrap_or_default()) } else { ("tcp", "") };
            let transport = if it.pair.is_some() { "rdma" } else { transport };
            let facts = RailFacts { transport, controller, path: path(it.path) };
            self.last.push(RailLook { id: RailId { session: self.session, rail }, facts, sample });
        }
        self.next = now
            + match self.trace {
                None => SELDOM,
                Some(trace) => {
                    self.last.iter().for_each(|it| trace.add(it.id, || it.facts.clone(), it.sample));
                    let nearest_ns = self.last.iter().filter_map(|it| it.sample.rtt_ns).min();
                    pause(nearest_ns, trace.clock().map_or(0, |(_, spacing_ns)| spacing_ns))
                }
            };
    }

    /// How long until the next look, where that is soon.
    pub(in crate::job::driver) fn wait(&self, now: Moment) -> Option<Duration> {
        self.trace.map(|_| self.next.since(now))
    }
}

/// The time between two looks. `kept_ns`: between two that are kept.
fn pause(nearest_ns: Option<u64>, kept_ns: u64) -> Duration {
    let round_trip = nearest_ns.map_or(EVERY.0, Duration::from_nanos);
    round_trip.clamp(EVERY.0, EVERY.1).max(Duration::from_nanos(kept_ns))
}

fn sample(rail: &Carries, at_ns: u64, sends: bool) -> Option<Sample> {
    if let Some(meter) = &rail.meter {
        let stats = meter.read();
        // Before its worker has written it there is nothing to see.
        let is_written = !sends || stats.phase_begin > 0;
        return is_written.then(|| Sample::of_packets(at_ns, &stats, sends));
    }
    let info = sys::sock::tcp_info(&*rail.socket.upgrade()?).ok()?;
    Some(Sample::of_stream(at_ns, &info, sends))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_come_at_each_round_trip_within_bounds_and_no_more_often_than_they_are_kept() {
        let ms = |ms: u64| ms * 1_000_000;
        assert_eq!(pause(None, 0), Duration::from_millis(10));
        assert_eq!(pause(Some(ms(1)), 0), Duration::from_millis(10));
        assert_eq!(pause(Some(ms(50)), 0), Duration::from_millis(50));
        assert_eq!(pause(Some(ms(600)), 0), Duration::from_millis(100));
        assert_eq!(pause(Some(ms(50)), ms(320)), Duration::from_millis(320));
    }
}
