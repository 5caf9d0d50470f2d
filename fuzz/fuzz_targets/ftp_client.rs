//! An FTP server that says anything at all, to our client: replies, features, listings, addresses.
//!
//! For: `proto::ftp::client`.
//! In and out: bytes; the first says in which portions the others come.
//! Invariants: no panic; no name of a listing leads out of its folder; no password before TLS.
//! Absent on purpose: sockets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::ftp::address::{parse_epsv_reply, parse_pasv_reply};
use proto::ftp::client::features::Features;
use proto::ftp::client::listing::{Form, Lines, Said, parse};
use proto::ftp::client::login::{Cover, Login, Step};
use proto::ftp::client::name::is_safe;
use proto::ftp::client::pipeline::{Expected, Pipeline};
use proto::ftp::client::reply::Replies;
use proto::ftp::command::Digest;
use proto::ftp::lhdata::{Agreed, Spoken, Transport};

fuzz_target!(|bytes: &[u8]| {
    let Some((&step, bytes)) = bytes.split_first() else { return };
    let step = usize::from(step).max(1);
    session(bytes, step);
    let mut lines = Lines::default();
    let mut check = |line: &[u8]| {
        for form in [Form::Facts, Form::Long] {
            if let Said::Entry(entry) = parse(form, line) {
                assert!(is_safe(&entry.name));
            }
        }
    };
    for part in bytes.chunks(step) {
        if lines.push(part, &mut check).is_err() {
            return;
        }
    }
    lines.end(&mut check);
});

fn session(bytes: &[u8], step: usize) {
    let (mut replies, mut login, mut pipeline) =
        (Replies::default(), Login::new(Cover::Explicit, b"ada", b"secret"), Pipeline::default());
    if step.is_multiple_of(2) {
        login = login.asking(Spoken { version: proto::VERSION, transports: [Transport::Tcp].into() });
    }
    let mut is_secure = false;
    for part in bytes.chunks(step) {
        replies.push(part);
        while let Ok(Some(reply)) = replies.take() {
            let _ = (parse_epsv_reply(&reply.text), parse_pasv_reply(&reply.text), Features::of(&reply).digest());
            let _ = Agreed::parse(&reply.text).map(|it| it.text());
            let _ = Digest::Sha256.find(&reply.text);
            pipeline.on_sent(Expected::Transfer, 1);
            let _ = pipeline.on_reply(&reply);
            let mut next = login.on_reply(&reply);
            if next == Step::Secure {
                is_secure = true;
                next = login.on_secure();
            }
            if let Step::Say(line) = next {
                assert!(is_secure || !line.starts_with(b"PASS"));
            }
        }
    }
}
