//! Two ends of a control session in one process: who gets through, what comes across, and what is refused.
//!
//! Absent on purpose: the port (listener/tests.rs), files of the home folder beyond what a connection reads.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use proto::wire::control::Frame;

use super::*;
use crate::identity::authorized::{self, Rights};
use crate::identity::tests::Scratch;
use crate::identity::ticket::{PROOF_LABEL, SECRET_BYTES, Ticket, Tickets, Uses};

const SOON: Duration = Duration::from_secs(5);

/// A server with a key, and the address where it waits for exactly one client.
pub(super) fn one_server(id: &Arc<Identity>) -> (String, thread::JoinHandle<Result<Link, LinkError>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    (listener.local_addr().unwrap().to_string(), serve_one(listener, id))
}

fn serve_one(listener: TcpListener, id: &Arc<Identity>) -> thread::JoinHandle<Result<Link, LinkError>> {
    let id = Arc::clone(id);
    thread::spawn(move || Link::accept(listener.accept().unwrap().0, &id, SOON))
}

/// A session between two fresh keys.
pub(crate) fn session() -> (Link, Link) {
    let (server, client) = (Arc::new(Identity::ephemeral().unwrap()), Identity::ephemeral().unwrap());
    let (address, accepted) = one_server(&server);
    let near = Link::connect(&address, &client, Expect::Key(server.public()), SOON).unwrap();
    let far = accepted.join().unwrap().unwrap();
    assert_eq!((near.peer_key(), far.peer_key()), (server.public(), client.public()));
    (near, far)
}

/// Both kinds of carrier.
fn sessions() -> [(Link, Link); 2] {
    [session(), Link::pair().unwrap()]
}

/// Turns both ends until `done` or five seconds.
fn turn_until(ends: &mut [&mut Link; 2], mut done: impl FnMut(&[Vec<Vec<u8>>; 2]) -> bool) -> [Vec<Vec<u8>>; 2] {
    let mut came = [Vec::new(), Vec::new()];
    let deadline = Instant::now() + SOON;
    while !done(&came) {
        assert!(Instant::now() < deadline, "it takes too long");
        for (end, came) in ends.iter_mut().zip(&mut came) {
            assert_eq!(end.turn(came).unwrap(), Turn::Open);
        }
        thread::sleep(Duration::from_micros(50));
    }
    came
}

#[test]
fn both_ends_export_the_same_secret_and_no_two_sessions_do() {
    let ((a, b), (c, _d)) = (session(), session());
    assert_eq!(a.export(PROOF_LABEL, b""), b.export(PROOF_LABEL, b""));
    assert_ne!(a.export(PROOF_LABEL, b""), c.export(PROOF_LABEL, b""));
    assert_ne!(a.export(b"one", b""), a.export(b"two", b""));
    assert_ne!(a.export(b"one", b"1"), a.export(b"one", b"2"));
    let ((a, b), (c, _d)) = (Link::pair().unwrap(), Link::pair().unwrap());
    assert_eq!(a.export(b"one", b"1"), b.export(b"one", b"1"));
    assert_ne!(a.export(b"one", b"1"), c.export(b"one", b"1"));
    assert_ne!(a.export(b"ab", b"c"), a.export(b"a", b"bc"));
}

