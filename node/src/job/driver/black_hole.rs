//! Path MTU black holes under a running job: facts for `proto::session::blackhole`, and its remedy carried out.
//!
//! For: TCP rails and the session's connection that stand still because long packets vanish.
//! In and out: TCP counters of rails and session in; rails cut, and all that is dialled from then on made with small segments, out.
//! Invariants: nothing is decided here.
//! Absent on purpose: the decision (proto::session::blackhole), datagram rails (`proto::flow`), the start of a session (link/shake.rs).

use std::time::Duration;

use proto::session::blackhole::{Facts, Remedy, Stream};
use sys::sock::TcpInfo;

use super::{JobDriver, Way};
use crate::job::rails::Ask;
use crate::link::SMALL_SEGMENT;

/// TCP's counters as the detector wants them.
fn stream(info: &TcpInfo, sends: bool) -> Stream {
    Stream {
        bytes: if sends { info.bytes_acked } else { info.bytes_received },
        retransmitted: info.retrans,
        rtt: Duration::from_micros(info.rtt_us.into()),
        segment_bytes: info.mss,
        in_flight: info.unacked,
        window_bytes: info.send_window_bytes,
    }
}

impl JobDriver<'_, '_> {
    /// Once per iteration: does a stream stand still although the peer is there? The session's also when all data has come: a receiver that has
    /// signed has what says so on its way yet.
    pub(super) fn watch_black_hole(&mut self) {
        if self.closing.is_over() || !self.black_hole.is_due(self.now) {
            return;
        }
        let sends = matches!(self.job.way, Way::Send(_));
        let asks = self.job.rails.dials() && !self.is_between();
        let session = asks.then(|| sys::sock::tcp_info(self.job.link.as_fd()).ok()).flatten();
        // Nothing is wanted of rails any more then.
        let is_open = self.is_open();
        let carrying = self.carriers.iter().filter(|(_, it)| is_open && it.meter.is_none());
        let carrying = carrying.filter(|(rail, _)| !self.paths.is_resting(**rail));
        let rails = carrying.filter_map(|(&rail, it)| {
            let info = sys::sock::tcp_info(&*it.socket.upgrade()?).ok()?;
            Some((rail, it.path, stream(&info, sends)))
        });
        let facts = Facts {
            sends,
            paths: self.paths.count(),
            peer_unheard: self.peer_silence(),
            session: session.map(|info| stream(&info, true)),
            rails: rails.collect(),
        };
        let remedy = self.black_hole.on_streams(self.now, &facts);
        self.apply_remedy(&remedy);
    }

    /// The peer lets go of a rail: in silence?
    pub(super) fn was_let_go(&mut self, rail: u16) {
        if let Some(it) = self.carriers.get(&rail).filter(|it| it.meter.is_none()) {
            let remedy = self.black_hole.on_let_go(self.now, rail, it.path, self.paths.count());
            self.apply_remedy(&remedy);
        }
    }

    /// A TCP rail of this path is cut since it was silent.
    pub(super) fn lost_in_silence(&mut self, path: usize) {
        let remedy = self.black_hole.on_cut(path, self.paths.count());
        self.apply_remedy(&remedy);
    }

    /// The session goes on over another connection.
    pub(super) fn session_changed(&mut self) {
        let remedy = self.black_hole.on_session_moved(self.job.link.bytes_received(), self.paths.count());
        self.apply_remedy(&remedy);
    }

    fn apply_remedy(&mut self, remedy: &Remedy) {
        for &path in &remedy.small_paths {
            if self.job.rails.go_small(path) {
                let text = format!(
                    "path MTU black hole to {}: packets of the usual size do not get through any more, and no ICMP message says so; segments of {} bytes \
                     are used from now on; `longhaul host apply --rule mtu-probing` at both ends, or the right MTU, mends it",
                    self.peer_name(),
                    SMALL_SEGMENT
                );
                self.said.push(text);
            }
        }
        if remedy.reconnects {
            self.job.rails.ask(0, Ask::Control);
        }
        for &rail in &remedy.cut {
            self.cut_rail(rail);
        }
    }
}
