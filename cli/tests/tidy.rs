//! The house rules that a machine can check, over the whole source tree.
//!
//! For: keeping `docs/STYLE.md`, `SPECIFICATION.md`, `README.md` and the book true without anybody remembering to.
//! In and out: the files of the repository → one failure that lists every place.
//! Invariants: reads text, builds nothing; a rule here stands in `docs/STYLE.md` too.
//! Absent on purpose: taste, and whatever rustfmt, clippy and the compiler refuse already.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Longest file: beyond it a reader loses the thread (docs/STYLE.md, rule 2).
const LINES_MAX: usize = 1000;
/// Most methods of a trait: beyond them it serves more than one consumer (docs/STYLE.md, rule 7).
const TRAIT_METHODS_MAX: usize = 12;
/// Most entries of a folder of sources (docs/STYLE.md, rule 3).
const FOLDER_ENTRIES_MAX: usize = 15;
/// Folders that have more, each with the most it may have. A number here may only become smaller.
const FOLDERS_TOO_FULL: [(&str, usize); 6] = [
    ("node/src", 18),
    ("node/src/job", 16),
    ("proto/src/session", 20),
    ("tune/src", 17),
    ("proto/src", 24),
    ("proto/tests", 20),
];
/// Names that say nothing about what is inside (docs/STYLE.md, rule 6).
const ATTIC: [&str; 8] = ["util", "utils", "common", "helper", "helpers", "manager", "misc", "types"];
const CRATES: [&str; 10] = ["proto", "text", "sys", "topology", "tune", "engine", "lab", "node", "bench", "cli"];
/// Crates whose every line is checked by the compiler; `unsafe` lives in `sys` alone.
const SAFE: [&str; 9] = ["proto", "text", "topology", "tune", "engine", "lab", "node", "bench", "cli"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below a folder of the repository with one of these endings; build output is not ours.
fn files(folder: &str, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().join(folder)];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("target") && !path.ends_with("corpus") && !path.ends_with("artifacts") {
                    open.push(path);
                }
            } else if endings.iter().any(|ending| path.extension().is_some_and(|found| found == *ending)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn rust_files(crates: &[&str]) -> Vec<PathBuf> {
    crates.iter().flat_map(|name| files(name, &["rs"])).collect()
}

fn show(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// A line without its comment and without what stands in string literals: enough to look for words of code.
fn code(line: &str) -> String {
    let mut out = String::new();
    let mut in_string = false;
    let mut before = ' ';
    let mut chars = line.chars().peekable();
    while let Some(letter) = chars.next() {
        if letter == '"' && before != '\\' && before != '\'' {
            in_string = !in_string;
        } else if !in_string && letter == '/' && chars.peek() == Some(&'/') {
            break;
        } else if !in_string {
            out.push(letter);
        }
        before = if before == '\\' { ' ' } else { letter };
    }
    out
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
}

fn none(wrong: &[String], rule: &str) {
    assert!(wrong.is_empty(), "{rule}\n  {}", wrong.join("\n  "));
}

#[test]
fn every_file_opens_with_what_it_is_for() {
    let wrong: Vec<String> =
        rust_files(&CRATES).iter().filter(|path| !read(path).starts_with("//!")).map(|path| show(path)).collect();
    none(&wrong, "files open with a header comment (//!): what it is for, in and out, invariants, what is absent");
}

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    let mut wrong = Vec::new();
    for path in rust_files(&CRATES) {
        let count = read(&path).lines().count();
        if count > LINES_MAX {
            wrong.push(format!("{}: {count} lines", show(&path)));
        }
    }
    none(&wrong, "a file has at most 1000 lines");
}

#[test]
fn no_trait_serves_more_than_one_consumer() {
    let mut wrong = Vec::new();
    for path in rust_files(&CRATES) {
        let text = read(&path);
        let mut open: Option<(String, usize)> = None;
        for line in text.lines() {
            let bare = line.trim_start();
            let head = bare.strip_prefix("pub ").or_else(|| bare.strip_prefix("pub(crate) ")).unwrap_or(bare);
            match &mut open {
                None if head.starts_with("trait ") && line.trim_end().ends_with('{') => {
                    open = Some((words(&head["trait ".len()..]).next().unwrap_or_default().to_owned(), 0));
                }
                None => {}
                Some((name, methods)) if line == "}" => {
                    if *methods > TRAIT_METHODS_MAX {
                        wrong.push(format!("{}: {name} has {methods} methods", show(&path)));
                    }
                    open = None;
                }
                Some((_, methods)) => *methods += usize::from(line.starts_with("    fn ")),
            }
        }
    }
    none(&wrong, "a trait has at most 12 methods: split it by who calls them (docs/STYLE.md, rule 7)");
}

#[test]
fn no_folder_has_more_entries_than_a_reader_takes_in() {
    let mut counts: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
    for path in rust_files(&CRATES) {
        let mut entry = path.as_path();
        while let Some(folder) = entry.parent().filter(|it| it.starts_with(root()) && *it != root()) {
            counts.entry(folder.to_owned()).or_default().insert(entry.to_owned());
            entry = folder;
        }
    }
    let most = |folder: &str| {
        let listed = FOLDERS_TOO_FULL.iter().find(|(name, _)| *name == folder);
        listed.map_or(FOLDER_ENTRIES_MAX, |(_, most)| *most)
    };
    let is_over = |(folder, entries): &(&PathBuf, &BTreeSet<PathBuf>)| entries.len() > most(&show(folder));
    let tell = |(folder, entries): (&PathBuf, &BTreeSet<PathBuf>)| format!("{}: {}", show(folder), entries.len());
    let wrong: Vec<_> = counts.iter().filter(is_over).map(tell).collect();
    none(&wrong, "a folder has at most 15 entries, or as many as the list of tidy.rs says (docs/STYLE.md, rule 3)");
}

#[test]
fn no_attic_words_as_names_of_files() {
    let is_attic = |path: &Path| path.file_stem().is_some_and(|stem| ATTIC.iter().any(|word| stem == *word));
    let wrong: Vec<String> = rust_files(&CRATES)
        .iter()
        .filter(|path| is_attic(path) || path.parent().is_some_and(is_attic))
        .map(|path| show(path))
        .collect();
    none(&wrong, "a name says what is inside; these say nothing");
}

#[test]
fn unsafe_is_in_sys_alone() {
    let mut wrong = Vec::new();
    for path in rust_files(&SAFE) {
        for (number, line) in read(&path).lines().enumerate() {
            if words(&code(line)).any(|word| word == "unsafe") {
                wrong.push(format!("{}:{}", show(&path), number + 1));
            }
        }
    }
    none(&wrong, "unsafe only in sys");
}

#[test]
fn nothing_is_left_for_later() {
    // Spelt in two halves, so that this file may stand in the tree that it reads.
    let marks = [["to", "do!("], ["unimpl", "emented!("], ["#[ig", "nore"], ["db", "g!("], ["FIX", "ME"], ["XX", "X:"]]
        .map(|halves| halves.concat());
    let mut wrong = Vec::new();
    for path in rust_files(&CRATES) {
        for (number, line) in read(&path).lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark.as_str())) {
                wrong.push(format!("{}:{}: {}", show(&path), number + 1, line.trim()));
            }
        }
    }
    none(&wrong, "no stubs, no ignored tests, no notes to oneself");
}

