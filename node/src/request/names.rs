//! How the values of a `JobRequest` are written where it is kept as text.
//!
//! For: serde; the types belong to crates that know no serde.
//! In and out: a value → the word that reports have for it, and back; names of files as text, or as numbers where they are no UTF-8.
//! Invariants: a word that no value has is refused; a new variant of a type does not compile without a word here.
//! Absent on purpose: the words of the command line and their help (`args`).

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A module for `#[serde(with = …)]` that writes a value of this type as one word.
macro_rules! one_word {
    ($module:ident: $type:ty { $($variant:ident = $word:literal),+ }) => {
        pub(super) mod $module {
            use super::*;

            pub(in crate::request) fn serialize<S: Serializer>(it: &$type, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(match it {
                    $(<$type>::$variant => $word,)+
                })
            }

            pub(in crate::request) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<$type, D::Error> {
                match String::deserialize(from)?.as_str() {
                    $($word => Ok(<$type>::$variant),)+
                    word => Err(serde::de::Error::unknown_variant(word, &[$($word),+])),
                }
            }
        }
    };
}

/// The same for a value that may be left out.
macro_rules! word_or_none {
    ($module:ident: $type:ty { $($variant:ident = $word:literal),+ }) => {
        pub(super) mod $module {
            use super::*;

            pub(in crate::request) fn serialize<S: Serializer>(it: &Option<$type>, to: S) -> Result<S::Ok, S::Error> {
                let word = it.map(|it| match it {
                    $(<$type>::$variant => $word,)+
                });
                word.serialize(to)
            }

            pub(in crate::request) fn deserialize<'de, D: Deserializer<'de>>(
                from: D,
            ) -> Result<Option<$type>, D::Error> {
                match Option::<String>::deserialize(from)?.as_deref() {
                    None => Ok(None),
                    $(Some($word) => Ok(Some(<$type>::$variant)),)+
                    Some(word) => Err(serde::de::Error::unknown_variant(word, &[$($word),+])),
                }
            }
        }
    };
}

word_or_none!(stripe: proto::layout::Stripe { File = "file", Chunk = "chunk" });
word_or_none!(cipher: proto::negotiate::Cipher {
    Aes128Gcm = "aes128",
    Aes256Gcm = "aes256",
    ChaCha20Poly1305 = "chacha20"
});
word_or_none!(driver: proto::negotiate::Driver { Uring = "uring", Plain = "plain" });
one_word!(compare: proto::wire::control::Compare { Never = "never", Changed = "changed", Always = "always" });
one_word!(durability: proto::wire::control::Durability {
    Received = "received",
    Written = "written",
    Flushed = "flushed",
    Published = "published"
});
one_word!(digest: proto::wire::control::DigestKind { Blake3 = "blake3", Crc64 = "crc64" });
one_word!(transport: proto::wire::request::Transport { Tcp = "tcp", Udp = "udp", Auto = "auto", Rdma = "rdma" });
one_word!(policy: proto::rate::Policy { Fixed = "fixed", High = "high", Fair = "fair", Low = "low" });
one_word!(controller: proto::rate::ControllerKind { Delay = "delay", Bbr = "bbr", Cubic = "cubic", Fixed = "fixed" });
one_word!(reflink: engine::platform::Clones { Never = "never", WherePossible = "auto", Only = "always" });
one_word!(snapshot: engine::tree::source::watched::Snapshot { Auto = "auto", Always = "always", Never = "never" });

/// As `read=NAME,write=NAME`.
pub(super) mod io_modes {
    use proto::storage::IoModes;

    use super::*;

    pub(in crate::request) fn serialize<S: Serializer>(it: &IoModes, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(it)
    }

    pub(in crate::request) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<IoModes, D::Error> {
        IoModes::parse(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// As a list of their names.
pub(super) mod aspects {
    use proto::manifest::Aspects;

    use super::*;

    pub(in crate::request) fn serialize<S: Serializer>(it: &Aspects, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(Aspects::NAMED.iter().filter(|(aspect, _)| it.has(*aspect)).map(|(_, name)| name))
    }

    pub(in crate::request) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Aspects, D::Error> {
        Vec::<String>::deserialize(from)?.iter().try_fold(Aspects::NONE, |all, word| {
            let one = Aspects::NAMED.iter().find(|(_, name)| name == word);
            one.map(|(aspect, _)| all.with(*aspect))
                .ok_or_else(|| serde::de::Error::custom(format!("'{word}' is nothing that can be kept")))
        })
    }
}

/// A name of a file: bytes that are nearly always text.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Name {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<&std::ffi::OsString> for Name {
    fn from(name: &std::ffi::OsString) -> Name {
        match name.to_str() {
            Some(text) => Name::Text(text.to_owned()),
            None => Name::Bytes(name.as_encoded_bytes().to_vec()),
        }
    }
}

impl From<Name> for std::ffi::OsString {
    fn from(name: Name) -> Self {
        match name {
            Name::Text(text) => text.into(),
            Name::Bytes(bytes) => std::os::unix::ffi::OsStringExt::from_vec(bytes),
        }
    }
}

/// Names of files.
pub(super) mod os_strings {
    use std::ffi::OsString;

    use super::*;

    pub(in crate::request) fn serialize<S: Serializer>(all: &[OsString], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(all.iter().map(Name::from))
    }

    pub(in crate::request) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<OsString>, D::Error> {
        Ok(Vec::<Name>::deserialize(from)?.into_iter().map(OsString::from).collect())
    }
}

/// Names of files, or none at all.
pub(super) mod listed {
    use std::ffi::OsString;

    use super::*;

    pub(in crate::request) fn serialize<S: Serializer>(all: &Option<Vec<OsString>>, to: S) -> Result<S::Ok, S::Error> {
        let names: Option<Vec<Name>> = all.as_ref().map(|all| all.iter().map(Name::from).collect());
        names.serialize(to)
    }

    pub(in crate::request) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Vec<OsString>>, D::Error> {
        let names = Option::<Vec<Name>>::deserialize(from)?;
        Ok(names.map(|all| all.into_iter().map(OsString::from).collect()))
    }
}
