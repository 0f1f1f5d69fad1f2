//! What the holder of the writer's lock does: recovery, direct commits, and the stone from its log to its leave.

use crate::{
    disk::{Image, NO_LOG, Record, SLOTS_PER_HALF, replay},
    rules::{Bug, Scope},
    state::{Change, Commit, Flight, Group, History, Holder, Phase, Role, SecondTry, Stage, State, Status, Window},
    steps::{Action, Failed, OnDisk, Steps},
};

/// All that this holder may do next.
pub fn steps(steps: &mut Steps, holder: &Holder) {
    if holder.commit.is_some() {
        commit_in_flight(steps, holder);
    }
    match holder.phase {
        Phase::Begin => begin(steps, holder),
        Phase::CreateHeader => create_header(steps),
        Phase::CreateSync => create_sync(steps),
        Phase::Serve => {
            if holder.again.is_some() {
                return retry(steps, holder);
            }
            frames(steps, holder);
            group(steps, holder);
            window(steps, holder);
        }
        Phase::Mend => {
            // A record that was appended before the redb commit failed is as good as any.
            group(steps, holder);
            close(steps, holder);
        }
        Phase::Leave => close(steps, holder),
        Phase::Recover | Phase::CreateFlag | Phase::Write => {}
    }
}

impl Holder {
    pub fn new(role: Role, view: Image) -> Self {
        let (window, flight, group) = (Window::default(), Flight::default(), Group::default());
        Self {
            role,
            phase: Phase::Begin,
            view,
            commit: None,
            again: None,
            second_try: SecondTry::None,
            window,
            flight,
            group,
        }
    }

    /// What the next group is decided on: what is synced, and what is being synced.
    fn ahead(&self, scope: &Scope) -> Image {
        with(self.view, self.flight.changes, scope)
    }

    fn begin_commit(&mut self, image: Image, phase: Phase) {
        self.commit = Some(Commit { image, flipped: false, closes: false });
        self.phase = phase;
    }
}

/// The holder of a state that has one.
fn of(state: &mut State) -> &mut Holder {
    state.holder.as_mut().expect("only a holder's steps ask for it")
}

/// L6, then what the lock was taken for.
fn begin(steps: &mut Steps, holder: &Holder) {
    let scope = steps.scope;
    if holder.view.log != NO_LOG {
        steps.add(Action::Recover, |state| match replay(holder.view, &state.log.cached, scope) {
            Ok(mut image) => {
                if !scope.has(Bug::RecoveryKeepsFlag) {
                    image.log = NO_LOG;
                }
                write(state, image, Phase::Recover, scope);
            }
            Err(corrupt) => state.wrong = Some(corrupt),
        });
        return;
    }
    match holder.role {
        Role::Stone => steps.add(Action::Decide, |state| of(state).phase = Phase::CreateHeader),
        Role::Recoverer => steps.add(Action::Unlock, State::free_lock),
        Role::Direct(client) => steps.add(Action::Decide, |state| direct(state, holder, usize::from(client), scope)),
    }
}

fn direct(state: &mut State, holder: &Holder, client: usize, scope: &Scope) {
    let change = Change::new(client, state.clients[client].number);
    if holder.view.verdicts[client] >= change.number() {
        state.answer(change, holder.view.history.version_of(change), scope);
        state.free_lock();
        return;
    }
    let mut image = holder.view;
    image.put(change, !scope.has(Bug::DirectWithoutVerdict) && !scope.has(Bug::VerdictForgotten));
    write(state, image, Phase::Write, scope);
}

/// Begins a redb commit that was computed from the holder's view: redb looks at what is there, and syncs it where a
/// dead writer did not; on another basis nothing is written, and all begins anew.
fn write(state: &mut State, image: Image, phase: Phase, scope: &Scope) {
    if state.redb.published != state.redb.primary {
        state.redb.open();
    }
    let found = state.redb.primary;
    let holder = of(state);
    if found == holder.view || scope.has(Bug::NoBasis) {
        holder.begin_commit(image, phase);
    } else {
        *holder = Holder::new(holder.role, found);
    }
}

