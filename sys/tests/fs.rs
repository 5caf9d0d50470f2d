//! Names stay beneath their root, and each call of `fs` does what its sentence says, on a real file system.
//!
//! In: a folder of its own per test. Out: what the standard library sees afterwards.
//! Absent on purpose: the walk without `openat2`, tested beside its code.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use sys::fs::{self, Dir, Kind};

struct Folder(PathBuf);

impl Folder {
    fn new() -> (Folder, Dir) {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sys-fs-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("folder");
        let dir = Dir::open(path.as_os_str().as_encoded_bytes()).expect("open");
        (Folder(path), dir)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn number<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.expect_err("refused").raw_os_error().expect("the kernel's number")
}

#[test]
fn a_writer_is_known_while_it_has_the_file_open() {
    use sys::fs::{Writers, writers_of};
    let path = std::env::temp_dir().join(format!("longhaul-writers-{}", std::process::id()));
    let writer = std::fs::File::create(&path).expect("a file");
    let file = std::fs::File::open(&path).expect("it is there");
    assert_eq!(writers_of(&file), Writers::Some);
    drop(writer);
    assert_eq!(writers_of(&file), Writers::None);
    assert_eq!(writers_of(&file), Writers::None, "the lease was given back");
    std::fs::File::options().write(true).open(&path).expect("nobody is in the way");
    sys::fs::settle(&file).expect("written out");
    std::fs::remove_file(path).expect("it is there");
}

#[test]
fn no_call_leaves_the_root() {
    let (folder, dir) = Folder::new();
    std::fs::create_dir(folder.at("inside")).expect("folder");
    std::fs::write(folder.at("file"), b"x").expect("file");
    symlink("/etc", folder.at("out")).expect("link");
    symlink("inside", folder.at("in")).expect("link");
    symlink("/etc/passwd", folder.at("passwd")).expect("link");
    for name in ["..", "../x", "inside/../../x", "inside/.."] {
        let name = name.as_bytes();
        assert_eq!(number(dir.open_dir(name)), libc::EXDEV);
        assert_eq!(number(dir.open_file(name, false)), libc::EXDEV);
        assert_eq!(number(dir.stat(name)), libc::EXDEV);
        assert_eq!(number(dir.rename(b"file", name)), libc::EXDEV);
        assert_eq!(number(dir.make_link(b"x", name)), libc::EXDEV);
    }
    for name in ["/etc/passwd", "a//b", "inside/", "./inside", "."] {
        assert_eq!(number(dir.create_file(name.as_bytes(), true, false)), libc::EINVAL, "{name}");
    }
    // A link in the way is refused even when it leads inside; a last link is never followed.
    for name in ["out/x", "in/x"] {
        let name = name.as_bytes();
        assert_eq!(number(dir.create_file(name, true, false)), libc::ELOOP);
        assert_eq!(number(dir.make_dir(name, 0o700)), libc::ELOOP);
        assert_eq!(number(dir.remove_file(name)), libc::ELOOP);
        assert_eq!(number(dir.set_meta(name, Some(0o600), None, false)), libc::ELOOP);
    }
    assert_eq!(number(dir.open_dir(b"in")), libc::ELOOP);
    assert_eq!(number(dir.open_file(b"passwd", false)), libc::ELOOP);
    assert_eq!(number(dir.create_file(b"passwd", false, true)), libc::ELOOP);
    assert_eq!(number(dir.set_meta(b"passwd", Some(0o666), None, false)), libc::ELOOP);
    assert_eq!(dir.stat(b"passwd").expect("the link itself").kind, Kind::Link);
    assert_eq!(number(dir.open_file(b"nul\0byte", false)), libc::EINVAL);
}

#[test]
fn what_is_no_regular_file_is_not_opened_and_does_not_hang() {
    let (folder, dir) = Folder::new();
    let path = std::ffi::CString::new(folder.at("pipe").into_os_string().into_encoded_bytes()).expect("path");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("pipe");
    std::fs::create_dir(folder.at("folder")).expect("folder");
    assert_eq!(number(dir.open_file(b"pipe", false)), libc::EINVAL);
    assert_eq!(number(dir.create_file(b"pipe", false, false)), libc::EINVAL);
    assert_eq!(number(dir.open_file(b"folder", false)), libc::EISDIR);
    assert_eq!(dir.stat(b"pipe").expect("stat").kind, Kind::Fifo);
    assert_eq!(number(dir.open_file(b"none", false)), libc::ENOENT);
}

#[test]
fn a_file_is_made_written_flushed_and_renamed() {
    let (folder, dir) = Folder::new();
    dir.make_dir(b"a", 0o755).expect("make");
    dir.make_dir(b"a/b", 0o755).expect("make");
    let file = dir.create_file(b"a/b/new.part", true, false).expect("create");
    assert_eq!(fs::stat_file(&file).expect("stat").mode, 0o600);
    assert_eq!(number(dir.create_file(b"a/b/new.part", true, false)), libc::EEXIST);
    fs::preallocate(&file, 1 << 20).expect("room");
    assert_eq!(fs::stat_file(&file).expect("stat").bytes, 1 << 20);
    fs::write_at_full(&file, b"contents", 0).expect("write");
    fs::truncate(&file, 8).expect("cut");
    fs::start_write_out(&file, 0, 0).expect("start");
    fs::sync_data(&file).expect("flush");
    fs::drop_cache(&file, 0, 0).expect("drop");
    fs::set_file_meta(&file, Some(0o640), Some((1_000_000_000, 123_456_789))).expect("meta");
    std::fs::write(folder.at("a/b/final"), b"old").expect("old");
    dir.rename(b"a/b/new.part", b"a/b/final").expect("rename");
    dir.sync(b"a/b").expect("sync");
    dir.sync(b"").expect("sync");
    let facts = std::fs::metadata(folder.at("a/b/final")).expect("there");
    assert_eq!((facts.len(), facts.mode() & 0o7777), (8, 0o640));
    assert_eq!((facts.mtime(), facts.mtime_nsec()), (1_000_000_000, 123_456_789));
    assert!(!folder.at("a/b/new.part").exists());
    let mut bytes = [0; 16];
    let (again, stat) = dir.open_file_stat(b"a/b/final").expect("open");
    assert_eq!((stat.kind, stat.bytes, stat.ino), (Kind::File, 8, facts.ino()));
    assert_eq!(fs::read_at_full(&again, &mut bytes, 0).expect("read"), 8);
    let emptied = dir.create_file(b"a/b/final", false, true).expect("open");
    assert_eq!(fs::stat_file(&emptied).expect("stat").bytes, 0);
    dir.remove_file(b"a/b/final").expect("remove");
    assert_eq!(number(dir.remove_dir(b"a")), libc::ENOTEMPTY);
    dir.remove_dir(b"a/b").expect("remove");
}

#[test]
fn links_folders_and_times_are_kept_as_given() {
    let (folder, dir) = Folder::new();
    let text = [b'x'; 700];
    dir.make_link(&text, b"long").expect("link");
    assert_eq!(dir.read_link(b"long").expect("text"), text);
    dir.set_meta(b"long", Some(0o777), Some((-5, 7)), true).expect("a link's time");
    let stat = dir.stat(b"long").expect("stat");
    assert_eq!((stat.kind, stat.mtime_s, stat.mtime_ns), (Kind::Link, -5, 7));
    dir.make_dir(b"folder", 0o700).expect("folder");
    dir.set_meta(b"folder", Some(0o2751), Some((77, 0)), false).expect("meta");
    let stat = dir.stat(b"folder").expect("stat");
    assert_eq!((stat.kind, stat.mode, stat.mtime_s), (Kind::Folder, 0o2751, 77));
    std::fs::set_permissions(folder.at("folder"), std::fs::Permissions::from_mode(0o700)).expect("back");
    assert_eq!(number(dir.read_link(b"folder")), libc::EINVAL);
    assert_eq!(dir.stat(b"").expect("itself").kind, Kind::Folder);
}

#[test]
fn lists_every_name_once_and_in_bytes() {
    let (folder, dir) = Folder::new();
    for number in 0..3_000 {
        std::fs::write(folder.at(&format!("file-{number}")), b"").expect("file");
    }
    let odd = b"not \xff utf-8\n";
    dir.create_file(odd, true, false).expect("any bytes");
    dir.make_dir(b"folder", 0o700).expect("folder");
    dir.make_link(b"nowhere", b"link").expect("link");
    let mut names: Vec<_> = dir.list().expect("list").map(|entry| entry.expect("entry")).collect();
    assert_eq!(names.len(), 3_003);
    names.sort_by(|a, b| a.name.cmp(&b.name));
    names.dedup_by(|a, b| a.name == b.name);
    assert_eq!(names.len(), 3_003);
    let kind = |name: &[u8]| names.iter().find(|entry| entry.name == name).expect("listed").kind;
    for (name, wanted) in [(&odd[..], Kind::File), (b"folder", Kind::Folder), (b"link", Kind::Link)] {
        // `None` where the file system does not say without being asked.
        assert!(kind(name).is_none_or(|kind| kind == wanted));
    }
    assert_eq!(dir.list().expect("again").count(), 3_003);
}

#[test]
fn a_kept_folder_that_was_replaced_is_found_anew() {
    let (folder, dir) = Folder::new();
    dir.make_dir(b"a", 0o700).expect("make");
    dir.create_file(b"a/one", true, false).expect("create");
    // By us, and by somebody else.
    dir.remove_file(b"a/one").expect("remove");
    dir.remove_dir(b"a").expect("remove");
    dir.make_dir(b"a", 0o700).expect("make");
    dir.create_file(b"a/two", true, false).expect("create");
    std::fs::remove_dir_all(folder.at("a")).expect("remove");
    std::fs::create_dir(folder.at("a")).expect("make");
    dir.create_file(b"a/three", true, false).expect("create");
    assert!(folder.at("a/three").exists());
    // Swapped for a link: what is kept is the folder it was, and a new look refuses the link.
    std::fs::rename(folder.at("a"), folder.at("moved")).expect("rename");
    symlink("/tmp", folder.at("a")).expect("link");
    dir.create_file(b"a/four", true, false).expect("in the folder that it was");
    assert!(folder.at("moved/four").exists() && !Path::new("/tmp/four").exists());
    let fresh = Dir::open(dir.path()).expect("open");
    assert_eq!(number(fresh.create_file(b"a/five", true, false)), libc::ELOOP);
}

#[test]
fn many_folders_are_more_than_are_kept() {
    let (folder, dir) = Folder::new();
    for number in 0..40 {
        dir.make_dir(format!("f{number}").as_bytes(), 0o700).expect("make");
    }
    for round in 0..3 {
        for number in 0..40 {
            dir.create_file(format!("f{number}/{round}").as_bytes(), true, false).expect("create");
        }
    }
    dir.rename(b"f0/0", b"f39/moved").expect("rename between folders");
    dir.rename(b"f1", b"g1").expect("rename a kept folder");
    assert_eq!(number(dir.create_file(b"f1/x", true, false)), libc::ENOENT);
    dir.create_file(b"g1/x", true, false).expect("create");
    assert_eq!(folder.at("f39").read_dir().expect("list").count(), 4);
}

#[test]
fn holes_are_found() {
    let (_folder, dir) = Folder::new();
    let file = dir.create_file(b"sparse", true, false).expect("create");
    assert_eq!(fs::next_data(&file, 0).expect("empty"), None);
    fs::truncate(&file, 10 << 20).expect("hole");
    fs::write_at_full(&file, &[1; 4096], 4 << 20).expect("data");
    let (start, end) = fs::next_data(&file, 0).expect("ask").expect("data");
    // File systems round to their own units, or see no holes at all.
    assert!(start <= 4 << 20 && end >= (4 << 20) + 4096);
    if start > 0 {
        assert_eq!(fs::next_data(&file, 8 << 20).expect("ask"), None);
        assert!(fs::stat_file(&file).expect("stat").blocks * 512 < 10 << 20);
    }
}

#[test]
fn direct_reading_is_switched_on_and_off() {
    let (folder, dir) = Folder::new();
    std::fs::write(folder.at("file"), vec![7; 8192]).expect("file");
    let mut pool = sys::mem::Pool::new(1, 8192).expect("pool");
    let mut buf = pool.take().expect("buf");
    let file = match dir.open_file(b"file", true) {
        Ok(file) => file,
        // Not all file systems can (ramfs, some overlays).
        Err(error) => return assert_eq!(error.raw_os_error(), Some(libc::EINVAL)),
    };
    assert_eq!(fs::read_at_full(&file, buf.payload_mut(), 0).expect("aligned"), 8192);
    fs::set_direct(&file, false).expect("off");
    assert_eq!(fs::read_at_full(&file, &mut buf.payload_mut()[..100], 1).expect("not aligned"), 100);
    fs::set_direct(&file, true).expect("on");
    assert_eq!(buf.payload()[8191], 7);
}

#[test]
fn space_is_told_with_the_name_of_the_file_system() {
    let (_folder, dir) = Folder::new();
    let space = dir.space().expect("space");
    assert!(space.free_bytes > 0 && space.free_bytes <= space.total_bytes && !space.fs_type.is_empty());
    let memory = Dir::open(b"/dev/shm").and_then(|dir| dir.space());
    assert!(memory.is_err() || memory.expect("space").fs_type == "tmpfs");
}
