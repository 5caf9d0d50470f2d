//! Both machines of a flow, any list of operations.
//!
//! For: finding orders of packets, feedback, refusals and lies that make one panic, spin, or forget a byte.
//! In and out: five bytes per operation: which, and a value; lies are told beside honest feedback.
//! Invariants: numbers have no gaps, nothing is sent beyond its unit, coverage has no gaps; after all of it an honest path makes
//! every unit whole.
//! Absent on purpose: seals and sockets (engine); the rate.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::flow::{Burst, FlowConfig, FlowReceiver, FlowSender, Placed, Step};
use proto::packet::{Control, Feedback};
use proto::rate::{ControllerKind, Policy, RateConfig};

const UNIT_MAX: u32 = 20_000;
const UNITS: u32 = 8;

/// A packet on its way: its number, the unit, offset and bytes it carries, and a control frame.
type Sent = (u64, Option<(u32, u32, u32)>, Option<Control>);

struct Pair {
    sender: FlowSender,
    receiver: FlowReceiver,
    lens: Vec<u32>,
    way: Vec<Sent>,
    told: Vec<Feedback>,
    next: u64,
    now_ns: u64,
    last: Option<Burst>,
}

impl Pair {
    fn step(&mut self, burst_bytes_max: u32) {
        self.last = None;
        match self.sender.step(self.now_ns, burst_bytes_max) {
            Step::Burst(burst) => {
                assert_eq!(burst.first, self.next);
                assert!(burst.bytes > 0 && burst.offset + burst.bytes <= self.lens[burst.unit as usize]);
                for index in 0..burst.packets() {
                    let offset = burst.offset + index * u32::from(burst.payload);
                    let bytes = u32::from(burst.payload).min(burst.offset + burst.bytes - offset);
                    self.way.push((burst.first + u64::from(index), Some((burst.unit, offset, bytes)), None));
                }
                self.next += u64::from(burst.packets());
                self.last = Some(burst);
            }
            Step::Control { number, body } => {
                assert_eq!(number, self.next);
                self.next += 1;
                self.way.push((number, None, Some(body)));
            }
            Step::Reload { unit } => self.sender.reloaded(unit),
            Step::Wait { until_ns } => {
                assert!(until_ns > self.now_ns);
                self.now_ns = until_ns.min(self.now_ns + 100_000_000);
            }
        }
        while self.sender.next_fact().is_some() {}
    }

    fn arrive(&mut self, index: usize) {
        let (number, data, word) = self.way[index];
        if let Some((unit, offset, bytes)) = data {
            let placed = self.receiver.on_data(self.now_ns, number, unit, offset, bytes, false).expect("honest data");
            if placed == Placed::New {
                self.receiver.set_len(unit, self.lens[unit as usize]).expect("honest length");
            }
            if self.receiver.is_whole(unit) {
                self.receiver.done(unit);
            }
        }
        if let Some(word) = word {
            self.receiver.on_control(self.now_ns, number, &word).expect("honest word");
        }
    }

    fn feed(&mut self) {
        if let Some((_, told)) = self.receiver.feedback(self.now_ns) {
            self.told.push(told);
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let config = FlowConfig {
        packet_bytes: 1200,
        packet_bytes_max: 8972,
        unit_bytes_max: UNIT_MAX,
        rate: RateConfig {
            controller: ControllerKind::Fixed,
            policy: Policy::Fixed,
            target: 1_000_000_000,
            min: 0,
            packet_bytes: 1228,
        },
        units_open: UNITS,
        units_most: UNITS,
    };
    let mut pair = Pair {
        sender: FlowSender::new(0, config.clone()),
        receiver: FlowReceiver::new(0, config),
        lens: Vec::new(),
        way: Vec::new(),
        told: Vec::new(),
        next: 0,
        now_ns: 0,
        last: None,
    };
    let (ops, _) = bytes.as_chunks::<5>();
    for &[op, a, b, c, d] in ops {
        let value = u32::from_le_bytes([a, b, c, d]);
        match op % 16 {
            0 | 1 if pair.sender.room() > 0 => {
                let len = 1 + value % UNIT_MAX;
                assert_eq!(pair.sender.add(len) as usize, pair.lens.len());
                pair.lens.push(len);
            }
            2..=5 => pair.step(value % 70_000),
            6 | 7 if !pair.way.is_empty() => pair.arrive(value as usize % pair.way.len()),
            8 if !pair.way.is_empty() => drop(pair.way.swap_remove(value as usize % pair.way.len())),
            9 => pair.feed(),
            10 if !pair.told.is_empty() => {
                let told = pair.told[value as usize % pair.told.len()];
                pair.sender.on_feedback(pair.now_ns, &told).expect("honest, if late");
            }
            11 => pair.sender.unloaded(value % 16),
            12 => {
                if let Some(burst) = pair.last.take() {
                    let sent = value % (burst.packets() + 1);
                    pair.sender.refused(pair.now_ns, &burst, sent);
                    let first = burst.first + u64::from(sent);
                    pair.way.retain(|packet| packet.0 < first || packet.0 >= burst.first + u64::from(burst.packets()));
                }
            }
            13 => pair.sender.end(),
            14 => pair.now_ns += u64::from(value),
            _ => {
                // A lie about what was never sent changes nothing.
                if let Some(told) = pair.told.last() {
                    let lie = Feedback { number: told.number + 1, seen: pair.next + 1 + u64::from(value), ..*told };
                    assert!(pair.sender.on_feedback(pair.now_ns, &lie).is_err());
                }
            }
        }
    }
    // From here on the path is honest.
    pair.sender.end();
    let mut rounds = 0;
    while !pair.sender.is_done() {
        rounds += 1;
        assert!(rounds < 20_000, "not whole: {:?} {:?}", pair.sender.stats(), pair.receiver.stats());
        let from = pair.way.len();
        pair.step(65_000);
        (from..pair.way.len()).for_each(|index| pair.arrive(index));
        let from = pair.told.len();
        pair.feed();
        for index in from..pair.told.len() {
            let told = pair.told[index];
            pair.sender.on_feedback(pair.now_ns, &told).expect("honest");
        }
        pair.now_ns += 100_000;
    }
});
