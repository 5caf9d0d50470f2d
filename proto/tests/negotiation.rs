//! Negotiation: both ends compute the same plan, within every cap, and never a weaker one than asked for.
//!
//! For: the rules of `negotiate.rs`, one test each.
//! In and out: two offers; a plan with reasons, or a refusal.
//! Invariants: checked over arbitrary offers too.
//! Absent on purpose: measuring.

use proptest::prelude::*;
use proto::error::{Breach, Refusal};
use proto::negotiate::*;
use proto::rate::Policy;
use proto::wire::control::{Compare, DigestKind, Frame};

fn offer() -> Offer {
    Offer {
        boot_id: "one".into(),
        cores: 8,
        load_percent: 0,
        memory_bytes: 64 << 20,
        interfaces: Vec::new(),
        drivers: vec![Driver::Uring, Driver::Plain],
        ciphers: vec![Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305],
        digests: vec![DigestKind::Blake3, DigestKind::Crc64],
        integrity_only: false,
        bare: false,
        streams: 0,
        streams_max: 64,
        chunk_bytes: 0,
        rate_bps: 0,
        free_bytes: 0,
        disk_bps: 0,
        bufs_bytes: 0,
        look: false,
        storage: StorageLook::default(),
        datagrams: 0,
        rdma: RdmaOffer::default(),
        pace: Pace::default(),
    }
}

fn there() -> Offer {
    Offer { boot_id: "two".into(), cores: 4, ..offer() }
}

fn plan(initiator: &Offer, acceptor: &Offer) -> Plan {
    negotiate(initiator, acceptor, true).expect("these two agree").0
}

#[test]
fn a_slow_disk_has_few_streams_and_a_remembered_rate_four_times_too_low_costs_nothing() {
    let many = Offer { cores: 16, ..offer() };
    let with = |here: u64, far: u64| {
        plan(&Offer { disk_bps: here, ..many.clone() }, &Offer { boot_id: "two".into(), disk_bps: far, ..many.clone() })
    };
    let unknown = with(0, 0);
    assert_eq!((unknown.streams, unknown.workers), (16, (16, 16)));
    // 100 MB/s: four streams of a slow core carry five times that; it may grow to as many as ever.
    let slow = with(0, 800_000_000);
    assert_eq!((slow.streams, slow.streams_max, slow.workers), (4, unknown.streams_max, unknown.workers));
    assert_eq!(with(800_000_000, 20_000_000_000), slow, "the slower of both");
    assert_eq!(with(1, 0).streams, 1);
    assert_eq!(with(4_000_000_000, u64::MAX), unknown, "a fast one bounds nothing");
    let asked = Offer { streams: 12, disk_bps: 1, ..many };
    assert_eq!(plan(&asked, &there()).streams, 12, "what was asked for is kept");
    let few = Offer { cores: 2, disk_bps: 800_000_000, ..offer() };
    assert_eq!(plan(&few, &there()).streams, 2, "no more than workers");
}

#[test]
fn an_end_with_few_bufs_left_has_no_more_streams_than_they_keep_going() {
    let with =
        |here: u64, far: u64| plan(&Offer { bufs_bytes: here, ..offer() }, &Offer { bufs_bytes: far, ..there() });
    let unknown = with(0, 0);
    assert_eq!(with(1 << 30, 1 << 30), unknown);
    assert_eq!((with(1 << 30, 6 << 20).streams_max, with(1 << 30, 6 << 20).streams), (3, 3));
    assert_eq!(with(1, 1).streams_max, 1, "one always");
    assert_eq!(with(u64::MAX, 0), unknown);
}

#[test]
fn what_a_peer_says_of_its_disk_and_bufs_is_bounded() {
    let rare = 0x0001_0203_0405_0607;
    for (offer, most) in [
        (Offer { disk_bps: rare, ..offer() }, 1_000_000_000_000_000_u64),
        (Offer { bufs_bytes: rare, ..offer() }, 1 << 50),
    ] {
        // A value of ours is cut to what may be said.
        let frame = Frame::Accept {
            offer: Box::new(offer.clone()),
            plan: Box::new(plan(&offer, &there())),
            top: [].into(),
            compare: Compare::Never,
            places: Vec::new(),
            ahead: false,
        };
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        let said = rare.min(most).to_le_bytes();
        let at = bytes.windows(8).position(|window| window == said).expect("it is in the frame");
        assert!(Frame::decode(&bytes).is_ok());
        for more in [most + 1, u64::MAX] {
            let mut bent = bytes.clone();
            bent[at..at + 8].copy_from_slice(&more.to_le_bytes());
            assert_eq!(Frame::decode(&bent), Err(Breach::FieldOutOfRange));
        }
    }
}

