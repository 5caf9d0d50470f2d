//! The machine as a picture: which NIC, disk, core and memory sit together, and what `host plan` would change of them.
//!
//! For: `host show --html`. In and out: facts, findings, the plan → one page of boxes in boxes, for light and dark screens.
//! Invariants: no script, no outside file; text of the machine is escaped, and wraps: none is cut; what is not as it could be, and what is
//! planned, is marked by shape, not by colour alone; what the plan marks is what `host plan` prints.
//! Absent on purpose: what the facts do not tell: a device whose node nobody knows stands in a box of its own.

use std::fmt::Write as _;

use crate::findings::Finding;
use crate::lines;
use crate::place::Place;
use crate::rules::{Change, RULES};
use text::page::{CLOSE, escape, list, open};
use text::{time, units};
use topology::disks::Disk;
use topology::facts::{Core, Facts, Node};
use topology::nics::Nic;
use topology::tree::show_list;

/// What the page has beyond the style of all.
const STYLE: &str = "\
:root{--core:#dbe7f3;--core2:#e9e0f1;--irq:#b86e00}@media(prefers-color-scheme:dark){:root{--core:#27435f;--core2:#453257;--irq:#f0b53c}}\
.nodes{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr));align-items:start}\
.node,.dev{border:1px solid var(--line);border-radius:.5rem;padding:.5rem .7rem}.node{background:var(--box)}.node h3{margin:0}\
.dev{background:var(--paper);padding:.3rem .6rem}.devs,.cards{list-style:none;padding:0;margin:.4rem 0}\
.node p,.node small,.dev{font-size:.82rem;margin:.1rem 0}.devs .dev{margin:.35rem 0;max-width:none}.cache{display:inline-block;border:1px solid var(--line);border-radius:.4rem;padding:.2rem .4rem;margin:.2rem .3rem .2rem 0;vertical-align:top}\
.cores{display:flex;flex-wrap:wrap;gap:2px;margin:.15rem 0}.c{box-sizing:border-box;min-width:1.9rem;padding:.1rem .15rem;text-align:center;font-size:.75rem;border:1px solid var(--line);border-radius:.25rem;background:var(--core);font-style:normal}\
.key .c{display:inline-block;min-width:1.3rem}.c.o{background:var(--core2)}.c.q{border-bottom:4px solid var(--irq)}.c.d{border-style:dashed;border-color:var(--ink)}\
.bad,.plan{font-weight:600}.bad{color:var(--bad)}.plan{color:var(--c)}:root{--c:#005a8f}@media(prefers-color-scheme:dark){:root{--c:#7cc4f5}}\
.cards{display:grid;gap:.6rem 2rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr))}.cards li li{font-size:.9rem}.cards h3{margin:.2rem 0 0}";

/// The most values of a rule that are written out.
const VALUES: usize = 3;

/// The whole page. `name`: of this host; none: it is that of a record. `unix_s`: now.
#[must_use]
pub fn page(facts: &Facts, findings: &[Finding], plan: &[Change], name: Option<&str>, unix_s: u64) -> String {
    let here = name.map_or("a recorded host".to_owned(), |name| format!("host {name}"));
    let view = View { facts, findings, plan };
    let mut nodes: String = facts.nodes.iter().map(|node| view.node(Some(node))).collect();
    if view.has_homeless() {
        nodes += &view.node(None);
    }
    let good = |good: bool| findings.iter().filter(|finding| finding.good == good).collect::<Vec<_>>();
    let text = escape(&lines::show(facts, findings));
    format!(
        "{}<p>{}</p>{}{KEY}<div class=\"nodes\">{nodes}</div>{}\
         <h2>Not as it could be</h2><p class=\"soft\">Measure before you change anything: whether it matters here, only that tells.</p>{}\
         <h2>What <code>longhaul host plan</code> would set</h2>{}\
         <details><summary><h2 style=\"display:inline\">Good</h2></summary>{}</details>\
         <h2>Not reported by this machine</h2>{}<details><summary><h2 style=\"display:inline\">All of it as text</h2></summary><pre>{text}</pre></details>{CLOSE}",
        open(&format!("longhaul host show: topology of {here}"), &(time::show_utc(unix_s) + " UTC"), STYLE),
        escape(&view.head()),
        view.host(),
        if facts.virtual_nics.is_empty() {
            String::new()
        } else {
            format!(
                "<p class=\"soft\">Interfaces without a NIC of their own: {}</p>",
                escape(&facts.virtual_nics.join(", "))
            )
        },
        cards(&good(false)),
        planned(plan),
        cards(&good(true)),
        list(&facts.hidden)
    )
}

