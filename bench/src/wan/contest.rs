//! Who competes: ours by transport and policy, TCP by congestion control and number of streams, and what the user names.
//!
//! For: `bench wan`. In and out: the user's wishes and what this machine has → contestants, and a sentence for each that cannot be had.
//! Invariants: nobody is left out without a word; a command shown is the one that ran, less the paths of this machine.
//! Absent on purpose: running them (race.rs).

use crate::race::{Contestant, Reading, Words};
use crate::wan::grid::{Cell, OURS_BYTES, Plan, TCP_BYTES, UDP_BYTES};
use text::units;

/// The port of our daemon on host b; the hosts are ours alone.
pub const PORT: u16 = 5740;
/// Of iperf3.
const IPERF_PORT: u16 = 5201;

/// A program, or a transport of ours, that is raced over one emulated path.
#[derive(Debug, Clone, PartialEq)]
pub struct Entrant {
    pub contestant: Contestant,
    /// Bytes of the user in a packet of 1500, of which its limit is reckoned.
    pub payload_bytes: f64,
}

/// The user's wishes.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub policies: &'a [String],
    pub controllers: &'a [String],
    pub controls: &'a [String],
    pub streams: &'a [u16],
    /// `NAME=COMMAND`.
    pub peers: &'a [String],
    /// The same for host b.
    pub servers: &'a [String],
    /// Only names that hold one of these; empty: all.
    pub only: &'a [String],
    pub memory_bytes: u64,
}

/// What of it this machine has.
#[derive(Debug, Clone, Default)]
pub struct Have {
    /// First line of `iperf3 --version`; `None`: it is not installed.
    pub iperf3: Option<String>,
    /// Congestion controls that a socket in the lab's hosts may have.
    pub controls: Vec<String>,
    /// Those that the kernel has, but not for these hosts.
    pub forbidden: Vec<String>,
}

/// All contestants, in the order in which they take turns, and why others are missing. Errors: a peer that is not `NAME=COMMAND`.
pub fn all(wanted: Wanted<'_>, have: &Have) -> Result<(Vec<Entrant>, Vec<String>), String> {
    let mut list = Vec::new();
    for policy in wanted.policies {
        for controller in wanted.controllers {
            let by = if controller == "delay" { String::new() } else { format!(" by {controller}") };
            // A hundredth of the wire is left to feedback and to the greeting.
            let rate = if policy == "fixed" { " --rate={rate}" } else { "" };
            let options = format!(
                "--transport=udp --policy={policy} --congestion-controller={controller} --memory={{memory}}{rate}"
            );
            list.push(ours(format!("longhaul udp {policy}{by}"), &options, OURS_BYTES, wanted));
        }
    }
    list.push(ours("longhaul tcp".to_owned(), "--transport=tcp --memory={memory}", TCP_BYTES, wanted));
    let mut notes = Vec::new();
    if have.iperf3.is_none() && !wanted.controls.is_empty() {
        notes.push("iperf3 is not installed: no lines of bare TCP".to_owned());
    }
    for control in wanted.controls.iter().filter(|_| have.iperf3.is_some()) {
        if have.controls.contains(control) {
            list.extend(wanted.streams.iter().map(|&streams| bare_tcp(control, streams)));
        } else if have.forbidden.contains(control) {
            notes.push(format!("TCP {control}: this kernel keeps it to the machine's own network, and does not let the lab's hosts have it"));
        } else {
            notes.push(format!("TCP {control}: this kernel does not have it (modprobe tcp_{control}?)"));
        }
    }
    for words in wanted.peers {
        let (name, client) = pair(words)?;
        let server = wanted.servers.iter().map(|words| pair(words)).collect::<Result<Vec<_>, _>>()?;
        let server = server.into_iter().find(|(of, _)| *of == name).map(|(_, command)| Words::shell(command));
        let (name, client) = (name.to_owned(), Words::shell(client));
        let contestant = Contestant { name, client, server: server.unwrap_or_default(), ..Contestant::default() };
        list.push(Entrant { contestant, payload_bytes: UDP_BYTES });
    }
    for words in wanted.servers {
        let (name, _) = pair(words)?;
        if !wanted.peers.iter().any(|peer| pair(peer).is_ok_and(|(of, _)| of == name)) {
            return Err(format!("--peer-server {name}: there is no --peer of that name"));
        }
    }
    list.retain(|one| {
        wanted.only.is_empty() || wanted.only.iter().any(|only| one.contestant.name.contains(only.as_str()))
    });
    if list.is_empty() {
        return Err("no contestant has that name".to_owned());
    }
    Ok((list, notes))
}

fn ours(name: String, options: &str, payload_bytes: f64, wanted: Wanted<'_>) -> Entrant {
    let memory = units::exact_size(wanted.memory_bytes);
    let words = |line: String| Words::parse(&line.replace("{memory}", &memory));
    let contestant = Contestant {
        name,
        ours: true,
        encrypts: true,
        server: words(format!("{{exe}} serve --listen 0.0.0.0:{PORT} --ticket --root={{dst_dir}} --memory={{memory}}")),
        ready: "longhaul://".to_owned(),
        client: words(format!("{{exe}} cp --json --no-keep {options} {{src}} longhaul://TICKET@{{b}}:{PORT}/")),
        reading: Reading::Report,
        ..Contestant::default()
    };
    Entrant { contestant, payload_bytes }
}

