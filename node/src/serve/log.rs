//! The daemon's log: one line each.
//!
//! For: people who read it, and programs that collect it.
//! In and out: sentences, and what became of a job → lines of text, or JSON objects.
//! Invariants: each line has its time (RFC 3339, UTC) and its level; nothing that came from outside ends a line or steers a terminal.
//! Absent on purpose: where lines go (whoever starts the daemon), rotation (journald, logrotate), counters of what never was a job.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use text::exit::Exit;

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object to a line.
    Json,
}

impl std::str::FromStr for LogFormat {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<LogFormat, &'static str> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err("write text or json"),
        }
    }
}

/// Where a daemon's log goes: one line at a time, without control characters.
pub struct Log(Box<dyn Fn(&str) + Send + Sync>);

impl Log {
    /// Each line is given to this function.
    pub fn to(tell: impl Fn(&str) + Send + Sync + 'static) -> Log {
        Log(Box::new(tell))
    }

    /// Nothing is said.
    #[must_use]
    pub fn nowhere() -> Log {
        Log::to(|_| ())
    }

    /// A sentence. `level`: 0 what its owner should know, 1 more (`-v`), 2 all.
    pub(super) fn sentence(&self, format: LogFormat, level: u8, text: &str) {
        // A failure has two lines; here it has one.
        let text = clean(&text.replace("\n  next: ", "; next: "));
        let level = ["warn", "info"].get(usize::from(level)).copied().unwrap_or("debug");
        self.line(format, SystemTime::now(), &Sentence { level, text: &text });
    }

    /// What became of a job.
    pub(super) fn job(&self, format: LogFormat, job: &EndedJob) {
        self.line(format, SystemTime::now(), job);
    }

    fn line(&self, format: LogFormat, at: SystemTime, record: &impl Record) {
        let time = rfc3339(at);
        match format {
            LogFormat::Text => (self.0)(&format!("{time} {}", record.text())),
            LogFormat::Json => {
                let line = serde_json::to_string(&Timed { time: &time, record });
                (self.0)(&line.expect("records have text keys and finite depth"));
            }
        }
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Log")
    }
}

/// One line's content.
trait Record: Serialize {
    /// Behind the time.
    fn text(&self) -> String;
}

/// A record with its time before it.
#[derive(Serialize)]
struct Timed<'a, R: Serialize> {
    time: &'a str,
    #[serde(flatten)]
    record: &'a R,
}

#[derive(Serialize)]
struct Sentence<'a> {
    level: &'a str,
    text: &'a str,
}

impl Record for Sentence<'_> {
    fn text(&self) -> String {
        format!("{} {}", self.level, self.text)
    }
}

/// A job that ended, well or not.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct EndedJob {
    level: &'static str,
    event: &'static str,
    job: String,
    key: String,
    peer: String,
    direction: &'static str,
    path: String,
    files: u64,
    bytes: u64,
    seconds: f64,
    outcome: &'static str,
    exit: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
}

/// Whose job it was, and what it was to do.
#[derive(Debug, Clone)]
pub(super) struct JobFacts {
    /// Its random name.
    pub(super) job: [u8; 16],
    /// The fingerprint of the key on whose word it ran.
    pub(super) key: String,
    /// The client's address.
    pub(super) peer: String,
    /// As this end sees it: `sends`, `receives`.
    pub(super) direction: &'static str,
    /// The first of its paths, and how many more there are.
    pub(super) path: String,
}

impl EndedJob {
    /// `moved`: files and bytes of them that are done. `cause`: of a job that did not reach its end.
    pub(super) fn of(facts: JobFacts, moved: (u64, u64), took: Duration, exit: Exit, cause: Option<&str>) -> EndedJob {
        EndedJob {
            level: if exit == Exit::Whole { "info" } else { "warn" },
            event: "job",
            job: facts.job.iter().map(|byte| format!("{byte:02x}")).collect(),
            key: facts.key,
            peer: facts.peer,
            direction: facts.direction,
            path: clean(&facts.path),
            files: moved.0,
            bytes: moved.1,
            // Milliseconds are enough for a log.
            seconds: (took.as_secs_f64() * 1e3).round() / 1e3,
            outcome: exit.line().word,
            exit: exit.code(),
            cause: cause.map(clean),
        }
    }
}

