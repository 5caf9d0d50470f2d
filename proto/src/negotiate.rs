//! Negotiation: two offers in, one plan out, each choice with its reason.
//!
//! For: both ends agree on streams, chunk size, cipher, digest before data moves.
//! In and out: `Offer` of the initiator, `Offer` of the acceptor → `Plan` and `Vec<Choice>`; pure, so both ends compute the same.
//! Invariants: the plan never exceeds a cap of either end; no common cipher or a refused downgrade is an error, never a weaker plan.
//! Absent on purpose: measuring (the worker's counters say later whether more rails pay).

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::error::{Breach, Refusal};
use crate::rate::{ControllerKind, Policy};
use crate::wire::chunk::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN};
use crate::wire::codec::{Reader, put, put_list, put_text};

/// How payload is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cipher {
    /// AES-128-GCM.
    Aes128Gcm,
    /// AES-256-GCM.
    Aes256Gcm,
    /// ChaCha20-Poly1305, where the CPU has no AES.
    ChaCha20Poly1305,
}

/// Which digest stands for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DigestKind {
    /// What `b3sum` prints.
    Blake3,
    /// CRC-64/NVME; found by accident, not by an attacker.
    Crc64,
}

/// How an end talks to its kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// io_uring.
    Uring,
    /// Plain system calls and helper threads.
    Plain,
}

/// How datagram rails are paced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// What finds the rate.
    pub controller: ControllerKind,
    /// The claim against others on the path.
    pub policy: Policy,
    /// Never slower than this, bit/s over all rails; 0: none.
    pub min_bps: u64,
}

impl Default for Pace {
    /// An equal share, found by delay.
    fn default() -> Self {
        Pace { controller: ControllerKind::Delay, policy: Policy::Fair, min_bps: 0 }
    }
}

/// What one end has and allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Same on both ends: they share cores. Linux boot id, as text.
    pub boot_id: String,
    /// Cores this process may use (affinity and cgroup quota).
    pub cores: u16,
    /// Load average of the last minute × 100.
    pub load_percent: u32,
    /// Bytes of pool this end grants the job.
    pub memory_bytes: u64,
    /// `address mtu speed_mbit` of each interface that is up, for `--explain`; at most 32.
    pub interfaces: Vec<Interface>,
    /// Ways to the kernel, best first.
    pub drivers: Vec<Driver>,
    /// Ciphers, best first for this CPU.
    pub ciphers: Vec<Cipher>,
    /// Digests allowed, wanted first.
    pub digests: Vec<DigestKind>,
    /// This end asks for (initiator) or allows (acceptor) payload authenticated but in clear.
    pub integrity_only: bool,
    /// This end asks for (initiator) or allows (acceptor) payload in clear that nobody looks at where it is sent: neither tags nor digests.
    pub bare: bool,
    /// Streams wanted (`--streams`); 0: measure.
    pub streams: u16,
    /// At most so many rails.
    pub streams_max: u16,
    /// Chunk size wanted, 0: default. An acceptor's is the size of its bufs: no chunk is larger.
    pub chunk_bytes: u32,
    /// Rate cap, bit/s; 0: none.
    pub rate_bps: u64,
    /// Free bytes at the destination, if this end receives and knows; 0: unknown.
    pub free_bytes: u64,
    /// What this end's file system gave or took in an earlier race, bit/s; 0: unknown, or the bytes are in memory.
    pub disk_bps: u64,
    /// Bytes of bufs for this job: a daemon's pool, dealt out among the jobs that it serves; 0: unknown.
    pub bufs_bytes: u64,
    /// Initiator: the acceptor is to look at its storage before it answers, for a forecast; costs some tens of milliseconds.
    pub look: bool,
    /// What this end's storage did when it was looked at for this job.
    pub storage: StorageLook,
    /// Datagram rails wanted instead of streams (initiator), taken at most (acceptor); 0: none.
    pub datagrams: u16,
    /// How these are paced, whoever sends: the initiator's word.
    pub pace: Pace,
    /// Queue pairs that this end wants (initiator) or takes (acceptor).
    pub rdma: RdmaOffer,
}

