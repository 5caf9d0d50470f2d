//! What moves on a host while values are held, though nobody here has set it.
//!
//! For: `host apply`: a link that flaps, an MTU that changes, a NIC that comes or goes, an irqbalance that was started again make a measurement
//! void, and the held values with it. Values that were set are looked after by the journal.
//! In and out: two looks at a machine → sentences.
//! Invariants: each change is told once, when it is seen; nothing is set.
//! Absent on purpose: what came of our own hand (a NIC whose rings are set may drop its link: looked at anew after the values are set).

use std::collections::BTreeMap;

use crate::place::Place;
use topology::tree::{PROGRAMS, Tree, programs};

/// What of a NIC moves.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Nic {
    mtu: Option<u32>,
    speed_mbit: Option<i64>,
    up: bool,
    /// Ups and downs of the link since the NIC is there.
    carrier_changes: Option<u64>,
}

/// One look.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Seen {
    nics: BTreeMap<String, Nic>,
    programs: Vec<(String, u32)>,
}

/// The last look.
#[derive(Debug)]
pub struct Drift {
    seen: Seen,
}

impl Drift {
    /// From what is now on.
    #[must_use]
    pub fn begin() -> Drift {
        Drift { seen: Seen::here() }
    }

    /// What has moved since the last look; `ours`: places that are looked after elsewhere.
    pub fn look(&mut self, ours: &[Place]) -> Vec<String> {
        let now = Seen::here();
        let said = difference(&self.seen, &now, ours);
        self.seen = now;
        said
    }
}

impl Seen {
    fn here() -> Seen {
        let found = programs(&PROGRAMS).unwrap_or_default();
        let programs = found.into_iter().map(|(name, pid)| (name.to_owned(), pid)).collect();
        Seen { programs, nics: nics(&Tree::here()) }
    }
}

fn nics(tree: &Tree) -> BTreeMap<String, Nic> {
    let one = |name: String| {
        let at = format!("sys/class/net/{name}");
        let nic = Nic {
            mtu: tree.number(&format!("{at}/mtu")),
            speed_mbit: tree.number(&format!("{at}/speed")),
            up: tree.text(&format!("{at}/operstate")).is_some_and(|state| state == "up"),
            carrier_changes: tree.number(&format!("{at}/carrier_changes")),
        };
        (name, nic)
    };
    tree.names("sys/class/net").into_iter().map(one).collect()
}

fn difference(before: &Seen, now: &Seen, ours: &[Place]) -> Vec<String> {
    let mut said = Vec::new();
    let show = |value: Option<i64>| value.map_or_else(|| "not told".to_owned(), |value| value.to_string());
    for (name, nic) in &now.nics {
        let Some(was) = before.nics.get(name) else {
            said.push(format!("{name}: this NIC was not there before"));
            continue;
        };
        if was.mtu != nic.mtu && !ours.iter().any(|place| place.is_mtu_of(name)) {
            said.push(format!(
                "{name}: its MTU is {}, it was {}",
                show(nic.mtu.map(i64::from)),
                show(was.mtu.map(i64::from))
            ));
        }
        if was.up != nic.up {
            said.push(format!("{name}: its link is {}", if nic.up { "up" } else { "down" }));
        } else if let (Some(first), Some(last)) = (was.carrier_changes, nic.carrier_changes)
            && first != last
        {
            said.push(format!("{name}: its link has gone and come ({} changes)", last.saturating_sub(first)));
        }
        if was.speed_mbit != nic.speed_mbit && was.up && nic.up {
            said.push(format!("{name}: its speed is {} Mbit/s, it was {}", show(nic.speed_mbit), show(was.speed_mbit)));
        }
    }
    for name in before.nics.keys().filter(|name| !now.nics.contains_key(*name)) {
        said.push(format!("{name}: this NIC is gone"));
    }
    for (name, pid) in now.programs.iter().filter(|program| !before.programs.contains(program)) {
        said.push(format!("{name} (process {pid}) was started: it arranges this host too"));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(lines: &str, programs: &[(&str, u32)]) -> Seen {
        let programs = programs.iter().map(|(name, pid)| ((*name).to_owned(), *pid)).collect();
        Seen { nics: nics(&Tree::parse(lines).unwrap()), programs }
    }

    fn nic(mtu: u32, state: &str, changes: u32, speed: i32) -> String {
        format!(
            "sys/class/net/ = e0\nsys/class/net/e0/mtu = {mtu}\nsys/class/net/e0/operstate = {state}\n\
             sys/class/net/e0/carrier_changes = {changes}\nsys/class/net/e0/speed = {speed}\n"
        )
    }

    #[test]
    fn an_mtu_a_flap_a_speed_and_a_program_are_told_and_what_stays_is_not() {
        let before = seen(&nic(9000, "up", 2, 10_000), &[("irqbalance", 7)]);
        let said = |now: &Seen| difference(&before, now, &[]).join("; ");
        assert_eq!(said(&before.clone()), "");
        assert_eq!(said(&seen(&nic(1500, "up", 2, 10_000), &[("irqbalance", 7)])), "e0: its MTU is 1500, it was 9000");
        assert_eq!(said(&seen(&nic(9000, "down", 3, -1), &[])), "e0: its link is down");
        assert_eq!(
            said(&seen(&nic(9000, "up", 4, 1000), &[])),
            "e0: its link has gone and come (2 changes); e0: its speed is 1000 Mbit/s, it was 10000"
        );
        assert!(said(&seen(&nic(9000, "up", 2, 10_000), &[("irqbalance", 8)])).starts_with("irqbalance (process 8)"));
        assert_eq!(
            said(&seen("sys/class/net/ = e1\n", &[])),
            "e1: this NIC was not there before; e0: this NIC is gone"
        );
    }

    #[test]
    fn an_mtu_that_is_held_is_the_journals_to_tell() {
        let (before, now) = (seen(&nic(9000, "up", 2, 10), &[]), seen(&nic(1500, "up", 2, 10), &[]));
        let ours = [Place::File("/sys/class/net/e0/mtu".into())];
        assert_eq!(difference(&before, &now, &ours), Vec::<String>::new());
    }
}
