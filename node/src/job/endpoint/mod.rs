//! User's paths → sources and sinks.
//!
//! For: what `SRC... DST` means, the same for a local path and for one below a daemon's root, for one place and for a set of volumes.
//! In and out: paths as bytes in; the sources of a job, or the folders that its entries go to, out.
//! Invariants: one volume of a set that is striped by chunk is neither a source nor a destination by itself.
//! Absent on purpose: rights (serve::session), reading and writing.

pub mod listing; // what stands at one path
pub mod names; // owners that stand on no list of this host
mod path_base; // where paths begin, and what one of them means there
pub mod volumes; // which disks belong together

use std::sync::Arc;

use engine::tree::Sources;
use engine::tree::io_mode::Chooser;
use proto::layout::Layout;
use sys::fs::Dir;

use path_base::{one_target, some_source};
use text::exit::{Exit, Failure};

pub use path_base::{Called, PathBase, Target, last_name, means_folder};

/// The sources of a job. `joined`: they are the volumes of one set.
pub fn source(
    path_base: &PathBase,
    paths: &[Box<[u8]>],
    called: Called<'_>,
    chooser: Arc<Chooser>,
    joined: bool,
) -> Result<Sources, Failure> {
    if joined {
        return volumes::source(path_base, paths, called, &chooser);
    }
    let source = some_source(path_base, paths, called, chooser, true)?;
    for path in paths {
        volumes::refuse_one_of_chunks(path_base, path, "read the source")?;
    }
    Ok(Sources::from(source))
}

/// The destination of a job: a folder that takes sources under their own names (`into_folder`), or the name of the one source's copy. Where a
/// folder has that name already, what is in a source folder goes into it, and any other source is put into it: the same in each run.
/// The volumes of a set are existing folders, all of them.
pub fn target(
    path_base: &PathBase,
    paths: &[Box<[u8]>],
    layout: Option<Layout>,
    into_folder: bool,
    dry: bool,
    failed_disks: &volumes::FailedDisks,
) -> Result<Target, Failure> {
    match (paths, layout) {
        (paths, Some(layout)) => volumes::target(path_base, paths, layout, dry, failed_disks),
        ([path], None) => {
            volumes::refuse_one_of_chunks(path_base, path, "write to")?;
            one_target(path_base, path, into_folder, dry)
        }
        _ => Err(Exit::Usage.fail("find the destination", "it is one place, or a set of volumes")),
    }
}

/// The nearest folder that stands above a destination whose own folders are still to be made, and the way from there; `None`: nothing is to be made.
#[must_use]
pub fn nearest(path_base: &PathBase, path: &[u8]) -> Option<(Dir, Vec<u8>)> {
    let stands = |path: &[u8]| path_base.open(path).is_ok();
    // Where a way goes up again nobody knows where it leads before it is made.
    let goes_up = path.split(|&byte| byte == b'/').any(|part| part == b"..");
    if goes_up || stands(path) || (!means_folder(path) && stands(path_base::split(path).0)) {
        return None;
    }
    let full = path_base.full(path);
    path_base.above(path).iter().find_map(|above| {
        let rest = full.strip_prefix(&above[..])?;
        let parts = rest.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
        Some((path_base.open(above).ok()?, parts.collect::<Vec<_>>().join(&b'/')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::tree::io_mode::Demands;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    use sys::fs::Kind;

    /// Where the entries of each source go, as paths below `folder`; all of it is there afterwards.
    fn goes(folder: &Path, path_base: &PathBase, sources: &[&str], to: &str) -> Vec<String> {
        let paths: Vec<Box<[u8]>> = sources.iter().map(|it| it.as_bytes().into()).collect();
        let into_folder = sources.len() > 1 || means_folder(to.as_bytes());
        let to = [to.as_bytes().into()];
        let target = target(path_base, &to, None, into_folder, false, &Default::default()).expect("a place to write");
        let chooser = Chooser::new(Demands::default());
        let called = Called::of(&target.top, into_folder);
        let source = source(path_base, &paths, called, chooser, false).expect("the sources are there");
        let base = fs::canonicalize(std::ffi::OsStr::from_bytes(target.volumes[0].path())).expect("it was opened");
        let roots = source.trees()[0].roots();
        let mut all: Vec<String> = roots
            .map(|(announced, root)| {
                let is_folder = root.parent.stat(&root.name).expect("it is there").kind == Kind::Folder;
                let path = base.join(std::ffi::OsStr::from_bytes(announced));
                if is_folder { fs::create_dir_all(&path) } else { fs::write(&path, b"x") }
                    .expect("made as a copy would");
                path.strip_prefix(folder).expect("below it").components().collect::<PathBuf>().display().to_string()
            })
            .collect();
        all.sort();
        all
    }

    #[test]
    fn a_destination_means_the_same_in_each_run() {
        let folder = std::env::temp_dir().join(format!("longhaul-place-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        for root in [false, true] {
            for (sources, to, before, wanted) in [
                (&["file"][..], "x", "", &["x"][..]),
                (&["file"], "x", "file", &["x"]),
                (&["file"], "x", "folder", &["x/file"]),
                (&["file"], "x/", "", &["x/file"]),
                (&["folder"], "x", "", &["x"]),
                (&["folder"], "x", "folder", &["x"]),
                (&["folder"], "x/", "", &["x/folder"]),
                (&["folder", "file"], "x", "", &["x/file", "x/folder"]),
                (&["folder/."], "x", "", &["x"]),
                (&["folder/."], "x/", "", &["x"]),
                (&["folder"], "x/.", "", &["x/folder"]),
                (&["folder/in"], ".", "", &["in"]),
            ] {
                fs::create_dir_all(folder.join("folder/in")).expect("a folder");
                fs::write(folder.join("file"), b"x").expect("a file");
                match before {
                    "file" => fs::write(folder.join("x"), b"old").expect("a file"),
                    "folder" => fs::create_dir(folder.join("x")).expect("a folder"),
                    _ => {}
                }
                let path_base = if root {
                    PathBase::Root(Dir::open(folder.as_os_str().as_bytes()).expect("it is there"))
                } else {
                    PathBase::Free(folder.clone())
                };
                for run in 1..=3 {
                    let gone = goes(&folder, &path_base, sources, to);
                    assert_eq!(gone, wanted, "{sources:?} to {to}, {before} there, below a root: {root}, run {run}");
                }
                fs::remove_dir_all(&folder).expect("it was made");
            }
        }
    }
}
