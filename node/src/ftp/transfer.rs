//! One transfer: a data connection, and a file or a listing over it.
//!
//! For: RETR, STOR, APPE, STOU, LIST, NLST, MLSD.
//! In and out: a session with a way to its client; the last reply.
//! Invariants: a name has a file only when all of it came: by TLS's word where there is TLS, in clear if the client is there still; what was cut stays a
//! part; memory is bufs that were taken before the first byte, and one batch of lines.
//! Absent on purpose: commands (`session`), bytes (`engine::rail::plain`).

use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::rail::plain::bufs::Taken;
use engine::rail::plain::{self, Cut, Heard, Keys, Line, receive, send};
use engine::tree::is_ours;
use engine::tree::sink::open_ended::scattered::Scattered;
use engine::tree::sink::open_ended::{From, OpenEnded, Whole};
use engine::worker::bound::Bound;
use sys::fs::{Dir, Kind};

use proto::ftp::blocks::Head;
use proto::ftp::facts::{self, Facts};
use proto::ftp::path;
use proto::ftp::session::Session as Machine;
use proto::ftp::session::fault::{End, Fault};
use proto::ftp::session::{self as machine, Connect, Form, Over, Prepared, Transfer, TransferKind};
use proto::wire::control::DigestKind;

use super::control::ControlLine;
use super::data::{self, Way};
use super::digests::known::Begun as Hashed;
use super::files::{facts_of, fault_of};
use super::session::{Clock, Session};
use super::tls::{self, Next};
use super::users::hex;

/// A transfer on which nothing moves for so long is over.
pub(super) const SILENCE: Duration = Duration::from_secs(300);
/// Others have all bufs: how long a transfer waits for them.
pub(super) const BUFS_TIME: Duration = Duration::from_secs(30);
/// Lines of a listing that go at once.
const BATCH_BYTES: usize = 32 << 10;
/// A client that was killed closes both connections in the same moment: its control connection's end is there so much after the data's, and a round
/// trip (`still_there`).
const KILLED_TIME: Duration = Duration::from_millis(5);
/// No longer than this.
const KILLED_TIME_MAX: Duration = Duration::from_millis(200);
/// A client that is turned away may go on sending so long.
const TURN_AWAY_TIME: Duration = Duration::from_secs(1);

struct Data {
    stream: TcpStream,
    keys: Option<Keys<Next>>,
    /// What goes before anything that is sent (`tls::DataTls`).
    tickets: Vec<u8>,
    beside: OwnedFd,
}

