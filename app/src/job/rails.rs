//! Connected rails: made by the initiator, awaited by the acceptor.
//!
//! For: sockets that a worker can use at once.
//! In and out: rail numbers in, connected and greeted sockets out, through a mailbox that rings the keeper.
//! Invariants: a number is used once, but by a datagram rail that moves to another address; connecting never happens on the keeper's
//! thread, and a path that answers no datagrams keeps no stream waiting.
//! Absent on purpose: how many (keeper), what goes over them (engine).

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use sys::event::Event;

use crate::job::keys::JobSecret;
use crate::job::train::Train;
use crate::job::udp::{self, Greeted, Peer, Sizes};

/// The acceptor's answer to a greeting.
pub const WELCOME: u8 = 1;
/// No rail has this number: a greeting with it is for the control session.
pub const CONTROL: u16 = u16::MAX;
/// A connection and its greeting must be done in this time.
const DIAL: Duration = Duration::from_secs(10);
/// Below this round trip, loss means a full queue on a short path: CUBIC. BBR's pacing timers cost five times the CPU there
/// (measured, LIMITS: 11 against 60 Gb/s).
const SHORT_PATH_US: u32 = 5_000;

/// What a rail is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// TCP, or a pair within this process.
    Stream,
    /// UDP.
    Packets(Sizes),
    /// No rail: the control session may go on over it, under this nonce of the acceptor's.
    Control([u8; 32]),
}

/// What a dialler is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// A rail over TCP.
    Stream(u16),
    /// A rail over UDP; one that is there already moves to a new address of this end.
    Packets(u16),
    /// A look at the path for this rail, whose number is then used by `Packets`.
    Look(u16),
    /// Another connection for the control session.
    Control,
}

/// What a look at the path showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// There and back over UDP.
    pub rtt: Duration,
    /// UDP payload that passed both ways.
    pub packet_bytes: u16,
    /// What became of the train; `None`: nothing came of it.
    pub train: Option<Train>,
}

/// A rail that is ready, or why it is not.
#[derive(Debug)]
pub struct Arrival {
    /// Its number.
    pub rail: u16,
    /// What it is, or was to be.
    pub carrier: Carrier,
    /// The socket.
    pub socket: io::Result<OwnedFd>,
}

