//! Which unauthenticated connection is heard next, who gives way, and who has waited long enough.
//!
//! For: a newcomer that gets in whatever thousands of strangers do, decided without a socket, a thread or a clock.
//! In and out: arrivals with their network, what each has shown so far, the time; whom to answer, to let into a room, to close.
//! Invariants: never more than `places` wait. Where one is too many, one goes of the network that has the most here, of these the one that has
//! shown least, of these the oldest. Networks are served in turn: one that has few being answered comes before one that has many. A network
//! whose client was let in lately comes first, and keeps its places as long as it has less than half of all.
//! Absent on purpose: what is shown and whether it holds (listener, link, session).
//!
//! With unauthenticated connections of n networks, each network has at least `places` ÷ n places, and its first one is answered after at most one of each other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Networks that are remembered as good.
const GOOD_MAX: usize = 1024;
/// For so long.
const GOOD: Duration = Duration::from_secs(3600);

/// Whom a flood is booked to, see `network`.
pub(super) type Network = u128;

/// Whom a flood is booked to: 256 addresses of IPv4 (what is routed at least), or the /56 that an IPv6 customer has (RFC 6177).
pub(super) fn network(address: IpAddr) -> Network {
    match address.to_canonical() {
        IpAddr::V4(address) => u128::from(u32::from(address) >> 8),
        IpAddr::V6(address) => u128::from(address) >> 72 << 72,
    }
}

/// What somebody has shown, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Nothing.
    Silent,
    /// Some bytes of a greeting.
    Speaking,
    /// A whole TLS greeting: an answer costs key exchange and signature.
    Asking,
    /// It was answered and is to prove its key.
    Answered,
    /// It proved a key and said nothing.
    Proven,
    /// It said its version, and may wait for ours.
    Greeting,
    /// It shows a ticket, or asks for a job.
    Pleading,
    /// It proved a key that is on the list.
    Known,
}

/// Who goes first where one has to: not one of a good network, one of many, who has shown least, the oldest.
type Rank = (bool, usize, Reverse<(Stage, u64)>, Network);
/// Who is answered first: one of a good network, of few that were answered, the oldest.
type Turn = (bool, usize, u64, Network);

/// Those of one network, and when a client of it was let in last.
#[derive(Debug, Default)]
struct Crowd {
    /// What each has shown, and its number, which is by age.
    members: Vec<(Stage, u64)>,
    answered: usize,
    good: Option<Instant>,
    /// As they stand in the lists of all.
    rank: Option<Rank>,
    turn: Option<Turn>,
}

impl Crowd {
    fn is_good(&self, now: Instant) -> bool {
        self.good.is_some_and(|since| now < since + GOOD)
    }

