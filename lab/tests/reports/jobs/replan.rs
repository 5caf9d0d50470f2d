//! An end loses half of its cores in mid-job, and gets them back: the plan is made anew at both ends.
//!
//! In: a daemon whose threads are bound to fewer cores while a job runs. Out: checks of the job's notes, with their times, and of its report.
//! Absent on purpose: the rule by which a plan is made (proto/src/negotiate.rs, proto/src/session/replan.rs).

use std::process::Command;
use std::time::{Duration, Instant};

use crate::world::{MIB, Running, Skip, World, until};

/// SPECIFICATION.md, promise 96: both ends make the same plan anew within so long.
const SOON: Duration = Duration::from_secs(2);
/// A note that has not come by then does not come.
const LATEST: Duration = Duration::from_secs(10);
/// A busy machine looks late, never early.
const TRIES: u32 = 3;

/// The cores of this process, or why there is nothing to take away.
fn cores() -> Result<Vec<usize>, Skip> {
    if Command::new("taskset").arg("-V").output().is_err() {
        return Err(Skip("no taskset here".into()));
    }
    let cores = sys::host::cores().map_err(|error| Skip(error.to_string()))?.numbers;
    if cores.len() < 2 { Err(Skip("a host of one core has no half".into())) } else { Ok(cores) }
}

/// All threads of a process run on these from now on.
fn bind(process: u32, cores: &[usize]) {
    let list = cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let bound = Command::new("taskset").args(["-a", "-c", "-p", &list, &process.to_string()]).output();
    assert!(bound.is_ok_and(|it| it.status.success()), "taskset");
}

/// How long until the job says so.
fn told(job: &Running, words: &str) -> Option<Duration> {
    let began = Instant::now();
    until(LATEST, || job.out().contains(words)).then(|| began.elapsed())
}

fn shown(took: Option<Duration>) -> String {
    took.map_or("it is not".into(), |took| format!("{} ms", took.as_millis()))
}

fn is_soon(took: Option<Duration>) -> bool {
    took.is_some_and(|took| took <= SOON)
}

pub(crate) fn a_receiver_that_loses_cores_in_mid_job_is_planned_for_anew(world: &mut World) -> Result<(), Skip> {
    let all = cores()?;
    world.random_file("src/large", 150 * MIB);
    let daemon = world.serve("dst", &[]);
    let source = world.word("src/large");
    let count = all.len();
    let mut tries = 1;
    let (fewer, more, run) = loop {
        let _ = std::fs::remove_file(world.at("dst/large"));
        bind(daemon.running.id(), &all);
        let job = world.start_cp(&["--rate", "200Mbit", &source, &daemon.url]);
        // Until the first second's look at the cores is over.
        std::thread::sleep(Duration::from_millis(1200));
        bind(daemon.running.id(), &all[..1]);
        let fewer = told(&job, &format!("the other end may use 1 core (before: {count})"));
        bind(daemon.running.id(), &all);
        let more = told(&job, &format!("the other end may use {count} cores (before: 1)"));
        let run = job.end();
        if (is_soon(fewer) && is_soon(more)) || tries == TRIES {
            break (fewer, more, run);
        }
        tries += 1;
    };
    world.ends(&run, 0, "half of the receiver's cores in mid-job: exit code 0");
    world.holds(
        &format!("half of the receiver's cores: the plan is made anew within 2 s ({})", shown(fewer)),
        is_soon(fewer),
        &run.why(),
    );
    world.holds(
        &format!("the cores are back: and so is the plan within 2 s ({})", shown(more)),
        is_soon(more),
        &run.why(),
    );
    let notes =
        run.notes(&["workers ", " here and 1 there, streams 1 (before: ", "): one per worker of the smaller end"]);
    world.holds("the line says workers, streams and why", notes > 0, &run.why());
    world.same("src/large", "dst/large", "streams let go of and dialled again cost no byte");
    world.is(run.field("resent_bytes").as_u64(), Some(0), "nothing goes twice");
    Ok(())
}

/// The same of a job that reads there: the sender is the other end.
pub(crate) fn a_sender_that_loses_cores_is_planned_for_too(world: &mut World) -> Result<(), Skip> {
    let all = cores()?;
    world.random_file("dst/large", 150 * MIB);
    let daemon = world.serve("dst", &[]);
    let (there, here) = (format!("{}large", daemon.url), world.word("pulled"));
    let job = world.start_cp(&["--rate", "400Mbit", &there, &here]);
    std::thread::sleep(Duration::from_millis(500));
    bind(daemon.running.id(), &all[..1]);
    let fewer = told(&job, "the other end may use 1 core");
    let run = job.end();
    world.holds("half of the sender's cores, pulled: the plan is made anew", fewer.is_some(), &run.why());
    world.ends(&run, 0, "half of the sender's cores, pulled: exit code 0");
    world.same("dst/large", "pulled", "half of the sender's cores, pulled: the same bytes");
    Ok(())
}
