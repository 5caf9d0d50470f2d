//! Stream rails: the loop's steps for frames on TCP (or a socket pair).
//!
//! For: filled chunk → frame → network on one side (a payload that passes through goes from its file unread), network → header → payload on
//! the other.
//! In and out: filled chunks and completions in; ops, events and what is next out.
//! Invariants: one frame at most stands sealed ahead of the one in flight (more would only leave the cache); a stream error ends the rail and
//! nothing else; a header is checked by the sink before a buf is taken for its payload.
//! Absent on purpose: reconnecting, acknowledging (the job's ends), opening and landing (the loop calls `seal` and the sink).

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::SyncSender;

use proto::books::Stage;
use proto::error::Breach;
use proto::wire::chunk::{ChunkKind, Header, SEALED_HEADER_BYTES, TAG_BYTES, TAKEN_BYTES};
use sys::mem::{Buf, HEADROOM, Mem};

use crate::ends::feed::{Feed, SMALL_BYTES};
use crate::ends::in_place::IN_PLACE;
use crate::ends::pieces::{filling, is_again};
use crate::job::{Cover, Event, Offered, RailEnd, RailKey, Terms};
use crate::platform::{Done, Op, Platform};
use crate::rail::base::Base;
use crate::rail::slices::Slices;
use crate::rail::unread::{Outcome, Unread};
use crate::rail::zero_copy::{Consumed, ZeroCopy};
use crate::seal::frame::{FrameSpan, Sealer, tag_count};
use crate::seal::hash::hash_as;
use crate::worker::cx::{Cx, Next};
use crate::worker::slots::{Kind, Load, Slot};

/// Sealed frames ahead of the one in flight. With one, a frame is sent straight after it was sealed, while a level-2 cache of
/// 1 MiB still has most of it: 20.0 instead of 18.7 Gb/s sealed with BLAKE3 (EPYC, loopback, medians of 40 rounds, 2026-11).
const SEALED_AHEAD: usize = 1;

/// A sealed frame that waits for the rail.
#[derive(Debug)]
struct Frame<F> {
    chunk: u64,
    buf: Buf,
    span: FrameSpan,
    /// The user's bytes in it.
    payload: u64,
    /// Its payload, where that is not in the buf.
    unread: Option<Unread<F>>,
    /// Bytes of a payload that does not travel: whoever takes the header reads it.
    in_place: usize,
}

impl<F> Frame<F> {
    /// Bytes on the wire.
    fn len(&self) -> usize {
        self.span.len + self.unread.as_ref().map_or(0, |unread| unread.bytes as usize)
    }

    /// Bytes that the bound counts.
    fn paid(&self) -> usize {
        self.len() + self.in_place
    }
}

/// The receiving half's place in the stream.
#[derive(Debug)]
enum Taking {
    /// A header is to be asked for.
    Idle,
    /// An op is in flight, or what it received waits for the bound.
    Busy,
    /// A header came and was checked, a buf is wanted.
    Hungry(Header),
}

/// The sending half.
#[derive(Debug)]
struct Sending<F> {
    feed: Feed<F>,
    sealed: VecDeque<Frame<F>>,
    /// The payload of the frame in flight, if it passes through unread.
    unread: Option<Unread<F>>,
    /// A file system refused to hand its bytes over: they are read from here on.
    reads_all: bool,
    /// A frame is in flight, or a part of it waits for the bound.
    busy: bool,
    zero_copy: ZeroCopy,
    /// The peer is a worker beside, which reads what it writes.
    offers: Option<SyncSender<Offered<F>>>,
}

impl<F: Clone> Sending<F> {
    /// Offers a chunk to whoever writes it, if that is a worker beside, it is read at once, and there is room for one more.
    fn offer(&self, from: &Option<F>, header: &Header, file_bytes: u64) -> bool {
        let (Some(offers), Some(file)) = (&self.offers, from) else { return false };
        let &Header { chunk, entry, .. } = header;
        offers.try_send(Offered { chunk, entry, file_bytes, file: file.clone() }).is_ok()
    }
}

