//! Which queueing discipline stands at a card's way out.
//!
//! What it is for: `host`. In: an interface's name and a kind (`fq`), or none. Out: what stands there.
//! Invariants: an answer is read to its end and every length in it is checked; one that does not fit is an error.
//! Absent on purpose: options of disciplines: kinds are set with the kernel's own defaults, and one with options that somebody chose is only told.
//! Sources: rtnetlink(7), linux/rtnetlink.h, linux/pkt_sched.h.

use std::io;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::netlink::{ACK, CREATE, Message, exchange, half, odd, word};

const NEW: u16 = 36;
const DEL: u16 = 37;
const GET: u16 = 38;
const DUMP: u16 = 0x300;
const REPLACE: u16 = 0x100;
/// TCA_KIND.
const KIND: u16 = 1;
/// TC_H_ROOT.
const ROOT: u32 = u32::MAX;
/// Of the parent of a queue's own discipline, where one is needed.
const MAJOR: u32 = 0x4c48_0000;
/// tcmsg.
const BODY: usize = 20;

/// What stands at the root of a card, and below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discipline {
    /// `fq`, `mq`, `noqueue`.
    pub kind: String,
    /// The kernel put it there, not a person: it comes back by itself.
    pub is_default: bool,
    /// Of each queue, where the root is one for many queues.
    pub children: Vec<String>,
}

/// One line of the kernel's list.
struct Row {
    index: u32,
    handle: u32,
    parent: u32,
    kind: String,
}

/// nlmsghdr, tcmsg, and the kind.
fn message(order: u16, flags: u16, index: u32, handle: u32, parent: u32, kind: Option<&str>) -> Vec<u8> {
    let mut out = Message::new(order, flags);
    // Family first.
    out.words(&[0, index, handle, parent, 0]);
    if let Some(kind) = kind {
        out.text(KIND, kind);
    }
    out.finish()
}

/// tcmsg and its attributes.
fn row(body: &[u8]) -> io::Result<Row> {
    let mut rest = body.get(BODY..).ok_or_else(odd)?;
    let mut kind = String::new();
    while rest.len() >= 4 {
        let length = usize::from(half(rest, 0)?);
        let value = rest.get(4..length).ok_or_else(odd)?;
        if half(rest, 2)? == KIND {
            kind = String::from_utf8_lossy(value).trim_end_matches('\0').to_owned();
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(Row { index: word(body, 4)?, handle: word(body, 8)?, parent: word(body, 12)?, kind })
}

fn index(name: &str) -> io::Result<u32> {
    let fd = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    Ok(rustix::net::netdevice::name_to_index(&fd, name)?)
}

fn rows(index: u32) -> io::Result<Vec<Row>> {
    let mut found = Vec::new();
    exchange(&message(GET, DUMP, index, 0, 0, None), |body| {
        let row = row(body)?;
        if row.index == index {
            found.push(row);
        }
        Ok(())
    })?;
    Ok(found)
}

/// What stands at a card. Errors: ENODEV.
pub fn read(name: &str) -> io::Result<Discipline> {
    let rows = rows(index(name)?)?;
    let Some(root) = rows.iter().find(|row| row.parent == ROOT) else {
        // Nothing is listed of an interface that has none.
        return Ok(Discipline { kind: "noqueue".to_owned(), is_default: true, children: Vec::new() });
    };
    let is_child = |row: &&Row| row.parent != ROOT && row.parent >> 16 == root.handle >> 16 && row.parent & 0xffff != 0;
    let children = rows.iter().filter(is_child).map(|row| row.kind.clone()).collect();
    Ok(Discipline { kind: root.kind.clone(), is_default: root.handle == 0, children })
}

/// This kind, with the kernel's defaults, at each of the card's queues; what stood there goes. Errors: ENOENT or EINVAL (no such kind), EPERM, ENODEV.
pub fn set(name: &str, kind: &str, queues: usize) -> io::Result<()> {
    let index = index(name)?;
    let put = |handle: u32, parent: u32, kind: &str| {
        exchange(&message(NEW, ACK | CREATE | REPLACE, index, handle, parent, Some(kind)), |_| Ok(()))
    };
    if queues < 2 {
        return put(0, ROOT, kind);
    }
    // One for all queues would be a lock for all cores.
    put(MAJOR, ROOT, "mq")?;
    (1..=queues as u32).try_for_each(|queue| put(0, MAJOR | queue, kind))
}

/// The kernel's own again. Errors: EPERM, ENODEV.
pub fn reset(name: &str) -> io::Result<()> {
    match exchange(&message(DEL, ACK, index(name)?, 0, ROOT, None), |_| Ok(())) {
        // ENOENT, EINVAL: there is none that a person has put there.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::netlink::HEAD;

    #[test]
    fn a_message_is_as_long_as_it_says_and_an_answer_is_read_back() {
        let bytes = message(NEW, ACK | CREATE | REPLACE, 7, MAJOR, ROOT, Some("fq"));
        assert_eq!((word(&bytes, 0).unwrap() as usize, bytes.len() % 4), (bytes.len(), 0));
        let row = row(&bytes[HEAD..]).unwrap();
        assert_eq!((row.index, row.handle, row.parent, row.kind.as_str()), (7, MAJOR, ROOT, "fq"));
    }

    #[test]
    fn an_answer_that_is_cut_or_lies_of_its_length_is_an_error() {
        let bytes = message(NEW, 0, 7, 0, ROOT, Some("fq_codel"));
        for end in 0..BODY {
            assert!(row(&bytes[HEAD..HEAD + end]).is_err(), "{end}");
        }
        let mut long = bytes[HEAD..].to_vec();
        long[BODY] = 200;
        assert!(row(&long).is_err());
    }

    #[test]
    fn the_loopback_has_none_and_what_is_not_there_is_an_error() {
        assert_eq!(read("lo").unwrap().kind, "noqueue");
        assert_eq!(read("no-such-card").unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }
}
