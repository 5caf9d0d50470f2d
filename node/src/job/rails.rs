//! Connected rails: made by the initiator, awaited by the acceptor.
//!
//! For: sockets that a worker can use at once.
//! In and out: rail numbers in, connected and greeted sockets out, through a mailbox that rings the job driver.
//! Invariants: a number is used once, but by a datagram rail that moves to another address; connecting never happens on the job driver's
//! thread, and a path that answers no datagrams keeps no stream waiting.
//! Absent on purpose: how many (job::driver), what goes over them (engine).

use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::fault::{panic_once_if_asked, words};
use proto::rate::TrainSeen;
use sys::event::Event;
use sys::rdma::Link;

use crate::job::keys::JobSecret;
use crate::job::udp::packet_train::TRAIN_PACKETS;
use crate::job::udp::{self, Greeted, Opened, Peer, SetupKind, SetupMessage, Sizes};
use crate::link::{SessionGreeting, bound_segments, congestion};
use crate::probe::result::Seen;
use crate::request::pair_greeting::{door_at, hello_of};

/// The acceptor's answer to a greeting.
pub const WELCOME: u8 = 1;
/// No rail has this number: a greeting with it is for the control session, over TCP for another connection of it, over UDP for its datagrams.
pub const CONTROL: u16 = u16::MAX;
/// The first rail: it may be connected before there is a plan, and its greeting may come before the acceptor has read `Open`.
pub const AHEAD: u16 = 0;
/// The same where rail 0 is one of datagrams, and the transport is not chosen yet.
pub const AHEAD_BESIDE: u16 = 1;
/// A connection and its greeting must be done in this time.
const DIAL: Duration = Duration::from_secs(10);
/// Of several paths, one that does not answer for so long (or four round trips of the session) is asked anew: a link that comes back is found
/// within that time, not when TCP's own timers, which double, next look.
const DIAL_AGAIN: Duration = Duration::from_millis(700);
/// What a rail is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// TCP, or a pair within this process.
    Stream,
    /// UDP; and what a train showed of the path to the receiver just before.
    Packets(Sizes, Option<TrainSeen>),
    /// A queue pair, emulated over this connection.
    Pair,
    /// A queue pair of a device.
    Device,
    /// Nothing: whoever dials has panicked, and dials no more. Why is the socket's error.
    Gone,
    /// No rail: the control session may go on over it, under this nonce of the acceptor's; there, with what the initiator has shown to have of it.
    Control([u8; 32], Option<u64>),
}

/// What a dialler is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// A rail over TCP.
    Stream(u16),
    /// A queue pair, emulated over TCP.
    Pair(u16),
    /// A queue pair of a device.
    Device(u16),
    /// A rail over UDP; one that is there already moves to a new address of this end.
    Packets(u16),
    /// A look at the path for this rail, whose number is then used by `Packets`.
    Look(u16),
    /// Another connection for the control session.
    Control,
}

/// A rail that is ready, or why it is not.
#[derive(Debug)]
pub struct Arrival {
    /// The number of the rail.
    pub rail: u16,
    /// What it is, or was to be.
    pub carrier: Carrier,
    /// The socket.
    pub socket: io::Result<Socket>,
}

/// What a rail goes over.
#[derive(Debug)]
pub enum Socket {
    /// A descriptor.
    Fd(OwnedFd),
    /// A connection between RDMA devices.
    Link(Box<Link>),
}

impl Socket {
    /// Its descriptor. Errors: it is between devices.
    pub fn fd(self) -> io::Result<OwnedFd> {
        match self {
            Socket::Fd(fd) => Ok(fd),
            Socket::Link(_) => Err(ErrorKind::Unsupported.into()),
        }
    }
}

/// Who dials one path: streams and datagrams apart, so that one that is not answered keeps no other waiting.
#[derive(Debug)]
pub struct Diallers {
    /// The path, for the user: where it leads, and from where if that was said.
    pub name: String,
    /// The address and port that are dialled; `None`: within this process.
    place: Option<SocketAddr>,
    streams: Sender<Ask>,
    packets: Sender<Ask>,
    /// Connections are made with small segments.
    small: Arc<AtomicBool>,
}

