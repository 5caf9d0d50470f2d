//! Reads and writes that do not wait, piece by piece, and where short ones go on.
//!
//! For: files in memory, which are read and written between hashing and sealing, on warm cache; and every op that moved less than it was to.
//! In and out: a file, an offset and a slice; what was moved.
//! Invariants: a piece is moved whole or not at all as far as the caller sees.
//! Absent on purpose: asynchronous ops (`platform::Op`).

use std::io;

use crate::platform::{Harm, Platform};
use crate::seal::hash::Touch;

/// O_DIRECT reads whole sectors: 4096 bytes cover every device we know of (`logical_block_size` is 512 or 4096).
pub(crate) const SECTOR: usize = 4096;

/// Where a short read or write goes on: at a sector's border, as O_DIRECT wants it, if it came past one; what is moved twice is the same.
pub(crate) fn go_on_from(before: usize, after: usize, end: usize) -> usize {
    let aligned = after / SECTOR * SECTOR;
    if after >= end || aligned <= before { after } else { aligned }
}

/// Fills a piece from a file that is read at once. A file that ends early is an `UnexpectedEof`.
pub(crate) fn read_piece<P: Platform>(platform: &P, file: &P::File, offset: u64, piece: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < piece.len() {
        match platform.read_at_once(file, offset + done as u64, &mut piece[done..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(moved) => done += moved,
            Err(error) if is_again(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fills a chunk's payload on its way through the sender's passes, from a file that is read at once; the bytes of others are there. `offset`: of the
/// payload in its file. Between two passes a test's platform may flip bits.
pub(crate) fn filling<'a, P: Platform>(
    platform: &'a mut P,
    from: Option<&'a P::File>,
    offset: u64,
) -> impl FnMut(Touch, usize, &mut [u8]) -> io::Result<()> + 'a {
    move |touch, at, piece| {
        match (touch, from) {
            (Touch::Fill, Some(file)) => return read_piece(platform, file, offset + at as u64, piece),
            (Touch::Harm, _) => platform.harm(Harm::SourceBuf, piece),
            _ => {}
        }
        Ok(())
    }
}

/// Puts bytes into a file that is written at once.
pub(crate) fn write_piece<P: Platform>(platform: &P, file: &P::File, offset: u64, piece: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < piece.len() {
        match platform.write_at_once(file, offset + done as u64, &piece[done..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(moved) => done += moved,
            Err(error) if is_again(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Was nothing moved for a passing reason?
pub(crate) fn is_again(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}
