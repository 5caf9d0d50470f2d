//! A child that was started before this process gave up starting any: it runs `getent` in its place.
//!
//! For: the daemon, which Landlock lets execute nothing.
//! In and out: a line with the kind and the keys, tabs between, to the child; a line for each answer and one with a dot, or one with `!`, back.
//! Invariants: keys have no control characters, so none ends a line; the child ends with its standard input, however this process ended; it never
//! writes anything, and nothing that it starts does (`sys::confine::read_only`).
//! Absent on purpose: what getent is (getent.rs), time (`getent` is killed there; a child that is gone is no answer).

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use engine::tree::ids::{Key, Question};

use super::{Known, SERVICE_PATIENCE, Said, getent, is_askable};

/// Of one line: a call of a job has at most 16,384 keys of 256 bytes.
const LINE_BYTES_MAX: u64 = 8 << 20;
/// The command of this program that is the child.
pub const COMMAND: &str = "names";

/// The child, as whoever started it has it.
#[derive(Debug)]
pub(super) struct Resolver {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Drop for Resolver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Resolver {
    /// Starts this program as the child.
    pub(super) fn start(program: &Path) -> io::Result<Resolver> {
        let mut command = Command::new(program);
        command.arg(COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let (to, from) = to.zip(from).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Resolver { child, to, from: BufReader::new(from) })
    }

    pub(super) fn ask(&mut self, questions: &[Question]) -> Said {
        let mut found = vec![None; questions.len()];
        for is_group in [false, true] {
            let of: Vec<usize> = (0..questions.len()).filter(|&at| questions[at].is_group == is_group).collect();
            if of.is_empty() {
                continue;
            }
            let mut line = if is_group { b"group".to_vec() } else { b"passwd".to_vec() };
            for &at in &of {
                line.push(b'\t');
                match &questions[at].key {
                    Key::Number(id) => line.extend_from_slice(id.to_string().as_bytes()),
                    Key::Name(name) => line.extend_from_slice(name),
                }
            }
            line.push(b'\n');
            self.to.write_all(&line)?;
            // All of them are read, whatever the first is: the next call's come behind them.
            let all: Vec<_> = of.iter().map(|_| self.answer()).collect();
            for (at, answer) in of.into_iter().zip(all) {
                found[at] = answer?;
            }
        }
        Ok(found)
    }

    fn answer(&mut self) -> io::Result<Option<Known>> {
        let line = next_line(&mut self.from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        match line.split(|&byte| byte == b'\t').collect::<Vec<_>>()[..] {
            [b"."] => Ok(None),
            [name, id] => {
                let id = std::str::from_utf8(id).ok().and_then(|id| id.parse().ok());
                Ok(Some((name.into(), id.ok_or(io::ErrorKind::InvalidData)?)))
            }
            // For each key of a call that failed.
            _ => Err(io::Error::other("getent does not answer")),
        }
    }
}

/// A line without its end; `None`: there is no more.
fn next_line(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    from.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    Ok((line.pop() == Some(b'\n')).then_some(line))
}

/// The child's work: answers until there are no more questions.
///
/// # Errors
/// Whoever asked is gone in the middle of it.
pub fn serve(mut from: impl BufRead, mut to: impl Write) -> io::Result<()> {
    while let Some(line) = next_line(&mut from)? {
        let mut words = line.split(|&byte| byte == b'\t');
        let is_group = words.next() == Some(b"group");
        let key = |word: &[u8]| {
            let number = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
            number.map_or_else(|| Key::Name(word.into()), Key::Number)
        };
        let questions: Vec<Question> = words.map(|word| Question { is_group, key: key(word) }).collect();
        let is_good = questions.iter().all(|it| is_askable(&it.key));
        let said = if is_good { getent::ask(Path::new("getent"), &questions, SERVICE_PATIENCE) } else { Ok(vec![]) };
        let mut text = Vec::new();
        match said {
            Ok(found) if found.len() == questions.len() => found.iter().for_each(|it| put(&mut text, it.as_ref())),
            _ => questions.iter().for_each(|_| text.extend_from_slice(b"!\t!\t!\n")),
        }
        to.write_all(&text)?;
        to.flush()?;
    }
    Ok(())
}

/// A name with a control character would end the line: it is nobody's.
fn put(text: &mut Vec<u8>, known: Option<&Known>) {
    match known.filter(|(name, _)| !name.iter().any(u8::is_ascii_control)) {
        Some((name, id)) => {
            text.extend_from_slice(name);
            text.extend_from_slice(format!("\t{id}\n").as_bytes());
        }
        None => text.extend_from_slice(b".\n"),
    }
}
