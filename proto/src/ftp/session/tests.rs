//! Sessions in the orders that go wrong.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use super::fault::{End, Fault};
use super::*;
use crate::ftp::lhdata::Transport;

const SECOND: u64 = SECOND_NS;

fn terms() -> Terms {
    Terms {
        peer: "10.0.0.9".parse().unwrap(),
        local: "10.0.0.1".parse().unwrap(),
        public: None,
        may_clear: true,
        anonymous: false,
        implicit: false,
        hidden: |_| false,
        lhdata: None,
    }
}

/// A session, and the codes that it has said since they were last asked for.
struct Rig {
    session: Session,
    now: u64,
    codes: Vec<u16>,
    text: String,
    actions: Vec<Action>,
}

impl Rig {
    fn new(terms: Terms) -> Rig {
        let mut rig = Rig {
            session: Session::new(terms, 0),
            now: 0,
            codes: Vec::new(),
            text: String::new(),
            actions: Vec::new(),
        };
        rig.take();
        rig
    }

    fn logged_in(rights: Rights) -> Rig {
        let mut rig = Rig::new(terms());
        assert_eq!(rig.say("USER ada\r\nPASS x\r\n"), [220, 331]);
        rig.session.on_login(rig.now, LogIn::In(rights));
        assert_eq!(rig.codes(), [230]);
        rig.actions();
        rig
    }

    fn take(&mut self) {
        while let Some(action) = self.session.next_action() {
            match action {
                Action::Say(bytes) => {
                    self.text = String::from_utf8_lossy(&bytes).to_string();
                    let last = self.text.trim_end().rsplit("\r\n").next().unwrap();
                    self.codes.push(last[..3].parse().unwrap());
                }
                other => self.actions.push(other),
            }
        }
    }

    fn codes(&mut self) -> Vec<u16> {
        self.take();
        core::mem::take(&mut self.codes)
    }

    fn actions(&mut self) -> Vec<Action> {
        self.take();
        core::mem::take(&mut self.actions)
    }

    fn say(&mut self, text: &str) -> Vec<u16> {
        self.session.on_bytes(self.now, text.as_bytes());
        self.codes()
    }

    fn at(&mut self, now: u64) -> Vec<u16> {
        self.now = now;
        self.session.on_time(now);
        self.codes()
    }

    /// A port, and a download that moves.
    fn moving(&mut self) {
        self.say("EPSV\r\n");
        self.session.on_listening(self.now, Ok(50_000));
        assert_eq!(self.say("RETR f\r\n"), [229]);
        let connect = self.session.on_prepared(self.now, Ok(Prepared::File { bytes: 10 })).unwrap();
        assert_eq!((connect.way, connect.range), (Way::Passive, 0..10));
        self.session.on_connected(self.now);
        assert_eq!(self.codes(), [150]);
        self.actions();
    }
}

const BOTH: Rights = Rights { read: true, write: true };

