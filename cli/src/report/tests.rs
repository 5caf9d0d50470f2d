//! Tests of the reports: golden texts, the schema of the JSON lines, and that nothing impossible is shown as a headline.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use node::event::Events;
use proto::books::{Books, End, Stage, Verdict, What};
use proto::negotiate::Choice;
use proto::wire::control::{DigestKind, Direction, Durability, EntryFault, FaultKind};
use text::exit::SERIOUSNESS;

use super::*;

/// A writer whose bytes can be looked at afterwards.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Page {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

fn screen(mode: Mode) -> (Screen, Page, Page) {
    let (out, err) = (Page::default(), Page::default());
    (Screen::onto(mode, Box::new(out.clone()), Box::new(err.clone())), out, err)
}

/// With the whole report at the end.
fn screen_of_all(mode: Mode) -> (Screen, Page, Page) {
    let (screen, out, err) = screen(mode);
    (screen.saying(1), out, err)
}

fn books(stages: &[(Stage, u64)], wall_ms: u64, payload_bytes: u64) -> Books {
    let mut books = Books { wall_ns: wall_ms * 1_000_000, workers: 1, payload_bytes, ..Books::default() };
    for &(stage, ms) in stages {
        books.ns[stage as usize] = ms * 1_000_000;
    }
    books
}

/// One of two rails.
fn one_rail(name: &str) -> RailShare {
    RailShare {
        name: name.to_owned(),
        bytes: 2_002_000_000,
        rate_bps: 5.005e9,
        share: None,
        weight: None,
        off_weight: false,
    }
}

fn verdict() -> Verdict {
    Verdict {
        end: End::Receiver,
        what: Some(What::Stage(Stage::Write)),
        share_percent: 40,
        ceiling_bps: 16_600_000_000,
        sentence: "limited by destination write at the receiver, 40 % of its time; were it free, up to 16.6 Gbit/s"
            .to_owned(),
    }
}

/// A run of 4 GB in 3.2 s: 10 Gbit/s.
fn report() -> EndReport {
    let sender = [
        (Stage::Read, 500),
        (Stage::Hash, 700),
        (Stage::Seal, 420),
        (Stage::Send, 560),
        (Stage::Loop, 20),
        (Stage::WaitSend, 900),
        (Stage::Idle, 100),
    ];
    let receiver = [
        (Stage::Hash, 700),
        (Stage::Seal, 430),
        (Stage::Recv, 600),
        (Stage::Write, 1_270),
        (Stage::Loop, 30),
        (Stage::WaitRecv, 170),
    ];
    let of = |stages| Books { rail_bytes: 4_004_000_000, ..books(stages, 3_200, 4_000_000_000) };
    let (stages_local, stages_remote) = (of(&sender), Books { commit_ns: 250_000_000, ..of(&receiver) });
    EndReport {
        job: [0xab; 16],
        direction: Some(Direction::Push),
        bytes: 4_000_000_000,
        files: 1,
        lost_sessions: 0,
        earlier_files: 0,
        earlier_bytes: 0,
        folders: 0,
        links: 0,
        nodes: 0,
        hard_links: 0,
        unkept: Default::default(),
        unnamed: Default::default(),
        kept_files: 0,
        kept_bytes: 0,
        equal_files: 0,
        equal_bytes: 0,
        resumed_bytes: 0,
        readback_failed_bytes: 0,
        hole_bytes: 0,
        compared: Compared::default(),
        extras: Extras::default(),
        seconds: 3.2,
        goodput_bps: 10e9,
        wire_bps: Some(10.01e9),
        nics: Default::default(),
        cpu_seconds_local: 2.3,
        cpu_seconds_remote: Some(3.1),
        peak_memory_bytes_local: 112 << 20,
        peak_memory_bytes_remote: Some(118 << 20),
        transport: "tcp".to_owned(),
        rails: ["0", "1"].map(one_rail).into(),
        resent_bytes: 0,
        path: None,
        forecast: None,
        limiter: verdict(),
        stages_local,
        stages_remote: Some(stages_remote),
        receipt_missing: None,
        receipt: Some(PathBuf::from("/home/u/.local/share/longhaul/receipts/abab.receipt")),
        destination: "/data/".to_owned(),
        digest: DigestKind::Blake3,
        cipher: Some("AES-128-GCM".to_owned()),
        integrity_only: false,
        bare: false,
        far_unread: false,
        durability: Durability::Published,
        faults: Faults::default(),
        choices: vec![Choice { what: "streams", value: "2".to_owned(), reason: "one per core".to_owned() }],
    }
}

fn fault(path: &[u8], kind: FaultKind, errno: i32) -> PathFault {
    PathFault {
        path: path.to_vec(),
        fault: EntryFault { entry: 7, kind, errno, step: "open".to_owned() },
        is_peers: false,
    }
}

