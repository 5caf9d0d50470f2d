//! What was attempted, and what the system said of it, as a failure.
//!
//! For: files and ports that the user named; the same errno means something else at each of them.
//! In and out: an attempt and the system's error → exit code, cause and next step.
//! Invariants: a next step speaks of what was attempted; a disk is suspected only where the system says that one failed.
//! Absent on purpose: failures that are no system error (whoever meets them words them), doing any of it.

use std::io::{self, ErrorKind};

use crate::exit::{Exit, Failure};

/// Errors of a device: EIO, ENXIO, ENODEV, EREMOTEIO (Linux, errno.h).
const OF_A_DEVICE: [i32; 4] = [5, 6, 19, 121];

/// What was done when the system refused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// Reading what is to be copied.
    Source,
    /// Opening or making the place that is copied to.
    Destination,
    /// Reading the daemon's config file.
    Config,
    /// Opening the folder that a daemon serves.
    Root,
    /// Taking the daemon's port.
    Listen,
    /// Reading a file that an option names: patterns, names, a ticket.
    Listed,
    /// Reading a receipt.
    Receipt,
    /// Writing a receipt where the user wants it.
    KeepReceipt,
}

/// The system's words without its number.
#[must_use]
pub fn said(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(at) if error.raw_os_error().is_some() => text[..at].to_owned(),
        _ => text,
    }
}

impl Attempt {
    /// The failure of this attempt; `what` fits after "failed to".
    #[must_use]
    pub fn fail(self, what: impl Into<String>, error: &io::Error) -> Failure {
        let cause = match error.kind() {
            // What openat2 says of a path that leaves the folder it must stay in.
            ErrorKind::CrossesDevices => "the path leads out of the folder that is served".to_owned(),
            _ => said(error),
        };
        let (exit, next) = self.judge(error.kind()).unwrap_or_else(|| in_general(error));
        exit.fail(what, cause).next(next)
    }

    /// Exit code and next step where this attempt knows better than the table of exit codes.
    fn judge(self, kind: ErrorKind) -> Option<(Exit, &'static str)> {
        match self {
            Self::Source => of_source(kind),
            Self::Destination => of_destination(kind),
            Self::Config => of_config(kind),
            Self::Root => of_root(kind),
            Self::Listen => of_listen(kind),
            Self::Listed => of_listed(kind),
            Self::Receipt => of_receipt(kind),
            Self::KeepReceipt => of_kept_receipt(kind),
        }
    }
}

/// What no attempt has a word of its own for.
fn in_general(error: &io::Error) -> (Exit, &'static str) {
    let exit = Exit::of_io(error);
    let is_device = error.raw_os_error().is_none_or(|errno| OF_A_DEVICE.contains(&errno));
    let next = match exit {
        Exit::Io if !is_device => {
            "look at the place named above; if nothing is wrong with it, report this with the output of -v"
        }
        exit => exit.line().next_step,
    };
    (exit, next)
}

fn of_source(kind: ErrorKind) -> Option<(Exit, &'static str)> {
    Some(match kind {
        ErrorKind::NotFound => (Exit::Vanished, "check the source's path, then run the same command again"),
        ErrorKind::NotADirectory => {
            (Exit::Usage, "a file stands where this path needs a folder: name the file itself, without what follows it")
        }
        ErrorKind::PermissionDenied => {
            (Exit::Denied, "let this user read it and enter the folders above it, or run the copy as a user who may")
        }
        ErrorKind::InvalidFilename => (Exit::Usage, "check the source's path: no file has so long a name"),
        ErrorKind::CrossesDevices => (Exit::Refused, "name a path below the folder that the daemon serves"),
        _ => return None,
    })
}

fn of_destination(kind: ErrorKind) -> Option<(Exit, &'static str)> {
    Some(match kind {
        ErrorKind::NotFound => (Exit::Vanished, "check the destination's path: no folder can be made there"),
        ErrorKind::NotADirectory => {
            (Exit::Usage, "a file stands where a folder is needed: remove the file, or name another destination")
        }
        ErrorKind::PermissionDenied => {
            (Exit::Denied, "let this user write in the destination's folder, or name another destination")
        }
        ErrorKind::ReadOnlyFilesystem => (
            Exit::Denied,
            "the destination's file system is mounted read-only: mount it for writing, or name another destination",
        ),
        ErrorKind::InvalidFilename => (Exit::Usage, "check the destination's path: no file has so long a name"),
        ErrorKind::CrossesDevices => (Exit::Refused, "name a path below the folder that the daemon serves"),
        _ => return None,
    })
}

fn of_config(kind: ErrorKind) -> Option<(Exit, &'static str)> {
    Some(match kind {
        ErrorKind::NotFound => {
            (Exit::Usage, "check the path behind --config, or leave the option out: it is not needed")
        }
        ErrorKind::IsADirectory | ErrorKind::NotADirectory => {
            (Exit::Usage, "name the config file itself behind --config: FOLDER/longhaul.toml")
        }
        ErrorKind::PermissionDenied => (Exit::Denied, "let the user who starts the daemon read the config file"),
        _ => return None,
    })
}

