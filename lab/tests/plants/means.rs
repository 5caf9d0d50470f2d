//! What makes things slow: control groups, disks with a rate, links, a name service, a file system of our own.
//!
//! In: rates. Out: commands, folders and daemons that have them.
//! Invariants: a group is of this run only and goes with the `Bench`; loop devices end with the mount, mounts with the host they are in.
//! Absent on purpose: which of them a plant has (list.rs).

use std::fs::{self, File};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lab::hosts::Side;
use lab::pair::{DEVICE, address};
use lab::wire::dice::Dice;

use super::fuse::{Served, Slow};
use crate::emulated::Emulated;
use crate::world::{Daemon, MIB, PORT, Run, Running, Skip, World};

/// The root of the control groups.
const GROUPS: &str = "/sys/fs/cgroup";
/// The longest plant.
const LIMIT: Duration = Duration::from_secs(90);

/// See the module.
pub(super) struct Bench<'a> {
    pub(super) world: &'a mut World,
    dice: Dice,
    groups: Vec<PathBuf>,
    /// What takes a bound away again, and where it is written.
    bounds: Vec<(PathBuf, String)>,
    case: Vec<String>,
    daemon: Option<Daemon>,
    link: Option<Emulated>,
}

/// A disk: where it is mounted, and its number.
pub(super) struct Disk {
    pub(super) folder: String,
    number: String,
}

