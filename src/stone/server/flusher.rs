//! The thread that writes windows into the store's file, while the stone goes on with the next one.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::{
    error::{Error, ErrorKind, Result},
    stone::window::Frozen,
    store::{
        committer::Step,
        desk::{Desk, write_and_know},
        keys,
        object::StoreRecord,
        site::Site,
        view::get_record,
    },
};

pub(super) struct Flusher {
    work: Option<Sender<(Frozen, bool)>>,
    /// None only while this is dropped: a thread that has news for nobody must not wait to tell them.
    news: Option<Receiver<Result<()>>>,
    /// A window was given, and how it was written is not known.
    is_out: Cell<bool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Flusher {
    pub(super) fn start(
        site: &Arc<Site>,
        desk: &Arc<Desk>,
        waker: Arc<mio::Waker>,
        is_asleep: Arc<AtomicBool>,
    ) -> Result<Self> {
        let (work, windows) = bounded::<(Frozen, bool)>(1);
        let (tell, news) = bounded(1);
        let (site, desk) = (site.clone(), desk.clone());
        let thread = thread::Builder::new()
            .name("casque-flusher".into())
            .spawn(move || {
                for (frozen, is_again) in windows {
                    desk.step(Step::Flushing);
                    let written = write(&site, &frozen, is_again);
                    desk.step(Step::Flushed);
                    if tell.send(written).is_err() {
                        return;
                    }
                    if is_asleep.swap(false, Ordering::SeqCst) {
                        // It looks again within a second all the same.
                        let _ = waker.wake();
                    }
                }
            })
            .map_err(|error| Error::unavailable("the stone's flusher can't be started").because(error))?;
        Ok(Self { work: Some(work), news: Some(news), is_out: Cell::new(false), thread: Some(thread) })
    }

    /// Whether a window was given of which it is not known how it was written.
    pub(super) fn is_out(&self) -> bool {
        self.is_out.get()
    }

    /// Begins to write a window; `is_again` where that has failed before. One at a time: a second try of a window would
    /// be taken for the first of the next.
    pub(super) fn flush(&self, frozen: Frozen, is_again: bool) {
        assert!(!self.is_out.replace(true), "a window is written while another is");
        if let Some(work) = &self.work {
            // The thread lives as long as this does.
            let _ = work.send((frozen, is_again));
        }
    }

    pub(super) fn has_news(&self) -> bool {
        self.news.as_ref().is_some_and(|news| !news.is_empty())
    }

    /// How the window that was given last was written, if that is known.
    pub(super) fn news(&self) -> Option<Result<()>> {
        let news = self.news.as_ref()?.try_recv().ok()?;
        self.is_out.set(false);
        Some(news)
    }

    /// Waits for that.
    pub(super) fn wait(&self) -> Result<()> {
        let news = self.news.as_ref().and_then(|news| news.recv().ok());
        self.is_out.set(false);
        news.unwrap_or_else(|| Err(Error::unavailable("the stone's flusher has ended")))
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.work = None;
        self.news = None;
        if let Some(thread) = self.thread.take() {
            // It panics only where we do wrong, and that was printed.
            let _ = thread.join();
        }
    }
}

fn write(site: &Site, frozen: &Frozen, is_again: bool) -> Result<()> {
    // What became of an earlier try may not have been known; the store's version tells.
    if is_again && version(site)? == Some(frozen.after) {
        return Ok(());
    }
    let versions = (frozen.before.version, frozen.after.version);
    match write_and_know(site, &frozen.basis, &frozen.rows, versions) {
        Err(error) if error.kind() == ErrorKind::Conflict && version(site)? == Some(frozen.after) => Ok(()),
        written => written,
    }
}

fn version(site: &Site) -> Result<Option<StoreRecord>> {
    site.engine.recover()?;
    get_record(site.engine.latest()?.as_ref(), keys::STORE)
}
