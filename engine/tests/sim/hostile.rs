//! Peers that know every key and keep no rule.
//!
//! For: no frame and no chunk, however false, may make an end panic (a daemon has other clients), and a breach is named.
//! In and out: a seed in; a panic out, if there is one.
//! Invariants: the hostile side speaks the codec and the seal correctly, and nothing else.
//! Absent on purpose: bytes that are no frames (fuzz/).

use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};

use engine::job::{Cmd, Cover, Event, EventQueue, InPlace, JobPart, Path, RailEnd, RailKey, Role, Terms};
use engine::machine::compare::{compare, look};
use engine::machine::recv::{Carried, RecvEnd};
use engine::machine::send::SendEnd;
use engine::machine::{Outbox, Stop};
use engine::platform::SinkTree;
use engine::seal::frame::Sealer;
use engine::seal::hash::hash_as;
use engine::seal::packet::{Packer, Run, SMALL_HEAD_BYTES};
use engine::tree::commit;
use engine::worker::Worker;
use engine::worker::stages::{Counters, Stopwatch};
use proto::flow::FlowConfig;
use proto::manifest::{Entry, EntryKind, Meta};
use proto::negotiate::Cipher;
use proto::packet::{self, Control};
use proto::rate::{ControllerKind, Policy, RateConfig};
use proto::wire::chunk::{ChunkKind, Header, PackLine};
use proto::wire::control::{ChunkRange, Compare, Corrupt, DigestKind, Durability, EntryFault, FaultKind, Frame, Want};
use sys::mem::Pool;

use crate::disk::{Clock, Content, Disk, Kind};
use crate::job::plan_of;
use crate::net::Net;
use crate::platform::{Shared, Sim, SimSocket, World, lock};
use crate::rng::Rng;
use crate::scenario::CHUNK_BYTES;
use crate::trees::{SharedDisk, SimSink, SimSource, VOLUME, scan};

const JOB: u32 = 3;
const KIB: u64 = 1 << 10;

fn terms() -> Terms {
    Terms {
        chunk_bytes: CHUNK_BYTES,
        digest: DigestKind::Blake3,
        cipher: Cipher::Aes128Gcm,
        cover: Cover::Sealed,
        publish_small: true,
    }
}

fn key(rail: u16) -> RailKey {
    RailKey { secret: [rail as u8; 32], place: [1; 18] }
}

/// The honest side's worker, and the world around it.
struct Honest {
    world: Shared,
    disk: SharedDisk,
    worker: Worker<Sim>,
    mail: Sender<Cmd<Sim>>,
    events: Receiver<Event>,
}

impl Honest {
    fn new(rng: &mut Rng, role: impl FnOnce(&SharedDisk) -> Role<Sim>) -> Self {
        let clock = Clock::default();
        clock.advance(1_000_000_000);
        let disk = Arc::new(Mutex::new(Disk::new(clock.clone(), rng.fork())));
        let mut net = Net::new(clock.clone(), rng.fork());
        (net.latency_ns, net.ns_per_kib, net.room) = (0, 0, 8 << 20);
        let at_once = rng.permille(500);
        let world = World { clock, net, activity: 0, harm: None, harmed: None, disk_ns: 0, at_once, polled: false };
        let world = Arc::new(Mutex::new(world));
        let (platform, _) = Sim::new(world.clone(), rng.fork(), 6, CHUNK_BYTES as usize);
        let (mail, mailbox) = channel();
        let (post, events) = sync_channel(1024);
        let part = JobPart {
            role: role(&disk),
            terms: terms(),
            events: EventQueue::new(post, None),
            bound: Arc::default(),
            in_place: InPlace::Never,
        };
        mail.send(Cmd::Open { job: JOB, part }).expect("just made");
        let worker = Worker::new(platform, mailbox, Arc::new(Counters::default()));
        Honest { world, disk, worker, mail, events }
    }

    /// A path whose other side is the hostile one's.
    fn rail(&self, rail: u16) -> usize {
        let wire = lock(&self.world).net.open();
        let socket = SimSocket { wire, side: 0 };
        self.mail.send(Cmd::RailUp { job: JOB, rail, socket, key: key(rail) }).expect("it lives");
        wire
    }
}

/// Small numbers, and now and then a huge one.
fn some(rng: &mut Rng) -> u64 {
    if rng.permille(40) { *rng.pick(&[u64::MAX, u64::MAX - 1, 1 << 40]) } else { rng.below(12) }
}

fn path(rng: &mut Rng) -> Box<[u8]> {
    let names = ["a", "b", "d", "d/a", "d/e", "d/e/a", "x/y", "c", "", ".longhaul-1.part"];
    rng.pick(&names).as_bytes().into()
}

