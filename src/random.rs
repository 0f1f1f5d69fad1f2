//! The only file that draws random numbers: names that must not clash, and jitter.
#![allow(clippy::disallowed_methods, reason = "this is the module that the others are sent to")]

use std::time::Duration;

/// Two random words, for names of stores, clients and sessions. They need to differ, not to be secret.
pub(crate) fn words() -> [u64; 2] {
    // Each draw hashes the thread, the clock and the process's own seed, so that two processes started in the same
    // instant, and the two sides of a fork, still differ.
    [(); 2].map(|()| fastrand::Rng::new().u64(..) ^ crate::clock::entropy())
}

/// The same as sixteen bytes.
pub(crate) fn bytes() -> [u8; 16] {
    let [high, low] = words();
    ((u128::from(high) << 64) | u128::from(low)).to_le_bytes()
}

/// A random duration up to `most`: "full jitter".
pub(crate) fn up_to(most: Duration) -> Duration {
    most.mul_f64(fastrand::f64())
}

/// A random number of milliseconds below `bound`, 0 where that is 0.
pub(crate) fn millis_below(bound: u64) -> u64 {
    if bound == 0 { 0 } else { fastrand::u64(..bound) }
}
