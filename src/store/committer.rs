//! How a process's changes get committed: by a stone where there is one, in this process or another; else directly.
//!
//! W5: a change goes to this process's own stone, or over the connection to another's. Where there is neither, a thread
//! gathers what comes in and tries both: to connect, and to take the writer's lock for one group. It has a thread so
//! that whoever waits for another process's lock can give up (W8). A caller that is alone, and finds no stone and the
//! lock free, commits on its own thread instead: two switches of threads cost as much as a third of a commit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use crate::{
    clock::{deadline_after, monotonic, sleep},
    error::{Error, ErrorKind, Result},
    local::WriterGuard,
    stone::{
        Commits, Stream,
        client::{Client, Connection, Introduction},
        seat::{Errand, Seat},
    },
    store::{
        change::{Applied, Change, ClientId},
        desk::Desk,
        paths::Paths,
        promise::{Missed, promise},
        recovery::{log_in_use, recover_log},
        site::Site,
        ticket::{Pending, Ticket, hand_in, out_of_patience},
    },
};

pub use crate::store::desk::Step;
pub(crate) use crate::store::desk::StepHook;

/// How many changes one group may hold.
pub(crate) const GROUP_CHANGES_MAX: usize = 10_000;
/// After how many bytes of payloads a group is closed that is committed directly.
const DIRECT_GROUP_BYTES_MAX: usize = 16 << 20;

/// How often who waits for a stone to appear, or for its answer, looks again.
const STONE_POLL: Duration = Duration::from_millis(1);

/// What the lock is taken for where a dead writer left something behind.
const RECOVER: &str = "recover";

/// What is done under the writer's lock; or without it, where that can't be had, to say so.
pub(crate) type Section = Box<dyn FnOnce(Result<&Site>) + Send>;

pub(crate) enum Work {
    Change(Box<Pending>),
    Section {
        purpose: &'static str,
        work: Section,
    },
    /// Bring in what dead writers left behind.
    Recover(Sender<Result<()>>),
    Stop,
}

/// Who commits for this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// It does, change by change.
    Itself,
    /// It does, and for others too.
    OwnStone,
    /// Another process.
    Stone,
}

pub(crate) struct Committer {
    inbox: Inbox,
    desk: Arc<Desk>,
    router: Arc<Router>,
    stopped: AtomicBool,
}

/// The way to the committer's thread.
#[derive(Clone)]
pub(crate) struct Inbox {
    work: Sender<Work>,
    /// How many works are with the thread: nobody overtakes them.
    queued: Arc<AtomicUsize>,
}

/// The ways there are for a change, and what is on its way to the thread.
pub(crate) struct Router {
    pub(crate) seat: Seat,
    client: Client,
    commits: Commits,
}

impl Committer {
    pub(crate) fn start(site: Arc<Site>, hook: Option<StepHook>, commits: Commits) -> Result<Self> {
        let (work, inbox) = unbounded();
        let paths = Arc::new(Paths::default());
        let own_inbox = Inbox { work, queued: Arc::default() };
        let router = Arc::new(Router {
            seat: Seat::default(),
            client: Client::new(&site, own_inbox.clone(), paths.clone()),
            commits,
        });
        let desk = Arc::new(Desk::new(site, hook, paths));
        let serving = Thread { desk: desk.clone(), router: router.clone(), queued: own_inbox.queued.clone() };
        thread::Builder::new()
            .name("casque-committer".into())
            .spawn(move || serving.serve(&inbox))
            .map_err(|error| Error::unavailable("the committer's thread can't be started").because(error))?;
        Ok(Self { inbox: own_inbox, desk, router, stopped: AtomicBool::new(false) })
    }

    pub(crate) fn paths(&self) -> &Paths {
        &self.desk.paths
    }

    pub(crate) fn desk(&self) -> &Arc<Desk> {
        &self.desk
    }

    pub(crate) fn router(&self) -> &Arc<Router> {
        &self.router
    }

    /// Who commits for this process just now.
    pub(crate) fn by(&self) -> By {
        if self.router.seat.is_serving() { By::OwnStone } else { self.router.by_other() }
    }

    /// Commits a change and waits for its answer.
    ///
    /// # Errors
    /// As [`Ticket::wait`].
    pub(crate) fn commit(&self, change: Change, patience: Duration) -> Result<Applied> {
        self.check_running()?;
        match self.commit_here(change) {
            Ok(answer) => answer,
            Err(change) => self.submit(*change, patience, Duration::ZERO)?.wait(&self.desk.site),
        }
    }