#[test]
fn proto_knows_no_clock_no_files_and_no_threads() {
    let mut wrong = Vec::new();
    for path in files("proto/src", &["rs"]) {
        let text = read(&path);
        // Tests may use what the machine has; they stand at the end of a file.
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in text.lines().enumerate() {
            if code(line).contains("std::") {
                wrong.push(format!("{}:{}: {}", show(&path), number + 1, line.trim()));
            }
        }
    }
    none(&wrong, "proto decides; it has no I/O, clock or threads");
    assert!(read(&root().join("proto/src/lib.rs")).contains("#![no_std]"));
    assert!(read(&root().join("proto/src/lib.rs")).contains("#![forbid(unsafe_code)]"));
}

#[test]
fn node_knows_no_command_line_and_never_ends_the_process() {
    let words = ["println!", "process::exit", "clap", "indicatif", "args_os", "is_terminal"];
    let mut wrong = Vec::new();
    for path in files("node/src", &["rs"]).into_iter().chain([root().join("node/Cargo.toml")]) {
        for (number, line) in read(&path).lines().enumerate() {
            // Tests may say what they like.
            if words.iter().any(|word| code(line).contains(word)) && !show(&path).ends_with("tests.rs") {
                wrong.push(format!("{}:{}: {}", show(&path), number + 1, line.trim()));
            }
        }
    }
    none(&wrong, "node is a library: whoever links it reads arguments, draws, and ends the process");
}

