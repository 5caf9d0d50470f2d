//! The end report as text.
//!
//! For: what was moved, how fast, what it cost both ends, what limited it, what failed, what to do next.
//! In and out: a `Done` record → text for standard output.
//! Invariants: made from the JSON record alone, so both say the same; an impossible figure takes the headline's place.
//! Absent on purpose: deciding what the figures are (the command), colours.

use std::fmt::Write as _;

use super::books::{StageRecord, StagesRecord};
use super::json::{Done, FaultRecord, exit_of_code};
use super::{DryRun, Extras, clean};
use node::client::STREAM;
use node::report::is_telling;
use text::exit::Exit;
use text::units::{show_bits_per_second, show_bytes, show_bytes_per_second, show_count, show_memory, show_seconds};

/// Failed entries that are listed; the rest is counted. One screen of a terminal.
const FAULTS_SHOWN: usize = 20;

/// Of less than this the time for each GB is chance.
const PER_GB_BYTES: u64 = 1_000_000;
/// The width of a terminal that nobody made wider.
#[cfg(test)]
pub const COLUMNS: usize = 80;

/// The whole report, for whoever asks for it (`-v`).
#[must_use]
pub fn text(done: &Done) -> String {
    let mut text = String::new();
    headline(&mut text, done);
    details(&mut text, done);
    rates(&mut text, done);
    stages(&mut text, done);
    costs(&mut text, done);
    if let Some(sentence) = limiter(done) {
        let _ = writeln!(text, "  {sentence}");
    }
    unkept(&mut text, done);
    owners(done).iter().for_each(|part| row(&mut text, "owners", part));
    faults(&mut text, done);
    receipt(&mut text, done);
    next(&mut text, done);
    text
}

/// What most readers came for: what was moved, how fast and what limited it, the receipt; and what failed.
#[must_use]
pub fn brief(done: &Done) -> String {
    let mut text = String::new();
    headline(&mut text, done);
    impossible(&mut text, done);
    if let Some(rate) = goodput(done) {
        let limiter = limiter(done).map_or_else(String::new, |sentence| format!("; {sentence}"));
        row(&mut text, "rate", &format!("{rate}{limiter}"));
    }
    let besides = besides(done);
    if !besides.is_empty() {
        row(&mut text, "besides", &besides.join("; "));
    }
    left(&mut text, &done.extras);
    faults(&mut text, done);
    receipt(&mut text, done);
    if exit_of_code(done.exit) != Exit::Whole {
        next(&mut text, done);
    }
    text
}

/// What did not go well, where entries were named as they failed; empty when all went well.
#[must_use]
pub fn failed(done: &Done) -> String {
    let mut text = String::new();
    if exit_of_code(done.exit) == Exit::Whole {
        return text;
    }
    headline(&mut text, done);
    impossible(&mut text, done);
    left(&mut text, &done.extras);
    no_receipt(&mut text, done);
    next(&mut text, done);
    text
}

/// What else there is to know, in a few words each.
fn besides(done: &Done) -> Vec<String> {
    let mut parts = Vec::new();
    if done.lost_sessions > 0 {
        parts.push(format!("reconnected {}", times(done.lost_sessions)));
    }
    parts.extend(done.path.iter().flat_map(|path| path.in_short()));
    if done.resumed_bytes > 0 {
        parts.push(format!("{} resumed", show_bytes(done.resumed_bytes)));
    }
    if done.readback_failed_bytes > 0 {
        parts.push(format!("{} had changed and were sent again", show_bytes(done.readback_failed_bytes)));
    }
    if done.uncompared {
        parts.push("nothing compared: the other end may only be written to".to_owned());
    }
    if done.extras.removed > 0 {
        parts.push(format!("{} removed", entries(done.extras.removed)));
    }
    if !done.unkept.is_empty() {
        let kinds = done.unkept.iter().map(|(what, count)| format!("{} × {}", show_count(*count), clean(what)));
        parts.push(format!("not kept: {} (-v names them)", kinds.collect::<Vec<_>>().join(", ")));
    }
    parts.extend(owners(done));
    parts
}