    /// As [`Committer::submit`], and commits on the caller's own thread where it is alone: the ticket is answered then.
    pub(crate) fn submit_from_here(&self, change: Change, patience: Duration, wait: Duration) -> Result<Ticket> {
        self.check_running()?;
        let id = change.id;
        match self.commit_here(change) {
            Ok(answer) => {
                let (promise, awaited) = promise();
                promise.keep(answer);
                Ok(Ticket::of(id, awaited, patience))
            }
            Err(change) => self.submit(*change, patience, wait),
        }
    }

    /// Has the answer to a claim that waits at a stone come at once, as it is.
    pub(crate) fn call_off(&self, number: u64) {
        match self.router.seat.send(Errand::CallOff { number }) {
            Ok(()) => {}
            Err(_) => {
                if let Some(connection) = self.router.client.living() {
                    connection.call_off(number);
                }
            }
        }
    }

    /// Commits a change on the caller's own thread, if nobody else is about to commit and there is no stone.
    fn commit_here(&self, change: Change) -> Result<Result<Applied>, Box<Change>> {
        if self.inbox.queued.load(Ordering::Acquire) > 0 || self.router.may_have_stone() {
            return Err(Box::new(change));
        }
        self.desk.commit_alone(change)
    }

    /// Hands a change in; it is on its way when this returns, and its patience begins. A claim that finds nothing may
    /// be kept waiting at a stone for so long.
    pub(crate) fn submit(&self, change: Change, patience: Duration, wait: Duration) -> Result<Ticket> {
        self.check_running()?;
        let (pending, ticket) = hand_in(change, patience, wait);
        if let Some(pending) = self.router.offer(pending) {
            self.inbox.put(pending);
        }
        Ok(ticket)
    }

    /// R2: sees to it that all that was answered is in the store's file.
    ///
    /// # Errors
    /// `Unavailable` where a stone does not answer in time, or can't write.
    pub(crate) fn close_window(&self, patience: Duration) -> Result<By> {
        let deadline = deadline_after(patience);
        loop {
            let (answer, awaited) = promise();
            // The one promise goes with the question: who waits sees it broken where the stone leaves.
            let by = match self.router.seat.send(Errand::CloseWindow(answer)) {
                Ok(()) => By::OwnStone,
                Err(Errand::CloseWindow(answer)) => match self.router.connection() {
                    Some(connection) if connection.close_window(answer) => By::Stone,
                    // It broke just now; another stone may have come.
                    Some(_) => continue,
                    None => return Ok(By::Itself),
                },
                Err(_) => return Ok(By::Itself),
            };
            match awaited.wait_until(deadline) {
                Ok(closed) => return closed.map(|()| by),
                // The stone has left or died before it answered; another may have come.
                Err(Missed::Gone) if monotonic() < deadline => {}
                Err(_) => {
                    return Err(out_of_patience(self.desk.site.files(), ErrorKind::Unavailable, "reading"));
                }
            }
        }
    }

    /// Does something under the writer's lock, and waits for it at most so long.
    pub(crate) fn section<T: Send + 'static>(
        &self,
        site: &Site,
        purpose: &'static str,
        patience: Duration,
        work: impl FnOnce(&Site) -> T + Send + 'static,
    ) -> Result<T> {
        let (answer, receiver) = bounded(1);
        self.hand_in_section(
            purpose,
            Box::new(move |site| {
                // Nobody may be waiting any more; then the answer is of no use.
                let _ = answer.send(site.map(work));
            }),
        )?;
        receiver.recv_timeout(patience).unwrap_or_else(|error| Err(no_section(site, purpose, error)))
    }

    /// Does something under the writer's lock that may take long; only for its beginning is it waited so long.
    pub(crate) fn long_section<T: Send + 'static>(
        &self,
        site: &Site,
        purpose: &'static str,
        patience: Duration,
        work: impl FnOnce(&Site) -> T + Send + 'static,
    ) -> Result<T> {
        let (answer, receiver) = bounded(1);
        // A rendezvous: who has given up takes nothing, and then nothing is done.
        let (begin, has_begun) = bounded(0);
        self.hand_in_section(
            purpose,
            Box::new(move |site| {
                if begin.send(()).is_ok() {
                    let _ = answer.send(site.map(work));
                }
            }),
        )?;
        has_begun.recv_timeout(patience).map_err(|error| no_section(site, purpose, error))?;
        receiver.recv().unwrap_or_else(|_| Err(Error::closed()))
    }

    fn hand_in_section(&self, purpose: &'static str, work: Section) -> Result<()> {
        match self.router.seat.send(Errand::Section { purpose, work }) {
            Ok(()) => Ok(()),
            Err(Errand::Section { work, .. }) => {
                self.inbox.put_work(Work::Section { purpose, work });
                Ok(())
            }
            Err(_) => Err(Error::closed()),
        }
    }

    /// R1: brings in what dead writers left behind, under the writer's lock and never under one that a stone has lent:
    /// the log that a stone keeps is in use rightly. Where there is a stone nothing is left to do.
    pub(crate) fn recover(&self, site: &Site, patience: Duration) -> Result<()> {
        let (answer, receiver) = bounded(1);
        self.inbox.put_work(Work::Recover(answer));
        receiver.recv_timeout(patience).unwrap_or_else(|error| Err(no_section(site, "reading", error)))
    }

    /// Ends the thread after what was handed in so far, and the connection to a stone.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.inbox.put_work(Work::Stop);
        self.router.client.leave();
    }

    /// Says who this process is, to stones that it will connect to.
    pub(crate) fn introduce(&self, client: ClientId, label: &str) {
        self.router.client.introduce(Introduction { client, label: label.to_owned() });
    }

    pub(crate) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    fn check_running(&self) -> Result<()> {
        if self.stopped.load(Ordering::Acquire) { Err(Error::closed()) } else { Ok(()) }
    }
}

