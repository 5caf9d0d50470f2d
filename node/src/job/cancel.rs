//! An order to end a job, from outside of it.
//!
//! For: rights that are taken back, and clients that are gone, while their job runs.
//! In and out: a refusal with its reason in, once; the job driver asks once per iteration, and ends with it.
//! Invariants: the first order counts; the peer is told the reason.
//! Absent on purpose: who may give the order (serve/live.rs, serve/relay.rs).

use std::sync::OnceLock;

use proto::error::Refusal;

/// See the module.
#[derive(Debug, Default)]
pub struct Cancel(OnceLock<(Refusal, String)>);

impl Cancel {
    /// The job is to end. Only the first order is heard.
    pub fn request(&self, refusal: Refusal, why: impl Into<String>) {
        let _ = self.0.set((refusal, why.into()));
    }

    /// The order, if there is one.
    #[must_use]
    pub fn requested(&self) -> Option<(Refusal, &str)> {
        self.0.get().map(|(refusal, why)| (*refusal, why.as_str()))
    }
}
