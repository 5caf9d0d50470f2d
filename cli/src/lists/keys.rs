//! `longhaul key list`: this host's key, and the keys that it knows.
//!
//! For: seeing at once who may copy to and from here, whom this host believes, and whom it refuses.
//! In and out: the files of LONGHAUL_HOME → one line or object for each key, with the file that it comes from.
//! Invariants: a file that cannot be read, or one of its lines that cannot, ends the command with its name: a shorter list would be a wrong one; the
//! key is not made by looking.
//! Absent on purpose: what the files look like (node::identity).

use std::path::Path;

use node::identity::authorized::{self, NotedKey};
use node::identity::keys::{self, Identity, fingerprint, key_text};
use node::identity::{Access, Home, PublicKey, Rights, trust};
use serde::Serialize;
use text::units;

use crate::report::clean;

/// A key of a list.
#[derive(Debug, Default, Serialize)]
struct Listed {
    /// `own`, `authorized`, `trusted` or `revoked`.
    kind: &'static str,
    fingerprint: String,
    key: String,
    note: String,
    /// The file that it stands in.
    file: String,
    /// Of a trusted one: where.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    /// Of an authorized one: what its owner may do.
    #[serde(skip_serializing_if = "Option::is_none")]
    rights: Option<ShownRights>,
    /// It stands in `revoked` as well, which wins.
    is_revoked: bool,
}

/// What somebody may do here.
#[derive(Debug, Serialize)]
struct ShownRights {
    /// `rw`, `ro` or `wo`.
    access: &'static str,
    /// `null`: the daemon's own root.
    root: Option<String>,
    /// Bit/s; 0: no cap.
    rate_bps: u64,
    privileged: bool,
}

impl From<&Rights> for ShownRights {
    fn from(rights: &Rights) -> ShownRights {
        let access = match rights.access {
            Access::ReadWrite => "rw",
            Access::ReadOnly => "ro",
            Access::WriteOnly => "wo",
        };
        let root = rights.root.as_ref().map(|root| root.display().to_string());
        ShownRights { access, root, rate_bps: rights.rate_bps, privileged: rights.privileged }
    }
}

impl ShownRights {
    /// In words that `authorize` has, too.
    fn words(&self) -> String {
        let mut words = vec![self.access.to_owned()];
        words.extend(self.root.as_ref().map(|root| format!("root={}", clean(root))));
        words.extend((self.rate_bps > 0).then(|| format!("rate={}", units::exact_rate(self.rate_bps))));
        words.extend(self.privileged.then(|| "privileged".to_owned()));
        words.join(" ")
    }
}

/// Prints the list; `list`: a daemon's own file of authorized keys.
///
/// # Errors
/// A file that cannot be read, or one of its lines.
pub fn run(home: &Home, list: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let all = all(home, list)?;
    let none = format!("no key here (of LONGHAUL_HOME {}); `longhaul key show` makes one", home.path("").display());
    super::print(&all, (json, &none), &["kind", "key", "of", "may", "note", "file"], |key| {
        let of = key.address.clone().unwrap_or_else(|| super::UNKNOWN.to_owned());
        let may = match (key.is_revoked, &key.rights) {
            (true, _) => "nothing: revoked".to_owned(),
            (false, Some(rights)) => rights.words(),
            (false, None) => super::UNKNOWN.to_owned(),
        };
        vec![key.kind.to_owned(), key.fingerprint.clone(), of, may, key.note.clone(), clean(&key.file)]
    })
}

fn all(home: &Home, list: Option<&Path>) -> anyhow::Result<Vec<Listed>> {
    let revoked = authorized::revoked_noted(home)?;
    let is_revoked = |key: &PublicKey| revoked.iter().any(|it| it.key == *key);
    let file = |name: &str| home.path(name).display().to_string();
    let listed = |kind, it: NotedKey, file: String| Listed {
        kind,
        fingerprint: fingerprint(&it.key),
        key: key_text(&it.key),
        is_revoked: is_revoked(&it.key),
        note: it.note,
        file,
        ..Listed::default()
    };
    let mut all = Vec::new();
    if let Some(own) = Identity::find(home)? {
        let own = NotedKey { key: own.public(), note: keys::own_note(home, &own.public()) };
        all.push(listed("own", own, file(keys::FILE)));
    }
    let named = list.map_or_else(|| file(authorized::FILE), |list| list.display().to_string());
    for (key, rights) in authorized::authorized_in(home, list)? {
        all.push(Listed { rights: Some((&rights).into()), ..listed("authorized", key, named.clone()) });
    }
    for (address, key) in trust::all(home)? {
        all.push(Listed { address: Some(address), ..listed("trusted", key, file(trust::FILE)) });
    }
    all.extend(revoked.iter().map(|key| listed("revoked", key.clone(), file(authorized::REVOKED))));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_stand_on_the_list_with_their_files_and_what_they_may() {
        let folder = std::env::temp_dir().join(format!("longhaul-keys-listed-{}", std::process::id()));
        let home = Home::at(&folder).expect("a home");
        assert!(all(&home, None).expect("none").is_empty() && !folder.join("key").exists(), "looking makes no key");
        let [one, other] = [(); 2].map(|()| Identity::ephemeral().expect("a key").public());
        let own = Identity::load(&home).expect("made").public();
        let rights = Rights { access: Access::ReadOnly, rate_bps: 8_000_000, ..Rights::default() };
        authorized::authorize(&home, &one, &rights, "alice\u{1b}[31m").expect("written");
        trust::trust(&home, "h:1", &other).expect("written");
        authorized::revoke(&home, &one, "laptop lost").expect("written");
        let list = all(&home, None).expect("a list");
        let shown: Vec<_> = list.iter().map(|it| (it.kind, it.key.clone(), it.is_revoked)).collect();
        let [own, one, other] = [own, one, other].map(|key| key_text(&key));
        let wanted =
            [("own", own, false), ("authorized", one.clone(), true), ("trusted", other, false), ("revoked", one, true)];
        assert_eq!(shown, wanted);
        let rights = list[1].rights.as_ref().expect("of an authorized key");
        assert_eq!(rights.words(), "ro rate=8Mbit/s");
        assert!(!list[1].note.contains('\u{1b}') && list[3].note == "laptop lost");
        assert_eq!(list[2].address.as_deref(), Some("h:1"));
        assert!(list[2].file.ends_with("/trusted") && list[3].file.ends_with("/revoked"));
        std::fs::write(folder.join("trusted"), "nonsense\n").expect("written");
        assert!(all(&home, None).is_err(), "a list that left something out would be a wrong one");
        std::fs::remove_dir_all(folder).expect("it is there");
    }
}
