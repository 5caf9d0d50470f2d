//! Sets of volumes: which disks belong together.
//!
//! For: destinations that are dealt out to N disks, and the way back.
//! In and out: the folders that the user named; trees for the engine, or what is wrong with the set.
//! Invariants: a volume that is not there is never taken for an empty one: each carries a mark of its set, and one that is missing is
//! told by name; volumes of two sets are never mixed.
//! Absent on purpose: what stands where (engine::sink::volumes, engine::linux::scan).
//!
//! ```text
//! .longhaul-volume       in the folder of each volume, text, written once
//!   longhaul-volume 1
//!   set 0123456789abcdef            the same on all of them
//!   volume 3 of 16                  from 0
//! ```

use std::io::{self, Read, Write};
use std::sync::Arc;

use engine::linux::choice::Chooser;
use engine::linux::source::LinuxSource;
use engine::linux::{Sources, VOLUME_MARK};
use proto::layout::{Layout, VOLUMES_MAX};
use sys::fs::{Dir, Kind};

use crate::exit::{Exit, Failure};
use crate::job::place::{self, Ground, Target, named, show, split};

/// What a volume says of its set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    set: u64,
    volume: u16,
    of: u16,
}

impl Mark {
    fn text(self) -> String {
        format!("longhaul-volume 1\nset {:016x}\nvolume {} of {}\n", self.set, self.volume, self.of)
    }

    fn parse(text: &str) -> Option<Mark> {
        let mut lines = text.lines();
        (lines.next()? == "longhaul-volume 1").then_some(())?;
        let set = u64::from_str_radix(lines.next()?.strip_prefix("set ")?, 16).ok()?;
        let (volume, of) = lines.next()?.strip_prefix("volume ")?.split_once(" of ")?;
        let mark = Mark { set, volume: volume.parse().ok()?, of: of.parse().ok()? };
        (mark.volume < mark.of && mark.of <= VOLUMES_MAX).then_some(mark)
    }

