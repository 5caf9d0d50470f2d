//! All pages that this workspace writes, measured without a browser, and looked at by one where there is one.
//!
//! For: `cargo test`, and `make pages`, which keeps pages and pictures. In and out: made-up machines and results → pages → what is wrong with them.
//! Invariants: each page is tried with the longest names and the widest tables that its parts can have; a machine without a browser says `skip`.
//! Absent on purpose: the pages of bench/race, whose program has its own test with the same two files; the book, which has mdbook's style.

use topology::facts;
use topology::tree::Tree;
use tune::{findings, page, rules};

mod browser; // a browser's findings
mod check; // what can be told without one
mod machine; // a host of four NUMA nodes
mod trace; // what congestion control did

/// Pages by name.
type Pages = Vec<(String, String)>;

/// `host show` of a record.
fn host(record: &str) -> String {
    let tree = Tree::parse(record).expect("a record");
    let facts = facts::read(&tree);
    let all = rules::plan(&tree, &facts, |_| true);
    let found = findings::judge(&facts, &all);
    let plan: Vec<_> = all.into_iter().filter(|it| rules::named(it.rule).is_some_and(|rule| !rule.by_name)).collect();
    page::page(&facts, &found, &plan, Some("storage-17.example.org"), 1_764_084_000)
}

fn pages() -> Pages {
    let named = |name: &str, page: String| (name.to_owned(), page);
    vec![
        named("host-two-sockets", host(include_str!("../../topology/records/two-sockets.txt"))),
        named("host-container", host(include_str!("../../topology/records/container.txt"))),
        named("host-four-nodes", host(&machine::four_nodes())),
        named("host-nothing", host("")),
        named("bench-disk", crate::disk::page::tests::sample()),
        named("bench-disk-beside", crate::disk::page::tests::sample_beside()),
        named("bench-volumes", crate::path::page::tests::sample(16)),
        named("bench-wan", crate::wan::page::tests::sample()),
        named("bench-ftp", crate::ftp::page::tests::sample()),
        named("bench-placement", crate::placement::page::tests::sample()),
        named("trace-packets", trace::packets(10)),
        named("trace-hours", trace::packets(60_000)),
        named("trace-streams", trace::streams()),
    ]
}

#[test]
fn every_page_is_whole_needs_nothing_and_its_drawings_fit() {
    let wrong: Vec<String> = pages()
        .iter()
        .flat_map(|(name, page)| check::wrong(page).into_iter().map(move |what| format!("{name}: {what}")))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_browser_shows_every_page_on_a_telephone_and_a_screen_light_and_dark() {
    browser::look(&pages());
}

#[test]
fn a_browser_sees_what_is_wrong_with_a_page() {
    let page = |name: &str, body: &str, style: &str| {
        (name.to_owned(), text::page::open("longhaul t", "2026-11-25", style) + body + text::page::CLOSE)
    };
    let bad = [
        page("good", "<p>good</p>", ""),
        page("wide", "<p style=\"width:900px\">x</p>", ""),
        page("clipped", "<p style=\"width:4em;overflow:hidden;white-space:nowrap\">letters without room</p>", ""),
        page("over", "<p>first</p><p style=\"margin-top:-2em\">second</p>", ""),
        page("small", "<p style=\"font-size:8px\">x</p>", ""),
        page("pale", "<p style=\"color:#888\">x</p>", ""),
        page("onelight", "<p>x</p>", "@media(prefers-color-scheme:dark){body{background:#fff}}"),
        page("loud", "<p>x</p><script>console.error('loud')</script>", ""),
    ];
    let Some((wrong, _)) = browser::seen(&bad) else { return };
    for (name, what) in [
        ("wide at 380 px", "px wide"),
        ("clipped at 1280 px", "is clipped"),
        ("over at 380 px, light", "overlap"),
        ("small at 380 px", "letters of 8.0 px"),
        ("pale at 1280 px, light", "contrast of 3.5"),
        ("onelight at 380 px, dark", "contrast of"),
        ("on the console", "loud"),
    ] {
        assert!(wrong.iter().any(|it| it.starts_with(name) && it.contains(what)), "{name}, {what}: {wrong:#?}");
    }
    let innocent = ["good", "wide at 1280 px", "onelight at 380 px, light"];
    assert!(!wrong.iter().any(|it| innocent.iter().any(|name| it.starts_with(name))), "{wrong:#?}");
}
