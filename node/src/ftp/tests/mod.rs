//! Whole sessions over real sockets, in the orders that go wrong.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::path::Path;

use proto::wire::control::{DigestKind, Durability};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

use super::users::Asked;
use super::*;
use crate::identity::{Home, Identity};
use crate::link::{Lent, Link};
use crate::serve;

/// A door to a folder of its own, until it is dropped.
struct Rig {
    place: PathBuf,
    address: SocketAddr,
    password: String,
    stop: Event,
    thread: Option<std::thread::JoinHandle<()>>,
    daemon: Option<(crate::serve::Control, std::thread::JoinHandle<()>)>,
    fingerprint: String,
    /// Where rails go.
    rails: Option<SocketAddr>,
    door: Arc<Door>,
}

impl Rig {
    fn new(name: &str, change: impl FnOnce(&mut Settings)) -> Rig {
        Rig::made(name, false, change)
    }

    /// One beside which a daemon is, for clients that are Longhauls.
    fn with_daemon(name: &str) -> Rig {
        Rig::made(name, true, |_| ())
    }

    fn made(name: &str, has_daemon: bool, change: impl FnOnce(&mut Settings)) -> Rig {
        let place = std::env::temp_dir().join(format!("longhaul-ftp-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(place.join("root")).unwrap();
        let home = Home::at(&place.join("home")).unwrap();
        let users = Users::at(&home.path(users::FILE)).unwrap();
        let password = users.add(&"ada".parse::<Asked>().unwrap()).unwrap().unwrap();
        let certificate = Certificate::of_home(&home, &[]).unwrap();
        let mut settings = Settings {
            listen: "127.0.0.1:0".parse().unwrap(),
            implicit: None,
            root: place.join("root"),
            clear: vec!["127.0.0.1".parse().unwrap()],
            anonymous: false,
            passive_ports: None,
            public_address: None,
            reuse_required: true,
            ready: 2,
            rate_bps: None,
            memory_bytes: 16 << 20,
            how: How { durability: Durability::Written, digest: DigestKind::Blake3 },
        };
        change(&mut settings);
        let (root, fingerprint) = (settings.root.clone(), certificate.fingerprint.clone());
        let server = Server::bind(settings, users, certificate).unwrap();
        let door = Arc::clone(&server.door);
        let mut rails = None;
        let daemon = has_daemon.then(|| {
            let listen = "127.0.0.1:0".parse().unwrap();
            let of = serve::settings::Settings { listen, logins_only: true, ..serve::settings::Settings::of(root) };
            let daemon = serve::Bound::bind(of, &home, &[]).unwrap().start(serve::Log::to(|_| ())).unwrap();
            server.with_daemon(daemon.upgrade().unwrap());
            rails = Some(daemon.address().unwrap());
            (daemon.control(), std::thread::spawn(move || daemon.run().unwrap()))
        });
        let (address, stop) = (server.address().unwrap(), Event::new().unwrap());
        let event = stop.clone();
        let thread = Some(std::thread::spawn(move || server.run(&event).unwrap()));
        Rig { place, address, password, stop, thread, daemon, fingerprint, rails, door }
    }

    fn root(&self) -> PathBuf {
        self.place.join("root")
    }

    fn client(&self) -> Client<TcpStream> {
        let mut client = Client { line: BufReader::new(TcpStream::connect(self.address).unwrap()) };
        assert!(client.hear().starts_with("220 "));
        client
    }

    fn logged_in(&self) -> Client<TcpStream> {
        let mut client = self.client();
        client.log_in(&self.password);
        client
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.signal();
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
        if let Some((control, thread)) = self.daemon.take() {
            control.stop();
            let _ = thread.join();
        }
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

struct Client<S: Read> {
    line: BufReader<S>,
}

impl<S: Read + Write> Client<S> {
    /// The last line of a reply.
    fn hear(&mut self) -> String {
        loop {
            let mut line = Vec::new();
            self.line.read_until(b'\n', &mut line).unwrap();
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if line.is_empty() || line.as_bytes().get(3) == Some(&b' ') && line.as_bytes()[0].is_ascii_digit() {
                return line;
            }
        }
    }

    fn say(&mut self, line: &[u8]) {
        self.line.get_mut().write_all(&[line, b"\r\n"].concat()).unwrap();
        self.line.get_mut().flush().unwrap();
    }

    fn ask(&mut self, line: &str) -> String {
        self.say(line.as_bytes());
        self.hear()
    }

    /// Asks, and compares the code.
    #[track_caller]
    fn wants(&mut self, line: &str, code: &str) -> String {
        let reply = self.ask(line);
        assert!(reply.starts_with(code), "{line}: {reply}");
        reply
    }

    fn log_in(&mut self, password: &str) {
        self.wants("USER ada", "331");
        self.wants(&format!("PASS {password}"), "230");
    }

    fn passive(&mut self) -> TcpStream {
        let reply = self.wants("EPSV", "229");
        let port = reply.split('|').nth(3).unwrap().parse().unwrap();
        TcpStream::connect(("127.0.0.1", port)).unwrap()
    }

    fn listing(&mut self, command: &str) -> Vec<u8> {
        let mut data = self.passive();
        self.wants(command, "150");
        let mut listed = Vec::new();
        data.read_to_end(&mut listed).unwrap();
        assert!(self.hear().starts_with("226"));
        listed
    }
}

fn waited_for(mut is_so: impl FnMut() -> bool) -> bool {
    (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        is_so()
    })
}

fn no_file(root: &Path, name: &str) -> bool {
    std::thread::sleep(std::time::Duration::from_millis(300));
    !root.join(name).exists()
}

#[test]
fn in_clear_nobody_gets_in_but_from_networks_that_were_named() {
    let rig = Rig::new("clear", |settings| settings.clear = vec!["10.0.0.0/8".parse().unwrap()]);
    let mut client = rig.client();
    assert!(client.wants("USER ada", "530").contains("AUTH TLS first"));
    client.wants("PASS x", "503");
    client.wants("LIST", "530");
    client.wants("PROT P", "503");
    client.wants("AUTH GSSAPI", "504");
    client.wants("NONSENSE", "500");
    client.wants("XCRC f", "530");
    client.wants("COMB f", "502");
    let network: Network = "192.168.4.0/22".parse().unwrap();
    assert!(network.has("192.168.7.255".parse().unwrap()) && !network.has("192.168.8.0".parse().unwrap()));
    assert!(network.has("::ffff:192.168.4.1".parse().unwrap()));
    assert!("0.0.0.0/0".parse::<Network>().unwrap().has("1.2.3.4".parse().unwrap()));
    assert!(!"::/0".parse::<Network>().unwrap().has("1.2.3.4".parse().unwrap()));
}

#[test]
fn wrong_passwords_and_unknown_users_hear_the_same_and_three_are_enough() {
    let rig = Rig::new("password", |_| ());
    let mut client = rig.client();
    let mut said = Vec::new();
    for (name, code) in [("ada", "530"), ("bob", "530"), ("ada", "421")] {
        client.wants(&format!("USER {name}"), "331");
        said.push(client.wants("PASS wrong", code));
    }
    assert_eq!(said[0], said[1]);
    assert_eq!(client.hear(), "", "closed");
}

#[test]
fn an_upload_whose_client_died_has_no_name_and_goes_on_where_it_was() {
    let rig = Rig::new("died", |_| ());
    let bytes: Vec<u8> = (0..3_000_000u32).map(|at| (at / 7) as u8).collect();
    let mut client = rig.logged_in();
    let mut data = client.passive();
    client.wants("STOR f", "150");
    data.write_all(&bytes[..2_000_000]).unwrap();
    // As the kernel does it for a process that was killed: both at once, the control connection first.
    drop(client);
    drop(data);
    assert!(no_file(&rig.root(), "f"));
    let mut client = rig.logged_in();
    assert!(waited_for(|| client.ask("SIZE f") == "213 1999999"));
    assert_eq!(client.listing("NLST"), b"", "a part is in no listing");
    let mut data = client.passive();
    client.wants("REST 2000000", "350");
    client.wants("STOR f", "150");
    data.write_all(&bytes[2_000_000..]).unwrap();
    drop(data);
    assert!(client.hear().starts_with("226 3000000 bytes stored, BLAKE3"));
    assert!(std::fs::read(rig.root().join("f")).unwrap() == bytes);
    // And no more of it than REST said is there.
    client.passive();
    client.wants("REST 3000001", "350");
    client.wants("STOR f", "554");
    client.passive();
    client.wants("REST 3000001", "350");
    client.wants("RETR f", "554");
}

#[test]
fn an_upload_that_is_shorter_than_announced_stays_a_part() {
    let rig = Rig::new("announced", |_| ());
    let mut client = rig.logged_in();
    client.wants("ALLO 10", "200");
    let mut data = client.passive();
    client.wants("STOR f", "150");
    data.write_all(b"hello").unwrap();
    drop(data);
    assert!(client.hear().starts_with("426"));
    assert!(no_file(&rig.root(), "f"));
    let mut data = client.passive();
    client.wants("APPE f", "150");
    data.write_all(b"world").unwrap();
    drop(data);
    assert!(client.hear().starts_with("226"));
    assert_eq!(std::fs::read(rig.root().join("f")).unwrap(), b"helloworld");
}

#[test]
fn a_download_is_aborted_while_its_client_takes_nothing_and_the_session_goes_on() {
    let rig = Rig::new("abort", |_| ());
    std::fs::File::create(rig.root().join("f")).unwrap().set_len(1 << 32).unwrap();
    let mut client = rig.logged_in();
    let data = client.passive();
    client.wants("RETR f", "150");
    std::thread::sleep(std::time::Duration::from_millis(100));
    // Commands ahead of their turn have their replies in it.
    client.say(b"NOOP");
    client.say(b"\xff\xf4\xff\xf2ABOR");
    assert!(client.hear().starts_with("426"));
    assert!(client.hear().starts_with("200"), "the NOOP");
    assert!(client.hear().starts_with("226"));
    drop(data);
    client.wants("ABOR", "226");
    client.wants("PWD", "257");
}

/// ABOR of a client whose bytes go on moving all the time.
#[test]
fn a_transfer_is_aborted_within_a_second_while_its_bytes_move() {
    let rig = Rig::new("moves", |_| ());
    std::fs::File::create(rig.root().join("f")).unwrap().set_len(1 << 40).unwrap();
    let mut client = rig.logged_in();
    for command in ["RETR f", "STOR g"] {
        let mut data = client.passive();
        client.wants(command, "150");
        let is_download = command.starts_with("RETR");
        // Without a pause in which a call of the server would come back for want of room or of bytes.
        let mover = std::thread::spawn(move || {
            let mut room = vec![1; 256 << 10];
            if is_download {
                while data.read(&mut room).is_ok_and(|it| it > 0) {}
            } else {
                while data.write_all(&room).is_ok() {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(300));
        let began = std::time::Instant::now();
        client.say(b"ABOR");
        client.line.get_ref().set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        assert!(client.hear().starts_with("426"), "{command}");
        assert!(began.elapsed() < std::time::Duration::from_secs(1), "{command}: after {:?}", began.elapsed());
        assert!(client.hear().starts_with("226"));
        mover.join().unwrap();
    }
}

#[test]
fn nothing_outside_the_root_is_reached_by_any_component() {
    let rig = Rig::new("root", |_| ());
    std::fs::write(rig.place.join("secret"), b"secret").unwrap();
    std::fs::create_dir(rig.root().join("d")).unwrap();
    std::os::unix::fs::symlink("..", rig.root().join("up")).unwrap();
    std::os::unix::fs::symlink("../../secret", rig.root().join("d/link")).unwrap();
    let mut client = rig.logged_in();
    for path in ["../secret", "/../secret", "d/../../secret", "up/secret", "d/link", "up"] {
        client.wants(&format!("RETR {path}"), "550");
        client.wants(&format!("HASH {path}"), "550");
    }
    client.wants("CWD up", "550");
    client.wants("CWD up/root", "550");
    client.wants("STOR up/new", "550");
    client.wants("STOR d/link", "550");
    client.wants("MKD up/new", "550");
    client.wants("RNFR d/link", "350");
    client.wants("RNTO up/moved", "550");
    client.wants("SITE CHMOD 777 up/secret", "550");
    client.wants("DELE up/secret", "550");
    client.wants("STOR d/.longhaul-0123456789abcdef.part", "553");
    client.say(b"STOR a\0b");
    assert!(client.hear().starts_with("553"));
    client.wants("PORT 127,0,0,2,8,0", "504");
    client.wants("EPRT |1|127.0.0.1|25|", "504");
    client.wants("RETR d", "550");
    assert_eq!(std::fs::read(rig.place.join("secret")).unwrap(), b"secret");
    assert!(!rig.place.join("new").exists() && !rig.place.join("moved").exists());
}

#[test]
fn a_session_takes_lines_of_any_length_and_names_of_any_bytes() {
    let rig = Rig::new("lines", |_| ());
    let mut client = rig.logged_in();
    client.say(&[b'x'; 100_000]);
    assert!(client.hear().starts_with("500"));
    client.wants("NOOP", "200");
    let name = b"a \"b\" \xff\xfe \xc3\xa4";
    let mut data = client.passive();
    client.say(&[&b"STOR "[..], b"a \"b\" \xff\xff\xfe \xc3\xa4"].concat());
    assert!(client.hear().starts_with("150"));
    data.write_all(b"x").unwrap();
    drop(data);
    assert!(client.hear().starts_with("226"));
    assert_eq!(client.listing("NLST"), [&name[..], b"\r\n"].concat());
    std::fs::write(rig.root().join("two\nlines"), b"").unwrap();
    assert_eq!(client.listing("NLST"), [&name[..], b"\r\n"].concat(), "a line cannot carry it");
    assert!(client.listing("MLSD").windows(10).any(|it| it == b"type=file;"));
    assert!(client.listing("LIST -la").ends_with(&[&name[..], b"\r\n"].concat()));
}

#[test]
fn read_only_and_write_only_users_are_held_to_it() {
    let rig = Rig::new("rights", |settings| settings.anonymous = true);
    std::fs::write(rig.root().join("f"), b"x").unwrap();
    let mut client = rig.client();
    client.wants("USER anonymous", "331");
    client.wants("PASS me@", "230");
    for refused in
        ["STOR g", "APPE f", "STOU", "DELE f", "MKD d", "RMD d", "RNFR f", "SITE CHMOD 600 f", "MFMT 20200101000000 f"]
    {
        client.wants(refused, "550");
    }
    client.wants("SIZE f", "213");
    let users = Users::at(&rig.place.join("home").join(users::FILE)).unwrap();
    let password = users.add(&"drop:wo".parse::<Asked>().unwrap()).unwrap().unwrap();
    client.wants("USER drop", "331");
    client.wants(&format!("PASS {password}"), "230");
    for refused in ["RETR f", "LIST", "NLST", "MLSD", "HASH f", "DELE f", "RNFR f"] {
        client.wants(refused, "550");
    }
    client.wants("MKD d", "257");
}

#[test]
fn a_rename_begun_by_one_login_is_ended_by_no_other_and_not_later() {
    let rig = Rig::new("rename", |settings| settings.anonymous = true);
    std::fs::write(rig.root().join("f"), b"x").unwrap();
    let mut client = rig.logged_in();
    client.wants("RNFR f", "350");
    client.wants("NOOP", "200");
    client.wants("RNTO g", "503");
    client.wants("RNFR f", "350");
    client.wants("USER anonymous", "331");
    client.wants("PASS me@", "230");
    client.wants("RNTO g", "550");
    assert!(no_file(&rig.root(), "g"));
}

/// ALLO 0 is said by clients that do not know; a length may be that of the rest or of the whole file.
#[test]
fn what_was_announced_is_compared_as_clients_mean_it() {
    let rig = Rig::new("allo", |_| ());
    let mut client = rig.logged_in();
    for (allo, rest, sent, code) in
        [("0", "0", "hello", "226"), ("10", "5", "world", "226"), ("12", "10", "x", "426"), ("2", "10", "yz", "226")]
    {
        client.wants(&format!("ALLO {allo}"), "200");
        let mut data = client.passive();
        client.wants(&format!("REST {rest}"), "350");
        client.wants("STOR f", "150");
        data.write_all(sent.as_bytes()).unwrap();
        drop(data);
        let reply = client.hear();
        assert!(reply.starts_with(code), "ALLO {allo} REST {rest}: {reply}");
    }
    assert_eq!(std::fs::read(rig.root().join("f")).unwrap(), b"helloworldyz");
}

/// Whatever certificate: what it proves is not what is tried here.
#[derive(Debug)]
struct Any;

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

fn client_config(version: &'static rustls::SupportedProtocolVersion) -> Arc<ClientConfig> {
    offering(&[version])
}

fn offering(versions: &[&'static rustls::SupportedProtocolVersion]) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    Arc::new(config.dangerous().with_custom_certificate_verifier(Arc::new(Any)).with_no_client_auth())
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

fn covered(config: &Arc<ClientConfig>, stream: TcpStream) -> Tls {
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::clone(config), name).unwrap(), stream)
}

fn secure_client(rig: &Rig, config: &Arc<ClientConfig>) -> Client<Tls> {
    let mut client = rig.client();
    client.wants("AUTH TLS", "234");
    // A command behind AUTH in clear would be believed after it: nothing of it is.
    let mut client = Client { line: BufReader::new(covered(config, client.line.into_inner())) };
    client.log_in(&rig.password);
    client
}

#[test]
fn a_covered_stream_ends_by_close_notify_alone_whatever_the_control_connection_does() {
    let rig = Rig::new("notify", |settings| settings.clear = Vec::new());
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let config = client_config(version);
        let mut client = secure_client(&rig, &config);
        client.passive();
        client.wants("RETR f", "550");
        client.passive();
        client.wants("STOR f", "521");
        client.wants("PBSZ 0", "200");
        client.wants("PROT C", "534");
        client.wants("PROT P", "200");
        let data = client.passive();
        client.wants("STOR f", "150");
        let mut data = covered(&config, data);
        data.write_all(b"hello").unwrap();
        data.flush().unwrap();
        data.sock.shutdown(Shutdown::Write).unwrap();
        assert!(client.hear().starts_with("426"));
        assert!(!rig.root().join("f").exists());
        let data = client.passive();
        client.wants("APPE f", "150");
        let mut data = covered(&config, data);
        data.write_all(b" world").unwrap();
        data.conn.send_close_notify();
        data.flush().unwrap();
        let said = client.hear();
        assert!(said.starts_with("226 11 bytes"), "{said}");
        // Large enough for many records, there and back.
        let bytes: Vec<u8> = (0..5_000_000u32).map(|at| (at / 3) as u8).collect();
        std::fs::write(rig.root().join("big"), &bytes).unwrap();
        let data = client.passive();
        client.wants("RETR big", "150");
        let (mut data, mut got) = (covered(&config, data), Vec::new());
        data.read_to_end(&mut got).unwrap();
        let said = client.hear();
        assert!(got == bytes && said.starts_with("226"), "{version:?}: {} of {} bytes, {said}", got.len(), bytes.len());
        std::fs::remove_file(rig.root().join("f")).unwrap();
    }
}

#[test]
fn a_data_connection_of_another_tls_session_is_turned_away_and_its_upload_has_no_name() {
    let rig = Rig::new("reuse", |_| ());
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let (own, thief) = (client_config(version), client_config(version));
        let mut client = secure_client(&rig, &own);
        // The thief has a session too, of its own control connection.
        let mut other = secure_client(&rig, &thief);
        other.wants("NOOP", "200");
        client.wants("PROT P", "200");
        let data = client.passive();
        client.wants("STOR f", "150");
        let mut data = covered(&thief, data);
        let _ = data.write_all(b"stolen");
        let _ = data.flush();
        data.conn.send_close_notify();
        let _ = data.flush();
        let _ = data.sock.shutdown(Shutdown::Write);
        assert!(client.hear().starts_with("522"));
        assert!(no_file(&rig.root(), "f"));
        client.wants("SIZE f", "550");
    }
}

#[test]
fn two_uploads_of_one_name_are_one_writer_and_a_refusal() {
    let rig = Rig::new("two", |_| ());
    let (mut first, mut second) = (rig.logged_in(), rig.logged_in());
    let mut data = first.passive();
    first.wants("STOR f", "150");
    data.write_all(b"first").unwrap();
    let _other = second.passive();
    second.wants("STOR f", "450");
    second.wants("SIZE f", "550");
    drop(data);
    assert!(first.hear().starts_with("226"));
    assert_eq!(std::fs::read(rig.root().join("f")).unwrap(), b"first");
}

#[test]
fn places_come_back_when_clients_go() {
    let rig = Rig::new("places", |_| ());
    // More than wait, and more than may be strangers at once in the end.
    for _ in 0..20 {
        let clients: Vec<_> = (0..20).map(|_| rig.client()).collect();
        drop(clients);
    }
    assert!(waited_for(|| {
        let mut client = Client { line: BufReader::new(TcpStream::connect(rig.address).unwrap()) };
        client.hear().starts_with("220")
    }));
    let strangers: Vec<_> = (0..STRANGERS_MAX).map(|_| TcpStream::connect(rig.address).unwrap()).collect();
    assert!(waited_for(|| {
        let mut client = Client { line: BufReader::new(TcpStream::connect(rig.address).unwrap()) };
        client.hear().starts_with("421")
    }));
    drop(strangers);
    assert!(waited_for(|| {
        let mut client = Client { line: BufReader::new(TcpStream::connect(rig.address).unwrap()) };
        client.hear().starts_with("220")
    }));
}

#[test]
fn no_free_port_and_a_full_house_have_their_codes() {
    let taken = data::bind("127.0.0.1".parse().unwrap(), None).unwrap();
    let port = taken.local_addr().unwrap().port();
    let rig = Rig::new("ports", |settings| {
        settings.passive_ports = Some(Ports::Range(data::Range { first: port, last: port }))
    });
    let mut client = rig.logged_in();
    assert!(client.wants("EPSV", "425").contains("--passive-ports"));
    client.wants("PASV", "425");
    client.wants("RETR f", "550");
}

fn user_of(rig: &Rig, user: users::User) -> String {
    let users = Users::at(&rig.place.join("home").join(users::FILE)).unwrap();
    let password = users::made_password().unwrap();
    users.set(user, Some(password.as_bytes())).unwrap();
    password
}

#[test]
fn a_user_has_a_root_networks_and_leave_to_speak_in_clear_of_its_own() {
    let rig = Rig::new("options", |settings| settings.clear = Vec::new());
    std::fs::create_dir_all(rig.root().join("in/d")).unwrap();
    std::fs::write(rig.root().join("in/f"), b"inside").unwrap();
    std::fs::write(rig.root().join("g"), b"outside").unwrap();
    let both = proto::ftp::session::Rights { read: true, write: true };
    let own = users::User { root: Some("in".into()), clear: true, ..users::User::new("own", both) };
    let password = user_of(&rig, own);
    let far = users::User { from: vec!["10.0.0.0/8".parse().unwrap()], clear: true, ..users::User::new("far", both) };
    let fars = user_of(&rig, far);
    let lost = users::User { root: Some("../place".into()), clear: true, ..users::User::new("lost", both) };
    let losts = user_of(&rig, lost);
    let mut client = rig.client();
    client.wants("USER ada", "530");
    client.wants("USER own", "331");
    client.wants(&format!("PASS {password}"), "230");
    client.wants("SIZE f", "213 6");
    for outside in ["g", "../g", "/../g"] {
        client.wants(&format!("SIZE {outside}"), "550");
    }
    client.wants("USER far", "331");
    client.wants(&format!("PASS {fars}"), "530");
    client.wants("USER lost", "331");
    client.wants(&format!("PASS {losts}"), "530");
}

#[test]
fn three_wrong_passwords_shut_the_network_out_and_not_for_good() {
    let rig = Rig::new("shut", |_| ());
    let mut client = rig.client();
    for code in ["530", "530", "421"] {
        client.wants("USER ada", "331");
        client.wants("PASS wrong", code);
    }
    let mut client = rig.client();
    client.wants("USER ada", "331");
    let said = client.wants(&format!("PASS {}", rig.password), "421");
    assert!(said.contains("from your network"), "{said}");
    assert!(waited_for(|| {
        let mut client = rig.client();
        client.wants("USER ada", "331");
        client.ask(&format!("PASS {}", rig.password)).starts_with("230")
    }));
}

#[test]
fn names_are_listed_by_pattern_and_facts_and_digests_are_set_and_asked() {
    let rig = Rig::new("facts", |_| ());
    std::fs::create_dir(rig.root().join("d")).unwrap();
    for name in ["d/a.txt", "d/b.txt", "d/c.bin", "d/.txt", "d/[x]"] {
        std::fs::write(rig.root().join(name), b"123456789").unwrap();
    }
    let mut client = rig.logged_in();
    let sorted = |listing: Vec<u8>| {
        let mut names: Vec<String> = String::from_utf8(listing).unwrap().lines().map(str::to_owned).collect();
        names.sort();
        names
    };
    assert_eq!(sorted(client.listing("NLST d/*.txt")), ["a.txt", "b.txt"]);
    assert_eq!(sorted(client.listing("NLST d/[x]")), ["[x]"], "a name comes before a pattern");
    assert_eq!(sorted(client.listing("NLST d/*.zip")), Vec::<String>::new());
    client.wants("SITE UTIME 20000229000000 d/a.txt", "200");
    client.wants("MDTM d/a.txt", "213 20000229000000");
    client.wants(
        "MFF modify=20010101000000;unix.mode=600; d/a.txt",
        "213 Modify=20010101000000;UNIX.mode=0600; /d/a.txt",
    );
    client.wants("MFMT 20230431000000 d/a.txt", "501");
    client.wants("XCRC d/a.txt", "250 cbf43926");
    client.wants("XMD5 d/a.txt", "250 25f9e794323b453885f5181f1b624d0b");
    client.wants("XSHA \"d/a.txt\" 0 9", "250 f7c3bc1d808e04732adf679965ccc34ca7ae3441");
    client.wants("OPTS HASH MD5", "200");
    client.wants("HASH d/a.txt", "213 MD5 0-9 25f9e794323b453885f5181f1b624d0b d/a.txt");
    let mut data = client.passive();
    client.wants("RANG 2 4", "350");
    client.wants("RETR d/a.txt", "150");
    let mut got = Vec::new();
    data.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"345");
    assert!(client.hear().starts_with("226"));
    client.passive();
    client.wants("NLST none", "550");
}

#[test]
fn one_port_gives_each_session_its_own_connection_in_clear_and_by_tls() {
    let free = data::bind("127.0.0.1".parse().unwrap(), None).unwrap().local_addr().unwrap().port();
    let rig = Rig::new("one-port", |settings| settings.passive_ports = Some(Ports::One(free)));
    for name in ["a", "b"] {
        std::fs::write(rig.root().join(name), name.repeat(100_000)).unwrap();
    }
    let (mut first, mut second) = (rig.logged_in(), rig.logged_in());
    // The second's EPSV has its reply when the first's client came: nothing is mixed up.
    let mut of_first = first.passive();
    second.say(b"EPSV");
    first.wants("RETR a", "150");
    let mut got = String::new();
    of_first.read_to_string(&mut got).unwrap();
    assert!(first.hear().starts_with("226") && got == "a".repeat(100_000));
    assert!(second.hear().starts_with("229"));
    second.wants("ABOR", "226");
    drop((first, second));
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let configs = [client_config(version), client_config(version)];
        let mut clients = configs.each_ref().map(|config| secure_client(&rig, config));
        for client in &mut clients {
            client.wants("PROT P", "200");
            client.wants("EPSV", "229");
        }
        // Both wait before the first connects.
        let ports = [(); 2].map(|()| TcpStream::connect(("127.0.0.1", free)).unwrap());
        for (client, name) in clients.iter_mut().zip(["a", "b"]) {
            client.wants(&format!("RETR {name}"), "150");
        }
        // Connected in one order, and speaking in the other.
        let mut streams: Vec<_> = ports.into_iter().zip(&configs).map(|(port, config)| covered(config, port)).collect();
        for (at, name) in [(1, "b"), (0, "a")] {
            let mut got = Vec::new();
            streams[at].read_to_end(&mut got).unwrap();
            assert!(got == name.repeat(100_000).as_bytes());
            assert!(clients[at].hear().starts_with("226"));
        }
    }
}

/// curl's first command is often read with the handshake's last record.
#[test]
fn a_command_in_one_flight_with_the_last_of_a_handshake_is_heard() {
    let rig = Rig::new("flight", |_| ());
    let mut client = rig.client();
    client.wants("AUTH TLS", "234");
    let mut stream = client.line.into_inner();
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = ClientConnection::new(client_config(&rustls::version::TLS13), name).unwrap();
    while tls.is_handshaking() {
        while tls.wants_write() {
            tls.write_tls(&mut stream).unwrap();
        }
        tls.read_tls(&mut stream).unwrap();
        tls.process_new_packets().unwrap();
    }
    tls.writer().write_all(b"USER ada\r\n").unwrap();
    let mut flight = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut flight).unwrap();
    }
    stream.write_all(&flight).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
    let mut client = Client { line: BufReader::new(StreamOwned::new(tls, stream)) };
    assert!(client.hear().starts_with("331"));
}

