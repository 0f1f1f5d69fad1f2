//! The stone: the process that commits for the others.
//!
//! It keeps the rows of its groups in memory for a window of some milliseconds and answers as soon as they are in its
//! log (`log`), which takes one sync where a commit of redb takes two and much work; the window's rows follow in one
//! commit. Nothing here knows jobs: rows come in, versions go out.

#[allow(dead_code, unused_imports, reason = "what commits by way of the log comes after it")]
pub(crate) mod log;
