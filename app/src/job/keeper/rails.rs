//! The keeper's rails: asked for, taken in, capped, and more of them while they pay.
//!
//! For: as many rails as the path needs, and no more.
//! In and out: connected sockets, both ends' books in; rails on workers out.
//! Invariants: a number is used once; the cap is that of all rails together.
//! Absent on purpose: connecting (job::rails), what goes over them (engine).

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::job::Cmd;
use proto::books::{Books, Stage};

use super::{Closing, DIALS_MAX, End, Keeper};
use crate::exit::Failure;

/// Learning how many rails pay.
#[derive(Debug, Default)]
pub(super) struct Growth {
    since: Option<Instant>,
    moved: u64,
    rate: f64,
    settled: bool,
}

impl Keeper<'_, '_> {
    pub(super) fn want_rails(&mut self) {
        if !self.job.rails.dials() || self.job.dry || self.closing != Closing::Open {
            return;
        }
        while self.end.rails_up() + self.dialling < self.rails_want && self.next_rail < u16::MAX {
            self.job.rails.ask(self.next_rail);
            self.next_rail += 1;
            self.dialling += 1;
        }
    }

    pub(super) fn take_rails(&mut self) -> Result<(), Failure> {
        while let Some(arrival) = self.job.rails.next() {
            let dials = self.job.rails.dials();
            self.dialling = self.dialling.saturating_sub(usize::from(dials));
            let socket = match arrival.socket {
                Ok(socket) => socket,
                Err(error) => {
                    self.dials_failed += 1;
                    if self.dials_failed >= DIALS_MAX && self.end.rails_up() == 0 {
                        return Err(self.lost(&format!("no rail could be connected: {error}")));
                    }
                    self.out.notes.push(format!("rail {} could not be connected: {error}", arrival.rail));
                    continue;
                }
            };
            if self.closing != Closing::Open {
                continue;
            }
            let up = match &mut self.end {
                End::Send(end) => end.rail_up(arrival.rail),
                End::Recv(end) => end.rail_up(arrival.rail),
            };
            if up {
                let worker = usize::from(arrival.rail) % self.job.workers.count();
                let (rail, key) = (arrival.rail, self.secret.rail(arrival.rail));
                let rate = self.rail_rate();
                let cmd = Cmd::RailUp { job: self.job.no, rail, socket: Arc::new(socket), key, rate };
                self.job.workers.send(worker, cmd);
                self.rails_most = self.rails_most.max(self.end.rails_up());
                let rate = self.job.rate;
                self.set_rate(rate);
            }
        }
        self.want_rails();
        Ok(())
    }

    pub(super) fn rail_rate(&self) -> u64 {
        if self.job.rate == 0 { 0 } else { (self.job.rate / self.end.rails_up().max(1) as u64).max(1) }
    }

    pub(super) fn set_rate(&mut self, bytes_per_second: u64) {
        self.job.rate = bytes_per_second;
        let rate = self.rail_rate();
        for worker in 0..self.job.workers.count() {
            self.job.workers.send(worker, Cmd::Rate { job: self.job.no, rate });
        }
    }

    /// The smaller of what was agreed and this job's share.
    pub(super) fn ask_share(&mut self) {
        let Some(share) = &self.job.share else { return };
        let caps = [self.job.plan.rate_bps / 8, share()];
        let rate = caps.into_iter().filter(|cap| *cap > 0).min().unwrap_or(0);
        if rate != self.job.rate {
            self.set_rate(rate);
        }
    }

    /// More rails while they pay: both ends have time left, the network is what is waited for, and the last one brought something.
    pub(super) fn grow(&mut self) {
        let most = usize::from(self.job.plan.streams_max);
        if !self.job.rails.dials() || self.growth.settled || self.rails_want >= most || self.job.rate > 0 {
            return;
        }
        let Some(since) = self.growth.since else {
            self.growth.since = Some(Instant::now());
            return;
        };
        if since.elapsed() < Duration::from_secs(1) {
            return;
        }
        let own = self.books();
        let Some(peers) = self.peers else { return };
        let sends = matches!(self.end, End::Send(_));
        let (sender, receiver) = if sends { (own, peers) } else { (peers, own) };
        let moved = own.payload_bytes.max(peers.payload_bytes);
        let rate = (moved - self.growth.moved) as f64 / since.elapsed().as_secs_f64();
        let first = self.growth.rate == 0.0;
        let waits = |books: &Books, stage: Stage| books.ns[stage as usize] as f64 / books.wall_ns.max(1) as f64;
        let network = waits(&sender, Stage::WaitSend) > 0.4 && waits(&receiver, Stage::WaitRecv) > 0.4;
        if !network || (!first && rate < self.growth.rate * 1.1) {
            self.growth.settled = !first || moved > 0;
            return;
        }
        self.growth = Growth { since: Some(Instant::now()), moved, rate, settled: false };
        self.rails_want += 1;
        self.out.notes.push(format!("one more rail, {} in all: both ends wait for the network", self.rails_want));
    }
}
