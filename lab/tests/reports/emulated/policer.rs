//! A policer on the way: what is above its rate is dropped at once, and no queue shows it.
//!
//! In: a job over UDP through a policer of the emulator's. Out: checks of what was sent for each byte that arrived, of the rate and of the report.
//! Absent on purpose: the grid of rates, buckets and distances (proto/tests/flow_policer.rs, in virtual time).

use std::time::Duration;

use lab::report::doubts;

use super::Emulated;
use crate::world::{MIB, Skip, World};

/// A flood would take longer than this.
const LIMIT: Duration = Duration::from_secs(60);

/// A round in which the emulator did not get the processor in time proves nothing of the sender: its packets came to the policer in one burst.
/// It is looked at again, so often at most.
const LOOKS: usize = 3;

/// Through this policer, as many times the file as `most` at most, and at `least` of its rate.
fn through(world: &mut World, police: &str, rtt: &str, mbit: f64, mib: u64) -> Result<(), Skip> {
    world.random_file("src/one.bin", mib * MIB);
    let words = format!("a policer of {police}, {rtt}");
    for look in 1..=LOOKS {
        world.empty("dst/far");
        let mut link = Emulated::make(&format!("rtt={rtt} rate=1Gbit ab.police={police}"))?;
        let daemon = link.serve(world);
        let source = world.word("src/one.bin");
        let run = link.cp(world, &["--transport", "udp", &source, &daemon.url]).end_within(LIMIT);
        let told = link.stop();
        let sent = told[0].counts.bytes_in as f64 / run.number("bytes").max(1.0);
        let share = run.number("goodput_bps") / (mbit * 1e6);
        // Headers, seals and the session are 4 %; asked of the law in virtual time is 1.10.
        let (is_frugal, is_quick) = (sent <= 1.25, share >= 0.75);
        let is_missed = !is_frugal || !is_quick;
        let doubts = told.iter().flat_map(|told| doubts(1, "A to B", told, 0)).collect::<Vec<_>>();
        if is_missed && !doubts.is_empty() && look < LOOKS {
            println!(
                "# {words}: looked at again after {sent:.2} times the file, {share:.2} of the rate: {}",
                doubts[0]
            );
            continue;
        }
        world.ends(&run, 0, &format!("{words}: it ends well ({:.1} s)", run.number("seconds")));
        world.same("src/one.bin", "dst/far/one.bin", &format!("{words}: equal"));
        world.holds(&format!("{words}: {sent:.2} times the file was sent, at most 1.25"), is_frugal, &run.why());
        world.holds(&format!("{words}: {share:.2} of its rate, at least 0.75"), is_quick, &run.why());
        break;
    }
    Ok(())
}

pub(crate) fn a_policer_is_not_flooded(world: &mut World) -> Result<(), Skip> {
    through(world, "20Mbit/64KiB", "30ms", 20.0, 16)?;
    // Fifty round trips: the command has seven beside its data.
    through(world, "100Mbit/256KiB", "80ms", 100.0, 48)
}
