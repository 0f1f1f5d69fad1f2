//! What many processes on one store may expect of each other: all of them at once, some killed, one stopped while it
//! writes, one that never pauses, and files that somebody moved.

mod processes;

use std::{
    collections::HashSet,
    fs, io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::channel,
    },
    thread,
    time::Duration,
};

use casque::{
    ErrorKind, JobRequest, Registry, Store, StoreOptions, Worker,
    hooks::{Step, StorageHook, StorageOperation},
};
use processes::{
    Actor, DEADLINE, Observer, Scene, argument, assert_sound, await_line, close_here, expect_all, finish_all, freeze,
    number_or, observer_here, options, path_here, play, say, store_here, tell_all, until,
};

#[test]
fn actor() {
    play(&[
        ("producer", producer),
        ("consumer", consumer),
        ("visitor", visitor),
        ("freezer", freezer),
        ("maker", maker),
        ("writer", writer),
        ("reader", reader),
        ("looper", looper),
        ("holder", holder),
    ]);
}

fn enqueue_one(store: &Store) -> casque::Result<casque::JobId> {
    store.queue("default").enqueue(JobRequest::new("note", &"the same bytes"))
}

/// Enqueues the same job again and again.
fn producer() {
    let store = options().open(path_here(&argument("store"))).unwrap();
    let answered = Observer::open(&path_here("answered"));
    say("ready");
    await_line("go");
    for _ in 0..number_or("jobs", 1) {
        answered.note(&enqueue_one(&store).unwrap().to_string());
    }
    close_here(store);
}

/// Claims without a worker, until told to leave.
fn consumer() {
    let store = store_here();
    let observer = observer_here();
    let leaves = Arc::new(AtomicBool::new(false));
    let told = leaves.clone();
    thread::spawn(move || {
        await_line("leave");
        told.store(true, Ordering::SeqCst);
    });
    let queue = store.queue("default");
    while !leaves.load(Ordering::SeqCst) {
        for lease in queue.claim(5, Duration::from_millis(100)).unwrap() {
            lease.start().unwrap();
            assert_eq!(lease.args::<String>().unwrap(), "the same bytes");
            observer.note(&format!("{} {} {}", lease.id(), lease.token(), std::process::id()));
            lease.complete().unwrap();
        }
    }
    close_here(store);
}

#[test]
fn thousand_identical_enqueues_are_a_thousand_deliveries() {
    // S12
    let scene = Scene::new();
    let store = scene.store();
    let mut producers: Vec<Actor> =
        (0..8).map(|_| scene.actor("producer", &[("store", "app.redb"), ("jobs", "125")])).collect();
    let mut consumers: Vec<Actor> = (0..8).map(|_| scene.actor("consumer", &[])).collect();
    expect_all(&mut producers, "ready");
    tell_all(&mut producers, "go");
    finish_all(producers);
    until("a thousand completions", || (store.queue("default").stats().unwrap().completed == 1_000).then_some(()));
    tell_all(&mut consumers, "leave");
    finish_all(consumers);

    let answered: Vec<String> = Observer::open(&scene.path("answered")).lines();
    let delivered = scene.observer().jobs();
    let (ids, jobs): (HashSet<&String>, HashSet<&String>) = (answered.iter().collect(), delivered.iter().collect());
    assert_eq!([answered.len(), ids.len(), delivered.len(), jobs.len()], [1_000; 4]);
    assert_eq!(ids, jobs);
    assert_sound(&store);
}

/// Opens, enqueues, claims, completes and closes, round after round; says what went wrong.
fn visitor() {
    say("ready");
    await_line("go");
    let answered = Observer::open(&path_here("answered"));
    for _ in 0..40 {
        let visit = || {
            let store = options().open(path_here("app.redb"))?;
            let job = enqueue_one(&store)?;
            answered.note(&job.to_string());
            for lease in store.queue("default").claim(1, Duration::ZERO)? {
                lease.complete()?;
            }
            store.close()
        };
        match visit() {
            Ok(()) => say("round"),
            Err(error) => say(format!("wrong: {:?}: {}", error.kind(), error.full_message())),
        }
    }
    say("done");
}