impl Session<'_> {
    /// Opens what is to be moved, and moves it.
    pub(super) fn transfer(&mut self, transfer: Transfer) {
        match transfer.kind {
            TransferKind::Retrieve => self.retrieve(&transfer.path),
            TransferKind::List(form) => self.list(transfer.path, form),
            TransferKind::Store | TransferKind::Append | TransferKind::StoreUnique => self.store(transfer),
        }
    }

    /// Opens the data connection; the client is told so.
    fn open_data(&mut self, connect: &Connect) -> Result<Data, End> {
        let failed = |error: io::Error| End::NoConnection(error.to_string());
        let way = match connect.way {
            machine::Way::None => Way::None,
            machine::Way::Passive => std::mem::take(&mut self.listener),
            machine::Way::Kept(_) => Way::None,
            machine::Way::Active(address) => Way::Active(address),
        };
        let beside = self.line.as_fd().try_clone_to_owned().map_err(failed)?;
        let (peer, local) = (self.peer.ip(), self.local.ip());
        // At the port of all a client is known by its hello, which many send only when they have heard 150.
        let is_early = connect.private && matches!(way, Way::Shared(_));
        if is_early {
            self.opening()?;
        }
        let stream = data::connect(way, peer, local, beside.as_fd(), || self.hear(false));
        let mut stream = stream.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => End::NobodyCame,
            io::ErrorKind::Interrupted => self.stopped(),
            _ => failed(error),
        })?;
        if !is_early {
            self.opening()?;
        }
        let (keys, tickets) = match &self.config {
            Some(config) if connect.private => {
                let tls = tls::accept(config, &mut stream).map_err(|error| End::NoTls(error.to_string()))?;
                if !tls.resumed && self.door.settings.reuse_required {
                    // A client in the midst of sending is to hear why, not to find its connection reset.
                    self.turn_away(Data { stream, keys: Some(tls.keys), tickets: tls.tickets, beside });
                    return Err(End::NotResumed);
                }
                (Some(tls.keys), tls.tickets)
            }
            _ => (None, Vec::new()),
        };
        plain::prepare(&stream).map_err(failed)?;
        data::set_buffers(&stream, self.machine.buffer_bytes());
        Ok(Data { stream, keys, tickets, beside })
    }

    /// The client hears that it may begin.
    pub(super) fn opening(&mut self) -> Result<(), End> {
        self.machine.on_connected(self.clock.now_ns());
        self.flush().map_err(|_| End::ControlGone)
    }

    /// What the control connection says while a transfer waits.
    fn hear(&mut self, is_upload: bool) -> Heard {
        hear(&mut self.line, &mut self.machine, self.clock.now_ns(), is_upload)
    }

    fn stopped(&self) -> End {
        if self.machine.is_aborted() { End::Aborted } else { End::ControlGone }
    }

    /// Ends a data connection in good order, and throws away what comes until the client has ended it too.
    fn turn_away(&mut self, mut data: Data) {
        let bound = Arc::clone(&self.bound);
        let (mut line, keys) = data.line(&mut self.line, &mut self.machine, self.clock, &bound, false);
        if send::end(&mut line, keys).is_err() {
            return;
        }
        drop(line);
        let _ = data.stream.set_read_timeout(Some(TURN_AWAY_TIME));
        let until = Instant::now() + TURN_AWAY_TIME;
        let mut room = [0; 16 << 10];
        while Instant::now() < until && io::Read::read(&mut data.stream, &mut room).is_ok_and(|bytes| bytes > 0) {}
    }

    fn retrieve(&mut self, path: &[u8]) {
        let opened = self.root().open_file(path, false).and_then(|file| Ok((sys::fs::stat_file(&file)?.bytes, file)));
        let opened = opened.map_err(|error| fault_of(&error));
        let prepared = opened.as_ref().map(|&(bytes, _)| Prepared::File { bytes }).map_err(Clone::clone);
        let connect = self.machine.on_prepared(self.clock.now_ns(), prepared);
        let (Some(connect), Ok((_, file))) = (connect, opened) else { return };
        if let Some(blocks) = &connect.blocks {
            let over = self.send_blocks(&connect, blocks, &file);
            return self.machine.on_over(self.clock.now_ns(), over);
        }
        let over = self.open_data(&connect).and_then(|mut data| {
            let sent = self.send_file(&mut data, &file, connect.range.clone());
            sent.map(|()| Over::Sent).map_err(|cut| self.end_of(&cut))
        });
        self.machine.on_over(self.clock.now_ns(), over);
    }

    fn send_file(&mut self, data: &mut Data, file: &File, range: Range<u64>) -> Result<(), Cut> {
        let bound = Arc::clone(&self.bound);
        let none = || Cut::File(io::ErrorKind::OutOfMemory.into());
        let bufs = &self.door.bufs;
        let (mut line, mut keys) = data.line(&mut self.line, &mut self.machine, self.clock, &bound, false);
        let mut taken = None;
        let mut take = || {
            taken = bufs.take(1, 1, BUFS_TIME);
            taken.as_mut().and_then(|it| it.bufs.pop()).ok_or_else(none)
        };
        let mut home = None;
        let sent = match keys.as_deref_mut() {
            None => send::file(&mut line, (file, send::Way::Unread), range, take, |buf| home = Some(buf)),
            Some(keys) => take().and_then(|mut buf| {
                let sent = send::file_sealed(&mut line, keys, file, range, &mut buf);
                home = Some(buf);
                sent
            }),
        };
        if let (Some(taken), Some(buf)) = (&mut taken, home) {
            taken.bufs.push(buf);
        }
        sent?;
        send::end(&mut line, keys)
    }

    /// LIST, NLST, MLSD.
    fn list(&mut self, mut path: Vec<u8>, form: Form) {
        let mut pattern = None;
        let found = match self.root().stat(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !matches!(form, Form::Facts(_)) => {
                // No name, but perhaps a pattern of names.
                if let Some((folder, its)) = path::pattern_of(&path) {
                    pattern = Some(its.to_vec());
                    path = folder.to_vec();
                }
                self.root().stat(&path)
            }
            found => found,
        };
        let opened = found.and_then(|stat| match stat.kind {
            Kind::Folder => self.root().open_dir(&path).map(Some),
            _ if matches!(form, Form::Facts(_)) => Err(io::ErrorKind::NotADirectory.into()),
            _ => Ok(None),
        });
        let opened = opened.map_err(|error| fault_of(&error));
        let prepared = opened.as_ref().map(|_| Prepared::Listing).map_err(Clone::clone);
        let connect = self.machine.on_prepared(self.clock.now_ns(), prepared);
        let (Some(connect), Ok(folder)) = (connect, opened) else { return };
        let what = Listed { folder: folder.as_ref(), path: &path, pattern: pattern.as_deref(), form };
        let over = match &connect.blocks {
            None => self.open_data(&connect).and_then(|mut data| self.send_list(&mut data, &what, None)),
            Some(blocks) => self.open_streams(&connect, blocks).and_then(|mut streams| {
                let first = streams.remove(0);
                let beside = self.line.as_fd().try_clone_to_owned();
                let beside = beside.map_err(|error| End::NoConnection(error.to_string()))?;
                let mut data = Data { stream: first, keys: None, tickets: Vec::new(), beside };
                let sent = self.send_list(&mut data, &what, Some(&streams))?;
                streams.insert(0, data.stream);
                self.keep(streams);
                Ok(sent)
            }),
        };
        self.machine.on_over(self.clock.now_ns(), over);
    }

    /// `others`: connections of MODE E beside the first.
    fn send_list(&mut self, data: &mut Data, what: &Listed<'_>, others: Option<&[TcpStream]>) -> Result<Over, End> {
        let sent = self.send_lines(data, what, others);
        sent.map(|()| Over::Sent).map_err(|cut| self.end_of(&cut))
    }

    fn send_lines(&mut self, data: &mut Data, what: &Listed<'_>, others: Option<&[TcpStream]>) -> Result<(), Cut> {
        let &Listed { folder, path, pattern, form } = what;
        let (now_s, _) = sys::clock::unix_time();
        let bound = Arc::clone(&self.bound);
        let may_write = self.machine.rights().write;
        let root = Arc::clone(self.root());
        let (mut line, mut keys) = data.line(&mut self.line, &mut self.machine, self.clock, &bound, false);
        let mut batch = Vec::with_capacity(BATCH_BYTES + 1024);
        let mut at = 0;
        let mut head = |batch: &[u8]| match others {
            Some(_) => {
                let head = Head { flags: 0, count: batch.len() as u64, offset: at };
                at += batch.len() as u64;
                head.encode().to_vec()
            }
            None => Vec::new(),
        };
        let add = |batch: &mut Vec<u8>, name: &[u8], facts: &Facts| {
            match form {
                Form::Long => facts::write_long(batch, name, facts, now_s),
                Form::Names => batch.extend_from_slice(name),
                Form::Facts(wanted) => {
                    facts::write(batch, facts, wanted, may_write);
                    batch.extend_from_slice(name);
                }
            }
            batch.extend_from_slice(b"\r\n");
        };
        match folder {
            None => {
                let stat = root.stat(path).map_err(Cut::File)?;
                let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
                add(&mut batch, name, &facts_of(&stat));
            }
            Some(folder) => {
                if matches!(form, Form::Facts(_)) {
                    let itself = facts_of(&folder.stat_self().map_err(Cut::File)?);
                    add(&mut batch, b".", &Facts { kind: facts::Kind::ThisFolder, ..itself });
                }
                for entry in folder.list().map_err(Cut::File)? {
                    let name = entry.map_err(Cut::File)?.name;
                    let is_wanted = pattern.is_none_or(|pattern| path::fits(pattern, &name));
                    if is_ours(&name) || !path::fits_a_line(&name) || !is_wanted {
                        continue;
                    }
                    if form == Form::Names {
                        batch.extend_from_slice(&name);
                        batch.extend_from_slice(b"\r\n");
                    } else if let Ok(stat) = folder.stat(&name) {
                        // One that is gone since is not there.
                        add(&mut batch, &name, &facts_of(&stat));
                    }
                    if batch.len() >= BATCH_BYTES {
                        send::bytes(&mut line, keys.as_deref_mut(), &head(&batch))?;
                        send::bytes(&mut line, keys.as_deref_mut(), &batch)?;
                        batch.clear();
                    }
                }
            }
        }
        let mut last = head(&batch);
        last.extend_from_slice(&batch);
        let Some(others) = others else {
            send::bytes(&mut line, keys.as_deref_mut(), &last)?;
            return send::end(&mut line, keys);
        };
        last.extend_from_slice(&Head::end(true, others.len() as u64 + 1).encode());
        send::bytes(&mut line, keys, &last)?;
        // Into a send buffer with room for 17 bytes: what was sent before is with the client.
        others
            .iter()
            .try_for_each(|mut it| io::Write::write_all(&mut it, &Head::end(false, 0).encode()))
            .map_err(Cut::Network)
    }

    /// STOR, APPE, STOU, ESTO.
    fn store(&mut self, transfer: Transfer) {
        let is_unique = transfer.kind == TransferKind::StoreUnique;
        let path = if is_unique { unique_name(&transfer.path) } else { transfer.path };
        let from = match (transfer.part.from, transfer.kind) {
            // Behind what its client heard of it, which is less than stands there.
            (0, TransferKind::Append) => {
                self.sized.take_if(|(sized, _)| *sized == path).map_or(From::End, |(_, bytes)| From::At(bytes))
            }
            (0, _) => From::Start,
            (at, _) => From::At(at),
        };
        let taken = self.door.bufs.take(receive::BUFS_MIN, receive::BUFS_MAX, BUFS_TIME).ok_or(Fault::NoMemory);
        let (root, how) = (self.root(), self.door.settings.how);
        let begun = taken.and_then(|taken| {
            let part = match transfer.into {
                Some(zero) => Scattered::begin_into(root, &path, zero, how).map(Begun::Blocks),
                None if transfer.is_blocks => Scattered::begin(root, &path, from, how).map(Begun::Blocks),
                None => OpenEnded::begin(root, &path, from, how).map(Begun::Stream),
            };
            part.map(|part| (taken, part)).map_err(|error| match error.raw_os_error() {
                None if error.kind() == io::ErrorKind::InvalidInput => Fault::Short,
                _ => fault_of(&error),
            })
        });
        let prepared = begun.as_ref().map(|(_, part)| Prepared::Upload { bytes: part.bytes() }).map_err(Clone::clone);
        let connect = self.machine.on_prepared(self.clock.now_ns(), prepared);
        let Ok((taken, part)) = begun else { return };
        let Some(connect) = connect else {
            return part.leave();
        };
        let (announced, name) = (transfer.announced, is_unique.then_some(path));
        let over = match part {
            Begun::Stream(part) => self.receive_file(&connect, taken, part, announced, name),
            Begun::Blocks(part) => self.receive_blocks(&connect, taken, part, announced, name),
        };
        self.machine.on_over(self.clock.now_ns(), over);
    }

    fn receive_file(
        &mut self,
        connect: &Connect,
        mut taken: Taken,
        mut part: OpenEnded,
        announced: Option<u64>,
        name: Option<Vec<u8>>,
    ) -> Result<Over, End> {
        let (began, bound) = (part.bytes(), Arc::clone(&self.bound));
        let mut data = match self.open_data(connect) {
            Ok(data) => data,
            Err(end) => {
                let _ = part.leave();
                return Err(end);
            }
        };
        let mut came = {
            let (mut line, keys) = data.line(&mut self.line, &mut self.machine, self.clock, &bound, true);
            receive::file(&mut line, keys, &mut taken.bufs, &mut part)
        };
        drop(taken);
        if came.is_ok() && data.keys.is_none() && !self.is_whole(part.bytes(), began, announced) {
            came = Err(Cut::Truncated);
        }
        if let Err(cut) = came {
            // A full disk is not to stay full of parts.
            if matches!(&cut, Cut::File(error) if is_full(&fault_of(error))) {
                part.discard()
            } else {
                drop(part.leave())
            }
            return Err(self.end_of(&cut));
        }
        {
            let (mut line, keys) = data.line(&mut self.line, &mut self.machine, self.clock, &bound, false);
            let _ = send::end(&mut line, keys);
        }
        drop(data);
        let mut begun = None;
        let whole = part.publish_seen(|file| begun = self.begin_known(file));
        let whole = whole.map_err(|error| End::File(fault_of(&error)))?;
        self.end_known(begun, &whole);
        Ok(Over::Stored { bytes: whole.bytes, digest: self.digest_words(&whole.digest), name })
    }

    /// An upload is whole and has no name yet. Is its digest one that HASH can be answered with?
    pub(super) fn begin_known(&self, file: &File) -> Option<Hashed> {
        (self.door.settings.how.digest == DigestKind::Blake3).then(|| self.door.known.begin(file)).flatten()
    }

    pub(super) fn end_known(&self, begun: Option<Hashed>, whole: &Whole) {
        if let Some(begun) = begun {
            self.door.known.end(begun, whole.bytes, hex(&whole.digest));
        }
    }

    pub(super) fn digest_words(&self, digest: &[u8; 32]) -> String {
        match self.door.settings.how.digest {
            DigestKind::Blake3 => format!("BLAKE3 {}", hex(digest)),
            DigestKind::Crc64 => {
                format!("CRC-64/NVME {:016x}", u64::from_le_bytes(digest[..8].try_into().unwrap_or_default()))
            }
        }
    }

    /// In clear the end of a stream says nothing of whether it is whole. Is it as long as was announced, or, where nothing was, is its client there still?
    fn is_whole(&mut self, bytes: u64, began: u64, announced: Option<u64>) -> bool {
        let came = bytes - began;
        // ALLO 0 says nothing (RFC 959: some clients send it where they do not know). What goes on may be announced as the rest or as the file.
        match announced {
            Some(announced) if announced > 0 && began == 0 => came >= announced,
            Some(announced) if announced > 0 => came == announced || bytes == announced,
            _ => self.still_there(),
        }
    }

    /// Looks at the control connection until its end would have been here, whatever else comes on it.
    fn still_there(&mut self) -> bool {
        let rtt = sys::sock::tcp_info(self.line.as_fd()).map_or(0, |info| info.rtt_us);
        let until = Instant::now() + KILLED_TIME_MAX.min(KILLED_TIME + Duration::from_micros(u64::from(rtt) * 2));
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if !self.line.pull(&mut self.machine, self.clock.now_ns()) {
                return false;
            }
            // With no room for more commands nothing can be read, and the end not be seen: what is there says that the client was alive.
            if left.is_zero() || !self.machine.has_room() {
                return true;
            }
            self.line.wait(left);
        }
    }

    pub(super) fn end_of(&self, cut: &Cut) -> End {
        match cut {
            Cut::Stopped => self.stopped(),
            Cut::Silent => End::Silent,
            Cut::Network(error) => End::Network(error.to_string()),
            Cut::File(error) => End::File(fault_of(error)),
            Cut::Truncated => End::Truncated,
            Cut::Broken(broken) => End::Broken(format!("{broken:?}")),
            Cut::Blocks(broken) => End::Blocks(broken.words()),
        }
    }
}

