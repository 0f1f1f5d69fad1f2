//! Answers of a stone that come too late, or by another.

use std::{os::unix::net::UnixListener, thread, time::Duration};

use crate::{
    clock::{deadline_after, monotonic},
    error::ErrorKind,
    stone::wire::{
        Hello, Reply, Request, Welcome,
        spoken::{hear, say},
    },
    store::{
        change::{Applied, Intent, Outcome},
        open::StoreOptions,
    },
};

/// How long a test waits for what must happen.
const DEADLINE: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_millis(300);

/// The wish goes to a stone that does not answer it, and is sent again after its asker has gone.
#[test]
fn lock_that_is_given_after_its_asker_has_left_is_freed() {
    let folder = tempfile::tempdir().unwrap();
    let store = StoreOptions::new().timeout(PATIENCE).open(folder.path().join("app.redb")).unwrap();
    let before = store.version().unwrap();
    let socket = folder.path().join("app.redb.d/sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let unanswering = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        hear::<Hello>(&mut stream);
        say(&mut stream, &Welcome::Come { pid: std::process::id() });
        loop {
            let Request::Change { change, .. } = hear(&mut stream) else { continue };
            if matches!(change.intents.as_slice(), [Intent::Unlock { .. }]) {
                // As by one who has never heard of the wish.
                let outcomes = vec![Outcome::Unlocked { was_held: false }];
                let answer = Ok(Applied { version: None, stamp: crate::Timestamp::from_millis(0), outcomes });
                say(&mut stream, &Reply::Change { number: change.id.number, answer });
                return std::fs::remove_file(&socket).unwrap();
            }
        }
    });
    let error = store.lock_within("nightly", PATIENCE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{}", error.full_message());
    unanswering.join().unwrap();
    let deadline = deadline_after(DEADLINE);
    while store.version().unwrap().0 < before.0 + 2 {
        assert!(monotonic() < deadline, "nobody frees it: {:?}", store.locks().unwrap());
        thread::yield_now();
    }
    assert_eq!(store.locks().unwrap(), []);
}
