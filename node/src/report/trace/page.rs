//! A trace as one page that needs nothing else.
//!
//! For: whoever asks why a copy was not faster. In and out: a trace → HTML with plots: rate, delay, loss, bytes on their way, phases, for each rail.
//! Invariants: all plots of a page have the same axis of time; a plot has at most `POINTS` points to a line, each the mean of its time; of a queue
//! and of losses nothing disappears by that. No script, no outside file; a text that came from outside is escaped.
//! Absent on purpose: advice; all looks (the same trace as `.json` has them).

use std::fmt::Write as _;

use super::About;
use super::sample::{RailId, Sample};
use super::series::{Looks, Series};
use text::page::{CLOSE, escape, list, open};
use text::plot::{Line, Span, plot, round_up, strip, tick};
use text::units::{show_bytes, show_count};

/// Points of a line: one to each pixel of a plot on a telephone, twice that on a screen.
const POINTS: usize = 280;
/// Rails that are drawn: more of them have the same path, and nobody scrolls through hundreds.
const RAILS_DRAWN: usize = 16;

/// The whole page.
#[must_use]
pub fn page(about: &About, looks: &Looks) -> String {
    let end_s = looks.rails().flat_map(|(_, series)| series.looks()).map(|it| seconds(it.at_ns)).fold(0.1, f64::max);
    let date = text::time::show_utc(about.began_unix_s) + " UTC";
    let mut out = open("longhaul trace: what congestion control did", &date, text::plot::STYLE);
    let mut facts = vec![about.what.clone(), about.spacing_words(looks)];
    facts.extend(about.limiter.clone());
    let drawn = looks.rails().count().min(RAILS_DRAWN);
    if looks.rails().count() > drawn {
        facts.push(format!("the first {drawn} of {} rails are drawn", looks.rails().count()));
    }
    out += &list(&facts);
    if drawn == 0 {
        out += "<p>No rail was looked at: the copy ended before data moved, or there was nothing to move.</p>";
    }
    for (id, series) in looks.rails().take(drawn) {
        rail(&mut out, id, series, end_s);
    }
    out + READING + CLOSE
}

/// How the plots are read, on the page itself.
const READING: &str = "<h2>How to read it</h2><ul>\
<li>Rate is what the congestion controller lets leave, headers included; arrived is what the receiver reported. Where arrived stays below rate, the path \
loses or queues the rest.</li>\
<li>Queue is delay above that of the empty path. A rate that is steady while the queue stays small and nothing is lost is the sender's choice or its disk; \
a queue that grows with the rate is the bottleneck of the path.</li>\
<li>Loss without a queue that comes and goes with the rate is a policer; loss without a queue that does not depend on the rate is the path's own.</li>\
<li>TCP: rate, window and round trip are the kernel's; its queue is the round trip above the least one seen, its losses are what it sent again.</li></ul>";

#[expect(clippy::cast_precision_loss, reason = "seconds with decimals")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The axis of time: no more of it empty than one step.
fn times(end_s: f64) -> Vec<(f64, String)> {
    let step = round_up(end_s / 5.0);
    let (mut out, mut at) = (Vec::new(), 0.0);
    while out.len() < 2 || at - step < end_s {
        out.push((at, format!("{} s", tick(at))));
        at += step;
    }
    out
}

/// Looks put together, so that a line has few points: from the first of each group to the first of the next.
fn groups(series: &Series) -> Vec<(Sample, Sample)> {
    let looks: Vec<Sample> = series.looks().copied().collect();
    let step = looks.len().div_ceil(POINTS).max(1);
    let mut out = Vec::new();
    let mut from = 0;
    while from + 1 < looks.len() {
        let to = (from + step).min(looks.len() - 1);
        let peak = looks[from + 1..=to].iter().copied().reduce(|before, it| it.after(&before));
        out.extend(peak.map(|peak| (looks[from], peak)));
        from = to;
    }
    out
}

