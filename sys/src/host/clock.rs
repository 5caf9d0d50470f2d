//! What time it is, and what the process has used.
//!
//! What it is for: books of time, rates, reports. In: nothing. Out: nanoseconds and bytes.
//! Invariants: `now_ns` never goes back and costs no system call (vDSO).
//! Absent on purpose: calendars and time zones.

use rustix::time::{ClockId, clock_gettime};

const NS_PER_S: u64 = 1_000_000_000;

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // The clocks asked for here count up from zero.
    time.tv_sec as u64 * NS_PER_S + time.tv_nsec as u64
}

/// Nanoseconds since some moment before the process began; goes on at the same pace whatever is done to the calendar.
pub fn now_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// Processor time of all threads of the process, user and system, those that have ended and the kernel's helper threads of
/// its rings included, in nanoseconds: the sum that `getrusage` tells in microseconds.
pub fn process_cpu_ns() -> u64 {
    read(ClockId::ProcessCPUTime)
}

/// Processor time of the calling thread, user and system, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::ThreadCPUTime)
}

/// How the kernel calls the calling thread.
pub fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// Time in which that thread of this process was ready to run and had no core, because others ran there or its group's quota was
/// used up, in nanoseconds: `run_delay` of kernel/sched/stats.h, the second figure of schedstat. 0 where the kernel does not tell.
pub fn run_delay_ns(thread: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|figure| figure.parse().ok()).unwrap_or(0)
}

/// The calendar in nanoseconds since 1970. May jump.
pub(crate) fn unix_ns() -> u64 {
    read(ClockId::Realtime)
}

/// The calendar: seconds and nanoseconds since 1970. May jump.
pub fn unix_time() -> (i64, u32) {
    let time = clock_gettime(ClockId::Realtime);
    (time.tv_sec, time.tv_nsec as u32)
}

/// The most memory the process has had at once, reserved huge pages as they are now included; bytes.
pub fn peak_memory_bytes() -> u64 {
    match std::fs::read_to_string("/proc/self/status") {
        Ok(status) => kib_line(&status, "VmHWM:") + kib_line(&status, "HugetlbPages:"),
        // Confined to a folder without /proc.
        Err(_) => peak_by_rusage(),
    }
}

/// The memory the process has now, reserved huge pages included; bytes. `None`: /proc is out of reach.
pub fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some(kib_line(&status, "VmRSS:") + kib_line(&status, "HugetlbPages:"))
}

/// The figure of a line like `VmHWM:     1234 kB`, in bytes; 0 if there is no such line.
pub(crate) fn kib_line(text: &str, label: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(label));
    let number = line.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse::<u64>().ok());
    number.unwrap_or(0) * 1024
}

/// Second choice: the kernel keeps this figure over `exec`, so that it may be that of whatever started us.
fn peak_by_rusage() -> u64 {
    // SAFETY: a `rusage` consists of integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable and of the type the call fills.
    let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    if result == 0 { usage.ru_maxrss as u64 * 1024 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_run_and_agree_with_the_standard_library() {
        let (start, cpu) = (now_ns(), thread_cpu_ns());
        let mut sum = 0u64;
        while now_ns() - start < 20_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let used = thread_cpu_ns() - cpu;
        assert!(used > 0 && used < 10 * NS_PER_S);
        assert!(process_cpu_ns() >= used);
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        assert!((since.as_secs() as i64 - unix_time().0).abs() <= 1);
    }

    #[test]
    fn a_thread_that_shares_its_core_waits_for_it() {
        if run_delay_ns(thread_id()) == 0 && !std::path::Path::new("/proc/self/schedstat").exists() {
            return; // a kernel without schedstat: nothing to look at
        }
        let core = crate::host::cores().expect("cores").numbers[0];
        let spin = move || {
            crate::host::pin_thread(core).expect("pinned");
            let (start, from) = (now_ns(), run_delay_ns(thread_id()));
            while now_ns() - start < 200_000_000 {
                std::hint::spin_loop();
            }
            (now_ns() - start, run_delay_ns(thread_id()) - from)
        };
        let both = [std::thread::spawn(spin), std::thread::spawn(spin)].map(|thread| thread.join().expect("spins"));
        let (wall, delay) = (both[0].0 + both[1].0, both[0].1 + both[1].1);
        assert!(delay > wall / 5 && delay < wall, "{delay} of {wall} ns");
    }

    #[test]
    fn memory_that_is_touched_shows_in_both_figures() {
        let before = peak_memory_bytes();
        let bytes = std::hint::black_box(vec![1u8; 64 << 20]);
        assert!(resident_bytes().expect("/proc") >= bytes.len() as u64);
        drop(bytes);
        assert!(peak_memory_bytes() >= 64 << 20 && peak_memory_bytes() >= before);
        assert!(peak_by_rusage() >= 64 << 20);
    }
}