/// What carries a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RdmaKind {
    /// RDMA devices at both ends.
    Device,
    /// A TCP connection that stands for one, asked for at both ends.
    Emulated,
}

impl RdmaKind {
    /// As options and reports write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            RdmaKind::Device => "rdma",
            RdmaKind::Emulated => "rdma (emulated)",
        }
    }
}

/// Queue pairs that an end can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RdmaOffer {
    /// It has a device that it may use.
    pub device: bool,
    /// Its user asked for the emulation.
    pub emulated: bool,
}

impl RdmaOffer {
    /// Both have it: a device before the emulation.
    #[must_use]
    pub const fn both(self, other: RdmaOffer) -> Option<RdmaKind> {
        if self.device && other.device {
            Some(RdmaKind::Device)
        } else if self.emulated && other.emulated {
            Some(RdmaKind::Emulated)
        } else {
            None
        }
    }
}

/// What a look at an end's storage showed, before the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StorageLook {
    /// bit/s that it gave or took; 0: not looked at, or that showed nothing; `STORAGE_BPS_MAX`: the bytes are in memory already.
    pub bps: u64,
    /// Nanoseconds that making (or opening and reading) one small file took; 0: not known.
    pub file_ns: u32,
}

/// Bytes that are in memory already bound nothing.
pub const STORAGE_BPS_MAX: u64 = DISK_BPS_MAX;

/// One address of one end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Name, as the kernel has it.
    pub name: String,
    /// Address, as text.
    pub address: String,
    /// Bytes.
    pub mtu: u32,
    /// Mbit/s, 0 unknown.
    pub speed_mbit: u32,
}

/// What an end may have more or less of while data flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resources {
    /// Cores that it may use now; not 0.
    pub cores: u16,
    /// Load average of the last minute × 100, for people.
    pub load_percent: u32,
}

/// What an interface of an end counted since the job began, of all traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicCount {
    /// Name, as the kernel has it.
    pub name: String,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
}

impl NicCount {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_text(out, &self.name, WORD_BYTES_MAX);
        put!(out, self.sent_bytes, self.received_bytes);
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<NicCount, Breach> {
        Ok(NicCount { name: from.text(WORD_BYTES_MAX)?, sent_bytes: from.u64()?, received_bytes: from.u64()? })
    }
}

/// How an end's user wants a running job moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestedSettings {
    /// This end's own cap from now on, in place of its offer's, bit/s; 0: none.
    pub rate_bps: u64,
    /// The claim against others on the path; the last word of either end counts.
    pub policy: Policy,
    /// Never slower than this, bit/s over all datagram rails; 0: none. The last word of either end counts.
    pub min_bps: u64,
}

/// What both ends do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Rails at the start.
    pub streams: u16,
    /// Rails at most; between the two, measuring decides.
    pub streams_max: u16,
    /// Bytes per chunk, a power of two from 1 MiB to 16 MiB.
    pub chunk_bytes: u32,
    /// How payload is sealed.
    pub cipher: Cipher,
    /// Payload in clear, authenticated. Only if both ends said so.
    pub integrity_only: bool,
    /// Payload in clear, and nothing vouches for it. Only if both ends said so; then `integrity_only` is set, too.
    pub bare: bool,
    /// Which digest.
    pub digest: DigestKind,
    /// Workers at the initiator and at the acceptor.
    pub workers: (u16, u16),
    /// Pool bytes at the initiator and at the acceptor.
    pub memory: (u64, u64),
    /// bit/s, 0 none: the smaller of both caps.
    pub rate_bps: u64,
    /// Datagram rails at the start; 0: streams. Where datagrams do not get through, `streams` of TCP take their place.
    pub datagrams: u16,
    /// How datagram rails are paced.
    pub pace: Pace,
    /// The rails counted in `streams` are queue pairs as long as these live, and TCP then.
    pub rdma: Option<RdmaKind>,
}

