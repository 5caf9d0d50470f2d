//! `rate=` of a user: it holds for this one, both ways, and for nobody else.

use std::time::{Duration, Instant};

use super::users::User;
use super::*;

/// B/s, and what is moved at it.
const RATE: u64 = 4 << 20;
const BYTES: usize = 6 << 20;

fn logged_in(rig: &Rig, name: &str) -> Client<TcpStream> {
    let mut client = rig.client();
    client.wants(&format!("USER {name}"), "331");
    client.wants("PASS pass word", "230");
    client
}

fn got(client: &mut Client<TcpStream>) -> Duration {
    let began = Instant::now();
    assert_eq!(client.listing("RETR f").len(), BYTES);
    began.elapsed()
}

fn put(client: &mut Client<TcpStream>, name: &str) -> Duration {
    let began = Instant::now();
    let mut data = client.passive();
    client.wants(&format!("STOR {name}"), "150");
    data.write_all(&vec![7; BYTES]).unwrap();
    drop(data);
    assert!(client.hear().starts_with("226"));
    began.elapsed()
}

#[test]
fn a_users_rate_holds_for_that_user_both_ways_and_for_nobody_else() {
    let rig = Rig::new("rates", |_| ());
    std::fs::write(rig.root().join("f"), vec![7; BYTES]).unwrap();
    let users = Users::at(&rig.place.join("home").join(users::FILE)).unwrap();
    let rights = proto::ftp::session::Rights { read: true, write: true };
    let slow = User { rate_bps: Some(RATE * 8), ..User::new("slow", rights) };
    for user in [slow, User::new("free", rights)] {
        users.set(user, Some(b"pass word")).unwrap();
    }
    let (mut slow, mut free) = (logged_in(&rig, "slow"), logged_in(&rig, "free"));
    for way in ["get", "put"] {
        let (held, others) = std::thread::scope(|scope| {
            let held = scope.spawn(|| if way == "get" { got(&mut slow) } else { put(&mut slow, "slow") });
            // Beside it, so often that they would feel a bound that they share.
            let others = (0..4).map(|_| if way == "get" { got(&mut free) } else { put(&mut free, "free") });
            let others = others.min().unwrap();
            (held.join().unwrap(), others)
        });
        let wanted = Duration::from_secs_f64(BYTES as f64 / RATE as f64);
        // A twentieth of a second that nobody used and one slice go at once.
        assert!(held >= wanted.mul_f64(0.9), "{way}: {held:?} of {wanted:?}");
        assert!(held <= wanted * 3, "{way}: {held:?} of {wanted:?}");
        assert!(others <= wanted.mul_f64(0.75), "{way}: another's took {others:?} beside it");
    }
}
