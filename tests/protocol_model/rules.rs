//! The protocol's rules as a search is to follow them, a bug planted or not, and how much may go wrong in it.

use crate::state::{Budget, CLIENTS};

/// A rule that is broken on purpose, to see the search find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// L1: `in use` is committed before the header of the fresh log is synced.
    FlagBeforeLog,
    /// L3: the next window begins in a half whose redb commit has not returned.
    HalfReusedEarly,
    /// L4: after a failed sync the stone syncs again, is told Ok, and goes on with that log.
    AppendAfterFailedSync,
    /// L4: the commit that makes good for a failure leaves the log in use, and a fresh header is written over it.
    MendKeepsFlag,
    /// L4: the commit that was in flight when a record failed is taken for the one that makes good for it.
    MendTrustsOlderCommit,
    /// L5: a window whose commit failed is tried twice at once; the second Ok is taken for the next window's.
    WindowTriedTwice,
    /// A group that no half has room for is answered before redb has it.
    AroundAnsweredEarly,
    /// L2: a record's checksum is that of its own bytes: neither of the record before nor of the window's start.
    NoChain,
    /// L2: the chain begins at the version alone, so it does not tell one log from another.
    NoLogId,
    /// L3: the answer goes out before the sync.
    AnswerBeforeSync,
    /// L3: a sync is taken to cover a record that was appended after it had begun.
    SyncCoversLater,
    /// L3, A2: what is decided on rows that are not synced yet is answered at once: here, a change that is sent again.
    AnsweredOnUnsynced,
    /// L6: what was replayed is committed and the store goes on to name the log.
    RecoveryKeepsFlag,
    /// R2: a snapshot does not ask the stone to close its window.
    SnapshotWithoutBarrier,
    /// R2: a snapshot waits for the commit that is in flight, and not for that of the open window.
    SnapshotWaitsForOlderWindow,
    /// A2: the client's row is not written with the group.
    VerdictForgotten,
    /// A2: a direct commit writes no client's row.
    DirectWithoutVerdict,
    /// A2: a client's hello does not end its older connections; what comes from those is still taken.
    OlderConnectionLives,
    /// W6: a stone that leaves marks its log unused without the rows of its last window.
    LeaveWithoutWindow,
    /// A write does not compare the state it was computed from with the one it falls on.
    NoBasis,
    /// L1: a stone reads what log is in use from a handle that it had before it took the lock.
    StoneOnKeptHandle,
    /// Of redb: whoever takes over reads a header that a dead writer flipped and did not sync, and does not sync it.
    UnsyncedHeaderTrusted,
}

/// What a search goes through.
#[derive(Clone, Copy)]
pub struct Scope {
    /// How many changes each client has, one after the other.
    pub changes: [u8; CLIENTS],
    pub reads: bool,
    pub budget: Budget,
    /// Each record's checksum begins at the log's id instead of the record before.
    pub id_instead_of_chain: bool,
    pub bug: Option<Bug>,
}

impl Scope {
    pub fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}
