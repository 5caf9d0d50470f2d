//! Stream rails: the loop's steps for frames on TCP (or a socket pair).
//!
//! For: fill → seal → send on one side (a bare payload goes from its file unread), header → payload → open → write on the other.
//! In and out: handouts and completions in; ops and events out.
//! Invariants: one frame at most stands sealed ahead of the one in flight (more would only leave the cache); a stream error ends the rail and
//! nothing else; a header is checked against the job before a buf is taken for it.
//! Absent on purpose: reconnecting (the initiator's keeper), acknowledging (keeper).

use std::io;

use proto::books::Stage;
use proto::error::Breach;
use proto::ledger::chunk_len;
use proto::manifest::EntryId;
use proto::wire::chunk::{ChunkKind, Header, PACK_FILE_BYTES_MAX, SEALED_HEADER_BYTES, TAG_BYTES, TAKEN_BYTES};
use proto::wire::control::FaultKind;
use sys::mem::{Buf, HEADROOM, Mem};

use crate::ends::file_sink::is_zero;
use crate::ends::file_source::SMALL_BYTES;
use crate::job::{Cover, EntryError, Event, JobNo, RailEnd, fault_kind};
use crate::platform::{Done, Harm, Op, Platform};
use crate::rail::{Bare, Frame, Kind, Lent, Load, Slot, Taking};
use crate::seal::frame::{HashAs, Touch, check_draining, hash_as, tag_count};
use crate::worker::Worker;

/// Sealed frames ahead of the one in flight. With one, a frame is sent straight after it was sealed, while a level-2 cache of
/// 1 MiB still has most of it: 20.0 instead of 18.7 Gb/s sealed with BLAKE3 (EPYC, loopback, medians of 40 rounds, 2026-11).
const SEALED_AHEAD: usize = 1;

/// Of errno(3): a file system or a socket between which nothing can be handed over.
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

impl<P: Platform> Worker<P> {
    /// Seal: the next filled chunk becomes a frame; then the next frame goes out.
    pub(crate) fn step_send(&mut self, index: usize) {
        if self.rails[index].as_ref().is_some_and(|rail| rail.packets.is_some()) {
            return self.step_packets(index);
        }
        while self.step_seal(index) {}
        let now = self.platform.now_ns();
        let rail = self.rails[index].as_mut().expect("the loop looked");
        if rail.sending {
            return self.send_on(index, now);
        }
        let Some(front) = rail.sealed.front() else { return };
        // What goes unread goes in one.
        let (bytes, whole) = (front.len(), front.bare.is_some());
        let granted = if whole { rail.may_pass_slice(now, bytes) } else { rail.may_pass(now, bytes) };
        let Some(granted) = granted else { return };
        rail.granted = granted;
        let frame = rail.sealed.pop_front().expect("seen above");
        rail.sending = true;
        rail.ops += 1;
        let slot = Slot {
            kind: Kind::Send,
            rail: index,
            at: frame.span.at,
            done: 0,
            len: bytes,
            load: Load::Frame { chunk: frame.chunk, payload: frame.payload },
        };
        let socket = rail.socket.clone();
        let token = self.slots.put(slot);
        let (at, len) = (frame.span.at, frame.span.len);
        if let Some(bare) = frame.bare {
            let (file, offset, bytes) = (bare.file.clone(), bare.offset, bare.bytes as usize);
            rail.bare = Some(bare);
            rail.loan.lending = false;
            let mem = Mem::Buf(frame.buf);
            return self.platform.submit(token, Op::SendFile { socket, mem, at, len, file, offset, bytes });
        }
        // What is lent comes back a round trip later: half of the bufs stay for reading ahead.
        let pool = self.platform.pool();
        let lend = rail.loan.lends && pool.free() * 2 >= pool.count();
        rail.loan.lending = lend;
        let len = len.min(rail.granted);
        self.platform.submit(token, Op::Send { socket, mem: Mem::Buf(frame.buf), at, len, lend });
    }

