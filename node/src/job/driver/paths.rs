//! The paths of a job: counters for `proto::session::paths`, and what that wants done.
//!
//! For: one file over all links that there are, each as fast as it is, and no link that holds the others.
//! In and out: the kernel's counts of streams and the meters of datagram rails in; the pace of each rail to the machine, rails that are cut, and
//! what each path brought, out.
//! Invariants: nothing is decided here.
//! Absent on purpose: which rail is cut and dialled (proto::session::paths), which chunk goes where (proto::send), connecting (job::rails).

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Weak;
use std::time::Duration;

use engine::job::Cmd;
use engine::meter::Meter;
use proto::negotiate::RdmaKind;
use proto::session::paths::timeouts::Stream;
use proto::session::paths::track::Seen;
use proto::session::paths::{Cut, Kind, Link, Look, Paths, Sample, Why};

use super::{End, JobDriver, PathShare};

/// Bytes that a stream's send buffer holds beyond what is in flight: what waits there cannot go over another path.
const UNSENT_BYTES: u32 = 256 << 10;

/// A greeting of a rail has 64 bytes (docs/protocol.md, section 7); what carries has frames beyond that.
const GREETING_BYTES_MAX: u64 = 4096;

/// A path, for the user and for who comes over it.
#[derive(Debug)]
pub(super) struct PathName {
    name: String,
    /// Own and the peer's address, where this end did not choose them.
    ends: Option<(IpAddr, IpAddr)>,
}

impl PathName {
    pub(super) fn new(name: String) -> PathName {
        PathName { name, ends: None }
    }

    /// As the report has it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

fn see(meter: Option<&Meter>, socket: &Weak<OwnedFd>, sends: bool) -> Option<Seen> {
    if let Some(meter) = meter {
        let stats = meter.read();
        let (bytes, sign) =
            if sends { (stats.fresh_bytes, stats.feedbacks) } else { (stats.wire_bytes, stats.packets) };
        return Some(Seen { bytes, sign, waits: sends && stats.units > 0 });
    }
    let info = sys::sock::tcp_info(&*socket.upgrade()?).ok()?;
    let bytes = if sends { info.bytes_acked } else { info.bytes_received };
    // A window that is shut is the peer's disk, not the path.
    let waits = (info.unacked > 0 || info.notsent_bytes > 0) && info.send_window_bytes >= info.mss;
    Some(Seen { bytes, sign: bytes, waits: sends && waits })
}

impl JobDriver<'_, '_> {
    /// Is the job, or a part of it, one over streams? A peer that dials may have connected some ahead of its choice, and then have chosen UDP.
    pub(super) fn is_over_streams(&self) -> bool {
        self.streams.up && (self.job.rails.dials() || self.meters.is_empty() || self.streams.carried)
    }

    /// The kind of queue pairs that came up, if any did, and how many messages found no receive posted at this end.
    pub(super) fn pairs_seen(&self) -> Option<(RdmaKind, u64)> {
        // What a worker counted, each of its pairs tells.
        let not_ready = self.streams.pairs.iter().map(|it| it.meter.read().not_ready).max()?;
        self.job.plan.rdma.map(|kind| (kind, not_ready))
    }

    /// The path that a rail goes over: as it was asked for, or as its addresses say.
    pub(super) fn path_of(&mut self, rail: u16, socket: &OwnedFd) -> usize {
        if let Some(&path) = self.asked.get(&rail) {
            return path;
        }
        let (Ok(own), Ok(peer)) = (sys::sock::local_addr(socket), sys::sock::peer_addr(socket)) else { return 0 };
        let ends = (own.ip().to_canonical(), peer.ip().to_canonical());
        if let Some(at) = self.path_names.iter().position(|path| path.ends == Some(ends)) {
            return at;
        }
        if self.paths.add().is_some() {
            self.path_names.push(PathName { name: format!("{}={}", ends.0, ends.1), ends: Some(ends) });
        }
        self.paths.count() - 1
    }

    /// Each path and what its rails brought.
    pub(super) fn path_shares(&self) -> Vec<PathShare> {
        let each = self.path_names.iter().enumerate().map(|(at, path)| {
            let (weight, was_off) = self.path_shares_check.of(at);
            PathShare { name: path.name.clone(), bytes: self.paths.bytes(at), weight, was_off }
        });
        each.collect()
    }

    /// A path was dialled in vain: said once.
    pub(super) fn say_path_is_away(&mut self, at: usize, error: &std::io::Error) {
        let name = &self.path_names[at].name;
        let text = format!("path {name} cannot be connected ({error}): the others carry, it is tried again");
        self.said.push(text);
    }

    /// A rail came up on a path that was away.
    pub(super) fn say_path_is_there(&mut self, at: usize) {
        let text = format!("path {} is there again", self.path_names[at].name);
        self.said.push(text);
    }

