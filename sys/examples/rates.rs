//! What the two engines of the ring reach on this machine: the ceiling of everything above.
//!
//! In: nothing; files are made in the folder given as first argument (default: the system's temporary folder).
//! Out: one line per measurement, Gb/s of payload and processor seconds per 10^9 bytes of the whole process.
//! Absent on purpose: a verdict. Compare lines of one run only.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sys::mem::{HEADROOM, Mem, Pool};
use sys::ring::{Done, Driver, Kind, Op};
use sys::{clock, sock};

const CHUNK: usize = 1 << 20;
const POOL: usize = 8;
const FILE_BYTES: u64 = 1 << 30;
const PASSES: usize = 4;
const NET_BYTES: u64 = 8 << 30;

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| std::env::temp_dir().to_string_lossy().into_owned());
    for round in 0..3 {
        println!("round {round}");
        for kind in [Kind::Uring, Kind::Plain] {
            network(kind);
        }
        for folder in [folder.as_str(), "/dev/shm"] {
            for kind in [Kind::Uring, Kind::Plain] {
                disk(kind, Path::new(folder));
            }
        }
    }
}

/// Runs `work`, which moves `bytes`, and prints its rate.
fn measure(what: &str, bytes: u64, work: impl FnOnce()) {
    let (start, cpu) = (clock::now_ns(), clock::process_cpu_ns());
    work();
    let (ns, cpu) = (clock::now_ns() - start, clock::process_cpu_ns() - cpu);
    println!("{what:44} {:7.1} Gb/s {:6.3} s/GB", bytes as f64 * 8.0 / ns as f64, cpu as f64 / bytes as f64);
}

fn ring(kind: Kind) -> (Pool, Driver) {
    let pool = Pool::new(POOL, CHUNK).expect("pool");
    let (driver, _) = Driver::choose(&pool, Some(kind)).expect("engine");
    (pool, driver)
}

/// One sender and one receiver, 1 MiB each, over loopback.
fn network(kind: Kind) {
    let listener = sock::listen("127.0.0.1:0".parse().expect("address")).expect("listen");
    let addr = listener.local_addr().expect("address");
    // Chosen before the handshake: some hosts default to bbr, whose pacing is not what is measured here.
    let one = sock::connect_from(addr, None, Duration::from_secs(5), |fd| sock::set_congestion(fd, "cubic"));
    let one: OwnedFd = one.expect("connect").into();
    let other: OwnedFd = listener.accept().expect("accept").0.into();
    measure(&format!("{kind:?} send and recv 1 MiB, loopback"), NET_BYTES, || {
        let sender = std::thread::spawn(move || send_all(kind, Arc::new(one)));
        receive_all(kind, Arc::new(other));
        sender.join().expect("sender");
    });
}

fn send_all(kind: Kind, socket: Arc<OwnedFd>) {
    let (mut pool, mut driver) = ring(kind);
    let (mut left, mut done) = (NET_BYTES, Vec::new());
    let mut mem = Some(Mem::Buf(pool.take().expect("buf")));
    while left > 0 {
        let op = Op::Send { socket: Arc::clone(&socket), mem: mem.take().expect("back"), at: HEADROOM, len: CHUNK };
        driver.submit(0, op);
        let end = one(&mut driver, &mut done);
        left -= end.result.expect("sent") as u64;
        mem = Some(end.mem);
    }
}

fn receive_all(kind: Kind, socket: Arc<OwnedFd>) {
    let (mut pool, mut driver) = ring(kind);
    let (mut left, mut done) = (NET_BYTES, Vec::new());
    let mut mem = Some(Mem::Buf(pool.take().expect("buf")));
    while left > 0 {
        let mem_in = mem.take().expect("back");
        driver.submit(0, Op::Recv { socket: Arc::clone(&socket), mem: mem_in, at: HEADROOM, len: CHUNK, all: true });
        let end = one(&mut driver, &mut done);
        left -= end.result.expect("received") as u64;
        mem = Some(end.mem);
    }
}

fn one(driver: &mut Driver, done: &mut Vec<Done>) -> Done {
    while done.is_empty() {
        driver.wait(None, done).expect("wait");
    }
    done.pop().expect("one")
}

/// Writes and reads a file through the page cache, 1 and 4 operations at once.
fn disk(kind: Kind, folder: &Path) {
    let path = folder.join(format!("rates-{}", std::process::id()));
    // Some virtual machines hand memory that was free for two seconds back to their host (free page reporting), and pay
    // ten times the cost of a write to get it again: this first file is not measured.
    let cold = File::create(&path).expect("file");
    (0..FILE_BYTES).step_by(CHUNK).for_each(|at| sys::fs::write_at_full(&cold, &[1; CHUNK], at).expect("write"));
    drop(cold);
    std::fs::remove_file(&path).expect("remove");
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).expect("file");
    let file = Arc::new(file);
    let at = folder.display();
    measure(&format!("{kind:?} write, depth 4, {at}"), FILE_BYTES, || pass(kind, &file, 4, true, 1));
    for depth in [1, 4] {
        let bytes = FILE_BYTES * PASSES as u64;
        measure(&format!("{kind:?} read, depth {depth}, {at}"), bytes, || pass(kind, &file, depth, false, PASSES));
    }
    std::fs::remove_file(path).expect("remove");
}

fn pass(kind: Kind, file: &Arc<File>, depth: usize, write: bool, passes: usize) {
    let (mut pool, mut driver) = ring(kind);
    let mut done = Vec::new();
    for _ in 0..passes {
        let mut offset = 0;
        while offset < FILE_BYTES || driver.in_flight() > 0 {
            while offset < FILE_BYTES && driver.in_flight() < depth {
                let (file, mem) = (Arc::clone(file), Mem::Buf(pool.take().expect("buf")));
                driver.submit(
                    0,
                    match write {
                        true => Op::Write { file, offset, mem, at: HEADROOM, len: CHUNK, uncached: false },
                        false => Op::Read { file, offset, mem, at: HEADROOM, len: CHUNK, uncached: false },
                    },
                );
                offset += CHUNK as u64;
            }
            driver.wait(None, &mut done).expect("wait");
            for end in done.drain(..) {
                assert_eq!(end.result.expect("moved"), CHUNK);
                if let Mem::Buf(buf) = end.mem {
                    pool.give(buf);
                }
            }
        }
    }
}
