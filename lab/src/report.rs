//! What the links did, in words.
//!
//! For: the end of `lab run`, `lab show`. In and out: counts → lines.
//! Invariants: losses that the link was told to make and those that the emulator made because it was too slow stand apart.
//! Absent on purpose: judgement of the command's own speed.

use crate::hosts::{Lab, LiveLink};
use crate::wire::emulator::{LATE_NS, Told};
use text::units::{show_bytes, show_count, show_memory, show_seconds};

/// Share of late packets above which the emulator's timing no longer is what was asked for.
const LATE_PPM_MAX: u64 = 1000;
/// The same for time in which a host's packets were waiting, in thousandths of the run.
const BEHIND_MILLI_MAX: u64 = 20;
/// And in all: a run of some ms has no shares worth telling.
const BEHIND_NS_MIN: u64 = 20_000_000;

/// The sum at the start: links and memory.
#[must_use]
pub fn opening(lab: &Lab) -> String {
    let mut lines = Vec::new();
    for (number, link) in lab.links.iter().enumerate() {
        let [a, b] = link.addresses;
        lines.push(format!("lab: link {number}: a {a} - b {b}: {}", link.settings.words()));
    }
    let cut = match (lab.offloads.tcp, lab.offloads.udp) {
        (true, true) => "super-packets of TCP and UDP come whole",
        (true, false) => "super-packets of TCP come whole, those of UDP are cut by this kernel (Linux 6.2 would not)",
        _ => "this kernel cuts all super-packets",
    };
    lines.push(format!("lab: memory {} for packets; {cut}", show_memory(lab.memory_bytes)));
    if lab.is_short {
        lines
            .push("lab: that is less than rate × delay + queue of the links: packets may be dropped for it".to_owned());
    }
    lines.join("\n")
}

/// What one direction did.
fn direction(number: usize, name: &str, told: &Told) -> String {
    let counts = &told.counts;
    let mut parts = vec![format!(
        "lab: link {number} {name}: {} packets in ({}), {} out ({})",
        show_count(counts.packets_in),
        show_bytes(counts.bytes_in),
        show_count(counts.packets_out),
        show_bytes(counts.bytes_out)
    )];
    let named = [
        ("lost on the wire", counts.wire),
        ("dropped by the policer", counts.police),
        ("dropped by the full queue", counts.queue),
        ("lost while down", counts.down),
        ("dropped by the black hole", counts.black_holed),
        ("harmed", counts.corrupt),
        ("doubled", counts.twice),
        ("made late", counts.late),
        ("marked", counts.marked),
    ];
    parts.extend(
        named.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{} {name}", show_count(*count))),
    );
    parts.push(format!("queue at most {}", show_bytes(counts.queued_bytes_max)));
    parts.push(format!("CPU {}", show_seconds(seconds(told.cpu_ns))));
    parts.join(", ")
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn was_late(told: &Told) -> bool {
    told.late_packets * 1_000_000 > told.counts.packets_out * LATE_PPM_MAX
}

fn was_behind(told: &Told) -> bool {
    told.behind_ns > BEHIND_NS_MIN && told.behind_ns * 1000 > told.ran_ns * BEHIND_MILLI_MAX
}

/// The emulator took away from what the link carries: more than that some packets came later than they should.
#[must_use]
pub fn was_limit(told: &Told, dropped_by_device: u64) -> bool {
    told.counts.no_room > 0 || was_behind(told) || dropped_by_device > 0 || told.refused > 0
}

/// Every reason to mistrust what was measured; empty: the emulator kept its word.
#[must_use]
pub fn doubts(number: usize, name: &str, told: &Told, dropped_by_device: u64) -> Vec<String> {
    let counts = &told.counts;
    let mut out = Vec::new();
    let mut say = |words: String| out.push(format!("lab: link {number} {name}: {words}"));
    if counts.no_room > 0 {
        say(format!("{} packets dropped for want of memory; give --memory", show_count(counts.no_room)));
    }
    if was_late(told) {
        say(format!(
            "{} of {} packets were more than {} us late, at worst {}: the emulator did not get the processor in time",
            show_count(told.late_packets),
            show_count(counts.packets_out),
            LATE_NS / 1000,
            show_seconds(seconds(told.late_ns_max))
        ));
    }
    if was_behind(told) {
        say(format!(
            "packets waited for the emulator during {} of {}: it was itself the bottleneck",
            show_seconds(seconds(told.behind_ns)),
            show_seconds(seconds(told.ran_ns))
        ));
    }
    if dropped_by_device > 0 {
        say(format!("{} packets dropped before the emulator read them", show_count(dropped_by_device)));
    }
    if told.refused > 0 {
        say(format!("{} packets refused by the receiving device", show_count(told.refused)));
    }
    out
}

/// The end of a run; `dropped`: by each side's device, for each link.
#[must_use]
pub fn closing(told: &[[Told; 2]], dropped: &[[u64; 2]], quiet: bool) -> String {
    let mut lines = Vec::new();
    let mut all_doubts = Vec::new();
    for (number, (pair, dropped)) in told.iter().zip(dropped).enumerate() {
        for ((name, told), dropped) in ["a to b", "b to a"].into_iter().zip(pair).zip(dropped) {
            lines.push(direction(number, name, told));
            all_doubts.extend(doubts(number, name, told, *dropped));
        }
    }
    if quiet {
        lines.clear();
    }
    if all_doubts.is_empty() && !quiet {
        let late: u64 = told.iter().flatten().map(|told| told.late_packets).sum();
        lines.push(format!("lab: the emulator kept up ({} packets late)", show_count(late)));
    }
    lines.extend(all_doubts);
    lines.join("\n")
}

/// One line per link for `lab show`.
#[must_use]
pub fn standing(number: usize, link: &LiveLink, told: &[Told; 2]) -> Vec<String> {
    let [a, b] = link.addresses;
    let mut lines = vec![format!("lab: link {number}: a {a} - b {b}: {}", link.settings.words())];
    for (name, told) in ["a to b", "b to a"].into_iter().zip(told) {
        lines.push(direction(number, name, told));
    }
    lines
}
