//! Limits and names: what is out of range is refused with the thing and the limit named, and changes nothing.

use std::time::Duration;

use casque::{ErrorKind, JobRequest, Payload};

use crate::{claim_one, job, on_each_engine, refused};

const INVALID: ErrorKind = ErrorKind::Invalid;

#[test]
fn names_of_queues_tasks_and_unique_keys_are_checked() {
    on_each_engine(|store| {
        let long = "x".repeat(129);
        let wrong = [("", "empty"), (long.as_str(), "129 bytes"), ("a\nb", "control"), ("a\u{0}b", "control")];
        for (name, why) in wrong {
            refused(store, || store.queue(name).enqueue(job()), INVALID, &["queue name", why]);
            refused(store, || store.queue(name).claim(1, Duration::ZERO), INVALID, &["queue name", why]);
            refused(store, || store.queue(name).pause(), INVALID, &["queue name", why]);
            refused(store, || store.queue("q").enqueue(JobRequest::new(name, &())), INVALID, &["task name", why]);
            refused(store, || store.queue("q").enqueue(job().unique(name)), INVALID, &["unique key", why]);
        }
        assert!(store.queues().unwrap().is_empty());
        let longest = "\u{20ac}".repeat(42);
        store.queue(&longest).enqueue(JobRequest::new(&longest, &()).unique(&longest)).unwrap();
        assert_eq!(claim_one(&store.queue(&longest)).task(), longest);
    });
}

#[test]
fn keys_of_the_root_are_checked() {
    on_each_engine(|store| {
        let long = "x".repeat(513);
        for (key, why) in [("", "empty"), (long.as_str(), "513 bytes"), ("a\tb", "control")] {
            refused(store, || store.put(key, &1), INVALID, &["key", why]);
            refused(store, || store.get::<u32>(key), INVALID, &["key", why]);
            refused(store, || store.remove(key), INVALID, &["key", why]);
            refused(store, || store.add(key, 1), INVALID, &["key", why]);
        }
        store.put(&long[..512], &1u32).unwrap();
        assert_eq!(store.get::<u32>(&long[..512]).unwrap(), Some(1));
    });
}

#[test]
fn priority_attempts_and_metadata_are_checked() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        for priority in [-101i64, 101, i64::MAX, i64::MIN] {
            refused(store, || queue.enqueue(job().priority(priority)), INVALID, &["priority", &priority.to_string()]);
        }
        refused(store, || queue.enqueue(job().max_attempts(0)), INVALID, &["attempt"]);
        let pairs = (0..33).fold(job(), |job, index| job.metadata(index.to_string(), ""));
        refused(store, || queue.enqueue(pairs), INVALID, &["metadata", "33 pairs", "32"]);
        let bytes = job().metadata("key", "x".repeat(4_094));
        refused(store, || queue.enqueue(bytes), INVALID, &["metadata", "4097 bytes"]);
        let most = (0..32).fold(job(), |job, index| job.metadata(format!("{index:02}"), "x".repeat(126)));
        let id = queue.enqueue(most).unwrap();
        assert_eq!(store.job(id).unwrap().metadata.len(), 32);
        assert_eq!(claim_one(&queue).metadata()[31].0, "31");
    });
}

#[test]
fn payload_limit_is_a_setting_and_holds_for_arguments_values_and_results() {
    on_each_engine(|store| {
        store.configure("payload-max", 2_048).unwrap();
        let queue = store.queue("q");
        let json = |bytes: usize| Payload::from_json_text(&format!("\"{}\"", "x".repeat(bytes - 2))).unwrap();
        let says = ["2049 bytes", "2048", "payload-max"];
        let request = |bytes| JobRequest::with_payload("resize", json(bytes));
        refused(store, || queue.enqueue(request(2_049)), INVALID, &says);
        refused(store, || queue.enqueue(request(2_049)), INVALID, &["resize"]);
        let put = |bytes| store.transaction(|tx| tx.put_payload("large-key", json(bytes)));
        refused(store, || put(2_049), INVALID, &says);
        refused(store, || put(2_049), INVALID, &["large-key"]);
        queue.enqueue(request(2_048)).unwrap();
        put(2_048).unwrap();

        let lease = claim_one(&queue);
        refused(store, || lease.complete_with(&"x".repeat(2_047)), INVALID, &["2049 bytes", "result"]);
        lease.check().unwrap();
        lease.complete_with(&"x".repeat(2_046)).unwrap();
    });
}

