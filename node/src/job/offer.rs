//! What this end has and allows.
//!
//! For: this end's half of the negotiation.
//! In and out: the machine's facts and what the user asked for in; an `Offer` out.
//! Invariants: a fact that cannot be read is left out, never guessed.
//! Absent on purpose: choosing (proto::negotiate).

use proto::negotiate::{Cipher, Driver, Interface, Offer, Pace, Plan, RdmaOffer, StorageLook, WORKERS_MAX};
use proto::send::CHUNKS_IN_FLIGHT_MAX;
use proto::wire::chunk::CHUNK_BYTES_MIN;
use proto::wire::control::DigestKind;

use engine::job::{Cover, Terms};

/// Rails per job, at most, unless the user asks for another number.
pub const STREAMS_MAX: u16 = 16;

/// What the user or the config said.
#[derive(Debug, Clone, Default)]
pub struct Requested {
    /// Bytes of memory for this end.
    pub memory_bytes: u64,
    /// Workers; 0: one per core.
    pub workers: u16,
    /// A driver and no other.
    pub driver: Option<Driver>,
    /// A cipher and no other.
    pub cipher: Option<Cipher>,
    /// Wanted (initiator) or all that are allowed (acceptor, empty).
    pub digest: Option<DigestKind>,
    /// Asked for or allowed.
    pub integrity_only: bool,
    /// Payload in clear that the sender does not look at.
    pub bare: bool,
    /// Rails; 0: measure.
    pub streams: u16,
    /// Bytes per chunk; 0: default.
    pub chunk_bytes: u32,
    /// bit/s; 0: none.
    pub rate_bps: u64,
    /// What the file system did in an earlier measurement, bit/s; 0: unknown.
    pub disk_bps: u64,
    /// Bytes of bufs for the job; 0: those of workers of its own.
    pub bufs_bytes: u64,
    /// The acceptor is to look at its storage, for a forecast (initiator).
    pub look: bool,
    /// What this end's storage did when it was looked at.
    pub storage: StorageLook,
    /// Datagram rails wanted (initiator) or taken at most (acceptor); 0: none.
    pub datagrams: u16,
    /// How these are paced (initiator).
    pub pace: Pace,
    /// Queue pairs wanted (initiator) or taken (acceptor).
    pub rdma: RdmaOffer,
}

/// This end's offer.
#[must_use]
pub fn offer(requested: &Requested) -> Offer {
    let cores = sys::host::cores().map_or(1, |cores| cores.count);
    let cores = if requested.workers > 0 { usize::from(requested.workers) } else { cores };
    let drivers = match requested.driver {
        Some(driver) => vec![driver],
        None if sys::ring::io_uring().is_ok() => vec![Driver::Uring, Driver::Plain],
        None => vec![Driver::Plain],
    };
    let ciphers = match requested.cipher {
        Some(cipher) => vec![cipher],
        None if sys::host::has_aes() => vec![Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305],
        None => vec![Cipher::ChaCha20Poly1305, Cipher::Aes128Gcm, Cipher::Aes256Gcm],
    };
    let digests = requested.digest.map_or_else(|| vec![DigestKind::Blake3, DigestKind::Crc64], |digest| vec![digest]);
    Offer {
        boot_id: sys::host::boot_id().unwrap_or_default(),
        cores: u16::try_from(cores).unwrap_or(u16::MAX),
        load_percent: sys::host::load().map_or(0, |load| (load * 100.0) as u32),
        memory_bytes: requested.memory_bytes,
        interfaces: interfaces(),
        drivers,
        ciphers,
        digests,
        integrity_only: requested.integrity_only || requested.bare,
        bare: requested.bare,
        streams: requested.streams,
        streams_max: requested.streams.max(STREAMS_MAX),
        chunk_bytes: requested.chunk_bytes,
        rate_bps: requested.rate_bps,
        free_bytes: 0,
        disk_bps: requested.disk_bps,
        bufs_bytes: if requested.bufs_bytes > 0 {
            requested.bufs_bytes
        } else {
            pool_bytes(
                requested.memory_bytes,
                cores.min(usize::from(WORKERS_MAX)),
                requested.chunk_bytes.max(CHUNK_BYTES_MIN),
            )
        },
        look: requested.look,
        storage: requested.storage,
        datagrams: requested.datagrams,
        pace: requested.pace,
        rdma: requested.rdma,
    }
}

fn interfaces() -> Vec<Interface> {
    let all = sys::host::interfaces().unwrap_or_default();
    let of = |it: &sys::host::Interface| {
        let speed_mbit = it.speed_bps.map_or(0, |bps| u32::try_from(bps / 1_000_000).unwrap_or(u32::MAX));
        let (name, mtu) = (it.name.clone(), it.mtu);
        it.addresses
            .iter()
            .map(move |address| Interface { name: name.clone(), address: address.to_string(), mtu, speed_mbit })
            .collect::<Vec<_>>()
    };
    all.iter().filter(|it| it.up).flat_map(of).take(32).collect()
}

/// What workers must know of a plan.
#[must_use]
pub fn terms(plan: &Plan, durability: proto::wire::control::Durability) -> Terms {
    let cover = match (plan.integrity_only, plan.digest) {
        _ if plan.bare => Cover::Bare,
        (false, _) => Cover::Sealed,
        (true, DigestKind::Blake3) => Cover::Hashed,
        (true, DigestKind::Crc64) => Cover::Tagged,
    };
    Terms {
        chunk_bytes: plan.chunk_bytes,
        digest: plan.digest,
        cipher: plan.cipher,
        cover,
        publish_small: durability < proto::wire::control::Durability::Flushed,
    }
}

/// Bytes of pool out of a memory grant: a quarter, so that manifest windows, TLS, journals and the kernel's own share fit beside it.
#[must_use]
pub fn pool_bytes(memory_bytes: u64, workers: usize, chunk_bytes: u32) -> u64 {
    let least = 6 * workers as u64 * (u64::from(chunk_bytes) + 4096);
    (memory_bytes / 4).max(least)
}

/// Chunks a rail may have in hand: enough to cover a disk's latency, or two for each disk that is read, as far as the pool goes.
#[must_use]
pub fn depth(pool_bytes: u64, chunk_bytes: u32, rails: usize, disks: usize) -> usize {
    const ENOUGH: usize = 16;
    let rails = rails.max(1);
    let bufs = pool_bytes / (u64::from(chunk_bytes) + 4096);
    let most = (2 * disks).div_ceil(rails).clamp(ENOUGH, CHUNKS_IN_FLIGHT_MAX);
    usize::try_from(bufs * 3 / 4).unwrap_or(ENOUGH).div_ceil(rails).clamp(2, most)
}
