//! Ceiling: a rate above which the path loses what is sent, although no queue is seen. A policer has one, and so has a queue of a few packets.
//!
//! For: the `delay` controller, to which loss beside an empty queue is the path's own unless its own rate causes it.
//! In and out: what passed and what arrived, per report, in; a bound of the rate out, or none.
//! Invariants: the question is put to the path: more is lost than is known to be the path's own, so as much is sent as arrived. If loss falls, its
//! cause was the rate, and what arrived is the ceiling; if it does not, it is the path's own, and the rate is what it was. A ceiling is tried
//! again and again by pulses a little above it: it may have been raised, and the answer may have been chance.
//! Absent on purpose: loss beside a queue (`loss`), and how the rate comes to the ceiling (`delay`).
//!
//! The test is Wald's sequential one (1945): each packet that arrives or is lost weighs for "as before" or for "fallen", until one of them is a
//! hundred times as likely. Losses that come in clumps weigh less, by as much as they are clumped. Figures without another source were chosen on the
//! grid of `flow_policer.rs`, beside the tests of `flow_grid.rs` and `rate_path.rs` (docs/design/003).

use super::clumps::Clumps;
use super::look::{Look, Report};
use crate::rate::maths;

/// Packets that a look at the loss needs at least: below, a single one is more than 3 %.
const LOOK_PACKETS: f64 = 32.0;
/// Lost packets that end a look early, where they are also a quarter of all: a flood is not watched for a whole round.
const FLOOD_PACKETS: f64 = 12.0;
const FLOOD_SHARE: f64 = 0.25;
/// Loss above the path's own that is worth a test.
const EXCESS_LEAST: f64 = 0.015;
/// ... and more than chance makes it, standard deviations.
const DEVIATIONS: f64 = 3.0;
/// Less excess than this is looked at twice: one look of many is above three deviations by chance.
const LITTLE: f64 = 0.1;
/// Of what arrived this much is sent while the answer is awaited, and under a ceiling: a bucket that is empty needs room to see that it is enough.
const MARGIN: f64 = 0.98;
/// The rate is lowered to this part at most at a time (divisor): a look may have been at the few moments in which nothing arrived.
const FALL_MOST: f64 = 16.0;
/// Fewer packets that arrived than this are counted as one more.
const FEW_PACKETS: f64 = 16.0;
/// The path's own loss is a mean over this many packets.
const OWN_PACKETS: f64 = 4_000.0;
/// The path's own loss is asked for again after so many lost packets, and not before so many rounds, at first and at most.
const DOUBT_LOST: f64 = 200.0;
const DOUBT_ROUNDS: (f64, f64) = (32.0, 256.0);
/// ... and below a ceiling at most.
const DOUBT_CEILING_ROUNDS: f64 = 64.0;
/// No path loses more than this by itself (`loss::OWN_MOST`).
const OWN_MOST: f64 = 0.45;
/// ... and is known from so many on.
const KNOWN_PACKETS: f64 = 64.0;
const CLUMPED_LITTLE: f64 = 1.5;
/// More clumped than several flows behind one policer make it.
const CLUMPED_MUCH: f64 = 8.0;
/// An answer stands when it is a hundred times as likely as the other: ln(100).
const SURE: f64 = 4.6;
/// A test sends this part of the loss less, where the path may lose as much by itself: within these bounds a hundred or two packets answer.
const ASK_PART: f64 = 0.5;
const ASK_CUT: (f64, f64) = (0.12, 0.25);
/// Share of the excess that remains where the rate was the cause: the ceiling was not measured to the percent.
const REMAINS: f64 = 0.3;
/// Least share of loss that an answer reckons with, so that one packet lost by chance does not outweigh hundreds that arrived.
const SHARE_LEAST: f64 = 0.004;
/// Packets of an answer "fallen" whose own loss is looked at, and the share above which that is too much to be left.
const FALLEN_PACKETS: f64 = 16.0;
const STILL_MUCH: f64 = 0.1;
/// Rounds and packets after which a test without an answer ends.
const ROUNDS_MAX: f64 = 40.0;
const TEST_PACKETS: f64 = 400.0;
/// ... and so does one for which so many packets fewer were sent.
const GIVEN_UP_PACKETS: f64 = 64.0;
/// A pulse is this much above the ceiling at first; each that found room doubles it, up to twice the rate.
const PULSE_FIRST: f64 = 0.2;
/// ... and the first one above a ceiling that a start found: what a bucket passed says little of the rate behind it.
const START_PULSE: f64 = 1.0;
/// A start whose loss turned out to be the path's own goes on from this multiple of what was tried.
const START_GROWTH: f64 = 4.0;
/// Least of what arrived in a round that a test goes down to: a look may have been at the few moments in which nothing did.
const ARRIVING_PART: f64 = 0.5;
/// Least pulse above a ceiling.
const PULSE_LEAST: f64 = 0.05;
/// Packets of a pulse at least: 20 % above a ceiling, ten of them are lost. Of a smaller one more are needed, by the square.
const PULSE_PACKETS: f64 = 64.0;
/// Of the share that a flight's first part lost, so much of its rest is lost where that may be the path's own.
const REST_OWN: f64 = 0.3;
/// So many packets of a pulse in vain measure the ceiling.
const PULSE_MEASURE_PACKETS: f64 = 24.0;
/// ... of which this much is sent: the bucket was full before it, or nothing would have arrived of it.
const PULSE_MARGIN: f64 = 0.99;
/// Rounds between two pulses, at first and at most: each pulse in vain doubles them.
const HOLD_ROUNDS: (f64, f64) = (4.0, 64.0);
/// Ceilings that differ by less than this are the same.
const SAME: f64 = 0.08;
/// Rounds at a ceiling that a pulse has raised before the next pulse.
const SETTLE_ROUNDS: f64 = 1.0;
/// ... and at one that was lowered again.
const AGAIN_ROUNDS: f64 = 5.0;
/// ... unless pulses wait this many by now.
const AGAIN_MOST: f64 = 16.0;
/// A ceiling of fewer packets than this in a round trip, or in this time, ns, where that is longer, is a trickle: most of its loss is others' doing. Pulses of
/// `PULSE_PACKETS` after `HOLD_ROUNDS` would leave it there for minutes.
const TRICKLE_PACKETS: f64 = 4.0;
const TRICKLE_NS: f64 = 100_000_000.0;
/// Its pulses have so many packets, at its rate and so many times that rate besides, after so many rounds.
const TRICKLE_PULSE_PACKETS: f64 = 4.0;
const TRICKLE_MORE: f64 = 3.0;
const TRICKLE_ROUNDS: f64 = 16.0;
/// A ceiling for which no more packets than these are known to be lost, a round after its first echo, was reordering.
const REORDERED_PACKETS: f64 = 1.5;
/// On a path that reorders so much of what seems lost has to be known to be.
const REORDERED_SHARE: f64 = 0.25;
/// The least ceiling, and what is sent before anything is known, packets a second.
pub(super) const LEAST_PACKETS: f64 = 10.0;

