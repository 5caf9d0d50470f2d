//! What is to happen to a lab at which time.
//!
//! For: `--script FILE`. In and out: lines → events in order of time.
//! Invariants: the whole file is understood, and every value in it checked, before the lab starts.
//! Absent on purpose: conditions, loops, and commands (the lab's own command can do those with `lab set`).
//!
//! ```text
//! # time    what
//! at 5s     link 0 rate=50Mbit loss=2%
//! at 10s    link 0 down
//! at 20s    link 0 up
//! at 25s    host a address 10.99.0.7          (on link 0; "link 1 10.99.1.7" after "address" for another)
//! ```

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::hosts::Side;
use crate::settings::LinkSettings;
use text::units;

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// A link changes.
    Link {
        /// Which.
        link: usize,
        /// How, as `LinkSettings::apply_all` reads it.
        words: String,
    },
    /// A host gets another address.
    Address {
        /// Which.
        side: Side,
        /// On which link.
        link: usize,
        /// The new one.
        address: Ipv4Addr,
    },
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Time since the command was started.
    pub at: Duration,
    /// What happens.
    pub act: Act,
}

/// Reads a script. Errors: the line's number and what is wrong with it.
pub fn parse(text: &str, links: usize) -> Result<Vec<Event>, String> {
    let mut events = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            let event = parse_line(line, links).map_err(|why| format!("line {}: {why}", number + 1))?;
            events.push(event);
        }
    }
    // Stable: what stands first happens first.
    events.sort_by_key(|event: &Event| event.at);
    Ok(events)
}

fn parse_line(line: &str, links: usize) -> Result<Event, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |word: &str| {
        let found = word.parse::<usize>().ok().filter(|number| *number < links);
        found.ok_or_else(|| format!("there is no link '{word}'; they are numbered 0 to {}", links - 1))
    };
    let address = |word: &str| word.parse::<Ipv4Addr>().map_err(|_| format!("'{word}' is not an IPv4 address"));
    let side = |word: &str| Side::parse(word).ok_or_else(|| format!("'{word}' is no host; there are a and b"));
    let (at, act) = match words[..] {
        ["at", at, "link", link, ref rest @ ..] if !rest.is_empty() => {
            let words = rest.join(" ");
            LinkSettings::default().apply_all(&words)?;
            (at, Act::Link { link: number(link)?, words })
        }
        ["at", at, "host", host, "address", to] => {
            (at, Act::Address { side: side(host)?, link: 0, address: address(to)? })
        }
        ["at", at, "host", host, "address", "link", link, to] => {
            (at, Act::Address { side: side(host)?, link: number(link)?, address: address(to)? })
        }
        _ => {
            return Err("write `at TIME link N KEY=VALUE...` or `at TIME host a|b address [link N] ADDRESS`".to_owned());
        }
    };
    let at = match units::parse_duration(at) {
        Err(units::UnitError::Zero) => Duration::ZERO,
        other => other.map_err(|error| format!("'{at}': {error}"))?,
    };
    Ok(Event { at, act })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read_in_order_of_time_and_checked_whole() {
        let text = "# comment\nat 10s link 1 down\n\nat 500ms link 0 rate=50Mbit loss=2% # slow\nat 0s host b address 10.99.0.9\n";
        let events = parse(text, 2).unwrap();
        assert_eq!(events[0].act, Act::Address { side: Side::B, link: 0, address: Ipv4Addr::new(10, 99, 0, 9) });
        assert_eq!(events[1].at, Duration::from_millis(500));
        assert_eq!(events[1].act, Act::Link { link: 0, words: "rate=50Mbit loss=2%".to_owned() });
        assert_eq!(events[2].act, Act::Link { link: 1, words: "down".to_owned() });
    }

    #[test]
    fn every_wrong_line_is_named() {
        for line in [
            "at 1s link 2 down",
            "at 1s link 0",
            "at 1 s link 0 down",
            "at soon link 0 down",
            "at 1s link 0 rate=5",
            "at 1s host c address 10.99.0.9",
            "at 1s host a address ten",
            "link 0 down",
        ] {
            let error = parse(&format!("\n{line}"), 2).unwrap_err();
            assert!(error.starts_with("line 2: "), "{line}: {error}");
        }
    }
}
