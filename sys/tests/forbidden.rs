//! In a container whose filter forbids io_uring and openat2 everything works all the same, and the reason is told.
//!
//! In: a seccomp filter like those of container engines, in one thread. Out: plain calls, and names that stay beneath.
//! One binary alone, because a refused `openat2` is remembered for the whole process.

use std::io;
use std::path::Path;
use std::sync::Arc;

use sys::forbid::forbid;
use sys::mem::{Mem, Pool};
use sys::ring::{Driver, Kind, Op};

#[test]
fn a_container_without_io_uring_gets_plain_calls_and_the_reason() {
    let thread = std::thread::spawn(|| {
        forbid(&[libc::SYS_io_uring_setup], libc::EPERM);
        let mut pool = Pool::new(2, 4096).expect("pool");
        let (mut driver, reason) = Driver::choose(&pool, None).expect("plain calls");
        assert_eq!(driver.kind(), Kind::Plain);
        assert!(reason.contains("forbidden"), "{reason}");
        assert!(Driver::choose(&pool, Some(Kind::Uring)).is_err(), "what was asked for is not replaced");
        assert!(sys::ring::io_uring().expect_err("forbidden").contains("forbidden"));
        let file = Arc::new(std::fs::File::open("/proc/self/exe").expect("this binary"));
        let buf = pool.take().expect("buf");
        assert!(!driver.fix(&buf).expect("nothing to do"));
        let mem = Mem::Buf(buf);
        driver.submit(5, Op::Read { file, offset: 0, mem, at: 0, len: 4, uncached: false });
        let mut done = Vec::new();
        driver.wait(None, &mut done).expect("wait");
        assert_eq!(&done[0].mem.bytes()[..4], b"\x7fELF");
    });
    thread.join().expect("thread");
}

#[test]
fn a_container_without_openat2_keeps_names_beneath_their_root() {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sys-forbidden-{}", std::process::id()));
    std::fs::create_dir_all(base.join("a/b")).expect("folders");
    std::os::unix::fs::symlink("/etc", base.join("a/out")).expect("link");
    for errno in [libc::EPERM, libc::ENOSYS] {
        let base = base.clone();
        let thread = std::thread::spawn(move || {
            forbid(&[libc::SYS_openat2], errno);
            let dir = sys::fs::Dir::open(base.as_os_str().as_encoded_bytes()).expect("open");
            dir.create_file(b"a/b/file", false, false).expect("create");
            assert_eq!(dir.open_dir(b"a/b").expect("open").list().expect("list").count(), 1);
            dir.sync(b"a/b").expect("sync");
            let number = |error: io::Error| error.raw_os_error();
            assert_eq!(number(dir.open_file(b"a/out/passwd", false).expect_err("a link")), Some(libc::ELOOP));
            assert_eq!(number(dir.open_dir(b"a/out").expect_err("a link")), Some(libc::ELOOP));
            assert_eq!(number(dir.open_dir(b"a/none").expect_err("nothing")), Some(libc::ENOENT));
            assert_eq!(number(dir.open_dir(b"a/..").expect_err("out")), Some(libc::EXDEV));
        });
        thread.join().expect("thread");
    }
    std::fs::remove_dir_all(base).expect("clean");
}

#[test]
fn a_container_without_listxattrat_lists_the_same_attributes() {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sys-forbidden-list-{}", std::process::id()));
    std::fs::create_dir_all(base.join("a")).expect("folders");
    std::fs::write(base.join("a/file"), b"x").expect("a file");
    std::os::unix::fs::symlink("file", base.join("a/link")).expect("a link");
    let names = |base: &Path| {
        let dir = sys::fs::Dir::open(base.as_os_str().as_encoded_bytes()).expect("a folder");
        [&b"a/file"[..], b"a/link", b"a/none", b"a", b""].map(|name| {
            let mut names = Vec::new();
            dir.attribute_names(name, &mut names).map(|()| names).map_err(|error| error.kind())
        })
    };
    let dir = sys::fs::Dir::open(base.as_os_str().as_encoded_bytes()).expect("a folder");
    let pin = dir.pin(b"a/file", sys::fs::Kind::File).expect("it is there");
    pin.set_attribute(b"user.note", b"1").expect("a file system with attributes");
    let before = names(&base);
    assert_eq!(before[0].as_deref(), Ok(&b"user.note\0"[..]), "of the file");
    assert_eq!(before[1].as_deref(), Ok(&b""[..]), "of the link itself");
    assert_eq!(before[2], Err(io::ErrorKind::NotFound));
    let there = base.clone();
    let after = std::thread::spawn(move || {
        forbid(&[465], libc::EPERM); // listxattrat
        names(&there)
    });
    assert_eq!(after.join().expect("thread"), before);
    std::fs::remove_dir_all(&base).expect("it is there");
}

#[test]
fn every_flush_asks_the_kernel_and_tells_what_it_says() {
    use sys::forbid::{FDATASYNC, FSYNC, SYNCFS};
    let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sys-forbidden-flush-{}", std::process::id()));
    std::fs::create_dir_all(base.join("a")).expect("folders");
    std::fs::write(base.join("a/file"), b"x").expect("a file");
    let refused = |call| {
        let base = base.clone();
        let thread = std::thread::spawn(move || {
            let dir = sys::fs::Dir::open(base.as_os_str().as_encoded_bytes()).expect("a folder");
            let file = dir.open_file_to_write(b"a/file").expect("a file");
            forbid(&[call], libc::EDQUOT);
            let results = [sys::fs::sync_data(&file), dir.sync(b"a"), dir.sync(b""), dir.sync_fs()];
            results.map(|it| it.err().and_then(|error| error.raw_os_error()) == Some(libc::EDQUOT))
        });
        thread.join().expect("thread")
    };
    assert_eq!(refused(FDATASYNC), [true, false, false, false], "a file's bytes");
    assert_eq!(refused(FSYNC), [false, true, true, false], "names of a folder, below and here");
    assert_eq!(refused(SYNCFS), [false, false, false, true], "a file system");
    std::fs::remove_dir_all(&base).expect("it is there");
}
