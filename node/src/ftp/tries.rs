//! Wrong passwords, counted by network.
//!
//! For: logins of the FTP door.
//! In and out: that one was wrong, or right → how long its network is not heard.
//! Invariants: three wrong ones in a row shut a network out, twice as long each time; memory is `NETWORKS_MAX` networks, and who is shut out is forgotten last.
//! Absent on purpose: names: who tries many names with one password is one network too.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use proto::ftp::session::TRIES_MAX;

/// After a wrong password its connection waits so long.
const PAUSE: Duration = Duration::from_secs(1);
/// After three in a row its network does, at first.
const SHUT_FIRST: Duration = Duration::from_secs(2);
/// And at last: a user who forgot the password comes back within a quarter of an hour.
const SHUT_MAX: Duration = Duration::from_secs(15 * 60);
/// A network of which nothing wrong was heard for so long begins anew.
const FORGOTTEN: Duration = Duration::from_secs(3600);
/// Networks that are counted: 100 bytes each.
const NETWORKS_MAX: usize = 4096;

#[derive(Debug, Clone, Copy)]
struct Tried {
    wrong: u32,
    last: Instant,
    shut_until: Instant,
}

/// The networks that gave wrong passwords.
#[derive(Debug, Default)]
pub struct Tries(Mutex<HashMap<IpAddr, Tried>>);

/// The network of an address: a provider gives a customer one address of IPv4, and 2^64 of IPv6 (RFC 6177).
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

impl Tries {
    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, Tried>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is its network shut out? Then for so many seconds.
    pub fn shut_for(&self, address: IpAddr) -> Option<u64> {
        self.shut_at(address, Instant::now())
    }

    fn shut_at(&self, address: IpAddr, now: Instant) -> Option<u64> {
        let until = self.held().get(&network_of(address))?.shut_until;
        let left = until.saturating_duration_since(now);
        (!left.is_zero()).then(|| left.as_secs() + 1)
    }

    /// A password was wrong: how long its connection is to wait, nanoseconds.
    pub fn on_wrong(&self, address: IpAddr) -> u64 {
        self.wrong_at(address, Instant::now());
        PAUSE.as_nanos() as u64
    }

    fn wrong_at(&self, address: IpAddr, now: Instant) {
        let mut all = self.held();
        let network = network_of(address);
        if all.len() >= NETWORKS_MAX && !all.contains_key(&network) {
            let oldest = all.iter().min_by_key(|(_, it)| it.shut_until.max(it.last)).map(|(&it, _)| it);
            oldest.map(|it| all.remove(&it));
        }
        let it = all.entry(network).or_insert(Tried { wrong: 0, last: now, shut_until: now });
        if now.saturating_duration_since(it.last) > FORGOTTEN {
            it.wrong = 0;
        }
        it.wrong += 1;
        it.last = now;
        if it.wrong.is_multiple_of(TRIES_MAX) {
            let doubled = SHUT_FIRST.saturating_mul(1 << (it.wrong / TRIES_MAX - 1).min(16));
            it.shut_until = now + doubled.min(SHUT_MAX);
        }
    }

    /// One was right.
    pub fn forget(&self, address: IpAddr) {
        self.held().remove(&network_of(address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_wrong_passwords_shut_a_network_out_twice_as_long_each_time() {
        let (tries, mut now) = (Tries::default(), Instant::now());
        let (own, beside): (IpAddr, IpAddr) = ("10.0.0.9".parse().unwrap(), "10.0.0.8".parse().unwrap());
        for seconds in [2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900] {
            for _ in 0..TRIES_MAX {
                assert_eq!(tries.shut_at(own, now), None);
                tries.wrong_at(own, now);
            }
            assert_eq!(tries.shut_at(own, now), Some(seconds + 1));
            assert_eq!(tries.shut_at(beside, now), None);
            now += Duration::from_secs(seconds);
        }
        tries.forget(own);
        tries.wrong_at(own, now);
        assert_eq!(tries.shut_at(own, now), None);
        // All of a customer's IPv6 is one network.
        for host in 1..=TRIES_MAX {
            tries.wrong_at(format!("2001:db8::{host}").parse().unwrap(), now);
        }
        assert!(tries.shut_at("2001:db8::99".parse().unwrap(), now).is_some());
    }

    #[test]
    fn networks_that_are_counted_are_bounded_and_who_is_shut_out_is_forgotten_last() {
        let (tries, now) = (Tries::default(), Instant::now());
        let shut: IpAddr = "192.0.2.1".parse().unwrap();
        for _ in 0..3 * TRIES_MAX {
            tries.wrong_at(shut, now);
        }
        for number in 0..2 * NETWORKS_MAX as u32 {
            tries.wrong_at(std::net::Ipv4Addr::from_bits(number).into(), now);
        }
        assert_eq!(tries.held().len(), NETWORKS_MAX);
        assert!(tries.shut_at(shut, now).is_some());
    }
}
