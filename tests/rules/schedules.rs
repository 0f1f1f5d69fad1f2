//! Schedules, as a user of the library meets them: defining, tending, and workers that serve them by a clock that is
//! moved by hand.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use casque::{
    CatchUp, ErrorKind, Event, Job, JobFilter, JobRequest, Registry, Schedule, State, StopHandle, Store, StoreOptions,
    Timestamp, Worker, testing::Clock,
};

use crate::{job, kind, on_each_engine, processes::until, refused};

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

fn hourly() -> Schedule {
    Schedule::every("hourly", HOUR, job()).queue("q")
}

#[test]
fn schedule_is_defined_listed_tended_and_removed() {
    on_each_engine(|store| {
        let before = Timestamp::now();
        assert!(store.schedule(hourly()).unwrap());
        let version = store.version().unwrap();
        assert!(!store.schedule(hourly()).unwrap());
        assert_eq!(store.version().unwrap(), version, "the same again is no commit");

        let listed = store.schedules().unwrap();
        assert_eq!(listed, [store.schedule_named("hourly").unwrap()]);
        let hourly = &listed[0];
        assert_eq!((hourly.task.as_str(), hourly.queue.as_str(), hourly.every), ("task", "q", Some(HOUR)));
        let next = hourly.next.unwrap();
        assert!(next >= before.after(HOUR) && next <= Timestamp::now().after(HOUR));
        assert_eq!(hourly.upcoming(2).unwrap(), [next, next.after(HOUR)]);

        let id = store.run_schedule("hourly").unwrap();
        let ran = store.job(id).unwrap();
        assert_eq!((ran.state, ran.queue.as_str()), (State::Ready, "q"));
        store.pause_schedule("hourly").unwrap();
        assert!(store.schedule_named("hourly").unwrap().paused);
        store.resume_schedule("hourly").unwrap();
        let resumed = store.schedule_named("hourly").unwrap();
        assert_eq!((resumed.paused, resumed.next), (false, Some(next)));
        store.remove_schedule("hourly").unwrap();
        assert_eq!(store.schedules().unwrap(), []);
        for gone in [
            store.remove_schedule("hourly"),
            store.pause_schedule("hourly"),
            store.resume_schedule("hourly"),
            store.run_schedule("hourly").map(|_| ()),
            store.schedule_named("hourly").map(|_| ()),
        ] {
            assert_eq!(kind(gone), ErrorKind::NotFound);
        }
    });
}

#[test]
fn schedule_that_can_not_be_is_refused_and_changes_nothing() {
    on_each_engine(|store| {
        let zero = || store.schedule(Schedule::every("zero", Duration::ZERO, job()));
        refused(store, zero, ErrorKind::Invalid, &["schedule \"zero\"", "interval of 0ns", "15m"]);
        let worker = Worker::new(store).schedule(Schedule::every("zero", Duration::ZERO, job()));
        refused(store, || worker.run(), ErrorKind::Invalid, &["schedule \"zero\""]);
        let large = JobRequest::new("task", &"x".repeat(2 << 20));
        let large = || store.schedule(Schedule::every("large", HOUR, large));
        refused(store, large, ErrorKind::Invalid, &["schedule \"large\"", "payload-max"]);
        if cfg!(feature = "cron") {
            let cron = |expression: &str| store.schedule(Schedule::cron("c", expression, job()).zone("Europe/Berlin"));
            refused(
                store,
                || cron("every day"),
                ErrorKind::Invalid,
                &["schedule \"c\"", "\"every day\"", "30 4 * * 1-5"],
            );
            refused(store, || cron("0 0 31 4 *"), ErrorKind::Invalid, &["schedule \"c\"", "never comes"]);
        }
    });
}

/// A store whose clock is moved by hand, and workers on it.
struct Plant {
    store: Store,
    clock: Clock,
    /// The slots whose jobs have run, in the order in which they did.
    ran: Arc<Mutex<Vec<String>>>,
    workers: Vec<(StopHandle, thread::JoinHandle<()>)>,
}

impl Plant {
    fn new() -> Self {
        let clock = Clock::manual(Timestamp::from_millis(1_893_456_000_000));
        let store = StoreOptions::new().clock(clock.clone()).open_in_memory().unwrap();
        Self { store, clock, ran: Arc::default(), workers: Vec::new() }
    }

    /// Starts a worker that defines these schedules.
    fn start(&mut self, schedules: Vec<Schedule>) {
        let mut tasks = Registry::new();
        let ran = self.ran.clone();
        let run = move |job: &Job, (): ()| {
            let slot = job.metadata().iter().find(|(key, _)| key == "scheduled_for").map(|(_, slot)| slot.clone());
            ran.lock().unwrap().push(slot.expect("it is of a slot"));
            Ok(())
        };
        tasks.register("task", run).unwrap();
        let worker = Worker::new(&self.store).tasks(tasks).queue("q").listen(|event| {
            if let Event::Trouble { doing, message } = event {
                panic!("{doing}: {message}");
            }
        });
        let worker = schedules.into_iter().fold(worker, Worker::schedule);
        let stop = worker.stop_handle();
        self.workers.push((stop, thread::spawn(move || drop(worker.run().unwrap()))));
    }

