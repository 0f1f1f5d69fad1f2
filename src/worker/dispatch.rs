//! The dispatcher: a worker's own thread, which claims as many jobs as there are free handlers and hands them out.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use crate::{
    clock::{monotonic, sleep},
    error::{ErrorKind, Result},
    queue::{
        Lease,
        id::{JobId, Token},
        info::stats,
        settle::Ending,
    },
    store::{
        Store,
        inner::{LOOK_ANYWAY, wake_poll},
        session::Session,
        site::Turn,
    },
    worker::{
        Drain, Report, Setup,
        claimer::{Batch, Claimer},
        event::{Event, tell},
        handler::{self, Ended},
        maintenance, pause_after, settler,
    },
};

/// How often a dispatcher that waits for a handler looks whether it is to stop.
const STOP_POLL: Duration = Duration::from_millis(20);

/// How often a worker that has claimed ahead looks whether some of that was cancelled.
const CANCEL_LOOK: Duration = Duration::from_millis(100);
/// The turn of the one busy worker that makes itself idle for suspect jobs.
const TURN: &str = "suspects";

struct Dispatch {
    store: Store,
    session: Arc<Session>,
    setup: Arc<Setup>,
    claimer: Claimer,
    assignments: Sender<Lease>,
    /// The same channel's other end, to take back what no handler has begun.
    unbegun: Receiver<Lease>,
    ended: Sender<Ended>,
    freed: Receiver<Lease>,
    /// What is with a handler, or waits for one.
    out: HashMap<(JobId, Token), Lease>,
    /// What handlers are done with, and the settler may not be.
    settling: Vec<Lease>,
    /// P4: what is out is suspect, and nothing runs beside it.
    alone: bool,
    /// P4: this worker claims no more until it is idle, for a suspect job that waits.
    turn: Option<Turn>,
    next_cancel_look: Instant,
    hijacks: u64,
    completed_in_transaction: u64,
}

pub(crate) fn run(store: &Store, setup: Setup) -> Result<Report> {
    let setup = Arc::new(setup);
    // Presence comes before the first claim (P1).
    let session = store.inner.session()?;
    let (assignments, unbegun) = unbounded();
    let (ended, settlements) = unbounded();
    let (free, freed) = unbounded();
    let counts = Arc::new(Mutex::new(Report::default()));
    let settler = settler::start(setup.clone(), settlements, counts.clone())?;
    let handlers = (0..setup.concurrency)
        .map(|number| handler::start(number, setup.clone(), unbegun.clone(), ended.clone(), free.clone()))
        .collect::<Result<Vec<_>>>()?;
    let maintenance = maintenance::start(store, &setup)?;
    let stand = store.inner.stand(Arc::new(|| ()))?;

    let mut dispatch = Dispatch {
        store: store.clone(),
        session,
        claimer: Claimer::new(store, &setup),
        setup: setup.clone(),
        assignments,
        unbegun,
        ended,
        freed,
        out: HashMap::new(),
        settling: Vec::new(),
        alone: false,
        turn: None,
        next_cancel_look: monotonic(),
        hijacks: 0,
        completed_in_transaction: 0,
    };
    let worked = dispatch.work();
    let gave_up = dispatch.wind_down();
    if !gave_up && let Err(error) = dispatch.claimer.count_conflicts() {
        tell(&setup.listeners, &Event::Trouble { doing: "count hijacks", message: error.full_message() });
    }
    drop(maintenance);
    drop(stand);
    let (hijacks, completed) = (dispatch.hijacks, dispatch.completed_in_transaction);
    drop(dispatch);
    // Where it gave up, handlers still run and hold the ends of the channels; what they bring is refused by their
    // tokens.
    if !gave_up {
        for thread in handlers.into_iter().chain([settler]) {
            // Handlers catch panics of tasks; one of a listener has been printed by the panic hook.
            let _ = thread.join();
        }
    }
    worked?;
    let mut report = settler::counted(&counts).clone();
    report.hijacks = hijacks;
    report.completed += completed;
    let rows = store.inner.rows()?;
    report.left = setup.queues.iter().map(|queue| stats(rows.as_ref(), queue)).collect::<Result<_>>()?;
    Ok(report)
}

impl Dispatch {
    fn work(&mut self) -> Result<()> {
        let mut failures = 0;
        let mut idle_since: Option<Instant> = None;
        while !self.setup.stop.is_stopping() {
            self.collect_freed();
            if let Err(error) = self.cancel_unbegun() {
                tell(&self.setup.listeners, &Event::Trouble { doing: "cancel a job", message: error.full_message() });
            }
            let free = (self.setup.concurrency + self.setup.prefetch).saturating_sub(self.out.len());
            self.settling.retain(|lease| !lease.is_settled());
            let busy = !self.out.is_empty() || !self.settling.is_empty();
            if free == 0 || ((self.alone || self.turn.is_some()) && busy) {
                self.wait_for_freed(STOP_POLL);
                continue;
            }
            // Read before the claim looks, so that a commit in between is not missed.
            let seen = self.store.inner.site.wakes();
            match self.claimer.claim(&self.setup, free, self.session.is_idle()) {
                Ok(batch) => {
                    failures = 0;
                    self.hijacks += batch.hijacks;
                    let suspects_wait = batch.suspects_wait;
                    if self.hand_out(batch) {
                        idle_since = None;
                        continue;
                    }
                    if !suspects_wait && self.is_drained(seen)? {
                        return Ok(());
                    }
                    self.wait_for_work(seen, *idle_since.get_or_insert_with(monotonic), suspects_wait);
                }
                Err(error) if matches!(error.kind(), ErrorKind::Closed | ErrorKind::Corrupt | ErrorKind::Invalid) => {
                    return Err(error);
                }
                Err(error) => {
                    tell(&self.setup.listeners, &Event::Trouble { doing: "claim", message: error.full_message() });
                    sleep(pause_after(failures));
                    failures += 1;
                }
            }
        }
        Ok(())
    }

