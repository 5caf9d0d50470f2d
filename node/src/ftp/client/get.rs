//! From a server to this host.
//!
//! For: `cp`, `sync` with a server's end as source.
//! In and out: sessions, a queue; files under their names in a folder of this host.
//! Invariants: a name has a file when all of it came and the server said so; what was cut stays a part with a journal; names come from listings that
//! were looked at, and are made beneath the base alone.
//! Absent on purpose: who opens sessions and how many (`mod`).

use std::collections::{HashSet, VecDeque};
use std::io;
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use engine::rail::plain::bufs::Bufs;
use engine::rail::plain::range::{Left, range};
use engine::rail::plain::{Cut, Heard, Line, receive};
use engine::tree::is_ours;
use engine::tree::sink::open_ended::{From, How, OpenEnded};
use engine::tree::sink::ranged::{JOURNAL_BYTES_MIN, Ranged, Source, Stretch};
use engine::tree::sink::small::Small;
use engine::worker::bound::Bound;
use proto::ftp::client::listing::Kind;
use proto::ftp::client::name::NAME_BYTES_MAX;
use proto::ftp::client::pipeline::{Expected, Fit};
use proto::ftp::client::reply::Reply;
use proto::ftp::command::Digest;
use proto::negotiate::DigestKind;
use proto::wire::control::FaultKind;
use sys::fs::Dir;
use text::exit::Exit;

use super::control::{Control, Passive, Trouble, command, words};
use super::queue::{FileTask, FolderTask, Queue, Task};
use super::remote::{digest_of, fault_of, time_of};
use crate::ftp::users::hex;

/// A file of so many bytes comes in ranges over several connections: below, opening them costs more than they bring.
const RANGES_BYTES_MIN: u64 = 32 << 20;
/// And no range has fewer.
const RANGE_BYTES_MIN: u64 = 16 << 20;
const CHUNK_BYTES: u64 = 1 << 20;
/// Others have all bufs: how long a transfer waits for them.
const BUFS_TIME: Duration = Duration::from_secs(60);
/// Attempts at a file whose connection is lost again and again.
const TRIES_MAX: u8 = 4;
/// Of errno(3).
const EBUSY: i32 = 16;

/// A range of a file that several connections bring.
#[derive(Debug)]
pub struct Piece {
    big: Arc<Big>,
    range: Range<u64>,
    tries: u8,
}

/// A file in ranges.
#[derive(Debug)]
pub struct Big {
    ranged: Mutex<Option<Arc<Ranged>>>,
    task: FileTask,
    left: AtomicUsize,
    is_bad: AtomicBool,
}

/// What all connections of a download share.
#[derive(Debug)]
pub struct Get {
    /// Work and counts.
    pub queue: Queue<Piece>,
    /// Where files go.
    pub base: Dir,
    /// Nothing stood in that folder when the copy began.
    pub base_is_new: bool,
    /// What small ones share.
    pub small: Arc<Small>,
    /// How files become.
    pub how: How,
    /// Files with the same size and time stay.
    pub keep: bool,
    /// Nothing is changed.
    pub dry_run: bool,
    /// Connections at most.
    pub streams: usize,
    /// Memory of all.
    pub bufs: Bufs,
    /// How fast all may be.
    pub bound: Bound,
    /// Names of everything found, if what is not among them is to be removed.
    pub seen: Option<Mutex<HashSet<Vec<u8>>>>,
    /// Files in ranges, for whoever shows how far they are.
    pub open: Mutex<Vec<(Weak<Ranged>, u64)>>,
    /// Bytes of files that are whole.
    pub whole: AtomicU64,
}

/// A file that was asked for.
struct Asked {
    task: FileTask,
    /// Its time comes before it.
    wants_time: bool,
    /// The server's digest of it comes after it.
    wants_digest: bool,
    /// Which of its commands were said.
    ahead: Ahead,
}

/// Commands for a file that were said at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ahead {
    /// None: each is said when the reply to the one before came.
    Nothing,
    /// All but that for the digest, which would come while bytes move.
    Transfer,
    /// All.
    All,
}

