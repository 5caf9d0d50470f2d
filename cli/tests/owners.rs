//! Owners by name where the names stand in a directory (LDAP, SSSD): the real binary, a daemon and its client on one host, each with another `getent`.
//!
//! For: numbers that differ between two hosts and mean the same person, also at a daemon that Landlock lets start nothing.
//! Invariants: both ends have a `getent` of their own on their `PATH`; the same file is looked at by its number on disk.
//! Absent on purpose: name services themselves, slow and wrong ones (node/src/job/endpoint/names/tests.rs).

#[allow(dead_code, unreachable_pub)] // each test binary uses its own part
mod guard;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use guard::Daemon;
use serde_json::Value;

struct World(PathBuf);

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl World {
    fn new(name: &str) -> World {
        let folder = std::env::temp_dir().join(format!("longhaul-owners-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("there")).unwrap();
        World(folder)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The directory that a host sees: users with their numbers.
    fn directory(&self, host: &str, users: &[(&str, u32)]) {
        let folder = self.at(&format!("{host}-bin"));
        std::fs::create_dir_all(&folder).unwrap();
        let line = |(name, id): &(&str, u32)| {
            format!("\"passwd {name}\"|\"passwd {id}\") echo '{name}:*:{id}:{id}::/:/bin/sh';;\n")
        };
        let cases: String = users.iter().map(line).collect();
        let script =
            format!("#!/bin/sh\nkind=$1; shift 2\nfor key; do case \"$kind $key\" in\n{cases}esac; done\nexit 2\n");
        std::fs::write(folder.join("getent"), script).unwrap();
        std::fs::set_permissions(folder.join("getent"), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn longhaul(&self, host: &str, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        let path = format!("{}:/usr/bin:/bin", self.at(&format!("{host}-bin")).display());
        command.env("LONGHAUL_HOME", self.at(host)).env("PATH", path).current_dir(&self.0).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, host: &str, words: &[&str]) -> (Option<i32>, String, String) {
        let output = self.longhaul(host, words).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    }

    fn serve(&self, words: &[&str]) -> (Daemon, String) {
        let root = self.at("there");
        let all = ["serve", "--listen", "127.0.0.1:0", "--ticket", "--root", root.to_str().unwrap()];
        let mut daemon = self.longhaul("there-home", &[&all, words].concat()).stderr(Stdio::null()).spawn().unwrap();
        let url = BufReader::new(daemon.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        (Daemon(daemon), url)
    }
}

/// Only root gives files away, and owners by name are of no use to others.
fn may_chown(world: &World) -> bool {
    let probe = world.at("probe");
    std::fs::write(&probe, b"").unwrap();
    chown(&probe, Some(70_001), None).is_ok()
}

fn uid(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().uid()
}

/// Processes that this one has started, by the kernel.
fn children(of: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{of}/task")).into_iter().flatten().flatten();
    let text = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    text.flat_map(|it| it.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()).collect()
}

#[test]
fn owners_of_a_directory_go_by_name_also_to_and_from_a_confined_daemon_and_unknown_ones_are_said() {
    let world = World::new("named");
    if !may_chown(&world) || Path::new("/run/systemd/userdb/io.systemd.Multiplexer").exists() {
        return; // needs root, and a host where `getent` is asked
    }
    world.directory("here", &[("ann.of.directory", 70_001), ("bob.of.directory", 70_002)]);
    world.directory("there-home", &[("ann.of.directory", 80_001)]);
    std::fs::create_dir_all(world.at("tree")).unwrap();
    for (name, owner) in [("ann", 70_001), ("bob", 70_002), ("nobody-knows", 70_003), ("root", 0)] {
        std::fs::write(world.at("tree").join(name), name).unwrap();
        chown(world.at("tree").join(name), Some(owner), Some(0)).unwrap();
    }
    let (daemon, url) = world.serve(&["--privileged"]);
    let (code, out, err) = world.run("here", &["cp", "--json", "tree", &format!("{url}pushed")]);
    assert_eq!(code, Some(0), "{err}");
    let owner = |folder: &str, name: &str| uid(&world.at(folder).join(name));
    let all = |folder: &str| ["ann", "bob", "nobody-knows", "root"].map(|name| owner(folder, name));
    assert_eq!(all("there/pushed"), [80_001, 70_002, 70_003, 0], "ann has her number there, the others keep theirs");
    let done: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!((&done["owners_unknown"], &done["owners_nameless"]), (&1.into(), &1.into()), "{done}");
    assert_eq!(done["name_service_silent"], false);
    // And back, where the daemon is the one that names.
    let (code, out, err) = world.run("here", &["cp", &format!("{url}pushed"), "pulled"]);
    assert_eq!((code, all("pulled")), (Some(0), [70_001, 70_002, 70_003, 0]), "{err}");
    assert!(out.contains("2 owners without a name at the source: their numbers are kept"), "{out}");
    let (_, out, _) = world.run("here", &["ls", "-l", &format!("{url}pushed")]);
    assert!(out.lines().next().unwrap().contains(" ann.of.directory root "), "{out}");
    assert!(out.contains(" 70002 "), "a number without a name is shown as it is: {out}");
    // The child that asks for the daemon goes with it, also when that is killed.
    let child = children(daemon.0.id());
    assert_eq!(child.len(), 1, "one child");
    drop(daemon);
    let until = Instant::now() + Duration::from_secs(10);
    while Path::new(&format!("/proc/{}/exe", child[0])).exists() {
        assert!(Instant::now() < until, "the child has gone");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_name_service_that_hangs_holds_up_no_copy_and_is_named() {
    let world = World::new("silent");
    if !may_chown(&world) || Path::new("/run/systemd/userdb/io.systemd.Multiplexer").exists() {
        return;
    }
    world.directory("there-home", &[]);
    world.directory("here", &[]);
    let hangs = world.at("here-bin/getent");
    std::fs::write(&hangs, "#!/bin/sh\nexec sleep 60\n").unwrap();
    std::fs::create_dir_all(world.at("tree")).unwrap();
    for at in 0..200_u32 {
        let file = world.at("tree").join(at.to_string());
        std::fs::write(&file, b"x").unwrap();
        chown(&file, Some(70_000 + at), None).unwrap();
    }
    let (_daemon, url) = world.serve(&["--privileged"]);
    let began = Instant::now();
    let (code, out, err) = world.run("here", &["cp", "--json", "tree", &format!("{url}pushed")]);
    let took = began.elapsed();
    assert!(code == Some(0) && took < Duration::from_secs(15), "{took:?} {err}");
    let done: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!((&done["owners_nameless"], &done["name_service_silent"]), (&200.into(), &true.into()), "{done}");
    assert_eq!(uid(&world.at("there/pushed/7")), 70_007);
}
