//! Backups that are taken while eight processes work, and what is restored from them: one moment of the store, with all
//! that was answered before, and a life of its own (S44). Killed, without space, or with any operation failed, there is
//! a whole file or none.

#[path = "processes/disk.rs"]
mod disk;
mod processes;

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::{MetadataExt as _, symlink},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use casque::{
    ErrorKind, Event, JobFilter, JobId, JobRequest, Registry, Store, StoreOptions, Worker,
    hooks::{StorageHook, StorageOperation},
    types::{Backup, Commits},
};
use disk::Disk;
use processes::{
    Actor, Committer, Observer, Scene, argument, assert_sound, await_line, close_here, die, expect_all, finish_all,
    number_or, observer_here, path_here, play, say, store_here, tell_all, until,
};

const PRODUCERS: usize = 4;
const WORKERS: usize = 4;
/// How many backups are taken of a store at work, where `CASQUE_BACKUPS` says nothing else, and after how many more
/// answers each.
const BACKUPS: usize = 6;
const ANSWERS_BETWEEN: usize = 200;

#[test]
fn actor() {
    play(&[("producer", producer), ("worker", worker), ("holder", holder), ("copier", copier)]);
}

/// Enqueues, and writes two objects far from each other in one change, and notes what was answered, until told to stop.
fn producer() {
    let store = store_here();
    let answered = Observer::open(&path_here("answered"));
    let number = argument("number");
    let stop = stop_line();
    say("begun");
    for turn in 1u64.. {
        let id = store.queue("default").enqueue(JobRequest::new("note", &()).keep()).unwrap();
        answered.note(&format!("job {id}"));
        let put = |key: &str| format!("{key}/{number}");
        let keys = (put("a"), put("z"));
        store.transaction(|tx| tx.put(&keys.0, &turn).and_then(|()| tx.put(&keys.1, &turn))).unwrap();
        answered.note(&format!("turn {number} {turn}"));
        if stop.load(Ordering::SeqCst) {
            break;
        }
    }
    close_here(store);
}

fn stop_line() -> Arc<std::sync::atomic::AtomicBool> {
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let heard = stop.clone();
    std::thread::spawn(move || {
        await_line("stop");
        heard.store(true, Ordering::SeqCst);
    });
    stop
}

fn worker() {
    let store = store_here();
    let runs = observer_here();
    let mut tasks = Registry::new();
    let handler = move |job: &casque::Job, (): ()| {
        runs.note_run(job);
        Ok(())
    };
    tasks.register("note", handler).unwrap();
    let worker = Worker::new(&store).tasks(tasks).concurrency(2);
    let stop = worker.stop_handle();
    std::thread::spawn(move || {
        await_line("stop");
        stop.stop();
    });
    say("begun");
    worker.run().unwrap();
    close_here(store);
}

/// Runs jobs that do not end before the test says so.
fn holder() {
    let store = store_here();
    let mut tasks = Registry::new();
    let is_let_go = Arc::new(Mutex::new(()));
    let guard = is_let_go.lock().unwrap();
    let waits = is_let_go.clone();
    tasks
        .register("note", move |job, (): ()| {
            say(format!("runs {}", job.id()));
            drop(waits.lock());
            Ok(())
        })
        .unwrap();
    let held = number_or("held", 1);
    let worker = Worker::new(&store).tasks(tasks).concurrency(held).prefetch(0).drain(true);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| worker.run().unwrap());
        await_line("go on");
        drop(guard);
        run.join().unwrap();
    });
    close_here(store);
}

/// Copies, and dies before the n-th operation of the storage since it began.
fn copier() {
    let killer = Arc::new(Nth::new(u64::try_from(number_or("operation", 0)).unwrap(), Then::Die));
    copy(&argument("how"), &killer, &path_here("")).unwrap();
    say(format!("operations {}", killer.counted()));
}

/// Takes a backup of, or restores, what is in this folder.
fn copy(how: &str, hook: &Arc<Nth>, folder: &Path) -> casque::Result<Backup> {
    let options = StoreOptions::new().commits(Commits::DirectOnly).storage_hook(hook.clone());
    if how == "backup" {
        let store = options.read_only().open(folder.join("app.redb"))?;
        hook.arm();
        store.backup(folder.join("copies/copy.redb"))
    } else {
        hook.arm();
        options.restore(folder.join("app.backup"), folder.join("copies/copy.redb"))
    }
}

