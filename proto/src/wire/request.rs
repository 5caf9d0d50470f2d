//! What a client asks of a daemon that runs a copy in its place.
//!
//! For: the body of `Frame::Relay`: the part of a job request that another host may set.
//! In and out: a `RelayRequest` to bytes and back.
//! Invariants: this type is the whole list of what may be set from another host; no field names a file, a command or a folder on the host that
//! runs the job; each value has one encoding, and a value that the command line would refuse is a breach.
//! Absent on purpose: sources and destination (the frame has them), rights and consents of the daemon.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::chunk::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN};
use super::codec::{Reader, put, put_list, put_text};
use crate::error::Breach;
use crate::layout::Stripe;
use crate::manifest::Aspects;
use crate::negotiate::{Cipher, DigestKind, Driver, Pace};
use crate::storage::{IoMode, IoModes, Way};

/// Longest target address, rule or address text, in bytes.
pub const TEXT_BYTES_MAX: usize = 4096;
/// Most rules in an `Open` or a relayed request.
pub const RULES_MAX: usize = 1024;
/// Most bytes of these together: a machine that matches them all at once stays within some MiB.
pub const RULES_BYTES_MAX: usize = 16 << 10;
/// Most network paths that a relayed job may be given.
pub const RELAY_PATHS_MAX: usize = 256;
/// Most rails that a request may ask for.
pub const REQUEST_STREAMS_MAX: u16 = 256;
/// Most worker threads that a request may ask for.
pub const REQUEST_WORKERS_MAX: u16 = 1024;
/// The largest weight of a network path.
pub const PATH_WEIGHT_MAX: u32 = 1_000_000;
/// Bytes of the shortest path: family, remote IPv4 address, no local address, no weight.
const PATH_BYTES_MIN: usize = 1 + 4 + 1 + 4;

/// How durable a byte is. Order is the ladder: a later durability level includes the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Opened and checked in the receiver's memory.
    Received,
    /// Handed to the file system.
    Written,
    /// On stable storage (fdatasync of the file).
    Flushed,
    /// Under its final name, the folder flushed.
    Published,
}

/// Which files are compared by content instead of being sent whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compare {
    /// None: another size or time means that the file is sent.
    #[default]
    Never,
    /// Those whose size or time differs: only chunks that differ travel.
    Changed,
    /// All that stand there: equal size and time prove nothing.
    Always,
}

/// Which transport carries the payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Transport {
    /// TCP streams.
    #[default]
    Tcp = 0,
    /// UDP datagrams with this protocol's own rate control; TCP where datagrams do not get through.
    Udp = 1,
    /// The sender decides by a probe of the path, and changes its decision while the job runs.
    Auto = 2,
    /// Queue pairs of RDMA devices; TCP where one dies.
    Rdma = 3,
}

/// Which files the sender reads from a private clone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CloneReads {
    /// Large files that another process has open for writing, where the file system can clone.
    #[default]
    Auto = 0,
    /// All but small files; a file that cannot be cloned fails.
    Always = 1,
    /// No file.
    Never = 2,
}

/// One network path between the two ends of a job. Both addresses are of the same family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayPath {
    /// The sender's own address; `None`: the sender's system chooses.
    pub local: Option<IpAddr>,
    /// The receiver's address.
    pub remote: IpAddr,
    /// Its share beside the other paths, 1 to `PATH_WEIGHT_MAX`; `None`: by the speed of the NICs.
    pub weight: Option<u32>,
}

