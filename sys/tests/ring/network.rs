//! Sockets through the ring. See `main.rs`.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sys::mem::{HEADROOM, Mem};
use sys::ring::{Op, Tail};

use crate::{CHUNK, Room, pair, pattern, small, tcp};

pub(crate) fn sends_and_receives_whole_chunks(room: &mut Room) {
    for (one, other) in [pair(), tcp()] {
        let mut buf = room.pool.take().expect("buf");
        buf.whole_mut().copy_from_slice(&pattern(HEADROOM + CHUNK, 4));
        let target = room.pool.take().expect("buf");
        // 100 bytes of header right before the payload: one send. Far more than a socket buffer holds: parts of it wait.
        let (at, len) = (HEADROOM - 100, CHUNK + 100);
        room.driver.submit(1, Op::Send { socket: one, mem: Mem::Buf(buf), at, len });
        room.driver.submit(2, Op::Recv { socket: other, mem: Mem::Buf(target), at, len, all: true });
        assert_eq!(room.driver.in_flight(), 2);
        for done in room.wait_for(2) {
            assert_eq!(done.result.expect("whole"), len);
            assert_eq!(&done.mem.bytes()[at..], &pattern(HEADROOM + CHUNK, 4)[at..]);
            let Mem::Buf(buf) = done.mem else { panic!("a buf") };
            room.pool.give(buf);
        }
    }
}

/// Whole, of a file that became shorter, and of what cannot be handed over; each behind a head that is copied.
pub(crate) fn hands_a_file_to_the_network_unread(room: &mut Room) {
    let content = pattern(CHUNK + 5000, 9);
    let file = room.file("source", &content);
    let folder = Arc::new(std::fs::File::open(&room.folder).expect("a folder"));
    for (file, there) in [(&file, CHUNK), (&file, 70_001), (&folder, 0)] {
        if there < CHUNK && there > 0 {
            file.set_len(5000 + there as u64).expect("shorter");
        }
        let (one, other) = tcp();
        sys::sock::lend_ready(&*one).expect("a connection");
        let mut buf = room.pool.take().expect("buf");
        buf.whole_mut()[..100].copy_from_slice(&pattern(100, 4));
        let tail = Some(Tail { file: Arc::clone(file), offset: 5000, bytes: CHUNK });
        let lend = Op::Lend { socket: one, mem: Mem::Buf(buf), at: 0, len: 100, tail };
        if there == 0 {
            let (result, mem) = room.one(lend);
            assert_eq!(result.expect_err("a folder has no bytes").raw_os_error(), Some(22));
            let Mem::Buf(buf) = mem else { panic!("a buf") };
            room.pool.give(buf);
            continue;
        }
        room.driver.submit(1, lend);
        let target = Mem::Buf(room.pool.take().expect("buf"));
        room.driver.submit(2, Op::Recv { socket: other, mem: target, at: 0, len: 100 + CHUNK, all: true });
        for done in room.wait_for(2) {
            let moved = done.result.expect("the path is open");
            let Mem::Buf(buf) = done.mem else { panic!("a buf") };
            if done.token == 1 {
                assert_eq!(moved, 100 + there, "what the file had");
            } else {
                assert_eq!(moved, 100 + CHUNK, "the length that the peer was told");
                assert_eq!(buf.whole()[..100], pattern(100, 4));
                assert!(buf.whole()[100..100 + there] == content[5000..5000 + there], "the file's bytes");
                assert!(buf.whole()[100 + there..100 + CHUNK].iter().all(|&byte| byte == 0), "and no others");
            }
            room.pool.give(buf);
        }
    }
}

