//! What is copied, and where: one folder with source, destination and the files of servers.
//!
//! For: copies of one large file, of trees, and races without files, which need a place for logs alone. In and out: a content → files, and
//! whether the destination holds them.
//! Invariants: all of it is below one folder, which goes with this value; the same content in every run.
//! Absent on purpose: programs.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};
use bench::race::content::{Noise, differ};

/// What there is to copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Content {
    /// Nothing: from memory to memory.
    None,
    File,
    /// So many files, so many to a folder.
    Tree {
        files: u64,
        per_folder: u64,
    },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) folder: PathBuf,
    pub(crate) content: Content,
    pub(crate) bytes: u64,
    /// On a disk: the source is read from it, and time counts until the destination is flushed.
    pub(crate) cold: bool,
    /// The destination stays from run to run.
    pub(crate) keeps: bool,
}

impl Ground {
    /// Makes the folder and the source; errors also where there is too little room.
    pub(crate) fn make(root: &Path, content: Content, bytes: u64) -> anyhow::Result<Ground> {
        let folder = root.join(format!("longhaul-bench-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("the folder {} cannot be made", folder.display()))?;
        let mut ground = Ground { folder, content, bytes, cold: false, keeps: false };
        let files = if let Content::Tree { files, .. } = content { files } else { 0 };
        let need = if content == Content::None { 0 } else { 2 * bytes + files * 4096 + (256 << 20) };
        let room = rustix::fs::statvfs(root)?;
        ensure!(room.f_bavail * room.f_frsize >= need, "too little room in {}", root.display());
        for name in ["src", "etc/home-a", "etc/home-b"] {
            fs::create_dir_all(ground.folder.join(name))?;
        }
        fs::set_permissions(&ground.folder, Permissions::from_mode(0o755))?;
        ground.clear()?;
        match content {
            Content::None => {}
            Content::File => {
                let mut file = File::create(ground.source())?;
                Noise::new(1).write(&mut file, bytes)?;
                file.sync_all()?;
            }
            Content::Tree { files, per_folder } => ground.bytes = plant(&ground.source(), files, per_folder, bytes)?,
        }
        Ok(ground)
    }

    fn name(&self) -> &'static str {
        if matches!(self.content, Content::Tree { .. }) { "tree" } else { "random.bin" }
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.folder.join("src").join(self.name())
    }

    pub(crate) fn destination(&self) -> PathBuf {
        self.folder.join("dst").join(self.name())
    }

    pub(crate) fn etc(&self) -> PathBuf {
        self.folder.join("etc")
    }

    /// Values of `{names}` that are places here.
    pub(crate) fn values(&self) -> Vec<(&'static str, String)> {
        let places = [
            ("src", self.source()),
            ("dst", self.destination()),
            ("src_dir", self.folder.join("src")),
            ("dst_dir", self.folder.join("dst")),
            ("etc", self.etc()),
        ];
        places.map(|(name, path)| (name, path.display().to_string())).to_vec()
    }

    /// An empty destination, that anybody may write to: some servers are another user's. Where the file of the run before stays, the source is another
    /// one, of yesterday, so that no clock's tick has both: who compares times must send it all again.
    pub(crate) fn clear(&self) -> anyhow::Result<()> {
        let folder = self.folder.join("dst");
        if self.keeps && self.content == Content::File {
            File::options()
                .append(true)
                .open(self.source())?
                .set_modified(SystemTime::now() - Duration::from_secs(24 * 3600))?;
        }
        if !self.keeps {
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir(&folder)?;
            fs::set_permissions(&folder, Permissions::from_mode(0o1777))?;
        }
        Ok(())
    }

    /// So that all begin alike. Cold: the source leaves the page cache. Otherwise as much memory as the copy will need is taken and given
    /// back: in a virtual machine whose host takes free pages away, writing into them again costs up to 2 s/GB, and whoever begins just after
    /// another's destination went is lucky.
    pub(crate) fn level(&self) -> anyhow::Result<()> {
        if self.content == Content::None {
            return Ok(());
        }
        if self.cold {
            rustix::fs::sync();
            return Ok(sys::fs::drop_cache(&File::open(self.source())?, 0, 0)?);
        }
        let (path, page) = (self.folder.join("scratch"), vec![0; 8 << 20]);
        let mut scratch = File::create(&path)?;
        for _ in 0..=self.bytes / page.len() as u64 {
            scratch.write_all(&page)?;
        }
        Ok(fs::remove_file(path)?)
    }

    /// Is all of it there, by its length or number? On a disk, until it is flushed.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let path = self.destination();
        match self.content {
            Content::None => {}
            Content::File => {
                let length = fs::metadata(&path).map_or(0, |meta| meta.len());
                ensure!(length == self.bytes, "the destination has {length} of {} bytes", self.bytes);
                File::open(&path)?.sync_all()?;
            }
            Content::Tree { files, .. } => {
                let count = walk(&path).len() as u64;
                ensure!(count == files, "{count} of {files} files are at the destination");
            }
        }
        Ok(())
    }

    /// Does the destination hold what the source does?
    pub(crate) fn compare(&self) -> anyhow::Result<()> {
        let (from, to) = (self.source(), self.destination());
        let files = match self.content {
            Content::File => vec![from.clone()],
            Content::Tree { .. } if self.bytes > 0 => walk(&from),
            _ => Vec::new(),
        };
        for file in files {
            let other = file.strip_prefix(&from).map(|inner| to.join(inner)).unwrap_or_default();
            // Of one file, what is left of its path is nothing, and the join ends in a slash.
            let other = if file == from { to.clone() } else { other };
            if let Some(at) = differ(&file, &other)? {
                bail!("the destination DIFFERS from the source from byte {at} of {} on", file.display());
            }
        }
        Ok(())
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // What cannot be removed is the user's to look at.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// All files below a folder.
fn walk(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder { &mut open } else { &mut found }.push(entry.path());
        }
    }
    found
}

/// Files whose sizes follow Zipf's law (the n-th largest has 1/n of the largest), in an order by chance; or empty ones. Their sum.
fn plant(folder: &Path, files: u64, per_folder: u64, bytes: u64) -> anyhow::Result<u64> {
    let mut noise = Noise::new(1);
    let mut ranks: Vec<u64> = (1..=files).collect();
    for at in (1..ranks.len()).rev() {
        let other = noise.next_number() % (at as u64 + 1);
        ranks.swap(at, usize::try_from(other)?);
    }
    let weight = bytes as f64 / ranks.iter().map(|&rank| 1.0 / rank as f64).sum::<f64>();
    let mut sum = 0;
    for (number, rank) in ranks.into_iter().enumerate() {
        let inner = folder.join(format!("{:04}", number as u64 / per_folder));
        if (number as u64).is_multiple_of(per_folder) {
            fs::create_dir_all(&inner)?;
        }
        let mut file = File::create(inner.join(format!("file-{number}")))?;
        let length = (weight / rank as f64) as u64;
        noise.write(&mut file, length)?;
        sum += length;
    }
    Ok(sum)
}
