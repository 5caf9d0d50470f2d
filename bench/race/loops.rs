//! File systems of their own on loop devices.
//!
//! For: measuring disks that are not the machine's. In and out: a file's name, a size → a mounted file system.
//! Invariants: unmounted, detached and removed with this value.
//! Absent on purpose: real disks.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::call;

/// One of them.
#[derive(Debug)]
pub(crate) struct Loop {
    image: PathBuf,
    pub(crate) device: String,
    pub(crate) mount: PathBuf,
}

impl Loop {
    /// `mkfs`: a command that formats the device at its end; `image` + `.d` is where it is mounted, with `options`.
    pub(crate) fn make(image: &Path, bytes: u64, mkfs: &str, options: &str) -> anyhow::Result<Loop> {
        std::fs::File::create(image)?.set_len(bytes)?;
        let mut made = Loop { image: image.to_owned(), device: String::new(), mount: image.with_extension("d") };
        let name = image.to_str().context("a name that is no text")?;
        made.device = call("losetup", &["--find", "--show", "--direct-io=on", name])
            .or_else(|_| call("losetup", &["--find", "--show", name]))?;
        let mut words = mkfs.split(' ').chain([made.device.as_str()]);
        call(words.next().unwrap_or_default(), &words.collect::<Vec<_>>())?;
        std::fs::create_dir(&made.mount)?;
        let mount = made.mount.to_str().context("a name that is no text")?;
        call("mount", &["-o", options, &made.device, mount])?;
        Ok(made)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // As much of it as was made.
        let _ = call("umount", &[&self.mount]);
        if !self.device.is_empty() {
            let _ = call("losetup", &["--detach", &self.device]);
        }
        let _ = std::fs::remove_file(&self.image);
    }
}
