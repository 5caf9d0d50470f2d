//! Where a setting of this machine lives: read it, write it, say it in shell.
//!
//! For: whoever plans, applies and undoes. In and out: a place → its value as text; a value → there.
//! Invariants: a value that was read can be written back and is then read the same again; a write is checked by reading.
//! Absent on purpose: which value is good (`rules`), and when (`lease`).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use sys::nic;
use sys::qdisc::{self, Discipline};
use topology::tree::Tree;

/// What of a NIC is set by ethtool's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Knob {
    /// Descriptors of the receive ring and of the transmit ring: one order, for many drivers drop the link at each.
    Rings,
    /// Queues of both directions together.
    Channels,
    /// Microseconds until a receive interrupt.
    RxUsecs,
    /// Receive interrupts follow the load: 0 or 1.
    Adaptive,
    /// TCP segmentation by the NIC.
    Tso,
    /// Segmentation before the NIC.
    Gso,
    /// Joining of received packets.
    Gro,
    /// Steering of flows by the NIC, which aRFS needs: a bit of the flags.
    Ntuple,
}

impl Knob {
    /// The question, how to set it, the words of the answer it is, ethtool(8)'s option, and its names for the words.
    const fn row(self) -> (u32, u32, &'static [usize], &'static str, &'static [&'static str]) {
        match self {
            Knob::Rings => (nic::RINGS, nic::SET_RINGS, &[5, 8], "-G", &["rx", "tx"]),
            Knob::Channels => (nic::CHANNELS, nic::SET_CHANNELS, &[8], "-L", &["combined"]),
            Knob::RxUsecs => (nic::COALESCING, nic::SET_COALESCING, &[1], "-C", &["rx-usecs"]),
            Knob::Adaptive => (nic::COALESCING, nic::SET_COALESCING, &[10], "-C", &["adaptive-rx"]),
            Knob::Tso => (nic::TSO, nic::SET_TSO, &[1], "-K", &["tso"]),
            Knob::Gso => (nic::GSO, nic::SET_GSO, &[1], "-K", &["gso"]),
            Knob::Gro => (nic::GRO, nic::SET_GRO, &[1], "-K", &["gro"]),
            Knob::Ntuple => (nic::FLAGS, nic::SET_FLAGS, &[1], "-K", &["ntuple"]),
        }
    }

    /// The bit of the word that it is, if it is not all of it.
    const fn bit(self) -> Option<u32> {
        match self {
            Knob::Ntuple => Some(27),
            _ => None,
        }
    }

    /// What records call the answer that it is a part of (`topology::nics`).
    const fn recorded(self) -> &'static str {
        match self {
            Knob::Rings => "rings",
            Knob::Channels => "channels",
            Knob::RxUsecs | Knob::Adaptive => "coalescing",
            Knob::Tso => "tso",
            Knob::Gso => "gso",
            Knob::Gro => "gro",
            Knob::Ntuple => "flags",
        }
    }

    const fn is_switch(self) -> bool {
        matches!(self, Knob::Adaptive | Knob::Tso | Knob::Gso | Knob::Gro | Knob::Ntuple)
    }
}

/// How a discipline ends that the kernel has put there by itself, and puts there again.
pub const DEFAULT: &str = " (default)";

/// Send queues of an interface.
fn send_queues(nic: &str) -> usize {
    let queues = std::fs::read_dir(Path::new("/sys/class/net").join(nic).join("queues"));
    let is_send = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("tx-");
    queues.map_or(1, |queues| queues.flatten().filter(is_send).count())
}

