//! Paths as the user names them: IPv4 beside IPv6, one that leads nowhere, one that is no address, a weight for one alone.
//!
//! In: jobs with `--path`. Out: checks of exit codes, notes and bytes.
//! Absent on purpose: how the words are read (cli/src/args.rs).

use lab::hosts::Side;

use super::{Paths, WIDEST, at, brought, make_links, path};
use crate::world::{PORT, Skip, World};

const SMALL: u64 = 20_000_000;
/// Of two paths, neither brings less.
const LEAST_OF_BOTH: u64 = 2_000_000;

pub(crate) fn ipv4_and_ipv6_carry_one_job_side_by_side(world: &mut World) -> Result<(), Skip> {
    make_links(world)?;
    for (side, address) in Side::BOTH.into_iter().zip(["fd99:21::1/64", "fd99:21::2/64"]) {
        let words = ["-6", "addr", "add", address, "dev", "lp1", "nodad"];
        world.run(side, "ip", &words).ok_or_else(|| Skip("IPv4 beside IPv6: no IPv6 here".into()))?;
    }
    world.random_file("src/small", SMALL);
    let source = world.word("src/small");
    let daemon = at(world.serve_at(&format!("[::]:{}", PORT + 2), "dst", &[]), "[::]");
    for transport in ["tcp", "udp"] {
        let (words, name) = (format!("IPv4 beside IPv6 over {transport}"), format!("six-{transport}"));
        let both = ["--path", &path(0), "--path", "fd99:21::1=fd99:21::2"];
        let there = format!("{}{name}", daemon.url);
        let run = world.cp(&[&["--transport", transport], &both[..], &[&source, &there]].concat());
        world.is((run.status, run.text("transport")), (0, transport), &format!("{words}: exit code 0"));
        world.same("src/small", &format!("dst/{name}"), &format!("{words}: the same bytes"));
        let by_each = brought(&run);
        let held = by_each.len() == 2 && by_each.iter().all(|bytes| *bytes > LEAST_OF_BOTH);
        world.holds(&format!("{words}: both carry ({by_each:?} bytes)"), held, &run.why());
    }
    Ok(())
}

pub(crate) fn what_leads_nowhere_is_named_and_what_makes_no_sense_refused(world: &mut World) -> Result<(), Skip> {
    let paths = Paths::make(world)?;
    world.random_file("src/small", SMALL);
    let source = world.word("src/small");
    let weighed = format!("{}@1", path(0));
    let run = world.cp(&["--path", &weighed, "--path", &path(WIDEST), &source, &paths.there("weighed")]);
    world.ends(&run, 2, "a weight for one path and none for the other: refused");
    let run = world.cp(&["--path", "10.99.20.2", "--path", "10.99.77.2", &source, &paths.there("away")]);
    world.ends(&run, 0, "a path that leads nowhere: exit code 0");
    world.same("src/small", "dst/away", "a path that leads nowhere: the same bytes");
    let is_named = run.out.contains("path 10.99.77.2 cannot be connected");
    world.holds("a path that leads nowhere: it is named", is_named, &run.why());
    let run = world.cp(&["--path", "eth7", &source, &paths.there("never")]);
    world.ends(&run, 2, "a path that is no address: refused");
    world.holds("a path that is no address: with the cause", run.err.contains("'eth7' is no IP address"), &run.why());
    Ok(())
}
