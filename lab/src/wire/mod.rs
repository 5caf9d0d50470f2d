//! One wire: what it does to each packet, and the thread that does it.
//!
//! For: the links between hosts. In and out: packets of one device → the same packets, later, or not at all, at the other.
//! Invariants: everything but `emulator` is without clock and I/O, and draws from a seed.
//! Absent on purpose: hosts and their addresses.

pub mod dice; // chance from a seed
pub mod link; // what a wire does to each packet
pub mod packet; // super-packets and the packets in them
pub mod line; // packets on their way
pub mod emulator; // the thread of one direction
