//! Every action that is possible in a state, with the state it leads to: first what clients, readers and chance do;
//! then, in `holder`, what the process does that holds the writer's lock.

use crate::{
    disk::{LogFile, NO_LOG},
    holder,
    rules::{Bug, Scope},
    state::{CLIENTS, Change, Group, Holder, Phase, Reading, Role, State, Status},
};

/// What happens. With the state before it, it says which state comes after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// W1; on a handle that was open before, which may not show the commit that the last writer died in.
    TakeLock(Role, Handle),
    /// L6.
    Recover,
    WriteLogHeader,
    SyncLogHeader,
    /// The log's header sync fails.
    FailLogHeader,
    /// The stone reads a client's frame; or an older one, of a connection that the client gave up.
    ReadFrame(usize),
    /// Only with a bug.
    AnswerOnUnsynced(usize),
    ReadLateFrame(usize),
    Append,
    /// The append fails; the stone keeps the group in its view (and so in redb), or drops it.
    FailAppend(Failed),
    /// With the answers: a death between them is one before the sync that finds the record on the disk. The sync began
    /// when the record was appended, or the sync before it ended.
    SyncLog,
    /// The sync fails, though it has written the record or has not.
    FailSync(Failed, OnDisk),
    /// Only with a bug.
    AnswerBeforeSync,
    /// L3: the window's redb commit begins, and the next window, in the other half.
    EndWindow,
    BeginCommit,
    FlipHeader,
    /// redb has synced its header and says Ok.
    CommitReturns,
    FailCommit,
    /// L5: the window's commit fails, and the log stays in use: it is tried again.
    FailWindow,
    /// By then redb may have it.
    RetryWindow,
    /// Only with a bug: the Ok of a second try is taken for that of the next window, which is not written yet.
    StaleOk,
    /// The group is put into the view and into redb, as a window of its own.
    GoAround,
    /// And so does finding out what it did: the direct commit's outcome stays unknown.
    FailCommitAndRecovery,
    /// W3: reads what it recovered, or finds that its change is there already.
    Decide,
    /// W6.
    Leave,
    Unlock,
    Kill,
    /// The number tells its outcomes apart.
    PowerCut(usize),
    Send(usize),
    /// The client gives up its connection to a living stone.
    Break(usize),
    /// The client leaves cleanly: the stone removes its row.
    SayGoodbye(usize),
    BeginSnapshot,
    /// The reader looks anew who there is to ask.
    AskAgain,
    ReadSnapshot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handle {
    Fresh,
    Kept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    Kept,
    Dropped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDisk {
    Written,
    Lost,
}

/// Where the steps from one state are put.
pub struct Steps<'a> {
    pub from: &'a State,
    pub scope: &'a Scope,
    pub found: &'a mut Vec<(Action, State)>,
}

