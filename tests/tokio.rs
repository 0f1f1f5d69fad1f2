//! Handlers that are futures: beside blocking ones, dropped when their run is called off, on whatever runtime; and what
//! async code asks of a store.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use casque::{
    AsyncTask, ErrorKind, Event, Job, JobId, JobRequest, Registry, State, StopHandle, Store, Task, TaskError, Worker,
};
use serde::{Deserialize, Serialize};
use tokio::{
    runtime::{Builder, Runtime},
    sync::Notify,
};

/// How long a test waits for what must happen; only a test that fails waits that long.
const SOON: Duration = Duration::from_secs(30);
/// The time of an attempt that is to be over soon.
const SHORT: Duration = Duration::from_millis(50);
/// More than a thread waits at a time.
const LONGER: Duration = Duration::from_millis(700);

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
}

/// Tells when it is dropped.
struct Guard(mpsc::Sender<&'static str>);

impl Drop for Guard {
    fn drop(&mut self) {
        // The test may have ended.
        let _ = self.0.send("dropped");
    }
}

/// What a test hears of the tasks of [`tasks`].
struct Heard {
    said: mpsc::Receiver<&'static str>,
    /// Ends what waits for it.
    go_on: Arc<Notify>,
}

impl Heard {
    #[track_caller]
    fn await_saying(&self, what: &str) {
        assert_eq!(self.said.recv_timeout(SOON), Ok(what));
    }

    /// Nothing more is said by anybody who could.
    #[track_caller]
    fn assert_silent(&self) {
        assert!(self.said.try_recv().is_err());
    }
}

/// An async task `hold` that says when it begins, waits to be let go on, and then gives 7; and a blocking task `next`
/// that gives 8.
fn tasks(runtime: &Runtime) -> (Registry, Heard) {
    let (say, said) = mpsc::channel();
    let go_on = Arc::new(Notify::new());
    let heard = Heard { said, go_on: go_on.clone() };
    let mut tasks = Registry::new();
    tasks.runtime(runtime.handle().clone());
    tasks
        .register_async("hold", move |_, (): ()| {
            let (say, go_on) = (say.clone(), go_on.clone());
            async move {
                let guard = Guard(say);
                guard.0.send("begun").unwrap();
                go_on.notified().await;
                guard.0.send("went on").unwrap();
                Ok(7)
            }
        })
        .unwrap();
    tasks.register("next", |_, (): ()| Ok(8)).unwrap();
    (tasks, heard)
}

fn enqueue(store: &Store, task: &str) -> JobId {
    store.queue("default").enqueue(JobRequest::new(task, &())).unwrap()
}

/// A worker that runs one job at a time, until it is stopped.
fn start(worker: Worker) -> (StopHandle, thread::JoinHandle<casque::Report>) {
    let stop = worker.stop_handle();
    (stop, thread::spawn(move || worker.run().unwrap()))
}

#[derive(Serialize, Deserialize)]
struct Double(u32);

impl AsyncTask for Double {
    const ID: &'static str = "double";
    const MAX_ATTEMPTS: u32 = 3;
    type Output = u32;

    async fn run(self, job: Job) -> Result<u32, TaskError> {
        job.progress_async(0.5, "half").await?;
        job.log_async("doubling").await?;
        tokio::task::yield_now().await;
        Ok(2 * self.0)
    }
}

#[derive(Serialize, Deserialize)]
struct Halve(u32);

impl Task for Halve {
    const ID: &'static str = "halve";
    type Output = u32;

    fn run(self, _: &Job) -> Result<u32, TaskError> {
        Ok(self.0 / 2)
    }
}

#[test]
fn async_and_blocking_tasks_run_in_one_worker() {
    runtime().block_on(async {
        let store = Store::in_memory().unwrap();
        let queue = store.queue("default");
        let worker = Worker::new(&store).async_task::<Double>().task::<Halve>().concurrency(2).drain(true);
        let doubled = queue.enqueue_async(Double(21).request()).await.unwrap();
        let halved = queue.enqueue_async(&Halve(84)).await.unwrap();
        assert_eq!(store.job(doubled).unwrap().max_attempts, 3);
        let report = worker.run_async().await.unwrap();
        assert_eq!((report.completed, report.failed), (2, 0));
        assert_eq!(store.wait_async::<u32>(doubled, SOON).await.unwrap(), 42);
        assert_eq!(store.wait_async::<u32>(halved, SOON).await.unwrap(), 42);
        assert_eq!(store.log(doubled, 0).unwrap()[0].text, "doubling");
    });
}

#[test]
fn errors_and_panics_of_futures_are_failed_attempts() {
    let runtime = runtime();
    let store = Store::in_memory().unwrap();
    let mut tasks = Registry::new();
    tasks.runtime(runtime.handle().clone());
    let end = |how: u32| async move {
        tokio::task::yield_now().await;
        match how {
            0 => panic!("far too large"),
            1 => Err(TaskError::fatal("no such thing")),
            _ => Ok(()),
        }
    };
    tasks.register_async("end", move |_, how: u32| end(how)).unwrap();
    tasks
        .register_async("at once", |_, (): ()| {
            assert!(Duration::ZERO > SHORT, "it panics before there is a future");
            async { Ok(()) }
        })
        .unwrap();
    let queue = store.queue("default");
    let request = |how: u32| JobRequest::new("end", &how).max_attempts(1);
    let ids = queue.enqueue_batch([request(0), request(1), request(2)]).unwrap();
    let at_once = queue.enqueue(JobRequest::new("at once", &()).max_attempts(1)).unwrap();
    Worker::new(&store).tasks(tasks).drain(true).run().unwrap();
    let failure = |id| store.wait::<()>(id, SOON).unwrap_err().full_message();
    assert!(failure(ids[0]).contains("the handler panicked: far too large"), "{}", failure(ids[0]));
    assert!(failure(ids[1]).contains("no such thing"), "{}", failure(ids[1]));
    store.wait::<()>(ids[2], SOON).unwrap();
    assert!(failure(at_once).contains("it panics before there is a future"), "{}", failure(at_once));
}

#[test]
fn cancelled_job_has_its_future_dropped_and_frees_its_slot() {
    let runtime = runtime();
    let store = Store::in_memory().unwrap();
    let (tasks, heard) = tasks(&runtime);
    let (held, next) = (enqueue(&store, "hold"), enqueue(&store, "next"));
    let (stop, run) = start(Worker::new(&store).tasks(tasks).prefetch(0));
    heard.await_saying("begun");
    store.cancel(held).unwrap();
    heard.await_saying("dropped");
    assert_eq!(store.wait::<u32>(next, SOON).unwrap(), 8);
    assert_eq!(store.wait_ended(held, SOON).unwrap().unwrap().state, State::Cancelled);
    stop.stop();
    let report = run.join().unwrap();
    assert_eq!((report.completed, report.failed), (1, 0));
    heard.assert_silent();
}

#[test]
fn future_whose_time_is_over_is_dropped_and_has_failed_once() {
    let runtime = runtime();
    let store = Store::in_memory().unwrap();
    let (tasks, heard) = tasks(&runtime);
    let queue = store.queue("default");
    let held = queue.enqueue(JobRequest::new("hold", &()).timeout(SHORT).max_attempts(1)).unwrap();
    let next = enqueue(&store, "next");
    let (stop, run) = start(Worker::new(&store).tasks(tasks).prefetch(0));
    heard.await_saying("begun");
    heard.await_saying("dropped");
    assert_eq!(store.wait::<u32>(next, SOON).unwrap(), 8);
    let failed = store.wait::<u32>(held, SOON).unwrap_err().full_message();
    assert!(failed.contains("timed out after 50 ms"), "{failed}");
    stop.stop();
    let report = run.join().unwrap();
    assert_eq!((report.completed, report.failed, report.leases_lost), (1, 1, 0));
    heard.assert_silent();
}

#[test]
fn result_that_a_future_brings_after_its_time_is_refused() {
    let runtime = runtime();
    let store = Store::in_memory().unwrap();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Arc::new(std::sync::Mutex::new(may_go_on));
    let mut tasks = Registry::new();
    tasks.runtime(runtime.handle().clone());
    tasks
        .register_async("late", move |job, (): ()| {
            let may_go_on = may_go_on.clone();
            async move {
                // As a future does that never comes to an `.await`.
                may_go_on.lock().unwrap().recv().unwrap();
                assert_eq!(job.complete().unwrap_err().kind(), ErrorKind::LeaseLost);
                Ok(7)
            }
        })
        .unwrap();
    let late = JobRequest::new("late", &()).timeout(SHORT).max_attempts(1);
    let late = store.queue("default").enqueue(late).unwrap();
    let (_, run) = start(Worker::new(&store).tasks(tasks).drain(true));
    assert!(store.wait::<u32>(late, SOON).unwrap_err().full_message().contains("timed out after 50 ms"));
    go_on.send(()).unwrap();
    let report = run.join().unwrap();
    assert_eq!((report.completed, report.failed, report.leases_lost), (0, 1, 0));
    let job = store.job(late).unwrap();
    assert_eq!((job.state, job.errors.len(), job.result), (State::Dead, 1, None));
}

#[test]
fn gentle_stop_waits_for_a_future() {
    let runtime = runtime();
    let store = Store::in_memory().unwrap();
    let (tasks, heard) = tasks(&runtime);
    let held = enqueue(&store, "hold");
    let (stop, run) = start(Worker::new(&store).tasks(tasks));
    heard.await_saying("begun");
    stop.stop();
    heard.assert_silent();
    heard.go_on.notify_one();
    heard.await_saying("went on");
    heard.await_saying("dropped");
    assert_eq!(run.join().unwrap().completed, 1);
    assert_eq!(store.wait::<u32>(held, SOON).unwrap(), 7);
}

#[test]
fn stop_at_once_drops_a_future_and_gives_its_job_back() {
    let runtime = runtime();
    let store = Store::in_memory().unwrap();
    let (tasks, heard) = tasks(&runtime);
    let held = enqueue(&store, "hold");
    let (given, gave) = mpsc::channel();
    let worker = Worker::new(&store).tasks(tasks).listen(move |event| {
        if let Event::GivenBack { job, state } = event {
            given.send((*job, *state)).unwrap();
        }
    });
    let (stop, run) = start(worker);
    heard.await_saying("begun");
    stop.stop_now();
    heard.await_saying("dropped");
    let report = run.join().unwrap();
    assert_eq!((report.completed, report.failed, report.leases_lost), (0, 0, 0));
    assert_eq!(gave.recv_timeout(SOON), Ok((held, State::Ready)));
    let job = store.job(held).unwrap();
    assert_eq!((job.state, job.attempt), (State::Ready, 0));
}

#[test]
fn worker_that_nobody_awaits_any_more_stops() {
    let runtime = runtime();
    let store = Store::in_memory().unwrap();
    let (tasks, heard) = tasks(&runtime);
    let held = enqueue(&store, "hold");
    let worker = Worker::new(&store).tasks(tasks);
    let stop = worker.stop_handle();
    let run = runtime.spawn(worker.run_async());
    heard.await_saying("begun");
    run.abort();
    assert!(runtime.block_on(run).unwrap_err().is_cancelled());
    assert!(stop.is_stopping());
    heard.go_on.notify_one();
    assert_eq!(store.wait::<u32>(held, SOON).unwrap(), 7);
}

#[test]
fn runtime_of_one_thread_runs_handlers_too() {
    Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
        let store = Store::in_memory().unwrap();
        let queue = store.queue("default");
        for number in 0..20 {
            queue.enqueue_async(Double(number).request()).await.unwrap();
        }
        let worker = Worker::new(&store).async_task::<Double>().concurrency(4).drain(true);
        assert_eq!(worker.run_async().await.unwrap().completed, 20);
    });
}

