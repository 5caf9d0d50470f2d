//! The daemon's settings: config file, then flags, then defaults.
//!
//! For: `longhaul serve`, and its reload at SIGHUP.
//! In and out: TOML text and `ServeArguments` → `Settings`; two `Settings` → what changed and what needs a restart.
//! Invariants: an unknown key, a wrong type or a wrong unit is an error that names file, line and key; a flag always wins, at a
//!   reload as well; a reload that cannot be read changes nothing.
//! Absent on purpose: keys and rights (identity/), acting on the settings (serve/).

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

use crate::args::{LISTEN_DEFAULT, ServeArguments, TicketChoice};
use node::identity::ticket::Uses;
use node::job::receipt::retention::Keep;
use node::link::reachable::PublicName;
use node::request::MEMORY_DEFAULT_BYTES;
use node::serve::LogFormat;
use node::serve::relay_to::RelayWord;
use node::serve::settings::{IDLE_TIMEOUT_DEFAULT, JOBS_MAX_DEFAULT, Settings, TicketAccess};
use text::attempt::Attempt;
use text::exit::{Exit, Failure};
use text::units::{self, UnitError};

/// A config file is a page of text; more is not one.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// The config file as it is written. Every key may be left out.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    listen: Option<SocketAddr>,
    root: Option<PathBuf>,
    #[serde(default, deserialize_with = "size")]
    memory: Option<u64>,
    #[serde(default, deserialize_with = "workers")]
    workers: Option<u16>,
    #[serde(default, deserialize_with = "rate")]
    rate: Option<u64>,
    integrity_only: Option<bool>,
    rdma_device: Option<String>,
    bare: Option<bool>,
    authorized_keys: Option<PathBuf>,
    #[serde(default, deserialize_with = "duration")]
    idle_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "jobs_max")]
    jobs_max: Option<u32>,
    user: Option<String>,
    privileged: Option<bool>,
    #[serde(default, deserialize_with = "relay_to")]
    relay_to: Option<Vec<RelayWord>>,
    #[serde(default, deserialize_with = "public")]
    public: Option<Vec<PublicName>>,
    #[serde(default, deserialize_with = "log")]
    log: Option<LogFormat>,
    #[serde(default, deserialize_with = "keep")]
    receipts_keep: Option<Keep>,
    /// Options of `longhaul ftp serve`.
    ftp: Option<toml::Table>,
}

/// The table `[ftp]` of the config file, if there is one.
///
/// # Errors
/// As `load`.
pub fn ftp_table(arguments: &ServeArguments) -> Result<Option<toml::Table>, Failure> {
    Ok(arguments.config.as_deref().map(read).transpose()?.and_then(|file| file.ftp))
}

/// Reads the config file, if one is named, and lets the flags win. The same call reloads.
///
/// # Errors
/// `Exit::Usage` for a config file that cannot be understood or a root that nobody named; the system's error for one
/// that cannot be read.
pub fn load(arguments: &ServeArguments) -> Result<Settings, Failure> {
    let file = match &arguments.config {
        Some(path) => read(path)?,
        None => ConfigFile::default(),
    };
    merge(file, arguments)
}

