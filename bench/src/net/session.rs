//! Two ends that agree on a run: orders and answers as JSON lines on one connection, bytes on others.
//!
//! For: `--listen` on one host and `--server` on another, or both in one process.
//! In and out: an order → what both ends moved and spent.
//! Invariants: senders begin when all receivers are ready; a connection for bytes must show the token of its run; a stranger can make
//! the listener receive for the time a run may last, and nothing else: nothing that comes is kept.
//! Absent on purpose: keys. A bench listens only while somebody asks it to, and serves one client at a time.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use engine::host::Hold;
use serde::{Deserialize, Serialize};
use sys::event::{self, Interest};
use sys::sock;

use super::bare::{self, STALL};
use super::datagram;
use super::packets;
use super::rail;
use super::way::{Ask, Order, Side, Tcp, Way};
use topology::machine::Machine;
use tune::irq_affinity::IrqAffinity;

const TOKEN_BYTES: usize = 16;
/// IEEE 802.3.
const ETHERNET_MTU: u32 = 1500;
/// An order is a few hundred bytes; answers carry the books of up to 64 streams.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// How long a client may think between two orders.
const THINK: Duration = Duration::from_secs(60);

/// What the listener answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    /// Connect, and show this.
    Token(String),
    /// All receivers wait.
    Go,
    /// The streams have ended.
    Sides(Vec<Side>),
    /// It is this machine.
    Machine(Machine),
    /// It is arranged so.
    Arranged,
    /// It cannot be.
    Refused(String),
}

/// JSON lines both ways.
#[derive(Debug)]
struct Lines {
    from: BufReader<TcpStream>,
    to: TcpStream,
}

impl Lines {
    fn new(stream: TcpStream, patience: Duration) -> io::Result<Lines> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(STALL))?;
        Ok(Lines { from: BufReader::new(stream.try_clone()?), to: stream })
    }

    fn put(&mut self, line: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        Ok(self.to.write_all(text.as_bytes())?)
    }

    /// `None`: the other end has closed.
    fn get<T: for<'a> Deserialize<'a>>(&mut self) -> anyhow::Result<Option<T>> {
        let mut text = String::new();
        if (&mut self.from).take(LINE_BYTES_MAX).read_line(&mut text)? == 0 {
            return Ok(None);
        }
        ensure!(text.ends_with('\n'), "the other end said half a line: is it a longhaul bench of this version?");
        Ok(Some(serde_json::from_str(&text).context("the other end is no longhaul bench of this version")?))
    }
}

/// Which cores the threads of this process run on.
#[derive(Debug, Clone)]
pub struct Cores {
    numbers: Vec<usize>,
    /// In place of the order of these.
    hold: Option<Hold>,
}

impl Cores {
    /// Those this process may use, beginning with `first` if one is named.
    ///
    /// # Errors
    /// `first` is not among them.
    pub fn new(first: Option<usize>) -> anyhow::Result<Cores> {
        let mut numbers = sys::host::cores()?.numbers;
        if let Some(first) = first {
            let at = numbers.iter().position(|&number| number == first);
            numbers.rotate_left(at.with_context(|| format!("core {first} is not given to this process"))?);
        }
        Ok(Cores { numbers, hold: None })
    }

    /// The same cores, held so.
    #[must_use]
    pub fn holding(&self, hold: Option<Hold>) -> Cores {
        Cores { hold, ..self.clone() }
    }

    /// Senders take the even places and receivers the odd ones, so that both ends on one host do not share a core.
    fn pin(&self, stream: usize, receives: bool) {
        if let Some(hold) = &self.hold {
            // Whoever asked for it has had it checked.
            let _ = hold.take(stream);
            return;
        }
        if let Some(&core) = self.numbers.get((2 * stream + usize::from(receives)) % self.numbers.len().max(1)) {
            // A container may forbid it; the kernel places the thread then.
            let _ = sys::host::pin_thread(core);
        }
    }
}

