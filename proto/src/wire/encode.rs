//! A control frame to bytes.
//!
//! For: the sending side of the control session.
//! In and out: a `Frame` in; its type byte and body appended to a `Vec`. The length before it is the session's work.
//! Invariants: a frame has exactly one encoding; what `encode` writes within the limits of `control.rs`, `decode` reads back equal.
//! Absent on purpose: the length before a frame (the session writes it).

use alloc::vec::Vec;

use super::codec::{put, put_bytes, put_list, put_text};
use super::control::*;
use crate::FRAME_BYTES_MAX;
use crate::manifest::{Entry, EntryId, EntryKind, Meta, NodeKind};
use crate::negotiate::{INTERFACES_MAX, RequestedSettings, Resources};

/// What an entry takes in an `Entries` frame, so that batches can be cut before `FRAME_BYTES_MAX`.
#[must_use]
pub fn entry_bytes(entry: &Entry) -> usize {
    let body = match &entry.kind {
        EntryKind::File { .. } => 8,
        EntryKind::Folder | EntryKind::FolderEnd => 0,
        EntryKind::Link { target } => 2 + target.len(),
        EntryKind::Node { kind: NodeKind::Char | NodeKind::Block, .. } => 8,
        EntryKind::Node { .. } => 0,
        EntryKind::Name { first } => 2 + first.len(),
    };
    let meta = &entry.meta;
    let meta = 1
        + 4 * (usize::from(meta.uid.is_some()) + usize::from(meta.gid.is_some()) + usize::from(meta.names != 0))
        + 2 * usize::from(!meta.lost.is_empty())
        + if meta.xattrs.is_empty() { 0 } else { 4 + meta.xattr_bytes() };
    1 + 2 + 8 + 4 + 2 + entry.path.len() + meta + body
}

/// What an answer takes in a `Wants` frame.
#[must_use]
pub fn want_bytes(want: &Want) -> usize {
    8 + 1
        + match want {
            Want::Keep { digest: Some(_) } => 32,
            Want::Keep { digest: None } | Want::All => 0,
            Want::Missing { ranges } | Want::MissingSoFar { ranges } => 4 + 16 * ranges.len(),
            Want::Compare { .. } => 8,
        }
}

impl Frame {
    /// The frame's type byte.
    #[must_use]
    pub const fn type_byte(&self) -> u8 {
        match self {
            Frame::Hello { .. } => 1,
            Frame::Ticket { .. } => 2,
            Frame::Open(_) => 3,
            Frame::Accept { .. } => 4,
            Frame::Refuse { .. } => 5,
            Frame::Entries(_) => 6,
            Frame::ScanEnd { .. } => 7,
            Frame::Wants(_) => 8,
            Frame::Acks(_) => 9,
            Frame::Nack { .. } => 10,
            Frame::FileEnd { .. } => 11,
            Frame::Committed(_) => 12,
            Frame::Faults(_) => 13,
            Frame::Pulse { .. } => 14,
            Frame::Sign { .. } => 15,
            Frame::Bye => 16,
            Frame::Relay { .. } => 17,
            Frame::Event { .. } => 18,
            Frame::AskTicket { .. } => 19,
            Frame::GiveTicket { .. } => 20,
            Frame::Rails { .. } => 21,
            Frame::Rate { .. } => 22,
            Frame::RailDown { .. } => 23,
            Frame::RailClosed { .. } => 24,
            Frame::Have { .. } => 25,
            Frame::Differ { .. } => 26,
            Frame::Pruned { .. } => 27,
            Frame::Names(_) => 28,
            Frame::Unkept(_) => 29,
            Frame::Pick(_) => 30,
            Frame::Unseen(_) => 31,
            Frame::Holes { .. } => 32,
            Frame::Resources(_) => 33,
            Frame::Pace(_) => 34,
            Frame::NicCounts(_) => 35,
            Frame::List { .. } => 36,
            Frame::Unnamed(_) => 37,
            Frame::Former { .. } => 38,
        }
    }

