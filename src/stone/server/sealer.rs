//! The thread that syncs the log and gives out the answers that stand on it, while the stone decides what comes next.
//!
//! The stone hands over what it has decided, in order. Whatever was handed over while a sync went on is covered by the
//! next one. Nothing is answered before the sync that covers it, nor before what was handed over earlier: a conflict or
//! a claim that found nothing may have been decided on rows that are not durable yet. After a sync that failed nothing
//! is answered here any more (L4): all that waits, and what still comes, goes back to the stone.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use super::line::{Line, Sent};
use crate::{
    clock::{deadline_after, monotonic},
    error::{Error, Result},
    stone::{
        log::Syncer,
        wire::{Refusal, Reply},
    },
    store::{
        change::Applied,
        desk::{Desk, Step},
        paths::Path,
        ticket::Replier,
    },
};

/// What part of a sync's time is waited for those who may ask again.
const SHARE_WAITED: u32 = 4;
/// It is never more than this, however slow the disk is just now.
const WAIT_MAX: Duration = Duration::from_millis(1);

/// What was decided as one group.
pub(super) struct Batch {
    /// In the order they were decided.
    pub(super) answers: Vec<Answer>,
    /// What makes its rows durable; nothing where it has none.
    pub(super) syncer: Option<Syncer>,
    /// How many changes it has committed.
    pub(super) committed: u64,
}

/// What became of a change, and who is told.
pub(super) struct Answer {
    pub(super) to: Addressee,
    pub(super) verdict: Result<Applied>,
}

/// Who waits for an answer.
pub(super) enum Addressee {
    Own(Replier),
    Client {
        connection: usize,
        line: Arc<Line>,
        number: u64,
    },
    /// Who has gone asks whoever commits next.
    Gone,
}

/// What could not be answered for a sync that failed.
pub(super) struct Unsealed {
    pub(super) error: Error,
    pub(super) batches: Vec<Batch>,
}

pub(super) struct Sealer {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

struct Shared {
    desk: Arc<Desk>,
    state: Mutex<State>,
    /// The thread sleeps here until something is handed over.
    handed: Condvar,
    /// The stone sleeps here until all is done.
    done: Condvar,
    has_news: AtomicBool,
    waker: Arc<mio::Waker>,
    is_asleep: Arc<AtomicBool>,
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct State {
    queue: Vec<Batch>,
    is_busy: bool,
    is_thread_asleep: bool,
    is_awaited: bool,
    is_over: bool,
    has_ended: bool,
    failure: Option<Error>,
    /// Connections that did not take all that was said.
    stuck: Vec<usize>,
}

impl Sealer {
    pub(super) fn start(desk: &Arc<Desk>, waker: Arc<mio::Waker>, is_asleep: Arc<AtomicBool>) -> Result<Self> {
        let shared = Arc::new(Shared {
            desk: desk.clone(),
            state: Mutex::default(),
            handed: Condvar::new(),
            done: Condvar::new(),
            has_news: AtomicBool::new(false),
            waker,
            is_asleep,
        });
        let at_work = shared.clone();
        let thread = thread::Builder::new()
            .name("casque-sealer".into())
            .spawn(move || at_work.run())
            .map_err(|error| Error::unavailable("the stone's sealer can't be started").because(error))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Whether all that was handed over is answered.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.shared.lock();
        state.queue.is_empty() && !state.is_busy
    }

    /// Hands a group over; its rows are in the log.
    pub(super) fn hand(&self, batch: Batch) {
        let mut state = self.shared.lock();
        state.queue.push(batch);
        if state.is_thread_asleep {
            self.shared.handed.notify_one();
        }
    }

