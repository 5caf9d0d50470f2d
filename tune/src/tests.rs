//! `host show` over recorded machines.
//!
//! For: every fact and every rule, on machines that are not here. Absent on purpose: this machine, whose facts differ from one day to the next
//! (the end-to-end checks look at it).

use topology::facts::{self, Facts};
use topology::tree::Tree;

use super::findings::{Finding, RULES, judge};
use super::rules::{self, Change};
use super::{lines, page};

fn machine(text: &str) -> Facts {
    facts::read(&Tree::parse(text).unwrap())
}

fn two_sockets() -> Facts {
    machine(include_str!("../../topology/records/two-sockets.txt"))
}

fn finding<'a>(findings: &'a [Finding], what: &str, subject: &str) -> &'a Finding {
    let found = findings.iter().find(|finding| (finding.what, finding.subject.as_str()) == (what, subject));
    found.unwrap_or_else(|| panic!("nothing is said of {what} of {subject}: {findings:?}"))
}

#[test]
fn cores_and_nodes_are_where_they_are() {
    let facts = two_sockets();
    assert_eq!((facts.cores.len(), facts.nodes.len()), (32, 2));
    let core = &facts.cores[25];
    assert_eq!((core.id, core.package, core.node, core.cache_group), (25, Some(1), Some(1), Some(8)));
    assert_eq!(core.siblings, [9, 25]);
    assert!((facts.cores[0].busy.unwrap() - 0.2).abs() < 1e-9, "{:?}", facts.cores[0]);
    assert_eq!(facts.cores.iter().filter(|core| core.isolated).map(|core| core.id).collect::<Vec<_>>(), [6, 7]);
    assert_eq!(facts.nodes[0].total_bytes, Some(131_072_000 * 1024));
    assert_eq!(facts.nodes[0].huge_2m, Some([512, 500]));
    assert_eq!(facts.nodes[1].distances, [21, 10]);
    assert_eq!(facts.nodes[0].unbroken, Some(1.0));
    assert!(facts.nodes[1].unbroken.unwrap() < 0.1, "{:?}", facts.nodes[1]);
}

#[test]
fn nics_tell_driver_speed_queues_rings_and_interrupts() {
    let facts = two_sockets();
    assert_eq!(facts.virtual_nics, ["lo", "bond0"]);
    let names: Vec<&str> = facts.nics.iter().map(|nic| nic.name.as_str()).collect();
    assert_eq!(names, ["ens1f0", "ens1f1", "ens5f0", "eno1"]);
    let fast = &facts.nics[0];
    assert_eq!(
        (fast.driver.as_deref(), fast.speed_mbit, fast.mtu, fast.node),
        (Some("mlx5_core"), Some(100_000), Some(9000), Some(0))
    );
    assert_eq!((fast.rx_queues, fast.tx_queues, fast.queues_max, fast.xps_queues), (8, 8, Some(8), 8));
    assert_eq!(fast.rings, Some([[8192, 8192], [8192, 8192]]));
    assert_eq!(fast.coalescing, Some(([[50, 64], [50, 64]], true)));
    assert_eq!((fast.tso, fast.gro, fast.lro, fast.ntuple), (Some(true), Some(true), Some(false), Some(true)));
    assert_eq!((fast.irqs.len(), fast.irqs[3].number, fast.irqs[3].cores.as_slice()), (8, 103, &[3][..]));
    // x16 at 8 GT/s with 128b/130b and a tenth for heads.
    assert!((fast.pcie.unwrap().bits_per_second() / 1e9 - 113.4).abs() < 0.1, "{:?}", fast.pcie);
    assert_eq!((facts.nics[2].up, facts.nics[2].speed_mbit), (false, None));
    assert_eq!(facts.nics[3].rps_queues, 2);
}

#[test]
fn disks_and_file_systems_tell_what_they_like() {
    let facts = two_sockets();
    let names: Vec<&str> = facts.disks.iter().map(|disk| disk.name.as_str()).collect();
    assert_eq!(names, ["md0", "nvme0n1", "nvme1n1", "sda"], "a loop device without a file is none");
    let raid = &facts.disks[0];
    assert_eq!(
        (raid.raid.clone(), raid.members.len(), raid.optimal_bytes),
        (Some(("raid5".to_owned(), 524_288)), 6, Some(2_621_440))
    );
    let disk = &facts.disks[1];
    assert_eq!(
        (disk.node, disk.scheduler.as_deref(), disk.write_cache.as_deref()),
        (Some(0), Some("none"), Some("write back"))
    );
    assert_eq!((disk.parts.len(), disk.parts[0].start_bytes, disk.request_bytes_max), (1, 1 << 20, Some(1280 << 10)));
    let places: Vec<&str> = facts.mounts.iter().map(|mount| mount.at.as_str()).collect();
    assert_eq!(places, ["/", "/data", "/big pool"]);
    assert!(facts.mounts[1].options.contains(&"sync".to_owned()), "{:?}", facts.mounts[1]);
}

