//! A full disk under the process that commits for the others: it stays, refuses what is new, and keeps what it
//! answered.

#[path = "processes/disk.rs"]
mod disk;
mod processes;

use std::{collections::BTreeSet, fs, io::Write as _, path::Path};

use casque::{Error, ErrorKind, JobFilter, JobId, JobRequest, Store};
use disk::Disk;
use processes::{Actor, Committer, Observer, Scene, assert_sound, await_line, options, path_here, play, say, until};

/// Room for the log and a small store.
const SIZE: &str = "40m";

#[test]
fn actor() {
    play(&[("filler", filler)]);
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
