//! What verbs and rdma_cm made, given back when it is not needed any more, and their answers as errors.
//!
//! For: `link` and `device`. Invariants: an [`Own`] is the only owner of what its pointer names.

use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;

/// A thing of the library's that ends with this value. What it was made of must outlive it: fields are in that order.
pub(super) struct Own<T> {
    at: NonNull<T>,
    end: unsafe extern "C" fn(*mut T) -> c_int,
}

// SAFETY: the library's things have no thread of their own (its calls lock what they share), and this value is the only owner.
unsafe impl<T> Send for Own<T> {}

impl<T> std::fmt::Debug for Own<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Own").field(&self.at).finish()
    }
}

impl<T> Own<T> {
    /// What a call of the library made; null: it could not, and why is in errno.
    pub(super) fn new(at: *mut T, end: unsafe extern "C" fn(*mut T) -> c_int) -> io::Result<Own<T>> {
        let at = NonNull::new(at).ok_or_else(io::Error::last_os_error)?;
        Ok(Own { at, end })
    }

    pub(super) fn at(&self) -> *mut T {
        self.at.as_ptr()
    }

    /// Ends it, and says whether that went well: if not, it is still there.
    pub(super) fn end(self) -> Result<(), (Own<T>, io::Error)> {
        // SAFETY: `at` is alive and this value is its only owner, which is forgotten on success.
        match answer(unsafe { (self.end)(self.at()) }) {
            Ok(()) => {
                std::mem::forget(self);
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        // SAFETY: `at` is alive, and its only owner goes. An error says that the device is gone, and with it the thing.
        let _ = unsafe { (self.end)(self.at()) };
    }
}

/// rdma_cm answers -1 and sets errno, verbs answer the number itself.
pub(super) fn answer(code: c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        ..0 => Err(io::Error::last_os_error()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}
