//! A2: who asks again gets the answer that was given, and nothing is done twice.

use crate::{
    engine::{RowSet, memory::Memory},
    error::ErrorKind,
    queue::{
        JobRequest,
        claim::Claim,
        id::SessionId,
        select::{Tasks, Wanted},
        settle::{Ending, Settle},
    },
    store::{
        change::{Change, ClientId, Intent},
        conflict::Writer,
        group::{Proposal, decide},
        object::StoreRecord,
        site::Site,
    },
};

use super::*;

struct Rig {
    site: Site,
    session: SessionId,
}

impl Rig {
    fn new() -> Self {
        Self { site: Site::in_memory(Box::new(Memory::new())), session: SessionId::random() }
    }

    /// Decides and writes one change as a stone does for a client.
    fn send(&self, number: u64, asked: Asked, intents: Vec<Intent>) -> Result<Applied> {
        let change = Change { id: self.id(number), writer: Writer::default(), guards: Vec::new(), intents };
        let rows = self.site.engine.latest().unwrap();
        let before: StoreRecord = get_record(rows.as_ref(), keys::STORE).unwrap().unwrap_or_default();
        let proposals = [Proposal { change: &change, asked: Some(asked) }];
        let decided = decide(&self.site, &proposals, rows.as_ref(), before).unwrap();
        self.site.engine.write(None, &decided.rows).unwrap();
        decided.verdicts.into_iter().next().unwrap()
    }

    fn id(&self, number: u64) -> ChangeId {
        let _ = self;
        ChangeId { client: ClientId { born: Version(4), random: 1 }, number }
    }

    fn claim(&self, jobs_max: usize) -> Intent {
        Intent::Claim(Claim {
            session: self.session,
            queues: vec!["q".into()],
            wanted: Wanted { tasks: Tasks::Any, jobs_max, idle: true },
            candidates: Vec::new(),
            fill: true,
            conflicts: 0,
        })
    }

    fn kept(&self) -> Vec<u64> {
        let rows = self.site.engine.latest().unwrap();
        let record: ClientRecord =
            get_record(rows.as_ref(), &keys::client(self.id(0).client)).unwrap().unwrap_or_default();
        record.verdicts.iter().map(|verdict| verdict.number).collect()
    }
}

fn first(awaited: u64) -> Asked {
    Asked { awaited, parked: Vec::new(), resent: false }
}

fn again(awaited: u64) -> Asked {
    Asked { resent: true, ..first(awaited) }
}

fn jobs(count: usize) -> Vec<Intent> {
    (0..count).map(|_| Intent::Enqueue(JobRequest::new("t", &()).for_queue("q").unwrap())).collect()
}

#[test]
fn batch_that_is_sent_again_gets_the_ids_it_was_given() {
    let rig = Rig::new();
    let mut batch = jobs(3);
    batch.push(Intent::Put { key: "k".into(), value: crate::store::object::Value::Counter(1) });
    batch.extend(jobs(2));
    let given = rig.send(1, first(1), batch.clone()).unwrap();
    assert_eq!(rig.send(1, again(1), batch).unwrap(), given);
}

#[test]
fn settlement_that_is_sent_again_enqueues_once() {
    let rig = Rig::new();
    rig.send(1, first(1), jobs(1)).unwrap();
    let given = rig.send(2, first(2), vec![rig.claim(1)]).unwrap();
    let Outcome::Claimed(claimed) = &given.outcomes[0] else { panic!("{given:?}") };
    let next = |intents: Vec<Intent>| match intents.into_iter().next() {
        Some(Intent::Enqueue(job)) => job,
        other => panic!("{other:?}"),
    };
    let settle = Settle {
        job: claimed.jobs[0].record.id,
        token: claimed.token.unwrap(),
        started_at: None,
        how: Ending::Complete { result: None },
        enqueues: vec![next(jobs(1)), next(jobs(1))],
    };
    let intents = || vec![Intent::SettleEach(vec![settle.clone()])];
    let settled = rig.send(3, first(3), intents()).unwrap();
    assert_eq!(rig.send(3, again(3), intents()).unwrap(), settled);
    let Outcome::Claimed(ready) = &rig.send(4, first(4), vec![rig.claim(10)]).unwrap().outcomes[0] else { panic!() };
    assert_eq!(ready.jobs.len(), 2);
}

#[test]
fn claim_that_is_sent_again_gets_the_jobs_that_it_still_holds() {
    let rig = Rig::new();
    rig.send(1, first(1), jobs(3)).unwrap();
    let given = rig.send(2, first(2), vec![rig.claim(2)]).unwrap();
    assert_eq!(rig.send(2, again(2), vec![rig.claim(2)]).unwrap(), given);
    let Outcome::Claimed(claimed) = &given.outcomes[0] else { panic!("{given:?}") };
    let done = Settle {
        job: claimed.jobs[0].record.id,
        token: claimed.token.unwrap(),
        started_at: None,
        how: Ending::Complete { result: None },
        enqueues: Vec::new(),
    };
    rig.send(3, first(2), vec![Intent::Settle(done)]).unwrap();
    let now = rig.send(2, again(2), vec![rig.claim(2)]).unwrap();
    let Outcome::Claimed(held) = &now.outcomes[0] else { panic!("{now:?}") };
    assert_eq!(held.jobs, claimed.jobs[1..]);
}

#[test]
fn answers_that_are_not_awaited_any_more_are_dropped_but_for_the_claim_that_waits() {
    let rig = Rig::new();
    for number in 1..=4 {
        rig.send(number, Asked { awaited: number, parked: vec![2], resent: false }, jobs(1)).unwrap();
    }
    assert_eq!(rig.kept(), [2, 4]);
}

#[test]
fn what_was_never_committed_is_decided_when_it_is_sent_again() {
    let rig = Rig::new();
    rig.send(1, first(1), jobs(1)).unwrap();
    let applied = rig.send(2, again(2), jobs(1)).unwrap();
    assert_eq!(applied.version, Some(Version(2)));
}

#[test]
fn client_that_was_dropped_is_told_that_nobody_knows() {
    let rig = Rig::new();
    let horizon = codec::encode(&HorizonRecord { born: Version(5) }).unwrap();
    rig.site.engine.write(None, &RowSet::from([(keys::CLIENT_HORIZON.to_vec(), Some(horizon))])).unwrap();
    let error = rig.send(1, again(1), jobs(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown);
    assert!(error.to_string().contains("change 4.0000000000000001.1"), "{error}");
    assert!(rig.send(2, first(2), jobs(1)).is_ok(), "what is new is decided all the same");
}

#[test]
fn records_of_clients_have_their_golden_bytes() {
    let record = ClientRecord {
        verdicts: vec![Verdict {
            number: 7,
            version: Version(300),
            stamp: Timestamp::from_millis(1_700_000_000_000),
            outcomes: vec![
                Kept::Enqueued { first: 0, count: 2 },
                Kept::Claimed {
                    jobs: vec![JobId { version: 9, index: 1 }],
                    claimed: Claimed { token: Some(Token(300)), ..Claimed::default() },
                },
                Kept::Other(Outcome::Done),
            ],
        }],
    };
    let bytes = codec::encode(&record).unwrap();
    assert_eq!(
        codec::hex(&bytes),
        "01010107fb2c01fd0068e5cf8b0100000300000201010901000 1fb2c010000000200".replace(' ', "")
    );
    assert_eq!(codec::decode::<ClientRecord>(&bytes).unwrap(), record);
    let horizon = HorizonRecord { born: Version(300) };
    assert_eq!(codec::hex(&codec::encode(&horizon).unwrap()), "0101fb2c01");
}
