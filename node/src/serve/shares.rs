//! What each running job may have of the daemon's `--rate`, and of the rate of the key or ticket that it runs on.
//!
//! For: a cap that jobs share evenly, and of which one that needs less leaves the rest to the others.
//! In and out: bytes that each job let go so far, now and then; the most that each may have.
//! Invariants: the sum is held by the `Bound` above all jobs'; all jobs have the same ceiling, so who asks for more takes nothing from who does not;
//! a key has one account for all its jobs, which outlives them while anything is left to pay for.
//! Absent on purpose: the data path; job drivers ask ten times a second, so that those that run make room soon for one that begins.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::job::JobNo;
use engine::worker::bound::Bound;

use crate::identity::PublicKey;

/// What a job used is looked at over this long at least.
const SPAN_NS: u64 = 250_000_000;
/// Who uses so much of an even part would use more.
const HUNGRY_PART: f64 = 0.95;
/// Who does not may have this much more than it used, before others have the rest.
const ROOM: f64 = 1.05;

/// One job.
#[derive(Debug)]
struct Use {
    taken: u64,
    at_ns: u64,
    /// B/s lately; infinite: not known yet.
    used: f64,
    /// It has its even part and no more, since nothing here can hold what its peer sends.
    is_even: bool,
}

/// Whom a job's bytes are booked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Account {
    /// A client that was let in by its key.
    Key(PublicKey),
    /// Whoever has the ticket of this number.
    Ticket(u64),
}

/// The accounts of all keys and tickets on which jobs run, or ran and left something to pay for.
#[derive(Debug, Default)]
pub(super) struct Accounts(Mutex<HashMap<Account, Arc<Shares>>>);

impl Accounts {
    fn all(&self) -> MutexGuard<'_, HashMap<Account, Arc<Shares>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The job is over.
    pub(super) fn forget(&self, job: JobNo) {
        self.all().values().for_each(|one| one.forget(job));
    }

    /// This one's, within `above` all others. `cap`: B/s, 0 for none; the newest that was said holds for all its jobs.
    pub(super) fn of(&self, account: Account, above: &Arc<Bound>, cap: u64, now_ns: u64) -> Arc<Shares> {
        let mut all = self.all();
        all.retain(|_, one| Arc::strong_count(one) > 1 || one.bound.owes_ns(now_ns) > 0);
        let one = all.entry(account).or_insert_with(|| {
            Arc::new(Shares { bound: Arc::new(Bound::new(0, Some(above.clone()))), ..Shares::default() })
        });
        one.cap.store(cap, Ordering::Relaxed);
        one.bound.set_rate(now_ns, cap);
        one.clone()
    }
}

/// All running jobs of the daemon, or of an account.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Holds the sum.
    pub(super) bound: Arc<Bound>,
    /// Of an account, B/s; 0: none.
    cap: AtomicU64,
    jobs: Mutex<BTreeMap<JobNo, Use>>,
}

impl Shares {
    /// The most that `job` may have of its account, B/s; 0: no cap.
    pub(super) fn of_account(&self, job: JobNo, taken: u64, is_even: bool, now_ns: u64) -> u64 {
        self.of(job, taken, is_even, now_ns, self.cap.load(Ordering::Relaxed))
    }

    /// The most that `job` may have of `cap`, B/s; 0: no cap.
    pub(super) fn of(&self, job: JobNo, taken: u64, is_even: bool, now_ns: u64, cap: u64) -> u64 {
        self.bound.set_rate(now_ns, cap);
        let mut all = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let new = Use { taken, at_ns: now_ns, used: f64::INFINITY, is_even };
        let own = all.entry(job).or_insert(new);
        own.is_even = is_even;
        if cap == 0 {
            return 0;
        }
        let span_ns = now_ns.saturating_sub(own.at_ns);
        if span_ns >= SPAN_NS {
            let used = taken.saturating_sub(own.taken) as f64 * 1e9 / span_ns as f64;
            // Smoothed: ceilings that follow each other's last half second swing.
            own.used = if own.used.is_finite() { (own.used + used) / 2.0 } else { used };
            (own.taken, own.at_ns) = (taken, now_ns);
        }
        let even = cap as f64 / all.len() as f64;
        let wants = |it: &Use| match it.used {
            _ if it.is_even => even,
            used if used >= even * HUNGRY_PART => f64::INFINITY,
            used => used * ROOM,
        };
        let ceiling = if is_even { even } else { ceiling(all.values().map(wants).collect(), cap as f64) };
        (ceiling as u64).max(1)
    }

