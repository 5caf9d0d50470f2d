//! The calls of steps: every step of every rail and end is called here, and what it returns is done here.
//!
//! For: the order of one iteration's work.
//! In and out: completions in; calls of `ends`, `seal` and `rail`, each with its rail, its end and a `Cx`.
//! Invariants: no step calls a step of another module; every rail gets one go at each step of an iteration.
//! Absent on purpose: commands and events of whole jobs (`commands`, `worker`), who gets a buf (`bufs`), what a step does.

use proto::books::Stage;
use proto::wire::chunk::Header;
use sys::mem::Buf;

use crate::ends::End;
use crate::ends::file_sink::report_landed;
use crate::ends::held::Held;
use crate::job::{JobNo, RailEnd};
use crate::platform::{Done, Harm, Platform};
use crate::rail::datagram::BURSTS_PER_ITERATION;
use crate::rail::{Rail, datagram, rdma, stream};
use crate::seal::hash::{Touch, check_draining};
use crate::worker::Worker;
use crate::worker::cx::{Cx, Next, Share};
use crate::worker::slots::Kind;

impl<P: Platform> Worker<P> {
    /// A rail, the end of its job, and what a step works with besides.
    fn at(&mut self, index: usize) -> (&mut Rail<P>, &mut End<P>, Cx<'_, P>) {
        let rail = self.rails[index].as_mut().expect("a rail stays until its ops are back");
        let job = self.jobs.get_mut(&rail.base().job).expect("rails go before their job");
        let lenders = self.share.lenders.saturating_sub(usize::from(rail.lends_bursts()));
        let cx = Cx {
            platform: &mut self.platform,
            slots: &mut self.slots,
            watch: &mut self.watch,
            events: &mut job.events,
            terms: job.terms,
            index,
            rail: rail.base().number,
            share: Share { lenders, ..self.share },
        };
        (rail, &mut job.end, cx)
    }

    /// One completion back to the step that asked for it.
    pub(super) fn dispatch(&mut self, done: Done) {
        let slot = self.slots.take(done.token);
        let index = slot.rail;
        let (rail, end, mut cx) = self.at(index);
        let cx = &mut cx;
        let next = match (slot.kind, rail) {
            (Kind::Read, rail) => {
                let starved = rail.is_starved();
                let feed = rail.feed().expect("only rails that send have chunks read");
                end.source().on_read(feed, cx, slot, done, starved);
                Next::Idle
            }
            (Kind::Write, _) => {
                end.sink().on_written(cx, slot, done);
                Next::Idle
            }
            (Kind::Send, Rail::Stream(rail)) => stream::on_sent(rail, cx, slot, done),
            (Kind::Head, Rail::Stream(rail)) => stream::on_head(rail, cx, slot, done),
            (Kind::Payload, Rail::Stream(rail)) => stream::on_payload(rail, cx, slot, done),
            (Kind::Consumed, Rail::Stream(rail)) => {
                stream::on_consumed_sent(rail, cx, slot, done);
                Next::Idle
            }
            (Kind::Readable, Rail::Datagram(rail)) => {
                datagram::on_readable(rail);
                Next::Idle
            }
            (Kind::Readable, Rail::Rdma(rail)) => {
                rail.on_readable();
                Next::Idle
            }
            (Kind::Reload, Rail::Datagram(rail)) => {
                datagram::on_reload(rail, end, cx, slot, done);
                Next::Idle
            }
            (Kind::Spill, Rail::Datagram(rail)) => {
                datagram::on_spilled(rail, end, cx, slot, done);
                Next::Idle
            }
            (Kind::Check, Rail::Datagram(rail)) => datagram::on_check(rail, end, cx, slot, done),
            (kind, _) => unreachable!("a rail of the other kind asked for {kind:?}"),
        };
        self.follow(index, next);
    }

    /// Does what a step said is next.
    fn follow(&mut self, index: usize, next: Next) {
        let (rail, end, mut cx) = self.at(index);
        match (next, rail) {
            (Next::Idle, _) => {}
            (Next::Announced(header), Rail::Stream(rail)) => match end.sink().check(&cx.terms, &header) {
                Ok(()) => rail.admit(header),
                Err(breach) => rail.base.break_off(cx.platform, RailEnd::Breach(breach)),
            },
            (Next::Announced(_), _) => unreachable!("units and messages come with their headers"),
            (Next::Received { header, buf }, _) => self.open_knowing(index, header, buf),
            (Next::InPlace { header, buf }, _) => self.copy_in_place(index, header, buf),
            (Next::Landed { header, digest }, _) => report_landed(&mut cx, &header, digest),
            (Next::WantsBuf, _) => self.reload_wanted(index),
            (Next::Broken(end), rail) => rail.base_mut().break_off(cx.platform, end),
        }
    }

