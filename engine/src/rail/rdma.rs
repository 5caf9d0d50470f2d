//! Rails of queue pairs: frames as messages, sealed as on TCP.
//!
//! For: RDMA devices, and what stands for them (`sys::rdma`).
//! In and out: filled chunks in, bufs back with their completions; messages in, in bufs of the queue that the worker's rails share.
//! Invariants: a frame is posted under a credit alone, so that it finds a receive; a buf that was posted comes home by its completion and not
//! before; a message whose head is not this rail's, or that had no credit, ends the rail.
//! Absent on purpose: greetings (a connection is agreed on before it comes here), registering (`sys::rdma`: the pool, once), pages lent (a device
//! reads the buf itself), headers without payload (`--bare` seals and sends as the others do).
//!
//! ```text
//! message: | header and its tag, 88 | zeros | tags of the pieces | payload |      | <- HEAD_BYTES -> | payload |
//! word, from receiver to sender: u64, little endian: so many frames may be sent, counted from the rail's beginning
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use proto::books::Stage;
use proto::error::Breach;
use proto::wire::chunk::{ChunkKind, Header, SEALED_HEADER_BYTES, TAG_BYTES};
use sys::mem::{Buf, HEADROOM};

use crate::ends::feed::Feed;
use crate::ends::pieces::filling;
use crate::job::{Event, RailEnd, RailKey, Terms};
use crate::meter::PairMeter;
use crate::platform::{Completion, MESSAGE_HEAD_BYTES as HEAD_BYTES, Op, Platform, Receives, Word};
use crate::rail::base::Base;
use crate::rail::slices::Slices;
use crate::seal::frame::{Sealer, tag_count};
use crate::seal::hash::hash_as;
use crate::worker::cx::{Cx, Next};
use crate::worker::slots::{Kind, Load, Slot};

/// Where a message begins in its buf.
const AT: usize = HEADROOM - HEAD_BYTES;
/// Receives that one rail has at the most: 32 MiB on their way are 25 Gbit/s over 10 ms.
const RECEIVES_MAX: usize = 32;
/// Of so many bufs one may be in the queue for the first rail, half of these for the second, and so on: a queue keeps what it was given (a device has
/// no way to take it back), and what all rails of a worker keep, used or not, must leave most of the pool to others.
const BUFS_PER_RECEIVE: usize = 4;
/// Of so many bufs one rail that receives may come up; those beyond would have nothing to receive into, and are refused.
pub(crate) const BUFS_PER_PAIR: usize = 8;
/// Frames that a rail fetches in an iteration, before others have their turn, and opens in the next.
const FRAMES_PER_ITERATION: usize = 4;

/// A sealed frame that waits for a credit or the bound.
#[derive(Debug)]
struct Frame {
    chunk: u64,
    buf: Buf,
    len: usize,
    /// The user's bytes in it.
    payload: u64,
}

#[derive(Debug)]
struct Sending<F> {
    feed: Feed<F>,
    sealed: Option<Frame>,
    /// Frames posted so far, and how many may be.
    posted: u64,
    credit: u64,
}

