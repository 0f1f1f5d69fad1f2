//! Where a task's handler runs.

/// Where a task's handler runs: in the worker's process, or in one of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// On a thread of the worker. What takes its process down takes down all that runs beside it.
    #[default]
    Thread,
    /// In a child process of the same binary, so that an abort, a segmentation fault, the end of memory or a hard
    /// timeout fails one attempt and nothing else. Children are reused for further jobs. The binary's `main` calls
    /// `casque::child::run_if_child` first; `casque::cli::run` does so by itself.
    ///
    /// What the handler writes to stdout and stderr goes to the worker's stderr. The end of its stderr is also in the
    /// job's log, and in the message of a failed attempt. When the worker dies the child ends at once, as a thread
    /// would.
    Process {
        /// The most bytes of memory that the child may have, its own 5 MiB or so included; it is aborted by what it
        /// asks for beyond. At least 16 MiB. This is `RLIMIT_DATA`, which counts what is private to the process and
        /// writable; macOS does not enforce it.
        memory_max: Option<u64>,
    },
}

impl Isolation {
    /// A process of its own, with as much memory as the system gives.
    pub const PROCESS: Self = Self::Process { memory_max: None };

    /// Whether the handler runs in a process of its own.
    #[must_use]
    pub fn is_process(self) -> bool {
        matches!(self, Self::Process { .. })
    }
}
