//! FTP for everybody else: a door of its own to a folder, by explicit TLS.
//!
//! For: clients that people have (curl, lftp, file managers, cameras), beside the sessions of ours.
//! In and out: settings; files of one root pulled and pushed until it is stopped.
//! Invariants: one thread for each client, from a small pool that is ready; strangers are few and have little time; memory of all transfers was granted before.
//! Absent on purpose: the command line; the daemon's jobs (`serve`).
//!
//! The modules stand in the order in which a client meets them.

pub mod certificate; // what it is shown
pub mod control; // its control connection
pub mod users; // who it is
pub mod tries; // how often it was not
pub mod session; // what its machine decides, done
pub mod files; // names and facts
pub mod digests; // what files are compared by
pub mod data; // the data connection
pub mod tls; // and its handshake
mod transfer; // files over it
mod blocks; // and over several of them
pub mod upgrade; // the session of ours inside the same TLS
pub mod client; // the other side: copies from and to servers of others

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use engine::rail::plain::bufs::Bufs;
pub use engine::tree::sink::open_ended::How;
use engine::worker::bound::Bound;
use sys::event::{Event, Interest};
use sys::fs::Dir;

use certificate::Certificate;
use data::Ports;
use data::one_port::OnePort;
use digests::known::Known;
use session::Session;
use tries::Tries;
use users::Users;

use crate::serve::Upgrade;

/// Where it listens by default: 21 is the system's.
pub const PORT: u16 = 2121;
/// Threads that wait for clients, by default.
pub const READY: usize = 8;
/// Memory of all transfers, by default.
pub const MEMORY_BYTES: u64 = 256 << 20;
/// Clients at once, and of these from one address.
const SESSIONS_MAX: usize = 1024;
const SESSIONS_OF_ONE_MAX: usize = 256;
/// Clients that have not logged in, at once: each has a thread for a minute at most.
const STRANGERS_MAX: usize = 256;
/// No descriptors: others must end first.
const OUT_OF_FILES_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Addresses that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let bad = || format!("'{text}' is no network: 192.168.1.0/24, fd00::/8 or one address");
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| bad()))?;
        if bits > most { Err(bad()) } else { Ok(Network { address, bits }) }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.address, self.bits)
    }
}

impl Network {
    /// Is this address in it?
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        let wide = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
            IpAddr::V6(address) => u128::from(address),
        };
        let address = address.to_canonical();
        let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
        address.is_ipv4() == self.address.is_ipv4() && (wide(address) ^ wide(self.address)) & mask == 0
    }
}

/// What the door runs with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// And where for TLS from the first byte on.
    pub implicit: Option<SocketAddr>,
    /// It serves what is below.
    pub root: PathBuf,
    /// Who may come in clear.
    pub clear: Vec<Network>,
    /// Anybody may read.
    pub anonymous: bool,
    /// Ports of data connections; `None`: any.
    pub passive_ports: Option<Ports>,
    /// What PASV says instead of the address that the client reached.
    pub public_address: Option<Ipv4Addr>,
    /// A data connection has to resume its control connection's TLS session.
    pub reuse_required: bool,
    /// Threads that wait for clients.
    pub ready: usize,
    /// Of all transfers together, bit/s.
    pub rate_bps: Option<u64>,
    /// Of all transfers together.
    pub memory_bytes: u64,
    /// How uploads become files.
    pub how: How,
}

/// What sessions share.
#[derive(Debug)]
pub struct Door {
    pub(crate) settings: Settings,
    pub(crate) root: Arc<Dir>,
    pub(crate) users: Users,
    pub(crate) certificate: Certificate,
    pub(crate) bufs: Bufs,
    pub(crate) bound: Arc<Bound>,
    pub(crate) tries: Tries,
    pub(crate) one_port: Option<Arc<OnePort>>,
    pub(crate) upgrade: OnceLock<Upgrade>,
    pub(crate) known: Known,
    crowd: Mutex<Crowd>,
    idle: AtomicUsize,
}

/// Who is here.
#[derive(Debug, Default)]
struct Crowd {
    all: usize,
    strangers: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// A bound door.
#[derive(Debug)]
pub struct Server {
    door: Arc<Door>,
    listener: TcpListener,
    implicit: Option<TcpListener>,
}

/// A client's place; it is given back when this goes.
#[derive(Debug)]
struct Place {
    door: Arc<Door>,
    address: IpAddr,
    is_stranger: bool,
}

impl Place {
    fn take(door: &Arc<Door>, address: IpAddr) -> Option<Place> {
        let mut crowd = door.crowd.lock().unwrap_or_else(PoisonError::into_inner);
        let of_it = crowd.by_address.get(&address).copied().unwrap_or(0);
        if crowd.all >= SESSIONS_MAX || crowd.strangers >= STRANGERS_MAX || of_it >= SESSIONS_OF_ONE_MAX {
            return None;
        }
        crowd.all += 1;
        crowd.strangers += 1;
        crowd.by_address.insert(address, of_it + 1);
        Some(Place { door: Arc::clone(door), address, is_stranger: true })
    }

