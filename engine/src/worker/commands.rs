//! What workers are told: jobs and rails that come and go, chunks to send, entries to expect.
//!
//! For: the loop, which takes all commands there are once in each iteration.
//! In and out: `Cmd` in; jobs, rails and assignments in their places.
//! Invariants: nothing new begins for a job that is closing; a command for what is gone is nothing.
//! Absent on purpose: who decides (`proto`, by the job's end).

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;

use proto::rate::RateConfig;
use proto::send::{Assignment, Unit};
use proto::wire::chunk::Header;
use sys::mem::Buf;

use crate::ends::End;
use crate::job::{Cmd, Event, InPlace, JobNo, JobPart, RailEnd, RailKey, RailPace};
use crate::meter::PairMeter;
use crate::platform::{Platform, Receives};
use crate::rail::Rail;
use crate::rail::base::Base;
use crate::rail::datagram::Datagram;
use crate::rail::rdma::{BUFS_PER_PAIR, Rdma};
use crate::rail::stream::Stream;
use crate::worker::{JobState, Worker};

impl<P: Platform> Worker<P> {
    pub(super) fn take_commands(&mut self) {
        loop {
            match self.mailbox.try_recv() {
                Ok(Cmd::Stop) | Err(TryRecvError::Disconnected) => return self.stops = true,
                Ok(cmd) => self.obey(cmd),
                Err(TryRecvError::Empty) => return,
            }
        }
    }

    /// Opens a payload that came, knowing of all that was to be expected before its peer could send it. Packets are read after an iteration's commands were
    /// taken: what they bring may have been announced since.
    pub(super) fn open_knowing(&mut self, index: usize, header: Header, buf: Buf) {
        if matches!(self.rails[index], Some(Rail::Datagram(_))) {
            self.take_commands();
        }
        self.open(index, header, buf);
    }

    fn obey(&mut self, cmd: Cmd<P>) {
        match cmd {
            Cmd::Open { job, part } => self.open_job(job, part),
            Cmd::Close { job } => {
                if let Some(job) = self.jobs.get_mut(&job) {
                    job.closing = true;
                }
                self.cut_rails(|rail| rail.base().job == job);
            }
            Cmd::RailUp { job, rail, socket, key } => {
                let Some(state) = self.jobs.get(&job).filter(|state| !state.closing) else { return };
                let (terms, sends) = (state.terms, state.end.sends());
                let base = Base::new(job, rail, socket, state.bound.clone());
                let rail = if sends {
                    let zero_copy = self.platform.lend_ready(&base.socket);
                    Stream::sending(base, terms, key, zero_copy, state.offers_of(rail))
                } else {
                    Stream::receiving(base, terms, key, state.end.reads_in_place())
                };
                self.add_rail(Rail::Stream(Box::new(rail)));
            }
            Cmd::PairUp { job, rail, connection, key, meter } => self.pair_up((job, rail), connection, key, meter),
            Cmd::PacketsUp { job, rail, socket, key, path } => {
                let Some(state) = self.jobs.get(&job).filter(|state| !state.closing) else { return };
                let base = Base::new(job, rail, socket, state.bound.clone());
                let rail = Datagram::new(&self.platform, base, path, &key, &state.terms, state.end.sends());
                self.add_rail(Rail::Datagram(Box::new(rail)));
            }
            Cmd::RailMoved { job, rail, socket } => {
                let found = self.find_rail(|it| it.base().job == job && it.base().number == rail);
                if let Some(Rail::Datagram(rail)) = found.and_then(|index| self.rails[index].as_mut()) {
                    rail.move_to(&mut self.platform, socket);
                }
            }
            Cmd::RailDown { job, rail } => self.cut_rails(|it| it.base().job == job && it.base().number == rail),
            Cmd::Backpressure { job, on } => {
                for rail in self.rails.iter_mut().flatten().filter(|rail| rail.base().job == job) {
                    rail.base_mut().paused = on;
                }
            }
            Cmd::Pace { job, pace: RailPace { target, min, policy } } => {
                let now = self.platform.now_ns();
                for rail in self.rails.iter_mut().flatten().filter(|rail| rail.base().job == job) {
                    rail.set_rate(now, |had| RateConfig { target, min, policy, ..had });
                }
            }
            Cmd::Send { job, assignment } => {
                each_path(&assignment, |path| crate::fault::panic_if_asked("sending worker", path));
                let mut rails = self.rails.iter_mut().flatten();
                let rail = rails.find(|rail| rail.base().job == job && rail.base().number == assignment.rail);
                // A rail that died meanwhile said so; the receiver's report brings the chunk back to the machine.
                if let Some(feed) = rail.and_then(Rail::feed) {
                    feed.waiting.push_back(assignment);
                }
            }
            Cmd::Expect { job, entries } => {
                entries.iter().for_each(|entry| crate::fault::panic_if_asked("receiving worker", &entry.path));
                if let Some(End::Sink(sink)) = self.jobs.get_mut(&job).map(|job| &mut job.end) {
                    sink.expect(entries);
                }
            }
            Cmd::Forget { job, entries } => match self.jobs.get_mut(&job).map(|job| &mut job.end) {
                Some(End::Source(source)) => source.forget(&entries),
                Some(End::Sink(sink)) => sink.forget(&entries),
                None => {}
            },
            Cmd::Stop => unreachable!("taken above"),
        }
    }

    fn open_job(&mut self, job: JobNo, part: JobPart<P>) {
        let JobPart { role, terms, events, bound, in_place } = part;
        let (in_place, offers) = match in_place {
            InPlace::Send(offers) => (InPlace::Never, offers),
            other => (other, Vec::new()),
        };
        let end = End::new(role, self.platform.node(), in_place);
        let state = JobState { end, terms, events, bound, offers, closing: false, closed: false };
        assert!(self.jobs.insert(job, state).is_none(), "job numbers are never used twice");
    }

    /// Where no queues can be had the rail dies at once: its chunks go by others.
    fn pair_up(&mut self, (job, rail): (JobNo, u16), connection: P::Connection, key: RailKey, meter: Arc<PairMeter>) {
        let most = (self.platform.pool().count() / BUFS_PER_PAIR).max(1);
        let has_room = self.count_pairs() < most;
        let Some(state) = self.jobs.get_mut(&job).filter(|state| !state.closing) else { return };
        let receives = if state.end.sends() { Receives::Words } else { Receives::Frames };
        let made = if has_room || receives == Receives::Words {
            self.platform.pair_up(connection, receives)
        } else {
            Err(ErrorKind::OutOfMemory.into())
        };
        match made {
            Ok(socket) => {
                let base = Base::new(job, rail, socket, state.bound.clone());
                let rail = Rdma::new(base, state.terms, key, receives, meter);
                self.add_rail(Rail::Rdma(Box::new(rail)));
            }
            Err(error) => state.events.push(Event::RailDead { rail, end: RailEnd::Fault(error) }),
        }
    }

    fn add_rail(&mut self, rail: Rail<P>) {
        match self.rails.iter().position(Option::is_none) {
            Some(index) => self.rails[index] = Some(rail),
            None => self.rails.push(Some(rail)),
        }
    }
}

fn each_path(assignment: &Assignment, mut with: impl FnMut(&[u8])) {
    match &assignment.unit {
        Unit::Range { entry, .. } => with(&entry.path),
        Unit::Pack { entries } => entries.iter().for_each(|entry| with(&entry.path)),
    }
}
