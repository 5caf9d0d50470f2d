//! What a link is like, in the user's words.
//!
//! For: options of `lab run` and `lab up`, `lab set`, scripts, and showing a link again.
//! In and out: `key=value`, for both directions or with `ab.` or `ba.` before the key for one → a `LinkSettings`; and back.
//! Invariants: every quantity carries its unit (units.rs); what `words` prints is read back to the same link.
//! Absent on purpose: time (script.rs), and what the values do (link.rs).

use crate::wire::dice::Share;
use crate::wire::link::{Depth, Jitter, Loss, Wire};
use text::units;

/// From host a to host b.
pub const AB: usize = 0;
/// From host b to host a.
pub const BA: usize = 1;
/// What an interface has when nobody says otherwise.
pub const MTU_DEFAULT: u32 = 1500;
/// RFC 8200, 5: IPv6 needs so much; the kernel's own lower bound for IPv4 is 68.
const MTU_MIN: u32 = 1280;
/// A TUN device's upper bound (drivers/net/tun.c, MAX_MTU less the headers of a link layer).
const MTU_MAX: u32 = 65_535;

/// Both directions of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSettings {
    /// `AB` and `BA`.
    pub wires: [Wire; 2],
    /// Of the interface at both ends, bytes of IP.
    pub mtu: u32,
}

impl Default for LinkSettings {
    fn default() -> LinkSettings {
        LinkSettings { wires: [Wire::default(); 2], mtu: MTU_DEFAULT }
    }
}

/// The keys, for `--help` and errors.
pub const KEYS: &str = "\
  rate=100Mbit | none            rtt=80ms (half of it each way) | delay=40ms (one way)
  loss=1% | burst:1%/8 (mean loss, mean burst) | ge:P/R/GOOD/BAD (Gilbert-Elliott: good to bad, bad to good, loss in each)
  jitter=2ms | bell:2ms, with ,overtakes where packets may pass each other
  reorder=1%/3ms (so many come so late)   duplicate=0.1%   corrupt=0.01%
  queue=256KiB | 20ms | 1bdp     ecn=5ms | off (mark what would wait longer)
  police=20Mbit/64KiB | off (what is above that rate is dropped at once; so much passes in a burst)
  mtu=1500 (both ways)           blackhole=1400 | off (larger packets vanish, and no ICMP message says so)
  framing=38 (bytes beside each packet)   up | down
A key counts for both directions; ab.KEY or ba.KEY sets one (a to b, b to a).";

impl LinkSettings {
    /// Delay there and back, ns.
    #[must_use]
    pub fn rtt_ns(&self) -> u64 {
        self.wires[AB].delay_ns.saturating_add(self.wires[BA].delay_ns)
    }

    /// Applies one word. Errors: what is wrong with it, and what to write.
    pub fn apply(&mut self, word: &str) -> Result<(), String> {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let (key, directions) = match key.split_once('.') {
            Some(("ab", key)) => (key, AB..AB + 1),
            Some(("ba", key)) => (key, BA..BA + 1),
            _ => (key, AB..BA + 1),
        };
        let wrong = |why: String| format!("'{word}': {why}");
        if key == "mtu" {
            self.mtu = bounded(value, MTU_MIN, MTU_MAX).map_err(wrong)?;
            return Ok(());
        }
        for wire in &mut self.wires[directions] {
            set(wire, key, value).map_err(wrong)?;
        }
        Ok(())
    }

    /// Applies words that stand apart by blanks.
    pub fn apply_all(&mut self, words: &str) -> Result<(), String> {
        words.split_whitespace().try_for_each(|word| self.apply(word))
    }

    /// The words that make this link.
    #[must_use]
    pub fn words(&self) -> String {
        let mut words = vec![format!("mtu={}", self.mtu)];
        let [ab, ba] = &self.wires;
        for (ab, ba) in wire_words(ab).into_iter().zip(wire_words(ba)) {
            if ab == ba {
                words.push(ab);
            } else {
                words.push(format!("ab.{ab}"));
                words.push(format!("ba.{ba}"));
            }
        }
        words.join(" ")
    }
}

