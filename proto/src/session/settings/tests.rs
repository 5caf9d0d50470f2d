//! Settings that users of both ends ask for, in virtual time.
//!
//! For: who may change what, and how often.
//! In and out: requests in; what is in force, and what is refused, checked.
//! Invariants: no clock.
//! Absent on purpose: rails and their rates (the engine).

use super::*;
use crate::negotiate::Offer;
use crate::session::replan::tests::{offer, plan};

fn at(ms: u64) -> Moment {
    Moment::from_ns(ms * 1_000_000)
}

/// A job of two hosts whose users gave these caps; `sends`: the initiator does.
fn ends(caps: (u64, u64), sends: bool) -> [(Settings, Facts); 2] {
    let offers = Offers {
        initiator: Offer { rate_bps: caps.0, ..offer(4) },
        acceptor: Offer { rate_bps: caps.1, ..offer(4) },
        is_initiator: true,
    };
    let plan = plan(&offers);
    let of = |is_initiator| {
        let offers = Offers { is_initiator, ..offers.clone() };
        let facts = Facts {
            controller: ControllerKind::Delay,
            policy: plan.pace.policy,
            uses_datagrams: true,
            sends: sends == is_initiator,
            initiates: is_initiator,
        };
        (Settings::new(at(0), Some(&offers), &plan), facts)
    };
    [of(true), of(false)]
}

const RATE: Change = Change { rate_bps: Some(50), min_bps: None, policy: None };

#[test]
fn a_cap_of_one_end_is_never_lifted_by_the_other() {
    let [(mut here, facts), (mut there, theirs)] = ends((0, 100), true);
    let changed = here.on_user(&Change { rate_bps: Some(500), ..RATE }, &facts).expect("it may");
    assert_eq!((changed.in_force.cap_bps, changed.is_peers_cap), (100, true));
    there.on_peer(changed.report);
    let change = there.next_peers(at(500), &theirs).expect("it is taken");
    assert_eq!((change.in_force.cap_bps, change.report), (100, None));
    let changed = here.on_user(&Change { rate_bps: Some(0), ..RATE }, &facts).expect("it may");
    assert_eq!(changed.in_force.cap_bps, 100, "no cap of its own");
    let changed = there.on_user(&Change { rate_bps: Some(0), ..RATE }, &theirs).expect("it may");
    assert_eq!(changed.in_force.cap_bps, 500, "the other end was not heard yet");
}

#[test]
fn what_a_job_cannot_have_is_refused_and_nothing_changes() {
    let [(mut here, facts), _] = ends((0, 0), true);
    let refused = |here: &mut Settings, change, facts: &Facts| here.on_user(&change, facts).expect_err("refused");
    let policy = |policy| Change { policy: Some(policy), ..Change::default() };
    assert_eq!(refused(&mut here, Change::default(), &facts), Refused::Nothing);
    let tcp = Facts { uses_datagrams: false, ..facts };
    assert_eq!(refused(&mut here, policy(Policy::High), &tcp), Refused::NoDatagrams);
    assert_eq!(refused(&mut here, Change { min_bps: Some(1), ..Change::default() }, &tcp), Refused::NoDatagrams);
    let cubic = Facts { controller: ControllerKind::Cubic, ..facts };
    assert_eq!(refused(&mut here, policy(Policy::High), &cubic), Refused::NoPolicies);
    assert_eq!(refused(&mut here, policy(Policy::Fixed), &facts), Refused::NoRate);
    let fixed = Facts { controller: ControllerKind::Fixed, ..facts };
    assert_eq!(refused(&mut here, Change { rate_bps: Some(0), ..RATE }, &fixed), Refused::NoRate);
    let all = [Refused::Nothing, Refused::NoDatagrams, Refused::NoPolicies, Refused::NoRate, Refused::NotSender];
    assert!(all.iter().all(|refused| !refused.reason().is_empty()));
    let changed = here.on_user(&RATE, &facts).expect("it may");
    assert_eq!(changed.in_force, InForce { cap_bps: 50, policy: facts.policy, min_bps: 0 });
}

#[test]
fn only_the_senders_user_claims_more_of_the_path() {
    let more = Change { policy: Some(Policy::High), ..Change::default() };
    let less = Change { policy: Some(Policy::Low), ..Change::default() };
    let [(mut here, facts), (mut there, theirs)] = ends((0, 0), true);
    assert_eq!(there.on_user(&more, &theirs), Err(Refused::NotSender));
    assert_eq!(there.on_user(&Change { min_bps: Some(1), ..Change::default() }, &theirs), Err(Refused::NotSender));
    // Nor by a peer that does not obey its own rule.
    here.on_peer(RequestedSettings { rate_bps: 0, policy: Policy::High, min_bps: 9 });
    assert_eq!(here.next_peers(at(500), &facts), None, "bounded to what its own user asked for: no change");
    let changed = there.on_user(&less, &theirs).expect("less is asked for");
    here.on_peer(changed.report);
    let change = here.next_peers(at(1000), &facts).expect("it is taken");
    assert_eq!(change.in_force.policy, Policy::Low);
    assert_eq!(change.report.map(|report| report.policy), Some(Policy::Low), "the sender's state counts");
    assert!(here.on_user(&more, &facts).is_ok(), "the sender's own user");
}

#[test]
fn a_peer_is_heard_twice_a_second_and_told_to_the_user_each_ten_seconds() {
    let [(mut here, facts), _] = ends((0, 0), true);
    let (mut taken, mut told) = (0, 0);
    for ms in (0..20_000).step_by(10) {
        here.on_peer(RequestedSettings { rate_bps: 1000 + ms, policy: facts.policy, min_bps: 0 });
        if let Some(change) = here.next_peers(at(ms), &facts) {
            taken += 1;
            told += u32::from(change.is_news);
        }
    }
    assert_eq!((taken, told), (39, 2));
}

#[test]
fn a_least_rate_is_no_more_than_the_cap() {
    let [(mut here, facts), _] = ends((0, 100), true);
    let changed = here.on_user(&Change { min_bps: Some(500), ..Change::default() }, &facts).expect("it may");
    assert_eq!((changed.in_force.min_bps, changed.report.min_bps), (100, 500));
    here.on_peer(RequestedSettings { rate_bps: 0, policy: facts.policy, min_bps: 500 });
    assert_eq!(here.take_peers(at(1), &facts).expect("at once").in_force.min_bps, 500, "the cap is gone");
}

#[test]
fn the_shown_rate_is_the_mean_of_the_last_span_and_before() {
    let mut shown = ShownRate::new(at(0));
    assert_eq!(shown.on_bytes(at(100), 1000), 0.0, "too soon");
    assert_eq!(shown.on_bytes(at(1000), 1000), 8000.0);
    assert_eq!(shown.on_bytes(at(2000), 3000), 12_000.0);
}
