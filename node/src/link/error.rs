//! What can go wrong with a control session.
//!
//! For: one error per cause, so that the exit code and the advice follow from the variant.
//! In and out: made in link/; a sentence for logs, a `Failure` for the user.
//! Invariants: an end without a farewell (`Cut`) is never mistaken for one with (`Closed`); advice that names a command can be
//!   pasted as it stands.
//! Absent on purpose: what peers say in frames (Refuse); that is the session's matter.

use std::error::Error;
use std::fmt;
use std::io;

use proto::error::Breach;

use crate::identity::keys::{fingerprint, key_text};
use crate::identity::{IdentityError, PublicKey};
use text::attempt::said;
use text::exit::{Exit, Failure};

/// What a peer did not do in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Answer at all.
    Connect,
    /// Prove its key.
    Prove,
    /// Say something.
    Wait,
    /// Take what we say.
    Send,
}

impl Step {
    fn what(self) -> &'static str {
        match self {
            Step::Connect => "connect to the peer",
            Step::Prove => "prove each other's keys",
            Step::Wait => "hear from the peer",
            Step::Send => "send to the peer",
        }
    }
}

/// Why a control session does not begin or go on.
#[derive(Debug)]
pub enum LinkError {
    /// The host has no address.
    Resolve {
        /// As given.
        host_port: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// No address of the host answers.
    Connect {
        /// As given.
        host_port: String,
        /// What the last address said.
        source: io::Error,
    },
    /// The kernel refused.
    Io {
        /// Verb, to stand before "the control session".
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The peer did not do its part in time.
    Timeout {
        /// Which part.
        step: Step,
        /// How long was granted, ms.
        granted_ms: u128,
    },
    /// TLS refuses; in practice: something else listens there, or somebody tampers.
    Tls(rustls::Error),
    /// The peer speaks TLS but not Longhaul.
    NotLonghaul,
    /// No key is trusted for this address.
    PeerUnknown {
        /// As given.
        host_port: String,
        /// What it showed (not proven).
        key: PublicKey,
    },
    /// Another key is trusted for this address.
    PeerChanged {
        /// As given.
        host_port: String,
        /// What it showed (not proven).
        key: PublicKey,
    },
    /// The ticket names another key.
    PeerWrong {
        /// As given.
        host_port: String,
        /// What it showed (not proven).
        key: PublicKey,
        /// What the ticket names.
        wanted: PublicKey,
    },
    /// The key stands in our file of revoked keys.
    PeerRevoked {
        /// As given.
        host_port: String,
        /// What it showed (not proven).
        key: PublicKey,
    },
    /// The session ended without a farewell: a crash, a cut line, or somebody who truncates.
    Cut,
    /// Over the connection the handshake went on otherwise than datagrams had begun it: whoever answered these is not who is there, or has forgotten.
    Elsewhere,
    /// The peer said farewell while something was still expected of it.
    Closed,
    /// The peer broke the protocol.
    Breach(Breach),
    /// Our own files.
    Identity(IdentityError),
}

impl LinkError {
    /// What the process ends with.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            LinkError::Resolve { .. } | LinkError::Connect { .. } | LinkError::Tls(_) | LinkError::NotLonghaul => {
                Exit::Connect
            }
            LinkError::Timeout { step: Step::Connect | Step::Prove, .. } => Exit::Connect,
            LinkError::Timeout { step: Step::Wait | Step::Send, .. } => Exit::Stalled,
            LinkError::PeerUnknown { .. }
            | LinkError::PeerChanged { .. }
            | LinkError::PeerWrong { .. }
            | LinkError::PeerRevoked { .. } => Exit::Identity,
            LinkError::Io { .. } | LinkError::Cut | LinkError::Elsewhere | LinkError::Closed => Exit::Lost,
            LinkError::Breach(_) => Exit::Breach,
            LinkError::Identity(error) => error.exit(),
        }
    }

    /// Fits after "failed to".
    fn what(&self) -> String {
        match self {
            LinkError::Resolve { host_port, .. } => format!("find the address of {host_port}"),
            LinkError::Connect { host_port, .. } => format!("connect to {host_port}"),
            LinkError::Io { step, .. } => format!("{step} the control session"),
            LinkError::Timeout { step, .. } => step.what().to_owned(),
            LinkError::Tls(_) => "keep a TLS session with the peer".to_owned(),
            LinkError::NotLonghaul => "talk with the peer".to_owned(),
            LinkError::PeerUnknown { host_port, .. }
            | LinkError::PeerChanged { host_port, .. }
            | LinkError::PeerWrong { host_port, .. }
            | LinkError::PeerRevoked { host_port, .. } => format!("trust {host_port}"),
            LinkError::Cut | LinkError::Elsewhere | LinkError::Closed | LinkError::Breach(_) => {
                "go on with the peer".to_owned()
            }
            LinkError::Identity(_) => "use the key folder".to_owned(),
        }
    }

    /// Why, without what the system said; that is the source.
    fn cause(&self) -> String {
        match self {
            LinkError::Resolve { .. } => "no such host".to_owned(),
            LinkError::Connect { .. } => "it does not answer".to_owned(),
            LinkError::Io { .. } => "the connection is of no use".to_owned(),
            LinkError::Timeout { granted_ms, .. } => format!("it took longer than {granted_ms} ms"),
            LinkError::Tls(_) => "refused by TLS 1.3".to_owned(),
            LinkError::NotLonghaul => "it speaks TLS, but not longhaul".to_owned(),
            LinkError::PeerUnknown { key, .. } => format!("its key is not known here; it shows {}", fingerprint(key)),
            LinkError::PeerChanged { key, .. } => {
                format!(
                    "another key is trusted for it; it shows {}: a new key, or somebody in between",
                    fingerprint(key)
                )
            }
            LinkError::PeerWrong { key, wanted, .. } => {
                format!("the ticket is for {}, but it shows {}", fingerprint(wanted), fingerprint(key))
            }
            LinkError::PeerRevoked { key, .. } => format!("its key {} is revoked here", fingerprint(key)),
            LinkError::Cut => "the control session ended without a farewell".to_owned(),
            LinkError::Elsewhere => "the handshake went on otherwise than its datagrams had begun it".to_owned(),
            LinkError::Closed => "it closed the control session".to_owned(),
            LinkError::Breach(breach) => format!("it {breach}"),
            LinkError::Identity(error) => error.to_string(),
        }
    }

    /// What the user does now, where the table of exit codes does not know better.
    fn next_step(&self) -> Option<String> {
        match self {
            LinkError::PeerUnknown { host_port, key } | LinkError::PeerChanged { host_port, key } => Some(format!(
                "if `longhaul key show` prints that fingerprint there, run: longhaul key trust {host_port} {}",
                key_text(key)
            )),
            LinkError::PeerWrong { .. } => Some("ask for a new ticket there".to_owned()),
            LinkError::PeerRevoked { .. } => Some(
                "do not use that host; if the key was revoked by mistake, remove its line from the file `revoked`"
                    .to_owned(),
            ),
            LinkError::Tls(_) | LinkError::NotLonghaul => {
                Some("check that `longhaul serve` of this version listens at that port".to_owned())
            }
            _ => None,
        }
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let LinkError::Identity(error) = self {
            return error.fmt(out);
        }
        write!(out, "failed to {}: {}", self.what(), self.cause())?;
        self.next_step().map_or(Ok(()), |next| write!(out, "; {next}"))
    }
}