const WHOLE: &str = "\
copied 4.00 GB in 3.20 s: 1 file, 0 folders, 0 links; whole and verified (blake3), published
  goodput     10.0 Gbit/s = 1.25 GB/s; wire 10.0 Gbit/s
  transport   tcp, 2 rails, sealed with AES-128-GCM
    rail 0      2.00 GB at 5.00 Gbit/s
    rail 1      2.00 GB at 5.00 Gbit/s
                                  this end (sends)          other end (receives)
  stage                        ms       %     s/GB           ms       %     s/GB
  source read               500.0    15.6    0.125          0.0     0.0    0.000
  hash                      700.0    21.9    0.175        700.0    21.9    0.175
  seal                      420.0    13.1    0.105        430.0    13.4    0.107
  send                      560.0    17.5    0.140          0.0     0.0    0.000
  receive                     0.0     0.0    0.000        600.0    18.8    0.150
  destination write           0.0     0.0    0.000       1270.0    39.7    0.318
  loop                       20.0     0.6    0.005         30.0     0.9    0.007
  wait to send              900.0    28.1    0.225          0.0     0.0    0.000
  wait to receive             0.0     0.0    0.000        170.0     5.3    0.043
  idle                      100.0     3.1    0.025          0.0     0.0    0.000
  sum                      3200.0   100.0    0.800       3200.0   100.0    0.800
  workers × wall time                1 × 3200.0 ms                 1 × 3200.0 ms
  commit, beside              0.0                         250.0
  CPU time                     2.30 s (0.575 s/GB)           3.10 s (0.775 s/GB)
  peak memory                              112 MiB                       118 MiB
  limited by destination write at the receiver, 40 % of its time; were it free, up to 16.6 Gbit/s
  receipt     /home/u/.local/share/longhaul/receipts/abab.receipt
  next        later, on the receiving host, which keeps the same receipt: longhaul verify abab.receipt /data/
";

const BRIEF: &str = "\
copied 4.00 GB in 3.20 s: 1 file, 0 folders, 0 links; whole and verified (blake3), published
  rate        10.0 Gbit/s = 1.25 GB/s; limited by destination write at the receiver, 40 % of its time; were it free, up to 16.6 Gbit/s
  receipt     /home/u/.local/share/longhaul/receipts/abab.receipt
";

#[test]
fn a_whole_job_is_reported_in_three_lines_and_wholly_with_v_and_not_at_all_with_q() {
    for (mode, verbose, wanted) in [(Mode::Lines, 0, BRIEF), (Mode::Lines, 1, WHOLE), (Mode::Quiet, 0, "")] {
        let (screen, out, err) = screen(mode);
        assert_eq!(screen.saying(verbose).end(&report()), Exit::Whole);
        assert_eq!(out.text(), wanted);
        assert_eq!(err.text(), "");
    }
}

#[test]
fn whatever_else_there_is_to_know_takes_one_line_more() {
    let full = EndReport {
        lost_sessions: 2,
        resumed_bytes: 146_000_000,
        readback_failed_bytes: 2_000_000,
        kept_files: 3,
        extras: Extras { removed: 5, ..Extras::default() },
        ..report()
    };
    let text = end::brief(&json::Done::of(&full));
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.contains("  besides     reconnected 2 times; 146 MB resumed; 2.00 MB had changed"), "{text}");
    assert!(text.contains("5 entries removed"), "{text}");
}

#[test]
fn quiet_says_what_failed_and_what_to_do() {
    let mut partial = report();
    partial.faults.add(fault(b"dir/x", FaultKind::Denied, 13));
    let (mut screen, out, err) = screen(Mode::Quiet);
    screen.note("waiting for a place");
    screen.progress(&Progress { elapsed: Duration::from_secs(500), ..half() });
    screen.fault(&fault(b"dir/x", FaultKind::Denied, 13));
    assert_eq!(screen.end(&partial), Exit::Denied);
    assert_eq!(out.text(), "");
    let text = err.text();
    assert!(text.starts_with("dir/x: permission denied") && text.contains("1 entry FAILED"), "{text}");
    assert!(text.contains("  next        give this user") && !text.contains("waiting"), "{text}");
}

#[test]
fn a_copy_of_which_nothing_arrived_says_failed_first_and_has_no_receipt_to_show() {
    let mut nothing = EndReport { bytes: 0, files: 0, ..report() };
    nothing.faults.add(fault(b"x", FaultKind::Vanished, 2));
    for text in [end::brief(&json::Done::of(&nothing)), end::text(&json::Done::of(&nothing))] {
        assert!(text.starts_with("failed after 3.20 s: nothing arrived; 1 entry FAILED\n"), "{text}");
        assert!(!text.contains("receipt") && !text.contains("limited"), "{text}");
        assert!(text.contains("  next        check the path named above"), "{text}");
    }
    let empty = end::text(&json::Done::of(&EndReport { bytes: 0, files: 0, ..report() }));
    assert!(!empty.contains("receipt") && !empty.contains("verify "), "{empty}");
    let kept = end::brief(&json::Done::of(&EndReport { bytes: 0, files: 0, kept_files: 2, ..report() }));
    assert!(kept.contains("  receipt     "), "{kept}");
}

