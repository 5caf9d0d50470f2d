//! CERN's figures 2.1 to 2.4: rate and processor time over time, before a placement and after, 4 and 12 streams.
//!
//! For: seeing at a glance what the preset brings on these hosts, and whether it stays so.
//! In and out: two machines → points of both, as text and as JSON.
//! Invariants: a point is a run of its own as a job's bytes go (sealed, hashed), and points of before and after are measured in turn, so that what
//! disturbs the hosts disturbs both lines; the preset is followed as far as these machines let it, and what it became is said.
//! Absent on purpose: the preset's gain as one figure with an interval (`bench placement` has it).

use std::fmt;
use std::time::{Duration, Instant};

use serde::Serialize;
use topology::placement::presets;

use super::rig::Rig;
use crate::table::median;

/// CERN's.
const STREAMS: [u16; 2] = [4, 12];
/// Before, after: that of the report, and the nearest to it where a node has no eight cores.
const AFTER: [&str; 2] = ["CERN", "NTT A"];
/// Of each line, and the fewest, where they take longer than `LONG`.
const POINTS: usize = 16;
const POINTS_MIN: usize = 4;
/// A change of the median below this is chance: points of one line differ by as much.
const NOISE_PERCENT: f64 = 3.0;
/// A figure of slow hosts has fewer points rather than taking minutes.
const LONG: Duration = Duration::from_secs(10);

/// One run.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Point {
    /// Since the figure's begin.
    pub(super) seconds: f64,
    pub(super) gbps: f64,
    /// Cores' worth of time.
    pub(super) send_cores: f64,
    pub(super) recv_cores: f64,
}

/// One number of streams.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    pub(super) streams: u16,
    /// Which preset came after, and what became of it here; empty: none can be followed.
    pub(super) after_name: &'static str,
    pub(super) after_is: String,
    pub(super) before: Vec<Point>,
    pub(super) after: Vec<Point>,
}

/// Figures 2.1 to 2.4, before and after a placement.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    pub(super) figures: Vec<Figure>,
}

/// Measures them.
///
/// # Errors
/// The connection broke.
pub fn measure(rig: &mut Rig) -> anyhow::Result<Figures> {
    let (near, far) = rig.shapes()?;
    let mut figures = Vec::new();
    for streams in STREAMS {
        let named = |name: &'static str| Some((name, presets::named(name, &near, &far, streams)?));
        let Some((_, none)) = named("none") else { continue };
        let after = AFTER.into_iter().find_map(named);
        let mut figure = Figure { streams, after_name: "", after_is: String::new(), before: vec![], after: vec![] };
        if let Some((name, placement)) = &after {
            figure.after_name = name;
            figure.after_is = format!("send: {}; receive: {}", placement.send, placement.recv);
        }
        let begun = Instant::now();
        for number in 0..POINTS {
            if number >= POINTS_MIN && begun.elapsed() > LONG {
                break;
            }
            for (placement, line) in
                [(Some(&none), &mut figure.before), (after.as_ref().map(|it| &it.1), &mut figure.after)]
            {
                let Some(placement) = placement else { continue };
                let seconds = begun.elapsed().as_secs_f64();
                // What is refused leaves no point; the text says how many there are.
                if let Ok(measured) = rig.measure(placement)? {
                    // Threads of one core take turns: each stream's own rate, added up, would be more than ever crossed.
                    let ns = measured.ns.max(1) as f64;
                    let [send_cores, recv_cores] = measured.cpu_ns.map(|spent| spent as f64 / ns);
                    let gbps = 8.0 * measured.bytes as f64 / ns;
                    line.push(Point { seconds, gbps, send_cores, recv_cores });
                }
            }
        }
        figures.push(figure);
    }
    Ok(Figures { figures })
}

/// A line of marks, one a point, by the part that each is of `most`.
fn marks(points: &[Point], most: f64, of: impl Fn(&Point) -> f64) -> String {
    const MARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    points.iter().map(|point| MARKS[((of(point) / most.max(1e-9) * 7.99) as usize).min(7)]).collect()
}

impl Figure {
    /// What the placement did to the rate, by the medians; `None`: there is no after.
    pub(super) fn verdict(&self) -> Option<String> {
        let rate = |points: &[Point]| median(&points.iter().map(|it| it.gbps).collect::<Vec<_>>());
        if self.before.is_empty() || self.after.is_empty() {
            return None;
        }
        let (before, after) = (rate(&self.before), rate(&self.after));
        let percent = (after / before.max(1e-9) - 1.0) * 100.0;
        Some(match percent {
            _ if percent <= -NOISE_PERCENT => format!("WORSE after: {percent:+.0} %, this placement is a loss here"),
            _ if percent >= NOISE_PERCENT => format!("better after: {percent:+.0} %"),
            _ => format!("no difference worth naming: {percent:+.1} %"),
        })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "rate and processor time over time, sealed as jobs are, points of both lines in turn; medians beside the lines"
        )?;
        for figure in &self.figures {
            writeln!(f, "{} streams", figure.streams)?;
            if figure.after_name.is_empty() {
                writeln!(f, "  no preset can be followed here: before only")?;
            }
            let both = || figure.before.iter().chain(&figure.after);
            let most = |of: fn(&Point) -> f64| both().map(of).fold(0.0, f64::max);
            for (name, points) in [("before", &figure.before), ("after", &figure.after)] {
                if points.is_empty() {
                    continue;
                }
                let row = |of: fn(&Point) -> f64, unit: &str| {
                    let values: Vec<f64> = points.iter().map(of).collect();
                    format!("{} {:6.2} {unit}", marks(points, most(of), of), median(&values))
                };
                writeln!(
                    f,
                    "  {name:<6} {}  {}  {}",
                    row(|it| it.gbps, "Gbit/s"),
                    row(|it| it.send_cores, "cores send"),
                    row(|it| it.recv_cores, "cores receive")
                )?;
            }
            if let Some(verdict) = figure.verdict() {
                writeln!(f, "  {verdict}")?;
            }
            if !figure.after_is.is_empty() {
                writeln!(f, "  after is {}: {}", figure.after_name, figure.after_is)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_higher_line_has_the_higher_marks_and_the_preset_is_named() {
        let point = |gbps| Point { seconds: 0.0, gbps, send_cores: 1.0, recv_cores: 2.0 };
        let (before, after) = (vec![point(1.0), point(2.0)], vec![point(8.0), point(8.0)]);
        let figure =
            Figure { streams: 4, after_name: "CERN", after_is: "send: x; receive: y".to_owned(), before, after };
        let said = Figures { figures: vec![figure] }.to_string();
        assert!(said.contains("▁▂") && said.contains("██") && said.contains("8.00 Gbit/s"), "{said}");
        assert!(said.contains("after is CERN: send: x"), "{said}");
        let verdict = |before: f64, after: f64| {
            let (before, after) = (vec![point(before)], vec![point(after)]);
            Figure { streams: 4, after_name: "CERN", after_is: String::new(), before, after }.verdict().unwrap()
        };
        assert!(said.contains("better after: +300 %"), "{said}");
        assert_eq!(verdict(10.0, 5.0), "WORSE after: -50 %, this placement is a loss here");
        assert!(verdict(10.0, 9.9).starts_with("no difference"));
    }
}