/// A datagram rail that is greeted while the acceptor still thinks about the plan, and tried with a train while it says what it wants: both
/// take no round trip of their own then.
#[derive(Debug)]
pub struct Early {
    thread: Option<JoinHandle<io::Result<Greeted>>>,
    answered: Arc<AtomicBool>,
    /// No train goes, now or later: the job is too small for one.
    untried: bool,
    opened: Opened,
}

impl Early {
    /// The number of the rail that is greeted before the plan is made.
    pub const RAIL: u16 = 0;

    /// Begins, on a thread of its own. `train`: so many packets, to the peer or from it (`sends`).
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn begin(mut peer: Peer, secret: JobSecret, sends: bool, train: Option<u16>) -> io::Result<Early> {
        // Where data comes this way the acceptor sends the train, and must know first who asks.
        peer.train = train.filter(|_| sends).unwrap_or(0);
        let (answered, opened) = (Arc::new(AtomicBool::new(false)), Opened::not_yet()?);
        let (told, known) = (answered.clone(), opened.clone());
        let thread = std::thread::spawn(move || {
            let mut greeted = udp::greet(peer, &secret, Self::RAIL, Some(&known))?;
            told.store(true, Ordering::Relaxed);
            if let Some(packets) = train
                && (peer.train == 0 || greeted.ahead(&secret, peer.train).is_none())
            {
                let _ = greeted.measure(&secret, sends, packets);
            }
            Ok(greeted)
        });
        Ok(Early { thread: Some(thread), answered, untried: train.is_none(), opened })
    }

    /// The acceptor has said that it knows of the job.
    pub fn on_agreed(&self) {
        self.opened.tell(false);
    }

    fn greeted(mut self) -> io::Result<Greeted> {
        let thread = self.thread.take().expect("taken once");
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the greeting failed")))
    }
}

impl Drop for Early {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.opened.tell(true);
        }
    }
}

/// The first rail over TCP, connected while the session's keys are agreed and greeted right behind `Open`: neither takes a round trip of its own
/// then. Let go of without `greet` it is closed.
#[derive(Debug)]
pub struct AheadStream {
    to: SocketAddr,
    rail: u16,
    secret: Sender<(JobSecret, u16)>,
    thread: JoinHandle<io::Result<OwnedFd>>,
}

impl AheadStream {
    /// Begins, on a thread of its own. `small`: with small segments.
    #[must_use]
    pub fn connect(to: SocketAddr, small: bool) -> AheadStream {
        let (secret, given) = channel();
        let manner = Manner { patience: DIAL, sends: true, small };
        let thread = std::thread::spawn(move || {
            let stream = sys::sock::connect_from(to, None, DIAL, |fd| before_connect(fd, small))?;
            let (secret, rail): (JobSecret, u16) = given.recv().map_err(|_| ErrorKind::Interrupted)?;
            manner.welcomed(stream, &secret, rail)
        });
        AheadStream { to, rail: AHEAD, secret, thread }
    }

    /// Where it leads.
    #[must_use]
    pub fn to(&self) -> SocketAddr {
        self.to
    }

    /// `Open` is said: the acceptor waits for the rail of this number now, or will in a moment.
    pub fn greet(&mut self, secret: JobSecret, rail: u16) {
        self.rail = rail;
        // A thread that could not connect has ended, and says so when it is asked.
        let _ = self.secret.send((secret, rail));
    }

    fn greeted(self) -> io::Result<OwnedFd> {
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the greeting failed")))
    }
}

/// What was begun before there was a plan.
#[derive(Debug, Default)]
pub struct Begun {
    /// A datagram rail.
    pub packets: Option<Early>,
    /// A rail over TCP.
    pub stream: Option<AheadStream>,
}

