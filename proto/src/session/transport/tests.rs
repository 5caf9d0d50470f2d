//! The choice of transport over paths as they are, and what becomes of it in virtual time.
//!
//! For: every rule of the choice and of its change while a job runs.
//! In and out: paths, counters and times in; forecasts and changes checked.
//! Invariants: no clock: times are made up.
//! Absent on purpose: sockets (the job driver), the rules of a single trial (trial).

use alloc::vec::Vec;

use super::forecast::{Limit, Storage, TcpController, Unknown};
use super::*;
use crate::negotiate::{Offer, Pace, STORAGE_BPS_MAX, StorageLook};

const MB: u64 = 1_000_000;

fn host(controller: TcpController) -> Host {
    Host {
        controller,
        rails: (2, 16),
        window_bytes: 16e6,
        tcp_bps: 5e9,
        udp_bps: 2.5e9,
        cap_bps: 0.0,
        storage: Storage::default(),
        is_one_host: false,
    }
}

fn path(rtt_ms: f64, rate_bps: Option<f64>, lost: u64, looked: u64) -> View {
    View { rtt_s: rtt_ms / 1e3, looked, lost, rate_bps, packet_bytes: 1500, queue_s: 0.0 }
}

fn carry(rtt_ms: f64, rate_bps: Option<f64>, lost: u64, controller: TcpController) -> Carry {
    forecast(&path(rtt_ms, rate_bps, lost, 1000), &host(controller), Some(1000 * MB)).carry
}

#[test]
fn streams_where_they_fill_the_path_and_datagrams_where_loss_times_distance_makes_them_lose() {
    use Carry::{Tcp, Udp};
    let table = [
        // rtt, link, lost of 1000
        (0.2, None, 0, Tcp),
        (0.2, Some(1e9), 0, Tcp),
        (2.0, Some(1e9), 0, Tcp),
        (20.0, Some(10e6), 0, Tcp),
        (20.0, Some(1e9), 0, Udp),
        (20.0, Some(1e9), 1, Udp),
        (100.0, Some(1e9), 0, Udp),
        (100.0, Some(1e9), 10, Udp),
        (100.0, Some(10e6), 10, Udp),
        (2.0, Some(1e9), 10, Udp),
        (550.0, Some(155e6), 50, Udp),
    ];
    for (rtt_ms, rate, lost, wanted) in table {
        assert_eq!(carry(rtt_ms, rate, lost, TcpController::Cubic), wanted, "{rtt_ms} ms, {rate:?}, {lost}");
    }
    assert_eq!(carry(100.0, Some(1e9), 10, TcpController::Bbr), Udp);
    // 40 MB as they were measured: 3.5 s both over 10 ms, 3.9 and 3.6 over 40.
    let bbr = |rtt_ms| forecast(&path(rtt_ms, Some(100e6), 0, 64), &host(TcpController::Bbr), Some(40 * MB)).carry;
    assert_eq!((bbr(10.0), bbr(40.0)), (Tcp, Udp));
}

#[test]
fn both_where_neither_fills_the_path_by_itself() {
    let host = Host { window_bytes: 10e6, ..host(TcpController::Bbr) };
    // 2 rails of 10 MB over 50 ms are 3.2 Gbit/s, one core of datagrams 2.5, and the link carries 20.
    let both = forecast(&path(50.0, Some(20e9), 0, 1000), &host, Some(100_000 * MB));
    assert_eq!((both.carry, both.tcp.limit, both.udp.limit), (Carry::Both, Limit::Window, Limit::Host));
    assert!(both.gain() > 1.25, "{}", both.gain());
    // Where the link is all there is, both would only share it.
    assert_ne!(forecast(&path(50.0, Some(3e9), 0, 1000), &host, Some(100_000 * MB)).carry, Carry::Both);
}

