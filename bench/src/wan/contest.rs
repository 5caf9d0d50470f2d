//! Who competes: ours by transport and policy, TCP by congestion control and number of streams, and what the user names.
//!
//! For: `bench wan`. In and out: the user's wishes and what this machine has → contestants, and a sentence for each that cannot be had.
//! Invariants: nobody is left out without a word; a command shown is the one that ran, less the paths of this machine.
//! Absent on purpose: running them (race.rs).

use std::path::Path;

use crate::wan::grid::{Cell, OURS_BYTES, Plan, TCP_BYTES, UDP_BYTES};
use text::units;

/// The port of our daemon on host b; the hosts are ours alone.
pub const PORT: u16 = 5740;
/// Of iperf3.
const IPERF_PORT: u16 = 5201;

/// How a contestant is run and asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// `longhaul cp` with these options, to `longhaul serve`.
    Copy { options: Vec<String>, fixed: bool },
    /// iperf3, for the time of the plan.
    Streams { control: String, streams: u16 },
    /// The user's command on host a; where there is one, another on host b first.
    Peer { client: String, server: Option<String> },
}

/// A program, or a transport of ours, that is raced over one emulated path.
#[derive(Debug, Clone, PartialEq)]
pub struct Contestant {
    /// As tables show it.
    pub name: String,
    pub kind: Kind,
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
pub fn all(wanted: Wanted<'_>, have: &Have) -> Result<(Vec<Contestant>, Vec<String>), String> {
    let mut list = Vec::new();
    for policy in wanted.policies {
        for controller in wanted.controllers {
            let by = if controller == "delay" { String::new() } else { format!(" by {controller}") };
            let options = vec![
                "--transport=udp".to_owned(),
                format!("--policy={policy}"),
                format!("--congestion-controller={controller}"),
            ];
            list.push(ours(format!("longhaul udp {policy}{by}"), options, policy == "fixed", OURS_BYTES, wanted));
        }
    }
    list.push(ours("longhaul tcp".to_owned(), vec!["--transport=tcp".to_owned()], false, TCP_BYTES, wanted));
    let mut notes = Vec::new();
    if have.iperf3.is_none() && !wanted.controls.is_empty() {
        notes.push("iperf3 is not installed: no lines of bare TCP".to_owned());
    }
    for control in wanted.controls.iter().filter(|_| have.iperf3.is_some()) {
        if have.controls.contains(control) {
            list.extend(wanted.streams.iter().map(|&streams| Contestant {
                name: format!("TCP {} × {streams}", control.to_uppercase()),
                kind: Kind::Streams { control: control.clone(), streams },
                payload_bytes: TCP_BYTES,
            }));
        } else if have.forbidden.contains(control) {
            notes.push(format!("TCP {control}: this kernel keeps it to the machine's own network, and does not let the lab's hosts have it"));
        } else {
            notes.push(format!("TCP {control}: this kernel does not have it (modprobe tcp_{control}?)"));
        }
    }
    for words in wanted.peers {
        let (name, client) = pair(words)?;
        let server = wanted.servers.iter().map(|words| pair(words)).collect::<Result<Vec<_>, _>>()?;
        let server = server.into_iter().find(|(of, _)| *of == name).map(|(_, command)| command.to_owned());
        let kind = Kind::Peer { client: client.to_owned(), server };
        list.push(Contestant { name: name.to_owned(), kind, payload_bytes: UDP_BYTES });
    }
    for words in wanted.servers {
        let (name, _) = pair(words)?;
        if !wanted.peers.iter().any(|peer| pair(peer).is_ok_and(|(of, _)| of == name)) {
            return Err(format!("--peer-server {name}: there is no --peer of that name"));
        }
    }
    list.retain(|one| wanted.only.is_empty() || wanted.only.iter().any(|only| one.name.contains(only.as_str())));
    if list.is_empty() {
        return Err("no contestant has that name".to_owned());
    }
    Ok((list, notes))
}

fn ours(name: String, mut options: Vec<String>, fixed: bool, payload_bytes: f64, wanted: Wanted<'_>) -> Contestant {
    options.push(format!("--memory={}", units::exact_size(wanted.memory_bytes)));
    Contestant { name, kind: Kind::Copy { options, fixed }, payload_bytes }
}

fn pair(words: &str) -> Result<(&str, &str), String> {
    let (name, command) = words.split_once('=').unwrap_or_default();
    if name.is_empty() || command.trim().is_empty() {
        return Err(format!("'{words}': write NAME=COMMAND"));
    }
    Ok((name, command))
}

/// Arguments of a client and of a server; without the programs where they are ours.
#[derive(Debug, Clone, PartialEq)]
pub struct Lines {
    /// On host b, first; empty: none.
    pub server: Vec<String>,
    /// What the server prints when it is ready; empty: a moment is waited.
    pub ready: &'static str,
    /// On host a.
    pub client: Vec<String>,
}

/// Places of a run.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// This program.
    pub exe: &'a Path,
    /// The file to send.
    pub source: &'a Path,
    /// The empty folder of host b.
    pub destination: &'a Path,
    /// Address of host b.
    pub address: &'a str,
}