fn of_root(kind: ErrorKind) -> Option<(Exit, &'static str)> {
    Some(match kind {
        ErrorKind::NotFound => (Exit::Usage, "make the folder first (mkdir), or name another one with --root"),
        ErrorKind::NotADirectory => (Exit::Usage, "name a folder with --root, the one that the file stands in"),
        ErrorKind::PermissionDenied => {
            (Exit::Denied, "let the user who runs the daemon enter the folder, or name another one with --root")
        }
        _ => return None,
    })
}

fn of_listen(kind: ErrorKind) -> Option<(Exit, &'static str)> {
    Some(match kind {
        ErrorKind::AddrInUse => (
            Exit::Usage,
            "another program has that port (`ss -ltnp` shows which): stop it, or choose another port with --listen IP:PORT",
        ),
        ErrorKind::AddrNotAvailable => (
            Exit::Usage,
            "this host has no such address (`ip address` lists those it has): name one of them with --listen, or 0.0.0.0",
        ),
        ErrorKind::PermissionDenied => (
            Exit::Denied,
            "ports below 1024 are for root or CAP_NET_BIND_SERVICE: choose one from 1024 on with --listen IP:PORT",
        ),
        _ => return None,
    })
}

fn of_listed(kind: ErrorKind) -> Option<(Exit, &'static str)> {
    Some(match kind {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            (Exit::Usage, "check the path of the file that the option names")
        }
        ErrorKind::IsADirectory => (Exit::Usage, "name a file with the option: this is a folder"),
        ErrorKind::PermissionDenied => (Exit::Denied, "let this user read the file that the option names"),
        _ => return None,
    })
}

fn of_receipt(kind: ErrorKind) -> Option<(Exit, &'static str)> {
    Some(match kind {
        ErrorKind::NotFound => (
            Exit::Vanished,
            "give the file that `longhaul cp` named as its receipt; they stand in LONGHAUL_HOME (~/.config/longhaul), below receipts/",
        ),
        ErrorKind::IsADirectory | ErrorKind::NotADirectory => {
            (Exit::Usage, "give the receipt first, then the folder: longhaul verify RECEIPT PATH")
        }
        ErrorKind::PermissionDenied => {
            (Exit::Denied, "let this user read the receipt: it belongs to whoever ran the copy")
        }
        _ => return None,
    })
}

fn of_kept_receipt(kind: ErrorKind) -> Option<(Exit, &'static str)> {
    let next = match kind {
        ErrorKind::IsADirectory => {
            "name a file for the receipt, not a folder, or leave --receipt out; nothing was moved"
        }
        _ => "name another place with --receipt, or leave it out; nothing was moved",
    };
    Some((Exit::NoReceipt, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Attempt; 8] = [
        Attempt::Source,
        Attempt::Destination,
        Attempt::Config,
        Attempt::Root,
        Attempt::Listen,
        Attempt::Listed,
        Attempt::Receipt,
        Attempt::KeepReceipt,
    ];

    #[test]
    fn a_disk_is_suspected_only_where_a_device_failed_and_the_source_only_where_it_was_read() {
        // EPERM, ENOENT, EIO, EACCES, ENOTDIR, EISDIR, EINVAL, EMFILE, EXDEV, ENAMETOOLONG, EADDRINUSE, EADDRNOTAVAIL.
        for errno in [1, 2, 5, 13, 20, 21, 22, 24, 18, 36, 98, 99] {
            for attempt in ALL {
                let failure = attempt.fail("do it", &io::Error::from_raw_os_error(errno));
                let (text, place) = (failure.to_string(), format!("{attempt:?}, errno {errno}"));
                assert!(errno == 5 || !text.contains("dmesg"), "{place}: {text}");
                assert!(attempt == Attempt::Source || !text.contains("the source's path"), "{place}: {text}");
                assert!(!text.contains("os error") && !text.contains("cross-device"), "{place}: {text}");
                assert_eq!(text.lines().count(), 2, "{place}: {text}");
            }
        }
    }

    #[test]
    fn one_errno_has_another_meaning_at_each_place() {
        let missing = io::Error::from_raw_os_error(2);
        let steps: std::collections::HashSet<String> =
            ALL.iter().map(|attempt| attempt.fail("do it", &missing).next_step).collect();
        assert_eq!(steps.len(), ALL.len(), "{steps:?}");
        let taken = Attempt::Listen.fail("listen on 127.0.0.1:1", &io::Error::from_raw_os_error(98));
        assert!(taken.exit == Exit::Usage && taken.next_step.contains("--listen"), "{taken}");
    }
}
