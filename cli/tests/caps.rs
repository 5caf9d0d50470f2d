//! A cap holds against a sender that ignores it.
//!
//! For: packets, which come whether they are taken or not: what is too much is not taken, and who goes on is sent away.
//! Absent on purpose: senders that keep to what they are told (lab/tests/reports/caps.rs). The hostile one is this program with an environment variable that
//! builds without debug assertions do not read.
#![cfg(debug_assertions)]

#[allow(dead_code, unreachable_pub)] // each test binary uses its own part
mod guard;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use guard::{Daemon, Folder};

const BREACH: i32 = 13;
/// B/s, and what the hostile one sends.
const CAP: u64 = 1_000_000;
const HOSTILE: &str = "10000000";

fn longhaul(home: &Path, is_hostile: bool) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.env("LONGHAUL_HOME", home).env_remove("LONGHAUL_TEST_RATE");
    command.envs(is_hostile.then_some(("LONGHAUL_TEST_RATE", HOSTILE)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Bytes of the source that stand below a folder; room that was taken for a part is zeros.
fn held(folder: &Path) -> u64 {
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let sevens = |path: &Path| std::fs::read(path).unwrap().iter().filter(|it| **it == 7).count() as u64;
    all.map(|path| if path.is_dir() { held(&path) } else { sevens(&path) }).sum()
}

/// A file from one end to the other, whose sender keeps to nothing; then one whose sender does.
fn is_held(pulls: bool) {
    let folder = std::env::temp_dir().join(format!("longhaul-caps-{}-{pulls}", std::process::id()));
    let root = Folder(folder);
    let (here, there) = (root.0.join("here"), root.0.join("there"));
    for side in [&here, &there] {
        std::fs::create_dir_all(side).unwrap();
    }
    let from = if pulls { &there } else { &here };
    std::fs::write(from.join("large.bin"), vec![7; 40_000_000]).unwrap();
    std::fs::write(from.join("small.bin"), vec![7; 1_500_000]).unwrap();
    let mut serve = longhaul(&root.0.join("home-there"), pulls);
    serve.args(["serve", "--listen", "127.0.0.1:0", "--ticket", "--root"]).arg(&there);
    // The cap of who receives: a daemon's or a user's.
    serve.args(if pulls { None } else { Some("--rate=8Mbit") });
    let mut daemon = Daemon(serve.stderr(Stdio::null()).spawn().unwrap());
    let url = BufReader::new(daemon.0.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let job = |name: &str, is_hostile: bool| {
        let mut command = longhaul(&root.0.join("home-here"), is_hostile && !pulls);
        command.args(["cp", "--transport", "udp"]).args(pulls.then_some("--rate=8Mbit"));
        match pulls {
            true => command.arg(format!("{url}{name}")).arg(here.join("got.bin")),
            false => command.arg(here.join(name)).arg(format!("{url}got.bin")),
        };
        let since = Instant::now();
        let done = command.output().unwrap();
        (done.status.code().unwrap(), String::from_utf8_lossy(&done.stderr).into_owned(), since.elapsed())
    };
    let (code, words, took) = job("large.bin", true);
    assert_eq!(code, BREACH, "{words}");
    assert!(words.contains("although its cap here is 8Mbit"), "the cap is named: {words}");
    let most = CAP * (took.as_millis() as u64 + 500) / 1000 * 11 / 10;
    let to = if pulls { &here } else { &there };
    let came = held(to);
    assert!(came <= most + (1 << 20), "{came} bytes were taken in {took:?}, of {most}");
    assert!(took.as_secs() < 30, "{took:?}");
    if !pulls {
        let (code, words, took) = job("small.bin", false);
        assert_eq!(code, 0, "who keeps to it is served: {words}");
        assert!(took.as_millis() >= 1300, "{took:?}");
    }
}

#[test]
fn a_sender_that_ignores_the_daemons_rate_is_held_to_it_and_sent_away() {
    is_held(false);
}

#[test]
fn a_daemon_that_ignores_its_clients_rate_is_held_to_it_and_left() {
    is_held(true);
}