    /// A payload came: it is opened, piece by piece into its file where that is written at once, and lands.
    pub(super) fn open(&mut self, index: usize, header: Header, mut buf: Buf) {
        let (rail, end, mut cx) = self.at(index);
        let sink = end.sink();
        // Once more: the entry may have been announced between the header and its payload.
        if let Err(breach) = sink.check(&cx.terms, &header) {
            cx.give_buf(buf);
            return rail.base_mut().break_off(cx.platform, RailEnd::Breach(breach));
        }
        let mut arrival = sink.prepare(cx.platform, &cx.terms, &header);
        cx.watch.lap(Stage::Loop);
        let (how, platform) = (arrival.how, &mut *cx.platform);
        let touch = |touch, at: usize, piece: &mut [u8]| match touch {
            Touch::Harm => platform.harm(Harm::SinkBuf, piece),
            Touch::Drain => arrival.drain(platform, header.offset + at as u64, piece),
            Touch::Fill => {}
        };
        let opened = match rail {
            Rail::Stream(rail) => rail.sealer().open_draining(&header, how, &mut buf, cx.watch, touch),
            Rail::Rdma(rail) => rail.sealer().open_draining(&header, how, &mut buf, cx.watch, touch),
            Rail::Datagram(_) => check_draining(&cx.terms, &header, how, &mut buf, cx.watch, touch),
        };
        if let Err(breach) = sink.land(&mut cx, arrival, header, opened, buf) {
            rail.base_mut().break_off(cx.platform, RailEnd::Breach(breach));
        }
    }

    /// A header came whose payload is in the source beside: it is read, hashed and written here, and lands.
    fn copy_in_place(&mut self, index: usize, header: Header, buf: Buf) {
        let (rail, end, mut cx) = self.at(index);
        let sink = end.sink();
        // Once more: the entry may have been announced since the header came.
        let landed = sink.check(&cx.terms, &header).and_then(|()| sink.copy_in_place(&mut cx, header, buf));
        if let Err(breach) = landed {
            rail.base_mut().break_off(cx.platform, RailEnd::Breach(breach));
        }
    }

    /// Chunks that were held go to volumes that want them now; of a job that ends nobody waits for them.
    pub(super) fn land_held(&mut self) {
        let jobs: Vec<JobNo> = self.jobs.iter().filter(|(_, job)| job.end.holds()).map(|(&job, _)| job).collect();
        let now = self.platform.now_ns();
        for number in jobs {
            while let Some(job) = self.jobs.get_mut(&number)
                && let Some(held) = job.end.sink().next_held(now, job.closing)
            {
                let Held { rail, header, digest, buf, unexpected } = held;
                self.slots.release(rail);
                let (_, end, mut cx) = self.at(rail);
                if unexpected {
                    cx.report_unexpected(header.chunk, header.entry);
                    cx.give_buf(buf);
                } else {
                    end.sink().land_now(&mut cx, header, digest, buf);
                }
            }
        }
    }

    /// Every rail gets one go at each step, beginning with another rail in each iteration; one batch per step.
    pub(super) fn step_rails(&mut self) {
        let count = self.rails.len();
        self.share = self.count_share();
        (self.left_by_fill, self.may_unload) = (self.count_left_by_fill(), true);
        // What completions asked for, the rest of a payload mostly: its bytes move in this call, and are not the first step's.
        if let Some(kind) = self.slots.take_newest() {
            self.platform.flush();
            self.watch.lap(kind.stage());
        }
        let steps = [
            (Self::step_fill as fn(&mut Self, usize), Stage::Read),
            (Self::step_send, Stage::Send),
            (Self::step_recv, Stage::Recv),
        ];
        // Where chunks only come in, nothing is read from a source, and nothing is booked to that.
        let begin = usize::from(self.share.receivers == self.rails.iter().flatten().count());
        for (step, stage) in steps.into_iter().skip(begin) {
            for turn in 0..count {
                let index = (self.first + turn) % count;
                // What a queue pair was handed comes back by its completions alone, also when it is dead.
                let drains = |rail: &Rail<P>| stage == Stage::Send && matches!(rail, Rail::Rdma(_));
                let wants = |rail: &Rail<P>| !rail.base().has_ended() || drains(rail);
                if self.rails[index].as_ref().is_some_and(wants) {
                    step(self, index);
                }
            }
            self.platform.flush();
            self.watch.lap(stage);
        }
        self.slots.take_newest();
        self.first = self.first.wrapping_add(1);
    }

