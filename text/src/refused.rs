//! What to do about a refusal of the other end.
//!
//! For: codes that come over the wire, `Frame::Refuse`.
//! In and out: a code, what was being done and the other end's reason → a failure.
//! Invariants: each refusal has a next step of its own, or that of its exit code where this says as much.
//! Absent on purpose: the codes and their sentences (proto::error), refusing.

use proto::error::Refusal;

use crate::exit::{Exit, Failure};

/// The failure of whoever was refused with this code; `what` fits after "failed to".
#[must_use]
pub fn failure(code: u16, what: impl Into<String>, cause: impl std::fmt::Display) -> Failure {
    let failure = Exit::of_wire_code(code).fail(what, cause);
    match Refusal::from_code(code).and_then(next_step) {
        Some(next) => failure.next(next),
        None => failure,
    }
}

/// What the user does about it, where the exit code does not say that already.
fn next_step(refusal: Refusal) -> Option<&'static str> {
    Some(match refusal {
        Refusal::ReadOnly => {
            "ask the other end's owner for a key or ticket that may write (`key authorize` without --ro, `serve` without --ro)"
        }
        Refusal::WriteOnly => {
            "ask the other end's owner for a key or ticket that may read (`key authorize` without --wo, `serve` without --wo)"
        }
        Refusal::NoSuchPath => {
            "check the path at the other end: behind a daemon's address it begins at the folder that is served"
        }
        Refusal::NotAFolder => {
            "a file stands where a folder is needed: remove the file there, or name another destination"
        }
        Refusal::Busy => "try again later, or raise `jobs_max` or --memory at the other end",
        Refusal::Draining => "wait until the daemon was started again, then run the same command again",
        Refusal::VersionTooOld => "bring both ends to one version: `longhaul --version` shows it",
        Refusal::IntegrityOnlyRefused => {
            "leave out --integrity-only and --bare, or start the other end with the same option"
        }
        Refusal::TicketSpent => "ask for a new ticket: `longhaul serve --ticket` prints one when it starts",
        Refusal::OutsideRoot => "name a path below the folder that is served there",
        Refusal::Denied => {
            "at the other end, give the user named above that permission (chown, chmod, setfacl), or run longhaul there as a user who has it; or name another path"
        }
        Refusal::Overlap => "name a destination that is not the source, nor a folder that holds it",
        Refusal::Internal => "look into the log of the other end; if it names no cause, report both ends' `-v` output",
        Refusal::RelayRefused => {
            "check the destination's address as the source's host sees it, and `serve --relay-to` there"
        }
        Refusal::VolumeOut => {
            "replace the disk at the destination, or leave its volume out; then run the same command again"
        }
        Refusal::Superseded => "nothing to do if the same copy runs once more; otherwise run the same command again",
        Refusal::NotAuthorized
        | Refusal::NoCommonCipher
        | Refusal::NoCommonDigest
        | Refusal::NoSpace
        | Refusal::Stalled
        | Refusal::Cancelled => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_path_is_not_answered_with_keys_and_a_wrong_right_not_with_paths() {
        let of = |refusal: Refusal| failure(refusal.code(), "open the job", refusal.what());
        for path in [Refusal::NoSuchPath, Refusal::OutsideRoot, Refusal::NotAFolder] {
            let failure = of(path);
            assert!(!failure.next_step.contains("authorize"), "{failure}");
        }
        let outside = of(Refusal::OutsideRoot);
        assert!(outside.exit == Exit::Refused && outside.next_step.contains("below the folder"), "{outside}");
        let denied = of(Refusal::Denied);
        assert!(denied.exit == Exit::Denied && denied.next_step.contains("user named above"), "{denied}");
        assert!(of(Refusal::ReadOnly).next_step.contains("--ro"));
        assert_eq!(failure(9_999, "open the job", "what").exit, Exit::Negotiation);
    }
}
