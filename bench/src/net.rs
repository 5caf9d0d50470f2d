//! `bench net`: memory to memory over TCP, from the bare loop up to the sealed rail, and over UDP by each way of handing packets over.
//!
//! For: knowing what a path and these cores allow, and what each layer of ours takes of it.
//! In and out: another bench's address, or none for loopback → rates, processor time of both ends, what TCP says.
//! Invariants: all lines are measured in turn, round by round, on connections made alike; the rate is the receiver's; processor time is that
//! of the threads that move the bytes, and what the kernel does in their name.
//! Absent on purpose: disks (bench disk), the control session, a search for the best number of streams.

pub mod bare; // the ceiling, and the ring
pub mod datagram; // UDP's own ceilings
pub mod rail; // the engine's rail between an empty source and an empty sink
pub mod packets; // the same over datagrams
pub mod sums; // what its meter said
pub mod report; // lines, table, JSON
pub mod session; // two ends that agree
pub mod way; // what can be asked

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use sys::sock;

use self::report::{Line, Report, Round};
use self::session::{Client, Cores, serve};
use self::way::{BLOCK_BYTES_MAX, BUFS, ControllerWanted, Datagram, Driver, Layer, Order, PacketsWay, Seal, Way};
use crate::table::{Host, ROUNDS, parse_rounds, print_json};
use text::units;

/// Blocks of the bare loop when nobody names any.
const BLOCKS: [u32; 7] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];

/// A round goes over all lines again and again in slices of this length, so that what disturbs the machine for a second is borne by all.
const SLICE_MS: u64 = 100;

/// Engines to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DriverWanted {
    /// io_uring
    Uring,
    /// Plain system calls
    Plain,
    /// One after the other
    Both,
}

/// Cipher to seal with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SealWanted {
    /// AES-128-GCM
    Aes128,
    /// AES-256-GCM
    Aes256,
    /// ChaCha20-Poly1305
    Chacha20,
}

/// Which end of a bench between two hosts this is; with neither, both are here.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct EndsArguments {
    /// Send to the bench that listens there
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["listen", "once"])]
    pub server: Option<String>,

    /// Wait there for a bench that sends; ends by Ctrl-C
    #[arg(long, value_name = "IP:PORT")]
    pub listen: Option<SocketAddr>,

    /// Listen for one client, then end
    #[arg(long, requires = "listen")]
    pub once: bool,
}

/// `longhaul bench net`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(after_help = "\
Alone it measures over loopback, both ends in one process. Between two hosts:
  host B:  longhaul bench net --listen 0.0.0.0:5741
  host A:  longhaul bench net --server hostb:5741
A UDP line's sender never waits: what it loses is too fast for the receiver, and its rate is what arrived.
The listener takes orders from anybody who reaches it: start it on networks you trust, and end it afterwards.")]
pub struct NetArguments {
    #[command(flatten)]
    pub ends: EndsArguments,

    /// Time for each line of the table, all rounds together
    #[arg(long, value_name = "SECONDS", value_parser = units::parse_duration, default_value = "2500ms")]
    pub seconds: Duration,

    /// Connections, each with a thread at each end
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64), default_value = "1")]
    pub streams: u16,

    /// Only the lines with a cipher (and the hardware limit)
    #[arg(long, conflicts_with = "clear")]
    pub sealed: bool,

    /// Only the lines without a cipher
    #[arg(long)]
    pub clear: bool,

    /// Only the lines over TCP
    #[arg(long, conflicts_with = "udp")]
    pub tcp: bool,

    /// Only the lines over UDP, raw and by the datagram rail
    #[arg(long)]
    pub udp: bool,

    /// UDP packets of so many bytes [default: what fills the path's packets; 1472 on loopback]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(64..=65_507))]
    pub packet: Option<u16>,

    /// Only the lines whose name holds this text; several times for several
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,

    /// Congestion controller of the datagram rail
    #[arg(long = "congestion-controller", alias = "law", value_name = "NAME", value_enum, default_value_t = ControllerWanted::Delay)]
    pub controller: ControllerWanted,

    /// Bound of the datagram rail's rate, headers included; `--congestion-controller fixed` sends just so fast: 1Gbit
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate)]
    pub rate: Option<u64>,

    /// Memory of each end of a datagram rail
    #[arg(long, value_name = "SIZE", value_parser = parse_bufs, default_value = "64MiB")]
    pub memory: u16,

    /// Rounds of which the median is shown
    #[arg(long, value_name = "N", default_value_t = ROUNDS, value_parser = parse_rounds)]
    pub rounds: usize,

    /// Measure each line of a round in one go instead of in slices of 100 ms: what a long path's start costs is then in it once
    #[arg(long)]
    pub in_one_go: bool,

    /// How to talk to the kernel [default: io_uring where it is allowed]
    #[arg(long, value_enum)]
    pub driver: Option<DriverWanted>,

    /// Block of the bare loop; several times for several [default: 64KiB to 4MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_block)]
    pub block: Vec<u32>,

    /// Congestion control of the connections
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub cc: String,

    /// Cipher to seal with
    #[arg(long, value_enum, default_value_t = SealWanted::Aes128)]
    pub cipher: SealWanted,

    /// Core of the first sender; receivers take the one after it
    #[arg(long, value_name = "N")]
    pub core: Option<usize>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
}

fn parse_block(text: &str) -> Result<u32, String> {
    let bytes = units::parse_size(text).map_err(|error| error.to_string())?;
    let bytes = u32::try_from(bytes).ok().filter(|&bytes| bytes <= BLOCK_BYTES_MAX);
    bytes.ok_or_else(|| format!("a block has at most {} MiB", BLOCK_BYTES_MAX >> 20))
}

