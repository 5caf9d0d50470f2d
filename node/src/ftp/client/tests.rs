//! Servers that mean harm, over real sockets.
//!
//! For: the client's whole way from an address to a file.
//! In and out: a server that answers as it was told; what is left in the destination.
//! Invariants: nothing outside the destination, nothing partial under its name.
//! Absent on purpose: good servers (`lab/e2e/31-ftp-client.sh`).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use text::exit::{Exit, Failure};

use crate::client::{Manner, Node};
use crate::event::JobEvent;
use crate::identity::Home;
use crate::request::{FtpTerms, JobRequest};

/// What a server does.
#[derive(Debug, Clone, Default)]
struct Evil {
    /// Said of the file.
    size: u64,
    /// Sent of it.
    content: Vec<u8>,
    /// MLSD; none: the path is a file.
    listing: Option<Vec<u8>>,
    /// The listing and this again and again, so many times.
    repeats: usize,
    /// Instead of the reply to this word.
    says: Vec<(&'static str, Vec<u8>)>,
    /// EPSV is not known.
    old: bool,
    /// What comes while a file's bytes move is answered at once, by 500, as Pure-FTPd does; a file's content is its path.
    is_eager: bool,
    /// This algorithm's digest of these bytes is told of every file.
    digest: Option<(&'static str, Vec<u8>)>,
    /// Written anew, with other bytes, while the server takes what is sent of it.
    torn: Option<PathBuf>,
    /// It takes a MiB of what is sent, and the rest so much later; and sends five.
    pause: Option<std::time::Duration>,
    /// What it heard.
    heard: Arc<Mutex<Vec<String>>>,
    /// A digest is told while the file's bytes still move, as ProFTPD does; a file's content is its path.
    tells_early: bool,
}

/// Serves clients until the process ends; gives the port.
fn serve(evil: Evil) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let evil = Arc::new(evil);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let evil = Arc::clone(&evil);
            std::thread::spawn(move || session(&evil, stream));
        }
    });
    port
}

fn session(evil: &Evil, stream: TcpStream) -> Option<()> {
    let mut out = stream.try_clone().ok()?;
    let mut data: Option<TcpListener> = None;
    out.write_all(b"220 here\r\n").ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let line = read_line(&mut reader)?;
        let (word, operand) = line.split_once(' ').unwrap_or((&line, ""));
        if let Some((_, said)) = evil.says.iter().find(|it| it.0 == word) {
            out.write_all(said).ok()?;
            continue;
        }
        evil.heard.lock().unwrap().push(line.clone());
        if let Some(said) = said_of_digests(evil, word, operand) {
            out.write_all(said.as_bytes()).ok()?;
            continue;
        }
        let said = match word {
            "STOR" => {
                out.write_all(b"150 go\r\n").ok()?;
                take(evil, &data.take()?)?;
                "226 done\r\n".to_owned()
            }
            "FEAT" if evil.tells_early => "211-x\r\n MLST type*;\r\n MDTM\r\n HASH SHA-256*\r\n211 x\r\n".to_owned(),
            "OPTS" if evil.tells_early => "200 ok\r\n".to_owned(),
            "HASH" => sha256_of(operand),
            "FEAT" => "211-x\r\n MLST type*;\r\n SIZE\r\n MDTM\r\n REST STREAM\r\n211 x\r\n".to_owned(),
            "SIZE" if evil.listing.is_none() || operand != "/d" => format!("213 {}\r\n", evil.size),
            "CWD" if evil.listing.is_none() => "550 no folder\r\n".to_owned(),
            "EPSV" if !evil.old => {
                let listener = TcpListener::bind("127.0.0.1:0").ok()?;
                let said = format!("229 x (|||{}|)\r\n", listener.local_addr().ok()?.port());
                data = Some(listener);
                said
            }
            "RETR" | "MLSD" => {
                let Some(listener) = data.take() else {
                    out.write_all(b"425 no data connection\r\n").ok()?;
                    continue;
                };
                out.write_all(b"150 go\r\n").ok()?;
                let (mut to, _) = listener.accept().ok()?;
                let path = operand.as_bytes().to_vec();
                let content = if evil.is_eager || evil.tells_early { &path } else { &evil.content };
                let bytes = if word == "RETR" { content } else { evil.listing.as_ref()? };
                give(evil, &mut to, bytes, if word == "RETR" { 0 } else { evil.repeats });
                drop(to);
                if evil.is_eager {
                    out.set_read_timeout(Some(std::time::Duration::from_millis(20))).ok()?;
                    while read_line(&mut reader).is_some() {
                        out.write_all(b"500 Unknown command\r\n").ok()?;
                    }
                    out.set_read_timeout(None).ok()?;
                }
                if evil.tells_early && word == "RETR" {
                    out.set_read_timeout(Some(std::time::Duration::from_millis(5))).ok()?;
                    if let Some(next) = read_line(&mut reader) {
                        out.write_all(sha256_of(next.strip_prefix("HASH ")?).as_bytes()).ok()?;
                    }
                    out.set_read_timeout(None).ok()?;
                }
                "226 done\r\n".to_owned()
            }
            _ => always(word).to_owned(),
        };
        out.write_all(said.as_bytes()).ok()?;
    }
}

