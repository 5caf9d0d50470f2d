//! The decision over paths as they are.
//!
//! Absent on purpose: sockets (job::train), trials (steer).

use super::*;
use crate::probe::seen::Train;
use model::Limit;

const MB: u64 = 1_000_000;

fn host(law: TcpLaw) -> Host {
    Host { law, rails: (2, 16), window_bytes: 16e6, tcp_bps: 5e9, udp_bps: 2.5e9, cap_bps: 0.0, disk_bps: 0.0 }
}

fn path(rtt_ms: f64, rate_bps: Option<f64>, lost: u64, looked: u64) -> View {
    View { rtt_s: rtt_ms / 1e3, looked, lost, rate_bps, packet_bytes: 1500, queue_s: 0.0 }
}

fn carry(rtt_ms: f64, rate_bps: Option<f64>, lost: u64, law: TcpLaw) -> Carry {
    forecast(&path(rtt_ms, rate_bps, lost, 1000), &host(law), Some(1000 * MB)).carry
}

#[test]
fn streams_where_they_fill_the_path_and_datagrams_where_loss_times_distance_makes_them_lose() {
    use Carry::{Tcp, Udp};
    let table = [
        // rtt, link, lost of 1000
        (0.2, None, 0, Tcp),
        (0.2, Some(1e9), 0, Tcp),
        (2.0, Some(1e9), 0, Tcp),
        (20.0, Some(10e6), 0, Tcp),
        (20.0, Some(1e9), 0, Udp),
        (20.0, Some(1e9), 1, Udp),
        (100.0, Some(1e9), 0, Udp),
        (100.0, Some(1e9), 10, Udp),
        (100.0, Some(10e6), 10, Udp),
        (2.0, Some(1e9), 10, Udp),
        (550.0, Some(155e6), 50, Udp),
    ];
    for (rtt_ms, rate, lost, wanted) in table {
        assert_eq!(carry(rtt_ms, rate, lost, TcpLaw::Cubic), wanted, "{rtt_ms} ms, {rate:?}, {lost}");
    }
    assert_eq!(carry(100.0, Some(1e9), 10, TcpLaw::Bbr), Udp);
}

#[test]
fn both_where_neither_fills_the_path_by_itself() {
    let host = Host { window_bytes: 10e6, ..host(TcpLaw::Bbr) };
    // 2 rails of 10 MB over 50 ms are 3.2 Gbit/s, one core of datagrams 2.5, and the link carries 20.
    let both = forecast(&path(50.0, Some(20e9), 0, 1000), &host, Some(100_000 * MB));
    assert_eq!((both.carry, both.tcp.limit, both.udp.limit), (Carry::Both, Limit::Window, Limit::Host));
    assert!(both.gain() > 1.25, "{}", both.gain());
    // Where the link is all there is, both would only share it.
    assert_ne!(forecast(&path(50.0, Some(3e9), 0, 1000), &host, Some(100_000 * MB)).carry, Carry::Both);
}

#[test]
fn the_slower_disk_is_in_what_is_expected_and_not_in_what_is_chosen() {
    let slow = Host { disk_bps: 800e6, ..host(TcpLaw::Cubic) };
    for view in [path(0.2, None, 0, 64), path(100.0, Some(2e9), 10, 1000), path(20.0, Some(10e6), 0, 64)] {
        let (with, without) =
            (forecast(&view, &slow, Some(1000 * MB)), forecast(&view, &host(TcpLaw::Cubic), Some(1000 * MB)));
        assert_eq!((with.carry, with.chosen()), (without.carry, without.chosen()));
        let least = without.chosen().rate_bps.min(800e6);
        assert_eq!(with.expected().rate_bps, least);
        assert_eq!(with.expected().limit == Limit::Disk, least == 800e6);
        assert_eq!(without.expected(), without.chosen(), "no disk is known");
    }
    // Ten seconds and the round trips; a job that the page cache takes is no matter of disks.
    let near = path(0.2, None, 0, 64);
    let seconds = forecast(&near, &slow, Some(1000 * MB)).expected().seconds(1000 * MB);
    assert!((10.0..10.1).contains(&seconds), "{seconds}");
    assert_ne!(forecast(&near, &slow, Some(MB)).expected().limit, Limit::Disk);
}

#[test]
fn a_small_job_goes_by_what_its_few_round_trips_are() {
    let far = path(500.0, Some(1e9), 0, 16);
    let carry = |bytes| forecast(&far, &host(TcpLaw::Cubic), Some(bytes)).carry;
    // The greeting went ahead; a connection would still have to be made.
    assert_eq!((carry(1), carry(model::SMALL_BYTES)), (Carry::Udp, Carry::Udp));
    let gain = |bytes| forecast(&far, &host(TcpLaw::Cubic), Some(bytes)).gain();
    assert!(
        gain(1) < 1.2 && gain(model::SMALL_BYTES) > 1.5,
        "windows would have to double first: {}",
        gain(model::SMALL_BYTES)
    );
    // Nothing to gain where the look was no better than TCP's guess of the path.
    let near = forecast(&path(5.0, Some(20e6), 0, 16), &host(TcpLaw::Cubic), Some(model::SMALL_BYTES));
    assert_eq!(near.carry, Carry::Tcp, "{near:?}");
}

