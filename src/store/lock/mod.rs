//! Named locks across processes: `rules` is what a change does to one, `guard` what a user holds, `waiting` how it is
//! waited for, `info` who holds which.
//!
//! A lock belongs to a session, as leases do: a process that dies frees it at once, one that is stopped keeps it until
//! the lease time has passed. There are no shared locks, and none that one thread could take twice.

mod guard;
mod info;
pub(crate) mod rules;
#[cfg(test)]
mod rules_tests;
mod waiting;

pub use self::{guard::LockGuard, info::LockInfo, rules::Fence};
