//! `NetworkPath`: two addresses between which payload goes.
//!
//! For: hosts with several links between them.
//! In and out: `REMOTE` or `LOCAL=REMOTE`, and perhaps `@WEIGHT` → addresses, and the same text again.
//! Invariants: addresses, not names: what a name leads to may be another link tomorrow; both are of one family.
//! Absent on purpose: ports, which are those of the session.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// One network path between this host and the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NetworkPath {
    /// This host's address; `None`: the system's choice.
    pub local: Option<IpAddr>,
    /// The other host's address.
    pub remote: IpAddr,
    /// Its share beside the other paths, 1 to 1,000,000; `None`: by the speed of the NICs, where both ends know them.
    pub weight: Option<u32>,
}

impl FromStr for NetworkPath {
    type Err = String;

    /// Reads `[LOCAL=]REMOTE[@WEIGHT]`.
    fn from_str(text: &str) -> Result<NetworkPath, String> {
        let (text, weight) = match text.rsplit_once('@') {
            Some((text, weight)) => (text, Some(weigh(weight)?)),
            None => (text, None),
        };
        let (local, remote) = match text.split_once('=') {
            Some((local, remote)) => (Some(address(local)?), address(remote)?),
            None => (None, address(text)?),
        };
        if local.is_some_and(|local| local.is_ipv4() != remote.is_ipv4()) {
            return Err(
                "one is an IPv4 address and the other an IPv6 one: no packet goes from the one to the other".into()
            );
        }
        Ok(NetworkPath { local, remote, weight })
    }
}

fn weigh(text: &str) -> Result<u32, String> {
    let wrong = || format!("'{text}' is no weight: a number from 1 to 1000000, as in 10.0.1.1=10.0.1.2@4");
    text.parse().ok().filter(|weight| (1..=1_000_000).contains(weight)).ok_or_else(wrong)
}

fn address(text: &str) -> Result<IpAddr, String> {
    let bare = text.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(text);
    bare.parse().map_err(|_| {
        format!("'{text}' is no IP address: write 10.0.1.2, or 10.0.1.1=10.0.1.2 to say where to leave from")
    })
}

impl TryFrom<String> for NetworkPath {
    type Error = String;

    fn try_from(text: String) -> Result<NetworkPath, String> {
        text.parse()
    }
}

impl From<NetworkPath> for String {
    fn from(path: NetworkPath) -> String {
        path.to_string()
    }
}

impl fmt::Display for NetworkPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(local) = self.local {
            write!(f, "{local}=")?;
        }
        write!(f, "{}", self.remote)?;
        self.weight.map_or(Ok(()), |weight| write!(f, "@{weight}"))
    }
}
