//! The only file that reads time. Wall-clock time only orders schedules and may jump; who owns what never depends on
//! it.
#![allow(clippy::disallowed_methods, reason = "this is the module that the others are sent to")]

use std::{
    collections::hash_map::RandomState,
    fmt,
    hash::{BuildHasher, Hasher},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// A point of wall-clock time, in milliseconds since 1970 (UTC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The time by this machine's clock.
    #[must_use]
    pub fn now() -> Self {
        Self::from_millis(millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()))
    }

    /// That many milliseconds after 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// This time and so much later; the latest time there is where that would overflow.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// How long after `earlier` this is; zero if it is not.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, rest) = (self.0 / 86_400_000, self.0 % 86_400_000);
        let (year, month, day) = civil(days);
        let (hour, minute, second, milli) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60, rest % 1000);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
    }
}

/// The wall clock that a store goes by: this machine's, or one that stands still until a test moves it.
///
/// Only what has a time depends on it: delays, backoffs, schedules, retention. Who holds which job never does.
///
/// ```
/// use casque::{JobRequest, State, StoreOptions, Timestamp, testing::Clock};
/// use std::time::Duration;
///
/// let clock = Clock::manual(Timestamp::from_millis(0));
/// let store = StoreOptions::new().clock(clock.clone()).open_in_memory()?;
/// let queue = store.queue("mail");
/// queue.enqueue(JobRequest::new("remind", &()).delay(Duration::from_hours(24)))?;
/// assert!(queue.claim(1, Duration::ZERO)?.is_empty());
/// clock.advance(Duration::from_hours(24));
/// assert_eq!(queue.claim(1, Duration::ZERO)?.len(), 1);
/// # Ok::<(), casque::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Clock(Option<Arc<Manual>>);

struct Manual {
    now_ms: AtomicU64,
    /// Told when the time is another; those that no longer care say so.
    watchers: Mutex<Vec<Watcher>>,
}

type Watcher = Box<dyn Fn() -> bool + Send + Sync>;

impl Clock {
    /// This machine's clock.
    #[must_use]
    pub fn system() -> Self {
        Self(None)
    }

    /// A clock that shows this time until it is moved. Its clones are the same clock.
    #[must_use]
    pub fn manual(now: Timestamp) -> Self {
        Self(Some(Arc::new(Manual { now_ms: AtomicU64::new(now.as_millis()), watchers: Mutex::default() })))
    }

    /// The time that it shows.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            None => Timestamp::now(),
            Some(manual) => Timestamp(manual.now_ms.load(Ordering::Acquire)),
        }
    }

    /// Moves a manual clock on.
    ///
    /// # Panics
    /// If it is this machine's clock.
    pub fn advance(&self, by: Duration) {
        self.set(self.now().after(by));
    }

    /// Sets a manual clock, forwards or backwards.
    ///
    /// # Panics
    /// If it is this machine's clock.
    pub fn set(&self, now: Timestamp) {
        let manual = self.0.as_ref().expect("only a manual clock is set");
        manual.now_ms.store(now.as_millis(), Ordering::Release);
        manual.watchers.lock().unwrap_or_else(PoisonError::into_inner).retain(|watcher| watcher());
    }

    /// Has this called whenever a manual clock was set, for as long as it says that it cares.
    pub(crate) fn watch(&self, watcher: impl Fn() -> bool + Send + Sync + 'static) {
        if let Some(manual) = &self.0 {
            manual.watchers.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(watcher));
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.0.is_some() { "manual" } else { "system" };
        write!(f, "Clock({kind}, {})", self.now())
    }
}

/// The proleptic Gregorian date of a day counted from 1970-01-01: Howard Hinnant's `civil_from_days`
/// (<https://howardhinnant.github.io/date_algorithms.html>), for days that are not negative.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// A duration in whole milliseconds; the most a `u64` holds where it is longer.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A point of this process's monotonic clock.
pub(crate) fn monotonic() -> Instant {
    Instant::now()
}

/// The point of this process's clock that lies so far ahead; ten years where that is more.
pub(crate) fn deadline_after(wait: Duration) -> Instant {
    monotonic() + wait.min(Duration::from_hours(10 * 365 * 24))
}

/// Blocks this thread for so long.
pub(crate) fn sleep(duration: Duration) {
    std::thread::sleep(duration);
}

/// Bits that differ from call to call and from process to process.
pub(crate) fn entropy() -> u64 {
    static STATE: OnceLock<RandomState> = OnceLock::new();
    let mut hasher = STATE.get_or_init(RandomState::new).build_hasher();
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    hasher.write_u128(nanos);
    hasher.write_u32(std::process::id());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::Timestamp;

    #[test]
    fn timestamps_print_as_utc() {
        assert_eq!(Timestamp::from_millis(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp::from_millis(951_782_400_000).to_string(), "2000-02-29T00:00:00.000Z");
        assert_eq!(Timestamp::from_millis(1_796_083_199_999).to_string(), "2026-11-30T23:59:59.999Z");
    }
}