fn set(wire: &mut Wire, key: &str, value: &str) -> Result<(), String> {
    match key {
        "rate" => wire.rate_bps = if value == "none" { 0 } else { units::parse_rate(value).map_err(text)? },
        "rtt" => wire.delay_ns = time(value)? / 2,
        "delay" => wire.delay_ns = time(value)?,
        "loss" => wire.loss = loss(value)?,
        "jitter" => wire.jitter = jitter(value)?,
        "reorder" => {
            let (part, late) = value.split_once('/').ok_or("write a share and a time: 1%/3ms")?;
            (wire.reorder, wire.reorder_ns) = (share(part)?, time(late)?);
        }
        "duplicate" => wire.duplicate = share(value)?,
        "corrupt" => wire.corrupt = share(value)?,
        "queue" => wire.queue = depth(value)?,
        "police" if value == "off" => (wire.police_bps, wire.police_bytes) = (0, 0),
        "police" => {
            let (rate, bucket) = value.rsplit_once('/').ok_or("write a rate and a bucket: 20Mbit/64KiB")?;
            (wire.police_bps, wire.police_bytes) =
                (units::parse_rate(rate).map_err(text)?, units::parse_size(bucket).map_err(text)?);
        }
        "ecn" => wire.mark_ns = if value == "off" { 0 } else { time(value)? },
        "blackhole" | "swallow" => {
            wire.black_hole_above = if value == "off" { 0 } else { bounded(value, 68, MTU_MAX)? }
        }
        "framing" => wire.framing_bytes = bounded(value, 0, 1000)?,
        "up" => wire.up = true,
        "down" => wire.up = false,
        _ => return Err(format!("there is no such key; known are:\n{KEYS}")),
    }
    Ok(())
}

fn text(error: units::UnitError) -> String {
    error.to_string()
}

fn bounded(value: &str, least: u32, most: u32) -> Result<u32, String> {
    let bytes = value.strip_suffix('B').unwrap_or(value).parse::<u32>();
    let bytes = bytes.map_err(|_| "that is not a whole number of bytes".to_owned())?;
    if (least..=most).contains(&bytes) { Ok(bytes) } else { Err(format!("from {least} to {most} bytes can be had")) }
}

/// A time that may be zero, ns.
fn time(value: &str) -> Result<u64, String> {
    match units::parse_duration(value) {
        Ok(time) => u64::try_from(time.as_nanos()).map_err(|_| "that is too long".to_owned()),
        Err(units::UnitError::Zero) => Ok(0),
        Err(error) => Err(text(error)),
    }
}

/// A share in percent, exact to 10^-9.
fn share(value: &str) -> Result<Share, String> {
    let wrong = || "a share is written in percent: 1% or 0.05%".to_owned();
    let number = value.strip_suffix('%').ok_or_else(wrong)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 3 || fraction.len() > 7 || !is_number(whole) || !is_number(fraction) {
        return Err(wrong());
    }
    let ppb: u64 = format!("{whole}{fraction:0<7}").parse().map_err(|_| wrong())?;
    if ppb > 1_000_000_000 { Err("that is more than 100%".to_owned()) } else { Ok(Share::from_ppb(ppb)) }
}

fn loss(value: &str) -> Result<Loss, String> {
    if let Some(value) = value.strip_prefix("burst:") {
        let (mean, length) = value.split_once('/').ok_or("write mean loss and mean burst: burst:1%/8")?;
        let (mean, length) = (u64::from(share(mean)?.ppb()), length.parse::<u64>().unwrap_or(0));
        if !(1..=1_000_000).contains(&length) || mean >= 1_000_000_000 {
            return Err("a burst has 1 to 1000000 packets, and the mean loss is below 100%".to_owned());
        }
        // Gilbert's model: all is lost while bad. Mean burst 1/r; mean loss p / (p + r).
        let better = 1_000_000_000 / length;
        let worse = u128::from(better) * u128::from(mean) / u128::from(1_000_000_000 - mean);
        let worse = u64::try_from(worse).unwrap_or(u64::MAX);
        if worse > 1_000_000_000 {
            return Err("bursts so short do not make a loss so high".to_owned());
        }
        return Ok(Loss::Bursts {
            worse: Share::from_ppb(worse),
            better: Share::from_ppb(better),
            good: Share::NEVER,
            bad: Share::from_ppb(1_000_000_000),
        });
    }
    if let Some(value) = value.strip_prefix("ge:") {
        let parts: Vec<&str> = value.split('/').collect();
        let [worse, better, good, bad] = parts[..] else {
            return Err("write four shares: ge:0.1%/10%/0%/50%".to_owned());
        };
        return Ok(Loss::Bursts { worse: share(worse)?, better: share(better)?, good: share(good)?, bad: share(bad)? });
    }
    share(value).map(Loss::Random)
}

