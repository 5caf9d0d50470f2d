//! The grid as one page that needs nothing else, and as the small page that is kept.
//!
//! For: people who look once. In and out: a report and its cells → HTML with inline SVG; the report's JSON → Markdown.
//! Invariants: nothing stands here that the JSON or the cells' lines do not hold.
//! Absent on purpose: what is asked (judge.rs).

use std::fmt::Write as _;

use bench::plot::{Line, plot};
use bench::wan::page::colours;
use serde_json::Value;
use text::page::{CLOSE, escape, open, wide};

use super::judge::{Cell, Figures, Report, quantile};

const STYLE: &str = ".maps>*{min-width:0;max-width:100%}td:first-child,th:first-child{text-align:left;white-space:nowrap}\
.worst td:nth-child(3),.worst td:last-child{text-align:left;min-width:16em}";
const HEADS: [&str; 12] = [
    "",
    "cells",
    "of the limit",
    "of the model",
    "its 5 %",
    "its least",
    "knowing the path",
    "sent ÷ file",
    "its 95 %",
    "queue, ms",
    "p95, ms",
    "keep all bounds",
];
/// What stands below every table of the figures.
const MODEL: &str = "The model is a sender that doubles from 16 packets in each round trip (RFC 5681) until it fills the link, then carries just what the link does, drops nothing, \
leaves no queue, and repairs what the path loses a round trip later, as often as the median of such losses asks. What the path lost is what it lost in that run. Knowing the path: the same \
with all of the link after one round trip. Limit: what the link could have carried of the file in the time that the job took, headers and the path's loss taken off. Sent: less what the path lost.";

fn row(it: &Figures) -> [String; 12] {
    let ([model, twentieth, least], [sent, sent_most], [wait, wait_p95, _]) = (it.model, it.sent, it.queue_ms);
    [
        it.name.clone(),
        it.cells.to_string(),
        format!("{:.3}", it.limit),
        format!("{model:.3}"),
        format!("{twentieth:.3}"),
        format!("{least:.3}"),
        format!("{:.3}", it.least),
        format!("{sent:.3}"),
        format!("{sent_most:.3}"),
        format!("{wait:.2}"),
        format!("{wait_p95:.2}"),
        format!("{:.1} %", it.holding * 100.0),
    ]
}

fn table(name: &str, rows: &[Figures]) -> String {
    let mut heads = HEADS;
    heads[0] = name;
    let heads = heads.map(escape).join("<th>");
    let rows = rows.iter().map(|it| format!("<tr><td>{}", row(it).map(|cell| escape(&cell)).join("<td>")));
    wide(name, &format!("<table><tr><th>{heads}{}</table>", rows.collect::<String>()))
}

/// How the figures go along an axis of numbers.
fn plots(name: &str, bins: &[Figures]) -> String {
    let ticks: Vec<(f64, String)> = bins.iter().map(|bin| (bin.at, bin.tick.clone())).collect();
    let name = &format!("{name}, from");
    let line = |name: &str, of: &dyn Fn(&Figures) -> f64| Line {
        name: name.to_owned(),
        points: bins.iter().map(|bin| (bin.at, of(bin))).collect(),
    };
    let speed = [
        line("of the model, median", &|it| it.model[0]),
        line("of the model, 5 % have less", &|it| it.model[1]),
        line("of the limit, median", &|it| it.limit),
        line("cells that keep all bounds", &|it| it.holding),
    ];
    let sent = [line("median", &|it| it.sent[0]), line("5 % have more", &|it| it.sent[1])];
    let queue = [line("median packet", &|it| it.queue_ms[0]), line("95th percentile", &|it| it.queue_ms[1])];
    format!(
        "<div class=plots>{}{}{}</div>",
        plot("Speed", "share", name, &speed, &ticks, true),
        plot("Sent", "times the file", name, &sent, &ticks, true),
        plot("Wait in the queue, median of the cells", "ms", name, &queue, &ticks, true)
    )
}