#[test]
fn eight_processes_come_and_go_at_once_and_some_are_killed() {
    // S34
    let scene = Scene::new();
    let mut visitors: Vec<Actor> = (0..8).map(|_| scene.actor("visitor", &[])).collect();
    expect_all(&mut visitors, "ready");
    // There is no store yet: they race to make it, too.
    tell_all(&mut visitors, "go");
    let mut all_lines = Vec::new();
    for round in 0..12 {
        let mut victim = visitors.remove(round % 8);
        for _ in 0..round % 3 {
            victim.expect("round");
        }
        victim.kill();
        all_lines.extend(std::iter::from_fn(|| victim.line_within(DEADLINE).unwrap()));
        let mut other = scene.actor("visitor", &[]);
        other.tell("go");
        visitors.push(other);
    }
    let last_lines = finish_all(visitors);
    // A victim may have been done before it was killed; those that were left alone all are.
    assert_eq!(last_lines.iter().filter(|line| *line == "done").count(), 8);
    all_lines.extend(last_lines);
    let wrong: Vec<&String> = all_lines.iter().filter(|line| line.starts_with("wrong")).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");

    let store = scene.store();
    assert_sound(&store);
    let stats = store.queue("default").stats().unwrap();
    let answered = Observer::open(&scene.path("answered")).lines().len() as u64;
    assert!(stats.completed + stats.ready + stats.running >= answered, "{stats:?}, {answered} answered");
    // What the killed ones held goes to whoever works next.
    let mut tasks = Registry::new();
    tasks.register("note", |_, _: String| Ok(())).unwrap();
    Worker::new(&store).tasks(tasks).prefetch(50).drain(true).run().unwrap();
    let stats = store.queue("default").stats().unwrap();
    assert_eq!((stats.ready, stats.running, stats.dead), (0, 0, 0));
    assert!(stats.completed >= answered);
    assert_sound(&store);
}

/// Stops itself at a step of its second commit.
fn freezer() {
    let at = argument("at");
    let armed = Arc::new(AtomicBool::new(false));
    let is_armed = armed.clone();
    let hook = move |step: Step| {
        if format!("{step:?}") == at && is_armed.swap(false, Ordering::SeqCst) {
            say("freezes");
            freeze();
        }
    };
    let store = options().label("the freezer").step_hook(hook).open(path_here("app.redb")).unwrap();
    enqueue_one(&store).unwrap();
    armed.store(true, Ordering::SeqCst);
    say(format!("enqueued {}", enqueue_one(&store).unwrap()));
    await_line("leave");
    store.close().unwrap();
}

/// A process that is stopped while it holds the writer's lock.
fn frozen(scene: &Scene, at: &str) -> Actor {
    let mut freezer = scene.actor("freezer", &[("at", at)]);
    freezer.expect("freezes");
    freezer.await_stopped();
    freezer
}

#[test]
fn callers_learn_who_holds_the_lock_and_that_nothing_was_written() {
    // S35
    for at in ["Locked", "Applied"] {
        let scene = Scene::new();
        let mut freezer = frozen(&scene, at);
        let store = impatient().open(scene.store_path()).unwrap();
        let stats = || store.queue("default").stats().unwrap();
        assert_eq!(stats().ready, 1, "reading goes on");
        for _ in 0..3 {
            let error = enqueue_one(&store).unwrap_err();
            let message = error.full_message();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{message}");
            for part in [&freezer.pid().to_string(), "the freezer", "it is stopped", "commit", "nothing was written"] {
                assert!(message.contains(part), "no \"{part}\" in: {message}");
            }
        }
        freezer.go_on();
        freezer.expect("enqueued");
        let version = store.version().unwrap();
        // This one gets behind those that timed out, and finds none of them done.
        let patient = enqueue_one(&store).or_else(|_| enqueue_one(&store)).unwrap();
        assert_eq!(patient.to_string(), (version.0 + 1).to_string());
        assert_eq!(stats().ready, 3);
        freezer.tell("leave");
        freezer.finish();
        assert_sound(&store);
    }
}