    /// The rest of a frame that waited for the bound.
    fn send_on(&mut self, index: usize, now: u64) {
        if let Some((slot, mem)) = self.next_slice(index, now) {
            self.send_rest(slot, mem);
        }
    }

    /// What is left of the frame in hand, if the bound lets some of it pass now: `granted` says how much.
    fn next_slice(&mut self, index: usize, now: u64) -> Option<(Slot, Mem)> {
        let rail = self.rails[index].as_mut().expect("the loop looked");
        let rest = rail.part.as_ref().map(|(slot, _)| slot.len - slot.done)?;
        rail.granted = rail.may_pass(now, rest)?;
        rail.ops += 1;
        rail.part.take()
    }

    /// Sends of a frame what the bound has let go.
    fn send_rest(&mut self, slot: Slot, mem: Mem) {
        let rail = self.rail(&slot);
        let (socket, lend) = (rail.socket.clone(), rail.loan.lending);
        let (at, len) = (slot.at + slot.done, (slot.len - slot.done).min(rail.granted));
        let token = self.slots.put(slot);
        self.platform.submit(token, Op::Send { socket, mem, at, len, lend });
    }

    fn step_seal(&mut self, index: usize) -> bool {
        let rail = self.rails[index].as_mut().expect("the loop looked");
        if rail.sealed.len() >= SEALED_AHEAD {
            return false;
        }
        let Some(filled) = rail.filled.pop_front() else { return false };
        let payload = filled.files_bytes();
        let (mut header, file_bytes) = filled.header();
        let mut buf = filled.buf;
        let Header { kind, chunk, entry, offset, .. } = header;
        let how = hash_as(&header, file_bytes, rail.terms.chunk_bytes);
        self.laps.lap(Stage::Loop);
        let is_bare = kind == ChunkKind::Range
            && rail.terms.cover == Cover::Bare
            && rail.goes_whole(HEADROOM + filled.bytes as usize);
        let sealer = rail.sealer.as_mut().expect("a stream rail");
        if is_bare
            && rail.loan.lends
            && !rail.reads_all
            && let Some(file) = filled.from
        {
            let span = sealer.seal_bare(&header, &mut buf);
            let bare = Some(Bare { file, entry, offset, bytes: filled.bytes });
            rail.sealed.push_back(Frame { chunk, buf, span, payload, bare });
            self.laps.lap(Stage::Seal);
            return true;
        }
        let platform = &mut self.platform;
        let touch = |touch, at: usize, piece: &mut [u8]| {
            match (touch, &filled.from) {
                (Touch::Fill, Some(file)) => return read_piece(platform, file, offset + at as u64, piece),
                (Touch::Harm, _) => platform.harm(Harm::SourceBuf, piece),
                _ => {}
            }
            Ok(())
        };
        let span = match sealer.seal_filling(&mut header, how, &mut buf, &mut self.laps, touch) {
            Ok(span) => span,
            Err(error) => {
                self.drop_filled(index, &filled.handout, buf, &error);
                return true;
            }
        };
        if kind == ChunkKind::Range {
            let seat = self.seats.get_mut(&rail.job).expect("rails go before their job");
            // With crc64 the digest is the CRC itself; the header has both.
            seat.part.post.put(Event::Read { chunk, entry, offset, digest: header.digest });
        }
        rail.sealed.push_back(Frame { chunk, buf, span, payload, bare: None });
        true
    }

