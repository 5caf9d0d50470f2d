#![allow(dead_code, unused_imports)]
#[path = "../src/identity/mod.rs"]
mod identity;
#[path = "../src/link/mod.rs"]
mod link;
#[path = "../src/listener.rs"]
mod listener;
#[path = "../src/address.rs"]
mod address;
#[path = "../src/key_command.rs"]
mod key_command;
#[path = "../src/units.rs"]
mod units;