/// The receiving half.
#[derive(Debug)]
struct Receiving {
    taking: Taking,
    consumed: Consumed,
    /// Headers may come whose payload is in the source beside.
    in_place: bool,
}

/// One of these per rail, in the rail's box.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a rail is one or the other for good")]
enum Half<F> {
    Send(Sending<F>),
    Recv(Receiving),
}

/// A stream rail.
#[derive(Debug)]
pub(crate) struct Stream<P: Platform> {
    /// What every rail has.
    pub(crate) base: Base<P>,
    sealer: Sealer,
    /// Memory for the next header (receiver) or count (sender); away while one is awaited.
    head: Option<Box<[u8]>>,
    slices: Slices,
    half: Half<P::File>,
}

impl<P: Platform> Stream<P> {
    /// A rail on which chunks go out. `zero_copy`: the network may read our memory itself. `offers`: to a worker that reads what it writes.
    pub(crate) fn sending(
        base: Base<P>,
        terms: Terms,
        key: RailKey,
        zero_copy: bool,
        offers: Option<SyncSender<Offered<P::File>>>,
    ) -> Self {
        let (feed, sealed, zero_copy) = (Feed::new(), VecDeque::with_capacity(4), ZeroCopy::new(zero_copy));
        let half = Sending { feed, sealed, unread: None, reads_all: false, busy: false, zero_copy, offers };
        Stream::new(base, terms, key, Half::Send(half))
    }

    /// A rail on which chunks come in; `in_place`: or only their headers.
    pub(crate) fn receiving(base: Base<P>, terms: Terms, key: RailKey, in_place: bool) -> Self {
        Stream::new(
            base,
            terms,
            key,
            Half::Recv(Receiving { taking: Taking::Idle, consumed: Consumed::new(), in_place }),
        )
    }

    fn new(base: Base<P>, terms: Terms, key: RailKey, half: Half<P::File>) -> Self {
        let slices = Slices::new(base.bound.clone());
        let head = Some(vec![0; SEALED_HEADER_BYTES].into_boxed_slice());
        Stream { base, sealer: Sealer::new(terms, key), head, slices, half }
    }

    /// The chunks that wait for it, if it sends.
    pub(crate) fn feed(&mut self) -> Option<&mut Feed<P::File>> {
        match &mut self.half {
            Half::Send(half) => Some(&mut half.feed),
            Half::Recv(_) => None,
        }
    }

    /// Opens payloads, in the order in which their headers came.
    pub(crate) fn sealer(&mut self) -> &mut Sealer {
        &mut self.sealer
    }

    /// The sink admits the header that came: its payload is received as soon as there is a buf.
    pub(crate) fn admit(&mut self, header: Header) {
        if let Half::Recv(half) = &mut self.half {
            half.taking = Taking::Hungry(header);
        }
    }

    /// Has it nothing to send, although there is more to read?
    pub(crate) fn is_starved(&self) -> bool {
        matches!(&self.half, Half::Send(half) if half.feed.filled.is_empty() && half.sealed.is_empty() && !half.busy)
    }

    /// Do chunks come in here?
    pub(crate) fn is_receiving(&self) -> bool {
        matches!(self.half, Half::Recv(_))
    }

    /// Does it wait for a buf?
    pub(crate) fn is_hungry(&self) -> bool {
        matches!(&self.half, Half::Recv(Receiving { taking: Taking::Hungry(_), .. }))
    }

    /// Nanoseconds until the bound lets the next bytes pass; `None`: it does not wait for the bound.
    pub(crate) fn held_ns(&self, now_ns: u64) -> Option<u64> {
        let bytes = match (&self.slices.part, &self.half) {
            (Some((slot, _)), _) => Some(slot.len - slot.done),
            (None, Half::Send(half)) if half.busy => None,
            (None, Half::Send(half)) => half.sealed.front().map(Frame::paid),
            (None, Half::Recv(Receiving { taking: Taking::Hungry(header), .. })) => Some(header.payload_bytes as usize),
            (None, Half::Recv(_)) => None,
        }?;
        self.slices.held_ns(now_ns, bytes)
    }

