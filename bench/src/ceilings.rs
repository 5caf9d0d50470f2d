//! What bounds the rates of disks, as far as the system tells, and what a figure above it is.
//!
//! For: `bench disk` and `bench volumes`: figures beside what cannot be exceeded, and a word at those that exceed it.
//! In and out: device numbers → lines of text and rates; a figure → why it cannot be a disk's, or nothing.
//! Invariants: what sysfs does not say is left out, not guessed; a bound is the fastest that was seen of what it is made of, so that no true
//! figure is called impossible because the machine was busy while the bound was measured.
//! Absent on purpose: judging settings (`host show` does).

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use topology::nics::Pcie;
use topology::tree::Tree;
use topology::{disks, facts};
use tune::lines;

/// A copy larger than a core's caches; all cores together also larger than those they share.
const COPY_BYTES: usize = 64 << 20;
/// What stays in a core's own cache: no byte is moved faster by a processor.
const CACHED_BYTES: usize = 256 << 10;
/// What is timed at once: some 100 µs.
const PIECE_BYTES: usize = 1 << 20;
/// All cores' copies at once have so much memory together, at most.
const ALL_BYTES: usize = 1 << 30;
/// The best of several: what disturbs a copy only makes it slower.
const COPY_TIME: Duration = Duration::from_millis(100);
/// What clocks and the moment of measuring may be off by.
const SLACK: f64 = 1.05;
/// Of a link: its packets' heads are counted as a tenth, and may be less.
const LINK_SLACK: f64 = 1.15;
/// So much faster than the device has been seen past the cache is the cache.
const CACHE_FACTOR: f64 = 1.5;

/// See the module. All rates in 10^9 B/s.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ceilings {
    /// What the system says, and what memory was measured to do.
    pub lines: Vec<String>,
    /// A copy in memory by one thread.
    pub copy_gbs: f64,
    /// The fastest copy of any size by one thread: in the processor's caches.
    pub copy_gbs_max: f64,
    /// All that memory was seen to carry when all cores copied: bytes read and bytes written.
    pub memory_gbs: f64,
    /// Of all links to the devices together; `None`: not all are told.
    pub links_gbs: Option<f64>,
    /// Cores of this process.
    pub cores: usize,
}

/// A figure that is to be believed.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// 10^9 B/s.
    pub gbs: f64,
    /// Threads that may copy bytes at once, the kernel's for a ring included; 0: none does, the device moves them itself.
    pub copiers: usize,
    /// The best that was seen past the cache, the same way; 0: not known.
    pub device_gbs: f64,
}

impl Ceilings {
    /// Why a figure cannot be a disk's; empty: it can.
    #[must_use]
    pub fn flag(&self, figure: Figure) -> String {
        let Figure { gbs, copiers, device_gbs } = figure;
        let by_cores = self.copy_gbs_max * copiers.min(self.cores) as f64;
        if copiers > 0 && gbs > by_cores * SLACK {
            return format!("faster than {} can copy ({by_cores:.1} GB/s): impossible", cores(copiers.min(self.cores)));
        }
        // What a device moves does not cross a processor, but memory all the same.
        if copiers == 0 && gbs > self.memory_gbs * SLACK {
            return format!("faster than memory ({:.1} GB/s): impossible", self.memory_gbs);
        }
        if let Some(links_gbs) = self.links_gbs.filter(|links_gbs| gbs > links_gbs * LINK_SLACK) {
            let whose = if copiers == 0 { "impossible" } else { "a cache's rate, not the device's" };
            return format!("faster than the device's link ({links_gbs:.1} GB/s): {whose}");
        }
        if device_gbs > 0.0 && gbs > CACHE_FACTOR * device_gbs {
            return format!(
                "{CACHE_FACTOR} x faster than the device itself ({device_gbs:.2} GB/s): a cache's rate, not the device's"
            );
        }
        String::new()
    }
}

fn cores(count: usize) -> String {
    if count == 1 { "one core".to_owned() } else { format!("{count} cores") }
}

/// What memory and cores of this host can do.
#[must_use]
pub fn memory() -> Ceilings {
    let cores = sys::host::cores().map_or(1, |cores| cores.count);
    let copy_gbs = copy_gbs(COPY_BYTES, COPY_TIME);
    let copy_gbs_max = copy_gbs.max(self::copy_gbs(CACHED_BYTES, COPY_TIME));
    // A copy reads as many bytes as it writes.
    let memory_gbs = 2.0 * all_gbs(cores).max(copy_gbs);
    let mut lines = vec![
        format!(
            "ceiling: a copy in memory by one thread {copy_gbs:.1} GB/s, in its core's cache {copy_gbs_max:.1} GB/s"
        ),
        format!("ceiling: memory, read and written by {} at once, {memory_gbs:.1} GB/s", self::cores(cores)),
    ];
    for node in facts::read(&Tree::here()).nodes {
        lines.extend(node.unbroken.map(|share| {
            format!("memory of node {}: {:.0} % of what is free in blocks of 2 MiB and more", node.id, share * 100.0)
        }));
    }
    Ceilings { lines, copy_gbs, copy_gbs_max, memory_gbs, links_gbs: None, cores }
}