/// Where rails come from.
#[derive(Debug)]
pub enum Rails {
    /// The initiator dials.
    Dial {
        /// Each path.
        paths: Vec<Diallers>,
        /// Connections asked for, for the control session: each over the next path.
        control: Cell<usize>,
        /// The number of a datagram rail that is greeted already, until it is asked for.
        early: Cell<Option<u16>>,
        /// Its greeting was answered.
        answered: Option<Arc<AtomicBool>>,
        /// What came of it.
        from: Receiver<Arrival>,
        /// What looks at the path showed.
        views: Receiver<io::Result<Seen>>,
    },
    /// The acceptor waits.
    Wait {
        /// Greeted sockets from the listener.
        from: Receiver<Arrival>,
    },
}

impl Rails {
    /// Rails over TCP or UDP to each of `peers`, dialled on two threads for each, which end with this value. `sends`: data goes from here to
    /// there; `rtt`: of the control session; `small`: that was made with small segments only; `device`: the only one of which queue pairs may be.
    #[must_use]
    pub fn dial_net(
        peers: &[Peer],
        secret: &JobSecret,
        sends: bool,
        (rtt, small): (Duration, bool),
        (ahead, device): (Begun, Option<&str>),
        wake: &Event,
    ) -> Rails {
        let Begun { packets: early, stream: mut first } = ahead;
        let begun = Cell::new(early.as_ref().map(|_| Early::RAIL));
        let answered = early.as_ref().map(|early| early.answered.clone());
        let mut early = early;
        let (to, from) = channel();
        let (view, views) = channel();
        let patience = if peers.len() > 1 { DIAL_AGAIN.max(rtt * 4) } else { DIAL };
        let manner = Manner { patience, sends, small };
        let paths = peers.iter().map(|&peer| {
            let small = Arc::new(AtomicBool::new(small));
            let asked_small = Arc::clone(&small);
            let name = match peer.from {
                Some(from) => format!("{from}={}", peer.addr.ip()),
                None => peer.addr.ip().to_string(),
            };
            let (secret, theirs, view, device) =
                (secret.clone(), secret.clone(), view.clone(), device.map(str::to_owned));
            let mut first = first.take_if(|it| it.to == peer.addr && peer.from.is_none());
            let streams = dial_with(wake.clone(), to.clone(), move |ask| {
                let ahead = first.take_if(|it| ask == Ask::Stream(it.rail)).map(|it| (it.rail, it.greeted()));
                if let Some((rail, Ok(socket))) = ahead {
                    return Some(Arrival { rail, carrier: Carrier::Stream, socket: Ok(Socket::Fd(socket)) });
                }
                let small = asked_small.load(Ordering::Relaxed);
                Manner { small, ..manner }.stream(peer, &theirs, ask, device.as_deref())
            });
            // It was begun with the first path's peer.
            let mut ahead = Ahead { early: early.take(), looked: None };
            let packets =
                dial_with(wake.clone(), to.clone(), move |ask| manner.packets(peer, &secret, ask, &mut ahead, &view));
            Diallers { name, place: Some(peer.addr), streams, packets, small }
        });
        Rails::Dial { paths: paths.collect(), control: Cell::new(0), early: begun, answered, from, views }
    }

    /// Rails made in pairs within this process; the other ends go to `there`.
    #[must_use]
    pub fn dial_pair(there: Sender<Arrival>, there_bell: Event, wake: Event) -> Rails {
        let (to, from) = channel();
        let (_, views) = channel();
        let streams = dial_with(wake, to, move |ask| {
            let Ask::Stream(rail) = ask else { return None };
            let pair = || {
                let (here, other) = sys::sock::pair()?;
                let _ = sys::sock::set_buffers(&here, PAIR_BUFFER, PAIR_BUFFER);
                let _ = sys::sock::set_buffers(&other, PAIR_BUFFER, PAIR_BUFFER);
                let arrival = Arrival { rail, carrier: Carrier::Stream, socket: Ok(Socket::Fd(other)) };
                there.send(arrival).map_err(|_| io::ErrorKind::ConnectionRefused)?;
                there_bell.signal();
                Ok(here)
            };
            Some(Arrival { rail, carrier: Carrier::Stream, socket: pair().map(Socket::Fd) })
        });
        let (name, packets, small) = ("this process".to_owned(), streams.clone(), Arc::default());
        let paths = vec![Diallers { name, place: None, streams, packets, small }];
        Rails::Dial { paths, control: Cell::new(0), early: Cell::new(None), answered: None, from, views }
    }

