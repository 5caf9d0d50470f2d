//! Lines into commands.
//!
//! For: `session`.
//! In and out: a line → its word → a command with its arguments, or the reply that refuses it.
//! Invariants: a word that is not known is 500, one that is known and not done 502, an argument that cannot be 501, one that means nothing here 504, a name that
//! no line can carry 553; numbers are digits alone.
//! Absent on purpose: who may say it, and when (`session`).

use alloc::vec::Vec;
use core::net::SocketAddr;

use super::address::{self, Extended};
use super::blocks::CONNECTIONS_MAX;
use super::facts::{NAMES, Wanted};
use super::lhdata::Spoken;
use super::reply::Reply;
use super::time;

macro_rules! verbs {
    ($($(#[$doc:meta])* $verb:ident = $($word:literal)|+;)*) => {
        /// The first word of a line.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Verb {
            $($(#[$doc])* $verb,)*
        }

        impl Verb {
            /// All words that are known.
            pub const WORDS: &[(&'static str, Verb)] = &[$($(($word, Verb::$verb),)+)*];
        }
    };
}

verbs! {
    /// Who it is (RFC 959).
    User = "USER";
    /// And its password.
    Pass = "PASS";
    /// The end.
    Quit = "QUIT";
    /// Nothing.
    Noop = "NOOP";
    /// Stop what moves.
    Abort = "ABOR";
    /// What the server is.
    System = "SYST";
    /// What it knows.
    Help = "HELP";
    /// How it is, or a listing over the control connection.
    Status = "STAT";
    /// TLS from here on (RFC 4217).
    Auth = "AUTH";
    /// Always 0 with TLS.
    ProtectionSize = "PBSZ";
    /// Whether data goes by TLS.
    Protect = "PROT";
    /// No TLS from here on: refused.
    ClearControl = "CCC";
    /// What is done beyond RFC 959 (RFC 2389).
    Features = "FEAT";
    /// How it is done.
    Options = "OPTS";
    /// Of the replies (RFC 2640).
    Language = "LANG";
    /// What program asks.
    Client = "CLNT";
    /// What host it means (RFC 7151).
    Host = "HOST";
    /// Bytes or text.
    Type = "TYPE";
    /// A stream, or blocks.
    Mode = "MODE";
    /// Files, or records.
    Structure = "STRU";
    /// How long an upload is.
    Allocate = "ALLO";
    /// From where (RFC 3659).
    Restart = "REST";
    /// From where to where (draft-bryan-ftp-range).
    Range = "RANG";
    /// A port here, of IPv4.
    Passive = "PASV";
    /// A port here (RFC 2428).
    Extended = "EPSV";
    /// A port there, of IPv4.
    Port = "PORT";
    /// A port there.
    ExtendedPort = "EPRT";
    /// A file, to the client.
    Retrieve = "RETR";
    /// A file, from the client.
    Store = "STOR";
    /// More of a file.
    Append = "APPE";
    /// A file under a name of ours.
    StoreUnique = "STOU";
    /// A folder, as `ls -l`.
    List = "LIST";
    /// Its names.
    Names = "NLST";
    /// Its names with facts (RFC 3659).
    ListFacts = "MLSD";
    /// Facts of one name.
    FactsOf = "MLST";
    /// How long a file is.
    Size = "SIZE";
    /// When it changed.
    Modified = "MDTM";
    /// When it shall have changed (draft-somers-ftp-mfxx).
    SetModified = "MFMT";
    /// Facts that it shall have.
    SetFacts = "MFF";
    /// A digest of a file (draft-bryan-ftpext-hash).
    Hash = "HASH";
    /// Digests of old, each by a command of its own.
    Crc = "XCRC";
    /// MD5.
    Md5 = "XMD5";
    /// SHA-1.
    Sha1 = "XSHA" | "XSHA1";
    /// SHA-256.
    Sha256 = "XSHA256";
    /// SHA-512.
    Sha512 = "XSHA512";
    /// Bytes that are free (draft-peterson-streamlined-ftp-command-extensions).
    Available = "AVBL";
    /// The folder that a client is in.
    Where = "PWD" | "XPWD";
    /// Another one.
    ChangeFolder = "CWD" | "XCWD";
    /// The one above.
    Up = "CDUP" | "XCUP";
    /// A new one.
    MakeFolder = "MKD" | "XMKD";
    /// One less.
    RemoveFolder = "RMD" | "XRMD";
    /// One file less.
    Delete = "DELE";
    /// The old name.
    RenameFrom = "RNFR";
    /// The new one.
    RenameTo = "RNTO";
    /// What has no command: CHMOD, UTIME.
    Site = "SITE";
    /// A port here for each of the server's ends, which is one (GFD.20).
    StripedPassive = "SPAS";
    /// The same there.
    StripedPort = "SPOR";
    /// A part of a file, to the client.
    ExtendedRetrieve = "ERET";
    /// A part of a file, from it.
    ExtendedStore = "ESTO";
    /// How large a socket's buffer is.
    BufferSize = "SBUF";
    /// Whether data connections are authenticated by GSI.
    DataAuthentication = "DCAU";
    /// From here on the session of docs/protocol.md.
    Upgrade = "LHDATA";
    /// Known, and not done.
    NotDone = "ACCT" | "SMNT" | "REIN" | "COMB" | "ADAT" | "CONF" | "ENC" | "MIC" | "LPRT" | "LPSV" | "THMB"
        | "XSHA384" | "DSIZ" | "XRSQ" | "XRCP" | "XSEN" | "XSEM" | "MFCT";
}

impl Verb {
    /// The word of a line and what stands behind it. `None`: it is not known.
    #[must_use]
    pub fn split(line: &[u8]) -> (Option<Verb>, &[u8]) {
        let end = line.iter().position(|&byte| byte == b' ').unwrap_or(line.len());
        let argument = line.get(end + 1..).unwrap_or_default();
        let known = Verb::WORDS.iter().find(|(word, _)| line[..end].eq_ignore_ascii_case(word.as_bytes()));
        (known.map(|&(_, verb)| verb), argument)
    }

    /// Does it do nothing for who is not logged in?
    #[must_use]
    pub const fn needs_login(self) -> bool {
        use Verb as V;
        !matches!(
            self,
            V::User
                | V::Pass
                | V::Quit
                | V::Noop
                | V::System
                | V::Help
                | V::Auth
                | V::ProtectionSize
                | V::Protect
                | V::ClearControl
                | V::Features
                | V::Options
                | V::Language
                | V::Client
                | V::Host
                | V::NotDone
                // In clear its refusal is another one.
                | V::Upgrade
        )
    }
}

/// What HASH and the commands before it compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Digest {
    /// CRC-32 of IEEE 802.3.
    Crc32,
    /// MD5.
    Md5,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
    /// BLAKE3.
    Blake3,
}

impl Digest {
    /// Hexadecimal digits of it.
    #[must_use]
    pub const fn digits(self) -> usize {
        match self {
            Digest::Blake3 | Digest::Sha256 => 64,
            Digest::Sha512 => 128,
            Digest::Sha1 => 40,
            Digest::Md5 => 32,
            Digest::Crc32 => 8,
        }
    }

    /// The digest in a reply: `SHA-256 0-1 2c26… name`, `2C26…` alone, or with words around. CRC-32 may come without its leading zeros.
    #[must_use]
    pub fn find(self, text: &[u8]) -> Option<&[u8]> {
        let words = || text.split(|byte| byte.is_ascii_whitespace()).filter(|it| !it.is_empty());
        let is_hex = |word: &&[u8]| word.iter().all(u8::is_ascii_hexdigit);
        let found = words().find(|word| word.len() == self.digits() && is_hex(word));
        found.or_else(|| words().next().filter(|word| self == Digest::Crc32 && word.len() < 8 && is_hex(word)))
    }
}

impl Digest {
    /// Those of HASH, by their names in the registry of IANA, and BLAKE3, which it does not have yet.
    pub const OF_HASH: [(&'static str, Digest); 6] = [
        ("SHA-256", Digest::Sha256),
        ("SHA-512", Digest::Sha512),
        ("SHA-1", Digest::Sha1),
        ("MD5", Digest::Md5),
        ("CRC32", Digest::Crc32),
        ("BLAKE3", Digest::Blake3),
    ];

    /// The name that HASH, its reply and FEAT have for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        Digest::OF_HASH.iter().find(|(_, it)| *it == self).map_or("", |(name, _)| name)
    }
}

/// What OPTS sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Options {
    /// Names are UTF-8, which changes nothing.
    Utf8,
    /// Which digest HASH has: asked.
    HashAsked,
    /// And set.
    Hash(Digest),
    /// Which facts listings have.
    Facts(Wanted),
    /// Over how many connections MODE E sends; `None`: something else was said, which changes nothing.
    Parallel(Option<u16>),
}

/// What MFF sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NewFacts {
    /// When its bytes changed.
    pub mtime_s: Option<i64>,
    /// Permission bits.
    pub mode: Option<u32>,
}

/// Bytes of a file: from the first to the one behind the last; `None`: to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Part {
    /// The first.
    pub from: u64,
    /// Behind the last.
    pub to: Option<u64>,
}

/// What a client may ask of a socket's buffers (SBUF).
pub const BUFFER_BYTES_MAX: u64 = 16 << 20;

/// A command with what it wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A word that wants nothing, or whose argument says nothing here.
    Plain(Verb),
    /// A word and a name; the name may be empty where a folder is meant.
    Named(Verb, Vec<u8>),
    /// USER.
    User(Vec<u8>),
    /// PASS.
    Pass(Vec<u8>),
    /// PROT P.
    ProtectPrivate,
    /// OPTS.
    Options(Options),
    /// ALLO.
    Allocate(u64),
    /// SBUF: bytes; 0: as the kernel thinks right.
    BufferSize(u64),
    /// REST.
    Restart(u64),
    /// RANG; `None`: the whole file again.
    Range(Option<(u64, u64)>),
    /// EPSV.
    Extended(Extended),
    /// PORT or EPRT.
    Dial(SocketAddr),
    /// MFMT, MFF, SITE CHMOD, SITE UTIME: the word says how the reply is written.
    Set(Verb, NewFacts, Vec<u8>),
    /// HASH and those of old; `None`: the one that OPTS HASH chose.
    Hash(Option<Digest>, Part, Vec<u8>),
    /// LHDATA.
    Upgrade(Spoken),
    /// SITE HELP.
    SiteHelp,
    /// REST in MODE E: what the other end has, as first bytes and those behind the last.
    Have(Vec<(u64, u64)>),
    /// ERET: a part of a file.
    PartOf(Part, Vec<u8>),
    /// ESTO: where in a file the first byte goes.
    Into(u64, Vec<u8>),
    /// MODE E; false: MODE S.
    Blocks(bool),
    /// SITE CLIENTINFO.
    SiteClient,
}

