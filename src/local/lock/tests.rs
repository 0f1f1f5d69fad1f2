//! Two handles in one process stand for two processes: an OS lock belongs to the open file.

use std::sync::{Mutex, mpsc};

use super::{
    super::holder::{Holder, holder, last_note},
    *,
};

fn folder() -> (tempfile::TempDir, Folder) {
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::create(&home.path().join("app.redb")).unwrap();
    (home, folder)
}

fn take<'a>(lock: &'a WriterLock, purpose: &str) -> WriterGuard<'a> {
    lock.take_unless(purpose, || false).unwrap().unwrap()
}

#[test]
fn who_waits_may_give_up() {
    let (_home, folder) = folder();
    let (first, second) = (handle(&folder, "first"), handle(&folder, "second"));
    let guard = take(&first, "to hold it");
    let mut looks = 0;
    let given_up = second.take_unless("in vain", || {
        looks += 1;
        looks == 3
    });
    assert!(given_up.unwrap().is_none());
    assert!(!first.bell_is_held().unwrap(), "who gave up does not ring any more");
    drop(guard);
    drop(take(&second, "now"));
}

fn handle(folder: &Folder, label: &str) -> WriterLock {
    let mut lock = WriterLock::open(folder, label.to_owned()).unwrap();
    // A busy machine must not end a hand-over that a test waits for.
    lock.patience = Duration::from_mins(1);
    lock
}

#[test]
fn lock_has_one_holder_who_is_named() {
    let (_home, folder) = folder();
    let (first, second) = (handle(&folder, "first\nline"), handle(&folder, "second"));
    assert_eq!(holder(&folder), None);
    let guard = first.try_take("a test").unwrap().unwrap();
    assert!(second.try_take("too late").unwrap().is_none());
    assert!(first.try_take("from another thread").unwrap().is_none());
    let expected = Holder {
        pid: std::process::id(),
        boot_id: crate::local::boot_id().to_owned(),
        label: "first line".to_owned(),
        purpose: "a test".to_owned(),
    };
    assert_eq!(holder(&folder), Some(expected.clone()));
    assert_eq!(holder(&folder), Some(expected));
    drop(guard);
    assert_eq!(holder(&folder), None);
    assert!(second.try_take("in time").unwrap().is_some());
}

#[test]
fn note_that_a_dead_holder_has_left_names_nobody() {
    let (_home, folder) = folder();
    let lock = handle(&folder, "next");
    std::fs::write(folder.lock(), super::super::holder::held(7, "dead", "a test")).unwrap();
    assert_eq!(holder(&folder), None);
    assert_eq!(last_note(&folder).unwrap().label, "dead", "for who knows that the lock is held");
    let _guard = take(&lock, "to go on");
    assert_eq!(holder(&folder).unwrap().label, "next");
}

#[test]
fn released_lock_goes_to_the_one_who_waits() {
    let (_home, folder) = folder();
    let (first, second) = (handle(&folder, "first"), handle(&folder, "second"));
    let order = Mutex::new(Vec::new());
    let (resume, resumed) = mpsc::channel::<()>();
    let guard = take(&first, "to begin");
    std::thread::scope(|scope| {
        let (second, order) = (&second, &order);
        scope.spawn(move || {
            let guard = take(second, "after waiting");
            guarded(order).push("second");
            resumed.recv().unwrap();
            drop(guard);
        });
        while !first.bell_is_held().unwrap() {
            std::thread::yield_now();
        }
        assert_eq!(holder(&folder).unwrap().label, "first", "a thread that waits does not keep others from asking");
        drop(guard);
        assert!(first.try_take("too soon").unwrap().is_none());
        resume.send(()).unwrap();
        let _guard = take(&first, "again");
        guarded(order).push("first");
    });
    assert_eq!(*guarded(&order), ["second", "first"]);
}

#[test]
fn waiter_that_never_comes_is_waited_for_once() {
    let (_home, folder) = folder();
    let mut lock = handle(&folder, "busy");
    let stopped = handle(&folder, "stopped");
    assert!(stopped.ring().unwrap());
    drop(take(&lock, "one"));
    assert!(lock.try_take("two").unwrap().is_none());
    lock.patience = Duration::ZERO;
    drop(lock.try_take("two").unwrap().unwrap());
    lock.patience = Duration::from_mins(1);
    drop(lock.try_take("three").unwrap().unwrap());
}

#[test]
fn threads_of_one_handle_exclude_each_other() {
    let (_home, folder) = folder();
    let lock = handle(&folder, "threads");
    let inside = Mutex::new(());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let _guard = take(&lock, "counting");
                    drop(inside.try_lock().expect("another thread holds the lock too"));
                }
            });
        }
    });
}

#[test]
fn replaced_lock_file_stops_who_has_the_old_one_and_is_left_as_it_is() {
    let (_home, folder) = folder();
    let lock = handle(&folder, "old");
    drop(take(&lock, "a test"));
    std::fs::remove_file(folder.lock()).unwrap();
    let other = handle(&folder, "new");
    let other_guard = other.try_take("of another file").unwrap().unwrap();
    let error = lock.take_unless("too late", || false).unwrap_err();
    assert_eq!(error.kind(), crate::error::ErrorKind::Closed);
    assert!(error.to_string().contains("open the store again"), "{error}");
    assert_eq!(holder(&folder).unwrap().label, "new");
    drop(other_guard);
}

#[cfg(unix)]
#[test]
fn lock_that_leads_elsewhere_is_refused_and_what_it_leads_to_is_left_alone() {
    let (home, folder) = folder();
    let victim = home.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, folder.lock()).unwrap();
    let error = WriterLock::open(&folder, "a test".to_owned()).unwrap_err();
    assert!(error.to_string().contains("symbolic link"), "{error}");
    assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
}

#[test]
fn note_survives_any_label() {
    let (_home, folder) = folder();
    let lock = handle(&folder, &"ü\0".repeat(400));
    let _guard = take(&lock, &"purpose ".repeat(100));
    assert_eq!(std::fs::metadata(folder.lock()).unwrap().len(), 512);
    let holder = holder(&folder).unwrap();
    assert!(holder.label.starts_with("ü ü"), "{holder:?}");
    assert!(holder.purpose.starts_with("purpose purpose"), "{holder:?}");
}