#[test]
fn the_session_is_tls_1_3_with_a_hybrid_key_exchange() {
    let (near, _far) = session();
    let Carrier::Tls { connection, .. } = &near.carrier else { panic!("a pair") };
    assert_eq!(connection.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    assert_eq!(connection.negotiated_key_exchange_group().unwrap().name(), rustls::NamedGroup::X25519MLKEM768);
}

#[test]
fn a_server_with_another_key_than_the_ticket_s_is_refused() {
    let (server, other, client) =
        (Arc::new(Identity::ephemeral().unwrap()), Identity::ephemeral().unwrap(), Identity::ephemeral().unwrap());
    let (address, accepted) = one_server(&server);
    let refused = Link::connect(&address, &client, Expect::Key(other.public()), SOON).unwrap_err();
    assert!(
        matches!(&refused, LinkError::PeerWrong { key, wanted, .. } if *key == server.public() && *wanted == other.public()),
        "{refused:?}"
    );
    assert!(accepted.join().unwrap().is_err(), "the server must not take it for a session either");
}

#[test]
fn an_unknown_server_is_refused_with_the_command_that_makes_it_known() {
    let scratch = Scratch::new();
    let (server, client) = (Arc::new(Identity::ephemeral().unwrap()), Identity::load(&scratch.home).unwrap());
    // One port for both tries.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let accepted = serve_one(listener.try_clone().unwrap(), &server);
    let refused = Link::connect(&address, &client, Expect::Trusted, SOON).unwrap_err();
    assert!(matches!(refused, LinkError::PeerUnknown { .. }), "{refused:?}");
    assert!(accepted.join().unwrap().is_err());
    // The user copies the command out of the message; it must be whole and do what it says.
    let text = refused.to_string();
    let words: Vec<&str> = text.split("run: longhaul key trust ").nth(1).expect("the command").split(' ').collect();
    let key = crate::identity::keys::parse_key(&words[1..].join(" ")).unwrap().0;
    crate::identity::trust::trust(&scratch.home, words[0], &key).unwrap();
    let accepted = serve_one(listener, &server);
    Link::connect(&address, &client, Expect::Trusted, SOON).unwrap();
    accepted.join().unwrap().unwrap();
}

#[test]
fn a_server_that_changed_its_key_is_refused_and_told_apart_from_an_unknown_one() {
    let scratch = Scratch::new();
    let (server, client) = (Arc::new(Identity::ephemeral().unwrap()), Identity::load(&scratch.home).unwrap());
    let (address, _accepted) = one_server(&server);
    crate::identity::trust::trust(&scratch.home, &address, &client.public()).unwrap();
    let refused = Link::connect(&address, &client, Expect::Trusted, SOON).unwrap_err();
    assert!(matches!(refused, LinkError::PeerChanged { .. }), "{refused:?}");
}

#[test]
fn a_revoked_server_is_refused_even_with_a_ticket() {
    let scratch = Scratch::new();
    let (server, client) = (Arc::new(Identity::ephemeral().unwrap()), Identity::load(&scratch.home).unwrap());
    let (address, _accepted) = one_server(&server);
    authorized::revoke(&scratch.home, &server.public(), "lost").unwrap();
    let refused = Link::connect(&address, &client, Expect::Key(server.public()), SOON).unwrap_err();
    assert!(matches!(refused, LinkError::PeerRevoked { .. }), "{refused:?}");
}

#[test]
fn a_ticket_proves_itself_in_its_own_session_only() {
    let tickets = Tickets::new();
    let (near, far) = session();
    let ticket: Ticket = tickets.issue(near.peer_key(), Uses::Many, Rights::default(), None).unwrap();
    let proof = ticket.proof(&near.export(PROOF_LABEL, b""));
    let ask = |proof: &[u8; 32], link: &Link| {
        tickets.redeem(proof, &link.export(PROOF_LABEL, b""), &link.peer_key(), Instant::now())
    };
    assert!(ask(&proof, &far).is_some());
    let mut bent = proof;
    bent[31] ^= 1;
    assert!(ask(&bent, &far).is_none());
    // Heard by somebody and said again in another session.
    let (_other_near, other_far) = session();
    assert!(ask(&proof, &other_far).is_none());
}

/// Stands between a client and a server, and keeps what crosses, both ways.
fn tap(server: String) -> (String, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&kept);
    thread::spawn(move || {
        let client = listener.accept().unwrap().0;
        let server = TcpStream::connect(server).unwrap();
        let ways = [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)];
        for (mut from, mut to) in ways {
            let taken = Arc::clone(&taken);
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = from.read(&mut bytes) {
                    taken.lock().unwrap().extend_from_slice(&bytes[..count]);
                    if to.write_all(&bytes[..count]).is_err() {
                        break;
                    }
                }
            });
        }
    });
    (address, kept)
}

