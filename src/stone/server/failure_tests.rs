//! A stone whose store's file, or whose place, fails: nobody who waits for it is forgotten.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::channel,
    },
    thread,
    time::Duration,
};

use crate::{
    engine::{StorageHook, StorageOperation},
    error::{ErrorKind, Result},
    stone::seat::Errand,
    store::{
        Store,
        change::Intent,
        committer::Step,
        inner::{Call, Serving},
        keys,
        open::StoreOptions,
        site::Site,
    },
};

/// How long a test waits for what must happen.
const DEADLINE: Duration = Duration::from_secs(30);

/// A store whose stone is this process.
fn serving(options: &StoreOptions, folder: &tempfile::TempDir) -> (Store, Serving) {
    let store = options.open(folder.path().join("app.redb")).unwrap();
    let serving = store.serve().unwrap();
    while store.stone().is_none() {
        thread::yield_now();
    }
    (store, serving)
}

/// Fails so many of the writes that bring windows into the store's file.
#[derive(Debug, Default)]
struct Faults {
    left: AtomicUsize,
}

impl StorageHook for Faults {
    fn before(&self, operation: StorageOperation, _: u64) -> io::Result<()> {
        if operation != StorageOperation::Write || thread::current().name() != Some("casque-flusher") {
            return Ok(());
        }
        match self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
            Ok(_) => Err(io::Error::other("a planted fault")),
            Err(_) => Ok(()),
        }
    }
}

#[test]
fn holders_are_called_when_a_window_that_failed_once_is_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let (store, _serving) = serving(&StoreOptions::new().storage_hook(faults.clone()), &folder);
    let (tell, told) = channel();
    let looking = store.clone();
    let call: Arc<Call> = Arc::new(move || {
        let head = looking.inner.peek().unwrap().get(&keys::head("default")).unwrap();
        tell.send(head.is_some()).unwrap();
    });
    store.inner.add_holder(&call);
    faults.left.store(1, Ordering::SeqCst);
    // The first row of the queue.
    store.queue("default").pause().unwrap();
    while !told.recv_timeout(DEADLINE).expect("nobody is called when it shows") {}
    assert_eq!(faults.left.load(Ordering::SeqCst), 0, "nothing failed");
}

/// What was asked in the turn in which it finds its place taken is nobody's loss: nothing of it was decided.
#[test]
fn stone_that_ends_hands_on_what_it_was_asked_in_its_last_turn() {
    let folder = tempfile::tempdir().unwrap();
    let (is_armed, reached, resume) = (Arc::new(AtomicBool::new(false)), channel(), channel::<()>());
    let (reach, resumed, armed) = (reached.0, Mutex::new(resume.1), is_armed.clone());
    let hook = move |step| {
        if step == Step::Written && armed.swap(false, Ordering::SeqCst) {
            reach.send(()).unwrap();
            resumed.lock().unwrap().recv().unwrap();
        }
    };
    let (store, _serving) = serving(&StoreOptions::new().step_hook(hook), &folder);
    let hand_in = || store.inner.submit_turn(vec![Intent::Promote { limit: 1 }], Duration::ZERO).unwrap();
    is_armed.store(true, Ordering::SeqCst);
    let first = hand_in();
    reached.1.recv_timeout(DEADLINE).unwrap();
    // It is busy with the first, and finds both of these in its next turn.
    let second = hand_in();
    let (tell, told) = channel();
    let work = Box::new(move |site: Result<&Site>| tell.send(site.map(drop)).unwrap());
    let sent = store.inner.committer.router().seat.send(Errand::Section { purpose: "a test", work });
    assert!(sent.is_ok(), "the seat is taken");
    std::fs::remove_file(folder.path().join("app.redb.d/lock")).unwrap();
    resume.0.send(()).unwrap();
    first.wait(&store.inner.site).unwrap();
    let answers = [second.wait(&store.inner.site).map(drop), told.recv_timeout(DEADLINE).expect("it is forgotten")];
    for error in answers.map(Result::unwrap_err) {
        let message = error.full_message();
        assert_eq!(error.kind(), ErrorKind::Closed, "{message}");
        assert!(message.contains("lock file") && message.contains("replaced or removed"), "{message}");
    }
}
