//! The command line as its users meet it: the real binary.
//!
//! For: exit codes, what goes to standard output and what to standard error, sentences that name the next step.
//! Absent on purpose: every option (src/args_tests.rs), copies (the end-to-end tests), keys (identity.rs).

use std::path::PathBuf;
use std::process::{Command, Output};

fn longhaul(words: &[&str]) -> Output {
    let home = std::env::temp_dir().join(format!("longhaul-cli-{}", std::process::id()));
    Command::new(env!("CARGO_BIN_EXE_longhaul")).args(words).env("LONGHAUL_HOME", home).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_wrong_line_is_exit_code_2_and_says_so_on_standard_error_alone() {
    for words in
        [&["frobnicate"][..], &["cp", "a"], &["cp", "--rate", "10Gb", "a", "b"], &["serve", "--ro", "--wo"], &[]]
    {
        let output = longhaul(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert_eq!(text(&output.stdout), "", "{words:?}");
        assert!(!output.stderr.is_empty(), "{words:?}");
    }
}

#[test]
fn a_daemon_without_a_root_does_not_start_and_says_how_to_name_one() {
    let output = longhaul(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(2));
    let told = text(&output.stderr);
    assert!(
        told.starts_with("failed to start the daemon: no folder to serve was named\n  next: name one with --root"),
        "{told}"
    );
}

#[test]
fn a_wrong_config_file_is_named_with_its_line() {
    let path = std::env::temp_dir().join(format!("longhaul-cli-{}.toml", std::process::id()));
    std::fs::write(&path, "root = \"/tmp\"\n\nspeed = 7\n").unwrap();
    let output = longhaul(&["serve", "--config", path.to_str().unwrap()]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = text(&output.stderr);
    assert!(told.contains(path.to_str().unwrap()) && told.contains("line 3: unknown field `speed`"), "{told}");
}

#[test]
fn verify_of_what_is_no_receipt_fails_with_the_kind_of_its_cause() {
    let missing = longhaul(&["verify", "/nonexistent/receipt"]);
    assert_eq!(missing.status.code(), Some(5));
    let told = text(&missing.stderr);
    assert!(
        told.starts_with("failed to read the receipt /nonexistent/receipt: ") && told.contains("\n  next: "),
        "{told}"
    );
    let no_receipt = longhaul(&["verify", env!("CARGO_BIN_EXE_longhaul")]);
    assert_eq!(no_receipt.status.code(), Some(2));
}

#[test]
fn help_and_version_go_to_standard_output() {
    for words in [&["--help"][..], &["cp", "--help"], &["--version"], &["serve", "-h"]] {
        let output = longhaul(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(text(&output.stdout).contains("longhaul"), "{words:?}");
        assert_eq!(text(&output.stderr), "", "{words:?}");
    }
    assert!(!text(&longhaul(&["--help"]).stdout).contains("generate"), "generate is for packagers");
}

#[test]
fn the_version_names_the_commit_its_day_and_the_protocol() {
    let [long, short] = ["--version", "-V"].map(|word| text(&longhaul(&[word]).stdout));
    assert_eq!(long, short);
    let begins = format!("longhaul {} (commit ", env!("CARGO_PKG_VERSION"));
    let ends = format!(", protocol {})\n", proto::VERSION);
    let words =
        long.strip_prefix(&begins).and_then(|rest| rest.strip_suffix(&ends)).unwrap_or_else(|| panic!("{long}"));
    let (commit, date) = words.split_once(", ").unwrap();
    assert!(commit == "unknown" || commit.len() >= 7, "{long}");
    let is_day = date.len() == 10 && date.split('-').all(|part| part.parse::<u32>().is_ok());
    assert!(date == "unknown" || is_day, "{long}");
    let cp = text(&longhaul(&["cp", "--version"]).stdout);
    assert_eq!(cp, long.replacen("longhaul", "longhaul-cp", 1), "commands say the same");
}

#[test]
fn manual_pages_and_completions_are_written_where_asked() {
    let folder: PathBuf = std::env::temp_dir().join(format!("longhaul-cli-docs-{}", std::process::id()));
    for what in ["man", "completions"] {
        let output = longhaul(&["generate", what, folder.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    for name in ["longhaul.1", "longhaul-cp.1", "longhaul-verify.1", "longhaul.bash", "_longhaul", "longhaul.fish"] {
        assert!(folder.join(name).is_file(), "{name}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_process_list_does_not_show_a_ticket_that_stands_on_the_command_line() {
    // Somebody who takes the connection and says nothing: the command is there to be looked at.
    let door = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let home = std::env::temp_dir().join(format!("longhaul-cli-words-{}", std::process::id()));
    // A ticket is 49 bytes: 1, a key that is a point of the curve (RFC 8032, 7.1, test 1), a secret.
    let ticket = "AddamAGCsQq31Uv-08lkBzoO4XLz2qYjJa8CGmj3B1EaAAECAwQFBgcICQoLDA0ODw";
    let address = format!("longhaul://{ticket}@{}/x", door.local_addr().unwrap());
    let mut child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["cp", "/etc/hostname", &address])
        .env("LONGHAUL_HOME", &home)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let (taken, _) = door.accept().unwrap();
    let line = std::fs::read(format!("/proc/{}/cmdline", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    drop(taken);
    let _ = std::fs::remove_dir_all(&home);
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    let hidden = format!("longhaul://{}@{}/x", "*".repeat(ticket.len()), door.local_addr().unwrap());
    assert!(line.contains(&hidden) && !line.contains(ticket), "{line}");
}
