//! MODE E over real sockets, by hand: right, and as no client should.

use proto::ftp::blocks::{CLOSE, EOD, EOF, HEAD_BYTES, Head};

use super::*;

/// A client in MODE E, and the port of its uploads.
struct Sender<'r> {
    rig: &'r Rig,
    client: Client<TcpStream>,
    port: u16,
}

impl<'r> Sender<'r> {
    fn new(rig: &'r Rig) -> Sender<'r> {
        let mut client = rig.logged_in();
        client.wants("MODE E", "200");
        let mut it = Sender { rig, client, port: 0 };
        it.listen();
        it
    }

    fn listen(&mut self) {
        let reply = self.client.wants("EPSV", "229");
        self.port = reply.split('|').nth(3).unwrap().parse().unwrap();
    }

    fn dial(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).unwrap()
    }

    #[track_caller]
    fn hears(&mut self, code: &str) {
        let reply = self.client.hear();
        assert!(reply.starts_with(code), "{reply}");
    }

    fn file(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.rig.root().join(name)).ok()
    }
}

fn block(stream: &mut TcpStream, flags: u8, offset: u64, bytes: &[u8]) {
    let head = Head { flags, count: bytes.len() as u64, offset };
    stream.write_all(&[&head.encode()[..], bytes].concat()).unwrap();
}

fn end(stream: &mut TcpStream, flags: u8, offset: u64) {
    block(stream, flags, offset, b"");
}

#[test]
fn blocks_of_several_connections_are_one_file_and_the_connections_are_kept() {
    let rig = Rig::new("e-kept", |_| {});
    let mut it = Sender::new(&rig);
    it.client.wants("STOR a", "150");
    let (mut one, mut two) = (it.dial(), it.dial());
    block(&mut two, 0, 3, b"def");
    end(&mut two, EOD, 0);
    block(&mut one, 0, 0, b"abc");
    end(&mut one, EOD | EOF, 2);
    it.hears("226");
    assert_eq!(it.file("a").unwrap(), b"abcdef");
    // The next one over the same, an empty one, and one by a third connection.
    it.client.wants("STOR b", "125");
    block(&mut one, EOD, 2, b"z");
    block(&mut two, 0, 0, b"xy");
    end(&mut two, EOD | EOF, 2);
    it.hears("226");
    assert_eq!(it.file("b").unwrap(), b"xyz");
    it.client.wants("STOR c", "125");
    end(&mut one, EOD | EOF | CLOSE, 1);
    it.hears("226");
    assert_eq!(it.file("c").unwrap(), b"");
    assert_eq!(one.read(&mut [0]).unwrap(), 0, "CLOSE closes it");
    it.client.wants("STOR d", "125");
    let mut three = it.dial();
    block(&mut three, 0, 0, b"d");
    end(&mut three, EOD | EOF, 1);
    it.hears("226");
    assert_eq!(it.file("d").unwrap(), b"d");
}

#[test]
fn a_short_file_behind_a_long_one_on_a_kept_connection_is_not_waited_for() {
    let rig = Rig::new("e-short", |_| {});
    let mut it = Sender::new(&rig);
    it.client.wants("STOR a", "150");
    let mut one = it.dial();
    one.write_all(&Head { flags: 0, count: 200_000, offset: 0 }.encode()).unwrap();
    one.write_all(&[7; 100_000]).unwrap();
    // The rest and the end come at once, while the port waits for as many bytes as the block has left.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let rest = [&[7; 100_000][..], &Head::end(true, 1).encode()].concat();
    one.write_all(&rest).unwrap();
    it.hears("226");
    let began = std::time::Instant::now();
    it.client.wants("STOR b", "125");
    block(&mut one, 0, 0, b"short");
    end(&mut one, EOD | EOF, 1);
    it.hears("226");
    assert!(began.elapsed() < std::time::Duration::from_secs(2));
    assert_eq!(it.file("b").unwrap(), b"short");
}

#[test]
fn a_stray_connection_ends_no_transfer() {
    let rig = Rig::new("e-stray", |_| {});
    let mut it = Sender::new(&rig);
    it.client.wants("STOR a", "150");
    drop(it.dial());
    let _silent = it.dial();
    let mut other = it.dial();
    other.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut half = it.dial();
    half.write_all(b"\0\0\0").unwrap();
    drop(half);
    assert!(matches!(other.read(&mut [0]), Ok(0) | Err(_)), "it is closed");
    let mut one = it.dial();
    block(&mut one, 0, 0, b"abc");
    end(&mut one, EOD | EOF, 1);
    it.hears("226");
    assert_eq!(it.file("a").unwrap(), b"abc");
}