impl Inbox {
    /// Hands a change to the thread. Where that has ended, whoever waits for the answer sees it go.
    pub(crate) fn put(&self, pending: Box<Pending>) {
        self.put_work(Work::Change(pending));
    }

    pub(crate) fn put_work(&self, work: Work) {
        self.queued.fetch_add(1, Ordering::AcqRel);
        let _ = self.work.send(work);
    }
}

impl Router {
    /// Gives a change to a stone that is there; back if there is none.
    fn offer(&self, pending: Box<Pending>) -> Option<Box<Pending>> {
        let Err(Errand::Change(pending)) = self.seat.send(Errand::Change(pending)) else { return None };
        match self.client.living() {
            Some(connection) => connection.offer(pending),
            None => Some(pending),
        }
    }

    /// Whether a change should not be committed directly, for all that can be told quickly.
    fn may_have_stone(&self) -> bool {
        self.seat.is_serving() || (self.commits != Commits::DirectOnly && self.client.may_connect())
    }

    fn has_stone(&self) -> bool {
        self.seat.is_serving() || self.connection().is_some()
    }

    /// The connection to another process's stone, if it answers.
    pub(crate) fn connection(&self) -> Option<Arc<Connection>> {
        if self.commits == Commits::DirectOnly { None } else { self.client.connect() }
    }

    /// The connection to another process's stone that there is, as far as is known without asking.
    pub(crate) fn living(&self) -> Option<Arc<Connection>> {
        self.client.living()
    }

    /// A connection that ends with another process's stone, and is for nothing else.
    pub(crate) fn lifeline(&self) -> Option<Stream> {
        if self.seat.is_serving() { None } else { self.client.lifeline() }
    }

    /// Takes note that the other process's stone is gone.
    pub(crate) fn note_gone(&self) {
        self.client.note_gone();
    }

    /// Whether another process's stone answers.
    pub(crate) fn by_other(&self) -> By {
        if self.connection().is_some() { By::Stone } else { By::Itself }
    }

    pub(crate) fn commits(&self) -> Commits {
        self.commits
    }
}

/// The thread that commits what found no stone.
struct Thread {
    desk: Arc<Desk>,
    router: Arc<Router>,
    queued: Arc<AtomicUsize>,
}

impl Thread {
    fn serve(&self, inbox: &Receiver<Work>) {
        let mut next = None;
        loop {
            let Some(work) = next.take().or_else(|| inbox.recv().ok()) else { return };
            match work {
                Work::Stop => return,
                Work::Section { purpose, work } => {
                    self.run_section(purpose, work);
                    self.queued.fetch_sub(1, Ordering::AcqRel);
                }
                Work::Recover(answer) => {
                    // Nobody may be waiting any more; then the answer is of no use.
                    let _ = answer.send(self.recover());
                    self.queued.fetch_sub(1, Ordering::AcqRel);
                }
                Work::Change(first) => {
                    let mut bytes = first.change.payload_bytes();
                    let mut group = vec![first];
                    while group.len() < GROUP_CHANGES_MAX && bytes < DIRECT_GROUP_BYTES_MAX {
                        match inbox.try_recv() {
                            Ok(Work::Change(pending)) => {
                                bytes += pending.change.payload_bytes();
                                group.push(pending);
                            }
                            Ok(other) => {
                                next = Some(other);
                                break;
                            }
                            Err(_) => break,
                        }
                    }
                    let changes = group.len();
                    self.commit_group(group);
                    self.queued.fetch_sub(changes, Ordering::AcqRel);
                }
            }
        }
    }

