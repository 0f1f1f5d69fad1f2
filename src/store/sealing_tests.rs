//! Changes that are decided while the rows of others are being synced: none is answered before that sync has ended,
//! however it ends.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

use crate::{
    JobRequest, StoreOptions,
    hooks::{Step, StorageHook, StorageOperation},
    queue::{
        claim::Claim,
        select::{Tasks, Wanted},
    },
    store::{
        Store,
        change::{Applied, Intent},
        ticket::Ticket,
    },
};

/// Where a thread of the stone is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// The stone's own thread, before it appends.
    Deciding,
    /// The sealer, before it syncs.
    Syncing,
}

#[derive(Debug, Default)]
struct Gates {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    shut: HashMap<Place, bool>,
    held: HashMap<Place, bool>,
    decided: usize,
    appended: usize,
    sync_fails: bool,
}

impl Gates {
    fn pass(&self, place: Place) -> bool {
        let mut state = self.state.lock().unwrap();
        while state.shut.get(&place) == Some(&true) {
            state.held.insert(place, true);
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap();
        }
        state.held.insert(place, false);
        state.sync_fails
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    fn shut(&self, place: Place, is_shut: bool) {
        self.set(|state| {
            state.shut.insert(place, is_shut);
        });
    }

    fn comes_true(&self, patience: Duration, is_so: impl Fn(&State) -> bool) -> bool {
        let state = self.state.lock().unwrap();
        let (_state, waited) = self.changed.wait_timeout_while(state, patience, |state| !is_so(state)).unwrap();
        !waited.timed_out()
    }

    fn await_held(&self, place: Place) {
        let is_held = |state: &State| state.held.get(&place) == Some(&true);
        assert!(self.comes_true(Duration::from_mins(1), is_held), "the stone comes to where it is expected");
    }
}

#[derive(Debug)]
struct Disk(Arc<Gates>);

impl StorageHook for Disk {
    fn before(&self, operation: StorageOperation, _: u64) -> io::Result<()> {
        let is_sealer = thread::current().name() == Some("casque-sealer");
        if operation == StorageOperation::Sync && is_sealer && self.0.pass(Place::Syncing) {
            return Err(io::Error::other("made to fail"));
        }
        Ok(())
    }
}

fn serve(folder: &std::path::Path) -> (Arc<Gates>, Store) {
    let gates = Arc::new(Gates::default());
    let passing = gates.clone();
    let options = StoreOptions::new().storage_hook(Arc::new(Disk(gates.clone()))).step_hook(move |step| {
        if thread::current().name() != Some("casque-stone") {
            return;
        }
        match step {
            Step::Applied => {
                passing.set(|state| state.decided += 1);
                passing.pass(Place::Deciding);
            }
            Step::Appended => passing.set(|state| state.appended += 1),
            _ => {}
        }
    });
    (gates, options.open(folder.join("app.redb")).unwrap())
}

fn enqueue(store: &Store) -> Ticket {
    let job = JobRequest::new("t", &()).for_queue("q").unwrap();
    store.inner.submit_turn(vec![Intent::Enqueue(job)], Duration::ZERO).unwrap()
}

/// A claim that finds nothing, of a queue without jobs.
fn claim(store: &Store) -> Ticket {
    let claim = Claim::new(
        store.inner.session().unwrap().id,
        vec!["empty".into()],
        Wanted { tasks: Tasks::Any, jobs_max: 1, idle: true },
    );
    store.inner.submit_turn(vec![Intent::Claim(claim)], Duration::ZERO).unwrap()
}

/// How many jobs there are, in the file too.
fn ready(store: &Store) -> u64 {
    store.version().unwrap();
    store.queue("q").stats().unwrap().ready
}

fn answered(store: &Store, ticket: &Ticket) -> Applied {
    ticket.wait(&store.inner.site).unwrap()
}

/// What a round has asked, in the order it was decided, and whether all of it was decided before the sync had ended.
struct Round {
    tickets: Vec<Ticket>,
    is_whole: bool,
}

/// How many jobs a round enqueues.
const JOBS: u64 = 5;
/// A window that ends in a round waits for the sync, which waits for this test.
const ROUND_PATIENCE: Duration = Duration::from_millis(500);

/// Two changes of one group that are being synced, and what was decided since; all of it unanswered.
fn decide_beside_a_sync(gates: &Gates, store: &Store) -> Round {
    // Held in a commit, which may be one of its process's own, the stone finds at least two in its next group, and so
    // has its sealer sync them.
    gates.shut(Place::Deciding, true);
    gates.shut(Place::Syncing, true);
    let first = enqueue(store);
    gates.await_held(Place::Deciding);
    let mut tickets = vec![enqueue(store), enqueue(store)];
    gates.shut(Place::Deciding, false);
    gates.await_held(Place::Syncing);
    let before = gates.state.lock().unwrap().appended;
    tickets.push(enqueue(store));
    let mut is_whole = gates.comes_true(ROUND_PATIENCE, |state| state.appended > before);
    let decided = gates.state.lock().unwrap().decided;
    tickets.push(claim(store));
    is_whole = is_whole && gates.comes_true(ROUND_PATIENCE, |state| state.decided > decided);
    // By the time that it is appended the others were given to whoever answers.
    tickets.push(enqueue(store));
    is_whole = is_whole && gates.comes_true(ROUND_PATIENCE, |state| state.appended > before + 1);
    for ticket in &tickets {
        assert!(ticket.wait_or(&store.inner.site, &|| true).is_none(), "it is answered before it is durable");
    }
    tickets.push(first);
    Round { tickets, is_whole }
}

/// Goes on until a round was whole, since it goes by the clock when a window ends; `open` lets the sync go. Returns how
/// many rounds there were.
fn rounds(gates: &Gates, store: &Store, open: impl Fn()) -> u64 {
    for round in 1..=20 {
        let Round { tickets, is_whole } = decide_beside_a_sync(gates, store);
        open();
        gates.shut(Place::Syncing, false);
        let committed: Vec<bool> = tickets.iter().map(|ticket| answered(store, ticket).version.is_some()).collect();
        assert_eq!(committed, [true, true, true, false, true, true]);
        if is_whole {
            return round;
        }
    }
    panic!("no window goes on for long enough");
}

#[test]
fn what_is_decided_while_a_sync_goes_on_is_answered_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let (gates, store) = serve(folder.path());
    let _serving = store.serve().unwrap();
    while store.stone().is_none() {
        thread::yield_now();
    }
    let rounds = rounds(&gates, &store, || {});
    assert_eq!(ready(&store), JOBS * rounds);
}

/// L4.
#[test]
fn what_a_failed_sync_left_unanswered_is_answered_from_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (gates, store) = serve(folder.path());
    let serving = store.serve().unwrap();
    while store.stone().is_none() {
        thread::yield_now();
    }
    let rounds = rounds(&gates, &store, || gates.set(|state| state.sync_fails = true));
    gates.set(|state| state.sync_fails = false);
    // In the file, and the stone goes on with a new log.
    assert_eq!(ready(&store), JOBS * rounds);
    answered(&store, &enqueue(&store));
    drop(serving);
    store.close().unwrap();
    let store = Store::open(folder.path().join("app.redb")).unwrap();
    assert_eq!(ready(&store), JOBS * rounds + 1);
}