#[test]
fn blocks_that_lie_and_connections_that_are_cut_leave_no_file() {
    let rig = Rig::new("e-lies", |_| {});
    type Lie = fn(&mut TcpStream);
    let lies: [(&str, Lie); 9] = [
        ("an overlap", |it| {
            block(it, 0, 0, b"abc");
            block(it, 0, 2, b"cd");
        }),
        ("behind what ALLO said", |it| block(it, 0, 90, &[1; 11])),
        ("an offset that overflows", |it| end(it, 0x40, u64::MAX)),
        ("a count that overflows", |it| it.write_all(&Head { flags: 0, count: u64::MAX, offset: 2 }.encode()).unwrap()),
        ("EOF twice", |it| {
            end(it, EOF, 2);
            end(it, EOF, 2);
        }),
        ("more ends than were said", |it| {
            end(it, EOF, 1);
            block(it, 0, 0, b"a");
            end(it, 0x80, 0);
        }),
        ("a gap", |it| {
            block(it, 0, 5, &[1; 95]);
            end(it, EOD | EOF, 1);
        }),
        ("blocks of nothing without end", |it| it.write_all(&[0; HEAD_BYTES * 1100]).unwrap()),
        ("a cut in the midst of a block", |it| {
            it.write_all(&Head { flags: 0, count: 100, offset: 0 }.encode()).unwrap();
            it.write_all(b"only this").unwrap();
            it.shutdown(Shutdown::Write).unwrap();
        }),
    ];
    for (what, lie) in lies {
        let mut it = Sender::new(&rig);
        it.client.wants("ALLO 100", "200");
        it.client.wants("STOR a", "150");
        let mut one = it.dial();
        lie(&mut one);
        let mut reply = it.client.hear();
        if reply.starts_with("111") {
            reply = it.client.hear();
        }
        assert!(reply.starts_with("426"), "{what}: {reply}");
        assert!(it.file("a").is_none(), "{what}");
        it.client.wants("NOOP", "200");
    }
    // One of two is cut, between two blocks; the file that stood stays.
    std::fs::write(rig.root().join("a"), b"old").unwrap();
    let mut it = Sender::new(&rig);
    it.client.wants("STOR a", "150");
    let (mut one, mut two) = (it.dial(), it.dial());
    block(&mut one, 0, 0, b"abc");
    block(&mut two, 0, 3, b"def");
    drop(two);
    it.hears("111 Range Marker 0-");
    it.hears("426");
    assert_eq!(it.file("a").unwrap(), b"old");
}

#[test]
fn what_was_cut_goes_on_behind_the_marker_and_esto_writes_into_a_file() {
    let rig = Rig::new("e-cut", |_| {});
    let mut it = Sender::new(&rig);
    it.client.wants("STOR a", "150");
    let mut one = it.dial();
    block(&mut one, 0, 0, b"abc");
    block(&mut one, 0, 9, b"never kept");
    one.shutdown(Shutdown::Write).unwrap();
    it.hears("111 Range Marker 0-3");
    it.hears("426");
    it.listen();
    it.client.wants("REST 0-3", "350");
    it.client.wants("STOR a", "150");
    let mut one = it.dial();
    block(&mut one, 0, 3, b"def");
    end(&mut one, EOD | EOF, 1);
    it.hears("226");
    assert_eq!(it.file("a").unwrap(), b"abcdef");
    it.client.wants("ESTO A 2 a", "125");
    block(&mut one, 0, 0, b"XY");
    end(&mut one, EOD | EOF, 1);
    it.hears("226");
    assert_eq!(it.file("a").unwrap(), b"abXYef");
    // ABOR, and nothing is left.
    it.client.wants("STOR b", "125");
    block(&mut one, 0, 0, b"b");
    it.client.say(b"ABOR");
    let mut codes: Vec<String> = (0..2).map(|_| it.client.hear()[..3].to_owned()).collect();
    if codes[0] == "111" {
        codes.remove(0);
        codes.push(it.client.hear()[..3].to_owned());
    }
    assert_eq!(codes, ["426", "226"]);
    assert!(it.file("b").is_none());
}

