//! A lease: a job held by this process, until it is settled. It needs no heartbeat from its holder: the session beats
//! by itself, whatever the handler's thread does (S4).

#[cfg(all(unix, feature = "isolation"))]
mod child;
mod claimed;
mod run;

pub(crate) use self::claimed::{ClaimAnswer, give_back_late, leases_of};

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use std::time::Duration;

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    clock::Timestamp,
    codec::Payload,
    engine::Rows,
    error::{Error, ErrorKind, Result},
    queue::{
        Awaited, HeldJob,
        id::{JobId, Token},
        outbox::Outbox,
        reach::Reach,
        record::JobRecord,
        settle::{Ending, Settle, Settled},
    },
    store::{
        Store,
        change::Intent,
        keys::ById,
        session::RunNote,
        ticket::Ticket,
        transaction::{self, Transaction},
        view::get_record,
    },
    task::{CalledOff, StopReason},
};

/// How long a worker that is stopped at once waits to give its jobs back; what it can't, the end of its session does.
const GIVE_UP_PATIENCE: Duration = Duration::from_secs(2);

/// A job that this process holds. Dropping it unsettled gives it back, uncharged.
#[derive(Clone)]
pub struct Lease {
    held: Arc<Held>,
}

struct Held {
    inner: Reach,
    task: String,
    record: JobRecord,
    token: Token,
    run: Mutex<Run>,
    is_settled: AtomicBool,
    is_completed_in_transaction: AtomicBool,
    outbox: Outbox,
    called_off: CalledOff,
}

#[derive(Default)]
struct Run {
    started_at: Option<Timestamp>,
    note: Option<RunNote>,
    /// It was settled, or handed in to be, before it began; so it never begins.
    is_withdrawn: bool,
    /// Its handler has ended, in time.
    is_ended: bool,
    /// Its time was over before its handler had ended.
    is_timed_out: bool,
    /// What is called when the run is called off.
    hook: Option<Arc<StopHook>>,
}

/// Ends what a handler has started elsewhere, when its run is called off.
pub(crate) type StopHook = dyn Fn(StopReason) + Send + Sync;

impl Lease {
    /// The job's id.
    #[must_use]
    pub fn id(&self) -> JobId {
        self.held.record.id
    }

    /// The task to run.
    #[must_use]
    pub fn task(&self) -> &str {
        &self.held.task
    }