fn entry(rng: &mut Rng, id: u64) -> Entry {
    let kind = match rng.below(9) {
        0 => EntryKind::Folder,
        1 => EntryKind::FolderEnd,
        2 => EntryKind::Link { target: b"a"[..].into() },
        _ => EntryKind::File {
            bytes: *rng.pick(&[0, 1, 700, 128 * KIB, 128 * KIB + 1, 1024 * KIB, 2500 * KIB, 17 * 1024 * KIB, 1 << 50]),
        },
    };
    Entry { id, path: path(rng), kind, mode: 0o644, mtime_s: some(rng) as i64, mtime_ns: 5, meta: Meta::default() }
}

fn ranges(rng: &mut Rng) -> Vec<ChunkRange> {
    (0..rng.below(3))
        .map(|_| {
            let first = some(rng).min(1 << 41);
            ChunkRange { first, end: first + rng.between(1, 3) }
        })
        .collect()
}

fn faults(rng: &mut Rng) -> Frame {
    let kind = *rng.pick(&[FaultKind::Full, FaultKind::Torn, FaultKind::Io]);
    Frame::Faults(vec![EntryFault { entry: some(rng), kind, errno: 5, step: "lie".into() }])
}

/// What a hostile sender says.
fn sender_frame(rng: &mut Rng, next_entry: &mut u64) -> Frame {
    match rng.below(60) {
        0..=29 => {
            let entries = (0..rng.between(1, 4)).map(|_| {
                let honest = !rng.permille(30);
                let id = if honest { *next_entry } else { some(rng) };
                *next_entry += u64::from(honest);
                entry(rng, id)
            });
            Frame::Entries(entries.collect())
        }
        30 => Frame::ScanEnd { entries: *next_entry, files: some(rng), bytes: some(rng), faults: 0 },
        31..=40 => Frame::FileEnd { entry: rng.below(*next_entry + 1), digest: rng.permille(500).then_some([7; 32]) },
        41..=45 => Frame::RailDown { rail: rng.below(4) as u16 },
        46..=53 => faults(rng),
        54..=56 => Frame::Differ { entry: rng.below(*next_entry + 1), ranges: ranges(rng) },
        57..=58 => Frame::Holes { entry: rng.below(*next_entry + 1), ranges: ranges(rng) },
        _ => Frame::Committed(vec![(some(rng), [0; 32])]),
    }
}

/// One sealed frame of a rail with a header that may say anything.
fn chunk(rng: &mut Rng, sealer: &mut Sealer, pool: &mut Pool) -> Vec<u8> {
    let mut buf = pool.take().expect("a buf");
    let pack = rng.permille(400);
    let mut bytes = *rng.pick(&[1, 700, 700, 1, 128 * KIB, 128 * KIB + 1, 1024 * KIB, 452 * KIB]) as usize;
    let mut count = 0;
    if pack {
        // An index that may even be true.
        count = rng.between(1, 3) as usize;
        let mut end = count * 48;
        for index in 0..count {
            let content = *rng.pick(&[0_usize, 1, 700]);
            let whole = &buf.payload()[end..end + content];
            let digest = if rng.permille(800) { *blake3::hash(whole).as_bytes() } else { [1; 32] };
            let line = PackLine { entry: some(rng), bytes: content as u32, digest };
            buf.payload_mut()[index * 48..(index + 1) * 48].copy_from_slice(&line.encode());
            end += content;
        }
        bytes = if rng.permille(900) { end } else { bytes.max(48 * count) };
    }
    let offset = rng.below(4) * u64::from(CHUNK_BYTES) + u64::from(rng.permille(50));
    let mut header = Header {
        kind: if pack { ChunkKind::Pack } else { ChunkKind::Range },
        payload_bytes: bytes as u32,
        chunk: some(rng),
        entry: if pack { count as u64 } else { some(rng).min(1 << 40) },
        offset: if pack { 0 } else { offset },
        crc: 0,
        digest: [0; 32],
    };
    let mut how = hash_as(&header, *rng.pick(&[1, 1 << 30]), CHUNK_BYTES);
    how.offset -= how.offset % u64::from(CHUNK_BYTES); // the hash itself takes no other
    let mut watch = Stopwatch::new(Arc::new(Counters::default()));
    let span = sealer.seal(&mut header, how, &mut buf, &mut watch, |_| {});
    let frame = buf.whole()[span.at..span.at + span.len].to_vec();
    pool.give(buf);
    frame
}