/// One line of `--explain`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// What was chosen: `streams`, `chunk`, `cipher` …
    pub what: &'static str,
    /// The value, as the user reads it.
    pub value: String,
    /// The reason of the choice, in words.
    pub reason: String,
}

/// More workers than this per job have not been measured to pay; a job of one client must also leave room for others.
pub const WORKERS_MAX: u16 = 16;
/// Bufs a stream needs to run freely: one read, one sealed, one on the wire, one in reserve.
const BUFS_PER_STREAM: u64 = 4;
/// And with less than this it does not run at all: one that comes or goes, one that is read or written.
const BUFS_PER_STREAM_LEAST: u64 = 2;
/// One stream carries at least this, sealed and hashed, on a slow core: 16 cycles a byte without vector instructions, at 2 GHz.
const STREAM_BPS_LEAST: u64 = 1_000_000_000;
/// A rate that was remembered may be this many times too low before it costs anything: a cache takes more, a disk was busy when it was raced.
const DISK_MARGIN: u64 = 4;
/// No disk does so much, bit/s: what a peer says is bounded.
const DISK_BPS_MAX: u64 = 1_000_000_000_000_000;
/// No pool holds so much, bytes.
const BUFS_BYTES_MAX: u64 = 1 << 50;
/// Chunk size where nobody asks: digest boundaries stay the same from run to run, so that any part can be resumed.
const CHUNK_BYTES_DEFAULT: u32 = CHUNK_BYTES_MIN;

/// The highest version that both speak.
///
/// # Errors
/// `VersionTooOld` if there is none.
pub fn agree_version(ours: (u16, u16), theirs: (u16, u16)) -> Result<u16, Refusal> {
    let version = ours.1.min(theirs.1);
    if version >= ours.0.max(theirs.0) { Ok(version) } else { Err(Refusal::VersionTooOld) }
}

/// Two offers in, one plan out. Pure: the acceptor computes it and sends it, the initiator computes it too and compares.
///
/// # Errors
/// No cipher or digest in common, or payload in clear asked for and not allowed: never a weaker plan instead.
pub fn negotiate(initiator: &Offer, acceptor: &Offer, initiator_sends: bool) -> Result<(Plan, Vec<Choice>), Refusal> {
    let mut choices = Vec::new();
    let cipher = choose_cipher(initiator, acceptor, &mut choices)?;
    let integrity_only = choose_clear(initiator, acceptor, &mut choices)?;
    let digest = choose_digest(initiator, acceptor, &mut choices)?;
    let workers = choose_workers(initiator, acceptor, initiator_sends, &mut choices);
    let chunk_bytes = choose_chunk(initiator, acceptor, &mut choices);
    let (streams, streams_max) = choose_streams(initiator, acceptor, workers, chunk_bytes, &mut choices);
    let memory = (initiator.memory_bytes, acceptor.memory_bytes);
    choices.push(Choice {
        what: "memory",
        value: format!("{} here, {} there", mib(memory.0), mib(memory.1)),
        reason: "what each end granted for its pool of bufs, seen from the initiator".into(),
    });
    let rate_bps = choose_rate(initiator, acceptor, &mut choices);
    let rdma = initiator.rdma.both(acceptor.rdma);
    let datagrams = match rdma {
        Some(kind) => choose_rdma(kind, &mut choices),
        None => choose_transport(initiator, acceptor, streams_max, &mut choices),
    };
    let pace = choose_pace(initiator, rate_bps, datagrams, &mut choices);
    let plan = Plan {
        streams,
        streams_max,
        chunk_bytes,
        cipher,
        integrity_only,
        bare: initiator.bare,
        digest,
        workers,
        memory,
        rate_bps,
        datagrams,
        pace,
        rdma,
    };
    Ok((plan, choices))
}

