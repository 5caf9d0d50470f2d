//! The registry: jobs of this process that run, what each shows, and what is asked of it.
//!
//! For: `longhaul job`, which looks at running jobs and changes or stops them; `longhaul ticket`, which asks of a daemon's tickets.
//! In and out: job drivers register what they are and how they go; clients (registry/socket.rs) read it, and leave what they want for the job driver to take.
//! Invariants: nobody but the job driver touches its job; each question has one answer, also if the job ends meanwhile; no secret of an
//! address is on the registry.
//! Absent on purpose: the words of the command line (job_command.rs), what a request means for a job (driver/runtime_changes.rs).

mod socket; // the control socket

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proto::rate::Policy;
use serde::{Deserialize, Serialize};
use sys::event::Event;

use crate::identity::Home;
use text::exit::{Exit, Failure};

pub use socket::{ControlSocket, control_sockets, sweep};

/// A job driver looks at what is asked at least ten times a second; one that does not answer for so long is held by something.
const ANSWER: Duration = Duration::from_secs(3);
/// A job that ends waits no longer than this for the answers that it gave to be on their way: its process may end with it.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// A job's name, and what the registry is asked by: 32 hexadecimal digits.
const NAME_BYTES: usize = 16;

/// What is to change; `None` stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// This end's own cap, bit/s; 0: none.
    pub rate_bps: Option<u64>,
    /// Never slower than this, bit/s; 0: no bound.
    pub min_rate_bps: Option<u64>,
    /// The claim against others, by its name.
    #[serde(with = "policy_name")]
    pub policy: Option<Policy>,
}

/// A question to a registry: one line of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase", deny_unknown_fields)]
pub enum Question {
    /// Which jobs run?
    List {},
    /// Change this one.
    Set { job: String, change: Change },
    /// End it; the next run resumes.
    Stop { job: String },
    /// Which tickets are good at this daemon?
    Tickets {},
    /// Let nobody in by this one any more, and end what runs on it.
    Revoke { ticket: String },
}

/// What a registry says: one line of JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub enum Answer {
    /// All that run.
    Jobs { jobs: Vec<Shown> },
    /// All that are good.
    Tickets { tickets: Vec<ShownTicket> },
    /// It is so from now on.
    Done { text: String },
    /// It is not.
    Failed { code: u8, what: String, cause: String, next: String },
}

impl Answer {
    /// A failure as it is told.
    #[must_use]
    pub fn failed(failure: &Failure) -> Answer {
        let Failure { exit, what, cause, next_step, .. } = failure.clone();
        Answer::Failed { code: exit.code(), what, cause, next: next_step }
    }
}

/// A job as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// Its name, hexadecimal; the same at both ends and in the receipt.
    pub job: String,
    /// The process that runs it.
    pub pid: u32,
    /// `sends`, `receives`; `copies`: both ends are in this process.
    pub end: String,
    /// This end asked for the job.
    pub initiates: bool,
    /// Sources and destination, without secrets.
    pub what: String,
    /// When it began, seconds since 1970.
    pub began_unix_s: u64,
    /// How it goes.
    #[serde(flatten)]
    pub now: Now,
}

/// A ticket as it is shown, which is without its secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShownTicket {
    /// Its random name, hexadecimal.
    pub ticket: String,
    /// The daemon that gave it out.
    pub pid: u32,
    /// `once`, `reusable`; `delegated`: for one job of another host, in a client's place.
    pub kind: String,
    /// `rw`, `ro` or `wo`.
    pub access: String,
    /// The folder that it confines to; `null`: the daemon's root.
    pub root: Option<String>,
    /// Its cap, bit/s; 0: none.
    pub rate_bps: u64,
    /// It may set what is privileged, where the daemon permits that.
    pub privileged: bool,
    /// When it was made, seconds since 1970.
    pub issued_unix_s: u64,
    /// Until when it is good; `null`: until its daemon ends.
    pub expires_unix_s: Option<u64>,
    /// Fingerprint of the key that a one-job ticket belongs to, once somebody has shown it.
    pub holder: Option<String>,
    /// Of a delegated one: fingerprint of the key that asked for it.
    pub issuer: Option<String>,
    /// Of a delegated one: the ticket that it came from; `null`: a key.
    pub parent: Option<String>,
    /// Of a delegated one: the paths that it is for.
    pub targets: Vec<String>,
    /// Sessions that it let in.
    pub sessions: u64,
    /// Those that run on it now, or on one that was delegated from it.
    pub running: usize,
}

