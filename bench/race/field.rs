//! The field: who is raced, from peers.toml.
//!
//! For: all races of this program. In and out: the table, a word that only a part has → contestants by race, scripts, pairs.
//! Invariants: the words of `[words]` are put in before anything is read as a row; a row that names what is not there is refused.
//! Absent on purpose: values of a run (copy.rs).

use std::collections::BTreeMap;

use anyhow::Context;
use bench::race::Contestant;
use bench::race::contestant::fill;
use serde::Deserialize;

const TABLE: &str = include_str!("peers.toml");

/// What is measured: see peers.toml.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Plan {
    pub(crate) title: String,
    pub(crate) race: String,
    /// The keys of the figure that ranks, and of what it costs.
    pub(crate) count: [String; 2],
    pub(crate) files: u64,
    pub(crate) per_folder: u64,
    pub(crate) bytes: u64,
    /// At most so many; 0: no bound.
    pub(crate) rounds: usize,
    /// Of the wire between the hosts, bytes; 0: as it was made.
    pub(crate) mtu: u32,
    /// Cold from a disk, until flushed to it.
    pub(crate) disk: bool,
    /// Each host runs on a core of its own.
    pub(crate) pinned: bool,
}

/// All of the table.
#[derive(Debug, Deserialize)]
pub(crate) struct Field {
    /// Ours, whom it is held against, how many times as fast it was asked to be (0: nothing was asked).
    pub(crate) pairs: Vec<(String, String, f64)>,
    pub(crate) parts: BTreeMap<String, Plan>,
    pub(crate) setup: BTreeMap<String, String>,
    words: BTreeMap<String, String>,
    servers: BTreeMap<String, toml::Table>,
    rows: BTreeMap<String, Vec<toml::Table>>,
}

impl Field {
    /// With `flushed`: what ours is told where files lie on a disk.
    pub(crate) fn read(flushed: &str) -> anyhow::Result<Field> {
        let words = toml::from_str::<Field>(TABLE)?.words;
        let mut words: Vec<(&str, &str)> = words.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        words.push(("flushed", flushed));
        // Words may hold words, one deep.
        Ok(toml::from_str(&fill(&fill(TABLE, &words), &words))?)
    }

    /// The contestants of a race.
    pub(crate) fn contestants(&self, race: &str) -> anyhow::Result<Vec<Contestant>> {
        let rows = self.rows.get(race).with_context(|| format!("no race {race} in peers.toml"))?;
        rows.iter().map(|row| self.contestant(row.clone()).with_context(|| format!("peers.toml, {row}"))).collect()
    }

    fn contestant(&self, mut row: toml::Table) -> anyhow::Result<Contestant> {
        if let Some(name) = row.remove("by") {
            let server = name.as_str().and_then(|name| self.servers.get(name)).context("by: no such server")?;
            for (key, value) in server {
                match (row.get_mut(key), value) {
                    (Some(toml::Value::Array(own)), toml::Value::Array(more)) => own.extend(more.iter().cloned()),
                    (Some(_), _) => {}
                    (None, value) => _ = row.insert(key.clone(), value.clone()),
                }
            }
        }
        let one: Contestant = row.try_into()?;
        anyhow::ensure!(one.setup.is_empty() || self.setup.contains_key(&one.setup), "no setup {}", one.setup);
        Ok(one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_whole_and_every_pair_is_of_rows() {
        let field = Field::read("--durability flushed").unwrap();
        let mut names = Vec::new();
        for race in ["net", "two_streams", "udp", "copy", "local", "tiny", "tree", "again", "paths"] {
            for one in field.contestants(race).unwrap() {
                assert!(!one.name.is_empty() && !one.client.0.is_empty(), "{one:?}");
                assert!(one.ours || !one.lacks.is_empty() || one.encrypts, "what does {} leave out?", one.name);
                let known = ["exe", "race", "src", "dst", "src_dir", "dst_dir", "etc", "a", "b", "seconds", "bytes"];
                let filled = one.client.fill(&known.map(|name| (name, "x"))).join(" ");
                assert!(!filled.contains('{'), "{filled}");
                names.push(one.name);
            }
        }
        assert!(field.parts.values().all(|part| field.contestants(&part.race).is_ok()));
        for (ours, peer, _) in &field.pairs {
            assert!(names.contains(ours) && names.contains(peer), "{ours}, {peer}");
        }
        assert!(field.contestants("copy").unwrap()[0].client.0.contains(&"flushed".to_owned()));
    }
}