/// What each of them says.
fn always(word: &str) -> &'static str {
    match word {
        "USER" => "230 in\r\n",
        "PWD" => "257 \"/\"\r\n",
        "MDTM" => "213 20260101000000\r\n",
        "REST" | "RNFR" => "350 ok\r\n",
        "CWD" | "TYPE" | "DELE" | "RNTO" | "MFMT" => "250 ok\r\n",
        _ => "500 what\r\n",
    }
}

/// What one says that has digests of every file.
fn said_of_digests(evil: &Evil, word: &str, operand: &str) -> Option<String> {
    let (name, of) = evil.digest.as_ref()?;
    match word {
        "FEAT" => Some(format!("211-x\r\n MLST type*;\r\n MDTM\r\n HASH {name}*\r\n211 x\r\n")),
        "OPTS" => Some("200 ok\r\n".to_owned()),
        "HASH" => {
            let hex = match *name {
                "BLAKE3" => blake3::hash(of).to_hex().to_string(),
                _ => sha256_of_bytes(of),
            };
            Some(format!("213 {name} 0-{} {hex} {operand}\r\n", of.len()))
        }
        _ => None,
    }
}

/// Sends this, once more and again so many times, as long as somebody takes it.
fn give(evil: &Evil, to: &mut TcpStream, bytes: &[u8], repeats: usize) {
    let (first, bytes) = bytes.split_at(if evil.pause.is_some() { 5 << 20 } else { 0 });
    let _ = to.write_all(first);
    std::thread::sleep(evil.pause.unwrap_or_default());
    for _ in 0..=repeats {
        if to.write_all(bytes).is_err() {
            break;
        }
    }
}

/// Takes an upload, during which its source may change.
fn take(evil: &Evil, listener: &TcpListener) -> Option<()> {
    let (mut from, _) = listener.accept().ok()?;
    if let Some(pause) = evil.pause {
        std::io::copy(&mut (&mut from).take(1 << 20), &mut std::io::sink()).ok()?;
        std::thread::sleep(pause);
    }
    std::io::copy(&mut from, &mut std::io::sink()).ok()?;
    let Some(path) = &evil.torn else { return Some(()) };
    let bytes = std::fs::metadata(path).ok()?.len();
    std::fs::write(path, vec![b'?'; bytes as usize]).ok()
}

/// What HASH says of a file whose content is its path.
fn sha256_of(path: &str) -> String {
    format!("213 SHA-256 0-{} {} {path}\r\n", path.len(), sha256_of_bytes(path.as_bytes()))
}

fn sha256_of_bytes(bytes: &[u8]) -> String {
    crate::ftp::users::hex(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref())
}

