//! The test vectors of `docs/vectors/`: fixed values and the bytes protocol 1 has for them.
//!
//! For: another implementation can check itself; this one cannot change a byte unnoticed.
//! In and out: a named value, its bytes, and the file with the same bytes in hex.
//! Invariants: one file per frame kind and per layout; `LONGHAUL_VECTORS=write` writes them anew, which a reviewer then sees.
//! Absent on purpose: sealed bytes (`engine/src/seal/packet/tests.rs` has the vectors of whole packets).

use std::path::{Path, PathBuf};

use proto::books::{Books, STAGES};
use proto::error::{Breach, Refusal};
use proto::journal::{self, JOURNAL_VERSION, JournalHeader, Replay};
use proto::layout::{Layout, Stripe};
use proto::manifest::{Aspects, Entry, EntryKind, Meta, NodeKind, Xattr};
use proto::negotiate::{
    Cipher, Driver, Interface, NicCount, Offer, Pace, Plan, RdmaKind, RdmaOffer, RequestedSettings, Resources,
    StorageLook,
};
use proto::packet::{Control, Feedback, HelloFlight, HelloPart, Runs, SessionPart};
use proto::rate::{ControllerKind, Policy};
use proto::receipt::{self, Alike, Former, Head, Signer};
use proto::storage::{IoMode, IoModes};
use proto::wire::chunk::*;
use proto::wire::control::*;
use proto::wire::request::{CloneReads, RelayPath, RelayRequest, Transport};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/vectors")
}

fn job() -> [u8; 16] {
    std::array::from_fn(|index| index as u8)
}

fn offer() -> Offer {
    Offer {
        boot_id: "0f1e2d3c-0000-4000-8000-000000000001".into(),
        cores: 8,
        load_percent: 150,
        memory_bytes: 64 << 20,
        interfaces: vec![Interface {
            name: "eth0".into(),
            address: "192.0.2.1".into(),
            mtu: 9000,
            speed_mbit: 100_000,
        }],
        drivers: vec![Driver::Uring, Driver::Plain],
        ciphers: vec![Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305],
        digests: vec![DigestKind::Blake3, DigestKind::Crc64],
        integrity_only: false,
        bare: false,
        streams: 0,
        streams_max: 64,
        chunk_bytes: 0,
        rate_bps: 10_000_000_000,
        free_bytes: 1 << 40,
        disk_bps: 1_600_000_000,
        bufs_bytes: 16 << 20,
        look: true,
        storage: StorageLook { bps: 1_200_000_000, file_ns: 150_000 },
        datagrams: 2,
        rdma: RdmaOffer { device: true, emulated: false },
        pace: Pace { controller: ControllerKind::Delay, policy: Policy::High, min_bps: 1_000_000 },
    }
}

fn plan() -> Plan {
    Plan {
        streams: 4,
        streams_max: 16,
        chunk_bytes: 1 << 20,
        cipher: Cipher::Aes128Gcm,
        integrity_only: false,
        bare: false,
        digest: DigestKind::Blake3,
        workers: (8, 4),
        memory: (64 << 20, 32 << 20),
        rate_bps: 10_000_000_000,
        datagrams: 1,
        rdma: Some(RdmaKind::Emulated),
        pace: Pace { controller: ControllerKind::Bbr, policy: Policy::Fair, min_bps: 0 },
    }
}

fn entries() -> Vec<Entry> {
    let entry = |id, path: &[u8], kind, mode| Entry {
        id,
        path: path.into(),
        kind,
        mode,
        mtime_s: 1_700_000_000,
        mtime_ns: 123_456_789,
        meta: Meta::default(),
    };
    let full = Meta {
        uid: Some(1000),
        gid: Some(100),
        lost: Aspects::FLAGS,
        names: 2,
        sparse: true,
        volume: 0,
        striped: false,
        xattrs: Box::new([Xattr { name: (*b"user.note").into(), value: (*b"hi").into() }]),
    };
    vec![
        entry(41, b"photos", EntryKind::Folder, 0o755),
        entry(42, b"photos/a b\xFF.jpg", EntryKind::File { bytes: 5 }, 0o644),
        entry(43, b"photos/latest", EntryKind::Link { target: (*b"../photos/a").into() }, 0o777),
        entry(44, b"photos", EntryKind::FolderEnd, 0o755),
        Entry { meta: full, ..entry(45, b"twice", EntryKind::File { bytes: 1 << 20 }, 0o4711) },
        entry(46, b"again", EntryKind::Name { first: (*b"twice").into() }, 0o4711),
        entry(47, b"pipe", EntryKind::Node { kind: NodeKind::Fifo, major: 0, minor: 0 }, 0o600),
        entry(48, b"socket", EntryKind::Node { kind: NodeKind::Socket, major: 0, minor: 0 }, 0o600),
        entry(49, b"null", EntryKind::Node { kind: NodeKind::Char, major: 1, minor: 3 }, 0o666),
        entry(50, b"disk", EntryKind::Node { kind: NodeKind::Block, major: 8, minor: 1 }, 0o660),
    ]
}

