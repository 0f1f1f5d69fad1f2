//! A handler's thread: takes the next lease, runs the code that it names, and leaves how it ended for the next turn.

use std::{sync::Arc, thread, time::Duration};

use crate::{
    clock::monotonic,
    error::{Error, Result},
    queue::{Lease, settle::Ending},
    task::{Job, RunOutput, TaskError},
    worker::{
        Setup,
        crew::Crew,
        event::{Event, tell, tell_of},
    },
};
#[cfg(all(unix, feature = "isolation"))]
use crate::{task::Isolation, worker::timeouts::timeout_of};

/// How long a job waits whose beginning could not be noted.
const CANNOT_START: Duration = Duration::from_secs(1);

/// How a lease is to be settled.
pub(crate) struct Ended {
    pub(crate) lease: Lease,
    pub(crate) how: Ending,
}

/// What a handler's thread did with a lease.
#[derive(Default)]
pub(super) struct Handled {
    /// How it is to be settled; nothing where somebody else has settled it, or will.
    pub(super) how: Option<Ending>,
    /// How long the handler ran, if it did.
    pub(super) took: Option<Duration>,
    pub(super) is_completed_in_transaction: bool,
}

/// Starts a handler's thread; it ends when the crew has no more to do.
pub(super) fn start(number: usize, crew: &Arc<Crew>) -> Result<thread::JoinHandle<()>> {
    let crew = crew.clone();
    let run = move || {
        let _ward = crew.ward();
        let mut state = crew.lock();
        while let Some((held, lease)) = crew.next_lease(state, number) {
            drop(held);
            let handled = handle(&crew.setup, &lease);
            state = crew.lock();
            crew.take_back(&mut state, number, lease, handled);
        }
    };
    thread::Builder::new()
        .name(format!("casque-handler-{number}"))
        .spawn(run)
        .map_err(|error| Error::unavailable("a handler's thread can't be started").because(error))
}

/// Runs one job.
fn handle(setup: &Setup, lease: &Lease) -> Handled {
    // S19: what has not begun when the worker stops goes back uncharged.
    if setup.stop.is_stopping() {
        return not_begun(lease, Ending::Release);
    }
    match lease.start_unless_withdrawn() {
        Ok(true) => {}
        // P7: it was cancelled while it waited for this thread, or its time was over, and whoever said so settles it.
        Ok(false) => return Handled::default(),
        Err(error) => {
            let doing = "note that a handler begins";
            tell(&setup.listeners, &Event::Trouble { doing, message: error.full_message() });
            return not_begun(lease, Ending::Snooze { delay: CANNOT_START });
        }
    }
    let (job, token) = (lease.id(), lease.token());
    tell_of(&setup.listeners, || Event::Started {
        job,
        task: lease.task().to_owned(),
        attempt: lease.attempt(),
        token,
    });
    let began = monotonic();
    let outcome = run(setup, &Job::new(lease.clone(), setup.stop.flag()));
    let how = ending(setup, lease, outcome);
    let clean = matches!(how, Ending::Complete { result: None }) && lease.outbox().is_empty() && !lease.is_settled();
    if let Err(error) = lease.note_ended(clean) {
        tell(&setup.listeners, &Event::Trouble { doing: "note that a handler ended", message: error.full_message() });
    }
    let took = monotonic().duration_since(began);
    tell_of(&setup.listeners, || Event::Ended { job, token, took });
    let is_completed_in_transaction = lease.is_completed_in_transaction();
    if is_completed_in_transaction {
        tell_of(&setup.listeners, || Event::Completed { job, token });
    }
    // Where its time was over first, its failure is settled already, and what it brings late is nobody's.
    let is_to_settle = !lease.is_settled() && !lease.is_timed_out();
    Handled { how: is_to_settle.then_some(how), took: Some(took), is_completed_in_transaction }
}

/// Runs the handler where its task asks for it.
fn run(setup: &Setup, job: &Job) -> Result<RunOutput, TaskError> {
    #[cfg(all(unix, feature = "isolation"))]
    if let Isolation::Process { memory_max } = setup.registry.isolation(job.task()) {
        return setup.host.run(job, timeout_of(setup, job), memory_max);
    }
    setup.registry.run(job)
}

fn not_begun(lease: &Lease, how: Ending) -> Handled {
    Handled { how: lease.withdraw().then_some(how), ..Handled::default() }
}

fn ending(setup: &Setup, lease: &Lease, outcome: Result<RunOutput, TaskError>) -> Ending {
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
