//! The grid as one page that needs nothing else: heat maps, verdicts, all figures.
//!
//! For: people who look once. In and out: the report → HTML with inline SVG and CSS, for light and dark screens.
//! Invariants: no script, no outside file; every text that came from a command or a machine is escaped; colours are ones that
//! colour-blind eyes tell apart (cividis), and the figure stands in each cell.
//! Absent on purpose: anything that the JSON beside it does not hold.

use std::fmt::Write as _;

use crate::race::Spread;
use crate::wan::grid::Cell;
use crate::wan::record::{CellRecord, Report, Row};
use text::page::{CLOSE, escape, open, wide};
use text::units;

/// Cividis (Nuñez, Anderton, Renslow 2018) at 0, 1/4, 1/2, 3/4 and 1.
const STOPS: [[f64; 3]; 5] =
    [[0.0, 34.0, 78.0], [62.0, 76.0, 108.0], [124.0, 123.0, 120.0], [188.0, 174.0, 108.0], [255.0, 233.0, 69.0]];
/// Of a square: seven of them beside their losses are as wide as a telephone.
const WIDE: usize = 48;
const HIGH: usize = 34;
const LEFT: usize = 40;
const TOP: usize = 18;

/// What the page has beyond the style of all.
const STYLE: &str = "\
.maps{gap:1.2em 2em}svg .b{font-weight:600}td,th{white-space:nowrap}\
td:nth-child(4),th:nth-child(4),td:last-child,th:last-child{text-align:left}td:last-child{white-space:normal;min-width:14em}";

/// Fill and ink for a value from 0 to 1.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 4, and 0 to 255")]
pub fn colours(value: f64) -> (String, &'static str) {
    let at = value.clamp(0.0, 1.0) * 4.0;
    let low = (at.floor() as usize).min(3);
    let mix = |part: usize| STOPS[low][part] + (STOPS[low + 1][part] - STOPS[low][part]) * (at - low as f64);
    let [red, green, blue] = [mix(0), mix(1), mix(2)];
    // Relative luminance (WCAG 2.2), with 2.2 for its exponent; at 0.18 black and white have the same contrast, 4.6.
    let part = |value: f64, weight: f64| weight * (value / 255.0).powf(2.2);
    let ink = if part(red, 0.2126) + part(green, 0.7152) + part(blue, 0.0722) > 0.18 { "#000" } else { "#fff" };
    (format!("rgb({},{},{})", red as u8, green as u8, blue as u8), ink)
}

/// One square of a map.
struct Square {
    /// 0 to 1; `None`: nothing was measured.
    value: Option<f64>,
    big: String,
    small: String,
    /// What hovering shows.
    more: String,
    /// The emulator was the limit in most rounds: drawn with a dashed edge.
    doubtful: bool,
}

fn share_square(row: &Row) -> Square {
    let (Some(share), Some(goodput)) = (row.share, row.goodput_bps) else {
        return Square {
            value: None, big: "–".to_owned(), small: String::new(), more: row.remarks(), doubtful: false
        };
    };
    let gave_up = row.rounds.iter().all(|round| round.given_up);
    let more = format!(
        "{}: {:.1} % ({:.1} to {:.1}) of {}; {}",
        row.name,
        share.median * 100.0,
        share.min * 100.0,
        share.max * 100.0,
        units::show_bits_per_second(row.limit_bps),
        row.remarks()
    );
    let big = if share.median < 0.0995 {
        format!("{:.1} %", share.median * 100.0)
    } else {
        format!("{:.0} %", share.median * 100.0)
    };
    Square {
        value: Some(share.median),
        big: if gave_up { format!("({})", big.replace(' ', "")) } else { big },
        small: units::show_bits_per_second(goodput.median).replace("bit/s", ""),
        more,
        doubtful: row.emulator_rounds * 2 > row.rounds.len(),
    }
}

/// The scale of colours is logarithmic here, from 1 to 1000 times.
fn ratio_square(cell: &CellRecord, ours: &str, other: &str) -> Option<Square> {
    let ratio = cell.goodput(ours)? / cell.goodput(other)?.max(1.0);
    let big = if ratio < 9.95 { format!("{ratio:.2} ×") } else { format!("{ratio:.0} ×") };
    let more = format!("{ours}: {ratio:.3} × {other}");
    Some(Square { value: Some(ratio.max(0.1).log10() / 3.0), big, small: String::new(), more, doubtful: false })
}

