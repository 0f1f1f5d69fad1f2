//! The stone at work: one thread that reads what clients and the threads of its own process ask, decides it as one
//! group, makes that durable with one sync, and answers. Windows go into the store's file on another thread meanwhile.

mod answers;
mod callers;
mod clients;
mod connections;
mod decide;
mod durability;
mod flusher;
mod line;
mod sealer;

#[cfg(test)]
mod failure_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod loan_tests;
#[cfg(test)]
mod slow_tests;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, unbounded};

use self::{
    callers::Callers,
    clients::Clients,
    connections::{Connections, Heard},
    decide::Group,
    flusher::Flusher,
    sealer::{Answer, Batch, Sealer},
};
use crate::{
    clock::{monotonic, sleep},
    engine::StorageHook,
    error::{Error, Result},
    local::WriterGuard,
    queue::id::SessionId,
    stone::{
        Commits,
        candidate::News,
        entry::{Closer, Entry, Origin},
        log::{Half, Log},
        parked::{Lot, Unserved, is_to_wait, locks_in, queues_with_jobs},
        seat::{Errand, Seat, Serving, Vacant},
        socket,
        window::Window,
    },
    store::{
        change::ClientId,
        committer::{GROUP_CHANGES_MAX, Inbox, Section, Step, Work},
        desk::Desk,
        group::{Decided, Proposal, decide},
        keys,
        object::{FormatRecord, StoreRecord},
        recovery::recover_log,
        session::remove_if_idle,
        site::Site,
        ticket::Pending,
        verdict::Asked,
        view::get_record,
    },
};

/// L3: how long a window goes on.
const WINDOW: Duration = Duration::from_millis(20);
/// After how many bytes of payloads a group is closed; its rows are to fit into the log well.
const LOGGED_GROUP_BYTES_MAX: usize = 2 << 20;
/// A window ends early when its rows take so many bytes.
const WINDOW_BYTES_MAX: usize = 4 << 20;
/// L5: how often a window that could not be written is tried again.
const RETRY_EVERY: Duration = Duration::from_millis(200);
/// How long a lent lock is waited for; then redb's own locks keep the borrower out.
const LOAN_MAX: Duration = Duration::from_secs(10);
/// How often it looks whether a window that is full may end.
const SLOW_POLL: Duration = Duration::from_millis(10);
/// How long the thread sleeps when nothing is to be expected.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// What a stone needs of its process.
pub(crate) struct Ground<'a> {
    pub(crate) site: &'a Arc<Site>,
    pub(crate) desk: &'a Arc<Desk>,
    pub(crate) seat: &'a Seat,
    pub(crate) inbox: &'a Inbox,
    pub(crate) commits: Commits,
    /// Is asked before each operation on the log.
    pub(crate) hook: Option<Arc<dyn StorageHook>>,
    pub(crate) on_news: &'a dyn Fn(News),
}

/// Serves until it is told to leave, or can't go on. Under the writer's lock, which is given back at the end.
///
/// # Errors
/// What keeps this process from being the stone; what was answered is in the store's file or in the log.
pub(crate) fn serve(ground: &Ground<'_>, guard: WriterGuard<'_>) -> Result<()> {
    let _vacant = Vacant::at_the_end(ground.seat);
    let mut stone = Stone::begin(ground, &guard)?;
    let served = stone.run();
    let left = stone.leave();
    drop(guard);
    served.and(left)
}

struct Stone<'a> {
    ground: &'a Ground<'a>,
    guard: &'a WriterGuard<'a>,
    errands: Receiver<Errand>,
    /// Errands that came while the window was full.
    held_back: VecDeque<Errand>,
    connections: Connections,
    is_asleep: Arc<AtomicBool>,
    socket: std::path::PathBuf,
    window: Window,
    log: Option<Log>,
    /// Whether the store may name a log as in use.
    is_log_named: bool,
    /// Some group is in no log, and not in the store's file for sure.
    is_behind_log: bool,
    /// The half of the log that the current window is in.
    half: Half,
    format: FormatRecord,
    flusher: Flusher,
    sealer: Sealer,
    /// Groups that are in no log, or in one that has failed: answered when the store's file has them.
    unsealed: Vec<Batch>,
    callers: Callers,
    /// Why the last window could not be written, and when to try again.
    trouble: Option<(Error, Instant)>,
    closers: Vec<(StoreRecord, Closer)>,
    /// When the last window ended.
    ended: Instant,
    parked: Lot,
    unserved: Unserved,
    clients: Clients,
    is_leaving: bool,
}

