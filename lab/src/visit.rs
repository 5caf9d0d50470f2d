//! Commands for a lab that runs.
//!
//! For: `lab up`, `down`, `on`, `set`, `move`, `show`, `list`. In and out: arguments → questions to the lab, and what it answers.
//! Invariants: `on` becomes the command it runs: its exit code, signals and terminal are the command's own.
//! Absent on purpose: the lab's side (run.rs).

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use sys::netns;

use crate::arguments::{MoveArguments, OnArguments, SetArguments, UpArguments};
use crate::control::{self, Ask};
use crate::hosts::Side;
use crate::run::logs_path;
use text::exit::Exit;

/// Making a lab takes some tens of ms; a machine that needs so long will not have one.
const UP_MAX: Duration = Duration::from_secs(20);

/// `lab up`: starts the process that holds the lab, and waits until it answers.
///
/// # Errors
/// The lab could not be made: what its process said.
pub fn up(arguments: &UpArguments) -> anyhow::Result<u8> {
    control::check_name(&arguments.name)?;
    let folder = control::folder()?;
    let socket = control::socket_path(&folder, &arguments.name);
    if control::ask(&socket, &Ask::Show).is_ok() {
        let words = format!("a lab '{}' is running", arguments.name);
        return Err(Exit::Usage.fail("make the lab", words).next("end it first: longhaul lab down NAME").into());
    }
    let log_path = folder.join(format!("{}.log", arguments.name));
    let log = File::create(&log_path).with_context(|| format!("{} cannot be written", log_path.display()))?;
    let mut command = Command::new("/proc/self/exe");
    // The same words again, but for the second: `lab hold ...` instead of `lab up ...`.
    command.args(["lab", "hold"]).args(std::env::args_os().skip(3));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let mut child = netns::detach(&mut command).spawn().context("the lab's process cannot be started")?;
    let limit = Instant::now() + UP_MAX;
    loop {
        if let Ok((answer, _)) = control::ask(&socket, &Ask::Show) {
            println!("{}", answer.text);
            return Ok(0);
        }
        if let Some(status) = child.try_wait()? {
            eprint!("{}", std::fs::read_to_string(&log_path).unwrap_or_default());
            return Ok(status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0).unwrap_or(1));
        }
        if Instant::now() > limit {
            child.kill()?;
            anyhow::bail!(Exit::Stalled.fail("make the lab", format!("it did not answer; see {}", log_path.display())));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// `lab down`.
///
/// # Errors
/// There is no such lab.
pub fn down(name: Option<&str>) -> anyhow::Result<u8> {
    let path = control::find(name)?;
    let (answer, _) = control::ask(&path, &Ask::Down)?;
    println!("{}", answer.text);
    Ok(0)
}

/// `lab set`.
///
/// # Errors
/// There is no such lab or link, or a word means nothing.
pub fn set(arguments: &SetArguments) -> anyhow::Result<u8> {
    let ask = Ask::Set { link: arguments.link, words: arguments.words.join(" ") };
    tell(arguments.lab.as_deref(), &ask)
}

/// `lab move`.
///
/// # Errors
/// There is no such lab, host or link, or the address is not one of the link's network.
pub fn shift(arguments: &MoveArguments) -> anyhow::Result<u8> {
    let ask = Ask::Move { host: arguments.host.clone(), link: arguments.link, address: arguments.address };
    tell(arguments.lab.as_deref(), &ask)
}

/// `lab show`.
///
/// # Errors
/// There is no such lab.
pub fn show(name: Option<&str>) -> anyhow::Result<u8> {
    tell(name, &Ask::Show)
}

fn tell(name: Option<&str>, ask: &Ask) -> anyhow::Result<u8> {
    let (answer, _) = control::ask(&control::find(name)?, ask)?;
    println!("{}", answer.text);
    Ok(0)
}

/// `lab list`.
///
/// # Errors
/// The user's folder cannot be read.
pub fn list() -> anyhow::Result<u8> {
    for path in control::list(&control::folder()?)? {
        println!("{}", path.file_stem().unwrap_or_default().display());
    }
    Ok(0)
}

/// `lab on`: goes to the host and becomes the command, or starts it there and leaves.
///
/// # Errors
/// There is no such lab or host; the command cannot be started.
pub fn on(arguments: &OnArguments) -> anyhow::Result<u8> {
    let side = Side::parse(&arguments.host)
        .ok_or_else(|| Exit::Usage.fail("find the host", format!("'{}' is none; there are a and b", arguments.host)))?;
    let path = control::find(arguments.lab.as_deref())?;
    let (answer, descriptors) = control::ask(&path, &Ask::Hosts)?;
    enter(&descriptors, side)?;
    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]).envs(answer.pairs);
    if arguments.background {
        return background(command, arguments, &path);
    }
    let error = command.exec();
    Err(cannot_run(arguments, &error))
}

fn cannot_run(arguments: &OnArguments, error: &std::io::Error) -> anyhow::Error {
    Exit::Usage.fail("run the command", format!("{} cannot be run: {error}", arguments.command[0].display())).into()
}

fn enter(descriptors: &[OwnedFd], side: Side) -> anyhow::Result<()> {
    let [user, hosts @ ..] = descriptors else { anyhow::bail!("the lab did not hand over its hosts") };
    let host = hosts.get(side.index()).context("the lab did not hand over its hosts")?;
    if netns::number(user)? != netns::number(netns::user()?)? {
        netns::enter_user(user).context("the lab belongs to another user")?;
    }
    netns::enter(host).context("the host cannot be entered")
}

fn background(mut command: Command, arguments: &OnArguments, lab: &Path) -> anyhow::Result<u8> {
    let log_path = match &arguments.log {
        Some(path) => path.clone(),
        None => {
            let folder = logs_path(lab);
            std::fs::create_dir_all(&folder)?;
            folder.join(format!("{}.log", std::process::id()))
        }
    };
    let log = File::create(&log_path).with_context(|| format!("{} cannot be written", log_path.display()))?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let child = netns::detach(&mut command).spawn().map_err(|error| cannot_run(arguments, &error))?;
    println!("{} {}", child.id(), log_path.display());
    Ok(0)
}
