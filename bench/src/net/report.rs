//! What `bench net` says: one line per way, the ceiling they are held against, and what the cipher may cost.
//!
//! For: people and programs.
//! In and out: the rounds' sides → medians → table and JSON.
//! Invariants: the text is made from the record that `--json` prints.
//! Absent on purpose: a verdict.

use std::fmt;

use serde::Serialize;

use super::NetArguments;
use super::sums::Sums;
use super::way::{Datagram, Driver, Layer, PacketsWay, Seal, Side, Tcp, Way};
use crate::crypto;
use crate::table::median;
use text::table::Table;

/// Both ends of one round, slice by slice.
#[derive(Debug, Clone, Default)]
pub struct Round {
    senders: Vec<Side>,
    receivers: Vec<Side>,
    /// Of each slice: the streams' rates together, and how long it was.
    slices: Vec<(f64, u64)>,
}

impl Round {
    /// One more slice.
    pub fn add(&mut self, (senders, receivers): (Vec<Side>, Vec<Side>)) {
        // Streams run side by side: their rates add up.
        let rate = receivers.iter().map(|side| 8.0 * side.bytes as f64 / side.ns.max(1) as f64).sum();
        self.slices.push((rate, receivers.iter().map(|side| side.ns).max().unwrap_or(0)));
        self.senders.extend(senders);
        self.receivers.extend(receivers);
    }

    /// Rate over all slices, each weighing as long as it was.
    fn gbps(&self) -> f64 {
        Round::mean_gbps(std::slice::from_ref(self))
    }

    fn mean_gbps(rounds: &[Round]) -> f64 {
        let slices = || rounds.iter().flat_map(|round| &round.slices);
        let ns: u64 = slices().map(|(_, ns)| ns).sum();
        slices().map(|(rate, ns)| rate * *ns as f64).sum::<f64>() / ns.max(1) as f64
    }
}

/// One way, over all rounds.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// As the table calls it.
    pub what: String,
    /// As it was ordered.
    #[serde(flatten)]
    pub way: Way,
    /// Payload, 10^9 bit/s, at the receivers.
    pub gbps: f64,
    /// The rounds, in order.
    pub rounds_gbps: Vec<f64>,
    /// Over all rounds: what ratios of small differences are taken from.
    pub mean_gbps: f64,
    /// Of the best bare loop, for UDP of bursts in and out: the median of the rounds' ratios.
    pub of_ceiling: f64,
    /// Share of what was sent that did not arrive.
    pub lost: f64,
    /// Processor seconds per 10^9 bytes at the sending end.
    pub send_cpu_s_per_gb: f64,
    /// At the receiving end.
    pub recv_cpu_s_per_gb: f64,
    /// Time of the sending end per stage, nanoseconds per byte.
    pub send_stages: Vec<(String, f64)>,
    /// Of the receiving end.
    pub recv_stages: Vec<(String, f64)>,
    /// What the kernel says at a sender, in the last slice.
    pub tcp: Tcp,
    /// What the sending halves of a datagram rail say, all slices together.
    pub packets: Sums,
    /// The same of the receiving halves.
    pub packets_received: Sums,
}

