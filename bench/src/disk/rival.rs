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
use crate::race::{Contestant, Reading, Words, reading};

/// It with the settings of a cell.
pub fn contestant(cell: Cell) -> Contestant {
    let mode = match cell.io_mode {
        IoMode::Dontcache => "--uncached=1",
        IoMode::Early => "--sync_file_range=write:8",
        _ => "",
    };
    let (way, direct) = (cell.way.name(), u8::from(cell.io_mode == IoMode::Direct));
    let (block, depth, flush) = (cell.block_bytes, cell.depth, u8::from(cell.way == Way::Write));
    Contestant {
        name: "fio".to_owned(),
        needs: vec!["fio".to_owned()],
        version: Words::parse("fio --version"),
        client: Words::parse(&format!(
            "fio --name=longhaul --ioengine=io_uring --output-format=json --thread --overwrite=1 --time_based=1 --invalidate=1 \
             --fallocate=none --allow_file_create=0 --filename={{src}} --size={{bytes}} --runtime={{ms}}ms --rw={way} --bs={block} \
             --iodepth={depth} --direct={direct} --end_fsync={flush} {mode}"
        )),
        reading: Reading::Fio,
        ..Contestant::default()
    }
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
    let (bytes, ms) = (rig.bytes().to_string(), time.as_millis().max(1).to_string());
    let words = contestant(cell).client.fill(&[("src", &rig.name(cell.way)), ("bytes", &bytes), ("ms", &ms)]);
    let output = Command::new(&words[0]).args(&words[1..]).stdin(Stdio::null()).output();
    let output = output.context("failed to start fio")?;
    match reading::fio(&String::from_utf8_lossy(&output.stdout), cell.way.name()) {
        Ok(moved) if output.status.success() => {
            Ok((moved.bytes / moved.seconds / 1e9, moved.cpu_s / (moved.bytes / 1e9)))
        }
        _ => {
            let why = String::from_utf8_lossy(&output.stderr);
            ensure!(cell.io_mode != IoMode::Buffered, "fio failed: {}", why.trim());
            // An older fio has no such I/O mode: no figure, and none is made up.
            Ok((0.0, 0.0))
        }
    }
}
