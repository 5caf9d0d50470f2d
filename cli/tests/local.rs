//! Copies within one host, of files in memory: what is read where it is written.
//!
//! For: sources that only the sending end can find, and those that cannot be read: a copy is whole, or its exit code says that it is not.
//! Absent on purpose: faults in mid-file and power cuts (engine/tests/sim), sets of volumes as such (lab/e2e/12-volumes.sh).

#[allow(dead_code, unreachable_pub)] // each test binary uses its own part
mod guard;

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use guard::Folder;

/// Larger than what goes in packs, and no whole number of chunks.
const BYTES: usize = (5 << 20) + 77;
/// Longhaul's own codes.
const WHOLE: i32 = 0;
const DENIED: i32 = 21;
/// `nobody` of every distribution.
const NOBODY: u32 = 65534;

/// A folder in memory where there is one.
fn folder(name: &str) -> Folder {
    let memory = Some(PathBuf::from("/dev/shm")).filter(|it| it.is_dir()).unwrap_or_else(std::env::temp_dir);
    let folder = memory.join(format!("longhaul-local-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    Folder(folder)
}

/// Large files of this name's bytes.
fn plant(folder: &Path, names: &[&str]) {
    std::fs::create_dir_all(folder).unwrap();
    for name in names {
        let content: Vec<u8> = name.bytes().cycle().take(BYTES).enumerate().map(|(at, it)| it ^ (at >> 9) as u8).collect();
        std::fs::write(folder.join(name), content).unwrap();
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    std::fs::read(one).ok().is_some_and(|it| it.len() == BYTES && std::fs::read(other).is_ok_and(|them| them == it))
}

/// `longhaul cp`, as nobody where the test may choose.
fn cp(root: &Path, args: &[&Path], options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.env("LONGHAUL_HOME", root.join("home")).arg("cp").args(options).args(args);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.output().unwrap()
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0)
}

/// So that whoever runs the copy may write here.
fn give_away(root: &Path) {
    if is_root() {
        chown(root, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

fn words(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(|it| String::from_utf8_lossy(it).into_owned()).concat()
}

#[test]
fn a_file_of_a_joined_folder_is_read_where_it_stands() {
    let root = folder("joined");
    let (one, two, to) = (root.0.join("one"), root.0.join("two"), root.0.join("to"));
    plant(&one, &["a", "b"]);
    plant(&two, &["c", "d", "e"]);
    give_away(&root.0);
    for digest in ["blake3", "crc64"] {
        let to = to.with_extension(digest);
        let done = cp(&root.0, &[&one, &two, &to], &["--join", "--digest", digest]);
        assert_eq!(done.status.code(), Some(WHOLE), "{}", words(&done));
        for (from, name) in [(&one, "a"), (&one, "b"), (&two, "c"), (&two, "d"), (&two, "e")] {
            assert!(is_same(&from.join(name), &to.join(name)), "{digest} {name}: {}", words(&done));
        }
    }
}

#[test]
fn a_copy_that_leaves_a_file_out_does_not_end_well() {
    let root = folder("denied");
    let (one, two, to) = (root.0.join("one"), root.0.join("two"), root.0.join("to"));
    plant(&one, &["a", "b"]);
    plant(&two, &["c"]);
    std::fs::set_permissions(one.join("b"), PermissionsExt::from_mode(0)).unwrap();
    give_away(&root.0);
    let done = cp(&root.0, &[&one, &two, &to], &["--join"]);
    assert_eq!(done.status.code(), Some(DENIED), "{}", words(&done));
    assert!(words(&done).contains("/b"), "the file is named: {}", words(&done));
    assert!(is_same(&one.join("a"), &to.join("a")) && is_same(&two.join("c"), &to.join("c")), "{}", words(&done));
    assert!(!to.join("b").exists());
}
