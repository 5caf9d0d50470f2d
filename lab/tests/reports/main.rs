//! Checks of the real binary between two hosts, for rules that stand in its reports.
//!
//! For: `make e2e` (lab/e2e/run.sh), after the checks in shell. In: LONGHAUL, the path of the binary; words of the command line, of which one must
//! be in the name of a scenario that is to run; with LIMITER_ROUNDS the plants run in place of the scenarios (../plants/). Out: `ok`, `not ok` and `skip` lines as lab/words.sh writes them; status 0 if nothing failed.
//! Invariants: no check passes without having looked at a file, an exit code or a field of a report; a scenario that cannot run here says `skip`
//! and passes nothing; each makes its own hosts and leaves nothing behind.
//! Absent on purpose: libtest, which has no word for a test that could not run; rules that need no report (lab/e2e).

mod books;
mod caps;
mod claims;
mod disks;
mod emulated;
mod facts;
mod hosts;
mod jobs;
mod memory;
mod paths;
mod placement;
#[path = "../plants/mod.rs"]
mod plants;
mod wan;
mod watch;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use disks::{bench, io_modes, known};
use emulated::{auto, blackhole, moves, policer, start};
use jobs::replan;
use paths::{carry, change, named, nics};
use world::{Skip, World};

/// One scenario: hosts of its own → checks, in the order in which things happen.
type Scenario = fn(&mut World) -> Result<(), Skip>;

