//! What programs print of their own runs.
//!
//! For: figures of programs that measure themselves. In and out: text on standard output → bytes, seconds and what else it says.
//! Invariants: a text without a figure is an error with the program's own words, never a zero.
//! Absent on purpose: `longhaul cp --json` (node::report::json), the clock of whoever ran it.

use serde_json::Value;

/// What it moved in which time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moved {
    pub bytes: f64,
    pub seconds: f64,
    /// Processor seconds, where the program tells them.
    pub cpu_s: f64,
    /// Segments that TCP sent again, where the program tells them.
    pub retransmits: u64,
}

/// The JSON object in a text; a warning may stand before it.
fn json(text: &str) -> Value {
    text.find('{').and_then(|at| serde_json::from_str(&text[at..]).ok()).unwrap_or_default()
}

/// `iperf3 -J`: what the receiver got.
///
/// # Errors
/// Its own, or a text that is not its report.
pub fn iperf3(text: &str) -> Result<Moved, String> {
    let report = json(text);
    if let Some(why) = report["error"].as_str() {
        return Err(why.to_owned());
    }
    let received = &report["end"]["sum_received"];
    let (bytes, seconds) = (received["bytes"].as_f64(), received["seconds"].as_f64());
    let (bytes, seconds) = bytes.zip(seconds).ok_or("no report of iperf3")?;
    let retransmits = report["end"]["sum_sent"]["retransmits"].as_u64().unwrap_or(0);
    Ok(Moved { bytes, seconds, retransmits, ..Moved::default() })
}

/// `nuttcp -fparse`: `megabytes=1.5 real_seconds=0.01 ...`.
///
/// # Errors
/// A text that is not its report.
pub fn nuttcp(text: &str) -> Result<Moved, String> {
    let of = |key: &str| text.split_whitespace().find_map(|word| word.strip_prefix(key)?.parse::<f64>().ok());
    let (mib, seconds) = of("megabytes=").zip(of("real_seconds=")).ok_or("no report of nuttcp")?;
    Ok(Moved { bytes: mib * f64::from(1 << 20), seconds, ..Moved::default() })
}

/// `fio --output-format=json`, one way (`read`, `write`) of all its jobs: over the time of the slowest, as a job of ours counts too.
///
/// # Errors
/// It moved nothing that way.
pub fn fio(text: &str, way: &str) -> Result<Moved, String> {
    let mut moved = Moved::default();
    for job in json(text)["jobs"].as_array().into_iter().flatten() {
        let of = |value: &Value| value.as_f64().unwrap_or(0.0);
        // The runtime of a way leaves the flush at its end out; the job's runtime has it.
        let seconds = of(&job["job_runtime"]).max(of(&job[way]["runtime"])).max(1.0) / 1e3;
        moved.bytes += of(&job[way]["io_bytes"]);
        moved.cpu_s += (of(&job["usr_cpu"]) + of(&job["sys_cpu"])) / 100.0 * seconds;
        moved.seconds = moved.seconds.max(seconds);
    }
    if moved.bytes > 0.0 { Ok(moved) } else { Err("no bytes in the report of fio".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read_and_what_is_none_is_an_error() {
        let text = r#"{"end":{"sum_received":{"bytes":5,"seconds":2.0},"sum_sent":{"retransmits":3}}}"#;
        assert_eq!(iperf3(text).unwrap(), Moved { bytes: 5.0, seconds: 2.0, cpu_s: 0.0, retransmits: 3 });
        assert_eq!(iperf3(r#"{"error":"refused"}"#).unwrap_err(), "refused");
        assert_eq!(nuttcp("megabytes=2.0 real_seconds=0.5 rate_Mbps=1").unwrap().bytes, 2.0 * 1048576.0);
        let job = r#"{"write":{"io_bytes":4e6,"runtime":1000},"job_runtime":2000,"usr_cpu":50,"sys_cpu":25}"#;
        let moved = fio(&format!("fio: a warning\n{{\"jobs\":[{job},{job}]}}"), "write").unwrap();
        assert_eq!((moved.bytes, moved.seconds, moved.cpu_s), (8e6, 2.0, 3.0));
        assert!(iperf3("").is_err() && nuttcp("").is_err() && fio("{}", "read").is_err());
    }
}
