//! A mistake in one job is that job's end and no other's.
//!
//! For: every thread that works for a job, at both ends, with a second job beside it and a third one after it.
//! Absent on purpose: which mistakes there are. One is asked for by an environment variable that builds without debug assertions do not read.
#![cfg(debug_assertions)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const BUG: i32 = 70;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("longhaul-panics-{}-{name}", std::process::id()));
        std::fs::create_dir_all(path.join("there")).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn longhaul(home: &Path, panics: Option<&str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.env("LONGHAUL_HOME", home).env_remove("LONGHAUL_TEST_PANIC");
    command.envs(panics.map(|place| ("LONGHAUL_TEST_PANIC", place)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A daemon; ended with the test.
struct Daemon {
    child: Child,
    url: String,
    said: std::thread::JoinHandle<String>,
}

impl Daemon {
    fn start(root: &Path, panics: Option<&str>) -> Daemon {
        let mut command = longhaul(&root.join("home-there"), panics);
        command.args(["serve", "-v", "--listen", "127.0.0.1:0", "--ticket", "--workers", "2", "--root"]);
        let mut child = command.arg(root.join("there")).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let stderr = child.stderr.take().unwrap();
        let said = std::thread::spawn(move || std::io::read_to_string(stderr).unwrap());
        let url = lines.next().unwrap().unwrap();
        Daemon { child, url, said }
    }

    fn end(mut self) -> String {
        assert!(self.child.try_wait().unwrap().is_none(), "the daemon is gone");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.said.join().unwrap()
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

/// One job meets the mistake at `place` of one end; one beside it and one after it do not.
fn costs_one_job(place: &str, at_daemon: bool, pulls: bool) {
    let folder = Folder::new(&format!("{}-{at_daemon}-{pulls}", place.replace(' ', "-")));
    let root = &folder.0;
    let here = root.join("here");
    for (name, bytes) in [("victim", 300_000), ("witness", 3_000_000)] {
        for side in [&here, &root.join("there")] {
            std::fs::create_dir_all(side.join(name)).unwrap();
            std::fs::write(side.join(name).join(format!("{name}.bin")), vec![7; bytes]).unwrap();
        }
    }
    let asked = format!("{place}:victim.bin");
    let daemon = Daemon::start(root, at_daemon.then_some(asked.as_str()));
    let job = |name: &str, to: &str, rate: Option<&str>| {
        let mut command = longhaul(&root.join("home-here"), (!at_daemon).then_some(asked.as_str()));
        command.args(["cp", "--stall", "60"]).args(rate.into_iter().flat_map(|rate| ["--rate", rate]));
        let url = |path: &str| format!("{}{path}", daemon.url);
        match pulls {
            true => command.arg(url(name)).arg(root.join(to)),
            false => command.arg(here.join(name)).arg(url(to)),
        };
        command.spawn().unwrap()
    };
    // Long enough to be there all the while; at the client each job is a process of its own.
    let beside = job("witness", "beside", Some("12Mbit"));
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    let victim = job("victim", "lost", None).wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&victim.stderr).into_owned();
    let what = format!("{place}, daemon {at_daemon}, pulls {pulls}");
    assert_eq!(code(&victim), BUG, "{what}: {words}");
    assert!(words.contains("panicked: a test asked for it"), "{what}: the reason is told to both ends: {words}");
    assert!(
        began.elapsed() < Duration::from_secs(40),
        "{what}: a job that nobody does any more is ended, not waited for"
    );
    let beside = beside.wait_with_output().unwrap();
    let is_shared = place.contains("worker") && at_daemon;
    let beside_words = String::from_utf8_lossy(&beside.stderr).into_owned();
    // A worker serves several jobs: those that were on it end by name, and can be taken up at once.
    assert!(code(&beside) == 0 || (is_shared && code(&beside) == BUG), "{what}: {beside_words}");
    let after = job("witness", "beside", None).wait_with_output().unwrap();
    assert_eq!(code(&after), 0, "{what}: {}", String::from_utf8_lossy(&after.stderr));
    let log = daemon.end();
    assert!(log.contains("a test asked for it"), "{what}: the daemon's log names it: {log}");
}

#[test]
fn a_job_driver_that_panics_costs_its_job_alone() {
    costs_one_job("job driver", true, false);
    costs_one_job("job driver", false, true);
}

#[test]
fn a_scanner_that_panics_costs_its_job_alone() {
    costs_one_job("scanner", true, true);
    costs_one_job("scanner", false, false);
}

#[test]
fn a_committer_that_panics_costs_its_job_alone() {
    costs_one_job("committer", true, false);
    costs_one_job("committer", false, true);
}

/// The accepting thread is everybody's: what it was at is dropped, and dialled again by whoever waits for it.
#[test]
fn an_accepting_thread_that_panics_costs_no_job() {
    let folder = Folder::new("listener");
    let root = &folder.0;
    let daemon = Daemon::start(root, Some("listener:once"));
    std::fs::write(root.join("some.bin"), vec![7; 3_000_000]).unwrap();
    let job = |to: &str, more: &[&str]| {
        let mut command = longhaul(&root.join("home-here"), None);
        command.args(["cp", "--stall", "60", "--transport", "tcp"]).args(more);
        command.arg(root.join("some.bin")).arg(format!("{}{to}", daemon.url)).spawn().unwrap()
    };
    // The first rail that comes meets the mistake.
    let first = job("first", &["--rate", "12Mbit"]);
    std::thread::sleep(Duration::from_millis(300));
    let second = job("second", &[]).wait_with_output().unwrap();
    let first = first.wait_with_output().unwrap();
    for done in [first, second, job("third", &[]).wait_with_output().unwrap()] {
        assert_eq!(code(&done), 0, "{}", String::from_utf8_lossy(&done.stderr));
    }
    let log = daemon.end();
    assert!(log.contains("the listener goes on after a mistake in Longhaul: a test asked for it"), "{log}");
}

/// A relay's rails are dialled by the source's daemon.
#[test]
fn a_dialler_that_panics_costs_its_job_alone() {
    let folder = Folder::new("dialler");
    let root = &folder.0;
    let other = root.join("other");
    std::fs::create_dir_all(other.join("there")).unwrap();
    for (name, bytes) in [("victim.bin", 300_000), ("witness.bin", 3_000_000)] {
        std::fs::write(root.join("there").join(name), vec![7; bytes]).unwrap();
    }
    let (from, to) = (Daemon::start(root, Some("dialler:once")), Daemon::start(&other, None));
    let job = |source: &str, to: String, rate: Option<&str>, panics: Option<&str>| {
        let mut command = longhaul(&root.join("home-here"), panics);
        command.args(["cp", "--stall", "60"]).args(rate.into_iter().flat_map(|rate| ["--rate", rate]));
        command.arg(format!("{}{source}", from.url)).arg(to).spawn().unwrap()
    };
    // Its client dials: the daemon's own jobs meet nothing.
    let beside = job("witness.bin", root.join("beside").to_str().unwrap().to_owned(), Some("12Mbit"), None);
    std::thread::sleep(Duration::from_millis(300));
    let relay = |name: &str| job("victim.bin", format!("{}{name}", to.url), None, None).wait_with_output().unwrap();
    let victim = relay("lost");
    let words = String::from_utf8_lossy(&victim.stderr).into_owned();
    assert_eq!(code(&victim), BUG, "{words}");
    assert!(words.contains("the dialler panicked: a test asked for it"), "{words}");
    assert_eq!(code(&beside.wait_with_output().unwrap()), 0);
    assert_eq!(code(&relay("after")), 0);
    let pulled = root.join("pulled").to_str().unwrap().to_owned();
    let own = job("victim.bin", pulled, None, Some("dialler:once")).wait_with_output().unwrap();
    assert_eq!(code(&own), BUG, "a client's own: {}", String::from_utf8_lossy(&own.stderr));
    assert!(from.end().contains("a test asked for it"));
    to.end();
}

#[test]
fn a_worker_that_panics_costs_the_jobs_on_it_and_is_made_anew() {
    costs_one_job("receiving worker", true, false);
    costs_one_job("sending worker", true, true);
    costs_one_job("receiving worker", false, true);
    costs_one_job("sending worker", false, false);
}
