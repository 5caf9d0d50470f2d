//! Rights given up stay given up; signals arrive as something to read.
//!
//! What changes a whole process is tested in a child: this binary again, told by the environment which part to play.
//! Landlock and signal masks belong to one thread, and are tested in one.

use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::Duration;

use sys::event::{Interest, poll};
use sys::{confine, fs, signals};

const PART: &str = "LONGHAUL_TEST_PART";
const LONG: Duration = Duration::from_secs(20);

/// Runs one test of this binary in a process of its own.
fn in_a_child(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", test, "--nocapture"]).env(PART, test);
    command
}

fn is_child(test: &str) -> bool {
    std::env::var(PART).is_ok_and(|part| part == test)
}

#[test]
fn landlock_leaves_the_roots_and_nothing_else() {
    let base = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sys-rights-{}", std::process::id()));
    let (read, write) = (base.join("read"), base.join("write"));
    for folder in [&read, &write] {
        std::fs::create_dir_all(folder).expect("folder");
        std::fs::write(folder.join("file"), b"contents").expect("file");
    }
    let outside = base.join("outside");
    std::fs::write(&outside, b"contents").expect("file");
    let thread = std::thread::spawn(move || {
        let early = fs::Dir::open(base.as_os_str().as_encoded_bytes()).expect("open");
        let roots = [(read.as_os_str().as_encoded_bytes(), false), (write.as_os_str().as_encoded_bytes(), true)];
        let answer = confine::landlock(&roots, false).expect("roots are there");
        println!("{}", answer.reason);
        if !answer.holds {
            assert!(!answer.reason.is_empty());
            return base;
        }
        let denied = |error: std::io::Error| assert_eq!(error.raw_os_error(), Some(libc::EACCES), "{error}");
        denied(std::fs::read(&outside).expect_err("outside"));
        denied(early.open_file(b"outside", false).expect_err("by an old descriptor of a folder above"));
        assert_eq!(std::fs::read(read.join("file")).expect("inside"), b"contents");
        denied(std::fs::write(read.join("file"), b"x").expect_err("read only"));
        denied(std::fs::write(read.join("new"), b"x").expect_err("read only"));
        let dir = fs::Dir::open(write.as_os_str().as_encoded_bytes()).expect("inside");
        dir.make_dir(b"folder", 0o700).expect("make");
        dir.create_file(b"folder/part", true, false).expect("create");
        dir.rename(b"folder/part", b"folder/whole").expect("rename");
        fs::truncate(&dir.create_file(b"file", false, true).expect("open"), 5).expect("truncate");
        dir.sync(b"folder").expect("sync");
        base
    });
    let base = thread.join().expect("the rest of the process is not confined");
    std::fs::remove_dir_all(base).expect("clean");
}

#[test]
fn a_missing_root_is_an_error_where_landlock_is() {
    let thread = std::thread::spawn(|| confine::landlock(&[(b"/no/such/folder", false)], false));
    match thread.join().expect("thread") {
        Ok(answer) => assert!(!answer.holds),
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOENT)),
    }
}

#[test]
fn another_user_for_good() {
    const NAME: &str = "another_user_for_good";
    let root = rustix::process::getuid().is_root();
    if is_child(NAME) {
        let idle = std::thread::spawn(|| std::thread::sleep(Duration::from_millis(100)));
        confine::drop_to(65_534, 65_534, false).expect("drop");
        confine::drop_to(65_534, 65_534, false).expect("already so");
        assert!(confine::drop_to(0, 0, false).is_err());
        let status = std::fs::read_to_string("/proc/self/status").expect("status");
        assert!(status.contains("Uid:\t65534\t65534\t65534\t65534"), "{status}");
        assert!(status.contains("Gid:\t65534\t65534\t65534\t65534"), "{status}");
        assert!(status.contains("Groups:\t65534"), "{status}");
        // All threads: the idle one could not write root's files either.
        for task in std::fs::read_dir("/proc/self/task").expect("tasks") {
            let status = std::fs::read_to_string(task.expect("task").path().join("status")).expect("status");
            assert!(status.contains("Uid:\t65534\t65534\t65534\t65534"), "{status}");
        }
        idle.join().expect("thread");
    } else if root {
        assert!(in_a_child(NAME).status().expect("child").success());
    } else {
        assert_eq!(confine::drop_to(65_534, 65_534, false).expect_err("no right to").raw_os_error(), Some(libc::EPERM));
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        confine::drop_to(uid, gid, false).expect("is so already");
    }
}

#[test]
fn no_program_gains_rights() {
    let thread = std::thread::spawn(|| {
        confine::no_new_privs().expect("set");
        rustix::thread::no_new_privs().expect("ask")
    });
    assert!(thread.join().expect("thread"));
}

#[test]
fn a_child_ends_with_its_parent() {
    const NAME: &str = "a_child_ends_with_its_parent";
    if is_child(NAME) {
        confine::die_with_parent().expect("set");
        println!("set");
        std::thread::sleep(LONG);
        panic!("outlived its parent");
    }
    // The parent is a thread that ends; the signal must come although this process goes on.
    let thread = std::thread::spawn(|| {
        let mut child = in_a_child(NAME).stdout(Stdio::piped()).spawn().expect("child");
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("output")));
        assert!(lines.any(|line| line.expect("line").contains("set")));
        child
    });
    let status = thread.join().expect("thread").wait().expect("child");
    assert_eq!(status.signal(), Some(signals::SIGTERM));
}

#[test]
fn signals_are_read_from_a_descriptor() {
    let thread = std::thread::spawn(|| {
        let watched = signals::watch(&[signals::SIGUSR1, signals::SIGUSR2]).expect("watch");
        assert_eq!(watched.take(), None);
        // SAFETY: sends a signal to this thread, which has it blocked (`watch` above).
        assert_eq!(unsafe { libc::raise(signals::SIGUSR1) }, 0);
        let ready = poll(&[(watched.as_fd(), Interest::Read)], Some(LONG)).expect("poll");
        assert!(ready[0].read);
        let signal = watched.take().expect("one");
        assert_eq!((signal.number, signal.from_process), (signals::SIGUSR1, std::process::id()));
        assert_eq!(watched.take(), None);
        assert!(signals::watch(&[9_999]).is_err());
    });
    thread.join().expect("thread");
}

#[test]
fn a_child_does_not_inherit_what_is_blocked() {
    let thread = std::thread::spawn(|| {
        let _watched = signals::watch(&[signals::SIGTERM]).expect("watch");
        let shell = || {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "kill -TERM $$; exit 7"]).arg0("sh");
            command
        };
        let mut deaf = shell();
        assert_eq!(deaf.status().expect("shell").code(), Some(7), "this is why the call exists");
        let mut heard = shell();
        let status = signals::unblock_in_child(&mut heard).status().expect("shell");
        assert_eq!(status.signal(), Some(signals::SIGTERM));
    });
    thread.join().expect("thread");
}
