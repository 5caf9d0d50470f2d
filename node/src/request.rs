//! `JobRequest`: what a job is asked to do, as plain data.
//!
//! For: everybody who has a job done: the command line, a daemon that relays for a client, a program that links this library.
//! In and out: `Default` and a builder in; read by what opens jobs; serde, so that it can be kept or sent; `RelayRequest`, the part of it that
//! another host may set, out and in again.
//! Invariants: no option of the command line and no terminal is known here; the unit of a number is in its name or its type; what `relayed`
//! does not list cannot be set from another host.
//! Absent on purpose: how people write these values (`args`), what they mean for a job (each field says who obeys it).

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use engine::platform::Clones;
use engine::tree::source::watched::Snapshot;
use proto::layout::Stripe;
use proto::manifest::Aspects;
use proto::negotiate::{Cipher, Driver, Pace};
use proto::rate::{ControllerKind, Policy};
use proto::storage::IoModes;
use proto::wire::control::{Compare, DigestKind, Durability};
use proto::wire::request::{CloneReads, RelayPath, RelayRequest, Transport};

pub mod ftp; // servers of FTP
pub mod path; // one network path between two hosts
pub mod ports; // a range of ports
pub mod device; // what queue pairs are of
pub mod pair_greeting; // how those of devices are greeted, and a daemon's door for them
mod names; // each value as the word that reports have for it

pub use device::RdmaDevice;
pub use ftp::FtpTerms;
pub use path::NetworkPath;
pub use ports::Ports;

/// Memory of one end when nobody says otherwise, in bytes: the promise of the design note, whatever the files' size and count.
pub const MEMORY_DEFAULT_BYTES: u64 = 256 << 20;
/// A job ends with an error after so long without progress, when nobody says otherwise.
pub const STALL_DEFAULT: Duration = Duration::from_secs(300);

