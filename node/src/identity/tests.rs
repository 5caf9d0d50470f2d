//! The key folder: what is written is read back, what is not understood lets nobody in.
//!
//! Absent on purpose: connections (link/tests.rs), the words of the command line (tests/identity.rs).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use proto::wire::control::Compare;

use super::authorized::{Access, Rights, Verdict};
use super::keys::{fingerprint, key_text, parse_key, usable, verify};
use super::ticket::{Delegation, PROOF_LABEL, SECRET_BYTES, Ticket, TicketFault, Tickets, Uses};
use super::*;

/// A key folder that goes away with the test.
pub(crate) struct Scratch {
    pub(crate) home: Home,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("longhaul-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Scratch { home: Home::at(&std::env::temp_dir().join(name)).unwrap() }
    }

    /// Puts a file there as an editor would.
    fn put(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.home.path(name), text).unwrap();
        fs::set_permissions(self.home.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.home.path(name)).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.home.path(""));
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn some_key() -> PublicKey {
    Identity::ephemeral().unwrap().public()
}

#[test]
fn the_key_is_made_once_and_only_its_owner_reads_it() {
    let scratch = Scratch::new();
    let first = Identity::load(&scratch.home).unwrap();
    assert_eq!(first.public(), Identity::load(&scratch.home).unwrap().public());
    assert_eq!(mode(&scratch.home.path("")), 0o700);
    assert_eq!(mode(&scratch.home.path("key")), 0o600);
    assert_eq!(parse_key(&scratch.text("key.pub")).unwrap().0, first.public());
    assert!(
        scratch.text("key").starts_with("-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEI"),
        "PKCS#8 version 1, which openssl reads"
    );
    let refused = Identity::generate(&scratch.home, false, "").unwrap_err();
    assert!(matches!(refused, IdentityError::KeyExists(_)));
    assert_eq!(first.public(), Identity::load(&scratch.home).unwrap().public());
    assert_ne!(first.public(), Identity::generate(&scratch.home, true, "new\nline").unwrap().public());
    assert_eq!(scratch.text("key.pub").lines().count(), 1, "a comment cannot add a line");
}

#[test]
fn many_first_uses_at_once_agree_on_one_key() {
    let scratch = Scratch::new();
    let keys: Vec<PublicKey> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..16).map(|_| scope.spawn(|| Identity::load(&scratch.home).unwrap().public())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(keys.iter().all(|key| *key == keys[0]));
    let left: Vec<_> = fs::read_dir(scratch.home.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "no temporary file stays: {left:?}");
}

#[test]
fn a_key_that_others_may_read_is_refused_with_the_remedy() {
    let scratch = Scratch::new();
    Identity::load(&scratch.home).unwrap();
    fs::set_permissions(scratch.home.path("key"), fs::Permissions::from_mode(0o640)).unwrap();
    let refused = Identity::load(&scratch.home).unwrap_err();
    assert!(matches!(refused, IdentityError::Loose { mode: 0o640, .. }));
    assert!(Failure::from(refused).next_step.starts_with("run: chmod 600 /"));
}

#[test]
fn a_damaged_key_is_an_error_and_is_not_replaced() {
    for damaged in ["", "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n", "MC4CAQAwBQYDK2VwBCIEIA=="] {
        let scratch = Scratch::new();
        scratch.put("key", damaged);
        assert!(matches!(Identity::load(&scratch.home).unwrap_err(), IdentityError::BadKey(_)));
        assert_eq!(scratch.text("key"), damaged);
    }
}

#[test]
fn lists_and_folders_that_others_may_write_are_refused() {
    let scratch = Scratch::new();
    for name in ["authorized_keys", "revoked"] {
        scratch.put(name, "");
        fs::set_permissions(scratch.home.path(name), fs::Permissions::from_mode(0o620)).unwrap();
        assert!(matches!(authorized::judge(&scratch.home, None, &some_key()), Err(IdentityError::Loose { .. })));
        fs::remove_file(scratch.home.path(name)).unwrap();
    }
    fs::set_permissions(scratch.home.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(Home::at(&scratch.home.path("")), Err(IdentityError::Loose { .. })));
}