#[test]
fn killing_the_stopped_holder_lets_the_waiting_go_on() {
    // S35
    for at in ["BeforeLock", "Locked", "Applied", "Written"] {
        let scene = Scene::new();
        let mut freezer = frozen(&scene, at);
        let store = options().timeout(DEADLINE).open(scene.store_path()).unwrap();
        let (done, answer) = channel();
        let waiting = store.clone();
        thread::spawn(move || done.send(enqueue_one(&waiting)));
        freezer.kill();
        answer.recv_timeout(DEADLINE).expect("it is answered").unwrap();
        let ready = store.queue("default").stats().unwrap().ready;
        assert_eq!(ready, if at == "Written" { 3 } else { 2 }, "killed at {at}");
        assert_sound(&store);
    }
}

/// Stops before the first write to the disk.
#[derive(Debug, Default)]
struct FreezeBeforeWrite(AtomicBool);

impl StorageHook for FreezeBeforeWrite {
    fn before(&self, operation: StorageOperation, _: u64) -> io::Result<()> {
        if operation == StorageOperation::Write && !self.0.swap(true, Ordering::SeqCst) {
            say("freezes");
            freeze();
        }
        Ok(())
    }
}

/// Makes the store, and stops in the midst of that.
fn maker() {
    let hook = Arc::new(FreezeBeforeWrite::default());
    let store = options().label("the maker").storage_hook(hook).open(path_here("app.redb")).unwrap();
    enqueue_one(&store).unwrap();
    store.close().unwrap();
}

/// Stops before the n-th operation on the storage, of those that a commit makes.
#[derive(Debug)]
struct FreezeWhileWriting {
    is_writing: AtomicBool,
    left: AtomicUsize,
}

impl StorageHook for FreezeWhileWriting {
    fn before(&self, operation: StorageOperation, _: u64) -> io::Result<()> {
        if self.is_writing.load(Ordering::SeqCst) && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            say(format!("freezes before {operation:?}"));
            freeze();
        }
        Ok(())
    }
}

/// Stops in the midst of writing its second commit.
fn writer() {
    let hook = Arc::new(FreezeWhileWriting {
        is_writing: AtomicBool::new(false),
        left: AtomicUsize::new(number_or("operation", 1)),
    });
    let steps = hook.clone();
    let armed = Arc::new(AtomicBool::new(false));
    let is_armed = armed.clone();
    let step =
        move |step| steps.is_writing.store(step == Step::Applied && is_armed.load(Ordering::SeqCst), Ordering::SeqCst);
    let store = options().label("the writer").storage_hook(hook).step_hook(step).open(path_here("app.redb")).unwrap();
    enqueue_one(&store).unwrap();
    armed.store(true, Ordering::SeqCst);
    enqueue_one(&store).unwrap();
    say("wrote");
    await_line("leave");
}

/// How many jobs are ready, to an impatient reader; or how it was refused.
fn look(store: &casque::Result<Store>) -> String {
    let refused = |error: &casque::Error| format!("{:?}: {}", error.kind(), error.full_message());
    match store.as_ref().map(|store| store.queue("default").stats()) {
        Ok(Ok(stats)) => stats.ready.to_string(),
        Ok(Err(error)) => refused(&error),
        Err(error) => refused(error),
    }
}

fn impatient() -> StoreOptions {
    options().timeout(Duration::from_millis(300))
}

fn reader() {
    // Not dropped before the test has ended: closing waits for the writer's lock.
    let store = impatient().open(path_here("app.redb"));
    say(format!("reads {}", look(&store)));
    await_line("leave");
}