/// What a daemon is asked of its tickets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TicketRequest {
    /// Which are good?
    List,
    /// Take this one back.
    Revoke(String),
}

/// Who answers for the tickets of this process.
struct TicketDesk(Box<dyn Fn(TicketRequest) -> Answer + Send + Sync>);

impl std::fmt::Debug for TicketDesk {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("TicketDesk")
    }
}

/// How a job goes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Now {
    /// Bytes that are at the destination, kept ones included.
    pub bytes_done: u64,
    /// Of so many; `None`: the scan is not over.
    pub bytes_total: Option<u64>,
    /// Files that are done.
    pub files_done: u64,
    /// Of so many, as far as they are known.
    pub files_total: u64,
    /// Payload lately, bit/s.
    pub rate_bps: f64,
    /// Rails that carry.
    pub rails: usize,
    /// `tcp`, `udp` or `tcp and udp`.
    pub transport: String,
    /// The cap of both ends, bit/s; 0: none.
    pub cap_bps: u64,
    /// What finds the rate of datagrams.
    pub controller: String,
    /// Their claim against others.
    pub policy: String,
    /// Their least rate, bit/s; 0: none.
    pub min_rate_bps: u64,
}

mod policy_name {
    use super::{Deserialize, Policy};
    use serde::{Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(policy: &Option<Policy>, to: S) -> Result<S::Ok, S::Error> {
        match policy {
            Some(policy) => to.serialize_some(policy.name()),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<Policy>, D::Error> {
        let Some(name) = Option::<String>::deserialize(from)? else { return Ok(None) };
        let all = [Policy::Fixed, Policy::High, Policy::Fair, Policy::Low];
        let found = all.into_iter().find(|policy| policy.name() == name);
        found.map(Some).ok_or_else(|| D::Error::custom("no such policy"))
    }
}

/// What a client wants of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Another pace.
    Change(Change),
    /// Its end.
    Stop,
}

/// One question, with the way back.
#[derive(Debug)]
pub struct PendingRequest {
    /// What is wanted.
    pub wanted: Wanted,
    /// What came of it.
    pub answer: SyncSender<Result<String, Failure>>,
}

/// What a job driver posts of its job.
#[derive(Debug)]
struct Listing {
    name: String,
    end: &'static str,
    initiates: bool,
    what: String,
    began: SystemTime,
    now: Mutex<Now>,
    asked: Mutex<VecDeque<PendingRequest>>,
    /// Questions to this job whose answer is not yet on its way to the client.
    unanswered: Mutex<usize>,
    answered: Condvar,
    wake: Event,
    is_over: AtomicBool,
}

impl Listing {
    fn shown(&self) -> Shown {
        Shown {
            job: self.name.clone(),
            pid: std::process::id(),
            end: self.end.to_owned(),
            initiates: self.initiates,
            what: self.what.clone(),
            began_unix_s: self.began.duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs()),
            now: lock(&self.now).clone(),
        }
    }

    fn ask(&self, wanted: Wanted) -> Result<String, Failure> {
        let (answer, answered): (_, Receiver<_>) = sync_channel(1);
        lock(&self.asked).push_back(PendingRequest { wanted, answer });
        if self.is_over.load(Ordering::SeqCst) {
            // The job driver has taken its last look, perhaps before this question stood there.
            lock(&self.asked).clear();
        }
        self.wake.signal();
        answered.recv_timeout(ANSWER).unwrap_or_else(|silent| {
            let cause = match silent {
                std::sync::mpsc::RecvTimeoutError::Timeout => "it does not answer: something holds its process",
                std::sync::mpsc::RecvTimeoutError::Disconnected => "it ended meanwhile",
            };
            Err(Exit::Vanished.fail(format!("ask job {}", self.name), cause))
        })
    }
}

/// A job's place on the registry; it leaves when this goes.
#[derive(Debug)]
pub struct Registration {
    registry: Arc<Registry>,
    listing: Arc<Listing>,
}

impl Registration {
    /// How it goes now.
    pub fn show(&self, now: Now) {
        *lock(&self.listing.now) = now;
    }

