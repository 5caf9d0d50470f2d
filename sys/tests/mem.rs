//! Pools hand out each slot once, aligned, and keep their memory as long as anybody holds a part of it.

use sys::mem::{HEADROOM, Mem, PageKind, Pool};

const MIB: usize = 1 << 20;

#[test]
fn each_slot_is_taken_once_and_belongs_to_its_owner_alone() {
    for (count, chunk_bytes) in [(1, 1), (3, 5_000), (7, 65_536), (5, MIB), (64, MIB)] {
        let mut pool = Pool::new(count, chunk_bytes).expect("pool");
        assert_eq!((pool.count(), pool.free()), (count, count));
        assert!(pool.bytes() >= count * (HEADROOM + chunk_bytes));
        let mut bufs: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!((bufs.len(), pool.free()), (count, 0));
        for (number, buf) in bufs.iter_mut().enumerate() {
            assert_eq!(buf.payload().as_ptr().align_offset(4096), 0, "payload on a page");
            assert_eq!((buf.payload().len(), buf.whole().len()), (chunk_bytes, HEADROOM + chunk_bytes));
            assert!(buf.whole().iter().all(|byte| *byte == 0), "fresh memory is zero");
            buf.whole_mut().fill(number as u8 + 1);
        }
        for (number, buf) in bufs.iter().enumerate() {
            assert!(buf.whole().iter().all(|byte| *byte == number as u8 + 1), "slots do not overlap");
        }
        let mut indices: Vec<_> = bufs.iter().map(|buf| buf.index()).collect();
        indices.sort_unstable();
        assert_eq!(indices, (0..count).collect::<Vec<_>>());
        bufs.into_iter().for_each(|buf| pool.give(buf));
        assert_eq!(pool.free(), count);
    }
}

#[test]
fn the_last_given_is_the_next_taken() {
    let mut pool = Pool::new(4, 4096).expect("pool");
    let (one, two) = (pool.take().expect("buf"), pool.take().expect("buf"));
    let warm = one.index();
    pool.give(two);
    pool.give(one);
    assert_eq!(pool.take().expect("buf").index(), warm);
}

#[test]
fn a_buf_outlives_its_pool_and_its_thread() {
    let mut pool = Pool::new(2, MIB).expect("pool");
    let mut buf = pool.take().expect("buf");
    drop(pool);
    buf.payload_mut().fill(9);
    let thread = std::thread::spawn(move || {
        buf.payload_mut()[0] = 1;
        Mem::Buf(buf)
    });
    let mem = thread.join().expect("thread");
    assert_eq!((mem.bytes()[HEADROOM], mem.bytes()[HEADROOM + MIB - 1]), (1, 9));
}

#[test]
#[should_panic(expected = "the pool it came from")]
fn a_buf_of_another_pool_is_a_bug() {
    let (mut one, mut other) = (Pool::new(1, 4096).expect("pool"), Pool::new(1, 4096).expect("pool"));
    one.give(other.take().expect("buf"));
}

#[test]
fn more_than_there_is_is_an_error() {
    for (count, chunk_bytes) in [(usize::MAX, MIB), (MIB, usize::MAX), (1 << 31, 1 << 31), (1 << 20, 1 << 40)] {
        assert_eq!(Pool::new(count, chunk_bytes).expect_err("refused").raw_os_error(), Some(libc::ENOMEM));
    }
}

#[test]
fn an_empty_pool_has_nothing_to_take() {
    let mut pool = Pool::new(0, MIB).expect("pool");
    assert!(pool.take().is_none() && pool.count() == 0);
}

#[test]
fn reserved_pages_are_used_when_there_are_enough() {
    let before = sys::host::huge_pages();
    let pool = Pool::new(3, MIB).expect("pool");
    match pool.pages() {
        PageKind::Huge2M => assert!(before.free_2m >= 2),
        // Three chunks do not fill a page of 1 GiB.
        PageKind::Huge1G => panic!("wasteful"),
        PageKind::Transparent | PageKind::Small => {}
    }
    assert_eq!(Pool::new(1, 4096).expect("pool").pages(), PageKind::Small);
    assert!(!pool.pages().name().is_empty());
}

#[test]
fn a_pool_names_the_pages_of_its_kernel() {
    let pool = Pool::new(1, 4096).expect("pool");
    assert_eq!(pool.pages().name(), format!("{} KiB pages", rustix::param::page_size() >> 10));
}

#[test]
fn scattered_memory_is_small_pages_and_whole() {
    // Where the pool comes from reserved huge pages it cannot be scattered, and says so.
    let Ok(mut pool) = Pool::scattered(3, MIB) else {
        assert!(matches!(Pool::new(3, MIB).expect("pool").pages(), PageKind::Huge2M | PageKind::Huge1G));
        return;
    };
    assert_eq!(pool.pages(), PageKind::Small);
    let mut bufs: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    assert_eq!(bufs.len(), 3);
    for (number, buf) in bufs.iter_mut().enumerate() {
        assert!(buf.whole().iter().all(|&byte| byte == 0));
        buf.whole_mut().fill(number as u8 + 1);
    }
    assert!(bufs.iter().enumerate().all(|(number, buf)| buf.whole().iter().all(|&byte| byte == number as u8 + 1)));
}

#[test]
fn a_thread_names_the_node_of_its_memory_and_no_node_that_is_not_there() {
    use sys::mem::prefer_node;
    std::thread::spawn(|| match prefer_node(Some(0)) {
        Ok(()) => {
            assert_eq!(Pool::new(4, 1 << 20).unwrap().count(), 4);
            assert!(prefer_node(Some(1023)).is_err() && prefer_node(Some(u16::MAX)).is_err());
            prefer_node(None).unwrap();
        }
        // A container, or a kernel without NUMA.
        Err(error) => assert!(matches!(error.raw_os_error(), Some(1 | 38)), "{error}"),
    })
    .join()
    .unwrap();
}

#[test]
fn bufs_that_are_kept_apart_are_there_for_small_things_whatever_the_others_take() {
    let mut pool = Pool::new(4, 4096).expect("pool");
    pool.keep_apart(1);
    assert_eq!((pool.free(), pool.small_free(), pool.count()), (3, 1, 4));
    let all: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    assert_eq!((all.len(), pool.free(), pool.small_free()), (3, 0, 1));
    let small = pool.take_small().expect("kept for it");
    assert!(pool.take_small().is_none() && pool.take().is_none());
    pool.give(small);
    assert_eq!((pool.free(), pool.small_free()), (0, 1), "it goes back to where it came from");
    let small = pool.take_small().expect("again");
    all.into_iter().for_each(|buf| pool.give(buf));
    assert_eq!((pool.free(), pool.small_free()), (3, 0));
    pool.give(small);
    assert_eq!((pool.free(), pool.small_free()), (3, 1));
}
