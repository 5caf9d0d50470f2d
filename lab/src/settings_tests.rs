//! Tests of settings.rs.
//!
//! For: the user's words. In and out: words → links, and back.
//! Invariants: what could mean two things is refused.
//! Absent on purpose: what the values do.

use super::*;

fn link(words: &str) -> LinkSettings {
    let mut link = LinkSettings::default();
    link.apply_all(words).unwrap();
    link
}

#[test]
fn words_count_for_both_directions_or_for_one() {
    let link = link("rate=100Mbit rtt=80ms loss=1% ab.rate=10Mbit ba.delay=5ms mtu=9000");
    assert_eq!(link.wires.map(|wire| wire.rate_bps), [10_000_000, 100_000_000]);
    assert_eq!(link.wires.map(|wire| wire.delay_ns), [40_000_000, 5_000_000]);
    assert_eq!((link.mtu, link.rtt_ns()), (9000, 45_000_000));
    assert_eq!(link.wires[BA].loss, Loss::Random(Share::from_ppb(10_000_000)));
}

#[test]
fn every_kind_of_value_is_read() {
    let wire = link(
        "jitter=bell:2ms,overtakes reorder=0.5%/3ms duplicate=0.0000001% corrupt=100% queue=1.5bdp police=20Mbit/64KiB ecn=5ms blackhole=1400 framing=38 down",
    )
    .wires[AB];
    assert_eq!(wire.jitter, Jitter { ns: 2_000_000, bell: true, overtakes: true });
    assert_eq!((wire.reorder, wire.reorder_ns), (Share::from_ppb(5_000_000), 3_000_000));
    assert_eq!((wire.duplicate, wire.corrupt), (Share::from_ppb(1), Share::ALWAYS));
    assert_eq!(wire.queue, Depth::BdpMilli(1500));
    assert_eq!((wire.police_bps, wire.police_bytes), (20_000_000, 64 << 10));
    assert_eq!(link("police=20Mbit/64KiB police=off"), LinkSettings::default());
    assert_eq!((wire.mark_ns, wire.black_hole_above, wire.framing_bytes, wire.up), (5_000_000, 1400, 38, false));
    assert_eq!(link("queue=256KiB").wires[AB].queue, Depth::Bytes(256 << 10));
    assert_eq!(link("queue=20ms").wires[AB].queue, Depth::Time(20_000_000));
    assert_eq!(link("queue=0.25bdp").wires[AB].queue, Depth::BdpMilli(250));
    assert_eq!(link("rate=1Gbit rate=none rtt=0 down up"), LinkSettings::default());
}

#[test]
fn bursts_are_told_by_their_mean_and_length() {
    let Loss::Bursts { worse, better, good, bad } = link("loss=burst:2%/8").wires[AB].loss else { panic!("bursts") };
    assert_eq!((better.ppb(), good, bad), (125_000_000, Share::NEVER, Share::ALWAYS));
    assert_eq!(worse.ppb(), 2_551_020);
    assert!((link("loss=burst:2%/8").wires[AB].loss.mean() - 0.02).abs() < 1e-6);
    let ge = link("loss=ge:0.1%/10%/0%/50%").wires[AB].loss;
    assert!((ge.mean() - 0.5 * 0.001 / 0.101).abs() < 1e-9);
}

#[test]
fn what_is_shown_is_read_back_to_the_same_link() {
    for words in [
        "",
        "rate=155Mbit rtt=550ms loss=0.1% queue=4bdp",
        "ab.loss=burst:1%/20 ba.jitter=bell:1500us,overtakes reorder=1%/3ms ecn=5ms",
        "rate=64kbit queue=20ms blackhole=1280 framing=38 mtu=65535 ba.down",
        "ab.rate=400Gbit queue=100000B duplicate=0.0001% corrupt=12.5%",
        "ab.police=1500kbit/1500B ba.police=10Gbit/1MiB",
    ] {
        let link = link(words);
        assert_eq!(self::link(&link.words()), link, "{words}");
    }
}

#[test]
fn what_means_nothing_or_two_things_is_refused() {
    for word in [
        "rate=5",
        "rate=5Mb",
        "rtt=80m",
        "loss=0.01",
        "loss=101%",
        "loss=burst:1%",
        "loss=burst:1%/0",
        "loss=burst:90%/1",
        "loss=ge:1%/2%/3%",
        "reorder=1%",
        "queue=7",
        "queue=bdp",
        "mtu=100",
        "mtu=70000",
        "cost=3",
        "ab.mtu.rate=1",
        "blackhole=12",
        "framing=x",
        "ca.rate=1Gbit",
    ] {
        let said = LinkSettings::default().apply(word);
        // A bare number of seconds is a time (units.rs), so `queue=7` is seven seconds.
        assert_eq!(said.is_ok(), word == "queue=7", "{word}: {said:?}");
    }
}
