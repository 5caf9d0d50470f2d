//! A NIC's interrupts on the cores that a trial wants, and back again.
//!
//! For: each end of a search that was allowed to move them.
//! In and out: cores → values of /proc, /sys and the NIC, through the journal of `host apply`.
//! Invariants: nothing is set at an end whose operator did not ask for it; each old value is on disk before the new one is set, and a watchdog puts
//! all of them back when this process is killed; irqbalance is held (SIGSTOP) meanwhile, or it would move them again.
//! Absent on purpose: which cores (`bench::placement` tries them), flow rules of NICs (ntuple): flows come to the first rings by having no others (`ethtool -L`), which needs no rule per flow.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::ensure;

use crate::lease::Lease;
use crate::place::{Knob, Place};
use crate::rules::{self, Change, mask};
use text::exit::Exit;
use topology::facts;
use topology::machine::{nic_named, nic_of};
use topology::nics::Nic;
use topology::tree::Tree;

/// What the journal calls these changes.
const RULE: &str = "placement";

/// One end's interrupts.
#[derive(Debug)]
pub struct IrqAffinity {
    /// Folder of the journal; `None`: nobody asked.
    state: Option<PathBuf>,
    nic: String,
    /// Had when the first change is made.
    lease: Option<Lease>,
    now: Vec<(Place, String)>,
}

impl IrqAffinity {
    /// Of the NIC that has this address.
    #[must_use]
    pub fn new(state: Option<PathBuf>, local: IpAddr) -> IrqAffinity {
        IrqAffinity { state, nic: nic_of(local), lease: None, now: Vec::new() }
    }

    /// Interrupts on these cores (none: as they were), their number of rings alone if `first_rings`, and the send queue of each worker's core the
    /// one whose interrupts come beside it.
    ///
    /// # Errors
    /// Nobody asked for it at this end; the journal is somebody else's; a value that the kernel or the NIC does not take: then none is set.
    pub fn set(&mut self, irqs: &[u16], first_rings: bool, workers: &[u16]) -> anyhow::Result<()> {
        let tree = Tree::here();
        let wanted =
            if irqs.is_empty() { Vec::new() } else { places(&nic_named(&tree, &self.nic), irqs, first_rings, workers) };
        ensure!(
            irqs.is_empty() || !wanted.is_empty(),
            "{} has neither interrupts nor receive queues that could be moved",
            self.nic
        );
        if wanted == self.now {
            return Ok(());
        }
        let changes = wanted.iter().filter_map(|(place, new)| {
            // Against what was before this search, which the lease puts back first.
            Some(Change { rule: RULE, place: place.clone(), old: place.read().ok()?, new: new.clone() })
        });
        let lease = match &mut self.lease {
            Some(lease) => lease,
            none => none.insert(take(self.state.as_deref(), &self.nic)?),
        };
        lease.replace(RULE, &[])?;
        self.now.clear();
        let changes: Vec<Change> = changes.filter(|change| change.old != change.new).collect();
        lease.replace(RULE, &changes)?;
        self.now = wanted;
        Ok(())
    }

    /// Everything back.
    ///
    /// # Errors
    /// A value that could not be put back; it stays in the journal.
    pub fn end(self) -> anyhow::Result<()> {
        self.lease.map_or(Ok(()), Lease::release)
    }
}

/// The right to set this host's values, with irqbalance held.
fn take(state: Option<&std::path::Path>, nic: &str) -> anyhow::Result<Lease> {
    let Some(state) = state else {
        let failure = Exit::Usage.fail(format!("move the interrupts of {nic}"), "nobody asked for it on this host");
        return Err(failure.next("longhaul bench placement --listen IP:PORT --irq").into());
    };
    let mut lease = Lease::take(state)?;
    let tree = Tree::here();
    lease.replace("irqbalance", &rules::plan(&tree, &facts::read(&tree), |rule| rule.name == "irqbalance"))?;
    Ok(lease)
}

/// What is to be set where, for a NIC with interrupts or for one whose packets the kernel hands on (RPS: virtual NICs have no interrupts).
fn places(nic: &Nic, irqs: &[u16], first_rings: bool, workers: &[u16]) -> Vec<(Place, String)> {
    let mut out = Vec::new();
    let queue = |kind: &str, number: usize, file: &str| {
        Place::File(format!("/sys/class/net/{}/queues/{kind}-{number}/{file}", nic.name).into())
    };
    if first_rings {
        // First of all: with the rings their interrupts come and go.
        out.push((Place::Nic { nic: nic.name.clone(), knob: Knob::Channels }, irqs.len().to_string()));
    }
    for (number, irq) in nic.irqs.iter().enumerate() {
        let place = Place::File(format!("/proc/irq/{}/smp_affinity_list", irq.number).into());
        out.push((place, irqs[number % irqs.len()].to_string()));
    }
    if nic.irqs.is_empty() {
        let cores: Vec<u32> = irqs.iter().map(|core| u32::from(*core)).collect();
        out.extend((0..nic.rx_queues).map(|number| (queue("rx", number, "rps_cpus"), mask(&cores))));
    }
    for number in 0..if nic.tx_queues > 1 && !first_rings { nic.tx_queues } else { 0 } {
        let mine = workers.iter().enumerate().filter(|(at, _)| at % nic.tx_queues == number);
        let cores: Vec<u32> = mine.map(|(_, core)| u32::from(*core)).collect();
        if !cores.is_empty() {
            out.push((queue("tx", number, "xps_cpus"), mask(&cores)));
        }
    }
    out
}

/// The same as lines of shell.
#[must_use]
pub fn shell(nic: &str, irqs: &[u16], first_rings: bool, workers: &[u16]) -> Vec<String> {
    let wanted = places(&nic_named(&Tree::here(), nic), irqs, first_rings, workers);
    wanted.iter().map(|(place, value)| place.shell(value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_go_round_the_cores_and_virtual_nics_hand_packets_on() {
        let tree = Tree::parse(
            "sys/class/net/e0/queues/ = rx-0 rx-1 tx-0 tx-1\nsys/class/net/e0/device/msi_irqs/ = 40 41 42\n\
             proc/irq/40/smp_affinity_list = 0-7\nproc/irq/41/smp_affinity_list = 1\nproc/irq/42/smp_affinity_list = 2\n\
             sys/class/net/v0/queues/ = rx-0 tx-0\n",
        )
        .unwrap();
        let said = |nic: &str, first_rings| {
            let wanted = places(&nic_named(&tree, nic), &[4, 5], first_rings, &[6, 7, 0]);
            wanted.iter().map(|(place, value)| format!("{place} = {value}")).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(
            said("e0", false),
            "/proc/irq/40/smp_affinity_list = 4\n/proc/irq/41/smp_affinity_list = 5\n/proc/irq/42/smp_affinity_list = 4\n\
             /sys/class/net/e0/queues/tx-0/xps_cpus = 41\n/sys/class/net/e0/queues/tx-1/xps_cpus = 80"
        );
        assert!(said("e0", true).starts_with("-L e0 combined = 2\n") || said("e0", true).contains("combined = 2"));
        assert_eq!(said("v0", false), "/sys/class/net/v0/queues/rx-0/rps_cpus = 30");
    }

    #[test]
    fn where_nobody_asked_nothing_is_moved() {
        let mut arranger = IrqAffinity::new(None, IpAddr::from([127, 0, 0, 1]));
        let error = arranger.set(&[0], false, &[]).unwrap_err();
        assert!(error.to_string().contains("nobody asked"), "{error}");
        assert!(arranger.set(&[], false, &[]).is_ok() && arranger.end().is_ok());
    }
}