/// What the marks mean.
const KEY: &str = "<ul class=\"key\" aria-label=\"key\"><li><i class=\"c\">0</i> logical core (CPU), in the box of the cache it shares</li>\
<li><i class=\"c q\">0</i> takes interrupts of a NIC</li><li><i class=\"c d\">0</i> isolated from the scheduler</li>\
<li><span class=\"bad\">▲\u{a0}2</span> findings: see below</li><li><span class=\"plan\">◆\u{a0}rings</span> a rule of <code>longhaul host plan</code> would change it</li></ul>";

struct View<'a> {
    facts: &'a Facts,
    findings: &'a [Finding],
    plan: &'a [Change],
}

impl View<'_> {
    fn has_homeless(&self) -> bool {
        let Facts { nics, disks, cores, .. } = self.facts;
        nics.iter().any(|it| it.node.is_none())
            || disks.iter().any(|it| it.node.is_none())
            || cores.iter().any(|it| it.node.is_none())
    }

    fn head(&self) -> String {
        let Facts { cpu, kernel, cores, nodes, .. } = self.facts;
        let sockets = distinct(cores.iter().filter_map(|core| core.package).collect());
        // The first of the threads of a physical core stands for it.
        let physical = cores.iter().filter(|core| core.siblings.first() == Some(&core.id)).count();
        let count = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        [
            cpu.clone().unwrap_or_else(|| "processor not reported".to_owned()),
            count(sockets.len().max(1), "socket"),
            count(nodes.len().max(1), "NUMA node"),
            count(physical, "physical core"),
            count(cores.len(), "logical core"),
            format!("Linux {}", kernel.as_deref().unwrap_or("?")),
        ]
        .join(", ")
    }

    /// What is of no part of it.
    fn host(&self) -> String {
        let marks = self.marks("host");
        if marks.is_empty() { marks } else { format!("<p>Settings of the whole host: {marks}</p>") }
    }

    /// A NUMA node: its memory, its caches with their cores, its NICs and disks. `None`: what is of no node that is known.
    fn node(&self, node: Option<&Node>) -> String {
        let id = node.map(|node| node.id);
        let cores: Vec<&Core> = self.facts.cores.iter().filter(|core| core.node == id).collect();
        let socket = cores.first().and_then(|core| core.package).map_or(String::new(), |it| format!(", socket {it}"));
        let title = id.map_or("NUMA node not reported".to_owned(), |id| format!("NUMA node {id}{socket}"));
        let mut memory = Vec::new();
        if let Some(node) = node {
            memory.push(
                node.total_bytes
                    .map_or("memory: not reported".to_owned(), |it| format!("memory {}", units::show_memory(it))),
            );
            memory.extend(node.free_bytes.map(|it| format!("{} free", units::show_memory(it))));
            if self.facts.nodes.len() > 1 && !node.distances.is_empty() {
                let far = self.facts.nodes.iter().zip(&node.distances).filter(|(other, _)| other.id != node.id);
                let far: Vec<String> = far.map(|(other, far)| format!("{far} to node {}", other.id)).collect();
                memory.push(format!("NUMA distance {} (10 is local)", far.join(", ")));
            }
        }
        let mut groups: Vec<Option<u32>> = cores.iter().map(|core| core.cache_group).collect();
        groups.sort_unstable();
        groups.dedup();
        let caches = groups.iter().enumerate().fold(String::new(), |out, (number, group)| {
            out + &self
                .cache(&cores.iter().copied().filter(|core| core.cache_group == *group).collect::<Vec<_>>(), number)
        });
        let nics = self
            .facts
            .nics
            .iter()
            .filter(|nic| nic.node == id)
            .map(|nic| self.device("NIC", &nic.name, &nic_words(nic)));
        let disks =
            self.facts.disks.iter().filter(|it| it.node == id).map(|it| self.device("disk", &it.name, &disk_words(it)));
        let devices: String = nics.chain(disks).collect();
        let label = escape(&title);
        format!(
            "<section class=\"node\" aria-label=\"{label}\"><h3>{label} {}</h3><p>{}</p>{caches}{}</section>",
            id.map_or(String::new(), |id| self.marks(&format!("node {id}"))),
            escape(&memory.join(", ")),
            if devices.is_empty() { String::new() } else { format!("<ul class=\"devs\">{devices}</ul>") }
        )
    }

    /// The cores that share a cache; threads of one physical core stand beside each other.
    fn cache(&self, cores: &[&Core], number: usize) -> String {
        let mut sorted = cores.to_vec();
        sorted.sort_by_key(|core| (core.siblings.first().copied(), core.id));
        let ids: Vec<u32> = cores.iter().map(|core| core.id).collect();
        let cache =
            cores.first().filter(|core| core.cache_group.is_some()).map(|core| format!("{}, ", lines::cache(core)));
        let title = format!("{}CPUs {}", cache.unwrap_or_default(), show_list(&ids));
        let busy = self.interrupted();
        let squares = sorted.iter().fold(String::new(), |mut out, core| {
            let mut class = if number % 2 == 1 { "c o".to_owned() } else { "c".to_owned() };
            let mut words = vec![format!("CPU {}", core.id)];
            if core.siblings.len() > 1 {
                words.push(format!("one physical core: CPUs {}", show_list(&core.siblings)));
            }
            words.extend(core.busy.map(|busy| format!("busy {:.0} % since the start", busy * 100.0)));
            if busy.contains(&core.id) {
                class += " q";
                let of = |nic: &&Nic| nic.irqs.iter().any(|irq| irq.cores == [core.id]);
                let names: Vec<&str> = self.facts.nics.iter().filter(of).map(|nic| nic.name.as_str()).collect();
                words.push(format!("interrupts of {}", names.join(", ")));
            }
            if core.isolated {
                class += " d";
                words.push("isolated".to_owned());
            }
            let _ = write!(out, "<i class=\"{class}\" title=\"{}\">{}</i>", escape(&words.join("; ")), core.id);
            out
        });
        format!("<div class=\"cache\"><small>{}</small><div class=\"cores\">{squares}</div></div>", escape(&title))
    }

    /// Cores that alone take an interrupt of a NIC.
    fn interrupted(&self) -> Vec<u32> {
        let irqs = self.facts.nics.iter().flat_map(|nic| &nic.irqs);
        irqs.filter_map(|irq| if let [core] = irq.cores[..] { Some(core) } else { None }).collect()
    }

    fn device(&self, kind: &str, name: &str, words: &str) -> String {
        let to = self.cores_planned(name);
        let to = if to.is_empty() { String::new() } else { format!(" to CPUs {}", show_list(&to)) };
        let marks = self.marks(name).replace("interrupts</", &format!("interrupts{to}</"));
        format!("<li class=\"dev\">{kind} <b>{}</b> {marks}<br>{}</li>", escape(name), escape(words))
    }

    /// The cores that the plan gives the interrupts of a NIC to.
    fn cores_planned(&self, name: &str) -> Vec<u32> {
        let is_irq = |change: &&Change| matches!(&change.place, Place::File(path) if path.starts_with("/proc/irq"));
        let mine = self.plan.iter().filter(is_irq).filter(|change| change.subject(self.facts) == name);
        distinct(mine.filter_map(|change| change.new.parse().ok()).collect())
    }

    /// What was found of it, and which rules of the plan would change it.
    fn marks(&self, name: &str) -> String {
        let bad = self.findings.iter().filter(|finding| finding.subject == name && !finding.good).count();
        let mut out = String::new();
        if bad > 0 {
            let _ = write!(out, "<span class=\"bad\" title=\"findings\">▲\u{a0}{bad}</span> ");
        }
        for rule in RULES.iter().filter(|rule| {
            self.plan.iter().any(|change| change.rule == rule.name && change.subject(self.facts) == name)
        }) {
            let _ = write!(out, "<span class=\"plan\">◆\u{a0}{}</span> ", rule.name);
        }
        out
    }
}