#[test]
fn losses_and_a_policer_are_in_the_short_report_and_the_long_one() {
    let stats = engine::meter::PathStats {
        packets: 10_000,
        lost_packets: 120,
        fresh_bytes: 9_000_000,
        repair_bytes: 900_000,
        copy_bytes: 100_000,
        policer: 2_460_000,
        ..Default::default()
    };
    let path = Some(node::report::path::PathRecord::of(proto::negotiate::Pace::default(), &stats, true));
    let of = |(mut screen, out, _): (Screen, Page, Page)| {
        let mut report = EndReport { path: path.clone(), transport: "udp".to_owned(), ..report() };
        report.limiter.sentence = "limited by a policer at about 20 Mbit/s on the path (loss 1.2 %): …".to_owned();
        Events::to(&mut screen).end(report);
        out.text()
    };
    let short = of(screen(Mode::Lines));
    let besides = "  besides     1.2 % of the packets lost, 10.0 % of the bytes sent again; a policer at about 20 Mbit/s on the path\n";
    assert!(short.contains(besides), "{short}");
    assert!(short.contains("; limited by a policer at about 20 Mbit/s on the path"), "{short}");
    let long = of(screen_of_all(Mode::Lines));
    assert!(
        long.contains("loss 1.20 %, 10.00 % of the bytes sent again, a policer at about 20 Mbit/s on the path"),
        "{long}"
    );
    let line = of(screen(Mode::Json));
    let done: serde_json::Value = serde_json::from_str(line.lines().last().unwrap()).unwrap();
    assert_eq!((&done["path"]["policer_bps"], &done["path"]["resent_percent"]), (&19_680_000.0.into(), &10.0.into()));
}

#[test]
fn no_limiter_is_named_where_a_copy_was_too_short_to_tell_or_something_failed() {
    let short = "too short to tell what limited it";
    let line = |it: &EndReport| {
        // Figures of another time and size than the rest of the report are impossible, which is not what is looked at here.
        let mut done = json::Done::of(it);
        done.impossible.clear();
        (end::brief(&done), end::text(&done))
    };
    for (seconds, bytes, is_told) in [(0.99, 4_000_000_000, false), (3.2, 63_999_999, false), (1.0, 64_000_000, true)] {
        let goodput_bps = bytes as f64 * 8.0 / seconds;
        let (brief, whole) = line(&EndReport { seconds, bytes, goodput_bps, ..report() });
        for text in [brief, whole] {
            assert_eq!(text.contains(short), !is_told, "{seconds} s, {bytes} B: {text}");
            assert_eq!(text.contains("limited by destination write"), is_told, "{seconds} s, {bytes} B: {text}");
        }
    }
    let mut failed = report();
    failed.faults.add(fault(b"x", FaultKind::Io, 5));
    let (brief, whole) = line(&failed);
    assert!(!brief.contains("limit") && !whole.contains("limited"), "{brief}{whole}");
}

#[test]
fn the_stage_table_fits_a_terminal_and_its_columns_never_run_together() {
    for (scale, payload) in [(1, 4_000_000_000), (1, 6), (1_000_000, 4_000_000_000), (3_000_000_000, 1_000_000)] {
        let mut wide = report();
        for books in [Some(&mut wide.stages_local), wide.stages_remote.as_mut()].into_iter().flatten() {
            books.ns.iter_mut().for_each(|ns| *ns = ns.saturating_mul(scale));
            books.wall_ns = books.wall_ns.saturating_mul(scale);
            books.payload_bytes = payload;
            books.workers = 64;
        }
        let text = end::text(&json::Done::of(&wide));
        let table: Vec<&str> = text
            .lines()
            .skip_while(|line| !line.starts_with("  stage "))
            .take_while(|line| !line.contains("limit"))
            .collect();
        assert!(table.len() > 10, "{text}");
        for line in &table {
            assert!(line.chars().count() <= end::COLUMNS, "{} columns: {line}", line.chars().count());
        }
        for line in table.iter().filter(|line| line.starts_with("  hash") || line.starts_with("  sum")) {
            assert_eq!(line.split_whitespace().count(), 7, "six figures behind the name: {line}");
        }
    }
}

#[test]
fn a_report_names_the_path_at_the_receiver_and_never_a_tickets_secret() {
    for (address, path) in [
        ("/data/x", "/data/x"),
        ("a:b/c", "b/c"),
        ("./a:b", "./a:b"),
        ("me@node7:", "."),
        ("longhaul://SECRET@10.0.0.2:5740/in/x", "ROOT/in/x"),
        ("longhaul://SECRET@10.0.0.2:5740", "ROOT/"),
    ] {
        let done = json::Done::of(&EndReport { destination: address.to_owned(), ..report() });
        assert_eq!(done.destination, path, "{address}");
        assert!(!end::text(&done).contains("SECRET"), "{address}");
    }
}

#[test]
fn a_fetched_copy_is_verified_here() {
    let (mut screen, out, _) = screen_of_all(Mode::Lines);
    screen.end(&EndReport { direction: Some(Direction::Pull), ..report() });
    let text = out.text();
    assert!(text.contains("this end (receives)             other end (sends)\n"), "{text}");
    assert!(
        text.ends_with(
            "  next        later: longhaul verify /home/u/.local/share/longhaul/receipts/abab.receipt /data/\n"
        ),
        "{text}"
    );
}

