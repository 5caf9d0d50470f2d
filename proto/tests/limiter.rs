//! The limiter's sentence on synthetic books, each with exactly one slow stage.
//!
//! For: the promise that the end report names the true limiter and a ceiling the books allow.
//! In and out: percent per stage of each end; a verdict.
//! Invariants: each case says in its name what is slow; the ceiling is checked as a number.
//! Absent on purpose: real runs (the bench and the simulator book those).

use proto::books::{Books, End, Stage, Verdict, What, limiter};

/// One second of one worker, 1 GB moved: goodput is 8 Gbit/s.
const WALL_NS: u64 = 1_000_000_000;
const BYTES: u64 = 1_000_000_000;

fn books(workers: u16, percent: &[(Stage, u64)]) -> Books {
    let mut books = Books { workers, wall_ns: WALL_NS * u64::from(workers), payload_bytes: BYTES, ..Books::default() };
    for &(stage, share) in percent {
        books.ns[stage as usize] = books.wall_ns / 100 * share;
    }
    assert_eq!(books.unbooked_permille(), 0, "a case books all of its time");
    books
}

fn judge(sender: &Books, receiver: &Books) -> Verdict {
    limiter(sender, receiver, BYTES, WALL_NS, false, 0)
}

fn idle_receiver() -> Books {
    books(1, &[(Stage::Recv, 20), (Stage::Write, 20), (Stage::WaitRecv, 60)])
}

fn waiting_sender() -> Books {
    books(1, &[(Stage::Read, 20), (Stage::Send, 20), (Stage::WaitSend, 60)])
}

#[track_caller]
fn assert_verdict(verdict: &Verdict, end: End, stage: Stage, share_percent: u8, ceiling_mbps: u64) {
    assert_eq!((verdict.end, verdict.what), (end, Some(What::Stage(stage))), "{}", verdict.sentence);
    assert_eq!(verdict.share_percent, share_percent, "{}", verdict.sentence);
    assert_eq!(verdict.ceiling_bps / 1_000_000, ceiling_mbps, "{}", verdict.sentence);
}

#[test]
fn a_slow_source_read_is_named() {
    let sender = books(1, &[(Stage::Read, 60), (Stage::Hash, 20), (Stage::Seal, 10), (Stage::Send, 10)]);
    let verdict = judge(&sender, &idle_receiver());
    assert_verdict(&verdict, End::Sender, Stage::Read, 60, 20_000);
}

#[test]
fn a_slow_hash_at_the_receiver_is_named_with_its_ceiling() {
    let receiver = books(1, &[(Stage::Recv, 20), (Stage::Hash, 50), (Stage::Seal, 10), (Stage::Write, 20)]);
    let verdict = judge(&waiting_sender(), &receiver);
    assert_verdict(&verdict, End::Receiver, Stage::Hash, 50, 16_000);
    assert_eq!(verdict.sentence, "limited by hash at the receiver: 50 % of its time; were it free, up to 16.0 Gbit/s");
}

#[test]
fn a_slow_seal_is_named() {
    let sender =
        books(2, &[(Stage::Read, 10), (Stage::Hash, 20), (Stage::Seal, 50), (Stage::Send, 10), (Stage::WaitSend, 10)]);
    assert_verdict(&judge(&sender, &idle_receiver()), End::Sender, Stage::Seal, 50, 16_000);
}

#[test]
fn a_slow_send_is_named() {
    let sender = books(1, &[(Stage::Read, 10), (Stage::Send, 80), (Stage::Loop, 10)]);
    assert_verdict(&judge(&sender, &idle_receiver()), End::Sender, Stage::Send, 80, 20_000);
}

#[test]
fn a_slow_receive_is_named() {
    let receiver = books(1, &[(Stage::Recv, 70), (Stage::Write, 20), (Stage::Idle, 10)]);
    assert_verdict(&judge(&waiting_sender(), &receiver), End::Receiver, Stage::Recv, 70, 20_000);
}

#[test]
fn a_slow_destination_write_is_named() {
    let receiver = books(4, &[(Stage::Recv, 20), (Stage::Write, 75), (Stage::WaitRecv, 5)]);
    assert_verdict(&judge(&waiting_sender(), &receiver), End::Receiver, Stage::Write, 75, 20_000);
}

#[test]
fn a_slow_loop_is_named() {
    let sender = books(1, &[(Stage::Read, 10), (Stage::Send, 10), (Stage::Loop, 70), (Stage::WaitSend, 10)]);
    assert_verdict(&judge(&sender, &idle_receiver()), End::Sender, Stage::Loop, 70, 20_000);
}

