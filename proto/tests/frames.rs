//! Every decoder of the wire against everything that can be written and against bytes nobody wrote.
//!
//! For: the promise that decode(encode(x)) = x and that a stranger's bytes never panic.
//! In and out: generated frames, headers and packs; arbitrary and mutated bytes.
//! Invariants: a frame that decodes is encoded to the same bytes again (one value, one encoding).
//! Absent on purpose: stories of many frames (`session::order`), fixed bytes (vectors.rs).

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proto::books::{Books, STAGES};
use proto::error::{Breach, Refusal, explain_code};
use proto::layout::{Layout, Stripe, VOLUMES_MAX};
use proto::manifest::{Aspects, Entry, EntryKind, Meta, NodeKind, Xattr};
use proto::negotiate::{
    Cipher, Driver, Interface, NicCount, Offer, Pace, Plan, RdmaKind, RdmaOffer, RequestedSettings, Resources,
    STORAGE_BPS_MAX, StorageLook,
};
use proto::rate::{ControllerKind, Policy};
use proto::session::order::{Order, Wish as OrderWish};
use proto::storage::{IoMode, IoModes, Way};
use proto::wire::chunk::*;
use proto::wire::control::*;
use proto::wire::encode::{entry_bytes, want_bytes};
use proto::wire::request::{CloneReads, RELAY_PATHS_MAX, RelayPath, RelayRequest, Transport};

#[global_allocator]
static ALLOCATOR: sys::count::Counting = sys::count::Counting;

fn name() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>().prop_map(|byte| if byte == 0 || byte == b'/' { b'x' } else { byte }), 1..40)
        .prop_filter("not a dot name", |name| name != b"." && name != b"..")
}

/// Empty, or one component.
fn top() -> impl Strategy<Value = Box<[u8]>> {
    prop_oneof![Just(Vec::new()), name()].prop_map(Vec::into_boxed_slice)
}

fn path() -> impl Strategy<Value = Box<[u8]>> {
    vec(name(), 0..6).prop_map(|names| names.join(&b'/').into_boxed_slice())
}

fn user_path() -> impl Strategy<Value = Box<[u8]>> {
    vec(1u8.., 0..300).prop_map(Vec::into_boxed_slice)
}

fn entry_kind() -> impl Strategy<Value = EntryKind> {
    prop_oneof![
        (0..=FILE_BYTES_MAX).prop_map(|bytes| EntryKind::File { bytes }),
        Just(EntryKind::Folder),
        Just(EntryKind::FolderEnd),
        vec(1u8.., 1..200).prop_map(|target| EntryKind::Link { target: target.into_boxed_slice() }),
        Just(EntryKind::Node { kind: NodeKind::Fifo, major: 0, minor: 0 }),
        Just(EntryKind::Node { kind: NodeKind::Socket, major: 0, minor: 0 }),
        (any::<u32>(), any::<u32>()).prop_map(|(major, minor)| EntryKind::Node { kind: NodeKind::Char, major, minor }),
        (any::<u32>(), any::<u32>()).prop_map(|(major, minor)| EntryKind::Node { kind: NodeKind::Block, major, minor }),
        vec(name(), 1..6).prop_map(|names| EntryKind::Name { first: names.join(&b'/').into_boxed_slice() }),
    ]
}

fn aspects() -> impl Strategy<Value = Aspects> {
    (0..=Aspects::ALL.bits()).prop_map(|bits| Aspects::from_bits(bits).expect("in range"))
}

/// What an entry of this kind may carry.
fn meta(kind: EntryKind) -> impl Strategy<Value = (EntryKind, Meta)> {
    let names = prop_oneof![
        Just("user.a"),
        Just("security.capability"),
        Just("trusted.x"),
        Just("system.posix_acl_access"),
        Just("system.posix_acl_default")
    ];
    let xattr = (names, vec(any::<u8>(), 0..40))
        .prop_map(|(name, value)| Xattr { name: name.as_bytes().into(), value: value.into() });
    let id = || proptest::option::of(0..u32::MAX);
    let several = prop_oneof![Just(0), 2..=u32::MAX];
    (id(), id(), aspects(), several, any::<bool>(), vec(xattr, 0..4)).prop_map(
        move |(uid, gid, lost, names, sparse, xattrs)| {
            let one = matches!(kind, EntryKind::Folder | EntryKind::FolderEnd | EntryKind::Name { .. });
            let sparse = sparse && matches!(kind, EntryKind::File { .. });
            let names = if one { 0 } else { names };
            (kind.clone(), Meta { uid, gid, lost, names, sparse, volume: 0, striped: false, xattrs: xattrs.into() })
        },
    )
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let one = (path(), entry_kind().prop_flat_map(meta), 0u32..=0o7777, any::<i64>(), 0u32..1_000_000_000);
    (0u64..1 << 60, vec(one, 0..20)).prop_map(|(first, lines)| {
        let numbered = (first..).zip(lines);
        numbered
            .map(|(id, (path, (kind, meta), mode, mtime_s, mtime_ns))| Entry {
                id,
                path,
                kind,
                mode,
                mtime_s,
                mtime_ns,
                meta,
            })
            .collect()
    })
}

fn ranges() -> impl Strategy<Value = Vec<ChunkRange>> {
    vec((0u64..1000, 1u64..1000), 0..20).prop_map(|steps| {
        let mut at = 0;
        let range = |(gap, length)| {
            let first = at + gap;
            at = first + length;
            ChunkRange { first, end: at }
        };
        steps.into_iter().map(range).collect()
    })
}

