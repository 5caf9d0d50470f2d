//! Units: rates, sizes and durations as the user writes and reads them.
//!
//! For: one spelling of each quantity on the command line, in the config file and on the screen.
//! In and out: text → bit/s, bytes, `Duration`; numbers → text with its unit written out.
//! Invariants: `b` alone is never accepted (bit or byte?), nor a number without a unit; links are shown in bit/s, disks in B/s;
//!   what `exact_*` prints is parsed back to the same number.
//! Absent on purpose: locale, and guessing what an ambiguous unit meant.

use std::fmt;
use std::time::Duration;

/// Why a quantity could not be read; its text says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitError {
    /// No digits at the front.
    NoNumber,
    /// More than digits and one point, or more than 9 decimals.
    BadNumber,
    /// A number without a unit.
    NoUnit { example: &'static str },
    /// A unit that does not exist here, or that could mean two things.
    BadUnit { unit: String, example: &'static str },
    /// Above 2^64 − 1 of the base unit.
    TooBig,
    /// Zero, where only more than zero makes sense.
    Zero,
}

impl fmt::Display for UnitError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNumber => write!(out, "there is no number"),
            Self::BadNumber => write!(out, "the number is not digits with at most 9 decimals"),
            Self::NoUnit { example } => {
                write!(out, "the unit is missing; write for example {example}")
            }
            Self::BadUnit { unit, example } => {
                write!(out, "the unit '{unit}' is unknown or could mean two things; write for example {example}")
            }
            Self::TooBig => write!(out, "the number is too big"),
            Self::Zero => write!(out, "zero would never move anything; leave the option out instead"),
        }
    }
}

impl std::error::Error for UnitError {}

/// Examples shown in errors.
const RATE_EXAMPLE: &str = "10Gbit, 2.5Gbit/s or 1.5GB/s";
const SIZE_EXAMPLE: &str = "64MiB, 1GB or 512B";
const TIME_EXAMPLE: &str = "30s, 500ms or 2min";

/// A decimal number kept exact: `digits / 10^decimals`.
struct Decimal {
    digits: u128,
    decimals: u32,
}

impl Decimal {
    /// The number times `scale`, rounded down.
    fn times(&self, scale: u128) -> Result<u64, UnitError> {
        let product = self.digits.checked_mul(scale).ok_or(UnitError::TooBig)?;
        u64::try_from(product / 10_u128.pow(self.decimals)).map_err(|_| UnitError::TooBig)
    }
}

/// Cuts `1.5 GB/s` into its number and its unit.
fn split(text: &str) -> Result<(Decimal, &str), UnitError> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if number.is_empty() {
        return Err(UnitError::NoNumber);
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || fraction.len() > 9 || (number.contains('.') && fraction.is_empty())
    {
        return Err(UnitError::BadNumber);
    }
    if whole.len() > 20 {
        return Err(UnitError::TooBig);
    }
    let mut digits: u128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        digits = digits * 10 + u128::from(digit - b'0');
    }
    #[expect(clippy::cast_possible_truncation, reason = "at most 9, checked above")]
    let decimals = fraction.len() as u32;
    Ok((Decimal { digits, decimals }, unit.trim_start()))
}

/// `k` → 10^3, `Ki` → 2^10 and so on; the case of the letter does not matter, because nothing here is a thousandth.
fn prefix(text: &str) -> Option<u128> {
    Some(match text {
        "" => 1,
        "k" | "K" => 1_000,
        "M" | "m" => 1_000_000,
        "G" | "g" => 1_000_000_000,
        "T" | "t" => 1_000_000_000_000,
        "Ki" | "ki" => 1 << 10,
        "Mi" | "mi" => 1 << 20,
        "Gi" | "gi" => 1 << 30,
        "Ti" | "ti" => 1 << 40,
        _ => return None,
    })
}

/// Reads a rate, `10Gbit`, `10Gbit/s`, `10Gbps`, `1.5GB/s`, `100MiB/s`, into bit/s.
pub fn parse_rate(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split(text)?;
    if unit.is_empty() {
        return Err(UnitError::NoUnit { example: RATE_EXAMPLE });
    }
    let bits = unit.strip_suffix("bit/s").or_else(|| unit.strip_suffix("bit")).or_else(|| unit.strip_suffix("bps"));
    let scale = match bits {
        Some(letters) => prefix(letters),
        None => unit.strip_suffix("B/s").and_then(prefix).map(|scale| scale * 8),
    };
    let scale = scale.ok_or_else(|| UnitError::BadUnit { unit: unit.to_owned(), example: RATE_EXAMPLE })?;
    match number.times(scale)? {
        0 => Err(UnitError::Zero),
        rate_bps => Ok(rate_bps),
    }
}

