//! One life of a process on a disk: it opens the store, which recovers it, looks at what is there, sends changes, and
//! closes. The bytes of the store and its log are on the disk in memory; locks, session files and the socket are real.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use super::model::{Fate, History, Model, NOW, Sent, marks};
use crate::{
    clock::{Clock, deadline_after, monotonic},
    codec::Payload,
    engine::disk::{
        Disk,
        image::Image,
        trace::{Event, Trace, mix},
    },
    error::{Error, ErrorKind},
    queue::{
        claim::Claim,
        enqueue::{NewJob, When},
        id::{JobId, SessionId, Token},
        select::{Tasks, Wanted},
        settle::{Ending, Settle},
    },
    stone::{Measures, seat::Errand},
    store::{
        Store,
        change::{Applied, Change, Intent, Outcome},
        conflict::Writer,
        inner::Serving,
        object::Value,
        open::StoreOptions,
        promise::{Awaited, promise},
        ticket::Ticket,
    },
};

pub(super) const STORE: &str = "app.redb";
pub(super) const LOG: &str = "log";
const LABEL: &str = "life";
/// How long a call waits, and a test for what must happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Where all lives of a test happen, one after the other.
pub(super) struct World {
    pub(super) folder: tempfile::TempDir,
    pub(super) model: Model,
    /// A store that was just made.
    pub(super) made: Image,
    pub(super) half_bytes: usize,
    numbers: usize,
    chance: u64,
}

impl World {
    pub(super) fn new(seed: u64, half_bytes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(STORE);
        StoreOptions::new().open(&path).unwrap().close().unwrap();
        let made = Image::default().with(STORE, &fs::read(&path).unwrap());
        Self { folder, model: Model::default(), made, half_bytes, numbers: 0, chance: seed }
    }

    pub(super) fn chance(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.chance)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.chance() % bound as u64).unwrap()
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join(format!("{STORE}.d")).join(LOG)
    }
}

/// A process with the store open.
pub(super) struct Life {
    pub(super) disk: Disk,
    pub(super) store: Store,
    serving: Option<Serving>,
    pub(super) history: History,
    /// The history as it was at each note on the disk.
    histories: Vec<History>,
    held: Vec<(JobId, Token)>,
    /// Whether calls may fail, since the storage does.
    pub(super) may_fail: bool,
    /// How long it tries to become the stone then.
    pub(super) tries_for: Duration,
}

impl Life {
    /// Opens the store as it is on a disk.
    pub(super) fn begin(world: &World, disk: Disk, history: History) -> Result<Self, Error> {
        // The real file of a log only says that there is one.
        let log = world.log_path();
        match disk.live().file(LOG) {
            Some(_) => drop(fs::OpenOptions::new().create(true).append(true).open(&log).unwrap()),
            None => drop(fs::remove_file(&log)),
        }
        disk.note(0);
        let measures = Measures {
            // None ends but when it is told to, so that the same happens each time.
            window: Duration::from_hours(1),
            retry_every: Duration::from_millis(2),
            half_bytes: world.half_bytes,
        };
        let store = StoreOptions::new()
            .create(false)
            .label(LABEL)
            .clock(Clock::manual(NOW))
            .timeout(PATIENCE)
            .cache_bytes(1 << 20)
            .storage_hook(Arc::new(disk.clone()))
            .measures(measures)
            .open(world.folder.path().join(STORE))?;
        Ok(Self {
            disk,
            store,
            serving: None,
            histories: vec![history.clone()],
            history,
            held: Vec::new(),
            may_fail: false,
            tries_for: Duration::ZERO,
        })
    }

    fn note(&mut self) {
        self.disk.note(self.histories.len());
        self.histories.push(self.history.clone());
    }

    /// Sees what is there, and that it is what it ought to be.
    pub(super) fn look(&mut self, world: &mut World) -> Result<(), Error> {
        let rows = self.store.inner.rows()?;
        world.model.judge(rows.as_ref(), &mut self.history);
        drop(rows);
        self.note();
        Ok(())
    }

    pub(super) fn check(&self) {
        let found = self.store.check().unwrap();
        assert!(found.is_empty(), "{found:?}");
    }

    /// Sends changes until one is answered well: the storage has just recovered.
    pub(super) fn commit_in_the_end(&mut self, world: &mut World) {
        let deadline = deadline_after(PATIENCE);
        loop {
            self.commit(world);
            if self.history.last().is_some_and(|sent| sent.fate == Fate::Committed) {
                return;
            }
            assert!(monotonic() < deadline, "the storage is well, and the store is not");
        }
    }

