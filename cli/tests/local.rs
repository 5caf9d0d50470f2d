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
const TWICE: i32 = 3;
const BUG: i32 = 70;
/// `nobody` of every distribution.
const NOBODY: u32 = 65534;

/// Folders in memory, where there is some, and a program that `nobody` may run.
struct World {
    root: Folder,
    program: PathBuf,
    _bin: Folder,
}

impl World {
    fn new(name: &str) -> World {
        let memory = Some(PathBuf::from("/dev/shm")).filter(|it| it.is_dir()).unwrap_or_else(std::env::temp_dir);
        let [root, bin] = [memory, std::env::temp_dir()].map(|at| {
            let folder =
                at.join(format!("longhaul-local-{name}-{}-{}", std::process::id(), at.display().to_string().len()));
            std::fs::create_dir_all(&folder).unwrap();
            Folder(folder)
        });
        let mut program = PathBuf::from(env!("CARGO_BIN_EXE_longhaul"));
        if is_root() {
            // Where it was built may be root's alone.
            let copy = bin.0.join("longhaul");
            std::fs::copy(&program, &copy).unwrap();
            chown(&root.0, Some(NOBODY), Some(NOBODY)).unwrap();
            program = copy;
        }
        World { root, program, _bin: bin }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.0.join(name)
    }

    /// `longhaul cp`, as nobody where the test may choose: root is denied nothing.
    fn cp(&self, args: &[&Path], options: &[&str], loses: Option<&str>) -> Output {
        let mut command = Command::new(&self.program);
        command.env("LONGHAUL_HOME", self.at("home")).env_remove("LONGHAUL_TEST_LOSE");
        command.envs(loses.map(|end| ("LONGHAUL_TEST_LOSE", end)));
        command.arg("cp").args(options).args(args);
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output().unwrap()
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Large files of this name's bytes.
fn plant(folder: &Path, names: &[&str]) {
    std::fs::create_dir_all(folder).unwrap();
    for name in names {
        let content: Vec<u8> =
            name.bytes().cycle().take(BYTES).enumerate().map(|(at, it)| it ^ (at >> 9) as u8).collect();
        std::fs::write(folder.join(name), content).unwrap();
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    std::fs::read(one).ok().is_some_and(|it| it.len() == BYTES && std::fs::read(other).is_ok_and(|them| them == it))
}

fn words(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(|it| String::from_utf8_lossy(it).into_owned()).concat()
}

#[test]
fn a_file_of_a_joined_folder_is_read_where_it_stands() {
    let world = World::new("joined");
    let (one, two) = (world.at("one/set"), world.at("two/set"));
    plant(&one, &["a", "b"]);
    plant(&two, &["c", "d", "e"]);
    for digest in ["blake3", "crc64"] {
        let to = world.at(digest);
        let done = world.cp(&[&one, &two, &to], &["--join", "--digest", digest], None);
        assert_eq!(done.status.code(), Some(WHOLE), "{}", words(&done));
        for (from, name) in [(&one, "a"), (&one, "b"), (&two, "c"), (&two, "d"), (&two, "e")] {
            assert!(is_same(&from.join(name), &to.join(name)), "{digest} {name}: {}", words(&done));
        }
    }
}

/// `/mnt/disk0 /mnt/disk1`, as `/mnt/disk{0,1}` is expanded, and folders of other names at other places.
#[test]
fn folders_of_several_names_are_joined_each_by_its_own() {
    for (name, one, two) in [("beside", "disk0", "disk1"), ("apart", "here/one", "there/two")] {
        let world = World::new(name);
        let (one, two, to) = (world.at(one), world.at(two), world.at("to"));
        plant(&one.join("sub"), &["a", "b"]);
        plant(&two.join("sub"), &["c"]);
        plant(&two, &["d"]);
        let done = world.cp(&[&one, &two, &to], &["--join"], None);
        assert_eq!(done.status.code(), Some(WHOLE), "{name}: {}", words(&done));
        for (from, file) in [(&one, "sub/a"), (&one, "sub/b"), (&two, "sub/c"), (&two, "d")] {
            assert!(is_same(&from.join(file), &to.join(file)), "{name} {file}: {}", words(&done));
        }
        // A name that stands twice is a fault there, too.
        plant(&one, &["d"]);
        let done = world.cp(&[&one, &two, &world.at("again")], &["--join"], None);
        assert_eq!(done.status.code(), Some(TWICE), "{name}: {}", words(&done));
        assert!(words(&done).contains("the same name stands on more than one volume"), "{}", words(&done));
    }
}

#[test]
fn a_file_that_is_named_on_two_volumes_is_a_fault_and_no_choice() {
    let world = World::new("twice");
    let (one, two) = (world.at("one"), world.at("two"));
    plant(&one, &["a", "b"]);
    plant(&two, &["a"]);
    let done = world.cp(&[&one.join("a"), &two.join("a"), &world.at("same")], &["--join"], None);
    assert_eq!(done.status.code(), Some(TWICE), "{}", words(&done));
    assert!(words(&done).contains("the same name stands on more than one volume"), "{}", words(&done));
    let done = world.cp(&[&one.join("b"), &two.join("a"), &world.at("other")], &["--join"], None);
    assert_eq!(done.status.code(), Some(TWICE), "{}", words(&done));
    assert!(words(&done).contains("only folders are joined under several names"), "{}", words(&done));
    assert!(!world.at("other").exists(), "neither is taken for the other");
}

/// Two folders, a file of which nobody may read.
fn with_a_closed_one(name: &str) -> (World, [PathBuf; 3]) {
    let world = World::new(name);
    let (one, two, to) = (world.at("one/set"), world.at("two/set"), world.at("to"));
    plant(&one, &["a", "b"]);
    plant(&two, &["c"]);
    std::fs::set_permissions(one.join("b"), PermissionsExt::from_mode(0o000)).unwrap();
    (world, [one, two, to])
}

#[test]
fn a_copy_that_leaves_a_file_out_does_not_end_well() {
    let (world, [one, two, to]) = with_a_closed_one("denied");
    let done = world.cp(&[&one, &two, &to], &["--join"], None);
    assert_eq!(done.status.code(), Some(DENIED), "{}", words(&done));
    assert!(words(&done).contains("b: permission denied"), "the file is named: {}", words(&done));
    assert!(is_same(&one.join("a"), &to.join("a")) && is_same(&two.join("c"), &to.join("c")), "{}", words(&done));
    assert!(!to.join("b").exists());
}

/// Whatever loses a fault on its way to the report: files are counted before anybody signs for them.
#[test]
#[cfg(debug_assertions)] // builds for use lose nothing
fn a_fault_that_was_lost_is_a_bug_and_nobody_signs() {
    let (world, [one, two, to]) = with_a_closed_one("lost");
    let done = world.cp(&[&one, &two, &to], &["--join"], Some("b"));
    assert_eq!(done.status.code(), Some(BUG), "{}", words(&done));
    assert!(words(&done).contains("1 files are neither there nor did they fail"), "{}", words(&done));
    let receipts = std::fs::read_dir(world.at("home/receipts")).into_iter().flatten().flatten();
    let signed = receipts.filter(|it| std::fs::read_to_string(it.path()).is_ok_and(|text| text.contains("signature")));
    assert_eq!(signed.count(), 0, "{}", words(&done));
}
