//! The memory that chunks live in.
//!
//! What it is for: one [`Pool`] per worker, one mapping per pool, allocated once and handed out as [`Buf`]s.
//! In: how many bufs, how large. Out: bufs whose payload is page aligned, with one page of headroom before it, so that a
//! frame's header and tags stand right before the payload and a frame is one send.
//! Invariants: each slot of the mapping is either in the pool's list or owned by exactly one `Buf`; `take` and `give`
//! allocate nothing; the mapping lives as long as any buf of it.
//! Absent on purpose: giving back on drop. A buf that is dropped is lost to its pool (the counts show it), because
//! the pool has no lock and belongs to one thread.

// An allocator that counts, for tests.
pub mod count;

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes before the page-aligned payload of a buf. One x86-64 page: the payload stays aligned for O_DIRECT.
pub const HEADROOM: usize = 4096;

/// What slots are aligned to: O_DIRECT asks for no more (`engine`, `DIRECT_ALIGN_MAX`). Where the kernel's pages are larger (arm64: 16 or 64 KiB) it
/// rounds lengths of mappings up itself, and the borders of a slot lie within a page.
const PAGE: usize = 4096;
const MIB2: usize = 2 << 20;
const GIB1: usize = 1 << 30;

/// What the kernel gave for a pool, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// Reserved 1 GiB pages.
    Huge1G,
    /// Reserved 2 MiB pages.
    Huge2M,
    /// Ordinary memory for which the kernel was asked to use huge pages.
    Transparent,
    /// The kernel's ordinary pages: 4 KiB on x86-64; 4, 16 or 64 KiB on arm64, as the kernel was built.
    Small,
}

impl PageKind {
    /// For reports.
    pub fn name(self) -> &'static str {
        match self {
            PageKind::Huge1G => "1 GiB huge pages",
            PageKind::Huge2M => "2 MiB huge pages",
            PageKind::Transparent => "transparent huge pages",
            PageKind::Small => small_name(rustix::param::page_size()),
        }
    }
}

fn small_name(page_bytes: usize) -> &'static str {
    match page_bytes {
        4096 => "4 KiB pages",
        16_384 => "16 KiB pages",
        65_536 => "64 KiB pages",
        _ => "ordinary pages",
    }
}

/// One anonymous mapping. Nobody reads or writes it but through the bufs that own its slots.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    stride: usize,
    payload_bytes: usize,
}

