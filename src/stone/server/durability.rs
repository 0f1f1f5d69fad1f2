//! How what was decided becomes durable: in the log at once, in the store's file when its window ends. Rules L1 to L5.

use std::time::Instant;

use super::{RETRY_EVERY, Stone, WINDOW_BYTES_MAX};
use crate::{
    clock::monotonic,
    codec,
    engine::RowSet,
    error::{Error, Result},
    stone::{candidate::News, log::Log, window::Window},
    store::{
        desk::{Step, write_and_know},
        keys,
        object::{LogRecord, StoreRecord},
        paths::Path,
    },
};

impl Stone<'_> {
    /// L1: a fresh log, and only when it is on the disk the word in the store that it is in use.
    pub(super) fn begin_log(&mut self) -> Result<()> {
        let site = self.ground.site;
        let Some(files) = site.files() else { return Ok(()) };
        let mut log = Log::create(&files.folder.log(), self.format.store, self.ground.hook.clone())?;
        let version = self.window.store.version;
        let in_use = codec::encode(&LogRecord::InUse { log: log.id().0 })?;
        let rows = RowSet::from([(keys::LOG.to_vec(), Some(in_use))]);
        write_and_know(site, &self.window.basis, &rows, (version, version))?;
        log.begin(self.half, version);
        self.log = Some(log);
        self.window.thaw(site)
    }

    /// Makes a group's rows durable, by the log or in the store's file.
    pub(super) fn make_durable(&mut self, rows: RowSet, before: StoreRecord, after: StoreRecord) -> Result<()> {
        let own = after.version.0 - before.version.0;
        let Some(log) = &mut self.log else {
            self.write_through(&rows, before, after)?;
            self.ground.desk.paths.add(Path::OwnStone, own);
            return Ok(());
        };
        if !log.fits(Log::record_bytes(&rows)) {
            self.turn_over()?;
        }
        let Some(log) = self.log.as_mut().filter(|log| log.fits(Log::record_bytes(&rows))) else {
            // Larger than half of the log: the store's file takes it.
            self.window.absorb(rows, after, monotonic());
            self.close_now()?;
            self.ground.desk.paths.add(Path::OwnStone, own);
            return Ok(());
        };
        let appended = log.append(before.version, after.version, &rows);
        self.ground.desk.step(Step::Appended);
        let logged = appended.and_then(|()| log.sync());
        self.window.absorb(rows, after, monotonic());
        self.ground.desk.paths.add(Path::OwnStone, own);
        match logged {
            Ok(()) => Ok(()),
            Err(error) => self.abandon_log(&error),
        }
    }

    /// L4: a log that failed is never appended to again. What is in the window goes into the store's file before any
    /// further answer, and then there is a new log, or none.
    pub(super) fn abandon_log(&mut self, error: &Error) -> Result<()> {
        self.ground.site.note_trouble(error);
        self.log = None;
        self.close_now()?;
        // The store names no log before the file of the old one is written over: until then that one is recovered.
        self.say_no_log()?;
        if let Err(error) = self.begin_log() {
            self.ground.site.note_trouble(&error);
            self.log = None;
        }
        Ok(())
    }

    pub(super) fn say_no_log(&mut self) -> Result<()> {
        let version = self.window.store.version;
        let none = codec::encode(&LogRecord::None)?;
        let rows = RowSet::from([(keys::LOG.to_vec(), Some(none))]);
        write_and_know(self.ground.site, &self.window.basis, &rows, (version, version))?;
        self.window.thaw(self.ground.site)
    }

    /// Without a log: the group goes into the store's file at once.
    pub(super) fn write_through(&mut self, rows: &RowSet, before: StoreRecord, after: StoreRecord) -> Result<()> {
        let site = self.ground.site;
        site.slow_down();
        write_and_know(site, &self.window.basis, rows, (before.version, after.version))?;
        site.bump_wakes();
        (self.ground.on_news)(News::WindowClosed);
        self.window.follow(site, after)
    }

    /// Ends the window, unless the one before is still on its way: then this one goes on until it is.
    pub(super) fn end_window_if_free(&mut self) -> Result<()> {
        if self.window.is_flushing() || !self.window.has_rows() {
            return Ok(());
        }
        self.ended = monotonic();
        let frozen = self.window.freeze();
        if let Some(log) = &mut self.log {
            // L3: the other half held the window before, and that is in the store's file.
            self.half = self.half.other();
            log.begin(self.half, frozen.after.version);
        }
        self.flusher.flush(frozen, false);
        Ok(())
    }

    /// R4: the same, but not too soon after the one before where a process that is stopped lets the file grow.
    pub(super) fn end_window_in_time(&mut self) -> Result<()> {
        let now = monotonic();
        if self.may_end_at(now) > now {
            return Ok(());
        }
        self.end_window_if_free()
    }

    /// When a window that is to end then may.
    pub(super) fn may_end_at(&self, then: Instant) -> Instant {
        self.ground.site.commit_pause().map_or(then, |pause| then.max(self.ended + pause))
    }

    /// Whether the window can take no more, and may not end yet.
    pub(super) fn is_full_too_early(&self) -> bool {
        let now = monotonic();
        self.window.bytes() >= WINDOW_BYTES_MAX && !self.window.is_flushing() && self.may_end_at(now) > now
    }

    /// Ends the window though the one before may be on its way, which is waited for.
    pub(super) fn turn_over(&mut self) -> Result<()> {
        self.wait_for_flush()?;
        self.end_window_if_free()
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
        self.end_window_if_free()?;
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
                    self.end_window_in_time()?;
                }
            }
            Err(error) => {
                // L5: what was answered stands in the log; nothing new is taken until it is in the store's file.
                let error = Error::unavailable(format!(
                    "the store's file can't be written, and what was answered waits for it in the log: {}",
                    error.full_message()
                ));
                for (_, closer) in std::mem::take(&mut self.closers) {
                    self.tell_closer(closer, Err(error.for_each_caller()));
                }
                self.trouble = Some((error, monotonic() + RETRY_EVERY));
            }
        }
        Ok(())
    }
}
