//! What a report may claim: kept is not verified, and a receipt that is missing is said, by the exit code too.
//!
//! In: copies of which a byte changed behind our back, and places where no receipt can be written. Out: checks of what the record, the line for
//! people and the exit code say.
//! Absent on purpose: how the line is made (cli/src/report/tests.rs).

use std::fs::{File, FileTimes};
use std::os::unix::fs::FileExt;
use std::process::Command;

use lab::hosts::Side;
use lab::pair::address;

use crate::world::{Daemon, PORT, Run, Running, Skip, World};

/// A receipt that cannot be kept has an exit code of its own.
const NO_RECEIPT: i32 = 41;
/// Beyond what a disk of 64 KiB has for a line of each.
const MANY: u64 = 3_000;

/// Numbers of the report; nothing where one is missing.
fn numbers(run: &Run, names: &[&str]) -> Vec<u64> {
    names.iter().filter_map(|name| run.field(name).as_u64()).collect()
}

/// The first line of a run for people.
fn said(world: &mut World, words: &[&str]) -> String {
    world.start(Side::A, words).end().out.lines().next().unwrap_or_default().to_owned()
}

/// Four bytes flip; size and times stay.
fn harm(path: &std::path::Path) {
    let file = File::options().read(true).write(true).open(path).expect("it was copied");
    let facts = file.metadata().expect("it is open");
    let times = FileTimes::new().set_accessed(facts.accessed().expect("a time"));
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, 1000).expect("it is longer");
    file.write_all_at(&bytes.map(|byte| byte ^ 255), 1000).expect("room");
    file.set_times(times.set_modified(facts.modified().expect("a time"))).expect("it is ours");
}

/// Copied, harmed behind our back, and copied again.
fn kept(world: &mut World, words: &str, to: &str, arrives: &str) {
    let tree = world.word("src/tree");
    let run = world.cp(&[&tree, to]);
    world.ends(&run, 0, &format!("{words}: copied"));
    world.is(numbers(&run, &["files", "kept_files"]), vec![3, 0], &format!("{words}: all sent"));
    harm(&world.at(arrives).join("tree/a"));
    let run = world.cp(&[&tree, to]);
    world.ends(&run, 0, &format!("{words}: again"));
    let got = numbers(&run, &["files", "kept_files", "equal_files"]);
    world.is(got, vec![0, 3, 0], &format!("{words}: again: kept, not compared, and said so"));
    let line = said(world, &["cp", &tree, to]);
    let held = line.contains("3 files kept by size and time, not read") && !line.contains("verified");
    world.holds(&format!("{words}: a file that nobody read is not called verified ({line})"), held, "");
}

pub(crate) fn what_nobody_read_is_not_called_verified(world: &mut World) -> Result<(), Skip> {
    for (name, bytes) in [("a", 300_000), ("b", 5_000), ("big", 20 << 20)] {
        world.random_file(&format!("src/tree/{name}"), bytes);
    }
    let daemon = world.serve("dst/far", &[]);
    kept(world, "to a daemon", &format!("{}t/", daemon.url), "dst/far/t");
    let here = format!("{}/", world.word("dst/here"));
    kept(world, "on one host", &here, "dst/here");
    let (from, to) = (format!("{}/", world.word("src/tree")), format!("{here}tree/"));
    let sync = ["sync", "--checksum", &from, &to];
    let run = world.start(Side::A, &[&sync[..], &["--json"]].concat()).end();
    world.ends(&run, 0, "compared: ends well");
    let got = numbers(&run, &["files", "kept_files", "equal_files"]);
    world.is(got, vec![1, 2, 2], "compared: what differs was sent, the others were compared");
    let line = said(world, &sync);
    let held = line.contains("3 files compared and found equal");
    world.holds(&format!("compared: said ({line})"), held, "");
    world.same_tree("src/tree", "dst/here/tree", "compared: equal now");
    Ok(())
}

/// A place named by `--receipt` is tried before anything is moved.
pub(crate) fn a_place_for_a_receipt_is_tried_first(world: &mut World) -> Result<(), Skip> {
    world.random_file("src/one", 100_000);
    world.empty("folder");
    let daemon = world.serve("dst/far", &[]);
    let there = |name: &str| format!("{}{name}", daemon.url);
    let [one, place, folder, other] = ["src/one", "no/such", "folder", "x"].map(|name| world.word(name));
    let run = world.cp(&["--receipt", &place, &one, &there("r1")]);
    world.ends(&run, 0, "--receipt: its folder is made");
    let held = std::fs::metadata(&place).is_ok_and(|it| it.len() > 0);
    world.holds("--receipt: it is there", held, &run.why());
    let run = world.cp(&["--receipt", &folder, &one, &there("r2")]);
    world.ends(&run, NO_RECEIPT, "--receipt names a folder: refused");
    let held = !world.at("dst/far/r2").exists();
    world.holds("--receipt names a folder: before anything was moved", held, &run.why());
    let run = world.cp(&["--receipt", &other, &there("r1"), &there("r3")]);
    world.ends(&run, 2, "--receipt of a job between two other hosts: refused, not forgotten");
    Ok(())
}

/// A file of zeros at host a, which has what is mounted there; as much of it as there is room for.
fn fill(world: &World, file: &str, blocks: &[&str]) {
    let of = format!("of={file}");
    // It is an error where the disk is full, which is what is wanted.
    let _ = world.run(Side::A, "dd", &[&["if=/dev/zero", &of, "bs=4k", "status=none"], blocks].concat());
}

