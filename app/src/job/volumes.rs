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

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::linux::choice::Chooser;
use engine::linux::source::LinuxSource;
use engine::linux::{Sources, VOLUME_MARK};
use engine::sink::volumes::{Gone, is_dying};
use proto::layout::{Layout, VOLUMES_MAX};
use sys::fs::{Dir, Kind, Stat};

use crate::exit::{Exit, Failure};
use crate::job::place::{self, Ground, Target, named, show, split};

/// Disks that went out in this process, and when: a disk that fails at its full blocks still takes a small file, so the next pass would trust it.
static OUT: Mutex<Vec<(String, Instant)>> = Mutex::new(Vec::new());
/// For so long: a disk that was replaced is used again.
const OUT_FOR: Duration = Duration::from_secs(600);
/// "Input/output error" of `errno(3)`.
const EIO: i32 = 5;

/// Remembers that a volume is out, and says so.
pub fn out(gone: &Gone) -> String {
    if !gone.before {
        OUT.lock().unwrap_or_else(PoisonError::into_inner).push((gone.name.clone(), Instant::now()));
    }
    format!("volume '{}' is out ({}): it is given nothing more", gone.name, gone.why)
}

fn is_out(name: &str) -> bool {
    let mut out = OUT.lock().unwrap_or_else(PoisonError::into_inner);
    out.retain(|(_, since)| since.elapsed() < OUT_FOR);
    out.iter().any(|(it, _)| it == name)
}

/// A volume as reports name it.
fn shown(volume: &Dir) -> String {
    let name = named(volume, b"");
    show(name.strip_suffix(b"/").filter(|it| !it.is_empty()).unwrap_or(&name))
}

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

/// Folders on N disks as one destination. A disk of a known set that fails when it is tried is left out, and that is told.
pub fn target(ground: &Ground, paths: &[Box<[u8]>], layout: Layout, dry: bool) -> Result<Target, Failure> {
    let mut found: Vec<(Dir, &[u8])> = Vec::new();
    let mut marks = Vec::new();
    let mut name = Vec::new();
    let mut seen = HashMap::new();
    let mut failed: Vec<Failure> = Vec::new();
    let mut gone = Vec::new();
    for path in paths {
        name.extend_from_slice(path);
        name.push(b'\n');
        let what = || format!("use the volume '{}'", show(path));
        match try_volume(ground, path, dry) {
            Ok((volume, mark, stat)) => {
                if let Some(other) = seen.insert((stat.dev, stat.ino), path) {
                    let cause = format!("it is the same folder as '{}'", show(other));
                    return Err(Exit::Usage.fail(what(), cause).next("name each volume once"));
                }
                marks.push(mark);
                found.push((volume, path));
            }
            Err(error) => {
                let is_dying = error.raw_os_error().is_some_and(is_dying);
                let failure = Exit::of_io(&error).fail(what(), &error);
                if !is_dying {
                    return Err(failure.next("mount it, or leave it out; a volume is a folder that is there"));
                }
                gone.push(Gone { name: show(path), why: error.to_string(), before: true });
                failed.push(failure.next("replace the disk, or leave it out"));
            }
        }
    }
    // Of a set that is not known yet nobody can say that the rest of it is whole.
    if marks.iter().all(Option::is_none)
        && let Some(failure) = failed.pop()
    {
        return Err(failure);
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
        for (number, (volume, path)) in (0..).zip(&found) {
            Mark { set, volume: number, of }
                .write(volume)
                .map_err(|error| Exit::of_io(&error).fail(format!("mark the volume '{}'", show(path)), error))?;
        }
    }
    let (volumes, shown) = found.into_iter().map(|(volume, _)| (volume.clone(), shown(&volume))).unzip();
    Ok(Target { volumes, shown, gone, top: Box::default(), is_absent: false, name })
}

/// Opens a volume, reads its mark, and has it flush a small file: a disk that cannot do that is no destination.
fn try_volume(ground: &Ground, path: &[u8], dry: bool) -> io::Result<(Dir, Option<Mark>, Stat)> {
    let volume = ground.open(path)?;
    let stat = volume.stat_self()?;
    if is_out(&shown(&volume)) {
        return Err(io::Error::from_raw_os_error(EIO));
    }
    if !dry {
        let part = [VOLUME_MARK, b".part"].concat();
        let mut file = volume.create_file(&part, false, true)?;
        file.write_all(b"a disk that is to take a job must take this\n")?;
        sys::fs::sync_data(&file)?;
        volume.remove_file(&part)?;
    }
    Ok((volume.clone(), Mark::read(&volume)?, stat))
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
