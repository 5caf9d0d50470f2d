//! The port under honest and under hostile connections.
//!
//! Absent on purpose: what is said inside a session (link/tests.rs).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::thread::JoinHandle;

use super::*;
use crate::link::{Expect, LinkError};

const SOON: Duration = Duration::from_secs(5);

/// A running port that echoes one frame per link and hands out its rails.
struct Port {
    address: SocketAddr,
    key: [u8; 32],
    rails: Mutex<mpsc::Receiver<(TcpStream, Greeting)>>,
    counts: Arc<Counts>,
    served: Arc<AtomicUsize>,
    stop: Event,
    running: Option<JoinHandle<io::Result<()>>>,
}

impl Port {
    fn open() -> Port {
        Port::open_with(|listener| listener)
    }

    fn open_with(more: impl FnOnce(Listener) -> Listener) -> Port {
        // All these tests run in one process, and each holds hundreds of sockets.
        let mut files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        files.current = files.maximum;
        rustix::process::setrlimit(rustix::process::Resource::Nofile, files).unwrap();
        let id = Arc::new(Identity::ephemeral().unwrap());
        let listener = more(Listener::bind("127.0.0.1:0".parse().unwrap(), Arc::clone(&id)).unwrap());
        let (address, counts) = (listener.local_addr().unwrap(), listener.counts());
        let (stop, (rail, rails)) = (Event::new().unwrap(), mpsc::channel());
        let rails = Mutex::new(rails);
        let served = Arc::new(AtomicUsize::new(0));
        let (its_stop, its_served) = (stop.clone(), Arc::clone(&served));
        let running = thread::spawn(move || {
            let control = |mut link: Link| {
                let Ok(frame) = link.call(Duration::from_secs(30)) else { return };
                link.admitted();
                its_served.fetch_add(1, Ordering::Relaxed);
                link.send(&frame);
                link.close();
                let _ = link.flush_blocking(SOON);
            };
            let take = move |came: Rail| {
                let Rail::Greeted(stream, greeting) = came else { panic!("nobody was asked for a word") };
                rail.send((stream, greeting)).unwrap();
                Next::Over
            };
            listener.run(control, |_| false, take, &its_stop)
        });
        Port { address, key: id.public(), rails, counts, served, stop, running: Some(running) }
    }

    /// The next rail that was handed out.
    fn rail(&self) -> (TcpStream, Greeting) {
        self.rails.lock().unwrap().recv_timeout(SOON).unwrap()
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).unwrap()
    }

    fn link(&self) -> Result<Link, LinkError> {
        Link::connect(&self.address.to_string(), &Identity::ephemeral().unwrap(), Expect::Key(self.key), SOON)
    }

    /// An honest client gets its answer, within a time.
    fn serves_within(&self, time: Duration) {
        let start = Instant::now();
        let mut link = self.link().unwrap();
        link.send(b"are you there?");
        assert_eq!(link.call(SOON).unwrap(), b"are you there?");
        assert!(start.elapsed() < time, "{:?}", start.elapsed());
    }

    fn close(&mut self) -> io::Result<()> {
        self.stop.signal();
        self.running.take().map_or(Ok(()), |running| running.join().unwrap())
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let closed = self.close();
        assert!(thread::panicking() || closed.is_ok(), "{closed:?}");
    }
}

fn greeting(rail: u16) -> Greeting {
    Greeting { job: [5; 16], rail, version: proto::VERSION, is_pair: false, mac: [6; 32] }
}

/// Did the other end close? (Reset counts: it may have left bytes unread.)
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(SOON)).unwrap();
    match stream.read(&mut [0; 4096]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// Connections that the port still holds, also those whose other end is gone (proc_net_tcp: 06 is TIME_WAIT, 0A LISTEN). Descriptors of the
/// process would be those of all tests that run meanwhile.
fn held_by(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let held = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.len() > 9
            && fields[1].ends_with(&format!(":{port:04X}"))
            && !["06", "0A"].contains(&fields[3])
            && fields[9] != "0"
    };
    table.lines().skip(1).filter(held).count()
}

#[test]
fn links_and_rails_are_told_apart_on_one_port() {
    let port = Port::open();
    port.serves_within(SOON);
    let mut rail = port.connect();
    rail.write_all(&greeting(3).encode()).unwrap();
    rail.write_all(b"what follows is the engine's").unwrap();
    let (mut stream, came) = port.rail();
    assert_eq!(came, greeting(3));
    let mut rest = [0; 28];
    stream.read_exact(&mut rest).unwrap();
    assert_eq!(&rest, b"what follows is the engine's");
    port.serves_within(SOON);
}

