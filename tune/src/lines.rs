//! The machine as a tree of lines.
//!
//! For: `host show` on a terminal. In and out: facts and findings → text.
//! Invariants: what sits together stands together; what is not as it should be stands last, where the eye ends.
//! Absent on purpose: colours.

use std::fmt::Write as _;

use crate::findings::Finding;
use text::units;
use topology::disks::Disk;
use topology::facts::{Core, Facts};
use topology::nics::Nic;
use topology::tree::show_list;

/// The machine and what was found on it, as lines of text.
#[must_use]
pub fn show(facts: &Facts, findings: &[Finding]) -> String {
    let mut out = format!(
        "{}, {} logical cores, {} NUMA nodes, Linux {}{}\n",
        facts.cpu.as_deref().unwrap_or("processor not reported"),
        facts.cores.len(),
        facts.nodes.len().max(1),
        facts.kernel.as_deref().unwrap_or("?"),
        facts.load.map_or(String::new(), |load| format!(", load {load:.1}"))
    );
    for node in &facts.nodes {
        let memory = node.total_bytes.map_or("memory not reported".to_owned(), units::show_memory);
        let mut words = vec![memory];
        words.extend(node.free_bytes.map(|bytes| format!("{} free", units::show_memory(bytes))));
        words.extend(node.unbroken.map(|share| format!("{:.0} % of it unbroken", share * 100.0)));
        words.extend(
            node.huge_2m
                .filter(|huge| huge[0] > 0)
                .map(|huge| format!("{} of {} huge pages of 2 MiB free", huge[1], huge[0])),
        );
        words
            .extend(node.huge_1g.filter(|huge| huge[0] > 0).map(|huge| format!("{} of {} of 1 GiB", huge[1], huge[0])));
        if facts.nodes.len() > 1 {
            words
                .push(format!("distances {}", node.distances.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")));
        }
        let _ = writeln!(out, "node {}: {}", node.id, words.join(", "));
        cores(&mut out, facts.cores.iter().filter(|core| core.node == Some(node.id)).collect());
        devices(&mut out, facts, Some(node.id));
    }
    let homeless: Vec<&Core> = facts.cores.iter().filter(|core| core.node.is_none()).collect();
    let told = facts.nics.iter().any(|nic| nic.node.is_none()) || facts.disks.iter().any(|disk| disk.node.is_none());
    if !homeless.is_empty() || told {
        out += "NUMA node not reported:\n";
        cores(&mut out, homeless);
        devices(&mut out, facts, None);
    }
    if !facts.virtual_nics.is_empty() {
        let _ = writeln!(out, "interfaces without a NIC: {}", facts.virtual_nics.join(", "));
    }
    out += "file systems:\n";
    for mount in &facts.mounts {
        let _ = writeln!(out, "  {} {} on {} ({})", mount.at, mount.kind, mount.source, mount.options.join(","));
    }
    out += "settings:\n";
    for (name, value) in &facts.settings {
        let _ = writeln!(out, "  {name} = {value}");
    }
    if let Some(running) = &facts.running {
        let words = if running.is_empty() { "none".to_owned() } else { running.join(", ") };
        let _ = writeln!(out, "programs that arrange interrupts, clocks or memory: {words}");
    }
    list(&mut out, "not reported here:", facts.hidden.iter().map(|line| format!("  {line}")).collect());
    for good in [true, false] {
        let lines = findings.iter().filter(|finding| finding.good == good);
        let lines = lines.map(|finding| {
            let line = format!("  {:<24} {:<12} {}", finding.what, finding.subject, finding.says);
            let plan = finding.plan.map_or("host plan: no rule for it".to_owned(), |plan| plan.to_string());
            if good {
                line
            } else {
                format!("{line}\n{:40}why: {} ({})\n{:40}{plan}", "", finding.why, finding.source, "")
            }
        });
        list(
            &mut out,
            if good { "good:" } else { "not as it could be (measure before changing it):" },
            lines.collect(),
        );
    }
    out
}

fn list(out: &mut String, head: &str, lines: Vec<String>) {
    if !lines.is_empty() {
        let _ = writeln!(out, "{head}\n{}", lines.join("\n"));
    }
}

/// A line per group that shares a cache.
fn cores(out: &mut String, cores: Vec<&Core>) {
    let mut groups: Vec<(Option<u32>, Option<u32>)> =
        cores.iter().map(|core| (core.package, core.cache_group)).collect();
    groups.sort_unstable();
    groups.dedup();
    for group in groups {
        let members: Vec<&&Core> = cores.iter().filter(|core| (core.package, core.cache_group) == group).collect();
        let ids: Vec<u32> = members.iter().map(|core| core.id).collect();
        let package = group.0.map_or(String::new(), |package| format!("socket {package}, "));
        let mut words = vec![if group.1.is_some() {
            format!("cores {} on one {}", show_list(&ids), cache(members[0]))
        } else {
            format!("cores {}", show_list(&ids))
        }];
        if members.iter().any(|core| core.siblings.len() > 1) {
            let mut pairs: Vec<String> = members.iter().map(|core| show_list(&core.siblings)).collect();
            pairs.sort();
            pairs.dedup();
            words.push(format!("{} physical", pairs.len()));
        }
        let isolated: Vec<u32> = members.iter().filter(|core| core.isolated).map(|core| core.id).collect();
        if !isolated.is_empty() {
            words.push(format!("isolated {}", show_list(&isolated)));
        }
        let busy: Vec<f64> = members.iter().filter_map(|core| core.busy).collect();
        if !busy.is_empty() {
            #[expect(clippy::cast_precision_loss, reason = "some hundred cores")]
            let mean = busy.iter().sum::<f64>() / busy.len() as f64;
            words.push(format!("busy {:.0} % since the start", mean * 100.0));
        }
        let _ = writeln!(out, "  {package}{}", words.join(", "));
    }
}

/// The last-level cache of a core: `L3 cache of 32 MiB`.
#[must_use]
pub fn cache(core: &Core) -> String {
    let level = core.cache_level.map_or("last-level".to_owned(), |level| format!("L{level}"));
    let size = core.cache_bytes.map_or(String::new(), |bytes| format!(" of {}", units::show_memory(bytes)));
    format!("{level} cache{size}")
}

fn devices(out: &mut String, facts: &Facts, node: Option<u32>) {
    for nic in facts.nics.iter().filter(|nic| nic.node == node) {
        let _ = writeln!(out, "  NIC {}", nic_line(nic));
    }
    for disk in facts.disks.iter().filter(|disk| disk.node == node) {
        let _ = writeln!(out, "  disk {}", self::disk(disk));
    }
}

/// A NIC in a line.
#[must_use]
pub fn nic_line(nic: &Nic) -> String {
    let mut words = vec![format!("{}: {}", nic.name, nic.driver.as_deref().unwrap_or("driver not reported"))];
    words.push(if nic.up { "up" } else { "down" }.to_owned());
    words.extend(nic.speed_mbit.map(|speed| units::show_bits_per_second(f64::from(speed) * 1e6)));
    words.extend(nic.mtu.map(|mtu| format!("MTU {mtu}")));
    words.push(format!("{} rx and {} tx queues", nic.rx_queues, nic.tx_queues));
    words.extend(nic.rings.map(|[rx, tx]| format!("rings {}/{} and {}/{}", rx[0], rx[1], tx[0], tx[1])));
    words.extend(nic.coalescing.map(|([rx, _], adaptive)| {
        format!("interrupts after {} us or {} frames{}", rx[0], rx[1], if adaptive { ", adaptive" } else { "" })
    }));
    words.extend(nic.pcie.map(|link| format!("PCIe x{} at {} GT/s", link.width, link.speed)));
    for irq in &nic.irqs {
        words.push(format!("irq {} on {}", irq.number, show_list(&irq.cores)));
    }
    for (name, on) in
        [("TSO", nic.tso), ("GSO", nic.gso), ("GRO", nic.gro), ("LRO", nic.lro), ("steering by rules", nic.ntuple)]
    {
        words.extend(on.map(|on| format!("{name} {}", if on { "on" } else { "off" })));
    }
    if nic.rps_queues + nic.xps_queues > 0 {
        words.push(format!("RPS on {}, XPS on {} queues", nic.rps_queues, nic.xps_queues));
    }
    words.join(", ")
}

/// A disk in a line.
#[must_use]
pub fn disk(disk: &Disk) -> String {
    let mut words = vec![format!("{}: {}", disk.name, units::show_bytes(disk.bytes))];
    words.extend(disk.model.clone());
    words.extend(disk.rotational.map(|rotational| if rotational { "rotational" } else { "not rotational" }.to_owned()));
    words.extend(disk.scheduler.as_ref().map(|name| format!("scheduler {name}")));
    words.extend(disk.write_cache.as_ref().map(|cache| format!("cache {cache}")));
    if let (Some(logical), Some(physical)) = (disk.logical_bytes, disk.physical_bytes) {
        words.push(format!("blocks {logical}/{physical}"));
    }
    words.extend(
        disk.optimal_bytes
            .filter(|bytes| *bytes > 0)
            .map(|bytes| format!("likes {}", units::show_memory(u64::from(bytes)))),
    );
    words.extend(disk.request_bytes_max.map(|bytes| format!("at most {} a request", units::show_memory(bytes))));
    words.extend(disk.requests.map(|count| format!("{count} requests")));
    words.extend(disk.pcie.map(|link| format!("PCIe x{} at {} GT/s", link.width, link.speed)));
    words.extend(
        disk.raid.as_ref().map(|(level, chunk)| {
            format!("{level}, chunk {}, of {}", units::show_memory(*chunk), disk.members.join(" "))
        }),
    );
    words.join(", ")
}
