//! What queue pairs are of, as a user names it.
//!
//! For: `--rdma-device` of both ends. In and out: a word, and what this host has → may it be used, and if not, why.

use std::fmt;

use serde::{Deserialize, Serialize};
use sys::rdma::{Found, Verdict};

/// What queue pairs are of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum RdmaDevice {
    /// A TCP connection stands for a device.
    Emulated,
    /// Whatever device leads to the peer.
    Auto,
    /// This one and no other.
    Named(String),
}

impl From<String> for RdmaDevice {
    fn from(name: String) -> RdmaDevice {
        match name.as_str() {
            "emulated" => RdmaDevice::Emulated,
            "auto" => RdmaDevice::Auto,
            _ => RdmaDevice::Named(name),
        }
    }
}

impl From<RdmaDevice> for String {
    fn from(it: RdmaDevice) -> String {
        it.to_string()
    }
}

impl fmt::Display for RdmaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RdmaDevice::Emulated => "emulated",
            RdmaDevice::Auto => "auto",
            RdmaDevice::Named(name) => name,
        })
    }
}

impl RdmaDevice {
    /// The only device that will do, if one was named.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            RdmaDevice::Named(name) => Some(name),
            RdmaDevice::Auto | RdmaDevice::Emulated => None,
        }
    }

    /// Is it a device?
    #[must_use]
    pub fn is_device(&self) -> bool {
        *self != RdmaDevice::Emulated
    }

    /// Can it be used on this host? Errors: why not, and what would help.
    ///
    /// # Errors
    /// In words: no such device, or what the kernel or this build lacks.
    pub fn can_be_used(&self, found: &[Found]) -> Result<(), String> {
        let mut wanted = found.iter().filter(|it| self.name().is_none_or(|name| it.name == name)).peekable();
        if !self.is_device() {
            return Ok(());
        }
        if wanted.peek().is_none() {
            return Err(match self.name() {
                Some(name) => format!("this host has no RDMA device {name}"),
                None if sys::rdma::PROVIDERS.is_empty() => "RDMA is not in this build".to_owned(),
                None => "this host has no RDMA device".to_owned(),
            });
        }
        let mut why = String::new();
        for device in wanted {
            match &device.verdict {
                Verdict::Use => return Ok(()),
                Verdict::Not(words) | Verdict::Cannot(words) => why = format!("{}: {words}", device.name),
            }
        }
        Err(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_cannot_be_used_is_refused_with_the_reason() {
        let of = |name: &str, verdict| Found {
            name: name.into(),
            driver: "d".into(),
            link: "Ethernet".into(),
            netdev: None,
            verdict,
        };
        let found =
            [of("a", Verdict::Cannot("no room".into())), of("b", Verdict::Use), of("c", Verdict::Not("down".into()))];
        let named = |name: &str| RdmaDevice::from(name.to_owned());
        assert_eq!(named("auto").can_be_used(&found), Ok(()));
        assert_eq!(named("b").can_be_used(&found), Ok(()));
        assert_eq!(named("emulated").can_be_used(&[]), Ok(()));
        assert_eq!(named("a").can_be_used(&found), Err("a: no room".into()));
        assert_eq!(named("auto").can_be_used(&found[2..]), Err("c: down".into()));
        assert_eq!(named("d").can_be_used(&found), Err("this host has no RDMA device d".into()));
        assert!(named("auto").can_be_used(&[]).is_err());
        assert_eq!(String::from(named("mlx5_0")), "mlx5_0");
    }
}
