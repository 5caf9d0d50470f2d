//! Where a data connection goes, as FTP writes it.
//!
//! For: PORT, EPRT, PASV, EPSV, and the replies 227 and 229.
//! In and out: text → addresses, and back (RFC 959 section 4.1.2, RFC 2428).
//! Invariants: strict: each number in its range, in digits alone, nothing before or behind; what is written is read as the same address.
//! Absent on purpose: whether to connect there, except `may_dial`.

use alloc::format;
use alloc::string::String;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::str::FromStr;

/// Ports below are those of others' services (RFC 2577 section 3).
pub const PORT_MIN: u16 = 1024;

/// What EPSV asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extended {
    /// A port, of the family that the control connection has.
    Any,
    /// A port of IPv4 (1) or of IPv6 (2).
    Family(u8),
    /// Nothing but EPSV from now on.
    All,
}

/// Digits alone: `parse` takes a sign too.
fn number<N: FromStr>(text: &str) -> Option<N> {
    (!text.is_empty() && text.bytes().all(|it| it.is_ascii_digit())).then(|| text.parse().ok())?
}

/// `h1,h2,h3,h4,p1,p2` (RFC 959 section 4.1.2).
#[must_use]
pub fn parse_port(text: &[u8]) -> Option<SocketAddr> {
    let mut numbers = [0u8; 6];
    let mut words = core::str::from_utf8(text).ok()?.split(',');
    for it in &mut numbers {
        *it = number(words.next()?)?;
    }
    let [a, b, c, d, high, low] = numbers;
    words.next().is_none().then(|| SocketAddr::new([a, b, c, d].into(), u16::from_be_bytes([high, low])))
}

/// `|1|132.235.1.2|6275|` (RFC 2428 section 2).
#[must_use]
pub fn parse_eprt(text: &[u8]) -> Option<SocketAddr> {
    let text = core::str::from_utf8(text).ok()?;
    let mark = text.chars().next().filter(char::is_ascii_graphic)?;
    let mut words = text[1..].split(mark);
    let (family, address, port) = (words.next()?, words.next()?.parse::<IpAddr>().ok()?, number::<u16>(words.next()?)?);
    let ends = words.next() == Some("") && words.next().is_none();
    let fits = matches!((family, address), ("1", IpAddr::V4(_)) | ("2", IpAddr::V6(_)));
    (fits && ends && port > 0).then(|| SocketAddr::new(address, port))
}

/// What stands behind EPSV.
#[must_use]
pub fn parse_extended(text: &[u8]) -> Option<Extended> {
    match text {
        b"" => Some(Extended::Any),
        b"1" => Some(Extended::Family(1)),
        b"2" => Some(Extended::Family(2)),
        all if all.eq_ignore_ascii_case(b"ALL") => Some(Extended::All),
        _ => None,
    }
}

/// What 227 says: `h1,h2,h3,h4,p1,p2`.
#[must_use]
pub fn port_words(address: Ipv4Addr, port: u16) -> String {
    let [a, b, c, d] = address.octets();
    format!("{a},{b},{c},{d},{},{}", port >> 8, port & 255)
}

/// The address in the text of a 227, in brackets as a rule; some servers leave them out (RFC 1123 section 4.1.2.6).
#[must_use]
pub fn parse_pasv_reply(text: &[u8]) -> Option<SocketAddr> {
    let is_part = |byte: &u8| byte.is_ascii_digit() || *byte == b',';
    text.split(|byte| !is_part(byte)).find_map(parse_port).filter(|it| it.port() > 0)
}

/// The port in the text of a 229: `(|||6446|)` (RFC 2428 section 3).
#[must_use]
pub fn parse_epsv_reply(text: &[u8]) -> Option<u16> {
    let from = text.iter().rposition(|&byte| byte == b'(')?;
    let inner = &text[from + 1..];
    let inner = core::str::from_utf8(&inner[..inner.iter().position(|&byte| byte == b')')?]).ok()?;
    let mark = inner.chars().next().filter(|it| it.is_ascii_graphic() && !it.is_ascii_digit())?;
    let mut words = inner.split(mark);
    // Before the first mark, between it and the second, and the third: nothing.
    let empty = [words.next()?, words.next()?, words.next()?];
    let port = number::<u16>(words.next()?)?;
    let ends = words.next() == Some("") && words.next().is_none();
    (empty == [""; 3] && ends && port > 0).then_some(port)
}

