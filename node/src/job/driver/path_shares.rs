//! Path-share check: counters for `proto::session::share`, and its line for the user.
//!
//! For: a link, a NIC or a cable that does less than it says is seen while it does.
//! In and out: bytes that each path brought and the sender's books in; one line per change out.
//! Invariants: nothing is decided here.
//! Absent on purpose: the judgement (proto::session::share), weights (proto::session::nic_speeds).

use proto::books::Stage;
use proto::session::share::Facts;

use super::{End, JobDriver};

impl JobDriver<'_, '_> {
    /// With each look at the paths.
    pub(super) fn check_shares(&mut self) {
        if !self.path_shares_check.has_weights() {
            return;
        }
        let own = self.books();
        let sender = if matches!(self.end, End::Send(_)) { Some(own) } else { self.peers };
        let all_carry = (0..self.paths.count()).all(|path| self.paths.carries(path));
        let may_judge = all_carry && self.job.bound.rate() == 0 && self.is_open() && sender.is_some();
        let (waited_ns, worked_ns) = sender.map_or((0, 0), |it| (it.ns[Stage::WaitSend as usize], it.wall_ns));
        let shares = self.path_shares();
        let brought = shares.iter().map(|it| it.bytes).collect();
        let change = self.path_shares_check.on_shares(self.now, &Facts { brought, waited_ns, worked_ns, may_judge });
        self.said.extend(change.map(|change| change.line(&|at| shares[at].name.clone())));
    }
}
