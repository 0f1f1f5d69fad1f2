//! A thread that does something again and again, until whoever started it has enough.

use std::{thread, time::Duration};

use crossbeam_channel::{RecvTimeoutError, Sender, TrySendError, bounded};

use crate::error::{Error, Result};

/// A thread that ticks; dropping this ends it.
pub(crate) struct Alarm {
    pid: u32,
    signals: Sender<Signal>,
    thread: Option<thread::JoinHandle<()>>,
}

/// Has an alarm tick at once, from any thread; of an alarm that has ended it does nothing.
#[derive(Clone)]
pub(crate) struct Ringer {
    signals: Sender<Signal>,
}

enum Signal {
    Ring,
    End,
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
        // One ring is as good as several that nobody has heard yet.
        let (signals, inbox) = bounded(1);
        let mut pause = Some(pause);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                loop {
                    let signal = match pause {
                        Some(pause) => inbox.recv_timeout(pause),
                        None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                    };
                    match signal {
                        Ok(Signal::Ring) | Err(RecvTimeoutError::Timeout) => pause = tick(),
                        Ok(Signal::End) | Err(RecvTimeoutError::Disconnected) => return,
                    }
                }
            })
            .map_err(|error| Error::unavailable(format!("the thread {name} can't be started")).because(error))?;
        Ok(Self { pid: std::process::id(), signals, thread: Some(thread) })
    }

    /// What has it tick at once.
    pub(crate) fn ringer(&self) -> Ringer {
        Ringer { signals: self.signals.clone() }
    }
}

impl Ringer {
    /// Whether there is still somebody to hear it.
    pub(crate) fn ring(&self) -> bool {
        !matches!(self.signals.try_send(Signal::Ring), Err(TrySendError::Disconnected(_)))
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // A process that was forked has none of its parent's threads.
        if let Some(thread) = self.thread.take().filter(|_| self.pid == std::process::id()) {
            // A ring that was not heard yet makes room when it is; where the thread is gone, so is its inbox.
            let _ = self.signals.send(Signal::End);
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
