//! Brings the program to a host that ssh reaches and that has no longhaul.
//!
//! For: `[user@]host:path` without any installation on the other host.
//! In and out: a way to run a command there in; the binary in its place there, and how many bytes travelled, out.
//! Invariants: it stands under its name whole or not at all; it travels compressed by what the other host has, `xz`
//! before `gzip`, and as it is where it has neither.
//! Absent on purpose: starting it (ssh.rs); removing old builds (job::sweep).

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use lzma_rust2::{LzmaOptions, LzmaWriter};
use text::exit::{Exit, Failure};

/// Where the binary is put on a host that has none, below the home folder.
pub const FAR_PLACE: &str = ".cache/longhaul/bin";
/// What the other host is asked first: kernel, architecture, and whether it can decompress.
/// The xz of busybox does not know the format that is sent, and says so by its status.
const LOOK: &str =
    "uname -sm; xz --format=lzma -V >/dev/null 2>&1 && echo xz; command -v gzip >/dev/null 2>&1 && echo gzip";
/// gzip's level: 9 saves another 0.5 % and takes twice as long (docs/design/023-shipped-binary.md).
const LEVEL: u32 = 6;
/// LZMA's: 1 saves 4 % over 0 and takes half as long again (the same page).
const LZMA_LEVEL: u32 = 1;
/// Bytes that LZMA looks back over: the whole binary, where the level's own is 1 MiB. Saves 2 %.
const LZMA_DICT_BYTES: u32 = 16 << 20;
/// Earlier places that LZMA compares each place with; the level's own is 8. Saves 0.8 %.
const LZMA_DEPTH: i32 = 20;

/// How the binary travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    /// As LZMA: a sixth less than gzip, at twice its processor time at this end.
    Xz,
    /// Through gzip at both ends.
    Gzip,
    /// As it is: the other host has neither.
    Plain,
}

/// Copies the program to the other host, if it can run there; gives the number of bytes that travelled.
/// `run` makes the process that runs a command line in the other host's shell.
///
/// # Errors
/// The other host is of another kind than this one, has no room, or ssh fails.
pub fn bring(target: &str, program: &Path, run: impl Fn(&str) -> Command) -> Result<u64, Failure> {
    let failed = |cause: String| {
        Exit::Connect
            .fail(format!("bring longhaul to {target}"), cause)
            .next("install longhaul there, or name it with --remote-binary")
    };
    let output = run(LOOK).output().map_err(|error| failed(error.to_string()))?;
    let packing = looked(&String::from_utf8_lossy(&output.stdout)).map_err(failed)?;
    let own = std::fs::File::open(program).map_err(|error| failed(error.to_string()))?;
    let mut child = run(&script(&version_name(program), packing))
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let sent = send(own, child.stdin.take().expect("asked for"), packing);
    // Why the other host took no more stands in its exit status and in what ssh says: it counts before a broken pipe.
    let status = child.wait().map_err(|error| failed(error.to_string()))?;
    if !status.success() {
        return Err(failed(status.to_string()));
    }
    sent.map_err(|error| failed(error.to_string()))
}

/// What the other host answered to `LOOK`.
fn looked(said: &str) -> Result<Packing, String> {
    let mut lines = said.lines().map(str::trim);
    let (there, here) = (lines.next().unwrap_or_default(), format!("Linux {}", std::env::consts::ARCH));
    if there != here {
        return Err(format!("it is '{there}', this binary is for '{here}'"));
    }
    let programs: Vec<&str> = lines.collect();
    let known = [("xz", Packing::Xz), ("gzip", Packing::Gzip)];
    let found = known.into_iter().find(|(name, _)| programs.contains(name));
    Ok(found.map_or(Packing::Plain, |(_, packing)| packing))
}

/// What the other host's shell does with the bytes on its standard input.
fn script(name: &str, packing: Packing) -> String {
    let unpack = match packing {
        Packing::Xz => "xz --format=lzma -dc",
        Packing::Gzip => "gzip -dc",
        Packing::Plain => "cat",
    };
    let place = format!("{FAR_PLACE}/{name}");
    format!(
        "umask 077 && mkdir -p {FAR_PLACE} && {unpack} > {place}.new && chmod 700 {place}.new && mv {place}.new {place}"
    )
}

