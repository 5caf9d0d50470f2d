//! Exit codes, and the form in which a failure is told to the user.
//!
//! For: scripts that branch on the number, people who read the sentence.
//! In and out: errors and entry faults → one `Exit`; a `Failure` → two lines on standard error.
//! Invariants: a number never changes its meaning between versions; every failure names the next step.
//! Absent on purpose: deciding what went wrong (whoever met it says so), translations.

use std::fmt;
use std::io;

use proto::error::{Breach, Refusal};
use proto::wire::control::FaultKind;

/// What the process ends with. The numbers are a public contract.
///
/// A job that reached its end although some entries failed ends with the code of the **most serious** kind among them
/// (`Exit::of_faults`): corrupt, I/O error, no space, permission, torn, vanished, other. The report lists them all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Exit {
    /// All of it is there, at the durability level asked for, and verified.
    Whole = 0,
    /// The command line or the config file cannot be understood.
    Usage = 2,
    /// Some entries could not be moved; all others are done.
    Partial = 3,
    /// A source changed while it was read.
    Torn = 4,
    /// A source is not there, or went away in mid-job.
    Vanished = 5,
    /// The other end cannot be reached.
    Connect = 10,
    /// The other end's key is unknown, or not the one we trust.
    Identity = 11,
    /// The other end does not let us: not authorised, revoked, read-only, write-only, outside the root.
    Refused = 12,
    /// The other end broke the protocol.
    Breach = 13,
    /// The ends cannot agree: version, cipher, integrity-only, caps.
    Negotiation = 14,
    /// No space or quota at the destination.
    Full = 20,
    /// Permission denied by the file system.
    Denied = 21,
    /// Input/output error of a disk.
    Io = 22,
    /// Data came out wrong again and again: memory, NIC or disk is broken.
    Corrupt = 23,
    /// Another job writes the same file at the destination.
    InUse = 24,
    /// No progress for `--stall` seconds.
    Stalled = 30,
    /// The connection was lost and could not be made again.
    Lost = 31,
    /// Stopped by a signal; the next run resumes.
    Interrupted = 32,
    /// The disk does not hold what the receipt says.
    Mismatch = 40,
    /// All is there and verified, but the receipt that should say so could not be kept.
    NoReceipt = 41,
    /// A mistake in Longhaul.
    Bug = 70,
}

/// One line of the table of exit codes.
#[derive(Debug, Clone, Copy)]
pub struct ExitLine {
    /// The exit code that the process ends with.
    pub exit: Exit,
    /// One word for JSON (`"exit_kind"`).
    pub word: &'static str,
    /// What it means, as the book and the manual pages print it.
    pub meaning: &'static str,
    /// What the user can do, when nobody knows better.
    pub next_step: &'static str,
}