type Parsed = Result<Command, Reply>;

fn no<T>(code: u16, text: &str) -> Result<T, Reply> {
    Err(Reply::new(code, text))
}

/// A number in digits alone.
fn number(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    digits.then(|| core::str::from_utf8(text).ok()?.parse().ok())?
}

fn name(text: &[u8]) -> Result<Vec<u8>, Reply> {
    if text.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
        return no(553, "No file can have that name here.");
    }
    Ok(text.to_vec())
}

fn some_name(text: &[u8]) -> Result<Vec<u8>, Reply> {
    if text.is_empty() { no(501, "That command wants a name.") } else { name(text) }
}

impl Command {
    /// Reads what stands behind a word.
    ///
    /// # Errors
    /// The reply that refuses it.
    pub fn parse(verb: Verb, text: &[u8]) -> Parsed {
        use Verb as V;
        match verb {
            V::Retrieve
            | V::Store
            | V::Append
            | V::Size
            | V::Modified
            | V::MakeFolder
            | V::RemoveFolder
            | V::Delete
            | V::RenameFrom
            | V::RenameTo
            | V::ChangeFolder => Ok(Command::Named(verb, some_name(text)?)),
            V::List | V::Names => Ok(Command::Named(verb, name(without_flags(text))?)),
            V::ListFacts | V::FactsOf | V::Available | V::Status => Ok(Command::Named(verb, name(text)?)),
            V::Hash | V::Crc | V::Md5 | V::Sha1 | V::Sha256 | V::Sha512 => hash(verb, text),
            V::SetModified | V::SetFacts => set(verb, text),
            V::Site => site(text),
            V::ExtendedRetrieve => extended_part(text),
            V::ExtendedStore => extended_place(text),
            V::User if text.is_empty() || text.contains(&0) => no(501, "USER wants a name."),
            V::User => Ok(Command::User(text.to_vec())),
            V::Pass => Ok(Command::Pass(text.to_vec())),
            _ => Command::parse_setting(verb, text),
        }
    }

