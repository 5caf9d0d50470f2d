//! What of a page can be told without a browser.
//!
//! For: the tests of all pages. In and out: a page → sentences of what is wrong with it; none: nothing is.
//! Invariants: the width of a text is estimated by its letters in DejaVu Sans, the widest of the usual fonts, rather too wide than too narrow.
//! Absent on purpose: how a browser lays out what is no drawing (browser.rs).

use std::collections::BTreeMap;

/// A piece of a page.
#[derive(Debug)]
enum Piece {
    Open(String, BTreeMap<String, String>),
    Close(String),
    Text(String),
}

/// Elements without an end.
const EMPTY: [&str; 5] = ["meta", "br", "hr", "img", "!doctype"];
/// Elements whose end may be left out (HTML, 13.1.2.4).
const OPTIONAL: [&str; 6] = ["li", "p", "td", "th", "tr", "tbody"];

fn attributes(text: &str) -> Result<BTreeMap<String, String>, String> {
    let (mut out, mut rest) = (BTreeMap::new(), text.trim().trim_end_matches('/').trim_end());
    while !rest.is_empty() {
        let end = rest.find(|letter: char| letter == '=' || letter.is_whitespace()).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let Some(value) = after.strip_prefix('=') else {
            out.insert(name.to_owned(), String::new());
            rest = after.trim_start();
            continue;
        };
        let (value, after) = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                value[1..].split_once(quote).ok_or(format!("a quote without an end: {value}"))?
            }
            _ => value.split_once(' ').unwrap_or((value, "")),
        };
        if out.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(format!("{name} twice in <{text}>"));
        }
        rest = after.trim_start();
    }
    Ok(out)
}

fn parse(page: &str) -> Result<Vec<Piece>, String> {
    let (mut pieces, mut rest) = (Vec::new(), page);
    while let Some(at) = rest.find('<') {
        if at > 0 {
            pieces.push(Piece::Text(rest[..at].to_owned()));
        }
        // An end within quotes is none.
        let mut quote = None;
        let end = rest[at..].char_indices().find(|(_, letter)| match (quote, letter) {
            (None, '"' | '\'') => {
                quote = Some(*letter);
                false
            }
            (Some(open), letter) if open == *letter => {
                quote = None;
                false
            }
            (quote, letter) => quote.is_none() && *letter == '>',
        });
        let end = at + end.ok_or(format!("an element without an end: {:.60}", &rest[at..]))?.0;
        let inside = &rest[at + 1..end];
        rest = &rest[end + 1..];
        match inside.strip_prefix('/') {
            Some(name) => pieces.push(Piece::Close(name.to_owned())),
            None => {
                let (name, more) = inside.split_once(char::is_whitespace).unwrap_or((inside, ""));
                let name = name.trim_end_matches('/').to_ascii_lowercase();
                let more = if name == "!doctype" { BTreeMap::new() } else { attributes(more)? };
                pieces.push(Piece::Open(name.clone(), more));
                if inside.ends_with('/') && !EMPTY.contains(&name.as_str()) {
                    pieces.push(Piece::Close(name.clone()));
                }
                if name == "style" {
                    let end = rest.find("</style>").ok_or("a style without an end")?;
                    pieces.push(Piece::Text(rest[..end].to_owned()));
                    rest = &rest[end..];
                }
            }
        }
    }
    Ok(pieces)
}

/// Elements that are closed by another's end, or never.
fn nesting(pieces: &[Piece], wrong: &mut Vec<String>) {
    let mut open: Vec<&str> = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Open(name, _) if !EMPTY.contains(&name.as_str()) => open.push(name),
            Piece::Close(name) => {
                while open.last().is_some_and(|last| last != name && OPTIONAL.contains(last)) {
                    open.pop();
                }
                if open.pop() != Some(name) {
                    return wrong.push(format!("</{name}> closes nothing"));
                }
            }
            _ => {}
        }
    }
    if !open.is_empty() {
        wrong.push(format!("never closed: {open:?}"));
    }
}

/// The width of a text of so many px.
fn width(text: &str, px: f64) -> f64 {
    let one = |letter: char| match letter {
        'i' | 'l' | 'j' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.34,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '/' | '-' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '÷' | '×' => 0.93,
        'A'..='Z' => 0.7,
        _ => 0.63,
    };
    text.chars().map(one).sum::<f64>() * px
}

