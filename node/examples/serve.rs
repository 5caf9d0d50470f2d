//! Serves a folder to whoever has the ticket that is printed.
//!
//! For: showing how a program accepts jobs: `serve FOLDER [IP:PORT]`; `copy.rs` beside this copies to it.
//! In and out: a folder in; an address with a ticket on standard output; served until the process ends.
//! Invariants: nothing outside the folder is read or written.
//! Absent on purpose: signals, a config file, giving up rights of the process: `longhaul serve` has these.

use node::identity::Home;
use node::identity::ticket::Uses;
use node::serve::settings::Settings;
use node::serve::{Bound, Log};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let mut settings = Settings::of(words.next().ok_or("serve FOLDER [IP:PORT]")?);
    if let Some(listen) = words.next() {
        settings.listen = listen.parse()?;
    }
    let bound = Bound::bind(settings, &Home::find()?, &[])?;
    let server = bound.start(Log::to(|line| eprintln!("{line}")))?;
    println!("longhaul://{}@{}/", server.ticket(Uses::Many)?, server.address()?);
    server.run()?;
    Ok(())
}