impl<'a> Stone<'a> {
    fn begin(ground: &'a Ground<'a>, guard: &'a WriterGuard<'a>) -> Result<Self> {
        let site = ground.site;
        let files = site.files().ok_or_else(|| Error::invalid("a store in memory needs no stone"))?;
        site.verify_store()?;
        // A handle that was open when the last writer died may not show the commit that it died in, and so neither
        // which log is in use.
        site.engine.recover()?;
        recover_log(site)?;
        let window = Window::open(site)?;
        let format: FormatRecord = get_record(&window, keys::FORMAT)?
            .ok_or_else(|| Error::corrupt("the store does not say which store it is; run `casque check`"))?;
        let clients = Clients::read(&window)?;
        let (sender, errands) = unbounded();
        let socket = socket::path(files)?;
        let (connections, waker) = Connections::open(socket::bind(&socket, &files.store)?, format.store)?;
        let is_asleep = Arc::new(AtomicBool::new(false));
        let flusher = Flusher::start(site, ground.desk, waker.clone(), is_asleep.clone())?;
        let sealer = Sealer::start(ground.desk, waker.clone(), is_asleep.clone())?;
        let mut stone = Self {
            ground,
            guard,
            errands,
            held_back: VecDeque::new(),
            connections,
            is_asleep: is_asleep.clone(),
            socket,
            window,
            log: None,
            is_log_named: false,
            is_behind_log: false,
            half: Half::First,
            format,
            flusher,
            sealer,
            unsealed: Vec::new(),
            callers: Callers::default(),
            trouble: None,
            closers: Vec::new(),
            ended: monotonic(),
            parked: Lot::default(),
            unserved: Unserved::default(),
            clients,
            is_leaving: false,
        };
        if ground.commits == Commits::Logged
            && let Err(error) = stone.begin_log()
        {
            // L7: it is slower without one, and loses nothing.
            site.note_trouble(&error);
            stone.give_up_log()?;
        }
        ground.seat.take(Serving { errands: sender, waker, is_asleep });
        // Until now who held jobs here looked by itself.
        (ground.on_news)(News::HoldersCalled);
        Ok(stone)
    }

    fn run(&mut self) -> Result<()> {
        loop {
            self.listen()?;
            self.heed_sealer()?;
            if self.is_full_too_early() {
                // Whoever has something to say waits, as for a slow disk; not who has this stone leave.
                self.hold_back();
                if self.is_leaving {
                    return Ok(());
                }
                sleep(SLOW_POLL);
                self.tend()?;
                self.connections.flush();
                continue;
            }
            let (group, requests) = self.gather();
            // Who showed no life when there was something for it may have done so now.
            let has_life = self.connections.take_life();
            let may_serve = (std::mem::take(&mut self.unserved.is_due) || has_life) && !self.unserved.queues.is_empty();
            let mut done = if !group.is_empty() || may_serve { self.commit(group) } else { Ok(()) };
            let mut requests = requests.into_iter();
            while done.is_ok()
                && let Some(request) = requests.next()
            {
                done = self.attend(request);
            }
            if done.is_err() {
                requests.for_each(|request| self.hand_on_work(request));
                return done;
            }
            self.tend()?;
            self.connections.flush();
            if self.is_leaving {
                return Ok(());
            }
        }
    }