    /// Sends a change and waits for its answer.
    pub(super) fn commit(&mut self, world: &mut World) {
        let intents = self.make_up(world);
        self.commit_these(world, intents);
    }

    /// Hands a change in without waiting for its answer.
    pub(super) fn submit(&mut self, world: &mut World) -> (usize, Ticket) {
        let mut intents = marks(world.numbers).to_vec();
        intents.push(Intent::Enqueue(job(3)));
        let (number, change) = self.send(world, intents);
        (number, self.store.inner.committer.submit(change, PATIENCE, Duration::ZERO).unwrap())
    }

    /// Takes note of an answer, if it has come by now.
    pub(super) fn glance(&mut self, (number, ticket): &(usize, Ticket)) -> bool {
        match ticket.wait_or(&self.store.inner.site, &|| true) {
            Some(answer) => {
                self.take_answer(*number, answer);
                true
            }
            None => false,
        }
    }

    pub(super) fn await_answer(&mut self, (number, ticket): &(usize, Ticket)) {
        let answer = ticket.wait(&self.store.inner.site);
        self.take_answer(*number, answer);
    }

    fn commit_these(&mut self, world: &mut World, intents: Vec<Intent>) {
        let (number, change) = self.send(world, intents);
        let answer = self.store.inner.committer.commit(change, PATIENCE);
        self.take_answer(number, answer);
    }

    fn send(&mut self, world: &mut World, intents: Vec<Intent>) -> (usize, Change) {
        let number = world.numbers;
        world.numbers += 1;
        debug_assert!(matches!(intents.first(), Some(Intent::Put { .. })));
        let writer = Writer { label: LABEL.into(), job: None };
        let change = Change { id: self.store.inner.next_change(), writer, guards: Vec::new(), intents };
        self.history.push(Sent { number, change: Arc::new(change.clone()), fate: Fate::Unknown });
        self.note();
        (number, change)
    }

    fn take_answer(&mut self, number: usize, answer: Result<Applied, Error>) {
        let fate = match answer {
            Ok(applied) => {
                self.learn(&applied);
                Fate::Committed
            }
            Err(error) => {
                assert!(self.may_fail, "change {number}: {}", error.full_message());
                assert_ne!(error.kind(), ErrorKind::Corrupt, "{}", error.full_message());
                if error.kind() == ErrorKind::Unknown { Fate::Unknown } else { Fate::Absent }
            }
        };
        let sent = self.history.iter_mut().find(|sent| sent.number == number).unwrap();
        assert_eq!(sent.fate, Fate::Unknown, "answered once");
        sent.fate = fate;
        self.note();
    }

    fn learn(&mut self, applied: &Applied) {
        for outcome in &applied.outcomes {
            if let Outcome::Claimed(claimed) = outcome {
                let token = claimed.token;
                self.held.extend(claimed.jobs.iter().filter_map(|job| Some((job.record.id, token?))));
            }
        }
    }

    /// A change of some kind, with the marks by which it is known again.
    fn make_up(&mut self, world: &mut World) -> Vec<Intent> {
        let number = world.numbers;
        let mut intents = marks(number).to_vec();
        match world.below(8) {
            0..=2 => {
                let size = [3, 40, 900][world.below(3)];
                intents.extend((0..=world.below(2)).map(|_| Intent::Enqueue(job(size))));
            }
            3 | 4 => intents.push(Intent::Claim(claim(1 + world.below(2)))),
            5 | 6 if !self.held.is_empty() => {
                let (job, token) = self.held.swap_remove(world.below(self.held.len()));
                let how = match world.below(4) {
                    0 => Ending::Release,
                    1 => Ending::Fail { message: "no".into(), retry_after: Some(Duration::ZERO) },
                    2 => Ending::Complete { result: Some(Payload::json(&"done").unwrap()) },
                    _ => Ending::Complete { result: None },
                };
                let settle = Settle { job, token, started_at: Some(NOW), how, enqueues: Vec::new() };
                // One that an unknown change settled already fails by itself.
                intents.push(Intent::SettleEach(vec![settle]));
            }
            5 | 6 => intents.push(Intent::Add { key: "count".into(), delta: 1 }),
            _ => {
                let value = Value::Plain(Payload::json(&"x".repeat(300 << world.below(4))).unwrap());
                intents.push(Intent::Put { key: format!("m/{}", world.below(4)), value });
            }
        }
        intents
    }