fn want() -> impl Strategy<Value = Want> {
    prop_oneof![
        any::<Option<[u8; 32]>>().prop_map(|digest| Want::Keep { digest }),
        Just(Want::All),
        ranges().prop_map(|ranges| Want::Missing { ranges }),
        ranges().prop_map(|ranges| Want::MissingSoFar { ranges }),
        (1u64..).prop_map(|chunks| Want::Compare { chunks }),
    ]
}

fn digest_kind() -> impl Strategy<Value = DigestKind> {
    prop_oneof![Just(DigestKind::Blake3), Just(DigestKind::Crc64)]
}

fn cipher() -> impl Strategy<Value = Cipher> {
    prop_oneof![Just(Cipher::Aes128Gcm), Just(Cipher::Aes256Gcm), Just(Cipher::ChaCha20Poly1305)]
}

fn offer() -> impl Strategy<Value = Offer> {
    let interface = (".{0,40}", ".{0,40}", any::<u32>(), any::<u32>())
        .prop_map(|(name, address, mtu, speed_mbit)| Interface { name, address, mtu, speed_mbit });
    let driver = prop_oneof![Just(Driver::Uring), Just(Driver::Plain)];
    let lists = (vec(interface, 0..4), vec(driver, 0..3), vec(cipher(), 0..4), vec(digest_kind(), 0..3));
    let host = (".{0,60}", any::<u16>(), any::<u32>(), any::<u64>());
    let wishes = (any::<bool>(), any::<(u16, u16, u32, u64, u64)>(), any::<u16>(), pace());
    let means = (0..=1_000_000_000_000_000u64, 0..=1u64 << 50, any::<bool>(), 0..=STORAGE_BPS_MAX, any::<u32>());
    (host, lists, wishes, means).prop_map(|(host, lists, wishes, means)| Offer {
        boot_id: host.0,
        cores: host.1,
        load_percent: host.2,
        memory_bytes: host.3,
        interfaces: lists.0,
        drivers: lists.1,
        ciphers: lists.2,
        digests: lists.3,
        integrity_only: wishes.0,
        bare: wishes.2 % 2 == 1,
        streams: wishes.1.0,
        streams_max: wishes.1.1,
        chunk_bytes: wishes.1.2,
        rate_bps: wishes.1.3,
        free_bytes: wishes.1.4,
        disk_bps: means.0,
        bufs_bytes: means.1,
        look: means.2,
        storage: StorageLook { bps: means.3, file_ns: means.4 },
        datagrams: wishes.2,
        rdma: RdmaOffer { device: wishes.2 % 2 == 1, emulated: wishes.2 % 3 == 1 },
        pace: wishes.3,
    })
}

fn pace() -> impl Strategy<Value = Pace> {
    let controller = prop_oneof![
        Just(ControllerKind::Delay),
        Just(ControllerKind::Bbr),
        Just(ControllerKind::Cubic),
        Just(ControllerKind::Fixed)
    ];
    let policy = prop_oneof![Just(Policy::Fixed), Just(Policy::High), Just(Policy::Fair), Just(Policy::Low)];
    (controller, policy, any::<u64>()).prop_map(|(controller, policy, min_bps)| Pace { controller, policy, min_bps })
}

fn plan() -> impl Strategy<Value = Plan> {
    let sizes = (1u16..100, 0u16..100, 20u32..=24, 1u16.., 1u16..);
    (sizes, cipher(), any::<bool>(), digest_kind(), any::<(u64, u64)>(), any::<u64>(), pace()).prop_map(
        |((streams, more, log, ours, theirs), cipher, integrity_only, digest, memory, rate_bps, pace)| Plan {
            streams,
            streams_max: streams + more,
            chunk_bytes: 1 << log,
            cipher,
            integrity_only,
            bare: integrity_only && more == 0,
            digest,
            workers: (ours, theirs),
            memory,
            rate_bps,
            datagrams: more,
            rdma: [None, Some(RdmaKind::Device), Some(RdmaKind::Emulated)][usize::from(more % 3)],
            pace,
        },
    )
}

fn compare() -> impl Strategy<Value = Compare> {
    prop::sample::select(vec![Compare::Never, Compare::Changed, Compare::Always])
}

fn open() -> impl Strategy<Value = Open> {
    let direction = prop_oneof![Just(Direction::Push), Just(Direction::Pull)];
    let durability = (0u8..4).prop_map(|byte| Durability::from_byte(byte).expect("four durabilities"));
    let flags = any::<(bool, bool, bool, bool)>();
    let stripe = prop_oneof![Just(Stripe::File), Just(Stripe::Chunk)];
    let layout =
        proptest::option::of((stripe, 1..=VOLUMES_MAX).prop_map(|(stripe, volumes)| Layout { stripe, volumes }));
    let rules = vec(".{0,20}".prop_map(String::into_boxed_str), 0..4);
    let places = vec(any::<[u8; 16]>(), 0..4);
    let more = (rules, places, 0..=AHEAD_FRAMES_MAX);
    let beside = (layout, compare(), any::<Option<u64>>(), aspects(), any::<bool>(), more);
    (any::<[[u8; 16]; 2]>(), direction, vec(user_path(), 0..5), flags, top(), (durability, beside), offer()).prop_map(
        |(
            [job, after],
            direction,
            paths,
            (into_folder, keep, dry, joined),
            top,
            (durability, (layout, compare, prune, aspects, numeric, (rules, places, ahead))),
            offer,
        )| {
            Open {
                job,
                after,
                direction,
                paths,
                layout,
                joined,
                into_folder,
                top,
                keep,
                dry,
                compare,
                prune,
                durability,
                aspects,
                numeric,
                rules,
                places,
                ahead: if direction == Direction::Push { ahead } else { 0 },
                offer,
            }
        },
    )
}

