//! Names on disk: what a job reads from and what it writes to.
//!
//! For: the job ends, which make and look at names by synchronous calls, and the platform, which moves bytes of the files opened here.
//! In and out: entries of a manifest; folders and open files below one base folder for each volume.
//! Invariants: every name is looked up beneath its base folder; what is unfinished stands under names that begin with `PREFIX`.
//! Absent on purpose: the loop (worker), order of work (machine), moving bytes (linux).

pub mod scan; // walking a source: filter, include list, order, overlap
pub mod list; // looking at one folder, for `ls`
pub mod source; // names at the source
pub mod sink; // names at the destination
pub mod source_tree; // what others need from a source
pub mod sink_tree; // and from a destination
pub mod volumes; // N disks as one, and one file on many of them
pub mod commit; // flush, rename: the committer's work, off the loop
pub mod handle; // an open file and its I/O mode
pub mod io_mode; // which I/O mode moves a file
pub mod ids; // users and groups by name
mod facts; // what the kernel says of a file
mod meta; // owner, attributes, mode, time: read and set

use proto::negotiate::StorageLook;
use proto::striped::Whole;

pub use io_mode::LARGE_FILE_BYTES_MIN;

/// The volumes that a job reads.
pub type Sources = volumes::source::Volumes<source::LinuxSource>;
/// The volumes that a job writes.
pub type Sinks = volumes::Volumes<sink::LinuxSink>;

/// What the file systems of a job's sources gave together in earlier measurements, bit/s; 0: not known of all, or the bytes are in memory.
#[must_use]
pub fn read_bps(sources: &Sources) -> u64 {
    io_mode::together_bps(sources.trees().iter().map(source::LinuxSource::remembered))
}

/// What those of its destinations took together, bit/s; 0: not known of all.
#[must_use]
pub fn write_bps(sinks: &Sinks) -> u64 {
    io_mode::together_bps(sinks.trees().map(sink::LinuxSink::remembered))
}

/// What the storage of a job's source gives now: 40 ms of reading, or as long as a slow disk needs for 3 MiB. A set of volumes is not looked at.
/// `None`: the source is a few small files, for which nobody should wait.
#[must_use]
pub fn look_read(sources: &Sources) -> Option<StorageLook> {
    let [source] = sources.trees() else { return Some(StorageLook::default()) };
    source.look()
}

/// What that of its destination takes now; nothing stays behind.
#[must_use]
pub fn look_write(sinks: &Sinks) -> StorageLook {
    let mut all = sinks.trees();
    let (Some(sink), None) = (all.next(), all.next()) else { return StorageLook::default() };
    sink.look()
}

/// Name of a file's part, or of its journal, beside the final name: `.longhaul-<16 hex of BLAKE3(name)>.part`.
#[must_use]
pub fn beside(path: &[u8], ending: &str) -> Vec<u8> {
    let split = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let hash = blake3::hash(&path[split..]).to_hex();
    let mut beside = path[..split].to_vec();
    beside.extend_from_slice(format!("{PREFIX}{}.{ending}", &hash.as_str()[..16]).as_bytes());
    beside
}

/// Name of what stands of a striped file on a volume, or of its map, beside the final name: `.longhaul-<16 hex of BLAKE3(name)>-<16 hex of
/// BLAKE3(length, time)>.chunks` or `.map`. So a new version never touches the one that stands.
#[must_use]
pub fn beside_of(path: &[u8], file: Whole, ending: &str) -> Vec<u8> {
    let mut facts = Vec::with_capacity(20);
    facts.extend_from_slice(&file.bytes.to_le_bytes());
    facts.extend_from_slice(&file.mtime_s.to_le_bytes());
    facts.extend_from_slice(&file.mtime_ns.to_le_bytes());
    let version = blake3::hash(&facts).to_hex();
    let mut name = beside(path, "");
    name.pop(); // the dot
    name.extend_from_slice(format!("-{}.{ending}", &version.as_str()[..16]).as_bytes());
    name
}

/// Endings of the pieces of striped files, and of their maps.
const PIECE_ENDINGS: [&str; 2] = [".chunks", ".map"];

/// Is it a piece of a striped file, or the map of one?
pub(crate) fn is_piece(name: &[u8]) -> bool {
    name.starts_with(PREFIX.as_bytes()) && PIECE_ENDINGS.iter().any(|it| name.ends_with(it.as_bytes()))
}

/// What tells a volume of a set from an empty folder; see `node/src/job/endpoint/volumes.rs`.
pub const VOLUME_MARK: &[u8] = b".longhaul-volume";

/// Where jobs that run say so, at the top of a destination; see `sink/runs.rs`.
const RUNS_FOLDER: &[u8] = b".longhaul-runs";

/// How our own files in a destination begin.
pub const PREFIX: &str = ".longhaul-";

/// Is this one of ours?
#[must_use]
pub fn is_ours(name: &[u8]) -> bool {
    const ENDINGS: [&[u8]; 3] = [b".part", b".journal", b".lock"];
    name == VOLUME_MARK
        || name == RUNS_FOLDER
        || is_piece(name)
        || name.starts_with(PREFIX.as_bytes()) && ENDINGS.iter().any(|ending| name.ends_with(ending))
}
