//! Connected rails: made by the initiator, awaited by the acceptor.
//!
//! For: sockets that a worker can use at once.
//! In and out: rail numbers in, connected and greeted sockets out, through a mailbox that rings the keeper.
//! Invariants: a number is used once; connecting never happens on the keeper's thread.
//! Absent on purpose: how many (keeper), what goes over them (engine).

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use sys::event::Event;

use crate::job::keys::JobSecret;
use crate::job::udp::{self, Peer, Sizes};

/// The acceptor's answer to a greeting.
pub const WELCOME: u8 = 1;
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
}

/// What a dialler is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Its number.
    pub rail: u16,
    /// UDP instead of TCP.
    pub datagrams: bool,
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
        ask: Sender<Ask>,
        /// What came of it.
        from: Receiver<Arrival>,
    },
    /// The acceptor waits.
    Wait {
        /// Greeted sockets from the listener.
        from: Receiver<Arrival>,
    },
}

impl Rails {
    /// Rails over TCP or UDP to `peer`, dialled on a thread of their own, which ends with this value. `sends`: data goes from here to there.
    #[must_use]
    pub fn dial_net(peer: Peer, secret: JobSecret, sends: bool, bell: Event) -> Rails {
        Self::dial_with(bell, move |ask| {
            if ask.datagrams {
                let (socket, sizes) = udp::dial(peer, &secret, ask.rail, sends)?;
                return Ok((Carrier::Packets(sizes), socket));
            }
            Ok((Carrier::Stream, dial(peer.addr, &secret, ask.rail)?))
        })
    }

    /// Rails made in pairs within this process; the other ends go to `there`.
    #[must_use]
    pub fn dial_pair(there: Sender<Arrival>, there_bell: Event, bell: Event) -> Rails {
        Self::dial_with(bell, move |Ask { rail, .. }| {
            let (here, other) = sys::sock::pair()?;
            let _ = sys::sock::set_buffers(&here, PAIR_BUFFER, PAIR_BUFFER);
            let _ = sys::sock::set_buffers(&other, PAIR_BUFFER, PAIR_BUFFER);
            let arrival = Arrival { rail, carrier: Carrier::Stream, socket: Ok(other) };
            there.send(arrival).map_err(|_| io::ErrorKind::ConnectionRefused)?;
            there_bell.signal();
            Ok((Carrier::Stream, here))
        })
    }

    fn dial_with(bell: Event, dial: impl Fn(Ask) -> io::Result<(Carrier, OwnedFd)> + Send + 'static) -> Rails {
        let (ask, asked) = channel::<Ask>();
        let (to, from) = channel();
        std::thread::spawn(move || {
            for ask in asked {
                let (carrier, socket) = match dial(ask) {
                    Ok((carrier, socket)) => (carrier, Ok(socket)),
                    Err(error) if ask.datagrams => (Carrier::Packets(Sizes { tag: 0, start: 0, most: 0 }), Err(error)),
                    Err(error) => (Carrier::Stream, Err(error)),
                };
                if to.send(Arrival { rail: ask.rail, carrier, socket }).is_err() {
                    return;
                }
                bell.signal();
            }
        });
        Rails::Dial { ask, from }
    }

    /// Asks for a rail, if this end makes them.
    pub fn ask(&self, wanted: Ask) {
        if let Rails::Dial { ask, .. } = self {
            // The dialler lives as long as this value.
            let _ = ask.send(wanted);
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

/// A socket pair holds this much in flight.
const PAIR_BUFFER: u64 = 4 << 20;

fn dial(addr: SocketAddr, secret: &JobSecret, rail: u16) -> io::Result<OwnedFd> {
    let mut stream = sys::sock::connect(addr, DIAL)?;
    stream.set_read_timeout(Some(DIAL))?;
    stream.set_write_timeout(Some(DIAL))?;
    stream.write_all(&secret.greeting(rail))?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    if answer[0] != WELCOME {
        return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the peer refused the rail's greeting"));
    }
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    let fd = OwnedFd::from(stream);
    prepare(&fd);
    Ok(fd)
}

/// Socket options of a rail, on both ends. Each is a hint: without it the rail is slower, not wrong.
pub fn prepare(fd: impl AsFd) {
    let _ = sys::sock::set_nodelay(&fd, true);
    let _ = sys::sock::set_keepalive(&fd, Duration::from_secs(15), Duration::from_secs(5), 3);
    if sys::sock::tcp_info(&fd).is_ok_and(|info| info.rtt_us < SHORT_PATH_US) {
        let _ = sys::sock::set_congestion(&fd, "cubic");
    }
}