fn bare_tcp(control: &str, streams: u16) -> Entrant {
    let contestant = Contestant {
        name: format!("TCP {} × {streams}", control.to_uppercase()),
        lacks: "memory to memory: no file, no encryption, no digest".to_owned(),
        server: Words::parse(&format!("iperf3 -s -1 --forceflush -p {IPERF_PORT}")),
        ready: "Server listening".to_owned(),
        client: Words::parse(&format!("iperf3 -c {{b}} -p {IPERF_PORT} -t {{seconds}} -C {control} -P {streams} -J")),
        reading: Reading::Iperf3,
        ..Contestant::default()
    };
    Entrant { contestant, payload_bytes: TCP_BYTES }
}

fn pair(words: &str) -> Result<(&str, &str), String> {
    let (name, command) = words.split_once('=').unwrap_or_default();
    if name.is_empty() || command.trim().is_empty() {
        return Err(format!("'{words}': write NAME=COMMAND"));
    }
    Ok((name, command))
}

/// Values of one run that depend on the link alone: those for the rate of a fixed policy, the time of a plan, the address of host b.
#[must_use]
pub fn values(cell: &Cell, plan: Plan, address: &str) -> [(&'static str, String); 3] {
    // Wire bytes of packets with their heads.
    let rate = format!("{}bit", cell.rate_bps / 100 * 99 * 1472 / 1500);
    [("rate", rate), ("seconds", plan.seconds.ceil().max(1.0).to_string()), ("b", address.to_owned())]
}

/// The commands for the record, with this machine's paths replaced.
#[must_use]
pub fn shown(one: &Contestant, values: &[(&'static str, String)]) -> String {
    let mut values: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
    values.extend([("exe", "longhaul"), ("src", "FILE"), ("dst_dir", "FOLDER")]);
    match (is_users_own(one), one.server.0.is_empty()) {
        (false, _) => one.client.show(&values),
        (true, true) => one.client.show(&[]),
        (true, false) => format!("b: {}; a: {}", one.server.show(&[]), one.client.show(&[])),
    }
}

/// The user's command: what looks like a name of ours in it belongs to the shell.
#[must_use]
pub fn is_users_own(one: &Contestant) -> bool {
    one.reading == Reading::Clock
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    fn names(peers: &[&str], servers: &[&str], have: &Have) -> Result<(Vec<String>, Vec<String>), String> {
        let (policies, controllers, controls) = (words(&["fair", "low"]), words(&["delay"]), words(&["cubic", "bbr"]));
        let (peers, servers) = (words(peers), words(servers));
        let wanted = Wanted {
            policies: &policies,
            controllers: &controllers,
            controls: &controls,
            streams: &[1, 8],
            peers: &peers,
            servers: &servers,
            only: &[],
            memory_bytes: 256 << 20,
        };
        all(wanted, have).map(|(list, notes)| (list.into_iter().map(|one| one.contestant.name).collect(), notes))
    }

    #[test]
    fn what_is_missing_is_said() {
        let (list, notes) = names(&[], &[], &Have::default()).unwrap();
        assert_eq!(list, ["longhaul udp fair", "longhaul udp low", "longhaul tcp"]);
        assert!(notes[0].contains("iperf3 is not installed"), "{notes:?}");
        let have =
            Have { iperf3: Some("iperf 3.12".to_owned()), controls: words(&["bbr"]), forbidden: words(&["cubic"]) };
        let (list, notes) = names(&[], &[], &have).unwrap();
        assert_eq!(list[3..], ["TCP BBR × 1", "TCP BBR × 8"]);
        assert!(notes[0].contains("does not let the lab's hosts have it"), "{notes:?}");
    }

    #[test]
    fn peers_have_names_and_servers_peers() {
        let (list, _) = names(&["udt=send --to $LONGHAUL_LAB_B"], &["udt=recv"], &Have::default()).unwrap();
        assert_eq!(list[3], "udt");
        assert!(names(&["udt"], &[], &Have::default()).unwrap_err().contains("NAME=COMMAND"));
        assert!(names(&[], &["udt=recv"], &Have::default()).unwrap_err().contains("no --peer of that name"));
    }

    #[test]
    fn a_command_is_shown_without_the_paths_of_this_machine() {
        let cell = Cell::parse("1Gbit", "100ms", "1%").unwrap();
        let (policies, none) = (words(&["fixed"]), Vec::new());
        let wanted = Wanted {
            policies: &policies,
            controllers: &words(&["delay"]),
            controls: &none,
            streams: &[],
            peers: &words(&["nc=nc $LONGHAUL_LAB_B <$BENCH_FILE"]),
            servers: &words(&["nc=nc -l"]),
            only: &none,
            memory_bytes: 256 << 20,
        };
        let (list, _) = all(wanted, &Have::default()).unwrap();
        let values = values(&cell, Plan { seconds: 10.0, bytes: 1 }, "10.99.0.2");
        assert_eq!(list[0].contestant.server.0[1], "serve");
        assert_eq!(
            shown(&list[0].contestant, &values),
            "longhaul cp --json --no-keep --transport=udp --policy=fixed --congestion-controller=delay --memory=256MiB --rate=971520000bit FILE longhaul://TICKET@10.99.0.2:5740/"
        );
        assert_eq!(shown(&list[2].contestant, &values), "b: nc -l; a: nc $LONGHAUL_LAB_B <$BENCH_FILE");
    }
}
