//! Disks and the file systems on them.
//!
//! For: facts.rs. In and out: a tree → records. Invariants: as in facts.rs. Absent on purpose: loop devices without a file, RAM disks, file
//! systems that the kernel makes up (proc, sysfs, cgroup).

use serde::Serialize;

use crate::nics::{self, Pcie};
use crate::tree::{Tree, chosen, clean};

/// A partition.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    pub name: String,
    pub start_bytes: u64,
}

/// A block device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Disk {
    pub name: String,
    pub model: Option<String>,
    pub bytes: u64,
    pub rotational: Option<bool>,
    pub node: Option<u32>,
    /// Its controller's link, of NVMe.
    pub pcie: Option<Pcie>,
    pub scheduler: Option<String>,
    /// `write back`, `write through`.
    pub write_cache: Option<String>,
    pub logical_bytes: Option<u32>,
    pub physical_bytes: Option<u32>,
    /// What it likes to be given at once: a RAID's stripe, a flash page; 0: it does not say.
    pub optimal_bytes: Option<u32>,
    pub request_bytes_max: Option<u64>,
    pub requests: Option<u32>,
    pub read_ahead_bytes: Option<u64>,
    /// Bytes by which its blocks are off the physical ones.
    pub misaligned_bytes: Option<u32>,
    /// `raid5` and the chunk of it.
    pub raid: Option<(String, u64)>,
    pub members: Vec<String>,
    pub parts: Vec<Part>,
}

/// A file system in use.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mount {
    pub at: String,
    pub kind: String,
    pub source: String,
    pub options: Vec<String>,
}

/// All that have a size.
#[must_use]
pub fn read(tree: &Tree) -> Vec<Disk> {
    let names = tree.names("sys/block");
    let real = names.iter().filter(|name| !name.starts_with("ram") && !name.starts_with("zram"));
    // Sectors of 512 bytes, whatever the disk's own are (Documentation/ABI/stable/sysfs-block).
    real.filter_map(|name| Some((name, tree.number::<u64>(&format!("sys/block/{name}/size"))?)))
        .filter(|(_, sectors)| *sectors > 0)
        .map(|(name, sectors)| disk(tree, name, sectors.saturating_mul(512)))
        .collect()
}

/// The NUMA node of a disk or a NIC: of its device (an NVMe namespace's is the controller, whose own is on the bus), or of the next thing above
/// that tells: virtio's are one level below the bus, SAS disks up to six.
#[must_use]
pub fn node_at(tree: &Tree, at: &str) -> Option<u16> {
    let above = (0..=6).map(|levels| format!("{at}/device{}", "/..".repeat(levels)));
    let places = [format!("{at}/device/device")].into_iter().chain(above);
    places
        .filter_map(|place| tree.number::<i64>(&format!("{place}/numa_node")))
        .find_map(|node| u16::try_from(node).ok())
}

fn disk(tree: &Tree, name: &str, bytes: u64) -> Disk {
    let at = format!("sys/block/{name}");
    let queue = |file: &str| format!("{at}/queue/{file}");
    let kib = |file: &str| tree.number::<u64>(&queue(file)).map(|kib| kib.saturating_mul(1024));
    let inside = tree.names(&at);
    let part = |part: &String| {
        tree.text(&format!("{at}/{part}/partition"))?;
        let start: u64 = tree.number(&format!("{at}/{part}/start"))?;
        Some(Part { name: clean(part), start_bytes: start.saturating_mul(512) })
    };
    let level = tree.text(&format!("{at}/md/level")).filter(|level| !level.is_empty());
    Disk {
        name: clean(name),
        model: tree.text(&format!("{at}/device/model")).map(|text| clean(&text)),
        bytes,
        rotational: tree.number::<u8>(&queue("rotational")).map(|flag| flag == 1),
        node: node_at(tree, &at).map(u32::from),
        pcie: nics::pcie(tree, &format!("{at}/device/device")),
        scheduler: tree.text(&queue("scheduler")).map(|text| chosen(&text).unwrap_or_else(|| clean(&text))),
        write_cache: tree.text(&queue("write_cache")).map(|text| clean(&text)),
        logical_bytes: tree.number(&queue("logical_block_size")),
        physical_bytes: tree.number(&queue("physical_block_size")),
        optimal_bytes: tree.number(&queue("optimal_io_size")),
        request_bytes_max: kib("max_sectors_kb"),
        requests: tree.number(&queue("nr_requests")),
        read_ahead_bytes: kib("read_ahead_kb"),
        misaligned_bytes: tree.number(&format!("{at}/alignment_offset")),
        raid: level.map(|level| (clean(&level), tree.number(&format!("{at}/md/chunk_size")).unwrap_or(0))),
        members: tree.names(&format!("{at}/slaves")),
        parts: inside.iter().filter(|inner| inner.starts_with(name)).filter_map(part).collect(),
    }
}

/// Mounts of disks, of memory that files can be put into, and of networks.
#[must_use]
pub fn mounts(tree: &Tree) -> Vec<Mount> {
    const OTHERS: [&str; 9] = ["tmpfs", "nfs", "nfs4", "cifs", "ceph", "lustre", "zfs", "overlay", "fuse"];
    let mut found: Vec<Mount> = Vec::new();
    for line in tree.text("proc/self/mountinfo").unwrap_or_default().lines() {
        // proc(5): id, parent, device, root, place, options, any number of fields, a dash, kind, source, options of the file system.
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let (left, right): (Vec<&str>, Vec<&str>) = (left.split(' ').collect(), right.split(' ').collect());
        let ([_, _, _, _, at, options, ..], [kind, source, more]) = (&left[..], &right[..]) else { continue };
        let kept = source.starts_with("/dev/") || OTHERS.contains(kind) || kind.starts_with("fuse.");
        if !kept
            || at.starts_with("/sys")
            || at.starts_with("/run")
            || at.starts_with("/proc")
            || found.iter().any(|mount| mount.at == *at)
        {
            continue;
        }
        let mut all: Vec<String> = options.split(',').chain(more.split(',')).map(clean).collect();
        all.sort();
        all.dedup();
        found.push(Mount {
            at: clean(&at.replace("\\040", " ")),
            kind: clean(kind),
            source: clean(source),
            options: all,
        });
    }
    found
}