/// A client's request, whose password is in its address.
fn request_of(rig: &Rig, from: &str, to: &str) -> crate::request::JobRequest {
    let mut request = crate::request::JobRequest::copy([from], to).build();
    request.ftp.fingerprint = Some(rig.fingerprint.clone());
    request
}

fn node_of(rig: &Rig) -> crate::client::Node {
    crate::client::Node::open(&Home::at(&rig.place.join("client")).unwrap()).unwrap()
}

/// What the command would come to, and the transport of its report.
fn copied(rig: &Rig, request: &crate::request::JobRequest) -> (Result<text::exit::Exit, text::exit::Failure>, String) {
    let mut transport = String::new();
    let done = node_of(rig).run(request, crate::client::Manner::default(), &mut |event| {
        if let crate::event::JobEvent::Ended(report) = event {
            transport = report.transport.clone();
        }
    });
    (done, transport)
}

#[test]
fn two_longhauls_that_meet_over_ftp_move_a_tree_both_ways_within_what_the_login_may() {
    let rig = Rig::with_daemon("lhdata");
    let tree = rig.place.join("tree");
    std::fs::create_dir_all(tree.join("deep")).unwrap();
    std::fs::write(tree.join("large"), vec![7; 3 << 20]).unwrap();
    (0..20).for_each(|it| std::fs::write(tree.join(format!("deep/{it}")), [it; 999]).unwrap());
    let at = |user: &str, password: &str, path: &str| format!("ftp://{user}:{password}@{}/{path}", rig.address);
    let ours = tree.to_str().unwrap();
    let (done, transport) = copied(&rig, &request_of(&rig, ours, &at("ada", &rig.password, "up")));
    assert_eq!((done.unwrap(), &*transport), (text::exit::Exit::Whole, "over ftp, LHDATA, tcp"));
    assert_eq!(std::fs::read(rig.root().join("up/deep/7")).unwrap(), [7; 999]);
    let known = std::fs::read_to_string(node_of(&rig).home().path("ftp-longhauls")).unwrap();
    assert_eq!(known, format!("{}\n", rig.address), "the next one begins a round trip sooner");
    let back = rig.place.join("back");
    let mut request = request_of(&rig, &at("ada", &rig.password, "up"), back.to_str().unwrap());
    request.transport = proto::wire::request::Transport::Udp;
    assert_eq!(copied(&rig, &request).1, "over ftp, LHDATA, udp");
    assert_eq!(std::fs::read(back.join("large")).unwrap(), vec![7; 3 << 20]);
    request.ftp.plain = true;
    std::fs::remove_dir_all(&back).unwrap();
    assert_eq!(copied(&rig, &request).1, "ftps", "--plain-ftp");

    let rights = |read, write| proto::ftp::session::Rights { read, write };
    let reader = user_of(&rig, users::User::new("reader", rights(true, false)));
    let (done, _) = copied(&rig, &request_of(&rig, ours, &at("reader", &reader, "no")));
    assert_eq!(done.unwrap_err().exit, text::exit::Exit::Refused);
    let writer = user_of(&rig, users::User::new("writer", rights(false, true)));
    let (done, _) = copied(&rig, &request_of(&rig, &at("writer", &writer, "up"), back.to_str().unwrap()));
    assert_eq!(done.unwrap_err().exit, text::exit::Exit::Refused);
    std::fs::create_dir(rig.root().join("inbox")).unwrap();
    let boxed = users::User { root: Some("inbox".into()), ..users::User::new("boxed", rights(true, true)) };
    let boxed = user_of(&rig, boxed);
    assert!(copied(&rig, &request_of(&rig, ours, &at("boxed", &boxed, "it"))).0.is_ok());
    assert!(rig.root().join("inbox/it/large").exists() && !rig.root().join("no").exists());
    let above = rig.place.join("above");
    let (done, _) = copied(&rig, &request_of(&rig, &at("boxed", &boxed, "../up"), above.to_str().unwrap()));
    assert!(done.is_err() && !above.exists(), "nothing above its root");
}

