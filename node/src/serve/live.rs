//! Who is being served, and on whose word.
//!
//! For: rights that end what was begun under them: a revoked key, a revoked ticket, and the one job of a one-job ticket.
//! In and out: sessions enter with their keys and ticket, and leave; orders to end go out to them.
//! Invariants: a session whose key, or the key of whoever asked for its ticket, is revoked is told to end within `LOOK`; of a one-job ticket, with
//! all that was delegated from it, one session at a time is served, and the last to come is the one.
//! Absent on purpose: letting in (serve::session), ending (job::cancel).

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use proto::error::Refusal;

use crate::identity::keys::fingerprint;
use crate::identity::{Home, PublicKey, authorized};
use crate::job::cancel::Cancel;

/// The list of revoked keys is looked at so often while anybody is served.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// A job that another of the same ticket takes the place of is gone in this time: a turn, its last words, and its workers.
const LEAVES: Duration = Duration::from_secs(8);

/// What a session on a ticket that was taken back is told.
const REVOKED: &str = "the ticket is revoked here, and what it started ends";

#[derive(Debug)]
struct One {
    number: u64,
    keys: Vec<PublicKey>,
    one_job: Option<u64>,
    /// The ticket that let it in, and the one which that was delegated from.
    tickets: Vec<u64>,
    /// A relay: for whom, from where to where.
    relay: Option<Relayed>,
    cancel: Arc<Cancel>,
    /// Its job, once that is asked for.
    job: Option<[u8; 16]>,
}

/// Names a relay, for its client.
pub(super) type Relayed = [u8; 32];

/// What the file said when it was last read, and by what it would be seen to have changed.
#[derive(Debug, Default)]
struct Seen {
    stamp: Option<[i64; 6]>,
    revoked: HashSet<PublicKey>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Live {
    all: Mutex<(u64, Vec<One>)>,
    seen: Mutex<Seen>,
    /// Tickets that were taken back. As many as a user has typed; one that is shown meanwhile is found here.
    revoked: Mutex<HashSet<u64>>,
}

/// A session's place; it leaves when this goes.
#[derive(Debug)]
pub(super) struct Place<'a> {
    live: &'a Live,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.live.all().1.retain(|one| one.number != self.number);
    }
}

impl Place<'_> {
    /// This session was let in by these tickets. One that was revoked between its proof and now ends at once.
    pub(super) fn is_on(&self, tickets: Vec<u64>) {
        let mut all = self.live.all();
        let Some(own) = all.1.iter_mut().find(|one| one.number == self.number) else { return };
        own.tickets = tickets;
        // While the list is held: `revoke` looks at it after it has put the ticket down.
        let revoked = self.live.revoked();
        if own.tickets.iter().any(|ticket| revoked.contains(ticket)) {
            own.cancel.request(Refusal::NotAuthorized, REVOKED);
        }
    }

    /// This session asks for `job`, in the place of `after`, whose session its client lost: that one is told to end, and waited for, or it
    /// would hold the parts that this one goes on with. Only the client that began it may. False: it does not end.
    pub(super) fn takes_place(&self, job: [u8; 16], after: [u8; 16]) -> bool {
        let mut all = self.live.all();
        let Some(own) = all.1.iter_mut().find(|one| one.number == self.number) else { return true };
        own.job = Some(job);
        let key = own.keys.first().copied();
        let is_it = |one: &One| one.number != self.number && one.job == Some(after) && one.keys.first().copied() == key;
        for one in all.1.iter().filter(|one| is_it(one)) {
            one.cancel.request(Refusal::Superseded, "its client lost this session and has made another");
        }
        drop(all);
        self.live.has_left(is_it)
    }
}

