//! A short train of packets over a greeted path: what the probe of `--transport auto` learns beyond the round trip.
//!
//! For: rate of the narrowest link, loss, and how much the buffer before it holds, within two round trips and 100 kB.
//! In and out: a greeted socket in; a `Train` out, measured where the packets arrive.
//! Invariants: a train leaves only towards an address that has shown that it hears (its token, or the session's own connection); what arrives is believed only if its MAC
//! holds; a train is measured by the kernel's stamps, so that a reader who is late sees no faster path.
//! Absent on purpose: judging (probe), when to measure (job::rails).
//! Source: docs/protocol.md section 7; dispersion of packet trains: Dovrolis, Ramanathan, Moore 2001.

use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use proto::rate::Gaps;

use super::setup::{SETUP_BYTES, SetupKind, SetupMessage, wait};
use crate::job::keys::JobSecret;
use crate::probe::result::Train;

/// Packets in a train that shall show loss and the buffer, too: 94 kB on an Ethernet, which a shallow buffer holds; 0.75 ms of 1 Gbit/s, 0.8 s of
/// 1 Mbit/s.
pub const TRAIN_PACKETS: u16 = 64;
/// In one that takes the place of a flow's own first train.
pub const START_PACKETS: u16 = proto::rate::TRAIN_PACKETS as u16;
/// The question after a train goes so often at once: one that is lost costs two round trips.
const ASKED: u32 = 2;
/// Packets that came within so much of the first came with it.
const TOGETHER: Duration = Duration::from_micros(10);
/// Words that were lost are said again after two round trips, and at least so long.
const PAUSE_MIN: Duration = Duration::from_millis(30);
/// And so often.
const TRIES: u32 = 3;
/// A train that needs longer is not waited for.
const PATIENCE: Duration = Duration::from_millis(800);

impl Train {
    /// What `TrainResult` says in its token.
    fn to_token(self) -> [u8; 8] {
        let mut token = [0; 8];
        token[..4].copy_from_slice(&u32::try_from(self.span.as_micros()).unwrap_or(u32::MAX).to_le_bytes());
        token[4..6].copy_from_slice(&self.last.to_le_bytes());
        token[6] = self.doubt;
        token
    }

    /// From the other end's word; `None`: it says what cannot be.
    fn of_word(word: &SetupMessage, sent: u16, packet_bytes: u16) -> Option<Train> {
        let [a, b, c, d, e, f, doubt, _] = word.token;
        let (span_us, last) = (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([e, f]));
        let arrived = word.packet_bytes;
        let holds = arrived <= sent && last < TRAIN_PACKETS && arrived <= last.saturating_add(1);
        let span = Duration::from_micros(span_us.into());
        holds.then_some(Train { sent, arrived, last, span, packet_bytes, doubt })
    }
}

/// Counts a train where it arrives.
#[derive(Debug, Default)]
pub struct Tally {
    seen: u64,
    packet_bytes: u16,
    came: Vec<Instant>,
    last: u16,
}

impl Tally {
    /// A packet of it came at that time.
    pub fn take(&mut self, index: u16, bytes: usize, at: Instant) {
        if index >= TRAIN_PACKETS || self.seen & (1 << index) != 0 {
            return;
        }
        self.seen |= 1 << index;
        self.packet_bytes = self.packet_bytes.max(u16::try_from(bytes).unwrap_or(u16::MAX));
        self.came.push(at);
        self.last = self.last.max(index);
    }