    /// The next question.
    pub fn take(&self) -> Option<PendingRequest> {
        lock(&self.listing.asked).pop_front()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&self.registry.listings).retain(|listing| !Arc::ptr_eq(listing, &self.listing));
        self.listing.is_over.store(true, Ordering::SeqCst);
        lock(&self.listing.asked).clear();
        let unanswered = lock(&self.listing.unanswered);
        drop(self.listing.answered.wait_timeout_while(unanswered, LAST_WORDS, |count| *count > 0));
    }
}

/// What a job is, for those who look at the registry.
#[derive(Debug)]
pub struct Title {
    /// Its random name.
    pub job: [u8; NAME_BYTES],
    /// `sends`, `receives` or `copies`.
    pub end: &'static str,
    /// This end asked for it.
    pub initiates: bool,
    /// Sources and destination.
    pub what: String,
}

/// The running jobs of one node, and the control socket at which they are asked things.
#[derive(Debug, Default)]
pub struct Registry {
    listings: Mutex<Vec<Arc<Listing>>>,
    /// Where clients ask; none: it is not open to them.
    socket: OnceLock<PathBuf>,
    /// A daemon's; none: this process gives no tickets out.
    tickets: OnceLock<TicketDesk>,
}

impl Registry {
    /// A registry whose control socket this user can reach. Where none can be (no home that can be written), jobs run all the same, and `tell` is
    /// told why.
    pub fn open(home: &Home, tell: impl FnOnce(&str)) -> Arc<Registry> {
        let registry = Arc::new(Registry::default());
        match socket::listen(home, &registry) {
            Ok(path) => drop(registry.socket.set(path)),
            Err(error) => tell(&format!("`longhaul job` will not find the jobs of this process: {error}")),
        }
        registry
    }

    /// Whoever asks of tickets is answered by `answer` from now on.
    pub fn answer_for_tickets(&self, answer: impl Fn(TicketRequest) -> Answer + Send + Sync + 'static) {
        let _ = self.tickets.set(TicketDesk(Box::new(answer)));
    }

    fn of_tickets(&self, request: TicketRequest) -> Answer {
        match (self.tickets.get(), request) {
            (Some(desk), request) => (desk.0)(request),
            (None, TicketRequest::List) => Answer::Tickets { tickets: Vec::new() },
            (None, TicketRequest::Revoke(ticket)) => {
                Answer::failed(&Exit::Vanished.fail(format!("revoke ticket {ticket}"), "this process gave none out"))
            }
        }
    }

    /// Takes the control socket away, before a process ends without dropping what it has.
    pub fn shut(&self) {
        if let Some(path) = self.socket.get() {
            socket::shut(path);
        }
    }

    /// A job begins; its `wake` is signalled when something is asked.
    pub fn post(self: &Arc<Self>, title: Title, wake: Event) -> Registration {
        let Title { job, end, initiates, what } = title;
        let listing = Arc::new(Listing {
            name: hex(&job),
            end,
            initiates,
            what,
            began: SystemTime::now(),
            now: Mutex::default(),
            asked: Mutex::default(),
            unanswered: Mutex::default(),
            answered: Condvar::new(),
            wake,
            is_over: AtomicBool::new(false),
        });
        lock(&self.listings).push(Arc::clone(&listing));
        Registration { registry: Arc::clone(self), listing }
    }

    /// Gives the answer to `give`, which sends it. The job that was asked does not end before that, so neither does its process.
    fn answer<T>(&self, question: Question, give: impl FnOnce(Answer) -> T) -> T {
        let (job, wanted) = match question {
            Question::List {} => {
                return give(Answer::Jobs {
                    jobs: lock(&self.listings).iter().map(|listing| listing.shown()).collect(),
                });
            }
            Question::Tickets {} => return give(self.of_tickets(TicketRequest::List)),
            Question::Revoke { ticket } => return give(self.of_tickets(TicketRequest::Revoke(ticket))),
            Question::Set { job, change } => (job, Wanted::Change(change)),
            Question::Stop { job } => (job, Wanted::Stop),
        };
        let listing = lock(&self.listings).iter().find(|listing| listing.name == job).cloned();
        let Some(listing) = listing else {
            return give(Answer::failed(&Exit::Vanished.fail(format!("ask job {job}"), "it is over")));
        };
        *lock(&listing.unanswered) += 1;
        let given = give(match listing.ask(wanted) {
            Ok(text) => Answer::Done { text },
            Err(failure) => Answer::failed(&failure),
        });
        *lock(&listing.unanswered) -= 1;
        listing.answered.notify_all();
        given
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.shut();
    }
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn title(job: u8) -> Title {
        Title { job: [job; 16], end: "sends", initiates: true, what: "a -> b".to_owned() }
    }

