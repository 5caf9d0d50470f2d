//! Sockets are made as asked, and the kernel's facts about them are read right.
//!
//! In: TCP over loopback. Out: options read back by other means, counters that match what was sent.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use sys::event::{Event, Interest, poll};
use sys::sock;

const LONG: Duration = Duration::from_secs(20);

fn tcp(addr: &str) -> (TcpStream, TcpStream) {
    let listener = sock::listen(addr.parse().expect("address")).expect("listen");
    let mut to = listener.local_addr().expect("address");
    if to.ip().is_unspecified() {
        to.set_ip([127, 0, 0, 1].into());
    }
    let one = sock::connect(to, LONG).expect("connect");
    (one, listener.accept().expect("accept").0)
}

#[test]
fn options_are_what_was_set() {
    let (one, _other) = tcp("127.0.0.1:0");
    sock::set_nodelay(&one, true).expect("nodelay");
    assert!(one.nodelay().expect("nodelay"));
    // Both are built into every kernel with TCP.
    for name in ["reno", "cubic"] {
        match sock::set_congestion(&one, name) {
            Ok(()) => assert_eq!(sock::get_congestion(&one).expect("name"), name),
            Err(error) => assert!(matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EPERM)), "{error}"),
        }
    }
    assert_eq!(sock::set_congestion(&one, "no-such").expect_err("none").raw_os_error(), Some(libc::ENOENT));
    let got = sock::set_buffers(&one, 300_000, 200_000).expect("buffers");
    assert!(got.recv_bytes >= 200_000 && got.send_bytes >= 150_000, "{got:?}");
    assert!(got.recv_bytes_limit > 0 && got.send_bytes_limit > 0);
    let huge = sock::set_buffers(&one, 0, u64::MAX).expect("as much as there is");
    assert!(huge.send_bytes >= got.send_bytes && huge.recv_bytes == got.recv_bytes);
    sock::set_notsent_lowat(&one, 65_536).expect("lowat");
    sock::set_max_pacing_rate(&one, 10_000_000_000).expect("pacing above 32 bits");
    sock::set_keepalive(&one, Duration::from_secs(10), Duration::from_secs(2), 4).expect("keepalive");
    sock::set_user_timeout(&one, Duration::from_secs(30)).expect("timeout");
    assert_eq!(rustix::net::sockopt::tcp_user_timeout(&one).expect("read back"), 30_000);
    assert_eq!(rustix::net::sockopt::tcp_keepcnt(&one).expect("read back"), 4);
    assert!(sock::take_error(&one).expect("ask").is_none());
}

#[test]
fn addresses_are_those_of_both_ends() {
    let (one, other) = tcp("127.0.0.1:0");
    assert_eq!(sock::local_addr(&one).expect("here"), other.peer_addr().expect("there"));
    assert_eq!(sock::peer_addr(&one).expect("there"), other.local_addr().expect("here"));
    let (unix, _end) = sock::pair().expect("pair");
    assert_eq!(sock::local_addr(&unix).expect_err("no address").raw_os_error(), Some(libc::EAFNOSUPPORT));
}

#[test]
fn all_addresses_are_both_families() {
    // Hosts without IPv6 say so.
    if sock::listen("[::1]:0".parse().expect("address")).is_ok() {
        let (mut one, mut other) = tcp("[::]:0");
        one.write_all(b"over IPv4").expect("send");
        let mut bytes = [0; 9];
        other.read_exact(&mut bytes).expect("receive");
    }
}

#[test]
fn a_connection_that_cannot_be_is_an_error_in_time() {
    let listener = sock::listen("127.0.0.1:0".parse().expect("address")).expect("listen");
    let addr = listener.local_addr().expect("address");
    let taken = sock::listen(addr).expect_err("taken");
    assert_eq!(taken.raw_os_error(), Some(libc::EADDRINUSE));
    drop(listener);
    let refused = sock::connect(addr, LONG).expect_err("nobody");
    assert_eq!(refused.raw_os_error(), Some(libc::ECONNREFUSED));
    // 192.0.2.0/24 is nobody's (RFC 5737): no answer, no route, or a proxy's refusal, but never a hang.
    let start = Instant::now();
    let nowhere: SocketAddr = "192.0.2.1:9".parse().expect("address");
    let _ = sock::connect(nowhere, Duration::from_millis(200));
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn prepared_and_bound_before_the_handshake() {
    let listener = sock::listen("127.0.0.1:0".parse().expect("address")).expect("listen");
    let from = "127.0.0.2".parse().expect("address");
    let prepare = |fd: std::os::fd::BorrowedFd<'_>| sock::set_buffers(fd, 400_000, 0).map(|_| ());
    let addr = listener.local_addr().expect("address");
    let one = sock::connect_from(addr, Some(from), LONG, prepare).expect("connect");
    let (_, peer) = listener.accept().expect("accept");
    assert_eq!(peer.ip(), from);
    assert_eq!(peer, one.local_addr().expect("address"));
}

#[test]
fn the_kernels_counters_match_what_was_sent() {
    let (mut one, mut other) = tcp("127.0.0.1:0");
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        other.read_to_end(&mut bytes).expect("receive");
        let info = sock::tcp_info(&other).expect("info");
        // The end of the stream counts as one more on most kernels.
        assert!((3_000_000..=3_000_001).contains(&info.bytes_received));
        bytes.len()
    });
    one.write_all(&vec![5; 3_000_000]).expect("send");
    let end = Instant::now() + LONG;
    let info = loop {
        let info = sock::tcp_info(&one).expect("info");
        if info.bytes_acked >= 3_000_000 {
            break info;
        }
        assert!(Instant::now() < end, "{info:?}");
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(info.rtt_us > 0 && info.rtt_us < 5_000_000 && info.cwnd > 0 && info.mss > 500, "{info:?}");
    assert!(info.min_rtt_us > 0 && info.min_rtt_us < 5_000_000 && info.pmtu > 500, "{info:?}");
    // Fields of 4.18 and later; older kernels leave them 0.
    assert!(info.bytes_sent == 0 || info.bytes_sent >= 3_000_000 + info.bytes_retrans, "{info:?}");
    assert!(info.delivery_rate > 0 && info.segments_out > 0, "{info:?}");
    sock::shutdown_send(&one).expect("shutdown");
    assert_eq!(reader.join().expect("reader"), 3_000_000);
    let (unix, _end) = sock::pair().expect("pair");
    assert!(sock::tcp_info(&unix).is_err());
}

#[test]
fn poll_says_which_of_several_is_ready() {
    let (one, other): (OwnedFd, OwnedFd) = sock::pair().expect("pair");
    let event = Event::new().expect("event");
    let wait = |time| {
        let fds = [(event.as_fd(), Interest::Read), (one.as_fd(), Interest::Read), (one.as_fd(), Interest::Both)];
        poll(&fds, time).expect("poll")
    };
    let start = Instant::now();
    let fds = [(event.as_fd(), Interest::Read)];
    assert!(!poll(&fds, Some(Duration::from_millis(30))).expect("poll")[0].any());
    assert!(start.elapsed() >= Duration::from_millis(29));
    let ready = wait(None);
    assert!(!ready[0].any() && !ready[1].any() && ready[2].write && !ready[2].read);
    let signal = event.clone();
    std::thread::spawn(move || signal.signal()).join().expect("thread");
    assert!(wait(Some(LONG))[0].read);
    assert!(event.drain() && !event.drain());
    rustix::io::write(&other, b"x").expect("write");
    assert!(wait(Some(LONG))[1].read && !wait(Some(LONG))[1].closed);
    drop(other);
    assert!(wait(Some(LONG))[1].closed);
}
