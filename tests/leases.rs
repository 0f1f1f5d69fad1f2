//! Who holds a job, and for how long: workers as processes that are stopped, killed and told to leave. Nobody here
//! waits for a lease to run out but where a process is stopped; a dead one's jobs come back at once.

mod processes;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use casque::{Job, JobFilter, JobId, JobRequest, Registry, State, Store, TaskError, Worker, hooks::Step};
use processes::{
    Actor, Scene, argument, assert_sound, await_line, close_here, die, number_or, observer_here, options, path_here,
    play, say, say_event, until,
};

/// The shortest lease time there may be, in milliseconds.
const LEASE_SHORT: u64 = 500;
/// A lease time that no test outlasts.
const LEASE_HOUR: u64 = 3_600_000;

#[test]
fn actor() {
    play(&[("worker", worker)]);
}

/// Works until it has been told `stop`, once or twice, and lingers until told `leave` if it was asked to.
fn worker() {
    let hold_settlements = number_or("settle", 1) == 0;
    let mut options = options();
    if let Ok(label) = std::env::var("CASQUE_TEST_ARG_label") {
        options = options.label(label);
    }
    if hold_settlements {
        // The first commit is the claim; what comes after it never gets to the lock.
        let has_claimed = AtomicBool::new(false);
        options = options.step_hook(move |step| match step {
            Step::Written => has_claimed.store(true, Ordering::SeqCst),
            Step::BeforeLock if has_claimed.load(Ordering::SeqCst) => loop {
                thread::park();
            },
            _ => {}
        });
    }
    let store = options.open(path_here("app.redb")).unwrap();
    let worker = Worker::new(&store)
        .tasks(tasks())
        .concurrency(number_or("concurrency", 1))
        .prefetch(number_or("prefetch", 0))
        .listen(say_event);
    let stop = worker.stop_handle();
    thread::spawn(move || {
        loop {
            await_line("stop");
            stop.stop();
            say("stopping");
        }
    });
    let report = worker.run().unwrap();
    say(format!("report {} {} {}", report.completed, report.given_back, report.leases_lost));
    if number_or("linger", 0) == 1 {
        await_line("leave");
    }
    close_here(store);
}

fn tasks() -> Registry {
    let mut tasks = Registry::new();
    let mut add = |id: &str, run: fn(&Job) -> Result<(), TaskError>| {
        let observer = observer_here();
        let run = move |job: &Job, (): ()| {
            observer.note_run(job);
            run(job)
        };
        tasks.register(id, run).unwrap();
    };
    add("note", |_| Ok(()));
    add("hold", |job| {
        await_line(&format!("end {}", job.id()));
        Ok(())
    });
    add("kill", |_| die());
    add("abort", |_| std::process::abort());
    add("kill-thrice", |job| if job.attempt() <= 3 { die() } else { Ok(()) });
    add("block", |_| {
        thread::sleep(Duration::from_millis(3 * LEASE_SHORT)); // waits: for three times the lease, which is the point
        Ok(())
    });
    add("settle", |job| {
        await_line(&format!("end {}", job.id()));
        let label = argument("label");
        tell("check", job.check());
        tell("progress", job.progress(0.5, &label));
        tell("complete", job.complete_with(&label));
        tell("fail", job.fail("it was completed before", Some(Duration::ZERO)));
        Ok(())
    });
    tasks
}

fn tell(what: &str, outcome: casque::Result<()>) {
    match outcome {
        Ok(()) => say(format!("{what} ok")),
        Err(error) => say(format!("{what} {:?}", error.kind())),
    }
}

/// A folder with a store whose lease time is that.
fn scene_with_lease(millis: u64) -> Scene {
    let scene = Scene::new();
    scene.store().configure("lease", millis).unwrap();
    scene
}

fn enqueue(store: &Store, task: &str, how_many: usize) -> Vec<JobId> {
    let jobs = (0..how_many).map(|_| JobRequest::new(task, &()));
    store.queue("default").enqueue_batch(jobs).unwrap()
}

/// The job, token and attempt of the next run that the worker begins.
fn next_start(worker: &mut Actor) -> (String, String, u32) {
    let started = worker.expect("started");
    let mut words = started.split(' ').map(str::to_owned);
    (words.next().unwrap(), words.next().unwrap(), words.next().unwrap().parse().unwrap())
}

