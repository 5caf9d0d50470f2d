//! The little-endian cursor with which all of protocol 1 is read and written.
//!
//! For: one place where lengths of strangers are checked.
//! In and out: bytes to numbers, byte strings, text and lists, and back.
//! Invariants: reading never panics; a list's length is checked against the bytes that are left before any memory is asked for.
//! Absent on purpose: what the fields mean.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::error::Breach;

/// Reads a frame from front to back.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Breach> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(Breach::FrameTruncated)?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Breach> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Breach::FrameTruncated)?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Breach> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Breach> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Breach> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Breach> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Breach> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Breach> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// 0 or 1; anything else is a breach, so that every value has one encoding.
    pub(crate) fn flag(&mut self) -> Result<bool, Breach> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Breach::FieldOutOfRange),
        }
    }

    /// A byte string with its length before it in two bytes.
    pub(crate) fn bytes(&mut self, bytes_max: usize) -> Result<&'a [u8], Breach> {
        let count = usize::from(self.u16()?);
        if count > bytes_max {
            return Err(Breach::FieldTooLong);
        }
        self.take(count)
    }

    pub(crate) fn boxed(&mut self, bytes_max: usize) -> Result<Box<[u8]>, Breach> {
        Ok(Box::from(self.bytes(bytes_max)?))
    }

    pub(crate) fn text(&mut self, bytes_max: usize) -> Result<String, Breach> {
        let bytes = self.bytes(bytes_max)?;
        core::str::from_utf8(bytes).map(String::from).map_err(|_| Breach::TextInvalid)
    }

    /// A list with its length before it in four bytes; `item_bytes_min` is what one item takes at least on the wire, so
    /// that a false length is found before memory is asked for.
    pub(crate) fn list<T>(
        &mut self,
        count_max: usize,
        item_bytes_min: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, Breach>,
    ) -> Result<Vec<T>, Breach> {
        let count = self.u32()? as usize;
        if count > count_max {
            return Err(Breach::FieldTooLong);
        }
        if count > self.rest.len() / item_bytes_min.max(1) {
            return Err(Breach::FrameTruncated);
        }
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// The frame must end here.
    pub(crate) fn end(self) -> Result<(), Breach> {
        if self.rest.is_empty() { Ok(()) } else { Err(Breach::FrameTrailing) }
    }
}

/// Writes a byte string with its length.
///
/// # Panics
/// Above 65,535 bytes: no field of the protocol is so long, so the caller forgot to check its input.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let count = u16::try_from(bytes.len()).expect("a field of a control frame fits 16 bits of length");
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Writes text, cut to `bytes_max` at a character's border: what people read may be shortened, never refused.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str, bytes_max: usize) {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    put_bytes(out, &text.as_bytes()[..end]);
}

/// Writes a list with its length.
pub(crate) fn put_list<T>(out: &mut Vec<u8>, items: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
    let count = u32::try_from(items.len()).expect("a list of a control frame fits 32 bits of length");
    out.extend_from_slice(&count.to_le_bytes());
    for item in items {
        put(out, item);
    }
}

/// Writes numbers one after the other, little endian.
macro_rules! put {
    ($out:expr, $($value:expr),+ $(,)?) => {{ $($out.extend_from_slice(&($value).to_le_bytes());)+ }};
}
pub(crate) use put;