#[test]
fn every_core_works_at_each_end_also_when_both_are_one_host() {
    let plan_two = plan(&offer(), &there());
    assert_eq!((plan_two.workers, plan_two.streams), ((8, 4), 4));
    let (plan_one, choices) = negotiate(&offer(), &offer(), true).expect("agree");
    assert_eq!((plan_one.workers, plan_one.streams), ((8, 8), 8));
    assert!(choices.iter().any(|choice| choice.reason.contains("share the cores")), "{choices:?}");
    let tiny = Offer { cores: 1, ..offer() };
    assert_eq!(plan(&tiny, &tiny).workers, (1, 1));
    let huge = Offer { cores: 200, ..offer() };
    assert_eq!(plan(&huge, &Offer { cores: 200, ..there() }).workers, (16, 16));
    let unknown = Offer { boot_id: String::new(), ..offer() };
    assert_eq!(plan(&unknown, &unknown).workers, (8, 8), "an unknown boot id is nobody's");
}

#[test]
fn streams_asked_for_win_up_to_the_caps() {
    assert_eq!(plan(&Offer { streams: 12, ..offer() }, &there()).streams, 12);
    let most = plan(&Offer { streams: 100, ..offer() }, &there());
    assert_eq!((most.streams, most.streams_max), (16, 16), "64 MiB hold 16 streams of four 1 MiB bufs");
    assert_eq!(plan(&Offer { streams: 100, ..offer() }, &Offer { streams_max: 3, ..there() }).streams, 3);
    assert_eq!(plan(&offer(), &Offer { memory_bytes: 1, ..there() }).streams_max, 1);
}

#[test]
fn chunks_are_a_power_of_two_that_memory_can_hold() {
    assert_eq!(plan(&offer(), &there()).chunk_bytes, 1 << 20);
    for (wish, chunk) in [(1, 1 << 20), (3 << 20, 4 << 20), (4 << 20, 4 << 20), (u32::MAX, 16 << 20)] {
        assert_eq!(plan(&Offer { chunk_bytes: wish, ..offer() }, &there()).chunk_bytes, chunk);
    }
    let small = Offer { memory_bytes: 8 << 20, ..there() };
    assert_eq!(plan(&Offer { chunk_bytes: 16 << 20, ..offer() }, &small).chunk_bytes, 2 << 20);
}

#[test]
fn chacha_is_chosen_only_where_one_cpu_has_no_aes() {
    assert_eq!(plan(&offer(), &there()).cipher, Cipher::Aes128Gcm);
    let no_aes = Offer { ciphers: vec![Cipher::ChaCha20Poly1305, Cipher::Aes256Gcm], ..there() };
    assert_eq!(plan(&offer(), &no_aes).cipher, Cipher::ChaCha20Poly1305);
    assert_eq!(plan(&no_aes, &offer()).cipher, Cipher::ChaCha20Poly1305);
    let strict = Offer { ciphers: vec![Cipher::Aes256Gcm], ..there() };
    assert_eq!(plan(&offer(), &strict).cipher, Cipher::Aes256Gcm);
    assert_eq!(plan(&no_aes, &strict).cipher, Cipher::Aes256Gcm);
    let only_chacha = Offer { ciphers: vec![Cipher::ChaCha20Poly1305], ..there() };
    assert_eq!(negotiate(&only_chacha, &strict, true), Err(Refusal::NoCommonCipher));
}

#[test]
fn payload_in_clear_needs_both_and_is_never_dropped_silently() {
    let asks = Offer { integrity_only: true, ..offer() };
    assert_eq!(negotiate(&asks, &there(), true), Err(Refusal::IntegrityOnlyRefused));
    assert!(plan(&asks, &Offer { integrity_only: true, ..there() }).integrity_only);
    assert!(!plan(&offer(), &Offer { integrity_only: true, ..there() }).integrity_only, "nobody asked");
}

