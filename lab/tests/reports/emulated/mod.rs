//! Two hosts with an emulated link between them, for rules about distance and loss.
//!
//! In: a link in the words of `longhaul lab`. Out: a daemon on host b, jobs on host a, and a link that can be changed meanwhile.
//! Invariants: the emulator runs in this process and ends with the `Emulated`; what runs in its hosts ends with the scenario.
//! Absent on purpose: scripts (a scenario is one) and the measure of the link itself (`longhaul lab measure`).

pub(crate) mod auto;
pub(crate) mod blackhole;
pub(crate) mod moves;
pub(crate) mod policer;
pub(crate) mod start;

use std::net::Ipv4Addr;

use lab::emulator::Told;
use lab::hosts::{Lab, Making, Side, address4};
use lab::settings::LinkSettings;

use crate::world::{Daemon, PORT, Running, Skip, World};

/// See the module.
pub(crate) struct Emulated {
    lab: Lab,
    settings: LinkSettings,
}

impl Emulated {
    /// Makes it.
    pub(crate) fn make(words: &str) -> Result<Emulated, Skip> {
        let mut settings = LinkSettings::default();
        settings.apply_all(words).expect("words of a link");
        let making = Making { seed: 1, memory_bytes: None, granule_ns: 50_000, tcp: None };
        let lab =
            Lab::make(&[settings], making).map_err(|error| Skip(format!("no lab can be made here: {error:#}")))?;
        Ok(Emulated { lab, settings })
    }

    /// Changes the link.
    pub(crate) fn set(&mut self, words: &str) {
        self.settings.apply_all(words).expect("words of a link");
        self.lab.set(0, self.settings).expect("there is a link");
    }

    /// Ends the link; what each direction has done.
    pub(crate) fn stop(&mut self) -> [Told; 2] {
        self.lab.stop().remove(0)
    }

    /// Gives a host another address; what came from the old one is dead.
    pub(crate) fn move_host(&mut self, side: Side, address: Ipv4Addr) {
        self.lab.move_host(side, 0, address).expect("an address of the link's network");
    }

    /// A command on a host.
    pub(crate) fn command(&self, side: Side, program: &str) -> std::process::Command {
        self.lab.command(side, program).expect("the host is there")
    }

    /// Starts the binary on a host.
    pub(crate) fn start(&self, world: &mut World, side: Side, words: &[&str]) -> Running {
        let mut command = self.lab.command(side, world.binary()).expect("the host is there");
        command.args(words);
        world.spawn(side, command)
    }

    /// Runs a program on a host; what it wrote.
    pub(crate) fn run(&self, side: Side, program: &str, words: &[&str]) -> Option<String> {
        let output = self.lab.command(side, program).ok()?.args(words).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A daemon on host b whose root is `dst/far`, with a ticket for one job at a time.
    pub(crate) fn serve(&self, world: &mut World) -> Daemon {
        self.serve_with(world, "--ticket")
    }

    /// The same with this ticket.
    pub(crate) fn serve_with(&self, world: &mut World, ticket: &str) -> Daemon {
        let (root, listen) = (world.word("dst/far"), format!("{}:{PORT}", address4(0, Side::B)));
        let running = self.start(world, Side::B, &["serve", "--root", &root, "--listen", &listen, ticket]);
        Daemon::of(running)
    }

    /// A daemon on host b to which its kernel has been booted another time than host a's: as between two machines, nothing that one end sees can be
    /// the other's.
    pub(crate) fn serve_as_another_kernel(&self, world: &mut World) -> Result<Daemon, Skip> {
        const SCRIPT: &str = r#"mount --bind "$1" /proc/sys/kernel/random/boot_id || exit 1; shift; exec "$@""#;
        let booted = world.word("booted");
        std::fs::write(&booted, "11111111-2222-3333-4444-555555555555\n").expect("a file");
        let words = ["-m", "--propagation", "private", "sh", "-c"];
        let can = self.run(Side::B, "unshare", &[&words[..], &[SCRIPT, "sh", &booted, "true"]].concat());
        if can.is_none() {
            return Err(Skip("no file of /proc can be covered by another here".into()));
        }
        let (root, listen) = (world.word("dst/far"), format!("{}:{PORT}", address4(0, Side::B)));
        let mut command = self.lab.command(Side::B, "unshare").expect("the host is there");
        command.args(words).args([SCRIPT, "sh", &booted]).arg(world.binary());
        command.args(["serve", "--root", &root, "--listen", &listen, "--ticket=reusable"]);
        Ok(Daemon::of(world.spawn(Side::B, command)))
    }

    /// `longhaul cp --json` on host a.
    pub(crate) fn cp(&self, world: &mut World, words: &[&str]) -> Running {
        self.start(world, Side::A, &[&["cp", "--json"], words].concat())
    }
}
