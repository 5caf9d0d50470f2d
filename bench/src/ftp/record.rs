//! What was measured: turns, medians, sizes of a trace, and the best gain.
//!
//! For: `bench ftp`. In and out: turns → medians with their spread; the wire's counters → connection and data time; cells → verdicts.
//! Invariants: parts of a turn sum up to its time; ours are held against others of the same cover alone: clear beside clear, TLS beside TLS.
//! Absent on purpose: measuring, drawing.

use serde::Serialize;

use crate::ftp::rows::Cover;
use crate::race::Spread;
use crate::table::{Host, distinct};

/// Between two looks, this much or more is data: fewer bytes are commands, replies and handshakes.
const DATA_BYTES: u64 = 8 << 10;

/// One turn.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Turn {
    pub seconds: f64,
    pub client_s: f64,
    pub server_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<Parts>,
}

/// Where a turn's time went, seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Parts {
    /// From the client's start to the first data: program, connection, login, command.
    pub connection: f64,
    /// While data came.
    pub data: f64,
    /// Between data: the next command, the next connection.
    pub waiting: f64,
    /// From the last data to the client's end: last replies, digest, flush, names.
    pub end: f64,
}

impl Parts {
    /// Of looks (time, bytes so far) and the time of it all.
    pub fn of(seen: &[(f64, u64)], seconds: f64) -> Parts {
        let mut parts = Parts::default();
        let (mut from, mut bytes, mut open) = (0.0, 0, 0.0);
        for &(at, now) in seen {
            let span = at - from;
            if now.saturating_sub(bytes) >= DATA_BYTES {
                if parts.data == 0.0 {
                    parts.connection += open
                } else {
                    parts.waiting += open
                }
                parts.data += span;
                open = 0.0;
            } else {
                open += span;
            }
            (from, bytes) = (at, now);
        }
        parts.end = open + (seconds - from).max(0.0);
        parts
    }

    pub fn sum(self) -> f64 {
        self.connection + self.data + self.waiting + self.end
    }
}

/// A row in a cell.
#[derive(Debug, Serialize)]
pub struct Lane {
    pub name: String,
    pub ours: bool,
    #[serde(skip)]
    pub cover: Option<Cover>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub lacks: &'static str,
    pub command: String,
    pub turns: Vec<Turn>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// Seconds, of the turns.
    pub seconds: Option<Spread>,
}

impl Lane {
    pub fn of(&self, what: impl Fn(&Turn) -> f64) -> Option<Spread> {
        Spread::of(&self.turns.iter().map(what).collect::<Vec<_>>())
    }

    pub fn median(&self) -> Option<f64> {
        self.seconds.map(|it| it.median)
    }

    /// It was its turn, however that ended.
    pub fn began(&self) -> bool {
        !self.turns.is_empty() || !self.failed.is_empty()
    }
}

/// One thing that all rows do in turn.
#[derive(Debug, Serialize)]
pub struct Cell {
    pub figure: &'static str,
    /// What it is, in words.
    pub what: String,
    pub delay_us: f64,
    pub bytes: u64,
    pub files: usize,
    pub lanes: Vec<Lane>,
}

impl Cell {
    /// Of ours and others of one cover, the fastest each: names, and the part of the time that ours save.
    pub fn gain(&self, cover: Cover) -> Option<(&str, &str, f64)> {
        let fastest = |ours: bool| {
            let lanes = self.lanes.iter().filter(|lane| lane.ours == ours && lane.cover == Some(cover));
            lanes.filter_map(|lane| Some((lane, lane.median()?))).min_by(|a, b| a.1.total_cmp(&b.1))
        };
        let ((ours, mine), (other, theirs)) = fastest(true).zip(fastest(false))?;
        Some((&ours.name, &other.name, 1.0 - mine / theirs))
    }
}

/// A row that cannot run.
#[derive(Debug, Serialize)]
pub struct Absent {
    pub name: String,
    pub why: String,
}

