//! Moments as people read them.
//!
//! For: lists of what was done and of what holds until when.
//! In and out: seconds since 1970 → date and time of day, UTC.
//! Invariants: one form everywhere, which sorts as text in the order of time.
//! Absent on purpose: time zones (a static binary has no table of them), clocks, reading dates.

/// Days from 0000-03-01 to 1970-01-01 in the Gregorian calendar.
const DAYS_TO_1970: u64 = 719_468;
/// Days of 400 years, after which the calendar repeats.
const DAYS_PER_ERA: u64 = 146_097;

/// `2026-11-25 09:16:09`, UTC, of seconds since 1970.
#[must_use]
pub fn show_utc(unix_s: u64) -> String {
    let (year, month, day) = date(unix_s / 86_400);
    let (hour, minute, second) = (unix_s / 3600 % 24, unix_s / 60 % 60, unix_s % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Days since 1970 → year, month, day. Years are taken to begin in March, so that the leap day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_TO_1970;
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_dates_also_at_leap_days_and_ends_of_years() {
        for (unix_s, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_709_251_199, "2024-02-29 23:59:59"),
            (1_767_225_599, "2025-12-31 23:59:59"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(show_utc(unix_s), text, "{unix_s}");
        }
    }
}
