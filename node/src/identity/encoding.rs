//! Keys and secrets as text: base64, base64url, base32.
//!
//! For: key files, tickets in addresses, fingerprints.
//! In and out: bytes → text, text → bytes.
//! Invariants: each byte string has exactly one spelling; a decoder refuses every other one (stray bits, wrong padding, spaces).
//! Absent on purpose: line breaks, other alphabets, constant time (what is decoded here came from a command line or an own file).

/// RFC 4648 section 4.
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// RFC 4648 section 5: stands in addresses without percent signs.
const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// RFC 4648 section 6, in lower case: can be read aloud.
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Bits in groups of `width`, the last group filled with zero bits.
fn spell(bytes: &[u8], width: u32, alphabet: &[u8]) -> String {
    let mut text = String::with_capacity((bytes.len() * 8).div_ceil(width as usize));
    let (mut held, mut bits) = (0u32, 0u32);
    for &byte in bytes {
        held = (held << 8) | u32::from(byte);
        bits += 8;
        while bits >= width {
            bits -= width;
            text.push(char::from(alphabet[(held >> bits) as usize]));
            held &= (1 << bits) - 1;
        }
    }
    if bits > 0 {
        text.push(char::from(alphabet[(held << (width - bits)) as usize]));
    }
    text
}

/// The inverse of `spell`; `None` unless `spell` would give exactly `text`.
fn read(text: &[u8], width: u32, alphabet: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * width as usize / 8);
    let (mut held, mut bits) = (0u32, 0u32);
    for letter in text {
        let value = alphabet.iter().position(|candidate| candidate == letter)?;
        held = (held << width) | u32::try_from(value).ok()?;
        bits += width;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits).ok()?);
            held &= (1 << bits) - 1;
        }
    }
    // A whole unused letter, or bits that say nothing, would be a second spelling.
    (bits < width && held == 0).then_some(bytes)
}

/// Base64 with padding, as in key files.
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    let mut text = spell(bytes, 6, BASE64);
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

/// Reads what `base64` writes.
#[must_use]
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let letters = text.trim_end_matches('=');
    if text.len() - letters.len() > 2 {
        return None;
    }
    read(letters.as_bytes(), 6, BASE64)
}

/// Base64url without padding, as in addresses.
#[must_use]
pub fn base64url(bytes: &[u8]) -> String {
    spell(bytes, 6, BASE64_URL)
}

/// Reads what `base64url` writes.
#[must_use]
pub fn from_base64url(text: &str) -> Option<Vec<u8>> {
    read(text.as_bytes(), 6, BASE64_URL)
}

/// Base32 in lower case without padding, as in fingerprints.
#[must_use]
pub fn base32(bytes: &[u8]) -> String {
    spell(bytes, 5, BASE32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_rfc_4648_hold() {
        let vectors =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")];
        for (plain, text) in vectors {
            assert_eq!(base64(plain.as_bytes()), text);
            assert_eq!(from_base64(text).as_deref(), Some(plain.as_bytes()));
        }
        assert_eq!(base32(b"foobar"), "mzxw6ytboi");
    }

    #[test]
    fn each_byte_string_has_one_spelling() {
        for bad in ["Zg", "Zg=", "Zh==", "Zm9=", "Z===", "Zg==\n", "====", "Zm9v Zm9v", "Zm9v===="] {
            assert_eq!(from_base64(bad), None, "{bad}");
        }
        for bad in ["Z", "Zh", "Zg==", "+/"] {
            assert_eq!(from_base64url(bad), None, "{bad}");
        }
        assert_eq!(from_base64url("-_8").as_deref(), Some(&[0xfb, 0xff][..]));
    }
}
