//! What every storage engine must do, on the real file system of the build folder and on one that refuses it.
//!
//! For: the table of engines behind the one list of promises; refusals at the first op and in mid-job.
//! In and out: the promises of `conformance.rs`, once per engine and driver.
//! Invariants: the bytes are the same by every engine, whatever the file system can.
//! Absent on purpose: crash order, ENOSPC, EDQUOT, EIO and short writes (tests/sim has them for every engine at once: after a power cut
//! each sector that was not flushed is the old or the new one, which is all that any engine may rely on).

use std::fs::File;
use std::path::Path;

use engine::platform::Platform;
use engine::tree::handle::{Handle, Refused};
use proto::storage::{IoMode, IoModes};
use sys::ring::Kind;

use super::pair::{Hook, Scratch, Setup, Way, move_tree, noise};
use super::{CHUNK, World, discards, parts, read_all, real, same, sources, write_all};

#[test]
fn every_io_mode_keeps_every_promise_about_files() {
    for driver in [Kind::Uring, Kind::Plain] {
        for engine in IoMode::ALL {
            let make = real(driver, Way::Pair, IoModes::both(engine));
            sources(&make("engine-sources"));
            parts(&make("engine-parts"));
            discards(&make("engine-discards"));
        }
    }
}

/// A file on a file system in memory, which knows no RWF_DONTCACHE; where there is none, the build folder's.
fn in_memory(name: &str) -> (File, std::path::PathBuf) {
    let folder = Some(Path::new("/dev/shm")).filter(|it| it.is_dir()).unwrap_or(Path::new(env!("CARGO_TARGET_TMPDIR")));
    let path = folder.join(format!("longhaul-{name}-{}", std::process::id()));
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).expect("room");
    (file, path)
}

#[test]
fn an_io_mode_that_is_refused_gives_way_and_the_bytes_are_the_same() {
    for driver in [Kind::Uring, Kind::Plain] {
        for engine in IoMode::ALL {
            let (file, path) = in_memory(&format!("refused-{driver:?}-{engine}"));
            let content = noise(CHUNK, 7);
            file.set_len(CHUNK as u64).expect("room");
            let file = Handle::by(file, engine, CHUNK as u64, true, &Refused::default());
            let mut platform = real(driver, Way::Pair, IoModes::default())("refused").platform();
            write_all(&mut platform, &file, 0, &content);
            assert!(read_all(&mut platform, &file, 0, CHUNK) == content, "{engine} by {driver:?}");
            assert_eq!(platform.pool().free(), 4, "every op gave its memory back");
            std::fs::remove_file(path).expect("ours");
        }
    }
}

#[test]
fn o_direct_gives_way_in_mid_file_when_an_op_is_refused() {
    for driver in [Kind::Uring, Kind::Plain] {
        let refused = Refused::default();
        let scratch = Scratch::new(&format!("midway-{driver:?}"));
        let path = scratch.from().join("a");
        let content = noise(CHUNK, 8);
        std::fs::write(&path, &content).expect("room");
        let file = Handle::by(File::open(&path).expect("just made"), IoMode::Direct, 0, false, &refused);
        let mut platform = real(driver, Way::Pair, IoModes::default())("midway").platform();
        assert!(read_all(&mut platform, &file, 0, 8192) == content[..8192]);
        let before = file.mode();
        // No file system reads from the middle of a sector past the cache: the op is refused, as some refuse later ones that are whole.
        assert!(read_all(&mut platform, &file, 8192 + 100, 4096) == content[8192 + 100..][..4096]);
        if before == IoMode::Direct {
            assert_eq!(file.mode(), IoMode::Buffered, "it gave way");
            assert!(refused.has(IoMode::Direct), "files opened later do not try it again");
        }
        assert!(read_all(&mut platform, &file, 0, CHUNK) == content, "and goes on");
    }
}

#[test]
fn whole_jobs_arrive_by_every_io_mode() {
    let hook: Hook = std::sync::Arc::new(|_, turn| turn());
    let scratch = Scratch::new("engines");
    std::fs::write(scratch.from().join("a"), noise(17 * CHUNK + 100, 1)).expect("room");
    std::fs::write(scratch.from().join("b"), noise(CHUNK + 1, 2)).expect("room");
    for engine in IoMode::ALL {
        let setup = Setup { io_modes: IoModes::both(engine), keep: false, ..Setup::new(Kind::Uring, Way::Pair) };
        let (sent, came) = move_tree(&scratch.from(), &scratch.to(), setup, &hook);
        assert_eq!((sent.tally.files_done, sent.tally.failed), (2, 0), "{engine} {:?}", sent.faults);
        assert_eq!(sent.lines, came.lines, "both hold the same receipt");
        same(&scratch.from(), &scratch.to());
        std::fs::remove_dir_all(scratch.to()).expect("ours");
        std::fs::create_dir(scratch.to()).expect("room");
    }
}
