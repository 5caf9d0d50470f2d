//! `longhaul key`, as its users meet it: the real binary, a key folder of its own.
//!
//! For: the words, the files they leave behind, and what goes wrong in sentences that help.
//! Absent on purpose: every spelling of every file (src/identity/tests.rs), connections (src/link/tests.rs).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// One user with a key folder that goes away with the test.
struct User {
    home: PathBuf,
}

impl User {
    fn new() -> User {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("longhaul-key-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        User { home: std::env::temp_dir().join(name) }
    }

    fn key(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.arg("key").args(words).env("LONGHAUL_HOME", &self.home).env("USER", "me").output().unwrap()
    }

    /// Standard output of a command that must work.
    fn says(&self, words: &[&str]) -> String {
        let output = self.key(words);
        assert!(output.status.success(), "key {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Standard error of a command that must fail, with a code that is no crash.
    fn refuses(&self, words: &[&str]) -> String {
        let output = self.key(words);
        assert!(!output.status.success(), "key {words:?} should fail");
        assert!(matches!(output.status.code(), Some(1..=69)), "{:?}", output.status);
        String::from_utf8(output.stderr).unwrap()
    }

    /// The line that another host needs.
    fn public(&self) -> String {
        self.says(&["show"]).lines().next().unwrap().to_owned()
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.home.join(name)).unwrap()
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.home);
    }
}

#[test]
fn show_makes_the_key_once_and_prints_what_key_pub_holds() {
    let user = User::new();
    let first = user.says(&["show"]);
    assert_eq!(first, user.says(&["show"]));
    let lines: Vec<&str> = first.lines().collect();
    assert!(lines[0].starts_with("longhaul-ed25519 ") && lines[0].contains(" me@"), "{first}");
    assert!(lines[1].starts_with("fingerprint lh:") && lines[1].len() == 47, "{first}");
    assert_eq!(user.text("key.pub").trim_end(), lines[0]);
    let mode = |name: &str| fs::metadata(user.home.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("."), mode("key")), (0o700, 0o600));
}

#[test]
fn generate_replaces_a_key_only_by_force() {
    let user = User::new();
    let made = user.says(&["generate", "--comment", "the build host"]);
    assert!(made.lines().next().unwrap().ends_with(" the build host"), "{made}");
    let refused = user.refuses(&["generate"]);
    assert!(refused.contains("--force"), "{refused}");
    assert_eq!(user.says(&["show"]), made);
    assert_ne!(user.says(&["generate", "--force"]), made);
}

#[test]
fn hosts_are_introduced_by_copying_one_line() {
    let (server, client) = (User::new(), User::new());
    // Quoted, or as the words come.
    client.says(&["trust", "host.example:5740", &server.public()]);
    let line = server.public();
    let words: Vec<&str> = line.split(' ').collect();
    client.says(&[&["trust", "[2001:db8::1]:5740"], &words[..]].concat());
    let trusted = client.text("trusted");
    assert_eq!(trusted.lines().count(), 2, "{trusted}");
    assert!(
        trusted.contains("host.example:5740 longhaul-ed25519 ") && trusted.contains("[2001:db8::1]:5740 "),
        "{trusted}"
    );

    let root = fs::canonicalize(&server.home).unwrap();
    let root = root.to_str().unwrap();
    let said = server.says(&["authorize", &client.public(), "--root", root, "--wo", "--rate", "10Gbit"]);
    assert!(said.contains("copy to") && said.contains(root), "{said}");
    let authorized = server.text("authorized_keys");
    assert!(
        authorized.starts_with(&format!("root=\"{root}\",wo,rate=10000000000bit longhaul-ed25519 ")),
        "{authorized}"
    );
    assert!(authorized.trim_end().contains(" me@"), "the note comes with the key: {authorized}");
    // Again with other rights: one line, the new ones.
    server.says(&["authorize", &client.public(), "--ro"]);
    let authorized = server.text("authorized_keys");
    assert!(authorized.lines().count() == 1 && authorized.starts_with("ro longhaul-ed25519 "), "{authorized}");
}

#[test]
fn a_new_key_for_a_known_host_says_which_one_it_replaces() {
    let (old, new, client) = (User::new(), User::new(), User::new());
    client.says(&["trust", "h:1", &old.public()]);
    let said = client.says(&["trust", "h:1", &new.public()]);
    let old_print = old.says(&["show"]).lines().nth(1).unwrap().replace("fingerprint ", "");
    assert!(said.contains("no longer trusted") && said.contains(&old_print), "{said}");
}

