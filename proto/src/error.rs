//! What can go wrong between two ends, each misdeed and each refusal with a number of its own.
//!
//! For: naming exactly what a peer did (`Breach`) or why an honest peer is turned away (`Refusal`).
//! In and out: made by decoders and state machines; crosses the wire as the code of `Frame::Refuse`; read by people.
//! Invariants: a code never changes its meaning and is never used again; breaches are 1..=999, refusals 1000..=1999.
//! Absent on purpose: faults of disks and links (they carry an errno and belong to the engine), string payloads.

use core::fmt;

/// Makes an enum whose variants carry a wire code and a sentence fragment, so that no table can fall out of step.
macro_rules! coded {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $code:literal, $what:literal;)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $(#[doc = $what] $variant,)+
        }

        impl $name {
            /// All of them, in order of their codes.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The number on the wire; the table stands in `docs/protocol.md`.
            #[must_use]
            pub const fn code(self) -> u16 {
                match self { $($name::$variant => $code,)+ }
            }

            /// The one with this number, if this build knows it.
            #[must_use]
            pub const fn from_code(code: u16) -> Option<$name> {
                match code { $($code => Some($name::$variant),)+ _ => None }
            }

            /// A lower-case fragment that reads well after "the peer" or "refused:".
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $($name::$variant => $what,)+ }
            }

            /// The variant's name, as the table in `docs/protocol.md` has it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => stringify!($variant),)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.what())
            }
        }

        impl core::error::Error for $name {}
    };
}

coded! {
    /// A peer broke the protocol. Never the fault of a disk or a link; the session ends.
    Breach {
        PathTooLong = 1, "named a path or a component longer than Linux takes";
        PathAbsolute = 2, "named an absolute path";
        PathEscapes = 3, "named a path with an empty, `.` or `..` component";
        PathHasNul = 4, "named a path with a NUL byte";
        PathParentMissing = 5, "named a path whose folder was never entered";
        FrameTooLong = 10, "sent a control frame longer than the limit";
        FrameTruncated = 11, "sent a control frame that ends within a field";
        FrameTrailing = 12, "sent a control frame with bytes after its last field";
        FrameUnknown = 13, "sent a control frame of a type this version does not have";
        FieldTooLong = 14, "sent a field or a list longer than its limit";
        FieldOutOfRange = 15, "sent a field with a value outside its range";
        TextInvalid = 16, "sent text that is not UTF-8";
        VersionUnknown = 20, "speaks no version that was agreed";
        WrongOrder = 21, "sent a control frame that may not come now";
        PlanMismatch = 22, "answered with another plan than both offers give";
        DowngradeRefused = 23, "asked for less protection than was agreed";
        TicketProof = 24, "gave a ticket proof that does not hold";
        SignatureInvalid = 25, "gave a signature that does not hold";
        ReceiptMismatch = 26, "signed another receipt than this end wrote";
        JobName = 27, "named a job otherwise than their session does";
        EntryOutOfOrder = 30, "announced entries out of order";
        EntryUnknown = 31, "spoke of an entry that was never announced or is already resolved";
        WindowExceeded = 32, "announced more unresolved entries than the window allows";
        FolderEndUnmatched = 33, "left a folder that it had not entered";
        TotalsMismatch = 34, "announced totals that do not match the entries";
        AnswerTwice = 35, "answered the same entry twice";
        WantOutOfRange = 36, "asked for chunks that the file does not have";
        EntryEndTwice = 37, "ended the same file twice";
        ChunkOutOfRange = 40, "sent a chunk that does not lie within its file";
        ChunkUnknown = 41, "spoke of a chunk that was never sent or is already settled";
        ChunkTwice = 42, "sent a chunk that has already been taken";
        ChunkUnwanted = 43, "sent a chunk that was not asked for";
        HeaderSeal = 50, "sent a chunk header whose seal does not hold";
        HeaderKind = 51, "sent a chunk header of an unknown kind";
        PayloadTooLong = 52, "sent a chunk longer than agreed";
        PackIndex = 53, "sent a pack whose index does not match its payload";
        RailMac = 60, "greeted a rail with a proof that does not hold";
        RailReused = 61, "greeted a rail under a number used before";
        RailJobUnknown = 62, "greeted a rail for a job that is not here";
        RailGreeting = 63, "greeted a rail with bytes that are no greeting";
        RailLimit = 64, "opened more rails than agreed";
        RailDirection = 65, "sent on a rail, against its direction, what is no count of frames taken";
        DigestMismatch = 70, "sent content whose digest differs from the one it announced";
        DigestMissing = 71, "left out a digest that was agreed";
        PacketKind = 80, "sent a packet of an unknown kind";
        PacketBody = 81, "sent a packet whose body is none";
        PacketEmpty = 82, "sent a data packet without data";
        NumberAbsurd = 83, "numbered a packet far beyond any that can be on its way";
        UnitBeyondGrant = 84, "sent a unit that was not granted";
        UnitTooLong = 85, "sent bytes beyond the end of a unit";
        UnitPieces = 86, "sent a unit in more pieces than any path asks for";
        UnitLength = 87, "gave a unit two lengths";
        CoverageUnsent = 88, "spoke of packets that were never sent";
        CoverageBackward = 89, "took back what it had reported";
        RateIgnored = 90, "kept sending packets faster than the rate that it was given";
        CreditMissing = 91, "sent a message on a queue pair for which it had no credit";
        CreditAbsurd = 92, "took back credits of a queue pair, or gave more than a queue holds";
    }
}

coded! {
    /// An honest peer that cannot be served. The session ends with this code and a detail for the user.
    Refusal {
        NotAuthorized = 1000, "this key is not authorized here";
        ReadOnly = 1001, "this key may only read here";
        WriteOnly = 1002, "this key may only write here";
        NoSuchPath = 1003, "no such file or folder";
        NotAFolder = 1004, "the destination is not a folder";
        Busy = 1005, "no room for another job now";
        Draining = 1006, "the daemon is shutting down";
        VersionTooOld = 1007, "no version of the protocol in common";
        NoCommonCipher = 1008, "no cipher in common";
        IntegrityOnlyRefused = 1009, "the other end does not allow payload in clear";
        TicketSpent = 1010, "the ticket has been used or has run out";
        NoSpace = 1011, "not enough space at the destination";
        OutsideRoot = 1012, "the path lies outside the served root";
        Stalled = 1013, "no progress for too long";
        Internal = 1014, "an internal error; the log of that end tells more";
        RelayRefused = 1015, "this end does not run jobs against other hosts for this key";
        NoCommonDigest = 1016, "no digest in common";
        Cancelled = 1017, "the user stopped the job";
        VolumeOut = 1018, "a disk of the destination's set failed in the job";
        Superseded = 1019, "its client has made another session for this job";
        Overlap = 1020, "source and destination are one and the same place, or one would harm the other";
        Denied = 1021, "the file system there denied permission";
    }
}

/// The sentence for a code received in `Frame::Refuse`, also for one that this build does not know.
#[must_use]
pub const fn explain_code(code: u16) -> &'static str {
    if let Some(breach) = Breach::from_code(code) {
        return breach.what();
    }
    match Refusal::from_code(code) {
        Some(refusal) => refusal.what(),
        None => "a reason that this version does not know",
    }
}
