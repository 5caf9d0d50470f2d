//! The ways in which bytes cross, and what each end says about it afterwards.
//!
//! For: both ends of `bench net`, which agree on these by JSON lines.
//! In and out: plain data.
//! Invariants: an order from another host is checked (`Order::check`) before anything is made of it.
//! Absent on purpose: doing it (bare.rs, rail.rs, datagram.rs, packets.rs).

use clap::ValueEnum;
use engine::job::Cover;
use proto::books::Stage;
use proto::negotiate::Cipher;
use proto::rate::ControllerKind;
use proto::wire::control::DigestKind;
use serde::{Deserialize, Serialize};
use sys::ring::Kind;
use sys::sock::TcpInfo;
use sys::udp::{BURST_BYTES_MAX, HEAD_BYTES};
use topology::placement::shape::CORES_MAX;

use super::sums::Sums;

/// Which engine of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
    /// io_uring.
    Uring,
    /// Plain system calls.
    Plain,
}

impl Driver {
    /// As `sys` calls it.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Driver::Uring => Kind::Uring,
            Driver::Plain => Kind::Plain,
        }
    }

    /// As the table calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Driver::Uring => "io_uring",
            Driver::Plain => "plain",
        }
    }
}

/// What the rail does to a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Sealed header, payload in clear under a CRC-64.
    Crc,
    /// The same with a tag for each piece: `--integrity-only --digest crc64`.
    Tagged,
    /// Payload sealed, CRC-64: `--digest crc64`.
    Sealed,
    /// Payload in clear under a BLAKE3: `--integrity-only`.
    Hashed,
    /// Payload sealed, BLAKE3: the default.
    SealedHashed,
}

impl Layer {
    /// From the cheapest on.
    pub const ALL: [Layer; 5] = [Layer::Crc, Layer::Tagged, Layer::Sealed, Layer::Hashed, Layer::SealedHashed];

    /// How payload stands on the rail, and its digest.
    #[must_use]
    pub fn terms(self) -> (Cover, DigestKind) {
        match self {
            Layer::Crc => (Cover::Hashed, DigestKind::Crc64),
            Layer::Tagged => (Cover::Tagged, DigestKind::Crc64),
            Layer::Sealed => (Cover::Sealed, DigestKind::Crc64),
            Layer::Hashed => (Cover::Hashed, DigestKind::Blake3),
            Layer::SealedHashed => (Cover::Sealed, DigestKind::Blake3),
        }
    }

    /// Is the payload encrypted?
    #[must_use]
    pub fn is_sealed(self) -> bool {
        self.terms().0 == Cover::Sealed
    }

    /// As the table calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Layer::Crc => "clear, CRC-64",
            Layer::Tagged => "clear, tags, CRC-64",
            Layer::Sealed => "sealed, CRC-64",
            Layer::Hashed => "clear, BLAKE3",
            Layer::SealedHashed => "sealed, BLAKE3 (default)",
        }
    }
}

/// How packets go into the kernel and come out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Datagram {
    /// send(2) and recv(2) for each packet: how UDP is mostly used, and what the others are held against.
    Each,
    /// sendmmsg(2) and recvmmsg(2), 16 packets in a call.
    Batched,
    /// Segmentation offload out, recv(2) for each packet in.
    Cut,
    /// Segmentation offload out, joined bursts in: the ceiling.
    Burst,
    /// The same, and a receiver that has found nothing naps instead of waiting: nobody has to wake it.
    Napping,
    /// Segmentation offload out with a head apart from the payload of each packet.
    Gathered,
    /// The same with several bursts in a recvmmsg(2).
    Bursts,
    /// Pages that the network reads itself, joined bursts in.
    Spliced,
    /// The same, heads and payload copied into the pages before.
    Copied,
}

impl Datagram {
    /// In the order of the table.
    pub const ALL: [Datagram; 9] = [
        Datagram::Each,
        Datagram::Batched,
        Datagram::Cut,
        Datagram::Burst,
        Datagram::Napping,
        Datagram::Gathered,
        Datagram::Bursts,
        Datagram::Spliced,
        Datagram::Copied,
    ];

