//! The way of answers to one client. The stone's own thread and its sealer both say something there; what they say goes
//! out in whole frames, whoever sends it.

use std::{
    io::{self, Write as _},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;

use crate::{
    error::Error,
    stone::{
        socket::Accepted,
        wire::{Refusal, Reply, put_frame},
    },
};

/// How much may wait for a client that does not read its answers, before it is given up.
const UNSENT_BYTES_MAX: usize = 64 << 20;
/// What is kept of the memory that a large answer took.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// A client's socket, and what is to be said there.
pub(super) struct Line {
    pub(super) stream: Accepted,
    out: Mutex<Out>,
}

#[derive(Default)]
struct Out {
    bytes: Vec<u8>,
    sent: usize,
}

/// What became of sending what was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    All,
    /// The rest when the client has read some of it.
    Some,
    /// The client is gone, or does not read.
    Never,
}

impl Line {
    pub(super) fn new(stream: Accepted) -> Self {
        Self { stream, out: Mutex::default() }
    }

    /// Adds a message; whether it is to be sent by whoever has said it. Else somebody who said something before will.
    pub(super) fn say<M: Serialize>(&self, message: &M) -> bool {
        let mut out = self.lock();
        let was_empty = out.bytes.is_empty();
        // Bounded like all that is said here; what can't be said is missed by the other end.
        let _ = put_frame(&mut out.bytes, message);
        was_empty && !out.bytes.is_empty()
    }

    /// Adds an answer, as [`Line::say`].
    pub(super) fn reply(&self, reply: &Reply) -> bool {
        let mut out = self.lock();
        let was_empty = out.bytes.is_empty();
        if put_frame(&mut out.bytes, reply).is_err()
            && let Reply::Change { number, .. } = reply
        {
            // The client asks again, and is told so by the same end.
            let error = Error::invalid("the answer is too large for one message; ask for less at once");
            let refused = Reply::Change { number: *number, answer: Err(Refusal::from(error)) };
            let _ = put_frame(&mut out.bytes, &refused);
        }
        was_empty && !out.bytes.is_empty()
    }

    /// Sends what was said, as much of it as goes.
    pub(super) fn send(&self) -> Sent {
        let mut out = self.lock();
        while out.sent < out.bytes.len() {
            match (&self.stream).write(&out.bytes[out.sent..]) {
                Ok(0) => return Sent::Never,
                Ok(count) => out.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let is_bearable = out.bytes.len() - out.sent <= UNSENT_BYTES_MAX;
                    return if is_bearable { Sent::Some } else { Sent::Never };
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Sent::Never,
            }
        }
        out.bytes.clear();
        out.sent = 0;
        if out.bytes.capacity() > KEPT_BYTES_MAX {
            out.bytes = Vec::new();
        }
        Sent::All
    }

    fn lock(&self) -> MutexGuard<'_, Out> {
        // What a panic may leave half said is ended with the connection: the other end reads no frame of it.
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