#[test]
fn signatures_hold_for_their_key_and_message_only() {
    let (id, other) = (Identity::ephemeral().unwrap(), Identity::ephemeral().unwrap());
    let signature = id.sign(b"receipt");
    assert!(verify(&id.public(), b"receipt", &signature));
    assert!(!verify(&id.public(), b"receipt.", &signature));
    assert!(!verify(&other.public(), b"receipt", &signature));
    assert!(!verify(&id.public(), b"receipt", &signature[..63]));
}

#[test]
fn keys_without_a_secret_are_refused() {
    for y in [
        [0; 32],
        {
            let mut one = [0; 32];
            one[0] = 1;
            one
        },
        {
            let mut one = [0; 32];
            one[0] = 1;
            one[31] = 0x80;
            one
        },
    ] {
        assert!(!usable(&y));
        assert_eq!(parse_key(&key_text(&y)), Err(LineFault::WeakKey));
        assert!(!verify(&y, b"", &[0; 64]));
    }
}

#[test]
fn a_fingerprint_has_one_form_that_never_changes() {
    let shown = fingerprint(&[9; 32]);
    assert_eq!(shown.len(), 35);
    // Known answer, from `printf '\t%.0s' {1..32} | b3sum`, first 20 bytes in base32; people have it in their notes.
    assert_eq!(shown, "lh:pkdbxlkzg7pqrhjwpk57aedmg74gdlz4");
}

#[test]
fn every_line_of_authorized_keys_is_read_to_the_letter() {
    let scratch = Scratch::new();
    let keys: Vec<PublicKey> = (0..5).map(|_| some_key()).collect();
    let line = |at: usize| key_text(&keys[at]);
    scratch.put(
        "authorized_keys",
        format!(
            "# people\n\n{}\n  {} alice@desk with a note\nro {}\nroot=\"/srv/a \\\"b\\\" \\\\c, d\",wo,rate=10Gbit,privileged {} bob\r\nrate=1.5GB/s\t{}",
            line(0), line(1), line(2), line(3), line(4)
        ),
    );
    let rights = |at: usize| match authorized::judge(&scratch.home, None, &keys[at]).unwrap() {
        Verdict::Authorized(rights) => rights,
        other => panic!("{other:?}"),
    };
    assert_eq!((rights(0), rights(1)), (Rights::default(), Rights::default()));
    assert_eq!(rights(2), Rights { access: Access::ReadOnly, ..Rights::default() });
    let root = Some(PathBuf::from("/srv/a \"b\" \\c, d"));
    assert_eq!(rights(3), Rights { root, access: Access::WriteOnly, rate_bps: 10_000_000_000, privileged: true });
    assert_eq!(rights(4).rate_bps, 12_000_000_000);
    assert_eq!(authorized::judge(&scratch.home, None, &some_key()).unwrap(), Verdict::Unknown);
}

