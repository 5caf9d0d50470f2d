//! Servers whose key we know.
//!
//! For: a client that connects by host and port instead of by ticket.
//! In and out: the file `trusted` ↔ keys per address.
//! Invariants: an address has the keys of all its lines (by hand, a second one may stand there while a host changes its key);
//!   `trust` leaves exactly one; nothing is ever learned without the user's word.
//! Absent on purpose: trust on first use; names that match several hosts.

use super::authorized::NotedKey;
use super::keys::{clean_comment, key_text, parse_key};
use super::{Home, IdentityError, LineFault, PublicKey, each_line};

/// Keys of servers, below LONGHAUL_HOME.
pub const FILE: &str = "trusted";

/// The one spelling under which an address stands in the file: lower case, with its port.
///
/// # Errors
/// No `host:port` (`[v6]:port` for addresses with colons).
pub fn spell(host_port: &str) -> Result<String, LineFault> {
    let (host, port) = host_port.rsplit_once(':').ok_or(LineFault::BadHostPort)?;
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let good_host = match bracketed {
        Some(inner) => inner.split('%').next().is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok()),
        None => {
            !host.is_empty() && !host.contains([':', '[', ']', '/', '@', '#']) && !host.contains(char::is_whitespace)
        }
    };
    let port: u16 = port.parse().ok().filter(|&port| port != 0).ok_or(LineFault::BadHostPort)?;
    if good_host { Ok(format!("{}:{port}", host.to_lowercase())) } else { Err(LineFault::BadHostPort) }
}

/// `host:port longhaul-ed25519 BASE64 [comment]`.
fn parse(line: &str) -> Result<(String, PublicKey), LineFault> {
    parse_noted(line).map(|(address, it)| (address, it.key))
}

fn parse_noted(line: &str) -> Result<(String, NotedKey), LineFault> {
    let (host_port, rest) = line.split_once([' ', '\t']).ok_or(LineFault::BadHostPort)?;
    let (key, note) = parse_key(rest)?;
    Ok((spell(host_port)?, NotedKey { key, note: clean_comment(note) }))
}

/// All addresses with their keys, in the order of the file.
///
/// # Errors
/// The file cannot be read, or one of its lines cannot.
pub fn all(home: &Home) -> Result<Vec<(String, NotedKey)>, IdentityError> {
    let mut all = Vec::new();
    each_line(&home.path(FILE), &home.list(FILE)?, |line| {
        all.push(parse_noted(line)?);
        Ok(())
    })?;
    Ok(all)
}

/// The keys known for an address; empty if none.
///
/// # Errors
/// The file cannot be read, or one of its lines cannot.
pub fn look_up(home: &Home, host_port: &str) -> Result<Vec<PublicKey>, IdentityError> {
    let wanted = spell(host_port).map_err(|_| IdentityError::HostPort(host_port.to_owned()))?;
    let mut keys = Vec::new();
    each_line(&home.path(FILE), &home.list(FILE)?, |line| {
        let (address, key) = parse(line)?;
        if address == wanted {
            keys.push(key);
        }
        Ok(())
    })?;
    Ok(keys)
}

/// From now on `key`, and no other, is this address's. The keys that were, are the answer.
///
/// # Errors
/// The file cannot be read or written, or one of its lines cannot be read.
pub fn trust(home: &Home, host_port: &str, key: &PublicKey) -> Result<Vec<PublicKey>, IdentityError> {
    let wanted = spell(host_port).map_err(|_| IdentityError::HostPort(host_port.to_owned()))?;
    let before = look_up(home, host_port)?;
    home.edit(FILE, |lines| {
        lines.retain(|line| parse(line.trim()).map_or(true, |(address, _)| address != wanted));
        lines.push(format!("{wanted} {}", key_text(key)));
    })?;
    Ok(before)
}
