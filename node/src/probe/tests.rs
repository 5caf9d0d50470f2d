//! What is known of a path, in numbers and in words.
//!
//! Absent on purpose: the choice (proto::session::transport), sockets (job::udp::packet_train).

use proto::session::Moment;
use proto::session::transport::forecast::forecast;
use proto::session::transport::{Before, First, TransportChoice};

use super::*;
use crate::probe::result::Train;

const MB: u64 = 1_000_000;

fn host(controller: TcpController) -> Host {
    Host {
        controller,
        rails: (2, 16),
        window_bytes: 16e6,
        tcp_bps: 5e9,
        udp_bps: 2.5e9,
        cap_bps: 0.0,
        storage: Storage::default(),
        is_one_host: false,
    }
}

#[test]
fn absurd_facts_have_words() {
    let absurd = [0.0, -1.0, f64::MIN_POSITIVE, 1e30, f64::INFINITY, f64::NAN];
    for value in absurd {
        for rate in absurd {
            let (looked, lost) = (u64::MAX, u64::MAX);
            let view = View { rtt_s: value, looked, lost, rate_bps: Some(rate), packet_bytes: 0, queue_s: value };
            let host =
                Host { window_bytes: value, tcp_bps: rate, udp_bps: rate, rails: (0, 0), ..host(TcpController::Cubic) };
            assert!(!forecast_words(&forecast(&view, &host, Some(u64::MAX)), u64::MAX).is_empty());
        }
    }
}

#[test]
fn nothing_known_means_streams_and_a_train_gives_the_view() {
    let unknown = Known { rtt: Duration::ZERO, again: 0, mtu: 1500, host: host(TcpController::Cubic), is_asked: true };
    let (now, host) = (Moment::default(), unknown.host);
    let before = Before { look: None, bytes: None, early_answered: None, is_storage_looked_at: false };
    let mut choice = TransportChoice::new(now, Duration::ZERO, unknown.view(None), host);
    let First::Decided { forecast: first, .. } = choice.next_first(now, &before) else { panic!("nothing to wait for") };
    assert_eq!(first.carry, Carry::Tcp);
    let known = Known { rtt: Duration::from_millis(20), ..unknown };
    let train =
        Train { sent: 64, arrived: 62, last: 63, span: Duration::from_micros(61 * 12), packet_bytes: 1472, doubt: 0 };
    let seen = Seen { rtt: Duration::from_millis(21), packet_bytes: 1472, train: Some(train) };
    let view = known.view(Some(&seen));
    assert_eq!((view.looked, view.lost, view.packet_bytes), (64, 2, 1500));
    assert!((view.rtt_s - 0.02).abs() < 1e-9 && (view.rate_bps.unwrap() - 1e9).abs() < 2e7, "{view:?}");
    let found = forecast(&view, &host, Some(500 * MB));
    assert_eq!(found.carry, Carry::Udp);
    let words = format!("{}: {}", forecast_words(&found, 1), path_words(&view));
    assert!(words.starts_with("UDP for 500 MB: expected 8") && words.contains("2 of 64 packets lost"), "{words}");
    // Our own processor is no link.
    let fast = Train { span: Duration::from_micros(60), ..train };
    assert_eq!(known.view(Some(&Seen { train: Some(fast), ..seen })).rate_bps, None);
}
