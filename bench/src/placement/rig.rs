//! One trial: bytes over `bench net`'s rail, both ends placed.
//!
//! For: the search, and `host probe`'s second look.
//! In and out: a placement → its rate and processor time, or why it cannot be had.
//! Invariants: what cannot be had breaks nothing: the next trial finds both ends as they were; a broken connection is an error, not a trial.
//! Absent on purpose: deciding.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::thread::JoinHandle;

use anyhow::Context;
use engine::host::Hold;
use node::job::measured;
use sys::sock;
use topology::placement::shape::Shape;
use topology::placement::{Placement, Rings, Side};

use super::SearchArguments;
use crate::net::session::{Client, Cores, Refused, serve};
use crate::net::way::{Driver, Held, Layer, Order, Seal, Side as Moved, Way};
use topology::machine::Machine;
use topology::tree::clean;
use tune::irq_affinity::IrqAffinity;

/// What the senders say, and what the receivers say.
pub type Both = (Vec<Moved>, Vec<Moved>);

/// What a trial brought.
#[derive(Debug, Clone, Copy, Default)]
pub struct Measured {
    /// Payload at the receivers, bit/s, all streams together.
    pub bps: f64,
    /// Processor time of the senders' threads, and of the receivers', nanoseconds.
    pub cpu_ns: [u64; 2],
    /// Bytes that the receivers got.
    pub bytes: u64,
    /// Until the last of them had its last.
    pub ns: u64,
}

/// Both ends, ready for trials.
#[derive(Debug)]
pub struct Rig {
    client: Client,
    far_end: Option<JoinHandle<anyhow::Result<()>>>,
    /// This machine, and the other.
    pub near: Machine,
    /// See `near`.
    pub far: Machine,
    /// The other's address.
    pub peer: IpAddr,
    arranger: IrqAffinity,
    /// How the other end's interrupts are arranged now.
    far_now: (Vec<u16>, bool, Vec<u16>),
    order: Order,
    /// By the numbers of trials.
    sums: BTreeMap<usize, Measured>,
}

impl Rig {
    /// To the bench that listens at `server`, or both ends in this process.
    ///
    /// # Errors
    /// The address cannot be found or reached.
    pub fn open(server: Option<&str>, arguments: &SearchArguments) -> anyhow::Result<Rig> {
        let (addr, far_end) = match server {
            Some(server) => {
                let mut addrs = server.to_socket_addrs().with_context(|| format!("failed to find {server}"))?;
                (addrs.next().with_context(|| format!("{server} has no address"))?, None)
            }
            None => {
                let listener = sock::listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
                let (addr, cores) = (listener.local_addr()?, Cores::new(None)?);
                (addr, Some(std::thread::spawn(move || serve(&listener, &cores, true, None))))
            }
        };
        let mut client = Client::new(addr, "cubic", Cores::new(None)?)?;
        let (local, remote) = client.addresses()?;
        let mut far = client.machine()?;
        // Its words come to a screen.
        (far.host, far.nic) = (clean(&far.host), clean(&far.nic));
        let layer = if arguments.clear { Layer::Crc } else { Layer::SealedHashed };
        let driver = if sys::ring::io_uring().is_ok() { Driver::Uring } else { Driver::Plain };
        let send_ms = u64::try_from(arguments.trial.as_millis()).unwrap_or(u64::MAX).max(1);
        let way = Way::Rail { driver, layer };
        Ok(Rig {
            client,
            far_end,
            near: Machine::here(local.ip(), arguments.irq),
            far,
            peer: remote.ip(),
            arranger: IrqAffinity::new(arguments.irq.then(|| arguments.state.clone()), local.ip()),
            far_now: Default::default(),
            order: Order { way, seal: Seal::Aes128, streams: 1, send_ms, hold: None },
            sums: BTreeMap::new(),
        })
    }

    /// Both machines as the search sees them.
    ///
    /// # Errors
    /// The other end says what cannot be of itself.
    pub fn shapes(&self) -> anyhow::Result<(Shape, Shape)> {
        let near = self.near.shape().context("this machine does not tell its cores")?;
        Ok((near, self.far.shape().context("the other end says of itself what no machine is")?))
    }

    /// One trial; within: why this placement cannot be had.
    ///
    /// # Errors
    /// The connection broke.
    pub fn measure(&mut self, placement: &Placement) -> anyhow::Result<Result<Measured, String>> {
        match self.try_measure(placement) {
            Ok(measured) => Ok(measured),
            // The other end stands, and has said why not.
            Err(error) if error.is::<Refused>() => Ok(Err(clean(&format!("{error:#}")))),
            Err(error) => Err(error.context("failed to measure a placement")),
        }
    }

