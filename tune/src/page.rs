//! The machine as a picture: which NIC, disk and core sit together.
//!
//! For: `host show --html`. In and out: facts and findings → one page with inline SVG and CSS, for light and dark screens.
//! Invariants: no script, no outside file; text of the machine is escaped; what is not as it could be is marked by shape, not by colour alone.
//! Absent on purpose: what the facts do not tell: a device whose node nobody knows stands in a box of its own.

use std::fmt::Write as _;

use crate::findings::Finding;
use crate::lines;
use text::page::{CLOSE, escape, open};
use text::units;
use topology::facts::{Core, Facts};

/// Width of a node's box.
const WIDE: usize = 560;
const CORE: usize = 31;
const IN_LINE: usize = 16;
const CHIP: usize = 40;

/// What the page has beyond the style of all.
const STYLE: &str = "\
:root{--line:#c9c9cf;--box:#f4f4f6;--core:#dbe7f3;--core2:#e9e0f1;--chip:#fff;--hot:#f0c05a;--bad:#b3261e}\
@media(prefers-color-scheme:dark){:root{--line:#46464d;--box:#202024;--core:#27435f;--core2:#453257;--chip:#2b2b30;--hot:#8a6414;--bad:#ff897d}}\
h2{margin-top:1.6em}.maps{gap:1.2em}svg text{font-size:12px}svg .h{font-size:14px}svg .k{font-size:11px}svg .m{fill:var(--bad);font-weight:700}\
table{font-size:13px}td,th{padding:.3em .7em;text-align:left;vertical-align:top}.bad{color:var(--bad);font-weight:600;white-space:nowrap}\
pre{font-size:12px;white-space:pre-wrap}";

/// The whole page.
#[must_use]
pub fn page(facts: &Facts, findings: &[Finding]) -> String {
    let mut maps = String::new();
    let mut sockets: Vec<Option<u32>> = facts.cores.iter().map(|core| core.package).collect();
    sockets.sort_unstable();
    sockets.dedup();
    for node in &facts.nodes {
        let cores: Vec<&Core> = facts.cores.iter().filter(|core| core.node == Some(node.id)).collect();
        let package =
            cores.first().and_then(|core| core.package).map_or(String::new(), |package| format!("socket {package}, "));
        let memory = node.total_bytes.map_or(String::new(), |bytes| format!(": {}", units::show_memory(bytes)));
        maps += &place(&format!("{package}node {}{memory}", node.id), &cores, facts, Some(node.id), findings);
    }
    let homeless: Vec<&Core> = facts.cores.iter().filter(|core| core.node.is_none()).collect();
    let lost = facts.nics.iter().any(|nic| nic.node.is_none()) || facts.disks.iter().any(|disk| disk.node.is_none());
    if lost || !homeless.is_empty() {
        maps += &place("NUMA node not told", &homeless, facts, None, findings);
    }
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| finding.good);
    let rows = sorted.iter().fold(String::new(), |mut rows, finding| {
        let mark = if finding.good { "good" } else { "<span class=bad>▲ could be better</span>" };
        let cells = [finding.what, &finding.subject, &finding.says, finding.why, finding.source].map(escape);
        let _ = write!(
            rows,
            "<tr><td>{mark}<td>{}<td>{}<td>{}<td>{}<td class=soft>{}</tr>",
            cells[0], cells[1], cells[2], cells[3], cells[4]
        );
        rows
    });
    let hidden = facts.hidden.iter().fold(String::new(), |text, line| text + "<li>" + &escape(line) + "</li>");
    let head = format!(
        "{}: {} sockets, {} NUMA nodes, {} logical cores, Linux {}",
        facts.cpu.as_deref().unwrap_or("processor not told"),
        sockets.iter().filter(|package| package.is_some()).count().max(1),
        facts.nodes.len().max(1),
        facts.cores.len(),
        facts.kernel.as_deref().unwrap_or("?")
    );
    format!(
        r#"{}<h1>What sits together</h1><p>{}</p><p class=soft>Cores that share a cache stand side by side in one shade. A thick edge: an interrupt of a NIC comes to this core. Dashed: kept from ordinary work. A triangle: see below.</p><div class=maps>{maps}</div>
<h2>Good, and not</h2><p class=soft>Hints with their sources; whether they matter here, only measuring tells.</p><table><tr><th><th>rule<th>of<th>how it is<th>why<th>source</tr>{rows}</table>
<h2>Not told here</h2><ul>{hidden}</ul><h2>All of it</h2><pre>{}</pre>{CLOSE}"#,
        open("This host", STYLE),
        escape(&head),
        escape(&lines::show(facts, findings))
    )
}

