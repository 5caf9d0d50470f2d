//! Handshakes whose first flight went ahead in datagrams: what comes of them, and of those that lie.
//!
//! In: two ends in one process, and datagrams that a test hands over or does not. Out: sessions, and what is answered to whom.
//! Absent on purpose: whole jobs (node/tests/hello.rs), how many round trips they take (lab/tests/reports/emulated/start.rs).

use std::net::TcpListener;
use std::thread;

use super::super::{Accepting, Beside, Expect, Hellos, Link, Start, Turn};
use super::*;

const SOON: Duration = Duration::from_secs(5);

/// An acceptor with a port of either kind.
struct Host {
    id: Arc<Identity>,
    hellos: Hellos,
    tcp: TcpListener,
    udp: UdpSocket,
    at: SocketAddr,
}

fn host() -> Host {
    let id = Arc::new(Identity::ephemeral().unwrap());
    let (tcp, udp, at) = loop {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = tcp.local_addr().unwrap();
        if let Ok(udp) = UdpSocket::bind(at) {
            break (tcp, udp, at);
        }
    };
    udp.set_read_timeout(Some(SOON)).unwrap();
    Host { hellos: Hellos::of(Arc::clone(&id)), id, tcp, udp, at }
}

impl Host {
    fn asked_by(&self, id: &Identity) -> HelloAhead {
        HelloAhead::begin(self.at, id, self.id.public(), Vec::new()).unwrap()
    }

    /// Takes the datagrams of a greeting, and says what `of` makes of them.
    fn answer(&self, of: impl Fn(&[u8], SocketAddr) -> Option<Vec<Vec<u8>>>) -> usize {
        let mut bytes = [0; 2048];
        for _ in 0..HELLO_PARTS_MAX {
            let (length, from) = self.udp.recv_from(&mut bytes).unwrap();
            let parts = of(&bytes[..length], from).expect("it is a part of a greeting to this host");
            if !parts.is_empty() {
                parts.iter().for_each(|part| assert_eq!(self.udp.send_to(part, from).unwrap(), part.len()));
                return parts.len();
            }
        }
        panic!("a greeting without an end");
    }

    /// The acceptor's end of the next connection, all of whose handshake is said, or will be.
    fn accept(&self, hellos: &Hellos) -> Result<Link, LinkError> {
        let (mut stream, _) = self.tcp.accept().unwrap();
        let mut hello = vec![0; 5];
        stream.read_exact(&mut hello).unwrap();
        hello.resize(5 + usize::from(u16::from_be_bytes([hello[3], hello[4]])), 0);
        stream.read_exact(&mut hello[5..]).unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut accepting = Accepting::begin(stream, &hello, (&self.id, hellos))?;
        let until = Instant::now() + SOON;
        while !accepting.turn()? {
            assert!(Instant::now() < until, "it takes too long");
            thread::sleep(Duration::from_micros(50));
        }
        accepting.finish()
    }
}

/// The initiator's end over a new connection.
fn shake(ahead: HelloAhead) -> Result<Link, LinkError> {
    let stream = TcpStream::connect(ahead.to()).unwrap();
    let (connection, _, asked) = ahead.of(stream.peer_addr().unwrap()).unwrap();
    Link::shake(Connection::Client(connection), stream, &mut Deadline::after(SOON), Some(asked))
}

/// Turns it until a frame comes.
fn hear(link: &mut Link) -> Result<Vec<u8>, LinkError> {
    let (until, mut frames) = (Instant::now() + SOON, Vec::new());
    while frames.is_empty() {
        assert!(Instant::now() < until, "it takes too long");
        assert_eq!(link.turn(&mut frames)?, Turn::Open);
        thread::sleep(Duration::from_micros(50));
    }
    Ok(frames.remove(0))
}

#[test]
fn a_handshake_that_was_answered_in_datagrams_waits_for_nothing_over_its_connection() {
    let (host, client) = (host(), Identity::ephemeral().unwrap());
    let ahead = host.asked_by(&client);
    host.answer(|datagram, from| host.hellos.on_datagram(datagram, from));
    // The acceptor has not so much as taken the connection.
    let mut near = shake(ahead).unwrap();
    assert!(!near.is_confirmed());
    near.send(b"open");
    near.flush_blocking(SOON).unwrap();
    let mut far = host.accept(&host.hellos).unwrap();
    assert_eq!((near.peer_key(), far.peer_key()), (host.id.public(), client.public()));
    assert_eq!(near.export(b"a", b"b"), far.export(b"a", b"b"));
    assert_eq!(hear(&mut far).unwrap(), b"open");
    far.send(b"accept");
    far.flush_blocking(SOON).unwrap();
    assert_eq!(hear(&mut near).unwrap(), b"accept");
    assert!(near.is_confirmed());
    // Both count the session's bytes alike, whichever way they came: another connection goes on by these counts.
    assert_eq!((near.bytes_sent(), near.bytes_received()), (far.bytes_received(), far.bytes_sent()));
}