/// The part of a job request that another host may set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayRequest {
    /// The client lost an earlier session of this copy: what the daemon still does for that one ends first.
    pub again: bool,
    /// The job goes on when the client is gone.
    pub unattended: bool,
    /// Nothing is changed; the job only reports what it would do.
    pub dry_run: bool,
    /// The report has each choice with its reason.
    pub explain: bool,
    /// Payload is authenticated and in clear.
    pub integrity_only: bool,
    /// Payload is in clear, without tags and without the source's digests; excludes `Compare::Always`.
    pub bare: bool,
    /// A file with the same size and time at the destination is kept; without, `Compare::Always` is excluded.
    pub keep: bool,
    /// The sources are the volumes of one set.
    pub joined: bool,
    /// Owners go by number, not by name.
    pub numeric_ids: bool,
    /// What is kept of entries beside their content.
    pub aspects: Aspects,
    /// Which files at the destination are compared by content.
    pub compare: Compare,
    /// Entries that the source does not have are removed, if they are no more than this; `None`: they stay.
    pub prune: Option<u64>,
    /// The destination is a set of volumes, used so.
    pub stripe: Option<Stripe>,
    /// How durable an entry must be before it counts as done.
    pub durability: Durability,
    /// Which digest stands for a file.
    pub digest: DigestKind,
    /// The cipher wanted; `None`: by the CPUs of both ends.
    pub cipher: Option<Cipher>,
    /// The way to the kernel at the sender; `None`: the best that is allowed.
    pub driver: Option<Driver>,
    /// The I/O modes at both ends.
    pub io_modes: IoModes,
    /// Which files are read from clones.
    pub snapshot: CloneReads,
    /// Which transport carries the payload.
    pub transport: Transport,
    /// How datagrams are paced.
    pub pace: Pace,
    /// Rails wanted, at most `REQUEST_STREAMS_MAX`; 0: by negotiation.
    pub streams: u16,
    /// Worker threads at the sender, at most `REQUEST_WORKERS_MAX`; 0: by the machine.
    pub workers: u16,
    /// Chunk size in bytes, a power of two from 1 MiB to 16 MiB; 0: the default.
    pub chunk_bytes: u32,
    /// Memory that each end may use for the job, in bytes.
    pub memory_bytes: u64,
    /// Rate cap in bit/s; 0: none.
    pub rate_bps: u64,
    /// The job fails after so many nanoseconds without progress; not 0.
    pub stall_ns: u64,
    /// Network paths; empty: the one that the target's name leads to.
    pub paths: Vec<RelayPath>,
    /// Lines in gitignore's syntax, as in `Open`.
    pub rules: Vec<Box<str>>,
}

impl Default for RelayRequest {
    /// What `longhaul cp` asks for without options.
    fn default() -> Self {
        RelayRequest {
            again: false,
            unattended: false,
            dry_run: false,
            explain: false,
            integrity_only: false,
            bare: false,
            keep: true,
            joined: false,
            numeric_ids: false,
            aspects: Aspects::ALL,
            compare: Compare::Never,
            prune: None,
            stripe: None,
            durability: Durability::Published,
            digest: DigestKind::Blake3,
            cipher: None,
            driver: None,
            io_modes: IoModes::default(),
            snapshot: CloneReads::Auto,
            transport: Transport::Auto,
            pace: Pace::default(),
            streams: 0,
            workers: 0,
            chunk_bytes: 0,
            memory_bytes: 256 << 20,
            rate_bps: 0,
            stall_ns: 300_000_000_000,
            paths: Vec::new(),
            rules: Vec::new(),
        }
    }
}

/// An optional value in one byte: 0 is none.
fn some(value: Option<u8>) -> u8 {
    value.map_or(0, |value| value + 1)
}

/// What `some` wrote.
fn optional<T>(from: &mut Reader<'_>, value: impl Fn(u8) -> Result<T, Breach>) -> Result<Option<T>, Breach> {
    from.u8()?.checked_sub(1).map(value).transpose()
}

fn check<T: Default + PartialEq>(value: T, fits: impl FnOnce(&T) -> bool) -> Result<T, Breach> {
    if value == T::default() || fits(&value) { Ok(value) } else { Err(Breach::FieldOutOfRange) }
}

