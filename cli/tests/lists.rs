//! What was done, what is kept of it, and which tickets live: the real binary, a daemon and its client on one host.
//!
//! For: `longhaul ls`, `job history`, `receipt list`, `ticket list` and `ticket revoke`, at both ends of real jobs.
//! Invariants: each host has a home of its own; no check passes without having read what a command printed.
//! Absent on purpose: the files behind the lists (their modules' own tests), `key list` (identity.rs).

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A revoked ticket's job is gone by then.
const SOON: Duration = Duration::from_secs(5);
/// A busy machine's.
const LATE: Duration = Duration::from_secs(60);

struct World(PathBuf);

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl World {
    fn new() -> World {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("longhaul-lists-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let world = World(std::env::temp_dir().join(name));
        std::fs::create_dir_all(world.at("there/sub")).unwrap();
        std::fs::write(world.at("here.bin"), vec![7; 300_000]).unwrap();
        world
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A command of one of both hosts, in a folder of its own.
    fn longhaul(&self, host: &str, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.env("LONGHAUL_HOME", self.at(host)).env_remove("LONGHAUL_TICKET").current_dir(&self.0).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, host: &str, words: &[&str]) -> (Option<i32>, String, String) {
        let Output { status, stdout, stderr } = self.longhaul(host, words).output().unwrap();
        (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
    }

    /// What a list has, as JSON.
    fn list(&self, host: &str, words: &[&str]) -> Vec<Value> {
        let (code, out, err) = self.run(host, &[words, &["--json"]].concat());
        assert_eq!(code, Some(0), "{words:?}: {err}");
        serde_json::from_str::<Vec<Value>>(&out).unwrap_or_else(|error| panic!("{words:?}: {error}: {out}"))
    }

    fn serve(&self, words: &[&str]) -> (Process, String) {
        let root = self.at("there");
        let words = [&["serve", "--listen", "127.0.0.1:0", "--root", root.to_str().unwrap()], words].concat();
        let mut daemon = self.longhaul("home-there", &words).stderr(Stdio::null()).spawn().unwrap();
        let url = BufReader::new(daemon.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        (Process(daemon), url)
    }
}

/// The exit code of a process that ends by itself.
fn ended(process: &mut Process) -> Option<i32> {
    until("the process ends", LATE, || process.0.try_wait().unwrap().is_some());
    process.0.wait().unwrap().code()
}

fn until(what: &str, limit: Duration, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !is() {
        assert!(Instant::now() < end, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn each_job_that_ended_is_in_the_history_of_both_ends_and_receipts_say_what_went_where() {
    let world = World::new();
    let (_, none, _) = world.run("home-here", &["job", "history"]);
    assert!(none.contains("no job ended here"), "{none}");
    let (_daemon, url) = world.serve(&["--ticket"]);
    let ticket = url.strip_prefix("longhaul://").and_then(|it| it.split_once('@')).unwrap().0.to_owned();
    let to = format!("{url}sub/there.bin");
    for (words, code) in [
        (vec!["cp", "here.bin", to.as_str()], 0),
        (vec!["cp", "-n", "here.bin", to.as_str()], 0),
        (vec!["cp", to.as_str(), "back.bin"], 0),
        (vec!["sync", "there/sub", "synced"], 0),
        (vec!["cp", "nothing.bin", to.as_str()], 5),
    ] {
        let (ended, _, err) = world.run("home-here", &words);
        assert_eq!(ended, Some(code), "{words:?}: {err}");
    }
    let jobs = world.list("home-here", &["job", "history"]);
    let shown: Vec<_> = jobs.iter().map(|job| (text(job, "command"), text(job, "end"), job["exit"].as_u64())).collect();
    let wanted = [("cp", "sends", 5), ("sync", "copies", 0), ("cp", "receives", 0), ("cp", "sends", 0)];
    assert_eq!(
        shown,
        wanted.map(|(command, end, exit)| (command, end, Some(exit))),
        "newest first, without the dry run"
    );
    let pushed = &jobs[3];
    assert_eq!(text(pushed, "source"), path(&world.at("here.bin")), "as it is found again from anywhere");
    assert!(text(pushed, "destination").starts_with("longhaul://127.0.0.1:"), "{pushed}");
    assert_eq!((pushed["bytes"].as_u64(), pushed["files"].as_u64()), (Some(300_000), Some(1)));
    assert!(jobs[0]["error"].as_str().is_some_and(|why| why.contains("nothing.bin")) && jobs[0]["receipt"].is_null());
    assert_eq!(world.list("home-here", &["job", "history", "--failed"]), jobs[..1]);
    assert_eq!(world.list("home-here", &["job", "history", "--limit", "2"]), jobs[..2]);
    let (_, page, _) = world.run("home-here", &["job", "history", "--failed"]);
    assert!(page.contains("5 vanished") && page.contains("No such file"), "{page}");
    // At the daemon: the same jobs by the same names, with paths of that host.
    until("the daemon has written both", LATE, || world.list("home-there", &["job", "history"]).len() == 2);
    let served = world.list("home-there", &["job", "history"]);
    let (sent, received) = (&served[0], &served[1]);
    assert_eq!((text(sent, "end"), text(received, "end"), text(received, "side")), ("sends", "receives", "daemon"));
    assert_eq!((text(received, "job"), text(sent, "job")), (text(pushed, "job"), text(&jobs[2], "job")));
    assert_eq!(text(received, "destination"), path(&world.at("there/sub/there.bin")));
    assert_eq!((received["bytes"].as_u64(), sent["files"].as_u64()), (Some(300_000), Some(1)));
    let client = world.run("home-here", &["key", "show"]).1;
    assert!(client.contains(text(received, "peer")) && text(received, "peer").starts_with("lh:"), "{received}");
    for home in ["home-here", "home-there"] {
        let history = std::fs::read_to_string(world.at(home).join("history.jsonl")).unwrap();
        assert!(!history.contains(&ticket[44..]), "a ticket in the history: {history}");
    }
    receipts(&world, &jobs, &served);
}

fn receipts(world: &World, jobs: &[Value], served: &[Value]) {
    let own = world.list("home-here", &["receipt", "list"]);
    let shown: Vec<_> = own.iter().map(|it| (text(it, "direction"), text(it, "receipt"))).collect();
    let wanted = [("copied", &jobs[1]), ("received", &jobs[2]), ("sent", &jobs[3])];
    assert_eq!(shown, wanted.map(|(way, job)| (way, text(job, "job"))));
    let theirs = world.list("home-there", &["receipt", "list"]);
    assert_eq!(theirs.len(), 2);
    for (receipt, job) in own.iter().zip(&jobs[1..]).chain(theirs.iter().zip(served)) {
        assert_eq!(receipt["has_both_signatures"], true, "{receipt}");
        assert_eq!((&receipt["source"], &receipt["destination"]), (&job["source"], &job["destination"]));
        assert_eq!((receipt["files"].as_u64(), receipt["bytes"].as_u64()), (Some(1), Some(300_000)));
        assert_eq!(receipt["file"], job["receipt"]);
    }
    let (code, _, err) = world.run("home-here", &["verify", text(&own[1], "file"), "back.bin"]);
    assert_eq!(code, Some(0), "the file of the list is what verify takes: {err}");
    assert_eq!(world.list("home-here", &["receipt", "list", "--limit", "1"]), own[..1]);
    let (_, page, _) = world.run("home-here", &["receipt", "list"]);
    assert!(page.contains("both") && page.contains(&format!("{} -> ", path(&world.at("here.bin")))), "{page}");
    // A receipt that the user named is found by the history.
    let words = ["cp", "--receipt", "mine.txt", "here.bin", "again.bin"];
    assert_eq!(world.run("home-here", &words).0, Some(0));
    let newest = &world.list("home-here", &["receipt", "list"])[0];
    assert_eq!(text(newest, "file"), path(&world.at("mine.txt")));
}

#[test]
fn a_history_that_cannot_be_written_fails_no_job_and_is_said_once() {
    let world = World::new();
    std::fs::create_dir_all(world.at("home-here/history.jsonl")).unwrap();
    let (code, _, err) = world.run("home-here", &["cp", "here.bin", "copy.bin"]);
    assert_eq!((code, err.matches("history.jsonl cannot be written").count()), (Some(0), 1), "{err}");
    let (code, out, _) = world.run("home-here", &["cp", "--json", "here.bin", "other.bin"]);
    let last: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!((code, text(&last, "event")), (Some(0), "done"), "the last line stays the last: {out}");
    assert!(out.contains("cannot be written"));
    let (code, _, err) = world.run("home-here", &["job", "history"]);
    let says = err.contains("read the history") && err.contains("history.jsonl away");
    assert!(code == Some(2) && says, "{code:?} {err}");
}

/// A copy that takes minutes, once the daemon has it.
fn slow_copy(world: &World, url: &str) -> Process {
    std::fs::write(world.at("slow.bin"), vec![7; 32 << 20]).unwrap();
    let to = format!("{url}slow.bin");
    let words = ["cp", "--json", "--rate", "1Mbit", "slow.bin", to.as_str()];
    let copy = Process(world.longhaul("home-here", &words).stdout(Stdio::piped()).spawn().unwrap());
    // The daemon knows of it first.
    for host in ["home-there", "home-here"] {
        until("the job runs", LATE, || world.list(host, &["job", "list"]).len() == 1);
    }
    copy
}

#[test]
fn a_job_that_a_signal_stopped_has_its_line() {
    let world = World::new();
    let (_daemon, url) = world.serve(&["--ticket"]);
    let mut copy = slow_copy(&world, &url);
    let process = rustix::process::Pid::from_child(&copy.0);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    assert_eq!(ended(&mut copy), Some(32));
    let jobs = world.list("home-here", &["job", "history"]);
    assert_eq!((jobs.len(), jobs[0]["exit"].as_u64(), text(&jobs[0], "end")), (1, Some(32), "sends"), "{jobs:?}");
    assert_eq!(text(&jobs[0], "job").len(), 32);
    until("the daemon has its line, too", LATE, || {
        world.list("home-there", &["job", "history", "--failed"]).first().is_some_and(|it| it["job"] == jobs[0]["job"])
    });
}

#[test]
fn a_revoked_ticket_lets_nobody_in_and_what_runs_on_it_ends_at_once() {
    let world = World::new();
    let (_, none, _) = world.run("home-there", &["ticket", "list"]);
    assert!(none.contains("no ticket is good here"), "{none}");
    let (_daemon, url) = world.serve(&["--ticket", "--wo"]);
    let (_other, _) = world.serve(&["--ticket=once"]);
    let mut copy = slow_copy(&world, &url);
    let tickets = world.list("home-there", &["ticket", "list"]);
    let find = |kind: &str| tickets.iter().find(|it| it["kind"] == kind).unwrap_or_else(|| panic!("{tickets:?}"));
    let (used, other) = (find("reusable"), find("once"));
    let counts = (used["running"].as_u64(), used["sessions"].as_u64(), other["running"].as_u64());
    assert_eq!((counts, text(used, "access")), ((Some(1), Some(1), Some(0)), "wo"));
    let (_, page, _) = world.run("home-there", &["ticket", "list"]);
    let secret = url.strip_prefix("longhaul://").and_then(|it| it.split_once('@')).unwrap().0;
    assert!(page.contains(&text(used, "ticket")[..8]) && page.contains("daemon ends") && !page.contains(&secret[44..]));
    assert_eq!(world.list("home-here", &["ticket", "list"]), [] as [Value; 0], "another home's");
    let since = Instant::now();
    let (code, said, err) = world.run("home-there", &["ticket", "revoke", &text(used, "ticket")[..6]]);
    assert!(code == Some(0) && said.contains("one session that ran on it ends now"), "{said}{err}");
    let ended = ended(&mut copy);
    assert!(ended == Some(12) && since.elapsed() < SOON, "{ended:?} after {:?}", since.elapsed());
    let words = std::io::read_to_string(copy.0.stdout.take().unwrap()).unwrap();
    assert!(words.contains("the ticket is revoked here"), "{words}");
    let (code, _, err) = world.run("home-here", &["cp", "here.bin", &url]);
    assert_eq!(code, Some(12), "{err}");
    let left = world.list("home-there", &["ticket", "list"]);
    assert!(left.len() == 1 && left[0]["ticket"] == other["ticket"], "the other daemon's stays: {left:?}");
    let (code, _, err) = world.run("home-there", &["ticket", "revoke", text(used, "ticket")]);
    assert!(code == Some(5) && err.contains("longhaul ticket list"), "{code:?} {err}");
}

#[test]
fn what_is_on_a_daemon_is_listed_in_order_whole_and_without_a_word_to_the_terminal() {
    use std::os::unix::ffi::OsStrExt;
    let world = World::new();
    let there = world.at("there");
    let hostile = std::ffi::OsStr::from_bytes(b"c\x1b[31m\xff\n");
    std::fs::write(there.join(hostile), b"123").unwrap();
    std::fs::write(there.join("b"), b"12345").unwrap();
    std::fs::write(there.join("sub/in"), b"").unwrap();
    std::fs::write(there.join(".longhaul-0123456789abcdef.part"), b"").unwrap();
    std::os::unix::fs::symlink("/nowhere", there.join("a")).unwrap();
    let (_daemon, url) = world.serve(&["--ticket"]);
    let local = path(&there).to_owned();
    // The same here and there.
    for address in [&url, &local] {
        let (code, out, err) = world.run("home-here", &["ls", address]);
        assert_eq!((code, &*out), (Some(0), "a\nb\nc\\x1b[31m\\xff\\x0a\nsub/\n"), "{err}");
        let (_, out, _) = world.run("home-here", &["ls", "-R", address]);
        assert!(out.ends_with("sub/\nsub/in\n"), "{out}");
        let (_, out, _) = world.run("home-here", &["ls", "-l", address]);
        let lines: Vec<&str> = out.lines().collect();
        assert!(lines[0].starts_with('l') && lines[0].ends_with(" a -> /nowhere") && lines.len() == 4, "{out}");
        assert!(lines[1].starts_with("-rw") && lines[1].contains(" 5 20") && lines[3].starts_with('d'), "{out}");
        let (code, out, _) = world.run("home-here", &["ls", "--json", address]);
        let all: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((code, text(&all[2], "path_hex")), (Some(0), "631b5b33316dff0a"), "{out}");
        assert_eq!(
            (&all[1]["bytes"], text(&all[0], "target"), text(&all[3], "kind")),
            (&5.into(), "/nowhere", "folder")
        );
        let end = all.last().unwrap();
        assert_eq!((text(end, "event"), &end["entries"], &end["failed"]), ("done", &4.into(), &0.into()));
        let (_, out, _) = world.run("home-here", &["ls", "-U", address]);
        assert_eq!(out.lines().count(), 4, "{out}");
        let (code, _, err) = world.run("home-here", &["ls", &format!("{address}/absent")]);
        assert!(code == Some(5) && err.contains("next: "), "{code:?} {err}");
    }
    let (code, out, _) = world.run("home-here", &["ls", &format!("{url}b")]);
    assert!(code == Some(0) && out.ends_with("/b\n") && !out.contains(url.split('@').next().unwrap()), "{out}");
    // No key, no home, no history: looking leaves nothing.
    assert!(world.at("home-here").join("key").exists() && !world.at("home-here").join("history").exists());
    let (code, out, err) = world.run("home-none", &["ls", &local]);
    assert!(code == Some(0) && out.starts_with("a\n") && !world.at("home-none").exists(), "{err}");
    let (_wo, url) = world.serve(&["--ticket", "--wo"]);
    let (code, out, err) = world.run("home-here", &["ls", &url]);
    assert!(code == Some(12) && out.is_empty() && err.contains("needs the right to read"), "{code:?} {err}");
}
