//! When the greetings of a datagram rail go, and when none of them was answered.
//!
//! For: a job on a long and lossy path that is not sent to TCP because a few packets were lost, or because the acceptor was still waiting for the
//! session's own lost packet.
//! In and out: the round trip, and that the acceptor knows of the job, in; when to greet, and that UDP does not get through, out.
//! Invariants: greetings go a round trip and a quarter apart, never sooner, but for the second of a job that is not known yet; what is waited for counts
//! from when the acceptor is known to know the job, for before that it is silent to every greeting (docs/protocol.md section 7).
//! Absent on purpose: sockets and words (the node), another try later (`paths`).

use core::time::Duration;

use crate::session::Moment;

/// A quarter of the round trip beside it, for jitter and the acceptor's thread; at least this, for paths of a millisecond: as long as a
/// delayed scheduler of a busy machine was seen to take (10 ms), twice.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// While the acceptor is not known to know of the job, the second greeting goes so soon: the first goes with `Open`, may overtake it and come to an
/// acceptor that keeps none, or be lost with it; of an acceptor's thread on a busy machine 10 ms were seen to pass until it knew.
const SECOND: Duration = Duration::from_millis(10);
/// Where the round trip is not known.
const PAUSE_UNKNOWN: Duration = Duration::from_millis(250);
/// So many greetings go at that pause; then it doubles, up to `PAUSE_MAX` and two round trips. Of greetings in two lengths at 10 % loss each way
/// one in 28 is not answered: five in a row one in 17 million.
const STEADY: u32 = 4;
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// After the acceptor knows of the job, UDP is given up when nothing came for so long, and so many round trips: five greetings that could be
/// answered.
const PATIENCE: Duration = Duration::from_secs(4);
const PATIENCE_RTTS: u32 = 8;

/// The greetings of one rail.
#[derive(Debug, Clone, Copy)]
pub struct Greetings {
    rtt: Duration,
    /// The next one goes now or at this moment.
    next: Moment,
    sent: u32,
    /// Since when the acceptor can answer.
    known: Option<Moment>,
}

impl Greetings {
    /// Over a path of this round trip (zero: unknown). `is_known`: the acceptor knows of the job.
    #[must_use]
    pub fn new(now: Moment, rtt: Duration, is_known: bool) -> Greetings {
        Greetings { rtt, next: now, sent: 0, known: is_known.then_some(now) }
    }

    /// The acceptor knows of the job since now. What was greeted before may have come too early: the next greeting goes at once.
    pub fn on_known(&mut self, now: Moment) {
        if self.known.is_none() {
            self.known = Some(now);
            self.sent = self.sent.min(1);
            self.next = now;
        }
    }

    /// Can the acceptor answer?
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// True: a greeting goes now.
    pub fn is_due(&mut self, now: Moment) -> bool {
        if now < self.next || self.is_over(now) {
            return false;
        }
        self.next = now + if self.sent == 0 && self.known.is_none() { SECOND } else { self.pause() };
        self.sent += 1;
        true
    }

    /// May what goes now be of use only to an acceptor that knows of the job? The first greeting, which may overtake it, is alone.
    #[must_use]
    pub const fn is_alone(&self) -> bool {
        self.sent <= 1 && self.known.is_none()
    }

    /// When to look again.
    #[must_use]
    pub fn next(&self) -> Moment {
        self.known.map_or(self.next, |known| self.next.min(known + self.patience()))
    }

    /// Nothing came, and nothing is waited for any more.
    #[must_use]
    pub fn is_over(&self, now: Moment) -> bool {
        self.known.is_some_and(|known| now.since(known) >= self.patience())
    }

    /// How long is waited after the acceptor knows of the job.
    #[must_use]
    pub fn patience(&self) -> Duration {
        PATIENCE.max(self.rtt * PATIENCE_RTTS)
    }

    fn pause(&self) -> Duration {
        let first = if self.rtt.is_zero() { PAUSE_UNKNOWN } else { PAUSE_MIN.max(self.rtt * 5 / 4) };
        let doubled = first * 2u32.saturating_pow((self.sent + 1).saturating_sub(STEADY).min(8));
        doubled.min(PAUSE_MAX.max(self.rtt * 2)).max(first)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_ns(ms * 1_000_000)
    }