/// These numbers in order, each once.
fn distinct(mut numbers: Vec<u32>) -> Vec<u32> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// A NIC in the few words that its box has room for.
fn nic_words(nic: &Nic) -> String {
    let mut words = vec![if nic.up { "up" } else { "down" }.to_owned()];
    words.extend(nic.speed_mbit.map(|speed| units::show_bits_per_second(f64::from(speed) * 1e6)));
    words.extend(nic.pcie.map(|link| pcie_words(&link)));
    words.push(format!("{} rx and {} tx queues", nic.rx_queues, nic.tx_queues));
    words.extend(nic.mtu.map(|mtu| format!("MTU {mtu}")));
    words.extend(nic.driver.clone());
    words.join(", ")
}

fn disk_words(disk: &Disk) -> String {
    let mut words = vec![units::show_bytes(disk.bytes)];
    words.extend(disk.pcie.map(|link| pcie_words(&link)));
    words.extend(disk.model.clone());
    words.extend(disk.rotational.map(|rotational| if rotational { "rotational" } else { "not rotational" }.to_owned()));
    words.extend(disk.raid.as_ref().map(|(level, _)| format!("{level} of {}", disk.members.join(" "))));
    words.join(", ")
}

fn pcie_words(link: &topology::nics::Pcie) -> String {
    format!("PCIe x{} at {} GT/s ({})", link.width, link.speed, units::show_bits_per_second(link.bits_per_second()))
}