/// Serves clients one after another; with `once` only the first. `state`: the folder of this host's journal, if interrupts may be moved.
///
/// # Errors
/// The listening socket broke; with `once` also what went wrong with the client.
pub fn serve(listener: &TcpListener, cores: &Cores, once: bool, state: Option<&Path>) -> anyhow::Result<()> {
    loop {
        let (control, peer) = listener.accept()?;
        let served = serve_one(listener, control, cores, state);
        if once {
            return served;
        }
        if let Err(error) = served {
            eprintln!("{peer}: {error:#}");
        }
    }
}

fn serve_one(listener: &TcpListener, control: TcpStream, cores: &Cores, state: Option<&Path>) -> anyhow::Result<()> {
    let local = control.local_addr()?.ip();
    let mut lines = Lines::new(control, THINK)?;
    // With the client its arrangement goes.
    let mut arranger = IrqAffinity::new(state.map(Path::to_owned), local);
    while let Some(ask) = lines.get::<Ask>()? {
        let done = match &ask {
            Ask::Run(order) => receive(listener, &mut lines, order, cores),
            Ask::Machine => lines.put(&Reply::Machine(Machine::here(local, state.is_some()))),
            Ask::Arrange { irqs, first_rings, workers } => {
                arranger.set(irqs, *first_rings, workers).and_then(|()| lines.put(&Reply::Arranged))
            }
        };
        if let Err(error) = done {
            lines.put(&Reply::Refused(format!("{error:#}")))?;
        }
    }
    arranger.end()
}

fn receive(listener: &TcpListener, lines: &mut Lines, order: &Order, cores: &Cores) -> anyhow::Result<()> {
    order.check()?;
    let mut token = [0; TOKEN_BYTES];
    aws_lc_rs::rand::fill(&mut token).ok().context("no random numbers")?;
    lines.put(&Reply::Token(hex(&token)))?;
    let mut sockets = Vec::new();
    while sockets.len() < usize::from(order.streams) {
        sockets.push(accept(listener, hex(&token).as_bytes())?);
    }
    let hold = order.hold.as_ref().map(|it| Hold {
        cores: it.cores.iter().map(|core| usize::from(*core)).collect(),
        exact: it.exact,
        memory: it.memory,
        node: None,
    });
    if let Some(hold) = &hold {
        hold.check().context("its threads cannot be held there")?;
    }
    // An order that names no cores gets those of the listener.
    let cores = if hold.is_some() { cores.holding(hold) } else { cores.clone() };
    let sides = both(&sockets, &cores, true, |socket, ready| recv_end(order, socket, ready), || lines.put(&Reply::Go))?;
    lines.put(&Reply::Sides(sides))
}

/// The next connection that shows the token; others are closed.
fn accept(listener: &TcpListener, token: &[u8]) -> anyhow::Result<Arc<OwnedFd>> {
    let end = Instant::now() + STALL;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "the client did not connect its streams");
        if !event::poll(&[(listener.as_fd(), Interest::Read)], Some(left))?[0].any() {
            continue;
        }
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(STALL))?;
        let mut shown = [0; 2 * TOKEN_BYTES];
        if stream.read_exact(&mut shown).is_ok() && shown == token {
            return Ok(Arc::new(stream.into()));
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One thread per stream at this end: waits until all are ready, calls `start`, lets them go, gathers what they say.
fn both(
    sockets: &[Arc<OwnedFd>],
    cores: &Cores,
    receives: bool,
    work: impl Fn(&Arc<OwnedFd>, &mut dyn FnMut()) -> anyhow::Result<Side> + Sync,
    start: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Side>> {
    std::thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let mut threads = Vec::new();
        for (number, socket) in sockets.iter().enumerate() {
            let (tell, work) = (tell.clone(), &work);
            let (go, gone) = mpsc::channel::<()>();
            let name = format!("bench-{}-{number}", if receives { "recv" } else { "send" });
            let thread = std::thread::Builder::new().name(name).spawn_scoped(scope, move || {
                cores.pin(number, receives);
                let mut ready = || {
                    let _ = tell.send(());
                    let _ = gone.recv();
                };
                let side = work(socket, &mut ready)?;
                let info = sock::tcp_info(socket)?;
                Ok(Side { tcp: Tcp::of(&info, sock::get_congestion(socket)?), ..side })
            })?;
            threads.push((thread, go));
        }
        drop(tell);
        let all = sockets.iter().all(|_| told.recv().is_ok());
        let started = if all { start() } else { Ok(()) };
        // Dropping the other half of `gone` lets them go, too.
        let (threads, doors): (Vec<_>, Vec<_>) = threads.into_iter().unzip();
        if started.is_ok() {
            for door in &doors {
                let _ = door.send(());
            }
        } else {
            for socket in sockets {
                let _ = sock::shutdown(socket);
            }
        }
        drop(doors);
        let sides: Vec<anyhow::Result<Side>> =
            threads.into_iter().map(|thread| thread.join().expect("a bench thread does not panic")).collect();
        started?;
        sides.into_iter().collect()
    })
}

