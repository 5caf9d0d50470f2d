//! Bursts over loopback: what is sent is what comes, in whichever way it is sent, of both families.
//!
//! In: packets of all sizes and numbers. Out: the same packets, their bounds, marks and senders; the kernel's errors.
//! Absent on purpose: interfaces with limits of their own (see `udp_netns.rs`), speed (`longhaul bench net`).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use sys::event::{Interest, poll};
use sys::udp::{self, Arrived, HEAD_BYTES, How, Splicer};

const LONG: Duration = Duration::from_secs(20);

fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    (0..bytes as u64).map(|at| ((at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn heads(count: usize) -> Vec<[u8; HEAD_BYTES]> {
    (0..count).map(|number| [number as u8; HEAD_BYTES]).collect()
}

/// Two connected sockets on an address; none where the host has no such family.
fn pair(ip: &str) -> Option<(OwnedFd, OwnedFd)> {
    let here = || udp::bind(SocketAddr::new(ip.parse().expect("address"), 0), false);
    let (one, other) = (here().ok()?, here().ok()?);
    udp::connect(&one, udp::local_addr(&other).expect("address")).expect("connect");
    udp::connect(&other, udp::local_addr(&one).expect("address")).expect("connect");
    Some((one, other))
}

fn pairs() -> Vec<(OwnedFd, OwnedFd)> {
    let found: Vec<_> = ["127.0.0.1", "::1", "::ffff:127.0.0.1"].into_iter().filter_map(pair).collect();
    assert!(!found.is_empty(), "no loopback at all");
    found
}

fn wait(fd: &OwnedFd) {
    assert!(poll(&[(fd.as_fd(), Interest::Read)], Some(LONG)).expect("poll")[0].any(), "nothing came");
}

/// So many packets, however they were joined, in order.
fn receive(fd: &OwnedFd, count: usize) -> Vec<Vec<u8>> {
    let (mut into, mut packets) = (vec![0; 65_535], Vec::new());
    while packets.len() < count {
        wait(fd);
        let arrived = udp::recv_burst(fd, &mut into).expect("readable");
        assert!(!arrived.marked && arrived.bytes > 0, "{arrived:?}");
        packets.extend(arrived.packets().map(|range| into[range].to_vec()));
    }
    assert_eq!(udp::recv_burst(fd, &mut into).expect_err("no more").kind(), io::ErrorKind::WouldBlock);
    packets
}

#[test]
fn heads_and_slices_come_as_packets_in_order() {
    for (one, other) in pairs() {
        // On loopback's MTU of 65,536 also single packets that no wire carries.
        for (count, each, last) in [
            (1, 1, 1),
            (1, 1440, 700),
            (2, 1440, 1),
            (45, 1440, 1440),
            (64, 100, 99),
            (7, 8900, 8900),
            (1, 60_000, 60_000),
        ] {
            let (heads, payload) = (heads(count), pattern((count - 1) * each + last, 3));
            assert_eq!(udp::send_burst(&one, &heads, &payload, each).expect("send"), count);
            let packets = receive(&other, count);
            for ((packet, head), part) in packets.iter().zip(&heads).zip(payload.chunks(each)) {
                assert_eq!((&packet[..HEAD_BYTES], &packet[HEAD_BYTES..]), (&head[..], part), "{count} of {each}");
            }
            assert_eq!(packets.len(), count);
        }
    }
}

#[test]
fn every_way_of_sending_sends_the_same() {
    for (one, other) in pairs() {
        for how in [How::Segmented, How::Batched, How::Single] {
            for (bytes, each) in [(100, 100), (99, 100), (40_000, 1000), (40_001, 1000), (65_000, 1472), (6400, 100)] {
                let sent = pattern(bytes, 5);
                let count = bytes.div_ceil(each);
                assert_eq!(udp::send_by(&one, how, &sent, each).expect("send"), count, "{how:?}");
                let packets = receive(&other, count);
                assert!(packets[..count - 1].iter().all(|packet| packet.len() == each));
                assert_eq!(packets.concat(), sent, "{how:?}, {bytes} by {each}");
            }
        }
    }
}

#[test]
fn a_refused_offload_is_sent_in_another_way() {
    let (one, other) = pair("127.0.0.1").expect("IPv4");
    // A socket that sends without checksums is refused segmentation (net/ipv4/udp.c, udp_send_skb): EINVAL.
    let on = 1i32;
    let (fd, size) = (std::os::fd::AsRawFd::as_raw_fd(&one), size_of::<i32>() as libc::socklen_t);
    // SAFETY: the value is a local of the size that is given.
    let set = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, (&raw const on).cast(), size) };
    assert_eq!(set, 0);
    // Packets by themselves take more room than bursts.
    udp::size_buffers(&other, 4 << 20, 0).expect("buffers");
    for (count, each) in [(1, 1000), (2, 1000), (45, 1440), (100, 640)] {
        let (heads, payload) = (heads(count), pattern(count * each - 1, 11));
        assert_eq!(udp::send_burst(&one, &heads, &payload, each).expect("send"), count);
        let packets = receive(&other, count);
        assert!(packets[..count - 1].iter().all(|packet| packet.len() == HEAD_BYTES + each));
        assert_eq!(packets.iter().flat_map(|packet| &packet[HEAD_BYTES..]).copied().collect::<Vec<_>>(), payload);
        assert_eq!(udp::send_sealed(&one, &payload, each).expect("send"), count);
        assert_eq!(receive(&other, count).concat(), payload);
    }
}

#[test]
fn an_address_is_shared_only_when_both_want_it() {
    let one = udp::bind("127.0.0.1:0".parse().expect("address"), true).expect("bind");
    let addr = udp::local_addr(&one).expect("address");
    assert!(udp::bind(addr, true).is_ok());
    assert_eq!(udp::bind(addr, false).expect_err("taken").raw_os_error(), Some(libc::EADDRINUSE));
    assert_eq!(udp::packet_bytes_max(&one).expect_err("no route").raw_os_error(), Some(libc::ENOTCONN));
}

#[test]
fn more_than_one_call_carries_is_several_calls() {
    for (one, other) in pairs() {
        udp::size_buffers(&other, 4 << 20, 0).expect("buffers");
        // 64 packets are the most, and 65,507 bytes are.
        for (count, each) in [(130, 500), (90, 1440)] {
            let (heads, payload) = (heads(count), pattern(count * each - 1, 7));
            assert_eq!(udp::send_burst(&one, &heads, &payload, each).expect("send"), count);
            let packets = receive(&other, count);
            assert_eq!(packets.iter().flat_map(|packet| &packet[HEAD_BYTES..]).copied().collect::<Vec<_>>(), payload);
        }
    }
}

#[test]
fn bursts_stay_joined_and_several_come_in_one_call() {
    for (one, other) in pairs() {
        udp::size_buffers(&other, 4 << 20, 0).expect("buffers");
        let can = udp::offload(&one);
        let bursts = [(44 * 1472, 1472), (10_000, 1000), (500, 500)];
        for (bytes, each) in bursts {
            assert_eq!(udp::send_sealed(&one, &pattern(bytes, each as u64), each).expect("send"), bytes.div_ceil(each));
        }
        let (mut into, mut arrived) = (vec![0; 4 << 16], [Arrived::default(); 8]);
        wait(&other);
        let came = udp::recv_bursts(&other, &mut into, 1 << 16, &mut arrived).expect("readable");
        assert!((1..=4).contains(&came), "no more than there is memory for: {came}");
        let peer = udp::local_addr(&one).expect("address");
        assert_eq!(arrived[0].from, Some(peer));
        if can.segments_out && can.segments_in {
            // Loopback hands a burst over as it was sent.
            assert_eq!(came, 3);
            for (number, (bytes, each)) in bursts.into_iter().enumerate() {
                assert_eq!((arrived[number].bytes, arrived[number].segment), (bytes, each));
                assert_eq!(arrived[number].packets().count(), bytes.div_ceil(each));
                let at = number << 16;
                assert_eq!(into[at..at + bytes], pattern(bytes, each as u64));
            }
        }
    }
}

#[test]
fn short_memory_loses_whole_packets() {
    let (one, other) = pair("127.0.0.1").expect("IPv4");
    udp::send_sealed(&one, &pattern(5000, 1), 1000).expect("send");
    let mut into = vec![0; 2500];
    wait(&other);
    let arrived = udp::recv_burst(&other, &mut into).expect("readable");
    if arrived.segment == 1000 && udp::offload(&other).segments_in {
        assert_eq!((arrived.bytes, arrived.packets().count()), (2000, 2));
    }
    udp::send_sealed(&one, &pattern(900, 1), 900).expect("send");
    wait(&other);
    let arrived = udp::recv_burst(&other, &mut into[..100]).expect("readable");
    assert_eq!(arrived.packets().map(|range| range.len()).collect::<Vec<_>>(), [100]);
}

#[test]
fn marks_are_seen_and_not_mixed() {
    for (one, other) in pairs() {
        let mark = |ecn: u8| {
            rustix::net::sockopt::set_ip_tos(&one, ecn).expect("IP_TOS");
            let _ = rustix::net::sockopt::set_ipv6_tclass(&one, ecn.into());
        };
        let mut into = vec![0; 65_535];
        for (ecn, marked) in [(0b11, true), (0b10, false), (0b01, false), (0, false), (0b11, true)] {
            mark(ecn);
            assert_eq!(udp::send_sealed(&one, &[0; 5000], 1000).expect("send"), 5);
            let mut packets = 0;
            while packets < 5 {
                wait(&other);
                let arrived = udp::recv_burst(&other, &mut into).expect("readable");
                assert_eq!(arrived.marked, marked, "{ecn:#b}");
                packets += arrived.packets().count();
            }
        }
    }
}

#[test]
fn packets_leave_ect_0_and_unfragmented() {
    let (one, _other) = pair("127.0.0.1").expect("IPv4");
    assert_eq!(rustix::net::sockopt::ip_tos(&one).expect("IP_TOS"), 0b10);
    if let Some((one, _other)) = pair("::1") {
        assert_eq!(rustix::net::sockopt::ipv6_tclass(&one).expect("IPV6_TCLASS"), 0b10);
    }
    // Larger than any packet: loopback takes 65,536 with heads. See `udp_netns.rs` for 1500.
    let error = rustix::net::send(&one, &vec![0; 65_508], rustix::net::SendFlags::empty()).expect_err("too large");
    assert_eq!(error, rustix::io::Errno::MSGSIZE);
}

#[test]
fn a_listener_learns_who_sent_and_answers() {
    for any in ["0.0.0.0:0", "[::]:0"] {
        let Ok(listener) = udp::bind(any.parse().expect("address"), true) else { continue };
        let port = udp::local_addr(&listener).expect("address").port();
        let to = SocketAddr::from(([127, 0, 0, 1], port));
        let (one, granted) = udp::open(None, to, 1 << 20, 1 << 20).expect("open");
        assert!(granted.recv_bytes > 0 && granted.send_bytes > 0, "{granted:?}");
        assert_eq!(udp::send_sealed(&one, b"hello", 5).expect("send"), 1);
        let mut into = vec![0; 65_535];
        wait(&listener);
        let arrived = udp::recv_burst(&listener, &mut into).expect("readable");
        let from = arrived.from.expect("a sender");
        assert_eq!((from.ip().to_canonical(), from.port()), {
            let own = udp::local_addr(&one).expect("address");
            (own.ip(), own.port())
        });
        udp::send_to(&listener, b"welcome", from).expect("answer");
        assert_eq!(receive(&one, 1), [b"welcome"]);
        // A socket of its own for this peer, on the same address: the kernel prefers it.
        let own = udp::bind(SocketAddr::new(arrived_on(&listener, &one), port), true).expect("beside the listener");
        udp::connect(&own, udp::local_addr(&one).expect("address")).expect("connect");
        assert_eq!(udp::send_sealed(&one, b"for the rail", 12).expect("send"), 1);
        assert_eq!(receive(&own, 1), [b"for the rail"]);
        assert!(udp::recv_burst(&listener, &mut into).is_err(), "it went to the rail");
    }
}

/// The address the peer knows the listener by.
fn arrived_on(_listener: &OwnedFd, peer: &OwnedFd) -> std::net::IpAddr {
    udp::peer_addr(peer).expect("connected").ip()
}

#[test]
fn nobody_there_is_told_to_the_next_call() {
    let (one, other) = pair("127.0.0.1").expect("IPv4");
    drop(other);
    let refused = |result: io::Result<usize>| result.expect_err("refused").raw_os_error() == Some(libc::ECONNREFUSED);
    assert_eq!(udp::send_sealed(&one, &[0; 100], 100).expect("the first"), 1);
    wait(&one);
    assert!(refused(udp::send_burst(&one, &heads(3), &[0; 300], 100)));
    assert_eq!(udp::send_burst(&one, &heads(3), &[0; 300], 100).expect("told once"), 3);
    wait(&one);
    assert!(refused(udp::recv_burst(&one, &mut [0; 100]).map(|arrived| arrived.bytes)));
    assert!(udp::take_error(&one).expect("ask").is_none());
}

#[test]
fn a_full_socket_takes_the_front() {
    let (one, other) = pair("127.0.0.1").expect("IPv4");
    // A send buffer fills up only while packets wait on our side of the wire, which loopback never does: so an empty one must do.
    let small = udp::size_buffers(&one, 0, 1).expect("buffers");
    let (count, each) = (200, 1440);
    let (heads, payload) = (heads(count), pattern(count * each, 2));
    udp::size_buffers(&other, 8 << 20, 0).expect("buffers");
    let result = udp::send_burst(&one, &heads, &payload, each);
    let taken = match result {
        Ok(taken) => taken,
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}, {small:?}");
            0
        }
    };
    let mut into = vec![0; 65_535];
    let (mut packets, end) = (0, Instant::now() + LONG);
    while packets < taken && Instant::now() < end {
        wait(&other);
        packets += udp::recv_burst(&other, &mut into).expect("readable").packets().count();
    }
    assert_eq!(packets, taken, "exactly what was taken comes");
    assert!(udp::recv_burst(&other, &mut into).is_err());
}

