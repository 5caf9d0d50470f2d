//! I/O modes by the real binary: each one's copy is the same bytes, and what the kernel refuses or a job displaced is told.
//!
//! In: local jobs of one file, one of them with next to no memory that may be locked. Out: checks of bytes, exit codes and what `--explain` says.
//! Absent on purpose: which mode is chosen (proto/src/storage/selection.rs), what each costs (`longhaul bench disk`).

use std::process::Command;

use lab::hosts::Side;

use super::{needs_disk, says};
use crate::world::{Skip, World};

/// 24 MiB and an odd end: more than I/O modes are asked for, with a tail that fills no sector.
const LARGE: u64 = 25_165_829;
const MODES: [&str; 6] = ["buffered", "early", "dontcache", "direct", "mmap", "read=mmap,write=dontcache"];
/// Bytes in the page cache as the record has them: at least those of the whole file.
const IN_THE_CACHE: &str = r#""page cache","value":"24"#;

pub(crate) fn each_modes_copy_is_the_same_bytes(world: &mut World) -> Result<(), Skip> {
    world.random_file("src/large", LARGE);
    let (source, there) = (world.word("src/large"), world.word("dst/large"));
    for mode in MODES {
        let run = world.cp(&["--io-mode", mode, &source, &there]);
        world.ends(&run, 0, &format!("I/O mode {mode}: exit code 0"));
        world.same("src/large", "dst/large", &format!("I/O mode {mode}: the same bytes"));
        world.remove("dst/large");
    }
    let run = world.here(&["cp", "--io-mode", "fast", &source, &there]);
    world.ends(&run, 2, "I/O mode: a name that is none is refused");
    let has_names = run.err.contains("buffered, early, dontcache, direct and mmap");
    world.holds("I/O mode: with the names that there are", has_names, &run.why());
    Ok(())
}

/// In which order a tree's files are read, and why.
pub(crate) fn the_order_of_files_is_told(world: &mut World) -> Result<(), Skip> {
    world.empty("src/some");
    ["a", "b", "c"].iter().for_each(|name| std::fs::write(world.at("src/some").join(name), "").expect("room"));
    let (source, there) = (world.word("src/some"), world.word("dst/some"));
    let run = world.cp(&["--explain", &source, &there]);
    world.ends(&run, 0, "order of files: exit code 0");
    world.holds("order of files: told with the reason", says(&run, &["order of files"]), &run.why());
    Ok(())
}

/// Bufs that the kernel will not lock: without, and it says so.
pub(crate) fn bufs_that_may_not_be_locked_are_told(world: &mut World) -> Result<(), Skip> {
    needs_disk(world, "registered buffers", LARGE * 2)?;
    for program in ["setpriv", "prlimit"] {
        Command::new(program).arg("--version").output().map_err(|_| Skip(format!("no {program} here")))?;
    }
    world.random_file("src/large", LARGE);
    let mut command = Command::new("prlimit");
    command.args(["--memlock=2000000:2000000", "setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"]);
    command.arg(world.binary()).args(["cp", "--io-mode", "direct", "--explain"]);
    command.arg(world.at("src/large")).arg(world.at("dst/unlocked"));
    let run = world.spawn(Side::A, command).end();
    world.ends(&run, 0, "registered buffers refused: exit code 0");
    world.same("src/large", "dst/unlocked", "registered buffers refused: the same bytes");
    if !says(&run, &["driver here", "io_uring"]) {
        return Err(Skip("registered buffers refused: no io_uring here".into()));
    }
    let held = says(&run, &["registered buffers", "ulimit -l"]);
    world.holds("registered buffers refused: told with the reason", held, &run.why());
    Ok(())
}

/// What a job displaced of others' page cache is told: of an I/O mode that was named and fills it, and nothing of one that does not.
pub(crate) fn what_a_job_displaced_is_told(world: &mut World) -> Result<(), Skip> {
    needs_disk(world, "displaced page cache", LARGE * 3)?;
    world.random_file("src/large", LARGE);
    let source = world.word("src/large");
    let run = world.cp(&["--io-mode", "buffered", &source, &world.word("dst/filled")]);
    let file = std::fs::File::open(&source).expect("it was made");
    if sys::fs::cached(&file, 0, 0).is_err_and(|error| error.kind() == std::io::ErrorKind::Unsupported) {
        return Err(Skip("displaced page cache: no cachestat here (Linux 6.5)".into()));
    }
    let held = run.out.contains(IN_THE_CACHE);
    world.holds("displaced page cache: told, in bytes (cachestat)", held, &run.why());
    let run = world.cp(&["--io-mode", "direct", &source, &world.word("dst/unfilled")]);
    let held = run.status == 0 && !run.out.contains(IN_THE_CACHE);
    world.holds("displaced page cache: past the cache there is none of the part", held, &run.why());
    Ok(())
}
