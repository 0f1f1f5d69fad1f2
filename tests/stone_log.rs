//! What the process that commits for the others does where its log has no room or fails, and where the store's file
//! can't be written for a while: nothing that it answered is lost, and no record of the log continues from nothing.

mod processes;

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use casque::{
    ErrorKind, JobId, JobRequest, Payload, Result, Store, StoreOptions,
    hooks::{Step, StorageHook, StorageOperation},
    types::Serving,
};
use processes::{
    Actor, Committer, DEADLINE, Scene, argument, assert_sound, await_line, options, path_here, play, say, until,
};

/// The longest payload that a job may have as a JSON string, and how many of them make a change that no half of the log
/// has room for.
const PAYLOAD_BYTES: usize = (1 << 20) - 2;
const PAYLOADS: usize = 8;
/// The stone tries a window again five times as often.
const LONG: Duration = Duration::from_secs(1);

#[test]
fn actor() {
    play(&[("around", around)]);
}

fn is_flusher() -> bool {
    thread::current().name() == Some("casque-flusher")
}

fn enqueue(store: &Store) -> Result<JobId> {
    store.queue("default").enqueue(JobRequest::new("note", &()))
}

/// Jobs that are larger, together, than half of the log.
fn enqueue_much(store: &Store) -> Result<Vec<JobId>> {
    let text = Payload::from_json_text(&format!("\"{}\"", "x".repeat(PAYLOAD_BYTES)))?;
    store.queue("default").enqueue_batch((0..PAYLOADS).map(|_| JobRequest::with_payload("note", text.clone())))
}

/// Opens the store with these hooks, and is the stone.
fn serving(options: &StoreOptions, path: PathBuf) -> (Store, Serving) {
    let store = options.open(path).unwrap();
    let serving = store.serve().unwrap();
    until("the seat", || (store.stone()? == std::process::id()).then_some(()));
    (store, serving)
}

/// Storage whose next operations of one kind, on the threads of the stone, fail as often as is said.
#[derive(Debug, Default)]
struct Faults {
    of_log_writes: AtomicUsize,
    of_log_syncs: AtomicUsize,
    of_windows: AtomicUsize,
    /// The stone has decided a group, and writes it to its log.
    is_logging: AtomicBool,
}

impl Faults {
    fn are_left(&self) -> bool {
        [&self.of_log_writes, &self.of_log_syncs, &self.of_windows].iter().any(|left| left.load(Ordering::SeqCst) > 0)
    }

    fn step(&self, step: Step) {
        if !is_flusher() {
            self.is_logging.store(step == Step::Applied || step == Step::Appended, Ordering::SeqCst);
        }
    }
}

impl StorageHook for Faults {
    fn before(&self, operation: StorageOperation, _: u64) -> io::Result<()> {
        let faults = match operation {
            StorageOperation::Write if is_flusher() => &self.of_windows,
            StorageOperation::Write if self.is_logging.load(Ordering::SeqCst) => &self.of_log_writes,
            StorageOperation::Sync if !is_flusher() && self.is_logging.load(Ordering::SeqCst) => &self.of_log_syncs,
            _ => return Ok(()),
        };
        let has_one = |left: usize| left.checked_sub(1);
        match faults.fetch_update(Ordering::SeqCst, Ordering::SeqCst, has_one) {
            Ok(_) => Err(io::Error::other("a planted fault")),
            Err(_) => Ok(()),
        }
    }
}

/// What the flusher passes before each window, and where it can be held.
struct Gate {
    /// How many windows have come, and up to which they pass.
    state: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Gate {
    fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new((0, usize::MAX)), changed: Condvar::new() })
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        let number = state.0;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| number > state.1).unwrap());
    }

    fn let_pass(&self, up_to: usize) {
        self.state.lock().unwrap().1 = up_to;
        self.changed.notify_all();
    }

    /// Holds all that have not come yet.
    fn shut(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 = state.0;
    }

    fn came(&self) -> usize {
        self.state.lock().unwrap().0
    }

    fn await_coming(&self, count: usize) {
        let state = self.state.lock().unwrap();
        let (_state, waited) = self.changed.wait_timeout_while(state, DEADLINE, |state| state.0 < count).unwrap();
        assert!(!waited.timed_out(), "window {count} does not come");
    }
}

