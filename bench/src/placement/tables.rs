//! `bench placement --tables`: NTT's Tables II to IV and CERN's figures on these two hosts; here Tables II and III: sender's core × receiver's
//! core × message size, over UDP and TCP.
//!
//! For: seeing at a glance what a thread on another core costs, at which end, and from which message size on.
//! In and out: two machines → rate and load of both ends for each cell, as a heat map of text and as JSON.
//! Invariants: one stream, one thread on one core at each end, one call per message, interrupts where they are; cells of one size are measured in
//! turn; a message that does not fit into a packet of this path is not sent in pieces but left out, and it is said.
//! Absent on purpose: the search, moving interrupts (a second run after `host apply` shows the same with them elsewhere).

use std::fmt;

use engine::host::Hold;
use serde::Serialize;
use topology::placement::shape::Shape;

use super::figures::{self, Figures};
use super::patterns::{self, Patterns};
use super::rig::Rig;
use crate::net::way::{Datagram, Held, Way};
use crate::table::median;
use text::table::Table;

/// NTT's, with the 512 and 104 bytes of Table IV.
const SIZES: [u16; 6] = [64, 104, 512, 1500, 4096, 9000];
/// More cores at each end make no table.
const CORES: usize = 8;
/// Each cell is the median of so many.
pub const ROUNDS: usize = 3;

/// One cell.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    pub(super) send_core: u16,
    pub(super) recv_core: u16,
    pub(super) mbps: f64,
    /// Processor time of the thread by wall time.
    pub(super) send_load: f64,
    pub(super) recv_load: f64,
}

/// One message size over one transport.
#[derive(Debug, Clone, Serialize)]
pub struct Sheet {
    pub(super) transport: &'static str,
    pub(super) message_bytes: u16,
    /// Of each row the cells of all columns; empty: no packet of this path holds such a message.
    pub(super) cells: Vec<Vec<Cell>>,
}

/// Tables II and III: rate and load for each pair of cores and message size.
#[derive(Debug, Serialize)]
pub struct Tables {
    pub(super) peer: String,
    pub(super) send_cores: Vec<u16>,
    pub(super) recv_cores: Vec<u16>,
    /// Cores that take interrupts, as the machines tell.
    pub(super) send_irqs: Vec<u16>,
    pub(super) recv_irqs: Vec<u16>,
    pub(super) sheets: Vec<Sheet>,
    /// Table IV.
    pub(super) patterns: Patterns,
    /// CERN's.
    pub(super) figures: Figures,
}

/// Cores that differ in kind: those of the interrupts, then two of each domain, the NIC's first.
fn cores(shape: &Shape) -> Vec<u16> {
    let mut out: Vec<u16> = shape.irqs.iter().copied().take(2).collect();
    let domains = shape.domains();
    for at in 0..2 {
        out.extend(domains.iter().filter_map(|domain| domain.get(at)));
    }
    if shape.cores.len() <= CORES {
        out.extend(shape.cores.iter().map(|core| core.id));
    }
    let mut seen = Vec::new();
    out.retain(|core| {
        !seen.contains(core) && {
            seen.push(*core);
            true
        }
    });
    out.truncate(CORES);
    out.sort_unstable();
    out
}

/// Measures all of them; `paths`: addresses over which the streams of Table IV are dealt out.
///
/// # Errors
/// The connection broke.
pub fn measure(rig: &mut Rig, paths: usize) -> anyhow::Result<Tables> {
    let (near, far) = rig.shapes()?;
    let (send_cores, recv_cores) = (cores(&near), cores(&far));
    let longest = rig.packet_bytes()?;
    let mut sheets = Vec::new();
    for transport in ["UDP", "TCP"] {
        for message_bytes in SIZES {
            let (fits, way) = match transport {
                "UDP" => (message_bytes <= longest, Way::Datagram { how: Datagram::Each, packet_bytes: message_bytes }),
                _ => (true, Way::Bare { block_bytes: message_bytes.into() }),
            };
            let mut cells = Vec::new();
            for &send_core in send_cores.iter().filter(|_| fits) {
                let row = recv_cores.iter().map(|&recv_core| cell(rig, way, send_core, recv_core));
                cells.push(row.collect::<anyhow::Result<Vec<Cell>>>()?);
            }
            sheets.push(Sheet { transport, message_bytes, cells });
        }
    }
    let patterns = patterns::measure(rig, paths)?;
    let figures = figures::measure(rig)?;
    let (peer, send_irqs, recv_irqs) = (rig.peer.to_string(), near.irqs, far.irqs);
    Ok(Tables { peer, send_cores, recv_cores, send_irqs, recv_irqs, sheets, patterns, figures })
}

