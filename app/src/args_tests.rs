//! Tests of the command line: each option is parsed, each wrong line is refused.

use std::os::unix::ffi::OsStringExt;

use clap::CommandFactory;
use proto::manifest::Aspects;

use proto::storage::Engine;

use super::*;

fn parse(line: &str) -> Result<Command, clap::Error> {
    Arguments::try_parse_from(std::iter::once("longhaul").chain(line.split(' '))).map(|arguments| arguments.command)
}

fn cp(options: &str) -> CpArguments {
    match parse(&format!("cp {options} a b")) {
        Ok(Command::Cp(arguments)) => *arguments,
        Ok(other) => panic!("{options}: {other:?}"),
        Err(error) => panic!("{options}: {error}"),
    }
}

fn serve(line: &str) -> ServeArguments {
    match parse(line) {
        Ok(Command::Serve(arguments)) => *arguments,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn the_definition_is_sound() {
    Arguments::command().debug_assert();
}

#[test]
fn each_option_of_cp_is_read() {
    type Check = fn(&CpArguments) -> bool;
    let table: &[(&str, Check)] = &[
        ("--rate 10Gbit", |a| a.rate == Some(10_000_000_000)),
        ("--rate 1.5GB/s", |a| a.rate == Some(12_000_000_000)),
        ("--dry-run", |a| a.dry_run),
        ("-n", |a| a.dry_run),
        ("--rung received", |a| Rung::from(a.rung) == Rung::Received),
        ("--rung written", |a| Rung::from(a.rung) == Rung::Written),
        ("--rung flushed", |a| Rung::from(a.rung) == Rung::Flushed),
        ("--rung published", |a| Rung::from(a.rung) == Rung::Published),
        ("--streams 4", |a| a.streams == Some(4)),
        ("--transport udp", |a| a.transport == TransportChoice::Udp),
        ("--transport auto", |a| a.transport == TransportChoice::Auto),
        ("--policy low", |a| Policy::from(a.policy) == Policy::Low),
        ("--min-rate 10Mbit", |a| a.min_rate == Some(10_000_000)),
        ("--law cubic", |a| Law::from(a.law) == Law::Cubic),
        ("--memory 64MiB", |a| a.memory == 64 << 20),
        ("--json", |a| a.json),
        ("--explain", |a| a.explain),
        ("-v", |a| a.verbose == 1),
        ("-vv", |a| a.verbose == 2),
        ("--integrity-only", |a| a.integrity_only),
        ("--digest blake3", |a| DigestKind::from(a.digest) == DigestKind::Blake3),
        ("--digest crc64", |a| DigestKind::from(a.digest) == DigestKind::Crc64),
        ("--cipher aes128", |a| a.cipher.map(Cipher::from) == Some(Cipher::Aes128Gcm)),
        ("--cipher aes256", |a| a.cipher.map(Cipher::from) == Some(Cipher::Aes256Gcm)),
        ("--cipher chacha20", |a| a.cipher.map(Cipher::from) == Some(Cipher::ChaCha20Poly1305)),
        ("--chunk 4MiB", |a| a.chunk == Some(4 << 20)),
        ("--driver uring", |a| a.driver == DriverChoice::Uring),
        ("--driver plain", |a| a.driver == DriverChoice::Plain),
        ("--io-mode direct", |a| a.engine == Engines::both(Engine::Direct)),
        // Its name before.
        ("--engine direct", |a| a.engine == Engines::both(Engine::Direct)),
        ("--io-mode read=mmap,write=early", |a| {
            a.engine == Engines { read: Some(Engine::Mmap), write: Some(Engine::Early) }
        }),
        ("--workers 3", |a| a.workers == Some(3)),
        ("--stall 5", |a| a.stall == Duration::from_secs(5)),
        ("--stall 500ms", |a| a.stall == Duration::from_millis(500)),
        ("--ssh=ssh_-p_2222", |a| a.ssh.as_deref() == Some("ssh_-p_2222")),
        ("--remote-binary /opt/longhaul", |a| a.remote_binary.as_deref() == Some("/opt/longhaul")),
        ("--no-keep", |a| a.no_keep),
        ("--numeric-ids", |a| a.keep.numeric_ids && a.keep.aspects() == Aspects::ALL),
        ("--no-owner", |a| a.keep.aspects() == Aspects::ALL.without(Aspects::OWNER)),
        ("--no-group", |a| a.keep.aspects() == Aspects::ALL.without(Aspects::GROUP)),
        ("--no-xattrs", |a| a.keep.aspects() == Aspects::ALL.without(Aspects::XATTRS.with(Aspects::SECURITY))),
        ("--no-acls", |a| a.keep.aspects() == Aspects::ALL.without(Aspects::ACLS)),
        ("--no-hard-links", |a| a.keep.aspects() == Aspects::ALL.without(Aspects::HARD_LINKS)),
        ("--no-specials", |a| a.keep.aspects() == Aspects::ALL.without(Aspects::SPECIALS)),
        ("--no-devices", |a| a.keep.aspects() == Aspects::ALL.without(Aspects::DEVICES)),
        ("--no-setid", |a| a.keep.aspects() == Aspects::ALL.without(Aspects::SETID)),
        ("--receipt /tmp/r", |a| a.receipt.as_deref() == Some(std::path::Path::new("/tmp/r"))),
    ];
    for (options, check) in table {
        assert!(check(&cp(options)), "{options}");
    }
}

#[test]
fn the_defaults_of_cp_are_those_of_the_help_text() {
    let plain = cp("--json");
    assert_eq!(plain.memory, MEMORY_DEFAULT_BYTES);
    assert_eq!(Rung::from(plain.rung), Rung::Published);
    assert_eq!(DigestKind::from(plain.digest), DigestKind::Blake3);
    assert_eq!(plain.stall, Duration::from_secs(300));
    assert_eq!((plain.driver, plain.engine), (DriverChoice::Auto, Engines::default()));
    assert_eq!((plain.rate, plain.streams, plain.chunk, plain.workers), (None, None, None, None));
}

#[test]
fn the_last_path_of_cp_is_the_destination_and_names_are_bytes() {
    let line = [b"longhaul".to_vec(), b"cp".to_vec(), b"a\xff".to_vec(), b"b".to_vec(), b"host:/c".to_vec()];
    let parsed = Arguments::try_parse_from(line.map(OsString::from_vec)).unwrap();
    let Command::Cp(arguments) = parsed.command else { panic!("not cp") };
    assert_eq!(arguments.paths[..2], [OsString::from_vec(b"a\xff".to_vec()), OsString::from("b")]);
    assert_eq!(arguments.destination(), "host:/c");
}

#[test]
fn wrong_lines_are_usage_errors_that_name_the_option() {
    for (line, named) in [
        ("cp a", "<DST>"),
        ("cp", "<DST>"),
        ("cp --rate 10Gb a b", "--rate"),
        ("cp --rate 0Gbit a b", "--rate"),
        ("cp --streams 0 a b", "--streams"),
        ("cp --chunk 3MiB a b", "--chunk"),
        ("cp --chunk 512KiB a b", "--chunk"),
        ("cp --chunk 32MiB a b", "--chunk"),
        ("cp --memory 64M a b", "--memory"),
        ("cp --rung durable a b", "--rung"),
        ("cp --cipher none a b", "--cipher"),
        ("cp --digest md5 a b", "--digest"),
        ("cp --fast a b", "--fast"),
        ("serve --listen 5740", "--listen"),
        ("serve --ticket=twice", "--ticket"),
        ("serve --ro --wo", "--wo"),
        ("verify", "<RECEIPT>"),
        ("frobnicate", "frobnicate"),
    ] {
        let error = parse(line).expect_err(line);
        assert_eq!(error.exit_code(), i32::from(text::exit::Exit::Usage.code()), "{line}");
        assert!(error.to_string().contains(named), "{line}: {error}");
    }
}

#[test]
fn each_option_of_serve_is_read() {
    let all = serve(
        "serve --config /etc/l.toml --root /srv --listen 127.0.0.1:0 --ticket=once --ro --privileged --memory 1GiB --workers 2 --integrity-only --rate 1Gbit --driver plain",
    );
    assert_eq!(all.config.as_deref(), Some(std::path::Path::new("/etc/l.toml")));
    assert_eq!(all.root.as_deref(), Some(std::path::Path::new("/srv")));
    assert_eq!(all.listen, Some("127.0.0.1:0".parse().unwrap()));
    assert_eq!(all.ticket, Some(TicketChoice::Once));
    assert!(all.privileged && !serve("serve").privileged);
    assert!(all.ro && !all.wo && all.integrity_only && !all.stdio);
    assert_eq!((all.memory, all.workers, all.rate), (Some(1 << 30), Some(2), Some(1_000_000_000)));
    assert_eq!(all.driver, DriverChoice::Plain);
    assert_eq!(serve("serve --ticket").ticket, Some(TicketChoice::Reusable));
    assert_eq!(serve("serve").ticket, None);
    assert!(serve("serve --stdio").stdio);
    // A ticket's kind needs the equals sign, so that a word after it is not eaten.
    assert_eq!(serve("serve --ticket --root /srv").ticket, Some(TicketChoice::Reusable));
}

#[test]
fn verify_checks_the_current_folder_unless_told() {
    let Ok(Command::Verify(arguments)) = parse("verify r.receipt") else { panic!("not verify") };
    assert_eq!(arguments.path, [PathBuf::from(".")]);
    let Ok(Command::Verify(arguments)) = parse("verify r.receipt /data --json --workers 2") else {
        panic!("not verify")
    };
    assert_eq!((arguments.path, arguments.json, arguments.workers), (vec![PathBuf::from("/data")], true, Some(2)));
}

#[test]
fn what_is_relayed_is_read_back_and_nothing_else_is_taken() {
    let mut mine = cp(
        "--transport udp --policy high --min-rate 5Mbit --law bbr --rate 123456789bit --streams 3 --chunk 2MiB --cipher aes256 --digest crc64 --rung flushed --workers 2 --stall 1500ms --no-keep --integrity-only --memory 100MB --no-devices --numeric-ids",
    );
    let options = mine.relay_options();
    let sources = [OsString::from("-x"), OsString::from("y")];
    let theirs = CpArguments::from_relay(&options, &sources, OsStr::new("longhaul://t@h/z")).unwrap();
    mine.paths = vec!["-x".into(), "y".into(), "longhaul://t@h/z".into()];
    assert_eq!(format!("{mine:?}"), format!("{theirs:?}"));
    for evil in ["--ssh=rm", "--receipt=/etc/passwd", "--remote-binary=/tmp/x", "/etc/passwd", "--", "--json"] {
        assert!(CpArguments::from_relay(&[evil.to_owned()], &sources, OsStr::new("z")).is_err(), "{evil}");
    }
}

#[test]
fn every_option_has_a_help_text() {
    for command in Arguments::command().get_subcommands() {
        if !["cp", "serve", "verify"].contains(&command.get_name()) {
            continue;
        }
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
        }
    }
}
