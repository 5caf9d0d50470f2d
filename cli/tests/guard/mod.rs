//! What a test of the program leaves behind, cleared away however the test ends.
//!
//! For: tests that start daemons in folders of their own.
//! In and out: a folder, a started daemon in; neither is there any more when its guard is dropped.
//! Absent on purpose: which programs run, and with what (the tests).

use std::path::PathBuf;
use std::process::Child;

/// Removed with all that is in it.
pub struct Folder(pub PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Killed and waited for.
pub struct Daemon(pub Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
