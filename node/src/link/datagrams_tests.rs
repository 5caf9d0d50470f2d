//! Two ends of a session whose connection stands still, or changes, and datagrams beside it.
//!
//! Absent on purpose: losses and timers (proto::session::transport::duplicate, in virtual time), greetings (the demultiplexer's tests, the lab).

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use super::*;
use crate::identity::Identity;
use crate::link::tests::{another_connection, one_server, session};
use crate::link::{Expect, Turn};

const SOON: Duration = Duration::from_secs(10);
const KEYS: DatagramKeys = DatagramKeys { mac: [5; 32], tag: 0x12_3456 };

/// Two sockets that reach each other.
fn sockets() -> [UdpSocket; 2] {
    let [one, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    one.connect(other.local_addr().unwrap()).unwrap();
    other.connect(one.local_addr().unwrap()).unwrap();
    [one, other]
}

/// Gives both ends a path; the sockets' other handles.
fn path(near: &mut Link, far: &mut Link) -> [UdpSocket; 2] {
    let [here, there] = sockets();
    near.duplicate(KEYS, true);
    far.duplicate(KEYS, false);
    let others = [here.try_clone().unwrap(), there.try_clone().unwrap()];
    near.datagrams_over(here.into());
    far.datagrams_over(there.into());
    others
}

/// A session over a relay that brings nothing any more once it is told.
fn session_that_may_stall() -> (Link, Link, Arc<AtomicBool>) {
    let (server, client) = (Arc::new(Identity::ephemeral().unwrap()), Identity::ephemeral().unwrap());
    let (address, accepted) = one_server(&server);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let front = listener.local_addr().unwrap().to_string();
    let stalls = Arc::new(AtomicBool::new(false));
    let stalled = stalls.clone();
    thread::spawn(move || {
        let near = listener.accept().unwrap().0;
        let far = TcpStream::connect(address).unwrap();
        for (mut from, mut to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
            let stalled = stalled.clone();
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(length @ 1..) = from.read(&mut bytes) {
                    while stalled.load(Ordering::Relaxed) && Arc::strong_count(&stalled) > 2 {
                        thread::sleep(Duration::from_millis(5));
                    }
                    if to.write_all(&bytes[..length]).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(Shutdown::Both);
            });
        }
    });
    let near = Link::connect(&front, &client, Expect::Key(server.public()), SOON).unwrap();
    (near, accepted.join().unwrap().unwrap(), stalls)
}

/// Turns both ends until each has so many frames.
fn turn_until(near: &mut Link, far: &mut Link, counts: [usize; 2]) -> [Vec<Vec<u8>>; 2] {
    let (mut came, until) = ([Vec::new(), Vec::new()], Instant::now() + SOON);
    while came[0].len() < counts[0] || came[1].len() < counts[1] {
        assert!(Instant::now() < until, "it takes too long: {} and {} came", came[0].len(), came[1].len());
        near.turn(&mut came[0]).unwrap();
        far.turn(&mut came[1]).unwrap();
        thread::sleep(Duration::from_micros(100));
    }
    came
}

fn frame(number: u32, bytes: usize) -> Vec<u8> {
    [&number.to_le_bytes()[..], &vec![number as u8; bytes]].concat()
}

#[test]
fn a_session_whose_connection_stands_still_goes_on_and_says_farewell() {
    let (mut near, mut far, stalls) = session_that_may_stall();
    let _sockets = path(&mut near, &mut far);
    turn_until(&mut near, &mut far, [0, 0]);
    stalls.store(true, Ordering::Relaxed);
    for number in 0..40 {
        near.send(&frame(number, 900));
        far.send(&frame(number, 30));
    }
    let came = turn_until(&mut near, &mut far, [40, 40]);
    for (number, (one, other)) in (0..).zip(came[0].iter().zip(&came[1])) {
        assert!(*one == frame(number, 30) && *other == frame(number, 900), "{number}");
    }
    // The same bytes come over the connection afterwards, and are nothing new.
    stalls.store(false, Ordering::Relaxed);
    near.send(b"last");
    near.close();
    let (mut rest, until) = (Vec::new(), Instant::now() + SOON);
    while far.turn(&mut rest).unwrap() != Turn::Closed {
        assert!(Instant::now() < until, "no farewell");
        let _ = near.turn(&mut Vec::new());
        thread::sleep(Duration::from_micros(100));
    }
    assert_eq!(rest, [b"last"]);
}