/// The plan for ends whose cores are others than when the first plan was made: what of it can change while data flows (workers, streams), and why
/// there are so many streams. Pure, as `negotiate`. More workers than there were at first there cannot be; all else stays, since bytes on disk
/// and on the wire depend on it.
#[must_use]
pub fn replan(first: &Plan, initiator: &Offer, acceptor: &Offer, initiator_sends: bool) -> (Plan, String) {
    let within = |offer: &Offer, workers: u16| Offer { cores: offer.cores.min(workers), ..offer.clone() };
    let (initiator, acceptor) = (within(initiator, first.workers.0), within(acceptor, first.workers.1));
    let mut choices = Vec::new();
    let workers = choose_workers(&initiator, &acceptor, initiator_sends, &mut choices);
    let (streams, _) = choose_streams(&initiator, &acceptor, workers, first.chunk_bytes, &mut choices);
    let why = choices.into_iter().find(|choice| choice.what == "streams").map(|choice| choice.reason);
    (Plan { workers, streams: streams.min(first.streams_max), ..first.clone() }, why.unwrap_or_default())
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn choose_cipher(i: &Offer, a: &Offer, choices: &mut Vec<Choice>) -> Result<Cipher, Refusal> {
    let both = |cipher: &&Cipher| a.ciphers.contains(cipher);
    let fast_aes = |offer: &Offer| offer.ciphers.first().is_some_and(|cipher| cipher.is_aes());
    let (wanted_aes, reason) = if fast_aes(i) && fast_aes(a) {
        (true, "both CPUs have AES instructions; first of the initiator's list that both have")
    } else {
        (false, "one CPU has no AES instructions, and ChaCha20 is faster there")
    };
    let best = i.ciphers.iter().filter(both).find(|cipher| cipher.is_aes() == wanted_aes);
    let (cipher, reason) = match best {
        Some(cipher) => (*cipher, reason),
        None => match i.ciphers.iter().find(both) {
            Some(cipher) => (*cipher, "the first of the initiator's list that both have"),
            None => return Err(Refusal::NoCommonCipher),
        },
    };
    choices.push(Choice { what: "cipher", value: cipher.name().into(), reason: reason.into() });
    Ok(cipher)
}

fn choose_clear(i: &Offer, a: &Offer, choices: &mut Vec<Choice>) -> Result<bool, Refusal> {
    if i.bare {
        if !(i.integrity_only && a.integrity_only && a.bare) {
            return Err(Refusal::IntegrityOnlyRefused);
        }
        let reason = "the initiator asked for it and the acceptor allows it: the digests are of what arrived";
        let value = "payload in clear, without tags, unread by the sender".into();
        choices.push(Choice { what: "protection", value, reason: reason.into() });
        return Ok(true);
    }
    let (value, reason) = match (i.integrity_only, a.integrity_only) {
        (true, false) => return Err(Refusal::IntegrityOnlyRefused),
        (true, true) => ("payload in clear, authenticated", "the initiator asked for it and the acceptor allows it"),
        (false, true) => ("payload sealed", "the default; the acceptor would allow clear payload, nobody asked"),
        (false, false) => ("payload sealed", "the default"),
    };
    choices.push(Choice { what: "protection", value: value.into(), reason: reason.into() });
    Ok(i.integrity_only)
}

fn choose_digest(i: &Offer, a: &Offer, choices: &mut Vec<Choice>) -> Result<DigestKind, Refusal> {
    let position = i.digests.iter().position(|digest| a.digests.contains(digest)).ok_or(Refusal::NoCommonDigest)?;
    let digest = i.digests[position];
    let reason = if position == 0 {
        "the initiator wants it and the acceptor allows it"
    } else {
        "the first of the initiator's list that the acceptor allows"
    };
    choices.push(Choice { what: "digest", value: digest.name().into(), reason: reason.into() });
    Ok(digest)
}

/// Do both ends run on the same kernel, so that a core given to one is taken from the other?
#[must_use]
pub fn share_cores(one: &Offer, other: &Offer) -> bool {
    !one.boot_id.is_empty() && one.boot_id == other.boot_id
}

fn choose_workers(i: &Offer, a: &Offer, initiator_sends: bool, choices: &mut Vec<Choice>) -> (u16, u16) {
    // Shared cores are not halved: while one worker waits for the other end, another has work (measured on 2 shared cores, tmpfs to
    // tmpfs, sealed: 1 + 1 workers 6.4-7.3 Gb/s, 2 + 2 workers 8.1-9.5 Gb/s).
    let reason = if share_cores(i, a) {
        "one per core at each end, although both ends share the cores of one host: one works while the other waits"
    } else {
        "one per core that each end may use, at most 16"
    };
    let workers = (i.cores.clamp(1, WORKERS_MAX), a.cores.clamp(1, WORKERS_MAX));
    let (sender, receiver) = if initiator_sends { workers } else { (workers.1, workers.0) };
    choices.push(Choice {
        what: "workers",
        value: format!("{sender} at the sender, {receiver} at the receiver"),
        reason: reason.into(),
    });
    workers
}

fn choose_chunk(i: &Offer, a: &Offer, choices: &mut Vec<Choice>) -> u32 {
    let (mut bytes, mut reason) = if i.chunk_bytes == 0 {
        (
            CHUNK_BYTES_DEFAULT,
            String::from("digest boundaries stay the same from run to run, so that a part can be resumed"),
        )
    } else {
        let wish = i.chunk_bytes.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX).next_power_of_two();
        (wish, format!("the user asked for {} bytes; a power of two from 1 to 16 MiB", i.chunk_bytes))
    };
    if a.chunk_bytes != 0 && bytes > a.chunk_bytes {
        bytes = a.chunk_bytes.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX).next_power_of_two();
        reason = String::from("the acceptor's bufs are no larger");
    }
    let memory = i.memory_bytes.min(a.memory_bytes);
    while bytes > CHUNK_BYTES_MIN && memory / u64::from(bytes) < BUFS_PER_STREAM {
        bytes /= 2;
        reason = format!("{} of memory hold no more than this four times", mib(memory));
    }
    choices.push(Choice { what: "chunk", value: mib(u64::from(bytes)), reason });
    bytes
}