#[derive(Debug, Default)]
struct Receiving {
    /// Receives in the shared queue that were added for this rail and not used.
    open: usize,
    /// Frames that came, receives that were added for them, and what the sender was told of these.
    came: u64,
    added: u64,
    told: u64,
    /// Messages that were fetched, in their order.
    held: VecDeque<(Buf, usize)>,
    /// So many of these may be opened: the worker has taken its commands since they were fetched. What a message speaks of was told to the worker
    /// before the peer could send it, but it may have come since the worker last looked.
    ripe: usize,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a rail is one or the other for good")]
enum Half<F> {
    Send(Sending<F>),
    Recv(Receiving),
}

/// A rail of a queue pair.
#[derive(Debug)]
pub(crate) struct Rdma<P: Platform> {
    /// What every rail has.
    pub(crate) base: Base<P>,
    sealer: Sealer,
    slices: Slices,
    meter: Arc<PairMeter>,
    /// A `Readable` op is in flight.
    is_watched: bool,
    /// There may be a completion.
    is_ready: bool,
    /// The pair's last completion came.
    is_down: bool,
    /// What it said, as long as messages are held that came before.
    last: Option<RailEnd>,
    half: Half<P::File>,
}

impl<P: Platform> Rdma<P> {
    /// Of a pair whose queues were made: `Receives::Words` sends chunks.
    pub(crate) fn new(base: Base<P>, terms: Terms, key: RailKey, receives: Receives, meter: Arc<PairMeter>) -> Self {
        let slices = Slices::new(base.bound.clone());
        let half = match receives {
            Receives::Words => Half::Send(Sending { feed: Feed::new(), sealed: None, posted: 0, credit: 0 }),
            Receives::Frames => {
                let held = VecDeque::with_capacity(FRAMES_PER_ITERATION);
                Half::Recv(Receiving { held, ..Receiving::default() })
            }
        };
        let sealer = Sealer::new(terms, key);
        Rdma { base, sealer, slices, meter, is_watched: false, is_ready: true, is_down: false, last: None, half }
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

    /// Has it nothing to send, although there is more to read?
    pub(crate) fn is_starved(&self) -> bool {
        matches!(&self.half, Half::Send(half) if half.feed.filled.is_empty() && half.sealed.is_none())
    }

    /// Do chunks come in here?
    pub(crate) fn is_receiving(&self) -> bool {
        matches!(self.half, Half::Recv(_))
    }

    /// Has its sender no credit for want of a buf?
    pub(crate) fn is_hungry(&self) -> bool {
        matches!(&self.half, Half::Recv(half) if half.open == 0) && !self.base.has_ended()
    }

    /// Has it a frame, and no credit to send it?
    pub(crate) fn waits_for_credit(&self) -> bool {
        let waits = |half: &Sending<P::File>| half.sealed.is_some() && half.posted == half.credit;
        matches!(&self.half, Half::Send(half) if waits(half)) && !self.base.has_ended()
    }

    /// Is there more to take in the next iteration?
    pub(crate) fn wants_turn(&self) -> bool {
        match &self.half {
            // What was not opened, although it could be, waits for the bound or the destination.
            Half::Recv(half) if half.ripe > 0 => false,
            Half::Recv(half) if !half.held.is_empty() && !self.base.has_ended() => true,
            _ => self.is_ready && !self.is_down,
        }
    }

    /// The worker has taken its commands: what was fetched before may be opened.
    pub(crate) fn ripen(&mut self) {
        if let Half::Recv(half) = &mut self.half {
            half.ripe = half.held.len();
        }
    }

    /// Nanoseconds until the bound lets the next frame pass; `None`: it does not wait for the bound.
    pub(crate) fn held_ns(&self, now_ns: u64) -> Option<u64> {
        let bytes = match &self.half {
            _ if self.base.has_ended() => None,
            Half::Send(half) if half.posted < half.credit => half.sealed.as_ref().map(|frame| frame.len),
            Half::Send(_) => None,
            Half::Recv(half) => {
                half.held.front().filter(|_| half.ripe > 0 && !self.base.paused).map(|(_, bytes)| *bytes)
            }
        }?;
        self.slices.held_ns(now_ns, bytes)
    }

    /// The completion descriptor says that there is something.
    pub(crate) fn on_readable(&mut self) {
        (self.is_watched, self.is_ready) = (false, true);
    }

    /// Receives in the shared queue that were added for this rail and not used.
    pub(crate) fn receives_open(&self) -> usize {
        match &self.half {
            Half::Send(_) => 0,
            Half::Recv(half) => half.open,
        }
    }

    /// The rail is over: what it did not post, and what it did not take.
    pub(crate) fn give_bufs(self, mut give: impl FnMut(Buf)) {
        match self.half {
            Half::Send(half) => {
                half.feed.filled.into_iter().for_each(|filled| give(filled.buf));
                half.sealed.into_iter().for_each(|frame| give(frame.buf));
            }
            Half::Recv(half) => half.held.into_iter().for_each(|(buf, _)| give(buf)),
        }
    }

    /// A dead rail: what comes back goes home.
    fn drain(&mut self, cx: &mut Cx<'_, P>) {
        while self.is_ready && !self.is_down {
            match cx.platform.poll_pair(&self.base.socket) {
                Some(Completion::Sent { token, buf, .. }) => {
                    cx.slots.take(token);
                    cx.give_buf(buf);
                }
                Some(Completion::Frame { buf, .. }) => {
                    if let Half::Recv(half) = &mut self.half {
                        half.open = half.open.saturating_sub(1);
                    }
                    cx.give_buf(buf);
                }
                Some(Completion::Word(_)) => {}
                Some(Completion::Down(_)) => self.is_down = true,
                None => self.watch(cx),
            }
        }
    }

    /// Nothing is there: the platform says when there is.
    fn watch(&mut self, cx: &mut Cx<'_, P>) {
        self.is_ready = false;
        if !self.is_watched {
            self.is_watched = true;
            let socket = self.base.socket.clone();
            let slot = Slot { kind: Kind::Readable, rail: cx.index, at: 0, done: 0, len: 0, load: Load::None };
            cx.submit(slot, Op::Readable { socket });
        }
    }
}

/// One go: frames out as far as credits and the bound go, credits told, then what came, up to the next that the loop has to see.
pub(crate) fn step<P: Platform>(rail: &mut Rdma<P>, cx: &mut Cx<'_, P>) -> Next {
    loop {
        if rail.base.has_ended() {
            // Its pair was cut: there is something to be fetched, whatever was known before.
            rail.is_ready |= !rail.is_watched;
            rail.drain(cx);
            return Next::Idle;
        }
        post_frames(rail, cx);
        tell_credit(rail, cx);
        if let Some(next) = take_frame(rail, cx) {
            return next;
        }
        let (held, ripe) = match &rail.half {
            Half::Recv(half) => (half.held.len(), half.ripe),
            Half::Send(_) => (0, 0),
        };
        if let Some(end) = rail.last.take_if(|_| held == 0) {
            return Next::Broken(end);
        }
        if ripe > 0 || !rail.is_ready || rail.is_down || held >= FRAMES_PER_ITERATION {
            return Next::Idle;
        }
        let completion = cx.platform.poll_pair(&rail.base.socket);
        cx.watch.lap(Stage::Recv);
        match completion {
            None => {
                rail.meter.write(&cx.platform.pair_counts(&rail.base.socket));
                rail.watch(cx);
            }
            Some(completion) => {
                if let Err(end) = on_completion(rail, cx, completion) {
                    return Next::Broken(end);
                }
            }
        }
    }
}

fn on_completion<P: Platform>(rail: &mut Rdma<P>, cx: &mut Cx<'_, P>, it: Completion) -> Result<(), RailEnd> {
    match (it, &mut rail.half) {
        (Completion::Sent { token, buf, result }, _) => {
            let slot = cx.slots.take(token);
            cx.give_buf(buf);
            // Why the pair died is told last.
            if let (Ok(()), Load::Frame { chunk, payload }) = (result, slot.load) {
                cx.events.push(Event::Sent { rail: cx.rail, chunk, bytes: slot.len as u64, payload });
            }
            Ok(())
        }
        (Completion::Frame { buf, bytes }, Half::Recv(half)) => {
            half.held.push_back((buf, bytes));
            // One more than it was told of has used the receive of another rail.
            half.came += 1;
            half.open = half.open.saturating_sub(1);
            check_frame(half.came, half.told).map_err(RailEnd::Breach)
        }
        (Completion::Word(word), Half::Send(half)) => {
            let credit = u64::from_le_bytes(word);
            half.credit = check_credit(half.credit, half.posted, credit).map_err(RailEnd::Breach)?;
            Ok(())
        }
        (Completion::Down(why), half) => {
            rail.is_down = true;
            let end = why.map_or(RailEnd::Closed, RailEnd::Fault);
            if !matches!(half, Half::Recv(half) if !half.held.is_empty()) {
                return Err(end);
            }
            rail.last = Some(end);
            Ok(())
        }
        (it, _) => unreachable!("a pair receives words or frames, not both: {it:?}"),
    }
}

/// The credit after a word that says `told`: it only grows, and no further beyond what was posted than a queue goes.
fn check_credit(credit: u64, posted: u64, told: u64) -> Result<u64, Breach> {
    let is_sound = told >= credit && told <= posted.saturating_add(2 * RECEIVES_MAX as u64);
    if is_sound { Ok(told) } else { Err(Breach::CreditAbsurd) }
}

/// The frame number `came` is one of those that the sender was told it may send.
fn check_frame(came: u64, told: u64) -> Result<(), Breach> {
    if came <= told { Ok(()) } else { Err(Breach::CreditMissing) }
}

/// Seals filled chunks and posts them.
fn post_frames<P: Platform>(rail: &mut Rdma<P>, cx: &mut Cx<'_, P>) {
    loop {
        seal_next(rail, cx);
        let now = cx.platform.now_ns();
        let Half::Send(half) = &mut rail.half else { return };
        let Some(frame) = half.sealed.as_ref().filter(|_| half.posted < half.credit) else { return };
        if rail.slices.may_pass_slice(now, frame.len).is_none() {
            return;
        }
        let Frame { chunk, buf, len, payload } = half.sealed.take().expect("seen above");
        half.posted += 1;
        rail.is_ready = true;
        let load = Load::Frame { chunk, payload };
        let token = cx.slots.put(Slot { kind: Kind::Send, rail: cx.index, at: AT, done: 0, len, load });
        cx.platform.post_send(&rail.base.socket, token, buf, AT, len);
        cx.watch.lap(Stage::Send);
    }
}

/// The next filled chunk becomes a message, if none is ready yet.
fn seal_next<P: Platform>(rail: &mut Rdma<P>, cx: &mut Cx<'_, P>) {
    let Half::Send(half) = &mut rail.half else { return };
    while half.sealed.is_none()
        && let Some(filled) = half.feed.filled.pop_front()
    {
        let payload = filled.files_bytes();
        let (mut header, file_bytes) = filled.header();
        let mut buf = filled.buf;
        let Header { kind, chunk, entry, offset, .. } = header;
        let how = hash_as(&header, file_bytes, cx.terms.chunk_bytes);
        cx.watch.lap(Stage::Loop);
        let touch = filling(cx.platform, filled.from.as_ref(), offset);
        match rail.sealer.seal_filling(&mut header, how, &mut buf, cx.watch, touch) {
            Err(error) => {
                cx.give_buf(buf);
                cx.report_unreadable(&filled.chunk, &error);
            }
            Ok(span) => {
                if kind == ChunkKind::Range {
                    cx.events.push(Event::Read { chunk, entry, offset, digest: header.digest });
                }
                // The header goes to the front of the head; what lies between it and the tags is nobody's.
                let (head, end) = (buf.whole_mut(), span.at + SEALED_HEADER_BYTES);
                head.copy_within(span.at..end, AT);
                head[AT + SEALED_HEADER_BYTES..end.max(AT + SEALED_HEADER_BYTES)].fill(0);
                let len = HEAD_BYTES + header.payload_bytes as usize;
                half.sealed = Some(Frame { chunk, buf, len, payload });
            }
        }
    }
}

/// Keeps the rail's share of receives in the queue, and tells the sender in batches of half.
fn tell_credit<P: Platform>(rail: &mut Rdma<P>, cx: &mut Cx<'_, P>) {
    let Half::Recv(half) = &mut rail.half else { return };
    // A pair of a device is connected with the first credit: so much has to be told.
    if rail.is_down || (rail.base.paused && half.added > 0) {
        return;
    }
    let bufs = cx.platform.pool().count();
    let share = (bufs / (BUFS_PER_RECEIVE * cx.share.pairs.max(1))).clamp(1, RECEIVES_MAX);
    while half.open < share {
        // Beyond what it needs to go on, a part of the bufs stays for the others.
        let least = if half.open == 0 { 0 } else { bufs / 4 };
        if !cx.platform.add_receive(&rail.base.socket, least) {
            break;
        }
        half.open += 1;
        half.added += 1;
    }
    let fresh = half.added - half.told;
    let is_dry = half.came == half.told;
    if fresh > 0 && (is_dry || fresh >= (share as u64 / 2).max(1)) {
        half.told = half.added;
        let word: Word = half.told.to_le_bytes();
        cx.platform.post_word(&rail.base.socket, word);
        rail.is_ready = true;
    }
}

/// The message that was held, once bound and destination take it: its header is opened, the loop does the rest.
fn take_frame<P: Platform>(rail: &mut Rdma<P>, cx: &mut Cx<'_, P>) -> Option<Next> {
    let now = cx.platform.now_ns();
    let Half::Recv(half) = &mut rail.half else { return None };
    let &(_, bytes) = half.held.front().filter(|_| half.ripe > 0 && !rail.base.paused)?;
    rail.slices.may_pass_slice(now, bytes)?;
    let (mut buf, bytes) = half.held.pop_front().expect("seen above");
    half.ripe -= 1;
    let opened = open_header(&mut rail.sealer, &mut buf, bytes);
    cx.watch.lap(Stage::Seal);
    Some(match opened {
        Ok(header) => Next::Received { header, buf },
        Err(breach) => {
            cx.give_buf(buf);
            Next::Broken(RailEnd::Breach(breach))
        }
    })
}

/// The header of a message of so many bytes, whose tags stand right before its payload.
fn open_header(sealer: &mut Sealer, buf: &mut Buf, bytes: usize) -> Result<Header, Breach> {
    let payload = bytes.checked_sub(HEAD_BYTES).ok_or(Breach::FrameTruncated)?;
    let sealed = buf.whole_mut()[AT..].first_chunk_mut().expect("a head is longer than a header");
    let header = sealer.open_header(sealed)?;
    // Whoever reads the tags finds them by this length.
    let fits = header.payload_bytes as usize == payload
        && SEALED_HEADER_BYTES + tag_count(crate::job::Cover::Sealed, payload) * TAG_BYTES <= HEAD_BYTES;
    if fits { Ok(header) } else { Err(Breach::FrameTruncated) }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proto::negotiate::Cipher;
    use proto::wire::chunk::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN};
    use proto::wire::control::DigestKind;
    use sys::rdma::Connection;