#[test]
fn lhdata_is_refused_in_every_state_but_one() {
    let offered = crate::ftp::lhdata::Offered { port: 5740, transports: vec![Transport::Tcp, Transport::Udp] };
    let secured = |terms: Terms, secured| {
        let mut rig = Rig::new(terms);
        assert_eq!(rig.say("LHDATA 14 tcp\r\nAUTH TLS\r\n"), [220, 534, 234], "in clear");
        rig.session.on_secured(0, secured);
        rig.actions();
        assert_eq!(
            rig.say("LHDATA 14 tcp\r\nUSER ada\r\nLHDATA 14 tcp\r\nPASS x\r\n").last(),
            Some(&530),
            "before login"
        );
        rig.session.on_login(0, LogIn::In(Rights { read: true, write: false }));
        rig.actions();
        rig.codes();
        rig
    };
    let terms = || Terms { lhdata: Some(offered.clone()), ..terms() };
    let mut rig = secured(terms(), Secured::Yes);
    assert_eq!(rig.say("LHDATA 14 tcp\r\n"), [534], "TLS 1.2 does not name its handshake");
    let mut none = Rig::logged_in(BOTH);
    assert_eq!(none.say("LHDATA 14 tcp\r\n"), [502], "not here");
    let mut rig = secured(terms(), Secured::Bound);
    assert_eq!(rig.say("FEAT\r\n"), [211]);
    assert!(rig.text.contains("\r\n LHDATA 14 tcp,udp\r\n"));
    assert_eq!(rig.say("LHDATA\r\nLHDATA x y\r\nLHDATA 14 rdma\r\n"), [501, 501, 504]);
    assert_eq!(rig.say("LHDATA 12 tcp\r\n"), [504]);
    assert!(rig.text.contains("LHDATA 14 tcp,udp"), "with what is spoken");
    // What was said behind it is no part of a session that has not begun: both are lines.
    assert_eq!(rig.say("LHDATA 14 tcp\r\nNOOP\r\n"), [503, 200]);
    assert_eq!(rig.say("LHDATA 14 tcp\r\nNO"), [503]);
    assert_eq!(rig.say("OP\r\n"), [200]);
    rig.say("EPSV\r\n");
    rig.session.on_listening(0, Ok(50_000));
    rig.actions();
    rig.codes();
    assert_eq!(rig.say("LHDATA 14 udp,quic,tcp\r\n"), [250]);
    assert!(rig.text.starts_with("250 LHDATA 14 5740 udp,tcp\r\n"));
    assert_eq!(
        rig.actions(),
        [Action::Unlisten, Action::Upgrade],
        "a port that waits is of no use to the other session"
    );
    assert_eq!(rig.session.deadline_ns(), u64::MAX, "the session inside has times of its own");
    assert_eq!(rig.say("NOOP\r\n"), [], "bytes are not FTP's");
    rig.session.on_returned(SECOND, true);
    assert_eq!(rig.say("NOOP\r\nPWD\r\n"), [200, 257], "and are again");
    assert_eq!(rig.say("LHDATA 14 tcp\r\n"), [250], "as often as the client likes");
    rig.actions();
    rig.session.on_returned(2 * SECOND, false);
    assert_eq!(rig.actions(), [Action::Close]);
    assert_eq!(rig.say("NOOP\r\n"), []);
}

#[test]
fn an_abort_stops_what_moves_and_has_its_reply_in_its_turn() {
    let mut rig = Rig::logged_in(BOTH);
    rig.moving();
    assert_eq!(rig.say("NOOP\r\n"), []);
    assert!(!rig.session.is_aborted());
    // Two transfers said before the ABOR do not begin; what is no transfer is done.
    assert_eq!(rig.say("RETR g\r\nSTOR h\r\nPWD\r\n\u{0}"), []);
    rig.session.on_bytes(0, b"\r\n\xff\xf4\xff\xf2ABOR\r\nNOOP\r\n");
    assert!(rig.session.is_aborted());
    rig.session.on_over(rig.now, Err(End::Aborted));
    assert_eq!(rig.codes(), [426, 200, 426, 426, 257, 500, 226, 200]);
    assert!(rig.actions().is_empty() && !rig.session.is_aborted());
    assert_eq!(rig.say("ABOR\r\n"), [226]);
    assert!(rig.text.contains("Nothing was moving"));
}

#[test]
fn an_abort_is_heard_at_every_moment_of_a_transfer() {
    for moment in 0..5 {
        let mut rig = Rig::logged_in(BOTH);
        rig.say("EPSV\r\n");
        rig.session.on_listening(0, Ok(50_000));
        rig.codes();
        let abort = "ABOR\r\n";
        let wanted = match moment {
            // In one read with the command.
            0 => rig.say("RETR f\r\nABOR\r\n"),
            // While the file is opened.
            1 => {
                rig.say("RETR f\r\n");
                rig.say(abort);
                assert_eq!(rig.session.on_prepared(0, Ok(Prepared::File { bytes: 1 })), None);
                rig.codes()
            }
            // While the client is to connect, while bytes move, and when all have gone.
            _ => {
                rig.say("RETR f\r\n");
                rig.session.on_prepared(0, Ok(Prepared::File { bytes: 1 })).unwrap();
                if moment > 2 {
                    rig.session.on_connected(0);
                    assert_eq!(rig.codes(), [150]);
                }
                rig.say(abort);
                assert!(rig.session.is_aborted());
                rig.session.on_over(0, if moment == 4 { Ok(Over::Sent) } else { Err(End::Aborted) });
                rig.codes()
            }
        };
        assert_eq!(wanted, if moment == 4 { [226, 226] } else { [426, 226] }, "{moment}");
        assert_eq!(rig.say("RETR f\r\nPWD\r\n"), []);
        assert_eq!(rig.session.on_prepared(0, Ok(Prepared::File { bytes: 1 })), None, "its port is gone");
        assert_eq!(rig.codes(), [425, 257]);
    }
}

