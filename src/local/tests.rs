use std::{
    fs::{File, OpenOptions},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use super::{
    Folder, Note, NoteState, Seen, SessionFile, Wakes, boot_id, children, files, look, network::network_type, remove,
    remove_leftovers, sessions,
};
use crate::queue::id::{JobId, SessionId, Token};

const JOB: JobId = JobId { version: 1042, index: 3 };

fn folder() -> (tempfile::TempDir, Folder) {
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::create(&home.path().join("app.redb")).unwrap();
    (home, folder)
}

fn seen(folder: &Folder, id: SessionId) -> Seen {
    look(folder, id).unwrap().expect("the session has a file")
}

fn session_path(folder: &Folder, id: SessionId) -> std::path::PathBuf {
    folder.sessions().join(id.to_string())
}

#[test]
fn folder_is_made_once_for_the_owner_only() {
    let home = tempfile::tempdir().unwrap();
    let store = home.path().join("app.redb");
    assert_eq!(Folder::existing(&store).unwrap(), None);
    let folder = Folder::create(&store).unwrap();
    let path = home.path().join("app.redb.d");
    assert!(path.is_dir());
    assert_eq!(Folder::create(&store).unwrap(), folder);
    assert_eq!(Folder::existing(&store).unwrap(), Some(folder.clone()));
    Wakes::open(&folder).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&folder.sessions()), 0o700);
        assert_eq!(mode(&folder.wakes()), 0o600);
    }
}

#[cfg(unix)]
#[test]
fn folder_that_is_a_link_or_a_file_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), home.path().join("link.redb.d")).unwrap();
    std::fs::write(home.path().join("file.redb.d"), "").unwrap();
    for name in ["link.redb", "file.redb"] {
        let store = home.path().join(name);
        for error in [Folder::create(&store).unwrap_err(), Folder::existing(&store).unwrap_err()] {
            assert_eq!(error.kind(), crate::ErrorKind::Unavailable);
            assert!(error.to_string().contains("move it away"), "{error}");
        }
    }
}

#[test]
fn network_file_system_is_that_of_the_deepest_mount() {
    let mounts = "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                  31 20 0:40 / /srv rw shared:5 - nfs4 host:/srv rw\n\
                  32 31 8:2 / /srv/local rw - xfs /dev/sdb rw\n\
                  33 20 0:41 / /my\\040share rw - fuse.sshfs host: rw\n\
                  34 20 0:42 / /twice rw - cifs //host/x rw\n\
                  35 20 0:43 / /twice rw - tmpfs tmpfs rw\n\
                  nonsense\n";
    let kind = |path: &str| network_type(mounts, Path::new(path));
    assert_eq!(kind("/home/app.redb"), None);
    assert_eq!(kind("/srv/app.redb").as_deref(), Some("nfs4"));
    assert_eq!(kind("/srvother/app.redb"), None);
    assert_eq!(kind("/srv/local/app.redb"), None);
    assert_eq!(kind("/my share/app.redb").as_deref(), Some("fuse.sshfs"));
    assert_eq!(kind("/twice/app.redb"), None);
}

#[test]
fn wakes_are_seen_through_every_handle() {
    let (_home, folder) = folder();
    let (first, second) = (Wakes::open(&folder).unwrap(), Wakes::open(&folder).unwrap());
    assert_eq!(second.read(), 0);
    first.bump().unwrap();
    second.bump().unwrap();
    assert_eq!((first.read(), second.read()), (2, 2));
}

#[test]
fn session_is_alive_until_its_owner_drops_it() {
    let (_home, folder) = folder();
    let id = SessionId::random();
    assert_eq!(look(&folder, id).unwrap(), None);
    let session = SessionFile::create(&folder, id, "a worker").unwrap();
    session.beat(Duration::from_millis(50)).unwrap();
    session.beat(Duration::from_secs(1)).unwrap();
    let alive = seen(&folder, id);
    assert_eq!((alive.pid, alive.boot_id.as_str()), (std::process::id(), boot_id()));
    assert_eq!((alive.label.as_str(), alive.beat, alive.alive), ("a worker", 2, true));
    assert_eq!(alive.beat_interval, Duration::from_secs(1));
    assert!(alive.started_ms > 0);
    drop(session);
    assert_eq!(sessions(&folder).unwrap(), [Seen { alive: false, ..alive }]);
    remove(&folder, id).unwrap();
    remove(&folder, id).unwrap();
    assert_eq!(sessions(&folder).unwrap(), []);
}

#[test]
fn observers_do_not_take_each_other_for_the_owner() {
    let (_home, folder) = folder();
    let id = SessionId::random();
    drop(SessionFile::create(&folder, id, "").unwrap());
    let other = File::open(session_path(&folder, id)).unwrap();
    other.lock_shared().unwrap();
    assert!(!seen(&folder, id).alive);
}

#[test]
fn notes_tell_how_far_each_job_came() {
    let (_home, folder) = folder();
    let id = SessionId::random();
    let session = SessionFile::create(&folder, id, &"long label ".repeat(100)).unwrap();
    let slots: Vec<_> = (1..=3).map(|token| session.note_started(JOB, Token(token), 7).unwrap()).collect();
    session.note_ended(&slots[1], true).unwrap();
    session.note_ended(&slots[2], false).unwrap();
    let note = |token, state| Note { job: JOB, token: Token(token), started_ms: 7, state };
    let ended = [note(2, NoteState::EndedClean), note(3, NoteState::EndedOther)];
    assert_eq!(seen(&folder, id).notes, [note(1, NoteState::Started), ended[0], ended[1]]);

    let mut slots = slots.into_iter();
    session.clear(slots.next().unwrap()).unwrap();
    assert_eq!(seen(&folder, id).notes, ended);
    let _slot = session.note_started(JOB, Token(4), 7).unwrap();
    assert_eq!(seen(&folder, id).notes, [note(4, NoteState::Started), ended[0], ended[1]]);
    assert!(seen(&folder, id).label.starts_with("long label"));
}

