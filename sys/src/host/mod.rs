//! What this machine is and has.
//!
//! What it is for: facts for negotiation, plans and reports. In: nothing but the kernel's files. Out: plain values.
//! Invariants: reads only, but for `pin_thread` and `hold_thread`; a fact that cannot be learned is `None`, zero where so documented, or
//! an empty text, never a guess.
//! Absent on purpose: rules about facts, and every setting of the host. Ask before `confine`: /proc and /sys may be out
//! of reach afterwards.

// What time it is, and what the process has used.
pub mod clock;
// Waking a thread that waits in the kernel, and waiting for several descriptors.
pub mod event;
// Signals as something to read.
pub mod signals;
// The words of the command line, as others see them.
pub mod words;
// Descriptors that whoever started this process opened for it.
pub mod handed;
// Giving up rights, for good.
pub mod confine;
// System calls that fail, for tests.
pub mod forbid;
mod limits;
mod net;

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

pub use net::{Interface, InterfaceCounts, interface_counts, interfaces};

/// The number of the user whose rights files are opened with.
#[must_use]
pub fn user_number() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The cores that were granted to this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cores {
    /// Numbers of the cores the process may run on (taskset, cpuset).
    pub numbers: Vec<usize>,
    /// How many of them it can use at once: fewer than there are numbers where a cgroup limits processor time.
    pub count: usize,
}

/// Cores by affinity and by cgroup (versions 1 and 2). Errors: none on a sane kernel.
pub fn cores() -> io::Result<Cores> {
    // Of the process, not of the calling thread, which may be pinned.
    let set = sched_getaffinity(Some(rustix::process::getpid()))?;
    let numbers: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|number| set.is_set(*number)).collect();
    let quota = limits::cpu_quota().map_or(usize::MAX, |quota| (quota as usize).max(1));
    let count = numbers.len().min(quota).max(1);
    Ok(Cores { numbers, count })
}

/// Keeps the calling thread on one core. Errors: EINVAL if that core was not granted.
pub fn pin_thread(core: usize) -> io::Result<()> {
    hold_thread(&[core])
}

/// Keeps the calling thread on any of these cores. Errors: EINVAL if none of them was granted.
pub fn hold_thread(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &core in cores {
        if core >= CpuSet::MAX_CPU {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        set.set(core);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Of the machine.
    pub total_bytes: u64,
    /// That can be had without swapping, as the kernel estimates.
    pub available_bytes: u64,
    /// What a cgroup allows this process and its siblings, if it does.
    pub limit_bytes: Option<u64>,
}

/// Memory of the machine and of the cgroup. Errors: /proc is out of reach.
pub fn memory() -> io::Result<Memory> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    Ok(Memory {
        total_bytes: clock::kib_line(&text, "MemTotal:"),
        available_bytes: clock::kib_line(&text, "MemAvailable:"),
        limit_bytes: limits::memory_limit(),
    })
}

/// Threads that wanted to run, mean of the last minute. `None`: /proc is out of reach.
pub fn load() -> Option<f32> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Bytes that passed the memory controllers of this host so far, where the processor counts them and somebody mounted its counters
/// (Documentation/filesystems/resctrl.rst, `mbm_total_bytes`). `None`: they cannot be read.
pub fn memory_traffic_bytes() -> Option<u64> {
    traffic_below(std::path::Path::new("/sys/fs/resctrl/mon_data"))
}

fn traffic_below(domains: &std::path::Path) -> Option<u64> {
    let each = std::fs::read_dir(domains).ok()?.flatten();
    let counts = each.filter_map(|domain| {
        let text = std::fs::read_to_string(domain.path().join("mbm_total_bytes")).ok()?;
        text.trim().parse::<u64>().ok()
    });
    // A domain that says "Unavailable" has not been counting.
    counts.reduce(u64::saturating_add)
}

/// Changes with each boot of the machine: tells a restarted host from a restarted process. Errors: /proc is out of reach.
pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// The name of the host.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The kernel, like `6.18.4-generic`.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The processor's name for itself; empty if it does not tell (arm64).
pub fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    line.and_then(|rest| rest.split_once(':')).map_or(String::new(), |(_, name)| name.trim().to_owned())
}

/// The processor has AES instructions.
pub fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    let has = std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    let has = std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let has = false;
    has
}

/// Memory nodes; 1 on machines without NUMA.
pub fn numa_nodes() -> usize {
    let entries = std::fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let is_node = |name: &str| name.strip_prefix("node").is_some_and(|rest| rest.parse::<u32>().is_ok());
    entries.filter(|entry| entry.file_name().to_str().is_some_and(is_node)).count().max(1)
}

/// Reserved huge pages that nobody uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugePages {
    /// Of 2 MiB.
    pub free_2m: u64,
    /// Of 1 GiB.
    pub free_1g: u64,
}

/// Reserved huge pages; 0 where the kernel has none of a size.
pub fn huge_pages() -> HugePages {
    let free = |kib: u32| {
        let path = format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/free_hugepages");
        std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    HugePages { free_2m: free(2048), free_1g: free(1_048_576) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_memory_controllers_counted_is_summed_over_their_domains() {
        let folder = std::env::temp_dir().join(format!("longhaul-resctrl-{}", std::process::id()));
        assert_eq!(traffic_below(&folder), None, "not mounted");
        for (domain, text) in [("mon_L3_00", "123456\n"), ("mon_L3_01", "1000000\n"), ("mon_L3_02", "Unavailable\n")] {
            std::fs::create_dir_all(folder.join(domain)).expect("a folder");
            std::fs::write(folder.join(domain).join("mbm_total_bytes"), text).expect("a file");
        }
        assert_eq!(traffic_below(&folder), Some(1_123_456));
        std::fs::remove_dir_all(&folder).expect("it is there");
    }

    #[test]
    fn facts_of_this_machine_are_plausible() {
        let cores = cores().expect("cores");
        assert!(cores.count >= 1 && cores.count <= cores.numbers.len());
        let memory = memory().expect("memory");
        assert!(memory.total_bytes > 1 << 26 && memory.available_bytes <= memory.total_bytes);
        assert_eq!(boot_id().expect("boot id").len(), 36);
        assert!(load().expect("load") >= 0.0);
        assert!(!hostname().is_empty() && kernel_release().contains('.'));
        assert!(numa_nodes() >= 1);
    }

    #[test]
    fn a_pinned_thread_does_not_make_the_process_smaller() {
        let before = cores().expect("cores");
        let thread = std::thread::spawn(|| {
            let first = cores().expect("cores").numbers[0];
            pin_thread(first).expect("pin");
            assert_eq!(rustix::thread::sched_getcpu(), first);
            cores().expect("cores")
        });
        assert_eq!(thread.join().expect("thread"), before);
        assert_eq!(pin_thread(1 << 20).expect_err("no such core").raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn loopback_is_among_the_interfaces() {
        let all = interfaces().expect("interfaces");
        let loopback = all.iter().find(|one| one.name == "lo").expect("lo");
        assert!(loopback.loopback && loopback.mtu >= 1_500);
        if loopback.up {
            assert!(loopback.addresses.contains(&std::net::IpAddr::from([127, 0, 0, 1])));
        }
    }
}