#[derive(Clone, Copy, Debug)]
enum Then {
    Die,
    Fail,
}

/// Does something before the n-th operation of the storage since it was armed.
#[derive(Debug)]
struct Nth {
    at: u64,
    then: Then,
    armed: AtomicU64,
    counted: AtomicU64,
}

impl Nth {
    fn new(at: u64, then: Then) -> Self {
        Self { at, then, armed: AtomicU64::new(0), counted: AtomicU64::new(0) }
    }

    fn arm(&self) {
        self.armed.store(1, Ordering::SeqCst);
    }

    fn counted(&self) -> u64 {
        self.counted.load(Ordering::SeqCst)
    }
}

impl StorageHook for Nth {
    fn before(&self, _: StorageOperation, _: u64) -> io::Result<()> {
        if self.armed.load(Ordering::SeqCst) == 0 || self.counted.fetch_add(1, Ordering::SeqCst) + 1 != self.at {
            return Ok(());
        }
        match self.then {
            Then::Die => die(),
            Then::Fail => Err(io::Error::other("a planted failure")),
        }
    }
}

fn open(path: &Path) -> Store {
    StoreOptions::new().commits(Commits::DirectOnly).create(false).open(path).unwrap()
}

fn jobs(store: &Store) -> BTreeSet<JobId> {
    store.jobs(&JobFilter::new(), usize::MAX).unwrap().into_iter().map(|job| job.id).collect()
}

/// The copy is sound, shows one moment, and has all that was answered before it was asked for.
fn judge(backup: &Backup, answered: &[String]) {
    let store = open(&backup.path);
    assert_sound(&store);
    assert_eq!(store.version().unwrap(), backup.version);
    let there = jobs(&store);
    for line in answered {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["job", id] => assert!(there.contains(&id.parse().unwrap()), "job {id} was answered and is not there"),
            ["turn", number, turn] => {
                let [a, z] = ["a", "z"].map(|key| store.get::<u64>(&format!("{key}/{number}")).unwrap().unwrap());
                assert!(a >= turn.parse().unwrap(), "turn {turn} of {number} was answered and is not there");
                assert_eq!(a, z, "half of a change is there");
            }
            _ => panic!("what is {line}"),
        }
    }
    store.close().unwrap();
}

fn backups_under_load(committer: Committer) {
    let scene = Scene::without_disk(committer);
    scene.store().close().unwrap();
    let numbers: Vec<String> = (0..PRODUCERS).map(|number| number.to_string()).collect();
    let mut actors: Vec<Actor> = numbers.iter().map(|number| scene.actor("producer", &[("number", number)])).collect();
    actors.extend((0..WORKERS).map(|_| scene.actor("worker", &[])));
    expect_all(&mut actors, "begun");
    let observer = Observer::open(&scene.path("answered"));
    let mut backups = Vec::new();
    let rounds = std::env::var("CASQUE_BACKUPS").map_or(BACKUPS, |count| count.parse().unwrap());
    for round in 1..=rounds {
        let answered =
            until("more answers", || Some(observer.lines()).filter(|lines| lines.len() >= round * ANSWERS_BETWEEN));
        let store = scene.store();
        let backup = store.backup(scene.path(&format!("{round}.backup"))).unwrap();
        store.close().unwrap();
        backups.push((backup, answered));
    }
    let all = observer.lines().len();
    tell_all(&mut actors, "stop");
    finish_all(actors);
    assert!(all > backups.last().unwrap().1.len(), "nobody was answered while the last backup was taken");
    for (backup, answered) in &backups {
        judge(backup, answered);
    }
    // And one that was at work goes on where it was put.
    let (backup, answered) = backups.last().unwrap();
    let restored = Store::restore(&backup.path, scene.path("restored.redb")).unwrap();
    judge(&restored, answered);
    let store = open(&restored.path);
    drain(&store);
    let states: BTreeSet<String> =
        store.jobs(&JobFilter::new(), usize::MAX).unwrap().iter().map(|job| job.state.to_string()).collect();
    assert_eq!(states, BTreeSet::from(["completed".to_owned()]));
    assert_sound(&store);
    let last = backup.version;
    println!("{committer:?}: {rounds} backups beside {PRODUCERS} producers and {WORKERS} workers, to version {last}");
}