impl Line {
    /// Medians of the rounds.
    #[must_use]
    pub fn new(way: Way, rounds: &[Round]) -> Self {
        let per = |value: u64, bytes: u64| value as f64 / bytes.max(1) as f64;
        let bytes = |sides: &[Side]| sides.iter().map(|side| side.bytes).sum::<u64>();
        let cpu = |sides: &[Side]| per(sides.iter().map(|side| side.cpu_ns).sum(), bytes(sides));
        let rounds_gbps: Vec<f64> = rounds.iter().map(Round::gbps).collect();
        let over = |pick: &dyn Fn(&Round) -> f64| median(&rounds.iter().map(pick).collect::<Vec<_>>());
        Line {
            what: way.name(),
            way,
            gbps: median(&rounds_gbps),
            rounds_gbps,
            mean_gbps: Round::mean_gbps(rounds),
            of_ceiling: 0.0,
            lost: over(&|round| 1.0 - per(bytes(&round.receivers), bytes(&round.senders))).max(0.0),
            send_cpu_s_per_gb: over(&|round| cpu(&round.senders)),
            recv_cpu_s_per_gb: over(&|round| cpu(&round.receivers)),
            send_stages: stages(rounds.iter().map(|round| &round.senders)),
            recv_stages: stages(rounds.iter().map(|round| &round.receivers)),
            tcp: rounds.last().and_then(|round| round.senders.last()).map(|side| side.tcp.clone()).unwrap_or_default(),
            packets: rounds.iter().flat_map(|round| &round.senders).map(|side| side.packets).sum(),
            packets_received: rounds.iter().flat_map(|round| &round.receivers).map(|side| side.packets).sum(),
        }
    }
}

/// Stages of all rounds and streams of one end, per byte.
fn stages<'a>(rounds: impl Iterator<Item = &'a Vec<Side>>) -> Vec<(String, f64)> {
    let mut sums: Vec<(String, f64)> = Vec::new();
    let mut bytes = 0;
    for side in rounds.flatten() {
        bytes += side.bytes;
        for (name, ns) in &side.stages {
            match sums.iter_mut().find(|(it, _)| it == name) {
                Some((_, sum)) => *sum += *ns as f64,
                None => sums.push((name.clone(), *ns as f64)),
            }
        }
    }
    sums.iter_mut().for_each(|(_, sum)| *sum /= (bytes as f64).max(1.0));
    sums
}

/// The middle of the rounds' ratios.
fn median_ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(our, their)| our / their).collect();
    median(&ratios)
}

/// What a sealed rail may reach on these cores: the clear rail's time per byte, and the cipher's own at the busier end.
#[derive(Debug, Clone, Serialize)]
pub struct CipherLine {
    /// Which sealed line.
    pub what: String,
    /// The cipher alone, ns per byte.
    pub seal_ns_per_byte: f64,
    /// The way back.
    pub open_ns_per_byte: f64,
    /// What the parts allow.
    pub allowed_gbps: f64,
    /// What was reached of it.
    pub reached: f64,
}

/// Everything.
#[derive(Debug, Serialize)]
pub struct Report {
    path: String,
    streams: u16,
    /// Of which the median is shown.
    rounds_made: usize,
    seal: Seal,
    congestion_asked: String,
    ceiling: String,
    ceiling_gbps: f64,
    /// The same for UDP.
    datagram_ceiling: String,
    datagram_ceiling_gbps: f64,
    /// How many times a call per packet that is: the median of the rounds' ratios; 0 when it was not measured.
    datagram_gain: f64,
    /// How many times a call per packet the datagram rail in clear is, the same way; 0 when it was not measured.
    packets_gain: f64,
    lines: Vec<Line>,
    cipher: Vec<CipherLine>,
}

