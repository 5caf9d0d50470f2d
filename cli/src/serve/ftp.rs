//! `longhaul ftp`: a folder served to clients of FTP.
//!
//! For: whoever has a client of another protocol.
//! In and out: flags; a first page that says where to connect and how; transfers until a signal ends it.
//! Invariants: a password that was made is said once, and kept as a hash alone.
//! Absent on purpose: serving (`node::ftp`).

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use node::ftp::certificate::Certificate;
use node::ftp::data::Ports;
use node::ftp::users::{self, Asked, Users};
use node::ftp::{Network, Server, Settings};
use node::identity::Home;
use node::link::failure_of;
use sys::event::Event;
use text::exit::{Exit, Failure};
use text::units;

use crate::args::{DigestChoice, DurabilityChoice};

/// `longhaul ftp`.
#[derive(Debug, Clone, Subcommand)]
pub enum FtpCommand {
    /// Serve a folder to clients of FTP until a signal ends it
    ///
    /// TLS is demanded (AUTH TLS, PROT P), but from networks that --clear names. The first lines say where to connect, the certificate's fingerprint, and
    /// what to paste into curl and lftp.
    Serve(Box<FtpServeArguments>),
}

/// `longhaul ftp serve`.
#[derive(Debug, Clone, Args)]
pub struct FtpServeArguments {
    /// Serve only what is below this folder; links are not followed
    #[arg(long, value_name = "DIR")]
    pub root: PathBuf,

    /// Address and port to listen on
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:2121")]
    pub listen: SocketAddr,

    /// Let this user in, who may read and write, only read (:ro) or only write (:wo); one who is new gets a password, which is said once
    ///
    /// Several with commas, or the option again. Users are kept in LONGHAUL_HOME, as hashes of their passwords. Without any user, one named `user` is made.
    #[arg(long, value_name = "NAME[:ro|:wo]", value_delimiter = ',')]
    pub user: Vec<Asked>,

    /// Let anybody read, without a password
    #[arg(long)]
    pub anonymous: bool,

    /// Let clients of this network speak FTP in clear: 192.168.1.0/24, or one address; several with commas
    #[arg(long, value_name = "NET", value_delimiter = ',')]
    pub clear: Vec<Network>,

    /// Show this certificate (PEM, with its chain) instead of one that is made
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,

    /// The private key of --cert (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,

    /// Listen here too, with TLS from the first byte on (ftps://)
    #[arg(long, value_name = "IP:PORT")]
    pub implicit: Option<SocketAddr>,

    /// Ports of data connections, for firewalls: 50000-50100, or one for all of them: 50000 [default: any]
    #[arg(long, value_name = "FIRST-LAST|PORT")]
    pub passive_ports: Option<Ports>,

    /// The address that PASV says, where clients reach this host by another than its own (NAT); EPSV needs none
    #[arg(long, value_name = "IP")]
    pub public_address: Option<Ipv4Addr>,

    /// Does a data connection have to resume the TLS session of its control connection? `off` is for clients that cannot
    #[arg(long, value_name = "required|off", value_parser = ["required", "off"], default_value = "required")]
    pub session_reuse: String,

    /// Threads that wait for clients
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub ready: u16,

    /// Cap of all transfers together: 10Gbit, 800Mbit/s (bits) or 1.5GB/s (bytes) [default: no cap]
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate)]
    pub rate: Option<u64>,

    /// Memory for all transfers together
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, default_value = "256MiB")]
    pub memory: u64,

    /// Durability level that an upload must reach before it has its name
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = DurabilityChoice::Published)]
    pub durability: DurabilityChoice,

    /// Digest of uploads
    #[arg(long, value_name = "KIND", value_enum, default_value_t = DigestChoice::Blake3)]
    pub digest: DigestChoice,
}

/// Runs `longhaul ftp`.
///
/// # Errors
/// What the user is told.
pub fn run(command: FtpCommand) -> Result<Exit, Failure> {
    match command {
        FtpCommand::Serve(arguments) => serve(&arguments),
    }
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Failure {
    let what = what.into();
    move |error| Exit::of_io(&error).fail(what, error)
}

fn serve(arguments: &FtpServeArguments) -> Result<Exit, Failure> {
    super::more_descriptors();
    let signals =
        sys::signals::watch(&[sys::signals::SIGTERM, sys::signals::SIGINT]).map_err(io("watch for signals"))?;
    let home = Home::find().map_err(|error| failure_of("find LONGHAUL_HOME", &error.into()))?;
    let users = Users::at(&home.path(users::FILE)).map_err(io("read the list of users"))?;
    let (name, made) = with_users(&users, arguments)?;
    let addresses = addresses(arguments.listen.ip());
    let certificate = match (&arguments.cert, &arguments.key) {
        (Some(chain), Some(key)) => Certificate::of_files(chain, key),
        _ => Certificate::of_home(&home, &addresses),
    };
    let certificate = certificate.map_err(io("read the certificate"))?;
    let settings = settings(arguments);
    let place = format!("serve {} by FTP at {}", arguments.root.display(), arguments.listen);
    let server = Server::bind(settings, users, certificate.clone()).map_err(io(place))?;
    let port = server.address().map_err(io("ask the port"))?.port();
    confine(arguments, &home);
    let shown = addresses.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    print_page(&name, &made, SocketAddr::new(shown, port), &certificate, arguments);
    let stop = Event::new().map_err(io("start"))?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use std::os::fd::AsFd;
            let _ = sys::event::poll(&[(signals.as_fd(), sys::event::Interest::Read)], None);
            stop.signal();
        });
        server.run(&stop).map_err(io("accept clients"))
    })?;
    // Uploads that are under way stay as parts, which clients go on with.
    Ok(Exit::Whole)
}

