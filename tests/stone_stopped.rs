//! The process that commits for the others is stopped, in the midst of load and at each step, and goes on or is killed.

mod processes;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use casque::{Error, ErrorKind, JobFilter, JobId, JobRequest, Queue, Result, Store, StoreOptions, hooks::Step};
use processes::{
    Actor, Committer, DEADLINE, Scene, argument, assert_sound, await_line, freeze, options, path_here, play, say, until,
};

const PATIENCE: Duration = Duration::from_secs(1);
const CALLERS: usize = 4;
/// For how long the stone is stopped.
const STOP: Duration = Duration::from_secs(5);
/// The number of the change of who comes late.
const LATE: usize = 1_000_000;

#[test]
fn actor() {
    play(&[("late", late), ("freezer", freezer)]);
}

/// One change: two jobs of that number.
fn enqueue_pair(queue: &Queue, number: usize) -> Result<Vec<JobId>> {
    queue.enqueue_batch([0, 1].map(|_| JobRequest::new("note", &number)))
}

fn impatient(options: StoreOptions) -> StoreOptions {
    options.timeout(PATIENCE)
}

/// Opens the store, and tells how a change ends.
fn late() {
    let opened = impatient(options()).open(path_here("app.redb"));
    let changed = opened.and_then(|store| enqueue_pair(&store.queue("default"), LATE).map(|_| store));
    match &changed {
        Ok(_) => say("late Ok"),
        Err(error) => say(format!("late {:?} {}", error.kind(), error.full_message())),
    }
    await_line("leave");
}

/// How many jobs there are of each number.
fn counts(store: &Store) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    for job in store.jobs(&JobFilter::new(), usize::MAX).unwrap() {
        *counts.entry(job.args.decode::<usize>().unwrap()).or_default() += 1;
    }
    counts
}

fn names(message: &str, stopped: &Actor) {
    for part in [&format!("process {}", stopped.pid()), "it is stopped"] {
        assert!(message.contains(part), "no \"{part}\" in: {message}");
    }
}

/// S43, S45.
#[test]
fn callers_of_a_stopped_stone_learn_who_it_is_and_what_may_still_come() {
    let scene = Scene::by(Committer::Worker);
    let mut server = scene.actor("stone", &[]);
    server.expect("serves");
    let store = impatient(scene.options()).open(scene.store_path()).unwrap();
    assert_eq!(store.stone(), Some(server.pid()));
    let queue = store.queue("default");

    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut outcomes: Vec<(usize, std::result::Result<(), Error>)> = thread::scope(|scope| {
        let call = || {
            let mut outcomes = Vec::new();
            while !is_over.load(Ordering::SeqCst) {
                let number = next.fetch_add(1, Ordering::SeqCst);
                outcomes.push((number, enqueue_pair(&queue, number).map(drop)));
            }
            outcomes
        };
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(call)).collect();
        until("some load", || (next.load(Ordering::SeqCst) > 200).then_some(()));
        server.stop();
        let mut late = scene.actor("late", &[]);
        let told = late.expect("late");
        assert!(told.starts_with("Unavailable ") && told.ends_with("nothing was written"), "{told}");
        names(&told, &server);
        thread::sleep(STOP); // waits: for as long as the stone is to be stopped
        server.go_on();
        until("a change after that", || enqueue_pair(&queue, next.fetch_add(1, Ordering::SeqCst)).ok());
        is_over.store(true, Ordering::SeqCst);
        late.tell("leave");
        late.finish();
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
    });

    // This one comes after all that was sent before it.
    until("the last change", || enqueue_pair(&queue, next.fetch_add(1, Ordering::SeqCst)).ok());
    let counts = counts(&store);
    assert!(counts.values().all(|count| *count == 2), "a change is there in part, or twice: {counts:?}");
    let mut kinds = BTreeMap::new();
    for (number, outcome) in &mut outcomes {
        let is_there = counts.contains_key(number);
        match outcome {
            Ok(()) => assert!(is_there, "change {number} was answered"),
            Err(error) => {
                let message = error.full_message();
                *kinds.entry(format!("{:?}", error.kind())).or_insert(0) += 1;
                names(&message, &server);
                match error.kind() {
                    ErrorKind::Unknown => assert!(message.contains("may or may not be committed"), "{message}"),
                    ErrorKind::Unavailable => assert!(!is_there, "change {number}: {message}"),
                    _ => panic!("{message}"),
                }
            }
        }
    }
    assert!(!counts.contains_key(&LATE), "nothing was written, and comes later all the same");
    println!("{} changes, of those {kinds:?}", outcomes.len());
    assert!(kinds["Unknown"] >= CALLERS, "each caller had sent one");
    assert_sound(&store);
    server.tell("leave");
    server.finish();
}

/// A stone that stops itself at the n-th passage of a step.
fn freezer() {
    let (at, left) = (argument("at"), Arc::new(AtomicUsize::new(3)));
    let hook = move |step: Step| {
        let is_there = thread::current().name().is_some_and(|name| ["casque-stone", "casque-flusher"].contains(&name));
        if is_there && format!("{step:?}") == at && left.fetch_sub(1, Ordering::SeqCst) == 1 {
            say("freezes");
            freeze();
        }
    };
    let store = options().step_hook(hook).open(path_here("app.redb")).unwrap();
    let _serving = store.serve().unwrap();
    until("the seat", || (store.stone()? == std::process::id()).then_some(()));
    say("serves");
    await_line("leave");
}

/// S43.
#[test]
fn stone_that_is_stopped_anywhere_and_killed_is_followed_by_another_that_has_all() {
    for at in ["Locked", "Applied", "Appended", "Written", "Flushing", "Flushed"] {
        let scene = Scene::by(Committer::Worker);
        let mut server = scene.actor("freezer", &[("at", at)]);
        server.expect("serves");
        let store = scene.options().timeout(DEADLINE).open(scene.store_path()).unwrap();
        assert_eq!(store.stone(), Some(server.pid()));
        let queue = store.queue("default");
        let is_over = AtomicBool::new(false);
        let answered = thread::scope(|scope| {
            let caller = scope.spawn(|| {
                let mut number = 0;
                while !is_over.load(Ordering::SeqCst) {
                    enqueue_pair(&queue, number).unwrap();
                    number += 1;
                }
                number
            });
            server.expect("freezes");
            server.await_stopped();
            let mut next = scene.actor("stone", &[]);
            server.kill();
            next.expect("serves");
            until("the next stone to answer", || (store.stone() == Some(next.pid())).then_some(()));
            is_over.store(true, Ordering::SeqCst);
            let answered = caller.join().unwrap();
            next.tell("leave");
            next.finish();
            answered
        });
        let counts = counts(&store);
        assert_eq!(counts, (0..answered).map(|number| (number, 2)).collect(), "stopped and killed at {at}");
        assert_sound(&store);
    }
}
