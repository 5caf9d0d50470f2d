//! What a client says before it has an answer: entries behind `Open`, and the greeting of the first rail.
//!
//! In: sessions, and greetings that overtake their job. Out: checks of what is answered at once, and of what is thrown away.
//! Absent on purpose: how many round trips a command takes (lab/tests/reports/emulated/start.rs).

use proto::manifest::{Entry, EntryKind};
use proto::wire::control::AHEAD_FRAMES_MAX;

use super::*;

/// A file under this name.
fn announced(path: &str) -> Frame {
    let kind = EntryKind::File { bytes: 5 };
    let path = path.as_bytes().into();
    Frame::Entries(vec![Entry { id: 0, path, kind, mode: 0o644, mtime_s: 1, mtime_ns: 0, meta: Default::default() }])
}

/// A push that says an entry ahead, under the kernel and the name that it expects.
fn ahead(link: &Link, boot_id: &str, top: &str) -> Open {
    let mut open = Open { ahead: 1, top: top.as_bytes().into(), ..open(link, Direction::Push, "b") };
    open.offer.boot_id = boot_id.to_owned();
    open
}

/// Says these in one go; whether what was said ahead counts.
fn counts(link: &mut Link, open: Open, entries: &Frame) -> bool {
    greeting::say(link, &Frame::Open(Box::new(open)));
    greeting::say(link, entries);
    greeting::hello(link, SOON).unwrap();
    let Frame::Accept { ahead, top, .. } = greeting::hear(link, SOON).unwrap() else { panic!("no plan") };
    assert_eq!(&top[..], b"b");
    ahead
}

/// The next frame that says what is wanted; whatever a job says by itself is passed over.
fn wants(link: &mut Link, patience: Duration) -> Option<Frame> {
    let until = Instant::now() + patience;
    loop {
        let bytes = link.call(until.saturating_duration_since(Instant::now())).ok()?;
        match Frame::decode(&bytes).unwrap() {
            Frame::Wants(wants) => return Some(Frame::Wants(wants)),
            Frame::Refuse { code, detail } => panic!("refused with {code}: {detail}"),
            _ => {}
        }
    }
}

fn met() -> (Host, Link) {
    let (host, alice) = (host(&[]), user());
    let own: Ticket = host.ticket(Uses::Many, Rights::default());
    let link = alice.meet(&host, Some(&own));
    (host, link)
}

#[test]
fn entries_behind_open_are_answered_with_the_plan() {
    let (_host, mut link) = met();
    let asked = ahead(&link, "of another kernel", "b");
    assert!(counts(&mut link, asked, &announced("b")));
    assert!(wants(&mut link, SOON).is_some(), "nothing more had to be said");
}

#[test]
fn entries_behind_open_count_for_nothing_under_another_name_or_on_the_same_kernel() {
    let here = sys::host::boot_id().unwrap();
    for (boot_id, top) in [("of another kernel", "c"), ("of another kernel", ""), (&*here, "b"), ("", "b")] {
        let (host, mut link) = met();
        let asked = ahead(&link, boot_id, top);
        let name = if top.is_empty() { "x" } else { top };
        assert!(!counts(&mut link, asked, &announced(name)), "{boot_id} {top}");
        assert!(wants(&mut link, Duration::from_millis(300)).is_none(), "{boot_id} {top}: it was thrown away");
        assert!(!host.has(name), "nothing came of it");
        // As if it had never been said: its number is free.
        greeting::say(&mut link, &announced("b"));
        assert!(wants(&mut link, SOON).is_some(), "{boot_id} {top}");
    }
}

#[test]
fn no_more_is_said_ahead_than_may_be_and_nothing_of_a_pull() {
    for (direction, frames) in [(Direction::Push, AHEAD_FRAMES_MAX + 1), (Direction::Pull, 1)] {
        let (_host, mut link) = met();
        let asked = Open { ahead: frames, ..open(&link, direction, "b") };
        assert_eq!(answer(&mut link, &Frame::Open(Box::new(asked))), Breach::WrongOrder.code(), "{direction:?}");
    }
}

#[test]
fn the_first_rails_greeting_may_come_before_its_job_and_no_other() {
    // The first, and the first beside one of datagrams.
    for ahead in [rails::AHEAD, rails::AHEAD_BESIDE] {
        let (host, mut link) = met();
        let secret = JobSecret::of(&link, job_of(&link));
        let say = |rail: u16| {
            let mut stream = TcpStream::connect(host.at).unwrap();
            stream.set_read_timeout(Some(SOON)).unwrap();
            stream.write_all(&secret.greeting(rail)).unwrap();
            stream
        };
        let (mut first, mut second) = (say(ahead), say(2));
        assert_eq!(second.read(&mut [0]).unwrap_or(0), 0, "closed without a word");
        first.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        assert!(first.read(&mut [0]).is_err(), "it waits");
        assert_eq!(answer_to_open(&mut link, Direction::Push, "b"), 0);
        let mut welcome = [0];
        first.set_read_timeout(Some(SOON)).unwrap();
        first.read_exact(&mut welcome).unwrap();
        assert_eq!(welcome, [rails::WELCOME]);
        // It is good once, as any other.
        assert_eq!(say(ahead).read(&mut [0]).unwrap_or(0), 0);
    }
}