    fn parse_setting(verb: Verb, text: &[u8]) -> Parsed {
        use Verb as V;
        match verb {
            V::Auth => match &text.to_ascii_uppercase()[..] {
                b"TLS" | b"TLS-C" | b"SSL" => Ok(Command::Plain(verb)),
                _ => no(504, "AUTH TLS is what is spoken here; GSI is not."),
            },
            V::Protect => match text {
                b"P" | b"p" => Ok(Command::ProtectPrivate),
                b"C" | b"c" => no(534, "Data goes by TLS here: PROT P."),
                _ => no(536, "PROT P is what there is."),
            },
            V::ProtectionSize if number(text).is_none() => no(501, "PBSZ 0"),
            V::Options => options(text),
            V::Upgrade => match Spoken::parse(text) {
                Some(spoken) => Ok(Command::Upgrade(spoken)),
                None => no(501, "LHDATA version transport,transport"),
            },
            V::Type => match text.first().map(u8::to_ascii_uppercase) {
                Some(b'I' | b'L' | b'A') => Ok(Command::Plain(verb)),
                _ => no(504, "TYPE A and I, and both as they are."),
            },
            V::Mode => match text {
                b"S" | b"s" => Ok(Command::Blocks(false)),
                b"E" | b"e" => Ok(Command::Blocks(true)),
                _ => no(504, "MODE S and MODE E: deflate is slower than the wire here."),
            },
            V::BufferSize => match number(text).filter(|&bytes| bytes <= BUFFER_BYTES_MAX) {
                Some(bytes) => Ok(Command::BufferSize(bytes)),
                None => no(501, "SBUF wants a number of bytes, 16 MiB at most; 0: as many as the kernel thinks right."),
            },
            V::DataAuthentication if !text.eq_ignore_ascii_case(b"N") => {
                no(504, "DCAU N: GSI is not built here, so no data connection is authenticated by it.")
            }
            V::Structure if !text.eq_ignore_ascii_case(b"F") => no(504, "STRU F alone."),
            V::Allocate => match text.split(|&byte| byte == b' ').next().and_then(number) {
                Some(bytes) => Ok(Command::Allocate(bytes)),
                None => no(501, "ALLO wants a number of bytes."),
            },
            V::Restart if text.contains(&b'-') => have(text),
            V::Restart => {
                number(text).map(Command::Restart).ok_or_else(|| Reply::new(501, "REST wants a number of bytes."))
            }
            V::StripedPort if text.contains(&b' ') => no(501, "SPOR with one address: there is one end here."),
            V::Range => range(text),
            V::Extended => match address::parse_extended(text) {
                Some(extended) => Ok(Command::Extended(extended)),
                None => no(522, "Network protocol not supported, use (1,2)"),
            },
            V::Port | V::ExtendedPort | V::StripedPort => {
                let parse = if verb == V::ExtendedPort { address::parse_eprt } else { address::parse_port };
                parse(text).map(Command::Dial).ok_or_else(|| Reply::new(501, "That is no address."))
            }
            _ => Ok(Command::Plain(verb)),
        }
    }
}