#[test]
fn a_ticket_s_secret_is_neither_on_the_wire_nor_among_what_the_server_reads() {
    let (server, client) = (Arc::new(Identity::ephemeral().unwrap()), Identity::ephemeral().unwrap());
    let (address, accepted) = one_server(&server);
    let (address, wire) = tap(address);
    let tickets = Tickets::new();
    let ticket = tickets.issue(server.public(), Uses::Many, Rights::default(), None).unwrap();
    let mut near = Link::connect(&address, &client, Expect::Key(server.public()), SOON).unwrap();
    let mut far = accepted.join().unwrap().unwrap();
    crate::job::greeting::begin(&mut near, Some(&ticket));
    near.flush_blocking(SOON).unwrap();
    let read = [far.call(SOON).unwrap(), far.call(SOON).unwrap()];
    let Frame::Ticket { proof } = Frame::decode(&read[1]).unwrap() else { panic!("{:?}", read[1]) };
    let exported = far.export(PROOF_LABEL, b"");
    assert!(
        tickets.redeem(&proof, &exported, &far.peer_key(), Instant::now()).is_some(),
        "the test read the right frame"
    );
    crate::job::greeting::say(&mut far, &Frame::Hello { version_min: 1, version: 1, agent: "far".into() });
    far.flush_blocking(SOON).unwrap();
    near.call(SOON).unwrap();
    let wire = wire.lock().unwrap();
    assert!(wire.len() > 1000 && wire[0] == 0x16, "a TLS session crossed: {} bytes", wire.len());
    // Half of the secret would be too much, as bytes and as the text that a ticket is.
    let text = ticket.to_string();
    let halves = ticket.secret.chunks(SECRET_BYTES / 2).map(<[u8]>::to_vec);
    let texts = text.as_bytes()[text.len() - 20..].chunks(10).map(<[u8]>::to_vec);
    for piece in halves.chain(texts) {
        for (what, bytes) in [("on the wire", &wire[..]), ("in a frame", &read[0]), ("in a frame", &read[1])] {
            assert!(!bytes.windows(piece.len()).any(|it| it == piece), "the secret is {what}");
        }
    }
}

#[test]
fn frames_cross_in_both_directions_in_order() {
    for (mut near, mut far) in sessions() {
        for number in 0u32..2000 {
            near.send(&number.to_le_bytes());
            far.send(&[&number.to_be_bytes()[..], &vec![7; number as usize % 700]].concat());
        }
        let came = turn_until(&mut [&mut near, &mut far], |came| came[0].len() == 2000 && came[1].len() == 2000);
        for number in 0u32..2000 {
            assert_eq!(came[1][number as usize], number.to_le_bytes());
            assert_eq!(came[0][number as usize][..4], number.to_be_bytes());
            assert_eq!(came[0][number as usize].len(), 4 + number as usize % 700);
        }
        assert_eq!((near.backlog(), far.backlog()), (0, 0));
        assert!(near.bytes_sent() >= 2000 * 8 && far.bytes_received() == near.bytes_sent());
    }
}

#[test]
fn big_frames_cross_small_kernel_buffers_while_both_ends_send() {
    for (mut near, mut far) in sessions() {
        for end in [&near, &far] {
            rustix::net::sockopt::set_socket_send_buffer_size(end.as_fd(), 8 << 10).unwrap();
            // Not below loopback's segment of 64 KiB, or TCP waits for its persist timer at every step.
            rustix::net::sockopt::set_socket_recv_buffer_size(end.as_fd(), 128 << 10).unwrap();
        }
        let frame: Vec<u8> = (0..200_000u32).map(|at| (at % 251) as u8).collect();
        for _ in 0..10 {
            near.send(&frame);
            far.send(&frame);
        }
        let mut frames = Vec::new();
        near.turn(&mut frames).unwrap();
        assert!(near.backlog() > 1_000_000 && near.wants_write(), "the kernel cannot have taken two megabytes");
        let came = turn_until(&mut [&mut near, &mut far], |came| came[0].len() == 10 && came[1].len() == 10);
        assert!(came.iter().flatten().all(|one| *one == frame));
        assert!(!near.wants_write() && !far.wants_write());
    }
}

