//! Signals of commands that go on until they are stopped. SIGINT and SIGTERM end them; before Ctrl-Z stops one, it lets
//! others have all that they would wait for.

use std::thread;

#[cfg(unix)]
use signal_hook::{consts::SIGTSTP, low_level::emulate_default_handler};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::{Handle, Signals},
};

use super::exit::{Exit, Failure};
use crate::store::Store;

/// Calls this at each SIGINT and SIGTERM, until the handle is closed.
pub(super) fn on_stop_signals(
    program: &str,
    store: &Store,
    mut stop: impl FnMut() + Send + 'static,
) -> Result<Handle, Failure> {
    let failed = |error| Failure::new(Exit::Failed, format!("signals can't be listened to: {error}"));
    let mut signals = Signals::new([
        SIGINT,
        SIGTERM,
        #[cfg(unix)]
        SIGTSTP,
    ])
    .map_err(failed)?;
    let handle = signals.handle();
    let (program, store) = (program.to_owned(), store.clone());
    thread::Builder::new()
        .name("casque-signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                match signal {
                    #[cfg(unix)]
                    SIGTSTP => hand_over_and_stop(&program, &store),
                    _ => stop(),
                }
            }
        })
        .map_err(failed)?;
    Ok(handle)
}

#[cfg(unix)]
fn hand_over_and_stop(program: &str, store: &Store) {
    store.hand_over(|| {
        eprintln!("{program}: stopped; others commit without it");
        // It returns when the process goes on; where it fails, the process has not stopped.
        let _ = emulate_default_handler(SIGTSTP);
        eprintln!("{program}: goes on");
    });
}
