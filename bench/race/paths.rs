//! One job over four links of 1 : 1 : 2 : 4: ours, MPTCP, and the links one by one.
//!
//! For: `make bench-paths`. In and out: the rate of one link → NAME.json and NAME.html; each row: the rate of the whole, its share of all links,
//! and the tail: the time from the first link that had nothing more to do until the last one had.
//! Invariants: the links are token buckets between two hosts made here; bytes on them are counted by the kernel, not by contestants.
//! Absent on purpose: bonding (it needs a guest: the kernels this runs on often have no such module).

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use lab::hosts::Side;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, listen, socket_with, sockopt};
use serde::Serialize;
use serde_json::json;

use super::copy::{Round, Track};
use super::field::Field;
use super::ground::{Content, Ground};
use super::hosts::Hosts;
use super::record::{Part, Record};
use super::{Common, call, machine, show_and_write};

const WEIGHTS: [u64; 4] = [1, 1, 2, 4];
/// Looks over which a link's rate is taken: a tenth of a second.
const SPAN: usize = 5;

/// `longhaul-race paths`.
#[derive(Debug, Args, Serialize)]
pub(crate) struct PathsArguments {
    #[command(flatten)]
    #[serde(flatten)]
    common: Common,
    /// Mbit/s of the slowest link
    #[arg(long, default_value_t = 100)]
    unit: u64,
    /// MB
    #[arg(long, default_value_t = 600)]
    size: u64,
    #[arg(long, default_value = "paths")]
    name: String,
}

/// The links, and what each had carried from look to look.
struct Links<'a> {
    hosts: &'a Hosts,
    unit: u64,
    looks: Vec<(Instant, [u64; 4])>,
}

impl Links<'_> {
    fn make(hosts: &Hosts, unit: u64) -> anyhow::Result<Links<'_>> {
        let [a, b] = Side::BOTH.map(|side| hosts.holder(side).to_string());
        for (number, weight) in WEIGHTS.iter().enumerate() {
            let device = format!("lp{number}");
            let words = ["link", "add", &device, "netns", &a, "type", "veth", "peer", "name", &device, "netns", &b];
            call("ip", &words)?;
            for (side, last) in [(Side::A, 1), (Side::B, 2)] {
                let rate = unit * weight;
                hosts.run(
                    side,
                    &format!(
                        "ip addr add 10.99.2{number}.{last}/24 dev {device}; ip link set {device} up
                     tc qdisc replace dev {device} root tbf rate {rate}mbit burst 128kb latency 20ms"
                    ),
                )?;
            }
        }
        for side in Side::BOTH {
            hosts
                .run(side, "echo 1 >/proc/sys/net/mptcp/enabled; ip mptcp limits set subflow 4 add_addr_accepted 4")?;
        }
        let signal = "for it in 1 2 3; do ip mptcp endpoint add 10.99.2$it.2 dev lp$it signal; done";
        hosts.run(Side::B, signal)?;
        Ok(Links { hosts, unit, looks: Vec::new() })
    }

    /// Bytes that host a has sent over each, by the kernel's count (field 9 of a line of /proc/net/dev).
    fn look(&mut self) {
        let text = std::fs::read_to_string(format!("/proc/{}/net/dev", self.hosts.holder(Side::A))).unwrap_or_default();
        let sent = [0, 1, 2, 3].map(|number| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("lp{number}:")));
            line.and_then(|line| line.split_whitespace().nth(8)?.parse().ok()).unwrap_or(0)
        });
        self.looks.push((Instant::now(), sent));
    }

    /// Between the first link that was idle for good and the last one, ms; and what share of all bytes each carried.
    fn tail(&self) -> (f64, [f64; 4]) {
        let (Some(first), Some(last)) = (self.looks.first(), self.looks.last()) else { return (0.0, [0.0; 4]) };
        let busy_until = |link: usize| {
            let full = (self.unit * WEIGHTS[link]) as f64 * 1e6 / 8.0;
            let spans = self.looks.iter().zip(self.looks.iter().skip(SPAN));
            let mut busy = spans.filter(|(from, to)| {
                (to.1[link] - from.1[link]) as f64 / (to.0 - from.0).as_secs_f64().max(1e-6) > full * 0.3
            });
            busy.next_back().map_or(first.0, |(_, to)| to.0)
        };
        let ends = [0, 1, 2, 3].map(busy_until);
        let tail = ends.iter().max().zip(ends.iter().min()).map_or(Duration::ZERO, |(last, first)| *last - *first);
        let carried = [0, 1, 2, 3].map(|link| (last.1[link] - first.1[link]) as f64);
        let all = carried.iter().sum::<f64>().max(1.0);
        (tail.as_secs_f64() * 1e3, carried.map(|bytes| bytes / all))
    }

    /// What a round says of the links.
    fn add_to(&self, round: &mut Round) {
        let (tail_ms, shares) = self.tail();
        let sum = WEIGHTS.iter().sum::<u64>();
        let gbps = round.get("gbps").and_then(serde_json::Value::as_f64).unwrap_or(0.0);
        let of_links = gbps * 1e3 / (self.unit * sum) as f64;
        let of_weights: Vec<String> = shares
            .iter()
            .zip(WEIGHTS)
            .map(|(share, weight)| format!("{:.2}", share * sum as f64 / weight as f64))
            .collect();
        println!("    {of_links:.2} of all links, tail {tail_ms:.0} ms, shares of weights {}", of_weights.join(" "));
        for (key, value) in [("tail_ms", json!(tail_ms)), ("of_links", json!(of_links)), ("shares", json!(shares))] {
            round.insert(key.to_owned(), value);
        }
    }
}

