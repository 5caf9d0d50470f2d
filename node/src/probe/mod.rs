//! What is known of the path, which transport that speaks for, and whether it was right.
//!
//! For: `--transport auto`.
//! In and out: the kernel's word on the control session's connection, a greeting and a train in; a forecast with its sentence out.
//! Invariants: pure but for `host`, which reads settings of the kernel and its load, and measures a core once for each process (host_rates); a path of which nothing is known gets streams.
//! Absent on purpose: packets of its own (job::udp::packet_train), rails (job::driver).

pub mod host_rates; // what a core carries
pub mod result; // what a look at the path showed

use std::time::Duration;

use proto::negotiate::Choice;
use proto::session::transport::SHORT_RTT;
use proto::session::transport::forecast::{Carry, Forecast, Guess, Host, Storage, TcpController, View};
use sys::sock::TcpInfo;

use crate::link::congestion::is_bbr_over_distance;
use host_rates::{HostRates, host_rates};
use result::Seen;
use text::units::{show_bits_per_second, show_bytes, show_seconds};

/// Below this round trip streams begin at once: a loss costs them little time, and the kernel's offloads are worth more.
pub const SHORT: Duration = SHORT_RTT;
/// Rails are CUBIC's below this round trip whatever the system's choice (`link::congestion`).
const CUBIC_BELOW: Duration = Duration::from_millis(5);
/// Of a socket's buffer what a window can use: the rest is the kernel's own bookkeeping (tcp_adv_win_scale, skb truesize).
const BUFFER_SHARE: f64 = 0.5;

/// What is known when the session stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Known {
    /// Round trip as TCP saw it while greeting; zero: unknown.
    pub rtt: Duration,
    /// Packets sent again while greeting.
    pub again: u32,
    /// Bytes of an IP packet.
    pub mtu: u32,
    /// The ends.
    pub host: Host,
    /// The user asked for a forecast: it is said, and stands in the report.
    pub is_asked: bool,
}

/// The round trip of the empty path as TCP saw it, or what it sees now; zero: unknown.
#[must_use]
pub fn rtt_of(info: &TcpInfo) -> Duration {
    Duration::from_micros(if info.min_rtt_us > 0 { info.min_rtt_us } else { info.rtt_us }.into())
}

/// From the control session's connection, the agreed number of rails, and the user's cap in bit/s. `is_asked`: the user wants a forecast.
#[must_use]
pub fn known(info: Option<&TcpInfo>, rails: (u16, u16), cap_bps: u64, is_asked: bool) -> Known {
    let info = info.copied().unwrap_or_default();
    let rtt = rtt_of(&info);
    // Over a short path TCP is chosen whatever its cores do, and some milliseconds are a tenth of a small job.
    let is_measured = is_asked || rtt >= SHORT;
    let mtu = if info.pmtu == 0 { 1500 } else { info.pmtu };
    Known { rtt, again: info.retrans, mtu, host: host(rtt, rails, cap_bps, is_measured), is_asked }
}

/// What this kernel and these cores allow. The other end is taken to be alike: its settings are not known here.
fn host(rtt: Duration, rails: (u16, u16), cap_bps: u64, is_measured: bool) -> Host {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
    // "least first most"; 6 MiB is what Linux has where nobody changed it.
    let most = |name: &str| read(name).split_whitespace().nth(2).and_then(|word| word.parse().ok()).unwrap_or(6e6);
    let is_bbr = rtt >= CUBIC_BELOW && is_bbr_over_distance();
    let rates = if is_measured { host_rates() } else { HostRates::UNMEASURED };
    let cores = sys::host::cores().map_or(1, |cores| cores.count);
    // What else runs here has its share of them.
    let load = f64::from(sys::host::load().unwrap_or(0.0));
    let free = cores as f64 / (load + 1.0).max(cores as f64);
    Host {
        controller: if is_bbr { TcpController::Bbr } else { TcpController::Cubic },
        rails,
        window_bytes: f64::min(most("tcp_wmem"), most("tcp_rmem")) * BUFFER_SHARE,
        tcp_bps: cores as f64 * rates.tcp_core_bps * free,
        udp_bps: rates.udp_core_bps * free,
        cap_bps: cap_bps as f64,
        storage: Storage::default(),
        is_one_host: false,
    }
}

