//! From this host to a server.
//!
//! For: `cp`, `sync` with a server's end as destination.
//! In and out: sessions, a queue; files under their names at the server, with their times.
//! Invariants: bytes go under a name of ours, which says of which file they are, and get the file's name when the server has as many as they are: what
//! was cut is gone on with (REST, APPE), and never of another file.
//! Absent on purpose: what stands at the server and is no file or folder.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::rail::plain::bufs::Bufs;
use engine::rail::plain::send::Way;
use engine::rail::plain::{Cut, Heard, Line, send};
use engine::tree::is_ours;
use engine::worker::bound::Bound;
use proto::ftp::client::listing::{Entry, Kind};
use proto::ftp::client::name::is_safe;
use proto::ftp::time;
use proto::wire::control::FaultKind;
use text::exit::{Exit, Failure};

use super::control::{Control, Server, Trouble, command, words};
use super::get::{cut_words, joined, kind_of};
use super::near::Upload;
use super::queue::{FileTask, FolderTask, Queue, Tally, Task};
use super::remote::{digest_of, fault_of, read_range, size_of};
use crate::ftp::digests::Running;
use crate::request::JobRequest;

/// Files up to this go whole again: to ask for what is there costs as much.
const RESUME_BYTES_MIN: u64 = 8 << 20;
/// Sent, then hashed and counted at once: whole records, and little beside what a socket holds, so that it does not run dry meanwhile.
const STEP_BYTES: u64 = 256 << 10;
const BUFS_TIME: Duration = Duration::from_secs(60);
const TRIES_MAX: u8 = 4;

/// What all connections of an upload share.
#[derive(Debug)]
pub struct Put {
    /// Work and counts.
    pub queue: Queue<()>,
    /// Bytes that went.
    pub moved: AtomicU64,
    bufs: Bufs,
    bound: Bound,
    keep: bool,
    dry_run: bool,
    prune: Option<u64>,
    parents: Vec<Vec<u8>>,
}

/// The name under which a file is on its way: of its name, length and time.
fn on_its_way(far: &[u8], bytes: u64, mtime_s: i64) -> Vec<u8> {
    let split = far.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let mut hash = blake3::Hasher::new();
    hash.update(&far[split..]).update(&bytes.to_le_bytes()).update(&mtime_s.to_le_bytes());
    let name = format!(".lh-upload-{}", &hash.finalize().to_hex()[..16]);
    [&far[..split], name.as_bytes()].concat()
}

/// One attempt at an upload: what was sent so far.
#[derive(Debug)]
struct Attempt {
    /// Of all of it, if a digest is to be compared.
    sum: Option<Running>,
    bytes: u64,
}

impl Put {
    /// For this upload.
    #[must_use]
    pub fn new(request: &JobRequest, plan: Upload, bufs: Bufs, bound: Bound, streams: usize) -> Put {
        let queue = Queue::new(streams);
        queue.tally().found = plan.found;
        queue.add(plan.tasks);
        Put {
            queue,
            moved: AtomicU64::new(0),
            bufs,
            bound,
            keep: request.keep,
            dry_run: request.dry_run,
            prune: request.prune,
            parents: plan.parents,
        }
    }

    /// Works with this session until there is nothing more to do.
    ///
    /// # Errors
    /// What ended the session; what it was at is in the queue again.
    pub fn work(&self, control: &mut Control<'_>) -> Result<(), Trouble> {
        if !self.dry_run {
            for parent in &self.parents {
                let _ = control.ask("MKD", parent)?;
            }
        }
        while let Some(task) = self.queue.take() {
            match task {
                Task::Folder(folder) => {
                    if let Err(error) = self.folder(control, &folder) {
                        self.queue.give_back(Task::Folder(folder));
                        return Err(error);
                    }
                }
                Task::File(file) => {
                    if let Err(error) = self.file(control, &file) {
                        self.again(
                            FileTask { tries: file.tries + 1, ..file },
                            "the connection was lost again and again",
                        );
                        return Err(error);
                    }
                }
                Task::Range(()) => self.queue.done(1),
            }
        }
        Ok(())
    }

