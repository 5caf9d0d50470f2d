//! The daemon's one TCP port: who connects, what for, and how long they may stay unauthenticated.
//!
//! For: telling control sessions (TLS, first byte 0x16) from rails (first byte `L`), and surviving everybody else.
//! In and out: a bound port → links whose peer proved a key and asks for something, each on a thread of its own, and rails with their greeting,
//!   handed over by the accepting thread; some of these say a word more before they are authenticated, see `Proving`.
//! Invariants: whoever has proved nothing has no thread: greetings are read and handshakes turned by the accepting thread, a few between looks at
//!   the others; at most `PLACES_MAX` are unauthenticated and `ROOMS_MAX` in rooms, none for longer than `PROVE`; who is heard next and who gives way
//!   is admission.rs's to say. A rail costs 64 bytes until its greeting is whole, a session its greeting (`HELLO_BYTES_MAX`) until it is answered,
//!   and then what TLS holds for a handshake.
//! Absent on purpose: who may do what (the handlers ask `identity`), the greeting's MAC (the job knows the key), limits on
//!   clients that were let in.
//!
//! ```text
//! stranger:  Silent ── 0x16 ─→ Hello ── whole ─→ Asking ── its turn ─→ Answered ── key proved ─→ Proven ── Hello and one frame more ─→ Pleading
//!               ├───── 'L' ──→ Rail ── 64 bytes ─→ handler [─→ Proving ── a word ─→ handler | Early ── a job more ─→ handler]                      a room is free ─→ thread: handler
//!               └───── else, PROVE over, pushed out ─→ closed                                        Link::admitted ─→ no longer counted
//! ```

mod admission; // who is heard next, who gives way

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use proto::wire::chunk::{GREETING_BYTES, Greeting};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::event::Event;

use crate::identity::{Identity, PublicKey};
use crate::job::keys::COUNT_BYTES;
use crate::link::{Accepting, Hellos, Link};
use admission::{Admission, Network, Stage, network};

/// Connections that have not proved themselves, at most: one of each of a thousand networks, and half as many more. Each costs what the kernel
/// has for a connection and 12 to 40 kB of a handshake.
pub const PLACES_MAX: usize = 1536;
/// And at least, where the process may have few descriptors; else at most half of those.
const PLACES_MIN: usize = 256;
/// Clients that proved a key and asked for something may have so many threads until they are let in or refused.
pub const ROOMS_MAX: usize = 128;
/// How long a stranger may take to prove itself.
pub const PROVE: Duration = Duration::from_secs(10);
/// Even when others wait, a room is left alone so long: all that its client is asked was said before it got the room.
const ROOM_GRACE: Duration = Duration::from_millis(250);
/// Accepted in one go before the unauthenticated ones are looked at again: below `PLACES_MIN`, so that one who speaks at once is heard before a
/// flood can push it out; and many, since who waits in the kernel's queue cannot be told from the flood.
const ACCEPTS_PER_LOOK: usize = 192;
/// Greetings answered in one go, at about 0.3 ms each (X25519 with ML-KEM-768, Ed25519).
const ANSWERS_PER_LOOK: usize = 8;
/// A TLS greeting of ours has 1.4 kB.
const HELLO_BYTES_MAX: usize = 4096;
/// Header of a TLS record: type, version, length (RFC 8446 section 5.1).
const RECORD_HEAD_BYTES: usize = 5;
/// Frames of a client that asks for something: its own version, and a proof or a request.
const FRAMES_PLEADING: usize = 2;
/// Who is not let in says no more than this before it is looked at; a frame's whole length is not waited for.
const PLEA_BYTES_MAX: u64 = 16 << 10;
/// Pause when the process has no descriptors left: others must end first.
const OUT_OF_FILES_PAUSE: Duration = Duration::from_millis(100);
/// Mistakes of ours that the accepting thread goes on after, each after a pause: what is wrong each time would be wrong for ever.
const MISTAKES_MAX: u32 = 100;
const AFTER_MISTAKE: Duration = Duration::from_millis(50);
/// First byte of a TLS record that carries a handshake (RFC 8446 section 5.1).
const TLS_HANDSHAKE: u8 = 0x16;

/// What came to the port, for status and logs. One writer per field, read at any time.
#[derive(Debug, Default)]
pub struct Counts {
    /// Connections taken.
    pub accepted: AtomicU64,
    /// Closed because their first bytes were neither TLS nor a greeting of ours.
    pub garbage: AtomicU64,
    /// Closed because `PROVE` was over.
    pub expired: AtomicU64,
    /// Closed to make room for others.
    pub pushed_out: AtomicU64,
    /// Handshakes that failed, for whatever reason.
    pub unproven: AtomicU64,
}

