//! What one login does at the other host: the far side found there, or brought there, and started.
//!
//! For: `[user@]host:path` without any installation on the other host.
//! In and out: the script that the other host's shell runs; its lines → `Said`; the binary, packed, as it goes to the script's standard input.
//! Invariants: one login, whatever is there; the binary stands under its name whole, with its digest compared, or not at all, however many bring it
//! at once; it travels compressed by what the other host has, `xz` before `gzip`, and as it is where it has neither; what the other host says
//! is bounded, and a line that is not of this grammar is only ever shown.
//! Absent on purpose: running ssh (ssh.rs); removing old builds (job::sweep).
//!
//! ```text
//! → NAME, BINARY (empty: whichever is found), OPTIONS of `longhaul serve`, a line each
//! ← longhaul://TICKET@[::]:PORT/                    it runs; its standard input is the rest of this one
//! ← @longhaul lacks xz|gzip|plain KERNEL ARCH       there is none of this protocol
//! → xz|gzip|plain BYTES SHA256 TOKEN, then as many bytes
//! ← @longhaul unnamed                               BINARY is not there
//! ```

use std::io::{self, BufRead, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use lzma_rust2::{LzmaOptions, LzmaWriter};

use crate::address::Address;
use crate::identity::ticket::Ticket;

/// Where the binary is put on a host that has none, below the home folder.
pub const FAR_PLACE: &str = ".cache/longhaul/bin";
/// Before each word of the script. What a login says besides (a shell's start files, `nologin`) does not begin so.
const MARK: &str = "@longhaul ";
/// A line of the other host's; an address with a ticket has about 150 bytes.
const LINE_BYTES_MAX: u64 = 4096;
/// All that is read before the far side runs: start files that greet have a page or two.
const SAID_BYTES_MAX: usize = 64 << 10;
/// gzip's level: 9 saves another 0.5 % and takes twice as long (docs/design/023-shipped-binary.md).
const LEVEL: u32 = 6;
/// LZMA's: from 4 on it looks for the cheapest way to say all, and not for the next longest match: 5 % less in the same time, with the two bounds below
/// (the same page).
const LZMA_LEVEL: u32 = 4;
/// Bytes that LZMA looks back over: the whole binary, where the level's own is 1 MiB. Saves 2 %.
const LZMA_DICT_BYTES: u32 = 16 << 20;
/// Earlier places that LZMA compares each place with, and a match that is long enough to end the search, bytes; the level's own are 24 and 16.
const LZMA_DEPTH: i32 = 8;
const LZMA_NICE_BYTES: u32 = 16;

/// How the binary travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    /// As LZMA: a sixth less than gzip, at twice its processor time at this end.
    Xz,
    /// Through gzip at both ends.
    Gzip,
    /// As it is: the other host has neither.
    Plain,
}

impl Packing {
    /// The script's word for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Packing::Xz => "xz",
            Packing::Gzip => "gzip",
            Packing::Plain => "plain",
        }
    }
}

/// What the other host said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The far side listens at this port, on all its addresses.
    Runs(Option<Ticket>, u16),
    /// There is no longhaul of this protocol; it takes one packed like this.
    Lacks(Packing),
    /// The same, and this binary does not run there: its kernel and architecture.
    OtherKind(String),
    /// The binary that the user named is not there.
    Unnamed,
    /// Something that begins like an answer and is none.
    Nonsense,
    /// It ended, or said too much, without an answer.
    Nothing,
}

/// Reads to the script's next word; what else was said is added to `beside`.
pub(super) fn hear(from: &mut impl BufRead, beside: &mut String) -> Said {
    let mut all = 0;
    while all < SAID_BYTES_MAX {
        let mut line = Vec::new();
        match from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(count) if count > 0 => all += count,
            _ => return Said::Nothing,
        }
        let line = String::from_utf8_lossy(&line);
        if let Some(said) = understood(line.trim_end()) {
            return said;
        }
        beside.push_str(&line);
    }
    Said::Nothing
}

/// A line of the script's; `None`: somebody else's.
fn understood(line: &str) -> Option<Said> {
    if line.starts_with("longhaul://") {
        return Some(match Address::parse(line.as_bytes()) {
            Ok(Address::Daemon { ticket, port, .. }) => Said::Runs(ticket, port),
            _ => Said::Nonsense,
        });
    }
    let words: Vec<&str> = line.strip_prefix(MARK)?.split(' ').collect();
    let packing = |word: &str| [Packing::Xz, Packing::Gzip, Packing::Plain].into_iter().find(|it| it.word() == word);
    Some(match words[..] {
        ["unnamed"] => Said::Unnamed,
        ["lacks", how, kernel, arch] => match packing(how) {
            Some(how) if kernel == "Linux" && arch == std::env::consts::ARCH => Said::Lacks(how),
            Some(_) => Said::OtherKind(format!("{kernel} {arch}")),
            None => Said::Nonsense,
        },
        _ => Said::Nonsense,
    })
}