/// Sends the binary; gives how many bytes went out. The other end sees the end of its input when `to` is dropped.
fn send(mut own: impl Read, to: impl Write, packing: Packing) -> std::io::Result<u64> {
    let mut counted = Counted { to, bytes: 0 };
    match packing {
        Packing::Xz => {
            let level = LzmaOptions::with_preset(LZMA_LEVEL);
            let options = LzmaOptions { dict_size: LZMA_DICT_BYTES, depth_limit: LZMA_DEPTH, ..level };
            let mut lzma = LzmaWriter::new_use_header(&mut counted, &options, None)?;
            std::io::copy(&mut own, &mut lzma)?;
            lzma.finish()?;
        }
        Packing::Gzip => {
            let mut gzip = GzEncoder::new(&mut counted, Compression::new(LEVEL));
            std::io::copy(&mut own, &mut gzip)?;
            gzip.finish()?;
        }
        Packing::Plain => {
            std::io::copy(&mut own, &mut counted)?;
        }
    }
    counted.flush()?;
    Ok(counted.bytes)
}

/// Counts what is written through it.
struct Counted<W> {
    to: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
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

    use super::*;

    /// A host of its own: a home folder, and a folder of programs that holds these alone.
    fn host(name: &str, programs: &[&str]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("longhaul-bring-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("bin")).unwrap();
        for program in programs {
            let found = ["/bin", "/usr/bin"].into_iter().map(|at| Path::new(at).join(program)).find(|it| it.exists());
            symlink(found.unwrap_or_else(|| panic!("no {program}")), folder.join("bin").join(program)).unwrap();
        }
        folder
    }

    fn shell(folder: &Path, line: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", line]).current_dir(folder).env("PATH", folder.join("bin"));
        command
    }

    /// A program goes to a host with these programs: how many bytes travelled, and of how many.
    fn brought(name: &str, programs: &[&str]) -> (u64, u64) {
        let folder = host(name, programs);
        let program = folder.join("program");
        std::fs::write(&program, (0..500_000_u32).map(|number| format!("{number:x} ")).collect::<String>()).unwrap();
        let sent = bring("there", &program, |line| shell(&folder, line)).unwrap();
        let place = folder.join(FAR_PLACE).join(version_name(&program));
        let own = std::fs::read(&program).unwrap();
        assert_eq!(blake3::hash(&std::fs::read(&place).unwrap()), blake3::hash(&own), "{name}: it is this binary");
        assert_eq!(std::fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o700, "{name}");
        assert_eq!(std::fs::read_dir(folder.join(FAR_PLACE)).unwrap().count(), 1, "{name}: nothing beside it");
        std::fs::remove_dir_all(&folder).unwrap();
        (sent, own.len() as u64)
    }

    #[test]
    fn it_travels_compressed_by_what_is_there_and_as_it_is_where_nothing_is() {
        let (gzipped, own) = brought("gzip", &["uname", "mkdir", "chmod", "mv", "gzip"]);
        assert!(gzipped * 2 < own, "{gzipped} of {own}");
        let (sent, _) = brought("xz", &["uname", "mkdir", "chmod", "mv", "gzip", "xz"]);
        assert!(sent < gzipped, "{sent} by xz, {gzipped} by gzip");
        let (sent, own) = brought("plain", &["uname", "mkdir", "chmod", "mv", "cat"]);
        assert_eq!(sent, own);
    }

    #[test]
    fn a_host_that_cannot_take_it_is_told_and_keeps_nothing() {
        let folder = host("full", &["uname", "mkdir", "chmod", "mv", "gzip"]);
        std::fs::write(folder.join(".cache"), "no folder").unwrap();
        let failure = bring("there", Path::new("/proc/self/exe"), |line| shell(&folder, line)).unwrap_err().to_string();
        assert!(failure.contains("bring longhaul to there") && failure.contains("exit status"), "{failure}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn another_kind_of_host_is_refused() {
        assert_eq!(looked(&format!("Linux {}\n", std::env::consts::ARCH)), Ok(Packing::Plain));
        assert_eq!(looked(&format!("Linux {}\nxz\ngzip\n", std::env::consts::ARCH)), Ok(Packing::Xz));
        let said = looked("Darwin arm64\ngzip\n").unwrap_err();
        assert!(said.starts_with("it is 'Darwin arm64', this binary is for 'Linux "), "{said}");
    }
}