#[test]
fn the_rules_say_what_is_good_what_is_not_and_why() {
    let facts = two_sockets();
    let findings = judge(&facts, &[]);
    for (what, subject, good, words) in [
        ("PCIe link", "ens1f0", true, "x16 at 8 GT/s"),
        ("PCIe link", "ens1f1", false, "less than the port's 100 Gbit/s"),
        ("PCIe link", "eno1", true, "x4"),
        ("queues", "ens1f1", false, "4 receive queues of 8 possible"),
        ("queues", "ens1f0", true, "8 receive queues"),
        ("rings", "ens1f0", true, "rx 8192 of 8192"),
        ("rings", "ens1f1", false, "rx 1024 of 8192"),
        ("rings", "eno1", true, "rx 256 of 4096"),
        ("offloads", "ens1f1", false, "off: GRO"),
        ("MTU", "ens1f0", true, "9000"),
        ("MTU", "ens1f1", false, "1500"),
        ("interrupts", "ens1f0", true, "8 interrupts on cores 0-7"),
        ("interrupts", "ens1f1", false, "another node than the NIC's: 8-9; several queues share a core"),
        ("steering", "eno1", true, "RPS on 2 of 2"),
        ("slow start after idle", "host", false, "= 1"),
        ("clock governor", "host", false, "performance, powersave"),
        ("page migration", "host", false, "= 1"),
        ("huge pages", "host", true, "500 reserved"),
        ("memory fragmentation", "node 0", true, "100 %"),
        ("memory fragmentation", "node 1", false, "of the free memory"),
        ("io_uring", "host", true, "= 0"),
        ("disk scheduler", "nvme0n1", true, "none"),
        ("disk scheduler", "nvme1n1", false, "mq-deadline"),
        ("disk scheduler", "sda", true, "mq-deadline"),
        ("alignment", "nvme0n1", true, "1 partitions"),
        ("alignment", "sda", false, "sda1"),
        ("RAID stripe", "md0", false, "raid5 of 6 disks, chunk 512 KiB, stripe 2.5 MiB"),
        ("mount options", "/data", false, "sync"),
        ("mount options", "/", true, "ext4"),
        ("NIC and disk together", "nvme0n1", true, "with ens1f0, ens1f1, eno1"),
        ("NIC and disk together", "nvme1n1", false, "where no NIC is"),
    ] {
        let found = finding(&findings, what, subject);
        assert!(
            found.good == good && found.says.contains(words),
            "wanted {what} of {subject} {good} '{words}': {found:?}"
        );
    }
    let buffers: Vec<&Finding> = findings.iter().filter(|finding| finding.what == "socket buffers").collect();
    assert_eq!(
        buffers.iter().map(|finding| finding.good).collect::<Vec<_>>(),
        [false, true, false, false],
        "{buffers:?}"
    );
    // One interrupt pair without a core of its own: irqbalance is not reported off.
    assert!(
        findings.iter().any(|finding| finding.what == "interrupt balancer" && !finding.good),
        "every interrupt of ens1f0 is placed"
    );
    let silent: Vec<&str> = RULES
        .iter()
        .map(|rule| rule.what)
        .filter(|what| !findings.iter().any(|finding| finding.what == *what))
        .collect();
    assert_eq!(silent, Vec::<&str>::new(), "every rule speaks about this machine");
}

#[test]
fn a_container_says_what_it_hides() {
    let facts = machine(include_str!("../../topology/records/container.txt"));
    assert_eq!(facts.cores.iter().map(|core| core.id).collect::<Vec<_>>(), [0, 1], "from /proc/stat");
    let hidden = facts.hidden.join("\n");
    for words in [
        "this is a container",
        "no interface here has a device",
        "/sys/block shows none",
        "no cache topology",
        "NUMA nodes",
        "clock governor",
        "/proc cannot be listed",
    ] {
        assert!(hidden.contains(words), "{words}: {hidden}");
    }
    let findings = judge(&facts, &[]);
    assert!(
        findings.iter().all(|finding| finding.what == "socket buffers"),
        "a rule is silent about what it does not know: {findings:?}"
    );
    let shown = lines::show(&facts, &findings);
    assert!(shown.contains("NUMA node not reported:\n  cores 0-1"), "{shown}");
    assert!(page::page(&facts, &findings, &[], None, 0).contains("NUMA node not reported"));
}

#[test]
fn nothing_at_all_is_no_reason_to_fail() {
    let facts = machine("");
    assert!(facts.cores.is_empty() && !facts.hidden.is_empty());
    assert!(judge(&facts, &[]).is_empty());
    assert!(!lines::show(&facts, &[]).is_empty() && !page::page(&facts, &[], &[], None, 0).is_empty());
}

