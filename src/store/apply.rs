//! Apply: the one pure function from a change and a view to a verdict and rows. All rules of the root are here; those
//! of the queue are in its verbs.
//!
//! It reads no clock and draws no random number: replaying the same changes on the same rows gives the same rows.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::ControlFlow,
};

use crate::{
    clock::Timestamp,
    codec::{self, Digest},
    engine::{RowSet, Rows},
    error::{Error, Result},
    planted::{Bug, planted},
    queue::{self, config::ConfigRecord, counts::Tally, depend::Ends, id::JobId, keyed::KeysTouched, lane::Lane},
    store::{
        change::{Applied, CHANGE_BYTES_MAX, Change, Guard, Intent, Outcome},
        conflict::{Conflict, Subject, Version},
        keys::{self, Range},
        lock::rules as lock,
        object::{ObjectRecord, Value, check_key},
        settings::Settings,
        view::{Overlay, get_record},
    },
};

/// What the verbs of one change share: the overlay they write to, and what the change is worth.
pub(crate) struct Context<'a> {
    pub(crate) rows: Overlay<'a>,
    pub(crate) change: &'a Change,
    /// The version that this change will have if it commits.
    pub(crate) version: Version,
    pub(crate) now: Timestamp,
    /// The next index for a place made by this change.
    pub(crate) next_index: u32,
    pub(crate) tallies: BTreeMap<String, Tally>,
    pub(crate) lanes_known: HashSet<(String, Lane)>,
    pub(crate) keys: KeysTouched,
    pub(crate) tasks_known: HashMap<String, u32>,
    /// The jobs that it enqueued, in order; of a unique key, the job that had it before.
    pub(crate) enqueued: Vec<JobId>,
    pub(crate) ends: Ends,
    /// What is configured for the queue that was asked for last.
    pub(crate) config_known: Option<(String, ConfigRecord)>,
    settings: Option<Settings>,
    payload_bytes: usize,
}

impl Context<'_> {
    pub(crate) fn settings(&mut self) -> Result<Settings> {
        if let Some(settings) = self.settings {
            return Ok(settings);
        }
        let settings = Settings::read(&self.rows)?;
        self.settings = Some(settings);
        Ok(settings)
    }

    /// A setting is another: what comes after it in the change goes by that.
    pub(crate) fn forget_settings(&mut self) {
        self.settings = None;
    }

    /// Does something wholly or not at all, where the change goes on without it.
    pub(crate) fn all_or_nothing<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.rows.begin();
        let (next_index, payload_bytes) = (self.next_index, self.payload_bytes);
        let (tallies, enqueued, ends) = (self.tallies.clone(), self.enqueued.clone(), self.ends.clone());
        let keys = self.keys.clone();
        let done = work(self);
        if done.is_ok() {
            self.rows.keep();
        } else {
            self.rows.undo();
            (self.next_index, self.payload_bytes) = (next_index, payload_bytes);
            (self.tallies, self.enqueued, self.ends) = (tallies, enqueued, ends);
            self.keys = keys;
            // What they know may be of rows that are not there any more.
            self.lanes_known.clear();
            self.tasks_known.clear();
            self.config_known = None;
        }
        done
    }

    /// Checks a payload against the limit of one, and adds it to the change's own.
    pub(crate) fn admit_payload(&mut self, what: &str, bytes: usize) -> Result<()> {
        let most = self.settings()?.payload_max;
        if bytes > most {
            return Err(Error::invalid(format!(
                "{what} take {bytes} bytes; at most {most} are allowed (`casque config payload-max` changes that)"
            )));
        }
        self.admit_bytes(bytes)
    }

    /// Adds bytes that come from outside to what the change takes.
    pub(crate) fn admit_bytes(&mut self, bytes: usize) -> Result<()> {
        // What is refused takes nothing: the change may go on without it.
        let after = self.payload_bytes + bytes;
        if after > CHANGE_BYTES_MAX {
            return Err(Error::invalid(format!(
                "the change takes more than {CHANGE_BYTES_MAX} bytes; split it into smaller ones"
            )));
        }
        self.payload_bytes = after;
        Ok(())
    }
}

/// Does a change on rows whose newest version is `newest`, at `now`: what became of it, and the rows to write.
///
/// # Errors
/// `Conflict` for a guard that does not hold; any other kind says why the change was refused. Either way it left no
/// trace (INV-5).
pub(crate) fn apply(change: &Change, rows: &dyn Rows, newest: Version, now: Timestamp) -> Result<(Applied, RowSet)> {
    for guard in &change.guards {
        check_guard(guard, rows)?;
    }
    let mut context = Context {
        rows: Overlay::new(rows),
        change,
        version: Version(newest.0 + 1),
        now,
        next_index: 0,
        tallies: BTreeMap::new(),
        lanes_known: HashSet::new(),
        keys: KeysTouched::default(),
        tasks_known: HashMap::new(),
        enqueued: Vec::new(),
        ends: Ends::default(),
        config_known: None,
        settings: None,
        payload_bytes: 0,
    };
    let outcomes = change.intents.iter().map(|intent| perform(intent, &mut context)).collect::<Result<Vec<_>>>()?;
    context.tell_dependents()?;
    context.settle_keys()?;
    queue::counts::settle_tallies(&mut context)?;
    let version = (!context.rows.is_untouched()).then_some(context.version);
    Ok((Applied { version, stamp: now, outcomes }, context.rows.into_rows()))
}