fn commit_in_flight(steps: &mut Steps, holder: &Holder) {
    let Some(commit) = holder.commit else { return };
    if commit.flipped {
        steps.add(Action::CommitReturns, |state| {
            state.redb.durable = commit.image;
            state.redb.published = commit.image;
            let holder_now = of(state);
            holder_now.commit = None;
            holder_now.again = None;
            if holder_now.second_try == SecondTry::Out {
                holder_now.second_try = SecondTry::Done;
            }
            returned(state, holder, commit, steps.scope);
        });
    } else {
        steps.add(Action::FlipHeader, |state| {
            state.redb.primary = commit.image;
            of(state).commit = Some(Commit { flipped: true, ..commit });
        });
    }
    if steps.from.budget.faults > 0 {
        steps.add(Action::FailCommit, |state| {
            state.budget.faults -= 1;
            failed(state, holder, steps.scope);
        });
        if holder.phase == Phase::Serve {
            steps.add(Action::FailWindow, |state| {
                state.budget.faults -= 1;
                fail_window(state, holder, commit);
            });
        }
        if let (Phase::Write, Role::Direct(client)) = (holder.phase, holder.role) {
            steps.add(Action::FailCommitAndRecovery, |state| {
                state.budget.faults -= 1;
                state.clients[usize::from(client)].status = Status::Unknown;
                state.free_lock();
            });
        }
    }
}

/// What a holder does when its redb commit has returned Ok.
fn returned(state: &mut State, holder: &Holder, Commit { image, closes, .. }: Commit, scope: &Scope) {
    match (holder.phase, holder.role) {
        // The commit of a window that was frozen before; the one that counts has not begun.
        (Phase::Mend, _) if !closes && !scope.has(Bug::MendTrustsOlderCommit) => {}
        (Phase::Leave, _) if !closes => {}
        (Phase::Recover, _) => {
            // The flag is none, or (with a bug) what it was and of no meaning to this holder.
            *of(state) = Holder::new(holder.role, Image { log: NO_LOG, ..image });
        }
        (Phase::CreateFlag, _) => {
            *of(state) = Holder { phase: Phase::Serve, group: holder.group, ..Holder::new(holder.role, image) };
            if scope.has(Bug::FlagBeforeLog) {
                state.log.sync(state.log.dirty());
            }
        }
        (Phase::Mend, _) => {
            *of(state) = Holder { phase: Phase::CreateHeader, ..Holder::new(holder.role, image) };
            if matches!(holder.group.stage, Stage::Kept | Stage::Around) {
                answer(state, image, holder.group.changes, scope);
            } else {
                // What came in before something failed waits for the new log.
                of(state).group = holder.group;
            }
        }
        (Phase::Leave, _) => state.free_lock(),
        (Phase::Serve, _) if holder.group.stage == Stage::Around => {
            of(state).group = Group::default();
            answer(state, image, holder.group.changes, scope);
        }
        (Phase::Write, Role::Direct(client)) => {
            let client = usize::from(client);
            let change = Change::new(client, state.clients[client].number);
            state.answer(change, image.history.version_of(change), scope);
            state.free_lock();
        }
        _ => {}
    }
}

/// L4: the file is opened anew, which shows what the failed commit did; then all goes into one more commit.
fn failed(state: &mut State, holder: &Holder, scope: &Scope) {
    match (holder.phase, holder.role) {
        (Phase::Recover, _) => state.free_lock(),
        (Phase::Write, Role::Direct(client)) => {
            state.redb.open();
            let client = usize::from(client);
            let change = Change::new(client, state.clients[client].number);
            let version = state.redb.primary.history.version_of(change);
            if version == 0 {
                state.clients[client].status = Status::Unsent;
            } else {
                state.answer(change, version, scope);
            }
            state.free_lock();
        }
        _ => {
            state.redb.open();
            let holder = of(state);
            holder.commit = None;
            if holder.phase != Phase::Leave {
                holder.phase = Phase::Mend;
            }
        }
    }
}

