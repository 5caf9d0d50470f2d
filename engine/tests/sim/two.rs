//! Two jobs with one destination, in every interleaving that a seed can think of.
//!
//! For: overlapping commands (a cron job that is started twice, two sources that have one name): neither may publish a mixture, nor call
//! verified what does not stand there.
//! In and out: a seed in; silence or a panic out.
//! Invariants: the jobs share nothing but the disk they write to, as two processes or two hosts do; each may be stopped (SIGSTOP) and
//! continued, and killed, at any turn; the last job is alone and has no trouble.
//! Absent on purpose: network troubles (the other stories have them); what one job alone may do wrong.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use engine::end::Stop;
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

/// Tells one story.
pub(crate) fn story(seed: u64, loud: bool) -> Met {
    let mut rng = Rng::new(seed);
    let clock = Clock::default();
    clock.advance(1_000_000_000);
    let disk = |rng: &mut Rng| Arc::new(Mutex::new(Disk::new(clock.clone(), rng.fork())));
    let (sources, sink) = ([disk(&mut rng), disk(&mut rng)], disk(&mut rng));
    let mut versions = Versions::new();
    let mib = 1_u64 << 20;
    let mut sizes = vec![rng.below(5000), rng.below(3 * mib)];
    if rng.permille(600) {
        sizes.push(16 * mib + rng.below(2 * mib));
    }
    // The same command twice reads one source; else there are two.
    let is_same = rng.permille(400);
    let mut state = rng.fork();
    plant(&mut state, &sources[0], &sizes, 1_600_000_000, &mut versions);
    if !is_same {
        plant(&mut state, &sources[1], &sizes, 1_600_000_077, &mut versions);
    }
    let mut scenario = Scenario::new(&mut rng);
    (scenario.prune, scenario.compare) = (false, *rng.pick(&[Compare::Never, Compare::Changed]));
    let base = scenario.runs[0].clone();
    let plan = |rng: &mut Rng| RunPlan {
        trouble: Trouble::default(),
        dry: false,
        short: 0,
        datagrams: 0,
        mail: 64,
        latency_ns: *rng.pick(&[10_000, 1_000_000]),
        commit_ns: *rng.pick(&[0, 20_000_000]),
        debt: 64 << 20,
        ..base.clone()
    };
    let plans = [plan(&mut rng), plan(&mut rng)];
    let mut met = Met::default();
    let mut watches = [Watch::new(loud), Watch::new(loud)];
    let mut all = [versions.clone(), versions.clone()];
    {
        let (a, b) = watches.split_at_mut(1);
        let (va, vb) = all.split_at_mut(1);
        let second = if is_same { sources[0].clone() } else { sources[1].clone() };
        let mut runs = [
            (plans[0].clone(), &mut a[0], &mut va[0], sources[0].clone()),
            (plans[1].clone(), &mut b[0], &mut vb[0], second),
        ]
        .map(|(plan, watch, versions, source)| {
            watch.overlapped = true;
            watch.begin(&plan, clock.now());
            let run = Run::new(clock.clone(), rng.fork(), plan, &scenario, source, sink.clone(), versions, watch);
            Some((run, clock.now()))
        });
        // So many turns each is stopped for, from the one on; and before which it is killed, if at all.
        let mut stopped = [0_u64; 2];
        let kill_at: [u64; 2] = [(); 2].map(|()| if rng.permille(350) { rng.below(4000) } else { u64::MAX });
        for turn in 0_u64.. {
            assert!(turn < 5_000_000, "no end");
            if runs.iter().all(Option::is_none) {
                break;
            }
            let who = rng.below(2) as usize;
            if stopped[who] > 0 && runs[1 - who].is_some() {
                stopped[who] -= 1;
                if let Some((_, quiet_since)) = &mut runs[who] {
                    *quiet_since = clock.now();
                }
                continue;
            }
            let Some((run, quiet_since)) = &mut runs[who] else { continue };
            if rng.permille(2) {
                stopped[who] = rng.below(3000);
            }
            if turn >= kill_at[who] {
                let (run, _) = runs[who].take().expect("it runs");
                run.killed();
                met.killed += 1;
            } else if run.turn(quiet_since) {
                let (run, _) = runs[who].take().expect("it runs");
                let (ended, _, came, _) = run.over();
                match ended {
                    Ended::Done => {}
                    Ended::Died(_) | Ended::Stopped(Stop::Breach(_) | Stop::Refused { .. } | Stop::Fault { .. }) => {
                        panic!("seed {seed}: nothing in this story explains {ended:?}")
                    }
                }
                for (fault, path) in &came.faults {
                    assert_eq!(fault.kind, FaultKind::InUse, "{} {fault:?}", String::from_utf8_lossy(path));
                    met.in_use += 1;
                }
            }
        }
    }
    let [first, second] = &watches;
    met.both = first.committed.keys().filter(|path| second.committed.contains_key(*path)).count();
    // The first source once more, alone: it comes through, and nothing is left of anybody.
    let mut watch = Watch::new(loud);
    let mut last = versions.clone();
    watch.begin(&plans[0], clock.now());
    let run = Run::new(
        clock.clone(),
        rng.fork(),
        plans[0].clone(),
        &scenario,
        sources[0].clone(),
        sink.clone(),
        &mut last,
        &mut watch,
    );
    let (ended, _, came, _) = run.go();
    assert_eq!((ended, came.faults.len()), (Ended::Done, 0));
    let (source, sink) = (sources[0].lock().expect("one thread"), sink.lock().expect("one thread"));
    watch.same(&source, &sink, &BTreeSet::new());
    for number in 0..sizes.len() {
        let path = format!("f{number}").into_bytes();
        assert_eq!(file(&source, &path), file(&sink, &path));
    }
    let ours = sink.tree().filter(|(path, _)| engine::linux::is_ours(path)).count();
    assert_eq!(ours, 0, "something was left behind");
    met
}
