//! Transfers by MODE E: several data connections, which are kept for the next one.
//!
//! For: RETR, ERET, STOR, ESTO and listings of GridFTP's clients, in clear.
//! In and out: a session with a way to its client; the last reply.
//! Invariants: whoever sends connects; a name has a file when as many connections said that they are at their end as there are, and no byte is missing; what
//! failed keeps no connection.
//! Absent on purpose: commands (`proto::ftp::session`); blocks (`engine::rail::plain::{gather, scatter}`).

use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;

use engine::rail::plain::bufs::Taken;
use engine::rail::plain::gather::{self, Progress, Streams};
use engine::rail::plain::scatter::{self, BLOCK_BYTES, Sending};
use engine::rail::plain::{self, Cut, Heard};
use engine::tree::sink::open_ended::scattered::Scattered;
use proto::ftp::blocks::Incoming;
use proto::ftp::session::fault::End;
use proto::ftp::session::{self as machine, Action, Blocks, Connect, Over};
use proto::wire::control::FILE_BYTES_MAX;

use super::data::one_port::CONNECT_TIME;
use super::data::{self, Way};
use super::files::fault_of;
use super::session::Session;
use super::transfer::{BUFS_TIME, SILENCE, hear, is_full};

fn failed(error: io::Error) -> End {
    End::NoConnection(error.to_string())
}

impl Session<'_> {
    /// Connections to send over: those that are kept, and as many more as these bytes are worth.
    pub(super) fn open_streams(&mut self, connect: &Connect, blocks: &Blocks) -> Result<Vec<TcpStream>, End> {
        let mut streams = std::mem::take(&mut self.kept);
        if let machine::Way::Active(address) = connect.way {
            streams.clear();
            self.dialled = Some(address);
        }
        let bytes: u64 = blocks.ranges.iter().map(|it| it.end - it.start).sum();
        let wanted = bytes.div_ceil(BLOCK_BYTES).clamp(1, u64::from(blocks.connections)) as usize;
        while streams.len() < wanted {
            let address = self.dialled.ok_or_else(|| End::NoConnection("nothing was said of it".to_owned()))?;
            let beside = self.line.as_fd().try_clone_to_owned().map_err(failed)?;
            let (peer, local) = (self.peer.ip(), self.local.ip());
            let stream = data::connect(Way::Active(address), peer, local, beside.as_fd(), || Heard::On);
            let stream = stream.map_err(|error| match error.kind() {
                io::ErrorKind::TimedOut => End::NobodyCame,
                _ => failed(error),
            })?;
            // The end of a short file is not to wait for the peer's word that it has its beginning.
            stream.set_nodelay(true).map_err(failed)?;
            data::set_buffers(&stream, self.machine.buffer_bytes());
            plain::prepare(&stream).map_err(failed)?;
            streams.push(stream);
        }
        self.opening()?;
        Ok(streams)
    }

    /// The connections are for the next transfer, and so is the port where more of them may come.
    pub(super) fn keep(&mut self, streams: Vec<TcpStream>) {
        self.machine.on_kept();
        self.kept = streams;
    }

    pub(super) fn send_blocks(&mut self, connect: &Connect, blocks: &Blocks, file: &File) -> Result<Over, End> {
        let streams = self.open_streams(connect, blocks)?;
        let bound = Arc::clone(&self.bound);
        let sending = Sending {
            file,
            ranges: &blocks.ranges,
            zero: blocks.zero,
            bufs: &self.door.bufs,
            bufs_time: BUFS_TIME,
            bound: &bound,
            silence: SILENCE,
        };
        let beside = self.line.as_fd().try_clone_to_owned().map_err(failed)?;
        let Session { line, machine, clock, .. } = self;
        let sent = scatter::file(&sending, &streams, beside.as_fd(), || hear(line, machine, clock.now_ns(), false));
        sent.map_err(|cut| self.end_of(&cut))?;
        self.keep(streams);
        Ok(Over::Sent)
    }

    pub(super) fn receive_blocks(
        &mut self,
        connect: &Connect,
        taken: Taken,
        mut part: Scattered,
        announced: Option<u64>,
        name: Option<Vec<u8>>,
    ) -> Result<Over, End> {
        let (began, mut streams) = (part.standing(), std::mem::take(&mut self.kept));
        if connect.way == machine::Way::Passive {
            streams.clear();
        }
        let came = self.gather(taken, &mut streams, &mut part, announced);
        let came = came.and_then(|bytes| match announced {
            Some(wanted) if wanted > bytes && wanted != bytes - began => Err(End::Truncated),
            _ => Ok(bytes),
        });
        let bytes = match came {
            Ok(bytes) => bytes,
            Err(end) => {
                self.leave(part, &end);
                return Err(end);
            }
        };
        let mut begun = None;
        let whole = part.publish_seen(bytes, |file| begun = self.begin_known(file));
        let whole = whole.map_err(|error| End::File(fault_of(&error)))?;
        self.end_known(begun, &whole);
        self.keep(streams);
        Ok(Over::Stored { bytes: whole.bytes, digest: self.digest_words(&whole.digest), name })
    }

    fn gather(
        &mut self,
        mut taken: Taken,
        streams: &mut Vec<TcpStream>,
        part: &mut Scattered,
        announced: Option<u64>,
    ) -> Result<u64, End> {
        self.opening()?;
        let bound = Arc::clone(&self.bound);
        let beside = self.line.as_fd().try_clone_to_owned().map_err(failed)?;
        // ALLO says how much comes; a client that said it and sends more lies.
        let limit = announced.filter(|&it| it > 0).and_then(|it| it.checked_add(part.standing())).unwrap_or(u64::MAX);
        let incoming = Incoming::new(part.standing(), limit.min(FILE_BYTES_MAX));
        let peer = self.peer.ip();
        let Session { line, machine, clock, listener, .. } = self;
        let Way::Passive(door) = &*listener else {
            return Err(End::NoConnection("MODE E needs --passive-ports with a range, or none".to_owned()));
        };
        let accept = || loop {
            match door.accept() {
                // Somebody else's is closed, and ends nothing.
                Ok((stream, from)) if from.ip().to_canonical() == peer.to_canonical() => return Ok(Some(stream)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {
                }
                Err(error) => return Err(error),
            }
        };
        let mut from = Streams {
            door: Some(door.as_fd()),
            accept,
            beside: beside.as_fd(),
            bound: &bound,
            silence: SILENCE,
            first: CONNECT_TIME,
        };
        let heard = |progress: Progress| {
            let heard = hear(line, machine, clock.now_ns(), true);
            let (unix_s, _) = sys::clock::unix_time();
            machine.on_progress(clock.now_ns(), unix_s, (progress.came, progress.standing), false);
            while let Some(Action::Say(bytes)) = machine.next_action() {
                if line.say(&bytes).is_err() {
                    return Heard::Stop;
                }
            }
            heard
        };
        gather::file(&mut from, streams, incoming, &mut taken.bufs, part, heard).map_err(|cut| match cut {
            Cut::Network(error) if error.kind() == io::ErrorKind::TimedOut => End::NobodyCame,
            cut => self.end_of(&cut),
        })
    }

    /// It was cut: the client hears how much of its beginning stands.
    fn leave(&mut self, part: Scattered, end: &End) {
        let now_ns = self.clock.now_ns();
        self.listener = Way::None;
        if matches!(end, End::File(fault) if is_full(fault)) {
            return part.discard();
        }
        let kept = part.leave().unwrap_or(0);
        self.machine.on_progress(now_ns, 0, (0, kept), true);
    }
}
