//! The command line: what can be asked, and the text of `--help`.
//!
//! For: one definition that gives parsing, help, the manual page and shell completions.
//! In and out: arguments as bytes → plain data; a wrong line ends with exit code 2.
//! Invariants: every quantity carries its unit; every default is said in the help text; paths stay bytes.
//! Absent on purpose: what addresses mean (address.rs), defaults that depend on the machine (the commands find them).

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use engine::platform::Clones;
use engine::tree::source::watched::Snapshot;
use proto::layout::Stripe;
use proto::negotiate::Cipher;
use proto::rate::{ControllerKind, Policy};
use proto::storage::IoModes;
use proto::wire::control::{DigestKind, Durability};

use node::link::reachable::PublicName;
use node::request::{NetworkPath, Ports};
use node::serve::LogFormat;
use node::serve::relay_to::RelayWord;
use text::exit::Failure;
use text::units;

mod choose; // which entries are taken
mod ftp; // servers of FTP
pub mod habits; // options of rsync and others
mod keep; // what is kept of each entry
mod request; // the whole as a request
mod topics; // `help TOPIC`
pub mod volumes; // which paths are volumes of a set

pub use choose::ChooseArguments;
pub use ftp::FtpArguments;
pub use habits::HabitArguments;
pub use keep::KeepArguments;

/// Where `serve` listens when nobody says otherwise; 5740 has no entry in Debian 12's `/etc/services`.
pub const LISTEN_DEFAULT: &str = "0.0.0.0:5740";
/// Seconds without progress after which a job ends with an error.
pub const STALL_DEFAULT: &str = "5min";

/// What `--version` says after the name: `0.1.0 (commit abcdef123456, 2026-11-25, protocol 10)`. Commit and date are of build.rs.
pub fn version() -> &'static str {
    static LINE: OnceLock<String> = OnceLock::new();
    LINE.get_or_init(|| {
        let (commit, date) = (env!("LONGHAUL_COMMIT"), env!("LONGHAUL_DATE"));
        format!("{} (commit {commit}, {date}, protocol {})", env!("CARGO_PKG_VERSION"), proto::VERSION)
    })
}

/// Moves big data between Linux hosts at the speed of the hardware: sealed, verified, resumable.
#[derive(Debug, Parser)]
#[command(name = "longhaul", version = version(), propagate_version = true, disable_help_subcommand = false, max_term_width = 110, after_help = topics::TOPICS)]
pub struct Arguments {
    /// `cp`, `sync`, `serve`, …
    #[command(subcommand)]
    pub command: Command,
}

/// This process's command line; ends the process where it asks for a page, or cannot be understood.
pub fn read() -> Result<Arguments, Failure> {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(page) = topics::page(&words) {
        print!("{page}");
        std::process::exit(0);
    }
    if let Some(failure) = habits::letters(&words) {
        return Err(failure);
    }
    Arguments::try_parse_from(words).map_err(|error| habits::failure(&error).unwrap_or_else(|| error.exit()))
}

fn listens_at(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(
        |_| "write an IP address of this host and a port, for example 0.0.0.0:5740 or [::]:5740 (all addresses)",
    )
}

/// The commands, in the order in which a user meets them.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Copy files and trees; resumes, verifies and keeps all that a tree has by default
    Cp(Box<CpArguments>),
    /// Make a folder equal to another: only what differs is sent, also within large files; --delete removes the rest
    Sync(Box<SyncArguments>),
    /// List what is at a path, on this host, on a daemon or on a host that ssh reaches
    Ls(Box<crate::lists::entries::ListArguments>),
    /// Run the daemon that other hosts copy to and from
    Serve(Box<ServeArguments>),
    /// Serve a folder to clients of FTP, by TLS
    #[command(subcommand)]
    Ftp(Box<crate::serve::ftp::FtpCommand>),
    /// Check a disk against a receipt, without the source
    Verify(VerifyArguments),
    /// Show, make, trust, authorize and revoke identities
    #[command(subcommand)]
    Key(crate::key_command::KeyCommand),
    /// Show and revoke the tickets that running daemons have given out
    #[command(subcommand)]
    Ticket(crate::lists::tickets::TicketCommand),
    /// Show the receipts that are kept here
    #[command(subcommand)]
    Receipt(crate::lists::receipts::ReceiptCommand),
    /// Show running jobs, change their rate or policy, and stop them; show those that ended
    #[command(subcommand)]
    Job(crate::job_command::JobCommand),
    /// What this machine has, and which of it sits together
    #[cfg(feature = "tune")]
    #[command(subcommand)]
    Host(HostAsked),
    /// Measure each part alone, then together: network, disk, crypto
    #[cfg(feature = "bench")]
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Make two hosts and the links between them on this machine, and run commands there
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Lab(lab::LabCommand),
    /// Answer a daemon of this host that asks for names of users and groups
    #[command(hide = true)]
    Names,
    /// Write the manual pages, the shell completions or the reference of the book into a folder
    #[command(hide = true)]
    Generate(GenerateArguments),
}

