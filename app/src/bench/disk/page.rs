//! All figures as one page that needs nothing else.
//!
//! For: people who look once: rate over engine, buffer size, depth, threads, files, time and bytes moved.
//! In and out: the report → HTML with inline SVG and CSS, for light and dark screens.
//! Invariants: no script, no outside file; every text that came from a machine is escaped; lines differ by colour and by mark, with colours
//! that colour-blind eyes tell apart (Okabe and Ito, "Color Universal Design", 2008).
//! Absent on purpose: anything that the JSON does not hold.

use std::fmt::Write as _;

use proto::storage::Way;

use super::cell::{By, Sweep};
use super::{Measured, Report};
use crate::bench::wan::page::escape;
use crate::units;

const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const WIDE: f64 = 560.0;
const HIGH: f64 = 250.0;
const LEFT: f64 = 52.0;
const TOP: f64 = 34.0;
const BELOW: f64 = 46.0;
/// Lines of a grid.
const STEPS: usize = 5;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1c1e;--paper:#fff;--soft:#6b6b70;--line:#dcdce2}\
@media(prefers-color-scheme:dark){:root{--ink:#e8e8ea;--paper:#161618;--soft:#9a9aa0;--line:#3a3a40}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1240px;margin:2em auto;padding:0 1.2em}\
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:1.8em}.soft{color:var(--soft)}.plots{display:flex;flex-wrap:wrap;gap:1em 2em}\
svg text{font:11px system-ui,sans-serif;fill:var(--ink)}svg .h{font-weight:600;font-size:13px}svg .k{fill:var(--soft)}svg .g{stroke:var(--line)}\
table{border-collapse:collapse;font-size:12.5px;font-variant-numeric:tabular-nums}td,th{border-bottom:1px solid var(--line);padding:.2em .6em;text-align:right}\
td:first-child,th:first-child,td:last-child{text-align:left}.flag{color:#d55e00}";

/// One line of a plot.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// A number that a grid may have as its end: 1, 2 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|&it| it >= value).unwrap_or(value)
}

fn tick(value: f64) -> String {
    if value == 0.0 {
        "0".into()
    } else if value < 0.1 {
        format!("{value:.3}")
    } else if value < 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.1}")
    }
}

/// A plot. `ticks`: places along the bottom and what stands there; the first and the last bound it. `log`: by powers.
fn plot(title: &str, under: &str, lines: &[Line], ticks: &[(f64, String)], log: bool) -> String {
    let (Some(first), Some(last)) = (ticks.first(), ticks.last()) else { return String::new() };
    let of = |x: f64| if log { x.max(1e-9).log2() } else { x };
    let (from, to) = (of(first.0), of(last.0).max(of(first.0) + 1e-9));
    let most = lines.iter().flat_map(|line| &line.points).map(|it| it.1).fold(0.0, f64::max);
    let most = round_up(most);
    let (right, bottom) = (WIDE - 26.0, HIGH - BELOW);
    let x = |value: f64| LEFT + (of(value) - from) / (to - from) * (right - LEFT);
    let y = |value: f64| bottom - value / most * (bottom - TOP);
    let high = HIGH + 16.0 * lines.len().div_ceil(2) as f64;
    let mut svg = format!(
        "<svg width=\"{WIDE}\" height=\"{high}\" role=\"img\"><text class=\"h\" x=\"4\" y=\"14\">{}</text>",
        escape(title)
    );
    for step in 0..=STEPS {
        let value = most * step as f64 / STEPS as f64;
        let at = y(value);
        let _ = write!(
            svg,
            "<line class=\"g\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text class=\"k\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            tick(value)
        );
    }
    let _ = write!(svg, "<text class=\"k\" x=\"4\" y=\"{:.0}\">GB/s</text>", TOP - 6.0);
    for (value, name) in ticks {
        let _ = write!(
            svg,
            "<text class=\"k\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(*value),
            bottom + 15.0,
            escape(name)
        );
    }
    let _ = write!(
        svg,
        "<text class=\"k\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        (LEFT + right) / 2.0,
        bottom + 31.0,
        escape(under)
    );
    for (number, line) in lines.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let points: Vec<String> = line.points.iter().map(|it| format!("{:.1},{:.1}", x(it.0), y(it.1))).collect();
        let _ = write!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
            points.join(" ")
        );
        for it in &line.points {
            let _ = write!(svg, "{}", mark(number, x(it.0), y(it.1), colour));
        }
        let (left, top) = (LEFT + 250.0 * (number % 2) as f64, HIGH - 2.0 + 16.0 * (number / 2) as f64);
        let _ = write!(
            svg,
            "{}<text x=\"{:.0}\" y=\"{:.0}\">{}</text>",
            mark(number, left, top, colour),
            left + 10.0,
            top + 4.0,
            escape(&line.name)
        );
    }
    svg.push_str("</svg>");
    svg
}

fn mark(number: usize, x: f64, y: f64, colour: &str) -> String {
    match number % 3 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>"),
        1 => format!("<rect x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\" fill=\"{colour}\"/>", x - 3.5, y - 3.5),
        _ => format!("<path d=\"M{:.1} {:.1}l4 7h-8z\" fill=\"{colour}\"/>", x, y - 4.5),
    }
}

/// Bars of one way: engines, or kinds of memory.
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
        let name = format!("{}, {kind}", it.cell.engine);
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

/// The plot of a sweep over numbers.
fn sweep(report: &Report, sweep: Sweep, way: Way) -> String {
    let of = |it: &Measured| match sweep {
        Sweep::Block => it.cell.block_bytes as f64,
        Sweep::Depth => it.cell.depth as f64,
        _ => it.cell.threads as f64,
    };
    let cells: Vec<&Measured> = report.cells.iter().filter(|it| (it.cell.sweep, it.cell.way) == (sweep, way)).collect();
    let mut lines: Vec<Line> = Vec::new();
    for it in &cells {
        let name = format!("{}, {}", it.cell.engine, it.cell.by.name());
        let at = lines.iter().position(|line| line.name == name).unwrap_or_else(|| {
            lines.push(Line { name, points: Vec::new() });
            lines.len() - 1
        });
        lines[at].points.push((of(it), it.gbs));
    }
    let mut places: Vec<f64> = cells.iter().map(|it| of(it)).collect();
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
    plot(&format!("{} by {}", way.name(), sweep.name()), under, &lines, &ticks, true)
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
    let time = plot("rate over time", "seconds, without the flush at the end", &over[0], &grid(&over[0], " s"), false);
    let size = plot("rate over size", "moved so far: the mean up to there", &over[1], &grid(&over[1], " GB"), false);
    if report.courses.is_empty() { String::new() } else { format!("{time}{size}") }
}

/// The page.
#[must_use]
pub fn page(report: &Report, host: &str) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>bench disk</title><style>{STYLE}</style>\
        <h1>bench disk: {} on {}</h1><p>{}<br>{}, {} in sequence; medians of {} rounds in turn; writes count up to the end of their flush.</p><ul>",
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
        "Engines <span class=\"soft\">(!): see its flag below</span>",
        both(&|way| bars(report, Sweep::Engine, way)),
    );
    for (of, title) in
        [(Sweep::Block, "Buffer size"), (Sweep::Depth, "Depth"), (Sweep::Threads, "Threads"), (Sweep::Files, "Files")]
    {
        section(&mut page, title, both(&|way| sweep(report, of, way)));
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
    page.push_str("</table></html>\n");
    page
}