/// L5: the log has what was answered, so the stone stays; but for a group that went around it, whose senders are told
/// that its fate is unknown.
fn fail_window(state: &mut State, before: &Holder, commit: Commit) {
    // The file is opened anew, which shows what the failed commit did.
    state.redb.open();
    let holder = of(state);
    holder.commit = None;
    holder.again = Some(commit.image);
    if before.group.stage == Stage::Around {
        holder.group = Group::default();
        leave_unknown(state, before.group.changes);
    }
}

/// L5: the same window again, unless redb has it by now.
fn retry(steps: &mut Steps, holder: &Holder) {
    let (Some(image), None) = (holder.again, holder.commit) else { return };
    steps.add(Action::RetryWindow, |state| {
        let has_it = state.redb.primary == image;
        let holder = of(state);
        if has_it {
            holder.again = None;
        } else {
            holder.begin_commit(image, Phase::Serve);
        }
        if steps.scope.has(Bug::WindowTriedTwice) {
            holder.second_try = if has_it { SecondTry::Done } else { SecondTry::Out };
        }
    });
}

/// L1: an id that no log had before.
fn create_header(steps: &mut Steps) {
    steps.add(Action::WriteLogHeader, |state| {
        state.lives += 1;
        let id = state.lives;
        state.log.write_header(id);
        of(state).phase = Phase::CreateSync;
        if steps.scope.has(Bug::FlagBeforeLog) {
            commit_flag(state, id);
        }
    });
}

fn create_sync(steps: &mut Steps) {
    steps.add(Action::SyncLogHeader, |state| {
        state.log.sync(state.log.dirty());
        let id = state.log.cached.id;
        commit_flag(state, id);
    });
    if steps.from.budget.faults > 0 {
        steps.add(Action::FailLogHeader, |state| {
            state.budget.faults -= 1;
            state.log.fail_sync(state.log.dirty(), false);
            of(state).phase = Phase::CreateHeader;
        });
    }
}

fn commit_flag(state: &mut State, id: u8) {
    let holder = of(state);
    let image = Image { log: id, ..holder.view };
    holder.begin_commit(image, Phase::CreateFlag);
}

/// The stone takes what it is sent into the group that comes next.
fn frames(steps: &mut Steps, holder: &Holder) {
    if holder.group.stage != Stage::Gathering {
        return;
    }
    let ahead = holder.ahead(steps.scope);
    for (index, client) in steps.from.clients.iter().enumerate() {
        let (known, now) = (ahead.verdicts[index], Change::new(index, client.number));
        if client.status == Status::Sent && known < now.number() {
            steps.add(Action::ReadFrame(index), |state| {
                state.clients[index].status = Status::Grouped;
                join(of(state), now);
            });
        } else if client.status == Status::Sent && holder.view.verdicts[index] >= now.number() {
            // A2: answered again, when it is synced.
            steps.add(Action::ReadFrame(index), |state| {
                state.answer(now, holder.view.history.version_of(now), steps.scope);
            });
        } else if client.status == Status::Sent && steps.scope.has(Bug::AnsweredOnUnsynced) {
            steps.add(Action::AnswerOnUnsynced(index), |state| {
                state.answer(now, ahead.history.version_of(now), steps.scope);
            });
        }
        if client.late != 0 {
            steps.add(Action::ReadLateFrame(index), |state| {
                let late = std::mem::take(&mut state.clients[index].late);
                if late > known {
                    join(of(state), Change::new(index, late));
                }
            });
        }
    }
}

/// Takes a change into the group, where a frame before may have brought it already: a group is applied in order, and
/// each change sees the client's rows of those before it.
fn join(holder: &mut Holder, change: Change) {
    if holder.group.changes.version_of(change) == 0 {
        holder.group.changes.push(change);
    }
}

/// L3: append, sync, answer. While one record is synced the next may be appended; then it waits for the next sync.
fn group(steps: &mut Steps, holder: &Holder) {
    if holder.group.stage == Stage::Gathering {
        append(steps, holder);
        go_around(steps, holder);
    }
    if !holder.flight.changes.is_empty() {
        sync(steps, holder);
    }
}