/// `longhaul host`: the machine itself, and what is found out with another one.
#[cfg(feature = "tune")]
#[derive(Debug, Clone, PartialEq, Subcommand)]
pub enum HostAsked {
    /// Of this machine alone.
    #[command(flatten)]
    Here(tune::HostCommand),
    /// Search for the placement (cores, memory, streams) that sends fastest to a peer, and keep it for jobs; a second run only looks whether it holds
    #[cfg(feature = "bench")]
    Probe(bench::placement::probe::ProbeArguments),
}

/// `longhaul cp`.
#[derive(Debug, Clone, Args)]
#[command(after_help = CP_AFTER_HELP, override_usage = "longhaul cp [OPTIONS] <SRC>... <DST>")]
pub struct CpArguments {
    /// What to copy, and last where to: a path, [user@]host:path, longhaul://[ticket@]host[:port]/path, or ftp://[user@]host[:port]/path
    ///
    /// DST with a `/` at its end (or `.`, `..`, or several sources) is a folder that takes sources under their own names; without, it is the name of the
    /// copy: see the table below. Names are bytes; nothing is normalised. `-` is standard input or output (`./-` a file of that name).
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DST"])]
    pub paths: Vec<OsString>,

    /// Never send faster than this: 10Gbit, 800Mbit/s (bits) or 1.5GB/s, 100MiB/s (bytes) [default: no cap]
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate)]
    pub rate: Option<u64>,

    /// Say what would be copied, and how many bytes, and change nothing
    #[arg(long, short = 'n')]
    pub dry_run: bool,

    /// Durability level that a file must reach before it counts as done
    #[arg(long = "durability", alias = "rung", value_name = "LEVEL", value_enum, default_value_t = DurabilityChoice::Published)]
    pub durability: DurabilityChoice,

    /// How data goes: tcp streams, udp packets (for long or lossy paths; TCP if these do not get through), or what a look at the path says is faster
    ///
    /// `auto` is the default. Said in so many words it also forecasts: both ends look at their storage first, and what is expected is said before and
    /// compared after [default: auto]
    #[arg(long, value_enum)]
    pub transport: Option<TransportChoice>,

    /// RDMA: which device, by name (`longhaul host show` lists them), or auto: the one that leads to the daemon; emulated puts a TCP connection in its
    /// place, where the daemon was started with the same option [default: auto]
    #[arg(long, value_name = "DEVICE")]
    pub rdma_device: Option<String>,

    /// UDP: the share taken beside other flows on the path; fixed sends at --rate, whatever the path says
    #[arg(long, value_enum, default_value_t = PolicyChoice::Fair)]
    pub policy: PolicyChoice,

    /// UDP: never send slower than this, whoever else is on the path: 100Mbit, 10MB/s [default: no bound]
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate)]
    pub min_rate: Option<u64>,

    /// UDP: the congestion controller (docs/design/003-rate-control.md), for comparisons
    #[arg(long = "congestion-controller", alias = "law", value_name = "NAME", value_enum, default_value_t = ControllerChoice::Delay, hide_short_help = true)]
    pub controller: ControllerChoice,

    /// Connections to use: TCP streams [default: found by negotiation and measuring], or UDP rails [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub streams: Option<u16>,

    /// Use this network path: the other host's address, or LOCAL=REMOTE to choose this host's address too: 10.0.1.1=10.0.1.2. Repeat for each path
    ///
    /// All paths carry data at once, each as fast as it can. With @WEIGHT at each path (@1, @4) a path whose share differs from its weight is reported;
    /// without weights the speeds of the NICs count, where both ends know them [default: the one path that the other host's name leads to]
    #[arg(long = "path", value_name = "[LOCAL=]REMOTE[@WEIGHT]", value_parser = NetworkPath::from_str)]
    pub over: Vec<NetworkPath>,

    /// Memory that each end may use for this job: 256MiB, 1GiB
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, default_value = "256MiB")]
    pub memory: u64,

    /// Print one JSON object per line instead of text; the last one has "event":"done"
    #[arg(long)]
    pub json: bool,

    /// Print each choice that was made (streams, chunk, cipher, memory, driver) with its reason
    #[arg(long)]
    pub explain: bool,

    /// Say more: the whole report, with where the time went at both ends, and details while it runs
    #[arg(long, short = 'v', action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// Say nothing but what failed
    #[arg(long, short = 'q', conflicts_with_all = ["verbose", "explain", "json"])]
    pub quiet: bool,

    /// How often progress is shown: `auto` draws it on a terminal and says a line each minute elsewhere, SECONDS says a line so often, `none` nothing
    #[arg(long, value_name = "auto|none|SECONDS", value_parser = ProgressChoice::from_str, default_value = "auto")]
    pub progress: ProgressChoice,

    /// Send the payload authenticated but in clear, for private links; both ends must allow it
    #[arg(long)]
    pub integrity_only: bool,

    /// Give up seal, tags and the source's digests: over TCP the kernel hands files to the network, and the sender never reads them. The receipt
    /// says `source unread`, and its digests are of what arrived. Size and times are looked at as ever; both ends must allow it
    #[arg(long, conflicts_with = "checksum")]
    pub bare: bool,

    /// Digest of each file: blake3 is what `b3sum` prints, crc64 costs nearly nothing and finds accidents only [default: blake3; with --bare,
    /// where nothing vouches for the bytes on their way, crc64]
    #[arg(long, value_enum)]
    pub digest: Option<DigestChoice>,

    /// Cipher for the payload [default: AES-128-GCM where the CPU has AES, else ChaCha20-Poly1305]
    #[arg(long, value_enum)]
    pub cipher: Option<CipherChoice>,

    /// Unit of reading, sending and retry: a power of two from 1MiB to 16MiB [default: 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_chunk)]
    pub chunk: Option<u32>,

    /// How to talk to the kernel: io_uring, plain system calls, or the better one that is allowed here
    #[arg(long, value_enum, default_value_t = DriverChoice::Auto)]
    pub driver: DriverChoice,

    /// How bytes of big files are moved at this end: buffered, early, dontcache, direct, mmap, or read=NAME,write=NAME [default: auto]
    ///
    /// buffered: through the page cache; early: the same, sent to the disk every few MiB; dontcache: the same, leaving nothing
    /// in it (Linux 6.14); direct: past it (O_DIRECT); mmap: reads by mapping. What a file system refuses is moved buffered.
    #[arg(long = "io-mode", alias = "engine", value_name = "NAME", value_parser = parse_io_modes, default_value = "auto", hide_default_value = true)]
    pub io_mode: IoModes,

    /// Local copies: share blocks of files above 128 KiB with the source where the file system can (btrfs, XFS); the digest is read from the destination
    #[arg(long, value_enum, default_value_t = ReflinkChoice::Auto, value_name = "WHEN")]
    pub reflink: ReflinkChoice,

    /// Read a file from a private clone, as it was at one moment (XFS, btrfs): `auto`, large files that somebody has open for writing; `always`,
    /// all above 128 KiB, and what cannot be cloned fails; `never`. Without a clone a file that is written meanwhile fails as torn
    #[arg(long, value_enum, default_value_t = SnapshotChoice::Auto, value_name = "WHEN")]
    pub snapshot: SnapshotChoice,

    /// Worker threads at this end [default: one per core this process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,

    /// End with an error after so long without progress: 30 (seconds), 500ms, 2min
    #[arg(long, value_name = "SECONDS", value_parser = units::parse_duration, default_value = STALL_DEFAULT)]
    pub stall: Duration,

    /// Command that reaches another host, split at blanks [default: ssh]
    #[arg(long, value_name = "CMD")]
    pub ssh: Option<String>,

    /// The longhaul binary on the other host [default: found there, or this one is copied there]
    #[arg(long, value_name = "PATH")]
    pub remote_binary: Option<String>,

    /// Ports, TCP and UDP, of which the far side that ssh starts takes a free one: 50000-50010 [default: any free port]
    #[arg(long, value_name = "FIRST-LAST", value_parser = Ports::from_str)]
    pub far_port: Option<Ports>,

    /// Send files again even if size and modification time are the same at the destination
    #[arg(long)]
    pub no_keep: bool,

    /// Compare files that stand there by content, chunk by chunk, also where size and modification time agree; send only chunks that differ
    #[arg(long, conflicts_with = "no_keep")]
    pub checksum: bool,

    /// What `sync` makes of a copy: changed files are compared, renamed ones found
    #[arg(long, hide = true)]
    pub mirror: bool,

    /// What `sync --delete` makes of a copy: at most so many entries that the source does not have are removed
    #[arg(long, hide = true, value_name = "N")]
    pub prune: Option<u64>,

    /// The destination is a set of volumes (disks), used side by side
    ///
    /// All paths but the first are volumes: `cp --stripe file src /data/{0..15}`; or the last one is a quoted pattern: '/data/{0..15}'.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub stripe: Option<StripeChoice>,

    /// The sources are the volumes of one set, and what stands on them is one tree: all paths but the last
    #[arg(long)]
    pub join: bool,

    /// Write the signed receipt to this file [default: below LONGHAUL_HOME]
    #[arg(long, value_name = "PATH")]
    pub receipt: Option<PathBuf>,

    /// Write what congestion control did on each rail to this file, by the ending of its name: .html a page with plots, .qlog or .sqlog qlog, .json
    /// one object to a line
    ///
    /// Rate, what arrived, queue, loss, window and phase over time, a look each round trip within 10 to 100 ms. Written when the copy ends, also when a
    /// signal ends it; a file of that name is replaced, and that is said. Of a copy to this host only what a receiver knows.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,

    /// Read the ticket from this file: as `serve --ticket` printed it, or by itself; for a daemon's address without one
    ///
    /// Without this option LONGHAUL_TICKET has it, and longhaul://@HOST/ asks for it on the terminal. One ticket for each daemon, in the order of the
    /// addresses that have `@` and nothing before it; if there is none of these, of all that have no ticket.
    #[arg(long, value_name = "FILE")]
    pub ticket_file: Option<PathBuf>,

    /// Between two other hosts: the copy goes on when this command ends or its connection does; otherwise it ends with it
    #[arg(long)]
    pub unattended: bool,

    /// Which entries are taken.
    #[command(flatten)]
    pub choose: ChooseArguments,

    /// What is kept of entries.
    #[command(flatten)]
    pub keep: KeepArguments,

    /// Servers of FTP.
    #[command(flatten)]
    pub ftp: FtpArguments,

    /// What others' options ask for and is the default.
    #[command(flatten)]
    pub habits: HabitArguments,
}

