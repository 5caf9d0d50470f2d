//! Plots: lines over numbers, and bars, as SVG.
//!
//! For: the pages of the benchmarks and bench/race, and the traces of jobs.
//! In and out: lines of points, ticks → a figure: title, SVG, and which line is which.
//! Invariants: every text that came from a machine is escaped; lines differ by colour, by mark and, where there are more than six, by dashes; a
//! figure is drawn for 340 px and shown at 300 to 430, so that its letters are at least 10 px high on a telephone; titles and names are text of the
//! page and wrap.
//! Absent on purpose: pages.

use std::fmt::Write as _;

use crate::page::escape;

/// Of lines and bars, in turn: names of the common style.
const COLOURS: usize = 6;
/// Of a plot: what a telephone of 380 px has beside its margins.
const WIDE: f64 = 340.0;
const HIGH: f64 = 190.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = WIDE - 16.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = HIGH - 38.0;
/// Lines of a grid.
pub const STEPS: usize = 5;
/// Of more points than this a line shows no marks.
const MARKS: usize = 24;
/// Of a letter of 11 px, in the widest of the usual fonts.
const LETTER: f64 = 6.8;

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

/// A colour of the common style, by number.
#[must_use]
pub fn colour(number: usize) -> String {
    format!("var(--c{})", number % COLOURS)
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

/// Ticks of a grid from 0 to at least this, each with `unit` behind it.
#[must_use]
pub fn ticks(most: f64, unit: &str) -> Vec<(f64, String)> {
    let most = round_up(most);
    let step = |step: usize| most * step as f64 / STEPS as f64;
    (0..=STEPS).map(step).map(|it| (it, format!("{}{unit}", tick(it)))).collect()
}

/// How a line is told from others: its colour, and from the seventh on its dashes.
fn stroke(number: usize) -> String {
    let dashes = ["", " stroke-dasharray=\"6 3\"", " stroke-dasharray=\"2 3\""][number / COLOURS % 3];
    format!("stroke=\"{}\"{dashes}", colour(number))
}

/// A plot of `unit`. `ticks`: places along the bottom and what stands there; the first and the last bound it. `log`: by powers.
#[must_use]
pub fn plot(title: &str, unit: &str, under: &str, lines: &[Line], ticks: &[(f64, String)], log: bool) -> String {
    let (Some(first), Some(last)) = (ticks.first(), ticks.last()) else { return String::new() };
    let of = |x: f64| if log { x.max(1e-9).log2() } else { x };
    let (from, to) = (of(first.0), of(last.0).max(of(first.0) + 1e-9));
    let most = round_up(lines.iter().flat_map(|line| &line.points).map(|it| it.1).fold(0.0, f64::max));
    let x = |value: f64| LEFT + (of(value) - from) / (to - from) * (RIGHT - LEFT);
    let y = |value: f64| BOTTOM - value / most * (BOTTOM - TOP);
    let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    let label = escape(&format!("{title}, {unit}, over {under}: {}", names.join("; ")));
    let title = escape(&format!("{title}, {unit}"));
    let mut out = format!(
        "<figure><figcaption>{title}</figcaption><svg viewBox=\"0 0 {WIDE} {HIGH}\" role=\"img\" aria-label=\"{label}\">"
    );
    for step in 0..=STEPS {
        let value = most * step as f64 / STEPS as f64;
        let at = y(value);
        let _ = write!(
            out,
            "<line class=\"g\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text class=\"k\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            tick(value)
        );
    }
    axis(&mut out, under, ticks, BOTTOM, x);
    let mut key = String::new();
    for (number, line) in lines.iter().enumerate() {
        let points: Vec<String> = line.points.iter().map(|it| format!("{:.1},{:.1}", x(it.0), y(it.1))).collect();
        let stroke = stroke(number);
        let _ = write!(out, "<polyline fill=\"none\" {stroke} stroke-width=\"2\" points=\"{}\"/>", points.join(" "));
        if line.points.len() <= MARKS {
            line.points.iter().for_each(|it| out += &mark(number, x(it.0), y(it.1)));
        }
        let _ = write!(
            key,
            "<li><svg viewBox=\"0 0 26 9\" aria-hidden=\"true\"><path d=\"M0 4.5h24\" {stroke} stroke-width=\"2\"/>{}</svg> {}</li>",
            mark(number, 12.0, 4.5),
            escape(&line.name)
        );
    }
    format!("{out}</svg><ul class=\"key\">{key}</ul></figure>")
}

/// A time in which something had a name.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    pub name: String,
    pub from: f64,
    pub to: f64,
}

