//! What all HTML pages have in common.
//!
//! For: `host show --html` and the pages of the benchmarks.
//! In and out: a title and what a page needs beyond the common style → the beginning of a page; text of a machine → text that is no markup.
//! Invariants: one file with everything in it: no script, no outside file; light and dark screens.
//! Absent on purpose: what stands on a page.

/// Of every page: colours by name for light and dark screens, text, tables, and the parts of drawings: `h` a title, `k` what stands beside a grid,
/// `g` a line of it.
const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1c1e;--paper:#fff;--soft:#6b6b70;--line:#dcdce2}\
@media(prefers-color-scheme:dark){:root{--ink:#e8e8ea;--paper:#161618;--soft:#9a9aa0;--line:#3a3a40}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1240px;margin:2em auto;padding:0 1.2em}\
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:1.8em}small,.soft{color:var(--soft)}.flag{color:#d55e00}\
.maps,.plots{display:flex;flex-wrap:wrap;gap:1em 2em}\
svg text{font:11px system-ui,sans-serif;fill:var(--ink)}svg .h{font-weight:600;font-size:13px}svg .k{fill:var(--soft)}svg .g{stroke:var(--line)}\
table{border-collapse:collapse;font-size:12.5px;font-variant-numeric:tabular-nums}\
td,th{border-bottom:1px solid var(--line);padding:.2em .6em;text-align:right}";

/// Text that cannot be taken for markup.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The beginning of a page, up to its body. `style`: the rules that this page has beyond those of all; they stand behind them, and so win.
#[must_use]
pub fn open(title: &str, style: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{}</title><style>{STYLE}{style}</style></head><body>\n",
        escape(title)
    )
}

/// The end of a page.
pub const CLOSE: &str = "</body></html>\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_needs_nothing_else_and_takes_no_markup_from_a_title() {
        let page = open("a <b> & \"c\"", "p{max-width:75em}") + CLOSE;
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert!(
            page.contains("<title>a &lt;b&gt; &amp; &quot;c&quot;</title>")
                && page.contains("p{max-width:75em}</style>")
        );
        assert!(!page.contains("http") && !page.contains("<script"));
    }
}
