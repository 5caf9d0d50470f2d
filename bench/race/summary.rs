//! The small summary that is kept of a full result: one JSON of at most 20 KB and one page.
//!
//! For: bench/results. In and out: target/bench/NAME.json → bench/results/NAME.json and NAME.md.
//! Invariants: each row keeps its median, least and most, the program's version, the command and what it does not do; single rounds go.
//! Figures are rounded to four digits; nothing is computed anew.
//! Absent on purpose: plots (the full result's HTML has them); judging which of two runs is the better one.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;
use serde_json::{Map, Value, json};

use super::call;

const FOLDER: &str = "bench/results";
const BYTES_MAX: usize = 20_000;
/// Of a command.
const LETTERS_MAX: usize = 240;

/// `longhaul-race summary`.
#[derive(Debug, Args)]
pub(crate) struct SummaryArguments {
    full: PathBuf,
    /// [default: as the full result]
    name: Option<String>,
    /// Of a race, only the parts whose title holds this text; several times for several
    #[arg(long)]
    part: Vec<String>,
}

fn unit(key: &str) -> &str {
    match key {
        "gbps_flushed" => "Gbit/s, flushed",
        "cpu_s_per_million" => "CPU s per million files",
        other => super::record::unit(other),
    }
}

fn rounded(value: Value) -> Value {
    match value {
        Value::Number(it) if it.is_f64() => {
            json!(it.as_f64().and_then(|it| format!("{it:.3e}").parse::<f64>().ok()))
        }
        Value::Array(all) => all.into_iter().map(rounded).collect(),
        Value::Object(all) => all.into_iter().map(|(key, it)| (key, rounded(it))).collect(),
        other => other,
    }
}

/// Those of an object that are there and say something.
fn keep(from: &Value, keys: &[&str]) -> Map<String, Value> {
    let says = |value: &Value| !matches!(value, Value::Null | Value::Bool(false)) && *value != json!("");
    let kept = keys.iter().filter_map(|key| Some(((*key).to_owned(), from.get(*key)?.clone())));
    kept.filter(|(_, value)| says(value)).collect()
}

fn items<'a>(of: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    of[key].as_array().into_iter().flatten()
}

fn word<'a>(of: &'a Value, key: &str) -> &'a str {
    of[key].as_str().unwrap_or_default()
}

fn short(command: &str) -> String {
    command.chars().take(LETTERS_MAX).collect()
}

/// `peers` and `paths`: parts with one row for each program. Of those whose title holds one of `only`, if there are any.
fn race(full: &Value, only: &[String]) -> Value {
    let is_wanted = |part: &&Value| only.is_empty() || only.iter().any(|text| word(part, "title").contains(text));
    let parts = items(full, "parts").filter(is_wanted).map(|part| {
        let rows = items(part, "rows").map(|row| {
            let keys =
                ["name", "version", "encrypts", "lacks", "why_not", word(part, "unit"), word(part, "cost"), "of_links"];
            let mut kept = keep(row, &keys);
            if !word(row, "command").is_empty() {
                kept.insert("command".to_owned(), json!(short(word(row, "command"))));
            }
            kept.insert("rounds".to_owned(), json!(items(row, "rounds").count()));
            kept
        });
        json!({"title": part["title"], "unit": part["unit"], "cost": part["cost"], "rows": rows.collect::<Vec<_>>()})
    });
    json!({"machine": full["machine"], "parts": parts.collect::<Vec<_>>()})
}

/// `longhaul bench wan`: cells of rate, distance and loss, with one row for each program.
fn distance(full: &Value) -> Value {
    let mut out = keep(full, &["bench", "version", "host", "rounds", "trips", "tcp_default", "programs", "notes"]);
    let date = call("date", &["-u", &format!("-d@{}", full["began_unix_s"]), "+%F"]);
    out.insert("date".to_owned(), json!(date.unwrap_or_default()));
    let mut commands = Map::new();
    let cells = items(full, "cells").map(|cell| {
        let rows = items(cell, "rows").map(|row| {
            commands.entry(word(row, "name")).or_insert_with(|| json!(short(word(row, "command"))));
            let mut kept = keep(row, &["name"]);
            for key in ["share", "redundant_percent", "cpu_s_per_gb"] {
                kept.extend(row[key].get("median").map(|it| (key.to_owned(), it.clone())));
            }
            kept
        });
        let rows: Vec<_> = rows.collect();
        let mut kept = keep(cell, &["rate", "rtt", "loss", "seconds", "load"]);
        kept.insert("rows".to_owned(), json!(rows));
        kept
    });
    let cells: Vec<_> = cells.collect();
    out.extend([("commands".to_owned(), json!(commands)), ("cells".to_owned(), json!(cells))]);
    json!(out)
}

