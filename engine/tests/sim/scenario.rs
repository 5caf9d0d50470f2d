//! What a seed decides: trees, terms, world, troubles.
//!
//! For: one simulated story.
//! In and out: a seed in; a `Scenario`, planted disks and the versions each file ever had out.
//! Invariants: the last run of a story has no trouble, so every story can end well.
//! Absent on purpose: running it (job.rs), judging it (check.rs).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::job::{Cover, Path, Terms};
use engine::platform::Harm;
use proto::flow::FlowConfig;
use proto::manifest::NodeKind;
use proto::negotiate::Cipher;
use proto::rate::{ControllerKind, Policy, RateConfig};
use proto::wire::control::{Compare, DigestKind, Durability};

use crate::disk::{Carried, Content, Disk, Kind};
use crate::net::Weather;
use crate::rng::Rng;
use crate::trees::SharedDisk;

pub(crate) const CHUNK_BYTES: u32 = 1 << 20;
const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

/// What happens to one run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trouble {
    /// Rails are cut at these times, the bool says with loss.
    pub(crate) cuts: Vec<(u64, bool)>,
    /// One bit flips in flight after so many bytes.
    pub(crate) flip_at: Option<u64>,
    /// One bit flips in memory at the n-th piece.
    pub(crate) harm: Option<(Harm, u64)>,
    /// An end dies at this time.
    pub(crate) crash: Option<(Victim, u64)>,
    /// The sink's machine dies at its n-th call.
    pub(crate) sink_dies_at_call: Option<u64>,
    /// The sink's disk loses power when the sink dies.
    pub(crate) power_cut: bool,
    /// Source files are changed at these times.
    pub(crate) changes: Vec<u64>,
    pub(crate) source_faults: Option<crate::disk::Faults>,
    pub(crate) sink_faults: Option<crate::disk::Faults>,
    /// After so many ns both file systems refuse engines of their own, with this error: nothing may come of it.
    pub(crate) refuses: Option<(u64, i32)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    Sender,
    Receiver,
}

/// How one run is set up.
#[derive(Debug, Clone)]
pub(crate) struct RunPlan {
    pub(crate) sender_workers: usize,
    pub(crate) receiver_workers: usize,
    pub(crate) bufs: usize,
    pub(crate) rails: usize,
    pub(crate) depth: usize,
    pub(crate) mail: usize,
    pub(crate) pull: bool,
    pub(crate) latency_ns: u64,
    pub(crate) ns_per_kib: u64,
    pub(crate) room: usize,
    pub(crate) short: u64,
    pub(crate) disk_ns: u64,
    pub(crate) at_once: bool,
    /// Chunks are read where they are written, as when one process copies.
    pub(crate) in_place: bool,
    /// Both ends on the same workers, as when one process copies from disk to disk.
    pub(crate) shared: bool,
    /// Workers hear what they are to expect while they read the packets that bring it.
    pub(crate) late: bool,
    /// So much may wait for the sink's disk.
    pub(crate) debt: u64,
    /// Only say what would be done.
    pub(crate) dry: bool,
    pub(crate) commit_ns: u64,
    pub(crate) rate: u64,
    /// So many of the rails carry datagrams, in permille.
    pub(crate) datagrams: u64,
    /// Rails that carry no datagrams are queue pairs.
    pub(crate) pairs: bool,
    /// Sockets have no descriptor: nothing says when there is something to receive.
    pub(crate) polled: bool,
    pub(crate) weather: Weather,
    /// UDP payload of a packet, at first and at most.
    pub(crate) packet_bytes: (u16, u16),
    /// Units open at first and at most.
    pub(crate) units: (u32, u32),
    /// A datagram rail that hears nothing for so long is dead.
    pub(crate) silence_ns: u64,
    pub(crate) trouble: Trouble,
}

