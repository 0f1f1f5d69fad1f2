//! S44: the files of a stone that was killed, with answered jobs in its log only: moved, copied, mixed up. What can't
//! be right is refused by name, and nothing is changed.

mod processes;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use casque::{ErrorKind, JobRequest, Result, State, Store, hooks::Step};
use processes::{Actor, Committer, Scene, assert_sound, await_line, options, path_here, play, say, until};

/// Jobs in the store's file, and those that are in the log only.
const IN_FILE: u64 = 3;
const IN_LOG: u64 = 5;

#[test]
fn actor() {
    play(&[("keeper", keeper)]);
}

fn enqueue(store: &Store) -> Result<casque::JobId> {
    store.queue("default").enqueue(JobRequest::new("note", &()))
}

fn ready(store: &Store) -> Result<u64> {
    store.queue("default").stats().map(|stats| stats.ready)
}

/// A stone that brings its last windows into the store's file only when they are many.
fn keeper() {
    let is_held = Arc::new(AtomicBool::new(false));
    let holds = is_held.clone();
    let hook = move |step| {
        if step == Step::Flushing && holds.load(Ordering::SeqCst) {
            loop {
                thread::park();
            }
        }
    };
    let store = options().step_hook(hook).open(path_here("app.redb")).unwrap();
    let _serving = store.serve().unwrap();
    until("the seat", || (store.stone()? == std::process::id()).then_some(()));
    for _ in 0..IN_FILE {
        enqueue(&store).unwrap();
    }
    store.version().unwrap();
    say("in file");
    await_line("go");
    // Windows that reuse both halves of the log.
    for _ in 0..4 {
        enqueue(&store).unwrap();
        store.version().unwrap();
    }
    is_held.store(true, Ordering::SeqCst);
    for _ in 0..IN_LOG {
        enqueue(&store).unwrap();
    }
    say("in log");
    await_line("leave");
}

/// All that the keeper has answered.
const ALL: u64 = IN_FILE + 4 + IN_LOG;

/// The files that a killed stone leaves; also a copy of the store that was made in the log's life, and one from before.
fn crashed() -> Scene {
    let scene = Scene::by(Committer::Worker);
    scene.store().close().unwrap();
    fs::copy(scene.store_path(), scene.path("before.redb")).unwrap();
    let mut keeper: Actor = scene.actor("keeper", &[]);
    keeper.expect("in file");
    fs::copy(scene.store_path(), scene.path("early.redb")).unwrap();
    keeper.tell("go");
    keeper.expect("in log");
    keeper.kill();
    scene
}

fn log_of(scene: &Scene) -> PathBuf {
    scene.path("app.redb.d/log")
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let target = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy_folder(&entry, &target);
        } else if entry.is_file() {
            fs::copy(&entry, &target).unwrap();
        }
    }
}

/// Reading and writing are both refused, the log named by path and id, and the store's file stays as it is.
fn refuses(scene: &Scene, store: &Path, log: &Path, why: &str) {
    let open = || scene.options().open(store);
    let tries = [open().and_then(|store| ready(&store).map(drop)), open().and_then(|store| enqueue(&store).map(drop))];
    for tried in tries {
        let error = tried.unwrap_err();
        let message = error.full_message();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{message}");
        for part in [log.to_str().unwrap(), why, "nothing was changed"] {
            assert!(message.contains(part), "no \"{part}\" in: {message}");
        }
        let id = message.split_once("needs log ").unwrap().1.split_once(' ').unwrap().0;
        assert!(id.len() == 32 && id.chars().all(|digit| digit.is_ascii_hexdigit()), "{message}");
    }
}

#[test]
fn crashed_store_is_whole_under_each_of_its_names_and_as_a_copy_of_all_files() {
    let scene = crashed();
    fs::copy(scene.store_path(), scene.path("copy.redb")).unwrap();
    copy_folder(&scene.path("app.redb.d"), &scene.path("copy.redb.d"));
    std::os::unix::fs::symlink(scene.store_path(), scene.path("link.redb")).unwrap();
    for name in ["link.redb", "copy.redb", "app.redb"] {
        let store = scene.options().open(scene.path(name)).unwrap();
        assert_eq!(ready(&store).unwrap(), ALL, "{name}");
        assert_sound(&store);
        store.close().unwrap();
    }
    assert!(!scene.path("link.redb.d").exists());
}

/// Who looks at what may be a moment old must not see that for ever where nobody writes.
#[test]
fn status_shows_what_a_killed_stone_has_answered_though_nobody_writes() {
    let scene = Scene::by(Committer::Worker);
    let store = scene.store();
    let mut keeper: Actor = scene.actor("keeper", &[]);
    keeper.expect("in file");
    let id = enqueue(&store).unwrap();
    keeper.tell("go");
    keeper.expect("in log");
    store.cancel(id).unwrap();
    let state = || store.status(id).unwrap().state;
    assert_eq!(state(), Some(State::Ready), "its window is held up");
    keeper.kill();
    until("the cancelling to show", || (state() == Some(State::Cancelled)).then_some(()));
}

#[test]
fn crashed_store_without_its_log_is_refused() {
    let scene = crashed();
    let copy = scene.path("copy.redb");
    fs::copy(scene.store_path(), &copy).unwrap();
    refuses(&scene, &copy, &scene.path("copy.redb.d/log"), "there is no such file");
    fs::rename(log_of(&scene), scene.path("log")).unwrap();
    refuses(&scene, &scene.store_path(), &log_of(&scene), "there is no such file");
    // The remedy that the message gives.
    fs::rename(scene.path("log"), log_of(&scene)).unwrap();
    assert_eq!(ready(&scene.store()).unwrap(), ALL);
    assert_sound(&scene.store());
}

#[test]
fn crashed_store_with_the_log_of_another_is_refused() {
    let (scene, other) = (crashed(), crashed());
    fs::rename(log_of(&scene), scene.path("log")).unwrap();
    fs::copy(log_of(&other), log_of(&scene)).unwrap();
    refuses(&scene, &scene.store_path(), &log_of(&scene), "the log of another store");
    fs::rename(scene.path("log"), log_of(&scene)).unwrap();
    for scene in [&scene, &other] {
        assert_eq!(ready(&scene.store()).unwrap(), ALL);
    }
}

#[test]
fn copy_that_its_log_has_left_behind_is_refused() {
    let scene = crashed();
    fs::copy(scene.path("early.redb"), scene.store_path()).unwrap();
    refuses(&scene, &scene.store_path(), &log_of(&scene), "does not continue from");
}

/// The store is served again, and does what one does.
fn serves_with(scene: &Scene, jobs: u64) {
    let store = scene.store();
    assert_eq!(ready(&store).unwrap(), jobs, "a foreign row has come in");
    let serving = store.serve().unwrap();
    until("the seat", || (store.stone()? == std::process::id()).then_some(()));
    enqueue(&store).unwrap();
    assert_eq!((ready(&store).unwrap(), store.commits_by_path().own_stone), (jobs + 1, 1));
    drop(serving);
    assert_sound(&store);
    store.close().unwrap();
}

#[test]
fn log_of_an_earlier_life_adds_nothing_to_a_new_store() {
    let scene = crashed();
    fs::remove_file(scene.store_path()).unwrap();
    serves_with(&scene, 0);
}

#[test]
fn log_of_a_later_life_adds_nothing_to_a_store_from_before() {
    let scene = crashed();
    fs::copy(scene.path("before.redb"), scene.store_path()).unwrap();
    serves_with(&scene, 0);
}