/// Options of `ls`, which clients of old send along.
fn without_flags(text: &[u8]) -> &[u8] {
    if !text.starts_with(b"-") {
        return text;
    }
    text.iter().position(|&byte| byte == b' ').map_or(&[], |at| &text[at + 1..])
}

fn options(text: &[u8]) -> Parsed {
    let upper = text.to_ascii_uppercase();
    let (word, rest) = upper.split_at(upper.iter().position(|&byte| byte == b' ').unwrap_or(upper.len()));
    let rest = rest.get(1..).unwrap_or_default();
    match (word, rest) {
        (b"UTF8", b"" | b"ON" | b"NLST") => Ok(Command::Options(Options::Utf8)),
        (b"HASH", b"") => Ok(Command::Options(Options::HashAsked)),
        (b"HASH", name) => match Digest::OF_HASH.iter().find(|(it, _)| it.as_bytes() == name) {
            Some(&(_, digest)) => Ok(Command::Options(Options::Hash(digest))),
            None => no(504, "No such digest; FEAT names those that there are."),
        },
        (b"MLST", names) => Ok(Command::Options(Options::Facts(Wanted::parse(names)))),
        (b"RETR", words) => parallel(words),
        _ => no(501, "No such option."),
    }
}

/// `Parallelism=n,n,n;` (GFD.20 section 4: to begin with, at least, at most), and `StripeLayout=…;BlockSize=…;`, which says how bytes are dealt out to
/// stripes: there is one.
fn parallel(words: &[u8]) -> Parsed {
    let bad = || Reply::new(501, "OPTS RETR Parallelism=n,n,n;");
    let mut found = None;
    for word in words.split(|&byte| byte == b';').filter(|word| !word.is_empty()) {
        let at = word.iter().position(|&byte| byte == b'=').ok_or_else(bad)?;
        match (&word[..at], &word[at + 1..]) {
            (b"PARALLELISM", numbers) => {
                let mut numbers = numbers.split(|&byte| byte == b',').map(number);
                let first = numbers.next().flatten().filter(|&it| it > 0).ok_or_else(bad)?;
                if !numbers.all(|it| it.is_some()) {
                    return Err(bad());
                }
                found = Some(u16::try_from(first).unwrap_or(CONNECTIONS_MAX).min(CONNECTIONS_MAX));
            }
            (b"STRIPELAYOUT", b"BLOCKED" | b"PARTITIONED") => {}
            (b"BLOCKSIZE", size) if number(size).is_some() => {}
            _ => return Err(bad()),
        }
    }
    Ok(Command::Options(Options::Parallel(found)))
}