fn read_line(from: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    (from.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
}

struct Place {
    path: PathBuf,
    node: Node,
    notes: std::cell::RefCell<Vec<String>>,
    /// Bytes done and in all, as they were told.
    progress: std::cell::RefCell<Vec<(u64, Option<u64>)>>,
}

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("longhaul-ftp-client-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.join("to")).unwrap();
        let node = Node::open(&Home::at(&path.join("home")).unwrap()).unwrap();
        Place { path, node, notes: Default::default(), progress: Default::default() }
    }

    fn get(&self, port: u16, what: &str, terms: FtpTerms) -> (Result<Exit, Failure>, Vec<String>) {
        self.run(JobRequest::copy([format!("ftp://127.0.0.1:{port}/{what}")], self.path.join("to").join("x")), terms)
    }

    fn put(&self, evil: Evil, what: &Path) -> (Result<Exit, Failure>, Vec<String>) {
        let port = serve(evil);
        let terms = FtpTerms { allow_clear: true, ..FtpTerms::default() };
        self.run(JobRequest::copy([what], format!("ftp://127.0.0.1:{port}/up")), terms)
    }

    fn run(&self, request: crate::request::JobRequestBuilder, terms: FtpTerms) -> (Result<Exit, Failure>, Vec<String>) {
        let request = request.ftp(terms).stall(std::time::Duration::from_secs(20)).build();
        let mut faults = Vec::new();
        let mut watch = |event: JobEvent| match event {
            JobEvent::Fault(fault) => faults.push(format!("{:?}: {}", fault.fault.kind, fault.fault.step)),
            JobEvent::Note(note) => self.notes.borrow_mut().push(note),
            JobEvent::Progress(it) => self.progress.borrow_mut().push((it.bytes_done, it.bytes_total)),
            _ => {}
        };
        let done = self.node.run(&request, Manner::default(), &mut watch);
        (done, faults)
    }

    fn clear(&self, evil: Evil, what: &str) -> (Result<Exit, Failure>, Vec<String>) {
        self.get(serve(evil), what, FtpTerms { allow_clear: true, ..FtpTerms::default() })
    }

    /// It was told more than once that some of so many bytes were done, and never fewer than before.
    fn is_told_within(&self, bytes: u64) {
        let told = self.progress.borrow();
        let within = |&&(done, all): &&(u64, Option<u64>)| done > 0 && done < bytes && all == Some(bytes);
        assert!(told.iter().filter(within).count() >= 2, "{told:?}");
        assert!(told.is_sorted(), "{told:?}");
    }

    /// All that stands in the destination.
    fn there(&self) -> Vec<PathBuf> {
        fn walk(path: &Path, out: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(path).unwrap().flatten() {
                out.push(entry.path());
                if entry.path().is_dir() {
                    walk(&entry.path(), out);
                }
            }
        }
        let mut out = Vec::new();
        walk(&self.path.join("to"), &mut out);
        out
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[test]
fn a_stream_that_ends_at_any_byte_leaves_no_file_and_one_that_is_whole_is_there() {
    let place = Place::new("fin");
    let content = b"0123456789".to_vec();
    for len in 0..10 {
        let (done, faults) = place.clear(Evil { size: 10, content: content[..len].to_vec(), ..Evil::default() }, "f");
        assert_eq!(done.unwrap(), Exit::Torn, "{faults:?}");
        assert!(place.there().is_empty(), "{len}: {:?}", place.there());
    }
    let longer = Evil { size: 9, content: content.clone(), ..Evil::default() };
    assert_eq!(place.clear(longer, "f").0.unwrap(), Exit::Torn, "the length that was said is wrong");
    assert!(place.there().is_empty());
    let (done, faults) = place.clear(Evil { size: 10, content: content.clone(), ..Evil::default() }, "f");
    assert_eq!(done.unwrap(), Exit::Whole, "{faults:?}");
    assert_eq!(std::fs::read(place.path.join("to/x")).unwrap(), content);
}

#[test]
fn names_that_lead_out_of_a_folder_are_refused_and_the_others_come() {
    let place = Place::new("names");
    let listing = b"type=file;size=3; ../evil\r\ntype=file;size=3; /tmp/longhaul-evil\r\ntype=dir; ..\r\ntype=file;size=3;modify=20260101000000; good\r\ntype=file;size=3; a/b\r\n";
    let evil = Evil {
        size: 3,
        content: b"abc".to_vec(),
        listing: Some(listing.to_vec()),
        says: vec![("SIZE", b"550 no\r\n".to_vec())],
        ..Evil::default()
    };
    let (done, faults) = place.clear(evil, "d");
    assert_eq!(done.unwrap(), Exit::Partial, "{faults:?}");
    assert_eq!(faults.len(), 4, "{faults:?}");
    assert_eq!(place.there(), [place.path.join("to/x"), place.path.join("to/x/good")]);
    assert!(!place.path.join("evil").exists() && !place.path.join("to/evil").exists());
}

#[test]
fn a_server_that_answers_out_of_turn_hears_one_command_after_the_other() {
    let place = Place::new("turns");
    let lines = (10..90).map(|number| format!("type=file;size=6;modify=20260101000000; f{number}\r\n"));
    let evil = Evil {
        listing: Some(lines.collect::<String>().into_bytes()),
        says: vec![("SIZE", b"550 no\r\n".to_vec())],
        is_eager: true,
        ..Evil::default()
    };
    let (done, faults) = place.clear(evil, "d");
    assert_eq!(done.unwrap(), Exit::Whole, "{faults:?}");
    for number in 10..90 {
        let came = std::fs::read(place.path.join(format!("to/x/f{number}"))).unwrap();
        assert_eq!(came, format!("/d/f{number}").into_bytes());
    }
    assert_eq!(place.there().len(), 81);
}

#[test]
fn digests_that_are_told_before_their_transfers_end_are_compared() {
    let place = Place::new("early");
    let lines = (10..50).map(|number| format!("type=file;size=6;modify=20260101000000; f{number}\r\n"));
    let evil = Evil {
        listing: Some(lines.collect::<String>().into_bytes()),
        says: vec![("SIZE", b"550 no\r\n".to_vec())],
        tells_early: true,
        ..Evil::default()
    };
    let (done, faults) = place.clear(evil, "d");
    assert_eq!(done.unwrap(), Exit::Whole, "{faults:?}");
    assert_eq!(std::fs::read(place.path.join("to/x/f49")).unwrap(), b"/d/f49");
    let notes = place.notes.borrow();
    assert!(notes.iter().any(|note| note.starts_with("the far side was asked: ")), "{notes:?}");
}

/// Longer than a file that comes in one stream, and no multiple of a chunk.
fn long() -> Vec<u8> {
    (0..9u32 << 18).flat_map(|at| at.to_le_bytes()).chain(*b"end").collect()
}

#[test]
fn a_file_has_no_name_here_if_the_server_tells_another_digest_of_it() {
    for (at, content) in [b"some bytes".to_vec(), long()].into_iter().enumerate() {
        for name in ["BLAKE3", "SHA-256"] {
            let place = Place::new(&format!("digest-get-{at}"));
            let said = |of: Vec<u8>| Evil {
                size: content.len() as u64,
                content: content.clone(),
                says: vec![("REST", b"500 no\r\n".to_vec())],
                digest: Some((name, of)),
                ..Evil::default()
            };
            let (done, faults) = place.clear(said(b"others".to_vec()), "f");
            assert_eq!(done.unwrap(), Exit::Corrupt, "{name}: {faults:?}");
            assert!(faults[0].contains("digest is another"), "{faults:?}");
            assert!(!place.path.join("to/x").exists());
            let (done, faults) = place.clear(said(content.clone()), "f");
            assert_eq!(done.unwrap(), Exit::Whole, "{name}: {faults:?}");
            assert!(std::fs::read(place.path.join("to/x")).unwrap() == content);
            assert!(place.notes.borrow().iter().any(|note| note.starts_with("the far side was asked: ")));
        }
    }
}

#[test]
fn what_was_sent_is_named_there_only_if_the_server_tells_its_digest_and_it_did_not_change() {
    for content in [b"some bytes".to_vec(), long()] {
        for name in ["BLAKE3", "SHA-256"] {
            let place = Place::new("digest-put");
            let source = place.path.join("source");
            std::fs::write(&source, &content).unwrap();
            let heard = Arc::new(Mutex::new(Vec::new()));
            let said = |of: &[u8], torn: Option<&PathBuf>| Evil {
                digest: Some((name, of.to_vec())),
                torn: torn.cloned(),
                heard: Arc::clone(&heard),
                ..Evil::default()
            };
            let words = |of: &str| {
                let heard = heard.lock().unwrap();
                heard.iter().filter(|line| line.starts_with(of)).count()
            };
            let (done, faults) = place.put(said(b"others", None), &source);
            assert_eq!((done.unwrap(), words("DELE"), words("RNTO")), (Exit::Corrupt, 1, 0), "{name}: {faults:?}");
            let (done, faults) = place.put(said(&content, None), &source);
            assert_eq!((done.unwrap(), words("DELE"), words("RNTO")), (Exit::Whole, 1, 1), "{name}: {faults:?}");
            assert!(place.notes.borrow().iter().any(|note| note.starts_with("the far side was asked: ")));
            // The server has what was sent, but that is of two times.
            let (done, faults) = place.put(said(&content, Some(&source)), &source);
            assert_eq!((done.unwrap(), words("DELE"), words("RNTO")), (Exit::Torn, 2, 1), "{name}: {faults:?}");
        }
    }
}

#[test]
fn how_far_an_upload_is_is_told_while_one_file_goes() {
    let place = Place::new("progress");
    let source = place.path.join("source");
    // More than sockets hold.
    let bytes = 64 << 20;
    let content = vec![1; bytes];
    std::fs::write(&source, &content).unwrap();
    let pause = Some(std::time::Duration::from_millis(900));
    let evil = Evil { pause, digest: Some(("BLAKE3", content)), ..Evil::default() };
    let (done, faults) = place.put(evil, &source);
    assert_eq!(done.unwrap(), Exit::Whole, "{faults:?}");
    place.is_told_within(bytes as u64);
}

#[test]
fn how_far_a_download_is_is_told_while_one_file_comes() {
    let (place, content) = (Place::new("progress-get"), long());
    let pause = Some(std::time::Duration::from_millis(900));
    let evil = Evil { pause, size: content.len() as u64, content: content.clone(), ..Evil::default() };
    let (done, faults) = place.clear(evil, "f");
    assert_eq!(done.unwrap(), Exit::Whole, "{faults:?}");
    place.is_told_within(content.len() as u64);
}

#[test]
fn endless_replies_and_endless_listings_end_at_their_bounds() {
    let place = Place::new("endless");
    let mut endless = b"211-x\r\n".to_vec();
    while endless.len() < 3 << 20 {
        endless.extend_from_slice(b" and more of it, and more of it, and more of it\r\n");
    }
    let (done, _) = place.clear(Evil { says: vec![("FEAT", endless)], ..Evil::default() }, "f");
    assert_eq!(done.unwrap_err().exit, Exit::Breach);
    let (done, _) = place.clear(Evil { says: vec![("FEAT", vec![b'2'; 20_000])], ..Evil::default() }, "f");
    assert_eq!(done.unwrap_err().exit, Exit::Breach);
    let line = b"unknown line of a listing that never ends and is not to be understood by anybody\r\n".repeat(1 << 12);
    let evil =
        Evil { listing: Some(line), repeats: 1 << 20, says: vec![("SIZE", b"550 no\r\n".to_vec())], ..Evil::default() };
    let (done, _) = place.clear(evil, "d");
    assert_eq!(done.unwrap_err().exit, Exit::Breach);
    assert_eq!(place.there(), [place.path.join("to/x")], "an empty folder");
}

#[test]
fn pasv_to_a_third_host_goes_to_the_server_itself() {
    let place = Place::new("pasv");
    let third = TcpListener::bind("127.0.0.9:0").unwrap();
    let port = third.local_addr().unwrap().port();
    let said = format!("227 x (127,0,0,9,{},{})\r\n", port >> 8, port & 255).into_bytes();
    let evil = Evil { size: 3, content: b"abc".to_vec(), old: true, says: vec![("PASV", said)], ..Evil::default() };
    let (done, _) = place.clear(evil, "f");
    assert!(done.is_err() || done.unwrap() != Exit::Whole);
    third.set_nonblocking(true).unwrap();
    assert!(third.accept().is_err(), "nobody came to the third host");
    assert!(place.there().is_empty());
}

#[test]
fn without_tls_no_name_is_said_and_what_comes_before_the_handshake_ends_it() {
    let place = Place::new("tls");
    let port = serve(Evil::default());
    let (done, _) = place.get(port, "f", FtpTerms::default());
    let failure = done.unwrap_err();
    assert_eq!(failure.exit, Exit::Negotiation, "{failure}");
    assert!(failure.cause.contains("500 what") && failure.next_step.contains("--allow-clear"), "{failure}");
    let injected = serve(Evil { says: vec![("AUTH", b"234 go\r\n230 you are in\r\n".to_vec())], ..Evil::default() });
    let (done, _) = place.get(injected, "f", FtpTerms::default());
    assert!(matches!(done.unwrap_err().exit, Exit::Breach | Exit::Negotiation));
    let wrong = serve(Evil {
        says: vec![("USER", b"331 and?\r\n".to_vec()), ("PASS", b"530 Login incorrect.\r\n".to_vec())],
        ..Evil::default()
    });
    let (done, _) = place.get(wrong, "f", FtpTerms { allow_clear: true, ..FtpTerms::default() });
    let failure = done.unwrap_err();
    assert_eq!(failure.exit, Exit::Refused);
    assert!(failure.cause.contains("530 Login incorrect."), "{failure}");
    assert!(place.there().is_empty());
}

/// What becomes of the data connection of a server whose control connection has TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Data {
    /// As it should.
    Whole,
    /// All bytes, and no word that these are all (`close_notify`).
    Cut,
    /// All bytes, in clear.
    Clear,
    /// Another server's key.
    Stranger,
}

type Tls = rustls::StreamOwned<rustls::ServerConnection, TcpStream>;

fn line_of(from: &mut Tls) -> Option<String> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while byte != *b"\n" {
        from.read_exact(&mut byte).ok()?;
        line.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&line).trim_end().to_owned())
}

