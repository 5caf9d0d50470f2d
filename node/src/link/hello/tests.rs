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
    Host { hellos: Hellos::of(Arc::clone(&id)).unwrap(), id, tcp, udp, at }
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
    let forgetful = Hellos::of(Arc::clone(&host.id)).unwrap();
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
    let liar = Hellos::of(Arc::new(Identity::ephemeral().unwrap())).unwrap();
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
            let part = opened(&bytes[..length], HelloFlight::Greeting, &asking_key(&host.id.public())).unwrap();
            if let Some(whole) = hello.take(&part) {
                break (whole, from);
            }
        };
        let flight = liar.answer(&whole).unwrap();
        for part in datagrams(HelloFlight::Answer, name_of(&flight), &flight, &answer_key(&whole)).unwrap() {
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

/// A session of which the connection brings its greeting, or nothing, for a while: the near end, what the far one accepts, the greeting's length, and a
/// datagram of what goes beside it.
fn lossy(host: &Host, client: &Identity, has_greeting: bool) -> (Link, TcpStream, usize, Vec<u8>) {
    let ahead = host.asked_by(client);
    let hello_bytes = ahead.asked.hello.len();
    host.answer(|datagram, from| host.hellos.on_datagram(datagram, from));
    let mut near = shake(ahead).unwrap();
    near.send(b"hello");
    near.send(b"open");
    near.flush_blocking(SOON).unwrap();
    let (mut said, _) = host.tcp.accept().unwrap();
    // Another connection stands for the lossy one: what it brings is this test's to say.
    let mut between = TcpStream::connect(host.at).unwrap();
    let (far, _) = host.tcp.accept().unwrap();
    far.set_nonblocking(true).unwrap();
    let mut first = vec![0; if has_greeting { hello_bytes } else { 0 }];
    said.read_exact(&mut first).unwrap();
    between.write_all(&first).unwrap();
    let mut back = (between.try_clone().unwrap(), said.try_clone().unwrap());
    thread::spawn(move || io::copy(&mut back.0, &mut back.1));
    // What was lost comes in the end.
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        io::copy(&mut said, &mut between)
    });
    let mut bytes = [0; 2048];
    let (length, _) = host.udp.recv_from(&mut bytes).expect("it goes in datagrams, too");
    (near, far, hello_bytes, bytes[..length].to_vec())
}

/// The acceptor's end of it, with the frames that it has.
fn goes_on(mut accepting: Accepting, is_over: bool) -> Option<Link> {
    assert_eq!(accepting.turn().unwrap(), is_over);
    is_over.then(|| accepting.finish().unwrap())
}