#[test]
fn a_revoked_key_cannot_be_let_in_again_by_accident() {
    let (server, client) = (User::new(), User::new());
    let key = client.public();
    server.says(&["authorize", &key]);
    server.says(&["revoke", &key, "--comment", "laptop lost"]);
    assert!(server.text("revoked").contains("laptop lost"));
    assert!(server.says(&["revoke", &key]).contains("as it was before"));
    for words in [vec!["authorize", &key], vec!["trust", "h:1", &key]] {
        assert!(server.refuses(&words).contains("revoked"), "{words:?}");
    }
}

#[test]
fn the_list_has_each_key_with_its_file_and_what_it_may_and_makes_none() {
    let (user, alice, server) = (User::new(), User::new(), User::new());
    let none = user.says(&["list"]);
    assert!(none.contains("no key here") && !user.home.join("key").exists(), "{none}");
    assert_eq!(user.says(&["list", "--json"]), "[]\n");
    let own = user.says(&["show"]);
    user.says(&["authorize", &alice.public(), "--ro", "--rate", "10Gbit", "--comment", "alice's laptop"]);
    user.says(&["trust", "h:1", &server.public()]);
    user.says(&["revoke", &server.public(), "--comment", "stolen"]);
    let keys: serde_json::Value = serde_json::from_str(&user.says(&["list", "--json"])).unwrap();
    let kinds: Vec<&str> = keys.as_array().unwrap().iter().map(|key| key["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["own", "authorized", "trusted", "revoked"]);
    assert!(
        own.contains(keys[0]["fingerprint"].as_str().unwrap()) && keys[0]["note"].as_str().unwrap().contains("me@")
    );
    let rights = &keys[1]["rights"];
    assert_eq!((rights["access"].as_str(), rights["rate_bps"].as_u64()), (Some("ro"), Some(10_000_000_000)), "{keys}");
    assert_eq!((keys[1]["is_revoked"].as_bool(), keys[2]["is_revoked"].as_bool()), (Some(false), Some(true)));
    assert_eq!(keys[2]["address"], "h:1");
    assert!(keys[3]["file"].as_str().unwrap().ends_with("/revoked") && keys[3]["note"] == "stolen");
    let text = user.says(&["list"]);
    assert!(text.contains("ro rate=10Gbit/s") && text.contains("nothing: revoked") && text.contains("alice's laptop"));
    // Where the daemon's config names another file.
    let other = user.home.join("other_keys");
    fs::write(&other, format!("wo {}\n", server.public())).unwrap();
    let of_other = user.says(&["list", "--authorized-keys", other.to_str().unwrap()]);
    assert!(of_other.contains("other_keys") && !of_other.contains("alice's laptop"), "{of_other}");
    assert!(user.refuses(&["list", "--authorized-keys", "/nowhere/at/all"]).contains("/nowhere/at/all"));
    fs::write(user.home.join("trusted"), "h:1 nonsense\n").unwrap();
    let refused = user.refuses(&["list"]);
    assert!(refused.contains("trusted:1") && refused.contains("next: "), "{refused}");
}

#[test]
fn what_cannot_be_understood_changes_nothing() {
    let (user, other) = (User::new(), User::new());
    let key = other.public();
    user.says(&["authorize", &key]);
    let before = user.text("authorized_keys");
    for words in [
        vec!["authorize", "AAAA"],
        vec!["authorize", "longhaul-ed25519 AAAA"],
        vec!["authorize", &key, "--ro", "--wo"],
        vec!["authorize", &key, "--rate", "10"],
        vec!["authorize", &key, "--root", "/nowhere/at/all"],
        vec!["trust", "host-without-port", &key],
        vec!["trust", "h:1"],
        vec!["revoke", "lh:abc"],
    ] {
        user.refuses(&words);
    }
    assert_eq!(user.text("authorized_keys"), before);
    // A line that somebody typed wrong is named, and nothing is written around it.
    fs::write(user.home.join("authorized_keys"), format!("{before}roo {key}\n")).unwrap();
    let refused = user.refuses(&["authorize", &other.public()]);
    assert!(refused.contains("authorized_keys:2: unknown option"), "{refused}");
    // A secret that others may read is not used.
    user.says(&["show"]);
    fs::set_permissions(user.home.join("key"), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(user.refuses(&["show"]).contains("chmod 600"));
}
