//! The rails of a sending job, as its driver speaks of them.
//!
//! For: rails that come, rest and are cut, and what each was seen to bring.
//! In and out: the driver's facts in; what is outstanding out.
//! Invariants: a rail whose account the receiver has closed never comes back.
//! Absent on purpose: which rail takes the next chunk (`proto::send`).

use proto::send::{Brings, Pace};

use super::{RailState, SendEnd};
use crate::platform::Platform;

impl<P: Platform> SendEnd<P> {
    /// See `proto::send::Sender::spread_over`.
    pub fn spread_over(&mut self, from: u16, to: u16) {
        self.machine.spread_over(from, to);
    }

    /// See `proto::send::Sender::lie_on`.
    pub fn lie_on(&mut self, volumes: Vec<Option<u16>>, workers: Vec<u16>) {
        self.machine.lie_on(volumes, workers);
    }

    /// A rail is connected and greeted. False: the receiver has closed its account already, do not use the connection.
    pub fn rail_up(&mut self, rail: u16) -> bool {
        if self.closed_rails.contains(&rail) {
            return false;
        }
        self.rails.insert(rail, RailState::Up);
        self.machine.rail_up(rail);
        true
    }

    /// A rail is to bring what it has and takes no more.
    pub fn rest_rail(&mut self, rail: u16) {
        self.machine.rest_rail(rail);
    }

    /// What a rail was seen to do, where there are several paths.
    pub fn pace_rail(&mut self, rail: u16, pace: Pace) {
        self.machine.pace_rail(rail, pace);
    }

    /// The paths whose rails are to be cut, because the others bring sooner what these have outstanding at the end.
    #[must_use]
    pub fn stragglers(&self, lead_ns: u64, brings: &[Brings]) -> Vec<usize> {
        self.machine.stragglers(lead_ns, brings)
    }

    /// Nothing is left to hand out, and nothing more will come.
    #[must_use]
    pub fn is_handed_out(&self) -> bool {
        self.machine.is_handed_out()
    }

    /// Chunks that this rail still has to bring.
    #[must_use]
    pub fn outstanding_on(&self, rail: u16) -> usize {
        self.machine.outstanding_on(rail)
    }

    /// Are chunks in flight of which no worker has reported yet what became of them?
    #[must_use]
    pub fn has_unreported(&self) -> bool {
        self.machine.in_flight() > 0
    }

    /// Rails that carry.
    #[must_use]
    pub fn rails_up(&self) -> usize {
        self.rails.values().filter(|state| **state == RailState::Up).count()
    }

    /// Changes how many chunks a rail may have in flight.
    pub fn set_depth(&mut self, depth: usize) {
        self.depth = depth;
    }
}