#[test]
fn what_the_initiator_says_next_comes_in_datagrams_where_its_connection_loses_it() {
    // The connection brings the greeting; or not even that, and is known by its port.
    for has_greeting in [true, false] {
        let (host, client) = (host(), Identity::ephemeral().unwrap());
        let (mut near, far, hello_bytes, rest) = lossy(&host, &client, has_greeting);
        let from = near.local_addr().unwrap();
        let mut far = if has_greeting {
            let mut hello = vec![0; hello_bytes];
            let until = Instant::now() + SOON;
            while far.peek(&mut hello).unwrap_or(0) < hello_bytes {
                assert!(Instant::now() < until, "the greeting");
            }
            (&far).read_exact(&mut hello).unwrap();
            let mut accepting = Accepting::begin(far, &hello, (&host.id, &host.hellos)).unwrap();
            assert!(!accepting.turn().unwrap(), "nothing but the greeting is here");
            assert!(!host.hellos.came().drain());
            assert_eq!(host.hellos.on_datagram(&rest, from), Some(Vec::new()));
            assert!(host.hellos.came().drain(), "who waits is told");
            goes_on(accepting, true).unwrap()
        } else {
            let far = Accepting::claimed(far, &host.hellos).unwrap().expect_err("nothing is said of it");
            assert_eq!(host.hellos.on_datagram(&rest, from), Some(Vec::new()));
            assert!(host.hellos.came().drain() && host.hellos.has_claims());
            // The connection between stands for it, from another port: of that nothing was said.
            let far = Accepting::claimed(far, &host.hellos).unwrap().expect_err("another's port");
            let claimed = host.hellos.claimed(from).expect("it is told of");
            assert!(host.hellos.claimed(from).is_none(), "once");
            goes_on(Accepting::of_claimed(far, claimed).unwrap(), true).unwrap()
        };
        assert_eq!((far.peer_key(), far.frames_ready()), (client.public(), 2));
        assert!(!far.is_confirmed());
        assert_eq!(hear(&mut far).unwrap(), b"hello");
        // Both ways, while the connection has not brought it, and when it has.
        far.send(b"accept");
        far.flush_blocking(SOON).unwrap();
        assert_eq!(hear(&mut near).unwrap(), b"accept");
        thread::sleep(SECOND * 2);
        assert_eq!(near.turn(&mut Vec::new()).unwrap(), Turn::Open);
        let mut again = [0; 2048];
        let (length, _) = host.udp.recv_from(&mut again).expect("twice");
        assert_eq!((host.hellos.on_datagram(&again[..length], from), &again[..length]), (Some(Vec::new()), &rest[..]));
        near.send(b"more");
        near.flush_blocking(SOON).unwrap();
        assert_eq!(hear(&mut far).unwrap(), b"more");
        assert!(far.is_confirmed() && near.is_confirmed());
        assert_eq!((near.bytes_sent(), near.bytes_received()), (far.bytes_received(), far.bytes_sent()));
    }
}

#[test]
fn what_goes_on_from_a_greeting_is_believed_of_its_initiator_alone() {
    let (host, client) = (host(), Identity::ephemeral().unwrap());
    let ahead = host.asked_by(&client);
    host.answer(|datagram, from| host.hellos.on_datagram(datagram, from));
    let (hello, name) = (ahead.asked.hello.clone(), name_of(&ahead.asked.hello));
    let lie = |key: &[u8; 32]| datagrams(HelloFlight::Rest, name, &[7; 400], key).unwrap().remove(0);
    // Who has not seen the answer has no key; nor has anybody for a greeting that nobody sent.
    assert_eq!(host.hellos.on_datagram(&lie(&rest_key(&hello)), host.at), None);
    let of_another = datagrams(HelloFlight::Rest, [9; 16], &[7; 400], &rest_key(&hello)).unwrap().remove(0);
    assert_eq!(host.hellos.on_datagram(&of_another, host.at), None);
    assert!(!host.hellos.came().drain() && !host.hellos.has_claims());
    // Who has seen it ends that connection, and can do no more: its initiator makes another.
    let (_, flight, _) = host.hellos.take(&hello).unwrap();
    assert_eq!(host.hellos.on_datagram(&lie(&rest_key(&flight)), host.at), Some(Vec::new()));
    assert!(host.hellos.came().drain() && !host.hellos.has_claims(), "its connection is there");
}

#[test]
fn a_greeting_goes_twice_within_some_milliseconds_and_so_does_its_syn() {
    let (host, client) = (host(), Identity::ephemeral().unwrap());
    // Full: the connection takes its time.
    rustix::net::listen(&host.tcp, 1).unwrap();
    let mut held = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&host.at, Duration::from_millis(100)) {
        held.push(stream);
    }
    thread::scope(|scope| {
        let near = scope.spawn(|| {
            let beside = Beside { ready: None, met: &mut |_| (), start: Start::Ahead };
            Link::connect_beside(&host.at.to_string(), &client, Expect::Key(host.id.public()), SOON, beside)
        });
        let (mut bytes, mut came) = ([0; 2048], Vec::new());
        for _ in 0..4 {
            host.udp.recv_from(&mut bytes).unwrap();
            came.push(Instant::now());
        }
        // Before the second SYN of those that know nothing of the path: 50 ms.
        assert!(came[3] - came[0] < Duration::from_millis(40), "{came:?}");
        held.iter().for_each(|_| drop(host.tcp.accept().unwrap()));
        host.accept(&host.hellos).unwrap();
        near.join().unwrap().unwrap();
    });
}