impl RunPlan {
    /// A datagram rail's terms.
    pub(crate) fn path(&self, number: u16) -> Path {
        let (packet_bytes, packet_bytes_max) = self.packet_bytes;
        let (units_open, units_most) = self.units;
        let packet_bytes_max = packet_bytes_max.max(packet_bytes);
        let rate = RateConfig {
            controller: ControllerKind::Delay,
            policy: Policy::Fair,
            target: self.rate,
            min: 0,
            packet_bytes: 1500,
        };
        let flow = FlowConfig { packet_bytes, packet_bytes_max, unit_bytes_max: 0, rate, units_open, units_most };
        Path {
            tag: 0x10_0000 + u32::from(number),
            flow,
            silence_ns: self.silence_ns,
            meter: Arc::default(),
            seen: None,
            job_bytes: 0,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) terms: Terms,
    pub(crate) durability: Durability,
    /// What stands at the sink is compared.
    pub(crate) compare: Compare,
    /// What the source does not have is removed.
    pub(crate) prune: bool,
    pub(crate) runs: Vec<RunPlan>,
}

/// Every content a path of the source ever had.
pub(crate) type Versions = BTreeMap<Box<[u8]>, BTreeSet<[u8; 32]>>;

pub(crate) fn content(rng: &mut Rng, bytes: u64) -> Vec<u8> {
    let mut data = vec![0; bytes as usize];
    // Large files have holes: what is zero takes another way.
    let zeros = rng.permille(300);
    let mut in_hole = false;
    for part in data.chunks_mut(256 << 10) {
        // Some are longer than a chunk: those do not travel.
        in_hole = zeros && rng.permille(if in_hole { 850 } else { 250 });
        if !in_hole {
            rng.fill(part);
        }
    }
    data
}

fn size(rng: &mut Rng, large: bool) -> u64 {
    let around = |rng: &mut Rng, at: u64| at + rng.below(3) - 1;
    if large {
        return match rng.below(4) {
            0 => around(rng, 16 * MIB),
            1 => 16 * MIB + rng.below(4 * MIB),
            2 => around(rng, 18 * MIB),
            _ => 17 * MIB,
        };
    }
    match rng.below(100) {
        0..=9 => 0,
        10..=19 => 1,
        20..=69 => rng.below(5000),
        70..=84 => rng.below(130 * KIB),
        85..=90 => around(rng, 128 * KIB),
        91..=93 => around(rng, MIB),
        94..=95 => around(rng, 2 * MIB),
        96..=97 => rng.between(1, 3) * MIB,
        _ => rng.below(4 * MIB),
    }
}

/// Grows a source tree; some of it stands at the sink already, the same or another.
pub(crate) fn plant(rng: &mut Rng, source: &SharedDisk, sink: &SharedDisk) -> Versions {
    let (mut source, mut sink) = (source.lock().expect("one thread"), sink.lock().expect("one thread"));
    let mut versions = Versions::new();
    let mut folders: Vec<Vec<u8>> = vec![Vec::new()];
    let count = match rng.below(100) {
        0..=4 => 0,
        5..=14 => 1,
        15..=84 => rng.below(30),
        _ => rng.below(200),
    };
    let mut large_left = if rng.permille(250) { rng.between(1, 2) } else { 0 };
    let mut left = 12 * MIB;
    for number in 0..count.max(large_left) {
        let mut path = rng.pick(&folders).clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(format!("{}{number}", ["a", "x y", "ü", "-"][rng.below(4) as usize]).as_bytes());
        let mtime = (1_600_000_000 + rng.below(50_000_000) as i64, rng.below(1_000_000_000) as u32);
        let mode = *rng.pick(&[0o644, 0o600, 0o755, 0o444, 0o400]);
        match rng.below(100) {
            0..=14 => {
                source.plant(&path, Kind::Folder, *rng.pick(&[0o755, 0o700, 0o555]), mtime);
                folders.push(path);
            }
            15..=19 => {
                source.plant(&path, Kind::Link((*rng.pick(&[&b"a0"[..], b"../out", b"/x"])).into()), 0o777, mtime)
            }
            20..=23 => source.plant(&path, node(rng), mode, mtime),
            24..=29 => {
                // One more name of a file or node that is there; of none, in a tree that has none yet.
                let firsts: Vec<Box<[u8]>> =
                    source.tree().filter(|it| has_names(it.1)).map(|it| it.0.clone()).collect();
                if firsts.is_empty() {
                    continue;
                }
                let first = rng.pick(&firsts).clone();
                source.link(&first, &path);
                let known = versions.get(&first).cloned();
                versions.extend(known.map(|known| (path[..].into(), known)));
                continue;
            }
            _ => {
                let large = large_left > 0;
                large_left = large_left.saturating_sub(1);
                let bytes = size(rng, large);
                let bytes = if large || bytes <= left { bytes } else { bytes % 1000 };
                left = left.saturating_sub(bytes);
                let data = content(rng, bytes);
                versions.entry(path[..].into()).or_default().insert(*blake3::hash(&data).as_bytes());
                if rng.permille(150) && path.iter().all(|&byte| byte != b'/') {
                    let other = if rng.permille(700) { (mtime.0 - 1, 5) } else { mtime };
                    let data = if other == mtime { data.clone() } else { earlier(rng, &data) };
                    sink.plant(&path, Kind::File(Content::of(data)), 0o640, other);
                }
                source.plant(&path, Kind::File(Content::of(data)), mode, mtime);
            }
        }
    }
    let all: Vec<Box<[u8]>> = source.tree().map(|(path, _)| path.clone()).collect();
    for path in all.iter().filter(|path| !path.is_empty()) {
        if rng.permille(200) {
            source.adorn(path, carried(rng));
        }
    }
    for number in 0..rng.below(3) {
        let path = format!("too much {number}").into_bytes();
        let data = content(rng, 100);
        versions.entry(path[..].into()).or_default().insert(*blake3::hash(&data).as_bytes());
        sink.plant(&path, Kind::File(Content::of(data)), 0o640, (1_500_000_000, 0));
    }
    versions
}

fn has_names(node: &crate::disk::Node) -> bool {
    matches!(node.kind, Kind::File(_) | Kind::Node(..))
}

fn node(rng: &mut Rng) -> Kind {
    match rng.below(4) {
        0 => Kind::Node(NodeKind::Fifo, 0, 0),
        1 => Kind::Node(NodeKind::Socket, 0, 0),
        2 => Kind::Node(NodeKind::Char, 1, rng.below(9) as u32),
        _ => Kind::Node(NodeKind::Block, 8, rng.below(9) as u32),
    }
}

fn carried(rng: &mut Rng) -> Carried {
    let note = rng.permille(500).then(|| {
        let mut note = vec![0; rng.below(300) as usize];
        rng.fill(&mut note);
        note.into_boxed_slice()
    });
    Carried { uid: rng.below(3) as u32 * 1000, gid: rng.below(3) as u32 * 100, note }
}

/// What a file may have been before: the same, longer, shorter, changed here and there, or another altogether.
fn earlier(rng: &mut Rng, data: &[u8]) -> Vec<u8> {
    let mut data = data.to_vec();
    match rng.below(5) {
        0 => {}
        1 => data.truncate(rng.below(data.len() as u64 + 1) as usize),
        2 => data.resize(data.len() + rng.below(2 * MIB) as usize, 7),
        3 => return content(rng, 1000),
        _ => {
            for _ in 0..rng.between(1, 3).min(data.len() as u64) {
                let at = rng.below(data.len() as u64) as usize;
                data[at] ^= 1;
            }
        }
    }
    data
}

/// Another program writes to a source file, makes it shorter, or takes it away: all names that it had.
pub(crate) fn change(rng: &mut Rng, disk: &mut Disk, versions: &mut Versions) -> Vec<Box<[u8]>> {
    let files: Vec<Box<[u8]>> =
        disk.tree().filter(|(_, node)| matches!(node.kind, Kind::File(_))).map(|(path, _)| path.clone()).collect();
    if files.is_empty() {
        return Vec::new();
    }
    // The longest is the one that is being read most of the time.
    let longest = files.iter().max_by_key(|path| disk.get(path).map_or(0, len_of)).expect("not empty").clone();
    let path = if rng.permille(500) { longest } else { rng.pick(&files).clone() };
    disk.clock.advance(1);
    let now = disk.clock.now();
    let mtime = (1_700_000_000 + (now / 1_000_000_000) as i64, (now % 1_000_000_000) as u32);
    let node = disk.get(&path).expect("listed").clone();
    let names = disk.names_of(&path);
    let Kind::File(content) = node.kind else { unreachable!("filtered") };
    let mut data = content.data;
    match rng.below(4) {
        0 => {
            disk.uproot(&path);
            return names;
        }
        1 => data.truncate(rng.below(data.len() as u64 + 1) as usize),
        2 => data.extend_from_slice(b"more"),
        _ if data.is_empty() => data.push(1),
        _ => {
            // At both ends, so that a mixture of old and new is neither.
            let last = data.len() - 1;
            data[0] ^= 1;
            data[last] ^= 2;
        }
    }
    for name in &names {
        versions.entry(name.clone()).or_default().insert(*blake3::hash(&data).as_bytes());
    }
    disk.plant(&path, Kind::File(Content::of(data)), node.mode, mtime);
    names
}

fn len_of(node: &crate::disk::Node) -> usize {
    match &node.kind {
        Kind::File(content) => content.data.len(),
        _ => 0,
    }
}

fn run_plan(rng: &mut Rng) -> RunPlan {
    let ms = 1_000_000;
    let plan = RunPlan {
        sender_workers: rng.between(1, 3) as usize,
        receiver_workers: rng.between(1, 3) as usize,
        bufs: rng.between(4, 8) as usize,
        rails: rng.between(1, 4) as usize,
        depth: rng.between(1, 6) as usize,
        mail: *rng.pick(&[1, 4, 64, 1024]),
        pull: rng.permille(500),
        latency_ns: *rng.pick(&[10_000, ms, 8 * ms]),
        ns_per_kib: *rng.pick(&[1_000, 20_000, 200_000]),
        room: *rng.pick(&[100 << 10, 512 << 10, 4 << 20]),
        short: *rng.pick(&[0, 0, 300]),
        disk_ns: *rng.pick(&[0, ms, 20 * ms]),
        at_once: rng.permille(300),
        in_place: false,
        shared: rng.permille(250),
        late: false,
        dry: false,
        debt: *rng.pick(&[256 * MIB, 256 * MIB, 3 * MIB, 100 * KIB, 0]),
        commit_ns: *rng.pick(&[0, 5 * ms, 300 * ms]),
        rate: if rng.permille(50) { 50 << 20 } else { 0 },
        datagrams: *rng.pick(&[0, 0, 500, 1000, 1000]),
        pairs: false,
        polled: false,
        weather: weather(rng),
        packet_bytes: (*rng.pick(&[1200, 1452]), *rng.pick(&[1452, 8952, 65_000])),
        units: *rng.pick(&[(1, 64), (2, 2), (4, 4), (4, 64)]),
        silence_ns: 3_000_000_000,
        trouble: Trouble::default(),
    };
    // No draw of its own: what former seeds tell stays what it was.
    RunPlan { in_place: plan.at_once && plan.depth.is_multiple_of(2), ..plan }
}

fn weather(rng: &mut Rng) -> Weather {
    let ms = 1_000_000;
    Weather {
        loss: *rng.pick(&[0, 0, 1, 20, 100, 300]),
        twice: *rng.pick(&[0, 0, 20]),
        flip: *rng.pick(&[0, 0, 5]),
        flips_left: u64::MAX,
        marked: *rng.pick(&[0, 0, 0, 10]),
        late: *rng.pick(&[0, 0, 20, 300]),
        late_ns: *rng.pick(&[ms / 10, 3 * ms, 30 * ms]),
        full: *rng.pick(&[0, 0, 10]),
        mtu: *rng.pick(&[0, 1452, 9000]),
        queue_ns: *rng.pick(&[5 * ms, 50 * ms, 2000 * ms]),
    }
}

fn trouble(rng: &mut Rng, sink_calls: u64) -> Trouble {
    let mut it = Trouble::default();
    let ms = 1_000_000;
    let when = |rng: &mut Rng| {
        let most = *rng.pick(&[20, 300, 4000]);
        rng.below(most * ms)
    };
    for _ in 0..rng.below(4) {
        if rng.permille(400) {
            it.cuts.push((when(rng), rng.permille(500)));
        }
    }
    match rng.below(10) {
        0..=1 => it.crash = Some((Victim::Receiver, when(rng))),
        2 => it.crash = Some((Victim::Sender, when(rng))),
        3..=4 => it.sink_dies_at_call = Some(rng.below(sink_calls)),
        _ => {}
    }
    it.power_cut = rng.permille(500);
    if rng.permille(150) {
        it.flip_at = Some(rng.below(4 * MIB));
    }
    if rng.permille(150) {
        it.harm = Some((*rng.pick(&[Harm::SourceBuf, Harm::SinkBuf]), rng.below(12)));
    }
    while rng.permille(200) {
        it.changes.push(when(rng));
    }
    if rng.permille(150) {
        // While the longest file is read.
        it.changes.extend((0..3).map(|_| rng.below(1500 * ms)));
    }
    it
}

impl Scenario {
    pub(crate) fn new(rng: &mut Rng) -> Scenario {
        let digest = if rng.permille(850) { DigestKind::Blake3 } else { DigestKind::Crc64 };
        let mut covers = vec![Cover::Sealed, Cover::Sealed, Cover::Tagged];
        if digest == DigestKind::Blake3 {
            covers.push(Cover::Hashed);
        }
        let durability =
            *rng.pick(&[Durability::Written, Durability::Flushed, Durability::Published, Durability::Published]);
        let terms = Terms {
            chunk_bytes: CHUNK_BYTES,
            digest,
            cipher: *rng.pick(&[Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305]),
            cover: *rng.pick(&covers),
            publish_small: durability < Durability::Flushed,
        };
        let troubled = rng.below(4) as usize;
        let mut runs: Vec<RunPlan> = (0..=troubled).map(|_| run_plan(rng)).collect();
        for run in &mut runs[..troubled] {
            run.trouble = trouble(rng, 300);
            run.dry = rng.permille(60);
            // With crc64 there is one pass, so nothing looks after it.
            run.trouble.harm = run.trouble.harm.filter(|it| it.0 == Harm::SourceBuf || digest == DigestKind::Blake3);
        }
        for run in &mut runs {
            // Where no tag covers the bytes, each flip costs a chunk one of its few goes.
            if terms.cover == Cover::Hashed {
                run.weather.flips_left = 3;
            }
        }
        let compare = *rng.pick(&[Compare::Never, Compare::Changed, Compare::Always]);
        Scenario { terms, durability, compare, prune: rng.permille(300), runs }
    }