fn choose_streams(
    i: &Offer,
    a: &Offer,
    workers: (u16, u16),
    chunk_bytes: u32,
    choices: &mut Vec<Choice>,
) -> (u16, u16) {
    let memory = i.memory_bytes.min(a.memory_bytes);
    let by_memory = memory / (BUFS_PER_STREAM * u64::from(chunk_bytes));
    let by_memory = u16::try_from(by_memory).unwrap_or(u16::MAX);
    let bufs = [i.bufs_bytes, a.bufs_bytes].into_iter().filter(|bytes| *bytes > 0).min();
    let by_bufs = bufs.map_or(u64::MAX, |bytes| bytes / (BUFS_PER_STREAM_LEAST * u64::from(chunk_bytes)));
    let by_bufs = u16::try_from(by_bufs).unwrap_or(u16::MAX);
    let by_caps = i.streams_max.min(a.streams_max);
    let most = by_caps.min(by_memory).min(by_bufs).max(1);
    let wish = if i.streams != 0 { i.streams } else { a.streams };
    let (start, reason) = if wish != 0 {
        let reason = if wish > most { "as many of those asked for as the caps allow" } else { "asked for" };
        (wish, String::from(reason))
    } else {
        let by_workers = workers.0.min(workers.1);
        match slower_disk(i, a) {
            Some(bps) if streams_for(bps) < by_workers => {
                let reason = format!("four times what the slower disk did in its race ({} Mbit/s)", bps / 1_000_000);
                (streams_for(bps), reason + "; measuring may raise it while data flows")
            }
            _ => {
                (by_workers, String::from("one per worker of the smaller end; measuring may raise it while data flows"))
            }
        }
    };
    let start = start.clamp(1, most);
    choices.push(Choice { what: "streams", value: format!("{start}"), reason });
    let reason = if by_bufs < by_caps.min(by_memory) {
        format!("two bufs per stream fit into the {} that an end has for this job", mib(bufs.unwrap_or(0)))
    } else if by_memory < by_caps {
        format!("four bufs per stream fit into {}", mib(memory))
    } else {
        String::from("the smaller cap of both ends")
    };
    choices.push(Choice { what: "streams at most", value: format!("{most}"), reason });
    (start, most)
}

