//! Files and folders, beneath a root.
//!
//! What it is for: everything a job does with names. In: a [`Dir`] (the root the user named) and relative names in
//! bytes, `/` between components. Out: open files, facts, changes; errors carry the kernel's number.
//! Invariants: no name leads out of its root: no component may be empty, `.` or `..`, and no component is followed as a
//! link, neither by the kernel's rules (`fs/beneath.rs`) nor, for the last one, by any call here.
//! Absent on purpose: recursion, and any policy about names, modes or times.

mod stat; // kinds, facts, times
mod beneath; // from a name to a descriptor, never out of the root
mod file; // files that are open
mod dir; // a root and the names beneath it
mod meta; // an entry's own metadata
mod lock; // locks of whole files
mod storage; // file systems and the page cache
mod watch; // were files written since?

pub use self::dir::{Dir, Entry, List};
pub use self::file::{
    HOLE_BYTES, Writers, begin_read, clone_content, copy_range, dig, drop_cache, is_block_file_system, is_cached_at,
    is_memory_file_system, next_data, next_hole, preallocate, punch, read_at_full, read_at_scattered, set_direct,
    set_file_meta, settle, start_write_out, stat_file, sync_data, tells_holes, truncate, write_at_full,
    write_at_gathered, writers_of,
};
pub use self::lock::try_lock;
pub use self::meta::{Attribute, Pin, each_name};
pub use self::stat::{Kind, Space, Stat, device_numbers};
pub use self::storage::{Cached, DirectAlign, Map, Mount, cached, direct_align, mount_of, read_mapped};
pub use self::watch::Watches;
