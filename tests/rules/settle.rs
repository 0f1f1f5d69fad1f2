//! How a lease ends, and who may end it.

use std::time::Duration;

use casque::{ErrorKind, JobId, Lease, Result, State, Store};

use crate::{Act, SOON, claim_one, job, kind, on_each_engine, state};

#[test]
fn completed_job_is_gone_unless_it_has_a_result_or_asks_to_be_kept() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let plain = queue.enqueue(job()).unwrap();
        claim_one(&queue).complete().unwrap();
        assert_eq!(kind(store.job(plain)), ErrorKind::NotFound);
        store.wait::<()>(plain, SOON).unwrap();

        let kept = queue.enqueue(job().keep()).unwrap();
        claim_one(&queue).complete().unwrap();
        assert_eq!(store.job(kept).unwrap().state, State::Completed);

        let with_result = queue.enqueue(job()).unwrap();
        claim_one(&queue).complete_with(&vec!["a", "b"]).unwrap();
        assert_eq!(store.wait::<Vec<String>>(with_result, SOON).unwrap(), ["a", "b"]);
        let stats = queue.stats().unwrap();
        assert_eq!((stats.completed, stats.kept, stats.running), (3, 2, 0));
    });
}

#[test]
fn lease_that_was_lost_can_do_nothing_more() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let id = queue.enqueue(job()).unwrap();
        let lost = claim_one(&queue);
        store.release(id, false).unwrap();
        let owner = claim_one(&queue);
        assert_eq!(owner.id(), id);
        owner.progress(0.25, "the owner's").unwrap();
        let before = store.job(id).unwrap();

        let calls: [Act<Result<()>>; 8] = [
            ("complete", &Lease::complete),
            ("complete with a result", &|lease| lease.complete_with(&1)),
            ("complete in a transaction", &|lease| lease.complete_in(|tx| tx.put("done", &()))),
            ("fail", &|lease| lease.fail("no", None)),
            ("snooze", &|lease| lease.snooze(SOON)),
            ("release", &Lease::release),
            ("progress", &|lease| lease.progress(0.5, "stale")),
            ("check", &Lease::check),
        ];
        for (what, call) in calls {
            let version = store.version().unwrap();
            let error = call(&lost).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::LeaseLost, "{what}");
            assert!(error.to_string().contains(&id.to_string()), "{what}: {error}");
            assert_eq!(store.version().unwrap(), version, "{what}");
        }
        assert_eq!(store.job(id).unwrap(), before);
        assert_eq!(store.get::<()>("done").unwrap(), None);
        owner.check().unwrap();
        owner.complete().unwrap();
    });
}

#[test]
fn lease_is_spent_when_it_was_settled() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        queue.enqueue(job()).unwrap();
        let lease = claim_one(&queue);
        assert!(!lease.is_settled());
        lease.complete().unwrap();
        assert!(lease.is_settled());
        assert_eq!(kind(lease.complete()), ErrorKind::LeaseLost);
        assert_eq!(queue.stats().unwrap().completed, 1);
    });
}

#[test]
fn effects_on_the_root_and_the_completion_are_one_commit() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let id = queue.enqueue(job()).unwrap();
        let lease = claim_one(&queue);
        let before = store.version().unwrap();
        let value = lease
            .complete_in(|tx| {
                tx.put("effect", &"done")?;
                tx.add("count", 1)?;
                tx.enqueue("next", job())?;
                Ok("result")
            })
            .unwrap();
        assert_eq!((value, store.version().unwrap().0), ("result", before.0 + 1));
        assert_eq!(store.get::<String>("effect").unwrap().as_deref(), Some("done"));
        assert_eq!(store.wait::<String>(id, SOON).unwrap(), "result");
        assert_eq!(store.queue("next").stats().unwrap().ready, 1);
        assert!(lease.is_settled());
        assert_eq!(kind(lease.complete_in(|tx| tx.add("count", 1))), ErrorKind::LeaseLost);
        assert_eq!(store.get::<i64>("count").unwrap(), Some(1));
    });
}