#[test]
fn nobody_logs_in_in_clear_who_may_not_and_tls_forgets_what_was_said_before_it() {
    let mut rig = Rig::new(Terms { may_clear: false, anonymous: true, ..terms() });
    assert_eq!(rig.say("USER ada\r\n"), [220]);
    assert_eq!(rig.actions(), [Action::AskClear(b"ada".to_vec())]);
    rig.session.on_clear(false);
    assert_eq!(rig.codes(), [530]);
    assert_eq!(rig.say("PASS x\r\nUSER anonymous\r\nPROT P\r\nLIST\r\n"), [503, 530, 503, 530]);
    assert_eq!(rig.say("USER ada\r\n"), []);
    rig.session.on_clear(true);
    assert_eq!(rig.codes(), [331], "a user who may");
    rig.actions();
    assert_eq!(rig.say("AUTH TLS\r\nUSER eve\r\nPASS y\r\n"), [234]);
    assert_eq!(rig.actions(), [Action::Secure]);
    assert_eq!(rig.say("PASS z\r\n"), []);
    rig.session.on_secured(rig.now, Secured::Yes);
    assert_eq!(rig.say("PASS x\r\nUSER anonymous\r\nPASS me\r\nAUTH TLS\r\nPBSZ 0\r\n"), [503, 331, 230, 503, 200]);
    assert_eq!(rig.actions(), [Action::LogInAnonymous]);
    assert_eq!(rig.say("STOR f\r\nPROT C\r\nCCC\r\nEPSV\r\n"), [550, 534, 533]);
    rig.session.on_listening(0, Ok(50_000));
    rig.say("RETR f\r\n");
    assert_eq!(rig.session.on_prepared(0, Ok(Prepared::File { bytes: 1 })), None);
    assert_eq!(rig.codes(), [521]);
    assert_eq!(rig.say("PROT P\r\nEPRT |1|10.0.0.9|2000|\r\nRETR f\r\n"), [200, 200]);
    let connect = rig.session.on_prepared(0, Ok(Prepared::File { bytes: 1 })).unwrap();
    assert!(connect.private && connect.way == Way::Active("10.0.0.9:2000".parse().unwrap()));
}

#[test]
fn three_wrong_passwords_are_the_end_and_each_has_its_pause() {
    let mut rig = Rig::new(terms());
    for attempt in 1..=TRIES_MAX {
        rig.say("USER ada\r\nPASS x\r\nNOOP\r\n");
        rig.codes();
        let begins = rig.now;
        rig.session.on_login(rig.now, LogIn::Wrong { pause_ns: SECOND });
        assert_eq!(rig.at(begins + SECOND - 1), []);
        let said = rig.at(begins + SECOND);
        assert_eq!(said, if attempt < TRIES_MAX { vec![530, 200] } else { vec![421] });
    }
    assert_eq!(rig.actions().last(), Some(&Action::Close));
    assert_eq!(rig.say("NOOP\r\n"), []);
    let mut rig = Rig::new(terms());
    rig.say("USER ada\r\nPASS x\r\n");
    rig.codes();
    rig.session.on_login(0, LogIn::Shut { seconds: 8 });
    assert_eq!(rig.codes(), [421]);
    assert!(rig.text.contains("in 8 s"));
}

#[test]
fn who_says_nothing_that_matters_is_out_after_ten_sixty_or_three_hundred_seconds() {
    let mut rig = Rig::new(Terms { may_clear: false, ..terms() });
    assert_eq!(rig.session.deadline_ns(), AUTH_TIME_NS);
    assert_eq!(rig.at(AUTH_TIME_NS - 1), [220]);
    rig.session.on_bytes(AUTH_TIME_NS, b"NOOP\r\n");
    assert_eq!(rig.codes(), [421], "a NOOP that waits is no reason to stay");
    let mut rig = Rig::new(Terms { may_clear: false, ..terms() });
    rig.say("AUTH TLS\r\n");
    rig.at(SECOND);
    assert_eq!(rig.session.deadline_ns(), AUTH_TIME_NS);
    rig.session.on_secured(SECOND, Secured::Yes);
    assert_eq!(rig.session.deadline_ns(), LOGIN_TIME_NS);
    assert_eq!(rig.at(LOGIN_TIME_NS), [421]);
    let mut rig = Rig::new(Terms { implicit: true, ..terms() });
    assert_eq!(rig.at(AUTH_TIME_NS), [], "no TLS, and no word");
    assert_eq!(rig.actions(), [Action::Secure, Action::Close]);
    let mut rig = Rig::logged_in(BOTH);
    rig.moving();
    assert_eq!(rig.session.deadline_ns(), u64::MAX, "a transfer has its own");
    rig.session.on_over(1000 * SECOND, Ok(Over::Sent));
    assert_eq!(rig.codes(), [226]);
    assert_eq!(rig.session.deadline_ns(), 1300 * SECOND);
    assert_eq!(rig.at(1200 * SECOND), []);
    assert_eq!(rig.say("NOOP\r\n"), [200]);
    rig.session.on_bytes(1400 * SECOND, b"half a li");
    assert_eq!(rig.codes(), []);
    assert_eq!(rig.at(1500 * SECOND), [421], "half a line is none");
}