/// Runs all that there is; gives which jobs ran, and which of them were taken back from somebody.
fn drain(store: &Store) -> (Vec<JobId>, BTreeSet<JobId>) {
    let ran = Arc::new(Mutex::new(Vec::new()));
    let recovered = Arc::new(Mutex::new(BTreeSet::new()));
    let (noted, told) = (ran.clone(), recovered.clone());
    let mut tasks = Registry::new();
    let handler = move |job: &casque::Job, (): ()| {
        noted.lock().unwrap().push(job.id());
        Ok(())
    };
    tasks.register("note", handler).unwrap();
    let listen = move |event: &Event| {
        if let Event::Recovered { jobs, .. } = event {
            told.lock().unwrap().extend(jobs);
        }
    };
    Worker::new(store).tasks(tasks).listen(listen).drain(true).run().unwrap();
    let (ran, recovered) = (ran.lock().unwrap().clone(), recovered.lock().unwrap().clone());
    (ran, recovered)
}

#[test]
fn backups_beside_eight_processes_that_commit_by_themselves_are_whole() {
    backups_under_load(Committer::Itself);
}

#[test]
fn backups_beside_eight_processes_and_their_stone_are_whole() {
    backups_under_load(Committer::Server);
}

fn enqueue(store: &Store, count: usize) -> Vec<JobId> {
    store.queue("default").enqueue_batch((0..count).map(|_| JobRequest::new("note", &()).keep())).unwrap()
}

#[test]
fn restored_store_takes_up_the_jobs_that_ran_though_their_worker_lives_and_the_old_store_goes_on() {
    const HELD: usize = 3;
    let scene = Scene::by(Committer::Server);
    let store = scene.store();
    let all = enqueue(&store, 20);
    let lock = store.lock("a lock").unwrap();
    let mut holder = scene.actor("holder", &[("held", &HELD.to_string())]);
    let running: BTreeSet<JobId> = (0..HELD).map(|_| holder.expect("runs").parse().unwrap()).collect();
    let backup = store.backup(scene.path("app.backup")).unwrap();
    let restored = Store::restore(&backup.path, scene.path("other.redb")).unwrap();
    // The file of the living session itself, lest it be taken for one of the copy.
    let sessions = fs::read_dir(scene.path("app.redb.d/sessions")).unwrap();
    for session in sessions.map(|entry| entry.unwrap()) {
        fs::hard_link(session.path(), scene.path("other.redb.d/sessions").join(session.file_name())).unwrap();
    }

    let other = open(&restored.path);
    assert!(other.try_lock("a lock").unwrap().is_some(), "who held it is of another life");
    let (mut ran, recovered) = drain(&other);
    assert_eq!(recovered, running);
    ran.sort_unstable();
    assert_eq!(ran, all, "each runs once");
    for id in &all {
        let job = other.job(*id).unwrap();
        assert_eq!((job.state.to_string().as_str(), job.attempt), ("completed", 1), "job {id}");
    }
    assert_sound(&other);
    other.close().unwrap();

    drop(lock);
    holder.tell("go on");
    holder.finish();
    assert!(all.iter().all(|id| store.job(*id).unwrap().state.to_string() == "completed"));
    assert_sound(&store);
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let target = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy_folder(&entry, &target);
        } else if entry.is_file() {
            fs::copy(&entry, &target).unwrap();
        }
    }
}

#[test]
fn log_of_the_old_life_adds_nothing_to_a_backup_or_to_what_is_restored_from_it() {
    let scene = Scene::by(Committer::Worker);
    scene.store().close().unwrap();
    let mut server = scene.actor("stone", &[]);
    server.expect("serves");
    let store = scene.store();
    let before: BTreeSet<JobId> = enqueue(&store, 3).into_iter().collect();
    let backup = store.backup(scene.path("app.backup")).unwrap();
    enqueue(&store, 5);
    server.kill();
    drop(store);
    let old = scene.path("app.redb.d");
    assert!(old.join("log").exists());

    for name in ["other.redb", "linked.redb"] {
        Store::restore(&backup.path, scene.path(name)).unwrap();
    }
    symlink(scene.path("linked.redb"), scene.path("link.redb")).unwrap();
    for beside in ["other.redb.d", "linked.redb.d", "link.redb.d", "app.backup.d"] {
        copy_folder(&old, &scene.path(beside));
    }
    for name in ["other.redb", "link.redb", "app.backup"] {
        let store = scene.options().open(scene.path(name)).unwrap();
        assert_eq!(jobs(&store), before, "{name}: a foreign row has come in, or one is missing");
        // Also where a stone would use that log.
        let serving = store.serve().unwrap();
        until("the seat", || (store.stone()? == std::process::id()).then_some(()));
        enqueue(&store, 1);
        assert_eq!(jobs(&store).len(), before.len() + 1, "{name}");
        drop(serving);
        assert_sound(&store);
        store.close().unwrap();
    }
    // A folder that leads to the old one would share its lock with another store.
    fs::remove_dir_all(scene.path("other.redb.d")).unwrap();
    symlink(&old, scene.path("other.redb.d")).unwrap();
    let error = scene.options().open(scene.path("other.redb")).unwrap_err();
    assert!(error.full_message().contains("a symbolic link"), "{}", error.full_message());
    // The old one is what it was, with all that was answered.
    assert_eq!(jobs(&scene.store()).len(), before.len() + 5);
}