/// Of a band of a strip, 0 to 1: names beyond the colours are told apart by it.
fn height(number: usize) -> f64 {
    1.0 / (1.0 + (number / COLOURS) as f64)
}

/// Which name was in force when: one band over the axis of `ticks`, a colour for each name; nothing without spans.
#[must_use]
pub fn strip(title: &str, under: &str, spans: &[Span], ticks: &[(f64, String)]) -> String {
    const BAND: f64 = 26.0;
    let (Some(first), Some(last)) = (ticks.first(), ticks.last()) else { return String::new() };
    if spans.is_empty() {
        return String::new();
    }
    let mut names: Vec<&str> = Vec::new();
    spans.iter().for_each(|span| {
        if !names.contains(&span.name.as_str()) {
            names.push(&span.name);
        }
    });
    let x = |value: f64| LEFT + (value - first.0) / (last.0 - first.0).max(1e-9) * (RIGHT - LEFT);
    let label = escape(&format!("{title} over {under}: {}", names.join("; ")));
    let mut out = format!(
        "<figure><figcaption>{}</figcaption><svg viewBox=\"0 0 {WIDE} {:.0}\" role=\"img\" aria-label=\"{label}\">",
        escape(title),
        TOP + BAND + 38.0
    );
    for span in spans {
        let number = names.iter().position(|name| *name == span.name).unwrap_or(0);
        let (from, to) = (x(span.from), x(span.to));
        // A phase of a moment is seen as well.
        let wide = (to - from).max(0.6);
        let high = BAND * height(number);
        let fill = colour(number);
        let _ = write!(
            out,
            "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\" fill=\"{fill}\"/>",
            TOP + BAND - high
        );
    }
    axis(&mut out, under, ticks, TOP + BAND, x);
    let mut key = String::new();
    for (number, name) in names.iter().enumerate() {
        let _ = write!(
            key,
            "<li><svg viewBox=\"0 0 26 9\" aria-hidden=\"true\"><rect x=\"0\" y=\"{:.1}\" width=\"24\" height=\"{:.1}\" fill=\"{}\"/></svg> {}</li>",
            9.0 - 9.0 * height(number),
            9.0 * height(number),
            colour(number),
            escape(name)
        );
    }
    format!("{out}</svg><ul class=\"key\">{key}</ul></figure>")
}

/// What stands below a drawing: places with their names, and what they are of. The last one always has its name, and of the others those that have
/// room.
fn axis(out: &mut String, under: &str, ticks: &[(f64, String)], bottom: f64, x: impl Fn(f64) -> f64) {
    let Some(last) = ticks.last() else { return };
    let half = |name: &str| name.chars().count() as f64 * LETTER / 2.0;
    let end = x(last.0) - half(&last.1);
    let mut free = f64::MIN;
    for (number, (value, name)) in ticks.iter().enumerate() {
        let (left, right) = (x(*value) - half(name), x(*value) + half(name));
        if left < free || (number + 1 < ticks.len() && right > end - LETTER) {
            continue;
        }
        free = right + LETTER;
        // What would stand out over the edge ends there.
        let (at, anchor) = if right > WIDE { (WIDE, "end") } else { (x(*value), "middle") };
        let _ = write!(
            out,
            "<text class=\"k\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            bottom + 15.0,
            escape(name)
        );
    }
    let _ = write!(
        out,
        "<text class=\"k\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        f64::midpoint(LEFT, RIGHT),
        bottom + 31.0,
        escape(under)
    );
}

/// One bar of a figure.
#[derive(Debug)]
pub struct Bar<'a> {
    /// Text above the bar, as it came from a machine or a table of contestants.
    pub name: &'a str,
    pub value: f64,
    /// Least and most, a line over the bar; the same twice: no line.
    pub ends: (f64, f64),
    /// Number of its colour.
    pub colour: usize,
    /// Behind its figure.
    pub mark: &'a str,
}

/// A text in lines of at most so many letters, between words where there are any.
fn wrap(text: &str, letters: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_inclusive([' ', '/', ',', '-']) {
        let mut rest: Vec<char> = word.chars().collect();
        while !rest.is_empty() {
            let line = lines.last_mut().expect("one at least");
            let used = line.chars().count();
            if used > 0 && used + rest.len() > letters {
                lines.push(String::new());
                continue;
            }
            line.extend(rest.drain(..rest.len().min(letters)));
        }
    }
    lines
}