    /// The one that has shown most, the oldest of these, if it is within `stages`.
    fn first(&self, stages: impl Fn(Stage) -> bool) -> Option<(Reverse<Stage>, u64)> {
        self.members.iter().filter(|(stage, _)| stages(*stage)).map(|&(stage, number)| (Reverse(stage), number)).min()
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Admission {
    places: usize,
    next: u64,
    waiting: BTreeMap<u64, (Network, Instant)>,
    crowds: HashMap<Network, Crowd>,
    good: HashMap<Network, Instant>,
    ranks: BTreeSet<Rank>,
    turns: BTreeSet<Turn>,
}

impl Admission {
    pub(super) fn new(places: usize) -> Admission {
        let (waiting, crowds, good) = (BTreeMap::new(), HashMap::new(), HashMap::new());
        Admission { places, next: 0, waiting, crowds, good, ranks: BTreeSet::new(), turns: BTreeSet::new() }
    }

    /// Puts a network that changed where it belongs now: looking for the next one costs no look at all of them.
    fn place(&mut self, network: Network, now: Instant) {
        let Some(crowd) = self.crowds.get_mut(&network) else { return };
        crowd.rank.take().map(|rank| self.ranks.remove(&rank));
        crowd.turn.take().map(|turn| self.turns.remove(&turn));
        let Some(&least) = crowd.members.iter().min() else {
            self.crowds.remove(&network);
            return;
        };
        let (here, is_good) = (crowd.members.len(), crowd.is_good(now));
        let stays = is_good && here * 2 <= self.places;
        let rank = (!stays, here, Reverse(least), network);
        self.ranks.insert(rank);
        crowd.rank = Some(rank);
        crowd.turn =
            crowd.first(|stage| stage == Stage::Asking).map(|(_, number)| (!is_good, crowd.answered, number, network));
        self.turns.extend(crowd.turn);
    }

    /// Somebody came: its number, and who has to go for it.
    pub(super) fn arrive(&mut self, network: Network, now: Instant) -> (u64, Option<u64>) {
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, (network, now));
        let good = self.good.get(&network).copied();
        let crowd = self.crowds.entry(network).or_insert_with(|| Crowd { good, ..Crowd::default() });
        crowd.members.push((Stage::Silent, number));
        self.place(network, now);
        let victim = if self.waiting.len() > self.places { self.victim() } else { None };
        victim.into_iter().for_each(|victim| self.leave(victim, now));
        (number, victim)
    }

    /// Who goes where one has to.
    pub(super) fn victim(&self) -> Option<u64> {
        self.ranks.last().map(|(_, _, Reverse((_, number)), _)| *number)
    }

    /// It has shown this now.
    pub(super) fn reach(&mut self, number: u64, stage: Stage, now: Instant) {
        let Some(&(network, _)) = self.waiting.get(&number) else { return };
        let Some(crowd) = self.crowds.get_mut(&network) else { return };
        let Some((had, _)) = crowd.members.iter_mut().find(|(_, it)| *it == number) else { return };
        crowd.answered += usize::from(*had < Stage::Answered && stage >= Stage::Answered);
        *had = stage;
        self.place(network, now);
    }

    /// It is gone, or has a room.
    pub(super) fn leave(&mut self, number: u64, now: Instant) {
        let Some((network, _)) = self.waiting.remove(&number) else { return };
        let Some(crowd) = self.crowds.get_mut(&network) else { return };
        let Some(at) = crowd.members.iter().position(|(_, it)| *it == number) else { return };
        let (stage, _) = crowd.members.swap_remove(at);
        crowd.answered -= usize::from(stage >= Stage::Answered);
        self.place(network, now);
    }

    pub(super) fn network(&self, number: u64) -> Network {
        self.waiting.get(&number).map_or(0, |(network, _)| *network)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whose greeting is answered next: that of the network of which the fewest were answered.
    pub(super) fn next_to_answer(&self) -> Option<u64> {
        self.turns.first().map(|(_, _, number, _)| *number)
    }

    /// Who has the next room: a known key, then a good network, then the one with the fewest rooms. `least`: what must be shown.
    pub(super) fn next_for_a_room(&self, least: Stage, rooms: &HashMap<Network, usize>, now: Instant) -> Option<u64> {
        let turn = |(network, crowd): (&Network, &Crowd)| {
            let (stage, number) = crowd.first(|stage| stage >= least)?;
            let is_known = stage <= Reverse(Stage::Known);
            Some((!is_known, !crowd.is_good(now), rooms.get(network).copied().unwrap_or(0), number))
        };
        self.crowds.iter().filter_map(turn).min().map(|(_, _, _, number)| number)
    }

    /// Does anybody wait who has shown so much?
    pub(super) fn has(&self, least: Stage) -> bool {
        self.crowds.values().any(|crowd| crowd.members.iter().any(|(stage, _)| *stage >= least))
    }

    /// A client from there was let in.
    pub(super) fn welcome(&mut self, network: Network, now: Instant) {
        if self.good.len() >= GOOD_MAX
            && let Some(oldest) = self.good.iter().min_by_key(|(_, since)| **since).map(|(&it, _)| it)
        {
            self.good.remove(&oldest);
        }
        self.good.insert(network, now);
        if let Some(crowd) = self.crowds.get_mut(&network) {
            crowd.good = Some(now);
            self.place(network, now);
        }
    }

    /// Who came before that moment.
    pub(super) fn older_than(&self, moment: Instant) -> Vec<u64> {
        // By number is by age.
        self.waiting.iter().take_while(|(_, (_, since))| *since <= moment).map(|(&number, _)| number).collect()
    }

    /// When the oldest came.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.waiting.values().next().map(|(_, since)| *since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: usize = 1536;

    fn address(network: usize, host: u8) -> Network {
        let [.., high, low] = network.to_be_bytes();
        super::network(IpAddr::from([127, high, low, host]))
    }

    /// 5,000 of 1,000 networks, which come again as often as they are closed.
    struct Flood {
        admission: Admission,
        now: Instant,
        came: usize,
        stage: Stage,
    }

    impl Flood {
        fn new(stage: Stage) -> Flood {
            let mut flood = Flood { admission: Admission::new(PLACES), now: Instant::now(), came: 0, stage };
            flood.comes(5000);
            flood
        }

        /// Who was closed for them.
        fn comes(&mut self, count: usize) -> Vec<u64> {
            let mut closed = Vec::new();
            for _ in 0..count {
                self.now += Duration::from_micros(100);
                let network = address(1 + self.came % 1000, (self.came / 1000) as u8);
                let (number, victim) = self.admission.arrive(network, self.now);
                self.admission.reach(number, self.stage, self.now);
                self.came += 1;
                closed.extend(victim);
            }
            closed
        }
    }

    #[test]
    fn a_newcomer_of_its_own_network_stays_and_is_answered_next_whatever_a_thousand_networks_do() {
        for stage in [Stage::Silent, Stage::Speaking, Stage::Asking, Stage::Answered, Stage::Proven] {
            let mut flood = Flood::new(stage);
            // Those that can be answered have been for a while: one of each network at least.
            while let Some(next) = flood
                .admission
                .next_to_answer()
                .filter(|next| flood.admission.crowds[&flood.admission.network(*next)].answered == 0)
            {
                flood.admission.reach(next, Stage::Answered, flood.now);
            }
            let (number, _) = flood.admission.arrive(address(2000, 1), flood.now);
            assert!(!flood.comes(20_000).contains(&number), "{stage:?}: closed before its first word");
            flood.admission.reach(number, Stage::Asking, flood.now);
            assert_eq!(flood.admission.next_to_answer(), Some(number), "{stage:?}");
            flood.admission.reach(number, Stage::Answered, flood.now);
            assert!(!flood.comes(20_000).contains(&number), "{stage:?}: closed before its proof");
            flood.admission.reach(number, Stage::Pleading, flood.now);
            assert_eq!(flood.admission.next_for_a_room(Stage::Pleading, &HashMap::new(), flood.now), Some(number));
            assert!(flood.admission.len() <= PLACES);
        }
    }

    #[test]
    fn one_network_harms_itself_alone() {
        let (mut admission, now) = (Admission::new(PLACES), Instant::now());
        let others: Vec<u64> = (0..1000).map(|other| admission.arrive(address(other, 1), now).0).collect();
        for _ in 0..10_000 {
            let (_, victim) = admission.arrive(address(5000, 9), now);
            assert!(victim.is_none_or(|victim| !others.contains(&victim)));
        }
        assert_eq!(admission.len(), PLACES);
    }

    #[test]
    fn who_has_shown_least_goes_first_and_the_oldest_of_these() {
        let (mut admission, now) = (Admission::new(3), Instant::now());
        let numbers = [1, 2, 3].map(|host| admission.arrive(address(1, host), now).0);
        admission.reach(numbers[0], Stage::Answered, now);
        assert_eq!(admission.arrive(address(1, 4), now).1, Some(numbers[1]));
        assert_eq!(admission.victim(), Some(numbers[2]));
    }

    #[test]
    fn a_network_that_was_let_in_lately_keeps_its_places_and_has_the_first_turn_but_not_all_places() {
        let (mut admission, now) = (Admission::new(100), Instant::now());
        admission.welcome(address(7, 1), now);
        let clients: Vec<u64> = (0..50).map(|host| admission.arrive(address(7, host), now).0).collect();
        for network in 100..1000 {
            let (number, victim) = admission.arrive(address(network, 1), now);
            admission.reach(number, Stage::Asking, now);
            assert!(victim.is_none_or(|victim| !clients.contains(&victim)), "{network}");
        }
        admission.reach(clients[49], Stage::Asking, now);
        assert_eq!(admission.next_to_answer(), Some(clients[49]));
        let (_, victim) = admission.arrive(address(7, 51), now);
        assert_eq!(victim, Some(clients[0]), "half of all is enough");
        // Long after, it is a network like others: one of which somebody was answered.
        let later = now + GOOD + Duration::from_secs(1);
        admission.reach(clients[48], Stage::Answered, later);
        assert_ne!(admission.next_to_answer(), Some(clients[49]));
    }

    #[test]
    fn a_known_key_has_a_room_before_who_only_pleads_and_networks_have_them_in_turn() {
        let (mut admission, now) = (Admission::new(100), Instant::now());
        let numbers = [1, 2, 3].map(|network| admission.arrive(address(network, 1), now).0);
        for number in numbers {
            admission.reach(number, Stage::Pleading, now);
        }
        let rooms = HashMap::from([(address(1, 1), 3), (address(2, 1), 1)]);
        assert_eq!(admission.next_for_a_room(Stage::Pleading, &rooms, now), Some(numbers[2]));
        admission.reach(numbers[0], Stage::Known, now);
        assert_eq!(admission.next_for_a_room(Stage::Pleading, &rooms, now), Some(numbers[0]));
        admission.reach(numbers[1], Stage::Proven, now);
        admission.leave(numbers[0], now);
        admission.leave(numbers[2], now);
        assert_eq!(admission.next_for_a_room(Stage::Pleading, &rooms, now), None);
        assert_eq!(admission.next_for_a_room(Stage::Proven, &rooms, now), Some(numbers[1]));
    }

    #[test]
    fn a_flood_is_booked_to_the_network_that_it_comes_from() {
        let network = |text: &str| super::network(text.parse().unwrap());
        assert_eq!(network("10.0.0.1"), network("::ffff:10.0.0.1"));
        assert_eq!(network("10.0.0.1"), network("10.0.0.255"));
        assert_ne!(network("10.0.0.1"), network("10.0.1.1"));
        assert_eq!(network("2001:db8::1"), network("2001:db8:0:ff::1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:100::1"));
        assert_ne!(network("10.0.0.1"), network("::1"), "IPv4 has numbers of its own");
    }

    #[test]
    fn whose_time_is_over_is_found_oldest_first() {
        let (mut admission, begin) = (Admission::new(10), Instant::now());
        for at in 0..5 {
            admission.arrive(address(at, 1), begin + Duration::from_secs(at as u64));
        }
        assert_eq!(admission.older_than(begin + Duration::from_secs(2)), [0, 1, 2]);
        admission.leave(0, begin);
        assert_eq!(admission.oldest(), Some(begin + Duration::from_secs(1)));
    }
}
