//! Runtime changes: what a user asks of a job while it runs: another pace, or its end.
//!
//! For: `longhaul job set` and `stop`, at either end.
//! In and out: questions from the registry in; the settings that `proto::session::settings` puts into force, answers, and one line for each change out.
//! Invariants: which settings hold is not decided here; what is whole is not ended as a job that was stopped.
//! Absent on purpose: who may ask (job::registry), the settings (proto::session::settings), how a rate is held (engine::worker::bound).

use proto::error::Refusal;
use proto::negotiate::RdmaKind;
use proto::session::settings::{self, Facts, InForce, PeerChange};
use proto::wire::control::Frame;

use super::transport::Auto;
use super::{End, JobDriver};
use crate::job::registry::{Change, Now, Wanted};
use text::exit::{Exit, Failure};
use text::units::exact_rate;

fn ending() -> Result<String, Failure> {
    Err(Exit::Vanished.fail("change or stop the job", "all of it is there: it is ending").next("nothing to do"))
}

impl JobDriver<'_, '_> {
    /// Once per iteration: what clients want.
    pub(super) fn take_asked(&mut self) -> Result<(), Failure> {
        while let Some(asked) = self.job.registration.as_ref().and_then(|registration| registration.take()) {
            match asked.wanted {
                // A client that went away loses the answer only.
                Wanted::Change(change) => drop(asked.answer.send(self.change_settings(change))),
                // What is whole is not ended as a job that was stopped.
                Wanted::Stop if !self.is_open() => drop(asked.answer.send(ending())),
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

    /// Once per iteration: is the job to end, since whoever it runs for may no longer have it? What is whole is not ended so.
    pub(super) fn take_halt(&mut self) -> Result<(), Failure> {
        let Some((refusal, why)) = self.job.cancel.as_ref().and_then(|cancel| cancel.requested()) else {
            return Ok(());
        };
        if !self.is_open() {
            return Ok(());
        }
        let why = why.to_owned();
        self.refuse(refusal.code(), &why);
        Err(Exit::of_refusal(refusal).fail("finish the job", why))
    }

    /// What the settings depend on.
    fn settings_facts(&self) -> Facts {
        let carries = self.carriers.values().any(|it| it.meter.is_some());
        let is_planned = self.carriers.is_empty() && self.job.plan.datagrams > 0;
        Facts {
            controller: self.job.plan.pace.controller,
            policy: self.job.plan.pace.policy,
            uses_datagrams: carries || self.wanted.datagrams > 0 || is_planned,
            sends: matches!(self.end, End::Send(_)),
            initiates: self.job.rails.dials(),
        }
    }

    fn change_settings(&mut self, change: Change) -> Result<String, Failure> {
        if !self.is_open() {
            return ending();
        }
        // What the other end's user said before this is in force before this.
        let before = self.settings.take_peers(self.now, &self.settings_facts());
        before.iter().for_each(|change| self.obey_peer(change));
        let Change { rate_bps, min_rate_bps, policy } = change;
        let wanted = settings::Change { rate_bps, min_bps: min_rate_bps, policy };
        let changed = self
            .settings
            .on_user(&wanted, &self.settings_facts())
            .map_err(|refused| Exit::Usage.fail("change the job", refused.reason()).next("see `longhaul job show`"))?;
        // In one process the receiving end has nothing to hold.
        if self.job.offers.is_some() {
            self.say(&Frame::Pace(changed.report));
        }
        let mut text = self.put_in_force(changed.in_force);
        self.post();
        if changed.is_peers_cap {
            text += " (the other end's cap)";
        }
        self.said.push(format!("{text} from now on: `longhaul job set` asked for it at this end"));
        Ok(format!("{text} from now on"))
    }

    /// Once per iteration.
    pub(super) fn take_peers_settings(&mut self) {
        if self.is_open() {
            let change = self.settings.next_peers(self.now, &self.settings_facts());
            change.iter().for_each(|change| self.obey_peer(change));
        }
    }

    fn obey_peer(&mut self, change: &PeerChange) {
        let text = format!("{} from now on: the other end asked for it", self.put_in_force(change.in_force));
        if let Some(report) = change.report {
            self.say(&Frame::Pace(report));
        }
        // The other end must not be able to fill this one's log or screen.
        if change.is_news { self.said.push(text) } else { self.out.notes.push(text) }
    }

    /// These settings go into force; says what holds.
    fn put_in_force(&mut self, InForce { cap_bps, policy, min_bps }: InForce) -> String {
        let plan = &mut self.job.plan;
        (plan.rate_bps, plan.pace.policy, plan.pace.min_bps) = (cap_bps, policy, min_bps);
        self.replan.iter_mut().for_each(|replan| replan.on_settings(cap_bps, policy, min_bps));
        self.ask_share();
        self.set_rail_rates();
        self.auto.iter_mut().for_each(Auto::on_pace);
        let mut text = if cap_bps == 0 { "no cap".to_owned() } else { format!("at most {}", exact_rate(cap_bps)) };
        if self.job.plan.datagrams > 0 {
            text += &format!(", policy {}", policy.name());
            if min_bps > 0 {
                text += &format!(", never below {}", exact_rate(min_bps));
            }
        }
        text
    }

    /// How it goes, for the registry.
    pub(super) fn post(&mut self) {
        let Some(registration) = &self.job.registration else { return };
        let tally = self.end.record().tally;
        let moved = if matches!(self.end, End::Send(_)) { self.peer.0 } else { tally.moved };
        let rate_bps = self.shown_rate.on_bytes(self.now, moved);
        let packets = self.carriers.values().filter(|it| it.meter.is_some()).count();
        let pairs = self.carriers.values().filter(|it| it.pair.is_some()).count();
        let transport = match (packets, self.carriers.len() - packets) {
            _ if pairs > 0 => self.job.plan.rdma.map_or("rdma", RdmaKind::name),
            (0, _) => "tcp",
            (_, 0) => "udp",
            _ => "tcp and udp",
        };
        let (plan, in_flight) = (&self.job.plan, moved.saturating_sub(tally.resent));
        // A peer may say of itself what it likes.
        let done = (tally.bytes_kept + tally.bytes_resumed + tally.holes).saturating_add(in_flight);
        registration.show(Now {
            bytes_done: done.max(tally.bytes_done).min(tally.bytes_total),
            bytes_total: tally.scan_ended.then_some(tally.bytes_total),
            files_done: tally.files_done,
            files_total: tally.files_total,
            rate_bps,
            rails: self.end.rails_up(),
            transport: transport.to_owned(),
            cap_bps: plan.rate_bps,
            controller: plan.pace.controller.name().to_owned(),
            policy: plan.pace.policy.name().to_owned(),
            min_rate_bps: plan.pace.min_bps,
        });
    }
}
