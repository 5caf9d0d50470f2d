//! While a job runs: bars on a terminal, a line now and then elsewhere.
//!
//! For: seeing that it moves, how fast, how long still, and how durable it is by now.
//! In and out: `Progress` → text, or bars on standard error.
//! Invariants: never above 100 %, and 100 % only when all is done; while the scan runs the total is marked as growing and no
//!   time of arrival is claimed.
//! Absent on purpose: the end report (end.rs), JSON (json.rs).

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use proto::books::Stage;

pub use node::report::figures::{eta_seconds, fraction, percent};

use super::{Mode, Progress};
use crate::args::ProgressChoice;
use text::units::{show_bits_per_second, show_bytes, show_bytes_per_second, show_count, show_seconds};

/// A plain line each minute: enough to see that it goes on, few enough for a log.
const LINE_EVERY: Duration = Duration::from_secs(60);
/// Programs that follow want about one figure a second.
const JSON_EVERY: Duration = Duration::from_secs(1);
/// Redraws per second: above 10 nobody reads faster, below it stutters.
const DRAWS_PER_SECOND: u8 = 10;
/// More rails than this are told as a count and their sum.
const RAILS_SHOWN: usize = 8;
/// The bar's length in steps; thousandths are finer than any terminal.
const BAR_STEPS: u64 = 1_000;

/// What rates are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rates {
    /// A link: bit/s.
    Link,
    /// A disk: B/s.
    Disk,
}

impl Rates {
    fn show(self, rate_bps: f64) -> String {
        match self {
            Self::Link => show_bits_per_second(rate_bps),
            Self::Disk => show_bytes_per_second(rate_bps / 8.0),
        }
    }
}

/// When the next line is due.
#[derive(Debug)]
pub struct Pace {
    /// `None`: never.
    every: Option<Duration>,
    next: Duration,
}

impl Pace {
    /// The first JSON line comes at once, the first line of text after the first interval (short jobs need none).
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        Self::every(mode, ProgressChoice::Auto)
    }

    /// As the user wants it. JSON has its own pace: programs read it, and another host passes it on.
    #[must_use]
    pub fn every(mode: Mode, wanted: ProgressChoice) -> Self {
        let (every, next) = match (mode, wanted) {
            (Mode::Json, _) => (Some(JSON_EVERY), Duration::ZERO),
            (Mode::Quiet, _) | (_, ProgressChoice::Never) => (None, Duration::ZERO),
            (_, ProgressChoice::Auto) => (Some(LINE_EVERY), LINE_EVERY),
            (_, ProgressChoice::Every(every)) => (Some(every), every),
        };
        Self { every, next }
    }

    /// The next figures are shown, whenever they come.
    pub fn now(&mut self) {
        self.next = Duration::ZERO;
    }

    /// Is it time? If so, the next time is set. A session that was made again counts from its own beginning.
    pub fn is_due(&mut self, elapsed: Duration) -> bool {
        let Some(every) = self.every else { return false };
        self.next = self.next.min(elapsed + every);
        if elapsed < self.next {
            return false;
        }
        self.next = elapsed + every;
        true
    }
}

/// The figures in one line: done, files, rate, time to go.
#[must_use]
pub fn figures(progress: &Progress, rates: Rates) -> String {
    let mut text = show_bytes(progress.bytes_done);
    match progress.bytes_total {
        Some(total) if progress.scan_done => text += &format!(" of {}", show_bytes(total.max(progress.bytes_done))),
        Some(total) => text += &format!(" of {} found so far", show_bytes(total.max(progress.bytes_done))),
        None => text += " of an unknown total",
    }
    if let Some(percent) = percent(progress) {
        text += &format!(" ({percent} %)");
    }
    text += &format!(
        ", {} of {} files, {}",
        show_count(progress.files_done),
        show_count(progress.files_total.max(progress.files_done)),
        rates.show(progress.shown_bps()),
    );
    if let Some(seconds) = eta_seconds(progress) {
        text += &format!(", {} to go", show_seconds(seconds));
    }
    if let Some(waiting) = progress.reconnecting {
        text += &format!("; {}", waiting.sentence());
    }
    if progress.entries_failed > 0 {
        text += &format!(", {} FAILED", show_count(progress.entries_failed));
    }
    text
}

