//! Panics, and a hostile sender, on purpose and not.
//!
//! For: a mistake in one job that costs that job and no other, and the tests of that.
//! In and out: what a thread panicked with in, words out; in builds for tests, a place in, a panic, a wait or a rate that nothing holds out where the
//! environment asks for it, and a fault that nobody counts.
//! Absent on purpose: the boundaries themselves (worker threads in host.rs; the job driver and its threads in node).

use std::any::Any;

/// What a thread panicked with, in words; where it did is on standard error.
#[must_use]
pub fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no reason was given".to_owned())
}

/// In builds with debug assertions: a sender sends packets at the rate that the variable `LONGHAUL_TEST_RATE` says (B/s), whatever it is told.
#[cfg(debug_assertions)]
#[must_use]
pub fn rate_if_asked() -> Option<u64> {
    use std::sync::OnceLock;
    static ASKED: OnceLock<Option<u64>> = OnceLock::new();
    *ASKED.get_or_init(|| std::env::var("LONGHAUL_TEST_RATE").ok()?.parse().ok())
}

/// Nothing, in builds for use.
#[cfg(not(debug_assertions))]
#[must_use]
pub fn rate_if_asked() -> Option<u64> {
    None
}

/// In builds with debug assertions: panics if the variable `LONGHAUL_TEST_PANIC` is `place:name` and this path contains the name.
#[cfg(debug_assertions)]
pub fn panic_if_asked(place: &str, path: &[u8]) {
    use std::sync::OnceLock;
    static ASKED: OnceLock<Option<(String, String)>> = OnceLock::new();
    let read = || {
        let asked = std::env::var("LONGHAUL_TEST_PANIC").ok()?;
        asked.split_once(':').map(|(place, name)| (place.to_owned(), name.to_owned()))
    };
    if let Some((wanted, name)) = ASKED.get_or_init(read)
        && wanted == place
        && path.windows(name.len().max(1)).any(|part| part == name.as_bytes())
    {
        panic!("a test asked for it: {place}");
    }
}

/// Nothing, in builds for use.
#[cfg(not(debug_assertions))]
pub fn panic_if_asked(_: &str, _: &[u8]) {}

/// In builds with debug assertions: the fault of an entry whose path ends so is counted nowhere, if the variable `LONGHAUL_TEST_LOSE` says its end.
#[cfg(debug_assertions)]
#[must_use]
pub fn loses_if_asked(path: &[u8]) -> bool {
    std::env::var("LONGHAUL_TEST_LOSE").is_ok_and(|end| !end.is_empty() && path.ends_with(end.as_bytes()))
}

/// Never, in builds for use.
#[cfg(not(debug_assertions))]
#[must_use]
pub fn loses_if_asked(_: &[u8]) -> bool {
    false
}

/// In builds with debug assertions: a disk that is slow here, if the variable `LONGHAUL_TEST_WAIT` is `place:milliseconds`.
#[cfg(debug_assertions)]
pub fn wait_if_asked(place: &str) {
    let asked = std::env::var("LONGHAUL_TEST_WAIT").unwrap_or_default();
    if let Some((wanted, ms)) = asked.split_once(':')
        && wanted == place
    {
        std::thread::sleep(std::time::Duration::from_millis(ms.parse().unwrap_or(0)));
    }
}

/// Nothing, in builds for use.
#[cfg(not(debug_assertions))]
pub fn wait_if_asked(_: &str) {}

/// The same as `panic_if_asked` for a place that knows no path, once: `place:once`.
#[cfg(debug_assertions)]
pub fn panic_once_if_asked(place: &str) {
    use std::sync::atomic::{AtomicBool, Ordering};
    static DONE: AtomicBool = AtomicBool::new(false);
    let asked = std::env::var("LONGHAUL_TEST_PANIC").is_ok_and(|asked| asked == format!("{place}:once"));
    if asked && !DONE.swap(true, Ordering::Relaxed) {
        panic!("a test asked for it: {place}");
    }
}

/// Nothing, in builds for use.
#[cfg(not(debug_assertions))]
pub fn panic_once_if_asked(_: &str) {}