    /// The frame's name, for messages about order.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Frame::Hello { .. } => "Hello",
            Frame::Ticket { .. } => "Ticket",
            Frame::Open(_) => "Open",
            Frame::Accept { .. } => "Accept",
            Frame::Refuse { .. } => "Refuse",
            Frame::Entries(_) => "Entries",
            Frame::ScanEnd { .. } => "ScanEnd",
            Frame::Wants(_) => "Wants",
            Frame::Acks(_) => "Acks",
            Frame::Nack { .. } => "Nack",
            Frame::FileEnd { .. } => "FileEnd",
            Frame::Committed(_) => "Committed",
            Frame::Faults(_) => "Faults",
            Frame::Pulse { .. } => "Pulse",
            Frame::Sign { .. } => "Sign",
            Frame::Bye => "Bye",
            Frame::Relay { .. } => "Relay",
            Frame::Event { .. } => "Event",
            Frame::AskTicket { .. } => "AskTicket",
            Frame::GiveTicket { .. } => "GiveTicket",
            Frame::Rails { .. } => "Rails",
            Frame::Rate { .. } => "Rate",
            Frame::RailDown { .. } => "RailDown",
            Frame::RailClosed { .. } => "RailClosed",
            Frame::Have { .. } => "Have",
            Frame::Differ { .. } => "Differ",
            Frame::Pruned { .. } => "Pruned",
            Frame::Names(_) => "Names",
            Frame::Unkept(_) => "Unkept",
            Frame::Pick(_) => "Pick",
            Frame::Unseen(_) => "Unseen",
            Frame::Holes { .. } => "Holes",
            Frame::Resources(_) => "Resources",
            Frame::Pace(_) => "Pace",
            Frame::NicCounts(_) => "NicCounts",
            Frame::List { .. } => "List",
            Frame::Unnamed(_) => "Unnamed",
            Frame::Former { .. } => "Former",
        }
    }

    /// Appends type byte and body.
    ///
    /// # Panics
    /// If a byte string is longer than 65,535 bytes; callers check their user's paths before.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.type_byte());
        match self {
            Frame::Hello { version_min, version, agent } => {
                put!(out, version_min, version);
                put_text(out, agent, AGENT_BYTES_MAX);
            }
            Frame::Ticket { proof } => out.extend_from_slice(proof),
            Frame::Open(open) => put_open(out, open),
            Frame::Accept { offer, plan, top, compare, places, ahead } => {
                offer.encode(out);
                plan.encode(out);
                put_bytes(out, top);
                out.push(*compare as u8);
                put_list(out, places, |out, place| out.extend_from_slice(place));
                out.push(u8::from(*ahead));
            }
            Frame::Refuse { code, detail } => {
                put!(out, code);
                put_text(out, detail, DETAIL_BYTES_MAX);
            }
            Frame::Entries(entries) => put_entries(out, entries),
            Frame::ScanEnd { entries, files, bytes, faults } => put!(out, entries, files, bytes, faults),
            Frame::Wants(wants) => put_list(out, wants, put_want),
            Frame::Acks(ranges) => put_list(out, ranges, put_range),
            Frame::Nack { chunk, corrupt } => {
                put!(out, chunk);
                out.push(*corrupt as u8);
            }
            Frame::FileEnd { entry, digest } => {
                put!(out, entry);
                put_digest(out, digest.as_ref());
            }
            Frame::Committed(entries) => put_list(out, entries, |out, (entry, digest)| {
                put!(out, entry);
                out.extend_from_slice(digest);
            }),
            Frame::Faults(faults) => put_list(out, faults, put_fault),
            Frame::Names(names) => put_list(out, names, |out, it| {
                out.push(u8::from(it.is_group));
                put!(out, it.id);
                put_bytes(out, &it.name);
            }),
            Frame::Unkept(list) => put_list(out, list, |out, (entry, aspects)| put!(out, entry, aspects.bits())),
            Frame::Pick(paths) => put_list(out, paths, |out, path| put_bytes(out, path)),
            Frame::Unseen(places) => put_list(out, places, |out, (fault, path)| {
                put_fault(out, fault);
                put_bytes(out, path);
            }),
            Frame::Pulse { received, written, durable, books } => {
                put!(out, received, written, durable);
                books.encode(out);
            }
            Frame::Bye => {}
            other => other.encode_service(out),
        }
    }

    /// Encodes a frame and hands out its bytes; a list too long for one frame is handed out as several, in order. Every
    /// list frame means the same in parts, so callers need not count bytes.
    ///
    /// # Panics
    /// If one item alone is longer than a frame: no limit of `control.rs` allows that.
    pub fn encode_parts(self, each: &mut impl FnMut(&[u8])) {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        if bytes.len() <= FRAME_BYTES_MAX {
            each(&bytes);
            return;
        }
        drop(bytes);
        let (first, second) = self.halves();
        first.encode_parts(each);
        second.encode_parts(each);
    }

    fn halves(self) -> (Frame, Frame) {
        fn cut<T>(mut items: Vec<T>, name: fn(Vec<T>) -> Frame) -> (Frame, Frame) {
            assert!(items.len() > 1, "an item longer than a frame");
            let second = items.split_off(items.len() / 2);
            (name(items), name(second))
        }
        match self {
            Frame::Entries(items) => cut(items, Frame::Entries),
            Frame::Wants(items) => cut(items, Frame::Wants),
            Frame::Acks(items) => cut(items, Frame::Acks),
            Frame::Committed(items) => cut(items, Frame::Committed),
            Frame::Faults(items) => cut(items, Frame::Faults),
            Frame::Names(items) => cut(items, Frame::Names),
            Frame::Unkept(items) => cut(items, Frame::Unkept),
            Frame::Pick(items) => cut(items, Frame::Pick),
            Frame::Unseen(items) => cut(items, Frame::Unseen),
            other => unreachable!("{} is never longer than a frame", other.name()),
        }
    }

    /// The frames around a job: receipts, relaying, tickets, changes while it runs.
    fn encode_service(&self, out: &mut Vec<u8>) {
        match self {
            Frame::Sign { body, signature } => {
                out.extend_from_slice(body);
                put_bytes(out, signature);
            }
            Frame::Former { job, body } => {
                out.extend_from_slice(job);
                out.extend_from_slice(body);
            }
            Frame::Relay { sources, target, volumes, request } => {
                put_list(out, sources, |out, path| put_bytes(out, path));
                put_text(out, target, TEXT_BYTES_MAX);
                put_list(out, volumes, |out, path| put_bytes(out, path));
                request.encode(out);
            }
            Frame::Event { line } => put_text(out, line, LINE_BYTES_MAX),
            Frame::AskTicket { key, targets, compare, prune } => {
                out.extend_from_slice(key);
                put_list(out, targets, |out, path| put_bytes(out, path));
                put_compare(out, *compare, *prune);
            }
            Frame::GiveTicket { secret, key, addresses } => {
                out.extend_from_slice(secret);
                out.extend_from_slice(key);
                put_list(out, addresses, |out, address| put_text(out, address, TEXT_BYTES_MAX));
            }
            Frame::Rails { count } => put!(out, count),
            Frame::Rate { bits_per_second } => put!(out, bits_per_second),
            Frame::Resources(Resources { cores, load_percent }) => put!(out, cores, load_percent),
            Frame::NicCounts(counts) => {
                put_list(out, &counts[..counts.len().min(INTERFACES_MAX)], |out, count| count.encode(out));
            }
            Frame::List { path, recursive } => {
                put_bytes(out, path);
                out.push(u8::from(*recursive));
            }
            Frame::Unnamed(Unnamed { count, is_silent }) => {
                put!(out, count);
                out.push(u8::from(*is_silent));
            }
            Frame::Pace(RequestedSettings { rate_bps, policy, min_bps }) => {
                put!(out, rate_bps);
                out.push(*policy as u8);
                put!(out, min_bps);
            }
            Frame::RailDown { rail } | Frame::RailClosed { rail } => put!(out, rail),
            Frame::Have { entry, first, digests } => {
                put!(out, entry, first);
                put_list(out, digests, |out, digest| out.extend_from_slice(digest));
            }
            Frame::Differ { entry, ranges } | Frame::Holes { entry, ranges } => {
                put!(out, entry);
                put_list(out, ranges, put_range);
            }
            Frame::Pruned { removed, left, paths } => {
                put!(out, removed, left);
                put_list(out, paths, |out, path| put_bytes(out, path));
            }
            other => unreachable!("{} is written by `encode`", other.name()),
        }
    }
}