/// All that was measured, where, by which programs, and what could not run.
#[derive(Debug, Serialize)]
pub struct Report {
    pub bench: &'static str,
    pub version: &'static str,
    pub date: String,
    pub host: Host,
    pub rounds: usize,
    pub versions: Vec<String>,
    pub notes: Vec<String>,
    pub absent: Vec<Absent>,
    pub ftp: Vec<Cell>,
}

impl Report {
    /// For each figure and cover: where ours save most and least, in percent of the fastest other's time.
    pub fn verdicts(&self) -> Vec<String> {
        let mut out = Vec::new();
        // Delay by delay: each figure comes again and again.
        let figures = distinct(self.ftp.iter().map(|cell| cell.figure));
        for figure in figures {
            for cover in [Cover::Clear, Cover::Tls] {
                let cells = self.ftp.iter().filter(|cell| cell.figure == figure);
                let mut gains: Vec<_> = cells.filter_map(|cell| Some((cell, cell.gain(cover)?))).collect();
                gains.sort_by(|a, b| a.1.2.total_cmp(&b.1.2));
                let words = |(cell, (ours, other, gain)): &(&Cell, (&str, &str, f64))| {
                    format!("{:+.0} % ({}: {ours} beside {other})", gain * 100.0, cell.what)
                };
                if let (Some(worst), Some(best)) = (gains.first(), gains.last()) {
                    out.push(format!(
                        "{figure}, {}: time saved by ours at best {}, at worst {}",
                        cover.word(),
                        words(best),
                        words(worst)
                    ));
                }
            }
        }
        out
    }
}

/// Sizes of a Zipf trace: the file of rank r has 1/r of the largest's bytes, all together have `total` (but for rounding: at least a byte each).
pub fn zipf(files: usize, total: u64) -> Vec<u64> {
    let harmonic: f64 = (1..=files).map(|rank| 1.0 / rank as f64).sum();
    (1..=files).map(|rank| ((total as f64 / harmonic / rank as f64) as u64).max(1)).collect()
}