/// L5: were a window tried again while a try of it is out, the second Ok would be taken for that of the next window.
#[test]
fn window_that_failed_is_never_tried_twice_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.redb");
    let (faults, gate) = (Arc::new(Faults::default()), Gate::new());
    let (failing, passing) = (faults.clone(), gate.clone());
    let hook = move |step| {
        failing.step(step);
        if step == Step::Flushing {
            passing.pass();
        }
    };
    let options = Committer::Worker.options().step_hook(hook).storage_hook(faults.clone());
    let (store, serving) = serving(&options, path.clone());
    enqueue(&store).unwrap();
    store.version().unwrap();

    let before = gate.came();
    faults.of_windows.store(1, Ordering::SeqCst);
    gate.let_pass(before);
    let first = enqueue(&store).unwrap();
    gate.await_coming(before + 1);
    // The next window has come when the first try fails, and waits while the second one is out.
    let second = enqueue(&store).unwrap();
    gate.let_pass(before + 1);
    gate.await_coming(before + 2);
    let error = enqueue(&store).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.full_message());
    thread::sleep(LONG); // waits: for the stone to do what it must not
    assert_eq!(gate.came(), before + 2);
    gate.let_pass(usize::MAX);
    let third = until("it takes changes again", || enqueue(&store).ok());
    store.version().unwrap();
    for id in [first, second, third] {
        store.job(id).unwrap();
    }
    // The try that failed, the one that was held, the window behind it, and that of the last job.
    assert!(gate.came() <= before + 4, "{} windows came", gate.came() - before);
    drop(serving);
    store.close().unwrap();
    assert_sound(&Store::open(&path).unwrap());
}

/// Answers a group that is not in its log and others that are, and brings nothing into the store's file from the moment
/// that the first one was made durable.
fn around() {
    let how = argument("how");
    let (faults, gate, is_last) = (Arc::new(Faults::default()), Gate::new(), Arc::new(AtomicBool::new(false)));
    let (failing, passing, shuts) = (faults.clone(), gate.clone(), is_last.clone());
    let hook = move |step| {
        failing.step(step);
        match step {
            Step::Flushing => passing.pass(),
            Step::Written if shuts.swap(false, Ordering::SeqCst) => passing.shut(),
            _ => {}
        }
    };
    let options = options().step_hook(hook).storage_hook(faults.clone());
    let (store, _serving) = serving(&options, path_here("app.redb"));
    let mut answered = vec![enqueue(&store).unwrap()];
    if how == "large and late" {
        // Its window fails at first, and not that of the first job; nobody is answered until that is mended.
        store.version().unwrap();
        faults.of_windows.store(1, Ordering::SeqCst);
        assert_eq!(enqueue_much(&store).unwrap_err().kind(), ErrorKind::Unknown);
    }
    is_last.store(true, Ordering::SeqCst);
    match how.as_str() {
        "large" => answered.extend(enqueue_much(&store).unwrap()),
        "append" => faults.of_log_writes.store(1, Ordering::SeqCst),
        "sync" => faults.of_log_syncs.store(1, Ordering::SeqCst),
        _ => {}
    }
    for _ in 0..3 {
        answered.push(until("it takes changes", || enqueue(&store).ok()));
    }
    assert!(!faults.are_left(), "{how}: nothing failed");
    assert!(store.path().unwrap().with_file_name("app.redb.d").join("log").exists());
    let ids: Vec<String> = answered.iter().map(ToString::to_string).collect();
    say(format!("answered {}", ids.join(" ")));
    await_line("leave");
}

/// L4, and for what no half of the log has room for: the group is in the store's file before any later one is answered,
/// or a recovery would find a gap where it was.
#[test]
fn group_around_the_log_is_in_the_file_before_any_later_one_is_answered() {
    for how in ["large", "append", "sync", "large and late"] {
        println!("{how}:");
        let scene = Scene::by(Committer::Worker);
        let mut victim: Actor = scene.actor("around", &[("how", how)]);
        let answered = victim.expect("answered");
        victim.kill();
        let store = scene.store();
        for id in answered.split_whitespace() {
            let job = store.job(id.parse().unwrap());
            assert!(job.is_ok(), "{how}: answered job {id}: {job:?}");
        }
        assert_sound(&store);
        store.close().unwrap();
    }
}
