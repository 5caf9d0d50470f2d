//! Copies and streams beside other programs: one large file, many small ones, memory to memory.
//!
//! For: the speed promises of SPECIFICATION.md. In and out: the names of parts → NAME.json and NAME.html.
//! Invariants: what was measured before a Ctrl-C is kept; the same content for all contestants of a part, compared once per contestant.
//! Absent on purpose: what is measured and who competes (peers.toml).

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use bench::race::contestant::fill;
use clap::Args;
use serde::Serialize;
use text::units::{parse_size, show_count, show_memory};

use super::copy::Track;
use super::field::{Field, Plan};
use super::ground::{Content, Ground};
use super::hosts::{Hosts, MTU};
use super::record::{Part, Record};
use super::{Common, call, machine, show_and_write};

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
    /// net, `two_streams`, udp: memory to memory; tmpfs, over, disk, local, `local_disk`: one large file; tiny, zipf, again, folder, empty: small files
    #[arg(long, value_delimiter = ',', default_value = "net,two_streams,udp,tmpfs,disk,local,local_disk,tiny,zipf")]
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

impl PeersArguments {
    /// A part of the table with the sizes of this run, and what is copied in it.
    fn plan(&self, mut plan: Plan) -> (Plan, Content) {
        let content = match (plan.race.as_str(), plan.files) {
            ("net" | "two_streams" | "udp", _) => Content::None,
            (_, 0) => Content::File,
            (_, most) => {
                let files = self.files.min(most);
                plan.bytes = plan.bytes * files / most;
                Content::Tree { files, per_folder: plan.per_folder }
            }
        };
        if content == Content::File && plan.bytes == 0 {
            plan.bytes = self.size;
        }
        plan.rounds = if plan.rounds == 0 { self.common.rounds } else { plan.rounds.min(self.common.rounds) };
        let files = show_count(self.files.min(plan.files)).replace(' ', ",");
        let (size, rounds) = (show_memory(plan.bytes), plan.rounds.to_string());
        plan.title = fill(&plan.title, &[("files", &files), ("size", &size), ("rounds", &rounds)]);
        (plan, content)
    }

    fn race(&self, hosts: &Hosts, part: &str) -> anyhow::Result<Part> {
        let plan = |field: &Field| {
            let plan = field.parts.get(part).with_context(|| format!("no part {part} in peers.toml"))?;
            anyhow::Ok(self.plan(plan.clone()))
        };
        let is_disk = plan(&Field::read("")?)?.0.disk;
        let field = Field::read(if is_disk { "--durability flushed" } else { "" })?;
        let (Plan { title, race, count, bytes, rounds, mtu, pinned: is_pinned, .. }, content) = plan(&field)?;
        let disk = || std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
        let root = if is_disk { self.disk.clone().unwrap_or_else(disk) } else { self.common.tmpfs.clone() };
        let mut ground = Ground::make(&root, content, bytes)?;
        ground.cold = is_disk;
        if part == "again" {
            let (from, to) = (ground.source(), ground.destination());
            call("cp", &["-a".as_ref(), from.as_os_str(), to.as_os_str()])?;
            ground.keeps = true;
        }
        ground.keeps |= part == "over";
        let mut contestants = field.contestants(&race)?;
        contestants.retain(|one| self.only.is_empty() || self.only.iter().any(|only| one.name.contains(only)));
        let is_memory = content == Content::None;
        if mtu > 0 {
            hosts.set_mtu(mtu)?;
        }
        // What hangs before it begins has its time too.
        let timeout = Duration::from_secs(if is_memory { self.net_seconds + 30 } else { self.timeout });
        let exe = &self.common.longhaul;
        let track = Track { hosts, field: &field, ground: &ground, exe, timeout, seconds: self.net_seconds, is_pinned };
        let run = |one: &_, is_first: bool| (track.shown(one), track.run(one, is_first, || ()));
        let raced = Part::race(title, count, &contestants, rounds, &exe.display().to_string(), run);
        if mtu > 0 {
            hosts.set_mtu(MTU)?;
        }
        let is_paired = matches!(content, Content::Tree { .. }) || part == "tiny";
        let is_asked = ["zipf", "tiny"].contains(&part);
        Ok(if is_paired { raced.against_pairs(&field.pairs, is_asked) } else { raced.against_best(!is_memory) })
    }
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
        match arguments.race(&hosts, name) {
            Ok(part) => record.parts.push(part),
            Err(why) => println!("{name} is not measured: {why:#}"),
        }
        if record.parts.last().is_some_and(|part| part.is_stopped) {
            println!("stopped: what was done is kept");
            break;
        }
    }
    ensure!(!record.parts.is_empty(), "nothing was measured");
    show_and_write(record, &arguments.common.out, &arguments.name)
}
