//! Unique keys: one job that has not ended, whoever enqueues it and how often.

use std::{collections::HashSet, sync::Barrier, thread, time::Duration};

use casque::{ErrorKind, JobRequest, Registry, State, Task, Unique, Worker};

use crate::{Act, claim_one, dead, job, kind, on_each_engine, refused};

/// S23, with threads.
#[test]
fn many_threads_that_enqueue_one_unique_key_at_once_get_one_job() {
    const THREADS: usize = 32;
    on_each_engine(|store| {
        let queue = store.queue("q");
        for round in 0..20u64 {
            let start = Barrier::new(THREADS);
            let ids: HashSet<_> = thread::scope(|scope| {
                let enqueue = || {
                    start.wait();
                    queue.enqueue(job().unique("key")).unwrap()
                };
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(enqueue)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!((ids.len(), queue.stats().unwrap().ready), (1, 1));
            let lease = claim_one(&queue);
            assert!(ids.contains(&lease.id()));
            lease.complete().unwrap();
            assert_eq!(queue.stats().unwrap().completed, round + 1);
        }
    });
}

#[test]
fn unique_key_is_held_through_every_state_before_the_end() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let id = queue.enqueue(job().unique("key").delay(Duration::from_mins(1))).unwrap();
        let again = || queue.enqueue(job().unique("key")).unwrap();
        assert_eq!(again(), id, "scheduled");
        store.retry(id).unwrap();
        assert_eq!(again(), id, "ready");
        let lease = claim_one(&queue);
        assert_eq!(again(), id, "running");
        lease.fail("no", Some(Duration::from_mins(1))).unwrap();
        assert_eq!(again(), id, "scheduled again");
        assert_eq!(store.jobs(&casque::JobFilter::new(), 10).unwrap().len(), 1);
    });
}

/// S24.
#[test]
fn no_unique_key_outlives_its_job() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let unique = || job().unique("key");
        let ends: [Act<()>; 5] = [
            ("completed", &|lease| lease.complete().unwrap()),
            ("completed with a result", &|lease| lease.complete_with(&1).unwrap()),
            ("dead", &|lease| lease.fail("no", None).unwrap()),
            ("cancelled", &|lease| {
                store.cancel(lease.id()).unwrap();
                lease.release().unwrap();
            }),
            ("completed in a transaction", &|lease| lease.complete_in(|tx| tx.put("done", &())).unwrap()),
        ];
        for (how, end) in ends {
            let id = queue.enqueue(unique()).unwrap();
            let lease = claim_one(&queue);
            assert_eq!(lease.id(), id);
            end(&lease);
            let next = queue.enqueue(unique()).unwrap();
            assert_ne!(next, id, "{how}");
            claim_one(&queue).complete().unwrap();
        }
    });
}

#[test]
fn dead_job_whose_unique_key_another_holds_is_not_retried() {
    on_each_engine(|store| {
        let first = dead(store, job().unique("key"));
        let queue = store.queue("dead");
        let second = queue.enqueue(job().unique("key")).unwrap();
        let error = store.retry(first.id).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(&second.to_string()), "{error}");
        store.cancel(second).unwrap();
        store.retry(first.id).unwrap();
        assert_eq!(queue.enqueue(job().unique("key")).unwrap(), first.id, "it holds its key again");
        assert_eq!(kind(store.retry(second)), ErrorKind::Invalid);
    });
}