/// Tells a worker to stop, and waits until it has left.
fn leave(mut worker: Actor) -> Vec<String> {
    worker.tell("stop");
    worker.finish()
}

fn runs_of(scene: &Scene, job: JobId) -> usize {
    let id = job.to_string();
    scene.observer().jobs().iter().filter(|job| **job == id).count()
}

fn state(store: &Store, job: JobId) -> State {
    store.job(job).unwrap().state
}

#[test]
fn stopped_worker_whose_job_was_taken_is_refused_when_it_goes_on() {
    // S1
    let scene = Scene::with_server();
    let store = scene.store();
    store.configure("lease", LEASE_SHORT).unwrap();
    let job = enqueue(&store, "settle", 1)[0];
    let mut first = scene.actor("worker", &[("label", "first")]);
    let (_, first_token, _) = next_start(&mut first);
    let mut second = scene.actor("worker", &[("label", "second")]);
    first.stop();

    let (_, second_token, attempt) = next_start(&mut second);
    assert_eq!(attempt, 2, "the run of the stopped worker is charged");
    assert_ne!(first_token, second_token);

    first.go_on();
    first.tell(&format!("end {job}"));
    for call in ["check", "progress", "complete", "fail"] {
        assert_eq!(first.expect(call), "LeaseLost", "{call}");
    }
    let held = store.job(job).unwrap();
    let (_, holder, token) = held.held_by.expect("the second's lease stands");
    assert_eq!((holder.as_str(), token.to_string()), ("second", second_token));
    assert_eq!((held.progress, held.result, held.attempt), (None, None, 1));

    second.tell(&format!("end {job}"));
    for (call, answer) in [("check", "ok"), ("progress", "ok"), ("complete", "ok"), ("fail", "LeaseLost")] {
        assert_eq!(second.expect(call), answer, "{call}");
    }
    assert_eq!(store.wait::<String>(job, Duration::ZERO).unwrap(), "second");
    leave(first);
    leave(second);
    assert_eq!(runs_of(&scene, job), 2);
    assert_eq!(store.job(job).unwrap().attempt, 2);
    assert_sound(&store);
}

#[test]
fn only_the_killed_one_of_two_workers_with_one_label_loses_its_jobs() {
    // S2
    let scene = scene_with_lease(LEASE_HOUR);
    let store = scene.store();
    let jobs = enqueue(&store, "hold", 4);
    let twin = || scene.actor("worker", &[("label", "twin"), ("concurrency", "2")]);
    let start_two = |worker: &mut Actor| [(); 2].map(|()| next_start(worker).0);
    let mut killed = twin();
    let mut lost = start_two(&mut killed);
    let mut healthy = twin();
    let mut kept = start_two(&mut healthy);
    let mut other = scene.actor("worker", &[("label", "other")]);
    let holders: Vec<_> = jobs[2..].iter().map(|job| store.job(*job).unwrap().held_by).collect();
    lost.sort();
    kept.sort();
    assert_eq!([lost.clone(), kept.clone()].concat(), jobs.iter().map(ToString::to_string).collect::<Vec<_>>());

    killed.kill();
    // Either of the two that are left may find it; who runs nothing gets the jobs.
    for _ in &lost {
        let (job, _, attempt) = next_start(&mut other);
        assert!(lost.contains(&job), "job {job} was not the killed worker's");
        assert_eq!(attempt, 2);
        other.tell(&format!("end {job}"));
        other.expect("completed");
    }
    assert_eq!(jobs[2..].iter().map(|job| store.job(*job).unwrap().held_by).collect::<Vec<_>>(), holders);
    for job in &kept {
        healthy.tell(&format!("end {job}"));
        healthy.expect("completed");
    }
    leave(healthy);
    leave(other);
    let runs: Vec<usize> = jobs.iter().map(|job| runs_of(&scene, *job)).collect();
    assert_eq!(runs, [2, 2, 1, 1]);
    assert_sound(&store);
}

