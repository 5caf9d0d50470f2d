//! The tables and figures as one page that needs nothing else.
//!
//! For: people who look once: heat maps of Tables II and III, bars of Table IV, lines of the figures.
//! In and out: the tables → HTML with inline SVG, for light and dark screens.
//! Invariants: no script, no outside file; every text that came from a machine is escaped; the number stands in each cell beside its colour, and
//! before and after differ by dashes as well as by colour.
//! Absent on purpose: anything that the JSON does not hold.

use std::fmt::Write as _;

use super::figures::{Figure, Point};
use super::patterns::Patterns;
use super::tables::{Sheet, Tables};
use crate::plot::COLOURS;
use crate::table::Host;
use text::page::{CLOSE, escape, open};

const WIDE: f64 = 520.0;
const HIGH: f64 = 170.0;
const LEFT: f64 = 46.0;
/// Of a bar of Table IV.
const BAR: f64 = 320.0;
/// What the page has beyond the style of all: a shade of `--heat` in each cell of a map, `--old` and `--new` for before and after.
const STYLE: &str = "\
:root{--heat:0,114,178;--old:#d55e00;--new:#0072b2}@media(prefers-color-scheme:dark){:root{--heat:86,180,233;--old:#e69f00;--new:#7cb8ff}}\
.maps{gap:.6em 2em}table{font-size:inherit}td,th{border:1px solid var(--line);padding:.25em .6em}svg text{fill:var(--soft)}td small{color:inherit}\
caption{text-align:left;font-weight:600}.bars td{border:0;border-bottom:1px solid var(--line)}";

/// The page.
#[must_use]
pub fn page(host: &Host, tables: &Tables) -> String {
    let mut text = format!(
        "{}<h1>Where threads run</h1><p>{} ({} cores, Linux {}) to {}</p>\
<h2>One stream: sender's core (rows) by receiver's (columns)</h2><p><small>Mbit/s, below it the load of the sender's and the receiver's thread; the darker, the nearer the best of its table; * takes interrupts</small></p><div class=maps>",
        open("longhaul bench placement --tables", STYLE),
        escape(&host.cpu),
        host.cores,
        escape(&host.kernel),
        escape(&tables.peer)
    );
    for sheet in &tables.sheets {
        map(&mut text, tables, sheet);
    }
    text += "</div>";
    bars(&mut text, &tables.patterns);
    for figure in &tables.figures.figures {
        lines(&mut text, figure);
    }
    text + CLOSE
}

fn map(text: &mut String, tables: &Tables, sheet: &Sheet) {
    let _ = write!(text, "<table><caption>{}, {} bytes</caption>", sheet.transport, sheet.message_bytes);
    if sheet.cells.is_empty() {
        *text += "<tr><td>no packet of this path holds such a message</table>";
        return;
    }
    let named = |core: &u16, irqs: &[u16]| format!("{core}{}", if irqs.contains(core) { "*" } else { "" });
    *text += "<tr><th>";
    for core in &tables.recv_cores {
        let _ = write!(text, "<th>{}", named(core, &tables.recv_irqs));
    }
    let best = sheet.cells.iter().flatten().map(|cell| cell.mbps).fold(1e-9, f64::max);
    for (row, core) in sheet.cells.iter().zip(&tables.send_cores) {
        let _ = write!(text, "<tr><th>{}", named(core, &tables.send_irqs));
        for cell in row {
            // Half of the best is white: what is below needs no shades.
            let shade = (cell.mbps / best * 2.0 - 1.0).max(0.0) * 0.75;
            let _ = write!(
                text,
                "<td style='background:rgba(var(--heat),{shade:.2})' title='core {} to core {}'>{:.0}<br><small>{:.2}/{:.2}</small>",
                cell.send_core, cell.recv_core, cell.mbps, cell.send_load, cell.recv_load
            );
        }
    }
    *text += "</table>";
}

fn bars(text: &mut String, patterns: &Patterns) {
    let _ = write!(
        text,
        "<h2>{} streams over {} paths by pattern</h2><p><small>the bar is the rate, its parts the streams' shares; TCP</small></p><table class=bars><tr><th>pattern<th>message<th>Mbit/s<th>loads<th>",
        patterns.streams, patterns.paths
    );
    for line in &patterns.lines {
        let size = line.message_bytes;
        let best = patterns.lines.iter().filter(|it| it.message_bytes == size).map(|it| it.mbps).fold(1e-9, f64::max);
        let _ = write!(text, "<tr><td>{}<td>{size}", line.pattern);
        if let Some(why) = &line.why {
            let _ = write!(text, "<td colspan=3>{}", escape(why));
            continue;
        }
        let _ = write!(
            text,
            "<td>{:.0}<td>{:.2}/{:.2}<td><svg width='{BAR}' height='18'>",
            line.mbps, line.send_load, line.recv_load
        );
        let mut at = 0.0;
        for (number, share) in line.shares.iter().enumerate() {
            let wide = share * line.mbps / best * BAR;
            let colour = COLOURS[number % COLOURS.len()];
            let _ = write!(
                text,
                "<rect x='{at:.1}' width='{wide:.1}' height='18' fill='{colour}'><title>stream {number}: {:.0} %</title></rect>",
                share * 100.0
            );
            at += wide;
        }
        *text += "</svg>";
    }
    *text += "</table>";
}

