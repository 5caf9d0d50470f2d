//! `longhaul receipt`: the receipts that are kept on this host, and which ones are.
//!
//! For: finding the receipt of a copy, to check a disk against it (`verify`) or to show it to somebody.
//! In and out: receipts below LONGHAUL_HOME, and those that a job of the history wrote elsewhere → one line or object for each, newest first.
//! Invariants: receipts are not read whole, and not checked: `verify` does that; where a receipt speaks of is the history's word, which is not signed.
//! Absent on purpose: what a receipt is (proto::receipt), which ones go (`node::job::receipt::retention`).

use std::collections::HashMap;
use std::path::Path;
use std::time::SystemTime;

use clap::Subcommand;
use node::identity::keys::{Identity, fingerprint};
use node::identity::{Home, PublicKey};
use node::job::receipt::retention::{self, Keep, Pruned};
use node::report::history::{self, EndedJob};
use node::verify::listing::{self, Kept};
use serde::Serialize;
use text::exit::{Exit, Failure};
use text::time::show_utc;
use text::units::{show_bytes, show_count};

use super::history::{LIMIT_DEFAULT, what};
use super::{UNKNOWN, short};

/// What can be done with receipts.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum ReceiptCommand {
    /// List the receipts that are kept here, newest first: what went where, whether both ends signed, and the file for `longhaul verify`
    List {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
        /// So many at most, the newest
        #[arg(long, value_name = "N", default_value_t = LIMIT_DEFAULT)]
        limit: usize,
    },
    /// Say which receipts stay on this host, for this user's copies and daemons; what is too old or too much goes at once, and after each job
    #[command(after_help = KEEP_HELP)]
    Keep {
        /// `90d` (none older), `10GiB` (the newest so many bytes), `'90d / 10GiB'` (both), or `all`; without it: only show what is set
        #[arg(value_name = "WHICH")]
        which: Option<Keep>,
    },
}

/// Where one would otherwise be surprised.
const KEEP_HELP: &str = "A receipt that a kept one refers to stays, and so does what was signed within the last hour. \
receipts_keep in the config file of a daemon replaces this for that daemon.";

/// A receipt of the list.
#[derive(Debug, Serialize)]
struct Listed {
    /// The job's name, which is the receipt's.
    receipt: String,
    /// When it was signed, seconds since 1970.
    signed_unix_s: u64,
    /// `sent`, `received` or `copied` (both ends were this host); `null`: by keys that are not this host's.
    direction: Option<&'static str>,
    source: Option<String>,
    destination: Option<String>,
    files: u64,
    bytes: u64,
    /// The job whose receipt names the entries: this run found all as it says; `null`: this one names them.
    unchanged_since: Option<String>,
    /// Fingerprints.
    sender: String,
    receiver: String,
    has_both_signatures: bool,
    /// Of files that were sent without a look at them.
    is_unread: bool,
    durability: &'static str,
    /// Where it stands.
    file: String,
}

/// Runs `longhaul receipt`.
///
/// # Errors
/// A folder that cannot be read.
pub fn run(command: ReceiptCommand) -> anyhow::Result<()> {
    let home = Home::find().map_err(Failure::from)?;
    let (json, limit) = match command {
        ReceiptCommand::List { json, limit } => (json, limit),
        ReceiptCommand::Keep { which } => return keep(&home, which),
    };
    let listed = listed(&home, limit)?;
    let none = format!("no receipt is kept here (of LONGHAUL_HOME {})", home.path("").display());
    let heads = ["signed (UTC)", "receipt", "way", "files", "bytes", "signatures", "what"];
    super::print(&listed, (json, &none), &heads, |it| {
        let way = it.direction.unwrap_or(UNKNOWN).to_owned();
        let signatures = if it.has_both_signatures { "both" } else { "not both" };
        let of = EndedJob {
            source: it.source.clone().unwrap_or_else(|| UNKNOWN.to_owned()),
            destination: it.destination.clone().unwrap_or_else(|| UNKNOWN.to_owned()),
            ..EndedJob::default()
        };
        let (files, bytes) = (show_count(it.files), show_bytes(it.bytes));
        let unchanged = it.unchanged_since.as_ref().map(|job| format!("  (unchanged since {})", short(job)));
        let what = what(&of) + unchanged.as_deref().unwrap_or_default();
        vec![show_utc(it.signed_unix_s), short(&it.receipt), way, files, bytes, signatures.to_owned(), what]
    })?;
    if !json && !listed.is_empty() {
        let all = retention::count(&home.path("receipts"));
        println!("{}", total(&home, all.map_err(|error| Exit::of_io(&error).fail("list the receipts", error))?));
    }
    Ok(())
}