#[test]
fn after_epsv_all_there_is_no_other_way_and_none_to_a_third_host() {
    let mut rig = Rig::logged_in(BOTH);
    assert_eq!(rig.say("PORT 10,0,0,8,8,0\r\nEPRT |1|10.0.0.9|25|\r\nEPSV 2\r\nEPSV 3\r\n"), [504, 504, 522, 522]);
    assert_eq!(rig.say("EPSV ALL\r\nPORT 10,0,0,9,8,0\r\nEPRT |1|10.0.0.9|2048|\r\nPASV\r\n"), [200, 501, 501, 501]);
    assert!(rig.actions().is_empty());
    rig.say("EPSV 1\r\n");
    assert_eq!(rig.actions(), [Action::Listen]);
    rig.session.on_listening(0, Err(NoPort::AllTaken));
    assert_eq!(rig.codes(), [425]);
    let mut rig = Rig::logged_in(BOTH);
    rig.say("PASV\r\n");
    rig.session.on_listening(0, Ok(513));
    assert_eq!(rig.codes(), [227]);
    assert!(rig.text.contains("(10,0,0,1,2,1)"));
    assert_eq!(rig.say("PORT 10,0,0,9,8,0\r\n"), [200]);
    assert_eq!(rig.actions(), [Action::Listen, Action::Unlisten], "the port is closed when another way is named");
}

#[test]
fn rest_holds_for_one_transfer_and_a_rename_for_one_command() {
    let mut rig = Rig::logged_in(BOTH);
    assert_eq!(rig.say("REST 5\r\nEPRT |1|10.0.0.9|2048|\r\nTYPE I\r\nRETR f\r\n"), [350, 200, 200]);
    let connect = rig.session.on_prepared(0, Ok(Prepared::File { bytes: 9 })).unwrap();
    assert_eq!(connect.range, 5..9);
    rig.session.on_over(0, Err(End::NobodyCame));
    assert_eq!(rig.say("PORT 10,0,0,9,8,0\r\nRANG 2 3\r\nRETR f\r\n"), [425, 200, 350]);
    assert_eq!(rig.session.on_prepared(0, Ok(Prepared::File { bytes: 9 })).unwrap().range, 2..4);
    rig.session.on_over(0, Err(End::NobodyCame));
    assert_eq!(rig.say("REST 5\r\nNOOP\r\nPORT 10,0,0,9,8,0\r\nRETR f\r\n"), [425, 350, 200, 200]);
    assert_eq!(rig.session.on_prepared(0, Ok(Prepared::File { bytes: 9 })).unwrap().range, 0..9);
    rig.session.on_over(0, Err(End::NobodyCame));
    assert_eq!(rig.say("REST 10\r\nPORT 10,0,0,9,8,0\r\nRETR f\r\n"), [425, 350, 200]);
    assert_eq!(rig.session.on_prepared(0, Ok(Prepared::File { bytes: 9 })), None);
    assert_eq!(rig.say("RANG 0 5\r\nSTOR f\r\n"), [554, 350, 504]);
    rig.actions();
    assert_eq!(rig.say("RNFR a\r\n"), []);
    rig.session.on_done(0, Ok(Outcome::Facts(FACTS)));
    assert_eq!(rig.say("RNTO b\r\n"), [350]);
    rig.session.on_done(0, Ok(Outcome::Done));
    assert_eq!(rig.actions()[1..], [Action::Work(Task::Rename { from: b"a".to_vec(), to: b"b".to_vec() })]);
    rig.say("RNFR a\r\n");
    rig.session.on_done(0, Ok(Outcome::Facts(FACTS)));
    assert_eq!(rig.say("NOOP\r\nRNTO b\r\nRNTO b\r\n"), [350, 200, 503, 503]);
}

