//! Units that come in: where their bytes are, and how many may be promised.
//!
//! For: the state of the receiving half.
//! In and out: units that begin, move to disk, and end; the window that the sender is granted.
//! Invariants: a unit is in one place at a time; what was granted stays granted.
//! Absent on purpose: packets (`recv`), writes (`spill`).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use proto::flow::{FlowConfig, FlowReceiver};
use proto::wire::chunk::{Header, TAG_BYTES};
use sys::mem::Buf;

use super::shelves::Shelves;
use super::wire::{Go, UnitMap};
use crate::meter::PathStats;
use crate::platform::Arrived;
use crate::seal::packet::{BURST_PACKETS_MAX, Place};

/// Where a unit's bytes are.
#[derive(Debug)]
pub(super) enum Home {
    /// from: – · to: Leaving, (gone). In memory.
    Here(Buf),
    /// from: Here · to: There. Its buf is being written into its place.
    Leaving,
    /// from: Leaving · to: Checking, Over. In its place on disk; what comes is written there.
    There,
    /// from: There · to: (gone). Whole, and being read back.
    Checking,
    /// from: Leaving, There · to: (gone). It cannot be kept; what comes is thrown away. `told`: its failure was.
    Over { told: bool },
}

/// A unit of which something came.
#[derive(Debug)]
pub(super) struct Coming {
    pub(super) header: Option<Header>,
    pub(super) home: Home,
    /// Nothing was taken for bytes from here on.
    pub(super) fresh_from: u32,
    /// Writes of pieces in flight or held.
    pub(super) writes: u32,
}

/// How many units may be promised that have not begun to come. Bufs do not bound it: a range that waits for repairs leaves its buf within
/// milliseconds, so what a long path holds passes through few. What finds no room does: a pack has no other place than a buf, and a disk may lag.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) units: u32,
    pub(super) most: u32,
    /// It grows by one unit for so many that are done: for each at first, so that it doubles in a round trip.
    pub(super) slowness: u32,
    pub(super) since: u32,
    /// Packets without room, those looked at, and the units done when the last of these made it less.
    pub(super) seen: u64,
    pub(super) cut_at: u32,
}

impl Window {
    /// After a shortage it grows by a sixteenth of itself in the time that it takes to use it: what finds no room then is sent twice.
    const SLOWNESS: u32 = 16;

    pub(super) fn new(config: &FlowConfig) -> Self {
        let most = config.units_most.max(config.units_open);
        Window { units: config.units_open, most, slowness: 1, since: 0, seen: 0, cut_at: 0 }
    }

    pub(super) fn on_done(&mut self) {
        self.since += 1;
        if self.since >= self.slowness {
            self.since = 0;
            self.units = (self.units + 1).min(self.most);
        }
    }

    /// Half of it where packets found no room; again only when what had been promised then is over.
    pub(super) fn look(&mut self, no_room: u64, done: u32) {
        if no_room > std::mem::replace(&mut self.seen, no_room) && done >= self.cut_at {
            self.units /= 2;
            self.slowness = Self::SLOWNESS;
            self.cut_at = done + self.units;
        }
    }
}

/// A burst in the inbox, as far as its packets were taken.
#[derive(Debug)]
pub(super) struct Burst {
    pub(super) arrived: Arrived,
    /// When it came, not when it was looked at; and never before what was looked at earlier.
    pub(super) now_ns: u64,
    /// Packets whose heads were read.
    pub(super) packets: usize,
    /// Data packets among those of the last reading, and how many of them were taken.
    pub(super) count: usize,
    pub(super) at: usize,
}

/// See the module.
pub(super) struct Receiving {
    pub(super) flow: FlowReceiver,
    pub(super) units: UnitMap<Coming>,
    /// Units in their place that are whole and wait for a buf to be checked.
    pub(super) checks: VecDeque<u32>,
    pub(super) spill: Shelves,
    /// A go that waits for what is next to be done.
    pub(super) go: Option<Go>,
    pub(super) burst: Option<Burst>,
    pub(super) window: Window,
    /// Units below were granted.
    pub(super) granted: u32,
    /// Units done with.
    pub(super) done: u32,
    pub(super) numbers: Box<[u64]>,
    pub(super) places: Box<[Place]>,
    pub(super) pads: Box<[[u8; TAG_BYTES]]>,
    pub(super) ranges: Box<[Range<usize>]>,
}

impl std::fmt::Debug for Receiving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units: BTreeMap<_, _> = self.units.iter().collect();
        let Receiving { flow, checks, spill, granted, done, .. } = self;
        f.debug_struct("Receiving")
            .field("flow", &(flow.stats(), flow.next_at()))
            .field("units", &units)
            .field("checks", checks)
            .field("spill", spill)
            .field("granted_done", &(granted, done))
            .finish_non_exhaustive()
    }
}

impl Receiving {
    pub(super) fn new(flow: FlowReceiver, config: &FlowConfig) -> Self {
        let place = Place { unit: 0, offset: 0, tagged: false };
        Receiving {
            flow,
            units: UnitMap::with_capacity_and_hasher(2 * config.units_most as usize, Default::default()),
            checks: VecDeque::with_capacity(16),
            spill: Shelves::new(usize::from(config.packet_bytes_max)),
            go: None,
            burst: None,
            window: Window::new(config),
            granted: config.units_open,
            done: 0,
            numbers: vec![0; BURST_PACKETS_MAX].into(),
            places: vec![place; BURST_PACKETS_MAX].into(),
            pads: vec![[0; TAG_BYTES]; BURST_PACKETS_MAX].into(),
            ranges: vec![0..0; BURST_PACKETS_MAX].into(),
        }
    }

    /// A unit landed or was thrown away.
    pub(super) fn end(&mut self, unit: u32) {
        self.flow.done(unit);
        self.done += 1;
        self.window.on_done();
    }

    pub(super) fn tell(&self, to: &mut PathStats) {
        let flow = self.flow.stats();
        *to = PathStats {
            packets: flow.packets,
            units: flow.units.into(),
            wire_bytes: flow.wire_bytes,
            marked_bytes: flow.marked_bytes,
            already_bytes: flow.already_bytes,
            late: flow.late,
            feedbacks: flow.feedbacks,
            again: flow.duplicates,
            ..*to
        };
    }

    pub(super) fn give_bufs(self, give: &mut impl FnMut(Buf)) {
        for (_, coming) in self.units {
            if let Home::Here(buf) = coming.home {
                give(buf);
            }
        }
    }
}
