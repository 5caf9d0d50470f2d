//! Rates over time as one page that needs nothing else.
//!
//! For: people who look once. In and out: the report → HTML with inline SVG, for light and dark screens.
//! Invariants: no script, no outside file; every name is escaped; the sum is drawn above, the disks below, on scales of their own.
//! Absent on purpose: anything that the JSON beside it does not hold.

use std::fmt::Write as _;

use super::{Report, Run, rate, sums};
use crate::bench::wan::page::escape;

const WIDE: f64 = 900.0;
const HIGH: f64 = 180.0;
const LEFT: f64 = 90.0;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1c1e;--paper:#fff;--soft:#6b6b70;--line:#d5d5da;--sum:#00529b}\
@media(prefers-color-scheme:dark){:root{--ink:#e8e8ea;--paper:#161618;--soft:#9a9aa0;--line:#3a3a40;--sum:#7cb8ff}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1100px;margin:2em auto;padding:0 1.2em}\
svg text{font:11px system-ui,sans-serif;fill:var(--soft)}td,th{border-bottom:1px solid var(--line);padding:.2em .8em;text-align:right}\
td:first-child,th:first-child{text-align:left}table{border-collapse:collapse;font-variant-numeric:tabular-nums}small{color:var(--soft)}";

/// The page.
#[must_use]
pub fn page(report: &Report) -> String {
    let mut text = format!(
        "<!doctype html><meta charset=utf-8><title>longhaul bench path</title><style>{STYLE}</style><h1>{} disks as one</h1><p>{} files of {} bytes; both ends on this host ({}, {} cores, Linux {}).</p>",
        report.volumes.len(),
        report.files,
        report.file_bytes,
        escape(&report.host.cpu),
        report.host.cores,
        escape(&report.host.kernel)
    );
    for run in &report.runs {
        let _ = write!(text, "<h2>{}: {}</h2><p>{}</p>", run.program, rate(run.bytes_per_second), escape(&run.limiter));
        let sum: Vec<f64> = run.samples.iter().map(|it| it.bytes_per_second.iter().sum()).collect();
        text += "<p><small>all disks, MB/s over seconds</small></p>";
        text += &plot(run, &[(sum, "var(--sum)".to_owned(), "all".to_owned())]);
        let lines: Vec<_> = (0..report.volumes.len())
            .map(|disk| {
                let line = run.samples.iter().map(|it| it.bytes_per_second[disk]).collect();
                // Hues as far apart as can be for any number of disks: steps of the golden angle.
                let hue = disk * 137 % 360;
                (line, format!("hsl({hue} 70% 50%)"), report.volumes[disk].clone())
            })
            .collect();
        text += "<p><small>each disk</small></p>";
        text += &plot(run, &lines);
        text += "<table><tr><th>disk<th>mean<th>bytes</tr>";
        for (name, sum) in report.volumes.iter().zip(sums(run)) {
            let _ = write!(text, "<tr><td>{}<td>{}<td>{sum:.0}</tr>", escape(name), rate(sum / run.seconds));
        }
        text += "</table>";
    }
    text
}

/// Lines over the run's seconds: values, colour, name.
fn plot(run: &Run, lines: &[(Vec<f64>, String, String)]) -> String {
    let most = lines.iter().flat_map(|it| &it.0).copied().fold(1.0, f64::max);
    let end = run.samples.last().map_or(1.0, |it| it.seconds);
    let (x, y) =
        (|seconds: f64| LEFT + seconds / end * (WIDE - LEFT), |value: f64| HIGH - value / most * (HIGH - 12.0));
    let mut svg = format!("<svg viewBox='0 0 {WIDE} {}' width='100%'>", HIGH + 20.0);
    for part in [0.0, 0.5, 1.0] {
        let (at, words) = (y(most * part), format!("{:.0}", most * part / 1e6));
        let _ = write!(
            svg,
            "<line x1='{LEFT}' x2='{WIDE}' y1='{at}' y2='{at}' stroke='var(--line)'/><text x='{}' y='{}' text-anchor='end'>{words}</text>",
            LEFT - 6.0,
            at + 4.0
        );
        let _ = write!(
            svg,
            "<text x='{}' y='{}' text-anchor='middle'>{:.1} s</text>",
            x(end * part).min(WIDE - 20.0),
            HIGH + 16.0,
            end * part
        );
    }
    for (values, colour, name) in lines {
        let points: String = run
            .samples
            .iter()
            .zip(values)
            .map(|(it, value)| format!("{:.1},{:.1} ", x(it.seconds), y(*value)))
            .collect();
        let _ = write!(
            svg,
            "<polyline fill='none' stroke='{colour}' stroke-width='1.6' points='{points}'><title>{}</title></polyline>",
            escape(name)
        );
    }
    svg + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::path::Sample;
    use crate::bench::table::Host;

    #[test]
    fn a_page_has_a_line_for_each_disk_and_takes_no_markup_from_names() {
        let samples = [0.2, 0.4].map(|seconds| Sample { seconds, bytes_per_second: vec![1e6, 2e6] }).into();
        let limiter = "the disks & nothing else".to_owned();
        let run = Run { program: "write", bytes: 1, seconds: 0.4, bytes_per_second: 1.0, limiter, samples };
        let volumes = vec!["/a<b>".to_owned(), "/c".to_owned()];
        let text = page(&Report { host: Host::here(), volumes, file_bytes: 1, files: 2, runs: vec![run] });
        assert_eq!(text.matches("<polyline").count(), 3, "the sum, and each disk");
        assert!(text.contains("/a&lt;b&gt;") && !text.contains("<b>") && text.contains("disks &amp; nothing"));
    }
}
