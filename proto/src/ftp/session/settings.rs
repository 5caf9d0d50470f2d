//! What is said for the next command, or of the server.
//!
//! For: TYPE, REST, RANG, ALLO, OPTS, FEAT, PASV, EPSV, PORT, EPRT and what says nothing.
//! In and out: commands; which port was bound.
//! Invariants: a data connection is dialled to the client's own address and to no service (`address::may_dial`); after EPSV ALL there is no other way.
//! Absent on purpose: binding.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::names::Asked;
use super::{Action, Doing, NoPort, Session, Task, Way};
use crate::ftp::address::{self, Extended};
use crate::ftp::command::{Command, Digest, Options, Part, Verb};
use crate::ftp::facts::NAMES;
use crate::ftp::lhdata::Offered;
use crate::ftp::reply::{Reply, quoted};

/// Ranges of a REST: more than a client has whose connections are as many as may be.
const RANGES_MAX: usize = 256;

impl Session {
    /// Commands that are answered at once. An `Err` is no refusal here: it is the reply.
    pub(super) fn settle(&mut self, verb: Verb, command: Command) -> Result<(), Reply> {
        use Verb as V;
        let (code, text) = match command {
            Command::Options(options) => return Err(self.options(options)),
            Command::Allocate(bytes) => return self.work(Asked::Allocate(bytes), Task::Space(Vec::new())),
            Command::Have(ranges) if ranges.len() > RANGES_MAX => (501, "REST with so many ranges is not done."),
            Command::Have(_) if !self.is_blocks => (501, "REST with ranges is for MODE E."),
            Command::Have(ranges) => {
                (self.part, self.have) = (Part::default(), ranges);
                (350, "Without those, with the next command.")
            }
            Command::Restart(from) if self.is_blocks => {
                (self.part, self.have) = (Part::default(), alloc::vec![(0, from)]);
                (350, "From there, with the next command.")
            }
            Command::Restart(from) => {
                self.part = Part { from, to: None };
                (350, "From there, with the next command.")
            }
            Command::Range(range) => {
                self.part = range.map_or(Part::default(), |(from, to)| Part { from, to: Some(to) });
                (350, "Those, with the next command.")
            }
            Command::Extended(extended) => return self.extended(extended),
            Command::Dial(address) => return self.dial(verb, address),
            Command::SiteHelp => (214, "SITE CHMOD mode name, SITE UTIME time name"),
            Command::SiteClient => (200, "Noted."),
            Command::Blocks(true) if self.is_secure => {
                (504, "MODE E goes in clear alone: by TLS there is MODE S, and longhaul:// for several connections.")
            }
            Command::Blocks(blocks) => {
                if core::mem::replace(&mut self.is_blocks, blocks) != blocks {
                    self.forget_way();
                }
                (200, if blocks { "Blocks, over several connections." } else { "A stream." })
            }
            Command::BufferSize(bytes) => {
                self.buffer_bytes = bytes;
                (200, "So large are the buffers of the next data connections, if this host allows as much.")
            }
            Command::Plain(V::DataAuthentication) => (200, "Data connections are not authenticated."),
            Command::Plain(V::StripedPassive) => return self.listen(V::StripedPassive),
            Command::Plain(V::Quit) => {
                self.close(&Reply::new(221, "Good-bye."));
                return Ok(());
            }
            Command::Plain(V::Passive) => return self.listen(V::Passive),
            Command::Plain(V::Up) => return self.on_name(V::Up, b".."),
            Command::Plain(V::Abort) => {
                self.forget_way();
                (226, if core::mem::take(&mut self.has_stopped) { "Aborted." } else { "Nothing was moving." })
            }
            Command::Plain(V::Where) => {
                let text = [&quoted(&self.cwd)[..], b" is where you are."].concat();
                return Err(Reply::of_bytes(257, text));
            }
            Command::Plain(V::Features) => return Err(self.features()),
            Command::Plain(V::Help) => return Err(help()),
            Command::Plain(V::System) => (215, "UNIX Type: L8"),
            Command::Plain(V::Type) => (200, "Bytes go as they are."),
            Command::Plain(V::Structure | V::Noop) => (200, "Yes."),
            Command::Plain(V::Language | V::Client) => (200, "Noted."),
            Command::Plain(V::Host) if self.rights.is_some() => (503, "HOST comes before USER."),
            Command::Plain(V::Host) => (220, "There is one host here."),
            _ => (502, "Not done here."),
        };
        Err(Reply::new(code, text))
    }

    fn options(&mut self, options: Options) -> Reply {
        match options {
            Options::Utf8 => Reply::new(200, "Names are bytes; most are UTF-8."),
            Options::HashAsked => Reply::new(200, self.digest.name()),
            Options::Hash(digest) => {
                self.digest = digest;
                Reply::new(200, digest.name())
            }
            Options::Parallel(parallel) => {
                self.parallel = parallel.unwrap_or(self.parallel);
                Reply::new(200, format!("MODE E sends over {} connections; there is one stripe.", self.parallel))
            }
            Options::Facts(wanted) => {
                self.wanted = wanted;
                let names = NAMES.iter().enumerate().filter(|(at, _)| wanted.has(*at));
                let names: String = names.map(|(_, name)| format!("{name};")).collect();
                Reply::new(200, format!("MLST OPTS {names}"))
            }
        }
    }

