//! Who competes: programs, and transports of ours, one row each.
//!
//! For: `bench ftp`. In and out: a table → which rows can run here and which cannot, with the reason; a row and values → a command.
//! Invariants: a row that cannot run is told by name; what a row does less than another is said beside it; passwords and this machine's paths
//! are not in the commands that are shown.
//! Absent on purpose: servers (hosts.rs), clocks (turn.rs).

use crate::ftp::hosts::{Hosts, Kind, has_lhdata};
use crate::race::Words;
use crate::race::contestant::is_here;

/// How bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cover {
    Clear,
    Tls,
    /// Longhaul's own frames, each chunk with a tag and a digest that both ends compare.
    Sealed,
}

impl Cover {
    pub fn word(self) -> &'static str {
        ["clear", "TLS", "sealed"][self as usize]
    }
}

/// What a command is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Get,
    Put,
    /// A folder of files in one session.
    Persistent,
    /// The same, a session and a client for each file.
    PerFile,
}

/// One row. In commands `{name}` stands for what only a run knows.
#[derive(Debug)]
pub struct Row {
    pub name: &'static str,
    pub kind: Kind,
    pub client: &'static str,
    pub cover: Cover,
    pub lacks: &'static str,
    /// Held against the others.
    pub ours: bool,
    /// Only the one that this transport names can carry it; it has to be named by our server, and by the report.
    pub transport: &'static str,
    get: &'static str,
    put: &'static str,
    tree: &'static str,
}

/// Neither is read again after it came, nor flushed, and the name is there before the file is whole.
const NOTHING: &str = "no encryption, no digest, no fsync, name before the file is whole";
const TLS_ONLY: &str = "no digest, no fsync, name before the file is whole";
const SERVED: &str = "no encryption; nothing is hashed on its way out, the client has no digest and no fsync";
const SERVED_TLS: &str = "nothing is hashed on its way out, the client has no digest and no fsync";
const FETCHED: &str = "no encryption; the far side has no digest";
const FETCHED_TLS: &str = "the far side has no digest";
const BOTH: &str = "no encryption";

const fn row(name: &'static str, kind: Kind, client: &'static str, cover: Cover, lacks: &'static str) -> Row {
    Row { name, kind, client, cover, lacks, ours: false, transport: "", get: "", put: "", tree: "" }
}

const fn ours(name: &'static str, kind: Kind, cover: Cover, lacks: &'static str, transport: &'static str) -> Row {
    Row { ours: true, transport, ..row(name, kind, "", cover, lacks) }
}