fn parse_bufs(text: &str) -> Result<u16, String> {
    let bytes = units::parse_size(text).map_err(|error| error.to_string())?;
    let bufs = u16::try_from(bytes >> 20).ok().filter(|bufs| BUFS.contains(bufs));
    bufs.ok_or_else(|| "8MiB to 1GiB can be given".to_owned())
}

/// Listens, or measures and prints.
///
/// # Errors
/// The address cannot be had or reached, the other end refused, or a connection broke.
pub fn run(arguments: &NetArguments) -> anyhow::Result<()> {
    let cores = Cores::new(arguments.core)?;
    if let Some(addr) = arguments.ends.listen {
        let listener = sock::listen(addr).with_context(|| format!("failed to listen on {addr}"))?;
        eprintln!("listening on {}", listener.local_addr()?);
        return serve(&listener, &cores, arguments.ends.once, None);
    }
    let host = Host::here();
    let report = match &arguments.ends.server {
        Some(server) => {
            let mut addrs = server.to_socket_addrs().with_context(|| format!("failed to find {server}"))?;
            let addr = addrs.next().with_context(|| format!("{server} has no address"))?;
            measure(arguments, addr, cores, "another bench")?
        }
        None => {
            let listener = sock::listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
            let addr = listener.local_addr()?;
            let ours = cores.clone();
            let far = std::thread::spawn(move || serve(&listener, &ours, true, None));
            let report = measure(arguments, addr, cores, "loopback, both ends in this process")?;
            far.join().expect("the far end does not panic")?;
            report
        }
    };
    if arguments.json {
        return print_json("net", &host, arguments.rounds, &report);
    }
    println!("{host}\n{report}");
    Ok(())
}

/// What is to be measured, in the order of the table.
fn ways(arguments: &NetArguments, packet_bytes: u16) -> Vec<Way> {
    let blocks = if arguments.block.is_empty() { BLOCKS.to_vec() } else { arguments.block.clone() };
    let drivers = match arguments.driver {
        Some(DriverWanted::Both) => vec![Driver::Uring, Driver::Plain],
        Some(DriverWanted::Uring) => vec![Driver::Uring],
        Some(DriverWanted::Plain) => vec![Driver::Plain],
        None if sys::ring::io_uring().is_ok() => vec![Driver::Uring],
        None => vec![Driver::Plain],
    };
    let mut ways: Vec<Way> = blocks.into_iter().map(|block_bytes| Way::Bare { block_bytes }).collect();
    ways.extend(drivers.iter().map(|&driver| Way::Ring { driver }));
    for &driver in &drivers {
        let wanted = Layer::ALL.into_iter().filter(|layer| match layer.is_sealed() {
            true => !arguments.clear,
            // The cheapest line in clear is what the cipher's cost is reckoned from.
            false => !arguments.sealed || *layer == Layer::Crc,
        });
        ways.extend(wanted.map(|layer| Way::Rail { driver, layer }));
    }
    if arguments.udp {
        ways.clear();
    }
    if !arguments.tcp && !arguments.sealed {
        let possible = Datagram::ALL.into_iter().filter(|how| how.is_possible());
        ways.extend(possible.map(|how| Way::Datagram { how, packet_bytes }));
    }
    if !arguments.tcp {
        let wanted = [Layer::Crc, Layer::Tagged, Layer::Sealed].into_iter();
        let wanted = wanted.filter(|layer| if layer.is_sealed() { !arguments.clear } else { !arguments.sealed });
        ways.extend(wanted.map(|layer| {
            let (controller, rate, bufs) = (arguments.controller, arguments.rate.unwrap_or(0), arguments.memory);
            Way::Packets(PacketsWay { driver: drivers[0], layer, packet_bytes, controller, rate, bufs })
        }));
    }
    let only = &arguments.only;
    ways.retain(|way| only.is_empty() || only.iter().any(|only| way.name().contains(only.as_str())));
    ways
}

fn measure(arguments: &NetArguments, addr: SocketAddr, cores: Cores, path: &str) -> anyhow::Result<Report> {
    let seal = match arguments.cipher {
        SealWanted::Aes128 => Seal::Aes128,
        SealWanted::Aes256 => Seal::Aes256,
        SealWanted::Chacha20 => Seal::Chacha20,
    };
    let round_ms = (arguments.seconds.as_millis() / arguments.rounds as u128).max(1) as u64;
    let passes = if arguments.in_one_go { 1 } else { (round_ms / SLICE_MS).max(1) };
    let send_ms = round_ms / passes;
    let mut client = Client::new(addr, &arguments.cc, cores)?;
    let ways = ways(arguments, arguments.packet.map_or_else(|| client.packet_bytes(), Ok)?);
    anyhow::ensure!(!ways.is_empty(), "no line has that name");
    let mut samples: Vec<Vec<Round>> = vec![vec![Round::default(); arguments.rounds]; ways.len()];
    for pass in 0..arguments.rounds * passes as usize {
        for (&way, samples) in ways.iter().zip(&mut samples) {
            let order = Order { way, seal, streams: arguments.streams, send_ms, hold: None };
            let ends = client.run(&order).with_context(|| format!("failed to measure: {}", way.name()))?;
            samples[pass / passes as usize].add(ends);
        }
    }
    let lines = ways.iter().zip(&samples).map(|(&way, samples)| Line::new(way, samples)).collect();
    let addr = addr.to_string();
    Ok(Report::new(format!("{path}, {addr}"), arguments, seal, lines))
}
