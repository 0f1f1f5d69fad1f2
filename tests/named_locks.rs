//! Named locks of processes that are killed and stopped. Whatever happens, two holders never write under the same lock:
//! each has its number, and what is guarded by an older one is refused.

mod processes;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use casque::{ErrorKind, Result, Store, types::LockGuard};
use processes::{
    Actor, Scene, assert_sound, await_line, close_here, expect_all, finish_all, observer_here, play, say, store_here,
    tell_all, until,
};

const LOCK: &str = "ledger";
/// The greatest number that has written.
const LAST: &str = "last";
/// How often somebody wrote under a number after a greater one had.
const LATE: &str = "late";
/// The shortest lease time there may be, and one that no test outlasts, in milliseconds.
const LEASE_SHORT: u64 = 500;
const LEASE_HOUR: u64 = 3_600_000;
const PROCESSES: usize = 4;

#[test]
fn actor() {
    play(&[("locker", locker), ("holder", holder), ("leaver", leaver), ("waiter", waiter)]);
}

/// Writes under the lock; the store refuses it where the lock is lost. Gives the version that was read.
fn write_guarded(store: &Store, held: &LockGuard) -> Result<u64> {
    store.transaction(|tx| {
        tx.guard(held);
        let last: u64 = tx.get(LAST)?.unwrap_or(0);
        if last > held.fence().number() {
            // Such a one has lost the lock, and this is never written.
            tx.add(LATE, 1)?;
        }
        tx.put(LAST, &held.fence().number())?;
        tx.add("writes", 1)?;
        Ok(tx.version().0)
    })
}

/// Takes the lock again and again, and notes when it is in and out.
fn locker() {
    let store = store_here();
    let observer = observer_here();
    let pid = std::process::id();
    let is_over = Arc::new(AtomicBool::new(false));
    let over = is_over.clone();
    thread::spawn(move || {
        await_line("stop");
        over.store(true, Ordering::SeqCst);
    });
    say("begun");
    let mut rounds = 0;
    while !is_over.load(Ordering::SeqCst) {
        let held = store.lock(LOCK).unwrap();
        let fence = held.fence();
        observer.note(&format!("in {fence} {pid}"));
        match write_guarded(&store, &held) {
            Ok(version) => observer.note(&format!("wrote {fence} {version}")),
            Err(error) if error.kind() == ErrorKind::LeaseLost => observer.note(&format!("lost {fence} {pid}")),
            Err(error) => say(format!("wrong: {:?}: {}", error.kind(), error.full_message())),
        }
        observer.note(&format!("out {fence} {pid}"));
        drop(held);
        rounds += 1;
    }
    say(format!("rounds {rounds}"));
    close_here(store);
}

/// Takes the lock, and tells what it can do with it when told to.
fn holder() {
    let store = store_here();
    let held = store.lock(LOCK).unwrap();
    say(format!("holds {}", held.fence()));
    await_line("use");
    let kind = |outcome: Result<()>| outcome.map_or_else(|error| format!("{:?}", error.kind()), |()| "ok".to_owned());
    let late = store.transaction(|tx| {
        tx.guard(&held);
        tx.add("writes", 1)
    });
    say(format!("write {}", kind(late)));
    say(format!("check {}", kind(held.check())));
    say(format!("unlock {}", kind(held.unlock())));
    close_here(store);
}

/// Takes the lock, closes the store without a word about it, and lives on.
fn leaver() {
    let store = store_here();
    std::mem::forget(store.lock(LOCK).unwrap());
    close_here(store);
    say("closed");
    await_line("leave");
}

/// Has a thread wait for the lock each time it is told to.
fn waiter() {
    let store = store_here();
    say("begun");
    let mut threads = Vec::new();
    for number in 0..PROCESSES * 2 {
        await_line("wait");
        let (store, observer) = (store.clone(), observer_here());
        threads.push(thread::spawn(move || {
            let held = store.lock(LOCK).unwrap();
            observer.note(&format!("{} {} {number}", held.fence(), std::process::id()));
            write_guarded(&store, &held).unwrap();
            held.unlock().unwrap();
        }));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    close_here(store);
}

fn scene_with_lease(millis: u64) -> (Scene, Store) {
    let scene = Scene::with_server();
    let store = scene.store();
    store.configure("lease", millis).unwrap();
    (scene, store)
}

fn waiting(store: &Store) -> usize {
    store.locks().unwrap().first().map_or(0, |lock| lock.waiting)
}

/// That no two were in at once, but after one that was killed or stopped; that numbers grow; and that what was written
/// was written in their order. Gives how many writes were made.
fn judge(scene: &Scene, interrupted: &BTreeSet<String>) -> u64 {
    let lines = scene.observer().lines();
    let mut inside: Option<(u64, String)> = None;
    let (mut last, mut writes) = (0, Vec::new());
    for line in &lines {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, fence, rest] = words[..] else { panic!("a line is torn: {line:?}") };
        let fence: u64 = fence.parse().unwrap();
        match what {
            // Who is stopped between having the lock and noting it may note it late, when others have had it since.
            "in" if fence <= last => assert!(interrupted.contains(rest), "{line} after {last}"),
            "in" => {
                if let Some((before, pid)) = &inside {
                    assert!(interrupted.contains(pid), "{line}, and {pid} is in under {before}");
                }
                last = fence;
                inside = Some((fence, rest.to_owned()));
            }
            "out" if inside.as_ref().is_some_and(|(within, _)| *within == fence) => inside = None,
            "out" | "lost" => assert!(interrupted.contains(rest), "{line}, and in is {inside:?}"),
            _ => writes.push((rest.parse::<u64>().unwrap(), fence)),
        }
    }
    writes.sort_unstable();
    assert!(writes.is_sorted_by_key(|(_, fence)| *fence), "an older number wrote after a younger one: {writes:?}");
    println!("{} lines, {} writes noted, the last number is {last}", lines.len(), writes.len());
    writes.len() as u64
}