#[test]
fn spliced_bursts_come_as_they_were_written() {
    let (one, other) = pair("127.0.0.1").expect("IPv4");
    udp::size_buffers(&other, 4 << 20, 0).expect("buffers");
    let granted = udp::size_buffers(&one, 0, 128 << 10).expect("buffers");
    let one = std::sync::Arc::new(one);
    let too_little =
        Splicer::new(std::sync::Arc::clone(&one), granted.send_bytes as usize).expect_err("too little memory");
    assert_eq!(too_little.raw_os_error(), Some(libc::EINVAL));
    let mut splicer = match Splicer::new(std::sync::Arc::clone(&one), 4 << 20) {
        Ok(splicer) => splicer,
        Err(error) => {
            // Older kernels take the calls and do something else: the rail sends in the plain way.
            let release = sys::host::kernel_release();
            let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
            assert!((numbers.next(), numbers.next()) < (Some(6), Some(5)), "{release}: {error}");
            return;
        }
    };
    // Twice around: slots are used again once their packets have been received.
    for round in 0..130u64 {
        let (bytes, each) =
            [(44 * 1472, 1472), (44 * 1472 - 1, 1472), (65_507, 8972), (64 * 700, 700), (1, 1472), (1400, 1472)]
                [(round % 6) as usize];
        splicer.slot()[..bytes].copy_from_slice(&pattern(bytes, round));
        let count = bytes.div_ceil(each);
        assert_eq!(splicer.send(bytes, each).expect("send"), count);
        let (apart, part) = (heads(7), pattern(7 * 1000 - 1, round));
        assert_eq!(splicer.send_burst(&apart, &part, 1000).expect("send"), 7);
        // Between them a copied burst, which names its own segment, and a longer single one.
        assert_eq!(udp::send_sealed(&*one, &pattern(2000, round), 500).expect("send"), 4);
        assert_eq!(udp::send_sealed(&*one, &pattern(3000, round), 3000).expect("send"), 1, "a probe of size");
        let mut packets = receive(&other, count + 12);
        let gathered: Vec<_> = packets.drain(count..count + 7).collect();
        for ((packet, head), part) in gathered.iter().zip(&apart).zip(part.chunks(1000)) {
            assert_eq!((&packet[..HEAD_BYTES], &packet[HEAD_BYTES..]), (&head[..], part), "round {round}");
        }
        assert!(packets[..count - 1].iter().all(|packet| packet.len() == each));
        assert_eq!(packets[..count].concat(), pattern(bytes, round), "round {round}");
        assert_eq!(packets[count..count + 4].concat(), pattern(2000, round), "round {round}");
        assert_eq!(packets[count + 4], pattern(3000, round), "round {round}");
    }
}