impl Live {
    fn all(&self) -> MutexGuard<'_, (u64, Vec<One>)> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session on the word of these keys. Others of the same one-job ticket are told to end, and waited for. `None`: one does not.
    pub(super) fn enter(&self, keys: Vec<PublicKey>, one_job: Option<u64>, cancel: &Arc<Cancel>) -> Option<Place<'_>> {
        let number = {
            let mut all = self.all();
            let number = all.0;
            all.0 += 1;
            for one in all.1.iter().filter(|one| one_job.is_some() && one.one_job == one_job) {
                one.cancel.request(Refusal::TicketSpent, "another job has begun on the same one-job ticket");
            }
            let cancel = Arc::clone(cancel);
            all.1.push(One { number, keys, one_job, tickets: Vec::new(), relay: None, cancel, job: None });
            number
        };
        let place = Place { live: self, number };
        let is_before = |one: &One| one_job.is_some() && one.one_job == one_job && one.number < number;
        self.has_left(is_before).then_some(place)
    }

    fn revoked(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.revoked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends what runs on the word of these tickets: how many sessions are told to end.
    pub(super) fn revoke(&self, tickets: &[u64]) -> usize {
        self.revoked().extend(tickets);
        let all = self.all();
        let on_them = all.1.iter().filter(|one| one.tickets.iter().any(|ticket| tickets.contains(ticket)));
        on_them.map(|one| one.cancel.request(Refusal::NotAuthorized, REVOKED)).count()
    }

    /// Sessions that this ticket, or one that was delegated from it, let in.
    pub(super) fn count_on(&self, ticket: u64) -> usize {
        self.all().1.iter().filter(|one| one.tickets.contains(&ticket)).count()
    }

    /// Have these left, within the time that a job takes to end?
    fn has_left(&self, who: impl Fn(&One) -> bool) -> bool {
        let until = Instant::now() + LEAVES;
        while self.all().1.iter().any(&who) {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    /// This session is that relay from now on. `again`: its client lost the session of an earlier one, which is told to end, and waited for. False:
    /// it does not.
    pub(super) fn relays(&self, cancel: &Arc<Cancel>, relay: Relayed, again: bool) -> bool {
        let is_other = |one: &One| one.relay == Some(relay) && !Arc::ptr_eq(&one.cancel, cancel);
        {
            let mut all = self.all();
            if again {
                let others = all.1.iter().filter(|one| is_other(one));
                others.for_each(|one| {
                    one.cancel.request(Refusal::Superseded, "its client lost it and has begun it again")
                });
            }
            all.1.iter_mut().filter(|one| Arc::ptr_eq(&one.cancel, cancel)).for_each(|one| one.relay = Some(relay));
        }
        !again || self.has_left(is_other)
    }

    /// Ends what runs on the word of revoked keys. The file is read when it has changed; one that cannot be read lets nobody new in, and ends
    /// nothing: why is told once.
    pub(super) fn look(&self, home: &Home, tell: impl Fn(&str)) {
        if self.all().1.is_empty() {
            return;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = std::fs::metadata(home.path(authorized::REVOKED)).ok().map(|facts| {
            let (dev, ino) = (facts.dev().cast_signed(), facts.ino().cast_signed());
            [dev, ino, facts.mtime(), facts.mtime_nsec(), facts.ctime_nsec(), facts.len().cast_signed()]
        });
        if stamp != seen.stamp {
            seen.stamp = stamp;
            match authorized::revoked(home) {
                Ok(keys) => seen.revoked = keys.into_iter().collect(),
                Err(error) => tell(&format!("the list of revoked keys cannot be read, and ends nothing: {error}")),
            }
        }
        for one in &self.all().1 {
            if let Some(key) = one.keys.iter().find(|key| seen.revoked.contains(*key)) {
                let why = format!("the key {} is revoked here, and what it started ends", fingerprint(key));
                one.cancel.request(Refusal::NotAuthorized, why);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;

    #[test]
    fn a_revoked_key_ends_what_runs_on_its_word_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("longhaul-live-{}", std::process::id()));
        let home = Home::at(&folder).expect("a home");
        let key = || Identity::ephemeral().expect("a key").public();
        let (alice, bob, relay) = (key(), key(), key());
        let live = Live::default();
        let cancels: [Arc<Cancel>; 3] = Default::default();
        let enter = |keys: &[PublicKey], cancel| live.enter(keys.to_vec(), None, cancel).expect("there is room");
        let _places = [enter(&[alice], &cancels[0]), enter(&[bob], &cancels[1]), enter(&[relay, alice], &cancels[2])];
        let ordered = || [0, 1, 2].map(|at: usize| cancels[at].requested().map(|(refusal, _)| refusal));
        live.look(&home, |_| ());
        assert_eq!(ordered(), [None; 3]);
        authorized::revoke(&home, &alice, "").expect("written");
        live.look(&home, |_| ());
        let refused = Some(Refusal::NotAuthorized);
        assert_eq!(ordered(), [refused, None, refused], "its own job, and the one that it asked another host for");
        let late = Arc::new(Cancel::default());
        let _place = enter(&[alice], &late);
        live.look(&home, |_| ());
        assert!(late.requested().is_some(), "one that was let in as the key was being revoked");
        std::fs::remove_dir_all(folder).expect("it is there");
    }

    #[test]
    fn of_a_one_job_ticket_the_last_session_to_come_is_the_one_that_is_served() {
        let live = Live::default();
        let cancels: [Arc<Cancel>; 3] = Default::default();
        let first = live.enter(vec![], Some(7), &cancels[0]).expect("the first");
        let _other = live.enter(vec![], Some(8), &cancels[2]).expect("another ticket's");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| live.enter(vec![], Some(7), &cancels[1]).map(|place| place.number));
            while cancels[0].requested().is_none() {
                std::thread::yield_now();
            }
            assert!(!second.is_finished(), "it waits until the first is gone");
            drop(first);
            assert_eq!(second.join().expect("no panic"), Some(2));
        });
        assert!(cancels[1].requested().is_none() && cancels[2].requested().is_none());
    }

    #[test]
    fn a_revoked_ticket_ends_what_runs_on_it_also_what_was_let_in_as_it_was_being_revoked() {
        let live = Live::default();
        let cancels: [Arc<Cancel>; 4] = Default::default();
        let places = cancels.each_ref().map(|cancel| live.enter(vec![], None, cancel).expect("there is room"));
        places[0].is_on(vec![7]);
        places[1].is_on(vec![9, 7]);
        places[2].is_on(vec![8]);
        assert_eq!((live.count_on(7), live.count_on(9), live.count_on(5)), (2, 1, 0));
        assert_eq!(live.revoke(&[7, 9]), 2);
        places[3].is_on(vec![7]);
        let ordered = cancels.each_ref().map(|cancel| cancel.requested().map(|(refusal, _)| refusal));
        let refused = Some(Refusal::NotAuthorized);
        assert_eq!(ordered, [refused, refused, None, refused]);
    }
}