fn merge(file: ConfigFile, arguments: &ServeArguments) -> Result<Settings, Failure> {
    let root = arguments.root.clone().or(file.root);
    // Through ssh the far side has exactly the user's own rights: nothing is served that ssh would not give.
    let root = root.or_else(|| arguments.stdio.then(|| PathBuf::from("/")));
    let root = root.ok_or_else(|| {
        let failure = Exit::Usage.fail("start the daemon", "no folder to serve was named");
        failure.next("name one with --root DIR, or with root = \"DIR\" in the config file")
    })?;
    let listen =
        arguments.listen.or(file.listen).unwrap_or_else(|| LISTEN_DEFAULT.parse().expect("the default is an address"));
    Ok(Settings {
        listen,
        root,
        memory_bytes: arguments.memory.or(file.memory).unwrap_or(MEMORY_DEFAULT_BYTES),
        workers: arguments.workers.or(file.workers),
        rate_bps: arguments.rate.or(file.rate),
        integrity_only: arguments.integrity_only || file.integrity_only.unwrap_or(false),
        rdma_device: arguments.rdma_device.clone().or(file.rdma_device).map(Into::into),
        bare: arguments.bare || file.bare.unwrap_or(false),
        authorized_keys: file.authorized_keys,
        idle_timeout: file.idle_timeout.unwrap_or(IDLE_TIMEOUT_DEFAULT),
        jobs_max: file.jobs_max.unwrap_or(JOBS_MAX_DEFAULT),
        user: file.user,
        ticket: arguments.ticket.map(|choice| match choice {
            TicketChoice::Once => Uses::Once,
            TicketChoice::Reusable => Uses::Many,
        }),
        ticket_access: match (arguments.ro, arguments.wo) {
            (true, _) => TicketAccess::ReadOnly,
            (_, true) => TicketAccess::WriteOnly,
            _ => TicketAccess::Both,
        },
        // Through ssh the far side has the user's own rights and no others: the kernel says what these permit.
        privileged: arguments.privileged || arguments.stdio || file.privileged.unwrap_or(false),
        relay_to: Some(arguments.relay_to.clone()).filter(|words| !words.is_empty()).or(file.relay_to),
        public: Some(arguments.public.clone()).filter(|names| !names.is_empty()).or(file.public).unwrap_or_default(),
        driver: arguments.driver.into(),
        logins_only: false,
        stdio: arguments.stdio,
        ports: arguments.ports,
        receipts_keep: file.receipts_keep,
        verbose: arguments.verbose,
        log: arguments.log.or(file.log).unwrap_or_default(),
    })
}

fn read(path: &Path) -> Result<ConfigFile, Failure> {
    let what = || format!("read the config file {}", path.display());
    let facts = std::fs::metadata(path).map_err(|error| Attempt::Config.fail(what(), &error))?;
    if facts.len() > CONFIG_BYTES_MAX {
        let failure = Exit::Usage.fail(what(), format!("it is bigger than {}", units::exact_size(CONFIG_BYTES_MAX)));
        return Err(failure.next("name a file like longhaul.toml of the distribution behind --config"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => Exit::Usage
            .fail(what(), "it is not UTF-8 text")
            .next("name a file like longhaul.toml of the distribution behind --config"),
        _ => Attempt::Config.fail(what(), &error),
    })?;
    parse(&text).map_err(|fault| {
        let failure = Exit::Usage.fail(what(), format!("line {}: {}", fault.line, fault.text));
        failure.next(format!(
            "mend line {} of {}; keys are listed in longhaul.toml of the distribution",
            fault.line,
            path.display()
        ))
    })
}

/// Where and why a config file cannot be understood.
#[derive(Debug, PartialEq, Eq)]
struct ConfigFault {
    /// From 1.
    line: usize,
    text: String,
}

fn parse(text: &str) -> Result<ConfigFile, ConfigFault> {
    toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line_start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let line_text = text[line_start..].lines().next().unwrap_or_default();
        let key = line_text.split('=').next().unwrap_or_default().trim();
        let message = error.message().trim().replace('\n', " ");
        let text_of_fault = if key.is_empty() || message.contains(key) { message } else { format!("{key}: {message}") };
        ConfigFault { line: text[..at].matches('\n').count() + 1, text: text_of_fault }
    })
}

/// A text value read by one of the parsers of units.rs, so that the error says which unit to write.
fn quantity<'de, D: Deserializer<'de>, T>(
    from: D,
    parse: fn(&str) -> Result<T, UnitError>,
) -> Result<Option<T>, D::Error> {
    struct Visit<T>(fn(&str) -> Result<T, UnitError>);
    impl<T> de::Visitor<'_> for Visit<T> {
        type Value = T;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("a text with a number and its unit, in quotes")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            self.0(text).map_err(|error| E::custom(format!("\"{text}\": {error}")))
        }
    }
    from.deserialize_str(Visit(parse)).map(Some)
}

fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    quantity(from, units::parse_size)
}

fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    quantity(from, units::parse_rate)
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    quantity(from, units::parse_duration)
}

/// An empty list is nobody.
fn relay_to<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<RelayWord>>, D::Error> {
    list(from)
}

fn public<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<PublicName>>, D::Error> {
    list(from)
}

