//! The stone: the process that keeps the writer's lock for life and commits for the others too, over a local socket.
//!
//! `seat` is a process's place as the stone, empty most of the time; `server` is the loop that serves while it is
//! taken, `window` the rows that were answered and are not in the store's file yet, `log` what makes them durable,
//! `parked` the claims of idle workers; `candidate` takes the seat. `client` is the other end of the socket, `wire`
//! what goes over it.
//!
//! Deliberately absent: what a change does (`store::apply`), and who a worker is. Rules W4 to W8, L1 to L7, C4 and A1
//! to A3 of ARCHITECTURE.md are kept here.

pub(crate) mod candidate;
pub(crate) mod client;
mod entry;
pub(crate) mod log;
#[cfg(not(unix))]
mod no_socket;
mod parked;
#[cfg(feature = "cli")]
pub(crate) mod probe;
pub(crate) mod seat;
mod server;
#[cfg(unix)]
mod socket;
mod window;
mod wire;

use serde::{Deserialize, Serialize};

#[cfg(not(unix))]
use self::no_socket as socket;
#[cfg(test)]
pub(crate) use self::parked::queues_with_jobs as parked_queues;
pub(crate) use self::socket::Stream;
#[cfg(all(unix, feature = "isolation"))]
pub(crate) use self::wire::{Refusal, put_frame, take_frame};

/// How the changes of this process may get to the disk. Where the system has no local sockets, as Windows, they all go
/// directly, whatever is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Commits {
    /// By a stone where there is one, which a worker's process becomes where there is none; else directly. A stone
    /// keeps a log.
    #[default]
    Logged,
    /// As `Logged`, but as the stone this process writes each group to the store's file at once.
    Unlogged,
    /// Each change directly, under the writer's lock; this process is never the stone, and asks none. While another
    /// process is one its calls wait for the lock in vain, and time out.
    DirectOnly,
}