    /// All that came of it. Packets that came together with the first (joined on their way) were not spread by the link since then: the
    /// span is that of the others, drawn out to all.
    #[must_use]
    pub fn train(&self) -> Train {
        let arrived = u16::try_from(self.came.len()).unwrap_or(TRAIN_PACKETS);
        let (first, newest) = (self.came.iter().min(), self.came.iter().max());
        let span = first.zip(newest).map_or(Duration::ZERO, |(first, newest)| *newest - *first);
        let together = self.came.iter().filter(|at| first.is_some_and(|first| **at - *first < TOGETHER)).count();
        let spread = self.came.len().saturating_sub(together);
        let span = match spread * 2 < self.came.len() {
            true => Duration::ZERO,
            false => span.mul_f64(f64::from(arrived.saturating_sub(1)) / spread.max(1) as f64),
        };
        let doubt = self.doubt();
        Train { sent: TRAIN_PACKETS, arrived, last: self.last, span, packet_bytes: self.packet_bytes, doubt }
    }

    /// How far wrong the train's rate may be, as `Train::doubt` has it: by the gaps between groups of packets that came together.
    fn doubt(&self) -> u8 {
        let (Some(&first), Some(&last)) = (self.came.first(), self.came.last()) else { return 0 };
        let (mut gaps, mut before, mut group, mut size) = (Gaps::default(), first, first, 0.0);
        for at in self.came.iter().copied().chain([last + TOGETHER]) {
            if at.saturating_duration_since(group) >= TOGETHER {
                let took = group.saturating_duration_since(before);
                if !took.is_zero() {
                    gaps.push(size, took.as_nanos() as f64);
                }
                (before, group, size) = (group, at, 0.0);
            }
            size += 1.0;
        }
        // Rounded down.
        if gaps.count() < 2 { 0 } else { 1 + (gaps.doubt() * 500.0).min(254.0) as u8 }
    }

    /// What is said to who sent it.
    #[must_use]
    pub fn word(&self, rail: u16) -> SetupMessage {
        let train = self.train();
        SetupMessage { say: SetupKind::TrainResult, rail, packet_bytes: train.arrived, token: train.to_token() }
    }
}

/// Sends a train of so many packets of that size; how many left.
pub fn send(
    socket: impl AsFd,
    secret: &JobSecret,
    rail: u16,
    token: [u8; 8],
    (packets, packet_bytes): (u16, u16),
) -> io::Result<u16> {
    let packets = packets.min(TRAIN_PACKETS);
    let each = usize::from(packet_bytes).max(SETUP_BYTES);
    let mut bytes = vec![0; each * usize::from(packets)];
    for (index, packet) in (0..packets).zip(bytes.chunks_mut(each)) {
        let word = SetupMessage { say: SetupKind::Train, rail, packet_bytes: index, token };
        packet[..SETUP_BYTES].copy_from_slice(&word.encode(secret));
    }
    let sent = sys::udp::send_sealed(&socket, &bytes, each)?;
    Ok(u16::try_from(sent).unwrap_or(packets))
}

/// The token of a train that goes behind the greeting, when no other is known. The acceptor takes it for a rail whose greeting came from the same
/// address: a train is answered by one word, no longer than the question.
pub const AHEAD: [u8; 8] = [0; 8];

/// May this word come without the rail's token?
#[must_use]
pub fn is_ahead(word: &SetupMessage) -> bool {
    word.token == AHEAD && matches!(word.say, SetupKind::Train | SetupKind::TrainEnd)
}

/// A train and its question, before there is an answer to the greeting. What is lost of it is no loss.
pub fn send_ahead(socket: &UdpSocket, secret: &JobSecret, rail: u16, (packets, packet_bytes): (u16, u16)) {
    let _ = send(socket, secret, rail, AHEAD, (packets, packet_bytes));
    let end = SetupMessage { say: SetupKind::TrainEnd, rail, packet_bytes, token: AHEAD }.encode(secret);
    for _ in 0..ASKED {
        let _ = socket.send(&end);
    }
}

/// What the initiator knows of a greeted path.
#[derive(Debug, Clone, Copy)]
pub struct Greeted<'a> {
    /// Of the job.
    pub secret: &'a JobSecret,
    /// The number of the rail that is measured.
    pub rail: u16,
    /// The acceptor's.
    pub token: [u8; 8],
    /// A size that passes.
    pub packet_bytes: u16,
    /// There and back.
    pub rtt: Duration,
}

