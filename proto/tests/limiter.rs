//! The limiter's sentence on synthetic books, each with exactly one slow stage.
//!
//! For: the promise that the end report names the true limiter and a ceiling the books allow.
//! In and out: percent per stage of each end; a verdict.
//! Invariants: each case says in its name what is slow; the ceiling is checked as a number.
//! Absent on purpose: real runs (the bench and the simulator book those).

use proto::books::{Books, End, Run, Stage, Verdict, What, about, limiter};

/// One second of one worker, 1 GB moved: goodput is 8 Gbit/s.
const WALL_NS: u64 = 1_000_000_000;
const BYTES: u64 = 1_000_000_000;

const RUN: Run = Run {
    payload_bytes: BYTES,
    wall_ns: WALL_NS,
    shared_cores: false,
    rate_cap_bps: 0,
    pipe_ns: 0,
    lookup_ns: 0,
    silent_ns: 0,
    peer: None,
    in_flight_ns: 0,
    loss_ppm: 0,
    policer_bps: 0,
};

/// Both ends on one host.
const SHARED: Run = Run { shared_cores: true, ..RUN };

fn books(workers: u16, percent: &[(Stage, u64)]) -> Books {
    let mut books = Books { workers, wall_ns: WALL_NS * u64::from(workers), payload_bytes: BYTES, ..Books::default() };
    for &(stage, share) in percent {
        books.ns[stage as usize] = books.wall_ns / 100 * share;
    }
    assert_eq!(books.unbooked_permille(), 0, "a case books all of its time");
    books
}

fn judge(sender: &Books, receiver: &Books) -> Verdict {
    limiter(sender, receiver, &RUN)
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
    assert_eq!(
        verdict.sentence,
        "limited by CPU at the receiver: digests (hash) took 50 % of its time; were it free, up to 16.0 Gbit/s"
    );
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
    let verdict = limiter(&sender, &idle_receiver(), &Run { shared_cores: true, rate_cap_bps: 8_000_000_000, ..RUN });
    assert_verdict(&verdict, End::Cap, Stage::WaitRate, 60, 20_000);
    assert!(verdict.sentence.contains("rate cap of 8.0 Gbit/s"), "{}", verdict.sentence);
    let verdict =
        limiter(&waiting_sender(), &idle_receiver(), &Run { shared_cores: false, rate_cap_bps: 8_000_000_000, ..RUN });
    assert_eq!(verdict.end, End::Cap, "goodput at the cap is proof enough");
    let verdict =
        limiter(&waiting_sender(), &idle_receiver(), &Run { shared_cores: false, rate_cap_bps: 80_000_000_000, ..RUN });
    assert_eq!(verdict.end, End::Network, "a cap far above the goodput limits nothing");
}

#[test]
fn a_cap_that_was_never_reached_is_not_blamed() {
    // The bound gives its bytes in portions, and a sender that never comes near it is held for moments all the same.
    let sender = books(1, &[(Stage::Read, 10), (Stage::Send, 10), (Stage::WaitSend, 45), (Stage::WaitRate, 35)]);
    let receiver = books(1, &[(Stage::Recv, 10), (Stage::Write, 10), (Stage::WaitRecv, 80)]);
    let verdict = limiter(&sender, &receiver, &Run { rate_cap_bps: 9_000_000_000, ..RUN });
    assert_verdict(&verdict, End::Network, Stage::WaitSend, 45, 14_545);
    // Reached while there was something to send: the rest was the flush at the end.
    let sender = books(1, &[(Stage::Read, 10), (Stage::Send, 10), (Stage::WaitRate, 40), (Stage::WaitRecv, 40)]);
    let verdict = limiter(&sender, &receiver, &Run { rate_cap_bps: 13_400_000_000, ..RUN });
    assert_eq!(verdict.end, End::Cap, "{}", verdict.sentence);
    // A short job over packets: it began below the cap.
    let sender = books(1, &[(Stage::Send, 20), (Stage::Loop, 17), (Stage::WaitRate, 63)]);
    let verdict = limiter(&sender, &receiver, &Run { rate_cap_bps: 8_900_000_000, ..RUN });
    assert_eq!(verdict.end, End::Cap, "{}", verdict.sentence);
    // Six jobs of one key: each is held nearly all of the time, far below what they have together.
    let sender = books(1, &[(Stage::Read, 5), (Stage::Send, 5), (Stage::WaitRate, 90)]);
    let verdict = limiter(&sender, &receiver, &Run { rate_cap_bps: 48_000_000_000, ..RUN });
    assert_eq!(verdict.end, End::Cap, "{}", verdict.sentence);
    assert!(verdict.sentence.contains("this job's share of the rate cap"), "{}", verdict.sentence);
}

