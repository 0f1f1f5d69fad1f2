//! A process that stands for stone: where there is one it is content, and when that one leaves or dies it tries to take
//! its place.

use std::{
    io::{self, Read as _},
    net::Shutdown,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded};

use crate::{
    error::{Error, Result},
    stone::{
        Stream,
        seat::Errand,
        server::{Ground, serve},
    },
    store::{
        committer::{Inbox, Router},
        desk::Desk,
        site::Site,
    },
};

/// W1: what the holder's note says that a stone does with the lock.
pub(crate) const PURPOSE: &str = "commit for all";
/// How long who could not be the stone waits until it tries again.
const PAUSE: Duration = Duration::from_millis(100);
/// How often who sees neither a stone nor a free lock looks again.
const LOOK: Duration = Duration::from_millis(1);

/// What a candidate needs of its process.
#[derive(Clone)]
pub(crate) struct Means {
    pub(crate) site: Arc<Site>,
    pub(crate) desk: Arc<Desk>,
    pub(crate) router: Arc<Router>,
    pub(crate) inbox: Inbox,
    pub(crate) on_news: Arc<dyn Fn(News) + Send + Sync>,
}

/// What a candidate tells its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// This process's stone has brought a window into the store's file.
    WindowClosed,
    /// Of this process's stone a client has gone.
    ClientGone,
    /// Another process is the stone.
    StoneElsewhere,
    /// That is no longer so.
    NoStoneElsewhere,
    /// A change that holders of jobs must know of is in the store's file.
    HoldersCalled,
}

/// A process that stands for stone, until this is dropped; then it leaves, if it is one.
pub(crate) struct Candidate {
    pid: u32,
    means: Means,
    stop: Option<Sender<()>>,
    lifeline: Arc<Lifeline>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Candidate {
    pub(crate) fn start(means: Means) -> Result<Self> {
        let (stop, stopped) = bounded::<()>(0);
        let lifeline = Arc::new(Lifeline::default());
        let (standing, held) = (means.clone(), lifeline.clone());
        let thread = thread::Builder::new()
            .name("casque-stone".into())
            .spawn(move || stand(&standing, &held, &stopped))
            .map_err(|error| Error::unavailable("the stone's thread can't be started").because(error))?;
        Ok(Self { pid: std::process::id(), means, stop: Some(stop), lifeline, thread: Some(thread) })
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        self.stop = None;
        // A process that was forked has none of its parent's threads.
        let Some(thread) = self.thread.take().filter(|_| self.pid == std::process::id()) else { return };
        // The seat may be taken just now; then it is told at once.
        while !thread.is_finished() {
            self.lifeline.cut();
            if self.means.router.seat.send(Errand::Leave).is_ok() {
                break;
            }
            crate::clock::sleep(LOOK);
        }
        // It panics only where we do wrong, and that was printed.
        let _ = thread.join();
    }
}

/// The connection by which a candidate sees that the stone is gone.
#[derive(Default)]
struct Lifeline {
    stream: Mutex<Option<Stream>>,
}

impl Lifeline {
    /// Returns when the other end is gone, or this is cut. Each byte that comes calls the holders of jobs.
    fn hold(&self, stream: Stream, has_stopped: &dyn Fn() -> bool, call: &dyn Fn()) {
        let Ok(mut held) = stream.try_clone() else { return };
        *self.lock() = Some(stream);
        // Whoever cuts it has said to stop before, so that one of the two sees the other.
        let mut calls = [0; 64];
        while !has_stopped() {
            match held.read(&mut calls) {
                Ok(count) if count > 0 => call(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The connection has ended.
                _ => break,
            }
        }
        self.lock().take();
    }

    fn cut(&self) {
        if let Some(stream) = &*self.lock() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Stream>> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stand(means: &Means, lifeline: &Lifeline, stopped: &Receiver<()>) {
    let has_stopped = || !matches!(stopped.try_recv(), Err(TryRecvError::Empty));
    let mut told = None;
    while !has_stopped() {
        if let Some(stream) = means.router.lifeline() {
            (means.on_news)(News::StoneElsewhere);
            lifeline.hold(stream, &has_stopped, &|| (means.on_news)(News::HoldersCalled));
            (means.on_news)(News::NoStoneElsewhere);
            means.router.note_gone();
            continue;
        }
        let served = take_the_seat(means, &has_stopped);
        // What stays wrong is told once, however often it is tried again.
        let trouble = served.as_ref().err().map(Error::full_message);
        if let Err(error) = &served
            && trouble != told
        {
            means.site.note_trouble(error);
        }
        told = trouble;
        let pause = if served.is_err() { PAUSE } else { LOOK };
        if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// Serves, if the writer's lock can be had and nobody else does.
fn take_the_seat(means: &Means, has_stopped: &dyn Fn() -> bool) -> Result<()> {
    let Means { site, desk, router, inbox, on_news } = means;
    let Some(files) = site.files() else { return Ok(()) };
    let give_up = || has_stopped() || router.connection().is_some();
    let Some(guard) = files.lock()?.take_unless(PURPOSE, give_up)? else { return Ok(()) };
    if has_stopped() {
        return Ok(());
    }
    let ground = Ground { site, desk, seat: &router.seat, inbox, commits: router.commits(), on_news: on_news.as_ref() };
    serve(&ground, guard)
}
