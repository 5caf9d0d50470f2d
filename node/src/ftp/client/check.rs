//! What a receipt says, against what is at a server.
//!
//! For: `longhaul verify RECEIPT ftp://…`.
//! In and out: a receipt and an address → what differs, as it is found.
//! Invariants: every byte of every file that the receipt has a digest of is read from the server, and nothing is kept of it; what FTP cannot show
//! (links, devices, modes, times) is said to be unseen.
//! Absent on purpose: the server's own digests: who is asked whether its disk is right reads it, and here somebody else reads.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use engine::rail::plain::bufs::Bufs;
use engine::rail::plain::range::each;
use engine::rail::plain::{Heard, Line};
use engine::worker::bound::Bound;
use proto::ftp::client::name::fits_a_command;
use proto::manifest::EntryKind;
use proto::receipt::EntryLine;
use proto::wire::control::FaultKind;
use text::exit::{Exit, Failure};

use super::address::FtpAddress;
use super::control::{Control, Server, Trouble, command};
use super::get::{cut_words, joined};
use super::near::{absolute, trimmed};
use super::remote::fault_of;
use super::{AGAIN_AFTER, AGAIN_MAX, first_failure, server};
use crate::request::FtpTerms;
use crate::verify::files::{Found, Hash, Tally};
use crate::verify::is_end_of;
use crate::verify::receipt::Paper;

/// Entries that wait for each connection.
const QUEUE_PER_STREAM: usize = 16;
const BUFS_TIME: Duration = Duration::from_secs(60);

/// A place at a server.
#[derive(Debug)]
pub struct Far {
    server: Server,
}

/// Which entries are looked for, and where.
enum Root {
    /// All of them below this folder, without the first bytes of their paths.
    Folder { far: Vec<u8>, strip: usize },
    /// This one is that file.
    One { far: Vec<u8>, entry: Vec<u8> },
}

type Tell = Sender<(Vec<u8>, Found)>;

/// What all connections share.
struct Shared<'a> {
    server: &'a Server,
    root: Root,
    tally: &'a Tally,
    queue: Mutex<Receiver<Box<EntryLine>>>,
    bufs: Bufs,
    bound: Bound,
    unseen: AtomicU64,
    ended: Mutex<Option<Failure>>,
}

impl Far {
    /// For this address. `kept`: the file of fingerprints that are believed.
    ///
    /// # Errors
    /// A login or a fingerprint that cannot be read.
    pub fn new(
        kept: Option<PathBuf>,
        (address, terms, stall): (&FtpAddress, &FtpTerms, Duration),
        note: &mut dyn FnMut(&str),
    ) -> Result<Far, Failure> {
        Ok(Far { server: server(kept.as_deref(), (address, terms, stall), note)? })
    }