fn tls_session(
    mut stream: TcpStream,
    own: &Arc<rustls::ServerConfig>,
    other: &Arc<rustls::ServerConfig>,
    data: Data,
) -> Option<()> {
    let over = |config: &Arc<rustls::ServerConfig>, stream| {
        Some(Tls::new(rustls::ServerConnection::new(Arc::clone(config)).ok()?, stream))
    };
    stream.write_all(b"220 here\r\n").ok()?;
    let mut auth = [0; 10];
    stream.read_exact(&mut auth).ok()?;
    stream.write_all(b"234 go\r\n").ok()?;
    let mut control = over(own, stream)?;
    let mut waits: Option<TcpListener> = None;
    while let Some(line) = line_of(&mut control) {
        let said = match line.split(' ').next().unwrap_or_default() {
            "USER" => "230 in\r\n".to_owned(),
            "FEAT" => "211-x\r\n SIZE\r\n REST STREAM\r\n211 x\r\n".to_owned(),
            "PWD" => "257 \"/\"\r\n".to_owned(),
            "SIZE" => "213 10\r\n".to_owned(),
            "CWD" => "550 no folder\r\n".to_owned(),
            "EPSV" => {
                let listener = TcpListener::bind("127.0.0.1:0").ok()?;
                let said = format!("229 x (|||{}|)\r\n", listener.local_addr().ok()?.port());
                waits = Some(listener);
                said
            }
            "RETR" => {
                control.write_all(b"150 go\r\n").ok()?;
                let (mut to, _) = waits.take()?.accept().ok()?;
                if data == Data::Clear {
                    let _ = to.write_all(b"0123456789");
                } else {
                    let mut to = over(if data == Data::Stranger { other } else { own }, to)?;
                    let _ = to.write_all(b"0123456789").and_then(|()| to.flush());
                    if data == Data::Whole {
                        to.conn.send_close_notify();
                        let _ = to.flush();
                    }
                }
                "226 done\r\n".to_owned()
            }
            "QUIT" => return Some(()),
            _ => "200 ok\r\n".to_owned(),
        };
        control.write_all(said.as_bytes()).ok()?;
    }
    Some(())
}