#[test]
fn a_clean_lan_is_tcps_whatever_the_mtu_the_cores_or_the_windows_and_no_packet_size_makes_datagrams_fast() {
    for mtu in [1500, 9000, 65_535] {
        for (cores, window_bytes) in [(1.0, 16e6), (12.0, 3e6), (64.0, 1e6)] {
            let host = Host { tcp_bps: cores * 2.5e9, window_bytes, ..host(TcpController::Cubic) };
            // As a busy host sees its LAN: a round trip of milliseconds, and a link faster than a train shows.
            for rtt_ms in [0.1, 1.2, 4.0] {
                let view = View { packet_bytes: mtu, ..path(rtt_ms, None, 0, 64) };
                let found = forecast(&view, &host, Some(1000 * MB));
                assert_eq!(found.carry, Carry::Tcp, "MTU {mtu}, {cores} cores, {rtt_ms} ms: {found:?}");
                assert!(
                    found.udp.rate_bps <= host.udp_bps,
                    "a core carries no more bytes in longer packets: {found:?}"
                );
            }
        }
    }
    // Short packets cost more by the byte.
    let short = forecast(&View { packet_bytes: 780, ..path(0.1, None, 0, 64) }, &host(TcpController::Cubic), None);
    assert!((short.udp.rate_bps / 1.25e9 - 1.0).abs() < 1e-9, "{short:?}");
}

#[test]
fn the_slower_disk_is_in_what_is_expected_and_not_in_what_is_chosen() {
    let slow = Host { storage: Storage { bps: 800e6, ..Storage::default() }, ..host(TcpController::Cubic) };
    for view in [path(0.2, None, 0, 64), path(100.0, Some(2e9), 10, 1000), path(20.0, Some(10e6), 0, 64)] {
        let (with, without) =
            (forecast(&view, &slow, Some(1000 * MB)), forecast(&view, &host(TcpController::Cubic), Some(1000 * MB)));
        assert_eq!((with.carry, with.chosen()), (without.carry, without.chosen()));
        let least = without.chosen().rate_bps.min(800e6);
        assert_eq!(with.expected().rate_bps, least);
        assert_eq!(with.expected().limit == Limit::Disk, least == 800e6);
        assert_eq!(without.expected(), without.chosen(), "no disk is known");
    }
    // Ten seconds and the round trips; a job that the page cache takes is no matter of disks.
    let near = path(0.2, None, 0, 64);
    let seconds = forecast(&near, &slow, Some(1000 * MB)).expected().seconds(1000 * MB);
    assert!((10.0..10.1).contains(&seconds), "{seconds}");
    assert_ne!(forecast(&near, &slow, Some(MB)).expected().limit, Limit::Disk);
}

/// An end of which this is known.
fn end(look_bps: u64, file_ns: u32, raced_bps: u64) -> Offer {
    Offer {
        boot_id: "one".into(),
        cores: 2,
        load_percent: 0,
        memory_bytes: 1 << 30,
        interfaces: Vec::new(),
        drivers: Vec::new(),
        ciphers: Vec::new(),
        digests: Vec::new(),
        integrity_only: false,
        bare: false,
        streams: 0,
        streams_max: 16,
        chunk_bytes: 0,
        rate_bps: 0,
        free_bytes: 0,
        disk_bps: raced_bps,
        bufs_bytes: 0,
        look: true,
        storage: StorageLook { bps: look_bps, file_ns },
        datagrams: 1,
        pace: Pace::default(),
        rdma: crate::negotiate::RdmaOffer::default(),
    }
}

#[test]
fn a_forecast_counts_both_ends_storage_and_is_none_where_one_was_not_measured() {
    let job = |source: &Offer, target: &Offer| {
        let host = Host { storage: Storage::of(source, target), ..host(TcpController::Cubic) };
        forecast(&path(20.0, Some(1e9), 0, 64), &host, Some(1000 * MB))
    };
    let (memory, slow, blank) = (end(STORAGE_BPS_MAX, 0, 0), end(320_000_000, 20_000, 0), end(0, 0, 0));
    // 40 MB/s at either end: 25 s, whatever the link does.
    for (source, target) in [(&memory, &slow), (&slow, &memory), (&slow, &slow)] {
        let forecast = job(source, target);
        assert_eq!((forecast.expected().limit, forecast.unknown(1000 * MB, 1)), (Limit::Disk, None));
        assert!((25.0..25.5).contains(&forecast.seconds(1000 * MB, 1)), "{}", forecast.seconds(1000 * MB, 1));
    }
    assert_eq!(job(&memory, &memory).expected().limit, Limit::Link, "memory bounds nothing");
    for (source, target, why) in [(&blank, &slow, Unknown::Source), (&memory, &blank, Unknown::Target)] {
        assert_eq!(job(source, target).unknown(1000 * MB, 1), Some(why));
        assert_eq!(job(source, target).unknown(MB, 1), None, "the page cache takes it");
    }
    // An earlier race counts, as far as what is seen now allows.
    let bps = |look, raced| Storage::of(&memory, &end(look, 0, raced)).bps;
    assert_eq!((bps(0, 500_000_000), bps(500_000_000, 800_000_000), bps(500_000_000, 8_000_000_000)), (5e8, 8e8, 1e9));
}