/// What the other host does. No quote but `"`, no backslash and no `!`: within single quotes it is the same word to sh, csh and fish.
/// The xz of busybox does not know the format that is sent, and says so by its status.
const SCRIPT: &str = r#"
read -r name && IFS= read -r binary && read -r options || exit 1;
place="$HOME/FAR_PLACE";
if [ -n "$binary" ]; then
  if command -v "$binary" >/dev/null 2>&1; then exec "$binary" serve --stdio $options; fi;
  echo "MARKunnamed"; exit 127;
fi;
if command -v longhaul >/dev/null 2>&1; then
  case "$(longhaul --version 2>/dev/null)" in *"protocol VERSION)"*) exec longhaul serve --stdio $options;; esac;
fi;
if [ -s "$place/$name" ] && [ -x "$place/$name" ]; then exec "$place/$name" serve --stdio $options; fi;
how=plain;
if xz --format=lzma -V >/dev/null 2>&1; then how=xz; elif command -v gzip >/dev/null 2>&1; then how=gzip; fi;
echo "MARKlacks $how $(uname -sm)";
read -r how bytes sum token || exit 1;
case $how in xz) how="xz --format=lzma -dc";; gzip) how="gzip -dc";; *) how=cat;; esac;
umask 077; mkdir -p "$place" || exit 1;
new="$place/$name.$token.new"; sum_there=;
head -c "$bytes" | $how >"$new" && sum_there="$(sha256sum <"$new")";
case "$sum_there" in
  "$sum"*) chmod 700 "$new" && mv -f "$new" "$place/$name" && exec "$place/$name" serve --stdio $options;;
  *) echo "what arrived is not what was sent: its SHA-256 is ${sum_there:-unknown}" >&2;;
esac;
rm -f "$new"; exit 1
"#;

/// What the other host's login shell is told to run; all that differs between runs it reads from its standard input.
pub(super) fn script() -> String {
    let lines: Vec<&str> = SCRIPT.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let inner = lines.join(" ").replace("FAR_PLACE", FAR_PLACE).replace("MARK", MARK);
    format!("exec sh -c '{}'", inner.replace("VERSION", &proto::VERSION.to_string()))
}

/// The binary as it travels, and the line before it. All of it is held: the other host must know how long it is, for what follows is not of it, and
/// not every `head` can be told twice (busybox reads ahead).
pub(super) fn packed(program: &Path, packing: Packing) -> io::Result<(String, Vec<u8>)> {
    let own = std::fs::read(program)?;
    let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &own);
    let bytes = pack(&own, packing)?;
    let mut token = [0; 8];
    aws_lc_rs::rand::fill(&mut token).map_err(|_| io::Error::other("the system gives no randomness"))?;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    Ok((format!("{} {} {} {}\n", packing.word(), bytes.len(), hex(sum.as_ref()), hex(&token)), bytes))
}

fn pack(own: &[u8], packing: Packing) -> io::Result<Vec<u8>> {
    match packing {
        Packing::Xz => {
            let level = LzmaOptions::with_preset(LZMA_LEVEL);
            let options =
                LzmaOptions { dict_size: LZMA_DICT_BYTES, depth_limit: LZMA_DEPTH, nice_len: LZMA_NICE_BYTES, ..level };
            let mut lzma = LzmaWriter::new_use_header(Vec::new(), &options, None)?;
            lzma.write_all(own)?;
            lzma.finish()
        }
        Packing::Gzip => {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::new(LEVEL));
            gzip.write_all(own)?;
            gzip.finish()
        }
        Packing::Plain => Ok(own.to_vec()),
    }
}

