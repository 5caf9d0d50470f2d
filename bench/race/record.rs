//! What came of a race: rounds, medians, ratios.
//!
//! For: tables, JSON and the page, which show the same records. In and out: contestants and their turns → a part with a row for each.
//! Invariants: who fails is out, with the reason in its row; every figure stands beside its command, its version and what its contestant leaves
//! out; every number of a round has its median.
//! Absent on purpose: running (copy.rs), drawing (page.rs).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use bench::race::{Contestant, Spread, alternate};
use serde::Serialize;
use serde_json::Value;
use text::table::Table;

use super::copy::Round;
use super::hosts::Stopped;

/// A contestant in a part.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) lacks: String,
    pub(crate) encrypts: bool,
    pub(crate) version: String,
    pub(crate) ours: bool,
    /// Why it has no figures, or no more.
    pub(crate) why_not: String,
    pub(crate) command: String,
    rounds: Vec<Round>,
    #[serde(flatten)]
    medians: BTreeMap<String, Spread>,
}

impl Row {
    pub(crate) fn of(&self, key: &str) -> Option<Spread> {
        self.medians.get(key).copied()
    }

    fn median(&self, key: &str) -> f64 {
        self.of(key).map_or(f64::NAN, |it| it.median)
    }

    fn settle(&mut self) {
        let keys: BTreeSet<&String> = self.rounds.iter().flat_map(Round::keys).collect();
        let samples = |key: &str| self.rounds.iter().filter_map(|it| it.get(key)?.as_f64()).collect::<Vec<_>>();
        let medians = keys.into_iter().filter_map(|key| Some((key.clone(), Spread::of(&samples(key))?)));
        self.medians = medians.collect();
    }
}

/// Ours against another.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Verdict {
    pub(crate) part: String,
    pub(crate) ours: String,
    peer: String,
    speed_ratio: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    asked_ratio: Option<f64>,
    cheapest_peer: String,
    cpu_ratio: f64,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Verdict { part, ours, peer, speed_ratio, asked_ratio, cheapest_peer, cpu_ratio } = self;
        write!(f, "{part}: {ours} = {speed_ratio:.2} x {peer} in speed, {cpu_ratio:.2} x {cheapest_peer} in CPU")?;
        asked_ratio.map_or(Ok(()), |asked| write!(f, " (asked: {asked:.1} x in speed)"))
    }
}

/// What a key counts, as tables and plots say it.
pub(crate) fn unit(key: &str) -> &str {
    match key {
        "gbps" | "gbps_flushed" => "Gbit/s",
        "files_per_s" => "files/s",
        "copies_per_s" => "copies/s",
        "cpu_ms" => "CPU ms",
        "cpu_s_per_gb" => "CPU s/GB",
        "cpu_s_per_million" => "CPU s/10^6",
        other => other,
    }
}

/// One race.
#[derive(Debug, Serialize)]
pub(crate) struct Part {
    pub(crate) title: String,
    /// The key that rows are ranked by, and that of what it costs.
    pub(crate) unit: String,
    pub(crate) cost: String,
    pub(crate) rows: Vec<Row>,
    pub(crate) verdicts: Vec<Verdict>,
    /// The user stopped it before its last round.
    #[serde(skip)]
    pub(crate) is_stopped: bool,
}

