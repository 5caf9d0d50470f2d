//! Options of copies from and to servers of FTP.
//!
//! For: `cp` and `sync`.
//! In and out: arguments → `FtpTerms`.
//! Invariants: without any of them TLS is wanted and the server's certificate is checked.
//! Absent on purpose: what they mean (node::ftp::client).

use std::path::PathBuf;

use clap::Args;
use node::request::FtpTerms;

/// Of `ftp://` and `ftps://`.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Servers of FTP (ftp://, ftps://)")]
pub struct FtpArguments {
    /// Read the password from the first line of this file; without it ~/.netrc has it, and without a user the login is anonymous
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,

    /// ftp:// without TLS: name, password and files go in clear
    #[arg(long)]
    pub allow_clear: bool,

    /// The certificate with this SHA-256 counts, instead of those that the system's authorities vouch for; it is kept for the server's address
    #[arg(long, value_name = "HEX")]
    pub ftp_fingerprint: Option<String>,

    /// Plain FTP also with a server that is a Longhaul: no LHDATA, by which the two go on as they do over longhaul://
    #[arg(long)]
    pub plain_ftp: bool,

    /// The server opens data connections to this host, instead of the other way round
    #[arg(long)]
    pub active: bool,

    /// Connect data connections to the address that the server names, also if it is another host's
    #[arg(long)]
    pub ftp_trust_pasv: bool,
}

impl FtpArguments {
    /// As plain data.
    #[must_use]
    pub fn terms(&self) -> FtpTerms {
        FtpTerms {
            password_file: self.password_file.clone(),
            allow_clear: self.allow_clear,
            active: self.active,
            trust_pasv: self.ftp_trust_pasv,
            plain: self.plain_ftp,
            fingerprint: self.ftp_fingerprint.clone(),
        }
    }
}
