//! All figures as one page that needs nothing else.
//!
//! For: people who look once: rate over I/O mode, buffer size, depth, threads, files, time and bytes moved.
//! In and out: the report → HTML with inline SVG and CSS, for light and dark screens.
//! Invariants: no script, no outside file; every text that came from a machine is escaped.
//! Absent on purpose: anything that the JSON does not hold.

use std::fmt::Write as _;

use proto::storage::Way;

use super::cell::{By, Sweep};
use super::{Measured, Report};
use crate::plot::{COLOURS, Line, STEPS, STYLE, TOP, WIDE, plot, round_up, tick};
use text::page::{CLOSE, escape, open};
use text::units;

/// Bars of one way: I/O modes, or kinds of memory.
fn bars(report: &Report, of: Sweep, way: Way) -> String {
    let cells: Vec<&Measured> = report.cells.iter().filter(|it| it.cell.sweep == of && it.cell.way == way).collect();
    let most = round_up(cells.iter().map(|it| it.gbs).fold(0.0, f64::max));
    if cells.is_empty() {
        return String::new();
    }
    let high = TOP + 22.0 * cells.len() as f64 + 8.0;
    let mut svg = format!(
        "<svg width=\"{WIDE}\" height=\"{high}\" role=\"img\"><text class=\"h\" x=\"4\" y=\"14\">{} by {}, 8 x 1 MiB</text>",
        way.name(),
        of.name()
    );
    for (number, it) in cells.iter().enumerate() {
        let y = TOP + 22.0 * number as f64;
        let wide = (it.gbs / most * (WIDE - 270.0)).max(1.0);
        let colour = COLOURS[match it.cell.by {
            By::Uring => 0,
            By::Plain => 1,
            By::Fio => 2,
        } + usize::from(it.cell.scattered)];
        let kind = match (of, it.cell.scattered) {
            (Sweep::Memory, true) => "in pieces",
            (Sweep::Memory, false) => "fresh",
            _ => it.cell.by.name(),
        };
        let name = format!("{}, {kind}", it.cell.io_mode);
        let _ = write!(
            svg,
            "<text x=\"140\" y=\"{:.0}\" text-anchor=\"end\">{}</text><rect x=\"148\" y=\"{y:.0}\" width=\"{wide:.1}\" height=\"16\" fill=\"{colour}\"/>",
            y + 12.0,
            escape(&name)
        );
        let _ = write!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.0}\">{:.2}{}</text>",
            154.0 + wide,
            y + 12.0,
            it.gbs,
            if it.flag.is_empty() { "" } else { " (!)" }
        );
    }
    svg.push_str("</svg>");
    svg
}

/// The place of a figure in its sweep.
fn along(it: &Measured) -> f64 {
    match it.cell.sweep {
        Sweep::Block => it.cell.block_bytes as f64,
        Sweep::Depth => it.cell.depth as f64,
        _ => it.cell.threads as f64,
    }
}

/// The plot of a sweep over numbers: figures by the name of their line.
pub(super) fn sweep(title: &str, sweep: Sweep, figures: &[(String, &Measured)]) -> String {
    let mut lines: Vec<Line> = Vec::new();
    for (name, it) in figures {
        let at = lines.iter().position(|line| line.name == *name).unwrap_or_else(|| {
            lines.push(Line { name: name.clone(), points: Vec::new() });
            lines.len() - 1
        });
        lines[at].points.push((along(it), it.gbs));
    }
    // What is flagged is seen where it stands, and said in the table.
    for (name, _) in figures.iter().filter(|(_, it)| !it.flag.is_empty()) {
        lines.iter_mut().filter(|line| line.name == *name).for_each(|line| line.name += " (!) see the flag");
    }
    let mut places: Vec<f64> = figures.iter().map(|(_, it)| along(it)).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let show = |value: f64| match sweep {
        Sweep::Block if value < 1024.0 => format!("{value}"),
        Sweep::Block => units::show_memory(value as u64).replace("iB", "").replace(' ', ""),
        _ => format!("{value}"),
    };
    let ticks: Vec<(f64, String)> = places.into_iter().map(|value| (value, show(value))).collect();
    let under = match sweep {
        Sweep::Block => "bytes of one operation, one at a time",
        Sweep::Depth => "operations of 1 MiB at once",
        Sweep::Threads => "threads on one file, 1 MiB each",
        _ => "files, a thread each, 1 MiB",
    };
    plot(title, "GB/s", under, &lines, &ticks, true)
}