/// A map: losses downwards, round trips to the right; nothing where no square is.
fn map(title: &str, trips: &[&Cell], losses: &[&Cell], square: impl Fn(&str, &str) -> Option<Square>) -> String {
    if !trips.iter().any(|trip| losses.iter().any(|loss| square(&trip.rtt, &loss.loss).is_some())) {
        return String::new();
    }
    let (width, height) = (LEFT + trips.len() * WIDE, TOP + losses.len() * HIGH + 2);
    let mut out = format!(
        r#"<figure><figcaption>{0}</figcaption><svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="{0}: losses downwards, round trips to the right; the figures stand in the table below"><text class="k" x="0" y="12">loss</text>"#,
        escape(title)
    );
    for (column, cell) in trips.iter().enumerate() {
        let _ = write!(
            out,
            r#"<text class="k" x="{}" y="{}" text-anchor="middle">{}</text>"#,
            LEFT + column * WIDE + WIDE / 2,
            TOP - 6,
            escape(&cell.rtt)
        );
    }
    for (line, row) in losses.iter().enumerate() {
        let y = TOP + line * HIGH;
        let _ = write!(
            out,
            r#"<text class="k" x="{}" y="{}" text-anchor="end">{}</text>"#,
            LEFT - 4,
            y + HIGH / 2 + 4,
            escape(&row.loss)
        );
        for (column, cell) in trips.iter().enumerate() {
            let Some(square) = square(&cell.rtt, &row.loss) else { continue };
            let x = LEFT + column * WIDE;
            let (fill, ink) = square.value.map_or(("none".to_owned(), "var(--soft)"), colours);
            let edge = if square.doubtful {
                r#"stroke="var(--ink)" stroke-width="2" stroke-dasharray="4 3""#
            } else {
                r#"stroke="var(--line)""#
            };
            let middle = x + WIDE / 2;
            let _ = write!(
                out,
                r#"<g><title>{}</title><rect x="{}" y="{}" width="{}" height="{}" rx="3" fill="{fill}" {edge}/><text class="b" x="{middle}" y="{}" text-anchor="middle" style="fill:{ink}">{}</text><text x="{middle}" y="{}" text-anchor="middle" style="fill:{ink}">{}</text></g>"#,
                escape(&square.more),
                x + 1,
                y + 1,
                WIDE - 2,
                HIGH - 2,
                y + if square.small.is_empty() { HIGH / 2 + 4 } else { 15 },
                escape(&square.big),
                y + 28,
                escape(&square.small)
            );
        }
    }
    out + "</svg></figure>"
}

/// The first cell of each kind, in ascending order.
fn axis<'a>(cells: &[&'a CellRecord], of: impl Fn(&Cell) -> f64) -> Vec<&'a Cell> {
    let mut found: Vec<&Cell> = cells.iter().map(|record| &record.cell).collect();
    found.sort_by(|a, b| of(a).total_cmp(&of(b)));
    found.dedup_by(|a, b| of(a).to_bits() == of(b).to_bits());
    found
}

fn maps(report: &Report) -> String {
    let mut rates: Vec<&Cell> = axis(&report.cells.iter().collect::<Vec<_>>(), |cell| cell.rate_bps as f64);
    rates.dedup_by_key(|cell| cell.rate_bps);
    let mut out = String::new();
    for rate in rates {
        let cells: Vec<&CellRecord> =
            report.cells.iter().filter(|record| record.cell.rate_bps == rate.rate_bps).collect();
        let (trips, losses) = (axis(&cells, |cell| cell.rtt_ms), axis(&cells, |cell| cell.loss_share));
        let find = |rtt: &str, loss: &str| {
            cells.iter().find(|record| (record.cell.rtt.as_str(), record.cell.loss.as_str()) == (rtt, loss)).copied()
        };
        let _ = write!(out, "<h2>{}</h2><div class=maps>", units::exact_rate(rate.rate_bps));
        for name in &report.names {
            out += &map(name, &trips, &losses, |rtt, loss| {
                find(rtt, loss)?.rows.iter().find(|row| row.name == *name).map(share_square)
            });
        }
        if let Some(ours) = report.names.iter().find(|name| name.starts_with("longhaul udp")) {
            for other in report
                .names
                .iter()
                .filter(|name| name.ends_with("× 1") || !(name.starts_with("longhaul") || name.starts_with("TCP")))
            {
                let title = format!("{ours} ÷ {other}");
                out += &map(&title, &trips, &losses, |rtt, loss| ratio_square(find(rtt, loss)?, ours, other));
            }
        }
        out += "</div>";
    }
    out
}

