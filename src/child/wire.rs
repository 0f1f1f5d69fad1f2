//! What a process and its child say to each other: frames over a pair of sockets, and with the order to run a job the
//! open file of its lock.

use std::{
    collections::VecDeque,
    io::{self, IoSlice, IoSliceMut, Write as _},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
};

use rustix::{
    cmsg_space,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        recvmsg, sendmsg,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    clock::Timestamp,
    error::{Error, Result},
    queue::{
        claim::ClaimedJob,
        enqueue::NewJob,
        id::{JobId, Token},
    },
    stone::{Commits, Refusal, put_frame, take_frame},
    store::change::{Applied, Guard, Intent},
    task::{RunOutput, StopReason, TaskError},
};

/// What both ends must be: the same build, as far as that can be told.
pub(super) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " 1");

/// What a child is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    Run(Box<Run>),
    /// What became of a change that it asked for.
    Committed(Result<Applied, Refusal>),
    /// Whether, and why, its handler should end.
    Stop(Option<StopReason>),
    /// Run this job as a worker of its own.
    Once(Once),
}

/// A job to run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) job: ClaimedJob,
    pub(super) token: Token,
    pub(super) started_at: Option<Timestamp>,
    /// Where the store is; nothing for one in memory.
    pub(super) place: Option<StorePlace>,
    pub(super) memory_max: Option<u64>,
    /// P5: the file of the job's lock comes along.
    pub(super) has_lock: bool,
}

/// How to open the store of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StorePlace {
    pub(super) path: PathBuf,
    pub(super) commits: Commits,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Once {
    pub(super) place: StorePlace,
    pub(super) queue: String,
    pub(super) job: JobId,
}

/// What a child says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Word {
    /// It has come to the place in `main` where it is told what to do.
    Hello {
        version: String,
    },
    /// Commit this for the job.
    Commit {
        guards: Vec<Guard>,
        intents: Vec<Intent>,
    },
    /// Should its handler end?
    Stop,
    Ended(Ended),
}

/// How a handler ended.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ended {
    pub(super) outcome: Result<RunOutput, TaskError>,
    /// The jobs that are to be enqueued with its completion.
    pub(super) enqueues: Vec<NewJob>,
    pub(super) is_completed_in_transaction: bool,
    /// It has grown, and is to run no further job.
    pub(super) is_worn: bool,
}

/// Sends messages over a socket.
pub(super) struct Speaker {
    stream: UnixStream,
    out: Vec<u8>,
}

impl Speaker {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, out: Vec::new() }
    }

    pub(super) fn say<M: Serialize>(&mut self, message: &M) -> Result<()> {
        self.say_with(message, None)
    }

    /// # Errors
    /// `Invalid` for a message that is too large; `Unavailable` where the other end is gone, or takes nothing.
    pub(super) fn say_with<M: Serialize>(&mut self, message: &M, file: Option<BorrowedFd<'_>>) -> Result<()> {
        self.out.clear();
        put_frame(&mut self.out, message)?;
        let sent = match file {
            Some(file) => hand_over(&self.stream, &self.out, file),
            None => Ok(0),
        };
        sent.and_then(|sent| self.stream.write_all(&self.out[sent..]))
            .map_err(|error| Error::unavailable("the other process takes no message").because(error))
    }
}

/// Sends the first bytes with a file; how many.
fn hand_over(stream: &UnixStream, bytes: &[u8], file: BorrowedFd<'_>) -> io::Result<usize> {
    let files = [file];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&files));
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::empty())?)
}

/// Gathers messages from a socket.
pub(super) struct Listener {
    stream: UnixStream,
    inbox: Vec<u8>,
    files: VecDeque<OwnedFd>,
}

/// How many bytes one look at the socket takes.
const CHUNK: usize = 16 << 10;

impl Listener {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, inbox: Vec::new(), files: VecDeque::new() }
    }

    /// A message that has come whole.
    ///
    /// # Errors
    /// `Invalid` for what is none: nothing more can be understood.
    pub(super) fn take<M: DeserializeOwned>(&mut self) -> Result<Option<M>> {
        let taken = take_frame(&self.inbox)?;
        Ok(taken.map(|(message, bytes)| {
            self.inbox.drain(..bytes);
            message
        }))
    }

    /// A file that has come with a message.
    pub(super) fn take_file(&mut self) -> Option<OwnedFd> {
        self.files.pop_front()
    }

    /// Waits for more bytes; whether there may be further ones.
    pub(super) fn gather(&mut self) -> io::Result<bool> {
        let before = self.inbox.len();
        self.inbox.resize(before + CHUNK, 0);
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut chunk = [IoSliceMut::new(&mut self.inbox[before..])];
            match recvmsg(&self.stream, &mut chunk, &mut control, FILES_CLOSE) {
                Err(rustix::io::Errno::INTR) => {}
                received => break received,
            }
        };
        self.inbox.truncate(before + received.as_ref().map_or(0, |received| received.bytes));
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                self.files.extend(files);
            }
        }
        Ok(received?.bytes > 0)
    }

    /// The next message, waited for; nothing where the other end is gone.
    pub(super) fn next<M: DeserializeOwned>(&mut self) -> Result<Option<M>> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            if !self.gather().unwrap_or(false) {
                return Ok(None);
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// A lock that came is not for what the handler starts.
#[cfg(target_os = "linux")]
const FILES_CLOSE: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const FILES_CLOSE: RecvFlags = RecvFlags::empty();

#[cfg(test)]
mod fuzz_tests {
    use super::*;
    use crate::fuzz::Fuzz;

    fn taken<M: Serialize + DeserializeOwned>(bytes: &[u8]) {
        if let Ok(Some((message, _))) = take_frame::<M>(bytes) {
            put_frame(&mut Vec::new(), &message).unwrap();
        }
    }

    #[test]
    fn fuzz_words_of_children() {
        let place = StorePlace { path: PathBuf::from("/app.redb"), commits: Commits::default() };
        let once = Once { place, queue: "default".to_owned(), job: "42-1".parse().unwrap() };
        let mut made = vec![Vec::new(); 5];
        put_frame(&mut made[0], &Order::Once(once)).unwrap();
        put_frame(&mut made[1], &Order::Stop(None)).unwrap();
        put_frame(&mut made[2], &Word::Hello { version: VERSION.to_owned() }).unwrap();
        put_frame(&mut made[3], &Word::Commit { guards: Vec::new(), intents: Vec::new() }).unwrap();
        let outcome = Err(TaskError::Failed("what failed".to_owned()));
        let ended = Ended { outcome, enqueues: Vec::new(), is_completed_in_transaction: false, is_worn: true };
        put_frame(&mut made[4], &Word::Ended(ended)).unwrap();
        Fuzz::new("words_of_children", made).run(|input| {
            taken::<Order>(input);
            taken::<Word>(input);
        });
    }
}
