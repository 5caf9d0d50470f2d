//! A served root never holds what this daemon itself trusts.
//!
//! For: `serve`, and keys with a root of their own.
//! In and out: LONGHAUL_HOME, the list of keys, the config file; a folder to serve → which of these is in it.
//! Invariants: folders are known by device and number, not by name, and by where they lie in their file system: neither a link nor a bind mount, of
//! the root or of what is guarded, hides that one holds the other.
//! Absent on purpose: hiding single folders below a root: what is refused at the start cannot be raced later. Overlays: their layers are other file
//! systems.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use text::attempt::Attempt;
use text::exit::{Exit, Failure};

/// A place in a file system, whatever it is mounted on: the device as the kernel names it, and the path within.
#[derive(Debug, Clone, PartialEq, Eq)]
struct InFs {
    device: Vec<u8>,
    path: PathBuf,
}

/// One thing that nobody may be served.
#[derive(Debug, Clone)]
struct Guarded {
    shown: PathBuf,
    /// Itself and all folders above it: device and number.
    ids: Vec<(u64, u64)>,
    within: Option<InFs>,
}

/// Every place that no served root may hold.
#[derive(Debug, Clone, Default)]
pub struct Guards(Vec<Guarded>);

/// A line of `/proc/self/mountinfo` (proc(5)).
#[derive(Debug)]
struct Mount {
    device: Vec<u8>,
    root: PathBuf,
    on: PathBuf,
}

fn mounts() -> Vec<Mount> {
    read_mounts(&std::fs::read("/proc/self/mountinfo").unwrap_or_default())
}

fn read_mounts(text: &[u8]) -> Vec<Mount> {
    let one = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        let device = fields.next()?.to_vec();
        let (root, on) = (unescaped(fields.next()?), unescaped(fields.next()?));
        Some(Mount { device, root, on })
    };
    text.split(|byte| *byte == b'\n').filter_map(one).collect()
}

