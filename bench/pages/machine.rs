//! A made-up host: two sockets of 64 cores with two threads each, four NUMA nodes, eight ports of 200 Gbit/s, 24 NVMe drives.
//!
//! For: a picture of a large machine. In and out: nothing → a record, as `host show --record` writes it. Absent on purpose: a reason to be real.

use std::fmt::Write as _;

fn list(from: usize, count: usize) -> String {
    format!("{}-{},{}-{}", from, from + count - 1, from + 128, from + 127 + count)
}

/// Lines of a record below a folder.
fn say(out: &mut String, at: &str, pairs: &[(&str, &str)]) {
    for (name, value) in pairs {
        let _ = writeln!(out, "{at}/{name} {}{value}", if name.ends_with("->") { "" } else { "= " });
    }
}

/// A link of so many lanes, below this folder of a device.
fn link(out: &mut String, at: &str, lanes: &str, most: &str) {
    let pairs = [
        ("current_link_width", lanes),
        ("max_link_width", lanes),
        ("current_link_speed", "16.0 GT/s PCIe"),
        ("max_link_speed", most),
    ];
    say(out, at, &pairs);
}

fn cores(out: &mut String) {
    for cpu in 0..256_usize {
        let core = cpu % 128;
        let pairs = [
            ("topology/physical_package_id", &*(core / 64).to_string()),
            ("topology/thread_siblings_list", &format!("{core},{}", core + 128)),
            ("cache/", "index0 index3"),
            ("cache/index3/shared_cpu_list", &list(core / 8 * 8, 8)),
            ("cache/index3/level", "3"),
            ("cache/index3/size", "16384K"),
            ("cpufreq/scaling_governor", "schedutil"),
        ];
        say(out, &format!("sys/devices/system/cpu/cpu{cpu}"), &pairs);
    }
    for node in 0..4_usize {
        let far = |other: usize| if other == node { "10" } else { ["32", "12"][usize::from(other / 2 == node / 2)] };
        let pairs = [
            ("cpulist", &*list(node * 32, 32)),
            ("meminfo", &format!("Node {node} MemTotal: 395000000 kB\\nNode {node} MemFree: 300000000 kB")),
            ("distance", &(0..4).map(far).collect::<Vec<_>>().join(" ")),
        ];
        say(out, &format!("sys/devices/system/node/node{node}"), &pairs);
    }
}

fn nics(out: &mut String) {
    let names: Vec<String> =
        (0..8).map(|port| format!("enp{}s0f{}np{}", 65 + port / 2 * 32, port % 2, port % 2)).collect();
    say(out, "sys/class", &[("net/", &(names.join(" ") + " lo"))]);
    let queues: Vec<String> = ["rx", "tx"].iter().flat_map(|it| (0..32).map(move |at| format!("{it}-{at}"))).collect();
    for (port, name) in names.iter().enumerate() {
        let irqs: Vec<String> = (0..33).map(|at| (300 + port * 40 + at).to_string()).collect();
        let pairs = [
            ("device ->", "0000:c1:00.0"),
            ("device/driver ->", "mlx5_core"),
            ("operstate", ["up", "down"][usize::from(port == 3)]),
            ("mtu", ["9000", "1500"][port % 2]),
            ("speed", "200000"),
            ("device/numa_node", &(port / 2).to_string()),
            ("queues/", &queues.join(" ")),
            ("device/msi_irqs/", &irqs.join(" ")),
        ];
        say(out, &format!("sys/class/net/{name}"), &pairs);
        link(out, &format!("sys/class/net/{name}/device"), "16", "32.0 GT/s PCIe");
        for (at, irq) in irqs.iter().enumerate() {
            say(out, &format!("proc/irq/{irq}"), &[("smp_affinity_list", &(port / 2 * 32 + at * 3 % 32).to_string())]);
        }
        say(out, "ethtool", &[(&format!("{name}/rings"), "16 8192 0 0 8192 1024 0 0 1024 0 0")]);
    }
}

fn drives(out: &mut String) {
    let names: Vec<String> = (0..24).map(|drive| format!("nvme{drive}n1")).collect();
    say(out, "sys", &[("block/", &names.join(" "))]);
    for (number, name) in names.iter().enumerate() {
        let pairs = [
            ("size", "15002931888"),
            ("device/model", "EXAMPLE MZWLO15THBLA-00A07 Data Center SSD with a long name"),
            ("queue/rotational", "0"),
            (
                "queue/scheduler",
                ["none [mq-deadline] kyber bfq", "[none] mq-deadline kyber"][usize::from(number % 6 > 0)],
            ),
            ("queue/read_ahead_kb", "128"),
            ("device/device/numa_node", &(number / 6).to_string()),
        ];
        say(out, &format!("sys/block/{name}"), &pairs);
        link(out, &format!("sys/block/{name}/device/device"), "4", "16.0 GT/s PCIe");
    }
}

pub(super) fn four_nodes() -> String {
    let mut out = "\
proc/cpuinfo = processor\\t: 0\\nmodel name\\t: Example EPYC 9754 128-Core Processor
proc/sys/kernel/osrelease = 6.12.0-1017-example-cloud-amd64
sys/devices/system/cpu/online = 0-255
sys/devices/system/cpu/isolated = 120-127
proc/sys/net/ipv4/tcp_rmem = 4096 131072 6291456
proc/sys/net/core/rmem_max = 212992
proc/sys/kernel/numa_balancing = 1
sys/devices/system/node/ = node0 node1 node2 node3
sys/class/net/lo/mtu = 65536
running = irqbalance
"
    .to_owned();
    cores(&mut out);
    nics(&mut out);
    drives(&mut out);
    out
}