/// All blocks that come over these connections until they said their ends: the bytes, and how many EODs EOF said.
fn receive(streams: &mut [TcpStream], len: usize) -> (Vec<u8>, u64) {
    let (mut all, mut said) = (vec![0; len], 0);
    for stream in streams {
        loop {
            let mut head = [0; HEAD_BYTES];
            stream.read_exact(&mut head).unwrap();
            let head = Head::decode(&head);
            if head.flags & EOF != 0 {
                said = head.offset;
            } else {
                stream.read_exact(&mut all[head.offset as usize..][..head.count as usize]).unwrap();
            }
            if head.flags & EOD != 0 {
                break;
            }
        }
    }
    (all, said)
}

#[test]
fn a_download_is_dealt_out_to_connections_that_are_kept() {
    let rig = Rig::new("e-get", |_| {});
    let content: Vec<u8> = (0..9_000_000_u32).map(|at| (at * 7 + at / 4093) as u8).collect();
    std::fs::write(rig.root().join("large"), &content).unwrap();
    std::fs::write(rig.root().join("small"), b"small").unwrap();
    let mut client = rig.logged_in();
    client.wants("MODE E", "200");
    client.wants("OPTS RETR Parallelism=2,2,2;", "200");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    client.wants(&format!("EPRT |1|127.0.0.1|{}|", listener.local_addr().unwrap().port()), "200");
    client.say(b"RETR small");
    let mut streams = vec![listener.accept().unwrap().0];
    assert!(client.hear().starts_with("150"));
    assert_eq!(receive(&mut streams, 5), (b"small".to_vec(), 1), "one connection is enough for it");
    assert!(client.hear().starts_with("226"));
    client.wants("RETR nothing", "550");
    client.say(b"RETR large");
    streams.push(listener.accept().unwrap().0);
    assert!(client.hear().starts_with("125"));
    let mut second = streams.pop().unwrap();
    let (got, said) = std::thread::scope(|scope| {
        let other = scope.spawn(|| receive(std::slice::from_mut(&mut second), content.len()).0);
        let (first, said) = receive(&mut streams, content.len());
        let other = other.join().unwrap();
        (first.iter().zip(&other).map(|(a, b)| a | b).collect::<Vec<u8>>(), said)
    });
    assert!(got == content && said == 2);
    assert!(client.hear().starts_with("226"));
    streams.push(second);
    client.wants("REST 0-1,3-4", "350");
    client.wants("RETR small", "125");
    assert_eq!(receive(&mut streams, 5).0, b"\0ma\0l");
    assert!(client.hear().starts_with("226"));
    client.wants("ERET P 1 3 small", "125");
    assert_eq!(receive(&mut streams, 3).0, b"mal", "offsets count from its start");
    assert!(client.hear().starts_with("226"));
    client.wants("NLST", "125");
    assert_eq!(receive(&mut streams, 14).0.len(), 14);
    assert!(client.hear().starts_with("226"));
}

#[test]
fn mode_e_is_for_networks_that_may_speak_in_clear_alone() {
    let rig = Rig::new("e-clear", |settings| settings.clear = Vec::new());
    let mut client = rig.client();
    client.wants("MODE E", "530");
    client.wants("SPAS", "530");
    client.wants("USER ada", "530");
}

#[test]
fn buffers_are_as_large_as_sbuf_says() {
    let rig = Rig::new("e-sbuf", |_| {});
    let mut it = Sender::new(&rig);
    it.client.wants("SBUF 99999999999", "501");
    // What goes to a port that nobody reads yet: the window that was opened, and what this end holds itself.
    let mut room = |said: &str| {
        it.client.wants(said, "200");
        it.listen();
        let mut stream = it.dial();
        sys::sock::set_buffers(&stream, 0, 64 << 10).unwrap();
        stream.set_nonblocking(true).unwrap();
        let (mut went, piece) = (0, vec![0; 64 << 10]);
        for _ in 0..20 {
            while let Ok(bytes) = stream.write(&piece) {
                went += bytes;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        went
    };
    let (own, small, large) = (room("SBUF 0"), room("SBUF 8192"), room("SBUF 16777216"));
    assert!(small + (16 << 10) < own, "{small}, {own}");
    assert!(large + (32 << 10) >= own, "more than the host allows makes nothing smaller: {large}, {own}");
}