/// The name of this very build of the program: another build of the same version must not be taken for it.
pub fn version_name(program: &Path) -> String {
    let mut hasher = blake3::Hasher::new();
    let own = std::fs::File::open(program).and_then(|own| hasher.update_reader(own).map(|_| ()));
    let build = if own.is_ok() { hasher.finalize().to_hex()[..12].to_owned() } else { "unknown".to_owned() };
    format!("longhaul-{}-{build}", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command, Stdio};

    use super::*;

    const USUAL: [&str; 9] = ["sh", "uname", "mkdir", "chmod", "mv", "rm", "head", "sha256sum", "cat"];

    /// A host of its own: a home folder, and a folder of programs that holds these beside the usual ones.
    fn host(name: &str, programs: &[&str]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("longhaul-bring-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("bin")).unwrap();
        for program in USUAL.iter().chain(programs) {
            let found = ["/bin", "/usr/bin"].into_iter().map(|at| Path::new(at).join(program)).find(|it| it.exists());
            symlink(found.unwrap_or_else(|| panic!("no {program}")), folder.join("bin").join(program)).unwrap();
        }
        folder
    }

    /// The script, as a login shell of that host runs it, told these three lines.
    fn login(folder: &Path, told: &str) -> Child {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script()]).env("PATH", folder.join("bin")).env("HOME", folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(told.as_bytes()).unwrap();
        child
    }

    fn program(path: &Path, text: &str) {
        std::fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Reads the next word of a login, or to its end.
    fn next(out: &mut impl BufRead) -> Said {
        hear(out, &mut String::new())
    }

    /// A program that says where it listens and how it was called; long enough that packing it is worth it.
    fn far_side(path: &Path) {
        let long: String = (0..100_000_u32).map(|number| format!("# {number:x}\n")).collect();
        program(path, &format!("echo longhaul://h:5/; echo \"$@\" >&2; cat >&2; exit\n{long}"));
    }

    /// The far side goes to a host with these programs, and is started: how many bytes travelled, and of how many.
    fn brought(name: &str, programs: &[&str], as_what: Packing) -> (usize, usize) {
        let folder = host(name, programs);
        let own = folder.join("program");
        far_side(&own);
        let mut child = login(&folder, "longhaul-1\n\n--memory 1\n");
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        assert_eq!(next(&mut out), Said::Lacks(as_what), "{name}");
        let (line, bytes) = packed(&own, as_what).unwrap();
        let mut to = child.stdin.take().unwrap();
        to.write_all(line.as_bytes()).and_then(|()| to.write_all(&bytes)).unwrap();
        assert_eq!(next(&mut out), Said::Runs(None, 5), "{name}: the same login started it");
        to.write_all(b"rest").unwrap();
        drop(to);
        let said = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stderr), "serve --stdio --memory 1\nrest", "{name}: not a byte more");
        let place = folder.join(FAR_PLACE).join("longhaul-1");
        let whole = std::fs::read(&own).unwrap();
        assert_eq!(std::fs::read(&place).unwrap(), whole, "{name}: it is this binary");
        assert_eq!(std::fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o700, "{name}");
        assert_eq!(std::fs::read_dir(folder.join(FAR_PLACE)).unwrap().count(), 1, "{name}: nothing beside it");
        // The next login finds it.
        let mut child = login(&folder, "longhaul-1\n\n\n");
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        assert_eq!(next(&mut out), Said::Runs(None, 5), "{name}");
        child.wait_with_output().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        (bytes.len(), whole.len())
    }

    #[test]
    fn one_login_brings_it_compressed_by_what_is_there_and_starts_it() {
        let (gzipped, own) = brought("gzip", &["gzip"], Packing::Gzip);
        assert!(gzipped * 2 < own, "{gzipped} of {own}");
        let (sent, _) = brought("xz", &["gzip", "xz"], Packing::Xz);
        assert!(sent < gzipped, "{sent} by xz, {gzipped} by gzip");
        let (sent, own) = brought("plain", &[], Packing::Plain);
        assert_eq!(sent, own);
    }

    #[test]
    fn what_arrives_otherwise_than_it_was_sent_is_never_started_and_nothing_stays() {
        let folder = host("harmed", &[]);
        let own = folder.join("program");
        far_side(&own);
        let (line, mut bytes) = packed(&own, Packing::Plain).unwrap();
        bytes[40] ^= 1;
        // One is harmed, one is cut.
        for bytes in [&bytes[..], &bytes[..1000]] {
            let mut child = login(&folder, "longhaul-1\n\n\n");
            let mut to = child.stdin.take().unwrap();
            to.write_all(line.as_bytes()).and_then(|()| to.write_all(bytes)).unwrap();
            drop(to);
            let said = child.wait_with_output().unwrap();
            let words = String::from_utf8_lossy(&said.stderr);
            assert!(words.contains("not what was sent") && !said.status.success(), "{words}");
            assert!(!String::from_utf8_lossy(&said.stdout).contains("longhaul://"));
            assert_eq!(std::fs::read_dir(folder.join(FAR_PLACE)).unwrap().count(), 0);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn two_that_bring_it_at_once_do_not_harm_each_other() {
        let folder = host("two", &[]);
        let own = folder.join("program");
        far_side(&own);
        let mut both: Vec<Child> = (0..2).map(|_| login(&folder, "longhaul-1\n\n\n")).collect();
        let parts: Vec<_> = both.iter().map(|_| packed(&own, Packing::Plain).unwrap()).collect();
        let mut to: Vec<_> = both.iter_mut().map(|it| it.stdin.take().unwrap()).collect();
        let half = parts[0].1.len() / 2;
        for (to, (line, bytes)) in to.iter_mut().zip(&parts) {
            to.write_all(line.as_bytes()).and_then(|()| to.write_all(&bytes[..half])).unwrap();
        }
        for (to, (_, bytes)) in to.iter_mut().zip(&parts) {
            to.write_all(&bytes[half..]).unwrap();
        }
        drop(to);
        for child in both {
            let said = child.wait_with_output().unwrap();
            assert!(String::from_utf8_lossy(&said.stdout).contains("longhaul://h:5/"), "{said:?}");
        }
        assert_eq!(std::fs::read(folder.join(FAR_PLACE).join("longhaul-1")).unwrap(), std::fs::read(&own).unwrap());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_one_in_the_path_is_taken_if_it_speaks_this_protocol_and_the_one_named_whatever_it_is() {
        let folder = host("path", &[]);
        let version =
            |number: u16| format!("[ \"$1\" = --version ] && echo \"longhaul 9 (x, protocol {number})\" && exit");
        let run = |told: &str| {
            let mut child = login(&folder, told);
            drop(child.stdin.take());
            next(&mut std::io::BufReader::new(&child.wait_with_output().unwrap().stdout[..]))
        };
        program(&folder.join("bin/longhaul"), &format!("{}\necho longhaul://h:7/", version(proto::VERSION)));
        assert_eq!(run("n\n\n\n"), Said::Runs(None, 7));
        program(&folder.join("bin/longhaul"), &format!("{}\necho longhaul://h:7/", version(proto::VERSION + 1)));
        assert_eq!(run("n\n\n\n"), Said::Lacks(Packing::Plain), "of another protocol");
        let odd = folder.join("an odd $(name)");
        program(&odd, "echo longhaul://h:8/");
        assert_eq!(run(&format!("n\n{}\n\n", odd.display())), Said::Runs(None, 8));
        assert_eq!(run("n\n/no/longhaul\n\n"), Said::Unnamed);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_host_that_cannot_take_it_keeps_nothing_and_says_why() {
        let folder = host("full", &[]);
        std::fs::write(folder.join(".cache"), "no folder").unwrap();
        let said = login(&folder, "n\n\n\nplain 1 0 0\n").wait_with_output().unwrap();
        assert!(String::from_utf8_lossy(&said.stderr).contains("mkdir") && !said.status.success(), "{said:?}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_the_other_host_says_is_bounded_and_only_words_of_the_grammar_are_answers() {
        let said = |text: &[u8]| {
            let mut beside = String::new();
            (hear(&mut &text[..], &mut beside), beside)
        };
        let lacks = format!("Welcome!\n@longhaul lacks xz Linux {}\n", std::env::consts::ARCH);
        assert_eq!(said(lacks.as_bytes()), (Said::Lacks(Packing::Xz), "Welcome!\n".to_owned()));
        assert_eq!(said(b"@longhaul lacks gzip Darwin arm64\n").0, Said::OtherKind("Darwin arm64".into()));
        assert_eq!(said(b"@longhaul lacks bzip2 Linux x\n").0, Said::Nonsense);
        assert_eq!(said(b"@longhaul \xff\n").0, Said::Nonsense);
        assert_eq!(said(b"longhaul://x@h:99999/\n").0, Said::Nonsense);
        assert_eq!(said(b"longhaul://[::]:9/\r\n").0, Said::Runs(None, 9));
        assert_eq!(said(b"not available\n"), (Said::Nothing, "not available\n".to_owned()));
        let endless = vec![b'x'; 10 << 20];
        let (what, beside) = said(&endless);
        assert!(what == Said::Nothing && beside.len() < SAID_BYTES_MAX + 8192, "{} bytes", beside.len());
    }

    #[test]
    fn the_script_is_one_word_to_every_shell() {
        let line = script();
        let inner = line.strip_prefix("exec sh -c '").and_then(|it| it.strip_suffix('\'')).unwrap();
        assert!(!inner.contains(['\'', '\\', '!', '\n']), "{inner}");
    }
}
