//! Queue pairs keep what they promise, here those over a socket.
//!
//! In: two adapters, or an adapter and raw bytes at its socket. Out: messages whole and in order, every buf back, whatever was cut.

use std::io::Write;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sys::event::{Interest, poll};
use sys::mem::{HEADROOM, Pool};
use sys::rdma::{Adapter, Completion, Connection, Receives};

const CHUNK: usize = 64 << 10;
const HEAD: usize = 128;
const AT: usize = HEADROOM - HEAD;

struct Side {
    pool: Pool,
    adapter: Adapter,
}

impl Side {
    fn new(bufs: usize) -> Side {
        let pool = Pool::new(bufs, CHUNK).expect("memory");
        let (one, _other) = UnixStream::pair().expect("a pair");
        let adapter = Adapter::new(&Connection::Emulated(one.into()), &pool, HEAD).expect("no device");
        Side { pool, adapter }
    }

    fn attach(&mut self, socket: impl Into<OwnedFd>, receives: Receives) -> Arc<OwnedFd> {
        self.adapter.attach(Connection::Emulated(socket.into()), receives).expect("descriptors")
    }

    fn receive(&mut self, count: usize) {
        for _ in 0..count {
            let buf = self.pool.take().expect("a buf");
            self.adapter.post_receive(buf);
        }
    }

    /// A message of so many bytes, all of them `fill`.
    fn send(&mut self, pair: &OwnedFd, token: u64, fill: u8, bytes: usize) {
        let mut buf = self.pool.take().expect("a buf");
        buf.whole_mut()[AT..AT + bytes].fill(fill);
        self.adapter.post_send(pair, token, buf, AT, bytes);
    }

    /// All completions there are.
    fn completions(&mut self, pair: &OwnedFd) -> Vec<Completion> {
        std::iter::from_fn(|| self.adapter.poll(pair)).collect()
    }
}

fn prefix(len: u32) -> [u8; 8] {
    let mut prefix = [0; 8];
    prefix[..4].copy_from_slice(&len.to_le_bytes());
    prefix[4..].copy_from_slice(&(!len).to_le_bytes());
    prefix
}

/// A message's bytes on the emulated wire.
fn wire(len: u32, fill: u8) -> Vec<u8> {
    [&prefix(len)[..], &vec![fill; len as usize]].concat()
}

fn is_readable(pair: &OwnedFd) -> bool {
    poll(&[(pair.as_fd(), Interest::Read)], Some(Duration::ZERO)).expect("poll")[0].read
}

/// Both ends' completions until `count` messages came.
fn exchange(
    one: &mut Side,
    here: &OwnedFd,
    other: &mut Side,
    there: &OwnedFd,
    count: usize,
) -> (Vec<u64>, Vec<Vec<u8>>) {
    let (mut sent, mut came, begun) = (Vec::new(), Vec::new(), Instant::now());
    while came.len() < count || sent.len() < count {
        assert!(begun.elapsed() < Duration::from_secs(10), "{} sent, {} came", sent.len(), came.len());
        for completion in one.completions(here) {
            let Completion::Sent { token, buf, result: Ok(()) } = completion else { panic!("{completion:?}") };
            sent.push(token);
            one.pool.give(buf);
        }
        for completion in other.completions(there) {
            let Completion::Frame { buf, bytes } = completion else { panic!("{completion:?}") };
            came.push(buf.whole()[AT..AT + bytes].to_vec());
            other.pool.give(buf);
        }
    }
    (sent, came)
}

#[test]
fn messages_come_whole_in_order_and_each_buf_comes_home_with_its_completion() {
    let (mut one, mut other) = (Side::new(8), Side::new(8));
    let (a, b) = UnixStream::pair().expect("a pair");
    let (here, there) = (one.attach(a, Receives::Words), other.attach(b, Receives::Frames));
    other.receive(8);
    let sizes = [1, HEAD, HEAD + 1, HEAD + CHUNK, 5000, HEAD + CHUNK, 77, HEAD + CHUNK - 1];
    for (number, bytes) in sizes.into_iter().enumerate() {
        one.send(&here, number as u64, number as u8, bytes);
    }
    assert_eq!(one.pool.free(), 0, "what was posted belongs to the adapter");
    let (sent, came) = exchange(&mut one, &here, &mut other, &there, 8);
    assert_eq!(sent, (0..8).collect::<Vec<u64>>());
    for (number, bytes) in sizes.into_iter().enumerate() {
        assert!(came[number] == vec![number as u8; bytes], "message {number} of {bytes} bytes");
    }
    assert_eq!((one.pool.free(), other.pool.free()), (8, 8));
    other.adapter.post_word(&there, *b"8 credit");
    let words = one.completions(&here);
    assert!(matches!(&words[..], [Completion::Word(word)] if word == b"8 credit"), "{words:?}");
    assert_eq!(other.adapter.counts().not_ready, 0, "each message found a receive");
    assert_eq!(one.adapter.counts().regions, 1, "the pool was registered once");
}

