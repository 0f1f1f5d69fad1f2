//! The only file that names bincode: how records become row bytes, and how values of users become payloads.
//!
//! A record's bytes are a format byte, a schema byte, and the bincode of the struct. The format byte is the way out of
//! bincode 2.0.1, which is its last release: another encoding takes another byte. To change a record, add a schema
//! number, keep the decoder of the old one, and add golden bytes to `store/golden_tests.rs`.

#![allow(clippy::disallowed_methods, reason = "this is the codec")]

use std::fmt::Write as _;

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::error::{Error, Result};

/// The most bytes that one record may take, encoded or decoded.
pub(crate) const RECORD_BYTES_MAX: usize = 8 << 20;

/// What most records fit into, so that they are written without growing.
const RECORD_BYTES_USUAL: usize = 320;

/// Bincode 2 with variable-length integers.
const FORMAT_BINCODE: u8 = 1;

const CONFIG: Configuration<LittleEndian, Varint, Limit<RECORD_BYTES_MAX>> =
    bincode::config::standard().with_limit::<RECORD_BYTES_MAX>();

/// The most bytes of one message between processes: a change of the largest size, and what frames its parts.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 << 20;

const MESSAGE_CONFIG: Configuration<LittleEndian, Varint, Limit<MESSAGE_BYTES_MAX>> =
    bincode::config::standard().with_limit::<MESSAGE_BYTES_MAX>();

/// Adds a message between processes to bytes that go out.
///
/// # Errors
/// `Invalid` for one that is too large.
pub(crate) fn encode_message<M: Serialize>(out: &mut Vec<u8>, message: &M) -> Result<()> {
    let start = out.len();
    bincode::serde::encode_into_std_write(message, out, MESSAGE_CONFIG)
        .map_err(|error| Error::invalid("a message to another process can't be encoded").because(error))?;
    let bytes = out.len() - start;
    if bytes > MESSAGE_BYTES_MAX {
        return Err(Error::invalid(format!("a change of {bytes} bytes is too large; split it into smaller ones")));
    }
    Ok(())
}

/// The message in bytes that came in.
///
/// # Errors
/// `Invalid` for what is not exactly one message.
pub(crate) fn decode_message<M: DeserializeOwned>(bytes: &[u8]) -> Result<M> {
    let (message, used) = bincode::serde::decode_from_slice::<M, _>(bytes, MESSAGE_CONFIG)
        .map_err(|error| Error::invalid("a message from another process can't be read").because(error))?;
    if used != bytes.len() {
        return Err(Error::invalid(format!(
            "a message from another process has {} bytes too many",
            bytes.len() - used
        )));
    }
    Ok(message)
}

/// A struct that is kept in a row, or in a file beside the store.
pub(crate) trait Record: Serialize + DeserializeOwned {
    /// What a person calls it, for errors.
    const NAME: &'static str;
    /// The number of its present shape.
    const SCHEMA: u8 = 1;

    /// Checks what the type can't express; both sides of the codec call it.
    fn validate(&self) -> Result<(), &'static str> {
        Ok(())
    }
}

/// The row bytes of a record.
pub(crate) fn encode<R: Record>(record: &R) -> Result<Vec<u8>> {
    record.validate().map_err(|why| Error::invalid(format!("the {} to write is not sound: {why}", R::NAME)))?;
    let mut bytes = Vec::with_capacity(RECORD_BYTES_USUAL);
    bytes.extend_from_slice(&[FORMAT_BINCODE, R::SCHEMA]);
    bincode::serde::encode_into_std_write(record, &mut bytes, CONFIG)
        .map_err(|error| Error::invalid(format!("the {} can't be encoded", R::NAME)).because(error))?;
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(Error::invalid(format!(
            "the {} takes {} bytes; at most {RECORD_BYTES_MAX} fit",
            R::NAME,
            bytes.len()
        )));
    }
    Ok(bytes)
}

/// The record in row bytes.
///
/// # Errors
/// `Corrupt` for an unknown format or schema, truncated bytes, bytes that are left over, and unsound records.
pub(crate) fn decode<R: Record>(bytes: &[u8]) -> Result<R> {
    let damaged = |why: String| Error::corrupt(format!("a {} in the store can't be read: {why}", R::NAME));
    let body = match bytes {
        [FORMAT_BINCODE, schema, body @ ..] if *schema == R::SCHEMA => body,
        [FORMAT_BINCODE, schema, ..] => {
            return Err(damaged(format!("schema {schema}, and this build reads {}; use a newer casque", R::SCHEMA)));
        }
        [format, ..] => return Err(damaged(format!("format {format}; use a newer casque"))),
        [] => return Err(damaged("it is empty".into())),
    };
    let (record, used) = bincode::serde::decode_from_slice::<R, _>(body, CONFIG)
        .map_err(|error| damaged("its bytes are not sound".into()).because(error))?;
    if used != body.len() {
        return Err(damaged(format!("{} bytes are left over", body.len() - used)));
    }
    record.validate().map_err(|why| damaged(why.into()))?;
    Ok(record)
}

