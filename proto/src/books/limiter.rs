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
//! receiver waits for data meanwhile (then the network lies between), or as the kernel of the sender had data on its way while the receiver
//! waited for it; idle is one only as far as the receiver has nothing to do either. An end that works nearly all of its time is a cause
//! before all waits but the cap; work that took no CPU time is a wait for a file system whose calls do not return (FUSE, NFS). A cap is
//! one only if it was reached. What no worker's book has (a pipe that was read first, a name that was looked up, a peer that stood still)
//! comes with the run.

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
/// Held back by a cap so much of the time: the cap is the limiter, if what was moved meanwhile came near it.
const CAPPED_PERMILLE: u64 = 250;
/// A cap counts as reached from so many thousandths of it on …
const REACHED_PERMILLE: u64 = 950;
/// … and of a job that was held most of its time from so many: a short one begins and ends below it.
const NEARLY_REACHED_PERMILLE: u64 = 850;
/// Most of its time.
const HELD_PERMILLE: u64 = 500;
/// Held back nearly all of the time, below the cap: jobs that share it have the rest.
const CAP_SHARED_PERMILLE: u64 = 850;
/// What happened beside the workers is the limiter from this share of the whole time on.
const BESIDE_PERMILLE: u64 = 400;
/// Workers that waited for a disk one after the other, together so much of the time: the disk is the limiter though most of them were idle.
const SERIAL_PERMILLE: u64 = 800;
/// A loss that is worth a word.
const LOSS_PPM_MIN: u32 = 1_000;
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
    /// The time in which a pipe was read, before there was a file to send.
    Pipe,
    /// The time in which a host's name was looked up.
    NameLookup,
    /// The time in which the peer was not heard.
    Silence,
}

impl What {
    /// As reports write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            What::Stage(stage) => stage.name(),
            What::RunDelay => "wait for a core",
            What::Pipe => "wait for the pipe",
            What::NameLookup => "name lookup",
            What::Silence => "peer not heard",
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

/// A run, beside the books of its workers. All times in ns; what is not known is 0.
#[derive(Debug, Clone, Copy, Default)]
pub struct Run {
    /// What it moved.
    pub payload_bytes: u64,
    /// From the plan to the end.
    pub wall_ns: u64,
    /// Both ends run on one host (`negotiate::share_cores`).
    pub shared_cores: bool,
    /// The plan's cap, bit/s, for what the rails carry.
    pub rate_cap_bps: u64,
    /// Before the plan: a pipe was read to its end.
    pub pipe_ns: u64,
    /// Before the plan: the peer's name was looked up.
    pub lookup_ns: u64,
    /// Within the run: nothing was heard of the peer, for seconds each time.
    pub silent_ns: u64,
    /// The end that was not heard; `None`: nobody listened.
    pub peer: Option<End>,
    /// Within the run: the sender's kernel had data on its way, and the receiver's window was open (of the busiest stream).
    pub in_flight_ns: u64,
    /// Packets, or bytes, that were lost on their way, millionths of all.
    pub loss_ppm: u32,
    /// What a policer on the path lets through, bit/s, where the congestion controller found one.
    pub policer_bps: u64,
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

    /// Of the time, what was work and took no CPU time, though there was a core: calls that did not return.
    fn blocked(&self) -> u64 {
        // Without a figure nothing is claimed; and the process's CPU time is that of its other threads, too.
        if self.books.cpu_ns == 0 { 0 } else { self.on_core().saturating_sub(self.permille(self.books.cpu_ns)) }
    }

