//! The rules that each engine keeps from each starting state.

use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering},
};

use super::{Subject, all, between, change, puts};
use crate::{engine::RowSet, error::Error};

pub(super) fn get_returns_what_was_put_and_nothing_for_an_absent_key(subject: &mut Subject) {
    subject.write(&puts(&[("m", "value"), ("m/empty", "")]));
    let rows = subject.snapshot();
    assert_eq!(rows.get(b"m").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(rows.get(b"m/empty").unwrap().as_deref(), Some(&b""[..]));
    assert_eq!(rows.get(b"m/").unwrap(), None);
    assert_eq!(rows.get(b"").unwrap(), None);
    assert_eq!(rows.get(b"mm").unwrap(), None);
}

pub(super) fn overwrite_and_remove_take_effect(subject: &mut Subject) {
    subject.write(&puts(&[("m1", "short"), ("m2", "here"), ("m3", "stays")]));
    subject.write(&change(&[("m1", Some("a longer value than before")), ("m2", None), ("m4", None)]));
    let rows = subject.snapshot();
    assert_eq!(rows.get(b"m1").unwrap().as_deref(), Some(&b"a longer value than before"[..]));
    assert_eq!(rows.get(b"m2").unwrap(), None);
    assert_eq!(rows.get(b"m3").unwrap().as_deref(), Some(&b"stays"[..]));
    subject.write(&puts(&[("m2", "again")]));
    assert_eq!(subject.snapshot().get(b"m2").unwrap().as_deref(), Some(&b"again"[..]));
}

pub(super) fn visit_is_ordered_and_keeps_its_bounds(subject: &mut Subject) {
    subject.write(
        &[&b"p\0"[..], b"p", b"p\xff", b"p\xff\xff", b"p/a", b"q", b"o\xff"]
            .into_iter()
            .map(|key| (key.to_vec(), Some(b"v".to_vec())))
            .collect(),
    );
    let rows = subject.snapshot();
    let keys = |start: &[u8], end: &[u8]| -> Vec<Vec<u8>> {
        between(&*rows, start, end).into_iter().map(|(key, _)| key).collect()
    };
    // From a prefix to the next one: all that begin with it, and neither neighbour.
    assert_eq!(keys(b"p", b"q"), [&b"p"[..], b"p\0", b"p/a", b"p\xff", b"p\xff\xff"]);
    // The start is in it, the end isn't.
    assert_eq!(keys(b"p/a", b"p\xff\xff"), [&b"p/a"[..], b"p\xff"]);
    assert_eq!(keys(b"p\xff\0", b"p\xff\x01"), Vec::<Vec<u8>>::new());
    // Nothing lies in a range whose end is its start or is below it.
    assert_eq!(keys(b"p", b"p"), Vec::<Vec<u8>>::new());
    assert_eq!(keys(b"q", b"p"), Vec::<Vec<u8>>::new());
    assert_eq!(keys(b"", b""), Vec::<Vec<u8>>::new());
    let expected: Vec<_> = subject.expected.clone().into_iter().collect();
    assert_eq!(between(&*rows, b"", &[255; 8]), expected);
}

pub(super) fn visit_stops_at_break_and_at_an_error(subject: &mut Subject) {
    subject.write(&puts(&[("m1", "1"), ("m2", "2"), ("m3", "3")]));
    let rows = subject.snapshot();
    let mut seen = Vec::new();
    rows.visit(b"m", b"n", &mut |key, _| {
        seen.push(key.to_vec());
        Ok(if key == b"m2" { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })
    .unwrap();
    assert_eq!(seen, [b"m1", b"m2"]);
    let failed = rows.visit(b"m", b"n", &mut |_, _| Err(Error::invalid("the visitor's own")));
    assert_eq!(failed.unwrap_err().to_string(), "the visitor's own");
}

pub(super) fn old_snapshot_does_not_see_later_writes(subject: &mut Subject) {
    subject.write(&puts(&[("m1", "old"), ("m2", "old")]));
    let (old, before) = (subject.snapshot(), subject.expected.clone());
    for round in 0..20 {
        let value = format!("new {round}");
        subject.write(&change(&[("m1", Some(&value)), ("m2", None), (&format!("m3/{round}"), Some("new"))]));
        assert!(all(&*old) == before);
    }
    assert_eq!(old.get(b"m1").unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(old.get(b"m2").unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(old.get(b"m3/0").unwrap(), None);
}

pub(super) fn write_of_nothing_changes_nothing(subject: &mut Subject) {
    subject.write(&RowSet::new());
    subject.write(&change(&[("m/never there", None)]));
}

pub(super) fn large_value_is_kept(subject: &mut Subject) {
    let value: Vec<u8> = (0..1 << 20).map(|at: u32| at.to_le_bytes()[(at % 3) as usize]).collect();
    subject.write(&RowSet::from([(b"m/large".to_vec(), Some(value.clone()))]));
    assert!(subject.snapshot().get(b"m/large").unwrap().unwrap() == value);
    subject.write(&change(&[("m/large", Some("small now"))]));
}

pub(super) fn ten_thousand_rows_are_kept(subject: &mut Subject) {
    let key = |at: u32| format!("m/{:05}", at.wrapping_mul(7919) % 10_000).into_bytes();
    subject.write(&(0..10_000).map(|at| (key(at), Some(vec![b'x'; (at % 300) as usize]))).collect());
    assert_eq!(between(&*subject.snapshot(), b"m/", b"m0").len(), 10_000);
    subject.write(&(0..10_000).filter(|at| at % 2 == 0).map(|at| (key(at), None)).collect());
    assert_eq!(between(&*subject.snapshot(), b"m/", b"m0").len(), 5_000);
}

pub(super) fn snapshots_never_see_half_a_write(subject: &mut Subject) {
    let both = |round: u32| puts(&[("m1", &round.to_string()), ("m2", &round.to_string())]);
    subject.write(&both(0));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut last = 0;
            while !done.load(Ordering::Acquire) {
                let rows = subject.engine.snapshot().unwrap();
                let (one, two) = (rows.get(b"m1").unwrap().unwrap(), rows.get(b"m2").unwrap().unwrap());
                assert_eq!(one, two);
                let now: u32 = String::from_utf8(one).unwrap().parse().unwrap();
                assert!(now >= last, "a later snapshot went back from {last} to {now}");
                last = now;
            }
        });
        for round in 1..=50 {
            subject.engine.write(None, &both(round)).unwrap();
            // What was answered is in each snapshot taken from now on.
            assert_eq!(subject.engine.snapshot().unwrap().get(b"m1").unwrap().unwrap(), round.to_string().into_bytes());
        }
        done.store(true, Ordering::Release);
    });
    subject.write(&both(50));
}

pub(super) fn random_writes_leave_what_they_should(subject: &mut Subject) {
    let seed = crate::clock::entropy();
    eprintln!("seed: {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..40 {
        let rows: RowSet = (0..random.usize(1..30))
            .map(|_| {
                let key = vec![b'a' + random.u8(..26); random.usize(1..4)];
                (key, random.bool().then(|| vec![random.u8(..); random.usize(..5000)]))
            })
            .collect();
        subject.write(&rows);
        subject.assert_as_expected();
        if random.usize(..10) == 0 {
            subject.reopen();
        }
    }
}