fn plain(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// A box in a drawing: left, top, right, bottom.
type Area = [f64; 4];

fn overlap(a: Area, b: Area) -> bool {
    // A pixel of each side is nothing that anybody sees.
    a[0] + 1.0 < b[2] && b[0] + 1.0 < a[2] && a[1] + 1.0 < b[3] && b[1] + 1.0 < a[3]
}

fn is_within(inner: Area, outer: Area) -> bool {
    inner[0] >= outer[0] - 1.0 && inner[1] >= outer[1] - 1.0 && inner[2] <= outer[2] + 1.0 && inner[3] <= outer[3] + 1.0
}

/// Letters over letters, boxes over boxes, letters over the edge of the drawing or of the box they begin in.
fn drawing(named: &str, whole: Area, texts: &[(Area, String)], boxes: &[Area], wrong: &mut Vec<String>) {
    for (at, (area, text)) in texts.iter().enumerate() {
        if !is_within(*area, whole) {
            wrong.push(format!("'{text}' at {area:.0?} stands out over the drawing {named:.40} of {whole:.0?}"));
        }
        for (_, other) in texts[..at].iter().filter(|(it, _)| overlap(*it, *area)) {
            wrong.push(format!("'{text}' and '{other}' overlap in {named:.40}"));
        }
        let middle = [f64::midpoint(area[0], area[2]), f64::midpoint(area[1], area[3])];
        let holds = |it: &&Area| it[0] <= middle[0] && middle[0] <= it[2] && it[1] <= middle[1] && middle[1] <= it[3];
        for room in boxes.iter().filter(holds).filter(|room| !is_within(*area, **room)) {
            wrong.push(format!("'{text}' at {area:.0?} does not fit its box {room:.0?} in {named:.40}"));
        }
    }
    for (at, area) in boxes.iter().enumerate() {
        for other in
            boxes[..at].iter().filter(|it| overlap(**it, *area) && !is_within(**it, *area) && !is_within(*area, **it))
        {
            wrong.push(format!("the boxes {area:.0?} and {other:.0?} overlap in {named:.40}"));
        }
    }
}

fn drawings(pieces: &[Piece], wrong: &mut Vec<String>) {
    let number =
        |of: &BTreeMap<String, String>, name: &str| of.get(name).and_then(|it| it.parse::<f64>().ok()).unwrap_or(0.0);
    let mut at = 0;
    while at < pieces.len() {
        let Piece::Open(name, svg) = &pieces[at] else {
            at += 1;
            continue;
        };
        at += 1;
        if name != "svg" {
            continue;
        }
        let label = svg.get("aria-label").cloned().unwrap_or_default();
        let is_told =
            (svg.get("role").is_some_and(|it| it == "img") && !label.is_empty()) || svg.contains_key("aria-hidden");
        if !is_told {
            wrong.push("a drawing without role=img and aria-label, for those who hear the page".to_owned());
        }
        let view: Vec<f64> =
            svg.get("viewBox").into_iter().flat_map(|it| it.split(' ')).filter_map(|it| it.parse().ok()).collect();
        let [x, y, wide, high] = view[..] else {
            wrong.push(format!("a drawing without a viewBox does not shrink: {label:.40}"));
            continue;
        };
        // Drawn for a telephone: shown there with what is left beside the margins, letters stay above 10 px.
        if wide > 376.0 {
            wrong.push(format!("a drawing {wide} wide has letters below 10 px on 380 px: {label:.40}"));
        }
        let (mut texts, mut boxes) = (Vec::new(), Vec::new());
        let mut letters: Option<(&BTreeMap<String, String>, String)> = None;
        for piece in &pieces[at..] {
            match piece {
                Piece::Open(name, of) if name == "text" => letters = Some((of, String::new())),
                Piece::Open(name, of) if name == "rect" => {
                    let (left, top) = (number(of, "x"), number(of, "y"));
                    boxes.push([left, top, left + number(of, "width"), top + number(of, "height")]);
                }
                Piece::Text(text) => {
                    if let Some((_, letters)) = &mut letters {
                        *letters += &plain(text);
                    }
                }
                Piece::Close(name) if name == "text" => {
                    let Some((of, text)) = letters.take() else { continue };
                    let bold = if of.get("class").is_some_and(|it| it == "b") { 1.1 } else { 1.0 };
                    let (x, y, wide) = (number(of, "x"), number(of, "y"), width(&text, 11.0) * bold);
                    let left = match of.get("text-anchor").map(String::as_str) {
                        Some("middle") => x - wide / 2.0,
                        Some("end") => x - wide,
                        _ => x,
                    };
                    if !text.is_empty() {
                        texts.push(([left, y - 9.0, left + wide, y + 2.0], text));
                    }
                }
                Piece::Close(name) if name == "svg" => break,
                _ => {}
            }
        }
        drawing(&label, [x, y, x + wide, y + high], &texts, &boxes, wrong);
    }
}

/// All that is wrong with a page.
pub(super) fn wrong(page: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let pieces = match parse(page) {
        Ok(pieces) => pieces,
        Err(why) => return vec![format!("cannot be read: {why}")],
    };
    nesting(&pieces, &mut wrong);
    let title = page.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>")).map_or("", |it| it.0);
    let has_date = title.split(' ').any(|word| word.len() == 10 && word.matches('-').count() == 2);
    for (holds, what) in [
        (title.starts_with("longhaul") && has_date, "its title names neither what it shows nor the date"),
        (page.matches("<h1>").count() == 1, "it has not one head"),
        (
            page.contains("<html lang=\"en\">") && page.contains("<meta charset=\"utf-8\">"),
            "no language, or no set of letters",
        ),
        (page.contains("<meta name=\"viewport\" content=\"width=device-width"), "telephones shrink it: no viewport"),
        (
            page.contains("color-scheme:light dark") && page.contains("prefers-color-scheme:dark"),
            "it is not light and dark",
        ),
        (page.contains("<main>"), "no main part, for those who hear the page"),
    ] {
        if !holds {
            wrong.push(what.to_owned());
        }
    }
    for outside in
        ["http:", "https:", "=\"//", "='//", "<script", "<link", "@import", "url(", " src=", "javascript:", " onload"]
    {
        if page.contains(outside) {
            wrong.push(format!("it needs, or may run, something from elsewhere: {outside}"));
        }
    }
    let mut is_wide = false;
    let mut rows = 1;
    for piece in &pieces {
        match piece {
            Piece::Open(name, of) if name == "div" => is_wide = of.get("class").is_some_and(|it| it == "wide"),
            Piece::Open(name, _) if name == "table" => {
                rows = 0;
                if !is_wide {
                    wrong.push("a table that does not scroll by itself".to_owned());
                }
            }
            Piece::Open(name, _) if name == "tr" => rows += 1,
            Piece::Open(name, _) if name == "td" && rows == 1 && !page.contains("no packet of this path") => {
                wrong.push("a table without heads".to_owned());
                rows = 2;
            }
            _ => {}
        }
    }
    drawings(&pieces, &mut wrong);
    wrong
}

#[test]
fn what_is_wrong_is_seen() {
    let page =
        |inside: &str| text::page::open("longhaul t", "2026-11-25 10:00:00 UTC", "") + inside + text::page::CLOSE;
    let svg = |inside: &str| page(&format!("<svg viewBox=\"0 0 100 50\" role=\"img\" aria-label=\"d\">{inside}</svg>"));
    assert_eq!(wrong(&page("<p>good")), Vec::<String>::new());
    assert_eq!(
        wrong(&svg("<rect x=\"0\" y=\"0\" width=\"50\" height=\"20\"/><text x=\"2\" y=\"12\">good</text>")),
        Vec::<String>::new()
    );
    for (bad, what) in [
        (page("<section>"), "closes nothing"),
        (page("<a href='https://x'>x</a>"), "elsewhere"),
        (page("<table><tr><th>a</table>"), "does not scroll"),
        (page(&text::page::wide("t", "<table><tr><td>a</table>")), "without heads"),
        (page("<svg role=\"img\" aria-label=\"d\"></svg>"), "viewBox"),
        (page("<svg viewBox=\"0 0 9 9\"></svg>"), "aria-label"),
        (page("<svg viewBox=\"0 0 900 9\" role=\"img\" aria-label=\"d\"></svg>"), "below 10 px"),
        (svg("<text x=\"60\" y=\"12\">too long for it</text>"), "stands out"),
        (svg("<text x=\"2\" y=\"12\">one</text><text x=\"9\" y=\"12\">two</text>"), "overlap"),
        (svg("<rect x=\"0\" y=\"0\" width=\"30\" height=\"20\"/><text x=\"2\" y=\"12\">too long</text>"), "its box"),
        (
            svg(
                "<rect x=\"0\" y=\"0\" width=\"30\" height=\"20\"/><rect x=\"20\" y=\"0\" width=\"30\" height=\"20\"/>",
            ),
            "boxes",
        ),
        (page("").replace("2026-11-25", "today"), "title"),
        (page("").replace("prefers-color-scheme", "x"), "light and dark"),
        (page("").replace("<meta name=\"viewport\"", "<meta name=\"x\""), "viewport"),
    ] {
        let said = wrong(&bad).join("; ");
        assert!(said.contains(what), "wanted '{what}': {said}");
    }
}
