//! What sockets for datagrams must do, asked of Linux and of the simulator alike.
//!
//! For: bursts out and in, and the op that says that something is there.
//! In and out: a `World` in; panics with the promise that was broken out.
//! Invariants: a promise is asked of all worlds or of none.
//! Absent on purpose: loss, reordering (the simulator's own), whole jobs.

use std::io::ErrorKind;

use engine::platform::{Op, PacketIo, Platform, StreamIo};

use super::pair::noise;
use super::{World, done_of};

/// Waits until something is there, then takes all of it, packet by packet.
fn take_packets<P: Platform>(platform: &mut P, socket: &P::Socket) -> Vec<Vec<u8>> {
    platform.submit(9, Op::Readable { socket: socket.clone() });
    platform.flush();
    let done = done_of(platform, 9);
    assert!(matches!(done.result, Ok(0)) && done.mem.bytes().is_empty(), "it only says that there is something");
    let mut into = vec![0; 1 << 16];
    let mut packets = Vec::new();
    while let Ok(arrived) = platform.recv_burst(socket, &mut into) {
        packets.extend(arrived.packets().map(|range| into[range].to_vec()));
    }
    packets
}

pub(crate) fn datagrams(world: &impl World) {
    let (mut one, mut other) = (world.platform(), world.platform());
    let (here, there) = world.path();
    let mut into = [0; 100];
    let dry = other.recv_burst(&there, &mut into).expect_err("nothing was sent").kind();
    assert_eq!(dry, ErrorKind::WouldBlock, "a dry socket says so and does not wait");

    let payload = noise(10 * 1000 + 1, 5);
    let heads: Vec<[u8; 32]> = (0..11).map(|number| [number; 32]).collect();
    let whole: Vec<Vec<u8>> =
        heads.iter().zip(payload.chunks(1000)).map(|(head, part)| [&head[..], part].concat()).collect();
    assert_eq!(one.send_burst(&here, &heads, &payload, 1000).expect("room"), 11, "a burst is taken whole");
    let mut came = take_packets(&mut other, &there);
    while came.len() < 11 {
        came.append(&mut take_packets(&mut other, &there));
    }
    assert!(came == whole, "each packet is its head and its part, the last one is shorter");

    let sealed = whole.concat();
    assert_eq!(other.send_sealed(&there, &sealed, 1032).expect("room"), 11, "the other way, too");
    let mut came = take_packets(&mut one, &here);
    while came.len() < 11 {
        came.append(&mut take_packets(&mut one, &here));
    }
    assert!(came == whole, "packets that stand one after another keep their bounds");

    // A cut ends the own wait, and nothing goes any more.
    one.submit(4, Op::Readable { socket: here.clone() });
    one.flush();
    one.cut(&here);
    done_of(&mut one, 4);
    assert!(one.send_sealed(&here, &sealed, 1032).is_err(), "nothing goes on a path that was cut");
}