fn lines(text: &mut String, figure: &Figure) {
    let _ = write!(
        text,
        "<h2>{} streams over time</h2><p><small>dashed: before (nothing placed); whole: after ({}: {})</small></p><div class=maps>",
        figure.streams,
        figure.after_name,
        escape(&figure.after_is)
    );
    let _ = write!(text, "<p>{}</p>", escape(&figure.verdict().unwrap_or_default()));
    plot(text, figure, "Gbit/s", |it| it.gbps);
    plot(text, figure, "cores busy, sender", |it| it.send_cores);
    plot(text, figure, "cores busy, receiver", |it| it.recv_cores);
    *text += "</div>";
}

fn plot(text: &mut String, figure: &Figure, title: &str, of: fn(&Point) -> f64) {
    let all = || figure.before.iter().chain(&figure.after);
    let most = all().map(of).fold(1e-9, f64::max) * 1.1;
    let end = all().map(|it| it.seconds).fold(1e-9, f64::max);
    let x = |point: &Point| LEFT + point.seconds / end * (WIDE - LEFT - 8.0);
    let y = |value: f64| HIGH - value / most * (HIGH - 24.0);
    let _ =
        write!(text, "<svg width='{WIDE}' viewBox='0 0 {WIDE} {}'><text x='{LEFT}' y='12'>{title}</text>", HIGH + 20.0);
    for part in [0.0, 0.5, 1.0] {
        let at = y(most * part);
        let _ = write!(
            text,
            "<line x1='{LEFT}' x2='{WIDE}' y1='{at:.1}' y2='{at:.1}' stroke='var(--line)'/><text x='{}' y='{:.1}' text-anchor='end'>{:.1}</text>",
            LEFT - 6.0,
            at + 4.0,
            most * part
        );
    }
    let _ = write!(text, "<text x='{}' y='{}' text-anchor='end'>{end:.1} s</text>", WIDE - 4.0, HIGH + 16.0);
    for (points, look) in
        [(&figure.before, "stroke='var(--old)' stroke-dasharray='5 4'"), (&figure.after, "stroke='var(--new)'")]
    {
        let path: String = points.iter().map(|it| format!("{:.1},{:.1} ", x(it), y(of(it)))).collect();
        let _ = write!(text, "<polyline fill='none' stroke-width='2' {look} points='{path}'/>");
    }
    *text += "</svg>";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::figures::Figures;
    use crate::placement::patterns::Line;
    use crate::placement::tables::Cell;

    #[test]
    fn a_page_has_a_map_bars_and_lines_and_takes_no_markup_from_machines() {
        let cell = |mbps| Cell { send_core: 0, recv_core: 1, mbps, send_load: 0.5, recv_load: 1.0 };
        let line = |why: Option<&str>| {
            let shares = vec![0.25; 4];
            let (pattern, message_bytes, mbps, why) = ("NTT A", 104, 9.0, why.map(str::to_owned));
            Line { pattern, message_bytes, mbps, shares, send_load: 1.0, recv_load: 1.0, why }
        };
        let point = |seconds| Point { seconds, gbps: 1.0, send_cores: 1.0, recv_cores: 1.0 };
        let (before, after) = (vec![point(0.0), point(1.0)], vec![point(0.5)]);
        let figure = Figure { streams: 4, after_name: "CERN", after_is: "<i>".to_owned(), before, after };
        let sheet = Sheet { transport: "TCP", message_bytes: 64, cells: vec![vec![cell(100.0), cell(40.0)]] };
        let tables = Tables {
            peer: "<b>".to_owned(),
            send_cores: vec![0],
            recv_cores: vec![1, 2],
            send_irqs: vec![],
            recv_irqs: vec![1],
            sheets: vec![sheet],
            patterns: Patterns { streams: 4, paths: 2, lines: vec![line(None), line(Some("a<b"))] },
            figures: Figures { figures: vec![figure] },
        };
        let text = page(&Host::here(), &tables);
        assert_eq!(text.matches("<rect").count(), 4, "a part of the bar for each stream");
        assert_eq!(text.matches("<polyline").count(), 6, "before and after, three plots");
        assert!(text.contains("&lt;b&gt;") && text.contains("a&lt;b") && text.contains("&lt;i&gt;"), "{text}");
        assert!(!text.contains("<script") && text.contains(",0.75)") && text.contains(",0.00)"), "{text}");
    }
}