/// Shown below the options of `cp`.
const CP_AFTER_HELP: &str = "\
Examples:
  longhaul cp -v runs/ backup:/data/          a tree to another host, started there through ssh
  longhaul cp big.img longhaul://TICKET@10.0.0.2:5740/
                                              one file to a daemon that printed this address

What DST means, at all ends, and however often the command is run:
  SRC        DST       there before         stands there afterwards
  a file     x         nothing              the file x
  a file     x         a file               the file x, replaced
  a file     x         a folder             x/file, beside what stood there
  a file     x/        nothing, a folder    x/file
  a folder   x         nothing              the folder x
  a folder   x         a folder             the folder's content in x, beside what stood there (for x/folder write x/)
  a folder   x/        nothing, a folder    x/folder
  several    x, x/     nothing, a folder    x/one, x/other
folder/. means its content, whatever DST is.

The same command again resumes: only what is missing is sent. Exit codes: 0 whole and verified, 2 usage, 3-5 some
entries failed, 10-14 the other end, 20-23 disks, 30-32 stalled, lost or stopped, 40 verify found a mismatch, 41 no receipt.";

/// `longhaul sync`.
#[derive(Debug, Clone, Args)]
#[command(after_help = SYNC_AFTER_HELP, override_usage = "longhaul sync [OPTIONS] <SRC> <DST>")]
pub struct SyncArguments {
    /// All that `cp` takes; here the folder whose content is wanted, and the folder that shall have it.
    #[command(flatten)]
    pub copy: CpArguments,

