//! What `cp` keeps of entries beside their content: the options to leave something out.
//!
//! For: users of rsync and cp, under the names they know.
//! In and out: flags → the set of aspects a job asks for.
//! Invariants: without a flag, all that is permitted is kept, and what could not be is said.
//! Absent on purpose: what the other end permits (serve, authorized_keys).

use clap::Args;
use proto::manifest::Aspects;

/// The options.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Options: what is kept of each entry (all that is permitted, unless left out here)")]
pub struct KeepArguments {
    /// Keep owners and groups by number, not by the name they have on both hosts
    #[arg(long)]
    pub numeric_ids: bool,

    /// Do not set owners; setuid bits are left out with them
    #[arg(long)]
    pub no_owner: bool,

    /// Do not set groups; setgid bits of files are left out with them
    #[arg(long)]
    pub no_group: bool,

    /// No extended attributes, file capabilities included
    #[arg(long)]
    pub no_xattrs: bool,

    /// No POSIX ACLs
    #[arg(long)]
    pub no_acls: bool,

    /// Make a file of its own of each name of a file that has several
    #[arg(long)]
    pub no_hard_links: bool,

    /// Pass over FIFOs and sockets
    #[arg(long)]
    pub no_specials: bool,

    /// Pass over device nodes
    #[arg(long)]
    pub no_devices: bool,

    /// Leave out setuid and setgid bits of files
    #[arg(long)]
    pub no_setid: bool,
}

impl KeepArguments {
    /// What the job asks for.
    #[must_use]
    pub fn aspects(&self) -> Aspects {
        let left_out = [
            (self.no_owner, Aspects::OWNER),
            (self.no_group, Aspects::GROUP),
            (self.no_xattrs, Aspects::XATTRS.with(Aspects::SECURITY)),
            (self.no_acls, Aspects::ACLS),
            (self.no_hard_links, Aspects::HARD_LINKS),
            (self.no_specials, Aspects::SPECIALS),
            (self.no_devices, Aspects::DEVICES),
            (self.no_setid, Aspects::SETID),
        ];
        let left_out = left_out.into_iter().filter(|(is_set, _)| *is_set);
        left_out.fold(Aspects::ALL, |kept, (_, out)| kept.without(out))
    }
}
