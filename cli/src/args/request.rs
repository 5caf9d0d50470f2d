//! The command line as a `JobRequest`: the one file in which options become one.
//!
//! For: `cp` and `sync`; nothing behind them knows an option.
//! In and out: parsed arguments in; a request out, its lists of patterns and names read.
//! Invariants: each field of a request that an option can set is set here; a file of a list that cannot be read ends the command before anything
//! is copied.
//! Absent on purpose: tickets that do not stand on the command line (cp::tickets), checks of what goes together (cp).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

use proto::negotiate::Driver;
use proto::wire::control::Compare;
use proto::wire::request::Transport;

use super::{CpArguments, DigestChoice, DriverChoice, SyncArguments, TransportChoice, volumes};
use crate::cp::{Shown, tickets};
use node::address::folder_path;
use node::request::JobRequest;
use text::exit::{Exit, Failure};

impl From<DriverChoice> for Option<Driver> {
    fn from(choice: DriverChoice) -> Self {
        match choice {
            DriverChoice::Auto => None,
            DriverChoice::Uring => Some(Driver::Uring),
            DriverChoice::Plain => Some(Driver::Plain),
        }
    }
}

impl From<TransportChoice> for Transport {
    fn from(choice: TransportChoice) -> Self {
        match choice {
            TransportChoice::Tcp => Self::Tcp,
            TransportChoice::Udp => Self::Udp,
            TransportChoice::Auto => Self::Auto,
            TransportChoice::Rdma => Self::Rdma,
        }
    }
}

impl CpArguments {
    /// What of the command is about the screen.
    #[must_use]
    pub fn shown(&self) -> Shown {
        Shown {
            json: self.json,
            quiet: self.quiet,
            verbose: self.verbose,
            progress: self.progress,
            habits: self.habits,
            command: "cp",
        }
    }

    /// What is asked for, with each ticket in its address.
    ///
    /// # Errors
    /// Those of `request`, and tickets that are not to be had.
    pub fn with_tickets(&self) -> Result<JobRequest, Failure> {
        tickets::filled(self.request()?, self.ticket_file.as_deref())
    }

    /// What is asked for.
    ///
    /// # Errors
    /// Patterns of volumes that stand for nothing, lists that cannot be read.
    pub fn request(&self) -> Result<JobRequest, Failure> {
        let (sources, destinations) = volumes::split(self)?;
        let choice = self.choose.read()?;
        let names = choice.picks.map(|picks| picks.names().map(|it| OsString::from_vec(it.to_vec())).collect());
        Ok(JobRequest {
            sources,
            destinations,
            stripe: self.stripe.map(Into::into),
            joined: self.join,
            rules: choice.rules,
            names,
            aspects: self.keep.aspects(),
            numeric_ids: self.keep.numeric_ids,
            compare: match (self.checksum, self.mirror) {
                (true, _) => Compare::Always,
                (false, true) => Compare::Changed,
                (false, false) => Compare::Never,
            },
            keep: !self.no_keep,
            prune: self.prune,
            dry_run: self.dry_run,
            durability: self.durability.into(),
            digest: self.digest.unwrap_or_else(|| DigestChoice::default_of(self.bare)).into(),
            cipher: self.cipher.map(Into::into),
            integrity_only: self.integrity_only,
            bare: self.bare,
            transport: self.transport.unwrap_or_default().into(),
            rdma_device: self.rdma_device.clone().map(Into::into),
            forecast: self.transport == Some(TransportChoice::Auto),
            policy: self.policy.into(),
            controller: self.controller.into(),
            rate_bps: self.rate,
            min_rate_bps: self.min_rate,
            streams: self.streams,
            paths: self.over.clone(),
            memory_bytes: self.memory,
            chunk_bytes: self.chunk,
            driver: self.driver.into(),
            io_modes: self.io_mode,
            reflink: self.reflink.into(),
            snapshot: self.snapshot.into(),
            workers: self.workers,
            stall: self.stall,
            ssh: self.ssh.clone(),
            remote_binary: self.remote_binary.clone(),
            far_ports: self.far_port,
            receipt: self.receipt.clone(),
            trace: self.trace.clone(),
            unattended: self.unattended,
            explain: self.explain,
            ftp: self.ftp.terms(),
        })
    }
}

/// A file cannot be made equal to a folder: `cp` is for one.
fn refuse_file(source: &OsStr, destination: &OsStr) -> Result<(), Failure> {
    if !std::fs::metadata(source).is_ok_and(|it| it.is_file()) {
        return Ok(());
    }
    let (source, destination) = (source.to_string_lossy(), destination.to_string_lossy());
    Err(Exit::Usage
        .fail(format!("make '{destination}' equal to '{source}'"), "sync is for folders, and the source is a file")
        .next(format!("longhaul cp {source} {destination}")))
}

impl SyncArguments {
    /// The same as a copy of a folder's content that compares what has changed, and removes what is too much if that is asked for.
    ///
    /// # Errors
    /// Other than two folders.
    pub fn into_copy(self) -> Result<CpArguments, Failure> {
        let mut copy = self.copy;
        let [source, destination] = &copy.paths[..] else {
            return Err(Exit::Usage
                .fail("find the folders", format!("{} were named", copy.paths.len()))
                .next("name two: longhaul sync SRC DST"));
        };
        refuse_file(source, destination)?;
        copy.paths = vec![folder_path(source, b"."), folder_path(destination, b"")];
        copy.mirror = true;
        copy.prune = self.delete.then_some(self.max_delete);
        Ok(copy)
    }
}