    /// Remove what DST has and SRC has not, after all else was done and well; --dry-run shows what
    #[arg(long)]
    pub delete: bool,

    /// Remove nothing at all if it would be more entries than this
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "delete")]
    pub max_delete: u64,
}

/// Shown below the options of `sync`.
const SYNC_AFTER_HELP: &str = "\
Examples:
  longhaul sync -n --delete photos/ backup:/photos/   what would be sent and removed
  longhaul sync --checksum db/ longhaul://TICKET@10.0.0.2:5740/db
                                                      trust neither sizes nor times: every byte is compared at both ends
Files of more than 128 KiB whose size or time differs are compared chunk by chunk (1 MiB, at fixed places), and what has not changed is
copied at the destination; a file that is missing there and stands there under another name (same size and time) is found and compared
likewise. A file is replaced whole, or not at all. Exit codes as for cp; 3 also when --delete had to leave something.";

/// `longhaul serve`. What stands on the command line wins over the config file.
#[derive(Debug, Clone, Default, Args)]
pub struct ServeArguments {
    /// Config file (TOML); read again at SIGHUP
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Serve only what is below this folder; links that lead out are refused
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// Address and port to listen on, TCP and UDP [default: 0.0.0.0:5740]
    #[arg(long, value_name = "IP:PORT", value_parser = listens_at)]
    pub listen: Option<SocketAddr>,

