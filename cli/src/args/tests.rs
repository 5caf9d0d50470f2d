//! Tests of the command line: each option is parsed, each wrong line is refused.

use std::os::unix::ffi::OsStringExt;

use clap::CommandFactory;
use proto::manifest::Aspects;

use proto::negotiate::Driver;
use proto::storage::IoMode;
use proto::wire::control::Compare;
use proto::wire::request::Transport;

use super::*;
use node::request::{JobRequest, MEMORY_DEFAULT_BYTES};

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
fn who_names_no_transport_gets_auto_without_a_word_or_a_look_at_storage_and_who_names_it_gets_a_forecast() {
    for (words, transport, forecast) in [
        ("--json", Transport::Auto, false),
        ("-n", Transport::Auto, false),
        ("--transport auto", Transport::Auto, true),
        ("--transport tcp", Transport::Tcp, false),
        ("--transport udp", Transport::Udp, false),
    ] {
        let request = cp(words).request().expect(words);
        assert_eq!((request.transport, request.forecast), (transport, forecast), "{words}");
    }
    assert_eq!(JobRequest::default().transport, Transport::Auto, "and so do other programs");
}

#[test]
fn each_option_of_cp_is_read() {
    type Check = fn(&CpArguments) -> bool;
    let table: &[(&str, Check)] = &[
        ("--rate 10Gbit", |a| a.rate == Some(10_000_000_000)),
        ("--rate 1.5GB/s", |a| a.rate == Some(12_000_000_000)),
        ("--dry-run", |a| a.dry_run),
        ("-n", |a| a.dry_run),
        ("--durability received", |a| Durability::from(a.durability) == Durability::Received),
        ("--durability written", |a| Durability::from(a.durability) == Durability::Written),
        ("--durability flushed", |a| Durability::from(a.durability) == Durability::Flushed),
        ("--durability published", |a| Durability::from(a.durability) == Durability::Published),
        // The former names of options are still taken.
        ("--durability flushed", |a| Durability::from(a.durability) == Durability::Flushed),
        ("--law bbr", |a| ControllerKind::from(a.controller) == ControllerKind::Bbr),
        ("--engine direct", |a| a.io_mode == cp("--io-mode direct").io_mode),
        ("--streams 4", |a| a.streams == Some(4)),
        ("--transport udp", |a| a.transport == Some(TransportChoice::Udp)),
        ("--transport auto", |a| a.transport == Some(TransportChoice::Auto)),
        ("--policy low", |a| Policy::from(a.policy) == Policy::Low),
        ("--min-rate 10Mbit", |a| a.min_rate == Some(10_000_000)),
        ("--congestion-controller cubic", |a| ControllerKind::from(a.controller) == ControllerKind::Cubic),
        ("--memory 64MiB", |a| a.memory == 64 << 20),
        ("--json", |a| a.json),
        ("--explain", |a| a.explain),
        ("-v", |a| a.verbose == 1),
        ("-vv", |a| a.verbose == 2),
        ("--integrity-only", |a| a.integrity_only),
        ("--digest blake3", |a| a.digest.map(DigestKind::from) == Some(DigestKind::Blake3)),
        ("--digest crc64", |a| a.digest.map(DigestKind::from) == Some(DigestKind::Crc64)),
        ("--cipher aes128", |a| a.cipher.map(Cipher::from) == Some(Cipher::Aes128Gcm)),
        ("--cipher aes256", |a| a.cipher.map(Cipher::from) == Some(Cipher::Aes256Gcm)),
        ("--cipher chacha20", |a| a.cipher.map(Cipher::from) == Some(Cipher::ChaCha20Poly1305)),
        ("--chunk 4MiB", |a| a.chunk == Some(4 << 20)),
        ("--driver uring", |a| a.driver == DriverChoice::Uring),
        ("--driver plain", |a| a.driver == DriverChoice::Plain),
        ("--io-mode direct", |a| a.io_mode == IoModes::both(IoMode::Direct)),
        // Its name before.
        ("--engine direct", |a| a.io_mode == IoModes::both(IoMode::Direct)),
        ("--io-mode read=mmap,write=early", |a| {
            a.io_mode == IoModes { read: Some(IoMode::Mmap), write: Some(IoMode::Early) }
        }),
        ("--workers 3", |a| a.workers == Some(3)),
        ("--stall 5", |a| a.stall == Duration::from_secs(5)),
        ("--stall 500ms", |a| a.stall == Duration::from_millis(500)),
        ("--ssh=ssh_-p_2222", |a| a.ssh.as_deref() == Some("ssh_-p_2222")),
        ("--remote-binary /opt/longhaul", |a| a.remote_binary.as_deref() == Some("/opt/longhaul")),
        ("--far-port 50000-50010", |a| a.far_port.is_some_and(|it| it.to_string() == "50000-50010")),
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
    assert_eq!(Durability::from(plain.durability), Durability::Published);
    for (options, wanted) in [
        ("--json", DigestKind::Blake3),
        ("--integrity-only", DigestKind::Blake3),
        ("--bare", DigestKind::Crc64),
        ("--bare --digest blake3", DigestKind::Blake3),
    ] {
        assert_eq!(cp(options).request().expect(options).digest, wanted, "{options}");
    }
    assert_eq!(plain.stall, Duration::from_secs(300));
    assert_eq!((plain.driver, plain.io_mode), (DriverChoice::Auto, IoModes::default()));
    assert_eq!((plain.rate, plain.streams, plain.chunk, plain.workers), (None, None, None, None));
}

#[test]
fn the_last_path_of_cp_is_the_destination_and_names_are_bytes() {
    let line = [b"longhaul".to_vec(), b"cp".to_vec(), b"a\xff".to_vec(), b"b".to_vec(), b"host:/c".to_vec()];
    let parsed = Arguments::try_parse_from(line.map(OsString::from_vec)).unwrap();
    let Command::Cp(arguments) = parsed.command else { panic!("not cp") };
    assert_eq!(arguments.paths[..2], [OsString::from_vec(b"a\xff".to_vec()), OsString::from("b")]);
    assert_eq!(arguments.request().unwrap().destinations, ["host:/c"]);
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
        ("cp --durability durable a b", "--durability"),
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
fn each_option_of_a_job_stands_in_its_request() {
    let asked = cp(
        "--transport udp --policy high --min-rate 5Mbit --law bbr --rate 123456789bit --streams 3 --chunk 2MiB --cipher aes256 --digest crc64 --durability flushed --workers 2 --stall 1500ms --no-keep --integrity-only --memory 100MB --no-devices --numeric-ids --driver plain --engine direct --reflink never --snapshot always --path 10.0.0.1=10.0.0.2@3 --ssh rsh --remote-binary /x --far-port 7-9 --receipt r --unattended --explain -n",
    );
    let built = JobRequest::copy(["a"], "b")
        .transport(Transport::Udp)
        .policy(Policy::High)
        .min_rate_bps(5_000_000_u64)
        .controller(ControllerKind::Bbr)
        .rate_bps(123_456_789_u64)
        .streams(3_u16)
        .chunk_bytes(2_u32 << 20)
        .cipher(Cipher::Aes256Gcm)
        .digest(DigestKind::Crc64)
        .durability(Durability::Flushed)
        .workers(2_u16)
        .stall(Duration::from_millis(1500))
        .keep(false)
        .integrity_only(true)
        .memory_bytes(100_000_000_u64)
        .aspects(Aspects::ALL.without(Aspects::DEVICES))
        .numeric_ids(true)
        .driver(Driver::Plain)
        .io_modes(IoModes::both(IoMode::Direct))
        .reflink(Clones::Never)
        .snapshot(Snapshot::Always)
        .paths(vec!["10.0.0.1=10.0.0.2@3".parse().unwrap()])
        .ssh("rsh".to_owned())
        .remote_binary("/x".to_owned())
        .far_ports("7-9".parse::<node::request::Ports>().unwrap())
        .receipt(PathBuf::from("r"))
        .unattended(true)
        .explain(true)
        .dry_run(true)
        .build();
    assert_eq!(asked.request().unwrap(), built);
    let plain = JobRequest::copy(["a"], "b").build();
    assert_eq!(cp("--json").request().unwrap(), plain, "the defaults of a request are those of the command line");
    assert_eq!(cp("--checksum").request().unwrap(), JobRequest { compare: Compare::Always, ..plain.clone() });
    assert_eq!(
        cp("--mirror --prune 3").request().unwrap(),
        JobRequest { compare: Compare::Changed, prune: Some(3), ..plain }
    );
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