#[test]
fn killed_job_out_of_attempts_is_dead_and_frees_its_unique_key() {
    // S3
    let scene = scene_with_lease(LEASE_HOUR);
    let store = scene.store();
    let queue = store.queue("default");
    let request = || JobRequest::new("kill", &()).max_attempts(1).unique("one of a kind");
    let job = queue.enqueue(request()).unwrap();
    assert_eq!(queue.enqueue(request()).unwrap(), job);
    scene.actor("worker", &[]).wait();
    let other = scene.actor("worker", &[]);
    until("the job to be dead", || (state(&store, job) == State::Dead).then_some(()));
    leave(other);
    assert_eq!(runs_of(&scene, job), 1);
    assert_ne!(queue.enqueue(request()).unwrap(), job, "its key is free");
    assert_sound(&store);
}

#[test]
fn handler_that_blocks_its_thread_for_three_leases_runs_once() {
    // S4
    let scene = scene_with_lease(LEASE_SHORT);
    let store = scene.store();
    let job = store.queue("default").enqueue(JobRequest::new("block", &()).keep()).unwrap();
    let mut first = scene.actor("worker", &[]);
    next_start(&mut first);
    let second = scene.actor("worker", &[]);
    first.expect("completed");
    leave(first);
    let heard = leave(second);
    assert!(!heard.iter().any(|line| line.starts_with("recovered")), "{heard:?}");
    assert_eq!((runs_of(&scene, job), store.job(job).unwrap().attempt), (1, 1));
}

#[test]
fn extra_workers_that_come_and_go_take_no_job_from_its_owner() {
    // S5
    let scene = scene_with_lease(LEASE_HOUR);
    let store = scene.store();
    let jobs = enqueue(&store, "hold", 4);
    let mut owner = scene.actor("worker", &[("concurrency", "4")]);
    for _ in &jobs {
        next_start(&mut owner);
    }
    for _ in 0..5 {
        let extra: Vec<Actor> = (0..4).map(|_| scene.actor("worker", &[])).collect();
        for (number, mut worker) in extra.into_iter().enumerate() {
            if number == 0 {
                worker.kill();
                continue;
            }
            let heard = leave(worker);
            assert!(
                !heard.iter().any(|line| line.starts_with("recovered") || line.starts_with("started")),
                "{heard:?}"
            );
        }
    }
    for job in &jobs {
        owner.tell(&format!("end {job}"));
    }
    assert!(leave(owner).contains(&"report 4 0 0".to_owned()));
    assert_eq!(scene.observer().jobs().len(), jobs.len());
    assert_sound(&store);
}

#[test]
fn crashes_are_counted_and_the_limit_holds() {
    // S7
    let scene = scene_with_lease(LEASE_HOUR);
    let store = scene.store();
    let queue = store.queue("default");
    let survivor = queue.enqueue(JobRequest::new("kill-thrice", &()).keep().max_attempts(5)).unwrap();
    for attempt in 1..=3 {
        let mut worker = scene.actor("worker", &[]);
        assert_eq!(next_start(&mut worker).2, attempt);
        worker.wait();
    }
    let mut worker = scene.actor("worker", &[]);
    assert_eq!(next_start(&mut worker).2, 4);
    worker.expect("completed");
    leave(worker);
    let info = store.job(survivor).unwrap();
    assert_eq!((info.state, info.attempt, info.errors.len()), (State::Completed, 4, 3));

    let victim = queue.enqueue(JobRequest::new("kill", &()).max_attempts(3)).unwrap();
    for attempt in 1..=3 {
        let mut worker = scene.actor("worker", &[]);
        assert_eq!(next_start(&mut worker).2, attempt);
        worker.wait();
    }
    let worker = scene.actor("worker", &[]);
    until("the job to be dead", || (state(&store, victim) == State::Dead).then_some(()));
    leave(worker);
    assert_eq!(store.job(victim).unwrap().attempt, 3);
    assert_eq!(runs_of(&scene, victim), 3);
    assert_sound(&store);
}