/// A place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// A file of /proc or /sys, with its whole path.
    File(PathBuf),
    /// A NIC's own setting; in journals, by an older name.
    #[serde(rename = "card")]
    Nic {
        /// Interface.
        #[serde(rename = "card")]
        nic: String,
        /// Which.
        knob: Knob,
    },
    /// The queueing discipline at a NIC's way out: `fq`, at each of its queues; `noqueue (default)`: what the kernel puts there by itself.
    Qdisc {
        /// Interface.
        #[serde(rename = "card")]
        nic: String,
    },
    /// A program that rearranges what was arranged: `running`, or `held` (SIGSTOP). By its number and the tick it started at, so that another
    /// program that got its number is left alone.
    Program {
        /// As `ps` names it.
        name: String,
        /// Process.
        pid: u32,
        /// Since the machine's start.
        ticks: u64,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File(path) => match path.strip_prefix("/proc/sys") {
                Ok(name) => f.write_str(&name.to_string_lossy().replace('/', ".")),
                Err(_) => write!(f, "{}", path.display()),
            },
            Place::Nic { nic, knob } => {
                write!(f, "{nic} {}", knob.row().4.join(" and "))
            }
            Place::Qdisc { nic } => write!(f, "{nic} qdisc"),
            Place::Program { name, pid: 0, .. } => f.write_str(name),
            Place::Program { name, pid, .. } => write!(f, "{name} (process {pid})"),
        }
    }
}

/// What a machine's start is known by: values of another start are not ours to undo.
#[must_use]
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Tick of the start of a process, and whether it is stopped (proc_pid_stat(5)).
#[must_use]
pub fn process(pid: u32) -> Option<(u64, bool)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold blanks and parentheses itself.
    let rest: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some((rest.get(19)?.parse().ok()?, matches!(rest.first(), Some(&("T" | "t")))))
}

impl Place {
    /// It is the longest packet of this interface.
    #[must_use]
    pub fn is_mtu_of(&self, nic: &str) -> bool {
        matches!(self, Place::File(path) if *path == Path::new("/sys/class/net").join(nic).join("mtu"))
    }

    /// The value as it is now.
    ///
    /// # Errors
    /// The place is gone, or is not to be read.
    pub fn read(&self) -> io::Result<String> {
        match self {
            Place::File(path) => Ok(tidy(path, &std::fs::read_to_string(path)?)),
            Place::Nic { nic, knob } => {
                let (question, _, places, ..) = knob.row();
                let words = nic::ask(nic, question)?;
                let one = |place: &usize| knob.bit().map_or(words[*place], |bit| words[*place] >> bit & 1).to_string();
                Ok(places.iter().map(one).collect::<Vec<_>>().join(" "))
            }
            Place::Qdisc { nic } => {
                let Discipline { kind, is_default, children } = qdisc::read(nic)?;
                let same = children.first().filter(|first| children.iter().all(|child| child == *first));
                Ok(match (is_default, same) {
                    (true, Some(child)) => format!("{kind} of {child}{DEFAULT}"),
                    (true, None) => kind + DEFAULT,
                    (false, Some(child)) if kind == "mq" => child.clone(),
                    (false, _) => kind,
                })
            }
            Place::Program { pid, ticks, .. } => match process(*pid) {
                Some((started, stopped)) if started == *ticks => {
                    Ok(if stopped { "held" } else { "running" }.to_owned())
                }
                _ => Err(io::ErrorKind::NotFound.into()),
            },
        }
    }

    /// The value that a tree has of it: this machine's, or that of a record. `None`: it is gone or not to be read, or the record has it not.
    #[must_use]
    pub fn seen(&self, tree: &Tree) -> Option<String> {
        match self {
            Place::File(path) => tree.text(path.strip_prefix("/").ok()?.to_str()?).map(|text| tidy(path, &text)),
            Place::Nic { nic, knob } => {
                let (question, _, places, ..) = knob.row();
                let words = tree.ask_nic(nic, (knob.recorded(), question))?;
                let one = |place: &usize| {
                    let word = *words.get(*place)?;
                    Some(knob.bit().map_or(word, |bit| word >> bit & 1).to_string())
                };
                places.iter().map(one).collect::<Option<Vec<_>>>().map(|words| words.join(" "))
            }
            Place::Qdisc { nic } => tree.other(format!("qdisc/{nic}"), || self.read().ok()),
            // A record names the programs that ran (`Tree::running`), and a rule speaks of no other.
            Place::Program { .. } => match tree {
                Tree::Here(_) => self.read().ok(),
                Tree::Recorded(_) => Some("running".to_owned()),
            },
        }
    }

