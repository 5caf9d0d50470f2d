//! NTT's Table IV: four streams over several NICs by pattern, with each stream's share.
//!
//! For: seeing which pattern is fair and which one starves a stream, where Tables II and III show one stream at a time.
//! In and out: two machines, a number of paths → rate, shares and loads of each pattern and message size, as text and as JSON.
//! Invariants: the patterns are the presets of that name (`topology::placement::presets`), as far as these machines can follow them; those of one size
//! are measured in turn; one that cannot be followed is named as that.
//! Absent on purpose: UDP (its sender never waits: shares of what was lost say nothing).

use std::fmt;

use serde::Serialize;
use topology::placement::presets;

use super::rig::Rig;
use crate::net::way::{Side, Way};
use text::table::Table;

/// NTT's, and nothing at all beside them.
const PATTERNS: [&str; 5] = ["NTT A", "NTT B", "NTT C", "NTT D", "none"];
/// A short message, one of a packet, a long one.
const SIZES: [u32; 3] = [104, 1500, 9000];
const STREAMS: u16 = 4;
/// Each line is the median of so many.
const ROUNDS: usize = 3;

/// One pattern at one size.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    pub(super) pattern: &'static str,
    pub(super) message_bytes: u32,
    /// All streams together; 0 with `why`.
    pub(super) mbps: f64,
    /// Of each stream, of the median run: of the bytes, 0 to 1.
    pub(super) shares: Vec<f64>,
    /// Cores' worth of time, all threads of an end together.
    pub(super) send_load: f64,
    pub(super) recv_load: f64,
    /// It cannot be followed here.
    pub(super) why: Option<String>,
}

/// Table IV: a line for each pattern and message size.
#[derive(Debug, Default, Serialize)]
pub struct Patterns {
    pub(super) streams: u16,
    pub(super) paths: usize,
    pub(super) lines: Vec<Line>,
}

/// Measures them.
///
/// # Errors
/// The connection broke.
pub fn measure(rig: &mut Rig, paths: usize) -> anyhow::Result<Patterns> {
    let mut lines = Vec::new();
    for message_bytes in SIZES {
        let mut runs: Vec<Result<Vec<Line>, String>> = vec![Ok(Vec::new()); PATTERNS.len()];
        for _ in 0..ROUNDS {
            for (pattern, runs) in PATTERNS.iter().zip(&mut runs) {
                if let Ok(so_far) = runs {
                    match run(rig, pattern, message_bytes)? {
                        Ok(line) => so_far.push(line),
                        Err(why) => *runs = Err(why),
                    }
                }
            }
        }
        lines.extend(PATTERNS.iter().zip(runs).map(|(pattern, runs)| middle(pattern, message_bytes, runs)));
    }
    Ok(Patterns { streams: STREAMS, paths, lines })
}

fn run(rig: &mut Rig, pattern: &'static str, message_bytes: u32) -> anyhow::Result<Result<Line, String>> {
    let (near, far) = rig.shapes()?;
    let Some(placement) = presets::named(pattern, &near, &far, STREAMS) else {
        return Ok(Err("these machines have not the cores for it".to_owned()));
    };
    let (senders, receivers) = match rig.streams(Way::Bare { block_bytes: message_bytes }, &placement)? {
        Ok(sides) => sides,
        Err(why) => return Ok(Err(why)),
    };
    // By the time until the last stream has ended: threads of one core take turns, and their own rates would add up to more than ever crossed.
    let ns = receivers.iter().map(|side| side.ns).max().unwrap_or(0).max(1) as f64;
    let cores = |sides: &[Side]| sides.iter().map(|side| side.cpu_ns).sum::<u64>() as f64 / ns;
    let all: u64 = receivers.iter().map(|side| side.bytes).sum();
    Ok(Ok(Line {
        pattern,
        message_bytes,
        mbps: 8e3 * all as f64 / ns,
        shares: receivers.iter().map(|side| side.bytes as f64 / all.max(1) as f64).collect(),
        send_load: cores(&senders),
        recv_load: cores(&receivers),
        why: None,
    }))
}

/// The run whose rate is the median.
fn middle(pattern: &'static str, message_bytes: u32, runs: Result<Vec<Line>, String>) -> Line {
    let none =
        |why| Line { pattern, message_bytes, mbps: 0.0, shares: Vec::new(), send_load: 0.0, recv_load: 0.0, why };
    match runs {
        Err(why) => none(Some(why)),
        Ok(mut runs) => {
            runs.sort_by(|one, other| one.mbps.total_cmp(&other.mbps));
            match runs.len() {
                0 => none(None),
                count => runs.swap_remove(count / 2),
            }
        }
    }
}

impl fmt::Display for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Patterns { streams, paths, lines } = self;
        writeln!(f, "{streams} TCP streams over {paths} paths by pattern; each stream's share in percent (even: 25)")?;
        let mut table = Table::new(&["pattern", "message bytes", "Mbit/s", "send load", "receive load", "shares"]);
        for line in lines {
            let mut cells = vec![line.pattern.to_owned(), line.message_bytes.to_string()];
            match &line.why {
                Some(why) => cells.extend([String::new(), String::new(), String::new(), why.clone()]),
                None => {
                    let shares: Vec<String> =
                        line.shares.iter().map(|share| format!("{:3.0}", share * 100.0)).collect();
                    cells.extend(
                        [line.mbps, line.send_load, line.recv_load]
                            .iter()
                            .zip([1, 2, 2])
                            .map(|(it, digits)| format!("{it:.digits$}")),
                    );
                    cells.push(shares.join(" "));
                }
            }
            table.line(cells);
        }
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_run_is_shown_with_its_own_shares_and_what_cannot_be_says_why() {
        let line = |mbps, share| Line {
            pattern: "NTT A",
            message_bytes: 104,
            mbps,
            shares: vec![share, 1.0 - share],
            send_load: 1.0,
            recv_load: 1.5,
            why: None,
        };
        let lines = vec![
            middle("NTT A", 104, Ok(vec![line(3.0, 0.9), line(2.0, 0.25), line(1.0, 0.5)])),
            middle("NTT D", 104, Err("no other processor".to_owned())),
        ];
        let said = Patterns { streams: 4, paths: 2, lines }.to_string();
        assert!(said.contains("2.0") && said.contains(" 25  75") && !said.contains(" 90"), "{said}");
        assert!(said.contains("no other processor") && said.contains("over 2 paths"), "{said}");
    }
}