/// Every exit code. The table of the manual pages is made from it.
pub static TABLE: &[ExitLine] = &[
    line(Exit::Whole, "whole", "everything is there, at the durability level asked for, and verified", "nothing to do"),
    line(Exit::Usage, "usage", "the command line or the config file is wrong", "see `longhaul help`"),
    line(
        Exit::Partial,
        "partial",
        "some entries could not be moved (kind not supported, or another reason); all others are done",
        "read the list of entries in the report; the next run of the same command tries them again",
    ),
    line(
        Exit::Torn,
        "torn",
        "a source changed while it was read; it was not published",
        "stop whatever writes the source, then run the same command again",
    ),
    line(
        Exit::Vanished,
        "vanished",
        "a source does not exist, or went away during the job",
        "check the path named above, then run the same command again",
    ),
    line(
        Exit::Connect,
        "connect",
        "the other end cannot be reached",
        "check the address, that `longhaul serve` runs there, and the firewall between",
    ),
    line(
        Exit::Identity,
        "identity",
        "the other end's key is unknown or not the trusted one",
        "compare fingerprints (`longhaul key show` there), then `longhaul key trust` here",
    ),
    line(
        Exit::Refused,
        "refused",
        "the other end does not allow it: key not authorised or revoked, ticket spent, read-only, write-only, outside the root",
        "ask the other end's owner for `longhaul key authorize` or a new ticket",
    ),
    line(
        Exit::Breach,
        "breach",
        "the other end broke the protocol, or someone in between altered it",
        "check both versions with `longhaul --version`; if they are equal, report it with both ends' `-v` output",
    ),
    line(
        Exit::Negotiation,
        "negotiation",
        "the two ends cannot agree on a version, cipher, digest or integrity-only",
        "run with --explain to see both offers, then change the option or the other end's config",
    ),
    line(
        Exit::Full,
        "full",
        "no space or quota at the destination",
        "make room at the destination, then run the same command again: it resumes",
    ),
    line(
        Exit::Denied,
        "denied",
        "the file system denied permission",
        "give this user the permission named above, then run the same command again",
    ),
    line(
        Exit::Io,
        "io",
        "a disk reported an input/output error",
        "look at the kernel's log (`dmesg`) and at the disk's health, then run the same command again",
    ),
    line(
        Exit::Corrupt,
        "corrupt",
        "data came out wrong again and again: memory, NIC or disk is broken",
        "test memory and disk of the end that the report names before you trust it with data",
    ),
    line(
        Exit::InUse,
        "in_use",
        "another job writes the same file at the destination",
        "wait for the other job, named above, or stop it; then run the same command again",
    ),
    line(
        Exit::Stalled,
        "stalled",
        "no progress for the seconds of --stall",
        "look at the rail, stage and peer named above; the next run of the same command resumes",
    ),
    line(
        Exit::Lost,
        "lost",
        "the connection was lost and could not be made again",
        "run the same command again: it resumes",
    ),
    line(Exit::Interrupted, "interrupted", "stopped by a signal", "run the same command again: it resumes"),
    line(
        Exit::Mismatch,
        "mismatch",
        "the disk does not hold what the receipt says",
        "copy the files named above again; `longhaul cp` sends what differs",
    ),
    line(
        Exit::NoReceipt,
        "unreceipted",
        "the data is there as with 0, but the receipt could not be kept, here or at the other end",
        "make its place writable, at the end named above; `longhaul sync --checksum` of the same paths reads both ends and gives a receipt",
    ),
    line(Exit::Bug, "bug", "a mistake in longhaul", "report it with the output of the same command with -v"),
];

const fn line(exit: Exit, word: &'static str, meaning: &'static str, next_step: &'static str) -> ExitLine {
    ExitLine { exit, word, meaning, next_step }
}

/// Kinds of entry faults, most serious first: hardware that lies, then hardware that fails, then what the user can mend.
pub const SERIOUSNESS: [FaultKind; 9] = [
    FaultKind::Corrupt,
    FaultKind::Io,
    FaultKind::Full,
    FaultKind::Denied,
    FaultKind::InUse,
    FaultKind::Torn,
    FaultKind::Vanished,
    FaultKind::Unsupported,
    FaultKind::Other,
];

impl Exit {
    /// The number the process ends with.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// What a number means that a process ended with, or told.
    #[must_use]
    pub fn of_code(code: u8) -> Option<Self> {
        TABLE.iter().map(|line| line.exit).find(|exit| exit.code() == code)
    }