    /// A send came back: go on with the rest, or the frame is gone.
    pub(crate) fn on_sent(&mut self, slot: Slot, done: Done) {
        let (mut slot, done) = match self.rail(&slot).bare.take() {
            Some(bare) => match self.on_bare(slot, done, bare) {
                Some(ended) => ended,
                None => return,
            },
            None => (slot, done),
        };
        let moved = match done.result {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Ok(moved) => Ok(moved),
            Err(error) if is_again(&error) => Ok(0),
            Err(error) => Err(error),
        };
        if self.rail(&slot).loan.lending {
            self.laps.spared.lent += moved.as_ref().map_or(0, |bytes| *bytes as u64);
        }
        let rail = self.rail(&slot);
        match moved {
            Err(error) => {
                rail.sending = false;
                rail.ops -= 1;
                match done.mem {
                    // Part of it may have been lent.
                    Mem::Buf(buf) if rail.loan.lending => {
                        rail.loan.lent.push_back(Lent { end: u64::MAX, count: u64::MAX, buf })
                    }
                    mem => self.give(mem),
                }
                // Cut: the receive that watches for the peer's close must come back as well.
                self.break_off(slot.rail, RailEnd::Fault(error));
            }
            Ok(moved) if slot.done + moved < slot.len && !rail.has_ended() => {
                slot.done += moved;
                rail.granted = rail.granted.saturating_sub(moved);
                if rail.granted > 0 {
                    return self.send_rest(slot, done.mem);
                }
                rail.ops -= 1;
                rail.part = Some((slot, done.mem));
            }
            Ok(moved) => {
                let whole = slot.done + moved == slot.len;
                rail.sending = false;
                rail.ops -= 1;
                rail.loan.frames += 1;
                rail.loan.stream_bytes += slot.len as u64;
                let (job, number) = (rail.job, rail.rail);
                match done.mem {
                    Mem::Buf(buf) if rail.loan.lending => {
                        rail.loan.lent.push_back(Lent { end: rail.loan.stream_bytes, count: rail.loan.frames, buf });
                    }
                    mem => self.give(mem),
                }
                if let (true, Load::Frame { chunk, payload }) = (whole, slot.load) {
                    let seat = self.seats.get_mut(&job).expect("rails go before their job");
                    seat.part.post.put(Event::Sent { rail: number, chunk, bytes: slot.len as u64, payload });
                }
            }
        }
    }

    /// A frame went whose payload was not read here, or could not go so: then it is read, and goes as others do.
    fn on_bare(&mut self, slot: Slot, done: Done, bare: Bare<P::File>) -> Option<(Slot, Done)> {
        let Load::Frame { chunk, .. } = slot.load else { unreachable!("frames are sent") };
        let (job, whole) = (self.rail(&slot).job, slot.len);
        let (result, missing) = match done.result {
            Err(error)
                if matches!(error.raw_os_error(), Some(EINVAL | EOPNOTSUPP))
                    || error.kind() == io::ErrorKind::Unsupported =>
            {
                let Mem::Buf(mut buf) = done.mem else { unreachable!("frames are in bufs") };
                let payload = &mut buf.payload_mut()[..bare.bytes as usize];
                let read = read_piece(&self.platform, &bare.file, bare.offset, payload);
                if read.is_err() {
                    payload.fill(0); // its header is sealed, so it goes; and nothing else that stood here
                }
                self.tell_bare(job, chunk, &bare, read.err());
                let rail = self.rail(&slot);
                rail.reads_all = true;
                let (socket, at, len) = (rail.socket.clone(), slot.at, slot.len);
                let token = self.slots.put(slot);
                self.platform.submit(token, Op::Send { socket, mem: Mem::Buf(buf), at, len, lend: false });
                return None;
            }
            Ok(moved) if moved < whole => (Ok(whole), Some(io::ErrorKind::UnexpectedEof.into())),
            other => (other, None),
        };
        if result.is_ok() {
            self.laps.spared.lent += u64::from(bare.bytes);
            self.laps.spared.unread += u64::from(bare.bytes);
            self.tell_bare(job, chunk, &bare, missing);
        }
        Some((slot, Done { result, ..done }))
    }