    /// Waits until all that was handed over is answered, or a sync has failed.
    pub(super) fn wait(&self) {
        let mut state = self.shared.lock();
        while !state.has_ended && (state.is_busy || (!state.queue.is_empty() && state.failure.is_none())) {
            state.is_awaited = true;
            self.shared.handed.notify_one();
            state = self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_awaited = false;
    }

    pub(super) fn has_news(&self) -> bool {
        self.shared.has_news.load(Ordering::SeqCst)
    }

    /// # Errors
    /// Where its thread has ended before its time.
    pub(super) fn check(&self) -> Result<()> {
        if self.shared.lock().has_ended { Err(Error::unavailable("the stone's sealer has ended")) } else { Ok(()) }
    }

    /// The connections that did not take all that was said to them, since this was asked last.
    pub(super) fn stuck(&self) -> Vec<usize> {
        self.shared.has_news.store(false, Ordering::SeqCst);
        std::mem::take(&mut self.shared.lock().stuck)
    }

    /// What a sync that failed has left unanswered; from here on the sealer serves another log.
    pub(super) fn unsealed(&self) -> Option<Unsealed> {
        let mut state = self.shared.lock();
        let error = state.failure.take()?;
        Some(Unsealed { error, batches: std::mem::take(&mut state.queue) })
    }
}

impl Drop for Sealer {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.handed.notify_one();
        if let Some(thread) = self.thread.take() {
            // It panics only where we do wrong, and that was printed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        let _end = End(self);
        let mut state = self.lock();
        // How long a sync takes, and how many may ask before the next one: those it answered, and those who waited.
        let (mut took, mut expected) = (Duration::ZERO, 0);
        loop {
            if state.is_over {
                return;
            }
            // L4: what comes after a failed sync is the stone's to answer.
            if state.queue.is_empty() || state.failure.is_some() {
                state.is_thread_asleep = true;
                state = self.handed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.is_thread_asleep = false;
                continue;
            }
            state.is_busy = true;
            // Who was answered just now mostly asks again at once. The next sync is for them too, where it would make
            // them wait for much longer than it waits for them.
            state = self.gather(state, expected, (took / SHARE_WAITED).min(WAIT_MAX));
            expected = 0;
            let batches = std::mem::take(&mut state.queue);
            drop(state);
            // One sync for all: each was appended before it was handed over.
            let syncer = batches.iter().rev().find_map(|batch| batch.syncer.as_ref());
            let count: usize = batches.iter().map(|batch| batch.answers.len()).sum();
            let begun = monotonic();
            let outcome = syncer.map_or(Ok(()), Syncer::sync);
            took = (3 * took + monotonic().duration_since(begun)) / 4;
            let sealed = match outcome {
                Ok(()) => Ok(give_out(&self.desk, batches)),
                Err(error) => Err((error, batches)),
            };
            state = self.lock();
            state.is_busy = false;
            let has_news = match sealed {
                Ok(stuck) => {
                    expected = count + state.queue.iter().map(|batch| batch.answers.len()).sum::<usize>();
                    state.stuck.extend(&stuck);
                    !stuck.is_empty()
                }
                Err((error, batches)) => {
                    state.failure = Some(error);
                    state.queue.splice(0..0, batches);
                    true
                }
            };
            if state.is_awaited {
                self.done.notify_one();
            }
            if has_news {
                self.tell();
            }
        }
    }

    /// Waits a little for more to be handed over.
    fn gather<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        expected: usize,
        patience: Duration,
    ) -> MutexGuard<'a, State> {
        let until = deadline_after(patience);
        while !state.is_awaited && !state.is_over {
            let queued: usize = state.queue.iter().map(|batch| batch.answers.len()).sum();
            let left = until.saturating_duration_since(monotonic());
            if queued >= expected || left.is_zero() {
                break;
            }
            state.is_thread_asleep = true;
            (state, _) = self.handed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
            state.is_thread_asleep = false;
        }
        state
    }

    /// Has the stone look.
    fn tell(&self) {
        self.has_news.store(true, Ordering::SeqCst);
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            // It looks again within a second all the same.
            let _ = self.waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each field is set as a whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody waits for a thread that has panicked.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.done.notify_one();
        self.0.tell();
    }
}

/// Gives out answers that stand; the connections that did not take all.
pub(super) fn give_out(desk: &Desk, batches: Vec<Batch>) -> Vec<usize> {
    desk.step(Step::Written);
    let mut told: Vec<(usize, Arc<Line>)> = Vec::new();
    for Batch { answers, committed, .. } in batches {
        desk.paths.add(Path::OwnStone, committed);
        for Answer { to, verdict } in answers {
            match to {
                Addressee::Own(replier) => replier.answer(verdict),
                Addressee::Client { connection, line, number } => {
                    if line.reply(&Reply::Change { number, answer: verdict.map_err(Refusal::from) }) {
                        told.push((connection, line));
                    }
                }
                Addressee::Gone => {}
            }
        }
    }
    let is_stuck = |(connection, line): (usize, Arc<Line>)| (line.send() != Sent::All).then_some(connection);
    told.into_iter().filter_map(is_stuck).collect()
}