fn append(steps: &mut Steps, holder: &Holder) {
    let Holder { group: Group { changes, .. }, window, flight, view, phase, .. } = *holder;
    if changes.is_empty() || window.used == SLOTS_PER_HALF || phase != Phase::Serve {
        return;
    }
    let previous = (window.used > 0).then_some(window.sum);
    let before = holder.ahead(steps.scope).history.version();
    let record = Record::new(view.log, before, changes, previous, steps.scope);
    steps.add(Action::Append, |state| {
        state.log.append(window.half, window.used, record);
        let slots = state.log.dirty();
        let holder = of(state);
        holder.window = Window { used: window.used + 1, sum: record.sum, ..window };
        if flight.changes.is_empty() {
            holder.flight = Flight { changes, slots, is_answered: false };
            holder.group = Group::default();
        } else {
            holder.group.stage = Stage::Appended;
        }
    });
    if steps.from.budget.faults > 0 {
        for how in [Failed::Kept, Failed::Dropped] {
            steps.add(Action::FailAppend(how), |state| {
                state.log.append_torn(window.half, window.used);
                // What is being synced may still be, and is answered then.
                fail_log(state, holder.group.changes, how);
            });
        }
    }
}

/// A group that no half has room for goes into redb, as a window of its own after the one that was open: were it in
/// neither, the records after it would continue from nothing.
fn go_around(steps: &mut Steps, holder: &Holder) {
    let Holder { group: Group { changes, .. }, window, phase, commit, .. } = *holder;
    let is_free = commit.is_none() && window.used == 0 && holder.flight.changes.is_empty();
    if changes.is_empty() || phase != Phase::Serve || !is_free || steps.from.budget.large == 0 {
        return;
    }
    let scope = steps.scope;
    let view = with(holder.view, changes, scope);
    steps.add(Action::GoAround, |state| {
        state.budget.large -= 1;
        let holder = of(state);
        holder.view = view;
        holder.window = Window { half: 1 - window.half, ..Window::default() };
        holder.group.stage = Stage::Around;
        holder.begin_commit(view, Phase::Serve);
        if scope.has(Bug::AroundAnsweredEarly) {
            holder.group = Group::default();
            answer(state, view, changes, scope);
        }
    });
}

fn sync(steps: &mut Steps, holder: &Holder) {
    let scope = steps.scope;
    let Holder { flight, group, .. } = *holder;
    let view = holder.ahead(scope);
    let is_next_appended = group.stage == Stage::Appended;
    steps.add(Action::SyncLog, |state| {
        state.log.sync(flight.slots);
        let slots = state.log.dirty();
        let holder = of(state);
        holder.view = view;
        holder.flight = Flight::default();
        if is_next_appended {
            holder.flight = Flight { changes: group.changes, slots, is_answered: scope.has(Bug::SyncCoversLater) };
            holder.group = Group::default();
        }
        if !flight.is_answered {
            answer(state, view, flight.changes, scope);
        }
        if is_next_appended && scope.has(Bug::SyncCoversLater) {
            answer(state, with(view, group.changes, scope), group.changes, scope);
        }
    });
    if scope.has(Bug::AnswerBeforeSync) && !flight.is_answered {
        steps.add(Action::AnswerBeforeSync, |state| {
            of(state).flight.is_answered = true;
            answer(state, view, flight.changes, scope);
        });
    }
    if steps.from.budget.faults > 0 {
        for how in [Failed::Kept, Failed::Dropped] {
            for on_disk in [OnDisk::Written, OnDisk::Lost] {
                steps.add(Action::FailSync(how, on_disk), |state| {
                    state.log.fail_sync(flight.slots, on_disk == OnDisk::Written);
                    if scope.has(Bug::AppendAfterFailedSync) {
                        state.budget.faults -= 1;
                        return;
                    }
                    // What was decided behind it has the same fate; what was only read is decided anew.
                    let is_behind = matches!(group.stage, Stage::Appended | Stage::Kept);
                    let behind = if is_behind { group.changes } else { unread(state, group.changes) };
                    of(state).flight = Flight::default();
                    fail_log(state, flight.changes.followed_by(behind), how);
                });
            }
        }
    }
}