#[test]
fn jobs_are_unique_by_what_is_said_of_them_and_get_the_id_of_the_one_there_is() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let to = |task: &str, user: u64, unique: Unique| JobRequest::new(task, &(user, "x")).unique_by(unique);
        let enqueue = |job: JobRequest| queue.enqueue(job).unwrap();
        let by_args = enqueue(to("a", 1, Unique::args()));
        assert_eq!(enqueue(to("a", 1, Unique::args())), by_args);
        assert_ne!(enqueue(to("a", 2, Unique::args())), by_args);
        assert_ne!(enqueue(to("b", 1, Unique::args())), by_args);

        let by_value = enqueue(to("a", 1, Unique::by(&1u64)));
        assert_eq!(enqueue(to("b", 5, Unique::by(&1u64))), by_value);
        assert_ne!(enqueue(to("b", 5, Unique::by(&1u64).per_task())), by_value);

        let json = |text: &str| {
            let args = casque::Payload::from_json_text(text).unwrap();
            JobRequest::with_payload("a", args).unique_by(Unique::fields(["user"]))
        };
        let by_field = enqueue(json(r#"{"user": {"id": 1, "name": "x"}, "n": 1}"#));
        assert_eq!(enqueue(json(r#"{"n": 2, "user": {"name": "x", "id": 1}}"#)), by_field);
        refused(store, || queue.enqueue(json(r#"{"usr": 1}"#)), ErrorKind::Invalid, &["no field \"user\"", "usr"]);

        let everywhere =
            |queue: &str| store.queue(queue).enqueue(to("a", 1, Unique::key("k").across_queues())).unwrap();
        assert_eq!(everywhere("one"), everywhere("two"));
    });
}

#[test]
fn key_with_a_time_is_held_after_its_job_has_succeeded_and_not_after_it_has_died() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let once = || job().unique_by(Unique::key("key").within(Duration::from_hours(1)));
        let first = queue.enqueue(once()).unwrap();
        claim_one(&queue).complete().unwrap();
        assert_eq!(store.job(first).unwrap().state, State::Completed, "it is kept for its key");
        assert_eq!(queue.enqueue(once()).unwrap(), first);
        let other = || job().unique_by(Unique::key("other").within(Duration::from_hours(1)));
        let died = queue.enqueue(other()).unwrap();
        claim_one(&queue).fail("no", None).unwrap();
        assert_ne!(queue.enqueue(other()).unwrap(), died);
    });
}

#[test]
fn task_says_what_makes_its_jobs_unique_and_a_request_something_else() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Remind {
        user: u64,
        text: String,
    }

    impl Task for Remind {
        const ID: &'static str = "remind";
        type Output = ();

        fn run(self, _: &casque::Job) -> Result<(), casque::TaskError> {
            Ok(())
        }

        fn uniqueness(&self) -> Option<Unique> {
            Some(Unique::by(&self.user).per_task())
        }
    }

    on_each_engine(|store| {
        let queue = store.queue("q");
        let remind = |user, text: &str| Remind { user, text: text.to_owned() };
        let first = queue.enqueue(&remind(1, "a")).unwrap();
        assert_eq!(queue.enqueue(&remind(1, "b")).unwrap(), first);
        assert_ne!(queue.enqueue(&remind(2, "a")).unwrap(), first);
        assert_ne!(queue.enqueue(remind(1, "a").unique("another")).unwrap(), first);
    });
}

#[test]
fn unique_keys_are_of_their_queue() {
    on_each_engine(|store| {
        let ids: HashSet<_> =
            ["a", "b"].iter().map(|queue| store.queue(queue).enqueue(job().unique("key")).unwrap()).collect();
        assert_eq!(ids.len(), 2);
    });
}

#[test]
fn one_unique_key_twice_in_a_batch_is_one_job() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let ids = queue.enqueue_batch([job().unique("key"), job(), job().unique("key")]).unwrap();
        assert_eq!(ids[0], ids[2]);
        assert_ne!(ids[0], ids[1]);
        assert_eq!(queue.stats().unwrap().ready, 2);
        assert_eq!(store.job(ids[0]).unwrap().state, State::Ready);
    });
}

#[test]
fn run_enqueues_the_next_job_under_the_unique_key_that_it_gives_up() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let next = || job().unique("key");
        // One lease alone, a transaction whatever is said first in it, and a worker's turn.
        let first = queue.enqueue(next()).unwrap();
        let lease = claim_one(&queue);
        lease.enqueue("q", next()).unwrap();
        lease.complete().unwrap();
        let second = claim_one(&queue);
        assert_ne!(second.id(), first);
        second.complete_in(|tx| tx.enqueue("q", next())).unwrap();
        let third = claim_one(&queue);
        assert_ne!(third.id(), second.id());
        // A run that fails keeps its key, and what it enqueued is not.
        third.enqueue("q", next()).unwrap();
        third.fail("no", Some(Duration::ZERO)).unwrap();
        assert_eq!(queue.enqueue(next()).unwrap(), third.id());

        let mut tasks = Registry::new();
        let count = |job: &casque::Job, rest: u32| {
            if rest > 0 {
                job.enqueue("w", JobRequest::new("count", &(rest - 1)).unique("key"))?;
            }
            Ok(())
        };
        tasks.register("count", count).unwrap();
        store.queue("w").enqueue(JobRequest::new("count", &5u32).unique("key")).unwrap();
        Worker::new(store).queue("w").tasks(tasks).drain(true).run().unwrap();
        assert_eq!(store.queue("w").stats().unwrap().completed, 6);
    });
}