/// Blanks and the like stand there as `\040`.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut at = 0;
    while let Some(&byte) = field.get(at) {
        let octal =
            field.get(at + 1..at + 4).filter(|_| byte == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(escaped) => {
                bytes.push(escaped);
                at += 4;
            }
            None => {
                bytes.push(byte);
                at += 1;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Of a path without links: the last mount that it lies under is the one that is seen.
fn within(mounts: &[Mount], path: &Path) -> Option<InFs> {
    let mut found: Option<(&Mount, &Path)> = None;
    for mount in mounts {
        let Ok(rest) = path.strip_prefix(&mount.on) else { continue };
        if found.is_none_or(|(best, _)| mount.on.as_os_str().len() >= best.on.as_os_str().len()) {
            found = Some((mount, rest));
        }
    }
    found.map(|(mount, rest)| InFs { device: mount.device.clone(), path: mount.root.join(rest) })
}

fn id(facts: &Metadata) -> (u64, u64) {
    (facts.dev(), facts.ino())
}

impl Guards {
    /// What is guarded: these, as far as they are there.
    ///
    /// # Errors
    /// One is there and cannot be looked at.
    pub fn of<'a>(all: impl IntoIterator<Item = &'a Path>) -> io::Result<Guards> {
        let mounts = mounts();
        let mut guards = Vec::new();
        for shown in all {
            let real = match std::fs::canonicalize(shown) {
                Ok(real) => real,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let ids =
                real.ancestors().filter_map(|above| std::fs::metadata(above).ok()).map(|facts| id(&facts)).collect();
            guards.push(Guarded { shown: shown.to_owned(), ids, within: within(&mounts, &real) });
        }
        Ok(Guards(guards))
    }

    /// What of it is in this folder.
    ///
    /// # Errors
    /// The folder cannot be looked at.
    pub fn in_root(&self, root: &Path) -> io::Result<Option<&Path>> {
        let own = id(&std::fs::metadata(root)?);
        let real = std::fs::canonicalize(root)?;
        let mounts = mounts();
        let place = within(&mounts, &real);
        let holds = |place: &InFs, it: &Guarded| {
            it.within.as_ref().is_some_and(|it| it.device == place.device && it.path.starts_with(&place.path))
        };
        // What is mounted somewhere below is served, too.
        let below = mounts.iter().filter(|mount| mount.on.starts_with(&real));
        let below: Vec<InFs> =
            below.map(|mount| InFs { device: mount.device.clone(), path: mount.root.clone() }).collect();
        let found =
            self.0.iter().find(|it| it.ids.contains(&own) || place.iter().chain(&below).any(|place| holds(place, it)));
        Ok(found.map(|it| it.shown.as_path()))
    }

    /// Refuses a root that holds any of it.
    ///
    /// # Errors
    /// It does, or cannot be looked at.
    pub fn refuse(&self, root: &Path) -> Result<(), Failure> {
        let what = format!("serve '{}'", root.display());
        match self.in_root(root) {
            Ok(None) => Ok(()),
            Ok(Some(held)) => {
                let held = String::from_utf8_lossy(held.as_os_str().as_bytes()).into_owned();
                let cause =
                    format!("{held} is in it: clients could fetch this daemon's private key, or let themselves in");
                Err(Exit::Usage.fail(what, cause).next(format!(
                    "serve a folder that does not hold {held}, or keep that elsewhere (LONGHAUL_HOME; authorized_keys and --config of the daemon)"
                )))
            }
            Err(error) => Err(Attempt::Root.fail(what, &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(path: &str, mounts: &[Mount]) -> Option<InFs> {
        within(mounts, Path::new(path))
    }

    #[test]
    fn a_root_that_holds_the_home_is_refused_by_any_name() {
        let base = std::env::temp_dir().join(format!("longhaul-guarded-{}", std::process::id()));
        let home = base.join("served/deep/home");
        std::fs::create_dir_all(&home).expect("made");
        std::fs::create_dir_all(base.join("beside")).expect("made");
        std::os::unix::fs::symlink(base.join("served"), base.join("link")).expect("made");
        std::os::unix::fs::symlink(&home, base.join("home")).expect("made");
        for named in [&home, &base.join("home")] {
            let guards = Guards::of([named.as_path(), Path::new("/no/such/list")]).expect("it is there");
            for held in ["served", "served/deep", "served/deep/home", "link", "link/deep/../deep", ""] {
                assert_eq!(guards.in_root(&base.join(held)).expect("it is there"), Some(named.as_path()), "{held}");
            }
            assert_eq!(guards.in_root(&base.join("beside")).expect("it is there"), None);
            let failure = guards.refuse(&base.join("link")).expect_err("refused");
            assert!(failure.exit == Exit::Usage && failure.next_step.contains("LONGHAUL_HOME"), "{failure}");
        }
        std::fs::remove_dir_all(base).expect("it is there");
    }

    #[test]
    fn a_place_is_known_through_bind_mounts_of_either_side() {
        let text = b"1 0 8:1 / / rw - ext4 /dev/a rw\n\
                     2 1 8:2 / /data rw shared:1 - xfs /dev/b rw\n\
                     3 1 8:2 /in/side /mnt/a\\040bind rw - xfs /dev/b rw\n\
                     4 2 8:1 /home/me /data/over rw - ext4 /dev/a rw\n";
        let mounts = read_mounts(text);
        let at = |device: &str, path: &str| Some(InFs { device: device.into(), path: path.into() });
        assert_eq!(guard("/data/in/side/home", &mounts), at("8:2", "/in/side/home"));
        assert_eq!(guard("/mnt/a bind/home", &mounts), at("8:2", "/in/side/home"), "the same, bound elsewhere");
        assert_eq!(guard("/data/over/keys", &mounts), at("8:1", "/home/me/keys"), "the last mount counts");
        assert_eq!(guard("/home/me/keys", &mounts), at("8:1", "/home/me/keys"));
    }
}
