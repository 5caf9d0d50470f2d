//! Names of users and groups that stand on none of this host's own lists: LDAP, SSSD, systemd's users.
//!
//! For: owners by name, at both ends of a job and in listings; a static binary has no name service of its own.
//! In and out: numbers or names in; names with numbers out, as far as this host's name service knows them and says so in time.
//! Invariants: who asks waits for `PATIENCE` at most, and not at all while an earlier question is still open; what is asked is a name that could be
//! one, so nothing of a peer's becomes an option or a word of a protocol; answers are remembered, also that there is none; both are bounded.
//! Absent on purpose: this host's own lists (`engine::tree::ids`), who may set owners.
//!
//! ```text
//! a job's thread  →  cache  →  the thread `names`  →  userdbd's socket (userdb), else
//!                                                     getent as a child (getent), or where this process may start none:
//!                                                     a child of ours that does, started before (resolver)
//! ```

pub mod getent; // getent(1) as a child
pub mod resolver; // the same through a child that was started before
mod userdb; // systemd-userdbd's socket

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::tree::ids::{Answer, Key, Question, ask_at};
use proto::wire::control::ID_NAME_BYTES_MAX;

use resolver::Resolver;

/// A thread of a job waits for so long: a job driver that says nothing for 1.5 s is looked for over another connection.
pub const PATIENCE: Duration = Duration::from_millis(700);
/// And the name service has so long: it may have to ask another host.
const SERVICE_PATIENCE: Duration = Duration::from_secs(5);
/// One that did not answer in that time is asked again after this.
const REST: Duration = Duration::from_secs(60);
/// Answers are remembered for so long, and that there is none for so long: somebody may be making that user.
const KNOWN_FOR: Duration = Duration::from_secs(600);
const UNKNOWN_FOR: Duration = Duration::from_secs(60);
/// So many answers, some 10 MB of the longest names; then all are forgotten.
const ANSWERS_MAX: usize = 32_768;
/// Where userdbd listens for all of its services (systemd-userdbd.service(8)).
const USERDB: &str = "/run/systemd/userdb/io.systemd.Multiplexer";

/// A user or group: name and number.
type Known = (Box<[u8]>, u32);

/// What one source says: `Err`: it cannot be asked, or did not answer in time; then the next one is.
type Said = std::io::Result<Vec<Option<Known>>>;

/// Where names are asked for, in this order; each is tried where the one before it failed.
#[derive(Debug)]
enum Source {
    Userdb(PathBuf),
    Getent(PathBuf),
    Resolver(Resolver),
}

impl Source {
    fn ask(&mut self, questions: &[Question]) -> Said {
        match self {
            Source::Userdb(socket) => userdb::ask(socket, questions, SERVICE_PATIENCE),
            Source::Getent(program) => getent::ask(program, questions, SERVICE_PATIENCE),
            Source::Resolver(resolver) => resolver.ask(questions),
        }
    }
}

/// Remembered: until when, and what.
type Kept = (u64, Option<Known>);

#[derive(Debug, Default)]
struct Shared {
    kept: Mutex<HashMap<Question, Kept>>,
    /// Somebody waited in vain, and the answer is still to come.
    is_late: AtomicBool,
    /// Nobody is asked before, ns.
    rests_until: AtomicU64,
}

/// Questions, and where the answers go.
type Asked = (Vec<Question>, Sender<Option<Vec<Option<Known>>>>);

/// The name service of this process.
#[derive(Debug)]
pub struct Names {
    shared: Arc<Shared>,
    /// To the thread, which is started with the first question.
    to: Mutex<Option<Sender<Asked>>>,
    sources: Mutex<Vec<Source>>,
}

impl Names {
    fn new(sources: Vec<Source>) -> Names {
        Names { shared: Arc::default(), to: Mutex::default(), sources: Mutex::new(sources) }
    }

    /// What this process may ask by itself.
    #[must_use]
    pub fn of_this_host() -> Names {
        Names::new(vec![Source::Userdb(USERDB.into()), Source::Getent("getent".into())])
    }