    /// Asks for a rail over a path, if this end makes them. Connections for the control session take the paths in turn.
    pub fn ask(&self, path: usize, wanted: Ask) {
        if let Rails::Dial { paths, control, .. } = self {
            let path = if wanted == Ask::Control { control.replace(control.get() + 1) % paths.len() } else { path };
            let diallers = &paths[path];
            // The diallers live as long as this value.
            let _ = if matches!(wanted, Ask::Stream(_) | Ask::Pair(_) | Ask::Device(_) | Ask::Control) {
                diallers.streams.send(wanted)
            } else {
                diallers.packets.send(wanted)
            };
        }
    }

    /// Connections over this path have small segments from now on. False: they had, or this end makes none.
    pub fn go_small(&self, path: usize) -> bool {
        match self {
            Rails::Dial { paths, .. } => paths.get(path).is_some_and(|it| !it.small.swap(true, Ordering::Relaxed)),
            Rails::Wait { .. } => false,
        }
    }

    /// Names of the paths that this end dials; none where it waits.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        match self {
            Rails::Dial { paths, .. } => paths.iter().map(|path| path.name.clone()).collect(),
            Rails::Wait { .. } => Vec::new(),
        }
    }

    /// Addresses and ports that this end dials, each once.
    #[must_use]
    pub fn places(&self) -> Vec<String> {
        let Rails::Dial { paths, .. } = self else { return Vec::new() };
        let mut all: Vec<String> = paths.iter().filter_map(|path| path.place).map(|it| it.to_string()).collect();
        all.dedup();
        all
    }

    /// What a look at the path showed.
    #[must_use]
    pub fn view(&self) -> Option<io::Result<Seen>> {
        match self {
            Rails::Dial { views, .. } => views.try_recv().ok(),
            Rails::Wait { .. } => None,
        }
    }

    /// The number of the datagram rail that is greeted already, until it is taken.
    #[must_use]
    pub fn early(&self) -> Option<u16> {
        match self {
            Rails::Dial { early, .. } => early.get(),
            Rails::Wait { .. } => None,
        }
    }

    /// The same, to be asked for now.
    #[must_use]
    pub fn take_early(&self) -> Option<u16> {
        match self {
            Rails::Dial { early, .. } => early.take(),
            Rails::Wait { .. } => None,
        }
    }

    /// Was the rail that is greeted early answered? `None`: there is none.
    #[must_use]
    pub fn early_answered(&self) -> Option<bool> {
        match self {
            Rails::Dial { answered, .. } => answered.as_ref().map(|answered| answered.load(Ordering::Relaxed)),
            Rails::Wait { .. } => None,
        }
    }

    /// Does this end make the rails?
    #[must_use]
    pub fn dials(&self) -> bool {
        matches!(self, Rails::Dial { .. })
    }

    /// One that arrived.
    #[must_use]
    pub fn next(&self) -> Option<Arrival> {
        match self {
            Rails::Dial { from, .. } | Rails::Wait { from } => from.try_recv().ok(),
        }
    }
}

/// A thread that dials what it is asked for, one after another, until nobody can ask any more.
fn dial_with(
    wake: Event,
    to: Sender<Arrival>,
    mut dial: impl FnMut(Ask) -> Option<Arrival> + Send + 'static,
) -> Sender<Ask> {
    let (ask, asked) = channel::<Ask>();
    std::thread::spawn(move || {
        for ask in asked {
            let dialled = catch_unwind(AssertUnwindSafe(|| {
                panic_once_if_asked("dialler");
                dial(ask)
            }));
            let is_over = dialled.is_err();
            let arrival = dialled.unwrap_or_else(|panic| {
                let socket = Err(io::Error::other(format!("the dialler panicked: {}", words(&*panic))));
                Some(Arrival { rail: CONTROL, carrier: Carrier::Gone, socket })
            });
            if arrival.is_some_and(|arrival| to.send(arrival).is_err()) {
                return;
            }
            wake.signal();
            if is_over {
                return;
            }
        }
    });
    ask
}