const FACTS: super::super::facts::Facts = super::super::facts::Facts {
    kind: super::super::facts::Kind::File,
    bytes: 5,
    mtime_s: 0,
    mode: 0o644,
    links: 1,
    unique: (1, 2),
};

#[test]
fn hash_is_of_what_rang_chose_once_and_those_of_old_say_it_themselves() {
    let mut rig = Rig::logged_in(BOTH);
    rig.say("RANG 2 4\r\nHASH f\r\n");
    let task = |digest, part| vec![Action::Work(Task::Hash(b"f".into(), digest, part))];
    assert_eq!(rig.actions(), task(Digest::Sha256, Part { from: 2, to: Some(5) }));
    rig.session.on_done(0, Ok(Outcome::Digest("ab".into(), 5)));
    rig.codes();
    assert_eq!(rig.text, "213 SHA-256 2-5 ab f\r\n");
    for (said, digest) in [("HASH f\r\n", Digest::Sha256), ("RANG 2 4\r\nXMD5 f\r\n", Digest::Md5)] {
        rig.say(said);
        assert_eq!(rig.actions(), task(digest, Part::default()), "{said}");
        rig.session.on_done(0, Ok(Outcome::Digest("ab".into(), 5)));
        rig.codes();
    }
}

#[test]
fn what_is_asked_of_files_is_answered_as_the_standards_say() {
    let mut rig = Rig::logged_in(BOTH);
    for (said, outcome, wanted) in [
        ("SIZE f", Ok(Outcome::Bytes(5)), "213 5\r\n"),
        ("SIZE f", Err(Fault::NotFound), "550 There is no such file or folder.\r\n"),
        ("MDTM f", Ok(Outcome::Facts(FACTS)), "213 19700101000000\r\n"),
        (
            "MLST f",
            Ok(Outcome::Facts(FACTS)),
            "250-Facts:\r\n type=file;size=5;modify=19700101000000;perm=rwadf;unix.mode=0644;unique=1g2; /f\r\n250 End\r\n",
        ),
        ("MKD d \"q\"", Ok(Outcome::Done), "257 \"/d \"\"q\"\"\" made.\r\n"),
        ("CWD d", Ok(Outcome::Done), "250 You are there.\r\n"),
        ("HASH f", Ok(Outcome::Digest("ab".into(), 5)), "213 SHA-256 0-5 ab f\r\n"),
        ("XCRC f", Ok(Outcome::Digest("ab".into(), 5)), "250 ab\r\n"),
        ("XMD5 \"f\" 3 5", Ok(Outcome::Digest("ab".into(), 5)), "250 ab\r\n"),
        ("HASH f", Err(Fault::Aborted), "426 Aborted.\r\n"),
        ("MFMT 19700101000000 f", Ok(Outcome::Done), "213 Modify=19700101000000; /d/f\r\n"),
        (
            "MFF modify=19700101000000;unix.mode=600; f",
            Ok(Outcome::Done),
            "213 Modify=19700101000000;UNIX.mode=0600; /d/f\r\n",
        ),
        ("SITE UTIME 19700101000000 f", Ok(Outcome::Done), "200 Set.\r\n"),
        ("AVBL", Ok(Outcome::Bytes(9)), "213 9\r\n"),
        ("ALLO 10", Ok(Outcome::Bytes(9)), "452 The server's disk has 9 bytes free.\r\n"),
        (
            "STAT f",
            Ok(Outcome::Facts(FACTS)),
            "213-Status:\r\n -rw-r--r-- 1 ftp ftp            5 Jan  1  1970 d/f\r\n213 LIST lists.\r\n",
        ),
        ("DELE f", Err(Fault::Other("no\r\n".into())), "451 The server failed: no??.\r\n"),
    ] {
        assert_eq!(rig.say(&[said, "\r\n"].concat()), [], "{said}");
        rig.session.on_done(0, outcome);
        rig.codes();
        assert_eq!(rig.text, wanted, "{said}");
    }
    for (said, code) in [
        ("PWD", 257),
        ("OPTS MLST size;nonsense;", 200),
        ("OPTS HASH BLAKE3", 200),
        ("FEAT", 211),
        ("HELP", 214),
        ("SITE HELP", 214),
        ("STAT", 211),
        ("SYST", 215),
        ("MODE Z", 504),
        ("COMB a", 502),
        ("LANG de", 200),
        ("CLNT x", 200),
        ("HOST x", 503),
        ("RMD /", 550),
        ("STOR /", 553),
        ("RNTO b", 503),
        ("TYPE A", 200),
        ("STOR a\0", 553),
        ("NONSENSE", 500),
    ] {
        assert_eq!(rig.say(&[said, "\r\n"].concat()), [code], "{said}");
    }
    assert!(rig.say("FEAT\r\n") == [211] && rig.text.contains("BLAKE3*") && rig.text.contains(" MLST type;size*;"));
    assert_eq!(rig.say("QUIT\r\nNOOP\r\n"), [221]);
}

