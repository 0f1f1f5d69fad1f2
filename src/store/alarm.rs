//! A thread that does something again and again, until whoever started it has enough.

use std::{thread, time::Duration};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};

use crate::error::{Error, Result};

/// A thread that ticks; dropping this ends it.
pub(crate) struct Alarm {
    pid: u32,
    stop: Option<Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Alarm {
    /// Calls `tick` every `period` on a thread of its own until this is dropped.
    pub(crate) fn every(name: &str, period: Duration, mut tick: impl FnMut() + Send + 'static) -> Result<Self> {
        Self::paced(name, period, move || {
            tick();
            period
        })
    }

    /// Calls `tick` after `pause`, and then each time after the pause that it asked for.
    pub(crate) fn paced(
        name: &str,
        mut pause: Duration,
        mut tick: impl FnMut() -> Duration + Send + 'static,
    ) -> Result<Self> {
        let (stop, stopped) = bounded::<()>(0);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                    pause = tick();
                }
            })
            .map_err(|error| Error::unavailable(format!("the thread {name} can't be started")).because(error))?;
        Ok(Self { pid: std::process::id(), stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.stop = None;
        // A process that was forked has none of its parent's threads.
        if let Some(thread) = self.thread.take().filter(|_| self.pid == std::process::id()) {
            let _ = thread.join();
        }
    }
}
