//! What goes over the stone's socket: frames of a length (four bytes, little-endian) and a message. Bounded both ways,
//! so that whoever is at the other end can't make this one reserve more than a frame's worth of memory.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    codec,
    error::{Error, ErrorKind, Result},
    queue::id::SessionId,
    store::{
        change::{Applied, Change, ClientId},
        conflict::Conflict,
        verdict::Asked,
    },
};

/// The number of the protocol; both ends must speak the same.
pub(super) const PROTOCOL: u32 = 1;
/// The most bytes of one message.
pub(super) const FRAME_BYTES_MAX: usize = codec::MESSAGE_BYTES_MAX;
/// How many bytes say how long a frame is.
pub(super) const LENGTH_BYTES: usize = 4;

/// What a client says first. The other end may be of another version, so its form never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) protocol: u32,
    pub(super) store: [u8; 16],
    pub(super) client: ClientId,
    pub(super) purpose: Purpose,
    pub(super) pid: u32,
    pub(super) label: String,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Purpose {
    /// For requests and their answers.
    Work,
    /// To end with the stone, which calls the holders of jobs by a byte on it.
    Lifeline,
}

/// What a stone answers to that. Its form never changes either.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Welcome {
    Come {
        pid: u32,
    },
    /// Why not; the protocol and the store are the stone's own.
    No {
        protocol: u32,
        store: [u8; 16],
    },
}

/// What a client asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Commit this. A claim that finds nothing may wait for so long.
    Change {
        asked: Asked,
        wait_ms: u64,
        change: Change,
    },
    /// Bring all that was answered into the store's file.
    CloseWindow {
        ask: u64,
    },
    /// Answer the claim that waits under this number now.
    CallOff {
        number: u64,
    },
    /// It lives, and waits.
    Alive,
    /// Lend the writer's lock, with the window closed, until this says otherwise or is gone.
    Borrow {
        ask: u64,
    },
    GiveBack,
    /// Remove the file of a session that has ended and holds nothing.
    Bury {
        session: SessionId,
    },
    /// It needs none of its answers any more.
    Leave,
}

/// What a stone answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// To the change of this number.
    Change { number: u64, answer: Result<Applied, Refusal> },
    /// To a question of this number: done, or why not.
    Asked { ask: u64, answer: Result<(), Refusal> },
}

/// An error as it travels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Refusal {
    kind: ErrorKind,
    message: String,
    conflict: Option<Conflict>,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { kind: error.kind(), message: error.full_message(), conflict: error.conflict().cloned() }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal.conflict {
            Some(conflict) => Self::of_conflict(conflict),
            None => Self::new(refusal.kind, refusal.message),
        }
    }
}

/// Adds a message as a frame to bytes that go out.
///
/// # Errors
/// `Invalid` for a message that is too large.
pub(crate) fn put_frame<M: Serialize>(out: &mut Vec<u8>, message: &M) -> Result<()> {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    if let Err(error) = codec::encode_message(out, message) {
        out.truncate(start);
        return Err(error);
    }
    let length = u32::try_from(out.len() - start - LENGTH_BYTES).expect("a message is bounded");
    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// The first frame's message in bytes that came in, and how many bytes it took; nothing where it is not all there yet.
///
/// # Errors
/// `Invalid` for what is no frame: the connection is of no more use.
pub(crate) fn take_frame<M: DeserializeOwned>(bytes: &[u8]) -> Result<Option<(M, usize)>> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = frame_length(*length)?;
    let Some(body) = rest.get(..length) else { return Ok(None) };
    Ok(Some((codec::decode_message(body)?, LENGTH_BYTES + length)))
}

/// The length that a frame begins with.
///
/// # Errors
/// `Invalid` for one that is out of bounds.
pub(super) fn frame_length(bytes: [u8; LENGTH_BYTES]) -> Result<usize> {
    let length = u32::from_le_bytes(bytes) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(Error::invalid(format!(
            "a frame of {length} bytes is out of bounds; at most {FRAME_BYTES_MAX} are"
        )));
    }
    Ok(length)
}

/// Which of two versions both ends may name each other in an error.
pub(super) fn refuse_protocol(theirs: u32) -> Error {
    Error::unavailable(format!(
        "the process that commits for this store speaks protocol {theirs}, and this one {PROTOCOL}; use the same \
         casque for both"
    ))
}

#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
pub(super) mod spoken;
#[cfg(test)]
mod tests;