#[test]
fn who_may_only_read_or_only_write_is_held_to_it() {
    let mut rig = Rig::logged_in(Rights { read: true, write: false });
    for refused in [
        "STOR f",
        "APPE f",
        "STOU",
        "DELE f",
        "MKD d",
        "RMD d",
        "RNFR f",
        "RNTO f",
        "SITE CHMOD 600 f",
        "MFMT 20200101000000 f",
    ] {
        assert_eq!(rig.say(&[refused, "\r\n"].concat()), [550], "{refused}");
    }
    let mut rig = Rig::logged_in(Rights { read: false, write: true });
    for refused in ["RETR f", "LIST", "NLST", "MLSD", "MLST", "HASH f", "XCRC f", "DELE f", "RNFR f", "STAT f"] {
        assert_eq!(rig.say(&[refused, "\r\n"].concat()), [550], "{refused}");
    }
}

/// A port and an upload by MODE E that moves.
fn uploading(rig: &mut Rig, said: &str) -> Connect {
    assert_eq!(rig.say(said), []);
    let connect = rig.session.on_prepared(rig.now, Ok(Prepared::Upload { bytes: 0 })).unwrap();
    rig.session.on_connected(rig.now);
    connect
}

#[test]
fn mode_e_is_dialled_by_the_sender_and_its_connections_are_kept_for_the_next() {
    let mut rig = Rig::logged_in(BOTH);
    assert_eq!(rig.say("MODE E\r\nOPTS RETR Parallelism=4,4,4;\r\nPORT 10,0,0,9,8,0\r\n"), [200, 200, 200]);
    rig.say("RETR f\r\n");
    let connect = rig.session.on_prepared(0, Ok(Prepared::File { bytes: 9 })).unwrap();
    let of = |range: core::ops::Range<u64>| Blocks { connections: 4, zero: range.start, ranges: Vec::from([range]) };
    assert_eq!(connect.blocks, Some(of(0..9)));
    rig.session.on_connected(0);
    rig.session.on_kept();
    rig.session.on_over(0, Ok(Over::Sent));
    // The next one over the same connections, also behind a name that is none.
    assert_eq!(rig.say("RETR nothing\r\n"), [150, 226]);
    assert_eq!(rig.session.on_prepared(0, Err(Fault::NotFound)), None);
    assert_eq!(rig.say("REST 0-3,5-7\r\nRETR f\r\n"), [550, 350]);
    let connect = rig.session.on_prepared(0, Ok(Prepared::File { bytes: 9 })).unwrap();
    assert_eq!((connect.way, connect.blocks.unwrap().ranges), (Way::Kept(false), vec![3..5, 7..9]));
    rig.session.on_connected(0);
    rig.session.on_kept();
    rig.session.on_over(0, Ok(Over::Sent));
    assert_eq!(rig.say("ERET P 2 5 f\r\n"), [125, 226]);
    let connect = rig.session.on_prepared(0, Ok(Prepared::File { bytes: 9 })).unwrap();
    assert_eq!(connect.blocks, Some(of(2..7)), "offsets count from there");
    rig.session.on_connected(0);
    rig.session.on_kept();
    rig.session.on_over(0, Ok(Over::Sent));
    assert_eq!(rig.codes(), [125, 226]);
    rig.actions();
    // Not in the other direction, and not by another way than that of who sends.
    assert_eq!(rig.say("STOR g\r\n"), []);
    assert_eq!(rig.session.on_prepared(0, Ok(Prepared::Upload { bytes: 0 })), None);
    assert_eq!(rig.say("PASV\r\n"), [425]);
    rig.session.on_listening(0, Ok(513));
    assert_eq!(rig.actions()[1..], [Action::Unlisten, Action::Listen], "connections of another direction are closed");
    assert_eq!(rig.say("RETR f\r\n"), [227]);
    assert_eq!(rig.session.on_prepared(0, Ok(Prepared::File { bytes: 9 })), None);
    assert_eq!(rig.codes(), [425]);
    assert_eq!(uploading(&mut rig, "ESTO A 5 g\r\n").blocks.unwrap().zero, 5);
    assert_eq!(rig.codes(), [150]);
    // A failure closes them.
    rig.session.on_over(0, Err(End::Truncated));
    assert_eq!(rig.say("STOR g\r\n"), [426]);
    assert_eq!(rig.session.on_prepared(0, Ok(Prepared::Upload { bytes: 0 })), None);
    assert_eq!(rig.codes(), [425]);
}