fn settings(arguments: &FtpServeArguments) -> Settings {
    Settings {
        listen: arguments.listen,
        implicit: arguments.implicit,
        root: arguments.root.clone(),
        clear: arguments.clear.clone(),
        anonymous: arguments.anonymous,
        passive_ports: arguments.passive_ports,
        public_address: arguments.public_address,
        reuse_required: arguments.session_reuse == "required",
        ready: arguments.ready.into(),
        rate_bps: arguments.rate,
        memory_bytes: arguments.memory,
        how: node::ftp::How { durability: arguments.durability.into(), digest: arguments.digest.into() },
    }
}

/// The users who were asked for, and one if there is none: who is named in the first line, and the passwords that were made.
fn with_users(users: &Users, arguments: &FtpServeArguments) -> Result<(String, Vec<(String, String)>), Failure> {
    let mut asked = arguments.user.clone();
    let is_alone = asked.is_empty() && !arguments.anonymous;
    if is_alone && users.list().map_err(io("read the list of users"))?.is_empty() {
        asked.push("user".parse().map_err(|why: String| Exit::Usage.fail("make a user", why))?);
    }
    let mut made = Vec::new();
    for one in &asked {
        if let Some(password) = users.add(one).map_err(io(format!("add the user {}", one.name)))? {
            made.push((one.name.clone(), password));
        }
    }
    let first = asked.first().map(|one| one.name.clone());
    Ok((first.unwrap_or_else(|| if arguments.anonymous { "anonymous" } else { "USER" }.to_owned()), made))
}

/// Where clients reach this host: the address that was given, or those of its interfaces.
fn addresses(listen: IpAddr) -> Vec<IpAddr> {
    if !listen.is_unspecified() {
        return vec![listen];
    }
    let all = sys::host::interfaces().unwrap_or_default();
    let mut addresses: Vec<IpAddr> = all.iter().flat_map(|it| it.networks().map(|(address, _)| address)).collect();
    addresses.retain(|address| !address.is_loopback() && (address.is_ipv4() || listen.is_ipv6()));
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses.push(if listen.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { std::net::Ipv6Addr::LOCALHOST.into() });
    addresses
}

fn print_page(
    name: &str,
    made: &[(String, String)],
    address: SocketAddr,
    certificate: &Certificate,
    arguments: &FtpServeArguments,
) {
    println!("ftps://{name}@{address}/");
    println!("certificate SHA-256 {}", certificate.fingerprint);
    for (name, password) in made {
        println!("password of {name}, said once: {password}");
    }
    let pin = certificate.pin.as_ref().map_or_else(String::new, |pin| format!(" --pinnedpubkey sha256//{pin}"));
    println!("curl:         curl --ssl-reqd -k{pin} -u {name} ftp://{address}/");
    let host = match address.ip() {
        IpAddr::V6(it) => format!("[{it}]"),
        it => it.to_string(),
    };
    println!(
        "lftp:         lftp -e 'set ftp:ssl-force yes; set ssl:verify-certificate/{host} no' -u {name} -p {} {host}",
        address.port()
    );
    println!("file manager: ftp://{name}@{address}/ with \"explicit TLS\" (FileZilla, WinSCP: FTPES)");
    if !arguments.clear.is_empty() {
        println!("in clear, from networks that were named: ftp://{name}@{address}/");
    }
    let _ = std::io::stdout().flush();
}

/// Gives up what the process does not need; what this kernel cannot do is said. It is the second wall, `openat2` is the first.
fn confine(arguments: &FtpServeArguments, home: &Home) {
    let _ = sys::confine::no_new_privs();
    let (root, own) = (arguments.root.as_os_str().as_encoded_bytes(), home.path(""));
    let mut walls: Vec<(&[u8], bool)> = vec![(root, true), (own.as_os_str().as_encoded_bytes(), true)];
    walls.extend([&b"/proc"[..], b"/sys", b"/etc"].map(|needed| (needed, false)));
    match sys::confine::landlock(&walls, false) {
        Ok(wall) if wall.holds => {}
        Ok(wall) => eprintln!("not confined by Landlock: {}", wall.reason),
        Err(error) => eprintln!("not confined by Landlock: {error}"),
    }
}
