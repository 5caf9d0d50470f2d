//! A bottleneck: one rate, one drop-tail queue, loss before or after it, marks, jitter.
//!
//! For: the world of `mod.rs`.
//! In and out: packets with the time at which they reach the queue in; what becomes of each, and when, out.
//! Invariants: first in, first out; the fate of a packet is known when it comes (its departure follows from what is before it).
//! Absent on purpose: packets of different priority, active queue management but for one marking threshold.

/// One second in nanoseconds, as the arithmetic here uses it.
pub const SECOND: f64 = 1e9;

/// SplitMix64 (Steele et al. 2014): numbers from a seed.
#[derive(Debug, Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// How packets are lost, apart from the queue's overflow.
#[derive(Debug, Clone, Copy)]
pub enum Loss {
    None,
    Random(f64),
    /// Gilbert–Elliott: per packet, chance to go bad, to go good again, and of loss while bad.
    Burst {
        bad: f64,
        good: f64,
        loss: f64,
    },
}

/// The link as configured.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// Bytes per second.
    pub rate: f64,
    /// Bytes the queue holds.
    pub queue_bytes: f64,
    pub loss: Loss,
    /// Loss strikes before the queue (else behind it).
    pub loss_before: bool,
    /// Marks packets that find more than so many bytes in the queue.
    pub mark_bytes: f64,
    /// Extra delay, uniform in 0..this; order is kept.
    pub jitter_ns: u64,
    /// A policer before the queue: it passes so many bytes per second and drops the rest, its bucket holds so many bytes.
    pub policer: Option<(f64, f64)>,
}

impl Link {
    /// A clean link of so many bytes per second with a queue of so many bytes.
    pub fn clean(rate: f64, queue_bytes: f64) -> Self {
        Self {
            rate,
            queue_bytes,
            loss: Loss::None,
            loss_before: false,
            mark_bytes: f64::INFINITY,
            jitter_ns: 0,
            policer: None,
        }
    }
}

/// What became of a packet.
#[derive(Debug, Clone, Copy)]
pub struct Fate {
    /// When it left the queue (or would have).
    pub left_ns: f64,
    pub lost: bool,
    pub overflow: bool,
    pub marked: bool,
    /// Nanoseconds it waited.
    pub waited_ns: f64,
}

#[derive(Debug, Clone)]
pub struct Bottleneck {
    pub link: Link,
    pub down: bool,
    free_ns: f64,
    /// What the policer's bucket lacks, bytes, and when that was so.
    lacking: (f64, f64),
    bad: bool,
    pub dice: Dice,
    /// Bytes that went through.
    pub carried: f64,
    pub overflowed: u64,
}

impl Bottleneck {
    pub fn new(link: Link, seed: u64) -> Self {
        Self {
            link,
            down: false,
            free_ns: 0.0,
            lacking: (0.0, 0.0),
            bad: false,
            dice: Dice(seed),
            carried: 0.0,
            overflowed: 0,
        }
    }

    /// The rate changes; what waits, waits on as bytes.
    pub fn set_rate(&mut self, now_ns: f64, rate: f64) {
        let waiting = (self.free_ns - now_ns).max(0.0);
        self.free_ns = now_ns.max(self.free_ns - waiting) + waiting * self.link.rate / rate;
        self.link.rate = rate;
    }

    pub fn waiting_ns(&self, now_ns: f64) -> f64 {
        (self.free_ns - now_ns).max(0.0)
    }

    fn strikes(&mut self) -> bool {
        match self.link.loss {
            Loss::None => false,
            Loss::Random(share) => self.dice.unit() < share,
            Loss::Burst { bad, good, loss } => {
                let turn = self.dice.unit();
                self.bad = if self.bad { turn >= good } else { turn < bad };
                self.bad && self.dice.unit() < loss
            }
        }
    }

    fn polices(&mut self, now_ns: f64, bytes: f64) -> bool {
        let Some((rate, bucket)) = self.link.policer else { return false };
        let (lacks, then_ns) = self.lacking;
        let lacks = (lacks - (now_ns - then_ns) * rate / SECOND).max(0.0);
        let drops = lacks + bytes > bucket.max(bytes);
        self.lacking = (if drops { lacks } else { lacks + bytes }, now_ns);
        drops
    }

    pub fn pass(&mut self, now_ns: f64, bytes: f64) -> Fate {
        let waiting = self.waiting_ns(now_ns);
        if self.polices(now_ns, bytes) {
            self.overflowed += 1;
            return Fate { left_ns: now_ns + waiting, lost: true, overflow: true, marked: false, waited_ns: waiting };
        }
        let queued = waiting * self.link.rate / SECOND;
        let marked = queued > self.link.mark_bytes;
        let struck = self.down || self.strikes();
        let overflow = queued + bytes > self.link.queue_bytes.max(bytes);
        self.overflowed += u64::from(overflow);
        if overflow || self.down || (struck && self.link.loss_before) {
            return Fate { left_ns: now_ns + waiting, lost: true, overflow, marked: false, waited_ns: waiting };
        }
        self.free_ns = self.free_ns.max(now_ns) + bytes * SECOND / self.link.rate;
        self.carried += bytes;
        Fate { left_ns: self.free_ns, lost: struck, overflow: false, marked, waited_ns: waiting }
    }
}
