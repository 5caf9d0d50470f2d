//! Bursts over interfaces with limits of their own: a veth pair between two network namespaces, and a router with a narrow side.
//!
//! In: namespaces made here, which root alone may do; others only learn that nothing was tested. Out: sizes refused by the interface and
//! by a router, bursts that cross whole, the queue's name.
//! Absent on purpose: loss and delay (the lab has them).

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sys::event::{Interest, poll};
use sys::udp::{self, HEAD_BYTES};

const LONG: Duration = Duration::from_secs(20);

/// Hosts in namespaces, removed with the test.
struct Hosts {
    names: Vec<String>,
}

impl Hosts {
    /// So many hosts in a row, `10.78.i.1` to `10.78.i.2` between neighbours over links of the given MTUs. None without the right to.
    fn in_a_row(prefix: &str, mtus: &[u32]) -> Option<Hosts> {
        if !rustix::process::geteuid().is_root() || Command::new("ip").arg("-V").output().is_err() {
            println!("not root, or no ip(8): nothing was tested");
            return None;
        }
        let names = (0..=mtus.len()).map(|number| format!("{prefix}{}-{number}", std::process::id())).collect();
        let hosts = Hosts { names };
        for name in &hosts.names {
            if !ip(&format!("netns add {name}")) {
                println!("no right to make namespaces: nothing was tested");
                return None;
            }
            assert!(ip(&format!("-n {name} link set lo up")));
        }
        for (number, mtu) in mtus.iter().enumerate() {
            let (one, other) = (&hosts.names[number], &hosts.names[number + 1]);
            // Long names make long interface names; the link's number tells the two sides of a router apart.
            assert!(ip(&format!(
                "link add r{number} netns {one} mtu {mtu} type veth peer name l{number} netns {other} mtu {mtu}"
            )));
            for (host, side, last) in [(one, 'r', 1), (other, 'l', 2)] {
                assert!(ip(&format!("-n {host} addr add 10.78.{number}.{last}/24 dev {side}{number}")));
                assert!(ip(&format!("-n {host} link set {side}{number} up")));
            }
        }
        Some(hosts)
    }

    /// A socket of that host: sockets stay where they were made.
    fn bind(&self, host: usize, addr: &str) -> OwnedFd {
        let (path, addr): (_, SocketAddr) =
            (format!("/run/netns/{}", self.names[host]), addr.parse().expect("address"));
        let room = File::open(path).expect("namespace");
        std::thread::spawn(move || {
            move_into_link_name_space(room.as_fd(), Some(LinkNameSpaceType::Network)).expect("enter");
            udp::bind(addr, false).expect("bind")
        })
        .join()
        .expect("thread")
    }

    fn queue_of(&self, host: usize, fd: &OwnedFd) -> io::Result<udp::Queue> {
        let room = File::open(format!("/run/netns/{}", self.names[host])).expect("namespace");
        std::thread::scope(|scope| {
            let asking = scope.spawn(move || {
                move_into_link_name_space(room.as_fd(), Some(LinkNameSpaceType::Network)).expect("enter");
                udp::queue_of(fd)
            });
            asking.join().expect("thread")
        })
    }

    fn tell(&self, host: usize, program: &str, arguments: &str) -> bool {
        let line = format!("netns exec {} {program} {arguments}", self.names[host]);
        ip(&line)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&format!("netns del {name}"));
        }
    }
}

fn ip(line: &str) -> bool {
    Command::new("ip").args(line.split(' ')).output().expect("ip(8)").status.success()
}

fn connect(one: &OwnedFd, other: &OwnedFd) {
    udp::connect(one, udp::local_addr(other).expect("address")).expect("connect");
    udp::connect(other, udp::local_addr(one).expect("address")).expect("connect");
}

/// Packets that come until there are so many.
fn receive(fd: &OwnedFd, count: usize) -> Vec<Vec<u8>> {
    let (mut into, mut packets) = (vec![0; 65_535], Vec::new());
    while packets.len() < count {
        assert!(poll(&[(fd.as_fd(), Interest::Read)], Some(LONG)).expect("poll")[0].any(), "nothing came");
        let arrived = udp::recv_burst(fd, &mut into).expect("readable");
        packets.extend(arrived.packets().map(|range| into[range].to_vec()));
    }
    packets
}

fn is_too_big(result: io::Result<usize>) -> bool {
    matches!(result, Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE))
}

#[test]
fn a_wire_carries_what_fits_and_refuses_what_does_not() {
    for mtu in [1500usize, 9000] {
        let Some(hosts) = Hosts::in_a_row("lhudpw", &[mtu as u32]) else { return };
        let (one, other) = (hosts.bind(0, "10.78.0.1:7000"), hosts.bind(1, "10.78.0.2:7000"));
        connect(&one, &other);
        let room = mtu - 28;
        assert_eq!(udp::packet_bytes_max(&one).expect("connected"), room);
        let heads = [[7; HEAD_BYTES]; 5];
        let payload = vec![9; 5 * (room - HEAD_BYTES) - 3];
        assert_eq!(udp::send_burst(&one, &heads, &payload, room - HEAD_BYTES).expect("fits"), 5);
        let packets = receive(&other, 5);
        assert!(packets[..4].iter().all(|packet| packet.len() == room) && packets[4].len() == room - 3);
        // One byte more, alone and in a burst: the packets are not cut, they are refused.
        assert!(is_too_big(udp::send_sealed(&one, &vec![0; room + 1], room + 1)));
        assert!(is_too_big(udp::send_sealed(&one, &vec![0; 3 * (room + 1)], room + 1)));
        assert!(is_too_big(udp::send_burst(&one, &heads, &vec![0; 5 * room], room)));
        assert_eq!(udp::send_sealed(&one, &vec![0; room], room).expect("the socket is as before"), 1);
        assert_eq!(receive(&other, 1)[0].len(), room);
    }
}