pub(crate) fn receives_what_is_there_unless_all_is_wanted(room: &mut Room) {
    let (one, other) = pair();
    room.driver.submit(1, Op::Recv { socket: Arc::clone(&other), mem: small(100), at: 0, len: 100, all: false });
    let (mut done, start) = (Vec::new(), Instant::now());
    room.driver.wait(Some(Duration::from_millis(30)), &mut done).expect("wait");
    assert!(done.is_empty() && start.elapsed() >= Duration::from_millis(29));
    rustix::io::write(&*one, b"abc").expect("write");
    let done = room.wait_for(1).pop().expect("one");
    assert_eq!((done.result.expect("some"), &done.mem.bytes()[..3]), (3, &b"abc"[..]));
    room.driver.submit(2, Op::Recv { socket: other, mem: small(6), at: 0, len: 6, all: true });
    rustix::io::write(&*one, b"abc").expect("write");
    let mut none = Vec::new();
    room.driver.wait(Some(Duration::from_millis(30)), &mut none).expect("wait");
    assert!(none.is_empty(), "three of six bytes are not all");
    rustix::io::write(&*one, b"def").expect("write");
    let done = room.wait_for(1).pop().expect("one");
    assert_eq!((done.result.expect("all"), done.mem.bytes()), (6, &b"abcdef"[..]));
}

pub(crate) fn receives_a_tail_that_is_all_there_will_be(room: &mut Room) {
    // More than a sleeping receiver is woken for, then less, then next to nothing: nothing more comes, and it must not wait.
    let parts = [300 << 10, 200 << 10, 1000, 1];
    for (one, other) in [pair(), tcp()] {
        let whole = parts.iter().sum::<usize>();
        let mem = Mem::Buf(room.pool.take().expect("buf"));
        room.driver.submit(1, Op::Recv { socket: Arc::clone(&other), mem, at: 0, len: whole, all: true });
        let sender = std::thread::spawn(move || {
            for part in parts {
                std::thread::sleep(Duration::from_millis(5));
                let (bytes, mut sent) = (pattern(part, 9), 0);
                while sent < part {
                    sent += rustix::io::write(&*one, &bytes[sent..]).expect("write");
                }
            }
            one
        });
        let done = room.wait_for(1).pop().expect("one");
        assert_eq!(done.result.expect("all"), whole);
        assert_eq!(done.mem.bytes()[whole - 1], pattern(1, 9)[0]);
        let Mem::Buf(buf) = done.mem else { panic!("a buf") };
        room.pool.give(buf);
        // Afterwards a single byte wakes again.
        let one = sender.join().expect("sender");
        room.driver.submit(2, Op::Recv { socket: other, mem: small(100), at: 0, len: 100, all: false });
        room.driver.flush().expect("flush");
        rustix::io::write(&*one, b"x").expect("write");
        assert_eq!(room.wait_for(1)[0].result.as_ref().expect("some"), &1);
    }
}

pub(crate) fn tells_the_end_of_a_stream(room: &mut Room) {
    for (one, other) in [pair(), tcp()] {
        rustix::io::write(&*one, b"last").expect("write");
        sys::sock::shutdown_send(&*one).expect("shutdown");
        let (result, mem) = room.one(Op::Recv { socket: Arc::clone(&other), mem: small(8), at: 0, len: 8, all: true });
        assert_eq!((result.expect("short"), &mem.bytes()[..4]), (4, &b"last"[..]));
        let (result, _) = room.one(Op::Recv { socket: Arc::clone(&other), mem: small(8), at: 0, len: 8, all: true });
        assert_eq!(result.expect("end"), 0);
        drop(one);
        let sent = (0..50).find_map(|_| {
            let (result, _) = room.one(Op::Send { socket: Arc::clone(&other), mem: small(8), at: 0, len: 8 });
            std::thread::sleep(Duration::from_millis(1));
            result.err()
        });
        let error = sent.expect("a send to nobody fails, and without a signal");
        assert!(matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset), "{error}");
    }
}