/// The client's half of FTP's session, up to a connection that is to be lent.
fn lent(rig: &Rig, version: &'static rustls::SupportedProtocolVersion) -> Result<Lent, String> {
    let mut client = secure_client(rig, &client_config(version));
    client.log_in(&rig.password);
    let reply = client.ask("LHDATA 14 tcp");
    if !reply.starts_with("250 ") {
        return Err(reply);
    }
    let early = client.line.buffer().to_vec();
    let tls = client.line.into_inner();
    let (clear_sent, sessions) = (10, 0);
    Ok(Lent { connection: tls.conn.into(), stream: tls.sock, moved: (0, 0), clear_sent, early, sessions })
}

#[test]
fn lhdata_is_refused_over_tls_that_does_not_name_its_handshake() {
    let rig = Rig::with_daemon("lhdata-12");
    assert!(lent(&rig, &rustls::version::TLS12).unwrap_err().starts_with("534 "));
    let id = Identity::ephemeral().unwrap();
    let link = Link::over(lent(&rig, &rustls::version::TLS13).unwrap(), rig.address, &id).unwrap();
    assert_ne!(link.peer_key(), [0; 32]);
}

#[test]
fn whoever_says_rubbish_behind_the_reply_to_lhdata_is_gone_and_others_are_served() {
    let rig = Rig::with_daemon("lhdata-rubbish");
    for said in [&b"NOOP\r\n"[..], &[0; 97], &[b'K'; 97], b"K", &[0xff; 4]] {
        let mut lent = lent(&rig, &rustls::version::TLS13).unwrap();
        lent.stream.set_nonblocking(false).unwrap();
        lent.connection.writer().write_all(said).unwrap();
        lent.connection.write_tls(&mut lent.stream).unwrap();
        if said == b"K" {
            // The rest of a key may come yet.
            lent.stream.shutdown(Shutdown::Write).unwrap();
        }
        lent.stream.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        let mut rest = Vec::new();
        let ended =
            lent.stream.read_to_end(&mut rest).map_or_else(|error| error.kind(), |_| io::ErrorKind::UnexpectedEof);
        assert!(matches!(ended, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset), "{ended}");
    }
    let id = Identity::ephemeral().unwrap();
    assert!(Link::over(lent(&rig, &rustls::version::TLS13).unwrap(), rig.address, &id).is_ok());
}