    /// This code's line of the table.
    #[must_use]
    pub fn line(self) -> &'static ExitLine {
        TABLE.iter().find(|line| line.exit == self).expect("every exit code stands in TABLE, as the test below shows")
    }

    /// The exit code of one failed entry.
    #[must_use]
    pub fn of_fault(kind: FaultKind) -> Self {
        match kind {
            FaultKind::Vanished => Self::Vanished,
            FaultKind::Torn => Self::Torn,
            FaultKind::Denied => Self::Denied,
            FaultKind::Full => Self::Full,
            FaultKind::Io => Self::Io,
            FaultKind::Corrupt => Self::Corrupt,
            FaultKind::InUse => Self::InUse,
            FaultKind::Unsupported | FaultKind::Other => Self::Partial,
        }
    }

    /// The exit code of a job whose entries failed in these ways: the most serious; `Whole` if none failed.
    #[must_use]
    pub fn of_faults(kinds: impl IntoIterator<Item = FaultKind>) -> Self {
        let rank = |kind: FaultKind| SERIOUSNESS.iter().position(|&other| other == kind);
        kinds.into_iter().min_by_key(|&kind| rank(kind)).map_or(Self::Whole, Self::of_fault)
    }

    /// The exit code of a refusal by the other end (or by us, when we are the daemon).
    #[must_use]
    pub fn of_refusal(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotAuthorized
            | Refusal::ReadOnly
            | Refusal::WriteOnly
            | Refusal::TicketSpent
            | Refusal::OutsideRoot
            | Refusal::RelayRefused => Self::Refused,
            Refusal::Denied => Self::Denied,
            Refusal::NoSuchPath => Self::Vanished,
            Refusal::NotAFolder | Refusal::Overlap => Self::Usage,
            Refusal::Busy | Refusal::Draining => Self::Connect,
            Refusal::VersionTooOld
            | Refusal::NoCommonCipher
            | Refusal::NoCommonDigest
            | Refusal::IntegrityOnlyRefused => Self::Negotiation,
            Refusal::NoSpace => Self::Full,
            Refusal::Stalled => Self::Stalled,
            Refusal::Internal => Self::Bug,
            Refusal::Cancelled => Self::Interrupted,
            Refusal::Superseded => Self::Lost,
            Refusal::VolumeOut => Self::Io,
        }
    }

    /// The exit code for the number in `Frame::Refuse`; a number this build does not know comes from a newer peer.
    #[must_use]
    pub fn of_wire_code(code: u16) -> Self {
        match Refusal::from_code(code) {
            Some(refusal) => Self::of_refusal(refusal),
            None if Breach::from_code(code).is_some() => Self::Breach,
            None => Self::Negotiation,
        }
    }

    /// The exit code of a system call's error on a file.
    #[must_use]
    pub fn of_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Vanished,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::Denied,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => Self::Full,
            io::ErrorKind::ConnectionRefused
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::AddrNotAvailable => Self::Connect,
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::NotConnected
            | io::ErrorKind::NetworkDown => Self::Lost,
            // A name that leads out of a root (openat2 with RESOLVE_BENEATH): no rename here crosses file systems.
            io::ErrorKind::CrossesDevices => Self::Refused,
            io::ErrorKind::TimedOut => Self::Stalled,
            io::ErrorKind::Interrupted => Self::Interrupted,
            // Another thing stands or runs there than the command takes for granted.
            io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::InvalidFilename
            | io::ErrorKind::AddrInUse => Self::Usage,
            _ => Self::Io,
        }
    }

    /// A failure with this code and the table's next step.
    #[must_use]
    pub fn fail(self, what: impl Into<String>, cause: impl fmt::Display) -> Failure {
        Failure { exit: self, what: what.into(), cause: cause.to_string(), next_step: self.line().next_step.to_owned() }
    }
}

/// What the user is told when a command did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The process's exit code.
    pub exit: Exit,
    /// What was being done, lower case, fits after "failed to": `connect to 10.0.0.2:5740`.
    pub what: String,
    /// Why it did not work, causes joined by `: `.
    pub cause: String,
    /// What the user does now.
    pub next_step: String,
}

impl Failure {
    /// The same failure with a better next step than the table's.
    #[must_use]
    pub fn next(mut self, next_step: impl Into<String>) -> Self {
        self.next_step = next_step.into();
        self
    }

    /// From an error chain: a `Failure` in it decides; else the first breach, refusal or system error in it; else it is a
    /// bug, because every error that can happen is one of these. Contexts around become part of the cause, outermost first.
    #[must_use]
    pub fn of(what: &str, error: &anyhow::Error) -> Self {
        Self::of_chain(what, error, |_| None)
    }

