//! What bounds a disk's rate, as far as the system tells.
//!
//! For: reading figures beside what cannot be exceeded.
//! In and out: a device number → lines of text, and the rate of a copy in memory.
//! Invariants: what sysfs does not say is left out, not guessed.
//! Absent on purpose: judging (`host show` does).

use std::path::Path;
use std::time::{Duration, Instant};

use crate::host::tree::Tree;
use crate::host::{disks, facts, text};

/// A copy larger than any cache.
const COPY_BYTES: usize = 64 << 20;
/// The best of several: what disturbs a copy only makes it slower.
const COPY_TIME: Duration = Duration::from_millis(100);

/// Lines, and 10^9 B/s of a copy in memory by one thread.
pub fn find(dev: u64) -> (Vec<String>, f64) {
    let (tree, memory_gbs) = (Tree::here(), copy_gbs());
    let mut lines = vec![format!("ceiling: a copy in memory by one thread {memory_gbs:.1} GB/s")];
    for node in facts::read(&tree).nodes {
        lines.extend(node.unbroken.map(|share| {
            format!("memory of node {}: {:.0} % of what is free in blocks of 2 MiB and more", node.id, share * 100.0)
        }));
    }
    match name_of(dev) {
        Some(name) => lines.extend(of_device(&tree, &name)),
        None => lines.push("ceiling of the device: not told (no block device of its own in sysfs)".to_owned()),
    }
    (lines, memory_gbs)
}

/// The disk below a device number; a partition's is the disk it is on.
fn name_of(dev: u64) -> Option<String> {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let path = Path::new("/sys/dev/block").join(format!("{major}:{minor}")).canonicalize().ok()?;
    let disk = if path.join("queue").is_dir() { &path } else { path.parent()? };
    Some(disk.file_name()?.to_string_lossy().into_owned())
}

fn of_device(tree: &Tree, name: &str) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(disks::read(tree).iter().find(|disk| disk.name == name).map(|it| format!("disk {}", text::disk(it))));
    lines.extend(tree.text(&format!("sys/block/{name}/loop/backing_file")).map(|file| format!("a loop over {file}")));
    let place = Path::new("/sys/block").join(name).canonicalize().unwrap_or_default();
    let link = place.ancestors().find_map(|it| {
        let speed = std::fs::read_to_string(it.join("current_link_speed")).ok()?;
        let width = std::fs::read_to_string(it.join("current_link_width")).ok()?;
        Some(format!("ceiling: PCIe link of {name}: {}, {} lanes", speed.trim(), width.trim()))
    });
    lines.push(link.unwrap_or_else(|| format!("ceiling of {name}'s link: not told")));
    lines
}

fn copy_gbs() -> f64 {
    let (from, mut to) = (vec![1_u8; COPY_BYTES], vec![0_u8; COPY_BYTES]);
    let (end, mut best) = (Instant::now() + COPY_TIME, Duration::MAX);
    while Instant::now() < end {
        let start = Instant::now();
        to.copy_from_slice(&from);
        best = best.min(start.elapsed());
        std::hint::black_box(&mut to);
    }
    COPY_BYTES as f64 / best.as_secs_f64() / 1e9
}
