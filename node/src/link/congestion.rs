//! TCP's congestion control of a connection, from before it is made.
//!
//! For: rails and listeners: BBR over distance, CUBIC on short paths, nothing that paces there.
//! In and out: a socket in; its congestion control set, where this host permits it.
//! Invariants: what an administrator chose beside the kernel's defaults (BBR, CUBIC, Reno) stays over distance; where something is not permitted the
//! connection is slower, not wrong.
//! Absent on purpose: datagrams, whose congestion control is our own (`proto::rate`).

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::sync::OnceLock;

/// Below this round trip, loss means a full queue on a short path: CUBIC. BBR's pacing timers cost five times the CPU there
/// (measured, LIMITS: 11 against 60 Gb/s).
const SHORT_PATH_US: u32 = 5_000;

/// TCP's congestion control for a rail, where it is not the system's own. Over distance BBR, which does not take a chance loss for a full queue: of
/// 40 MB over 155 Mbit/s, 90 ms and 1 % CUBIC had brought 24 MB after 40 s, BBR all in 5 s (docs/design/039-auto-by-default.md); what a system's
/// administrator chose beside the two that kernels have as defaults stays.
fn controller_of(is_short: bool, own: &str) -> Option<&'static str> {
    match (is_short, own) {
        (true, "cubic") | (false, "bbr") => None,
        (true, _) => Some("cubic"),
        (false, "cubic" | "reno") => Some("bbr"),
        (false, _) => None,
    }
}

/// The system's own, of a socket that nobody has touched.
fn own() -> &'static str {
    static OWN: OnceLock<String> = OnceLock::new();
    OWN.get_or_init(|| {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        socket.and_then(|socket| sys::sock::get_congestion(&socket)).unwrap_or_default()
    })
}

/// Do rails over distance use BBR here? It must be permitted, net.ipv4.tcp_allowed_congestion_control, or this process be root.
#[must_use]
pub fn is_bbr_over_distance() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let Ok(socket) = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)) else { return false };
        own() == "bbr"
            || controller_of(false, own()).is_some_and(|name| sys::sock::set_congestion(&socket, name).is_ok())
    })
}

/// For a socket that is not connected yet, or that listens. BBR begins to pace with the connection, and the kernel then paces it for good, by timers,
/// also when another congestion control takes BBR's place (net/ipv4/tcp_bbr.c, bbr_init: `sk_pacing_status` never goes back). So no connection begins
/// with BBR; over distance it takes over (`settle`, `restore`). veth, tmpfs to tmpfs, one stream of sendfile, CUBIC set before connecting or after:
/// 0.58 and 0.86 CPU s/GB of both ends, 7.7 and 3.0 Gb/s (medians of 6 rounds in turn, load 19, Linux 6.18, 2026-11).
pub fn begin(fd: impl AsFd) {
    if sys::sock::get_congestion(&fd).is_ok_and(|now| now == "bbr") {
        // Reno is permitted to everybody, and is as good where nothing is lost.
        let _ = sys::sock::set_congestion(&fd, "cubic").or_else(|_| sys::sock::set_congestion(&fd, "reno"));
    }
}

/// For a rail that is connected: what suits the path.
pub fn settle(fd: impl AsFd) {
    let now = sys::sock::get_congestion(&fd).unwrap_or_default();
    if let Some(name) = controller_of(is_short(&fd), &now) {
        let _ = sys::sock::set_congestion(&fd, name);
    }
}

/// For a connection that came over a listener which began without BBR, and of which nothing else is known yet: over distance what the system has.
pub fn restore(fd: impl AsFd) {
    if own() == "bbr" && !is_short(&fd) {
        let _ = sys::sock::set_congestion(&fd, own());
    }
}

fn is_short(fd: impl AsFd) -> bool {
    sys::sock::tcp_info(fd).is_ok_and(|info| info.rtt_us < SHORT_PATH_US)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn rails_over_distance_are_bbrs_and_short_ones_cubics_and_an_administrators_own_choice_stays() {
        let table = [
            (true, "bbr", Some("cubic")),
            (true, "cubic", None),
            (true, "dctcp", Some("cubic")),
            (false, "cubic", Some("bbr")),
            (false, "reno", Some("bbr")),
            (false, "bbr", None),
            (false, "dctcp", None),
        ];
        for (is_short, own, wanted) in table {
            assert_eq!(controller_of(is_short, own), wanted, "{is_short} {own}");
        }
        // Whatever this kernel permits: what is expected of rails is what a socket gets.
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let own = sys::sock::get_congestion(&socket).expect("its controller");
        let is_set = controller_of(false, &own).is_none_or(|name| sys::sock::set_congestion(&socket, name).is_ok());
        let is_bbr = is_set && sys::sock::get_congestion(&socket).expect("its controller") == "bbr";
        assert_eq!(is_bbr_over_distance(), is_bbr);
    }

    /// A connection whose both ends began as ours do, and some bytes over it.
    fn pair(begun: bool) -> [TcpStream; 2] {
        let listener = sys::sock::listen((Ipv4Addr::LOCALHOST, 0).into()).expect("a socket");
        if begun {
            begin(&listener);
        }
        let address = listener.local_addr().expect("it is bound");
        let mut near = sys::sock::connect_from(address, None, Duration::from_secs(5), |fd| {
            if begun {
                begin(fd);
            }
            Ok(())
        })
        .expect("somebody listens");
        let (mut far, _) = listener.accept().expect("it has come");
        far.write_all(b"!").expect("it is connected");
        near.read_exact(&mut [0]).expect("it came");
        [near, far]
    }

    #[test]
    fn a_short_connection_is_never_bbrs_not_even_when_it_begins() {
        for end in pair(true) {
            assert_ne!(sys::sock::get_congestion(&end).expect("its controller"), "bbr", "by then it would be paced");
            restore(&end);
            settle(&end);
            assert_ne!(sys::sock::get_congestion(&end).expect("its controller"), "bbr");
        }
        // One that nobody prepared is the system's.
        let [near, _far] = pair(false);
        assert_eq!(sys::sock::get_congestion(&near).expect("its controller"), own());
    }
}
