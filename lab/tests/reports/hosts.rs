//! The two hosts that checks, demo and races get from `longhaul lab hosts` end with whoever asked for them, and with them all that runs there.
//!
//! In: callers that end in every way. Out: which processes are there afterwards.
//! Absent on purpose: what goes over their wire (every other scenario).

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lab::hosts::Side;
use lab::pair::Pair;

use crate::world::{Skip, World, until};

/// What is left is gone by then.
const SOON: Duration = Duration::from_secs(5);

/// A shell that asks for hosts and waits, as scripts do.
struct Caller {
    shell: Child,
    maker: u32,
    /// The process that runs in host b.
    guest: Child,
}

fn is_there(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The letter behind the name; what has ended and was not yet waited for is a Z.
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

impl Caller {
    fn begin(world: &World) -> Caller {
        let script = "\"$1\" lab hosts & echo $!; wait";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(world.binary()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut shell = command.spawn().expect("a shell");
        let mut lines = BufReader::new(shell.stdout.take().expect("it is ours")).lines().map_while(Result::ok);
        let maker = lines.next().and_then(|line| line.parse().ok()).expect("the maker's process");
        let words = lines.next().unwrap_or_default();
        let holder = words.split_whitespace().find_map(|word| word.strip_prefix("HOLDER_B=")).expect("a holder");
        let mut guest = Command::new("nsenter");
        guest.args(["-t", holder, "-n", "-m", "--", "sleep", "86399"]).stdin(Stdio::null());
        Caller { shell, maker, guest: guest.spawn().expect("nsenter") }
    }

    /// Whether the maker and what runs in its hosts go soon.
    fn all_goes(&mut self) -> bool {
        let goes = until(SOON, || !is_there(self.maker) && !is_there(self.guest.id()));
        [&mut self.shell, &mut self.guest].into_iter().for_each(|child| {
            let _ = child.kill();
            let _ = child.wait();
        });
        goes
    }
}

pub(crate) fn hosts_end_with_whoever_asked_for_them(world: &mut World) -> Result<(), Skip> {
    let mut caller = Caller::begin(world);
    let was_there = is_there(caller.maker) && is_there(caller.guest.id());
    world.holds("hosts: they are there, and something runs in one", was_there, "");
    caller.shell.kill().expect("a child of ours");
    let goes = caller.all_goes();
    world.holds("hosts: kill -9 of the caller leaves nothing in them", goes, "");
    let mut caller = Caller::begin(world);
    let maker = i32::try_from(caller.maker).ok().and_then(rustix::process::Pid::from_raw).expect("a process");
    rustix::process::kill_process(maker, rustix::process::Signal::TERM).expect("a process of ours");
    let goes = caller.all_goes();
    world.holds("hosts: SIGTERM leaves nothing in them", goes, "");
    let pair = Pair::make().map_err(|error| Skip(format!("{error:#}")))?;
    let mut guest = pair.command(Side::A, "sleep").expect("the host").arg("86399").spawn().expect("sleep");
    drop(pair);
    let is_gone = until(SOON, || !is_there(guest.id()));
    let _ = guest.kill();
    let _ = guest.wait();
    world.holds("hosts: of a library's caller, who drops them, nothing is left either", is_gone, "");
    Ok(())
}