#[test]
fn small_files_cost_their_making_and_shared_processors_no_forecast() {
    let looked = Storage::of(&end(STORAGE_BPS_MAX, 0, 0), &end(8_000_000_000, 850_000, 0));
    let host_with = |storage, is_one_host| Host { storage, is_one_host, ..host(TcpController::Cubic) };
    let far = path(20.0, Some(1e9), 0, 64);
    let tree = forecast(&far, &host_with(looked, false), Some(64 * MB));
    let (few, many) = (tree.seconds(64 * MB, 1), tree.seconds(64 * MB, 4000));
    assert!((3.9..4.1).contains(&(many - few)), "a millisecond for each of 4000 files: {few} and {many}");
    let blind = forecast(&far, &host_with(Storage::default(), false), Some(64 * MB));
    assert_eq!((blind.unknown(64 * MB, 4000), blind.unknown(64 * MB, 10)), (Some(Unknown::Files), None));
    let near = path(0.1, None, 0, 0);
    let on_one = |is_one_host| forecast(&near, &host_with(looked, is_one_host), Some(1000 * MB)).unknown(1000 * MB, 1);
    assert_eq!((on_one(true), on_one(false)), (Some(Unknown::Processors), None));
}

#[test]
fn a_small_job_goes_by_what_its_few_round_trips_are() {
    let far = path(500.0, Some(1e9), 0, 16);
    let carry = |bytes| forecast(&far, &host(TcpController::Cubic), Some(bytes)).carry;
    // The greeting went ahead; a connection would still have to be made.
    assert_eq!((carry(1), carry(SMALL_BYTES)), (Carry::Udp, Carry::Udp));
    let gain = |bytes| forecast(&far, &host(TcpController::Cubic), Some(bytes)).gain();
    assert!(gain(1) < 1.2 && gain(SMALL_BYTES) > 1.5, "windows would have to double first: {}", gain(SMALL_BYTES));
    // Nothing to gain where the look was no better than TCP's guess of the path.
    let near = forecast(&path(5.0, Some(20e6), 0, 16), &host(TcpController::Cubic), Some(SMALL_BYTES));
    assert_eq!(near.carry, Carry::Tcp, "{near:?}");
}

#[test]
fn each_limit_is_named() {
    let cubic = host(TcpController::Cubic);
    let tcp = |view: &View, host: &Host| forecast(view, host, None).tcp.limit;
    assert_eq!(tcp(&path(20.0, Some(10e6), 0, 64), &cubic), Limit::Link);
    assert_eq!(tcp(&path(100.0, Some(1e9), 10, 1000), &cubic), Limit::Loss);
    assert_eq!(tcp(&path(0.2, None, 0, 64), &cubic), Limit::Host);
    let narrow = Host { window_bytes: 1e5, ..host(TcpController::Bbr) };
    assert_eq!(tcp(&path(100.0, Some(1e9), 0, 1000), &narrow), Limit::Window);
    let capped = Host { cap_bps: 1e6, ..cubic };
    let capped = forecast(&path(20.0, Some(1e9), 0, 64), &capped, None);
    assert_eq!((capped.tcp.limit, capped.udp.limit), (Limit::Cap, Limit::Cap));
}

#[test]
fn more_loss_or_distance_is_never_expected_to_be_faster() {
    for controller in [TcpController::Cubic, TcpController::Bbr] {
        for rtt_ms in [0.1, 1.0, 10.0, 100.0, 1000.0] {
            for lost in [0, 1, 10, 100, 300] {
                let here = forecast(&path(rtt_ms, Some(1e9), lost, 1000), &host(controller), Some(1000 * MB));
                for worse in [path(rtt_ms * 2.0, Some(1e9), lost, 1000), path(rtt_ms, Some(1e9), lost * 2 + 1, 1000)] {
                    let there = forecast(&worse, &host(controller), Some(1000 * MB));
                    assert!(there.tcp.rate_bps <= here.tcp.rate_bps * 1.0001, "{controller:?} {rtt_ms} {lost}");
                    assert!(there.udp.rate_bps <= here.udp.rate_bps * 1.0001, "{controller:?} {rtt_ms} {lost}");
                }
            }
        }
    }
}

