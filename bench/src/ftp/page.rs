//! The figures as one page that needs nothing else, and a cell as text.
//!
//! For: people. In and out: the report → HTML with inline SVG, for light and dark screens; a cell → a table.
//! Invariants: no script, no outside file; every name is escaped; what a row does less stands in its line.
//! Absent on purpose: anything that the JSON beside it does not hold.

use std::fmt::Write as _;

use crate::ftp::record::{Cell, Lane, Parts, Report, Turn};
use crate::race::Spread;
use crate::table::median;
use text::page::{CLOSE, escape, list, open, wide};
use text::plot::{self, Bar, Line};
use text::units;

/// Figures in their order: name, title, what to know of it.
const FIGURES: [(&str, &str, &str); 7] = [
    ("lan", "LAN: time of get over file size", "From the client's start to its end, on a wire of the kernel's."),
    ("wan", "WAN: time of get over delay", "Delay one way; 5 µs are one km."),
    (
        "depth",
        "Transports alone",
        "From memory to memory by `bench net`: a loop that sends and receives a message at a time (bare loop), and one rail, whose message is its chunk of 1 MiB. Messages in flight are the rail's own affair: there is no depth to choose, and RDMA is not in this build.",
    ),
    (
        "zipf",
        "Traces of many files",
        "Sizes by Zipf: rank r has 1/r of the largest. Over a distance there are fewer files, so compare the time of one file.",
    ),
    (
        "cpu",
        "Processor time for put and get",
        "Ticks of the client's process, the control group of the server. vsftpd and ours send by sendfile in clear: the receiver pays. On one host the network's work is booked to whoever runs it, so their sum says most.",
    ),
    (
        "breakdown",
        "Where the time goes",
        "Before the first data, while data came, between data, after the last: by the counters of host a's interface, each ms. RDMA's registration cache is not in this build.",
    ),
    ("motivation", "GridFTP in steps of tuning, ours as it is", ""),
];

fn ms(seconds: f64) -> String {
    let ms = seconds * 1e3;
    if ms >= 100.0 { format!("{ms:.0}") } else { format!("{ms:.2}") }
}

fn spread(of: Option<Spread>, show: impl Fn(f64) -> String) -> String {
    of.map_or("–".to_owned(), |it| format!("{} ({}–{})", show(it.median), show(it.min), show(it.max)))
}

fn gbps(cell: &Cell, seconds: f64) -> f64 {
    cell.bytes as f64 * 8.0 / seconds / 1e9
}

/// Medians of the parts of a row's time.
pub fn parts(lane: &Lane) -> Option<Parts> {
    let all: Vec<Parts> = lane.turns.iter().filter_map(|turn| turn.parts).collect();
    // Parts of one turn sum up to its time, medians of several do not: those of the turn of the median time.
    let times: Vec<f64> = lane.turns.iter().map(|turn| turn.seconds).collect();
    let middle = median(&times);
    times.iter().position(|&it| it == middle).and_then(|at| all.get(at).copied())
}

/// A cell for the terminal.
pub fn text_table(cell: &Cell) -> String {
    let mut text = format!("{}: {}\n", cell.figure, cell.what);
    for lane in &cell.lanes {
        let rate = lane.median().map_or(0.0, |it| gbps(cell, it));
        let _ = write!(text, "  {:<32} {:>28} ms {rate:>8.3} Gbit/s", lane.name, spread(lane.seconds, ms));
        if let Some(parts) = parts(lane) {
            let _ = write!(
                text,
                "  connection {} data {} between {} end {}",
                ms(parts.connection),
                ms(parts.data),
                ms(parts.waiting),
                ms(parts.end)
            );
        }
        let _ = writeln!(text, "  {}", lane.failed.first().map_or(lane.lacks, String::as_str));
    }
    text
}

/// The page.
pub fn page(report: &Report) -> String {
    let mut text = open("longhaul bench ftp: servers, clients and transports side by side", &report.date, plot::STYLE);
    let _ = write!(
        text,
        "<p>{}. Medians of {} rounds, rows in turn (least–most).</p>",
        escape(&report.host.to_string()),
        report.rounds
    );
    text += &list(&report.versions);
    text += &list(&report.notes);
    let absent: Vec<String> = report.absent.iter().map(|it| format!("not run: {}: {}", it.name, it.why)).collect();
    text += &list(&absent);
    for (name, title, words) in FIGURES {
        let cells: Vec<&Cell> = report.ftp.iter().filter(|cell| cell.figure == name).collect();
        if cells.is_empty() {
            continue;
        }
        let _ = write!(text, "<h2>{title}</h2><p>{}</p><div class=plots>{}</div>", escape(words), plots(name, &cells));
        for cell in &cells {
            text += &wide(&cell.what, &table(cell));
        }
    }
    text += "<h2>Commands</h2>";
    let mut seen: Vec<String> = Vec::new();
    for lane in report.ftp.iter().flat_map(|cell| &cell.lanes) {
        let line = format!("{}: {}", lane.name, lane.command);
        if !seen.contains(&line) {
            seen.push(line);
        }
    }
    text + &list(&seen) + CLOSE
}