/// What came of a stream.
enum Came {
    Whole,
    /// Not all: why.
    Cut(Cut),
    /// The server's length was wrong.
    Torn(&'static str),
}

impl Get {
    /// Works with this session until there is nothing more to do.
    ///
    /// # Errors
    /// What ended the session; what it was at is in the queue again.
    pub fn work(&self, control: &mut Control<'_>) -> Result<(), Trouble> {
        let mut asked: VecDeque<Asked> = VecDeque::new();
        let worked = self.work_on(control, &mut asked);
        for it in asked {
            let tries = it.task.tries + u8::from(worked.is_err());
            self.again(FileTask { tries, ..it.task }, "the connection was lost again and again");
        }
        worked
    }

    fn again(&self, task: FileTask, why: &str) {
        if task.tries >= TRIES_MAX {
            self.queue.tally().fault(&task.near, FaultKind::Other, why, true);
            self.queue.done(1);
        } else {
            self.queue.give_back(Task::File(task));
        }
    }

    fn work_on(&self, control: &mut Control<'_>, asked: &mut VecDeque<Asked>) -> Result<(), Trouble> {
        loop {
            control.look_at_others();
            if asked.is_empty() {
                match self.queue.take() {
                    None => return Ok(()),
                    Some(Task::Folder(folder)) => {
                        self.folder(control, folder)?;
                        continue;
                    }
                    Some(Task::Range(piece)) => {
                        self.piece(control, piece)?;
                        continue;
                    }
                    Some(Task::File(task)) => {
                        let Some(task) = self.wanted(control, task)? else { continue };
                        self.ask(control, task, asked)?;
                    }
                }
            }
            while control.proved && control.pipeline.may_send(asked.len(), 600) {
                let Some(task) = self.queue.take_ahead() else { break };
                if self.needs_a_look(&task) {
                    self.queue.give_back(Task::File(task));
                    break;
                }
                if let Some(task) = self.wanted(control, task)? {
                    self.ask(control, task, asked)?;
                }
            }
            if !asked.is_empty() {
                self.next(control, asked)?;
            }
        }
    }

    /// Is something to be asked of the server before it is known what to do with a file?
    fn needs_a_look(&self, task: &FileTask) -> bool {
        let big = task.bytes.is_none_or(|bytes| bytes >= JOURNAL_BYTES_MIN);
        big || task.is_link || (self.keep && task.mtime_s.is_none() && self.stands(task).is_some())
    }

    /// The time of the file that stands here with the same length.
    fn stands(&self, task: &FileTask) -> Option<i64> {
        if task.is_new || !self.keep {
            return None;
        }
        let stat = self.base.stat(&task.near).ok()?;
        (stat.kind == sys::fs::Kind::File && Some(stat.bytes) == task.bytes).then_some(stat.mtime_s)
    }

    /// Is a file to be fetched as one stream? It may be the same already, or go in ranges.
    fn wanted(&self, control: &mut Control<'_>, mut task: FileTask) -> Result<Option<FileTask>, Trouble> {
        let looked = self.look(control, &mut task);
        match looked {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => {
                task.tries += 1;
                self.again(task, "the connection was lost again and again");
                return Err(error);
            }
        }
        let Some(bytes) = task.bytes.filter(|&bytes| bytes >= JOURNAL_BYTES_MIN) else { return Ok(Some(task)) };
        self.split(task, bytes);
        Ok(None)
    }

    /// False: it is done with.
    fn look(&self, control: &mut Control<'_>, task: &mut FileTask) -> Result<bool, Trouble> {
        if task.bytes.is_none() || task.is_link {
            task.bytes = control.size(&task.far)?;
            if task.is_link && task.bytes.is_none() {
                self.queue.tally().fault(&task.near, FaultKind::Unsupported, "a link to no file of the server", true);
                self.queue.done(1);
                return Ok(false);
            }
        }
        let stands = self.stands(task);
        if task.mtime_s.is_none()
            && (task.bytes.is_none_or(|it| it >= JOURNAL_BYTES_MIN) || (self.keep && stands.is_some()))
        {
            task.mtime_s = control.modified(&task.far)?;
        }
        let bytes = task.bytes.unwrap_or(0);
        if self.keep && stands.is_some() && stands == task.mtime_s {
            let mut tally = self.queue.tally();
            tally.kept_files += 1;
            tally.kept_bytes += bytes;
            drop(tally);
            self.queue.done(1);
            return Ok(false);
        }
        if self.dry_run {
            let mut tally = self.queue.tally();
            tally.files += 1;
            tally.bytes += bytes;
            drop(tally);
            self.queue.done(1);
            return Ok(false);
        }
        Ok(true)
    }