#[test]
fn calls_that_do_not_return_are_the_disk_and_not_work() {
    for stage in [Stage::Write, Stage::Loop] {
        let idle = Books { cpu_ns: WALL_NS / 10, ..books(1, &[(Stage::Recv, 10), (stage, 80), (Stage::WaitRecv, 10)]) };
        let verdict = judge(&waiting_sender(), &idle);
        assert_eq!((verdict.end, verdict.what), (End::Receiver, Some(What::Stage(Stage::WaitWrite))));
        assert!(verdict.sentence.starts_with("limited by the receiver's disk"), "{}", verdict.sentence);
        // The same on a core is work.
        let verdict = judge(&waiting_sender(), &Books { cpu_ns: WALL_NS / 10 * 9, ..idle });
        assert_eq!(verdict.what, Some(What::Stage(stage)), "{}", verdict.sentence);
        assert!(verdict.sentence.starts_with("limited by CPU at the receiver"), "{}", verdict.sentence);
    }
    let sender = Books { cpu_ns: WALL_NS / 10, ..books(1, &[(Stage::Read, 85), (Stage::Send, 15)]) };
    let verdict = judge(&sender, &idle_receiver());
    assert_eq!((verdict.end, verdict.what), (End::Sender, Some(What::Stage(Stage::WaitRead))), "{}", verdict.sentence);
}

#[test]
fn a_disk_that_takes_one_workers_whole_time_is_named_though_the_others_are_idle() {
    let sender = books(2, &[(Stage::Read, 2), (Stage::WaitRecv, 98)]);
    let receiver = Books { cpu_ns: WALL_NS / 50, ..books(2, &[(Stage::Write, 49), (Stage::Idle, 51)]) };
    let verdict = judge(&sender, &receiver);
    assert_eq!(
        (verdict.end, verdict.what),
        (End::Receiver, Some(What::Stage(Stage::WaitWrite))),
        "{}",
        verdict.sentence
    );
    let receiver = books(4, &[(Stage::WaitWrite, 22), (Stage::Idle, 78)]);
    assert_eq!(judge(&sender, &receiver).end, End::Receiver);
    let receiver = books(4, &[(Stage::WaitWrite, 12), (Stage::Idle, 88)]);
    assert_eq!(judge(&sender, &receiver).end, End::Both, "half of one worker's time is not all of it");
    // One stream, which one of two workers has, over a path that loses.
    let sender = books(2, &[(Stage::WaitSend, 40), (Stage::WaitRecv, 10), (Stage::Idle, 50)]);
    let receiver = books(2, &[(Stage::Recv, 2), (Stage::WaitRecv, 48), (Stage::Idle, 50)]);
    let verdict = limiter(&sender, &receiver, &Run { in_flight_ns: WALL_NS / 100 * 95, loss_ppm: 10_000, ..RUN });
    assert_eq!(verdict.end, End::Network, "{}", verdict.sentence);
}

#[test]
fn a_policer_that_the_controller_found_is_the_limiter_where_the_path_is() {
    let run = Run { loss_ppm: 12_000, policer_bps: 19_680_000, ..RUN };
    let verdict = limiter(&waiting_sender(), &idle_receiver(), &run);
    assert_eq!(verdict.end, End::Network);
    let words = "limited by a policer at about 20 Mbit/s on the path (loss 1.2 %): the receiver waited for data";
    assert!(verdict.sentence.starts_with(words), "{}", verdict.sentence);
    // One stream or rail, which one of two workers has.
    let sender = books(2, &[(Stage::WaitSend, 45), (Stage::WaitRecv, 5), (Stage::Idle, 50)]);
    let receiver = books(2, &[(Stage::Recv, 2), (Stage::WaitRecv, 48), (Stage::Idle, 50)]);
    let verdict = limiter(&sender, &receiver, &Run { policer_bps: 2_440_000_000, ..RUN });
    let words = "limited by a policer at about 2.4 Gbit/s on the path: one worker";
    assert!(verdict.sentence.starts_with(words), "{}", verdict.sentence);
    // A disk that is slower than the policer is the limiter all the same.
    let receiver = books(1, &[(Stage::WaitWrite, 90), (Stage::WaitRecv, 10)]);
    let verdict = limiter(&waiting_sender(), &receiver, &run);
    assert_eq!(verdict.end, End::Receiver, "{}", verdict.sentence);
    assert!(!verdict.sentence.contains("policer"), "{}", verdict.sentence);
}

#[test]
fn a_rate_that_was_found_by_trying_is_said_in_two_or_three_digits() {
    let said = [(999, "999 bit/s"), (2_440_000, "2.4 Mbit/s"), (9_960_000, "10 Mbit/s")];
    for (bps, words) in said.into_iter().chain([(154_600_000, "155 Mbit/s"), (u64::MAX, "1844674407 Gbit/s")]) {
        assert_eq!(about(bps), words);
    }
}