/// The same of one way of one file system: a line for each I/O mode.
fn io_modes(report: &Report, of: Sweep, way: Way) -> String {
    let cells = report.cells.iter().filter(|it| (it.cell.sweep, it.cell.way) == (of, way));
    let figures: Vec<_> = cells.map(|it| (format!("{}, {}", it.cell.io_mode, it.cell.by.name()), it)).collect();
    sweep(&format!("{} by {}", way.name(), of.name()), of, &figures)
}

/// Rates from moment to moment: over time, and over what was moved.
fn courses(report: &Report) -> String {
    let mut over = [Vec::new(), Vec::new()];
    for course in &report.courses {
        let name = format!("{}: {}", course.cell.way.name(), course.cell);
        let rate = |pair: &[(f64, u64)]| (pair[1].1 - pair[0].1) as f64 / (pair[1].0 - pair[0].0).max(1e-6) / 1e9;
        let pairs = || course.samples.windows(2).filter(|pair| pair[1].0 - pair[0].0 > 0.01);
        over[0].push(Line { name: name.clone(), points: pairs().map(|pair| (pair[1].0, rate(pair))).collect() });
        let whole =
            course.samples.iter().filter(|it| it.0 > 0.01).map(|it| (it.1 as f64 / 1e9, it.1 as f64 / it.0 / 1e9));
        over[1].push(Line { name, points: whole.collect() });
    }
    let grid = |lines: &[Line], unit: &str| -> Vec<(f64, String)> {
        let most = round_up(lines.iter().flat_map(|line| &line.points).map(|it| it.0).fold(0.0, f64::max));
        (0..=STEPS)
            .map(|step| most * step as f64 / STEPS as f64)
            .map(|it| (it, format!("{}{unit}", tick(it))))
            .collect()
    };
    let time =
        plot("rate over time", "GB/s", "seconds, without the flush at the end", &over[0], &grid(&over[0], " s"), false);
    let size =
        plot("rate over size", "GB/s", "moved so far: the mean up to there", &over[1], &grid(&over[1], " GB"), false);
    if report.courses.is_empty() { String::new() } else { format!("{time}{size}") }
}

/// The page.
#[must_use]
pub fn page(report: &Report, host: &str) -> String {
    let mut page = format!(
        "{}<h1>bench disk: {} on {}</h1><p>{}<br>{}, {} in sequence; medians of {} rounds in turn; writes count up to the end of their flush.</p><ul>",
        open("bench disk", STYLE),
        escape(&report.path),
        escape(&report.file_system),
        escape(host.trim()).replace('\n', "<br>"),
        escape(&report.mount),
        units::show_memory(report.bytes),
        report.rounds
    );
    for line in report.ceilings.iter().chain(&report.notes) {
        let _ = write!(page, "<li>{}</li>", escape(line));
    }
    page.push_str("</ul>");
    let section = |page: &mut String, title: &str, plots: String| {
        if !plots.is_empty() {
            let _ = write!(page, "<h2>{title}</h2><div class=\"plots\">{plots}</div>");
        }
    };
    let both = |of: &dyn Fn(Way) -> String| format!("{}{}", of(Way::Read), of(Way::Write));
    section(
        &mut page,
        "IoModes <span class=\"soft\">(!): see its flag below</span>",
        both(&|way| bars(report, Sweep::IoMode, way)),
    );
    for (of, title) in
        [(Sweep::Block, "Buffer size"), (Sweep::Depth, "Depth"), (Sweep::Threads, "Threads"), (Sweep::Files, "Files")]
    {
        section(&mut page, title, both(&|way| io_modes(report, of, way)));
    }
    section(&mut page, "Memory: fresh, and in pieces", both(&|way| bars(report, Sweep::Memory, way)));
    section(&mut page, "From moment to moment", courses(report));
    page.push_str("<h2>All figures</h2><table><tr><th>what</th><th>GB/s</th><th>CPU s/GB</th><th>flag</th></tr>");
    for it in &report.cells {
        let what = format!("{} by {}: {}", it.cell.way.name(), it.cell.sweep.name(), it.cell);
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{:.3}</td><td>{:.3}</td><td class=\"flag\">{}</td></tr>",
            escape(&what),
            it.gbs,
            it.cpu_s_per_gb,
            escape(&it.flag)
        );
    }
    page.push_str("</table>");
    page.push_str(CLOSE);
    page
}