#[test]
fn one_bad_line_lets_nobody_in_and_is_named() {
    let (good, key) = (key_text(&some_key()), key_text(&some_key()));
    let bad = [
        (format!("r0 {key}"), LineFault::UnknownOption),
        (format!("RO {key}"), LineFault::UnknownOption),
        (format!("ro, {key}"), LineFault::UnknownOption),
        (format!(",ro {key}"), LineFault::UnknownOption),
        (format!("ro,,wo {key}"), LineFault::UnknownOption),
        (format!("ro,ro {key}"), LineFault::OptionTwice),
        (format!("ro,wo {key}"), LineFault::OptionTwice),
        (format!("rate=1Gbit,rate=2Gbit {key}"), LineFault::OptionTwice),
        (format!("root=\"/a\",root=\"/b\" {key}"), LineFault::OptionTwice),
        (format!("root=/srv {key}"), LineFault::BadRoot),
        (format!("root=\"srv\" {key}"), LineFault::BadRoot),
        (format!("root=\"/srv/../etc\" {key}"), LineFault::BadRoot),
        (format!("root=\"\" {key}"), LineFault::BadRoot),
        (format!("root=\"/srv {key}"), LineFault::BadQuote),
        (format!("root=\"/srv\"ro {key}"), LineFault::BadQuote),
        (format!("root=\"/s\\rv\" {key}"), LineFault::BadQuote),
        (format!("rate=10 {key}"), LineFault::BadRate),
        (format!("rate=0Gbit {key}"), LineFault::BadRate),
        ("ro".to_owned(), LineFault::NoKeyType),
        ("ssh-ed25519 AAAA".to_owned(), LineFault::UnknownOption),
        ("ro ssh-ed25519 AAAA".to_owned(), LineFault::NoKeyType),
        ("longhaul-ed25519".to_owned(), LineFault::NoKeyType),
        ("longhaul-ed25519 AAAA".to_owned(), LineFault::BadKey),
        (key[..key.len() - 1].to_owned(), LineFault::BadKey),
        (format!("ro {good}"), LineFault::KeyTwice),
    ];
    for (line, wanted) in bad {
        let scratch = Scratch::new();
        scratch.put("authorized_keys", format!("{good}\n{line}\n"));
        let refused = authorized::judge(&scratch.home, None, &parse_key(&good).unwrap().0).unwrap_err();
        assert!(
            matches!(&refused, IdentityError::Line { line: 2, fault, .. } if *fault == wanted),
            "{line}: {refused:?}"
        );
        assert!(refused.to_string().contains("authorized_keys:2: "), "{refused}");
    }
    let scratch = Scratch::new();
    scratch.put("revoked", b"\xff\xfe\n");
    assert!(
        authorized::judge(&scratch.home, None, &some_key()).is_err(),
        "an unreadable list of revoked keys lets nobody in"
    );
}

#[test]
fn what_authorize_writes_is_what_judge_reads() {
    let scratch = Scratch::new();
    let (alice, bob) = (some_key(), some_key());
    let narrow = Rights {
        root: Some("/srv/\"odd\" \\ place, #1".into()),
        access: Access::ReadOnly,
        rate_bps: 1_234_567,
        privileged: true,
    };
    assert!(!authorized::authorize(&scratch.home, &alice, &narrow, "alice\nroot=\"/\"").unwrap());
    assert!(!authorized::authorize(&scratch.home, &bob, &Rights::default(), "").unwrap());
    assert_eq!(authorized::judge(&scratch.home, None, &alice).unwrap(), Verdict::Authorized(narrow));
    assert_eq!(authorized::judge(&scratch.home, None, &bob).unwrap(), Verdict::Authorized(Rights::default()));
    let wide = Rights { access: Access::WriteOnly, ..Rights::default() };
    assert!(authorized::authorize(&scratch.home, &alice, &wide, "").unwrap());
    assert_eq!(authorized::judge(&scratch.home, None, &alice).unwrap(), Verdict::Authorized(wide));
    assert_eq!(scratch.text("authorized_keys").lines().count(), 2);
    assert_eq!(mode(&scratch.home.path("authorized_keys")), 0o600);
    for root in ["relative", "/a/../b", "/a\nb"] {
        let rights = Rights { root: Some(root.into()), ..Rights::default() };
        assert!(authorized::authorize(&scratch.home, &bob, &rights, "").is_err(), "{root:?}");
    }
}

#[test]
fn a_revoked_key_is_refused_whatever_else_is_written() {
    let scratch = Scratch::new();
    let key = some_key();
    authorized::authorize(&scratch.home, &key, &Rights::default(), "").unwrap();
    assert!(authorized::revoke(&scratch.home, &key, "laptop lost").unwrap());
    assert!(!authorized::revoke(&scratch.home, &key, "").unwrap());
    assert_eq!(authorized::judge(&scratch.home, None, &key).unwrap(), Verdict::Revoked);
    assert_eq!(scratch.text("revoked").lines().count(), 1);
}

