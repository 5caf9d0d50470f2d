//! Keys: our own, and everybody's as text.
//!
//! For: making, keeping and using this host's Ed25519 key; reading and writing public keys; fingerprints for people.
//! In and out: the files `key` and `key.pub`; bytes to sign → signatures; text ↔ public keys.
//! Invariants: a secret key is never readable by others; a public key that passed `parse_key` is 32 bytes and no point of small order.
//! Absent on purpose: which keys are let in (authorized.rs) or believed (trust.rs).

use std::fmt;
use std::sync::{Arc, OnceLock};

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use super::encoding::{base32, base64, from_base64};
use super::{Home, IdentityError, LineFault};

/// An Ed25519 public key, RFC 8032.
pub type PublicKey = [u8; 32];

/// Our secret, below LONGHAUL_HOME.
pub const FILE: &str = "key";
/// The word before every key in every file.
pub const KEY_TYPE: &str = "longhaul-ed25519";
/// Bytes of BLAKE3 in a fingerprint: 160 bits, so that finding a second key with the same one takes 2^160 tries.
const FINGERPRINT_BYTES: usize = 20;
const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_END: &str = "-----END PRIVATE KEY-----";

/// The points of small order of Curve25519 (all that have one of these y, sign bit aside): as public keys they
/// accept signatures that no secret made. RFC 8032 leaves the check to us.
const SMALL_ORDER_Y: [[u8; 32]; 7] = {
    const fn y(first: u8, middle: u8, last: u8) -> [u8; 32] {
        let mut bytes = [middle; 32];
        bytes[0] = first;
        bytes[31] = last;
        bytes
    }
    [
        y(0x00, 0x00, 0x00),
        y(0x01, 0x00, 0x00),
        y(0xec, 0xff, 0x7f),
        y(0xed, 0xff, 0x7f),
        y(0xee, 0xff, 0x7f),
        [
            0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5, 0xdf,
            0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
        ],
        [
            0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a, 0x20,
            0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
        ],
    ]
};

/// This process's key, and the folder it came from.
pub struct Identity {
    home: Option<Home>,
    pair: Arc<Ed25519KeyPair>,
    public: PublicKey,
    /// TLS settings of the accepting side: the same for every connection, made at the first.
    pub(crate) server: OnceLock<Arc<rustls::ServerConfig>>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Identity").field("key", &fingerprint(&self.public)).finish_non_exhaustive()
    }
}

impl Identity {
    /// The key of this home, made now if there is none.
    ///
    /// # Errors
    /// The file cannot be read or written, is readable by others, or holds no Ed25519 key.
    pub fn load(home: &Home) -> Result<Identity, IdentityError> {
        if let Some(identity) = Identity::find(home)? {
            return Ok(identity);
        }
        // Two first uses at once: one of both writes, and both read what was written.
        make(home, true, &default_comment())?;
        Identity::find(home)?.ok_or_else(|| IdentityError::BadKey(home.path(FILE)))
    }

    /// The key of this home, if it has one; none is made.
    ///
    /// # Errors
    /// The file cannot be read, is readable by others, or holds no Ed25519 key.
    pub fn find(home: &Home) -> Result<Option<Identity>, IdentityError> {
        let Some(text) = home.read(FILE, 0o077, "600")? else { return Ok(None) };
        let pair = from_pem(&text).ok_or_else(|| IdentityError::BadKey(home.path(FILE)))?;
        Ok(Some(Identity::with(Some(home.clone()), pair)))
    }

    /// Makes a new key for this home.
    ///
    /// # Errors
    /// There is one already and `force` is not set; the file cannot be written.
    pub fn generate(home: &Home, force: bool, comment: &str) -> Result<Identity, IdentityError> {
        if !make(home, !force, comment)? {
            return Err(IdentityError::KeyExists(home.path("key")));
        }
        Identity::load(home)
    }

    /// A key that is kept nowhere: it trusts nobody but by ticket, and nothing is revoked for it. Only tests want one; a
    /// user's host keeps its key, so that the other end can say who came.
    ///
    /// # Errors
    /// No randomness.
    pub fn ephemeral() -> Result<Identity, IdentityError> {
        let pair = Ed25519KeyPair::generate().map_err(|_| IdentityError::NoRandom)?;
        Ok(Identity::with(None, pair))
    }

    fn with(home: Option<Home>, pair: Ed25519KeyPair) -> Identity {
        let mut public = [0; 32];
        public.copy_from_slice(pair.public_key().as_ref());
        Identity { home, pair: Arc::new(pair), public, server: OnceLock::new() }
    }