/// A socket pair holds this much in flight.
const PAIR_BUFFER: u64 = 4 << 20;

/// What a path's dialler has done before it is asked.
#[derive(Debug)]
struct Ahead {
    early: Option<Early>,
    /// A look's rail waits for its use.
    looked: Option<(u16, Greeted)>,
}

impl Ahead {
    fn greet(&mut self, peer: Peer, secret: &JobSecret, rail: u16) -> io::Result<Greeted> {
        match (self.looked.take(), self.early.take_if(|_| rail == Early::RAIL)) {
            (Some((of, greeted)), _) if of == rail => Ok(greeted),
            (_, Some(early)) => early.greeted(),
            _ => udp::greet(peer, secret, rail, None),
        }
    }
}

/// How paths are dialled.
#[derive(Debug, Clone, Copy)]
struct Manner {
    /// For a connection to be made.
    patience: Duration,
    /// Data goes from here to there.
    sends: bool,
    /// With small segments.
    small: bool,
}

impl Manner {
    fn stream(self, peer: Peer, secret: &JobSecret, ask: Ask, device: Option<&str>) -> Option<Arrival> {
        match ask {
            Ask::Stream(rail) => {
                Some(Arrival { rail, carrier: Carrier::Stream, socket: self.dial(peer, secret, rail).map(Socket::Fd) })
            }
            Ask::Control => {
                let (carrier, socket) = self.dial_control(peer, secret).map_or_else(
                    |error| (Carrier::Control([0; 32], None), Err(error)),
                    |(nonce, socket)| (Carrier::Control(nonce, None), Ok(socket)),
                );
                Some(Arrival { rail: CONTROL, carrier, socket: socket.map(Socket::Fd) })
            }
            Ask::Device(rail) => {
                let hello = hello_of(&secret.pair_greeting(rail));
                let link = Link::dial(door_at(peer.addr), peer.from, device, hello, self.patience);
                Some(Arrival { rail, carrier: Carrier::Device, socket: link.map(|it| Socket::Link(Box::new(it))) })
            }
            Ask::Pair(rail) => {
                let dialled = self.connect(peer).and_then(|stream| self.welcomed_as(stream, secret, (rail, true)));
                Some(Arrival { rail, carrier: Carrier::Pair, socket: dialled.map(Socket::Fd) })
            }
            Ask::Packets(_) | Ask::Look(_) => None,
        }
    }

    fn packets(
        self,
        peer: Peer,
        secret: &JobSecret,
        ask: Ask,
        ahead: &mut Ahead,
        view: &Sender<io::Result<Seen>>,
    ) -> Option<Arrival> {
        match ask {
            Ask::Packets(rail) => {
                let made = ahead.greet(peer, secret, rail).and_then(|greeted| {
                    let seen = greeted.seen().filter(|_| self.sends);
                    let (socket, sizes) = greeted.confirm(secret, self.sends)?;
                    Ok((Carrier::Packets(sizes, seen), socket))
                });
                let (carrier, socket) = match made {
                    Ok((carrier, socket)) => (carrier, Ok(socket)),
                    Err(error) => (Carrier::Packets(Sizes { tag: 0, start: 0, most: 0 }, None), Err(error)),
                };
                Some(Arrival { rail, carrier, socket: socket.map(Socket::Fd) })
            }
            Ask::Look(rail) => {
                let untried = ahead.early.as_ref().is_some_and(|early| early.untried);
                let seen = ahead.greet(peer, secret, rail).map(|mut greeted| {
                    let measure = |greeted: &mut Greeted| greeted.measure(secret, self.sends, TRAIN_PACKETS);
                    let train = greeted.train().or_else(|| if untried { None } else { measure(&mut greeted) });
                    let seen = Seen { rtt: greeted.rtt, packet_bytes: greeted.sizes.start, train };
                    ahead.looked = Some((rail, greeted));
                    seen
                });
                // The job driver that asked may be gone.
                let _ = view.send(seen);
                None
            }
            Ask::Stream(_) | Ask::Pair(_) | Ask::Device(_) | Ask::Control => None,
        }
    }