/// What is done with what stands at the destination.
fn put_compare(out: &mut Vec<u8>, compare: Compare, prune: Option<u64>) {
    out.push(compare as u8);
    out.push(u8::from(prune.is_some()));
    if let Some(most) = prune {
        put!(out, most);
    }
}

fn put_open(out: &mut Vec<u8>, open: &Open) {
    out.extend_from_slice(&open.job);
    out.extend_from_slice(&open.after);
    out.push(open.direction as u8);
    put_list(out, &open.paths, |out, path| put_bytes(out, path));
    let (stripe, volumes) = open.layout.map_or((0, 0), |it| (it.stripe as u8, it.volumes));
    out.push(stripe);
    put!(out, volumes);
    out.push(u8::from(open.joined));
    out.push(u8::from(open.into_folder));
    put_bytes(out, &open.top);
    out.push(u8::from(open.keep));
    out.push(u8::from(open.dry));
    put_compare(out, open.compare, open.prune);
    out.push(open.durability as u8);
    put!(out, open.aspects.bits());
    out.push(u8::from(open.numeric));
    put_list(out, &open.rules, |out, rule| put_text(out, rule, TEXT_BYTES_MAX));
    put_list(out, &open.places, |out, place| out.extend_from_slice(place));
    out.push(open.ahead);
    open.offer.encode(out);
}

