//! I/O modes: the ways in which the bytes of files are moved, and the choice among them.
//!
//! For: one table of names for the command line, the race, its memory and the reports.
//! In and out: names and measured rates in; engines, heats to run, sentences out.
//! Invariants: no I/O, no clock; an engine that is not known by name is refused, never guessed.
//! Absent on purpose: doing it (`engine::linux`), and whether a file is in the page cache, which is asked file by file.

pub mod race; // which engine is the fastest here, by heats
pub mod remembered; // what races found, as lines of a file

use core::fmt;

/// A way of moving bytes between memory and a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Engine {
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

impl Engine {
    /// All, the one that leaves others' memory alone most first: the order in which ties are broken.
    pub const ALL: [Engine; 5] = [Engine::Direct, Engine::Dontcache, Engine::Early, Engine::Buffered, Engine::Mmap];

    /// As `--io-mode` takes it and reports print it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Engine::Direct => "direct",
            Engine::Dontcache => "dontcache",
            Engine::Early => "early",
            Engine::Buffered => "buffered",
            Engine::Mmap => "mmap",
        }
    }

    /// By its name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Engine> {
        Engine::ALL.into_iter().find(|engine| engine.name() == name)
    }

    /// By its number, for a place that many threads look at.
    #[must_use]
    pub fn by_number(number: u8) -> Option<Engine> {
        Engine::ALL.into_iter().find(|engine| *engine as u8 == number)
    }

    /// Can it move bytes in this direction? `early` is about writing, `mmap` about reading.
    #[must_use]
    pub const fn can(self, way: Way) -> bool {
        !matches!((self, way), (Engine::Early, Way::Read) | (Engine::Mmap, Way::Write))
    }

    /// Does it put the file's pages into the page cache and leave them there?
    #[must_use]
    pub const fn fills_cache(self) -> bool {
        matches!(self, Engine::Early | Engine::Buffered | Engine::Mmap)
    }
}

impl fmt::Display for Engine {
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

/// The engines a user insists on; `None`: chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Engines {
    /// At the source.
    pub read: Option<Engine>,
    /// At the destination.
    pub write: Option<Engine>,
}

impl Engines {
    /// One for both ways; a way it cannot go is left to choice.
    #[must_use]
    pub fn both(engine: Engine) -> Engines {
        Engines {
            read: Some(engine).filter(|it| it.can(Way::Read)),
            write: Some(engine).filter(|it| it.can(Way::Write)),
        }
    }

    /// `auto`, a name for both ways, or `read=NAME`, `write=NAME` or both with a comma between.
    ///
    /// # Errors
    /// What is wrong, and what could stand there.
    pub fn parse(text: &str) -> Result<Engines, &'static str> {
        const NAMES: &str = "the I/O modes are auto, buffered, early, dontcache, direct and mmap";
        let mut engines = Engines::default();
        for part in text.split(',') {
            let (way, name) = match part.split_once('=') {
                Some(("read", name)) => (Some(Way::Read), name),
                Some(("write", name)) => (Some(Way::Write), name),
                Some(_) => return Err("only read= and write= can have an I/O mode each"),
                None => (None, part),
            };
            let engine = match name {
                "auto" => None,
                name => Some(Engine::by_name(name).ok_or(NAMES)?),
            };
            match (way, engine) {
                (Some(Way::Read), Some(Engine::Early)) => return Err("early is about writing: it cannot read"),
                (Some(Way::Write), Some(Engine::Mmap)) => return Err("mmap is about reading: it cannot write"),
                (Some(Way::Read), engine) => engines.read = engine,
                (Some(Way::Write), engine) => engines.write = engine,
                (None, engine) => engines = engine.map_or_else(Engines::default, Engines::both),
            }
        }
        Ok(engines)
    }
}

impl fmt::Display for Engines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |engine: Option<Engine>| engine.map_or("auto", Engine::name);
        write!(f, "read={},write={}", name(self.read), name(self.write))
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn engines_are_parsed_as_they_are_printed_and_nothing_is_guessed() {
        for engine in Engine::ALL {
            assert_eq!(Engine::by_name(engine.name()), Some(engine));
            assert_eq!(Engine::by_number(engine as u8), Some(engine));
            let both = Engines::parse(engine.name()).expect("a name");
            assert_eq!(both, Engines::both(engine));
            assert_eq!(Engines::parse(&both.to_string()), Ok(both));
        }
        assert_eq!(Engines::parse("auto"), Ok(Engines::default()));
        let mixed = Engines { read: Some(Engine::Mmap), write: Some(Engine::Dontcache) };
        assert_eq!(Engines::parse("read=mmap,write=dontcache"), Ok(mixed));
        assert_eq!(Engines::parse("write=direct"), Ok(Engines { read: None, write: Some(Engine::Direct) }));
        for wrong in ["", "fast", "read=early", "write=mmap", "scan=direct", "direct,", "Direct"] {
            assert!(Engines::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
