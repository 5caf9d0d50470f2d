//! Why a host could not be reached through ssh.
//!
//! For: what ssh itself refuses, told apart from what the other host says.
//! In and out: how ssh ended and what it wrote on its standard error → a failure with a next step of that cause.
//! Invariants: ssh's own words stand in the cause; each cause has a next step of its own.
//! Absent on purpose: running ssh (ssh.rs); languages other than English, which OpenSSH does not speak.

use std::io::{self, ErrorKind};
use std::process::ExitStatus;

use text::attempt::said;
use text::exit::{Exit, Failure};

/// What ssh ends with when it did not get there, or was not let in (ssh(1), EXIT STATUS).
const OF_SSH: i32 = 255;
/// ssh could not be started at all.
#[must_use]
pub(super) fn not_started(target: &str, program: &str, error: &io::Error) -> Failure {
    let what = format!("reach {target} through ssh");
    match error.kind() {
        ErrorKind::NotFound => Exit::Connect
            .fail(what, format!("there is no program '{program}' on this host"))
            .next("install ssh here (package openssh-client), or name another command with --ssh"),
        _ => Exit::Connect
            .fail(what, format!("'{program}' cannot be started: {}", said(error)))
            .next("name another command with --ssh"),
    }
}

/// ssh ended before the far side said where it listens.
#[must_use]
pub(super) fn ended(target: &str, status: ExitStatus, words: &str) -> Failure {
    let lines: Vec<&str> = words.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let words = lines.join("; ");
    if status.code() == Some(OF_SSH) {
        let (cause, next) = of_ssh(&words.to_lowercase());
        let cause = if words.is_empty() { cause.to_owned() } else { format!("{cause}: {words}") };
        return Exit::Connect.fail(format!("reach {target} through ssh"), cause).next(next.replace("HOST", target));
    }
    let words = if words.is_empty() { "it said nothing".to_owned() } else { words };
    if words.contains("failed to listen on") {
        return Exit::Connect
            .fail(format!("start longhaul on {target} through ssh"), words)
            .next("name other ports with --far-port, or leave it out: any free port is taken");
    }
    Exit::Connect
        .fail(format!("start longhaul on {target} through ssh"), format!("{status}: {words}"))
        .next(format!("try by hand what the account there permits: ssh {target} longhaul --version"))
}

/// What ssh could not do, and what the user does about it, by ssh's words in small letters.
fn of_ssh(words: &str) -> (&'static str, &'static str) {
    const KNOWN: [(&[&str], &str, &str); 5] = [
        (
            &["host key verification failed", "identification has changed", "no matching host key"],
            "ssh does not trust the host's key",
            "connect once by hand (ssh HOST), compare the key's fingerprint, then run the same command again",
        ),
        (
            &["permission denied", "too many authentication failures", "no supported authentication"],
            "ssh was refused the login",
            "log in by hand first (ssh HOST): check the user's name, and that its key or password is accepted there",
        ),
        (
            &["could not resolve hostname"],
            "ssh does not find the host",
            "check the host's name (ssh -G HOST shows what ssh makes of it); a local path with `:` is written ./like:this",
        ),
        (
            &["connection refused"],
            "no ssh server answers",
            "check that sshd runs there, and its port (in ~/.ssh/config, or --ssh 'ssh -p PORT')",
        ),
        (
            &["timed out", "no route to host", "network is unreachable", "host is down"],
            "ssh does not get there",
            "check that the host is up, and the firewall and the network between",
        ),
    ];
    let known = KNOWN.iter().find(|(marks, ..)| marks.iter().any(|mark| words.contains(mark)));
    known.map_or(("ssh failed", "try by hand what ssh says: ssh HOST true"), |&(_, cause, next)| (cause, next))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn status(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn each_refusal_of_ssh_has_its_own_next_step() {
        for (words, cause, next) in [
            ("me@h: Permission denied (publickey,password).", "refused the login", "ssh me@h"),
            ("Host key verification failed.", "host's key", "fingerprint"),
            ("ssh: Could not resolve hostname h: Name or service not known", "does not find", "ssh -G me@h"),
            ("ssh: connect to host h port 22: Connection refused", "no ssh server", "sshd runs"),
            ("ssh: connect to host h port 22: Connection timed out", "does not get there", "firewall"),
            ("something new", "ssh failed: something new", "ssh me@h true"),
            ("", "ssh failed", "by hand"),
        ] {
            let failure = ended("me@h", status(255), words);
            assert!(failure.cause.contains(cause) && failure.cause.contains(words), "{failure}");
            assert!(failure.next_step.contains(next) && !failure.next_step.contains("longhaul serve"), "{failure}");
            assert_eq!(failure.exit, Exit::Connect);
        }
        let far = ended("h", status(1), "This account is currently not available.\n");
        assert!(far.what.contains("start longhaul on h") && far.cause.contains("not available"), "{far}");
        assert_eq!(far.to_string().lines().count(), 2);
    }
}
