//! Digests of files, as HASH and the commands before it name them.
//!
//! For: clients that compare what they moved, others' and ours.
//! In and out: a part of a file, or bytes as they pass → their digest in hexadecimal.
//! Invariants: memory is one read; the control connection is heard between reads.
//! Absent on purpose: trust in MD5, SHA-1 and CRC-32: they find what went wrong by chance, and nobody who means harm.

pub mod known; // those that need no reading

use std::fs::File;

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA512};
use proto::ftp::command::{Digest, Part};
use proto::ftp::session::Outcome;
use proto::ftp::session::fault::Fault;

use super::files::fault_of;
use super::users::hex;

/// What is read at once.
const READ_BYTES: usize = 1 << 20;

/// A digest of the bytes so far.
pub enum Running {
    Crc32(Box<crc_fast::Digest>),
    Md5(Box<Md5>),
    Sha(Context),
    Blake3(Box<blake3::Hasher>),
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

impl Running {
    /// Of no bytes.
    pub fn new(digest: Digest) -> Running {
        match digest {
            Digest::Crc32 => Running::Crc32(Box::new(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32IsoHdlc))),
            Digest::Md5 => Running::Md5(Box::default()),
            Digest::Sha1 => Running::Sha(Context::new(&SHA1_FOR_LEGACY_USE_ONLY)),
            Digest::Sha256 => Running::Sha(Context::new(&SHA256)),
            Digest::Sha512 => Running::Sha(Context::new(&SHA512)),
            Digest::Blake3 => Running::Blake3(Box::default()),
        }
    }

    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Running::Crc32(it) => it.update(bytes),
            Running::Md5(it) => it.update(bytes),
            Running::Sha(it) => it.update(bytes),
            Running::Blake3(it) => drop(it.update(bytes)),
        }
    }

    /// In hexadecimal, small letters.
    pub fn finish(self) -> String {
        match self {
            // 32 bits of the 64 that the library's type has room for.
            Running::Crc32(it) => format!("{:08x}", it.finalize()),
            Running::Md5(it) => hex(&it.finish()),
            Running::Sha(it) => hex(it.finish().as_ref()),
            Running::Blake3(it) => hex(it.finalize().as_bytes()),
        }
    }
}

/// The digest of a part of a file, and where the part ends. `goes_on` is asked between reads.
///
/// # Errors
/// The file's; `Fault::Aborted`.
pub fn of_file(file: &File, digest: Digest, part: Part, mut goes_on: impl FnMut() -> bool) -> Result<Outcome, Fault> {
    let mut room = vec![0; READ_BYTES];
    let mut running = Running::new(digest);
    let end = part.to.unwrap_or(u64::MAX);
    let mut at = part.from.min(end);
    while at < end {
        let most = room.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        let read = sys::fs::read_at_full(file, &mut room[..most], at).map_err(|error| fault_of(&error))?;
        running.update(&room[..read]);
        at += read as u64;
        if read < most {
            break;
        }
        if !goes_on() {
            return Err(Fault::Aborted);
        }
    }
    Ok(Outcome::Digest(running.finish(), at))
}

/// MD5 (RFC 1321), which the crypto library rightly has no more.
pub struct Md5 {
    state: [u32; 4],
    block: [u8; 64],
    bytes: u64,
    sines: [u32; 64],
}

impl std::fmt::Debug for Md5 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Md5").finish_non_exhaustive()
    }
}

impl Default for Md5 {
    fn default() -> Md5 {
        let state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
        let sines = std::array::from_fn(|at| ((at as f64 + 1.0).sin().abs() * 4_294_967_296.0) as u32);
        Md5 { state, block: [0; 64], bytes: 0, sines }
    }
}

impl Md5 {
    fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let at = (self.bytes % 64) as usize;
            let count = bytes.len().min(64 - at);
            self.block[at..at + count].copy_from_slice(&bytes[..count]);
            self.bytes += count as u64;
            bytes = &bytes[count..];
            if at + count == 64 {
                self.step();
            }
        }
    }

    /// One block (RFC 1321 section 3.4): constants are the sines of 1 to 64.
    fn step(&mut self) {
        const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
        let word = |at: usize| {
            u32::from_le_bytes([
                self.block[at * 4],
                self.block[at * 4 + 1],
                self.block[at * 4 + 2],
                self.block[at * 4 + 3],
            ])
        };
        let [mut a, mut b, mut c, mut d] = self.state;
        for at in 0..64usize {
            let (mixed, from) = match at / 16 {
                0 => (b & c | !b & d, at),
                1 => (d & b | !d & c, (5 * at + 1) % 16),
                2 => (b ^ c ^ d, (3 * at + 5) % 16),
                _ => (c ^ (b | !d), 7 * at % 16),
            };
            let sum = a.wrapping_add(mixed).wrapping_add(self.sines[at]).wrapping_add(word(from));
            (a, d, c) = (d, c, b);
            b = b.wrapping_add(sum.rotate_left(SHIFTS[at / 16][at % 4]));
        }
        for (kept, new) in self.state.iter_mut().zip([a, b, c, d]) {
            *kept = kept.wrapping_add(new);
        }
    }

    fn finish(mut self) -> [u8; 16] {
        let bits = self.bytes.wrapping_mul(8);
        self.update(&[0x80]);
        while self.bytes % 64 != 56 {
            self.update(&[0]);
        }
        self.update(&bits.to_le_bytes());
        let mut out = [0; 16];
        for (out, word) in out.chunks_mut(4).zip(self.state) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Values of RFC 1321, FIPS 180-4, the check value of CRC-32 and of the BLAKE3 test vectors.
    #[test]
    fn digests_are_those_of_their_standards_and_of_the_part_that_is_asked_for() {
        let path = std::env::temp_dir().join(format!("longhaul-ftp-digests-{}", std::process::id()));
        let mut file = File::create_new(&path).unwrap();
        file.write_all(b"xxabc123456789").unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let of = |digest, from, to| of_file(&file, digest, Part { from, to }, || true);
        let is = |hex: &str, to| Ok(Outcome::Digest(hex.to_owned(), to));
        assert_eq!(of(Digest::Crc32, 5, None), is("cbf43926", 14));
        assert_eq!(of(Digest::Md5, 2, Some(5)), is("900150983cd24fb0d6963f7d28e17f72", 5));
        assert_eq!(of(Digest::Md5, 20, None), is("d41d8cd98f00b204e9800998ecf8427e", 20));
        assert_eq!(of(Digest::Sha1, 2, Some(5)), is("a9993e364706816aba3e25717850c26c9cd0d89d", 5));
        let sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(of(Digest::Sha256, 2, Some(5)), is(sha, 5));
        let blake3 = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";
        assert_eq!(of(Digest::Blake3, 2, Some(5)), is(blake3, 5));
        // More than one block, in pieces.
        let mut md5 = Md5::default();
        for piece in b"12345678901234567890123456789012345678901234567890123456789012345678901234567890".chunks(7) {
            md5.update(piece);
        }
        assert_eq!(hex(&md5.finish()), "57edf4a22be3c955ac49da2e2107b67a");
    }
}
