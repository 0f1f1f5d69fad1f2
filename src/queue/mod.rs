//! The queue: a job is a row, and each verb is one file.
//!
//! The verbs (`enqueue`, `claim`, `settle`, `promote`, `reclaim`, `admin`) are pure: they work on the overlay of one
//! change, and move jobs only through `moves`. What a user holds is in `handle`, `jobs`, `view`, `lease` and `request`.

pub(crate) mod admin;
pub(crate) mod chunks;
pub(crate) mod claim;
pub(crate) mod config;
pub(crate) mod counts;
pub(crate) mod enqueue;
pub(crate) mod extra;
mod handle;
mod held;
pub(crate) mod id;
pub(crate) mod info;
mod jobs;
pub(crate) mod lane;
pub(crate) mod lease;
pub(crate) mod list;
pub(crate) mod moves;
pub(crate) mod promote;
pub(crate) mod reach;
pub(crate) mod reclaim;
pub(crate) mod record;
mod request;
pub(crate) mod select;
pub(crate) mod settle;
pub(crate) mod state;
mod view;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod reclaim_tests;
#[cfg(test)]
mod rig_tests;
#[cfg(test)]
mod schedule_tests;
#[cfg(test)]
mod select_tests;
#[cfg(test)]
mod settle_tests;
#[cfg(test)]
mod table_tests;

pub(crate) use self::held::{HeldJob, held};
pub use self::{
    handle::Queue,
    info::{JobError, JobInfo, QueueStats},
    lease::Lease,
    list::JobFilter,
    request::{IntoJob, JobRequest},
    view::{Policy, QueueView},
};