// SAFETY: the mapping is plain memory without thread affinity; access goes through `Buf`, of which there is one per
// slot (`Pool::take` pops each index once), and `&Mapping` itself only hands out addresses.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method of `&Mapping` reads or writes the memory.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(count: usize, chunk_bytes: usize) -> io::Result<(Mapping, PageKind)> {
        let too_large = || io::Error::from_raw_os_error(libc::ENOMEM);
        let stride = chunk_bytes
            .checked_next_multiple_of(PAGE)
            .and_then(|bytes| bytes.checked_add(HEADROOM))
            .ok_or_else(too_large)?;
        let needed =
            stride.checked_mul(count).filter(|bytes| *bytes < isize::MAX as usize / 2).ok_or_else(too_large)?;
        let (start, bytes, kind) = map_best(needed)?;
        // Neither a child before its exec nor a core dump has any business with payload bytes; pages that a ring has
        // pinned would even be copied at fork. Old kernels refuse some advice: then it is as it was.
        advise(start, bytes, Advice::LinuxDontFork);
        advise(start, bytes, Advice::LinuxDontDump);
        Ok((Mapping { start, bytes, stride, payload_bytes: chunk_bytes }, kind))
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of a buf behind its headroom.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Bytes from one slot to the next.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `start` and `bytes` are what `map_best` mapped, and the last `Arc` of the mapping is gone (this is
        // its drop), so that no `Buf` and no ring refers to it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Maps at least `needed` bytes, in the best pages there are.
fn map_best(needed: usize) -> io::Result<(NonNull<u8>, usize, PageKind)> {
    let round = |page: usize| needed.next_multiple_of(page).max(page);
    // Rounding up to a 1 GiB page may waste at most an eighth of what was asked for.
    let fits = needed >= GIB1 - GIB1 / 8 && round(GIB1) - needed <= needed / 8;
    if fits && let Ok(start) = map(round(GIB1), MapFlags::HUGETLB | MapFlags::HUGE_1GB) {
        return Ok((start, round(GIB1), PageKind::Huge1G));
    }
    if needed >= MIB2 {
        // The kernel reserves the pages now or says ENOMEM; a later touch cannot fail (mm/hugetlb.c, hugetlb_reserve_pages).
        if let Ok(start) = map(round(MIB2), MapFlags::HUGETLB | MapFlags::HUGE_2MB) {
            return Ok((start, round(MIB2), PageKind::Huge2M));
        }
        let (start, bytes) = map_aligned(round(MIB2))?;
        let asked = transparent_allowed() && advise(start, bytes, Advice::LinuxHugepage);
        return Ok((start, bytes, if asked { PageKind::Transparent } else { PageKind::Small }));
    }
    Ok((map(round(PAGE), MapFlags::empty())?, round(PAGE), PageKind::Small))
}

fn map(bytes: usize, extra: MapFlags) -> io::Result<NonNull<u8>> {
    let flags = MapFlags::PRIVATE | extra;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
    NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
}

/// Maps `bytes` (a multiple of 2 MiB) on a 2 MiB border, where alone the kernel can use transparent huge pages.
fn map_aligned(bytes: usize) -> io::Result<(NonNull<u8>, usize)> {
    let start = map(bytes + MIB2, MapFlags::empty())?;
    let before = start.as_ptr().align_offset(MIB2);
    let after = MIB2 - before;
    if before > 0 {
        // SAFETY: the first `before` bytes of the mapping made two lines above; nobody has seen them.
        unsafe { munmap(start.as_ptr().cast(), before) }?;
    }
    // SAFETY: `before` < 2 MiB is inside of the mapping of `bytes` + 2 MiB.
    let aligned = unsafe { start.add(before) };
    if after > 0 {
        // SAFETY: `before + bytes` is inside of the mapping of `bytes` + 2 MiB, `after` bytes before its end.
        let end = unsafe { aligned.add(bytes) };
        // SAFETY: the last `after` bytes of the mapping; nobody has seen them.
        unsafe { munmap(end.as_ptr().cast(), after) }?;
    }
    Ok((aligned, bytes))
}

fn advise(start: NonNull<u8>, bytes: usize, advice: Advice) -> bool {
    // SAFETY: the range is a mapping of ours that nobody uses yet, and none of the advices given here (huge pages,
    // no fork, no dump) changes its contents.
    unsafe { madvise(start.as_ptr().cast(), bytes, advice) }.is_ok()
}

fn transparent_allowed() -> bool {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    !setting.is_empty() && !setting.contains("[never]")
}

/// Gives the kernel the whole pages of the heap that nobody uses. glibc gives back by itself only what lies at the end of an arena, and has an arena for
/// every two threads or so: with threads that come and go with their jobs, pages that hold nothing stay in the process for good. Costs under a
/// millisecond per 10 MiB given back (malloc_trim(3)), while who allocates in the arena just looked at waits. Elsewhere than with glibc: nothing.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: has no arguments that could be wrong, takes the arenas' own locks, and touches no memory that is allocated.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Nodes that a mask has room for: CONFIG_NODES_SHIFT is at most 10.
const NODES_MAX: u16 = 1024;

/// Memory that this thread touches first lies on this node from now on, while there is room; `None`: on the node of the core that touches it.
/// Errors: EINVAL if there is no such node, EPERM where a container forbids it, ENOSYS on kernels without NUMA.
pub fn prefer_node(node: Option<u16>) -> io::Result<()> {
    let mut mask = [0_u64; NODES_MAX as usize / 64];
    let mode = match node {
        None => libc::MPOL_DEFAULT,
        Some(NODES_MAX..) => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        Some(node) => {
            mask[usize::from(node) / 64] |= 1 << (node % 64);
            libc::MPOL_PREFERRED
        }
    };
    // The kernel looks at one bit less than it is told (mm/mempolicy.c, get_nodes); a default policy has no mask.
    let (start, bits) = if node.is_some() { (mask.as_ptr(), u64::from(NODES_MAX) + 1) } else { (std::ptr::null(), 0) };
    // SAFETY: the kernel reads at most `bits - 1` bits from `start`, which `mask` has (or none), and changes nothing but this thread's policy.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, start, bits) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has somebody (`numactl`) said where this thread's memory goes? False where the kernel does not tell.
pub fn has_policy() -> bool {
    let mut mode: libc::c_int = libc::MPOL_DEFAULT;
    let none = std::ptr::null_mut::<libc::c_ulong>();
    // SAFETY: the kernel writes one int to `mode`, which lives until the call is over, and no mask where none is given (get_mempolicy(2)).
    let result = unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, none, 0_usize, 0_usize, 0_usize) };
    result == 0 && mode != libc::MPOL_DEFAULT
}

