//! A trace of everything that a page of one can have: every phase, a policer, losses, silence, a stream, a receiver, hours.
//!
//! For: the tests of all pages. In and out: nothing in; pages out.
//! Absent on purpose: real jobs.

use engine::meter::PathStats;
use node::report::trace::About;
use node::report::trace::page::page;
use node::report::trace::sample::{RailFacts, RailId, Sample};
use node::report::trace::series::Looks;
use sys::sock::TcpInfo;

const MS: u64 = 1_000_000;
const PHASES: [&[u8; 8]; 8] = [
    b"start\0\0\0",
    b"verify\0\0",
    b"prove\0\0\0",
    b"steady\0\0",
    b"hold\0\0\0\0",
    b"competit",
    b"asks\0\0\0\0",
    b"below\0\0\0",
];

fn about(limiter: &str) -> About {
    About {
        what: "/data/run7 and 12 more -> longhaul://storage-17.example.org:5740/incoming/".to_owned(),
        began_unix_s: 1_764_084_000,
        limiter: Some(limiter.to_owned()),
    }
}

/// A policer that is found, then a lossy stretch, each look so far from the next.
pub(crate) fn packets(every_ms: u64) -> String {
    let mut looks = Looks::default();
    for step in 0..600_u64 {
        let is_found = step > 80;
        let noise = step * 7919 % 97;
        let stats = PathStats {
            rate: if is_found { 2_400_000 + noise * 3_000 } else { 4_000_000 + step * 20_000 },
            rtt_ns: (52 + noise / 20) * MS,
            base_rtt_ns: 50 * MS,
            queue_ns: noise * MS / 20,
            window: 900_000,
            in_flight: 120_000 + noise * 400,
            packets: 90 * step,
            lost_packets: if is_found { 2_000 + step / 3 } else { 25 * step },
            repair_bytes: 30_000 * step,
            delivered_bytes: 2_400 * every_ms * step,
            policer: if is_found { 2_460_000 } else { 0 },
            phase_begin: u64::from_le_bytes(*PHASES[(step / 20) as usize % PHASES.len()]),
            ..PathStats::default()
        };
        let facts = || RailFacts { transport: "udp", controller: "delay", path: "10.0.0.1=192.0.2.7".to_owned() };
        looks.add(RailId { session: 0, rail: 0 }, facts, Sample::of_packets(step * every_ms * MS, &stats, true));
    }
    page(&about("limited by a policer at about 20 Mbit/s on the path (loss 1.2 %): up to 20 Mbit/s"), &looks)
}

/// Streams of two sessions and the end that receives.
pub(crate) fn streams() -> String {
    let mut looks = Looks::default();
    for step in 0..300_u64 {
        let (at_ns, wave) = (step * 20 * MS, step % 60);
        let info = TcpInfo {
            rtt_us: 100_000 + wave as u32 * 1_000,
            min_rtt_us: 100_000,
            mss: 1448,
            cwnd: 100 + wave as u32 * 10,
            unacked: 90 + wave as u32 * 10,
            retrans: (step / 60 * 11) as u32,
            segments_out: (step * 200) as u32,
            bytes_retrans: step / 60 * 11 * 1448,
            bytes_acked: step * 200 * 1448,
            bytes_received: step * 200_000,
            delivery_rate: 14_480_000,
            pacing_rate: 16_000_000,
            ..TcpInfo::default()
        };
        for (session, rail) in [(0, 0), (0, 1), (1, 0)] {
            let path = "2001:db8:0123:4567:89ab:cdef:0123:4567=2001:db8:ffff:eeee:dddd:cccc:bbbb:aaaa".to_owned();
            let facts = || RailFacts { transport: "tcp", controller: "", path };
            looks.add(RailId { session, rail }, facts, Sample::of_stream(at_ns, &info, session == 0));
        }
    }
    page(&about("limited by the network path (loss 1.2 %)"), &looks)
}