#[test]
fn the_picture_puts_together_what_sits_together_and_takes_no_markup() {
    let record =
        include_str!("../../topology/records/two-sockets.txt").replace("EXAMPLE HDD", "<script>alert(1)</script>");
    let facts = machine(&record);
    let findings = judge(&facts, &[]);
    let page = page::page(&facts, &findings, &[], None, 0);
    let nodes: Vec<&str> =
        page.split("<section").skip(1).map(|node| node.split("</section>").next().unwrap()).collect();
    assert_eq!(nodes.len(), 3, "two nodes, and the RAID that has none");
    for (node, words) in nodes.iter().zip([
        [
            "NUMA node 0, socket 0",
            "memory 125 GiB",
            "<b>ens1f0<",
            "<b>nvme0n1<",
            "CPUs 0-7,16-23",
            "PCIe x16 at 8 GT/s",
        ],
        ["NUMA node 1, socket 1", "distance 21 to node 0", "<b>ens5f0<", "<b>nvme1n1<", "CPUs 8-15,24-31", "isolated"],
        ["NUMA node not reported", "<b>md0<", "raid5 of", "", "", ""],
    ]) {
        let lacks: Vec<&str> = words.into_iter().filter(|word| !node.contains(word) && *word != "isolated").collect();
        assert!(lacks.is_empty(), "{lacks:?}: {node}");
    }
    assert!(nodes[0].contains("isolated") && nodes[0].contains("interrupts of ens1f0"), "{}", nodes[0]);
    assert!(!page.contains("<script") && !page.contains("http"), "nothing of others, nothing from elsewhere");
    let shown = lines::show(&facts, &findings);
    let (first, second) = (shown.find("node 0:").unwrap(), shown.find("node 1:").unwrap());
    assert!((first..second).contains(&shown.find("NIC ens1f0").unwrap()), "{shown}");
}

/// All that `host plan` would change, unasked, of a recorded machine.
fn plan(tree: &Tree, facts: &Facts) -> Vec<Change> {
    rules::plan(tree, facts, |rule| !rule.by_name)
}

#[test]
fn what_the_picture_and_the_findings_mark_is_what_the_plan_changes() {
    for record in [
        include_str!("../../topology/records/two-sockets.txt"),
        include_str!("../../topology/records/four-drives.txt"),
        include_str!("../../topology/records/container.txt"),
    ] {
        let tree = Tree::parse(record).unwrap();
        let facts = facts::read(&tree);
        let plan = plan(&tree, &facts);
        let findings = judge(&facts, &rules::plan(&tree, &facts, |_| true));
        let counted = |of: &dyn Fn(&Finding) -> bool| -> usize {
            findings
                .iter()
                .filter(|it| of(it))
                .filter_map(|it| it.plan)
                .filter(|it| !it.by_name)
                .map(|it| it.values)
                .sum()
        };
        assert_eq!(counted(&|_| true), plan.len(), "each value is of one finding: {findings:?}");
        assert_eq!(counted(&|it| it.good), 0, "what the plan changes is not called good: {findings:?}");
        let page = page::page(&facts, &findings, &plan, Some("a"), 0);
        let boxes: Vec<(&str, &str)> = page
            .split("<li class=\"dev\">")
            .skip(1)
            .map(|it| it.split("</li>").next().unwrap())
            .map(|it| (it.split("<b>").nth(1).unwrap().split('<').next().unwrap(), it))
            .collect();
        assert_eq!(boxes.len(), facts.nics.len() + facts.disks.len());
        for (name, words) in boxes {
            for rule in rules::RULES {
                let is_planned = plan.iter().any(|it| it.rule == rule.name && it.subject(&facts) == name);
                let is_marked = words.contains(&format!("◆\u{a0}{}", rule.name));
                assert_eq!(is_marked, is_planned, "{} of {name}: {words}", rule.name);
            }
        }
        for change in &plan {
            let place = change.place.to_string();
            let is_there = page.contains(&text::page::escape(&place)) || page.contains("more</li>");
            assert!(is_there, "{place} stands in the plan of the page");
        }
    }
}

#[test]
fn a_record_has_the_plan_of_its_machine() {
    let tree = Tree::parse(include_str!("../../topology/records/two-sockets.txt")).unwrap();
    let facts = facts::read(&tree);
    let said: Vec<String> = plan(&tree, &facts)
        .iter()
        .map(|it| format!("{} {} {} {}", it.rule, it.subject(&facts), it.old, it.new))
        .collect();
    for words in [
        "irqbalance host running held",
        "rings ens1f1 1024 1024 8192 8192",
        "offloads ens1f1 0 1",
        "disk-scheduler nvme1n1 mq-deadline none",
        "idle-start host 1 0",
    ] {
        assert!(said.iter().any(|it| it == words), "{words}: {said:#?}");
    }
    assert!(!said.iter().any(|it| it.contains("ens5f0")), "a port that is down is left: {said:#?}");
}
