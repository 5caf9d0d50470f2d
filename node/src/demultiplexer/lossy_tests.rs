//! Greetings over a path of a second that loses a tenth of all packets each way, with real sockets and a relay in this process.
//!
//! Absent on purpose: the same in virtual time and other losses (proto::session::transport::greeting), data over such paths (the lab).

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::tests::Port;
use crate::job::rails::{CONTROL, session_greeting};
use crate::job::udp::{Opened, Peer, greet};
use crate::link::tests::session;

/// Half of the round trip.
const ONE_WAY: Duration = Duration::from_millis(500);
const LOST_PERCENT: u64 = 10;

/// A relay to one port that delays and loses.
struct Relay {
    addr: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A datagram on its way: when it is there, for which client, towards the port.
type OnItsWay = (Instant, usize, bool, Vec<u8>);

/// Who sends from where.
struct Client {
    from: SocketAddr,
    onward: UdpSocket,
}

impl Relay {
    fn to(port: SocketAddr) -> Relay {
        let front = UdpSocket::bind("127.0.0.1:0").unwrap();
        front.set_nonblocking(true).unwrap();
        let (addr, over) = (front.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let ends = over.clone();
        let thread = std::thread::spawn(move || relay(&front, port, &ends));
        Relay { addr, over, thread: Some(thread) }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn relay(front: &UdpSocket, port: SocketAddr, over: &AtomicBool) {
    let (mut clients, mut way) = (Vec::<Client>::new(), Vec::<OnItsWay>::new());
    let mut dice = 0x9E37_79B9_7F4A_7C15_u64;
    let mut is_lost = || {
        dice ^= dice >> 12;
        dice ^= dice << 25;
        dice ^= dice >> 27;
        dice.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33 < (LOST_PERCENT << 31) / 100
    };
    let mut bytes = vec![0; 10_000];
    while !over.load(Ordering::Relaxed) {
        while let Ok((length, from)) = front.recv_from(&mut bytes) {
            let known = clients.iter().position(|it| it.from == from);
            let client = known.unwrap_or_else(|| {
                let onward = UdpSocket::bind("127.0.0.1:0").unwrap();
                onward.connect(port).unwrap();
                onward.set_nonblocking(true).unwrap();
                clients.push(Client { from, onward });
                clients.len() - 1
            });
            if !is_lost() {
                way.push((Instant::now() + ONE_WAY, client, true, bytes[..length].to_vec()));
            }
        }
        for (client, it) in clients.iter().enumerate() {
            while let Ok(length) = it.onward.recv(&mut bytes) {
                if !is_lost() {
                    way.push((Instant::now() + ONE_WAY, client, false, bytes[..length].to_vec()));
                }
            }
        }
        let now = Instant::now();
        for (_, client, there, bytes) in way.extract_if(.., |it| it.0 <= now) {
            let it = &clients[client];
            let _ = if there { it.onward.send(&bytes) } else { front.send_to(&bytes, it.from) };
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn of_a_hundred_jobs_over_a_second_with_a_tenth_lost_none_falls_back_to_tcp() {
    let port = Port::open(false);
    let relay = Relay::to(port.addr);
    let peer = Peer { addr: relay.addr, from: None, packet_bytes: 1472, train: 0, rtt: ONE_WAY * 2 };
    let jobs = (0..100).map(|rail| {
        let secret = port.secret.clone();
        std::thread::spawn(move || {
            let opened = Opened::not_yet().unwrap();
            // Every fourth acceptor is known to know of its job only when the session's own packet came at last.
            let late = opened.clone();
            let tells = std::thread::spawn(move || {
                std::thread::sleep(if rail % 4 == 0 { ONE_WAY * 9 } else { ONE_WAY * 2 });
                late.tell(false);
            });
            let greeted = greet(peer, &secret, rail, Some(&opened)).map(|it| it.sizes.start);
            tells.join().unwrap();
            greeted
        })
    });
    let all: Vec<_> = jobs.collect::<Vec<_>>().into_iter().map(|job| job.join().unwrap()).collect();
    let failed: Vec<_> = all.iter().filter_map(|it| it.as_ref().err()).collect();
    assert!(failed.is_empty(), "{} of 100 fell back: {}", failed.len(), failed[0]);
}

#[test]
fn a_greeting_for_a_job_that_never_comes_ends_with_it() {
    let port = Port::open(false);
    let deaf = UdpSocket::bind("127.0.0.1:0").unwrap();
    let peer = Peer { addr: deaf.local_addr().unwrap(), from: None, packet_bytes: 1472, train: 0, rtt: ONE_WAY };
    let opened = Opened::not_yet().unwrap();
    let over = opened.clone();
    let began = Instant::now();
    let ends = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        over.tell(true);
    });
    let error = greet(peer, &port.secret, 0, Some(&opened)).unwrap_err();
    ends.join().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionAborted);
    assert!(began.elapsed() < Duration::from_secs(2), "it waits for nobody");
}

#[test]
fn a_session_finds_a_path_for_its_datagrams_and_the_acceptor_hears_it_there() {
    let port = Port::open(false);
    let relay = Relay::to(port.addr);
    let (mut near, mut far) = session();
    let keys = port.secret.session_datagrams(CONTROL);
    near.duplicate(keys, true);
    far.duplicate(keys, false);
    near.greet_datagrams(session_greeting(relay.addr, &port.secret));
    near.on_job_known();
    let (mut frames, began) = ([Vec::new(), Vec::new()], Instant::now());
    let mut arrived = false;
    let (mut near_before, mut far_before) = (0, 0);
    // Both have sent something and heard of the other: bytes of datagrams grow beyond greetings and what one end says into the void.
    while !arrived || near.datagram_bytes() == near_before || far.datagram_bytes() == far_before {
        assert!(began.elapsed() < Duration::from_secs(30), "no path");
        near.turn(&mut frames[0]).unwrap();
        far.turn(&mut frames[1]).unwrap();
        if let Some(arrival) = port.arrived() {
            assert_eq!(arrival.rail, CONTROL);
            far.datagrams_over(arrival.socket.unwrap().fd().unwrap());
            arrived = true;
            (near_before, far_before) = (near.datagram_bytes(), far.datagram_bytes());
            near.send(b"there");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // What is said now goes over both, and comes once.
    near.send(b"and back");
    far.send(b"once");
    while frames[0].is_empty() || frames[1].len() < 2 || began.elapsed() < Duration::from_secs(3) {
        assert!(began.elapsed() < Duration::from_secs(30), "it does not come");
        near.turn(&mut frames[0]).unwrap();
        far.turn(&mut frames[1]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(frames, [vec![b"once".to_vec()], vec![b"there".to_vec(), b"and back".to_vec()]]);
    assert!(near.hears_datagrams() && far.hears_datagrams(), "each has heard the other");
}
