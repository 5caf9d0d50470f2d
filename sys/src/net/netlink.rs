//! Messages to the kernel's tables of interfaces, and its answers.
//!
//! For: queueing disciplines and pairs of interfaces. In and out: an order and its attributes → the bodies of the answers, or the error.
//! Invariants: an answer is read to its end and every length in it is checked; one that does not fit is an error.
//! Absent on purpose: which orders there are; several questions at a time.
//! Sources: netlink(7), rtnetlink(7), linux/netlink.h.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

const REQUEST: u16 = 1;
/// The kernel is to say that it was done.
pub(super) const ACK: u16 = 4;
/// What is not there yet is made.
pub(super) const CREATE: u16 = 0x400;
const DONE: u16 = 3;
const ERROR: u16 = 2;
/// nlmsghdr.
pub(super) const HEAD: usize = 16;

pub(super) fn odd() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is none")
}

pub(super) fn word(bytes: &[u8], at: usize) -> io::Result<u32> {
    let four = bytes.get(at..at + 4).ok_or_else(odd)?;
    Ok(u32::from_ne_bytes([four[0], four[1], four[2], four[3]]))
}

pub(super) fn half(bytes: &[u8], at: usize) -> io::Result<u16> {
    let two = bytes.get(at..at + 2).ok_or_else(odd)?;
    Ok(u16::from_ne_bytes([two[0], two[1]]))
}

/// A message as it grows; every part begins at a multiple of four bytes.
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Its head, whose length `finish` writes.
    pub(super) fn new(order: u16, flags: u16) -> Message {
        let mut out = vec![0; 4];
        out.extend(order.to_ne_bytes());
        out.extend((REQUEST | flags).to_ne_bytes());
        out.extend([0; 8]); // sequence, port: one question at a time
        Message(out)
    }

    /// Words of the body.
    pub(super) fn words(&mut self, words: &[u32]) {
        self.0.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    }

    /// An attribute that is a number.
    pub(super) fn number(&mut self, kind: u16, number: u32) {
        self.nest(kind, |inner| inner.words(&[number]));
    }

    /// An attribute that is a text, with the zero at its end.
    pub(super) fn text(&mut self, kind: u16, text: &str) {
        self.nest(kind, |inner| {
            inner.0.extend(text.as_bytes());
            inner.0.push(0);
        });
    }

    /// An attribute that has others in it.
    pub(super) fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Message)) {
        let begin = self.0.len();
        self.0.extend([0; 2]);
        self.0.extend(kind.to_ne_bytes());
        fill(self);
        // Attributes here are some dozens of bytes; the kernel refuses one whose length does not fit.
        let bytes = (self.0.len() - begin) as u16;
        self.0[begin..begin + 2].copy_from_slice(&bytes.to_ne_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// The bytes to send.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let bytes = self.0.len() as u32;
        self.0[..4].copy_from_slice(&bytes.to_ne_bytes());
        self.0
    }
}

/// One question, all its answers. Errors: EPERM, ENODEV, EOPNOTSUPP, ENOENT.
pub(super) fn exchange(message: &[u8], mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let fd: OwnedFd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?; // protocol 0 is NETLINK_ROUTE
    rustix::net::sendto(&fd, message, SendFlags::empty(), &netlink::SocketAddrNetlink::new(0, 0))?;
    let mut room = vec![0_u8; 64 << 10];
    loop {
        let (_, bytes) = rustix::net::recv(&fd, &mut room[..], RecvFlags::TRUNC)?;
        let mut rest = room.get(..bytes).filter(|got| !got.is_empty()).ok_or_else(odd)?;
        while !rest.is_empty() {
            let length = word(rest, 0)? as usize;
            let one = rest.get(..length).filter(|one| one.len() >= HEAD).ok_or_else(odd)?;
            match half(one, 4)? {
                DONE => return Ok(()),
                ERROR => {
                    let code = word(one, HEAD)? as i32;
                    return if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) };
                }
                _ => each(&one[HEAD..])?,
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}