#[test]
fn payload_that_nothing_vouches_for_needs_both_and_goes_over_streams() {
    let asks = Offer { integrity_only: true, bare: true, ..offer() };
    let allows_clear = Offer { integrity_only: true, ..there() };
    assert_eq!(negotiate(&asks, &allows_clear, true), Err(Refusal::IntegrityOnlyRefused), "to be in clear is less");
    let allows = Offer { bare: true, datagrams: 4, ..allows_clear };
    let agreed = plan(&Offer { datagrams: 2, ..asks }, &allows);
    assert_eq!((agreed.bare, agreed.integrity_only, agreed.datagrams), (true, true, 0));
    let clear = plan(&Offer { integrity_only: true, ..offer() }, &allows);
    assert!(clear.integrity_only && !clear.bare, "nobody asked");
}

#[test]
fn the_digest_is_the_initiators_wish_if_it_is_allowed() {
    let crc = Offer { digests: vec![DigestKind::Crc64], ..offer() };
    assert_eq!(plan(&offer(), &there()).digest, DigestKind::Blake3);
    assert_eq!(plan(&crc, &there()).digest, DigestKind::Crc64);
    let strict = Offer { digests: vec![DigestKind::Blake3], ..there() };
    assert_eq!(negotiate(&crc, &strict, true), Err(Refusal::NoCommonDigest));
}

#[test]
fn the_smaller_cap_is_the_rate() {
    let rate = |one, other| plan(&Offer { rate_bps: one, ..offer() }, &Offer { rate_bps: other, ..there() }).rate_bps;
    assert_eq!((rate(0, 0), rate(5, 0), rate(0, 7), rate(5, 7), rate(9, 7)), (0, 5, 7, 5, 7));
}

#[test]
fn datagrams_are_taken_where_both_want_them_and_paced_as_the_initiator_says() {
    let wants =
        Offer { datagrams: 2, pace: Pace { policy: Policy::Low, min_bps: 9_000, ..Pace::default() }, ..offer() };
    assert_eq!(plan(&wants, &there()).datagrams, 0, "the acceptor takes none");
    assert_eq!(plan(&offer(), &Offer { datagrams: 4, ..there() }).datagrams, 0, "nobody asked");
    let takes = Offer { datagrams: 16, rate_bps: 8_000, ..there() };
    let agreed = plan(&wants, &takes);
    assert_eq!((agreed.datagrams, agreed.pace.policy, agreed.pace.min_bps), (2, Policy::Low, 8_000));
    assert_eq!(plan(&wants, &Offer { streams_max: 1, ..takes }).datagrams, 1, "within the cap on rails");
}

#[test]
fn versions_meet_at_the_highest_in_common_or_not_at_all() {
    assert_eq!(agree_version((1, 1), (1, 1)), Ok(1));
    assert_eq!(agree_version((1, 3), (2, 5)), Ok(3));
    assert_eq!(agree_version((2, 5), (1, 3)), Ok(3));
    assert_eq!(agree_version((1, 1), (2, 5)), Err(Refusal::VersionTooOld));
    assert_eq!(agree_version((2, 5), (1, 1)), Err(Refusal::VersionTooOld));
}

