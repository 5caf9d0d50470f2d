//! fio with the settings of a cell.
//!
//! For: a figure beside ours that somebody else's program made.
//! In and out: a cell → fio's command → rate and processor time.
//! Invariants: the same file, block, depth, I/O mode and flush; fio is a child that ends before its figure counts.
//! Absent on purpose: I/O modes that fio does not have.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use proto::storage::{IoMode, Way};

use super::cell::{By, Cell, Sweep};
use super::rig::Rig;

/// fio's name for itself, if it is installed.
pub fn version() -> Option<String> {
    let output = Command::new("fio").arg("--version").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The cell that fio can run beside ours.
pub fn of(cell: Cell) -> Option<Cell> {
    let fits = cell.sweep == Sweep::IoMode
        && cell.by == By::Uring
        && matches!(cell.io_mode, IoMode::Direct | IoMode::Buffered | IoMode::Early | IoMode::Dontcache);
    fits.then_some(Cell { by: By::Fio, ..cell })
}

/// 10^9 B/s and processor seconds per 10^9 bytes.
pub fn run(rig: &Rig, cell: Cell, time: Duration) -> anyhow::Result<(f64, f64)> {
    rig.clear(cell)?;
    let way = if cell.way == Way::Read { "read" } else { "write" };
    let mut fio = Command::new("fio");
    fio.args(["--name=longhaul", "--ioengine=io_uring", "--output-format=json", "--thread", "--overwrite=1"])
        .args(["--time_based=1", "--invalidate=1", "--fallocate=none", "--allow_file_create=0"])
        .arg(format!("--filename={}", rig.name(cell.way)))
        .arg(format!("--rw={way}"))
        .arg(format!("--bs={}", cell.block_bytes))
        .arg(format!("--iodepth={}", cell.depth))
        .arg(format!("--size={}", rig.bytes()))
        .arg(format!("--runtime={}ms", time.as_millis().max(1)))
        .arg(format!("--direct={}", u8::from(cell.io_mode == IoMode::Direct)))
        .arg(format!("--end_fsync={}", u8::from(cell.way == Way::Write)));
    match cell.io_mode {
        IoMode::Dontcache => _ = fio.arg("--uncached=1"),
        IoMode::Early => _ = fio.arg("--sync_file_range=write:8"),
        _ => {}
    }
    let output = fio.stdin(Stdio::null()).output().context("failed to start fio")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let json = said.find('{').map_or("", |at| &said[at..]);
    let value: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
    let job = &value["jobs"][0];
    let bytes = job[way]["io_bytes"].as_f64().unwrap_or(0.0);
    if !output.status.success() || bytes == 0.0 {
        ensure!(cell.io_mode != IoMode::Buffered, "fio failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        // An older fio has no such I/O mode: no figure, and none is made up.
        return Ok((0.0, 0.0));
    }
    // fio's runtime leaves the flush at the end out; its job's runtime has it.
    let ms = job["job_runtime"].as_f64().unwrap_or(0.0).max(job[way]["runtime"].as_f64().unwrap_or(0.0)).max(1.0);
    let cpu = (job["usr_cpu"].as_f64().unwrap_or(0.0) + job["sys_cpu"].as_f64().unwrap_or(0.0)) / 100.0 * ms / 1e3;
    Ok((bytes / ms / 1e6, cpu / (bytes / 1e9)))
}