#[test]
fn failed_entries_are_listed_counted_and_give_the_exit_code() {
    let mut partial = report();
    for index in 0..30 {
        partial.faults.add(fault(format!("dir/file {index}").as_bytes(), FaultKind::Vanished, 2));
    }
    partial.faults.add(fault(b"dir/bad\nname\xff", FaultKind::Denied, 13));
    let (mut screen, out, _) = screen(Mode::Lines);
    assert_eq!(screen.end(&partial), Exit::Denied);
    let text = out.text();
    assert!(
        text.starts_with("copied 4.00 GB in 3.20 s: 1 file, 0 folders, 0 links; 31 entries FAILED, all others whole"),
        "{text}"
    );
    assert!(text.contains("  failed      1 denied, 30 vanished\n"), "{text}");
    assert!(text.contains("    dir/file 19: is gone (open: No such file or directory)\n    and 11 more\n"), "{text}");
    assert!(text.contains("  next        give this user the permission"), "{text}");
    assert!(!text.contains("dir/file 20"));
}

#[test]
fn only_what_was_read_is_called_verified() {
    let line = |it: &EndReport| end::text(&json::Done::of(it)).lines().next().unwrap().to_owned();
    let outcome = |it: &EndReport| line(it).split_once("; ").unwrap().1.to_owned();
    let kept = EndReport { files: 3, kept_files: 12_000, kept_bytes: 1 << 30, ..report() };
    assert_eq!(
        outcome(&kept),
        "3 files sent and verified (blake3), published, 12 000 files kept by size and time, not read"
    );
    let nothing = EndReport { files: 0, ..kept.clone() };
    assert_eq!(outcome(&nothing), "nothing sent, 12 000 files kept by size and time, not read");
    let equal = EndReport { equal_files: 12_000, equal_bytes: 1 << 30, ..kept.clone() };
    assert_eq!(outcome(&equal), "3 files sent and verified (blake3), published, 12 000 files compared and found equal");
    let mut failed = kept.clone();
    failed.faults.add(fault(b"x", FaultKind::Denied, 13));
    assert_eq!(
        outcome(&failed),
        "1 entry FAILED, 3 files sent and verified (blake3), 12 000 files kept by size and time, not read"
    );
    let bare = EndReport { bare: true, ..report() };
    assert!(!line(&bare).contains("verified"), "{}", line(&bare));
    for bare in [false, true] {
        let unread = EndReport { bare, far_unread: true, transport: "ftps".to_owned(), ..report() };
        assert!(!line(&unread).contains("verified") && line(&unread).contains("far side unread"), "{}", line(&unread));
    }
    let compared = EndReport { bare: true, transport: "ftp".to_owned(), ..report() };
    assert!(line(&compared).contains("whole and verified"), "{}", line(&compared));
    let text = end::text(&json::Done::of(&EndReport { equal_files: 5, equal_bytes: 7, ..kept.clone() }));
    assert!(text.contains("  kept        11 995 files, 1.07 GB: size and time are the same, not read\n"), "{text}");
    assert!(text.contains("  kept        5 files, 7 B: read and equal\n"), "{text}");
}

#[test]
fn a_missing_receipt_is_said_and_has_its_own_exit_code() {
    let why = "no receipt can be kept at /ro/x: Read-only file system".to_owned();
    let missing = EndReport { receipt: None, receipt_missing: Some(why), ..report() };
    let (mut screen, out, _) = screen(Mode::Lines);
    assert_eq!(screen.end(&missing), Exit::NoReceipt);
    let text = out.text();
    assert!(text.lines().next().unwrap().ends_with("whole and verified (blake3), published, NO RECEIPT"), "{text}");
    assert!(text.contains("  NO RECEIPT  no receipt can be kept at /ro/x: Read-only file system\n"), "{text}");
    let mut failed = missing.clone();
    failed.faults.add(fault(b"x", FaultKind::Denied, 13));
    assert_eq!(failed.exit(), Exit::Denied, "what is missing of the data counts more");
    let done = json::Done::of(&missing);
    assert_eq!((done.exit, done.exit_kind.as_str()), (41, "unreceipted"));
}

#[test]
fn a_million_failed_entries_take_no_more_memory_than_a_hundred() {
    let mut faults = Faults::default();
    for _ in 0..1_000_000 {
        faults.add(fault(b"x", FaultKind::Full, 28));
    }
    assert_eq!((faults.count(), faults.first().len(), faults.exit()), (1_000_000, FAULTS_KEPT, Exit::Full));
}

#[test]
fn the_done_line_fits_into_one_control_frame_whatever_failed() {
    let mut worst = report();
    for _ in 0..200 {
        worst.faults.add(fault(&[0xff; 4_095], FaultKind::Io, 5));
        worst.faults.add(fault(&[0x1b; 100], FaultKind::Io, 5));
    }
    worst.rails = (0..256)
        .map(|rail| RailShare {
            name: rail.to_string(),
            bytes: u64::MAX,
            rate_bps: 1.234_567_890_123e9,
            share: None,
            weight: None,
            off_weight: false,
        })
        .collect();
    let line = serde_json::to_string(&json::Done::of(&worst)).unwrap();
    assert!(line.len() < proto::FRAME_BYTES_MAX - 1_024, "{} bytes", line.len());
    assert_eq!(worst.faults.count(), 400);
}

