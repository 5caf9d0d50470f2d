//! Rates over time as one page that needs nothing else.
//!
//! For: people who look once. In and out: the report → HTML with inline SVG, for light and dark screens.
//! Invariants: no script, no outside file; every name is escaped; the sum is drawn above, the disks below, on scales of their own.
//! Absent on purpose: anything that the JSON beside it does not hold.

use std::fmt::Write as _;

use super::{Report, Run, rate, sums};
use crate::plot::{self, Line};
use text::page::{CLOSE, escape, open};

const WIDE: f64 = 900.0;
const HIGH: f64 = 180.0;
const LEFT: f64 = 90.0;

/// What the page has beyond the style of all: `--sum` is the colour of all disks together.
const STYLE: &str = "\
:root{--sum:#00529b}@media(prefers-color-scheme:dark){:root{--sum:#7cb8ff}}body{max-width:1100px}\
td,th{padding:.2em .8em}td:first-child,th:first-child{text-align:left}svg text{fill:var(--soft)}svg .h{fill:var(--ink)}";

/// The page.
#[must_use]
pub fn page(report: &Report) -> String {
    let mut text = format!(
        "{}<h1>{} disks as one</h1><p>{} files of {} bytes; both ends on this host ({}, {} cores, Linux {}).</p>",
        open("longhaul bench volumes", STYLE),
        report.volumes.len(),
        report.files,
        report.file_bytes,
        escape(&report.host.cpu),
        report.host.cores,
        escape(&report.host.kernel)
    );
    report.ceilings.iter().for_each(|line| _ = write!(text, "<small>{}</small><br>", escape(line)));
    if report.runs.iter().any(|run| run.volumes != report.volumes.len()) {
        text += &over_disks(report);
    }
    for run in report.runs.iter().filter(|run| run.volumes == report.volumes.len()) {
        let _ = write!(
            text,
            "<h2>{}: {}</h2><p>{}</p><p class=flag>{}</p>",
            run.program,
            rate(run.bytes_per_second),
            escape(&run.limiter),
            escape(&run.flag)
        );
        let sum: Vec<f64> = run.samples.iter().map(|it| it.bytes_per_second.iter().sum()).collect();
        text += "<p><small>all disks, MB/s over seconds</small></p>";
        text += &plot(run, &[(sum, "var(--sum)".to_owned(), "all".to_owned())]);
        let lines: Vec<_> = (0..run.disks.len())
            .map(|disk| {
                let line = run.samples.iter().map(|it| it.bytes_per_second[disk]).collect();
                // Hues as far apart as can be for any number of disks: steps of the golden angle.
                let hue = disk * 137 % 360;
                (line, format!("hsl({hue} 70% 50%)"), run.disks[disk].clone())
            })
            .collect();
        text += "<p><small>each disk</small></p>";
        text += &plot(run, &lines);
        text += "<table><tr><th>disk<th>mean<th>bytes</tr>";
        for (name, sum) in run.disks.iter().zip(sums(run)) {
            let _ = write!(text, "<tr><td>{}<td>{}<td>{sum:.0}</tr>", escape(name), rate(sum / run.seconds));
        }
        text += "</table>";
    }
    text + CLOSE
}

/// The jobs' rates over the number of disks, beside so many times the rate of one.
fn over_disks(report: &Report) -> String {
    let mut lines: Vec<Line> = Vec::new();
    let mut table = String::from("<table><tr><th>disks<th>program<th>job<th>disks' counters<th>flag</tr>");
    for run in &report.runs {
        let point = (run.volumes as f64, run.bytes_per_second / 1e6);
        match lines.iter_mut().find(|line| line.name == run.program) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { name: run.program.to_owned(), points: vec![point] }),
        }
        let (job, disks, flag) = (rate(run.bytes_per_second), rate(run.disks_bytes_per_second), escape(&run.flag));
        let _ =
            write!(table, "<tr><td>{}<td>{}<td>{job}<td>{disks}<td class=flag>{flag}</tr>", run.volumes, run.program);
    }
    let mut counts: Vec<usize> = report.runs.iter().map(|run| run.volumes).collect();
    counts.dedup();
    let one =
        report.runs.iter().filter(|run| run.volumes == 1).map(|run| run.bytes_per_second / 1e6).fold(0.0, f64::max);
    let points = counts.iter().map(|&count| (count as f64, one * count as f64)).collect();
    lines.push(Line { name: "so many times one disk".to_owned(), points });
    let ticks: Vec<(f64, String)> = counts.iter().map(|count| (*count as f64, count.to_string())).collect();
    let svg = plot::plot("rate over the number of disks", "MB/s", "disks", &lines, &ticks, false);
    format!("<h2>Over the number of disks</h2>{svg}{table}</table>")
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
    use crate::path::Sample;
    use crate::table::Host;

    #[test]
    fn a_page_has_a_line_for_each_disk_and_takes_no_markup_from_names() {
        let run = |volumes: usize| {
            let samples = [0.2, 0.4].map(|seconds| Sample { seconds, bytes_per_second: vec![1e6; volumes] }).into();
            Run {
                program: "write",
                volumes,
                bytes: 1,
                seconds: 0.4,
                bytes_per_second: 1e6,
                disks_bytes_per_second: 1e6,
                limiter: "the disks & nothing else".to_owned(),
                flag: "1 < 2".to_owned(),
                disks: ["/a<b>", "/c"].map(str::to_owned)[..volumes].to_vec(),
                samples,
            }
        };
        let volumes = vec!["/a<b>".to_owned(), "/c".to_owned()];
        let ceilings = vec!["ceiling: <none>".to_owned()];
        let mut report = Report { host: Host::here(), volumes, file_bytes: 1, files: 2, ceilings, runs: vec![run(2)] };
        let text = page(&report);
        assert_eq!(text.matches("<polyline").count(), 3, "the sum, and each disk");
        assert!(text.contains("/a&lt;b&gt;") && !text.contains("<b>") && text.contains("disks &amp; nothing"));
        assert!(text.contains("1 &lt; 2") && text.contains("ceiling: &lt;none&gt;"));
        report.runs = vec![run(1), run(2)];
        let text = page(&report);
        assert_eq!(
            text.matches("<polyline").count(),
            5,
            "and over the number of disks the job and what it would be without loss"
        );
        assert!(text.contains("Over the number of disks"));
    }
}
