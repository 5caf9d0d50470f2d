//! TLS 1.3 with raw public keys (RFC 7250), both ways.
//!
//! For: proving to each other that the other end holds the secret of its key, before a word is said.
//! In and out: our identity and what we expect of the peer → settings and verifiers for rustls; a finished handshake → the peer's key.
//! Invariants: TLS 1.3 only; Ed25519 only; the signature over the handshake is always checked; a client goes on only with a
//!   key it expected; nothing is resumed, so each session has keys of its own and proves the secret anew.
//! Absent on purpose: certificates, names, times (there are none to check); who may do what (identity/authorized.rs).

use std::fmt;
use std::sync::{Arc, OnceLock};

use ::aws_lc_rs::signature::Ed25519KeyPair;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::aws_lc_rs::kx_group::{X25519, X25519MLKEM768};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime, alg_id};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::{CertifiedKey, Signer, SigningKey, public_key_to_spki};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, Error, PeerMisbehaved,
    ServerConfig, ServerConnection, SignatureAlgorithm, SignatureScheme,
};

use crate::identity::{Identity, PublicKey, keys};

/// Named in the greeting of TLS, so that no other TLS service can be taken for us nor we for it.
pub(super) const ALPN: &[u8] = b"longhaul";
/// DER of an Ed25519 SubjectPublicKeyInfo up to the key itself (RFC 8410 section 4).
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// Plaintext and sealed bytes that rustls may hold for us; our own queues are counted in mod.rs.
pub(super) const RUSTLS_BYTES_MAX: usize = 64 << 10;

/// Our key, as rustls asks for it.
struct OurKey(Arc<Ed25519KeyPair>, PublicKey);

impl fmt::Debug for OurKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("OurKey")
    }
}

impl SigningKey for OurKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        offered
            .contains(&SignatureScheme::ED25519)
            .then(|| Box::new(OurKey(Arc::clone(&self.0), self.1)) as Box<dyn Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(public_key_to_spki(&alg_id::ED25519, self.1))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }
}

impl Signer for OurKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(self.0.sign(message).as_ref().to_vec())
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}

fn certified(id: &Identity) -> Arc<CertifiedKey> {
    let spki = public_key_to_spki(&alg_id::ED25519, id.public());
    Arc::new(CertifiedKey::new(
        vec![CertificateDer::from(spki.as_ref().to_vec())],
        Arc::new(OurKey(id.pair(), id.public())),
    ))
}

/// The usual provider with the key exchange that also holds against a recorder with a later quantum computer first.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider { kx_groups: vec![X25519MLKEM768, X25519], ..aws_lc_rs::default_provider() })
}

/// What both verifiers do alike.
#[derive(Debug)]
struct Proof(WebPkiSupportedAlgorithms);

impl Proof {
    fn new() -> Proof {
        Proof(aws_lc_rs::default_provider().signature_verification_algorithms)
    }

    fn check(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if signed.scheme != SignatureScheme::ED25519 {
            return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
        }
        let spki = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &spki, signed, &self.0)
    }
}

/// SubjectPublicKeyInfo → key; refuses all but Ed25519 in its only encoding.
fn spki_key(spki: &CertificateDer<'_>) -> Result<PublicKey, Error> {
    let refused = || Error::InvalidCertificate(CertificateError::BadEncoding);
    let key = spki.as_ref().strip_prefix(&SPKI_PREFIX).ok_or_else(refused)?;
    let key = PublicKey::try_from(key).map_err(|_| refused())?;
    if keys::usable(&key) { Ok(key) } else { Err(refused()) }
}

/// A client's eye on the server.
#[derive(Debug)]
pub(super) struct ServerCheck {
    accepted: Vec<PublicKey>,
    revoked: Vec<PublicKey>,
    proof: Proof,
    /// What the server showed, for the error that tells the user what to do; not proven unless the handshake went through.
    pub(super) seen: OnceLock<PublicKey>,
}

