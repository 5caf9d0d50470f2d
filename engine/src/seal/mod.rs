//! Between the disk and the network: digests, and payload sealed by the frame or by the packet.
//!
//! For: everything that computes on payload.
//! In and out: plain bufs in, sealed bytes out, and back.
//! Invariants: nothing is handed on before its tag held.
//! Absent on purpose: where keys come from, which chunk goes next, I/O.

pub mod frame; // a chunk as one frame of a stream
pub mod hash; // the digests of a payload, taken at the source and checked at the sink
pub mod packet; // runs of a unit ↔ datagrams
pub mod record; // bytes ↔ records of TLS
mod packet_keys; // the keys of packets, by epoch
pub mod digest; // chunk digests merged to the file's