/// What the slower of the disks that are known does, bit/s.
#[must_use]
pub fn slower_disk(one: &Offer, other: &Offer) -> Option<u64> {
    [one.disk_bps, other.disk_bps].into_iter().filter(|bps| *bps > 0).min()
}

/// Streams that carry such a rate several times over, each on a slow core.
fn streams_for(bps: u64) -> u16 {
    let streams = bps.saturating_mul(DISK_MARGIN).div_ceil(STREAM_BPS_LEAST);
    u16::try_from(streams).unwrap_or(u16::MAX).max(1)
}

fn choose_rate(i: &Offer, a: &Offer, choices: &mut Vec<Choice>) -> u64 {
    let (rate, reason) = match (i.rate_bps, a.rate_bps) {
        (0, 0) => (0, "no end asked for a cap"),
        (rate, 0) => (rate, "the initiator's cap"),
        (0, rate) => (rate, "the acceptor's cap"),
        (one, other) => (one.min(other), "the smaller cap of both ends"),
    };
    let value = if rate == 0 { String::from("as fast as it goes") } else { format!("{rate} bit/s") };
    choices.push(Choice { what: "rate", value, reason: reason.into() });
    rate
}

/// No datagrams beside queue pairs.
fn choose_rdma(kind: RdmaKind, choices: &mut Vec<Choice>) -> u16 {
    let reason = match kind {
        RdmaKind::Device => "both ends have an RDMA device; TCP where a queue pair dies",
        RdmaKind::Emulated => {
            "both ends were asked to emulate a device over TCP; it shows how the rail works, not how fast a device is"
        }
    };
    choices.push(Choice { what: "transport", value: kind.name().into(), reason: reason.into() });
    0
}

fn choose_transport(i: &Offer, a: &Offer, streams_max: u16, choices: &mut Vec<Choice>) -> u16 {
    let i = Offer { datagrams: if i.bare { 0 } else { i.datagrams }, ..i.clone() };
    let rails = i.datagrams.min(a.datagrams).min(streams_max);
    let (value, reason) = match (i.datagrams, a.datagrams) {
        (0, _) => (String::from("tcp"), "the initiator did not ask for datagrams"),
        (_, 0) => (String::from("tcp"), "the initiator asked for datagrams, the acceptor takes none"),
        _ => (
            format!("udp, {rails} rail{}", if rails == 1 { "" } else { "s" }),
            "the initiator asked for datagrams; TCP where they do not get through",
        ),
    };
    choices.push(Choice { what: "transport", value, reason: reason.into() });
    rails
}

fn choose_pace(i: &Offer, rate_bps: u64, datagrams: u16, choices: &mut Vec<Choice>) -> Pace {
    let most = if rate_bps == 0 { u64::MAX } else { rate_bps };
    let pace = Pace { min_bps: i.pace.min_bps.min(most), ..i.pace };
    if datagrams > 0 {
        let least = if pace.min_bps == 0 { String::new() } else { format!(", never below {} bit/s", pace.min_bps) };
        let reason = match pace.policy {
            Policy::Fixed => "the rate is the user's word, whatever the path says",
            Policy::High => "about twice the share of another flow",
            Policy::Fair => "an equal share with others on the path",
            Policy::Low => "what others on the path leave",
        };
        let value = format!("{} controller, {}{least}", pace.controller.name(), pace.policy.name());
        choices.push(Choice { what: "pace", value, reason: reason.into() });
    }
    pace
}

