//! What a worker has told when it says that it let go of a job.
//!
//! For: reports, which read the counters of the workers as soon as the last of them has said so.
//! In and out: jobs without a rail, opened and closed at once; panics when the word came before the count.
//! Invariants: no count is older than the word.
//! Absent on purpose: what the counts are (`engine::worker::stages`).

#[allow(dead_code)]
mod pair;

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use engine::host::{Make, Team, Workers};
use engine::job::{Cmd, Cover, Event, EventQueue, InPlace, JobPart, Role, Terms};
use proto::negotiate::Cipher;
use proto::storage::IoModes;
use proto::wire::control::DigestKind;

#[test]
fn who_hears_that_a_job_is_closed_reads_all_that_was_counted_for_it() {
    let make = Make { count: 1, memory_bytes: 8 << 20, chunk_bytes: 1 << 20, driver: None, holds: Vec::new() };
    let team = Team::new(Arc::new(Workers::start(make).expect("a worker")), 0, 1);
    let scratch = pair::Scratch::new("closing");
    let source = pair::source_of(&scratch.from(), IoModes::default());
    let terms = Terms {
        chunk_bytes: 1 << 20,
        digest: DigestKind::Blake3,
        cipher: Cipher::Aes128Gcm,
        cover: Cover::Sealed,
        publish_small: false,
    };
    for job in 1..=2000 {
        let (post, events) = sync_channel(16);
        let part = JobPart {
            role: Role::Send(source.clone()),
            terms,
            events: EventQueue::new(post, None),
            bound: Arc::default(),
            in_place: InPlace::Never,
        };
        team.send(0, Cmd::Open { job, part });
        team.send(0, Cmd::Close { job });
        let Ok(Event::Closed { books }) = events.recv_timeout(Duration::from_secs(10)) else { panic!("not closed") };
        let seen = team.books().remove(0).ns;
        let older = seen.iter().zip(books.iter()).position(|(seen, told)| seen < told);
        assert_eq!(older, None, "job {job}: stage by stage {seen:?} is read, {books:?} was told before");
    }
}