/// A hostile sender against an honest receiver.
pub(crate) fn hostile_sender(seed: u64) -> Option<Stop> {
    let mut rng = Rng::new(seed);
    let mut honest = Honest::new(&mut rng, |disk| Role::Recv(Arc::new(SimSink(disk.clone(), 1))));
    let sink = Arc::new(SimSink(honest.disk.clone(), 1));
    let durability = *rng.pick(&[Durability::Written, Durability::Published]);
    let plan = plan_of(&terms(), 1, (1, 1));
    let mut end = RecvEnd::<Sim>::new(JOB, terms(), &plan, durability, sink.clone(), 1, true, [0; 8], Carried::new());
    end.compare_by(*rng.pick(&[Compare::Never, Compare::Changed, Compare::Always]));
    end.prune(rng.permille(500).then_some(3));
    let mut out = Outbox::default();
    let mut pool = Pool::new(1, CHUNK_BYTES as usize).expect("memory");
    let (mut sealers, mut next_entry) = (Vec::new(), 0);
    let mut told = Ok(());
    for step in 0..100_u64 {
        let now = step * 40_000_000;
        if step % 50 == 0 {
            let rail = sealers.len() as u16;
            if end.rail_up(rail) {
                sealers.push((honest.rail(rail), Sealer::new(terms(), key(rail)), Vec::<u8>::new()));
            }
        }
        if rng.permille(500) {
            let frame = sender_frame(&mut rng, &mut next_entry);
            told = told.and_then(|()| end.on_frame(frame, &mut out));
        }
        if let Some((wire, sealer, backlog)) = sealers.last_mut() {
            if backlog.is_empty() {
                backlog.extend(chunk(&mut rng, sealer, &mut pool));
            }
            if let Some(Ok(moved)) = lock(&honest.world).net.send(*wire, 1, backlog) {
                backlog.drain(..moved);
            }
        }
        honest.worker.turn(0);
        for event in honest.events.try_iter() {
            told = told.and_then(|()| end.on_event(now, event, &mut out));
        }
        end.pump(now, &mut out);
        out.cmds.drain(..).for_each(|(_, cmd)| honest.mail.send(cmd).expect("it lives"));
        for work in std::mem::take(&mut out.looks) {
            look(&*sink, &sink.clone().capabilities(), &terms(), work, &mut |seen| {
                told = told.clone().and_then(|()| end.on_seen(seen, &mut out));
                true
            });
        }
        for task in std::mem::take(&mut out.tasks) {
            let settled = commit::run(&*sink, task);
            told = told.and_then(|()| end.on_settled(settled, &mut out));
        }
        out.frames.clear();
        if told.is_err() {
            return told.err();
        }
    }
    None
}

/// What a hostile receiver says.
fn receiver_frame(rng: &mut Rng) -> Frame {
    match rng.below(60) {
        0..=29 => {
            let wants = (0..rng.between(1, 3)).map(|_| {
                let want = match rng.below(7) {
                    6 => Want::MissingSoFar { ranges: ranges(rng) },
                    4 | 5 => Want::Compare { chunks: rng.between(1, 4) },
                    0 => Want::Missing { ranges: ranges(rng) },
                    1 => Want::Keep { digest: None },
                    _ => Want::All,
                };
                (some(rng), want)
            });
            Frame::Wants(wants.collect())
        }
        30..=33 => Frame::Acks(ranges(rng)),
        34..=39 => Frame::Have { entry: some(rng), first: rng.below(3), digests: vec![[7; 32]; rng.below(4) as usize] },
        40..=44 => Frame::Nack { chunk: some(rng), corrupt: *rng.pick(&[Corrupt::Wire, Corrupt::SinkMemory]) },
        45..=48 => Frame::Committed(vec![(some(rng), [0; 32])]),
        49..=53 => faults(rng),
        54..=58 => Frame::RailClosed { rail: rng.below(3) as u16 },
        _ => Frame::FileEnd { entry: 0, digest: None },
    }
}