#[test]
fn what_happened_beside_the_workers_is_named_from_its_share_of_the_whole_time_on() {
    let (sender, receiver) = (waiting_sender(), idle_receiver());
    let run = |run: Run| limiter(&sender, &receiver, &run);
    let verdict = run(Run { pipe_ns: 3 * WALL_NS, ..RUN });
    assert_eq!((verdict.end, verdict.what, verdict.share_percent), (End::Sender, Some(What::Pipe), 75));
    assert!(verdict.sentence.contains("a pipe that is slow: reading it to its end took 3.0 s"), "{}", verdict.sentence);
    let verdict = run(Run { lookup_ns: WALL_NS, ..RUN });
    assert_eq!((verdict.end, verdict.what, verdict.share_percent), (End::Network, Some(What::NameLookup), 50));
    assert!(verdict.sentence.contains("name service"), "{}", verdict.sentence);
    let verdict = run(Run { silent_ns: WALL_NS / 2, peer: Some(End::Receiver), ..RUN });
    assert_eq!((verdict.end, verdict.what, verdict.share_percent), (End::Receiver, Some(What::Silence), 50));
    let small =
        Run { pipe_ns: WALL_NS / 4, lookup_ns: WALL_NS / 4, silent_ns: WALL_NS / 4, peer: Some(End::Receiver), ..RUN };
    assert_eq!(run(small).end, End::Network);
}

#[test]
fn a_short_job_over_one_lossy_stream_is_the_network_path_with_its_loss() {
    // All of it fits into the socket's buffer: the sender waits for words, and its kernel sends again what was lost.
    let sender = books(1, &[(Stage::Read, 5), (Stage::Send, 5), (Stage::WaitRecv, 90)]);
    let receiver = books(1, &[(Stage::Recv, 5), (Stage::Write, 5), (Stage::WaitRecv, 90)]);
    assert_eq!(judge(&sender, &receiver).end, End::Both, "nothing is known of the way");
    let run = Run { in_flight_ns: WALL_NS / 100 * 95, loss_ppm: 12_345, ..RUN };
    let verdict = limiter(&sender, &receiver, &run);
    assert_eq!(verdict.end, End::Network, "{}", verdict.sentence);
    assert!(verdict.sentence.starts_with("limited by the network path (loss 1.2 %)"), "{}", verdict.sentence);
    // A sender that also works: its kernel still had data on its way nearly all of the time.
    let sender = books(1, &[(Stage::Send, 45), (Stage::WaitSend, 25), (Stage::Idle, 30)]);
    let receiver = books(1, &[(Stage::Recv, 20), (Stage::WaitRecv, 80)]);
    assert_eq!(limiter(&sender, &receiver, &run).end, End::Network);
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
    let verdict = limiter(&sender, &receiver, &SHARED);
    assert_verdict(&verdict, End::Both, Stage::Hash, 20, 10_000);
    assert!(verdict.sentence.contains("digests (hash) at the receiver takes 20 %"), "{}", verdict.sentence);
    let alone = judge(&sender, &receiver);
    assert_verdict(&alone, End::Receiver, Stage::Hash, 40, 8_888);
}

#[test]
fn shared_cores_are_full_when_the_work_done_on_them_is_though_each_end_waits_for_the_other() {
    let sender = denied(40, books(2, &[(Stage::Read, 20), (Stage::Seal, 60), (Stage::WaitSend, 20)]));
    let receiver = denied(50, books(2, &[(Stage::Recv, 30), (Stage::Seal, 65), (Stage::WaitRecv, 5)]));
    let verdict = limiter(&sender, &receiver, &SHARED);
    assert_eq!((verdict.end, verdict.what), (End::Both, Some(What::Stage(Stage::Seal))), "{}", verdict.sentence);
}

#[test]
fn on_a_shared_host_one_busy_end_beside_an_idle_one_is_still_that_end() {
    let sender = books(1, &[(Stage::Read, 30), (Stage::Hash, 65), (Stage::WaitSend, 5)]);
    let verdict = limiter(&sender, &idle_receiver(), &SHARED);
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
        let verdict = limiter(&waiting_sender(), &receiver, &Run { shared_cores: shared, rate_cap_bps: 0, ..RUN });
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
            for most in [0, 1, u64::MAX] {
                let run = Run {
                    payload_bytes: most,
                    wall_ns: u64::MAX - most,
                    shared_cores: shared,
                    rate_cap_bps: most,
                    pipe_ns: most / 3,
                    lookup_ns: most / 5,
                    silent_ns: most,
                    peer: Some(End::Sender),
                    in_flight_ns: most,
                    loss_ppm: u32::MAX,
                    policer_bps: most,
                };
                let _ = limiter(one, &absurd, &run);
                let _ = limiter(&absurd, one, &run);
                let _ = limiter(one, &waiting_sender(), &Run { pipe_ns: 0, lookup_ns: 0, silent_ns: 0, ..run });
            }
        }
    }
}