#[test]
fn a_turn_takes_a_bounded_portion_and_the_rest_stays_with_the_sender() {
    for (mut near, mut far) in sessions() {
        for _ in 0..100 {
            near.send(&vec![1; FRAME_BYTES_MAX]);
        }
        let mut frames = Vec::new();
        // The receiver never turns: the sender's kernel buffer fills and the rest stays in its backlog.
        for _ in 0..100 {
            near.turn(&mut frames).unwrap();
        }
        assert!(near.backlog() > 10 * FRAME_BYTES_MAX);
        far.turn(&mut frames).unwrap();
        assert!(frames.len() * FRAME_BYTES_MAX <= TURN_BYTES_MAX + READ_BYTES, "{} frames in one turn", frames.len());
    }
}

#[test]
fn a_frame_above_the_limit_is_a_breach_and_so_is_an_empty_one() {
    for bytes in [u32::try_from(FRAME_BYTES_MAX).unwrap() + 1, 0x7fff_ffff, 0] {
        for (mut near, mut far) in sessions() {
            near.send(b"good");
            near.queue.extend(bytes.to_le_bytes());
            near.queue.extend([0; 64]);
            near.flush_blocking(SOON).unwrap();
            let mut frames = Vec::new();
            let error = loop {
                match far.turn(&mut frames) {
                    Ok(_) => thread::sleep(Duration::from_micros(50)),
                    Err(error) => break error,
                }
            };
            let wanted = if bytes == 0 { Breach::FrameTruncated } else { Breach::FrameTooLong };
            assert!(matches!(error, LinkError::Breach(breach) if breach == wanted), "{error:?}");
            assert_eq!(frames, [b"good".to_vec()], "what came before it is still handed out, once");
        }
    }
}

#[test]
fn a_call_hands_out_the_frames_before_it_tells_the_breach_behind_them() {
    for (mut near, mut far) in sessions() {
        near.send(b"one");
        near.send(b"two");
        near.queue.extend(u32::MAX.wrapping_sub(1).to_le_bytes());
        near.flush_blocking(SOON).unwrap();
        thread::sleep(Duration::from_millis(20));
        assert_eq!(far.call(SOON).unwrap(), b"one");
        assert_eq!(far.call(SOON).unwrap(), b"two");
        assert!(matches!(far.call(SOON), Err(LinkError::Breach(Breach::FrameTooLong))));
    }
}

#[test]
fn a_farewell_is_told_apart_from_a_cut() {
    for (mut near, mut far) in sessions() {
        near.send(b"last words");
        near.close();
        near.flush_blocking(SOON).unwrap();
        drop(near);
        assert_eq!(far.call(SOON).unwrap(), b"last words");
        assert!(matches!(far.call(SOON), Err(LinkError::Closed)));
        assert_eq!(far.turn(&mut Vec::new()).unwrap(), Turn::Closed);
    }
    for (mut near, mut far) in sessions() {
        near.send(b"last words");
        near.flush_blocking(SOON).unwrap();
        drop(near);
        assert_eq!(far.call(SOON).unwrap(), b"last words");
        assert!(matches!(far.call(SOON), Err(LinkError::Cut)));
        assert!(matches!(far.turn(&mut Vec::new()), Err(LinkError::Cut)));
    }
    // A farewell in the middle of a frame is a cut as well.
    for (mut near, mut far) in sessions() {
        near.queue.extend(100u32.to_le_bytes());
        near.queue.extend(b"half a frame");
        near.close();
        near.flush_blocking(SOON).unwrap();
        let refused = far.call(SOON);
        match &far.carrier {
            Carrier::Tls { .. } => assert!(matches!(refused, Err(LinkError::Cut)), "{refused:?}"),
            // On a pair the farewell stands where the rest of the frame should: it is never seen as one.
            Carrier::Pair { .. } => assert!(refused.is_err(), "{refused:?}"),
        }
    }
}