pub(crate) fn a_disk_that_is_full_of_receipts_is_said(world: &mut World) -> Result<(), Skip> {
    world.random_file("src/one", 100_000);
    world.many_files("src/many", MANY);
    world.empty("folder");
    let [one, many, folder] = ["src/one", "src/many", "folder"].map(|name| world.word(name));
    let (receipt, file) = (format!("{folder}/r"), format!("{folder}/fill"));
    let daemon = world.serve("dst/far", &[]);
    let mounted = world.run(Side::A, "mount", &["-t", "tmpfs", "-o", "size=64k", "none", &folder]);
    mounted.ok_or_else(|| Skip("a full disk for receipts: no tmpfs can be mounted here".into()))?;
    // As most homes are: with the receipt of an earlier job.
    world.cp(&[&one, &world.word("dst/one")]);
    fill(world, &file, &[]);
    let run = world.cp(&["--receipt", &receipt, &one, &format!("{}r4", daemon.url)]);
    world.ends(&run, NO_RECEIPT, "--receipt on a full disk: refused");
    let held = !world.at("dst/far/r4").exists();
    world.holds("--receipt on a full disk: before anything was moved", held, &run.why());
    // Room for a beginning, not for the lines of 3,000 files.
    world.run(Side::A, "truncate", &["-s", "8k", &file]).expect("the file is there");
    fill(world, &file, &["count=11"]);
    for (words, to) in [("there", format!("{}m/", daemon.url)), ("here", format!("{}/", world.word("dst/m")))] {
        let run = world.cp(&["--receipt", &receipt, &many, &to]);
        let words = format!("a disk that fills while the receipt is written ({words})");
        world.ends(&run, NO_RECEIPT, &format!("{words}: its own exit code"));
        let has_none = run.lines.last().is_some_and(|line| line.get("receipt").is_some_and(|it| it.is_null()));
        world.is((has_none, numbers(&run, &["files"])), (true, vec![MANY]), &format!("{words}: the data is there"));
        let why = run.text("receipt_missing");
        world.holds(&format!("{words}: and why is said ({why})"), why.contains("No space left"), &run.why());
    }
    world.same_tree("src/many", "dst/m/many", "a disk that fills: all of the data");
    Ok(())
}

/// The binary on a host, with a LONGHAUL_HOME of its own.
fn start_with_home(world: &mut World, side: Side, home: &str, words: &[&str]) -> Running {
    let mut command = world.pair().command(side, "env").expect("the host is there");
    command.arg(format!("LONGHAUL_HOME={home}")).arg(world.binary()).args(words);
    world.spawn(side, command)
}

/// That folder cannot be written to from that host any more.
fn make_read_only(world: &World, side: Side, folder: &str) -> Option<()> {
    world.run(side, "mount", &["--bind", folder, folder])?;
    world.run(side, "mount", &["-o", "remount,ro,bind", folder]).map(drop)
}

/// LONGHAUL_HOME is read-only, here and there.
pub(crate) fn a_home_that_is_read_only_is_said(world: &mut World) -> Result<(), Skip> {
    world.random_file("src/one", 100_000);
    world.empty("home-ro");
    let [one, here, far] = ["src/one", "home-ro", "home-far"].map(|name| world.word(name));
    let daemon = world.serve("dst/far", &[]);
    start_with_home(world, Side::A, &here, &["key", "show"]).end();
    let copied = Command::new("cp").args(["-a", &here, &far]).status();
    assert!(copied.is_ok_and(|it| it.success()), "cp");
    let why = "a read-only LONGHAUL_HOME: nothing can be mounted here";
    make_read_only(world, Side::A, &here).ok_or_else(|| Skip(why.into()))?;
    let run = start_with_home(world, Side::A, &here, &["cp", "--json", &one, &format!("{}h1", daemon.url)]).end();
    world.ends(&run, NO_RECEIPT, "a read-only LONGHAUL_HOME here: the exit code says that the receipt is missing");
    world.same("src/one", "dst/far/h1", "a read-only LONGHAUL_HOME here: the data is there");
    let why = run.text("receipt_missing");
    let words = format!("a read-only LONGHAUL_HOME here: said ({why})");
    world.holds(&words, why.contains("Read-only"), &run.why());
    drop(daemon);
    make_read_only(world, Side::B, &far).ok_or_else(|| Skip(why.into()))?;
    let (root, listen) = (world.word("dst/far"), format!("{}:{PORT}", address(Side::B)));
    let words = ["serve", "--root", &root, "--listen", &listen, "--ticket"];
    let daemon = Daemon::of(start_with_home(world, Side::B, &far, &words));
    let run = world.cp(&[&one, &format!("{}h2", daemon.url)]);
    world.ends(&run, NO_RECEIPT, "a read-only LONGHAUL_HOME there: the exit code here says it");
    world.same("src/one", "dst/far/h2", "a read-only LONGHAUL_HOME there: the data is there");
    let why = run.text("receipt_missing");
    let words = format!("a read-only LONGHAUL_HOME there: said ({why})");
    world.holds(&words, why.contains("other end"), &run.why());
    let log = daemon.running.stop();
    let held = log.err.contains("no receipt can be kept");
    world.holds("a read-only LONGHAUL_HOME there: the daemon's log says why", held, &log.err);
    Ok(())
}