proptest! {
    // A case that fails becomes a test with a name; no file of seeds beside the source.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_plan_exceeds_a_cap_and_every_choice_has_a_reason(
        (cores, memory, streams, most, chunk, rate) in any::<((u16, u16), (u64, u64), (u16, u16), (u16, u16), (u32, u32), (u64, u64))>(),
        same_host in any::<bool>(), sends in any::<bool>(),
    ) {
        let one = Offer { cores: cores.0, memory_bytes: memory.0, streams: streams.0, streams_max: most.0,
                          chunk_bytes: chunk.0, rate_bps: rate.0, ..offer() };
        let base = if same_host { offer() } else { there() };
        let other = Offer { cores: cores.1, memory_bytes: memory.1, streams: streams.1, streams_max: most.1,
                            chunk_bytes: chunk.1, rate_bps: rate.1, ..base };
        let (plan, choices) = negotiate(&one, &other, sends).expect("same ciphers and digests");
        prop_assert_eq!(&negotiate(&one, &other, sends).expect("pure").0, &plan);
        prop_assert!(plan.streams >= 1 && plan.streams <= plan.streams_max);
        prop_assert!(plan.streams_max <= most.0.min(most.1).max(1));
        prop_assert!(plan.workers.0 >= 1 && plan.workers.0 <= cores.0.clamp(1, WORKERS_MAX));
        prop_assert!(plan.workers.1 >= 1 && plan.workers.1 <= cores.1.clamp(1, WORKERS_MAX));
        prop_assert!(plan.chunk_bytes.is_power_of_two() && (20..=24).contains(&plan.chunk_bytes.ilog2()));
        for cap in [rate.0, rate.1].into_iter().filter(|&cap| cap != 0) {
            prop_assert!(plan.rate_bps != 0 && plan.rate_bps <= cap);
        }
        prop_assert!(choices.len() >= 8);
        for choice in choices {
            prop_assert!(!choice.value.is_empty() && !choice.reason.is_empty());
        }
    }
}

#[test]
fn a_plan_made_anew_is_that_of_a_job_begun_so_and_comes_back_with_the_cores() {
    let (here, there) = (offer(), there());
    let first = plan(&here, &there);
    let halved = Offer { cores: 2, ..there.clone() };
    let (anew, why) = replan(&first, &here, &halved, true);
    assert_eq!((anew.workers, anew.streams), ((8, 2), 2), "what a job begun with two cores there would have: {why}");
    assert_eq!(anew, Plan { memory: first.memory, ..plan(&here, &halved) });
    assert!(why.contains("one per worker of the smaller end"), "{why}");
    assert_eq!(replan(&first, &here, &there, true).0, first, "the cores are back, and so is the plan");
    let more = Offer { cores: 64, ..there.clone() };
    assert_eq!(replan(&first, &here, &more, true).0, first, "workers that were not made cannot be used");
    let asked = Offer { streams: 3, ..here.clone() };
    assert_eq!(replan(&plan(&asked, &there), &asked, &halved, true).0.streams, 3, "the user's word stays");
}

proptest! {
    #[test]
    fn no_plan_made_anew_exceeds_the_first_or_touches_what_bytes_depend_on(
        cores in (1u16..40, 1u16..40), now in (1u16..40, 1u16..40), streams in 0u16..80, most in (1u16..64, 1u16..64), sends: bool,
    ) {
        let (here, there) = (Offer { cores: cores.0, streams, ..offer() }, Offer { cores: cores.1, streams_max: most.0, ..there() });
        let first = negotiate(&here, &there, sends).expect("they agree").0;
        // An end may say anything of itself the second time, more memory and streams than at first, too.
        let (here, there) = (Offer { cores: now.0, ..here }, Offer { cores: now.1, streams_max: most.1, memory_bytes: 1 << 40, ..there });
        let (anew, _) = replan(&first, &here, &there, sends);
        prop_assert!(anew.workers.0 <= first.workers.0 && anew.workers.1 <= first.workers.1);
        prop_assert!((1..=first.streams_max).contains(&anew.streams) && anew.workers.0 > 0 && anew.workers.1 > 0);
        prop_assert_eq!(Plan { workers: first.workers, streams: first.streams, ..anew }, first);
    }
}

#[test]
fn queue_pairs_need_the_same_kind_at_both_ends_and_a_device_goes_before_an_emulation() {
    let has = |device, emulated| RdmaOffer { device, emulated };
    for (here, far, agreed) in [
        (has(false, false), has(true, true), None),
        (has(true, false), has(false, true), None),
        (has(true, true), has(false, true), Some(RdmaKind::Emulated)),
        (has(true, true), has(true, true), Some(RdmaKind::Device)),
    ] {
        let plan = plan(&Offer { rdma: here, datagrams: 2, ..offer() }, &Offer { rdma: far, datagrams: 2, ..there() });
        assert_eq!((plan.rdma, plan.datagrams == 0), (agreed, agreed.is_some()), "{here:?} {far:?}");
    }
}