#[test]
fn an_acceptor_that_speaks_is_as_good_as_its_welcome() {
    let (mut near, mut far, stalls) = session_that_may_stall();
    turn_until(&mut near, &mut far, [0, 0]);
    stalls.store(true, Ordering::Relaxed);
    let port = UdpSocket::bind("127.0.0.1:0").unwrap();
    near.duplicate(KEYS, true);
    far.duplicate(KEYS, false);
    let (peer, confirm) = (port.local_addr().unwrap(), Box::new(|_: &[u8]| None));
    near.greet_datagrams(SessionGreeting { peer, greeting: vec![1; 1200], confirm });
    let mut bytes = [0; 2000];
    let (length, from) = port.recv_from(&mut bytes).unwrap();
    assert_eq!(length, 1200);
    port.connect(from).unwrap();
    // Whatever has no MAC of the session's is none.
    port.send(&[proto::packet::SESSION_KIND; 100]).unwrap();
    // The acceptor's welcome is lost; what it says is not.
    far.datagrams_over(port.into());
    far.send(b"accept");
    let came = turn_until(&mut near, &mut far, [1, 0]);
    assert_eq!(came[0], [b"accept"]);
    near.send(b"wants");
    assert_eq!(turn_until(&mut near, &mut far, [0, 1])[1], [b"wants"]);
    assert!(near.hears_datagrams());
}

#[test]
fn no_frame_is_lost_or_comes_twice_when_the_connection_changes_beside_datagrams() {
    let (mut near, mut far) = session();
    near.keep();
    far.keep();
    let _sockets = path(&mut near, &mut far);
    let (mut sent, mut came) = (0, [Vec::new(), Vec::new()]);
    for round in 0..6 {
        for _ in 0..30 {
            near.send(&frame(sent, (sent as usize * 911) % 30_000));
            far.send(&frame(sent, (sent as usize * 911) % 30_000));
            sent += 1;
        }
        for _ in 0..round {
            near.turn(&mut came[0]).unwrap();
            far.turn(&mut came[1]).unwrap();
        }
        let counts = [near.drain().unwrap(), far.drain().unwrap()];
        let (one, other) = another_connection();
        near.carry_on(one, counts[1], true).unwrap();
        far.carry_on(other, counts[0], false).unwrap();
    }
    let until = Instant::now() + SOON;
    while came.iter().any(|came| came.len() < sent as usize) {
        assert!(Instant::now() < until, "it takes too long");
        near.turn(&mut came[0]).unwrap();
        far.turn(&mut came[1]).unwrap();
    }
    for came in came {
        let wrong = came.iter().enumerate().position(|(at, it)| *it != frame(at as u32, (at * 911) % 30_000));
        assert_eq!((came.len(), wrong), (180, None));
    }
}

#[test]
fn what_nobody_with_the_key_said_to_this_end_changes_nothing() {
    let (mut near, mut far, stalls) = session_that_may_stall();
    let [_here, there] = path(&mut near, &mut far);
    turn_until(&mut near, &mut far, [0, 0]);
    stalls.store(true, Ordering::Relaxed);
    let received = near.bytes_received();
    let said = |keys: DatagramKeys, is_initiators: bool, offset: u64| {
        let (tag, beyond) = (keys.tag, Vec::new());
        let mut out = Vec::new();
        SessionPart { tag, is_initiators, received: u64::MAX >> 1, beyond, offset, bytes: b"not a record of TLS" }
            .encode(&mut out);
        let mac = blake3::keyed_hash(&keys.mac, &out);
        out.extend(&mac.as_bytes()[..MAC_BYTES]);
        out
    };
    let mut changed = said(KEYS, false, received);
    changed[30] ^= 1;
    for (what, datagram) in [
        ("another key", said(DatagramKeys { mac: [6; 32], ..KEYS }, false, received)),
        ("another rail", said(DatagramKeys { tag: 7, ..KEYS }, false, received)),
        ("what this end says itself", said(KEYS, true, received)),
        ("a changed byte", changed),
        ("far beyond the reach", said(KEYS, false, received + (1 << 40))),
        ("nothing", Vec::new()),
        ("noise", vec![b'S'; 1400]),
        ("longer than any", vec![b'S'; 9000]),
    ] {
        there.send(&datagram).unwrap();
        let mut frames = Vec::new();
        for _ in 0..20 {
            assert_eq!(near.turn(&mut frames).unwrap(), Turn::Open, "{what}");
        }
        assert_eq!((near.bytes_received(), frames.len()), (received, 0), "{what}");
    }
    far.send(b"true");
    assert_eq!(turn_until(&mut near, &mut far, [1, 0])[0], [b"true"]);
}

#[test]
fn what_came_before_there_were_datagrams_is_the_connections() {
    let (mut near, mut far) = session();
    // As a listener takes what a peer says that is not let in yet.
    near.send(&[9; 300]);
    near.flush_blocking(SOON).unwrap();
    let until = Instant::now() + SOON;
    while far.frames_ready() == 0 {
        assert!(Instant::now() < until, "nothing came");
        far.take_portion().unwrap();
    }
    let _sockets = path(&mut near, &mut far);
    // The connection alone, then both.
    near.datagrams.as_mut().unwrap().stage = Stage::None;
    near.send(b"one");
    turn_until(&mut near, &mut far, [0, 2]);
    near.send(b"two");
    assert_eq!(turn_until(&mut near, &mut far, [0, 1])[1], [b"two"]);
}
