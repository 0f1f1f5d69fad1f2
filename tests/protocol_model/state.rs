//! What there is in the model: changes and the history they make, the processes, and what the search may still spend.
//!
//! Everything is small and copied by value, since the search makes some hundred thousand of these.

use crate::{
    disk::{Image, LogFile, Redb},
    rules::Scope,
};

/// How many clients there are; each sends its changes one after the other.
pub const CLIENTS: usize = 2;
/// How many changes a client may have at most.
pub const NUMBERS_MAX: u8 = 2;
const CHANGES: usize = CLIENTS * NUMBERS_MAX as usize;

/// The id of a change (A1): the client, and the number that it gave it. Never 0, so that it fits a place of a history.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Change(u8);

/// The committed changes, the one of version 1 first: four bits each, so that a version is a length.
///
/// It stands for the rows of the store: a state is wrong as soon as another sequence of changes made it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct History(u32);

/// One state of the world.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    pub redb: Redb,
    pub log: LogFile,
    /// Who holds the writer's lock. All others can only wait for it, so they are not in the model.
    ///
    /// A process that is stopped (SIGSTOP) is one whose steps are not taken, and the search takes them in every order,
    /// with every delay; so there is no stopping here. A holder can't lose the lock while it lives, stopped or not: the
    /// system frees an OS lock at death only. That is why no stone can wake up and find another in its place.
    pub holder: Option<Holder>,
    pub clients: [Client; CLIENTS],
    pub reader: Reader,
    /// The version that each change was answered as committed with, or 0. What the world was told; never forgotten.
    pub answered: [u8; CHANGES],
    /// How many logs were ever made: the next one's id is fresh, whoever makes it.
    pub lives: u8,
    pub budget: Budget,
    /// What an action found to be wrong, for the check that follows it.
    pub wrong: Option<&'static str>,
}

/// The process that holds the writer's lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holder {
    pub role: Role,
    pub phase: Phase,
    /// The newest state as this process knows it: for a stone that of redb, the frozen window and what is synced of the
    /// open one.
    pub view: Image,
    /// The redb commit in flight: at most one.
    pub commit: Option<Commit>,
    /// L5: the window whose commit failed, until it is tried again and has returned Ok. Nothing is taken or answered
    /// meanwhile: what went around the log is in the view, and in no file.
    pub again: Option<Image>,
    /// Only with a bug: what became of a second try of that window, beside the first.
    pub second_try: SecondTry,
    pub window: Window,
    /// What is appended and being synced; the next group is decided on it meanwhile.
    pub flight: Flight,
    pub group: Group,
}

/// A record whose sync goes on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flight {
    pub changes: History,
    /// What the sync covers: what was appended when it began.
    pub slots: u8,
    /// Only with a bug: it is answered already.
    pub is_answered: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// W4: commits for all, with a log.
    Stone,
    /// W3: a client's own process, for one change.
    Direct(u8),
    /// R1: a reader that found a log in use and nobody to ask.
    Recoverer,
}

/// What a holder is about to do, or which redb commit it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// The lock is taken and the store read; recovery comes first (L6).
    Begin,
    /// Waits for the commit of what the log held, with `log: none`.
    Recover,
    /// L1: is to write the header of a fresh log.
    CreateHeader,
    /// L1: is to sync that header.
    CreateSync,
    /// L1: waits for the commit of `log: in use`.
    CreateFlag,
    /// Takes changes; a window's commit may be in flight.
    Serve,
    /// L4: something failed. Answers nothing before all that it knows is in redb, with `log: none`.
    Mend,
    /// W6: takes nothing any more, and closes its window.
    Leave,
    /// W3: waits for the commit of its change.
    Write,
}

/// A redb commit. Until the header is flipped nothing of it can be seen; its return ends it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Commit {
    pub image: Image,
    pub flipped: bool,
    /// It ends the log (L4, W6): it holds all that its process knows, and `log: none`.
    pub closes: bool,
}

/// The open window: the half of the log that it fills, how many records it has there, the last one's checksum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Window {
    pub half: u8,
    pub used: u8,
    pub sum: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SecondTry {
    #[default]
    None,
    Out,
    /// The first one has returned, and this one says Ok when its like is waited for next.
    Done,
}

/// The changes that will be one record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Group {
    pub changes: History,
    pub stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Stage {
    #[default]
    Gathering,
    /// Written to the log behind a record whose sync goes on; the next one covers it.
    Appended,
    /// L4: its record failed. It goes into redb all the same, and is answered when it is there.
    Kept,
    /// No half has room for it. It is in the view and on its way to redb, and is answered when that has it.
    Around,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Client {
    /// The number of the change that it is at.
    pub number: u8,
    pub status: Status,
    /// The number of an older frame that the stone has not read yet, from a connection that this client gave up; or 0.
    pub late: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    /// Never sent, or known not to be written.
    Unsent,
    /// On a connection to the stone, not read yet.
    Sent,
    /// In the stone's group.
    Grouped,
    /// A1: sent, and its answer lost. The same id is sent again until it is known.
    Unknown,
    /// All its changes are answered.
    Done,
    /// It has left, or its process is dead.
    Gone,
}

/// R2: takes one snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reader {
    pub stage: Reading,
    /// Which changes were answered before it began, a bit for each.
    pub must_see: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reading {
    Idle,
    /// The stone was asked to close its window, and says so when redb has this version.
    Asked(u8),
    /// Nobody answered.
    Alone,
    Done,
}

/// How often what may go wrong still may; it bounds the search.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Budget {
    pub stones: u8,
    pub kills: u8,
    pub cuts: u8,
    pub faults: u8,
    pub leaves: u8,
    pub breaks: u8,
    /// Groups that no half of the log has room for.
    pub large: u8,
}