impl<'a> Bench<'a> {
    /// Nothing is slow yet.
    pub(super) fn new(world: &'a mut World, dice: Dice) -> Bench<'a> {
        Bench { world, dice, groups: Vec::new(), bounds: Vec::new(), case: Vec::new(), daemon: None, link: None }
    }

    /// A number from `low` to `high` by the seed, remembered for the line.
    pub(super) fn draw(&mut self, what: &str, low: u64, high: u64) -> u64 {
        let drawn = low + self.dice.below(high - low + 1);
        self.case.push(format!("{what} {drawn}"));
        drawn
    }

    /// What was drawn, in words.
    pub(super) fn case(&self) -> String {
        self.case.join(", ")
    }

    /// A source file of so many MiB; its path.
    pub(super) fn source(&mut self, low: u64, high: u64) -> String {
        let mib = self.draw("MiB", low, high);
        self.world.random_file("src/file", mib * MIB);
        self.world.word("src/file")
    }

    /// A group of this controller, for `in_group`.
    fn group(&mut self, controller: &str) -> Result<PathBuf, Skip> {
        let parent =
            [format!("{GROUPS}/{controller}"), GROUPS.to_owned()].into_iter().find(|it| Path::new(it).is_dir());
        let number = sys::clock::now_ns();
        let path = Path::new(&parent.unwrap_or_default()).join(format!("longhaul-{}-{number}", std::process::id()));
        fs::create_dir(&path).map_err(|error| Skip(format!("no control group can be made: {error}")))?;
        self.groups.push(path.clone());
        Ok(path)
    }

    /// Sets it by the first of these files that is there: version 1 of control groups, or 2.
    fn set(group: &Path, ways: &[(&str, String)]) -> Result<(), Skip> {
        let way = ways.iter().find(|(name, _)| group.join(name).exists());
        let (name, value) = way.ok_or_else(|| Skip(format!("{}: no such controller here", group.display())))?;
        fs::write(group.join(name), value).map_err(|error| Skip(format!("{name}: {error}")))
    }

    /// A group with that much of one core.
    pub(super) fn cores(&mut self, percent: u64) -> Result<PathBuf, Skip> {
        let group = self.group("cpu")?;
        if group.join("cpu.cfs_period_us").exists() {
            Self::set(&group, &[("cpu.cfs_period_us", "20000".to_owned())])?;
        }
        let quota = (200 * percent).to_string();
        Self::set(&group, &[("cpu.cfs_quota_us", quota.clone()), ("cpu.max", format!("{quota} 20000"))])?;
        Ok(group)
    }

    /// A group for which this disk reads or writes so fast.
    pub(super) fn disk_rate(&mut self, disk: &Disk, way: &str, bytes_per_second: u64) -> Result<PathBuf, Skip> {
        let group = self.group("blkio")?;
        let old = format!("blkio.throttle.{way}_bps_device");
        let new = format!("{} {}bps={bytes_per_second}", disk.number, &way[..1]);
        Self::set(&group, &[(&old, format!("{} {bytes_per_second}", disk.number)), ("io.max", new)])?;
        // With version 1 of control groups, what the kernel's own threads write back counts for the root alone.
        let root = Path::new(GROUPS).join("blkio").join(&old);
        if root.exists() {
            fs::write(&root, format!("{} {bytes_per_second}", disk.number)).map_err(|error| Skip(error.to_string()))?;
            self.bounds.push((root, format!("{} 0", disk.number)));
        }
        Ok(group)
    }

    /// A group with so much memory, page cache included.
    pub(super) fn memory(&mut self, bytes: u64) -> Result<PathBuf, Skip> {
        let group = self.group("memory")?;
        Self::set(&group, &[("memory.limit_in_bytes", bytes.to_string()), ("memory.max", bytes.to_string())])?;
        Ok(group)
    }

    /// An ext4 of so many MiB in a file, mounted on that host alone, with these options.
    pub(super) fn disk(&mut self, side: Side, mib: u64, options: &str) -> Result<Disk, Skip> {
        let (image, folder) = (self.world.word("disk.img"), self.world.word("disk"));
        let made =
            File::create(&image).and_then(|file| file.set_len(mib * MIB)).and_then(|()| fs::create_dir_all(&folder));
        made.map_err(|error| Skip(format!("{image}: {error}")))?;
        let script = "set -e; mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 \"$1\"; loop=$(losetup -f --show \"$1\"); \
                      mount -o \"$3\" \"$loop\" \"$2\" || { losetup -d \"$loop\"; exit 1; }; losetup -d \"$loop\"; stat -c '%t %T' \"$loop\"";
        let said = self.world.run(side, "sh", &["-c", script, "sh", &image, &folder, options]);
        let said = said.ok_or_else(|| Skip("no loop device can be mounted here".into()))?;
        let parts: Vec<u64> = said.split_whitespace().filter_map(|it| u64::from_str_radix(it, 16).ok()).collect();
        let [major, minor] = parts[..] else { return Err(Skip(format!("a device's number: {said}"))) };
        Ok(Disk { folder, number: format!("{major}:{minor}") })
    }

    /// A file system of ours whose calls take their time, mounted on that host alone; its folder.
    pub(super) fn fuse(&mut self, side: Side, slow: Slow, files: Vec<(&str, Vec<u8>)>) -> Result<String, Skip> {
        let folder = self.world.word("fuse");
        let failed = |error: &dyn std::fmt::Display| Skip(format!("no FUSE here: {error}"));
        fs::create_dir_all(&folder).map_err(|error| failed(&error))?;
        let device = File::options().read(true).write(true).open("/dev/fuse").map_err(|error| failed(&error))?;
        use std::os::fd::AsRawFd;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        rustix::io::fcntl_setfd(&device, rustix::io::FdFlags::empty()).map_err(|error| failed(&error))?;
        let mounted = self.world.run(side, "mount", &["-i", "-t", "fuse", "-o", &options, "longhaul", &folder]);
        rustix::io::fcntl_setfd(&device, rustix::io::FdFlags::CLOEXEC).map_err(|error| failed(&error))?;
        mounted.ok_or_else(|| failed(&"it cannot be mounted"))?;
        let served = Served::new(slow, files);
        // Ends with the mount, which ends with the host.
        std::thread::spawn(move || served.serve(&device));
        Ok(folder)
    }

    /// Host a asks a name service that answers after so long: every name is host b.
    pub(super) fn slow_names(&mut self, after: Duration) -> Result<(), Skip> {
        let socket = self.world.pair().inside(Side::B, || UdpSocket::bind((address(Side::B), 53)));
        let socket = socket.map_err(|error| Skip(format!("no name service can be had: {error}")))?;
        let conf = self.world.word("resolv.conf");
        fs::write(&conf, format!("nameserver {}\noptions timeout:20 attempts:1\n", address(Side::B)))
            .map_err(|error| Skip(error.to_string()))?;
        let bound = self.world.run(Side::A, "mount", &["--bind", &conf, "/etc/resolv.conf"]);
        bound.ok_or_else(|| Skip("no resolv.conf can be put in place of another".into()))?;
        std::thread::spawn(move || answer_names(&socket, after));
        Ok(())
    }

    /// A queue of the kernel's with this rate, both ways.
    pub(super) fn link_rate(&mut self, mbit: u64) -> Result<(), Skip> {
        let rate = format!("{mbit}mbit");
        for side in Side::BOTH {
            let words =
                ["qdisc", "add", "dev", DEVICE, "root", "tbf", "rate", &rate, "burst", "64kb", "latency", "20ms"];
            self.world.run(side, "tc", &words).ok_or_else(|| Skip("no tbf here".into()))?;
        }
        Ok(())
    }

    /// Host a and host b with an emulated link instead, in the words of `longhaul lab`.
    pub(super) fn emulate(&mut self, words: &str) -> Result<(), Skip> {
        self.case.push(words.to_owned());
        self.link = Some(Emulated::make(words)?);
        Ok(())
    }

    /// TCP's buffers on both hosts.
    pub(super) fn buffers(&mut self, bytes: u64) -> Result<(), Skip> {
        let script = format!(
            "echo 4096 {bytes} {bytes} >/proc/sys/net/ipv4/tcp_wmem; echo 4096 {bytes} {bytes} >/proc/sys/net/ipv4/tcp_rmem"
        );
        for side in Side::BOTH {
            let link = self.link.as_ref().ok_or_else(|| Skip("there is no link".into()))?;
            link.run(side, "sh", &["-c", &script]).ok_or_else(|| Skip("TCP's buffers cannot be set".into()))?;
        }
        Ok(())
    }

    /// The binary with these words in these groups of a host.
    fn command(&self, side: Side, groups: &[&Path], words: &[&str]) -> Command {
        let script =
            "while [ \"$1\" != -- ]; do echo $$ >\"$1/cgroup.procs\" || exit 99; shift; done; shift; exec \"$@\"";
        let mut command = match &self.link {
            Some(link) => link.command(side, "sh"),
            None => self.world.pair().command(side, "sh").expect("the host is there"),
        };
        command.args(["-c", script, "sh"]).args(groups).arg("--").arg(self.world.binary()).args(words);
        command
    }

    /// A daemon on host b, in these groups.
    pub(super) fn serve(&mut self, groups: &[&Path], root: &str, more: &[&str]) {
        let host = if self.link.is_some() { lab::hosts::address4(0, Side::B) } else { address(Side::B) };
        let listen = format!("{host}:{PORT}");
        let words = [&["serve", "--root", root, "--listen", &listen, "--ticket", "--integrity-only"], more].concat();
        let command = self.command(Side::B, groups, &words);
        let running = self.world.spawn(Side::B, command);
        self.daemon = Some(Daemon::of(running));
    }

    /// A daemon whose root is in memory.
    pub(super) fn serve_memory(&mut self, groups: &[&Path], more: &[&str]) {
        let root = self.world.word("dst/far");
        self.serve(groups, &root, more);
    }

    /// Its address.
    pub(super) fn url(&self) -> String {
        self.daemon.as_ref().expect("it runs").url.clone()
    }

    /// Its process.
    pub(super) fn daemon_id(&self) -> u32 {
        self.daemon.as_ref().expect("it runs").running.id()
    }

    /// A copy from host a to it that has begun, in these groups.
    pub(super) fn start_cp(&mut self, groups: &[&Path], words: &[&str]) -> Running {
        let url = self.url();
        let command = self.command(Side::A, groups, &[&["cp", "--json"], words, &[url.as_str()]].concat());
        self.world.spawn(Side::A, command)
    }

    /// The same to its end.
    pub(super) fn cp(&mut self, groups: &[&Path], words: &[&str]) -> Result<Run, Skip> {
        Ok(self.start_cp(groups, words).end_within(LIMIT))
    }
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        for (path, word) in &self.bounds {
            let _ = fs::write(path, word);
        }
        self.daemon = None;
        for group in &self.groups {
            // The last process of it may be on its way out.
            crate::world::until(Duration::from_secs(2), || fs::remove_dir(group).is_ok());
        }
    }
}

/// Each question for an IPv4 address has host b's, each other one none (RFC 1035, section 4).
fn answer_names(socket: &UdpSocket, after: Duration) {
    let mut question = [0; 512];
    // Both of a resolver's questions wait for the same moment, not one after the other.
    while let Ok((count, from)) = socket.recv_from(&mut question) {
        let (mut answer, socket) = (question[..count].to_vec(), socket.try_clone());
        let Ok(socket) = socket else { return };
        // Name, type, class; whatever stands behind (EDNS) is left out.
        let Some(end) = answer.get(12..).and_then(|it| it.iter().position(|byte| *byte == 0)).map(|at| 12 + at + 5)
        else {
            continue;
        };
        let is_v4 = answer.get(end - 3) == Some(&1);
        answer.truncate(end);
        answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_v4), 0, 0, 0, 0]);
        if is_v4 {
            answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
            answer.extend_from_slice(&address(Side::B).octets());
        }
        std::thread::spawn(move || {
            std::thread::sleep(after);
            let _ = socket.send_to(&answer, from);
        });
    }
}