#[test]
fn an_impossible_figure_takes_the_headlines_place() {
    type Spoil = fn(&mut EndReport);
    let table: [(&str, Spoil); 9] = [
        ("above the wire rate", |report| report.wire_bps = Some(9e9)),
        ("bytes over time", |report| report.goodput_bps = 40e9),
        ("the wall time is -1 s", |report| report.seconds = -1.0),
        ("CPU time of the other end is NaN", |report| report.cpu_seconds_remote = Some(f64::NAN)),
        ("hash took more than the whole time", |report| report.stages_local.ns[Stage::Hash as usize] = 3_300_000_000),
        ("stages sum to less", |report| report.stages_local.ns[Stage::WaitSend as usize] = 0),
        ("less than the 4.00 GB of payload", |report| report.rails.truncate(1)),
        ("all interfaces of this end together counted 1.00 GB sent, less", |report| {
            report.nics.counted = (Some(1_000_000_000), Some(4_100_000_000));
        }),
        ("all interfaces of the other end together counted 0 B received, less", |report| {
            report.nics.counted = (None, Some(0));
        }),
    ];
    for (sentence, spoil) in table {
        let mut spoiled = report();
        spoil(&mut spoiled);
        let (mut screen, out, _) = screen(Mode::Lines);
        screen.end(&spoiled);
        let text = out.text();
        assert!(text.contains("ERROR       impossible figure"), "{sentence}: {text}");
        assert!(text.contains(sentence), "{sentence}: {text}");
        assert!(!text.contains("rate        "), "{sentence}: {text}");
    }
    assert_eq!(check::impossible(&report()), Vec::<String>::new());
    // A NIC that is asked every two seconds has not told all of a short job; where nobody counted, nothing is said.
    let mut late = report();
    late.nics.counted = (Some(1_500_000_000), None);
    assert_eq!(check::impossible(&late), Vec::<String>::new());
}

#[test]
fn the_done_line_has_the_fields_of_the_contract() {
    let (mut screen, out, err) = screen(Mode::Json);
    screen.end(&report());
    assert_eq!(err.text(), "");
    let text = out.text();
    assert_eq!(text.matches('\n').count(), 1);
    let done: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(done["event"], "done");
    for number in [
        "bytes",
        "files",
        "seconds",
        "goodput_bps",
        "wire_bps",
        "cpu_seconds_local",
        "cpu_seconds_remote",
        "peak_memory_bytes_local",
        "peak_memory_bytes_remote",
        "resent_bytes",
        "exit",
        "kept_files",
        "kept_bytes",
        "equal_files",
        "equal_bytes",
        "resumed_bytes",
        "readback_failed_bytes",
        "hole_bytes",
        "faults_count",
    ] {
        assert!(done[number].is_number(), "{number}: {}", done[number]);
    }
    for text in
        ["transport", "limiter", "receipt", "digest", "cipher", "durability", "rung", "job", "exit_kind", "direction"]
    {
        assert!(done[text].is_string(), "{text}: {}", done[text]);
    }
    for list in ["rails", "faults", "choices", "impossible"] {
        assert!(done[list].is_array(), "{list}: {}", done[list]);
    }
    for end in ["stages_local", "stages_remote"] {
        let stages = done[end]["stages"].as_array().unwrap();
        assert_eq!(stages.len(), proto::books::STAGES);
        let sum: f64 = stages.iter().map(|stage| stage["ms"].as_f64().unwrap()).sum();
        assert!((sum - done[end]["wall_ms"].as_f64().unwrap()).abs() < 1e-6);
    }
    assert_eq!(done["stages_remote"]["stages"][5]["stage"], "destination write");
    assert_eq!(done["goodput_bps"], 10e9);
}

#[test]
fn what_an_earlier_run_wrote_and_was_something_else_when_read_back_is_said() {
    let said = |report: EndReport| end::text(&json::Done::of(&report));
    let text = said(EndReport { resumed_bytes: 90 << 20, readback_failed_bytes: 2_000_000, ..report() });
    let line = text.lines().find(|line| line.starts_with("  not resumed")).unwrap();
    assert!(line.contains("2.00 MB") && line.contains("sent again"), "{line}");
    assert!(!said(EndReport { resumed_bytes: 90 << 20, ..report() }).contains("not resumed"));
}

#[test]
fn names_keep_their_bytes_in_json_and_lose_their_teeth_on_the_screen() {
    let evil = fault(b"a\x1b[2Jb\xff\n", FaultKind::Io, 5);
    let (mut screen_json, out, _) = screen(Mode::Json);
    screen_json.fault(&evil);
    let event: serde_json::Value = serde_json::from_str(&out.text()).unwrap();
    assert_eq!(event["event"], "fault");
    assert_eq!(event["path"], "a\\x1b[2Jb\\xff\\x0a");
    assert_eq!(event["path_hex"], "611b5b324a62ff0a");
    assert_eq!(event["kind"], "io");
    let (mut screen_text, _, err) = screen(Mode::Lines);
    screen_text.fault(&evil);
    screen_text.note("from \x1b]0;title\x07afar");
    assert_eq!(
        err.text(),
        "a\\x1b[2Jb\\xff\\x0a: input/output error (open: Input/output error)\nfrom \\x1b]0;title\\x07afar\n"
    );
    assert_eq!(show_path("grün/日本".as_bytes()), "grün/日本");
    assert_eq!(show_path("a\u{202e}b".as_bytes()), "a\\xe2\\x80\\xaeb");
    assert_eq!(show_path(b""), ".");
}