    /// The mark of a volume, if it has one.
    fn read(volume: &Dir) -> io::Result<Option<Mark>> {
        let file = match volume.open_file(VOLUME_MARK, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let mut text = String::new();
        file.take(4096).read_to_string(&mut text)?;
        Mark::parse(&text)
            .map(Some)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its mark cannot be read"))
    }

    /// Beside its name and then renamed, and on the disk before anything else is.
    fn write(self, volume: &Dir) -> io::Result<()> {
        let part = [VOLUME_MARK, b".part"].concat();
        let mut file = volume.create_file(&part, false, true)?;
        file.write_all(self.text().as_bytes())?;
        sys::fs::sync_data(&file)?;
        volume.rename(&part, VOLUME_MARK)?;
        volume.sync(b"")
    }
}

/// Folders on N disks as one destination.
pub fn target(ground: &Ground, paths: &[Box<[u8]>], layout: Layout, dry: bool) -> Result<Target, Failure> {
    let mut volumes = Vec::new();
    let mut marks = Vec::new();
    let mut name = Vec::new();
    let mut seen = std::collections::HashMap::new();
    for path in paths {
        let what = || format!("open the volume '{}'", show(path));
        let failed = |error: io::Error| {
            Exit::of_io(&error)
                .fail(what(), error)
                .next("mount it, or leave it out; a volume is a folder that is there")
        };
        let volume = ground.open(path).map_err(failed)?;
        let stat = volume.stat_self().map_err(failed)?;
        if let Some(other) = seen.insert((stat.dev, stat.ino), path) {
            let cause = format!("it is the same folder as '{}'", show(other));
            return Err(Exit::Usage.fail(what(), cause).next("name each volume once"));
        }
        marks.push(Mark::read(&volume).map_err(failed)?);
        name.extend_from_slice(&named(&volume, b""));
        name.push(b'\n');
        volumes.push(volume);
    }
    let of = layout.volumes;
    let first = marks[0];
    let is_of_one_set =
        marks.iter().all(|mark| mark.is_some_and(|it| it.of == of) && mark.map(|it| it.set) == first.map(|it| it.set));
    if let (false, Some(at)) = (is_of_one_set, marks.iter().position(Option::is_some)) {
        let mark = marks[at].expect("just found");
        let cause = format!(
            "'{}' is volume {} of {} of the set {:016x}, and others here are not of it",
            show(&paths[at]),
            mark.volume,
            mark.of,
            mark.set
        );
        return Err(Exit::Usage.fail("use the volumes as one set", cause).next(
            "name all volumes of that set, or remove the file .longhaul-volume from those that shall make a new one",
        ));
    }
    if first.is_none() && !dry {
        let mut random = [0; 8];
        aws_lc_rs::rand::fill(&mut random)
            .map_err(|_| Exit::Bug.fail("name the set", "the system has no randomness"))?;
        let set = u64::from_le_bytes(random);
        for (number, (volume, path)) in (0..).zip(volumes.iter().zip(paths)) {
            Mark { set, volume: number, of }
                .write(volume)
                .map_err(|error| Exit::of_io(&error).fail(format!("mark the volume '{}'", show(path)), error))?;
        }
    }
    Ok(Target { volumes, top: Box::default(), is_absent: false, name })
}

/// What stands on N disks as one source. What a missing volume held is missing, and that is told; the rest is copied.
pub fn source(ground: &Ground, paths: &[Box<[u8]>], top: &[u8], chooser: &Arc<Chooser>) -> Result<Sources, Failure> {
    let mut found: Vec<LinuxSource> = Vec::new();
    let mut sets: Vec<Mark> = Vec::new();
    let mut missing: Vec<(Box<[u8]>, io::Error)> = Vec::new();
    let mut is_folder = false;
    let mut last = None;
    for path in paths {
        let (folder, name) = split(path);
        match ground.open(folder) {
            Ok(parent) => {
                sets.extend(mark_near(&parent, name));
                is_folder |= name.is_empty() || parent.stat(name).is_ok_and(|it| it.kind == Kind::Folder);
            }
            Err(error) => {
                missing.push((path.clone(), error));
                continue;
            }
        }
        match place::one_source(ground, std::slice::from_ref(path), top, Arc::clone(chooser)) {
            Ok(source) => found.push(source),
            Err(failure) if failure.exit == Exit::Vanished => {
                missing.push((path.clone(), io::ErrorKind::NotFound.into()));
                last = Some(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    if found.is_empty() {
        let nothing = || Exit::Vanished.fail("read the volumes", "none of them can be opened");
        return Err(last.unwrap_or_else(nothing));
    }
    if !is_folder {
        // A file stands on one volume: that it is not on the others is no news. That a whole volume is not there is.
        missing.clear();
    }
    if let Some(first) = sets.first() {
        if let Some(other) = sets.iter().find(|it| it.set != first.set) {
            let cause = format!("they are of two sets, {:016x} and {:016x}", first.set, other.set);
            return Err(Exit::Usage.fail("read the volumes as one set", cause).next("name the volumes of one set"));
        }
        for volume in (0..first.of).filter(|volume| !sets.iter().any(|it| it.volume == *volume)) {
            let name = format!("volume {volume} of {} of the set {:016x}", first.of, first.set);
            missing.push((name.into_bytes().into(), io::ErrorKind::NotFound.into()));
        }
    }
    Ok(Sources::new(found).without(missing))
}

/// The mark of the volume that a path is of: in the folder itself, or in the one it stands in.
fn mark_near(parent: &Dir, name: &[u8]) -> Option<Mark> {
    let own =
        if name.is_empty() { None } else { parent.open_dir(name).ok().and_then(|it| Mark::read(&it).ok().flatten()) };
    own.or_else(|| Mark::read(parent).ok().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_nothing_else_is() {
        let mark = Mark { set: 0xfeed, volume: 3, of: 16 };
        assert_eq!(Mark::parse(&mark.text()), Some(mark));
        for text in ["", "longhaul-volume 2\nset 1\nvolume 0 of 1\n", "longhaul-volume 1\nset x\nvolume 0 of 1\n"] {
            assert_eq!(Mark::parse(text), None);
        }
        assert_eq!(Mark::parse("longhaul-volume 1\nset 1\nvolume 4 of 4\n"), None);
        assert_eq!(Mark::parse("longhaul-volume 1\nset 1\nvolume 0 of 60000\n"), None);
    }
}
