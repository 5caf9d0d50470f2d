//! Copies a file or a folder to a daemon, and shows how far it is.
//!
//! For: showing how a program has files moved: `copy SOURCE longhaul://TICKET@HOST:PORT/`; `serve.rs` beside this prints such an address.
//! In and out: a path and an address in; progress on standard error, the exit code of the job out.
//! Invariants: the same command again resumes.
//! Absent on purpose: options; `JobRequest` has a method for each.

use std::process::ExitCode;

use node::client::Node;
use node::event::JobEvent;
use node::identity::Home;
use node::request::JobRequest;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let [source, destination] = &words[..] else {
        eprintln!("copy SOURCE DESTINATION");
        return ExitCode::from(2);
    };
    match copy(JobRequest::copy([source], destination).build()) {
        Ok(exit) => exit,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn copy(request: JobRequest) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let node = Node::open(&Home::find()?)?;
    let job = node.start(request);
    for event in job.events() {
        match event {
            JobEvent::Progress(now) => eprintln!("{} of {:?} bytes", now.bytes_done, now.bytes_total),
            JobEvent::Note(text) => eprintln!("{text}"),
            JobEvent::Fault(fault) => eprintln!("{}: {:?}", String::from_utf8_lossy(&fault.path), fault.fault.kind),
            JobEvent::Ended(report) => {
                eprintln!("{} files, {} bytes; {}", report.files, report.bytes, report.limiter.sentence)
            }
            _ => {}
        }
    }
    Ok(ExitCode::from(job.wait()?.code()))
}
