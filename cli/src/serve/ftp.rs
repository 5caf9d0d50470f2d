//! `longhaul ftp`: a folder served to clients of FTP.
//!
//! For: whoever has a client of another protocol.
//! In and out: flags; a first page that says where to connect and how; transfers until a signal ends it.
//! Invariants: a password that was made is said once, and kept as a hash alone.
//! Absent on purpose: serving (`node::ftp`).

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, FromArgMatches, Subcommand};
use node::ftp::certificate::Certificate;
use node::ftp::data::Ports;
use node::ftp::users::{self, Asked, Users};
use node::ftp::{Network, Server, Settings};
use node::identity::Home;
use node::link::failure_of;
use node::serve::settings::Settings as Daemon;
use node::serve::{Bound, Log};
use sys::event::Event;
use text::exit::{Exit, Failure};
use text::units;

use super::ftp_users::FtpUserCommand;
use crate::args::{DigestChoice, DurabilityChoice};

/// `longhaul ftp`.
#[derive(Debug, Clone, Subcommand)]
pub enum FtpCommand {
    /// Serve a folder to clients of FTP until a signal ends it
    ///
    /// TLS is demanded (AUTH TLS, PROT P), but from networks that --clear names. The first lines say where to connect, the certificate's fingerprint, and
    /// what to paste into curl and lftp.
    Serve(Box<FtpServeArguments>),
    /// Add, list and remove users who may log in by FTP
    #[command(subcommand)]
    User(Box<FtpUserCommand>),
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

    /// Port, of TCP and UDP, over which other Longhauls move files once they have logged in here (LHDATA); `off`: they speak FTP as everybody else does
    /// [default: any that is free]
    #[arg(long, value_name = "PORT|off")]
    pub lhdata: Option<LhdataPort>,

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

/// `--lhdata`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LhdataPort {
    /// Plain FTP alone.
    Off,
    /// This one.
    At(u16),
}

impl std::str::FromStr for LhdataPort {
    type Err = String;

    fn from_str(text: &str) -> Result<LhdataPort, String> {
        match text {
            "off" => Ok(LhdataPort::Off),
            port => port.parse().map(LhdataPort::At).map_err(|_| format!("'{port}' is no port, nor off")),
        }
    }
}

/// Runs `longhaul ftp`.
///
/// # Errors
/// What the user is told.
pub fn run(command: FtpCommand) -> Result<Exit, Failure> {
    match command {
        FtpCommand::Serve(arguments) => serve(&arguments),
        FtpCommand::User(command) => super::ftp_users::run(&command),
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
    let Opened { server, page, .. } = open(arguments, &home)?;
    let bound = if arguments.lhdata == Some(LhdataPort::Off) { None } else { Some(bind_daemon(arguments, &home)) };
    confine(arguments, &home);
    let daemon = bound.and_then(|bound| {
        let started = bound.and_then(|bound| bound.start(Log::to(|line| eprintln!("{line}"))));
        started.inspect_err(|why| eprintln!("other Longhauls speak plain FTP here: {why}")).ok()
    });
    if let Some(daemon) = &daemon {
        server.with_daemon(daemon.upgrade()?);
    }
    print!("{page}");
    let _ = std::io::stdout().flush();
    let stop = Event::new().map_err(io("start"))?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use std::os::fd::AsFd;
            let _ = sys::event::poll(&[(signals.as_fd(), sys::event::Interest::Read)], None);
            stop.signal();
        });
        let control = daemon.as_ref().map(node::serve::Server::control);
        if let Some(daemon) = daemon {
            scope.spawn(|| daemon.run().inspect_err(|why| eprintln!("no rails for other Longhauls any more: {why}")));
        }
        let ended = server.run(&stop).map_err(io("accept clients"));
        control.iter().for_each(node::serve::Control::stop);
        ended
    })?;
    // Uploads that are under way stay as parts, which clients go on with.
    Ok(Exit::Whole)
}

/// The daemon to which clients that are Longhauls are given. It lets nobody in who did not log in here.
fn bind_daemon(arguments: &FtpServeArguments, home: &Home) -> Result<Bound, Failure> {
    let port = if let Some(LhdataPort::At(port)) = arguments.lhdata { port } else { 0 };
    let settings = Daemon {
        listen: SocketAddr::new(arguments.listen.ip(), port),
        memory_bytes: arguments.memory,
        rate_bps: arguments.rate,
        logins_only: true,
        ..Daemon::of(&arguments.root)
    };
    Bound::bind(settings, home, &[])
}

/// A door that is bound, and what is said of it.
#[derive(Debug)]
pub struct Opened {
    /// The door.
    pub server: Server,
    /// Where to connect, and how.
    pub page: String,
    /// Other Longhauls go on with sessions of the daemon's.
    pub has_lhdata: bool,
}