/// The bufs of one worker.
#[derive(Debug)]
pub struct Pool {
    map: Arc<Mapping>,
    /// Slots nobody owns; the last given is the next taken, because it is the warmest in the cache.
    free: Vec<u32>,
    count: usize,
    /// Of all, those that only `take_small` gives; and how many of these are out.
    apart: usize,
    apart_out: usize,
    pages: PageKind,
}

impl Pool {
    /// Maps memory for `count` bufs of `chunk_bytes` payload each. The memory is zero and touched by use only.
    /// Errors: ENOMEM.
    pub fn new(count: usize, chunk_bytes: usize) -> io::Result<Pool> {
        let slots = u32::try_from(count).map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let (map, pages) = Mapping::new(count, chunk_bytes)?;
        Ok(Pool { map: Arc::new(map), free: (0..slots).rev().collect(), count, apart: 0, apart_out: 0, pages })
    }

    /// The same in memory as it becomes on a machine that has run for months: pages of 4 KiB, of which no two neighbours are neighbours
    /// in the memory itself. For measuring what that costs. Errors: ENOMEM.
    pub fn scattered(count: usize, chunk_bytes: usize) -> io::Result<Pool> {
        let mut pool = Pool::new(count, chunk_bytes)?;
        let pages = pool.map.bytes / PAGE;
        if !advise(pool.map.start, pool.map.bytes, Advice::LinuxNoHugepage) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // The kernel hands pages out more or less in order: so they are asked for out of order, a golden section apart. A step without
        // a common divisor with their number meets each of them once.
        let divides = |mut a: usize, mut b: usize| {
            while b > 0 {
                (a, b) = (b, a % b);
            }
            a > 1
        };
        let step = (pages / 1000 * 618 + 1..).find(|&step| !divides(step, pages)).unwrap_or(1);
        for page in (0..pages).map(|number| number * step % pages) {
            // SAFETY: `page` < `pages`, so the byte lies in the mapping.
            let byte = unsafe { pool.map.start.add(page * PAGE) };
            // SAFETY: the pool was made above and has given no buf away: nobody else has this byte.
            unsafe { byte.write_volatile(0) };
        }
        pool.pages = PageKind::Small;
        Ok(pool)
    }

    /// Keeps `apart` of the bufs, which are all here, for `take_small`: for the others the pool is so many smaller.
    pub fn keep_apart(&mut self, apart: usize) {
        assert!(self.free.len() == self.count && apart <= self.count, "a pool is divided before it is used");
        self.apart = apart;
    }

    /// A buf, if one is free; its contents are whatever its last owner left.
    pub fn take(&mut self) -> Option<Buf> {
        if self.free() == 0 {
            return None;
        }
        let index = self.free.pop()?;
        Some(Buf { map: Arc::clone(&self.map), index, is_apart: false })
    }

