//! The ring itself: wakes, many operations, its end. See `main.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sys::mem::{HEADROOM, Mem};
use sys::ring::{Driver, Op};

use crate::{CHUNK, LONG, Room, pair, pattern, small};

pub(crate) fn is_woken_by_another_thread(room: &mut Room) {
    let waker = room.driver.waker();
    for _ in 0..50 {
        let waker = waker.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(1));
            waker.wake();
        });
        let (mut done, start) = (Vec::new(), Instant::now());
        room.driver.wait(Some(LONG), &mut done).expect("wait");
        assert!(done.is_empty() && start.elapsed() < LONG / 2, "a wake ends the wait");
        thread.join().expect("thread");
    }
    // A wake before the wait counts, and many are one.
    (0..10).for_each(|_| waker.wake());
    let start = Instant::now();
    room.driver.wait(None, &mut Vec::new()).expect("wait");
    room.driver.wait(Some(Duration::from_millis(20)), &mut Vec::new()).expect("wait");
    assert!(start.elapsed() >= Duration::from_millis(19) && start.elapsed() < LONG);
    // And seen by `poll`, it does not end a later wait twice, but the next wake does.
    waker.wake();
    room.driver.poll(&mut Vec::new()).expect("poll");
    waker.wake();
    room.driver.wait(Some(LONG), &mut Vec::new()).expect("wait");
}

pub(crate) fn no_wake_is_lost_in_a_storm(room: &mut Room) {
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

pub(crate) fn polls_without_waiting(room: &mut Room) {
    let (one, other) = pair();
    room.driver.submit(1, Op::Recv { socket: other, mem: small(4), at: 0, len: 4, all: true });
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

pub(crate) fn churns_a_thousand_operations_of_all_kinds(room: &mut Room) {
    let file = room.file("churn", &pattern(256 * 1024, 5));
    let (one, other) = pair();
    let (mut sent, mut received, mut finished) = (0u64, 0u64, 0u64);
    let (mut done, mut expected) = (Vec::new(), 0u64);
    for round in 0..250u64 {
        let offset = round * 997 % 200_000;
        let socket = Arc::clone(&one);
        room.driver.submit(1, Op::Send { socket, mem: Mem::Small(pattern(512, round).into()), at: 0, len: 512 });
        room.driver.submit(2, Op::Recv { socket: Arc::clone(&other), mem: small(512), at: 0, len: 512, all: true });
        let read = Op::Read { file: Arc::clone(&file), offset, mem: small(777), at: 0, len: 777, uncached: false };
        room.driver.submit(1_000 + offset, read);
        let bytes = pattern(1_024, round).into();
        let write = Op::Write {
            file: Arc::clone(&file),
            offset: 300_000 + round * 1_024,
            mem: Mem::Small(bytes),
            at: 0,
            len: 1_024,
            uncached: false,
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
                    from => assert_eq!(done.mem.bytes(), &pattern(256 * 1024, 5)[from as usize - 1_000..][..777]),
                }
            }
        }
    }
    let rest = room.wait_for((expected - finished) as usize);
    assert!(rest.iter().all(|done| done.result.is_ok()));
    let whole = std::fs::read(room.folder.join("churn")).expect("read");
    for round in 0..250 {
        assert_eq!(&whole[300_000 + round * 1_024..][..1_024], pattern(1_024, round as u64));
    }
}

pub(crate) fn takes_more_operations_than_it_was_made_for(room: &mut Room) {
    let file = room.file("many", &pattern(64 * 1024, 6));
    for token in 0..5_000u64 {
        room.driver.submit(
            token,
            Op::Read { file: Arc::clone(&file), offset: token, mem: small(8), at: 0, len: 8, uncached: false },
        );
    }
    let mut seen = vec![false; 5_000];
    for done in room.wait_for(5_000) {
        assert_eq!(done.result.expect("read"), 8);
        assert_eq!(done.mem.bytes(), &pattern(64 * 1024, 6)[done.token as usize..][..8]);
        assert!(!std::mem::replace(&mut seen[done.token as usize], true), "each once");
    }
}

pub(crate) fn is_dropped_with_operations_in_flight(room: &mut Room) {
    let (one, other) = pair();
    let file = room.file("dropped", &pattern(CHUNK, 7));
    let mut taken = Vec::new();
    for token in 0..4 {
        let mem = Mem::Buf(room.pool.take().expect("buf"));
        let read = Op::Read { file: Arc::clone(&file), offset: 0, mem, at: HEADROOM, len: CHUNK, uncached: false };
        room.driver.submit(token, read);
    }
    let mem = Mem::Buf(room.pool.take().expect("buf"));
    room.driver.submit(9, Op::Recv { socket: other, mem, at: 0, len: CHUNK, all: true });
    room.driver.submit(10, Op::Send { socket: Arc::clone(&one), mem: small(CHUNK), at: 0, len: CHUNK });
    room.driver.flush().expect("flush");
    room.driver.submit(11, Op::Recv { socket: Arc::clone(&one), mem: small(64), at: 0, len: 64, all: true });
    let start = Instant::now();
    let fresh = Driver::choose(&room.pool, Some(room.driver.kind())).expect("another").0;
    drop(std::mem::replace(&mut room.driver, fresh));
    assert!(start.elapsed() < Duration::from_secs(1), "healthy files and sockets do not hold up a drop");
    // What comes for the old operations must not land in memory that somebody else owns now.
    while let Some(mut buf) = room.pool.take() {
        buf.whole_mut().fill(0xee);
        taken.push(buf);
    }
    let _ = rustix::net::send(&*one, &[1u8; 4096], rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL);
    std::thread::sleep(Duration::from_millis(20));
    assert!(taken.iter().all(|buf| buf.whole().iter().all(|byte| *byte == 0xee)));
}