#[test]
fn a_session_that_began_in_datagrams_goes_on_over_other_connections() {
    // The first connection is one that brings nothing back, or as any other.
    for is_deaf in [true, false] {
        let (host, client) = (host(), Identity::ephemeral().unwrap());
        let ahead = host.asked_by(&client);
        host.answer(|datagram, from| host.hellos.on_datagram(datagram, from));
        let mut near = shake(ahead).unwrap();
        // Only one way is carried on, to a connection that the host takes in its place.
        let between = is_deaf.then(|| {
            let (mut here, mut there) = (host.tcp.accept().unwrap().0, TcpStream::connect(host.at).unwrap());
            thread::spawn(move || io::copy(&mut here, &mut there).map(|_| there))
        });
        let mut far = host.accept(&host.hellos).unwrap();
        assert!(!near.is_confirmed());
        near.keep();
        far.keep();
        let (mut sent, mut came) = (0_u32, [Vec::new(), Vec::new()]);
        for round in 0..4 {
            for _ in 0..20 {
                let frame = [&sent.to_le_bytes()[..], &vec![7; (sent as usize * 911) % 3_000]].concat();
                near.send(&frame);
                far.send(&frame);
                sent += 1;
            }
            for _ in 0..=round {
                far.turn(&mut came[1]).unwrap();
                near.turn(&mut came[0]).unwrap();
            }
            let counts = [near.drain().unwrap(), far.drain().unwrap()];
            assert_eq!(near.is_confirmed(), !is_deaf || round > 0);
            let one = TcpStream::connect(host.at).unwrap();
            near.carry_on(one, counts[1], true).unwrap();
            far.carry_on(host.tcp.accept().unwrap().0, counts[0], false).unwrap();
            assert!(near.is_confirmed(), "what the old connection had still to bring of it is not awaited");
        }
        let until = Instant::now() + SOON;
        while came.iter().any(|came| came.len() < sent as usize) {
            assert!(Instant::now() < until, "it takes too long");
            far.turn(&mut came[1]).unwrap();
            near.turn(&mut came[0]).unwrap();
        }
        let numbers: Vec<u32> = (0..sent).collect();
        for came in came {
            let got: Vec<u32> = came.iter().map(|it| u32::from_le_bytes(*it.first_chunk().unwrap())).collect();
            assert_eq!(got, numbers, "{is_deaf}");
        }
        // It ended with the connection that was left.
        between.into_iter().for_each(|it| drop(it.join()));
    }
}

#[test]
fn a_handshake_whose_datagrams_are_lost_goes_over_its_connection() {
    let (host, client) = (host(), Identity::ephemeral().unwrap());
    for is_answered_late in [false, true] {
        let ahead = host.asked_by(&client);
        let mut far = None;
        let near = thread::scope(|scope| {
            let near = scope.spawn(|| shake(ahead));
            if is_answered_late {
                far = Some(host.accept(&host.hellos));
            }
            host.answer(|datagram, from| {
                // The last part never arrives, or comes when all is over.
                let answer = host.hellos.on_datagram(datagram, from)?;
                Some(answer.into_iter().take(if is_answered_late { 2 } else { 1 }).collect())
            });
            let far = far.take().unwrap_or_else(|| host.accept(&host.hellos));
            (near.join().unwrap(), far)
        });
        let (mut near, mut far) = (near.0.unwrap(), near.1.unwrap());
        assert!(near.is_confirmed(), "the connection brought all of it");
        near.send(b"open");
        near.flush_blocking(SOON).unwrap();
        assert_eq!(hear(&mut far).unwrap(), b"open");
    }
}

#[test]
fn an_acceptor_that_goes_on_with_another_handshake_is_found_out() {
    let (host, client) = (host(), Identity::ephemeral().unwrap());
    let ahead = host.asked_by(&client);
    host.answer(|datagram, from| host.hellos.on_datagram(datagram, from));
    let mut near = shake(ahead).unwrap();
    near.send(b"open");
    near.flush_blocking(SOON).unwrap();
    // It has forgotten: another process under the same address.
    let forgetful = Hellos::of(Arc::clone(&host.id));
    assert!(host.accept(&forgetful).is_err(), "nothing of it is believed there");
    let error = hear(&mut near).unwrap_err();
    assert!(matches!(error, LinkError::Elsewhere | LinkError::Cut), "{error}");
    assert!(!near.is_confirmed(), "so it is begun again without datagrams");
}