/// Findings, those of one rule together: why it matters stands once.
fn cards(findings: &[&Finding]) -> String {
    let mut out = String::new();
    for (at, first) in findings.iter().enumerate() {
        if findings[..at].iter().any(|other| other.what == first.what) {
            continue;
        }
        let lines = findings.iter().filter(|finding| finding.what == first.what).fold(String::new(), |mut out, it| {
            let mark = if it.good { "" } else { "<span class=\"bad\">▲</span>\u{a0}" };
            let plan = match it.plan {
                Some(plan) => format!(" <span class=\"plan\">◆\u{a0}{plan}</span>"),
                None if it.good => String::new(),
                None => " <span class=\"soft\">host plan has no rule for it</span>".to_owned(),
            };
            let _ = write!(out, "<li>{mark}<b>{}</b>: {}{plan}</li>", escape(&it.subject), escape(&it.says));
            out
        });
        let (what, why, source) = (escape(first.what), escape(first.why), escape(first.source));
        let _ = write!(out, "<li><h3>{what}</h3><small>{why} ({source})</small><ul>{lines}</ul></li>");
    }
    if out.is_empty() { "<p>Nothing.</p>".to_owned() } else { format!("<ul class=\"cards\">{out}</ul>") }
}

/// The plan, rule by rule.
fn planned(plan: &[Change]) -> String {
    let mut out = String::new();
    for rule in RULES {
        let mine: Vec<&Change> = plan.iter().filter(|change| change.rule == rule.name).collect();
        if mine.is_empty() {
            continue;
        }
        let mut values = mine.iter().take(VALUES).fold(String::new(), |mut out, it| {
            let place = escape(&it.place.to_string());
            let _ =
                write!(out, "<li>{place}: <code>{}</code> → <code>{}</code></li>", escape(&it.old), escape(&it.new));
            out
        });
        if mine.len() > VALUES {
            let _ = write!(values, "<li>and {} more</li>", mine.len() - VALUES);
        }
        let (name, why, risk) = (rule.name, escape(rule.why), escape(rule.risk));
        let _ = write!(
            out,
            "<li><h3><span class=\"plan\">◆</span> {name}</h3><small>{why}. Risk: {risk}.</small><ul>{values}</ul></li>"
        );
    }
    if out.is_empty() {
        return "<p>Nothing.</p>".to_owned();
    }
    format!("<p class=\"soft\">{} values; nothing was changed.</p><ul class=\"cards\">{out}</ul>", plan.len())
}