/// All cells in the order of their share of the model.
fn order(cells: &[Cell]) -> String {
    let line = |name: &str, of: fn(&Cell) -> f64| Line {
        name: name.to_owned(),
        points: (0..=100)
            .map(|percent| f64::from(percent) / 100.0)
            .map(|share| (share * 100.0, quantile(cells.iter().map(of), share).min(2.0)))
            .collect(),
    };
    let lines = [
        line("of the model", |cell| cell.model),
        line("of a sender that knows the path", |cell| cell.least),
        line("of the limit", |cell| cell.limit),
    ];
    let ticks: Vec<(f64, String)> =
        (0..=5).map(|fifth| f64::from(fifth * 20)).map(|it| (it, format!("{it} %"))).collect();
    let sent = [Line {
        name: "sent ÷ file".to_owned(),
        points: (0..=100)
            .map(f64::from)
            .map(|it| (it, quantile(cells.iter().map(|cell| cell.sent), it / 100.0).min(5.0)))
            .collect(),
    }];
    let (speed, sent) = (
        plot("So many cells have no more (cut at 2)", "share", "cells", &lines, &ticks, false),
        plot("So many cells sent no more (cut at 5)", "times the file", "cells", &sent, &ticks, false),
    );
    format!("<div class=plots>{speed}{sent}</div>")
}

/// Packets of a round trip by round trips of data.
fn map(cells: &[Cell], title: &str, form: fn(&[&Cell]) -> (String, f64)) -> String {
    const TRIPS: [(&str, f64, f64); 6] = [
        ("2–5", 0.0, 5.0),
        ("5–15", 5.0, 15.0),
        ("15–50", 15.0, 50.0),
        ("50–150", 50.0, 150.0),
        ("150–500", 150.0, 500.0),
        ("more", 500.0, 1e12),
    ];
    const PRODUCTS: [(&str, f64, f64); 6] = [
        ("below 1", 0.0, 1.0),
        ("1–10", 1.0, 10.0),
        ("10–100", 10.0, 100.0),
        ("100–1000", 100.0, 1e3),
        ("1000–10,000", 1e3, 1e4),
        ("more", 1e4, 1e12),
    ];
    let heads: String = TRIPS.iter().map(|it| format!("<th>{}", it.0)).collect();
    let mut out = format!("<table><caption>{}</caption><tr><th>packets \\ round trips{heads}", escape(title));
    for (name, from, to) in PRODUCTS {
        let _ = write!(out, "<tr><th>{name}");
        for (_, least, most) in TRIPS {
            let within = |it: &&Cell| {
                let product = it.product();
                product >= from && product < to && it.trips >= least && it.trips < most
            };
            let those: Vec<&Cell> = cells.iter().filter(within).collect();
            if those.is_empty() {
                out += "<td>–";
                continue;
            }
            let (said, good) = form(&those);
            let (fill, ink) = colours(good);
            let _ = write!(out, "<td style=\"background:{fill};color:{ink}\" title=\"{} cells\">{said}", those.len());
        }
    }
    wide(title, &(out + "</table>"))
}