    /// Where its lists are; `None` for a key that is kept nowhere.
    #[must_use]
    pub fn home(&self) -> Option<&Home> {
        self.home.as_ref()
    }

    /// Our public key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Signs.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        let mut signature = [0; 64];
        signature.copy_from_slice(self.pair.sign(message).as_ref());
        signature
    }

    /// For TLS, which signs with the same key.
    pub(crate) fn pair(&self) -> Arc<Ed25519KeyPair> {
        Arc::clone(&self.pair)
    }
}

/// Does `signature` over `message` come from the owner of `key`?
#[must_use]
pub fn verify(key: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
    usable(key) && UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok()
}

/// Is there a secret behind this key at all?
#[must_use]
pub fn usable(key: &PublicKey) -> bool {
    let mut y = *key;
    y[31] &= 0x7f;
    !SMALL_ORDER_Y.contains(&y)
}

/// `lh:` and 32 letters: base32 of the first 20 bytes of the key's BLAKE3. For people to compare.
#[must_use]
pub fn fingerprint(key: &PublicKey) -> String {
    let digest = blake3::hash(key);
    format!("lh:{}", base32(&digest.as_bytes()[..FINGERPRINT_BYTES]))
}

/// `longhaul-ed25519 BASE64`.
#[must_use]
pub fn key_text(key: &PublicKey) -> String {
    format!("{KEY_TYPE} {}", base64(key))
}

/// Base64 → key.
pub(super) fn parse_base64(text: &str) -> Result<PublicKey, LineFault> {
    let key = from_base64(text).and_then(|bytes| PublicKey::try_from(bytes).ok()).ok_or(LineFault::BadKey)?;
    if usable(&key) { Ok(key) } else { Err(LineFault::WeakKey) }
}

/// `longhaul-ed25519 BASE64 [comment]` → key and comment.
pub fn parse_key(line: &str) -> Result<(PublicKey, &str), LineFault> {
    let rest =
        line.trim().strip_prefix(KEY_TYPE).filter(|rest| rest.starts_with([' ', '\t'])).ok_or(LineFault::NoKeyType)?;
    let rest = rest.trim_start();
    let (text, comment) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
    Ok((parse_base64(text)?, comment.trim()))
}

/// The note of our own key, as `key.pub` has it. The key is the secret's own: a stale `key.pub` never misleads.
#[must_use]
pub fn own_note(home: &Home, own: &PublicKey) -> String {
    let text = std::fs::read_to_string(home.path("key.pub")).unwrap_or_default();
    let noted = parse_key(&text).ok().filter(|(key, _)| key == own);
    noted.map_or(String::new(), |(_, note)| clean_comment(note))
}

/// `user@host`, for `key.pub`; only a note, so anything that cannot be found out is left out.
#[must_use]
pub fn default_comment() -> String {
    let user = std::env::var("USER").unwrap_or_else(|_| "longhaul".to_owned());
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    clean_comment(&format!("{user}@{host}"))
}

/// One line of printable text, whatever the environment or the user said.
#[must_use]
pub fn clean_comment(comment: &str) -> String {
    comment.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect::<String>().trim().to_owned()
}

/// Writes a new pair; `false` if `keep` and there is one.
fn make(home: &Home, keep: bool, comment: &str) -> Result<bool, IdentityError> {
    let pair = Ed25519KeyPair::generate().map_err(|_| IdentityError::NoRandom)?;
    // Version 1 of PKCS#8: the one that other tools read.
    let der = pair.to_pkcs8v1().map_err(|_| IdentityError::NoRandom)?;
    let text = format!("{PEM_BEGIN}\n{}\n{PEM_END}\n", base64(der.as_ref()));
    if !home.write("key", text.as_bytes(), keep)? {
        return Ok(false);
    }
    let public: PublicKey = pair.public_key().as_ref().try_into().map_err(|_| IdentityError::NoRandom)?;
    let line = format!("{} {}", key_text(&public), clean_comment(comment));
    home.write("key.pub", format!("{}\n", line.trim_end()).as_bytes(), false)?;
    Ok(true)
}

fn from_pem(text: &[u8]) -> Option<Ed25519KeyPair> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let body: String = text.strip_prefix(PEM_BEGIN)?.strip_suffix(PEM_END)?.split_ascii_whitespace().collect();
    Ed25519KeyPair::from_pkcs8(&from_base64(&body)?).ok()
}
