//! Winners of searches, as lines of a file.
//!
//! For: a path that was searched once need not be searched before every job.
//! In and out: the file's text in, the lines that can be believed out; a line in, text out.
//! Invariants: a line that was cut or altered, or of another version, is as if it were not there; who, where and in which world it was found stands
//! in it, so that another host, NIC, peer or kernel is not taken for the same.
//! Absent on purpose: the file, and what a world is made of (`bench::placement`).
//!
//! ```text
//! longhaul-placements 1
//! HOST PEER NIC WORLD FAR_WORLD BITS_PER_SECOND STREAMS SEND RECV CHECK
//! ```
//! SEND and RECV are `WORKERS/each|within/MEMORY/INTERRUPTS/all|first`, with `-` where nothing is arranged; worlds are 16 hexadecimal digits.

use super::{Placement, Rings, Side, list, parse_list};
use proto::checked::{self, CachedLine};

/// `bench net` takes no more.
const STREAMS_MAX: u16 = 64;

/// A search's outcome for one path. The end that sends is the host that remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The host that searched.
    pub host: String,
    /// The other's address.
    pub peer: String,
    /// Its NIC, or what else leads there.
    pub nic: String,
    /// Kernel, cores and NIC of the host.
    pub world: u64,
    /// The same of the peer.
    pub far_world: u64,
    /// What was found.
    pub bps: u64,
    /// The winner.
    pub placement: Placement,
}

/// A name as one word.
#[must_use]
pub fn word(name: &str) -> String {
    let plain = |letter: char| if letter.is_whitespace() || letter.is_control() { '_' } else { letter };
    let word: String = name.chars().take(255).map(plain).collect();
    if word.is_empty() { "-".to_owned() } else { word }
}

fn side_text(side: &Side) -> String {
    let cores = |cores: &[u16]| if cores.is_empty() { "-".to_owned() } else { list(cores) };
    let memory = side.memory.map_or("-".to_owned(), |node| format!("{node}"));
    let how = if side.exact { "each" } else { "within" };
    let rings = if side.rings == Rings::First { "first" } else { "all" };
    format!("{}/{how}/{memory}/{}/{rings}", cores(&side.workers), cores(&side.irqs))
}

fn side(text: &str) -> Option<Side> {
    let mut parts = text.split('/');
    let mut next = || parts.next();
    let cores = |text: &str| if text == "-" { Some(Vec::new()) } else { parse_list(text) };
    let workers = cores(next()?)?;
    let exact = match next()? {
        "each" => true,
        "within" => false,
        _ => return None,
    };
    let memory = match next()? {
        "-" => None,
        node => Some(node.parse().ok()?),
    };
    let irqs = cores(next()?)?;
    let rings = match next()? {
        "first" => Rings::First,
        "all" => Rings::AsIs,
        _ => return None,
    };
    next().is_none().then_some(Side { workers, exact, memory, irqs, rings })
}

impl CachedLine for Line {
    const HEAD: &'static str = "longhaul-placements 1";

    fn encode(&self) -> String {
        let Placement { send, recv, streams } = &self.placement;
        let Line { host, peer, nic, world, far_world, bps, .. } = self;
        let (send, recv) = (side_text(send), side_text(recv));
        checked::close(&format!("{host} {peer} {nic} {world:016x} {far_world:016x} {bps} {streams} {send} {recv}"))
    }

    fn decode(text: &str) -> Option<Line> {
        let words: Vec<&str> = checked::open(text)?.split(' ').collect();
        let [host, peer, nic, world, far_world, bps, streams, send, recv] = words[..] else { return None };
        let streams = streams.parse().ok().filter(|it| (1..=STREAMS_MAX).contains(it))?;
        Some(Line {
            host: host.to_owned(),
            peer: peer.to_owned(),
            nic: nic.to_owned(),
            world: u64::from_str_radix(world, 16).ok()?,
            far_world: u64::from_str_radix(far_world, 16).ok()?,
            bps: bps.parse().ok()?,
            placement: Placement { send: side(send)?, recv: side(recv)?, streams },
        })
    }

    /// Of the same path.
    fn is_same(&self, other: &Line) -> bool {
        (&self.host, &self.peer, &self.nic) == (&other.host, &other.peer, &other.nic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::checked::{LINES_MAX, decode, with};

    fn line(peer: &str, bps: u64) -> Line {
        let send =
            Side { workers: vec![4, 5, 0], exact: true, memory: Some(1), irqs: vec![0, 1, 2], rings: Rings::First };
        let placement = Placement { send, recv: Side::NONE, streams: 4 };
        let host = word("a host");
        Line { host, peer: peer.to_owned(), nic: "eth0".to_owned(), world: 7, far_world: 9, bps, placement }
    }

    #[test]
    fn winners_are_read_back_and_the_newest_of_a_path_counts() {
        let text = with(&with(&with("", &line("10.0.0.1", 1)), &line("10.0.0.2", 2)), &line("10.0.0.1", 3));
        assert_eq!(decode::<Line>(&text), vec![line("10.0.0.2", 2), line("10.0.0.1", 3)]);
        let many = (0..LINES_MAX as u64 + 9).fold(String::new(), |text, n| with(&text, &line(&format!("{n}"), n)));
        assert_eq!((decode::<Line>(&many).len(), decode::<Line>(&many)[0].bps), (LINES_MAX, 9));
    }

    #[test]
    fn a_cut_or_an_altered_byte_costs_its_line_and_no_more() {
        let text = with(&with("", &line("::1", 1)), &line("10.0.0.2", 2));
        let whole: Vec<Line> = decode(&text);
        for at in 0..text.len() {
            assert!(decode(&text[..at]).iter().all(|it| whole.contains(it)), "cut at {at}");
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            if let Ok(altered) = String::from_utf8(bytes) {
                assert!(decode(&altered).iter().all(|it| whole.contains(it)), "altered at {at}");
            }
        }
        // What carries a check may still be nonsense.
        for words in [
            "",
            "a b c 0 0 1 4 x y",
            "h p c 7 9 1 99 -/each/-/-/all -/each/-/-/all",
            "h p c 7 9 1 4 9-1/each/-/-/all -/each/-/-/all",
        ] {
            assert_eq!(Line::decode(&checked::close(words)), None, "{words}");
        }
    }
}
