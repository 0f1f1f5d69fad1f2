//! Frames of a socket that were changed on their way: each is refused, or is a message that can be said again.

use serde::{Serialize, de::DeserializeOwned};

use super::{spoken::framed, *};
use crate::{
    fuzz::Fuzz,
    queue::{IntoJob as _, JobRequest},
    store::{
        change::{ChangeId, Guard, Intent},
        conflict::{Version, Writer},
    },
};

fn taken<M: Serialize + DeserializeOwned>(bytes: &[u8]) {
    if let Ok(Some((message, length))) = take_frame::<M>(bytes) {
        assert!(length <= bytes.len());
        let again = framed(&message);
        assert!(take_frame::<M>(&again).unwrap().is_some());
    }
}

/// What both ends may say.
fn said() -> Vec<Vec<u8>> {
    let client = ClientId { born: Version(7), random: 8 };
    let job = JobRequest::new("task", &("argument", 7_u32)).priority(3).unique("key").metadata("a", "b");
    let job = job.into_job().for_queue("default").unwrap();
    let guard = Guard::Object { key: "key".to_owned(), version: Some(Version(3)) };
    let session = SessionId::random();
    let writer = Writer { label: "label".to_owned(), job: None };
    let id = ChangeId { client, number: 5 };
    let change = Change { id, writer, guards: vec![guard], intents: vec![Intent::Enqueue(job)] };
    let asked = Asked { awaited: 3, parked: vec![1, 2], resent: true };
    let hello = Hello {
        protocol: PROTOCOL,
        store: [7; 16],
        client,
        purpose: Purpose::Work,
        pid: 77,
        label: "label".to_owned(),
    };
    let refusal = Refusal::from(Error::invalid("what is wrong"));
    vec![
        framed(&hello),
        framed(&Welcome::Come { pid: 7 }),
        framed(&Welcome::No { protocol: 9, store: [3; 16] }),
        framed(&Request::Change { asked, wait_ms: 30_000, change }),
        framed(&Request::CloseWindow { ask: 1 }),
        framed(&Request::Bury { session }),
        framed(&Request::CallOff { number: 8 }),
        framed(&Reply::Change { number: 1, answer: Err(refusal) }),
        framed(&Reply::Asked { ask: 1, answer: Ok(()) }),
    ]
}

#[test]
fn fuzz_frames() {
    Fuzz::new("frames", said()).run(|input| {
        taken::<Hello>(input);
        taken::<Welcome>(input);
        taken::<Request>(input);
        taken::<Reply>(input);
    });
}