#[test]
fn crates_use_what_the_table_of_architecture_says_and_nothing_else() {
    let page = read(&root().join("ARCHITECTURE.md"));
    let table = page.split("| crate | may use |").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("the table");
    let names = |cell: &str| -> BTreeSet<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let mut may = BTreeMap::new();
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = row.trim_matches('|').split('|');
        let (crates, used) = (cells.next().map(names).unwrap_or_default(), cells.next().unwrap_or_default());
        // What stands in brackets is said of tests.
        let used = names(used.split('(').next().unwrap_or_default());
        may.extend(crates.into_iter().map(|name| (name, used.clone())));
    }
    assert_eq!(
        may.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        CRATES.into_iter().collect(),
        "rows and crates"
    );
    let mut wrong = Vec::new();
    for (name, may) in &may {
        let manifest = read(&root().join(name).join("Cargo.toml"));
        let used = manifest.split("[dependencies]").nth(1).unwrap_or_default();
        let used = used.split("\n[").next().unwrap_or_default().lines();
        let used = used.filter_map(|line| line.split(['.', ' ', '=']).next()).filter(|used| CRATES.contains(used));
        let used: BTreeSet<String> = used.map(str::to_owned).collect();
        if used != *may {
            wrong.push(format!("{name} uses {used:?}, the table says {may:?}"));
        }
    }
    none(&wrong, "arrows between crates point downwards, as ARCHITECTURE.md says");
}

/// The modules of a crate: path from its root → file.
fn modules(name: &str) -> BTreeMap<Vec<String>, PathBuf> {
    let base = root().join(name).join("src");
    let module = |path: &PathBuf| {
        let inner = path.strip_prefix(&base).unwrap().with_extension("");
        let mut names: Vec<String> = inner.iter().map(|it| it.to_str().unwrap().to_owned()).collect();
        if matches!(names.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            names.pop();
        }
        names
    };
    files(&format!("{name}/src"), &["rs"]).into_iter().map(|path| (module(&path), path)).collect()
}

/// `a::{b, c::{d}}` → a::b, a::c::d.
fn spread(tree: &str) -> Vec<String> {
    let Some((head, rest)) = tree.split_once('{') else { return vec![tree.to_owned()] };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for letter in inner.chars() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        match letter {
            ',' if depth == 0 => parts.push(String::new()),
            _ => parts.last_mut().unwrap().push(letter),
        }
    }
    parts.iter().flat_map(|part| spread(part)).map(|part| format!("{head}{part}")).collect()
}

/// The modules that a file imports from, by its `use crate::` and `use super::` lines outside its tests.
fn imports(module: &[String], text: &str, known: &BTreeMap<Vec<String>, PathBuf>) -> BTreeSet<Vec<String>> {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let text: String = text.lines().map(|line| code(line) + "\n").collect();
    let mut out = BTreeSet::new();
    for (at, _) in text.match_indices("use ") {
        let line = text[..at].rsplit('\n').next().unwrap_or_default().trim();
        if !line.is_empty() && !line.starts_with("pub") {
            continue;
        }
        let tree: String = text[at + 4..].split(';').next().unwrap_or_default().split_whitespace().collect();
        for path in spread(&tree) {
            let mut names: Vec<String> = path.split("::").map(str::to_owned).collect();
            let mut full = match names[0].as_str() {
                "crate" => Vec::new(),
                "super" => module.to_vec(),
                _ => continue,
            };
            while names.first().is_some_and(|name| name == "crate" || name == "super") {
                if names.remove(0) == "super" {
                    full.pop();
                }
            }
            full.extend(names);
            while !known.contains_key(&full) && full.pop().is_some() {}
            out.insert(full);
        }
    }
    out.remove(module);
    out
}

/// Sets of files that all lead to each other.
fn circles(name: &str) -> Vec<Vec<PathBuf>> {
    let known = modules(name);
    let edges: BTreeMap<_, _> =
        known.iter().map(|(module, path)| (module, imports(module, &read(path), &known))).collect();
    let reach = |from: &Vec<String>| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            open.extend(edges.get(at).into_iter().flatten().filter(|next| seen.insert((*next).clone())));
        }
        seen
    };
    let reached: BTreeMap<_, _> = known.keys().map(|module| (module, reach(module))).collect();
    let mut done = BTreeSet::new();
    let mut out = Vec::new();
    for module in known.keys().filter(|module| reached[module].contains(*module)) {
        let one: Vec<_> =
            reached[module].iter().filter(|it| reached.get(it).is_some_and(|its| its.contains(module))).collect();
        if done.insert(one[0].clone()) {
            out.push(one.into_iter().map(|it| known[it].clone()).collect());
        }
    }
    out
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let paths = spread("crate::{a,b::{c,d}}").join(" ");
    assert_eq!(paths, "crate::a crate::b::c crate::b::d");
    let mut wrong = Vec::new();
    for name in CRATES {
        let show_one = |one: &Vec<PathBuf>| one.iter().map(|it| show(it)).collect::<Vec<_>>().join(" ");
        wrong.extend(circles(name).iter().map(|one| format!("{name}: {}", show_one(one))));
    }
    none(&wrong, "files of a crate import each other in one direction");
}

