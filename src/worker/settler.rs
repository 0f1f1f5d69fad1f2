//! The settler: one thread that commits how jobs ended, as many as there are in one group, while handlers go on.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use crossbeam_channel::Receiver;

use crate::{
    error::{Error, ErrorKind, Result},
    queue::{
        settle::{Ending, Settled},
        state::State,
    },
    store::ticket::Ticket,
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
            let mut settler = Settler { setup, report, failures: 0 };
            // What could not be committed yet is tried again with what comes next.
            let mut waiting: Vec<Ended> = Vec::new();
            loop {
                let next = if waiting.is_empty() {
                    inbox.recv().ok()
                } else {
                    inbox.recv_timeout(pause_after(settler.failures)).ok()
                };
                if next.is_none() && waiting.is_empty() {
                    return;
                }
                waiting.extend(next);
                waiting.extend(inbox.try_iter().take(BATCH_MAX - 1));
                waiting = settler.settle_all(waiting);
                settler.failures = if waiting.is_empty() { 0 } else { settler.failures.saturating_add(1) };
                if settler.setup.stop.is_at_once() {
                    waiting.drain(..).for_each(|ended| ended.lease.abandon());
                }
            }
        })
        .map_err(|error| Error::unavailable("the settler's thread can't be started").because(error))
}

struct Settler {
    setup: Arc<Setup>,
    report: Arc<Mutex<Report>>,
    /// How often in a row something could not be committed.
    failures: u32,
}

impl Settler {
    /// Commits as one group; gives what is to be tried again.
    fn settle_all(&self, batch: Vec<Ended>) -> Vec<Ended> {
        let tickets: Vec<_> = batch
            .into_iter()
            // Given back meanwhile, by a worker that was stopped at once.
            .filter(|ended| !ended.lease.is_settled())
            // One whose answer was not there in time is waited for again: sent anew, it would find itself done.
            .map(|mut ended| (ended.ticket.take().map_or_else(|| ended.lease.submit(ended.how.clone()), Ok), ended))
            .collect();
        let mut again = Vec::new();
        for (ticket, mut ended) in tickets {
            let (job, token) = (ended.lease.id(), ended.lease.token());
            let settled = match &ticket {
                Ok(ticket) => ended.lease.settled(ticket),
                Err(error) => Err(error.for_each_caller()),
            };
            let error = match settled {
                Ok(settled) => {
                    self.tell_settled(&ended, settled);
                    continue;
                }
                Err(error) => error,
            };
            match error.kind() {
                ErrorKind::LeaseLost => {
                    counted(&self.report).leases_lost += 1;
                    tell(&self.setup.listeners, &Event::LeaseLost { job, token });
                }
                // A result that can't be stored is the handler's failure.
                ErrorKind::Invalid if is_completion(&ended.how) => {
                    let retry_after = Some(self.setup.registry.backoff(ended.lease.task(), ended.lease.attempt()));
                    ended.how = Ending::Fail { message: error.full_message(), retry_after };
                    again.push(ended);
                }
                ErrorKind::Closed => ended.lease.abandon(),
                // The handler has done its work: what will pass is waited out.
                ErrorKind::Unavailable | ErrorKind::Unknown | ErrorKind::Conflict | ErrorKind::TimedOut => {
                    self.tell_trouble(&error);
                    ended.ticket = ticket.ok().filter(Ticket::may_be_answered);
                    again.push(ended);
                }
                // What won't is left to whoever recovers the job.
                _ => {
                    self.tell_trouble(&error);
                    ended.lease.abandon();
                }
            }
        }
        again
    }

    fn tell_trouble(&self, error: &Error) {
        tell(&self.setup.listeners, &Event::Trouble { doing: "settle a job", message: error.full_message() });
    }

    fn tell_settled(&self, ended: &Ended, settled: Settled) {
        let (job, token) = (ended.lease.id(), ended.lease.token());
        let event = match (&ended.how, settled.state) {
            (Ending::Complete { .. }, _) => {
                counted(&self.report).completed += 1;
                Event::Completed { job, token }
            }
            (Ending::Fail { message, .. }, state) => {
                counted(&self.report).failed += 1;
                Event::Failed { job, state, message: message.clone() }
            }
            (_, state) => {
                counted(&self.report).given_back += u64::from(state != State::Cancelled);
                Event::GivenBack { job, state }
            }
        };
        tell(&self.setup.listeners, &event);
    }
}

/// The report, for one addition.
pub(crate) fn counted(report: &Mutex<Report>) -> MutexGuard<'_, Report> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_completion(how: &Ending) -> bool {
    matches!(how, Ending::Complete { .. })
}