/// A node: its cores, and below them its NICs and disks.
fn place(title: &str, cores: &[&Core], facts: &Facts, node: Option<u32>, findings: &[Finding]) -> String {
    let nics: Vec<_> = facts.nics.iter().filter(|nic| nic.node == node).collect();
    let disks: Vec<_> = facts.disks.iter().filter(|disk| disk.node == node).collect();
    let lines = cores.len().div_ceil(IN_LINE);
    let height = 44 + lines * (CORE + 4) + (nics.len() + disks.len()) * (CHIP + 6) + 10;
    let mut out = format!(
        r#"<svg width="{WIDE}" height="{height}" viewBox="0 0 {WIDE} {height}" role="img" aria-label="{0}"><rect x="1" y="1" width="{1}" height="{2}" rx="8" fill="var(--box)" stroke="var(--line)"/><text class="h" x="14" y="26">{0}</text>"#,
        escape(title),
        WIDE - 2,
        height - 2
    );
    let mut groups: Vec<Option<u32>> = cores.iter().map(|core| core.cache_group).collect();
    groups.sort_unstable();
    groups.dedup();
    let mut sorted = cores.to_vec();
    sorted.sort_by_key(|core| (core.cache_group, core.id));
    for (at, core) in sorted.iter().enumerate() {
        let (x, y) = (14 + at % IN_LINE * (CORE + 2), 40 + at / IN_LINE * (CORE + 4));
        let shade = groups.iter().position(|group| *group == core.cache_group).unwrap_or(0) % 2;
        let fill = ["var(--core)", "var(--core2)"][shade];
        let irqs: Vec<String> = facts
            .nics
            .iter()
            .flat_map(|nic| {
                nic.irqs
                    .iter()
                    .filter(|irq| irq.cores == [core.id])
                    .map(|irq| format!("{} irq {}", nic.name, irq.number))
            })
            .collect();
        let edge = if irqs.is_empty() { r#"stroke="var(--line)""# } else { r#"stroke="var(--hot)" stroke-width="3""# };
        let dash = if core.isolated { r#" stroke-dasharray="4 3""# } else { "" };
        let mut words = vec![format!("core {}, shares a physical core with {:?}", core.id, core.siblings)];
        words.extend(core.busy.map(|busy| format!("busy {:.0} %", busy * 100.0)));
        words.extend(irqs);
        let _ = write!(
            out,
            r#"<g><title>{}</title><rect x="{x}" y="{y}" width="{CORE}" height="{CORE}" rx="4" fill="{fill}" {edge}{dash}/><text x="{}" y="{}" text-anchor="middle">{}</text></g>"#,
            escape(&words.join("; ")),
            x + CORE / 2,
            y + CORE / 2 + 4,
            core.id
        );
    }
    let chips = nics
        .iter()
        .map(|nic| ("NIC", &nic.name, lines::nic_line(nic)))
        .chain(disks.iter().map(|disk| ("disk", &disk.name, lines::disk(disk))));
    let mut y = 44 + lines * (CORE + 4);
    for (kind, name, words) in chips {
        let bad = findings.iter().filter(|finding| finding.subject == *name && !finding.good).count();
        let (_, rest) = words.split_once(": ").unwrap_or_default();
        let mark = if bad > 0 {
            format!(r#"<text class="m" x="{}" y="{}" text-anchor="end">▲ {bad}</text>"#, WIDE - 24, y + 17)
        } else {
            String::new()
        };
        let short: String = rest.chars().take(86).collect();
        let _ = write!(
            out,
            r#"<g><title>{}</title><rect x="14" y="{y}" width="{}" height="{CHIP}" rx="5" fill="var(--chip)" stroke="var(--line)"/><text x="24" y="{}"><tspan class="k">{kind}</tspan> {}</text><text class="k" x="24" y="{}">{}</text>{mark}</g>"#,
            escape(&words),
            WIDE - 28,
            y + 17,
            escape(name),
            y + 33,
            escape(&short)
        );
        y += CHIP + 6;
    }
    out + "</svg>"
}
