//! The records of the store itself: its format, its version, and the objects on the root.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    clock::Timestamp,
    codec::{Payload, Record},
    error::{Error, Result},
    store::conflict::{Version, Writer},
};

/// The longest key of an object, in bytes.
pub const KEY_BYTES_MAX: usize = 512;

/// The format of the rows that this build reads and writes.
pub(crate) const DATA_FORMAT: u32 = 1;

/// What a store says of itself; written when it is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FormatRecord {
    pub(crate) format: u32,
    pub(crate) store: [u8; 16],
}

impl Record for FormatRecord {
    const NAME: &'static str = "format record";
}

/// INV-2: the store's version, one more for each committed change, and the latest time given to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoreRecord {
    pub(crate) version: Version,
    pub(crate) stamp: Timestamp,
}

impl Record for StoreRecord {
    const NAME: &'static str = "store record";
}

/// L1: whether a log holds changes that this file does not have yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LogRecord {
    None,
    InUse { log: [u8; 16] },
}

impl Record for LogRecord {
    const NAME: &'static str = "log record";
}

/// An object on the root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ObjectRecord {
    pub(crate) version: Version,
    pub(crate) writer: Writer,
    pub(crate) value: Value,
}

impl Record for ObjectRecord {
    const NAME: &'static str = "root object";
}

/// What an object holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Value {
    /// Any value of a user.
    Plain(Payload),
    /// A number that changes add to without reading it.
    Counter(i64),
}

impl Value {
    /// The value as a `T`; a counter reads as any type that a whole number fits in.
    pub(crate) fn decode<T: DeserializeOwned>(&self) -> Result<T> {
        match self {
            Self::Plain(payload) => payload.decode(),
            Self::Counter(count) => Payload::json(count)?.decode(),
        }
    }

    pub(crate) fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Plain(payload) => payload.to_json(),
            Self::Counter(count) => (*count).into(),
        }
    }
}

/// # Errors
/// `Invalid` for a key that is empty, too long, or has control characters.
pub(crate) fn check_key(key: &str) -> Result<()> {
    if key.is_empty() {
        return Err(Error::invalid("the key is empty; give it at least one character"));
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::invalid(format!("the key has {} bytes; at most {KEY_BYTES_MAX} are allowed", key.len())));
    }
    if key.chars().any(char::is_control) {
        return Err(Error::invalid(format!("the key {key:?} has a control character; use printable ones")));
    }
    Ok(())
}