#[test]
fn an_address_has_one_trusted_key_in_any_spelling() {
    let scratch = Scratch::new();
    let (old, new) = (some_key(), some_key());
    scratch.put(
        "trusted",
        format!("# mine\nHost.Example:5740 {}\n[2001:DB8::1]:99 {} note\n", key_text(&old), key_text(&old)),
    );
    assert_eq!(trust::look_up(&scratch.home, "host.example:5740").unwrap(), [old]);
    assert_eq!(trust::look_up(&scratch.home, "[2001:db8::1]:99").unwrap(), [old]);
    assert_eq!(trust::look_up(&scratch.home, "host.example:5741").unwrap(), [] as [PublicKey; 0]);
    assert_eq!(trust::trust(&scratch.home, "HOST.example:5740", &new).unwrap(), [old]);
    assert_eq!(trust::look_up(&scratch.home, "host.example:5740").unwrap(), [new]);
    assert!(scratch.text("trusted").starts_with("# mine\n"), "comments stay");
    for bad in ["host", "host:0", "host:99999", ":1", "a b:1", "::1:5", "[::1:5", "[host]:5", "h/x:5"] {
        assert!(trust::trust(&scratch.home, bad, &new).is_err(), "{bad}");
    }
    scratch.put("trusted", format!("a:1 {}\nb:2 nonsense\n", key_text(&old)));
    assert!(matches!(trust::look_up(&scratch.home, "a:1"), Err(IdentityError::Line { line: 2, .. })));
    assert!(trust::trust(&scratch.home, "a:1", &new).is_err(), "a file that cannot be read is not written either");
}

#[test]
fn edits_at_once_lose_no_line() {
    let scratch = Scratch::new();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| authorized::authorize(&scratch.home, &some_key(), &Rights::default(), "").unwrap());
        }
    });
    assert_eq!(authorized::authorized(&scratch.home).unwrap().len(), 16);
}

#[test]
fn a_ticket_is_read_as_it_is_written_and_not_otherwise() {
    let ticket = Ticket { server_key: some_key(), secret: [7; SECRET_BYTES] };
    let text = ticket.to_string();
    assert_eq!(text.len(), 66);
    assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'));
    assert_eq!(text.parse(), Ok(ticket.clone()));
    assert_eq!(text[..65].parse::<Ticket>(), Err(TicketFault::Damaged));
    assert_eq!(format!("{text}A").parse::<Ticket>(), Err(TicketFault::Damaged));
    assert_eq!(format!("Ag{}", &text[2..]).parse::<Ticket>(), Err(TicketFault::Version(2)));
    assert_eq!("".parse::<Ticket>(), Err(TicketFault::Damaged));
    assert!(!format!("{ticket:?}").contains("7, 7"), "the secret must not reach a log");
}

#[test]
fn tickets_are_spent_expire_and_belong_to_who_came_first() {
    let (tickets, server, session) = (Tickets::new(), some_key(), [3; 32]);
    let (alice, bob, now) = (some_key(), some_key(), Instant::now());
    let redeem = |ticket: &Ticket, client, now| tickets.redeem(&ticket.proof(&session), &session, client, now);

    let many = tickets.issue(server, Uses::Many, Rights::default(), None).unwrap();
    let once =
        tickets.issue(server, Uses::Once, Rights { access: Access::ReadOnly, ..Rights::default() }, None).unwrap();
    let brief = tickets.issue(server, Uses::Many, Rights::default(), Some(now + Duration::from_secs(60))).unwrap();

    let grant = redeem(&once, &alice, now).expect("a good ticket");
    assert_eq!(grant.rights.access, Access::ReadOnly);
    assert!(redeem(&once, &bob, now).is_none(), "it is Alice's now");
    let again = redeem(&once, &alice, now).expect("Alice's job broke and is tried again");
    assert_eq!((again.number, &again.rights), (grant.number, &grant.rights));
    assert!(tickets.spend(&grant));
    assert!(!tickets.spend(&grant), "the second job of the same ticket learns that it came too late");
    assert!(redeem(&once, &alice, now).is_none());

    let grant = redeem(&many, &alice, now).unwrap();
    assert!(tickets.spend(&grant) && redeem(&many, &bob, now).is_some());

    assert!(redeem(&brief, &alice, now + Duration::from_secs(59)).is_some());
    assert!(redeem(&brief, &alice, now + Duration::from_secs(60)).is_none());

    let foreign = Ticket { server_key: server, secret: [1; SECRET_BYTES] };
    assert!(redeem(&foreign, &alice, now).is_none());
    assert!(tickets.redeem(&many.proof(&session), &[4; 32], &alice, now).is_none(), "the proof of another session");
    assert_eq!(PROOF_LABEL, b"EXPORTER-longhaul ticket v1");
}