    /// Once per iteration: what each rail brought, what it may owe, and whether one is dead or slow.
    pub(super) fn watch_paths(&mut self) {
        if !self.is_open() {
            return;
        }
        self.watch_tail();
        if !self.paths.is_due(self.now) {
            return;
        }
        let (sends, rtt) = (matches!(self.end, End::Send(_)), self.link_rtt());
        let mut samples = Vec::new();
        for (&rail, it) in &mut self.carriers {
            let is_busy = match &self.end {
                End::Send(end) => end.outstanding_on(rail) > 0,
                End::Recv(_) => true,
            };
            let seen = see(it.meter.as_deref(), &it.socket, sends);
            self.streams.carried |= it.meter.is_none() && seen.is_some_and(|seen| seen.bytes > GREETING_BYTES_MAX);
            samples.push(Sample { rail, seen, is_busy });
            if let (true, None, false, Some(socket)) = (sends, &it.meter, it.unsent_bounded, it.socket.upgrade()) {
                // A hint: without it the end of a job waits longer for a slow path.
                let _ = sys::sock::set_notsent_lowat(&*socket, UNSENT_BYTES);
                it.unsent_bounded = true;
            }
        }
        let link = Link { rtt, chunk_bytes: self.job.plan.chunk_bytes, sends };
        let Look { paces, cuts } = self.paths.on_samples(self.now, &link, &samples);
        if let End::Send(end) = &mut self.end {
            paces.into_iter().for_each(|(rail, pace)| end.pace_rail(rail, pace));
        }
        cuts.iter().for_each(|cut| self.obey_cut(cut));
        self.check_shares();
    }

    fn obey_cut(&mut self, cut: &Cut) {
        if cut.why == Why::Silent && cut.kind == Kind::Stream {
            self.lost_in_silence(cut.path);
        }
        let why = match cut.why {
            Why::Silent => "brings nothing any more".to_owned(),
            Why::Slower(times) => format!("brings {times} times less than it did"),
        };
        self.said.push(format!("path {} {why}: what it owes goes over the others", self.path_names[cut.path].name));
        self.close_rail(cut.rail);
    }

    /// Of the control session.
    fn link_rtt(&self) -> Duration {
        let rtt_us = sys::sock::tcp_info(self.job.link.as_fd()).map_or(0, |info| info.rtt_us);
        Duration::from_micros(rtt_us.into())
    }

    /// Nothing is left to hand out: is there a path that the others would wait for, longer than they need for what it owes?
    fn watch_tail(&mut self) {
        let rtt = self.link_rtt();
        let End::Send(end) = &self.end else { return };
        let Some(brings) = self.paths.next_tail_look(self.now) else { return };
        let lead_ns = u64::try_from(Paths::tail_lead(rtt).as_nanos()).unwrap_or(u64::MAX);
        for slow in end.stragglers(lead_ns, &brings) {
            let rails = self.paths.on_straggler(self.now, slow);
            let End::Send(end) = &self.end else { return };
            let owed: usize = rails.iter().map(|&rail| end.outstanding_on(rail)).sum();
            if rails.is_empty() {
                continue;
            }
            let chunks = if owed == 1 { "chunk".to_owned() } else { format!("{owed} chunks") };
            let name = &self.path_names[slow].name;
            let text = format!("path {name} would be the last to end: the {chunks} it owes go over the others");
            self.out.notes.push(text);
            rails.into_iter().for_each(|rail| self.close_rail(rail));
        }
    }

    /// Nothing is left to hand out: does a stream of the only path stand in a timeout, while another would bring its chunks sooner?
    pub(super) fn watch_timeouts(&mut self) {
        let End::Send(end) = &self.end else { return };
        if self.paths.count() > 1 || self.carriers.len() < 2 || !self.is_open() || !end.is_handed_out() {
            return;
        }
        let rtt = self.link_rtt();
        if !self.paths.timeouts.is_due(self.now, rtt) {
            return;
        }
        let chunk_bytes = u64::from(self.job.plan.chunk_bytes);
        let awake = self.carriers.iter().filter(|(rail, it)| it.meter.is_none() && !self.paths.is_resting(**rail));
        let streams: Vec<Stream> = awake
            .filter_map(|(&rail, it)| {
                let info = sys::sock::tcp_info(&*it.socket.upgrade()?).ok()?;
                Some(Stream {
                    rail,
                    is_in_timeout: info.in_timeout,
                    timeouts: info.timeouts,
                    window_bytes: u64::from(info.cwnd) * u64::from(info.mss),
                    owed_bytes: end.outstanding_on(rail) as u64 * chunk_bytes,
                })
            })
            .collect();
        if let Some(rail) = self.paths.timeouts.on_streams(self.now, &streams) {
            self.out
                .notes
                .push(format!("rail {rail} stands in a retransmission timeout: what it owes goes over the others"));
            self.cut_rail(rail);
        }
    }

    /// Cuts a rail; what it owes goes over the others when the receiver has said what came of it. Its path is dialled again at once.
    pub(super) fn cut_rail(&mut self, rail: u16) {
        self.paths.cut(self.now, rail, self.now);
        self.close_rail(rail);
    }

    /// A rail that the machine gave up is closed at its worker.
    pub(super) fn close_rail(&mut self, rail: u16) {
        if let End::Send(end) = &mut self.end {
            end.rest_rail(rail);
        }
        let (job, worker) = (self.job.no, usize::from(rail) % self.job.workers.count());
        self.job.workers.send(worker, Cmd::RailDown { job, rail });
    }
}
