//! One answer, from who gives it to who waits for it. Where it comes over a connection, who waits reads that connection
//! itself, for all who wait on it: no thread stands between the socket and the caller.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    time::Instant,
};

use crate::clock::monotonic;

/// What brings answers, if somebody sees to it.
pub(crate) trait Courier: Send + Sync {
    /// Whether nobody sees to it just now.
    fn is_free(&self) -> bool;

    /// Brings answers until `is_done` says so or the time has come; returns at once where somebody else does already.
    fn bring(&self, is_done: &dyn Fn() -> bool, deadline: Instant);

    /// Has one of those who wait see to it, for somebody who might have and goes.
    fn hand_on(&self);
}

/// The side that gives the answer. Dropped without one, it tells the other side that none will come.
pub(crate) struct Promise<T> {
    shared: Arc<Shared<T>>,
}

/// The side that waits.
pub(crate) struct Awaited<T> {
    shared: Arc<Shared<T>>,
}

/// Has whoever waits look at what it waits for besides.
#[derive(Clone)]
pub(crate) struct Poker {
    shared: Weak<dyn Poke>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    /// Not yet.
    Timeout,
    /// None will come.
    Gone,
    /// Who waits was called away.
    CalledAway,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    answer: Option<T>,
    is_gone: bool,
    courier: Option<Weak<dyn Courier>>,
    /// How many sleep: to wake nobody costs a call of the system too, and mostly nobody sleeps here.
    sleepers: usize,
}

trait Poke: Send + Sync {
    fn poke(&self);
}

impl<T: Send> Poke for Shared<T> {
    fn poke(&self) {
        self.wake(&self.lock());
    }
}

/// The two sides of an answer.
pub(crate) fn promise<T>() -> (Promise<T>, Awaited<T>) {
    let state = Mutex::new(State { answer: None, is_gone: false, courier: None, sleepers: 0 });
    let shared = Arc::new(Shared { state, changed: Condvar::new() });
    (Promise { shared: shared.clone() }, Awaited { shared })
}

impl<T> Promise<T> {
    /// Gives the answer; whoever has stopped waiting was told so by its own time limit.
    pub(crate) fn keep(&self, answer: T) {
        let mut state = self.shared.lock();
        state.answer = Some(answer);
        self.shared.wake(&state);
    }

    /// Says what will bring the answer.
    pub(crate) fn comes_by(&self, courier: Weak<dyn Courier>) {
        let mut state = self.shared.lock();
        state.courier = Some(courier);
        self.shared.wake(&state);
    }

    /// Has whoever waits look whether the courier is free; whether somebody does wait.
    pub(crate) fn poke(&self) -> bool {
        let state = self.shared.lock();
        self.shared.wake(&state);
        state.sleepers > 0
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_gone = true;
        self.shared.wake(&state);
    }
}

impl<T: Send + 'static> Awaited<T> {
    /// Waits for the answer until then.
    pub(crate) fn wait_until(&self, deadline: Instant) -> Result<T, Missed> {
        self.wait_or(deadline, &|| false)
    }

    /// Waits for the answer until then, or until something else says that the caller is called away; that is looked at
    /// when this is poked, and now and then.
    pub(crate) fn wait_or(&self, deadline: Instant, is_called_away: &dyn Fn() -> bool) -> Result<T, Missed> {
        let answer = self.wait_or_bring(deadline, is_called_away);
        if answer.is_err() {
            // It may just have been this one that was to read for the others.
            let courier = self.shared.lock().courier.as_ref().and_then(Weak::upgrade);
            courier.iter().filter(|courier| courier.is_free()).for_each(|courier| courier.hand_on());
        }
        answer
    }

    fn wait_or_bring(&self, deadline: Instant, is_called_away: &dyn Fn() -> bool) -> Result<T, Missed> {
        loop {
            let courier = {
                let mut state = self.shared.lock();
                loop {
                    if let Some(answer) = state.answer.take() {
                        return Ok(answer);
                    }
                    let now = monotonic();
                    if state.is_gone {
                        return Err(Missed::Gone);
                    } else if is_called_away() {
                        return Err(Missed::CalledAway);
                    } else if now >= deadline {
                        return Err(Missed::Timeout);
                    }
                    if let Some(courier) = state.courier.as_ref().and_then(Weak::upgrade).filter(|it| it.is_free()) {
                        break courier;
                    }
                    state.sleepers += 1;
                    let slept = self.shared.changed.wait_timeout(state, deadline - now);
                    (state, _) = slept.unwrap_or_else(PoisonError::into_inner);
                    state.sleepers -= 1;
                }
            };
            let is_done = || {
                let state = self.shared.lock();
                state.answer.is_some() || state.is_gone || is_called_away()
            };
            courier.bring(&is_done, deadline);
        }
    }

    /// What has this looked at again from another thread.
    pub(crate) fn poker(&self) -> Poker {
        let shared: Arc<dyn Poke> = self.shared.clone();
        Poker { shared: Arc::downgrade(&shared) }
    }
}