#[test]
fn one_long_job_beside_seven_idle_handlers_stays_at_its_first_attempt() {
    // S8
    let scene = scene_with_lease(LEASE_SHORT);
    let store = scene.store();
    let queue = store.queue("default");
    let long = queue.enqueue(JobRequest::new("hold", &()).keep()).unwrap();
    let mut worker = scene.actor("worker", &[("concurrency", "8")]);
    assert_eq!(next_start(&mut worker).0, long.to_string());
    // Each of these makes the worker look for a job, in vain or not, while the long one runs.
    for turn in 0..30 {
        store.put("turn", &turn).unwrap();
        let short = queue.enqueue(JobRequest::new("note", &())).unwrap();
        assert_eq!(next_start(&mut worker).0, short.to_string());
        worker.expect("completed");
    }
    let info = store.job(long).unwrap();
    assert_eq!((info.state, info.attempt, info.held_by.is_some()), (State::Running, 0, true));
    worker.tell(&format!("end {long}"));
    worker.expect("completed");
    leave(worker);
    assert_eq!((runs_of(&scene, long), store.job(long).unwrap().attempt), (1, 1));
}

#[test]
fn stop_gives_a_hundred_unstarted_jobs_back_at_once_and_uncharged() {
    // S19
    let scene = scene_with_lease(LEASE_HOUR);
    let store = scene.store();
    let running = enqueue(&store, "hold", 1)[0];
    let unstarted = enqueue(&store, "note", 100);
    let mut worker = scene.actor("worker", &[("prefetch", "100")]);
    next_start(&mut worker);
    let stats = || store.queue("default").stats().unwrap();
    assert_eq!((stats().running, stats().ready), (101, 0));

    worker.tell("stop");
    until("the unstarted jobs to be ready", || (stats().ready == 100).then_some(()));
    assert_eq!(stats().running, 1, "what has begun goes on");
    let ready = store.jobs(&JobFilter::new().state(State::Ready), 200).unwrap();
    assert_eq!(ready.iter().map(|job| job.id).collect::<Vec<_>>(), unstarted);
    assert!(ready.iter().all(|job| job.attempt == 0 && job.errors.is_empty() && !job.suspect));
    worker.tell(&format!("end {running}"));
    let heard = worker.finish();
    assert!(heard.contains(&"report 1 100 0".to_owned()), "{heard:?}");

    // They are first again, and in order.
    let last = enqueue(&store, "note", 1);
    let mut next = scene.actor("worker", &[]);
    for job in unstarted.iter().chain(&last) {
        assert_eq!(
            next_start(&mut next),
            (job.to_string(), next.expect("completed").split_once(' ').unwrap().1.to_owned(), 1)
        );
    }
    leave(next);
    assert_sound(&store);
}

#[test]
fn stop_at_once_gives_running_jobs_back_uncharged_and_its_handlers_are_refused() {
    // S20, S39
    let scene = scene_with_lease(LEASE_HOUR);
    let store = scene.store();
    let job = enqueue(&store, "settle", 1)[0];
    let mut first = scene.actor("worker", &[("label", "first"), ("linger", "1")]);
    let (_, first_token, _) = next_start(&mut first);
    first.tell("stop");
    first.expect("stopping");
    assert_eq!(state(&store, job), State::Running);
    first.tell("stop");
    first.expect("report");
    let info = store.job(job).unwrap();
    assert_eq!((info.state, info.attempt, info.errors.len(), info.run_at), (State::Ready, 0, 0, None));

    let mut second = scene.actor("worker", &[("label", "second")]);
    let (_, second_token, attempt) = next_start(&mut second);
    assert_eq!(attempt, 1, "the attempt was given back");
    assert_ne!(second_token, first_token, "the token was not");
    first.tell(&format!("end {job}"));
    for call in ["check", "progress", "complete", "fail"] {
        assert_eq!(first.expect(call), "LeaseLost", "{call}");
    }
    assert_eq!(store.job(job).unwrap().held_by.unwrap().2.to_string(), second_token);
    first.tell("leave");
    first.finish();
    assert_eq!(store.job(job).unwrap().held_by.unwrap().2.to_string(), second_token, "its end takes nothing along");

    second.tell(&format!("end {job}"));
    assert_eq!(second.expect("complete"), "ok");
    leave(second);
    assert_eq!(store.wait::<String>(job, Duration::ZERO).unwrap(), "second");
    assert_eq!(store.job(job).unwrap().attempt, 1);
    assert_sound(&store);
}