#[test]
fn a_data_connection_without_tls_or_without_its_end_leaves_no_file() {
    let place = Place::new("stripped");
    let config = |name: &str| {
        let home = Home::at(&place.path.join(name)).unwrap();
        let certificate = crate::ftp::certificate::Certificate::of_home(&home, &[]).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let key = Arc::clone(&certificate.key);
        let config = config
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from((*key).clone())));
        (certificate.fingerprint, Arc::new(config))
    };
    let ((fingerprint, own), (_, other)) = (config("own"), config("other"));
    for data in [Data::Cut, Data::Clear, Data::Stranger, Data::Whole] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (own, other) = (Arc::clone(&own), Arc::clone(&other));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (own, other) = (Arc::clone(&own), Arc::clone(&other));
                std::thread::spawn(move || tls_session(stream, &own, &other, data));
            }
        });
        let terms = FtpTerms { fingerprint: Some(fingerprint.clone()), ..FtpTerms::default() };
        let (done, faults) = place.get(port, "f", terms);
        if data == Data::Whole {
            assert_eq!(done.unwrap(), Exit::Whole, "{faults:?}");
            assert_eq!(std::fs::read(place.path.join("to/x")).unwrap(), b"0123456789");
        } else {
            assert!(done.is_err() || !faults.is_empty(), "{data:?}");
            assert!(place.there().is_empty(), "{data:?}: {:?}", place.there());
        }
    }
}

