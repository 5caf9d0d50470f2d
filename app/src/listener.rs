//! The daemon's one TCP port: who knocks, what for, and for how long they may stand at the door.
//!
//! For: telling control sessions (TLS, first byte 0x16) from rails (first byte `L`), and surviving everybody else.
//! In and out: a bound port → proven `Link`s, each on a thread of its own, and rails with their greeting, handed over by the
//!   accepting thread.
//! Invariants: at most `STRANGERS_MAX` connections that have not proved themselves, at most `ROOMS_MAX` of them with a thread,
//!   none for longer than `PROVE`; one that is too much pushes out the oldest of the network that has the most at the door,
//!   so a flood from one place harms that place. A rail costs no thread and 64 bytes until its greeting is whole.
//! Absent on purpose: who may do what (the handlers ask `identity`), the greeting's MAC (the job knows the key), limits on
//!   clients that were let in.
//!
//! ```text
//! stranger:  Silent ── 0x16 ─→ Tls ── a room is free ─→ room (thread: handshake, handler) ── Link::admitted ─→ no longer counted
//!               └───── 'L' ──→ Rail ── 64 bytes ─→ handler
//!               └───── else, PROVE over, pushed out ─→ closed
//! ```

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use proto::wire::chunk::{GREETING_BYTES, Greeting};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::event::Event;

use crate::identity::Identity;
use crate::link::Link;

/// Connections that have not proved themselves, at most.
pub const STRANGERS_MAX: usize = 256;
/// Of these, so many may have a thread for their handshake and greeting.
pub const ROOMS_MAX: usize = 64;
/// How long a stranger may take to prove itself.
pub const PROVE: Duration = Duration::from_secs(10);
/// Even when others wait, a room is left alone so long: several round trips around the earth (0.3 s each).
const ROOM_GRACE: Duration = Duration::from_secs(2);
/// Accepted in one go before the ones at the door are looked at again; well below `STRANGERS_MAX`, so that one who
/// speaks at once is heard before a flood can push it out.
const ACCEPTS_PER_LOOK: usize = 32;
/// Pause when the process has no descriptors left: others must end first.
const OUT_OF_FILES_PAUSE: Duration = Duration::from_millis(100);
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

/// A bound port.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    id: Arc<Identity>,
    counts: Arc<Counts>,
}

impl Listener {
    /// Binds.
    ///
    /// # Errors
    /// The kernel's: address in use, not ours, port below 1024 without the right.
    pub fn bind(address: SocketAddr, id: Arc<Identity>) -> io::Result<Listener> {
        let socket = sys::sock::listen(address)?;
        socket.set_nonblocking(true)?;
        Ok(Listener { socket, id, counts: Arc::default() })
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
    /// `rail` runs on the accepting thread and must not block; the stream it gets is in blocking mode.
    ///
    /// # Errors
    /// The kernel's, when the port itself is of no use any more.
    pub fn run(
        self,
        control: impl Fn(Link) + Send + Sync,
        rail: impl Fn(TcpStream, Greeting),
        stop: &Event,
    ) -> io::Result<()> {
        let Listener { socket, id, counts } = self;
        let rooms = Arc::new(Rooms { taken: Mutex::new(Vec::new()), freed: Event::new()? });
        thread::scope(|scope| {
            let mut door = Door {
                strangers: Vec::new(),
                rooms: Arc::clone(&rooms),
                counts: &counts,
                next_room: 0,
                pause_until: None,
            };
            let served = loop {
                if let Err(error) = door.wait(&socket, stop) {
                    break Err(error);
                }
                if is_readable(stop) {
                    break Ok(());
                }
                rooms.freed.drain();
                door.take_in(&socket);
                for (stream, greeting) in door.look() {
                    rail(stream, greeting);
                }
                door.expire();
                while let Some((stream, room, left)) = door.next_for_a_room() {
                    let (id, control, counts) = (&*id, &control, &*counts);
                    let serve = move || match Link::accept(stream, id, left) {
                        Ok(mut link) => {
                            link.hold(Box::new(room));
                            control(link);
                        }
                        Err(_) => count(&counts.unproven),
                    };
                    // Without a thread the connection is dropped with the closure, and the client tries again.
                    let _ = thread::Builder::new().name("control".to_owned()).spawn_scoped(scope, serve);
                }
            };
            // Nobody new from here on, and nobody unproven holds up the end.
            drop(socket);
            drop(door);
            rooms.clear();
            served
        })
    }
}

/// A connection that has not proved itself.
struct Stranger {
    stream: TcpStream,
    network: u128,
    since: Instant,
    state: State,
}

enum State {
    /// Has said nothing.
    Silent,
    /// Speaks TLS and waits for a room; what it said stays in the kernel.
    Tls,
    /// Says a rail's greeting: bytes so far.
    Rail { bytes: [u8; GREETING_BYTES], got: usize },
}

/// Those who wait, seen from the accepting thread.
struct Door<'counts> {
    /// Oldest first.
    strangers: Vec<Stranger>,
    rooms: Arc<Rooms>,
    counts: &'counts Counts,
    next_room: u64,
    /// No accepting before this moment.
    pause_until: Option<Instant>,
}