impl Poker {
    pub(crate) fn poke(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.poke();
        }
    }
}

impl<T> Shared<T> {
    /// Wakes who sleeps here, after something has changed under the lock.
    fn wake(&self, state: &State<T>) {
        if state.sleepers > 0 {
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Each field is set as a whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    fn soon() -> Instant {
        monotonic() + Duration::from_mins(1)
    }

    #[test]
    fn answer_reaches_who_waits_and_a_dropped_promise_does_too() {
        let (promise, awaited) = promise();
        let waiting = thread::spawn(move || awaited.wait_until(soon()));
        promise.keep(7);
        assert_eq!(waiting.join().unwrap(), Ok(7));
        let (promise, awaited) = super::promise::<i32>();
        assert_eq!(awaited.wait_until(monotonic()), Err(Missed::Timeout));
        drop(promise);
        assert_eq!(awaited.wait_until(soon()), Err(Missed::Gone));
    }

    #[test]
    fn who_is_called_away_hears_it_when_poked() {
        let (promise, awaited) = promise::<()>();
        let poker = awaited.poker();
        let called = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let is_called = called.clone();
        let waiting =
            thread::spawn(move || awaited.wait_or(soon(), &|| is_called.load(std::sync::atomic::Ordering::SeqCst)));
        called.store(true, std::sync::atomic::Ordering::SeqCst);
        poker.poke();
        assert_eq!(waiting.join().unwrap(), Err(Missed::CalledAway));
        drop(promise);
    }

    /// Brings answers that its own promises lack, one at a time, to whoever comes.
    struct Line {
        lead: Mutex<()>,
        promises: Mutex<Vec<Promise<usize>>>,
    }

    impl Courier for Line {
        fn is_free(&self) -> bool {
            self.lead.try_lock().is_ok()
        }

        fn bring(&self, is_done: &dyn Fn() -> bool, _deadline: Instant) {
            let Ok(lead) = self.lead.try_lock() else { return };
            while !is_done() {
                let mut promises = self.promises.lock().unwrap();
                let Some(promise) = promises.pop() else { break };
                promise.keep(promises.len());
            }
            drop(lead);
            self.hand_on();
        }

        fn hand_on(&self) {
            let _ = self.promises.lock().unwrap().iter().any(Promise::poke);
        }
    }

    #[test]
    fn who_waits_brings_the_answers_of_others_and_leaves_the_rest_to_them() {
        let line = Arc::new(Line { lead: Mutex::default(), promises: Mutex::default() });
        let mut waiting = Vec::new();
        let mut promises = Vec::new();
        for _ in 0..8 {
            let (promise, awaited) = promise();
            promise.comes_by(Arc::downgrade(&(line.clone() as Arc<dyn Courier>)));
            promises.push(promise);
            waiting.push(awaited);
        }
        *line.promises.lock().unwrap() = promises;
        let threads: Vec<_> =
            waiting.into_iter().map(|awaited| thread::spawn(move || awaited.wait_until(soon()))).collect();
        let answers: Vec<usize> = threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect();
        assert_eq!(answers, (0..8).collect::<Vec<_>>());
    }
}