    /// A file with a journal: what is missing of it becomes ranges.
    fn split(&self, task: FileTask, bytes: u64) {
        let source = Source { bytes, mtime_s: task.mtime_s };
        let ranged = match Ranged::begin(&self.base, &task.near, source, mode_of(&task), self.how) {
            Ok(ranged) => Arc::new(ranged),
            Err(error) => return self.failed_here(&task, &error),
        };
        let missing = ranged.missing();
        let all: u64 = missing.iter().map(|it| it.end - it.start).sum();
        let streams = if all >= RANGES_BYTES_MIN { self.streams as u64 } else { 1 };
        let each = all.div_ceil(streams).max(RANGE_BYTES_MIN).next_multiple_of(CHUNK_BYTES);
        let mut ranges = Vec::new();
        for it in missing {
            let mut at = it.start;
            while at < it.end {
                // A rest that is small stays with what is before it.
                let end = if it.end - at < each + RANGE_BYTES_MIN / 2 { it.end } else { at + each };
                ranges.push(at..end);
                at = end;
            }
        }
        self.queue.tally().resumed += ranged.resumed();
        self.open.lock().unwrap_or_else(PoisonError::into_inner).push((Arc::downgrade(&ranged), bytes));
        let left = AtomicUsize::new(ranges.len().max(1));
        let big = Arc::new(Big { ranged: Mutex::new(Some(ranged)), task, left, is_bad: AtomicBool::new(false) });
        if ranges.is_empty() {
            // All of it is here, and only its name was missing.
            ranges.push(bytes..bytes);
        }
        let pieces = ranges.into_iter().map(|range| Task::Range(Piece { big: Arc::clone(&big), range, tries: 0 }));
        self.queue.add(pieces);
        self.queue.done(1);
    }

    fn failed_here(&self, task: &FileTask, error: &io::Error) {
        let kind = match error.raw_os_error() {
            Some(EBUSY) => FaultKind::InUse,
            _ => kind_of(error),
        };
        self.queue.tally().fault(&task.near, kind, error.to_string(), false);
        self.queue.done(1);
    }

    /// Sends the commands for a file, as far as this server takes them ahead of their turn.
    fn ask(&self, control: &mut Control<'_>, task: FileTask, asked: &mut VecDeque<Asked>) -> Result<(), Trouble> {
        let wants_time = task.mtime_s.is_none() && control.features.mdtm;
        let digest = control.digest_word();
        let ahead = match (control.pipeline.is_one_by_one(), control.proved) {
            (true, _) => Ahead::Nothing,
            (false, false) => Ahead::Transfer,
            (false, true) => Ahead::All,
        };
        let far = task.far.clone();
        asked.push_back(Asked { task, wants_time, wants_digest: digest.is_some(), ahead });
        if ahead == Ahead::Nothing {
            return Ok(());
        }
        let mut lines = Vec::new();
        let mut add = |control: &mut Control<'_>, line: Vec<u8>, expected| {
            control.pipeline.on_sent(expected, line.len());
            lines.extend_from_slice(&line);
        };
        if wants_time {
            add(control, command("MDTM", &far), Expected::Any);
        }
        let passive = control.passive_command()?;
        add(control, passive, expected_of(control.passive));
        add(control, command("RETR", &far), Expected::Transfer);
        if let Some(word) = digest.filter(|_| ahead == Ahead::All) {
            add(control, command(word, &far), Expected::Any);
        }
        control.say(&lines)
    }