fn relay_path() -> impl Strategy<Value = RelayPath> {
    let weight = || prop_oneof![Just(None), (1u32..=1_000_000).prop_map(Some)];
    prop_oneof![
        (any::<Option<[u8; 4]>>(), any::<[u8; 4]>(), weight()).prop_map(|(local, remote, weight)| RelayPath {
            local: local.map(Into::into),
            remote: remote.into(),
            weight
        }),
        (any::<Option<[u8; 16]>>(), any::<[u8; 16]>(), weight()).prop_map(|(local, remote, weight)| RelayPath {
            local: local.map(Into::into),
            remote: remote.into(),
            weight
        }),
    ]
}

fn io_modes() -> impl Strategy<Value = IoModes> {
    let one = |way: Way| {
        let those: Vec<Option<IoMode>> = IoMode::ALL.into_iter().filter(|it| it.can(way)).map(Some).collect();
        prop_oneof![Just(None), prop::sample::select(those)]
    };
    (one(Way::Read), one(Way::Write)).prop_map(|(read, write)| IoModes { read, write })
}

fn relay_request() -> impl Strategy<Value = RelayRequest> {
    let choices = (
        prop_oneof![Just(None), Just(Some(Stripe::File)), Just(Some(Stripe::Chunk))],
        (0u8..4).prop_map(|byte| Durability::from_byte(byte).expect("in range")),
        digest_kind(),
        prop_oneof![Just(None), cipher().prop_map(Some)],
        prop_oneof![Just(None), Just(Some(Driver::Uring)), Just(Some(Driver::Plain))],
        io_modes(),
        prop_oneof![Just(CloneReads::Auto), Just(CloneReads::Always), Just(CloneReads::Never)],
        prop_oneof![Just(Transport::Tcp), Just(Transport::Udp), Just(Transport::Auto), Just(Transport::Rdma)],
        pace(),
    );
    let numbers = (
        (0u16..=256, 0u16..=1024, prop_oneof![Just(0u32), (20u32..=24).prop_map(|bits| 1 << bits)]),
        (1u64.., any::<u64>(), 1u64..),
        any::<Option<u64>>(),
    );
    let lists = (vec(relay_path(), 0..4), vec(".{0,50}", 0..5));
    (any::<[bool; 9]>(), aspects(), compare(), choices, numbers, lists).prop_map(
        |(flags, aspects, compare, choices, numbers, (paths, rules))| {
            let [again, unattended, dry_run, explain, integrity_only, bare, keep, joined, numeric_ids] = flags;
            let (stripe, durability, digest, cipher, driver, io_modes, snapshot, transport, pace) = choices;
            let ((streams, workers, chunk_bytes), (memory_bytes, rate_bps, stall_ns), prune) = numbers;
            let compares_all = compare == Compare::Always;
            RelayRequest {
                again,
                unattended,
                dry_run,
                explain,
                integrity_only,
                bare: bare && !compares_all,
                keep: keep || compares_all,
                joined,
                numeric_ids,
                aspects,
                compare,
                prune,
                stripe,
                durability,
                digest,
                cipher,
                driver,
                io_modes,
                snapshot,
                transport,
                pace,
                streams,
                workers,
                chunk_bytes,
                memory_bytes,
                rate_bps,
                stall_ns,
                paths,
                rules: rules.into_iter().map(String::into_boxed_str).collect(),
            }
        },
    )
}

fn fault() -> impl Strategy<Value = EntryFault> {
    use FaultKind::{Corrupt, Denied, Full, Io, Other, Torn, Unsupported, Vanished};
    let kinds = vec![Vanished, Torn, Denied, Full, Io, Corrupt, Unsupported, Other];
    (any::<u64>(), prop::sample::select(kinds), any::<i32>(), "[a-z ]{0,100}")
        .prop_map(|(entry, kind, errno, step)| EntryFault { entry, kind, errno, step })
}

fn books() -> impl Strategy<Value = Books> {
    (any::<[u64; STAGES]>(), any::<u16>(), any::<[u64; 8]>()).prop_map(|(ns, workers, more)| Books {
        ns,
        wall_ns: more[0],
        workers,
        cpu_ns: more[1],
        peak_memory_bytes: more[2],
        payload_bytes: more[3],
        rail_bytes: more[4],
        resent_bytes: more[5],
        commit_ns: more[6],
        run_delay_ns: more[7],
    })
}

fn accept() -> impl Strategy<Value = Frame> {
    let compare = prop::sample::select(vec![Compare::Never, Compare::Changed, Compare::Always]);
    let more = (vec(any::<[u8; 16]>(), 0..4), any::<bool>());
    (offer(), plan(), top(), compare, more).prop_map(|(offer, plan, top, compare, (places, ahead))| Frame::Accept {
        offer: Box::new(offer),
        plan: Box::new(plan),
        top,
        compare,
        places,
        ahead,
    })
}