/// The ways of one chunk in `ARCHITECTURE.md`: what is said of each (its sums), and its rows of file and function.
fn ways(page: &str) -> Vec<(String, Vec<[String; 2]>)> {
    let part = page.split("## The path of one chunk").nth(1).and_then(|rest| rest.split("\n## ").next());
    let ways = part.expect("the section").split("Over a **").skip(1);
    let rows = |table: &str| {
        let cells = table.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
        cells
            .filter_map(|line| {
                let mut names =
                    line.split('|').skip(2).take(2).filter_map(|cell| quoted(cell).next().map(str::to_owned));
                Some([names.next()?, names.next()?])
            })
            .collect::<Vec<_>>()
    };
    ways.map(|way| {
        let (said, table) = way.split_once("\n\n").expect("a table follows");
        (said.to_owned(), rows(table.split("\n\n").next().unwrap_or_default()))
    })
    .collect()
}

#[test]
fn the_way_of_a_chunk_is_as_architecture_says_and_no_longer() {
    let ways = ways(&read(&root().join("ARCHITECTURE.md")));
    assert_eq!(ways.len(), 2, "a table for streams and one for datagrams");
    let mut wrong = Vec::new();
    for (said, rows) in &ways {
        assert!(rows.len() > 10, "the table was not understood: {rows:?}");
        let mut lines = std::collections::BTreeMap::new();
        for [file, function] in rows {
            let text = fs::read_to_string(root().join(file)).unwrap_or_default();
            let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
            if !text.contains(&format!("fn {function}(")) && !text.contains(&format!("fn {function}<")) {
                wrong.push(format!("there is no `{function}` in {file}"));
            }
            lines.insert(file, text.lines().count());
        }
        // "… at most 12 files and 4,850 lines …"
        let bounds: Vec<usize> = said
            .split("at most ")
            .nth(1)
            .unwrap_or_default()
            .split(' ')
            .filter_map(|it| it.replace(',', "").parse().ok())
            .collect();
        let sums = [lines.len(), lines.values().sum()];
        if bounds.len() != 2 || sums[0] > bounds[0] || sums[1] > bounds[1] {
            wrong.push(format!(
                "{}: {sums:?} files and lines, and the page allows {bounds:?}",
                said.lines().next().unwrap_or_default()
            ));
        }
    }
    none(
        &wrong,
        "the tables of ARCHITECTURE.md, \"The path of one chunk\", name what is there, and the sums hold (`make path`)",
    );
}

#[test]
fn steps_are_called_by_the_loop_alone() {
    let mut wrong = Vec::new();
    for path in files("engine/src", &["rs"]) {
        let is_loop = path.starts_with(root().join("engine/src/worker"));
        for (number, line) in read(&path).lines().enumerate() {
            let line = code(line);
            if !is_loop && line.trim_start().starts_with("impl") && words(&line).any(|word| word == "Worker") {
                wrong.push(format!("{}:{}: {}", show(&path), number + 1, line.trim()));
            }
        }
    }
    none(
        &wrong,
        "the worker's own functions stand in engine/src/worker; steps elsewhere take a rail and a Cx, and return what is next",
    );
}

#[test]
fn one_word_for_one_thing_in_what_users_read() {
    // The lexicon of docs/STYLE.md: the words on the left are taken for other things or mean nothing here.
    let foreign = [
        ("arena", "pool"),
        ("mbuf", "buf"),
        ("reactor", "worker"),
        ("lcore", "worker"),
        ("backend", "source or sink"),
        ("checkpoint", "journal"),
    ];
    let mut wrong = Vec::new();
    for path in
        ["README.md", "ARCHITECTURE.md", "SPECIFICATION.md", "CONTRIBUTING.md", "SECURITY.md", "docs/protocol.md"]
    {
        for (number, line) in read(&root().join(path)).lines().enumerate() {
            for (word, ours) in foreign {
                if words(&line.to_lowercase()).any(|found| found == word) {
                    wrong.push(format!("{path}:{}: `{word}`: we say {ours}", number + 1));
                }
            }
        }
    }
    none(&wrong, "the lexicon of docs/STYLE.md");
}

