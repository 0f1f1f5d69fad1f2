//! casque.
#![forbid(unsafe_code)]
#![warn(clippy::disallowed_methods, clippy::unwrap_used)]
#![allow(dead_code)] // while the parts are being put together

mod clock;
mod codec;
mod engine;
mod error;
mod local;
mod queue;
mod random;
mod store;
mod task;

#[doc(hidden)]
pub use engine::redb::{StorageHook, StorageOperation};
pub use error::{Error, ErrorKind, Result};
