//! The UDP port under honest and under hostile greetings, without a daemon around it.
//!
//! Absent on purpose: packets (engine), whole jobs (lab/e2e/10-datagrams.sh).

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use super::*;
use crate::job::udp::packet_train::TRAIN_PACKETS;
use crate::job::udp::{Peer, greet};

const JOB: [u8; 16] = [7; 16];

/// One job, as serve::Daemon keeps it.
struct One {
    guest: Guest,
    /// Numbers that were greeted, and how often each was confirmed.
    rails: Mutex<std::collections::HashMap<u16, u32>>,
    to: std::sync::mpsc::Sender<Arrival>,
    awaited: Event,
    is_there: Arc<AtomicBool>,
}

impl Jobs for One {
    fn judge(&self, greeting: &Greeting) -> Option<(Guest, Standing)> {
        if !self.is_there.load(Ordering::Relaxed) || !self.guest.secret.holds(greeting) {
            return None;
        }
        let mut rails = self.rails.lock().unwrap();
        let standing = rails.get(&greeting.rail).map_or(Standing::New, |&confirmed| Standing::Known(confirmed));
        rails.entry(greeting.rail).or_default();
        Some((self.guest.clone(), standing))
    }

    fn find(&self, begins: [u8; 4], rail: u16) -> Vec<([u8; 16], Guest, u32)> {
        let confirmed = self.rails.lock().unwrap().get(&rail).copied();
        let its = confirmed.filter(|_| JOB.starts_with(&begins));
        its.into_iter().map(|confirmed| (JOB, self.guest.clone(), confirmed)).collect()
    }

    fn new_jobs(&self) -> &Event {
        &self.awaited
    }

    fn hello(&self, _: &[u8], _: SocketAddr) -> Option<Vec<Vec<u8>>> {
        None
    }

    fn deliver(&self, _: &[u8; 16], arrival: Arrival) -> bool {
        *self.rails.lock().unwrap().entry(arrival.rail).or_default() += 1;
        self.to.send(arrival).is_ok()
    }
}