    /// One of those that were kept apart, if one is free.
    pub fn take_small(&mut self) -> Option<Buf> {
        if self.small_free() == 0 {
            return None;
        }
        let index = self.free.pop()?;
        self.apart_out += 1;
        Some(Buf { map: Arc::clone(&self.map), index, is_apart: true })
    }

    /// Takes a buf of this pool back. A buf of another pool is a bug and panics.
    pub fn give(&mut self, buf: Buf) {
        assert!(Arc::ptr_eq(&self.map, &buf.map), "a buf goes back to the pool it came from");
        self.apart_out -= usize::from(buf.is_apart);
        self.free.push(buf.index);
    }

    /// How many bufs `take` has left.
    pub fn free(&self) -> usize {
        self.free.len() - self.small_free()
    }

    /// How many `take_small` has left.
    pub fn small_free(&self) -> usize {
        self.apart - self.apart_out
    }

    /// How many bufs there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of address space of the pool, the upper bound of its memory.
    pub fn bytes(&self) -> usize {
        self.map.bytes
    }

    /// The pages the kernel gave.
    pub fn pages(&self) -> PageKind {
        self.pages
    }

    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.map
    }
}

/// One slot of a pool: `HEADROOM` bytes, then the payload. Whoever holds it owns these bytes alone.
///
/// ```text
/// |<- HEADROOM ->|<- chunk_bytes, page aligned ->|
/// |<------------------ whole ------------------->|
/// ```
pub struct Buf {
    map: Arc<Mapping>,
    index: u32,
    is_apart: bool,
}

impl Buf {
    /// Is it one of those that its pool keeps apart for small chunks?
    pub fn is_apart(&self) -> bool {
        self.is_apart
    }

    /// The page-aligned payload.
    pub fn payload(&self) -> &[u8] {
        &self.whole()[HEADROOM..]
    }

    /// The page-aligned payload.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.whole_mut()[HEADROOM..]
    }

    /// Headroom and payload.
    pub fn whole(&self) -> &[u8] {
        let (start, bytes) = (self.start(), self.bytes());
        // SAFETY: the slot lies in the mapping (see `start`), which `self.map` keeps alive; it was zeroed by the kernel; and
        // only this buf owns it (`Pool::take` popped its index), so that shared borrows of it go through `&self`.
        unsafe { std::slice::from_raw_parts(start, bytes) }
    }

    /// Headroom and payload.
    pub fn whole_mut(&mut self) -> &mut [u8] {
        let (start, bytes) = (self.start(), self.bytes());
        // SAFETY: as in `whole`; the borrow is unique because it goes through `&mut self` of the slot's only owner.
        unsafe { std::slice::from_raw_parts_mut(start, bytes) }
    }

    /// The slot's number in its pool, from 0.
    pub fn index(&self) -> usize {
        self.index as usize
    }

    /// Headroom and payload in bytes.
    pub(crate) fn bytes(&self) -> usize {
        HEADROOM + self.map.payload_bytes
    }

    /// The slot's first byte.
    pub(crate) fn start(&self) -> *mut u8 {
        // SAFETY: `index` < count (`Pool::new` made the list 0..count), and `Mapping::new` mapped at least count × stride.
        unsafe { self.map.start().add(self.index as usize * self.map.stride) }
    }

    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.map
    }
}

impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buf").field("index", &self.index).field("bytes", &self.bytes()).finish()
    }
}

/// Memory that goes through a ring: a buf, or a few bytes of the heap (greetings, headers).
#[derive(Debug)]
pub enum Mem {
    /// A buf of a pool; operations index into [`Buf::whole`].
    Buf(Buf),
    /// Heap bytes.
    Small(Box<[u8]>),
}

impl Mem {
    /// All bytes: a buf with its headroom.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Mem::Buf(buf) => buf.whole(),
            Mem::Small(bytes) => bytes,
        }
    }

    /// All bytes: a buf with its headroom.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Mem::Buf(buf) => buf.whole_mut(),
            Mem::Small(bytes) => bytes,
        }
    }
}