impl fmt::Display for Counts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [accepted, garbage, expired, pushed_out, unproven] =
            [&self.accepted, &self.garbage, &self.expired, &self.pushed_out, &self.unproven]
                .map(|field| field.load(Ordering::Relaxed));
        write!(
            out,
            "{accepted} connections; closed without a job: {garbage} spoke something else, {unproven} proved no key, \
             {expired} were too slow, {pushed_out} made room for others"
        )
    }
}

fn count(field: &AtomicU64) {
    field.fetch_add(1, Ordering::Relaxed);
}

/// Hears of a panic on the accepting thread, and whether it was one too many.
type OnMistake = Box<dyn Fn(&str, bool) + Send + Sync>;

/// A sign of life of the accepting thread.
struct Pulse {
    every: Duration,
    next: Mutex<Instant>,
    call: Box<dyn Fn() + Send + Sync>,
}

impl Pulse {
    fn next(&self) -> MutexGuard<'_, Instant> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beat(&self) {
        let (now, mut next) = (Instant::now(), self.next());
        if *next <= now {
            *next = now + self.every;
            (self.call)();
        }
    }
}

/// A bound port.
pub struct Listener {
    socket: TcpListener,
    id: Arc<Identity>,
    counts: Arc<Counts>,
    on_mistake: OnMistake,
    pulse: Option<Pulse>,
    /// Signalled when a job more awaits rails.
    awaited: Event,
    /// Greetings that came in datagrams.
    hellos: Arc<Hellos>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Listener").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl Listener {
    /// Binds.
    ///
    /// # Errors
    /// The kernel's: address in use, not ours, port below 1024 without the right.
    pub fn bind(address: SocketAddr, id: Arc<Identity>) -> io::Result<Listener> {
        Listener::over(sys::sock::listen(address)?, id)
    }

    /// On a socket that listens already.
    ///
    /// # Errors
    /// The kernel's.
    pub fn over(socket: TcpListener, id: Arc<Identity>) -> io::Result<Listener> {
        socket.set_nonblocking(true)?;
        crate::link::timers::set_first(&socket);
        crate::link::congestion::begin(&socket);
        let (counts, awaited, hellos) = (Arc::default(), Event::new()?, Arc::new(Hellos::of(Arc::clone(&id))?));
        Ok(Listener { socket, id, counts, on_mistake: Box::new(|_, _| ()), pulse: None, awaited, hellos })
    }

    /// Where datagrams of the same port go that begin a handshake: its connection comes here.
    #[must_use]
    pub fn hellos(&self) -> Arc<Hellos> {
        Arc::clone(&self.hellos)
    }

    /// Hands out greetings again that came before their job was there, each time this is signalled.
    #[must_use]
    pub fn on_awaited(mut self, awaited: Event) -> Listener {
        self.awaited = awaited;
        self
    }

    /// Calls this on the accepting thread, this often: whoever hears it knows that connections are being accepted. A thread that is stuck does not call.
    #[must_use]
    pub fn on_turn(mut self, every: Duration, call: impl Fn() + Send + Sync + 'static) -> Listener {
        self.pulse = Some(Pulse { every, next: Mutex::new(Instant::now()), call: Box::new(call) });
        self
    }

    /// Calls this when the accepting thread panics: with why, and whether nobody is let in from now on. Then jobs that run go on, and `run` returns an
    /// error once they are over; a process that is to be started again by others ends in the call.
    #[must_use]
    pub fn on_mistake(mut self, call: impl Fn(&str, bool) + Send + Sync + 'static) -> Listener {
        self.on_mistake = Box::new(call);
        self
    }