    /// As the table calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Datagram::Each => "send -> recv, a call per packet",
            Datagram::Batched => "sendmmsg -> recvmmsg, 16 packets",
            Datagram::Cut => "GSO -> recv",
            Datagram::Burst => "GSO -> GRO",
            Datagram::Napping => "GSO -> GRO, naps of 50 us",
            Datagram::Gathered => "GSO, heads apart -> GRO",
            Datagram::Bursts => "GSO -> GRO by recvmmsg",
            Datagram::Spliced => "splice, GSO -> GRO",
            Datagram::Copied => "heads apart, copied, splice, GSO -> GRO",
        }
    }
}

/// Controller of the rail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControllerWanted {
    /// Ours: keeps a small queueing delay
    Delay,
    /// BBR-like
    Bbr,
    /// CUBIC (RFC 9438), paced
    Cubic,
    /// Just the rate that --rate names
    Fixed,
}

impl ControllerWanted {
    /// As the protocol calls it.
    #[must_use]
    pub fn controller(self) -> ControllerKind {
        match self {
            ControllerWanted::Delay => ControllerKind::Delay,
            ControllerWanted::Bbr => ControllerKind::Bbr,
            ControllerWanted::Cubic => ControllerKind::Cubic,
            ControllerWanted::Fixed => ControllerKind::Fixed,
        }
    }
}

/// What moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "way", rename_all = "snake_case")]
pub enum Way {
    /// A loop of send(2), a loop of recv(2): the ceiling.
    Bare {
        /// Bytes per call.
        block_bytes: u32,
    },
    /// Frames through `sys::ring`: a header and a chunk that nobody looks at.
    Ring {
        /// Which engine.
        driver: Driver,
    },
    /// The engine's worker and its rail, from an empty source to an empty sink.
    Rail {
        /// Which engine.
        driver: Driver,
        /// What is done to a frame.
        layer: Layer,
    },
    /// Packets over UDP, beside the connection.
    Datagram {
        /// By which calls.
        how: Datagram,
        /// Bytes of each, without the heads of UDP and IP.
        packet_bytes: u16,
    },
    /// The engine's worker and its datagram rail, which repairs what is lost, from an empty source to an empty sink.
    Packets(PacketsWay),
}

/// How a datagram rail is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketsWay {
    /// Which engine.
    pub driver: Driver,
    /// What is done to a chunk; digests as on a stream rail.
    pub layer: Layer,
    /// UDP payload of a packet.
    pub packet_bytes: u16,
    /// Which controller.
    pub controller: ControllerWanted,
    /// Its bound in bytes per second on the wire; 0: none.
    pub rate: u64,
    /// Chunks that an end has memory for.
    pub bufs: u16,
}

impl Way {
    /// As the table calls it.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Way::Bare { block_bytes } => format!("bare loop, {}", text::units::show_memory(u64::from(*block_bytes))),
            Way::Ring { driver } => format!("ring, {}", driver.name()),
            Way::Rail { driver, layer } => format!("rail, {}: {}", driver.name(), layer.name()),
            Way::Datagram { how, packet_bytes } => format!("UDP {packet_bytes}: {}", how.name()),
            Way::Packets(PacketsWay { layer, .. }) => match layer {
                Layer::Crc => "packets, clear".to_owned(),
                Layer::Tagged => "packets, clear, tags".to_owned(),
                Layer::Sealed => "packets, sealed".to_owned(),
                Layer::Hashed => "packets, clear, BLAKE3".to_owned(),
                Layer::SealedHashed => "packets, sealed, BLAKE3".to_owned(),
            },
        }
    }
}

/// The cipher a case seals with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seal {
    /// AES-128-GCM.
    Aes128,
    /// AES-256-GCM.
    Aes256,
    /// ChaCha20-Poly1305.
    Chacha20,
}

