//! How a request uses the volumes of a destination.
//!
//! For: `JobRequest::stripe`.
//! In and out: a request and a number of volumes → the layout that both ends are told.
//! Invariants: what a set by chunk cannot do is refused before anything is looked at.
//! Absent on purpose: which paths are volumes (whoever makes the request), looking at them (job::endpoint).

use engine::platform::Clones;
use proto::layout::{Layout, Stripe, VOLUMES_MAX};
use proto::wire::control::Compare;

use crate::request::JobRequest;
use text::exit::{Exit, Failure};

/// How so many volumes of the destination are used; `None`: they are no set.
pub fn layout(request: &JobRequest, volumes: usize) -> Result<Option<Layout>, Failure> {
    let Some(stripe) = request.stripe else { return Ok(None) };
    if stripe == Stripe::Chunk {
        by_chunk(request)?;
    }
    Ok(Some(Layout { stripe, volumes: count(volumes)? }))
}

/// What a set by chunk cannot do is refused before anything is looked at.
fn by_chunk(request: &JobRequest) -> Result<(), Failure> {
    let refuse = |cause: &str, next: &str| Err(Exit::Usage.fail("stripe files by chunk", cause).next(next));
    if request.compare == Compare::Always {
        return refuse(
            "--checksum compares with what stands under a name, and here that is a piece of the file",
            "leave out --checksum; `longhaul verify RECEIPT` reads what stands on all volumes",
        );
    }
    if request.reflink == Clones::Only {
        return refuse("a piece of a file shares no blocks with it", "leave out --reflink always");
    }
    Ok(())
}

/// So many volumes as one set.
pub fn count(volumes: usize) -> Result<u16, Failure> {
    u16::try_from(volumes).ok().filter(|&it| it <= VOLUMES_MAX).ok_or_else(|| {
        Exit::Usage
            .fail("take the volumes as one set", format!("{volumes} were named, and {VOLUMES_MAX} is the most"))
            .next("name fewer volumes")
    })
}