#[test]
fn others_read_beside_a_writer_stopped_in_its_write_and_write_once_it_is_killed() {
    let mut refused = 0;
    for operation in 1.. {
        let scene = Scene::new();
        let store = impatient().open(scene.store_path()).unwrap();
        // Now this process has a writable handle of its own.
        enqueue_one(&store).unwrap();
        let mut writer = scene.actor("writer", &[("operation", &operation.to_string())]);
        let line = writer.line_within(DEADLINE).unwrap().unwrap();
        if line == "wrote" {
            assert!(operation > 5, "a commit does more than that");
            assert!(refused > 0, "redb keeps readers out for the moment in which it changes its header");
            return;
        }
        writer.await_stopped();
        let seen = look(&Ok(store.clone()));
        let seen_anew = scene.actor("reader", &[]).expect("reads");
        for seen in [&seen, &seen_anew] {
            let is_refused = seen.starts_with("Unavailable: reading timed out: process ")
                && [&writer.pid().to_string(), "the writer", "it is stopped"].iter().all(|part| seen.contains(*part));
            refused += usize::from(is_refused);
            assert!(is_refused || seen == "2" || seen == "3", "operation {operation}, {line}: {seen}");
        }
        assert!(seen == seen_anew || seen.starts_with('U'), "operation {operation}, {line}: {seen}, {seen_anew}");

        writer.kill();
        enqueue_one(&store).unwrap();
        // The killed writer's commit may still turn up, but not be gone once it was seen.
        let now = store.queue("default").stats().unwrap().ready;
        assert!(now == 4 || (now == 3 && seen != "3"), "operation {operation}, {line}: {seen}, then {now}");
        assert_eq!(scene.actor("reader", &[]).expect("reads"), now.to_string(), "operation {operation}, {line}");
        assert_sound(&store);
    }
}

#[test]
fn opening_beside_a_stopped_maker_ends_in_time_and_says_who_it_is() {
    // S35
    for kill in [false, true] {
        let scene = Scene::new();
        let mut maker = scene.actor("maker", &[]);
        maker.expect("freezes");
        maker.await_stopped();
        let error = impatient().open(scene.store_path()).unwrap_err();
        let message = error.full_message();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{message}");
        for part in [&maker.pid().to_string(), "the maker", "it is stopped", "create the store", "nothing was written"]
        {
            assert!(message.contains(part), "no \"{part}\" in: {message}");
        }
        if kill {
            maker.kill();
        } else {
            maker.go_on();
            maker.finish();
        }
        let store = impatient().open(scene.store_path()).unwrap();
        assert_eq!(store.queue("default").stats().unwrap().ready, u64::from(!kill));
        assert_sound(&store);
    }
}

#[test]
fn closing_beside_a_stopped_writer_says_who_it_is() {
    let scene = Scene::new();
    let store = options().timeout(Duration::from_millis(300)).open(scene.store_path()).unwrap();
    enqueue_one(&store).unwrap();
    let freezer = frozen(&scene, "Locked");
    let error = store.close().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.full_message().contains(&freezer.pid().to_string()), "{}", error.full_message());
}

#[test]
fn who_has_only_read_closes_beside_a_stopped_writer() {
    let scene = Scene::new();
    let _freezer = frozen(&scene, "Locked");
    let store = options().timeout(Duration::from_millis(300)).open(scene.store_path()).unwrap();
    store.queues().unwrap();
    store.close().unwrap();
}