    fn features(&self) -> Reply {
        let mut hash = String::from("HASH ");
        for (name, digest) in Digest::OF_HASH {
            hash += name;
            hash += if digest == self.digest { "*;" } else { ";" };
        }
        let mut facts = String::from("MLST ");
        for (at, name) in NAMES.iter().enumerate() {
            facts += name;
            facts += if self.wanted.has(at) { "*;" } else { ";" };
        }
        hash.pop();
        let lines = [
            "AUTH TLS",
            "PBSZ",
            "PROT",
            "EPRT",
            "EPSV",
            "UTF8",
            "SIZE",
            "MDTM",
            "MFMT",
            "MFF modify;UNIX.mode;",
            "REST STREAM",
            "RANG STREAM",
            &facts,
            "TVFS",
            &hash,
            "XCRC",
            "XMD5",
            "XSHA",
            "XSHA1",
            "XSHA256",
            "XSHA512",
            "SITE CHMOD;UTIME",
            "AVBL",
            "CLNT",
            "HOST",
            "LANG EN*",
        ];
        // What TLS covers has no MODE E, and DCAU, which GSI means, is never said.
        let blocks: &[&str] = if self.is_secure { &[] } else { &["PARALLEL", "ERET", "ESTO", "SPAS", "SPOR", "SBUF"] };
        let upgrade = self.terms.lhdata.as_ref().map(Offered::feature);
        let lines = lines.iter().chain(blocks).copied().chain(upgrade.as_deref());
        Reply::of_lines(211, "Features:", lines.map(|line| line.as_bytes().to_vec()), "End")
    }

    fn extended(&mut self, extended: Extended) -> Result<(), Reply> {
        let is_4 = self.terms.local.to_canonical().is_ipv4();
        match (extended, is_4) {
            (Extended::All, _) => {
                self.epsv_only = true;
                Err(Reply::new(200, "EPSV and nothing else."))
            }
            (Extended::Family(2), true) => Err(Reply::new(522, "Network protocol not supported, use (1)")),
            (Extended::Family(1), false) => Err(Reply::new(522, "Network protocol not supported, use (2)")),
            _ => self.listen(Verb::Extended),
        }
    }

    fn dial(&mut self, verb: Verb, address: core::net::SocketAddr) -> Result<(), Reply> {
        self.forget_way();
        self.only_extended(verb)?;
        if !address::may_dial(address, self.terms.peer) {
            return Err(Reply::new(504, "Only your own address is dialled, and ports from 1024 on."));
        }
        self.way = Way::Active(address);
        Err(Reply::new(200, "Yes."))
    }

    fn only_extended(&self, verb: Verb) -> Result<(), Reply> {
        if self.epsv_only && verb != Verb::Extended { Err(Reply::new(501, "You said EPSV ALL.")) } else { Ok(()) }
    }

    fn listen(&mut self, verb: Verb) -> Result<(), Reply> {
        self.forget_way();
        self.only_extended(verb)?;
        if matches!(verb, Verb::Passive | Verb::StripedPassive) && !self.terms.local.to_canonical().is_ipv4() {
            return Err(Reply::new(425, "PASV is for IPv4: EPSV."));
        }
        self.act(Action::Listen);
        self.doing = Doing::Listening(verb);
        Ok(())
    }

    /// What came of `Listen`: the port that was bound.
    pub fn on_listening(&mut self, now_ns: u64, port: Result<u16, NoPort>) {
        self.now_ns = now_ns;
        let Doing::Listening(verb) = self.doing else { return };
        let reply = match (port, self.terms.local.to_canonical()) {
            (Ok(port), IpAddr::V4(own)) if verb == Verb::Passive => {
                let words = address::port_words(self.terms.public.unwrap_or(own), port);
                Reply::new(227, format!("Passive mode ({words})"))
            }
            (Ok(port), IpAddr::V4(own)) if verb == Verb::StripedPassive => {
                let words = address::port_words(self.terms.public.unwrap_or(own), port);
                Reply::of_lines(229, "Striped passive mode, of one stripe:", [words.into_bytes()], "End")
            }
            (Ok(port), _) => Reply::new(229, format!("Extended passive mode (|||{port}|)")),
            (Err(NoPort::AllTaken), _) => {
                Reply::new(425, "No port of --passive-ports is free: try again, or give the server more of them.")
            }
            (Err(NoPort::Other(why)), _) => Reply::new(425, format!("No data port: {why}.")),
        };
        if reply.code != 425 {
            self.way = Way::Passive;
        }
        self.end(&reply);
    }
}

fn help() -> Reply {
    let lines = [
        "USER PASS QUIT AUTH PBSZ PROT CCC HOST CLNT FEAT OPTS LANG SYST STAT NOOP HELP SITE",
        "TYPE MODE STRU ALLO REST RANG PASV EPSV PORT EPRT ABOR",
        "OPTS RETR SPAS SPOR ERET ESTO SBUF DCAU",
        "RETR STOR APPE STOU LIST NLST MLSD MLST SIZE MDTM MFMT MFF AVBL",
        "HASH XCRC XMD5 XSHA XSHA256 XSHA512 LHDATA",
        "PWD CWD CDUP MKD RMD DELE RNFR RNTO SITE CHMOD SITE UTIME",
    ];
    Reply::of_lines(214, "Commands:", lines.iter().map(|line| line.as_bytes().to_vec()), "That is all.")
}