impl Contestant {
    /// The commands of one run; `ticket` stands for what the daemon will print.
    #[must_use]
    pub fn lines(&self, cell: &Cell, plan: Plan, places: Places<'_>) -> Lines {
        let show = |path: &Path| path.display().to_string();
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        match &self.kind {
            Kind::Copy { options, fixed } => {
                let memory = options.iter().find(|option| option.starts_with("--memory=")).cloned();
                let listen = format!("0.0.0.0:{PORT}");
                let mut server = words(&[&show(places.exe), "serve", "--listen", &listen, "--ticket"]);
                server.extend([format!("--root={}", show(places.destination))].into_iter().chain(memory));
                let mut client = words(&[&show(places.exe), "cp", "--json", "--no-keep"]);
                client.extend(options.iter().cloned());
                if *fixed {
                    // Wire bytes of packets with their heads; a hundredth is left to feedback and to the greeting.
                    client.push(format!("--rate={}bit", cell.rate_bps / 100 * 99 * 1472 / 1500));
                }
                client.push(show(places.source));
                client.push(format!("longhaul://TICKET@{}:{PORT}/", places.address));
                Lines { server, ready: "longhaul://", client }
            }
            Kind::Streams { control, streams } => {
                let port = IPERF_PORT.to_string();
                let seconds = plan.seconds.ceil().max(1.0).to_string();
                Lines {
                    server: words(&["iperf3", "-s", "-1", "--forceflush", "-p", &port]),
                    ready: "Server listening",
                    client: words(&[
                        "iperf3",
                        "-c",
                        places.address,
                        "-p",
                        &port,
                        "-t",
                        &seconds,
                        "-C",
                        control,
                        "-P",
                        &streams.to_string(),
                        "-J",
                    ]),
                }
            }
            Kind::Peer { client, server } => Lines {
                server: server.as_deref().map(|line| words(&["sh", "-c", line])).unwrap_or_default(),
                ready: "",
                client: words(&["sh", "-c", client]),
            },
        }
    }

    /// The client's command for the record, with this machine's paths replaced.
    #[must_use]
    pub fn shown(&self, lines: &Lines, places: Places<'_>) -> String {
        let text = match &self.kind {
            Kind::Peer { client, server: Some(server) } => format!("b: {server}; a: {client}"),
            Kind::Peer { client, server: None } => client.clone(),
            _ => lines.client.join(" "),
        };
        let replace = [(places.exe, "longhaul"), (places.source, "FILE"), (places.destination, "FOLDER")];
        replace.iter().fold(text, |text, (path, word)| text.replace(&path.display().to_string(), word))
    }
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
        all(wanted, have).map(|(list, notes)| (list.into_iter().map(|one| one.name).collect(), notes))
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
        let places = Places {
            exe: Path::new("/opt/x/longhaul"),
            source: Path::new("/tmp/q/file"),
            destination: Path::new("/tmp/q/to"),
            address: "10.99.0.2",
        };
        let options = words(&["--transport=udp", "--memory=256MiB"]);
        let kind = Kind::Copy { options, fixed: true };
        let one = Contestant { name: "x".to_owned(), kind, payload_bytes: OURS_BYTES };
        let lines = one.lines(&cell, Plan { seconds: 10.0, bytes: 1 }, places);
        assert_eq!(lines.server[1], "serve");
        assert_eq!(
            one.shown(&lines, places),
            "longhaul cp --json --no-keep --transport=udp --memory=256MiB --rate=971520000bit FILE longhaul://TICKET@10.99.0.2:5740/"
        );
    }
}