fn jitter(value: &str) -> Result<Jitter, String> {
    let (value, overtakes) = value.strip_suffix(",overtakes").map_or((value, false), |value| (value, true));
    let (value, bell) = value.strip_prefix("bell:").map_or((value, false), |value| (value, true));
    Ok(Jitter { ns: time(value)?, bell, overtakes })
}

fn depth(value: &str) -> Result<Depth, String> {
    if let Some(times) = value.strip_suffix("bdp") {
        let share = share(&format!("{times}%"))?;
        // The share reads percents in 10^-9: 1 is 10^7, and here thousandths are wanted.
        return Ok(Depth::BdpMilli(u64::from(share.ppb()) / 10_000));
    }
    if value.ends_with('B') {
        return units::parse_size(value).map(Depth::Bytes).map_err(text);
    }
    time(value).map(Depth::Time).map_err(|_| "write bytes, a time or BDPs: 256KiB, 20ms, 1.5bdp".to_owned())
}

fn show_time(ns: u64) -> String {
    units::exact_duration(std::time::Duration::from_nanos(ns))
}

fn show_share(share: Share) -> String {
    let ppb = share.ppb();
    let text = format!("{}.{:07}", ppb / 10_000_000, ppb % 10_000_000);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

fn wire_words(wire: &Wire) -> Vec<String> {
    let or_off = |value: u64, text: String| if value == 0 { "off".to_owned() } else { text };
    let milli = |milli: u64| {
        let text = format!("{}.{:03}", milli / 1000, milli % 1000);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let loss = match wire.loss {
        Loss::Random(share) => show_share(share),
        Loss::Bursts { worse, better, good, bad } => {
            format!("ge:{}", [worse, better, good, bad].map(show_share).join("/"))
        }
    };
    let jitter = format!(
        "{}{}{}",
        if wire.jitter.bell { "bell:" } else { "" },
        show_time(wire.jitter.ns),
        if wire.jitter.overtakes { ",overtakes" } else { "" }
    );
    let queue = match wire.queue {
        Depth::Bytes(bytes) => units::exact_size(bytes),
        Depth::Time(ns) => show_time(ns),
        Depth::BdpMilli(times) => format!("{}bdp", milli(times)),
    };
    vec![
        format!("rate={}", if wire.rate_bps == 0 { "none".to_owned() } else { units::exact_rate(wire.rate_bps) }),
        format!("delay={}", show_time(wire.delay_ns)),
        format!("loss={loss}"),
        format!("jitter={jitter}"),
        format!("reorder={}/{}", show_share(wire.reorder), show_time(wire.reorder_ns)),
        format!("duplicate={}", show_share(wire.duplicate)),
        format!("corrupt={}", show_share(wire.corrupt)),
        format!("queue={queue}"),
        match wire.police_bps {
            0 => "police=off".to_owned(),
            rate => format!("police={}/{}", units::exact_rate(rate), units::exact_size(wire.police_bytes)),
        },
        format!("ecn={}", or_off(wire.mark_ns, show_time(wire.mark_ns))),
        format!("blackhole={}", or_off(u64::from(wire.black_hole_above), wire.black_hole_above.to_string())),
        format!("framing={}", wire.framing_bytes),
        if wire.up { "up".to_owned() } else { "down".to_owned() },
    ]
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
