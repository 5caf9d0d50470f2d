//! Which entries of the sources a job takes.
//!
//! For: `JobRequest::rules` and `JobRequest::names`.
//! In and out: rules in their order → the same, compiled; names → checked and sorted.
//! Invariants: a rule or a name that cannot be used ends the job before anything is copied.
//! Absent on purpose: what a rule means (engine::tree::scan::filter), which names stand where (engine::tree::scan::include).

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use engine::tree::scan::filter::Filter;
use engine::tree::scan::include::IncludeList;

use crate::request::JobRequest;
use text::exit::{Exit, Failure};

/// Rules and names, ready for use.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Rules in their order.
    pub rules: Vec<Box<str>>,
    /// The same, compiled; `None`: there are none.
    pub filter: Option<Arc<Filter>>,
    /// Only these names are taken; `None`: all.
    pub picks: Option<Arc<IncludeList>>,
}

impl Choice {
    /// Of a request.
    ///
    /// # Errors
    /// A rule that is none, a name that is no relative path, more names than a job may have.
    pub fn of(request: &JobRequest) -> Result<Choice, Failure> {
        let rules = request.rules.clone();
        let bad = |error| Exit::Usage.fail("understand the patterns", error).next("see `longhaul help cp`, Filters");
        let filter = if rules.is_empty() { None } else { Some(Arc::new(Filter::new(&rules).map_err(bad)?)) };
        let picks = request.names.as_ref().map(|names| {
            let mut picks = IncludeList::default();
            names.iter().try_for_each(|name| picks.add(name.as_bytes()))?;
            Ok(Arc::new(picks.sorted()))
        });
        let bad = |why: engine::tree::scan::include::NotIncluded| {
            let failure = Exit::Usage.fail("take the names that were listed", why);
            failure.next("mend the list behind --files-from: names relative to the source, one to a line")
        };
        Ok(Choice { rules, filter, picks: picks.transpose().map_err(bad)? })
    }
}
