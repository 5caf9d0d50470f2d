//! Round trips of a whole command, from its start to its end.
//!
//! In: copies of 1 KB and 1 MB over the same link at two distances, to a daemon whose kernel seems to be another one. Out: how much longer the
//! longer path made each, in its round trips: what the processors take falls out; and how many take how long where a tenth of all packets is lost.
//! Absent on purpose: where each of them goes (docs/design/035-start.md).

use std::time::Duration;

use super::Emulated;
use crate::world::{Daemon, Skip, World};

/// The two distances, ms: what a busy machine adds is little beside the difference.
const RTTS: [u64; 2] = [200, 600];
/// A job over an emulated link takes longer than one over a wire.
const LIMIT: Duration = Duration::from_secs(60);
/// Tries of each; the shortest counts.
const TRIES: usize = 3;

/// Options, bytes, and the round trips that it may take: a third of one more than it takes.
const JOBS: [(&[&str], u64, f64); 4] = [
    (&["--transport", "tcp"], 1 << 10, 3.35),
    (&["--transport", "udp"], 1 << 10, 3.35),
    (&["--transport", "auto"], 1 << 10, 3.35),
    (&["--transport", "udp"], 1 << 20, 4.35),
];

pub(crate) fn a_command_takes_no_round_trip_more(world: &mut World) -> Result<(), Skip> {
    let mut took = [[f64::INFINITY; JOBS.len()]; RTTS.len()];
    for (at, rtt) in RTTS.into_iter().enumerate() {
        let link = Emulated::make(if rtt == RTTS[0] { "rate=155Mbit rtt=200ms" } else { "rate=155Mbit rtt=600ms" })?;
        let daemon = link.serve_as_another_kernel(world)?;
        for (job, (options, bytes, _)) in JOBS.into_iter().enumerate() {
            for number in 0..TRIES {
                took[at][job] = took[at][job].min(copy(world, &link, &daemon, options, (bytes, number), rtt));
            }
        }
    }
    for (job, (options, bytes, most)) in JOBS.into_iter().enumerate() {
        let trips = (took[1][job] - took[0][job]) / ((RTTS[1] - RTTS[0]) as f64 / 1000.0);
        let what = format!("{bytes} bytes, {}: {trips:.2} round trips, at most {most}", options.join(" "));
        world.holds(&what, trips <= most, &format!("{took:?}"));
    }
    Ok(())
}

/// Commands over a path that loses a tenth of all packets each way.
const LOSSY: usize = 60;
/// Nine of ten are over within so many round trips of 200 ms, and what processors take (half a round trip of a busy machine's). Before the first
/// flights went in datagrams, and twice, three of four were; since then 99 of 100 (docs/design/042).
const WITHIN: (f64, usize) = (6.0, LOSSY * 9 / 10);

pub(crate) fn what_a_job_begins_with_waits_for_no_timer_where_a_tenth_is_lost(world: &mut World) -> Result<(), Skip> {
    let link = Emulated::make("rate=100Mbit rtt=200ms loss=10%")?;
    let daemon = link.serve_as_another_kernel(world)?;
    let mut took = Vec::new();
    for number in 0..LOSSY {
        took.push(copy(world, &link, &daemon, &["--transport", "udp"], (1 << 10, number), 200) / 0.2);
    }
    took.sort_by(f64::total_cmp);
    let within = took.iter().filter(|&&it| it <= WITHIN.0).count();
    let what = format!("{within} of {LOSSY} within {} round trips, at least {}", WITHIN.0, WITHIN.1);
    world.holds(&what, within >= WITHIN.1, &format!("{took:.2?}"));
    Ok(())
}

/// A job of one chunk on a slow link: all bytes that left host a, to the file's, at most. Headers, seals, hello and session are 8 %; the long train was 16 % more.
const SENT_MOST: f64 = 1.15;

pub(crate) fn a_small_job_is_tried_with_a_short_train(world: &mut World) -> Result<(), Skip> {
    let mut link = Emulated::make("rate=20Mbit rtt=30ms")?;
    let daemon = link.serve_as_another_kernel(world)?;
    let bytes = 1_000_000;
    copy(world, &link, &daemon, &["--transport", "auto"], (bytes, 0), 30);
    let ends = link.stop();
    let sent = ends[0].counts.bytes_in as f64 / bytes as f64;
    let what = format!("1 MB over 20 Mbit/s and 30 ms: {sent:.2} times the file was sent, at most {SENT_MOST}");
    world.holds(&what, sent <= SENT_MOST, "");
    Ok(())
}

/// Seconds of one copy.
fn copy(
    world: &mut World,
    link: &Emulated,
    daemon: &Daemon,
    options: &[&str],
    (bytes, number): (u64, usize),
    rtt: u64,
) -> f64 {
    let name = format!("{}-{bytes}-{rtt}-{number}", options[1]);
    world.random_file(&format!("src/{name}"), bytes);
    let (source, target) = (world.word(&format!("src/{name}")), format!("{}{name}", daemon.url));
    let run = link.cp(world, &[options, &[&source, &target]].concat()).end_within(LIMIT);
    world.ends(&run, 0, &format!("{name}: it ends well"));
    world.same(&format!("src/{name}"), &format!("dst/far/{name}"), &format!("{name}: the file is equal"));
    run.took.as_secs_f64()
}