fn frame() -> impl Strategy<Value = Frame> {
    let corrupt = prop::sample::select(vec![Corrupt::Wire, Corrupt::SourceMemory, Corrupt::SinkMemory]);
    let opening = prop_oneof![
        (1u16..5, 0u16..5, ".{0,50}").prop_map(|(low, more, agent)| Frame::Hello {
            version_min: low,
            version: low + more,
            agent
        }),
        any::<[u8; 32]>().prop_map(|proof| Frame::Ticket { proof }),
        open().prop_map(|open| Frame::Open(Box::new(open))),
        accept(),
        (any::<u16>(), ".{0,200}").prop_map(|(code, detail)| Frame::Refuse { code, detail }),
    ];
    let transfer = prop_oneof![
        entries().prop_map(Frame::Entries),
        any::<[u64; 4]>().prop_map(|[entries, files, bytes, faults]| Frame::ScanEnd { entries, files, bytes, faults }),
        vec((any::<u64>(), want()), 0..20).prop_map(Frame::Wants),
        ranges().prop_map(Frame::Acks),
        (any::<u64>(), corrupt).prop_map(|(chunk, corrupt)| Frame::Nack { chunk, corrupt }),
        any::<(u64, Option<[u8; 32]>)>().prop_map(|(entry, digest)| Frame::FileEnd { entry, digest }),
        vec(any::<(u64, [u8; 32])>(), 0..20).prop_map(Frame::Committed),
        vec(fault(), 0..10).prop_map(Frame::Faults),
        (any::<[u64; 3]>(), books()).prop_map(|([received, written, durable], books)| Frame::Pulse {
            received,
            written,
            durable,
            books: Box::new(books)
        }),
    ];
    let service = prop_oneof![
        (any::<[u8; 32]>(), vec(any::<u8>(), 0..=SIGNATURE_BYTES_MAX))
            .prop_map(|(body, signature)| Frame::Sign { body, signature: signature.into() }),
        Just(Frame::Bye),
        (vec(user_path(), 0..4), ".{0,99}", vec(user_path(), 0..4), relay_request()).prop_map(
            |(sources, target, volumes, request)| Frame::Relay { sources, target, volumes, request: Box::new(request) }
        ),
        ".{0,999}".prop_map(|line| Frame::Event { line }),
        (any::<[u8; 32]>(), vec(user_path(), 0..4), compare(), any::<Option<u64>>())
            .prop_map(|(key, targets, compare, prune)| Frame::AskTicket { key, targets, compare, prune }),
        (any::<[u8; 16]>(), any::<[u8; 32]>(), vec(".{0,50}", 0..5))
            .prop_map(|(secret, key, addresses)| Frame::GiveTicket { secret, key, addresses }),
        (1u16..).prop_map(|count| Frame::Rails { count }),
        any::<u64>().prop_map(|bits_per_second| Frame::Rate { bits_per_second }),
        any::<u16>().prop_map(|rail| Frame::RailDown { rail }),
        any::<u16>().prop_map(|rail| Frame::RailClosed { rail }),
        vec((any::<bool>(), any::<u32>(), vec(any::<u8>(), 1..40)), 0..20).prop_map(|all| {
            let name = |(is_group, id, name): (bool, u32, Vec<u8>)| IdName { is_group, id, name: name.into() };
            Frame::Names(all.into_iter().map(name).collect())
        }),
        vec((any::<u64>(), 1..=Aspects::ALL.bits()), 0..20).prop_map(|all| {
            let told = |(id, bits)| (id, Aspects::from_bits(bits).expect("in range"));
            Frame::Unkept(all.into_iter().map(told).collect())
        }),
    ];
    let compared = prop_oneof![
        (any::<[u64; 2]>(), vec(any::<[u8; 32]>(), 0..9)).prop_map(|([entry, first], digests)| Frame::Have {
            entry,
            first,
            digests
        }),
        (any::<u64>(), ranges()).prop_map(|(entry, ranges)| Frame::Differ { entry, ranges }),
        (any::<[u64; 2]>(), vec(path(), 0..4)).prop_map(|([removed, left], paths)| Frame::Pruned {
            removed,
            left,
            paths
        }),
    ];
    prop_oneof![opening, transfer, service, compared, chosen()]
}

fn chosen() -> impl Strategy<Value = Frame> {
    prop_oneof![
        vec(path().prop_filter("not the folder itself", |path| !path.is_empty()), 0..9).prop_map(Frame::Pick),
        vec((fault().prop_map(|fault| EntryFault { entry: u64::MAX, ..fault }), path()), 0..9).prop_map(Frame::Unseen),
        (any::<u64>(), ranges()).prop_map(|(entry, ranges)| Frame::Holes { entry, ranges }),
        (1u16.., any::<u32>()).prop_map(|(cores, load_percent)| Frame::Resources(Resources { cores, load_percent })),
        (any::<u64>(), pace(), any::<u64>()).prop_map(|(rate_bps, pace, min_bps)| {
            Frame::Pace(RequestedSettings { rate_bps, policy: pace.policy, min_bps })
        }),
        vec((".{0,40}", any::<[u64; 2]>()), 0..9).prop_map(|all| {
            let count = |(name, [sent_bytes, received_bytes]): (String, [u64; 2])| NicCount {
                name,
                sent_bytes,
                received_bytes,
            };
            Frame::NicCounts(all.into_iter().map(count).collect())
        }),
        (user_path(), any::<bool>()).prop_map(|(path, recursive)| Frame::List { path, recursive }),
        any::<(u32, bool)>().prop_map(|(count, is_silent)| Frame::Unnamed(Unnamed { count, is_silent })),
    ]
}