    fn let_in(&mut self) {
        if std::mem::take(&mut self.is_stranger) {
            self.door.crowd.lock().unwrap_or_else(PoisonError::into_inner).strangers -= 1;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.let_in();
        let mut crowd = self.door.crowd.lock().unwrap_or_else(PoisonError::into_inner);
        crowd.all -= 1;
        if let Some(of_it) = crowd.by_address.get_mut(&self.address) {
            *of_it -= 1;
            if *of_it == 0 {
                crowd.by_address.remove(&self.address);
            }
        }
    }
}

type Client = (TcpStream, Place, bool);

impl Server {
    /// Binds the ports and opens the root.
    ///
    /// # Errors
    /// The kernel's.
    pub fn bind(settings: Settings, users: Users, certificate: Certificate) -> io::Result<Server> {
        let root = Arc::new(Dir::open(settings.root.as_os_str().as_encoded_bytes())?);
        let listener = sys::sock::listen(settings.listen)?;
        let implicit = settings.implicit.map(sys::sock::listen).transpose()?;
        for listener in std::iter::once(&listener).chain(&implicit) {
            listener.set_nonblocking(true)?;
        }
        let bufs = Bufs::new(settings.memory_bytes)?;
        let bound = Arc::new(Bound::new(settings.rate_bps.unwrap_or(0).div_ceil(8), None));
        let one_port = match settings.passive_ports {
            Some(Ports::One(port)) => Some(Arc::new(OnePort::bind(SocketAddr::new(settings.listen.ip(), port))?)),
            _ => None,
        };
        let (crowd, idle, tries) = (Mutex::default(), AtomicUsize::new(0), Tries::default());
        Ok(Server {
            door: Arc::new(Door {
                settings,
                root,
                users,
                certificate,
                bufs,
                bound,
                tries,
                one_port,
                upgrade: OnceLock::new(),
                known: Known::default(),
                crowd,
                idle,
            }),
            listener,
            implicit,
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The kernel's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Other Longhauls go on with a session of this daemon's (LHDATA). It has to serve the same root.
    pub fn with_daemon(&self, upgrade: Upgrade) {
        let _ = self.door.upgrade.set(upgrade);
    }

    /// Serves until `stop` is signalled. Clients that are here then are on threads of their own, and end with the process.
    ///
    /// # Errors
    /// The kernel's.
    pub fn run(self, stop: &Event) -> io::Result<()> {
        let (to, from) = channel::<Client>();
        let from = Arc::new(Mutex::new(from));
        for _ in 0..self.door.settings.ready {
            let (door, from) = (Arc::clone(&self.door), Arc::clone(&from));
            self.door.idle.fetch_add(1, Ordering::SeqCst);
            std::thread::Builder::new().name("ftp".to_owned()).spawn(move || wait(&door, &from))?;
        }
        if let Some(one) = &self.door.one_port {
            let (one, stop) = (Arc::clone(one), stop.clone());
            std::thread::Builder::new().name("ftp-data".to_owned()).spawn(move || one.run(&stop))?;
        }
        loop {
            let mut fds = vec![(stop.as_fd(), Interest::Read), (self.listener.as_fd(), Interest::Read)];
            fds.extend(self.implicit.iter().map(|it| (it.as_fd(), Interest::Read)));
            if sys::event::poll(&fds, None)?[0].any() {
                return Ok(());
            }
            for (listener, implicit) in
                std::iter::once((&self.listener, false)).chain(self.implicit.iter().map(|it| (it, true)))
            {
                self.take_in(listener, implicit, &to);
            }
        }
    }

    fn take_in(&self, listener: &TcpListener, implicit: bool, to: &Sender<Client>) {
        loop {
            match listener.accept() {
                Ok((stream, from)) => {
                    let Some(place) = Place::take(&self.door, from.ip().to_canonical()) else {
                        // Into an empty send buffer it does not block.
                        if !implicit {
                            let _ = io::Write::write_all(&mut &stream, b"421 Too many clients: try again later.\r\n");
                        }
                        continue;
                    };
                    self.hand_over((stream, place, implicit), to);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.raw_os_error(), Some(23 | 24)) => {
                    std::thread::sleep(OUT_OF_FILES_PAUSE);
                    return;
                }
                // Of one connection, which is gone.
                Err(_) => {}
            }
        }
    }

    /// To a thread that waits, or to a new one.
    fn hand_over(&self, client: Client, to: &Sender<Client>) {
        let took = self.door.idle.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |idle| idle.checked_sub(1));
        if took.is_ok() {
            let _ = to.send(client);
            return;
        }
        let door = Arc::clone(&self.door);
        // Without a thread the connection is dropped with the closure, and the client tries again.
        let _ = std::thread::Builder::new().name("ftp".to_owned()).spawn(move || serve(&door, client));
    }
}

/// A thread that is ready: one client after another.
fn wait(door: &Arc<Door>, from: &Mutex<Receiver<Client>>) {
    loop {
        let next = from.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(client) = next else { return };
        serve(door, client);
        door.idle.fetch_add(1, Ordering::SeqCst);
    }
}

fn serve(door: &Door, (stream, mut place, implicit): Client) {
    let session = || {
        if let Ok(session) = Session::new(door, stream, implicit) {
            session.run(|| place.let_in());
        }
    };
    // A mistake of ours ends one client's session, and says where on standard error.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(session));
}

#[cfg(test)]
mod tests; // whole sessions over real sockets
