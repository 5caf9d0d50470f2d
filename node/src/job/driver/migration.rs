//! Datagram rails go on when this end's address changes: the sockets themselves.
//!
//! For: a job that does not end, and is at its rate again within a second.
//! In and out: the rails' meters in; a greeting from a new socket, and the socket to the worker, out.
//! Invariants: the initiator alone migrates; the new address carries no data before it has shown that it hears (greeting, W, K: docs/protocol.md
//! section 7; RFC 9000 section 9.3), and the old one stays in use until then.
//! Absent on purpose: when to greet, and what a greeting that failed means (`proto::session::migration`); a new rate (the congestion
//! controller finds it from what it hears), a new control session.

use std::io::{Error, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use engine::job::Cmd;
use proto::session::migration::{Look, is_busy};

use super::{End, JobDriver};
use crate::job::rails::Ask;

impl JobDriver<'_, '_> {
    /// Once per iteration: a datagram rail that is not heard is greeted from a new socket.
    pub(super) fn migrate_rails(&mut self) {
        if !self.job.rails.dials() || !self.is_open() {
            return;
        }
        let (now, sends) = (self.now, matches!(self.end, End::Send(_)));
        let session = self.session().unwrap_or_default();
        let is_busy = is_busy(self.peer_silence(), &session);
        for (&rail, it) in &mut self.carriers {
            let Some(meter) = it.meter.as_ref().filter(|_| !self.paths.is_resting(rail)) else { continue };
            let stats = meter.read();
            let heard = if sends { stats.feedbacks } else { stats.packets };
            let rtt = Duration::from_nanos(stats.rtt_ns).max(session.rtt);
            if it.migration.on_look(now, &Look { heard, is_waiting: stats.units > 0 && !is_busy, rtt }) {
                self.job.rails.ask(it.path, Ask::Packets(rail));
            }
        }
    }

    /// A datagram rail has another socket.
    pub(super) fn migrated(&mut self, rail: u16, socket: OwnedFd) {
        let Some(it) = self.carriers.get_mut(&rail) else { return };
        let silence = it.migration.on_migrated(self.now);
        let socket = Arc::new(socket);
        it.socket = Arc::downgrade(&socket);
        let (job, worker) = (self.job.no, usize::from(rail) % self.job.workers.count());
        self.job.workers.send(worker, Cmd::RailMoved { job, rail, socket });
        let text =
            format!("rail {rail} goes on from another address: nothing was heard for {} ms", silence.as_millis());
        self.out.notes.push(text);
    }

    /// A greeting of a rail that is up came to nothing. True: it is greeted anew later; false: it is UDP that does not get through.
    pub(super) fn not_migrated(&mut self, rail: u16, error: &Error) -> bool {
        let unanswered = matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::ConnectionRefused);
        let (now, silence) = (self.now, self.peer_silence());
        let Some(it) = self.carriers.get_mut(&rail) else { return false };
        !it.migration.on_failed(now, unanswered, silence)
    }
}
