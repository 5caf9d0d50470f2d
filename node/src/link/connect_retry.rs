//! Connecting again to a daemon that is overloaded.
//!
//! For: a client that gets in although a flood of strangers has the daemon close connections before their handshake is done.
//! In and out: a way to connect in; its session, or the last reason why there is none, out.
//! Invariants: only what a crowd can cause is tried again, and not for longer than `OVERLOADED`; a key that is wrong, unknown or
//! revoked never is: asking again would not make it right.
//! Absent on purpose: connecting (link), what is said afterwards (session).

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use crate::link::LinkError;

/// A door that is there but closes again gets this long: a daemon shows strangers out within it.
const OVERLOADED: Duration = Duration::from_secs(10);
/// Where nobody listens: long enough for a daemon that is being started again, short enough for a wrong port.
const NOBODY: Duration = Duration::from_secs(1);
/// The first pause; each is twice the one before.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// And the longest, so that the last seconds still hold a few attempts.
const PAUSE_MAX: Duration = Duration::from_millis(1600);

/// For how long in all an attempt that failed like this is worth another; `None`: not at all.
fn patience(error: &LinkError) -> Option<Duration> {
    match error {
        LinkError::Cut => Some(OVERLOADED),
        LinkError::Connect { source, .. } | LinkError::Io { source, .. } => match source.kind() {
            ErrorKind::ConnectionRefused => Some(NOBODY),
            ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => Some(OVERLOADED),
            _ => None,
        },
        _ => None,
    }
}

/// Connects, again if need be. `note` is told before each pause.
pub fn until_let_in<T>(
    mut connect: impl FnMut() -> Result<T, LinkError>,
    mut note: impl FnMut(&str),
) -> Result<T, LinkError> {
    let since = Instant::now();
    let mut pause = PAUSE_MIN;
    loop {
        let error = match connect() {
            Ok(session) => return Ok(session),
            Err(error) => error,
        };
        let left = patience(&error).map_or(Duration::ZERO, |whole| whole.saturating_sub(since.elapsed()));
        if left.is_zero() {
            return Err(error);
        }
        let wait = pause.min(left);
        note(&format!("{error}; trying again in {} ms", wait.as_millis()));
        std::thread::sleep(wait);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::TcpListener;

    use super::*;
    use crate::identity::Identity;
    use crate::link::{Expect, Link};

    fn refused() -> LinkError {
        LinkError::Connect { host_port: "h:1".to_owned(), source: io::Error::from(ErrorKind::ConnectionRefused) }
    }

    #[test]
    fn a_server_that_closes_is_connected_to_again() {
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = door.local_addr().unwrap().to_string();
        let (server, client) = (Identity::ephemeral().unwrap(), Identity::ephemeral().unwrap());
        let key = server.public();
        let daemon = std::thread::spawn(move || {
            for _ in 0..2 {
                drop(door.accept().unwrap());
            }
            Link::accept(door.accept().unwrap().0, &server, OVERLOADED).map(|link| link.peer_key())
        });
        let mut notes = 0;
        let connect = || Link::connect(&address, &client, Expect::Key(key), OVERLOADED);
        let link = until_let_in(connect, |_| notes += 1).unwrap();
        assert_eq!((link.peer_key(), notes), (key, 2));
        assert_eq!(daemon.join().unwrap().unwrap(), client.public());
    }

    #[test]
    fn a_wrong_key_is_not_asked_again() {
        let table = [
            LinkError::PeerUnknown { host_port: "h:1".to_owned(), key: [1; 32] },
            LinkError::PeerChanged { host_port: "h:1".to_owned(), key: [1; 32] },
            LinkError::PeerWrong { host_port: "h:1".to_owned(), key: [1; 32], wanted: [2; 32] },
            LinkError::PeerRevoked { host_port: "h:1".to_owned(), key: [1; 32] },
            LinkError::NotLonghaul,
        ];
        for error in table {
            let mut error = Some(error);
            let refused = until_let_in::<()>(|| Err(error.take().expect("asked once")), |_| panic!("a second attempt"));
            refused.unwrap_err();
        }
    }

    #[test]
    fn nobody_at_the_port_is_told_within_a_second_or_so() {
        let since = Instant::now();
        let mut attempts = 0;
        let count = || {
            attempts += 1;
            Err(refused())
        };
        until_let_in::<()>(count, |_| {}).unwrap_err();
        assert!((NOBODY..NOBODY * 3).contains(&since.elapsed()), "{:?}", since.elapsed());
        assert_eq!(attempts, 5);
    }
}
