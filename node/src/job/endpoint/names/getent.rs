//! `getent` as a child process: what glibc's name services know.
//!
//! For: LDAP, SSSD, winbind, NIS: whatever `/etc/nsswitch.conf` names, and this static binary cannot load.
//! In and out: questions in; the lines of `getent passwd` and `getent group` read as answers.
//! Invariants: no shell; a child that is not done in time is killed; what it prints is bounded; a line that is none is nothing.
//! Absent on purpose: which names may be asked for (the module above).

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use engine::tree::ids::{Key, Question};

use super::{Known, Said};

/// Keys of one call: 256 names of 256 bytes are half of what one argument list may have on the smallest stack.
const KEYS_MAX: usize = 256;
/// A line of a group has its members: a large site's have thousands.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;

/// Is the program there?
pub fn is_there() -> bool {
    let all = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&all).any(|folder| folder.join("getent").is_file())
}

/// One answer for each question.
pub(super) fn ask(program: &Path, questions: &[Question], patience: Duration) -> Said {
    let mut found = vec![None; questions.len()];
    for is_group in [false, true] {
        let of: Vec<usize> = (0..questions.len()).filter(|&at| questions[at].is_group == is_group).collect();
        for part in of.chunks(KEYS_MAX) {
            let keys: Vec<&Key> = part.iter().map(|&at| &questions[at].key).collect();
            let lines = run(program, is_group, &keys, patience)?;
            for &at in part {
                found[at] = answer(&lines, &questions[at].key);
            }
        }
    }
    Ok(found)
}

/// A name is that of its line, or in other letters: some services know no case.
fn answer(lines: &[Known], key: &Key) -> Option<Known> {
    let is_it = |(name, id): &&Known| match key {
        Key::Number(number) => id == number,
        Key::Name(wanted) => name == wanted,
    };
    let is_alike = |(name, _): &&Known| matches!(key, Key::Name(wanted) if name.eq_ignore_ascii_case(wanted));
    lines.iter().find(is_it).or_else(|| lines.iter().find(is_alike)).cloned()
}

fn run(program: &Path, is_group: bool, keys: &[&Key], patience: Duration) -> io::Result<Vec<Known>> {
    use std::os::unix::ffi::OsStrExt;
    let mut command = Command::new(program);
    command.arg(if is_group { "group" } else { "passwd" }).arg("--");
    for key in keys {
        match key {
            Key::Number(id) => command.arg(id.to_string()),
            Key::Name(name) => command.arg(std::ffi::OsStr::from_bytes(name)),
        };
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // One that hangs is not left behind by a process that has ended meanwhile.
    sys::confine::kill_with_parent(&mut command);
    let mut child = command.spawn()?;
    let output = read(&mut child, patience);
    if output.is_err() {
        let _ = child.kill();
    }
    let status = child.wait()?;
    // 0: all were found; 2: some were not (getent(1), EXIT STATUS). Whatever else it says is no answer.
    match status.code() {
        Some(0 | 2) => Ok(read_lines(&output?)),
        _ => Err(output.err().unwrap_or_else(|| io::Error::other(format!("getent ended with {status}")))),
    }
}

/// All that it prints, if it ends in time.
fn read(child: &mut Child, patience: Duration) -> io::Result<Vec<u8>> {
    let out = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let (to, from) = channel();
    // Ends with the child, or with whoever else has its standard output: nobody waits for that.
    std::thread::Builder::new().name("getent".to_owned()).spawn(move || {
        let mut bytes = Vec::new();
        let _ = to.send(out.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes).map(|_| bytes));
    })?;
    from.recv_timeout(patience).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// `name:x:number:…`, as passwd(5) and group(5) have it.
fn read_lines(text: &[u8]) -> Vec<Known> {
    let line = |line: &[u8]| {
        let mut fields = line.split(|&byte| byte == b':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        let id = std::str::from_utf8(id).ok()?.parse().ok()?;
        (!name.is_empty()).then(|| (name.into(), id))
    };
    text.split(|&byte| byte == b'\n').filter_map(line).collect()
}
