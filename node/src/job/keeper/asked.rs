//! What a user asks of a job while it runs: another pace, or its end.
//!
//! For: `longhaul job set` and `stop`, at either end.
//! In and out: questions from the board and the peer's word (Pace) in; the plan's rate and pace as both ends have them from now on, answers, and
//! one line for each change out.
//! Invariants: a cap of one end is never lifted by the other; each end knows both caps; a peer changes the pace twice a second and no
//! oftener; a wish that this job cannot have is refused before anything changed.
//! Absent on purpose: who may ask (job::board), how a rate is held (engine::bound), what a policy does (proto::rate).

use std::time::{Duration, Instant};

use proto::error::Refusal;
use proto::negotiate::{Pace, Plan, Wish};
use proto::rate::{Law, Policy};
use proto::wire::control::Frame;

use super::auto::Auto;
use super::renew::Offers;
use super::{Closing, End, Keeper};
use crate::job::board::{Change, Now, Wanted};
use text::exit::{Exit, Failure};
use text::units::exact_rate;

/// A peer's word is heard no oftener.
const PAUSE: Duration = Duration::from_millis(500);
/// Nor is the user told of it without being asked.
const SAID: Duration = Duration::from_secs(10);
/// Rates are shown over at least so long.
const MOMENT: Duration = Duration::from_millis(900);

/// What the users of both ends want.
#[derive(Debug)]
pub(super) struct Wishes {
    /// The caps, own and the peer's, bit/s; 0: none.
    pub(super) caps: (u64, u64),
    /// As it was said; the plan has no more than the cap.
    min_bps: u64,
    /// What this end's user said last.
    policy: Policy,
    /// The peer's word, until its turn comes.
    told: Option<Wish>,
    heard: Instant,
    /// When the user was last told what the peer wants.
    said: Option<Instant>,
    /// For the rate that is shown: when, of how many bytes, and what came of it, bit/s.
    shown: (Instant, u64, f64),
}

impl Wishes {
    pub(super) fn of(offers: Option<&Offers>, plan: &Plan) -> Wishes {
        let caps = offers.map_or((plan.rate_bps, 0), |it| {
            let (initiator, acceptor) = (it.initiator.rate_bps, it.acceptor.rate_bps);
            if it.is_initiator { (initiator, acceptor) } else { (acceptor, initiator) }
        });
        let now = Instant::now();
        let Pace { policy, min_bps, .. } = plan.pace;
        Wishes { caps, min_bps, policy, told: None, heard: now, said: None, shown: (now, 0, 0.0) }
    }
}

/// The cap that holds of several: the smallest that is not 0.
pub(super) fn least_cap<const N: usize>(caps: [u64; N]) -> u64 {
    caps.into_iter().filter(|cap| *cap > 0).min().unwrap_or(0)
}

/// How much a policy claims against others.
fn claim(policy: Policy) -> u8 {
    match policy {
        Policy::Low => 0,
        Policy::Fair => 1,
        Policy::High => 2,
        Policy::Fixed => 3,
    }
}

/// Is there anything in this job that the wish would change? In words why not.
fn cannot(plan: &Plan, is_udp: bool, change: &Change, policy: Policy, cap: u64) -> Option<&'static str> {
    let of_datagrams = change.policy.is_some() || change.min_rate_bps.is_some();
    let has_policies = matches!(plan.pace.law, Law::Delay) || matches!(change.policy, None | Some(Policy::Fixed));
    if *change == Change::default() {
        Some("nothing was asked for")
    } else if of_datagrams && !is_udp {
        Some("it goes over TCP, which has neither policies nor a least rate: --rate alone holds there")
    } else if !has_policies {
        Some("only the law `delay` has policies")
    } else if (policy == Policy::Fixed || plan.pace.law == Law::Fixed) && cap == 0 {
        Some("a fixed pace needs a rate")
    } else {
        None
    }
}

fn ending() -> Result<String, Failure> {
    Err(Exit::Vanished.fail("change or stop the job", "all of it is there: it is ending").next("nothing to do"))
}