#[test]
fn a_peer_that_refuses_and_goes_is_heard_although_we_still_send() {
    for (mut near, mut far) in sessions() {
        far.send(b"refused: read-only");
        far.close();
        far.flush_blocking(SOON).unwrap();
        for _ in 0..50 {
            near.send(&[1; 1000]);
        }
        // What we send meets a closed socket; the refusal stands in our receive buffer all the same.
        let mut heard = Vec::new();
        let end = (0..1000).find_map(|_| match near.turn(&mut heard) {
            Ok(Turn::Open) => None,
            other => Some(other),
        });
        assert_eq!(heard, [b"refused: read-only".to_vec()]);
        assert!(matches!(end, Some(Ok(Turn::Closed))), "{end:?}");
    }
}

#[test]
fn an_altered_record_ends_the_session() {
    // A proxy between both ends that flips one bit after the handshake.
    let server = Arc::new(Identity::ephemeral().unwrap());
    let (address, accepted) = one_server(&server);
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxied = proxy.local_addr().unwrap().to_string();
    let (flip, flipping) = std::sync::mpsc::channel::<()>();
    thread::spawn(move || {
        let (mut client, _) = proxy.accept().unwrap();
        let mut server = TcpStream::connect(address).unwrap();
        let (mut back, mut front) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut back, &mut front));
        let mut bytes = [0; 65536];
        while let Ok(count @ 1..) = client.read(&mut bytes) {
            if flipping.try_recv().is_ok() {
                bytes[count / 2] ^= 1;
            }
            server.write_all(&bytes[..count]).unwrap();
        }
    });
    let client = Identity::ephemeral().unwrap();
    let mut near = Link::connect(&proxied, &client, Expect::Key(server.public()), SOON).unwrap();
    let mut far = accepted.join().unwrap().unwrap();
    near.send(b"unharmed");
    near.flush_blocking(SOON).unwrap();
    assert_eq!(far.call(SOON).unwrap(), b"unharmed");
    flip.send(()).unwrap();
    near.send(b"harmed");
    near.flush_blocking(SOON).unwrap();
    assert!(matches!(far.call(SOON), Err(LinkError::Tls(_))));
}

#[test]
fn a_client_that_drips_is_dropped_at_the_deadline() {
    let server = Arc::new(Identity::ephemeral().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut drip = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, _) = listener.accept().unwrap();
    let dripping = thread::spawn(move || {
        // A believable record header, then a byte each 20 ms.
        for byte in [0x16, 3, 1, 2, 0].into_iter().chain(std::iter::repeat(1)) {
            if drip.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    let start = Instant::now();
    let dropped = Link::accept(stream, &server, Duration::from_millis(300)).unwrap_err();
    let took = start.elapsed();
    assert!(matches!(dropped, LinkError::Timeout { .. }), "{dropped:?}");
    assert!(took >= Duration::from_millis(300) && took < Duration::from_millis(900), "{took:?}");
    dripping.join().unwrap();
}

#[test]
fn a_caller_waits_no_longer_than_it_said() {
    for (mut near, _far) in sessions() {
        let start = Instant::now();
        assert!(matches!(near.call(Duration::from_millis(100)), Err(LinkError::Timeout { .. })));
        assert!(start.elapsed() < Duration::from_millis(600));
    }
}

#[test]
fn a_client_without_a_key_or_with_a_foreign_one_does_not_get_in() {
    let server = Arc::new(Identity::ephemeral().unwrap());
    for hello in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 3, 1, 0, 4, 1, 0, 0, 0], &[0x16, 3, 3, 0xff, 0xff], &[0; 64]]
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stranger.write_all(hello).unwrap();
        stranger.shutdown(std::net::Shutdown::Write).unwrap();
        let (stream, _) = listener.accept().unwrap();
        assert!(Link::accept(stream, &server, SOON).is_err());
    }
    // One that shows a key whose secret it does not have: anybody may know whom a server lets in.
    let (friend, thief) = (Identity::ephemeral().unwrap(), Identity::ephemeral().unwrap());
    for (shown, gets_in) in [(friend.public(), false), (thief.public(), true)] {
        let (address, accepted) = one_server(&server);
        let posing = tls::client_posing_as(shown, &thief, server.public());
        let stream = TcpStream::connect(address).unwrap();
        let _near = Link::shake(Connection::Client(posing), stream, &mut Deadline::after(SOON), None);
        assert_eq!(accepted.join().unwrap().map(|link| link.peer_key()).ok(), gets_in.then_some(shown));
    }
    // A client that proves nothing.
    let (address, accepted) = one_server(&server);
    let nobody = tls::client_without_key(server.public());
    let stream = TcpStream::connect(address).unwrap();
    let _ = Link::shake(Connection::Client(nobody), stream, &mut Deadline::after(SOON), None);
    assert!(accepted.join().unwrap().is_err());
}