#[test]
fn whoever_asks_for_more_than_the_login_has_is_refused() {
    use crate::job::greeting;
    use proto::wire::control::{Compare, Frame};
    let rig = Rig::with_daemon("lhdata-more");
    let (id, wait) = (Identity::ephemeral().unwrap(), std::time::Duration::from_secs(5));
    let mut link = Link::over(lent(&rig, &rustls::version::TLS13).unwrap(), rig.address, &id).unwrap();
    greeting::begin(&mut link, None);
    let ticket =
        Frame::AskTicket { key: [1; 32], targets: vec![b"x"[..].into()], compare: Compare::Never, prune: None };
    greeting::say(&mut link, &ticket);
    greeting::hello(&mut link, wait).unwrap();
    let refused = greeting::hear(&mut link, wait).unwrap_err();
    assert_eq!(refused.exit, text::exit::Exit::Refused);
}

#[test]
fn an_authorized_key_is_not_let_in_at_the_port_of_rails() {
    let rig = Rig::with_daemon("lhdata-key");
    let home = Home::at(&rig.place.join("home")).unwrap();
    let id = Identity::ephemeral().unwrap();
    crate::identity::authorized::authorize(&home, &id.public(), &crate::identity::Rights::default(), "").unwrap();
    let server = Identity::load(&home).unwrap().public();
    let (wait, at) = (std::time::Duration::from_secs(5), rig.rails.unwrap().to_string());
    let mut link = Link::connect(&at, &id, crate::link::Expect::Key(server), wait).unwrap();
    crate::job::greeting::begin(&mut link, None);
    crate::job::greeting::hello(&mut link, wait).unwrap();
    let refused = crate::job::greeting::hear(&mut link, wait).unwrap_err();
    assert!(refused.exit == text::exit::Exit::Refused && refused.cause.contains("FTP"), "{refused}");
}