impl Report {
    /// Holds the lines against the best bare loop, and measures the cipher where a line is sealed.
    #[must_use]
    pub fn new(path: String, arguments: &NetArguments, seal: Seal, mut lines: Vec<Line>) -> Self {
        let ceiling = best(&lines, |way| matches!(way, Way::Bare { .. }));
        let datagram_ceiling = best(&lines, |way| matches!(way, Way::Datagram { how: Datagram::Burst, .. }));
        let each = best(&lines, |way| matches!(way, Way::Datagram { how: Datagram::Each, .. }));
        for line in &mut lines {
            let beside = match line.way {
                Way::Datagram { .. } | Way::Packets(_) => &datagram_ceiling,
                Way::Bare { .. } | Way::Ring { .. } | Way::Rail { .. } => &ceiling,
            };
            line.of_ceiling = median_ratio(&line.rounds_gbps, &beside.rounds_gbps);
        }
        let clear = best(&lines, |way| matches!(way, Way::Packets(way) if way.layer == Layer::Crc));
        let sealed = |line: &&Line| {
            matches!(line.way, Way::Rail { layer: Layer::Sealed, .. })
                || matches!(line.way, Way::Packets(way) if way.layer == Layer::Sealed)
        };
        let cipher = lines.iter().filter(sealed).filter_map(|line| cipher_line(line, &lines, seal, arguments));
        let cipher = cipher.collect();
        Report {
            path,
            streams: arguments.streams,
            rounds_made: arguments.rounds,
            seal,
            congestion_asked: arguments.cc.clone(),
            ceiling: ceiling.what,
            ceiling_gbps: ceiling.gbps,
            datagram_gain: median_ratio(&datagram_ceiling.rounds_gbps, &each.rounds_gbps),
            packets_gain: median_ratio(&clear.rounds_gbps, &each.rounds_gbps),
            datagram_ceiling: datagram_ceiling.what,
            datagram_ceiling_gbps: datagram_ceiling.gbps,
            lines,
            cipher,
        }
    }
}

/// What others are held against.
#[derive(Default)]
struct Ceiling {
    what: String,
    gbps: f64,
    /// Round by round, so that what disturbs the machine for a while does not pass for a difference.
    rounds_gbps: Vec<f64>,
}

/// The fastest of the lines that count; nothing if there is none.
fn best(lines: &[Line], counts: impl Fn(&Way) -> bool) -> Ceiling {
    let fastest = lines.iter().filter(|line| counts(&line.way)).max_by(|one, other| one.gbps.total_cmp(&other.gbps));
    fastest.map_or_else(Ceiling::default, |line| {
        let (what, gbps, rounds_gbps) = (line.what.clone(), line.gbps, line.rounds_gbps.clone());
        Ceiling { what, gbps, rounds_gbps }
    })
}

/// `None`: the clear line beside it was not measured.
fn cipher_line(line: &Line, lines: &[Line], seal: Seal, arguments: &NetArguments) -> Option<CipherLine> {
    // On a stream a tag covers a piece, on datagrams a packet: the cipher's cost is taken for that length.
    let (beside, piece_bytes) = match line.way {
        Way::Rail { driver, .. } => (Way::Rail { driver, layer: Layer::Crc }, proto::PIECE_BYTES),
        Way::Packets(way) => {
            let clear = PacketsWay { layer: Layer::Crc, ..way };
            (Way::Packets(clear), usize::from(way.packet_bytes) - sys::udp::HEAD_BYTES)
        }
        Way::Bare { .. } | Way::Ring { .. } | Way::Datagram { .. } => return None,
    };
    let clear = lines.iter().find(|it| it.way == beside)?;
    let time = arguments.seconds / arguments.rounds as u32;
    let (seal_ns, open_ns) = crypto::cipher_cost(seal.cipher(), piece_bytes, time).ok()?;
    let cipher_ns = match clear.send_cpu_s_per_gb > clear.recv_cpu_s_per_gb {
        true => seal_ns,
        false => open_ns,
    };
    let bits = 8.0 * f64::from(arguments.streams);
    let allowed_gbps = bits / (bits / clear.mean_gbps + cipher_ns);
    let what = line.what.clone();
    let reached = line.mean_gbps / allowed_gbps;
    Some(CipherLine { what, seal_ns_per_byte: seal_ns, open_ns_per_byte: open_ns, allowed_gbps, reached })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let streams = if self.streams == 1 { "1 stream".to_owned() } else { format!("{} streams", self.streams) };
        writeln!(f, "{}; {streams}, memory to memory, medians of {} rounds in turn\n", self.path, self.rounds_made)?;
        let mut table = Table::new(&["", "Gb/s", "of ceiling", "CPU s/GB send", "receive", "both", "lost"]);
        for line in &self.lines {
            table.line([
                line.what.clone(),
                format!("{:.1}", line.gbps),
                format!("{:.2}", line.of_ceiling),
                format!("{:.3}", line.send_cpu_s_per_gb),
                format!("{:.3}", line.recv_cpu_s_per_gb),
                format!("{:.3}", line.send_cpu_s_per_gb + line.recv_cpu_s_per_gb),
                match line.way {
                    Way::Datagram { .. } => format!("{:.1} %", 100.0 * line.lost),
                    Way::Bare { .. } | Way::Ring { .. } | Way::Rail { .. } | Way::Packets(_) => String::new(),
                },
            ]);
        }
        writeln!(f, "{table}")?;
        if !self.ceiling.is_empty() {
            writeln!(f, "ceiling: {}, {:.1} Gb/s", self.ceiling, self.ceiling_gbps)?;
        }
        if !self.datagram_ceiling.is_empty() {
            write!(f, "ceiling: {}, {:.1} Gb/s", self.datagram_ceiling, self.datagram_ceiling_gbps)?;
            match self.datagram_gain > 0.0 {
                true => writeln!(f, ", {:.1} times a call per packet", self.datagram_gain)?,
                false => writeln!(f)?,
            }
        }
        self.packets(f)?;
        self.stages(f)?;
        for it in &self.cipher {
            writeln!(
                f,
                "{}: the cipher alone takes {:.3} and {:.3} ns/byte (seal, open), which leaves {:.1} Gb/s of the clear line's; \
                 reached {:.2} of it",
                it.what, it.seal_ns_per_byte, it.open_ns_per_byte, it.allowed_gbps, it.reached
            )?;
        }
        for driver in [None, Some(Driver::Uring), Some(Driver::Plain)] {
            let line = self.lines.iter().filter(|line| match (line.way, driver) {
                (Way::Bare { .. }, None) => line.what == self.ceiling,
                (Way::Rail { driver: it, .. }, Some(driver)) => it == driver,
                _ => false,
            });
            if let Some(line) = line.take(1).last() {
                writeln!(f, "TCP, {}: {}", line.what, tcp_text(&line.tcp))?;
            }
        }
        Ok(())
    }
}

