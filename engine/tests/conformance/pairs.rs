//! What queue pairs must do, asked of Linux (emulated over a socket) and of the simulator alike.
//!
//! For: messages with completions, one queue of receives, credits' net below it, cuts.
//! In and out: a `World` in; panics with the promise that was broken out.
//! Invariants: a promise is asked of all worlds or of none.
//! Absent on purpose: a device (`make vmtest`), whole jobs.

use std::time::{Duration, Instant};

use engine::platform::{Completion, MESSAGE_HEAD_BYTES, Op, PairIo, Platform, Receives};
use sys::mem::HEADROOM;

use super::{CHUNK, World, done_of};

const AT: usize = HEADROOM - MESSAGE_HEAD_BYTES;

/// The next completion of either of two pairs, the first's first.
fn next<P: Platform>(one: (&mut P, &P::Socket), other: (&mut P, &P::Socket)) -> (bool, Completion) {
    let begun = Instant::now();
    let (one, other) = ((one.0, one.1), (other.0, other.1));
    loop {
        if let Some(completion) = one.0.poll_pair(one.1) {
            return (true, completion);
        }
        if let Some(completion) = other.0.poll_pair(other.1) {
            return (false, completion);
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "a completion comes");
    }
}

fn post<P: Platform>(platform: &mut P, pair: &P::Socket, token: u64, fill: u8, bytes: usize) {
    let mut buf = platform.pool().take().expect("a buf");
    buf.whole_mut()[AT..AT + bytes].fill(fill);
    platform.post_send(pair, token, buf, AT, bytes);
}

pub(crate) fn pairs(world: &impl World) {
    let (mut one, mut other) = (world.platform(), world.platform());
    let (here, there) = world.connection();
    let here = one.pair_up(here, Receives::Words).expect("a pair");
    let there = other.pair_up(there, Receives::Frames).expect("a pair");
    assert!(other.add_receive(&there, 0) && other.add_receive(&there, 0), "receives come from the pool");
    assert!(!other.add_receive(&there, 2), "of which some are left to others");
    assert_eq!(other.pool().free(), 2);

    let sizes = [MESSAGE_HEAD_BYTES + CHUNK, MESSAGE_HEAD_BYTES + 1, MESSAGE_HEAD_BYTES + 4097];
    for (number, bytes) in sizes.into_iter().enumerate() {
        post(&mut one, &here, number as u64, number as u8 + 1, bytes);
    }
    let (mut sent, mut came) = (Vec::new(), 0);
    while came < 3 || sent.len() < 3 {
        match next((&mut one, &here), (&mut other, &there)) {
            (true, Completion::Sent { token, buf, result: Ok(()) }) => {
                sent.push(token);
                one.pool().give(buf);
            }
            (false, Completion::Frame { buf, bytes }) => {
                assert_eq!(bytes, sizes[came], "a message keeps its bounds");
                assert!(buf.whole()[AT..AT + bytes].iter().all(|&byte| usize::from(byte) == came + 1), "and its bytes");
                came += 1;
                other.pool().give(buf);
                assert!(came > 1 || other.add_receive(&there, 0), "the third has its receive by now");
            }
            (of_one, completion) => panic!("{of_one}: {completion:?}"),
        }
    }
    assert_eq!((sent, one.pool().free()), (vec![0, 1, 2], 4), "bufs come home, in order");
    other.post_word(&there, *b"a credit");
    let (of_one, word) = next((&mut one, &here), (&mut other, &there));
    assert!(of_one && matches!(&word, Completion::Word(word) if word == b"a credit"), "{word:?}");

    // A message without a receive waits for one, and is counted.
    let before = other.pair_counts(&there).not_ready;
    post(&mut one, &here, 9, 9, MESSAGE_HEAD_BYTES + CHUNK);
    for _ in 0..100 {
        if let Some(Completion::Sent { buf, .. }) = one.poll_pair(&here) {
            one.pool().give(buf);
        }
        assert!(other.poll_pair(&there).is_none(), "nothing comes without a receive");
    }
    assert_eq!(other.pair_counts(&there).not_ready, before + 1);
    assert!(other.add_receive(&there, 0));
    other.submit(5, Op::Readable { socket: there.clone() });
    other.flush();
    let done = done_of(&mut other, 5);
    assert!(matches!(done.result, Ok(0)) && done.mem.bytes().is_empty(), "the descriptor says that it goes on");
    loop {
        match next((&mut one, &here), (&mut other, &there)) {
            (true, Completion::Sent { buf, .. }) => one.pool().give(buf),
            (false, Completion::Frame { buf, .. }) => break other.pool().give(buf),
            (of_one, completion) => panic!("{of_one}: {completion:?}"),
        }
    }

    cut(&mut one, &here, &mut other, &there);
}

/// A cut gives everything back, and ends the other side, too.
fn cut<P: Platform>(one: &mut P, here: &P::Socket, other: &mut P, there: &P::Socket) {
    let free = one.pool().free();
    (0..free as u64).for_each(|token| post(one, here, token, 1, MESSAGE_HEAD_BYTES + CHUNK));
    one.cut(here);
    one.submit(6, Op::Readable { socket: here.clone() });
    one.flush();
    done_of(one, 6);
    loop {
        match one.poll_pair(here) {
            Some(Completion::Sent { buf, .. }) => one.pool().give(buf),
            Some(Completion::Down(why)) => break assert!(why.is_some(), "we cut it"),
            other => panic!("{other:?}"),
        }
    }
    let begun = Instant::now();
    loop {
        match other.poll_pair(there) {
            Some(Completion::Down(_)) => break,
            Some(Completion::Frame { buf, .. }) => other.pool().give(buf),
            Some(completion) => panic!("{completion:?}"),
            // One whose next message has no receive waits for that first.
            None => {
                let _ = other.add_receive(there, 0);
                assert!(begun.elapsed() < Duration::from_secs(10), "the other side learns of it");
            }
        }
    }
    one.pair_over(here, 0);
    let _ = other.add_receive(there, 0);
    other.pair_over(there, 1);
    assert_eq!((one.pool().free(), other.pool().free()), (4, 4), "every buf is home, receives as well");
}
