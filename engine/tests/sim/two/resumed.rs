//! Two runs, the second perhaps from another source that has the same name, length and time.
//!
//! For: what a killed run left is of the source it was begun from, which length and time alone do not tell.
//! In and out: a seed in; what the second run said out, or a panic.
//! Invariants: nothing but the whole of one source ever has the name; the third run has all of the second's source.
//! Absent on purpose: troubles beside the kill (the other stories have them).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use engine::job::Cover;
use engine::machine::FailedEntry;
use proto::wire::control::{Compare, Durability, FaultKind};

use crate::check::{Watch, file};
use crate::disk::{Clock, Content, Disk, Kind};
use crate::job::{Ended, Run};
use crate::net::Weather;
use crate::rng::Rng;
use crate::scenario::{RunPlan, Scenario, Trouble, Versions, Victim, content};
use crate::trees::SharedDisk;

const NAME: &[u8] = b"big";

/// What the second run said.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Met {
    /// The part was found to be of another source.
    pub(crate) torn: bool,
    pub(crate) bytes_resumed: u64,
}

/// What all runs share.
struct World {
    clock: Clock,
    sink: SharedDisk,
    versions: Versions,
    scenario: Scenario,
    plan: RunPlan,
}

impl World {
    fn new(rng: &mut Rng, clock: Clock, sink: SharedDisk) -> World {
        let mut scenario = Scenario::new(rng);
        (scenario.prune, scenario.compare, scenario.terms.cover) = (false, Compare::Never, Cover::Hashed);
        scenario.durability = *rng.pick(&[Durability::Written, Durability::Flushed, Durability::Published]);
        let plan = RunPlan {
            trouble: Trouble::default(),
            dry: false,
            short: 0,
            datagrams: 0,
            polled: false,
            mail: 64,
            debt: 64 << 20,
            rate: 0,
            latency_ns: *rng.pick(&[10_000, 1_000_000]),
            ns_per_kib: 20_000,
            commit_ns: *rng.pick(&[0, 20_000_000]),
            weather: Weather::default(),
            ..scenario.runs[0].clone()
        };
        World { clock, sink, versions: Versions::new(), scenario, plan }
    }

    /// A source with one large file: of the same name, length and time as every other.
    fn source(&mut self, rng: &mut Rng, bytes: u64) -> SharedDisk {
        let source = Arc::new(Mutex::new(Disk::new(self.clock.clone(), rng.fork())));
        let data = content(rng, bytes);
        self.versions.entry(NAME.into()).or_default().insert(*blake3::hash(&data).as_bytes());
        let mut disk = source.lock().expect("one thread");
        disk.plant(NAME, Kind::File(Content::of(data)), 0o644, (1_600_000_000, 7));
        disk.plant(b"", Kind::Folder, 0o755, (1_500_000_000, 0));
        drop(disk);
        source
    }

    fn run(&mut self, rng: &mut Rng, source: &SharedDisk, trouble: Trouble, loud: bool) -> (Ended, Met) {
        let plan = RunPlan { trouble, ..self.plan.clone() };
        let mut watch = Watch::new(loud);
        let (source, sink) = (source.clone(), self.sink.clone());
        let (clock, random, versions) = (self.clock.clone(), rng.fork(), &mut self.versions);
        let run = Run::new(clock, random, plan.clone(), &self.scenario, source.clone(), sink, versions, &mut watch);
        let (ended, send, recv, _) = run.go();
        let torn = recv.faults.iter().any(|it| it.fault.kind == FaultKind::Torn);
        assert_eq!(
            recv.faults.len(),
            usize::from(torn),
            "nothing else in this story costs an entry: {:?}",
            recv.faults
        );
        if ended == Ended::Done {
            let told = |faults: &[FailedEntry]| faults.iter().map(|it| it.path.clone()).collect::<BTreeSet<_>>();
            assert_eq!(told(&send.faults), told(&recv.faults), "both ends know of it");
            let (source, sink) = (source.lock().expect("one thread"), self.sink.lock().expect("one thread"));
            let brought = if torn { None } else { file(&source, NAME) };
            assert!(file(&sink, NAME) == brought, "the name is its own source's, or nobody's");
            let ours = sink.tree().filter(|(path, _)| engine::tree::is_ours(path)).count();
            assert_eq!(ours, 0, "nothing is left of a part that is of no use");
        }
        (ended, Met { torn, bytes_resumed: recv.tally.bytes_resumed })
    }
}

/// Tells one story. `other`: the second run's source is another.
pub(crate) fn story(seed: u64, other: bool, loud: bool) -> Met {
    let mut rng = Rng::new(seed);
    let clock = Clock::default();
    clock.advance(1_000_000_000);
    let sink = Arc::new(Mutex::new(Disk::new(clock.clone(), rng.fork())));
    let mut world = World::new(&mut rng, clock.clone(), sink.clone());
    let bytes = (17 << 20) + rng.below(3 << 20);
    let first = world.source(&mut rng, bytes);
    let second = if other { world.source(&mut rng, bytes) } else { first.clone() };
    let killed =
        Trouble { crash: Some((Victim::Receiver, rng.between(30_000_000, 400_000_000))), ..Trouble::default() };
    let (ended, _) = world.run(&mut rng, &first, killed, loud);
    let published = file(&sink.lock().expect("one thread"), NAME).is_some();
    if ended == Ended::Done || published {
        return Met::default(); // it had its name before: no part is left, and what has a name is kept by length and time
    }
    sink.lock().expect("one thread").revive();
    clock.advance(10_000_000_000);
    let (ended, met) = world.run(&mut rng, &second, Trouble::default(), loud);
    assert_eq!(ended, Ended::Done);
    clock.advance(10_000_000_000);
    let (ended, last) = world.run(&mut rng, &second, Trouble::default(), loud);
    assert!(ended == Ended::Done && !last.torn, "the next run brings all");
    met
}