/// A folder, or one name.
struct Listed<'a> {
    folder: Option<&'a Dir>,
    path: &'a [u8],
    pattern: Option<&'a [u8]>,
    form: Form,
}

/// An upload that has begun.
enum Begun {
    Stream(OpenEnded),
    Blocks(Scattered),
}

impl Begun {
    fn bytes(&self) -> u64 {
        match self {
            Begun::Stream(part) => part.bytes(),
            Begun::Blocks(part) => part.standing(),
        }
    }

    fn leave(self) {
        let _ = match self {
            Begun::Stream(part) => part.leave(),
            Begun::Blocks(part) => part.leave(),
        };
    }
}

/// A name that nothing has: 64 bits of randomness, beneath this folder.
fn unique_name(folder: &[u8]) -> Vec<u8> {
    let mut random = [0; 8];
    let _ = aws_lc_rs::rand::fill(&mut random);
    let name = format!("upload-{}", hex(&random)).into_bytes();
    if folder.is_empty() { name } else { [folder, b"/", &name].concat() }
}

impl Data {
    /// The rail, and the keys of what goes over it. `is_upload`: nothing is sent over it.
    fn line<'a>(
        &'a mut self,
        control: &'a mut ControlLine,
        machine: &'a mut Machine,
        clock: Clock,
        bound: &'a Bound,
        is_upload: bool,
    ) -> (Line<'a, impl FnMut() -> Heard + use<'a>>, Option<&'a mut Keys<Next>>) {
        if !is_upload {
            // A client that is gone by now wants no tickets; what is sent next finds out.
            let _ = io::Write::write_all(&mut self.stream, &self.tickets);
            self.tickets.clear();
        }
        let heard = move || hear(control, machine, clock.now_ns(), is_upload);
        (Line::new(self.stream.as_fd(), self.beside.as_fd(), heard, bound, SILENCE), self.keys.as_mut())
    }
}

/// What the control connection says while a transfer waits.
pub(super) fn hear(control: &mut ControlLine, machine: &mut Machine, now_ns: u64, is_upload: bool) -> Heard {
    if !control.pull(machine, now_ns) {
        // What a client that died had sent by then is worth keeping.
        return if is_upload { Heard::Deaf } else { Heard::Stop };
    }
    match (machine.is_aborted(), machine.has_room()) {
        (true, _) => Heard::Stop,
        (false, false) => Heard::Deaf,
        (false, true) => Heard::On,
    }
}

pub(super) const fn is_full(fault: &Fault) -> bool {
    matches!(fault, Fault::Full | Fault::TooLarge)
}
