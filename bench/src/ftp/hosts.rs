//! Two hosts with a delay between them, and the servers on one of them.
//!
//! For: `bench ftp`, once for each delay. In and out: a delay, an MTU → hosts; a kind of server and folders → one that answers.
//! Invariants: without a delay the hosts have a wire of the kernel's, so that no emulator is the limit, else a link of the lab's; all servers are on
//! host b, see the same folder, run with one niceness and end with the hosts; TCP keeps nothing of one run for the next (tcp_no_metrics_save).
//! Absent on purpose: clients (turn.rs), which server belongs to which row (rows.rs).

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use lab::guard::Guard;
use lab::hosts::{Lab, Making, Side, address4};
use lab::pair::{self, Pair};
use lab::settings::LinkSettings;

use crate::race::Running;

/// A server that does not answer by then does not come.
const START: Duration = Duration::from_secs(20);
/// Packets due within so much are handed over together: half of the shortest delay that is asked for by default.
const GRANULE_NS: u64 = 5_000;

/// Both hosts.
#[derive(Debug)]
pub enum Hosts {
    Wire(Pair),
    Link(Lab, Guard),
}

impl Hosts {
    /// Hosts with this delay one way. Errors: what the system refused.
    pub fn make(delay: Duration, mtu: u32) -> anyhow::Result<Hosts> {
        let hosts = if delay.is_zero() {
            Hosts::Wire(Pair::make()?)
        } else {
            let mut settings = LinkSettings { mtu, ..LinkSettings::default() };
            settings
                .wires
                .iter_mut()
                .for_each(|wire| wire.delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX));
            let making = |tcp| Making { seed: 1, memory_bytes: None, granule_ns: GRANULE_NS, tcp };
            // As on the wire; a kernel that does not let hosts have it keeps its own.
            let lab =
                Lab::make(&[settings], making(Some("cubic"))).or_else(|_| Lab::make(&[settings], making(None)))?;
            let guard = Guard::start(&lab, &[])?;
            Hosts::Link(lab, guard)
        };
        for side in Side::BOTH {
            hosts.inside(side, || {
                let _ = fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1");
                Ok(())
            })?;
        }
        Ok(hosts)
    }

    /// Of host b, where the servers are.
    pub fn address(&self) -> Ipv4Addr {
        match self {
            Hosts::Wire(_) => pair::address(Side::B),
            Hosts::Link(..) => address4(0, Side::B),
        }
    }

    /// A command that begins there.
    pub fn command(&self, side: Side, program: &str) -> anyhow::Result<Command> {
        match self {
            Hosts::Wire(pair) => pair.command(side, program),
            Hosts::Link(lab, _) => lab.command(side, program),
        }
    }

    pub fn inside<T: Send>(&self, side: Side, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        match self {
            Hosts::Wire(pair) => pair.inside(side, work),
            Hosts::Link(lab, _) => sys::netns::inside(&lab.hosts[side.index()], work),
        }
    }

    /// TCP's congestion controller there.
    pub fn congestion(&self) -> String {
        self.inside(Side::B, || fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control"))
            .unwrap_or_default()
            .trim()
            .to_owned()
    }

    /// Ends them.
    pub fn end(self) {
        if let Hosts::Link(mut lab, guard) = self {
            lab.stop();
            guard.finish();
        }
    }
}

/// What serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Vsftpd,
    VsftpdTls,
    Proftpd,
    ProftpdTls,
    Gridftp,
    /// `longhaul ftp serve`: in clear for the clients' network, and by TLS.
    Ours,
    /// `longhaul serve`.
    Daemon,
    /// `longhaul bench net --listen`.
    Memory,
}

impl Kind {
    /// Its program, and where it listens.
    pub fn of(self) -> (&'static str, u16) {
        match self {
            Kind::Vsftpd => ("vsftpd", 2201),
            Kind::VsftpdTls => ("vsftpd", 2202),
            Kind::Proftpd => ("proftpd", 2203),
            Kind::ProftpdTls => ("proftpd", 2205),
            Kind::Ours => ("", 2204),
            Kind::Gridftp => ("globus-gridftp-server", 2811),
            Kind::Daemon => ("", 5740),
            Kind::Memory => ("", 7440),
        }
    }
}

/// Folders of a run: `root/data` is served, into `root/in` clients write; `src` holds what is put, `dst` is where it comes to.
#[derive(Debug)]
pub struct Folders {
    pub exe: PathBuf,
    pub top: PathBuf,
}

