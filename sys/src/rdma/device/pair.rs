//! One queue pair: work posted, completions taken, and its end.
//!
//! For: `device`. Invariants: completions of sends come in the order of their posts; whoever dies has its queue pair destroyed before its bufs are
//! given back, since until then the device may read them; whoever dialled sends first.
//!
//! The last is iWARP's rule (RFC 5044, 7.1): what the acceptor sends before the initiator's end of the connection has changed over to messages is
//! lost, or breaks it. An acceptor that receives frames has credits to tell and hears nothing before them. So one that dials and sends frames sends a
//! word first (its *opening*), and the acceptor answers the request when it has something to say, which is when it has posted receives, and says it
//! when the opening came. That has one of these receives, which is posted again at once.

use std::collections::VecDeque;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::super::ffi::{self, event};
use super::super::{Completion, Receives, Word};
use super::link::{Link, failed};
use super::own::{Own, answer};
use super::{Limits, Region, Shared};
use crate::event::Event;
use crate::mem::Buf;

/// Sends that are with the device at once; others wait here.
const SENDS: usize = 64;
/// Words that may come before they are looked at: one for each credit batch, of which fewer are under way.
const WORDS: usize = 64;
/// A pair that is not connected after so long is dead.
const CONNECT: Duration = Duration::from_secs(10);
/// Completions that are fetched with one call.
const BATCH: usize = 16;

/// Which queue a completion is of: one with an error tells nothing else.
const OF_WORD: u64 = 1 << 62;
const OF_SEND: u64 = 1 << 63;

/// What is sent.
#[derive(Debug)]
pub(super) enum What {
    Frame { token: u64, buf: Buf, at: usize, len: usize },
    Word(Word),
}

/// What the device has to send.
#[derive(Debug)]
enum InFlight {
    Frame {
        token: u64,
        buf: Buf,
        _own: Option<Region>,
    },
    /// In this slot.
    Word(usize),
}

/// Memory for words: as many that come, then as many that go.
#[derive(Debug)]
struct Words {
    region: Region,
    memory: Box<[Word]>,
    free: Vec<usize>,
}

impl Words {
    fn new(pd: &Own<ffi::Pd>) -> io::Result<Words> {
        let mut memory = vec![[0; 8]; WORDS + SENDS].into_boxed_slice();
        let region = Region::new(pd, memory.as_mut_ptr().cast(), size_of_val(&*memory))?;
        Ok(Words { region, memory, free: (WORDS..WORDS + SENDS).collect() })
    }

    fn part(&mut self, slot: usize) -> ffi::Sge {
        let addr = (&raw mut self.memory[slot]) as u64;
        ffi::Sge { addr, length: size_of::<Word>() as u32, lkey: self.region.key() }
    }

    /// What came into a slot: the device wrote it.
    fn read(&self, slot: usize) -> Word {
        // SAFETY: in bounds (indexing); the device has told that it is done with this slot, and gets it anew afterwards.
        unsafe { std::ptr::read_volatile(&raw const self.memory[slot]) }
    }
}

/// What the dialling end sends before anything else, where it sends frames and the other end has to speak before it gets one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    /// None, or it came.
    Done,
    /// As soon as the pair is connected.
    ToSend,
    /// The request is answered with the first post, and what was posted goes when the opening came.
    ToAnswer,
    ToCome,
}

/// How far a pair is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Connects,
    Up,
    Dead,
}

#[derive(Debug)]
pub(super) struct Pair {
    // In the order in which they end: the queue pair with its link, then what it told of itself in, then its memory.
    link: Link,
    cq: Own<ffi::Cq>,
    bell: Own<ffi::CompChannel>,
    words: Words,
    /// All of its descriptors; the pair's name.
    set: Arc<OwnedFd>,
    /// The time in which it has to be connected; then it wakes for good when the pair died.
    timer: OwnedFd,
    died: Event,
    receives: Receives,
    state: State,
    opening: Opening,
    waiting: VecDeque<What>,
    posted: VecDeque<InFlight>,
    done: VecDeque<Completion>,
    /// A completion said so.
    broken: Option<io::Error>,
    /// A receive of the shared queue may have been in use when it died.
    may_hold_receive: bool,
}

fn flushed() -> io::Error {
    io::Error::from_raw_os_error(libc::ECANCELED)
}

fn bell_fd(bell: &Own<ffi::CompChannel>) -> BorrowedFd<'_> {
    // SAFETY: the channel is alive as long as its owner.
    let fd = unsafe { (*bell.at()).fd };
    // SAFETY: open until the channel is destroyed, which its owner's end is.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

