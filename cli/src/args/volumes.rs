//! Which of the paths on a command line are volumes of a set.
//!
//! For: `--stripe` and `--join`.
//! In and out: arguments as bytes → sources and destinations.
//! Invariants: without `--stripe` and `--join` a brace and a star are letters like any other; a set that is expanded by the shell and one
//! that is quoted mean the same.
//! Absent on purpose: what a pattern stands for (node::client::patterns), looking at volumes, how a set is used.

use std::ffi::OsString;

use super::CpArguments;
use node::client::patterns::{expand_all, is_pattern};
use text::exit::{Exit, Failure};

/// Sources and destinations. `--stripe`: the first path is the source and all others are volumes, unless the last is a pattern, which
/// then is the set. `--join`: the last path is the destination and all others are volumes. Both: two patterns.
pub(super) fn split(arguments: &CpArguments) -> Result<(Vec<OsString>, Vec<OsString>), Failure> {
    let (last, firsts) = arguments.paths.split_last().expect("clap asks for two");
    let firsts = || firsts.to_vec();
    Ok(match (arguments.stripe.is_some(), arguments.join) {
        (false, false) => (firsts(), vec![last.clone()]),
        (false, true) => (expand_all(&firsts())?, vec![last.clone()]),
        (true, false) if is_pattern(last) => (firsts(), expand_all(std::slice::from_ref(last))?),
        (true, false) => (vec![arguments.paths[0].clone()], arguments.paths[1..].to_vec()),
        (true, true) => {
            let [from, to] = &arguments.paths[..] else {
                let cause = "which paths are sources and which are volumes of the destination cannot be told";
                return Err(Exit::Usage
                    .fail("copy from one set of volumes to another", cause)
                    .next("quote both: longhaul cp --join --stripe file '/from/{0..3}' '/to/{0..7}'"));
            };
            (expand_all(std::slice::from_ref(from))?, expand_all(std::slice::from_ref(to))?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &[&str]) -> Result<(usize, usize), Failure> {
        use clap::Parser;
        let line = ["longhaul", "cp"].iter().chain(line);
        let crate::args::Command::Cp(arguments) = crate::args::Arguments::parse_from(line).command else {
            panic!("cp")
        };
        arguments.request().map(|it| (it.sources.len(), it.destinations.len()))
    }

    #[test]
    fn quoted_and_expanded_sets_mean_the_same() {
        assert_eq!(of(&["--stripe=file", "src", "/d/{0..2}"]).unwrap(), (1, 3));
        assert_eq!(of(&["--stripe=file", "src", "/d/0", "/d/1", "/d/2"]).unwrap(), (1, 3));
        assert_eq!(of(&["--stripe=file", "a", "b", "/d/{0..2}"]).unwrap(), (2, 3));
        assert_eq!(of(&["--join", "/d/{0..2}", "dst"]).unwrap(), (3, 1));
        assert_eq!(of(&["--join", "/d/0", "/d/1", "/d/2", "dst"]).unwrap(), (3, 1));
        assert_eq!(of(&["--join", "--stripe=file", "/d/{0..2}", "/e/{0..7}"]).unwrap(), (3, 8));
        assert_eq!(of(&["a{0..2}", "dst"]).unwrap(), (1, 1));
        assert_eq!(of(&["--join", "--stripe=file", "a", "b", "c"]).unwrap_err().exit, Exit::Usage);
        assert_eq!(of(&["--stripe=file", "a", "/d/{0..999}"]).unwrap_err().exit, Exit::Usage);
    }
}
