//! `longhaul job`: running jobs of this user on this host, seen, changed and stopped.
//!
//! For: people who must give way to others now, or see what a daemon does; those that ended are a list (`lists::history`).
//! In and out: words of the command line → questions to the registries of running processes; what they say, on standard output.
//! Invariants: a job is named by the first digits of its name, and is never guessed; what changed is said as the job says it.
//! Absent on purpose: other users' and other hosts' jobs: who may ask is who may enter LONGHAUL_HOME.

use std::io::Write;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::bail;
use clap::{ArgGroup, Args, Subcommand};
use proto::rate::Policy;

use crate::args::PolicyChoice;
use crate::lists::{self, history::HistoryArguments};
use crate::report::clean;
use node::identity::Home;
use node::job::registry::{Answer, Change, ControlSocket, Question, Registry, Shown, control_sockets};
use node::report::history::History;
use text::exit::{Exit, Failure};
use text::table::Table;
use text::units::{self, exact_rate, show_bits_per_second, show_bytes, show_count, show_seconds};

/// Digits of a job's name that are shown: enough for a million jobs at once.
const SHOWN_DIGITS: usize = 8;

/// Where the jobs of this process are shown: the command line has one node.
static SHOWN: OnceLock<Weak<Registry>> = OnceLock::new();

/// And where they have their lines once they ended.
static HISTORY: OnceLock<Weak<History>> = OnceLock::new();

/// The jobs of this process are shown here, until it ends, and have their lines there.
pub fn shown_at(registry: &Arc<Registry>, history: &Arc<History>) {
    let _ = SHOWN.set(Arc::downgrade(registry));
    let _ = HISTORY.set(Arc::downgrade(history));
}

/// The process ends at once, and with it the jobs that run, for this reason.
pub fn end_all(failure: &Failure) {
    if let Some(history) = HISTORY.get().and_then(Weak::upgrade) {
        history.end_all(failure);
    }
    shut();
}

/// Takes the control socket away where the process ends without dropping its node.
pub fn shut() {
    if let Some(registry) = SHOWN.get().and_then(Weak::upgrade) {
        registry.shut();
    }
}