/// One word, or a list of them.
fn list<'de, D: Deserializer<'de>, T: FromStr>(from: D) -> Result<Option<Vec<T>>, D::Error>
where
    T::Err: fmt::Display,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Words {
        One(String),
        Some(Vec<String>),
    }
    let words = match Words::deserialize(from)? {
        Words::One(word) => vec![word],
        Words::Some(words) => words,
    };
    let read = |word: &String| word.parse().map_err(|wanted| de::Error::custom(format!("\"{word}\": {wanted}")));
    words.iter().map(read).collect::<Result<_, _>>().map(Some)
}

fn log<'de, D: Deserializer<'de>>(from: D) -> Result<Option<LogFormat>, D::Error> {
    let word = String::deserialize(from)?;
    word.parse().map(Some).map_err(|wanted| de::Error::custom(format!("\"{word}\": {wanted}")))
}

fn keep<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Keep>, D::Error> {
    let word = String::deserialize(from)?;
    word.parse().map(Some).map_err(|wanted| de::Error::custom(format!("\"{word}\": {wanted}")))
}

fn workers<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u16>, D::Error> {
    let count = u16::deserialize(from)?;
    if (1..=1_024).contains(&count) { Ok(Some(count)) } else { Err(de::Error::custom("workers are from 1 to 1024")) }
}