#[test]
fn a_message_that_finds_no_receive_waits_is_counted_once_and_lets_the_descriptor_sleep() {
    let (mut one, mut other) = (Side::new(4), Side::new(4));
    let (a, b) = UnixStream::pair().expect("a pair");
    let (here, there) = (one.attach(a, Receives::Words), other.attach(b, Receives::Frames));
    one.send(&here, 1, 7, 1000);
    assert!(is_readable(&there), "something is there");
    for _ in 0..3 {
        assert!(other.completions(&there).is_empty());
    }
    assert_eq!(other.adapter.counts().not_ready, 1);
    assert!(!is_readable(&there), "who waits for a receive is not woken by its socket");
    other.receive(1);
    assert!(is_readable(&there), "a receive that was posted is");
    let (_, came) = exchange(&mut one, &here, &mut other, &there, 1);
    assert!(came[0] == vec![7; 1000]);
    assert!(!is_readable(&there));
}

#[test]
fn pairs_share_one_queue_of_receives_first_posted_first_used() {
    let mut other = Side::new(4);
    let (mut far, mut pairs) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let (a, b) = UnixStream::pair().expect("a pair");
        far.push(a);
        pairs.push(other.attach(b, Receives::Frames));
    }
    other.receive(2);
    far[0].write_all(&wire(10, 1)).expect("room");
    far[1].write_all(&wire(20, 2)).expect("room");
    far[0].write_all(&wire(30, 3)).expect("room");
    let second = other.completions(&pairs[1]);
    let first = other.completions(&pairs[0]);
    assert!(matches!(&second[..], [Completion::Frame { bytes: 20, .. }]), "{second:?}");
    assert!(matches!(&first[..], [Completion::Frame { bytes: 10, .. }]), "{first:?}");
    assert_eq!((other.adapter.receives(), other.adapter.counts().not_ready), (0, 1));
    other.receive(1);
    let third = other.completions(&pairs[0]);
    assert!(matches!(&third[..], [Completion::Frame { bytes: 30, .. }]), "{third:?}");
}

#[test]
fn a_cut_at_any_byte_gives_no_part_of_a_message_and_every_receive_back() {
    let stream = [wire(100, 1), wire(300, 2)].concat();
    for cut in 0..=stream.len() {
        let mut other = Side::new(2);
        let (mut a, b) = UnixStream::pair().expect("a pair");
        let there = other.attach(b, Receives::Frames);
        other.receive(2);
        a.write_all(&stream[..cut]).expect("room");
        a.shutdown(Shutdown::Write).expect("connected");
        let mut whole = 0;
        let mut last = None;
        for completion in other.completions(&there) {
            assert!(last.is_none(), "nothing after the end");
            match completion {
                Completion::Frame { buf, bytes } => {
                    assert_eq!(bytes, [100, 300][whole]);
                    whole += 1;
                    other.pool.give(buf);
                }
                Completion::Down(why) => last = Some(why.is_none()),
                other => panic!("{other:?}"),
            }
        }
        let is_between = [0, 108, stream.len()].contains(&cut);
        assert_eq!(last, Some(is_between), "{cut}");
        assert_eq!(whole, usize::from(cut >= 108) + usize::from(cut == stream.len()), "{cut}");
        other.adapter.detach(&there, |_| panic!("all was polled"));
        while let Some(buf) = other.adapter.take_receive() {
            other.pool.give(buf);
        }
        assert_eq!(other.pool.free(), 2, "{cut}");
    }
}

#[test]
fn a_pair_that_dies_flushes_its_sends_with_errors_in_their_order() {
    let mut one = Side::new(8);
    let (a, b) = UnixStream::pair().expect("a pair");
    let here = one.attach(a, Receives::Words);
    (0..7).for_each(|token| one.send(&here, token, 1, HEAD + CHUNK));
    one.adapter.cut(&here);
    one.send(&here, 7, 1, 10);
    let mut tokens = Vec::new();
    let mut failed = 0;
    let mut down = 0;
    for completion in one.completions(&here) {
        match completion {
            Completion::Sent { token, buf, result } => {
                assert_eq!(down, 0, "nothing after the end");
                failed += u32::from(result.is_err());
                tokens.push(token);
                one.pool.give(buf);
            }
            Completion::Down(why) => {
                assert!(why.is_some(), "it was cut");
                down += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((tokens, down), ((0..8).collect::<Vec<u64>>(), 1));
    assert!(failed >= 3, "a socket does not hold 448 KiB: {failed}");
    assert_eq!(one.pool.free(), 8);
    one.adapter.detach(&here, |_| panic!("all was polled"));
    assert!(!one.adapter.has(&here));
    drop(b);
}

#[test]
fn a_message_that_no_receive_holds_or_that_is_none_ends_the_pair() {
    let long = (HEAD + CHUNK + 1) as u32;
    let cases: [(&[u8], Receives); 5] = [
        (&prefix(long), Receives::Frames),
        (&prefix(0), Receives::Frames),
        (&[5, 0, 0, 0, 0xf8, 255, 255, 255], Receives::Frames),
        (&prefix(7), Receives::Words),
        (&prefix(u32::MAX), Receives::Words),
    ];
    for (bytes, receives) in cases {
        let mut other = Side::new(2);
        let (mut a, b) = UnixStream::pair().expect("a pair");
        let there = other.attach(b, receives);
        other.receive(2);
        a.write_all(bytes).expect("room");
        let come = other.completions(&there);
        assert!(matches!(&come[..], [Completion::Down(Some(_))]), "{bytes:?}: {come:?}");
        assert_eq!(other.adapter.receives(), 2);
    }
}
