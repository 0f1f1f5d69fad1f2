//! Claims that wait: who is served, in which order, and who is not even tried.

use std::cell::RefCell;

use super::*;
use crate::{
    clock::monotonic,
    queue::{
        id::SessionId,
        select::{Tasks, Wanted},
    },
    stone::entry::Origin,
    store::{
        change::{ChangeId, ClientId},
        conflict::{Version, Writer},
        lock::{
            Fence,
            rules::{Claimant, LockRequest},
        },
    },
};

fn claim(number: u64, queue: &str, jobs_max: usize) -> Entry {
    let claim = Claim::new(SessionId::random(), vec![queue.into()], Wanted { tasks: Tasks::Any, jobs_max, idle: true });
    let client = ClientId { born: Version(0), random: 1 };
    let change = Change {
        id: ChangeId { client, number },
        writer: Writer::default(),
        guards: Vec::new(),
        intents: vec![Intent::Claim(claim)],
    };
    let origin = Origin::Client { connection: 2, number };
    Entry { origin, change, asked: None, wait_until: Some(monotonic() + LIFE_MAX) }
}

fn lot(claims: impl IntoIterator<Item = Entry>) -> Lot {
    let mut lot = Lot::default();
    claims.into_iter().for_each(|claim| lot.park(claim));
    lot
}

fn queues(names: &[&str]) -> HashSet<String> {
    names.iter().map(ToString::to_string).collect()
}

fn numbers(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.change.id.number).collect()
}

#[test]
fn latest_claim_is_served_first_and_only_as_many_as_find_something() {
    let mut lot = lot((1..=4).map(|number| claim(number, "q", 1)));
    let tried = RefCell::new(Vec::new());
    let served = lot.serve(&queues(&["q"]), |entry| {
        tried.borrow_mut().push(entry.change.id.number);
        if tried.borrow().len() <= 2 { Served::Yes } else { Served::FoundNothing }
    });
    assert_eq!(numbers(&served), [4, 3]);
    assert_eq!(*tried.borrow(), [4, 3, 2], "the first is like the second, which found nothing");
    assert_eq!(numbers(&lot.take(|_| true)), [1, 2]);
}

#[test]
fn claim_that_wants_something_else_is_tried_where_the_like_found_nothing() {
    let mut lot = lot([claim(1, "q", 2), claim(2, "other", 1), claim(3, "q", 1)]);
    let served = lot
        .serve(&queues(&["q"]), |entry| if entry.change.id.number == 1 { Served::Yes } else { Served::FoundNothing });
    assert_eq!(numbers(&served), [1]);
    assert_eq!(numbers(&lot.take(|_| true)), [2, 3], "what was not served waits on");
}

#[test]
fn claim_whose_client_shows_no_life_stands_in_nobodys_way() {
    let mut lot = lot((1..=3).map(|number| claim(number, "q", 1)));
    let served =
        lot.serve(&queues(&["q"]), |entry| if entry.change.id.number == 3 { Served::Not } else { Served::Yes });
    assert_eq!(numbers(&served), [2, 1]);
    assert_eq!(numbers(&lot.take(|_| true)), [3]);
}

fn wish(number: u64, name: &str) -> Entry {
    let mut entry = claim(number, "q", 1);
    let claimant = Claimant { session: SessionId::random(), nonce: number };
    entry.change.intents = vec![Intent::Lock(LockRequest { name: name.into(), claimant, waits: true })];
    entry
}