/// `4KiB..1GiB` in steps of 16, the last one too, or a list.
pub fn sizes(words: &str) -> Result<Vec<u64>, String> {
    let size = |word: &str| text::units::parse_size(word).map_err(|error| error.to_string());
    let Some((from, to)) = words.split_once("..") else { return words.split(',').map(size).collect() };
    let (mut now, to) = (size(from)?.max(1), size(to)?);
    let mut all = Vec::new();
    while now < to {
        all.push(now);
        now = now.saturating_mul(16);
    }
    all.push(to);
    Ok(all)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn sizes_go_in_steps_of_sixteen_up_to_the_last() {
        assert_eq!(sizes("4KiB..1GiB").unwrap(), [4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20, 1 << 30]);
        assert_eq!(sizes("64KiB").unwrap(), [64 << 10]);
        assert_eq!(sizes("1MiB,2MiB").unwrap(), [1 << 20, 2 << 20]);
        assert_eq!(sizes("8KiB..8KiB").unwrap(), [8 << 10]);
        assert!(sizes("4..x").is_err());
    }

    #[test]
    fn a_zipf_trace_has_its_mean_and_falls_with_the_rank() {
        let sizes = zipf(60, 4_000_000_000);
        let sum: u64 = sizes.iter().sum();
        assert!((3_999_999_000..=4_000_000_000).contains(&sum), "{sum}");
        assert!(sizes.windows(2).all(|it| it[0] > it[1]) && (sizes[0] as f64 / sizes[59] as f64 - 60.0).abs() < 0.01);
        assert!(zipf(20_000, 100).iter().all(|&size| size >= 1));
    }

    #[test]
    fn parts_sum_up_to_the_time_and_know_data_from_words() {
        let big = DATA_BYTES;
        let seen = [
            (0.1, 0),
            (0.2, 100),
            (0.3, big + 100),
            (0.4, 2 * big + 100),
            (0.5, 2 * big + 200),
            (0.6, 3 * big + 200),
            (0.7, 3 * big + 200),
        ];
        let parts = Parts::of(&seen, 0.75);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(
            near(parts.connection, 0.2) && near(parts.data, 0.3) && near(parts.waiting, 0.1) && near(parts.end, 0.15),
            "{parts:?}"
        );
        assert!(near(parts.sum(), 0.75));
        assert!(near(Parts::of(&[], 0.5).end, 0.5));
    }

    fn lane(name: &str, ours: bool, cover: Cover, seconds: &[f64]) -> Lane {
        let turns: Vec<Turn> =
            seconds.iter().map(|&seconds| Turn { seconds, client_s: 0.1, server_s: 0.2, parts: None }).collect();
        let mut lane = Lane {
            name: name.to_owned(),
            ours,
            cover: Some(cover),
            lacks: "",
            command: "c <x>".to_owned(),
            turns,
            failed: Vec::new(),
            seconds: None,
        };
        lane.seconds = lane.of(|turn| turn.seconds);
        lane
    }

    pub(crate) fn sample() -> Report {
        let parts = Some(Parts { connection: 0.1, data: 0.5, waiting: 0.2, end: 0.2 });
        let cell = |figure: &'static str, delay_us: f64, bytes: u64, what: &str| {
            let mut lanes = vec![
                lane("vsftpd, curl (clear)", false, Cover::Clear, &[2.0, 3.0, 2.5]),
                lane("vsftpd, ours (clear)", true, Cover::Clear, &[1.0]),
                lane("vsftpd, curl (TLS)", false, Cover::Tls, &[1.0]),
                lane("ours, ours (TLS)", true, Cover::Tls, &[1.5]),
                lane("<b> fails", true, Cover::Tls, &[]),
            ];
            lanes[4].failed.push("exit 1: <no>".to_owned());
            lanes
                .iter_mut()
                .flat_map(|lane| &mut lane.turns)
                .for_each(|turn| turn.parts = parts.filter(|_| figure == "breakdown"));
            Cell { figure, what: what.to_owned(), delay_us, bytes, files: 10, lanes }
        };
        let mut cells = Vec::new();
        for figure in ["lan", "wan", "depth", "zipf", "cpu", "breakdown", "motivation"] {
            for delay in [0.0, 10.0, 10_000.0] {
                for bytes in [4 << 10, 1 << 20] {
                    cells.push(cell(figure, delay, bytes, &format!("{figure} {delay} {bytes}")));
                }
            }
        }
        Report {
            bench: "ftp",
            version: "0.1.0",
            date: "2026-11-26".to_owned(),
            host: Host::here(),
            rounds: 3,
            versions: vec!["curl <7>".to_owned()],
            notes: vec!["note <x>".to_owned()],
            absent: vec![Absent { name: "rdma".to_owned(), why: "not <here>".to_owned() }],
            ftp: cells,
        }
    }

    #[test]
    fn ours_are_held_against_the_fastest_other_of_the_same_cover() {
        let report = sample();
        let (ours, other, gain) = report.ftp[0].gain(Cover::Clear).unwrap();
        assert_eq!((ours, other), ("vsftpd, ours (clear)", "vsftpd, curl (clear)"));
        assert!((gain - 0.6).abs() < 1e-9, "of the median, 2.5 s");
        assert!((report.ftp[0].gain(Cover::Tls).unwrap().2 + 0.5).abs() < 1e-9, "a loss is one");
        assert!(report.verdicts()[0].contains("+60 %"), "{:?}", report.verdicts());
        let turned = Report { ftp: [sample().ftp, sample().ftp].into_iter().flatten().collect(), ..sample() };
        assert_eq!(turned.verdicts().len(), report.verdicts().len(), "a figure has one verdict in all");
    }
}