    /// May the network still read memory of this rail's frames?
    pub(crate) fn is_read_by_network(&self) -> bool {
        match &self.half {
            Half::Send(Sending { zero_copy, .. }) => {
                zero_copy.has_in_flight() || (zero_copy.this_frame && self.slices.part.is_some())
            }
            Half::Recv(_) => false,
        }
    }

    /// The rail is over.
    pub(crate) fn give_bufs(self, mut give: impl FnMut(Buf)) {
        if let Half::Send(half) = self.half {
            half.feed.filled.into_iter().for_each(|filled| give(filled.buf));
            half.sealed.into_iter().for_each(|frame| give(frame.buf));
            half.zero_copy.give_bufs(&mut give);
        }
        if let Some((_, Mem::Buf(buf))) = self.slices.part {
            give(buf);
        }
    }
}

/// Seals filled chunks and sends the next frame.
pub(crate) fn step_send<P: Platform>(rail: &mut Stream<P>, cx: &mut Cx<'_, P>) {
    while seal_next(rail, cx) {}
    let now = cx.platform.now_ns();
    let Half::Send(half) = &mut rail.half else { return };
    if half.busy {
        // The rest of a frame that waited for the bound.
        if let Some((slot, mem)) = rail.slices.next(now) {
            send_rest(rail, cx, slot, mem);
        }
        return;
    }
    let Some(front) = half.sealed.front() else { return };
    // What goes unread goes in one.
    let (bytes, paid, whole) = (front.len(), front.paid(), front.unread.is_some() || front.in_place > 0);
    let granted = if whole { rail.slices.may_pass_slice(now, paid) } else { rail.slices.may_pass(now, paid) };
    let Some(granted) = granted else { return };
    rail.slices.granted = granted;
    let frame = half.sealed.pop_front().expect("seen above");
    half.busy = true;
    // Of a chunk that is read where it is written, whoever does it says when it went.
    let in_place = frame.in_place > 0;
    let load = if in_place { Load::None } else { Load::Frame { chunk: frame.chunk, payload: frame.payload } };
    let (at, len) = (frame.span.at, frame.span.len);
    let slot = Slot { kind: Kind::Send, rail: cx.index, at, done: 0, len: bytes, load };
    let (socket, mem) = (rail.base.socket.clone(), Mem::Buf(frame.buf));
    if let Some(unread) = frame.unread {
        let (file, offset, bytes) = (unread.file.clone(), unread.offset, unread.bytes as usize);
        half.unread = Some(unread);
        half.zero_copy.this_frame = false;
        return cx.submit(slot, Op::SendFile { socket, mem, at, len, file, offset, bytes });
    }
    let lend = half.zero_copy.begin_frame(cx.platform.pool());
    cx.submit(slot, Op::Send { socket, mem, at, len: len.min(granted), lend });
}

/// Sends of a frame what the bound has let go.
fn send_rest<P: Platform>(rail: &Stream<P>, cx: &mut Cx<'_, P>, slot: Slot, mem: Mem) {
    let lend = matches!(&rail.half, Half::Send(half) if half.zero_copy.this_frame);
    let socket = rail.base.socket.clone();
    let (at, len) = (slot.at + slot.done, (slot.len - slot.done).min(rail.slices.granted));
    cx.submit(slot, Op::Send { socket, mem, at, len, lend });
}

