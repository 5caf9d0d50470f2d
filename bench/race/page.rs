//! The record as one page that needs nothing else: plots, tables, ratios.
//!
//! For: people who look once. In and out: a record → HTML with inline SVG.
//! Invariants: every text that came from a program is escaped; bars show the median, a line over each the spread of the rounds.
//! Absent on purpose: anything that the JSON beside it does not hold.

use std::fmt::Write as _;

use bench::plot::{Bar, bars};
use text::page::{CLOSE, escape, open, wide};

use super::record::{Part, Record, unit};

const STYLE: &str = "td,th{text-align:left;vertical-align:top}td:nth-child(6){min-width:14em}td:last-child{font-family:monospace;min-width:24em;word-break:break-all}";

fn plot(part: &Part, key: &str, says: &str) -> String {
    let rows = part.rows.iter().filter_map(|row| Some((row, row.of(key)?)));
    let bar = rows.map(|(row, it)| Bar {
        name: &row.name,
        value: it.median,
        ends: (it.min, it.max),
        colour: 4 * usize::from(row.ours),
        mark: "",
    });
    bars(&format!("{}, {says}", unit(key)), &bar.collect::<Vec<_>>())
}

fn section(part: &Part) -> String {
    let heads =
        [unit(&part.unit), "spread", unit(&part.cost), "others' share of the CPU", "does not", "version", "command"];
    let out = format!(
        "<h2>{}</h2><div class=plots>{}{}</div>",
        escape(&part.title),
        plot(part, &part.unit, "median and spread of the rounds (longer is better)"),
        plot(part, &part.cost, "both ends together (shorter is better)"),
    );
    let mut table = format!("<table><tr><th>contestant<th>{}</tr>", heads.join("<th>"));
    for row in &part.rows {
        let number = |key: &str, scale: f64, mark: &str| {
            row.of(key).map_or("–".to_owned(), |it| format!("{:.2}{mark}", it.median * scale))
        };
        let spread = row.of(&part.unit).map_or("–".to_owned(), |it| format!("{:.2}–{:.2}", it.min, it.max));
        let note = if row.why_not.is_empty() { &row.lacks } else { &row.why_not };
        let (others, cost) = (number("others_cpu_share", 100.0, " %"), number(&part.cost, 1.0, ""));
        let cells =
            [&row.name, &number(&part.unit, 1.0, ""), &spread, &cost, &others, note, &row.version, &row.command];
        let _ = write!(table, "<tr><td>{}</tr>", cells.map(|cell| escape(cell)).join("<td>"));
    }
    out + &wide(&part.title, &(table + "</table>"))
}

/// The whole page.
pub(crate) fn page(record: &Record) -> String {
    let facts: Vec<String> = record.machine.iter().map(|(name, fact)| format!("{name}: {fact}")).collect();
    format!(
        "{}<p>{}</p><p>Rounds alternate over all contestants. A ratio inside this page counts; an absolute figure \
         belongs to this machine and hour.</p><ul>{}</ul>{}{CLOSE}",
        open("longhaul-race: longhaul and its peers", record.machine.get("date").map_or("", String::as_str), STYLE),
        escape(&facts.join("; ")),
        record.verdicts.iter().map(|it| format!("<li>{}", escape(&it.to_string()))).collect::<String>(),
        record.parts.iter().map(section).collect::<String>()
    )
}
