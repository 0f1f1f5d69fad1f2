//! The queue: a job is a row, and each verb is one file.
//!
//! The verbs (`enqueue`, `claim`, `settle`, `promote`, `reclaim`, `admin`) are pure: they work on the overlay of one
//! change, and move jobs only through `moves`. What a user holds is in `handle`, `jobs`, `view`, `lease` and `request`.

pub(crate) mod admin;
#[cfg(feature = "cli")]
pub(crate) mod awaited;
mod batch;
mod canonical;
pub(crate) mod chunks;
pub(crate) mod claim;
pub(crate) mod config;
pub(crate) mod counts;
pub(crate) mod depend;
pub(crate) mod enqueue;
pub(crate) mod extra;
mod flow;
mod handle;
mod held;
pub(crate) mod id;
pub(crate) mod info;
pub(crate) mod jobs;
pub(crate) mod keyed;
pub(crate) mod lane;
pub(crate) mod lease;
pub(crate) mod limits;
pub(crate) mod list;
pub(crate) mod log;
pub(crate) mod moves;
mod outbox;
mod patience;
pub(crate) mod pause;
pub(crate) mod promote;
pub(crate) mod rate;
pub(crate) mod reach;
pub(crate) mod reclaim;
pub(crate) mod record;
pub(crate) mod reference;
mod request;
pub(crate) mod reschedule;
pub(crate) mod room;
pub(crate) mod schedule;
pub(crate) mod select;
pub(crate) mod settle;
mod slice;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod sweep;
pub(crate) mod unique;
mod uniqueness;
mod view;

#[cfg(test)]
mod control_tests;
#[cfg(test)]
mod depend_tests;
#[cfg(test)]
mod keyed_tests;
#[cfg(test)]
mod late_claim_tests;
#[cfg(test)]
mod limit_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod outbox_tests;
#[cfg(test)]
mod reclaim_tests;
#[cfg(test)]
pub(crate) mod rig_tests;
#[cfg(test)]
mod schedule_tests;
#[cfg(test)]
mod select_tests;
#[cfg(test)]
mod settle_tests;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod tend_tests;
#[cfg(test)]
mod unique_model_tests;
#[cfg(test)]
mod unique_tests;

pub(crate) use self::held::{HeldJob, held};
pub use self::{
    batch::Batch,
    extra::OnFailure,
    flow::{Flow, Step},
    handle::Queue,
    info::{Awaited, JobError, JobInfo, QueueStats},
    lease::Lease,
    limits::{QueueConfig, Rate},
    list::JobFilter,
    log::LogLine,
    reference::JobRef,
    request::{IntoJob, JobRequest},
    reschedule::Reschedule,
    schedule::{
        define::{CatchUp, Schedule},
        handle::ScheduleInfo,
    },
    status::{JobStatus, Watch},
    uniqueness::Unique,
    view::{Policy, QueueView},
};