    /// The same where errors of other types know their own code and next step: `known` gives the failure of such an error, and `None` for any other.
    #[must_use]
    pub fn of_chain(
        what: &str,
        error: &anyhow::Error,
        known: impl Fn(&(dyn std::error::Error + 'static)) -> Option<Failure>,
    ) -> Self {
        let mut around: Vec<String> = Vec::new();
        for cause in error.chain() {
            if let Some(mut failure) = cause.downcast_ref::<Self>().cloned().or_else(|| known(cause)) {
                if !around.is_empty() {
                    failure.cause = format!("{}: {}", around.join(": "), failure.cause);
                }
                return failure;
            }
            around.push(cause.to_string());
        }
        let exit = error.chain().find_map(Self::exit_of_cause).unwrap_or(Exit::Bug);
        exit.fail(what, around.join(": "))
    }

    fn exit_of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<Exit> {
        if cause.is::<Breach>() {
            return Some(Exit::Breach);
        }
        if let Some(&refusal) = cause.downcast_ref::<Refusal>() {
            return Some(Exit::of_refusal(refusal));
        }
        cause.downcast_ref::<io::Error>().map(Exit::of_io)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "failed to {}: {}\n  next: {}", self.what, self.cause, self.next_step)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use std::collections::HashSet;

    #[test]
    fn every_code_is_distinct_and_has_a_word_a_meaning_and_a_next_step() {
        let codes: HashSet<u8> = TABLE.iter().map(|line| line.exit.code()).collect();
        let words: HashSet<&str> = TABLE.iter().map(|line| line.word).collect();
        assert_eq!(codes.len(), TABLE.len());
        assert_eq!(words.len(), TABLE.len());
        for line in TABLE {
            assert_eq!(line.exit.line().exit, line.exit);
            assert!(line.meaning.len() > 10, "{}", line.word);
            assert!(line.next_step.len() > 10, "{}", line.word);
            assert!(line.exit.code() < 126, "shells use 126 and above");
        }
    }

    #[test]
    fn the_numbers_are_those_of_the_documentation() {
        let numbers: Vec<u8> = TABLE.iter().map(|line| line.exit.code()).collect();
        assert_eq!(numbers, [0, 2, 3, 4, 5, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24, 30, 31, 32, 40, 41, 70]);
    }

    #[test]
    fn the_most_serious_fault_decides() {
        use FaultKind::{Corrupt, Denied, Full, Io, Other, Torn, Unsupported, Vanished};
        for (kinds, exit) in [
            (vec![], Exit::Whole),
            (vec![Other], Exit::Partial),
            (vec![Unsupported, Other], Exit::Partial),
            (vec![Vanished, Other], Exit::Vanished),
            (vec![Vanished, Torn], Exit::Torn),
            (vec![Torn, Denied, Vanished], Exit::Denied),
            (vec![Denied, Full], Exit::Full),
            (vec![Full, Io, Denied], Exit::Io),
            (vec![Io, Corrupt], Exit::Corrupt),
        ] {
            assert_eq!(Exit::of_faults(kinds.clone()), exit, "{kinds:?}");
        }
    }

    #[test]
    fn every_refusal_and_every_breach_of_the_other_end_has_a_code_above_zero() {
        for refusal in Refusal::ALL {
            assert_ne!(Exit::of_wire_code(refusal.code()), Exit::Whole, "{}", refusal.name());
        }
        for breach in Breach::ALL {
            assert_eq!(Exit::of_wire_code(breach.code()), Exit::Breach, "{}", breach.name());
        }
        assert_eq!(Exit::of_wire_code(Refusal::ReadOnly.code()), Exit::Refused);
        assert_eq!(Exit::of_wire_code(9_999), Exit::Negotiation);
    }

    #[test]
    fn a_failure_is_told_in_two_lines() {
        let failure = Exit::Connect.fail("connect to 10.0.0.2:5740", "connection refused");
        let text = failure.to_string();
        assert!(text.starts_with("failed to connect to 10.0.0.2:5740: connection refused\n  next: check the address"));
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn a_failure_deep_in_a_chain_decides_and_keeps_its_contexts() {
        let deep: anyhow::Result<()> = Err(Exit::Refused.fail("open the job", "key is revoked").into());
        let error = deep.context("relay to node7").unwrap_err();
        let failure = Failure::of("copy", &error);
        assert_eq!(failure.exit, Exit::Refused);
        assert_eq!(failure.what, "open the job");
        assert_eq!(failure.cause, "relay to node7: key is revoked");
    }

    #[test]
    fn a_system_error_in_a_chain_gives_its_kind_and_all_else_is_a_bug() {
        let full: anyhow::Error = io::Error::from(io::ErrorKind::StorageFull).into();
        assert_eq!(Failure::of("write the receipt", &full.context("receipt.txt")).exit, Exit::Full);
        let spent: anyhow::Error = Refusal::TicketSpent.into();
        assert_eq!(Failure::of("open the job", &spent.context("node7")).exit, Exit::Refused);
        assert_eq!(Failure::of("open the job", &Breach::WrongOrder.into()).exit, Exit::Breach);
        let error = anyhow::anyhow!("index 7 of 7");
        assert_eq!(Failure::of("copy", &error).exit, Exit::Bug);
    }
}
