//! What a server says that it can do.
//!
//! For: choosing commands.
//! In and out: the reply to FEAT (RFC 2389) → `Features`.
//! Invariants: nothing that was not said is believed, except what RFC 959 has.
//! Absent on purpose: servers known by name.

use super::reply::Reply;
use crate::ftp::command::Digest;
use crate::ftp::lhdata::Spoken;

/// Features of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a line of FEAT")]
pub struct Features {
    /// MLST and MLSD.
    pub mlsd: bool,
    /// REST STREAM.
    pub rest: bool,
    /// SIZE.
    pub size: bool,
    /// MDTM.
    pub mdtm: bool,
    /// MFMT.
    pub mfmt: bool,
    /// UTF8.
    pub utf8: bool,
    /// EPSV is a word of it; others know it without saying so.
    pub epsv: bool,
    /// HASH, with SHA-256 among its algorithms.
    pub hash_sha256: bool,
    /// HASH, with BLAKE3 among its algorithms.
    pub hash_blake3: bool,
    /// XSHA256.
    pub xsha256: bool,
    /// XSHA512.
    pub xsha512: bool,
    /// XSHA1 or XSHA.
    pub xsha1: Option<&'static str>,
    /// XMD5.
    pub xmd5: bool,
    /// XCRC.
    pub xcrc: bool,
    /// LHDATA, in this version; 0: no.
    pub lhdata: u16,
}

impl Features {
    /// Of the reply to FEAT; of a refusal none.
    #[must_use]
    pub fn of(reply: &Reply) -> Features {
        let mut features = Features::default();
        if reply.code != 211 {
            return features;
        }
        for line in reply.text.split(|&byte| byte == b'\n') {
            let line = line.trim_ascii();
            let end = line.iter().position(|&byte| byte == b' ').unwrap_or(line.len());
            let (word, rest) = line.split_at(end);
            let says = |what: &[u8]| rest.windows(what.len()).any(|it| it.eq_ignore_ascii_case(what));
            let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
            features.mlsd |= is(b"MLST") || is(b"MLSD");
            features.rest |= is(b"REST") && says(b"STREAM");
            features.size |= is(b"SIZE");
            features.mdtm |= is(b"MDTM");
            features.mfmt |= is(b"MFMT");
            features.utf8 |= is(b"UTF8");
            features.epsv |= is(b"EPSV");
            features.hash_sha256 |= is(b"HASH") && says(b"SHA-256");
            features.hash_blake3 |= is(b"HASH") && says(b"BLAKE3");
            features.xsha256 |= is(b"XSHA256");
            features.xsha512 |= is(b"XSHA512");
            features.xmd5 |= is(b"XMD5");
            features.xcrc |= is(b"XCRC");
            if is(crate::ftp::lhdata::WORD.as_bytes()) {
                features.lhdata = Spoken::parse(rest.trim_ascii()).map_or(0, |it| it.version);
            }
            if is(b"XSHA1") {
                features.xsha1 = Some("XSHA1");
            } else if is(b"XSHA") && features.xsha1.is_none() {
                features.xsha1 = Some("XSHA");
            }
        }
        features
    }

    /// The command that gives the best digest, and of which kind it is. HASH wants `OPTS HASH` before.
    #[must_use]
    pub const fn digest(&self) -> Option<(&'static str, Digest)> {
        if self.hash_blake3 {
            Some(("HASH", Digest::Blake3))
        } else if self.hash_sha256 {
            Some(("HASH", Digest::Sha256))
        } else if self.xsha256 {
            Some(("XSHA256", Digest::Sha256))
        } else if self.xsha512 {
            Some(("XSHA512", Digest::Sha512))
        } else if let Some(word) = self.xsha1 {
            Some((word, Digest::Sha1))
        } else if self.xmd5 {
            Some(("XMD5", Digest::Md5))
        } else if self.xcrc {
            Some(("XCRC", Digest::Crc32))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_what_was_said() {
        let text = b"Features:\n EPRT\n EPSV\n MDTM\n MLST type*;size*;\n REST STREAM\n SIZE\n UTF8\n HASH SHA-1;SHA-256*;MD5\n XCRC filename;start;end\nEnd";
        let features = Features::of(&Reply { code: 211, text: text.to_vec() });
        assert!(features.mlsd && features.rest && features.size && features.mdtm && features.utf8 && features.epsv);
        assert!(!features.mfmt);
        assert_eq!(features.digest(), Some(("HASH", Digest::Sha256)));
        let both = b"Features:\n HASH SHA-256*;BLAKE3\nEnd";
        let features = Features::of(&Reply { code: 211, text: both.to_vec() });
        assert_eq!(features.digest(), Some(("HASH", Digest::Blake3)), "the cheapest that is good");
        let none = Features::of(&Reply { code: 500, text: text.to_vec() });
        assert_eq!((none, none.digest()), (Features::default(), None));
    }

    #[test]
    fn a_digest_is_found_among_the_words_around_it() {
        let md5 = b"d41d8cd98f00b204e9800998ecf8427e";
        assert_eq!(Digest::Md5.find(b"MD5 0-1 d41d8cd98f00b204e9800998ecf8427e x"), Some(&md5[..]));
        assert_eq!(Digest::Crc32.find(b"9A0364B9"), Some(&b"9A0364B9"[..]));
        assert_eq!(Digest::Crc32.find(b" 364B9"), Some(&b"364B9"[..]));
        assert_eq!(Digest::Md5.find(b"no digest"), None);
    }
}