    /// Sleeps until there is something to do, and takes note of who has something to say.
    fn listen(&mut self) -> Result<()> {
        if let Some(until) = self.callers.awake_until() {
            while !self.connections.has_unread() && self.errands.is_empty() && monotonic() < until {
                self.connections.poll(Duration::ZERO)?;
                thread::yield_now();
            }
        }
        let now = monotonic();
        let next = [
            self.window.begun.filter(|_| !self.window.is_flushing()).map(|begun| self.may_end_at(begun + WINDOW)),
            self.parked.next_end(),
            self.trouble.as_ref().map(|(_, at)| *at),
        ];
        let sleep = next.into_iter().flatten().map(|at| at.saturating_duration_since(now)).min();
        let mut sleep = sleep.unwrap_or(SLEEP_MAX).min(SLEEP_MAX);
        if self.connections.has_unread() || self.unserved.is_due {
            sleep = Duration::ZERO;
        }
        self.is_asleep.store(true, Ordering::SeqCst);
        if !self.errands.is_empty() || !self.held_back.is_empty() || self.flusher.has_news() || self.sealer.has_news() {
            sleep = Duration::ZERO;
        }
        let heard = self.connections.poll(sleep);
        self.is_asleep.store(false, Ordering::SeqCst);
        heard
    }

    /// Puts off what this process asks, but for its leaving.
    fn hold_back(&mut self) {
        while let Ok(errand) = self.errands.try_recv() {
            match errand {
                Errand::Leave => self.is_leaving = true,
                other => self.held_back.push_back(other),
            }
        }
    }

    /// What came in, up to a group; what is no change is attended to after it.
    fn gather(&mut self) -> (Vec<Entry>, Vec<Request>) {
        let mut group = Vec::new();
        let mut others = Vec::new();
        let mut bytes = 0;
        while group.len() < GROUP_CHANGES_MAX && bytes < LOGGED_GROUP_BYTES_MAX {
            let Some(errand) = self.held_back.pop_front().or_else(|| self.errands.try_recv().ok()) else { break };
            match errand {
                Errand::Change(pending) => {
                    if pending.replier.seal() {
                        bytes += pending.change.payload_bytes();
                        group.push(Entry {
                            asked: pending.replier.resent.then(Asked::again),
                            origin: Origin::Own(pending.replier),
                            change: pending.change,
                            wait_until: pending.wait_until,
                        });
                    }
                }
                Errand::CloseWindow(answer) => others.push(Request::Close(Closer::Own(answer))),
                Errand::Section { purpose, work } => others.push(Request::Section { purpose, work }),
                Errand::CallOff { number } => others.push(Request::CallOff { from: None, number }),
                Errand::Leave => self.is_leaving = true,
            }
        }
        while group.len() < GROUP_CHANGES_MAX && bytes < LOGGED_GROUP_BYTES_MAX {
            let Some(heard) = self.connections.next_request() else { break };
            match heard {
                Heard::Change(entry) => {
                    bytes += entry.change.payload_bytes();
                    group.push(*entry);
                }
                Heard::Close { connection, ask } => others.push(Request::Close(Closer::Client { connection, ask })),
                Heard::Borrow { connection, ask } => others.push(Request::Close(Closer::Borrower { connection, ask })),
                Heard::CallOff { connection, number } => {
                    others.push(Request::CallOff { from: Some(connection), number });
                }
                Heard::Bury { session } => others.push(Request::Bury(session)),
                Heard::Left { client } => others.push(Request::Forget(client)),
                Heard::Gone { connection } => others.push(Request::Gone(connection)),
            }
        }
        (group, others)
    }

    fn attend(&mut self, request: Request) -> Result<()> {
        match request {
            Request::Close(closer) => {
                if let Some((error, _)) = &self.trouble {
                    let error = error.for_each_caller();
                    self.tell_closer(closer, Err(error));
                } else if self.window.has_rows() || self.window.is_flushing() {
                    self.closers.push((self.window.store, closer));
                } else {
                    return self.closed(closer);
                }
                self.end_window_in_time();
                Ok(())
            }
            Request::Section { work, .. } => {
                if let Err(error) = self.close_now() {
                    work(Err(error));
                    return Ok(());
                }
                self.window.let_go_of_file();
                work(Ok(self.ground.site));
                self.reopen()
            }
            Request::CallOff { from, number } => {
                self.call_off(from, number);
                Ok(())
            }
            Request::Forget(client) => {
                self.clients.forget(client, &mut self.window);
                Ok(())
            }
            Request::Gone(connection) => {
                self.parked.take(|parked| parked.origin.is_of(connection));
                (self.ground.on_news)(News::ClientGone);
                Ok(())
            }
            Request::Bury(session) => {
                // What the window shows of its leases may not be durable yet.
                self.settle();
                if let Err(error) = remove_if_idle(self.ground.site, &self.window, session) {
                    self.ground.site.note_trouble(&error);
                }
                Ok(())
            }
        }
    }

