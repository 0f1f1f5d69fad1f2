//! What a bench makes, and clears away however it ends: its folder, and its workers.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

#[cfg(unix)]
use signal_hook::low_level::emulate_default_handler;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::{Handle, Signals},
};

use crate::{
    cli::exit::{Exit, Failure},
    clock::sleep,
    codec::hex,
};

/// How often and after what time the folder is removed again, where this process has just made something in it.
const REMOVALS: usize = 100;
const REMOVE_EVERY: Duration = Duration::from_millis(5);

/// The folder and the workers, until this is dropped, or SIGINT or SIGTERM comes.
pub(super) struct Mess {
    made: Arc<Mutex<Made>>,
    signals: Handle,
}

#[derive(Default)]
struct Made {
    folder: Option<PathBuf>,
    workers: Vec<Child>,
}

impl Mess {
    /// Listens to the signals before there is anything to clear away.
    pub(super) fn new() -> Result<Self, Failure> {
        let failed = |error| Failure::new(Exit::Failed, format!("signals can't be listened to: {error}"));
        let made = Arc::new(Mutex::new(Made::default()));
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
        let handle = signals.handle();
        let cleared = made.clone();
        let clear = move || {
            if let Some(signal) = signals.forever().next() {
                // Held to the end, so that nothing more is made.
                let mut made = lock(&cleared);
                made.clear();
                end_by(signal);
            }
        };
        thread::Builder::new().name("casque-signals".into()).spawn(clear).map_err(failed)?;
        Ok(Self { made, signals: handle })
    }

    /// Makes the folder, in this one.
    pub(super) fn make_folder(&self, within: &Path) -> Result<PathBuf, Failure> {
        let random: [u8; 16] = crate::random::bytes();
        let path = within.join(format!("casque-bench-{}", hex(&random[..4])));
        let mut made = lock(&self.made);
        fs::create_dir(&path).map_err(|error| super::disk::failed(&path, &error))?;
        made.folder = Some(path.clone());
        Ok(path)
    }

    /// Starts a worker; gives what it will say.
    pub(super) fn start_worker(&self, command: &mut Command) -> std::io::Result<Option<ChildStdout>> {
        let mut made = lock(&self.made);
        let mut worker = command.spawn()?;
        let stdout = worker.stdout.take();
        made.workers.push(worker);
        Ok(stdout)
    }

    pub(super) fn workers(&self) -> usize {
        lock(&self.made).workers.len()
    }

    /// Has the workers end in order, and waits until they have.
    pub(super) fn end_workers(&self) -> std::io::Result<()> {
        // Taken out first, so that a signal needs not wait for them: they end with their input, which is closed.
        let mut workers = std::mem::take(&mut lock(&self.made).workers);
        workers.iter_mut().for_each(|worker| drop(worker.stdin.take()));
        workers.iter_mut().try_for_each(|worker| worker.wait().map(drop))
    }

    pub(super) fn kill_workers(&self) {
        lock(&self.made).kill_workers();
    }
}

impl Drop for Mess {
    fn drop(&mut self) {
        self.signals.close();
        lock(&self.made).clear();
    }
}

impl Made {
    fn clear(&mut self) {
        self.kill_workers();
        let Some(folder) = self.folder.take() else { return };
        for _ in 0..REMOVALS {
            // What can't be removed has a name by which one sees whose it is.
            if fs::remove_dir_all(&folder).is_ok() || !folder.exists() {
                return;
            }
            sleep(REMOVE_EVERY);
        }
    }

    fn kill_workers(&mut self) {
        for mut worker in self.workers.drain(..) {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

fn lock(made: &Mutex<Made>) -> MutexGuard<'_, Made> {
    made.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends this process as the signal would have.
fn end_by(signal: i32) {
    #[cfg(unix)]
    let _ = emulate_default_handler(signal);
    // Only where that is not possible.
    std::process::exit(128 + signal);
}