pub(super) fn page(report: &Report, cells: &[Cell], facts: &str) -> String {
    let mut axes = String::new();
    for axis in &report.axes {
        let _ = write!(axes, "<h2>By {}</h2>", escape(axis.name));
        if axis.bins.iter().all(|bin| bin.at >= 0.0) && axis.bins.len() > 2 {
            axes += &plots(axis.name, &axis.bins);
        }
        axes += &table(axis.name, &axis.bins);
    }
    let worst: String = report
        .worst
        .iter()
        .map(|it| {
            let said =
                [format!("{:.3}", it.model), format!("CELL={} make grid", it.cell), it.said.clone(), it.misses.clone()];
            format!("<tr><td>{}", said.map(|it| escape(&it)).join("<td>"))
        })
        .collect();
    let worst = wide(
        "The worst cells",
        &format!("<table class=worst><tr><th>of the model<th>again by<th>path and job<th>misses{worst}</table>"),
    );
    let median = |title: &str, of: fn(&[&Cell]) -> (String, f64)| map(cells, title, of);
    let maps = median("of the model, median", |those| {
        let it = quantile(those.iter().map(|cell| cell.model), 0.5);
        (format!("{it:.2}"), (it - 0.7) / 0.3)
    }) + &median("of the model, 5 % have less", |those| {
        let it = quantile(those.iter().map(|cell| cell.model), 0.05);
        (format!("{it:.2}"), (it - 0.5) / 0.5)
    }) + &median("sent ÷ file, 95th percentile", |those| {
        let it = quantile(those.iter().map(|cell| cell.sent), 0.95);
        (format!("{it:.2}"), 1.0 - (it - 1.0) / 0.5)
    });
    let [model, sent, queue, fell, open_ends] = report.missing.map(|it| it * 100.0);
    format!(
        "{}<p><b class=\"{}\">{}</b></p><p>{}</p><p>Asked: {}. Missed by bound: model {model:.1} %, sent {sent:.1} %, queue {queue:.1} %, fall-backs {fell:.2} %, not ended \
{open_ends:.2} % of the cells.</p>
<p>Each cell is one job through the real sending and receiving machines of a flow and the controller <code>delay</code>, policy <code>fair</code>, which knows nothing of the path, from its \
first packet to its last byte; the connection's own round trips are not in it. A fall-back to TCP: no greeting was answered before UDP is given up, by the machine that gives it up, or the sender \
heard nothing for 15 s. Of the cells of a link with a queue, 0 to 10 % of loss of each packet by itself and up to 4 MB, {} were played as whole jobs, too, with both ends' disks, workers and session in \
virtual time: {} gave its datagram rail up, {} stood still. {MODEL}</p>
{}{}<div class=maps>{maps}</div><h2>Why cells are below 0.7 of the model</h2>{}<h2>The worst</h2>{worst}{axes}{CLOSE}",
        open("longhaul-race grid: paths and jobs of every kind in virtual time", &crate::date(), STYLE),
        if report.holds { "" } else { "flag" },
        escape(&report.verdict()),
        escape(facts),
        escape(&report.asked),
        report.jobs,
        numbers(&report.jobs_fallen_back),
        numbers(&report.jobs_stuck),
        order(cells),
        table("all", std::slice::from_ref(&report.all)),
        causes(report),
    )
}

fn numbers(cells: &[usize]) -> String {
    if cells.is_empty() { "none".to_owned() } else { format!("{cells:?}") }
}

/// What README.md says of the grid that is kept: rows of its table.
#[cfg(test)]
fn readme_rows(small: &Value) -> [String; 2] {
    let all = &small["all"];
    let of = |value: &Value| format!("{:.2}", value.as_f64().unwrap_or(f64::NAN));
    [
        format!("| speed, of what a perfect sender gets there | {} | {} |", of(&all["model"][0]), of(&all["model"][1])),
        format!(
            "| bytes sent, of the file's, less what the path lost | {} | {} |",
            of(&all["sent"][0]),
            of(&all["sent"][1])
        ),
    ]
}

#[test]
fn the_readme_and_the_page_that_is_kept_say_what_the_kept_grid_says() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect("a file of the repository");
    let small: Value = serde_json::from_str(&read("results/grid.json")).expect("JSON");
    let readme = read("../README.md");
    for row in readme_rows(&small) {
        assert!(readme.contains(&row), "README.md has no row {row}");
    }
    assert_eq!(summary("grid", &small), read("results/grid.md"), "longhaul-race summary makes the page of the JSON");
}

/// Groups of cells below the least.
fn causes(report: &Report) -> String {
    let rows = report.causes.iter().map(|it| {
        let worst: Vec<String> = it.worst.iter().map(usize::to_string).collect();
        format!("<tr><td>{}<td>{}<td>{}<td>{}", escape(&it.name), it.cells, it.below, worst.join(", "))
    });
    let table = format!(
        "<table><tr><th>path and job<th>cells<th>below<th>the worst of them{}</table>",
        rows.collect::<String>()
    );
    wide("Why cells are below 0.7 of the model", &table)
}

