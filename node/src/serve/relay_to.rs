//! Whom a daemon dials for its clients.
//!
//! For: `serve --relay-to`, and the key `relay_to` of the config file.
//! In and out: words → a list; a host and port as a client wrote them → may they be dialled?
//! Invariants: nothing is looked up: a name is permitted as a name, an address as an address; ports below 1024 only where they are named.
//! Absent on purpose: dialling, and proving who answers (serve/relay.rs).

use std::net::IpAddr;
use std::str::FromStr;

/// Ports below this are other services' (RFC 6335, 6).
const PORT_MIN: u16 = 1024;

/// One word of `--relay-to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayWord {
    /// `none`: nobody.
    Nobody,
    /// `HOST` or `HOST:PORT`.
    Host {
        /// In lower case, without brackets.
        host: String,
        /// `None`: any from 1024 on.
        port: Option<u16>,
    },
}

impl FromStr for RelayWord {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<RelayWord, Self::Err> {
        const WANTED: &str =
            "a host is wanted, with a port or without: 192.0.2.7, node7:5740, [2001:db8::1]:5740; or the word none";
        if text == "none" {
            return Ok(RelayWord::Nobody);
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or(WANTED)?,
            None if text.matches(':').count() > 1 => (text, ""),
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => Some(port.parse().ok().filter(|port| *port > 0).ok_or(WANTED)?),
            None if port.is_empty() => None,
            None => return Err(WANTED),
        };
        let is_good = |letter: char| letter.is_alphanumeric() || ".-_:%".contains(letter);
        if host.is_empty() || !host.chars().all(is_good) || (host.contains(':') && host.parse::<IpAddr>().is_err()) {
            return Err(WANTED);
        }
        Ok(RelayWord::Host { host: host.to_lowercase(), port })
    }
}

/// May this host be dialled for a client? `words`: what the daemon's user said; `None`: nothing.
#[must_use]
pub fn permits(words: Option<&[RelayWord]>, host: &str, port: u16) -> bool {
    let Some(words) = words else { return port >= PORT_MIN };
    let address = |text: &str| text.parse::<IpAddr>().ok().map(|it| it.to_canonical());
    words.iter().any(|word| {
        let RelayWord::Host { host: named, port: on } = word else { return false };
        let is_it = match (address(named), address(host)) {
            (Some(one), Some(other)) => one == other,
            (None, None) => *named == host.to_lowercase(),
            _ => false,
        };
        is_it && on.map_or(port >= PORT_MIN, |on| on == port)
    })
}

/// As `serve` takes them.
#[must_use]
pub fn show(words: Option<&[RelayWord]>) -> String {
    let Some(words) = words else { return "any host that proves the ticket's key".to_owned() };
    let one = |word: &RelayWord| match word {
        RelayWord::Nobody => "none".to_owned(),
        RelayWord::Host { host, port } => {
            let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
            port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"))
        }
    };
    words.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<RelayWord> {
        text.split(' ').map(|word| word.parse().expect("a good word")).collect()
    }

    #[test]
    fn only_hosts_and_ports_that_are_named_may_be_dialled() {
        let some = words("node7 192.0.2.7:443 [2001:DB8::1]:5740");
        for (host, port, may) in [
            ("node7", 5740, true),
            ("NODE7", 1024, true),
            ("node7", 1023, false),
            ("node7.example", 5740, false),
            ("192.0.2.7", 443, true),
            ("::ffff:192.0.2.7", 443, true),
            ("192.0.2.7", 5740, false),
            ("2001:db8:0::1", 5740, true),
            ("127.0.0.1", 5740, false),
        ] {
            assert_eq!(permits(Some(&some), host, port), may, "{host} {port}");
        }
        assert!(!permits(Some(&words("none")), "node7", 5740));
        assert!(permits(None, "anything", 1024) && !permits(None, "anything", 1023));
        assert_eq!(show(Some(&some)), "node7 192.0.2.7:443 [2001:db8::1]:5740");
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for bad in ["", ":1", "a b", "node7:", "node7:0", "node7:65536", "[::1", "[::1]5", "::g", "a/b", "longhaul://a"]
        {
            assert!(bad.parse::<RelayWord>().is_err(), "{bad}");
        }
    }
}
