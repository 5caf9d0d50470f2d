//! What can go wrong with a control session.
//!
//! For: one error per cause, so that the exit code and the advice follow from the variant.
//! In and out: made in link/; shown to the user or counted by the daemon.
//! Invariants: an end without a farewell (`Cut`) is never mistaken for one with (`Closed`).
//! Absent on purpose: what peers say in frames (Refuse); that is the session's matter.

use std::io;

use proto::error::Breach;

use crate::identity::keys::{fingerprint, key_text};
use crate::identity::{IdentityError, PublicKey};

/// Why a control session does not begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The host has no address.
    #[error("failed to find the address of {host_port}")]
    Resolve {
        /// As given.
        host_port: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// No address of the host answers.
    #[error("failed to connect to {host_port}; is `longhaul serve` running there, and is the port open?")]
    Connect {
        /// As given.
        host_port: String,
        /// What the last address said.
        source: io::Error,
    },
    /// The kernel refused.
    #[error("failed to {step} the control session")]
    Io {
        /// Verb.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The peer did not do its part in time.
    #[error("failed to {step}: the peer took longer than {seconds} s")]
    Timeout {
        /// Verb and object.
        step: &'static str,
        /// How long was granted.
        seconds: u64,
    },
    /// TLS refuses; in practice: something else listens there, or somebody tampers.
    #[error("failed to set up or keep TLS with the peer; does a longhaul of this version listen there?")]
    Tls(#[source] rustls::Error),
    /// The peer speaks TLS but not Longhaul.
    #[error("failed to agree with the peer: it speaks TLS, but not longhaul")]
    NotLonghaul,
    /// No key is trusted for this address.
    #[error(
        "failed to trust {host_port}: its key is not known here. It shows {}; if that is what `longhaul key show` prints there, run: longhaul key trust {host_port} {}",
        fingerprint(.key), key_text(.key)
    )]
    PeerUnknown {
        /// As given.
        host_port: String,
        /// What it showed (not proven).
        key: PublicKey,
    },
    /// Another key is trusted for this address.
    #[error(
        "failed to trust {host_port}: it shows {}, but another key is trusted for it. Either the host has a new key or somebody is in between; if `longhaul key show` prints this there, run: longhaul key trust {host_port} {}",
        fingerprint(.key), key_text(.key)
    )]
    PeerChanged {
        /// As given.
        host_port: String,
        /// What it showed (not proven).
        key: PublicKey,
    },
    /// The ticket names another key.
    #[error("failed to trust {host_port}: it shows {}, but the ticket is for {}; ask for a new ticket there", fingerprint(.key), fingerprint(.wanted))]
    PeerWrong {
        /// As given.
        host_port: String,
        /// What it showed (not proven).
        key: PublicKey,
        /// What the ticket names.
        wanted: PublicKey,
    },
    /// The key stands in our file of revoked keys.
    #[error("failed to trust {host_port}: its key {} is revoked here (file `revoked` of the key folder)", fingerprint(.key))]
    PeerRevoked {
        /// As given.
        host_port: String,
        /// What it showed (not proven).
        key: PublicKey,
    },
    /// The session ended without a farewell: a crash, a cut line, or somebody who truncates.
    #[error("lost the control session: it ended without a farewell")]
    Cut,
    /// The peer said farewell while something was still expected of it.
    #[error("failed to go on: the peer closed the control session")]
    Closed,
    /// The peer broke the protocol.
    #[error("failed to go on: the peer {0}")]
    Breach(#[from] Breach),
    /// Our own files.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}
