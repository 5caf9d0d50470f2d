//! The border of the library, as a program that links it uses it.
//!
//! For: `JobRequest` in, `JobEvent`s and an outcome out, a server that is stopped; and the two examples, run as they stand.
//! In and out: folders of their own below the system's temporary one; loopback alone.
//! Invariants: the bytes at the destination are those at the source.
//! Absent on purpose: what jobs do in trouble (lab/e2e, engine/tests/sim).

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use node::client::Node;
use node::event::JobEvent;
use node::identity::Home;
use node::identity::ticket::Uses;
use node::job::registry::{Answer, Question, control_sockets};
use node::request::JobRequest;
use node::serve::settings::Settings;
use node::serve::{Bound, Log};
use text::exit::Exit;

/// Gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let folder = std::env::temp_dir().join(format!("longhaul-border-{name}-{}", std::process::id()));
        for part in ["source/deep", "root"] {
            std::fs::create_dir_all(folder.join(part)).expect("a folder");
        }
        let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 7 + at / 251) as u8).collect();
        std::fs::write(folder.join("source/large"), content).expect("a file");
        std::fs::write(folder.join("source/deep/small"), b"small").expect("a file");
        Scratch(folder)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    fn is_copied(&self) -> bool {
        ["large", "deep/small"].iter().all(|name| {
            let read = |below: &str| std::fs::read(self.at(below).join(name)).ok();
            read("source").is_some() && read("source") == read("root/copy")
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_job_is_asked_for_followed_and_ended_through_the_library() {
    let scratch = Scratch::new("library");
    let settings = Settings {
        listen: "127.0.0.1:0".parse().expect("an address"),
        workers: Some(1),
        ..Settings::of(scratch.at("root"))
    };
    let daemon = Home::at(&scratch.at("daemon")).expect("a home");
    let server = Bound::bind(settings, &daemon, &[]).expect("a free port").start(Log::nowhere()).expect("workers");
    let ticket = server.ticket(Uses::Many).expect("a ticket");
    let address = format!("longhaul://{ticket}@{}/copy", server.address().expect("it listens"));
    let control = server.control();
    let served = std::thread::spawn(move || server.run());
    let node = Node::open(&Home::at(&scratch.at("client")).expect("a home")).expect("an identity");
    // At this rate the copy takes more than a second: progress is reported twice a second.
    let job =
        node.start(JobRequest::copy([scratch.at("source")], address).workers(1_u16).rate_bps(16_000_000_u64).build());
    let (mut figures, mut ended) = (0, 0);
    for event in job.events() {
        match event {
            JobEvent::Progress(now) => figures += u64::from(now.bytes_done > 0),
            JobEvent::Ended(report) => ended += report.files,
            _ => {}
        }
    }
    assert_eq!(job.wait().expect("it ended well"), Exit::Whole);
    assert!(figures > 0 && ended == 2, "{figures} figures, {ended} files");
    assert!(scratch.is_copied());
    // An address that nobody serves is a failure of the job, with its kind, and not of the process.
    let gone = JobRequest::copy([scratch.at("source")], format!("longhaul://{ticket}@127.0.0.1:1/")).build();
    assert_eq!(node.start(gone).wait().expect_err("nobody listens there").exit, Exit::Connect);
    control.stop();
    served.join().expect("no panic").expect("it was stopped");
}

/// Cargo builds the examples of a package before its tests run, two folders above a test's own binary.
fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a test has a file");
    own.parent().and_then(Path::parent).expect("target/debug").join("examples").join(name)
}

#[test]
fn the_examples_copy_a_folder_over_loopback() {
    let scratch = Scratch::new("examples");
    let mut daemon = Command::new(example("serve"))
        .arg(scratch.at("root"))
        .arg("127.0.0.1:0")
        .env("LONGHAUL_HOME", scratch.at("daemon"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the example was built");
    let mut address = String::new();
    BufReader::new(daemon.stdout.take().expect("asked for")).read_line(&mut address).expect("an address");
    let copied = Command::new(example("copy"))
        .arg(scratch.at("source"))
        .arg(format!("{}copy", address.trim()))
        .env("LONGHAUL_HOME", scratch.at("client"))
        .output()
        .expect("the example was built");
    let _ = daemon.kill();
    let _ = daemon.wait();
    let said = String::from_utf8_lossy(&copied.stderr);
    assert!(copied.status.success() && said.contains("2 files, 3000005 bytes"), "{said}");
    assert!(scratch.is_copied());
}

#[test]
fn two_nodes_of_one_process_have_a_control_socket_each_and_neither_takes_the_others_away() {
    let scratch = Scratch::new("two-nodes");
    let homes = ["one", "other"].map(|name| Home::at(&scratch.at(name)).expect("a home"));
    let [one, other] = [&homes[0], &homes[1]].map(|home| Node::open(home).expect("a node"));
    let asked = |home: &Home| {
        let sockets = control_sockets(home).expect("a folder");
        let answers = sockets.iter().filter_map(|socket| socket.ask(&Question::List {}).expect("an answer"));
        answers.filter(|answer| matches!(answer, Answer::Jobs { jobs } if jobs.is_empty())).count()
    };
    assert_eq!([asked(&homes[0]), asked(&homes[1])], [1, 1]);
    drop(one);
    assert_eq!([asked(&homes[0]), asked(&homes[1])], [0, 1], "the node that is left answers");
    other.registry().shut();
    assert_eq!(asked(&homes[1]), 0);
}