    fn tell_bare(&mut self, job: JobNo, chunk: u64, bare: &Bare<P::File>, error: Option<io::Error>) {
        let seat = self.seats.get_mut(&job).expect("rails go before their job");
        let (entry, offset) = (bare.entry, bare.offset);
        seat.part.post.put(match error {
            // No digest: nobody looked.
            None => Event::Read { chunk, entry, offset, digest: [0; 32] },
            Some(error) => {
                let torn = error.kind() == io::ErrorKind::UnexpectedEof;
                let kind = if torn { FaultKind::Torn } else { fault_kind(&error, true) };
                let errno = error.raw_os_error().unwrap_or(0);
                Event::Torn { chunk, error: EntryError { entry, kind, errno, step: "send the source" } }
            }
        });
    }

    /// Recv: ask for the next header, or for the payload of the one that came.
    pub(crate) fn step_recv(&mut self, index: usize) {
        if self.rails[index].as_ref().is_some_and(|rail| rail.packets.is_some()) {
            return;
        }
        let now = self.platform.now_ns();
        let rail = self.rails[index].as_mut().expect("the loop looked");
        match std::mem::replace(&mut rail.taking, Taking::Busy) {
            Taking::Nothing => {
                rail.taking = Taking::Nothing;
                self.watch_close(index);
            }
            Taking::Busy => self.take_on(index, now),
            Taking::Idle => {
                rail.taking = Taking::Idle;
                if rail.hold {
                    return;
                }
                rail.taking = Taking::Busy;
                self.ask_head(index);
            }
            Taking::Hungry(header) => {
                let tags = tag_count(rail.terms.cover.of(header.kind), header.payload_bytes as usize) * TAG_BYTES;
                let (at, len) = (HEADROOM - tags, tags + header.payload_bytes as usize);
                rail.taking = Taking::Hungry(header);
                // What comes slice by slice has its buf for long: a part of them stays for the others.
                let pool = self.platform.pool();
                let goes_whole = rail.goes_whole(SEALED_HEADER_BYTES + len);
                let least = if goes_whole { 0 } else { pool.count() / 4 };
                // The last of the small ones' is a sender's: who sends has what it sends.
                let as_small = goes_whole && u64::from(header.payload_bytes) <= SMALL_BYTES && pool.small_free() > 1;
                if pool.free() <= least && !as_small {
                    return;
                }
                let Some(granted) = rail.may_pass(now, SEALED_HEADER_BYTES + len) else { return };
                rail.granted = granted - SEALED_HEADER_BYTES;
                let first = len.min(rail.granted);
                rail.taking = Taking::Busy;
                let pool = self.platform.pool();
                let buf = if pool.free() > least { pool.take() } else { pool.take_small() };
                let buf = buf.expect("seen to be there");
                rail.ops += 1;
                let socket = rail.socket.clone();
                let slot = Slot { kind: Kind::Payload, rail: index, at, done: 0, len, load: Load::Header(header) };
                let token = self.slots.put(slot);
                self.platform.submit(token, Op::Recv { socket, mem: Mem::Buf(buf), at, len: first });
            }
        }
    }

    /// The rest of a payload that waited for the bound.
    fn take_on(&mut self, index: usize, now: u64) {
        if let Some((slot, mem)) = self.next_slice(index, now) {
            self.take_rest(slot, mem);
        }
    }

    /// Takes of a payload what the bound has let go.
    fn take_rest(&mut self, slot: Slot, mem: Mem) {
        let rail = self.rail(&slot);
        let socket = rail.socket.clone();
        let (at, len) = (slot.at + slot.done, (slot.len - slot.done).min(rail.granted));
        let token = self.slots.put(slot);
        self.platform.submit(token, Op::Recv { socket, mem, at, len });
    }

    /// A sending rail asks for the receiver's counts of frames: so it also learns at once when the peer goes.
    fn watch_close(&mut self, index: usize) {
        if self.rails[index].as_ref().is_some_and(|rail| rail.head.is_some()) {
            self.ask_small(index, TAKEN_BYTES);
        }
    }