impl Seal {
    /// As the protocol calls it.
    #[must_use]
    pub fn cipher(self) -> Cipher {
        match self {
            Seal::Aes128 => Cipher::Aes128Gcm,
            Seal::Aes256 => Cipher::Aes256Gcm,
            Seal::Chacha20 => Cipher::ChaCha20Poly1305,
        }
    }
}

/// One run, as the sender asks the receiver for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// What moves the bytes.
    pub way: Way,
    /// With which cipher, where one is needed.
    pub seal: Seal,
    /// Connections, each with a thread at each end.
    pub streams: u16,
    /// How long the sender sends.
    pub send_ms: u64,
    /// Where the receiver's threads run; `None`: as the listener was told at its start.
    #[serde(default)]
    pub hold: Option<Held>,
}

/// Where one end's threads run, as it crosses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Cores; empty: any.
    pub cores: Vec<u16>,
    /// Each thread on one of them.
    pub exact: bool,
    /// Node of their memory.
    pub memory: Option<u16>,
}

/// What is asked of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Bytes.
    Run(Order),
    /// What machine it is.
    Machine,
    /// Its card's interrupts on these cores (none: as they were), on so many rings only if `first_rings`.
    Arrange {
        /// Cores.
        irqs: Vec<u16>,
        /// As many rings as cores.
        first_rings: bool,
        /// Cores of the workers that send, one for each stream.
        workers: Vec<u16>,
    },
}

/// Longest run and most streams that a stranger may ask for.
const SEND_MS_MAX: u64 = 3_600_000;
const STREAMS_MAX: u16 = 64;
/// Largest block: what one call may move is bounded by memory, not by the kernel.
pub const BLOCK_BYTES_MAX: u32 = 64 << 20;
/// Chunks of memory that a stranger may ask for; fewer than the engine needs make no rail.
pub const BUFS: std::ops::RangeInclusive<u16> = 8..=1024;

impl Order {
    /// Refuses what would cost more than a bench should.
    ///
    /// # Errors
    /// Which limit it breaks.
    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!((1..=STREAMS_MAX).contains(&self.streams), "1 to {STREAMS_MAX} streams can be measured");
        anyhow::ensure!(self.send_ms <= SEND_MS_MAX, "a run of more than an hour is refused");
        let cores = self.hold.as_ref().map_or(0, |hold| hold.cores.len());
        anyhow::ensure!(cores <= usize::from(CORES_MAX), "no machine has {cores} cores");
        if let Way::Bare { block_bytes } = self.way {
            let good = (1..=BLOCK_BYTES_MAX).contains(&block_bytes);
            anyhow::ensure!(good, "a block has 1 byte to {} MiB", BLOCK_BYTES_MAX >> 20);
        }
        if let Way::Datagram { packet_bytes, .. } = self.way {
            let good = (HEAD_BYTES + 1..=BURST_BYTES_MAX).contains(&usize::from(packet_bytes));
            anyhow::ensure!(good, "a packet has {} to {BURST_BYTES_MAX} bytes", HEAD_BYTES + 1);
        }
        if let Way::Packets(PacketsWay { packet_bytes, bufs, .. }) = self.way {
            let good = PACKETS_BYTES.contains(&packet_bytes);
            anyhow::ensure!(good, "a rail's packet has {} to {} bytes", PACKETS_BYTES.start(), PACKETS_BYTES.end());
            let memory = u64::from(bufs) * u64::from(self.streams);
            anyhow::ensure!(
                BUFS.contains(&bufs) && memory <= u64::from(*BUFS.end()),
                "memory of 8 MiB to 1 GiB in all"
            );
        }
        Ok(())
    }
}

/// UDP payload of a rail's packets: the least that every path takes with IPv6 (RFC 9000, section 14), the most that an Ethernet does.
const PACKETS_BYTES: std::ops::RangeInclusive<u16> = 1200..=9188;

/// What one end of one stream has to say.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Payload moved.
    pub bytes: u64,
    /// From the first bytes to the last.
    pub ns: u64,
    /// Processor time of the thread meanwhile.
    pub cpu_ns: u64,
    /// Time per stage of the engine's books, for rails; sums to `ns`.
    pub stages: Vec<(String, u64)>,
    /// What the kernel knows of the connection.
    pub tcp: Tcp,
    /// What a datagram rail says of itself.
    #[serde(default)]
    pub packets: Sums,
}

