//! One child, as its worker sees it: started, given jobs, listened to, killed and reaped.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::ioctl_fionbio,
};

use super::{
    REMEDY, Role, again,
    wire::{Listener, Order, Speaker, VERSION, Word},
};
use crate::{
    clock::{deadline_after, monotonic},
    error::{Error, Result},
    task::killer::Killer,
};

/// How long a child may take to say that it is there.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// How long a message may take that a child does not read.
const SAY_PATIENCE: Duration = Duration::from_secs(10);
/// How much of a child's stderr is remembered.
const STDERR_BYTES_MAX: usize = 4 << 10;
/// What a pipe holds at most: so much was there before it was read.
const PIPE_BYTES: usize = 64 << 10;

/// A child; dropping it kills and reaps it.
pub(super) struct Process {
    child: Child,
    killer: Killer,
    speaker: Speaker,
    listener: Listener,
    stderr: Stderr,
    /// How many jobs it was given.
    pub(super) jobs: u32,
}

/// What is heard of a child.
pub(super) enum Heard {
    Word(Word),
    /// It is gone, or says what can't be understood.
    Gone,
    /// Nothing, until then.
    TimeOver,
}

impl Process {
    /// Starts a child, and waits until it is there.
    ///
    /// # Errors
    /// `Invalid` where the program's `main` does not take part; `Unavailable` where no process can be started.
    pub(super) fn start() -> Result<Self> {
        let mut command = again(Role::Serve).map_err(|error| not_started(&error))?;
        command.stdout(Stdio::from(io::stderr())).stderr(Stdio::piped());
        let mut process = Self::of(command)?;
        process.greet()?;
        Ok(process)
    }

    /// Starts a process that starts the one that says hello; `greet` awaits it.
    pub(super) fn launch() -> Result<Self> {
        let mut command = again(Role::Launch).map_err(|error| not_started(&error))?;
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self::of(command)
    }

    fn of(mut command: Command) -> Result<Self> {
        let connect = || {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_write_timeout(Some(SAY_PATIENCE))?;
            Ok((ours.try_clone()?, ours, theirs))
        };
        let (to_say, to_hear, theirs) = connect().map_err(|error: io::Error| not_started(&error))?;
        let mut child = command.stdin(OwnedFd::from(theirs)).spawn().map_err(|error| not_started(&error))?;
        // It holds a copy of the child's end, whose close is to tell of the child's.
        drop(command);
        let stderr = Stderr::new(child.stderr.take());
        let killer = Killer::of(&child);
        let (speaker, listener) = (Speaker::new(to_say), Listener::new(to_hear));
        Ok(Self { child, killer, speaker, listener, stderr, jobs: 0 })
    }

    /// Waits for the hello.
    pub(super) fn greet(&mut self) -> Result<()> {
        let why = match self.next(Some(deadline_after(HELLO_PATIENCE))) {
            Heard::Word(Word::Hello { version }) if version == VERSION => return Ok(()),
            Heard::Word(Word::Hello { version }) => {
                return Err(Error::unavailable(format!(
                    "the program was replaced while it ran: this is casque {VERSION}, and its child is {version}; \
                     start it anew"
                )));
            }
            Heard::Word(_) => "it said something else first".to_owned(),
            Heard::TimeOver => format!("it said nothing for {} s", HELLO_PATIENCE.as_secs()),
            Heard::Gone => match self.end() {
                Ok(status) => format!("it ended with {status}"),
                Err(error) => format!("it ended, and can't be waited for: {error}"),
            },
        };
        let said = self.stderr.said().map_or(String::new(), |said| format!("; it wrote: {said}"));
        Err(Error::invalid(format!("a child process of this program does not run jobs ({why}): {REMEDY}{said}")))
    }

    pub(super) fn killer(&self) -> Killer {
        self.killer.clone()
    }

    /// Gives it an order, and a copy of a file.
    pub(super) fn tell(&mut self, order: &Order, file: Option<&File>) -> Result<()> {
        self.speaker.say_with(order, file.map(File::as_fd))
    }

    /// Forgets what it wrote to stderr so far: that is not the next job's.
    pub(super) fn begin_stderr(&mut self) {
        self.stderr.drain();
        self.stderr.tail.clear();
    }

    /// The end of what it wrote to stderr since, if it did.
    pub(super) fn said(&mut self) -> Option<String> {
        self.stderr.drain();
        self.stderr.said()
    }

