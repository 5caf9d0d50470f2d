//! Before the receiver signs: does a former receipt, which both ends have, say the same?
//!
//! For: a small receipt of a run that changed nothing.
//! In and out: how long is waited for in; the agreement, and what the thread that compares has found, out.
//! Invariants: the loop goes on while lists are read; the thread ends when nobody waits for it.
//! Absent on purpose: who says what when (`proto::receipt::agreement`), reading receipts (`job::receipt::former`), taking the steps (`closing`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use proto::receipt::Former;
use proto::receipt::agreement::Agreement;

use crate::job::receipt::former::Found;

/// Of `stall`: both ends read their lists one after the other, and a peer must not take that for a standstill.
const PATIENCE_PART: u32 = 2;

/// The agreement, and the thread that looks.
#[derive(Debug)]
pub(in crate::job::driver) struct Look {
    pub(super) agreement: Agreement,
    pub(super) found: Option<Receiver<Option<Found>>>,
    /// The former receipt is not pruned before this one has its name.
    pub(super) held: Option<Found>,
    /// Nobody waits for the thread any more.
    pub(super) stop: Arc<AtomicBool>,
}

impl Drop for Look {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Look {
    pub(in crate::job::driver) fn new(sends: bool, stall: Duration) -> Look {
        let agreement = Agreement::new(sends, stall / PATIENCE_PART);
        Look { agreement, found: None, held: None, stop: Arc::default() }
    }

    /// The receipt that both ends agreed on.
    pub(in crate::job::driver) const fn agreed(&self) -> Option<Former> {
        self.agreement.agreed()
    }
}
