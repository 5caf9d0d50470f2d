//! Copies and streams beside other programs: one large file, many small ones, memory to memory.
//!
//! For: the speed promises of SPECIFICATION.md. In and out: the names of parts → NAME.json and NAME.html.
//! Invariants: what was measured before a Ctrl-C is kept; the same content for all contestants of a part, compared once per contestant.
//! Absent on purpose: who competes (peers.toml).

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use text::units::{parse_size, show_count, show_memory};

use super::copy::Track;
use super::field::Field;
use super::ground::{Content, Ground};
use super::hosts::Hosts;
use super::record::{Part, Record};
use super::{Common, call, machine, show_and_write};

const GIB: u64 = 1 << 30;
/// Of `empty`, which takes minutes a round.
const ROUNDS_OF_EMPTY: usize = 3;

/// `longhaul-race peers`.
#[derive(Debug, Args, Serialize)]
pub(crate) struct PeersArguments {
    #[command(flatten)]
    #[serde(flatten)]
    common: Common,
    /// Of the large file
    #[arg(long, value_parser = parse_size, default_value = "4GiB")]
    size: u64,
    #[arg(long, default_value_t = 5)]
    net_seconds: u64,
    /// net, tmpfs, disk: one stream, one large file; zipf, again, folder, empty: small files
    #[arg(long, value_delimiter = ',', default_value = "net,tmpfs,disk")]
    parts: Vec<String>,
    /// Files of `empty` and `again`; of `zipf` (1 GiB) and `folder` at most 20,000 and 200,000
    #[arg(long, default_value_t = 1_000_000)]
    files: u64,
    /// Only contestants whose name holds one of these texts: scp|rsync
    #[arg(long, value_delimiter = '|')]
    only: Vec<String>,
    /// A folder on a disk [default: $TMPDIR, else /var/tmp]
    #[arg(long)]
    #[serde(skip)]
    disk: Option<PathBuf>,
    /// Seconds after which one copy is given up
    #[arg(long, default_value_t = 180)]
    timeout: u64,
    #[arg(long, default_value = "peers")]
    name: String,
}

/// A part: what it is called, who competes, what is copied, and what is counted.
struct Plan {
    title: String,
    race: &'static str,
    content: Content,
    bytes: u64,
    count: [&'static str; 2],
}

const BY_BYTES: [&str; 2] = ["gbps", "cpu_s_per_gb"];
const BY_FILES: [&str; 2] = ["files_per_s", "cpu_s_per_million"];

impl PeersArguments {
    fn rounds(&self, part: &str) -> usize {
        if part == "empty" { self.common.rounds.min(ROUNDS_OF_EMPTY) } else { self.common.rounds }
    }

    fn plan(&self, part: &str) -> anyhow::Result<Plan> {
        let plan = |title: String, race, content, bytes, count| Plan { title, race, content, bytes, count };
        let tree = |files: u64, per_folder: u64| Content::Tree { files, per_folder };
        let large = |place: &str| format!("cp of one {} file of random bytes, {place}", show_memory(self.size));
        let small = |title: String| format!("{title} (median of {})", self.rounds(part));
        let (zipf, all, one) = (self.files.min(20_000), self.files, self.files.min(200_000));
        let empty = format!("{} empty files, 1,000 to a folder", count_of(all));
        Ok(match part {
            "net" => {
                let title = "net: memory to memory, one stream, a core each".to_owned();
                plan(title, "net", Content::None, 0, BY_BYTES)
            }
            "tmpfs" => plan(large("tmpfs to tmpfs"), "copy", Content::File, self.size, BY_BYTES),
            "disk" => {
                let title = large("disk to disk, cold source, until flushed to disk");
                plan(title, "copy", Content::File, self.size, ["gbps_flushed", "cpu_s_per_gb"])
            }
            "zipf" => {
                let bytes = GIB * zipf / 20_000;
                let title = format!("{} files of Zipf sizes, {}, tmpfs to tmpfs", count_of(zipf), show_memory(bytes));
                let title = small(title);
                plan(title, "tree", tree(zipf, 200), bytes, BY_BYTES)
            }
            "again" => plan(small(empty + ": the second run, nothing changed"), "again", tree(all, 1000), 0, BY_FILES),
            "empty" => plan(small(empty), "tree", tree(all, 1000), 0, BY_FILES),
            "folder" => {
                let title = small(format!("one folder of {} empty files", count_of(one)));
                plan(title, "tree", tree(one, one), 0, BY_FILES)
            }
            _ => anyhow::bail!("no part {part}"),
        })
    }

    fn race(&self, hosts: &Hosts, part: &str) -> anyhow::Result<Part> {
        let Plan { title, race, content, bytes, count } = self.plan(part)?;
        let is_disk = part == "disk";
        let disk = || std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
        let root = if is_disk { self.disk.clone().unwrap_or_else(disk) } else { self.common.tmpfs.clone() };
        let mut ground = Ground::make(&root, content, bytes)?;
        ground.cold = is_disk;
        if part == "again" {
            let (from, to) = (ground.source(), ground.destination());
            call("cp", &["-a".as_ref(), from.as_os_str(), to.as_os_str()])?;
            ground.keeps = true;
        }
        let field = Field::read(if is_disk { "--durability flushed" } else { "" })?;
        let mut contestants = field.contestants(race)?;
        contestants.retain(|one| self.only.is_empty() || self.only.iter().any(|only| one.name.contains(only)));
        let is_pinned = race == "net";
        // What hangs before it begins has its time too.
        let timeout = Duration::from_secs(if is_pinned { self.net_seconds + 30 } else { self.timeout });
        let exe = &self.common.longhaul;
        let track = Track { hosts, field: &field, ground: &ground, exe, timeout, seconds: self.net_seconds, is_pinned };
        let run = |one: &_, is_first: bool| (track.shown(one), track.run(one, is_first, || ()));
        let raced = Part::race(title, count, &contestants, self.rounds(part), &exe.display().to_string(), run);
        let is_tree = matches!(content, Content::Tree { .. });
        Ok(if is_tree { raced.against_pairs(&field.pairs, part == "zipf") } else { raced.against_best(!is_pinned) })
    }
}

fn count_of(files: u64) -> String {
    show_count(files).replace(' ', ",")
}

/// All parts.
pub(crate) fn run(mut arguments: PeersArguments) -> anyhow::Result<()> {
    arguments.common.settle()?;
    let hosts = Hosts::make()?;
    let mut record = Record {
        machine: machine(&hosts),
        arguments: serde_json::to_value(&arguments)?,
        parts: Vec::new(),
        verdicts: Vec::new(),
    };
    for name in &arguments.parts {
        let part = arguments.race(&hosts, name)?;
        let is_stopped = part.is_stopped;
        record.parts.push(part);
        if is_stopped {
            println!("stopped: what was done is kept");
            break;
        }
    }
    show_and_write(record, &arguments.common.out, &arguments.name)
}