/// What can be done with running jobs.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum JobCommand {
    /// Show the jobs that run: those of `cp` and `sync` of this user, and those of a daemon with the same LONGHAUL_HOME
    List {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show all that is known of one job
    Show {
        /// The first digits of its name, as `longhaul job list` shows it
        job: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show the jobs of this user on this host that ended, newest first: those of `cp` and `sync`, and those of daemons with the same LONGHAUL_HOME
    History(HistoryArguments),
    /// Change how fast a running job may go, and its share beside other flows; both ends follow
    Set(SetArguments),
    /// End a running job; the same command, given again, goes on where it was
    Stop {
        /// The first digits of its name, as `longhaul job list` shows it
        job: String,
    },
}

/// `longhaul job set`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(group(ArgGroup::new("change").required(true).multiple(true)))]
pub struct SetArguments {
    /// The first digits of its name, as `longhaul job list` shows it
    job: String,
    /// This end's cap: 10Gbit, 800Mbit/s (bits), 1.5GB/s (bytes), or `none`; a smaller cap of the other end stays in force
    #[arg(long, value_name = "RATE", value_parser = rate_or_none, group = "change")]
    rate: Option<u64>,
    /// UDP: the share taken beside other flows on the path
    #[arg(long, value_enum, group = "change")]
    policy: Option<PolicyChoice>,
    /// UDP: never slower than this, whoever else is on the path; `none` for no bound
    #[arg(long, value_name = "RATE", value_parser = rate_or_none, group = "change")]
    min_rate: Option<u64>,
}

fn rate_or_none(text: &str) -> Result<u64, units::UnitError> {
    if text == "none" { Ok(0) } else { units::parse_rate(text) }
}

/// Runs `longhaul job`.
pub fn run(command: JobCommand) -> anyhow::Result<()> {
    let home = Home::find()?;
    if let JobCommand::History(arguments) = &command {
        return lists::history::run(&home, arguments);
    }
    let mut out = std::io::stdout().lock();
    let running = running(&home)?;
    match command {
        JobCommand::History(_) => unreachable!("it asks nobody"),
        JobCommand::List { json: true } => {
            let jobs: Vec<&Shown> = running.iter().map(|(_, job)| job).collect();
            writeln!(out, "{}", serde_json::to_string(&jobs)?)?;
        }
        JobCommand::List { json: false } if running.is_empty() => {
            writeln!(out, "no job runs here (of LONGHAUL_HOME {})", home.path("").display())?;
        }
        JobCommand::List { json: false } => write!(out, "{}", list(&running))?,
        JobCommand::Show { job, json } => {
            let (_, job) = find(&running, &job)?;
            if json { writeln!(out, "{}", serde_json::to_string(job)?)? } else { write!(out, "{}", show(job))? }
        }
        JobCommand::Set(SetArguments { job, rate, policy, min_rate }) => {
            let (socket, job) = find(&running, &job)?;
            let change = Change { rate_bps: rate, min_rate_bps: min_rate, policy: policy.map(Policy::from) };
            let said = ask(socket, job, &Question::Set { job: job.job.clone(), change })?;
            writeln!(out, "{}: {said}", short(job))?;
        }
        JobCommand::Stop { job } => {
            let (socket, job) = find(&running, &job)?;
            let said = ask(socket, job, &Question::Stop { job: job.job.clone() })?;
            writeln!(out, "{}: {said}", short(job))?;
        }
    }
    Ok(())
}

/// All jobs, oldest first, and where each is asked. Of a job whose two ends are here, the end that asked for it stands first.
fn running(home: &Home) -> anyhow::Result<Vec<(ControlSocket, Shown)>> {
    let mut all = Vec::new();
    each_answer(home, &Question::List {}, |socket, answer| match answer {
        Answer::Jobs { jobs } => {
            all.extend(jobs.into_iter().map(|job| (socket.clone(), job)));
            None
        }
        other => Some(other),
    })?;
    all.sort_by(|(_, a), (_, b)| (a.began_unix_s, &a.job, b.initiates).cmp(&(b.began_unix_s, &b.job, a.initiates)));
    Ok(all)
}

/// Asks all processes of this home. One that does not answer, and an answer that `take` gives back, are reported, and the others asked all the same.
pub fn each_answer(
    home: &Home,
    question: &Question,
    mut take: impl FnMut(&ControlSocket, Answer) -> Option<Answer>,
) -> anyhow::Result<()> {
    for socket in control_sockets(home)? {
        let why = match socket.ask(question) {
            Ok(None) => None,
            Ok(Some(answer)) => take(&socket, answer).map(|other| match other {
                Answer::Failed { cause, next, .. } => clean(&format!("no answer: {cause}; {next}")),
                other => format!("an answer to another question: {other:?}"),
            }),
            Err(error) => Some(format!("no answer: {error}")),
        };
        if let Some(why) = why {
            eprintln!("longhaul: {}: {why}", socket.path().display());
        }
    }
    Ok(())
}

fn short(job: &Shown) -> String {
    clean(job.job.get(..SHOWN_DIGITS).unwrap_or(&job.job))
}

/// The one job whose name begins so; of its two ends the one that asked for it.
fn find<'a>(running: &'a [(ControlSocket, Shown)], name: &str) -> anyhow::Result<&'a (ControlSocket, Shown)> {
    let all: Vec<&(ControlSocket, Shown)> =
        running.iter().filter(|(_, job)| !name.is_empty() && job.job.starts_with(&name.to_lowercase())).collect();
    let what = format!("find the job '{}'", clean(name));
    let next = "`longhaul job list` shows the jobs that run, with their names";
    let Some(first) = all.first() else {
        bail!(Exit::Vanished.fail(what, "none that runs has a name that begins so").next(next));
    };
    if all.iter().any(|(_, job)| job.job != first.1.job) {
        bail!(Exit::Usage.fail(what, "several have names that begin so").next("give more digits"));
    }
    Ok(all.iter().find(|(_, job)| job.initiates).unwrap_or(first))
}

fn ask(socket: &ControlSocket, job: &Shown, question: &Question) -> anyhow::Result<String> {
    answered(socket, format!("ask job {}", short(job)), question)
}

