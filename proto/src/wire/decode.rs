//! Bytes to a control frame, with every check a stranger's bytes need.
//!
//! For: the receiving side of the control session.
//! In and out: the bytes of one frame, type byte first, without the length; a `Frame` or the `Breach` that names what is wrong.
//! Invariants: never panics; asks for no more memory than a small multiple of the frame's own length; nothing may follow the last field.
//! Absent on purpose: whether the frame may come now, and whether ids exist (send.rs, recv.rs).

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::codec::Reader;
use super::control::*;
use super::request::{RelayRequest, rules};
use crate::FRAME_BYTES_MAX;
use crate::books::Books;
use crate::error::Breach;
use crate::layout::{Layout, Stripe, VOLUMES_MAX};
use crate::manifest::{
    Aspects, Entry, EntryId, EntryKind, Meta, NodeKind, PATH_BYTES_MAX, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX,
    XATTRS_BYTES_MAX, Xattr, check_path,
};
use crate::negotiate::{INTERFACES_MAX, NicCount, Offer, Plan, RequestedSettings, Resources};
use crate::rate::Policy;

/// A list is bounded by its frame; this only says so where no smaller number is natural.
const LIST_MAX: usize = FRAME_BYTES_MAX;
/// Bytes of the shortest entry: kind, mode, two times, an empty path, no fields more.
const ENTRY_BYTES_MIN: usize = 1 + 2 + 8 + 4 + 2 + 1;
/// Bytes of the shortest fault: entry, kind, errno, an empty step.
const FAULT_BYTES_MIN: usize = 8 + 1 + 4 + 2;
/// A count of an interface without a name.
const NIC_COUNT_BYTES_MIN: usize = 2 + 8 + 8;
/// Nanoseconds of a second; a time's fraction is below.
const NS_PER_S: u32 = 1_000_000_000;

impl Frame {
    /// Reads one frame.
    ///
    /// # Errors
    /// The `Breach` that the sender of these bytes committed.
    pub fn decode(bytes: &[u8]) -> Result<Frame, Breach> {
        if bytes.len() > FRAME_BYTES_MAX {
            return Err(Breach::FrameTooLong);
        }
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        let frame = match kind {
            1..=5 => opening(kind, &mut reader)?,
            6..=14 => transfer(kind, &mut reader)?,
            15..=27 => service(kind, &mut reader)?,
            28..=38 => beside(kind, &mut reader)?,
            _ => return Err(Breach::FrameUnknown),
        };
        reader.end()?;
        Ok(frame)
    }
}

/// Frames before data moves.
fn opening(kind: u8, from: &mut Reader<'_>) -> Result<Frame, Breach> {
    Ok(match kind {
        1 => {
            let (version_min, version) = (from.u16()?, from.u16()?);
            if version_min > version || version_min == 0 {
                return Err(Breach::FieldOutOfRange);
            }
            Frame::Hello { version_min, version, agent: from.text(AGENT_BYTES_MAX)? }
        }
        2 => Frame::Ticket { proof: from.array()? },
        3 => Frame::Open(Box::new(open(from)?)),
        4 => Frame::Accept {
            offer: Box::new(Offer::decode(from)?),
            plan: Box::new(Plan::decode(from)?),
            top: top_name(from)?,
            compare: compare(from)?,
            places: places(from)?,
            ahead: from.flag()?,
        },
        _ => Frame::Refuse { code: from.u16()?, detail: from.text(DETAIL_BYTES_MAX)? },
    })
}

/// Frames while data moves.
fn transfer(kind: u8, from: &mut Reader<'_>) -> Result<Frame, Breach> {
    Ok(match kind {
        6 => Frame::Entries(entries(from)?),
        7 => Frame::ScanEnd { entries: from.u64()?, files: from.u64()?, bytes: from.u64()?, faults: from.u64()? },
        8 => Frame::Wants(from.list(LIST_MAX, 9, want)?),
        9 => Frame::Acks(from.list(LIST_MAX, 16, |from| range(from, Breach::ChunkUnknown))?),
        10 => Frame::Nack { chunk: from.u64()?, corrupt: corrupt(from)? },
        11 => Frame::FileEnd { entry: from.u64()?, digest: if from.flag()? { Some(from.array()?) } else { None } },
        12 => Frame::Committed(from.list(LIST_MAX, 40, |from| Ok((from.u64()?, from.array()?)))?),
        13 => Frame::Faults(from.list(LIST_MAX, FAULT_BYTES_MIN, fault)?),
        _ => Frame::Pulse {
            received: from.u64()?,
            written: from.u64()?,
            durable: from.u64()?,
            books: Box::new(Books::decode(from)?),
        },
    })
}