#[test]
fn absurd_facts_give_finite_figures() {
    let absurd = [0.0, -1.0, f64::MIN_POSITIVE, 1e30, f64::INFINITY, f64::NAN];
    for value in absurd {
        for rate in absurd {
            let view = View {
                rtt_s: value,
                looked: u64::MAX,
                lost: u64::MAX,
                rate_bps: Some(rate),
                packet_bytes: 0,
                queue_s: value,
            };
            let host =
                Host { window_bytes: value, tcp_bps: rate, udp_bps: rate, rails: (0, 0), ..host(TcpController::Cubic) };
            let found = forecast(&view, &host, Some(u64::MAX));
            for guess in [found.tcp, found.udp] {
                assert!(guess.rate_bps >= 1.0 && guess.rate_bps.is_finite(), "{value} {rate} {guess:?}");
            }
        }
    }
}

/// So many milliseconds after the beginning.
fn at(ms: u64) -> Moment {
    Moment::from_ns(ms * 1_000_000)
}

fn choice(rtt_ms: u64) -> TransportChoice {
    let view =
        View { rtt_s: rtt_ms as f64 / 1e3, looked: 0, lost: 0, rate_bps: None, packet_bytes: 1500, queue_s: 0.0 };
    TransportChoice::new(at(0), Duration::from_millis(rtt_ms), view, host(TcpController::Cubic))
}

fn unknown_job() -> Before {
    Before { look: None, bytes: None, early_answered: None, is_storage_looked_at: false }
}

/// When (milliseconds) it decided without an answer of the path probe, and for what.
fn decides_at(rtt_ms: u64, before: &Before) -> (u64, Carry) {
    let mut choice = choice(rtt_ms);
    assert_eq!(choice.next_first(at(0), before), First::Look);
    for ms in 0..60_000 {
        if let First::Decided { forecast, is_probed, .. } = choice.next_first(at(ms), before) {
            assert!(!is_probed, "no answer came");
            assert_eq!(choice.next_first(at(ms + 1), before), First::Wait, "it decides once");
            return (ms, forecast.carry);
        }
    }
    panic!("it never decided");
}

#[test]
fn the_path_probe_is_waited_for_a_second_or_five_round_trips_and_by_small_jobs_only_if_it_was_sent_early() {
    assert_eq!(decides_at(20, &unknown_job()), (1000, Carry::Tcp));
    assert_eq!(decides_at(550, &unknown_job()), (2750, Carry::Tcp));
    let small = |early_answered| Before { bytes: Some(SMALL_BYTES), early_answered, ..unknown_job() };
    assert_eq!(decides_at(550, &small(None)), (0, Carry::Tcp));
    assert_eq!(decides_at(550, &small(Some(false))), (30, Carry::Tcp));
    assert_eq!(decides_at(550, &small(Some(true))), (1130, Carry::Tcp));
}

#[test]
fn udp_that_is_blocked_costs_30_ms_on_any_path_and_udp_that_is_proved_late_takes_over_what_is_left() {
    let unanswered = Before { early_answered: Some(false), ..unknown_job() };
    for rtt_ms in [2, 40, 600] {
        assert_eq!(decides_at(rtt_ms, &unanswered), (30, Carry::Tcp));
        // Whoever drives it need not look in between, and not later.
        let mut choice = choice(rtt_ms);
        assert_eq!((choice.due(), choice.next_first(at(0), &unanswered)), (None, First::Look));
        assert_eq!((choice.due(), choice.next_first(at(9), &unanswered)), (Some(at(30)), First::Wait));
        assert!(matches!(choice.next_first(choice.due().expect("a moment"), &unanswered), First::Decided { .. }));
        assert_eq!(choice.due(), None);
    }
    let answered = Before { early_answered: Some(true), ..unknown_job() };
    assert_eq!(decides_at(40, &answered), (1000, Carry::Tcp), "a train is on its way");
    let looked_at = Before { is_storage_looked_at: true, ..unanswered };
    assert_eq!(
        decides_at(40, &looked_at),
        (1000, Carry::Tcp),
        "the first greeting came before the acceptor knew of it"
    );
    let late = |bytes_left| {
        let mut choice = choice(100);
        assert_eq!(choice.next_first(at(0), &unanswered), First::Look);
        let decided = choice.next_first(at(80), &unanswered);
        assert!(matches!(decided, First::Decided { is_probed: false, .. }) && choice.is_looking(), "{decided:?}");
        let seen = View { looked: 64, lost: 1, rate_bps: Some(1e9), ..choice.view() };
        let change = choice.on_late_probe(seen, bytes_left);
        assert!(!choice.is_looking() && choice.on_late_probe(seen, bytes_left).is_none(), "it counts once");
        change
    };
    assert!(matches!(late(Some(1000 * MB)), Some(Change::Proved { udp_bps, tcp_bps }) if udp_bps > 10.0 * tcp_bps));
    assert!(matches!(late(None), Some(Change::Proved { .. })));
    assert_eq!(late(Some(MB / 100)), None, "what is left is over sooner than a change pays");
    // An answer that was waited for is no late one; nor is one after UDP was given up.
    let mut choice = choice(100);
    assert_eq!(choice.next_first(at(0), &unanswered), First::Look);
    choice.next_first(at(80), &unanswered);
    choice.on_no_datagrams();
    assert_eq!(choice.on_late_probe(View { looked: 64, lost: 1, ..choice.view() }, None), None);
}

