//! `fixed`: the user's word is the rate.
//!
//! For: paths that are the user's own, and measurements.
//! In and out: the target out; signals only feed the figures for people.
//! Invariants: the rate is the target from the first packet on.
//! Absent on purpose: any yielding to loss or delay.

use super::path::Path;
use super::{RateConfig, Signal};

#[derive(Debug, Clone)]
pub(super) struct Fixed {
    path: Path,
    target: u64,
}

impl Fixed {
    pub(super) fn new(config: RateConfig) -> Self {
        Self { path: Path::new(), target: config.target }
    }

    pub(super) fn on_signal(&mut self, signal: &Signal) {
        self.path.on_signal(signal);
    }

    pub(super) fn set(&mut self, config: RateConfig) {
        self.target = config.target;
    }

    pub(super) fn rate(&self) -> u64 {
        self.target
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
