//! What the user named as a source.
//!
//! For: scanning and opening below it.
//! In and out: a folder and a name in it.
//! Invariants: none.
//! Absent on purpose: under which name it is announced (its user's key).

use sys::fs::Dir;

/// One thing the user named: where it stands, and under which first component it is announced.
#[derive(Debug, Clone)]
pub struct Root {
    /// The folder it stands in.
    pub parent: Dir,
    /// Its own name there; empty: the folder itself.
    pub name: Box<[u8]>,
}