    /// Becomes the stone; whether it did.
    pub(super) fn stand(&mut self) -> bool {
        self.serving = Some(self.store.inner.stand().unwrap());
        let deadline = deadline_after(if self.may_fail { self.tries_for } else { PATIENCE });
        while !self.store.inner.is_stone() {
            if monotonic() >= deadline {
                assert!(self.may_fail, "this process does not become the stone");
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    pub(super) fn is_stone(&self) -> bool {
        self.store.inner.is_stone()
    }

    /// Leaves as the stone.
    pub(super) fn step_down(&mut self) {
        self.serving = None;
    }

    /// Has the stone write its window, which is held up at its first sync; the answer comes when that is done.
    pub(super) fn end_window(&mut self, world: &mut World) -> Awaited<Result<(), Error>> {
        self.commit_small(world, 1);
        self.disk.shut_gate(STORE);
        let (answer, closed) = promise();
        assert!(self.store.inner.committer.router().seat.send(Errand::CloseWindow(answer)).is_ok());
        self.disk.await_held();
        closed
    }

    /// Has the stone write its window while changes come in between its syncs.
    pub(super) fn overlap(&mut self, world: &mut World, between: usize) {
        let closed = self.end_window(world);
        // Half of the log takes so much; more waits for the window before.
        self.commit_small(world, between);
        self.disk.let_one_pass();
        self.disk.await_held();
        self.commit_small(world, between);
        self.disk.open_gate();
        closed.wait_until(deadline_after(PATIENCE)).ok().unwrap().unwrap();
    }

    fn commit_small(&mut self, world: &mut World, count: usize) {
        for _ in 0..count {
            self.commit_these(world, marks(world.numbers).to_vec());
        }
    }

    /// Has changes come in as one group while the one before is synced, and one more be appended behind them where
    /// that is another thread's sync.
    pub(super) fn crowd(&mut self, world: &mut World, count: usize) {
        self.disk.shut_gate(LOG);
        let first = self.submit(world);
        self.disk.await_held();
        let mut tickets = vec![first];
        for _ in 0..count {
            tickets.push(self.submit(world));
        }
        // What is answered before the sync that it needs is known as answered before it.
        tickets.retain(|ticket| !self.glance(ticket));
        self.disk.let_one_pass();
        let thread = self.disk.await_held();
        tickets.retain(|ticket| !self.glance(ticket));
        // Where half of the log is full the stone waits for that sync.
        if thread == "casque-sealer" && world.half_bytes > 16 << 10 {
            let before = self.disk.trace().events.len();
            tickets.push(self.submit(world));
            // The note that it was sent, and its record.
            self.disk.await_events(before + 2);
            tickets.retain(|ticket| !self.glance(ticket));
        }
        self.disk.open_gate();
        tickets.iter().for_each(|ticket| self.await_answer(ticket));
    }

    /// Closes in order.
    pub(super) fn close(mut self) -> Ended {
        self.step_down();
        self.store.clone().close().unwrap();
        self.end()
    }

    /// Dies: nothing that it does from now on reaches the disk.
    pub(super) fn die(mut self) -> Ended {
        self.may_fail = true;
        let trace = self.disk.trace();
        self.disk.die();
        Ended { trace, ..self.end() }
    }

    fn end(self) -> Ended {
        let Self { disk, store, serving, history, histories, .. } = self;
        drop(serving);
        drop(store);
        Ended { trace: disk.trace(), history, histories }
    }
}

/// A life that is over.
pub(super) struct Ended {
    pub(super) trace: Trace,
    pub(super) history: History,
    histories: Vec<History>,
}

impl Ended {
    /// What was known when so much had happened.
    pub(super) fn history_at(&self, at: usize) -> &History {
        let notes = self.trace.events[..at].iter().rev();
        let last = notes.into_iter().find_map(|event| if let Event::Note(note) = event { Some(*note) } else { None });
        &self.histories[last.expect("a life begins with a note")]
    }
}

fn job(size: usize) -> NewJob {
    NewJob {
        queue: "q".into(),
        task: "t".into(),
        args: Payload::json(&"x".repeat(size)).unwrap(),
        args_version: 1,
        priority: 0,
        when: When::Now,
        attempts_max: 3,
        metadata: Vec::new(),
        keep: false,
        extra: None,
    }
}

fn claim(jobs_max: usize) -> Claim {
    Claim {
        session: SessionId([1; 16]),
        queues: vec!["q".into()],
        wanted: Wanted { tasks: Tasks::Any, jobs_max, idle: true },
        candidates: Vec::new(),
        fill: true,
        conflicts: 0,
    }
}
