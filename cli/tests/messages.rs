//! What users are told when they mistype, name a wrong place, or meet a host that does not let them: the real binary, mistake by mistake.
//!
//! For: the exit code, a word of the cause and a word of the next step of each mistake at each place where it can be made; and the words that
//! must not be there, since they speak of another cause.
//! In and out: a folder, two daemons and a stand-in for ssh in; the table below, run line by line.
//! Absent on purpose: how each option is read (src/args_tests.rs), copies that go well.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Whoever suspects the disk must have seen one fail; whoever speaks of resuming must have begun.
const DISK: &[&str] = &["dmesg", "disk's health"];
const SOURCE: &[&str] = &["check the source's path", "dmesg"];
const RESUMES: &[&str] = &["it resumes", "dmesg"];
const SERVE: &[&str] = &["longhaul serve", "dmesg"];
const KEYS: &[&str] = &["authorize", "cross-device", "dmesg"];

/// Place, command line, exit code, a word of the cause, a word of the next step, words that must not be there.
type Row = (&'static str, &'static str, i32, &'static str, &'static str, &'static [&'static str]);

/// `{url}`, `{ro}`, `{wo}`: daemons' addresses with tickets. `{host}`: one without its ticket. `{taken}`: an address that something else has.
/// `{free}`: one that nothing has. `{ssh-NAME}`: a stand-in for ssh. `{self}`: the program.
const TABLE: &[Row] = &[
    ("local", "cp missing dst", 5, "No such file", "check the source's path", DISK),
    ("local", "cp missing/a/b dst", 5, "No such file or directory: 'missing'", "check the source's path", DISK),
    ("local", "cp f/x dst", 2, "Not a directory: 'f'", "name the file itself", SOURCE),
    ("local", "cp src isfile", 2, "it is a file", "remove the file", DISK),
    ("local", "cp f isfile/x/y", 2, "Not a directory: 'isfile'", "a file stands where a folder is needed", SOURCE),
    ("local", "cp f isfile/", 2, "Not a directory", "name another destination", SOURCE),
    ("local", "cp f f", 2, "both the source and the destination", "that is not the source", DISK),
    ("local", "cp src src/sub", 2, "src/sub' is inside the source", "outside of the source", DISK),
    ("local", "cp src src/new/er/", 2, "src/new/er' is inside the source", "--exclude", DISK),
    ("local", "sync src src/sub", 2, "src/sub' is inside the source", "outside of the source", DISK),
    ("local", "cp f", 2, "values required", "--help", RESUMES),
    ("local", "cp f s3://bucket/x", 2, "scheme is unknown", "object stores", RESUMES),
    ("local", "cp f sftp://h/x", 2, "scheme is unknown", "[user@]host:path", RESUMES),
    ("local", "cp rsync://h/x f", 2, "scheme is unknown", "through ssh", RESUMES),
    ("local", "cp http://h/x f", 2, "scheme is unknown", "curl URL |", RESUMES),
    ("local", "cp f longhaul://h:99999/x", 2, "port is no number", "help addresses", RESUMES),
    ("local", "cp -z f dst", 2, "no option -z", "no compression", &["to pass"]),
    ("local", "cp -avh f dst", 2, "no option -h", "leave the h out", &["Usage"]),
    ("local", "cp f host::module/x", 2, "an rsync daemon's", "[user@]host:/folder", RESUMES),
    ("local", "cp f https://h/x", 2, "scheme is unknown", "longhaul cp SRC - | curl", RESUMES),
    ("local", "cp -az f dst", 2, "no option -z", "no compression", &["to pass"]),
    ("local", "cp --bwlimit=10 f dst", 2, "no option --bwlimit", "--rate 100MB/s", &["to pass"]),
    ("local", "cp --delete src dst", 2, "no option --delete", "longhaul sync --delete", &["to pass"]),
    ("local", "cp --exlude x src dst", 2, "no option --exlude", "did you mean --exclude", &["to pass"]),
    ("local", "cp --frobnicate src dst", 2, "no option --frobnicate", "--help", &["to pass"]),
    ("local", "cp --progress f dst", 2, "'f'", "auto, none or seconds", &["to pass"]),
    ("local", "cp -q -v f dst", 2, "cannot be used with", "--help", RESUMES),
    ("local", "cp --rate 10Gb f dst", 2, "unit 'Gb'", "for example 10Gbit", RESUMES),
    ("local", "cp --path 127.0.0.9 f dst", 2, "both ends are this host", "leave out --path", RESUMES),
    ("local", "cp --policy fixed f dst", 2, "need --rate", "--rate 1Gbit", RESUMES),
    ("local", "cp --exclude-from missing src dst", 2, "No such file", "file that the option names", SOURCE),
    ("local", "cp --files-from src src dst", 2, "Is a directory", "name a file", DISK),
    ("local", "cp --ticket-file missing f longhaul://@h/x", 2, "No such file", "file that the option names", SOURCE),
    (
        "local",
        "cp --receipt isfile/r f dst",
        41,
        "a file stands|Not a directory|File exists",
        "nothing was moved",
        DISK,
    ),
    ("local", "cp --stripe file src no0 no1", 5, "No such file", "a volume is a folder", SOURCE),
    ("local", "cp f {host}x h:y dst", 2, "different hosts", "a command of its own", RESUMES),
    ("local", "sync f dst", 2, "source is a file", "longhaul cp f dst", RESUMES),
    ("local", "sync src", 2, "values required", "--help", RESUMES),
    ("local", "copy f dst", 2, "unrecognized", "'cp'", RESUMES),
    ("local", "verify missing", 5, "No such file", "named as its receipt", SOURCE),
    ("local", "verify src", 2, "Is a directory", "verify RECEIPT PATH", DISK),
    ("local", "verify f", 2, "not a receipt", "named as its receipt", DISK),
    ("local", "key trust h:1 abc", 2, "longhaul-ed25519 is missing", "key show", RESUMES),
    ("local", "cp nosuch*.txt dst", 5, "patterns are for the shell", "see with `ls`", DISK),
    ("local", "cp f loop/x", 2, "links lead in a circle", "namei -l", DISK),
    ("local", "cp f {long}", 2, "File name too long", "no file has so long a name", DISK),
    ("local", "cp f dir/{long}/x", 2, "File name too long: 'dir/", "no file has so long a name", DISK),
    ("local", "cp --rate 100 f dst", 2, "unit is missing", "for example 10Gbit", RESUMES),
    ("local", "cp --rate 100M f dst", 2, "unit 'M'", "for example 10Gbit", RESUMES),
    ("local", "cp --memory 1G f dst", 2, "unit 'G'", "for example 64MiB", RESUMES),
    ("local", "cp --stall 10x f dst", 2, "unit 'x'", "for example 30s", RESUMES),
    ("local", "cp --transport tpc f dst", 2, "'tpc'", "tcp, udp, rdma, auto", RESUMES),
    ("local", "cp --digest md5 f dst", 2, "'md5'", "blake3, crc64", RESUMES),
    ("local", "ticket revoke zz", 5, "none that is good", "ticket list", SOURCE),
    ("local", "receipt list --jso", 2, "no option --jso", "did you mean --json", SOURCE),
    ("local", "key trust h:1", 2, "were not provided", "key trust <HOST:PORT>", RESUMES),
    ("daemon", "serve --config typo.toml", 2, "line 1: unknown field `rot`", "mend line 1", DISK),
    ("daemon", "serve --config open.toml", 2, "line 2", "mend line 2", DISK),
    ("daemon", "serve --config unit.toml", 2, "line 2: memory", "mend line 2", DISK),
    ("daemon", "serve --root src --listen 5740", 2, "'5740'", "0.0.0.0:5740", SERVE),
    ("daemon", "serve --root / --listen 127.0.0.1:0", 2, "private key", "LONGHAUL_HOME", DISK),
    ("daemon", "cp f {url}{long}", 5, "File name too long", "path at the other end", &["a file stands", "dmesg"]),
    ("daemon", "cp {url}no*.txt dst", 5, "patterns are for the shell", "path at the other end", DISK),
    ("daemon", "cp f {other}x", 12, "not one of this daemon's", "ask for a new ticket", &["authorize", "dmesg"]),
    ("daemon", "cp f longhaul://{taken}/x", 10, "something answers there, but not longhaul", "that port", RESUMES),
    ("local", "job stop nothing", 5, "none that runs", "job list", SOURCE),
    ("daemon", "serve", 2, "no folder to serve", "--root", DISK),
    ("daemon", "serve --root missing --listen 127.0.0.1:0", 2, "No such file", "mkdir", SOURCE),
    ("daemon", "serve --root f --listen 127.0.0.1:0", 2, "Not a directory", "name a folder with --root", DISK),
    ("daemon", "serve --config missing.toml", 2, "No such file", "--config", SOURCE),
    ("daemon", "serve --config src", 2, "s a directory", "config file itself", DISK),
    ("daemon", "serve --root src --listen {taken}", 2, "in use", "choose another port with --listen", DISK),
    ("daemon", "serve --root src --listen 192.0.2.1:5740", 2, "Cannot assign", "ip address", SERVE),
    ("daemon", "serve --root src --log xml", 2, "'xml'", "text or json", DISK),
    ("daemon", "cp f longhaul://{free}/x", 10, "refused", "longhaul serve", RESUMES),
    ("daemon", "cp f longhaul://nohost.invalid/x", 10, "no such host", "check the address", RESUMES),
    ("daemon", "cp f longhaul://{taken}/x", 10, "TLS", "listens at that port", RESUMES),
    ("daemon", "cp f {host}x", 11, "key is not known", "longhaul key trust", RESUMES),
    ("daemon", "cp f longhaul://AAAA@{free}/x", 2, "ticket is damaged", "serve --ticket", &["AAAA"]),
    ("daemon", "cp f {spent}x", 12, "ticket", "ask for a new ticket", &["authorize", "dmesg"]),
    (
        "daemon",
        "cp {url}missing/x dst",
        5,
        "'missing/x': No such file or directory: 'missing'",
        "path at the other end",
        SOURCE,
    ),
    ("daemon", "cp {url}../x dst", 12, "leads out of the folder", "below the folder that is served", KEYS),
    ("daemon", "cp f {url}../x", 12, "leads out of the folder", "below the folder that is served", KEYS),
    (
        "daemon",
        "cp f {url}isfile/x",
        2,
        "'isfile/x': Not a directory: 'isfile'",
        "a file stands where a folder is needed",
        SOURCE,
    ),
    ("daemon", "cp f {ro}x", 12, "may only read", "without --ro", &["outside the root", "dmesg"]),
    ("daemon", "cp {wo}isfile dst", 12, "may only write", "without --wo", &["outside the root", "dmesg"]),
    ("daemon", "cp --integrity-only f {url}x", 14, "payload in clear", "leave out --integrity-only", RESUMES),
    ("daemon", "cp --path 127.0.0.77 f {url}x", 10, "127.0.0.77", "--path", RESUMES),
    ("ssh", "cp --ssh {ssh-denied} f h:x", 10, "me@h: Permission denied", "log in by hand", SERVE),
    ("ssh", "cp --ssh {ssh-unknown} f h:x", 10, "Host key verification failed", "fingerprint", SERVE),
    ("ssh", "cp --ssh {ssh-unresolved} f h:x", 10, "does not find the host", "ssh -G h", SERVE),
    ("ssh", "cp --ssh {ssh-closed} f h:x", 10, "no ssh server", "sshd runs there", SERVE),
    ("ssh", "cp --ssh {ssh-nologin} f h:x", 10, "not available", "ssh h longhaul --version", SERVE),
    (
        "ssh",
        "cp --ssh {ssh-other-kind} f h:x",
        10,
        "'Darwin arm64', this binary is for",
        "install longhaul there",
        SERVE,
    ),
    ("ssh", "cp --ssh {ssh-nonsense} f h:x", 13, "none that this version knows", "--remote-binary", SERVE),
    ("ssh", "cp --ssh {ssh-full} f h:x", 10, "No space left on device", "ssh h longhaul --version", SERVE),
    ("ssh", "cp --far-port 9-8 f h:x", 2, "no range of ports", "50000-50010", SERVE),
    (
        "ssh",
        "cp --ssh {ssh-works} --remote-binary {self} --far-port {taken-port} f h:x",
        10,
        "already in use",
        "--far-port",
        RESUMES,
    ),
    ("ssh", "cp --ssh nosuchssh f h:x", 10, "no program 'nosuchssh'", "install ssh", SERVE),
    (
        "ssh",
        "cp --ssh {ssh-works} --remote-binary /no/longhaul f h:x",
        10,
        "not there",
        "leave --remote-binary out",
        SERVE,
    ),
    (
        "ssh",
        "cp --ssh {ssh-works} --remote-binary {self} h:/no/such/file dst",
        5,
        "start the job at h (127.0.0.1:",
        "path at the other end",
        SOURCE,
    ),
    (
        "ssh",
        "cp --ssh {ssh-works} --remote-binary {self} f h:{there}/isfile/x",
        2,
        "isfile/x': Not a directory: '",
        "a file stands where",
        SOURCE,
    ),
];

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Daemon {
    child: Child,
    url: String,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program, as a user of this folder runs it.
fn longhaul(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.current_dir(folder).env("LONGHAUL_HOME", folder.join("home")).env_remove("LONGHAUL_TICKET");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn daemon(folder: &Path, options: &[&str]) -> Daemon {
    let mut command = longhaul(folder);
    command.env("LONGHAUL_HOME", folder.join("home-there"));
    let mut child =
        command.args(["serve", "--listen", "127.0.0.1:0", "--root", "there"]).args(options).spawn().unwrap();
    let url = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    Daemon { child, url }
}

/// What a user of the folder has: files, a tree, programs that stand in for ssh.
fn folder(name: &str) -> Folder {
    let path = std::env::temp_dir().join(format!("longhaul-messages-{}-{name}", std::process::id()));
    for below in ["src/sub", "there"] {
        std::fs::create_dir_all(path.join(below)).unwrap();
    }
    for file in ["f", "isfile", "src/a", "there/isfile"] {
        std::fs::write(path.join(file), "some text\n").unwrap();
    }
    std::os::unix::fs::symlink("loop", path.join("loop")).unwrap();
    for (name, lines) in
        [("typo", "rot = \"/srv\"\n"), ("open", "\nroot = \"/srv\n"), ("unit", "root = \"/srv\"\nmemory = \"lots\"\n")]
    {
        std::fs::write(path.join(format!("{name}.toml")), lines).unwrap();
    }
    for (name, body) in [
        (
            "denied",
            "echo 'Identity file k not accessible: No such file or directory.' >&2; echo 'me@h: Permission denied (publickey).' >&2; exit 255",
        ),
        ("unknown", "echo 'Host key verification failed.' >&2; exit 255"),
        ("unresolved", "echo 'ssh: Could not resolve hostname h: Name or service not known' >&2; exit 255"),
        ("closed", "echo 'ssh: connect to host h port 22: Connection refused' >&2; exit 255"),
        ("nologin", "echo 'This account is currently not available.'; exit 1"),
        ("other-kind", "echo '@longhaul lacks xz Darwin arm64'; cat >/dev/null"),
        ("nonsense", "echo '@longhaul is everything'; cat >/dev/null"),
        (
            "full",
            "echo \"@longhaul lacks plain $(uname -sm)\"; echo 'head: write error: No space left on device' >&2; exit 1",
        ),
        ("works", "[ \"$1\" = -G ] && { echo hostname 127.0.0.1; exit; }\nfor last; do :; done; exec sh -c \"$last\""),
    ] {
        let place = path.join(format!("ssh-{name}"));
        std::fs::write(&place, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    Folder(path)
}

/// A server of something else.
fn other_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n");
        }
    });
    at
}

fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn place_of(url: &str) -> String {
    url.rsplit('@').next().unwrap().trim_end_matches('/').to_owned()
}

fn host_of(url: &str) -> String {
    format!("longhaul://{}", url.rsplit('@').next().unwrap())
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// What is wrong with what this row's command said; `None`: nothing.
fn wrong(row: &Row, output: &Output) -> Option<String> {
    let (place, line, exit, cause, next, not) = row;
    let text = said(output);
    let mut faults = Vec::new();
    if output.status.code() != Some(*exit) {
        faults.push(format!("exit code {:?}, not {exit}", output.status.code()));
    }
    if !cause.split('|').any(|cause| text.contains(cause)) {
        faults.push(format!("no word of the cause: {cause}"));
    }
    if !text.contains(next) {
        faults.push(format!("no word of the next step: {next}"));
    }
    let never = ["os error", "panicked", "Broken pipe", "cross-device", "report it"];
    faults
        .extend(not.iter().chain(&never).filter(|word| text.contains(**word)).map(|word| format!("it says '{word}'")));
    (!faults.is_empty()).then(|| {
        format!("{place}: longhaul {line}\n    {}\n    {}", faults.join("; "), text.trim().replace('\n', "\n    "))
    })
}

#[test]
fn every_mistake_has_its_exit_code_its_cause_and_its_own_next_step() {
    assert!(TABLE.len() >= 40);
    let folder = folder("table");
    let at = folder.0.as_path();
    let open = daemon(at, &["--ticket"]);
    let (ro, wo, once) =
        (daemon(at, &["--ticket", "--ro"]), daemon(at, &["--ticket", "--wo"]), daemon(at, &["--ticket=once"]));
    let spend = longhaul(at).args(["cp", "f", &format!("{}spent", once.url)]).output().unwrap();
    assert!(spend.status.success(), "{}", said(&spend));
    let (taken, free) = (other_server(), free_address());
    let mut names = vec![
        ("{url}".to_owned(), open.url.clone()),
        ("{long}".to_owned(), "x".repeat(300)),
        ("{other}".to_owned(), open.url.replace(&place_of(&open.url), &place_of(&ro.url))),
        ("{ro}".to_owned(), ro.url.clone()),
        ("{wo}".to_owned(), wo.url.clone()),
        ("{spent}".to_owned(), once.url.clone()),
        ("{host}".to_owned(), host_of(&open.url)),
        ("{taken-port}".to_owned(), taken.rsplit(':').next().unwrap().to_owned()),
        ("{taken}".to_owned(), taken),
        ("{free}".to_owned(), free),
        ("{self}".to_owned(), env!("CARGO_BIN_EXE_longhaul").to_owned()),
        ("{there}".to_owned(), at.join("there").display().to_string()),
    ];
    for name in ["denied", "unknown", "unresolved", "closed", "nologin", "other-kind", "nonsense", "full", "works"] {
        names.push((format!("{{ssh-{name}}}"), at.join(format!("ssh-{name}")).display().to_string()));
    }
    let mut all = Vec::new();
    for row in TABLE {
        let line = names.iter().fold(row.1.to_owned(), |line, (name, value)| line.replace(name, value));
        let output = longhaul(at).args(line.split(' ')).output().unwrap();
        all.extend(wrong(row, &output));
        let _ = std::fs::remove_file(at.join("dst"));
    }
    drop((open, ro, wo, once));
    assert!(all.is_empty(), "{} of {} messages are wrong:\n  {}", all.len(), TABLE.len(), all.join("\n  "));
}

#[test]
fn folders_that_are_missing_above_a_destination_are_made_with_and_without_a_slash() {
    let folder = folder("parents");
    let at = folder.0.as_path();
    let open = daemon(at, &["--ticket"]);
    let run = |words: &[&str]| {
        let output = longhaul(at).arg("cp").args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", said(&output));
    };
    run(&["-n", "f", "new/a/b"]);
    assert!(!at.join("new").exists(), "a dry run makes nothing");
    for (to, stands) in [("new/a/b", "new/a/b"), ("new/c/d/", "new/c/d/f")] {
        run(&["f", to]);
        assert!(at.join(stands).is_file(), "{stands}");
        run(&["f", &format!("{}{to}", open.url)]);
        assert!(at.join("there").join(stands).is_file(), "{stands} at the daemon");
    }
    run(&[&format!("{}isfile", open.url), "new/e/f"]);
    assert!(at.join("new/e/f").is_file());
    for to in ["made/g/h", "made/i/j/"] {
        for (place, stands) in [(to.to_owned(), at.join(to)), (format!("{}{to}", open.url), at.join("there").join(to))]
        {
            let output = longhaul(at).args(["sync", "src", &place]).output().unwrap();
            assert!(output.status.success() && stands.join("a").is_file(), "{place}: {}", said(&output));
        }
    }
}

/// Where root runs the tests, the daemon becomes `nobody`: root is denied nothing.
fn daemon_of_nobody(folder: &Path) -> Daemon {
    if !rustix::process::geteuid().is_root() {
        return daemon(folder, &["--ticket"]);
    }
    let home = folder.join("home-there");
    std::fs::create_dir_all(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(65_534), Some(65_534)).unwrap();
    std::fs::write(folder.join("config"), "user = \"nobody\"\n").unwrap();
    daemon(folder, &["--ticket", "--config", "config"])
}

#[test]
fn what_the_daemons_user_may_not_do_is_said_with_path_user_and_what_to_do_there() {
    let folder = folder("denied");
    let at = folder.0.as_path();
    let there = at.join("there");
    let allow = |name: &str, mode| {
        std::fs::set_permissions(there.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    std::fs::create_dir(there.join("closed")).unwrap();
    std::fs::create_dir(there.join("ro")).unwrap();
    std::fs::write(there.join("unread"), "x").unwrap();
    [("closed", 0), ("ro", 0o555), ("unread", 0)].iter().for_each(|(name, mode)| allow(name, *mode));
    let open = daemon_of_nobody(at);
    let uid = if rustix::process::geteuid().is_root() { 65_534 } else { rustix::process::geteuid().as_raw() };
    let (to, from) = (
        |path: &str| ["f".to_owned(), format!("{}{path}", open.url)],
        |path: &str| [format!("{}{path}", open.url), "dst".to_owned()],
    );
    for (words, path) in [
        (to("closed/x"), "the destination 'closed/x': Permission denied in 'closed'"),
        (to("closed/a/b/"), "the destination 'closed/a/b/': Permission denied in 'closed'"),
        (to("ro/n/x"), "the destination 'ro/n/x': Permission denied in 'ro'"),
        (from("closed/x"), "the source 'closed/x': Permission denied in 'closed'"),
        (to("ro/x"), "x: permission denied at the other end (write a small file, as uid"),
        (from("unread"), "dst: permission denied at the other end (read the source, as uid"),
    ] {
        let output = longhaul(at).arg("cp").args(&words).output().unwrap();
        let text = said(&output);
        assert_eq!(output.status.code(), Some(21), "{words:?}: {text}");
        assert!(text.contains(path) && text.contains(&format!("uid {uid}")), "{words:?}: {text}");
        assert!(text.contains("at the other end") && text.contains("give the user named above"), "{words:?}: {text}");
        assert!(!text.contains("os error") && !text.contains("served root"), "{words:?}: {text}");
    }
    ["closed", "ro", "unread"].iter().for_each(|name| allow(name, 0o755));
}

/// The address of a firewall before the daemon that lets one connection through and refuses all others.
fn one_connection_only(to: &str) -> String {
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = door.local_addr().unwrap().to_string();
    let to = to.to_owned();
    std::thread::spawn(move || {
        let (mut client, _) = door.accept().unwrap();
        drop(door);
        let mut server = TcpStream::connect(to).unwrap();
        let (mut back, mut there) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut server, &mut back));
        let _ = std::io::copy(&mut client, &mut there);
    });
    at
}

#[test]
fn a_network_that_lets_the_session_through_and_no_data_is_named_within_ten_seconds() {
    let folder = folder("blocked");
    let at = folder.0.as_path();
    let open = daemon(at, &["--ticket"]);
    let daemons = host_of(&open.url).trim_start_matches("longhaul://").trim_end_matches('/').to_owned();
    let firewall = one_connection_only(&daemons);
    let began = std::time::Instant::now();
    let output =
        longhaul(at).args(["cp", "f", &format!("{}x", open.url.replace(&daemons, &firewall))]).output().unwrap();
    let (text, took) = (said(&output), began.elapsed());
    assert!(took < std::time::Duration::from_secs(10), "{took:?}: {text}");
    assert_eq!(output.status.code(), Some(10), "{text}");
    let words =
        [&format!("connect to {firewall} for the data"), "no rail could be connected: Connection refused", "firewalls"];
    assert!(words.iter().all(|word| text.contains(*word)) && !text.contains("RECONNECTING"), "{text}");
}

#[test]
fn verify_of_a_wrong_folder_names_twenty_and_says_where_the_copy_went() {
    let folder = folder("elsewhere");
    let at = folder.0.as_path();
    (0..50).for_each(|no| std::fs::write(at.join(format!("src/f{no}")), "x").unwrap());
    std::fs::create_dir(at.join("wrong")).unwrap();
    let run = |words: &[&str]| longhaul(at).args(words).output().unwrap();
    let copied = run(&["cp", "--receipt", "paper", "src", "dst"]);
    assert!(copied.status.success(), "{}", said(&copied));
    let output = run(&["verify", "paper", "wrong"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(40), "{text}");
    assert_eq!(text.matches(": MISSING").count(), 20, "{text}");
    let went = format!("The copy went to {}", at.canonicalize().unwrap().join("dst").display());
    for words in ["are named above, 3", "more are missing", "nothing of it is here: is this the destination?", &went] {
        assert!(text.contains(words), "no '{words}' in {text}");
    }
    let json = said(&run(&["verify", "--json", "paper", "wrong"]));
    assert!(json.matches("\"kind\":\"missing\"").count() > 50, "--json names all: {json}");
    std::fs::remove_file(at.join("dst/f7")).unwrap();
    let text = said(&run(&["verify", "paper", "dst"]));
    assert!(text.contains("f7: MISSING") && !text.contains("is this the destination"), "{text}");
}

#[test]
fn a_copy_into_a_pipe_names_no_file_that_is_gone() {
    let folder = folder("piped");
    let at = folder.0.as_path();
    let output = longhaul(at).args(["cp", "-v", "f", "-"]).output().unwrap();
    let text = said(&output);
    assert!(output.status.success() && text.contains("some text"), "{text}");
    assert!(text.contains("receipt") && !text.contains("spool") && !text.contains("  next"), "{text}");
    let history = said(&longhaul(at).args(["job", "history"]).output().unwrap());
    assert!(history.contains("/f -> -") && !history.contains("spool"), "{history}");
}

#[test]
fn a_copy_within_one_host_or_by_ticket_needs_no_key_folder_and_any_other_says_which() {
    let folder = folder("home");
    let at = folder.0.as_path();
    let open = daemon(at, &["--ticket"]);
    for (name, home) in
        [("unset", None), ("empty", Some("")), ("not-there", Some("/proc/1/nobody")), ("top", Some("/"))]
    {
        let run = |words: &[&str]| {
            let mut command = longhaul(at);
            command
                .env_remove("LONGHAUL_HOME")
                .env_remove("HOME")
                .env_remove("XDG_CONFIG_HOME")
                .envs(home.map(|home| ("HOME", home)));
            command.env("TMPDIR", at.join("there")).args(words).output().unwrap()
        };
        let is_noted = |text: &str| text.matches("neither receipt nor history is kept").count() == 1;
        let local = run(&["cp", "f", name]);
        let text = said(&local);
        assert!(local.status.success() && at.join(name).is_file(), "{name}: {text}");
        assert!(is_noted(&text) && !text.contains("  receipt "), "{name}: {text}");
        let quiet = run(&["cp", "-q", "f", &format!("{name}-quiet")]);
        assert_eq!((quiet.status.code(), said(&quiet)), (Some(0), String::new()), "{name}");
        for words in
            [["f".to_owned(), format!("{}{name}", open.url)], [format!("{}isfile", open.url), "back".to_owned()]]
        {
            let far = run(&["cp", &words[0], &words[1]]);
            let text = said(&far);
            assert!(far.status.success() && is_noted(&text) && !text.contains("  receipt "), "{name}: {text}");
        }
        let far = run(&["cp", "f", &format!("{}{name}", host_of(&open.url))]);
        let text = said(&far);
        assert!(!far.status.success() && text.contains("LONGHAUL_HOME"), "{name}, no ticket: {text}");
    }
    let mut command = longhaul(at);
    command.env_remove("LONGHAUL_HOME").env("HOME", "/").env("TMPDIR", at).args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--root",
        "there",
    ]);
    let mut child = command.arg("--ticket").spawn().unwrap();
    let url = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let served = Daemon { child, url };
    let by_ticket = longhaul(at).args(["cp", "f", &format!("{}served", served.url)]).output().unwrap();
    assert!(by_ticket.status.success() && at.join("there/served").is_file(), "{}", said(&by_ticket));
    drop(served);
    assert!(!Path::new("/.config/longhaul").exists(), "nothing is written to /");
    let names = ["unset", "empty", "not-there", "top", "isfile", "served"];
    let left = std::fs::read_dir(at.join("there"))
        .unwrap()
        .flatten()
        .filter(|it| names.iter().all(|name| it.file_name() != *name))
        .count();
    assert_eq!(left, 0, "nothing is left in TMPDIR");
}