#[test]
fn job_waits_while_its_runtime_is_gone() {
    let gone = runtime();
    let store = Store::in_memory().unwrap();
    let (tasks, _) = tasks(&gone);
    drop(gone);
    let held = enqueue(&store, "hold");
    Worker::new(&store).tasks(tasks).drain(true).run().unwrap();
    let job = store.job(held).unwrap();
    assert_eq!((job.state, job.attempt), (State::Scheduled, 0));
}

#[test]
fn job_whose_runtime_shuts_down_while_its_worker_stops_goes_back_uncharged() {
    let runtime = runtime();
    let store = Store::in_memory().unwrap();
    let (tasks, heard) = tasks(&runtime);
    let held = enqueue(&store, "hold");
    let (stop, run) = start(Worker::new(&store).tasks(tasks));
    heard.await_saying("begun");
    stop.stop();
    runtime.shutdown_background();
    heard.await_saying("dropped");
    assert_eq!(run.join().unwrap().failed, 0);
    let job = store.job(held).unwrap();
    assert_eq!((job.state, job.attempt, job.errors.len()), (State::Ready, 0, 0));
}

#[test]
fn async_task_needs_a_runtime() {
    let mut tasks = Registry::new();
    let error = tasks.async_task::<Double>().map(|_| ()).unwrap_err();
    let message = error.full_message();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(message.contains("async task \"double\"") && message.contains("Registry::runtime"), "{message}");
    let error = tasks.register_async("twice", |_, (): ()| async { Ok(()) }).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let worker = Worker::new(&Store::in_memory().unwrap()).async_task::<Double>();
    assert_eq!(worker.run().unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn waiting_and_watching_wake_up() {
    let runtime = runtime();
    let store = Store::in_memory().unwrap();
    let (tasks, heard) = tasks(&runtime);
    let held = enqueue(&store, "hold");
    let (stop, run) = start(Worker::new(&store).tasks(tasks));
    heard.await_saying("begun");
    runtime.block_on(async {
        let began = Instant::now();
        let in_vain = store.wait_async::<u32>(held, LONGER).await.unwrap_err();
        assert!(began.elapsed() >= LONGER);
        assert_eq!(in_vain.kind(), ErrorKind::TimedOut);
        assert!(in_vain.full_message().contains("700ms"), "{in_vain}");

        let mut watch = store.watch(held);
        assert_eq!(watch.next_async().await.unwrap().unwrap().state, Some(State::Running));
        let waiting = store.clone();
        let waiting = tokio::spawn(async move { waiting.wait_async::<u32>(held, SOON).await });
        heard.go_on.notify_one();
        assert_eq!(waiting.await.unwrap().unwrap(), 7);
        assert_eq!(watch.next_async().await.unwrap().unwrap().state, Some(State::Completed));
        assert!(watch.next_async().await.is_none());

        let put = store.transaction_async(|tx| tx.put("seen", &1_u32).map(|()| 3)).await.unwrap();
        assert_eq!((put, store.get::<u32>("seen").unwrap()), (3, Some(1)));
    });
    stop.stop();
    run.join().unwrap();
}

#[test]
fn waiting_that_was_dropped_does_not_hold_up_the_end_of_the_runtime() {
    let runtime = runtime();
    let store = Store::in_memory().unwrap();
    let id = enqueue(&store, "hold");
    let mut watch = store.watch(id);
    runtime.block_on(async {
        watch.next_async().await.unwrap().unwrap();
        let waiting = tokio::time::timeout(SHORT, store.wait_async::<u32>(id, Duration::from_hours(1)));
        let watching = tokio::time::timeout(SHORT, watch.next_async());
        assert!(waiting.await.is_err());
        assert!(watching.await.is_err());
    });
    let (gone, is_gone) = mpsc::channel();
    thread::spawn(move || {
        drop(runtime);
        gone.send(()).unwrap();
    });
    is_gone.recv_timeout(SOON).unwrap();
    // Nothing was lost by it.
    store.cancel(id).unwrap();
    assert_eq!(watch.next().unwrap().unwrap().state, Some(State::Cancelled));
}
