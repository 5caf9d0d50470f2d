//! What all HTML pages have in common.
//!
//! For: `host show --html` and the pages of the benchmarks.
//! In and out: a title, a date and what a page needs beyond the common style → the beginning of a page; text of a machine → text that is no markup.
//! Invariants: one file with everything in it: no script, no outside file; light and dark screens by the reader's choice; nothing is wider than a
//! screen of 380 px but what stands in a box that scrolls; text has at least 4.5 times the contrast of its ground (WCAG 2.2, 1.4.3).
//! Absent on purpose: what stands on a page.

/// Of every page: colours by name for light and dark screens, text, tables, boxes, and the parts of drawings: `k` what stands beside a grid, `g` a
/// line of it. `--c0` to `--c5` are the colours of lines and bars (Okabe and Ito, "Color Universal Design", 2008; lighter ones on dark ground).
const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1c1e;--paper:#fff;--soft:#5c5c62;--line:#d4d4da;--box:#f4f4f6;--bad:#b3261e;\
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#e69f00;--c5:#56b4e9}\
@media(prefers-color-scheme:dark){:root{--ink:#e8e8ea;--paper:#161618;--soft:#a6a6ad;--line:#46464d;--box:#222226;--bad:#ff897d;\
--c0:#4aa8e0;--c1:#f08a3c;--c2:#2fbf94;--c3:#dd97bf;--c4:#f0b53c;--c5:#8accf5}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:78rem;margin:0 auto;padding:1rem;overflow-wrap:anywhere}\
h1{font-size:1.5rem;line-height:1.25;margin:.5rem 0}h2{font-size:1.2rem;margin:1.8rem 0 .5rem}h3{font-size:1rem;margin:.6rem 0 .2rem}\
a{color:var(--c0)}p,li{max-width:60rem}ul{padding-left:1.2rem}small,.soft{color:var(--soft)}.flag{color:var(--bad)}\
.maps,.plots{display:flex;flex-wrap:wrap;gap:1.2rem 2rem}figure{margin:0}figcaption,caption{font-weight:600;font-size:.85rem;text-align:left}\
.plots figure{flex:1 1 19rem;max-width:27rem;min-width:0}.plots svg{width:100%}svg{display:block;max-width:100%;height:auto;overflow:visible}\
svg text{font:11px system-ui,sans-serif;fill:var(--ink)}svg .k{fill:var(--soft)}svg .g{stroke:var(--line)}\
.key{list-style:none;padding:0;margin:.2rem 0;font-size:.8rem;display:flex;flex-wrap:wrap;gap:0 1rem}.key svg{display:inline;width:26px;vertical-align:-1px}\
.wide{overflow-x:auto;margin:.6rem 0}.wide:focus-visible{outline:2px solid var(--c0)}\
table{border-collapse:collapse;font-size:.82rem;font-variant-numeric:tabular-nums;overflow-wrap:normal}\
td,th{border-bottom:1px solid var(--line);padding:.25em .6em;text-align:right}pre,code{font-size:.8rem;white-space:pre-wrap}";

/// Text that cannot be taken for markup.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The beginning of a page: its title, which names the benchmark or the host, and the date of what it shows. `style`: the rules that this page has
/// beyond those of all; they stand behind them, and so win.
#[must_use]
pub fn open(title: &str, date: &str, style: &str) -> String {
    let (title, date) = (escape(title), escape(date));
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}, {date}</title><style>{STYLE}{style}</style></head><body><main>\n<h1>{title}</h1><p class=\"soft\">{date}</p>\n"
    )
}

/// The end of a page.
pub const CLOSE: &str = "</main></body></html>\n";

/// What may be wider than the screen, a table most often: a box that scrolls by itself, by keys too, under a name for those who hear the page.
#[must_use]
pub fn wide(name: &str, inside: &str) -> String {
    format!("<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"{}\">{inside}</div>", escape(name))
}

/// A list of these lines, which are text of a machine; nothing where there are none.
#[must_use]
pub fn list(lines: &[String]) -> String {
    let items: String = lines.iter().map(|line| format!("<li>{}</li>", escape(line))).collect();
    if items.is_empty() { items } else { format!("<ul>{items}</ul>") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_needs_nothing_else_and_takes_no_markup_from_a_title() {
        let page = open("a <b> & \"c\"", "2026-11-25", "p{max-width:75em}") + &wide("<t>", "x") + CLOSE;
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert!(
            page.contains("<title>a &lt;b&gt; &amp; &quot;c&quot;, 2026-11-25</title>")
                && page.contains("<h1>a &lt;b&gt;")
                && page.contains("p{max-width:75em}</style>")
                && page.contains("aria-label=\"&lt;t&gt;\">x</div>")
        );
        assert!(!page.contains("http") && !page.contains("<script"));
        assert_eq!((list(&[]), list(&["<b>".to_owned()])), (String::new(), "<ul><li>&lt;b&gt;</li></ul>".to_owned()));
    }
}
