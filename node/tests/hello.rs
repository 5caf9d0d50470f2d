//! A job whose session begins in datagrams, before its connection is there: to a daemon that bears them out, and to one that does not.
//!
//! In: a daemon over a port whose connections take 50 ms, and whoever answers its datagrams. Out: whether the file is there.
//! Absent on purpose: the handshake itself (node/src/link/hello/tests.rs), round trips (lab/tests/reports/emulated/start.rs).

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use node::client::Node;
use node::identity::ticket::Uses;
use node::identity::{Home, Identity};
use node::link::Hellos;
use node::request::JobRequest;
use node::serve::handed::Handed;
use node::serve::settings::Settings;
use node::serve::{Bound, Log};
use text::exit::Exit;

/// Gone when dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A port of both kinds; nobody is let in before the held connections were taken: a SYN that comes till then is dropped, and its repeat comes 50 ms
/// after it.
fn port() -> (TcpListener, UdpSocket, Vec<TcpStream>, SocketAddr) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = tcp.local_addr().expect("bound");
        let Ok(udp) = UdpSocket::bind(at) else { continue };
        rustix::net::listen(&tcp, 1).expect("a small backlog");
        let mut held = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&at, Duration::from_millis(100)) {
            held.push(stream);
        }
        return (tcp, udp, held, at);
    }
}

/// Copies a file to a daemon. `is_its`: the daemon answers its datagrams itself; else somebody does who has its key, and not its sessions. How many
/// greetings that one answered.
fn copy(name: &str, is_its: bool) -> usize {
    let scratch = Scratch(std::env::temp_dir().join(format!("longhaul-hello-{name}-{}", std::process::id())));
    let at = |path: &str| scratch.0.join(path);
    std::fs::create_dir_all(at("root")).expect("a folder");
    std::fs::write(at("file"), b"some bytes").expect("a file");
    let (tcp, udp, held, address) = port();
    let home = Home::at(&at("daemon")).expect("a home");
    let identity = Arc::new(Identity::load(&home).expect("a key"));
    let (answered, elsewhere) = (Arc::new(AtomicUsize::new(0)), Hellos::of(identity).unwrap());
    let mut sockets = vec![tcp.into()];
    if is_its {
        sockets.push(udp.into());
    } else {
        let answered = Arc::clone(&answered);
        std::thread::spawn(move || {
            let mut bytes = [0; 2048];
            while let Ok((length, from)) = udp.recv_from(&mut bytes) {
                let parts = elsewhere.on_datagram(&bytes[..length], from).unwrap_or_default();
                answered.fetch_add(usize::from(!parts.is_empty()), Ordering::Relaxed);
                parts.iter().for_each(|part| drop(udp.send_to(part, from)));
            }
        });
    }
    let settings = Settings { listen: address, workers: Some(1), ..Settings::of(at("root")) };
    let handed = Handed::of(sockets).expect("sockets of a port");
    let bound = Bound::bind_or_take(settings, &home, &[], handed).expect("a daemon");
    let server = bound.start(Log::nowhere()).expect("a daemon");
    let ticket = server.ticket(Uses::Many).expect("a ticket");
    let (control, target) = (server.control(), format!("longhaul://{ticket}@{address}/copy"));
    std::thread::scope(|scope| {
        let serves = scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            server.run()
        });
        let node = Node::open(&Home::at(&at("client")).expect("a home")).expect("an identity");
        let job = node.start(JobRequest::copy([at("file")], target).build());
        assert_eq!(job.wait().expect("the job"), Exit::Whole);
        assert_eq!(std::fs::read(at("root/copy")).expect("the copy"), b"some bytes");
        control.stop();
        serves.join().expect("the daemon ends").expect("well");
    });
    drop(held);
    answered.load(Ordering::Relaxed)
}

#[test]
fn a_job_begins_in_datagrams() {
    copy("own", true);
}

#[test]
fn a_job_whose_datagrams_somebody_else_answered_begins_again_over_its_connection() {
    // Where the machine is busy the connection may be there first, and then nothing was shown.
    assert!((0..20).any(|_| copy("elsewhere", false) > 0), "it did begin in datagrams");
}