impl Greeted<'_> {
    fn word(&self, say: SetupKind) -> [u8; SETUP_BYTES] {
        let Greeted { rail, packet_bytes, token, .. } = *self;
        SetupMessage { say, rail, packet_bytes, token }.encode(self.secret)
    }

    /// What came of a train of so many packets that went behind the greeting, which is answered. `None`: it was not told at once.
    #[must_use]
    pub fn ahead(&self, socket: &UdpSocket, packets: u16) -> Option<Train> {
        self.listen(socket, true, packets, PAUSE_MIN).filter(|train| train.arrived > 0)
    }

    /// A train the way that data will go, of so many packets if it leaves from here. `None`: nothing came of it.
    #[must_use]
    pub fn measure(&self, socket: &UdpSocket, sends: bool, packets: u16) -> Option<Train> {
        let sent = match sends {
            true => send(socket, self.secret, self.rail, self.token, (packets, self.packet_bytes)).ok()?,
            false => 0,
        };
        self.listen(socket, sends, sent, Duration::ZERO)
    }

    /// Asks what came, or for a train, until that is there. Of one that was `asked` for already it is only heard, for so long.
    fn listen(&self, socket: &UdpSocket, sends: bool, sent: u16, asked: Duration) -> Option<Train> {
        let pause = (self.rtt * 2).max(PAUSE_MIN);
        let mut tally = Tally::default();
        let mut heard = vec![0; usize::from(crate::job::udp::PACKET_BYTES_MAX)];
        let mut tries = if asked.is_zero() { 0 } else { TRIES };
        let mut patience = Instant::now() + asked;
        let until = patience + PATIENCE + self.rtt * 2;
        loop {
            let now = Instant::now();
            if now >= until || (now >= patience && (tries == TRIES || !tally.came.is_empty())) {
                break;
            }
            if now >= patience {
                let (word, times) = if sends { (SetupKind::TrainEnd, ASKED) } else { (SetupKind::TrainAsk, 1) };
                for _ in 0..times {
                    let _ = socket.send(&self.word(word));
                }
                (tries, patience) = (tries + 1, now + pause);
            }
            if !wait(socket, patience.min(until)).ok()? {
                continue;
            }
            let Some((bytes, at)) = take(socket, &mut heard)? else { continue };
            let Some(word) = SetupMessage::decode(&heard[..bytes], self.secret, self.rail) else { continue };
            match word.say {
                SetupKind::TrainResult if sends => return Train::of_word(&word, sent, self.packet_bytes),
                SetupKind::Train if !sends && word.token == self.token => {
                    tally.take(word.packet_bytes, bytes, at);
                    // As long again as it has taken so far, if packets come that slowly.
                    patience = patience.max(Instant::now() + PAUSE_MIN);
                    if tally.last + 1 == TRAIN_PACKETS {
                        break;
                    }
                }
                _ => {}
            }
        }
        (!tally.came.is_empty()).then(|| tally.train())
    }
}

/// A datagram and when it came. `None`: the socket is broken; `Some(None)`: nothing there.
fn take(socket: &UdpSocket, into: &mut [u8]) -> Option<Option<(usize, Instant)>> {
    match sys::udp::recv_burst(socket, into) {
        Ok(arrived) => Some(Some((arrived.bytes, came(arrived.waited_ns)))),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Some(None),
        Err(_) => None,
    }
}