#[test]
fn a_short_path_gets_tcp_also_where_packets_of_a_loopback_interface_seem_to_make_datagrams_fast() {
    let loopback = View { packet_bytes: 65_535, ..path(0.05, None, 0, 0) };
    let mut choice = TransportChoice::new(at(0), Duration::from_micros(50), loopback, host(TcpController::Cubic));
    let First::Decided { forecast, .. } = choice.next_first(at(0), &unknown_job()) else { panic!("nothing is probed") };
    assert_eq!(forecast.carry, Carry::Tcp);
    assert!(forecast.udp.rate_bps < 20e9, "no packet of ours is that long: {}", forecast.udp.rate_bps);
    // Nor where they are expected to be twice as fast: nobody looked at that path.
    let slow = Host { tcp_bps: 1e9, ..host(TcpController::Cubic) };
    let mut choice = TransportChoice::new(at(0), Duration::from_micros(50), path(0.05, None, 0, 0), slow);
    let First::Decided { forecast, .. } = choice.next_first(at(0), &unknown_job()) else { panic!("nothing is probed") };
    assert!(forecast.carry == Carry::Tcp && forecast.udp.rate_bps > 2.0 * forecast.tcp.rate_bps, "{forecast:?}");
}

#[test]
fn a_short_or_unknown_path_gets_tcp_without_a_probe_and_a_failed_probe_gets_tcp_at_once() {
    for rtt_ms in [0, 1] {
        let mut choice = choice(rtt_ms);
        let first = if rtt_ms == 0 { choice.next_first(at(0), &unknown_job()) } else { First::Look };
        match first {
            First::Decided { forecast, is_probed, .. } => assert!(forecast.carry == Carry::Tcp && is_probed),
            _ => {
                assert_eq!(choice.next_first(at(0), &unknown_job()), First::Look);
                let failed = Before { look: Some(Look::Failed), ..unknown_job() };
                let First::Decided { forecast, is_probed, .. } = choice.next_first(at(1), &failed) else {
                    panic!("it waits for nothing")
                };
                assert!(forecast.carry == Carry::Tcp && !is_probed);
            }
        }
    }
}

/// A job that runs over what is wanted; `path` gives payload in bit/s over all rails and over UDP, and lost packets in a thousand.
/// Returns the changes with their seconds.
fn run(choice: &mut TransportChoice, seconds: u64, path: impl Fn(u64, Carry) -> (f64, f64, u64)) -> Vec<(u64, Change)> {
    let First::Decided { forecast, .. } = (match choice.next_first(at(0), &unknown_job()) {
        First::Look => {
            let seen = View { looked: 64, rate_bps: Some(1e9), ..choice.view() };
            choice.next_first(at(1), &Before { look: Some(Look::Seen(seen)), ..unknown_job() })
        }
        other => other,
    }) else {
        panic!("it decides")
    };
    let (mut carry, mut counts, mut changes) = (forecast.carry, Counts::default(), Vec::new());
    for ms in (0..seconds * 1000).step_by(100) {
        let (all, udp, lost) = path(ms / 1000, carry);
        counts.moved_bytes += (all / 80.0) as u64;
        counts.udp_bytes += (udp / 80.0) as u64;
        for packets in [&mut counts.udp_packets, &mut counts.tcp_packets] {
            *packets = (packets.0 + 1000, packets.1 + lost);
        }
        counts.stage_ns.0[Stage::WaitSend as usize] += 90_000_000;
        counts.stage_ns.1[Stage::WaitRecv as usize] += 90_000_000;
        let running = Running { sends: true, rtt: Duration::from_millis(20), bytes_total: None };
        if let Some(change) = choice.on_counts(at(ms), &counts, &running) {
            carry = change.carry();
            changes.push((ms / 1000, change));
        }
    }
    changes
}

