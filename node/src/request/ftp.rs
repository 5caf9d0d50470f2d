//! What a copy from or to a server of FTP is allowed to do.
//!
//! For: `JobRequest`.
//! In and out: plain data.
//! Invariants: by default TLS is wanted, its certificate checked, and nothing is connected to but the server.
//! Absent on purpose: what any of it means on the wire (`ftp::client`).

use std::path::PathBuf;

/// The options of `ftp://` and `ftps://`.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FtpTerms {
    /// The file that has the password, on its first line.
    pub password_file: Option<PathBuf>,
    /// A server without TLS may be spoken to.
    pub allow_clear: bool,
    /// The server connects to us.
    pub active: bool,
    /// The address that PASV names is believed, whoever's it is.
    pub trust_pasv: bool,
    /// Files go by FTP also where a Longhaul is the server.
    pub plain: bool,
    /// SHA-256 of the server's certificate, in hexadecimal digits with or without colons; it counts instead of the system's authorities.
    pub fingerprint: Option<String>,
}
