//! Receipts that refer to a former one, and how many are kept: the real binary at both ends.
//!
//! For: a home that does not grow by a tree's whole list with each run that changed nothing.
//! Invariants: each host has a home of its own; both ends' receipts are compared byte for byte; what `verify` says is read, not only its exit code.
//! Absent on purpose: comparing lists (`node::job::receipt::former`), which ones go (`retention`), the frames (`proto::receipt::agreement`).

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Their list is longer than 64 KiB, with digests or without.
const FILES: usize = 600;
/// A receipt that refers to another one is shorter.
const SMALL: u64 = 1500;
const MISMATCH: i32 = 40;
const NOT_FOUND: i32 = 5;
/// A busy machine's.
const LATE: Duration = Duration::from_secs(60);

struct World {
    folder: PathBuf,
    daemon: Option<(Child, String)>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl World {
    fn new(trees: &[&str]) -> World {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("longhaul-receipts-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let world = World { folder: std::env::temp_dir().join(name), daemon: None };
        std::fs::create_dir_all(world.at("there")).unwrap();
        for tree in trees {
            std::fs::create_dir_all(world.at(tree)).unwrap();
            for at in 0..FILES {
                std::fs::write(world.at(tree).join(file_name(at)), at.to_string()).unwrap();
            }
        }
        world
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn longhaul(&self, host: &str, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.env("LONGHAUL_HOME", self.at(host)).env_remove("LONGHAUL_TICKET").env_remove("LONGHAUL_TEST_WAIT");
        command.current_dir(&self.folder).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, host: &str, words: &[&str]) -> (Option<i32>, String) {
        let output = self.longhaul(host, words).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    }

    /// A daemon of the other host, in place of one that ran before.
    fn serve(&mut self, words: &[&str]) {
        self.stop();
        let log = std::fs::File::create(self.at("log")).unwrap();
        let words = [&["serve", "--listen", "127.0.0.1:0", "--ticket=reusable", "--root", "there"], words].concat();
        let mut daemon = self.longhaul("home-there", &words).stderr(log).spawn().unwrap();
        let url = BufReader::new(daemon.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        self.daemon = Some((daemon, url));
    }

    fn stop(&mut self) {
        if let Some((mut daemon, _)) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }

    /// Copies and gives what the receipt list says of it, newest first, and the receipt's file.
    fn copy(&self, words: &[&str]) -> (Value, PathBuf) {
        let url = self.daemon.as_ref().map_or("", |(_, url)| url);
        let words: Vec<String> = words.iter().map(|word| word.replace("DAEMON/", url)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (code, said) = self.run("home-here", &words);
        assert_eq!(code, Some(0), "{words:?}: {said}");
        let (_, list) = self.run("home-here", &["receipt", "list", "--json", "--limit", "1"]);
        let newest = serde_json::from_str::<Value>(&list).unwrap()[0].clone();
        let file = PathBuf::from(newest["file"].as_str().unwrap());
        (newest, file)
    }

    /// The other end's copy of a receipt, which it may still be writing.
    fn theirs(&self, file: &Path) -> PathBuf {
        let theirs = self.at("home-there/receipts").join(file.file_name().unwrap());
        let end = Instant::now() + LATE;
        while !theirs.exists() {
            assert!(Instant::now() < end, "the other end has no {}", theirs.display());
            std::thread::sleep(Duration::from_millis(20));
        }
        theirs
    }
}

/// Long, so that few of them make a long list.
fn file_name(at: usize) -> String {
    format!("{}{at:05}", "a file of the tree ".repeat(5))
}

fn bytes(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

#[test]
fn a_run_that_changed_nothing_has_a_small_receipt_at_both_ends_and_verify_follows_it() {
    let mut world = World::new(&["here/tree", "there/tree"]);
    world.serve(&[]);
    let (push, pull, local) =
        (["cp", "here/tree", "DAEMON/to/"], ["cp", "DAEMON/tree", "here/to/"], ["cp", "here/tree", "local/"]);
    for (words, lands) in [(push, "there/to"), (pull, "here/to"), (local, "local")] {
        let (first, whole) = world.copy(&words);
        assert!(first["unchanged_since"].is_null() && bytes(&whole) > 64 << 10, "{first}");
        for _ in 0..2 {
            let (next, small) = world.copy(&words);
            assert_eq!(next["unchanged_since"], first["receipt"], "each refers to the first");
            assert!(bytes(&small) < SMALL && next["has_both_signatures"] == true);
            assert_eq!((&next["files"], &next["bytes"]), (&first["files"], &first["bytes"]));
            if words != local {
                assert_eq!(std::fs::read(&small).unwrap(), std::fs::read(world.theirs(&small)).unwrap());
            }
            let (code, said) = world.run("home-here", &["verify", small.to_str().unwrap(), lands]);
            assert_eq!(code, Some(0), "{said}");
            assert!(said.contains("verified 600 files") && said.contains("all as the receipt says"), "{said}");
            assert!(said.contains(first["receipt"].as_str().unwrap()) && said.contains("were not read then"), "{said}");
        }
        let by_content = ["--checksum", words[1], words[2]];
        let (read, small) = world
            .copy(&[&["sync"], &by_content[..1], &[&format!("{}/", words[1]), &format!("{}tree", words[2])]].concat());
        assert!(read["receipt"].is_string() && small.exists());
    }
    let (_, list) = world.run("home-here", &["receipt", "list"]);
    assert!(list.matches("(unchanged since ").count() >= 6, "{list}");
}

#[test]
fn a_changed_byte_is_found_by_a_receipt_that_refers_and_a_former_one_that_is_missing_or_altered_is_said() {
    let world = World::new(&["here/tree"]);
    let words = ["cp", "here/tree", "local/"];
    let (first, whole) = world.copy(&words);
    let (_, small) = world.copy(&words);
    let (receipt, name) = (small.to_str().unwrap(), whole.file_name().unwrap().to_str().unwrap());
    let verify = |receipt: &str| world.run("home-here", &["verify", receipt, "local"]);

    let file = world.at("local/tree").join(file_name(377));
    let old = std::fs::metadata(&file).unwrap().modified().unwrap();
    std::fs::write(&file, "378").unwrap();
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(old).unwrap();
    let (code, said) = verify(receipt);
    assert!(code == Some(MISMATCH) && said.contains("00377: DIFFERS: same length"), "{code:?} {said}");

    // Taken elsewhere it is found by its former one among those that are kept here; on another host, beside it.
    std::fs::copy(&small, world.at("taken.receipt")).unwrap();
    let (code, _) = verify("taken.receipt");
    assert_eq!(code, Some(MISMATCH), "compared, and the same found");
    let (code, said) = world.run("home-elsewhere", &["verify", "taken.receipt", "local"]);
    assert!(code == Some(NOT_FOUND) && said.contains(name) && said.contains("put "), "{code:?} {said}");
    std::fs::copy(&whole, world.at(name)).unwrap();
    let (code, said) = world.run("home-elsewhere", &["verify", "taken.receipt", "local"]);
    assert!(code == Some(MISMATCH) && said.contains("00377: DIFFERS"), "{code:?} {said}");

    let text = std::fs::read_to_string(&whole).unwrap();
    let other = world.copy(&["cp", "here/tree", "other/"]).1;
    let again = world.copy(&["cp", "here/tree", "other/"]).1;
    for (bad, why) in [
        (text.replacen("00042\n", "00043\n", 1), "its own digest does not hold"),
        (text.replacen("signed sender ", "signed sender 0", 1), "malformed"),
        (std::fs::read_to_string(other).unwrap(), "not the receipt that"),
        (std::fs::read_to_string(again).unwrap(), "refers to a third one"),
        (String::new(), "the end is missing"),
    ] {
        std::fs::write(&whole, bad).unwrap();
        let (code, said) = verify(receipt);
        assert!(code == Some(MISMATCH) && said.contains(why) && said.contains(name), "{why}: {code:?} {said}");
        assert!(!said.contains("00377"), "nothing was compared: {said}");
    }
    assert!(first["receipt"].is_string());
}

#[test]
fn a_changed_tree_or_an_end_without_the_former_receipt_gives_a_whole_one() {
    let mut world = World::new(&["here/tree"]);
    world.serve(&[]);
    let words = ["cp", "here/tree", "DAEMON/to/"];
    let (_, first) = world.copy(&words);
    // The sender has it no more, then the receiver; each time the next run refers to what was written then.
    let mut former = first;
    for lost_here in [true, false] {
        std::fs::remove_file(if lost_here { former.clone() } else { world.theirs(&former) }).unwrap();
        let (without, whole) = world.copy(&words);
        assert!(without["unchanged_since"].is_null() && bytes(&whole) > 64 << 10, "{without}");
        assert_eq!(std::fs::read(&whole).unwrap(), std::fs::read(world.theirs(&whole)).unwrap());
        assert_eq!(world.copy(&words).0["unchanged_since"], without["receipt"]);
        former = whole;
    }
    std::fs::write(world.at("here/tree").join(file_name(3)), "3 and more").unwrap();
    assert!(world.copy(&words).0["unchanged_since"].is_null());
    assert!(world.copy(&words).0["unchanged_since"].is_string());
    // Where the user named a place, the receipt is to be complete there.
    let (_, said) = world.run("home-here", &["cp", "--receipt", "mine.receipt", "here/tree", "local/"]);
    let (_, again) = world.run("home-here", &["cp", "--receipt", "mine.receipt", "here/tree", "local/"]);
    assert!(bytes(&world.at("mine.receipt")) > 64 << 10, "{said}{again}");
}

#[test]
fn receipts_that_are_not_to_be_kept_go_after_a_job_at_both_ends_and_the_list_says_what_is_kept() {
    let mut world = World::new(&["here/tree"]);
    std::fs::write(world.at("config.toml"), "receipts_keep = \"30d / 1GiB\"\n").unwrap();
    world.serve(&["--config", "config.toml"]);
    let words = ["cp", &format!("here/tree/{}", file_name(1)), "DAEMON/"];
    let (_, old) = world.copy(&words);
    let theirs = world.theirs(&old);
    let (_, list) = world.run("home-here", &["receipt", "list"]);
    assert!(list.contains("1 receipt, ") && list.contains("all are kept"), "{list}");
    for file in [&old, &theirs] {
        let month = std::time::SystemTime::now() - Duration::from_secs(31 * 86_400);
        std::fs::File::options().append(true).open(file).unwrap().set_modified(month).unwrap();
    }
    assert_eq!(world.run("home-here", &["receipt", "keep"]).0, Some(0), "it only shows");
    assert!(old.exists());
    let (code, said) = world.run("home-here", &["receipt", "keep", "40 d/10 MiB"]);
    assert!(code == Some(0) && said.contains("1 receipt, ") && said.contains("kept: 40d / 10MiB"), "{said}");
    assert!(old.exists());
    std::fs::write(world.at("home-here/receipts_keep"), "30d\n").unwrap();
    // The daemon looked when its first job ended: with the large receipt of this one it looks again.
    let (_, new) = world.copy(&["cp", "here/tree", "DAEMON/"]);
    assert!(new.exists() && !old.exists(), "gone when the command has ended");
    let end = Instant::now() + LATE;
    while theirs.exists() {
        assert!(Instant::now() < end, "the daemon keeps what it was told not to keep");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(world.theirs(&new).exists());
    while !std::fs::read_to_string(world.at("log")).unwrap().contains("receipts_keep 30d / 1GiB: removed 1 receipt") {
        assert!(Instant::now() < end, "{}", std::fs::read_to_string(world.at("log")).unwrap());
        std::thread::sleep(Duration::from_millis(20));
    }
    let (code, said) = world.run("home-here", &["receipt", "keep", "soon"]);
    assert!(code == Some(2) && said.contains("write an age in days, a size, or both"), "{said}");
}

/// Killed at any step, the end that receives has its receipt whole or not at all, and the next run has one. The steps are waited in by builds with debug assertions.
#[cfg(debug_assertions)]
#[test]
fn killed_at_any_step_of_writing_it_an_end_has_a_whole_receipt_or_none() {
    for (step, is_named) in [("receipt", false), ("receipt flushed", false), ("receipt named", true)] {
        let mut world = World::new(&["there/tree"]);
        world.serve(&[]);
        let url = world.daemon.as_ref().unwrap().1.clone();
        let words = ["cp", &format!("{url}tree"), "local/"];
        let folder = world.at("home-here/receipts");
        let names = |ending: &str| -> Vec<PathBuf> {
            let list = std::fs::read_dir(&folder).map(|list| list.map(|it| it.unwrap().path()).collect::<Vec<_>>());
            list.unwrap_or_default().into_iter().filter(|it| it.to_str().unwrap().ends_with(ending)).collect()
        };
        for refers in [false, true] {
            let receipts = names(".receipt").len();
            let mut command = world.longhaul("home-here", &words);
            let mut process = command.env("LONGHAUL_TEST_WAIT", format!("{step}:600000")).spawn().unwrap();
            let end = Instant::now() + LATE;
            // Where it waits: the trailer is in the part, or the part has its name.
            let waits = || match is_named {
                true => names(".receipt").len() > receipts,
                false => names(".receiver.part").iter().any(|part| {
                    std::fs::read(part).is_ok_and(|text| text.windows(15).any(|it| it == b"signed receiver"))
                }),
            };
            while !waits() {
                assert!(Instant::now() < end && process.try_wait().unwrap().is_none(), "{step}: it never waits");
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_millis(50));
            process.kill().unwrap();
            let output = process.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            assert!(
                !said.contains("  receipt "),
                "{step}: nobody is told of it before its name is on the disk: {said}"
            );
            assert_eq!(names(".receipt").len(), receipts + usize::from(is_named), "{step}, refers {refers}");
            for receipt in names(".receipt") {
                let (code, said) = world.run("home-here", &["verify", receipt.to_str().unwrap(), "local"]);
                assert_eq!(code, Some(0), "{step}, refers {refers}: {said}");
            }
            // The next run is as if that one had not been.
            world.copy(&words);
        }
        let small = names(".receipt").iter().filter(|it| bytes(it) < SMALL).count();
        assert!(small > 0, "{step}: one refers to a former one");
        // What the dead process was writing goes at a later start, once it is not young any more.
        for part in names(".part") {
            let hour = std::time::SystemTime::now() - Duration::from_secs(3600);
            std::fs::File::options().append(true).open(part).unwrap().set_modified(hour).unwrap();
        }
        let _ = std::fs::remove_file(world.at("home-here/run/swept"));
        world.copy(&words);
        let end = Instant::now() + LATE;
        while !names(".part").is_empty() {
            assert!(Instant::now() < end, "{step}: {:?}", names(".part"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The driver's loop comes round each 100 ms if nothing wakes it: a job that found nothing to refer to must not wait for that.
#[test]
fn a_small_job_does_not_wait_for_a_former_receipt() {
    let mut world = World::new(&[]);
    world.serve(&[]);
    let mut least = Duration::MAX;
    for at in 0..60 {
        let name = format!("one-{at}");
        std::fs::write(world.at(&name), "1").unwrap();
        let begun = Instant::now();
        world.copy(&["cp", &name, "DAEMON/"]);
        least = least.min(begun.elapsed());
        // A machine that is busy with others' work may be late, but not each time.
        if least < Duration::from_millis(90) {
            return;
        }
    }
    panic!("{least:?} for the quickest of sixty copies of one byte");
}