/// Of several addresses of one daemon some lead to nobody, to another host, or nowhere: the one whose key is right is found, and soon.
#[test]
fn of_several_addresses_the_first_that_proves_the_key_is_taken() {
    let (server, other, client) = (
        Arc::new(Identity::ephemeral().unwrap()),
        Arc::new(Identity::ephemeral().unwrap()),
        Identity::ephemeral().unwrap(),
    );
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // Whoever connects here waits: nothing is accepted, and the queue of those that may wait is full.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&silent, 0).unwrap();
    let silent_at = silent.local_addr().unwrap();
    let _filler = TcpStream::connect(silent_at).unwrap();
    let (wrong, refused) = one_server(&other);
    let (right, accepted) = one_server(&server);
    let all = format!("{silent_at},{nobody},no.such.name.invalid:1,{wrong},{right}");
    let begun = Instant::now();
    let link = Link::connect(&all, &client, Expect::Key(server.public()), SOON).unwrap();
    assert_eq!((link.peer_key(), link.peer_addr().unwrap().to_string()), (server.public(), right));
    assert!(begun.elapsed() < SOON / 2, "{:?}", begun.elapsed());
    assert!(accepted.join().unwrap().is_ok() && refused.join().unwrap().is_err());
    // With no right one among them, what is told is who answered.
    let (wrong, refused) = one_server(&other);
    let error = Link::connect(&format!("{wrong},{nobody}"), &client, Expect::Key(server.public()), SOON).unwrap_err();
    assert!(matches!(&error, LinkError::PeerWrong { host_port, .. } if *host_port == wrong), "{error:?}");
    assert!(refused.join().unwrap().is_err());
}

#[test]
fn what_nobody_answers_and_what_is_no_name_are_told_apart() {
    let client = Identity::ephemeral().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = Link::connect(&format!("127.0.0.1:{port}"), &client, Expect::Key([9; 32]), SOON).unwrap_err();
    assert!(matches!(error, LinkError::Connect { .. }), "{error:?}");
    let error = Link::connect("no port here", &client, Expect::Key([9; 32]), SOON).unwrap_err();
    assert!(matches!(error, LinkError::Resolve { .. }), "{error:?}");
}

#[test]
fn the_user_is_told_the_code_and_the_next_step_however_the_error_is_wrapped() {
    use text::exit::Exit;
    let host_port = "h:1".to_owned();
    let cases = [
        (
            LinkError::PeerUnknown { host_port: host_port.clone(), key: [9; 32] },
            Exit::Identity,
            "longhaul key trust h:1 ",
        ),
        (LinkError::PeerWrong { host_port, key: [9; 32], wanted: [8; 32] }, Exit::Identity, "ticket"),
        (LinkError::Timeout { step: Step::Prove, granted_ms: 10 }, Exit::Connect, "serve"),
        (LinkError::Timeout { step: Step::Wait, granted_ms: 10 }, Exit::Stalled, "resumes"),
        (LinkError::Cut, Exit::Lost, "resumes"),
        (LinkError::Breach(Breach::FrameTooLong), Exit::Breach, "version"),
        (LinkError::Identity(crate::identity::IdentityError::NoHome), Exit::Usage, "LONGHAUL_HOME"),
    ];
    for (error, exit, next) in cases {
        let failure = failure_of("do something", &anyhow::Error::new(error).context("while connecting"));
        assert_eq!(failure.exit, exit, "{failure}");
        assert!(failure.next_step.contains(next), "{failure}");
        assert!(failure.cause.starts_with("while connecting: "), "{failure}");
    }
}

