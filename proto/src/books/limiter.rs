//! The one sentence that names the limiter.
//!
//! For: the end report: what limited the run, by how much, and the ceiling if that were free.
//! In and out: the books of both ends and the run's bytes and wall time in; a `Verdict` out.
//! Invariants: the ceiling is never below the goodput reached nor above what the rest of both ends' booked work allows; the named
//! share is one that stands in the books; the same books give the same sentence.
//! Absent on purpose: advice (host and tune know the machine), measuring.
//!
//! How it decides. A wait is a symptom when the other end causes it and a cause when nobody else does: waiting for the
//! source disk, for the destination disk, and for the cap are always causes; waiting to send is one only as far as the
//! receiver waits for data meanwhile (then the network lies between); idle is one only as far as the receiver has
//! nothing to do either. An end that works nearly all of its time is a cause before all waits but the cap.

use alloc::format;
use alloc::string::String;

use super::{Books, Stage};

/// From here on an end's workers are called busy: the rest is the unevenness that any hand-over between ends has.
const BUSY_PERMILLE: u64 = 750;
/// Workers that share cores are limited by the cores when together they fill so much of them …
const SHARED_PERMILLE: u64 = 800;
/// … and neither end has much slack of its own.
const SHARED_EACH_PERMILLE: u64 = 600;
/// … or when what both did on cores, together, would fill the time of one of them, and neither's part is small.
const SHARED_BOTH_PERMILLE: u64 = 250;
/// Workers that were ready and had no core so much of their time may be limited by that.
const DENIED_PERMILLE: u64 = 300;
/// Held back by a cap so much of the time: the cap is the limiter.
const CAPPED_PERMILLE: u64 = 250;
/// The committer is a limiter if it worked at least so much of the time while workers had nothing to do.
const COMMIT_PERMILLE: u64 = 500;

/// Where the limiter sits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The end that reads the source.
    Sender,
    /// The end that writes the destination.
    Receiver,
    /// Between them.
    Network,
    /// Both: shared cores, or the work between the bytes.
    Both,
    /// Neither: a rate cap.
    Cap,
}

/// What would have to go away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The time of this stage.
    Stage(Stage),
    /// The time without a core.
    RunDelay,
}

impl What {
    /// As reports write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            What::Stage(stage) => stage.name(),
            What::RunDelay => "wait for a core",
        }
    }
}

/// What limited a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The end at which time is lost.
    pub end: End,
    /// What of that end's time would have to go away; None if the books are empty.
    pub what: Option<What>,
    /// Its share of that end's time (of both ends' time with shared cores), percent.
    pub share_percent: u8,
    /// Goodput if that stage were free, bit/s; 0 if unknown.
    pub ceiling_bps: u64,
    /// For people, a fragment without a full stop.
    pub sentence: String,
}

/// One end's books as thousandths of its time.
#[derive(Debug, Clone, Copy)]
struct Shares<'a> {
    books: &'a Books,
    total_ns: u64,
}

impl<'a> Shares<'a> {
    fn new(books: &'a Books) -> Shares<'a> {
        Shares { books, total_ns: books.wall_ns.max(books.booked_ns()) }
    }

    fn permille(&self, ns: u64) -> u64 {
        if self.total_ns == 0 { 0 } else { (u128::from(ns) * 1000 / u128::from(self.total_ns)) as u64 }
    }

    fn of(&self, stage: Stage) -> u64 {
        self.permille(self.books.of(stage))
    }

    fn busy(&self) -> u64 {
        self.permille(self.books.busy_ns())
    }

    /// Ready, and without a core.
    fn denied(&self) -> u64 {
        self.permille(self.books.run_delay_ns).min(1000)
    }

    /// Of the work, what was done on a core. The delay fell into the work, as far as it fits: who waits is not ready.
    fn on_core(&self) -> u64 {
        self.busy().saturating_sub(self.denied())
    }

    /// The dearest stage that is work; the earlier one of two equal ones.
    fn dearest(&self) -> Stage {
        let mut dearest = Stage::Read;
        for stage in Stage::ALL.into_iter().filter(|stage| !stage.is_wait()) {
            if self.books.of(stage) > self.books.of(dearest) {
                dearest = stage;
            }
        }
        dearest
    }
}

/// Names what limited a run that moved `payload_bytes` in `wall_ns`. `shared_cores`: both ends run on one host
/// (`negotiate::share_cores`). `rate_cap_bps`: the plan's cap, 0 for none.
#[must_use]
pub fn limiter(
    sender: &Books,
    receiver: &Books,
    payload_bytes: u64,
    wall_ns: u64,
    shared_cores: bool,
    rate_cap_bps: u64,
) -> Verdict {
    let goodput_bps = goodput(payload_bytes, wall_ns);
    let case = Case { sender: Shares::new(sender), receiver: Shares::new(receiver), goodput_bps };
    if case.sender.total_ns == 0 && case.receiver.total_ns == 0 {
        let sentence = String::from("the limiter is unknown: no time was booked");
        return Verdict { end: End::Both, what: None, share_percent: 0, ceiling_bps: 0, sentence };
    }
    case.capped(rate_cap_bps)
        .or_else(|| if shared_cores { case.cores() } else { None })
        .or_else(|| case.denied())
        .or_else(|| case.busy_end())
        .unwrap_or_else(|| case.wait(wall_ns))
}

/// Bits of payload per second.
#[must_use]
pub fn goodput(payload_bytes: u64, wall_ns: u64) -> u64 {
    let bits = u128::from(payload_bytes) * 8 * 1_000_000_000;
    u64::try_from(bits / u128::from(wall_ns.max(1))).unwrap_or(u64::MAX)
}

/// Both ends side by side.
#[derive(Debug, Clone, Copy)]
struct Case<'a> {
    sender: Shares<'a>,
    receiver: Shares<'a>,
    goodput_bps: u64,
}