#[test]
fn a_delegated_ticket_lives_for_its_time_in_one_hand_and_not_longer_than_what_it_came_from() {
    let (tickets, server, session) = (Tickets::new(), some_key(), [3; 32]);
    let (alice, relay, now) = (some_key(), some_key(), Instant::now());
    let redeem = |ticket: &Ticket, client, now| tickets.redeem(&ticket.proof(&session), &session, client, now);
    let later = |seconds| now + Duration::from_secs(seconds);
    for uses in [Uses::Many, Uses::Once] {
        let own = tickets.issue(server, uses, Rights::default(), None).unwrap();
        let parent = redeem(&own, &alice, now).expect("a good ticket");
        let delegation = Delegation {
            issuer: alice,
            parent: Some(parent.number),
            targets: vec![],
            compare: Compare::Never,
            prune: None,
        };
        let delegate = || {
            let delegation = delegation.clone();
            tickets.delegate(server, relay, Rights::default(), later(120), delegation).unwrap()
        };
        let (first, second) = (delegate(), delegate());
        assert_eq!(redeem(&first, &relay, now).is_none(), uses == Uses::Once, "of a one-job ticket there is one");
        assert!(redeem(&second, &alice, now).is_none(), "it was never in any other hand");
        let grant = redeem(&second, &relay, later(119)).expect("in time");
        assert!(redeem(&second, &relay, later(120)).is_none());
        tickets.extend(&grant, later(300));
        assert!(redeem(&second, &relay, later(299)).is_some(), "for another pass");
        assert!(tickets.spend(&grant));
        assert!(redeem(&second, &relay, now).is_none());
        assert_eq!(redeem(&own, &alice, now).is_none(), uses == Uses::Once);
    }
}

#[test]
fn a_revoked_ticket_is_gone_with_all_that_was_delegated_from_it_and_the_list_has_the_others() {
    let (tickets, server, session) = (Tickets::new(), some_key(), [3; 32]);
    let (alice, relay, now) = (some_key(), some_key(), Instant::now());
    let redeem = |ticket: &Ticket, client| tickets.redeem(&ticket.proof(&session), &session, client, now);
    let own = tickets.issue(server, Uses::Many, Rights::default(), None).unwrap();
    let other = tickets.issue(server, Uses::Once, Rights::default(), Some(now + Duration::from_secs(9))).unwrap();
    let parent = redeem(&own, &alice).expect("a good ticket");
    let delegation = Delegation {
        issuer: alice,
        parent: Some(parent.number),
        targets: vec![],
        compare: Compare::Never,
        prune: None,
    };
    let delegated = tickets.delegate(server, relay, Rights::default(), now + Duration::from_secs(9), delegation);
    let delegated = delegated.unwrap();
    let child = redeem(&delegated, &relay).expect("a good ticket");
    assert_eq!(child.family().collect::<Vec<_>>(), [child.number, parent.number]);
    let list = tickets.list(now);
    let shown: Vec<_> = list.iter().map(|it| (it.sessions, it.left.is_some(), it.holder)).collect();
    assert_eq!(shown, [(1, false, None), (0, true, None), (1, true, Some(relay))]);
    assert_eq!(tickets.list(now + Duration::from_secs(9)).len(), 1, "what has expired is on no list");
    assert_eq!(tickets.revoke(parent.number), [parent.number, child.number]);
    assert!(redeem(&own, &alice).is_none() && redeem(&delegated, &relay).is_none() && redeem(&other, &alice).is_some());
    assert!(tickets.revoke(parent.number).is_empty() && tickets.list(now).len() == 1);
}

