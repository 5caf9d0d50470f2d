//! The grid of distance x loss x rate in virtual time: both machines of a flow under the controller `delay`, no network.
//!
//! For: `make grid-distance`. In and out: proto/tests/flow_grid.rs, built for release and run → target/bench/grid-distance.json and one
//! self-contained grid-distance.html.
//! Invariants: every cell is the median of the seeds that it names; what issue 3 asks and a cell misses stands in the cell.
//! Absent on purpose: real networks and hosts (`longhaul bench wan`), other flows (proto/tests/rate_fair.rs).

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use bench::wan::page::colours;
use serde_json::{Value, json};
use text::page::{CLOSE, escape, open, wide};

use super::by_test;
use crate::write_facts;

const NAME: &str = "target/bench/grid-distance";
const STYLE: &str = ".maps>*{min-width:0;max-width:100%}";

/// A figure: its key, what it is, how it is written, and from 0 to 1 how good it is.
type Figure = (&'static str, &'static str, fn(f64) -> String, fn(f64) -> f64);
const FIGURES: [Figure; 5] = [
    ("whole", "goodput / limit, start and last byte included", |it| format!("{it:.3}"), |it| (it - 0.8) / 0.2),
    (
        "steady",
        "goodput / limit between a fifth and nine tenths of the bytes",
        |it| format!("{it:.3}"),
        |it| (it - 0.8) / 0.2,
    ),
    ("redundant", "bytes sent needlessly", |it| format!("{:.2} %", it * 100.0), |it| 1.0 - it / 0.02),
    ("tail_rtt", "99 to 100 % of the bytes, round trips", |it| format!("{it:.2}"), |it| 1.0 - (it - 1.0) / 6.0),
    ("queue_ms", "mean wait in the queue, ms", |it| format!("{it:.1}"), |it| 1.0 - it / 20.0),
];

fn of(cell: &Value, key: &str) -> f64 {
    cell[key].as_f64().unwrap_or(f64::NAN)
}

fn missed(cell: &Value) -> &str {
    cell["missed"].as_str().unwrap_or_default()
}

