//! Reordering of the path: how long and how many packets to wait before a missing packet counts as lost.
//!
//! For: a reordered packet is not a lost one, and a lost one is not waited for longer than the path's measured reordering asks.
//! In and out: arrivals that are newest and arrivals that are late in; how long and how far to hold back coverage out.
//! Invariants: fixed memory; what was measured is forgotten after 7.5 to 10 s without another.
//! Absent on purpose: thresholds by habit (three packets of RFC 5681, 9/8 of a round trip of RFC 9002): what the path does is measured.

/// Marks kept: how far back lateness can be measured, in steps of a sixteenth of the hold time.
const MARKS: usize = 256;
/// Hold time before anything is measured, ns: two queues of one NIC may swap packets for so long.
const HOLD_NS_FIRST: u64 = 1_000_000;
/// Finest step of time, ns: a twentieth of the first hold time.
const STEP_NS_MIN: u64 = 50_000;
/// Longest hold time, ns: half of the longest round trip that is served (2 s).
const HOLD_NS_MAX: u64 = 1_000_000_000;
/// The largest lateness of this many intervals counts ...
const TURNS: usize = 4;
/// ... each at least this long, ns, so that it is forgotten after 7.5 to 10 s ...
const TURN_NS: u64 = 2_500_000_000;
/// ... and of at least so many packets.
const TURN_PACKETS: u64 = 1000;

/// What was measured.
#[derive(Debug)]
pub(super) struct Reordering {
    /// When the newest number plus one was what; oldest at `first`.
    marks: [(u64, u64); MARKS],
    first: usize,
    count: usize,
    /// Largest lateness in ns and in packets, by turn; the present turn is 0.
    turns: [(u64, u64); TURNS],
    turn_ns: u64,
    turn_end: u64,
}

impl Reordering {
    pub(super) fn new(now_ns: u64) -> Self {
        let mut turns = [(0, 0); TURNS];
        turns[0].0 = HOLD_NS_FIRST;
        Reordering { marks: [(0, 0); MARKS], first: 0, count: 0, turns, turn_ns: now_ns, turn_end: 0 }
    }

    fn mark(&self, index: usize) -> (u64, u64) {
        self.marks[(self.first + index) % MARKS]
    }

    /// How many marks from the beginning fulfil `holds`, which is true up to some mark and false after it.
    fn partition(&self, holds: impl Fn((u64, u64)) -> bool) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = usize::midpoint(low, high);
            if holds(self.mark(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// How long a number is waited for after a higher one arrived.
    pub(super) fn hold_ns(&self) -> u64 {
        let most = self.turns.iter().map(|turn| turn.0).max().unwrap_or(0);
        (most + most / 4).min(HOLD_NS_MAX)
    }

    /// How many higher numbers do not yet make a number lost.
    fn hold_packets(&self) -> u64 {
        let most = self.turns.iter().map(|turn| turn.1).max().unwrap_or(0);
        most + most / 4
    }

    fn step_ns(&self) -> u64 {
        (self.hold_ns() / 16).max(STEP_NS_MIN)
    }

    /// The newest number is `end - 1` now.
    pub(super) fn on_newest(&mut self, now_ns: u64, end: u64) {
        if self.count > 0 && now_ns < self.mark(self.count - 1).0 + self.step_ns() {
            return;
        }
        if now_ns >= self.turn_ns + TURN_NS && end >= self.turn_end + TURN_PACKETS {
            self.turns.rotate_right(1);
            self.turns[0] = (0, 0);
            self.turn_ns = now_ns;
            self.turn_end = end;
        }
        if self.count == MARKS {
            self.first = (self.first + 1) % MARKS;
            self.count -= 1;
        }
        self.marks[(self.first + self.count) % MARKS] = (now_ns, end);
        self.count += 1;
    }

    /// When a higher number than this had arrived, at the latest.
    fn overtaken_ns(&self, now_ns: u64, number: u64) -> u64 {
        let at = self.partition(|mark| mark.1 <= number + 1);
        if at < self.count { self.mark(at).0 } else { now_ns }
    }

    /// `number` arrived although higher ones had.
    pub(super) fn on_late(&mut self, now_ns: u64, number: u64, end: u64) {
        // A mark may be a step younger than what it stands for.
        let late_ns = now_ns - self.overtaken_ns(now_ns, number).min(now_ns)
            + self.step_ns().min(self.hold_ns() / 8 + STEP_NS_MIN);
        let turn = &mut self.turns[0];
        turn.0 = turn.0.max(late_ns);
        turn.1 = turn.1.max(end - 1 - number);
    }

    fn end_at(&self, ns: u64) -> u64 {
        match self.partition(|mark| mark.0 <= ns) {
            0 => 0,
            past => self.mark(past - 1).1,
        }
    }

    /// Numbers below this that did not arrive are lost.
    pub(super) fn settled(&self, now_ns: u64, end: u64) -> u64 {
        let hold_ns = self.hold_ns();
        let by_time = now_ns.checked_sub(hold_ns).map_or(0, |then| self.end_at(then));
        let packets = self.hold_packets();
        if packets == 0 {
            return by_time;
        }
        // A path that swaps neighbours does so at any rate: where packets come slowly, the distance takes longer than was measured;
        // but not for ever.
        let by_distance = end.saturating_sub(packets);
        let at_last = now_ns.checked_sub(4 * hold_ns + 20_000_000).map_or(0, |then| self.end_at(then));
        by_time.min(by_distance.max(at_last))
    }

    /// When `number`, missing now, will count as lost by time.
    pub(super) fn settles_ns(&self, now_ns: u64, number: u64) -> u64 {
        let overtaken = self.overtaken_ns(now_ns, number);
        let due = overtaken + self.hold_ns();
        if due > now_ns { due } else { now_ns + self.step_ns() }
    }
}
