//! What the stone has to do for somebody, and who that is.

use std::time::Instant;

use crate::{
    error::Result,
    store::{change::Change, promise::Promise, ticket::Replier, verdict::Asked},
};

/// Where an answer goes.
pub(super) enum Origin {
    /// To a thread of this process.
    Own(Replier),
    /// To a client: its connection, and the change's number there.
    Client { connection: usize, number: u64 },
}

/// A change that is to be decided.
pub(super) struct Entry {
    pub(super) origin: Origin,
    pub(super) change: Change,
    pub(super) asked: Option<Asked>,
    pub(super) wait_until: Option<Instant>,
}

/// Who waits for a window to be closed.
pub(super) enum Closer {
    Own(Promise<Result<()>>),
    Client {
        connection: usize,
        ask: u64,
    },
    Borrower {
        connection: usize,
        ask: u64,
    },
    /// All who hold jobs: they look at the store's file.
    Holders,
}

impl Origin {
    /// Whether it came over this connection.
    pub(super) fn is_of(&self, other: usize) -> bool {
        matches!(self, Self::Client { connection, .. } if *connection == other)
    }
}
