//! Groups whose write fails: what is answered never tells of rows that were not written.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::{
    engine::{Engine, Rows, SnapshotError, memory::Memory},
    queue::JobRequest,
    store::{
        change::{ChangeId, ClientId, Intent, Outcome},
        conflict::Writer,
        object::Value,
    },
};

/// Memory whose next write fails, with nothing written.
#[derive(Default)]
struct Failing {
    memory: Memory,
    fails: AtomicBool,
}

impl Engine for Arc<Failing> {
    fn snapshot(&self) -> Result<Box<dyn Rows + Send>, SnapshotError> {
        self.memory.snapshot()
    }

    fn latest(&self) -> Result<Box<dyn Rows + Send>> {
        self.memory.latest()
    }

    fn write(&self, basis: Option<&Basis>, rows: &RowSet) -> Result<()> {
        if self.fails.swap(false, Ordering::SeqCst) {
            return Err(Error::unavailable("the disk is full"));
        }
        self.memory.write(basis, rows)
    }

    fn recover(&self) -> Result<()> {
        Ok(())
    }

    fn close_if_only_read(&self) -> Result<bool> {
        Ok(false)
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }

    fn check(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

fn desk() -> (Desk, Arc<Failing>) {
    let engine = Arc::new(Failing::default());
    let site = Arc::new(Site::in_memory(Box::new(engine.clone())));
    (Desk::new(site, None, Arc::default()), engine)
}

fn change(number: u64, guards: Vec<crate::store::change::Guard>, intent: Intent) -> Change {
    let id = ChangeId { client: ClientId { born: Version(0), random: 1 }, number };
    Change { id, writer: Writer::default(), guards, intents: vec![intent] }
}

fn enqueue(number: u64) -> Change {
    change(number, Vec::new(), Intent::Enqueue(JobRequest::new("t", &()).unique("key").for_queue("q").unwrap()))
}

fn put(number: u64) -> Intent {
    let value = Value::Plain(crate::Payload::json(&number).unwrap());
    Intent::Put { key: "key".into(), value }
}

/// Commits changes as one group.
fn commit(desk: &Desk, changes: &[Change]) -> Vec<Result<Applied>> {
    let proposals: Vec<_> = changes.iter().map(|change| Proposal { change, asked: None }).collect();
    desk.commit_locked(&proposals)
}

fn kinds(answers: Vec<Result<Applied>>) -> Vec<Option<ErrorKind>> {
    answers.into_iter().map(|answer| answer.err().map(|error| error.kind())).collect()
}

#[test]
fn group_gives_each_committed_change_the_next_version() {
    let (desk, _) = desk();
    let answers = commit(
        &desk,
        &[
            change(1, Vec::new(), put(1)),
            change(2, Vec::new(), Intent::Remove { key: "none".into() }),
            change(3, Vec::new(), Intent::Remove { key: String::new() }),
            change(4, Vec::new(), put(4)),
        ],
    );
    let versions: Vec<_> = answers.into_iter().map(|answer| answer.map(|applied| applied.version).ok()).collect();
    assert_eq!(versions, [Some(Some(Version(1))), Some(None), None, Some(Some(Version(2)))], "INV-2");
}

#[test]
fn change_sees_those_before_it_in_its_group() {
    let (desk, _) = desk();
    let absent = || vec![crate::store::change::Guard::Object { key: "key".into(), version: None }];
    let answers = commit(&desk, &[change(1, absent(), put(1)), change(2, absent(), put(2))]);
    let error = answers[1].as_ref().unwrap_err();
    assert_eq!((answers[0].is_ok(), error.conflict().unwrap().found), (true, Some(Version(1))));
}

#[test]
fn no_answer_of_a_failed_group_tells_of_rows_that_were_not_written() {
    let (desk, engine) = desk();
    engine.fails.store(true, Ordering::SeqCst);
    // The second is given the job of the first, and writes nothing itself; but there is no such job.
    let answers = commit(&desk, &[enqueue(1), enqueue(2)]);
    assert_eq!(kinds(answers), [Some(ErrorKind::Unavailable); 2]);
    let answers = commit(&desk, &[enqueue(3)]);
    let applied = answers[0].as_ref().unwrap();
    assert!(matches!(applied.outcomes[0], Outcome::Enqueued { existing: false, .. }));
}

#[test]
fn no_conflict_of_a_failed_group_names_a_winner_that_did_not_win() {
    let (desk, engine) = desk();
    let absent = || vec![crate::store::change::Guard::Object { key: "key".into(), version: None }];
    engine.fails.store(true, Ordering::SeqCst);
    let refused = change(1, Vec::new(), Intent::Remove { key: String::new() });
    let answers = commit(&desk, &[refused, change(2, absent(), put(2)), change(3, absent(), put(3))]);
    // What was refused before anything else had been applied stays refused.
    let unavailable = Some(ErrorKind::Unavailable);
    assert_eq!(kinds(answers), [Some(ErrorKind::Invalid), unavailable, unavailable]);
}
