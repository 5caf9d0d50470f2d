//! Files that are watched: were they written since?
//!
//! For: who knows something of a file's content and must not say it of another content.
//! In and out: open files → numbers; later, the numbers of those that somebody wrote, cut, gave another mtime, or could have written and closed.
//! Invariants: only of file systems of this host, where nobody writes past the kernel; what a writer stored through a mapping is told when it lets go of the
//! file, so ask `writers_of` first, and then here.
//! Absent on purpose: names, and who wrote. Source: inotify(7).

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use super::file::fs_name;

/// Files whose writers are reported: see the module.
#[derive(Debug)]
pub struct Watches(OwnedFd);

impl Watches {
    /// None yet. Errors: EMFILE: this user has too many (`fs.inotify.max_user_instances`).
    pub fn new() -> io::Result<Watches> {
        Ok(Watches(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?))
    }

    /// From now on what happens to this file is told. A file has one number, however often it is added.
    /// Errors: Unsupported: others may write it without the kernel's knowledge; ENOSPC (`fs.inotify.max_user_watches`).
    pub fn add(&self, file: &File) -> io::Result<i32> {
        let facts = rustix::fs::fstatfs(file)?;
        if !matches!(fs_name(facts.f_type as u64).as_str(), "ext4" | "xfs" | "btrfs" | "f2fs" | "tmpfs") {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(inotify::add_watch(&self.0, path, WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE)?)
    }

    /// Watches it no more.
    pub fn remove(&self, number: i32) {
        let _ = inotify::remove_watch(&self.0, number);
    }

    /// Tells each that was written since the last call, or is gone (`true`); `None`: any may have been.
    pub fn changed(&self, mut each: impl FnMut(Option<(i32, bool)>)) {
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.0, &mut room);
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => each(None),
                Ok(event) => each(Some((event.wd(), event.events().contains(ReadFlags::IGNORED)))),
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return each(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;

    #[test]
    fn a_file_that_is_written_cut_or_gone_is_told_and_one_that_is_read_is_not() {
        let path = std::env::temp_dir().join(format!("longhaul-watch-{}", std::process::id()));
        std::fs::write(&path, b"0123456789").unwrap();
        let (file, watches) = (File::open(&path).unwrap(), Watches::new().unwrap());
        let Ok(number) = watches.add(&file) else {
            // No file system of this host.
            return std::fs::remove_file(&path).unwrap();
        };
        assert_eq!(watches.add(&File::open(&path).unwrap()).unwrap(), number);
        let told = || {
            let mut all = Vec::new();
            watches.changed(|it| all.push(it));
            all
        };
        let _ = std::fs::read(&path).unwrap();
        super::super::set_file_meta(&file, Some(0o600), None).unwrap();
        assert_eq!(told(), []);
        // Of utimensat(2) with this time alone the kernel tells as of a write.
        super::super::set_file_meta(&file, None, Some((7, 0))).unwrap();
        assert_eq!(told(), [Some((number, false))]);
        let mut writer = File::options().write(true).open(&path).unwrap();
        writer.write_all(b"a").unwrap();
        assert_eq!(told(), [Some((number, false))]);
        writer.rewind().unwrap();
        drop(writer);
        assert_eq!(told(), [Some((number, false))], "a mapping may have been written");
        drop(File::create(&path).unwrap());
        assert!(told().contains(&Some((number, false))), "it was cut");
        std::fs::remove_file(&path).unwrap();
        drop(file);
        assert_eq!(told(), [Some((number, true))]);
    }
}
