#![allow(dead_code, unused_imports)]
#[path = "../src/identity/mod.rs"]
mod identity;
#[path = "../src/link/mod.rs"]
mod link;
#[path = "../src/units.rs"]
mod units;
use identity::*;
use link::*;
use std::time::Duration;
#[test]
fn smoke() {
    let a = std::sync::Arc::new(Identity::ephemeral().unwrap());
    let b = Identity::ephemeral().unwrap();
    let l = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = l.local_addr().unwrap().to_string();
    let a2 = a.clone();
    let t = std::thread::spawn(move || { let (s, _) = l.accept().unwrap(); Link::accept(s, &a2, Duration::from_secs(5)).unwrap() });
    let mut c = Link::connect(&addr, &b, Expect::Key(a.public()), Duration::from_secs(5)).unwrap();
    let mut s = t.join().unwrap();
    assert_eq!(c.peer_key(), a.public());
    assert_eq!(s.peer_key(), b.public());
    assert_eq!(c.export(b"x", b""), s.export(b"x", b""));
    c.send(b"hello"); c.close(); c.flush_blocking(Duration::from_secs(1)).unwrap();
    assert_eq!(s.call(Duration::from_secs(1)).unwrap(), b"hello");
    assert!(matches!(s.call(Duration::from_secs(1)), Err(LinkError::Closed)));
}
