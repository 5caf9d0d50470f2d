//! Requested settings of a running job: another rate, policy or least rate, asked for by a user of either end.
//!
//! For: `longhaul job set` at either end.
//! In and out: what the own user and the peer's user want in; what is in force from now on, and the report to the peer, out.
//! Invariants: a cap of one end is never lifted by the other, and each end knows both caps; a peer changes the settings twice a second and no
//! oftener; a change that this job cannot have is refused before anything changed; the end that a user sends to cannot claim more of its path.
//! Absent on purpose: who may ask (the job registry), how a rate is held (the engine), what a policy does (`rate`).

use core::time::Duration;

use super::Moment;
use crate::negotiate::{Plan, RequestedSettings};
use crate::rate::{ControllerKind, Policy};
use crate::session::replan::Offers;

/// A peer's request is taken no oftener than this: both ends set the pace of every rail for it.
const PAUSE: Duration = Duration::from_millis(500);
/// Nor is the user told of a peer's request oftener than this: a peer must not fill the screen.
const TOLD: Duration = Duration::from_secs(10);
/// A rate is shown over at least this time: two reports of the peer, less their jitter.
const SHOWN: Duration = Duration::from_millis(900);

/// What a user of this end wants changed; `None`: it stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// This end's own cap, bit/s; 0: none.
    pub rate_bps: Option<u64>,
    /// Never slower than this, bit/s; 0: no bound.
    pub min_bps: Option<u64>,
    /// How datagram rails share a path with others.
    pub policy: Option<Policy>,
}

/// What the driver knows of the job when settings change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The congestion controller of datagram rails.
    pub controller: ControllerKind,
    /// The policy in force.
    pub policy: Policy,
    /// A rail over datagrams carries, or is to be one.
    pub uses_datagrams: bool,
    /// This end sends.
    pub sends: bool,
    /// This end opened the session.
    pub initiates: bool,
}

/// Why a change is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Nothing was asked for.
    Nothing,
    /// A policy or a least rate for a job over TCP.
    NoDatagrams,
    /// A policy for a congestion controller that has none.
    NoPolicies,
    /// A fixed pace without a rate.
    NoRate,
    /// The end that a user sends to asked for more of the path.
    NotSender,
}

impl Refused {
    /// For the user.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Refused::Nothing => "nothing was asked for",
            Refused::NoDatagrams => {
                "it goes over TCP, which has neither policies nor a least rate: --rate alone holds there"
            }
            Refused::NoPolicies => "only the congestion controller `delay` has policies",
            Refused::NoRate => "a fixed pace needs a rate",
            Refused::NotSender => {
                "it is the other end that sends and asked for the job: its own user alone can claim more of its path"
            }
        }
    }
}

/// What is in force from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InForce {
    /// The cap of both ends together, bit/s; 0: none.
    pub cap_bps: u64,
    /// The policy.
    pub policy: Policy,
    /// The least rate, bit/s; no more than the cap.
    pub min_bps: u64,
}

/// A change by the own user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnChange {
    /// What is in force from now on.
    pub in_force: InForce,
    /// What the peer is told.
    pub report: RequestedSettings,
    /// The cap in force is the other end's, not the one asked for.
    pub is_peers_cap: bool,
}

/// A change by the peer's user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerChange {
    /// What is in force from now on.
    pub in_force: InForce,
    /// What the peer is told: reports of both users may have crossed, and the sender's state is the one that counts.
    pub report: Option<RequestedSettings>,
    /// The user is told; false: it is for the log.
    pub is_news: bool,
}

/// What the users of both ends want.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The caps, own and the peer's, bit/s; 0: none.
    caps: (u64, u64),
    /// As it was asked for; in force is no more than the cap.
    min_bps: u64,
    /// What this end's user asked for last.
    policy: Policy,
    /// The peer's request, until it is taken.
    requested: Option<RequestedSettings>,
    heard: Moment,
    /// When the user was last told what the peer wants.
    told: Option<Moment>,
}

impl Settings {
    /// A job that begins at `now` with this plan; `offers`: `None` where both ends are one process.
    #[must_use]
    pub fn new(now: Moment, offers: Option<&Offers>, plan: &Plan) -> Settings {
        let caps = offers.map_or((plan.rate_bps, 0), |it| {
            let (initiator, acceptor) = (it.initiator.rate_bps, it.acceptor.rate_bps);
            if it.is_initiator { (initiator, acceptor) } else { (acceptor, initiator) }
        });
        let (policy, min_bps) = (plan.pace.policy, plan.pace.min_bps);
        Settings { caps, min_bps, policy, requested: None, heard: now, told: None }
    }

    /// The caps, own and the peer's, bit/s; 0: none.
    #[must_use]
    pub fn caps(&self) -> (u64, u64) {
        self.caps
    }

