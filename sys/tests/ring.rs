//! Both engines of the ring give the same answers: one table of tests, run with each of them on real files and sockets.
//!
//! In: real files on the disk of the build folder and on tmpfs, socket pairs, TCP over loopback. Out: `Done`s.
//! Absent on purpose: speed (see `examples/rates.rs`) and allocation (see `steady.rs`).

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sys::mem::{HEADROOM, Mem, Pool};
use sys::ring::{Done, Driver, Kind, Op};

/// Long enough for a slow machine, short enough to fail a hanging test.
const LONG: Duration = Duration::from_secs(20);
const CHUNK: usize = 1 << 20;

/// A pool, a ring on it, and a folder of its own.
struct Room {
    pool: Pool,
    driver: Driver,
    folder: PathBuf,
}

impl Room {
    fn new(kind: Kind, root: &str) -> Room {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = PathBuf::from(root).join(format!("sys-ring-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("folder");
        let pool = Pool::new(8, CHUNK).expect("pool");
        let (driver, _) = Driver::choose(&pool, Some(kind)).expect("this engine on this machine");
        assert_eq!(driver.kind(), kind);
        Room {
            pool,
            driver,
            folder,
        }
    }

    fn file(&self, name: &str, contents: &[u8]) -> Arc<File> {
        let path = self.folder.join(name);
        std::fs::write(&path, contents).expect("write");
        Arc::new(
            File::options()
                .read(true)
                .write(true)
                .open(path)
                .expect("open"),
        )
    }

    /// Waits until `count` more operations are done.
    fn wait_for(&mut self, count: usize) -> Vec<Done> {
        let (mut done, end) = (Vec::new(), Instant::now() + LONG);
        while done.len() < count {
            assert!(Instant::now() < end, "only {} of {count} done", done.len());
            self.driver.wait(Some(LONG), &mut done).expect("wait");
        }
        assert_eq!(done.len(), count);
        done
    }

    fn one(&mut self, op: Op) -> (io::Result<usize>, Mem) {
        self.driver.submit(77, op);
        let done = self.wait_for(1).pop().expect("one");
        assert_eq!((done.token, self.driver.in_flight()), (77, 0));
        (done.result, done.mem)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    (0..bytes as u64)
        .map(|at| ((at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

fn small(bytes: usize) -> Mem {
    Mem::Small(vec![0; bytes].into_boxed_slice())
}

fn pair() -> (Arc<OwnedFd>, Arc<OwnedFd>) {
    let (one, other) = sys::sock::pair().expect("pair");
    (Arc::new(one), Arc::new(other))
}

/// Both ends of a TCP connection over loopback.
fn tcp() -> (Arc<OwnedFd>, Arc<OwnedFd>) {
    let listener = sys::sock::listen("127.0.0.1:0".parse().expect("address")).expect("listen");
    let addr = listener.local_addr().expect("address");
    let one = sys::sock::connect(addr, LONG).expect("connect");
    let (other, _) = listener.accept().expect("accept");
    (Arc::new(one.into()), Arc::new(other.into()))
}

fn writes_then_reads_back(room: &mut Room) {
    let file = room.file("data", b"");
    let bytes = pattern(CHUNK, 1);
    let mut buf = room.pool.take().expect("buf");
    buf.payload_mut().copy_from_slice(&bytes);
    let op = Op::Write {
        file: Arc::clone(&file),
        offset: 12_345,
        mem: Mem::Buf(buf),
        at: HEADROOM,
        len: CHUNK,
    };
    let (result, mem) = room.one(op);
    assert_eq!(result.expect("write"), CHUNK);
    let Mem::Buf(mut buf) = mem else {
        panic!("a buf comes back as a buf")
    };
    buf.payload_mut().fill(0);
    let op = Op::Read {
        file: Arc::clone(&file),
        offset: 12_345,
        mem: Mem::Buf(buf),
        at: HEADROOM,
        len: CHUNK,
    };
    let (result, mem) = room.one(op);
    assert_eq!(result.expect("read"), CHUNK);
    let Mem::Buf(buf) = mem else {
        panic!("a buf comes back as a buf")
    };
    assert_eq!(buf.payload(), bytes);
    room.pool.give(buf);
    let (result, mem) = room.one(Op::Read {
        file,
        offset: 12_345,
        mem: small(100),
        at: 10,
        len: 80,
    });
    assert_eq!(result.expect("small read"), 80);
    assert_eq!(&mem.bytes()[10..90], &bytes[..80]);
    assert_eq!(
        (&mem.bytes()[..10], &mem.bytes()[90..]),
        (&[0; 10][..], &[0; 10][..])
    );
}

fn reads_short_at_the_end_of_a_file(room: &mut Room) {
    let file = room.file("short", &pattern(5_000, 2));
    let (result, mem) = room.one(Op::Read {
        file: Arc::clone(&file),
        offset: 4_000,
        mem: small(4_096),
        at: 0,
        len: 4_096,
    });
    assert_eq!(result.expect("short"), 1_000);
    assert_eq!(&mem.bytes()[..1_000], &pattern(5_000, 2)[4_000..]);
    let (result, _) = room.one(Op::Read {
        file: Arc::clone(&file),
        offset: 5_000,
        mem: small(16),
        at: 0,
        len: 16,
    });
    assert_eq!(result.expect("at the end"), 0);
    let (result, _) = room.one(Op::Read {
        file,
        offset: 1 << 40,
        mem: small(16),
        at: 0,
        len: 16,
    });
    assert_eq!(result.expect("behind the end"), 0);
}

fn reads_from_the_disk_itself(room: &mut Room) {
    let bytes = pattern(3 * CHUNK, 3);
    let file = room.file("cold", &bytes);
    sys::fs::sync_data(&file).expect("sync");
    sys::fs::drop_cache(&file, 0, 0).expect("drop");
    for part in 0..3 {
        let mem = Mem::Buf(room.pool.take().expect("buf"));
        let offset = (part * CHUNK) as u64;
        room.driver.submit(
            part as u64,
            Op::Read {
                file: Arc::clone(&file),
                offset,
                mem,
                at: HEADROOM,
                len: CHUNK,
            },
        );
    }
    for done in room.wait_for(3) {
        assert_eq!(done.result.expect("read"), CHUNK);
        let from = done.token as usize * CHUNK;
        assert_eq!(&done.mem.bytes()[HEADROOM..], &bytes[from..from + CHUNK]);
        let Mem::Buf(buf) = done.mem else {
            panic!("a buf")
        };
        room.pool.give(buf);
    }
}

fn says_ebadf_for_a_file_not_open_for_it(room: &mut Room) {
    room.file("one-way", b"contents");
    let path = room.folder.join("one-way");
    let only_read = Arc::new(File::open(&path).expect("open"));
    let only_write = Arc::new(File::options().write(true).open(&path).expect("open"));
    let (result, _) = room.one(Op::Write {
        file: only_read,
        offset: 0,
        mem: small(8),
        at: 0,
        len: 8,
    });
    assert_eq!(result.expect_err("read only").raw_os_error(), Some(9));
    let (result, _) = room.one(Op::Read {
        file: only_write,
        offset: 0,
        mem: small(8),
        at: 0,
        len: 8,
    });
    assert_eq!(result.expect_err("write only").raw_os_error(), Some(9));
}

fn sends_and_receives_whole_chunks(room: &mut Room) {
    for (one, other) in [pair(), tcp()] {
        let mut buf = room.pool.take().expect("buf");
        buf.whole_mut()
            .copy_from_slice(&pattern(HEADROOM + CHUNK, 4));
        let target = room.pool.take().expect("buf");
        // 100 bytes of header right before the payload: one send. Far more than a socket buffer holds: parts of it wait.
        let (at, len) = (HEADROOM - 100, CHUNK + 100);
        room.driver.submit(
            1,
            Op::Send {
                socket: one,
                mem: Mem::Buf(buf),
                at,
                len,
            },
        );
        room.driver.submit(
            2,
            Op::Recv {
                socket: other,
                mem: Mem::Buf(target),
                at,
                len,
                all: true,
            },
        );
        assert_eq!(room.driver.in_flight(), 2);
        for done in room.wait_for(2) {
            assert_eq!(done.result.expect("whole"), len);
            assert_eq!(&done.mem.bytes()[at..], &pattern(HEADROOM + CHUNK, 4)[at..]);
            let Mem::Buf(buf) = done.mem else {
                panic!("a buf")
            };
            room.pool.give(buf);
        }
    }
}

fn receives_what_is_there_unless_all_is_wanted(room: &mut Room) {
    let (one, other) = pair();
    room.driver.submit(
        1,
        Op::Recv {
            socket: Arc::clone(&other),
            mem: small(100),
            at: 0,
            len: 100,
            all: false,
        },
    );
    let (mut done, start) = (Vec::new(), Instant::now());
    room.driver
        .wait(Some(Duration::from_millis(30)), &mut done)
        .expect("wait");
    assert!(done.is_empty() && start.elapsed() >= Duration::from_millis(29));
    rustix::io::write(&*one, b"abc").expect("write");
    let done = room.wait_for(1).pop().expect("one");
    assert_eq!(
        (done.result.expect("some"), &done.mem.bytes()[..3]),
        (3, &b"abc"[..])
    );
    room.driver.submit(
        2,
        Op::Recv {
            socket: other,
            mem: small(6),
            at: 0,
            len: 6,
            all: true,
        },
    );
    rustix::io::write(&*one, b"abc").expect("write");
    let mut none = Vec::new();
    room.driver
        .wait(Some(Duration::from_millis(30)), &mut none)
        .expect("wait");
    assert!(none.is_empty(), "three of six bytes are not all");
    rustix::io::write(&*one, b"def").expect("write");
    let done = room.wait_for(1).pop().expect("one");
    assert_eq!(
        (done.result.expect("all"), done.mem.bytes()),
        (6, &b"abcdef"[..])
    );
}

fn tells_the_end_of_a_stream(room: &mut Room) {
    for (one, other) in [pair(), tcp()] {
        rustix::io::write(&*one, b"last").expect("write");
        sys::sock::shutdown_send(&*one).expect("shutdown");
        let (result, mem) = room.one(Op::Recv {
            socket: Arc::clone(&other),
            mem: small(8),
            at: 0,
            len: 8,
            all: true,
        });
        assert_eq!(
            (result.expect("short"), &mem.bytes()[..4]),
            (4, &b"last"[..])
        );
        let (result, _) = room.one(Op::Recv {
            socket: Arc::clone(&other),
            mem: small(8),
            at: 0,
            len: 8,
            all: true,
        });
        assert_eq!(result.expect("end"), 0);
        drop(one);
        let sent = (0..50).find_map(|_| {
            let (result, _) = room.one(Op::Send {
                socket: Arc::clone(&other),
                mem: small(8),
                at: 0,
                len: 8,
            });
            std::thread::sleep(Duration::from_millis(1));
            result.err()
        });
        let error = sent.expect("a send to nobody fails, and without a signal");
        assert!(
            matches!(
                error.kind(),
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
            ),
            "{error}"
        );
    }
}

fn a_peer_that_closes_ends_what_is_in_flight(room: &mut Room) {
    let (one, other) = pair();
    room.driver.submit(
        1,
        Op::Recv {
            socket: Arc::clone(&other),
            mem: small(8),
            at: 0,
            len: 8,
            all: true,
        },
    );
    room.driver.flush().expect("flush");
    let mem = Mem::Buf(room.pool.take().expect("buf"));
    room.driver.submit(
        2,
        Op::Send {
            socket: other,
            mem,
            at: 0,
            len: CHUNK,
        },
    );
    room.driver.flush().expect("flush");
    drop(one);
    let mut done = room.wait_for(2);
    done.sort_by_key(|done| done.token);
    // Unread bytes at the peer's close are a reset; which of the two is told first is the kernel's affair.
    assert!(
        matches!(&done[0].result, Ok(0)) || done[0].result.is_err(),
        "{:?}",
        done[0].result
    );
    assert!(
        done[1].result.as_ref().map_or(true, |bytes| *bytes < CHUNK),
        "{:?}",
        done[1].result
    );
}

fn shutting_down_our_end_ends_what_is_in_flight(room: &mut Room) {
    let (one, _other) = tcp();
    room.driver.submit(
        1,
        Op::Recv {
            socket: Arc::clone(&one),
            mem: small(8),
            at: 0,
            len: 8,
            all: true,
        },
    );
    room.driver.flush().expect("flush");
    sys::sock::shutdown(&*one).expect("shutdown");
    assert_eq!(
        room.wait_for(1)[0]
            .result
            .as_ref()
            .expect("end of the stream"),
        &0
    );
}

fn is_woken_by_another_thread(room: &mut Room) {
    let waker = room.driver.waker();
    for _ in 0..50 {
        let waker = waker.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(1));
            waker.wake();
        });
        let (mut done, start) = (Vec::new(), Instant::now());
        room.driver.wait(Some(LONG), &mut done).expect("wait");
        assert!(
            done.is_empty() && start.elapsed() < LONG / 2,
            "a wake ends the wait"
        );
        thread.join().expect("thread");
    }
    // A wake before the wait counts, and many are one.
    (0..10).for_each(|_| waker.wake());
    let start = Instant::now();
    room.driver.wait(None, &mut Vec::new()).expect("wait");
    room.driver
        .wait(Some(Duration::from_millis(20)), &mut Vec::new())
        .expect("wait");
    assert!(start.elapsed() >= Duration::from_millis(19) && start.elapsed() < LONG);
    // And seen by `poll`, it does not end a later wait twice, but the next wake does.
    waker.wake();
    room.driver.poll(&mut Vec::new()).expect("poll");
    waker.wake();
    room.driver.wait(Some(LONG), &mut Vec::new()).expect("wait");
}

fn no_wake_is_lost_in_a_storm(room: &mut Room) {
    let (waker, told) = (room.driver.waker(), Arc::new(AtomicU32::new(0)));
    let mailbox = Arc::clone(&told);
    let thread = std::thread::spawn(move || {
        for number in 1..=20_000 {
            mailbox.store(number, Ordering::Release);
            waker.wake();
        }
    });
    let end = Instant::now() + LONG;
    while told.load(Ordering::Acquire) < 20_000 {
        assert!(Instant::now() < end, "asleep with a full mailbox");
        room.driver.wait(Some(LONG), &mut Vec::new()).expect("wait");
    }
    thread.join().expect("thread");
}

fn polls_without_waiting(room: &mut Room) {
    let (one, other) = pair();
    room.driver.submit(
        1,
        Op::Recv {
            socket: other,
            mem: small(4),
            at: 0,
            len: 4,
            all: true,
        },
    );
    let (mut done, start) = (Vec::new(), Instant::now());
    room.driver.poll(&mut done).expect("poll");
    assert!(done.is_empty() && start.elapsed() < Duration::from_secs(1));
    rustix::io::write(&*one, b"data").expect("write");
    while done.is_empty() {
        assert!(start.elapsed() < LONG);
        room.driver.poll(&mut done).expect("poll");
    }
    assert_eq!(done[0].mem.bytes(), b"data");
}

fn churns_a_thousand_operations_of_all_kinds(room: &mut Room) {
    let file = room.file("churn", &pattern(256 * 1024, 5));
    let (one, other) = pair();
    let (mut sent, mut received, mut finished) = (0u64, 0u64, 0u64);
    let (mut done, mut expected) = (Vec::new(), 0u64);
    for round in 0..250u64 {
        let offset = round * 997 % 200_000;
        let socket = Arc::clone(&one);
        room.driver.submit(
            1,
            Op::Send {
                socket,
                mem: Mem::Small(pattern(512, round).into()),
                at: 0,
                len: 512,
            },
        );
        room.driver.submit(
            2,
            Op::Recv {
                socket: Arc::clone(&other),
                mem: small(512),
                at: 0,
                len: 512,
                all: true,
            },
        );
        let read = Op::Read {
            file: Arc::clone(&file),
            offset,
            mem: small(777),
            at: 0,
            len: 777,
        };
        room.driver.submit(1_000 + offset, read);
        let bytes = pattern(1_024, round).into();
        let write = Op::Write {
            file: Arc::clone(&file),
            offset: 300_000 + round * 1_024,
            mem: Mem::Small(bytes),
            at: 0,
            len: 1_024,
        };
        room.driver.submit(3, write);
        expected += 4;
        // Only the socket operations must be over before the next of their kind.
        while sent <= round || received <= round {
            room.driver.wait(Some(LONG), &mut done).expect("wait");
            for done in done.drain(..) {
                finished += 1;
                let bytes = done.result.expect("works");
                match done.token {
                    1 => sent += 1,
                    2 => {
                        assert_eq!(done.mem.bytes(), pattern(512, received));
                        received += 1;
                    }
                    3 => assert_eq!(bytes, 1_024),
                    from => assert_eq!(
                        done.mem.bytes(),
                        &pattern(256 * 1024, 5)[from as usize - 1_000..][..777]
                    ),
                }
            }
        }
    }
    let rest = room.wait_for((expected - finished) as usize);
    assert!(rest.iter().all(|done| done.result.is_ok()));
    let whole = std::fs::read(room.folder.join("churn")).expect("read");
    for round in 0..250 {
        assert_eq!(
            &whole[300_000 + round * 1_024..][..1_024],
            pattern(1_024, round as u64)
        );
    }
}

fn takes_more_operations_than_it_was_made_for(room: &mut Room) {
    let file = room.file("many", &pattern(64 * 1024, 6));
    for token in 0..5_000u64 {
        room.driver.submit(
            token,
            Op::Read {
                file: Arc::clone(&file),
                offset: token,
                mem: small(8),
                at: 0,
                len: 8,
            },
        );
    }
    let mut seen = vec![false; 5_000];
    for done in room.wait_for(5_000) {
        assert_eq!(done.result.expect("read"), 8);
        assert_eq!(
            done.mem.bytes(),
            &pattern(64 * 1024, 6)[done.token as usize..][..8]
        );
        assert!(
            !std::mem::replace(&mut seen[done.token as usize], true),
            "each once"
        );
    }
}

fn is_dropped_with_operations_in_flight(room: &mut Room) {
    let (one, other) = pair();
    let file = room.file("dropped", &pattern(CHUNK, 7));
    let mut taken = Vec::new();
    for token in 0..4 {
        let mem = Mem::Buf(room.pool.take().expect("buf"));
        let read = Op::Read {
            file: Arc::clone(&file),
            offset: 0,
            mem,
            at: HEADROOM,
            len: CHUNK,
        };
        room.driver.submit(token, read);
    }
    let mem = Mem::Buf(room.pool.take().expect("buf"));
    room.driver.submit(
        9,
        Op::Recv {
            socket: other,
            mem,
            at: 0,
            len: CHUNK,
            all: true,
        },
    );
    room.driver.submit(
        10,
        Op::Send {
            socket: Arc::clone(&one),
            mem: small(CHUNK),
            at: 0,
            len: CHUNK,
        },
    );
    room.driver.flush().expect("flush");
    room.driver.submit(
        11,
        Op::Recv {
            socket: Arc::clone(&one),
            mem: small(64),
            at: 0,
            len: 64,
            all: true,
        },
    );
    let start = Instant::now();
    let fresh = Driver::choose(&room.pool, Some(room.driver.kind()))
        .expect("another")
        .0;
    drop(std::mem::replace(&mut room.driver, fresh));
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "healthy files and sockets do not hold up a drop"
    );
    // What comes for the old operations must not land in memory that somebody else owns now.
    while let Some(mut buf) = room.pool.take() {
        buf.whole_mut().fill(0xee);
        taken.push(buf);
    }
    let _ = rustix::net::send(
        &*one,
        &[1u8; 4096],
        rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL,
    );
    std::thread::sleep(Duration::from_millis(20));
    assert!(
        taken
            .iter()
            .all(|buf| buf.whole().iter().all(|byte| *byte == 0xee))
    );
}

fn takes_bufs_of_another_pool(room: &mut Room) {
    let file = room.file("other", &pattern(CHUNK, 8));
    let mut pool = Pool::new(2, CHUNK).expect("pool");
    let mem = Mem::Buf(pool.take().expect("buf"));
    let (result, mem) = room.one(Op::Read {
        file,
        offset: 0,
        mem,
        at: HEADROOM,
        len: CHUNK,
    });
    assert_eq!(result.expect("read"), CHUNK);
    assert_eq!(&mem.bytes()[HEADROOM..], pattern(CHUNK, 8));
    drop(pool);
    assert_eq!(
        mem.bytes()[HEADROOM],
        pattern(1, 8)[0],
        "a buf outlives its pool"
    );
}

fn refuses_a_range_outside_of_the_memory(room: &mut Room) {
    let file = room.file("range", b"contents");
    for (at, len) in [(0, 9), (8, 1), (9, 0), (usize::MAX, 2), (1, usize::MAX)] {
        let file = Arc::clone(&file);
        let submit = || {
            room.driver.submit(
                1,
                Op::Read {
                    file,
                    offset: 0,
                    mem: small(8),
                    at,
                    len,
                },
            )
        };
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(submit));
        assert!(refused.is_err(), "{at}+{len}");
    }
    let (result, _) = room.one(Op::Read {
        file,
        offset: 0,
        mem: small(8),
        at: 0,
        len: 8,
    });
    assert_eq!(result.expect("and goes on"), 8);
}

/// THE table: each of these holds for both engines.
const TABLE: &[(&str, fn(&mut Room))] = &[
    ("writes_then_reads_back", writes_then_reads_back),
    (
        "reads_short_at_the_end_of_a_file",
        reads_short_at_the_end_of_a_file,
    ),
    ("reads_from_the_disk_itself", reads_from_the_disk_itself),
    (
        "says_ebadf_for_a_file_not_open_for_it",
        says_ebadf_for_a_file_not_open_for_it,
    ),
    (
        "sends_and_receives_whole_chunks",
        sends_and_receives_whole_chunks,
    ),
    (
        "receives_what_is_there_unless_all_is_wanted",
        receives_what_is_there_unless_all_is_wanted,
    ),
    ("tells_the_end_of_a_stream", tells_the_end_of_a_stream),
    (
        "a_peer_that_closes_ends_what_is_in_flight",
        a_peer_that_closes_ends_what_is_in_flight,
    ),
    (
        "shutting_down_our_end_ends_what_is_in_flight",
        shutting_down_our_end_ends_what_is_in_flight,
    ),
    ("is_woken_by_another_thread", is_woken_by_another_thread),
    ("no_wake_is_lost_in_a_storm", no_wake_is_lost_in_a_storm),
    ("polls_without_waiting", polls_without_waiting),
    (
        "churns_a_thousand_operations_of_all_kinds",
        churns_a_thousand_operations_of_all_kinds,
    ),
    (
        "takes_more_operations_than_it_was_made_for",
        takes_more_operations_than_it_was_made_for,
    ),
    (
        "is_dropped_with_operations_in_flight",
        is_dropped_with_operations_in_flight,
    ),
    ("takes_bufs_of_another_pool", takes_bufs_of_another_pool),
    (
        "refuses_a_range_outside_of_the_memory",
        refuses_a_range_outside_of_the_memory,
    ),
];

fn run(kind: Kind) {
    for root in [env!("CARGO_TARGET_TMPDIR"), "/dev/shm"] {
        for (name, test) in TABLE {
            println!("{kind:?} in {root}: {name}");
            test(&mut Room::new(kind, root));
        }
    }
}

#[test]
fn plain_calls_keep_the_table() {
    run(Kind::Plain);
}

/// Where io_uring is forbidden there is nothing to test, and `choose` must say so and fall to plain calls.
#[test]
fn io_uring_keeps_the_table() {
    let pool = Pool::new(2, 4096).expect("pool");
    let (driver, reason) = Driver::choose(&pool, None).expect("some engine");
    println!("chosen: {reason}");
    match driver.kind() {
        Kind::Uring => run(Kind::Uring),
        Kind::Plain => assert!(reason.contains("because io_uring failed"), "{reason}"),
    }
}