/// The next filled chunk becomes a frame. Returns whether there may be another.
fn seal_next<P: Platform>(rail: &mut Stream<P>, cx: &mut Cx<'_, P>) -> bool {
    let Half::Send(half) = &mut rail.half else { return false };
    if half.sealed.len() >= SEALED_AHEAD {
        return false;
    }
    let Some(filled) = half.feed.filled.pop_front() else { return false };
    let payload = filled.files_bytes();
    let (mut header, file_bytes) = filled.header();
    let mut buf = filled.buf;
    let Header { kind, chunk, entry, offset, .. } = header;
    let how = hash_as(&header, file_bytes, cx.terms.chunk_bytes);
    cx.watch.lap(Stage::Loop);
    let goes_whole = kind == ChunkKind::Range && rail.slices.goes_whole(HEADROOM + filled.bytes as usize);
    if goes_whole && half.offer(&filled.from, &header, file_bytes) {
        header.digest = IN_PLACE;
        let (span, in_place) = (rail.sealer.seal_bare(&header, &mut buf), filled.bytes as usize);
        half.sealed.push_back(Frame { chunk, buf, span, payload, unread: None, in_place });
        cx.watch.lap(Stage::Seal);
        return true;
    }
    let may_pass_through = goes_whole && cx.terms.cover == Cover::Bare;
    if may_pass_through
        && half.zero_copy.enabled
        && !half.reads_all
        && let Some(file) = filled.from
    {
        let span = rail.sealer.seal_bare(&header, &mut buf);
        let unread = Some(Unread { file, entry, offset, bytes: filled.bytes });
        half.sealed.push_back(Frame { chunk, buf, span, payload, unread, in_place: 0 });
        cx.watch.lap(Stage::Seal);
        return true;
    }
    let touch = filling(cx.platform, filled.from.as_ref(), offset);
    match rail.sealer.seal_filling(&mut header, how, &mut buf, cx.watch, touch) {
        Err(error) => {
            cx.give_buf(buf);
            cx.report_unreadable(&filled.chunk, &error);
        }
        Ok(span) => {
            if kind == ChunkKind::Range {
                // With crc64 the digest is the CRC itself; the header has both.
                cx.events.push(Event::Read { chunk, entry, offset, digest: header.digest });
            }
            half.sealed.push_back(Frame { chunk, buf, span, payload, unread: None, in_place: 0 });
        }
    }
    true
}

/// A send came back: go on with the rest, or the frame is gone.
pub(crate) fn on_sent<P: Platform>(rail: &mut Stream<P>, cx: &mut Cx<'_, P>, mut slot: Slot, mut done: Done) -> Next {
    let Half::Send(half) = &mut rail.half else { unreachable!("only sending rails send frames") };
    if let Some(unread) = half.unread.take() {
        match unread.on_sent(&rail.base.socket, cx, slot, done) {
            Outcome::Sent(its, as_others) => (slot, done) = (its, as_others),
            Outcome::Read => {
                half.reads_all = true;
                return Next::Idle;
            }
        }
    }
    let moved = match done.result {
        Ok(0) => Err(io::ErrorKind::WriteZero.into()),
        Ok(moved) => Ok(moved),
        Err(error) if is_again(&error) => Ok(0),
        Err(error) => Err(error),
    };
    let zero_copy = &mut half.zero_copy;
    if zero_copy.this_frame {
        cx.watch.spared.lent += moved.as_ref().map_or(0, |bytes| *bytes as u64);
    }
    match moved {
        Err(error) => {
            half.busy = false;
            if let Some(mem) = zero_copy.on_failed(done.mem) {
                cx.give(mem);
            }
            // Cut: the receive that watches for the peer's close must come back as well.
            return Next::Broken(RailEnd::Fault(error));
        }
        Ok(moved) if slot.done + moved < slot.len && !rail.base.has_ended() => {
            slot.done += moved;
            rail.slices.granted = rail.slices.granted.saturating_sub(moved);
            if rail.slices.granted > 0 {
                send_rest(rail, cx, slot, done.mem);
            } else {
                rail.slices.part = Some((slot, done.mem));
            }
        }
        Ok(moved) => {
            half.busy = false;
            if let Some(mem) = zero_copy.on_sent(slot.len, done.mem) {
                cx.give(mem);
            }
            if let (true, Load::Frame { chunk, payload }) = (slot.done + moved == slot.len, slot.load) {
                cx.events.push(Event::Sent { rail: cx.rail, chunk, bytes: slot.len as u64, payload });
            }
        }
    }
    Next::Idle
}