    fn dial(self, peer: Peer, secret: &JobSecret, rail: u16) -> io::Result<OwnedFd> {
        self.welcomed(self.connect(peer)?, secret, rail)
    }

    /// Greets on a connection, and is welcome.
    fn welcomed(self, stream: TcpStream, secret: &JobSecret, rail: u16) -> io::Result<OwnedFd> {
        self.welcomed_as(stream, secret, (rail, false))
    }

    /// The same for a stream rail, or for a queue pair.
    fn welcomed_as(self, stream: TcpStream, secret: &JobSecret, rail: (u16, bool)) -> io::Result<OwnedFd> {
        let mut answer = [0];
        let stream = self.greet(stream, secret, rail, &mut answer)?;
        if answer[0] != WELCOME {
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the peer refused the rail's greeting"));
        }
        let fd = OwnedFd::from(stream);
        prepare(&fd);
        Ok(fd)
    }

    /// A connection on which the control session may go on, and the acceptor's nonce for it.
    fn dial_control(self, peer: Peer, secret: &JobSecret) -> io::Result<([u8; 32], OwnedFd)> {
        let mut nonce = [0; 32];
        let stream = self.greet(self.connect(peer)?, secret, (CONTROL, false), &mut nonce)?;
        Ok((nonce, stream.into()))
    }

    fn connect(self, peer: Peer) -> io::Result<TcpStream> {
        sys::sock::connect_from(peer.addr, peer.from, self.patience, |fd| before_connect(fd, self.small))
    }

    /// Greets, and hears the answer.
    fn greet(
        self,
        mut stream: TcpStream,
        secret: &JobSecret,
        (rail, is_pair): (u16, bool),
        answer: &mut [u8],
    ) -> io::Result<TcpStream> {
        let patience = DIAL.min(self.patience * 3);
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.write_all(&secret.greeting_of(rail, is_pair))?;
        stream.read_exact(answer)?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        Ok(stream)
    }
}

/// How the initiator of a job greets for its control session's datagrams: as a rail of the number that no rail has.
#[must_use]
pub fn session_greeting(peer: SocketAddr, secret: &JobSecret) -> SessionGreeting {
    let mut greeting = vec![0; udp::GREETING_BYTES_MIN];
    greeting[..64].copy_from_slice(&secret.greeting(CONTROL));
    let secret = secret.clone();
    let confirm = move |come: &[u8]| {
        let word = SetupMessage::decode(come, &secret, CONTROL).filter(|word| word.say == SetupKind::Welcome)?;
        Some(SetupMessage { say: SetupKind::Confirm, ..word }.encode(&secret).to_vec())
    };
    SessionGreeting { peer, greeting, confirm: Box::new(confirm) }
}

/// Does the peer of this job answer there? It is asked as for a connection to go on with, which then is dropped. Errors: why not, within
/// four times `DIAL_AGAIN`. (That it is the peer and no other is shown by the rails: each byte of them is sealed or tagged with the job's keys.)
pub fn answers(peer: Peer, secret: &JobSecret) -> io::Result<()> {
    let manner = Manner { patience: DIAL_AGAIN, sends: true, small: false };
    manner.dial_control(peer, secret).map(drop)
}

/// What a rail's socket needs before it is connected. `small`: with small segments.
fn before_connect(fd: BorrowedFd<'_>, small: bool) -> io::Result<()> {
    congestion::begin(fd);
    bound_segments(fd, small)
}

/// Socket options of a rail, on both ends. Each is a hint: without it the rail is slower, not wrong.
pub fn prepare(fd: impl AsFd) {
    let _ = sys::sock::set_nodelay(&fd, true);
    // A daemon's come from a listener with a session's timers.
    crate::link::timers::set_bulk(&fd);
    let _ = sys::sock::set_keepalive(&fd, Duration::from_secs(15), Duration::from_secs(5), 3);
    congestion::settle(&fd);
}
