//! A name service in the tests' hands: a fake `getent`, a fake userdbd, and both of them slow, mad or gone.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;

use super::*;

/// Of a clock that only goes on.
fn now() -> Duration {
    Duration::from_nanos(sys::clock::now_ns())
}

fn since(began: Duration) -> Duration {
    now() - began
}

/// A folder that goes with the test.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Place {
    fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("longhaul-names-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Place(folder)
    }

    /// A program in place of getent that writes down how often it was called.
    fn getent(&self, script: &str) -> PathBuf {
        let (path, calls) = (self.0.join("getent"), self.0.join("calls"));
        // Written whole under another name: a program that is being written cannot be started.
        let new = self.0.join("new");
        std::fs::write(&new, format!("#!/bin/sh\necho \"$@\" >>'{}'\n{script}\n", calls.display())).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(new, &path).unwrap();
        path
    }

    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.0.join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// A userdbd that gives these answers, one after another, to whoever asks.
    fn userdbd(&self, answers: &'static [&'static str]) -> PathBuf {
        let path = self.0.join("userdb");
        let listener = UnixListener::bind(&path).unwrap();
        let asked = self.0.join("asked");
        std::thread::spawn(move || {
            let mut answers = answers.iter();
            for stream in listener.incoming().flatten() {
                let (mut from, mut to) = (BufReader::new(&stream), &stream);
                let mut call = Vec::new();
                while from.read_until(0, &mut call).is_ok_and(|bytes| bytes > 0) {
                    let mut log = std::fs::File::options().append(true).create(true).open(&asked).unwrap();
                    writeln!(log, "{}", String::from_utf8_lossy(&call[..call.len() - 1])).unwrap();
                    call.clear();
                    let Some(answer) = answers.next() else { break };
                    to.write_all(answer.as_bytes()).and_then(|()| to.write_all(&[0])).unwrap();
                }
            }
        });
        path
    }
}

fn name(of: &str) -> Question {
    Question { is_group: false, key: Key::Name(of.as_bytes().into()) }
}

fn number(is_group: bool, id: u32) -> Question {
    Question { is_group, key: Key::Number(id) }
}

fn known(of: &str, id: u32) -> Answer {
    Answer::Known(of.as_bytes().into(), id)
}

/// Answers as a directory would: ann is 70001, the group `domain users` 70002.
const DIRECTORY: &str = r#"
kind=$1; shift; [ "$1" = -- ] && shift
status=0
for key; do
    case "$kind $key" in
    "passwd ann" | "passwd 70001" | "passwd ANN") echo "ann:*:70001:70002:Ann:/home/ann:/bin/sh" ;;
    "group domain users" | "group 70002") echo "domain users:*:70002:ann,bob" ;;
    *) status=2 ;;
    esac
done
exit $status"#;

#[test]
fn getent_answers_names_and_numbers_in_one_call_of_each_kind_and_answers_are_remembered() {
    let place = Place::new();
    let names = Names::new(vec![Source::Getent(place.getent(DIRECTORY))]);
    let group = Question { is_group: true, key: Key::Name((*b"domain users").into()) };
    let questions =
        [name("ann"), number(false, 70001), name("nobody-knows"), group, number(true, 70002), number(true, 5)];
    let users = known("domain users", 70002);
    let wanted = [known("ann", 70001), known("ann", 70001), Answer::Unknown, users.clone(), users, Answer::Unknown];
    for run in 0..3 {
        assert_eq!(names.ask(&questions), wanted, "run {run}");
    }
    let calls = ["passwd -- ann 70001 nobody-knows", "group -- domain users 70002 5"];
    assert_eq!(place.calls(), calls, "also that there is none is remembered");
    assert_eq!(names.ask(&[name("ANN")]), [known("ann", 70001)], "some services know no case");
}

#[test]
fn what_could_be_nobodys_name_is_not_asked_for() {
    let place = Place::new();
    let names = Names::new(vec![Source::Getent(place.getent(DIRECTORY))]);
    let long = "n".repeat(ID_NAME_BYTES_MAX + 1);
    for bad in ["-s", "--service=x", "a\nb", "a\tb", "a:b", "70001", "", &long] {
        assert_eq!(names.ask(&[name(bad)]), [Answer::Unknown], "{bad:?}");
    }
    let latin = Question { is_group: false, key: Key::Name((*b"J\xf6rg").into()) };
    assert_eq!(names.ask(&[latin]), [Answer::Unknown]);
    assert!(place.calls().is_empty());
}