    /// The file that was asked for first.
    fn next(&self, control: &mut Control<'_>, asked: &mut VecDeque<Asked>) -> Result<(), Trouble> {
        let lost = |what: &str| Trouble::Lost(format!("the server answered {what}"));
        let front = asked.front_mut().ok_or_else(|| lost("nothing that was asked"))?;
        let is_unsaid = front.ahead == Ahead::Nothing;
        if front.wants_time {
            if is_unsaid {
                say(control, &command("MDTM", &front.task.far), Expected::Any)?;
            }
            let reply = control.reply()?;
            let _ = control.pipeline.on_reply(&reply);
            front.task.mtime_s = time_of(&reply);
            front.wants_time = false;
        }
        let Some(reply) = self.passive(control, asked)? else { return Ok(()) };
        let front = asked.front_mut().ok_or_else(|| lost("nothing that was asked"))?;
        let dialled = control.dial(&reply)?;
        if is_unsaid {
            say(control, &command("RETR", &front.task.far), Expected::Transfer)?;
        }
        let began = control.reply()?;
        match control.pipeline.on_reply(&began) {
            Fit::Began => {}
            Fit::Refused => {
                let Some(it) = asked.pop_front() else { return Ok(()) };
                // These say that the server has lost its place among commands that came ahead: Pure-FTPd tears some in two.
                if it.ahead != Ahead::Nothing && matches!(began.code, 425 | 500 | 502 | 503) {
                    control.all_one_by_one();
                    let tries = it.task.tries + 1;
                    self.again(FileTask { tries, ..it.task }, "the server refused it out of turn");
                    return Err(lost(&format!("RETR by {}", words(&began))));
                }
                if it.wants_digest && it.ahead == Ahead::All {
                    let reply = control.reply()?;
                    let _ = control.pipeline.on_reply(&reply);
                }
                self.refused(it.task, &began);
                return Ok(());
            }
            _ => {
                control.all_one_by_one();
                return Err(lost(&format!("RETR by {}", words(&began))));
            }
        }
        let stream = match dialled {
            Some(stream) => stream,
            None => control.accept()?,
        };
        let Some(it) = asked.pop_front() else { return Ok(()) };
        let task = it.task.clone();
        let done = match it.task.bytes {
            Some(bytes) => self.small(control, it, bytes, stream),
            None => self.unsized_file(control, it, stream),
        };
        if done.is_err() {
            self.again(FileTask { tries: task.tries + 1, ..task }, "the connection was lost again and again");
        }
        done
    }

    /// Where the data connection goes, by the server's reply. `None`: it does not know how it was asked, and the file waits again.
    fn passive(&self, control: &mut Control<'_>, asked: &mut VecDeque<Asked>) -> Result<Option<Reply>, Trouble> {
        let is_unsaid = asked.front().is_some_and(|it| it.ahead == Ahead::Nothing);
        if is_unsaid {
            let passive = control.passive_command()?;
            say(control, &passive, expected_of(control.passive))?;
        }
        let reply = control.reply()?;
        if control.pipeline.on_reply(&reply) != Fit::Done {
            if !control.proved && control.passive == Passive::Extended {
                // It does not know EPSV; that RETR has no place to send to it says next.
                control.passive = Passive::Old;
                if !is_unsaid {
                    let reply = control.reply()?;
                    let _ = control.pipeline.on_reply(&reply);
                }
                let Some(it) = asked.pop_front() else { return Ok(None) };
                self.queue.give_back(Task::File(it.task));
                return Ok(None);
            }
            control.all_one_by_one();
            return Err(Trouble::Lost(format!("the server answered EPSV by {}", words(&reply))));
        }
        Ok(Some(reply))
    }

    fn refused(&self, task: FileTask, reply: &Reply) {
        if reply.is_for_now() && task.tries + 1 < TRIES_MAX && reply.code != 450 {
            self.queue.give_back(Task::File(FileTask { tries: task.tries + 1, ..task }));
            return;
        }
        let (kind, said) = fault_of(reply);
        self.queue.tally().fault(&task.near, kind, said, true);
        self.queue.done(1);
    }