impl Report {
    /// What the datagram rails reached beside the socket, and what they had to send again.
    fn packets(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.lines.iter().filter(|line| matches!(line.way, Way::Packets(_))) {
            write!(f, "{}:", line.what)?;
            if line.of_ceiling > 0.0 {
                write!(f, " {:.2} of UDP's ceiling,", line.of_ceiling)?;
            }
            if self.packets_gain > 0.0 && matches!(line.way, Way::Packets(way) if way.layer == Layer::Crc) {
                write!(f, " {:.1} times a call per packet,", self.packets_gain)?;
            }
            writeln!(f, " {}", line.packets.text())?;
        }
        Ok(())
    }

    /// Where each rail's time went.
    fn stages(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.lines.iter().filter(|line| !line.send_stages.is_empty()) {
            let text = |stages: &[(String, f64)]| {
                let shown = stages.iter().filter(|(_, ns)| *ns >= 0.0005);
                shown.map(|(name, ns)| format!("{name} {ns:.3}")).collect::<Vec<_>>().join(", ")
            };
            writeln!(f, "{}, ns/byte", line.what)?;
            writeln!(f, "  sender    {}", text(&line.send_stages))?;
            writeln!(f, "  receiver  {}", text(&line.recv_stages))?;
        }
        Ok(())
    }
}

fn tcp_text(tcp: &Tcp) -> String {
    let share = |us: u64| 100 * us / tcp.busy_us.max(1);
    format!(
        "{}, round trip {} us, window {} packets of {} bytes, {} packets sent again; stopped by the peer's window {} %, \
         by the own send buffer {} % of the time",
        tcp.congestion,
        tcp.rtt_us,
        tcp.cwnd,
        tcp.mss,
        tcp.retrans,
        share(tcp.rwnd_limited_us),
        share(tcp.sndbuf_limited_us)
    )
}