#[test]
fn an_interface_without_offloads_is_sent_to_all_the_same() {
    let Some(hosts) = Hosts::in_a_row("lhudpo", &[1500]) else { return };
    // Fails where ethtool(8) is not installed; the kernel's own cutting is then not forced, and the test still holds.
    for host in 0..2 {
        let side = if host == 0 { "r0" } else { "l0" };
        let off = hosts.tell(host, "ethtool", &format!("-K {side} tx off tso off gso off gro off"));
        println!("offloads of {side} switched off: {off}");
    }
    let (one, other) = (hosts.bind(0, "10.78.0.1:7000"), hosts.bind(1, "10.78.0.2:7000"));
    connect(&one, &other);
    udp::size_buffers(&other, 4 << 20, 0).expect("buffers");
    let payload: Vec<u8> = (0..44 * 1440).map(|at| (at / 1440) as u8).collect();
    let heads: Vec<[u8; HEAD_BYTES]> = (0..44).map(|number| [number; HEAD_BYTES]).collect();
    assert_eq!(udp::send_burst(&one, &heads, &payload, 1440).expect("send"), 44);
    for (number, packet) in receive(&other, 44).iter().enumerate() {
        assert!(packet.len() == 1472 && packet.iter().all(|byte| usize::from(*byte) == number), "packet {number}");
    }
}

#[test]
fn a_router_that_wants_smaller_packets_is_heard() {
    let Some(hosts) = Hosts::in_a_row("lhudpr", &[1500, 1300]) else { return };
    assert!(hosts.tell(1, "sysctl", "-qw net.ipv4.ip_forward=1"));
    assert!(hosts.tell(0, "ip", "route add 10.78.1.0/24 via 10.78.0.2"));
    assert!(hosts.tell(2, "ip", "route add 10.78.0.0/24 via 10.78.1.1"));
    let (one, other) = (hosts.bind(0, "10.78.0.1:7000"), hosts.bind(2, "10.78.1.2:7000"));
    connect(&one, &other);
    // DF is set: the router does not cut, it says so, and the next call on the socket tells.
    assert_eq!(udp::send_sealed(&one, &[1; 1472], 1472).expect("the first hop takes it"), 1);
    assert!(poll(&[(one.as_fd(), Interest::Read)], Some(LONG)).expect("poll")[0].any(), "the router said nothing");
    assert!(is_too_big(udp::recv_burst(&one, &mut [0; 100]).map(|arrived| arrived.bytes)));
    // What it said is not imposed on us: the same size may be tried again, and a smaller one passes.
    assert_eq!(udp::send_sealed(&one, &[1; 1472], 1472).expect("still ours to decide"), 1);
    assert!(poll(&[(one.as_fd(), Interest::Read)], Some(LONG)).expect("poll")[0].any());
    assert!(is_too_big(udp::send_sealed(&one, &[2; 1272], 1272)), "told to the next call, whichever it is");
    assert_eq!(udp::send_sealed(&one, &[2; 2 * 1272], 1272).expect("send"), 2);
    assert_eq!(receive(&other, 2), [vec![2; 1272], vec![2; 1272]]);
}

#[test]
fn the_queue_of_an_interface_is_named() {
    let Some(hosts) = Hosts::in_a_row("lhudpq", &[1500]) else { return };
    let (one, other) = (hosts.bind(0, "10.78.0.1:7000"), hosts.bind(1, "10.78.0.2:7000"));
    connect(&one, &other);
    let plain = hosts.queue_of(0, &one).expect("queue");
    assert_eq!((plain.interface.as_str(), plain.paces()), ("r0", false), "{plain:?}");
    for kind in ["fq", "fq_codel", "pfifo"] {
        if hosts.tell(0, "tc", &format!("qdisc replace dev r0 root {kind}")) {
            let queue = hosts.queue_of(0, &one).expect("queue");
            assert_eq!((queue.kind.as_str(), queue.paces()), (kind, kind == "fq"));
        } else {
            println!("this kernel has no {kind}");
        }
    }
}

#[test]
fn fq_keeps_the_rate_of_a_socket() {
    let Some(hosts) = Hosts::in_a_row("lhudpp", &[1500]) else { return };
    if !hosts.tell(0, "tc", "qdisc replace dev r0 root fq") {
        println!("this kernel has no fq: nothing was tested");
        return;
    }
    let (one, other) = (hosts.bind(0, "10.78.0.1:7000"), hosts.bind(1, "10.78.0.2:7000"));
    connect(&one, &other);
    udp::size_buffers(&other, 4 << 20, 0).expect("buffers");
    // 20 bursts of 14,720 bytes at 5 MB/s are 59 ms on their way; the first leave at once.
    udp::set_max_pacing_rate(&one, 5_000_000).expect("rate");
    let start = std::time::Instant::now();
    for _ in 0..20 {
        assert_eq!(udp::send_sealed(&one, &[0; 14_720], 1472).expect("send"), 10);
    }
    assert_eq!(receive(&other, 200).len(), 200);
    assert!(start.elapsed() >= Duration::from_millis(40), "{:?}", start.elapsed());
}
