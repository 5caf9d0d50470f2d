//! The words of `longhaul lab`.
//!
//! For: the command line. In and out: words → arguments; those of links → their settings.
//! Invariants: none of these does anything.
//! Absent on purpose: the commands themselves.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::settings::{self, LinkSettings};
use text::units;

/// What can be asked of the lab.
#[derive(Debug, Clone, Subcommand)]
pub enum LabCommand {
    /// Make two hosts, run a command on host a, and remove everything when it ends
    Run(Box<RunArguments>),
    /// Make two hosts that stay until `lab down`
    Up(Box<UpArguments>),
    /// End a lab that `lab up` made, and say what its links did
    Down {
        /// Which [default: the only one]
        name: Option<String>,
    },
    /// Run a command on a host of a running lab
    On(OnArguments),
    /// Change a link while it runs
    Set(SetArguments),
    /// Give a host another address, as if it had moved to another network
    Move(MoveArguments),
    /// Show the links of a running lab, and what has passed
    Show {
        /// Which [default: the one around this command, or the only one]
        name: Option<String>,
    },
    /// List the labs that run
    List,
    /// Measure whether the links are what they say: round trip, rate, loss, queue, jitter, reordering
    Measure(MeasureArguments),
    /// Make two hosts on one wire of the kernel's, say where they are, and end them when the caller ends
    #[command(hide = true)]
    Hosts,
    #[command(hide = true)]
    Hold(Box<UpArguments>),
    #[command(hide = true)]
    Guard(GuardArguments),
}

/// What the links are like.
#[derive(Debug, Clone, Args)]
#[command(after_help = settings::KEYS)]
pub struct LinkArguments {
    /// One link in words: "rate=1Gbit rtt=100ms loss=1%"; again for a second link, and so on
    ///
    /// What the options below say counts for every link, unless its words say otherwise.
    #[arg(long = "link", value_name = "WORDS")]
    pub links: Vec<String>,
    /// Rate of each direction: 155Mbit, 10Gbit, none
    #[arg(long, value_name = "RATE", default_value = "none")]
    pub rate: String,
    /// Round trip: half of it is spent each way
    #[arg(long, value_name = "TIME")]
    pub rtt: Option<String>,
    /// Loss of each direction: 1%, burst:1%/8, ge:P/R/GOOD/BAD
    #[arg(long, value_name = "SHARE")]
    pub loss: Option<String>,
    /// Variation of delay: 2ms, bell:2ms
    #[arg(long, value_name = "TIME")]
    pub jitter: Option<String>,
    /// Packets that come late and by how much: 1%/3ms
    #[arg(long, value_name = "SHARE/TIME")]
    pub reorder: Option<String>,
    /// Packets that come twice
    #[arg(long, value_name = "SHARE")]
    pub duplicate: Option<String>,
    /// Packets with a turned bit
    #[arg(long, value_name = "SHARE")]
    pub corrupt: Option<String>,
    /// Depth of the drop-tail queue: 256KiB, 20ms, 1bdp [default: 1bdp, at least 100 kB]
    #[arg(long, value_name = "DEPTH")]
    pub queue: Option<String>,
    /// Largest packet, bytes of IP [default: 1500]
    #[arg(long, value_name = "BYTES")]
    pub mtu: Option<String>,
    /// Memory of the emulator: what is on the wires and in the queues [default: what the links need]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub memory: Option<u64>,
    /// The same number gives the same losses
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Packets of one burst due within this time are delivered together
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "50us")]
    pub granule: Duration,
    /// Changes at given times, counted from the start of the command: lines like `at 5s link 0 rate=50Mbit`
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// Congestion control of TCP on both hosts [default: the machine's]
    #[arg(long, value_name = "NAME")]
    pub tcp: Option<String>,
}

impl LinkArguments {
    /// The links, at least one. Errors: a word that means nothing.
    pub fn settings(&self) -> Result<Vec<LinkSettings>, String> {
        let mut base = LinkSettings::default();
        let options = [
            ("rate", Some(&self.rate)),
            ("rtt", self.rtt.as_ref()),
            ("loss", self.loss.as_ref()),
            ("jitter", self.jitter.as_ref()),
            ("reorder", self.reorder.as_ref()),
            ("duplicate", self.duplicate.as_ref()),
            ("corrupt", self.corrupt.as_ref()),
            ("queue", self.queue.as_ref()),
            ("mtu", self.mtu.as_ref()),
        ];
        for (key, value) in options {
            if let Some(value) = value {
                base.apply(&format!("{key}={value}"))?;
            }
        }
        if self.links.is_empty() {
            return Ok(vec![base]);
        }
        let one = |words: &String| {
            let mut link = base;
            link.apply_all(words).map(|()| link)
        };
        self.links.iter().map(one).collect()
    }
}

/// `longhaul lab run`.
#[derive(Debug, Clone, Args)]
pub struct RunArguments {
    /// The links.
    #[command(flatten)]
    pub links: LinkArguments,
    /// Say nothing at the end unless the emulator was itself the limit
    #[arg(long, short = 'q')]
    pub quiet: bool,
    /// What to run on host a
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `longhaul lab up`.
#[derive(Debug, Clone, Args)]
pub struct UpArguments {
    /// What to call it
    pub name: String,
    /// The links.
    #[command(flatten)]
    pub links: LinkArguments,
}

/// `longhaul lab on`.
#[derive(Debug, Clone, Args)]
pub struct OnArguments {
    /// a or b
    pub host: String,
    /// Which lab [default: the one around this command, or the only one]
    #[arg(long, value_name = "NAME")]
    pub lab: Option<String>,
    /// Do not wait for it: print its process id and its log's path
    #[arg(long, short = 'b')]
    pub background: bool,
    /// Where the log goes [default: beside the lab's socket, removed with the lab]
    #[arg(long, value_name = "FILE", requires = "background")]
    pub log: Option<PathBuf>,
    /// What to run there
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `longhaul lab set`.
#[derive(Debug, Clone, Args)]
#[command(after_help = settings::KEYS)]
pub struct SetArguments {
    /// Number of the link, from 0
    pub link: usize,
    /// What changes: rate=50Mbit, ab.loss=2%, down
    #[arg(required = true, value_name = "KEY=VALUE")]
    pub words: Vec<String>,
    /// Which lab [default: the one around this command, or the only one]
    #[arg(long, value_name = "NAME")]
    pub lab: Option<String>,
}

/// `longhaul lab move`.
#[derive(Debug, Clone, Args)]
pub struct MoveArguments {
    /// a or b
    pub host: String,
    /// The new address, in the link's network
    pub address: Ipv4Addr,
    /// On which link
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub link: usize,
    /// Which lab [default: the one around this command, or the only one]
    #[arg(long, value_name = "NAME")]
    pub lab: Option<String>,
}

/// `longhaul lab measure`.
#[derive(Debug, Clone, Copy, Args)]
pub struct MeasureArguments {
    /// A fifth of the packets: some seconds instead of a minute
    #[arg(long)]
    pub quick: bool,
    /// What the emulator itself can carry, instead: TCP, UDP with segmentation, UDP packet by packet
    #[arg(long, alias = "ceiling", conflicts_with = "quick")]
    pub limit: bool,
}

/// `longhaul lab guard`, which only a lab starts.
#[derive(Debug, Clone, Args)]
pub struct GuardArguments {
    /// Numbers of the network namespaces
    #[arg(long = "host", required = true)]
    pub hosts: Vec<u64>,
    /// Files and folders to remove
    #[arg(long = "file")]
    pub files: Vec<PathBuf>,
}
