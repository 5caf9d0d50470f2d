//! Tests of settings.rs.