impl Folders {
    pub fn at(&self, name: &str) -> PathBuf {
        self.top.join(name)
    }

    /// Makes them. Errors: what the file system says.
    pub fn make(&self) -> io::Result<()> {
        for name in ["root/data", "root/in", "dst", "empty", "ours", "daemon", "client"] {
            fs::create_dir_all(self.at(name))?;
        }
        // Others' servers run as somebody else; vsftpd refuses a root into which that one may write.
        for (name, mode) in [("", 0o755), ("root", 0o755), ("root/data", 0o755), ("root/in", 0o777)] {
            fs::set_permissions(self.at(name), fs::Permissions::from_mode(mode))?;
        }
        for name in ["ours", "daemon", "client"] {
            fs::set_permissions(self.at(name), fs::Permissions::from_mode(0o700))?;
        }
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        fs::write(self.at(name), text)?;
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(0o600))
    }
}

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    pub kind: Kind,
    running: Running,
    group: Option<PathBuf>,
    /// What it said of itself, for clients: name → value.
    pub said: Vec<(&'static str, String)>,
}

impl Server {
    /// Starts it and waits until it answers. Errors: it does not.
    pub fn start(kind: Kind, hosts: &Hosts, folders: &Folders) -> anyhow::Result<Server> {
        let (address, port) = (hosts.address(), kind.of().1);
        let words = words(kind, address, folders)?;
        let group = group(port);
        let words = if kind == Kind::Gridftp { among_names(words, folders)? } else { words };
        // The shell's own number goes into the group, and the program then has it.
        let mut command = hosts.command(Side::B, "sh")?;
        let line = if group.is_some() { "echo $$ >\"$0\"; exec \"$@\"" } else { "exec \"$@\"" };
        command.args(["-c", line]);
        command.arg(group.as_ref().map_or("sh".into(), |group| group.join("cgroup.procs"))).args(&words);
        command.env("LONGHAUL_HOME", folders.at(if kind == Kind::Daemon { "daemon" } else { "ours" }));
        command.env("GLOBUS_HOSTNAME", address.to_string());
        let running = Running::start(&mut command, &folders.at(&format!("server-{port}")))?;
        let mut server = Server { kind, running, group, said: Vec::new() };
        let began = Instant::now();
        // The bench's listener takes one client at a time, and counts each that comes.
        let dial = || TcpStream::connect_timeout(&SocketAddr::from((address, port)), Duration::from_secs(1)).map(drop);
        while kind == Kind::Memory
            && !server.running.said().contains("listen")
            && began.elapsed() < Duration::from_secs(1)
            || kind != Kind::Memory && hosts.inside(Side::B, dial).is_err()
        {
            anyhow::ensure!(began.elapsed() < START, "{} does not answer: {}", words[0], server.running.last_words());
            std::thread::sleep(Duration::from_millis(20));
        }
        server.listen(folders)?;
        Ok(server)
    }

    /// A client's command on host a: GridFTP's sees names of the hosts, as its server does.
    pub fn client(&self, hosts: &Hosts, program: &str) -> anyhow::Result<Command> {
        let mut command = hosts.command(Side::A, program)?;
        if self.kind == Kind::Gridftp {
            let net = match hosts {
                Hosts::Wire(pair) => sys::netns::net_of(pair.holder(Side::A))?,
                Hosts::Link(lab, _) => lab.hosts[Side::A.index()].try_clone()?,
            };
            sys::netns::join(&mut command, net, Some(sys::netns::mounts_of(self.running.id())?));
        }
        Ok(command)
    }

    /// What ours prints when it is ready.
    fn listen(&mut self, folders: &Folders) -> anyhow::Result<()> {
        let began = Instant::now();
        let last = match self.kind {
            Kind::Ours => "file manager",
            Kind::Daemon => "longhaul://",
            Kind::VsftpdTls | Kind::ProftpdTls => {
                let words = "x509 -noout -fingerprint -sha256 -in".split(' ');
                let output = Command::new("openssl").args(words).arg(folders.at("cert.pem")).output()?;
                let said = String::from_utf8_lossy(&output.stdout).into_owned();
                self.said.push(("vfp", said.split_once('=').map_or("", |it| it.1).trim().to_owned()));
                return Ok(());
            }
            _ => return Ok(()),
        };
        while !self.running.said().contains(last) && began.elapsed() < START {
            std::thread::sleep(Duration::from_millis(20));
        }
        for line in self.running.said().lines() {
            if let Some((_, word)) = line.split_once("said once: ") {
                folders.write("password", &format!("{word}\n"))?;
            } else if let Some(rest) = line.strip_prefix("certificate SHA-256 ") {
                self.said.push(("fp", rest.split_whitespace().next().unwrap_or_default().to_owned()));
            } else if let Some((ticket, _)) = line.strip_prefix("longhaul://").and_then(|rest| rest.split_once('@')) {
                self.said.push(("ticket", ticket.to_owned()));
            }
        }
        if self.kind == Kind::Ours {
            let word = fs::read_to_string(folders.at("password")).unwrap_or_default();
            self.said.push(("password", word.trim().to_owned()));
        }
        Ok(())
    }