#[test]
fn wish_for_a_lock_waits_where_another_has_it_and_is_tried_when_that_lock_is_told_of() {
    let applied = |version, fence| Applied {
        version,
        stamp: crate::clock::Timestamp::default(),
        outcomes: vec![Outcome::Locked(fence)],
    };
    let (entry, none) = (wish(1, "a"), HashSet::new());
    let names = |name: &str| HashSet::from([name.to_owned()]);
    assert!(is_to_wait(&entry.change, &applied(None, None), &none));
    assert!(!is_to_wait(&entry.change, &applied(None, Some(Fence(1))), &none), "it has the lock");
    assert!(
        !is_to_wait(&entry.change, &applied(Some(Version(2)), None), &none),
        "it was noted just now, and asks again"
    );
    assert!(!is_to_wait(&entry.change, &applied(None, None), &names("a")), "it may have been freed behind it");
    assert!(is_to_wait(&entry.change, &applied(None, None), &names("b")));

    let mut lot = Lot::default();
    lot.park(claim(1, "q", 1));
    assert!(!lot.has_locks());
    for (number, name) in [(2, "a"), (3, "b"), (4, "a")] {
        lot.park(wish(number, name));
    }
    assert!(lot.has_locks());
    let tried = RefCell::new(Vec::new());
    let served = lot.serve_locks(&names("a"), |entry| {
        tried.borrow_mut().push(entry.change.id.number);
        entry.change.id.number == 4
    });
    assert_eq!(tried.into_inner(), [2, 4]);
    assert_eq!(served.iter().map(|entry| entry.change.id.number).collect::<Vec<_>>(), [4]);
    assert_eq!(lot.take(|_| true).len(), 3);
}

#[test]
fn claim_that_is_called_off_has_waited_long_enough() {
    let mut lot = lot([claim(1, "q", 1), claim(2, "q", 1)]);
    let now = monotonic();
    assert!(lot.take_over(now).is_empty());
    lot.hurry(|entry| entry.change.id.number == 2);
    assert_eq!(numbers(&lot.take_over(now)), [2]);
    assert!(lot.take_over(now).is_empty());
}

#[test]
fn wait_is_over_at_its_end_whoever_came_first_and_whoever_went() {
    let now = monotonic();
    let at = |seconds| now + Duration::from_secs(seconds);
    let ends = [(1, 3), (2, 1), (3, 2), (4, 1)];
    let mut lot = lot(ends.map(|(number, seconds)| Entry { wait_until: Some(at(seconds)), ..claim(number, "q", 1) }));
    assert_eq!(lot.next_end(), Some(at(1)));
    assert!(lot.take_over(now).is_empty());
    assert_eq!(numbers(&lot.take_over(at(1))), [2, 4]);
    assert_eq!(lot.next_end(), Some(at(2)));
    // The next one is served in time: when it would have ended there is nothing to take, and the last is looked for.
    assert_eq!(numbers(&lot.take(|entry| entry.change.id.number == 3)), [3]);
    assert!(lot.take_over(at(2)).is_empty());
    assert_eq!(lot.next_end(), Some(at(3)));
    assert_eq!(numbers(&lot.take_over(at(4))), [1]);
    assert_eq!(lot.next_end(), None);
}

#[test]
fn only_a_claim_alone_that_found_nothing_waits() {
    let nothing = |outcomes| Applied { version: None, stamp: crate::Timestamp::from_millis(0), outcomes };
    let empty = || Outcome::Claimed(crate::queue::claim::Claimed::default());
    let alone = claim(1, "q", 1).change;
    assert!(is_to_wait(&alone, &nothing(vec![empty()]), &HashSet::new()));
    let suspects = crate::queue::claim::Claimed { suspects_wait: true, ..Default::default() };
    assert!(
        !is_to_wait(&alone, &nothing(vec![Outcome::Claimed(suspects)]), &HashSet::new()),
        "P4: the worker is to make itself idle"
    );
    let mut both = claim(1, "q", 1).change;
    both.intents.push(Intent::Promote { limit: 1 });
    assert!(!is_to_wait(&both, &nothing(vec![empty(), Outcome::Promoted { jobs: 0 }]), &HashSet::new()));
}

#[test]
fn queues_with_new_jobs_are_told_from_the_rows() {
    let lane = crate::queue::lane::Lane::new(0, 1, false);
    let place = crate::queue::id::JobId { version: 5, index: 0 };
    let rows = RowSet::from([
        (keys::ready("filled", lane, place), Some(vec![1])),
        (keys::ready("emptied", lane, place), None),
        (keys::head("resumed"), Some(vec![1])),
        (keys::count("counted"), Some(vec![1])),
    ]);
    assert_eq!(queues_with_jobs(&rows), queues(&["filled", "resumed"]));
}