    /// Queue pairs on which chunks come in.
    pub(super) fn count_pairs(&self) -> usize {
        let is_pair = |rail: &&Rail<P>| matches!(rail, Rail::Rdma(_)) && rail.is_receiving();
        self.rails.iter().flatten().filter(is_pair).count()
    }

    fn count_share(&self) -> Share {
        let rails = || self.rails.iter().flatten();
        let datagrams = rails().filter(|rail| matches!(rail, Rail::Datagram(_))).count();
        Share {
            bursts: (BURSTS_PER_ITERATION / datagrams.max(1)).max(1),
            receivers: rails().filter(|rail| rail.is_receiving()).count(),
            pairs: self.count_pairs(),
            lenders: rails().filter(|rail| rail.lends_bursts()).count(),
        }
    }

    /// Waiting chunks get bufs and reads, as far as bufs go.
    fn step_fill(&mut self, index: usize) {
        while let Some(feed) = self.rails[index].as_mut().and_then(Rail::feed)
            && feed.wants_buf()
        {
            let is_small = feed.next_is_small();
            let Some(buf) = self.buf_to_fill(is_small) else { return };
            let (rail, end, mut cx) = self.at(index);
            let feed = rail.feed().expect("seen above");
            end.source().fill(feed, &mut cx, buf);
        }
    }

    /// Seals and sends; of a datagram rail, receives as well.
    fn step_send(&mut self, index: usize) {
        let (rail, _, mut cx) = self.at(index);
        match rail {
            Rail::Stream(rail) => stream::step_send(rail, &mut cx),
            Rail::Datagram(_) => self.step_datagram(index),
            Rail::Rdma(_) => self.step_rdma(index),
        }
    }

    fn step_rdma(&mut self, index: usize) {
        loop {
            let (rail, _, mut cx) = self.at(index);
            let Rail::Rdma(rail) = rail else { return };
            match rdma::step(rail, &mut cx) {
                Next::Idle => return,
                next => self.follow(index, next),
            }
        }
    }

    fn step_datagram(&mut self, index: usize) {
        let lent = self.rails[index].as_ref().is_some_and(Rail::lends_bursts);
        loop {
            let (rail, end, mut cx) = self.at(index);
            let Rail::Datagram(rail) = rail else { return };
            match datagram::step(rail, end, &mut cx) {
                Next::Idle => break,
                next => self.follow(index, next),
            }
        }
        let lends = self.rails[index].as_ref().is_some_and(Rail::lends_bursts);
        self.share.lenders = self.share.lenders + usize::from(lends) - usize::from(lent);
    }

    /// Asks a stream rail for its next header, or for the payload of the one that came.
    fn step_recv(&mut self, index: usize) {
        let (rail, _, mut cx) = self.at(index);
        match rail {
            Rail::Stream(rail) => {
                let next = stream::step_recv(rail, &mut cx);
                self.follow(index, next);
            }
            Rail::Datagram(_) | Rail::Rdma(_) => {}
        }
    }

    /// Reads units again of which something was lost, as far as there are bufs.
    fn reload_wanted(&mut self, index: usize) {
        while let Some((unit, is_begun)) = self.rails[index].as_mut().and_then(|rail| rail.datagram()?.next_wanted()) {
            let buf = self.buf_to_reload(index, is_begun);
            let (rail, end, mut cx) = self.at(index);
            let Rail::Datagram(rail) = rail else { return };
            match buf {
                Some(buf) => datagram::reload(rail, end, &mut cx, unit, buf),
                None => return rail.want_later(unit),
            }
        }
    }

    /// Cuts all rails that are like this, after a word to the peer where the rail has one.
    pub(super) fn cut_rails(&mut self, which: impl Fn(&Rail<P>) -> bool) {
        while let Some(index) = self.find_rail(&which) {
            let (rail, _, mut cx) = self.at(index);
            if let Rail::Datagram(rail) = rail {
                datagram::say_goodbye(rail, &mut cx);
            }
            rail.base_mut().break_off(cx.platform, RailEnd::Cut);
        }
    }
}