    /// Where it listens; tells the port when 0 was asked for.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// What came so far; stays readable while `run` runs.
    #[must_use]
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Serves until `stop` is signalled, then closes the port and waits until all `control` handlers have returned.
    ///
    /// `control` runs on a thread of its own per link. It must call `Link::admitted` as soon as the peer may do something
    /// here; until then the link counts as a stranger and is shut down when `PROVE` is over.
    /// `is_known` says whether a key that was proved is on the list; it is asked only while rooms are short, and on the accepting thread.
    /// `rail` runs on the accepting thread and must not block; the stream it gets is in blocking mode. What it gives back stays unauthenticated, a
    /// stranger like any other, until its word is there.
    ///
    /// # Errors
    /// The kernel's, when the port itself is of no use any more.
    pub fn run(
        self,
        control: impl Fn(Link) + Send + Sync,
        is_known: impl Fn(&PublicKey) -> bool,
        rail: impl Fn(Rail) -> Next,
        stop: &Event,
    ) -> io::Result<()> {
        let Listener { socket, id, counts, on_mistake, pulse, awaited, hellos } = self;
        let rooms = Arc::new(Rooms { inside: Mutex::default(), freed: Event::new()? });
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let places = limit.map_or(PLACES_MAX, |limit| usize::try_from(limit / 2).unwrap_or(PLACES_MAX));
        thread::scope(|scope| {
            let mut mistakes = 0;
            let served = loop {
                let mut accepting = AcceptLoop::new(places.clamp(PLACES_MIN, PLACES_MAX), &rooms, &counts);
                accepting.pulse = pulse.as_ref();
                // Rooms that are taken keep their numbers.
                accepting.next_room = u64::from(mistakes) << 32;
                let turns = || loop {
                    let ready = match accepting.wait(&socket, stop, (&awaited, hellos.came())) {
                        Ok(ready) => ready,
                        Err(error) => break Err(error),
                    };
                    pulse.iter().for_each(Pulse::beat);
                    if is_readable(stop) {
                        break Ok(());
                    }
                    rooms.freed.drain();
                    accepting.remember();
                    if is_readable(&awaited) {
                        awaited.drain();
                        for (number, greeted) in accepting.take_early() {
                            accepting.after(number, rail(greeted));
                        }
                    }
                    if is_readable(hellos.came()) {
                        hellos.came().drain();
                        let answered = accepting.answered();
                        accepting.look(&answered, &is_known);
                    }
                    // Who is here and speaks goes before who is new.
                    for (number, greeted) in accepting.look(&ready, &is_known) {
                        accepting.after(number, rail(greeted));
                    }
                    accepting.take_in(&socket);
                    accepting.take_claimed(&hellos, &is_known);
                    accepting.answer((&id, &hellos), &is_known);
                    accepting.expire();
                    while let Some((mut link, room)) = accepting.next_for_a_room() {
                        let control = &control;
                        let serve = move || {
                            let is_admitted = Arc::clone(&room.is_admitted);
                            link.hold(Box::new(room), is_admitted);
                            control(link);
                        };
                        // Without a thread the connection is dropped with the closure, and the client tries again.
                        let _ = thread::Builder::new().name("control".to_owned()).spawn_scoped(scope, serve);
                    }
                };
                // Jobs that run are on threads of their own: they lose nothing. Who was not authenticated yet connects again.
                let why = match catch_unwind(AssertUnwindSafe(turns)) {
                    Ok(served) => break served,
                    Err(panic) => engine::fault::words(&*panic),
                };
                mistakes += 1;
                // Nobody else can take this thread's part.
                let is_last = mistakes > MISTAKES_MAX;
                on_mistake(&why, is_last);
                if is_last {
                    break Err(io::Error::other(format!("the listener panicked: {why}")));
                }
                thread::sleep(AFTER_MISTAKE);
            };
            // Nobody new from here on, and nobody unproven holds up the end.
            drop(socket);
            rooms.clear();
            served
        })
    }
}

/// What becomes of a connection that greeted.
#[derive(Debug)]
pub enum Next {
    /// It is its job's, or gone.
    Over,
    /// It has to say a word first.
    Prove(Proving),
    /// Its job is not there yet.
    Early(TcpStream, Greeting),
}

/// A connection that greeted.
#[derive(Debug)]
pub enum Rail {
    /// With this, which anybody may have heard elsewhere.
    Greeted(TcpStream, Greeting),
    /// And has said the word that was asked for.
    Proved(Proving),
}

/// A connection that is to say a word for a nonce before its job hears of it.
#[derive(Debug)]
pub struct Proving {
    /// The connection of whoever greeted.
    pub stream: TcpStream,
    /// What it said first.
    pub greeting: Greeting,
    /// What it was answered.
    pub nonce: [u8; 32],
    /// What it says to that.
    pub word: [u8; COUNT_BYTES],
    got: usize,
}

