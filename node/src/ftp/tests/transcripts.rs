//! What programs with windows say, which no test can run: FileZilla's and WinSCP's own orders of commands, played by TLS against the real server.
//!
//! In and out: a transcript, a command a line with the code that it waits for; what came of the files out.
//! Invariants: each order is the program's own (FileZilla 3 `src/engine/ftp`: logon, list, filetransfer; WinSCP 6 `source/filezilla/FtpControlSocket.cpp`), with
//! one session of TLS for all connections, as both have it.
//! Absent on purpose: what they show; their own retries.

use super::*;

/// What a command moves on the data connection that the PASV or EPSV before it opened.
#[derive(Clone, Copy)]
enum Moves {
    Nothing,
    /// A listing with these in it.
    Listing(&'static [&'static str]),
    /// These bytes come.
    Comes(&'static [u8]),
    /// These bytes go.
    Goes(&'static [u8]),
}

use Moves::{Comes, Goes, Listing, Nothing};

/// A command, the code of its last reply, and what it moves.
type Said = (&'static str, &'static str, Moves);

/// After AUTH TLS: a site is opened, its folder is read, files go both ways, a file is renamed, gets its rights, and is deleted.
const FILEZILLA: &[Said] = &[
    ("USER ada", "331", Nothing),
    ("PASS *", "230", Nothing),
    ("SYST", "215", Nothing),
    ("FEAT", "211", Nothing),
    ("CLNT FileZilla", "200", Nothing),
    ("OPTS UTF8 ON", "200", Nothing),
    ("PBSZ 0", "200", Nothing),
    ("PROT P", "200", Nothing),
    ("OPTS MLST type;size;modify;perm;unix.mode;unix.owner;unix.group;", "200", Nothing),
    ("PWD", "257", Nothing),
    ("TYPE I", "200", Nothing),
    ("PASV", "227", Nothing),
    ("MLSD", "226", Listing(&["type=file;", "size=10;", "; there", "type=dir;", "; gr\u{fc}n und \"wei\u{df}\""])),
    // A file is pulled, and goes on where it was.
    ("PASV", "227", Nothing),
    ("RETR there", "226", Comes(b"0123456789")),
    ("PASV", "227", Nothing),
    ("REST 4", "350", Nothing),
    ("RETR there", "226", Comes(b"456789")),
    // One is pushed into a folder, with its time, and goes on.
    ("CWD /gr\u{fc}n und \"wei\u{df}\"", "250", Nothing),
    ("PWD", "257", Nothing),
    ("PASV", "227", Nothing),
    ("STOR new one", "226", Goes(b"half")),
    ("MFMT 20240229115900 new one", "213", Nothing),
    ("SIZE new one", "213 4", Nothing),
    ("PASV", "227", Nothing),
    ("APPE new one", "226", Goes(b" and half")),
    ("MDTM new one", "213", Nothing),
    ("MFMT 20240229115900 new one", "213", Nothing),
    ("PASV", "227", Nothing),
    ("MLSD", "226", Listing(&["size=13;", "modify=20240229115900;", "; new one"])),
    ("RNFR new one", "350", Nothing),
    ("RNTO newer", "250", Nothing),
    ("SITE CHMOD 640 newer", "200", Nothing),
    ("MKD sub", "257", Nothing),
    ("CWD sub", "250", Nothing),
    ("CDUP", "250", Nothing),
    ("RMD sub", "250", Nothing),
    // Kept alive between what its user does.
    ("NOOP", "200", Nothing),
    ("TYPE I", "200", Nothing),
    ("PWD", "257", Nothing),
    ("DELE /there", "250", Nothing),
    ("QUIT", "221", Nothing),
];

/// The same of WinSCP, which also asks for single names, sums and room, and lists by TYPE A.
const WINSCP: &[Said] = &[
    ("HOST localhost", "220", Nothing),
    ("USER ada", "331", Nothing),
    ("PASS *", "230", Nothing),
    ("SYST", "215", Nothing),
    ("FEAT", "211", Nothing),
    ("CLNT WinSCP-release-6.3", "200", Nothing),
    ("OPTS UTF8 ON", "200", Nothing),
    ("PBSZ 0", "200", Nothing),
    ("PROT P", "200", Nothing),
    ("PWD", "257", Nothing),
    ("CWD /", "250", Nothing),
    ("PWD", "257", Nothing),
    ("TYPE A", "200", Nothing),
    ("PASV", "227", Nothing),
    ("MLSD", "226", Listing(&["; there", "; gr\u{fc}n und \"wei\u{df}\""])),
    // Servers without MLSD are listed so; the names that begin with a dot as well.
    ("PASV", "227", Nothing),
    ("LIST -a", "226", Listing(&["-rw", " 10 ", " there", "drwx"])),
    ("MLST /there", "250", Nothing),
    ("SIZE /there", "213 10", Nothing),
    ("MDTM /there", "213", Nothing),
    ("TYPE I", "200", Nothing),
    ("PASV", "227", Nothing),
    ("RETR there", "226", Comes(b"0123456789")),
    ("PASV", "227", Nothing),
    ("REST 9", "350", Nothing),
    ("RETR there", "226", Comes(b"9")),
    ("PASV", "227", Nothing),
    ("STOR gr\u{fc}n und \"wei\u{df}\"/new", "226", Goes(b"half")),
    ("MFMT 20240229115900 gr\u{fc}n und \"wei\u{df}\"/new", "213", Nothing),
    ("TYPE I", "200", Nothing),
    ("PASV", "227", Nothing),
    ("REST 4", "350", Nothing),
    ("STOR gr\u{fc}n und \"wei\u{df}\"/new", "226", Goes(b" and half")),
    ("OPTS HASH SHA-256", "200", Nothing),
    ("HASH gr\u{fc}n und \"wei\u{df}\"/new", "213 SHA-256 0-13 ", Nothing),
    ("RNFR gr\u{fc}n und \"wei\u{df}\"/new", "350", Nothing),
    ("RNTO gr\u{fc}n und \"wei\u{df}\"/newer", "250", Nothing),
    ("SITE CHMOD 640 gr\u{fc}n und \"wei\u{df}\"/newer", "200", Nothing),
    ("AVBL /", "213", Nothing),
    ("MKD /sub", "257", Nothing),
    ("RMD /sub", "250", Nothing),
    // Its ways of keeping a session alive.
    ("REST 0", "350", Nothing),
    ("TYPE A", "200", Nothing),
    ("CWD .", "250", Nothing),
    ("DELE there", "250", Nothing),
    ("QUIT", "221", Nothing),
];

/// Where a reply to PASV (RFC 959 section 4.1.2) or EPSV (RFC 2428 section 3) says.
fn data_port(reply: &str) -> Option<u16> {
    let numbers: Vec<u16> = reply.split(|it: char| !it.is_ascii_digit()).filter_map(|it| it.parse().ok()).collect();
    match (numbers.first(), numbers.len()) {
        (Some(227), 7) => Some(numbers[5] * 256 + numbers[6]),
        (Some(229), 2) => Some(numbers[1]),
        _ => None,
    }
}

/// One command with what it moves; the last reply.
fn said(client: &mut Client<Tls>, config: &Arc<ClientConfig>, line: &str, (port, moves): (u16, Moves)) -> String {
    if matches!(moves, Nothing) {
        return client.ask(line);
    }
    let data = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.wants(line, "150");
    let mut data = covered(config, data);
    let mut got = Vec::new();
    match moves {
        Goes(bytes) => {
            data.write_all(bytes).unwrap();
            data.conn.send_close_notify();
            data.flush().unwrap();
        }
        _ => drop(data.read_to_end(&mut got).unwrap()),
    }
    match moves {
        Comes(bytes) => assert_eq!(got, bytes, "{line}"),
        Listing(all) => {
            let text = String::from_utf8(got).unwrap();
            let missing: Vec<_> = all.iter().filter(|it| !text.to_lowercase().contains(&it.to_lowercase())).collect();
            assert!(missing.is_empty(), "{line}: no {missing:?} in {text}");
        }
        Goes(_) | Nothing => {}
    }
    client.hear()
}

fn play(name: &str, transcript: &[Said]) {
    let folder = "gr\u{fc}n und \"wei\u{df}\"";
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let rig = Rig::new(name, |settings| settings.clear = Vec::new());
        std::fs::create_dir(rig.root().join(folder)).unwrap();
        std::fs::write(rig.root().join("there"), b"0123456789").unwrap();
        let config = client_config(version);
        let mut client = rig.client();
        client.wants("AUTH TLS", "234");
        let mut client = Client { line: BufReader::new(covered(&config, client.line.into_inner())) };
        let mut port = 0;
        for (line, code, moves) in transcript {
            let line = line.replace("PASS *", &format!("PASS {}", rig.password));
            let reply = said(&mut client, &config, &line, (port, *moves));
            assert!(reply.starts_with(code), "{name}, {version:?}, {line}: {reply}");
            port = data_port(&reply).unwrap_or(port);
        }
        let newer = rig.root().join(folder).join("newer");
        assert_eq!(std::fs::read(&newer).unwrap(), b"half and half");
        let rights = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&newer).unwrap().permissions());
        assert_eq!(rights & 0o7777, 0o640);
        assert!(!rig.root().join("there").exists() && !rig.root().join("sub").exists());
    }
}

#[test]
fn a_session_as_filezilla_has_it_does_what_its_user_wants() {
    play("filezilla", FILEZILLA);
}

#[test]
fn a_session_as_winscp_has_it_does_what_its_user_wants() {
    play("winscp", WINSCP);
}