/// All of them, in the order of their turns.
pub const ROWS: &[Row] = &[
    Row {
        get: "curl -sS -o {dst}/{file} ftp://{h}:2201/data/{dir}/{file}",
        put: "curl -sS -T {src} ftp://{h}:2201/in/{file}",
        tree: "curl -sS -o {dst}/f#1 ftp://{h}:2201/data/{dir}/f[0-{last}]",
        ..row("vsftpd, curl", Kind::Vsftpd, "curl", Cover::Clear, NOTHING)
    },
    Row {
        get: "lftp -c 'set cmd:fail-exit yes; set ftp:ssl-allow no; open ftp://{h}:2201; get data/{dir}/{file} -o {dst}/{file}'",
        put: "lftp -c 'set cmd:fail-exit yes; set ftp:ssl-allow no; open ftp://{h}:2201; put {src} -o in/{file}'",
        tree: "lftp -c 'set cmd:fail-exit yes; set ftp:ssl-allow no; open ftp://{h}:2201; mirror data/{dir}/ {dst}'",
        ..row("vsftpd, lftp", Kind::Vsftpd, "lftp", Cover::Clear, NOTHING)
    },
    Row {
        tree: "lftp -c 'set cmd:fail-exit yes; set ftp:ssl-allow no; open ftp://{h}:2201; mirror -P4 data/{dir}/ {dst}'",
        ..row("vsftpd, lftp -P4", Kind::Vsftpd, "lftp", Cover::Clear, NOTHING)
    },
    Row {
        get: "curl -sS -o {dst}/{file} ftp://{h}:2203/data/{dir}/{file}",
        put: "curl -sS -T {src} ftp://{h}:2203/in/{file}",
        tree: "curl -sS -o {dst}/f#1 ftp://{h}:2203/data/{dir}/f[0-{last}]",
        ..row("ProFTPD, curl", Kind::Proftpd, "curl", Cover::Clear, NOTHING)
    },
    Row {
        get: "globus-url-copy ftp://{h}:2811{root}/data/{dir}/{file} file://{dst}/{file}",
        put: "globus-url-copy file://{src} ftp://{h}:2811{root}/in/{file}",
        tree: "globus-url-copy -r ftp://{h}:2811{root}/data/{dir}/ file://{dst}/",
        ..row("GridFTP", Kind::Gridftp, "globus-url-copy", Cover::Clear, NOTHING)
    },
    Row {
        get: "globus-url-copy -fast -p 2 -nodcau -bs 4194304 ftp://{h}:2811{root}/data/{dir}/{file} file://{dst}/{file}",
        put: "globus-url-copy -fast -p 2 -nodcau -bs 4194304 file://{src} ftp://{h}:2811{root}/in/{file}",
        tree: "globus-url-copy -r -fast -nodcau -cc 4 -pp ftp://{h}:2811{root}/data/{dir}/ file://{dst}/",
        ..row("GridFTP, tuned", Kind::Gridftp, "globus-url-copy", Cover::Clear, NOTHING)
    },
    Row {
        get: "curl -sS -u bench:{password} -o {dst}/{file} ftp://{h}:2204/data/{dir}/{file}",
        put: "curl -sS -u bench:{password} -T {src} ftp://{h}:2204/in/{file}",
        tree: "curl -sS -u bench:{password} -o {dst}/f#1 ftp://{h}:2204/data/{dir}/f[0-{last}]",
        client: "curl",
        ..ours("ours, curl", Kind::Ours, Cover::Clear, SERVED, "")
    },
    Row {
        get: "{exe} cp --json --allow-clear ftp://{h}:2201/data/{dir}/{file} {dst}/{file}",
        put: "{exe} cp --json --allow-clear {src} ftp://{h}:2201/in/{file}",
        tree: "{exe} cp --json --allow-clear ftp://{h}:2201/data/{dir} {dst}",
        ..ours("vsftpd, ours", Kind::Vsftpd, Cover::Clear, FETCHED, "")
    },
    Row {
        get: "{exe} cp --json --allow-clear ftp://{h}:2203/data/{dir}/{file} {dst}/{file}",
        put: "{exe} cp --json --allow-clear {src} ftp://{h}:2203/in/{file}",
        tree: "{exe} cp --json --allow-clear ftp://{h}:2203/data/{dir} {dst}",
        ..ours("ProFTPD, ours", Kind::Proftpd, Cover::Clear, FETCHED, "")
    },
    Row {
        get: "{exe} cp --json --allow-clear --password-file {pw} ftp://bench@{h}:2204/data/{dir}/{file} {dst}/{file}",
        put: "{exe} cp --json --allow-clear --password-file {pw} {src} ftp://bench@{h}:2204/in/{file}",
        tree: "{exe} cp --json --allow-clear --password-file {pw} ftp://bench@{h}:2204/data/{dir} {dst}",
        ..ours("ours, ours", Kind::Ours, Cover::Clear, BOTH, "")
    },
    Row {
        get: "curl -sS --ssl-reqd -k -o {dst}/{file} ftp://{h}:2202/data/{dir}/{file}",
        put: "curl -sS --ssl-reqd -k -T {src} ftp://{h}:2202/in/{file}",
        tree: "curl -sS --ssl-reqd -k -o {dst}/f#1 ftp://{h}:2202/data/{dir}/f[0-{last}]",
        ..row("vsftpd, curl", Kind::VsftpdTls, "curl", Cover::Tls, TLS_ONLY)
    },
    Row {
        get: "curl -sS --ssl-reqd -k -o {dst}/{file} ftp://{h}:2205/data/{dir}/{file}",
        put: "curl -sS --ssl-reqd -k -T {src} ftp://{h}:2205/in/{file}",
        tree: "curl -sS --ssl-reqd -k -o {dst}/f#1 ftp://{h}:2205/data/{dir}/f[0-{last}]",
        ..row("ProFTPD, curl", Kind::ProftpdTls, "curl", Cover::Tls, TLS_ONLY)
    },
    Row {
        get: "curl -sS --ssl-reqd -k -u bench:{password} -o {dst}/{file} ftp://{h}:2204/data/{dir}/{file}",
        put: "curl -sS --ssl-reqd -k -u bench:{password} -T {src} ftp://{h}:2204/in/{file}",
        tree: "curl -sS --ssl-reqd -k -u bench:{password} -o {dst}/f#1 ftp://{h}:2204/data/{dir}/f[0-{last}]",
        client: "curl",
        ..ours("ours, curl", Kind::Ours, Cover::Tls, SERVED_TLS, "")
    },
    Row {
        get: "{exe} cp --json --ftp-fingerprint {vfp} ftp://{h}:2202/data/{dir}/{file} {dst}/{file}",
        put: "{exe} cp --json --ftp-fingerprint {vfp} {src} ftp://{h}:2202/in/{file}",
        tree: "{exe} cp --json --ftp-fingerprint {vfp} ftp://{h}:2202/data/{dir} {dst}",
        ..ours("vsftpd, ours", Kind::VsftpdTls, Cover::Tls, FETCHED_TLS, "")
    },
    Row {
        get: "{exe} cp --json --ftp-fingerprint {vfp} ftp://{h}:2205/data/{dir}/{file} {dst}/{file}",
        put: "{exe} cp --json --ftp-fingerprint {vfp} {src} ftp://{h}:2205/in/{file}",
        tree: "{exe} cp --json --ftp-fingerprint {vfp} ftp://{h}:2205/data/{dir} {dst}",
        ..ours("ProFTPD, ours", Kind::ProftpdTls, Cover::Tls, FETCHED_TLS, "")
    },
    Row {
        get: "{exe} cp --json --ftp-fingerprint {fp} --password-file {pw} ftp://bench@{h}:2204/data/{dir}/{file} {dst}/{file}",
        put: "{exe} cp --json --ftp-fingerprint {fp} --password-file {pw} {src} ftp://bench@{h}:2204/in/{file}",
        tree: "{exe} cp --json --ftp-fingerprint {fp} --password-file {pw} ftp://bench@{h}:2204/data/{dir} {dst}",
        ..ours("ours, ours", Kind::Ours, Cover::Tls, "", "ftps")
    },
    own("longhaul:// tcp", "tcp"),
    own("longhaul:// udp", "udp"),
    lhdata("LHDATA tcp", "tcp"),
    lhdata("LHDATA udp", "udp"),
    lhdata("rdma (emulated)", "rdma"),
];