impl Change {
    pub fn new(client: usize, number: u8) -> Self {
        let id = client * usize::from(NUMBERS_MAX) + usize::from(number);
        Self(u8::try_from(id).expect("few clients with few changes"))
    }

    pub fn all() -> impl Iterator<Item = Self> {
        (1..=u8::try_from(CHANGES).expect("few changes")).map(Self)
    }

    pub fn index(self) -> usize {
        usize::from(self.0) - 1
    }

    pub fn client(self) -> usize {
        self.index() / usize::from(NUMBERS_MAX)
    }

    pub fn number(self) -> u8 {
        (self.0 - 1) % NUMBERS_MAX + 1
    }
}

impl History {
    pub fn version(self) -> u8 {
        u8::try_from((32 - self.0.leading_zeros()).div_ceil(4)).expect("at most eight")
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn bits(self) -> u32 {
        self.0
    }

    pub fn push(&mut self, change: Change) {
        self.0 |= u32::from(change.0) << (4 * self.version());
    }

    /// The change that made this version.
    pub fn at(self, version: u8) -> Option<Change> {
        let id = version.checked_sub(1).map_or(0, |place| (self.0 >> (4 * place)) & 0xf);
        (id != 0).then(|| Change(u8::try_from(id).expect("four bits")))
    }

    pub fn iter(self) -> impl Iterator<Item = Change> {
        (1..=self.version()).filter_map(move |version| self.at(version))
    }

    /// The version that this change made, or 0.
    pub fn version_of(self, change: Change) -> u8 {
        (1..=self.version()).find(|version| self.at(*version) == Some(change)).unwrap_or(0)
    }

    pub fn begins(self, longer: Self) -> bool {
        let bits = 4 * u32::from(self.version());
        bits == 0 || (longer.0 ^ self.0) << (32 - bits) == 0
    }

    pub fn followed_by(mut self, other: Self) -> Self {
        other.iter().for_each(|change| self.push(change));
        self
    }

    pub fn has_one_twice(self) -> bool {
        (1..=self.version()).any(|version| self.at(version).is_some_and(|change| self.version_of(change) != version))
    }
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(|change| (change.client(), change.number()))).finish()
    }
}

impl State {
    /// An empty store without a log, and nobody at work.
    pub fn first(scope: &Scope) -> Self {
        let clients = scope.changes.map(|changes| Client {
            number: 1,
            status: if changes == 0 { Status::Done } else { Status::Unsent },
            late: 0,
        });
        Self {
            redb: Redb::default(),
            log: LogFile::default(),
            holder: None,
            clients,
            reader: Reader { stage: if scope.reads { Reading::Idle } else { Reading::Done }, must_see: 0 },
            answered: [0; CHANGES],
            lives: 0,
            budget: scope.budget,
            wrong: None,
        }
    }

    /// Tells a client that its change is committed; it goes on with its next one.
    pub fn answer(&mut self, change: Change, version: u8, scope: &Scope) {
        let client = &mut self.clients[change.client()];
        // What is answered a second time, on a later connection, has the same answer.
        let told = &mut self.answered[change.index()];
        if *told != 0 && *told != version {
            self.wrong = Some("INV-2: a change was answered with two versions");
        }
        *told = version;
        if client.number == scope.changes[change.client()] {
            client.status = Status::Done;
        } else {
            client.number += 1;
            client.status = Status::Unsent;
        }
    }

    /// The lock is free, by a clean leave or a death. Connections break; what was sent and not answered is unknown.
    pub fn free_lock(&mut self) {
        self.holder = None;
        for client in &mut self.clients {
            client.late = 0; // A3
            if matches!(client.status, Status::Sent | Status::Grouped) {
                client.status = Status::Unknown;
            }
        }
        if matches!(self.reader.stage, Reading::Asked(_)) {
            self.reader.stage = Reading::Alone;
        }
    }

    /// The stone, where its socket answers.
    pub fn stone(&self) -> Option<&Holder> {
        self.holder.as_ref().filter(|holder| matches!(holder.phase, Phase::Serve | Phase::Mend))
    }

    /// Whether somebody waits for an answer, or has not asked yet.
    pub fn waits(&self) -> bool {
        let is_at_work = |client: &Client| !matches!(client.status, Status::Done | Status::Gone);
        self.clients.iter().any(is_at_work) || self.reader.stage != Reading::Done
    }
}
