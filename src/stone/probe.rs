//! Whether a stone answers, for those who look at a store from outside and open nothing of it.

use std::{
    io::{Read as _, Write as _},
    time::Duration,
};

use crate::{
    stone::{
        socket,
        wire::{Hello, LENGTH_BYTES, PROTOCOL, Purpose, put_frame},
    },
    store::{change::ClientId, conflict::Version, site::Files},
};

/// How long a stone has to answer; one that is stopped does not.
const PATIENCE: Duration = Duration::from_millis(500);

/// What became of knocking at a store's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// There is no socket: nobody is the stone.
    NoSocket,
    /// There is one, and nobody behind it: the last stone died.
    Nobody,
    /// Somebody has it open and says nothing.
    Silence,
    /// A stone does its work.
    Answered,
}

/// Knocks at the socket of a store.
pub(crate) fn knock(files: &Files) -> Answer {
    let Some(path) = socket::path(files).ok().filter(|path| path.exists()) else { return Answer::NoSocket };
    let Some(mut stream) = socket::connect(&path, &files.store) else { return Answer::Nobody };
    let mut hello = Vec::new();
    // Of no store that there is: it is refused, which is an answer and leaves no trace.
    let client = ClientId { born: Version(0), random: 0 };
    let said = put_frame(
        &mut hello,
        &Hello {
            protocol: PROTOCOL,
            store: [0; 16],
            client,
            purpose: Purpose::Work,
            pid: std::process::id(),
            label: String::new(),
        },
    );
    let heard = said.is_ok()
        && stream.set_read_timeout(Some(PATIENCE)).is_ok()
        && stream.set_write_timeout(Some(PATIENCE)).is_ok()
        && stream.write_all(&hello).is_ok()
        && stream.read_exact(&mut [0; LENGTH_BYTES]).is_ok();
    if heard { Answer::Answered } else { Answer::Silence }
}