    /// What time has brought: a window's end, a flush that is done, a claim that has waited long enough.
    fn tend(&mut self) -> Result<()> {
        while let Some(flushed) = self.flusher.news() {
            self.flushed(flushed)?;
        }
        let now = monotonic();
        if let Some((_, at)) = &self.trouble
            && now >= *at
            && !self.flusher.is_out()
            && let Some(frozen) = self.window.frozen()
        {
            self.trouble = self.trouble.take().map(|(error, _)| (error, now + RETRY_EVERY));
            self.flusher.flush(frozen, true);
        }
        let is_over = self.window.begun.is_some_and(|begun| now.duration_since(begun) >= WINDOW)
            || self.window.bytes() >= WINDOW_BYTES_MAX
            || !self.closers.is_empty();
        if is_over {
            self.end_window_in_time();
        }
        let mut over = self.parked.take_over(now).into_iter();
        while let Some(parked) = over.next() {
            // Decided a last time: nothing that it could take has come, or it would have been served.
            let verdict = self.decide(std::slice::from_ref(&parked)).map(|mut decided| decided.verdicts.remove(0));
            let verdict = match verdict {
                Ok(Ok(applied)) if applied.version.is_none() => Ok(applied),
                // It can be served after all, by a clock that has reached something: as a change that has just come.
                Ok(Ok(_)) => {
                    let done = self.commit(vec![Entry { wait_until: None, ..parked }]);
                    if done.is_err() {
                        over.for_each(|parked| self.hand_on(parked));
                        return done;
                    }
                    continue;
                }
                Ok(Err(error)) | Err(error) => Err(error),
            };
            let answers = vec![Answer { to: self.addressee(parked.origin), verdict }];
            self.give(Batch { answers, syncer: None, committed: 0 }, false);
        }
        Ok(())
    }

    /// Ends the wait of a claim; it is answered when time is next looked at.
    fn call_off(&mut self, from: Option<usize>, number: u64) {
        self.parked.hurry(|parked| {
            parked.change.id.number == number
                && match (&parked.origin, from) {
                    (Origin::Own(_), None) => true,
                    (Origin::Client { connection, .. }, Some(from)) => *connection == from,
                    _ => false,
                }
        });
    }

    fn decide(&self, entries: &[Entry]) -> Result<Decided> {
        decide(self.ground.site, &proposals(entries), &self.window, self.window.store)
    }

    /// Decides a group, and sees to it that it becomes durable and is answered then.
    ///
    /// # Errors
    /// What ends this stone; whoever commits next decides the group.
    fn commit(&mut self, entries: Vec<Entry>) -> Result<()> {
        if let Some((error, _)) = &self.trouble {
            let error = error.for_each_caller();
            self.refuse(entries, &error);
            return Ok(());
        }
        let has_company = self.callers.note(&entries, monotonic()) || !self.sealer.is_idle();
        let Group { verdicts, rows, before, after, served } = match self.decide_in_place(&entries) {
            Ok(Ok(group)) => group,
            Ok(Err(error)) => {
                self.refuse(entries, &error);
                return Ok(());
            }
            Err(error) => {
                entries.into_iter().for_each(|entry| self.hand_on(entry));
                return Err(error);
            }
        };
        self.ground.desk.step(Step::Applied);
        let may_park = entries.iter().any(|entry| entry.wait_until.is_some());
        let is_for_holders = entries.iter().any(|entry| entry.change.is_for_holders());
        let (queues, locks) = if may_park { (queues_with_jobs(&rows), locks_in(&rows)) } else { Default::default() };
        let now = monotonic();
        let mut answers = Vec::with_capacity(verdicts.len() + served.len());
        let mut has_parked = false;
        for (entry, verdict) in entries.into_iter().zip(verdicts) {
            let Entry { origin, change, asked, wait_until } = entry;
            match (&verdict, wait_until) {
                (Ok(applied), Some(until)) if now < until && is_to_wait(&change, applied, &locks) => {
                    self.parked.park(Entry { origin, change, asked, wait_until: Some(until) });
                    has_parked = true;
                }
                _ => answers.push(Answer { to: self.addressee(origin), verdict }),
            }
        }
        answers
            .extend(served.into_iter().map(|(parked, verdict)| Answer { to: self.addressee(parked.origin), verdict }));
        if has_parked && !queues.is_empty() {
            // What came behind them in their own group may be for them.
            self.unserved.queues.extend(queues);
            self.unserved.is_due = true;
        }
        self.write(rows, (before, after), answers, has_company);
        if is_for_holders {
            self.call_holders();
        }
        Ok(())
    }