fn recv_end(order: &Order, socket: &Arc<OwnedFd>, ready: &mut dyn FnMut()) -> anyhow::Result<Side> {
    match order.way {
        Way::Bare { block_bytes } => Ok(bare::recv_bare(socket, block_bytes as usize, ready)?),
        Way::Ring { driver } => Ok(bare::recv_ring(socket, driver, ready)?),
        Way::Rail { driver, layer } => rail::recv(socket, (driver, layer, order.seal), ready),
        Way::Datagram { how, packet_bytes } => datagram::recv(socket, (how, packet_bytes), ready),
        Way::Packets(way) => packets::recv(socket, way, order.seal, ready),
    }
}

fn send_end(order: &Order, socket: &Arc<OwnedFd>, ready: &mut dyn FnMut()) -> anyhow::Result<Side> {
    let time = Duration::from_millis(order.send_ms);
    let side = match order.way {
        Way::Bare { block_bytes } => bare::send_bare(socket, block_bytes as usize, ready, time)?,
        Way::Ring { driver } => bare::send_ring(socket, driver, ready, time)?,
        Way::Rail { driver, layer } => rail::send(socket, (driver, layer, order.seal), ready, time)?,
        Way::Datagram { how, packet_bytes } => datagram::send(socket, (how, packet_bytes), ready, time)?,
        Way::Packets(way) => packets::send(socket, way, order.seal, ready, time)?,
    };
    sock::shutdown_send(socket)?;
    Ok(side)
}

/// The other end cannot or will not; the connection stands.
#[derive(Debug, thiserror::Error)]
#[error("the other end: {0}")]
pub struct Refused(String);

/// The sending end's hold on a listener.
#[derive(Debug)]
pub struct Client {
    addr: SocketAddr,
    /// Where else it listens: streams are dealt out over all of them.
    others: Vec<SocketAddr>,
    lines: Lines,
    congestion: String,
    cores: Cores,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn new(addr: SocketAddr, congestion: &str, cores: Cores) -> anyhow::Result<Client> {
        let control = sock::connect(addr, STALL).with_context(|| {
            format!("failed to reach {addr}: start `longhaul bench net --listen IP:PORT` on the other host")
        })?;
        // The listener's word comes when its receivers have ended: after the longest run there is.
        Ok(Client {
            addr,
            others: Vec::new(),
            lines: Lines::new(control, STALL)?,
            congestion: congestion.to_owned(),
            cores,
        })
    }

    /// Bytes of a UDP packet that fills one of the path's; on loopback, whose packets are like nobody else's, of an Ethernet's.
    ///
    /// # Errors
    /// The connection broke.
    pub fn packet_bytes(&self) -> anyhow::Result<u16> {
        let pmtu = match sock::tcp_info(&self.lines.to)?.pmtu {
            mtu @ 576..=9216 => mtu,
            _ => ETHERNET_MTU,
        };
        let heads = if self.addr.is_ipv4() { 28 } else { 48 };
        Ok((pmtu - heads) as u16)
    }