/// Nobody has written late, and the store is sound.
fn end(store: Store) {
    assert_eq!(store.get::<i64>(LATE).unwrap(), None);
    assert!(store.locks().unwrap().is_empty());
    assert_sound(&store);
    store.close().unwrap();
}

fn rounds(lines: &[String]) -> u64 {
    assert!(lines.iter().all(|line| !line.starts_with("wrong")), "{lines:#?}");
    lines.iter().filter_map(|line| line.strip_prefix("rounds ")).map(|count| count.parse::<u64>().unwrap()).sum()
}

#[test]
fn processes_that_are_killed_with_the_lock_never_let_two_in_at_once() {
    let (scene, store) = scene_with_lease(LEASE_HOUR);
    let start = || {
        let mut locker = scene.actor("locker", &[]);
        locker.expect("begun");
        locker
    };
    let mut lockers: Vec<Actor> = (0..PROCESSES).map(|_| start()).collect();
    let mut killed = BTreeSet::new();
    let mut longest = Duration::ZERO;
    for round in 0..12 {
        let begun = scene.observer().lines().len();
        until("some rounds", || (scene.observer().lines().len() > begun + 20).then_some(()));
        // One that holds the lock, if it can be caught.
        let holder = store.locks().unwrap().first().and_then(|lock| lock.pid);
        let at = lockers.iter().position(|locker| Some(locker.pid()) == holder).unwrap_or(round % PROCESSES);
        killed.insert(lockers[at].pid().to_string());
        lockers[at].kill();
        let since = Instant::now();
        let begun = scene.observer().lines().len();
        until("the others to go on", || (scene.observer().lines().len() > begun + 3).then_some(()));
        longest = longest.max(since.elapsed());
        lockers[at] = start();
    }
    tell_all(&mut lockers, "stop");
    let rounds = rounds(&finish_all(lockers));
    let noted = judge(&scene, &killed);
    let written = u64::try_from(store.get::<i64>("writes").unwrap().unwrap()).unwrap();
    assert!(noted <= written && written <= noted + killed.len() as u64, "{noted} noted, {written} written");
    assert!(rounds > 0 && rounds <= written);
    println!("after a kill the others went on within {longest:?}");
    end(store);
}

#[test]
fn processes_that_are_stopped_with_the_lock_write_nothing_late() {
    let (scene, store) = scene_with_lease(LEASE_SHORT);
    let mut lockers: Vec<Actor> = (0..PROCESSES).map(|_| scene.actor("locker", &[])).collect();
    expect_all(&mut lockers, "begun");
    let mut stopped = BTreeSet::new();
    for round in 0..4 {
        let begun = scene.observer().lines().len();
        until("some rounds", || (scene.observer().lines().len() > begun + 20).then_some(()));
        let holder = store.locks().unwrap().first().and_then(|lock| lock.pid);
        let at = lockers.iter().position(|locker| Some(locker.pid()) == holder).unwrap_or(round);
        stopped.insert(lockers[at].pid().to_string());
        lockers[at].stop();
        // A process may be stopped with one of the file's own locks, which nobody can take from it.
        let begun = (scene.observer().lines().len(), Instant::now());
        until("the others to go on, or the lease to be over for long", || {
            let goes_on = scene.observer().lines().len() > begun.0 + 20;
            (goes_on || begun.1.elapsed() > Duration::from_millis(6 * LEASE_SHORT)).then_some(())
        });
        lockers[at].go_on();
    }
    tell_all(&mut lockers, "stop");
    rounds(&finish_all(lockers));
    let noted = judge(&scene, &stopped);
    let written = u64::try_from(store.get::<i64>("writes").unwrap().unwrap()).unwrap();
    assert_eq!(noted, written);
    end(store);
}

