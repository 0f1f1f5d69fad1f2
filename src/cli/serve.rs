//! `casque serve`: the stone as a process of its own.

use std::time::Duration;

use clap::{Args, ValueEnum};
use crossbeam_channel::{RecvTimeoutError, bounded};

use super::{context::Context, exit::Failure, output::Output, signals::on_stop_signals, units::counted};
use crate::{
    error::Error,
    stone::Commits,
    store::{Store, committer::By},
};

/// How often it looks who commits, to tell of it.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Commit for all processes on the store, until it is stopped
#[derive(Debug, Args)]
#[command(after_help = "\
One process at a time commits for all: a worker does, or this one where it was first. When
that one ends or dies, another takes its place within milliseconds. With this, short-lived
programs are as fast as workers, and no worker needs to be there.

SIGINT (Ctrl-C) and SIGTERM end it. Before Ctrl-Z stops it, another gets to commit.

--commits HOW, or CASQUE_COMMITS, goes for all commands: logged, the default; unlogged, each
group of changes into the store's file at once; direct, by each process itself, which then
is never the one that commits for the others, and fails while another is.

Example:
  casque serve")]
pub(super) struct Serve {}

/// The values of `--commits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum HowToCommit {
    Logged,
    Unlogged,
    Direct,
}

impl From<HowToCommit> for Commits {
    fn from(how: HowToCommit) -> Self {
        match how {
            HowToCommit::Logged => Self::Logged,
            HowToCommit::Unlogged => Self::Unlogged,
            HowToCommit::Direct => Self::DirectOnly,
        }
    }
}

impl Serve {
    pub(super) fn run(context: &Context, out: &mut Output) -> Result<(), Failure> {
        if context.globals.commits == HowToCommit::Direct {
            return Err(Failure::usage("serve is for commits that are not direct; leave --commits direct away"));
        }
        let store = context.create()?;
        if let Some(path) = store.path() {
            // Whoever serves can't tell a caller that it may not write: it is told before it begins.
            std::fs::OpenOptions::new().write(true).open(path).map_err(|cause| {
                let text = format!("{} can't be written by this user; run as its owner", path.display());
                Failure::from(Error::unavailable(text).because(cause))
            })?;
        }
        let (stop, stopped) = bounded(1);
        let signals = on_stop_signals(&context.program, &store, move || {
            // One that waits already says the same.
            let _ = stop.try_send(());
        })?;
        let serving = store.serve()?;
        context.say(format!("serves {}; Ctrl-C to stop", store.path().unwrap_or(context.path()).display()));
        let mut told = None;
        let mut is_over = false;
        while !is_over {
            is_over = stopped.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout);
            if let Some(now) = who_commits(&store).filter(|now| told.as_ref() != Some(now)) {
                context.say(&now);
                told = Some(now);
            }
        }
        signals.close();
        drop(serving);
        let committed = store.commits_by_path().own_stone;
        store.close()?;
        out.either(
            &serde_json::json!({ "committed": committed }),
            format!("committed {}", counted(committed, "change")),
        )
    }
}

/// Nothing while that is being found out.
fn who_commits(store: &Store) -> Option<String> {
    match store.inner.committer.by() {
        By::OwnStone => Some("commits for all".to_owned()),
        By::Stone => {
            let connection = store.inner.committer.router().living()?;
            Some(format!("process {} commits for all; waits to take its place", connection.pid()))
        }
        By::Itself => None,
    }
}
