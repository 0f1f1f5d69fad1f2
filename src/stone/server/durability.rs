//! How what was decided becomes durable: in the log at once, in the store's file when its window ends. Rules L1 to L5.

use std::time::Instant;

use super::{
    RETRY_EVERY, Stone, WINDOW_BYTES_MAX,
    sealer::{Answer, Batch, Unsealed, give_out},
};
use crate::{
    clock::monotonic,
    codec,
    engine::RowSet,
    error::{Error, ErrorKind, Result},
    stone::{
        candidate::News,
        entry::Closer,
        log::{Log, Syncer},
        window::Window,
    },
    store::{
        desk::{Step, write_and_know},
        group::{committed, fail_unwritten},
        keys,
        object::{LogRecord, StoreRecord},
    },
};

impl Stone<'_> {
    /// L1: a fresh log, and only when it is on the disk the word in the store that it is in use.
    pub(super) fn begin_log(&mut self) -> Result<()> {
        let site = self.ground.site;
        let Some(files) = site.files() else { return Ok(()) };
        let mut log = Log::create(&files.folder.log(), self.format.store, self.ground.hook.clone())?;
        let version = self.window.store.version;
        // From here on it may be named, whatever the write says.
        self.is_log_named = true;
        self.write_log_row(&LogRecord::InUse { log: log.id().0 })?;
        log.begin(self.half, version);
        self.log = Some(log);
        Ok(())
    }

    fn say_no_log(&mut self) -> Result<()> {
        self.write_log_row(&LogRecord::None)?;
        self.is_log_named = false;
        Ok(())
    }

    fn write_log_row(&mut self, record: &LogRecord) -> Result<()> {
        let version = self.window.store.version;
        let rows = RowSet::from([(keys::LOG.to_vec(), Some(codec::encode(record)?))]);
        let written = write_and_know(self.ground.site, &self.window.basis, &rows, (version, version));
        // A write that failed has closed the file that the window reads from.
        self.window.thaw(self.ground.site).and(written)
    }

    /// Has the store name no log any more, if it does; for a stone that goes on or leaves without one.
    pub(super) fn give_up_log(&mut self) -> Result<()> {
        self.log = None;
        if self.is_log_named { self.say_no_log() } else { Ok(()) }
    }

    /// Writes a group's rows to the log or into the store's file, and sees to its answers.
    pub(super) fn write(
        &mut self,
        rows: RowSet,
        (before, after): (StoreRecord, StoreRecord),
        answers: Vec<Answer>,
        has_company: bool,
    ) {
        let committed = committed(before.version, after.version);
        let mut batch = Batch { answers, syncer: None, committed };
        let written = if rows.is_empty() {
            Ok(())
        } else if self.log.is_none() {
            self.write_through(rows, before, after)
        } else {
            match self.write_to_log(rows, before, after) {
                Ok(Some(syncer)) => {
                    batch.syncer = Some(syncer);
                    Ok(())
                }
                Ok(None) => {
                    // What was decided before is answered before.
                    self.settle();
                    self.is_behind_log = true;
                    self.unsealed.push(batch);
                    self.answer_unsealed();
                    return;
                }
                Err(error) => Err(error),
            }
        };
        if let Err(failure) = written {
            batch.committed = 0;
            fail_unwritten(batch.answers.iter_mut().map(|answer| &mut answer.verdict), &failure);
        }
        self.give(batch, has_company);
    }

    /// What makes a group durable that was appended to the log; nothing where the log could not take it: it is in the
    /// window alone then.
    fn write_to_log(&mut self, rows: RowSet, before: StoreRecord, after: StoreRecord) -> Result<Option<Syncer>> {
        let bytes = Log::record_bytes(&rows);
        if self.log.as_ref().is_some_and(|log| !log.fits(bytes)) {
            self.turn_over()?;
        }
        let mut syncer = None;
        if let Some(log) = self.log.as_mut().filter(|log| log.fits(bytes)) {
            let appended = log.append(before.version, after.version, &rows);
            syncer = Some(log.syncer());
            self.ground.desk.step(Step::Appended);
            if let Err(error) = appended {
                syncer = None;
                self.settle();
                self.lose_log(Unsealed { error, batches: Vec::new() });
            }
        }
        self.window.absorb(rows, after, monotonic());
        Ok(syncer)
    }

    /// Has a group answered: now where it is durable and nobody waits before it, else after the sync that it needs.
    /// Where others ask meanwhile that is another thread's, so that what they ask is decided meanwhile.
    pub(super) fn give(&mut self, batch: Batch, has_company: bool) {
        if !self.unsealed.is_empty() {
            self.unsealed.push(batch);
            return;
        }
        if !self.sealer.is_idle() || (has_company && batch.syncer.is_some()) {
            self.sealer.hand(batch);
            return;
        }
        match batch.syncer.as_ref().map_or(Ok(()), Syncer::sync) {
            Ok(()) => {
                let is_write = batch.syncer.is_some();
                self.give_out(vec![batch]);
                if is_write {
                    self.callers.note_answered(monotonic());
                }
            }
            Err(error) => {
                self.lose_log(Unsealed { error, batches: vec![batch] });
                self.answer_unsealed();
            }
        }
    }

    pub(super) fn give_out(&mut self, batches: Vec<Batch>) {
        let stuck = give_out(self.ground.desk, batches);
        self.connections.note_unsent(&stuck);
    }

    /// L4: a log that failed is never appended to again, and what it did not make durable goes into the store's file
    /// before it is answered.
    fn lose_log(&mut self, Unsealed { error, batches }: Unsealed) {
        self.ground.site.note_trouble(&error);
        self.log = None;
        self.is_behind_log = true;
        self.unsealed.extend(batches);
    }

    /// What the thread that syncs has to tell.
    ///
    /// # Errors
    /// That it has ended; nothing can be made durable any more.
    pub(super) fn heed_sealer(&mut self) -> Result<()> {
        if self.sealer.has_news() {
            let stuck = self.sealer.stuck();
            self.connections.note_unsent(&stuck);
            if let Some(unsealed) = self.sealer.unsealed() {
                self.lose_log(unsealed);
            }
            self.sealer.check()?;
        }
        self.answer_unsealed();
        Ok(())
    }

    /// Waits until all that was decided is durable and answered, or the log has failed: then the answers wait until the
    /// window is in the store's file.
    pub(super) fn settle(&mut self) {
        self.sealer.wait();
        if let Some(unsealed) = self.sealer.unsealed() {
            self.lose_log(unsealed);
        }
        if let Some(log) = &mut self.log {
            log.note_synced();
        }
    }

    fn answer_unsealed(&mut self) {
        if !self.unsealed.is_empty() {
            // What keeps it from being answered is in its answers.
            let _ = self.catch_up();
        }
    }

    /// After a group that is in no log: it goes into the store's file before any other is taken, or a recovery would
    /// find a gap where it was. Where the log failed there is a new one then, or none. Then what waits for that is
    /// answered.
    ///
    /// # Errors
    /// What keeps it from getting there; nothing may be answered as committed before.
    pub(super) fn catch_up(&mut self) -> Result<()> {
        if !self.is_behind_log {
            return Ok(());
        }
        self.settle();
        let caught_up = self.bring_up();
        let mut batches = std::mem::take(&mut self.unsealed);
        if let Err(error) = &caught_up {
            let verdicts = batches.iter_mut().flat_map(|batch| &mut batch.answers).map(|answer| &mut answer.verdict);
            fail_unwritten(verdicts, &may_come(error));
            batches.iter_mut().for_each(|batch| batch.committed = 0);
        }
        self.give_out(batches);
        caught_up
    }

    fn bring_up(&mut self) -> Result<()> {
        self.close_now()?;
        if self.log.is_none() {
            // The store names no log before the file of the old one is written over: until then that is recovered.
            self.give_up_log()?;
            if let Err(error) = self.begin_log() {
                self.ground.site.note_trouble(&error);
                self.give_up_log()?;
            }
        }
        self.is_behind_log = false;
        Ok(())
    }

    /// Without a log: the group goes into the store's file at once.
    fn write_through(&mut self, group: RowSet, before: StoreRecord, after: StoreRecord) -> Result<()> {
        self.close_now()?;
        let site = self.ground.site;
        site.slow_down();
        let mut rows = self.window.take_strays();
        rows.extend(group);
        if let Err(error) = write_and_know(site, &self.window.basis, &rows, (before.version, after.version)) {
            // What it has left is read anew, and a write that failed has closed the file that the window reads from.
            self.reopen()?;
            return Err(error);
        }
        site.bump_wakes();
        (self.ground.on_news)(News::WindowClosed);
        self.window.follow(site, after).map_err(|error| may_come(&error))
    }

    /// Ends the window, unless the one before is still on its way: then this one goes on until it is.
    pub(super) fn end_window_if_free(&mut self) {
        if self.window.is_flushing() || !self.window.has_rows() {
            return;
        }
        // L3: a window ends when all of it is durable in the log.
        self.settle();
        self.ended = monotonic();
        let frozen = self.window.freeze();
        if let Some(log) = &mut self.log {
            // L3: the other half held the window before, and that is in the store's file.
            self.half = self.half.other();
            log.begin(self.half, frozen.after.version);
        }
        self.flusher.flush(frozen, false);
    }

    /// R4: the same, but not too soon after the one before where a process that is stopped lets the file grow.
    pub(super) fn end_window_in_time(&mut self) {
        let now = monotonic();
        if self.may_end_at(now) > now {
            return;
        }
        self.end_window_if_free();
    }

    /// When a window that is to end then may. Nobody is kept from the lock by the pause.
    pub(super) fn may_end_at(&self, then: Instant) -> Instant {
        let wants_lock = |(_, closer): &(StoreRecord, Closer)| matches!(closer, Closer::Borrower { .. });
        match self.ground.site.commit_pause() {
            Some(pause) if !self.closers.iter().any(wants_lock) => then.max(self.ended + pause),
            _ => then,
        }
    }

    /// Whether the window can take no more, and may not end yet.
    pub(super) fn is_full_too_early(&self) -> bool {
        let now = monotonic();
        self.window.bytes() >= WINDOW_BYTES_MAX && !self.window.is_flushing() && self.may_end_at(now) > now
    }

    /// Ends the window though the one before may be on its way, which is waited for.
    pub(super) fn turn_over(&mut self) -> Result<()> {
        self.wait_for_flush()?;
        self.end_window_if_free();
        Ok(())
    }

    pub(super) fn wait_for_flush(&mut self) -> Result<()> {
        while self.window.is_flushing() {
            let flushed = self.flusher.wait();
            self.flushed(flushed)?;
            if let Some((error, _)) = &self.trouble {
                return Err(error.for_each_caller());
            }
        }
        Ok(())
    }

    /// Brings all there is into the store's file.
    pub(super) fn close_now(&mut self) -> Result<()> {
        if let Some((error, _)) = &self.trouble {
            return Err(error.for_each_caller());
        }
        self.wait_for_flush()?;
        self.end_window_if_free();
        self.wait_for_flush()
    }

    /// After somebody else may have written.
    pub(super) fn reopen(&mut self) -> Result<()> {
        self.window = Window::open(self.ground.site)?;
        if let Some(log) = &mut self.log {
            self.half = self.half.other();
            log.begin(self.half, self.window.store.version);
        }
        Ok(())
    }

    pub(super) fn flushed(&mut self, flushed: Result<()>) -> Result<()> {
        match flushed {
            Ok(()) => {
                self.trouble = None;
                self.window.thaw(self.ground.site)?;
                self.ground.site.bump_wakes();
                (self.ground.on_news)(News::WindowClosed);
                let version = self.window.version_in_file();
                let (done, waiting): (Vec<_>, Vec<_>) =
                    std::mem::take(&mut self.closers).into_iter().partition(|(needed, _)| needed.version <= version);
                self.closers = waiting;
                for (_, closer) in done {
                    self.closed(closer)?;
                }
                if !self.closers.is_empty() {
                    self.end_window_in_time();
                }
            }
            Err(error) => {
                // L5: what was answered stands in the log; nothing new is taken until it is in the store's file.
                let error = Error::unavailable(format!(
                    "the store's file can't be written, and what was answered waits for it in the log: {}",
                    error.full_message()
                ));
                // Who holds jobs is called when the file shows what the call is about.
                let has_asked = |(_, closer): &mut (StoreRecord, Closer)| !matches!(closer, Closer::Holders);
                for (_, closer) in self.closers.extract_if(.., has_asked).collect::<Vec<_>>() {
                    self.tell_closer(closer, Err(error.for_each_caller()));
                }
                self.trouble = Some((error, monotonic() + RETRY_EVERY));
            }
        }
        Ok(())
    }
}

/// What is said of a group whose rows are where they will be written from.
fn may_come(error: &Error) -> Error {
    let message = format!("the change may be committed later: {}", error.full_message());
    Error::new(ErrorKind::Unknown, message)
}