fn plots(figure: &str, cells: &[&Cell]) -> String {
    let by = |key: fn(&Cell) -> u64| {
        let mut all: Vec<u64> = cells.iter().map(|cell| key(cell)).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let (sizes, delays) = (by(|cell| cell.bytes), by(|cell| cell.delay_us as u64));
    let size_places: Vec<(f64, String)> =
        sizes.iter().map(|&bytes| (bytes as f64, units::show_memory(bytes).replace(' ', ""))).collect();
    let delay_places: Vec<(f64, String)> =
        (0..).zip(&delays).map(|(at, us)| (f64::from(at), units::show_seconds(*us as f64 / 1e6))).collect();
    let place = |cell: &Cell| delays.iter().position(|&us| us == cell.delay_us as u64).unwrap_or(0) as f64;
    let rate = |cell: &Cell, lane: &Lane| lane.median().map(|it| (cell.bytes as f64, gbps(cell, it)));
    match figure {
        "lan" => plot::plot("rate of get", "Gbit/s", "size", &lines(cells, rate), &size_places, true),
        "depth" => delays
            .iter()
            .map(|&us| {
                let of: Vec<&Cell> = cells.iter().copied().filter(|cell| cell.delay_us as u64 == us).collect();
                plot::plot(
                    &format!("at {}", units::show_seconds(us as f64 / 1e6)),
                    "Gbit/s",
                    "message",
                    &lines(&of, rate),
                    &size_places,
                    true,
                )
            })
            .collect(),
        "wan" => sizes
            .iter()
            .map(|&bytes| {
                let of: Vec<&Cell> = cells.iter().copied().filter(|cell| cell.bytes == bytes).collect();
                let time = |cell: &Cell, lane: &Lane| lane.median().map(|it| (place(cell), it * 1e3));
                plot::plot(
                    &format!("get {}", units::show_memory(bytes)),
                    "ms",
                    "delay",
                    &lines(&of, time),
                    &delay_places,
                    false,
                )
            })
            .collect(),
        "zipf" => zipf(cells, (&delays, &delay_places)),
        "cpu" => cells
            .iter()
            .map(|cell| {
                let cost = |turn: &Turn| (turn.client_s + turn.server_s) / (cell.bytes as f64 / 1e9);
                bars(&format!("{}: both ends, s/GB", cell.what), cell, |lane| lane.of(cost))
            })
            .collect(),
        "breakdown" => cells
            .iter()
            .map(|cell| {
                bars(&format!("{}: time without data, ms", cell.what), cell, |lane| {
                    lane.of(|turn| turn.parts.map_or(0.0, |it| (it.sum() - it.data) * 1e3))
                })
            })
            .collect(),
        _ => cells
            .iter()
            .map(|cell| bars(&format!("{}, Gbit/s", cell.what), cell, |lane| lane.of(|turn| gbps(cell, turn.seconds))))
            .collect(),
    }
}

/// A plot for each of the traces that a run has.
fn zipf(cells: &[&Cell], (delays, places): (&[u64], &[(f64, String)])) -> String {
    let place = |cell: &Cell| delays.iter().position(|&us| us == cell.delay_us as u64).unwrap_or(0) as f64;
    ["large", "small", "each"]
        .iter()
        .map(|&kind| {
            let is = |cell: &&Cell| match kind {
                "large" => cell.bytes / cell.files as u64 > 1 << 20,
                "small" => cell.bytes / cell.files as u64 <= 1 << 20 && cell.what.contains("one session"),
                _ => cell.what.contains("a session each"),
            };
            let of: Vec<&Cell> = cells.iter().copied().filter(is).collect();
            let time = |cell: &Cell, lane: &Lane| lane.median().map(|it| (place(cell), it * 1e3 / cell.files as f64));
            if of.is_empty() {
                return String::new();
            }
            let name = match kind {
                "each" => "small files, a session each",
                "small" => "small files, one session",
                _ => "large files, one session",
            };
            plot::plot(name, "ms a file", "delay", &lines(&of, time), places, false)
        })
        .collect()
}

/// A line for each row that has a point.
fn lines(cells: &[&Cell], point: impl Fn(&Cell, &Lane) -> Option<(f64, f64)>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for cell in cells {
        for lane in &cell.lanes {
            let Some(point) = point(cell, lane) else { continue };
            match lines.iter_mut().find(|line| line.name == lane.name) {
                Some(line) => line.points.push(point),
                None => lines.push(Line { name: lane.name.clone(), points: vec![point] }),
            }
        }
    }
    lines
}

fn bars(title: &str, cell: &Cell, value: impl Fn(&Lane) -> Option<Spread>) -> String {
    let bars: Vec<Bar<'_>> = cell
        .lanes
        .iter()
        .filter_map(|lane| {
            let it = value(lane)?;
            Some(Bar {
                name: &lane.name,
                value: it.median,
                ends: (it.min, it.max),
                colour: usize::from(lane.ours),
                mark: "",
            })
        })
        .collect();
    plot::bars(title, &bars)
}

fn table(cell: &Cell) -> String {
    let has_parts = cell.lanes.iter().any(|lane| parts(lane).is_some());
    let has_cpu = cell.figure != "depth";
    let mut text = format!("<table><caption>{}</caption><tr><th>row<th>ms<th>Gbit/s", escape(&cell.what));
    text += if cell.files > 1 { "<th>ms a file" } else { "" };
    text += if has_cpu { "<th>client s/GB<th>server s/GB<th>client, % of a core<th>server, % of a core" } else { "" };
    text += if has_parts { "<th>connection, ms<th>data<th>between<th>end<th>sum to time" } else { "" };
    text += "<th>does less</tr>";
    for lane in &cell.lanes {
        let per_gb = cell.bytes as f64 / 1e9;
        let two = |it: f64| format!("{it:.2}");
        let rate = lane.median().map_or("–".to_owned(), |it| format!("{:.3}", gbps(cell, it)));
        let _ = write!(text, "<tr><td>{}<td>{}<td>{rate}", escape(&lane.name), spread(lane.seconds, ms));
        if cell.files > 1 {
            text += &lane.median().map_or("<td>–".to_owned(), |it| format!("<td>{}", ms(it / cell.files as f64)));
        }
        if has_cpu {
            for of in [|turn: &Turn| turn.client_s, |turn: &Turn| turn.server_s] {
                let _ = write!(text, "<td>{}", spread(lane.of(|turn| of(turn) / per_gb), two));
            }
            for of in [|turn: &Turn| turn.client_s, |turn: &Turn| turn.server_s] {
                let _ = write!(
                    text,
                    "<td>{}",
                    lane.of(|turn| of(turn) / turn.seconds * 100.0)
                        .map_or("–".to_owned(), |it| format!("{:.0}", it.median))
                );
            }
        }
        if has_parts {
            match (parts(lane), lane.median()) {
                (Some(it), Some(seconds)) => {
                    let _ = write!(
                        text,
                        "<td>{}<td>{}<td>{}<td>{}<td>{:.3}",
                        ms(it.connection),
                        ms(it.data),
                        ms(it.waiting),
                        ms(it.end),
                        it.sum() / seconds
                    );
                }
                _ => text += "<td>–<td>–<td>–<td>–<td>–",
            }
        }
        let less = lane
            .failed
            .first()
            .map_or(escape(lane.lacks), |why| format!("<span class=flag>failed: {}</span>", escape(why)));
        let _ = write!(text, "<td>{less}</tr>");
    }
    text + "</table>"
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sample() -> String {
        page(&crate::ftp::record::tests::sample())
    }

    #[test]
    fn a_page_has_every_figure_says_what_failed_and_takes_no_markup_from_names() {
        let text = sample();
        for (_, title, _) in FIGURES {
            assert!(text.contains(title), "{title}");
        }
        assert!(
            text.contains("&lt;b&gt; fails") && text.contains("failed: exit 1: &lt;no&gt;") && !text.contains("<b>")
        );
        assert!(text.contains("not run: rdma: not &lt;here&gt;") && text.contains("c &lt;x&gt;"));
    }

    #[test]
    fn parts_are_those_of_the_turn_of_the_median_and_sum_up_to_its_time() {
        let report = crate::ftp::record::tests::sample();
        let cell = report.ftp.iter().find(|cell| cell.figure == "breakdown").unwrap();
        assert!((parts(&cell.lanes[0]).unwrap().sum() - 1.0).abs() < 1e-9);
        assert!(text_table(cell).contains("connection"));
    }
}
