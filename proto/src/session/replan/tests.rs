//! Plans of ends whose cores change, in virtual time.
//!
//! For: both ends have the same plan whenever their reports have crossed.
//! In and out: cores over time in; plans and their times checked.
//! Invariants: no clock.
//! Absent on purpose: how a plan is computed (`negotiate`).

use alloc::string::ToString;
use alloc::vec;

use super::*;
use crate::negotiate::{Cipher, Driver, Pace, StorageLook, negotiate};
use crate::wire::control::DigestKind;

fn at(ms: u64) -> Moment {
    Moment::from_ns(ms * 1_000_000)
}

/// An end with so many cores that allows all there is.
pub(in crate::session) fn offer(cores: u16) -> Offer {
    Offer {
        boot_id: cores.to_string(),
        cores,
        load_percent: 0,
        memory_bytes: 64 << 20,
        interfaces: vec![],
        drivers: vec![Driver::Uring, Driver::Plain],
        ciphers: vec![Cipher::Aes128Gcm],
        digests: vec![DigestKind::Blake3],
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
        pace: Pace::default(),
        rdma: crate::negotiate::RdmaOffer::default(),
    }
}

/// What both agree on; the initiator sends.
pub(in crate::session) fn plan(offers: &Offers) -> Plan {
    negotiate(&offers.initiator, &offers.acceptor, true).expect("they agree").0
}

/// Both ends of a job with so many cores; the initiator sends.
fn ends(here: u16, there: u16) -> [Replan; 2] {
    let offers = Offers { initiator: offer(here), acceptor: offer(there), is_initiator: true };
    let plan = plan(&offers);
    let theirs = Offers { is_initiator: false, ..offers.clone() };
    [Replan::new(at(0), offers, &plan, Some(here), true), Replan::new(at(0), theirs, &plan, Some(there), false)]
}

#[test]
fn both_ends_have_the_same_plan_once_their_reports_have_crossed_and_the_first_one_when_cores_are_back() {
    let [mut here, mut there] = ends(4, 4);
    let first = here.plan().clone();
    assert!(!there.is_due(at(999)) && there.is_due(at(1000)), "once a second");
    let (report, change) = there.on_cores(at(1000), Some(1), || 250).expect("fewer");
    assert_eq!(report, Resources { cores: 1, load_percent: 250 });
    let change = change.expect("another plan");
    assert_eq!((change.by_peer, change.cores, change.workers.0), (false, (4, 1), 1));
    here.on_peer(report);
    let change = here.next_change(at(1010)).expect("another plan");
    assert_eq!((change.by_peer, change.cores, change.workers.1), (true, (4, 1), 1));
    assert_eq!(here.plan(), there.plan());
    assert!(!here.is_first() && here.plan().streams < first.streams, "{:?}", here.plan());
    // Cores come back, and a report is sent although the other end changes in the same second.
    let (report, _) = there.on_cores(at(2000), Some(4), || 0).expect("back");
    let (ours, _) = here.on_cores(at(2000), Some(2), || 0).expect("fewer here");
    here.on_peer(report);
    there.on_peer(ours);
    here.next_change(at(2020)).expect("the peer's cores are back");
    there.next_change(at(2020)).expect("the initiator's are fewer");
    assert_eq!(here.plan(), there.plan());
    let (ours, _) = here.on_cores(at(3000), Some(8), || 0).expect("more than there were");
    assert_eq!(ours.cores, 4, "no more than the job began with");
    there.on_peer(ours);
    there.next_change(at(3020));
    assert!(here.is_first() && there.is_first() && *here.plan() == first);
}

#[test]
fn a_peer_causes_a_new_plan_twice_a_second_and_no_oftener() {
    let [mut here, _] = ends(4, 4);
    let mut changes = 0;
    for ms in 0..10_000 {
        here.on_peer(Resources { cores: 1 + (ms / 10 % 2) as u16 * 3, load_percent: 0 });
        changes += u32::from(here.next_change(at(ms)).is_some());
    }
    assert!(changes <= 20, "{changes}");
}

#[test]
fn the_users_word_stays_and_unknown_cores_change_nothing() {
    let offers = Offers { initiator: offer(2), acceptor: offer(4), is_initiator: true };
    let plan = plan(&offers);
    // Two cores were asked for of eight that there are.
    let mut here = Replan::new(at(0), offers, &plan, Some(8), true);
    assert_eq!(here.on_cores(at(1000), None, || 0), None);
    assert_eq!(here.on_cores(at(2000), Some(8), || 0), None);
    assert_eq!(here.on_cores(at(3000), Some(4), || 0), None, "two are still there");
    assert_eq!(here.on_cores(at(4000), Some(1), || 0).map(|(report, _)| report.cores), Some(1));
}

#[test]
fn rails_are_in_the_plan_if_their_workers_are_at_both_ends() {
    let [mut here, _] = ends(4, 4);
    let workers = here.plan().workers;
    assert!((0..64).all(|rail| here.is_in_plan(rail)));
    here.on_peer(Resources { cores: 1, load_percent: 0 });
    here.next_change(at(500)).expect("another plan");
    let planned: alloc::vec::Vec<u16> = (0..8).filter(|&rail| here.is_in_plan(rail)).collect();
    assert!(planned.iter().all(|rail| rail % workers.1 == 0) && !planned.is_empty(), "{workers:?} {planned:?}");
    here.on_settings(77, Policy::Low, 7);
    assert_eq!((here.plan().rate_bps, here.plan().pace.policy, here.plan().pace.min_bps), (77, Policy::Low, 7));
    assert!(!here.is_first());
}