/// Gives frames back that were read into a group which was not decided yet.
fn unread(state: &mut State, changes: History) -> History {
    for change in changes.iter() {
        let client = &mut state.clients[change.client()];
        if client.status == Status::Grouped && client.number == change.number() {
            client.status = Status::Sent;
        }
    }
    History::default()
}

/// L4: this log is not appended to again. The changes are committed with all that is in the view, and then answered; or
/// they are dropped, and their senders are told that their fate is unknown, for they may be in the log all the same.
fn fail_log(state: &mut State, changes: History, how: Failed) {
    state.budget.faults -= 1;
    let holder = of(state);
    holder.phase = Phase::Mend;
    match how {
        Failed::Kept => holder.group = Group { changes, stage: Stage::Kept },
        Failed::Dropped => {
            holder.group = Group::default();
            leave_unknown(state, changes);
        }
    }
}

/// Tells those of a group that are still connected that its fate is unknown; they will ask again.
fn leave_unknown(state: &mut State, changes: History) {
    for change in changes.iter() {
        let client = &mut state.clients[change.client()];
        if client.status == Status::Grouped {
            client.status = Status::Unknown;
        }
    }
}

/// L3: the window's rows are frozen, and written to redb while the next window fills the other half. That half must
/// be free: the commit of the window that it held has returned.
fn window(steps: &mut Steps, holder: &Holder) {
    if holder.group.stage != Stage::Gathering || !holder.flight.changes.is_empty() {
        return;
    }
    if holder.window.used > 0 && holder.commit.is_none() {
        steps.add(Action::EndWindow, |state| {
            let holder = of(state);
            let half = if steps.scope.has(Bug::HalfReusedEarly) { holder.window.half } else { 1 - holder.window.half };
            holder.window = Window { half, ..Window::default() };
            holder.begin_commit(holder.view, Phase::Serve);
        });
    }
    if holder.second_try == SecondTry::Done && holder.commit.is_some_and(|commit| !commit.flipped) {
        steps.add(Action::StaleOk, |state| {
            let holder = of(state);
            holder.second_try = SecondTry::None;
            holder.commit = None;
        });
    }
    if steps.from.budget.leaves > 0 {
        steps.add(Action::Leave, |state| {
            state.budget.leaves -= 1;
            // Connections are closed first; the lock is held until the end.
            state.free_lock();
            state.holder = Some(Holder { phase: Phase::Leave, group: Group::default(), ..*holder });
        });
    }
}

/// All of the view goes into redb, with `log: none`; what is in flight must have ended, and no record be half done.
fn close(steps: &mut Steps, holder: &Holder) {
    let is_between_groups = matches!(holder.group.stage, Stage::Gathering | Stage::Kept | Stage::Around);
    if holder.commit.is_some() || !is_between_groups || !holder.flight.changes.is_empty() {
        return;
    }
    let kept = if holder.group.stage == Stage::Kept { holder.group.changes } else { History::default() };
    let view = with(holder.view, kept, steps.scope);
    steps.add(Action::BeginCommit, |state| {
        let redb = state.redb.primary;
        let holder = of(state);
        let rows = if steps.scope.has(Bug::LeaveWithoutWindow) { redb } else { view };
        let keeps_flag = steps.scope.has(Bug::MendKeepsFlag) && holder.phase == Phase::Mend;
        let log = if keeps_flag { rows.log } else { NO_LOG };
        holder.commit = Some(Commit { image: Image { log, ..rows }, flipped: false, closes: true });
    });
}

/// Answers those of a group that are still connected; the others will ask again.
fn answer(state: &mut State, view: Image, changes: History, scope: &Scope) {
    for change in changes.iter() {
        let client = state.clients[change.client()];
        if client.status == Status::Grouped && client.number == change.number() {
            state.answer(change, view.history.version_of(change), scope);
        }
    }
}

fn with(mut image: Image, changes: History, scope: &Scope) -> Image {
    for change in changes.iter() {
        image.put(change, !scope.has(Bug::VerdictForgotten));
    }
    image
}