    fn again(&self, task: FileTask, why: &str) {
        if task.tries >= TRIES_MAX {
            self.queue.tally().fault(&task.far, FaultKind::Other, why, true);
            self.queue.done(1);
        } else {
            self.queue.give_back(Task::File(task));
        }
    }

    fn fault(&self, far: &[u8], kind: FaultKind, why: impl Into<String>, is_peers: bool) {
        self.queue.tally().fault(far, kind, why, is_peers);
        self.queue.done(1);
    }

    /// A folder: made there, and read here.
    fn folder(&self, control: &mut Control<'_>, folder: &FolderTask) -> Result<(), Trouble> {
        let path = Path::new(std::ffi::OsStr::from_bytes(&folder.near));
        let mut there: Option<HashMap<Vec<u8>, Entry>> = None;
        if !self.dry_run && !folder.far.is_empty() && folder.far != b"/" {
            let reply = control.ask("MKD", &folder.far)?;
            if reply.is_done() {
                self.queue.tally().folders += 1;
                // A folder that was made now has nothing in it.
                there = Some(HashMap::new());
            }
        }
        if there.is_none() && (self.keep || self.prune.is_some()) {
            there = control
                .list(&folder.far)?
                .ok()
                .map(|it| it.entries.into_iter().map(|it| (it.name.clone(), it)).collect());
        }
        let mut there = there.unwrap_or_default();
        let entries = match std::fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) => {
                self.fault(&folder.near, kind_of(&error), error.to_string(), false);
                return Ok(());
            }
        };
        let mut tasks = Vec::new();
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name().as_bytes().to_vec();
            if is_ours(&name) {
                continue;
            }
            let (far, near) = (joined(&folder.far, &name), joined(&folder.near, &name));
            let stands = there.remove(&name);
            let kind = entry.file_type().ok();
            match kind {
                _ if !is_safe(&name) => {
                    self.queue.tally().fault(&near, FaultKind::Unsupported, "no name of FTP has a line end", false);
                }
                Some(kind) if kind.is_dir() => tasks.push(Task::Folder(FolderTask { far, near, mtime_s: None })),
                Some(kind) if kind.is_file() => {
                    let Ok(meta) = entry.metadata() else { continue };
                    let is_same_size =
                        stands.as_ref().is_some_and(|it| it.kind == Kind::File && it.bytes == Some(meta.len()));
                    let time = stands.and_then(|it| it.modified_s);
                    let mut tally = self.queue.tally();
                    tally.found = (tally.found.0 + 1, tally.found.1 + meta.len());
                    drop(tally);
                    // The time of what stands there with the same length; 0: it is to be asked for.
                    let mtime_s = is_same_size.then_some(time.unwrap_or(0));
                    tasks.push(Task::File(FileTask { far, near, mtime_s, ..FileTask::default() }));
                }
                _ => self.queue.tally().fault(
                    &near,
                    FaultKind::Unsupported,
                    "FTP has no word for links and devices",
                    false,
                ),
            }
        }
        if self.prune.is_some() {
            self.queue.tally().extras.extend(
                there
                    .into_values()
                    .filter(|it| is_safe(&it.name))
                    .map(|it| (joined(&folder.far, &it.name), it.kind == Kind::Folder)),
            );
        }
        self.queue.add(tasks);
        self.queue.done(1);
        Ok(())
    }

    fn file(&self, control: &mut Control<'_>, task: &FileTask) -> Result<(), Trouble> {
        let opened = File::open(Path::new(std::ffi::OsStr::from_bytes(&task.near))).and_then(|file| {
            let meta = file.metadata()?;
            Ok((file, meta))
        });
        let (file, meta) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.fault(&task.near, kind_of(&error), error.to_string(), false);
                return Ok(());
            }
        };
        let version = (meta.len(), meta.mtime(), meta.mtime_nsec());
        let (bytes, mtime_s, _) = version;
        if self.is_kept(control, task, bytes, mtime_s)? {
            let mut tally = self.queue.tally();
            tally.kept_files += 1;
            tally.kept_bytes += bytes;
            drop(tally);
            self.queue.done(1);
            return Ok(());
        }
        if self.dry_run {
            let mut tally = self.queue.tally();
            tally.files += 1;
            tally.bytes += bytes;
            drop(tally);
            self.queue.done(1);
            return Ok(());
        }
        let part = on_its_way(&task.far, bytes, mtime_s);
        let at = if bytes >= RESUME_BYTES_MIN && control.features.size {
            control.size(&part)?.filter(|&it| it <= bytes).unwrap_or(0)
        } else {
            0
        };
        // Of what an earlier run sent, nothing was hashed in this one.
        let sum = if at == 0 { control.upload_digest() } else { None };
        let mut attempt = Attempt { sum, bytes: 0 };
        self.moved.fetch_add(at, Ordering::Relaxed);
        if at < bytes || bytes == 0 {
            let stored = self.store(control, &part, (&file, at..bytes), &mut attempt);
            if !matches!(stored, Ok(Ok(()))) {
                // The next try asks how much of it is there.
                self.moved.fetch_sub(at + attempt.bytes, Ordering::Relaxed);
            }
            match stored? {
                Ok(()) => {}
                Err((kind, why)) if kind == FaultKind::Other && task.tries + 1 < TRIES_MAX => {
                    self.again(FileTask { tries: task.tries + 1, ..task.clone() }, &why);
                    return Ok(());
                }
                Err((kind, why)) => {
                    self.fault(&task.near, kind, why, true);
                    return Ok(());
                }
            }
        }
        self.queue.tally().resumed += at;
        self.name(control, task, &part, (&file, version), (at, attempt.sum))
    }

    /// Does the same stand there?
    fn is_kept(&self, control: &mut Control<'_>, task: &FileTask, bytes: u64, mtime_s: i64) -> Result<bool, Trouble> {
        if !self.keep {
            return Ok(false);
        }
        let there = match task.mtime_s {
            Some(0) => control.modified(&task.far)?,
            Some(seconds) => Some(seconds),
            // Named by itself: nothing was listed.
            None if task.tries == 0 && control.features.mdtm && control.size(&task.far)? == Some(bytes) => {
                control.modified(&task.far)?
            }
            None => None,
        };
        Ok(there == Some(mtime_s))
    }

    /// A range of a file to its end, under this name.
    fn store(
        &self,
        control: &mut Control<'_>,
        part: &[u8],
        (file, range): (&File, Range<u64>),
        attempt: &mut Attempt,
    ) -> Result<Result<(), (FaultKind, String)>, Trouble> {
        let rest = if range.start > 0 { vec![command("REST", range.start.to_string().as_bytes())] } else { Vec::new() };
        let began = match control.transfer(&rest, &command("STOR", part))? {
            // Some have REST for RETR only: what follows is put at the end of what is there.
            Err(_) if range.start > 0 => control.transfer(&[], &command("APPE", part))?,
            began => began,
        };
        let stream = match began {
            Ok(stream) => stream,
            Err(reply) => return control.unresumed(&reply).map_or_else(|| Ok(Err(fault_of(&reply))), Err),
        };
        let sent = self.send(control, stream, (file, range), attempt)?;
        let end = control.reply()?;
        if let Some(trouble) = control.unresumed(&end) {
            return Err(trouble);
        }
        match sent {
            Ok(()) if end.is_done() => {
                control.proved = true;
                Ok(Ok(()))
            }
            Ok(()) => Ok(Err(fault_of(&end))),
            Err(Cut::File(error)) => Ok(Err((kind_of(&error), error.to_string()))),
            Err(_) if end.code == 552 || end.code == 452 => Ok(Err(fault_of(&end))),
            Err(cut) => Ok(Err((FaultKind::Other, format!("{}; the server said: {}", cut_words(&cut), words(&end))))),
        }
    }

    /// The bytes of a range, a step at a time: what went is hashed while the far side takes it out of the socket, and while it is in a cache here.
    fn send(
        &self,
        control: &mut Control<'_>,
        mut stream: TcpStream,
        (file, range): (&File, Range<u64>),
        attempt: &mut Attempt,
    ) -> Result<Result<(), Cut>, Trouble> {
        let mut tls = control.cover(&mut stream, false)?;
        let none = || Cut::File(io::ErrorKind::OutOfMemory.into());
        let (mut taken, mut home) = (None, None);
        let mut line = Line::new(stream.as_fd(), control.as_fd(), || Heard::Deaf, &self.bound, control.stall());
        let mut keys = tls.as_mut().map(|tls| &mut tls.keys);
        let way = Way::of(line.socket);
        let mut step = |at: Range<u64>| {
            let kept = home.take();
            let again = || {
                taken = self.bufs.take(1, 1, BUFS_TIME);
                taken.as_mut().and_then(|it| it.bufs.pop())
            };
            let take = || kept.or_else(again).ok_or_else(none);
            match keys.as_deref_mut() {
                None => send::file(&mut line, (file, way), at.clone(), take, |buf| home = Some(buf))?,
                Some(keys) => {
                    let mut buf = take()?;
                    let sent = send::file_sealed(&mut line, keys, file, at.clone(), &mut buf);
                    home = Some(buf);
                    sent?;
                }
            }
            attempt.bytes += at.end - at.start;
            self.moved.fetch_add(at.end - at.start, Ordering::Relaxed);
            let Some(sum) = &mut attempt.sum else { return Ok(()) };
            let read = read_range(file, at.clone(), |bytes| sum.update(bytes)).map_err(Cut::File)?;
            if read < at.end - at.start { Err(Cut::File(io::ErrorKind::UnexpectedEof.into())) } else { Ok(()) }
        };
        let steps = (range.start..range.end).step_by(STEP_BYTES as usize);
        let sent = steps.map(|at| at..range.end.min(at + STEP_BYTES)).try_for_each(&mut step);
        let sent = sent.and_then(|()| send::end(&mut line, keys));
        if let (Some(taken), Some(buf)) = (&mut taken, home) {
            taken.bufs.push(buf);
        }
        if let (Some(tls), Ok(())) = (&mut tls, &sent) {
            // Tickets come on this connection, too, and the next ones want them.
            stream.set_nonblocking(false)?;
            stream.set_read_timeout(Some(control.stall()))?;
            tls.drain(&mut stream);
        }
        Ok(sent)
    }

    /// All of it is there: it gets its name and its time.
    fn name(
        &self,
        control: &mut Control<'_>,
        task: &FileTask,
        part: &[u8],
        (file, version): (&File, (u64, i64, i64)),
        (resumed, sum): (u64, Option<Running>),
    ) -> Result<(), Trouble> {
        let (bytes, mtime_s, _) = version;
        let now = file.metadata().map(|meta| (meta.len(), meta.mtime(), meta.mtime_nsec()));
        if now.as_ref().is_ok_and(|now| *now != version) {
            let _ = control.ask("DELE", part)?;
            self.fault(&task.near, FaultKind::Torn, "it changed while it was read", false);
            return Ok(());
        }
        if control.features.size {
            let reply = control.ask("SIZE", part)?;
            if size_of(&reply).is_some_and(|it| it != bytes) {
                let _ = control.ask("DELE", part)?;
                let said = words(&reply);
                self.fault(
                    &task.near,
                    FaultKind::Corrupt,
                    format!("{bytes} bytes were sent, and the server said: {said}"),
                    true,
                );
                return Ok(());
            }
        }
        let digest = control.digest_word().map(|word| control.ask(word, part)).transpose()?;
        let compared = digest.map_or(Ok(None), |reply| {
            control.compare(&reply, |kind| sum.map_or_else(|| digest_of(kind, file), |sum| Ok(sum.finish())))
        });
        match compared {
            Ok(Some(false)) => {
                let _ = control.ask("DELE", part)?;
                self.fault(
                    &task.near,
                    FaultKind::Corrupt,
                    "the server's digest is another than that of what was sent",
                    true,
                );
                return Ok(());
            }
            Err(error) => {
                self.fault(&task.near, kind_of(&error), error.to_string(), false);
                return Ok(());
            }
            Ok(_) => {}
        }
        let is_verified = matches!(compared, Ok(Some(true))) || bytes == 0;
        let from = control.ask("RNFR", part)?;
        let mut to = if from.wants_more() { control.ask("RNTO", &task.far)? } else { from };
        if to.code == 553 || to.code == 550 {
            // Some rename onto no name that is there.
            let _ = control.ask("DELE", &task.far)?;
            let from = control.ask("RNFR", part)?;
            to = if from.wants_more() { control.ask("RNTO", &task.far)? } else { from };
        }
        if !to.is_done() {
            let (kind, said) = fault_of(&to);
            self.fault(&task.near, kind, said, true);
            return Ok(());
        }
        self.set_time(control, &task.far, mtime_s)?;
        let mut tally = self.queue.tally();
        tally.files += 1;
        tally.bytes += bytes - resumed;
        tally.verified += u64::from(is_verified);
        drop(tally);
        self.queue.done(1);
        Ok(())
    }

    fn set_time(&self, control: &mut Control<'_>, far: &[u8], mtime_s: i64) -> Result<(), Trouble> {
        let operand = [time::written(mtime_s).as_bytes(), b" ", far].concat();
        // vsftpd sets a time by MDTM (`mdtm_write`), and does not say MFMT.
        let word = if control.features.mfmt { "MFMT" } else { "MDTM" };
        let reply = control.ask(word, &operand)?;
        if !reply.is_done() {
            self.queue.tally().note(&format!("times of files are not kept: the server said {}", words(&reply)));
        }
        Ok(())
    }

    /// Removes what this host does not have, and gives the counts.
    ///
    /// # Errors
    /// What ended the copy.
    pub fn end(&self, server: &Server, _events: &mut crate::event::Events<'_>) -> Result<Tally, Failure> {
        let mut tally = std::mem::take(&mut *self.queue.tally());
        if let Some(failure) = self.queue.ended() {
            return Err(failure);
        }
        let Some(most) = self.prune.filter(|_| tally.faults.count() == 0) else { return Ok(tally) };
        let lost = |trouble| super::first_failure(server, trouble);
        let mut all = Vec::new();
        let mut left: Vec<(Vec<u8>, bool)> = std::mem::take(&mut tally.extras);
        if left.is_empty() {
            return Ok(tally);
        }
        let mut control = Control::open(server).map_err(lost)?;
        while let Some((path, is_folder)) = left.pop() {
            if is_folder {
                let listed = control.list(&path).map_err(lost)?.map(|it| it.entries).unwrap_or_default();
                left.extend(listed.into_iter().map(|it| (joined(&path, &it.name), it.kind == Kind::Folder)));
            }
            all.push((path, is_folder));
            if all.len() as u64 > most {
                return Err(Exit::Partial
                    .fail(
                        "remove what the source does not have",
                        format!("there are more entries than --max-delete {most}"),
                    )
                    .next("look with --dry-run, then raise --max-delete"));
            }
        }
        for (path, is_folder) in all.iter().rev().filter(|_| !self.dry_run) {
            let reply = control.ask(if *is_folder { "RMD" } else { "DELE" }, path).map_err(lost)?;
            if !reply.is_done() {
                let (kind, said) = fault_of(&reply);
                tally.fault(path, kind, said, true);
            }
        }
        control.quit();
        tally.removed = all.len() as u64;
        Ok(tally)
    }
}
