//! Which commit this is, for `longhaul --version`.
//!
//! For: telling two builds of one version apart in a report of a fault.
//! In and out: LONGHAUL_COMMIT, SOURCE_DATE_EPOCH, else git's word → LONGHAUL_COMMIT and LONGHAUL_DATE for the compiler.
//! Invariants: the same sources give the same words, whenever and wherever they are built; what nobody knows is `unknown`.
//! Absent on purpose: the time of the build; whether files were changed since (cargo would have to look at each build: `make release` does).

use std::path::Path;
use std::process::Command;

/// Digits of the commit: enough to be the only one in a repository of any size that this one could reach.
const DIGITS: usize = 12;
const UNKNOWN: &str = "unknown";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for name in ["LONGHAUL_COMMIT", "SOURCE_DATE_EPOCH"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    let git = Repository::here();
    let said = |name| std::env::var(name).ok().filter(|it: &String| is_printable(it));
    let commit = said("LONGHAUL_COMMIT").or_else(|| git.as_ref()?.commit());
    let epoch = said("SOURCE_DATE_EPOCH").and_then(|it| it.parse().ok()).or_else(|| git.as_ref()?.epoch());
    println!("cargo:rustc-env=LONGHAUL_COMMIT={}", commit.as_deref().unwrap_or(UNKNOWN));
    println!("cargo:rustc-env=LONGHAUL_DATE={}", epoch.map_or_else(|| UNKNOWN.to_owned(), date));
}

/// A line for cargo must be one line, and `unknown` is not said by an empty word.
fn is_printable(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The repository that has these sources.
struct Repository(std::path::PathBuf);

impl Repository {
    /// None for a tarball, also where it was unpacked below somebody else's repository.
    fn here() -> Option<Repository> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.canonicalize().ok()?;
        let git = Repository(root);
        let top = git.say(&["rev-parse", "--show-toplevel"])?;
        if Path::new(&top).canonicalize().ok()? != git.0 {
            return None;
        }
        // What changes with a commit, in a work tree of its own as well; a file that is not there would mean a build each time.
        let branch = git.say(&["symbolic-ref", "-q", "HEAD"]).unwrap_or_default();
        for name in ["HEAD", "logs/HEAD", "packed-refs", &branch] {
            let place = git.say(&["rev-parse", "--git-path", name]).map(|place| git.0.join(place));
            if let Some(place) = place.filter(|place| place.is_file()) {
                println!("cargo:rerun-if-changed={}", place.display());
            }
        }
        Some(git)
    }

    fn commit(&self) -> Option<String> {
        self.say(&["rev-parse", "HEAD"]).map(|name| name.chars().take(DIGITS).collect())
    }

    fn epoch(&self) -> Option<i64> {
        self.say(&["log", "-1", "--format=%ct"])?.parse().ok()
    }

    fn say(&self, words: &[&str]) -> Option<String> {
        let output = Command::new("git").arg("-C").arg(&self.0).args(words).output().ok()?;
        let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }
}

/// Seconds since 1970 as a day of UTC: the algorithm `civil_from_days` of Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
fn date(epoch: i64) -> String {
    let days = epoch.div_euclid(86_400) + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