impl Ceilings {
    /// The same with what the system says of devices; each device and each link counts once.
    #[must_use]
    pub fn with_devices(mut self, devs: &[u64]) -> Ceilings {
        let (told, links_gbs) = of_devices(&Tree::here(), Path::new("/sys"), devs);
        self.lines.extend(told);
        self.links_gbs = links_gbs;
        self
    }
}

/// The block device of a folder: what its file system was mounted from, where that is one (btrfs has numbers of its own), else the file's.
///
/// # Errors
/// The folder cannot be looked at.
pub fn device_of(folder: &Path) -> std::io::Result<u64> {
    let mount = sys::fs::mount_of(std::fs::File::open(folder)?)?;
    let device = Path::new(&mount.device).metadata().ok().filter(|it| it.file_type().is_block_device());
    device.map_or_else(|| Ok(folder.metadata()?.dev()), |it| Ok(it.rdev()))
}

/// A device's way into the machine: where it begins, what it is, 10^9 B/s.
type Link = (PathBuf, String, f64);

fn of_devices(tree: &Tree, root: &Path, devs: &[u64]) -> (Vec<String>, Option<f64>) {
    let (mut links, mut all_told) = (BTreeMap::new(), !devs.is_empty());
    // Alike devices share a line: there may be a hundred.
    let (mut words, mut ways): (Alike, Alike) = (Vec::new(), Vec::new());
    let mut loops: Vec<String> = Vec::new();
    let all = disks::read(tree);
    for name in devs.iter().map(|&dev| name_of(root, dev)).collect::<BTreeSet<_>>() {
        let Some(name) = name else {
            alike(&mut ways, "not reported (no block device of its own in sysfs)", "the device");
            all_told = false;
            continue;
        };
        if let Some(disk) = all.iter().find(|disk| disk.name == name) {
            let said = lines::disk(disk);
            alike(&mut words, said.strip_prefix(&format!("{name}: ")).unwrap_or(&said), &name);
        }
        let backing = tree.text(&format!("sys/block/{name}/loop/backing_file"));
        loops.extend(backing.map(|file| format!("{name} over {file}")));
        for name in bottom(root, &name) {
            if let Some((place, what, gbs)) = link_of(root, &name) {
                alike(&mut ways, &format!("{what}, {gbs:.2} GB/s"), &name);
                links.insert(place, gbs);
            } else {
                alike(&mut ways, "not reported", &name);
                all_told = false;
            }
        }
    }
    let mut lines: Vec<String> =
        words.into_iter().map(|(what, names)| format!("{}: {what}", names.join(", "))).collect();
    if !loops.is_empty() {
        lines.push(format!("loops: {}", loops.join(", ")));
    }
    lines.extend(ways.into_iter().map(|(what, names)| format!("ceiling: link of {}: {what}", names.join(", "))));
    let sum = links.values().sum::<f64>();
    if all_told && links.len() > 1 {
        lines.push(format!("ceiling: all links together {sum:.2} GB/s"));
    }
    (lines, all_told.then_some(sum))
}

/// What is said, and of whom.
type Alike = Vec<(String, Vec<String>)>;

fn alike(said: &mut Alike, what: &str, name: &str) {
    match said.iter_mut().find(|(it, _)| it == what) {
        Some((_, names)) => names.push(name.to_owned()),
        None => said.push((what.to_owned(), vec![name.to_owned()])),
    }
}

/// The disk below a device number; a partition's is the disk it is on.
fn name_of(root: &Path, dev: u64) -> Option<String> {
    let (major, minor) = sys::fs::device_numbers(dev);
    let path = root.join("dev/block").join(format!("{major}:{minor}")).canonicalize().ok()?;
    let disk = if path.join("queue").is_dir() { &path } else { path.parent()? };
    Some(disk.file_name()?.to_string_lossy().into_owned())
}

/// What a stacked device (md, dm) stands on, down to what stands on nothing.
fn bottom(root: &Path, name: &str) -> BTreeSet<String> {
    let below = std::fs::read_dir(root.join("block").join(name).join("slaves")).into_iter().flatten().flatten();
    let below: Vec<String> = below.filter_map(|it| it.file_name().into_string().ok()).collect();
    // A member may be a partition: its disk's link is meant.
    let disk = |name: &str| {
        let place = root.join("class/block").join(name).canonicalize().ok().filter(|it| it.join("partition").exists());
        place.and_then(|it| Some(it.parent()?.file_name()?.to_string_lossy().into_owned())).unwrap_or(name.to_owned())
    };
    if below.is_empty() {
        return BTreeSet::from([name.to_owned()]);
    }
    below.iter().flat_map(|it| bottom(root, &disk(it))).collect()
}

