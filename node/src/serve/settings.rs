//! The settings of a daemon, as plain data.
//!
//! For: whoever runs one: the command line with its config file, or a program that links this library.
//! In and out: `Settings::of` a folder, fields changed at will; two `Settings` → what changed and what needs a restart.
//! Invariants: what a running daemon cannot change is named, and keeps its old value.
//! Absent on purpose: config files and flags, keys and rights (identity).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use proto::negotiate::Driver;

use super::log::LogFormat;
use super::relay_to::{self, RelayWord};
use crate::address::PORT_DEFAULT;
use crate::identity::ticket::Uses;
use crate::job::receipt::retention::Keep;
use crate::link::reachable::{self, PublicName};
use crate::request::{MEMORY_DEFAULT_BYTES, Ports, RdmaDevice};
use text::units;

/// A connection that says nothing for so long is closed: three times the pulse's worst gap on a bad link.
pub const IDLE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// Jobs at once when nobody says otherwise: as many as memory and descriptors hold (serve/capacity.rs), and no more threads than a machine has by default.
pub const JOBS_MAX_DEFAULT: u32 = 4096;

/// What ticket holders may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketAccess {
    /// Read and write.
    Both,
    /// `--ro`.
    ReadOnly,
    /// `--wo`.
    WriteOnly,
}

/// What the daemon runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// It serves what is below.
    pub root: PathBuf,
    /// For all jobs together.
    pub memory_bytes: u64,
    /// For all jobs together; `None`: one per core.
    pub workers: Option<u16>,
    /// Cap of all jobs together, bit/s.
    pub rate_bps: Option<u64>,
    /// Clients may ask for payload in clear.
    pub integrity_only: bool,
    /// Clients may ask for queue pairs: of devices, or emulated over TCP.
    pub rdma_device: Option<RdmaDevice>,
    /// Payload that nothing vouches for may be asked for.
    pub bare: bool,
    /// `None`: the one below `LONGHAUL_HOME`.
    pub authorized_keys: Option<PathBuf>,
    /// A silent connection is closed after so long.
    pub idle_timeout: Duration,
    /// Jobs at once.
    pub jobs_max: u32,
    /// Become this user after binding the port.
    pub user: Option<String>,
    /// A ticket is given out at the start.
    pub ticket: Option<Uses>,
    /// What its holder may do.
    pub ticket_access: TicketAccess,
    /// Ticket holders, and keys authorized so, may set what is privileged.
    pub privileged: bool,
    /// Whom relayed jobs may reach; `None`: whoever proves the ticket's key, on ports from 1024 on.
    pub relay_to: Option<Vec<RelayWord>>,
    /// Under which names and addresses clients reach the daemon; empty: those of the host's interfaces.
    pub public: Vec<PublicName>,
    /// Way to the kernel.
    pub driver: Option<Driver>,
    /// Started by ssh, for one job.
    pub stdio: bool,
    /// Only who logged in by FTP is served: the port is for rails.
    pub logins_only: bool,
    /// A free one of these ports is taken instead of that of `listen`.
    pub ports: Option<Ports>,
    /// Which receipts stay below `LONGHAUL_HOME`; `None`: as a file of the home says, or all.
    pub receipts_keep: Option<Keep>,
    /// How much to say.
    pub verbose: u8,
    /// And in which form.
    pub log: LogFormat,
}

impl Settings {
    /// What is below this folder is served on all addresses, to keys that are authorized; all else by default.
    #[must_use]
    pub fn of(root: impl Into<PathBuf>) -> Settings {
        Settings {
            listen: (Ipv4Addr::UNSPECIFIED, PORT_DEFAULT).into(),
            root: root.into(),
            memory_bytes: MEMORY_DEFAULT_BYTES,
            workers: None,
            rate_bps: None,
            integrity_only: false,
            rdma_device: None,
            bare: false,
            authorized_keys: None,
            idle_timeout: IDLE_TIMEOUT_DEFAULT,
            jobs_max: JOBS_MAX_DEFAULT,
            user: None,
            ticket: None,
            ticket_access: TicketAccess::Both,
            privileged: false,
            relay_to: None,
            public: Vec::new(),
            driver: None,
            stdio: false,
            logins_only: false,
            ports: None,
            receipts_keep: None,
            verbose: 0,
            log: LogFormat::Text,
        }
    }

    /// Takes over from newly loaded settings what can change while jobs run, and says in sentences what did and what did
    /// not. Running jobs keep what they agreed on; `rate` alone holds for them as well.
    pub fn reload(&mut self, new: Self) -> Vec<String> {
        let mut said = Vec::new();
        let rate = |rate_bps: Option<u64>| rate_bps.map_or_else(|| "none".to_owned(), units::exact_rate);
        let file = |path: &Option<PathBuf>| {
            path.as_ref().map_or_else(|| "the default".to_owned(), |path| path.display().to_string())
        };
        apply(&mut said, "rate", "now", &mut self.rate_bps, new.rate_bps, |value| rate(*value));
        apply(&mut said, "bare", "for new jobs", &mut self.bare, new.bare, bool::to_string);
        apply(
            &mut said,
            "integrity_only",
            "for new jobs",
            &mut self.integrity_only,
            new.integrity_only,
            bool::to_string,
        );
        apply(
            &mut said,
            "authorized_keys",
            "for new connections",
            &mut self.authorized_keys,
            new.authorized_keys,
            file,
        );
        let time = |value: &Duration| units::exact_duration(*value);
        apply(&mut said, "idle_timeout", "for new connections", &mut self.idle_timeout, new.idle_timeout, time);
        let hosts = |words: &Option<Vec<RelayWord>>| relay_to::show(words.as_deref());
        apply(&mut said, "relay_to", "for new relays", &mut self.relay_to, new.relay_to, hosts);
        let names = |names: &Vec<PublicName>| reachable::show(names);
        apply(&mut said, "public", "for new addresses", &mut self.public, new.public, names);
        let keep = |keep: &Option<Keep>| keep.map_or_else(|| "what the home says".to_owned(), |it| it.to_string());
        apply(&mut said, "receipts_keep", "after the next job", &mut self.receipts_keep, new.receipts_keep, keep);
        apply(&mut said, "jobs_max", "for new jobs", &mut self.jobs_max, new.jobs_max, u32::to_string);
        // A port, a root, a pool, threads and a user are taken once, at the start.
        for (key, differs) in [
            ("listen", self.listen != new.listen),
            ("root", self.root != new.root),
            ("memory", self.memory_bytes != new.memory_bytes),
            ("workers", self.workers != new.workers),
            ("user", self.user != new.user),
            ("privileged", self.privileged != new.privileged),
            ("log", self.log != new.log),
            ("rdma_device", self.rdma_device != new.rdma_device),
        ] {
            if differs {
                said.push(format!("{key} has changed in the config file; that needs a restart, the old value stays"));
            }
        }
        said
    }
}

fn apply<T: PartialEq>(
    said: &mut Vec<String>,
    key: &str,
    since: &str,
    old: &mut T,
    new: T,
    show: impl Fn(&T) -> String,
) {
    if *old != new {
        said.push(format!("{key} is {} {since} (was {})", show(&new), show(old)));
        *old = new;
    }
}
