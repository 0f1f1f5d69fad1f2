//! The files beside a store, by which the processes of one machine find, await and outlive each other.
//!
//! A lock with a bell for those who wait (`lock`), a counter that tells sleepers of a commit (`wakes`), one file per
//! process present (`session`, `observe`), one lock per child process (`children`), and the folder around them. They
//! rest on OS locks that die with their holder, so that none of them needs to be synced or repaired.
//!
//! Deliberately absent: the store's rows, the log and the socket. Nothing here decides what becomes of a job; it only
//! says who is there and what they noted. Start with `folder`, then `lock`.

mod boot;
pub(crate) mod children;
pub(crate) mod files;
mod folder;
mod holder;
mod lock;
mod network;
mod observe;
#[cfg(feature = "cli")]
mod openers;
mod record;
mod session;
mod turn;
mod wakes;

#[cfg(test)]
mod tests;

pub(crate) use self::{
    boot::boot_id,
    folder::Folder,
    holder::{Holder, holder, is_lock_held, is_stopped, last_note},
    lock::{WriterGuard, WriterLock},
    network::{is_mount_point, network_file_system},
    observe::{Seen, look, remove, remove_leftovers, session_ids, sessions},
    record::NoteState,
    session::{NoteSlot, SessionFile},
    turn::{is_turn_taken, try_turn},
    wakes::Wakes,
};
#[cfg(feature = "cli")]
pub(crate) use self::{observe::leftovers, openers::openers, record::Note};