    /// The receiver has taken so many frames: what was lent of them is ours again, if its kernel says so too. A count that anybody in
    /// between could forge must not let the next chunk's plain bytes be sent in the place of this one's sealed ones.
    fn on_taken(&mut self, index: usize, count: u64) -> Result<(), Breach> {
        let rail = self.rails[index].as_mut().expect("the caller has it");
        // A frame counts here when its send is done, which may be told after the peer's word.
        if count <= rail.loan.told || count > rail.loan.frames + u64::from(rail.sending) {
            return Err(Breach::RailDirection);
        }
        rail.loan.told = count;
        if rail.loan.lent.front().is_some_and(|lent| lent.count <= count) {
            let acknowledged = rail.loan.stream_bytes.saturating_sub(self.platform.unacknowledged(&rail.socket));
            while rail.loan.lent.front().is_some_and(|lent| lent.count <= count && lent.end <= acknowledged) {
                let lent = rail.loan.lent.pop_front().expect("seen in front");
                self.platform.pool().give(lent.buf);
            }
        }
        Ok(())
    }

    /// Tells the sender how many frames were taken whole.
    fn tell_taken(&mut self, index: usize) {
        let rail = self.rails[index].as_mut().expect("the caller has it");
        if rail.loan.told == rail.loan.frames || rail.has_ended() {
            return;
        }
        let Some(mut word) = rail.loan.word.take() else { return };
        rail.loan.told = rail.loan.frames;
        word.copy_from_slice(&rail.loan.told.to_le_bytes());
        rail.ops += 1;
        let socket = rail.socket.clone();
        let len = word.len();
        let slot = Slot { kind: Kind::Taken, rail: index, at: 0, done: 0, len, load: Load::None };
        let token = self.slots.put(slot);
        self.platform.submit(token, Op::Send { socket, mem: Mem::Small(word), at: 0, len, lend: false });
    }

    /// A count is on its way, and perhaps another is due.
    pub(crate) fn on_told(&mut self, mut slot: Slot, done: Done) {
        let rail = self.rail(&slot);
        let Mem::Small(word) = done.mem else { unreachable!("counts are sent from small memory") };
        match done.result {
            Ok(moved) if slot.done + moved < slot.len && moved > 0 && !rail.has_ended() => {
                let socket = rail.socket.clone();
                slot.done += moved;
                let (at, len) = (slot.done, slot.len - slot.done);
                let token = self.slots.put(slot);
                self.platform.submit(token, Op::Send { socket, mem: Mem::Small(word), at, len, lend: false });
            }
            // If it failed, the receive that is in flight will say why.
            _ => {
                rail.loan.word = Some(word);
                rail.ops -= 1;
                self.tell_taken(slot.rail);
            }
        }
    }

    fn ask_head(&mut self, index: usize) {
        self.ask_small(index, SEALED_HEADER_BYTES);
    }

    fn ask_small(&mut self, index: usize, len: usize) {
        let rail = self.rails[index].as_mut().expect("the loop looked");
        let head = rail.head.take().expect("one header is asked for at a time");
        rail.ops += 1;
        let socket = rail.socket.clone();
        let token = self.slots.put(Slot { kind: Kind::Head, rail: index, at: 0, done: 0, len, load: Load::None });
        self.platform.submit(token, Op::Recv { socket, mem: Mem::Small(head), at: 0, len });
    }