    /// The queue that the job is of.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.held.record.queue
    }

    /// The fencing token: it grows from claim to claim of a job, and only the newest can settle it.
    #[must_use]
    pub fn token(&self) -> Token {
        self.held.token
    }

    /// The number of the run that this lease is for, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.held.record.attempt + 1
    }

    /// How many attempts may fail before the job is dead.
    #[must_use]
    pub fn max_attempts(&self) -> u32 {
        self.held.record.attempts_max
    }

    /// The pairs that the job's producer added.
    #[must_use]
    pub fn metadata(&self) -> &[(String, String)] {
        &self.held.record.metadata
    }

    /// When the job was enqueued.
    #[must_use]
    pub fn enqueued_at(&self) -> Timestamp {
        self.held.record.enqueued_at
    }

    /// The arguments, still encoded.
    #[must_use]
    pub fn payload(&self) -> &Payload {
        &self.held.record.args
    }

    /// The version of the task that the arguments were written for.
    #[must_use]
    pub fn args_version(&self) -> u32 {
        self.held.record.args_version
    }

    /// The arguments.
    ///
    /// # Errors
    /// `Invalid` where they are no `A`.
    pub fn args<A: DeserializeOwned>(&self) -> Result<A> {
        self.payload().decode()
    }

    /// The store that the job is in. A handler in a process of its own
    /// ([`Isolation::Process`](crate::Isolation::Process)) opens it there for itself, as any process may, when it calls
    /// this first.
    ///
    /// # Panics
    /// In such a process, where the store can't be opened; a store in memory can't.
    #[must_use]
    pub fn store(&self) -> Store {
        self.held.inner.store().unwrap_or_else(|error| panic!("{}", error.full_message()))
    }

    /// How long an attempt may take by what the job itself says. A worker sees to it; who claims by hand does so
    /// itself.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.held.record.extra.as_ref()?.timeout
    }

    /// How the jobs ended that this one has waited for; zeros where it waited for none.
    #[must_use]
    pub fn awaited(&self) -> Awaited {
        let waits = self.held.record.extra.as_ref().and_then(|extra| extra.waits.as_ref());
        waits.map(Awaited::of).unwrap_or_default()
    }

    pub(crate) fn outbox(&self) -> &Outbox {
        &self.held.outbox
    }

    /// Whether a run of the job may have taken its process down, so that nothing should run beside it.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.held.record.suspect
    }

    /// Notes that the work begins. From here on the attempt is charged, also if this process dies, unless the lease is
    /// released or dropped; before, it is not.
    ///
    /// # Errors
    /// `Unavailable` when the session's file can't be written.
    pub fn start(&self) -> Result<()> {
        self.start_unless_withdrawn().map(|_| ())
    }

    /// Asks whether the lease still stands.
    ///
    /// # Errors
    /// `LeaseLost` where it does not: stop, the result would be discarded.
    pub fn check(&self) -> Result<()> {
        let intent = Intent::Extend { job: self.id(), token: self.token() };
        self.watch_out(self.held.inner.perform(intent)).map(|_| ())
    }

    /// Stores how far the work is, from 0 to 1, with a message for whoever watches.
    ///
    /// # Errors
    /// `LeaseLost` where the lease is; `Invalid` for a fraction out of range or a message that is too long.
    pub fn progress(&self, fraction: f32, message: &str) -> Result<()> {
        let intent = Intent::Progress { job: self.id(), token: self.token(), fraction, message: message.to_owned() };
        self.watch_out(self.held.inner.perform(intent)).map(|_| ())
    }

    /// Adds a line to the job's log, which [`Store::log`] reads; it is there for as long as the job is.
    ///
    /// # Errors
    /// `LeaseLost` where the lease is; `Invalid` for a line of more than 4 KiB.
    pub fn log(&self, text: impl Into<String>) -> Result<()> {
        self.log_all(vec![text.into()])
    }

    /// The same with several lines, in one commit.
    pub(crate) fn log_all(&self, lines: Vec<String>) -> Result<()> {
        let intent = Intent::Log { job: self.id(), token: self.token(), lines };
        self.watch_out(self.held.inner.perform(intent)).map(|_| ())
    }

    /// The work is done.
    ///
    /// # Errors
    /// `LeaseLost` where the lease is.
    pub fn complete(&self) -> Result<()> {
        self.settle(Ending::Complete { result: None }).map(|_| ())
    }

    /// The work is done, and this came of it.
    ///
    /// # Errors
    /// `LeaseLost` where the lease is; `Invalid` for a result that can't be encoded or is too large.
    pub fn complete_with<T: Serialize>(&self, result: &T) -> Result<()> {
        self.settle(Ending::Complete { result: result_payload(result)? }).map(|_| ())
    }

    /// Runs a transaction that also completes the job: its effects on the root and the completion are one commit,
    /// fenced by the lease's token, so that they happen exactly once; so are the jobs that it enqueues, and those of
    /// [`Lease::enqueue`]. What the closure returns becomes the job's result. On a conflict the closure runs again.
    ///
    /// What may happen twice: all else that the handler does, before the transaction and in its closure, since a run
    /// whose process dies before the commit is followed by another. What comes after the commit happens at most once.
    ///
    /// ```
    /// # use casque::{JobRequest, Registry, Store, Worker};
    /// # let store = Store::in_memory()?;
    /// # let id = store.queue("default").enqueue(JobRequest::new("pay", &30u64))?;
    /// let mut tasks = Registry::new();
    /// tasks.register("pay", |job, amount: u64| {
    ///     let left = job.complete_in(|tx| {
    ///         let left = tx.get::<u64>("balance")?.unwrap_or(100).saturating_sub(amount);
    ///         tx.put("balance", &left)?;
    ///         tx.enqueue("mail", JobRequest::new("receipt", &amount))?;
    ///         Ok(left)
    ///     })?;
    ///     Ok(left)
    /// })?;
    /// # Worker::new(&store).tasks(tasks).drain(true).run()?;
    /// # assert_eq!(store.get::<u64>("balance")?, Some(70));
    /// # assert_eq!(store.wait::<u64>(id, std::time::Duration::from_secs(5))?, 70);
    /// # assert_eq!(store.queue("mail").stats()?.ready, 1);
    /// # Ok::<(), casque::Error>(())
    /// ```
    ///
    /// # Errors
    /// `LeaseLost` where the lease is, and then nothing was changed; else as [`Store::transaction`].
    pub fn complete_in<T: Serialize>(&self, mut body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        let (value, _) = transaction::run(&self.held.inner.store()?, Some(self.id()), |tx| {
            let value = body(tx)?;
            tx.complete_with(self, &value)?;
            Ok(value)
        })?;
        Ok(value)
    }

    /// Runs a transaction on the job's store; conflicts name the job as the one that wrote.
    ///
    /// # Errors
    /// As [`Store::transaction`].
    pub fn transaction<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        transaction::run(&self.held.inner.store()?, Some(self.id()), body).map(|(value, _)| value)
    }

    /// The attempt failed: again after `retry_after`, or never for `None`.
    ///
    /// # Errors
    /// `LeaseLost` where the lease is.
    pub fn fail(&self, message: &str, retry_after: Option<Duration>) -> Result<()> {
        self.settle(Ending::Fail { message: message.to_owned(), retry_after }).map(|_| ())
    }

    /// Later again, without an attempt charged.
    ///
    /// # Errors
    /// `LeaseLost` where the lease is.
    pub fn snooze(&self, delay: Duration) -> Result<()> {
        self.settle(Ending::Snooze { delay }).map(|_| ())
    }

    /// Back to the front of the queue at once, without an attempt charged.
    ///
    /// # Errors
    /// `LeaseLost` where the lease is.
    pub fn release(&self) -> Result<()> {
        self.settle(Ending::Release).map(|_| ())
    }

    pub(crate) fn settle(&self, how: Ending) -> Result<Settled> {
        if self.held.inner.here().is_none() {
            let outcome = self.watch_out(self.held.inner.perform(Intent::Settle(self.ending(how))));
            if outcome.is_ok() {
                self.note_settled();
            }
            return outcome.and_then(|outcome| outcome.settled());
        }
        let ticket = self.submit(how)?;
        self.settled(&ticket)
    }

    /// Hands the settlement in, so that many can go into one group.
    pub(crate) fn submit(&self, how: Ending) -> Result<Ticket> {
        self.held.inner.submit(Intent::Settle(self.ending(how)), self.id(), None)
    }

    /// Waits for a settlement that was handed in.
    pub(crate) fn settled(&self, ticket: &Ticket) -> Result<Settled> {
        let Some((inner, _)) = self.held.inner.here() else { return Err(Error::closed()) };
        let answer = self.watch_out(ticket.wait(&inner.site));
        if answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::LeaseLost) || answer.is_ok() {
            self.note_settled();
        }
        answer?.outcomes.first().ok_or_else(|| Error::unanswered("a settlement"))?.settled()
    }

    pub(crate) fn ending(&self, how: Ending) -> Settle {
        let completes = matches!(how, Ending::Complete { .. });
        let enqueues = if completes { self.held.outbox.to_vec() } else { Vec::new() };
        Settle { job: self.id(), token: self.token(), started_at: self.run().started_at, how, enqueues }
    }

    /// Whoever learns that the lease was lost tells the handler.
    fn watch_out<T>(&self, answer: Result<T>) -> Result<T> {
        if answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::LeaseLost) {
            self.call_off(StopReason::LeaseLost);
        }
        answer
    }

    /// P7: whether an operator has cancelled the job since it was claimed.
    pub(crate) fn is_cancelling(&self, rows: &dyn Rows) -> bool {
        let held = get_record::<JobRecord>(rows, &ById::Held.key(self.id()));
        held.is_ok_and(|held| held.is_some_and(|held| held.cancelling))
    }

    /// Tells whoever works on the job that it was cancelled.
    pub(crate) fn note_cancelled(&self) {
        self.call_off(StopReason::Cancelled);
    }

    pub(crate) fn task_number(&self) -> u32 {
        self.held.record.task
    }

    /// Keeps the work from beginning, for who is about to settle the lease; not where it has begun, or somebody else is
    /// to settle it. S22: a job is cancelled or running, never both.
    pub(crate) fn withdraw(&self) -> bool {
        let mut run = self.run();
        let may_begin = run.started_at.is_none() && !run.is_withdrawn;
        run.is_withdrawn |= may_begin;
        may_begin
    }

    /// As [`Lease::start`]; whether the work may begin.
    pub(crate) fn start_unless_withdrawn(&self) -> Result<bool> {
        let mut run = self.run();
        // Where its time was over before its thread came to it, it has failed by that.
        if run.is_withdrawn || run.is_timed_out {
            return Ok(false);
        }
        if run.started_at.is_none() {
            let at = self.held.inner.now();
            if let Some((_, session)) = self.held.inner.here() {
                run.note = session.note_started(self.id(), self.token(), at)?;
            }
            run.started_at = Some(at);
        }
        Ok(true)
    }

    /// Whether the job was settled, or is known to be lost.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.held.is_settled.load(Ordering::Acquire)
    }

    pub(crate) fn is_completed_in_transaction(&self) -> bool {
        self.held.is_completed_in_transaction.load(Ordering::Acquire)
    }

    /// Hands in that the job goes back uncharged, though its handler may still run.
    pub(crate) fn give_up(&self) -> Result<Ticket> {
        let settle = self.held.giving_back(self.run().started_at);
        self.held.inner.submit(Intent::Settle(settle), self.id(), Some(GIVE_UP_PATIENCE))
    }

    /// Leaves the lease to whoever finds that nobody has it in hand.
    pub(crate) fn abandon(&self) {
        self.held.is_settled.store(true, Ordering::Release);
        if let Some((inner, session)) = self.held.inner.here() {
            session.let_go(self.id(), self.token());
            inner.doubt_leases();
        }
    }

    /// Notes that a transaction has completed the job.
    pub(crate) fn note_completed_in_transaction(&self) {
        self.held.is_completed_in_transaction.store(true, Ordering::Release);
        self.note_settled();
    }

    /// P5: leaves the job to its child process. It is not charged: once the child has ended, it goes back as not begun.
    pub(crate) fn leave_to_child(&self) {
        self.abandon();
        if self.held.record.is_at_most_once() {
            // Its note stays: whoever takes the job back knows that it had begun.
            drop(self.run().note.take());
            return;
        }
        if let Some(note) = self.run().note.take()
            && let Err(error) = note.clear()
            && let Some((inner, _)) = self.held.inner.here()
        {
            inner.site.note_trouble(&error);
        }
    }

    /// The job, and who holds it; nothing in a child process, whose parent does.
    pub(crate) fn held_job(&self) -> Option<HeldJob> {
        let (_, session) = self.held.inner.here()?;
        Some(HeldJob { job: self.id(), session: session.id, token: self.token() })
    }

    pub(crate) fn note_settled(&self) {
        self.held.is_settled.store(true, Ordering::Release);
        if let Some((_, session)) = self.held.inner.here() {
            session.let_go(self.id(), self.token());
        }
        if let Some(note) = self.run().note.take() {
            note.leave();
        }
    }

    fn run(&self) -> std::sync::MutexGuard<'_, Run> {
        self.held.run.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// A release that charges nothing; but a job that runs at most once, and has begun, says so.
    fn giving_back(&self, started_at: Option<Timestamp>) -> Settle {
        let started_at = started_at.filter(|_| self.record.is_at_most_once());
        let (job, token) = (self.record.id, self.token);
        Settle { job, token, started_at, how: Ending::Release, enqueues: Vec::new() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // In a child process it is the parent that holds the lease.
        let Some((inner, session)) = self.inner.here() else { return };
        let is_unsettled = !self.is_settled.load(Ordering::Acquire);
        if is_unsettled {
            let started_at = self.run.get_mut().unwrap_or_else(PoisonError::into_inner).started_at;
            let settle = self.giving_back(started_at);
            let _ = self.inner.submit(Intent::Settle(settle), self.record.id, None);
        }
        session.let_go(self.record.id, self.token);
        if is_unsettled {
            // Nobody waits for the answer. Where it fails, what this process holds and nobody has in hand is found by
            // its maintenance, or at the end of the session.
            inner.doubt_leases();
        }
        // Whoever finds that a job which runs at most once was left unsettled must know that it had begun.
        if let Some(note) = self.run.get_mut().unwrap_or_else(PoisonError::into_inner).note.take()
            && !self.record.is_at_most_once()
        {
            let _ = note.clear();
        }
    }
}

/// A result as JSON may take so many times what it takes as bincode; beyond, it is bytes, and stays bincode.
const JSON_TIMES_MAX: usize = 3;

/// Results are JSON, so that anybody can read them (a float that is not finite is null there); bincode where a type
/// can't be JSON, or is mostly bytes; none for `()`.
pub(crate) fn result_payload<T: Serialize>(result: &T) -> Result<Option<Payload>> {
    let packed = Payload::bincode(result);
    let bytes = packed.as_ref().map_or(usize::MAX, |packed| packed.as_bytes().len());
    if bytes == 0 {
        return Ok(None);
    }
    let is_small = |json: &Payload| json.as_bytes().len() / JSON_TIMES_MAX <= bytes.saturating_add(256);
    match Payload::json(result) {
        Ok(json) if is_small(&json) => Ok(Some(json)),
        _ => packed.map(Some),
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lease(job {}, task {:?}, token {})", self.id(), self.task(), self.token())
    }
}
