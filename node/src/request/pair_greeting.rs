//! Queue pairs of RDMA devices: how a connection is greeted, and a daemon's door for them.
//!
//! For: rails that dial one, a daemon that lets them in.
//! In and out: greetings in; requests of rdma_cm, each with a greeting, to whoever judges it.
//! Invariants: the door hands on and judges nothing but the device; queues are made after the greeting's MAC has held, by the worker.
//! Absent on purpose: verbs (`sys::rdma`), keys (`keys`).
//!
//! ```text
//! hello, 52: | version u16 | rail u16 | job 16 | MAC 32 |     private data of rdma_cm, which takes 56; the MAC is that of the greeting over TCP
//! ```

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use proto::wire::chunk::Greeting;
use sys::event::{Event, Interest, poll};
use sys::rdma::{Hello, PairListener, Request};

use super::RdmaDevice;

/// The door's port beside a daemon's TCP port: the next one. iWARP's ports are TCP's own, where that one is taken.
#[must_use]
pub fn door_at(daemon: SocketAddr) -> SocketAddr {
    SocketAddr::new(daemon.ip(), daemon.port().checked_add(1).unwrap_or(daemon.port() - 1))
}

/// How a queue pair of a device is greeted.
#[must_use]
pub fn hello_of(greeting: &Greeting) -> Hello {
    let mut hello = [0; 52];
    hello[..2].copy_from_slice(&greeting.version.to_le_bytes());
    hello[2..4].copy_from_slice(&greeting.rail.to_le_bytes());
    hello[4..20].copy_from_slice(&greeting.job);
    hello[20..].copy_from_slice(&greeting.mac);
    hello
}

/// What such a greeting says. Its MAC is not checked here.
#[must_use]
pub fn greeting_of(hello: &Hello) -> Greeting {
    let two = |at: usize| u16::from_le_bytes([hello[at], hello[at + 1]]);
    let (mut job, mut mac) = ([0; 16], [0; 32]);
    job.copy_from_slice(&hello[4..20]);
    mac.copy_from_slice(&hello[20..]);
    Greeting { job, rail: two(2), version: two(0), is_pair: true, mac }
}

/// A daemon's door, open: each that dials by the right device goes to `on`, until `over`. Returns why it ended before.
pub fn serve(door: &PairListener, device: &RdmaDevice, over: &Event, on: impl Fn(Request)) -> Option<std::io::Error> {
    loop {
        let ready =
            poll(&[(door.as_fd(), Interest::Read), (over.as_fd(), Interest::Read)], Some(Duration::from_secs(60)));
        if ready.is_ok_and(|it| it[1].read) {
            return None;
        }
        match door.next() {
            Ok(Some(request)) if device.name().is_some_and(|name| name != request.device()) => request.refuse(),
            Ok(Some(request)) => on(request),
            Ok(None) => {}
            Err(error) => return Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_door_has_a_port_of_its_own() {
        let of = |port: u16| door_at(SocketAddr::from(([10, 0, 0, 1], port))).port();
        assert_eq!((of(5740), of(u16::MAX)), (5741, u16::MAX - 1));
    }

    #[test]
    fn a_hello_says_what_the_greeting_does() {
        let greeting = Greeting { job: [3; 16], rail: 0x1234, version: 7, is_pair: true, mac: [9; 32] };
        assert_eq!(greeting_of(&hello_of(&greeting)), greeting);
        assert_eq!(hello_of(&greeting)[..6], [7, 0, 0x34, 0x12, 3, 3], "docs/protocol.md has the drawing");
    }
}