/// One job that aborts its process, prefetched with 63 innocent ones of which twenty run before it.
fn abort_among_neighbours(settle: &str) {
    let scene = scene_with_lease(LEASE_HOUR);
    let store = scene.store();
    let tasks = (0..64).map(|number| if number == 20 { "abort" } else { "note" });
    let jobs = store
        .queue("default")
        .enqueue_batch(tasks.map(|task| JobRequest::new(task, &()).max_attempts(1).keep()))
        .unwrap();
    let mut worker = scene.actor("worker", &[("prefetch", "63"), ("settle", settle)]);
    assert_eq!(worker.expect("claimed").split(' ').count(), 1 + 64, "all in one claim");
    assert!(!worker.wait().success());

    let mut other = scene.actor("worker", &[("prefetch", "63")]);
    let stats = || store.queue("default").stats().unwrap();
    until("all jobs to end", || (stats().completed == 63 && stats().dead == 1).then_some(()));
    other.expect("recovered");
    leave(other);
    for (number, job) in jobs.iter().enumerate() {
        let expected = if number == 20 { State::Dead } else { State::Completed };
        let info = store.job(*job).unwrap();
        assert_eq!((info.state, info.attempt, runs_of(&scene, *job)), (expected, 1, 1), "job {job}");
    }
    assert_sound(&store);
}

#[test]
fn aborting_job_takes_no_neighbour_with_it() {
    // S40
    abort_among_neighbours("1");
}

#[test]
fn aborting_job_takes_no_neighbour_with_it_that_was_done_and_not_settled() {
    // S40
    abort_among_neighbours("0");
}

#[test]
fn killed_workers_jobs_are_back_though_the_lease_is_an_hour() {
    let scene = scene_with_lease(LEASE_HOUR);
    let store = scene.store();
    let jobs = enqueue(&store, "hold", 8);
    let mut killed = scene.actor("worker", &[("concurrency", "3"), ("prefetch", "5")]);
    let mut begun: Vec<String> = [(); 3].map(|()| next_start(&mut killed).0).into();
    begun.sort();
    killed.kill();
    let mut other = scene.actor("worker", &[("concurrency", "8")]);
    assert_eq!(other.expect("recovered").split(' ').count(), 8);
    let mut attempts = Vec::new();
    for _ in &jobs {
        let (job, _, attempt) = next_start(&mut other);
        other.tell(&format!("end {job}"));
        attempts.push((job, attempt));
    }
    attempts.sort();
    let charged: Vec<String> = attempts.into_iter().filter(|(_, attempt)| *attempt == 2).map(|(job, _)| job).collect();
    assert_eq!(charged, begun, "only what had begun is charged");
    leave(other);
    assert_sound(&store);
}

#[test]
fn stopping_early_twice_or_hard_hangs_nobody() {
    // S21
    let scene = Scene::new();
    let store = scene.store();
    enqueue(&store, "note", 1);
    for stops in 0..3 {
        let mut tasks = Registry::new();
        let (begun, has_begun) = std::sync::mpsc::channel();
        let (end, may_end) = std::sync::mpsc::channel::<()>();
        let may_end = std::sync::Mutex::new(may_end);
        tasks
            .register("note", move |_, (): ()| {
                begun.send(()).unwrap();
                let _ = may_end.lock().unwrap().recv();
                Ok(())
            })
            .unwrap();
        let worker = Worker::new(&store).tasks(tasks);
        let stop = worker.stop_handle();
        // Before it starts, so often.
        (0..stops).for_each(|_| stop.stop());
        let (done, ended) = std::sync::mpsc::channel();
        thread::spawn(move || done.send(worker.run().unwrap()));
        if stops == 0 {
            has_begun.recv_timeout(processes::DEADLINE).unwrap();
            stop.stop();
            stop.stop_now();
            stop.stop();
        }
        let report = ended.recv_timeout(processes::DEADLINE).expect("it ends");
        assert_eq!((report.completed, report.failed), (0, 0));
        assert_eq!(store.queue("default").stats().unwrap().ready, 1);
        drop(end);
    }
}