/// How a payload's bytes are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Codec {
    /// Bincode 2: from Rust.
    Bincode,
    /// JSON text: from the command line and other languages.
    Json,
}

/// A value of a user, as bytes that know their codec.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload {
    codec: Codec,
    #[serde(with = "whole_bytes")]
    bytes: Vec<u8>,
}

/// Bytes written and read as a whole: the same bytes as those of a sequence, which takes a call for each.
mod whole_bytes {
    use std::fmt;

    use serde::{Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        deserializer.deserialize_byte_buf(Bytes)
    }

    struct Bytes;

    impl de::Visitor<'_> for Bytes {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes")
        }

        fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            Ok(bytes.to_vec())
        }

        fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
            Ok(bytes)
        }
    }
}

impl Payload {
    /// A value as bincode.
    ///
    /// # Errors
    /// `Invalid` where the type can't be written as bincode (`#[serde(flatten)]` and untagged enums can't).
    pub fn bincode<T: Serialize + ?Sized>(value: &T) -> Result<Self> {
        let bytes = bincode::serde::encode_to_vec(value, CONFIG).map_err(|error| {
            let name = std::any::type_name::<T>();
            Error::invalid(format!("a value of type {name} can't be written as bincode")).because(error)
        })?;
        Ok(Self { codec: Codec::Bincode, bytes })
    }

    /// A value as JSON.
    ///
    /// # Errors
    /// `Invalid` where the type can't be written as JSON.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self> {
        let bytes = serde_json::to_vec(value).map_err(|error| {
            let name = std::any::type_name::<T>();
            Error::invalid(format!("a value of type {name} can't be written as JSON")).because(error)
        })?;
        Ok(Self { codec: Codec::Json, bytes })
    }

    /// The text of a JSON value, checked, and kept as it is: numbers of any size stay exact.
    ///
    /// # Errors
    /// `Invalid` where the text is not JSON; says at which line and column.
    pub fn from_json_text(text: &str) -> Result<Self> {
        let _: serde::de::IgnoredAny = serde_json::from_str(text)
            .map_err(|error| Error::invalid(format!("not valid JSON: {error}")).because(error))?;
        Ok(Self { codec: Codec::Json, bytes: text.trim().as_bytes().to_vec() })
    }

    /// The value, read by its codec.
    ///
    /// # Errors
    /// `Invalid` where the bytes do not hold a `T`.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T> {
        let name = std::any::type_name::<T>();
        let wrong =
            || Error::invalid(format!("the {} bytes of {} do not hold a {name}", self.bytes.len(), self.codec_name()));
        match self.codec {
            Codec::Bincode => {
                let (value, used) = bincode::serde::decode_from_slice::<T, _>(&self.bytes, CONFIG)
                    .map_err(|error| wrong().because(error))?;
                if used == self.bytes.len() { Ok(value) } else { Err(wrong()) }
            }
            Codec::Json => serde_json::from_slice(&self.bytes).map_err(|error| wrong().because(error)),
        }
    }

    /// The value as JSON: itself where it is, else `{"bincode": "<hex>"}`, since only the type's owner can read it.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        match self.codec {
            Codec::Json => serde_json::from_slice(&self.bytes)
                .unwrap_or_else(|_| serde_json::json!({ "invalid_json": String::from_utf8_lossy(&self.bytes) })),
            Codec::Bincode => {
                serde_json::json!({ "bincode": hex(&self.bytes) })
            }
        }
    }

    /// How the bytes are to be read.
    #[must_use]
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn codec_name(&self) -> &'static str {
        match self.codec {
            Codec::Bincode => "bincode",
            Codec::Json => "JSON",
        }
    }
}

impl std::fmt::Debug for Payload {
    /// The size only: arguments may hold what must not get into a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Payload({}, {} bytes)", self.codec_name(), self.bytes.len())
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // to a string, which does not fail
        text
    })
}

/// A digest of bytes that is the same in every build: FNV-1a with 128 bits
/// (<http://www.isthe.com/chongo/tech/comp/fnv/>).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Digest(u128);

impl Digest {
    pub(crate) fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Payload;

    #[test]
    fn json_text_keeps_numbers_exact_and_is_checked() {
        let text = " {\"id\": 18446744073709551616} ";
        let payload = Payload::from_json_text(text).unwrap();
        assert_eq!(payload.as_bytes(), text.trim().as_bytes());
        assert_eq!(payload.decode::<std::collections::BTreeMap<String, u128>>().unwrap()["id"], 1 << 64);
        for wrong in ["", "{", "[1,]", "1 2", &"[".repeat(100_000)] {
            assert!(Payload::from_json_text(wrong).is_err(), "{}", &wrong[..wrong.len().min(9)]);
        }
    }
}
