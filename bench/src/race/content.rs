//! What is copied in a race, and whether it arrived.
//!
//! For: `bench wan` and bench/race. In and out: a length → bytes by chance; two files → where they differ.
//! Invariants: the same seed gives the same bytes; what is compared is compared to the last byte.
//! Absent on purpose: trees.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

const BLOCK: usize = 1 << 20;

/// Chance that is cheap and repeats: xorshift64 (Marsaglia 2003). No compression, no run of zeros, a gigabyte in a second.
#[derive(Debug)]
pub struct Noise(u64);

impl Noise {
    /// The same for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Noise {
        Noise(seed | 1)
    }

    /// Its next 64 bits.
    pub fn next_number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// So many bytes at the end of a file.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(&mut self, file: &mut File, bytes: u64) -> std::io::Result<()> {
        let mut block = vec![0_u8; BLOCK];
        let mut left = bytes;
        while left > 0 {
            for word in block.chunks_exact_mut(8) {
                word.copy_from_slice(&self.next_number().to_le_bytes());
            }
            let length = left.min(BLOCK as u64);
            file.write_all(&block[..usize::try_from(length).unwrap_or(BLOCK)])?;
            left -= length;
        }
        Ok(())
    }
}

/// Where two files differ, to a block of a MiB.
///
/// # Errors
/// One of them cannot be read.
pub fn differ(one: &Path, two: &Path) -> std::io::Result<Option<u64>> {
    let (mut a, mut b) = (File::open(one)?, File::open(two)?);
    let (length, other) = (a.seek(SeekFrom::End(0))?, b.seek(SeekFrom::End(0))?);
    if length != other {
        return Ok(Some(length.min(other)));
    }
    a.rewind()?;
    b.rewind()?;
    let (mut from, mut to) = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut at = 0;
    while at < length {
        let count = usize::try_from(length - at).unwrap_or(BLOCK).min(BLOCK);
        a.read_exact(&mut from[..count])?;
        b.read_exact(&mut to[..count])?;
        if from[..count] != to[..count] {
            return Ok(Some(at));
        }
        at += count as u64;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_compared_to_the_last_byte() {
        let folder = std::env::temp_dir().join(format!("longhaul-race-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (one, two) = (folder.join("1"), folder.join("2"));
        let mut bytes = vec![7_u8; BLOCK + 5];
        std::fs::write(&one, &bytes).unwrap();
        std::fs::write(&two, &bytes).unwrap();
        assert_eq!(differ(&one, &two).unwrap(), None);
        bytes[BLOCK + 4] = 8;
        std::fs::write(&two, &bytes).unwrap();
        assert_eq!(differ(&one, &two).unwrap(), Some(BLOCK as u64));
        std::fs::write(&two, &bytes[..9]).unwrap();
        assert_eq!(differ(&one, &two).unwrap(), Some(9));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