/// Says nothing until it was spoken to, or for half a second; then greets. What came before the greeting, and the first command.
fn greeted(listener: &TcpListener, is_to_hang_up: bool) -> (bool, Option<String>) {
    let stream = listener.accept().unwrap().0;
    stream.set_read_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
    let is_first = stream.peek(&mut [0]).is_ok_and(|count| count > 0);
    if is_to_hang_up {
        return (is_first, None);
    }
    stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    (&stream).write_all(b"220 ready\r\n").unwrap();
    let line = read_line(&mut BufReader::new(stream.try_clone().unwrap()));
    let _ = (&stream).write_all(b"500 no TLS here\r\n");
    (is_first, line)
}

#[test]
fn a_server_that_was_a_longhaul_is_spoken_to_before_it_greets_and_asked_as_any_other_where_it_is_none_any_more() {
    let place = Place::new("opening");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let file = place.path.join("home/ftp-longhauls");
    // Who is not known is waited for.
    let server = std::thread::spawn(move || {
        let unknown = greeted(&listener, false);
        (unknown, [true, false].map(|hangs_up| greeted(&listener, hangs_up)))
    });
    let (done, _) = place.get(port, "f", FtpTerms::default());
    assert_eq!(done.unwrap_err().exit, Exit::Negotiation);
    assert!(!file.exists());
    // Who is known is not; where that is not borne it is asked again, as any server is.
    std::fs::write(&file, format!("other:21\n127.0.0.1:{port}\n")).unwrap();
    let (done, _) = place.get(port, "f", FtpTerms::default());
    assert_eq!(done.unwrap_err().exit, Exit::Negotiation);
    let (unknown, [known, again]) = server.join().unwrap();
    assert_eq!(unknown, (false, Some("AUTH TLS".to_owned())));
    assert_eq!(known, (true, None));
    assert_eq!(again, (false, Some("AUTH TLS".to_owned())));
}