    /// Sets it and reads it back.
    ///
    /// # Errors
    /// EPERM, EINVAL, EOPNOTSUPP and others of the kernel; `InvalidData`: it took the value and shows another one.
    pub fn write(&self, value: &str) -> io::Result<()> {
        match self {
            Place::File(path) => std::fs::write(path, value)?,
            Place::Nic { nic, knob } => {
                let (question, order, places, ..) = knob.row();
                let mut words = nic::ask(nic, question)?;
                words[0] = order;
                for (place, value) in places.iter().zip(value.split_whitespace()) {
                    let value: u32 = value.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
                    let merged = |bit: u32| words[*place] & !(1 << bit) | value << bit;
                    words[*place] = knob.bit().map_or(value, merged);
                }
                nic::tell(nic, &words)?;
            }
            Place::Qdisc { nic } if value.ends_with(DEFAULT) => qdisc::reset(nic)?,
            Place::Qdisc { nic } => qdisc::set(nic, value, send_queues(nic))?,
            Place::Program { pid, .. } => {
                self.read()?;
                let pid = Pid::from_raw(i32::try_from(*pid).unwrap_or(0)).ok_or(io::ErrorKind::NotFound)?;
                kill_process(pid, if value == "held" { Signal::STOP } else { Signal::CONT })?;
                // A stop is complete when the last of its threads has noticed.
                for _ in 0..50 {
                    if self.read()? == value {
                        break;
                    }
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            }
        }
        let now = self.read()?;
        if now == value {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, format!("the kernel shows '{now}' afterwards")))
    }

    /// The same as a line of shell.
    #[must_use]
    pub fn shell(&self, value: &str) -> String {
        match self {
            Place::File(path) if path.starts_with("/proc/sys") => format!("sysctl -w {self}='{value}'"),
            Place::File(path) => format!("echo '{value}' > {}", path.display()),
            Place::Nic { nic, knob } => {
                let (.., option, names) = knob.row();
                let word = |value: &str| match (knob.is_switch(), value) {
                    (true, "0") => "off".to_owned(),
                    (true, _) => "on".to_owned(),
                    (false, value) => value.to_owned(),
                };
                let pairs = names.iter().zip(value.split_whitespace());
                let words: String = pairs.map(|(name, value)| format!(" {name} {}", word(value))).collect();
                format!("ethtool {option} {nic}{words}")
            }
            Place::Qdisc { nic } if value.ends_with(DEFAULT) => format!("tc qdisc del dev {nic} root"),
            Place::Qdisc { nic } => match send_queues(nic) {
                0 | 1 => format!("tc qdisc replace dev {nic} root {value}"),
                queues => format!(
                    "tc qdisc replace dev {nic} root handle 4c48: mq; for n in $(seq {queues}); do tc qdisc replace dev {nic} parent 4c48:$(printf %x $n) {value}; done"
                ),
            },
            Place::Program { pid, .. } => format!("kill -{} {pid}", if value == "held" { "STOP" } else { "CONT" }),
        }
    }
}

/// A file's value without the blanks around it; of a list of choices (`none [mq-deadline] kyber`) the chosen one. sysctls separate by tabs
/// what may be written with blanks. A set of cores loses the zeros that its kernel's number of cores puts before it.
fn tidy(path: &Path, text: &str) -> String {
    let text = text.trim();
    if path.to_string_lossy().ends_with("_cpus") {
        let cut = text.trim_start_matches(['0', ',']);
        return if cut.is_empty() { "0" } else { cut }.to_owned();
    }
    let chosen = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    match chosen {
        Some(chosen) if path.starts_with("/sys") => chosen.to_owned(),
        _ => text.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_of_an_earlier_version_is_undone() {
        let nic = || "e0".to_owned();
        for (text, place) in [
            (r#"{"card":{"card":"e0","knob":"rings"}}"#, Place::Nic { nic: nic(), knob: Knob::Rings }),
            (r#"{"qdisc":{"card":"e0"}}"#, Place::Qdisc { nic: nic() }),
        ] {
            assert_eq!(serde_json::from_str::<Place>(text).unwrap(), place);
            assert_eq!(serde_json::to_string(&place).unwrap(), text);
        }
    }
}