impl Keeper<'_, '_> {
    /// Once per turn: what askers want.
    pub(super) fn take_asked(&mut self) -> Result<(), Failure> {
        while let Some(asked) = self.job.posted.as_ref().and_then(|posted| posted.take()) {
            match asked.wanted {
                // An asker that went away loses the answer only.
                Wanted::Change(change) => drop(asked.answer.send(self.pace_anew(change))),
                // What is whole is not ended as a job that was stopped.
                Wanted::Stop if self.closing != Closing::Open => drop(asked.answer.send(ending())),
                Wanted::Stop => {
                    let cause = "`longhaul job stop` asked for it";
                    self.refuse(Refusal::Cancelled.code(), cause);
                    let _ = asked.answer.send(Ok("stopped; the same command goes on where it was".to_owned()));
                    return Err(Exit::Interrupted.fail("finish the job", cause));
                }
            }
        }
        Ok(())
    }

    /// Once per turn: is the job to end, since whoever it runs for may no longer have it? What is whole is not ended so.
    pub(super) fn take_halt(&mut self) -> Result<(), Failure> {
        let Some((refusal, why)) = self.job.halt.as_ref().and_then(|halt| halt.ordered()) else { return Ok(()) };
        if self.closing != Closing::Open {
            return Ok(());
        }
        let why = why.to_owned();
        self.refuse(refusal.code(), &why);
        Err(Exit::of_refusal(refusal).fail("finish the job", why))
    }

    fn pace_anew(&mut self, change: Change) -> Result<String, Failure> {
        let refuse = |why: &str| Err(Exit::Usage.fail("change the job", why).next("see `longhaul job show`"));
        if self.closing != Closing::Open {
            return ending();
        }
        // What the other end's user said before this is in force before this.
        self.hear_wish();
        let own = change.rate_bps.unwrap_or(self.wishes.caps.0);
        let policy = change.policy.unwrap_or(self.job.plan.pace.policy);
        let caps = (own, self.wishes.caps.1);
        let cap = least_cap([caps.0, caps.1]);
        if let Some(why) = cannot(&self.job.plan, self.goes_over_datagrams(), &change, policy, cap) {
            return refuse(why);
        }
        let min_bps = change.min_rate_bps.unwrap_or(self.wishes.min_bps);
        let claims_more = claim(policy) > claim(self.job.plan.pace.policy) || min_bps > self.wishes.min_bps;
        if claims_more && !self.job.rails.dials() && matches!(self.end, End::Recv(_)) {
            return refuse(
                "it is the other end that sends and asked for the job: its own user alone can claim more of its path",
            );
        }
        (self.wishes.caps, self.wishes.min_bps, self.wishes.policy) = (caps, min_bps, policy);
        // In one process the receiving end has nothing to hold.
        if self.job.offers.is_some() {
            self.say(&Frame::Pace(Wish { rate_bps: own, policy, min_bps }));
        }
        let mut text = self.put_pace(policy);
        self.post();
        if own != cap && cap > 0 {
            text += " (the other end's cap)";
        }
        self.said.push(format!("{text} from now on: `longhaul job set` asked for it at this end"));
        Ok(format!("{text} from now on"))
    }

    /// The peer's user wants another pace.
    pub(super) fn on_wish(&mut self, wish: Wish) {
        self.wishes.told = Some(wish);
    }

    /// Is there a rail of datagrams, or to be one?
    fn goes_over_datagrams(&self) -> bool {
        let carries = self.carriers.values().any(|it| it.meter.is_some());
        carries || self.wanted.packets > 0 || (self.carriers.is_empty() && self.job.plan.datagrams > 0)
    }

    /// Once per turn.
    pub(super) fn take_peers_wish(&mut self) {
        if self.closing == Closing::Open && self.wishes.heard.elapsed() >= PAUSE {
            self.hear_wish();
        }
    }