    use super::*;
    use crate::job::{Cover, EventQueue};
    use crate::linux::Linux;
    use crate::platform::PairIo;
    use crate::worker::bound::Bound;
    use crate::worker::cx::Share;
    use crate::worker::slots::Slots;
    use crate::worker::stages::{Counters, Stopwatch};

    const TERMS: Terms = Terms {
        chunk_bytes: CHUNK_BYTES_MIN,
        digest: DigestKind::Blake3,
        cipher: Cipher::Aes128Gcm,
        cover: Cover::Sealed,
        publish_small: true,
    };

    #[test]
    fn a_frame_is_not_opened_before_the_commands_were_taken_that_came_before_it() {
        let world = || Linux::new(8, TERMS.chunk_bytes as usize, Some(sys::ring::Kind::Plain)).unwrap().0;
        let (mut far, mut near) = (world(), world());
        let (here, there) = sys::sock::pair().unwrap();
        let far_pair = far.pair_up(Connection::Emulated(there), Receives::Words).unwrap();
        let pair = near.pair_up(Connection::Emulated(here), Receives::Frames).unwrap();
        let base = Base::new(1, 0, pair, Arc::new(Bound::new(0, None)));
        let key = RailKey { secret: [1; 32], place: [1; 18] };
        let mut rail: Rdma<Linux> = Rdma::new(base, TERMS, key, Receives::Frames, Arc::new(PairMeter::default()));
        let (mut slots, mut watch) = (Slots::new(), Stopwatch::new(Arc::new(Counters::default())));
        let (to, _events) = std::sync::mpsc::sync_channel(8);
        let mut events = EventQueue::new(to, None);
        let share = Share { bursts: 1, receivers: 1, pairs: 1, lenders: 0 };
        let mut go = |rail: &mut Rdma<Linux>| {
            let (platform, slots, watch) = (&mut near, &mut slots, &mut watch);
            let mut cx = Cx { platform, slots, watch, events: &mut events, terms: TERMS, index: 0, rail: 0, share };
            rail.on_readable();
            step(rail, &mut cx)
        };
        assert!(matches!(go(&mut rail), Next::Idle), "credits are told, and nothing is there");
        let buf = far.pool().take().unwrap();
        far.post_send(&far_pair, 0, buf, AT, HEAD_BYTES + 1);
        let begun = Instant::now();
        while !rail.wants_turn() || !matches!(&rail.half, Half::Recv(half) if half.held.len() == 1) {
            assert!(begun.elapsed() < Duration::from_secs(10), "the frame comes");
            far.poll_pair(&far_pair);
            assert!(matches!(go(&mut rail), Next::Idle), "it is fetched, and no more");
        }
        rail.ripen();
        assert!(matches!(go(&mut rail), Next::Broken(RailEnd::Breach(_))), "now it is looked at: this one is none");
    }

