//! What a client of the FTP server says, and what a server answers a client.
//!
//! For: finding bytes that make the session break one of its rules, or a text that is read and not written again the same.
//! In and out: one byte of terms, eight that choose what comes of actions, then the control connection's bytes; the same as lines, addresses and facts.
//! Invariants: those of `proto::ftp::session::played`; facts, times, addresses and quoted paths that are read are written to what is read the same.
//! Absent on purpose: files and sockets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::ftp::command::{Command, Verb};
use proto::ftp::{address, facts, path, reply, session, time};

fuzz_target!(|bytes: &[u8]| {
    let seen = session::played::play(bytes);
    assert!(seen.held_bytes_max <= session::played::HELD_BYTES_MAX);
    let said = bytes.get(9..).unwrap_or_default();
    for line in said.split(|&byte| byte == b'\n') {
        let (verb, argument) = Verb::split(line);
        if let Some(verb) = verb {
            let _ = Command::parse(verb, argument);
        }
        if let Some(seconds) = time::parse(argument) {
            assert_eq!(time::parse(time::written(seconds).as_bytes()), Some(seconds));
        }
        if let Some(to) = address::parse_eprt(argument) {
            assert!(to.port() > 0);
        }
        if let Some(std::net::SocketAddr::V4(to)) = address::parse_pasv_reply(line) {
            let again = address::port_words(*to.ip(), to.port());
            assert_eq!(address::parse_port(again.as_bytes()), Some(to.into()));
        }
        let _ = address::parse_epsv_reply(line);
        let _ = reply::code_of(line);
        if let Some(path) = reply::unquoted(line).filter(|path| path.starts_with(b"/")) {
            assert_eq!(reply::unquoted(&reply::quoted(&path[1..])), Some(path));
        }
        if let Some((read, name)) = facts::parse(line) {
            let mut again = Vec::new();
            facts::write(&mut again, &read, facts::Wanted::ALL, true);
            again.extend_from_slice(name);
            let (second, its) = facts::parse(&again).expect("what is written is read");
            assert!(
                its == name && second.kind == read.kind && second.mtime_s == read.mtime_s && second.mode == read.mode
            );
        }
        if let Some((folder, pattern)) = path::pattern_of(line) {
            let _ = path::fits(pattern, folder);
        }
    }
});
