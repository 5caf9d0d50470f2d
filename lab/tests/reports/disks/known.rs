//! What was measured of a disk is known to the next job: until its rate has fallen, and to both ends before a job begins.
//!
//! In: a disk of its own, throttled for one job; a job of more than a GB that is measured while it runs. Out: checks of what jobs say of their
//! I/O mode, and of what both ends offer.
//! Absent on purpose: how a disk is measured (engine/src/tree/io_mode/mod.rs).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lab::hosts::Side;
use serde_json::Value;

use super::{needs_disk, says};
use crate::world::{MIB, Run, Skip, World};

const GIB: u64 = 1 << 30;
/// 60 MB/s: less than half of what any disk that this runs on gave in the measurement.
const THROTTLED: &str = "60000000";
/// A GB at that rate, and then some.
const LONG: Duration = Duration::from_secs(120);
/// More bytes than a job has that measures nothing.
const RACE_PARTS: u64 = 17;

/// A control group of our own, without processes as long as nobody joins it.
struct Group(PathBuf);

impl Group {
    fn make() -> Result<Group, Skip> {
        let parents = ["/sys/fs/cgroup/blkio", "/sys/fs/cgroup"].map(Path::new);
        let parent = parents.into_iter().find(|path| path.is_dir()).ok_or_else(|| Skip("no control groups".into()))?;
        let folder = parent.join(format!("longhaul-raced-{}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|error| Skip(format!("measured again: no control group: {error}")))?;
        let group = Group(folder);
        let has_disks = ["blkio.throttle.read_bps_device", "io.max"].iter().any(|name| group.0.join(name).exists());
        if has_disks { Ok(group) } else { Err(Skip("measured again: no controller of disks".into())) }
    }

    /// From now on whoever is in the group reads this device so slowly.
    fn throttle(&self, device: &str) -> std::io::Result<()> {
        let first = self.0.join("blkio.throttle.read_bps_device");
        if first.exists() {
            return std::fs::write(first, format!("{device} {THROTTLED}"));
        }
        std::fs::write(self.0.join("io.max"), format!("{device} rbps={THROTTLED}"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// An ext4 of its own with a file of 1.1 GB that no cache has; the number of its device. It goes with its mount, and that with the host.
fn make_disk(world: &World) -> Result<String, Skip> {
    let [image, disk, file] = ["raced.img", "raced", "raced/file"].map(|name| world.word(name));
    let made = std::fs::File::create(&image).and_then(|file| file.set_len(1400 * MIB));
    made.map_err(|error| Skip(format!("measured again: {error}")))?;
    world.empty("raced");
    let lazy = ["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", &image];
    world.run(Side::A, "mkfs.ext4", &lazy).ok_or_else(|| Skip("measured again: no ext4 can be made".into()))?;
    let mounted = world.run(Side::A, "mount", &["-o", "loop", &image, &disk]);
    mounted.ok_or_else(|| Skip("measured again: no loop device can be mounted".into()))?;
    // Bytes that are no hole; what is in the page cache is not measured.
    let script = "head -c 1100000000 /dev/zero | tr '\\0' x >\"$0\" && sync \"$0\" && dd if=\"$0\" iflag=nocache count=0 status=none";
    world.run(Side::A, "sh", &["-c", script, &file]).ok_or_else(|| Skip("measured again: no room on it".into()))?;
    let seen = format!("/proc/{}/root{disk}", world.pair().holder(Side::A));
    let (major, minor) = sys::fs::device_numbers(std::fs::metadata(seen).expect("it is mounted").dev());
    Ok(format!("{major}:{minor}"))
}

/// One job that reads that disk, in the group or not, says of its I/O mode how it was found.
fn said(world: &mut World, words: &str, group: Option<&Group>, how: &str) {
    world.remove("dst/raced");
    let (source, there) = (world.word("raced/file"), world.word("dst/raced"));
    let mut command = world.pair().command(Side::A, "sh").expect("the host is there");
    let procs = group.map_or("/dev/null".into(), |group| group.0.join("cgroup.procs").display().to_string());
    command.args(["-c", "echo $$ >\"$0\" && exec \"$@\"", &procs]);
    command.arg(world.binary()).args(["cp", "--json", "--explain", &source, &there]);
    let run = world.spawn(Side::A, command).end_within(LONG);
    world.ends(&run, 0, &format!("{words}: exit code 0"));
    world.holds(&format!("{words}: {how}"), says(&run, &["read I/O mode", how]), &run.why());
}

pub(crate) fn a_disk_whose_rate_fell_is_measured_again(world: &mut World) -> Result<(), Skip> {
    needs_disk(world, "measured again", 4 * GIB)?;
    let group = Group::make()?;
    let device = make_disk(world)?;
    said(world, "a disk that nobody knows", None, "measured now");
    said(world, "the same disk again", None, "known from an earlier measurement");
    group.throttle(&device).expect("a controller of disks");
    said(world, "the disk became slow", Some(&group), "known from an earlier measurement");
    said(world, "the next job", None, "measured now");
    world.run(Side::A, "umount", &[&world.word("raced")]);
    Ok(())
}

/// What the other end offered of this.
fn offered(run: &Run, what: &str) -> Vec<String> {
    let offers = run.lines.iter().flat_map(|line| line["offers"].as_array().into_iter().flatten());
    let those = offers.filter(|offer| offer["what"] == what);
    those.map(|offer| offer["remote"].as_str().unwrap_or_default().to_owned()).collect()
}

/// A rate as reports have it, without its reason, in bit/s; nothing for other words and for 0.
fn rate_bps(text: &str) -> Option<f64> {
    let digits = text.find(|it: char| !it.is_ascii_digit() && it != '.')?;
    let (number, unit) = text.split_at(digits);
    let prefix = unit.trim_start();
    let scale = [("bit/s", 1.0), ("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9), ("Tbit/s", 1e12)];
    let (_, scale) = scale.iter().find(|(word, _)| prefix.starts_with(word))?;
    number.parse::<f64>().ok().map(|number| number * scale).filter(|rate| *rate > 0.0)
}

/// A number of bytes with its unit, not 0.
fn is_size(text: &str) -> bool {
    let (number, unit) = text.split_once(' ').unwrap_or_default();
    number.parse::<u64>().is_ok_and(|number| number > 0) && unit.len() == 3 && unit.ends_with("iB")
}

/// Is it kept at either end that a disk was measured?
fn is_measured(world: &World) -> bool {
    ["home-a/engines", "home-b/engines"].iter().any(|name| world.at(name).exists())
}

pub(crate) fn both_ends_offer_what_their_disks_did(world: &mut World) -> Result<(), Skip> {
    needs_disk(world, "a disk's rate in the offers", 6 * GIB)?;
    world.random_file("part", 64 * MIB);
    let part = std::fs::read(world.at("part")).expect("it was made");
    let mut race = std::fs::File::create(world.at("src/race")).expect("a file");
    (0..RACE_PARTS).for_each(|_| std::io::Write::write_all(&mut race, &part).expect("room"));
    assert!(race.metadata().is_ok_and(|it| it.size() > GIB), "more than a GiB");
    drop(race);
    let daemon = world.serve("dst", &[]);
    let source = world.word("src/race");
    let there = |name: &str| format!("{}{name}", daemon.url);
    let options = ["--explain", "--transport", "auto"];
    let run = world.cp(&[&options[..], &[&source, &there("first")]].concat());
    let got = (run.status, offered(&run, "disk, when measured"));
    world.is(got, (0, vec!["not known".into()]), "a disk that was never measured: its rate is not known");
    let bufs = offered(&run, "bufs for this job");
    let held = bufs.iter().any(|text| is_size(text));
    world.holds(&format!("the bufs that the other end has for this job are ({bufs:?})"), held, &run.why());
    world.remove("dst/first");
    if !is_measured(world) {
        return Err(Skip("a disk's rate in the offers: this file system is not measured".into()));
    }
    let run = world.cp(&[&options[..], &[&source, &there("second")]].concat());
    let disk = offered(&run, "disk, when measured");
    let rate = disk.first().and_then(|text| rate_bps(text));
    world.holds(&format!("the next job knows it ({disk:?})"), rate.is_some(), &run.why());
    let expected = run.lines.last().and_then(|line: &Value| line["forecast"]["rate_bps"].as_f64());
    let held = rate.zip(expected).is_some_and(|(disk, expected)| expected <= disk * 1.01);
    world.holds(&format!("and expects no more than that of the whole ({expected:?} bit/s)"), held, &run.why());
    world.same("src/race", "dst/second", "the next job: the same bytes");
    Ok(())
}
