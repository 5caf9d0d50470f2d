//! The tables and figures as one page that needs nothing else.
//!
//! For: people who look once: heat maps of Tables II and III, bars of Table IV, lines of the figures.
//! In and out: the tables → HTML with inline SVG, for light and dark screens.
//! Invariants: no script, no outside file; every text that came from a machine is escaped; the number stands in each cell beside its colour, and
//! before and after differ by marks as well as by colour.
//! Absent on purpose: anything that the JSON does not hold.

use std::fmt::Write as _;

use super::figures::{Figure, Point};
use super::patterns::Patterns;
use super::tables::{Sheet, Tables};
use crate::plot::{self, Line, colour, ticks};
use crate::table::{self, Host};
use text::page::{CLOSE, escape, open, wide};

/// Of a bar of Table IV.
const BAR: f64 = 320.0;
/// What the page has beyond the style of all: a shade of `--heat` in each cell of a map.
const STYLE: &str = "\
:root{--heat:86,180,233}@media(prefers-color-scheme:dark){:root{--heat:0,100,160}}\
.maps{gap:.6em 2em}.maps>*{min-width:0;max-width:100%}td,th{border:1px solid var(--line)}td small{color:inherit}\
.bars td,.bars th{border:0;border-bottom:1px solid var(--line)}.bars :is(td,th):is(:first-child,:last-child){text-align:left}.bars svg{min-width:160px}";

/// The page.
#[must_use]
pub fn page(host: &Host, tables: &Tables) -> String {
    let mut text = format!(
        "{}<p>From here ({}, {} cores, Linux {}) to {}.</p>\
<h2>One stream: sender's core (rows) by receiver's (columns)</h2><p><small>Mbit/s, below it the load of the sender's and the receiver's thread (1: a whole core); the stronger the colour, the nearer the best of its table; * takes interrupts</small></p><div class=maps>",
        open("longhaul bench placement: where threads run", &table::date(), STYLE),
        escape(&host.cpu),
        host.cores,
        escape(&host.kernel),
        escape(&tables.peer)
    );
    for sheet in &tables.sheets {
        let mut inside = String::new();
        map(&mut inside, tables, sheet);
        text += &wide(&format!("{}, messages of {} bytes", sheet.transport, sheet.message_bytes), &inside);
    }
    text += "</div>";
    bars(&mut text, &tables.patterns);
    for figure in &tables.figures.figures {
        lines(&mut text, figure);
    }
    text + CLOSE
}

fn map(text: &mut String, tables: &Tables, sheet: &Sheet) {
    let _ = write!(text, "<table><caption>{}, messages of {} bytes</caption>", sheet.transport, sheet.message_bytes);
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
        "<h2>{} streams over {} paths by pattern</h2><p><small>the bar is the rate, its parts the streams' shares; TCP</small></p>",
        patterns.streams, patterns.paths
    );
    let heads = ["pattern", "message, bytes", "Mbit/s", "load of sender/receiver", "shares"].join("<th>");
    let mut table = format!("<table class=bars><tr><th>{heads}");
    for line in &patterns.lines {
        let size = line.message_bytes;
        let best = patterns.lines.iter().filter(|it| it.message_bytes == size).map(|it| it.mbps).fold(1e-9, f64::max);
        let _ = write!(table, "<tr><td>{}<td>{size}", line.pattern);
        if let Some(why) = &line.why {
            let _ = write!(table, "<td colspan=3>{}", escape(why));
            continue;
        }
        let _ = write!(
            table,
            "<td>{:.0}<td>{:.2}/{:.2}<td><svg viewBox='0 0 {BAR} 18' width='{BAR}' role='img' aria-label='shares of the streams'>",
            line.mbps, line.send_load, line.recv_load
        );
        let mut at = 0.0;
        for (number, share) in line.shares.iter().enumerate() {
            let wide = share * line.mbps / best * BAR;
            let colour = colour(number);
            let _ = write!(
                table,
                "<rect x='{at:.1}' width='{wide:.1}' height='18' fill='{colour}'><title>stream {number}: {:.0} %</title></rect>",
                share * 100.0
            );
            at += wide;
        }
        table += "</svg>";
    }
    *text += &wide("streams by pattern", &(table + "</table>"));
}