/// `REST 0-100,200-300`: from the first byte to the one behind the last (GFD.20 section 7).
fn have(text: &[u8]) -> Parsed {
    let one = |word: &[u8]| {
        let at = word.iter().position(|&byte| byte == b'-')?;
        Some((number(&word[..at])?, number(&word[at + 1..])?)).filter(|(from, to)| from <= to)
    };
    let all: Option<Vec<_>> = text.split(|&byte| byte == b',').map(one).collect();
    all.map(Command::Have)
        .ok_or_else(|| Reply::new(501, "REST first-behind,first-behind in MODE E, a number in MODE S."))
}

/// `ERET P offset bytes name` (GFD.20 section 4).
fn extended_part(text: &[u8]) -> Parsed {
    let (what, rest) = word(text);
    if !what.eq_ignore_ascii_case(b"P") {
        return no(504, "ERET P offset bytes name");
    }
    let (from, rest) = word(rest);
    let (count, name) = word(rest);
    match (number(from), number(count)) {
        (Some(from), Some(count)) if from.checked_add(count).is_some() => {
            Ok(Command::PartOf(Part { from, to: Some(from + count) }, some_name(name)?))
        }
        _ => no(501, "ERET P offset bytes name"),
    }
}

/// `ESTO A offset name`.
fn extended_place(text: &[u8]) -> Parsed {
    let (what, rest) = word(text);
    if !what.eq_ignore_ascii_case(b"A") {
        return no(504, "ESTO A offset name");
    }
    let (at, name) = word(rest);
    match number(at) {
        Some(at) => Ok(Command::Into(at, some_name(name)?)),
        None => no(501, "ESTO A offset name"),
    }
}