/// Each value of a key once, in order.
fn axis(cells: &[&Value], key: &str) -> Vec<f64> {
    let mut values: Vec<f64> = cells.iter().map(|cell| of(cell, key)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

/// One figure of one rate: losses downwards, round trips to the right.
fn heat(cells: &[&Value], (key, title, form, good): Figure) -> String {
    let trips = axis(cells, "rtt_ms");
    let heads: String = trips.iter().map(|trip| format!("<th>{trip} ms")).collect();
    let mut out = format!("<table><caption>{}</caption><tr><th>loss \\ round trip{heads}<th>spread", escape(title));
    for loss in axis(cells, "loss_ppm") {
        let line: Vec<&&Value> = cells.iter().filter(|cell| of(cell, "loss_ppm") == loss).collect();
        let _ = write!(out, "<tr><th>{} %", loss / 1e4);
        for trip in &trips {
            let Some(cell) = line.iter().find(|cell| of(cell, "rtt_ms") == *trip) else {
                out += "<td>–";
                continue;
            };
            let misses = if missed(cell).is_empty() { "nothing" } else { missed(cell) };
            let note = format!("worst seed {}; {} seeds; misses: {misses}", cell["worst"], cell["seeds"]);
            let (value, (fill, ink)) = (form(of(cell, key)), colours(good(of(cell, key))));
            let _ = write!(out, "<td style=\"background:{fill};color:{ink}\" title=\"{}\">{value}", escape(&note));
        }
        let values: Vec<f64> = line.iter().map(|cell| of(cell, key)).collect();
        let most = values.iter().copied().fold(1e-9, f64::max);
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let _ = write!(out, "<td>{:.1} %", (most - least) / most * 100.0);
    }
    wide(title, &(out + "</table>"))
}

fn page(cells: &[Value], facts: &str) -> String {
    let mut maps = String::new();
    for rate in axis(&cells.iter().collect::<Vec<_>>(), "rate_mbit") {
        let cells: Vec<&Value> = cells.iter().filter(|cell| of(cell, "rate_mbit") == rate).collect();
        let all: String = FIGURES.into_iter().map(|figure| heat(&cells, figure)).collect();
        let _ =
            write!(maps, "<h2>{rate} Mbit/s, packets of {} bytes</h2><div class=maps>{all}</div>", cells[0]["packet"]);
    }
    let misses = cells.iter().filter(|cell| !missed(cell).is_empty()).map(|cell| {
        let (rate, trip, loss) = (&cell["rate_mbit"], &cell["rtt_ms"], of(cell, "loss_ppm") / 1e4);
        format!("<li>{rate} Mbit/s, {trip} ms, {loss} %: {}", escape(missed(cell)))
    });
    let misses = misses.collect::<String>();
    format!(
        "{}<p>{}</p>
<p>One transfer of 100 round trips per seed through the real sending and receiving machines of a flow and the controller <code>delay</code>, policy <code>fair</code>, which knows nothing of the path.
Queue: one bandwidth-delay product, 100 kB at least. Limit: rate × (1 − loss) × payload share of a packet; above 1 random loss was below its mean. Loss strikes behind the queue.
The connection's own round trips are not in it. Spread: greatest less least over the distances, by the greatest.</p>
{maps}<h2>Missed of what issue 3 asks</h2><ul>{}</ul>{CLOSE}",
        open("longhaul-race grid --distance: distance and loss in virtual time", &crate::date(), STYLE),
        escape(facts),
        if misses.is_empty() { "<li>nothing" } else { &misses }
    )
}

pub(crate) fn run() -> anyhow::Result<()> {
    std::fs::create_dir_all("target/bench")?;
    // Cargo runs a test in the folder of its crate.
    let (began, lines) = (Instant::now(), std::path::absolute(NAME)?.with_extension("lines"));
    by_test("distance_and_loss_do_not_matter_to_a_whole_transfer", &[("GRID", lines.as_os_str())])?;
    let text = std::fs::read_to_string(&lines).context("the grid's test wrote nothing")?;
    std::fs::remove_file(&lines)?;
    let cells = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let seconds = began.elapsed().as_secs();
    let facts = format!("{}, {}, {seconds} s of computing", crate::date(), crate::commit());
    std::fs::write(Path::new(NAME).with_extension("html"), page(&cells, &facts))?;
    let count = cells.iter().filter(|cell| !missed(cell).is_empty()).count();
    println!("{} cells, {count} miss something; {NAME}.html", cells.len());
    write_facts(Path::new(NAME), json!({"seconds": seconds, "cells": cells}))
}

/// Two rates by seven distances and six losses, one of them missing.
#[cfg(test)]
pub(crate) fn sample() -> String {
    let mut cells = Vec::new();
    for (rate, trip, loss) in [155, 10_000]
        .into_iter()
        .flat_map(|rate| [1, 10, 50, 100, 200, 300, 500].map(|trip| (rate, trip)))
        .flat_map(|(rate, trip)| [0, 100, 1000, 10_000, 50_000, 100_000].map(|loss| (rate, trip, loss)))
        .filter(|it| *it != (155, 1, 0))
    {
        cells.push(json!({"rate_mbit": rate, "rtt_ms": trip, "loss_ppm": loss, "packet": 1500, "seeds": 5, "worst": 3,
            "missed": if loss > 50_000 { "tail" } else { "" },
            "whole": 0.8 + 0.000_001 * f64::from(loss), "steady": 0.951, "redundant": 0.001, "tail_rtt": 1.5, "queue_ms": 7.2}));
    }
    page(&cells, "2026-11-25 10:00 UTC, v0.1.0-1234-gabcdef012, 123 s of computing")
}
