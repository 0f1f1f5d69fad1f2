//! The only file that draws random numbers: names that must not clash, and jitter.
#![allow(clippy::disallowed_methods, reason = "this is the module that the others are sent to")]

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    time::Duration,
};

/// Two random words, for names of stores, clients and sessions. They need to differ, not to be secret.
pub(crate) fn words() -> [u64; 2] {
    [word(), word()]
}

/// The same as sixteen bytes.
pub(crate) fn bytes() -> [u8; 16] {
    let [high, low] = words();
    ((u128::from(high) << 64) | u128::from(low)).to_le_bytes()
}

/// A random duration up to `most`: "full jitter".
pub(crate) fn up_to(most: Duration) -> Duration {
    // As many bits as a fraction can hold.
    #[allow(clippy::cast_precision_loss, reason = "53 bits are exact")]
    let fraction = (word() >> 11) as f64 / (1u64 << 53) as f64;
    most.mul_f64(fraction)
}

/// A random number of milliseconds below `bound`, 0 where that is 0.
pub(crate) fn millis_below(bound: u64) -> u64 {
    // The bias towards small numbers is far below what a pause can show.
    if bound == 0 { 0 } else { word() % bound }
}

/// The system's randomness, drawn once per thread, hashed anew for each word; with the clock and the process, so that
/// the two sides of a fork differ too.
fn word() -> u64 {
    RandomState::new().build_hasher().finish() ^ crate::clock::entropy()
}