impl ControllerKind {
    /// As options and reports write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ControllerKind::Delay => "delay",
            ControllerKind::Bbr => "bbr",
            ControllerKind::Cubic => "cubic",
            ControllerKind::Fixed => "fixed",
        }
    }

    fn from_byte(byte: u8) -> Result<ControllerKind, Breach> {
        Ok(match byte {
            0 => ControllerKind::Delay,
            1 => ControllerKind::Bbr,
            2 => ControllerKind::Cubic,
            3 => ControllerKind::Fixed,
            _ => return Err(Breach::FieldOutOfRange),
        })
    }
}

impl Policy {
    /// As options and reports write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Fixed => "fixed",
            Policy::High => "high",
            Policy::Fair => "fair",
            Policy::Low => "low",
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Result<Policy, Breach> {
        Ok(match byte {
            0 => Policy::Fixed,
            1 => Policy::High,
            2 => Policy::Fair,
            3 => Policy::Low,
            _ => return Err(Breach::FieldOutOfRange),
        })
    }
}

impl Pace {
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.controller as u8, self.policy as u8]);
        put!(out, self.min_bps);
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Pace, Breach> {
        Ok(Pace {
            controller: ControllerKind::from_byte(from.u8()?)?,
            policy: Policy::from_byte(from.u8()?)?,
            min_bps: from.u64()?,
        })
    }
}