fn wants() -> Vec<(u64, Want)> {
    let ranges = vec![ChunkRange { first: 0, end: 2 }, ChunkRange { first: 7, end: 9 }];
    vec![
        (42, Want::Keep { digest: None }),
        (45, Want::Keep { digest: Some([0xD1; 32]) }),
        (46, Want::All),
        (47, Want::Missing { ranges: ranges.clone() }),
        (48, Want::Compare { chunks: 9 }),
        (49, Want::MissingSoFar { ranges }),
    ]
}

fn books() -> Books {
    Books {
        ns: std::array::from_fn(|index| 1000 + index as u64),
        wall_ns: (1000..1000 + STAGES as u64).sum(),
        workers: 2,
        cpu_ns: 9_000,
        peak_memory_bytes: 100 << 20,
        payload_bytes: 1 << 30,
        rail_bytes: (1 << 30) + 4096,
        resent_bytes: 1 << 20,
        commit_ns: 700,
        run_delay_ns: 300,
    }
}

fn accept() -> Frame {
    let (compare, places) = (Compare::Changed, vec![[0x9D; 16], [0x9E; 16]]);
    Frame::Accept {
        offer: Box::new(offer()),
        plan: Box::new(plan()),
        top: (*b"run").into(),
        compare,
        places,
        ahead: true,
    }
}

fn ask_ticket() -> Frame {
    let targets = vec![(*b"data").into()];
    Frame::AskTicket { key: [0x44; 32], targets, compare: Compare::Always, prune: Some(1000) }
}