    fn try_measure(&mut self, placement: &Placement) -> anyhow::Result<Result<Measured, String>> {
        let (senders, receivers) = match self.try_streams(self.order.way, placement)? {
            Ok(sides) => sides,
            Err(why) => return Ok(Err(why)),
        };
        Ok(Ok(Measured {
            bps: receivers.iter().map(Moved::bps).sum(),
            cpu_ns: [&senders, &receivers].map(|sides| sides.iter().map(|side| side.cpu_ns).sum()),
            bytes: receivers.iter().map(|side| side.bytes).sum(),
            ns: receivers.iter().map(|side| side.ns).max().unwrap_or(0),
        }))
    }

    /// Placed streams by any way, each of both ends by itself; within: why this placement cannot be had.
    ///
    /// # Errors
    /// The connection broke.
    pub fn streams(&mut self, way: Way, placement: &Placement) -> anyhow::Result<Result<Both, String>> {
        match self.try_streams(way, placement) {
            Err(error) if error.is::<Refused>() => Ok(Err(clean(&format!("{error:#}")))),
            other => other.context("failed to measure placed streams"),
        }
    }

    fn try_streams(&mut self, way: Way, placement: &Placement) -> anyhow::Result<Result<Both, String>> {
        let Placement { send, recv, streams } = placement;
        let hold = measured::hold(send);
        if let Err(error) = hold.check() {
            return Ok(Err(format!("threads cannot be held so here: {error}")));
        }
        if let Err(error) = self.arranger.set(&send.irqs, send.rings == Rings::First, exact_workers(send)) {
            return Ok(Err(format!("{error:#}")));
        }
        let wanted = (recv.irqs.clone(), recv.rings == Rings::First, exact_workers(recv).to_vec());
        let moves = |it: &(Vec<u16>, bool, Vec<u16>)| !it.0.is_empty();
        if wanted != self.far_now && (moves(&wanted) || moves(&self.far_now)) {
            self.client.arrange(&wanted.0, wanted.1, &wanted.2)?;
            self.far_now = wanted;
        }
        self.client.hold(Some(hold));
        let hold = Some(Held { cores: recv.workers.clone(), exact: recv.exact, memory: recv.memory });
        self.client.run(&Order { way, streams: *streams, hold, ..self.order.clone() }).map(Ok)
    }

    /// One stream by another way than a job's, each end's thread held: what the sender says, and what the receiver does.
    ///
    /// # Errors
    /// The connection broke, or an end refused.
    pub fn run(&mut self, way: Way, ours: Hold, theirs: Held) -> anyhow::Result<(Moved, Moved)> {
        self.client.hold(Some(ours));
        let order = Order { way, streams: 1, hold: Some(theirs), ..self.order.clone() };
        let (mut senders, mut receivers) = self.client.run(&order)?;
        let one = |sides: &mut Vec<Moved>| sides.pop().context("an end says nothing of its stream");
        Ok((one(&mut senders)?, one(&mut receivers)?))
    }

    /// More addresses of the listener, over which streams are dealt out; how many there are in all.
    ///
    /// # Errors
    /// One that cannot be found.
    pub fn also(&mut self, others: &[String]) -> anyhow::Result<usize> {
        let find = |name: &String| {
            let mut found = name.to_socket_addrs().with_context(|| format!("failed to find {name}"))?;
            found.next().with_context(|| format!("{name} has no address"))
        };
        self.client.also(others.iter().map(find).collect::<anyhow::Result<Vec<_>>>()?);
        Ok(1 + others.len())
    }

    /// The longest UDP payload that crosses this path as one packet.
    ///
    /// # Errors
    /// The connection broke.
    pub fn packet_bytes(&self) -> anyhow::Result<u16> {
        // Loopback has packets of 64 KiB.
        if self.peer.is_loopback() { Ok(u16::MAX) } else { self.client.packet_bytes() }
    }

    /// Adds to what a contestant has spent.
    pub fn book(&mut self, number: usize, measured: &Measured) {
        let sum = self.sums.entry(number).or_default();
        sum.bytes += measured.bytes;
        sum.cpu_ns = [sum.cpu_ns[0] + measured.cpu_ns[0], sum.cpu_ns[1] + measured.cpu_ns[1]];
    }

    /// Processor seconds per 10^9 bytes of a contestant: sender, receiver.
    #[must_use]
    pub fn cpu_s_per_gb(&self, number: usize) -> [f64; 2] {
        let sum = self.sums.get(&number).copied().unwrap_or_default();
        sum.cpu_ns.map(|ns| ns as f64 / sum.bytes.max(1) as f64)
    }

    /// Puts back what was moved at this end; the other end does when it sees the connection go.
    ///
    /// # Errors
    /// A value that could not be put back.
    pub fn close(self) -> anyhow::Result<()> {
        drop(self.client);
        self.arranger.end()?;
        self.far_end.map_or(Ok(()), |far| far.join().expect("the far end does not panic"))
    }
}

/// Cores that have a send queue of their own.
fn exact_workers(side: &Side) -> &[u16] {
    if side.exact { &side.workers } else { &[] }
}