/// First id, then the entries without ids: a gap cannot even be written.
fn put_entries(out: &mut Vec<u8>, entries: &[Entry]) {
    let first = entries.first().map_or(0, |entry| entry.id);
    put!(out, first);
    let mut expected = first;
    put_list(out, entries, |out, entry| {
        assert!(entry.id == expected, "ids of one frame have no gaps");
        expected = expected.wrapping_add(1);
        let (kind, mode) = match entry.kind {
            EntryKind::File { .. } => (0u8, entry.mode),
            EntryKind::Folder => (1, entry.mode),
            EntryKind::FolderEnd => (2, entry.mode),
            EntryKind::Link { .. } => (3, entry.mode),
            EntryKind::Node { kind, .. } => (4 + node_byte(kind), entry.mode),
            EntryKind::Name { .. } => (8, entry.mode),
        };
        // The file type bits of `st_mode` never cross the wire.
        let mode = (mode & 0o7777) as u16;
        put!(out, kind, mode, entry.mtime_s, entry.mtime_ns);
        put_bytes(out, &entry.path);
        put_meta(out, &entry.meta);
        match &entry.kind {
            EntryKind::File { bytes } => put!(out, bytes),
            EntryKind::Folder | EntryKind::FolderEnd => {}
            EntryKind::Link { target } => put_bytes(out, target),
            EntryKind::Node { kind: NodeKind::Char | NodeKind::Block, major, minor } => put!(out, major, minor),
            EntryKind::Node { .. } => {}
            EntryKind::Name { first } => put_bytes(out, first),
        }
    });
}

const fn node_byte(kind: NodeKind) -> u8 {
    match kind {
        NodeKind::Fifo => 0,
        NodeKind::Socket => 1,
        NodeKind::Char => 2,
        NodeKind::Block => 3,
    }
}

/// One byte says which fields follow: most entries have few of them.
fn put_meta(out: &mut Vec<u8>, meta: &Meta) {
    let flags = [
        meta.uid.is_some(),
        meta.gid.is_some(),
        !meta.lost.is_empty(),
        meta.names != 0,
        meta.sparse,
        !meta.xattrs.is_empty(),
    ];
    out.push(flags.iter().enumerate().map(|(bit, &is_set)| u8::from(is_set) << bit).sum());
    if let Some(uid) = meta.uid {
        put!(out, uid);
    }
    if let Some(gid) = meta.gid {
        put!(out, gid);
    }
    if !meta.lost.is_empty() {
        put!(out, meta.lost.bits());
    }
    if meta.names != 0 {
        put!(out, meta.names);
    }
    if !meta.xattrs.is_empty() {
        put_list(out, &meta.xattrs, |out, it| {
            put_bytes(out, &it.name);
            put!(out, it.value.len() as u32);
            out.extend_from_slice(&it.value);
        });
    }
}

fn put_want(out: &mut Vec<u8>, (entry, want): &(EntryId, Want)) {
    put!(out, entry);
    match want {
        Want::Keep { digest: None } => out.push(0),
        Want::Keep { digest: Some(digest) } => {
            out.push(1);
            out.extend_from_slice(digest);
        }
        Want::All => out.push(2),
        Want::Missing { ranges } => {
            out.push(3);
            put_list(out, ranges, put_range);
        }
        Want::Compare { chunks } => {
            out.push(4);
            put!(out, chunks);
        }
        Want::MissingSoFar { ranges } => {
            out.push(5);
            put_list(out, ranges, put_range);
        }
    }
}

fn put_range(out: &mut Vec<u8>, range: &ChunkRange) {
    put!(out, range.first, range.end);
}

fn put_digest(out: &mut Vec<u8>, digest: Option<&Digest>) {
    out.push(u8::from(digest.is_some()));
    if let Some(digest) = digest {
        out.extend_from_slice(digest);
    }
}

fn put_fault(out: &mut Vec<u8>, fault: &EntryFault) {
    put!(out, fault.entry);
    out.push(fault.kind as u8);
    put!(out, fault.errno);
    put_text(out, &fault.step, STEP_BYTES_MAX);
}