/// What a process did of what it was asked for, in its words. `what`: fits after "failed to".
pub fn answered(socket: &ControlSocket, what: String, question: &Question) -> anyhow::Result<String> {
    match socket.ask(question) {
        Ok(Some(Answer::Done { text })) => Ok(clean(&text)),
        Ok(Some(Answer::Failed { code, what, cause, next })) => {
            let exit = Exit::of_code(code).unwrap_or(Exit::Bug);
            bail!(Failure { exit, what: clean(&what), cause: clean(&cause), next_step: clean(&next) })
        }
        Ok(Some(_)) => bail!(Exit::Bug.fail(what, "an answer to another question")),
        Ok(None) => bail!(Exit::Vanished.fail(what, "it ended meanwhile")),
        Err(error) => bail!(Exit::of_io(&error).fail(what, error)),
    }
}

fn done_of(job: &Shown) -> String {
    let done = show_bytes(job.now.bytes_done);
    match job.now.bytes_total {
        Some(total) => format!("{done} of {}", show_bytes(total)),
        None => done,
    }
}

fn left(job: &Shown) -> String {
    match job.now.bytes_total {
        Some(total) if job.now.rate_bps > 0.0 => {
            show_seconds(total.saturating_sub(job.now.bytes_done) as f64 * 8.0 / job.now.rate_bps)
        }
        _ => "?".to_owned(),
    }
}

fn cap(bps: u64) -> String {
    if bps == 0 { "none".to_owned() } else { exact_rate(bps) }
}

fn list(running: &[(ControlSocket, Shown)]) -> String {
    let mut table = Table::new(&["job", "process", "end", "done", "now", "cap", "left", "what"]);
    for (_, job) in running {
        let now = show_bits_per_second(job.now.rate_bps);
        let (process, end, what) = (job.pid.to_string(), clean(&job.end), clean(&job.what));
        table.line([short(job), process, end, done_of(job), now, cap(job.now.cap_bps), left(job), what]);
    }
    table.to_string()
}

fn show(job: &Shown) -> String {
    let now = &job.now;
    let age =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs()).saturating_sub(job.began_unix_s);
    let mut lines = vec![
        ("job", clean(&job.job)),
        ("what", clean(&job.what)),
        ("this end", format!("{}, process {}", clean(&job.end), job.pid)),
        ("runs for", show_seconds(age as f64)),
        ("done", format!("{}, {} of {} files", done_of(job), show_count(now.files_done), show_count(now.files_total))),
        ("now", format!("{}, left {}", show_bits_per_second(now.rate_bps), left(job))),
        ("rails", format!("{} over {}", now.rails, clean(&now.transport))),
        ("cap", cap(now.cap_bps)),
    ];
    if now.transport.contains("udp") {
        lines.push(("pace", format!("{} controller, {}", clean(&now.controller), clean(&now.policy))));
        lines.push(("least rate", cap(now.min_rate_bps)));
    }
    lines.into_iter().map(|(what, value)| format!("{what:<11} {value}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use node::job::registry::Now;

    fn job(name: &str, initiates: bool) -> (ControlSocket, Shown) {
        let shown = Shown {
            job: name.to_owned(),
            pid: 1,
            end: "sends".to_owned(),
            initiates,
            what: "a \u{1b}[31mb".to_owned(),
            began_unix_s: 0,
            now: Now { bytes_done: 1 << 20, bytes_total: Some(2 << 20), rate_bps: 8e6, ..Now::default() },
        };
        (ControlSocket::default(), shown)
    }

    #[test]
    fn a_job_is_named_by_its_first_digits_and_never_guessed() {
        let running = [job("aa11", false), job("aa11", true), job("ab22", true)];
        assert!(find(&running, "AA").unwrap().1.initiates, "of two ends here, the one that asked");
        assert_eq!(find(&running, "ab22").unwrap().1.job, "ab22");
        for (name, exit) in [("a", Exit::Usage), ("c", Exit::Vanished), ("", Exit::Vanished)] {
            assert_eq!(Failure::of("find", &find(&running, name).unwrap_err()).exit, exit, "{name}");
        }
    }

    #[test]
    fn a_list_has_a_line_for_each_and_no_letters_that_move_the_cursor() {
        let text = list(&[job("aa11bb22cc", true)]);
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("aa11bb22") && text.contains("8.00 Mbit/s") && !text.contains('\u{1b}'), "{text}");
        assert!(show(&job("aa", true).1).contains("runs for"));
    }
}