impl ServerCertVerifier for ServerCheck {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let key = spki_key(end_entity)?;
        let _ = self.seen.set(key);
        if !intermediates.is_empty() {
            return Err(Error::InvalidCertificate(CertificateError::BadEncoding));
        }
        if self.revoked.contains(&key) {
            return Err(Error::InvalidCertificate(CertificateError::Revoked));
        }
        if !self.accepted.contains(&key) {
            return Err(Error::InvalidCertificate(CertificateError::UnknownIssuer));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOffered))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.proof.check(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// A server's eye on the client: any key, if its secret is there.
#[derive(Debug)]
struct ClientCheck(Proof);

impl ClientCertVerifier for ClientCheck {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        spki_key(end_entity)?;
        if !intermediates.is_empty() {
            return Err(Error::InvalidCertificate(CertificateError::BadEncoding));
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOffered))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.check(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// A client's connection that goes on only with one of `accepted`.
pub(super) fn client(
    id: &Identity,
    accepted: Vec<PublicKey>,
    revoked: Vec<PublicKey>,
) -> Result<(ClientConnection, Arc<ServerCheck>), Error> {
    let check = Arc::new(ServerCheck { accepted, revoked, proof: Proof::new(), seen: OnceLock::new() });
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&check) as Arc<dyn ServerCertVerifier>)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified(id))));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    // Names prove nothing here; rustls wants one all the same.
    let name = ServerName::try_from("longhaul").map_err(|_| Error::General("the fixed name is no name".into()))?;
    let mut connection = ClientConnection::new(Arc::new(config), name)?;
    connection.set_buffer_limit(Some(RUSTLS_BYTES_MAX));
    Ok((connection, check))
}

/// A server's connection.
pub(super) fn server(id: &Identity) -> Result<ServerConnection, Error> {
    let config = match id.server.get() {
        Some(config) => Arc::clone(config),
        None => {
            let mut config = ServerConfig::builder_with_provider(provider())
                .with_protocol_versions(&[&TLS13])?
                .with_client_cert_verifier(Arc::new(ClientCheck(Proof::new())))
                .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified(id))));
            config.alpn_protocols = vec![ALPN.to_vec()];
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
            config.max_early_data_size = 0;
            Arc::clone(id.server.get_or_init(|| Arc::new(config)))
        }
    };
    let mut connection = ServerConnection::new(config)?;
    connection.set_buffer_limit(Some(RUSTLS_BYTES_MAX));
    Ok(connection)
}

/// The key the peer proved; only after the handshake.
pub(super) fn peer_key(connection: &rustls::Connection) -> Result<PublicKey, Error> {
    match connection.peer_certificates() {
        Some([one]) => spki_key(one),
        _ => Err(Error::NoCertificatesPresented),
    }
}

/// A client that shows another's key and signs with its own, to see that it is refused.
#[cfg(test)]
pub(super) fn client_posing_as(shown: PublicKey, own: &Identity, server: PublicKey) -> ClientConnection {
    let posing = Arc::new(CertifiedKey::new(
        vec![CertificateDer::from(public_key_to_spki(&alg_id::ED25519, shown).as_ref().to_vec())],
        Arc::new(OurKey(own.pair(), shown)),
    ));
    let (accepted, revoked, seen) = (vec![server], Vec::new(), OnceLock::new());
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ServerCheck { accepted, revoked, proof: Proof::new(), seen }))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(posing)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    ClientConnection::new(Arc::new(config), ServerName::try_from("longhaul").unwrap()).unwrap()
}

/// A client that shows no key, to see that it is refused.
#[cfg(test)]
pub(super) fn client_without_key(server: PublicKey) -> ClientConnection {
    let check = Arc::new(ServerCheck {
        accepted: vec![server],
        revoked: Vec::new(),
        proof: Proof::new(),
        seen: OnceLock::new(),
    });
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(check)
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    ClientConnection::new(Arc::new(config), ServerName::try_from("longhaul").unwrap()).unwrap()
}
