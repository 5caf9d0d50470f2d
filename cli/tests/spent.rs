//! A one-job ticket is for one job, however slow the daemon's disk is at its end.
//!
//! For: the moment in which the client has left with exit code 0 and the daemon still waits for its disk to keep the receipt.
//! Invariants: the second client comes at once, and is of the same key: nothing but the ticket's end refuses it.
//! Absent on purpose: tickets themselves (`identity`). The slow disk is asked for by an environment variable that builds without debug assertions do
//! not read.
#![cfg(debug_assertions)]

#[allow(dead_code, unreachable_pub)] // each test binary uses its own part
mod guard;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use guard::{Daemon, Folder};

const REFUSED: i32 = 12;
/// The receipt's flush takes so long.
const SLOW: Duration = Duration::from_millis(1500);

fn longhaul(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.env("LONGHAUL_HOME", home).env_remove("LONGHAUL_TEST_WAIT");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_client_that_left_well_has_spent_its_ticket_however_slow_the_daemons_disk() {
    for pulls in [false, true] {
        let folder = Folder(std::env::temp_dir().join(format!("longhaul-spent-{}-{pulls}", std::process::id())));
        let root = &folder.0;
        std::fs::create_dir_all(root.join("there")).unwrap();
        for file in [root.join("here.bin"), root.join("there/it.bin")] {
            std::fs::write(file, vec![7; 300_000]).unwrap();
        }
        let mut serve = longhaul(&root.join("home-there"));
        serve.env("LONGHAUL_TEST_WAIT", format!("receipt:{}", SLOW.as_millis()));
        serve.args(["serve", "--listen", "127.0.0.1:0", "--ticket=once", "--root"]).arg(root.join("there"));
        let mut daemon = Daemon(serve.spawn().unwrap());
        let url = BufReader::new(daemon.0.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        let job = |name: &str| {
            let mut command = longhaul(&root.join("home-here"));
            match pulls {
                true => command.args(["cp", &format!("{url}it.bin")]).arg(root.join(name)),
                false => command.arg("cp").arg(root.join("here.bin")).arg(format!("{url}{name}")),
            };
            let began = Instant::now();
            let output = command.output().unwrap();
            (output.status.code(), began.elapsed(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (first, took, words) = job("first.bin");
        assert_eq!(first, Some(0), "pulls {pulls}: {words}");
        // Otherwise there is nothing to see here. (Who fetches has the daemon's last word after its receipt.)
        assert!(pulls || took < SLOW, "the client waited for the daemon's disk: {took:?}");
        let (second, _, words) = job("second.bin");
        assert_eq!(second, Some(REFUSED), "pulls {pulls}: a second job on a one-job ticket: {words}");
        assert!(!root.join("second.bin").exists() && !root.join("there/second.bin").exists());
    }
}
