//! Tests of line.rs.