    /// A file in one stream, which has begun. Where this is an error, the file is still to be fetched.
    fn small(&self, control: &mut Control<'_>, it: Asked, bytes: u64, stream: TcpStream) -> Result<(), Trouble> {
        let Asked { ref task, ahead, .. } = it;
        let source = Source { bytes, mtime_s: task.mtime_s };
        let (place, mode) = ((&self.base, &self.small), (mode_of(task), task.is_new));
        let ranged = match Ranged::begin_small(place, &task.near, source, mode, self.how) {
            Ok(ranged) => ranged,
            Err(error) => {
                drop(stream);
                self.replies(control, &it)?;
                self.failed_here(task, &error);
                return Ok(());
            }
        };
        let mut stretch = ranged.stretch(0..bytes);
        let came = self.receive(control, stream, &mut stretch);
        drop(stretch);
        let ended = came.and_then(|came| self.replies(control, &it).map(|replies| (came, replies)));
        let (came, (end, digest)) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                ranged.discard();
                return Err(error);
            }
        };
        match came {
            Came::Whole if end.is_done() => {
                control.proved = true;
                if ahead == Ahead::All && digest.as_ref().is_some_and(|it| !it.is_done()) {
                    // ProFTPD answers 450 to commands that come while it moves bytes, and not in their turn: whose digest the next reply has is not known.
                    ranged.discard();
                    return Err(control.out_of_turn());
                }
                let compared =
                    digest.map_or(Ok(None), |reply| control.compare(&reply, |kind| self.digest_of(kind, &ranged)));
                self.publish(compared, ranged, task);
                return Ok(());
            }
            // Pure-FTPd answers 500 to what comes while it moves bytes, and then tells that the file was sent.
            Came::Whole if ahead != Ahead::Nothing && control.pipeline.waiting() > 0 => {
                ranged.discard();
                return Err(control.out_of_turn());
            }
            Came::Whole => {
                let (kind, said) = fault_of(&end);
                self.queue.tally().fault(&task.near, kind, said, true);
            }
            Came::Torn(why) => self.queue.tally().fault(&task.near, FaultKind::Torn, why, true),
            Came::Cut(Cut::File(error)) => {
                self.queue.tally().fault(&task.near, kind_of(&error), error.to_string(), false);
            }
            Came::Cut(cut) => {
                ranged.discard();
                let why = format!("{}; the server said: {}", cut_words(&cut), words(&end));
                self.again(FileTask { tries: task.tries + 1, ..task.clone() }, &why);
                return Ok(());
            }
        }
        ranged.discard();
        self.queue.done(1);
        Ok(())
    }

    /// The end of a transfer, and the digest behind it.
    fn replies(&self, control: &mut Control<'_>, it: &Asked) -> Result<(Reply, Option<Reply>), Trouble> {
        let mut end = control.reply()?;
        let mut early = None;
        if control.pipeline.on_reply(&end) == Fit::Early {
            early = Some(std::mem::replace(&mut end, control.reply()?));
            let _ = control.pipeline.on_reply(&end);
        }
        if let Some(trouble) = control.unresumed(&end) {
            return Err(trouble);
        }
        if early.is_some() {
            return Ok((end, early));
        }
        let is_said = it.ahead == Ahead::All;
        let Some(word) = control.digest_word().filter(|_| it.wants_digest && (is_said || end.is_done())) else {
            return Ok((end, None));
        };
        if !is_said {
            say(control, &command(word, &it.task.far), Expected::Any)?;
        }
        let digest = control.reply()?;
        let _ = control.pipeline.on_reply(&digest);
        Ok((end, Some(digest)))
    }

    /// One stream into a stretch.
    fn receive(
        &self,
        control: &mut Control<'_>,
        mut stream: TcpStream,
        stretch: &mut Stretch<'_>,
    ) -> Result<Came, Trouble> {
        let mut tls = control.cover(&mut stream, true)?;
        let early = tls.as_mut().map(|tls| std::mem::take(&mut tls.first)).unwrap_or_default();
        let Some(mut taken) = self.bufs.take(1, 1, BUFS_TIME) else {
            return Ok(Came::Cut(Cut::File(io::ErrorKind::OutOfMemory.into())));
        };
        let Some(mut buf) = taken.bufs.pop() else {
            return Ok(Came::Cut(Cut::File(io::ErrorKind::OutOfMemory.into())));
        };
        let received = if early.is_end {
            stretch.put(std::iter::once(&early.bytes[..])).map_err(Cut::File).map(|over| match (over, stretch.left()) {
                (0, 0) => Left::AtItsEnd,
                (0, _) => Left::Short,
                _ => Left::Over,
            })
        } else {
            let heard = || Heard::Deaf;
            let mut line = Line::new(stream.as_fd(), control.as_fd(), heard, &self.bound, control.stall());
            range(&mut line, tls.as_mut().map(|tls| &mut tls.keys), &early.bytes, &mut buf, stretch)
        };
        taken.bufs.push(buf);
        Ok(match received {
            Ok(Left::AtItsEnd | Left::Before) => Came::Whole,
            Ok(Left::Short) => Came::Torn("the server sent fewer bytes than it said"),
            Ok(Left::Over) => Came::Torn("the server sends more bytes than it said"),
            Err(cut) => Came::Cut(cut),
        })
    }

    /// A file of a length that nobody told.
    fn unsized_file(&self, control: &mut Control<'_>, it: Asked, mut stream: TcpStream) -> Result<(), Trouble> {
        let task = &it.task;
        let mut tls = control.cover(&mut stream, true)?;
        let early = tls.as_mut().map(|tls| std::mem::take(&mut tls.first)).unwrap_or_default();
        let began = OpenEnded::begin(&self.base, &task.near, From::Start, self.how);
        let taken = self.bufs.take(receive::BUFS_MIN, receive::BUFS_MAX, BUFS_TIME);
        let came = match (began, taken) {
            (Ok(mut part), Some(mut taken)) => {
                let put = part.put(std::iter::once(&early.bytes[..])).map_err(Cut::File);
                let mut line = Line::new(stream.as_fd(), control.as_fd(), || Heard::Deaf, &self.bound, control.stall());
                let came = put.and_then(|()| match early.is_end {
                    true => Ok(()),
                    false => {
                        receive::file(&mut line, tls.as_mut().map(|tls| &mut tls.keys), &mut taken.bufs, &mut part)
                    }
                });
                Ok((part, came))
            }
            (Ok(part), None) => {
                part.discard();
                Err(io::Error::from(io::ErrorKind::OutOfMemory))
            }
            (Err(error), _) => Err(error),
        };
        drop(stream);
        let (end, _) = self.replies(control, &it)?;
        let (part, came) = match came {
            Ok(it) => it,
            Err(error) => {
                self.failed_here(task, &error);
                return Ok(());
            }
        };
        match came {
            Ok(()) if end.is_done() => {
                let bytes = part.bytes();
                match part.publish() {
                    Ok(whole) => {
                        control.proved = true;
                        if let Some(seconds) = task.mtime_s {
                            let _ = self.base.set_meta(&task.near, None, Some((seconds, 0)), false);
                        }
                        let mut tally = self.queue.tally();
                        tally.files += 1;
                        tally.bytes += bytes;
                        tally.last = Some(whole);
                    }
                    Err(error) => self.queue.tally().fault(&task.near, kind_of(&error), error.to_string(), false),
                }
            }
            Ok(()) => {
                part.discard();
                let (kind, said) = fault_of(&end);
                self.queue.tally().fault(&task.near, kind, said, true);
            }
            Err(cut) => {
                part.discard();
                self.queue.tally().fault(&task.near, FaultKind::Other, cut_words(&cut), true);
            }
        }
        self.queue.done(1);
        Ok(())
    }

    /// All of a file came. It is named, unless the server's digest is another.
    /// The digest of what came, which is known where that is what was made of it on its way.
    fn digest_of(&self, kind: Digest, ranged: &Ranged) -> io::Result<String> {
        let is_known = kind == Digest::Blake3 && self.how.digest == DigestKind::Blake3;
        match ranged.digest().filter(|_| is_known) {
            Some(digest) => Ok(hex(&digest)),
            None => digest_of(kind, ranged.file()),
        }
    }

    fn publish(&self, compared: Result<Option<bool>, io::Error>, ranged: Ranged, task: &FileTask) {
        let resumed = ranged.resumed();
        let fault = match compared {
            Ok(Some(false)) => {
                Some((FaultKind::Corrupt, "the server's digest is another than that of what came".to_owned()))
            }
            Ok(_) => None,
            Err(ref error) => Some((kind_of(error), error.to_string())),
        };
        if let Some((kind, why)) = fault {
            ranged.discard();
            self.queue.tally().fault(&task.near, kind, why, kind == FaultKind::Corrupt);
            self.queue.done(1);
            return;
        }
        match ranged.publish(task.mtime_s) {
            Ok(whole) => {
                let mut tally = self.queue.tally();
                tally.files += 1;
                tally.bytes += whole.bytes - resumed;
                // Of no bytes there is nothing to compare, and ProFTPD tells no digest.
                tally.verified += u64::from(matches!(compared, Ok(Some(true))) || whole.bytes == 0);
                tally.last = Some(whole);
                self.whole.fetch_add(whole.bytes, Ordering::Relaxed);
            }
            Err(error) => self.queue.tally().fault(&task.near, kind_of(&error), error.to_string(), false),
        }
        self.queue.done(1);
    }

    /// A range of a file.
    fn piece(&self, control: &mut Control<'_>, piece: Piece) -> Result<(), Trouble> {
        let ranged = piece.big.ranged.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(ranged) = ranged.filter(|_| !piece.big.is_bad.load(Ordering::SeqCst)) else {
            return self.piece_done(control, &piece.big);
        };
        if piece.range.is_empty() {
            drop(ranged);
            return self.piece_done(control, &piece.big);
        }
        let mut stretch = ranged.stretch(piece.range.clone());
        let fetched = self.fetch(control, &piece.big.task, &mut stretch);
        let at = stretch.at() / CHUNK_BYTES * CHUNK_BYTES;
        stretch.leave();
        drop(ranged);
        let bad = |kind, why: String, is_peers| {
            if !piece.big.is_bad.swap(true, Ordering::SeqCst) {
                self.queue.tally().fault(&piece.big.task.near, kind, why, is_peers);
            }
        };
        let again = |why: String| {
            if piece.tries + 1 >= TRIES_MAX {
                bad(FaultKind::Other, why, true);
                return false;
            }
            let next = Piece { big: Arc::clone(&piece.big), range: at..piece.range.end, tries: piece.tries + 1 };
            self.queue.give_back(Task::Range(next));
            true
        };
        match fetched {
            Ok(Ok(Came::Whole)) => {}
            Ok(Ok(Came::Torn(why))) => bad(FaultKind::Torn, why.to_owned(), true),
            Ok(Ok(Came::Cut(Cut::File(error)))) => bad(kind_of(&error), error.to_string(), false),
            Ok(Ok(Came::Cut(cut))) => {
                if again(cut_words(&cut)) {
                    return Ok(());
                }
            }
            Ok(Err(reply)) if reply.is_for_now() && reply.code != 450 => {
                if again(words(&reply)) {
                    return Ok(());
                }
            }
            Ok(Err(reply)) => {
                let (kind, said) = fault_of(&reply);
                bad(kind, said, true);
            }
            Err(error) => {
                if !again("the connection was lost again and again".to_owned()) {
                    self.queue.done(1);
                }
                return Err(error);
            }
        }
        self.piece_done(control, &piece.big)
    }

    fn fetch(
        &self,
        control: &mut Control<'_>,
        task: &FileTask,
        stretch: &mut Stretch<'_>,
    ) -> Result<Result<Came, Reply>, Trouble> {
        let rest =
            if stretch.at() > 0 { vec![command("REST", stretch.at().to_string().as_bytes())] } else { Vec::new() };
        let stream = match control.transfer(&rest, &command("RETR", &task.far))? {
            Ok(stream) => stream,
            Err(reply) => return Ok(Err(reply)),
        };
        let is_last = stretch.is_last();
        let came = self.receive(control, stream, stretch)?;
        // Of a range that is not the last the server says that we closed the connection; of the last that it is whole.
        let end = control.reply()?;
        if matches!(came, Came::Whole) && is_last && !end.is_done() {
            return Ok(Err(end));
        }
        Ok(Ok(came))
    }

    fn piece_done(&self, control: &mut Control<'_>, big: &Arc<Big>) -> Result<(), Trouble> {
        if big.left.fetch_sub(1, Ordering::SeqCst) > 1 {
            self.queue.done(1);
            return Ok(());
        }
        let ranged = big.ranged.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(ranged) = ranged.and_then(Arc::into_inner) else {
            self.queue.done(1);
            return Ok(());
        };
        if big.is_bad.load(Ordering::SeqCst) {
            ranged.leave();
            self.queue.done(1);
            return Ok(());
        }
        let digest = match control.digest_word().map(|word| control.ask(word, &big.task.far)).transpose() {
            Ok(digest) => digest,
            Err(error) => {
                // All of it is here: the next connection asks again.
                ranged.leave();
                self.again(FileTask { tries: big.task.tries + 1, ..big.task.clone() }, "the connection was lost");
                return Err(error);
            }
        };
        let compared = digest.map_or(Ok(None), |reply| control.compare(&reply, |kind| self.digest_of(kind, &ranged)));
        self.publish(compared, ranged, &big.task);
        Ok(())
    }

    /// A folder: made here, listed there.
    fn folder(&self, control: &mut Control<'_>, folder: FolderTask) -> Result<(), Trouble> {
        let listed = match control.list(&folder.far) {
            Ok(listed) => listed,
            Err(error) => {
                self.queue.give_back(Task::Folder(folder));
                return Err(error);
            }
        };
        let listing = match listed {
            Ok(listing) => listing,
            Err(reply) => {
                let (kind, said) = fault_of(&reply);
                self.queue.tally().fault(&folder.near, kind, said, true);
                self.queue.done(1);
                return Ok(());
            }
        };
        let Some(is_new) = self.make(&folder) else {
            self.queue.done(1);
            return Ok(());
        };
        let (mut tasks, mut found) = (Vec::new(), (0, 0));
        for entry in listing.entries {
            if is_ours(&entry.name) || entry.name.len() > NAME_BYTES_MAX {
                continue;
            }
            let (far, near) = (joined(&folder.far, &entry.name), joined(&folder.near, &entry.name));
            if let Some(seen) = &self.seen {
                seen.lock().unwrap_or_else(PoisonError::into_inner).insert(near.clone());
            }
            match entry.kind {
                Kind::Folder => tasks.push(Task::Folder(FolderTask { far, near, mtime_s: entry.modified_s })),
                Kind::File | Kind::Link => {
                    found = (found.0 + 1, found.1 + entry.bytes.unwrap_or(0));
                    let is_link = entry.kind == Kind::Link;
                    let bytes = entry.bytes.filter(|_| !is_link);
                    let mode = entry.mode.filter(|_| !is_link);
                    tasks.push(Task::File(FileTask {
                        far,
                        near,
                        bytes,
                        mtime_s: entry.modified_s,
                        mode,
                        is_link,
                        is_new,
                        tries: 0,
                    }));
                }
                Kind::Other => self.queue.tally().fault(&near, FaultKind::Unsupported, "neither file nor folder", true),
            }
        }
        let mut tally = self.queue.tally();
        tally.found = (tally.found.0 + found.0, tally.found.1 + found.1);
        for name in listing.refused {
            let near = joined(&folder.near, b"(refused)");
            let name = crate::report::show_path(&name);
            tally.fault(
                &near,
                FaultKind::Unsupported,
                format!("the server names an entry '{name}', which leads out of its folder"),
                true,
            );
        }
        if listing.unknown > 0 {
            tally.note(&format!("{} lines of listings could not be understood, and were left out", listing.unknown));
        }
        drop(tally);
        self.queue.add(tasks);
        self.queue.done(1);
        Ok(())
    }

    /// Makes a folder here, and says whether it is new, so that nothing is in it. `None`: it cannot be.
    fn make(&self, folder: &FolderTask) -> Option<bool> {
        if self.dry_run {
            self.queue.tally().folders += 1;
            return Some(false);
        }
        let is_base = folder.near.is_empty();
        let made = if is_base { Ok(()) } else { self.base.make_dir(&folder.near, 0o755) };
        let is_new = if is_base { self.base_is_new } else { made.is_ok() };
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && self.base.open_dir(&folder.near).is_ok() => {}
            Err(error) => {
                self.queue.tally().fault(&folder.near, kind_of(&error), error.to_string(), false);
                return None;
            }
            Ok(()) => self.queue.tally().folders += 1,
        }
        if let Some(seconds) = folder.mtime_s {
            self.queue.tally().times.push((folder.near.clone(), seconds));
        }
        Some(is_new)
    }
}