impl RelayRequest {
    /// Appends the encoded request.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let flags = self.flags();
        let flags: u16 = flags.iter().enumerate().map(|(bit, &is_set)| u16::from(is_set) << bit).sum();
        put!(out, flags, self.aspects.bits());
        out.push(self.compare as u8);
        out.push(u8::from(self.prune.is_some()));
        if let Some(most) = self.prune {
            put!(out, most);
        }
        out.extend_from_slice(&[
            some(self.stripe.map(|it| it as u8)),
            self.durability as u8,
            self.digest as u8,
            some(self.cipher.map(|it| it as u8)),
            some(self.driver.map(|it| it as u8)),
            some(self.io_modes.read.map(|it| it as u8)),
            some(self.io_modes.write.map(|it| it as u8)),
            self.snapshot as u8,
            self.transport as u8,
        ]);
        self.pace.encode(out);
        put!(out, self.streams, self.workers, self.chunk_bytes, self.memory_bytes, self.rate_bps, self.stall_ns);
        put_list(out, &self.paths, put_path);
        put_list(out, &self.rules, |out, rule| put_text(out, rule, TEXT_BYTES_MAX));
    }

    /// In the order of their bits.
    fn flags(&self) -> [bool; 9] {
        [
            self.again,
            self.unattended,
            self.dry_run,
            self.explain,
            self.integrity_only,
            self.bare,
            self.keep,
            self.joined,
            self.numeric_ids,
        ]
    }

    /// Reads one request.
    ///
    /// # Errors
    /// A value that no client of this version sends.
    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<RelayRequest, Breach> {
        let flags = from.u16()?;
        if flags >> 9 != 0 {
            return Err(Breach::FieldOutOfRange);
        }
        let [again, unattended, dry_run, explain, integrity_only, bare, keep, joined, numeric_ids] =
            core::array::from_fn(|bit| flags >> bit & 1 == 1);
        let request = RelayRequest {
            again,
            unattended,
            dry_run,
            explain,
            integrity_only,
            bare,
            keep,
            joined,
            numeric_ids,
            aspects: Aspects::from_bits(from.u16()?).ok_or(Breach::FieldOutOfRange)?,
            compare: Compare::from_byte(from.u8()?)?,
            prune: if from.flag()? { Some(from.u64()?) } else { None },
            stripe: optional(from, |byte| Stripe::from_byte(byte).ok_or(Breach::FieldOutOfRange))?,
            durability: Durability::from_byte(from.u8()?)?,
            digest: DigestKind::from_byte(from.u8()?)?,
            cipher: optional(from, Cipher::from_byte)?,
            driver: optional(from, Driver::from_byte)?,
            io_modes: IoModes { read: io_mode(from, Way::Read)?, write: io_mode(from, Way::Write)? },
            snapshot: match from.u8()? {
                0 => CloneReads::Auto,
                1 => CloneReads::Always,
                2 => CloneReads::Never,
                _ => return Err(Breach::FieldOutOfRange),
            },
            transport: match from.u8()? {
                0 => Transport::Tcp,
                1 => Transport::Udp,
                2 => Transport::Auto,
                3 => Transport::Rdma,
                _ => return Err(Breach::FieldOutOfRange),
            },
            pace: Pace::decode(from)?,
            streams: check(from.u16()?, |it| *it <= REQUEST_STREAMS_MAX)?,
            workers: check(from.u16()?, |it| *it <= REQUEST_WORKERS_MAX)?,
            chunk_bytes: check(from.u32()?, |it| {
                it.is_power_of_two() && (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(it)
            })?,
            memory_bytes: from.u64()?,
            rate_bps: from.u64()?,
            stall_ns: from.u64()?,
            paths: from.list(RELAY_PATHS_MAX, PATH_BYTES_MIN, path)?,
            rules: rules(from)?,
        };
        let excluded = request.compare == Compare::Always && (request.bare || !request.keep);
        let is_empty = request.stall_ns == 0 || request.memory_bytes == 0;
        if excluded || is_empty { Err(Breach::FieldOutOfRange) } else { Ok(request) }
    }
}

fn io_mode(from: &mut Reader<'_>, way: Way) -> Result<Option<IoMode>, Breach> {
    optional(from, |byte| IoMode::by_number(byte).filter(|it| it.can(way)).ok_or(Breach::FieldOutOfRange))
}

fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(it) => out.extend_from_slice(&it.octets()),
        IpAddr::V6(it) => out.extend_from_slice(&it.octets()),
    }
}

/// Family, remote address, local address if the flag is 1, weight (0: none).
fn put_path(out: &mut Vec<u8>, path: &RelayPath) {
    out.push(if path.remote.is_ipv4() { 4 } else { 6 });
    put_address(out, path.remote);
    out.push(u8::from(path.local.is_some()));
    if let Some(local) = path.local {
        put_address(out, local);
    }
    put!(out, path.weight.unwrap_or(0));
}

fn path(from: &mut Reader<'_>) -> Result<RelayPath, Breach> {
    let family = from.u8()?;
    let address = |from: &mut Reader<'_>| match family {
        4 => Ok(IpAddr::from(from.array::<4>()?)),
        6 => Ok(IpAddr::from(from.array::<16>()?)),
        _ => Err(Breach::FieldOutOfRange),
    };
    let remote = address(from)?;
    let local = if from.flag()? { Some(address(from)?) } else { None };
    let weight = check(from.u32()?, |it| *it <= PATH_WEIGHT_MAX)?;
    Ok(RelayPath { local, remote, weight: Some(weight).filter(|it| *it > 0) })
}

/// Lines in gitignore's syntax.
pub(crate) fn rules(from: &mut Reader<'_>) -> Result<Vec<Box<str>>, Breach> {
    let rules = from.list(RULES_MAX, 2, |from| Ok(from.text(TEXT_BYTES_MAX)?.into_boxed_str()))?;
    let bytes: usize = rules.iter().map(|rule| rule.len()).sum();
    if bytes > RULES_BYTES_MAX { Err(Breach::FieldTooLong) } else { Ok(rules) }
}