    /// Has a change that was not decided here decided by whoever commits next. A client sees this stone go, and sends
    /// it again by itself.
    fn hand_on(&self, entry: Entry) {
        if let Entry { origin: Origin::Own(replier), change, wait_until, .. } = entry {
            self.ground.inbox.put(Box::new(Pending { change, replier, wait_until }));
        }
    }

    /// Has the work done by whoever commits next, if that is what was asked. Whoever waits for something else sees its
    /// sender go, and asks again.
    fn hand_on_work(&self, request: Request) {
        if let Request::Section { purpose, work } = request {
            self.ground.inbox.put_work(Work::Section { purpose, work });
        }
    }

    /// Has those who hold jobs look, as soon as the file shows what was decided.
    fn call_holders(&mut self) {
        if self.window.has_rows() || self.window.is_flushing() {
            self.closers.push((self.window.store, Closer::Holders));
        } else {
            self.tell_closer(Closer::Holders, Ok(()));
        }
    }

    fn closed(&mut self, closer: Closer) -> Result<()> {
        let Closer::Borrower { connection, ask } = closer else {
            self.tell_closer(closer, Ok(()));
            return Ok(());
        };
        // Nothing that came in between may be in memory only.
        if let Err(error) = self.close_now() {
            self.tell_closer(closer, Err(error));
            return Ok(());
        }
        self.window.let_go_of_file();
        self.tell_closer(Closer::Borrower { connection, ask }, Ok(()));
        self.connections.flush();
        self.connections.wait_for_return(connection, LOAN_MAX)?;
        self.reopen()
    }

    /// W6: stop reading, close connections, close the window, mark the log unused, unlink the socket. The lock is freed
    /// by the caller.
    fn leave(mut self) -> Result<()> {
        self.settle();
        self.connections.close();
        self.ground.seat.vacate();
        // Where the lock file was replaced another may be the stone by now, and what is there is its own.
        let closed = self.guard.check_place().and_then(|()| {
            let closed = self.close_now();
            if closed.is_ok() {
                let unsealed = std::mem::take(&mut self.unsealed);
                self.give_out(unsealed);
            }
            let closed = closed.and_then(|()| self.give_up_log());
            socket::unlink(&self.socket);
            closed
        });
        self.parked.take(|_| true).into_iter().for_each(|parked| self.hand_on(parked));
        self.hold_back();
        for errand in self.held_back {
            match errand {
                Errand::Change(pending) => self.ground.inbox.put(pending),
                Errand::Section { purpose, work } => self.ground.inbox.put_work(Work::Section { purpose, work }),
                // Whoever waits sees its sender go, and asks again.
                Errand::CloseWindow(_) | Errand::CallOff { .. } | Errand::Leave => {}
            }
        }
        closed
    }
}

/// What is attended to after a group.
enum Request {
    Close(Closer),
    Section { purpose: &'static str, work: Section },
    Bury(SessionId),
    CallOff { from: Option<usize>, number: u64 },
    Forget(ClientId),
    Gone(usize),
}

fn proposals(entries: &[Entry]) -> Vec<Proposal<'_>> {
    entries.iter().map(|entry| Proposal { change: &entry.change, asked: entry.asked.clone() }).collect()
}
