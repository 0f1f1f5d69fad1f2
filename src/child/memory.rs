//! How much memory this process may have: `RLIMIT_DATA`, which counts private writable memory, so neither the
//! program's text nor what allocators only reserve.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::{Error, Result};

/// Limits this process to so many bytes from now on; or to what the system allows.
pub(super) fn limit(bytes: Option<u64>) -> Result<()> {
    let hard = getrlimit(Resource::Data).maximum;
    let current = match (bytes, hard) {
        (Some(bytes), Some(hard)) => Some(bytes.min(hard)),
        (bytes, hard) => bytes.or(hard),
    };
    setrlimit(Resource::Data, Rlimit { current, maximum: hard })
        .map_err(|error| Error::unavailable("the limit of memory can't be set").because(error))
}

/// Whether this process holds more than half of a limit while it has nothing to do: the next job would have too little.
pub(super) fn is_worn(limit: u64) -> bool {
    in_use().is_some_and(|bytes| bytes > limit / 2)
}

/// What counts to the limit, where the system tells.
fn in_use() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let data: u64 = pages.split(' ').nth(5)?.parse().ok()?;
    Some(data * u64::try_from(rustix::param::page_size()).ok()?)
}