/// The narrowest of the links between a device and the machine: SATA's own, or PCIe, of which each bridge has one.
fn link_of(root: &Path, name: &str) -> Option<Link> {
    let place = root.join("block").join(name).canonicalize().ok()?;
    let links = place.ancestors().filter_map(|it| sata(it).or_else(|| pcie(it)));
    links.min_by(|one, other| one.2.total_cmp(&other.2))
}

fn read(path: PathBuf) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn pcie(place: &Path) -> Option<Link> {
    // `16.0 GT/s PCIe`; `Unknown` where nobody knows; 255 lanes: a bus that has none.
    let said = read(place.join("current_link_speed"))?;
    let speed: f64 = said.split_whitespace().next()?.parse().ok()?;
    let width: u32 = read(place.join("current_link_width"))?.parse().ok().filter(|width| (1..64).contains(width))?;
    let link = Pcie { width, width_max: width, speed, speed_max: speed };
    Some((place.to_owned(), format!("PCIe ({width} x {speed} GT/s)"), link.bits_per_second() / 8e9))
}

/// `ata3` has `link3/ata_link/link3/sata_spd`, as `6.0 Gbps` with ten bits a byte (Serial ATA: 8b/10b).
fn sata(place: &Path) -> Option<Link> {
    let number = place.file_name()?.to_str()?.strip_prefix("ata")?.parse::<u32>().ok()?;
    let said = read(place.join(format!("link{number}/ata_link/link{number}/sata_spd")))?;
    let gbps: f64 = said.split_whitespace().next()?.parse().ok()?;
    Some((place.to_owned(), format!("SATA ({said})"), gbps / 10.0))
}

/// The fastest piece of copies of so many bytes within a time: short pieces, because a busy machine interrupts long ones every time.
fn copy_gbs(bytes: usize, time: Duration) -> f64 {
    let (from, mut to) = (vec![1_u8; bytes], vec![0_u8; bytes]);
    let (end, mut best) = (Instant::now() + time, 0.0_f64);
    while Instant::now() < end {
        for (from, to) in from.chunks(PIECE_BYTES).zip(to.chunks_mut(PIECE_BYTES)) {
            let start = Instant::now();
            to.copy_from_slice(black_box(from));
            black_box(to);
            best = best.max(from.len() as f64 / start.elapsed().as_secs_f64().max(1e-9) / 1e9);
        }
    }
    best
}