#[test]
fn a_name_service_that_hangs_is_waited_for_once_and_then_not_for_a_while() {
    let place = Place::new();
    let hangs = place.getent("exec sleep 30");
    let names = Names::new(vec![Source::Getent(hangs)]);
    let began = now();
    assert_eq!(names.ask(&[name("ann")]), [Answer::Silent]);
    let took = since(began);
    assert!(took >= PATIENCE && took < PATIENCE * 3, "{took:?}");
    let began = now();
    for id in 0..1000 {
        assert_eq!(names.ask(&[number(false, id)]), [Answer::Silent]);
    }
    assert!(since(began) < PATIENCE, "who asks while the first question is open does not wait: {:?}", since(began));
    // The child is killed, and its service is left alone for a while.
    let until = now() + SERVICE_PATIENCE * 3;
    while names.shared.rests_until.load(Ordering::SeqCst) == 0 {
        assert!(now() < until, "it was given up");
        std::thread::sleep(Duration::from_millis(20));
    }
    let began = now();
    assert_eq!((names.ask(&[name("bob")]), place.calls().len()), (vec![Answer::Silent], 1));
    assert!(since(began) < PATIENCE / 2, "{:?}", since(began));
}

#[test]
fn an_answer_that_comes_too_late_for_one_job_is_there_for_the_next() {
    let place = Place::new();
    let slow = place.getent(&format!("sleep 1.5\n{DIRECTORY}"));
    let names = Names::new(vec![Source::Getent(slow)]);
    assert_eq!(names.ask(&[name("ann")]), [Answer::Silent]);
    let until = now() + SERVICE_PATIENCE * 2;
    while names.ask(&[name("ann")]) != [known("ann", 70001)] {
        assert!(now() < until, "it was remembered");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(place.calls().len(), 1);
}

#[test]
fn userdbd_is_asked_first_and_getent_where_it_fails() {
    let place = Place::new();
    let socket = place.userdbd(&[
        r#"{"parameters":{"record":{"userName":"ann","uid":70001,"disposition":"regular"},"incomplete":false}}"#,
        r#"{"error":"io.systemd.UserDatabase.NoRecordFound","parameters":{}}"#,
        r#"{"parameters":{"record":{"groupName":"lab","gid":70002}}}"#,
        r#"{"parameters":{"record":{"userName":"somebody else","uid":4}}}"#,
        r#"{"error":"io.systemd.UserDatabase.ServiceNotAvailable","parameters":{}}"#,
        "no JSON at all",
    ]);
    let getent = place.getent(DIRECTORY);
    let names = Names::new(vec![Source::Userdb(socket), Source::Getent(getent)]);
    let answers = names.ask(&[number(false, 70001), name("none"), number(true, 70002), number(false, 3)]);
    let (ann, lab) = (known("ann", 70001), known("lab", 70002));
    assert_eq!(answers, [ann.clone(), Answer::Unknown, lab, Answer::Unknown], "a record of another is none");
    assert!(place.calls().is_empty(), "userdbd has said it");
    let asked = std::fs::read_to_string(place.0.join("asked")).unwrap();
    assert!(asked.lines().next().unwrap().contains("io.systemd.UserDatabase.GetUserRecord"), "{asked}");
    // It does not answer, or nonsense: getent does.
    assert_eq!(names.ask(&[name("ann")]), [ann]);
    assert_eq!(names.ask(&[name("bob")]), [Answer::Unknown]);
    assert_eq!(place.calls(), ["passwd -- ann", "passwd -- bob"]);
    let none = Names::new(vec![Source::Userdb(place.0.join("absent")), Source::Getent(place.0.join("absent"))]);
    assert_eq!(none.ask(&[name("ann")]), [Answer::Silent], "nobody to ask");
}

#[test]
fn the_child_of_a_confined_process_answers_line_by_line_and_says_what_failed() {
    let said = |line: &str| {
        let mut out = Vec::new();
        resolver::serve(line.as_bytes(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    // Of the real getent, where there is one, root is known everywhere.
    if getent::is_there() {
        assert_eq!(said("passwd\troot\t0\tno-such-user-here\ngroup\t0\n"), "root\t0\nroot\t0\n.\nroot\t0\n");
    }
    assert_eq!(said("passwd\t-s\n"), "!\t!\t!\n", "an option is no name");
    assert_eq!(said("passwd\tcut"), "", "a line that does not end is none");
}
