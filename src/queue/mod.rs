//! The queue: a job is a row, and each verb is one file. Everything here up to `handle` is pure: it works on a view.
pub(crate) mod admin;
pub(crate) mod claim;
pub(crate) mod counts;
pub(crate) mod enqueue;
pub(crate) mod id;
pub(crate) mod lane;
pub(crate) mod moves;
pub(crate) mod promote;
pub(crate) mod reclaim;
pub(crate) mod record;
pub(crate) mod select;
pub(crate) mod settle;
pub(crate) mod state;