#[test]
fn datagrams_that_are_throttled_under_the_job_are_left_for_tcp_within_seconds_and_counted_as_one_change() {
    let mut choice = choice(20);
    let path = |second, carry| match carry {
        _ if second < 10 => (0.9e9, 0.9e9, 0),
        Carry::Udp => (0.1e9, 0.1e9, 0),
        _ => (0.8e9, 0.05e9, 0),
    };
    let changes = run(&mut choice, 60, path);
    assert!(matches!(changes[0], (11..=13, Change::Try { was: Carry::Udp, other: Carry::Tcp, .. })), "{changes:?}");
    assert!(matches!(changes[1], (14..=17, Change::Keep { carry: Carry::Tcp, .. })), "{changes:?}");
    assert_eq!((changes.len(), choice.changes()), (2, 1));
    assert!(choice.forecast().is_some());
    choice.on_settings_changed();
    assert_eq!(choice.forecast(), None, "another rate is another job than the one of the forecast");
}

#[test]
fn tcp_over_a_clean_lan_and_tcp_that_processors_bound_are_left_alone_however_little_they_carry() {
    let begin = |rtt_ms| {
        let mut choice = choice(rtt_ms);
        // Nothing came of the probe over the longer one: TCP there, too.
        let look = if rtt_ms < 5 { Look::Seen(View { looked: 64, ..choice.view() }) } else { Look::Failed };
        choice.next_first(at(0), &unknown_job());
        choice.next_first(at(1), &Before { look: Some(look), ..unknown_job() });
        choice
    };
    let tries = |choice: &mut TransportChoice, lost: u64, busy: Stage| {
        let mut counts = Counts::default();
        let mut tries = 0;
        for second in 0..60 {
            counts.moved_bytes += 10_000_000;
            counts.tcp_packets = (counts.tcp_packets.0 + 10_000, counts.tcp_packets.1 + lost);
            counts.stage_ns.0[busy as usize] += 900_000_000;
            counts.stage_ns.1[Stage::WaitRecv as usize] += 900_000_000;
            let running = Running { sends: true, rtt: Duration::ZERO, bytes_total: None };
            tries += usize::from(choice.on_counts(at(second * 1000), &counts, &running).is_some());
        }
        tries
    };
    // 80 Mbit/s where gigabits were expected.
    assert_eq!(tries(&mut begin(2), 0, Stage::WaitSend), 0, "a clean LAN");
    assert_eq!(tries(&mut begin(2), 10, Stage::WaitSend), 0, "a LAN whose queues run over now and then");
    assert!(tries(&mut begin(2), 200, Stage::WaitSend) > 0, "a LAN that loses");
    assert!(tries(&mut begin(20), 200, Stage::WaitSend) > 0, "a path that loses");
    assert_eq!(tries(&mut begin(20), 200, Stage::Seal), 0, "the sender's processors");
}

#[test]
fn nothing_is_tried_after_udp_failed_for_good() {
    let mut choice = choice(20);
    let view = View { looked: 64, rate_bps: Some(1e9), ..choice.view() };
    assert_eq!(choice.next_first(at(0), &unknown_job()), First::Look);
    choice.next_first(at(1), &Before { look: Some(Look::Seen(view)), ..unknown_job() });
    choice.on_no_datagrams();
    let mut counts = Counts::default();
    for second in 0..100 {
        counts.moved_bytes += 1_000_000;
        counts.tcp_packets = (counts.tcp_packets.0 + 1000, counts.tcp_packets.1 + 100);
        let running = Running { sends: true, rtt: Duration::ZERO, bytes_total: None };
        assert_eq!(choice.on_counts(at(second * 1000), &counts, &running), None);
    }
}
