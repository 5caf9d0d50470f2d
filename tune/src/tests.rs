//! `host show` over recorded machines.
//!
//! For: every fact and every rule, on machines that are not here. Absent on purpose: this machine, whose facts differ from one day to the next
//! (the end-to-end checks look at it).

use topology::facts::{self, Facts};
use topology::tree::Tree;

use super::findings::{Finding, RULES, judge};
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
fn cards_tell_driver_speed_queues_rings_and_interrupts() {
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
    let findings = judge(&facts);
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
        ("interrupts", "ens1f1", false, "another node than the card's: 8-9; several queues share a core"),
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
        ("card and disk together", "nvme0n1", true, "with ens1f0, ens1f1, eno1"),
        ("card and disk together", "nvme1n1", false, "where no card is"),
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
    // One interrupt pair without a core of its own: irqbalance is not told off.
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
        "memory nodes",
        "clock governor",
        "/proc cannot be listed",
    ] {
        assert!(hidden.contains(words), "{words}: {hidden}");
    }
    let findings = judge(&facts);
    assert!(
        findings.iter().all(|finding| finding.what == "socket buffers"),
        "a rule is silent about what it does not know: {findings:?}"
    );
    let shown = lines::show(&facts, &findings);
    assert!(shown.contains("memory node not told:\n  cores 0-1"), "{shown}");
    assert!(page::page(&facts, &findings).contains("memory node not told"));
}

#[test]
fn nothing_at_all_is_no_reason_to_fail() {
    let facts = machine("");
    assert!(facts.cores.is_empty() && !facts.hidden.is_empty());
    assert!(judge(&facts).is_empty());
    assert!(!lines::show(&facts, &[]).is_empty() && !page::page(&facts, &[]).is_empty());
}

#[test]
fn the_picture_puts_together_what_sits_together_and_takes_no_markup() {
    let record =
        include_str!("../../topology/records/two-sockets.txt").replace("EXAMPLE HDD", "<script>alert(1)</script>");
    let facts = machine(&record);
    let findings = judge(&facts);
    let page = page::page(&facts, &findings);
    let maps: Vec<&str> = page.split("<svg").skip(1).map(|map| map.split("</svg>").next().unwrap()).collect();
    assert_eq!(maps.len(), 3, "two nodes, and the RAID that has none");
    assert!(
        maps[0].contains("socket 0, node 0") && maps[0].contains("> ens1f0<") && maps[0].contains("> nvme0n1<"),
        "{}",
        maps[0]
    );
    assert!(
        maps[1].contains("socket 1, node 1") && maps[1].contains("> ens5f0<") && maps[1].contains("> nvme1n1<"),
        "{}",
        maps[1]
    );
    assert!(maps[2].contains("not told") && maps[2].contains("> md0<"), "{}", maps[2]);
    assert!(!page.contains("<script") && !page.contains("http"), "nothing of others, nothing from elsewhere");
    let shown = lines::show(&facts, &findings);
    let (first, second) = (shown.find("node 0:").unwrap(), shown.find("node 1:").unwrap());
    assert!((first..second).contains(&shown.find("card ens1f0").unwrap()), "{shown}");
}
