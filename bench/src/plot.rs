//! Plots: lines over numbers, and bars, as SVG.
//!
//! For: the pages of `bench disk`, `bench volumes` and bench/race.
//! In and out: lines of points, ticks → SVG text.
//! Invariants: every text that came from a machine is escaped; lines differ by colour and by mark, with colours that colour-blind eyes tell
//! apart (Okabe and Ito, "Color Universal Design", 2008).
//! Absent on purpose: pages.

use std::fmt::Write as _;

use text::page::escape;

/// Of lines, in turn.
pub const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
/// Of a plot.
pub const WIDE: f64 = 560.0;
const HIGH: f64 = 250.0;
const LEFT: f64 = 52.0;
/// Above the grid: the title.
pub const TOP: f64 = 34.0;
const BELOW: f64 = 46.0;
/// Lines of a grid.
pub const STEPS: usize = 5;

/// What a page with plots has beyond the style of all.
pub const STYLE: &str =
    "td:first-child,th:first-child,td:last-child,th:last-child{text-align:left}td:first-child{white-space:nowrap}";

/// One line of a plot.
#[derive(Debug)]
pub struct Line {
    /// Below the plot.
    pub name: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// A number that a grid may have as its end: 1, 2 or 5 times a power of ten.
#[must_use]
pub fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|&it| it >= value).unwrap_or(value)
}

/// A number beside a grid.
#[must_use]
pub fn tick(value: f64) -> String {
    if value == 0.0 {
        "0".into()
    } else if value < 0.1 {
        format!("{value:.3}")
    } else if value < 1.0 {
        format!("{value:.2}")
    } else if value >= 10.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

/// A plot of rates in `unit`. `ticks`: places along the bottom and what stands there; the first and the last bound it. `log`: by powers.
#[must_use]
pub fn plot(title: &str, unit: &str, under: &str, lines: &[Line], ticks: &[(f64, String)], log: bool) -> String {
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
        escape(&format!("{title}, {unit}"))
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

/// One bar of a figure.
#[derive(Debug)]
pub struct Bar<'a> {
    /// To its left.
    pub name: &'a str,
    pub value: f64,
    /// Least and most, a line over the bar.
    pub ends: (f64, f64),
    /// In another colour than the rest.
    pub is_marked: bool,
}

/// Bars to the right, the longest as wide as there is room; nothing without bars.
#[must_use]
pub fn bars(title: &str, bars: &[Bar<'_>]) -> String {
    const LEFT: f64 = 300.0;
    const ROOM: f64 = 600.0;
    const STEP: f64 = 24.0;
    if bars.is_empty() {
        return String::new();
    }
    let most = bars.iter().map(|bar| bar.ends.1).fold(1e-9, f64::max);
    let mut svg = format!(
        "<svg width=\"980\" height=\"{}\" role=\"img\"><text class=\"h\" x=\"0\" y=\"14\">{}</text>",
        28.0 + STEP * bars.len() as f64,
        escape(title)
    );
    for (number, bar) in bars.iter().enumerate() {
        let (y, colour) = (24.0 + STEP * number as f64, COLOURS[usize::from(bar.is_marked) * 4]);
        let x = |value: f64| value / most * ROOM;
        let (least, end) = (LEFT + x(bar.ends.0), LEFT + x(bar.ends.1));
        let (wide, middle, foot) = (x(bar.value), y + 9.0, y + 14.0);
        let _ = write!(
            svg,
            "<text x=\"{:.0}\" y=\"{foot:.0}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{y:.0}\" width=\"{wide:.1}\" height=\"18\" fill=\"{colour}\"/>\
             <line x1=\"{least:.1}\" x2=\"{end:.1}\" y1=\"{middle:.0}\" y2=\"{middle:.0}\" stroke=\"var(--ink)\" stroke-width=\"2\"/>\
             <text x=\"{:.1}\" y=\"{foot:.0}\">{:.2}</text>",
            LEFT - 8.0,
            escape(bar.name),
            end + 6.0,
            bar.value
        );
    }
    svg + "</svg>"
}

fn mark(number: usize, x: f64, y: f64, colour: &str) -> String {
    match number % 3 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>"),
        1 => format!("<rect x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\" fill=\"{colour}\"/>", x - 3.5, y - 3.5),
        _ => format!("<path d=\"M{:.1} {:.1}l4 7h-8z\" fill=\"{colour}\"/>", x, y - 4.5),
    }
}