/// Binds the door. The users who were named and are new are made.
///
/// # Errors
/// What the user is told.
pub fn open(arguments: &FtpServeArguments, home: &Home) -> Result<Opened, Failure> {
    let users = Users::at(&home.path(users::FILE)).map_err(io("read the list of users"))?;
    let (name, made) = with_users(&users, arguments)?;
    let addresses = addresses(arguments.listen.ip());
    let certificate = match (&arguments.cert, &arguments.key) {
        (Some(chain), Some(key)) => Certificate::of_files(chain, key),
        _ => Certificate::of_home(home, &addresses),
    };
    let certificate = certificate.map_err(io("read the certificate"))?;
    let settings = settings(arguments);
    let place = format!("serve {} by FTP at {}", arguments.root.display(), arguments.listen);
    let server = Server::bind(settings, users, certificate.clone()).map_err(io(place))?;
    let port = server.address().map_err(io("ask the port"))?.port();
    let shown = addresses.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let page = page_of(&name, &made, SocketAddr::new(shown, port), &certificate, arguments);
    Ok(Opened { server, page, has_lhdata: arguments.lhdata != Some(LhdataPort::Off) })
}

/// The options that the `[ftp]` table of the daemon's config names, as the command line would have them: each key is an option without its dashes.
///
/// # Errors
/// Why they cannot be understood.
pub fn of_table(table: &toml::Table, root: &std::path::Path) -> Result<FtpServeArguments, String> {
    let mut words = vec!["ftp".into(), "--root".into(), root.as_os_str().to_owned()];
    for (key, value) in table {
        let flag = format!("--{}", key.replace('_', "-"));
        if flag == "--lhdata" && value.as_str() != Some("off") {
            return Err("lhdata: rails come to the daemon's own port; there is only lhdata = \"off\"".to_owned());
        }
        if flag == "--root" {
            return Err("root: by FTP the daemon's root is served; a user may have one below it".to_owned());
        }
        let values = match value {
            toml::Value::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        for value in values {
            match value {
                toml::Value::Boolean(true) => words.push(flag.clone().into()),
                toml::Value::Boolean(false) => {}
                toml::Value::String(text) => words.push(format!("{flag}={text}").into()),
                toml::Value::Integer(number) => words.push(format!("{flag}={number}").into()),
                _ => return Err(format!("{key}: write a text in quotes, a number, true or false")),
            }
        }
    }
    let matches = FtpServeArguments::augment_args(clap::Command::new("ftp")).try_get_matches_from(words);
    matches.and_then(|matches| FtpServeArguments::from_arg_matches(&matches)).map_err(|error| {
        let text = error.to_string();
        text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
    })
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

fn page_of(
    name: &str,
    made: &[(String, String)],
    address: SocketAddr,
    certificate: &Certificate,
    arguments: &FtpServeArguments,
) -> String {
    let mut page = format!("ftps://{name}@{address}/\ncertificate SHA-256 {}\n", certificate.fingerprint);
    for (name, password) in made {
        let _ = writeln!(page, "password of {name}, said once: {password}");
    }
    let pin = certificate.pin.as_ref().map_or_else(String::new, |pin| format!(" --pinnedpubkey sha256//{pin}"));
    // lftp's without brackets, which it takes for a pattern of names.
    let _ = writeln!(
        page,
        "curl:         curl --ssl-reqd -k{pin} -u {name} ftp://{address}/\n\
         lftp:         lftp -e 'set ftp:ssl-force yes; set ssl:verify-certificate/{host} no' -u {name} -p {port} {host}\n\
         file manager: ftp://{name}@{address}/ with \"explicit TLS\" (FileZilla, WinSCP: FTPES)",
        host = address.ip(),
        port = address.port()
    );
    if !arguments.clear.is_empty() {
        let _ = writeln!(page, "in clear, from networks that were named: ftp://{name}@{address}/");
    }
    page
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_the_config_is_read_as_the_command_line_is() {
        let read = |text: &str| of_table(&text.parse().unwrap(), "/srv".as_ref());
        let all = read(
            "listen = \"127.0.0.1:21\"\nuser = [\"ada\", \"bob:ro\"]\nanonymous = true\nclear = \"10.0.0.0/8\"\npassive_ports = \"50000\"\nready = 3\nrate = \"1Gbit\"\nsession_reuse = \"off\"",
        )
        .unwrap();
        assert_eq!((all.root, all.listen), ("/srv".into(), "127.0.0.1:21".parse().unwrap()));
        assert_eq!((all.user.len(), all.clear.len(), all.ready), (2, 1, 3));
        assert_eq!((all.passive_ports, all.rate), (Some(Ports::One(50_000)), Some(1_000_000_000)));
        assert!(all.anonymous && all.session_reuse == "off");
        assert!(!read("anonymous = false").unwrap().anonymous);
        for (text, part) in [
            ("root = \"/\"", "daemon's root"),
            ("nonsense = 1", "--nonsense"),
            ("rate = \"fast\"", "--rate"),
            ("ready = 1.5", "ready: write"),
            ("lhdata = 5750", "daemon's own port"),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
