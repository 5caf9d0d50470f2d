//! Rates over time as one page that needs nothing else.
//!
//! For: people who look once. In and out: the report → HTML with inline SVG, for light and dark screens.
//! Invariants: no script, no outside file; every name is escaped; the sum and the disks are drawn on scales of their own.
//! Absent on purpose: anything that the JSON beside it does not hold.

use std::fmt::Write as _;

use super::{Report, Run, rate, sums};
use crate::plot::{self, Line, ticks};
use crate::table;
use text::page::{CLOSE, escape, list, open, wide};
use text::units;

/// What the page has beyond the style of all.
const STYLE: &str = "td:first-child,th:first-child,.flag{text-align:left}td{white-space:nowrap}td.flag{white-space:normal;min-width:14em}";

/// The page.
#[must_use]
pub fn page(report: &Report) -> String {
    let count = report.volumes.len();
    let mut text = format!(
        "{}<p>{} files of {}, dealt out over {count} disks; both ends on this host ({}, {} cores, Linux {}).</p>{}",
        open(&format!("longhaul bench volumes: {count} disks as one"), &table::date(), STYLE),
        report.files,
        units::show_memory(report.file_bytes),
        escape(&report.host.cpu),
        report.host.cores,
        escape(&report.host.kernel),
        list(&report.ceilings)
    );
    if report.runs.iter().any(|run| run.volumes != count) {
        text += &over_disks(report);
    }
    for run in report.runs.iter().filter(|run| run.volumes == count) {
        let _ = write!(
            text,
            "<h2>{}: {}</h2><p>{}</p><p class=flag>{}</p><div class=plots>{}{}</div>",
            run.program,
            rate(run.bytes_per_second),
            escape(&run.limiter),
            escape(&run.flag),
            over_time(run, "all disks", vec![("all disks together".to_owned(), None)]),
            over_time(run, "each disk", run.disks.iter().cloned().zip((0..).map(Some)).collect())
        );
        let mut table = String::from("<table><tr><th>disk<th>mean<th>bytes</tr>");
        for (name, sum) in run.disks.iter().zip(sums(run)) {
            let _ = write!(
                table,
                "<tr><td>{}<td>{}<td>{}</tr>",
                escape(name),
                rate(sum / run.seconds),
                units::show_bytes(sum as u64)
            );
        }
        text += &wide(&format!("{}, by disk", run.program), &(table + "</table>"));
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
    let places: Vec<(f64, String)> = counts.iter().map(|count| (*count as f64, count.to_string())).collect();
    let svg = plot::plot("rate over the number of disks", "MB/s", "disks", &lines, &places, false);
    let table = wide("rate over the number of disks", &(table + "</table>"));
    format!("<h2>Over the number of disks</h2><div class=plots>{svg}</div>{table}")
}

/// Lines over the run's seconds: a name, and which disk it is; none: all together. Nothing where the run was too short for a line.
fn over_time(run: &Run, title: &str, lines: Vec<(String, Option<usize>)>) -> String {
    if run.samples.is_empty() {
        return format!("<p class=soft>{title}: too short for a line over time</p>");
    }
    let rate = |it: &super::Sample, disk: Option<usize>| {
        disk.map_or_else(|| it.bytes_per_second.iter().sum::<f64>(), |disk| it.bytes_per_second[disk]) / 1e6
    };
    let line =
        |(name, disk)| Line { name, points: run.samples.iter().map(|it| (it.seconds, rate(it, disk))).collect() };
    let lines: Vec<Line> = lines.into_iter().map(line).collect();
    let end = run.samples.last().map_or(1.0, |it| it.seconds);
    plot::plot(title, "MB/s", "seconds", &lines, &ticks(end, " s"), false)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::path::Sample;
    use crate::table::Host;

    fn run(volumes: usize, looks: usize) -> Run {
        let disks = (0..volumes).map(|at| if at == 0 { "/a<b>".to_owned() } else { format!("/c{at}") }).collect();
        let sample = |at: usize| Sample { seconds: 0.2 * at as f64, bytes_per_second: vec![1e6 * at as f64; volumes] };
        Run {
            program: "one sender to the disks",
            volumes,
            disks,
            bytes: 1,
            seconds: 0.4,
            bytes_per_second: 1e6,
            disks_bytes_per_second: 1e6,
            limiter: "the disks & nothing else".to_owned(),
            flag: "1 < 2".to_owned(),
            samples: (1..=looks).map(sample).collect(),
        }
    }

    fn report(volumes: Vec<String>, runs: Vec<Run>) -> Report {
        let ceilings = vec!["ceiling: <none>".to_owned()];
        Report { host: Host::here(), volumes, file_bytes: 1, files: 2, ceilings, runs }
    }

    /// So many disks, also fewer of them, and a run too short for lines.
    pub(crate) fn sample(count: usize) -> String {
        let volumes = (0..count).map(|at| format!("/mnt/recorder/data-of-the-experiment/{at:02}")).collect();
        page(&report(
            volumes,
            vec![run(1, 9), run(2, 9), run(count / 2, 9), run(count, 99), run(count, 1), run(count, 0)],
        ))
    }

    #[test]
    fn a_page_has_a_line_for_each_disk_and_takes_no_markup_from_names() {
        let volumes = vec!["/a<b>".to_owned(), "/c".to_owned()];
        let mut report = report(volumes, vec![run(2, 2)]);
        let text = page(&report);
        assert_eq!(text.matches("<polyline").count(), 3, "the sum, and each disk");
        assert!(text.contains("/a&lt;b&gt;") && !text.contains("<b>") && text.contains("disks &amp; nothing"));
        assert!(text.contains("1 &lt; 2") && text.contains("ceiling: &lt;none&gt;"));
        report.runs = vec![run(1, 2), run(2, 2)];
        let text = page(&report);
        assert_eq!(
            text.matches("<polyline").count(),
            5,
            "and over the number of disks the job and what it would be without loss"
        );
        assert!(text.contains("Over the number of disks"));
        report.runs = vec![run(2, 0)];
        assert!(page(&report).contains("too short for a line over time"), "no empty drawing");
    }
}