/// Where rails come from.
#[derive(Debug)]
pub enum Rails {
    /// The initiator dials.
    Dial {
        /// Numbers to dial.
        streams: Sender<Ask>,
        /// And of datagram rails.
        packets: Sender<Ask>,
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
    /// Rails over TCP or UDP to `peer`, dialled on two threads of their own, which end with this value. `sends`: data goes from here to there.
    #[must_use]
    pub fn dial_net(peer: Peer, secret: JobSecret, sends: bool, bell: Event) -> Rails {
        let (to, from) = channel();
        let (view, views) = channel();
        let theirs = secret.clone();
        let streams = dial_with(bell.clone(), to.clone(), move |ask| match ask {
            Ask::Stream(rail) => {
                Some(Arrival { rail, carrier: Carrier::Stream, socket: dial(peer.addr, &theirs, rail) })
            }
            Ask::Control => {
                let (carrier, socket) = dial_control(peer.addr, &theirs).map_or_else(
                    |error| (Carrier::Control([0; 32]), Err(error)),
                    |(nonce, socket)| (Carrier::Control(nonce), Ok(socket)),
                );
                Some(Arrival { rail: CONTROL, carrier, socket })
            }
            Ask::Packets(_) | Ask::Look(_) => None,
        });
        let mut looked: Option<(u16, Greeted)> = None;
        let packets = dial_with(bell, to, move |ask| match ask {
            Ask::Packets(rail) => {
                let known = looked.take().filter(|(of, _)| *of == rail).map(|(_, greeted)| Ok(greeted));
                let greeted = known.unwrap_or_else(|| udp::knock(peer, &secret, rail));
                let (carrier, socket) = match greeted.and_then(|greeted| greeted.confirm(&secret, sends)) {
                    Ok((socket, sizes)) => (Carrier::Packets(sizes), Ok(socket)),
                    Err(error) => (Carrier::Packets(Sizes { tag: 0, start: 0, most: 0 }), Err(error)),
                };
                Some(Arrival { rail, carrier, socket })
            }
            Ask::Look(rail) => {
                let seen = udp::knock(peer, &secret, rail).map(|greeted| {
                    let train = greeted.measure(&secret, sends);
                    let seen = Seen { rtt: greeted.rtt, packet_bytes: greeted.sizes.start, train };
                    looked = Some((rail, greeted));
                    seen
                });
                // The keeper that asked may be gone.
                let _ = view.send(seen);
                None
            }
            Ask::Stream(_) | Ask::Control => None,
        });
        Rails::Dial { streams, packets, from, views }
    }

    /// Rails made in pairs within this process; the other ends go to `there`.
    #[must_use]
    pub fn dial_pair(there: Sender<Arrival>, there_bell: Event, bell: Event) -> Rails {
        let (to, from) = channel();
        let (_, views) = channel();
        let streams = dial_with(bell, to, move |ask| {
            let Ask::Stream(rail) = ask else { return None };
            let pair = || {
                let (here, other) = sys::sock::pair()?;
                let _ = sys::sock::set_buffers(&here, PAIR_BUFFER, PAIR_BUFFER);
                let _ = sys::sock::set_buffers(&other, PAIR_BUFFER, PAIR_BUFFER);
                let arrival = Arrival { rail, carrier: Carrier::Stream, socket: Ok(other) };
                there.send(arrival).map_err(|_| io::ErrorKind::ConnectionRefused)?;
                there_bell.signal();
                Ok(here)
            };
            Some(Arrival { rail, carrier: Carrier::Stream, socket: pair() })
        });
        Rails::Dial { packets: streams.clone(), streams, from, views }
    }

    /// Asks for a rail, if this end makes them.
    pub fn ask(&self, wanted: Ask) {
        if let Rails::Dial { streams, packets, .. } = self {
            // The diallers live as long as this value.
            let _ = if matches!(wanted, Ask::Stream(_) | Ask::Control) {
                streams.send(wanted)
            } else {
                packets.send(wanted)
            };
        }
    }

    /// What a look at the path showed.
    #[must_use]
    pub fn view(&self) -> Option<io::Result<Seen>> {
        match self {
            Rails::Dial { views, .. } => views.try_recv().ok(),
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
    bell: Event,
    to: Sender<Arrival>,
    mut dial: impl FnMut(Ask) -> Option<Arrival> + Send + 'static,
) -> Sender<Ask> {
    let (ask, asked) = channel::<Ask>();
    std::thread::spawn(move || {
        for ask in asked {
            if dial(ask).is_some_and(|arrival| to.send(arrival).is_err()) {
                return;
            }
            bell.signal();
        }
    });
    ask
}

/// A socket pair holds this much in flight.
const PAIR_BUFFER: u64 = 4 << 20;

fn dial(addr: SocketAddr, secret: &JobSecret, rail: u16) -> io::Result<OwnedFd> {
    let mut answer = [0];
    let stream = greet(addr, secret, rail, &mut answer)?;
    if answer[0] != WELCOME {
        return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the peer refused the rail's greeting"));
    }
    let fd = OwnedFd::from(stream);
    prepare(&fd);
    Ok(fd)
}

/// A connection on which the control session may go on, and the acceptor's nonce for it.
fn dial_control(addr: SocketAddr, secret: &JobSecret) -> io::Result<([u8; 32], OwnedFd)> {
    let mut nonce = [0; 32];
    let stream = greet(addr, secret, CONTROL, &mut nonce)?;
    Ok((nonce, stream.into()))
}

/// Connects, greets, and hears the answer.
fn greet(addr: SocketAddr, secret: &JobSecret, rail: u16, answer: &mut [u8]) -> io::Result<TcpStream> {
    let mut stream = sys::sock::connect(addr, DIAL)?;
    stream.set_read_timeout(Some(DIAL))?;
    stream.set_write_timeout(Some(DIAL))?;
    stream.write_all(&secret.greeting(rail))?;
    stream.read_exact(answer)?;
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    Ok(stream)
}

/// Socket options of a rail, on both ends. Each is a hint: without it the rail is slower, not wrong.
pub fn prepare(fd: impl AsFd) {
    let _ = sys::sock::set_nodelay(&fd, true);
    let _ = sys::sock::set_keepalive(&fd, Duration::from_secs(15), Duration::from_secs(5), 3);
    if sys::sock::tcp_info(&fd).is_ok_and(|info| info.rtt_us < SHORT_PATH_US) {
        let _ = sys::sock::set_congestion(&fd, "cubic");
    }
}
