//! The certificate that FTPS clients are shown: made once, or the user's own.
//!
//! For: a server that speaks TLS from its first start on, and a fingerprint to compare.
//! In and out: two files of the home folder, or of the user; a key that rustls signs with.
//! Invariants: the private key's file is its owner's alone; a certificate that is there is never replaced.
//! Absent on purpose: authorities and renewal (`--cert` takes a real one; a restart reads it anew).
//! Source: X.509 as DER, RFC 5280 sections 4.1 and 4.2.1.6; RFC 5480 (P-256), RFC 5758 (ECDSA with SHA-256).

use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use crate::identity::Home;

/// Names of the two files of the home folder: DER.
const CERTIFICATE: &str = "ftp-certificate.der";
const KEY: &str = "ftp-key.pkcs8";

/// A certificate with its key, and what tells it from others.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// For rustls.
    pub key: Arc<CertifiedKey>,
    /// SHA-256 of the certificate, as `openssl x509 -fingerprint -sha256` prints it.
    pub fingerprint: String,
    /// SHA-256 of the public key in base64: what `curl --pinnedpubkey` wants, after `sha256//`.
    pub pin: Option<String>,
}

impl Certificate {
    /// The one of the home folder, made if there is none. `names`: what it is for.
    ///
    /// # Errors
    /// Files that cannot be read or made, or are no certificate and key.
    pub fn of_home(home: &Home, names: &[IpAddr]) -> io::Result<Certificate> {
        let (certificate, key) = (home.path(CERTIFICATE), home.path(KEY));
        if !certificate.exists() {
            let (made, private) = make(names)?;
            write_new(&key, &private)?;
            write_new(&certificate, &made)?;
        }
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(std::fs::read(key)?));
        Certificate::new(vec![CertificateDer::from(std::fs::read(certificate)?)], &key)
    }

    /// The user's own: PEM files of a chain and of its key.
    ///
    /// # Errors
    /// Files that cannot be read, or that are no such thing.
    pub fn of_files(chain: &Path, key: &Path) -> io::Result<Certificate> {
        let bad = |what: &Path, error: rustls::pki_types::pem::Error| {
            io::Error::other(format!("{}: {error}", what.display()))
        };
        let certificates: Result<Vec<_>, _> =
            CertificateDer::pem_file_iter(chain).map_err(|error| bad(chain, error))?.collect();
        let certificates = certificates.map_err(|error| bad(chain, error))?;
        Certificate::new(certificates, &PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, error))?)
    }

    fn new(chain: Vec<CertificateDer<'static>>, key: &PrivateKeyDer<'_>) -> io::Result<Certificate> {
        let first = chain.first().ok_or_else(|| io::Error::other("the file has no certificate"))?;
        let hash = digest(&SHA256, first);
        let fingerprint: Vec<String> = hash.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        let signer = any_supported_type(key).map_err(io::Error::other)?;
        let pin = signer.public_key().map(|spki| base64(digest(&SHA256, &spki).as_ref()));
        let key = CertifiedKey::new(chain, signer);
        key.keys_match().map_err(io::Error::other)?;
        Ok(Certificate { key: Arc::new(key), fingerprint: fingerprint.join(":"), pin })
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let _ = std::fs::remove_file(path);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// A certificate signed by its own key, and that key as PKCS #8.
fn make(names: &[IpAddr]) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let failed = |_| io::Error::other("the system has no randomness");
    let random = SystemRandom::new();
    let private = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).map_err(failed)?;
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, private.as_ref()).map_err(io::Error::other)?;
    let mut serial = [0; 16];
    aws_lc_rs::rand::fill(&mut serial).map_err(failed)?;
    serial[0] = serial[0] & 0x7f | 0x40; // positive, and of full length
    let ecdsa_with_sha256 = sequence(&[der(6, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2])]);
    let host = sys::host::hostname();
    let common_name = sequence(&[der(6, &[0x55, 4, 3]), der(12, format!("Longhaul on {host}").as_bytes())]);
    let name = sequence(&[der(0x31, &common_name)]);
    // No moment at which it ends that anybody could name (RFC 5280 section 4.1.2.5).
    let validity = sequence(&[der(24, b"20200101000000Z"), der(24, b"99991231235959Z")]);
    let curve = [der(6, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1]), der(6, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7])];
    let point = [&[0], pair.public_key().as_ref()].concat();
    let public = sequence(&[sequence(&curve), der(3, &point)]);
    let mut all = vec![der(0x82, host.as_bytes()), der(0x82, b"localhost")];
    all.extend(names.iter().map(|address| match address {
        IpAddr::V4(address) => der(0x87, &address.octets()),
        IpAddr::V6(address) => der(0x87, &address.octets()),
    }));
    let alternative = sequence(&[der(6, &[0x55, 0x1d, 0x11]), der(4, &sequence(&all))]);
    let signed = sequence(&[
        der(0xa0, &der(2, &[2])),
        der(2, &serial),
        ecdsa_with_sha256.clone(),
        name.clone(),
        validity,
        name,
        public,
        der(0xa3, &sequence(&[alternative])),
    ]);
    let signature = pair.sign(&random, &signed).map_err(failed)?;
    let bits = [&[0], signature.as_ref()].concat();
    Ok((sequence(&[signed, ecdsa_with_sha256, der(3, &bits)]), private.as_ref().to_vec()))
}

/// Tag, length, content.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let len = content.len();
    let mut out = vec![tag];
    match len {
        0..0x80 => out.push(len as u8),
        0x80..0x100 => out.extend_from_slice(&[0x81, len as u8]),
        _ => out.extend_from_slice(&[0x82, (len >> 8) as u8, len as u8]),
    }
    out.extend_from_slice(content);
    out
}

fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    der(0x30, &parts.concat())
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0u32, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - three.len()));
        for at in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * at) & 63) as usize];
            out.push(if at > three.len() { '=' } else { char::from(letter) });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_is_made_belongs_to_its_key() {
        let (certificate, key) = make(&["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key));
        let made = Certificate::new(vec![CertificateDer::from(certificate)], &key).unwrap();
        assert_eq!(made.fingerprint.len(), 95);
        assert_eq!(made.pin.unwrap().len(), 44);
    }

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