    /// Whether it waits for an order, as far as can be told.
    pub(super) fn is_idle(&mut self) -> bool {
        matches!(self.next(Some(monotonic())), Heard::TimeOver)
    }

    /// The next word, waited for until then. What it writes to stderr meanwhile goes on to this process's.
    pub(super) fn next(&mut self, deadline: Option<Instant>) -> Heard {
        loop {
            match self.listener.take() {
                Ok(Some(word)) => return Heard::Word(word),
                Ok(None) => {}
                Err(_) => return Heard::Gone,
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(monotonic()));
            let (is_heard, has_written) = self.wait(left);
            if has_written {
                self.stderr.drain();
            }
            if is_heard && !self.listener.gather().unwrap_or(false) {
                return Heard::Gone;
            }
            if !is_heard && left == Some(Duration::ZERO) {
                return Heard::TimeOver;
            }
        }
    }

    /// Waits until there is something on the socket, or on stderr, or so long.
    fn wait(&self, left: Option<Duration>) -> (bool, bool) {
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let readable = PollFlags::IN;
        let socket = PollFd::new(&self.listener, readable);
        let is_ready = |poll: &PollFd<'_>| !poll.revents().is_empty();
        // An interrupted wait is one that found nothing.
        if let Some(pipe) = &self.stderr.pipe {
            let mut both = [socket, PollFd::from_borrowed_fd(pipe.as_fd(), readable)];
            let waited = poll(&mut both, timeout.as_ref()).is_ok();
            (waited && is_ready(&both[0]), waited && is_ready(&both[1]))
        } else {
            let mut one = [socket];
            let waited = poll(&mut one, timeout.as_ref()).is_ok();
            (waited && is_ready(&one[0]), false)
        }
    }

    /// Kills it where it has not ended yet, and reaps it.
    pub(super) fn end(&mut self) -> io::Result<ExitStatus> {
        self.killer.kill();
        let status = self.killer.reap(&mut self.child);
        self.stderr.drain();
        status
    }

    /// Reaps a process that ends by itself.
    pub(super) fn reap(&mut self) -> io::Result<ExitStatus> {
        self.killer.reap(&mut self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Reaped again, it gives the same status.
        let _ = self.end();
    }
}

fn not_started(error: &io::Error) -> Error {
    Error::unavailable(format!("a child process can't be started: {error}; look at the limits of this user"))
}

/// What a child writes to stderr.
struct Stderr<R = ChildStderr> {
    /// Read without waiting; nothing once it has ended.
    pipe: Option<R>,
    tail: VecDeque<u8>,
}

impl Stderr {
    fn new(pipe: Option<ChildStderr>) -> Self {
        // A pipe that can't be read without waiting is not read at all.
        let pipe = pipe.filter(|pipe| ioctl_fionbio(pipe, true).is_ok());
        Self { pipe, tail: VecDeque::new() }
    }
}

impl<R: io::Read> Stderr<R> {
    /// Passes on what there is, and remembers its end. Who writes without pause keeps nobody here.
    fn drain(&mut self) {
        let (mut chunk, mut passed) = ([0; 8 << 10], 0);
        while let Some(pipe) = &mut self.pipe
            && passed < PIPE_BYTES
        {
            match pipe.read(&mut chunk) {
                Ok(0) => self.pipe = None,
                Ok(length) => {
                    passed += length;
                    // Where this process's own stderr is closed, there is nobody to tell.
                    let _ = io::stderr().write_all(&chunk[..length]);
                    self.tail.extend(&chunk[..length]);
                    let over = self.tail.len().saturating_sub(STDERR_BYTES_MAX);
                    self.tail.drain(..over);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.pipe = None,
            }
        }
    }

    fn said(&self) -> Option<String> {
        let (first, second) = self.tail.as_slices();
        let text = String::from_utf8_lossy(&[first, second].concat()).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, io};

    use super::{PIPE_BYTES, STDERR_BYTES_MAX, Stderr};

    #[test]
    fn child_that_writes_to_stderr_without_pause_keeps_nobody_reading() {
        let endless = io::repeat(b'\n');
        let mut stderr = Stderr { pipe: Some(endless), tail: VecDeque::new() };
        stderr.drain();
        assert!(stderr.pipe.is_some(), "it is read on later");
        assert_eq!(stderr.tail.len(), STDERR_BYTES_MAX);
        const { assert!(STDERR_BYTES_MAX < PIPE_BYTES, "the end of what was there is remembered") };
    }
}