/// What is in a folder.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A store, a backup of it, and a folder for copies.
fn with_backup(committer: Committer, jobs: usize) -> Scene {
    let scene = Scene::without_disk(committer);
    fs::create_dir(scene.path("copies")).unwrap();
    let store = scene.store();
    for _ in 0..jobs {
        store.queue("default").enqueue(JobRequest::new("note", &"x".repeat(2_000))).unwrap();
    }
    store.backup(scene.path("app.backup")).unwrap();
    store.close().unwrap();
    scene
}

#[test]
fn kill_in_a_backup_or_a_restore_leaves_nothing_at_its_place_and_the_next_one_is_whole() {
    for how in ["backup", "restore"] {
        let scene = with_backup(Committer::Itself, 30);
        let whole = scene.path("copies/copy.redb");
        let mut counter = scene.actor("copier", &[("how", how)]);
        let all: u64 = counter.expect("operations").parse().unwrap();
        counter.finish();
        let remove = || {
            fs::remove_file(&whole).unwrap();
            let _ = fs::remove_dir_all(scene.path("copies/copy.redb.d"));
        };
        remove();
        // The first, the last, and some between.
        let kills: BTreeSet<u64> = (0..8).map(|kill| 1 + kill * (all - 1) / 7).collect();
        for kill in &kills {
            let mut killed = scene.actor("copier", &[("how", how), ("operation", &kill.to_string())]);
            assert!(!killed.wait().success(), "{how}: it outlived operation {kill} of {all}");
            assert!(!whole.exists(), "{how}: killed before operation {kill} of {all}");
        }
        scene.actor("copier", &[("how", how)]).finish();
        let visible = names(&scene.path("copies"));
        let expected: &[&str] = if how == "backup" { &["copy.redb"] } else { &["copy.redb", "copy.redb.d"] };
        assert_eq!(visible, expected, "what was killed has left something");
        let store = open(&whole);
        assert_eq!(jobs(&store).len(), 30);
        assert_sound(&store);
        println!("{how}: killed before {kills:?} of {all} operations");
    }
}

#[test]
fn whichever_operation_of_the_storage_fails_there_is_a_whole_copy_or_none() {
    for how in ["backup", "restore"] {
        let scene = with_backup(Committer::Itself, 10);
        let (mut failed, mut whole) = (0, 0);
        for nth in 1.. {
            let hook = Arc::new(Nth::new(nth, Then::Fail));
            let copied = copy(how, &hook, &scene.path(""));
            let path = scene.path("copies/copy.redb");
            if let Err(error) = &copied {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.full_message());
                failed += 1;
            } else {
                let store = open(&path);
                assert_eq!(jobs(&store).len(), 10, "{how}, operation {nth}");
                assert_sound(&store);
                drop(store);
                fs::remove_file(&path).unwrap();
                whole += 1;
            }
            let _ = fs::remove_dir_all(scene.path("copies/copy.redb.d"));
            assert_eq!(names(&scene.path("copies")), Vec::<String>::new(), "{how}, operation {nth}");
            if hook.counted() < nth {
                break;
            }
        }
        println!("{how}: {failed} failed, {whole} whole");
        assert!(failed > 10);
    }
}