/// Asks for the next header, or for the payload of the one that came (or says that it is beside); a sending rail for the receiver's count.
pub(crate) fn step_recv<P: Platform>(rail: &mut Stream<P>, cx: &mut Cx<'_, P>) -> Next {
    let now = cx.platform.now_ns();
    let Half::Recv(half) = &mut rail.half else {
        // So a sender also learns at once when the peer goes.
        if rail.head.is_some() {
            ask_head(rail, cx, TAKEN_BYTES);
        }
        return Next::Idle;
    };
    match half.taking {
        Taking::Busy => {
            // The rest of a payload that waited for the bound.
            if let Some((slot, mem)) = rail.slices.next(now) {
                receive_rest(rail, cx, slot, mem);
            }
        }
        Taking::Idle if rail.base.paused => {}
        Taking::Idle => {
            half.taking = Taking::Busy;
            ask_head(rail, cx, SEALED_HEADER_BYTES);
        }
        Taking::Hungry(header) => {
            let tags = tag_count(cx.terms.cover.of(header.kind), header.payload_bytes as usize) * TAG_BYTES;
            let (at, len) = (HEADROOM - tags, tags + header.payload_bytes as usize);
            // What comes slice by slice has its buf for long: a part of them stays for the others.
            let pool = cx.platform.pool();
            let goes_whole = rail.slices.goes_whole(SEALED_HEADER_BYTES + len);
            let least = if goes_whole { 0 } else { pool.count() / 4 };
            // The last of the small ones' is a sender's: who sends has what it sends.
            let as_small = goes_whole && u64::from(header.payload_bytes) <= SMALL_BYTES && pool.small_free() > 1;
            if pool.free() <= least && !as_small {
                return Next::Idle;
            }
            let in_place = half.in_place && header.kind == ChunkKind::Range && header.digest == IN_PLACE;
            let whole = SEALED_HEADER_BYTES + len;
            let granted =
                if in_place { rail.slices.may_pass_slice(now, whole) } else { rail.slices.may_pass(now, whole) };
            let Some(granted) = granted else { return Next::Idle };
            rail.slices.granted = granted - SEALED_HEADER_BYTES;
            half.taking = if in_place { Taking::Idle } else { Taking::Busy };
            let pool = cx.platform.pool();
            let buf = if pool.free() > least { pool.take() } else { pool.take_small() };
            let buf = buf.expect("seen to be there");
            if in_place {
                half.consumed.on_frame(&rail.base, cx);
                return Next::InPlace { header, buf };
            }
            let load = Load::Header(header);
            let slot = Slot { kind: Kind::Payload, rail: cx.index, at, done: 0, len, load };
            receive_rest(rail, cx, slot, Mem::Buf(buf));
        }
    }
    Next::Idle
}

/// Receives of a payload what the bound has let go.
fn receive_rest<P: Platform>(rail: &Stream<P>, cx: &mut Cx<'_, P>, slot: Slot, mem: Mem) {
    let socket = rail.base.socket.clone();
    let (at, len) = (slot.at + slot.done, (slot.len - slot.done).min(rail.slices.granted));
    cx.submit(slot, Op::Recv { socket, mem, at, len });
}

fn ask_head<P: Platform>(rail: &mut Stream<P>, cx: &mut Cx<'_, P>, len: usize) {
    let head = rail.head.take().expect("one header is asked for at a time");
    let socket = rail.base.socket.clone();
    let slot = Slot { kind: Kind::Head, rail: cx.index, at: 0, done: 0, len, load: Load::None };
    cx.submit(slot, Op::Recv { socket, mem: Mem::Small(head), at: 0, len });
}

