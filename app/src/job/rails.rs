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

/// The acceptor's answer to a greeting.
pub const WELCOME: u8 = 1;
/// A connection and its greeting must be done in this time.
const DIAL: Duration = Duration::from_secs(10);
/// Below this round trip, loss means a full queue on a short path: CUBIC. BBR's pacing timers cost five times the CPU there
/// (measured, LIMITS: 11 against 60 Gb/s).
const SHORT_PATH_US: u32 = 5_000;

/// A rail that is ready, or why it is not.
#[derive(Debug)]
pub struct Arrival {
    /// Its number.
    pub rail: u16,
    /// The socket.
    pub socket: io::Result<OwnedFd>,
}

/// Where rails come from.
#[derive(Debug)]
pub enum Rails {
    /// The initiator dials.
    Dial {
        /// Numbers to dial.
        ask: Sender<u16>,
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
    /// Rails over TCP to `addr`, dialled on a thread of their own, which ends with this value.
    #[must_use]
    pub fn dial_tcp(addr: SocketAddr, secret: JobSecret, bell: Event) -> Rails {
        Self::dial_with(bell, move |rail| dial(addr, &secret, rail))
    }

    /// Rails made in pairs within this process; the other ends go to `there`.
    #[must_use]
    pub fn dial_pair(there: Sender<Arrival>, there_bell: Event, bell: Event) -> Rails {
        Self::dial_with(bell, move |rail| {
            let (here, other) = sys::sock::pair()?;
            let _ = sys::sock::set_buffers(&here, PAIR_BUFFER, PAIR_BUFFER);
            let _ = sys::sock::set_buffers(&other, PAIR_BUFFER, PAIR_BUFFER);
            there.send(Arrival { rail, socket: Ok(other) }).map_err(|_| io::ErrorKind::ConnectionRefused)?;
            there_bell.signal();
            Ok(here)
        })
    }

    fn dial_with(bell: Event, dial: impl Fn(u16) -> io::Result<OwnedFd> + Send + 'static) -> Rails {
        let (ask, asked) = channel::<u16>();
        let (to, from) = channel();
        std::thread::spawn(move || {
            for rail in asked {
                let socket = dial(rail);
                if to.send(Arrival { rail, socket }).is_err() {
                    return;
                }
                bell.signal();
            }
        });
        Rails::Dial { ask, from }
    }

    /// Asks for a rail, if this end makes them.
    pub fn ask(&self, rail: u16) {
        if let Rails::Dial { ask, .. } = self {
            // The dialler lives as long as this value.
            let _ = ask.send(rail);
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