impl Side {
    /// Payload by time, bit/s.
    #[must_use]
    pub fn bps(&self) -> f64 {
        8e9 * self.bytes as f64 / self.ns.max(1) as f64
    }

    /// Processor time by wall time: 1 is a whole core.
    #[must_use]
    pub fn load(&self) -> f64 {
        self.cpu_ns as f64 / self.ns.max(1) as f64
    }

    /// Puts the engine's books in.
    pub fn book(&mut self, ns: &engine::worker::stages::Snapshot) {
        let spent = Stage::ALL.iter().map(|&stage| (stage.name().to_owned(), ns[stage as usize]));
        self.stages = spent.filter(|(_, ns)| *ns > 0).collect();
    }
}

/// The part of TCP_INFO that explains a rate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tcp {
    /// Congestion control in use.
    pub congestion: String,
    /// Smoothed round trip.
    pub rtt_us: u32,
    /// Congestion window, packets.
    pub cwnd: u32,
    /// Bytes per packet.
    pub mss: u32,
    /// Packets sent again.
    pub retrans: u32,
    /// Time with data to send.
    pub busy_us: u64,
    /// Of this: stopped by the peer's window.
    pub rwnd_limited_us: u64,
    /// Of this: stopped by the own send buffer.
    pub sndbuf_limited_us: u64,
}

impl Tcp {
    /// From what the kernel says.
    #[must_use]
    pub fn of(info: &TcpInfo, congestion: String) -> Self {
        Tcp {
            congestion,
            rtt_us: info.rtt_us,
            cwnd: info.cwnd,
            mss: info.mss,
            retrans: info.retrans,
            busy_us: info.busy_time_us,
            rwnd_limited_us: info.rwnd_limited_us,
            sndbuf_limited_us: info.sndbuf_limited_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_cross_as_json_and_excess_is_refused() {
        let way = Way::Rail { driver: Driver::Plain, layer: Layer::Tagged };
        let order = Order { way, seal: Seal::Aes128, streams: 1, send_ms: 5, hold: None };
        let text = serde_json::to_string(&order).unwrap();
        assert_eq!(serde_json::from_str::<Order>(&text).unwrap(), order);
        assert!(order.check().is_ok());
        assert!(Order { streams: 0, ..order.clone() }.check().is_err());
        let hold = Some(Held { cores: vec![1; 9000], exact: true, memory: None });
        assert!(Order { hold, ..order.clone() }.check().is_err());
        let way = Way::Datagram { how: Datagram::Burst, packet_bytes: 1472 };
        let datagrams = Order { way, ..order.clone() };
        let text = serde_json::to_string(&datagrams).unwrap();
        assert_eq!(serde_json::from_str::<Order>(&text).unwrap(), datagrams);
        for packet_bytes in [0, 32, u16::MAX] {
            let way = Way::Datagram { how: Datagram::Burst, packet_bytes };
            assert!(Order { way, ..order.clone() }.check().is_err());
        }
        let good = PacketsWay {
            driver: Driver::Plain,
            layer: Layer::Sealed,
            packet_bytes: 1472,
            controller: ControllerWanted::Delay,
            rate: 0,
            bufs: 64,
        };
        let ordered = |way| Order { way: Way::Packets(way), ..order.clone() };
        let text = serde_json::to_string(&ordered(good)).unwrap();
        assert_eq!(serde_json::from_str::<Order>(&text).unwrap(), ordered(good));
        assert!(ordered(good).check().is_ok());
        assert!(ordered(PacketsWay { packet_bytes: 100, ..good }).check().is_err());
        assert!(ordered(PacketsWay { bufs: u16::MAX, ..good }).check().is_err());
        assert!(Order { way: Way::Bare { block_bytes: u32::MAX }, ..order }.check().is_err());
    }
}