/// A header (of a sending rail, a count; or the end of the stream) came.
pub(crate) fn on_head<P: Platform>(rail: &mut Stream<P>, cx: &mut Cx<'_, P>, mut slot: Slot, done: Done) -> Next {
    let moved = match done.result {
        Err(error) if is_again(&error) => Ok(0),
        Ok(0) => Err(if slot.done == 0 { RailEnd::Closed } else { RailEnd::Breach(Breach::FrameTruncated) }),
        Ok(moved) => Ok(moved),
        Err(error) => Err(RailEnd::Fault(error)),
    };
    let Mem::Small(mut head) = done.mem else { unreachable!("headers are received in small memory") };
    let moved = match moved {
        Ok(moved) if !rail.base.has_ended() => moved,
        ended => {
            rail.head = Some(head);
            // Cut: a send that the peer will never consume must come back as well.
            return Next::Broken(ended.err().unwrap_or(RailEnd::Cut));
        }
    };
    slot.done += moved;
    if slot.done < slot.len {
        let socket = rail.base.socket.clone();
        let (at, len) = (slot.done, slot.len - slot.done);
        cx.submit(slot, Op::Recv { socket, mem: Mem::Small(head), at, len });
        return Next::Idle;
    }
    let heard = match &mut rail.half {
        Half::Send(half) => {
            let count = u64::from_le_bytes(*head.first_chunk().expect("longer than a count"));
            half.zero_copy.on_consumed(&rail.base.socket, half.busy, cx, count).map(|()| Next::Idle)
        }
        Half::Recv(_) => {
            let sealed: &mut [u8; SEALED_HEADER_BYTES] = (&mut *head).try_into().expect("made with this length");
            let header = rail.sealer.open_header(sealed);
            cx.watch.lap(Stage::Seal);
            header.map(Next::Announced)
        }
    };
    rail.head = Some(head);
    heard.unwrap_or_else(|breach| Next::Broken(RailEnd::Breach(breach)))
}

/// A payload came: it is to be opened.
pub(crate) fn on_payload<P: Platform>(rail: &mut Stream<P>, cx: &mut Cx<'_, P>, mut slot: Slot, done: Done) -> Next {
    let moved = match done.result {
        Err(error) if is_again(&error) => Ok(0),
        Ok(0) => Err(RailEnd::Breach(Breach::FrameTruncated)),
        Ok(moved) => Ok(moved),
        Err(error) => Err(RailEnd::Fault(error)),
    };
    let moved = match moved {
        Ok(moved) if !rail.base.has_ended() => moved,
        ended => {
            rail.base.end(ended.err().unwrap_or(RailEnd::Cut));
            cx.give(done.mem);
            return Next::Idle;
        }
    };
    slot.done += moved;
    if slot.done < slot.len {
        rail.slices.granted = rail.slices.granted.saturating_sub(moved);
        if rail.slices.granted > 0 {
            receive_rest(rail, cx, slot, done.mem);
        } else {
            rail.slices.part = Some((slot, done.mem));
        }
        return Next::Idle;
    }
    let Half::Recv(half) = &mut rail.half else { unreachable!("only receiving rails ask for payloads") };
    half.taking = Taking::Idle;
    let (Mem::Buf(buf), Load::Header(header)) = (done.mem, slot.load) else {
        unreachable!("payload is received into bufs under a header")
    };
    half.consumed.on_frame(&rail.base, cx);
    Next::Received { header, buf }
}

/// A count of frames consumed went to the sender.
pub(crate) fn on_consumed_sent<P: Platform>(rail: &mut Stream<P>, cx: &mut Cx<'_, P>, slot: Slot, done: Done) {
    let Half::Recv(half) = &mut rail.half else { unreachable!("counts are the receiver's") };
    half.consumed.on_sent(&rail.base, cx, slot, done);
}