    /// Waits until all schedules are past the present time, and their jobs have run.
    fn settle(&self) {
        let now = self.clock.now();
        until("every slot to be enqueued and run", || {
            let schedules = self.store.schedules().unwrap();
            let past = !schedules.is_empty() && schedules.iter().all(|one| one.next.is_none_or(|next| next > now));
            (past && self.store.queue("q").stats().unwrap().ready == 0 && self.is_idle()).then_some(())
        });
    }

    fn is_idle(&self) -> bool {
        self.store.jobs(&JobFilter::new(), 1).unwrap().is_empty()
    }

    fn ran(&self) -> Vec<String> {
        let mut ran = self.ran.lock().unwrap().clone();
        ran.sort();
        ran
    }

    fn stop(&mut self) {
        for (stop, worker) in self.workers.drain(..) {
            stop.stop();
            worker.join().unwrap();
        }
    }
}

impl Drop for Plant {
    fn drop(&mut self) {
        self.workers.iter().for_each(|(stop, _)| stop.stop());
    }
}

#[test]
fn three_workers_that_define_one_schedule_run_each_slot_once() {
    let mut plant = Plant::new();
    for _ in 0..3 {
        plant.start(vec![hourly()]);
    }
    plant.settle();
    let begun = plant.clock.now();
    for _ in 0..48 {
        plant.clock.advance(HOUR);
        plant.settle();
    }
    let expected: Vec<String> = (1..=48).map(|hour| begun.after(HOUR * hour).to_string()).collect();
    assert_eq!(plant.ran(), expected);
    plant.stop();
}

/// S26: everything is down across five slots, and comes back.
#[test]
fn slots_that_were_missed_while_no_worker_ran_are_made_up_for_as_configured() {
    for (catch_up, expected) in
        [(CatchUp::Skip, 0..0), (CatchUp::One, 5..6), (CatchUp::All(3), 3..6), (CatchUp::All(9), 1..6)]
    {
        let mut plant = Plant::new();
        let begun = plant.clock.now();
        plant.start(vec![hourly().catch_up(catch_up)]);
        plant.settle();
        plant.stop();
        plant.clock.advance(5 * HOUR + 10 * MINUTE);
        plant.start(vec![hourly().catch_up(catch_up)]);
        plant.settle();
        let slots =
            |hours: std::ops::Range<u32>| hours.map(|hour| begun.after(HOUR * hour).to_string()).collect::<Vec<_>>();
        assert_eq!(plant.ran(), slots(expected.clone()), "{catch_up:?}");
        plant.clock.advance(50 * MINUTE);
        plant.settle();
        assert_eq!(plant.ran().last(), slots(6..7).last(), "{catch_up:?}: it goes on");
        plant.stop();
    }
}

/// S27: nothing early, nothing twice, nothing stuck.
#[test]
fn clock_that_steps_back_an_hour_runs_no_slot_again_and_goes_on_afterwards() {
    let mut plant = Plant::new();
    let begun = plant.clock.now();
    plant.start(vec![hourly().catch_up(CatchUp::All(100))]);
    plant.settle();
    for hour in [1, 2] {
        plant.clock.set(begun.after(HOUR * hour));
        plant.settle();
    }
    for minutes in [60, 90, 119, 120, 121, 150, 179] {
        plant.clock.set(begun.after(MINUTE * minutes));
        // What would come early is enqueued before this is.
        let id = plant.store.queue("other").enqueue(job()).unwrap();
        assert_eq!(plant.store.queue("other").claim(1, Duration::ZERO).unwrap()[0].id(), id);
        plant.store.cancel(id).unwrap();
        assert_eq!(plant.ran.lock().unwrap().len(), 2, "after {minutes} minutes");
    }
    plant.clock.set(begun.after(HOUR * 3));
    until("the third slot", || (plant.ran.lock().unwrap().len() == 3).then_some(()));
    assert_eq!(plant.ran().last().unwrap(), &begun.after(HOUR * 3).to_string());
    plant.stop();
}

#[test]
fn draining_in_a_test_enqueues_the_slots_that_have_come() {
    let (store, clock) = casque::testing::store().unwrap();
    let mut tasks = Registry::new();
    tasks.register("task", |_, (): ()| Ok(())).unwrap();
    store.schedule(hourly().catch_up(CatchUp::All(10))).unwrap();
    assert_eq!(casque::testing::drain(&store, &tasks).unwrap().completed, 0);
    clock.advance(3 * HOUR);
    assert_eq!(casque::testing::drain(&store, &tasks).unwrap().completed, 3);
}