impl Error for LinkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            LinkError::Resolve { source, .. } | LinkError::Connect { source, .. } | LinkError::Io { source, .. } => {
                Some(source)
            }
            LinkError::Tls(source) => Some(source),
            LinkError::Breach(source) => Some(source),
            LinkError::Identity(source) => source.source(),
            _ => None,
        }
    }
}

impl From<Breach> for LinkError {
    fn from(breach: Breach) -> LinkError {
        LinkError::Breach(breach)
    }
}

impl From<IdentityError> for LinkError {
    fn from(error: IdentityError) -> LinkError {
        LinkError::Identity(error)
    }
}

impl From<&LinkError> for Failure {
    fn from(error: &LinkError) -> Failure {
        let mut cause = error.cause();
        match error {
            LinkError::Identity(error) => return error.into(),
            // A breach is its own cause and would be said twice.
            LinkError::Breach(_) => {}
            LinkError::Resolve { source, .. } | LinkError::Connect { source, .. } | LinkError::Io { source, .. } => {
                cause += &format!(": {}", said(source));
            }
            _ => cause.extend(error.source().map(|source| format!(": {source}"))),
        }
        let failure = error.exit().fail(error.what(), cause);
        match error.next_step() {
            Some(next) => failure.next(next),
            None => failure,
        }
    }
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Failure {
        Failure::from(&error)
    }
}

/// The failure that an error chain with errors of this module or of `identity` in it comes to; see [`Failure::of`].
#[must_use]
pub fn failure_of(what: &str, error: &anyhow::Error) -> Failure {
    Failure::of_chain(what, error, |cause| {
        let link = || cause.downcast_ref::<LinkError>().map(Failure::from);
        let identity = || cause.downcast_ref::<IdentityError>().map(Failure::from);
        link().or_else(identity)
    })
}