    /// This end's address, and the other's.
    ///
    /// # Errors
    /// The connection broke.
    pub fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.lines.to.local_addr()?, self.lines.to.peer_addr()?))
    }

    /// What machine the other end is.
    ///
    /// # Errors
    /// The connection broke, or it is a bench of another version.
    pub fn machine(&mut self) -> anyhow::Result<Machine> {
        self.lines.put(&Ask::Machine)?;
        match self.reply()? {
            Reply::Machine(machine) => Ok(machine),
            other => bail!("the other end answered out of turn: {other:?}"),
        }
    }

    /// Has the other end's interrupts arranged.
    ///
    /// # Errors
    /// It refused.
    pub fn arrange(&mut self, irqs: &[u16], first_rings: bool, workers: &[u16]) -> anyhow::Result<()> {
        self.lines.put(&Ask::Arrange { irqs: irqs.to_vec(), first_rings, workers: workers.to_vec() })?;
        match self.reply()? {
            Reply::Arranged => Ok(()),
            other => bail!("the other end answered out of turn: {other:?}"),
        }
    }

    /// More addresses of the same listener: the streams of the next runs are dealt out over all of them.
    pub fn also(&mut self, others: Vec<SocketAddr>) {
        self.others = others;
    }

    /// Where the threads of the next runs are held at this end.
    pub fn hold(&mut self, hold: Option<Hold>) {
        self.cores = self.cores.holding(hold);
    }

    /// One run: what the senders say, and what the receivers say.
    ///
    /// # Errors
    /// The other end refused or went away, or a connection broke.
    pub fn run(&mut self, order: &Order) -> anyhow::Result<(Vec<Side>, Vec<Side>)> {
        order.check()?;
        self.lines.put(&Ask::Run(order.clone()))?;
        let token = match self.reply()? {
            Reply::Token(token) => token,
            other => bail!("the other end answered out of turn: {other:?}"),
        };
        let sockets = (0..order.streams)
            .map(|number| self.connect(usize::from(number), &token))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let cores = self.cores.clone();
        let work = |socket: &Arc<OwnedFd>, ready: &mut dyn FnMut()| send_end(order, socket, ready);
        let senders = both(&sockets, &cores, false, work, || match self.reply()? {
            Reply::Go => Ok(()),
            other => bail!("the other end answered out of turn: {other:?}"),
        });
        let senders = match senders {
            Ok(senders) => senders,
            Err(error) if error.is::<Refused>() => return Err(error),
            // A stream broke. Its other end says why, and has then said all of this run: the next one may begin.
            Err(error) => return Err(self.reply().err().filter(|why| why.is::<Refused>()).unwrap_or(error)),
        };
        match self.reply()? {
            Reply::Sides(receivers) => Ok((senders, receivers)),
            other => bail!("the other end answered out of turn: {other:?}"),
        }
    }

    fn reply(&mut self) -> anyhow::Result<Reply> {
        match self.lines.get()?.context("the other end has closed")? {
            Reply::Refused(why) => Err(Refused(why).into()),
            reply => Ok(reply),
        }
    }

    fn connect(&self, number: usize, token: &str) -> anyhow::Result<Arc<OwnedFd>> {
        let addr = match number % (1 + self.others.len()) {
            0 => self.addr,
            other => self.others[other - 1],
        };
        let mut stream = sock::connect_from(addr, None, STALL, |fd| {
            // What a host's rules forbid stays as it is; the report says which one it became.
            let _ = sock::set_congestion(fd, &self.congestion);
            Ok(())
        })?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(STALL))?;
        stream.write_all(token.as_bytes())?;
        Ok(Arc::new(stream.into()))
    }
}