    #[test]
    fn credits_that_go_back_or_beyond_a_queue_are_a_breach_and_so_is_a_frame_without_one() {
        assert_eq!(check_credit(0, 0, 32), Ok(32));
        assert_eq!(check_credit(8, 6, 8), Ok(8), "the same again is no harm");
        assert_eq!(check_credit(8, 6, 7), Err(Breach::CreditAbsurd));
        assert_eq!(check_credit(8, 6, 70), Ok(70));
        assert_eq!(check_credit(8, 6, 71), Err(Breach::CreditAbsurd));
        assert_eq!(check_credit(0, 5, u64::MAX), Err(Breach::CreditAbsurd));
        assert_eq!((check_frame(4, 4), check_frame(5, 4)), (Ok(()), Err(Breach::CreditMissing)));
    }

    #[test]
    fn a_head_holds_the_header_and_tags_of_the_largest_chunk_and_fits_into_the_headroom() {
        let most = SEALED_HEADER_BYTES + tag_count(crate::job::Cover::Sealed, CHUNK_BYTES_MAX as usize) * TAG_BYTES;
        assert!(most <= HEAD_BYTES && HEAD_BYTES <= HEADROOM);
        assert_eq!(HEAD_BYTES, 2176, "docs/protocol.md has the number");
    }
}