fn line(name: &str, groups: &[(Sample, Sample)], of: impl Fn(&Sample, &Sample) -> Option<f64>) -> Option<Line> {
    let points = groups.iter().filter_map(|(before, now)| Some((seconds(now.at_ns), of(before, now)?)));
    let points: Vec<(f64, f64)> = points.collect();
    (!points.is_empty()).then(|| Line { name: name.to_owned(), points })
}

fn rail(out: &mut String, id: RailId, series: &Series, end_s: f64) {
    let facts = &series.facts;
    let session = if id.session == 0 { String::new() } else { format!(", session {}", id.session + 1) };
    let controller =
        if facts.controller.is_empty() { String::new() } else { format!(", {} controller", facts.controller) };
    let name = format!("Rail {}{session}: {}{controller}", id.rail, facts.transport);
    let mut words = vec![facts.path.clone()];
    words.retain(|word| !word.is_empty());
    words.extend(series.looks().last().map(sums).unwrap_or_default());
    let _ = write!(out, "<h2>{}</h2><p>{}</p><div class=\"plots\">", escape(&name), escape(&words.join("; ")));
    let (groups, times) = (groups(series), times(end_s));
    for (title, unit, lines) in drawings(&groups) {
        let lines: Vec<Line> = lines.into_iter().flatten().collect();
        if lines.iter().flat_map(|line| &line.points).any(|point| point.1 > 0.0) {
            *out += &plot(title, unit, "time", &lines, &times, false);
        }
    }
    *out += &strip("Phase", "time", &spans(series), &times);
    *out += "</div>";
}

/// Title, unit, lines.
type Drawing = (&'static str, &'static str, Vec<Option<Line>>);

#[expect(clippy::cast_precision_loss, reason = "figures of a drawing")]
fn drawings(groups: &[(Sample, Sample)]) -> [Drawing; 4] {
    let mbit = |rate: Option<u64>| rate.map(|rate| rate as f64 * 8.0 / 1e6);
    let ms = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e6);
    let mb = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / 1e6);
    let rate = vec![
        line("rate", groups, |_, now| mbit(now.rate)),
        line("arrived", groups, |before, now| Some(now.delivered_since(before) * 8.0 / 1e6)),
        line("policer", groups, |_, now| mbit(now.policer)),
    ];
    let delay = vec![
        line("queue", groups, |_, now| ms(now.queue_ns)),
        line("round trip", groups, |_, now| ms(now.rtt_ns)),
        line("round trip of the empty path", groups, |_, now| ms(now.base_rtt_ns)),
    ];
    let loss = vec![line("lost", groups, |before, now| now.loss_since(before))];
    let way =
        vec![line("on the way", groups, |_, now| mb(now.in_flight)), line("window", groups, |_, now| mb(now.window))];
    [("Rate", "Mbit/s", rate), ("Delay", "ms", delay), ("Loss", "% of packets", loss), ("On the way", "MB", way)]
}

/// What the whole of a rail's time came to.
#[expect(clippy::cast_precision_loss, reason = "a share for people")]
fn sums(last: &Sample) -> Vec<String> {
    let mut words = vec![format!("{} arrived", show_bytes(last.delivered))];
    if let Some(lost) = last.lost {
        let share = lost as f64 * 100.0 / last.sent.max(1) as f64;
        words.push(format!("{} of {} packets lost ({share:.2} %)", show_count(lost), show_count(last.sent)));
    }
    words.extend(last.resent_bytes.map(|bytes| format!("{} sent again", show_bytes(bytes))));
    let policer = last.policer.map(|rate| proto::books::about(rate.saturating_mul(8)));
    words.extend(policer.map(|rate| format!("a policer at about {rate} on the path")));
    words
}

/// From when to when each phase was.
fn spans(series: &Series) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for look in series.looks() {
        let (at, name) = (seconds(look.at_ns), look.phase());
        match spans.last_mut() {
            Some(span) if span.name == name => span.to = at,
            Some(span) => {
                span.to = at;
                spans.push(Span { name, from: at, to: at });
            }
            None => spans.push(Span { name, from: at, to: at }),
        }
    }
    spans
}
