//! How a job's files stand on a set of volumes.
//!
//! For: one job from or to N disks side by side; said in `Open`, written into the receipt and into each volume.
//! In and out: what the user declared; its words.
//! Invariants: a layout names at least one volume and at most `VOLUMES_MAX`.
//! Absent on purpose: which file or chunk stands where (engine decides while it runs), redundancy: a volume that is lost takes with it what
//! only it held.

/// Most volumes of one set: more disks than a host has slots for, and few enough to look at each for one name.
pub const VOLUMES_MAX: u16 = 256;

/// What is dealt out to the volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stripe {
    /// Whole files: each stands on one volume, under its own name.
    File = 0,
    /// Chunks: a large file stands on many volumes, its name on one of them; see `striped`.
    Chunk = 1,
}

impl Stripe {
    const ALL: [Stripe; 2] = [Stripe::File, Stripe::Chunk];

    /// As options, receipts and volumes say it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Stripe::File => "file",
            Stripe::Chunk => "chunk",
        }
    }

    /// The layout of this name; `None`: there is no such layout.
    #[must_use]
    pub fn by_name(name: &[u8]) -> Option<Stripe> {
        Stripe::ALL.into_iter().find(|it| it.name().as_bytes() == name)
    }

    /// From its number on the wire.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Stripe> {
        Stripe::ALL.into_iter().find(|&it| it as u8 == byte)
    }
}

/// A destination that is a set of volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// What is dealt out.
    pub stripe: Stripe,
    /// To how many.
    pub volumes: u16,
}