/// What stands between backticks on a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[test]
fn every_promise_names_what_shows_it() {
    let page = read(&root().join("SPECIFICATION.md"));
    let makefile = read(&root().join("Makefile"));
    let tests: Vec<(PathBuf, String)> =
        rust_files(&CRATES).into_iter().map(|path| (path.clone(), read(&path))).collect();
    let mut wrong = Vec::new();
    let (mut promises, mut before) = (BTreeSet::new(), 0);
    for line in page.lines() {
        if line.starts_with("## ") {
            before = 0;
        }
        // Rows of the tables: | 7 | promise | shown by |
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if cells.len() < 5 || cells[1].parse::<u32>().is_err() {
            continue;
        }
        // A number names a promise for good: in order within its section, and no two have the same; some may be left out.
        let number: u32 = cells[1].parse().unwrap();
        assert!(number > before && promises.insert(number), "promises are numbered in order, each once: {line}");
        before = number;
        let proofs: Vec<&str> = quoted(cells[cells.len() - 2]).collect();
        if proofs.is_empty() {
            wrong.push(format!("promise {}: nothing shows it", cells[1]));
        }
        for proof in proofs {
            let known = if let Some(target) = proof.strip_prefix("make ") {
                let target = target.split(' ').next().unwrap_or_default();
                makefile.lines().any(|line| line.starts_with(&format!("{target}:")))
            } else if let Some((path, name)) = proof.split_once("::") {
                tests.iter().any(|(file, text)| show(file) == path && text.contains(&format!("fn {name}(")))
            } else {
                root().join(proof).exists()
            };
            if !known {
                wrong.push(format!("promise {}: there is no `{proof}`", cells[1]));
            }
        }
    }
    assert!(promises.len() > 20, "the table of promises was not understood: {} found", promises.len());
    none(&wrong, "every promise of SPECIFICATION.md names a test, a script or a recipe that is there");
}

#[test]
fn the_book_lists_every_exit_code() {
    let page = read(&root().join("docs/book/src/reference/exit-codes.md"));
    let source = read(&root().join("text/src/exit.rs"));
    let list = source.split("pub enum Exit {").nth(1).unwrap().split('}').next().unwrap();
    let mut wrong = Vec::new();
    for line in list.lines() {
        if let Some((name, number)) = line.trim().trim_end_matches(',').split_once(" = ")
            && !page.lines().any(|line| line.starts_with(&format!("| {number} |")))
        {
            wrong.push(format!("{number} ({name})"));
        }
    }
    none(&wrong, "exit codes that the book does not explain");
}

#[test]
fn the_readme_is_short_enough_to_be_read() {
    let page = read(&root().join("README.md"));
    let mut wrong = Vec::new();
    if page.lines().count() > 150 {
        wrong.push(format!("{} lines; the book has room", page.lines().count()));
    }
    for (number, line) in page.lines().enumerate() {
        if line.starts_with('|') && line.chars().count() > 160 {
            wrong.push(format!("{}: a row of {} characters", number + 1, line.chars().count()));
        }
    }
    for named in ["make build", "make demo", "make test", "bench/results/", "docs/book/", ".svg"] {
        if !page.contains(named) {
            wrong.push(format!("it does not name {named}"));
        }
    }
    none(&wrong, "README.md: at most 150 lines, no row of a table over 160 characters");
}

/// The Markdown files of the repository, but for what a build or a benchmark made.
fn pages() -> Vec<PathBuf> {
    let mut found = files("docs", &["md"]);
    for folder in ["bench", "lab", "fuzz", "dist"] {
        found.extend(files(folder, &["md"]));
    }
    let here = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    found.extend(here.filter(|path| path.extension().is_some_and(|ending| ending == "md")));
    found
}

/// Where the links of a Markdown file lead, without what is in code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for target in plain.split("](").skip(1) {
            found.extend(target.split(')').next().map(str::to_owned));
        }
    }
    found
}

#[test]
fn every_relative_link_leads_somewhere() {
    let mut wrong = Vec::new();
    for path in pages() {
        for link in links(&read(&path)) {
            let place = link.split('#').next().unwrap_or_default();
            let is_elsewhere = place.is_empty() || place.contains("://") || place.starts_with("mailto:");
            if !is_elsewhere && !path.parent().unwrap().join(place).exists() {
                wrong.push(format!("{}: {link}", show(&path)));
            }
        }
    }
    none(&wrong, "links of Markdown files that lead nowhere");
}

#[test]
fn every_page_of_the_book_is_in_its_contents() {
    let book = root().join("docs/book/src");
    let contents: BTreeSet<PathBuf> =
        links(&read(&book.join("SUMMARY.md"))).into_iter().map(|link| book.join(link)).collect();
    let pages = files("docs/book/src", &["md"]).into_iter().filter(|path| !path.ends_with("SUMMARY.md"));
    let wrong: Vec<String> = pages.filter(|page| !contents.contains(page)).map(|page| show(&page)).collect();
    none(&wrong, "pages of the book that docs/book/src/SUMMARY.md does not name");
}