/// The ladder and the limiting stage in one line; empty while nothing has moved.
#[must_use]
pub fn ladder(progress: &Progress) -> String {
    if progress.received.max(progress.written) == 0 {
        return String::new();
    }
    let mut text = format!(
        "received {}, written {}, durable {}",
        show_bytes(progress.received),
        show_bytes(progress.written),
        show_bytes(progress.durable),
    );
    match &progress.stage_limit {
        // The stage's name says already that something holds the job.
        Some(stage) if *stage == Stage::WaitRate.name() => text += &format!("; {stage}"),
        Some(stage) => text += &format!("; limited by {stage}"),
        None => {}
    }
    text
}

/// The largest file that is on its way; empty where none is.
#[must_use]
pub fn open_file(progress: &Progress) -> String {
    progress
        .open_file
        .as_ref()
        .map_or_else(String::new, |path| format!("now {}", super::clean(path).replace('\n', " ")))
}

/// The rails in one line, for whoever asks for more than one rate; empty when one rail says nothing that the total does not.
#[must_use]
pub fn rails(progress: &Progress) -> String {
    if let [all] = progress.rails.as_slice()
        && all.name.ends_with(" rails")
    {
        // The whole of several rails, where their shares are not known.
        return format!("{}, {} together", super::clean(&all.name), show_bits_per_second(all.rate_bps));
    }
    if progress.rails.len() < 2 {
        return String::new();
    }
    if progress.rails.len() > RAILS_SHOWN {
        let sum_bps: f64 = progress.rails.iter().map(|rail| rail.rate_bps).sum();
        return format!("{} rails, {} together", progress.rails.len(), show_bits_per_second(sum_bps));
    }
    let shares: Vec<String> = progress
        .rails
        .iter()
        .map(|rail| format!("{} {}", super::clean(&rail.name), show_bits_per_second(rail.rate_bps)))
        .collect();
    format!("rails: {}", shares.join(", "))
}

/// All of it in one plain line; with `verbose` each rail's rate beside the one of all.
#[must_use]
pub fn line(progress: &Progress, rates: Rates, verbose: u8) -> String {
    let mut text = format!("{}: {}", show_seconds(progress.elapsed.as_secs_f64()), figures(progress, rates));
    for more in more(progress, verbose) {
        if !more.is_empty() {
            text += "; ";
            text += &more;
        }
    }
    text
}

/// What stands below the figures.
fn more(progress: &Progress, verbose: u8) -> [String; 3] {
    let rails = if verbose > 0 { rails(progress) } else { String::new() };
    [ladder(progress), open_file(progress), rails]
}

/// Bars on standard error.
#[derive(Debug)]
pub struct Bars {
    bar: ProgressBar,
}

impl Default for Bars {
    fn default() -> Self {
        Self::new()
    }
}

impl Bars {
    /// Nothing is drawn before the first figures come.
    #[must_use]
    pub fn new() -> Self {
        Self::onto(ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND))
    }

    /// Onto another terminal.
    #[must_use]
    pub fn onto(target: ProgressDrawTarget) -> Self {
        let bar = ProgressBar::with_draw_target(Some(BAR_STEPS), target);
        let style = ProgressStyle::with_template("{wide_bar}\n{msg}").expect("the template is a constant");
        bar.set_style(style.progress_chars("━╸ "));
        Self { bar }
    }

    /// Draws the figures.
    pub fn draw(&mut self, progress: &Progress, rates: Rates, verbose: u8) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "0 to 1 × steps"
        )]
        let steps = (fraction(progress).unwrap_or(0.0) * BAR_STEPS as f64) as u64;
        let mut lines = vec![figures(progress, rates)];
        lines.extend(more(progress, verbose));
        lines.retain(|line| !line.is_empty());
        self.bar.set_message(lines.join("\n"));
        self.bar.set_position(steps);
    }

    /// Lets something be written while the bars are away, so that it stays above them.
    pub fn suspend(&self, write: impl FnOnce()) {
        self.bar.suspend(write);
    }

    /// Takes the bars away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