/// Steps of tuning GridFTP; the first with small packets, all with large ones.
pub const TUNING: &[&Row] = &[
    &Row {
        get: "globus-url-copy ftp://{h}:2811{root}/data/{dir}/{file} file://{dst}/{file}",
        ..row("GridFTP as it is", Kind::Gridftp, "globus-url-copy", Cover::Clear, NOTHING)
    },
    &Row {
        get: "globus-url-copy -p 4 ftp://{h}:2811{root}/data/{dir}/{file} file://{dst}/{file}",
        ..row("GridFTP + 4 streams", Kind::Gridftp, "globus-url-copy", Cover::Clear, NOTHING)
    },
    &Row {
        get: "globus-url-copy -p 4 -tcp-bs 8388608 -bs 4194304 ftp://{h}:2811{root}/data/{dir}/{file} file://{dst}/{file}",
        ..row("GridFTP + TCP buffer and block", Kind::Gridftp, "globus-url-copy", Cover::Clear, NOTHING)
    },
];

const fn own(name: &'static str, transport: &'static str) -> Row {
    Row {
        get: "{exe} cp --json --transport={transport} longhaul://{ticket}@{h}:5740/data/{dir}/{file} {dst}/{file}",
        put: "{exe} cp --json --transport={transport} {src} longhaul://{ticket}@{h}:5740/in/{file}",
        tree: "{exe} cp --json --transport={transport} longhaul://{ticket}@{h}:5740/data/{dir}/. {dst}/",
        ..ours(name, Kind::Daemon, Cover::Sealed, "", transport)
    }
}

const fn lhdata(name: &'static str, transport: &'static str) -> Row {
    Row {
        get: "{exe} cp --json --transport={transport} --ftp-fingerprint {fp} --password-file {pw} ftp://bench@{h}:2204/data/{dir}/{file} {dst}/{file}",
        put: "{exe} cp --json --transport={transport} --ftp-fingerprint {fp} --password-file {pw} {src} ftp://bench@{h}:2204/in/{file}",
        tree: "{exe} cp --json --transport={transport} --ftp-fingerprint {fp} --password-file {pw} ftp://bench@{h}:2204/data/{dir} {dst}",
        ..ours(name, Kind::Ours, Cover::Sealed, "", transport)
    }
}