#[test]
fn a_greeting_in_datagrams_is_good_once_and_its_answer_is_always_the_same_and_no_longer() {
    let (host, client) = (host(), Identity::ephemeral().unwrap());
    let ahead = host.asked_by(&client);
    let from = "192.0.2.1:9".parse().unwrap();
    let ask = || {
        let said = ahead.datagrams.iter().map(|it| host.hellos.on_datagram(it, from).unwrap());
        said.flatten().collect::<Vec<_>>()
    };
    let first = ask();
    let bytes = |all: &[Vec<u8>]| all.iter().map(Vec::len).sum::<usize>();
    assert!(!first.is_empty() && bytes(&first) <= bytes(&ahead.datagrams), "no use to who asks for others");
    assert_eq!(ask(), first);
    assert!(host.hellos.take(&ahead.asked.hello).is_some());
    assert!(host.hellos.take(&ahead.asked.hello).is_none(), "a second connection begins anew");
    assert_eq!(ask(), first, "what is on its way still may be missing a part");
    assert!(host.hellos.take(b"another greeting").is_none());
}

#[test]
fn who_does_not_know_the_hosts_key_is_not_answered_and_a_harmed_datagram_neither() {
    let (host, client) = (host(), Identity::ephemeral().unwrap());
    let other = HelloAhead::begin(host.at, &client, client.public(), Vec::new()).unwrap();
    assert!(other.datagrams.iter().all(|it| host.hellos.on_datagram(it, host.at).is_none()));
    let ahead = host.asked_by(&client);
    for at in [0, 30, HELLO_DATAGRAM_BYTES, HELLO_DATAGRAM_BYTES + MAC_BYTES - 1] {
        let mut harmed = ahead.datagrams[0].clone();
        harmed[at] ^= 1;
        assert_eq!(host.hellos.on_datagram(&harmed, host.at), None, "{at}");
    }
    assert_eq!(host.hellos.on_datagram(&ahead.datagrams[0][..100], host.at), None);
    // Halves of two greetings make none.
    let second = host.asked_by(&client);
    assert_eq!(host.hellos.on_datagram(&ahead.datagrams[0], host.at), Some(Vec::new()));
    assert_eq!(host.hellos.on_datagram(&second.datagrams[1], host.at), Some(Vec::new()));
}

#[test]
fn a_flood_of_greetings_is_answered_at_a_bounded_rate_and_takes_bounded_memory() {
    let (host, client) = (host(), Identity::ephemeral().unwrap());
    let began = Instant::now();
    let mut answered = 0;
    for number in 0..200_u16 {
        let ahead = host.asked_by(&client);
        let from = SocketAddr::from(([192, 0, 2, 1], number));
        // Half of them never come to an end.
        let parts = ahead.datagrams.iter().take(1 + usize::from(number % 2));
        answered += parts.flat_map(|it| host.hellos.on_datagram(it, from).unwrap()).count().min(1);
    }
    let (now, kept) = host.hellos.held();
    let may = 32.0 + 32.0 * began.elapsed().as_secs_f64();
    assert!((32..=100).contains(&answered) && answered as f64 <= may + 1.0, "{answered} of {may}");
    assert!(kept == answered && now <= 64, "{kept} answered, {now} without an end");
}

#[test]
fn an_answer_that_is_none_of_the_hosts_costs_a_connection_and_nothing_else() {
    let (host, client) = (host(), Identity::ephemeral().unwrap());
    // Full: the first connection takes as long as on a path of 50 ms.
    rustix::net::listen(&host.tcp, 1).unwrap();
    let mut held = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&host.at, Duration::from_millis(100)) {
        held.push(stream);
    }
    // Somebody on the path, with a key of its own.
    let liar = Hellos::of(Arc::new(Identity::ephemeral().unwrap()));
    let (near, far) = thread::scope(|scope| {
        let near = scope.spawn(|| {
            let beside = Beside { ready: None, met: &mut |_| (), start: Start::Ahead };
            let place = host.at.to_string();
            Link::connect_beside(&place, &client, Expect::Key(host.id.public()), SOON, beside)
        });
        let mut hello = Collected::default();
        let mut bytes = [0; 2048];
        let (whole, from) = loop {
            let (length, from) = host.udp.recv_from(&mut bytes).unwrap();
            let part = opened(&bytes[..length], true, &asking_key(&host.id.public())).unwrap();
            if let Some(whole) = hello.take(&part) {
                break (whole, from);
            }
        };
        let flight = liar.answer(&whole).unwrap();
        for part in datagrams(false, &flight, &answer_key(&whole)).unwrap() {
            host.udp.send_to(&part, from).unwrap();
        }
        held.iter().for_each(|_| drop(host.tcp.accept().unwrap()));
        // The connection that was lied about, then the one that is a session.
        let far = loop {
            match host.accept(&host.hellos) {
                Ok(far) => break far,
                Err(_) => continue,
            }
        };
        (near.join().unwrap(), far)
    });
    assert_eq!((near.unwrap().peer_key(), far.peer_key()), (host.id.public(), client.public()));
}