#[test]
fn full_disk_leaves_no_backup_and_no_store() {
    let scene = with_backup(Committer::Itself, 1_000);
    let store = scene.store();
    // No room for the rows; for them, but not for a store as well; for both.
    for (size, fits) in [("1m", false), ("4m", false), ("24m", true)] {
        let disk = scene.path(size);
        let Some(_disk) = Disk::mount(&disk, size) else { return };
        let backup = store.backup(disk.join("copy.redb"));
        if fits {
            judge(&backup.unwrap(), &[]);
            continue;
        }
        let restored = Store::restore(scene.path("app.backup"), disk.join("other.redb"));
        let tried = if size == "1m" { vec![backup, restored] } else { vec![backup] };
        for tried in tried {
            let error = tried.unwrap_err();
            let message = error.full_message();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{message}");
            assert!(message.contains("free some") && message.contains(size), "{message}");
        }
        let left: Vec<String> = names(&disk).into_iter().filter(|name| name != "other.redb.d").collect();
        assert_eq!(left, Vec::<String>::new(), "on the disk of {size}");
    }
}

#[test]
fn backup_and_restored_store_are_their_owners_alone() {
    let scene = with_backup(Committer::Itself, 1);
    let restored = Store::restore(scene.path("app.backup"), scene.path("other.redb")).unwrap();
    for (path, mode) in [(scene.path("app.backup"), 0o600), (restored.path, 0o600), (scene.path("other.redb.d"), 0o700)]
    {
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, mode, "{}", path.display());
    }
}

#[test]
fn damaged_backup_is_told_of_and_not_put_in_place() {
    let scene = with_backup(Committer::Itself, 30);
    let whole = fs::read(scene.path("app.backup")).unwrap();
    let needle = [b'x'; 64];
    let at = whole.windows(needle.len()).position(|window| window == needle).unwrap();
    let mut flipped = whole.clone();
    flipped[at + 32] ^= 1;
    let damages = [("a bit in a value", flipped), ("the end cut off", whole[..whole.len() / 2].to_vec())];
    for (what, bytes) in damages {
        fs::write(scene.path("bad.backup"), bytes).unwrap();
        let error = Store::restore(scene.path("bad.backup"), scene.path("other.redb")).unwrap_err();
        let message = error.full_message();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {message}");
        for part in ["bad.backup", "nothing was restored"] {
            assert!(message.contains(part), "{what}: no \"{part}\" in: {message}");
        }
        assert!(!scene.path("other.redb").exists(), "{what}");
    }
}

#[test]
fn restore_refuses_a_place_that_is_taken_and_a_store_that_is_at_work() {
    let scene = with_backup(Committer::Worker, 3);
    let refused = |from: &str, to: &str, parts: &[&str]| {
        let error = Store::restore(scene.path(from), scene.path(to)).unwrap_err();
        let message = error.full_message();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{message}");
        for part in parts {
            assert!(message.contains(part), "no \"{part}\" in: {message}");
        }
    };
    refused("app.backup", "app.redb", &["app.redb", "is there already"]);
    symlink(scene.path("nowhere"), scene.path("link.redb")).unwrap();
    refused("app.backup", "link.redb", &["link.redb", "is there already"]);
    let mut stone = scene.actor("stone", &[]);
    stone.expect("serves");
    let pid = stone.pid().to_string();
    refused("app.redb", "other.redb", &[&pid, "app.redb", "casque backup"]);
    fs::rename(scene.path("app.redb"), scene.path("moved.redb")).unwrap();
    refused("app.backup", "app.redb", &[&pid, "end it first"]);
    stone.kill();
    // The file without its log, and the place with the log of the file that was there.
    refused("app.backup", "app.redb", &["app.redb.d/log", "move the folder"]);
    refused("moved.redb", "other.redb", &["moved.redb", "a log beside it"]);
    for name in ["app.redb", "other.redb"] {
        assert!(!scene.path(name).exists(), "{name}");
    }
    fs::rename(scene.path("app.redb.d"), scene.path("moved.redb.d")).unwrap();
    Store::restore(scene.path("app.backup"), scene.path("app.redb")).unwrap();
    assert_eq!(jobs(&open(&scene.path("app.redb"))).len(), 3);
    assert_sound(&scene.options().open(scene.path("moved.redb")).unwrap());
}

#[test]
fn store_in_memory_can_be_backed_up() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::in_memory().unwrap();
    let ids = enqueue(&store, 3);
    let backup = store.backup(folder.path().join("copy.redb")).unwrap();
    assert_eq!(jobs(&open(&backup.path)), ids.into_iter().collect());
    assert_eq!(store.backup(&backup.path).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(store.backup(folder.path().join("none/copy.redb")).unwrap_err().kind(), ErrorKind::NotFound);
    let patience = Duration::from_secs(5);
    assert!(StoreOptions::new().timeout(patience).restore(&backup.path, folder.path().join("on.redb")).is_ok());
}