/// A hostile receiver against an honest sender.
pub(crate) fn hostile_receiver(seed: u64) -> Option<Stop> {
    let mut rng = Rng::new(seed);
    let mut honest = Honest::new(&mut rng, |disk| Role::Send(Arc::new(SimSource(disk.clone(), VOLUME))));
    {
        let mut disk = honest.disk.lock().expect("one thread");
        for (number, bytes) in [0, 5, 700, 128 * KIB + 1, 2500 * KIB].into_iter().enumerate() {
            let kind = Kind::File(Content::of(vec![number as u8; bytes as usize]));
            disk.plant(format!("f{number}").as_bytes(), kind, 0o644, (1, 1));
        }
        disk.plant(b"d", Kind::Folder, 0o755, (1, 1));
    }
    let source = Arc::new(SimSource(honest.disk.clone(), VOLUME));
    let plan = plan_of(&terms(), 1, (1, 1));
    let mut end = SendEnd::<Sim>::new(JOB, terms(), &plan, Durability::Written, source.clone(), 1, 4);
    let files = source;
    let mut out = Outbox::default();
    end.scan(scan(&honest.disk), &mut out);
    end.scan_ended(&mut out);
    let mut told = Ok(());
    for step in 0..150_u64 {
        if step % 40 == 0 {
            let rail = (step / 40) as u16;
            if end.rail_up(rail) {
                let wire = honest.rail(rail);
                if rng.permille(200) {
                    // Data against its direction.
                    let _ = lock(&honest.world).net.send(wire, 1, &[1; 200]);
                }
            }
        }
        let frame = receiver_frame(&mut rng);
        told = told.and_then(|()| end.on_frame(frame, &mut out));
        honest.worker.turn(0);
        for event in honest.events.try_iter() {
            told = told.and_then(|()| end.on_event(event, &mut out));
        }
        end.pump(&mut out);
        out.cmds.drain(..).for_each(|(_, cmd)| honest.mail.send(cmd).expect("it lives"));
        for work in std::mem::take(&mut out.compares) {
            end.on_compared(compare(&*files, &terms(), &work), &mut out);
        }
        out.frames.clear();
        if told.is_err() {
            return told.err();
        }
    }
    None
}

/// A sender that tells every other chunk of a huge file as a hole and sends nothing: what the receiver said of it, and how many it took.
pub(crate) fn teller_of_holes() -> (Option<Stop>, u64) {
    const BYTES: u64 = 1 << 40;
    let clock = Clock::default();
    let sink = Arc::new(SimSink(Arc::new(Mutex::new(Disk::new(clock, Rng::new(1)))), 1));
    let plan = plan_of(&terms(), 1, (1, 1));
    let mut end = RecvEnd::<Sim>::new(JOB, terms(), &plan, Durability::Written, sink, 1, true, [0; 8], Carried::new());
    let mut out = Outbox::default();
    let file = Entry {
        id: 0,
        path: b"huge"[..].into(),
        kind: EntryKind::File { bytes: BYTES },
        mode: 0o644,
        mtime_s: 1,
        mtime_ns: 0,
        meta: Meta { sparse: true, ..Meta::default() },
    };
    end.on_frame(Frame::Entries(vec![file]), &mut out).expect("an honest entry");
    let chunks = BYTES / u64::from(CHUNK_BYTES) - 1;
    let every_other: Vec<ChunkRange> =
        (0..chunks / 2).map(|it| ChunkRange { first: 2 * it, end: 2 * it + 1 }).collect();
    let mut taken = 0;
    for ranges in every_other.chunks(4096) {
        let told = end.on_frame(Frame::Holes { entry: 0, ranges: ranges.to_vec() }, &mut out);
        if let Err(stop) = told {
            return (Some(stop), taken);
        }
        taken += ranges.len() as u64;
    }
    (None, taken)
}

/// A receiver that says it committed a small file with this digest, or with the true one: what the sender says of it.
pub(crate) fn committed_as(lie: Option<[u8; 32]>, large: bool) -> Result<u64, Stop> {
    let mut honest = Honest::new(&mut Rng::new(4), |disk| Role::Send(Arc::new(SimSource(disk.clone(), VOLUME))));
    let bytes = vec![7; if large { 5 * CHUNK_BYTES as usize / 2 } else { 700 }];
    let digest = *blake3::hash(&bytes).as_bytes();
    honest.disk.lock().expect("one thread").plant(b"f", Kind::File(Content::of(bytes)), 0o644, (1, 1));
    let source = Arc::new(SimSource(honest.disk.clone(), VOLUME));
    let plan = plan_of(&terms(), 1, (1, 1));
    let mut end = SendEnd::<Sim>::new(JOB, terms(), &plan, Durability::Written, source, 1, 4);
    let mut out = Outbox::default();
    end.scan(scan(&honest.disk), &mut out);
    end.scan_ended(&mut out);
    assert!(end.rail_up(0));
    let wire = honest.rail(0);
    // The folder above it is the first entry.
    end.on_frame(Frame::Wants(vec![(1, Want::All)]), &mut out)?;
    let mut into = vec![0; 1 << 20];
    for _ in 0..200 {
        honest.worker.turn(0);
        let _ = lock(&honest.world).net.recv(wire, 1, &mut into);
        lock(&honest.world).clock.advance(1_000_000);
        for event in honest.events.try_iter() {
            end.on_event(event, &mut out)?;
        }
        end.pump(&mut out);
        out.cmds.drain(..).for_each(|(_, cmd)| honest.mail.send(cmd).expect("it lives"));
    }
    let chunks = if large { 3 } else { 1 };
    end.on_frame(Frame::Acks(vec![ChunkRange { first: 0, end: chunks }]), &mut out)?;
    end.pump(&mut out);
    end.on_frame(Frame::Committed(vec![(1, lie.unwrap_or(digest))]), &mut out)?;
    Ok(end.record.tally.files_done)
}