fn cell(rig: &mut Rig, way: Way, send_core: u16, recv_core: u16) -> anyhow::Result<Cell> {
    let ours = Hold { cores: vec![send_core.into()], exact: true, ..Hold::default() };
    let mut samples: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        let theirs = Held { cores: vec![recv_core], exact: true, memory: None };
        let (sent, came) = rig.run(way, ours.clone(), theirs)?;
        samples[0].push(came.bps() / 1e6);
        samples[1].push(sent.load());
        samples[2].push(came.load());
    }
    let [mbps, send_load, recv_load] = samples.map(|samples| median(&samples));
    Ok(Cell { send_core, recv_core, mbps, send_load, recv_load })
}

/// A share of the sheet's best as a mark that is darker the nearer it is.
fn mark(share: f64) -> &'static str {
    match share {
        0.95.. => "██",
        0.80.. => "▓▓",
        0.60.. => "▒▒",
        0.40.. => "░░",
        _ => "··",
    }
}

impl fmt::Display for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "to {}: Mbit/s, load of the sender's and the receiver's thread; rows: sender's core, columns: receiver's",
            self.peer
        )?;
        writeln!(
            f,
            "██ at least 0.95 of the best of its table, ▓▓ 0.80, ▒▒ 0.60, ░░ 0.40; * takes interrupts; medians of {ROUNDS}\n"
        )?;
        let named = |core: &u16, irqs: &[u16]| format!("{core}{}", if irqs.contains(core) { "*" } else { "" });
        for Sheet { transport, message_bytes, cells } in &self.sheets {
            if cells.is_empty() {
                writeln!(f, "{transport}, {message_bytes} bytes: no packet of this path holds such a message\n")?;
                continue;
            }
            let best = cells.iter().flatten().map(|cell| cell.mbps).fold(0.0, f64::max);
            let mut heads = vec![format!("{transport}, {message_bytes} bytes")];
            heads.extend(self.recv_cores.iter().map(|core| named(core, &self.recv_irqs)));
            let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
            let mut table = Table::new(&heads);
            for (row, core) in cells.iter().zip(&self.send_cores) {
                let text = |cell: &Cell| {
                    let mark = mark(cell.mbps / best.max(1e-9));
                    format!("{:.1} {:.2}/{:.2} {mark}", cell.mbps, cell.send_load, cell.recv_load)
                };
                table.line([named(core, &self.send_irqs)].into_iter().chain(row.iter().map(text)));
            }
            writeln!(f, "{table}")?;
        }
        write!(f, "{}\n{}", self.patterns, self.figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::placement::shape::Core;

    #[test]
    fn the_cores_of_a_table_differ_in_kind_and_are_few() {
        let core = |id: u16| Core { id, node: id / 16, package: id / 16, cache: id / 4 * 4, physical: id };
        let shape = Shape { cores: (0..32).map(core).collect(), nic_node: Some(1), irqs: vec![18], ..Shape::default() };
        let cores = cores(&shape);
        assert!(cores.len() == CORES && cores.contains(&18) && cores.contains(&16) && cores.contains(&0), "{cores:?}");
        assert_eq!(super::cores(&Shape { cores: (0..3).map(core).collect(), ..Shape::default() }), [0, 1, 2]);
    }

    #[test]
    fn a_heat_map_is_darkest_where_it_is_best() {
        let cell = |mbps| Cell { send_core: 0, recv_core: 0, mbps, send_load: 0.5, recv_load: 1.0 };
        let sheet = Sheet { transport: "TCP", message_bytes: 64, cells: vec![vec![cell(100.0), cell(30.0)]] };
        let none = Sheet { transport: "UDP", message_bytes: 9000, cells: Vec::new() };
        let (send_cores, recv_cores, send_irqs, recv_irqs) = (vec![0], vec![0, 1], vec![], vec![1]);
        let (patterns, figures) = (Patterns::default(), Figures::default());
        let (peer, sheets) = ("p".to_owned(), vec![sheet, none]);
        let tables = Tables { peer, send_cores, recv_cores, send_irqs, recv_irqs, sheets, patterns, figures };
        let said = tables.to_string();
        assert!(
            said.contains("100.0 0.50/1.00 ██") && said.contains("30.0 0.50/1.00 ··") && said.contains("1*"),
            "{said}"
        );
        assert!(said.contains("UDP, 9000 bytes: no packet of this path"), "{said}");
    }
}