    /// This end's user wants a change. The peer's requests of before must have been taken (`take_peers`).
    pub fn on_user(&mut self, change: &Change, facts: &Facts) -> Result<OwnChange, Refused> {
        let own = change.rate_bps.unwrap_or(self.caps.0);
        let policy = change.policy.unwrap_or(facts.policy);
        let cap = least_cap([own, self.caps.1]);
        if let Some(why) = refusal(change, facts, policy, cap) {
            return Err(why);
        }
        let min_bps = change.min_bps.unwrap_or(self.min_bps);
        let claims_more = rank(policy) > rank(facts.policy) || min_bps > self.min_bps;
        if claims_more && !facts.initiates && !facts.sends {
            return Err(Refused::NotSender);
        }
        (self.caps.0, self.min_bps, self.policy) = (own, min_bps, policy);
        let report = RequestedSettings { rate_bps: own, policy, min_bps };
        Ok(OwnChange { in_force: self.in_force(policy), report, is_peers_cap: own != cap && cap > 0 })
    }

    /// The peer's user wants other settings.
    pub fn on_peer(&mut self, requested: RequestedSettings) {
        self.requested = Some(requested);
    }

    /// The peer's request, when its time has come.
    pub fn next_peers(&mut self, now: Moment, facts: &Facts) -> Option<PeerChange> {
        if now.since(self.heard) < PAUSE { None } else { self.take_peers(now, facts) }
    }

    /// The peer's request, at once.
    pub fn take_peers(&mut self, now: Moment, facts: &Facts) -> Option<PeerChange> {
        let RequestedSettings { rate_bps, mut policy, mut min_bps } = self.requested.take()?;
        self.heard = now;
        if facts.sends && facts.initiates {
            // Whom a user sends to may ask for less of the path, not for more.
            min_bps = min_bps.min(self.min_bps);
            if rank(policy) > rank(self.policy) {
                policy = self.policy;
            }
        }
        if (self.caps.1, self.min_bps, facts.policy) == (rate_bps, min_bps, policy) {
            return None;
        }
        (self.caps.1, self.min_bps) = (rate_bps, min_bps);
        let report = facts.sends.then_some(RequestedSettings { rate_bps: self.caps.0, policy, min_bps });
        let is_news = facts.initiates && self.told.is_none_or(|then| now.since(then) >= TOLD);
        if is_news {
            self.told = Some(now);
        }
        Some(PeerChange { in_force: self.in_force(policy), report, is_news })
    }

    fn in_force(&self, policy: Policy) -> InForce {
        let cap_bps = least_cap([self.caps.0, self.caps.1]);
        let min_bps = self.min_bps.min(if cap_bps == 0 { u64::MAX } else { cap_bps });
        InForce { cap_bps, policy, min_bps }
    }
}

/// The cap that holds of several: the smallest that is not 0.
#[must_use]
pub fn least_cap<const N: usize>(caps: [u64; N]) -> u64 {
    caps.into_iter().filter(|cap| *cap > 0).min().unwrap_or(0)
}

/// Policies by how much of a path they take from others.
fn rank(policy: Policy) -> u8 {
    match policy {
        Policy::Low => 0,
        Policy::Fair => 1,
        Policy::High => 2,
        Policy::Fixed => 3,
    }
}

/// Is there anything in this job that the request would change?
fn refusal(change: &Change, facts: &Facts, policy: Policy, cap_bps: u64) -> Option<Refused> {
    let of_datagrams = change.policy.is_some() || change.min_bps.is_some();
    let has_policies =
        matches!(facts.controller, ControllerKind::Delay) || matches!(change.policy, None | Some(Policy::Fixed));
    if *change == Change::default() {
        Some(Refused::Nothing)
    } else if of_datagrams && !facts.uses_datagrams {
        Some(Refused::NoDatagrams)
    } else if !has_policies {
        Some(Refused::NoPolicies)
    } else if (policy == Policy::Fixed || facts.controller == ControllerKind::Fixed) && cap_bps == 0 {
        Some(Refused::NoRate)
    } else {
        None
    }
}

/// The rate that a job is shown with: the mean of the last span and what was shown before.
#[derive(Debug, Clone, Copy)]
pub struct ShownRate {
    from: Moment,
    bytes: u64,
    rate_bps: f64,
}

impl ShownRate {
    /// A job that begins at `now`.
    #[must_use]
    pub fn new(now: Moment) -> ShownRate {
        ShownRate { from: now, bytes: 0, rate_bps: 0.0 }
    }

    /// Bytes moved until now. Returns the rate to show, bit/s.
    pub fn on_bytes(&mut self, now: Moment, bytes: u64) -> f64 {
        let span = now.since(self.from);
        if span >= SHOWN {
            let lately = bytes.saturating_sub(self.bytes) as f64 * 8.0 / span.as_secs_f64();
            let rate_bps = if self.bytes == 0 { lately } else { f64::midpoint(self.rate_bps, lately) };
            *self = ShownRate { from: now, bytes, rate_bps };
        }
        self.rate_bps
    }
}

#[cfg(test)]
#[path = "settings/tests.rs"]
mod tests;