fn frames() -> Vec<Frame> {
    let open = Open {
        job: job(),
        direction: Direction::Pull,
        paths: vec![(*b"data/run 7").into(), (*b"b").into()],
        layout: Some(Layout { stripe: Stripe::File, volumes: 16 }),
        joined: true,
        into_folder: true,
        top: (*b"run").into(),
        keep: true,
        dry: false,
        compare: Compare::Changed,
        prune: Some(1000),
        durability: Durability::Flushed,
        aspects: Aspects::OWNER.with(Aspects::ACLS),
        numeric: true,
        rules: vec!["*.o".into(), "!keep.o".into()],
        places: vec![[0x9C; 16]],
        after: [0x5A; 16],
        ahead: 0,
        offer: offer(),
    };
    let fault = EntryFault { entry: 42, kind: FaultKind::Denied, errno: 13, step: "open the source".into() };
    vec![
        Frame::Hello { version_min: 3, version: 3, agent: "longhaul 0.1.0".into() },
        Frame::Ticket { proof: [0x5A; 32] },
        Frame::Open(Box::new(open)),
        accept(),
        Frame::Refuse { code: Refusal::ReadOnly.code(), detail: "key of alice".into() },
        Frame::Entries(entries()),
        Frame::ScanEnd { entries: 45, files: 40, bytes: 1 << 33, faults: 1 },
        Frame::Wants(wants()),
        Frame::Acks(vec![ChunkRange { first: 3, end: 9 }]),
        Frame::Nack { chunk: 5, corrupt: Corrupt::SourceMemory },
        Frame::FileEnd { entry: 42, digest: Some([0xD2; 32]) },
        Frame::Committed(vec![(41, [0; 32]), (42, [0xD2; 32])]),
        Frame::Faults(vec![fault.clone()]),
        Frame::Pulse { received: 3 << 20, written: 2 << 20, durable: 1 << 20, books: Box::new(books()) },
        Frame::Sign { body: [0xB0; 32], signature: vec![0x51; 64].into() },
        Frame::Bye,
        Frame::Relay {
            sources: vec![(*b"data").into()],
            target: "longhaul://ticket@192.0.2.2:7700/in".into(),
            volumes: vec![(*b"in2").into()],
            request: Box::new(relay_request()),
        },
        Frame::Event { line: r#"{"event":"progress","bytes":1}"#.into() },
        ask_ticket(),
        Frame::GiveTicket { secret: [0x7E; 16], key: [0x33; 32], addresses: vec!["192.0.2.1:7700".into()] },
        Frame::Rails { count: 6 },
        Frame::Rate { bits_per_second: 1_000_000_000 },
        Frame::RailDown { rail: 3 },
        Frame::RailClosed { rail: 3 },
        Frame::Have { entry: 42, first: 5, digests: vec![[0xD5; 32], NO_DIGEST] },
        Frame::Differ { entry: 42, ranges: vec![ChunkRange { first: 6, end: 9 }] },
        Frame::Pruned { removed: 2, left: 1, paths: vec![(*b"old/run 3").into()] },
        Frame::Names([(false, 1000, "ann"), (true, 100, "lab")].map(id_name).into()),
        Frame::Unkept(vec![(45, Aspects::OWNER.with(Aspects::SETID))]),
        Frame::Pick(vec![(*b"run 7/a").into(), (*b"run 7/b\xFF").into()]),
        Frame::Unseen(vec![(EntryFault { entry: u64::MAX, ..fault }, (*b"run 7/secret").into())]),
        Frame::Holes {
            entry: 42,
            ranges: vec![ChunkRange { first: 1, end: 5 }, ChunkRange { first: 9, end: 1 << 20 }],
        },
        Frame::Resources(Resources { cores: 4, load_percent: 150 }),
        Frame::Pace(RequestedSettings { rate_bps: 20_000_000, policy: Policy::Low, min_bps: 1_000_000 }),
        Frame::NicCounts(vec![NicCount { name: "eth0".into(), sent_bytes: 3 << 30, received_bytes: 5 << 20 }]),
        Frame::List { path: (*b"runs/7 \xFF").into(), recursive: true },
        Frame::Unnamed(Unnamed { count: 3, is_silent: true }),
        Frame::Former { job: job(), body: [0xB0; 32] },
    ]
}

fn id_name((is_group, id, name): (bool, u32, &str)) -> IdName {
    IdName { is_group, id, name: name.as_bytes().into() }
}

/// Each field with another value than the default.
fn relay_request() -> RelayRequest {
    RelayRequest {
        again: true,
        unattended: true,
        dry_run: false,
        explain: true,
        integrity_only: true,
        bare: false,
        keep: true,
        joined: true,
        numeric_ids: true,
        aspects: Aspects::ALL.without(Aspects::DEVICES),
        compare: Compare::Changed,
        prune: Some(1000),
        stripe: Some(Stripe::Chunk),
        durability: Durability::Flushed,
        digest: DigestKind::Crc64,
        cipher: Some(Cipher::Aes256Gcm),
        driver: Some(Driver::Plain),
        io_modes: IoModes { read: Some(IoMode::Mmap), write: Some(IoMode::Direct) },
        snapshot: CloneReads::Never,
        transport: Transport::Auto,
        pace: Pace { controller: ControllerKind::Bbr, policy: Policy::Low, min_bps: 1_000_000 },
        streams: 4,
        workers: 2,
        chunk_bytes: 4 << 20,
        memory_bytes: 96 << 20,
        rate_bps: 10_000_000_000,
        stall_ns: 60_000_000_000,
        paths: vec![
            RelayPath { local: Some([192, 0, 2, 1].into()), remote: [192, 0, 2, 2].into(), weight: Some(4) },
            RelayPath {
                local: None,
                remote: [0x20, 1, 13, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1].into(),
                weight: None,
            },
        ],
        rules: vec!["*.tmp".into(), "!keep.tmp".into()],
    }
}

/// Hex as a person reads it: 32 bytes to a line.
fn hex(bytes: &[u8]) -> String {
    let line = |line: &[u8]| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n";
    bytes.chunks(32).map(line).collect()
}

fn check(name: &str, bytes: &[u8]) {
    let path = folder().join(name);
    if std::env::var_os("LONGHAUL_VECTORS").is_some_and(|how| how == "write") {
        std::fs::create_dir_all(folder()).expect("docs/vectors can be made");
        std::fs::write(&path, hex(bytes)).expect("a vector can be written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(stored, hex(bytes), "{name} differs; if the wire is meant to change, so must the version");
}

#[test]
fn every_frame_has_its_bytes() {
    let frames = frames();
    let kinds: Vec<u8> = frames.iter().map(Frame::type_byte).collect();
    assert_eq!(kinds, (1..=38).collect::<Vec<u8>>(), "one vector per frame kind");
    assert_eq!(Frame::decode(&[39]), Err(Breach::FrameUnknown), "a new frame kind needs a vector");
    for frame in frames {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        check(&format!("frame-{:02}-{}.hex", bytes[0], frame.name().to_lowercase()), &bytes);
        assert_eq!(Frame::decode(&bytes), Ok(frame));
    }
}

#[test]
fn what_stands_on_a_rail_has_its_bytes() {
    let greeting = Greeting { job: job(), rail: 513, version: 2, is_pair: true, mac: [0xAC; 32] };
    check("greeting.hex", &greeting.encode());
    let range = Header {
        kind: ChunkKind::Range,
        payload_bytes: 1 << 20,
        chunk: 7,
        entry: 42,
        offset: 3 << 20,
        crc: 0x0123_4567_89AB_CDEF,
        digest: [0xD3; 32],
    };
    check("header-range.hex", &range.encode());
    let mut payload = Vec::new();
    for (entry, bytes) in [(50, 5), (51, 0)] {
        payload.extend_from_slice(&PackLine { entry, bytes, digest: [0xD4; 32] }.encode());
    }
    payload.extend_from_slice(b"hello");
    check("pack.hex", &payload);
    assert_eq!(pack_lines(&payload, 2, 1 << 20).expect("a true pack").count(), 2);
    let pack = Header {
        kind: ChunkKind::Pack,
        payload_bytes: payload.len() as u32,
        chunk: 8,
        entry: 2,
        offset: 0,
        digest: [0; 32],
        ..range
    };
    check("header-pack.hex", &pack.encode());
}

/// Coverage with every kind of run: lengths below and from 128 on, received and lost.
fn runs() -> Runs {
    let mut runs = Runs::new();
    for (count, received) in [(200, true), (1, false), (3, true), (130, false), (16_384, true)] {
        assert!(runs.push(count, received, 1064), "five runs fit");
    }
    runs
}

#[test]
fn the_bodies_of_packets_have_their_bytes() {
    let controls = [
        ("tell", Control::Tell { newest: 300, rtt_us: 100_000 }),
        ("ask", Control::Ask { from: 1 << 20 }),
        ("probe", Control::Probe { bytes: 1472, token: 7 }),
        ("close", Control::Close),
    ];
    for (name, control) in controls {
        let mut body = Vec::new();
        control.encode(&mut body);
        check(&format!("body-control-{name}.hex"), &body);
        assert_eq!(Control::decode(&body), Ok(control));
    }
    let feedback = Feedback {
        number: 9,
        from: 1000,
        seen: 20_000,
        newest_at_ns: 123_456_789_012,
        hold_ns: 250_000,
        delivered_bytes: 1 << 33,
        delivered_packets: 6_000_000,
        marked_bytes: 1500,
        duplicates: 2,
        granted: 4096,
        cut: false,
        runs: runs(),
    };
    let mut body = Vec::new();
    feedback.encode(&mut body, 1176);
    check("body-feedback.hex", &body);
    assert_eq!(Feedback::decode(&body), Ok(feedback));
}

#[test]
fn a_part_of_the_session_has_its_bytes() {
    let beyond = vec![(1010, 1020), (1030, 70_000)];
    let part =
        SessionPart { tag: 0x12_3456, is_initiators: true, received: 1000, beyond, offset: 77, bytes: b"sealed" };
    let mut bytes = Vec::new();
    part.encode(&mut bytes);
    check("session-part.hex", &bytes);
    assert_eq!(SessionPart::decode(&bytes), Ok(part));
}

#[test]
fn a_part_of_a_greeting_has_its_bytes() {
    let part = HelloPart { flight: HelloFlight::Greeting, part: 1, parts: 2, name: [7; 16], bytes: b"sealed" };
    let mut bytes = Vec::new();
    part.encode(&mut bytes);
    check("hello-part.hex", &bytes);
    assert_eq!(HelloPart::decode(&bytes), Ok(part));
}

#[test]
fn a_journal_has_its_bytes() {
    let header = JournalHeader {
        version: JOURNAL_VERSION,
        bytes: 10 << 20,
        mtime_s: 1_700_000_000,
        mtime_ns: 123_456_789,
        chunk_bytes: 1 << 20,
        digest: DigestKind::Blake3,
        boot_id_hash: *b"\x01\x02\x03\x04\x05\x06\x07\x08",
        durability_written_only: false,
        sparse: false,
    };
    let mut bytes = journal::encode_header(&header).to_vec();
    journal::encode_record(3, &[[0xC3; 32], [0xC4; 32]], &mut bytes);
    check("journal.hex", &bytes);
    let replay = Replay::parse(&bytes);
    assert_eq!((replay.header, replay.valid_bytes), (Some(header), bytes.len()));
}

#[test]
fn a_receipt_has_its_bytes() {
    let head = Head {
        job: job(),
        digest: DigestKind::Blake3,
        durability: Durability::Published,
        layout: Some(Layout { stripe: Stripe::File, volumes: 16 }),
        bare: false,
        sender: [0x5E; 32],
        receiver: [0x4E; 32],
    };
    let mut text = Vec::new();
    receipt::write_head(&mut text, &head);
    for entry in entries().iter().filter(|entry| entry.kind != EntryKind::FolderEnd) {
        receipt::write_entry(&mut text, entry, Some(&[0xD2; 32]), head.digest, Durability::Published);
    }
    receipt::write_end(&mut text, 1, 5);
    receipt::write_body_digest(&mut text, &[0xB0; 32]);
    receipt::write_signed(&mut text, Signer::Sender, &head.sender, &[0x51; 64]);
    receipt::write_signed(&mut text, Signer::Receiver, &head.receiver, &[0x52; 64]);
    check("receipt.hex", &text);

    let mut text = Vec::new();
    receipt::write_head(&mut text, &head);
    receipt::write_former(&mut text, &Former { job: [0x0F; 16], body: [0xB0; 32], alike: Alike::Times });
    receipt::write_end(&mut text, 1, 5);
    receipt::write_body_digest(&mut text, &[0xB1; 32]);
    receipt::write_signed(&mut text, Signer::Sender, &head.sender, &[0x51; 64]);
    receipt::write_signed(&mut text, Signer::Receiver, &head.receiver, &[0x52; 64]);
    check("receipt-unchanged.hex", &text);
}

/// The table of codes as `docs/protocol.md` has it.
fn code_table() -> String {
    let mut table = String::from("| code | name | the peer … |\n|---|---|---|\n");
    for breach in Breach::ALL {
        table += &format!("| {} | {} | {} |\n", breach.code(), breach.name(), breach.what());
    }
    table += "\n| code | name | refused because … |\n|---|---|---|\n";
    for refusal in Refusal::ALL {
        table += &format!("| {} | {} | {} |\n", refusal.code(), refusal.name(), refusal.what());
    }
    table
}

#[test]
fn the_protocol_page_lists_every_code() {
    const END: &str = "<!-- codes end -->";
    let path = folder().join("../protocol.md");
    let page = std::fs::read_to_string(&path).expect("docs/protocol.md is there");
    let (before, rest) = page.split_once("compared otherwise -->\n").expect("the page marks its table");
    let (table, after) = rest.split_once(END).expect("the page marks the table's end");
    if std::env::var_os("LONGHAUL_VECTORS").is_some_and(|how| how == "write") {
        let page = format!("{before}compared otherwise -->\n{}{END}{after}", code_table());
        std::fs::write(&path, page).expect("docs/protocol.md can be written");
    } else {
        assert_eq!(table, code_table(), "write the table anew with LONGHAUL_VECTORS=write");
    }
}