    /// Faults of disks need to know the names.
    pub(crate) fn add_disk_faults(&mut self, rng: &mut Rng, versions: &Versions) {
        type Path = Box<[u8]>;
        let names: Vec<&Path> = versions.keys().collect();
        let count = self.runs.len() - 1;
        // Of a stream of its own: the stories of before stay what they were.
        let mut own = Rng::new(
            names
                .iter()
                .flat_map(|name| name.iter())
                .fold(7_u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte))),
        );
        for run in &mut self.runs {
            if own.permille(250) {
                run.trouble.refuses = Some((own.below(100) * 1_000_000, *own.pick(&[22, 95])));
            }
        }
        for run in &mut self.runs[..count] {
            if rng.permille(250) {
                let mut faults = faults(rng);
                if rng.permille(300) && !names.is_empty() {
                    faults.denied.extend((0..2).map(|_| (*rng.pick(&names)).clone()));
                }
                run.trouble.source_faults = Some(faults);
            }
            if rng.permille(250) {
                let mut faults = faults(rng);
                if rng.permille(300) {
                    faults.room = Some(rng.below(6 * MIB));
                    faults.quota = own.permille(500);
                }
                if rng.permille(300) && !names.is_empty() {
                    let path = *rng.pick(&names[..]);
                    // Up to the dot: parts have endings of their jobs.
                    let name = engine::tree::beside(path, "");
                    faults.denied.insert(name.into());
                }
                run.trouble.sink_faults = Some(faults);
            }
        }
    }
}

fn faults(rng: &mut Rng) -> crate::disk::Faults {
    let from_ns = rng.below(50) * 1_000_000;
    crate::disk::Faults {
        from_ns,
        until_ns: from_ns + rng.below(3000) * 1_000_000,
        eio: *rng.pick(&[0, 0, 20]),
        short: *rng.pick(&[0, 300, 900]),
        ..crate::disk::Faults::default()
    }
}
