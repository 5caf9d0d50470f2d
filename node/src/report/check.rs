//! Figures that cannot be: found before they become a headline.
//!
//! For: a report that is wrong says so itself.
//! In and out: a finished report → sentences, none if all is possible.
//! Invariants: only what arithmetic or physics forbids is called impossible, never what merely looks odd.
//! Absent on purpose: mending the figures.

use proto::books::Books;
use proto::wire::control::Direction;

use super::EndReport;
use text::units::{show_bits_per_second, show_bytes};

/// The promise: stages sum to workers × wall time within 2 %.
const BOOKS_PERMILLE: u32 = 20;
/// Below this the books of short jobs are coarser than 2 %: a worker looks at its clock once per turn of its loop.
const BOOKS_WALL_NS_MIN: u64 = 100_000_000;
/// What counters may be behind by: this part, and as many seconds, for drivers that ask their NIC now and then (tg3 once a second, bnx2x too).
const COUNTERS: f64 = 0.02;
const COUNTERS_S: f64 = 2.0;
/// Figures that were computed at two places agree to this part.
const ROUNDING: f64 = 0.01;

/// Every figure of the report that cannot be, as a sentence.
#[must_use]
pub fn impossible(report: &EndReport) -> Vec<String> {
    let mut found = Vec::new();
    check_times(report, &mut found);
    check_rates(report, &mut found);
    check_counters(report, &mut found);
    check_books("this end", &report.stages_local, &mut found);
    if let Some(books) = &report.stages_remote {
        check_books("the other end", books, &mut found);
        check_bytes(report, books, &mut found);
    }
    found
}

fn check_times(report: &EndReport, found: &mut Vec<String>) {
    let times = [
        ("wall time", Some(report.seconds)),
        ("CPU time of this end", Some(report.cpu_seconds_local)),
        ("CPU time of the other end", report.cpu_seconds_remote),
    ];
    for (what, seconds) in times {
        if let Some(seconds) = seconds.filter(|seconds| !seconds.is_finite() || *seconds < 0.0) {
            found.push(format!("the {what} is {seconds} s"));
        }
    }
    if report.bytes > 0 && report.seconds == 0.0 {
        found.push(format!("{} were moved in no time", show_bytes(report.bytes)));
    }
}

fn check_rates(report: &EndReport, found: &mut Vec<String>) {
    #[expect(clippy::cast_precision_loss, reason = "compared to 1 %")]
    let goodput_bps = (report.bytes + report.earlier_bytes) as f64 * 8.0 / report.seconds;
    if report.seconds > 0.0 && (report.goodput_bps - goodput_bps).abs() > goodput_bps * ROUNDING + 1.0 {
        found.push(format!(
            "goodput is given as {}, but bytes over time are {}",
            show_bits_per_second(report.goodput_bps),
            show_bits_per_second(goodput_bps),
        ));
    }
    let Some(wire_bps) = report.wire_bps else {
        return;
    };
    if report.goodput_bps > wire_bps * (1.0 + ROUNDING) + 1.0 {
        found.push(format!(
            "goodput {} is above the wire rate {}",
            show_bits_per_second(report.goodput_bps),
            show_bits_per_second(wire_bps),
        ));
    }
    let on_rails: u64 = report.rails.iter().fold(0, |sum, rail| sum.saturating_add(rail.bytes));
    if !report.rails.is_empty() && on_rails < report.bytes {
        found.push(format!(
            "rails carried {}, less than the {} of payload",
            show_bytes(on_rails),
            show_bytes(report.bytes)
        ));
    }
}

/// The kernel counts each packet of an interface: all interfaces of an end together have counted what came over any of them.
fn check_counters(report: &EndReport, found: &mut Vec<String>) {
    let (own, theirs) = report.nics.counted;
    let verbs = if report.direction == Some(Direction::Pull) { ["received", "sent"] } else { ["sent", "received"] };
    for ((end, counted), verb) in [("this end", own), ("the other end", theirs)].into_iter().zip(verbs) {
        let Some(counted) = counted else { continue };
        let least = 1.0 - COUNTERS - COUNTERS_S / report.seconds;
        #[expect(clippy::cast_precision_loss, reason = "compared to 2 %")]
        if (counted as f64) < report.bytes as f64 * least {
            found.push(format!(
                "all interfaces of {end} together counted {} {verb}, less than the {} of payload",
                show_bytes(counted),
                show_bytes(report.bytes),
            ));
        }
    }
}

fn check_books(end: &str, books: &Books, found: &mut Vec<String>) {
    for (stage, ns) in proto::books::Stage::ALL.iter().zip(books.ns) {
        if ns > books.wall_ns.saturating_add(books.wall_ns / 50) {
            found.push(format!("{end}: {} took more than the whole time", stage.name()));
        }
    }
    let permille = books.unbooked_permille();
    if books.wall_ns >= BOOKS_WALL_NS_MIN && permille > BOOKS_PERMILLE {
        found.push(format!(
            "{end}: the stages sum to {} than the wall time by {}.{} %, so their shares are doubtful",
            if books.booked_ns() > books.wall_ns { "more" } else { "less" },
            permille / 10,
            permille % 10,
        ));
    }
}

/// What one end sent and the other took.
fn check_bytes(report: &EndReport, remote: &Books, found: &mut Vec<String>) {
    let (sender, receiver) = match report.direction {
        Some(Direction::Push) => (&report.stages_local, remote),
        Some(Direction::Pull) => (remote, &report.stages_local),
        None => return,
    };
    if receiver.rail_bytes > sender.rail_bytes && sender.rail_bytes > 0 {
        found.push(format!(
            "the receiver took {} from rails, the sender gave them only {}",
            show_bytes(receiver.rail_bytes),
            show_bytes(sender.rail_bytes),
        ));
    }
}