/// Frames around a job: receipts, relaying, tickets, changes while it runs.
fn service(kind: u8, from: &mut Reader<'_>) -> Result<Frame, Breach> {
    Ok(match kind {
        15 => Frame::Sign { body: from.array()?, signature: from.boxed(SIGNATURE_BYTES_MAX)? },
        16 => Frame::Bye,
        17 => Frame::Relay {
            sources: from.list(LIST_MAX, 2, user_path)?,
            target: from.text(TEXT_BYTES_MAX)?,
            volumes: from.list(usize::from(VOLUMES_MAX) - 1, 2, user_path)?,
            request: Box::new(RelayRequest::decode(from)?),
        },
        18 => Frame::Event { line: from.text(LINE_BYTES_MAX)? },
        19 => Frame::AskTicket {
            key: from.array()?,
            targets: from.list(usize::from(VOLUMES_MAX), 2, user_path)?,
            compare: compare(from)?,
            prune: prune(from)?,
        },
        20 => Frame::GiveTicket {
            secret: from.array()?,
            key: from.array()?,
            addresses: from.list(ADDRESSES_MAX, 2, |from| from.text(TEXT_BYTES_MAX))?,
        },
        21 => match from.u16()? {
            0 => return Err(Breach::FieldOutOfRange),
            count => Frame::Rails { count },
        },
        22 => Frame::Rate { bits_per_second: from.u64()? },
        23 => Frame::RailDown { rail: from.u16()? },
        24 => Frame::RailClosed { rail: from.u16()? },
        25 => Frame::Have {
            entry: from.u64()?,
            first: from.u64()?,
            digests: from.list(HAVE_DIGESTS_MAX, 32, Reader::array)?,
        },
        26 => Frame::Differ { entry: from.u64()?, ranges: ranges(from)? },
        _ => Frame::Pruned { removed: from.u64()?, left: from.u64()?, paths: pruned(from)? },
    })
}

/// Frames beside the manifest.
fn beside(kind: u8, from: &mut Reader<'_>) -> Result<Frame, Breach> {
    Ok(match kind {
        28 => Frame::Names(from.list(ID_NAMES_MAX, 8, id_name)?),
        30 => Frame::Pick(from.list(LIST_MAX, 2, picked)?),
        31 => Frame::Unseen(from.list(LIST_MAX, FAULT_BYTES_MIN + 2, unseen)?),
        32 => Frame::Holes { entry: from.u64()?, ranges: ranges(from)? },
        33 => match from.u16()? {
            0 => return Err(Breach::FieldOutOfRange),
            cores => Frame::Resources(Resources { cores, load_percent: from.u32()? }),
        },
        34 => Frame::Pace(RequestedSettings {
            rate_bps: from.u64()?,
            policy: Policy::from_byte(from.u8()?)?,
            min_bps: from.u64()?,
        }),
        35 => Frame::NicCounts(from.list(INTERFACES_MAX, NIC_COUNT_BYTES_MIN, NicCount::decode)?),
        36 => Frame::List { path: user_path(from)?, recursive: from.flag()? },
        38 => Frame::Former { job: from.array()?, body: from.array()? },
        37 => Frame::Unnamed(Unnamed { count: from.u32()?, is_silent: from.flag()? }),
        _ => Frame::Unkept(from.list(LIST_MAX, 10, |from| match (from.u64()?, aspects(from)?) {
            (_, Aspects::NONE) => Err(Breach::FieldOutOfRange),
            told => Ok(told),
        })?),
    })
}

fn aspects(from: &mut Reader<'_>) -> Result<Aspects, Breach> {
    Aspects::from_bits(from.u16()?).ok_or(Breach::FieldOutOfRange)
}

fn id_name(from: &mut Reader<'_>) -> Result<IdName, Breach> {
    let (is_group, id, name) = (from.flag()?, from.u32()?, from.boxed(ID_NAME_BYTES_MAX)?);
    if name.is_empty() { Err(Breach::FieldOutOfRange) } else { Ok(IdName { is_group, id, name }) }
}