#[test]
fn a_greeting_in_64_pieces_is_one_greeting() {
    let port = Port::open();
    let mut rail = port.connect();
    rail.set_nodelay(true).unwrap();
    for byte in greeting(9).encode() {
        rail.write_all(&[byte]).unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(port.rail().1, greeting(9));
}

#[test]
fn what_is_neither_is_closed_at_once() {
    let port = Port::open();
    let mut bad_magic = greeting(1).encode();
    bad_magic[1] = b'X';
    let mut bad_version = greeting(1).encode();
    bad_version[4] = 0xff;
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 1], &[0xff; 4096], &bad_magic, &bad_version] {
        let start = Instant::now();
        let mut stream = port.connect();
        stream.write_all(garbage).unwrap();
        assert!(is_closed(&mut stream));
        assert!(start.elapsed() < Duration::from_secs(1));
    }
    assert_eq!(port.counts.garbage.load(Ordering::Relaxed), 5);
    assert!(port.rails.lock().unwrap().try_recv().is_err());
}

#[test]
fn ten_thousand_garbage_connects_leave_the_port_healthy() {
    let port = Port::open();
    let start = Instant::now();
    for number in 0..10_000u32 {
        // The port may have closed it before our bytes are there; that is its good right.
        let _ = port.connect().write_all(&number.wrapping_mul(0x9e37_79b9).to_le_bytes());
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    port.serves_within(Duration::from_secs(2));
    assert_eq!(port.counts.accepted.load(Ordering::Relaxed), 10_001);
    // Those that look like TLS or a rail and were cut short go as soon as their end is seen, none because its time was over. An end that found
    // the kernel's queue full comes when its sender's timer repeats it: seconds later on a machine that is busy.
    let deadline = Instant::now() + 3 * PROVE;
    while held_by(port.address.port()) > 0 {
        assert!(Instant::now() < deadline, "connections that nobody lets go");
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(
        port.counts.expired.load(Ordering::Relaxed),
        0,
        "connections that were let go only when their time was over"
    );
}

#[test]
fn half_open_connections_cost_a_place_at_the_door_and_no_more() {
    let port = Port::open();
    // Silent ones, and ones that stop within a greeting: more than there are places.
    let mut idle: Vec<TcpStream> = Vec::new();
    for number in 0..PLACES_MAX + 344 {
        let mut stream = port.connect();
        if number % 2 == 0 {
            stream.write_all(b"LHRL").unwrap();
        }
        idle.push(stream);
    }
    port.serves_within(Duration::from_secs(2));
    let pushed_out = port.counts.pushed_out.load(Ordering::Relaxed);
    assert!(pushed_out >= 344, "{pushed_out}");
    assert!(is_closed(&mut idle[1]), "the oldest of those that said nothing had to go");
    // A rail gets through among them.
    let mut rail = port.connect();
    rail.write_all(&greeting(7).encode()).unwrap();
    assert_eq!(port.rail().1, greeting(7));
}

#[test]
fn unfinished_handshakes_cannot_take_all_rooms_for_long() {
    let port = Port::open();
    let mut idle: Vec<TcpStream> = Vec::new();
    for _ in 0..ROOMS_MAX + 20 {
        let mut stream = port.connect();
        stream.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
        idle.push(stream);
    }
    thread::sleep(Duration::from_millis(100));
    // All rooms are taken and 20 wait before us; each room is given up after its grace.
    port.serves_within(ROOM_GRACE + Duration::from_secs(2));
}

#[test]
fn who_proves_a_key_and_then_says_nothing_is_shut_out_in_time() {
    let port = Port::open();
    let mut link = port.link().unwrap();
    let start = Instant::now();
    let ended = link.call(PROVE + SOON).unwrap_err();
    assert!(matches!(ended, LinkError::Cut), "{ended:?}");
    let took = start.elapsed();
    assert!(took > PROVE - Duration::from_secs(1) && took < PROVE + Duration::from_secs(2), "{took:?}");
    assert_eq!(port.counts.expired.load(Ordering::Relaxed), 1);
}

#[test]
fn who_drips_a_greeting_is_shut_out_in_time_while_others_are_served() {
    let port = Port::open();
    let mut drip = port.connect();
    let start = Instant::now();
    while start.elapsed() < PROVE + SOON && drip.write_all(b"L").is_ok() {
        port.serves_within(Duration::from_secs(2));
        thread::sleep(Duration::from_millis(400));
        // 64 bytes at this pace take longer than the port waits; magic does not matter for that.
    }
    let took = start.elapsed();
    assert!(took > PROVE - Duration::from_secs(1) && took < PROVE + Duration::from_secs(2), "{took:?}");
    assert!(port.served.load(Ordering::Relaxed) > 10);
}

#[test]
fn two_hundred_clients_at_once_are_all_served() {
    let port = Port::open();
    thread::scope(|scope| {
        for _ in 0..200 {
            scope.spawn(|| port.serves_within(Duration::from_secs(20)));
        }
    });
    assert_eq!(port.served.load(Ordering::Relaxed), 200);
}

#[test]
fn stopping_shuts_out_strangers_and_waits_for_those_who_were_let_in() {
    let mut port = Port::open();
    let mut silent = port.connect();
    let _unproven = port.link().unwrap();
    let start = Instant::now();
    port.close().unwrap();
    assert!(start.elapsed() < Duration::from_secs(2));
    assert!(is_closed(&mut silent));
    assert!(TcpStream::connect(port.address).is_err(), "the port is closed");
}

/// A connection from a place of our own on the loopback.
fn connect_from(port: &Port, network: u16, host: u8) -> Option<TcpStream> {
    let [high, low] = network.to_be_bytes();
    let from = Some(std::net::IpAddr::from([127, high, low, host]));
    sys::sock::connect_from(port.address, from, SOON, |_| Ok(())).ok()
}

/// What an honest client of ours says first.
fn honest_hello(port: &Port) -> Vec<u8> {
    let ear = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = ear.local_addr().unwrap().to_string();
    let key = port.key;
    let client =
        thread::spawn(move || Link::connect(&address, &Identity::ephemeral().unwrap(), Expect::Key(key), SOON).err());
    let (mut stream, _) = ear.accept().unwrap();
    let mut hello = vec![0; RECORD_HEAD_BYTES];
    stream.read_exact(&mut hello).unwrap();
    hello.resize(record_bytes(&hello), 0);
    stream.read_exact(&mut hello[RECORD_HEAD_BYTES..]).unwrap();
    drop(stream);
    client.join().unwrap();
    hello
}

/// Ends the strikers also when the test fails.
struct Until<'a>(&'a AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn five_thousand_half_open_from_a_thousand_networks_keep_no_newcomer_out() {
    let port = Port::open();
    let whole = honest_hello(&port);
    // Silent, one byte of TLS, a piece of a rail's greeting, a greeting without its end, and a whole one after which nothing comes.
    let words: [&[u8]; 5] = [b"", &whole[..1], b"LHRL", &whole[..700], &whole];
    let over = AtomicBool::new(false);
    let strike = |at: u16| {
        let word = words[usize::from(at / 1000) % words.len()];
        let stream = connect_from(&port, 1 + at % 1000, 1 + (at / 1000) as u8);
        stream.filter(|stream| (&*stream).write_all(word).is_ok())
    };
    thread::scope(|scope| {
        let until = Until(&over);
        scope.spawn(|| {
            let mut held = std::collections::VecDeque::new();
            // And who was shown out comes again.
            for at in (0..5000).cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
                held.extend(strike(at));
                if held.len() > 5000 {
                    held.pop_front();
                }
            }
        });
        let patience = Instant::now() + Duration::from_secs(120);
        while port.counts.accepted.load(Ordering::Relaxed) < 5000 && Instant::now() < patience {
            thread::sleep(Duration::from_millis(10));
        }
        let mut slowest = Duration::ZERO;
        for _ in 0..20 {
            // At the first connect. 2 s are promised; other tests run beside this one, so the daemon that has the machine for itself is held to that
            // (lab/e2e/27-strangers.sh).
            let start = Instant::now();
            port.serves_within(PROVE);
            slowest = slowest.max(start.elapsed());
        }
        drop(until);
        eprintln!("slowest of 20 newcomers: {slowest:?}; {}", port.counts);
    });
}

#[test]
fn the_accepting_thread_gives_a_sign_of_life_also_when_nobody_comes_and_none_when_it_is_stuck() {
    let (beat, beats) = mpsc::channel();
    let (is_stuck, stuck) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(())));
    let held = stuck.lock().unwrap();
    let (its_flag, its_lock) = (Arc::clone(&is_stuck), Arc::clone(&stuck));
    let port = Port::open_with(|listener| {
        listener.on_turn(Duration::from_millis(20), move || {
            let _ = beat.send(());
            // A thread that waits for what never comes.
            if its_flag.load(Ordering::SeqCst) {
                drop(its_lock.lock());
            }
        })
    });
    for _ in 0..3 {
        beats.recv_timeout(SOON).unwrap();
    }
    port.serves_within(SOON);
    is_stuck.store(true, Ordering::SeqCst);
    beats.recv_timeout(SOON).unwrap();
    while beats.recv_timeout(Duration::from_millis(200)).is_ok() {}
    assert!(beats.recv_timeout(Duration::from_millis(200)).is_err(), "it is stuck, and says that it lives");
    drop(held);
    beats.recv_timeout(SOON).unwrap();
    port.serves_within(SOON);
}
