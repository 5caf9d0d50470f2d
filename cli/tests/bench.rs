//! `longhaul bench`, as its users meet it: the real binary, moments instead of seconds.
//!
//! For: that every line is there, that both ends of `bench net` find each other, and that nothing is left behind.
//! Absent on purpose: judging speed (bench/ does, on a quiet machine).

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn bench(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_longhaul")).arg("bench").args(words).output().unwrap()
}

/// The one JSON object of a bench that must work.
fn json(words: &[&str]) -> serde_json::Value {
    let output = bench(words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap()
}

fn text(words: &[&str]) -> String {
    let output = bench(words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Every rate of every line is one.
fn rates(value: &serde_json::Value, lines: &str, rate: &str) -> usize {
    let lines = value[lines].as_array().unwrap();
    for line in lines {
        assert!(line[rate].as_f64().unwrap() > 0.0, "{line}");
    }
    lines.len()
}

#[test]
fn crypto_measures_ciphers_digests_and_frames() {
    let value = json(&["crypto", "--seconds", "1ms", "--json"]);
    assert_eq!((value["event"].as_str(), value["bench"].as_str()), (Some("bench"), Some("crypto")));
    assert_eq!(rates(&value, "lines", "hot_gbs"), 18);
    rates(&value, "lines", "streaming_gbs");
    let text = text(&["crypto", "--seconds", "1ms"]);
    for what in ["AES-128-GCM seal", "ChaCha20-Poly1305 open", "BLAKE3", "CRC-64", "memcpy", "frame in: sealed, BLAKE3"]
    {
        assert!(text.contains(what), "{what} is missing: {text}");
    }
}

#[test]
fn net_measures_alone_over_loopback_with_both_drivers() {
    let value =
        json(&["net", "--seconds", "10ms", "--driver", "both", "--block", "64KiB", "--block", "1MiB", "--json"]);
    // Two blocks, two rings, two rails of five layers; UDP in nine ways, of which old kernels lack the last two; three datagram rails.
    assert!([14 + 7 + 3, 14 + 9 + 3].contains(&rates(&value, "lines", "gbps")), "{value}");
    // Of both TCP rails, and of the datagram rail at the length of its packets.
    assert_eq!(rates(&value, "cipher", "allowed_gbps"), 3);
    assert_ne!(value["lines"][0]["tcp"]["congestion"].as_str().unwrap(), "");
}

#[test]
fn net_measures_between_two_processes() {
    let mut listener = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["bench", "net", "--listen", "127.0.0.1:0", "--once"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(listener.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let addr = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}"));
    let text = text(&["net", "--server", addr, "--seconds", "10ms", "--streams", "2", "--sealed", "--block", "1MiB"]);
    for what in ["2 streams", "sealed, BLAKE3 (default)", "ceiling", "the cipher alone", "TCP"] {
        assert!(text.contains(what), "{what} is missing: {text}");
    }
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(listener.wait().unwrap().success(), "{rest}");
}

#[test]
fn net_measures_udp_by_each_way() {
    let text = text(&["net", "--seconds", "50ms", "--udp", "--streams", "2", "--packet", "1300"]);
    for what in
        ["UDP 1300: send -> recv", "sendmmsg", "UDP 1300: GSO -> GRO", "heads apart", "times a call per packet", "lost"]
    {
        assert!(text.contains(what), "{what} is missing: {text}");
    }
    assert!(!text.contains("bare loop") && !text.contains("rail"), "{text}");
}

#[test]
fn net_says_who_does_not_answer() {
    // A port that nobody has, held at another address so that nobody is given it meanwhile.
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = format!("127.77.0.1:{}", held.local_addr().unwrap().port());
    let output = bench(&["net", "--server", &addr]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(&addr) && said.contains("--listen"), "{said}");
}

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn disk_measures_and_leaves_nothing_behind() {
    let folder = Folder::new("disk");
    let path = folder.0.to_str().unwrap();
    let value = json(&["disk", path, "--size", "16MiB", "--seconds", "1ms", "--rounds", "1", "--json"]);
    // At least the lines through the page cache, by every sweep.
    assert!(rates(&value, "cells", "gbs") >= 2 * (7 + 6 + 4 + 4), "{value}");
    assert_eq!(value["courses"].as_array().unwrap().len(), 2, "{value}");
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
    let (html, csv) = (folder.0.join("a.html"), folder.0.join("a.csv"));
    let (html_name, csv_name) = (html.to_str().unwrap(), csv.to_str().unwrap());
    let wish = ["--sweep", "io-mode,block", "--html", html_name, "--csv", csv_name];
    let said = text(&[&["disk", path, "--size", "16MiB", "--seconds", "1ms", "--rounds", "1"], &wish[..]].concat());
    assert!(
        said.contains("read, by io-mode") && said.contains("write, by block") && !said.contains("by depth"),
        "{said}"
    );
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("<svg") && !page.contains("<script") && !page.contains("http"), "it needs nothing else");
    assert!(std::fs::read_to_string(csv).unwrap().lines().count() > 14);
}

#[test]
fn disk_measures_file_systems_side_by_side() {
    let folder = Folder::new("beside");
    let [one, two] = ["one", "two"].map(|name| {
        let path = folder.0.join(name);
        std::fs::create_dir(&path).unwrap();
        path.to_str().unwrap().to_owned()
    });
    let (html, csv) = (folder.0.join("a.html"), folder.0.join("a.csv"));
    let [html_name, csv_name] = [&html, &csv].map(|path| path.to_str().unwrap());
    let wish = ["disk", &one, &two, "--size", "16MiB", "--seconds", "1ms", "--rounds", "1"];
    let value = json(&[&wish[..], &["--json", "--html", html_name, "--csv", csv_name]].concat());
    let places = value["places"].as_array().unwrap();
    assert_eq!(places.len(), 2, "{value}");
    // Through the page cache, over threads and over files, to read and to write.
    let figures: usize = places.iter().map(|place| rates(place, "cells", "gbs")).sum();
    assert!(figures >= 2 * 2 * (4 + 4), "{value}");
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.matches("<polyline").count() >= 2 * 2 * 2, "a line for each folder in each plot");
    assert!(!page.contains("<script") && !page.contains("http"), "it needs nothing else");
    assert_eq!(std::fs::read_to_string(csv).unwrap().lines().count(), figures + 1);
    let said = text(&[&wish[..], &["--sweep", "threads"]].concat());
    assert!(said.contains("read, by threads") && said.contains("write, by threads"), "{said}");
    assert!(said.contains(&one) && said.contains(&two) && !said.contains("by files"), "{said}");
    assert_eq!([&one, &two].map(|path| std::fs::read_dir(path).unwrap().count()), [0, 0]);
}

#[test]
fn disk_refuses_what_has_no_room_and_writes_nothing() {
    let folder = Folder::new("room");
    let output = bench(&["disk", folder.0.to_str().unwrap(), "--size", "8000TiB"]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("too little"), "{said}");
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
}

#[test]
fn ftp_sets_rows_side_by_side_says_what_cannot_run_and_its_parts_sum_up() {
    let lab = Command::new(env!("CARGO_BIN_EXE_longhaul")).args(["lab", "run", "-q", "--", "true"]).output().unwrap();
    if !lab.status.success() {
        // Hosts of one's own need namespaces, which not every machine allows.
        return;
    }
    let folder = Folder::new("ftp");
    let out = folder.0.join("ftp");
    let words = "ftp --figure lan,breakdown --sizes 64KiB --delays 0,1ms --rounds 1 --space 2MiB --json";
    let words: Vec<&str> =
        words.split(' ').chain(["--peers", "ours (,longhaul://,LHDATA", "--out", out.to_str().unwrap()]).collect();
    let value = json(&words);
    let cells = value["ftp"].as_array().unwrap();
    let lanes: Vec<_> = cells.iter().flat_map(|cell| cell["lanes"].as_array().unwrap()).collect();
    let [lan, broken] = ["lan", "breakdown"].map(|name| cells.iter().filter(|cell| cell["figure"] == name).count());
    assert!(lan == 1 && broken >= 4, "{value}");
    for lane in &lanes {
        assert!(lane["seconds"]["median"].as_f64().is_some_and(|it| it > 0.0), "{lane}");
        assert!(lane["command"].as_str().is_some_and(|it| !it.contains("/dev/shm")), "no path of this machine: {lane}");
    }
    let of_parts =
        lanes.iter().flat_map(|lane| lane["turns"].as_array().unwrap()).filter(|turn| !turn["parts"].is_null());
    for turn in of_parts {
        let sum: f64 =
            ["connection", "data", "waiting", "end"].iter().map(|key| turn["parts"][key].as_f64().unwrap()).sum();
        assert!((sum / turn["seconds"].as_f64().unwrap() - 1.0).abs() < 0.02, "parts sum up to the time: {turn}");
    }
    // What this build has not is named; what it has runs.
    let named = |name: &str| {
        let said = |list: &serde_json::Value| {
            list.as_array().unwrap().iter().any(|it| it["name"].as_str().unwrap().starts_with(name))
        };
        said(&value["absent"]) || said(&cells[0]["lanes"])
    };
    assert!(["LHDATA tcp", "LHDATA udp", "ours, ours", "longhaul:// tcp"].iter().all(|name| named(name)), "{value}");
    let page = std::fs::read_to_string(out.with_extension("html")).unwrap();
    assert!(page.contains("Where the time goes") && !page.contains("<script"), "{page}");
    let left = std::fs::read_dir("/dev/shm")
        .unwrap()
        .flatten()
        .filter(|it| it.file_name().to_string_lossy().starts_with("longhaul-bench-"));
    // Another run of the bench may be here beside this one, as another process.
    assert!(left.count() <= 1, "nothing is left behind");
}