#[test]
fn where_the_peer_was_is_known_after_it_is_gone() {
    let (mut near, far) = session();
    let at = near.peer_addr();
    assert!(at.is_some());
    near.send(b"nobody reads this");
    near.flush_blocking(SOON).unwrap();
    drop(far); // with something unread: the kernel resets the connection
    while near.call(SOON).is_ok() {}
    assert!(near.tcp().unwrap().peer_addr().is_err(), "the kernel has forgotten it");
    assert_eq!(near.peer_addr(), at);
}

/// Two connections that nobody has used yet.
pub(super) fn another_connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

#[test]
fn a_session_goes_on_over_another_connection_and_no_frame_is_lost_or_comes_twice() {
    let (mut near, mut far) = session();
    near.keep();
    far.keep();
    let frame = |number: u32| [&number.to_le_bytes()[..], &vec![7; (number as usize * 911) % 60_000]].concat();
    let (mut sent, mut came) = ([0, 0], [Vec::new(), Vec::new()]);
    for round in 0..6 {
        // More than the kernel takes, so that something is on its way, something unread, something unsent.
        for (end, sent) in [&mut near, &mut far].into_iter().zip(&mut sent) {
            for _ in 0..60 {
                end.send(&frame(*sent));
                *sent += 1;
            }
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
    let deadline = Instant::now() + SOON;
    while came[0].len() < sent[1] as usize || came[1].len() < sent[0] as usize {
        assert!(Instant::now() < deadline, "it takes too long: {} and {} came", came[0].len(), came[1].len());
        near.turn(&mut came[0]).unwrap();
        far.turn(&mut came[1]).unwrap();
    }
    for came in came {
        let wrong = came.iter().enumerate().position(|(number, bytes)| *bytes != frame(number as u32));
        assert_eq!((came.len(), wrong), (360, None));
    }
}

#[test]
fn a_count_of_what_was_never_sent_changes_nothing() {
    let (mut near, mut far) = session();
    near.keep();
    near.send(b"one");
    turn_until(&mut [&mut near, &mut far], |came| !came[1].is_empty());
    let sent = near.bytes_sent();
    for theirs in [sent + 1, u64::MAX, 0] {
        let refused = near.carry_on(another_connection().0, theirs, true);
        assert!(matches!(refused, Err(LinkError::Cut)), "{theirs} of {sent}");
    }
    near.send(b"two");
    let came = turn_until(&mut [&mut near, &mut far], |came| !came[1].is_empty());
    assert_eq!(came[1], [b"two"]);
}

#[test]
fn a_connection_that_is_there_is_the_sessions_and_another_is_made_where_it_is_dead() {
    for is_dead in [false, true] {
        let (server, client) = (Arc::new(Identity::ephemeral().unwrap()), Identity::ephemeral().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).unwrap();
        let own = stream.local_addr().unwrap();
        if is_dead {
            drop(listener.accept().unwrap());
        }
        let accepted = serve_one(listener, &server);
        let (ready, mut met) = (Some(Ready { stream, took: SOON }), Vec::new());
        let mut meets = |it: Connected| met.push((it.to, it.took >= SOON));
        let to = address.to_string();
        let beside = Beside { ready, met: &mut meets, start: Start::Plain };
        let link = Link::connect_beside(&to, &client, Expect::Key(server.public()), SOON, beside).unwrap();
        accepted.join().unwrap().unwrap();
        assert_eq!(link.local_addr() == Some(own), !is_dead);
        assert_eq!(met[0], (address, true), "it counts as long as it was waited for");
        assert_eq!(met.len(), 1 + usize::from(is_dead));
    }
}
