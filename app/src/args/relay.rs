//! The options of a copy that another host runs in our place.
//!
//! For: remote to remote: the client's wishes, told to the daemon that has the source.
//! In and out: arguments → options as text → arguments again.
//! Invariants: what comes from another host names no file and no command on this one.
//! Absent on purpose: patterns (choose.rs has their words), rights (serve::session).

use std::ffi::{OsStr, OsString};

use clap::Parser;

use super::{Arguments, Choice, Command, CpArguments, KeepArguments, TransportChoice, word};
use text::units;

impl CpArguments {
    /// The options as another host is given them when it runs this job in our place: what shapes the data, not what shapes
    /// our screen or names things on this host.
    #[must_use]
    pub fn relay_options(&self) -> Vec<String> {
        let mut options = vec![
            format!("--rung={}", word(self.rung)),
            format!("--memory={}", units::exact_size(self.memory)),
            format!("--digest={}", word(self.digest)),
            format!("--driver={}", word(self.driver)),
            format!("--engine={}", self.engine),
            format!("--stall={}", units::exact_duration(self.stall)),
            format!("--snapshot={}", word(self.snapshot)),
        ];
        options.extend(self.rate.map(|rate_bps| format!("--rate={}", units::exact_rate(rate_bps))));
        if self.transport != TransportChoice::Tcp {
            options.push(format!("--transport={}", word(self.transport)));
            options.push(format!("--policy={}", word(self.policy)));
            options.push(format!("--law={}", word(self.law)));
            options.extend(self.min_rate.map(|rate_bps| format!("--min-rate={}", units::exact_rate(rate_bps))));
        }
        options.extend(self.streams.map(|streams| format!("--streams={streams}")));
        options.extend(self.over.iter().map(|path| format!("--path={path}")));
        options.extend(self.cipher.map(|cipher| format!("--cipher={}", word(cipher))));
        options.extend(self.chunk.map(|chunk_bytes| format!("--chunk={}", units::exact_size(u64::from(chunk_bytes)))));
        options.extend(self.workers.map(|workers| format!("--workers={workers}")));
        options.extend(self.prune.map(|most| format!("--prune={most}")));
        options.extend(self.stripe.map(|stripe| format!("--stripe={}", word(stripe))));
        for (is_set, flag) in [
            (self.dry_run, "--dry-run"),
            (self.integrity_only, "--integrity-only"),
            (self.bare, "--bare"),
            (self.no_keep, "--no-keep"),
            (self.checksum, "--checksum"),
            (self.mirror, "--mirror"),
            (self.explain, "--explain"),
            (self.join, "--join"),
            (self.unattended, "--unattended"),
        ] {
            if is_set {
                options.push(flag.to_owned());
            }
        }
        options.extend(self.keep.options().map(str::to_owned));
        options
    }

    /// Reads what `relay_options` wrote. The options come from another host: only those it may set are taken, everything
    /// that names a file or a command on this host is refused.
    pub fn from_relay(options: &[String], sources: &[OsString], destination: &OsStr) -> Result<Self, clap::Error> {
        const MAY: [&str; 28] = [
            "--rung",
            "--memory",
            "--digest",
            "--driver",
            "--engine",
            "--stall",
            "--snapshot",
            "--rate",
            "--transport",
            "--policy",
            "--min-rate",
            "--law",
            "--streams",
            "--path",
            "--cipher",
            "--chunk",
            "--workers",
            "--dry-run",
            "--integrity-only",
            "--bare",
            "--no-keep",
            "--checksum",
            "--mirror",
            "--prune",
            "--explain",
            "--stripe",
            "--join",
            "--unattended",
        ];
        for option in options {
            let name = option.split('=').next().unwrap_or_default();
            if !MAY.contains(&name) && !Choice::is_option(name) && !KeepArguments::is_one(name) {
                let text = format!("option '{name}' may not be set from another host");
                return Err(clap::Error::raw(clap::error::ErrorKind::UnknownArgument, text));
            }
        }
        let line = ["longhaul", "cp"].into_iter().map(OsString::from);
        let line = line.chain(options.iter().map(OsString::from)).chain([OsString::from("--")]);
        let line = line.chain(sources.iter().cloned()).chain([destination.to_owned()]);
        match Arguments::try_parse_from(line)?.command {
            Command::Cp(arguments) => Ok(*arguments),
            _ => unreachable!("the line begins with cp"),
        }
    }
}
