//! Replanning: cores and the peer's reports for `proto::session::replan`, and its plan carried out.
//!
//! For: an end whose cores are halved, or given back, in the middle of a job.
//! In and out: the cores that this process may use, looked at once a second, and the peer's report in; the report for the peer, streams let go of
//! and dialled, and one line, out.
//! Invariants: nothing is decided here.
//! Absent on purpose: the plan and its times (proto::session::replan).

use proto::session::replan::Change;
use proto::wire::control::Frame;

use super::JobDriver;

/// Cores that this process may use now.
pub(super) fn cores() -> Option<u16> {
    sys::host::cores().ok().map(|cores| u16::try_from(cores.count).unwrap_or(u16::MAX))
}

fn load_percent() -> u32 {
    sys::host::load().map_or(0, |load| (load * 100.0) as u32)
}

impl JobDriver<'_, '_> {
    /// Once per iteration.
    pub(super) fn watch_resources(&mut self) {
        if !self.is_open() {
            return;
        }
        let Some(replan) = &mut self.replan else { return };
        if replan.is_due(self.now)
            && let Some((report, change)) = replan.on_cores(self.now, cores(), load_percent)
        {
            self.say(&Frame::Resources(report));
            change.iter().for_each(|change| self.obey_plan(change));
        }
        let change = self.replan.as_mut().and_then(|replan| replan.next_change(self.now));
        change.iter().for_each(|change| self.obey_plan(change));
    }

    /// What of a new plan can be done in mid-run.
    fn obey_plan(&mut self, change: &Change) {
        let Change { by_peer, cores: (had, has), workers: (own, theirs), streams: (had_streams, streams), reason } =
            change;
        let who = if *by_peer { "the other end" } else { "this end" };
        let cores = if *has == 1 { "1 core".to_owned() } else { format!("{has} cores") };
        let text = format!(
            "new plan: {who} may use {cores} (before: {had}); workers {own} here and {theirs} there, streams {streams} (before: {had_streams}): {reason}"
        );
        if !self.job.rails.dials() {
            // Who asked is told; here it is for the log.
            self.out.notes.push(text);
            return;
        }
        self.said.push(text);
        if self.wanted.streams > 0 {
            self.wanted.streams = usize::from(*streams);
        }
        // What was learned of more rails was learned with other cores.
        self.growth = Default::default();
        self.want_rails();
    }

    /// Would a rail of this number be on workers that the plan uses, at both ends?
    pub(super) fn is_in_plan(&self, rail: u16) -> bool {
        self.replan.as_ref().is_none_or(|it| it.is_in_plan(rail))
    }
}
