//! The trace of a copy, as a user gets it: by the program, over real sockets of one host.
//!
//! For: what of a trace only whole jobs show: that rails are looked at, that a signal costs nothing of it, that `--json` has the same.
//! Absent on purpose: how the files look (node's own tests), links that lose (bench wan --trace).

#[allow(dead_code, unreachable_pub)] // each test binary uses its own part
mod guard;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use guard::{Daemon, Folder};
use serde_json::Value;

fn longhaul(folder: &Path, home: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.env("LONGHAUL_HOME", folder.join(home)).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A folder with a source, and a daemon that takes it: its address.
fn open(name: &str) -> (Folder, Daemon, String) {
    let folder = Folder(std::env::temp_dir().join(format!("longhaul-trace-{name}-{}", std::process::id())));
    std::fs::create_dir_all(folder.0.join("to")).unwrap();
    std::fs::write(folder.0.join("large.bin"), vec![7; 3_000_000]).unwrap();
    let mut serve = longhaul(&folder.0, "home-there");
    serve.args(["serve", "--listen", "127.0.0.1:0", "--ticket", "--root=to"]).stderr(Stdio::null());
    let mut daemon = Daemon(serve.spawn().unwrap());
    let url = BufReader::new(daemon.0.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    (folder, daemon, url)
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The lines of a trace, or of `--json`, that are of rails.
fn rails(text: &str) -> Vec<Value> {
    let all = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    all.filter(|line| line["event"] == "rail").collect()
}

/// Looks of a copy at 8 Mbit/s: those of the first end that both ends know, and what was carried.
fn is_seen(looks: &[Value], transport: &str, phase: &str) {
    assert!(looks.len() >= 20, "a look each 10 ms: {}", looks.len());
    let of_one = |look: &Value| look["transport"] == transport && look["at_s"].as_f64().is_some();
    assert!(looks.iter().all(of_one), "{looks:#?}");
    assert!(looks.iter().any(|look| look["phase"] == phase), "{phase}: {:#?}", looks.last());
    assert!(looks.iter().any(|look| look["delivered_bps"].as_f64().unwrap() > 1e6), "something arrived");
}

#[test]
fn a_copy_leaves_its_trace_also_one_that_a_signal_ends() {
    let (folder, _daemon, url) = open("whole");
    let at = folder.0.as_path();
    let read = |name: &str| std::fs::read_to_string(at.join(name)).unwrap();
    for (transport, phase) in [("udp", "steady"), ("tcp", "kernel")] {
        let options = ["cp", "--json", "--no-keep", "--rate=8Mbit", "--trace=t.json", "--transport", transport];
        let done = longhaul(at, "home").args(options).args(["large.bin", &format!("{url}a")]).output().unwrap();
        let said = words(&done);
        assert!(done.status.success(), "{said}");
        is_seen(&rails(&read("t.json")), transport, phase);
        let shown = rails(&said);
        assert!((1..=8).contains(&shown.len()), "about once a second: {}", shown.len());
        assert!(shown.iter().all(|look| look["transport"] == transport), "{said}");
    }
    // The end that receives knows what came.
    let options = ["cp", "--rate=8Mbit", "--trace=there.json", "--transport=udp"];
    let done = longhaul(at, "home").args(options).args([&format!("{url}a"), "back"]).output().unwrap();
    assert!(done.status.success(), "{}", words(&done));
    let looks = rails(&read("there.json"));
    is_seen(&looks, "udp", "receives");
    assert!(
        looks.iter().all(|look| look["rate_bps"].is_null() && look["lost_packets"].is_null()),
        "nothing is guessed"
    );
    let options = ["cp", "--no-keep", "--rate=2Mbit", "--trace=cut.html", "--transport=udp"];
    let mut cut = longhaul(at, "home").args(options).args(["large.bin", &format!("{url}b")]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(2_500));
    assert!(cut.try_wait().unwrap().is_none(), "it is under way");
    let status = Command::new("kill").args(["-TERM", &cut.id().to_string()]).status().unwrap();
    assert!(status.success());
    let done = cut.wait_with_output().unwrap();
    assert!(words(&done).contains("trace: cut.html"), "{}", words(&done));
    let page = read("cut.html");
    assert!(page.contains("Rate, Mbit/s") && page.ends_with("</html>\n"), "{page}");
    let left =
        std::fs::read_dir(at).unwrap().filter(|it| it.as_ref().unwrap().file_name().to_string_lossy().contains("part"));
    assert_eq!(left.count(), 0, "nothing half written is left");
}

#[test]
fn a_trace_that_cannot_be_is_refused_before_anything_is_moved() {
    let (folder, _daemon, url) = open("refused");
    let at = folder.0.as_path();
    let since = Instant::now();
    for (options, ends, code, cause) in [
        (["--trace=t.txt", "-q"], ["large.bin", &url], 2, "FILE.html is a page with plots"),
        (["--trace=t.html", "-q"], ["large.bin", "here.bin"], 2, "both ends are this host"),
        (["--trace=t.html", "-q"], [&url, "longhaul://h/x"], 2, "both ends are other hosts"),
        (["--trace=t.html", "--dry-run"], ["large.bin", &url], 2, "a dry run moves nothing"),
        (["--trace=no/such/t.html", "-q"], ["large.bin", &url], 2, "name a file in a folder that can be written to"),
    ] {
        let done = longhaul(at, "home").arg("cp").args(options).args(ends).output().unwrap();
        let said = words(&done);
        assert!(said.contains(cause), "{cause}: {said}");
        assert_eq!(done.status.code(), Some(code), "{said}");
    }
    assert_eq!(std::fs::read_dir(at.join("to")).unwrap().count(), 0, "nothing was moved");
    assert!(!at.join("here.bin").exists());
    assert!(since.elapsed() < Duration::from_secs(60));
}
