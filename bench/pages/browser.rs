//! What a real browser shows of pages, headless: nothing wider than the screen, no letters cut off, over each other, too small or too pale.
//!
//! For: the tests of all pages. In and out: pages → one document with each of them in four frames, at 380 and 1280 px, light and dark, measured by
//! a script of its own (look.js), whose findings stand in the document when it is dumped. With PAGES=FOLDER in the environment pages and their
//! pictures are kept there.
//! Invariants: no browser, or one that cannot start here, is said and fails nothing; nothing of the user's profile is read.
//! Absent on purpose: a driver of browsers: `--dump-dom` is all that it takes.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs that know `--headless --dump-dom`, and BROWSER of the environment before them.
const BROWSERS: [&str; 6] =
    ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];
const SCREENS: [u32; 2] = [380, 1280];
/// The part of it that pictures show at most.
const HIGH: u64 = 6000;

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let found = |name: &str| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    std::env::var("BROWSER").ok().and_then(|name| found(&name)).or_else(|| BROWSERS.iter().copied().find_map(found))
}

/// Removed with all that is in it.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs it to its end: what it printed, and what its console said.
fn run(browser: &Path, profile: &Path, words: &[String]) -> std::io::Result<(String, String)> {
    let fixed = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"];
    let output = Command::new("timeout")
        .arg("60")
        .arg(browser)
        .args(fixed)
        .args(["--hide-scrollbars", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(words)
        .output()?;
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Looks at these pages, by name: what is wrong with them, and how high each is in each frame. `None`: no browser does it here, as was said.
pub(crate) fn seen(pages: &[(String, String)]) -> Option<(Vec<String>, Vec<u64>)> {
    let Some(browser) = browser() else {
        println!("skip: no browser is installed here that runs without a screen ({})", BROWSERS.join(", "));
        return None;
    };
    let name = std::thread::current().name().unwrap_or("pages").replace("::", "-");
    let folder = Folder(std::env::temp_dir().join(format!("longhaul-{name}-{}", std::process::id())));
    let (profile, document) = (folder.0.join("profile"), folder.0.join("all.html"));
    std::fs::create_dir_all(&profile).expect("room");
    let text =
        serde_json::to_string(&(SCREENS, pages)).expect("text").replace("</", "<\\/").replace("<!--", "<\\u0021--");
    let script = include_str!("look.js").replace("\"PAGES\"", &text);
    std::fs::write(&document, format!("<!doctype html><meta charset=\"utf-8\"><body><script>{script}</script>"))
        .expect("room");
    let words = ["--virtual-time-budget=60000", "--dump-dom", &format!("file://{}", document.display())];
    let (dom, console) = run(&browser, &profile, &words.map(str::to_owned)).expect("timeout(1)");
    let found = dom.split_once("<pre id=\"found\">").and_then(|(_, rest)| rest.split_once("</pre>")).map(|it| it.0);
    let Some(found) = found else {
        println!("skip: {} does not run here: {console:.200}", browser.display());
        return None;
    };
    let found = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let (mut wrong, high): (Vec<String>, Vec<u64>) = serde_json::from_str(&found).expect("what look.js writes");
    wrong.extend(console.lines().filter(|line| line.contains("CONSOLE")).map(|line| format!("on the console: {line}")));
    assert_eq!(high.len(), pages.len() * SCREENS.len() * 2, "each page was shown four times");
    if let Some(kept) = std::env::var_os("PAGES").filter(|_| wrong.is_empty()) {
        keep(&browser, &profile, pages, &high, Path::new(&kept));
    }
    Some((wrong, high))
}

/// Looks at these pages, by name.
///
/// # Panics
/// Something is wrong with one of them.
pub(crate) fn look(pages: &[(String, String)]) {
    if let Some((wrong, _)) = seen(pages) {
        assert!(wrong.is_empty(), "{} things are wrong:\n{}", wrong.len(), wrong.join("\n"));
    }
}

/// Pages and pictures, where somebody wants them.
fn keep(browser: &Path, profile: &Path, pages: &[(String, String)], high: &[u64], folder: &Path) {
    std::fs::create_dir_all(folder).expect("a folder that can be made");
    let mut high = high.iter();
    for (name, page) in pages {
        let path = folder.join(format!("{name}.html"));
        std::fs::write(&path, page).expect("room");
        for screen in SCREENS {
            // Chromium's mojom::PreferredColorScheme: dark is 0, light 1.
            for (scheme, number) in [("light", 1), ("dark", 0)] {
                let high = high.next().copied().unwrap_or(900).min(HIGH);
                let picture = folder.join(format!("{name}-{screen}-{scheme}.png"));
                let words = [
                    format!("--blink-settings=preferredColorScheme={number}"),
                    format!("--window-size={screen},{high}"),
                    format!("--screenshot={}", picture.display()),
                    format!("file://{}", path.display()),
                ];
                run(browser, profile, &words).expect("timeout(1)");
                assert!(picture.is_file(), "no picture: {}", picture.display());
            }
        }
    }
    println!("pages and their pictures: {}", folder.display());
}