/// When something came that has waited so long.
#[must_use]
pub fn came(waited_ns: u64) -> Instant {
    let now = Instant::now();
    now.checked_sub(Duration::from_nanos(waited_ns)).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(indices: impl IntoIterator<Item = u16>, gap: Duration) -> Tally {
        let (mut tally, from) = (Tally::default(), Instant::now());
        for (nth, index) in indices.into_iter().enumerate() {
            tally.take(index, 1472, from + gap * u32::try_from(nth).unwrap());
        }
        tally
    }

    #[test]
    fn a_trains_dispersion_is_the_links_rate() {
        // 1500 bytes of IP each 12 µs: 1 Gbit/s.
        let train = tally(0..TRAIN_PACKETS, Duration::from_micros(12)).train();
        assert_eq!((train.arrived, train.lost()), (TRAIN_PACKETS, (0, 0)));
        let rate = train.rate_bps().unwrap();
        assert!((rate - 1e9).abs() < 1e6, "{rate}");
        let fast = tally(0..TRAIN_PACKETS, Duration::from_nanos(100)).train();
        assert_eq!(fast.rate_bps(), None, "faster than can be seen");
    }

    #[test]
    fn a_train_that_jitter_drew_out_is_uneven() {
        let of = |all: &[u64]| {
            let (mut tally, from) = (Tally::default(), Instant::now());
            all.iter().zip(0..).for_each(|(us, nth)| tally.take(nth, 1472, from + Duration::from_micros(*us)));
            let word = tally.word(3);
            Train::of_word(&word, TRAIN_PACKETS, 1472).unwrap()
        };
        let even: Vec<u64> = (0..16).map(|nth| nth * 120).collect();
        let joined: Vec<u64> = (0..16).map(|nth| nth / 4 * 480 + nth % 4).collect();
        for all in [even, joined] {
            let train = of(&all);
            assert!(train.doubt > 0 && !train.is_uneven(), "{all:?}: {}", train.doubt);
            assert_eq!(train.jitter_ns(), 0);
        }
        let jitter = [0, 3, 400, 402, 405, 406, 407, 3400, 3500, 3501, 3502, 3503, 3504, 3505, 4100, 4101];
        assert!(of(&jitter).is_uneven(), "{}", of(&jitter).doubt);
        // Too little for that, but a queue of less than a few times as much is none.
        let some = of(&[0, 700, 702, 704, 706, 708, 830, 1500, 1502, 1504, 1506, 1508, 1510, 1560, 1700, 1800]);
        assert!(!some.is_uneven() && !some.is_even(), "{}", some.doubt);
        assert!((50_000..400_000).contains(&some.jitter_ns()), "{}", some.jitter_ns());
        assert_eq!(of(&[0, 1, 2, 5000, 5001, 5002]).doubt, 0, "all at once, and late: nothing is known");
    }

    #[test]
    fn holes_are_chance_and_a_missing_end_is_a_full_buffer() {
        let train = tally((0..40).filter(|index| index % 13 != 5), Duration::from_micros(120)).train();
        assert_eq!(train.lost(), (3, TRAIN_PACKETS - 40));
        assert_eq!(Tally::default().train().lost(), (TRAIN_PACKETS, 0));
    }

    #[test]
    fn doubles_and_indices_out_of_range_count_for_nothing() {
        let train = tally([0, 0, 1, TRAIN_PACKETS, u16::MAX, 1], Duration::from_millis(1)).train();
        assert_eq!(
            (train.arrived, train.last, train.span),
            (2, 1, Duration::from_millis(2)),
            "the first and the third"
        );
    }

    #[test]
    fn what_is_told_is_what_was_counted_and_lies_are_not_believed() {
        let tally = tally(0..50, Duration::from_micros(10));
        let word = tally.word(3);
        let train = Train::of_word(&word, TRAIN_PACKETS, 1472).unwrap();
        assert_eq!(train, tally.train());
        for lie in [(60, 50), (65, 63), (10, 64)] {
            let mut token = word.token;
            token[4..6].copy_from_slice(&u16::to_le_bytes(lie.1));
            let word = SetupMessage { packet_bytes: lie.0, token, ..word };
            assert_eq!(Train::of_word(&word, TRAIN_PACKETS, 1472), None, "{lie:?}");
        }
    }
}
