//! A thread that does something again and again, until whoever started it has enough.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crate::{
    clock::{deadline_after, monotonic},
    error::{Error, Result},
};

/// A thread that ticks; dropping this ends it.
pub(crate) struct Alarm {
    pid: u32,
    bell: Arc<Bell>,
    thread: Option<thread::JoinHandle<()>>,
}

/// Has an alarm tick at once, from any thread; of an alarm that has ended it does nothing.
#[derive(Clone)]
pub(crate) struct Ringer {
    bell: Arc<Bell>,
}

/// What the thread sleeps by. A channel would spin for a while before each sleep, and an idle process has nothing to do
/// but such sleeps.
#[derive(Default)]
struct Bell {
    signals: Mutex<Signals>,
    rung: Condvar,
}

#[derive(Default)]
struct Signals {
    is_rung: bool,
    is_over: bool,
}

impl Alarm {
    /// Calls `tick` every `period` on a thread of its own until this is dropped.
    pub(crate) fn every(name: &str, period: Duration, mut tick: impl FnMut() + Send + 'static) -> Result<Self> {
        Self::paced(name, period, move || {
            tick();
            Some(period)
        })
    }

    /// Calls `tick` after `pause`, and then each time after the pause that it asked for, or when this rings; where it
    /// asked for none, only then.
    pub(crate) fn paced(
        name: &str,
        pause: Duration,
        mut tick: impl FnMut() -> Option<Duration> + Send + 'static,
    ) -> Result<Self> {
        let bell = Arc::new(Bell::default());
        let heard = Ending { bell: bell.clone() };
        let mut pause = Some(pause);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                while heard.bell.wait(pause) {
                    pause = tick();
                }
            })
            .map_err(|error| Error::unavailable(format!("the thread {name} can't be started")).because(error))?;
        Ok(Self { pid: std::process::id(), bell, thread: Some(thread) })
    }

    /// What has it tick at once.
    pub(crate) fn ringer(&self) -> Ringer {
        Ringer { bell: self.bell.clone() }
    }
}

impl Ringer {
    /// Whether there is still somebody to hear it.
    pub(crate) fn ring(&self) -> bool {
        let mut signals = self.bell.lock();
        signals.is_rung = true;
        self.bell.rung.notify_one();
        !signals.is_over
    }
}

impl Bell {
    /// Sleeps until it rings, or so long; whether there is to be another tick.
    fn wait(&self, pause: Option<Duration>) -> bool {
        let deadline = pause.map(deadline_after);
        let mut signals = self.lock();
        loop {
            if signals.is_over {
                return false;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(monotonic()));
            if std::mem::take(&mut signals.is_rung) || left == Some(Duration::ZERO) {
                return true;
            }
            signals = match left {
                Some(left) => self.rung.wait_timeout(signals, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.rung.wait(signals).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Signals> {
        // Two flags, each set on its own.
        self.signals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        self.lock().is_over = true;
        self.rung.notify_one();
    }
}

/// The thread's own hold of its bell: whoever rings when it has ended, in whatever way, learns so.
struct Ending {
    bell: Arc<Bell>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.bell.end();
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // A process that was forked has none of its parent's threads.
        if let Some(thread) = self.thread.take().filter(|_| self.pid == std::process::id()) {
            self.bell.end();
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::Alarm;

    #[test]
    fn alarm_that_asks_for_no_pause_ticks_when_it_is_rung() {
        let (tell, ticks) = mpsc::channel();
        let alarm = Alarm::paced("test", Duration::ZERO, move || {
            tell.send(()).unwrap();
            None
        })
        .unwrap();
        let soon = Duration::from_mins(1);
        ticks.recv_timeout(soon).unwrap();
        let ringer = alarm.ringer();
        for _ in 0..3 {
            assert!(ringer.ring());
            ticks.recv_timeout(soon).unwrap();
        }
        drop(alarm);
        assert!(!ringer.ring());
        assert_eq!(ticks.try_recv(), Err(mpsc::TryRecvError::Disconnected), "it ends, though it could still be rung");
    }
}
