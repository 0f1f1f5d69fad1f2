//! The names of jobs, places, leases and sessions. Each is written once, here, as text and as key bytes.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// A job's identity for life: the version of the change that enqueued it, and its index in that change.
///
/// Written `1042` for the first job of a change and `1042-3` for its fourth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId {
    pub(crate) version: u64,
    pub(crate) index: u32,
}

/// How many bytes a [`JobId`] takes in a key.
pub(crate) const ID_BYTES: usize = 12;

impl JobId {
    pub(crate) fn to_bytes(self) -> [u8; ID_BYTES] {
        let mut bytes = [0; ID_BYTES];
        bytes[..8].copy_from_slice(&self.version.to_be_bytes());
        bytes[8..].copy_from_slice(&self.index.to_be_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (version, index) = bytes.split_first_chunk::<8>()?;
        let index: [u8; 4] = index.try_into().ok()?;
        Some(Self { version: u64::from_be_bytes(*version), index: u32::from_be_bytes(index) })
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.index == 0 { write!(f, "{}", self.version) } else { write!(f, "{}-{}", self.version, self.index) }
    }
}

impl FromStr for JobId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parse = || {
            let (version, index) = text.split_once('-').unwrap_or((text, "0"));
            let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            if !digits(version) || !digits(index) {
                return None;
            }
            Some(Self { version: version.parse().ok()?, index: index.parse().ok()? })
        };
        parse().ok_or_else(|| Error::invalid(format!("\"{text}\" is not a job id; one looks like 1042 or 1042-3")))
    }
}

/// Where a job stands in its queue. At first the same as its id; a requeue renews it.
pub(crate) type Place = JobId;

/// The fencing token of a lease: the version of the change that claimed it. Tokens never come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Token(pub(crate) u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The random name of one process's presence on a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(pub(crate) [u8; 16]);

impl SessionId {
    pub(crate) fn random() -> Self {
        Self(crate::random::bytes())
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for SessionId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut bytes = [0; 16];
        let wrong = || Error::invalid(format!("\"{text}\" is not a session id; one has 32 hexadecimal digits"));
        if text.len() != 32 || !text.is_ascii() {
            return Err(wrong());
        }
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}