#[test]
fn batch_over_ten_thousand_jobs_is_refused_whole() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let jobs = |count: usize| (0..count).map(|_| job());
        refused(store, || queue.enqueue_batch(jobs(10_001)), INVALID, &["10001 jobs", "10000"]);
        let transaction = || store.transaction(|tx| (0..10_001).try_for_each(|_| tx.enqueue("q", job())));
        refused(store, transaction, INVALID, &["10000"]);
        assert_eq!(queue.enqueue_batch(jobs(10_000)).unwrap().len(), 10_000);
        assert_eq!(queue.stats().unwrap().ready, 10_000);
        assert!(queue.enqueue_batch(jobs(0)).unwrap().is_empty());
    });
}

#[test]
fn change_over_eight_mebibytes_is_refused_whole() {
    on_each_engine(|store| {
        let large = "x".repeat((1 << 20) - 16);
        let says = ["8388608 bytes", "split"];
        let batch = || store.queue("q").enqueue_batch((0..9).map(|_| JobRequest::new("task", &large)));
        refused(store, batch, INVALID, &says);
        let puts = || store.transaction(|tx| (0..9).try_for_each(|index| tx.put(&format!("key-{index}"), &large)));
        refused(store, puts, INVALID, &says);
        let metadata = || {
            let request = |_| job().metadata("key", "x".repeat(4_000));
            store.queue("q").enqueue_batch((0..3_000).map(request))
        };
        refused(store, metadata, INVALID, &says);
        assert_eq!(store.list::<String>("").unwrap(), []);
        assert!(store.queues().unwrap().is_empty());
        store.queue("q").enqueue_batch((0..7).map(|_| JobRequest::new("task", &large))).unwrap();
    });
}

#[test]
fn batch_with_one_wrong_job_leaves_no_trace_of_the_others() {
    on_each_engine(|store| {
        let batch = || store.queue("q").enqueue_batch([job(), job().unique("key"), job().priority(101)]);
        refused(store, batch, INVALID, &["priority 101"]);
        assert!(store.queues().unwrap().is_empty());
        assert!(store.jobs(&casque::JobFilter::new(), 10).unwrap().is_empty());
        // The key of the one that was not made is free.
        let id = store.queue("q").enqueue(job().unique("key")).unwrap();
        assert_eq!(claim_one(&store.queue("q")).id(), id);
    });
}

#[test]
fn claims_and_progress_are_checked() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        queue.enqueue(job()).unwrap();
        for jobs in [0, 1_001] {
            refused(store, || queue.claim(jobs, Duration::ZERO), INVALID, &[&jobs.to_string(), "1000"]);
        }
        let lease = claim_one(&queue);
        for fraction in [-0.1, 1.1, f32::NAN, f32::INFINITY] {
            refused(store, || lease.progress(fraction, ""), INVALID, &["progress"]);
        }
        refused(store, || lease.progress(0.5, &"x".repeat(4_097)), INVALID, &["4097 bytes", "4096"]);
        lease.progress(1.0, &"x".repeat(4_096)).unwrap();
    });
}

#[test]
fn arguments_that_are_no_json_are_refused_with_their_place() {
    let error = Payload::from_json_text("{\"a\": 1,\n oops}").unwrap_err();
    assert_eq!(error.kind(), INVALID);
    assert!(error.to_string().contains("line 2"), "{error}");
}