impl Cipher {
    /// As reports and `--explain` write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Cipher::Aes128Gcm => "AES-128-GCM",
            Cipher::Aes256Gcm => "AES-256-GCM",
            Cipher::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        }
    }

    /// Is it one of the AES ciphers?
    #[must_use]
    pub const fn is_aes(self) -> bool {
        !matches!(self, Cipher::ChaCha20Poly1305)
    }

    /// Bytes of its key.
    #[must_use]
    pub const fn key_bytes(self) -> usize {
        match self {
            Cipher::Aes128Gcm => 16,
            Cipher::Aes256Gcm | Cipher::ChaCha20Poly1305 => 32,
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Result<Cipher, Breach> {
        Ok(match byte {
            0 => Cipher::Aes128Gcm,
            1 => Cipher::Aes256Gcm,
            2 => Cipher::ChaCha20Poly1305,
            _ => return Err(Breach::FieldOutOfRange),
        })
    }
}

impl Driver {
    /// As reports and `--explain` write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Driver::Uring => "io_uring",
            Driver::Plain => "plain system calls",
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Result<Driver, Breach> {
        match byte {
            0 => Ok(Driver::Uring),
            1 => Ok(Driver::Plain),
            _ => Err(Breach::FieldOutOfRange),
        }
    }
}

/// Longest boot id, interface name or address, in bytes.
const WORD_BYTES_MAX: usize = 256;
/// Most interfaces in an offer.
pub const INTERFACES_MAX: usize = 32;
/// Most drivers, ciphers or digests in an offer: more than there are.
const KINDS_MAX: usize = 16;

fn at_most(value: u64, most: u64) -> Result<u64, Breach> {
    if value <= most { Ok(value) } else { Err(Breach::FieldOutOfRange) }
}

impl Offer {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_text(out, &self.boot_id, WORD_BYTES_MAX);
        put!(out, self.cores, self.load_percent, self.memory_bytes);
        put_list(out, &self.interfaces[..self.interfaces.len().min(INTERFACES_MAX)], |out, interface| {
            put_text(out, &interface.name, WORD_BYTES_MAX);
            put_text(out, &interface.address, WORD_BYTES_MAX);
            put!(out, interface.mtu, interface.speed_mbit);
        });
        put_list(out, &self.drivers, |out, driver| out.push(*driver as u8));
        put_list(out, &self.ciphers, |out, cipher| out.push(*cipher as u8));
        put_list(out, &self.digests, |out, digest| out.push(*digest as u8));
        out.extend_from_slice(&[u8::from(self.integrity_only), u8::from(self.bare)]);
        put!(out, self.streams, self.streams_max, self.chunk_bytes, self.rate_bps, self.free_bytes);
        put!(out, self.disk_bps.min(DISK_BPS_MAX), self.bufs_bytes.min(BUFS_BYTES_MAX));
        out.push(u8::from(self.look));
        put!(out, self.storage.bps.min(STORAGE_BPS_MAX), self.storage.file_ns, self.datagrams);
        self.pace.encode(out);
        out.extend_from_slice(&[u8::from(self.rdma.device), u8::from(self.rdma.emulated)]);
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Offer, Breach> {
        Ok(Offer {
            boot_id: from.text(WORD_BYTES_MAX)?,
            cores: from.u16()?,
            load_percent: from.u32()?,
            memory_bytes: from.u64()?,
            interfaces: from.list(INTERFACES_MAX, 12, |from| {
                Ok(Interface {
                    name: from.text(WORD_BYTES_MAX)?,
                    address: from.text(WORD_BYTES_MAX)?,
                    mtu: from.u32()?,
                    speed_mbit: from.u32()?,
                })
            })?,
            drivers: from.list(KINDS_MAX, 1, |from| Driver::from_byte(from.u8()?))?,
            ciphers: from.list(KINDS_MAX, 1, |from| Cipher::from_byte(from.u8()?))?,
            digests: from.list(KINDS_MAX, 1, |from| DigestKind::from_byte(from.u8()?))?,
            integrity_only: from.flag()?,
            bare: from.flag()?,
            streams: from.u16()?,
            streams_max: from.u16()?,
            chunk_bytes: from.u32()?,
            rate_bps: from.u64()?,
            free_bytes: from.u64()?,
            disk_bps: at_most(from.u64()?, DISK_BPS_MAX)?,
            bufs_bytes: at_most(from.u64()?, BUFS_BYTES_MAX)?,
            look: from.flag()?,
            storage: StorageLook { bps: at_most(from.u64()?, STORAGE_BPS_MAX)?, file_ns: from.u32()? },
            datagrams: from.u16()?,
            pace: Pace::decode(from)?,
            rdma: RdmaOffer { device: from.flag()?, emulated: from.flag()? },
        })
    }
}

impl Plan {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put!(out, self.streams, self.streams_max, self.chunk_bytes);
        out.extend_from_slice(&[
            self.cipher as u8,
            u8::from(self.integrity_only),
            u8::from(self.bare),
            self.digest as u8,
        ]);
        put!(out, self.workers.0, self.workers.1, self.memory.0, self.memory.1, self.rate_bps, self.datagrams);
        self.pace.encode(out);
        out.push(self.rdma.map_or(0, |kind| kind as u8 + 1));
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Plan, Breach> {
        let plan = Plan {
            streams: from.u16()?,
            streams_max: from.u16()?,
            chunk_bytes: from.u32()?,
            cipher: Cipher::from_byte(from.u8()?)?,
            integrity_only: from.flag()?,
            bare: from.flag()?,
            digest: DigestKind::from_byte(from.u8()?)?,
            workers: (from.u16()?, from.u16()?),
            memory: (from.u64()?, from.u64()?),
            rate_bps: from.u64()?,
            datagrams: from.u16()?,
            pace: Pace::decode(from)?,
            rdma: match from.u8()? {
                0 => None,
                1 => Some(RdmaKind::Device),
                2 => Some(RdmaKind::Emulated),
                _ => return Err(Breach::FieldOutOfRange),
            },
        };
        let chunk_fits =
            plan.chunk_bytes.is_power_of_two() && (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&plan.chunk_bytes);
        let streams_fit = plan.streams != 0 && plan.streams.max(plan.datagrams) <= plan.streams_max;
        let workers_fit = plan.workers.0 != 0 && plan.workers.1 != 0;
        let bare_fits = !plan.bare || (plan.integrity_only && plan.datagrams == 0);
        if chunk_fits && streams_fit && workers_fit && bare_fits { Ok(plan) } else { Err(Breach::FieldOutOfRange) }
    }
}