impl Steps<'_> {
    /// Adds an action by what it changes.
    pub fn add(&mut self, action: Action, change: impl FnOnce(&mut State)) {
        let mut state = *self.from;
        change(&mut state);
        self.found.push((action, state));
    }

    pub fn all(&mut self) {
        self.clients();
        self.goodbyes();
        self.reader();
        match self.from.holder {
            Some(current) => {
                holder::steps(self, &current);
                self.deaths();
            }
            None => self.take_lock(),
        }
        self.power_cuts();
    }

    fn clients(&mut self) {
        for (index, client) in self.from.clients.iter().enumerate() {
            let waits = matches!(client.status, Status::Unsent | Status::Unknown);
            if waits && self.from.stone().is_some_and(|stone| stone.phase == Phase::Serve) {
                self.add(Action::Send(index), |state| {
                    let client = &mut state.clients[index];
                    client.status = Status::Sent;
                    // A2: the hello of a new connection has ended the older ones.
                    if !self.scope.has(Bug::OlderConnectionLives) {
                        client.late = 0;
                    }
                });
            }
            if matches!(client.status, Status::Sent | Status::Grouped) && self.from.budget.breaks > 0 {
                self.add(Action::Break(index), |state| {
                    state.budget.breaks -= 1;
                    let client = &mut state.clients[index];
                    if client.status == Status::Sent {
                        client.late = client.number;
                    }
                    client.status = Status::Unknown;
                });
            }
        }
    }

    fn goodbyes(&mut self) {
        let is_listening = |stone: &Holder| stone.phase == Phase::Serve && stone.group == Group::default();
        if !self.from.stone().is_some_and(is_listening) {
            return;
        }
        for (index, client) in self.from.clients.iter().enumerate() {
            if client.status == Status::Done {
                self.add(Action::SayGoodbye(index), |state| {
                    state.clients[index].status = Status::Gone;
                    if let Some(stone) = &mut state.holder {
                        stone.view.verdicts[index] = 0;
                    }
                });
            }
        }
    }

    fn reader(&mut self) {
        match self.from.reader.stage {
            Reading::Idle => self.add(Action::BeginSnapshot, |state| {
                state.reader.must_see =
                    Change::all().filter(|change| state.answered[change.index()] != 0).map(bit).sum();
                ask(state, self.scope);
            }),
            Reading::Asked(version) if self.from.redb.published.history.version() >= version => self.read(),
            Reading::Alone if self.from.redb.published.log == NO_LOG => self.read(),
            Reading::Alone if self.from.stone().is_some() => {
                self.add(Action::AskAgain, |state| ask(state, self.scope));
            }
            Reading::Asked(_) | Reading::Alone | Reading::Done => {}
        }
    }

    fn read(&mut self) {
        self.add(Action::ReadSnapshot, |state| {
            state.reader.stage = Reading::Done;
            let seen = state.redb.published.history;
            let lacks = |change: &Change| seen.at(state.answered[change.index()]) != Some(*change);
            if Change::all().filter(|change| state.reader.must_see & bit(*change) != 0).any(|change| lacks(&change)) {
                state.wrong = Some("INV-8: a snapshot lacks what was answered before it began");
            }
            state.reader.must_see = 0;
        });
    }

    fn take_lock(&mut self) {
        if self.from.budget.stones > 0 {
            self.take(Role::Stone, |state| state.budget.stones -= 1);
        }
        for index in 0..CLIENTS {
            if matches!(self.from.clients[index].status, Status::Unsent | Status::Unknown) {
                self.take(Role::Direct(u8::try_from(index).expect("few clients")), |_| {});
            }
        }
        if self.from.reader.stage == Reading::Alone && self.from.redb.published.log != NO_LOG {
            self.take(Role::Recoverer, |_| {});
        }
    }

    fn take(&mut self, role: Role, change: impl Fn(&mut State)) {
        self.add(Action::TakeLock(role, Handle::Fresh), |state| {
            if self.scope.has(Bug::UnsyncedHeaderTrusted) {
                state.redb.published = state.redb.primary;
            } else {
                state.redb.open();
            }
            state.holder = Some(Holder::new(role, state.redb.published));
            change(state);
        });
        // A stone opens the file anew: it writes over the log before redb could tell it that its basis is another.
        let may_keep = role != Role::Stone || self.scope.has(Bug::StoneOnKeptHandle);
        // Otherwise such a handle shows the same as a fresh one.
        if may_keep && self.from.redb.published != self.from.redb.primary {
            self.add(Action::TakeLock(role, Handle::Kept), |state| {
                state.holder = Some(Holder::new(role, state.redb.published));
                change(state);
            });
        }
    }

    fn deaths(&mut self) {
        if self.from.budget.kills == 0 {
            return;
        }
        self.add(Action::Kill, |state| {
            state.budget.kills -= 1;
            if let Some(Holder { role: Role::Direct(client), .. }) = state.holder {
                state.clients[usize::from(client)].status = Status::Gone;
            }
            state.free_lock();
        });
    }

    /// All processes are gone, and with them what they knew. A client that had sent nothing stands for a new one.
    fn power_cuts(&mut self) {
        if self.from.budget.cuts == 0 {
            return;
        }
        let (images, logs) = (self.from.redb.outcomes(), self.from.log.outcomes());
        let outcomes = images.iter().flat_map(|image| logs.iter().map(move |log| (*image, *log)));
        for (number, (image, log)) in outcomes.enumerate() {
            self.add(Action::PowerCut(number), |state| {
                state.budget.cuts -= 1;
                state.redb.primary = image;
                state.redb.open();
                state.log = LogFile::after_power_cut(log);
                if let Some(Holder { role: Role::Direct(client), .. }) = state.holder {
                    state.clients[usize::from(client)].status = Status::Gone;
                }
                state.free_lock();
                for client in &mut state.clients {
                    if client.status != Status::Unsent {
                        client.status = Status::Gone;
                    }
                }
                if state.reader.stage == Reading::Alone {
                    state.reader.stage = Reading::Done;
                }
            });
        }
    }
}

/// R2: asks the stone to close its window. The answer comes when redb has what the stone has committed until now.
fn ask(state: &mut State, scope: &Scope) {
    let target = state.stone().map(|stone| match stone.commit {
        _ if scope.has(Bug::SnapshotWithoutBarrier) => 0,
        Some(commit) if scope.has(Bug::SnapshotWaitsForOlderWindow) => commit.image.history.version(),
        _ => stone.view.history.version(),
    });
    state.reader.stage = target.map_or(Reading::Alone, Reading::Asked);
}

fn bit(change: Change) -> u8 {
    1 << change.index()
}