/// `RANG 5 9`: bytes 5 to 9, both of them; `RANG 1 0`: the whole file again (draft-bryan-ftp-range section 3).
fn range(text: &[u8]) -> Parsed {
    let mut words = text.split(|&byte| byte == b' ').map(number);
    match (words.next().flatten(), words.next().flatten(), words.next()) {
        (Some(1), Some(0), None) => Ok(Command::Range(None)),
        (Some(first), Some(last), None) if first <= last && last < u64::MAX => {
            Ok(Command::Range(Some((first, last + 1))))
        }
        _ => no(501, "RANG first last"),
    }
}

/// `HASH name`; `XCRC name`, `XCRC "name" first behind-the-last` as clients of old have it.
fn hash(verb: Verb, text: &[u8]) -> Parsed {
    let digest = match verb {
        Verb::Crc => Digest::Crc32,
        Verb::Md5 => Digest::Md5,
        Verb::Sha1 => Digest::Sha1,
        Verb::Sha256 => Digest::Sha256,
        Verb::Sha512 => Digest::Sha512,
        _ => return Ok(Command::Hash(None, Part::default(), some_name(text)?)),
    };
    let quoted = text.strip_prefix(b"\"").and_then(|rest| {
        let end = rest.iter().rposition(|&byte| byte == b'"')?;
        Some((&rest[..end], rest[end + 1..].trim_ascii()))
    });
    let (path, rest) = quoted.unwrap_or((text, b""));
    let mut words = rest.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).map(number);
    let part = match (words.next(), words.next(), words.next()) {
        (None, ..) => Part::default(),
        (Some(Some(from)), None, _) => Part { from, to: None },
        (Some(Some(from)), Some(Some(to)), None) if from <= to => Part { from, to: Some(to) },
        _ => return no(501, "name, or \"name\" first last"),
    };
    Ok(Command::Hash(Some(digest), part, some_name(path)?))
}

/// The first word, and what stands behind one blank.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|&byte| byte == b' ').unwrap_or(text.len());
    (&text[..end], text.get(end + 1..).unwrap_or_default())
}

fn mode(text: &[u8]) -> Option<u32> {
    let text = core::str::from_utf8(text).ok().filter(|it| it.bytes().all(|byte| byte.is_ascii_digit()))?;
    u32::from_str_radix(text, 8).ok().filter(|&mode| mode <= 0o777)
}

fn set(verb: Verb, text: &[u8]) -> Parsed {
    let (what, path) = word(text);
    let mut facts = NewFacts::default();
    if verb == Verb::SetModified {
        let time = time::parse(what).ok_or_else(|| Reply::new(501, "MFMT YYYYMMDDHHMMSS name"))?;
        facts.mtime_s = Some(time);
        return Ok(Command::Set(verb, facts, some_name(path)?));
    }
    for fact in what.split(|&byte| byte == b';').filter(|fact| !fact.is_empty()) {
        let at = fact.iter().position(|&byte| byte == b'=').unwrap_or(fact.len());
        let (name, value) = (&fact[..at], fact.get(at + 1..).unwrap_or_default());
        let is_set = if name.eq_ignore_ascii_case(NAMES[2].as_bytes()) {
            facts.mtime_s = time::parse(value);
            facts.mtime_s.is_some()
        } else if name.eq_ignore_ascii_case(NAMES[4].as_bytes()) {
            facts.mode = mode(value);
            facts.mode.is_some()
        } else {
            return no(504, "Modify and UNIX.mode can be set.");
        };
        if !is_set {
            return no(501, "MFF modify=YYYYMMDDHHMMSS;unix.mode=644; name");
        }
    }
    if facts == NewFacts::default() {
        return no(501, "MFF modify=YYYYMMDDHHMMSS;unix.mode=644; name");
    }
    Ok(Command::Set(verb, facts, some_name(path)?))
}

