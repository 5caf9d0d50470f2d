//! A control session's connection on a path that loses: the kernel's timers, by the round trip.
//!
//! For: a session with a few small segments on their way, where nothing comes after a lost one that would show the loss: only a timer does.
//! In and out: a connected socket in; its options set, where the kernel has them.
//! Invariants: no timer is shorter than the round trip that the kernel has measured, but for the first repeat of all on a path longer than a second
//! (it goes after one); how long a connection lives without an answer stays as the kernel has it.
//! Absent on purpose: data rails (their streams are thick: fast retransmit finds their losses), the SYN, for which there is no option (handshake.rs).
//!
//! Linux waits three round trips for the first answer on a connection (RFC 6298 with one sample), at least the round trip and 200 ms, and twice as
//! long each time: a lost Open cost 3 s and 9 s over a second of round trip (docs/design/036).

use std::os::fd::AsFd;
use std::time::Duration;

use sys::sock::LossTimers;

/// What is added to the round trip at least: the other end's delayed acknowledgement and a late timer of a virtual machine (10 ms each), instead
/// of Linux' 200 ms.
const ABOVE_RTT_MIN: Duration = Duration::from_millis(20);
/// The kernel takes no more than its own 200 ms.
const ABOVE_RTT_MAX: Duration = Duration::from_millis(200);
/// An acknowledgement waits at most so long for words to go with.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(10);
/// Its own upper bound.
const KERNELS_LONGEST: Duration = Duration::from_secs(120);
/// The kernel allows no upper bound below this.
const RTO_MAX_MIN: Duration = Duration::from_secs(1);
/// Linux gives a connection up after 15 repeats, 924.6 s with its own timers (tcp(7), tcp_retries2); with shorter ones that is to stay so.
const GIVE_UP: Duration = Duration::from_secs(925);

/// For a socket that is not connected yet, or that listens: the first timer is computed when the connection is made, and not again before an answer
/// came. What is longer by the path follows with `set`.
pub fn set_first(socket: impl AsFd) {
    sys::sock::set_loss_timers(&socket, &timers(Duration::ZERO, HANDSHAKE_QUARTERS));
}

/// The kernel's own again, for a connection that carries bulk data: its losses are found without timers, and a late acknowledgement is no loss.
pub fn set_bulk(socket: impl AsFd) {
    let _ = sys::sock::set_loss_timers(
        &socket,
        &LossTimers {
            above_rtt: ABOVE_RTT_MAX,
            longest: KERNELS_LONGEST,
            acknowledge: ABOVE_RTT_MAX,
            give_up: Duration::ZERO,
        },
    );
}

/// Sets the timers by what the kernel knows of the path now. `quarters`: how many quarters of a round trip a repeat waits at most (at least a second).
pub(super) fn set(socket: impl AsFd, quarters: u32) {
    let Ok(info) = sys::sock::tcp_info(&socket) else { return };
    let rtt = Duration::from_micros(info.rtt_us.into());
    sys::sock::set_loss_timers(&socket, &timers(rtt, quarters));
}

fn timers(rtt: Duration, quarters: u32) -> LossTimers {
    LossTimers {
        above_rtt: (rtt / 4).clamp(ABOVE_RTT_MIN, ABOVE_RTT_MAX),
        longest: RTO_MAX_MIN.max(rtt * quarters / 4),
        acknowledge: ACKNOWLEDGED_WITHIN,
        give_up: GIVE_UP,
    }
}

/// In the handshake, when nothing queues yet: a repeat after six quarters of the round trip.
pub(super) const HANDSHAKE_QUARTERS: u32 = 6;
/// Beside data, which may fill a queue: twice the round trip as it is then.
pub(super) const JOB_QUARTERS: u32 = 8;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn timers_follow_the_round_trip_and_never_undercut_it() {
        for rtt_ms in [0, 1, 10, 100, 600, 1000, 3000] {
            let rtt = Duration::from_millis(rtt_ms);
            let LossTimers { above_rtt, longest, .. } = timers(rtt, HANDSHAKE_QUARTERS);
            assert!(longest >= rtt * 3 / 2 && longest >= RTO_MAX_MIN);
            assert!((ABOVE_RTT_MIN..=ABOVE_RTT_MAX).contains(&above_rtt));
        }
        assert_eq!(timers(Duration::from_secs(1), HANDSHAKE_QUARTERS).longest, Duration::from_millis(1500));
        assert_eq!(timers(Duration::from_millis(10), JOB_QUARTERS).above_rtt, ABOVE_RTT_MIN);
    }

    #[test]
    fn a_kernel_that_has_the_options_takes_these_values() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let here = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        // Which ones the running kernel has is its matter: a value that it refuses as wrong is ours.
        let refused = sys::sock::set_loss_timers(&here, &timers(Duration::from_millis(900), HANDSHAKE_QUARTERS));
        assert_eq!(refused, 0, "options that exist and refuse the value");
    }
}