fn open(from: &mut Reader<'_>) -> Result<Open, Breach> {
    let open = Open {
        job: from.array()?,
        after: from.array()?,
        direction: match from.u8()? {
            0 => Direction::Push,
            1 => Direction::Pull,
            _ => return Err(Breach::FieldOutOfRange),
        },
        paths: from.list(LIST_MAX, 2, user_path)?,
        layout: layout(from)?,
        joined: from.flag()?,
        into_folder: from.flag()?,
        top: top_name(from)?,
        keep: from.flag()?,
        dry: from.flag()?,
        compare: compare(from)?,
        prune: prune(from)?,
        durability: Durability::from_byte(from.u8()?)?,
        aspects: aspects(from)?,
        numeric: from.flag()?,
        rules: rules(from)?,
        places: places(from)?,
        ahead: from.u8()?,
        offer: Offer::decode(from)?,
    };
    let has_more = open.ahead > AHEAD_FRAMES_MAX || (open.ahead > 0 && open.direction == Direction::Pull);
    if has_more { Err(Breach::FieldOutOfRange) } else { Ok(open) }
}

fn compare(from: &mut Reader<'_>) -> Result<Compare, Breach> {
    Compare::from_byte(from.u8()?)
}

/// One for each volume, at most.
fn places(from: &mut Reader<'_>) -> Result<Vec<Place>, Breach> {
    from.list(VOLUMES_MAX.into(), 16, Reader::array)
}

fn prune(from: &mut Reader<'_>) -> Result<Option<u64>, Breach> {
    Ok(if from.flag()? { Some(from.u64()?) } else { None })
}

/// No volumes, or a set of them.
fn layout(from: &mut Reader<'_>) -> Result<Option<Layout>, Breach> {
    let (stripe, volumes) = (from.u8()?, from.u16()?);
    match (stripe, volumes) {
        (0, 0) => Ok(None),
        (stripe, 1..=VOLUMES_MAX) => {
            let stripe = Stripe::from_byte(stripe).ok_or(Breach::FieldOutOfRange)?;
            Ok(Some(Layout { stripe, volumes }))
        }
        _ => Err(Breach::FieldOutOfRange),
    }
}

/// A place that could not be scanned: no entry stands for it.
fn unseen(from: &mut Reader<'_>) -> Result<(EntryFault, Box<[u8]>), Breach> {
    match fault(from)? {
        fault if fault.entry == EntryId::MAX => Ok((fault, from.boxed(LINE_BYTES_MAX)?)),
        _ => Err(Breach::FieldOutOfRange),
    }
}

/// The path of something below a folder.
fn picked(from: &mut Reader<'_>) -> Result<Box<[u8]>, Breach> {
    let path = from.bytes(LINE_BYTES_MAX)?;
    crate::manifest::check_path(path)?;
    if path.is_empty() { Err(Breach::FieldOutOfRange) } else { Ok(path.into()) }
}

/// One component, or nothing.
fn top_name(from: &mut Reader<'_>) -> Result<Box<[u8]>, Breach> {
    let name = from.bytes(LINE_BYTES_MAX)?;
    crate::manifest::check_path(name)?;
    if name.contains(&b'/') { Err(Breach::PathEscapes) } else { Ok(name.into()) }
}

/// A path as a user gave it: it is resolved below the server's root, so it may be absolute or climb; only NUL and length are checked.
fn user_path(from: &mut Reader<'_>) -> Result<Box<[u8]>, Breach> {
    let path = from.bytes(LINE_BYTES_MAX)?;
    if path.len() > PATH_BYTES_MAX {
        return Err(Breach::PathTooLong);
    }
    if path.contains(&0) {
        return Err(Breach::PathHasNul);
    }
    Ok(Box::from(path))
}

fn entries(from: &mut Reader<'_>) -> Result<Vec<Entry>, Breach> {
    let first = from.u64()?;
    let mut id = first;
    let entries = from.list(LIST_MAX, ENTRY_BYTES_MIN, |from| {
        let entry = entry(id, from)?;
        id = id.checked_add(1).ok_or(Breach::FieldOutOfRange)?;
        Ok(entry)
    })?;
    // An empty list has one encoding, as every value has.
    if entries.is_empty() && first != 0 { Err(Breach::FieldOutOfRange) } else { Ok(entries) }
}

