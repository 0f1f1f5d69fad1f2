//! Child processes that any thread may kill until they are reaped. Until then nobody else can have their pid.

use std::{
    io,
    process::{Child, ExitStatus},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid},
};

/// Kills a child, and all in its process group, whose leader it is.
#[derive(Clone, Debug)]
pub(crate) struct Killer(Arc<Mutex<Option<Pid>>>);

impl Killer {
    pub(crate) fn of(child: &Child) -> Self {
        Self(Arc::new(Mutex::new(Some(Pid::from_child(child)))))
    }

    /// Kills it, unless it was reaped.
    pub(crate) fn kill(&self) {
        if let Some(pid) = *self.pid() {
            // What has ended already can't be killed any more.
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Waits until the child has ended, and reaps it.
    pub(crate) fn reap(&self, child: &mut Child) -> io::Result<ExitStatus> {
        if self.is_reaped() {
            return child.wait();
        }
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while waitid(WaitId::Pid(Pid::from_child(child)), ended).is_err_and(|error| error == Errno::INTR) {}
        // Taken before the child is reaped, which frees its pid.
        self.pid().take();
        child.wait()
    }

    pub(crate) fn is_reaped(&self) -> bool {
        self.pid().is_none()
    }

    fn pid(&self) -> MutexGuard<'_, Option<Pid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