    /// A header (or the end of the stream) came.
    pub(crate) fn on_head(&mut self, mut slot: Slot, done: Done) {
        let moved = match done.result {
            Err(error) if is_again(&error) => Ok(0),
            Ok(0) => Err(if slot.done == 0 { RailEnd::Closed } else { RailEnd::Breach(Breach::FrameTruncated) }),
            Ok(moved) => Ok(moved),
            Err(error) => Err(RailEnd::Fault(error)),
        };
        let rail = self.rails[slot.rail].as_mut().expect("a rail stays until its ops are back");
        let Mem::Small(mut head) = done.mem else { unreachable!("headers are received in small memory") };
        let moved = match moved {
            Ok(moved) if !rail.has_ended() => moved,
            ended => {
                rail.head = Some(head);
                rail.ops -= 1;
                // Cut: a send that the peer will never take must come back as well.
                self.break_off(slot.rail, ended.err().unwrap_or(RailEnd::Cut));
                return;
            }
        };
        slot.done += moved;
        if slot.done < slot.len {
            let socket = rail.socket.clone();
            let (at, len) = (slot.done, slot.len - slot.done);
            let token = self.slots.put(slot);
            self.platform.submit(token, Op::Recv { socket, mem: Mem::Small(head), at, len });
            return;
        }
        rail.ops -= 1;
        if matches!(rail.taking, Taking::Nothing) {
            let count = u64::from_le_bytes(*head.first_chunk().expect("longer than a count"));
            rail.head = Some(head);
            if let Err(breach) = self.on_taken(slot.rail, count) {
                self.break_off(slot.rail, RailEnd::Breach(breach));
            }
            return;
        }
        let sealed: &mut [u8; SEALED_HEADER_BYTES] = (&mut *head).try_into().expect("made with this length");
        let header = rail.sealer.as_mut().expect("a stream rail").open_header(sealed);
        rail.head = Some(head);
        self.laps.lap(Stage::Seal);
        match header.and_then(|header| self.check(slot.rail, &header).map(|()| header)) {
            Ok(header) => self.rails[slot.rail].as_mut().expect("seen above").taking = Taking::Hungry(header),
            Err(breach) => self.break_off(slot.rail, RailEnd::Breach(breach)),
        }
    }

    /// A header must fit what was announced, before a byte of memory is spent on it.
    pub(crate) fn check(&self, index: usize, header: &Header) -> Result<(), Breach> {
        let rail = self.rails[index].as_ref().expect("the caller has it");
        let chunk_bytes = rail.terms.chunk_bytes;
        if header.payload_bytes > chunk_bytes || header.payload_bytes == 0 {
            return Err(Breach::PayloadTooLong);
        }
        let seat = &self.seats[&rail.job];
        if header.kind == ChunkKind::Pack {
            return Ok(());
        }
        // An entry that is no longer expected may have failed meanwhile: its chunk is taken and thrown away.
        let Some(entry) = seat.parts.entry(header.entry) else { return Ok(()) };
        if entry.bytes() <= PACK_FILE_BYTES_MAX {
            return Err(Breach::ChunkUnwanted);
        }
        let index = header.offset / u64::from(chunk_bytes);
        let fits = header.offset.is_multiple_of(u64::from(chunk_bytes))
            && header.offset < entry.bytes()
            && header.payload_bytes == chunk_len(entry.bytes(), chunk_bytes, index);
        if fits { Ok(()) } else { Err(Breach::ChunkOutOfRange) }
    }

    /// A payload came: open it and hand it to the sink.
    pub(crate) fn on_payload(&mut self, mut slot: Slot, done: Done) {
        let moved = match done.result {
            Err(error) if is_again(&error) => Ok(0),
            Ok(0) => Err(RailEnd::Breach(Breach::FrameTruncated)),
            Ok(moved) => Ok(moved),
            Err(error) => Err(RailEnd::Fault(error)),
        };
        let rail = self.rail(&slot);
        let moved = match moved {
            Ok(moved) if !rail.has_ended() => moved,
            ended => {
                rail.ops -= 1;
                rail.end(ended.err().unwrap_or(RailEnd::Cut));
                self.give(done.mem);
                return;
            }
        };
        slot.done += moved;
        if slot.done < slot.len {
            rail.granted = rail.granted.saturating_sub(moved);
            if rail.granted > 0 {
                return self.take_rest(slot, done.mem);
            }
            rail.ops -= 1;
            rail.part = Some((slot, done.mem));
            return;
        }
        rail.ops -= 1;
        rail.taking = Taking::Idle;
        rail.loan.frames += 1;
        let (Mem::Buf(buf), Load::Header(header)) = (done.mem, slot.load) else {
            unreachable!("payload is received into bufs under a header")
        };
        self.tell_taken(slot.rail);
        self.open(slot.rail, header, buf);
    }