#[test]
fn missing_buffers_are_said_with_the_remedy() {
    let (one, _other) = pair("127.0.0.1").expect("IPv4");
    let granted = udp::size_buffers(&one, 1 << 20, 1 << 20).expect("buffers");
    assert_eq!(udp::shortage(&granted, granted.recv_bytes, granted.send_bytes), None);
    let text = udp::shortage(&granted, 1 << 40, granted.send_bytes).expect("nobody has that");
    assert!(text.contains("net.core.rmem_max=1099511627776") && !text.contains("wmem"), "{text}");
}

#[test]
fn the_queue_of_a_path_is_named_and_rates_are_taken() {
    let (one, _other) = pair("127.0.0.1").expect("IPv4");
    let queue = udp::queue_of(&one).expect("loopback has one");
    assert_eq!(queue.interface, "lo");
    let listed = std::process::Command::new("tc").args(["qdisc", "show", "dev", "lo"]).output();
    if let Ok(listed) = listed {
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        let kind = text.split_whitespace().nth(1).unwrap_or("noqueue").to_owned();
        assert_eq!(queue.kind, kind, "tc says: {text}");
    }
    assert_eq!(queue.paces(), queue.kind == "fq");
    udp::set_max_pacing_rate(&one, 5_000_000_000).expect("above 32 bits");
    let unbound = udp::bind("0.0.0.0:0".parse().expect("address"), false).expect("bind");
    assert!(udp::queue_of(&unbound).is_err(), "no path yet");
    udp::fine_timers().expect("slack");
}

#[test]
#[should_panic(expected = "one head per packet")]
fn a_wrong_number_of_heads_is_a_bug() {
    let (one, _other) = pair("127.0.0.1").expect("IPv4");
    let _ = udp::send_burst(&one, &heads(2), &[0; 300], 100);
}

#[test]
#[should_panic(expected = "a packet of 65508 bytes")]
fn a_packet_above_all_limits_is_a_bug() {
    let (one, _other) = pair("127.0.0.1").expect("IPv4");
    let _ = udp::send_sealed(&one, &vec![0; 65_508], 65_508);
}
