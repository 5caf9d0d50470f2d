//! The daemon under a service manager, seen from the manager's side: the real binary.
//!
//! For: sd_notify(3) on a socket of the test's own; sockets handed over as sd_listen_fds(3) says.
//! Absent on purpose: systemd itself, which a test cannot start; its units (lab/release.sh looks at them).

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

const SOON: Duration = Duration::from_secs(20);
const USAGE: i32 = 2;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("longhaul-manager-{}-{name}", std::process::id()));
        for below in ["there", "home"] {
            std::fs::create_dir_all(path.join(below)).unwrap();
        }
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Ended with the test.
struct Daemon(Child);

impl Daemon {
    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn managed(folder: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID"] {
        command.env_remove(name);
    }
    command.env("LONGHAUL_HOME", folder.join("home")).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn serve(folder: &Path) -> Command {
    let mut command = managed(folder, env!("CARGO_BIN_EXE_longhaul"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--root"]).arg(folder.join("there"));
    command
}

/// The next datagram that is no sign of life.
fn heard(socket: &UnixDatagram) -> String {
    loop {
        let word = next(socket);
        if word != "WATCHDOG=1" {
            return word;
        }
    }
}

fn next(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 4096];
    let length = socket.recv(&mut bytes).expect("the daemon says something");
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

#[test]
fn a_service_manager_hears_of_start_reload_end_and_that_the_daemon_lives() {
    let folder = Folder::new("notify");
    let place = folder.0.join("notify");
    let socket = UnixDatagram::bind(&place).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    let mut command = serve(&folder.0);
    let mut daemon = Daemon(command.env("NOTIFY_SOCKET", &place).env("WATCHDOG_USEC", "200000").spawn().unwrap());
    let status = heard(&socket);
    assert!(status.starts_with("STATUS=serving ") && status.contains(" at 127.0.0.1:"), "{status}");
    assert_eq!(heard(&socket), "READY=1");
    for _ in 0..3 {
        assert_eq!(next(&socket), "WATCHDOG=1");
    }
    daemon.send(Signal::HUP);
    let reloading = heard(&socket);
    let moment = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap_or_else(|| panic!("{reloading}"));
    assert!(moment.parse::<u64>().unwrap() > 0);
    assert_eq!(heard(&socket), "READY=1");
    daemon.send(Signal::TERM);
    assert_eq!(heard(&socket), "STOPPING=1");
    assert_eq!(daemon.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_manager_with_an_abstract_socket_is_heard_and_one_that_is_out_of_reach_keeps_no_daemon_from_starting() {
    let folder = Folder::new("abstract");
    let name = format!("longhaul-{}", std::process::id());
    let socket = UnixDatagram::bind_addr(&UnixAddress::from_abstract_name(&name).unwrap()).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    let daemon = Daemon(serve(&folder.0).env("NOTIFY_SOCKET", format!("@{name}")).spawn().unwrap());
    assert!(heard(&socket).starts_with("STATUS=serving "));
    assert_eq!(heard(&socket), "READY=1");
    drop(daemon);
    let mut command = serve(&folder.0);
    command.env("NOTIFY_SOCKET", folder.0.join("nobody")).env("WATCHDOG_USEC", "1000000");
    let mut daemon = Daemon(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(daemon.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("longhaul://127.0.0.1:"), "{line}");
}

/// A launcher: its standard input and output become descriptors 3 and 4 of a daemon, as a service manager passes them. `pid`: whom they are said to be for.
fn launched(folder: &Path, tcp: OwnedFd, udp: OwnedFd, pid: &str) -> Command {
    let mut command = managed(folder, "/bin/sh");
    let script = format!(
        "exec 3<&0 4<&1 0</dev/null 1>\"$2/out\" 2>\"$2/err\"; export LISTEN_FDS=2 LISTEN_PID={pid}; \
         exec \"$1\" serve --listen 127.0.0.1:0 --ticket --root \"$2/there\""
    );
    command.args(["-c", &script, "launcher", env!("CARGO_BIN_EXE_longhaul")]).arg(folder);
    command.stdin(Stdio::from(tcp)).stdout(Stdio::from(udp));
    command
}

/// A TCP and a UDP socket of one port, made as systemd makes them: SO_REUSEADDR, no SO_REUSEPORT.
fn port() -> (SocketAddr, OwnedFd, OwnedFd) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        if let Ok(udp) = UdpSocket::bind(address) {
            return (address, tcp.into(), udp.into());
        }
    }
}

fn first_line(path: &Path) -> String {
    let began = std::time::Instant::now();
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if let Some((line, _)) = text.split_once('\n') {
            return line.to_owned();
        }
        assert!(began.elapsed() < SOON, "nothing in {}", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn sockets_of_a_service_manager_carry_jobs_over_tcp_and_udp() {
    let folder = Folder::new("sockets");
    let (address, tcp, udp) = port();
    let _daemon = Daemon(launched(&folder.0, tcp, udp, "$$").spawn().unwrap());
    let url = first_line(&folder.0.join("out"));
    assert!(url.ends_with(&format!("@{address}/")), "{url}: the socket's port, not one of --listen");
    let source = folder.0.join("source.bin");
    std::fs::write(&source, vec![7; 3 << 20]).unwrap();
    for transport in ["tcp", "udp"] {
        let mut command = managed(&folder.0, env!("CARGO_BIN_EXE_longhaul"));
        command.env("LONGHAUL_HOME", folder.0.join("home-here"));
        command.args(["cp", "--json", "--transport", transport]).arg(&source).arg(format!("{url}{transport}.bin"));
        let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains(&format!("\"transport\":\"{transport}\"")), "{transport}: {said}");
        assert_eq!(std::fs::read(folder.0.join("there").join(format!("{transport}.bin"))).unwrap().len(), 3 << 20);
    }
}

#[test]
fn sockets_that_are_meant_for_another_process_are_left_alone_and_wrong_ones_are_refused_with_a_next_step() {
    let folder = Folder::new("others");
    let (address, tcp, udp) = port();
    let daemon = Daemon(launched(&folder.0, tcp, udp, "1").spawn().unwrap());
    let url = first_line(&folder.0.join("out"));
    assert!(!url.ends_with(&format!("@{address}/")), "{url}");
    drop(daemon);
    // Two of a kind, two ports, none that listens.
    let udp = || OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap());
    let tcp = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
    for (one, other, cause) in
        [(tcp(), tcp(), "one port"), (tcp(), udp(), "TCP is 127.0.0.1:"), (udp(), udp(), "one port")]
    {
        let status = launched(&folder.0, one, other, "$$").status().unwrap();
        let said = std::fs::read_to_string(folder.0.join("err")).unwrap();
        assert_eq!(status.code(), Some(USAGE), "{said}");
        assert!(said.contains(cause) && said.contains("\n  next: give the unit one ListenStream="), "{said}");
    }
}

#[test]
fn a_daemon_that_root_starts_for_another_user_carries_jobs_over_udp_also_at_a_low_port() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skip: only root becomes another user");
        return;
    }
    let folder = Folder::new("user");
    for below in ["there", "home"] {
        std::os::unix::fs::chown(folder.0.join(below), Some(65_534), Some(65_534)).unwrap();
    }
    let (config, source) = (folder.0.join("config"), folder.0.join("source.bin"));
    std::fs::write(&config, "user = \"nobody\"\n").unwrap();
    std::fs::write(&source, vec![7; 3 << 20]).unwrap();
    let low = (600..1024).rev().find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap();
    for port in [0, low] {
        let mut command = managed(&folder.0, env!("CARGO_BIN_EXE_longhaul"));
        command.args(["serve", "--ticket", "--listen"]).arg(format!("127.0.0.1:{port}")).arg("--config").arg(&config);
        command.arg("--root").arg(folder.0.join("there")).stdout(Stdio::piped());
        let mut daemon = Daemon(command.spawn().unwrap());
        let mut url = String::new();
        BufReader::new(daemon.0.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let mut command = managed(&folder.0, env!("CARGO_BIN_EXE_longhaul"));
        command.env("LONGHAUL_HOME", folder.0.join("home-here")).args([
            "cp",
            "--json",
            "--transport",
            "udp",
            "--stall",
            "5s",
        ]);
        let output =
            command.arg(&source).arg(format!("{}{port}.bin", url.trim())).stdout(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains("\"transport\":\"udp\""), "{port}: {said}");
        let facts = std::fs::metadata(folder.0.join("there").join(format!("{port}.bin"))).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&facts), 65_534);
    }
}