impl Case<'_> {
    /// Goodput if only `permille` of the time were needed.
    fn ceiling(&self, permille: u64) -> u64 {
        let bps = u128::from(self.goodput_bps) * 1000 / u128::from(permille.clamp(1, 1000));
        u64::try_from(bps).unwrap_or(u64::MAX)
    }

    /// What remains of the time when `freed` thousandths go away and both ends still do their work.
    fn without(&self, freed: u64) -> u64 {
        (1000 - freed.min(1000)).max(self.sender.busy()).max(self.receiver.busy()).max(1)
    }

    fn verdict(&self, end: End, what: What, share: u64, remaining: u64, sentence: &dyn Fn(&str) -> String) -> Verdict {
        let ceiling_bps = self.ceiling(remaining);
        Verdict {
            end,
            what: Some(what),
            share_percent: percent(share),
            ceiling_bps,
            sentence: sentence(&rate(ceiling_bps)),
        }
    }

    fn capped(&self, rate_cap_bps: u64) -> Option<Verdict> {
        let share = self.sender.of(Stage::WaitRate).max(self.receiver.of(Stage::WaitRate));
        let held = share >= CAPPED_PERMILLE;
        // Goodput at the cap is proof enough, even if the pacing was booked as something else.
        let at_cap = rate_cap_bps != 0 && self.goodput_bps >= rate_cap_bps / 100 * 97;
        if !held && !at_cap {
            return None;
        }
        let cap = if rate_cap_bps == 0 {
            String::from("a rate cap")
        } else {
            format!("the rate cap of {}", rate(rate_cap_bps))
        };
        Some(self.verdict(End::Cap, What::Stage(Stage::WaitRate), share, self.without(share), &|up_to| {
            format!("limited by {cap}: held back {} % of the time; without it, up to {up_to}", percent(share))
        }))
    }

    /// Both ends on one host fill its cores together: the dearest stage of the two is the limiter wherever it runs.
    fn cores(&self) -> Option<Verdict> {
        let total_ns = u128::from(self.sender.total_ns) + u128::from(self.receiver.total_ns);
        let of_both = |ns: u64| (u128::from(ns) * 1000 / total_ns.max(1)) as u64;
        let busy = of_both(self.sender.books.busy_ns()) + of_both(self.receiver.books.busy_ns());
        let each = busy >= SHARED_PERMILLE && self.sender.busy().min(self.receiver.busy()) >= SHARED_EACH_PERMILLE;
        // Each end has workers for all cores: what both did on a core, beside the time of one end.
        let known = self.sender.books.run_delay_ns.min(self.receiver.books.run_delay_ns) > 0;
        let full = known
            && self.sender.on_core() + self.receiver.on_core() >= SHARED_PERMILLE
            && self.sender.on_core().min(self.receiver.on_core()) >= SHARED_BOTH_PERMILLE;
        if !each && !full {
            return None;
        }
        let (at_sender, at_receiver) = (self.sender.dearest(), self.receiver.dearest());
        let (name, stage, ns) = if self.sender.books.of(at_sender) >= self.receiver.books.of(at_receiver) {
            ("sender", at_sender, self.sender.books.of(at_sender))
        } else {
            ("receiver", at_receiver, self.receiver.books.of(at_receiver))
        };
        let share = of_both(ns);
        Some(self.verdict(End::Both, What::Stage(stage), share, 1000 - share.min(999), &|up_to| {
            format!(
                "limited by the cores that both ends share: {} at the {name} takes {} % of their time; were it free, up to {up_to}",
                stage.name(),
                percent(share)
            )
        }))
    }

    /// The busier end, if its workers were ready and had no core: more of their time than their dearest stage took on one, and than
    /// the waits that are causes.
    fn denied(&self) -> Option<Verdict> {
        let (end, name, this, other) = if self.sender.denied() >= self.receiver.denied() {
            (End::Sender, "sender", self.sender, self.receiver)
        } else {
            (End::Receiver, "receiver", self.receiver, self.sender)
        };
        let share = this.denied();
        let dearest = this.of(this.dearest()) * this.on_core() / this.busy().max(1);
        let waits = self.source().max(self.disk()).max(self.network());
        if share < DENIED_PERMILLE || share < dearest || share < waits || this.busy().max(share) < other.busy() {
            return None;
        }
        let remaining = (1000 - share.min(999)).max(other.on_core());
        Some(self.verdict(end, What::RunDelay, share, remaining, &|up_to| {
            format!(
                "limited by cores at the {name}: its workers were ready and had none for {} % of their time (other programs, or a quota); with cores of their own, up to {up_to}",
                percent(share)
            )
        }))
    }

    /// Waits that are causes, as the comment above says.
    fn source(&self) -> u64 {
        self.sender.of(Stage::WaitRead)
    }

    fn disk(&self) -> u64 {
        self.receiver.of(Stage::WaitWrite)
    }

    fn network(&self) -> u64 {
        self.sender.of(Stage::WaitSend).min(self.receiver.of(Stage::WaitRecv))
    }

    /// An end whose workers hardly ever wait.
    fn busy_end(&self) -> Option<Verdict> {
        let busiest = self.sender.busy().max(self.receiver.busy());
        (busiest >= BUSY_PERMILLE).then(|| self.work())
    }

    /// The dearest stage of the busier end.
    fn work(&self) -> Verdict {
        let (end, name, this, other, other_name) = if self.sender.busy() >= self.receiver.busy() {
            (End::Sender, "sender", self.sender, self.receiver, "receiver")
        } else {
            (End::Receiver, "receiver", self.receiver, self.sender, "sender")
        };
        let stage = this.dearest();
        let share = this.of(stage);
        let own = 1000 - share.min(999);
        let (remaining, next) = if other.busy() > own {
            (other.busy(), format!(", where the {other_name} would be next"))
        } else {
            (own, String::new())
        };
        self.verdict(end, What::Stage(stage), share, remaining, &|up_to| {
            let (what, share) = (stage.name(), percent(share));
            format!("limited by {what} at the {name}: {share} % of its time; were it free, up to {up_to}{next}")
        })
    }

    /// Nobody is busy: the largest wait that is a cause, unless one stage of work is larger still.
    fn wait(&self, wall_ns: u64) -> Verdict {
        let (source, disk, network) = (self.source(), self.disk(), self.network());
        let nothing = self.receiver.of(Stage::Idle).saturating_add(self.receiver.of(Stage::WaitRecv));
        // A sender that only waits for words has nothing to do, either.
        let idle = self.sender.of(Stage::Idle).saturating_add(self.sender.of(Stage::WaitRecv)).min(nothing);
        let busier = if self.sender.busy() >= self.receiver.busy() { self.sender } else { self.receiver };
        let work = busier.of(busier.dearest());
        let most = source.max(disk).max(network).max(idle).max(work);
        let commit = u128::from(self.receiver.books.commit_ns) * 1000 / u128::from(wall_ns.max(1));
        let commit = u64::try_from(commit).unwrap_or(u64::MAX).min(1000);
        let remaining = self.without(most);
        let share = percent(most);
        if most == work {
            self.work()
        } else if most == source {
            self.verdict(End::Sender, What::Stage(Stage::WaitRead), most, remaining, &|up_to| {
                format!("limited by the source disk: the sender waited {share} % of its time for it; were it free, up to {up_to}")
            })
        } else if most == disk {
            self.verdict(End::Receiver, What::Stage(Stage::WaitWrite), most, remaining, &|up_to| {
                format!("limited by the destination disk: the receiver waited {share} % of its time for it; were it free, up to {up_to}")
            })
        } else if most == network {
            self.verdict(End::Network, What::Stage(Stage::WaitSend), most, remaining, &|up_to| {
                format!("limited by the network: the sender waited {share} % of its time to send while the receiver waited for data; were it free, up to {up_to}")
            })
        } else if commit >= COMMIT_PERMILLE {
            self.verdict(End::Receiver, What::Stage(Stage::WaitWrite), commit, remaining, &|up_to| {
                format!("limited by flushing and renaming at the destination: {} % of the time; were it free, up to {up_to}", percent(commit))
            })
        } else {
            self.verdict(End::Both, What::Stage(Stage::Idle), most, remaining, &|up_to| {
                format!("limited by what lies between the bytes (scan, names, control): workers were idle {share} % of their time; were it free, up to {up_to}")
            })
        }
    }
}

fn percent(permille: u64) -> u8 {
    u8::try_from(permille.saturating_add(5) / 10).unwrap_or(100).min(100)
}

/// `19.3 Gbit/s`: one digit after the point, cut off, so that a ceiling is never rounded up.
fn rate(bps: u64) -> String {
    let (unit, name) = match bps {
        0..1_000 => return format!("{bps} bit/s"),
        1_000..1_000_000 => (1_000, "kbit/s"),
        1_000_000..1_000_000_000 => (1_000_000, "Mbit/s"),
        _ => (1_000_000_000, "Gbit/s"),
    };
    format!("{}.{} {name}", bps / unit, bps % unit / (unit / 10))
}