    /// Checks every entry over so many connections. `tick` is called on this thread for each finding, and every `look_every` without one. Gives how
    /// many entries FTP cannot show.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the login; the receipt cannot be read any more.
    pub fn check(
        &self,
        paper: &mut Paper,
        streams: usize,
        tally: &Tally,
        look_every: Duration,
        mut tick: impl FnMut(Option<(Vec<u8>, Found)>),
    ) -> Result<u64, Failure> {
        let lost = |trouble| first_failure(&self.server, trouble);
        let mut first = Control::open(&self.server).map_err(lost)?;
        let root = self.root(&mut first, paper)?;
        let failed = |error: std::io::Error| Exit::of_io(&error).fail("prepare to read", error);
        let (give, queue) = sync_channel(streams * QUEUE_PER_STREAM);
        let shared = Shared {
            server: &self.server,
            root,
            tally,
            queue: Mutex::new(queue),
            bufs: Bufs::new((streams as u64) << 20).map_err(failed)?,
            bound: Bound::new(0, None),
            unseen: AtomicU64::new(0),
            ended: Mutex::default(),
        };
        let (tell, findings) = channel();
        let read = std::thread::scope(|scope| {
            let mut first = Some(first);
            for _ in 0..streams {
                let (shared, tell, control) = (&shared, tell.clone(), first.take());
                scope.spawn(move || shared.work(control, &tell));
            }
            drop(tell);
            let shared = &shared;
            let reader =
                scope.spawn(move || paper.entries(|line| !shared.is_wanted(&line) || shared.hand(&give, line)));
            loop {
                match findings.recv_timeout(look_every) {
                    Ok(finding) => tick(Some(finding)),
                    Err(RecvTimeoutError::Timeout) => tick(None),
                    // All connections are done.
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        if let Some(failure) = shared.ended.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(failure);
        }
        read?;
        Ok(shared.unseen.into_inner())
    }

    /// What the address means for this receipt: as `verify::Place` has it for folders and files of this host.
    fn root(&self, control: &mut Control<'_>, paper: &mut Paper) -> Result<Root, Failure> {
        let lost = |trouble| first_failure(&self.server, trouble);
        let home = control.home().map_err(lost)?;
        let far = absolute(&home, &trimmed(&self.server.address.path).0);
        if control.ask("CWD", &far).map_err(lost)?.is_done() {
            let Some(top) = crate::verify::top_of(paper)? else { return Ok(Root::Folder { far, strip: 0 }) };
            let is_there = control.ask("CWD", &joined(&far, &top)).map_err(lost)?.is_done();
            return Ok(Root::Folder { far, strip: if is_there { 0 } else { top.len() + 1 } });
        }
        let mut best: Option<Vec<u8>> = None;
        paper.entries(|line| {
            let path = &line.entry.path;
            let is_longer = best.as_ref().is_none_or(|best| path.len() > best.len());
            if line.entry.is_file() && is_longer && is_end_of(path, &far) {
                best = Some(path.to_vec());
            }
            true
        })?;
        let address = &self.server.address;
        let entry = best.ok_or_else(|| {
            Exit::Usage
                .fail(format!("verify {address}"), "it is no folder of the server, and the receipt names no such file")
                .next("name the folder that was the destination of the copy, or a file of it")
        })?;
        Ok(Root::One { far, entry })
    }
}

impl<'s> Shared<'s> {
    fn is_wanted(&self, line: &EntryLine) -> bool {
        match &self.root {
            Root::Folder { .. } => true,
            Root::One { entry, .. } => line.entry.is_file() && line.entry.path[..] == entry[..],
        }
    }

    /// False: nobody takes any more.
    fn hand(&self, give: &std::sync::mpsc::SyncSender<Box<EntryLine>>, line: Box<EntryLine>) -> bool {
        let mut line = line;
        loop {
            if self.ended.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
                return false;
            }
            match give.try_send(line) {
                Ok(()) => return true,
                Err(std::sync::mpsc::TrySendError::Full(back)) => line = back,
                Err(std::sync::mpsc::TrySendError::Disconnected(_)) => return false,
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The whole life of a connection.
    fn work(&self, mut control: Option<Control<'s>>, tell: &Tell) {
        // What a connection that was lost was at.
        let mut again: VecDeque<Box<EntryLine>> = VecDeque::new();
        let mut lost = 0;
        loop {
            let next =
                again.pop_front().or_else(|| self.queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok());
            let Some(line) = next else { break };
            let looked = control.take().map_or_else(|| Control::open(self.server), Ok).and_then(|mut it| {
                let found = self.entry(&mut it, &line)?;
                control = Some(it);
                Ok(found)
            });
            match looked {
                Ok(found) => {
                    lost = 0;
                    found.into_iter().for_each(|found| drop(tell.send((line.entry.path.to_vec(), found))));
                }
                Err(Trouble::Failure(failure)) => {
                    self.ended.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
                    return;
                }
                Err(trouble) => {
                    lost += 1;
                    if lost > AGAIN_MAX {
                        let failure = first_failure(self.server, trouble);
                        self.ended.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
                        return;
                    }
                    again.push_back(line);
                    std::thread::sleep(AGAIN_AFTER * lost);
                }
            }
        }
        control.into_iter().for_each(Control::quit);
    }

    fn far(&self, path: &[u8]) -> Vec<u8> {
        match &self.root {
            Root::Folder { far, strip } => joined(far, path.get(*strip..).unwrap_or_default()),
            Root::One { far, .. } => far.clone(),
        }
    }

    fn entry(&self, control: &mut Control<'_>, line: &EntryLine) -> Result<Option<Found>, Trouble> {
        let far = self.far(&line.entry.path);
        let is_sayable = fits_a_command(&far);
        match &line.entry.kind {
            EntryKind::File { .. } if !is_sayable => {
                self.tally.file();
                Ok(Some(Found::Unreadable(std::io::Error::other("no name of FTP has a line end"))))
            }
            EntryKind::File { bytes } => {
                let found = self.file(control, line, &far, *bytes)?;
                self.tally.file();
                Ok(found)
            }
            EntryKind::Folder | EntryKind::FolderEnd if is_sayable && far.starts_with(b"/") => {
                let is_there = control.ask("CWD", &far)?.is_done();
                self.tally.other();
                Ok(if is_there { None } else { Some(Found::Missing) })
            }
            _ => {
                self.unseen.fetch_add(1, Ordering::Relaxed);
                Ok(None)
            }
        }
    }

    fn file(
        &self,
        control: &mut Control<'_>,
        line: &EntryLine,
        far: &[u8],
        bytes: u64,
    ) -> Result<Option<Found>, Trouble> {
        let Some((kind, expected)) = line.digest else {
            self.tally.undigested();
            return Ok(match control.size(far)? {
                Some(found) if found != bytes => Some(Found::Size { expected: bytes, found }),
                Some(_) => None,
                None => Some(Found::Missing),
            });
        };
        let mut stream = match control.transfer(&[], &command("RETR", far))? {
            Ok(stream) => stream,
            Err(reply) => {
                let (fault, said) = fault_of(&reply);
                let is_gone = fault == FaultKind::Vanished;
                return Ok(Some(if is_gone { Found::Missing } else { Found::Unreadable(std::io::Error::other(said)) }));
            }
        };
        let mut tls = control.cover(&mut stream, true)?;
        let early = tls.as_mut().map(|tls| std::mem::take(&mut tls.first)).unwrap_or_default();
        let no_buf = || Trouble::Lost("other connections have all memory".to_owned());
        let mut taken = self.bufs.take(1, 1, BUFS_TIME).ok_or_else(no_buf)?;
        let mut buf = taken.bufs.pop().ok_or_else(no_buf)?;
        let (mut hash, mut came) = (Hash::new(kind, 0), 0u64);
        let mut take = |part: &[u8]| {
            came += part.len() as u64;
            hash.update(part);
            self.tally.read(part.len() as u64);
            came <= bytes
        };
        let received = if early.is_end {
            take(&early.bytes);
            Ok(())
        } else {
            let mut line = Line::new(stream.as_fd(), control.as_fd(), || Heard::Deaf, &self.bound, control.stall());
            each(&mut line, tls.as_mut().map(|tls| &mut tls.keys), &early.bytes, &mut buf, take)
        };
        taken.bufs.push(buf);
        drop(stream);
        let end = control.reply()?;
        if let Err(cut) = received {
            return Err(Trouble::Lost(cut_words(&cut)));
        }
        if came > bytes {
            let found = control.size(far)?.unwrap_or(came);
            return Ok(Some(Found::Size { expected: bytes, found }));
        }
        if !end.is_done() {
            return Ok(Some(Found::Unreadable(std::io::Error::other(fault_of(&end).1))));
        }
        let found = hash.finish_whole();
        Ok(match (came == bytes, found == expected) {
            (false, _) => Some(Found::Size { expected: bytes, found: came }),
            (true, false) => Some(Found::Digest { kind, expected, found }),
            (true, true) => None,
        })
    }
}