#[test]
fn what_another_host_reports_is_shown_as_if_it_ran_here() {
    let (mut there, lines, _) = screen(Mode::Json);
    there.progress(&half());
    there.note("a note");
    there.end(&report());
    let (mut here, out, err) = screen_of_all(Mode::Lines);
    let mut exit = None;
    for line in lines.text().lines() {
        exit = Events::to(&mut here).relay(line);
    }
    assert_eq!(exit, Some(Exit::Whole));
    assert_eq!(out.text(), WHOLE);
    assert!(err.text().contains("a note\n"));
    assert_eq!(Events::to(&mut here).relay("{\"event\":\"of-a-later-version\"}"), None);
    assert_eq!(Events::to(&mut here).relay("not json \x1b"), None);
    let (mut there, lines, _) = screen(Mode::Json);
    there.end_dry(&DryRun { faults: 1, ..DryRun::default() });
    assert_eq!(Events::to(&mut here).relay(lines.text().trim()), Some(Exit::Partial));
    assert_eq!(
        Events::to(&mut here).relay("{\"event\":\"done\",\"exit\":null}"),
        Some(Exit::Negotiation),
        "a last line ends the job"
    );
    assert!(ends_job("{\"event\":\"done\",\"exit\":null}") && !ends_job("{\"event\":\"note\",\"text\":\"done\"}"));
    let (mut there, lines, _) = screen(Mode::Json);
    let failure = Exit::Refused.fail("open the job", "read-only");
    assert_eq!(there.fail(&failure), Exit::Refused);
    assert_eq!(Events::to(&mut here).relay(lines.text().trim()), Some(Exit::Refused));
    assert!(err.text().contains("failed to open the job: read-only\n  next: "));
}

fn half() -> Progress {
    Progress {
        bytes_total: Some(4_000_000_000),
        bytes_done: 2_000_000_000,
        files_total: 1_200,
        files_done: 600,
        rate_bps: 8e9,
        written_bps: Some(4e9),
        open_file: Some("big/two words.img".to_owned()),
        received: 2_000_000_000,
        written: 1_900_000_000,
        durable: 1_500_000_000,
        entries_failed: 0,
        scan_done: true,
        rails: vec![
            RailShare { name: "0".to_owned(), bytes: 0, rate_bps: 4e9, share: None, weight: None, off_weight: false },
            RailShare { name: "1".to_owned(), bytes: 0, rate_bps: 4e9, share: None, weight: None, off_weight: false },
        ],
        stage_limit: Some("hash".to_owned()),
        elapsed: Duration::from_secs(2),
        reconnecting: None,
    }
}

#[test]
fn a_progress_line_says_it_all() {
    assert_eq!(
        progress::line(&half(), progress::Rates::Link, 1),
        "2.00 s: 2.00 GB of 4.00 GB (50 %), 600 of 1 200 files, 4.00 Gbit/s, 4.00 s to go; \
         received 2.00 GB, written 1.90 GB, durable 1.50 GB; limited by hash; now big/two words.img; \
         rails: 0 4.00 Gbit/s, 1 4.00 Gbit/s"
    );
    let brief = progress::line(&half(), progress::Rates::Link, 0);
    assert_eq!(brief.matches("bit/s").count(), 1, "one rate: {brief}");
    let held = Progress { stage_limit: Some(Stage::WaitRate.name().to_owned()), ..half() };
    let held = progress::line(&held, progress::Rates::Link, 0);
    assert!(held.contains("; held by rate cap; now") && !held.contains("limited by"), "{held}");
}

#[test]
fn while_the_scan_runs_no_percentage_and_no_time_is_claimed() {
    let mut growing = half();
    growing.scan_done = false;
    let line = progress::line(&growing, progress::Rates::Disk, 0);
    assert!(line.contains("2.00 GB of 4.00 GB found so far, 600"), "{line}");
    assert!(!line.contains('%') && !line.contains("to go"), "{line}");
    growing.bytes_total = None;
    assert!(progress::line(&growing, progress::Rates::Disk, 0).contains("of an unknown total"));
}

#[test]
fn progress_is_never_above_100_percent_and_100_only_when_all_is_done() {
    let mut done = half();
    done.bytes_done = 4_000_000_000;
    assert_eq!(progress::percent(&done), Some(99), "files are still open");
    done.files_done = 1_200;
    assert_eq!(progress::percent(&done), Some(100));
    done.bytes_done = 5_000_000_000;
    assert_eq!(progress::percent(&done), Some(100));
    assert_eq!(progress::fraction(&done), Some(1.0));
    done.bytes_done = 3_999_999_999;
    assert_eq!(progress::percent(&done), Some(99));
    let empty =
        Progress { bytes_total: Some(0), files_total: 4, files_done: 1, scan_done: true, ..Progress::default() };
    assert_eq!(progress::percent(&empty), Some(25));
}

