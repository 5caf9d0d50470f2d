//! I/O modes: the ways in which the bytes of files are moved, and the choice among them.
//!
//! For: one table of names for the command line, the selection, its memory and the reports.
//! In and out: names and measured rates in; modes, trials to run, sentences out.
//! Invariants: no I/O, no clock; a mode that is not known by name is refused, never guessed.
//! Absent on purpose: doing it (`engine::linux`), and whether a file is in the page cache, which is asked file by file.

pub mod selection; // which mode is the fastest here, by trials
pub mod cached; // what selections found, as lines of a file

use core::fmt;

/// A way of moving bytes between memory and a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum IoMode {
    /// Past the page cache (O_DIRECT), in whole sectors.
    Direct = 0,
    /// Through the page cache, which lets go of each page as soon as it may (RWF_DONTCACHE, Linux 6.14).
    Dontcache = 1,
    /// Through the page cache; what is written is sent to the disk every few MiB instead of when the kernel thinks it is time.
    Early = 2,
    /// Through the page cache.
    Buffered = 3,
    /// Reads by mapping the file: one call less to learn, page by page.
    Mmap = 4,
}

impl IoMode {
    /// All, the one that leaves others' memory alone most first: the order in which ties are broken.
    pub const ALL: [IoMode; 5] = [IoMode::Direct, IoMode::Dontcache, IoMode::Early, IoMode::Buffered, IoMode::Mmap];

    /// As `--io-mode` takes it and reports print it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            IoMode::Direct => "direct",
            IoMode::Dontcache => "dontcache",
            IoMode::Early => "early",
            IoMode::Buffered => "buffered",
            IoMode::Mmap => "mmap",
        }
    }

    /// The I/O mode of this name; `None`: there is no such mode.
    #[must_use]
    pub fn by_name(name: &str) -> Option<IoMode> {
        IoMode::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// By its number, for a place that many threads look at.
    #[must_use]
    pub fn by_number(number: u8) -> Option<IoMode> {
        IoMode::ALL.into_iter().find(|mode| *mode as u8 == number)
    }

    /// Can it move bytes in this direction? `early` is about writing, `mmap` about reading.
    #[must_use]
    pub const fn can(self, way: Way) -> bool {
        !matches!((self, way), (IoMode::Early, Way::Read) | (IoMode::Mmap, Way::Write))
    }

    /// Does it put the file's pages into the page cache and leave them there?
    #[must_use]
    pub const fn fills_cache(self) -> bool {
        matches!(self, IoMode::Early | IoMode::Buffered | IoMode::Mmap)
    }
}

impl fmt::Display for IoMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// From the file.
    Read,
    /// Into the file.
    Write,
}

impl Way {
    /// As reports print it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Way::Read => "read",
            Way::Write => "write",
        }
    }
}

/// The modes a user insists on; `None`: chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoModes {
    /// At the source.
    pub read: Option<IoMode>,
    /// At the destination.
    pub write: Option<IoMode>,
}

impl IoModes {
    /// One for both ways; a way it cannot go is left to choice.
    #[must_use]
    pub fn both(mode: IoMode) -> IoModes {
        IoModes { read: Some(mode).filter(|it| it.can(Way::Read)), write: Some(mode).filter(|it| it.can(Way::Write)) }
    }

    /// `auto`, a name for both ways, or `read=NAME`, `write=NAME` or both with a comma between.
    ///
    /// # Errors
    /// What is wrong, and what could stand there.
    pub fn parse(text: &str) -> Result<IoModes, &'static str> {
        const NAMES: &str = "the I/O modes are auto, buffered, early, dontcache, direct and mmap";
        let mut modes = IoModes::default();
        for part in text.split(',') {
            let (way, name) = match part.split_once('=') {
                Some(("read", name)) => (Some(Way::Read), name),
                Some(("write", name)) => (Some(Way::Write), name),
                Some(_) => return Err("only read= and write= can have an I/O mode each"),
                None => (None, part),
            };
            let mode = match name {
                "auto" => None,
                name => Some(IoMode::by_name(name).ok_or(NAMES)?),
            };
            match (way, mode) {
                (Some(Way::Read), Some(IoMode::Early)) => return Err("early is about writing: it cannot read"),
                (Some(Way::Write), Some(IoMode::Mmap)) => return Err("mmap is about reading: it cannot write"),
                (Some(Way::Read), mode) => modes.read = mode,
                (Some(Way::Write), mode) => modes.write = mode,
                (None, mode) => modes = mode.map_or_else(IoModes::default, IoModes::both),
            }
        }
        Ok(modes)
    }
}

impl fmt::Display for IoModes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |mode: Option<IoMode>| mode.map_or("auto", IoMode::name);
        write!(f, "read={},write={}", name(self.read), name(self.write))
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn modes_are_parsed_as_they_are_printed_and_nothing_is_guessed() {
        for mode in IoMode::ALL {
            assert_eq!(IoMode::by_name(mode.name()), Some(mode));
            assert_eq!(IoMode::by_number(mode as u8), Some(mode));
            let both = IoModes::parse(mode.name()).expect("a name");
            assert_eq!(both, IoModes::both(mode));
            assert_eq!(IoModes::parse(&both.to_string()), Ok(both));
        }
        assert_eq!(IoModes::parse("auto"), Ok(IoModes::default()));
        let mixed = IoModes { read: Some(IoMode::Mmap), write: Some(IoMode::Dontcache) };
        assert_eq!(IoModes::parse("read=mmap,write=dontcache"), Ok(mixed));
        assert_eq!(IoModes::parse("write=direct"), Ok(IoModes { read: None, write: Some(IoMode::Direct) }));
        for wrong in ["", "fast", "read=early", "write=mmap", "scan=direct", "direct,", "Direct"] {
            assert!(IoModes::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