/// A demultiplexer that lets one job in.
pub(super) struct Port {
    pub(super) addr: SocketAddr,
    pub(super) secret: JobSecret,
    arrivals: Mutex<Receiver<Arrival>>,
    counts: Arc<Counts>,
    awaited: Event,
    is_there: Arc<AtomicBool>,
    over: Event,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Port {
    pub(super) fn open(sends: bool) -> Port {
        Port::keeping(sends, EARLY)
    }

    /// One that keeps greetings of jobs it does not know for as long as the test says.
    fn keeping(sends: bool, early: Duration) -> Port {
        let mut demultiplexer = Demultiplexer::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        demultiplexer.early = early;
        let (addr, secret) = (demultiplexer.local, JobSecret::from_master([9; 32], JOB));
        let (to, arrivals) = channel();
        let (over, counts) = (Event::new().unwrap(), Arc::new(Counts::default()));
        let (awaited, is_there) = (Event::new().unwrap(), Arc::new(AtomicBool::new(true)));
        let (theirs, ends, counted) = (secret.clone(), over.clone(), counts.clone());
        let guest = Guest { secret: theirs, local: addr, peer: addr.ip(), packet_bytes: PACKET_BYTES_MAX, sends };
        let (bell, there) = (awaited.clone(), is_there.clone());
        let one = One { guest, rails: Mutex::default(), to, awaited: bell, is_there: there };
        let thread = std::thread::spawn(move || demultiplexer.run(&one, &counted, &ends));
        Port { addr, secret, arrivals: Mutex::new(arrivals), counts, awaited, is_there, over, thread: Some(thread) }
    }

    pub(super) fn arrived(&self) -> Option<Arrival> {
        self.arrivals.lock().unwrap().try_recv().ok()
    }

    fn arrival(&self) -> Arrival {
        self.arrivals.lock().unwrap().recv_timeout(Duration::from_secs(5)).expect("a rail")
    }

    /// A greeting as it stands on the wire.
    fn greeting(&self, rail: u16) -> Vec<u8> {
        let mut greeting = vec![0; 1300];
        greeting[..64].copy_from_slice(&self.secret.greeting(rail));
        greeting
    }

    /// Waits until the port has taken `datagrams` that it does not know, since it was opened.
    fn took(&self, datagrams: u64) {
        let until = Instant::now() + Duration::from_secs(60);
        while self.counts.strangers.load(Ordering::Relaxed) < datagrams {
            assert!(Instant::now() < until, "of {datagrams} datagrams some were lost");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Rails that wait to be confirmed, once the port has done all that came before.
    fn waiting(&self) -> u64 {
        let strangers = self.counts.strangers.load(Ordering::Relaxed);
        stranger(self.addr).send(b"?").unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while self.counts.strangers.load(Ordering::Relaxed) == strangers && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20));
        self.counts.waiting.load(Ordering::Relaxed)
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.over.signal();
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

fn dial(addr: SocketAddr, secret: &JobSecret, rail: u16, sends: bool) -> io::Result<(std::os::fd::OwnedFd, Sizes)> {
    let peer = Peer { addr, from: None, packet_bytes: PACKET_BYTES_MAX, train: 0, rtt: Duration::ZERO };
    greet(peer, secret, rail, None)?.confirm(secret, sends)
}

fn stranger(to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    socket
}

#[test]
fn a_greeted_rail_has_one_size_and_tag_at_both_ends_and_reaches_the_other() {
    for sends in [true, false] {
        let port = Port::open(!sends);
        let (here, sizes) = dial(port.addr, &port.secret, 3, sends).unwrap();
        let arrival = port.arrival();
        let Carrier::Packets(theirs, None) = arrival.carrier else { panic!("no datagram rail") };
        assert_eq!((arrival.rail, sizes.tag, sizes.start), (3, theirs.tag, theirs.start));
        assert_eq!(sizes.start, PACKET_BYTES_MAX, "loopback takes all that is tried");
        let (here, there) = (UdpSocket::from(here), UdpSocket::from(arrival.socket.unwrap().fd().unwrap()));
        assert_eq!(here.peer_addr().unwrap(), port.addr, "both ends keep the port");
        there.send(b"data").unwrap();
        let mut bytes = [0; 9000];
        let until = Instant::now() + Duration::from_secs(5);
        while !here.recv(&mut bytes).is_ok_and(|length| bytes[..length] == *b"data") {
            assert!(Instant::now() < until, "nothing came");
        }
    }
}

#[test]
fn a_greeting_that_overtakes_its_job_is_answered_once_that_is_known_and_not_much_later() {
    // Kept for longer than any machine is busy: what is looked at is what the port does, not how soon it gets its turn.
    let port = Port::keeping(true, Duration::from_secs(600));
    port.is_there.store(false, Ordering::Relaxed);
    let socket = stranger(port.addr);
    let mut bytes = [0; 2000];
    socket.send(&port.greeting(2)).unwrap();
    assert!(socket.recv(&mut bytes).is_err(), "nobody knows it");
    // Those of jobs that never come have their places, and no more.
    for number in 0..2 * EARLY_MAX as u16 {
        let mut other = port.greeting(3);
        other[..64].copy_from_slice(&JobSecret::from_master([1; 32], [2; 16]).greeting(number));
        if number == EARLY_MAX as u16 + 9 {
            socket.send(&port.greeting(2)).unwrap();
        }
        socket.send(&other).unwrap();
        // A full socket would lose some of them.
        if number % 16 == 15 {
            port.took(1 + u64::from(number + 1) + u64::from(number > EARLY_MAX as u16 + 9));
        }
    }
    port.is_there.store(true, Ordering::Relaxed);
    port.awaited.signal();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert_eq!(socket.recv(&mut bytes).unwrap(), 1300, "as if it came now");
    // One that came too long ago is said again by whoever means it.
    let port = Port::keeping(true, Duration::from_millis(1));
    port.is_there.store(false, Ordering::Relaxed);
    let socket = stranger(port.addr);
    socket.send(&port.greeting(4)).unwrap();
    port.took(1);
    std::thread::sleep(Duration::from_millis(2));
    port.is_there.store(true, Ordering::Relaxed);
    port.awaited.signal();
    assert!(socket.recv(&mut bytes).is_err(), "it is forgotten");
}

#[test]
fn words_of_the_session_from_its_own_peer_wait_for_no_confirmation() {
    let port = Port::open(true);
    let peer = stranger(port.addr);
    peer.send(&port.greeting(CONTROL)).unwrap();
    let arrival = port.arrival();
    assert_eq!(arrival.rail, CONTROL);
    let there = UdpSocket::from(arrival.socket.unwrap().fd().unwrap());
    there.send(b"word").unwrap();
    let mut bytes = [0; 2000];
    assert_eq!(peer.recv(&mut bytes).unwrap(), 1300, "it is welcome first");
    assert_eq!(peer.recv(&mut bytes).unwrap(), 4);
    // From another address, and for a rail of data, the token has to be said first.
    let port = Port::open(true);
    let elsewhere = UdpSocket::bind("127.0.0.2:0").unwrap();
    for (socket, rail) in [(elsewhere, CONTROL), (stranger(port.addr), 0)] {
        socket.connect(port.addr).unwrap();
        socket.send(&port.greeting(rail)).unwrap();
        assert_eq!(port.waiting(), u64::from(rail == CONTROL) + 2 * u64::from(rail == 0));
        assert!(port.arrived().is_none());
    }
}

#[test]
fn who_does_not_hold_the_secret_gets_no_answer_and_leaves_nothing() {
    let port = Port::open(true);
    let socket = stranger(port.addr);
    let mut bytes = [0; 2000];
    let mut short = vec![0; GREETING_BYTES_MIN - 1];
    short[..64].copy_from_slice(&port.secret.greeting(1));
    let mut forged = vec![0; GREETING_BYTES_MIN];
    forged[..64].copy_from_slice(&JobSecret::from_master([8; 32], JOB).greeting(1));
    for datagram in [short, forged, vec![0; 1], vec![b'W'; 1400], vec![]] {
        socket.send(&datagram).unwrap();
        assert!(socket.recv(&mut bytes).is_err(), "an answer to {} bytes", datagram.len());
    }
    assert_eq!(port.counts.strangers.load(Ordering::Relaxed), 5);
    // The number was not used up by them.
    assert!(dial(port.addr, &port.secret, 1, false).is_ok());
}

#[test]
fn an_answer_is_as_long_as_its_greeting_and_a_number_is_used_once() {
    let port = Port::open(true);
    let (one, other) = (stranger(port.addr), stranger(port.addr));
    // What comes may be late on a busy machine; what must not come is waited for shortly.
    one.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut greeting = vec![0; 1300];
    greeting[..64].copy_from_slice(&port.secret.greeting(5));
    let mut bytes = [0; 2000];
    for _ in 0..3 {
        one.send(&greeting).unwrap();
        assert_eq!(one.recv(&mut bytes).unwrap(), greeting.len(), "repeated, it is answered again");
        let word = SetupMessage::decode(&bytes, &port.secret, 5).unwrap();
        assert_eq!((word.say, word.packet_bytes), (SetupKind::Welcome, 1300));
    }
    // The same number from another address: an answer as long as the question, and nothing is kept for it.
    other.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    other.send(&greeting).unwrap();
    assert_eq!(other.recv(&mut bytes).unwrap(), greeting.len());
    assert_eq!(port.waiting(), 1);
    // A forged one from where a true one came is not answered.
    let mut forged = greeting.clone();
    forged[..64].copy_from_slice(&JobSecret::from_master([8; 32], JOB).greeting(5));
    one.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    one.send(&forged).unwrap();
    assert!(one.recv(&mut bytes).is_err(), "a forged greeting of a rail that was greeted");
    // A confirmation that did not see the welcome brings nothing up.
    let blind = SetupMessage { say: SetupKind::Confirm, rail: 5, packet_bytes: 1300, token: [0; 8] };
    one.send(&blind.encode(&port.secret)).unwrap();
    assert!(port.arrivals.lock().unwrap().recv_timeout(Duration::from_millis(200)).is_err());
}

#[test]
fn a_port_that_nobody_has_is_told_at_once() {
    // Held at another address, so that no test beside this one is given the port meanwhile.
    let held = UdpSocket::bind("127.0.0.1:0").unwrap();
    let nobody = SocketAddr::from(([127, 77, 0, 1], held.local_addr().unwrap().port()));
    let since = Instant::now();
    let error = dial(nobody, &JobSecret::from_master([1; 32], JOB), 0, true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert!(since.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_path_that_answers_nothing_is_given_up() {
    let deaf = UdpSocket::bind("127.0.0.1:0").unwrap();
    let since = Instant::now();
    let error = dial(deaf.local_addr().unwrap(), &JobSecret::from_master([1; 32], JOB), 0, true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(since.elapsed() >= Duration::from_secs(4));
}

#[test]
fn a_train_is_measured_both_ways_and_the_greeted_path_becomes_a_rail_afterwards() {
    for sends in [true, false] {
        let port = Port::open(!sends);
        let peer = Peer { addr: port.addr, from: None, packet_bytes: 1472, train: 0, rtt: Duration::ZERO };
        let mut greeted = greet(peer, &port.secret, 2, None).unwrap();
        let train = greeted.measure(&port.secret, sends, TRAIN_PACKETS).expect("loopback loses nothing");
        assert_eq!((train.sent, train.arrived, train.lost()), (64, 64, (0, 0)), "{sends}");
        assert_eq!(train.packet_bytes, 1472);
        assert!(port.arrivals.lock().unwrap().try_recv().is_err(), "a look brings no rail up");
        let (_, sizes) = greeted.confirm(&port.secret, sends).unwrap();
        let arrival = port.arrival();
        assert_eq!((arrival.rail, sizes.start), (2, 1472));
    }
}

#[test]
fn trains_go_only_where_the_token_was_heard_and_not_without_end() {
    let port = Port::open(true);
    let socket = stranger(port.addr);
    let mut greeting = vec![0; 1300];
    greeting[..64].copy_from_slice(&port.secret.greeting(5));
    socket.send(&greeting).unwrap();
    let mut bytes = [0; 2000];
    socket.recv(&mut bytes).unwrap();
    let welcome = SetupMessage::decode(&bytes, &port.secret, 5).unwrap();
    let ask =
        |token| SetupMessage { say: SetupKind::TrainAsk, rail: 5, packet_bytes: 1300, token }.encode(&port.secret);
    let mut count = || {
        let mut count = 0;
        while socket.recv(&mut bytes).is_ok() {
            count += 1;
        }
        count
    };
    socket.send(&ask([0; 8])).unwrap();
    assert_eq!(count(), 0, "a train for who has not heard the welcome");
    // One by one: a socket nobody reads does not hold three.
    let counts = [(); 5].map(|()| {
        socket.send(&ask(welcome.token)).unwrap();
        count()
    });
    assert_eq!(counts, [64, 64, 64, 0, 0], "three trains and no more");
}

#[test]
fn a_rail_that_is_up_moves_to_another_address_once_that_address_has_shown_that_it_hears() {
    let port = Port::open(true);
    let (first, _) = dial(port.addr, &port.secret, 4, false).unwrap();
    let from = UdpSocket::from(first).local_addr().unwrap();
    assert_eq!(UdpSocket::from(port.arrival().socket.unwrap().fd().unwrap()).peer_addr().unwrap(), from);
    // Somebody who has recorded the greeting: an answer of the same length, and nothing else.
    let thief = stranger(port.addr);
    let mut greeting = vec![0; 1300];
    greeting[..64].copy_from_slice(&port.secret.greeting(4));
    thief.send(&greeting).unwrap();
    let mut bytes = [0; 2000];
    assert_eq!(thief.recv(&mut bytes).unwrap(), greeting.len());
    assert!(thief.recv(&mut bytes).is_err() && port.arrivals.lock().unwrap().try_recv().is_err());
    // The rail's own end, from another port, although the thief waits there.
    let (moved, _) = dial(port.addr, &port.secret, 4, false).unwrap();
    let to = UdpSocket::from(moved).local_addr().unwrap();
    let arrival = port.arrival();
    assert_eq!((arrival.rail, UdpSocket::from(arrival.socket.unwrap().fd().unwrap()).peer_addr().unwrap()), (4, to));
    assert_ne!(from, to);
}

#[test]
fn greetings_replayed_by_a_sniffer_hold_nothing() {
    let port = Port::open(true);
    let (first, sizes) = dial(port.addr, &port.secret, 4, false).unwrap();
    drop(port.arrival());
    let greeting = port.greeting(4);
    let mut bytes = [0; 2000];
    for _ in 0..500 {
        let thief = stranger(port.addr);
        thief.send(&greeting).unwrap();
        thief.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!(thief.recv(&mut bytes).unwrap(), greeting.len(), "no longer than what it answers");
        // What the thief heard, it cannot say: the words are under the job's key.
        let mut word = bytes[..SETUP_BYTES].to_vec();
        word[0] = SetupKind::Confirm as u8;
        thief.send(&word).unwrap();
    }
    assert_eq!(port.waiting(), 0, "a socket or a place for who repeats a greeting");
    // The rail's own end comes from elsewhere all the same, and its old words are worth nothing afterwards, from its own old place either.
    let old = UdpSocket::from(first);
    let to = old.local_addr().unwrap();
    old.send(&greeting).unwrap();
    old.set_nonblocking(false).unwrap();
    old.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let welcome = loop {
        let length = old.recv(&mut bytes).unwrap();
        match SetupMessage::decode(&bytes[..length], &port.secret, 4) {
            // Not one that was left over from the first time.
            Some(word) if word.say == SetupKind::Welcome && word.token[..4] == JOB[..4] => break word,
            _ => {}
        }
    };
    let confirm = SetupMessage { say: SetupKind::Confirm, packet_bytes: sizes.start, ..welcome }.encode(&port.secret);
    old.send(&confirm).unwrap();
    let arrival = port.arrival();
    assert_eq!(
        UdpSocket::from(arrival.socket.unwrap().fd().unwrap()).peer_addr().unwrap(),
        to,
        "said and heard at one address"
    );
    old.send(&confirm).unwrap();
    assert_eq!(port.waiting(), 0);
    assert!(port.arrivals.lock().unwrap().try_recv().is_err(), "a recorded confirmation is good once");
}

#[test]
fn a_sniffer_that_is_faster_than_the_rails_own_end_keeps_it_from_nothing() {
    for sends in [true, false] {
        let port = Port::open(!sends);
        let thief = stranger(port.addr);
        let mut bytes = [0; 2000];
        thief.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        thief.send(&port.greeting(2)).unwrap();
        assert_eq!(thief.recv(&mut bytes).unwrap(), 1300);
        assert_eq!(port.waiting(), 1, "what the rail itself would have");
        let peer = Peer { addr: port.addr, from: None, packet_bytes: 1472, train: 0, rtt: Duration::ZERO };
        let mut greeted = greet(peer, &port.secret, 2, None).unwrap();
        let train = greeted.measure(&port.secret, sends, TRAIN_PACKETS).expect("loopback loses nothing");
        assert_eq!(train.sent, 64);
        greeted.confirm(&port.secret, sends).unwrap();
        assert_eq!(port.arrival().rail, 2);
        assert_eq!(port.waiting(), 0, "and the thief's place is gone with that");
    }
}

#[test]
fn a_train_behind_the_greeting_is_told_of_with_its_answer() {
    let port = Port::open(false);
    let peer = Peer { addr: port.addr, from: None, packet_bytes: 1472, train: 16, rtt: Duration::ZERO };
    let mut greeted = greet(peer, &port.secret, 0, None).unwrap();
    let train = greeted.ahead(&port.secret, 16).expect("loopback loses nothing");
    assert_eq!((train.sent, train.arrived, train.last, train.packet_bytes), (16, 16, 15, 1472));
    assert!(greeted.train().is_some());
    // Without the rail's token nothing else is taken, and where none went with the greeting nothing is told.
    let other = Peer { train: 0, ..peer };
    assert!(greet(other, &port.secret, 1, None).unwrap().ahead(&port.secret, 16).is_none());
    greeted.confirm(&port.secret, true).unwrap();
    assert_eq!(port.arrival().rail, 0);
}

#[test]
fn a_train_of_no_greeting_is_answered_with_nothing() {
    let port = Port::open(false);
    let thief = stranger(port.addr);
    packet_train::send_ahead(&thief, &port.secret, 0, (16, 1200));
    assert!(thief.recv(&mut [0; 100]).is_err());
    // Confirmed is a rail only with the token that its greeting was answered with.
    thief.send(&port.greeting(0)).unwrap();
    thief.recv(&mut [0; 2000]).unwrap();
    let confirm = SetupMessage { say: SetupKind::Confirm, rail: 0, packet_bytes: 1300, token: packet_train::AHEAD };
    thief.send(&confirm.encode(&port.secret)).unwrap();
    assert_eq!(port.waiting(), 1, "it waits as before");
}
