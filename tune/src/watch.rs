//! What moves on a host while values are held, though nobody here has set it.
//!
//! For: `host apply`: a link that flaps, an MTU that changes, a card that comes or goes, an irqbalance that was started again make a measurement
//! void, and the held values with it. Values that were set are looked after by the journal.
//! In and out: two looks at a machine → sentences.
//! Invariants: each change is told once, when it is seen; nothing is set.
//! Absent on purpose: what came of our own hand (a card whose rings are set may drop its link: looked at anew after the values are set).

use std::collections::BTreeMap;

use crate::place::Place;
use topology::tree::{PROGRAMS, Tree, programs};

/// What of a card moves.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Card {
    mtu: Option<u32>,
    speed_mbit: Option<i64>,
    up: bool,
    /// Ups and downs of the link since the card is there.
    carrier_changes: Option<u64>,
}

/// One look.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Seen {
    cards: BTreeMap<String, Card>,
    programs: Vec<(String, u32)>,
}

/// The last look.
#[derive(Debug)]
pub struct Watch {
    seen: Seen,
}

impl Watch {
    /// From what is now on.
    #[must_use]
    pub fn begin() -> Watch {
        Watch { seen: Seen::here() }
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
        Seen { programs, cards: cards(&Tree::here()) }
    }
}

fn cards(tree: &Tree) -> BTreeMap<String, Card> {
    let one = |name: String| {
        let at = format!("sys/class/net/{name}");
        let card = Card {
            mtu: tree.number(&format!("{at}/mtu")),
            speed_mbit: tree.number(&format!("{at}/speed")),
            up: tree.text(&format!("{at}/operstate")).is_some_and(|state| state == "up"),
            carrier_changes: tree.number(&format!("{at}/carrier_changes")),
        };
        (name, card)
    };
    tree.names("sys/class/net").into_iter().map(one).collect()
}

fn difference(before: &Seen, now: &Seen, ours: &[Place]) -> Vec<String> {
    let mut said = Vec::new();
    let show = |value: Option<i64>| value.map_or_else(|| "not told".to_owned(), |value| value.to_string());
    for (name, card) in &now.cards {
        let Some(was) = before.cards.get(name) else {
            said.push(format!("{name}: this card was not there before"));
            continue;
        };
        if was.mtu != card.mtu && !ours.iter().any(|place| place.is_mtu_of(name)) {
            said.push(format!(
                "{name}: its MTU is {}, it was {}",
                show(card.mtu.map(i64::from)),
                show(was.mtu.map(i64::from))
            ));
        }
        if was.up != card.up {
            said.push(format!("{name}: its link is {}", if card.up { "up" } else { "down" }));
        } else if let (Some(first), Some(last)) = (was.carrier_changes, card.carrier_changes)
            && first != last
        {
            said.push(format!("{name}: its link has gone and come ({} changes)", last.saturating_sub(first)));
        }
        if was.speed_mbit != card.speed_mbit && was.up && card.up {
            said.push(format!(
                "{name}: its speed is {} Mbit/s, it was {}",
                show(card.speed_mbit),
                show(was.speed_mbit)
            ));
        }
    }
    for name in before.cards.keys().filter(|name| !now.cards.contains_key(*name)) {
        said.push(format!("{name}: this card is gone"));
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
        Seen { cards: cards(&Tree::parse(lines).unwrap()), programs }
    }

    fn card(mtu: u32, state: &str, changes: u32, speed: i32) -> String {
        format!(
            "sys/class/net/ = e0\nsys/class/net/e0/mtu = {mtu}\nsys/class/net/e0/operstate = {state}\n\
             sys/class/net/e0/carrier_changes = {changes}\nsys/class/net/e0/speed = {speed}\n"
        )
    }

    #[test]
    fn an_mtu_a_flap_a_speed_and_a_program_are_told_and_what_stays_is_not() {
        let before = seen(&card(9000, "up", 2, 10_000), &[("irqbalance", 7)]);
        let said = |now: &Seen| difference(&before, now, &[]).join("; ");
        assert_eq!(said(&before.clone()), "");
        assert_eq!(said(&seen(&card(1500, "up", 2, 10_000), &[("irqbalance", 7)])), "e0: its MTU is 1500, it was 9000");
        assert_eq!(said(&seen(&card(9000, "down", 3, -1), &[])), "e0: its link is down");
        assert_eq!(
            said(&seen(&card(9000, "up", 4, 1000), &[])),
            "e0: its link has gone and come (2 changes); e0: its speed is 1000 Mbit/s, it was 10000"
        );
        assert!(said(&seen(&card(9000, "up", 2, 10_000), &[("irqbalance", 8)])).starts_with("irqbalance (process 8)"));
        assert_eq!(
            said(&seen("sys/class/net/ = e1\n", &[])),
            "e1: this card was not there before; e0: this card is gone"
        );
    }

    #[test]
    fn an_mtu_that_is_held_is_the_journals_to_tell() {
        let (before, now) = (seen(&card(9000, "up", 2, 10), &[]), seen(&card(1500, "up", 2, 10), &[]));
        let ours = [Place::File("/sys/class/net/e0/mtu".into())];
        assert_eq!(difference(&before, &now, &ours), Vec::<String>::new());
    }
}
