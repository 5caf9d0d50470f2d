//! Which RDMA devices this host has, and whether this program can use them.
//!
//! For: `host`, and refusals that say what to do. In and out: /sys/class/infiniband, /dev/infiniband, RLIMIT_MEMLOCK → devices and verdicts.
//! Absent on purpose: opening a device; changing anything.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::PROVIDERS;

const CLASS: &str = "/sys/class/infiniband";
/// A pool of bufs is locked whole; less than this is no pool.
const LOCKED_LEAST: u64 = 64 << 20;

/// Whether it is used where RDMA is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Use,
    /// It could be, and is not; why.
    Not(String),
    /// It cannot; why, and what to do.
    Cannot(String),
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The kernel's name.
    pub name: String,
    /// Its driver, as far as the kernel says.
    pub driver: String,
    /// `InfiniBand` or `Ethernet`; of the first port.
    pub link: String,
    /// The network device that its first port is on, if it is on one.
    pub netdev: Option<String>,
    /// Whether it is used.
    pub verdict: Verdict,
}

/// All of them, by name. Empty: the kernel has none.
#[must_use]
pub fn devices() -> Vec<Found> {
    let names = |at: &str| -> Vec<String> {
        let all = fs::read_dir(at).into_iter().flatten().flatten();
        let mut names: Vec<String> = all.filter_map(|it| it.file_name().into_string().ok()).collect();
        names.sort();
        names
    };
    names(CLASS).into_iter().map(look).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn look(name: String) -> Found {
    let port = format!("{CLASS}/{name}/ports/1");
    // A soft device has no driver of a bus; its name says whose it is where its user gave it one of the usual.
    let driver = fs::read_link(format!("{CLASS}/{name}/device/driver")).ok();
    let driver = driver.and_then(|it| Some(it.file_name()?.to_str()?.to_owned()));
    let driver = driver.unwrap_or_else(|| "soft".to_owned());
    let netdev = Some(read(&format!("{port}/gid_attrs/ndevs/0"))).filter(|it| !it.is_empty());
    let link = read(&format!("{port}/link_layer"));
    let state = read(&format!("{port}/state"));
    let verdict = judge(&name, &state);
    Found { name, driver, link, netdev, verdict }
}

fn judge(name: &str, state: &str) -> Verdict {
    if PROVIDERS.is_empty() {
        return Verdict::Cannot("RDMA is not in this build (make build-rdma)".to_owned());
    }
    let verbs = fs::read_dir("/sys/class/infiniband_verbs").into_iter().flatten().flatten();
    let node = verbs
        .filter_map(|it| it.file_name().into_string().ok())
        .find(|it| read(&format!("/sys/class/infiniband_verbs/{it}/ibdev")) == name);
    let Some(node) = node else {
        return Verdict::Cannot("the kernel offers it to no program: modprobe ib_uverbs".to_owned());
    };
    for (file, module) in [(node.as_str(), "ib_uverbs"), ("rdma_cm", "rdma_ucm")] {
        let path = format!("/dev/infiniband/{file}");
        if !Path::new(&path).exists() {
            return Verdict::Cannot(format!("there is no {path}: modprobe {module}, and give a container that device"));
        }
        if let Err(error) = fs::OpenOptions::new().read(true).write(true).open(&path) {
            return Verdict::Cannot(format!("{path} cannot be opened: {error}"));
        }
    }
    if !state.contains("ACTIVE") {
        return Verdict::Not(format!("its port is not up ({})", state.rsplit(' ').next().unwrap_or("unknown")));
    }
    match getrlimit(Resource::Memlock).current {
        Some(bytes) if bytes < LOCKED_LEAST && !rustix::process::geteuid().is_root() => Verdict::Cannot(format!(
            "only {} KiB may be locked: raise RLIMIT_MEMLOCK (`ulimit -l unlimited`, or LimitMEMLOCK=infinity in the unit)",
            bytes >> 10
        )),
        _ => Verdict::Use,
    }
}