/// One command, whose reply is read before the next.
fn say(control: &mut Control<'_>, line: &[u8], expected: Expected) -> Result<(), Trouble> {
    control.pipeline.on_sent(expected, line.len());
    control.say(line)
}

fn expected_of(passive: Passive) -> Expected {
    if passive == Passive::Active { Expected::Any } else { Expected::Passive }
}

/// Permission bits, without those that lend a user's rights.
fn mode_of(task: &FileTask) -> Option<u32> {
    task.mode.map(|mode| mode & 0o777)
}

/// A name below a folder.
#[must_use]
pub fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if folder.is_empty() || folder.ends_with(b"/") { b"" } else { b"/" };
    [folder, slash, name].concat()
}

/// What kind of fault the system's error is.
#[must_use]
pub fn kind_of(error: &io::Error) -> FaultKind {
    match Exit::of_io(error) {
        Exit::Full => FaultKind::Full,
        Exit::Denied => FaultKind::Denied,
        Exit::Io => FaultKind::Io,
        Exit::Vanished => FaultKind::Vanished,
        _ => FaultKind::Other,
    }
}

/// Why a stream was cut, in words.
#[must_use]
pub fn cut_words(cut: &Cut) -> String {
    match cut {
        Cut::Stopped => "it was stopped".to_owned(),
        Cut::Silent => "nothing moved for the time of --stall".to_owned(),
        Cut::Network(error) => format!("the data connection failed: {error}"),
        Cut::File(error) => error.to_string(),
        Cut::Truncated => "the data connection ended without the word of TLS that it is whole".to_owned(),
        Cut::Blocks(broken) => format!("the data connection brought {}", broken.words()),
        Cut::Broken(broken) => format!("the data connection is no TLS any more ({broken:?})"),
    }
}
