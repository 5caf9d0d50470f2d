//! What a packet costs in the two machines: time and memory.
//!
//! For: the budget of `docs/design/002-datagrams.md`: 250 ns a packet at 45 Gbit/s, nearly all of it the cipher's.
//! In and out: a sender and a receiver with nothing between them; ns per packet and side, allocations.
//! Invariants: steady state allocates nothing; the time is printed, and bounded only loosely, since machines differ and builds
//! without optimisation are slow. Measure with `cargo test --release -p longhaul-proto --test flow_cost -- --nocapture`.
//! Absent on purpose: sockets and seals (engine).

use std::collections::VecDeque;
use std::time::Instant;

use proto::flow::{Burst, Fact, FlowConfig, FlowReceiver, FlowSender, Step};
use proto::packet::{BODY_OVERHEAD, Feedback};
use proto::rate::{ControllerKind, Policy, RateConfig};

#[global_allocator]
static ALLOCATOR: sys::count::Counting = sys::count::Counting;

const UNIT: u32 = 1 << 20;

struct Pair {
    sender: FlowSender,
    receiver: FlowReceiver,
    /// Bursts on their way, and when they left.
    way: VecDeque<(u64, Burst)>,
    now_ns: u64,
    sender_ns: u64,
    receiver_ns: u64,
    packets: u64,
    lost: u64,
    loss_ppm: u64,
    dice: u64,
    body: Vec<u8>,
    rtt_ns: u64,
}

impl Pair {
    fn new(loss_ppm: u64, rtt_ns: u64) -> Self {
        let config = FlowConfig {
            packet_bytes: 1472,
            packet_bytes_max: 1472,
            unit_bytes_max: UNIT,
            rate: RateConfig {
                controller: ControllerKind::Fixed,
                policy: Policy::Fixed,
                target: 600_000_000,
                min: 0,
                packet_bytes: 1500,
            },
            units_open: 1024,
            units_most: 1024,
        };
        Pair {
            sender: FlowSender::new(0, config.clone()),
            receiver: FlowReceiver::new(0, config),
            way: VecDeque::with_capacity(1 << 16),
            now_ns: 0,
            sender_ns: 0,
            receiver_ns: 0,
            packets: 0,
            lost: 0,
            loss_ppm,
            dice: 1,
            body: Vec::with_capacity(2000),
            rtt_ns,
        }
    }

    fn loses(&mut self) -> bool {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % 1_000_000 < self.loss_ppm
    }

    /// Until so many packets have gone over.
    fn run(&mut self, packets: u64) {
        let end = self.packets + packets;
        while self.packets < end {
            let began = Instant::now();
            while self.sender.room() > 0 {
                self.sender.add(UNIT);
            }
            let mut until = self.now_ns;
            for _ in 0..16 {
                match self.sender.step(self.now_ns, 65_000) {
                    Step::Burst(burst) => {
                        self.packets += u64::from(burst.packets());
                        self.way.push_back((self.now_ns, burst));
                    }
                    Step::Control { number, body } => {
                        self.receiver.on_control(self.now_ns, number, &body).expect("honest");
                    }
                    Step::Wait { until_ns } => {
                        until = until_ns;
                        break;
                    }
                    Step::Reload { .. } => unreachable!("nothing is unloaded"),
                }
            }
            while let Some(fact) = self.sender.next_fact() {
                if let Fact::Quiet { .. } = fact {
                    panic!("silence");
                }
            }
            self.sender_ns += began.elapsed().as_nanos() as u64;
            self.arrive();
            self.now_ns = until.min(self.now_ns + 50_000).max(self.now_ns + 1);
        }
    }

    fn arrive(&mut self) {
        while self.way.front().is_some_and(|(sent_ns, _)| sent_ns + self.rtt_ns <= self.now_ns) {
            let (_, burst) = self.way.pop_front().expect("looked at above");
            let mut kept = [false; 64];
            for place in kept.iter_mut().take(burst.packets() as usize) {
                *place = !self.loses();
                self.lost += u64::from(!*place);
            }
            let began = Instant::now();
            for (index, _) in kept.iter().enumerate().filter(|(_, kept)| **kept) {
                let offset = burst.offset + index as u32 * u32::from(burst.payload);
                let bytes = u32::from(burst.payload).min(burst.offset + burst.bytes - offset);
                let number = burst.first + index as u64;
                if self.receiver.wants(number) {
                    self.receiver.on_data(self.now_ns, number, burst.unit, offset, bytes, false).expect("honest");
                }
            }
            if kept[0] && burst.offset == 0 {
                self.receiver.set_len(burst.unit, UNIT).expect("honest");
            }
            if self.receiver.is_whole(burst.unit) {
                self.receiver.done(burst.unit);
            }
            self.receiver_ns += began.elapsed().as_nanos() as u64;
        }
        let began = Instant::now();
        let Some((_, told)) = self.receiver.feedback(self.now_ns) else { return };
        self.body.clear();
        told.encode(&mut self.body, 1200 - BODY_OVERHEAD);
        let told_at = Instant::now();
        self.receiver_ns += told_at.duration_since(began).as_nanos() as u64;
        let told = Feedback::decode(&self.body).expect("honest");
        self.sender.on_feedback(self.now_ns, &told).expect("honest");
        self.sender_ns += told_at.elapsed().as_nanos() as u64;
    }
}

#[test]
fn steady_state_allocates_nothing_and_a_packet_costs_little() {
    for (loss_ppm, rtt_ns) in
        [(0, 100_000), (10_000, 100_000), (100_000, 100_000), (0, 20_000_000), (10_000, 20_000_000)]
    {
        let mut pair = Pair::new(loss_ppm, rtt_ns);
        // The window of numbers grows until it holds four seconds (here 1.6 million packets); rings until they hold what is on its way.
        pair.run(4_000_000);
        let (mut sender, mut receiver) = (f64::MAX, f64::MAX);
        sys::count::counted();
        for _ in 0..20 {
            (pair.sender_ns, pair.receiver_ns) = (0, 0);
            sys::count::count(true);
            pair.run(50_000);
            sys::count::count(false);
            // The best of twenty: others use this machine, too.
            sender = sender.min(pair.sender_ns as f64 / 5e4);
            receiver = receiver.min(pair.receiver_ns as f64 / 5e4);
        }
        let (allocations, bytes) = sys::count::counted();
        println!(
            "loss {:>4} %, round trip {:>6} µs: sender {sender:.1} ns, receiver {receiver:.1} ns a packet; {allocations} allocations of {bytes} bytes in a million packets",
            loss_ppm as f64 / 1e4,
            rtt_ns / 1000,
        );
        assert_eq!(allocations, 0, "{bytes} bytes");
        assert!(sender < 2000.0 && receiver < 2000.0, "something grows with the number of packets");
    }
}
