//! The lab's last will: what still runs in its hosts is ended when it ends.
//!
//! For: every end of a lab, `kill -9` of it included. In and out: a pipe that ends with the lab, the numbers of its two network
//! namespaces, and the files to remove.
//! Invariants: only processes inside of these namespaces are ended; a namespace's number is not given anew while anything is in it.
//! Absent on purpose: anything while the lab lives.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use sys::netns;

use crate::arguments::GuardArguments;
use crate::hosts::Lab;

/// Looks for processes so often before giving up: new ones may be started while old ones are ended.
const ROUNDS: u32 = 50;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// The guard as the lab sees it.
#[derive(Debug)]
pub struct Guard(Child);

impl Guard {
    /// Starts it; `files` are removed at the end.
    pub fn start(lab: &Lab, files: &[PathBuf]) -> anyhow::Result<Guard> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["lab", "guard"]);
        for host in &lab.hosts {
            command.arg("--host").arg(netns::number(host)?.to_string());
        }
        for file in files {
            command.arg("--file").arg(file);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = netns::detach(sys::signals::unblock_in_child(&mut command)).spawn();
        Ok(Guard(child.context("the lab's guard cannot be started")?))
    }

    /// Lets it do its work now, and waits for that.
    pub fn finish(mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// `lab guard`: waits for the end of the lab, then cleans.
pub fn run(arguments: &GuardArguments) -> anyhow::Result<u8> {
    let mut nothing = Vec::new();
    std::io::stdin().read_to_end(&mut nothing)?;
    end_all_of(&arguments.hosts);
    for file in &arguments.files {
        let _ = std::fs::remove_file(file);
        let _ = std::fs::remove_dir_all(file);
    }
    Ok(0)
}

/// Ends every process of these network namespaces (by their numbers) but this one, new ones included, until none is left or a second has passed.
pub(crate) fn end_all_of(hosts: &[u64]) {
    for _ in 0..ROUNDS {
        if end_all(hosts) == 0 {
            break;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Ends every process of these network namespaces but this one; how many there were.
fn end_all(hosts: &[u64]) -> usize {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let mut count = 0;
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let is_inside = std::fs::metadata(entry.path().join("ns/net")).is_ok_and(|meta| hosts.contains(&meta.ino()));
        if is_inside
            && number != own
            && let Some(pid) = Pid::from_raw(number)
        {
            count += 1;
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    count
}