impl Known {
    /// The path as far as it is known.
    #[must_use]
    pub fn view(&self, seen: Option<&Seen>) -> View {
        let rtt = seen.map_or(self.rtt, |seen| if self.rtt.is_zero() { seen.rtt } else { self.rtt.min(seen.rtt) });
        let mut view = View {
            rtt_s: rtt.as_secs_f64(),
            looked: 0,
            lost: 0,
            rate_bps: None,
            packet_bytes: seen.map_or(self.mtu, |seen| u32::from(seen.packet_bytes) + 28),
            queue_s: 0.0,
        };
        if let Some(train) = seen.and_then(|seen| seen.train) {
            let (chance, full) = train.lost();
            (view.looked, view.lost) = ((train.sent - full.min(train.sent)).into(), chance.into());
            view.rate_bps = train.rate_bps();
            view.queue_s = train.span.as_secs_f64();
        }
        view
    }

    /// The line of `--explain`. `datagrams`: the acceptor takes them.
    #[must_use]
    pub fn choice(&self, datagrams: bool) -> Choice {
        let reason = match (datagrams, self.rtt >= SHORT) {
            (false, _) => "the acceptor takes no datagrams: TCP",
            (true, false) => "a short path: TCP at once, watched while it runs",
            (true, true) => "a look at the path decides, over UDP, while the first files are found",
        };
        let ms = self.rtt.as_secs_f64() * 1e3;
        let value = format!("round trip {ms:.1} ms, {} packets sent again while greeting", self.again);
        Choice { what: "path", value, reason: reason.into() }
    }
}

/// The path in a line.
#[must_use]
pub fn path_words(view: &View) -> String {
    let link = view.rate_bps.map_or_else(
        || "link faster than was measured".to_owned(),
        |rate| format!("link {}", show_bits_per_second(rate)),
    );
    let loss = match (view.looked, view.lost) {
        (0, _) => "loss not measured".to_owned(),
        (looked, lost) => format!("{lost} of {looked} packets lost"),
    };
    let queue =
        if view.queue_s > 0.0 { format!(", buffer of {:.1} ms or more", view.queue_s * 1e3) } else { String::new() };
    format!("round trip {:.1} ms, {link}, {loss}, packets of {} B{queue}", view.rtt_s * 1e3, view.packet_bytes)
}

/// A forecast in a line; `files`: so many, as far as they are known.
#[must_use]
pub fn forecast_words(forecast: &Forecast, files: u64) -> String {
    let guess = |guess: &Guess| {
        let time = forecast.bytes.map(|bytes| format!(", {}", show_seconds(guess.seconds(bytes)))).unwrap_or_default();
        format!("{}{time}, limited by {}", show_bits_per_second(guess.rate_bps), guess.limit)
    };
    let of = forecast.bytes.map(|bytes| format!(" for {}", show_bytes(bytes))).unwrap_or_default();
    let gain = forecast.gain();
    let (other, against) = match forecast.carry {
        Carry::Tcp => ("UDP", guess(&forecast.udp)),
        Carry::Udp => ("TCP", guess(&forecast.tcp)),
        Carry::Both => ("UDP alone", guess(&forecast.udp)),
    };
    let (carry, expected) = (forecast.carry, forecast.expected());
    // Of bytes that nobody has counted yet no time is said anyway.
    if let Some(why) = forecast.unknown(forecast.bytes.unwrap_or(u64::MAX), files) {
        let rate = show_bits_per_second(expected.rate_bps);
        return format!(
            "{carry}{of}: time not known ({why}); carries up to {rate}; {other}: {against}; gain {gain:.2}"
        );
    }
    let time = forecast.bytes.map(|bytes| format!(", {}", show_seconds(forecast.seconds(bytes, files))));
    let (rate, limit) = (show_bits_per_second(expected.rate_bps), expected.limit);
    format!(
        "{carry}{of}: expected {rate}{}, limited by {limit}; {other}: {against}; gain {gain:.2}",
        time.unwrap_or_default()
    )
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
