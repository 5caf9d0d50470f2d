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
use std::time::{Duration, Instant};

use engine::rail::plain::{self, Cut, Heard, Keys, Line, receive, send};
use engine::tree::is_ours;
use engine::tree::sink::open_ended::{From, OpenEnded};
use engine::worker::bound::Bound;
use sys::event::Interest;
use sys::fs::{Dir, Kind};

use super::control::ControlLine;
use super::files::{self, Form};
use super::session::{Reply, Session, of_io};
use super::tls::{self, Next};
use super::{data, users::hex};

/// A transfer on which nothing moves for so long is over.
const SILENCE: Duration = Duration::from_secs(300);
/// Others have all bufs: how long a transfer waits for them.
const BUFS_TIME: Duration = Duration::from_secs(30);
/// Lines of a listing that go at once.
const BATCH_BYTES: usize = 32 << 10;
/// A client that was killed closes both connections in the same moment: its control connection's end is there so much after the data's, and a round
/// trip (`still_there`).
const KILLED_TIME: Duration = Duration::from_millis(5);
/// No longer than this.
const KILLED_TIME_MAX: Duration = Duration::from_millis(200);
/// Files up to this come in one flight: a client that is killed has sent all of them, or nothing.
const ONE_FLIGHT_BYTES: u64 = 10 << 10;

/// A client that is turned away may go on sending so long.
const TURN_AWAY_TIME: Duration = Duration::from_secs(1);

struct Data {
    stream: TcpStream,
    keys: Option<Keys<Next>>,
    beside: OwnedFd,
}

fn reply(code: u16, text: impl Into<String>) -> Reply {
    Reply::new(code, text)
}