#[test]
fn stopped_holder_loses_the_lock_after_the_lease_and_everything_it_does_then_is_refused() {
    let (scene, store) = scene_with_lease(LEASE_SHORT);
    let mut holder = scene.actor("holder", &[]);
    let fence: u64 = holder.expect("holds").parse().unwrap();
    assert!(store.try_lock(LOCK).unwrap().is_none());
    holder.stop();
    let begun = Instant::now();
    let held = store.lock(LOCK).unwrap();
    println!("taken over after {:?}, with a lease of {LEASE_SHORT} ms", begun.elapsed());
    assert!(begun.elapsed() >= Duration::from_millis(LEASE_SHORT), "it was taken over before its lease was over");
    assert!(held.fence().number() > fence);
    write_guarded(&store, &held).unwrap();
    holder.go_on();
    holder.tell("use");
    for what in ["write", "check", "unlock"] {
        assert_eq!(holder.expect(what), "LeaseLost");
    }
    holder.finish();
    assert_eq!(store.get::<i64>("writes").unwrap(), Some(1), "the late write is not there");
    held.check().unwrap();
    held.unlock().unwrap();
    end(store);
}

#[test]
fn lock_of_a_killed_process_is_free_at_once_for_who_waits_and_for_who_comes() {
    let (scene, store) = scene_with_lease(LEASE_HOUR);
    for comes_late in [false, true] {
        let mut holder = scene.actor("holder", &[]);
        let fence: u64 = holder.expect("holds").parse().unwrap();
        let (held, took) = if comes_late {
            holder.kill();
            let killed = Instant::now();
            (store.lock(LOCK).unwrap(), killed.elapsed())
        } else {
            thread::scope(|scope| {
                let waits = scope.spawn(|| (store.lock(LOCK).unwrap(), Instant::now()));
                until("somebody to wait", || (waiting(&store) == 1).then_some(()));
                holder.kill();
                let killed = Instant::now();
                let (held, at) = waits.join().unwrap();
                (held, at.saturating_duration_since(killed))
            })
        };
        println!("comes late: {comes_late}; had after {took:?}");
        assert!(held.fence().number() > fence);
        held.unlock().unwrap();
    }
    let error = {
        let mut holder = scene.actor("holder", &[]);
        holder.expect("holds");
        let error = store.lock_within(LOCK, Duration::from_millis(50)).unwrap_err();
        assert_eq!(waiting(&store), 0, "who has given up waits no more");
        holder.tell("use");
        holder.finish();
        error
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("holds it"), "{error}");
    end(store);
}

#[test]
fn closing_the_store_frees_the_locks_of_a_process_that_lives_on() {
    let (scene, store) = scene_with_lease(LEASE_HOUR);
    let mut leaver = scene.actor("leaver", &[]);
    leaver.expect("closed");
    store.try_lock(LOCK).unwrap().expect("it was freed").unlock().unwrap();
    leaver.tell("leave");
    leaver.finish();
    end(store);
}

#[test]
fn healthy_holder_keeps_the_lock_far_beyond_the_lease_though_others_wait() {
    let (scene, store) = scene_with_lease(LEASE_SHORT);
    let mut holder = scene.actor("holder", &[]);
    holder.expect("holds");
    let error = store.lock_within(LOCK, Duration::from_millis(5 * LEASE_SHORT)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    holder.tell("use");
    for what in ["write", "check", "unlock"] {
        assert_eq!(holder.expect(what), "ok");
    }
    holder.finish();
    end(store);
}

#[test]
fn lock_goes_to_32_threads_of_four_processes_in_the_order_they_came() {
    let (scene, store) = scene_with_lease(LEASE_HOUR);
    let held = store.lock(LOCK).unwrap();
    let mut waiters: Vec<Actor> = (0..PROCESSES).map(|_| scene.actor("waiter", &[])).collect();
    expect_all(&mut waiters, "begun");
    let mut expected = Vec::new();
    for number in 0..PROCESSES * 2 {
        for waiter in &mut waiters {
            waiter.tell("wait");
            expected.push(format!("{} {number}", waiter.pid()));
            until("it to wait", || (waiting(&store) == expected.len()).then_some(()));
        }
    }
    let begun = Instant::now();
    held.unlock().unwrap();
    finish_all(waiters);
    println!("{} hand-overs in {:?}", expected.len(), begun.elapsed());
    let lines = scene.observer().lines();
    let (fences, order): (Vec<u64>, Vec<&str>) = lines
        .iter()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(fence, who)| (fence.parse::<u64>().unwrap(), who))
        .unzip();
    assert_eq!(order, expected);
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
    assert_eq!(store.get::<i64>("writes").unwrap(), Some(32));
    end(store);
}
