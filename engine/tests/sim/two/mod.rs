//! Two jobs with one destination, in every interleaving that a seed can think of.
//!
//! For: overlapping commands (a cron job that is started twice, two sources that have one name): neither may publish a mixture, nor call
//! verified what does not stand there.
//! In and out: a seed in; silence or a panic out.
//! Invariants: the jobs share nothing but the disk they write to, as two processes or two hosts do; each may be stopped (SIGSTOP) and
//! continued, and killed, at any turn; the last job is alone and has no trouble.
//! Absent on purpose: network troubles (the other stories have them); what one job alone may do wrong.

pub(crate) mod resumed; // one after the other

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use engine::machine::FailedEntry;
use proto::wire::control::{Compare, FaultKind};

use crate::check::{Watch, file};
use crate::disk::{Clock, Content, Disk, Kind};
use crate::job::{Ended, Run};
use crate::rng::Rng;
use crate::scenario::{RunPlan, Scenario, Trouble, Versions, content};
use crate::trees::SharedDisk;

/// What a story met: jobs that were told another is at their file, and files that both published.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Met {
    pub(crate) in_use: usize,
    pub(crate) both: usize,
    pub(crate) killed: usize,
}

/// Files of one source: names and lengths are the same in both, contents are not.
fn plant(rng: &mut Rng, disk: &SharedDisk, sizes: &[u64], mtime: i64, versions: &mut Versions) {
    let mut disk = disk.lock().expect("one thread");
    for (number, &bytes) in sizes.iter().enumerate() {
        let path = format!("f{number}").into_bytes();
        let mut data = content(rng, bytes);
        if let Some(first) = data.first_mut() {
            *first = mtime as u8; // never the other's
        }
        versions.entry(path[..].into()).or_default().insert(*blake3::hash(&data).as_bytes());
        disk.plant(&path, Kind::File(Content::of(data)), 0o644, (mtime, 7));
    }
    disk.plant(b"", Kind::Folder, 0o755, (1_500_000_000, 0));
}

/// What both jobs write to, and read from.
struct World {
    clock: Clock,
    sources: [SharedDisk; 2],
    sink: SharedDisk,
    versions: Versions,
    files: usize,
    scenario: Scenario,
    plans: [RunPlan; 2],
}

impl World {
    fn new(rng: &mut Rng) -> World {
        let clock = Clock::default();
        clock.advance(1_000_000_000);
        let disk = |rng: &mut Rng| Arc::new(Mutex::new(Disk::new(clock.clone(), rng.fork())));
        let (first, second, sink) = (disk(rng), disk(rng), disk(rng));
        let mut versions = Versions::new();
        let mib = 1_u64 << 20;
        let mut sizes = vec![rng.below(5000), rng.below(3 * mib)];
        if rng.permille(600) {
            sizes.push(16 * mib + rng.below(2 * mib));
        }
        plant(rng, &first, &sizes, 1_600_000_000, &mut versions);
        // The same command twice reads one source; else there are two.
        let second = if rng.permille(400) {
            first.clone()
        } else {
            plant(rng, &second, &sizes, 1_600_000_077, &mut versions);
            second
        };
        let mut scenario = Scenario::new(rng);
        (scenario.prune, scenario.compare) = (false, *rng.pick(&[Compare::Never, Compare::Changed]));
        let base = scenario.runs[0].clone();
        let plans = [(); 2].map(|()| RunPlan {
            trouble: Trouble::default(),
            dry: false,
            short: 0,
            datagrams: 0,
            polled: false,
            mail: 64,
            latency_ns: *rng.pick(&[10_000, 1_000_000]),
            commit_ns: *rng.pick(&[0, 20_000_000]),
            debt: 64 << 20,
            ..base.clone()
        });
        World { clock, sources: [first, second], sink, versions, files: sizes.len(), scenario, plans }
    }

    fn run<'a>(&'a self, rng: &mut Rng, which: usize, versions: &'a mut Versions, watch: &'a mut Watch) -> Run<'a> {
        let (plan, source) = (self.plans[which].clone(), self.sources[which].clone());
        watch.begin(&plan, self.clock.now());
        Run::new(self.clock.clone(), rng.fork(), plan, &self.scenario, source, self.sink.clone(), versions, watch)
    }
}

/// Tells one story.
pub(crate) fn story(seed: u64, loud: bool) -> Met {
    let mut rng = Rng::new(seed);
    let world = World::new(&mut rng);
    let mut met = Met::default();
    let (mut first, mut second) = (Watch::new(loud), Watch::new(loud));
    (first.overlapped, second.overlapped) = (true, true);
    let mut versions = [world.versions.clone(), world.versions.clone(), world.versions.clone()];
    let [of_first, of_second, of_last] = &mut versions;
    {
        let runs = [world.run(&mut rng, 0, of_first, &mut first), world.run(&mut rng, 1, of_second, &mut second)];
        beside(&mut rng, &world.clock, runs, &mut met);
    }
    met.both = first.committed.keys().filter(|path| second.committed.contains_key(*path)).count();
    // The first source once more, alone: it comes through, and nothing is left of anybody.
    let mut watch = Watch::new(loud);
    let (ended, _, came, _) = world.run(&mut rng, 0, of_last, &mut watch).go();
    assert_eq!((ended, came.faults.len()), (Ended::Done, 0));
    let (source, sink) = (world.sources[0].lock().expect("one thread"), world.sink.lock().expect("one thread"));
    watch.same(&source, &sink, &BTreeSet::new());
    for number in 0..world.files {
        let path = format!("f{number}").into_bytes();
        assert_eq!(file(&source, &path), file(&sink, &path));
    }
    let ours = sink.tree().filter(|(path, _)| engine::tree::is_ours(path)).count();
    assert_eq!(ours, 0, "something was left behind");
    met
}

/// Turns both, each as often as it comes, until both are over or dead.
fn beside(rng: &mut Rng, clock: &Clock, runs: [Run<'_>; 2], met: &mut Met) {
    let mut runs = runs.map(|run| Some((run, clock.now())));
    // So many turns each is stopped for; and the turn at which it is killed, if at all.
    let mut stopped = [0_u64; 2];
    let kill_at: [u64; 2] = [(); 2].map(|()| if rng.permille(350) { rng.below(4000) } else { u64::MAX });
    for turn in 0_u64.. {
        assert!(turn < 5_000_000, "no end");
        if runs.iter().all(Option::is_none) {
            return;
        }
        let who = rng.below(2) as usize;
        let other_runs = runs[1 - who].is_some();
        let Some((run, quiet_since)) = &mut runs[who] else { continue };
        if stopped[who] > 0 && other_runs {
            stopped[who] -= 1;
            *quiet_since = clock.now();
            continue;
        }
        if rng.permille(2) {
            stopped[who] = rng.below(3000);
        }
        if turn >= kill_at[who] {
            runs[who].take().expect("it runs").0.killed();
            met.killed += 1;
        } else if run.turn(quiet_since) {
            let (ended, _, came, _) = runs[who].take().expect("it runs").0.over();
            assert_eq!(ended, Ended::Done, "nothing in this story explains it");
            for FailedEntry { fault, path, .. } in &came.faults {
                assert_eq!(fault.kind, FaultKind::InUse, "{} {fault:?}", String::from_utf8_lossy(path));
                met.in_use += 1;
            }
        }
    }
}