pub(crate) fn a_peer_that_closes_ends_what_is_in_flight(room: &mut Room) {
    let (one, other) = pair();
    room.driver.submit(1, Op::Recv { socket: Arc::clone(&other), mem: small(8), at: 0, len: 8, all: true });
    room.driver.flush().expect("flush");
    let mem = Mem::Buf(room.pool.take().expect("buf"));
    room.driver.submit(2, Op::Send { socket: other, mem, at: 0, len: CHUNK });
    room.driver.flush().expect("flush");
    drop(one);
    let mut done = room.wait_for(2);
    done.sort_by_key(|done| done.token);
    // Unread bytes at the peer's close are a reset; which of the two is told first is the kernel's affair.
    assert!(matches!(&done[0].result, Ok(0)) || done[0].result.is_err(), "{:?}", done[0].result);
    assert!(done[1].result.as_ref().map_or(true, |bytes| *bytes < CHUNK), "{:?}", done[1].result);
}

pub(crate) fn shutting_down_our_end_ends_what_is_in_flight(room: &mut Room) {
    let (one, _other) = tcp();
    room.driver.submit(1, Op::Recv { socket: Arc::clone(&one), mem: small(8), at: 0, len: 8, all: true });
    room.driver.flush().expect("flush");
    sys::sock::shutdown(&*one).expect("shutdown");
    assert_eq!(room.wait_for(1)[0].result.as_ref().expect("end of the stream"), &0);
}

/// Two connected datagram sockets.
fn udp() -> (Arc<OwnedFd>, Arc<OwnedFd>) {
    let here = || sys::udp::bind("127.0.0.1:0".parse().expect("address"), false).expect("bind");
    let (one, other) = (here(), here());
    sys::udp::connect(&one, sys::udp::local_addr(&other).expect("address")).expect("connect");
    sys::udp::connect(&other, sys::udp::local_addr(&one).expect("address")).expect("connect");
    (Arc::new(one), Arc::new(other))
}

pub(crate) fn says_when_a_socket_is_readable(room: &mut Room) {
    let (one, other) = udp();
    let mut into = vec![0; 65_535];
    for round in 0..100u8 {
        room.driver.submit(5, Op::Readable { socket: Arc::clone(&other) });
        if round % 10 == 0 {
            let (mut done, start) = (Vec::new(), Instant::now());
            room.driver.wait(Some(Duration::from_millis(10)), &mut done).expect("wait");
            assert!(done.is_empty() && start.elapsed() >= Duration::from_millis(9), "nothing has come: {done:?}");
        }
        assert_eq!(sys::udp::send_sealed(&*one, &[round; 100], 100).expect("send"), 1);
        let done = room.wait_for(1).pop().expect("one");
        assert_eq!((done.token, done.result.expect("readable")), (5, 0));
        assert!(matches!(&done.mem, Mem::Small(none) if none.is_empty()), "{:?}", done.mem);
        assert_eq!(sys::udp::recv_burst(&*other, &mut into).expect("readable").bytes, 100);
        assert_eq!(into[..100], [round; 100]);
    }
    // One is there already; beside it an operation of another kind has nothing to do, which must not hold it up.
    let (idle, _end) = pair();
    sys::udp::send_sealed(&*one, &[1; 100], 100).expect("send");
    room.driver.submit(6, Op::Recv { socket: idle, mem: small(1), at: 0, len: 1, all: true });
    room.driver.submit(7, Op::Readable { socket: other });
    let done = room.wait_for(1).pop().expect("one");
    assert_eq!((done.token, done.result.expect("readable")), (7, 0));
}

pub(crate) fn says_readable_for_an_error_that_waits(room: &mut Room) {
    let (one, other) = udp();
    drop(other);
    room.driver.submit(1, Op::Readable { socket: Arc::clone(&one) });
    room.driver.flush().expect("flush");
    assert_eq!(sys::udp::send_sealed(&*one, b"to nobody", 9).expect("send"), 1);
    assert_eq!(room.wait_for(1)[0].result.as_ref().expect("an error is something to read"), &0);
    let error = sys::udp::recv_burst(&*one, &mut [0; 9]).expect_err("nobody");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}
