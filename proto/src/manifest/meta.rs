//! What an entry carries besides name, kind, mode and time.
//!
//! For: owner, extended attributes, ACLs, names that share one file; and which of these a job asks for, permits, or could not keep.
//! In and out: made by the scan, crosses the wire with its entry, set by the receiver; `Aspects` cross it in `Open` and `Unkept`.
//! Invariants: an entry's attributes are at most `XATTRS_BYTES_MAX` together, so an entry always fits into a control frame.
//! Absent on purpose: setting anything (engine), who may ask for what (node).

use alloc::boxed::Box;

/// A set of things that may be kept of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Aspects(u16);

impl Aspects {
    /// Nothing.
    pub const NONE: Aspects = Aspects(0);
    /// Who owns it.
    pub const OWNER: Aspects = Aspects(1);
    /// Its group.
    pub const GROUP: Aspects = Aspects(1 << 1);
    /// Extended attributes `user.*`.
    pub const XATTRS: Aspects = Aspects(1 << 2);
    /// POSIX ACLs: `system.posix_acl_access`, `system.posix_acl_default`.
    pub const ACLS: Aspects = Aspects(1 << 3);
    /// `security.*` (file capabilities among them) and `trusted.*`.
    pub const SECURITY: Aspects = Aspects(1 << 4);
    /// Names of one file stay names of one file.
    pub const HARD_LINKS: Aspects = Aspects(1 << 5);
    /// FIFOs and sockets.
    pub const SPECIALS: Aspects = Aspects(1 << 6);
    /// Device nodes.
    pub const DEVICES: Aspects = Aspects(1 << 7);
    /// Setuid and setgid bits of what is no folder.
    pub const SETID: Aspects = Aspects(1 << 8);
    /// Immutable and append-only: told, never set.
    pub const FLAGS: Aspects = Aspects(1 << 9);
    /// All of them.
    pub const ALL: Aspects = Aspects((1 << 10) - 1);
    /// What gives rights to others or takes them: only with permission of the end that writes.
    pub const PRIVILEGED: Aspects = Aspects(1 | 1 << 1 | 1 << 4 | 1 << 7 | 1 << 8);

    /// Each with its name, as reports and options say it.
    pub const NAMED: [(Aspects, &'static str); 10] = [
        (Aspects::OWNER, "owner"),
        (Aspects::GROUP, "group"),
        (Aspects::XATTRS, "xattrs"),
        (Aspects::ACLS, "acls"),
        (Aspects::SECURITY, "security"),
        (Aspects::HARD_LINKS, "hard-links"),
        (Aspects::SPECIALS, "specials"),
        (Aspects::DEVICES, "devices"),
        (Aspects::SETID, "setid"),
        (Aspects::FLAGS, "flags"),
    ];

    /// As on the wire.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// From the wire; `None` for a bit that means nothing.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Option<Aspects> {
        if bits & !Aspects::ALL.0 == 0 { Some(Aspects(bits)) } else { None }
    }

    /// Are all of `other` in it?
    #[must_use]
    pub const fn has(self, other: Aspects) -> bool {
        self.0 & other.0 == other.0
    }

    /// Those in both.
    #[must_use]
    pub const fn and(self, other: Aspects) -> Aspects {
        Aspects(self.0 & other.0)
    }

    /// Those in one of them.
    #[must_use]
    pub const fn with(self, other: Aspects) -> Aspects {
        Aspects(self.0 | other.0)
    }

    /// Those not in `other`.
    #[must_use]
    pub const fn without(self, other: Aspects) -> Aspects {
        Aspects(self.0 & !other.0)
    }

    /// None in it?
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// One extended attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xattr {
    /// With its namespace, without NUL, 1 to `XATTR_NAME_BYTES_MAX` bytes.
    pub name: Box<[u8]>,
    /// Whatever it holds; an ACL in the form in which the kernel gives it, its numbers being those of the sender's host.
    pub value: Box<[u8]>,
}

impl Xattr {
    /// What of a job it belongs to; `None`: a namespace that is not carried (the rest of `system.*`, and what Linux may yet invent).
    #[must_use]
    pub fn aspect(name: &[u8]) -> Option<Aspects> {
        match name {
            b"system.posix_acl_access" | b"system.posix_acl_default" => Some(Aspects::ACLS),
            _ if name.starts_with(b"user.") => Some(Aspects::XATTRS),
            _ if name.starts_with(b"security.") || name.starts_with(b"trusted.") => Some(Aspects::SECURITY),
            _ => None,
        }
    }
}

/// Longest name of an attribute (`XATTR_NAME_MAX` of `linux/limits.h`).
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Longest value (`XATTR_SIZE_MAX`).
pub const XATTR_VALUE_BYTES_MAX: usize = 65_536;
/// Names and values of one entry together, with 6 bytes for each: half of a control frame.
pub const XATTRS_BYTES_MAX: usize = 128 << 10;

/// Names of one file: so many files with several names may wait for their other names at a time; beyond, each name becomes a file.
pub const LINK_GROUPS_MAX: usize = 65_536;
/// And so many bytes of paths of the first names of these.
pub const LINK_NAME_BYTES_MAX: usize = 8 << 20;

/// See the module. `Default` is an entry that carries nothing more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meta {
    /// User number: the sender's on the wire, the receiver's own once it has looked the name up.
    pub uid: Option<u32>,
    /// Group number, the same way.
    pub gid: Option<u32>,
    /// What the sender could not read or carry of it.
    pub lost: Aspects,
    /// This is the first name of several, and carries the file itself: how many names it has at the source, not all of which need be
    /// in the tree. 0: more names will not come.
    pub names: u32,
    /// It holds fewer bytes than its length says: zeros in it are holes.
    pub sparse: bool,
    /// On which of the source's volumes it stands: known to the sender alone, never on the wire.
    pub volume: u16,
    /// Its chunks stand on many volumes at this end; see `crate::striped`. Each end knows it of its own volumes, never on the wire.
    pub striped: bool,
    /// In the order of the source.
    pub xattrs: Box<[Xattr]>,
}

impl Meta {
    /// What the attributes take of an entry's room.
    #[must_use]
    pub fn xattr_bytes(&self) -> usize {
        self.xattrs.iter().map(|it| 6 + it.name.len() + it.value.len()).sum()
    }
}