#[test]
fn change_that_was_sealed_when_the_patience_ended_is_unknown_and_comes() {
    // S45, as far as one process goes: the group is being written when its caller gives up.
    let scene = Scene::new();
    let (reached, has_reached) = channel();
    let (go_on, may_go_on) = channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let hold_next = Arc::new(Mutex::new(None));
    let step_to_hold = hold_next.clone();
    let hook = move |step| {
        let is_committer = thread::current().name() == Some("casque-committer");
        if is_committer && step_to_hold.lock().unwrap().take_if(|at| *at == step).is_some() {
            reached.send(()).unwrap();
            may_go_on.lock().unwrap().recv().unwrap();
        }
    };
    let store = options().timeout(Duration::from_secs(1)).step_hook(hook).open(scene.store_path()).unwrap();
    let queue = store.queue("default");
    queue.enqueue_batch((0..3).map(|_| JobRequest::new("note", &()))).unwrap();
    let mut leases = queue.claim(3, Duration::ZERO).unwrap();

    // What is dropped goes back through the committer's thread. Two changes in one group tell it that it has company,
    // and then it commits for all.
    *hold_next.lock().unwrap() = Some(Step::BeforeLock);
    leases.pop();
    has_reached.recv_timeout(DEADLINE).unwrap();
    leases.clear();
    go_on.send(()).unwrap();
    until("the jobs to be given back", || (queue.stats().unwrap().ready == 3).then_some(()));

    *hold_next.lock().unwrap() = Some(Step::Applied);
    let error = enqueue_one(&store).unwrap_err();
    let message = error.full_message();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{message}");
    assert!(message.contains("may or may not be committed"), "{message}");
    assert_eq!(queue.stats().unwrap().ready, 3, "it is wholly absent so far");
    go_on.send(()).unwrap();
    until("the change to come", || (queue.stats().unwrap().ready == 4).then_some(()));
    store.close().unwrap();
    assert_sound(&scene.store());
}

/// How many threads of the looper commit.
const LOOPS: usize = 4;

/// Commits in a loop, without a pause, until told to leave.
fn looper() {
    let store = store_here();
    let leaves = Arc::new(AtomicBool::new(false));
    let told = leaves.clone();
    thread::spawn(move || {
        await_line("leave");
        told.store(true, Ordering::SeqCst);
    });
    say("loops");
    // The next group waits already when one is written.
    thread::scope(|scope| {
        for _ in 0..LOOPS {
            scope.spawn(|| {
                while !leaves.load(Ordering::SeqCst) {
                    store.add("loops", 1).unwrap();
                }
            });
        }
    });
    close_here(store);
}

#[test]
fn process_that_commits_in_a_loop_lets_others_in() {
    // S48, in commits let by.
    const TRIES: usize = 20;
    let scene = Scene::new();
    drop(scene.store());
    let mut looper = scene.actor("looper", &[]);
    looper.expect("loops");
    let mut let_by: Vec<u64> = (0..TRIES)
        .map(|number| {
            let store = scene.store();
            let before = store.version().unwrap();
            let version = store.put("visitor", &number).unwrap();
            store.close().unwrap();
            version.0 - before.0 - 1
        })
        .collect();
    looper.tell("leave");
    looper.finish();
    println!("commits let by: {let_by:?}");
    let_by.sort_unstable();
    // Three groups. Between the look at the version and the wait for the lock this process may lose its turn of the
    // processor, so not each try counts.
    assert!(let_by[TRIES * 3 / 4] <= 3 * LOOPS as u64, "{let_by:?}");
    let store = scene.store();
    assert!(store.get::<i64>("loops").unwrap().unwrap() > 0);
    assert_sound(&store);
}

/// S44, in part: there is no log.
#[test]
fn symbolic_link_leads_to_the_same_store() {
    let scene = Scene::new();
    let store = scene.store();
    std::os::unix::fs::symlink(scene.store_path(), scene.path("link.redb")).unwrap();
    assert_eq!(options().open(scene.path("link.redb")).unwrap().path(), store.path());
    let mut producers: Vec<Actor> = ["app.redb", "link.redb"]
        .into_iter()
        .map(|name| scene.actor("producer", &[("store", name), ("jobs", "50")]))
        .collect();
    expect_all(&mut producers, "ready");
    tell_all(&mut producers, "go");
    finish_all(producers);
    assert_eq!(store.queue("default").stats().unwrap().ready, 100);
    assert!(scene.path("app.redb.d").is_dir() && !scene.path("link.redb.d").exists());
    assert_sound(&store);
}

