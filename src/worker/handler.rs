//! A handler's thread: takes leases, runs the code that they name, and passes on how it ended.

use std::{sync::Arc, thread, time::Duration};

use crossbeam_channel::{Receiver, Sender};

use crate::{
    clock::monotonic,
    error::{Error, Result},
    queue::{Lease, settle::Ending},
    store::ticket::Ticket,
    task::{Job, TaskError},
    worker::{
        Setup,
        event::{Event, tell},
    },
};

/// How long a job waits whose beginning could not be noted.
const CANNOT_START: Duration = Duration::from_secs(1);

/// How a lease is to be settled.
pub(crate) struct Ended {
    pub(crate) lease: Lease,
    pub(crate) how: Ending,
    /// Its settlement, where that was handed in and not answered yet.
    pub(crate) ticket: Option<Ticket>,
}

/// Starts a handler's thread; it ends when there are no more assignments to come.
pub(crate) fn start(
    number: usize,
    setup: Arc<Setup>,
    assignments: Receiver<Lease>,
    ended: Sender<Ended>,
    freed: Sender<Lease>,
) -> Result<thread::JoinHandle<()>> {
    let run = move || {
        for lease in assignments {
            if let Some(how) = handle(&setup, &lease) {
                // If the settler is gone the worker was stopped at once, and has given the lease back.
                let _ = ended.send(Ended { lease: lease.clone(), how, ticket: None });
            }
            let _ = freed.send(lease);
        }
    };
    thread::Builder::new()
        .name(format!("casque-handler-{number}"))
        .spawn(run)
        .map_err(|error| Error::unavailable("a handler's thread can't be started").because(error))
}

/// Runs one job; nothing is left to settle where its handler did that in a transaction.
fn handle(setup: &Setup, lease: &Lease) -> Option<Ending> {
    // S19: what has not begun when the worker stops goes back uncharged.
    if setup.stop.is_stopping() {
        return lease.withdraw().then_some(Ending::Release);
    }
    match lease.start_unless_withdrawn() {
        Ok(true) => {}
        // P7: it was cancelled while it waited for this thread.
        Ok(false) => return None,
        Err(error) => {
            let doing = "note that a handler begins";
            tell(&setup.listeners, &Event::Trouble { doing, message: error.full_message() });
            return lease.withdraw().then_some(Ending::Snooze { delay: CANNOT_START });
        }
    }
    let (job, token) = (lease.id(), lease.token());
    tell(&setup.listeners, &Event::Started { job, task: lease.task().to_owned(), attempt: lease.attempt(), token });
    let began = monotonic();
    let outcome = setup.registry.run(&Job::new(lease.clone(), setup.stop.flag()));
    let how = ending(setup, lease, outcome);
    let clean = matches!(how, Ending::Complete { result: None }) && !lease.is_settled();
    if let Err(error) = lease.note_ended(clean) {
        tell(&setup.listeners, &Event::Trouble { doing: "note that a handler ended", message: error.full_message() });
    }
    tell(&setup.listeners, &Event::Ended { job, token, took: monotonic().duration_since(began) });
    (!lease.is_settled()).then_some(how)
}

fn ending(setup: &Setup, lease: &Lease, outcome: Result<crate::task::RunOutput, TaskError>) -> Ending {
    match outcome {
        Ok(output) => Ending::Complete { result: output.result },
        Err(TaskError::Failed(message)) => {
            Ending::Fail { message, retry_after: Some(setup.registry.backoff(lease.task(), lease.attempt())) }
        }
        Err(TaskError::Fatal(message)) => Ending::Fail { message, retry_after: None },
        Err(TaskError::Snooze(delay)) => Ending::Snooze { delay },
        Err(TaskError::Release) => Ending::Release,
        Err(TaskError::Cancel) => Ending::Cancel,
    }
}