#[test]
fn without_a_terminal_a_line_comes_each_minute_or_as_often_as_it_is_wanted() {
    let due = |mode: Mode, wanted: ProgressChoice| {
        let mut pace = progress::Pace::every(mode, wanted);
        let is_due = |tenths: &u64| pace.is_due(Duration::from_millis(tenths * 100));
        (0..2_000).filter(is_due).map(|tenths| tenths / 10).collect::<Vec<u64>>()
    };
    assert_eq!(due(Mode::Lines, ProgressChoice::Auto), [60, 120, 180]);
    assert_eq!(due(Mode::Lines, ProgressChoice::Every(Duration::from_secs(50))), [50, 100, 150]);
    for (mode, wanted) in [(Mode::Lines, ProgressChoice::Never), (Mode::Quiet, ProgressChoice::Auto)] {
        assert_eq!(due(mode, wanted), [0; 0], "{mode:?}");
    }
    assert_eq!(due(Mode::Json, ProgressChoice::Never).len(), 200);
}

#[test]
fn a_dry_run_says_what_would_be_done() {
    let dry = DryRun { files: 2, bytes: 1_500, folders: 1, kept_files: 1, kept_bytes: 10, ..DryRun::default() };
    let (mut screen_text, out, _) = screen(Mode::Lines);
    assert_eq!(screen_text.end_dry(&dry), Exit::Whole);
    assert_eq!(
        out.text(),
        "would copy 1.50 kB: 2 files, 1 folder, 0 links\n  kept        1 file, 10 B: size and time are the same, not read\n"
    );
    let (mut screen_json, out, _) = screen(Mode::Json);
    screen_json.end_dry(&dry);
    let record: serde_json::Value = serde_json::from_str(&out.text()).unwrap();
    assert_eq!((&record["event"], &record["dry_run"], &record["bytes"]), (&"done".into(), &true.into(), &1_500.into()));
}

