//! What `cp` keeps of entries beside their content: the options to leave something out.
//!
//! For: users of rsync and cp, under the names they know.
//! In and out: flags → the set of aspects a job asks for; the same flags again for a host that runs the job in our place.
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

    /// Nothing but content, mode and time: a stream has no more.
    #[arg(skip)]
    pub only_content: bool,

    /// The job runs for somebody who may not see or set what is privileged.
    #[arg(skip)]
    pub unprivileged: bool,
}

impl KeepArguments {
    /// Each flag with its option and what it leaves out.
    fn flags(&self) -> [(bool, &'static str, Aspects); 9] {
        [
            (self.numeric_ids, "--numeric-ids", Aspects::NONE),
            (self.no_owner, "--no-owner", Aspects::OWNER),
            (self.no_group, "--no-group", Aspects::GROUP),
            (self.no_xattrs, "--no-xattrs", Aspects::XATTRS.with(Aspects::SECURITY)),
            (self.no_acls, "--no-acls", Aspects::ACLS),
            (self.no_hard_links, "--no-hard-links", Aspects::HARD_LINKS),
            (self.no_specials, "--no-specials", Aspects::SPECIALS),
            (self.no_devices, "--no-devices", Aspects::DEVICES),
            (self.no_setid, "--no-setid", Aspects::SETID),
        ]
    }

    /// What the job asks for.
    #[must_use]
    pub fn aspects(&self) -> Aspects {
        let all = match (self.only_content, self.unprivileged) {
            (true, _) => Aspects::NONE,
            (_, true) => Aspects::ALL.without(Aspects::SECURITY),
            _ => Aspects::ALL,
        };
        self.flags().iter().filter(|(is_set, ..)| *is_set).fold(all, |kept, (.., out)| kept.without(*out))
    }

    /// The flags that are set, as on a command line.
    pub fn options(&self) -> impl Iterator<Item = &'static str> {
        self.flags().into_iter().filter(|(is_set, ..)| *is_set).map(|(_, option, _)| option)
    }

    /// May another host set this option?
    #[must_use]
    pub fn is_one(option: &str) -> bool {
        Self::default().flags().iter().any(|(_, name, _)| *name == option)
    }
}
