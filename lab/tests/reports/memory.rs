//! Memory of each end stays below 256 MiB whatever the size and the count.
//!
//! In: jobs of many bytes, many files, many streams. Out: checks of both ends' own figures and of the kernel's. BIG=1 (`make torture-memory`):
//! 200 GiB, a million files.
//! Absent on purpose: what the memory is for (`--explain`).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::world::{Daemon, MIB, Run, Skip, World, peak_memory_bytes};

/// What each end may have at once; SPECIFICATION.md, promise 26.
const MOST: u64 = 256 * MIB;
/// Below this a figure of the kernel's is of no process that did anything.
const LEAST: u64 = 1_000_000;
/// Beyond the first TiB holes are read and travel as bytes (docs/design/013-holes.md).
const REACH: u64 = 1 << 40;
const LONG: Duration = Duration::from_secs(3600);

fn is_big() -> bool {
    std::env::var_os("BIG").is_some()
}

/// Both ends of a job, by their own report and by the kernel's word on both processes.
fn bounded(world: &mut World, words: &str, run: &Run, daemon: &Daemon) {
    let own = ["local", "remote"].map(|side| run.number(&format!("peak_memory_bytes_{side}")) as u64);
    let kernel = [run.peak_bytes, peak_memory_bytes(daemon.running.id())];
    let mib = |bytes: [u64; 2]| format!("{} and {} MiB", bytes[0] / MIB, bytes[1] / MIB);
    let held =
        own.iter().all(|bytes| (1..=MOST).contains(bytes)) && kernel.iter().all(|it| (LEAST..=MOST).contains(it));
    world.holds(&format!("{words}: peak {} (kernel: {}), at most 256", mib(own), mib(kernel)), held, &run.why());
}

pub(crate) fn zeros_that_travel_need_no_more_memory(world: &mut World) -> Result<(), Skip> {
    let zeros: u64 = if is_big() { 200 << 30 } else { 3 << 30 };
    let words = format!("{} GiB of a sparse file", zeros >> 30);
    let space = rustix::fs::statvfs(world.at("dst")).expect("the folder is there");
    if space.f_bavail * space.f_frsize < zeros + (1 << 30) && !is_big() {
        return Err(Skip(format!("{words}: not enough room below {}", world.word("dst"))));
    }
    let file = File::create(world.at("src/sparse.bin")).expect("a file");
    file.set_len(REACH + zeros).map_err(|error| Skip(format!("no file of a TiB can be here: {error}")))?;
    file.write_all_at(b"in the middle", REACH + zeros / 2).expect("room");
    let daemon = world.serve("dst/far", &[]);
    let source = world.word("src/sparse.bin");
    let run = world.start_cp(&["--durability", "written", &source, &daemon.url]).end_within(LONG);
    world.ends(&run, 0, &format!("{words}: exit code 0"));
    bounded(world, &words, &run, &daemon);
    world.holds(&format!("{words}: they travelled"), run.number("bytes") >= zeros as f64, &run.why());
    world.same_from(REACH, "src/sparse.bin", "dst/far/sparse.bin", &format!("{words}: equal"));
    Ok(())
}

/// All the streams there may be, and datagrams: what is on its way is memory, too.
pub(crate) fn streams_and_datagrams_stay_within_the_grant(world: &mut World) -> Result<(), Skip> {
    world.random_file("src/wide.bin", 700 * MIB);
    let source = world.word("src/wide.bin");
    let cases: [&[&str]; 3] =
        [&["--streams", "16", "--transport", "tcp"], &["--transport", "udp"], &["--chunk", "16MiB", "--streams", "8"]];
    for options in cases {
        let daemon = world.serve("dst/far", &[]);
        let words = options.join(" ");
        let run = world.cp(&[&["--durability", "written", "--no-keep"], options, &[&source, &daemon.url]].concat());
        world.ends(&run, 0, &format!("{words}: exit code 0"));
        bounded(world, &words, &run, &daemon);
        daemon.running.stop();
    }
    Ok(())
}

pub(crate) fn many_files_need_no_more_memory(world: &mut World) -> Result<(), Skip> {
    let count = if is_big() { 1_000_000 } else { 20_000 };
    world.many_files("src/count", count);
    let daemon = world.serve("dst/far", &[]);
    let source = world.word("src/count");
    let run = world.start_cp(&["--durability", "written", &source, &daemon.url]).end_within(LONG);
    world.ends(&run, 0, &format!("{count} files: exit code 0"));
    bounded(world, &format!("{count} files"), &run, &daemon);
    let arrived = std::fs::read_dir(world.at("dst/far/count")).into_iter().flatten().flatten();
    let files: usize = arrived.map(|folder| std::fs::read_dir(folder.path()).map_or(0, Iterator::count)).sum();
    world.is(files as u64, count, &format!("{count} files: all are there"));
    if !is_big() {
        world.same_tree("src/count", "dst/far/count", &format!("{count} files: equal"));
    }
    Ok(())
}