fn legend() -> String {
    let mut out = r#"<svg width="330" height="44" viewBox="0 0 330 44" role="img" aria-label="colours: from dark, 0 % of the limit or 1 times, to bright, 100 % or 1000 times">"#.to_owned();
    for step in 0..=10_u32 {
        let (fill, _) = colours(f64::from(step) / 10.0);
        let _ = write!(out, r#"<rect x="{}" y="4" width="30" height="16" fill="{fill}"/>"#, step * 30);
    }
    out + r#"<text x="0" y="36" class="k">0 % of the limit (or 1 ×)</text><text x="330" y="36" text-anchor="end" class="k">100 % (or 1000 ×)</text></svg>"#
}

fn figures(report: &Report) -> String {
    let heads = [
        "rate",
        "round trip",
        "loss",
        "contestant",
        "Mbit/s",
        "of the limit, %",
        "spread, %",
        "again, %",
        "redundant, %",
        "tail, RTT",
        "CPU s/GB",
        "peak memory",
        "runs",
        "load before",
        "remarks",
    ];
    let mut out = format!("<table><tr><th>{}</tr>", heads.join("<th>"));
    for record in &report.cells {
        for row in &record.rows {
            let number = |spread: Option<Spread>, scale: f64, decimals: usize| {
                spread.map_or(String::new(), |spread| format!("{:.decimals$}", spread.median * scale))
            };
            let texts = [
                record.cell.rate.clone(),
                record.cell.rtt.clone(),
                record.cell.loss.clone(),
                row.name.clone(),
                number(row.goodput_bps, 1e-6, 2),
                number(row.share, 100.0, 1),
                row.share
                    .map_or(String::new(), |spread| format!("{:.1}–{:.1}", spread.min * 100.0, spread.max * 100.0)),
                number(row.again_percent, 1.0, 2),
                number(row.redundant_percent, 1.0, 2),
                number(row.tail_trips, 1.0, 1),
                number(row.cpu_s_per_gb, 1.0, 2),
                units::show_memory(row.peak_memory_bytes >> 20 << 20),
                row.rounds.len().to_string(),
                record.load.map_or(String::new(), |load| format!("{load:.1}")),
                row.remarks(),
            ];
            let mut cells: Vec<String> = texts.iter().map(|text| escape(text)).collect();
            if let Some(trace) = &row.trace {
                cells[3] = format!("<a href=\"{}\">{}</a>", escape(trace), cells[3]);
            }
            let _ = write!(out, "<tr><td>{}</tr>", cells.join("<td>"));
        }
    }
    wide("all figures, medians", &(out + "</table>"))
}

/// When the grid began.
fn date(report: &Report) -> String {
    text::time::show_utc(u64::try_from(report.began_unix_s).unwrap_or(0)) + " UTC"
}

/// The whole page.
#[must_use]
pub fn page(report: &Report) -> String {
    let list =
        |lines: Vec<String>| lines.iter().fold(String::new(), |text, line| text + "<li>" + &escape(line) + "</li>");
    let mut commands: Vec<String> = Vec::new();
    for row in report.cells.iter().flat_map(|cell| &cell.rows) {
        let line = format!("{}: {}", row.name, row.command);
        if !row.command.is_empty() && !commands.iter().any(|known| known.starts_with(&format!("{}: ", row.name))) {
            commands.push(line);
        }
    }
    let facts = format!(
        "{}; TCP here: {}; longhaul {}{}; seed {}; {} of {} cells; {} rounds of at least {} round trips",
        report.host,
        report.tcp_default,
        env!("CARGO_PKG_VERSION"),
        report.programs.iter().fold(String::new(), |text, program| text + "; " + program),
        report.seed,
        report.cells.len(),
        report.cells_wanted,
        report.rounds,
        report.trips
    );
    format!(
        r#"{open}<p>{facts}</p><ul>{verdicts}</ul>{notes}
<p><small>The limit is rate × (1 − loss) × payload share of a 1500-byte packet (1440 bytes ours over UDP, 1448 over TCP, 1472 of a peer). Ours and peers' figures are of the
whole transfer, from the program's start to its end: greeting, start-up, repair, last byte and publishing included; bare TCP's are of its own clock without its greeting. Each run has a
lab link of its own with a queue of one bandwidth-delay product, at least 100 kB. In brackets: given up, and what had arrived until then. A dashed edge: the emulator itself was
the limit in most rounds; where it was only late, the remarks say so. Our far host shows a boot ID of its own, as another machine does.</small></p>{legend}{maps}<h2>All figures, medians</h2>{figures}<h2>Commands</h2><ul>{commands}</ul>{CLOSE}"#,
        open = open("longhaul bench wan: what each fills of a link, by distance and loss", &date(report), STYLE),
        facts = escape(&facts),
        verdicts = list(report.verdicts()),
        notes = if report.notes.is_empty() {
            String::new()
        } else {
            format!("<ul class=soft>{}</ul>", list(report.notes.clone()))
        },
        legend = legend(),
        maps = maps(report),
        figures = figures(report),
        commands =
            commands.iter().fold(String::new(), |text, line| text + "<li><code>" + &escape(line) + "</code></li>"),
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::table::Host;
    use crate::wan::record::Round;

    /// The whole grid of a rate, with what is given up, doubtful, absent and far ahead.
    pub(crate) fn sample() -> String {
        let names = ["longhaul udp aggressive", "TCP CUBIC × 1", "a peer with a rather long name and version 1.2.3"];
        let host = Host { cpu: "Example EPYC".to_owned(), cores: 2, kernel: "6.12.0".to_owned(), load: Some(0.5) };
        let mut report = Report::new(host, names.map(str::to_owned).to_vec(), vec!["a note".to_owned()]);
        for (at, rtt) in ["1ms", "10ms", "50ms", "100ms", "200ms", "300ms", "500ms"].into_iter().enumerate() {
            for loss in ["0%", "0.01%", "0.1%", "1%", "5%", "10%"] {
                let mut rows: Vec<Row> = names.iter().map(|name| Row::new(name, 1e9)).collect();
                rows[0].trace = Some(format!("traces/{rtt}-{}-longhaul-udp.html", loss.replace('%', "pc")));
                rows[0].command = "longhaul cp --transport udp FILE longhaul://TICKET@10.99.0.2:5740/".to_owned();
                rows[0].add(Round { goodput_bps: 9.04e8, share: 1.0, emulator_was_limit: at == 3, ..Round::default() });
                rows[1].add(Round { goodput_bps: 9.94e5, share: 0.001, given_up: at > 3, ..Round::default() });
                rows[2].failed.push("what arrived differs from byte 99 on".to_owned());
                let cell = Cell::parse("1Gbit", rtt, loss).unwrap();
                report.cells.push(CellRecord { cell, bytes: 1, seconds: 1.0, load: Some(0.5), rows });
            }
        }
        page(&report)
    }

    #[test]
    fn the_page_has_a_map_for_each_and_no_markup_of_others() {
        let names = vec!["longhaul udp fair".to_owned(), "TCP CUBIC × 1".to_owned(), "<b>peer".to_owned()];
        let host = Host { cpu: "A & B".to_owned(), cores: 2, kernel: "6".to_owned(), load: None };
        let mut report = Report::new(host, names.clone(), vec!["a <note>".to_owned()]);
        for (rtt, loss) in [("200ms", "0%"), ("10ms", "1%")] {
            let cell = Cell::parse("1Gbit", rtt, loss).unwrap();
            let mut rows: Vec<Row> = names.iter().map(|name| Row::new(name, 1e9)).collect();
            rows[0].trace = Some("traces/\"<a>.html".to_owned());
            rows[0].add(Round { goodput_bps: 9e8, share: 0.94, ..Round::default() });
            rows[1].add(Round { goodput_bps: 9e6, share: 0.01, given_up: true, ..Round::default() });
            rows[2].failed.push("<script>".to_owned());
            report.cells.push(CellRecord { cell, bytes: 1, seconds: 1.0, load: None, rows });
        }
        let page = page(&report);
        assert_eq!(
            page.matches("<svg").count(),
            1 + 3 + 1,
            "a legend, three maps, one of ratios: the peer has no figure"
        );
        assert!(page.contains("94 %") && page.contains("(1.0%)") && page.contains("100 ×"), "{page}");
        assert!(!page.contains("<script") && !page.contains("<b>peer") && !page.contains("<note>"), "{page}");
        let link = "<td><a href=\"traces/&quot;&lt;a&gt;.html\">longhaul udp fair</a>";
        assert_eq!(page.matches(link).count(), 2, "{page}");
        assert!(!page.contains("http"), "nothing is loaded from elsewhere");
        assert!(page.find(">10ms<").unwrap() < page.find(">200ms<").unwrap(), "near to the left, far to the right");
    }

    #[test]
    fn ink_is_told_from_its_ground() {
        assert_eq!(colours(0.0).1, "#fff");
        assert_eq!(colours(1.0), ("rgb(255,233,69)".to_owned(), "#000"));
        assert_eq!(colours(7.0).0, colours(1.0).0);
    }
}