    /// Processor time of it and its children so far, seconds.
    pub fn cpu_s(&self) -> f64 {
        let usage = self.group.as_ref().and_then(|group| fs::read_to_string(group.join("cpu.stat")).ok());
        let usage =
            usage.as_deref().and_then(|text| text.strip_prefix("usage_usec ")?.lines().next()?.parse::<f64>().ok());
        usage.map_or_else(|| ticks_s(self.running.id()), |us| us / 1e6)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.running.end();
        if let Some(group) = &self.group {
            // Children of it may take a moment to end; what stays is an empty group.
            for _ in 0..20 {
                if fs::remove_dir(group).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// A control group of its own (cgroup v2), where one can be made and counts: ticks of 10 ms are coarse.
fn group(port: u16) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let place = mounts
        .lines()
        .filter(|line| line.split(' ').nth(2) == Some("cgroup2"))
        .find_map(|line| line.split(' ').nth(1))?;
    let group = Path::new(place).join(format!("longhaul-bench-{}-{port}", std::process::id()));
    fs::create_dir(&group).ok()?;
    let counts = fs::read_to_string(group.join("cpu.stat")).is_ok_and(|text| text.starts_with("usage_usec"));
    if counts { Some(group) } else { fs::remove_dir(&group).map(|()| None).unwrap_or(None) }
}

/// Time of a process, all of its threads and the children that it has waited for, in seconds; it may have ended, if nobody has waited for it
/// (proc(5), fields 14 to 17 of stat, in USER_HZ of 100).
pub fn ticks_s(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    ticks(&stat) as f64 / 100.0
}

fn ticks(stat: &str) -> u64 {
    let rest = stat.rsplit_once(')').map_or("", |it| it.1);
    rest.split_whitespace().skip(11).take(4).filter_map(|word| word.parse::<u64>().ok()).sum()
}

/// The command where /etc/hosts has the hosts' names: Globus asks for the name of each address and gives up where no server of names answers.
fn among_names(words: Vec<String>, folders: &Folders) -> anyhow::Result<Vec<String>> {
    let mut text = "127.0.0.1 localhost\n".to_owned();
    for side in Side::BOTH {
        text += &format!("{0} {2}\n{1} {2}\n", pair::address(side), address4(0, side), side.word());
    }
    fs::write(folders.at("names"), text)?;
    let line = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
    let before = ["unshare", "-m", "sh", "-c", line, &folders.at("names").display().to_string()].map(str::to_owned);
    Ok(before.into_iter().chain(words).collect())
}

/// Does our server of FTP, in its features, name LHDATA with this transport?
pub fn has_lhdata(hosts: &Hosts, transport: &str) -> bool {
    let at = SocketAddr::from((hosts.address(), Kind::Ours.of().1));
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"FEAT\r\nQUIT\r\n")?;
        let lines = BufReader::new(stream).lines().take(100).map_while(Result::ok);
        Ok(lines.into_iter().any(|line| line.trim().starts_with("LHDATA") && line.contains(transport)))
    };
    hosts.inside(Side::A, ask).unwrap_or(false)
}

/// The command of a server, after what it wants of files.
fn words(kind: Kind, address: Ipv4Addr, folders: &Folders) -> anyhow::Result<Vec<String>> {
    let port = kind.of().1;
    let (top, root, exe) = (folders.top.display(), folders.at("root"), folders.exe.display());
    let root = root.display();
    let conf = folders.at(&format!("{port}.conf"));
    let conf = conf.display();
    let line = match kind {
        Kind::Vsftpd | Kind::VsftpdTls => {
            let user = someone().context("no user but root has a home, and vsftpd wants one")?;
            let mut text = format!(
                "listen=YES\nlisten_ipv6=NO\nbackground=NO\nlisten_port={port}\nanonymous_enable=YES\nlocal_enable=NO\nno_anon_password=YES\n\
                 ftp_username={user}\nnopriv_user=nobody\nanon_root={root}\nwrite_enable=YES\nanon_upload_enable=YES\nanon_other_write_enable=YES\n\
                 anon_mkdir_write_enable=YES\nanon_umask=022\nanon_world_readable_only=NO\nsecure_chroot_dir={top}/empty\nuse_sendfile=YES\n\
                 xferlog_enable=NO\nseccomp_sandbox=NO\nmdtm_write=YES\n"
            );
            if kind == Kind::VsftpdTls {
                certificate(folders)?;
                text += &format!(
                    "ssl_enable=YES\nallow_anon_ssl=YES\nforce_anon_data_ssl=YES\nforce_anon_logins_ssl=YES\nrsa_cert_file={top}/cert.pem\n\
                     rsa_private_key_file={top}/cert.pem\nssl_ciphers=HIGH\n"
                );
            }
            folders.write(&format!("{port}.conf"), &text)?;
            format!("vsftpd {conf}")
        }
        Kind::Proftpd | Kind::ProftpdTls => {
            let mut text = format!(
                "ServerType standalone\nPort {port}\nDefaultAddress {address}\nUser nobody\nGroup nogroup\nScoreboardFile {top}/scoreboard-{port}\n\
                 PidFile {top}/proftpd-{port}.pid\nUseReverseDNS off\nUseSendfile on\nWtmpLog off\nTransferLog none\nSystemLog none\nAuthOrder mod_auth_unix.c\n\
                 RequireValidShell off\nUseFtpUsers off\nMaxInstances none\n<IfModule mod_delay.c>\nDelayEngine off\n</IfModule>\n<Anonymous {root}>\nUser nobody\n\
                 Group nogroup\nUserAlias anonymous nobody\nRequireValidShell off\nAllowOverwrite on\nAllowRetrieveRestart on\n</Anonymous>\n"
            );
            if kind == Kind::ProftpdTls {
                certificate(folders)?;
                // Packaged with modules of their own or linked into one program. Data connections have to resume the session, as they have with
                // vsftpd.
                text += &format!(
                    "<IfModule !mod_tls.c>\nLoadModule mod_tls.c\n</IfModule>\nTLSEngine on\nTLSRequired on\nTLSLog none\n\
                     TLSECCertificateFile {top}/cert.pem\nTLSECCertificateKeyFile {top}/key.pem\n"
                );
            }
            folders.write(&format!("{port}.conf"), &text)?;
            format!("proftpd -n -q -c {conf}")
        }
        Kind::Gridftp => format!(
            "globus-gridftp-server -control-interface {address} -data-interface {address} -aa -anonymous-user nobody -p {port} -no-detach"
        ),
        Kind::Ours => {
            format!("{exe} ftp serve --root {root} --user bench --listen {address}:{port} --clear {address}/24")
        }
        Kind::Daemon => format!("{exe} serve --ticket --root {root} --listen {address}:{port}"),
        Kind::Memory => format!("{exe} bench net --listen {address}:{port}"),
    };
    Ok(line.split(' ').map(str::to_owned).collect())
}

/// What others' servers show by TLS: one certificate of P-256 for a day.
fn certificate(folders: &Folders) -> anyhow::Result<()> {
    if folders.at("cert.pem").exists() {
        return Ok(());
    }
    let (key, cert) = (folders.at("key.pem"), folders.at("cert.pem"));
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=bench";
    let output =
        Command::new("openssl").args(words.split(' ')).arg("-keyout").arg(&key).arg("-out").arg(&cert).output()?;
    anyhow::ensure!(output.status.success(), "openssl makes no certificate");
    let both = fs::read_to_string(&cert)? + &fs::read_to_string(&key)?;
    Ok(folders.write("cert.pem", &both)?)
}

/// A user who is not root and has a home that is there.
fn someone() -> Option<String> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let of = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, number, _, _, home, ..] = fields[..] else { return None };
        (number != "0" && Path::new(home).is_dir()).then(|| name.to_owned())
    };
    users.lines().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_a_process_and_its_children_is_read_whatever_its_name() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194304 100 0 0 0 7 5 20 30 20 0 1 0 100 1000 200 1";
        assert_eq!(ticks(stat), 62);
        assert_eq!(ticks(""), 0);
    }
}