#[test]
fn whoever_reads_only_the_first_line_is_no_failure() {
    let folder = folder("pipe");
    for words in [&["key", "show"][..], &["job", "list"], &["help", "exit-codes"]] {
        let mut command = longhaul(&folder.0);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command.args(words).stdout(writer).output().unwrap();
        assert_eq!((output.status.code(), said(&output)), (Some(0), String::new()), "{words:?}");
    }
}

#[test]
fn a_daemon_says_of_each_ended_job_one_line_in_the_form_that_is_wanted() {
    let folder = folder("log");
    let at = folder.0.as_path();
    for (form, options) in [("text", &["--ticket"][..]), ("json", &["--ticket", "--log", "json", "-v"])] {
        let mut open = daemon(at, options);
        let log = open.child.stderr.take().unwrap();
        let (line, lines) = std::sync::mpsc::channel();
        // Ends with the daemon.
        std::thread::spawn(move || BufReader::new(log).lines().map_while(Result::ok).try_for_each(|it| line.send(it)));
        let mut all = String::new();
        let mut run = |words: &[&str], jobs: usize| {
            assert_eq!(longhaul(at).arg("cp").args(words).output().unwrap().status.code(), Some(0), "{words:?}");
            // The daemon's end of a job may be a moment behind the client's.
            while all.matches("outcome").count() < jobs {
                all += &lines.recv_timeout(std::time::Duration::from_secs(20)).expect("no line of the job's end");
                all.push('\n');
            }
        };
        run(&["f", &format!("{}in/{form}", open.url)], 1);
        run(&[&format!("{}in/{form}", open.url), "back"], 2);
        open.child.kill().unwrap();
        all.extend(lines.iter().map(|it| it + "\n"));
        let jobs: Vec<&str> = all.lines().filter(|line| line.contains("outcome")).collect();
        assert_eq!(jobs.len(), 2, "{all}");
        assert!(!all.contains("Landlock {") && !all.contains("holds:"), "no structs: {all}");
        for (line, direction) in jobs.iter().zip(["receives", "sends"]) {
            match form {
                "text" => {
                    let words = [
                        "Z info job=",
                        " key=lh:",
                        " peer=127.0.0.1:",
                        direction,
                        "path=in/text",
                        "bytes=10",
                        "seconds=",
                        "outcome=whole",
                    ];
                    assert!(words.iter().all(|word| line.contains(word)), "{line}");
                }
                _ => {
                    assert!(all.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{all}");
                    let job: serde_json::Value = serde_json::from_str(line).unwrap();
                    assert_eq!(
                        (&job["event"], &job["bytes"], &job["path"]),
                        (&"job".into(), &10.into(), &"in/json".into())
                    );
                    assert!(job["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
                }
            }
        }
    }
}

#[test]
fn habits_of_rsync_are_accepted_with_one_note_and_topics_have_pages() {
    let folder = folder("habits");
    let output = longhaul(&folder.0).args(["cp", "-avP", "src", "dst"]).output().unwrap();
    let text = said(&output);
    assert!(output.status.success() && text.matches("from-rsync").count() == 1, "{text}");
    let quiet = longhaul(&folder.0).args(["cp", "-q", "-r", "src", "dst2"]).output().unwrap();
    assert_eq!((quiet.status.code(), said(&quiet)), (Some(0), String::new()));
    for (topic, word) in
        [("exit-codes", "24  in_use"), ("addresses", "longhaul://TICKET@host:port/path"), ("from-rsync", "--bwlimit")]
    {
        let page = longhaul(&folder.0).args(["help", topic]).output().unwrap();
        assert!(page.status.success() && said(&page).contains(word), "{topic}: {}", said(&page));
        assert!(said(&longhaul(&folder.0).arg("--help").output().unwrap()).contains(topic), "{topic}");
    }
}

#[test]
fn a_copy_says_three_lines_and_not_more_than_four() {
    let folder = folder("lines");
    let at = folder.0.as_path();
    let open = daemon(at, &["--ticket"]);
    for words in [
        ["src".to_owned(), "dst".to_owned()],
        ["src".to_owned(), format!("{}dst", open.url)],
        [format!("{}dst", open.url), "back".to_owned()],
    ] {
        let output = longhaul(at).arg("cp").args(&words).output().unwrap();
        let text = said(&output);
        assert!(output.status.success() && (3..=4).contains(&text.lines().count()), "{text}");
        assert!(
            text.starts_with("copied ") && text.contains("too short to tell") && text.contains("  receipt     "),
            "{text}"
        );
    }
    assert!(TcpStream::connect(host_of(&open.url).trim_start_matches("longhaul://").trim_end_matches('/')).is_ok());
}