    fn hear_wish(&mut self) {
        let Some(Wish { rate_bps, mut policy, mut min_bps }) = self.wishes.told.take() else { return };
        let now = Instant::now();
        self.wishes.heard = now;
        let (sends, initiates) = (matches!(self.end, End::Send(_)), self.job.rails.dials());
        if sends && initiates {
            // Whom a user sends to may ask for less of the path, not for more.
            min_bps = min_bps.min(self.wishes.min_bps);
            if claim(policy) > claim(self.wishes.policy) {
                policy = self.wishes.policy;
            }
        }
        let had = (self.wishes.caps.1, self.wishes.min_bps, self.job.plan.pace.policy);
        if had == (rate_bps, min_bps, policy) {
            return;
        }
        (self.wishes.caps.1, self.wishes.min_bps) = (rate_bps, min_bps);
        let text = format!("{} from now on: the other end asked for it", self.put_pace(policy));
        if sends {
            // Words of both users may have crossed: the sender's state is the one that counts, and the other end hears it.
            self.say(&Frame::Pace(Wish { rate_bps: self.wishes.caps.0, policy, min_bps }));
        }
        // The other end must not be able to fill this one's log or screen.
        if initiates && self.wishes.said.is_none_or(|then| now - then >= SAID) {
            self.wishes.said = Some(now);
            self.said.push(text);
        } else {
            self.out.notes.push(text);
        }
    }

    /// The wishes as they are now go into force; says what holds.
    fn put_pace(&mut self, policy: Policy) -> String {
        let cap = least_cap([self.wishes.caps.0, self.wishes.caps.1]);
        let min_bps = self.wishes.min_bps.min(if cap == 0 { u64::MAX } else { cap });
        // The first plan and the one in force differ in workers and streams alone.
        let plans = [Some(&mut self.job.plan), self.renewal.as_mut().map(|it| it.plan_mut())];
        for plan in plans.into_iter().flatten() {
            plan.rate_bps = cap;
            (plan.pace.policy, plan.pace.min_bps) = (policy, min_bps);
        }
        self.ask_share();
        self.set_rail_rates();
        self.auto.iter_mut().for_each(Auto::on_pace);
        let mut text = if cap == 0 { "no cap".to_owned() } else { format!("at most {}", exact_rate(cap)) };
        if self.job.plan.datagrams > 0 {
            text += &format!(", policy {}", policy.name());
            if min_bps > 0 {
                text += &format!(", never below {}", exact_rate(min_bps));
            }
        }
        text
    }

    /// How it goes, for the board.
    pub(super) fn post(&mut self) {
        let Some(posted) = &self.job.posted else { return };
        let tally = self.end.record().tally;
        let moved = if matches!(self.end, End::Send(_)) { self.peer.0 } else { tally.moved };
        let (then, had, rate) = self.wishes.shown;
        if then.elapsed() >= MOMENT {
            let lately = moved.saturating_sub(had) as f64 * 8.0 / then.elapsed().as_secs_f64();
            self.wishes.shown = (Instant::now(), moved, if had == 0 { lately } else { f64::midpoint(rate, lately) });
        }
        let packets = self.carriers.values().filter(|it| it.meter.is_some()).count();
        let transport = match (packets, self.carriers.len() - packets) {
            (0, _) => "tcp",
            (_, 0) => "udp",
            _ => "tcp and udp",
        };
        let (plan, in_flight) = (&self.job.plan, moved.saturating_sub(tally.resent));
        // A peer may say of itself what it likes.
        let done = (tally.bytes_kept + tally.bytes_resumed + tally.holes).saturating_add(in_flight);
        posted.show(Now {
            bytes_done: done.max(tally.bytes_done).min(tally.bytes_total),
            bytes_total: tally.scan_ended.then_some(tally.bytes_total),
            files_done: tally.files_done,
            files_total: tally.files_total,
            rate_bps: self.wishes.shown.2,
            rails: self.end.rails_up(),
            transport: transport.to_owned(),
            cap_bps: plan.rate_bps,
            law: plan.pace.law.name().to_owned(),
            policy: plan.pace.policy.name().to_owned(),
            min_rate_bps: plan.pace.min_bps,
        });
    }
}
