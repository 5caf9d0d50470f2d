//! Tests of link.rs.
