//! Times as FTP writes them: UTC, `YYYYMMDDhhmmss` (RFC 3659 section 2.3).
//!
//! For: MDTM, MFMT, MFF, SITE UTIME, the facts of MLSD, the dates of LIST.
//! In and out: seconds since 1970 → digits, and back.
//! Invariants: a day that is in no calendar is no time; what is written is read as the same second.
//! Absent on purpose: zones; what time it is.

use alloc::format;
use alloc::string::String;

const DAY_S: i64 = 86_400;

/// Year, month, day of a day counted from 1970-01-01: H. Hinnant, "chrono-compatible low-level date algorithms".
#[must_use]
pub const fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let next_year = if month <= 2 { 1 } else { 0 };
    (year + era * 400 + next_year, month, day)
}

/// The day of a date, counted from 1970-01-01; the same source.
const fn day_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let shifted = (month + 9) % 12;
    let of_era = year.rem_euclid(400);
    let of_year = (153 * shifted + 2) / 5 + day - 1;
    year.div_euclid(400) * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Writes a time. One outside the years 0 to 9999, which no file should have, is written as the nearest that has four digits.
#[must_use]
pub fn written(seconds: i64) -> String {
    let (first, last) = (day_of(0, 1, 1) * DAY_S, day_of(10_000, 1, 1) * DAY_S - 1);
    let seconds = seconds.clamp(first, last);
    let (year, month, day) = date(seconds.div_euclid(DAY_S));
    let (hour, minute, second) = clock(seconds);
    format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}")
}

/// Hour, minute and second of its day.
#[must_use]
pub const fn clock(seconds: i64) -> (i64, i64, i64) {
    let of_day = seconds.rem_euclid(DAY_S);
    (of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// Reads a time; a fraction of a second, which may follow, is let go. A leap second (`60`) is the second after it.
#[must_use]
pub fn parse(text: &[u8]) -> Option<i64> {
    let (digits, fraction) = text.split_at_checked(14)?;
    let is_fraction = matches!(fraction, [b'.', rest @ ..] if !rest.is_empty() && rest.iter().all(u8::is_ascii_digit));
    if !digits.iter().all(u8::is_ascii_digit) || !(fraction.is_empty() || is_fraction) {
        return None;
    }
    let number =
        |from: usize, to: usize| digits[from..to].iter().fold(0i64, |all, digit| all * 10 + i64::from(digit - b'0'));
    let (year, month, day) = (number(0, 4), number(4, 6), number(6, 8));
    let (hour, minute, second) = (number(8, 10), number(10, 12), number(12, 14));
    if !(1..=12).contains(&month) || day < 1 || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = day_of(year, month, day);
    // The 31st of a month of 30 days is a day of the next.
    (date(days) == (year, month, day)).then_some(days * DAY_S + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_digits_and_read_as_the_same_second() {
        for (seconds, digits) in [
            (0, "19700101000000"),
            (951_782_400, "20000229000000"),
            (1_709_164_800, "20240229000000"),
            (-1, "19691231235959"),
            (253_402_300_799, "99991231235959"),
            (-62_167_219_200, "00000101000000"),
        ] {
            assert_eq!(written(seconds), digits);
            assert_eq!(parse(digits.as_bytes()), Some(seconds));
        }
        for seconds in (-62_167_219_200..253_402_300_799).step_by(97_654_321) {
            assert_eq!(parse(written(seconds).as_bytes()), Some(seconds));
        }
        assert_eq!(written(i64::MAX), "99991231235959");
        assert_eq!(written(i64::MIN), "00000101000000");
        assert_eq!(parse(b"20000229000000.125"), Some(951_782_400));
        assert_eq!(parse(b"20161231235960"), parse(b"20170101000000"), "a leap second");
    }

    #[test]
    fn a_day_of_no_calendar_is_no_time() {
        for bad in [
            &b""[..],
            b"2000",
            b"20001301000000",
            b"20000001000000",
            b"20000230000000",
            b"19000229000000",
            b"20230431000000",
            b"20000101240000",
            b"20000101006000",
            b"20000101000061",
            b"2000010100000a",
            b"20000101000000.",
            b"20000101000000.x",
            b"200001010000000",
            b" 20000101000000",
        ] {
            assert_eq!(parse(bad), None, "{}", bad.escape_ascii());
        }
    }
}