const SCENARIOS: [(&str, Scenario); 64] = [
    ("hosts: ends", hosts::hosts_end_with_whoever_asked_for_them),
    ("facts: host show", facts::host_show_tells_what_sys_tells),
    ("books: pushed", books::both_ends_sum_to_their_wall_time_when_pushed),
    ("books: small files", books::both_ends_sum_to_their_wall_time_with_small_files),
    ("books: pulled", books::both_ends_sum_to_their_wall_time_when_pulled),
    ("books: short", books::short_jobs_count_what_a_worker_tells_last),
    ("memory: zeros", memory::zeros_that_travel_need_no_more_memory),
    ("memory: wide", memory::streams_and_datagrams_stay_within_the_grant),
    ("memory: count", memory::many_files_need_no_more_memory),
    ("replan: pushed", replan::a_receiver_that_loses_cores_in_mid_job_is_planned_for_anew),
    ("replan: pulled", replan::a_sender_that_loses_cores_is_planned_for_too),
    ("jobs: tcp", jobs::over_tcp_jobs_are_seen_changed_and_stopped),
    ("jobs: udp", jobs::over_udp_jobs_are_seen_changed_and_stopped),
    ("jobs: operator", jobs::the_client_keeps_its_cap_whatever_the_daemon_sets),
    ("jobs: ended", jobs::a_job_is_stopped_at_the_daemon_and_a_local_one_is_let_go),
    ("jobs: refused", jobs::what_cannot_be_changed_is_refused_and_a_killed_job_is_not_shown),
    ("caps: one job", caps::a_keys_rate_holds_over_any_two_seconds),
    ("caps: together", caps::six_jobs_of_one_key_have_its_rate_together),
    ("caps: daemon", caps::a_daemons_rate_is_that_of_all_its_jobs),
    ("auto: chosen", auto::the_transport_is_chosen_by_a_look_at_the_path),
    ("auto: small", auto::a_small_job_far_off_goes_over_udp),
    ("auto: unsaid", auto::who_says_nothing_gets_auto_and_udp_that_is_blocked_costs_that_job_nothing),
    ("auto: worse", auto::a_job_goes_on_when_its_path_becomes_worse),
    ("auto: rebind", auto::a_rail_whose_return_path_died_goes_on_from_another_address),
    ("moves: address", moves::a_client_with_another_address_goes_on),
    ("moves: outage", moves::seconds_of_nothing_end_no_job),
    ("moves: greeting", moves::a_greeting_from_a_new_address_costs_no_rail),
    ("moves: last words", moves::last_words_arrive_over_a_path_that_loses),
    ("blackhole: from the start", blackhole::a_path_that_swallows_from_the_start_is_named_with_the_remedy),
    ("blackhole: in mid-job", blackhole::a_path_that_begins_to_swallow_is_named_too),
    ("blackhole: last words", blackhole::a_path_that_swallows_the_last_words_is_left),
    ("policer: not flooded", policer::a_policer_is_not_flooded),
    ("start: round trips", start::a_command_takes_no_round_trip_more),
    ("start: a short train", start::a_small_job_is_tried_with_a_short_train),
    ("start: a tenth lost", start::what_a_job_begins_with_waits_for_no_timer_where_a_tenth_is_lost),
    ("wan: grid", wan::a_tiny_grid_says_what_was_and_what_was_not),
    ("wan: stopped", wan::a_grid_that_is_stopped_keeps_what_was_measured),
    ("paths: carry", carry::each_path_carries_as_its_weight_is),
    ("paths: rate", carry::a_bound_is_reached_and_not_passed),
    ("paths: end", carry::nobody_waits_for_the_slow_one_at_the_end),
    ("paths: goes and comes", change::a_link_that_goes_and_comes_is_used_again_within_seconds),
    ("paths: outage", change::all_paths_away_for_seconds_are_no_error),
    ("paths: slow", change::a_link_that_becomes_slow_is_named_and_not_waited_for),
    ("paths: shares", nics::a_share_beside_its_weight_is_told_once),
    ("paths: slow NIC", nics::a_name_that_leads_to_a_slow_nic_does_not_decide),
    ("paths: insisted on", nics::a_name_that_is_insisted_on_or_alone_decides),
    ("paths: both families", named::ipv4_and_ipv6_carry_one_job_side_by_side),
    ("paths: refused", named::what_leads_nowhere_is_named_and_what_makes_no_sense_refused),
    ("placement: search", placement::a_search_measures_the_presets_and_keeps_to_its_budget),
    ("placement: tables", placement::tables_have_each_pair_of_cores),
    ("placement: kept", placement::a_winner_is_kept_and_used_in_the_same_world),
    ("placement: interrupts", placement::interrupts_are_moved_by_each_ends_own_word_and_put_back),
    ("disks: io_modes", io_modes::each_modes_copy_is_the_same_bytes),
    ("disks: order", io_modes::the_order_of_files_is_told),
    ("disks: locked", io_modes::bufs_that_may_not_be_locked_are_told),
    ("disks: displaced", io_modes::what_a_job_displaced_is_told),
    ("disks: fell", known::a_disk_whose_rate_fell_is_measured_again),
    ("disks: offered", known::both_ends_offer_what_their_disks_did),
    ("disks: bench disk", bench::disk_has_every_sweep_and_leaves_nothing),
    ("disks: bench volumes", bench::volumes_bring_all_files_and_leave_nothing),
    ("claims: kept", claims::what_nobody_read_is_not_called_verified),
    ("claims: place", claims::a_place_for_a_receipt_is_tried_first),
    ("claims: full disk", claims::a_disk_that_is_full_of_receipts_is_said),
    ("claims: read-only", claims::a_home_that_is_read_only_is_said),
];

fn main() -> ExitCode {
    let Some(binary) = std::env::var_os("LONGHAUL") else {
        // As `cargo test` alone runs it.
        println!("skip reports: LONGHAUL names no binary; `make e2e` runs them");
        return ExitCode::SUCCESS;
    };
    if let Some(rounds) = std::env::var("LIMITER_ROUNDS").ok().and_then(|it| it.parse().ok()) {
        return plants::run(&binary, rounds);
    }
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let mut bad = 0;
    for (name, scenario) in SCENARIOS {
        if !words.is_empty() && !words.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        println!("# {name}");
        let began = Instant::now();
        let mut world = match World::make(&binary) {
            Ok(world) => world,
            Err(Skip(why)) => {
                println!("skip {name}: {why}");
                continue;
            }
        };
        match catch_unwind(AssertUnwindSafe(|| scenario(&mut world))) {
            Ok(Ok(())) => {}
            Ok(Err(Skip(why))) => println!("skip {name}: {why}"),
            // What it said stands above.
            Err(_) => world.not_ok(&format!("{name}: the check itself went wrong"), ""),
        }
        bad += world.bad();
        println!("# {name}: {:.0} s", began.elapsed().as_secs_f64());
    }
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
