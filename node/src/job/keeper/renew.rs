//! The plan made anew while data flows: an end has other means than it had.
//!
//! For: an end whose cores are halved, or given back, in the middle of a job.
//! In and out: the cores that this process may use, looked at once a second, and the peer's word (Means); the plan that both ends then compute,
//! streams let go of and dialled, and one line, out.
//! Invariants: both ends hold the same two offers once their words have crossed, so they compute the same plan; nothing that bytes on disk or
//! on the wire depend on changes (`proto::negotiate::renew`); a peer can have the plan made anew twice a second and no oftener.
//! Absent on purpose: more workers than the job began with, other bufs, and what the load asks for: the plan does not depend on it.

use std::time::{Duration, Instant};

use proto::negotiate::{Means, Offer, Plan, renew};
use proto::wire::control::Frame;

use super::{Closing, Keeper, Way};

/// The cores are looked at so often.
const LOOK: Duration = Duration::from_secs(1);
/// The plan is made anew no oftener.
const PAUSE: Duration = Duration::from_millis(500);

/// What both ends offered, and what came of it.
#[derive(Debug, Clone)]
pub struct Offers {
    /// Who opened the session.
    pub initiator: Offer,
    /// Who took it.
    pub acceptor: Offer,
    /// This end is the initiator.
    pub is_initiator: bool,
}

impl Offers {
    fn of(&mut self, own: bool) -> &mut Offer {
        if own == self.is_initiator { &mut self.initiator } else { &mut self.acceptor }
    }
}

/// What is known of both ends' means.
#[derive(Debug)]
pub(super) struct Renewal {
    offers: Offers,
    /// At the beginning: what was offered (the user may have said another number), and what there was.
    cores_first: (u16, u16),
    looked: Instant,
    made: Instant,
    /// The peer's word, until its turn comes.
    told: Option<Means>,
    /// The plan in force.
    plan: Plan,
}

impl Renewal {
    pub(super) fn new(offers: Option<Offers>, plan: &Plan) -> Option<Renewal> {
        let now = Instant::now();
        let mut offers = offers?;
        let offered = offers.of(true).cores;
        let cores_first = (offered, cores().unwrap_or(offered));
        Some(Renewal { offers, cores_first, looked: now, made: now, told: None, plan: plan.clone() })
    }

    /// The plan in force.
    pub(super) fn plan_mut(&mut self) -> &mut Plan {
        &mut self.plan
    }

    /// Workers that the plan uses of those that the job began with: own, the peer's.
    fn workers(&self) -> (u16, u16) {
        let (initiator, acceptor) = self.plan.workers;
        if self.offers.is_initiator { (initiator, acceptor) } else { (acceptor, initiator) }
    }
}

/// Cores that this process may use now.
fn cores() -> Option<u16> {
    sys::host::cores().ok().map(|cores| u16::try_from(cores.count).unwrap_or(u16::MAX))
}

fn load_percent() -> u32 {
    sys::host::load().map_or(0, |load| (load * 100.0) as u32)
}

impl Keeper<'_, '_> {
    /// The peer's means changed.
    pub(super) fn on_means(&mut self, means: Means) {
        if let Some(renewal) = &mut self.renewal {
            renewal.told = Some(means);
        }
    }

    /// Once per turn.
    pub(super) fn watch_means(&mut self) {
        let Some(renewal) = &mut self.renewal else { return };
        if self.closing != Closing::Open {
            return;
        }
        if renewal.looked.elapsed() >= LOOK {
            renewal.looked = Instant::now();
            let ((offered, there_were), own) = (renewal.cores_first, renewal.offers.of(true));
            let had = own.cores;
            let has = cores().filter(|now| *now < there_were).map_or(offered, |now| now.clamp(1, offered.max(1)));
            if has != had {
                (own.cores, own.load_percent) = (has, load_percent());
                let means = Means { cores: has, load_percent: own.load_percent };
                self.say(&Frame::Means(means));
                self.renew("this end", had, has);
            }
        }
        let Some(renewal) = &mut self.renewal else { return };
        if renewal.made.elapsed() >= PAUSE
            && let Some(means) = renewal.told.take()
        {
            renewal.made = Instant::now();
            let theirs = renewal.offers.of(false);
            let had = theirs.cores;
            (theirs.cores, theirs.load_percent) = (means.cores, means.load_percent);
            self.renew("the other end", had, means.cores);
        }
    }

    /// Both ends' plan, and what of it can be done in mid-run.
    fn renew(&mut self, who: &str, had: u16, has: u16) {
        let sends = matches!(self.job.way, Way::Send(_));
        let Some(renewal) = &mut self.renewal else { return };
        let Offers { initiator, acceptor, is_initiator } = &renewal.offers;
        let (plan, reason) = renew(&self.job.plan, initiator, acceptor, sends == *is_initiator);
        if plan == renewal.plan {
            return;
        }
        let is_initiator = *is_initiator;
        let before = std::mem::replace(&mut renewal.plan, plan);
        let (own, theirs) = renewal.workers();
        let (streams, had_streams) = (usize::from(renewal.plan.streams), before.streams);
        let core = |count: u16| if count == 1 { "1 core".to_owned() } else { format!("{count} cores") };
        let text = format!(
            "plan made anew: {who} may use {} (before: {had}); workers {own} here and {theirs} there, streams {streams} (before: {had_streams}): {reason}",
            core(has)
        );
        if !is_initiator {
            // Who asked is told; here it is for the log.
            self.out.notes.push(text);
            return;
        }
        self.said.push(text);
        if self.wanted.streams > 0 {
            self.wanted.streams = streams;
        }
        // What was learned of more rails was learned with other cores.
        self.growth = Default::default();
        self.want_rails();
    }

    /// Would a rail of this number be on workers that the plan uses, at both ends?
    pub(super) fn is_in_plan(&self, rail: u16) -> bool {
        let Some(renewal) = &self.renewal else { return true };
        let (first, now) = (self.job.plan.workers, renewal.plan.workers);
        rail % first.0.max(1) < now.0 && rail % first.1.max(1) < now.1
    }

    /// Streams beyond the plan, or on workers that it does not use any more: they rest, and go when they are empty; never the last in it.
    pub(super) fn surplus(&self) -> Vec<u16> {
        if self.renewal.as_ref().is_none_or(|it| it.plan == self.job.plan) {
            return Vec::new();
        }
        let mut all = Vec::new();
        for path in 0..self.paths.len() {
            let streams = self.carriers.iter().filter(|(_, it)| it.path == path && it.meter.is_none());
            let awake: Vec<u16> = streams.filter(|(_, it)| it.rests_until.is_none()).map(|(&rail, _)| rail).collect();
            let (stay, go): (Vec<u16>, Vec<u16>) = awake.into_iter().partition(|&rail| self.is_in_plan(rail));
            if !stay.is_empty() {
                let beyond = stay.len().saturating_sub(self.wanted_of(path).streams.max(1));
                all.extend(go);
                all.extend(stay.into_iter().rev().take(beyond));
            }
        }
        all
    }
}