impl Door<'_> {
    /// Sleeps until somebody knocks, speaks, leaves a room, or has to be shown out.
    fn wait(&self, socket: &TcpListener, stop: &Event) -> io::Result<()> {
        let now = Instant::now();
        let mut fds = vec![
            PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.rooms.freed.as_fd(), PollFlags::IN),
        ];
        if self.pause_until.is_none_or(|until| until <= now) {
            fds.push(PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN));
        }
        // Who waits for a room has been heard already; its socket would be readable all the time.
        let speaking = self.strangers.iter().filter(|stranger| !matches!(stranger.state, State::Tls));
        fds.extend(speaking.map(|stranger| PollFd::from_borrowed_fd(stranger.stream.as_fd(), PollFlags::IN)));
        let left = self.next_moment(now).map(|moment| moment.saturating_duration_since(now));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// When something has to be done though nothing happens.
    fn next_moment(&self, now: Instant) -> Option<Instant> {
        let stranger = self.strangers.first().map(|stranger| stranger.since + PROVE);
        let pause = self.pause_until.filter(|&until| until > now);
        let crowded = self.strangers.iter().any(|stranger| matches!(stranger.state, State::Tls));
        let rooms = self.rooms.lock();
        let room = rooms
            .iter()
            .filter(|room| !room.shut)
            .map(|room| room.since + if crowded { ROOM_GRACE } else { PROVE })
            .min();
        // A room past its grace may stay while another is told to leave; then look again soon, not at once.
        let room = room.map(|moment| moment.max(now + Duration::from_millis(20)));
        [stranger, pause, room].into_iter().flatten().min()
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
                    if stream.set_nonblocking(true).is_err() {
                        continue;
                    }
                    if self.strangers.len() + self.rooms.lock().len() >= STRANGERS_MAX {
                        self.push_out();
                    }
                    let network = network(peer.ip());
                    self.strangers.push(Stranger { stream, network, since: Instant::now(), state: State::Silent });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(_) => {
                    // Out of descriptors or memory: fewer at the door, and a little patience.
                    self.push_out();
                    self.pause_until = Some(Instant::now() + OUT_OF_FILES_PAUSE);
                    return;
                }
            }
        }
    }

    /// Closes the oldest of the network that has the most at the door.
    fn push_out(&mut self) {
        let mut crowds: HashMap<u128, usize> = HashMap::new();
        for stranger in &self.strangers {
            *crowds.entry(stranger.network).or_default() += 1;
        }
        let biggest = crowds.values().copied().max();
        let victim = self.strangers.iter().position(|stranger| crowds.get(&stranger.network).copied() == biggest);
        if let Some(victim) = victim {
            self.strangers.remove(victim);
            count(&self.counts.pushed_out);
        }
    }

    /// Hears everybody at the door; gives out the rails whose greeting is whole.
    fn look(&mut self) -> Vec<(TcpStream, Greeting)> {
        let mut rails = Vec::new();
        let counts = self.counts;
        let mut still = Vec::with_capacity(self.strangers.len());
        for mut stranger in self.strangers.drain(..) {
            match stranger.hear() {
                Heard::Waits => still.push(stranger),
                Heard::Rail(greeting) => {
                    // Engines put their own sockets into the mode that they want; std's and ours is blocking.
                    if stranger.stream.set_nonblocking(false).is_ok() {
                        rails.push((stranger.stream, greeting));
                    }
                }
                Heard::Gone => {}
                Heard::Garbage => count(&counts.garbage),
            }
        }
        self.strangers = still;
        rails
    }

    /// Shows out whose time is over, at the door and in the rooms.
    fn expire(&mut self) {
        let now = Instant::now();
        let counts = self.counts;
        self.strangers.retain(|stranger| {
            let stays = now < stranger.since + PROVE;
            if !stays {
                count(&counts.expired);
            }
            stays
        });
        for room in self.rooms.lock().iter_mut().filter(|room| !room.shut && now >= room.since + PROVE) {
            count(&counts.expired);
            room.shut();
        }
    }

    /// The longest waiting TLS stranger with a room for it, and the time that it has left. When all rooms are taken, the
    /// oldest of the network that has the most of them is told to leave, if it had its grace.
    fn next_for_a_room(&mut self) -> Option<(TcpStream, RoomKey, Duration)> {
        let at = self.strangers.iter().position(|stranger| matches!(stranger.state, State::Tls))?;
        let now = Instant::now();
        let mut taken = self.rooms.lock();
        if taken.len() >= ROOMS_MAX {
            let mut crowds: HashMap<u128, usize> = HashMap::new();
            for room in taken.iter() {
                *crowds.entry(room.network).or_default() += 1;
            }
            let biggest = crowds.values().copied().max();
            let graced =
                |room: &&mut Room| now >= room.since + ROOM_GRACE && crowds.get(&room.network).copied() == biggest;
            // One at a time: who was told to leave is gone in a moment.
            if !taken.iter().any(|room| room.shut)
                && let Some(room) = taken.iter_mut().find(graced)
            {
                count(&self.counts.pushed_out);
                room.shut();
            }
            return None;
        }
        let Stranger { stream, network, since, .. } = self.strangers.remove(at);
        // Without a second handle it could not be told to leave; then it does not come in.
        let handle = stream.try_clone().ok()?;
        let number = self.next_room;
        self.next_room += 1;
        taken.push(Room { number, network, since, handle, shut: false });
        drop(taken);
        let key = RoomKey { rooms: Arc::clone(&self.rooms), number };
        Some((stream, key, (since + PROVE).saturating_duration_since(now)))
    }
}