impl Part {
    /// Rounds in turn; `run` gets a contestant and whether it is the first round.
    pub(crate) fn race(
        title: String,
        [unit_key, cost]: [String; 2],
        contestants: &[Contestant],
        rounds: usize,
        exe: &str,
        mut run: impl FnMut(&Contestant, bool) -> (String, anyhow::Result<Round>),
    ) -> Part {
        let row = |one: &Contestant| Row {
            name: one.name.clone(),
            lacks: one.lacks.clone(),
            encrypts: one.encrypts,
            version: one.version(&[("exe", exe)]),
            ours: one.ours,
            why_not: Some(one.missing().join(", "))
                .filter(|it| !it.is_empty())
                .map_or_else(String::new, |it| format!("not here: {it}")),
            command: String::new(),
            rounds: Vec::new(),
            medians: BTreeMap::new(),
        };
        let mut rows: Vec<Row> = contestants.iter().map(row).collect();
        let mut lanes: Vec<(&Contestant, &mut Row)> = contestants.iter().zip(&mut rows).collect();
        let whole = alternate(rounds, &mut lanes, |round, (one, row)| {
            if !row.why_not.is_empty() {
                return Ok::<_, std::convert::Infallible>(ControlFlow::Continue(()));
            }
            let (command, result) = run(one, round == 0);
            row.command = command;
            let said = match result {
                Ok(found) => {
                    let of = |key: &str| found.get(key).and_then(Value::as_f64).unwrap_or(f64::NAN);
                    let (speed, spent, others) = (of(&unit_key), of(&cost), of("others_cpu_share") * 100.0);
                    let said =
                        format!("{speed:9.2} {} {spent:6.2} {}  (others {others:.0} %)", unit(&unit_key), unit(&cost));
                    row.rounds.push(found);
                    said
                }
                Err(why) if why.is::<Stopped>() => return Ok(ControlFlow::Break(())),
                Err(why) => {
                    row.why_not = format!("{why:#}");
                    format!("out: {why:#}")
                }
            };
            println!("  {title} {}/{rounds} {:<32} {said}", round + 1, one.name);
            Ok(ControlFlow::Continue(()))
        });
        rows.iter_mut().for_each(Row::settle);
        let rank = |row: &Row| -row.of(&unit_key).map_or(-1.0, |it| it.median);
        rows.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
        Part { title, unit: unit_key, cost, rows, verdicts: Vec::new(), is_stopped: whole != Ok(true) }
    }

    /// The ratios of the promises: ours against the best peer, of the same kind where `alike`, in this run.
    pub(crate) fn against_best(mut self, alike: bool) -> Part {
        let measured = || self.rows.iter().filter(|row| row.of(&self.unit).is_some());
        let mut verdicts = Vec::new();
        for ours in measured().filter(|row| row.ours) {
            let by = |key: &str, a: &Row, b: &Row| a.median(key).total_cmp(&b.median(key));
            let peers = || measured().filter(|row| !row.ours && (!alike || row.encrypts == ours.encrypts));

            let (best, cheap) =
                (peers().max_by(|a, b| by(&self.unit, a, b)), peers().min_by(|a, b| by(&self.cost, a, b)));
            verdicts.extend(best.zip(cheap).map(|(best, cheap)| self.verdict(ours, best, cheap, None)));
        }
        self.verdicts = verdicts;
        self
    }

    /// Ours against whom it is paired with.
    pub(crate) fn against_pairs(mut self, pairs: &[(String, String, f64)], is_asked: bool) -> Part {
        let find = |name: &str| self.rows.iter().find(|row| row.name == name && row.of(&self.unit).is_some());
        let verdicts = pairs.iter().filter_map(|(ours, peer, asked)| {
            let (ours, peer) = find(ours).zip(find(peer))?;
            Some(self.verdict(ours, peer, peer, Some(*asked).filter(|asked| is_asked && *asked > 0.0)))
        });
        self.verdicts = verdicts.collect();
        self
    }

    fn verdict(&self, ours: &Row, best: &Row, cheap: &Row, asked_ratio: Option<f64>) -> Verdict {
        Verdict {
            part: self.title.clone(),
            ours: ours.name.clone(),
            peer: best.name.clone(),
            speed_ratio: ours.median(&self.unit) / best.median(&self.unit),
            asked_ratio,
            cheapest_peer: cheap.name.clone(),
            cpu_ratio: ours.median(&self.cost) / cheap.median(&self.cost),
        }
    }

