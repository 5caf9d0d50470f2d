//! Files through the ring. See `main.rs`.

use std::fs::File;
use std::sync::Arc;

use sys::mem::{HEADROOM, Mem, Pool};
use sys::ring::Op;

use crate::{CHUNK, Room, pattern, small};

pub(crate) fn writes_then_reads_back(room: &mut Room) {
    let file = room.file("data", b"");
    let bytes = pattern(CHUNK, 1);
    let mut buf = room.pool.take().expect("buf");
    buf.payload_mut().copy_from_slice(&bytes);
    let op = Op::Write {
        file: Arc::clone(&file),
        offset: 12_345,
        mem: Mem::Buf(buf),
        at: HEADROOM,
        len: CHUNK,
        uncached: false,
    };
    let (result, mem) = room.one(op);
    assert_eq!(result.expect("write"), CHUNK);
    let Mem::Buf(mut buf) = mem else { panic!("a buf comes back as a buf") };
    buf.payload_mut().fill(0);
    let op = Op::Read {
        file: Arc::clone(&file),
        offset: 12_345,
        mem: Mem::Buf(buf),
        at: HEADROOM,
        len: CHUNK,
        uncached: false,
    };
    let (result, mem) = room.one(op);
    assert_eq!(result.expect("read"), CHUNK);
    let Mem::Buf(buf) = mem else { panic!("a buf comes back as a buf") };
    assert_eq!(buf.payload(), bytes);
    room.pool.give(buf);
    let (result, mem) = room.one(Op::Read { file, offset: 12_345, mem: small(100), at: 10, len: 80, uncached: false });
    assert_eq!(result.expect("small read"), 80);
    assert_eq!(&mem.bytes()[10..90], &bytes[..80]);
    assert_eq!((&mem.bytes()[..10], &mem.bytes()[90..]), (&[0; 10][..], &[0; 10][..]));
}

pub(crate) fn reads_short_at_the_end_of_a_file(room: &mut Room) {
    let file = room.file("short", &pattern(5_000, 2));
    let (result, mem) = room.one(Op::Read {
        file: Arc::clone(&file),
        offset: 4_000,
        mem: small(4_096),
        at: 0,
        len: 4_096,
        uncached: false,
    });
    assert_eq!(result.expect("short"), 1_000);
    assert_eq!(&mem.bytes()[..1_000], &pattern(5_000, 2)[4_000..]);
    let (result, _) =
        room.one(Op::Read { file: Arc::clone(&file), offset: 5_000, mem: small(16), at: 0, len: 16, uncached: false });
    assert_eq!(result.expect("at the end"), 0);
    let (result, _) = room.one(Op::Read { file, offset: 1 << 40, mem: small(16), at: 0, len: 16, uncached: false });
    assert_eq!(result.expect("behind the end"), 0);
}

pub(crate) fn reads_from_the_disk_itself(room: &mut Room) {
    let bytes = pattern(3 * CHUNK, 3);
    let file = room.file("cold", &bytes);
    sys::fs::sync_data(&file).expect("sync");
    sys::fs::drop_cache(&file, 0, 0).expect("drop");
    for part in 0..3 {
        let mem = Mem::Buf(room.pool.take().expect("buf"));
        let offset = (part * CHUNK) as u64;
        room.driver.submit(
            part as u64,
            Op::Read { file: Arc::clone(&file), offset, mem, at: HEADROOM, len: CHUNK, uncached: false },
        );
    }
    for done in room.wait_for(3) {
        assert_eq!(done.result.expect("read"), CHUNK);
        let from = done.token as usize * CHUNK;
        assert_eq!(&done.mem.bytes()[HEADROOM..], &bytes[from..from + CHUNK]);
        let Mem::Buf(buf) = done.mem else { panic!("a buf") };
        room.pool.give(buf);
    }
}

pub(crate) fn says_ebadf_for_a_file_not_open_for_it(room: &mut Room) {
    room.file("one-way", b"contents");
    let path = room.folder.join("one-way");
    let only_read = Arc::new(File::open(&path).expect("open"));
    let only_write = Arc::new(File::options().write(true).open(&path).expect("open"));
    let (result, _) = room.one(Op::Write { file: only_read, offset: 0, mem: small(8), at: 0, len: 8, uncached: false });
    assert_eq!(result.expect_err("read only").raw_os_error(), Some(9));
    let (result, _) = room.one(Op::Read { file: only_write, offset: 0, mem: small(8), at: 0, len: 8, uncached: false });
    assert_eq!(result.expect_err("write only").raw_os_error(), Some(9));
}

pub(crate) fn takes_bufs_of_another_pool(room: &mut Room) {
    let file = room.file("other", &pattern(CHUNK, 8));
    let mut pool = Pool::new(2, CHUNK).expect("pool");
    let mem = Mem::Buf(pool.take().expect("buf"));
    let (result, mem) = room.one(Op::Read { file, offset: 0, mem, at: HEADROOM, len: CHUNK, uncached: false });
    assert_eq!(result.expect("read"), CHUNK);
    assert_eq!(&mem.bytes()[HEADROOM..], pattern(CHUNK, 8));
    drop(pool);
    assert_eq!(mem.bytes()[HEADROOM], pattern(1, 8)[0], "a buf outlives its pool");
}

pub(crate) fn refuses_a_range_outside_of_the_memory(room: &mut Room) {
    let file = room.file("range", b"contents");
    for (at, len) in [(0, 9), (8, 1), (9, 0), (usize::MAX, 2), (1, usize::MAX)] {
        let file = Arc::clone(&file);
        let submit = || room.driver.submit(1, Op::Read { file, offset: 0, mem: small(8), at, len, uncached: false });
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(submit));
        assert!(refused.is_err(), "{at}+{len}");
    }
    let (result, _) = room.one(Op::Read { file, offset: 0, mem: small(8), at: 0, len: 8, uncached: false });
    assert_eq!(result.expect("and goes on"), 8);
}