/// The struct, its defaults and its builder, from one line for each field.
macro_rules! request {
    ($($(#[doc = $doc:literal])+ $(#[serde($($serde:tt)+)])? $name:ident: $type:ty = $default:expr;)+) => {
        /// What a job is asked to do: sources, a destination, and how.
        ///
        /// ```
        /// use node::request::JobRequest;
        /// let request = JobRequest::copy(["/data/run7"], "longhaul://TICKET@192.0.2.7:5740/").rate_bps(10_000_000_000_u64).build();
        /// assert_eq!(request.rate_bps, Some(10_000_000_000));
        /// assert_eq!(request.memory_bytes, 256 << 20);
        /// ```
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct JobRequest {
            $($(#[doc = $doc])+ $(#[serde($($serde)+)])? pub $name: $type,)+
        }

        impl Default for JobRequest {
            /// A copy from nowhere to nowhere, with what `longhaul cp` does without options.
            fn default() -> Self {
                JobRequest { $($name: $default,)+ }
            }
        }

        /// Makes a `JobRequest` step by step; each method sets the field of its name.
        #[derive(Debug, Clone, Default)]
        pub struct JobRequestBuilder {
            request: JobRequest,
        }

        impl JobRequestBuilder {
            $(
                $(#[doc = $doc])+
                #[must_use]
                pub fn $name(mut self, value: impl Into<$type>) -> Self {
                    self.request.$name = value.into();
                    self
                }
            )+

            /// The request.
            #[must_use]
            pub fn build(self) -> JobRequest {
                self.request
            }
        }
    };
}

request! {
    /// Where from, as addresses: paths of this host, `[user@]host:path`, `longhaul://[ticket@]host[:port]/path`; all on one host. The one source
    /// `-` is standard input.
    #[serde(with = "names::os_strings")]
    sources: Vec<OsString> = Vec::new();
    /// Where to, as an address; with `stripe`, the volumes of the destination. `-` is standard output.
    #[serde(with = "names::os_strings")]
    destinations: Vec<OsString> = Vec::new();
    /// The destination is a set of volumes, used so; `None`: it is one place.
    #[serde(with = "names::stripe")]
    stripe: Option<Stripe> = None;
    /// The sources are the volumes of one set, and what they hold is one tree.
    joined: bool = false;
    /// Lines in gitignore's syntax: the last line that matches an entry decides whether it is taken.
    rules: Vec<Box<str>> = Vec::new();
    /// Only these names below the one source folder are taken, each by itself; `None`: all are.
    #[serde(with = "names::listed")]
    names: Option<Vec<OsString>> = None;
    /// What is kept of entries beside their content, as far as both ends permit it.
    #[serde(with = "names::aspects")]
    aspects: Aspects = Aspects::ALL;
    /// Owners go by number, not by name.
    numeric_ids: bool = false;
    /// Which files that stand at the destination are compared by content; the others are sent whole if size or time differ.
    #[serde(with = "names::compare")]
    compare: Compare = Compare::Never;
    /// A file that stands at the destination with the same size and modification time is kept.
    keep: bool = true;
    /// Entries that the source does not have are removed at the destination, if they are no more than this; `None`: they stay.
    prune: Option<u64> = None;
    /// Nothing is changed: the outcome says what would be done.
    dry_run: bool = false;
    /// How durable an entry must be before it counts as done.
    #[serde(with = "names::durability")]
    durability: Durability = Durability::Published;
    /// Which digest stands for a file.
    #[serde(with = "names::digest")]
    digest: DigestKind = DigestKind::Blake3;
    /// The cipher for the payload; `None`: by the CPUs of both ends.
    #[serde(with = "names::cipher")]
    cipher: Option<Cipher> = None;
    /// Payload is authenticated and in clear; both ends must allow it.
    integrity_only: bool = false;
    /// Payload is in clear, without tags and without the source's digests; both ends must allow it. Excludes `Compare::Always`.
    bare: bool = false;
    /// Which transport carries the payload.
    #[serde(with = "names::transport")]
    transport: Transport = Transport::Auto;
    /// With `Transport::Rdma`: of which device; `None`: whichever leads to the peer. Emulated: a TCP connection stands for it, where the other end
    /// agrees, which shows how the rail works, not how fast a device is.
    rdma_device: Option<RdmaDevice> = None;
    /// With `Transport::Auto`: both ends look at their storage first (some 50 ms), and what is expected of the job is said and reported.
    forecast: bool = false;
    /// Datagrams: the share of the flow beside others on the path.
    #[serde(with = "names::policy")]
    policy: Policy = Policy::Fair;
    /// Datagrams: the congestion controller.
    #[serde(with = "names::controller")]
    controller: ControllerKind = ControllerKind::Delay;
    /// Never send faster than this, bit/s; `None`: no cap.
    rate_bps: Option<u64> = None;
    /// Datagrams: never send slower than this, bit/s; `None`: no bound.
    min_rate_bps: Option<u64> = None;
    /// Rails, 1 to 256; `None`: found by negotiation and measuring.
    streams: Option<u16> = None;
    /// Network paths to use, all at once; empty: the one that the other host's name leads to.
    paths: Vec<NetworkPath> = Vec::new();
    /// Memory that each end may use for the job, in bytes.
    memory_bytes: u64 = MEMORY_DEFAULT_BYTES;
    /// Chunk size in bytes, a power of two from 1 MiB to 16 MiB; `None`: 1 MiB.
    chunk_bytes: Option<u32> = None;
    /// The way to the kernel at this end; `None`: the best that is allowed.
    #[serde(with = "names::driver")]
    driver: Option<Driver> = None;
    /// The I/O modes for big files at this end.
    #[serde(with = "names::io_modes")]
    io_modes: IoModes = IoModes::default();
    /// Copies within this host: whether files share their blocks with the source.
    #[serde(with = "names::reflink")]
    reflink: Clones = Clones::WherePossible;
    /// Which source files are read from private clones.
    #[serde(with = "names::snapshot")]
    snapshot: Snapshot = Snapshot::Auto;
    /// Worker threads at this end, 1 to 1024; `None`: one for each core that the process may use.
    workers: Option<u16> = None;
    /// The job ends with an error after so long without progress.
    stall: Duration = STALL_DEFAULT;
    /// The command that reaches another host, split at blanks; `None`: `ssh`.
    ssh: Option<String> = None;
    /// The program on a host that ssh reaches; `None`: found there, or this one is copied there.
    remote_binary: Option<String> = None;
    /// The ports that the far side of a host that ssh reaches may listen on; `None`: any that is free.
    far_ports: Option<Ports> = None;
    /// Where the signed receipt is written; `None`: below the home.
    receipt: Option<PathBuf> = None;
    /// Where the trace of congestion control is written, in the format that the ending of its name says; `None`: none is kept.
    trace: Option<PathBuf> = None;
    /// Between two other hosts: the job goes on when this end is gone.
    unattended: bool = false;
    /// Each choice that was made is told with its reason.
    explain: bool = false;
    /// Of `ftp://` and `ftps://`: what is allowed.
    ftp: FtpTerms = FtpTerms::default();
}

impl JobRequest {
    /// Begins a request to copy `sources` to `destination`.
    pub fn copy<S: Into<OsString>>(
        sources: impl IntoIterator<Item = S>,
        destination: impl Into<OsString>,
    ) -> JobRequestBuilder {
        let sources: Vec<OsString> = sources.into_iter().map(Into::into).collect();
        JobRequestBuilder::default().sources(sources).destinations(vec![destination.into()])
    }

    /// All addresses, sources first.
    pub fn addresses(&self) -> impl Iterator<Item = &OsString> {
        self.sources.iter().chain(&self.destinations)
    }

    /// The part of this request that another host is given when it runs the job in this one's place. `again`: an earlier session of it was lost.
    #[must_use]
    #[expect(
        clippy::too_many_lines,
        reason = "field by field: whoever adds one decides here whether another host may set it"
    )]
    pub fn relayed(&self, again: bool) -> RelayRequest {
        let JobRequest {
            sources: _,       // the frame has them
            destinations: _,  // the frame has them, with another ticket
            names: _,         // `Frame::Pick`
            reflink: _,       // of copies within one host
            ssh: _,           // names a command
            remote_binary: _, // names a file
            far_ports: _,     // of a host that ssh reaches from here
            receipt: _,       // names a file
            trace: _,         // names a file
            forecast: _,      // said by whoever has a terminal
            ftp: _,           // an end of this host's
            rdma_device: _,   // of this host
            stripe,
            joined,
            rules,
            aspects,
            numeric_ids,
            compare,
            keep,
            prune,
            dry_run,
            durability,
            digest,
            cipher,
            integrity_only,
            bare,
            transport,
            policy,
            controller,
            rate_bps,
            min_rate_bps,
            streams,
            paths,
            memory_bytes,
            chunk_bytes,
            driver,
            io_modes,
            snapshot,
            workers,
            stall,
            unattended,
            explain,
        } = self;
        RelayRequest {
            again,
            unattended: *unattended,
            dry_run: *dry_run,
            explain: *explain,
            integrity_only: *integrity_only,
            bare: *bare,
            keep: *keep,
            joined: *joined,
            numeric_ids: *numeric_ids,
            aspects: *aspects,
            compare: *compare,
            prune: *prune,
            stripe: *stripe,
            durability: *durability,
            digest: *digest,
            cipher: *cipher,
            driver: *driver,
            io_modes: *io_modes,
            snapshot: clone_reads(*snapshot),
            transport: *transport,
            pace: Pace { controller: *controller, policy: *policy, min_bps: min_rate_bps.unwrap_or(0) },
            streams: streams.unwrap_or(0),
            workers: workers.unwrap_or(0),
            chunk_bytes: chunk_bytes.unwrap_or(0),
            memory_bytes: *memory_bytes,
            rate_bps: rate_bps.unwrap_or(0),
            stall_ns: u64::try_from(stall.as_nanos()).unwrap_or(u64::MAX),
            paths: paths.iter().map(|it| RelayPath { local: it.local, remote: it.remote, weight: it.weight }).collect(),
            rules: rules.clone(),
        }
    }

    /// The request of another host, with the defaults of this one for all that another host may not set.
    #[must_use]
    pub fn from_relay(relayed: &RelayRequest, sources: Vec<OsString>, destinations: Vec<OsString>) -> JobRequest {
        let some = |value: u64| Some(value).filter(|it| *it > 0);
        JobRequest {
            sources,
            destinations,
            stripe: relayed.stripe,
            joined: relayed.joined,
            rules: relayed.rules.clone(),
            aspects: relayed.aspects,
            numeric_ids: relayed.numeric_ids,
            compare: relayed.compare,
            keep: relayed.keep,
            prune: relayed.prune,
            dry_run: relayed.dry_run,
            durability: relayed.durability,
            digest: relayed.digest,
            cipher: relayed.cipher,
            integrity_only: relayed.integrity_only,
            bare: relayed.bare,
            transport: relayed.transport,
            policy: relayed.pace.policy,
            controller: relayed.pace.controller,
            rate_bps: some(relayed.rate_bps),
            min_rate_bps: some(relayed.pace.min_bps),
            streams: Some(relayed.streams).filter(|it| *it > 0),
            paths: relayed
                .paths
                .iter()
                .map(|it| NetworkPath { local: it.local, remote: it.remote, weight: it.weight })
                .collect(),
            memory_bytes: relayed.memory_bytes,
            chunk_bytes: Some(relayed.chunk_bytes).filter(|it| *it > 0),
            driver: relayed.driver,
            io_modes: relayed.io_modes,
            snapshot: match relayed.snapshot {
                CloneReads::Auto => Snapshot::Auto,
                CloneReads::Always => Snapshot::Always,
                CloneReads::Never => Snapshot::Never,
            },
            workers: Some(relayed.workers).filter(|it| *it > 0),
            stall: Duration::from_nanos(relayed.stall_ns),
            unattended: relayed.unattended,
            explain: relayed.explain,
            ..JobRequest::default()
        }
    }
}

fn clone_reads(snapshot: Snapshot) -> CloneReads {
    match snapshot {
        Snapshot::Auto => CloneReads::Auto,
        Snapshot::Always => CloneReads::Always,
        Snapshot::Never => CloneReads::Never,
    }
}

#[cfg(test)]
mod tests {
    use proto::storage::IoMode;

    use super::*;

    /// A request in which nothing is as it is by default.
    fn unusual() -> JobRequest {
        let path = |text: &str| text.parse::<NetworkPath>().expect("a path");
        JobRequest::copy(["-x", "y"], "longhaul://t@h/z")
            .stripe(Stripe::Chunk)
            .joined(true)
            .rules(vec!["*.tmp".into(), "!a b".into()])
            .aspects(Aspects::ALL.without(Aspects::DEVICES))
            .numeric_ids(true)
            .compare(Compare::Changed)
            .keep(false)
            .prune(9_u64)
            .dry_run(true)
            .durability(Durability::Flushed)
            .digest(DigestKind::Crc64)
            .cipher(Cipher::Aes256Gcm)
            .integrity_only(true)
            .bare(true)
            .transport(Transport::Udp)
            .policy(Policy::High)
            .controller(ControllerKind::Bbr)
            .rate_bps(123_456_789_u64)
            .min_rate_bps(5_000_000_u64)
            .streams(3_u16)
            .paths(vec![path("10.0.0.1=10.0.0.2@3"), path("2001:db8::1")])
            .memory_bytes(100_000_000_u64)
            .chunk_bytes(2_u32 << 20)
            .driver(Driver::Plain)
            .io_modes(IoModes { read: Some(IoMode::Mmap), write: Some(IoMode::Early) })
            .snapshot(Snapshot::Never)
            .workers(2_u16)
            .stall(Duration::from_millis(1500))
            .unattended(true)
            .explain(true)
            .build()
    }

    #[test]
    fn what_is_relayed_is_read_back_and_nothing_else_is_taken() {
        let mine = JobRequest {
            ssh: Some("rm".into()),
            remote_binary: Some("/tmp/x".into()),
            far_ports: Some("1-2".parse().expect("ports")),
            receipt: Some("/etc/passwd".into()),
            trace: Some("/etc/shadow.json".into()),
            reflink: Clones::Only,
            names: Some(vec!["a".into()]),
            ..unusual()
        };
        let relayed = mine.relayed(false);
        let theirs = JobRequest::from_relay(&relayed, mine.sources.clone(), mine.destinations.clone());
        assert_eq!(theirs, unusual(), "no command, no file and no folder of the other host is named");
        assert_ne!(relayed, RelayRequest::default());
        let plain = JobRequest::from_relay(&RelayRequest::default(), vec![], vec![]);
        assert_eq!(plain, JobRequest::default(), "the defaults of the frame are those of a request");
    }

    #[test]
    fn a_request_is_kept_as_text_and_read_again() {
        let names = Some(vec!["a\nb".into(), std::os::unix::ffi::OsStringExt::from_vec(b"\xff".to_vec())]);
        let mine = JobRequest { ssh: Some("ssh -p 2".into()), receipt: Some("r".into()), names, ..unusual() };
        let text = serde_json::to_string(&mine).expect("plain data");
        assert_eq!(serde_json::from_str::<JobRequest>(&text).expect("the same"), mine);
        assert_eq!(serde_json::from_str::<JobRequest>("{}").expect("all by default"), JobRequest::default());
        assert!(serde_json::from_str::<JobRequest>("{\"rate\":1}").is_err(), "a field that is not known");
        assert!(
            text.contains("\"durability\":\"flushed\"") && text.contains("\"paths\":[\"10.0.0.1=10.0.0.2@3\""),
            "{text}"
        );
    }
}