/// House words that readers had to learn, and the field's words that stand in their place. Help texts are read where they are
/// printed: in the reference of the book.
const HOUSE_WORDS: [(&str, &str); 29] = [
    ("rung", "durability level"),
    ("rungs", "durability levels"),
    ("memory node", "NUMA node"),
    ("memory nodes", "NUMA nodes"),
    ("card", "NIC"),
    ("cards", "NICs"),
    ("swallows", "path MTU black hole"),
    ("swallow", "path MTU black hole"),
    ("swallowed", "path MTU black hole"),
    ("storage engine", "I/O mode"),
    ("storage engines", "I/O modes"),
    ("told", "reported"),
    ("claim against", "share beside other flows"),
    ("haze", "non-congestive delay"),
    ("that turn", "rotational"),
    ("heats", "trials"),
    ("law", "congestion controller"),
    ("laws", "congestion controllers"),
    ("keeper", "job driver"),
    ("keepers", "job drivers"),
    ("rival", "competitor"),
    ("rivals", "competitors"),
    ("hunt", "bandwidth probe"),
    ("leaps", "ramps up"),
    ("asker", "client"),
    ("askers", "clients"),
    ("at the door", "unauthenticated"),
    ("job board", "job registry"),
    ("wishes", "what is asked for"),
];
/// Names of files that were this house's own, and the field's in their place.
const HOUSE_FILES: [(&str, &str); 17] = [
    ("keeper", "driver"),
    ("swallow", "black_hole"),
    ("truth", "path_shares"),
    ("renew", "replan"),
    ("asked", "runtime_changes"),
    ("again", "reconnect"),
    ("homes", "numa"),
    ("halt", "cancel"),
    ("board", "registry"),
    ("door", "demultiplexer"),
    ("shake", "handshake"),
    ("kept", "retransmit"),
    ("far", "ssh"),
    ("winners", "cached"),
    ("remembered", "cached"),
    ("law", "controller"),
    ("haze", "non_congestive"),
];
/// The same for types.
const HOUSE_TYPES: [(&str, &str); 11] = [
    ("Keeper", "JobDriver"),
    ("Law", "ControllerKind"),
    ("Halt", "Cancel"),
    ("Homes", "NumaPlacement"),
    ("Board", "Registry"),
    ("Posted", "Registration"),
    ("Wishes", "Requested"),
    ("Winners", "the placement that was found"),
    ("Remembered", "CachedLine"),
    ("Heat", "Trial"),
    ("Engines", "IoModes"),
];

#[test]
fn the_words_of_the_field_stand_in_what_users_read() {
    // The lexicon of docs/STYLE.md names the old words.
    let read_by_users = pages()
        .into_iter()
        .filter(|path| !path.ends_with("docs/STYLE.md") && !path.starts_with(root().join("bench/results")));
    let mut wrong = Vec::new();
    for path in read_by_users {
        let mut is_code = false;
        for (number, line) in read(&path).lines().enumerate() {
            is_code ^= line.trim_start().starts_with("```");
            // Names of files, options and formats are code; help texts are prose, in whatever they stand.
            if is_code && !path.starts_with(root().join("docs/book/src/reference")) {
                continue;
            }
            let line = line.split('`').step_by(2).collect::<Vec<_>>().join(" ").to_lowercase();
            let line = format!(" {} ", words(&line).collect::<Vec<_>>().join(" "));
            for (word, field) in HOUSE_WORDS {
                if line.contains(&format!(" {word} ")) {
                    wrong.push(format!("{}:{}: `{word}`: the field says {field}", show(&path), number + 1));
                }
            }
        }
    }
    none(&wrong, "words of this house in what users read");
}

/// Words that say nothing by themselves: a public item whose whole documentation is up to three of them is not documented.
const EMPTY_WORDS: &str = "which what where who why how when whose it its is are was of the a an and or in on by to from for with as so same \
    all them their theirs they other others one ones this that these those above below likewise see module both each any kind number name ours \
    our own us here there thing things does do not none nothing";

#[test]
fn public_items_are_documented_by_more_than_words_that_say_nothing() {
    let mut wrong = Vec::new();
    for name in CRATES {
        for path in files(&format!("{name}/src"), &["rs"]) {
            let text = read(&path);
            let mut doc = String::new();
            for (number, line) in text.lines().map(str::trim).enumerate() {
                if let Some(more) = line.strip_prefix("///") {
                    doc += more;
                } else if !line.starts_with("#[") {
                    let said: Vec<_> = words(&doc).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
                    let is_empty = |word: &String| EMPTY_WORDS.split_whitespace().any(|empty| empty == word);
                    if line.starts_with("pub ") && (1..=3).contains(&said.len()) && said.iter().all(is_empty) {
                        wrong.push(format!("{}:{}: {line}", show(&path), number + 1));
                    }
                    doc.clear();
                }
            }
        }
    }
    none(&wrong, "a public item is documented by a sentence (docs/STYLE.md)");
}