    /// What a process may ask that starts no program from now on: the child that does is started here. There is none where it has nobody to ask.
    #[must_use]
    pub fn of_confined(program: &Path) -> Names {
        let mut sources = vec![Source::Userdb(USERDB.into())];
        if getent::is_there() {
            sources.extend(Resolver::start(program).ok().map(Source::Resolver));
        }
        Names::new(sources)
    }

    /// All jobs of this process ask here from now on, unless they do elsewhere already.
    pub fn install(self) {
        ask_at(Box::new(move |questions| self.ask(questions)));
    }

    /// One answer for each question, after `PATIENCE` at most.
    pub fn ask(&self, questions: &[Question]) -> Vec<Answer> {
        let now = sys::clock::now_ns();
        let mut answers: Vec<Option<Answer>> = questions.iter().map(|it| self.remembered(it, now)).collect();
        let open: Vec<Question> = answers
            .iter()
            .zip(questions)
            .filter(|(answer, _)| answer.is_none())
            .map(|(_, question)| question.clone())
            .collect();
        if !open.is_empty() {
            let mut came = self.call(open, now).into_iter().flatten();
            for answer in answers.iter_mut().filter(|it| it.is_none()) {
                *answer = came.next().map(answer_of);
            }
        }
        answers.into_iter().map(|it| it.unwrap_or(Answer::Silent)).collect()
    }

    fn remembered(&self, question: &Question, now: u64) -> Option<Answer> {
        if !is_askable(&question.key) {
            return Some(Answer::Unknown);
        }
        let kept = self.shared.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(question).filter(|(until, _)| *until > now).map(|(_, known)| answer_of(known.clone()))
    }

    /// Asks the thread; `None`: no answer in time.
    fn call(&self, open: Vec<Question>, now: u64) -> Option<Vec<Option<Known>>> {
        let shared = &self.shared;
        if shared.is_late.load(Ordering::SeqCst) || shared.rests_until.load(Ordering::SeqCst) > now {
            return None;
        }
        let (reply, answer) = channel();
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        if to.is_none() {
            let sources = std::mem::take(&mut *self.sources.lock().unwrap_or_else(PoisonError::into_inner));
            *to = begin(Arc::clone(shared), sources);
        }
        to.as_ref()?.send((open, reply)).ok()?;
        drop(to);
        answer.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            shared.is_late.store(true, Ordering::SeqCst);
            None
        })
    }
}

fn answer_of(known: Option<Known>) -> Answer {
    known.map_or(Answer::Unknown, |(name, id)| Answer::Known(name, id))
}

/// Could somebody be called so? Words of two protocols and a command line hang on it.
fn is_askable(key: &Key) -> bool {
    let Key::Name(name) = key else { return true };
    let is_text = std::str::from_utf8(name).is_ok_and(|it| !it.chars().any(char::is_control));
    let is_number = name.iter().all(u8::is_ascii_digit);
    is_text && !is_number && name.len() <= ID_NAME_BYTES_MAX && !name.starts_with(b"-") && !name.contains(&b':')
}

/// The thread that asks.
fn begin(shared: Arc<Shared>, mut sources: Vec<Source>) -> Option<Sender<Asked>> {
    let (to, from): (_, Receiver<Asked>) = channel();
    let run = move || {
        while let Ok((questions, reply)) = from.recv() {
            // What stands here was asked for while the one before was being answered; whoever waited for it is gone.
            let found = sources.iter_mut().find_map(|source| source.ask(&questions).ok());
            let now = sys::clock::now_ns();
            match &found {
                Some(found) => keep(&shared, questions, found, now),
                None => shared.rests_until.store(now + ns(REST), Ordering::SeqCst),
            }
            let _ = reply.send(found);
            shared.is_late.store(false, Ordering::SeqCst);
        }
    };
    std::thread::Builder::new().name("names".to_owned()).spawn(run).ok().map(|_| to)
}

fn keep(shared: &Shared, questions: Vec<Question>, found: &[Option<Known>], now: u64) {
    let mut kept = shared.kept.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.len() + questions.len() > ANSWERS_MAX {
        kept.clear();
    }
    for (question, known) in questions.into_iter().zip(found) {
        let span = if known.is_some() { KNOWN_FOR } else { UNKNOWN_FOR };
        kept.insert(question, (now + ns(span), known.clone()));
    }
}

fn ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
