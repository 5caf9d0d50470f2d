//! Names in listings, and paths in commands.
//!
//! For: whoever makes a file of a name that a server said, or a command of a path.
//! In and out: bytes; may they be used?
//! Invariants: a name that is taken is one component and leads nowhere else; a path that is taken ends no command.
//! Absent on purpose: character sets: names are bytes.

/// A component of a path has no more bytes (NAME_MAX of `limits.h`).
pub const NAME_BYTES_MAX: usize = 255;

/// Is it one component, and a name?
#[must_use]
pub fn is_safe(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..")
        && name.len() <= NAME_BYTES_MAX
        && !name.iter().any(|byte| matches!(byte, b'/' | 0 | b'\r' | b'\n'))
}

/// Can a command have it as its operand?
#[must_use]
pub fn fits_a_command(path: &[u8]) -> bool {
    !path.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_its_folder() {
        for bad in [&b""[..], b".", b"..", b"/etc", b"a/b", b"../x", b"a\0", b"a\rb", b"a\nSITE x", &[b'a'; 256]] {
            assert!(!is_safe(bad), "{}", bad.escape_ascii());
        }
        for good in [&b"a"[..], b"...", b"a b", b"\"", b"\xff", &[b'a'; 255]] {
            assert!(is_safe(good), "{}", good.escape_ascii());
        }
    }
}