    /// Is the dearest stage one whose calls wait for a file system, most of its time?
    fn waits_in_calls(&self) -> bool {
        let stage = self.dearest();
        matches!(stage, Stage::Read | Stage::Write | Stage::Loop) && self.blocked() * 2 >= self.of(stage)
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

/// Names what limited a run.
#[must_use]
pub fn limiter(sender: &Books, receiver: &Books, run: &Run) -> Verdict {
    let goodput_bps = goodput(run.payload_bytes, run.wall_ns);
    let case = Case { sender: Shares::new(sender), receiver: Shares::new(receiver), goodput_bps, run };
    if case.sender.total_ns == 0 && case.receiver.total_ns == 0 {
        let sentence = String::from("the limiter is unknown: no time was booked");
        return Verdict { end: End::Both, what: None, share_percent: 0, ceiling_bps: 0, sentence };
    }
    case.before()
        .or_else(|| case.silent())
        .or_else(|| case.capped())
        .or_else(|| if run.shared_cores { case.cores() } else { None })
        .or_else(|| case.denied())
        .or_else(|| case.busy_end())
        .unwrap_or_else(|| case.wait())
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
    run: &'a Run,
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

    /// Thousandths of a time that is not the workers'.
    fn of_time(ns: u64, all_ns: u64) -> u64 {
        u64::try_from(u128::from(ns) * 1000 / u128::from(all_ns.max(1))).unwrap_or(u64::MAX).min(1000)
    }

    /// What took its time before there was anything to send, or anybody to send it to.
    fn before(&self) -> Option<Verdict> {
        let Run { pipe_ns, lookup_ns, wall_ns, .. } = *self.run;
        let all_ns = wall_ns.saturating_add(pipe_ns).saturating_add(lookup_ns);
        let (pipe, lookup) = (Self::of_time(pipe_ns, all_ns), Self::of_time(lookup_ns, all_ns));
        if pipe.max(lookup) < BESIDE_PERMILLE {
            return None;
        }
        // The whole time with it, against the run without.
        let ceiling_bps = self.goodput_bps;
        let (end, what, share, words) = if pipe >= lookup {
            let words = "the source, a pipe that is slow: reading it to its end took";
            (End::Sender, What::Pipe, pipe, words)
        } else {
            (End::Network, What::NameLookup, lookup, "the name service: looking up the other host's name took")
        };
        let (seconds, share_percent) = (pipe_ns.max(lookup_ns) as f64 / 1e9, percent(share));
        let up_to = rate(ceiling_bps);
        let sentence =
            format!("limited by {words} {seconds:.1} s, {share_percent} % of the time; without that, up to {up_to}");
        Some(Verdict { end, what: Some(what), share_percent, ceiling_bps, sentence })
    }

    /// The peer was not heard for seconds.
    fn silent(&self) -> Option<Verdict> {
        let end = self.run.peer?;
        let share = Self::of_time(self.run.silent_ns, self.run.wall_ns);
        let name = if end == End::Sender { "sender" } else { "receiver" };
        (share >= BESIDE_PERMILLE).then(|| {
            self.verdict(end, What::Silence, share, self.without(share), &|up_to| {
                let seconds = self.run.silent_ns as f64 / 1e9;
                format!(
                    "limited by the {name}, which stood still: nothing was heard of it for {seconds:.1} s, {} % of the time; without that, up to {up_to}",
                    percent(share)
                )
            })
        })
    }

    fn capped(&self) -> Option<Verdict> {
        let cap_bps = self.run.rate_cap_bps;
        let share = self.sender.of(Stage::WaitRate).max(self.receiver.of(Stage::WaitRate));
        // What is on the wire is what a cap is for; while the sender has nothing to send it holds nothing back.
        let carried = self.goodput_bps.max(goodput(self.sender.books.rail_bytes, self.run.wall_ns));
        let moving = 1000 - self.sender.of(Stage::Idle).saturating_add(self.sender.of(Stage::WaitRecv)).min(900);
        let least = if share >= HELD_PERMILLE { NEARLY_REACHED_PERMILLE } else { REACHED_PERMILLE };
        let reached = |bps: u64| u128::from(bps) * 1000 >= u128::from(cap_bps) * u128::from(least);
        let while_moving = u64::try_from(u128::from(carried) * 1000 / u128::from(moving)).unwrap_or(u64::MAX);
        let held = share >= CAPPED_PERMILLE && (cap_bps == 0 || reached(while_moving));
        // Goodput at the cap is proof enough, even if the pacing was booked as something else.
        let at_cap = cap_bps != 0 && reached(carried);
        if !held && !at_cap && share < CAP_SHARED_PERMILLE {
            return None;
        }
        let cap = match cap_bps {
            0 => String::from("a rate cap"),
            _ if held || at_cap => format!("the rate cap of {}", rate(cap_bps)),
            _ => format!("this job's share of the rate cap of {}", rate(cap_bps)),
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
                work_word(stage, name),
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
                "limited by CPU at the {name}: its workers were ready and had no core for {} % of their time (other programs, or a quota); with cores of their own, up to {up_to}",
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
        let sent = self.sender.of(Stage::WaitSend).max(Self::of_time(self.run.in_flight_ns, self.run.wall_ns));
        sent.min(self.receiver.of(Stage::WaitRecv))
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
        if this.waits_in_calls() {
            // Whatever the call was (open, write, rename): a file system did not return from it.
            let waited = if end == End::Sender { Stage::WaitRead } else { Stage::WaitWrite };
            return self.verdict(end, What::Stage(waited), this.blocked().max(share), remaining, &|up_to| {
                let share = percent(this.blocked().max(share));
                format!("limited by the {name}'s disk: its calls took {share} % of the time; were it free, up to {up_to}{next}")
            });
        }
        self.verdict(end, What::Stage(stage), share, remaining, &|up_to| {
            let (what, share) = (work_word(stage, name), percent(share));
            format!(
                "limited by CPU at the {name}: {what} took {share} % of its time; were it free, up to {up_to}{next}"
            )
        })
    }

    /// Idle is what is left where nothing was handed out. If one worker's whole time went to a disk, in waits or in calls that did not return,
    /// or to the network (one stream), the others had nothing because of that.
    fn serial(&self) -> Option<Verdict> {
        let whole = |end: Shares<'_>, permille: u64| permille.saturating_mul(end.books.workers.max(1).into()).min(1000);
        let calls = |end: Shares<'_>| if end.waits_in_calls() { end.blocked() } else { 0 };
        let (sender, receiver) = (self.sender, self.receiver);
        let source = whole(sender, sender.of(Stage::WaitRead).saturating_add(calls(sender)));
        let disk = whole(receiver, receiver.of(Stage::WaitWrite).saturating_add(calls(receiver)));
        let in_flight = Self::of_time(self.run.in_flight_ns, self.run.wall_ns);
        let sent = whole(sender, sender.of(Stage::WaitSend)).max(in_flight);
        let network = sent.min(whole(receiver, receiver.of(Stage::WaitRecv)));
        let most = source.max(disk).max(network);
        if most < SERIAL_PERMILLE {
            return None;
        }
        let (end, wait, what) = if most == disk {
            (End::Receiver, Stage::WaitWrite, String::from("the receiver's disk"))
        } else if most == source {
            (End::Sender, Stage::WaitRead, String::from("the sender's disk"))
        } else {
            (End::Network, Stage::WaitSend, self.way())
        };
        Some(self.verdict(end, What::Stage(wait), most, self.without(most), &|up_to| {
            let share = percent(most);
            format!("limited by {what}: one worker waited for it {share} % of the time, the others for that one; were it free, up to {up_to}")
        }))
    }

    /// Nobody is busy: the largest wait that is a cause, unless one stage of work is larger still.
    fn wait(&self) -> Verdict {
        let (source, disk, network) = (self.source(), self.disk(), self.network());
        let nothing = self.receiver.of(Stage::Idle).saturating_add(self.receiver.of(Stage::WaitRecv));
        // A sender that only waits for words has nothing to do, either.
        let idle = self.sender.of(Stage::Idle).saturating_add(self.sender.of(Stage::WaitRecv)).min(nothing);
        let busier = if self.sender.busy() >= self.receiver.busy() { self.sender } else { self.receiver };
        let work = busier.of(busier.dearest());
        let most = source.max(disk).max(network).max(idle).max(work);
        if most == idle
            && most > work
            && let Some(serial) = self.serial()
        {
            return serial;
        }
        let commit = Self::of_time(self.receiver.books.commit_ns, self.run.wall_ns);
        let remaining = self.without(most);
        let share = percent(most);
        if most == work {
            self.work()
        } else if most == source {
            self.verdict(End::Sender, What::Stage(Stage::WaitRead), most, remaining, &|up_to| {
                format!("limited by the sender's disk: the sender waited {share} % of its time for it; were it free, up to {up_to}")
            })
        } else if most == disk {
            self.verdict(End::Receiver, What::Stage(Stage::WaitWrite), most, remaining, &|up_to| {
                format!("limited by the receiver's disk: the receiver waited {share} % of its time for it; were it free, up to {up_to}")
            })
        } else if most == network {
            self.verdict(End::Network, What::Stage(Stage::WaitSend), most, remaining, &|up_to| {
                let way = self.way();
                format!("limited by {way}: the receiver waited for data while the sender waited to send, {share} % of the time; were it free, up to {up_to}")
            })
        } else if commit >= COMMIT_PERMILLE {
            self.verdict(End::Receiver, What::Stage(Stage::WaitWrite), commit, remaining, &|up_to| {
                format!("limited by the receiver's disk, flushing and renaming: {} % of the time; were it free, up to {up_to}", percent(commit))
            })
        } else {
            self.verdict(End::Both, What::Stage(Stage::Idle), most, remaining, &|up_to| {
                format!("limited by metadata and round trips (scan, names, control): workers were idle {share} % of their time; were it free, up to {up_to}")
            })
        }
    }
}

impl Case<'_> {
    /// What lies between the ends, as far as it is known.
    fn way(&self) -> String {
        match self.run.policer_bps {
            0 => format!("the network path{}", self.lost()),
            bps => format!("a policer at about {} on the path{}", about(bps), self.lost()),
        }
    }

    /// A loss that is worth a word, in words.
    fn lost(&self) -> String {
        let ppm = self.run.loss_ppm;
        if ppm < LOSS_PPM_MIN { String::new() } else { format!(" (loss {}.{} %)", ppm / 10_000, ppm / 1_000 % 10) }
    }
}

/// A stage of work as the field calls it.
fn work_word(stage: Stage, end: &str) -> &'static str {
    match stage {
        Stage::Read => "reading the source",
        Stage::Hash => "digests (hash)",
        Stage::Seal if end == "sender" => "encryption",
        Stage::Seal => "decryption",
        Stage::Send => "sending",
        Stage::Recv => "receiving",
        Stage::Write => "writing the destination",
        other => other.name(),
    }
}

fn percent(permille: u64) -> u8 {
    u8::try_from(permille.saturating_add(5) / 10).unwrap_or(100).min(100)
}

/// `20 Mbit/s`, `2.4 Gbit/s`: what was found by trying has two digits or three.
#[must_use]
pub fn about(bps: u64) -> String {
    let (unit, name) = unit_of(bps);
    let tenths = bps.saturating_mul(10).saturating_add(unit / 2) / unit;
    if tenths >= 100 {
        format!("{} {name}", (tenths + 5) / 10)
    } else {
        format!("{}.{} {name}", tenths / 10, tenths % 10)
    }
}

fn unit_of(bps: u64) -> (u64, &'static str) {
    match bps {
        0..1_000 => (1, "bit/s"),
        1_000..1_000_000 => (1_000, "kbit/s"),
        1_000_000..1_000_000_000 => (1_000_000, "Mbit/s"),
        _ => (1_000_000_000, "Gbit/s"),
    }
}

/// `19.3 Gbit/s`: one digit after the point, cut off, so that a ceiling is never rounded up.
fn rate(bps: u64) -> String {
    let (unit, name) = unit_of(bps);
    if unit == 1 {
        return format!("{bps} {name}");
    }
    format!("{}.{} {name}", bps / unit, bps % unit / (unit / 10))
}
