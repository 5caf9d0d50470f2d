//! Daemons of this process, and clients of theirs that do as they like.
//!
//! For: what a client may and may not have done, where the wire's own words decide: one-job tickets, relays, revoked keys.
//! Absent on purpose: options and exit codes of the binary (lab/e2e).

#[path = "../listener/ahead_tests.rs"]
mod ahead; // what is said before it can be answered

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;

use proto::error::{Breach, Refusal};
use proto::wire::control::{Compare, Direction, Durability, Frame, Open};

use super::*;
use crate::address::Address;
use crate::client::choice::Choice;
use crate::client::{self, Copy};
use crate::event::{Events, JsonLines};
use crate::identity::authorized;
use crate::identity::ticket::Ticket;
use crate::job::greeting;
use crate::job::keys::{JobSecret, job_of};
use crate::job::offer::Requested;
use crate::link::{Expect, Link};
use crate::request::JobRequest;
use std::time::Duration;
use text::units::{parse_rate, parse_size};

const SOON: Duration = Duration::from_secs(20);

/// A folder of its own, for a host.
fn folder(of: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("longhaul-serve-{of}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(folder.join("root")).unwrap();
    folder
}

/// A daemon that runs until the process ends.
struct Host {
    daemon: &'static Daemon,
    at: SocketAddr,
    folder: PathBuf,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.daemon.stop.signal();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// As `serve` has its options: the tests name what they change by them.
fn set(settings: &mut Settings, word: &str) {
    match word.split_once('=') {
        None if word == "--bare" => settings.bare = true,
        None if word == "--integrity-only" => settings.integrity_only = true,
        Some(("--rate", rate)) => settings.rate_bps = Some(parse_rate(rate).unwrap()),
        Some(("--memory", size)) => settings.memory_bytes = parse_size(size).unwrap(),
        Some(("--driver", "plain")) => settings.driver = Some(proto::negotiate::Driver::Plain),
        Some(("--relay-to", all)) => settings.relay_to = Some(all.split(',').map(|it| it.parse().unwrap()).collect()),
        _ => panic!("{word}"),
    }
}

/// And as `cp` has them.
fn ask(request: &mut JobRequest, word: &str) {
    match word.split_once('=') {
        None if word == "--bare" => request.bare = true,
        None if word == "--integrity-only" => request.integrity_only = true,
        None if word == "--unattended" => request.unattended = true,
        Some(("--rate", rate)) => request.rate_bps = Some(parse_rate(rate).unwrap()),
        Some(("--memory", size)) => request.memory_bytes = parse_size(size).unwrap(),
        Some(("--chunk", size)) => request.chunk_bytes = Some(parse_size(size).unwrap().try_into().unwrap()),
        Some(("--workers", count)) => request.workers = Some(count.parse().unwrap()),
        Some(("--streams", count)) => request.streams = Some(count.parse().unwrap()),
        Some(("--transport", "udp")) => request.transport = proto::wire::request::Transport::Udp,
        Some(("--stall", time)) => request.stall = text::units::parse_duration(time).unwrap(),
        _ => panic!("{word}"),
    }
}

fn host(words: &[&str]) -> Host {
    let folder = folder("host");
    let root = folder.join("root");
    let mut settings = Settings { listen: "127.0.0.1:0".parse().unwrap(), ..Settings::of(root) };
    words.iter().for_each(|word| set(&mut settings, word));
    let home = Home::at(&folder.join("home")).unwrap();
    let identity = Arc::new(Identity::load(&home).unwrap());
    let listener = Listener::bind(settings.listen, Arc::clone(&identity)).unwrap();
    let at = listener.local_addr().unwrap();
    let guards = guards(&settings, &home, &[]).unwrap();
    let pool_bytes = 64 << 20;
    let driver = Some(sys::ring::Kind::Plain);
    let make = Make { count: 2, memory_bytes: pool_bytes, chunk_bytes: CHUNK_BYTES, driver, holds: vec![] };
    let awaited = Event::new().unwrap();
    let listener = listener.on_awaited(awaited.clone());
    let daemon: &'static Daemon = Box::leak(Box::new(Daemon {
        path_base: path_base(&settings).unwrap(),
        settings: RwLock::new(settings),
        identity,
        history: History::of(&home),
        receipts: Default::default(),
        home,
        guards,
        workers: Arc::new(Workers::start(make).unwrap()),
        nodes: None,
        pool_bytes,
        capacity: Capacity::of(4 * pool_bytes, pool_bytes, 2, 1024),
        tickets: Tickets::new(),
        running: AtomicUsize::new(0),
        ended: AtomicUsize::new(0),
        picked_bytes: AtomicUsize::new(0),
        draining: AtomicBool::new(false),
        stop: Event::new().unwrap(),
        hellos: listener.hellos(),
        takes_datagrams: false,
        takes_devices: false,
        registry: Arc::default(),
        failed_disks: Default::default(),
        log: Log::to(|line| eprintln!("longhaul: {line}")),
        live: Live::default(),
        accounts: Accounts::default(),
        shares: Shares::default(),
        waiting: Mutex::new(HashMap::new()),
        awaited: awaited.clone(),
        awaited_packets: Event::new().unwrap(),
    }));
    std::thread::spawn(move || {
        let served = listener.run(
            |link| session::run(daemon, link),
            |key| session::is_known(daemon, key),
            |rail| daemon.on_rail(rail),
            &daemon.stop,
        );
        served.unwrap();
    });
    std::thread::spawn(move || {
        loop {
            daemon.live.look(&daemon.home, |why| panic!("{why}"));
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    Host { daemon, at, folder }
}

impl Host {
    fn key(&self) -> crate::identity::PublicKey {
        self.daemon.identity.public()
    }

    fn put(&self, name: &str, bytes: usize) {
        let content: Vec<u8> = (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect();
        std::fs::write(self.folder.join("root").join(name), content).unwrap();
    }

    fn has(&self, name: &str) -> bool {
        self.folder.join("root").join(name).exists()
    }

    fn ticket(&self, uses: Uses, rights: Rights) -> Ticket {
        self.daemon.tickets.issue(self.key(), uses, rights, None).unwrap()
    }

    fn address(&self, ticket: &Ticket, path: &str) -> Address {
        Address::parse(format!("longhaul://{ticket}@{}/{path}", self.at).as_bytes()).unwrap()
    }

    /// How many are served here just now.
    fn served(&self) -> usize {
        self.daemon.running.load(Ordering::SeqCst)
    }
}

/// Waits for something that need not be quick.
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is() {
        assert!(since.elapsed() < SOON, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

use std::time::Instant;

/// Takes what a screen says.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A user at a host of their own.
struct User {
    home: Home,
    identity: Arc<Identity>,
    folder: PathBuf,
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn user() -> User {
    let folder = folder("user");
    let home = Home::at(&folder.join("home")).unwrap();
    let identity = Arc::new(Identity::load(&home).unwrap());
    User { home, identity, folder }
}

impl User {
    /// A session in which this end has greeted.
    fn meet(&self, host: &Host, ticket: Option<&Ticket>) -> Link {
        let mut link = Link::connect(&host.at.to_string(), &self.identity, Expect::Key(host.key()), SOON)
            .expect("the port answers");
        greeting::begin(&mut link, ticket);
        link
    }

    /// Asks `host` for a ticket for a push of the owner of `key` to `target`.
    fn delegate(&self, host: &Host, own: &Ticket, key: crate::identity::PublicKey, target: &str) -> Ticket {
        let mut link = self.meet(host, Some(own));
        let targets = vec![target.as_bytes().into()];
        greeting::say(&mut link, &Frame::AskTicket { key, targets, compare: Compare::Never, prune: None });
        greeting::hello(&mut link, SOON).unwrap();
        let Frame::GiveTicket { secret, key, .. } = greeting::hear(&mut link, SOON).unwrap() else {
            panic!("no ticket")
        };
        Ticket { server_key: key, secret }
    }

    /// The command, as the binary runs it between two daemons.
    fn relay(&self, words: &[&str], from: &Address, to: &Address) -> (Result<Exit, Failure>, String) {
        let said = Said::default();
        let mut lines = JsonLines::to(said.clone());
        let mut screen = Events::to(&mut lines);
        let request = request(words);
        let copy = Copy {
            request: &request,
            identity: Arc::clone(&self.identity),
            home: self.home.clone(),
            began: Instant::now(),
            layout: None,
            choice: Choice::of(&request).unwrap(),
            piped: false,
            to_stream: false,
            before: Default::default(),
            without_receipt: false,
            again: client::retry::Retries::default(),
            registry: Arc::default(),
            failed_disks: Default::default(),
            on_ssh_line: Default::default(),
            what: String::new(),
            ftp: None,
            lent: None,
            cancel: Arc::default(),
            trace: Arc::default(),
            program: None,
            record: Default::default(),
        };
        let (paths, targets) = ([from.path().into()], [to.path().into()]);
        let done = client::relay::run(&copy, from, &paths, to, &targets, &mut screen);
        let text = String::from_utf8(said.0.lock().unwrap().clone()).unwrap();
        (done, text)
    }
}

fn request(words: &[&str]) -> JobRequest {
    let mut request = JobRequest::copy(["x"], "y").build();
    words.iter().for_each(|word| ask(&mut request, word));
    request
}

fn open(link: &Link, direction: Direction, path: &str) -> Open {
    Open {
        after: [0; 16],
        job: job_of(link),
        direction,
        paths: vec![path.as_bytes().into()],
        layout: None,
        joined: false,
        into_folder: false,
        top: Box::default(),
        keep: true,
        dry: false,
        compare: Compare::Never,
        prune: None,
        durability: Durability::Written,
        aspects: Default::default(),
        numeric: false,
        rules: vec![],
        places: vec![],
        ahead: 0,
        offer: offer::offer(&Requested { memory_bytes: 64 << 20, workers: 1, ..Requested::default() }),
    }
}

/// What a session is answered to a frame: the code of its refusal, or 0.
fn answer(link: &mut Link, frame: &Frame) -> u16 {
    greeting::say(link, frame);
    loop {
        let bytes = link.call(SOON).expect("an answer");
        match Frame::decode(&bytes).expect("a frame") {
            Frame::Hello { .. } => {}
            Frame::Refuse { code, .. } => return code,
            _ => return 0,
        }
    }
}

fn answer_to_open(link: &mut Link, direction: Direction, path: &str) -> u16 {
    let frame = Frame::Open(Box::new(open(link, direction, path)));
    answer(link, &frame)
}

#[test]
fn of_a_range_of_ports_a_free_one_is_taken() {
    let identity = Arc::new(Identity::ephemeral().unwrap());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let listens = |ports: String| {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let settings = Settings { listen, stdio: true, ports: Some(ports.parse().unwrap()), ..Settings::of("/") };
        super::listen(&settings, &identity).map(|it| it.local_addr().unwrap().port())
    };
    let last = port.saturating_add(50);
    let found = listens(format!("{port}-{last}")).unwrap();
    assert!(found > port && found <= last, "{found} of {port}-{last}");
    let failed = listens(port.to_string()).unwrap_err();
    assert_eq!(failed.kind(), std::io::ErrorKind::AddrInUse, "all are taken");
    let settings = Settings { listen: "[::]:0".parse().unwrap(), stdio: true, ..Settings::of("/") };
    let both = super::listen(&settings, &identity).unwrap();
    TcpStream::connect(("127.0.0.1", both.local_addr().unwrap().port()))
        .expect("by IPv4, with and without IPv6 in the kernel");
}

#[test]
fn a_client_cannot_choose_the_id_of_its_job() {
    let (host, alice) = (host(&[]), user());
    let ticket = host.ticket(Uses::Many, Rights::default());
    let mut link = alice.meet(&host, Some(&ticket));
    let chosen = Open { job: [7; 16], ..open(&link, Direction::Push, "a") };
    assert_eq!(answer(&mut link, &Frame::Open(Box::new(chosen))), Breach::JobName.code());
    let earlier = job_of(&link);
    let mut link = alice.meet(&host, Some(&ticket));
    let chosen = Open { job: earlier, ..open(&link, Direction::Push, "a") };
    assert_eq!(answer(&mut link, &Frame::Open(Box::new(chosen))), Breach::JobName.code(), "nor that of an earlier one");
    let mut link = alice.meet(&host, Some(&ticket));
    assert_eq!(answer_to_open(&mut link, Direction::Push, "a"), 0);
}

#[test]
fn a_delegated_ticket_is_good_for_one_host_one_path_and_one_direction() {
    let (host, alice, relay, thief) = (host(&[]), user(), user(), user());
    host.put("secret", 100);
    let own = host.ticket(Uses::Many, Rights::default());
    let ticket = alice.delegate(&host, &own, relay.identity.public(), "in");
    let spent = Refusal::TicketSpent.code();
    assert_eq!(answer_to_open(&mut thief.meet(&host, Some(&ticket)), Direction::Push, "in"), spent, "of another key");
    let other = Refusal::NotAuthorized.code();
    for (direction, path) in
        [(Direction::Push, "secret"), (Direction::Push, ""), (Direction::Pull, "in"), (Direction::Pull, "secret")]
    {
        let told = answer_to_open(&mut relay.meet(&host, Some(&ticket)), direction, path);
        assert_eq!(told, other, "{direction:?} {path}");
    }
    let mut link = relay.meet(&host, Some(&ticket));
    let looks = Open { compare: Compare::Always, ..open(&link, Direction::Push, "in") };
    assert_eq!(answer(&mut link, &Frame::Open(Box::new(looks))), other, "nothing is compared that was not asked for");
    let mut link = relay.meet(&host, Some(&ticket));
    let prunes = Open { prune: Some(9), ..open(&link, Direction::Push, "in") };
    assert_eq!(answer(&mut link, &Frame::Open(Box::new(prunes))), other, "nor removed");
    let ask = Frame::AskTicket { key: thief.identity.public(), targets: vec![], compare: Compare::Never, prune: None };
    assert_eq!(answer(&mut relay.meet(&host, Some(&ticket)), &ask), other, "no ticket comes of it");
    let frame = Frame::Relay {
        sources: vec![(*b"secret").into()],
        target: "longhaul://x/".into(),
        volumes: vec![],
        request: Box::default(),
    };
    assert_eq!(answer(&mut relay.meet(&host, Some(&ticket)), &frame), other, "and no relay");
    assert_eq!(answer_to_open(&mut relay.meet(&host, Some(&ticket)), Direction::Push, "in"), 0);
}

#[test]
fn one_job_tickets_are_for_one_job_relays_included() {
    let (from, to, alice, relay) = (host(&[]), host(&[]), user(), user());
    from.put("a", 3_000_000);
    let tickets = [from.ticket(Uses::Once, Rights::default()), to.ticket(Uses::Once, Rights::default())];
    let (source, target) = (from.address(&tickets[0], "a"), to.address(&tickets[1], "b"));
    // A ticket asked for before, and not used: the job that is made counts for all of them.
    let earlier = alice.delegate(&to, &tickets[1], relay.identity.public(), "c");
    let (done, said) = alice.relay(&[], &source, &target);
    assert_eq!(done.unwrap(), Exit::Whole, "{said}");
    assert!(to.has("b"));
    let spent = Refusal::TicketSpent.code();
    assert_eq!(answer_to_open(&mut alice.meet(&from, Some(&tickets[0])), Direction::Pull, "a"), spent, "the source's");
    assert_eq!(
        answer_to_open(&mut alice.meet(&to, Some(&tickets[1])), Direction::Push, "c"),
        spent,
        "the destination's"
    );
    assert_eq!(answer_to_open(&mut relay.meet(&to, Some(&earlier)), Direction::Push, "c"), spent, "what came of it");
}

#[test]
fn a_relayed_job_goes_in_clear_only_when_all_three_say_so() {
    let (from, to, alice) = (host(&[]), host(&["--bare"]), user());
    let clear = host(&["--integrity-only"]);
    let [here, there, third] = [&from, &to, &clear].map(|host| host.ticket(Uses::Many, Rights::default()));
    from.put("a", 2_000_000);
    clear.put("a", 2_000_000);
    for option in ["--integrity-only", "--bare"] {
        let (done, said) = alice.relay(&[option], &from.address(&here, "a"), &to.address(&there, "b"));
        let failure = done.expect_err("the source's daemon does not allow it");
        assert_eq!(failure.exit, Exit::Negotiation, "{failure} {said}");
        assert!(!to.has("b"), "{option}");
    }
    let (done, said) = alice.relay(&["--bare"], &clear.address(&third, "a"), &to.address(&there, "b"));
    assert_eq!(done.expect_err("nor was this one asked to").exit, Exit::Negotiation, "{said}");
    let (done, said) = alice.relay(&["--integrity-only"], &clear.address(&third, "a"), &to.address(&there, "b"));
    assert_eq!(done.unwrap(), Exit::Whole, "{said}");
    assert!(said.contains("\"integrity_only\":true"), "{said}");
}

#[test]
fn a_relayed_job_is_not_faster_than_the_daemon_and_the_key_of_its_source_let_it() {
    let alice = user();
    for (words, key_bps) in [(&["--rate=20Mbit"][..], 0), (&[], 20_000_000)] {
        let (from, to) = (host(words), host(&[]));
        from.put("a", 6_000_000);
        let own = from.ticket(Uses::Many, Rights { rate_bps: key_bps, ..Rights::default() });
        let target = to.address(&to.ticket(Uses::Many, Rights::default()), "b");
        let since = Instant::now();
        let (done, said) = alice.relay(&[], &from.address(&own, "a"), &target);
        assert_eq!(done.unwrap(), Exit::Whole, "{said}");
        // 48 Mbit at 20 Mbit/s: 2.4 s; what a bound lets go at once is less than a quarter of that.
        assert!(since.elapsed() > Duration::from_millis(1800), "{words:?} {key_bps}: {:?}", since.elapsed());
    }
}

#[test]
fn a_daemon_is_no_scanner_of_its_network() {
    let (from, alice) = (host(&[]), user());
    from.put("a", 10);
    let own = from.ticket(Uses::Many, Rights::default());
    let (imposter, mute) = (host(&[]), TcpListener::bind("127.0.0.1:0").unwrap());
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let wrong = Ticket { server_key: from.key(), secret: [1; 16] };
    let answer_to = |target: String| {
        let frame = Frame::Relay { sources: vec![(*b"a").into()], target, volumes: vec![], request: Box::default() };
        let mut link = alice.meet(&from, Some(&own));
        let since = Instant::now();
        greeting::say(&mut link, &frame);
        greeting::hello(&mut link, SOON).unwrap();
        let Frame::Event { line } = greeting::hear(&mut link, SOON).unwrap() else { panic!("no line") };
        (line, since.elapsed())
    };
    let targets = [
        closed.to_string(),
        mute.local_addr().unwrap().to_string(),
        imposter.at.to_string(),
        "no-such-host.invalid:5740".to_owned(),
        "127.0.0.1:22".to_owned(),
    ];
    let answers: Vec<(String, Duration)> = std::thread::scope(|scope| {
        let asked: Vec<_> = targets
            .iter()
            .map(|at| format!("longhaul://{wrong}@{at}/b"))
            .map(|target| scope.spawn(|| answer_to(target)))
            .collect();
        asked.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert!(answers[0].0.contains("\"exit\":12") || answers[0].0.contains("refused"), "{answers:?}");
    for (answer, target) in answers.iter().zip(&targets) {
        assert_eq!(answer.0, answers[0].0, "{target}");
        // What is not permitted touches no network, and need not wait.
        assert!(target.ends_with(":22") || answer.1 >= relay::DIAL, "{target} {:?}", answer.1);
    }
    mute.set_nonblocking(true).unwrap();
    assert!(mute.accept().is_ok(), "that one was really dialled");
}

#[test]
fn relays_reach_whom_the_daemons_user_named_and_nobody_else() {
    let (to, alice) = (host(&[]), user());
    let target = to.address(&to.ticket(Uses::Many, Rights::default()), "b");
    let named = format!("--relay-to={}", to.at);
    for (word, may) in [("--relay-to=none", false), ("--relay-to=192.0.2.7,[::1]:5740", false), (named.as_str(), true)]
    {
        let from = host(&[word]);
        from.put("a", 10);
        let source = from.address(&from.ticket(Uses::Many, Rights::default()), "a");
        let (done, said) = alice.relay(&[], &source, &target);
        assert_eq!(done.unwrap(), if may { Exit::Whole } else { Exit::Refused }, "{word}: {said}");
        assert_eq!(to.has("b"), may, "{word}");
    }
}

/// A relay that takes its time: the client's session, once the destination has begun.
fn slow_relay(alice: &User, from: &Host, to: &Host, options: &[&str]) -> Link {
    from.put("a", 12_000_000);
    let own = to.ticket(Uses::Many, Rights::default());
    let ticket = alice.delegate(to, &own, from.key(), "b");
    let own = from.ticket(Uses::Many, Rights::default());
    let mut link = alice.meet(from, Some(&own));
    let request = Box::new(request(options).relayed(false));
    let target = to.address(&ticket, "b").with_secret();
    greeting::say(&mut link, &Frame::Relay { sources: vec![(*b"a").into()], target, volumes: vec![], request });
    greeting::hello(&mut link, SOON).unwrap();
    until("the job runs at both", || from.served() == 1 && !to.daemon.waiting().is_empty());
    link
}

#[test]
fn a_relay_ends_when_its_client_is_gone_unless_it_may_stay() {
    let (from, to, alice) = (host(&["--rate=24Mbit"]), host(&[]), user());
    drop(slow_relay(&alice, &from, &to, &[]));
    until("both have ended it", || from.served() + to.served() == 0);
    assert!(!to.has("b"), "it was cut");
    drop(slow_relay(&alice, &from, &to, &["--unattended"]));
    until("it is whole", || to.has("b"));
    until("both are done", || from.served() + to.served() == 0);
}

#[test]
fn a_relay_whose_client_lost_it_ends_before_it_is_begun_again() {
    let (from, to, alice) = (host(&["--rate=8Mbit"]), host(&[]), user());
    let mut lost = slow_relay(&alice, &from, &to, &["--unattended"]);
    let mut link = {
        let ticket = alice.delegate(&to, &to.ticket(Uses::Many, Rights::default()), from.key(), "b");
        let mut link = alice.meet(&from, Some(&from.ticket(Uses::Many, Rights::default())));
        let target = to.address(&ticket, "b").with_secret();
        let request = Box::new(JobRequest::default().relayed(true));
        from.daemon.settings.write().unwrap().rate_bps = None;
        greeting::say(&mut link, &Frame::Relay { sources: vec![(*b"a").into()], target, volumes: vec![], request });
        greeting::hello(&mut link, SOON).unwrap();
        link
    };
    let line = last_words(&mut lost);
    assert!(line.contains("has begun it again"), "{line}");
    let line = last_words(&mut link);
    assert!(line.contains("\"exit\":0"), "{line}");
    assert!(to.has("b"));
    // Another client's relay of the same is nobody's to end.
    let (other, cancel) =
        (Arc::new(crate::job::cancel::Cancel::default()), Arc::new(crate::job::cancel::Cancel::default()));
    let live = Live::default();
    let _one = live.enter(vec![], None, &cancel).unwrap();
    let _two = live.enter(vec![], None, &other).unwrap();
    assert!(live.relays(&cancel, [1; 32], false) && live.relays(&other, [2; 32], true));
    assert!(cancel.requested().is_none());
    assert!(!live.relays(&other, [1; 32], true), "it does not end");
    assert!(cancel.requested().is_some());
}

/// The last words of a relay.
fn last_words(link: &mut Link) -> String {
    loop {
        let Frame::Event { line } = greeting::hear(link, SOON).unwrap() else { panic!("no line") };
        if crate::report::ends_job(&line) {
            return line;
        }
    }
}

#[test]
fn what_jobs_had_of_the_heap_goes_back_once_none_runs_and_after_every_hundred() {
    let host = host(&[]);
    let begin = || session::Count::one(host.daemon).ok().expect("room for a job");
    assert!(!host.daemon.heap_is_worth_trimming(), "no job was here");
    let long = begin();
    (1..TRIM_AFTER).for_each(|_| drop(begin()));
    assert!(!host.daemon.heap_is_worth_trimming(), "one runs, and the next will soon");
    drop(begin());
    assert!(host.daemon.heap_is_worth_trimming(), "a hundred have ended");
    assert!(!host.daemon.heap_is_worth_trimming(), "and that was done");
    drop(long);
    assert!(host.daemon.heap_is_worth_trimming(), "none runs");
    assert!(!host.daemon.heap_is_worth_trimming(), "and that was done");
}

#[test]
fn a_revoked_key_ends_its_running_jobs_at_both_ends_with_the_reason() {
    for at_source in [true, false] {
        let (from, to, alice) = (host(&["--rate=8Mbit"]), host(&[]), user());
        let mut link = slow_relay(&alice, &from, &to, &["--unattended"]);
        let who = if at_source { &from } else { &to };
        let since = Instant::now();
        authorized::revoke(&who.daemon.home, &alice.identity.public(), "").unwrap();
        let line = last_words(&mut link);
        assert!(
            line.contains("is revoked") && since.elapsed() < Duration::from_secs(5),
            "{:?} {line}",
            since.elapsed()
        );
        until("both have ended it", || from.served() + to.served() == 0);
        assert!(!to.has("b"));
    }
    // The same of a job of its own.
    let (to, alice) = (host(&[]), user());
    let own = to.ticket(Uses::Many, Rights::default());
    let mut link = alice.meet(&to, Some(&own));
    assert_eq!(answer_to_open(&mut link, Direction::Push, "b"), 0);
    authorized::revoke(&to.daemon.home, &alice.identity.public(), "").unwrap();
    let told = loop {
        if let Frame::Refuse { code, detail } = Frame::decode(&link.call(SOON).expect("words")).expect("a frame") {
            break (code, detail);
        }
    };
    assert!(told.0 == Refusal::NotAuthorized.code() && told.1.contains("is revoked here"), "{told:?}");
    // And a ticket that it had asked for is worth nothing.
    let relay = user();
    let (to, alice) = (host(&[]), user());
    let own = to.ticket(Uses::Many, Rights::default());
    let ticket = alice.delegate(&to, &own, relay.identity.public(), "b");
    authorized::revoke(&to.daemon.home, &alice.identity.public(), "").unwrap();
    let told = answer_to_open(&mut relay.meet(&to, Some(&ticket)), Direction::Push, "b");
    assert_eq!(told, Refusal::NotAuthorized.code());
}

#[test]
fn a_job_whose_client_lost_its_session_makes_room_for_the_next_one_of_the_same_client_only() {
    let (host, alice, bob) = (host(&[]), user(), user());
    let ticket = host.ticket(Uses::Many, Rights::default());
    let mut first = alice.meet(&host, Some(&ticket));
    let lost = job_of(&first);
    assert_eq!(answer_to_open(&mut first, Direction::Push, "b"), 0);
    // Another client that has its name from somewhere.
    let mut other = bob.meet(&host, Some(&ticket));
    let frame = Open { after: lost, ..open(&other, Direction::Push, "c") };
    assert_eq!(answer(&mut other, &Frame::Open(Box::new(frame))), 0);
    assert_eq!(host.served(), 2, "it ends nobody's job");
    // The client itself, which hears nothing on the first any more.
    let mut next = alice.meet(&host, Some(&ticket));
    let frame = Open { after: lost, ..open(&next, Direction::Push, "b") };
    assert_eq!(answer(&mut next, &Frame::Open(Box::new(frame))), 0);
    assert_eq!(host.served(), 2, "the first has ended before the next was let in");
    let told = loop {
        if let Frame::Refuse { code, .. } = Frame::decode(&first.call(SOON).expect("words")).expect("a frame") {
            break code;
        }
    };
    assert_eq!(told, Refusal::Superseded.code());
}

#[test]
fn a_keys_root_may_not_hold_the_daemons_own_keys() {
    let (host, alice) = (host(&[]), user());
    for (root, code) in [(host.folder.clone(), Refusal::OutsideRoot.code()), (host.folder.join("root"), 0)] {
        let rights = Rights { root: Some(root), ..Rights::default() };
        authorized::authorize(&host.daemon.home, &alice.identity.public(), &rights, "").unwrap();
        assert_eq!(answer_to_open(&mut alice.meet(&host, None), Direction::Pull, ""), code);
    }
}

#[test]
fn greetings_replayed_over_tcp_hold_nothing() {
    let (host, alice) = (host(&[]), user());
    let own = host.ticket(Uses::Many, Rights::default());
    let mut link = alice.meet(&host, Some(&own));
    assert_eq!(answer_to_open(&mut link, Direction::Push, "b"), 0);
    let secret = JobSecret::of(&link, job_of(&link));
    let say = |greeting: &[u8], answer: &mut [u8]| {
        let mut stream = TcpStream::connect(host.at).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(greeting).unwrap();
        stream.read_exact(answer).map(|()| stream)
    };
    let closed = |mut stream: TcpStream| stream.read(&mut [0; 64]).map_or(true, |bytes| bytes == 0);
    // The session goes on over another connection; whoever saw that greeting says it, too, 300 times, before the client has said its next word.
    let greet = || {
        let mut nonce = [0; 32];
        (say(&secret.greeting(rails::CONTROL), &mut nonce).unwrap(), nonce)
    };
    let (mut its, nonce) = greet();
    let replayed: Vec<(TcpStream, [u8; 32])> = (0..300).map(|_| greet()).collect();
    let count = link.drain().unwrap();
    let word = secret.count_word(b'i', &nonce, [count, 0]);
    its.write_all(&word).unwrap();
    let mut answer = [0; 40];
    its.read_exact(&mut answer).expect("its place was not taken");
    assert!(secret.count_of(&answer, b'a', &nonce, count).is_some());
    // And its word said again brings nothing where it was not said for.
    for (mut stream, other) in replayed {
        assert_ne!(nonce, other);
        stream.write_all(&word).unwrap();
        assert!(closed(stream));
    }
    assert_eq!(host.served(), 1, "the job goes on");
    // A rail's own greeting is good once.
    let mut welcome = [0];
    let _rail = say(&secret.greeting(3), &mut welcome).unwrap();
    assert_eq!(welcome, [rails::WELCOME]);
    for _ in 0..300 {
        assert!(say(&secret.greeting(3), &mut [0]).is_err(), "closed without a word");
    }
}

/// A destination that agrees to what it is asked for, lets no rail in and says nothing more; what it was asked for.
fn mute_destination() -> (SocketAddr, Ticket, std::sync::mpsc::Receiver<Open>) {
    let folder = folder("mute");
    let identity = Arc::new(Identity::load(&Home::at(&folder.join("home")).unwrap()).unwrap());
    let ticket = Ticket { server_key: identity.public(), secret: [1; 16] };
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), identity).unwrap();
    let at = listener.local_addr().unwrap();
    let (to, from) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (rails, stop) = (Mutex::new(Vec::new()), Event::new().unwrap());
        let agree = |mut link: Link| {
            link.admitted();
            let asked = loop {
                match greeting::hear(&mut link, SOON) {
                    Ok(Frame::Open(open)) => break open,
                    Ok(_) => {}
                    Err(_) => return,
                }
            };
            let own =
                offer::offer(&Requested { memory_bytes: 1 << 40, workers: 64, streams: 256, ..Requested::default() });
            let own = proto::negotiate::Offer { datagrams: 256, ..own };
            let (plan, _) = proto::negotiate::negotiate(&asked.offer, &own, true).unwrap();
            greeting::say(
                &mut link,
                &Frame::Hello { version_min: proto::VERSION_MIN, version: proto::VERSION, agent: greeting::agent() },
            );
            let (offer, plan, top) = (Box::new(own), Box::new(plan), Box::default());
            greeting::say(
                &mut link,
                &Frame::Accept { offer, plan, top, compare: asked.compare, places: vec![], ahead: false },
            );
            link.flush_blocking(SOON).unwrap();
            to.send(*asked).unwrap();
            while link.call(SOON).is_ok() {}
        };
        let keep = |rail| {
            rails.lock().unwrap().push(rail);
            crate::listener::Next::Over
        };
        listener.run(agree, |_| true, keep, &stop).unwrap();
    });
    std::fs::remove_dir_all(folder).unwrap();
    (at, ticket, from)
}

/// A client that asks for all there is.
const GREEDY: [&str; 7] = [
    "--memory=64GiB",
    "--workers=1024",
    "--streams=256",
    "--transport=udp",
    "--chunk=16MiB",
    "--rate=100Gbit",
    "--stall=3600",
];

#[test]
fn a_relayed_job_has_no_more_memory_workers_rails_and_time_than_one_of_that_clients_own() {
    let (from, alice) = (host(&["--memory=96MiB", "--driver=plain"]), user());
    from.daemon.settings.write().unwrap().idle_timeout = Duration::from_secs(1);
    from.put("a", 3_000_000);
    let own = from.ticket(Uses::Many, Rights { rate_bps: 20_000_000, ..Rights::default() });
    let relay = |options: &[&str]| {
        let (at, ticket, asked) = mute_destination();
        let target = format!("longhaul://{ticket}@{at}/b");
        let request = Box::new(request(options).relayed(false));
        let mut link = alice.meet(&from, Some(&own));
        greeting::say(&mut link, &Frame::Relay { sources: vec![(*b"a").into()], target, volumes: vec![], request });
        greeting::hello(&mut link, SOON).unwrap();
        let asked = asked.recv_timeout(SOON).unwrap().offer;
        let since = Instant::now();
        let line = last_words(&mut link);
        (asked, line, since.elapsed())
    };
    let (asked, line, took) = relay(&GREEDY);
    assert_eq!(asked.memory_bytes, 96 << 20, "the daemon's memory");
    assert_eq!(asked.cores, 2, "its workers");
    assert_eq!((asked.streams, asked.streams_max, asked.datagrams), (16, 16, 16), "as many rails as anybody's");
    assert_eq!(asked.chunk_bytes, CHUNK_BYTES, "a chunk is no larger than its bufs");
    assert!(asked.bufs_bytes <= from.daemon.pool_bytes, "nor are all of them more than there are");
    assert_eq!(asked.drivers, [proto::negotiate::Driver::Plain], "its way to the kernel");
    assert_eq!(asked.rate_bps, 20_000_000, "the key's rate");
    let stalled = format!("\"exit\":{}", Exit::Stalled.code());
    assert!(line.contains(&stalled) && took < Duration::from_secs(10), "its patience: {took:?} {line}");
    let (asked, ..) = relay(&["--memory=32MiB", "--workers=1", "--streams=3", "--rate=15Mbit"]);
    let less = (asked.memory_bytes, asked.cores, asked.streams, asked.rate_bps);
    assert_eq!(less, (32 << 20, 1, 3, 15_000_000), "who wants less has less");
}

#[test]
fn the_destination_of_a_relayed_job_narrows_it_too() {
    let (to, alice, relay) = (host(&["--memory=96MiB"]), user(), user());
    to.daemon.settings.write().unwrap().idle_timeout = Duration::from_secs(1);
    let own = to.ticket(Uses::Many, Rights { rate_bps: 20_000_000, ..Rights::default() });
    let ticket = alice.delegate(&to, &own, relay.identity.public(), "b");
    let mut link = relay.meet(&to, Some(&ticket));
    let requested =
        Requested { memory_bytes: 64 << 30, workers: 1024, streams: 256, datagrams: 256, ..Requested::default() };
    let offer = offer::offer(&Requested { chunk_bytes: 16 << 20, rate_bps: 100_000_000_000, ..requested });
    let asked = Open { offer, ..open(&link, Direction::Push, "b") };
    greeting::say(&mut link, &Frame::Open(Box::new(asked)));
    greeting::hello(&mut link, SOON).unwrap();
    let Frame::Accept { plan, offer, .. } = greeting::hear(&mut link, SOON).unwrap() else { panic!("no plan") };
    assert_eq!((plan.memory.1, offer.memory_bytes), (96 << 20, 96 << 20), "the daemon's memory");
    assert_eq!(plan.workers.1, 2, "its workers");
    assert!(plan.streams <= 16 && plan.streams_max <= 16 && plan.datagrams <= 16, "its rails: {plan:?}");
    assert_eq!(plan.chunk_bytes, CHUNK_BYTES);
    assert_eq!(plan.rate_bps, 20_000_000, "what was delegated has the rate of its giver");
    // Whoever says nothing more has the daemon's patience, not its own.
    until("the job is given up", || to.served() == 0);
}

#[test]
fn a_relayed_job_is_in_the_history_of_both_daemons_without_its_ticket() {
    use crate::report::history::read;
    let (from, to, alice) = (host(&[]), host(&[]), user());
    from.put("a", 100_000);
    let [there, here] = [&from, &to].map(|host| host.ticket(Uses::Many, Rights::default()));
    let (done, said) = alice.relay(&[], &from.address(&there, "a"), &to.address(&here, "b"));
    assert_eq!(done.unwrap(), Exit::Whole, "{said}");
    let of = |host: &Host| {
        until("it has its line", || read(&host.daemon.home, 9, |_| true).is_ok_and(|all| all.len() == 1));
        read(&host.daemon.home, 9, |_| true).unwrap().remove(0)
    };
    let (relay, served) = (of(&from), of(&to));
    assert_eq!((relay.command.as_str(), served.command.as_str()), ("relay", "serve"));
    assert_eq!(relay.destination, format!("longhaul://{}/b", to.at));
    assert_eq!(relay.source, from.folder.join("root/a").display().to_string());
    assert_eq!(served.destination, to.folder.join("root/b").display().to_string());
    assert_eq!((relay.job.is_some(), &relay.job, relay.bytes), (true, &served.job, 100_000));
    let key = |host: &Host| Some(crate::identity::keys::fingerprint(&host.key()));
    assert_eq!((relay.peer, served.peer), (key(&to), key(&from)));
    assert!(relay.receipt.is_some_and(|path| std::path::Path::new(&path).exists()));
}

/// The answer to a listing: paths, or the code of a refusal.
fn listed(link: &mut Link, path: &str, recursive: bool) -> Result<Vec<String>, u16> {
    greeting::say(link, &Frame::List { path: path.as_bytes().into(), recursive });
    let (mut paths, mut coming) = (Vec::new(), proto::wire::listing::Listing::new(recursive));
    loop {
        let frame = Frame::decode(&link.call(SOON).expect("an answer")).expect("a frame");
        match &frame {
            Frame::Hello { .. } => continue,
            Frame::Refuse { code, .. } => return Err(*code),
            Frame::Entries(all) => {
                paths.extend(all.iter().map(|it| String::from_utf8_lossy(&it.path).into_owned()));
            }
            _ => {}
        }
        if coming.on_frame(&frame).expect("a good listing") {
            paths.sort();
            return Ok(paths);
        }
    }
}

#[test]
fn who_may_read_lists_what_is_below_the_root_and_nobody_else_lists_anything() {
    let (host, alice) = (host(&[]), user());
    let root = host.folder.join("root");
    std::fs::create_dir_all(root.join("sub/deep")).unwrap();
    host.put("sub/a", 10);
    host.put("sub/.longhaul-0123456789abcdef.part", 10);
    std::os::unix::fs::symlink("/etc", root.join("out")).unwrap();
    let with = |access| host.ticket(Uses::Many, Rights { access, ..Rights::default() });
    let [own, wo] = [Access::ReadOnly, Access::WriteOnly].map(with);
    let ask = |path: &str, recursive| listed(&mut alice.meet(&host, Some(&own)), path, recursive);
    assert_eq!(ask("", false).unwrap(), ["", "out", "sub"]);
    assert_eq!(ask("/", true).unwrap(), ["", "out", "sub", "sub/a", "sub/deep"]);
    assert_eq!(ask("sub/", false).unwrap(), ["", "a", "deep"]);
    assert_eq!(ask("sub/a", false).unwrap(), [""]);
    assert_eq!(ask("out", true).unwrap(), [""], "a link is listed, not followed");
    for (path, refusal) in [
        ("..", Refusal::OutsideRoot),
        ("sub/../../home", Refusal::OutsideRoot),
        ("out/passwd", Refusal::OutsideRoot),
        ("out/.", Refusal::OutsideRoot),
        ("absent", Refusal::NoSuchPath),
    ] {
        assert_eq!(ask(path, true), Err(refusal.code()), "{path}");
    }
    let mut link = alice.meet(&host, Some(&wo));
    assert_eq!(listed(&mut link, "", false), Err(Refusal::WriteOnly.code()));
    let mut link = alice.meet(&host, None);
    assert_eq!(listed(&mut link, "", false), Err(Refusal::NotAuthorized.code()), "a key that nobody knows");
    let both = host.ticket(Uses::Many, Rights::default());
    let delegated = alice.delegate(&host, &both, alice.identity.public(), "b");
    let mut link = alice.meet(&host, Some(&delegated));
    assert_eq!(listed(&mut link, "", false), Err(Refusal::NotAuthorized.code()), "a ticket for one push");
    // To look is no job: the one of a ticket for one is still to come.
    let once = host.ticket(Uses::Once, Rights::default());
    for _ in 0..2 {
        assert!(listed(&mut alice.meet(&host, Some(&once)), "", false).is_ok());
        until("it is over", || host.served() == 0);
    }
    assert_eq!(answer_to_open(&mut alice.meet(&host, Some(&once)), Direction::Pull, "sub/a"), 0);
}

#[test]
fn a_listing_that_nobody_reads_holds_a_little_memory_and_is_given_up_or_ended() {
    let (host, alice) = (host(&[]), user());
    for at in 0..30_000 {
        std::fs::File::create(host.folder.join("root").join(format!("{at:05}-{}", "n".repeat(200)))).unwrap();
    }
    let begun = |ticket: &Ticket| {
        let mut link = alice.meet(&host, Some(ticket));
        greeting::say(&mut link, &Frame::List { path: Box::default(), recursive: true });
        link.flush_blocking(SOON).unwrap();
        until("it is listed", || host.served() == 1);
        link
    };
    let own = host.ticket(Uses::Many, Rights::default());
    // It is ended while it waits for who does not read: 7 MB fit into no socket's buffers here.
    let link = begun(&own);
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(host.served(), 1, "it waits");
    let number = host.daemon.tickets.list(Instant::now())[0].number;
    host.daemon.live.revoke(&host.daemon.tickets.revoke(number));
    until("its ticket is revoked", || host.served() == 0);
    drop(link);
    // And given up after the time that the daemon has for the idle.
    host.daemon.settings.write().unwrap().idle_timeout = Duration::from_secs(1);
    let own = host.ticket(Uses::Many, Rights::default());
    let (link, since) = (begun(&own), Instant::now());
    until("it is given up", || host.served() == 0);
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    drop(link);
    assert_eq!(listed(&mut alice.meet(&host, Some(&own)), "", false).unwrap().len(), 30_001, "who reads has it all");
}