/// Owners that went by number, where their numbers stand at the destination.
fn owners(done: &Done) -> Vec<String> {
    let mut parts = Vec::new();
    if done.unkept.iter().any(|(what, _)| what == "owner" || what == "group") {
        return parts;
    }
    let of = |count: u32| match count {
        1 => ("1 owner".to_owned(), "its number is kept"),
        count => (format!("{} owners", show_count(count.into())), "their numbers are kept"),
    };
    if done.unnamed.unknown > 0 {
        let (owners, kept) = of(done.unnamed.unknown);
        let names = if done.unnamed.unknown == 1 { "a name that is" } else { "names that are" };
        parts.push(format!("{owners} by {names} unknown at the destination: {kept}"));
    }
    let is_between_hosts = done.direction != "local";
    if done.unnamed.nameless > 0 && is_between_hosts {
        let (owners, kept) = of(done.unnamed.nameless);
        parts.push(format!("{owners} without a name at the source: {kept}"));
    }
    if done.unnamed.is_silent && !parts.is_empty() {
        parts.push("a name service did not answer in time".to_owned());
    }
    parts
}

/// Nothing came of it, neither now nor before.
fn is_empty(done: &Done) -> bool {
    let besides_files = [done.folders, done.links, done.nodes, done.hard_links, done.extras.removed];
    files_sent(done) == 0 && done.kept_files == 0 && besides_files.iter().all(|&count| count == 0)
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

fn headline(text: &mut String, done: &Done) {
    if is_empty(done) && done.faults_count > 0 {
        let (seconds, entries) = (show_seconds(done.seconds), entries(done.faults_count));
        let _ = writeln!(text, "failed after {seconds}: nothing arrived; {entries} FAILED");
        return;
    }
    let outcome = outcome(done);
    let _ = writeln!(
        text,
        "copied {} in {}: {}, {}, {}; {outcome}",
        show_bytes(done.bytes.saturating_add(done.earlier_bytes)),
        show_seconds(done.seconds),
        counted(files_sent(done), "file"),
        counted(done.folders, "folder"),
        counted(done.links, "link"),
    );
}

/// What the first line has no room for.
fn details(text: &mut String, done: &Done) {
    if done.nodes + done.hard_links > 0 {
        let (names, nodes) = (counted(done.hard_links, "hard link"), counted(done.nodes, "node"));
        let _ = writeln!(text, "  besides     {names}, {nodes} (FIFOs, sockets, devices)");
    }
    kept(text, [done.kept_files, done.equal_files], [done.kept_bytes, done.equal_bytes]);
    if done.lost_sessions > 0 {
        let times = times(done.lost_sessions);
        let before = counted(done.earlier_files, "file");
        let _ = writeln!(text, "  reconnected {times}: the session was lost and made again; {before} were sent before");
    }
    if done.resumed_bytes > 0 {
        let _ = writeln!(
            text,
            "  resumed     {} were there already, read back and checked",
            show_bytes(done.resumed_bytes)
        );
    }
    if done.readback_failed_bytes > 0 {
        let bytes = show_bytes(done.readback_failed_bytes);
        let _ = writeln!(
            text,
            "  not resumed {bytes} that an earlier run wrote were read back, had changed, and were sent again"
        );
    }
    if done.hole_bytes > 0 {
        let _ = writeln!(text, "  holes       {} were neither read nor sent", show_bytes(done.hole_bytes));
    }
    if done.compared_bytes > 0 {
        let _ =
            writeln!(text, "  compared    {} with what stands there, chunk by chunk", show_bytes(done.compared_bytes));
    }
    if done.uncompared {
        row(text, "compared", "nothing: the other end may only be written to, what changed went whole");
    }
    extras(text, &done.extras, "removed");
}

/// What may be said of the files: only what was sent, or compared, was verified.
fn outcome(done: &Done) -> String {
    let digest = clean(&done.digest);
    let unread = done.kept_files.saturating_sub(done.equal_files);
    let equal = done.equal_files;
    let mut parts = Vec::new();
    if done.faults_count > 0 {
        parts.push(format!("{} FAILED", entries(done.faults_count)));
    }
    // A server of FTP that told the digest of what it has was compared with, whatever way the bytes went.
    let is_unvouched = done.bare && !done.transport.starts_with("ftp");
    let how = match (is_unvouched, done.faults_count > 0) {
        _ if done.far_unread => "whole by their lengths and the server's word, far side unread".to_owned(),
        // Nobody read what was sent: the digest is of what arrived.
        (true, _) => format!("arrived whole by TCP's word ({digest} of what arrived, source unread)"),
        (false, true) if unread + equal == 0 => format!("all others whole and verified ({digest})"),
        (false, _) if unread + equal == 0 => format!("whole and verified ({digest})"),
        (false, _) => format!("sent and verified ({digest})"),
    };
    parts.push(match (unread + equal, files_sent(done)) {
        (0, _) => how,
        (_, 0) => "nothing sent".to_owned(),
        (_, files) => format!("{} {how}", counted(files, "file")),
    });
    if done.faults_count == 0 && (files_sent(done) > 0 || unread + equal == 0) {
        parts.push(clean(&done.durability));
    }
    if equal > 0 {
        parts.push(format!("{} compared and found equal", counted(equal, "file")));
    }
    if unread > 0 {
        parts.push(format!("{} kept by size and time, not read", counted(unread, "file")));
    }
    if done.receipt_missing.is_some() {
        parts.push("NO RECEIPT".to_owned());
    }
    parts.join(", ")
}

fn files_sent(done: &Done) -> u64 {
    done.files.saturating_add(done.earlier_files)
}

/// Files that were left alone: [all, of them compared].
fn kept(text: &mut String, files: [u64; 2], bytes: [u64; 2]) {
    let unread = (files[0].saturating_sub(files[1]), bytes[0].saturating_sub(bytes[1]));
    for ((files, bytes), why) in
        [(unread, "size and time are the same, not read"), ((files[1], bytes[1]), "read and equal")]
    {
        if files > 0 {
            let _ = writeln!(text, "  kept        {}, {}: {why}", counted(files, "file"), show_bytes(bytes));
        }
    }
}

fn impossible(text: &mut String, done: &Done) {
    for sentence in &done.impossible {
        let _ = writeln!(text, "  ERROR       impossible figure, do not trust this report: {}", clean(sentence));
    }
}

/// The rate of what was moved, where anything was and the figures can be.
fn goodput(done: &Done) -> Option<String> {
    let is_shown = done.impossible.is_empty() && done.bytes.saturating_add(done.earlier_bytes) > 0;
    let (bits, bytes) = (show_bits_per_second(done.goodput_bps), show_bytes_per_second(done.goodput_bps / 8.0));
    is_shown.then(|| format!("{bits} = {bytes}"))
}

fn rates(text: &mut String, done: &Done) {
    impossible(text, done);
    if let Some(rate) = goodput(done) {
        let wire = match done.wire_bps {
            Some(wire_bps) => format!("; wire {}", show_bits_per_second(wire_bps)),
            None => String::new(),
        };
        let _ = writeln!(text, "  goodput     {rate}{wire}");
    }
    for nic in &done.nics {
        nic.show(text);
    }
    let sealed = match &done.cipher {
        Some(_) if done.bare && done.transport.starts_with("ftp") => "all of it in clear".to_owned(),
        Some(_) if done.bare => "payload in clear, not authenticated; digests are of what arrived".to_owned(),
        Some(_) if done.integrity_only => "payload in clear, authenticated".to_owned(),
        Some(cipher) => format!("sealed with {}", clean(cipher)),
        None => "inside one process".to_owned(),
    };
    let rails = match done.rails.len() {
        0 => String::new(),
        // The whole of several rails, where their shares are not known.
        1 if done.rails[0].name.ends_with(" rails") => format!(", {}", clean(&done.rails[0].name)),
        1 => ", 1 rail".to_owned(),
        count => format!(", {count} rails"),
    };
    let resent = match done.resent_bytes {
        0 => String::new(),
        bytes => format!(", {} sent again", show_bytes(bytes)),
    };
    let _ = writeln!(text, "  transport   {}{rails}, {sealed}{resent}", clean(&done.transport));
    if let Some(path) = &done.path {
        path.show(text);
    }
    if let Some(forecast) = &done.forecast {
        forecast.show(text);
    }
    if done.rails.len() > 1 {
        for rail in &done.rails {
            let rate = show_bits_per_second(rail.rate_bps);
            let share = match (rail.share, rail.weight) {
                (Some(share), Some(weight)) => {
                    let off = if rail.off_weight { ": another share than its weight" } else { "" };
                    format!(", {:.0} % of all (weight {:.0} %{off})", share * 100.0, weight * 100.0)
                }
                (Some(share), None) => format!(", {:.0} % of all", share * 100.0),
                _ => String::new(),
            };
            let _ = writeln!(text, "    rail {:<7}{} at {rate}{share}", clean(&rail.name), show_bytes(rail.bytes));
        }
    }
}

/// Names of both columns: who sends is what a reader looks for first.
fn columns(done: &Done) -> (&'static str, &'static str) {
    match done.direction.as_str() {
        "push" => ("this end (sends)", "other end (receives)"),
        "pull" => ("this end (receives)", "other end (sends)"),
        _ => ("reading half", "writing half"),
    }
}

fn stages(text: &mut String, done: &Done) {
    let (here, there) = columns(done);
    let remote = done.stages_remote.as_ref();
    let title = if remote.is_some() { format!("{here:>27}   {there:>27}") } else { format!("{here:>27}") };
    let units = format!("{:>10}{:>8}{:>9}", "ms", "%", "s/GB");
    let units = if remote.is_some() { format!("{units}   {units}") } else { units };
    let _ = writeln!(text, "  {:<21}{title}\n  {:<21}{units}", "", "stage");
    let of = |books: &StagesRecord, stage: &StageRecord| {
        cells(stage.ms, stage.percent, stage.s_per_gb.filter(|_| books.payload_bytes >= PER_GB_BYTES))
    };
    for (index, stage) in done.stages_local.stages.iter().enumerate() {
        let other = remote.and_then(|books| books.stages.get(index));
        let is_used = |ms: f64| ms >= 0.05;
        if !is_used(stage.ms) && !other.is_some_and(|other| is_used(other.ms)) {
            continue;
        }
        let mut line = format!("  {:<21}{}", clean(&stage.stage), of(&done.stages_local, stage));
        if let Some(other) = other {
            let _ = write!(line, "   {}", remote.map_or_else(String::new, |books| of(books, other)));
        }
        let _ = writeln!(text, "{line}");
    }
    let sum = |books: &StagesRecord| {
        let ms = books.wall_ms * books.booked_percent / 100.0;
        #[expect(clippy::cast_precision_loss, reason = "three decimals are shown")]
        let per_gb = (books.payload_bytes >= PER_GB_BYTES).then(|| ms * 1e6 / books.payload_bytes as f64);
        cells(ms, books.booked_percent, per_gb)
    };
    let wall = |books: &StagesRecord| {
        format!("{:>27}", format!("{} × {} ms", workers(books), fitted(per_worker_ms(books), 12, 1).trim_start()))
    };
    let both = [("sum", &sum as &dyn Fn(&StagesRecord) -> String), ("workers × wall time", &wall)];
    for (name, cell) in both {
        let other = remote.map(|books| format!("   {}", cell(books))).unwrap_or_default();
        let _ = writeln!(text, "  {name:<21}{}{other}", cell(&done.stages_local));
    }
    type Of = fn(&StagesRecord) -> f64;
    let beside: [(&str, Of); 2] =
        [("commit, beside", |books| books.commit_ms), ("no core, of the sum", |books| books.run_delay_ms)];
    for (name, of) in beside {
        let cell = |books: &StagesRecord| format!("{}{:>8}{:>9}", fitted(of(books), 10, 1), "", "");
        if of(&done.stages_local) >= 0.05 || remote.is_some_and(|books| of(books) >= 0.05) {
            let other = remote.map(|books| format!("   {}", cell(books))).unwrap_or_default();
            let line = format!("  {name:<21}{}{other}", cell(&done.stages_local));
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
}

fn workers(books: &StagesRecord) -> u16 {
    books.workers.max(1)
}

fn per_worker_ms(books: &StagesRecord) -> f64 {
    books.wall_ms / f64::from(workers(books))
}

fn cells(ms: f64, percent: f64, s_per_gb: Option<f64>) -> String {
    let per_gb = s_per_gb.map_or_else(|| format!("{:>9}", "-"), |value| fitted(value, 9, 3));
    format!("{}{}{per_gb}", fitted(ms, 10, 1), fitted(percent, 8, 1))
}

/// A number to the right of its column, with a blank before it however large it is: decimals go first, then digits.
fn fitted(value: f64, width: usize, decimals: usize) -> String {
    let room = width - 1;
    let text = (0..=decimals).rev().map(|digits| format!("{value:.digits$}")).find(|text| text.len() <= room);
    format!(" {:>room$}", text.unwrap_or_else(|| format!("{value:.1e}")))
}

fn costs(text: &mut String, done: &Done) {
    let per_gb = |seconds: Option<f64>| seconds.map_or(String::new(), |seconds| format!(" ({seconds:.3} s/GB)"));
    let cpu = |seconds: f64, each: Option<f64>| format!("{seconds:.2} s{}", per_gb(each));
    let mut lines = vec![(
        "CPU time",
        cpu(done.cpu_seconds_local, done.cpu_seconds_per_gb_local),
        done.cpu_seconds_remote.map(|seconds| cpu(seconds, done.cpu_seconds_per_gb_remote)),
    )];
    lines.push((
        "peak memory",
        show_memory(done.peak_memory_bytes_local),
        done.peak_memory_bytes_remote.map(show_memory),
    ));
    for (what, here, there) in lines {
        let there = there.map(|there| format!("   {there:>27}")).unwrap_or_default();
        let _ = writeln!(text, "  {what:<21}{here:>27}{there}");
    }
}

/// What limited it; nothing is said where something failed, which changes where the time goes.
fn limiter(done: &Done) -> Option<String> {
    if done.faults_count > 0 {
        return None;
    }
    let is_telling = is_telling(done.seconds, done.bytes.saturating_add(done.earlier_bytes));
    Some(if is_telling { clean(&done.limiter) } else { "too short to tell what limited it".to_owned() })
}

/// Entries that are named; the rest is counted. A few say what it is about.
const UNKEPT_SHOWN: usize = 5;

fn unkept(text: &mut String, done: &Done) {
    if done.unkept.is_empty() {
        return;
    }
    let kinds: Vec<String> =
        done.unkept.iter().map(|(what, count)| format!("{} × {}", show_count(*count), clean(what))).collect();
    row(text, "not kept", &kinds.join(", "));
    for entry in done.unkept_entries.iter().take(UNKEPT_SHOWN) {
        let _ = writeln!(text, "    {}: {}", clean(&entry.path).replace('\n', " "), clean(&entry.what.join(", ")));
    }
    if done.unkept_entries.len() > UNKEPT_SHOWN {
        let _ = writeln!(text, "    and more; --json names the first hundred");
    }
}

/// A line of the report: what it is about, and what is said of it.
fn row(text: &mut String, about: &str, said: &str) {
    let _ = writeln!(text, "  {about:<11} {said}");
}

fn faults(text: &mut String, done: &Done) {
    if done.faults_count == 0 {
        return;
    }
    let kinds: Vec<String> =
        done.faults_by_kind.iter().map(|(kind, count)| format!("{} {}", show_count(*count), clean(kind))).collect();
    row(text, "failed", &kinds.join(", "));
    for fault in done.faults.iter().take(FAULTS_SHOWN) {
        let _ = writeln!(text, "    {}", fault_line(fault));
    }
    let shown = done.faults.len().min(FAULTS_SHOWN) as u64;
    if done.faults_count > shown {
        let _ = writeln!(text, "    and {} more", show_count(done.faults_count.saturating_sub(shown)));
    }
}

/// A receipt without an entry is worth no line.
fn receipt(text: &mut String, done: &Done) {
    if let Some(receipt) = done.receipt.as_ref().filter(|_| !is_empty(done)) {
        row(text, "receipt", &clean(receipt));
    }
    no_receipt(text, done);
}

fn no_receipt(text: &mut String, done: &Done) {
    if let Some(why) = &done.receipt_missing {
        row(text, "NO RECEIPT", &clean(why));
    }
}

fn next(text: &mut String, done: &Done) {
    let step = match (exit_of_code(done.exit), &done.receipt) {
        (Exit::Whole, None) => return,
        (Exit::Whole, _) if is_empty(done) => return,
        // A stream has gone where nobody can look.
        (Exit::Whole, _) if done.destination == STREAM => return,
        (Exit::Whole, Some(receipt)) if done.direction == "push" => {
            let name = receipt.rsplit('/').next().unwrap_or_default();
            let place = clean(&done.destination);
            format!(
                "later, on the receiving host, which keeps the same receipt: longhaul verify {} {place}",
                clean(name)
            )
        }
        (Exit::Whole, Some(receipt)) => {
            format!("later: longhaul verify {} {}", clean(receipt), clean(&done.destination))
        }
        (Exit::Denied, _) if done.faults.iter().any(|it| it.kind == DENIED && it.other_end) => {
            let below =
                if done.direction == "push" { format!(" for '{}'", clean(&done.destination)) } else { String::new() };
            format!(
                "at the other end give the user named above that permission{below}, then run the same command again"
            )
        }
        (exit, _) => exit.line().next_step.to_owned(),
    };
    row(text, "next", &step);
}

/// The kind of a fault that a permission would mend.
const DENIED: &str = "denied";

/// One failed entry in one line.
#[must_use]
pub fn fault_line(fault: &FaultRecord) -> String {
    let what = match fault.kind.as_str() {
        "vanished" => "is gone",
        "torn" => "changed while it was read, not published",
        DENIED => "permission denied",
        "full" => "no space or quota at the destination",
        "io" => "input/output error",
        "corrupt" => "came out wrong again and again",
        "in_use" => "in use at the destination",
        "unsupported" => "cannot stand at the destination",
        _ => "failed",
    };
    let place = if fault.other_end { " at the other end" } else { "" };
    let errno = match fault.errno {
        0 => String::new(),
        errno => format!(": {}", text::attempt::said(&std::io::Error::from_raw_os_error(errno))),
    };
    let step = if fault.step.is_empty() {
        String::new()
    } else {
        format!(" ({}{errno})", clean(&fault.step).replace('\n', " "))
    };
    format!("{}: {what}{place}{step}", clean(&fault.path).replace('\n', " "))
}

/// What the destination has and the source has not.
fn extras(text: &mut String, extras: &Extras, done: &str) {
    const SHOWN: usize = 10;
    if extras.removed > 0 {
        let _ = writeln!(text, "  {done:<11} {} that the source does not have", entries(extras.removed));
    }
    left(text, extras);
    for path in extras.paths.iter().take(SHOWN) {
        let _ = writeln!(text, "    {}", clean(path).replace('\n', " "));
    }
    if extras.paths.len() > SHOWN {
        let _ = writeln!(text, "    … and more");
    }
}

fn left(text: &mut String, extras: &Extras) {
    if extras.left > 0 {
        let what = entries(extras.left);
        let _ = writeln!(
            text,
            "  LEFT        {what} that the source does not have: more than --max-delete allows, or something failed; nothing more was removed"
        );
    }
}

/// What a dry run found.
#[must_use]
pub fn dry_text(dry: &DryRun) -> String {
    let mut text = format!(
        "would copy {}: {}, {}, {}\n",
        show_bytes(dry.bytes),
        counted(dry.files, "file"),
        counted(dry.folders, "folder"),
        counted(dry.links, "link"),
    );
    kept(&mut text, [dry.kept_files, dry.equal_files], [dry.kept_bytes, dry.equal_bytes]);
    if dry.resumed_bytes > 0 {
        let _ = writeln!(text, "  resumed     {} are there already", show_bytes(dry.resumed_bytes));
    }
    if dry.compared_bytes > 0 {
        let _ =
            writeln!(text, "  compared    {} with what stands there, chunk by chunk", show_bytes(dry.compared_bytes));
    }
    if let Some(forecast) = &dry.forecast {
        forecast.show(&mut text);
    }
    extras(&mut text, &dry.extras, "would remove");
    if dry.faults > 0 {
        let _ = writeln!(text, "  failed      {} could not be looked at", entries(dry.faults));
    }
    text
}

fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", show_count(count), if count == 1 { "" } else { "s" })
}

fn entries(count: u64) -> String {
    format!("{} {}", show_count(count), if count == 1 { "entry" } else { "entries" })
}
