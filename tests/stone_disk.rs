//! A full disk, or one that fails, under the process that commits for the others: it stays, refuses what is new, and
//! keeps what it answered.

#[path = "processes/disk.rs"]
mod disk;
mod processes;

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write as _},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use casque::{
    Error, ErrorKind, JobFilter, JobId, JobRequest, Store,
    hooks::{StorageHook, StorageOperation},
};
use disk::Disk;
use processes::{
    Actor, Committer, Observer, Scene, assert_sound, await_line, die, number_or, options, path_here, play, say, until,
};

/// Room for the log and a small store.
const SIZE: &str = "40m";
/// How many of a stone's first operations fail in turn: more than it needs until its log is in use.
const OPERATIONS_MAX: usize = 40;

#[test]
fn actor() {
    play(&[("filler", filler), ("beginner", beginner)]);
}

fn enqueue(store: &Store) -> casque::Result<JobId> {
    store.queue("default").enqueue(JobRequest::new("note", &"x".repeat(4_000)))
}

/// Enqueues until it is refused; gives how.
fn enqueue_until_refused(store: &Store, mut answered: impl FnMut(JobId)) -> Error {
    loop {
        match enqueue(store) {
            Ok(id) => answered(id),
            Err(error) => return error,
        }
    }
}

/// Takes all the space that is left.
fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    while file.write_all(&[7; 4096]).is_ok() {}
}

fn is_of_full_disk(error: &Error) {
    let message = error.full_message();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{message}");
    for part in ["the disk is full", "free some space", "app.redb"] {
        assert!(message.contains(part), "no \"{part}\" in: {message}");
    }
}

fn all_are_there(store: &Store, answered: &[JobId]) {
    let there: BTreeSet<JobId> =
        store.jobs(&JobFilter::new(), usize::MAX).unwrap().into_iter().map(|job| job.id).collect();
    assert!(answered.iter().all(|id| there.contains(id)), "an answered job is lost");
    assert_eq!(there.len(), answered.len(), "a refused job is there");
    assert_sound(store);
}

#[test]
fn stone_on_a_full_disk_stays_and_goes_on_when_there_is_space() {
    let scene = Scene::by(Committer::Worker);
    let Some(_disk) = Disk::mount(&scene.path("disk"), SIZE) else { return };
    let store = scene.options().open(scene.path("disk/app.redb")).unwrap();
    let serving = store.serve().unwrap();
    let own = Some(std::process::id());
    until("the seat", || (store.stone() == own).then_some(()));
    let mut answered = vec![enqueue(&store).unwrap()];
    store.version().unwrap();

    fill(&scene.path("disk/filler"));
    let error = enqueue_until_refused(&store, |id| answered.push(id));
    is_of_full_disk(&error);
    is_of_full_disk(&enqueue(&store).unwrap_err());
    assert_eq!(store.stone(), own, "it stays");
    fs::remove_file(scene.path("disk/filler")).unwrap();
    answered.push(until("space to be noticed", || enqueue(&store).ok()));
    assert_eq!(store.commits_by_path().direct, 0);
    println!("{} jobs were answered", answered.len());
    all_are_there(&store, &answered);
    drop(serving);
    store.close().unwrap();
}

/// Is the stone on a disk that is filled, and enqueues until it is refused.
fn filler() {
    let store = options().open(path_here("disk/app.redb")).unwrap();
    let _serving = store.serve().unwrap();
    until("the seat", || (store.stone()? == std::process::id()).then_some(()));
    let observer = Observer::open(&path_here("answered"));
    observer.note(&enqueue(&store).unwrap().to_string());
    store.version().unwrap();
    fill(&path_here("disk/filler"));
    is_of_full_disk(&enqueue_until_refused(&store, |id| observer.note(&id.to_string())));
    say("full");
    await_line("leave");
}

#[test]
fn what_was_answered_on_a_full_disk_is_there_though_the_stone_is_killed() {
    let scene = Scene::by(Committer::Worker);
    let Some(_disk) = Disk::mount(&scene.path("disk"), SIZE) else { return };
    let mut victim: Actor = scene.actor("filler", &[]);
    victim.expect("full");
    victim.kill();
    let open = || scene.options().open(scene.path("disk/app.redb"));
    // Whoever is first brings in what the log holds, and can't.
    is_of_full_disk(&open().and_then(|store| enqueue(&store)).unwrap_err());
    fs::remove_file(scene.path("disk/filler")).unwrap();
    let store = open().unwrap();
    let last = enqueue(&store).unwrap();
    let answered = Observer::open(&scene.path("answered")).lines();
    let mut answered: Vec<JobId> = answered.iter().map(|id| id.parse().unwrap()).collect();
    println!("{} jobs were answered", answered.len());
    answered.push(last);
    all_are_there(&store, &answered);
}

/// A disk whose n-th operation fails from when the process begins to be the stone; 0 for none.
#[derive(Debug, Default)]
struct FailAt {
    left: AtomicUsize,
}

impl StorageHook for FailAt {
    fn before(&self, operation: StorageOperation, _: u64) -> io::Result<()> {
        let changes = operation != StorageOperation::Read;
        let left = |left: usize| if changes { left.checked_sub(1) } else { None };
        match self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left) {
            Ok(1) => {
                say("failed");
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            _ => Ok(()),
        }
    }
}

/// Becomes the stone, for which one operation on the disk fails; enqueues some, and dies.
fn beginner() {
    let hook = Arc::new(FailAt::default());
    let store = options().storage_hook(hook.clone()).open(path_here("app.redb")).unwrap();
    let observer = Observer::open(&path_here("answered"));
    observer.note(&enqueue(&store).unwrap().to_string());
    hook.left.store(number_or("operation", 0), Ordering::SeqCst);
    let _serving = store.serve().unwrap();
    until("the seat", || (store.stone()? == std::process::id()).then_some(()));
    for _ in 0..3 {
        if let Ok(id) = enqueue(&store) {
            observer.note(&id.to_string());
        }
    }
    say("enqueued");
    die();
}

/// L1: a log that the store may not name is not relied on.
#[test]
fn what_a_stone_answered_is_there_though_any_one_write_of_its_beginning_failed() {
    for operation in 1.. {
        let scene = Scene::by(Committer::Worker);
        let mut victim = scene.actor("beginner", &[("operation", &operation.to_string())]);
        victim.expect("enqueued");
        victim.wait();
        let answered = Observer::open(&scene.path("answered")).lines();
        let store = scene.store();
        let there: BTreeSet<String> =
            store.jobs(&JobFilter::new(), usize::MAX).unwrap().into_iter().map(|job| job.id.to_string()).collect();
        assert!(answered.iter().all(|id| there.contains(id)), "{answered:?}, {there:?} after operation {operation}");
        assert_sound(&store);
        // The flusher's writes come with its first window, and so after the answers or between them.
        if victim.said("failed").is_none() || operation == OPERATIONS_MAX {
            println!("{operation} operations were tried");
            break;
        }
    }
}