#[test]
fn each_limit_is_named() {
    let cubic = host(TcpLaw::Cubic);
    let tcp = |view: &View, host: &Host| forecast(view, host, None).tcp.limit;
    assert_eq!(tcp(&path(20.0, Some(10e6), 0, 64), &cubic), Limit::Link);
    assert_eq!(tcp(&path(100.0, Some(1e9), 10, 1000), &cubic), Limit::Loss);
    assert_eq!(tcp(&path(0.2, None, 0, 64), &cubic), Limit::Host);
    let narrow = Host { window_bytes: 1e5, ..host(TcpLaw::Bbr) };
    assert_eq!(tcp(&path(100.0, Some(1e9), 0, 1000), &narrow), Limit::Window);
    let capped = Host { cap_bps: 1e6, ..cubic };
    let capped = forecast(&path(20.0, Some(1e9), 0, 64), &capped, None);
    assert_eq!((capped.tcp.limit, capped.udp.limit), (Limit::Cap, Limit::Cap));
}

#[test]
fn more_loss_or_distance_is_never_expected_to_be_faster() {
    for law in [TcpLaw::Cubic, TcpLaw::Bbr] {
        for rtt_ms in [0.1, 1.0, 10.0, 100.0, 1000.0] {
            for lost in [0, 1, 10, 100, 300] {
                let here = forecast(&path(rtt_ms, Some(1e9), lost, 1000), &host(law), Some(1000 * MB));
                for worse in [path(rtt_ms * 2.0, Some(1e9), lost, 1000), path(rtt_ms, Some(1e9), lost * 2 + 1, 1000)] {
                    let there = forecast(&worse, &host(law), Some(1000 * MB));
                    assert!(there.tcp.rate_bps <= here.tcp.rate_bps * 1.0001, "{law:?} {rtt_ms} {lost}");
                    assert!(there.udp.rate_bps <= here.udp.rate_bps * 1.0001, "{law:?} {rtt_ms} {lost}");
                }
            }
        }
    }
}

#[test]
fn absurd_facts_give_finite_figures() {
    let absurd = [0.0, -1.0, f64::MIN_POSITIVE, 1e30, f64::INFINITY, f64::NAN];
    for value in absurd {
        for rate in absurd {
            let view = View {
                rtt_s: value,
                looked: u64::MAX,
                lost: u64::MAX,
                rate_bps: Some(rate),
                packet_bytes: 0,
                queue_s: value,
            };
            let host = Host { window_bytes: value, tcp_bps: rate, udp_bps: rate, rails: (0, 0), ..host(TcpLaw::Cubic) };
            let found = forecast(&view, &host, Some(u64::MAX));
            for guess in [found.tcp, found.udp] {
                assert!(guess.rate_bps >= 1.0 && guess.rate_bps.is_finite(), "{value} {rate} {guess:?}");
            }
            assert!(!forecast_words(&found).is_empty());
        }
    }
}

#[test]
fn nothing_known_means_streams_and_a_train_gives_the_view() {
    let unknown = Known { rtt: Duration::ZERO, again: 0, mtu: 1500, host: host(TcpLaw::Cubic) };
    assert_eq!(unknown.forecast(None, None).carry, Carry::Tcp);
    let known = Known { rtt: Duration::from_millis(20), ..unknown };
    let train = Train { sent: 64, arrived: 62, last: 63, span: Duration::from_micros(61 * 12), packet_bytes: 1472 };
    let seen = Seen { rtt: Duration::from_millis(21), packet_bytes: 1472, train: Some(train) };
    let view = known.view(Some(&seen));
    assert_eq!((view.looked, view.lost, view.packet_bytes), (64, 2, 1500));
    assert!((view.rtt_s - 0.02).abs() < 1e-9 && (view.rate_bps.unwrap() - 1e9).abs() < 2e7, "{view:?}");
    let found = known.forecast(Some(&seen), Some(500 * MB));
    assert_eq!(found.carry, Carry::Udp);
    let words = format!("{}: {}", forecast_words(&found), path_words(&view));
    assert!(words.starts_with("UDP for 500 MB: expected 8") && words.contains("2 of 64 packets lost"), "{words}");
    // Our own processor is no link.
    let fast = Train { span: Duration::from_micros(60), ..train };
    assert_eq!(known.view(Some(&Seen { train: Some(fast), ..seen })).rate_bps, None);
}
