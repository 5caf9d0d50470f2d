//! Messages from memory to memory over one queue pair of a device, nothing else: what the rail's lowest layer carries, beside `ib_send_bw`.
//!
//! In: `queue_pairs serve IP:PORT SIZE DEPTH` at one host (one client, then it ends), `queue_pairs send IP:PORT SIZE DEPTH COUNT [each]` at the other.
//! Out: `messages`, `megabytes_per_second`, `regions`, `registered_bytes` of the sender, and of the receiver whether every message held what was sent.
//! `each`: memory is registered for each message, and not once.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use sys::event::{Interest, poll};
use sys::mem::{HEADROOM, Pool};
use sys::rdma::{Adapter, Completion, Connection, Link, PairListener, Receives, Registration};

const HEAD: usize = 128;
const AT: usize = HEADROOM - HEAD;
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words.get(at).and_then(|it| it.parse().ok()).ok_or(io::ErrorKind::InvalidInput);
    let to: SocketAddr = words.get(1).and_then(|it| it.parse().ok()).ok_or(io::ErrorKind::InvalidInput)?;
    let (size, depth) = (number(2)?, number(3)?);
    let how = if words.iter().any(|it| it == "each") { Registration::Each } else { Registration::Whole };
    match words[0].as_str() {
        "serve" => serve(to, size, depth, how),
        "send" => send(to, (size, depth, number(4)?), how),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Sleeps until there may be a completion.
fn wait(pair: &OwnedFd, begun: Instant) -> io::Result<()> {
    if begun.elapsed() > PATIENCE {
        return Err(io::ErrorKind::TimedOut.into());
    }
    poll(&[(pair.as_fd(), Interest::Read)], Some(Duration::from_secs(1))).map(drop)
}

fn serve(at: SocketAddr, size: usize, depth: usize, how: Registration) -> io::Result<()> {
    let door = PairListener::open(at)?;
    println!("listening");
    let request = loop {
        match door.next()? {
            Some(request) => break request,
            None => poll(&[(door.as_fd(), Interest::Read)], None).map(drop)?,
        }
    };
    assert_eq!(request.hello, [7; 52], "what was said with the request");
    let connection = Connection::Device(Box::new(request.accept()));
    let mut pool = Pool::new(2 * depth, size)?;
    let mut adapter = Adapter::registering(&connection, &pool, HEAD, how)?;
    let pair = adapter.attach(connection, Receives::Frames)?;
    let (mut told, mut came, mut wrong, mut begun) = (0u64, 0u64, 0u64, Instant::now());
    for _ in 0..2 * depth {
        adapter.post_receive(pool.take().expect("as many"));
    }
    told += 2 * depth as u64;
    adapter.post_word(&pair, told.to_le_bytes());
    let mut fresh = 0;
    loop {
        match adapter.poll(&pair) {
            None => wait(&pair, begun)?,
            Some(Completion::Frame { buf, bytes }) => {
                let head = buf.whole()[AT..].first_chunk().map(|it| u64::from_le_bytes(*it));
                let is_whole = bytes == HEAD + size && buf.payload()[size - 1] == came as u8;
                wrong += u64::from(head != Some(came) || !is_whole);
                came += 1;
                fresh += 1;
                adapter.post_receive(buf);
                if fresh >= depth / 2 {
                    told += fresh as u64;
                    fresh = 0;
                    adapter.post_word(&pair, told.to_le_bytes());
                }
                begun = Instant::now();
            }
            Some(Completion::Down(why)) => {
                println!("messages {came} wrong {wrong} end {why:?}");
                break;
            }
            Some(other) => panic!("{other:?}"),
        }
    }
    adapter.detach(&pair, |buf| pool.give(buf));
    while let Some(buf) = adapter.take_receive() {
        pool.give(buf);
    }
    assert_eq!(pool.free(), 2 * depth, "every buf came home");
    let counts = adapter.counts();
    println!("regions {} registered_bytes {}", counts.regions, counts.registered_bytes);
    Ok(())
}

fn send(to: SocketAddr, (size, depth, count): (usize, usize, usize), how: Registration) -> io::Result<()> {
    let link = Link::dial(to, None, None, [7; 52], PATIENCE)?;
    println!("{:?}", link.facts());
    let connection = Connection::Device(Box::new(link));
    let mut pool = Pool::new(depth, size)?;
    let mut adapter = Adapter::registering(&connection, &pool, HEAD, how)?;
    let pair = adapter.attach(connection, Receives::Words)?;
    let (mut posted, mut sent, mut credit) = (0u64, 0usize, 0u64);
    let (mut begun, mut alive) = (None, Instant::now());
    while sent < count {
        while posted < credit.min(count as u64)
            && let Some(mut buf) = pool.take()
        {
            begun.get_or_insert_with(Instant::now);
            buf.whole_mut()[AT..AT + 8].copy_from_slice(&posted.to_le_bytes());
            buf.payload_mut()[size - 1] = posted as u8;
            adapter.post_send(&pair, posted, buf, AT, HEAD + size);
            posted += 1;
        }
        match adapter.poll(&pair) {
            None => wait(&pair, alive)?,
            Some(Completion::Sent { token, buf, result }) => {
                result?;
                assert_eq!(token, sent as u64, "in their order");
                pool.give(buf);
                sent += 1;
                alive = Instant::now();
            }
            Some(Completion::Word(word)) => credit = u64::from_le_bytes(word),
            Some(Completion::Down(why)) => return Err(why.unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())),
            Some(other) => panic!("{other:?}"),
        }
    }
    let seconds = begun.map_or(0.0, |it| it.elapsed().as_secs_f64());
    println!("messages {sent} megabytes_per_second {:.2}", (sent * (HEAD + size)) as f64 / seconds / 1e6);
    adapter.detach(&pair, |buf| pool.give(buf));
    assert_eq!(pool.free(), depth, "every buf came home");
    let counts = adapter.counts();
    println!("regions {} registered_bytes {}", counts.regions, counts.registered_bytes);
    Ok(())
}