/// S44.
#[test]
fn store_with_two_names_is_refused() {
    let scene = Scene::new();
    scene.store().close().unwrap();
    fs::hard_link(scene.store_path(), scene.path("other.redb")).unwrap();
    for name in ["app.redb", "other.redb"] {
        let error = options().open(scene.path(name)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.full_message().contains("hard links"), "{}", error.full_message());
    }
    assert!(!scene.path("other.redb.d").exists(), "nothing was made");
    fs::remove_file(scene.path("other.redb")).unwrap();
    assert_sound(&scene.store());
}

#[test]
fn lock_file_that_was_removed_or_replaced_stops_the_writers() {
    for replace in [false, true] {
        let scene = Scene::new();
        let store = scene.store();
        enqueue_one(&store).unwrap();
        let before = store.version().unwrap();
        let lock = scene.path("app.redb.d/lock");
        fs::rename(&lock, scene.path("old")).unwrap();
        if replace {
            fs::write(&lock, "").unwrap();
        }
        let error = enqueue_one(&store).unwrap_err();
        let message = error.full_message();
        assert_eq!(error.kind(), ErrorKind::Closed, "{message}");
        assert!(message.contains(lock.to_str().unwrap()) && message.contains("open the store again"), "{message}");
        let error = store.transaction(|tx| tx.put("key", &1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{}", error.full_message());
        assert_eq!(store.version().unwrap(), before);

        // The remedy that the message gives.
        let error = store.close().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{}", error.full_message());
        let store = scene.store();
        enqueue_one(&store).unwrap();
        assert_eq!(store.version().unwrap().0, before.0 + 1);
        assert_sound(&store);
    }
}

/// Claims all there is, and holds it.
fn holder() {
    let store = store_here();
    let leases = store.queue("default").claim(100, Duration::ZERO).unwrap();
    leases[0].start().unwrap();
    say(format!("holds {}", leases.len()));
    await_line("leave");
}

#[test]
fn jobs_of_sessions_whose_files_are_gone_come_back() {
    let scene = Scene::new();
    let store = scene.store();
    for _ in 0..40 {
        enqueue_one(&store).unwrap();
    }
    store.close().unwrap();
    let mut holder = scene.actor("holder", &[]);
    assert_eq!(holder.expect("holds"), "40");
    holder.kill();
    fs::remove_dir_all(scene.path("app.redb.d")).unwrap();

    let store = scene.store();
    assert_eq!(store.queue("default").stats().unwrap().running, 40);
    let mut tasks = Registry::new();
    let runs = scene.observer();
    tasks
        .register("note", move |job, _: String| {
            runs.note_run(job);
            assert_eq!(job.attempt(), 1, "nobody knows what had begun, so nobody is charged");
            Ok(())
        })
        .unwrap();
    let report = Worker::new(&store).tasks(tasks).drain(true).run().unwrap();
    assert_eq!((report.completed, report.failed, scene.observer().jobs().len()), (40, 0, 40));
    assert_sound(&store);
}

#[test]
fn store_that_was_removed_or_replaced_takes_no_more_changes() {
    // S44, as far as one process goes: nothing is answered that is not in the store at the path.
    let scene = Scene::new();
    let store = scene.store();
    enqueue_one(&store).unwrap();
    let path = scene.store_path();
    let away = path.with_extension("away");
    std::fs::copy(&path, &away).unwrap();
    std::fs::rename(&away, &path).unwrap();
    let error = enqueue_one(&store).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{}", error.full_message());
    assert!(error.full_message().contains("removed or replaced"), "{}", error.full_message());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(enqueue_one(&store).unwrap_err().kind(), ErrorKind::Closed);
    let mut tasks = Registry::new();
    tasks.register("note", |_, _: String| Ok(())).unwrap();
    let error = Worker::new(&store).tasks(tasks).drain(true).run().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "a worker ends, so that whoever watches it starts it anew");
}