    /// Hands out what was claimed; whether to claim again at once.
    fn hand_out(&mut self, batch: Batch) -> bool {
        self.alone = batch.alone;
        self.turn = None;
        // One busy worker makes itself idle for suspect jobs; all others go on, and so does one that can't become idle,
        // since others in its process have jobs in hand.
        let own = self.out.len() + self.settling.len();
        if batch.suspects_wait && !batch.alone && self.session.in_hand_count() <= own + batch.leases.len() {
            self.turn = self.store.inner.site.try_turn(TURN);
        }
        let again = batch.lost || !batch.leases.is_empty();
        for lease in batch.leases {
            self.out.insert((lease.id(), lease.token()), lease.clone());
            // The receiver is `unbegun`, so there is one.
            let _ = self.assignments.send(lease);
        }
        again
    }

    /// P7: cancelled jobs that wait here for a handler's thread are handed to the settler at once.
    fn cancel_unbegun(&mut self) -> Result<()> {
        let now = monotonic();
        if self.out.len() <= self.setup.concurrency || now < self.next_cancel_look {
            return Ok(());
        }
        self.next_cancel_look = now + CANCEL_LOOK;
        let rows = self.store.inner.rows()?;
        for lease in self.out.values().filter(|lease| lease.is_cancelling(rows.as_ref()) && lease.withdraw()) {
            let _ = self.ended.send(Ended { lease: lease.clone(), how: Ending::Cancel, ticket: None });
        }
        Ok(())
    }

    fn collect_freed(&mut self) {
        while let Ok(lease) = self.freed.try_recv() {
            self.free(&lease);
        }
    }

    fn free(&mut self, lease: &Lease) {
        if lease.is_completed_in_transaction() {
            self.completed_in_transaction += 1;
            tell(&self.setup.listeners, &Event::Completed { job: lease.id(), token: lease.token() });
        }
        self.out.remove(&(lease.id(), lease.token()));
        if !lease.is_settled() {
            self.settling.push(lease.clone());
        }
    }

    fn wait_for_freed(&mut self, patience: Duration) {
        if let Ok(lease) = self.freed.recv_timeout(patience) {
            self.free(&lease);
        }
    }

    /// W7: waits until somebody commits, or a handler is free; polls eight bytes of memory, never the disk.
    fn wait_for_work(&mut self, seen: u64, idle_since: Instant, suspects_wait: bool) {
        let poll = wake_poll(idle_since, monotonic());
        let begun = monotonic();
        // A writer that died after its commit and before it counted it must not keep the worker waiting.
        let is_quiet = || self.store.inner.site.wakes() == seen && monotonic().duration_since(begun) < LOOK_ANYWAY;
        // The last run may be settled, and so no commit to come, just before its session says that nothing runs.
        let session = self.session.clone();
        let may_take_suspect = || suspects_wait && session.is_idle();
        while is_quiet() && !self.setup.stop.is_stopping() && !may_take_suspect() {
            match self.freed.recv_timeout(poll) {
                Ok(lease) => return self.free(&lease),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Whether a draining worker may leave: it claimed nothing, it has nothing out, and nothing of its queues runs.
    fn is_drained(&self, seen: u64) -> Result<bool> {
        if self.setup.drain == Drain::Never || !self.out.is_empty() {
            return Ok(false);
        }
        let rows = self.store.inner.rows()?;
        for queue in &self.setup.queues {
            let stats = stats(rows.as_ref(), queue)?;
            if stats.running > 0 || (self.setup.drain == Drain::WhenNothingIsScheduled && stats.scheduled > 0) {
                return Ok(false);
            }
        }
        // Somebody committed since the claim looked: there may be something to claim again.
        Ok(self.store.inner.site.wakes() == seen)
    }

    /// Ends what is out: what has not begun goes back, what has is waited for. Whether it gave up waiting, since the
    /// worker is to stop at once.
    fn wind_down(&mut self) -> bool {
        while let Ok(lease) = self.unbegun.try_recv() {
            self.out.remove(&(lease.id(), lease.token()));
            if lease.withdraw() {
                let _ = self.ended.send(Ended { lease, how: Ending::Release, ticket: None });
            }
        }
        while !self.out.is_empty() {
            if self.setup.stop.is_at_once() {
                self.give_back_all();
                return true;
            }
            self.wait_for_freed(STOP_POLL);
        }
        false
    }

    /// S20: what is given up is not charged, whether it has begun or not.
    fn give_back_all(&mut self) {
        self.collect_freed();
        // P5: a job whose child process still works is not given back; whoever finds this session gone waits for the
        // child.
        let site = &self.store.inner.site;
        let is_busy = |lease: &Lease| site.is_child_busy(&lease.held_job());
        let (busy, idle): (Vec<Lease>, Vec<Lease>) = self.out.drain().map(|(_, lease)| lease).partition(is_busy);
        busy.iter().for_each(Lease::leave_to_child);
        let tickets: Vec<_> = idle.into_iter().map(|lease| (lease.give_up(), lease)).collect();
        for (ticket, lease) in tickets {
            match ticket.and_then(|ticket| lease.settled(&ticket)) {
                Ok(settled) => {
                    tell(&self.setup.listeners, &Event::GivenBack { job: settled.job, state: settled.state });
                }
                Err(error) if error.kind() == ErrorKind::LeaseLost => {}
                Err(error) => {
                    lease.abandon();
                    let message = error.full_message();
                    tell(&self.setup.listeners, &Event::Trouble { doing: "give a job back", message });
                }
            }
        }
    }
}