    /// xorshift64*: the same losses in every run.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, percent: u64) -> bool {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33 < (percent << 31) / 100
        }
    }

    /// A handshake over a path that loses each packet of either way by itself: when the answer came, or when it was given up. The acceptor hears
    /// of the job at `opens`, and the initiator of that (or of an answer) half a round trip later, as the session brings it.
    fn handshake(dice: &mut Dice, rtt_ms: u64, percent: u64, opens: u64, lengths: usize) -> Result<u64, u64> {
        let mut greetings = Greetings::new(at(0), Duration::from_millis(rtt_ms), false);
        let mut answer = u64::MAX;
        for ms in 0..120_000 {
            if ms >= answer {
                return Ok(ms);
            }
            if ms == opens + rtt_ms / 2 {
                greetings.on_known(at(ms));
            }
            if greetings.is_over(at(ms)) {
                return Err(ms);
            }
            if greetings.is_due(at(ms)) {
                for _ in 0..lengths {
                    let (there, back) = (dice.roll(percent), dice.roll(percent));
                    if !there && !back && ms + rtt_ms / 2 >= opens {
                        answer = answer.min(ms + rtt_ms);
                    }
                }
            }
        }
        unreachable!("it ends");
    }

    #[test]
    fn of_a_hundred_handshakes_over_a_second_and_a_tenth_lost_none_gives_udp_up() {
        for (rtt_ms, percent) in [(1000, 10), (600, 10), (100, 10), (10, 10), (1000, 20)] {
            let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
            // The session lost its word for the job so many times: its kernel sends it again after three round trips, then six.
            let came: Vec<u64> = (0..100)
                .map(|_| {
                    let lost = (0..3).take_while(|_| dice.roll(percent)).count() as u64;
                    let opens = rtt_ms / 2 + (0..lost).map(|n| (200 + rtt_ms * 3) << n).sum::<u64>();
                    let came = handshake(&mut dice, rtt_ms, percent, opens, 2);
                    came.unwrap_or_else(|ms| panic!("given up after {ms} ms at {rtt_ms} ms and {percent} %")) - opens
                })
                .collect();
            let mut sorted = came.clone();
            sorted.sort_unstable();
            let late = rtt_ms * 9 / 4 + 40 + rtt_ms;
            assert!(sorted[94] <= late, "95 of 100 within two tries of Open's arrival: {} of {late} ms", sorted[94]);
        }
    }

    #[test]
    fn an_acceptor_that_has_not_heard_of_the_job_is_waited_for_and_a_path_without_udp_is_not() {
        let mut dice = Dice(7);
        assert_eq!(handshake(&mut dice, 100, 100, 50, 2), Err(4100), "four seconds after it was known");
        assert_eq!(handshake(&mut dice, 1000, 100, 500, 2), Err(9000), "eight round trips");
        let late = handshake(&mut dice, 100, 0, 30_000, 2).expect("it is answered however late the job is heard of");
        assert!(late <= 30_000 + 50 + 100 + 1, "{late}");
    }

    #[test]
    fn a_greeting_that_may_overtake_its_job_goes_alone_and_once_more_at_once() {
        for rtt_ms in [0, 10, 1000] {
            let mut greetings = Greetings::new(at(0), Duration::from_millis(rtt_ms), false);
            let mut sent = Vec::new();
            for ms in 0..2000u64 {
                if greetings.is_due(at(ms)) {
                    sent.push((ms, greetings.is_alone()));
                }
            }
            assert_eq!(sent[..2], [(0, true), (10, false)], "{rtt_ms}");
            assert!(sent[2].0 >= 10 + rtt_ms);
        }
        let mut known = Greetings::new(at(0), Duration::from_millis(10), true);
        assert!(known.is_due(at(0)) && !known.is_alone());
    }

    #[test]
    fn greetings_are_a_round_trip_and_a_quarter_apart_and_then_fewer() {
        let sent = |rtt_ms| {
            let mut greetings = Greetings::new(at(0), Duration::from_millis(rtt_ms), true);
            (0..8000u64).filter(|ms| greetings.is_due(at(*ms))).collect::<Vec<_>>()
        };
        assert_eq!(sent(1000), [0, 1250, 2500, 3750, 5000, 7000]);
        assert_eq!(sent(0), [0, 250, 500, 750, 1000, 1500, 2500, 3500]);
        assert_eq!(sent(10), [0, 20, 40, 60, 80, 120, 200, 360, 680, 1320, 2320, 3320]);
    }
}