    /// W5: to a stone, or directly; whichever can be had first, until all senders have given up.
    #[allow(clippy::vec_box, reason = "they come boxed, and go on boxed")]
    fn commit_group(&self, group: Vec<Box<Pending>>) {
        let mut group = group;
        loop {
            group = group.into_iter().filter_map(|pending| self.router.offer(pending)).collect();
            if group.is_empty() {
                return;
            }
            if self.router.connection().is_some() {
                // Offered at the next turn of the loop.
                continue;
            }
            if let Some(refusal) = self.router.client.refusal() {
                // It was not sent, and will not be while that one commits.
                for pending in group {
                    pending.replier.answer(Err(refusal.for_each_caller()));
                }
                return;
            }
            self.desk.step(Step::BeforeLock);
            let turn = self.desk.take_turn();
            let waits_for = || group.iter().all(|pending| pending.replier.is_withdrawn()) || self.router.has_stone();
            match take_unless(&self.desk.site, "commit", waits_for) {
                Ok(Taken::Lock(guard)) => return self.desk.commit_group(group, || drop(guard)),
                Ok(Taken::NoneNeeded) => return self.desk.commit_group(group, || ()),
                Ok(Taken::GaveUp) => {
                    drop(turn);
                    group.retain(|pending| !pending.replier.is_withdrawn());
                    sleep(STONE_POLL);
                }
                Err(error) => {
                    for pending in group {
                        pending.replier.answer(Err(error.for_each_caller()));
                    }
                    return;
                }
            }
        }
    }

    fn recover(&self) -> Result<()> {
        let site = &self.desk.site;
        if self.router.has_stone() {
            return Ok(());
        }
        if let Some(refusal) = self.router.client.refusal() {
            return Err(refusal);
        }
        let _turn = self.desk.take_turn();
        match take_unless(site, RECOVER, || self.router.has_stone())? {
            Taken::GaveUp => Ok(()),
            Taken::Lock(_) | Taken::NoneNeeded => {
                // Another may have recovered it while this one waited for the lock.
                if let Ok(rows) = site.engine.snapshot()
                    && log_in_use(rows.as_ref())?.is_none()
                {
                    return Ok(());
                }
                site.engine.recover()?;
                recover_log(site).map(drop)
            }
        }
    }

    fn run_section(&self, purpose: &'static str, work: Section) {
        let mut errand = Errand::Section { purpose, work };
        loop {
            let Err(Errand::Section { work, .. }) = self.router.seat.send(errand) else { return };
            if let Some(connection) = self.router.connection() {
                if let Some(_loan) = connection.borrow_lock() {
                    return work(Ok(&self.desk.site));
                }
                errand = Errand::Section { purpose, work };
                sleep(STONE_POLL);
                continue;
            }
            if let Some(refusal) = self.router.client.refusal() {
                return work(Err(refusal));
            }
            let _turn = self.desk.take_turn();
            match take_unless(&self.desk.site, purpose, || self.router.has_stone()) {
                Ok(Taken::Lock(_guard)) => return work(Ok(&self.desk.site)),
                Ok(Taken::NoneNeeded) => return work(Ok(&self.desk.site)),
                Ok(Taken::GaveUp) => {
                    errand = Errand::Section { purpose, work };
                    sleep(STONE_POLL);
                }
                Err(error) => return work(Err(error)),
            }
        }
    }
}

fn no_section(site: &Site, purpose: &str, error: RecvTimeoutError) -> Error {
    match error {
        RecvTimeoutError::Timeout => out_of_patience(site.files(), ErrorKind::Unavailable, purpose),
        RecvTimeoutError::Disconnected => Error::closed(),
    }
}

enum Taken<'a> {
    Lock(WriterGuard<'a>),
    /// A store in memory has one writer.
    NoneNeeded,
    GaveUp,
}

fn take_unless<'a>(site: &'a Site, purpose: &str, give_up: impl FnMut() -> bool) -> Result<Taken<'a>> {
    let Some(files) = site.files() else { return Ok(Taken::NoneNeeded) };
    Ok(match files.lock()?.take_unless(purpose, give_up)? {
        Some(guard) => Taken::Lock(guard),
        None => Taken::GaveUp,
    })
}