#[test]
fn a_client_that_comes_again_while_its_job_ends_waits_for_that_end() {
    let (tickets, server, session, alice) = (Tickets::new(), some_key(), [3; 32], some_key());
    for is_heard in [false, true] {
        let once = tickets.issue(server, Uses::Once, Rights::default(), None).unwrap();
        let redeem = || tickets.redeem(&once.proof(&session), &session, &alice, Instant::now());
        let grant = redeem().unwrap();
        grant.ending.begin();
        let second = std::thread::scope(|scope| {
            let second = scope.spawn(redeem);
            std::thread::sleep(Duration::from_millis(50));
            if is_heard {
                assert!(tickets.spend(&grant));
            } else {
                grant.ending.take_back();
            }
            second.join().unwrap()
        });
        assert_eq!(second.is_none(), is_heard, "spent by the first job, or still good");
    }
}

#[test]
fn a_flood_of_one_job_tickets_does_not_push_out_a_reusable_one() {
    let (tickets, server, session) = (Tickets::new(), some_key(), [3; 32]);
    let many = tickets.issue(server, Uses::Many, Rights::default(), None).unwrap();
    for _ in 0..5000 {
        tickets.issue(server, Uses::Once, Rights::default(), None).unwrap();
    }
    assert!(tickets.redeem(&many.proof(&session), &session, &some_key(), Instant::now()).is_some());
}

proptest::proptest! {
    #[test]
    fn no_text_makes_a_reader_panic(text in "\\PC*") {
        let _ = text.parse::<Ticket>();
        let _ = parse_key(&text);
        let _ = parse_key(&format!("longhaul-ed25519 {text}"));
        let _ = trust::spell(&text);
        let _ = encoding::from_base64(&text);
    }

    #[test]
    fn bytes_survive_their_spelling(bytes: Vec<u8>) {
        assert_eq!(encoding::from_base64(&encoding::base64(&bytes)).as_ref(), Some(&bytes));
        assert_eq!(encoding::from_base64url(&encoding::base64url(&bytes)), Some(bytes));
    }

    #[test]
    fn any_line_of_options_gives_rights_or_a_fault(options in "[a-z=\",\\\\/ .0-9G]*") {
        let line = format!("{options} {}", key_text(&[9; 32]));
        if let Ok((rights, _)) = authorized::parse(&line) {
            let again = authorized::spell(&[9; 32], &rights, "note").unwrap();
            assert_eq!(authorized::parse(&again).unwrap().0, rights);
        }
    }

    #[test]
    fn any_root_that_can_be_written_is_read_back(root in "/\\PC*", rate_bps: u64) {
        let rights = Rights { root: Some(root.into()), access: Access::WriteOnly, rate_bps, privileged: rate_bps % 2 == 0 };
        if let Ok(line) = authorized::spell(&[9; 32], &rights, "note") {
            assert_eq!(authorized::parse(&line).unwrap().0, rights);
        }
    }
}

#[test]
fn the_key_folder_is_found_by_the_variables_of_services_and_desktops_and_never_at_the_top() {
    let of = |set: &[(&str, &str)]| {
        let found = place(|name| set.iter().find(|(it, _)| *it == name).map(|(_, value)| PathBuf::from(value)));
        found.map_or_else(|| "none".to_owned(), |path| path.display().to_string())
    };
    let home = ("HOME", "/home/u");
    assert_eq!(of(&[home]), "/home/u/.config/longhaul");
    assert_eq!(of(&[home, ("XDG_CONFIG_HOME", "/c"), ("XDG_STATE_HOME", "/s")]), "/c/longhaul");
    assert_eq!(of(&[home, ("XDG_CONFIG_HOME", "relative")]), "/home/u/.config/longhaul");
    assert_eq!(of(&[home, ("STATE_DIRECTORY", "/var/lib/longhaul:/var/lib/x")]), "/var/lib/longhaul");
    assert_eq!(of(&[home, ("STATE_DIRECTORY", "/var/lib/backup")]), "/var/lib/backup/longhaul");
    assert_eq!(of(&[home, ("STATE_DIRECTORY", "/var/lib/b"), ("LONGHAUL_HOME", "/k")]), "/k");
    assert_eq!(of(&[("HOME", "/"), ("XDG_STATE_HOME", "/s")]), "/s/longhaul");
    assert_eq!(of(&[("HOME", "/")]), "none");
    assert_eq!(of(&[]), "none");
}