    /// Name this host so in the address that is printed, for clients that reach it otherwise than by the addresses of its interfaces (NAT, DNS)
    ///
    /// Several with commas, or the option again: the client takes the first that answers. Without it, and without an address in --listen: the addresses
    /// of this host's interfaces, the default route's first, at most four.
    #[arg(long, value_name = "HOST[:PORT]", value_delimiter = ',', value_parser = PublicName::from_str)]
    pub public: Vec<PublicName>,

    /// Print an address with a secret in it, so that a client needs no key: for one job, or until the daemon ends
    #[arg(long, value_enum, value_name = "KIND", num_args = 0..=1, require_equals = true, default_missing_value = "reusable")]
    pub ticket: Option<TicketChoice>,

    /// Ticket holders may only read
    #[arg(long, conflicts_with = "wo")]
    pub ro: bool,

    /// Ticket holders may only write
    #[arg(long)]
    pub wo: bool,

    /// Let ticket holders, and keys authorized so, set owners, setuid bits, file capabilities and device nodes
    #[arg(long)]
    pub privileged: bool,

    /// Memory for all jobs together: 256MiB, 1GiB [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub memory: Option<u64>,

    /// Worker threads for all jobs together [default: one per core this process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,

    /// Let clients ask for RDMA (cp --transport rdma): by this device, by auto (all of them), or by emulated, a TCP connection that stands for a
    /// device, to try the rail without one
    #[arg(long, value_name = "DEVICE")]
    pub rdma_device: Option<String>,

    /// Allow clients to ask for payload in clear (still authenticated)
    #[arg(long)]
    pub integrity_only: bool,

    /// Allow clients to ask for payload in clear that nothing vouches for (cp --bare), and for payload in clear
    #[arg(long)]
    pub bare: bool,

    /// Cap of all jobs together: 10Gbit, 800Mbit/s (bits) or 1.5GB/s (bytes) [default: no cap]
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate)]
    pub rate: Option<u64>,

    /// Whom this daemon may send to for a client (a copy between two daemons): a host on any port from 1024 on, a host and port, or none
    ///
    /// Without it: whoever proves the key of the ticket that the client gives, on ports from 1024 on. Names are compared as they are written. Several
    /// with commas, or the option again.
    #[arg(long, value_name = "HOST[:PORT]|none", value_delimiter = ',')]
    pub relay_to: Vec<RelayWord>,

    /// How to talk to the kernel: io_uring, plain system calls, or the better one that is allowed here
    #[arg(long, value_enum, default_value_t = DriverChoice::Auto)]
    pub driver: DriverChoice,

    /// Say more about connections and jobs
    #[arg(long, short = 'v', action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// Write the log (standard error) as text, or as JSON with one object to a line; each ended job is a line [default: text]
    #[arg(long, value_name = "text|json", value_parser = LogFormat::from_str)]
    pub log: Option<LogFormat>,

    /// Started by ssh: print the address line, serve one job, end when standard input closes
    #[arg(long, hide = true)]
    pub stdio: bool,

    /// Started by ssh: listen on a free one of these ports
    #[arg(long, hide = true, value_name = "FIRST-LAST", value_parser = Ports::from_str)]
    pub ports: Option<Ports>,
}