#[test]
fn completion_in_a_transaction_that_conflicts_runs_again_and_counts_once() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        store.put("sum", &10u32).unwrap();
        queue.enqueue(job()).unwrap();
        let lease = claim_one(&queue);
        let mut runs = 0;
        lease
            .complete_in(|tx| {
                runs += 1;
                let sum: u32 = tx.get("sum")?.unwrap();
                if runs == 1 {
                    store.put("sum", &20u32)?;
                }
                tx.put("sum", &(sum + 1))
            })
            .unwrap();
        assert_eq!((runs, store.get::<u32>("sum").unwrap()), (2, Some(21)));
        assert_eq!(queue.stats().unwrap().completed, 1);
    });
}

#[test]
fn transaction_that_calls_itself_off_leaves_the_lease_as_it_was() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        queue.enqueue(job()).unwrap();
        let lease = claim_one(&queue);
        let aborted: Result<()> = lease.complete_in(|tx| {
            tx.put("effect", &())?;
            Err(casque::Error::abort("not now"))
        });
        assert_eq!(kind(aborted), ErrorKind::Aborted);
        assert_eq!(store.get::<()>("effect").unwrap(), None);
        lease.check().unwrap();
        lease.complete().unwrap();
    });
}

#[test]
fn conflict_tells_the_job_in_whose_handler_the_winner_wrote() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        queue.enqueue_batch((0..20).map(|_| job())).unwrap();
        let (mut winner, mut runs) = (None, 0);
        let error = store
            .transaction(|tx| {
                runs += 1;
                tx.get::<u32>("key")?;
                let lease = claim_one(&queue);
                lease.complete_in(|tx| tx.put("key", &1u32))?;
                winner = Some(lease.id());
                tx.put("key", &2u32)
            })
            .unwrap_err();
        assert_eq!(error.conflict().unwrap().by.as_ref().unwrap().job, winner);
        assert!((2..=20).contains(&runs), "{runs}");
    });
}

fn fail(store: &Store, id: JobId, message: &str) {
    let queue = store.queue("q");
    queue.claim_job(id).unwrap().fail(message, Some(Duration::ZERO)).unwrap();
}

#[test]
fn job_is_dead_after_its_last_attempt_and_not_before() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let id = queue.enqueue(job().max_attempts(3)).unwrap();
        for attempt in 1..=3 {
            let lease = claim_one(&queue);
            assert_eq!((lease.attempt(), lease.max_attempts()), (attempt, 3));
            lease.fail(&format!("failure {attempt}"), Some(Duration::ZERO)).unwrap();
        }
        let job = store.job(id).unwrap();
        assert_eq!((job.state, job.attempt), (State::Dead, 3));
        let told: Vec<_> = job.errors.iter().map(|error| (error.attempt, error.message.as_str())).collect();
        assert_eq!(told, [(1, "failure 1"), (2, "failure 2"), (3, "failure 3")]);
        assert!(queue.claim(1, Duration::ZERO).unwrap().is_empty());
        assert_eq!(kind(store.wait::<()>(id, SOON)), ErrorKind::Aborted);
    });
}

#[test]
fn fatal_failure_is_the_last() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        queue.enqueue(job()).unwrap();
        let lease = claim_one(&queue);
        lease.fail("fatal", None).unwrap();
        let job = store.job(lease.id()).unwrap();
        assert_eq!((job.state, job.attempt, job.errors.len()), (State::Dead, 1, 1));
    });
}

#[test]
fn history_keeps_the_latest_ten_errors_and_cuts_long_ones() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let id = queue.enqueue(job()).unwrap();
        for attempt in 1..=12 {
            // A letter of three bytes that does not end where the limit is.
            fail(store, id, &format!("{attempt}{}", "\u{20ac}".repeat(4_000)));
        }
        let job = store.job(id).unwrap();
        assert_eq!(job.errors.iter().map(|error| error.attempt).collect::<Vec<_>>(), (3..=12).collect::<Vec<_>>());
        assert!(job.errors.iter().all(|error| error.message.len() <= 4 << 10));
        assert!(job.errors[9].message.starts_with("12\u{20ac}"));
    });
}