fn cells_of_row(of: &Value) -> String {
    let figure = |value: &Value, places: usize| format!("{:.places$}", value.as_f64().unwrap_or(f64::NAN));
    let (model, sent, wait) = (&of["model"], &of["sent"], &of["queue_ms"]);
    let cells = [
        of["name"].as_str().unwrap_or_default().to_owned(),
        of["cells"].to_string(),
        figure(&of["limit"], 3),
        figure(&model[0], 3),
        figure(&model[1], 3),
        figure(&model[2], 2),
        figure(&of["least"], 3),
        figure(&sent[0], 3),
        figure(&sent[1], 2),
        figure(&wait[0], 1),
        figure(&wait[1], 1),
        format!("{:.1} %", of["holding"].as_f64().unwrap_or(f64::NAN) * 100.0),
    ];
    format!("| {} |\n", cells.join(" | "))
}

/// bench/results/grid.md, of the report as it is kept.
pub(crate) fn summary(name: &str, small: &Value) -> String {
    let word = |key: &str| small[key].as_str().unwrap_or_default();
    let head = |first: &str| {
        let mut heads = HEADS;
        heads[0] = first;
        format!("| {} |\n|{}\n", heads.join(" | "), "---|".repeat(heads.len()))
    };
    let all = &small["all"];
    let percent = |value: &Value| format!("{:.2} %", value.as_f64().unwrap_or(f64::NAN) * 100.0);
    let mut text = format!(
        "# Benchmark `{name}`\n\n{} cells in virtual time, {}, commit {}{}, {} cores, load {} at the end: **{}**. {} of the cells keep all bounds, {} have less than 0.7 \
         of the model, {} fell back to TCP.\nAsked: {}.\n\nMissed by bound: model {}, sent {}, queue {}, fall-backs {}, not ended {}. Less than 0.95, 0.9, 0.8, 0.7, 0.5 of the model: {}.\n\
         {} of the cells as whole jobs in the engine's simulator; cells that gave their datagram rail up there: {}; that stood still: {}.\n\n{MODEL}\n\n{}{}\n",
        all["cells"],
        word("date"),
        word("commit"),
        small["seconds"].as_u64().map_or(String::new(), |it| format!(", {it} s")),
        small["cores"],
        small["load"],
        if small["holds"] == true { "holds" } else { "does not hold" },
        percent(&all["holding"]),
        percent(&all["below"]),
        all["fall_backs"],
        word("asked"),
        percent(&small["missing"][0]),
        percent(&small["missing"][1]),
        percent(&small["missing"][2]),
        percent(&small["missing"][3]),
        percent(&small["missing"][4]),
        small["under"].as_array().into_iter().flatten().map(percent).collect::<Vec<_>>().join(", "),
        small["jobs"],
        small["jobs_fallen_back"],
        small["jobs_stuck"],
        head("all"),
        cells_of_row(all)
    );
    for axis in small["axes"].as_array().into_iter().flatten() {
        text += &head(axis["name"].as_str().unwrap_or_default());
        axis["bins"].as_array().into_iter().flatten().for_each(|bin| text += &cells_of_row(bin));
        text += "\n";
    }
    text += "Cells below 0.7 of the model, each by the first line that it fits:\n\n| path and job | cells | below | the worst of them |\n|---|---|---|---|\n";
    for it in small["causes"].as_array().into_iter().flatten() {
        let worst: Vec<String> = it["worst"].as_array().into_iter().flatten().map(Value::to_string).collect();
        let name = it["name"].as_str().unwrap_or_default();
        let _ = writeln!(text, "| {name} | {} | {} | {} |", it["cells"], it["below"], worst.join(", "));
    }
    text +=
        "\nThe worst; `CELL=number make grid` plays one again:\n\n| of the model | cell | misses |\n|---|---|---|\n";
    for it in small["worst"].as_array().into_iter().flatten() {
        let of = |key: &str| it[key].as_str().unwrap_or_default();
        let _ =
            writeln!(text, "| {:.3} | {} | {} |", it["model"].as_f64().unwrap_or(f64::NAN), of("said"), of("misses"));
    }
    text + "\nMake it: `make grid`, then `longhaul-race summary target/bench/grid.json`.\n"
}
