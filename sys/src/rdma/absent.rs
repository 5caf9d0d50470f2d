//! In place of `device` in a build without verbs: the same names, and no value of them.
//!
//! For: whoever would use a device, who then needs not know which build this is.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use super::{Completion, Connection, Counts, Facts, Queues, Receives, Registration, Word};
use crate::mem::{Buf, Mapping};

/// See the device's.
pub type Hello = [u8; 52];

pub(super) const PROVIDERS: [&str; 0] = [];

/// See the device's.
#[derive(Debug)]
pub struct Link(Infallible);

/// See the device's.
#[derive(Debug)]
pub struct Request {
    /// See the device's.
    pub hello: Hello,
    link: Link,
}

/// See the device's.
#[derive(Debug)]
pub struct PairListener(Infallible);

/// See the device's.
#[derive(Debug)]
pub(super) struct Device(Infallible);

fn absent<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "RDMA is not in this build"))
}

impl Link {
    /// Errors: always.
    pub fn dial(_: SocketAddr, _: Option<IpAddr>, _: Option<&str>, _: Hello, _: Duration) -> io::Result<Link> {
        absent()
    }

    /// See the device's.
    #[must_use]
    pub fn device(&self) -> String {
        match self.0 {}
    }

    /// See the device's.
    #[must_use]
    pub fn facts(&self) -> Facts {
        match self.0 {}
    }
}

impl Request {
    /// See the device's.
    #[must_use]
    pub fn accept(self) -> Link {
        self.link
    }

    /// See the device's.
    pub fn refuse(self) {}

    /// See the device's.
    #[must_use]
    pub fn device(&self) -> String {
        self.link.device()
    }
}

impl PairListener {
    /// Errors: always.
    pub fn open(_: SocketAddr) -> io::Result<PairListener> {
        absent()
    }

    /// See the device's.
    ///
    /// # Errors
    /// See the device's.
    pub fn next(&self) -> io::Result<Option<Request>> {
        match self.0 {}
    }
}

impl AsFd for PairListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}

impl Device {
    pub(super) fn new(link: &Link, _: &Arc<Mapping>, _: usize, _: Registration) -> io::Result<Device> {
        match link.0 {}
    }
}

impl Queues for Device {
    fn takes(&self, _: &Connection) -> bool {
        match self.0 {}
    }

    fn attach(&mut self, _: Connection, _: Receives) -> io::Result<Arc<OwnedFd>> {
        match self.0 {}
    }

    fn has(&self, _: RawFd) -> bool {
        match self.0 {}
    }

    fn post_send(&mut self, _: RawFd, _: u64, _: Buf, _: usize, _: usize) {
        match self.0 {}
    }

    fn post_word(&mut self, _: RawFd, _: Word) {
        match self.0 {}
    }

    fn post_receive(&mut self, _: Buf) {
        match self.0 {}
    }

    fn receives(&self) -> usize {
        match self.0 {}
    }

    fn take_receive(&mut self) -> Option<Buf> {
        match self.0 {}
    }

    fn poll(&mut self, _: RawFd) -> Option<Completion> {
        match self.0 {}
    }

    fn cut(&mut self, _: RawFd) {
        match self.0 {}
    }

    fn detach(&mut self, _: RawFd, _: &mut dyn FnMut(Buf)) -> usize {
        match self.0 {}
    }

    fn counts(&self) -> Counts {
        match self.0 {}
    }
}
