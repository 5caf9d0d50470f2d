//! In steady state the ring and the pool allocate nothing, in no thread of the process.
//!
//! In: some thousand operations of all five kinds, and bursts of packets beside them, after a warm-up. Out: the count of allocations, which must not move.
//! One test alone in its binary: the allocator counts for the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sys::mem::{HEADROOM, Mem, Pool};
use sys::ring::{Done, Driver, Kind, Op};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are those of this very call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are those of this very call, and `alloc` above gave `at`.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are those of this very call, and `alloc` above gave `at`.
        unsafe { System.realloc(at, layout, bytes) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const CHUNK: usize = 256 * 1024;

struct Line {
    pool: Pool,
    driver: Driver,
    done: Vec<Done>,
    file: Arc<File>,
    one: Arc<OwnedFd>,
    other: Arc<OwnedFd>,
    /// Two ends of a path for packets.
    packets: (OwnedFd, Arc<OwnedFd>),
    into: Vec<u8>,
}

fn datagrams() -> (OwnedFd, Arc<OwnedFd>) {
    let here = sys::udp::bind("127.0.0.1:0".parse().expect("address"), false).expect("bind");
    let to = sys::udp::local_addr(&here).expect("address");
    let (there, _) = sys::udp::open(None, to, 0, 0).expect("open");
    (there, Arc::new(here))
}

impl Line {
    fn new(kind: Kind, folder: &str) -> Line {
        let pool = Pool::new(8, CHUNK).expect("pool");
        let (driver, _) = Driver::choose(&pool, Some(kind)).expect("engine");
        let path = Path::new(folder).join(format!("sys-steady-{}-{kind:?}", std::process::id()));
        std::fs::write(&path, vec![1; 4 * CHUNK]).expect("file");
        let file = File::options().read(true).write(true).open(&path).expect("file");
        std::fs::remove_file(path).expect("remove");
        let (one, other) = sys::sock::pair().expect("pair");
        let (one, other) = (Arc::new(one), Arc::new(other));
        let (file, done) = (Arc::new(file), Vec::with_capacity(64));
        Line { pool, driver, done, file, one, other, packets: datagrams(), into: vec![0; 65_535] }
    }

    fn buf(&mut self) -> Mem {
        Mem::Buf(self.pool.take().expect("buf"))
    }

    /// One round: a chunk is written, read, sent and received, and the ring is woken.
    fn round(&mut self, number: u64) {
        let offset = number % 4 * CHUNK as u64;
        let (at, len) = (HEADROOM, CHUNK);
        let (file, mem) = (Arc::clone(&self.file), self.buf());
        self.driver.submit(1, Op::Write { file, offset, mem, at, len, uncached: false });
        let (file, mem) = (Arc::clone(&self.file), self.buf());
        self.driver.submit(2, Op::Read { file, offset, mem, at, len, uncached: false });
        let (socket, mem) = (Arc::clone(&self.one), self.buf());
        self.driver.submit(3, Op::Send { socket, mem, at, len });
        let (socket, mem) = (Arc::clone(&self.other), self.buf());
        self.driver.submit(4, Op::Recv { socket, mem, at, len, all: true });
        self.driver.submit(5, Op::Readable { socket: Arc::clone(&self.packets.1) });
        let sent = sys::udp::send_burst(&self.packets.0, &[[1; sys::udp::HEAD_BYTES]; 10], &[2; 10_000], 1000);
        assert_eq!(sent.expect("send"), 10);
        self.driver.waker().wake();
        while self.driver.in_flight() > 0 {
            self.driver.wait(Some(Duration::from_secs(20)), &mut self.done).expect("wait");
            for done in self.done.drain(..) {
                let expected = if done.token == 5 { 0 } else { CHUNK };
                assert_eq!(done.result.expect("works"), expected);
                if let Mem::Buf(buf) = done.mem {
                    self.pool.give(buf);
                }
            }
        }
        let mut bytes = 0;
        while bytes < 10 * 1032 {
            bytes += sys::udp::recv_burst(&self.packets.1, &mut self.into).expect("it was readable").bytes;
        }
    }
}

#[test]
fn steady_state_allocates_nothing() {
    let wanted = match sys::ring::io_uring() {
        Ok(_) => vec![Kind::Uring, Kind::Plain],
        Err(_) => vec![Kind::Plain],
    };
    for folder in [env!("CARGO_TARGET_TMPDIR"), "/dev/shm"] {
        for kind in &wanted {
            let mut line = Line::new(*kind, folder);
            (0..50).for_each(|number| line.round(number));
            // A helper thread that the scheduler has let wait until now still has its own start before it.
            std::thread::sleep(Duration::from_millis(100));
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            (0..500).for_each(|number| line.round(number));
            let after = ALLOCATIONS.load(Ordering::Relaxed);
            assert_eq!(after - before, 0, "{kind:?} in {folder}");
            assert_eq!(line.pool.free(), line.pool.count());
        }
    }
}