impl Session<'_> {
    /// Opens the data connection; the client has been told so.
    fn open_data(&mut self, opening: &str) -> Result<Data, Reply> {
        let way = std::mem::take(&mut self.way);
        if self.line.is_secure() && !self.is_private {
            return Err(reply(521, "Data goes by TLS here: send PBSZ 0 and PROT P first."));
        }
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::TimedOut => {
                reply(425, "No data connection from you within 10 s: is the port open in the firewalls between us?")
            }
            io::ErrorKind::NotConnected => reply(425, "Send EPSV, PASV, EPRT or PORT first."),
            _ => reply(425, format!("Cannot open the data connection: {error}.")),
        };
        let mut stream = data::connect(way, self.peer.ip(), self.local.ip()).map_err(failed)?;
        let beside = self.line.as_fd().try_clone_to_owned().map_err(failed)?;
        self.say(&reply(150, opening)).map_err(|error| reply(426, error.to_string()))?;
        let keys = match &self.config {
            Some(config) if self.line.is_secure() => {
                let refused = |error: io::Error| reply(522, format!("No TLS on the data connection: {error}."));
                let tls = tls::accept(config, &mut stream).map_err(refused)?;
                if !tls.resumed && self.door.settings.reuse_required {
                    // A client in the midst of sending is to hear why, not to find its connection reset.
                    self.turn_away(stream, beside, tls.keys);
                    return Err(reply(
                        522,
                        "The data connection has to resume the control connection's TLS session: a client that cannot needs --session-reuse off here.",
                    ));
                }
                Some(tls.keys)
            }
            _ => None,
        };
        plain::prepare(&stream).map_err(failed)?;
        Ok(Data { stream, keys, beside })
    }

    /// Ends a data connection in good order, and throws away what comes until the client has ended it too.
    fn turn_away(&mut self, stream: TcpStream, beside: OwnedFd, keys: Keys<Next>) {
        let mut data = Data { stream, keys: Some(keys), beside };
        let (mut line, keys) = data.line(&mut self.line, &mut self.aborted, &self.door.bound, false);
        if send::end(&mut line, keys).is_err() {
            return;
        }
        drop(line);
        let _ = data.stream.set_read_timeout(Some(TURN_AWAY_TIME));
        let until = Instant::now() + TURN_AWAY_TIME;
        let mut room = [0; 16 << 10];
        while Instant::now() < until && io::Read::read(&mut data.stream, &mut room).is_ok_and(|bytes| bytes > 0) {}
    }

    /// RETR.
    pub(super) fn retrieve(&mut self, path: &[u8]) -> Reply {
        self.try_retrieve(path).unwrap_or_else(|refused| refused)
    }

    fn try_retrieve(&mut self, path: &[u8]) -> Result<Reply, Reply> {
        let from = std::mem::take(&mut self.rest);
        let file = self.door.root.open_file(path, false).map_err(|error| of_io(&error))?;
        let bytes = sys::fs::stat_file(&file).map_err(|error| of_io(&error))?.bytes;
        if from > bytes {
            return Err(reply(554, format!("The file has {bytes} bytes, fewer than REST said.")));
        }
        let mut data = self.open_data(&format!("Sending {} bytes as they are.", bytes - from))?;
        let sent = self.send_file(&mut data, &file, from..bytes);
        Ok(self.sent(sent, &format!("{} bytes sent.", bytes - from)))
    }

    fn send_file(&mut self, data: &mut Data, file: &File, range: Range<u64>) -> Result<(), Cut> {
        let none = || Cut::File(io::ErrorKind::OutOfMemory.into());
        let bufs = &self.door.bufs;
        let (mut line, mut keys) = data.line(&mut self.line, &mut self.aborted, &self.door.bound, false);
        let mut taken = None;
        let mut take = || {
            taken = bufs.take(1, 1, BUFS_TIME);
            taken.as_mut().and_then(|it| it.bufs.pop()).ok_or_else(none)
        };
        let mut home = None;
        let sent = match keys.as_deref_mut() {
            None => send::file(&mut line, file, range, take, |buf| home = Some(buf)),
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

    fn sent(&mut self, sent: Result<(), Cut>, whole: &str) -> Reply {
        match sent {
            Ok(()) => reply(226, whole),
            Err(cut) => of_cut(&cut, self.aborted),
        }
    }

    /// LIST, NLST, MLSD.
    pub(super) fn list(&mut self, path: &[u8], form: Form) -> Reply {
        self.try_list(path, form).unwrap_or_else(|refused| refused)
    }

    fn try_list(&mut self, path: &[u8], form: Form) -> Result<Reply, Reply> {
        let stat = self.door.root.stat(path).map_err(|error| of_io(&error))?;
        if stat.kind != Kind::Folder && form == Form::Facts {
            return Err(reply(501, "MLSD wants a folder; MLST tells of a file."));
        }
        let folder = (stat.kind == Kind::Folder).then(|| self.door.root.open_dir(path)).transpose();
        let folder = folder.map_err(|error| of_io(&error))?;
        let mut data = self.open_data("Here it comes.")?;
        let listed = self.send_list(&mut data, folder.as_ref(), path, form);
        Ok(self.sent(listed, "That was all."))
    }

    fn send_list(&mut self, data: &mut Data, folder: Option<&Dir>, path: &[u8], form: Form) -> Result<(), Cut> {
        let (now_s, _) = sys::clock::unix_time();
        let may_write = self.rights().write;
        let root = &self.door.root;
        let (mut line, mut keys) = data.line(&mut self.line, &mut self.aborted, &self.door.bound, false);
        let mut batch = Vec::with_capacity(BATCH_BYTES + 1024);
        let add = |batch: &mut Vec<u8>, name: &[u8], stat: &sys::fs::Stat, kind| {
            match form {
                Form::Long => files::list_line(batch, name, stat, now_s),
                Form::Names => batch.extend_from_slice(name),
                Form::Facts => {
                    files::facts(batch, stat, kind, may_write);
                    batch.extend_from_slice(name);
                }
            }
            batch.extend_from_slice(b"\r\n");
        };
        match folder {
            None => {
                let stat = root.stat(path).map_err(Cut::File)?;
                let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
                add(&mut batch, name, &stat, None);
            }
            Some(folder) => {
                if form == Form::Facts {
                    add(&mut batch, b".", &folder.stat_self().map_err(Cut::File)?, Some("cdir"));
                }
                for entry in folder.list().map_err(Cut::File)? {
                    let name = entry.map_err(Cut::File)?.name;
                    if is_ours(&name) || !files::fits_a_line(&name) {
                        continue;
                    }
                    if form == Form::Names {
                        batch.extend_from_slice(&name);
                        batch.extend_from_slice(b"\r\n");
                    } else if let Ok(stat) = folder.stat(&name) {
                        // One that is gone since is not there.
                        add(&mut batch, &name, &stat, None);
                    }
                    if batch.len() >= BATCH_BYTES {
                        send::bytes(&mut line, keys.as_deref_mut(), &batch)?;
                        batch.clear();
                    }
                }
            }
        }
        send::bytes(&mut line, keys.as_deref_mut(), &batch)?;
        send::end(&mut line, keys)
    }

    /// STOR, APPE, STOU.
    pub(super) fn store(&mut self, path: &[u8], from: From) -> Reply {
        self.try_store(path, from).unwrap_or_else(|refused| refused)
    }

    fn try_store(&mut self, path: &[u8], from: From) -> Result<Reply, Reply> {
        let from = match (std::mem::take(&mut self.rest), from) {
            (0, from) => from,
            (at, _) => From::At(at),
        };
        let announced = std::mem::take(&mut self.announced);
        let mut taken = self.door.bufs.take(receive::BUFS_MIN, receive::BUFS_MAX, BUFS_TIME).ok_or_else(no_bufs)?;
        let refused = |error: io::Error| match error.raw_os_error() {
            Some(EBUSY) => reply(450, "Another upload or job is writing this file: try again when it is over."),
            _ if error.kind() == io::ErrorKind::InvalidInput && error.raw_os_error().is_none() => {
                reply(554, "Fewer bytes stand here than REST said: ask SIZE.")
            }
            _ => of_io(&error),
        };
        let mut part = OpenEnded::begin(&self.door.root, path, from, self.door.settings.how).map_err(refused)?;
        let began = part.bytes();
        let mut data = match self.open_data(&format!("Send it; {began} bytes are here.")) {
            Ok(data) => data,
            Err(refused) => {
                let _ = part.leave();
                return Err(refused);
            }
        };
        let mut came = {
            let (mut line, keys) = data.line(&mut self.line, &mut self.aborted, &self.door.bound, true);
            receive::file(&mut line, keys, &mut taken.bufs, &mut part)
        };
        drop(taken);
        if came.is_ok() && data.keys.is_none() && !self.is_whole(part.bytes(), began, announced) {
            came = Err(Cut::Truncated);
        }
        Ok(match came {
            Ok(()) => {
                {
                    let (mut line, keys) = data.line(&mut self.line, &mut self.aborted, &self.door.bound, false);
                    let _ = send::end(&mut line, keys);
                }
                drop(data);
                match part.publish() {
                    Ok(whole) => {
                        reply(226, format!("{} bytes stored, {}.", whole.bytes, self.digest_words(&whole.digest)))
                    }
                    Err(error) => of_io(&error),
                }
            }
            Err(cut) => {
                // A full disk is not to stay full of parts.
                let is_full = matches!(&cut, Cut::File(error) if is_full(error));
                if is_full {
                    part.discard()
                } else {
                    drop(part.leave())
                }
                of_cut(&cut, self.aborted)
            }
        })
    }

    fn digest_words(&self, digest: &[u8; 32]) -> String {
        match self.door.settings.how.digest {
            proto::wire::control::DigestKind::Blake3 => format!("BLAKE3 {}", hex(digest)),
            proto::wire::control::DigestKind::Crc64 => {
                format!("CRC-64/NVME {:016x}", u64::from_le_bytes(digest[..8].try_into().unwrap_or_default()))
            }
        }
    }

    /// In clear the end of a stream says nothing of whether it is whole. Is it as long as was announced, or, where nothing was, is its client there still?
    fn is_whole(&mut self, bytes: u64, began: u64, announced: Option<u64>) -> bool {
        let came = bytes - began;
        // ALLO 0 says nothing (RFC 959: some clients send it where they do not know). What goes on may be announced as the rest or as the file.
        match announced {
            Some(announced) if announced > 0 && began == 0 => return came >= announced,
            Some(announced) if announced > 0 => return came == announced || bytes == announced,
            _ => {}
        }
        let bytes = came;
        if bytes <= ONE_FLIGHT_BYTES {
            return self.line.pull();
        }
        let rtt = sys::sock::tcp_info(self.line.as_fd()).map_or(0, |info| info.rtt_us);
        let time = KILLED_TIME_MAX.min(KILLED_TIME + Duration::from_micros(u64::from(rtt) * 2));
        let _ = sys::event::poll(&[(self.line.as_fd(), Interest::Read)], Some(time));
        self.line.pull()
    }
}

impl Data {
    /// The rail, and the keys of what goes over it.
    fn line<'a>(
        &'a mut self,
        control: &'a mut ControlLine,
        aborted: &'a mut bool,
        bound: &'a Bound,
        is_upload: bool,
    ) -> (Line<'a, impl FnMut() -> Heard + use<'a>>, Option<&'a mut Keys<Next>>) {
        let heard = move || {
            if !control.pull() {
                // What a client that died had sent by then is worth keeping.
                return if is_upload { Heard::Deaf } else { Heard::Stop };
            }
            if control.take_abort() {
                *aborted = true;
                return Heard::Stop;
            }
            if control.is_full() { Heard::Deaf } else { Heard::On }
        };
        (Line::new(self.stream.as_fd(), self.beside.as_fd(), heard, bound, SILENCE), self.keys.as_mut())
    }
}

fn no_bufs() -> Reply {
    reply(450, "Too many transfers at once: try again, or give the server more --memory.")
}

/// Of errno(3).
const EBUSY: i32 = 16;

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

/// Why a transfer ended before its end.
fn of_cut(cut: &Cut, aborted: bool) -> Reply {
    match cut {
        Cut::Stopped if aborted => reply(426, "The transfer was aborted; what came of an upload is kept for REST."),
        Cut::Stopped => reply(426, "The control connection ended."),
        Cut::Silent => reply(426, "Nothing moved for 300 s."),
        Cut::Network(error) => reply(426, format!("The data connection failed: {error}.")),
        Cut::File(error) => match of_io(error) {
            Reply { code: 550, text } => Reply { code: 451, text },
            other => other,
        },
        Cut::Truncated => reply(
            426,
            "The data connection ended without the word that the file is whole; what came is kept: ask SIZE, go on with REST.",
        ),
        Cut::Broken(broken) => reply(426, format!("The data connection is no TLS any more ({broken:?}).")),
    }
}