#[test]
fn the_other_end_bounds_the_ceiling_and_is_named_as_next() {
    let sender = books(1, &[(Stage::Read, 30), (Stage::Hash, 50), (Stage::WaitSend, 20)]);
    let receiver = books(1, &[(Stage::Recv, 40), (Stage::Hash, 50), (Stage::Write, 10)]);
    let verdict = judge(&sender, &receiver);
    assert_verdict(&verdict, End::Receiver, Stage::Hash, 50, 10_000);
    assert!(verdict.sentence.ends_with("up to 10.0 Gbit/s, where the sender would be next"), "{}", verdict.sentence);
}

#[test]
fn a_source_disk_that_answers_late_is_named() {
    let sender = books(1, &[(Stage::Read, 20), (Stage::Hash, 10), (Stage::WaitRead, 65), (Stage::WaitSend, 5)]);
    assert_verdict(&judge(&sender, &idle_receiver()), End::Sender, Stage::WaitRead, 65, 20_000);
}

#[test]
fn a_destination_disk_that_answers_late_is_named_though_the_sender_waits_to_send() {
    let receiver = books(1, &[(Stage::Recv, 10), (Stage::Write, 10), (Stage::WaitWrite, 75), (Stage::WaitRecv, 5)]);
    assert_verdict(&judge(&waiting_sender(), &receiver), End::Receiver, Stage::WaitWrite, 75, 20_000);
}

#[test]
fn a_slow_network_is_named_when_one_waits_to_send_and_the_other_for_data() {
    let verdict = judge(&waiting_sender(), &idle_receiver());
    assert_verdict(&verdict, End::Network, Stage::WaitSend, 60, 20_000);
}

#[test]
fn a_cap_is_named_before_all_else() {
    let sender = books(1, &[(Stage::Read, 20), (Stage::Send, 20), (Stage::WaitRate, 60)]);
    let verdict = limiter(&sender, &idle_receiver(), BYTES, WALL_NS, true, 8_000_000_000);
    assert_verdict(&verdict, End::Cap, Stage::WaitRate, 60, 20_000);
    assert!(verdict.sentence.contains("rate cap of 8.0 Gbit/s"), "{}", verdict.sentence);
    let verdict = limiter(&waiting_sender(), &idle_receiver(), BYTES, WALL_NS, false, 8_000_000_000);
    assert_eq!(verdict.end, End::Cap, "goodput at the cap is proof enough");
    let verdict = limiter(&waiting_sender(), &idle_receiver(), BYTES, WALL_NS, false, 80_000_000_000);
    assert_eq!(verdict.end, End::Network, "a cap far above the goodput limits nothing");
}

#[test]
fn many_small_files_are_named_when_workers_have_nothing_to_do() {
    let sender = books(1, &[(Stage::Read, 10), (Stage::Hash, 10), (Stage::Idle, 80)]);
    let receiver = books(1, &[(Stage::Write, 15), (Stage::WaitRecv, 50), (Stage::Idle, 35)]);
    assert_verdict(&judge(&sender, &receiver), End::Both, Stage::Idle, 80, 40_000);
}

#[test]
fn flushing_is_named_when_the_committer_worked_while_workers_had_nothing_to_do() {
    let sender = books(1, &[(Stage::Read, 10), (Stage::Hash, 10), (Stage::Idle, 80)]);
    let receiver = Books { commit_ns: WALL_NS / 10 * 9, ..books(1, &[(Stage::Write, 15), (Stage::Idle, 85)]) };
    let verdict = judge(&sender, &receiver);
    assert_verdict(&verdict, End::Receiver, Stage::WaitWrite, 90, 40_000);
    assert!(verdict.sentence.contains("flushing"), "{}", verdict.sentence);
    // All was sent at once, and both wait until the disk has it.
    let sender = books(2, &[(Stage::Read, 5), (Stage::WaitSend, 5), (Stage::WaitRecv, 90)]);
    let receiver = Books { commit_ns: WALL_NS / 10 * 8, ..books(2, &[(Stage::WaitWrite, 25), (Stage::WaitRecv, 75)]) };
    let verdict = judge(&sender, &receiver);
    assert_verdict(&verdict, End::Receiver, Stage::WaitWrite, 80, 32_000);
}

#[test]
fn shared_cores_add_up_and_the_dearest_stage_of_both_ends_is_named() {
    let sender = books(1, &[(Stage::Read, 30), (Stage::Hash, 30), (Stage::Send, 30), (Stage::WaitSend, 10)]);
    let receiver = books(1, &[(Stage::Recv, 30), (Stage::Hash, 40), (Stage::Write, 30)]);
    let verdict = limiter(&sender, &receiver, BYTES, WALL_NS, true, 0);
    assert_verdict(&verdict, End::Both, Stage::Hash, 20, 10_000);
    assert!(verdict.sentence.contains("hash at the receiver takes 20 %"), "{}", verdict.sentence);
    let alone = judge(&sender, &receiver);
    assert_verdict(&alone, End::Receiver, Stage::Hash, 40, 8_888);
}