/// Reads a size, `64MiB`, `1GB`, `512B`, into bytes.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split(text)?;
    if unit.is_empty() {
        return Err(UnitError::NoUnit { example: SIZE_EXAMPLE });
    }
    let scale = unit.strip_suffix('B').and_then(prefix);
    let scale = scale.ok_or_else(|| UnitError::BadUnit { unit: unit.to_owned(), example: SIZE_EXAMPLE })?;
    match number.times(scale)? {
        0 => Err(UnitError::Zero),
        bytes => Ok(bytes),
    }
}

/// Reads a duration, `30s`, `500ms`, `2min`, `1h`; a bare number is seconds, as the option's name says.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let (number, unit) = split(text)?;
    let scale_ns: u128 = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "" | "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => {
            return Err(UnitError::BadUnit { unit: unit.to_owned(), example: TIME_EXAMPLE });
        }
    };
    match number.times(scale_ns)? {
        0 => Err(UnitError::Zero),
        ns => Ok(Duration::from_nanos(ns)),
    }
}

/// The shortest spelling that `parse_rate` reads back to the same bit/s.
#[must_use]
pub fn exact_rate(rate_bps: u64) -> String {
    let (value, letter) =
        exact(rate_bps, &[(1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")]);
    format!("{value}{letter}bit/s")
}

/// The shortest spelling that `parse_size` reads back to the same bytes.
#[must_use]
pub fn exact_size(bytes: u64) -> String {
    let binary = exact(bytes, &[(1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")]);
    let decimal = exact(bytes, &[(1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")]);
    // The smaller number is the shorter word; equal only when neither divides.
    let (value, letter) = if decimal.0 < binary.0 { decimal } else { binary };
    format!("{value}{letter}B")
}

/// The spelling that `parse_duration` reads back to the same time.
#[must_use]
pub fn exact_duration(time: Duration) -> String {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let scales =
        [(3_600_000_000_000, "h"), (60_000_000_000, "min"), (1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let (value, unit) = exact(ns, &scales);
    if unit.is_empty() { format!("{value}ns") } else { format!("{value}{unit}") }
}

/// The biggest scale that divides `value` without a rest.
fn exact(value: u64, scales: &[(u64, &'static str)]) -> (u64, &'static str) {
    for &(scale, letter) in scales {
        if value != 0 && value.is_multiple_of(scale) {
            return (value / scale, letter);
        }
    }
    (value, "")
}

/// A link's rate for the eye: `9.41 Gbit/s`.
#[must_use]
pub fn show_bits_per_second(rate_bps: f64) -> String {
    format!("{}bit/s", show_scaled(rate_bps))
}

/// A disk's rate for the eye: `1.18 GB/s`.
#[must_use]
pub fn show_bytes_per_second(bytes_per_second: f64) -> String {
    format!("{}B/s", show_scaled(bytes_per_second))
}

/// A size for the eye: `4.29 GB`, `512 B`. Decimal, so that it can be set beside rates.
#[must_use]
pub fn show_bytes(bytes: u64) -> String {
    if bytes < 1_000 {
        return format!("{bytes} B");
    }
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let scaled = show_scaled(bytes as f64);
    format!("{scaled}B")
}

/// A size of memory for the eye: `256 MiB`. Binary, because pages and grants are.
#[must_use]
pub fn show_memory(bytes: u64) -> String {
    const STEPS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    for (scale, unit) in STEPS {
        if bytes >= scale {
            #[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
            let value = bytes as f64 / scale as f64;
            return if bytes.is_multiple_of(scale) {
                format!("{value:.0} {unit}")
            } else {
                format!("{value:.1} {unit}")
            };
        }
    }
    format!("{bytes} B")
}

/// A time span for the eye: `0.84 s`, `12.3 s`, `4 min 10 s`, `2 h 03 min`.
#[must_use]
pub fn show_seconds(seconds: f64) -> String {
    if !seconds.is_finite() {
        return "unknown time".to_owned();
    }
    if seconds < 10.0 {
        return format!("{seconds:.2} s");
    }
    if seconds < 99.95 {
        return format!("{seconds:.1} s");
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "finite and ≥ 99 here; saturates far above any job"
    )]
    let whole = seconds.round() as u64;
    if whole < 3_600 {
        return format!("{} min {:02} s", whole / 60, whole % 60);
    }
    format!("{} h {:02} min", whole / 3_600, whole % 3_600 / 60)
}

/// A count with thousands set apart: `1 234 567`.
#[must_use]
pub fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Three significant digits and the decimal prefix, with the blank between: `9.41 G`.
fn show_scaled(value: f64) -> String {
    const STEPS: [(f64, &str); 5] = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (value, letter) = STEPS
        .iter()
        // 999.6 M is 1.00 G to three digits: step up before rounding would print four.
        .find(|(scale, _)| value >= scale * 0.9995)
        .map_or((value, ""), |(scale, letter)| (value / scale, *letter));
    if value < 9.995 {
        format!("{value:.2} {letter}")
    } else if value < 99.95 {
        format!("{value:.1} {letter}")
    } else {
        format!("{value:.0} {letter}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_are_read_as_bits_per_second() {
        for (text, rate_bps) in [
            ("10Gbit", 10_000_000_000),
            ("10Gbit/s", 10_000_000_000),
            ("10 Gbit/s", 10_000_000_000),
            ("10Gbps", 10_000_000_000),
            ("1.5GB/s", 12_000_000_000),
            ("100MiB/s", 838_860_800),
            ("64kbit", 64_000),
            ("64Kbit/s", 64_000),
            ("1Kibit/s", 1_024),
            ("1bit/s", 1),
            ("0.5B/s", 4),
            ("1Tbit", 1_000_000_000_000),
        ] {
            assert_eq!(parse_rate(text), Ok(rate_bps), "{text}");
        }
    }

    #[test]
    fn sizes_are_read_as_bytes() {
        for (text, bytes) in
            [("64MiB", 64 << 20), ("1GB", 1_000_000_000), ("512B", 512), ("1.5KiB", 1_536), ("2TiB", 2 << 40)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_could_mean_two_things_is_refused() {
        for text in [
            "10Gb",
            "10Gb/s",
            "10G",
            "10GB",
            "10",
            "",
            "GB/s",
            "1.2.3Gbit",
            "1.Gbit",
            ".5Gbit",
            "-1Gbit",
            "0Gbit",
            "1e9bit",
            "10 xbit",
        ] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
        for text in ["64M", "64Mb", "64Mbit", "64", "1e9B", "0B", "64MiB/s", "99999999999999999999999B", "30000000TiB"]
        {
            assert!(parse_size(text).is_err(), "{text}");
        }
        for text in ["30m", "s", "0", "1d"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_error_says_what_to_write() {
        assert!(parse_rate("10Gb").unwrap_err().to_string().contains("10Gbit"));
        assert!(parse_size("64").unwrap_err().to_string().contains("64MiB"));
        assert!(parse_duration("30m").unwrap_err().to_string().contains("2min"));
    }

    #[test]
    fn durations_are_read_as_seconds_when_bare() {
        assert_eq!(parse_duration("30"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("2.5"), Ok(Duration::from_millis(2_500)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2min"), Ok(Duration::from_secs(120)));
    }

    #[test]
    fn what_is_shown_has_three_digits_and_a_unit() {
        assert_eq!(show_bits_per_second(9_414_000_000.0), "9.41 Gbit/s");
        assert_eq!(show_bits_per_second(999_600_000.0), "1.00 Gbit/s");
        assert_eq!(show_bits_per_second(0.0), "0.00 bit/s");
        assert_eq!(show_bytes_per_second(118_000_000.0), "118 MB/s");
        assert_eq!(show_bytes(512), "512 B");
        assert_eq!(show_bytes(4_294_967_296), "4.29 GB");
        assert_eq!(show_memory(256 << 20), "256 MiB");
        assert_eq!(show_memory((256 << 20) + (1 << 19)), "256.5 MiB");
        assert_eq!(show_seconds(0.837), "0.84 s");
        assert_eq!(show_seconds(250.0), "4 min 10 s");
        assert_eq!(show_seconds(7_391.0), "2 h 03 min");
        assert_eq!(show_count(1_234_567), "1 234 567");
        assert_eq!(show_count(123), "123");
    }

    proptest! {
        #[test]
        fn an_exact_rate_is_read_back(rate_bps in 1_u64..) {
            prop_assert_eq!(parse_rate(&exact_rate(rate_bps)), Ok(rate_bps));
        }

        #[test]
        fn an_exact_size_is_read_back(bytes in 1_u64.., shift in 0_u32..40) {
            let bytes = (bytes >> 24 << shift).max(1);
            prop_assert_eq!(parse_size(&exact_size(bytes)), Ok(bytes));
        }

        #[test]
        fn an_exact_duration_is_read_back(ns in 1_u64..) {
            let time = Duration::from_nanos(ns);
            prop_assert_eq!(parse_duration(&exact_duration(time)), Ok(time));
        }

        #[test]
        fn no_text_makes_a_parser_panic(text in ".{0,40}") {
            let _ = parse_rate(&text);
            let _ = parse_size(&text);
            let _ = parse_duration(&text);
        }

        #[test]
        fn a_shown_rate_is_never_longer_than_the_column(rate_bps in 0.0_f64..1e16) {
            prop_assert!(show_bits_per_second(rate_bps).len() <= "999 Mbit/s".len() + 1);
        }
    }
}
