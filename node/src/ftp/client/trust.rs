//! Whose certificate is believed.
//!
//! For: TLS to servers of FTP.
//! In and out: the system's bundle of authorities, a fingerprint of the user, the file `ftp-trusted` of the home → a verifier for rustls.
//! Invariants: a server is known by an authority of the system for its name, or by its certificate's fingerprint, and never by being seen once; a
//! fingerprint that is kept for an address counts there alone, and nothing else does.
//! Absent on purpose: revocation lists.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use text::exit::{Exit, Failure};

/// Where distributions have their bundle: Debian and Arch, Fedora, SUSE, Alpine and OpenBSD.
const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Fingerprints that the user has given: `host:port HEX`.
pub const FILE: &str = "ftp-trusted";

/// SHA-256 of a certificate.
pub type Fingerprint = [u8; 32];

/// `AB:CD:…`, as `openssl x509 -fingerprint -sha256` prints it.
#[must_use]
pub fn spelled(fingerprint: &Fingerprint) -> String {
    let all: Vec<String> = fingerprint.iter().map(|byte| format!("{byte:02X}")).collect();
    all.join(":")
}

/// Reads a fingerprint.
#[must_use]
pub fn parse(text: &str) -> Option<Fingerprint> {
    let digits: Vec<u8> = text.trim().bytes().filter(|byte| *byte != b':').collect();
    let mut out = [0; 32];
    if digits.len() != 64 {
        return None;
    }
    for (byte, two) in out.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()?;
    }
    Some(out)
}

/// The fingerprint that is kept for an address.
#[must_use]
pub fn kept(file: &Path, host_port: &str) -> Option<Fingerprint> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().filter_map(|line| line.split_once(' ')).find(|(at, _)| *at == host_port).and_then(|it| parse(it.1))
}

/// Keeps the fingerprint of the user for an address.
///
/// # Errors
/// The file system's.
pub fn keep(file: &Path, host_port: &str, fingerprint: &Fingerprint) -> std::io::Result<()> {
    let before = std::fs::read_to_string(file).unwrap_or_default();
    let mut text: String =
        before.lines().filter(|line| line.split(' ').next() != Some(host_port)).flat_map(|it| [it, "\n"]).collect();
    text.push_str(&format!("{host_port} {}\n", spelled(fingerprint)));
    let new: PathBuf = file.with_extension("new");
    let mut out = std::fs::File::create(&new)?;
    out.write_all(text.as_bytes())?;
    out.sync_all()?;
    std::fs::rename(new, file)
}

/// Decides for one server.
#[derive(Debug)]
pub struct Verifier {
    pinned: Option<Fingerprint>,
    authorities: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
    /// Of the certificate that was shown last.
    shown: Mutex<Option<Fingerprint>>,
}

impl Verifier {
    /// By this fingerprint, or by the system's authorities.
    #[must_use]
    pub fn new(pinned: Option<Fingerprint>, provider: Arc<CryptoProvider>) -> Verifier {
        let authorities = if pinned.is_some() { None } else { authorities(&provider) };
        Verifier { pinned, authorities, provider, shown: Mutex::default() }
    }

    /// Why a handshake failed, for the user.
    #[must_use]
    pub fn failure(&self, host_port: &str, error: &std::io::Error) -> Failure {
        let shown = *self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let is_certificate =
            matches!(error.get_ref().and_then(|it| it.downcast_ref::<Error>()), Some(Error::InvalidCertificate(_)));
        let what = format!("make TLS with {host_port}");
        let Some(shown) = shown.filter(|_| is_certificate) else {
            return Exit::Negotiation.fail(what, format!("TLS was refused: {error}")).next(
                "check that the server speaks TLS 1.2 or 1.3; ftp:// begins in clear with AUTH TLS, ftps:// with TLS",
            );
        };
        let words = spelled(&shown);
        let failure = match self.pinned {
            Some(pinned) => Exit::Identity.fail(
                what,
                format!("its certificate has the fingerprint {words}, and {} is the one that counts", spelled(&pinned)),
            ),
            None => Exit::Identity.fail(
                what,
                format!(
                    "no authority of this system vouches for its certificate ({error}); its fingerprint is {words}"
                ),
            ),
        };
        failure.next(format!(
            "compare the fingerprint with the one that the server's owner tells you, then add --ftp-fingerprint {words}"
        ))
    }
}

/// The authorities of the system's bundle; what in it cannot be read is left out.
fn authorities(provider: &Arc<CryptoProvider>) -> Option<Arc<WebPkiServerVerifier>> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let file = named.into_iter().chain(BUNDLES.map(PathBuf::from)).find(|it| it.exists())?;
    let mut roots = RootCertStore::empty();
    let all = CertificateDer::pem_file_iter(file).ok()?.filter_map(Result::ok);
    let _ = roots.add_parsable_certificates(all);
    if roots.is_empty() {
        return None;
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build().ok()
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let mut fingerprint = Fingerprint::default();
        fingerprint.copy_from_slice(digest(&SHA256, certificate).as_ref());
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(fingerprint);
        match (&self.pinned, &self.authorities) {
            (Some(pinned), _) if *pinned == fingerprint => Ok(ServerCertVerified::assertion()),
            (None, Some(authorities)) => authorities.verify_server_cert(certificate, between, name, ocsp, now),
            _ => Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_kept_for_its_address_alone() {
        let file = std::env::temp_dir().join(format!("longhaul-ftp-trusted-{}", std::process::id()));
        let _ = std::fs::remove_file(&file);
        let (one, two) = ([1; 32], [0xab; 32]);
        assert_eq!(kept(&file, "h:21"), None);
        keep(&file, "h:21", &one).unwrap();
        keep(&file, "h:2121", &two).unwrap();
        keep(&file, "h:21", &two).unwrap();
        assert_eq!((kept(&file, "h:21"), kept(&file, "h:2121"), kept(&file, "h:2")), (Some(two), Some(two), None));
        assert_eq!(parse(&spelled(&two)), Some(two));
        assert_eq!(parse(&spelled(&two).replace(':', "").to_lowercase()), Some(two));
        assert_eq!(parse("ab"), None);
        std::fs::remove_file(file).unwrap();
    }
}