/// `SITE CHMOD 644 name`; `SITE UTIME YYYYMMDDhhmm[ss] name`, and `SITE UTIME name atime mtime ctime UTC` as some clients have it.
fn site(text: &[u8]) -> Parsed {
    let (verb, rest) = word(text);
    if verb.eq_ignore_ascii_case(b"HELP") {
        return Ok(Command::SiteHelp);
    }
    if verb.eq_ignore_ascii_case(b"CLIENTINFO") {
        return Ok(Command::SiteClient);
    }
    let facts = NewFacts::default();
    if verb.eq_ignore_ascii_case(b"CHMOD") {
        let (digits, path) = word(rest);
        let mode = mode(digits).ok_or_else(|| Reply::new(501, "SITE CHMOD 644 name; setuid is set by nobody."))?;
        return Ok(Command::Set(Verb::Site, NewFacts { mode: Some(mode), ..facts }, some_name(path)?));
    }
    if !verb.eq_ignore_ascii_case(b"UTIME") {
        return no(504, "SITE CHMOD mode name and SITE UTIME time name are what there is.");
    }
    let (digits, path) = word(rest);
    if let Some(time) = minutes_or_seconds(digits) {
        return Ok(Command::Set(Verb::Site, NewFacts { mtime_s: Some(time), ..facts }, some_name(path)?));
    }
    let words: Vec<&[u8]> = rest.rsplitn(5, |&byte| byte == b' ').collect();
    if let [zone, _, mtime, _, path] = words[..]
        && zone.eq_ignore_ascii_case(b"UTC")
        && let Some(time) = minutes_or_seconds(mtime)
    {
        return Ok(Command::Set(Verb::Site, NewFacts { mtime_s: Some(time), ..facts }, some_name(path)?));
    }
    no(501, "SITE UTIME YYYYMMDDHHMMSS name")
}

