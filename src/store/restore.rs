//! Restoring: a backup becomes the store at a path where there is none. The file is copied as it is, byte by byte, so
//! that the sums over its pages are still those that were written, and the copy is checked by them and by all that can
//! be read off its rows, before anybody can find it. Then it gets a life of its own, like a backup: two stores that
//! were restored from one backup are two.

use std::{
    fs::{File, Metadata},
    io::{Read, Write},
    path::Path,
};

use crate::{
    check::check_rows,
    engine::Engine as _,
    engine::redb::{Redb, RedbOptions},
    error::{Error, ErrorKind, Result},
    local::{
        self, Draft, Folder,
        files::{create_new, refused},
    },
    store::{
        Store,
        backup::{Backup, Progress, error_of, size},
        conflict::Version,
        life::new_life,
        open::{StoreOptions, check_format, refuse_unfit_place, resolve},
        recovery::log_in_use,
        site::Files,
        snapshot::version_of,
    },
};

const BUFFER_BYTES: usize = 1 << 20;
/// How many of its findings are told of a damaged backup.
const FINDINGS_TOLD: usize = 3;
const NOTHING: &str = "nothing was restored";

impl Store {
    /// Makes the store at a path from a backup, which stays as it is. It is checked first, and there must be no store
    /// at the path. An example is at [`Store::backup`].
    ///
    /// # Errors
    /// As [`StoreOptions::restore`].
    pub fn restore(backup: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<Backup> {
        StoreOptions::new().restore(backup, path)
    }
}

impl StoreOptions {
    /// As [`Store::restore`], with these options.
    ///
    /// # Errors
    /// `Invalid` where something is at the path, where the folder beside it has a log or processes of a store that was
    /// there, or where the backup is none; `NotFound` for a backup or a folder that is missing; `Corrupt` for a backup
    /// that is damaged; `Unavailable` where space or permission is lacking. Nothing is at the path then.
    pub fn restore(&self, backup: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<Backup> {
        self.restore_telling(backup.as_ref(), path.as_ref(), &mut |_, _| {})
    }

    pub(crate) fn restore_telling(&self, backup: &Path, path: &Path, progress: &mut Progress<'_>) -> Result<Backup> {
        Redb::open(backup, self.redb_options().clone())?;
        refuse_store_at_work(backup)?;
        let path = resolve(path)?;
        check_target(&path)?;
        refuse_unfit_place(&path)?;
        // Whoever would make an empty store here at this moment has to wait, and then finds this one.
        let files = Files::open(&path, &self.label_or_default())?;
        let guard = self.lock_to_create(&files)?;
        let draft = Draft::begin(&path)?;
        copy(backup, draft.path(), &path, progress)?;
        let version = begin_life(draft.path(), self.redb_options()).map_err(|error| {
            let is_of_backup = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid);
            error_of(&error, draft.path(), if is_of_backup { backup } else { &path }, NOTHING)
        })?;
        let bytes = size(draft.path())?;
        draft.finish()?;
        drop(guard);
        Ok(Backup { path, version, bytes })
    }
}

/// # Errors
/// `Invalid` where a store is at the path, or what one has left beside it must not be mixed up with another.
pub(crate) fn check_target(path: &Path) -> Result<()> {
    local::check_free(path)?;
    let Some(folder) = Folder::existing(path)? else { return Ok(()) };
    refuse_who_works(&folder, path, "end it first")?;
    if folder.log().try_exists().unwrap_or(true) {
        let log = folder.log();
        return Err(Error::invalid(format!(
            "{} is the log of a store that was here, which is not whole without it; move the folder of that log to \
             where that store's file is now, or remove it, then try again",
            log.display()
        )));
    }
    Ok(())
}

/// # Errors
/// `Invalid` where somebody works on what is to be copied: it must stand still.
pub(crate) fn refuse_store_at_work(backup: &Path) -> Result<()> {
    let backup = resolve(backup)?;
    match Folder::existing(&backup)? {
        Some(folder) => refuse_who_works(&folder, &backup, "take a backup of it by `casque backup`, and restore that"),
        None => Ok(()),
    }
}

fn refuse_who_works(folder: &Folder, path: &Path, remedy: &str) -> Result<()> {
    let holder = local::holder(folder).filter(|_| local::is_lock_held(folder)).map(|holder| holder.pid);
    let session = local::sessions(folder)?.into_iter().find(|seen| seen.alive).map(|seen| seen.pid);
    let is_child = |child: &local::children::Child| child.busy;
    let child = local::children::list(folder)?.into_iter().find(is_child).map(|child| child.parent_pid.unwrap_or(0));
    let who = match (holder.or(session), child) {
        (Some(pid), _) => format!("process {pid} works on"),
        (None, Some(pid)) => format!("a child of process {pid} works on a job of"),
        (None, None) if local::is_lock_held(folder) => "a process works on".to_owned(),
        (None, None) => return Ok(()),
    };
    Err(Error::invalid(format!("{who} the store {}; {remedy}", path.display())))
}

fn copy(from: &Path, to: &Path, place: &Path, progress: &mut Progress<'_>) -> Result<()> {
    let reading = |cause| refused("read", from, cause);
    let mut source = File::open(from).map_err(reading)?;
    let before = source.metadata().map_err(reading)?;
    let mut target = create_new(to)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut done = 0;
    loop {
        let count = source.read(&mut buffer).map_err(reading)?;
        if count == 0 {
            break;
        }
        target.write_all(&buffer[..count]).map_err(|cause| refused("write", place, cause))?;
        done += count as u64;
        progress(done, before.len().max(done));
    }
    let has_changed = |now: &Metadata| now.len() != before.len() || now.modified().ok() != before.modified().ok();
    if source.metadata().is_ok_and(|now| has_changed(&now)) || done != before.len() {
        return Err(Error::unavailable(format!(
            "{} was written to while it was read; take a backup of it by `casque backup`, and restore that",
            from.display()
        )));
    }
    Ok(())
}

/// Checks the store in a file that nobody else knows, and begins its life there, durably; gives its version.
fn begin_life(path: &Path, options: &RedbOptions) -> Result<Version> {
    let engine = Redb::open(path, options.clone())?;
    let begun = check_and_change(&engine, path);
    let closed = engine.close();
    let version = begun.map_err(|error| {
        // What became of the write does not matter: nobody will see it.
        let kind = if error.kind() == ErrorKind::Unknown { ErrorKind::Unavailable } else { error.kind() };
        Error::new(kind, error.full_message())
    })?;
    closed?;
    // redb syncs the data; the file's length and mode are to last as well.
    File::open(path).and_then(|file| file.sync_all()).map_err(|cause| refused("sync", path, cause))?;
    Ok(version)
}

fn check_and_change(engine: &Redb, path: &Path) -> Result<Version> {
    let rows = engine.latest()?;
    check_format(rows.as_ref())?;
    if log_in_use(rows.as_ref())?.is_some() {
        return Err(Error::invalid(format!(
            "{} is no backup, but a store whose last changes are in a log beside it; take a backup of it by `casque \
             backup`, and restore that",
            path.display()
        )));
    }
    drop(rows);
    let mut findings: Vec<String> = engine.check()?;
    let rows = engine.latest()?;
    findings.extend(check_rows(rows.as_ref())?.iter().map(ToString::to_string));
    if !findings.is_empty() {
        let count = findings.len();
        findings.truncate(FINDINGS_TOLD);
        let told = findings.join("; ");
        return Err(Error::corrupt(format!("{} is damaged ({count} findings): {told}", path.display())));
    }
    let (version, life) = (version_of(rows.as_ref())?, new_life(rows.as_ref())?);
    drop(rows);
    engine.write(None, &life)?;
    Ok(version)
}