#[test]
fn files_and_types_have_the_names_of_the_field() {
    let mut wrong = Vec::new();
    for path in rust_files(&CRATES) {
        let is_named = |name: &str| path.file_stem().is_some_and(|stem| stem == name);
        for (_, field) in HOUSE_FILES.iter().filter(|(name, _)| is_named(name)) {
            wrong.push(format!("{}: the field says {field}", show(&path)));
        }
        for (number, line) in read(&path).lines().enumerate() {
            let line = code(line);
            let defined = words(&line).skip_while(|word| !matches!(*word, "struct" | "enum" | "trait" | "type")).nth(1);
            for (name, field) in HOUSE_TYPES.iter().filter(|(name, _)| defined == Some(*name)) {
                wrong.push(format!("{}:{}: {name}: the field says {field}", show(&path), number + 1));
            }
        }
    }
    none(&wrong, "names of this house for files and types");
}

#[test]
fn results_are_kept_as_small_summaries_with_a_page_each() {
    const BYTES_MAX: usize = 20_000;
    let index = read(&root().join("bench/results/README.md"));
    let mut wrong = Vec::new();
    for entry in fs::read_dir(root().join("bench/results")).unwrap() {
        let path = entry.unwrap().path();
        let (name, ending) = (path.file_stem().unwrap().to_string_lossy(), path.extension().unwrap_or_default());
        if !["json", "md"].iter().any(|kept| ending == *kept) {
            wrong.push(format!("{}: full results belong to target/bench", show(&path)));
        }
        if read(&path).len() > BYTES_MAX {
            wrong.push(format!(
                "{}: more than {BYTES_MAX} bytes: make its summary with longhaul-race summary",
                show(&path)
            ));
        }
        if ending == "json" && (!path.with_extension("md").exists() || !index.contains(&format!("({name}.md)"))) {
            wrong.push(format!("{}: no page, or not in README.md beside it", show(&path)));
        }
    }
    none(&wrong, "bench/results keeps a summary of at most 20 KB and a page per benchmark");
}

#[test]
fn every_script_says_what_it_is_for() {
    let mut scripts = files("lab", &["sh", "py"]);
    scripts.extend(files("docs", &["py"]));
    scripts.extend(files("dist", &["sh", "py"]));
    let mut wrong = Vec::new();
    for path in scripts {
        let text = read(&path);
        let second = text.lines().nth(1).unwrap_or_default();
        // A module of Python that nobody starts has no line for the kernel.
        let first = text.lines().next().unwrap_or_default();
        if !second.starts_with("# ") && !second.starts_with("\"\"\"") && !first.starts_with("\"\"\"") {
            wrong.push(show(&path));
        }
    }
    none(&wrong, "scripts say in their second line what they are for");
}

#[test]
fn what_checks_call_is_found_or_named_before_they_run() {
    // Programs that a check looks for with `command -v` may be missing: `make test` must know where they come from.
    let needs = read(&root().join("lab/needs.sh"));
    let listed = |program: &str| needs.lines().any(|line| line.starts_with(&format!("{program}:")));
    // Of the same package as one that is listed, or what users bring.
    let known = ["btrfs", "nsenter", "unshare", "prlimit", "scp", "longhaul"];
    let mut wrong = Vec::new();
    for path in files("lab/e2e", &["sh"]).into_iter().chain([root().join("lab/hosts.sh"), root().join("lab/demo.sh")]) {
        for (number, line) in read(&path).lines().enumerate() {
            for looked_for in line.split("command -v ").skip(1) {
                let programs = looked_for.split(['>', ';', '|', '&', ')', '\'', '"']).next().unwrap_or_default();
                for program in programs.split_whitespace() {
                    if !listed(program) && !known.contains(&program) {
                        wrong.push(format!("{}:{}: {program}", show(&path), number + 1));
                    }
                }
            }
        }
    }
    none(&wrong, "programs that checks look for and lab/needs.sh does not list");
}