fn minutes_or_seconds(digits: &[u8]) -> Option<i64> {
    if digits.len() == 12 { time::parse(&[digits, b"00"].concat()) } else { time::parse(digits) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &[u8]) -> Result<Command, u16> {
        let (verb, argument) = Verb::split(line);
        Command::parse(verb.ok_or(500u16)?, argument).map_err(|refused| refused.code)
    }

    #[test]
    fn commands_are_read_with_their_arguments() {
        let day = Some(951_782_400);
        let path = || b"a b".to_vec();
        for (line, wanted) in [
            (&b"retr a b"[..], Command::Named(Verb::Retrieve, path())),
            (b"LIST -la a b", Command::Named(Verb::List, path())),
            (b"LIST -la", Command::Named(Verb::List, Vec::new())),
            (b"RANG 5 9", Command::Range(Some((5, 10)))),
            (b"RANG 1 0", Command::Range(None)),
            (b"REST 18446744073709551615", Command::Restart(u64::MAX)),
            (b"EPSV ALL", Command::Extended(Extended::All)),
            (b"MODE e", Command::Blocks(true)),
            (b"OPTS RETR Parallelism=4,2,8;", Command::Options(Options::Parallel(Some(4)))),
            (b"OPTS RETR parallelism=99999999,1,1;", Command::Options(Options::Parallel(Some(32)))),
            (b"OPTS RETR StripeLayout=Blocked;BlockSize=1048576;", Command::Options(Options::Parallel(None))),
            (b"REST 0-100,200-300", Command::Have(alloc::vec![(0, 100), (200, 300)])),
            (b"ERET P 5 4 a b", Command::PartOf(Part { from: 5, to: Some(9) }, path())),
            (b"ESTO A 5 a b", Command::Into(5, path())),
            (b"SPOR 10,0,0,9,8,0", Command::Dial("10.0.0.9:2048".parse().unwrap())),
            (b"DCAU N", Command::Plain(Verb::DataAuthentication)),
            (b"SBUF 4194304", Command::BufferSize(4 << 20)),
            (b"SBUF 0", Command::BufferSize(0)),
            (b"HASH a b", Command::Hash(None, Part::default(), path())),
            (b"XCRC a b", Command::Hash(Some(Digest::Crc32), Part::default(), path())),
            (b"XMD5 \"a b\" 3", Command::Hash(Some(Digest::Md5), Part { from: 3, to: None }, path())),
            (b"XSHA256 \"a b\" 3 9", Command::Hash(Some(Digest::Sha256), Part { from: 3, to: Some(9) }, path())),
            (b"OPTS hash blake3", Command::Options(Options::Hash(Digest::Blake3))),
            (b"OPTS UTF8 on", Command::Options(Options::Utf8)),
            (
                b"MFMT 20000229000000 a b",
                Command::Set(Verb::SetModified, NewFacts { mtime_s: day, mode: None }, path()),
            ),
            (
                b"MFF Modify=20000229000000;UNIX.mode=0640; a b",
                Command::Set(Verb::SetFacts, NewFacts { mtime_s: day, mode: Some(0o640) }, path()),
            ),
            (b"SITE CHMOD 640 a b", Command::Set(Verb::Site, NewFacts { mtime_s: None, mode: Some(0o640) }, path())),
            (b"SITE UTIME 200002290000 a b", Command::Set(Verb::Site, NewFacts { mtime_s: day, mode: None }, path())),
            (
                b"SITE UTIME a b 20010101000000 20000229000000 20010101000000 UTC",
                Command::Set(Verb::Site, NewFacts { mtime_s: day, mode: None }, path()),
            ),
        ] {
            assert_eq!(parsed(line), Ok(wanted), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_code() {
        for (line, code) in [
            (&b"NONSENSE"[..], 500),
            (b"", 500),
            (b"RETR", 501),
            (b"STOR a\0", 553),
            (b"STOR a\rb", 553),
            (b"USER", 501),
            (b"REST -1", 501),
            (b"REST 1-", 501),
            (b"REST +1", 501),
            (b"REST 18446744073709551616", 501),
            (b"REST 1 ", 501),
            (b"RANG 9 5", 501),
            (b"RANG 0 18446744073709551615", 501),
            (b"RANG 1", 501),
            (b"ALLO x", 501),
            (b"EPSV 3", 522),
            (b"PORT 1,2,3", 501),
            (b"TYPE E", 504),
            (b"MODE Z", 504),
            (b"OPTS RETR Parallelism=0,0,0;", 501),
            (b"OPTS RETR Parallelism=4,x;", 501),
            (b"OPTS RETR Nonsense=1;", 501),
            (b"REST 5-4", 501),
            (b"REST 0-5,", 501),
            (b"ERET P 1 18446744073709551615 a", 501),
            (b"ERET P 1 2", 501),
            (b"ERET X 1 2 a", 504),
            (b"ESTO A x a", 501),
            (b"ESTO A 1", 501),
            (b"SPOR 10,0,0,9,8,0 10,0,0,9,8,1", 501),
            (b"DCAU A", 504),
            (b"DCAU S x", 504),
            (b"SBUF x", 501),
            (b"SBUF 16777217", 501),
            (b"STRU R", 504),
            (b"AUTH GSSAPI", 504),
            (b"PROT C", 534),
            (b"PROT S", 536),
            (b"OPTS X", 501),
            (b"OPTS HASH SHA-3", 504),
            (b"MFMT 20000230000000 a", 501),
            (b"MFMT 20000229000000", 501),
            (b"MFF create=20000229000000; a", 504),
            (b"MFF unix.mode=4755; a", 501),
            (b"MFF ; a", 501),
            (b"SITE CHMOD 4755 a", 501),
            (b"SITE CHMOD +7 a", 501),
            (b"SITE UTIME 2000 a", 501),
            (b"SITE EXEC a", 504),
            (b"XCRC \"a\" 9 5", 501),
            (b"XCRC \"a\" x", 501),
        ] {
            assert_eq!(parsed(line), Err(code), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn a_word_is_known_once_and_what_it_does_is_done_after_login_or_harmless() {
        for (at, (word, verb)) in Verb::WORDS.iter().enumerate() {
            assert!(Verb::WORDS[..at].iter().all(|(other, _)| other != word), "{word}");
            assert_eq!(Verb::split(word.to_ascii_lowercase().as_bytes()).0, Some(*verb));
        }
        assert_eq!(Verb::WORDS.iter().filter(|(_, verb)| !verb.needs_login()).count(), 15 + 19);
    }
}
