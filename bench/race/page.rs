//! The record as one page that needs nothing else: plots, tables, ratios.
//!
//! For: people who look once. In and out: a record → HTML with inline SVG.
//! Invariants: every text that came from a program is escaped; bars show the median, a line over each the spread of the rounds.
//! Absent on purpose: anything that the JSON beside it does not hold.

use std::fmt::Write as _;

use bench::plot::{Bar, bars};
use text::page::{CLOSE, escape, open};

use super::record::{Part, Record, unit};

const STYLE: &str =
    "td,th{text-align:left;vertical-align:top}td:last-child{font-family:monospace;font-size:10px;word-break:break-all}";

fn plot(part: &Part, key: &str, says: &str) -> String {
    let rows = part.rows.iter().filter_map(|row| Some((row, row.of(key)?)));
    let bar =
        rows.map(|(row, it)| Bar { name: &row.name, value: it.median, ends: (it.min, it.max), is_marked: row.ours });
    bars(&format!("{}, {says}", unit(key)), &bar.collect::<Vec<_>>())
}

fn section(part: &Part) -> String {
    let heads =
        [unit(&part.unit), "spread", unit(&part.cost), "others' share of the CPU", "does not", "version", "command"];
    let mut out = format!(
        "<h2>{}</h2>{}{}<table><tr><th>contestant<th>{}</tr>",
        escape(&part.title),
        plot(part, &part.unit, "median and spread of the rounds (longer is better)"),
        plot(part, &part.cost, "both ends together (shorter is better)"),
        heads.join("<th>")
    );
    for row in &part.rows {
        let number = |key: &str, scale: f64, mark: &str| {
            row.of(key).map_or("–".to_owned(), |it| format!("{:.2}{mark}", it.median * scale))
        };
        let spread = row.of(&part.unit).map_or("–".to_owned(), |it| format!("{:.2}–{:.2}", it.min, it.max));
        let note = if row.why_not.is_empty() { &row.lacks } else { &row.why_not };
        let (others, cost) = (number("others_cpu_share", 100.0, " %"), number(&part.cost, 1.0, ""));
        let cells =
            [&row.name, &number(&part.unit, 1.0, ""), &spread, &cost, &others, note, &row.version, &row.command];
        let _ = write!(out, "<tr><td>{}</tr>", cells.map(|cell| escape(cell)).join("<td>"));
    }
    out + "</table>"
}

/// The whole page.
pub(crate) fn page(record: &Record) -> String {
    let facts: Vec<String> = record.machine.iter().map(|(name, fact)| format!("{name}: {fact}")).collect();
    format!(
        "{}<h1>longhaul and its peers</h1><p>{}</p><p>Rounds alternate over all contestants. A ratio inside this page counts; an absolute figure \
         belongs to this machine and hour.</p><ul>{}</ul>{}{CLOSE}",
        open("longhaul and its peers", STYLE),
        escape(&facts.join("; ")),
        record.verdicts.iter().map(|it| format!("<li>{}", escape(&it.to_string()))).collect::<String>(),
        record.parts.iter().map(section).collect::<String>()
    )
}