#[test]
fn explain_shows_both_offers_each_reason_and_the_sum_of_memory() {
    use proto::negotiate::{Cipher, Driver, Interface, Offer};
    let local = Offer {
        boot_id: "a".to_owned(),
        cores: 2,
        load_percent: 105,
        memory_bytes: 256 << 20,
        interfaces: vec![Interface {
            name: "eth0".to_owned(),
            address: "10.0.0.1".to_owned(),
            mtu: 9_000,
            speed_mbit: 10_000,
        }],
        drivers: vec![Driver::Uring, Driver::Plain],
        ciphers: vec![Cipher::Aes128Gcm],
        digests: vec![DigestKind::Blake3],
        integrity_only: false,
        bare: false,
        streams: 0,
        streams_max: 16,
        chunk_bytes: 0,
        rate_bps: 0,
        free_bytes: 0,
        disk_bps: 0,
        bufs_bytes: 0,
        look: false,
        storage: proto::negotiate::StorageLook::default(),
        datagrams: 0,
        pace: proto::negotiate::Pace::default(),
        rdma: proto::negotiate::RdmaOffer::default(),
    };
    let mut remote = local.clone();
    remote.cores = 64;
    remote.interfaces[0].name = "e\x1b[2J".to_owned();
    let memory = super::explain::MemorySum {
        parts: vec![("pool".to_owned(), 128 << 20), ("window".to_owned(), 8 << 20)],
        granted_bytes: 256 << 20,
    };
    let choices = [Choice { what: "streams", value: "2".to_owned(), reason: "two cores here".to_owned() }];
    let explained = Explained {
        local: &local,
        remote: Some(&remote),
        choices: &choices,
        memory: &memory,
        driver: "io_uring",
        driver_reason: "the kernel allows it",
    };
    let (mut screen, _, err) = screen(Mode::Lines);
    screen.plan(&json::PlanRecord::of(&explained));
    let text = err.text();
    for part in [
        "  cores             here: 2\n                    there: 64\n",
        "  load              both: 1.05\n",
        "  interfaces        here: eth0 10.0.0.1 (MTU 9000 B, 10Gbit/s)\n",
        "there: e\\x1b[2J 10.0.0.1",
        "  streams           2: two cores here\n",
        "  driver here       io_uring: the kernel allows it\n",
        "  memory here       pool 128 MiB + window 8 MiB = 136 MiB of 256 MiB granted\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn every_fault_kind_reads_as_a_sentence() {
    for kind in SERIOUSNESS {
        let line = end::fault_line(&json::FaultRecord::of(&fault(b"p", kind, 0)));
        assert!(line.starts_with("p: ") && line.ends_with("(open)") && line.len() > 12, "{line}");
    }
}

/// Every number of a line, however deep, replaced by `with`, one at a time.
fn bent(value: &serde_json::Value, with: &serde_json::Value) -> Vec<serde_json::Value> {
    let rebuilt = |key: &str, child: &serde_json::Value| {
        let set = |child: serde_json::Value| {
            let mut whole = value.clone();
            match key.parse::<usize>() {
                Ok(index) if whole.is_array() => whole[index] = child,
                _ => whole[key] = child,
            }
            whole
        };
        bent(child, with).into_iter().map(set).collect::<Vec<_>>()
    };
    match value {
        serde_json::Value::Number(_) => vec![with.clone()],
        serde_json::Value::Object(fields) => fields.iter().flat_map(|(key, child)| rebuilt(key, child)).collect(),
        serde_json::Value::Array(items) => {
            items.iter().enumerate().flat_map(|(index, child)| rebuilt(&index.to_string(), child)).collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn no_number_from_another_host_stops_the_screen_and_a_last_line_always_ends_the_job() {
    let mut partial = report();
    partial.faults.add(fault(b"x", FaultKind::Io, 5));
    let (mut there, lines, _) = screen(Mode::Json);
    // Late enough that a line is due.
    there.progress(&Progress { elapsed: Duration::from_secs(70), ..half() });
    there.end(&partial);
    let lines = lines.text();
    let mut count = 0;
    for with in ["0", "-1", "18446744073709551615", "1e308", "null", "\"x\""] {
        let with: serde_json::Value = serde_json::from_str(with).unwrap();
        for line in lines.lines() {
            for bad in bent(&serde_json::from_str(line).unwrap(), &with) {
                let (mut here, _, _) = screen(Mode::Lines);
                let exit = Events::to(&mut here).relay(&bad.to_string());
                assert_eq!(exit.is_some(), bad["event"] == "done", "{bad}");
                count += 1;
            }
        }
    }
    assert!(count > 500, "{count}");
}

proptest::proptest! {
    #[test]
    fn no_text_from_another_host_makes_the_screen_panic(text in ".{0,80}") {
        let (mut here, _, _) = screen(Mode::Lines);
        let _ = Events::to(&mut here).relay(&text);
        here.note(&text);
    }
}

#[test]
fn a_session_that_is_made_again_is_said_since_when_and_until_when() {
    let waiting = Reconnecting { since_s: 1_800_000_000, until_s: 1_800_000_300 };
    let (mut screen, _, err) = screen(Mode::Lines);
    screen.progress(&Progress { elapsed: Duration::from_secs(100), bytes_done: 5, ..Progress::default() });
    screen.reconnecting(waiting);
    // The next session's time begins at nothing; its figures are shown all the same.
    for seconds in 0..70 {
        screen.progress(&Progress { elapsed: Duration::from_secs(seconds), bytes_done: 7, ..Progress::default() });
    }
    let text = err.text();
    assert!(text.contains("5 B of an unknown total"), "{text}");
    assert!(text.contains("; RECONNECTING since 08:00:00, until 08:05:00 UTC at most"), "{text}");
    assert!(text.contains("7 B of an unknown total"), "{text}");
    let line = serde_json::to_string(&json::ProgressRecord::of(&Progress {
        reconnecting: Some(waiting),
        ..Progress::default()
    }));
    assert!(line.unwrap().contains(r#""reconnecting":{"since_s":1800000000,"until_s":1800000300}"#));
}

#[test]
fn the_programs_way_to_another_host_is_one_line_of_a_terminal_and_nothing_elsewhere() {
    for (mode, shown) in [
        (Mode::Live, "\r\x1b[K2.00 MB of 6.00 MB sent, 33 %\r\x1b[K"),
        (Mode::Lines, ""),
        (Mode::Json, ""),
        (Mode::Quiet, ""),
    ] {
        let (mut screen, out, err) = screen(mode);
        let mut events = Events::to(&mut screen);
        events.bringing(2_000_000, 6_000_000);
        events.bringing(6_000_000, 6_000_000);
        assert_eq!((out.text().as_str(), err.text().as_str()), ("", shown));
    }
}

#[test]
fn owners_that_went_by_number_are_said_where_their_numbers_stand_and_are_in_json_always() {
    let mut report = self::report();
    report.unnamed = OwnersByNumber { unknown: 3, nameless: 1, is_silent: true };
    let done = json::Done::of(&report);
    let text = end::brief(&done);
    assert!(text.contains("3 owners by names that are unknown at the destination: their numbers are kept"), "{text}");
    assert!(text.contains("1 owner without a name at the source: its number is kept"), "{text}");
    assert!(text.contains("a name service did not answer in time") && text.lines().count() <= 4, "{text}");
    assert!(end::text(&done).contains("3 owners by names that are unknown"), "the whole report has it, too");
    let line = serde_json::to_string(&done).expect("a line");
    assert!(line.contains(r#""owners_unknown":3,"owners_nameless":1,"name_service_silent":true"#), "{line}");
    // Where no owner could be set no number stands, and that is said already.
    report.unkept.add(proto::manifest::Aspects::OWNER, b"f");
    assert!(!end::brief(&json::Done::of(&report)).contains("owners by names"));
    // Within one host a number means the same with and without a name.
    let mut local = self::report();
    (local.direction, local.unnamed) = (None, OwnersByNumber { unknown: 0, nameless: 5, is_silent: false });
    assert!(!end::brief(&json::Done::of(&local)).contains("without a name"));
}