impl Proving {
    /// Nothing was said yet.
    #[must_use]
    pub fn new(stream: TcpStream, greeting: Greeting, nonce: [u8; 32]) -> Proving {
        Proving { stream, greeting, nonce, word: [0; COUNT_BYTES], got: 0 }
    }
}

/// A connection that has not proved itself.
enum Unauthenticated {
    /// Has said nothing.
    Silent(TcpStream),
    /// Says a TLS greeting, or has said it and waits for its turn: bytes so far.
    Hello(TcpStream, Vec<u8>),
    /// Says a rail's greeting: bytes so far.
    Rail { stream: TcpStream, bytes: [u8; GREETING_BYTES], got: usize },
    /// Said it, and is to say a word more.
    Proving(Box<Proving>),
    /// Said it before its job was there, and waits for that.
    Early(TcpStream, Greeting),
    /// Was answered.
    Answered(Box<Accepting>),
    /// Proved its key; the bytes that had come by then.
    Proven(Box<Link>, u64),
}

/// Those who wait, seen from the accepting thread.
struct AcceptLoop<'counts> {
    /// By number, which is by age.
    unauthenticated: BTreeMap<u64, Unauthenticated>,
    admission: Admission,
    rooms: Arc<Rooms>,
    counts: &'counts Counts,
    pulse: Option<&'counts Pulse>,
    next_room: u64,
    /// No accepting before this moment.
    pause_until: Option<Instant>,
}

impl<'counts> AcceptLoop<'counts> {
    fn new(places: usize, rooms: &Arc<Rooms>, counts: &'counts Counts) -> AcceptLoop<'counts> {
        let (unauthenticated, admission, rooms) = (BTreeMap::new(), Admission::new(places), Arc::clone(rooms));
        AcceptLoop { unauthenticated, admission, rooms, counts, pulse: None, next_room: 0, pause_until: None }
    }
}

impl AcceptLoop<'_> {
    /// Sleeps until somebody connects, speaks, leaves a room, or has to be shown out; who spoke.
    fn wait(&self, socket: &TcpListener, stop: &Event, (awaited, came): (&Event, &Event)) -> io::Result<Vec<u64>> {
        let now = Instant::now();
        let mut fds = vec![
            PollFd::from_borrowed_fd(awaited.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(came.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.rooms.freed.as_fd(), PollFlags::IN),
        ];
        if self.pause_until.is_none_or(|until| until <= now) {
            fds.push(PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN));
        }
        let others = fds.len();
        let mut numbers = Vec::with_capacity(self.unauthenticated.len());
        for (&number, stranger) in &self.unauthenticated {
            // Whose turn is not come has been heard already; its socket may be readable all the time.
            if let Some((fd, flags)) = stranger.waits_for() {
                fds.push(PollFd::from_borrowed_fd(fd, flags));
                numbers.push(number);
            }
        }
        let left = self.next_moment(now).map(|moment| moment.saturating_duration_since(now));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let spoke = fds[others..].iter().zip(numbers).filter(|(fd, _)| !fd.revents().is_empty());
        Ok(spoke.map(|(_, number)| number).collect())
    }

    /// When something has to be done though nothing happens.
    fn next_moment(&self, now: Instant) -> Option<Instant> {
        let stranger = self.admission.oldest().map(|since| since + PROVE);
        let pause = self.pause_until.filter(|&until| until > now);
        let asking = self.admission.next_to_answer().map(|_| now);
        let rooms = self.rooms.lock();
        let crowded = rooms.taken.len() >= ROOMS_MAX / 2 && self.admission.has(Stage::Greeting);
        let room = rooms
            .taken
            .iter()
            .filter(|room| !room.shut)
            .map(|room| room.since + if crowded { ROOM_GRACE } else { PROVE })
            .min();
        // A room past its grace may stay while another is told to leave; then look again soon, not at once.
        let room = room.map(|moment| moment.max(now + Duration::from_millis(20)));
        let pulse = self.pulse.map(|pulse| *pulse.next());
        [stranger, pause, asking, room, pulse].into_iter().flatten().min()
    }

    /// Networks whose clients were let in since the last look.
    fn remember(&mut self) {
        let good = std::mem::take(&mut self.rooms.lock().good);
        good.into_iter().for_each(|network| self.admission.welcome(network, Instant::now()));
    }