/// All of it.
pub(crate) fn run(mut arguments: PathsArguments) -> anyhow::Result<()> {
    arguments.common.settle()?;
    let Common { longhaul, rounds, tmpfs, out } = &arguments.common;
    let hosts = Hosts::make()?;
    let bytes = arguments.size * 1_000_000;
    let ground = Ground::make(tmpfs, Content::File, bytes)?;
    let mut links = Links::make(&hosts, arguments.unit)?;
    let field = Field::read("")?;
    let timeout = Duration::from_secs(300);
    let track =
        Track { hosts: &hosts, field: &field, ground: &ground, exe: longhaul, timeout, seconds: 0, is_pinned: false };
    let together = arguments.unit * WEIGHTS.iter().sum::<u64>();
    let title = format!("{} MB over four links of 1 : 1 : 2 : 4, {together} Mbit/s together", arguments.size);
    let part = Part::race(
        title,
        ["gbps", "cpu_s_per_gb"].map(str::to_owned),
        &field.contestants("paths")?,
        *rounds,
        &longhaul.display().to_string(),
        |one, is_first| {
            links.looks.clear();
            let mut found = track.run(one, is_first, || links.look());
            if let Ok(round) = &mut found {
                links.add_to(round);
            }
            (track.shown(one), found)
        },
    );
    for row in &part.rows {
        if let (Some(of_links), Some(tail)) = (row.of("of_links"), row.of("tail_ms")) {
            println!("{:<40} {:.3} of all links, tail {:.0} ms", row.name, of_links.median, tail.median);
        }
    }
    let record = Record {
        machine: machine(&hosts),
        arguments: serde_json::to_value(&arguments)?,
        parts: vec![part],
        verdicts: Vec::new(),
    };
    show_and_write(record, out, &arguments.name)
}

/// `longhaul-race sink`.
#[derive(Debug, Args)]
pub(crate) struct SinkArguments {
    #[arg(long)]
    mptcp: bool,
    ports: Vec<u16>,
}

/// `longhaul-race source`.
#[derive(Debug, Args)]
pub(crate) struct SourceArguments {
    #[arg(long)]
    mptcp: bool,
    /// Of all streams together
    #[arg(long)]
    bytes: u64,
    /// ADDRESS:PORT=WEIGHT
    to: Vec<String>,
}

fn socket(mptcp: bool) -> anyhow::Result<std::os::fd::OwnedFd> {
    let protocol = mptcp.then_some(ipproto::MPTCP);
    Ok(socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, protocol)?)
}

/// Takes one stream on each port to its end, and says so to its sender. The last port listens when all do.
pub(crate) fn sink(arguments: &SinkArguments) -> anyhow::Result<()> {
    let listeners = arguments.ports.iter().map(|&port| {
        let socket = socket(arguments.mptcp)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))?;
        listen(&socket, 1)?;
        Ok(TcpListener::from(socket))
    });
    let listeners = listeners.collect::<anyhow::Result<Vec<_>>>()?;
    each(listeners, |listener| {
        let (mut stream, _) = listener.accept()?;
        let mut block = vec![0; 1 << 20];
        while stream.read(&mut block)? > 0 {}
        stream.write_all(b"x")
    })
}

/// Sends as many bytes over each stream as its weight says, and waits until they are taken.
pub(crate) fn source(arguments: &SourceArguments) -> anyhow::Result<()> {
    let parsed = arguments.to.iter().map(|to| {
        let (address, weight) = to.split_once('=').context("write ADDRESS:PORT=WEIGHT")?;
        Ok((address.parse::<SocketAddrV4>()?, weight.parse::<u64>()?))
    });
    let parsed = parsed.collect::<anyhow::Result<Vec<_>>>()?;
    let sum: u64 = parsed.iter().map(|(_, weight)| weight).sum();
    let streams = parsed.into_iter().map(|(address, weight)| {
        let socket = socket(arguments.mptcp)?;
        connect(&socket, &address)?;
        Ok((TcpStream::from(socket), arguments.bytes * weight / sum))
    });
    each(streams.collect::<anyhow::Result<Vec<_>>>()?, |(mut stream, bytes)| {
        let block = vec![0; 1 << 20];
        let mut left = bytes;
        while left > 0 {
            left -= stream.write(&block[..usize::try_from(left).unwrap_or(block.len()).min(block.len())])? as u64;
        }
        stream.shutdown(std::net::Shutdown::Write)?;
        stream.read_exact(&mut [0])
    })
}

/// All at once, a thread each.
fn each<T: Send>(all: Vec<T>, work: impl Fn(T) -> std::io::Result<()> + Sync) -> anyhow::Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = all.into_iter().map(|one| scope.spawn(|| work(one))).collect();
        for thread in threads {
            thread.join().map_err(|_| anyhow::anyhow!("a stream's thread panicked"))??;
        }
        Ok(())
    })
}
