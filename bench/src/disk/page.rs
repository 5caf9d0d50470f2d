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
use crate::plot::{self, Bar, Line, STYLE, plot, ticks};
use crate::table;
use text::page::{CLOSE, escape, list, open, wide};
use text::units;

/// Bars of one way: I/O modes, or kinds of memory.
fn bars(report: &Report, of: Sweep, way: Way) -> String {
    let cells: Vec<&Measured> = report.cells.iter().filter(|it| it.cell.sweep == of && it.cell.way == way).collect();
    let name = |it: &Measured| {
        let kind = match (of, it.cell.scattered) {
            (Sweep::Memory, true) => "in pieces",
            (Sweep::Memory, false) => "fresh",
            _ => it.cell.by.name(),
        };
        format!("{}, {kind}", it.cell.io_mode)
    };
    let names: Vec<String> = cells.iter().map(|it| name(it)).collect();
    let bar = |(it, name): (&&Measured, &'_ String)| {
        let by = match it.cell.by {
            By::Uring => 0,
            By::Plain => 1,
            By::Fio => 2,
        };
        let mark = if it.flag.is_empty() { "" } else { " (!)" };
        (name.clone(), it.gbs, by + usize::from(it.cell.scattered), mark)
    };
    let all: Vec<_> = cells.iter().zip(&names).map(bar).collect();
    let bars: Vec<Bar<'_>> = all
        .iter()
        .map(|(name, value, colour, mark)| Bar { name, value: *value, ends: (*value, *value), colour: *colour, mark })
        .collect();
    plot::bars(&format!("{} by {}, 8 operations of 1 MiB at once, GB/s", way.name(), words(of)), &bars)
}

/// A sweep in words.
pub(super) fn words(sweep: Sweep) -> &'static str {
    match sweep {
        Sweep::IoMode => "I/O mode",
        Sweep::Block => "buffer size",
        Sweep::Depth => "queue depth",
        other => other.name(),
    }
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
    sweep(&format!("{} by {}", way.name(), words(of)), of, &figures)
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
    let grid = |lines: &[Line], unit: &str| {
        ticks(lines.iter().flat_map(|line| &line.points).map(|it| it.0).fold(0.0, f64::max), unit)
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
        "{}<p>{}<br>{}, {} in sequence; medians of {} rounds in turn; writes count up to the end of their flush.</p>{}",
        open(&format!("longhaul bench disk: {} on {}", report.path, report.file_system), &table::date(), STYLE),
        escape(host.trim()).replace('\n', "<br>"),
        escape(&report.mount),
        units::show_memory(report.bytes),
        report.rounds,
        list(&report.ceilings.iter().chain(&report.notes).cloned().collect::<Vec<_>>())
    );
    let section = |page: &mut String, title: &str, plots: String| {
        if !plots.is_empty() {
            let _ = write!(page, "<h2>{title}</h2><div class=\"plots\">{plots}</div>");
        }
    };
    let both = |of: &dyn Fn(Way) -> String| format!("{}{}", of(Way::Read), of(Way::Write));
    section(
        &mut page,
        "I/O modes <span class=\"soft\">(!): see its flag below</span>",
        both(&|way| bars(report, Sweep::IoMode, way)),
    );
    for (of, title) in [
        (Sweep::Block, "Buffer size"),
        (Sweep::Depth, "Queue depth"),
        (Sweep::Threads, "Threads"),
        (Sweep::Files, "Files"),
    ] {
        section(&mut page, title, both(&|way| io_modes(report, of, way)));
    }
    section(&mut page, "Memory: fresh, and in pieces", both(&|way| bars(report, Sweep::Memory, way)));
    section(&mut page, "From moment to moment", courses(report));
    let mut table = "<table><tr><th>what</th><th>GB/s</th><th>CPU s/GB</th><th>flag</th></tr>".to_owned();
    for it in &report.cells {
        let what = format!("{} by {}: {}", it.cell.way.name(), words(it.cell.sweep), it.cell);
        let _ = write!(
            table,
            "<tr><td>{}</td><td>{:.3}</td><td>{:.3}</td><td class=\"flag\">{}</td></tr>",
            escape(&what),
            it.gbs,
            it.cpu_s_per_gb,
            escape(&it.flag)
        );
    }
    page += &format!("<h2>All figures</h2>{}", wide("all figures", &(table + "</table>")));
    page.push_str(CLOSE);
    page
}

#[cfg(test)]
pub(crate) mod tests {
    use proto::storage::IoMode;

    use super::super::cell::Cell;
    use super::super::{Course, beside};
    use super::*;

    fn report(path: &str, file_system: &str) -> Report {
        let cell = |sweep, way, io_mode, at: usize| Cell {
            sweep,
            way,
            io_mode,
            by: [By::Uring, By::Plain, By::Fio][at % 3],
            block_bytes: if sweep == Sweep::Block { 1 << (3 * at) } else { 1 << 20 },
            depth: if sweep == Sweep::Depth { 1 << at } else { 8 },
            threads: if matches!(sweep, Sweep::Threads | Sweep::Files) { 1 << at } else { 1 },
            files: if sweep == Sweep::Files { 1 << at } else { 1 },
            scattered: sweep == Sweep::Memory && at % 2 == 1,
        };
        let mut cells = Vec::new();
        for (sweep, way, io_mode) in Sweep::ALL.into_iter().filter(|it| *it != Sweep::Time).flat_map(|sweep| {
            let modes = IoMode::ALL.into_iter();
            modes.flat_map(move |it| [(sweep, Way::Read, it), (sweep, Way::Write, it)])
        }) {
            for at in 0..if sweep == Sweep::Block { 11 } else { 4 } {
                let flag = if at == 2 { "2.4 x faster than the device itself: a cache's rate" } else { "" };
                cells.push(Measured {
                    cell: cell(sweep, way, io_mode, at),
                    gbs: 12.5 / (at + 1) as f64,
                    cpu_s_per_gb: 0.123,
                    rounds_gbs: vec![1.0],
                    flag: flag.to_owned(),
                });
            }
        }
        let course = Course {
            cell: cell(Sweep::Time, Way::Write, IoMode::ALL[0], 0),
            samples: (0..60_u32).map(|at| (f64::from(at) * 0.25, u64::from(at) << 28)).collect(),
        };
        Report {
            path: path.to_owned(),
            file_system: file_system.to_owned(),
            mount: "/dev/vda (rw,relatime,rw,discard,resv_strict,resuid=65534,resgid=65534,stripe=512)".to_owned(),
            bytes: 1 << 30,
            rounds: 5,
            ceilings: vec!["ceiling: memory, read and written by 2 cores at once, 12.6 GB/s".to_owned()],
            memory_gbs: 12.6,
            links_gbs: None,
            notes: vec!["fio is not installed".to_owned()],
            cells,
            courses: vec![course],
        }
    }

    /// All sweeps in all I/O modes.
    pub(crate) fn sample() -> String {
        page(&report("/mnt/recorder/data-of-the-experiment", "xfs"), "Example EPYC, 2 cores, Linux 6.12.0")
    }

    /// The same of three folders.
    pub(crate) fn sample_beside() -> String {
        let reports = ["ext4", "xfs", "tmpfs"].map(|name| report(&format!("/mnt/recorder/data-on-{name}"), name));
        beside::page(&reports, "Example EPYC, 2 cores, Linux 6.12.0")
    }
}