/// How much less is sent to ask whether this share of loss is the rate's doing.
fn ask_cut(share: f64) -> f64 {
    (ASK_PART * share).clamp(ASK_CUT.0, ASK_CUT.1).min(share)
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// No ceiling is known. from: Test, Pulse; to: Test
    Free,
    /// Less is sent: does less get lost? from: Free, Hold; to: Free, Hold, Test
    Test { since_ns: u64, before: f64, fallen: f64, back: Back, score: f64 },
    /// The ceiling stands. from: Test, Pulse; to: Pulse, Test
    Hold { since_ns: u64 },
    /// More is sent for a moment, until `until_ns`: is it lost? from: Hold; to: Hold, Pulse, Free
    Pulse { since_ns: u64, until_ns: u64, more: f64, score: f64 },
}

/// Where a test goes back to if the loss is the path's own: no ceiling and this rate, or this ceiling.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Back {
    /// The start goes on, to this rate at most. It was never had, so nothing is given up while the question stands.
    Start(f64),
    Free(f64),
    Hold(f64),
}

impl Back {
    const fn rate(self) -> f64 {
        match self {
            Back::Start(rate) | Back::Free(rate) | Back::Hold(rate) => rate,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Ceiling {
    state: State,
    look: Look,
    look_from_ns: u64,
    /// Share of bytes that the path is known to lose by itself.
    own: f64,
    /// ... from so many packets.
    own_packets: f64,
    clumps: Clumps,
    /// Bytes per second.
    ceiling: f64,
    /// The rate when no ceiling was known.
    free_rate: f64,
    hold_rounds: f64,
    /// The ceiling found before this one.
    found_before: f64,
    /// By how much the next pulse is above the ceiling, and rounds until it at most.
    more: f64,
    settle_rounds: f64,
    /// This look goes on from one that found a little more.
    again: bool,
    /// A test has said already that what is lost is the path's own.
    denied: bool,
    /// The echo of a test is there.
    echoing: bool,
    /// Packets since the path's own loss was last asked for.
    doubt_packets: f64,
    doubted_ns: u64,
    doubt_rounds: f64,
    /// To be taken up again.
    restored: Option<Restored>,
    /// What arrives, a mean over a round, bytes per second.
    arriving: f64,
    /// When the first of a series of tests, each at a lower rate, began: what is lost of what left before is no news.
    lowered_ns: u64,
    /// Bytes known lost since the look began after which a ceiling was asked for, and when it was.
    known_lost: f64,
    asked_ns: u64,
    /// What seemed lost was reordered once.
    reorders: bool,
}

/// A rate that was given up for a test whose answer was "the path's own", bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Restored {
    /// It had been had.
    Whole(f64),
    /// It goes on growing from here.
    Start(f64),
}

impl Ceiling {
    pub(super) const fn new() -> Self {
        Self {
            state: State::Free,
            look: Look { passed: 0.0, arrived: 0.0, ns: 0.0, queued: false },
            look_from_ns: 0,
            own: 0.0,
            own_packets: 1.0,
            clumps: Clumps::new(),
            ceiling: f64::INFINITY,
            free_rate: 0.0,
            hold_rounds: HOLD_ROUNDS.0,
            found_before: 0.0,
            more: PULSE_FIRST,
            settle_rounds: f64::MAX,
            again: false,
            denied: false,
            echoing: false,
            doubt_packets: 0.0,
            doubted_ns: 0,
            doubt_rounds: DOUBT_ROUNDS.0,
            restored: None,
            arriving: 0.0,
            lowered_ns: 0,
            known_lost: 0.0,
            asked_ns: 0,
            reorders: false,
        }
    }

    /// So many bytes are known to be lost. Reports say sooner what passed and did not arrive, but some of that may have been reordered.
    pub(super) fn count_lost(&mut self, bytes: f64) {
        self.known_lost += bytes;
    }

    /// A step begins: what was known to be lost before is no evidence of a ceiling that it finds.
    pub(super) fn recount(&mut self) {
        self.known_lost = 0.0;
    }

    /// The bound in force, bytes per second; none: no ceiling is known.
    pub(super) fn bound(&self) -> Option<f64> {
        match self.state {
            State::Free => None,
            State::Pulse { more, .. } => Some(self.ceiling * (1.0 + more)),
            State::Test { .. } | State::Hold { .. } => Some(self.ceiling),
        }
    }

    /// The ceiling that was found, bytes per second, for people: a test whether there is one found none yet.
    pub(super) fn found(&self) -> Option<u64> {
        match self.state {
            State::Hold { .. } | State::Pulse { .. } => Some(self.ceiling as u64),
            State::Test { back: Back::Hold(ceiling), .. } => Some(ceiling as u64),
            State::Test { .. } | State::Free => None,
        }
    }

    /// The phase, for people; none: no ceiling is known.
    pub(super) const fn phase(&self) -> Option<&'static str> {
        match self.state {
            State::Free => None,
            State::Test { .. } => Some("loss test"),
            State::Hold { .. } => Some("ceiling"),
            State::Pulse { .. } => Some("ceiling pulse"),
        }
    }

    /// A pulse ends on time, not with the next report.
    pub(super) fn on_time(&self, now_ns: u64) -> Option<f64> {
        match self.state {
            State::Pulse { until_ns, .. } if now_ns >= until_ns => Some(self.ceiling),
            _ => self.bound(),
        }
    }

    /// Once: the rate that was given up for a test whose answer was "the path's own".
    pub(super) const fn take_restored(&mut self) -> Option<Restored> {
        self.restored.take()
    }

    /// Share of bytes that the path is known to lose by itself.
    pub(super) const fn own(&self) -> f64 {
        self.own
    }

    /// It is no more than this.
    pub(super) fn unlearn(&mut self, share: f64) {
        self.own = self.own.min(share);
        self.look = Look::default();
    }

    /// Forgets what was found, but for the path's own loss.
    pub(super) fn forget(&mut self) {
        self.state = State::Free;
        self.ceiling = f64::INFINITY;
        self.look = Look::default();
        self.restored = None;
        self.hold_rounds = HOLD_ROUNDS.0;
    }

    /// A start's echo was lost in part: its share, and what of it came last. Was `back`, bytes per second, too much? It is `known` to have been, or
    /// that is asked.
    pub(super) fn suspect(&mut self, report: &Report, share: f64, known: bool, back: f64) {
        self.look = Look::default();
        self.look.add(report);
        self.ceiling = self.enough(report.packet_bytes);
        self.free_rate = back;
        self.asked_ns = report.now_ns;
        if known {
            let rest = self.look.share();
            if rest < share && rest > REST_OWN * share {
                // What is still lost of a rest that left at a fraction of the rate is rather the path's own.
                self.learn(report.passed / report.packet_bytes);
            }
            self.more = START_PULSE;
            self.settle_rounds = SETTLE_ROUNDS;
            self.state = State::Hold { since_ns: report.now_ns };
            self.begin_look(report.now_ns);
        } else {
            self.ask(report.now_ns, share.max(self.look.share()), self.own, Back::Start(back));
        }
    }

    /// A start found that no more than `rate`, bytes per second, goes through evenly; what is lost below it is the path's own: a share, from so many packets.
    pub(super) fn settle(&mut self, now_ns: u64, rate: f64, (own, own_packets): (f64, f64)) {
        self.ceiling = MARGIN * rate;
        self.free_rate = f64::INFINITY;
        self.asked_ns = now_ns;
        (self.own, self.own_packets) = (own.min(OWN_MOST), own_packets.max(1.0));
        (self.more, self.settle_rounds) = (PULSE_FIRST, f64::MAX);
        self.state = State::Hold { since_ns: now_ns };
        self.begin_look(now_ns);
    }

    /// What left `before` did so at so many times the rate of what left after, both as (passed, arrived): is less lost? None: not known yet. If not, it is the
    /// path's own.
    pub(super) fn fell(
        &mut self,
        before: (f64, f64),
        after: (f64, f64),
        times: f64,
        packet_bytes: f64,
    ) -> Option<bool> {
        let share = 1.0 - before.1 / before.0.max(1.0);
        let rest = 1.0 - after.1 / after.0.max(1.0);
        let packets = (after.0 / packet_bytes).max(1.0);
        if rest > share + DEVIATIONS * maths::sqrt(share * (1.0 - share) / packets) {
            // A bucket passed the first of it. Else a slower rest would not be lost the more.
            return Some(true);
        }
        let least = (1.0 - times * (1.0 - share)).max(self.own).max(SHARE_LEAST);
        let fallen = least + REMAINS * (share - least);
        let (arrived, lost) = (after.1 / packet_bytes, (after.0 - after.1) / packet_bytes);
        let score = arrived * maths::ln((1.0 - fallen) / (1.0 - share)) + lost * maths::ln(fallen / share);
        if score.abs() < SURE {
            return None;
        }
        if score < 0.0 {
            let passed = before.0 + after.0;
            self.own = (1.0 - (before.1 + after.1) / passed.max(1.0)).clamp(0.0, OWN_MOST);
            self.own_packets = passed / packet_bytes;
        }
        Some(score > 0.0)
    }

    /// More than the path's own, by more than chance?
    pub(super) fn is_much(&self, (passed, arrived): (f64, f64), packet_bytes: f64) -> bool {
        let look = Look { passed, arrived, ns: 0.0, queued: false };
        Self { look, ..self.clone() }.excess(packet_bytes).is_some()
    }

    /// Is what is known to be the path's own loss still that? It is asked again, now and then, by a test.
    fn recheck(&mut self, report: &Report, back: Back) -> bool {
        self.doubt_packets += (self.look.passed / report.packet_bytes).max(1.0);
        let rounds = report.now_ns.saturating_sub(self.doubted_ns) as f64 / report.round_ns as f64;
        // Below a ceiling it may be what others send too much, which changes as they do.
        let (lost, wait) = match back {
            Back::Hold(_) if self.clumps.dispersion() < CLUMPED_MUCH => {
                (DOUBT_LOST / 2.0, (self.doubt_rounds / 2.0).min(DOUBT_CEILING_ROUNDS))
            }
            _ => (DOUBT_LOST, self.doubt_rounds),
        };
        let early = self.doubt_packets < lost / self.own.max(1e-6) || rounds < wait;
        if early || self.own < EXCESS_LEAST || self.look.share() < self.own / 2.0 || self.look.queued {
            return false;
        }
        // A part less is enough to see what it would save, were it the rate's.
        let (before, cut) = (self.own, ask_cut(self.own));
        let least = 1.0 - (1.0 - before) / (1.0 - cut);
        self.own /= 4.0;
        self.own_packets = 1.0;
        self.doubt_packets = 0.0;
        self.doubted_ns = report.now_ns;
        self.doubt_rounds = (2.0 * self.doubt_rounds).min(DOUBT_ROUNDS.1);
        self.ceiling = self.bound().unwrap_or(report.rate).min(report.rate) * (1.0 - cut);
        self.ask(report.now_ns, before, least, back);
        true
    }

    fn begin_look(&mut self, now_ns: u64) {
        self.look = Look::default();
        self.look_from_ns = now_ns;
        self.again = false;
        if self.state == State::Free {
            self.known_lost = 0.0;
        }
    }

    /// More is lost than the path's own, by more than chance: the share.
    fn excess(&self, packet_bytes: f64) -> Option<f64> {
        let packets = (self.look.passed / packet_bytes).max(1.0);
        let share = self.look.share();
        let own = self.own.max(1.0 / packets).min(0.5);
        // What is known of the path's own loss is an estimate, too.
        let each = 1.0 / packets + if self.own > 0.0 { 1.0 / self.own_packets } else { 0.0 };
        let chance = DEVIATIONS * maths::sqrt(self.clumps.dispersion() * own * (1.0 - own) * each);
        (share - self.own > EXCESS_LEAST.max(chance)).then_some(share)
    }

    /// So little that it may be the path's own, and worth a second look.
    fn is_little(&self, share: f64) -> bool {
        share - self.own < LITTLE || (share < OWN_MOST && self.own_packets < LOOK_PACKETS)
    }

    /// Beyond chance no path loses so much by itself.
    fn is_flood(&self, packet_bytes: f64) -> bool {
        let packets = (self.look.passed / packet_bytes).max(1.0);
        self.look.share() - 2.0 * maths::sqrt(0.25 * self.clumps.dispersion() / packets) > OWN_MOST
    }

    /// What has to be sent so that no more arrives than did.
    fn enough(&self, packet_bytes: f64) -> f64 {
        // Few arrivals say little: one more may have been on its way.
        let few = if self.look.arrived < FEW_PACKETS * packet_bytes { packet_bytes } else { 0.0 };
        let arrived = if self.look.ns > 0.0 { (self.look.arrived + few) * 1e9 / self.look.ns } else { f64::MAX };
        MARGIN * arrived / (1.0 - self.own)
    }

    /// One report.
    pub(super) fn on_report(&mut self, report: &Report) {
        if report.passed <= 0.0 {
            return;
        }
        if report.interval_ns > 0.0 {
            let weight = (report.interval_ns / report.round_ns.max(1) as f64).min(1.0);
            self.arriving += (report.arrived * 1e9 / report.interval_ns - self.arriving) * weight;
        }
        if self.was_reordered(report) {
            return;
        }
        match self.state {
            State::Free => self.watch(report),
            State::Test { .. } => self.test(report),
            State::Hold { .. } => self.hold(report),
            State::Pulse { .. } => self.pulse(report),
        }
    }

    /// Nothing of what seemed lost was: packets had been reordered. What was given up for it is taken up again.
    fn was_reordered(&mut self, report: &Report) -> bool {
        let known_ns = report.echo_ns(self.asked_ns).saturating_add(report.round_ns);
        if self.state == State::Free
            || report.now_ns < known_ns
            || self.known_lost > REORDERED_PACKETS * report.packet_bytes
        {
            return false;
        }
        self.restored = Some(match self.state {
            State::Test { back: Back::Start(rate), .. } => Restored::Start(rate),
            _ => Restored::Whole(if self.free_rate < f64::INFINITY { self.free_rate } else { report.rate }),
        });
        self.reorders = true;
        self.hold_rounds = HOLD_ROUNDS.0;
        self.forget_ceiling(report.now_ns);
        true
    }

    /// A look is over: after a round and enough packets, or in a flood.
    fn look_over(&self, report: &Report) -> bool {
        let packets = self.look.passed / report.packet_bytes;
        let lost = self.look.lost() / report.packet_bytes;
        let round = report.now_ns.saturating_sub(self.look_from_ns) >= report.round_ns;
        let seen = self.look.arrived >= 4.0 * report.packet_bytes
            || report.now_ns.saturating_sub(self.look_from_ns) >= report.round_ns / 4;
        // Looks that end when much is lost are many: chance alone must not end them.
        let flood = self.own + FLOOD_SHARE + 3.5 * maths::sqrt(0.25 / packets.max(1.0));
        (round && packets >= LOOK_PACKETS * self.clumps.dispersion())
            || (seen && lost >= FLOOD_PACKETS && self.look.share() > flood)
    }

    fn watch(&mut self, report: &Report) {
        self.look.add(report);
        self.clumps.add(report);
        if !self.look_over(report) {
            return;
        }
        let packets = self.look.passed / report.packet_bytes;
        match self.excess(report.packet_bytes) {
            Some(_) if self.reorders && self.known_lost < REORDERED_SHARE * self.look.lost() => {
                self.begin_look(report.now_ns);
            }
            // A little more is looked at twice: it was picked out of many looks for being more.
            Some(share) if !self.look.queued && self.is_little(share) && !self.again => {
                self.again = true;
                self.look_from_ns = report.now_ns;
            }
            Some(share) if !self.look.queued => {
                self.free_rate = report.rate;
                self.lower(report, share, Back::Free(report.rate));
            }
            Some(_) => self.begin_look(report.now_ns),
            None => {
                if !self.look.queued {
                    self.learn(packets);
                }
                if !self.recheck(report, Back::Free(report.rate)) {
                    self.begin_look(report.now_ns);
                }
            }
        }
    }

    /// The path's own loss is a mean of many packets, and does not come in clumps, of which a few may be all that was seen.
    fn is_own_known(&self) -> bool {
        self.own_packets >= KNOWN_PACKETS && self.clumps.dispersion() < CLUMPED_LITTLE
    }

    /// As much is sent from now on as arrived in the look.
    fn lower(&mut self, report: &Report, before: f64, back: Back) {
        if self.state == State::Free {
            self.asked_ns = report.now_ns;
        }
        let rate = self.bound().unwrap_or(report.rate);
        // A flood from before may still arrive; else what was sent is known better than what a few packets show of it.
        let flood = self.look.sent_rate() > 1.1 * rate;
        let all = MARGIN * (1.0 - before) / (1.0 - self.own);
        // What the path may lose by itself is asked for by a part less: were it the rate's, that would show, and else it costs little. Where that loss is known, more
        // is the rate's doing or another path, and as much less as should be enough tells these apart soonest.
        let cut = ask_cut(before);
        let known = self.is_own_known();
        let (part, least) = match !known && before < OWN_MOST && all < 1.0 - cut {
            true => (1.0 - cut, 1.0 - (1.0 - before) / (1.0 - cut)),
            false => (all, 0.0),
        };
        let enough = if flood { self.enough(report.packet_bytes) } else { rate * part };
        let lowest = (rate / FALL_MOST).max(ARRIVING_PART * self.arriving);
        self.ceiling = enough.max(lowest).min(rate).max(LEAST_PACKETS * report.packet_bytes);
        if !matches!(self.state, State::Test { .. }) {
            self.lowered_ns = report.now_ns;
        }
        self.ask(report.now_ns, before, least.max(self.own), back);
    }

    /// Is less lost from now on than `before`, by most of what is between that and `least`?
    fn ask(&mut self, now_ns: u64, before: f64, least: f64, back: Back) {
        let least = least.max(SHARE_LEAST);
        let fallen = (least + REMAINS * (before - least)).min(0.98 * before).max(SHARE_LEAST);
        self.state = State::Test { since_ns: now_ns, before, fallen, back, score: 0.0 };
        self.echoing = false;
        self.begin_look(now_ns);
    }

    fn test(&mut self, report: &Report) {
        let State::Test { since_ns, before, fallen, back, mut score } = self.state else { return };
        self.look.add(report);
        let echo_ns = report.echo_ns(since_ns);
        if report.now_ns < echo_ns {
            // What left before still arrives. It may show that much less is enough: the bucket was not empty yet when it was measured.
            if self.look_over(report) {
                let share = self.look.share();
                let is_news = report.now_ns < report.echo_ns(self.lowered_ns);
                if is_news
                    && self.is_flood(report.packet_bytes)
                    && self.look.sent_rate() > self.ceiling
                    && self.enough(report.packet_bytes) < 0.9 * self.ceiling
                {
                    self.lower(report, share.max(before), back);
                } else {
                    self.begin_look(report.now_ns);
                }
            }
            return;
        }
        if !self.echoing {
            self.echoing = true;
            self.begin_look(report.now_ns);
            self.look.add(report);
        }
        score += self.weigh(report, before, fallen);
        self.state = State::Test { since_ns, before, fallen, back, score };
        let rounds = report.now_ns.saturating_sub(echo_ns) as f64 / report.round_ns as f64;
        let had = if matches!(back, Back::Start(_)) { self.ceiling } else { back.rate() };
        let given_up = (had - self.ceiling).max(0.0) / had.max(1.0) * self.look.passed / report.packet_bytes;
        let packets = self.look.passed / report.packet_bytes;
        let over = (rounds > ROUNDS_MAX && packets > TEST_PACKETS) || given_up > GIVEN_UP_PACKETS;
        if score > SURE || (over && score > 0.0) {
            // Without an answer the likelier one: a ceiling is tried soon, and what is taken for the path's own is not.
            self.on_fallen(report, back);
        } else if score < -SURE || over {
            self.on_not_fallen(report, before, back, score < -SURE);
        }
    }

    /// Less is lost since less is sent: the rate was the cause.
    fn on_fallen(&mut self, report: &Report, back: Back) {
        self.denied = false;
        let packets = (self.look.passed / report.packet_bytes).max(1.0);
        let share = self.look.share();
        let rate = back.rate();
        if packets >= FALLEN_PACKETS && share - self.own > EXCESS_LEAST && share > STILL_MUCH {
            // Less, and still too much: the ceiling is lower. This much is known of it.
            return self.lower(report, share, Back::Hold(self.ceiling));
        }
        if packets >= FALLEN_PACKETS {
            self.learn(packets);
        }
        // A policer's ceiling is the same each time; what moves is another flow's doing, and is tried sooner.
        if (self.ceiling - self.found_before).abs() > SAME * self.ceiling {
            self.hold_rounds = HOLD_ROUNDS.0;
        }
        self.found_before = self.ceiling;
        // It may have been chance that more was lost before. The answer is tried: what was sent before is a pulse, soon.
        if matches!(back, Back::Start(_)) || 2.0 * self.ceiling < rate {
            // What a bucket passed at first says little of the rate behind it, and so do the few packets that a flood lets through.
            (self.more, self.settle_rounds) = (START_PULSE, SETTLE_ROUNDS);
        } else if rate < (1.0 + 2.0 * PULSE_FIRST) * self.ceiling {
            // A bucket that fills while the answer is awaited passes that pulse each time: after some in vain it waits like any other.
            let settle = match back {
                Back::Hold(_) if self.hold_rounds > AGAIN_MOST => f64::MAX,
                Back::Hold(_) => AGAIN_ROUNDS,
                Back::Start(_) | Back::Free(_) => SETTLE_ROUNDS,
            };
            (self.more, self.settle_rounds) = ((rate / self.ceiling - 1.0).max(PULSE_LEAST), settle);
        }
        self.state = State::Hold { since_ns: report.now_ns };
        self.begin_look(report.now_ns);
    }

    /// As much is lost as before, or no answer came in time: the path's own.
    fn on_not_fallen(&mut self, report: &Report, before: f64, back: Back, is_answer: bool) {
        let packets = (self.look.passed / report.packet_bytes).max(1.0);
        let share = self.look.share();
        let chance = DEVIATIONS * maths::sqrt(self.clumps.dispersion() * before * (1.0 - before.min(0.99)) / packets);
        // The loss that made us ask was picked for being much; this one was not.
        let weight = packets / (packets + FALLEN_PACKETS);
        let own = before + (share - before) * weight;
        if own > OWN_MOST
            || self.is_flood(report.packet_bytes)
            || (packets >= FALLEN_PACKETS && share > before + chance)
        {
            // Less was sent, and more was lost: the bucket had not been empty when the loss was measured.
            return self.lower(report, share, back);
        }
        if self.is_own_known() && own - self.own > EXCESS_LEAST && !self.denied {
            // The path lost less until now, and a bucket that was not empty yet makes a loss look small: it is asked once more from here.
            self.denied = true;
            return self.lower(report, share, back);
        }
        self.own = own;
        self.own_packets = packets;
        self.denied = false;
        if !is_answer {
            // Asked again soon, when more is known of what is usual.
            self.doubt_rounds = DOUBT_ROUNDS.0 / 3.0;
            self.doubted_ns = report.now_ns;
        }
        match back {
            Back::Start(rate) => {
                self.restored = Some(Restored::Start(rate.min(START_GROWTH * self.ceiling)));
                self.forget_ceiling(report.now_ns);
            }
            Back::Free(rate) => {
                self.restored = Some(Restored::Whole(rate));
                self.forget_ceiling(report.now_ns);
            }
            Back::Hold(ceiling) => {
                self.ceiling = ceiling;
                self.state = State::Hold { since_ns: report.now_ns };
                self.begin_look(report.now_ns);
            }
        }
    }

    /// What is still lost below the ceiling is the path's own.
    fn learn(&mut self, packets: f64) {
        // As the mean of all packets until there are many, then of the newer ones.
        self.own_packets = (self.own_packets + packets).min(OWN_PACKETS);
        let weight = (packets / self.own_packets).min(1.0);
        self.own = (self.own + (self.look.share() - self.own) * weight).min(OWN_MOST);
    }

    fn forget_ceiling(&mut self, now_ns: u64) {
        self.state = State::Free;
        self.ceiling = f64::INFINITY;
        self.begin_look(now_ns);
    }

    /// How much a report speaks for a loss of `fallen` and against one of `before`, in natural logarithms.
    fn weigh(&self, report: &Report, before: f64, fallen: f64) -> f64 {
        let arrived = report.arrived / report.packet_bytes;
        let lost = (report.passed - report.arrived).max(0.0) / report.packet_bytes;
        let before = before.clamp(SHARE_LEAST, 0.99);
        (arrived * maths::ln((1.0 - fallen) / (1.0 - before)) + lost * maths::ln(fallen / before))
            / self.clumps.dispersion()
    }

    /// So little is sent that most of any loss is others' doing.
    fn is_trickle(&self, report: &Report) -> bool {
        self.ceiling * (report.rtt_ns as f64).max(TRICKLE_NS) < TRICKLE_PACKETS * report.packet_bytes * 1e9
    }

    fn pulse_ns(&self, report: &Report, more: f64) -> f64 {
        let part = (PULSE_FIRST / more).max(1.0);
        let packets = if self.is_trickle(report) { TRICKLE_PULSE_PACKETS } else { PULSE_PACKETS * part * part };
        // It is judged by the reports of it alone: the first one may speak of what left before, too.
        let reports = 2.0 * report.report_ns as f64 + report.interval_ns;
        (report.rtt_ns as f64 / 4.0).max(reports).max(packets * report.packet_bytes * 1e9 / self.ceiling.max(1.0))
    }

    fn hold(&mut self, report: &Report) {
        let State::Hold { since_ns } = self.state else { return };
        self.look.add(report);
        self.clumps.add(report);
        if self.look_over(report) {
            match self.excess(report.packet_bytes) {
                _ if self.look.queued => {}
                Some(share) if self.is_little(share) && !self.again => {
                    self.again = true;
                    self.look_from_ns = report.now_ns;
                    return;
                }
                Some(share) => {
                    let back = Back::Hold(self.ceiling);
                    if self.settle_rounds < f64::MAX {
                        self.hold_rounds = (2.0 * self.hold_rounds).min(HOLD_ROUNDS.1);
                    }
                    (self.more, self.settle_rounds) = (PULSE_FIRST, f64::MAX);
                    return self.lower(report, share, back);
                }
                None => {
                    self.learn(self.look.passed / report.packet_bytes);
                    if self.recheck(report, Back::Hold(self.ceiling)) {
                        return;
                    }
                }
            }
            self.begin_look(report.now_ns);
        }
        let (rounds, more) = match self.is_trickle(report) {
            true => (TRICKLE_ROUNDS, TRICKLE_MORE),
            false => (self.hold_rounds.min(self.settle_rounds), self.more),
        };
        let long = (rounds * report.round_ns as f64).max(rounds * self.pulse_ns(report, PULSE_FIRST));
        if report.now_ns.saturating_sub(since_ns) as f64 > long && !report.limited {
            self.begin_pulse(report, more);
        }
    }

    fn begin_pulse(&mut self, report: &Report, more: f64) {
        let until_ns = report.now_ns.saturating_add(self.pulse_ns(report, more) as u64);
        self.state = State::Pulse { since_ns: report.now_ns, until_ns, more, score: 0.0 };
        self.begin_look(report.now_ns);
    }

    fn pulse(&mut self, report: &Report) {
        let State::Pulse { since_ns, until_ns, more, mut score } = self.state else { return };
        let (from, to) = (report.echo_ns(since_ns), until_ns.saturating_add(report.rtt_ns));
        if report.now_ns < from {
            return;
        }
        if report.limited {
            self.state = State::Hold { since_ns: report.now_ns };
            return self.begin_look(report.now_ns);
        }
        self.look.add(report);
        // Half of what a ceiling would take of the pulse.
        let own = self.own.max(SHARE_LEAST);
        let taken = (own + 0.5 * (1.0 - own) * more / (1.0 + more)).min(0.9);
        score += self.weigh(report, taken, own);
        self.state = State::Pulse { since_ns, until_ns, more, score };
        if self.look.queued {
            // There is a queue, and with it a measure of what is too much.
            self.restored = None;
            return self.forget_ceiling(report.now_ns);
        }
        if score < -SURE {
            // In vain; but what arrived of it is what goes through, and that may be more than was sent before.
            let enough = PULSE_MARGIN / MARGIN * self.enough(report.packet_bytes);
            if self.look.passed >= PULSE_MEASURE_PACKETS * report.packet_bytes && enough < self.ceiling * (1.0 + more) {
                self.ceiling = self.ceiling.max(enough);
            }
            (self.more, self.settle_rounds) = (PULSE_FIRST, f64::MAX);
            self.hold_rounds = (2.0 * self.hold_rounds).min(HOLD_ROUNDS.1);
            self.state = State::Hold { since_ns: report.now_ns };
            self.begin_look(report.now_ns);
        } else if report.now_ns > to.max(from) {
            // Where something else bounds the rate nothing more was sent, and nothing was learned.
            if score < 0.0 || self.look.sent_rate() < MARGIN * self.ceiling {
                // No answer: the next one waits as long as after one in vain, unless much more may go through.
                if more <= 2.0 * PULSE_FIRST {
                    self.settle_rounds = f64::MAX;
                }
                self.state = State::Hold { since_ns: report.now_ns };
                return self.begin_look(report.now_ns);
            }
            self.ceiling *= 1.0 + more;
            if self.ceiling > 0.98 * self.free_rate {
                self.restored = Some(Restored::Whole(self.ceiling.min(self.free_rate)));
                self.hold_rounds = HOLD_ROUNDS.0;
                return self.forget_ceiling(report.now_ns);
            }
            // A bucket that had filled meanwhile passes a pulse, and not what lasts.
            (self.more, self.settle_rounds) = ((2.0 * more).min(1.0), SETTLE_ROUNDS);
            self.state = State::Hold { since_ns: report.now_ns };
            self.begin_look(report.now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A ceiling of 1 MB/s, and a minute in which so much is sent of what may be, all of which arrives.
    fn after_a_minute(sent: f64) -> u64 {
        let mut ceiling = Ceiling::new();
        ceiling.settle(0, 1e6, (0.0, 1.0));
        ceiling.count_lost(100.0 * 1500.0);
        for now_ns in (1..5000).map(|report| report * 12 * MS) {
            let rate = sent * ceiling.on_time(now_ns).unwrap_or(0.0);
            let passed = rate * 0.012;
            ceiling.on_report(&Report {
                now_ns,
                passed,
                arrived: passed,
                interval_ns: 12e6,
                packet_bytes: 1500.0,
                rtt_ns: 50 * MS,
                report_ns: 12 * MS,
                round_ns: 50 * MS,
                queueless: true,
                limited: false,
                rate,
            });
        }
        ceiling.found().expect("nothing was lost of a start without a ceiling, so none is given up")
    }

    #[test]
    fn a_pulse_that_was_not_sent_raises_no_ceiling_and_one_that_arrived_does() {
        assert_eq!(after_a_minute(0.3), 980_000);
        assert!(after_a_minute(1.0) > 2_000_000);
    }
}