    /// The job is over.
    pub(super) fn forget(&self, job: JobNo) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).remove(&job);
    }
}

/// The ceiling under which these wants have the cap together; the cap itself where they want less than it.
fn ceiling(mut wants: Vec<f64>, cap: f64) -> f64 {
    wants.sort_by(f64::total_cmp);
    let mut left = cap;
    for (at, &wanted) in wants.iter().enumerate() {
        let even = left / (wants.len() - at) as f64;
        if wanted >= even {
            return even;
        }
        left -= wanted;
    }
    cap
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two jobs whose paths carry `own` B/s, for ten seconds under `cap`: what each had in the last of them.
    fn two(own: [f64; 2], cap: u64) -> [f64; 2] {
        let shares = Shares::default();
        let (mut taken, mut had) = ([0.0; 2], [0.0; 2]);
        for half_second in 0..20 {
            for at in 0..2 {
                let now_ns = (1 + half_second) * 500_000_000;
                let may = shares.of(at as JobNo, taken[at] as u64, false, now_ns, cap);
                had[at] = own[at].min(may as f64);
            }
            // What the daemon's bound does where both ceilings together are above it.
            let over = (cap as f64 / (had[0] + had[1])).min(1.0);
            for at in 0..2 {
                had[at] *= over;
                taken[at] += had[at] / 2.0;
            }
        }
        had
    }

    #[test]
    fn jobs_share_evenly_and_who_needs_less_leaves_the_rest() {
        let even = two([1e9, 1e9], 100_000_000);
        assert!(even.iter().all(|had| (had - 50e6).abs() < 2e6), "{even:?}");
        let [small, large] = two([10e6, 1e9], 100_000_000);
        assert!((small - 10e6).abs() < 1e6 && large > 88e6 && small + large <= 100_000_001.0, "{small} {large}");
    }

    #[test]
    fn jobs_of_one_key_have_its_rate_together_and_what_one_left_unpaid_the_next_one_pays() {
        let (accounts, daemon) = (Accounts::default(), Arc::new(Bound::default()));
        let key = Account::Key([7; 32]);
        let six: Vec<Arc<Shares>> = (0..6).map(|_| accounts.of(key, &daemon, 600, 0)).collect();
        for (job, shares) in six.iter().enumerate() {
            shares.of_account(job as JobNo, 0, false, 0);
        }
        assert!(six.iter().enumerate().all(|(job, shares)| shares.of_account(job as JobNo, 0, false, 1) == 100));
        accounts.forget(5);
        assert_eq!(six[0].of_account(0, 0, false, 1), 120, "one that is over has no part");
        six[0].bound.pay(1, 600);
        assert_eq!(six[5].bound.owes_ns(1), 1_000_000_000, "one bound for all of them");
        assert_eq!(daemon.taken(), 600, "below the daemon's");
        // Another key and a ticket of the same number of bytes have accounts of their own.
        for other in [Account::Key([8; 32]), Account::Ticket(7)] {
            assert_eq!(accounts.of(other, &daemon, 600, 1).bound.owes_ns(1), 0);
        }
        drop(six);
        assert_eq!(accounts.of(key, &daemon, 600, 500_000_001).bound.owes_ns(500_000_001), 500_000_000);
        assert_eq!(accounts.of(key, &daemon, 600, 2_000_000_000).bound.owes_ns(2_000_000_000), 0);
        assert_eq!(accounts.all().len(), 1, "what is paid for and has no job is forgotten");
    }

    #[test]
    fn packets_that_nothing_holds_have_their_even_part_and_a_job_that_is_over_has_none() {
        let shares = Shares::default();
        assert_eq!(shares.of(1, 0, true, 0, 90), 90);
        assert_eq!(shares.of(2, 0, false, 0, 90), 45);
        assert_eq!(shares.of(1, 0, true, 0, 90), 45);
        // Its rails turned out to be streams, and it takes little: the other has the rest; and no more than its part when datagrams come after all.
        let later = SPAN_NS;
        shares.of(1, 0, false, later, 90);
        assert_eq!(shares.of(2, 1_000, false, later, 90), 90);
        shares.of(1, 0, true, later, 90);
        assert_eq!(shares.of(2, 1_000, false, later, 90), 45);
        shares.forget(1);
        assert_eq!(shares.of(2, 0, false, 0, 90), 90);
        assert_eq!(shares.of(2, 0, false, 0, 0), 0, "no cap");
    }
}