impl Pair {
    /// Makes the queues of a link and connects, or accepts. `queue`: the shared one if it receives frames, and how many receives that has at most.
    pub(super) fn new(
        link: Link,
        receives: Receives,
        queue: (*mut ffi::Srq, usize),
        limits: Limits,
        pd: &Own<ffi::Pd>,
    ) -> io::Result<Pair> {
        let context = link.context();
        // SAFETY: the context is open.
        let bell = Own::new(unsafe { ffi::ibv_create_comp_channel(context) }, ffi::ibv_destroy_comp_channel)?;
        let flags = rustix::fs::fcntl_getfl(bell_fd(&bell))?;
        rustix::fs::fcntl_setfl(bell_fd(&bell), flags | rustix::fs::OFlags::NONBLOCK)?;
        let (srq, most) = queue;
        let entries =
            (SENDS + if receives == Receives::Words { WORDS } else { most }).min(limits.completions as usize) as i32;
        let none = std::ptr::null_mut();
        // SAFETY: context and channel are alive.
        let cq = Own::new(unsafe { ffi::ibv_create_cq(context, entries, none, bell.at(), 0) }, ffi::ibv_destroy_cq)?;
        let words = Words::new(pd)?;
        let works = (SENDS as u32).min(limits.works);
        let (receive_works, receive_parts) = if receives == Receives::Words { (WORDS as u32, 1) } else { (0, 0) };
        let cap = ffi::QpCap {
            max_send_wr: works,
            max_recv_wr: receive_works,
            max_send_sge: 1,
            max_recv_sge: receive_parts,
            max_inline_data: 0,
        };
        let mut attr = ffi::QpInitAttr {
            qp_context: none,
            send_cq: cq.at(),
            recv_cq: cq.at(),
            srq,
            cap,
            qp_type: ffi::IBV_QPT_RC,
            sq_sig_all: 1,
        };
        // SAFETY: id, domain, completion queue and shared queue are alive, and on the same device; they outlive the pair (fields in that order).
        answer(unsafe { ffi::rdma_create_qp(link.id(), pd.at(), &raw mut attr) })?;
        let set = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let died = Event::new()?;
        for fd in [bell_fd(&bell), link.channel().as_fd(), timer.as_fd(), died.as_fd()] {
            epoll::add(&*set, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        let opening = match (link.dials(), receives) {
            (true, Receives::Words) => Opening::ToSend,
            (false, Receives::Frames) => Opening::ToAnswer,
            _ => Opening::Done,
        };
        let mut pair = Pair {
            link,
            cq,
            bell,
            words,
            set,
            timer,
            died,
            receives,
            state: State::Connects,
            opening,
            waiting: VecDeque::new(),
            posted: VecDeque::new(),
            done: VecDeque::new(),
            broken: None,
            may_hold_receive: false,
        };
        pair.set_timer(CONNECT)?;
        if receives == Receives::Words {
            (0..WORDS).try_for_each(|slot| pair.receive_word(slot))?;
        }
        if pair.opening != Opening::ToAnswer {
            pair.link.go()?;
        }
        Ok(pair)
    }

    /// Zero: it rests.
    fn set_timer(&self, after: Duration) -> io::Result<()> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let at = Timespec { tv_sec: after.as_secs() as i64, tv_nsec: i64::from(after.subsec_nanos()) };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: zero, it_value: at })?;
        Ok(())
    }

    pub(super) fn name(&self) -> RawFd {
        self.set.as_raw_fd()
    }

    pub(super) fn descriptor(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.set)
    }

    /// May it take receives out of the shared queue?
    pub(super) fn uses_queue(&self) -> bool {
        self.receives == Receives::Frames && self.state != State::Dead
    }

    fn ops(&self) -> &ffi::ContextOps {
        // SAFETY: contexts of rdma_cm stay open as long as the process, and their table is not changed.
        unsafe { &(*self.link.context()).ops }
    }

    fn receive_word(&mut self, slot: usize) -> io::Result<()> {
        let mut sge = self.words.part(slot);
        let wr_id = OF_WORD | slot as u64;
        let mut work = ffi::RecvWr { wr_id, next: std::ptr::null_mut(), sg_list: &raw mut sge, num_sge: 1 };
        let (qp, mut bad) = (self.link.queue_pair(), std::ptr::null_mut());
        let post = self.ops().post_recv;
        // SAFETY: the queue pair is alive; the work is read in the call; the slot's memory stays until the queue pair is gone.
        answer(unsafe { post(qp, &raw mut work, &raw mut bad) })
    }

    pub(super) fn post(&mut self, shared: &mut Shared, what: What) {
        if self.state == State::Dead {
            // After `Down` nobody asks any more: it stands before it.
            let down = self.done.pop_back();
            self.done.extend(unsent(what));
            return self.done.extend(down);
        }
        if self.opening == Opening::ToAnswer {
            self.opening = Opening::ToCome;
            if let Err(error) = self.link.go() {
                self.broken = Some(error);
                self.wake();
            }
        }
        self.waiting.push_back(what);
        self.post_waiting(shared);
    }

    /// As much as the device takes.
    fn post_waiting(&mut self, shared: &mut Shared) {
        while self.state == State::Up && self.broken.is_none() && self.posted.len() < SENDS {
            let Some(what) = self.waiting.pop_front() else { return };
            if let Err(error) = self.send(shared, what) {
                self.broken = Some(error);
                self.wake();
            }
        }
    }

    fn send(&mut self, shared: &mut Shared, what: What) -> io::Result<()> {
        let (posted, mut sge) = match what {
            What::Frame { token, buf, at, len } => {
                // SAFETY: the part lies in the buf, as `Adapter::post_send` has checked.
                let start = unsafe { buf.start().add(at) };
                let key = shared.key(&buf, at, len);
                let (lkey, own) = match key {
                    Ok(it) => it,
                    Err(error) => {
                        self.done.push_back(Completion::Sent { token, buf, result: Err(flushed()) });
                        return Err(error);
                    }
                };
                (InFlight::Frame { token, buf, _own: own }, ffi::Sge { addr: start as u64, length: len as u32, lkey })
            }
            What::Word(word) => {
                let slot = self.words.free.pop().expect("as many as sends");
                self.words.memory[slot] = word;
                (InFlight::Word(slot), self.words.part(slot))
            }
        };
        let mut work = ffi::SendWr {
            wr_id: OF_SEND,
            next: std::ptr::null_mut(),
            sg_list: &raw mut sge,
            num_sge: 1,
            opcode: ffi::IBV_WR_SEND,
            send_flags: ffi::IBV_SEND_SIGNALED,
            imm_data: 0,
            rest: [0; 11],
        };
        let (qp, mut bad) = (self.link.queue_pair(), std::ptr::null_mut());
        let post = self.ops().post_send;
        // Before the call: from then on the device reads it.
        self.posted.push_back(posted);
        // SAFETY: the queue pair is alive; the work is read in the call; the memory it names stays in `posted` until its completion.
        let sent = answer(unsafe { post(qp, &raw mut work, &raw mut bad) });
        if sent.is_err() {
            self.finish_send(Err(flushed()), true);
        }
        sent
    }

    /// The oldest send (or the newest, which was not taken) is over.
    fn finish_send(&mut self, result: io::Result<()>, newest: bool) {
        match if newest { self.posted.pop_back() } else { self.posted.pop_front() } {
            Some(InFlight::Frame { token, buf, .. }) => self.done.push_back(Completion::Sent { token, buf, result }),
            Some(InFlight::Word(slot)) => self.words.free.push(slot),
            None => {}
        }
    }

    /// All completions that the device has told.
    fn collect(&mut self, shared: &mut Shared) {
        let poll_cq = self.ops().poll_cq;
        // SAFETY: plain numbers, for which zeros are a value.
        let mut told: [ffi::Wc; BATCH] = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: the completion queue is alive; at most BATCH completions are written to `told`.
            let count = unsafe { poll_cq(self.cq.at(), BATCH as i32, told.as_mut_ptr()) };
            let count = usize::try_from(count).unwrap_or(0).min(BATCH);
            for wc in &told[..count] {
                self.on_completion(shared, wc);
            }
            if count < BATCH {
                return;
            }
        }
    }

    fn on_completion(&mut self, shared: &mut Shared, wc: &ffi::Wc) {
        let is_good = wc.status == 0;
        if !is_good && self.broken.is_none() {
            self.broken = Some(status_words(wc.status));
        }
        if wc.wr_id & OF_SEND != 0 {
            self.finish_send(if is_good { Ok(()) } else { Err(flushed()) }, false);
        } else if wc.wr_id & OF_WORD != 0 {
            let slot = (wc.wr_id & !OF_WORD) as usize;
            if is_good && wc.byte_len as usize == size_of::<Word>() {
                self.done.push_back(Completion::Word(self.words.read(slot)));
                if let Err(error) = self.receive_word(slot) {
                    self.broken.get_or_insert(error);
                }
            } else if is_good {
                self.broken.get_or_insert(io::ErrorKind::InvalidData.into());
            }
        } else if let Some(buf) = shared.take(wc.wr_id as usize) {
            if is_good && self.opening == Opening::ToCome {
                self.on_opening(wc.byte_len as usize);
                shared.post(buf);
            } else if is_good && wc.byte_len > 0 {
                self.done.push_back(Completion::Frame { buf, bytes: wc.byte_len as usize });
            } else {
                // It was out of the queue and was not used: another may.
                self.may_hold_receive = false;
                shared.post(buf);
            }
        }
    }

    /// The first message of the dialling end: from here on this one may speak.
    fn on_opening(&mut self, bytes: usize) {
        self.opening = Opening::Done;
        if bytes == size_of::<Word>() {
            self.up();
        } else {
            self.broken.get_or_insert(io::ErrorKind::InvalidData.into());
        }
    }

    fn up(&mut self) {
        self.state = State::Up;
        if let Err(error) = self.set_timer(Duration::ZERO) {
            self.broken.get_or_insert(error);
        }
    }

    /// What rdma_cm has to say. Errors: why the pair is over; `None`: the peer took leave.
    fn hear(&mut self) -> Result<(), Option<io::Error>> {
        while let Some(said) = self.link.channel().next()? {
            match said.kind {
                // Whoever waits for the opening is up when that came.
                event::ESTABLISHED if self.opening == Opening::ToCome => {}
                event::ESTABLISHED => {
                    if self.opening == Opening::ToSend {
                        self.opening = Opening::Done;
                        self.waiting.push_front(What::Word([0; 8]));
                    }
                    self.up();
                }
                event::DISCONNECTED => return Err(None),
                event::TIMEWAIT_EXIT | event::ADDR_CHANGE => {}
                _ => return Err(Some(failed(&said))),
            }
        }
        if self.state == State::Connects && rustix::io::read(&self.timer, &mut [0; 8]).is_ok() {
            return Err(Some(io::Error::new(io::ErrorKind::TimedOut, "the peer did not connect the queue pair")));
        }
        Ok(())
    }

    /// The completion channel is readable from now on when there is one more completion. What it said so far is taken.
    fn arm(&mut self) -> io::Result<()> {
        let (mut cq, mut of) = (std::ptr::null_mut(), std::ptr::null_mut());
        loop {
            // SAFETY: the channel is alive, and never blocks; the queue's address is written to locals.
            let code = unsafe { ffi::ibv_get_cq_event(self.bell.at(), &raw mut cq, &raw mut of) };
            if answer(code).is_err() {
                break;
            }
            // SAFETY: got just now, of this pair's queue, the only one on the channel.
            unsafe { ffi::ibv_ack_cq_events(self.cq.at(), 1) };
        }
        let notify = self.ops().req_notify_cq;
        // SAFETY: the completion queue is alive.
        answer(unsafe { notify(self.cq.at(), 0) })
    }

    pub(super) fn poll(&mut self, shared: &mut Shared) -> Option<Completion> {
        let mut is_armed = false;
        loop {
            if let Some(next) = self.done.pop_front() {
                return Some(next);
            }
            if self.state == State::Dead {
                return None;
            }
            self.collect(shared);
            self.post_waiting(shared);
            if let Some(error) = self.broken.take() {
                self.die(shared, Some(error));
                continue;
            }
            if !self.done.is_empty() {
                continue;
            }
            if is_armed {
                return None;
            }
            // After it was armed the queue is looked at once more: what came between would tell nobody.
            let heard = self.hear().and_then(|()| self.arm().map_err(Some));
            match heard {
                Ok(()) => is_armed = true,
                Err(why) => self.die(shared, why),
            }
            self.post_waiting(shared);
        }
    }

    /// Everything that was posted comes back, then the word that the pair is down.
    pub(super) fn die(&mut self, shared: &mut Shared, why: Option<io::Error>) {
        if self.state == State::Dead {
            return;
        }
        self.may_hold_receive = self.receives == Receives::Frames;
        // What came before is still told.
        self.collect(shared);
        self.link.leave();
        self.collect(shared);
        // Before any buf goes home: the device touches none of them from here on.
        self.link.end_queues();
        self.collect(shared);
        self.state = State::Dead;
        while !self.posted.is_empty() {
            self.finish_send(Err(flushed()), false);
        }
        self.done.extend(self.waiting.drain(..).filter_map(unsent));
        self.done.push_back(Completion::Down(why));
        self.wake();
    }

    /// The pair's descriptor is readable from now on.
    fn wake(&self) {
        self.died.signal();
    }

    /// Whatever it still has goes home. Returns how many receives of the shared queue it may have taken with it.
    pub(super) fn give_rest(self, give: &mut dyn FnMut(Buf)) -> usize {
        for completion in self.done {
            if let Completion::Sent { buf, .. } | Completion::Frame { buf, .. } = completion {
                give(buf);
            }
        }
        usize::from(self.may_hold_receive)
    }
}

fn unsent(what: What) -> Option<Completion> {
    match what {
        What::Frame { token, buf, .. } => Some(Completion::Sent { token, buf, result: Err(flushed()) }),
        What::Word(_) => None,
    }
}

/// A completion's error, in the library's words.
fn status_words(status: i32) -> io::Error {
    // SAFETY: it answers for every number, with a text that lives as long as the program.
    let text = unsafe { ffi::ibv_wc_status_str(status) };
    // SAFETY: as above: ended by a zero.
    let text = unsafe { CStr::from_ptr(text) };
    io::Error::other(format!("the RDMA device says: {}", text.to_string_lossy()))
}