/// `longhaul verify`.
#[derive(Debug, Clone, Args)]
pub struct VerifyArguments {
    /// The receipt that `longhaul cp` wrote
    #[arg(value_name = "RECEIPT")]
    pub receipt: PathBuf,

    /// Folder or file that the receipt's paths are below: the destination of the copy; or all volumes of it: '/data/{0..15}'; or ftp://[user@]host[:port]/path
    #[arg(value_name = "PATH", default_value = ".")]
    pub path: Vec<PathBuf>,

    /// Print one JSON object per line instead of text
    #[arg(long)]
    pub json: bool,

    /// Threads that read and hash; each volume of a set has two of its own, at least [default: one per core this process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,

    /// Take only a receipt that the owner of this key has signed: its fingerprint, lh:…, as `longhaul key show` prints it
    #[arg(long, value_name = "FINGERPRINT")]
    pub signer: Option<String>,

    /// What servers of FTP are spoken to with
    #[command(flatten)]
    pub ftp: FtpArguments,
}

/// `longhaul generate` (for packagers).
#[derive(Debug, Clone, Args)]
pub struct GenerateArguments {
    /// What to write
    #[arg(value_enum)]
    pub what: GenerateChoice,

    /// Folder to write into; it is made if it is missing
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// What `generate` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GenerateChoice {
    /// `longhaul.1` and one page per command
    Man,
    /// Completions for bash, zsh and fish
    Completions,
    /// One Markdown page per command, and the table of exit codes
    Markdown,
}

/// `--reflink`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReflinkChoice {
    /// Where it is possible
    Auto,
    /// What cannot share its blocks fails
    Always,
    /// Bytes are copied
    Never,
}

impl From<ReflinkChoice> for Clones {
    fn from(choice: ReflinkChoice) -> Self {
        match choice {
            ReflinkChoice::Auto => Clones::WherePossible,
            ReflinkChoice::Always => Clones::Only,
            ReflinkChoice::Never => Clones::Never,
        }
    }
}

/// `--snapshot`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SnapshotChoice {
    /// Large files that somebody has open for writing
    Auto,
    /// All but small ones; what cannot be cloned fails
    Always,
    /// None
    Never,
}

impl From<SnapshotChoice> for Snapshot {
    fn from(choice: SnapshotChoice) -> Self {
        match choice {
            SnapshotChoice::Auto => Snapshot::Auto,
            SnapshotChoice::Always => Snapshot::Always,
            SnapshotChoice::Never => Snapshot::Never,
        }
    }
}

/// How durable a file must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DurabilityChoice {
    /// Checked in the receiver's memory
    Received,
    /// Handed to the file system
    Written,
    /// On stable storage (fdatasync)
    Flushed,
    /// On stable storage under its final name, the folder flushed as well
    Published,
}

impl From<DurabilityChoice> for Durability {
    fn from(choice: DurabilityChoice) -> Self {
        match choice {
            DurabilityChoice::Received => Self::Received,
            DurabilityChoice::Written => Self::Written,
            DurabilityChoice::Flushed => Self::Flushed,
            DurabilityChoice::Published => Self::Published,
        }
    }
}

/// Which digest stands for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DigestChoice {
    /// BLAKE3, 256 bits
    Blake3,
    /// CRC-64/NVME
    Crc64,
}

impl DigestChoice {
    /// Where nobody asks. Of bytes that nothing vouches for on their way no digest can say more than a sum against accidents, which costs a tenth.
    #[must_use]
    pub fn default_of(bare: bool) -> Self {
        if bare { Self::Crc64 } else { Self::Blake3 }
    }
}

impl From<DigestChoice> for DigestKind {
    fn from(choice: DigestChoice) -> Self {
        match choice {
            DigestChoice::Blake3 => Self::Blake3,
            DigestChoice::Crc64 => Self::Crc64,
        }
    }
}