#[test]
fn every_mutation_still_finds_its_place_once() {
    let list = read(&root().join("lab/mutants/list"));
    let mut wrong = Vec::new();
    let mut count = 0;
    for block in list.split("\n== ").skip(1) {
        count += 1;
        let head = block.lines().next().unwrap_or_default();
        let lines =
            |mark: &str| -> Vec<&str> { block.lines().skip(1).filter_map(|line| line.strip_prefix(mark)).collect() };
        let (files, old, new, by) = (lines("in "), lines("-").join("\n"), lines("+").join("\n"), lines("by "));
        let [file] = files[..] else {
            wrong.push(format!("{head}: in which file?"));
            continue;
        };
        let found = fs::read_to_string(root().join(file)).map_or(0, |text| text.matches(&old).count());
        if old.is_empty() || old == new || found != 1 {
            wrong.push(format!("{head}: its old text is {found} times in {file}"));
        }
        if by.is_empty()
            || !head.split(':').next().is_some_and(|numbers| numbers.split(' ').all(|it| it.parse::<u32>().is_ok()))
        {
            wrong.push(format!("{head}: which promise, and who must notice?"));
        }
        for by in by {
            // A test by its name, or the beginning of one, or all of a file; an end-to-end check by its file's.
            let name = by.split(' ').next_back().unwrap_or_default();
            let known = match by.strip_prefix("e2e ") {
                Some(check) => {
                    let is_it = |path: &PathBuf| path.file_stem().is_some_and(|stem| stem == check);
                    root().join(format!("lab/e2e/{check}.sh")).exists()
                        || rust_files(&["lab"]).iter().any(|path| {
                            let below = path.strip_prefix(root().join("lab/tests/reports"));
                            below.is_ok_and(|below| below.ancestors().any(|it| is_it(&it.to_owned())))
                        })
                }
                None => rust_files(&CRATES).iter().any(|path| {
                    path.file_stem().is_some_and(|stem| stem == name) || read(path).contains(&format!("fn {name}"))
                }),
            };
            if !known {
                wrong.push(format!("{head}: there is no `{by}`"));
            }
        }
    }
    // Each promise has one, or a reason why it has none; not both, and neither is of a promise that is not there.
    let numbers = |start: &str, line: &str| -> Vec<u32> {
        let said = line.strip_prefix(start).and_then(|rest| rest.split(':').next()).unwrap_or_default();
        said.split(' ').filter_map(|it| it.parse().ok()).collect()
    };
    let of = |start: &str| -> BTreeSet<u32> { list.lines().flat_map(|line| numbers(start, line)).collect() };
    let (broken, excused) = (of("== "), of("none "));
    let page = read(&root().join("SPECIFICATION.md"));
    let promises: BTreeSet<u32> =
        page.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok()).collect();
    let told = |these: BTreeSet<u32>, what: &str| {
        these.into_iter().map(|it| format!("promise {it} {what}")).collect::<Vec<_>>()
    };
    let named: BTreeSet<u32> = &broken | &excused;
    wrong.extend(told(&promises - &named, "has neither a mutation nor a reason (`none N: ...`) why it has none"));
    wrong.extend(told(&broken & &excused, "has a mutation and a reason why it has none"));
    wrong.extend(told(&named - &promises, "is not in SPECIFICATION.md"));
    assert!(count >= 9, "the list of mutations was not understood: {count} found");
    none(&wrong, "mutations of lab/mutants/list that cannot be made any more: bring them up to date with the code");
}

/// Looks at the clock in the code of a job (transports that are tried before the job, sockets of the job registry); see below.
const JOB_CLOCKS_MAX: usize = 13;
/// `impl` blocks of the job driver outside the file that owns its loop; see below.
const DRIVER_BLOCKS_MAX: usize = 13;

#[test]
fn the_job_driver_decides_nothing_with_a_clock_of_its_own() {
    // What it decides with time is in `proto/src/session`, which is told the moment. Both numbers may only fall.
    let (mut clocks, mut blocks) = (Vec::new(), Vec::new());
    for path in rust_files(&CRATES).into_iter().filter(|path| show(path).contains("/src/job/")) {
        let text = read(&path);
        let owns_loop = show(&path).ends_with("/job/driver.rs");
        for (number, line) in text.split("#[cfg(test)]").next().unwrap_or_default().lines().enumerate() {
            let place = || format!("{}:{}: {}", show(&path), number + 1, line.trim());
            clocks.extend(code(line).matches("Instant::now()").map(|_| place()));
            let is_block = line.starts_with("impl") && words(line).any(|word| word == "JobDriver");
            blocks.extend((is_block && !owns_loop).then(place));
        }
    }
    assert!(!blocks.is_empty(), "the job driver was not found");
    let few = |places: &[String], most: usize| if places.len() > most { places.to_vec() } else { Vec::new() };
    none(&few(&clocks, JOB_CLOCKS_MAX), "a job looks at the clock at more places than before");
    none(&few(&blocks, DRIVER_BLOCKS_MAX), "the job driver is spread over more files than before");
}