fn entry(id: EntryId, from: &mut Reader<'_>) -> Result<Entry, Breach> {
    let kind = from.u8()?;
    let mode = u32::from(from.u16()?);
    let (mtime_s, mtime_ns) = (from.i64()?, from.u32()?);
    if mode > 0o7777 || mtime_ns >= NS_PER_S {
        return Err(Breach::FieldOutOfRange);
    }
    let path = from.bytes(LINE_BYTES_MAX)?;
    check_path(path)?;
    let meta = meta(from)?;
    let kind = match kind {
        0 => match from.u64()? {
            bytes if bytes <= FILE_BYTES_MAX => EntryKind::File { bytes },
            _ => return Err(Breach::FieldOutOfRange),
        },
        1 => EntryKind::Folder,
        2 => EntryKind::FolderEnd,
        3 => EntryKind::Link { target: link_target(from)? },
        4 => EntryKind::Node { kind: NodeKind::Fifo, major: 0, minor: 0 },
        5 => EntryKind::Node { kind: NodeKind::Socket, major: 0, minor: 0 },
        6 => EntryKind::Node { kind: NodeKind::Char, major: from.u32()?, minor: from.u32()? },
        7 => EntryKind::Node { kind: NodeKind::Block, major: from.u32()?, minor: from.u32()? },
        8 => EntryKind::Name { first: first_name(from)? },
        _ => return Err(Breach::FieldOutOfRange),
    };
    // A folder has one name; another name of a file says no more than whose it is.
    let names_one = matches!(kind, EntryKind::Folder | EntryKind::FolderEnd | EntryKind::Name { .. });
    if (names_one && meta.names != 0) || (meta.sparse && !matches!(kind, EntryKind::File { .. })) {
        return Err(Breach::FieldOutOfRange);
    }
    Ok(Entry { id, path: Box::from(path), kind, mode, mtime_s, mtime_ns, meta })
}

/// The path of a first name: never the destination itself.
fn first_name(from: &mut Reader<'_>) -> Result<Box<[u8]>, Breach> {
    let first = from.bytes(LINE_BYTES_MAX)?;
    check_path(first)?;
    if first.is_empty() { Err(Breach::FieldOutOfRange) } else { Ok(Box::from(first)) }
}

fn meta(from: &mut Reader<'_>) -> Result<Meta, Breach> {
    let flags = from.u8()?;
    let has = |bit: u8| flags >> bit & 1 == 1;
    if flags >> 6 != 0 {
        return Err(Breach::FieldOutOfRange);
    }
    let mut meta = Meta { sparse: has(4), ..Meta::default() };
    if has(0) {
        meta.uid = Some(id(from)?);
    }
    if has(1) {
        meta.gid = Some(id(from)?);
    }
    if has(2) {
        meta.lost = aspects(from)?;
    }
    if has(3) {
        meta.names = from.u32()?;
    }
    if has(5) {
        let mut room = XATTRS_BYTES_MAX;
        meta.xattrs = from.list(XATTRS_BYTES_MAX / 7, 7, |from| xattr(from, &mut room))?.into_boxed_slice();
    }
    // What is not there is not written: each value has one encoding.
    let empty = (has(2) && meta.lost.is_empty()) || (has(3) && meta.names < 2) || (has(5) && meta.xattrs.is_empty());
    if empty { Err(Breach::FieldOutOfRange) } else { Ok(meta) }
}

/// All ones is no number but "leave it" to chown(2).
fn id(from: &mut Reader<'_>) -> Result<u32, Breach> {
    match from.u32()? {
        u32::MAX => Err(Breach::FieldOutOfRange),
        id => Ok(id),
    }
}

fn xattr(from: &mut Reader<'_>, room: &mut usize) -> Result<Xattr, Breach> {
    let name = from.bytes(XATTR_NAME_BYTES_MAX)?;
    let bytes = from.u32()? as usize;
    if bytes > XATTR_VALUE_BYTES_MAX {
        return Err(Breach::FieldTooLong);
    }
    *room = room.checked_sub(6 + name.len() + bytes).ok_or(Breach::FieldTooLong)?;
    if Xattr::aspect(name).is_none() || name.contains(&0) {
        return Err(Breach::FieldOutOfRange);
    }
    Ok(Xattr { name: Box::from(name), value: Box::from(from.take(bytes)?) })
}

/// A link's target is stored, never followed, so it may point anywhere; `symlink(2)` wants 1 to 4095 bytes without NUL.
fn link_target(from: &mut Reader<'_>) -> Result<Box<[u8]>, Breach> {
    let target = from.bytes(PATH_BYTES_MAX)?;
    if target.is_empty() {
        return Err(Breach::FieldOutOfRange);
    }
    if target.contains(&0) {
        return Err(Breach::PathHasNul);
    }
    Ok(Box::from(target))
}

