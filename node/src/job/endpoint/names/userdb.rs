//! systemd-userdbd's socket: users and groups of all services that it knows, NSS among them.
//!
//! For: hosts where it runs: no child is needed, and a confined process may ask it.
//! In and out: questions in; `io.systemd.UserDatabase.GetUserRecord` and `GetGroupRecord` over varlink (JSON objects with a NUL behind each), answers out.
//! Invariants: an answer is bounded in bytes and time; a record counts only if it is that of the question; an error other than "there is none" is no answer.
//! Absent on purpose: lists of all users, memberships.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use engine::tree::ids::{Key, Question};
use serde_json::{Value, json};

use super::{Known, Said};

/// A record may have a picture's path, keys and more; none has this much.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Said of a user or group that nobody knows, and of one whose record is another's.
const NONE: [&str; 2] = ["io.systemd.UserDatabase.NoRecordFound", "io.systemd.UserDatabase.ConflictingRecordFound"];

/// One answer for each question.
pub(super) fn ask(socket: &Path, questions: &[Question], patience: Duration) -> Said {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let (mut to, mut from) = (&stream, BufReader::new(&stream));
    let mut found = Vec::with_capacity(questions.len());
    for question in questions {
        let mut call = serde_json::to_vec(&call_of(question)).map_err(io::Error::other)?;
        call.push(0);
        to.write_all(&call)?;
        let mut answer = Vec::new();
        from.by_ref().take(ANSWER_BYTES_MAX).read_until(0, &mut answer)?;
        if answer.pop() != Some(0) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        found.push(read(question, &answer)?);
    }
    Ok(found)
}

fn call_of(question: &Question) -> Value {
    let mut parameters = json!({ "service": "io.systemd.Multiplexer" });
    match (&question.key, question.is_group) {
        (Key::Number(id), false) => parameters["uid"] = (*id).into(),
        (Key::Number(id), true) => parameters["gid"] = (*id).into(),
        (Key::Name(name), false) => parameters["userName"] = String::from_utf8_lossy(name).into(),
        (Key::Name(name), true) => parameters["groupName"] = String::from_utf8_lossy(name).into(),
    }
    let method = if question.is_group { "GetGroupRecord" } else { "GetUserRecord" };
    json!({ "method": format!("io.systemd.UserDatabase.{method}"), "parameters": parameters })
}

/// The record, if it is that of the question.
fn read(question: &Question, answer: &[u8]) -> io::Result<Option<Known>> {
    let answer: Value = serde_json::from_slice(answer).map_err(io::Error::other)?;
    match answer["error"].as_str() {
        Some(error) if NONE.contains(&error) => return Ok(None),
        Some(error) => return Err(io::Error::other(error.to_owned())),
        None => {}
    }
    let record = &answer["parameters"]["record"];
    let (name, id) = if question.is_group { ("groupName", "gid") } else { ("userName", "uid") };
    let id = record[id].as_u64().and_then(|id| u32::try_from(id).ok());
    let (Some(name), Some(id)) = (record[name].as_str(), id) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let is_it = match &question.key {
        Key::Number(wanted) => *wanted == id,
        Key::Name(wanted) => name.as_bytes().eq_ignore_ascii_case(wanted),
    };
    Ok(is_it.then(|| (name.as_bytes().into(), id)))
}
