//! The rails of a sending job: what each has in flight, and which takes the next chunk.
//!
//! For: `Sender::next_chunk`.
//! In and out: rails that come, rest and go, chunks assigned, sent and acknowledged, rates that were seen in; the rail of the next chunk out.
//! Invariants: a rail has no more chunks in flight than its window; near the end none takes a chunk that the others would bring sooner.
//! Absent on purpose: which chunk it is (`send`), measuring rates (`session::paths`), cutting stragglers (`tail`).

use alloc::collections::BTreeMap;

use super::Sender;

/// Chunks that a rail has in flight between its worker and the network, at the most.
pub const CHUNKS_IN_FLIGHT_MAX: usize = 64;

/// What rails of known rate bring in this time, one of unknown rate is not asked for: so long it takes to know (`session::paths`).
const UNKNOWN_NS: u128 = 500_000_000;

/// What a rail was seen to do, where there are several paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Bytes per second; 0: not known yet.
    pub rate: u64,
    /// Bytes that it may have outstanding (assigned and not acknowledged).
    pub outstanding_max: u64,
}

/// One rail.
#[derive(Debug)]
pub(super) struct RailState {
    /// Chunks that its worker has and did not report as sent or dropped.
    pub(super) in_flight: usize,
    /// So many it may have in flight: few at first and one more with each that is sent, so that a slow rail does not begin with more than it
    /// brings in seconds.
    window: usize,
    /// Bytes assigned to it and not acknowledged.
    pub(super) outstanding: u64,
    /// It takes no more.
    rests: bool,
    /// What it was seen to do; `None`: it takes chunks as it sends them.
    pace: Option<Pace>,
}

impl RailState {
    const WINDOW: core::ops::RangeInclusive<usize> = 2..=CHUNKS_IN_FLIGHT_MAX;

    fn new() -> RailState {
        RailState { in_flight: 0, window: *RailState::WINDOW.start(), outstanding: 0, rests: false, pace: None }
    }

    /// Nanoseconds until it has brought what is outstanding and so many bytes more.
    fn brings_ns(&self, bytes: u64) -> u128 {
        let rate = self.pace.map_or(0, |pace| pace.rate).max(1);
        u128::from(self.outstanding + bytes) * 1_000_000_000 / u128::from(rate)
    }

    fn has_room(&self, depth: usize) -> bool {
        let may_owe = self.pace.is_none_or(|pace| self.outstanding < pace.outstanding_max);
        !self.rests && self.in_flight < depth.min(self.window) && may_owe
    }

    fn is_known(&self) -> bool {
        self.pace.is_some_and(|pace| pace.rate > 0)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Rails {
    by_number: BTreeMap<u16, RailState>,
}

impl Rails {
    pub(super) fn get(&self, rail: u16) -> Option<&RailState> {
        self.by_number.get(&rail)
    }

    /// A rail is gone: what it had in flight is outstanding until the receiver closes its account.
    pub(super) fn remove(&mut self, rail: u16) {
        self.by_number.remove(&rail);
    }

    /// Was any seen to do something? Only then the end of the job matters to the choice.
    pub(super) fn are_paced(&self) -> bool {
        self.by_number.values().any(|it| it.pace.is_some())
    }

    /// A chunk of so many bytes goes to this rail, which is one of them.
    pub(super) fn on_assigned(&mut self, rail: u16, bytes: u64) {
        let it = self.by_number.get_mut(&rail).expect("it was chosen among them");
        (it.in_flight, it.outstanding) = (it.in_flight + 1, it.outstanding + bytes);
    }

    /// So many bytes are acknowledged, or go again.
    pub(super) fn on_settled(&mut self, rail: u16, bytes: u64) {
        if let Some(it) = self.by_number.get_mut(&rail) {
            it.outstanding = it.outstanding.saturating_sub(bytes);
        }
    }

    /// The rail that the next chunk of at most `chunk` bytes is for: of those with fewer than `depth` in flight the one with the fewest, but
    /// none that would still be at it when the others had brought all that is left, and near the end none of which nobody knows. `left`: bytes
    /// that are not assigned yet, where that is known and matters.
    pub(super) fn next(&self, depth: usize, chunk: u64, left: Option<u64>) -> Option<u16> {
        let is_last = |own: u16, it: &RailState| {
            let others = || self.by_number.iter().filter(|(rail, it)| **rail != own && !it.rests).map(|(_, it)| it);
            let Some(left) = left.filter(|_| others().any(RailState::is_known)) else { return false };
            // What one of unknown rate has outstanding is counted as if the known ones had to bring it.
            let (outstanding, rate) = others().fold((0u128, 0u128), |(outstanding, rate), it| {
                (outstanding + u128::from(it.outstanding), rate + u128::from(it.pace.map_or(0, |pace| pace.rate)))
            });
            let all = (outstanding + u128::from(left)) * 1_000_000_000 / rate.max(1);
            if !it.is_known() {
                return all < UNKNOWN_NS;
            }
            // A chunk is not divided: one of the others brings the last whole.
            let of_known = others().filter(|it| it.is_known());
            let one = of_known.map(|it| it.brings_ns(chunk.min(left))).min().unwrap_or(0);
            it.brings_ns(chunk.min(left)) > all.max(one)
        };
        let open = self.by_number.iter().filter(|(_, it)| it.has_room(depth));
        open.filter(|(rail, it)| !is_last(**rail, it)).min_by_key(|(_, it)| it.in_flight).map(|(&rail, _)| rail)
    }
}

impl Sender {
    /// A rail is there and takes chunks.
    pub fn rail_up(&mut self, rail: u16) {
        self.rails.by_number.insert(rail, RailState::new());
    }

    /// A rail takes no more chunks; what it had in flight is outstanding until `on_rail_closed`.
    pub fn rail_down(&mut self, rail: u16) {
        self.rails.remove(rail);
    }

    /// A rail takes no more chunks, and brings those it has.
    pub fn rest_rail(&mut self, rail: u16) {
        if let Some(it) = self.rails.by_number.get_mut(&rail) {
            it.rests = true;
        }
    }

    /// What a rail was seen to do: from now on it has no more outstanding than that, and near the end takes only what others would not bring
    /// sooner.
    pub fn pace_rail(&mut self, rail: u16, pace: Pace) {
        if let Some(it) = self.rails.by_number.get_mut(&rail) {
            it.pace = Some(pace);
        }
    }

    /// Chunks assigned to this rail and not acknowledged.
    #[must_use]
    pub fn outstanding_on(&self, rail: u16) -> usize {
        self.out.values().filter(|out| out.rail == rail && !out.acked).count()
    }

    /// Chunks assigned to rails that live, of which nobody has said yet that they were sent or dropped.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.rails.by_number.values().map(|it| it.in_flight).sum()
    }

    /// Rails that take chunks.
    pub fn rails(&self) -> impl Iterator<Item = u16> + '_ {
        self.rails.by_number.keys().copied()
    }

    /// The rail has taken the chunk: it may have another.
    pub fn on_sent(&mut self, rail: u16) {
        if let Some(it) = self.rails.by_number.get_mut(&rail) {
            it.in_flight = it.in_flight.saturating_sub(1);
            it.window = (it.window + 1).min(*RailState::WINDOW.end());
        }
    }
}