/// How payload is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CipherChoice {
    /// AES-128-GCM
    Aes128,
    /// AES-256-GCM
    Aes256,
    /// ChaCha20-Poly1305
    Chacha20,
}

impl From<CipherChoice> for Cipher {
    fn from(choice: CipherChoice) -> Self {
        match choice {
            CipherChoice::Aes128 => Self::Aes128Gcm,
            CipherChoice::Aes256 => Self::Aes256Gcm,
            CipherChoice::Chacha20 => Self::ChaCha20Poly1305,
        }
    }
}

/// How data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum TransportChoice {
    /// TCP streams
    Tcp,
    /// UDP packets, with congestion control and retransmission of our own
    Udp,
    /// Queue pairs of RDMA devices at both ends; TCP where one dies
    Rdma,
    /// A look at the path decides; checked against what happens, and changed while running when wrong
    #[default]
    Auto,
}

/// How much of a path a UDP flow takes beside other flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum PolicyChoice {
    /// Sends at --rate
    Fixed,
    /// About twice the share of another flow
    High,
    /// An equal share
    #[default]
    Fair,
    /// What others leave
    Low,
}

impl From<PolicyChoice> for Policy {
    fn from(choice: PolicyChoice) -> Self {
        match choice {
            PolicyChoice::Fixed => Self::Fixed,
            PolicyChoice::High => Self::High,
            PolicyChoice::Fair => Self::Fair,
            PolicyChoice::Low => Self::Low,
        }
    }
}

/// The congestion controller of UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ControllerChoice {
    /// Queueing delay; random loss does not matter
    #[default]
    Delay,
    /// As BBR does
    Bbr,
    /// As CUBIC does (RFC 9438)
    Cubic,
    /// Sends at --rate
    Fixed,
}

impl From<ControllerChoice> for ControllerKind {
    fn from(choice: ControllerChoice) -> Self {
        match choice {
            ControllerChoice::Delay => Self::Delay,
            ControllerChoice::Bbr => Self::Bbr,
            ControllerChoice::Cubic => Self::Cubic,
            ControllerChoice::Fixed => Self::Fixed,
        }
    }
}

/// How to talk to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum DriverChoice {
    /// io_uring where it is allowed, else plain
    #[default]
    Auto,
    /// io_uring, or an error
    Uring,
    /// Plain system calls
    Plain,
}

/// What is dealt out to the volumes of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StripeChoice {
    /// Each file stands whole on one of them: any program reads a volume
    File,
    /// Files above 16 MiB stand in chunks on all of them, and are read again with --join
    Chunk,
}

impl From<StripeChoice> for Stripe {
    fn from(choice: StripeChoice) -> Self {
        match choice {
            StripeChoice::File => Self::File,
            StripeChoice::Chunk => Self::Chunk,
        }
    }
}

/// `--progress`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProgressChoice {
    /// Drawn on a terminal, a line each minute elsewhere
    #[default]
    Auto,
    /// Not shown
    Never,
    /// A line so often, wherever it goes
    Every(Duration),
}

impl FromStr for ProgressChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::Never),
            _ => match units::parse_duration(text) {
                Ok(every) if every >= Duration::from_secs(1) => Ok(Self::Every(every)),
                _ => Err("write auto, none or seconds from 1 on, as in --progress 10; without the option progress is shown anyway".to_owned()),
            },
        }
    }
}

/// How long a ticket lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TicketChoice {
    /// For one job
    Once,
    /// Until the daemon ends
    Reusable,
}

fn parse_io_modes(text: &str) -> Result<IoModes, &'static str> {
    IoModes::parse(text)
}

/// A chunk size within what the protocol allows.
fn parse_chunk(text: &str) -> Result<u32, String> {
    let bytes = units::parse_size(text).map_err(|error| error.to_string())?;
    let in_range = (1 << 20..=16 << 20).contains(&bytes) && bytes.is_power_of_two();
    u32::try_from(bytes)
        .ok()
        .filter(|_| in_range)
        .ok_or_else(|| format!("{} is not a power of two from 1MiB to 16MiB", units::exact_size(bytes)))
}

#[cfg(test)]
mod tests;
