//! Watching an object: waits until it has another version than the one known.

use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::{
    clock::monotonic,
    error::{Error, ErrorKind, Result},
    store::{Store, conflict::Version, snapshot::Object},
};

/// Waits until the object has another version than `from` (`None`: absent), and gives what is there then.
pub(crate) fn watch<T: DeserializeOwned>(
    store: &Store,
    key: &str,
    from: Option<Version>,
    patience: Duration,
) -> Result<Option<Object<T>>> {
    let deadline = monotonic() + patience;
    loop {
        // Read before the object is, so that a commit in between is not missed.
        let seen = store.inner.site.wakes();
        let object = store.snapshot()?.object::<T>(key)?;
        if object.as_ref().map(|object| object.version) != from {
            return Ok(object);
        }
        if monotonic() >= deadline {
            let version = from.map_or("absent".to_owned(), |version| format!("at version {version}"));
            return Err(Error::new(ErrorKind::TimedOut, format!("\"{key}\" is still {version} after {patience:?}")));
        }
        store.inner.wait_for_commit(seen, deadline);
    }
}