    #[test]
    fn a_job_is_seen_while_it_runs_and_a_question_to_one_that_ended_is_answered() {
        let registry = Arc::new(Registry::default());
        let wake = Event::new().unwrap();
        let registration = registry.post(title(7), wake.clone());
        registration.show(Now { bytes_done: 5, ..Now::default() });
        let Answer::Jobs { jobs } = registry.answer(Question::List {}, |answer| answer) else { panic!("no list") };
        assert_eq!((jobs[0].job.as_str(), jobs[0].now.bytes_done), ("07".repeat(16).as_str(), 5));
        // The job driver's side.
        let job = jobs[0].job.clone();
        let client = {
            let registry = Arc::clone(&registry);
            std::thread::spawn(move || registry.answer(Question::Stop { job }, |answer| answer))
        };
        let asked = loop {
            if let Some(asked) = registration.take() {
                break asked;
            }
            std::thread::yield_now();
        };
        assert_eq!(asked.wanted, Wanted::Stop);
        asked.answer.send(Ok("stopped".to_owned())).unwrap();
        assert_eq!(client.join().unwrap(), Answer::Done { text: "stopped".to_owned() });
        // A question that nobody took is answered when the job goes, and so is one that comes after.
        let listing = Arc::clone(&registration.listing);
        let client = std::thread::spawn(move || listing.ask(Wanted::Stop));
        let listing = Arc::clone(&registration.listing);
        while lock(&listing.asked).is_empty() {
            std::thread::yield_now();
        }
        drop(registration);
        assert_eq!(client.join().unwrap().unwrap_err().exit, Exit::Vanished);
        assert_eq!(listing.ask(Wanted::Stop).unwrap_err().exit, Exit::Vanished);
        assert_eq!(registry.answer(Question::List {}, |answer| answer), Answer::Jobs { jobs: vec![] });
        let over = registry.answer(Question::Stop { job: "07".repeat(16) }, |answer| answer);
        assert!(matches!(over, Answer::Failed { code: 5, .. }), "{over:?}");
    }

    #[test]
    fn a_job_that_ends_because_it_was_asked_to_waits_until_its_answer_is_sent() {
        let registry = Arc::new(Registry::default());
        let registration = registry.post(title(9), Event::new().unwrap());
        let is_sent = Arc::new(AtomicBool::new(false));
        let client = {
            let (registry, is_sent) = (Arc::clone(&registry), Arc::clone(&is_sent));
            std::thread::spawn(move || {
                registry.answer(Question::Stop { job: "09".repeat(16) }, |answer| {
                    // The core is somebody else's just now.
                    std::thread::sleep(Duration::from_millis(50));
                    is_sent.store(true, Ordering::SeqCst);
                    answer
                })
            })
        };
        let asked = loop {
            if let Some(asked) = registration.take() {
                break asked;
            }
            std::thread::yield_now();
        };
        asked.answer.send(Ok("stopped".to_owned())).unwrap();
        drop(registration);
        assert!(is_sent.load(Ordering::SeqCst), "the process would have ended with the answer unsent");
        assert_eq!(client.join().unwrap(), Answer::Done { text: "stopped".to_owned() });
    }

    #[test]
    fn questions_and_answers_are_lines_that_are_read_back() {
        let change = Change { rate_bps: Some(0), policy: Some(Policy::Low), min_rate_bps: None };
        for question in [Question::List {}, Question::Set { job: "ab".into(), change }] {
            let line = serde_json::to_string(&question).unwrap();
            assert_eq!(serde_json::from_str::<Question>(&line).unwrap(), question, "{line}");
        }
        for bad in ["", "{}", r#"{"ask":"stop"}"#, r#"{"ask":"set","job":"a","change":{"policy":"greedy"}}"#, "[1]"] {
            assert!(serde_json::from_str::<Question>(bad).is_err(), "{bad}");
        }
    }
}