#[test]
fn what_mode_e_does_not_do_is_refused_by_name() {
    let mut rig = Rig::logged_in(BOTH);
    assert_eq!(rig.say("ESTO A 5 f\r\nREST 0-5\r\nDCAU A\r\n"), [504, 501, 504]);
    assert!(rig.text.contains("GSI"));
    assert_eq!(rig.say("MODE E\r\nDCAU N\r\nSBUF 4194304\r\nAPPE f\r\n"), [200, 200, 200, 504]);
    assert_eq!(rig.say("REST 0-5,7-9\r\nSTOR f\r\n"), [350, 501], "an upload goes on behind its beginning");
    assert_eq!(rig.say("SPOR 10,0,0,8,8,0\r\nSPOR 10,0,0,9,8,0 10,0,0,9,8,1\r\n"), [504, 501]);
    rig.say("SPAS\r\n");
    rig.session.on_listening(0, Ok(513));
    assert_eq!(rig.codes(), [229]);
    assert!(rig.text.contains("\r\n 10,0,0,1,2,1\r\n229 End"));
    assert!(rig.say("FEAT\r\n") == [211] && rig.text.contains(" PARALLEL\r\n") && !rig.text.contains("DCAU"));
    // By TLS there is none of it.
    let mut rig = Rig::new(terms());
    rig.say("AUTH TLS\r\n");
    rig.session.on_secured(0, Secured::Yes);
    rig.say("USER ada\r\nPASS x\r\n");
    rig.session.on_login(0, LogIn::In(BOTH));
    rig.codes();
    assert_eq!(rig.say("MODE E\r\n"), [504]);
    assert!(rig.say("FEAT\r\n") == [211] && !rig.text.contains("PARALLEL"));
}

#[test]
fn an_upload_by_mode_e_says_every_five_seconds_how_far_it_is_and_where_it_was_cut() {
    let mut rig = Rig::logged_in(BOTH);
    assert_eq!(rig.say("MODE E\r\nEPSV\r\n"), [200]);
    rig.session.on_listening(0, Ok(513));
    assert_eq!(rig.codes(), [229]);
    uploading(&mut rig, "STOR f\r\n");
    assert_eq!(rig.codes(), [150]);
    rig.session.on_progress(TELL_TIME_NS - 1, 7, (100, 60), false);
    assert_eq!(rig.codes(), []);
    rig.session.on_progress(TELL_TIME_NS, 7, (100, 60), false);
    assert_eq!(rig.codes(), [111, 112]);
    assert!(rig.text.contains(" Timestamp: 7.0\r\n") && rig.text.contains(" Stripe Bytes Transferred: 100\r\n"));
    rig.session.on_progress(TELL_TIME_NS + 1, 7, (200, 60), false);
    assert_eq!(rig.codes(), []);
    rig.session.on_progress(TELL_TIME_NS + 2, 7, (200, 160), true);
    assert_eq!(rig.codes(), [111]);
    assert_eq!(rig.text, "111 Range Marker 0-160\r\n");
    rig.session.on_over(TELL_TIME_NS + 2, Err(End::Truncated));
    assert_eq!(rig.say("REST 0-160\r\nEPSV\r\n"), [426, 350]);
    rig.session.on_listening(0, Ok(513));
    rig.actions();
    rig.say("STOR f\r\n");
    let actions = rig.actions();
    assert!(matches!(&actions[..], [Action::Prepare(it)] if it.part.from == 160 && it.is_blocks), "{actions:?}");
}