    pub(crate) fn open(&mut self, index: usize, header: Header, mut buf: Buf) {
        // Once more: the entry may have been announced between the header and its payload.
        if let Err(breach) = self.check(index, &header) {
            self.platform.pool().give(buf);
            self.break_off(index, RailEnd::Breach(breach));
            return;
        }
        let rail = self.rails[index].as_mut().expect("the caller has it");
        let seat = self.seats.get_mut(&rail.job).expect("rails go before their job");
        let file_bytes = seat.parts.entry(header.entry).map_or(0, |entry| entry.bytes());
        let stray = header.kind == ChunkKind::Range && seat.parts.entry(header.entry).is_none();
        let how = if stray {
            HashAs { offset: 0, whole: false, crc_only: true }
        } else {
            hash_as(&header, file_bytes, rail.terms.chunk_bytes)
        };
        let into = if header.kind == ChunkKind::Range && !stray { seat.at_once(&self.platform, &header) } else { None };
        self.laps.lap(Stage::Loop);
        let platform = &mut self.platform;
        let mut written = Ok(());
        let touch = |touch, at: usize, piece: &mut [u8]| match (touch, &into) {
            (Touch::Harm, _) => platform.harm(Harm::SinkBuf, piece),
            (Touch::Drain, Some(part)) if written.is_ok() && !(part.sparse && is_zero(piece)) => {
                written = write_piece(platform, &part.file, header.offset + at as u64, piece);
            }
            _ => {}
        };
        let opened = match &mut rail.sealer {
            Some(sealer) => sealer.open_draining(&header, how, &mut buf, &mut self.laps, touch),
            None => check_draining(&rail.terms, &header, how, &mut buf, &mut self.laps, touch),
        };
        if let Some(part) = into {
            return self.land_at_once(index, header, opened, written, &part.file, buf);
        }
        let post = &mut seat.part.post;
        match opened {
            _ if stray => {
                post.put(Event::Stray { chunk: header.chunk, entry: header.entry });
                self.platform.pool().give(buf);
            }
            Err(corrupt) => {
                // A pack's header counts files where a range's names one.
                let entry = if header.kind == ChunkKind::Pack { EntryId::MAX } else { header.entry };
                post.put(Event::Corrupt { chunk: header.chunk, entry, corrupt });
                self.platform.pool().give(buf);
            }
            Ok(hashed) => match header.kind {
                ChunkKind::Range => self.land_range(index, header, hashed.digest, buf),
                ChunkKind::Pack => self.land_pack(index, header, buf),
            },
        }
    }

    /// Ends a rail for a reason of ours.
    pub(crate) fn break_off(&mut self, index: usize, end: RailEnd) {
        let rail = self.rails[index].as_mut().expect("the caller has it");
        rail.end(end);
        self.platform.cut(&rail.socket);
    }

    pub(crate) fn give(&mut self, mem: Mem) {
        if let Mem::Buf(buf) = mem {
            self.platform.pool().give(buf);
        }
    }
}

/// Fills a piece from a file that is read at once. A file that ends early is torn.
pub(crate) fn read_piece<P: Platform>(platform: &P, file: &P::File, offset: u64, piece: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < piece.len() {
        match platform.read_at_once(file, offset + done as u64, &mut piece[done..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(moved) => done += moved,
            Err(error) if is_again(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Puts bytes into a file that is written at once.
pub(crate) fn write_piece<P: Platform>(platform: &P, file: &P::File, offset: u64, piece: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < piece.len() {
        match platform.write_at_once(file, offset + done as u64, &piece[done..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(moved) => done += moved,
            Err(error) if is_again(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Was nothing moved for a passing reason?
pub(crate) fn is_again(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}