/// S9.
#[test]
fn snooze_and_release_are_not_charged_and_failures_of_other_jobs_neither() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let other = queue.enqueue(job().priority(-1)).unwrap();
        let id = queue.enqueue(job()).unwrap();
        claim_one(&queue).release().unwrap();
        let lease = claim_one(&queue);
        lease.start().unwrap();
        lease.snooze(SOON).unwrap();
        let snoozed = store.job(id).unwrap();
        assert_eq!((snoozed.state, snoozed.attempt), (State::Scheduled, 0));
        assert!(snoozed.run_at.unwrap() > snoozed.enqueued_at);
        store.retry(id).unwrap();
        fail(store, id, "no");
        assert_eq!(store.job(id).unwrap().attempt, 1);
        let other = store.job(other).unwrap();
        assert_eq!((other.attempt, other.errors.len()), (0, 0));
    });
}

#[test]
fn snooze_without_a_delay_and_a_retry_at_once_are_ready_under_the_old_place() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let [first, second] = queue.enqueue_batch([job(), job()]).unwrap()[..] else { panic!("two jobs") };
        claim_one(&queue).snooze(Duration::ZERO).unwrap();
        claim_one(&queue).fail("no", Some(Duration::ZERO)).unwrap();
        assert_eq!(crate::ids(&queue.claim(2, Duration::ZERO).unwrap()), [first, second]);
    });
}

#[test]
fn longest_delay_neither_overflows_nor_runs_early() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        queue.enqueue(job()).unwrap();
        let lease = claim_one(&queue);
        lease.fail("no", Some(Duration::MAX)).unwrap();
        assert_eq!(state(store, &lease), State::Scheduled);
        queue.enqueue(job().delay(Duration::MAX)).unwrap();
        assert!(queue.claim(5, Duration::ZERO).unwrap().is_empty());
        assert_eq!(queue.stats().unwrap().scheduled, 2);
    });
}

#[test]
fn progress_is_there_while_the_job_is_held_and_goes_when_it_goes_back() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        queue.enqueue(job()).unwrap();
        let lease = claim_one(&queue);
        lease.progress(0.5, "half").unwrap();
        assert_eq!(store.job(lease.id()).unwrap().progress, Some((0.5, "half".to_owned())));
        lease.release().unwrap();
        assert_eq!(store.job(lease.id()).unwrap().progress, None);
    });
}

#[test]
fn many_leases_are_settled_in_one_change_or_none_is() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let ids = queue.enqueue_batch((0..5).map(|_| job())).unwrap();
        let leases = queue.claim(5, Duration::ZERO).unwrap();
        let [done, failed, freed, later, lost] = &leases[..] else { panic!("five jobs") };
        store.release(ids[4], false).unwrap();
        let settle = |with_lost: bool| {
            store.transaction(|tx| {
                tx.add("settled", 4)?;
                tx.complete(done)?;
                tx.fail(failed, "no", None)?;
                tx.release(freed)?;
                tx.snooze(later, Duration::from_mins(1))?;
                if with_lost { tx.complete(lost) } else { Ok(()) }
            })
        };
        let before = store.version().unwrap();
        assert_eq!(kind(settle(true)), ErrorKind::LeaseLost);
        assert_eq!((store.version().unwrap(), queue.stats().unwrap().running), (before, 4), "nothing of it is there");
        settle(false).unwrap();
        assert_eq!(store.version().unwrap().0, before.0 + 1, "it is one change");
        assert_eq!(store.get::<i64>("settled").unwrap(), Some(4));
        assert_eq!(kind(store.job(ids[0])), ErrorKind::NotFound);
        let states = [State::Dead, State::Ready, State::Scheduled];
        assert_eq!([1, 2, 3].map(|index: usize| store.job(ids[index]).unwrap().state), states);
        drop(leases);
        assert_eq!(
            [1, 2, 3].map(|index: usize| store.job(ids[index]).unwrap().state),
            states,
            "and the leases know that"
        );
    });
}