fn lines(text: &mut String, figure: &Figure) {
    let _ = write!(
        text,
        "<h2>{} streams over time</h2><p>{}</p><div class=plots>",
        figure.streams,
        escape(&figure.verdict().unwrap_or_default())
    );
    let after = format!("after ({}: {})", figure.after_name, figure.after_is);
    for (title, unit, of) in [
        ("rate", "Gbit/s", (|it| it.gbps) as fn(&Point) -> f64),
        ("busy at the sender", "cores", |it| it.send_cores),
        ("busy at the receiver", "cores", |it| it.recv_cores),
    ] {
        let line = |name: &str, points: &[Point]| Line {
            name: name.to_owned(),
            points: points.iter().map(|it| (it.seconds, of(it))).collect(),
        };
        let lines = [line("before (nothing placed)", &figure.before), line(&after, &figure.after)];
        let end = figure.before.iter().chain(&figure.after).map(|it| it.seconds).fold(0.0, f64::max);
        *text += &plot::plot(title, unit, "seconds", &lines, &ticks(end, " s"), false);
    }
    *text += "</div>";
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::placement::figures::Figures;
    use crate::placement::patterns::Line;
    use crate::placement::tables::Cell;

    /// Eight cores at each end, a message that no packet holds, patterns that cannot be followed.
    pub(crate) fn sample() -> String {
        let cores: Vec<u16> = (120..128).collect();
        let cell = |send_core, recv_core, mbps| Cell { send_core, recv_core, mbps, send_load: 0.97, recv_load: 1.0 };
        let row = |send: u16| cores.iter().map(|recv| cell(send, *recv, 100.0 * f64::from(send + *recv))).collect();
        let sheet = |transport, message_bytes, cells| Sheet { transport, message_bytes, cells };
        let whole = || cores.iter().map(|send| row(*send)).collect::<Vec<Vec<Cell>>>();
        let line = |pattern, mbps, why: Option<&str>| Line {
            pattern,
            message_bytes: 9000,
            mbps,
            shares: vec![0.125; 8],
            send_load: 7.5,
            recv_load: 8.0,
            why: why.map(str::to_owned),
        };
        let point = |at: u32| Point { seconds: f64::from(at) / 4.0, gbps: 90.0, send_cores: 3.5, recv_cores: 7.9 };
        let after_is = "workers on cores 120 to 127, interrupts left, two queues of the node of the NIC".to_owned();
        let (before, after) = ((0..40).map(point).collect(), (0..40).map(point).collect());
        page(
            &Host::here(),
            &Tables {
                peer: "storage-18.example.org, Example EPYC 9754 128-Core Processor".to_owned(),
                send_cores: cores.clone(),
                recv_cores: cores.clone(),
                send_irqs: cores.clone(),
                recv_irqs: vec![],
                sheets: vec![sheet("TCP", 64, whole()), sheet("UDP", 1500, whole()), sheet("UDP", 9000, vec![])],
                patterns: Patterns {
                    streams: 8,
                    paths: 2,
                    lines: vec![
                        line("interrupts and workers apart", 180_000.0, None),
                        line("all on one", 9000.0, None),
                        line("each its own", 0.0, Some("there are fewer cores than streams at the receiver")),
                    ],
                },
                figures: Figures { figures: vec![Figure { streams: 8, after_name: "CERN", after_is, before, after }] },
            },
        )
    }

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
        assert_eq!(text.matches("height='18' fill").count(), 4, "a part of the bar for each stream");
        assert_eq!(text.matches("<polyline").count(), 6, "before and after, three plots");
        assert!(text.contains("&lt;b&gt;") && text.contains("a&lt;b") && text.contains("&lt;i&gt;"), "{text}");
        assert!(!text.contains("<script") && text.contains(",0.75)") && text.contains(",0.00)"), "{text}");
    }
}