    /// Accepts a few.
    fn take_in(&mut self, socket: &TcpListener) {
        if self.pause_until.is_some_and(|until| until > Instant::now()) {
            return;
        }
        self.pause_until = None;
        for _ in 0..ACCEPTS_PER_LOOK {
            match socket.accept() {
                Ok((stream, peer)) => {
                    count(&self.counts.accepted);
                    crate::link::congestion::restore(&stream);
                    if stream.set_nonblocking(true).is_err() {
                        continue;
                    }
                    let (number, victim) = self.admission.arrive(network(peer.ip()), Instant::now());
                    self.unauthenticated.insert(number, Unauthenticated::Silent(stream));
                    if let Some(victim) = victim {
                        self.unauthenticated.remove(&victim);
                        count(&self.counts.pushed_out);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(_) => {
                    // Out of descriptors or memory: fewer unauthenticated connections, and a little patience.
                    if let Some(victim) = self.admission.victim() {
                        self.dismiss(victim, |counts| &counts.pushed_out);
                    }
                    self.pause_until = Some(Instant::now() + OUT_OF_FILES_PAUSE);
                    return;
                }
            }
        }
    }

    fn dismiss(&mut self, number: u64, why: impl Fn(&Counts) -> &AtomicU64) {
        // Counted before it can be seen.
        count(why(self.counts));
        self.admission.leave(number, Instant::now());
        self.unauthenticated.remove(&number);
    }

    /// Hears those who spoke; gives out the rails whose greeting, or word, is whole.
    fn look(&mut self, spoke: &[u64], is_known: &impl Fn(&PublicKey) -> bool) -> Vec<(u64, Rail)> {
        let heard = |number: &u64| {
            let stranger = self.unauthenticated.remove(number)?;
            Some((*number, self.on_heard(*number, stranger.hear(), is_known)?))
        };
        spoke.iter().filter_map(heard).collect()
    }

    /// Those whose handshake datagrams may bring on.
    fn answered(&self) -> Vec<u64> {
        let is_answered = |it: &Unauthenticated| matches!(it, Unauthenticated::Answered(..));
        self.unauthenticated.iter().filter(|(_, it)| is_answered(it)).map(|(number, _)| *number).collect()
    }

    /// Connections that have brought nothing, of which datagrams have brought all that is asked of them.
    fn take_claimed(&mut self, hellos: &Hellos, is_known: &impl Fn(&PublicKey) -> bool) {
        if !hellos.has_claims() {
            return;
        }
        let is_silent = |it: &Unauthenticated| matches!(it, Unauthenticated::Silent(..));
        let silent: Vec<u64> =
            self.unauthenticated.iter().filter(|(_, it)| is_silent(it)).map(|(number, _)| *number).collect();
        for number in silent {
            let Some(Unauthenticated::Silent(stream)) = self.unauthenticated.remove(&number) else { continue };
            let heard = match Accepting::claimed(stream, hellos) {
                Ok(Ok(accepting)) => Unauthenticated::Answered(Box::new(accepting)).hear(),
                Ok(Err(stream)) => {
                    self.unauthenticated.insert(number, Unauthenticated::Silent(stream));
                    continue;
                }
                Err(_) => Heard::Gone,
            };
            let _ = self.on_heard(number, heard, is_known);
        }
    }

    /// Greetings whose job was not there when they came.
    fn take_early(&mut self) -> Vec<(u64, Rail)> {
        let is_early = |it: &Unauthenticated| matches!(it, Unauthenticated::Early(..));
        let numbers: Vec<u64> =
            self.unauthenticated.iter().filter(|(_, it)| is_early(it)).map(|(number, _)| *number).collect();
        let greeted = numbers.into_iter().filter_map(|number| match self.unauthenticated.remove(&number) {
            Some(Unauthenticated::Early(stream, greeting)) => Some((number, Rail::Greeted(stream, greeting))),
            _ => None,
        });
        greeted.collect()
    }

    /// One that greeted is its job's, or gone, or waits or has to prove itself like any stranger.
    fn after(&mut self, number: u64, next: Next) {
        let stays = match next {
            Next::Prove(next) if next.stream.set_nonblocking(true).is_ok() => Unauthenticated::Proving(Box::new(next)),
            Next::Early(stream, greeting) => Unauthenticated::Early(stream, greeting),
            Next::Prove(_) | Next::Over => return self.admission.leave(number, Instant::now()),
        };
        self.unauthenticated.insert(number, stays);
    }

    fn on_heard(&mut self, number: u64, heard: Heard, is_known: &impl Fn(&PublicKey) -> bool) -> Option<Rail> {
        match heard {
            Heard::Waits(stranger) => {
                let short = || self.rooms.lock().taken.len() >= ROOMS_MAX / 2;
                let stage = match stranger.stage() {
                    Stage::Pleading if short() && stranger.key().is_some_and(|key| is_known(&key)) => Stage::Known,
                    stage => stage,
                };
                self.admission.reach(number, stage, Instant::now());
                self.unauthenticated.insert(number, stranger);
                return None;
            }
            // Engines put their own sockets into the mode that they want; std's and ours is blocking.
            Heard::Rail(stream, greeting) if stream.set_nonblocking(false).is_ok() => {
                return Some(Rail::Greeted(stream, greeting));
            }
            Heard::Word(proving) => return Some(Rail::Proved(*proving)),
            Heard::Rail(..) => {}
            Heard::Gone => {}
            // Counted before its end can see it.
            Heard::Garbage(_stream) => count(&self.counts.garbage),
            Heard::Unproven => count(&self.counts.unproven),
        }
        self.admission.leave(number, Instant::now());
        None
    }

    /// Answers some whose TLS greeting is whole.
    fn answer(&mut self, by: (&Identity, &Hellos), is_known: &impl Fn(&PublicKey) -> bool) {
        for _ in 0..ANSWERS_PER_LOOK {
            let Some(number) = self.admission.next_to_answer() else { return };
            let Some(Unauthenticated::Hello(stream, hello)) = self.unauthenticated.remove(&number) else {
                self.admission.leave(number, Instant::now());
                continue;
            };
            // Its proof may be here as soon as the answer is gone: it is heard at once.
            let begun = Accepting::begin(stream, &hello, by);
            let heard = begun.map_or(Heard::Unproven, |begun| Unauthenticated::Answered(Box::new(begun)).hear());
            let _ = self.on_heard(number, heard, is_known);
        }
    }

    /// Shows out whose time is over, among the unauthenticated and in the rooms.
    fn expire(&mut self) {
        let now = Instant::now();
        if let Some(moment) = now.checked_sub(PROVE) {
            for number in self.admission.older_than(moment) {
                self.dismiss(number, |counts| &counts.expired);
            }
        }
        for room in self.rooms.lock().taken.iter_mut().filter(|room| !room.shut && now >= room.since + PROVE) {
            count(&self.counts.expired);
            room.shut();
        }
    }

    /// A link with a room for it. Whoever only said its version, and may wait for ours, has half of the rooms. When all rooms are taken, the
    /// oldest of the network that has the most of them is told to leave, if it had its grace.
    fn next_for_a_room(&mut self) -> Option<(Link, RoomKey)> {
        let now = Instant::now();
        let rooms = Arc::clone(&self.rooms);
        let mut rooms = rooms.lock();
        let mut crowds: HashMap<Network, usize> = HashMap::new();
        for room in &rooms.taken {
            *crowds.entry(room.network).or_default() += 1;
        }
        let least = if rooms.taken.len() < ROOMS_MAX / 2 { Stage::Proven } else { Stage::Pleading };
        let speaks = |number: &u64| matches!(self.unauthenticated.get(number), Some(Unauthenticated::Proven(link, _)) if link.ready());
        let number = self.admission.next_for_a_room(least, &crowds, now).filter(speaks)?;
        if rooms.taken.len() >= ROOMS_MAX {
            let biggest = crowds.values().copied().max();
            let graced =
                |room: &&mut Room| now >= room.since + ROOM_GRACE && crowds.get(&room.network).copied() == biggest;
            // One at a time: who was told to leave is gone in a moment.
            if !rooms.taken.iter().any(|room| room.shut)
                && let Some(room) = rooms.taken.iter_mut().find(graced)
            {
                count(&self.counts.pushed_out);
                room.shut();
            }
            return None;
        }
        let network = self.admission.network(number);
        self.admission.leave(number, Instant::now());
        let Some(Unauthenticated::Proven(link, _)) = self.unauthenticated.remove(&number) else { return None };
        // Without a second handle it could not be told to leave; then it does not come in.
        let handle = link.as_fd().try_clone_to_owned().map(TcpStream::from).ok()?;
        let number = self.next_room;
        self.next_room += 1;
        rooms.taken.push(Room { number, network, since: now, handle, shut: false });
        let is_admitted = Arc::new(AtomicBool::new(false));
        Some((*link, RoomKey { rooms: Arc::clone(&self.rooms), number, is_admitted }))
    }
}

/// What a look at a stranger found.
enum Heard {
    Waits(Unauthenticated),
    Rail(TcpStream, Greeting),
    Word(Box<Proving>),
    /// Left by itself.
    Gone,
    Garbage(TcpStream),
    /// Its handshake failed.
    Unproven,
}

/// Did nothing come for a passing reason?
fn is_again(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Bytes of the record that begins so; at least its head.
fn record_bytes(begun: &[u8]) -> usize {
    match begun {
        [_, _, _, high, low, ..] => RECORD_HEAD_BYTES + usize::from(u16::from_be_bytes([*high, *low])),
        _ => RECORD_HEAD_BYTES,
    }
}

impl Unauthenticated {
    fn hear(self) -> Heard {
        match self {
            Unauthenticated::Silent(stream) => {
                let mut first = [0];
                match (&stream).read(&mut first) {
                    Ok(0) => Heard::Gone,
                    Ok(_) if first[0] == TLS_HANDSHAKE => Unauthenticated::hear_hello(stream, first.to_vec()),
                    Ok(_) if first[0] == b'L' => {
                        let mut bytes = [0; GREETING_BYTES];
                        bytes[0] = b'L';
                        Unauthenticated::hear_rail(stream, bytes, 1)
                    }
                    Ok(_) => Heard::Garbage(stream),
                    Err(error) if is_again(&error) => Heard::Waits(Unauthenticated::Silent(stream)),
                    Err(_) => Heard::Gone,
                }
            }
            Unauthenticated::Hello(stream, bytes) => Unauthenticated::hear_hello(stream, bytes),
            Unauthenticated::Rail { stream, bytes, got } => Unauthenticated::hear_rail(stream, bytes, got),
            Unauthenticated::Proving(proving) => Unauthenticated::hear_word(proving),
            Unauthenticated::Early(..) => Heard::Waits(self),
            Unauthenticated::Answered(mut accepting) => match accepting.turn() {
                Ok(false) => Heard::Waits(Unauthenticated::Answered(accepting)),
                Ok(true) => match accepting.finish() {
                    Ok(link) => {
                        let from = link.bytes_received();
                        Unauthenticated::hear_link(Box::new(link), from)
                    }
                    Err(_) => Heard::Unproven,
                },
                Err(_) => Heard::Unproven,
            },
            Unauthenticated::Proven(link, from) => Unauthenticated::hear_link(link, from),
        }
    }

    fn hear_hello(stream: TcpStream, mut bytes: Vec<u8>) -> Heard {
        loop {
            let whole = record_bytes(&bytes);
            if whole > HELLO_BYTES_MAX {
                return Heard::Garbage(stream);
            }
            let had = bytes.len();
            if had == whole && had > RECORD_HEAD_BYTES {
                return Heard::Waits(Unauthenticated::Hello(stream, bytes));
            }
            if had == whole {
                return Heard::Garbage(stream);
            }
            bytes.resize(whole, 0);
            let read = (&stream).read(&mut bytes[had..]);
            bytes.truncate(had + read.as_ref().copied().unwrap_or(0));
            match read {
                Ok(0) => return Heard::Gone,
                Ok(_) => {}
                Err(error) if is_again(&error) => return Heard::Waits(Unauthenticated::Hello(stream, bytes)),
                Err(_) => return Heard::Gone,
            }
        }
    }

    fn hear_rail(stream: TcpStream, mut bytes: [u8; GREETING_BYTES], mut got: usize) -> Heard {
        // Never a byte beyond the greeting: what follows is the engine's.
        match (&stream).read(&mut bytes[got..]) {
            Ok(0) => return Heard::Gone,
            Ok(read) => got += read,
            Err(error) if is_again(&error) => {}
            Err(_) => return Heard::Gone,
        }
        match got {
            GREETING_BYTES => match Greeting::decode(&bytes) {
                Ok(greeting) => Heard::Rail(stream, greeting),
                Err(_) => Heard::Garbage(stream),
            },
            _ => Heard::Waits(Unauthenticated::Rail { stream, bytes, got }),
        }
    }

    fn hear_word(mut proving: Box<Proving>) -> Heard {
        // Never a byte beyond the word: what follows is the session's.
        match proving.stream.read(&mut proving.word[proving.got..]) {
            Ok(0) => return Heard::Gone,
            Ok(read) => proving.got += read,
            Err(error) if is_again(&error) => {}
            Err(_) => return Heard::Gone,
        }
        if proving.got == COUNT_BYTES { Heard::Word(proving) } else { Heard::Waits(Unauthenticated::Proving(proving)) }
    }

    fn hear_link(mut link: Box<Link>, from: u64) -> Heard {
        match link.take_portion() {
            Ok(()) => Heard::Waits(Unauthenticated::Proven(link, from)),
            Err(_) if link.ready() => Heard::Waits(Unauthenticated::Proven(link, from)),
            Err(_) => Heard::Gone,
        }
    }

    /// What it has shown.
    fn stage(&self) -> Stage {
        match self {
            Unauthenticated::Silent(_) => Stage::Silent,
            Unauthenticated::Hello(_, bytes) if bytes.len() == record_bytes(bytes) => Stage::Asking,
            // A greeting that was heard elsewhere shows nothing.
            Unauthenticated::Hello(..)
            | Unauthenticated::Rail { .. }
            | Unauthenticated::Proving(_)
            | Unauthenticated::Early(..) => Stage::Speaking,
            Unauthenticated::Answered(_) => Stage::Answered,
            Unauthenticated::Proven(link, from) if Unauthenticated::pleads(link, *from) => Stage::Pleading,
            Unauthenticated::Proven(link, _) if link.ready() => Stage::Greeting,
            Unauthenticated::Proven(..) => Stage::Proven,
        }
    }

    fn pleads(link: &Link, from: u64) -> bool {
        link.frames_ready() >= FRAMES_PLEADING || link.bytes_received() - from >= PLEA_BYTES_MAX
    }

    /// What is to be polled for it; `None`: it has said all that is asked of it now.
    fn waits_for(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match self {
            Unauthenticated::Silent(stream) | Unauthenticated::Rail { stream, .. } => {
                Some((stream.as_fd(), PollFlags::IN))
            }
            Unauthenticated::Proving(proving) => Some((proving.stream.as_fd(), PollFlags::IN)),
            Unauthenticated::Early(..) => None,
            Unauthenticated::Hello(..) if self.stage() == Stage::Asking => None,
            Unauthenticated::Hello(stream, _) => Some((stream.as_fd(), PollFlags::IN)),
            Unauthenticated::Answered(it) if it.wants_write() => Some((it.as_fd(), PollFlags::IN | PollFlags::OUT)),
            Unauthenticated::Answered(it) => Some((it.as_fd(), PollFlags::IN)),
            Unauthenticated::Proven(link, from) if Unauthenticated::pleads(link, *from) => None,
            Unauthenticated::Proven(link, _) => Some((link.as_fd(), PollFlags::IN)),
        }
    }

    fn key(&self) -> Option<PublicKey> {
        if let Unauthenticated::Proven(link, _) = self { Some(link.peer_key()) } else { None }
    }
}

/// The threads that serve links which are not let in yet.
struct Rooms {
    inside: Mutex<Inside>,
    /// Signalled when a room is free again.
    freed: Event,
}

#[derive(Default)]
struct Inside {
    /// Oldest first.
    taken: Vec<Room>,
    /// Networks whose clients were let in, until the accepting thread has read it.
    good: Vec<Network>,
}

struct Room {
    number: u64,
    network: Network,
    since: Instant,
    /// A second handle of its socket, to shut it down from the accepting thread.
    handle: TcpStream,
    shut: bool,
}

impl Room {
    /// Ends its connection, whatever its thread waits for.
    fn shut(&mut self) {
        self.shut = true;
        let _ = self.handle.shutdown(Shutdown::Both);
    }
}

impl Rooms {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clear(&self) {
        for room in &mut self.lock().taken {
            room.shut();
        }
    }
}

/// Held by a link that is not let in yet; dropping it leaves the room.
struct RoomKey {
    rooms: Arc<Rooms>,
    number: u64,
    is_admitted: Arc<AtomicBool>,
}

impl Drop for RoomKey {
    fn drop(&mut self) {
        let mut inside = self.rooms.lock();
        if let Some(at) = inside.taken.iter().position(|room| room.number == self.number) {
            let room = inside.taken.remove(at);
            if self.is_admitted.load(Ordering::Acquire) && inside.good.len() < ROOMS_MAX {
                inside.good.push(room.network);
            }
        }
        drop(inside);
        self.rooms.freed.signal();
    }
}

fn is_readable(event: &Event) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut [PollFd::from_borrowed_fd(event.as_fd(), PollFlags::IN)], Some(&now)), Ok(1))
}

#[cfg(test)]
#[path = "listener/tests.rs"]
mod tests;