/// May a server connect there? Only to the client itself, and to no service of its (RFC 2577).
#[must_use]
pub fn may_dial(address: SocketAddr, peer: IpAddr) -> bool {
    address.ip().to_canonical() == peer.to_canonical() && address.port() >= PORT_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_to_the_letter_or_not_at_all() {
        assert_eq!(parse_port(b"10,0,0,9,4,1"), Some("10.0.0.9:1025".parse().unwrap()));
        assert_eq!(parse_eprt(b"|1|10.0.0.9|1025|"), Some("10.0.0.9:1025".parse().unwrap()));
        assert_eq!(parse_eprt(b"!2!::1!1025!"), Some("[::1]:1025".parse().unwrap()));
        for bad in [
            &b"1,2,3"[..],
            b"1,2,3,4,5,256",
            b"",
            b"a,b,c,d,e,f",
            b"1,2,3,4,5,6,7",
            b"1,2,3,4,5,6,",
            b" 1,2,3,4,5,6",
            b"+1,2,3,4,5,6",
            b"1,2,3,4,,6",
        ] {
            assert_eq!(parse_port(bad), None, "{}", bad.escape_ascii());
        }
        for bad in [
            &b""[..],
            b"|",
            b"|2|10.0.0.9|1025|",
            b"|1|::1|1|",
            b"|1|10.0.0.9|99999|",
            b"|1|10.0.0.9|1025",
            b"|1|10.0.0.9|1025|x",
            b"|1|10.0.0.9|1025||",
            b"|1|10.0.0.9|+1|",
            b"|1|10.0.0.9|0|",
            b"|3|10.0.0.9|1025|",
            b"\xff1\xff10.0.0.9\xff1025\xff",
        ] {
            assert_eq!(parse_eprt(bad), None, "{}", bad.escape_ascii());
        }
        assert_eq!(parse_extended(b"all"), Some(Extended::All));
        assert_eq!(parse_extended(b"3"), None);
    }

    #[test]
    fn nothing_but_the_peer_is_dialled_and_no_service_of_its() {
        let peer: IpAddr = "10.0.0.9".parse().unwrap();
        assert!(may_dial("10.0.0.9:1025".parse().unwrap(), peer));
        assert!(may_dial("10.0.0.9:1025".parse().unwrap(), "::ffff:10.0.0.9".parse().unwrap()));
        assert!(!may_dial("10.0.0.9:25".parse().unwrap(), peer), "no service");
        assert!(!may_dial("10.0.0.8:1025".parse().unwrap(), peer), "no third host");
    }

    #[test]
    fn what_a_passive_reply_says_is_read_as_it_was_written() {
        let own = Ipv4Addr::new(10, 0, 0, 9);
        for port in [1, 255, 256, 2121, 65535] {
            let said = format!("Passive mode ({})", port_words(own, port));
            assert_eq!(parse_pasv_reply(said.as_bytes()), Some(SocketAddr::new(own.into(), port)));
            let said = format!("Extended passive mode (|||{port}|)");
            assert_eq!(parse_epsv_reply(said.as_bytes()), Some(port));
        }
        assert_eq!(parse_pasv_reply(b"Entering Passive Mode. 1,2,3,4,5,6."), parse_port(b"1,2,3,4,5,6"));
        for bad in [&b""[..], b"(|||0|)", b"(||1|5|)", b"(|||5)", b"(|||65536|)", b"(|||5|x)", b"|||5|"] {
            assert_eq!(parse_epsv_reply(bad), None);
        }
        for bad in [&b""[..], b"(1,2,3,4,5)", b"(1,2,3,4,5,6,7)", b"(1,2,3,4,0,0)", b"(1,2,3,4,5,256)"] {
            assert_eq!(parse_pasv_reply(bad), None);
        }
    }
}