#[test]
fn shared_cores_are_full_when_the_work_done_on_them_is_though_each_end_waits_for_the_other() {
    let sender = denied(40, books(2, &[(Stage::Read, 20), (Stage::Seal, 60), (Stage::WaitSend, 20)]));
    let receiver = denied(50, books(2, &[(Stage::Recv, 30), (Stage::Seal, 65), (Stage::WaitRecv, 5)]));
    let verdict = limiter(&sender, &receiver, BYTES, WALL_NS, true, 0);
    assert_eq!((verdict.end, verdict.what), (End::Both, Some(What::Stage(Stage::Seal))), "{}", verdict.sentence);
}

#[test]
fn on_a_shared_host_one_busy_end_beside_an_idle_one_is_still_that_end() {
    let sender = books(1, &[(Stage::Read, 30), (Stage::Hash, 65), (Stage::WaitSend, 5)]);
    let verdict = limiter(&sender, &idle_receiver(), BYTES, WALL_NS, true, 0);
    assert_verdict(&verdict, End::Sender, Stage::Hash, 65, 20_000);
}

#[test]
fn a_stage_larger_than_every_wait_is_named_even_below_busy() {
    let sender = books(1, &[(Stage::Hash, 45), (Stage::Read, 5), (Stage::WaitRead, 25), (Stage::Idle, 25)]);
    assert_verdict(&judge(&sender, &idle_receiver()), End::Sender, Stage::Hash, 45, 14_545);
}

/// `percent` of its time without a core.
fn denied(percent: u64, books: Books) -> Books {
    Books { run_delay_ns: books.wall_ns / 100 * percent, ..books }
}

#[test]
fn an_end_without_cores_is_named_with_what_it_could_do_on_cores_of_its_own() {
    let receiver = denied(70, books(2, &[(Stage::Recv, 40), (Stage::Hash, 30), (Stage::Write, 30)]));
    for shared in [false, true] {
        let verdict = limiter(&waiting_sender(), &receiver, BYTES, WALL_NS, shared, 0);
        assert_eq!((verdict.end, verdict.what), (End::Receiver, Some(What::RunDelay)), "{}", verdict.sentence);
        assert_eq!((verdict.share_percent, verdict.ceiling_bps / 1_000_000), (70, 20_000), "the sender is the next");
    }
    let sender = denied(75, books(2, &[(Stage::Read, 40), (Stage::Hash, 30), (Stage::WaitSend, 30)]));
    let verdict = judge(&sender, &idle_receiver());
    assert_eq!((verdict.end, verdict.what), (End::Sender, Some(What::RunDelay)), "{}", verdict.sentence);
}

#[test]
fn a_busy_machine_hides_no_slow_stage_disk_or_network() {
    let receiver = denied(35, books(1, &[(Stage::Recv, 10), (Stage::Write, 85), (Stage::WaitRecv, 5)]));
    assert_verdict(&judge(&waiting_sender(), &receiver), End::Receiver, Stage::Write, 85, 20_000);
    let verdict = judge(&denied(35, waiting_sender()), &denied(35, idle_receiver()));
    assert_verdict(&verdict, End::Network, Stage::WaitSend, 60, 20_000);
    let sender =
        denied(40, books(1, &[(Stage::Read, 20), (Stage::Hash, 10), (Stage::WaitRead, 65), (Stage::WaitSend, 5)]));
    assert_verdict(&judge(&sender, &idle_receiver()), End::Sender, Stage::WaitRead, 65, 20_000);
}

#[test]
fn empty_books_say_so_and_absurd_ones_do_not_panic() {
    let verdict = judge(&Books::default(), &Books::default());
    assert_eq!((verdict.what, verdict.ceiling_bps), (None, 0));
    let absurd = Books {
        ns: [u64::MAX; 13],
        wall_ns: u64::MAX,
        commit_ns: u64::MAX,
        run_delay_ns: u64::MAX,
        workers: u16::MAX,
        ..Books::default()
    };
    for shared in [false, true] {
        for one in [&absurd, &Books::default(), &idle_receiver()] {
            let _ = limiter(one, &absurd, u64::MAX, 0, shared, u64::MAX);
            let _ = limiter(&absurd, one, u64::MAX, u64::MAX, shared, 1);
            let _ = limiter(one, &waiting_sender(), 0, u64::MAX, shared, 1);
        }
    }
}