fn want(from: &mut Reader<'_>) -> Result<(EntryId, Want), Breach> {
    let entry = from.u64()?;
    let want = match from.u8()? {
        0 => Want::Keep { digest: None },
        1 => Want::Keep { digest: Some(from.array()?) },
        2 => Want::All,
        3 => Want::Missing { ranges: ranges(from)? },
        4 => match from.u64()? {
            0 => return Err(Breach::WantOutOfRange),
            chunks => Want::Compare { chunks },
        },
        5 => Want::MissingSoFar { ranges: ranges(from)? },
        _ => return Err(Breach::FieldOutOfRange),
    };
    Ok((entry, want))
}

/// Ranges of one file: ascending, none reaching into the next.
fn ranges(from: &mut Reader<'_>) -> Result<Vec<ChunkRange>, Breach> {
    let mut end = 0;
    from.list(WANT_RANGES_MAX, 16, |from| {
        let range = range(from, Breach::WantOutOfRange)?;
        if range.first < end {
            return Err(Breach::WantOutOfRange);
        }
        end = range.end;
        Ok(range)
    })
}

/// Paths for the report.
fn pruned(from: &mut Reader<'_>) -> Result<Vec<Box<[u8]>>, Breach> {
    from.list(PRUNED_PATHS_MAX, 2, |from| {
        let path = from.bytes(PATH_BYTES_MAX)?;
        check_path(path)?;
        Ok(Box::from(path))
    })
}

/// A range is never empty.
fn range(from: &mut Reader<'_>, breach: Breach) -> Result<ChunkRange, Breach> {
    let (first, end) = (from.u64()?, from.u64()?);
    if first < end { Ok(ChunkRange { first, end }) } else { Err(breach) }
}

fn corrupt(from: &mut Reader<'_>) -> Result<Corrupt, Breach> {
    Ok(match from.u8()? {
        0 => Corrupt::Wire,
        1 => Corrupt::SourceMemory,
        2 => Corrupt::SinkMemory,
        _ => return Err(Breach::FieldOutOfRange),
    })
}

fn fault(from: &mut Reader<'_>) -> Result<EntryFault, Breach> {
    Ok(EntryFault {
        entry: from.u64()?,
        kind: match from.u8()? {
            0 => FaultKind::Vanished,
            1 => FaultKind::Torn,
            2 => FaultKind::Denied,
            3 => FaultKind::Full,
            4 => FaultKind::Io,
            5 => FaultKind::Corrupt,
            6 => FaultKind::Unsupported,
            7 => FaultKind::Other,
            8 => FaultKind::InUse,
            _ => return Err(Breach::FieldOutOfRange),
        },
        errno: from.i32()?,
        step: from.text(STEP_BYTES_MAX)?,
    })
}

impl Compare {
    /// The comparing with this number on the wire.
    ///
    /// # Errors
    /// `FieldOutOfRange` for all others.
    pub fn from_byte(byte: u8) -> Result<Compare, Breach> {
        match byte {
            0 => Ok(Compare::Never),
            1 => Ok(Compare::Changed),
            2 => Ok(Compare::Always),
            _ => Err(Breach::FieldOutOfRange),
        }
    }
}

impl Durability {
    /// The durability level with this number on the wire.
    ///
    /// # Errors
    /// `FieldOutOfRange` above the ladder.
    pub fn from_byte(byte: u8) -> Result<Durability, Breach> {
        Ok(match byte {
            0 => Durability::Received,
            1 => Durability::Written,
            2 => Durability::Flushed,
            3 => Durability::Published,
            _ => return Err(Breach::FieldOutOfRange),
        })
    }

    /// As `--durability` takes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Durability::Received => "received",
            Durability::Written => "written",
            Durability::Flushed => "flushed",
            Durability::Published => "published",
        }
    }
}

impl DigestKind {
    /// The digest with this number on the wire and in journals.
    ///
    /// # Errors
    /// `FieldOutOfRange` for all others.
    pub fn from_byte(byte: u8) -> Result<DigestKind, Breach> {
        match byte {
            0 => Ok(DigestKind::Blake3),
            1 => Ok(DigestKind::Crc64),
            _ => Err(Breach::FieldOutOfRange),
        }
    }

    /// As `--digest` takes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            DigestKind::Blake3 => "blake3",
            DigestKind::Crc64 => "crc64",
        }
    }
}
