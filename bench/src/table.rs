//! One object for programs, the median, and the facts of the host beside them.
//!
//! For: all three benches.
//! In and out: samples → medians; any record → JSON with the facts of the host.
//! Invariants: a table is made from the same records as the JSON.
//! Absent on purpose: averages (a shared machine's slow moments would weigh in).

use std::fmt;

use serde::Serialize;

/// Times each thing is measured; the median is shown. Odd, so that the median is a sample.
pub const ROUNDS: usize = 5;

/// The middle sample; 0 if there is none.
#[must_use]
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// Each word once, in the order in which they come first.
#[must_use]
pub fn distinct<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut out = Vec::new();
    for word in words {
        if !out.contains(&word) {
            out.push(word);
        }
    }
    out
}

/// What a figure must be read beside.
#[derive(Debug, Clone, Serialize)]
pub struct Host {
    /// Model of the processor.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Kernel.
    pub kernel: String,
    /// Load of the machine before the bench began: others' work disturbs.
    pub load: Option<f32>,
}

impl Host {
    /// Asks this host.
    #[must_use]
    pub fn here() -> Self {
        Host {
            cpu: sys::host::cpu_model(),
            cores: sys::host::cores().map_or(1, |cores| cores.count),
            kernel: sys::host::kernel_release(),
            load: sys::host::load(),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} cores, Linux {}", self.cpu, self.cores, self.kernel)?;
        match self.load {
            Some(load) => write!(f, ", load {load:.1} at the start"),
            None => Ok(()),
        }
    }
}

/// Now, as the head of a page says it.
#[must_use]
pub fn date() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    text::time::show_utc(now.as_secs()) + " UTC"
}

/// How many rounds, as the command line takes it.
///
/// # Errors
/// Not a number, or none that makes sense.
pub fn parse_rounds(text: &str) -> Result<usize, String> {
    let rounds = text.parse().ok().filter(|rounds| (1..=1000).contains(rounds));
    rounds.ok_or_else(|| "1 to 1000 rounds".to_owned())
}

/// One JSON line: what was measured, where, and how it came out.
#[derive(Debug, Serialize)]
struct Record<'a, T> {
    event: &'static str,
    bench: &'static str,
    version: &'static str,
    host: &'a Host,
    rounds: usize,
    #[serde(flatten)]
    result: &'a T,
}

/// Prints the result of so many rounds for programs.
///
/// # Errors
/// Never for the records of this bench; a name used twice would be one.
pub fn print_json(bench: &'static str, host: &Host, rounds: usize, result: &impl Serialize) -> anyhow::Result<()> {
    let record = Record { event: "bench", bench, version: env!("CARGO_PKG_VERSION"), host, rounds, result };
    println!("{}", serde_json::to_string(&record)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_sample_whatever_the_order() {
        assert_eq!(median(&[5.0, 1.0, 9.0, 2.0, 3.0]), 3.0);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn what_comes_again_later_is_the_same_word() {
        assert_eq!(distinct(["lan", "wan", "lan", "cpu", "cpu"].into_iter()), ["lan", "wan", "cpu"]);
    }
}