    /// For the screen.
    pub(crate) fn table(&self) -> String {
        let mut table = Table::new(&["", unit(&self.unit), "min", "max", unit(&self.cost), "does not"]);
        for row in &self.rows {
            let figures = row.of(&self.unit).map_or([const { String::new() }; 4], |it| {
                [it.median, it.min, it.max, row.median(&self.cost)].map(|value| format!("{value:.2}"))
            });
            let note = if row.why_not.is_empty() { &row.lacks } else { &row.why_not };
            table.line([row.name.clone()].into_iter().chain(figures).chain([note.chars().take(110).collect()]));
        }
        format!("\n{}\n{table}", self.title)
    }
}

/// All parts of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Record {
    pub(crate) machine: BTreeMap<&'static str, String>,
    pub(crate) arguments: Value,
    pub(crate) parts: Vec<Part>,
    /// Those of all parts.
    pub(crate) verdicts: Vec<Verdict>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn part(rates: &[(&str, bool, bool, &[f64])]) -> Part {
        let one = |&(name, ours, encrypts, _): &(&str, bool, bool, &[f64])| Contestant {
            name: name.to_owned(),
            ours,
            encrypts,
            ..Contestant::default()
        };
        let contestants: Vec<Contestant> = rates.iter().map(one).collect();
        let mut round = vec![0; rates.len()];
        let count = ["gbps", "cpu_s_per_gb"].map(str::to_owned);
        Part::race("x".to_owned(), count, &contestants, 3, "", |one, _| {
            let at = rates.iter().position(|it| it.0 == one.name).unwrap();
            round[at] += 1;
            let rate = rates[at].3.get(round[at] - 1).copied();
            let found =
                rate.map(|rate| serde_json::json!({"gbps": rate, "cpu_s_per_gb": 1.0}).as_object().cloned().unwrap());
            ("cmd".to_owned(), found.ok_or_else(|| anyhow::anyhow!("broke")))
        })
    }

    /// A part with the longest names and commands that peers.toml has, and one who is out.
    pub(crate) fn sample() -> Record {
        let mut part = part(&[
            ("longhaul, default: encrypted, BLAKE3 of each file at both ends", true, true, &[6.0, 4.0, 8.0]),
            ("rclone over sftp, 4 streams, --multi-thread-streams and AES-128-GCM", false, true, &[2.0, 3.0, 4.0]),
            ("bad", false, true, &[]),
        ]);
        "one file of 4 GiB from disk to disk, with a cold page cache".clone_into(&mut part.title);
        for row in &mut part.rows {
            row.command = format!("{} --encrypt=yes --{} /mnt/recorder/data", row.name, "x".repeat(120));
            "does not flush, compares no digest of what it wrote".clone_into(&mut row.lacks);
        }
        let part = part.against_best(true);
        let machine =
            BTreeMap::from([("cpu", "2 × Example EPYC".to_owned()), ("date", "2026-11-25 10:00 UTC".to_owned())]);
        Record { machine, arguments: Value::Null, verdicts: part.verdicts.clone(), parts: vec![part] }
    }

    #[test]
    fn like_is_held_against_like_and_who_fails_keeps_what_it_had() {
        let part = part(&[
            ("ours", true, true, &[6.0, 4.0, 8.0]),
            ("sealed", false, true, &[2.0, 3.0, 4.0]),
            ("clear", false, false, &[9.0, 9.0, 9.0]),
            ("bad", false, true, &[1.0]),
        ]);
        let names: Vec<&str> = part.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["clear", "ours", "sealed", "bad"], "the fastest first");
        assert_eq!((part.rows[3].rounds.len(), part.rows[3].why_not.as_str()), (1, "broke"));
        assert_eq!(part.rows[1].of("gbps"), Some(Spread { median: 6.0, min: 4.0, max: 8.0 }));
        let part = part.against_best(true);
        assert_eq!(part.verdicts.len(), 1);
        assert_eq!((part.verdicts[0].peer.as_str(), part.verdicts[0].speed_ratio), ("sealed", 2.0));
        let pairs = [("ours".to_owned(), "clear".to_owned(), 1.5)];
        assert!(part.against_pairs(&pairs, true).verdicts[0].to_string().contains("0.67 x clear in speed"));
    }
}