/// Bars to the right, the longest as wide as there is room, each below its name; nothing without bars.
#[must_use]
pub fn bars(title: &str, bars: &[Bar<'_>]) -> String {
    const ROOM: f64 = WIDE - 74.0;
    const LINE: f64 = 14.0;
    if bars.is_empty() {
        return String::new();
    }
    let most = bars.iter().map(|bar| bar.ends.1.max(bar.value)).fold(1e-9, f64::max);
    let (mut inside, mut y) = (String::new(), 0.0);
    for bar in bars {
        for line in wrap(bar.name, (WIDE / LETTER) as usize) {
            y += LINE;
            let _ = write!(inside, "<text x=\"0\" y=\"{:.0}\">{}</text>", y - 3.0, escape(line.trim_end()));
        }
        let x = |value: f64| value / most * ROOM;
        let (least, end, middle) = (x(bar.ends.0), x(bar.ends.1), y + 6.0);
        let _ = write!(
            inside,
            "<rect x=\"0\" y=\"{y:.0}\" width=\"{:.1}\" height=\"12\" fill=\"{}\"/>",
            x(bar.value).max(1.0),
            colour(bar.colour)
        );
        if least < end {
            let _ = write!(
                inside,
                "<line x1=\"{least:.1}\" x2=\"{end:.1}\" y1=\"{middle:.0}\" y2=\"{middle:.0}\" stroke=\"var(--ink)\" stroke-width=\"2\"/>"
            );
        }
        let _ = write!(
            inside,
            "<text x=\"{:.1}\" y=\"{:.0}\">{:.2}{}</text>",
            end.max(x(bar.value)) + 6.0,
            y + 10.0,
            bar.value,
            escape(bar.mark)
        );
        y += 18.0;
    }
    let figures: Vec<String> = bars.iter().map(|bar| format!("{} {:.2}", bar.name, bar.value)).collect();
    let label = escape(&format!("{title}: {}", figures.join("; ")));
    format!(
        "<figure><figcaption>{}</figcaption><svg viewBox=\"0 0 {WIDE} {y:.0}\" role=\"img\" aria-label=\"{label}\">{inside}</svg></figure>",
        escape(title)
    )
}

fn mark(number: usize, x: f64, y: f64) -> String {
    let colour = colour(number);
    match number % 3 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>"),
        1 => format!("<rect x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\" fill=\"{colour}\"/>", x - 3.5, y - 3.5),
        _ => format!("<path d=\"M{:.1} {:.1}l4 7h-8z\" fill=\"{colour}\"/>", x, y - 4.5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_wrapped_between_words_and_lose_no_letter() {
        assert_eq!(wrap("one two three", 8), ["one two ", "three"]);
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("", 4), [""]);
    }

    #[test]
    fn ticks_without_room_have_no_name_but_the_last_has() {
        let ticks: Vec<(f64, String)> = (0..40).map(|at| (f64::from(at), format!("{at} MiB"))).collect();
        let line = || Line { name: "a".to_owned(), points: vec![(0.0, 1.0), (39.0, 2.0)] };
        let figure = plot("t", "u", "x", &[line()], &ticks, false);
        assert!(figure.contains(">0 MiB<") && figure.contains(">39 MiB<") && !figure.contains(">38 MiB<"), "{figure}");
    }

    #[test]
    fn a_strip_has_each_span_and_each_name_once() {
        let span = |name: &str, from: f64, to: f64| Span { name: name.to_owned(), from, to };
        let spans = [span("start", 0.0, 1.0), span("<steady>", 1.0, 9.0), span("start", 9.0, 9.0)];
        let figure = strip("Phase", "time", &spans, &ticks(9.0, " s"));
        assert_eq!(figure.matches("<rect").count(), 3 + 2, "{figure}");
        assert!(figure.contains("width=\"0.6\"") && figure.contains("&lt;steady&gt;</li>"), "{figure}");
        assert!(figure.contains(">10 s<") && !figure.contains("<steady>"), "{figure}");
        assert_eq!(strip("Phase", "time", &[], &ticks(9.0, " s")), "");
    }

    #[test]
    fn a_seventh_line_has_dashes_and_a_long_one_no_marks() {
        let line = |points: usize| Line { name: String::new(), points: vec![(0.0, 1.0); points] };
        let lines: Vec<Line> = (0..7).map(|_| line(2)).chain([line(99)]).collect();
        let figure = plot("t", "u", "x", &lines, &[(0.0, "0".to_owned()), (1.0, "1".to_owned())], false);
        assert_eq!(figure.matches("stroke-dasharray").count(), 4, "two lines, each with its key");
        assert_eq!(
            figure.matches("<circle").count(),
            3 * 2 + 3,
            "of the first, fourth and seventh; the eighth has a rect"
        );
    }
}
