//! Whatever a peer makes the signals say, a controller stays a controller.
//!
//! For: the invariants of `proto::rate`: no panic, a rate between 1 and the greatest, bounds kept, determinism.
//! In and out: arbitrary signals, silences and settings in; the figures asserted after each.
//! Invariants: every controller, every policy.
//! Absent on purpose: whether the rates are good ones (`rate_path.rs`, `rate_fair.rs`).

use proptest::prelude::*;
use proto::rate::{Controller, ControllerKind, Policy, RATE_MAX, RateConfig, Signal};

#[derive(Debug, Clone)]
enum Act {
    Signal(Signal),
    Quiet(u64),
    Train(u64),
    Set(u64, RateConfig),
}

fn figure() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), Just(u64::MAX), 1..2_000u64, 1_000_000..2_000_000_000u64, any::<u64>()]
}

fn config() -> impl Strategy<Value = RateConfig> {
    let controller = prop_oneof![
        Just(ControllerKind::Delay),
        Just(ControllerKind::Bbr),
        Just(ControllerKind::Cubic),
        Just(ControllerKind::Fixed)
    ];
    let policy = prop_oneof![Just(Policy::Fixed), Just(Policy::High), Just(Policy::Fair), Just(Policy::Low)];
    (controller, policy, figure(), figure(), any::<u32>()).prop_map(
        |(controller, policy, target, min, packet_bytes)| RateConfig { controller, policy, target, min, packet_bytes },
    )
}

fn signal() -> impl Strategy<Value = Signal> {
    let times = (figure(), figure(), any::<i64>(), figure(), figure(), figure());
    let bytes = (figure(), figure(), figure(), figure(), figure(), figure(), any::<bool>());
    (times, bytes).prop_map(|((now_ns, rtt_ns, one_way_ns, interval_ns, sent_interval_ns, burst_before), bytes)| {
        let (delivered, passed, interval_bytes, lost, marked, in_flight, limited) = bytes;
        Signal {
            now_ns,
            rtt_ns,
            one_way_ns,
            burst_before,
            delivered,
            passed,
            interval_ns,
            interval_bytes,
            sent_interval_ns,
            lost,
            marked,
            in_flight,
            limited,
        }
    })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => signal().prop_map(Act::Signal),
        1 => figure().prop_map(Act::Quiet),
        1 => figure().prop_map(Act::Train),
        1 => (figure(), config()).prop_map(|(now, config)| Act::Set(now, config)),
    ]
}

/// Every figure a sender asks for.
fn figures(controller: &Controller) -> (u64, u64, u32, u64, u64, &'static str) {
    (
        controller.rate(),
        controller.window(),
        controller.burst(),
        controller.base_rtt_ns(),
        controller.queue_ns(),
        controller.phase(),
    )
}

fn play(first: RateConfig, acts: &[Act]) -> Vec<(u64, u64, u32, u64, u64, &'static str)> {
    let mut config = first;
    let mut controller = Controller::new(0, first);
    let mut said = Vec::new();
    for act in acts {
        match act {
            Act::Signal(signal) => controller.on_signal(signal),
            Act::Quiet(now) => controller.on_quiet(*now),
            Act::Train(now) => drop(controller.train(*now)),
            Act::Set(now, new) => {
                config = *new;
                controller.set(*now, config);
            }
        }
        let (rate, window, burst, ..) = figures(&controller);
        let packet = u64::from(config.packet_bytes.clamp(64, 65_536));
        let most = if config.target == 0 { RATE_MAX } else { config.target.min(RATE_MAX) };
        assert!((1..=most.max(1)).contains(&rate), "{rate} after {act:?} under {config:?}");
        assert!(rate >= config.min.min(most), "{rate} below the minimum of {config:?}");
        assert!(window >= 4 * packet, "window {window}");
        assert!(u64::from(burst) >= packet && burst <= 1 << 20, "burst {burst}");
        said.push(figures(&controller));
    }
    said
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_signal_breaks_a_law_and_the_same_signals_give_the_same_rates(
        first in config(),
        acts in proptest::collection::vec(act(), 1..120),
    ) {
        let once = play(first, &acts);
        prop_assert_eq!(once, play(first, &acts));
    }
}

#[test]
fn another_law_may_take_over_while_it_runs() {
    let base =
        RateConfig { controller: ControllerKind::Delay, policy: Policy::Fair, target: 0, min: 0, packet_bytes: 1500 };
    let mut controller = Controller::new(0, base);
    assert!(controller.train(0).is_some_and(|packets| packets > 0), "a start train");
    assert!(controller.train(1).is_none(), "only one");
    controller.set(5, RateConfig { controller: ControllerKind::Fixed, target: 1_000_000, ..base });
    assert_eq!((controller.rate(), controller.window(), controller.phase()), (1_000_000, u64::MAX, "fixed"));
    controller.set(6, RateConfig { controller: ControllerKind::Cubic, ..base });
    assert_eq!(controller.phase(), "slow start");
    controller.set(7, RateConfig { controller: ControllerKind::Bbr, ..base });
    assert_eq!(controller.phase(), "startup");
    // Without a target there is no rate to be fixed at: the delay controller finds one.
    controller.set(8, RateConfig { controller: ControllerKind::Fixed, policy: Policy::Fixed, ..base });
    assert_eq!(controller.phase(), "start");
}