/// How many there are, and how many are kept.
fn total(home: &Home, all: Pruned) -> String {
    let keeping = match Keep::of(home) {
        Ok(keep) if keep.is_all() => "all are kept (`longhaul receipt keep '90d / 10GiB'` keeps less)".to_owned(),
        Ok(keep) => format!("kept: {keep}"),
        Err(why) => format!("all are kept, because this cannot be read: {}", crate::report::clean(&why)),
    };
    let receipts = if all.kept == 1 { "receipt" } else { "receipts" };
    format!("{} {receipts}, {}; {keeping}", show_count(all.kept), show_bytes(all.kept_bytes))
}

fn keep(home: &Home, which: Option<Keep>) -> anyhow::Result<()> {
    let folder = home.path("receipts");
    let failed = |error| Exit::of_io(&error).fail("keep less receipts", error);
    let pruned = match which {
        Some(which) => {
            which.set(home).map_err(failed)?;
            retention::prune(&folder, which, SystemTime::now()).map_err(failed)?
        }
        None => retention::count(&folder).map_err(failed)?,
    };
    if pruned.removed > 0 {
        println!("removed {}, {}", show_count(pruned.removed), show_bytes(pruned.removed_bytes));
    }
    println!("{}", total(home, pruned));
    Ok(())
}

fn listed(home: &Home, limit: usize) -> anyhow::Result<Vec<Listed>> {
    let failed = |error| Exit::of_io(&error).fail("list the receipts", error);
    let mut jobs: HashMap<String, EndedJob> = HashMap::new();
    let with_receipt = history::read(home, usize::MAX, |job| job.receipt.is_some()).map_err(failed)?;
    for job in with_receipt {
        let Some(name) = job.job.clone() else { continue };
        // Of two ends with one home the client's words are the user's own.
        if job.side == "client" || !jobs.contains_key(&name) {
            jobs.insert(name, job);
        }
    }
    let elsewhere = jobs.values().filter_map(|job| job.receipt.as_deref()).map(Path::new);
    let kept = listing::list(home, elsewhere, limit).map_err(failed)?;
    let own = Identity::find(home).map_err(Failure::from)?.map(|own| own.public());
    Ok(kept.into_iter().map(|it| one(&it, own, jobs.get(&it.job))).collect())
}

fn one(it: &Kept, own: Option<PublicKey>, job: Option<&EndedJob>) -> Listed {
    let direction = match (own == Some(it.head.sender), own == Some(it.head.receiver)) {
        (true, true) => Some("copied"),
        (true, false) => Some("sent"),
        (false, true) => Some("received"),
        (false, false) => None,
    };
    Listed {
        receipt: it.job.clone(),
        signed_unix_s: it.signed_unix_s,
        direction,
        source: job.map(|job| job.source.clone()),
        destination: job.map(|job| job.destination.clone()),
        files: it.files,
        bytes: it.bytes,
        unchanged_since: it.unchanged_since.clone(),
        sender: fingerprint(&it.head.sender),
        receiver: fingerprint(&it.head.receiver),
        has_both_signatures: it.has_both_signatures,
        is_unread: it.head.bare,
        durability: it.head.durability.name(),
        file: it.path.display().to_string(),
    }
}
