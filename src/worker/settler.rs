//! The settler: one thread that commits how jobs ended, as many as there are in one group, while handlers go on.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use crossbeam_channel::Receiver;

use crate::{
    clock::sleep,
    error::{Error, ErrorKind, Result},
    queue::{
        settle::{Ending, Settled},
        state::State,
    },
    worker::{
        Report, Setup,
        event::{Event, tell},
        handler::Ended,
        pause_after,
    },
};

/// How many settlements are handed in before any is waited for.
const BATCH_MAX: usize = 1_000;

/// Starts the settler's thread, which adds to the report what it commits. It ends when no more can come.
pub(crate) fn start(
    setup: Arc<Setup>,
    inbox: Receiver<Ended>,
    report: Arc<Mutex<Report>>,
) -> Result<thread::JoinHandle<()>> {
    thread::Builder::new()
        .name("casque-settler".into())
        .spawn(move || {
            while let Ok(first) = inbox.recv() {
                let mut batch = vec![first];
                batch.extend(inbox.try_iter().take(BATCH_MAX - 1));
                settle_all(&setup, batch, &report);
            }
        })
        .map_err(|error| Error::unavailable("the settler's thread can't be started").because(error))
}

fn settle_all(setup: &Setup, mut batch: Vec<Ended>, report: &Mutex<Report>) {
    for failures in 0.. {
        let tickets: Vec<_> = batch
            .into_iter()
            // Given back meanwhile, by a worker that was stopped at once.
            .filter(|ended| !ended.lease.is_settled())
            .map(|ended| (ended.lease.submit(ended.how.clone()), ended))
            .collect();
        batch = Vec::new();
        for (ticket, mut ended) in tickets {
            match ticket.and_then(|ticket| ended.lease.settled(ticket)) {
                Ok(settled) => tell_settled(setup, &ended, settled, report),
                Err(error) if error.kind() == ErrorKind::LeaseLost => {
                    counted(report).leases_lost += 1;
                    let (job, token) = (ended.lease.id(), ended.lease.token());
                    tell(&setup.listeners, &Event::LeaseLost { job, token });
                }
                // A result that can't be stored is the handler's failure.
                Err(error) if error.kind() == ErrorKind::Invalid && is_completion(&ended.how) => {
                    let retry_after = Some(setup.registry.backoff(ended.lease.task(), ended.lease.attempt()));
                    ended.how = Ending::Fail { message: error.full_message(), retry_after };
                    batch.push(ended);
                }
                Err(error) if error.kind() == ErrorKind::Closed => ended.lease.abandon(),
                // The handler has done its work: what will pass is waited out.
                Err(error) => {
                    tell(&setup.listeners, &Event::Trouble { doing: "settle a job", message: error.full_message() });
                    batch.push(ended);
                }
            }
        }
        if batch.is_empty() {
            return;
        }
        sleep(pause_after(failures));
    }
}

/// The report, for one addition.
pub(crate) fn counted(report: &Mutex<Report>) -> MutexGuard<'_, Report> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_completion(how: &Ending) -> bool {
    matches!(how, Ending::Complete { .. })
}

fn tell_settled(setup: &Setup, ended: &Ended, settled: Settled, report: &Mutex<Report>) {
    let (job, token) = (ended.lease.id(), ended.lease.token());
    let event = match (&ended.how, settled.state) {
        (Ending::Complete { .. }, _) => {
            counted(report).completed += 1;
            Event::Completed { job, token }
        }
        (Ending::Fail { message, .. }, state) => {
            counted(report).failed += 1;
            Event::Failed { job, state, message: message.clone() }
        }
        (_, state) => {
            counted(report).given_back += u64::from(state != State::Cancelled);
            Event::GivenBack { job, state }
        }
    };
    tell(&setup.listeners, &event);
}
