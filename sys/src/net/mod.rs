//! Sockets, network interfaces, and memory that the network reads itself.
//!
//! For: rails, listeners, the lab and `tune`. In and out: descriptors, addresses, names of interfaces; errors carry the kernel's number.
//! Invariants: one file per kind of thing; `udp` uses `sock` and `pipe`, and none of the two uses it.
//! Absent on purpose: choosing among them.

// TCP sockets: listen, connect, options, and what the kernel knows of a path.
pub mod sock;
// Memory that the network reads itself.
pub(crate) mod pipe;
// UDP sockets: bursts of packets in one call.
pub mod udp;
// What a NIC tells of itself, and the queueing discipline of its device.
pub mod nic;
pub mod qdisc;
mod netlink; // its messages
// For the lab: network interfaces whose wire is a descriptor, hosts made of namespaces, and pairs of interfaces.
pub mod netns;
pub mod tun;
pub mod veth;
