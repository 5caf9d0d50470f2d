//! A range of ports, as firewalls are told them.
//!
//! For: the far side of a host that ssh reaches, where only some ports are open.
//! In and out: `FIRST-LAST` or one port ⇄ `Ports`.
//! Invariants: never empty, never port 0.
//! Absent on purpose: listening (serve).

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Ports from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Ports {
    first: u16,
    last: u16,
}

/// A text that is no range of ports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no range of ports: write 50000-50010, or one port")]
pub struct PortsFault(String);

impl Ports {
    /// All of them, the first first.
    #[must_use]
    pub fn all(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }
}

impl FromStr for Ports {
    type Err = PortsFault;

    fn from_str(text: &str) -> Result<Ports, PortsFault> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |word: &str| word.trim().parse::<u16>().ok().filter(|port| *port > 0);
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Ports { first, last }),
            _ => Err(PortsFault(text.chars().take(40).collect())),
        }
    }
}

impl TryFrom<String> for Ports {
    type Error = PortsFault;

    fn try_from(text: String) -> Result<Ports, PortsFault> {
        text.parse()
    }
}

impl From<Ports> for String {
    fn from(ports: Ports) -> String {
        ports.to_string()
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            return write!(out, "{}", self.first);
        }
        write!(out, "{}-{}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_and_shown_and_what_is_none_is_refused() {
        for text in ["50000-50010", "7", "1-65535"] {
            assert_eq!(text.parse::<Ports>().unwrap().to_string(), text);
        }
        assert_eq!("5-7".parse::<Ports>().unwrap().all().collect::<Vec<_>>(), [5, 6, 7]);
        for text in ["", "-", "0", "0-5", "9-8", "1-65536", "1-2-3", "a-b"] {
            assert!(text.parse::<Ports>().is_err(), "{text}");
        }
    }
}
