//! casque.
#![forbid(unsafe_code)]
#![allow(dead_code)] // while the parts are being put together

mod clock;
mod engine;
mod error;
mod local;
mod queue;
mod random;
mod store;

#[doc(hidden)]
pub use engine::redb::{StorageHook, StorageOperation};
pub use error::{Error, ErrorKind, Result};