fn table(heads: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let head = line(heads.iter().map(|&head| head.to_owned()).collect()) + "|" + &"---|".repeat(heads.len()) + "\n";
    rows.fold(head, |text, row| text + &line(row.into_iter().map(|it| it.replace('|', "\\|")).collect()))
}

/// Three digits, and thousands set apart.
fn digits(value: f64) -> String {
    if value >= 999.5 {
        return text::units::show_count(value.round() as u64).replace(' ', ",");
    }
    let places = (2.0 - value.abs().max(1e-9).log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn figure(value: &Value) -> String {
    let of = |key: &str| value[key].as_f64();
    match (of("median"), of("min"), of("max")) {
        (Some(median), Some(min), Some(max)) if min != max && median < 1000.0 => {
            format!("{} ({}–{})", digits(median), digits(min), digits(max))
        }
        (Some(median), ..) => digits(median),
        _ => "–".to_owned(),
    }
}

fn page_of_race(name: &str, small: &Value) -> String {
    let machine = &small["machine"];
    let mut text = format!(
        "# Benchmark `{name}`\n\nMeasured {} on {}, Linux {}, {}; load before: {}.\n\
         Medians (least–most) of the rounds of one run, programs in turn. A ratio inside one table counts; absolute figures are this machine's.\n\
         Each program's exact command and version: [{name}.json]({name}.json).\n\n",
        word(machine, "date"),
        word(machine, "cpu"),
        word(machine, "kernel"),
        word(machine, "hosts"),
        word(machine, "load before").split(' ').next().unwrap_or_default()
    );
    for part in items(small, "parts") {
        let (unit_key, cost) = (word(part, "unit"), word(part, "cost"));
        let rows = items(part, "rows").filter(|row| row.get(unit_key).is_some()).map(|row| {
            let encrypts = if row["encrypts"] == true { "yes" } else { "no" };
            vec![
                word(row, "name").to_owned(),
                encrypts.to_owned(),
                figure(&row[unit_key]),
                figure(&row[cost]),
                word(row, "lacks").to_owned(),
            ]
        });
        let heads = ["program", "encrypts", unit(unit_key), unit(cost), "what it does not do"];
        text += &format!("## {}\n\n{}", word(part, "title"), table(&heads, rows));
        for row in items(part, "rows").filter(|row| row.get("why_not").is_some()) {
            text += &format!("\nNot run: {}: {}\n", word(row, "name"), word(row, "why_not"));
        }
        text += "\n";
    }
    text.trim_end().to_owned() + "\n"
}

fn page_of_distance(name: &str, small: &Value) -> String {
    let host = &small["host"];
    // In the order of their turns.
    let mut names: Vec<&str> = Vec::new();
    for row in items(small, "cells").flat_map(|cell| items(cell, "rows")) {
        if !names.contains(&word(row, "name")) {
            names.push(word(row, "name"));
        }
    }
    let programs: Vec<&str> = items(small, "programs").filter_map(Value::as_str).collect();
    let heads: Vec<&str> = ["rate", "round trip", "loss"].into_iter().chain(names.iter().copied()).collect();
    let rows = items(small, "cells").map(|cell| {
        let share =
            |name: &str| items(cell, "rows").find(|row| row["name"] == *name).and_then(|row| row["share"].as_f64());
        let shares = names.iter().map(|name| share(name).map_or("–".to_owned(), |it| format!("{it:.2}")));
        ["rate", "rtt", "loss"].iter().map(|key| word(cell, key).to_owned()).chain(shares).collect()
    });
    format!(
        "# Benchmark `{name}`\n\nMeasured {} on {}, {} cores, Linux {}, load {} at the start; {} round(s) a cell; links made by `longhaul lab`.\n\
         Programs: longhaul {}; {}. TCP's default there: {}.\n\nShare of the limit (rate × (1 − loss) × payload share of a 1500-byte packet) that \
         each filled, over the whole transfer, start-up and end included:\n\n{}\nCommands: [{name}.json]({name}.json). Run it: `longhaul bench wan --help`.\n",
        word(small, "date"),
        word(host, "cpu"),
        host["cores"],
        word(host, "kernel"),
        host["load"],
        small["rounds"],
        word(small, "version"),
        programs.join("; "),
        word(small, "tcp_default"),
        table(&heads, rows)
    )
}

/// `longhaul bench ftp`: rows with their commands once, and of each cell the medians in that order, with the spread in percent of them.
fn ftp(full: &Value) -> Value {
    let mut out = keep(full, &["bench", "version", "date", "host", "versions", "notes", "absent"]);
    let (mut names, mut rows): (Vec<String>, Vec<Map<String, Value>>) = (Vec::new(), Vec::new());
    for lane in items(full, "ftp").flat_map(|cell| items(cell, "lanes")) {
        let name = word(lane, "name").to_owned();
        let at = names.iter().position(|it| *it == name).unwrap_or_else(|| {
            names.push(name);
            rows.push(keep(lane, &["name", "lacks"]));
            rows.len() - 1
        });
        let commands = rows[at].entry("commands").or_insert(json!([]));
        if let Value::Array(all) = commands
            && !all.contains(&lane["command"])
        {
            all.push(lane["command"].clone());
        }
    }
    let cells = items(full, "ftp").map(|cell| {
        let mut kept = keep(cell, &["figure", "what", "bytes", "files"]);
        let figures = |of: &dyn Fn(&Value) -> Value| {
            let lane = |name: &String| items(cell, "lanes").find(|lane| lane["name"] == **name);
            names.iter().map(|name| lane(name).map_or(Value::Null, of)).collect::<Vec<Value>>()
        };
        kept.insert("rounds".to_owned(), json!(items(cell, "lanes").map(|lane| items(lane, "turns").count()).max()));
        kept.insert(
            "ms".to_owned(),
            json!(figures(&|lane| json!(lane["seconds"]["median"].as_f64().map(|it| it * 1e3)))),
        );
        let spread = |lane: &Value| {
            let [median, min, max] = ["median", "min", "max"].map(|key| lane["seconds"][key].as_f64());
            json!(median.zip(min.zip(max)).map(|(median, (min, max))| ((max - min) / median * 100.0).round() as u64))
        };
        if kept["rounds"].as_u64() > Some(1) {
            kept.insert("spread_percent".to_owned(), json!(figures(&spread)));
        }
        let middle = |lane: &Value, of: &dyn Fn(&Value) -> Option<f64>| {
            let all: Vec<f64> = items(lane, "turns").filter_map(of).collect();
            if all.is_empty() { Value::Null } else { json!(bench::table::median(&all)) }
        };
        let bytes = cell["bytes"].as_f64().unwrap_or(1.0) / 1e9;
        if cell["figure"] == "cpu" {
            for key in ["client_s", "server_s"] {
                let per_gb = figures(&|lane| middle(lane, &|turn| Some(turn[key].as_f64()? / bytes)));
                kept.insert(format!("{key}_per_gb"), json!(per_gb));
            }
        }
        if cell["figure"] == "breakdown" {
            for key in ["connection", "data", "waiting", "end"] {
                let ms = figures(&|lane| middle(lane, &|turn| Some(turn["parts"][key].as_f64()? * 1e3)));
                kept.insert(format!("{key}_ms"), json!(ms));
            }
        }
        let failed =
            items(cell, "lanes").filter_map(|lane| Some(json!([lane["name"], short(lane["failed"][0].as_str()?)])));
        kept.insert("failed".to_owned(), json!(failed.collect::<Vec<_>>()));
        kept
    });
    let cells: Vec<_> = cells.collect();
    out.extend([("rows".to_owned(), json!(rows)), ("ftp".to_owned(), json!(cells))]);
    json!(out)
}

fn page_of_ftp(name: &str, small: &Value) -> String {
    let host = &small["host"];
    let lines = |key: &str, of: &dyn Fn(&Value) -> String| {
        items(small, key).map(|it| format!("* {}\n", of(it))).collect::<String>()
    };
    let plain = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let mut text = format!(
        "# Benchmark `{name}`\n\nMeasured {} on {}, {} cores, Linux {}, load {} at the start; rows in turn; ms from the client's start to its end, \
         medians; in brackets what lies between the least and the most, in % of the median. A row is *server, client*; compare *clear* with *clear* and \
         *TLS* with *TLS*; *sealed* is encrypted and checked end to end. Commands: [{name}.json]({name}.json). Run it: `make bench-ftp`, which also \
         makes the page with plots.\n\n{}\n{}\nNot run:\n\n{}\nWhat rows do less:\n\n{}",
        word(small, "date"),
        word(host, "cpu"),
        host["cores"],
        word(host, "kernel"),
        host["load"],
        lines("versions", &plain),
        lines("notes", &plain),
        lines("absent", &|it| format!("{}: {}", word(it, "name"), word(it, "why"))),
        lines("rows", &|it| format!("{}: {}", word(it, "name"), it["lacks"].as_str().unwrap_or("nothing"))),
    );
    // Delay by delay: each figure comes again and again.
    let figures = bench::table::distinct(items(small, "ftp").map(|cell| word(cell, "figure")));
    for figure in figures {
        let cells: Vec<&Value> = items(small, "ftp").filter(|cell| word(cell, "figure") == figure).collect();
        let keys: &[&str] = match figure {
            "cpu" => &["ms", "client_s_per_gb", "server_s_per_gb"],
            "breakdown" => &["ms", "connection_ms", "data_ms", "waiting_ms", "end_ms"],
            _ => &["ms"],
        };
        // Transports alone are rates.
        let heads = cells.iter().flat_map(|cell| {
            keys.iter().map(move |key| match (figure, *key) {
                ("depth", _) => format!("{}, Gbit/s", word(cell, "what")),
                (_, "ms") => word(cell, "what").to_owned(),
                (_, key) => key.replace('_', " "),
            })
        });
        let heads: Vec<String> = std::iter::once("row".to_owned()).chain(heads).collect();
        let rows = items(small, "rows").enumerate().filter_map(|(at, row)| {
            let figures = cells.iter().flat_map(|cell| {
                keys.iter().map(move |key| {
                    let value = cell[*key][at].as_f64()?;
                    let value = if figure == "depth" { cell["bytes"].as_f64()? * 8.0 / 1e6 / value } else { value };
                    let spread = cell["spread_percent"][at].as_u64().filter(|_| *key == "ms");
                    Some(spread.map_or(digits(value), |it| format!("{} ({it})", digits(value))))
                })
            });
            let figures: Vec<Option<String>> = figures.collect();
            figures.iter().any(Option::is_some).then(|| {
                let figures = figures.into_iter().map(|it| it.unwrap_or_else(|| "–".to_owned()));
                std::iter::once(word(row, "name").to_owned()).chain(figures).collect()
            })
        });
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        let rounds = cells.iter().filter_map(|cell| cell["rounds"].as_u64()).max().unwrap_or(0);
        text += &format!("\n## {figure}\n\n{rounds} round(s).\n\n{}", table(&heads, rows));
        for (cell, failed) in cells.iter().flat_map(|cell| items(cell, "failed").map(move |it| (cell, it))) {
            let [name, why] = [0, 1].map(|at| failed[at].as_str().unwrap_or_default());
            text += &format!("\nFailed: {}: {name}: {why}\n", word(cell, "what"));
        }
    }
    text
}

pub(crate) fn run(arguments: &SummaryArguments) -> anyhow::Result<()> {
    let stem = arguments.full.file_stem().and_then(|stem| stem.to_str()).context("a file with a name")?;
    let name = arguments.name.as_deref().unwrap_or(stem);
    let full: Value = serde_json::from_slice(&std::fs::read(&arguments.full)?)?;
    let (small, page) = if full.get("cells").is_some() {
        let small = rounded(distance(&full));
        (small.clone(), Some(page_of_distance(name, &small)))
    } else if full.get("parts").is_some() {
        let small = rounded(race(&full, &arguments.part));
        (small.clone(), Some(page_of_race(name, &small)))
    } else if full.get("ftp").is_some() {
        let small = rounded(ftp(&full));
        (small.clone(), Some(page_of_ftp(name, &small)))
    } else if full.get("axes").is_some() {
        let small = rounded(full);
        (small.clone(), Some(super::grid::summary(name, &small)))
    } else {
        (rounded(full), None)
    };
    // A line for each row, so that a change shows.
    let text = small.to_string().replace("[{", "[\n{").replace("},{", "},\n{") + "\n";
    ensure!(text.len() <= BYTES_MAX, "{name}: the summary has {} bytes, at most {BYTES_MAX} are kept", text.len());
    let path = Path::new(FOLDER).join(name);
    std::fs::write(path.with_extension("json"), text)?;
    match page {
        Some(page) => std::fs::write(path.with_extension("md"), page)?,
        None => println!("{name}: the page of this one is written by hand: {}.md", path.display()),
    }
    Ok(())
}