/// A datagram rail's terms, with room for so many units at first.
fn packets_path(units_open: u32) -> Path {
    let rate =
        RateConfig { controller: ControllerKind::Delay, policy: Policy::Fair, target: 0, min: 0, packet_bytes: 1500 };
    let flow =
        FlowConfig { packet_bytes: 1452, packet_bytes_max: 1452, unit_bytes_max: 0, rate, units_open, units_most: 4 };
    Path { tag: 0xabc, flow, silence_ns: 3_000_000_000, meter: Arc::default(), seen: None, job_bytes: 0 }
}

/// A sender that has a file and no room for a unit of it, and hears nothing for a minute: how the rail ended, and when.
pub(crate) fn without_room() -> (Option<RailEnd>, u64) {
    let mut honest = Honest::new(&mut Rng::new(4), |disk| Role::Send(Arc::new(SimSource(disk.clone(), VOLUME))));
    let file = Kind::File(Content::of(vec![7; 5 * CHUNK_BYTES as usize / 2]));
    honest.disk.lock().expect("one thread").plant(b"f", file, 0o644, (1, 1));
    let source = Arc::new(SimSource(honest.disk.clone(), VOLUME));
    let plan = plan_of(&terms(), 1, (1, 1));
    let mut end = SendEnd::<Sim>::new(JOB, terms(), &plan, Durability::Written, source, 1, 4);
    let mut out = Outbox::default();
    end.scan(scan(&honest.disk), &mut out);
    end.scan_ended(&mut out);
    assert!(end.rail_up(0));
    let socket = SimSocket { wire: lock(&honest.world).net.open(), side: 0 };
    let up = Cmd::PacketsUp { job: JOB, rail: 0, socket, key: key(0), path: packets_path(0) };
    honest.mail.send(up).expect("it lives");
    // The folder above it is the first entry.
    end.on_frame(Frame::Wants(vec![(1, Want::All)]), &mut out).expect("it was announced");
    for step in 0..600_u64 {
        end.pump(&mut out);
        out.cmds.drain(..).for_each(|(_, cmd)| honest.mail.send(cmd).expect("it lives"));
        honest.worker.turn(0);
        lock(&honest.world).clock.advance(100_000_000);
        for event in honest.events.try_iter() {
            if let Event::RailDead { end, .. } = event {
                return (Some(end), step * 100_000_000);
            }
            end.on_event(event, &mut out).expect("an honest worker");
        }
    }
    (None, 60_000_000_000)
}

/// One true packet of a unit, then nothing but its replays and those of a true word, for a minute: how the rail ended, and when.
pub(crate) fn replayed() -> (Option<RailEnd>, u64) {
    let mut honest = Honest::new(&mut Rng::new(4), |disk| Role::Recv(Arc::new(SimSink(disk.clone(), 1))));
    let wire = lock(&honest.world).net.open();
    let path = packets_path(4);
    let socket = SimSocket { wire, side: 0 };
    honest.mail.send(Cmd::PacketsUp { job: JOB, rail: 0, socket, key: key(0), path }).expect("it lives");
    let mut packer = Packer::new(key(0).secret, 0xabc, Cover::Sealed, terms().cipher);
    let mut sealed = vec![0; 1100];
    let run = Run { first: 0, unit: 0, offset: 1000, payload: 1000 };
    let end = packer.seal(run, &[5; 1000], &mut sealed);
    let mut word = vec![0; SMALL_HEAD_BYTES];
    Control::Tell { newest: 1, rtt_us: 1000 }.encode(&mut word);
    packer.seal_small(packet::Kind::Control, 1, &mut word);
    for step in 0..600_u64 {
        for packet in [&sealed[..end], &word] {
            let _ = lock(&honest.world).net.send_datagram(wire, 1, [packet, &[]]);
        }
        honest.worker.turn(0);
        lock(&honest.world).clock.advance(100_000_000);
        for event in honest.events.try_iter() {
            if let Event::RailDead { end, .. } = event {
                return (Some(end), step * 100_000_000);
            }
        }
    }
    (None, 60_000_000_000)
}
