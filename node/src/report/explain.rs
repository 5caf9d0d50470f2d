//! `--explain`: what both ends have, what was chosen, and why.
//!
//! For: seeing where a number came from before asking for another one.
//! In and out: offers, choices, sums → a record → a table as text.
//! Invariants: every choice stands beside its reason; the parts of memory add up to the sum that is printed.
//! Absent on purpose: choosing (proto::negotiate).

use std::fmt::Write as _;

use proto::negotiate::{Choice, Offer, STORAGE_BPS_MAX, StorageLook};

use super::clean;
use super::json::{OfferLine, PlanRecord};
use text::units::{exact_rate, show_bits_per_second, show_bytes, show_memory};

/// The visible sum of one end's memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemorySum {
    /// What, and how many bytes: pool, window of entries, threads, …
    pub parts: Vec<(String, u64)>,
    /// What the user or the config granted.
    pub granted_bytes: u64,
}

impl MemorySum {
    /// All parts together.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.parts.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }
}

/// Everything that was negotiated or found out before data moves.
#[derive(Debug, Clone, Copy)]
pub struct Explained<'a> {
    /// What this end has.
    pub local: &'a Offer,
    /// What the other has; `None` when both are this process.
    pub remote: Option<&'a Offer>,
    /// What came of it.
    pub choices: &'a [Choice],
    /// Memory of this end.
    pub memory: &'a MemorySum,
    /// Way to the kernel at this end.
    pub driver: &'a str,
    /// Why this way to the kernel was chosen.
    pub driver_reason: &'a str,
}

/// Both offers, line by line.
#[must_use]
pub fn offer_lines(local: &Offer, remote: Option<&Offer>) -> Vec<OfferLine> {
    type Show = fn(&Offer) -> String;
    let rows: [(&str, Show); 15] = [
        ("cores", |offer| offer.cores.to_string()),
        ("load", |offer| format!("{}.{:02}", offer.load_percent / 100, offer.load_percent % 100)),
        ("memory granted", |offer| show_memory(offer.memory_bytes)),
        ("drivers", |offer| joined(offer.drivers.iter().map(|driver| driver.name()))),
        ("ciphers", |offer| joined(offer.ciphers.iter().map(|cipher| cipher.name()))),
        ("digests", |offer| joined(offer.digests.iter().map(|digest| digest.name()))),
        ("payload in clear", |offer| (if offer.integrity_only { "yes" } else { "no" }).to_owned()),
        ("streams", |offer| match offer.streams {
            0 => format!("measured, at most {}", offer.streams_max),
            streams => format!("{streams}, at most {}", offer.streams_max),
        }),
        ("datagram rails", |offer| match offer.datagrams {
            0 => "none".to_owned(),
            rails => rails.to_string(),
        }),
        ("rate cap", |offer| match offer.rate_bps {
            0 => "none".to_owned(),
            rate_bps => exact_rate(rate_bps),
        }),
        ("free space", |offer| match offer.free_bytes {
            0 => "not known".to_owned(),
            bytes => show_bytes(bytes),
        }),
        ("disk, when measured", |offer| match offer.disk_bps {
            0 => "not known".to_owned(),
            bps => show_bits_per_second(bps as f64),
        }),
        ("storage, looked at", |offer| storage(offer.storage)),
        ("bufs for this job", |offer| match offer.bufs_bytes {
            0 => "not known".to_owned(),
            bytes => show_memory(bytes),
        }),
        ("interfaces", |offer| joined(offer.interfaces.iter().map(interface))),
    ];
    rows.iter()
        .map(|(what, show)| OfferLine {
            what: (*what).to_owned(),
            local: show(local),
            remote: remote.map(|offer| clean(&show(offer)).replace('\n', " ")),
        })
        .collect()
}

fn storage(look: StorageLook) -> String {
    let rate = match look.bps {
        0 => "not known".to_owned(),
        STORAGE_BPS_MAX.. => "in memory".to_owned(),
        bps => show_bits_per_second(bps as f64),
    };
    match look.file_ns {
        0 => rate,
        ns => format!("{rate}, a small file in {} µs", ns / 1000),
    }
}

fn joined<T: AsRef<str>>(words: impl Iterator<Item = T>) -> String {
    let words: Vec<T> = words.collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

fn interface(interface: &proto::negotiate::Interface) -> String {
    let speed = match interface.speed_mbit {
        0 => "speed not known".to_owned(),
        speed_mbit => exact_rate(u64::from(speed_mbit) * 1_000_000),
    };
    format!("{} {} (MTU {} B, {speed})", interface.name, interface.address, interface.mtu)
}

/// The whole explanation as text.
#[must_use]
pub fn text(record: &PlanRecord) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "offers");
    for line in &record.offers {
        let _ = match &line.remote {
            Some(remote) if *remote == line.local => {
                writeln!(text, "  {:<18}both: {}", clean(&line.what), clean(remote))
            }
            Some(remote) => {
                writeln!(
                    text,
                    "  {:<18}here: {}\n  {:<18}there: {}",
                    clean(&line.what),
                    clean(&line.local),
                    "",
                    clean(remote)
                )
            }
            None => writeln!(text, "  {:<18}{}", clean(&line.what), clean(&line.local)),
        };
    }
    let _ = writeln!(text, "choices");
    for choice in &record.choices {
        let _ = writeln!(text, "  {:<18}{}: {}", clean(&choice.what), clean(&choice.value), clean(&choice.reason));
    }
    let _ = writeln!(text, "  {:<18}{}: {}", "driver here", clean(&record.driver), clean(&record.driver_reason));
    let parts: Vec<String> =
        record.memory_parts.iter().map(|(what, bytes)| format!("{} {}", clean(what), show_memory(*bytes))).collect();
    let _ = writeln!(
        text,
        "  {:<18}{} = {} of {} granted",
        "memory here",
        parts.join(" + "),
        show_memory(record.memory_bytes),
        show_memory(record.memory_granted_bytes),
    );
    text
}
