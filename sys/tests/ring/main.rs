//! Both engines of the ring give the same answers: one table of tests, run with each of them on real files and sockets.
//!
//! In: real files on the disk of the build folder and on tmpfs, socket pairs, TCP over loopback. Out: `Done`s.
//! Absent on purpose: speed (see `examples/rates.rs`) and allocation (see `steady.rs`).

mod disk;
mod driver;
mod network;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sys::mem::{Mem, Pool};
use sys::ring::{Done, Driver, Kind, Op};

/// Long enough for a slow machine, short enough to fail a hanging test.
const LONG: Duration = Duration::from_secs(20);
const CHUNK: usize = 1 << 20;

/// A pool, a ring on it, and a folder of its own.
struct Room {
    pool: Pool,
    driver: Driver,
    folder: PathBuf,
}

impl Room {
    fn new(kind: Kind, root: &str) -> Room {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = PathBuf::from(root).join(format!("sys-ring-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("folder");
        let pool = Pool::new(8, CHUNK).expect("pool");
        let (driver, _) = Driver::choose(&pool, Some(kind)).expect("this engine on this machine");
        assert_eq!(driver.kind(), kind);
        Room { pool, driver, folder }
    }

    fn file(&self, name: &str, contents: &[u8]) -> Arc<File> {
        let path = self.folder.join(name);
        std::fs::write(&path, contents).expect("write");
        Arc::new(File::options().read(true).write(true).open(path).expect("open"))
    }

    /// Waits until `count` more operations are done.
    fn wait_for(&mut self, count: usize) -> Vec<Done> {
        let (mut done, end) = (Vec::new(), Instant::now() + LONG);
        while done.len() < count {
            assert!(Instant::now() < end, "only {} of {count} done", done.len());
            self.driver.wait(Some(LONG), &mut done).expect("wait");
        }
        assert_eq!(done.len(), count);
        done
    }

    fn one(&mut self, op: Op) -> (io::Result<usize>, Mem) {
        self.driver.submit(77, op);
        let done = self.wait_for(1).pop().expect("one");
        assert_eq!((done.token, self.driver.in_flight()), (77, 0));
        (done.result, done.mem)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    (0..bytes as u64).map(|at| ((at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn small(bytes: usize) -> Mem {
    Mem::Small(vec![0; bytes].into_boxed_slice())
}

fn pair() -> (Arc<OwnedFd>, Arc<OwnedFd>) {
    let (one, other) = sys::sock::pair().expect("pair");
    (Arc::new(one), Arc::new(other))
}

/// Both ends of a TCP connection over loopback.
fn tcp() -> (Arc<OwnedFd>, Arc<OwnedFd>) {
    let listener = sys::sock::listen("127.0.0.1:0".parse().expect("address")).expect("listen");
    let addr = listener.local_addr().expect("address");
    let one = sys::sock::connect(addr, LONG).expect("connect");
    let (other, _) = listener.accept().expect("accept");
    (Arc::new(one.into()), Arc::new(other.into()))
}

type Test = fn(&mut Room);

/// THE table: each of these holds for both engines.
const TABLE: &[(&str, Test)] = &[
    ("writes_then_reads_back", disk::writes_then_reads_back),
    ("reads_short_at_the_end_of_a_file", disk::reads_short_at_the_end_of_a_file),
    ("reads_from_the_disk_itself", disk::reads_from_the_disk_itself),
    ("says_ebadf_for_a_file_not_open_for_it", disk::says_ebadf_for_a_file_not_open_for_it),
    ("takes_bufs_of_another_pool", disk::takes_bufs_of_another_pool),
    ("refuses_a_range_outside_of_the_memory", disk::refuses_a_range_outside_of_the_memory),
    ("sends_and_receives_whole_chunks", network::sends_and_receives_whole_chunks),
    ("hands_a_file_to_the_network_unread", network::hands_a_file_to_the_network_unread),
    ("receives_what_is_there_unless_all_is_wanted", network::receives_what_is_there_unless_all_is_wanted),
    ("receives_a_tail_that_is_all_there_will_be", network::receives_a_tail_that_is_all_there_will_be),
    ("tells_the_end_of_a_stream", network::tells_the_end_of_a_stream),
    ("a_peer_that_closes_ends_what_is_in_flight", network::a_peer_that_closes_ends_what_is_in_flight),
    ("shutting_down_our_end_ends_what_is_in_flight", network::shutting_down_our_end_ends_what_is_in_flight),
    ("says_when_a_socket_is_readable", network::says_when_a_socket_is_readable),
    ("says_readable_for_an_error_that_waits", network::says_readable_for_an_error_that_waits),
    ("is_woken_by_another_thread", driver::is_woken_by_another_thread),
    ("no_wake_is_lost_in_a_storm", driver::no_wake_is_lost_in_a_storm),
    ("polls_without_waiting", driver::polls_without_waiting),
    ("churns_a_thousand_operations_of_all_kinds", driver::churns_a_thousand_operations_of_all_kinds),
    ("takes_more_operations_than_it_was_made_for", driver::takes_more_operations_than_it_was_made_for),
    ("is_dropped_with_operations_in_flight", driver::is_dropped_with_operations_in_flight),
];

fn run(kind: Kind, registered: bool) {
    for root in [env!("CARGO_TARGET_TMPDIR"), "/dev/shm"] {
        for (name, test) in TABLE {
            println!("{kind:?} in {root}: {name}");
            let mut room = Room::new(kind, root);
            if registered {
                // Some of them: operations meet both kinds.
                let bufs: Vec<_> = (0..3).filter_map(|_| room.pool.take()).collect();
                for buf in &bufs {
                    match room.driver.fix(buf) {
                        Ok(told) => assert!(told && room.driver.fix(buf).expect("told before"), "{kind:?}"),
                        // The one lawful reason: an unprivileged user's `ulimit -l`.
                        Err(error) => assert_eq!(error.raw_os_error(), Some(12), "{error}"),
                    }
                }
                bufs.into_iter().for_each(|buf| room.pool.give(buf));
            }
            test(&mut room);
        }
    }
}

#[test]
fn plain_calls_keep_the_table() {
    run(Kind::Plain, false);
}

/// Where io_uring is forbidden there is nothing to test, and `choose` must say so and fall to plain calls.
#[test]
fn io_uring_keeps_the_table() {
    let pool = Pool::new(2, 4096).expect("pool");
    let (driver, reason) = Driver::choose(&pool, None).expect("some engine");
    println!("chosen: {reason}");
    match driver.kind() {
        Kind::Uring => {
            run(Kind::Uring, false);
            run(Kind::Uring, true);
        }
        Kind::Plain => assert!(reason.contains("because io_uring failed"), "{reason}"),
    }
}