/// What a look at a stranger found.
enum Heard {
    Waits,
    Rail(Greeting),
    /// Left by itself.
    Gone,
    Garbage,
}

impl Stranger {
    fn hear(&mut self) -> Heard {
        if let State::Silent = self.state {
            let mut first = [0];
            self.state = match self.stream.peek(&mut first) {
                Ok(0) => return Heard::Gone,
                Ok(_) if first[0] == TLS_HANDSHAKE => State::Tls,
                Ok(_) if first[0] == b'L' => State::Rail { bytes: [0; GREETING_BYTES], got: 0 },
                Ok(_) => return Heard::Garbage,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Heard::Waits;
                }
                Err(_) => return Heard::Gone,
            };
        }
        let State::Rail { bytes, got } = &mut self.state else { return Heard::Waits };
        // Never a byte beyond the greeting: what follows is the engine's.
        match self.stream.read(&mut bytes[*got..]) {
            Ok(0) => return Heard::Gone,
            Ok(read) => *got += read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Heard::Waits;
            }
            Err(_) => return Heard::Gone,
        }
        match *got {
            GREETING_BYTES => Greeting::decode(bytes).map_or(Heard::Garbage, Heard::Rail),
            _ => Heard::Waits,
        }
    }
}

/// The threads that serve links which are not let in yet.
struct Rooms {
    /// Oldest first.
    taken: Mutex<Vec<Room>>,
    /// Signalled when a room is free again.
    freed: Event,
}

struct Room {
    number: u64,
    network: u128,
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
    fn lock(&self) -> MutexGuard<'_, Vec<Room>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clear(&self) {
        for room in self.lock().iter_mut() {
            room.shut();
        }
    }
}

/// Held by a link that is not let in yet; dropping it leaves the room.
struct RoomKey {
    rooms: Arc<Rooms>,
    number: u64,
}

impl Drop for RoomKey {
    fn drop(&mut self) {
        self.rooms.lock().retain(|room| room.number != self.number);
        self.rooms.freed.signal();
    }
}

/// Whom a flood is booked to: an IPv4 address, or the /64 that one IPv6 customer has.
fn network(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address) >> 64 << 64,
    }
}

fn is_readable(event: &Event) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut [PollFd::from_borrowed_fd(event.as_fd(), PollFlags::IN)], Some(&now)), Ok(1))
}

#[cfg(test)]
#[path = "listener_tests.rs"]
mod tests;