fn encoded(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

/// What decodes must be written again the same.
fn check_any(bytes: &[u8]) {
    if let Ok(frame) = Frame::decode(bytes) {
        assert_eq!(encoded(&frame), bytes, "{} has two encodings", frame.name());
    }
}

proptest! {
    // A case that fails becomes a test with a name; no file of seeds beside the source.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_frame_comes_back_as_it_was(frame in frame()) {
        let bytes = encoded(&frame);
        prop_assert_eq!(bytes[0], frame.type_byte());
        prop_assert_eq!(Frame::decode(&bytes), Ok(frame));
    }

    #[test]
    fn no_frame_may_be_cut_short_or_followed_by_anything(frame in frame(), more in any::<u8>()) {
        let mut bytes = encoded(&frame);
        for end in 0..bytes.len() {
            prop_assert!(Frame::decode(&bytes[..end]).is_err(), "{} cut at {}", frame.name(), end);
        }
        bytes.push(more);
        prop_assert!(Frame::decode(&bytes).is_err());
    }

    #[test]
    fn arbitrary_bytes_never_panic(kind in 0u8..40, mut bytes in vec(any::<u8>(), 0..600)) {
        check_any(&bytes);
        bytes.insert(0, kind);
        check_any(&bytes);
    }

    #[test]
    fn a_frame_with_one_byte_changed_never_panics(frame in frame(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = encoded(&frame);
        let at = at.index(bytes.len());
        bytes[at] = to;
        check_any(&bytes);
    }

    #[test]
    fn the_table_of_order_holds_for_every_frame(frame in frame()) {
        let name = frame.name();
        // docs/protocol.md, section 6: what may come to a receiver, to a sender, to either; at the end; and to nobody while data moves.
        let receiver = ["Names", "Entries", "Unseen", "ScanEnd", "FileEnd", "Differ", "Holes", "RailDown"];
        let sender = ["Wants", "Have", "Acks", "Nack", "Unkept", "Committed", "RailClosed", "Pruned", "Rate"];
        let either = ["Faults", "Pulse", "Resources", "Pace", "NicCounts", "Unnamed", "Refuse", "Sign"];
        for (sends, own) in [(false, &receiver[..]), (true, &sender[..])] {
            let may = own.contains(&name) || either.contains(&name);
            prop_assert_eq!(Order::of_job(sends).on_frame(&frame).is_ok(), may, "{}, sends: {}", name, sends);
            let mut signed = Order::of_job(sends);
            signed.on_signed();
            let may = may || ["Bye", "RailDown", "RailClosed"].contains(&name);
            prop_assert_eq!(signed.on_frame(&frame).is_ok(), may, "{} after a signature, sends: {}", name, sends);
        }
        let answers = [
            (Order::of_acceptor(), &["Hello"][..]),
            (Order::of_initiator(OrderWish::Job), &["Hello"]),
            (Order::of_greeted(OrderWish::Job), &["Accept"]),
            (Order::of_greeted(OrderWish::Ticket), &["GiveTicket"]),
            (Order::of_greeted(OrderWish::Relay), &["Event", "Bye"]),
            (Order::of_greeted(OrderWish::List), &["Names", "Entries", "Unseen", "ScanEnd"]),
        ];
        for (mut order, may) in answers {
            let text = format!("{name}: {order:?}");
            prop_assert_eq!(order.on_frame(&frame).is_ok(), may.contains(&name) || name == "Refuse", "{}", text);
        }
        let mut opening = Order::of_acceptor();
        opening.on_frame(&Frame::Hello { version_min: 1, version: 1, agent: String::new() }).unwrap();
        let may = ["Ticket", "Pick", "Open", "Relay", "AskTicket", "List", "Refuse"].contains(&name);
        prop_assert_eq!(opening.clone().on_frame(&frame).is_ok(), may, "{} in opening", name);
        opening.on_frame(&Frame::Pick(Vec::new())).unwrap();
        let may = match &frame {
            Frame::Open(open) => open.direction == Direction::Pull,
            _ => ["Pick", "Relay", "Refuse"].contains(&name),
        };
        prop_assert_eq!(opening.on_frame(&frame).is_ok(), may, "{} after Pick", name);
    }

    #[test]
    fn announced_sizes_are_the_encoded_ones(entries in entries(), wants in vec((any::<u64>(), want()), 0..20)) {
        let sum: usize = entries.iter().map(entry_bytes).sum();
        prop_assert_eq!(encoded(&Frame::Entries(entries)).len(), 1 + 8 + 4 + sum);
        let sum: usize = wants.iter().map(|(_, want)| want_bytes(want)).sum();
        prop_assert_eq!(encoded(&Frame::Wants(wants)).len(), 1 + 4 + sum);
    }

    #[test]
    fn headers_and_greetings_come_back(job in any::<[u8; 16]>(), rail in any::<u16>(), mac in any::<[u8; 32]>(),
                                       chunk in any::<u64>(), entry in any::<u64>(), offset in 0u64..1 << 62,
                                       payload_bytes in 0..=CHUNK_BYTES_MAX, crc in any::<u64>(), digest in any::<[u8; 32]>()) {
        let greeting = Greeting { job, rail, version: proto::VERSION, is_pair: rail % 2 == 1, mac };
        prop_assert_eq!(Greeting::decode(&greeting.encode()), Ok(greeting));
        let header = Header { kind: ChunkKind::Range, payload_bytes, chunk, entry, offset, crc, digest };
        prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn arbitrary_headers_and_greetings_never_panic(mut bytes in any::<[u8; 72]>(), kind in 0u8..4) {
        bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
        if let Ok(header) = Header::decode(&bytes) {
            prop_assert_eq!(header.encode(), bytes);
        }
        let mut first = *bytes.first_chunk::<64>().expect("72 bytes");
        first[..6].copy_from_slice(b"LHRL\x02\x00");
        if let Ok(greeting) = Greeting::decode(&first) {
            prop_assert_eq!(greeting.encode(), first);
        }
    }

    #[test]
    fn a_pack_covers_its_payload_exactly(lengths in vec(0u32..3000, 1..40), wrong in 1usize..100) {
        let payload = pack(&lengths);
        let count = lengths.len() as u64;
        let mut end = lengths.len() * PACK_LINE_BYTES;
        for ((line, place), &length) in pack_lines(&payload, count, CHUNK_BYTES_MIN).expect("a true pack").zip(&lengths) {
            prop_assert_eq!((line.bytes, place.start), (length, end));
            end = place.end;
        }
        prop_assert_eq!(end, payload.len());
        let long = [&payload[..], &vec![0; wrong][..]].concat();
        prop_assert!(pack_lines(&long, count, CHUNK_BYTES_MIN).is_err());
        let short = &payload[..payload.len().saturating_sub(wrong)];
        prop_assert!(pack_lines(short, count, CHUNK_BYTES_MIN).is_err());
    }

    #[test]
    fn an_arbitrary_pack_never_panics(payload in vec(any::<u8>(), 0..500), count in prop_oneof![0u64..12, any::<u64>()]) {
        if let Ok(lines) = pack_lines(&payload, count, CHUNK_BYTES_MIN) {
            prop_assert_eq!(lines.len() as u64, count);
            prop_assert!(lines.last().is_some_and(|(_, place)| place.end == payload.len()));
        }
    }
}

fn pack(lengths: &[u32]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (entry, &bytes) in (7..).zip(lengths) {
        payload.extend_from_slice(&PackLine { entry, bytes, digest: [9; 32] }.encode());
    }
    payload.resize(payload.len() + lengths.iter().sum::<u32>() as usize, 0xEE);
    payload
}

#[test]
fn a_false_length_asks_for_no_memory() {
    for kind in [6u8, 8, 9, 12, 13, 17] {
        for pad in [0usize, 8] {
            let mut bytes = vec![kind];
            bytes.extend_from_slice(&[0; 8][..pad]);
            bytes.extend_from_slice(&u32::MAX.to_le_bytes());
            assert!(Frame::decode(&bytes).is_err(), "kind {kind}");
            // Lengths that a list of some kind may have, of which nothing came.
            for length in [200_000u32, 4096, 1000] {
                bytes.truncate(1 + pad);
                bytes.extend_from_slice(&length.to_le_bytes());
                sys::count::counted();
                sys::count::count(true);
                let decoded = Frame::decode(&bytes);
                sys::count::count(false);
                assert!(decoded.is_err(), "kind {kind}");
                let (_, asked_for) = sys::count::counted();
                assert!(
                    asked_for < 512,
                    "kind {kind}: {asked_for} bytes of memory for {length} items that are not there"
                );
            }
        }
    }
    assert_eq!(Frame::decode(&vec![18; proto::FRAME_BYTES_MAX + 1]), Err(Breach::FrameTooLong));
    assert_eq!(Frame::decode(&[]), Err(Breach::FrameTruncated));
    assert_eq!(Frame::decode(&[0]), Err(Breach::FrameUnknown));
    assert_eq!(Frame::decode(&[200]), Err(Breach::FrameUnknown));
}

#[test]
fn a_list_too_long_for_one_frame_goes_in_several_in_order() {
    let fault = |entry| EntryFault { entry, kind: FaultKind::Full, errno: 28, step: "write a small file".into() };
    let link = |id| Entry {
        id,
        path: (*b"l").into(),
        kind: EntryKind::Link { target: vec![b'x'; 4095].into() },
        mode: 0o777,
        mtime_s: 0,
        mtime_ns: 0,
        meta: Meta::default(),
    };
    let mut faults = Vec::new();
    Frame::Faults((0..20_000).map(fault).collect()).encode_parts(&mut |bytes| match Frame::decode(bytes) {
        Ok(Frame::Faults(part)) => faults.extend(part),
        other => panic!("{other:?}"),
    });
    assert_eq!(faults, (0..20_000).map(fault).collect::<Vec<_>>());
    let (mut next, mut parts) = (5, 0);
    Frame::Entries((5..505).map(link).collect()).encode_parts(&mut |bytes| match Frame::decode(bytes) {
        Ok(Frame::Entries(part)) => {
            parts += 1;
            assert_eq!(part[0].id, next);
            next += part.len() as u64;
        }
        other => panic!("{other:?}"),
    });
    assert_eq!((next, parts), (505, 8), "2 MiB of targets in frames of at most 256 KiB");
}

#[test]
fn hostile_entries_are_refused_by_name() {
    let entry = |path: &[u8], kind: EntryKind| Entry {
        id: 3,
        path: path.into(),
        kind,
        mode: 0o644,
        mtime_s: 0,
        mtime_ns: 0,
        meta: Meta::default(),
    };
    let refused = |entry: Entry| Frame::decode(&encoded(&Frame::Entries(vec![entry]))).expect_err("hostile");
    let file = || EntryKind::File { bytes: 1 };
    assert_eq!(refused(entry(b"../x", file())), Breach::PathEscapes);
    assert_eq!(refused(entry(b"a/../../x", file())), Breach::PathEscapes);
    assert_eq!(refused(entry(b"a//x", file())), Breach::PathEscapes);
    assert_eq!(refused(entry(b"/etc/passwd", file())), Breach::PathAbsolute);
    assert_eq!(refused(entry(b"a\0b", file())), Breach::PathHasNul);
    assert_eq!(refused(entry(&[b'a'; 256], file())), Breach::PathTooLong);
    assert_eq!(refused(entry(&b"abcdefgh/".repeat(2000)[..16_385], file())), Breach::PathTooLong);
    assert_eq!(refused(entry(b"a", EntryKind::File { bytes: 1 << 63 })), Breach::FieldOutOfRange);
    let with = |meta| Entry { meta, ..entry(b"a", file()) };
    assert_eq!(refused(with(Meta { uid: Some(u32::MAX), ..Meta::default() })), Breach::FieldOutOfRange);
    assert_eq!(refused(with(Meta { names: 1, ..Meta::default() })), Breach::FieldOutOfRange);
    let folder = Entry { kind: EntryKind::Folder, ..with(Meta { names: 2, ..Meta::default() }) };
    assert_eq!(refused(folder), Breach::FieldOutOfRange);
    let xattr = |name: &[u8], bytes| Xattr { name: name.into(), value: vec![0; bytes].into() };
    let carrying = |xattrs: Vec<Xattr>| with(Meta { xattrs: xattrs.into(), ..Meta::default() });
    assert_eq!(refused(carrying(vec![xattr(b"system.nfs4_acl", 1)])), Breach::FieldOutOfRange);
    assert_eq!(refused(carrying(vec![xattr(b"user.a\0b", 1)])), Breach::FieldOutOfRange);
    assert_eq!(refused(carrying(vec![xattr(b"user.a", 65_537)])), Breach::FieldTooLong);
    assert_eq!(refused(carrying(vec![xattr(b"user.a", 65_000); 3])), Breach::FieldTooLong);
    assert_eq!(refused(entry(b"a", EntryKind::Name { first: (*b"").into() })), Breach::FieldOutOfRange);
    assert_eq!(refused(entry(b"a", EntryKind::Name { first: (*b"../b").into() })), Breach::PathEscapes);
    assert_eq!(refused(entry(b"a", EntryKind::Link { target: (*b"").into() })), Breach::FieldOutOfRange);
    assert_eq!(refused(entry(b"a", EntryKind::Link { target: (*b"a\0").into() })), Breach::PathHasNul);
    assert_eq!(refused(entry(b"a", EntryKind::Link { target: vec![b'a'; 4096].into() })), Breach::FieldTooLong);
    assert_eq!(refused(Entry { mtime_ns: 1_000_000_000, ..entry(b"a", file()) }), Breach::FieldOutOfRange);
    assert_eq!(refused(Entry { id: u64::MAX, ..entry(b"a", file()) }), Breach::FieldOutOfRange);
}

#[test]
fn hostile_choices_are_refused_by_name() {
    let refused = |names: &[&[u8]]| {
        let names = names.iter().map(|&name| name.into()).collect();
        Frame::decode(&encoded(&Frame::Pick(names))).expect_err("hostile")
    };
    assert_eq!(refused(&[b"a", b"../b"]), Breach::PathEscapes);
    assert_eq!(refused(&[b"/a"]), Breach::PathAbsolute);
    assert_eq!(refused(&[b""]), Breach::FieldOutOfRange);
    let fault = EntryFault { entry: 7, kind: FaultKind::Denied, errno: 13, step: "scan".into() };
    let unseen = Frame::Unseen(vec![(fault, (*b"a").into())]);
    assert_eq!(
        Frame::decode(&encoded(&unseen)),
        Err(Breach::FieldOutOfRange),
        "an entry that was announced is not unseen"
    );
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let open = open().new_tree(&mut runner).expect("an Open").current();
    let with = |rules| Frame::decode(&encoded(&Frame::Open(Box::new(Open { rules, ..open.clone() }))));
    assert!(with(vec!["r".into(); RULES_MAX]).is_ok());
    assert_eq!(with(vec!["r".into(); RULES_MAX + 1]), Err(Breach::FieldTooLong));
    let long = || "r".repeat(4096).into_boxed_str();
    assert!(with(vec![long(), long(), long(), long()]).is_ok());
    assert_eq!(with(vec![long(), long(), long(), long(), "r".into()]), Err(Breach::FieldTooLong));
}

#[test]
fn hostile_relay_requests_are_refused_by_name() {
    let relay = |request: RelayRequest| {
        let (sources, volumes) = (vec![(*b"a").into()], vec![]);
        encoded(&Frame::Relay { sources, target: String::new(), volumes, request: Box::new(request) })
    };
    let plain = RelayRequest::default;
    let refused = |request: RelayRequest| Frame::decode(&relay(request)).expect_err("it is out of range");
    assert!(Frame::decode(&relay(plain())).is_ok());
    for request in [
        RelayRequest { streams: 257, ..plain() },
        RelayRequest { workers: 1025, ..plain() },
        RelayRequest { chunk_bytes: 3 << 20, ..plain() },
        RelayRequest { chunk_bytes: 512 << 10, ..plain() },
        RelayRequest { chunk_bytes: 32 << 20, ..plain() },
        RelayRequest { memory_bytes: 0, ..plain() },
        RelayRequest { stall_ns: 0, ..plain() },
        RelayRequest { bare: true, compare: Compare::Always, ..plain() },
        RelayRequest { keep: false, compare: Compare::Always, ..plain() },
        RelayRequest { io_modes: IoModes { read: Some(IoMode::Early), write: None }, ..plain() },
        RelayRequest { io_modes: IoModes { read: None, write: Some(IoMode::Mmap) }, ..plain() },
        RelayRequest {
            paths: vec![RelayPath { local: None, remote: [10, 0, 0, 1].into(), weight: Some(1_000_001) }],
            ..plain()
        },
    ] {
        assert_eq!(refused(request.clone()), Breach::FieldOutOfRange, "{request:?}");
    }
    let path = RelayPath { local: None, remote: [10, 0, 0, 1].into(), weight: None };
    let many = RelayRequest { paths: vec![path; RELAY_PATHS_MAX + 1], ..plain() };
    assert_eq!(refused(many), Breach::FieldTooLong);
    let long = RelayRequest { rules: vec!["x".repeat(TEXT_BYTES_MAX).into(); 5], ..plain() };
    assert_eq!(refused(long), Breach::FieldTooLong);
    // Frame type, one source, no target, no volumes: the request follows. Bytes that no value has, at each place that has a list of values.
    let at = 1 + (4 + 2 + 1) + 2 + 4;
    for (place, byte) in
        [(1, 2), (3, 4), (4, 3), (5, 2), (6, 3), (7, 4), (8, 2), (9, 4), (10, 3), (11, 6), (13, 3), (14, 4), (15, 4)]
    {
        let mut bytes = relay(plain());
        bytes[at + place] = byte;
        assert_eq!(Frame::decode(&bytes), Err(Breach::FieldOutOfRange), "byte {place}");
    }
    assert_eq!(explain_code(Refusal::RelayRefused.code()), Refusal::RelayRefused.what());
}

#[test]
fn hostile_headers_are_refused_by_name() {
    let range = Header {
        kind: ChunkKind::Range,
        payload_bytes: 5,
        chunk: 0,
        entry: 0,
        offset: FILE_BYTES_MAX - 5,
        crc: 0,
        digest: [1; 32],
    };
    let refused = |header: Header| Header::decode(&header.encode()).expect_err("hostile");
    assert_eq!(Header::decode(&range.encode()), Ok(range));
    assert_eq!(refused(Header { payload_bytes: 6, ..range }), Breach::ChunkOutOfRange);
    assert_eq!(refused(Header { offset: u64::MAX, ..range }), Breach::ChunkOutOfRange);
    assert_eq!(refused(Header { payload_bytes: CHUNK_BYTES_MAX + 1, ..range }), Breach::PayloadTooLong);
    let pack = Header { kind: ChunkKind::Pack, payload_bytes: 96, entry: 2, offset: 0, digest: [0; 32], ..range };
    assert_eq!(Header::decode(&pack.encode()), Ok(pack));
    assert_eq!(refused(Header { entry: 3, ..pack }), Breach::PackIndex);
    assert_eq!(refused(Header { entry: 0, ..pack }), Breach::PackIndex);
    assert_eq!(refused(Header { offset: 1, ..pack }), Breach::FieldOutOfRange);
    assert_eq!(refused(Header { digest: [1; 32], ..pack }), Breach::FieldOutOfRange);
    let mut bytes = range.encode();
    bytes[0] = 3;
    assert_eq!(Header::decode(&bytes), Err(Breach::HeaderKind));
    bytes[..2].copy_from_slice(&[1, 1]);
    assert_eq!(Header::decode(&bytes), Err(Breach::FieldOutOfRange));
    let mut line = PackLine { entry: 1, bytes: (128 << 10) + 1, digest: [0; 32] };
    assert_eq!(PackLine::decode(&line.encode()), Err(Breach::PackIndex));
    line.bytes -= 1;
    assert_eq!(PackLine::decode(&line.encode()), Ok(line));
}

#[test]
fn an_unknown_version_of_a_rail_is_refused_and_other_bytes_are_no_greeting() {
    let greeting = Greeting { job: [1; 16], rail: 2, version: proto::VERSION + 1, is_pair: false, mac: [3; 32] };
    assert_eq!(Greeting::decode(&greeting.encode()), Err(Breach::VersionUnknown));
    let mut bytes = Greeting { version: proto::VERSION, ..greeting }.encode();
    bytes[0] = 0x16;
    assert_eq!(Greeting::decode(&bytes), Err(Breach::RailGreeting));
}

#[test]
fn tags_are_counted_per_piece_begun() {
    let piece = proto::PIECE_BYTES;
    assert_eq!(frame_tags(0, piece, true), 0);
    assert_eq!(frame_tags(1, piece, true), 1);
    assert_eq!(frame_tags(piece as u32, piece, true), 1);
    assert_eq!(frame_tags(piece as u32 + 1, piece, true), 2);
    assert_eq!(frame_tags(1 << 20, piece, false), 0);
}

#[test]
fn every_code_is_unique_and_comes_back() {
    let mut codes = std::collections::HashSet::new();
    for &breach in Breach::ALL {
        assert!((1..1000).contains(&breach.code()), "{breach:?}");
        assert!(codes.insert(breach.code()), "{breach:?}");
        assert_eq!(Breach::from_code(breach.code()), Some(breach));
        assert_eq!(explain_code(breach.code()), breach.what());
    }
    for &refusal in Refusal::ALL {
        assert!((1000..2000).contains(&refusal.code()), "{refusal:?}");
        assert!(codes.insert(refusal.code()), "{refusal:?}");
        assert_eq!(Refusal::from_code(refusal.code()), Some(refusal));
    }
    let sentences: std::collections::HashSet<_> = Breach::ALL
        .iter()
        .map(|breach| breach.what())
        .chain(Refusal::ALL.iter().map(|refusal| refusal.what()))
        .collect();
    assert_eq!(sentences.len(), codes.len(), "two codes read the same");
    assert_eq!((Breach::from_code(0), Refusal::from_code(999)), (None, None));
}