/// The same by all cores at once: the sum of their best.
fn all_gbs(cores: usize) -> f64 {
    let bytes = (ALL_BYTES / 2 / cores.max(1)).clamp(1 << 20, COPY_BYTES);
    let ready = Barrier::new(cores.max(1));
    std::thread::scope(|scope| {
        let copy = || {
            ready.wait();
            copy_gbs(bytes, COPY_TIME)
        };
        let threads: Vec<_> = (0..cores.max(1)).map(|_| scope.spawn(copy)).collect();
        threads.into_iter().map(|it| it.join().unwrap_or(0.0)).sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Ceilings =
        Ceilings { lines: Vec::new(), copy_gbs: 10.0, copy_gbs_max: 20.0, memory_gbs: 60.0, links_gbs: None, cores: 4 };

    fn flag(ceilings: &Ceilings, gbs: f64, copiers: usize, device_gbs: f64) -> String {
        ceilings.flag(Figure { gbs, copiers, device_gbs })
    }

    #[test]
    fn what_is_copied_is_bounded_by_who_copies_and_what_a_device_moves_by_memory_and_its_link() {
        assert_eq!(flag(&HERE, 20.0, 1, 0.0), "");
        assert!(flag(&HERE, 22.0, 1, 0.0).starts_with("faster than one core can copy (20.0 GB/s): impossible"));
        assert_eq!(flag(&HERE, 22.0, 2, 0.0), "");
        assert!(flag(&HERE, 90.0, 8, 0.0).contains("4 cores"), "more threads than cores copy no faster");
        assert_eq!(flag(&HERE, 22.0, 0, 0.0), "", "nobody copies what a device brings itself");
        assert!(flag(&HERE, 64.0, 0, 0.0).starts_with("faster than memory (60.0 GB/s): impossible"));
        let linked = Ceilings { links_gbs: Some(7.0), ..HERE };
        assert_eq!(flag(&linked, 7.2, 0, 7.2), "");
        assert!(flag(&linked, 9.0, 0, 9.0).ends_with("link (7.0 GB/s): impossible"));
        assert!(flag(&linked, 9.0, 1, 7.0).ends_with("a cache's rate, not the device's"));
    }

    #[test]
    fn what_is_half_as_fast_again_as_the_device_is_a_caches_rate() {
        assert_eq!(flag(&HERE, 2.9, 1, 2.0), "");
        assert!(flag(&HERE, 3.1, 1, 2.0).contains("device itself (2.00 GB/s): a cache's rate"));
        assert_eq!(flag(&HERE, 3.1, 1, 0.0), "", "where nothing is known of the device, nothing is said");
    }

    /// A machine's /sys that goes away with the test.
    struct Sys(PathBuf);

    impl Sys {
        fn new(name: &str, files: &[(&str, &str)], links: &[(&str, &str)]) -> Sys {
            let root = std::env::temp_dir().join(format!("longhaul-ceilings-{name}-{}", std::process::id()));
            for (path, text) in files {
                std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
                std::fs::write(root.join(path), text).unwrap();
            }
            for (path, to) in links {
                std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
                std::os::unix::fs::symlink(root.join(to), root.join(path)).unwrap();
            }
            Sys(root)
        }
    }

    impl Drop for Sys {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn each_link_counts_once_at_its_narrowest_and_one_that_is_not_told_leaves_no_sum() {
        let files = [
            // Two namespaces of one drive of four lanes behind a bridge of eight.
            ("devices/pci0/0000:00:01.0/current_link_speed", "16.0 GT/s PCIe\n"),
            ("devices/pci0/0000:00:01.0/current_link_width", "8\n"),
            ("devices/pci0/0000:00:01.0/0000:01:00.0/current_link_speed", "16.0 GT/s PCIe\n"),
            ("devices/pci0/0000:00:01.0/0000:01:00.0/current_link_width", "4\n"),
            ("devices/pci0/0000:00:01.0/0000:01:00.0/nvme/nvme0/nvme0n1/queue/rotational", "0\n"),
            ("devices/pci0/0000:00:01.0/0000:01:00.0/nvme/nvme0/nvme0n2/queue/rotational", "0\n"),
            // A disk by SATA with a partition, and what is stacked on that and on the drive.
            ("devices/pci0/0000:00:17.0/ata3/link3/ata_link/link3/sata_spd", "6.0 Gbps\n"),
            ("devices/pci0/0000:00:17.0/ata3/host2/sda/queue/rotational", "1\n"),
            ("devices/pci0/0000:00:17.0/ata3/host2/sda/sda1/partition", "1\n"),
            ("devices/virtual/md0/queue/rotational", "1\n"),
            ("devices/virtual/md0/slaves/nvme0n1", ""),
            ("devices/virtual/md0/slaves/sda1", ""),
            ("devices/virtual/vda/queue/rotational", "1\n"),
        ];
        let nvme = "devices/pci0/0000:00:01.0/0000:01:00.0/nvme/nvme0";
        let sda = "devices/pci0/0000:00:17.0/ata3/host2/sda";
        let (one, two, sda1) = (format!("{nvme}/nvme0n1"), format!("{nvme}/nvme0n2"), format!("{sda}/sda1"));
        let links = [
            ("dev/block/259:0", one.as_str()),
            ("dev/block/259:1", &two),
            ("dev/block/8:1", &sda1),
            ("dev/block/9:0", "devices/virtual/md0"),
            ("dev/block/254:0", "devices/virtual/vda"),
            ("block/nvme0n1", &one),
            ("block/nvme0n2", &two),
            ("block/sda", sda),
            ("block/md0", "devices/virtual/md0"),
            ("block/vda", "devices/virtual/vda"),
            ("class/block/sda1", &sda1),
        ];
        let sys = Sys::new("links", &files, &links);
        let tree = Tree::parse("").unwrap();
        let dev = |major: u64, minor: u64| major << 8 | minor;
        let sum = |devs: &[u64]| of_devices(&tree, &sys.0, devs).1.map(|gbs| (gbs * 100.0).round() / 100.0);
        // 4 lanes x 16 GT/s x 128/130, a tenth for heads: 7.09 GB/s.
        assert_eq!(sum(&[dev(259, 0), dev(259, 1)]), Some(7.09));
        assert_eq!(sum(&[dev(8, 1)]), Some(0.6));
        assert_eq!(sum(&[dev(9, 0)]), Some(7.69), "stacked: both below it");
        assert_eq!(sum(&[dev(259, 0), dev(254, 0)]), None);
        assert_eq!(sum(&[dev(7, 7)]), None);
        let lines = of_devices(&tree, &sys.0, &[dev(254, 0), dev(259, 0)]).0;
        assert!(lines.iter().any(|line| line == "ceiling: link of vda: not reported"), "{lines:?}");
        assert!(
            lines.iter().any(|line| line == "ceiling: link of nvme0n1: PCIe (4 x 16 GT/s), 7.09 GB/s"),
            "{lines:?}"
        );
    }
}