#[test]
fn note_of_a_settled_job_stays_until_its_place_is_needed() {
    let (_home, folder) = folder();
    let id = SessionId::random();
    let session = SessionFile::create(&folder, id, "").unwrap();
    let tokens = || seen(&folder, id).notes.iter().map(|note| note.token.0).collect::<Vec<_>>();
    let slot = session.note_started(JOB, Token(1), 7).unwrap();
    session.leave(slot);
    assert_eq!(tokens(), [1]);
    let slot = session.note_started(JOB, Token(2), 7).unwrap();
    assert_eq!(tokens(), [2]);
    session.clear(slot).unwrap();
    assert_eq!(tokens(), [0; 0]);
}

#[test]
fn session_file_of_a_former_format_says_nothing() {
    let (_home, folder) = folder();
    let id = SessionId::random();
    let session = SessionFile::create(&folder, id, "").unwrap();
    session.beat(Duration::from_secs(1)).unwrap();
    let file = OpenOptions::new().write(true).open(session_path(&folder, id)).unwrap();
    files::write_at(&file, b"casqses1", 0).unwrap();
    let seen = seen(&folder, id);
    assert_eq!((seen.pid, seen.beat, seen.beat_interval, seen.alive), (0, 0, Duration::ZERO, true));
}

#[test]
fn torn_note_reads_as_none() {
    let (_home, folder) = folder();
    let id = SessionId::random();
    let session = SessionFile::create(&folder, id, "").unwrap();
    let _slots = [1, 2].map(|token| session.note_started(JOB, Token(token), 7).unwrap());
    let file = OpenOptions::new().write(true).open(session_path(&folder, id)).unwrap();
    files::write_at(&file, &[0xff], 512 + 15).unwrap();
    let notes = seen(&folder, id).notes;
    assert_eq!(notes.iter().map(|note| note.token).collect::<Vec<_>>(), [Token(2)]);
}

#[test]
fn damaged_session_file_reads_as_a_dead_session() {
    let (_home, folder) = folder();
    let id = SessionId::random();
    let session = SessionFile::create(&folder, id, "whole").unwrap();
    let _slot = session.note_started(JOB, Token(1), 7).unwrap();
    drop(session);
    let path = session_path(&folder, id);
    let whole = std::fs::read(&path).unwrap();
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        let seen = seen(&folder, id);
        assert!(!seen.alive && seen.notes.is_empty(), "cut to {length} bytes: {seen:?}");
        assert_eq!(seen.boot_id.is_empty(), length < 352, "cut to {length} bytes: {seen:?}");
    }
    for at in 0..352 {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x40;
        std::fs::write(&path, &damaged).unwrap();
        assert_eq!(seen(&folder, id).pid, 0, "damaged at {at}");
    }
}

#[test]
fn what_is_not_a_session_file_is_skipped() {
    let (_home, folder) = folder();
    std::fs::create_dir(session_path(&folder, SessionId::random())).unwrap();
    std::fs::write(folder.sessions().join("notes.txt"), "hello").unwrap();
    std::fs::write(folder.sessions().join("ABCDEF0123456789ABCDEF0123456789"), "").unwrap();
    assert_eq!(sessions(&folder).unwrap(), []);
}

#[test]
fn leftovers_are_removed_only_when_their_maker_is_gone() {
    let (_home, folder) = folder();
    let (dead, busy) = (folder.sessions().join("x.new"), folder.children().join("y.new"));
    std::fs::write(&dead, "").unwrap();
    let maker = File::create(&busy).unwrap();
    maker.lock().unwrap();
    let id = SessionId::random();
    let _session = SessionFile::create(&folder, id, "").unwrap();
    remove_leftovers(&folder).unwrap();
    assert!(!dead.exists() && busy.exists());
    assert!(seen(&folder, id).alive);
    drop(maker);
    remove_leftovers(&folder).unwrap();
    assert!(!busy.exists());
}

#[test]
fn sessions_are_made_while_leftovers_are_removed() {
    let (_home, folder) = folder();
    std::thread::scope(|scope| {
        let maker = scope.spawn(|| {
            for _ in 0..200 {
                let id = SessionId::random();
                let _session = SessionFile::create(&folder, id, "").unwrap();
                assert!(seen(&folder, id).alive);
                remove(&folder, id).unwrap();
            }
        });
        while !maker.is_finished() {
            remove_leftovers(&folder).unwrap();
        }
    });
}

#[cfg(unix)]
#[test]
fn childs_lock_is_busy_while_the_child_lives() {
    let (_home, folder) = folder();
    let token = Token(7);
    let lock = children::create(&folder, JOB, token).unwrap();
    let mut child = Command::new("sleep").arg("600").stdin(Stdio::from(lock)).spawn().unwrap();
    assert!(children::is_busy(&folder, JOB, token));
    assert!(!children::is_busy(&folder, JOB, Token(8)));
    assert!(!children::remove(&folder, JOB, token).unwrap());
    assert!(children::create(&folder, JOB, token).unwrap_err().to_string().contains("1042-3-7"));
    let listed = children::list(&folder).unwrap();
    assert_eq!((listed.len(), listed[0].job, listed[0].token), (1, JOB, token));
    assert_eq!((listed[0].busy, listed[0].parent_pid), (true, Some(std::process::id())));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!children::is_busy(&folder, JOB, token));
    assert!(children::remove(&folder, JOB, token).unwrap());
    assert_eq!(children::list(&folder).unwrap(), []);
}