#[test]
fn who_relays_tls_cannot_show_another_key() {
    let (rig, other) = (Rig::with_daemon("lhdata-relay"), Rig::with_daemon("lhdata-relay-far"));
    let id = Identity::ephemeral().unwrap();
    // What the far server shows is said by a near one, inside another TLS: the words are the same and do not hold.
    let far = lent(&other, &rustls::version::TLS13).unwrap();
    let mut near = lent(&rig, &rustls::version::TLS13).unwrap();
    let shown = {
        let mut lent = far;
        let mut opened = lent.early.clone();
        lent.stream.set_nonblocking(false).unwrap();
        while opened.len() < proto::ftp::lhdata::SHOWN_BYTES {
            lent.connection.read_tls(&mut lent.stream).unwrap();
            let state = lent.connection.process_new_packets().unwrap();
            let mut more = vec![0; state.plaintext_bytes_to_read()];
            lent.connection.reader().read_exact(&mut more).unwrap();
            opened.extend(more);
        }
        opened
    };
    near.early = shown;
    let refused = Link::over(near, rig.address, &id).unwrap_err();
    assert!(matches!(refused, crate::link::LinkError::Breach(proto::error::Breach::SignatureInvalid)), "{refused}");
}

#[test]
fn a_connection_is_ftps_again_after_a_session_and_carries_another() {
    let rig = Rig::with_daemon("lhdata-again");
    let node = node_of(&rig);
    std::fs::write(rig.root().join("a"), b"one").unwrap();
    let to = rig.place.join("a");
    let request = request_of(&rig, &format!("ftp://ada:{}@{}/a", rig.password, rig.address), to.to_str().unwrap());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let pinned = client::trust::parse(&rig.fingerprint);
    let address = client::address::FtpAddress::of(&request.sources[0]).unwrap().unwrap();
    let server = client::control::Server {
        login: client::credentials::Login::of(&address, &request.ftp).unwrap(),
        address,
        terms: request.ftp.clone(),
        verifier: Arc::new(client::trust::Verifier::new(pinned, Arc::clone(&provider))),
        provider,
        stall: std::time::Duration::from_secs(10),
        is_one_by_one: Default::default(),
        is_longhaul: Default::default(),
        is_tls12: Default::default(),
        is_done: Default::default(),
    };
    let asked = client::lhdata::asked(&request);
    let first = client::control::Control::open_asking(&server, Some(&asked)).unwrap();
    let session = client::lhdata::Upgraded::new(&server, asked, first);
    let mut watch = |_: crate::event::JobEvent| ();
    for round in 0..3 {
        std::fs::write(rig.root().join("a"), [b'0' + round; 5]).unwrap();
        let record = crate::report::history::JobRecord::default();
        let mut events = crate::event::Events::to(&mut watch);
        let manner = crate::client::Manner::default();
        let began = std::time::Instant::now();
        crate::client::run_over(&node, &request, &manner, (&session, record, began), &mut events).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), [b'0' + round; 5]);
        assert_eq!(session.sessions(), u32::from(round) + 1, "over one connection");
    }
}

#[test]
fn sessions_over_one_connection_export_secrets_of_their_own() {
    let rig = Rig::with_daemon("lhdata-keys");
    let id = Identity::ephemeral().unwrap();
    let secret = |sessions: u32| {
        let mut lent = lent(&rig, &rustls::version::TLS13).unwrap();
        lent.sessions = sessions;
        // The server is in its first: what it signed holds for that alone.
        Link::over(lent, rig.address, &id)
    };
    let first = secret(0).unwrap();
    assert_ne!(first.export(b"EXPORTER-longhaul job v1", &[]), [0; 32]);
    assert!(secret(1).is_err(), "its server's word was for another session");
}

mod digests; // without reading
mod mode_e; // over several data connections
mod rates; // of users
mod resumed; // uploads that were cut
mod tickets; // when they come
mod transcripts; // of programs that no test can run
