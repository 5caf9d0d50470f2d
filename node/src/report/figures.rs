//! How much of a job is done, and how long the rest takes.
//!
//! For: bars, lines and JSON alike.
//! In and out: `Progress` → a fraction, whole percent, seconds.
//! Invariants: never above 100 %, and 100 % only when all is done; while the scan runs no time of arrival is claimed.
//! Absent on purpose: showing them.

use super::Progress;

/// How much is done, from 0 to 1; `None` while the total is unknown or grows.
#[must_use]
pub fn fraction(progress: &Progress) -> Option<f64> {
    let total = progress.bytes_total.filter(|_| progress.scan_done)?;
    if total == 0 {
        // Only empty files, folders and links: their count is what moves.
        return Some(ratio(progress.files_done, progress.files_total));
    }
    Some(ratio(progress.bytes_done, total))
}

fn ratio(done: u64, total: u64) -> f64 {
    if total == 0 {
        return 1.0;
    }
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let ratio = done as f64 / total as f64;
    ratio.min(1.0)
}

/// Whole percent, rounded down, and 100 only when nothing is missing.
#[must_use]
pub fn percent(progress: &Progress) -> Option<u8> {
    let fraction = fraction(progress)?;
    let is_done = progress.bytes_total.is_some_and(|total| progress.bytes_done >= total)
        && progress.files_done.saturating_add(progress.entries_failed) >= progress.files_total;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100")]
    let percent = (fraction * 100.0).floor() as u8;
    Some(if is_done { percent } else { percent.min(99) })
}

/// Seconds still to go at the rate that is shown; `None` where that would be a guess.
#[must_use]
pub fn eta_seconds(progress: &Progress) -> Option<f64> {
    let total = progress.bytes_total.filter(|_| progress.scan_done)?;
    let rate_bps = progress.shown_bps();
    if progress.elapsed.as_secs_f64() < 1.0 || rate_bps <= 0.0 {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let missing_bits = total.saturating_sub(progress.bytes_done) as f64 * 8.0;
    Some(missing_bits / rate_bps)
}
