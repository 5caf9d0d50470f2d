//! The bytes of protocol 1, as `docs/protocol.md` draws them.

pub mod control; // frames of the control session
pub mod request; // what a relayed job may be told
pub mod encode; // a control frame to bytes
mod decode; // and back, with every check a stranger's bytes need
pub mod listing; // what an answer to `List` may hold
pub mod chunk; // rail greeting, chunk header, pack index
pub(crate) mod codec; // little-endian cursor all use