fn perform(intent: &Intent, context: &mut Context<'_>) -> Result<Outcome> {
    match intent {
        Intent::Put { key, value } => put(context, key, value).map(|()| Outcome::Done),
        Intent::Remove { key } => remove(context, key).map(|()| Outcome::Done),
        Intent::Add { key, delta } => add(context, key, *delta).map(|()| Outcome::Done),
        Intent::Enqueue(job) => queue::enqueue::enqueue(context, job),
        Intent::Claim(claim) => {
            // What the change's settlements let go can be claimed at once.
            context.tell_dependents()?;
            queue::claim::claim(context, claim)
        }
        Intent::Settle(settle) => queue::settle::settle(context, settle),
        Intent::SettleEach(settlements) => queue::settle::settle_each(context, settlements),
        Intent::Extend { job, token } => queue::settle::extend(context, *job, *token),
        Intent::Progress { job, token, fraction, message } => {
            queue::settle::progress(context, *job, *token, *fraction, message)
        }
        Intent::Log { job, token, lines } => queue::log::log(context, *job, *token, lines),
        Intent::Promote { limit } => queue::promote::promote(context, *limit),
        Intent::Reclaim(reclaim) => queue::reclaim::reclaim(context, reclaim),
        Intent::Administer(admin) => queue::admin::administer(context, admin),
        Intent::Schedule { name, act } => queue::schedule::schedule(context, name, act),
        Intent::Lock(request) => lock::lock(context, request),
        Intent::Unlock { name, claimant } => lock::unlock(context, name, *claimant),
        Intent::FreeLocks(free) => lock::free_locks(context, free),
    }
}

fn put(context: &mut Context<'_>, key: &str, value: &Value) -> Result<()> {
    check_key(key)?;
    if let Value::Plain(payload) = value {
        context.admit_payload(&format!("the value of \"{key}\" would"), payload.as_bytes().len())?;
    }
    write_object(context, key, value.clone())
}

fn write_object(context: &mut Context<'_>, key: &str, value: Value) -> Result<()> {
    let record = ObjectRecord { version: context.version, writer: context.change.writer.clone(), value };
    context.rows.put_record(keys::root(key), &record)
}

fn remove(context: &mut Context<'_>, key: &str) -> Result<()> {
    check_key(key)?;
    let row = keys::root(key);
    if context.rows.get(&row)?.is_some() {
        context.rows.remove(row);
    }
    Ok(())
}

fn add(context: &mut Context<'_>, key: &str, delta: i64) -> Result<()> {
    check_key(key)?;
    let before = match get_record::<ObjectRecord>(&context.rows, &keys::root(key))?.map(|object| object.value) {
        None => 0,
        Some(Value::Counter(count)) => count,
        Some(Value::Plain(_)) => {
            return Err(Error::invalid(format!(
                "\"{key}\" holds a value, not a counter; remove it or use another key"
            )));
        }
    };
    let after = before
        .checked_add(delta)
        .ok_or_else(|| Error::invalid(format!("the counter \"{key}\" is {before}, and {delta} more does not fit")))?;
    write_object(context, key, Value::Counter(after))
}

fn check_guard(guard: &Guard, rows: &dyn Rows) -> Result<()> {
    if planted(Bug::GuardSkipped) {
        return Ok(());
    }
    match guard {
        Guard::Object { key, version } => {
            let found: Option<ObjectRecord> = get_record(rows, &keys::root(key))?;
            let found_version = found.as_ref().map(|object| object.version);
            if found_version == *version {
                return Ok(());
            }
            Err(Error::of_conflict(Conflict {
                subject: Subject::Key(key.clone()),
                read: *version,
                found: found_version,
                by: found.map(|object| object.writer),
            }))
        }
        Guard::Range { prefix, start, end, digest, read } => {
            let range = Range { start: start.clone(), end: end.clone() };
            check_range(rows, prefix, &range, *digest, *read)
        }
        Guard::Queue { queue, version, shifted } => queue::claim::check_queue_guard(rows, queue, *version, shifted),
        Guard::Lock { name, fence } => lock::check_fence(rows, name, *fence),
    }
}

fn check_range(rows: &dyn Rows, prefix: &str, range: &Range, expected: Digest, read: Version) -> Result<()> {
    let mut digest = Digest::new();
    // The newest object in the range is the likeliest to have changed it; a removal leaves nobody to name.
    let mut newest: Option<(String, ObjectRecord)> = None;
    rows.visit(&range.start, &range.end, &mut |key, bytes| {
        let object: ObjectRecord = codec::decode(bytes)?;
        digest_object(&mut digest, key, object.version);
        if object.version > read && newest.as_ref().is_none_or(|(_, known)| known.version < object.version) {
            newest = Some((keys::root_name(key), object));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if digest == expected {
        return Ok(());
    }
    Err(Error::of_conflict(match newest {
        Some((key, object)) => Conflict {
            subject: Subject::Key(key),
            read: Some(read),
            found: Some(object.version),
            by: Some(object.writer),
        },
        None => Conflict { subject: Subject::Range(prefix.to_owned()), read: Some(read), found: None, by: None },
    }))
}

/// Adds one object of a range to the digest that guards the range.
pub(crate) fn digest_object(digest: &mut Digest, key: &[u8], version: Version) {
    digest.update(&(key.len() as u64).to_le_bytes());
    digest.update(key);
    digest.update(&version.0.to_le_bytes());
}