impl Record for EndedJob {
    fn text(&self) -> String {
        let EndedJob { level, job, key, peer, direction, path, files, bytes, seconds, outcome, .. } = self;
        let path = quoted(path);
        let cause = self.cause.as_deref().map_or_else(String::new, |cause| format!(" cause={}", quoted(cause)));
        format!(
            "{level} job={job} key={key} peer={peer} {direction} path={path} files={files} bytes={bytes} seconds={seconds:.3} outcome={outcome}{cause}"
        )
    }
}

/// One word, whatever is in it.
fn quoted(text: &str) -> String {
    let is_word = !text.is_empty() && !text.contains([' ', '"', '=', '\\']);
    if is_word { text.to_owned() } else { format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")) }
}

fn clean(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

/// `2026-11-25T09:11:18.042Z`.
fn rfc3339(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (since.as_secs(), since.subsec_millis());
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day of a day since 1970-01-01 in the Gregorian calendar.
fn date(day: u64) -> (u64, u64, u64) {
    // Years begin in March here, so that the leap day is a year's last: 400 of them are 146,097 days.
    let day = day + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + carry, month, of_month)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn lines(tell: impl Fn(&Log)) -> Vec<String> {
        let all = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&all);
        tell(&Log::to(move |line| to.lock().expect("one thread").push(line.to_owned())));
        let all = all.lock().expect("one thread");
        all.clone()
    }

    fn ended(exit: Exit, cause: Option<&str>) -> EndedJob {
        let facts = JobFacts {
            job: [0xab; 16],
            key: "lh:aaaa".to_owned(),
            peer: "192.0.2.7:41000".to_owned(),
            direction: "receives",
            path: "in/a b\n".to_owned(),
        };
        EndedJob::of(facts, (3, 1500), Duration::from_micros(1_234_567), exit, cause)
    }

    #[test]
    fn a_time_is_that_of_the_calendar() {
        for (seconds, wanted) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_000_000_000, "2001-09-09T01:46:40.000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)), wanted);
        }
    }

    #[test]
    fn an_ended_job_is_one_line_of_text_or_of_json_with_all_that_is_asked_of_it() {
        let text = lines(|log| log.job(LogFormat::Text, &ended(Exit::Whole, None))).concat();
        let behind = text.split_once(' ').expect("a time").1;
        let wanted = "info job=abababababababababababababababab key=lh:aaaa peer=192.0.2.7:41000 receives path=\"in/a b?\" files=3 bytes=1500 \
                      seconds=1.235 outcome=whole";
        assert_eq!(behind, wanted);
        let json = lines(|log| log.job(LogFormat::Json, &ended(Exit::Lost, Some("the peer \"went\"\n")))).concat();
        let record: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        for key in ["time", "level", "job", "key", "peer", "path", "bytes", "seconds", "outcome"] {
            assert!(!record[key].is_null(), "{key}: {json}");
        }
        assert_eq!(
            (&record["level"], &record["outcome"], &record["exit"]),
            (&"warn".into(), &"lost".into(), &31.into())
        );
        assert!(record["time"].as_str().is_some_and(|time| time.len() == 24 && time.ends_with('Z')), "{json}");
    }

    #[test]
    fn a_failure_has_one_line_with_its_next_step() {
        let failure = Exit::Denied.fail("open the root", "Permission denied");
        for format in [LogFormat::Text, LogFormat::Json] {
            let said = lines(|log| log.sentence(format, 0, &failure.to_string()));
            assert_eq!(said.len(), 1);
            assert!(said[0].contains("Permission denied; next: give this user") && !said[0].contains('?'), "{said:?}");
        }
    }
}