impl Row {
    /// Its name, which no other row has.
    pub fn title(&self) -> String {
        format!("{} ({})", self.name, self.cover.word())
    }

    /// Its command for this, with these values; none: it has no such way.
    pub fn command(&self, way: Way, values: &[(&str, &str)]) -> Option<Vec<String>> {
        let line = match way {
            Way::Get | Way::PerFile => self.get,
            Way::Put => self.put,
            Way::Persistent => self.tree,
        };
        let values = [&[("transport", self.transport)], values].concat();
        match way {
            _ if line.is_empty() => None,
            Way::PerFile => {
                // The quotes of a word stay: it is a shell that reads them.
                let line = line.replace('\'', "\"").replace("{file}", "f$i");
                let all = format!("i=0; while [ $i -le {{last}} ]; do {line} || exit 1; i=$((i+1)); done");
                Some(Words::shell(&all).fill(&values))
            }
            _ => Some(Words::parse(line).fill(&values)),
        }
    }

    /// Its command as the record has it.
    pub fn shown(&self, way: Way) -> String {
        let names = [
            ("exe", "longhaul"),
            ("dst", "DST"),
            ("src", "SRC"),
            ("h", "B"),
            ("root", "/ROOT"),
            ("pw", "FILE"),
            ("password", "PASSWORD"),
            ("ticket", "TICKET"),
            ("fp", "FINGERPRINT"),
            ("vfp", "FINGERPRINT"),
            ("dir", "FOLDER"),
            ("last", "LAST"),
        ];
        let names: Vec<_> =
            if way == Way::PerFile { names.to_vec() } else { [&names[..], &[("file", "NAME")]].concat() };
        let words = self.command(way, &names).unwrap_or_default();
        match &words[..] {
            [shell, option, line] if shell == "sh" && option == "-c" => line.clone(),
            _ => Words(words).show(&[]),
        }
    }

    /// Why it cannot run in this build or on this machine.
    pub fn why_not(&self, hosts: &Hosts) -> Option<String> {
        let absent = |name: &&str| !name.is_empty() && !is_here(name);
        let openssl = if matches!(self.kind, Kind::VsftpdTls | Kind::ProftpdTls) { "openssl" } else { "" };
        if let Some(name) = [self.kind.of().0, self.client, openssl].into_iter().find(absent) {
            return Some(format!("{name} is not installed"));
        }
        let wants = self.cover == Cover::Sealed && self.kind == Kind::Ours;
        (wants && !has_lhdata(hosts, self.transport))
            .then(|| format!("this build's server of FTP does not offer LHDATA with {}", self.transport))
    }
}

/// Does each of these texts choose a row? Errors: the first that chooses none, and the names there are.
pub fn known(texts: &[String]) -> Result<(), String> {
    let unknown = |text: &&String| *text != "auto" && !ROWS.iter().any(|row| row.title().contains(text.as_str()));
    let Some(text) = texts.iter().find(unknown) else { return Ok(()) };
    let titles: Vec<String> = ROWS.iter().map(Row::title).collect();
    Err(format!("no row's name holds {text:?}: they are {}", titles.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_title_of_its_own_and_shows_neither_password_nor_gap() {
        for (at, row) in ROWS.iter().enumerate() {
            assert!(ROWS[..at].iter().all(|other| other.title() != row.title()), "{}", row.title());
            for way in [Way::Get, Way::Put, Way::Persistent, Way::PerFile] {
                let shown = row.shown(way);
                assert!(!shown.contains('{'), "{shown}");
            }
        }
    }

    #[test]
    fn a_text_that_chooses_no_row_is_named() {
        let texts = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        assert_eq!(known(&texts(&["auto", "ProFTPD", "curl (TLS)"])), Ok(()));
        let why = known(&texts(&["vsftpd", "proftpd"])).unwrap_err();
        assert!(why.starts_with("no row's name holds \"proftpd\": they are vsftpd, curl (clear); "), "{why}");
    }

    #[test]
    fn a_session_for_each_file_is_the_same_command_in_a_loop() {
        let words =
            ROWS[0].command(Way::PerFile, &[("h", "10.0.0.2"), ("dst", "/d"), ("dir", "s"), ("last", "9")]).unwrap();
        assert_eq!(
            words[2],
            "i=0; while [ $i -le 9 ]; do curl -sS -o /d/f$i ftp://10.0.0.2:2201/data/s/f$i || exit 1; i=$((i+1)); done"
        );
    }
}