fn jobs_max<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let count = u32::deserialize(from)?;
    if count > 0 { Ok(Some(count)) } else { Err(de::Error::custom("jobs_max is at least 1")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use node::link::reachable;
    use node::serve::relay_to;

    const FULL: &str = r#"
listen = "10.0.0.1:5741"
root = "/srv/data"
memory = "1GiB"
workers = 4
rate = "9Gbit"
integrity_only = true
authorized_keys = "/etc/longhaul/authorized_keys"
idle_timeout = "2min"
jobs_max = 300
user = "longhaul"
privileged = true
relay_to = ["node7:5740", "192.0.2.7"]
public = ["data.example.org", "[2001:db8::7]:99"]
log = "json"
receipts_keep = "90d / 10 GiB"
"#;

    fn settings(text: &str, arguments: &ServeArguments) -> Settings {
        merge(parse(text).unwrap(), arguments).unwrap()
    }

    #[test]
    fn every_key_is_read() {
        let read = settings(FULL, &ServeArguments::default());
        assert_eq!(read.listen, "10.0.0.1:5741".parse().unwrap());
        assert_eq!(read.root, PathBuf::from("/srv/data"));
        assert_eq!((read.memory_bytes, read.workers, read.rate_bps), (1 << 30, Some(4), Some(9_000_000_000)));
        assert!(read.integrity_only && read.log == LogFormat::Json);
        assert_eq!(read.receipts_keep.map(|keep| keep.to_string()).as_deref(), Some("90d / 10GiB"));
        assert_eq!(read.authorized_keys, Some(PathBuf::from("/etc/longhaul/authorized_keys")));
        assert_eq!((read.idle_timeout, read.jobs_max), (Duration::from_secs(120), 300));
        assert_eq!(read.user.as_deref(), Some("longhaul"));
        assert_eq!(relay_to::show(read.relay_to.as_deref()), "node7:5740 192.0.2.7");
        assert_eq!(reachable::show(&read.public), "data.example.org [2001:db8::7]:99");
        let nobody = settings("root = \"/r\"\nrelay_to = \"none\"", &ServeArguments::default());
        assert!(!relay_to::permits(nobody.relay_to.as_deref(), "node7", 5740));
        assert!(read.privileged && !settings("root = \"/r\"", &ServeArguments::default()).privileged);
    }

    #[test]
    fn the_example_of_the_distribution_can_be_read() {
        let example = include_str!("../../dist/longhaul.toml");
        settings(example, &ServeArguments::default());
        // With every line that is commented out as well.
        let all: String = example
            .lines()
            .map(|line| line.strip_prefix("#=").unwrap_or(line))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_ne!(all.trim(), example.trim());
        let every = parse(&all).unwrap();
        assert!(
            every.user.is_some() && every.rate.is_some() && every.workers.is_some() && every.authorized_keys.is_some()
        );
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let flags = ServeArguments {
            root: Some("/flag".into()),
            memory: Some(1 << 20),
            rate: Some(8),
            listen: Some("127.0.0.1:1".parse().unwrap()),
            workers: Some(1),
            wo: true,
            ..ServeArguments::default()
        };
        let merged = settings(FULL, &flags);
        assert_eq!(merged.root, PathBuf::from("/flag"));
        assert_eq!((merged.memory_bytes, merged.rate_bps, merged.workers), (1 << 20, Some(8), Some(1)));
        assert_eq!(merged.listen, "127.0.0.1:1".parse().unwrap());
        assert_eq!(merged.ticket_access, TicketAccess::WriteOnly);
        let bare = settings("root = \"/r\"", &ServeArguments::default());
        assert_eq!((bare.memory_bytes, bare.rate_bps, bare.workers), (MEMORY_DEFAULT_BYTES, None, None));
        assert_eq!((bare.listen, bare.integrity_only), (LISTEN_DEFAULT.parse().unwrap(), false));
        assert_eq!((bare.idle_timeout, bare.jobs_max), (IDLE_TIMEOUT_DEFAULT, JOBS_MAX_DEFAULT));
    }

    #[test]
    fn a_wrong_file_is_an_error_that_names_line_and_key() {
        for (text, line, part) in [
            ("root = \"/r\"\nroots = \"/s\"", 2, "unknown field `roots`"),
            ("\n\nrate = \"10Gb\"", 3, "rate: \"10Gb\": the unit 'Gb'"),
            ("memory = 256", 1, "memory: invalid type: integer `256`, expected a text with a number and its unit"),
            ("workers = 0", 1, "workers are from 1 to 1024"),
            ("workers = \"4\"", 1, "workers: invalid type"),
            ("listen = \"localhost\"", 1, "listen"),
            ("jobs_max = 0", 1, "jobs_max is at least 1"),
            ("root = \"/r\"\nroot = \"/s\"", 2, "duplicate key"),
            ("[tls]\nx = 1", 1, "unknown field `tls`"),
            ("root = ", 1, "root"),
            ("receipts_keep = \"90\"", 1, "receipts_keep: \"90\": write an age in days, a size, or both"),
            ("log = \"xml\"", 1, "log: \"xml\": write text or json"),
            ("idle_timeout = \"5 m\"", 1, "idle_timeout: \"5 m\""),
        ] {
            let fault = parse(text).expect_err(text);
            assert_eq!(fault.line, line, "{text}: {fault:?}");
            assert!(fault.text.contains(part), "{text}: {fault:?}");
        }
    }

    #[test]
    fn the_files_name_stands_in_the_failure() {
        let path = std::env::temp_dir().join(format!("longhaul-config-{}.toml", std::process::id()));
        std::fs::write(&path, "root = \"/r\"\nspeed = 1\n").unwrap();
        let arguments = ServeArguments { config: Some(path.clone()), ..ServeArguments::default() };
        let failure = load(&arguments).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.what.contains(&path.display().to_string()));
        assert!(failure.cause.starts_with("line 2: unknown field `speed`"), "{}", failure.cause);
        let gone = load(&arguments).unwrap_err();
        assert!(gone.exit == Exit::Usage && gone.next_step.contains("--config"), "{gone}");
    }

    #[test]
    fn without_a_root_the_daemon_does_not_start_but_ssh_starts_it_with_the_users_own_rights() {
        let failure = load(&ServeArguments::default()).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.next_step.contains("--root"));
        let stdio = ServeArguments { stdio: true, ..ServeArguments::default() };
        assert_eq!(load(&stdio).unwrap().root, PathBuf::from("/"));
    }

    #[test]
    fn a_reload_applies_what_can_change_and_says_what_cannot() {
        let mut running = settings(FULL, &ServeArguments::default());
        let same = running.clone();
        assert_eq!(running.reload(same.clone()), Vec::<String>::new());
        let mut new = same.clone();
        new.rate_bps = None;
        new.jobs_max = 5;
        new.root = "/elsewhere".into();
        new.memory_bytes = 1;
        let said = running.reload(new);
        assert_eq!(
            said,
            [
                "rate is none now (was 9Gbit/s)",
                "jobs_max is 5 for new jobs (was 300)",
                "root has changed in the config file; that needs a restart, the old value stays",
                "memory has changed in the config file; that needs a restart, the old value stays",
            ]
        );
        assert_eq!((running.rate_bps, running.jobs_max), (None, 5));
        assert_eq!((running.root, running.memory_bytes), (same.root, same.memory_bytes));
    }
}
