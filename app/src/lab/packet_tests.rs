//! Tests of packet.rs.
