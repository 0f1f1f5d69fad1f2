//! Watching an object: waits until it has another version than the one known.

use std::time::Duration;

use crate::{
    clock::{deadline_after, monotonic},
    error::{Error, ErrorKind, Result},
    store::{
        Store,
        conflict::Version,
        snapshot::{Object, Snapshot},
    },
};

/// Waits until the object that `read` finds in a snapshot has another version than `from` (`None`: absent), and gives
/// what is there then.
pub(crate) fn watch<T>(
    store: &Store,
    key: &str,
    from: Option<Version>,
    patience: Duration,
    read: impl Fn(&Snapshot) -> Result<Option<Object<T>>>,
) -> Result<Option<Object<T>>> {
    let (since, deadline) = (monotonic(), deadline_after(patience));
    loop {
        // Read before the object is, so that a commit in between is not missed.
        let seen = store.inner.site.wakes();
        let object = read(&store.snapshot()?)?;
        if object.as_ref().map(|object| object.version) != from {
            return Ok(object);
        }
        if monotonic() >= deadline {
            let version = from.map_or("absent".to_owned(), |version| format!("at version {version}"));
            return Err(Error::new(ErrorKind::TimedOut, format!("\"{key}\" is still {version} after {patience:?}")));
        }
        store.inner.wait_for_commit(seen, since, deadline);
    }
}
