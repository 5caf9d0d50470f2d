//! Several file systems side by side: one figure with a line for each.
//!
//! For: which file system a disk should have for so many threads. In and out: a report for each folder → tables, a page, JSON.
//! Invariants: what stands in one line or one plot was measured in turn, in one run; folders of one file system keep their own lines.
//! Absent on purpose: a verdict.

use std::fmt::Write as _;

use proto::storage::{IoMode, Way};
use serde::Serialize;

use super::cell::{Cell, Sweep};
use super::page::{sweep, words};
use super::{Measured, Report};
use crate::plot::STYLE;
use crate::table;
use text::page::{CLOSE, escape, open, wide};
use text::table::Table;
use text::units;

/// What is printed for programs.
#[derive(Debug, Serialize)]
pub struct Beside<'a> {
    /// In the order of the command line.
    pub places: &'a [Report],
}

/// What each folder is called: by its file system, and by its path where two have the same.
fn names(reports: &[Report]) -> Vec<String> {
    let is_alone = |it: &Report| reports.iter().filter(|other| other.file_system == it.file_system).count() == 1;
    reports
        .iter()
        .map(|it| if is_alone(it) { it.file_system.clone() } else { format!("{} {}", it.file_system, it.path) })
        .collect()
}

/// All cells that any of them has, in order.
fn cells(reports: &[Report], of: Sweep, way: Way) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for it in reports.iter().flat_map(|report| &report.cells) {
        if (it.cell.sweep, it.cell.way) == (of, way) && !cells.contains(&it.cell) {
            cells.push(it.cell);
        }
    }
    cells
}

fn figure(report: &Report, cell: Cell) -> Option<&Measured> {
    report.cells.iter().find(|it| it.cell == cell)
}

/// Tables with a column for each folder.
pub fn text(reports: &[Report]) -> String {
    let names = names(reports);
    let mut text = format!(
        "{} in sequence on each, GB/s; medians of {} rounds, all in turn\n",
        units::show_memory(reports[0].bytes),
        reports[0].rounds
    );
    for (name, report) in names.iter().zip(reports) {
        let _ = writeln!(text, "\n{name}: {}, mounted from {}", report.path, report.mount);
        report.ceilings.iter().chain(&report.notes).for_each(|line| _ = writeln!(text, "  {line}"));
    }
    let mut flags = String::new();
    for (of, way) in Sweep::ALL.into_iter().flat_map(|of| [(of, Way::Read), (of, Way::Write)]) {
        let cells = cells(reports, of, way);
        if cells.is_empty() {
            continue;
        }
        let what = format!("{}, by {}", way.name(), of.name());
        let heads: Vec<&str> = std::iter::once(what.as_str()).chain(names.iter().map(String::as_str)).collect();
        let mut table = Table::new(&heads);
        for cell in cells {
            let mut line = vec![cell.to_string()];
            for (name, report) in names.iter().zip(reports) {
                let it = figure(report, cell);
                let mark = it.is_some_and(|it| !it.flag.is_empty());
                line.push(it.map_or("-".to_owned(), |it| format!("{:.3}{}", it.gbs, if mark { " (!)" } else { "" })));
                if let Some(it) = it.filter(|_| mark) {
                    let _ = writeln!(flags, "(!) {} by {cell}, {name}: {}", way.name(), it.flag);
                }
            }
            table.line(line);
        }
        let _ = write!(text, "\n{table}");
    }
    if flags.is_empty() { text } else { format!("{text}\n{flags}") }
}

/// One page: a plot for each sweep, I/O mode and way, with a line for each folder; below it the table.
#[must_use]
pub fn page(reports: &[Report], host: &str) -> String {
    let names = names(reports);
    let mut page = format!(
        "{}<p>{}<br>{} in sequence on each; medians of {} rounds, all in turn; writes count up to the end of their flush.</p>",
        open(&format!("longhaul bench disk: {}", names.join(" against ")), &table::date(), STYLE),
        escape(host.trim()).replace('\n', "<br>"),
        units::show_memory(reports[0].bytes),
        reports[0].rounds
    );
    let titles = [
        (Sweep::Threads, "Threads"),
        (Sweep::Files, "Files"),
        (Sweep::Depth, "Queue depth"),
        (Sweep::Block, "Buffer size"),
    ];
    for (of, title) in titles {
        let mut plots = String::new();
        for (io_mode, way) in IoMode::ALL.into_iter().flat_map(|it| [(it, Way::Read), (it, Way::Write)]) {
            let mut lines: Vec<(String, &Measured)> = Vec::new();
            for (name, report) in names.iter().zip(reports) {
                let own = report
                    .cells
                    .iter()
                    .filter(|it| (it.cell.sweep, it.cell.way, it.cell.io_mode) == (of, way, io_mode));
                lines.extend(own.map(|it| (name.clone(), it)));
            }
            plots += &sweep(&format!("{} by {}, {io_mode}", way.name(), words(of)), of, &lines);
        }
        if !plots.is_empty() {
            let _ = write!(page, "<h2>{title}</h2><div class=\"plots\">{plots}</div>");
        }
    }
    page.push_str("<h2>What stands below them</h2><ul>");
    for (name, report) in names.iter().zip(reports) {
        let _ =
            write!(page, "<li>{}: {}, mounted from {}<ul>", escape(name), escape(&report.path), escape(&report.mount));
        report.ceilings.iter().chain(&report.notes).for_each(|line| _ = write!(page, "<li>{}</li>", escape(line)));
        page.push_str("</ul></li>");
    }
    page.push_str("</ul><h2>All figures, GB/s</h2>");
    let mut table = "<table><tr><th>what</th>".to_owned();
    names.iter().for_each(|name| _ = write!(table, "<th>{}</th>", escape(name)));
    table.push_str("<th>flags</th></tr>");
    for (of, way) in Sweep::ALL.into_iter().flat_map(|of| [(of, Way::Read), (of, Way::Write)]) {
        for cell in cells(reports, of, way) {
            let _ = write!(table, "<tr><td>{}</td>", escape(&format!("{} by {}: {cell}", way.name(), words(of))));
            let mut flags = Vec::new();
            for (name, report) in names.iter().zip(reports) {
                let it = figure(report, cell);
                let _ = write!(table, "<td>{}</td>", it.map_or("-".to_owned(), |it| format!("{:.3}", it.gbs)));
                flags.extend(it.filter(|it| !it.flag.is_empty()).map(|it| format!("{name}: {}", it.flag)));
            }
            let _ = write!(table, "<td class=\"flag\">{}</td></tr>", escape(&flags.join("; ")));
        }
    }
    page += &wide("all figures, GB/s", &(table + "</table>"));
    page.push_str(CLOSE);
    page
}
