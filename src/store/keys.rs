//! The families of keys. Order-preserving, all in one table; what a user names lives under [`root`] and nowhere else.
//!
//! A queue's name in a key ends with a zero byte: names have no control characters, so no name is another's prefix.

mod links;

pub(crate) use self::links::*;
use crate::{
    clock::Timestamp,
    queue::{
        id::{ID_BYTES, JobId, Place, SessionId},
        lane::{LANE_BYTES, Lane},
    },
    store::{change::ClientId, conflict::Version},
};

/// One per family; the first byte of each key.
mod family {
    pub(super) const FORMAT: u8 = 0x01;
    pub(super) const STORE: u8 = 0x02;
    pub(super) const LOG: u8 = 0x03;
    pub(super) const SETTING: u8 = 0x04;
    pub(super) const TASK_NUMBER: u8 = 0x05;
    pub(super) const TASK_NAME: u8 = 0x06;
    pub(super) const ROOT: u8 = 0x10;
    pub(super) const HEAD: u8 = 0x20;
    pub(super) const COUNT: u8 = 0x21;
    pub(super) const LANE: u8 = 0x22;
    pub(super) const QUEUE_CONFIG: u8 = 0x23;
    pub(super) const BUCKET: u8 = 0x24;
    pub(super) const READY: u8 = 0x30;
    pub(super) const HELD: u8 = 0x31;
    pub(super) const DUE: u8 = 0x32;
    pub(super) const DUE_TIME: u8 = 0x33;
    pub(super) const WAITING: u8 = 0x34;
    pub(super) const FINISHED: u8 = 0x35;
    pub(super) const DEAD: u8 = 0x36;
    pub(super) const PLACE: u8 = 0x37;
    pub(super) const EXPIRY: u8 = 0x38;
    pub(super) const UNIQUE: u8 = 0x39;
    pub(super) const KEYED: u8 = 0x3A;
    pub(super) const KEY_INDEX: u8 = 0x3B;
    pub(super) const KEY_STATE: u8 = 0x3C;
    pub(super) const DEPENDENT: u8 = 0x3D;
    pub(super) const JOB_LOG: u8 = 0x3E;
    pub(super) const JOB_REF: u8 = 0x3F;
    pub(super) const CLIENT_HORIZON: u8 = 0x40;
    pub(super) const CLIENT: u8 = 0x41;
    pub(super) const WAIT: u8 = 0x42;
    pub(super) const SCHEDULE: u8 = 0x50;
    pub(super) const SLOT: u8 = 0x51;
    pub(super) const LOCK: u8 = 0x52;
    pub(super) const LOCK_SESSION: u8 = 0x53;

    /// All of them, in order.
    pub(super) const ALL: [u8; 35] = [
        FORMAT,
        STORE,
        LOG,
        SETTING,
        TASK_NUMBER,
        TASK_NAME,
        ROOT,
        HEAD,
        COUNT,
        LANE,
        QUEUE_CONFIG,
        BUCKET,
        READY,
        HELD,
        DUE,
        DUE_TIME,
        WAITING,
        FINISHED,
        DEAD,
        PLACE,
        EXPIRY,
        UNIQUE,
        KEYED,
        KEY_INDEX,
        KEY_STATE,
        DEPENDENT,
        JOB_LOG,
        JOB_REF,
        CLIENT_HORIZON,
        CLIENT,
        WAIT,
        SCHEDULE,
        SLOT,
        LOCK,
        LOCK_SESSION,
    ];
}

/// Format of the store's data, and the store's own id.
pub(crate) const FORMAT: &[u8] = &[family::FORMAT];
/// The store's version and its latest time stamp.
pub(crate) const STORE: &[u8] = &[family::STORE];
/// The log that is in use, if any.
pub(crate) const LOG: &[u8] = &[family::LOG];

/// A half-open range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Vec<u8>,
}

/// All keys that begin with these bytes.
pub(crate) fn prefixed(prefix: Vec<u8>) -> Range {
    let mut end = prefix.clone();
    // The next key after all of them: the prefix with its last byte that can grow, grown.
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    Range { start: prefix, end }
}

impl Range {
    /// The part of this range that lies after `key`.
    pub(crate) fn after(mut self, key: &[u8]) -> Self {
        let mut next = key.to_vec();
        next.push(0);
        self.start = self.start.max(next);
        self
    }
}

fn key(family: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + parts.iter().map(|part| part.len()).sum::<usize>());
    key.push(family);
    for part in parts {
        key.extend_from_slice(part);
    }
    key
}

/// A queue's name as a part of a key.
fn queue_part(queue: &str) -> Vec<u8> {
    let mut part = queue.as_bytes().to_vec();
    part.push(0);
    part
}

/// An object on the root.
pub(crate) fn root(name: &str) -> Vec<u8> {
    key(family::ROOT, &[name.as_bytes()])
}

/// The objects whose keys begin with `prefix`.
pub(crate) fn roots(prefix: &str) -> Range {
    prefixed(root(prefix))
}

/// The user's key in a key of the root.
pub(crate) fn root_name(key: &[u8]) -> String {
    String::from_utf8_lossy(key.get(1..).unwrap_or_default()).into_owned()
}

/// A setting of the store.
pub(crate) fn setting(name: &str) -> Vec<u8> {
    key(family::SETTING, &[name.as_bytes()])
}

/// All settings that were set.
pub(crate) fn settings() -> Range {
    prefixed(vec![family::SETTING])
}

/// The number that stands for a task in lanes.
pub(crate) fn task_number(task: &str) -> Vec<u8> {
    key(family::TASK_NUMBER, &[task.as_bytes()])
}

/// The task that a number stands for.
pub(crate) fn task_name(number: u32) -> Vec<u8> {
    key(family::TASK_NAME, &[&number.to_be_bytes()])
}

/// All task numbers given out.
pub(crate) fn task_names() -> Range {
    prefixed(vec![family::TASK_NAME])
}

/// A queue's head row.
pub(crate) fn head(queue: &str) -> Vec<u8> {
    key(family::HEAD, &[queue.as_bytes()])
}

/// The head rows of all queues.
pub(crate) fn heads() -> Range {
    prefixed(vec![family::HEAD])
}

/// A queue's count row.
pub(crate) fn count(queue: &str) -> Vec<u8> {
    key(family::COUNT, &[queue.as_bytes()])
}

/// The count rows of all queues: the list of queues.
pub(crate) fn counts() -> Range {
    prefixed(vec![family::COUNT])
}

/// The queue's name in the key of its count row.
pub(crate) fn counted_queue(key: &[u8]) -> String {
    root_name(key)
}

/// What was configured for a queue.
pub(crate) fn queue_config(queue: &str) -> Vec<u8> {
    key(family::QUEUE_CONFIG, &[queue.as_bytes()])
}

/// The tokens of a queue whose rate is limited.
pub(crate) fn bucket(queue: &str) -> Vec<u8> {
    key(family::BUCKET, &[queue.as_bytes()])
}

/// The tokens of all queues whose rate is limited.
pub(crate) fn buckets() -> Range {
    prefixed(vec![family::BUCKET])
}

/// What was configured for all queues.
pub(crate) fn queue_configs() -> Range {
    prefixed(vec![family::QUEUE_CONFIG])
}

/// A lane in use.
pub(crate) fn lane(queue: &str, lane: Lane) -> Vec<u8> {
    key(family::LANE, &[&queue_part(queue), &lane.to_bytes()])
}

/// The lanes in use of a queue, highest priority first.
pub(crate) fn lanes(queue: &str) -> Range {
    prefixed(key(family::LANE, &[&queue_part(queue)]))
}

/// The lanes in use of all queues.
pub(crate) fn all_lanes() -> Range {
    prefixed(vec![family::LANE])
}

/// The queue and lane in the key of a lane row.
pub(crate) fn lane_of(key: &[u8]) -> Option<(String, Lane)> {
    let rest = key.get(1..)?;
    let zero = rest.iter().position(|byte| *byte == 0)?;
    let queue = std::str::from_utf8(&rest[..zero]).ok()?;
    Some((queue.to_owned(), Lane::from_bytes(&rest[zero + 1..])?))
}

/// A ready job.
pub(crate) fn ready(queue: &str, lane: Lane, place: Place) -> Vec<u8> {
    key(family::READY, &[&queue_part(queue), &lane.to_bytes(), &place.to_bytes()])
}

/// The ready jobs of a lane, in order.
pub(crate) fn ready_lane(queue: &str, lane: Lane) -> Range {
    prefixed(key(family::READY, &[&queue_part(queue), &lane.to_bytes()]))
}

/// What a claim reads of a lane: its ready jobs, or the entries that lead to those that have concurrency keys.
pub(crate) fn claimable_in(queue: &str, lane: Lane) -> Range {
    if lane.keyed { key_index_lane(queue, lane) } else { ready_lane(queue, lane) }
}

/// The ready jobs of a queue without a concurrency key.
pub(crate) fn ready_of_queue(queue: &str) -> Range {
    prefixed(key(family::READY, &[&queue_part(queue)]))
}

/// All ready jobs without a concurrency key.
pub(crate) fn all_ready() -> Range {
    prefixed(vec![family::READY])
}

/// The queue in the key of a ready job, with a concurrency key or without.
pub(crate) fn ready_queue(key: &[u8]) -> Option<&str> {
    let (family, rest) = key.split_first()?;
    let is_ready = matches!(*family, family::READY | family::KEYED);
    std::str::from_utf8(&rest[..rest.iter().position(|byte| *byte == 0)?]).ok().filter(|_| is_ready)
}

/// A ready job that has a concurrency key.
pub(crate) fn keyed(queue: &str, name: &str, lane: Lane, place: Place) -> Vec<u8> {
    key(family::KEYED, &[&queue_part(queue), &queue_part(name), &lane.to_bytes(), &place.to_bytes()])
}

/// The ready jobs of one lane of a concurrency key, in order.
pub(crate) fn keyed_lane(queue: &str, name: &str, lane: Lane) -> Range {
    prefixed(key(family::KEYED, &[&queue_part(queue), &queue_part(name), &lane.to_bytes()]))
}

/// The ready jobs of a concurrency key, lane by lane.
pub(crate) fn keyed_jobs(queue: &str, name: &str) -> Range {
    prefixed(key(family::KEYED, &[&queue_part(queue), &queue_part(name)]))
}

/// The ready jobs of a queue that have a concurrency key.
pub(crate) fn keyed_of_queue(queue: &str) -> Range {
    prefixed(key(family::KEYED, &[&queue_part(queue)]))
}

/// The concurrency key in the key of a ready job.
pub(crate) fn key_of_keyed(key: &[u8]) -> Option<&str> {
    let rest = key.get(1..)?;
    let mut parts = rest.splitn(3, |byte| *byte == 0);
    parts.next()?;
    std::str::from_utf8(parts.next()?).ok()
}

/// All ready jobs that have a concurrency key.
pub(crate) fn all_keyed() -> Range {
    prefixed(vec![family::KEYED])
}

/// The lane in the key of a ready job that has a concurrency key.
pub(crate) fn keyed_lane_of(key: &[u8]) -> Option<Lane> {
    let end = key.len().checked_sub(ID_BYTES)?;
    Lane::from_bytes(key.get(end.checked_sub(LANE_BYTES)?..end)?)
}

/// What leads a claim to the first job of one lane of a concurrency key, while that may be claimed.
pub(crate) fn key_index(queue: &str, lane: Lane, place: Place) -> Vec<u8> {
    key(family::KEY_INDEX, &[&queue_part(queue), &lane.to_bytes(), &place.to_bytes()])
}

/// The entries of a lane, in order of the places of the jobs that they lead to.
pub(crate) fn key_index_lane(queue: &str, lane: Lane) -> Range {
    prefixed(key(family::KEY_INDEX, &[&queue_part(queue), &lane.to_bytes()]))
}

/// All entries that lead to jobs with concurrency keys.
pub(crate) fn key_indexes() -> Range {
    prefixed(vec![family::KEY_INDEX])
}

/// What runs of a concurrency key, and what is held back.
pub(crate) fn key_state(queue: &str, name: &str) -> Vec<u8> {
    key(family::KEY_STATE, &[&queue_part(queue), name.as_bytes()])
}

/// The states of the concurrency keys of a queue.
pub(crate) fn key_states(queue: &str) -> Range {
    prefixed(key(family::KEY_STATE, &[&queue_part(queue)]))
}

/// The states of all concurrency keys.
pub(crate) fn all_key_states() -> Range {
    prefixed(vec![family::KEY_STATE])
}

/// The concurrency key in the key of its state.
pub(crate) fn key_of_state(key: &[u8]) -> Option<(&str, &str)> {
    let (queue, name) = std::str::from_utf8(key.get(1..)?).ok()?.split_once('\0')?;
    Some((queue, name))
}

/// A family in which a job's row is found by the job's id alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ById {
    Held,
    Due,
    Waiting,
    Finished,
    Dead,
}

impl ById {
    pub(crate) const ALL: [Self; 5] = [Self::Held, Self::Due, Self::Waiting, Self::Finished, Self::Dead];

    fn family(self) -> u8 {
        match self {
            Self::Held => family::HELD,
            Self::Due => family::DUE,
            Self::Waiting => family::WAITING,
            Self::Finished => family::FINISHED,
            Self::Dead => family::DEAD,
        }
    }

    pub(crate) fn key(self, id: JobId) -> Vec<u8> {
        key(self.family(), &[&id.to_bytes()])
    }

    pub(crate) fn all(self) -> Range {
        prefixed(vec![self.family()])
    }
}

/// The job's id at the end of a key.
pub(crate) fn id_at_end(key: &[u8]) -> Option<JobId> {
    JobId::from_bytes(&key[key.len().checked_sub(ID_BYTES)?..])
}

/// The entry of a scheduled job in the index by time.
pub(crate) fn due_time(at: Timestamp, id: JobId) -> Vec<u8> {
    key(family::DUE_TIME, &[&at.as_millis().to_be_bytes(), &id.to_bytes()])
}

/// The scheduled jobs by time, soonest first.
pub(crate) fn due_times() -> Range {
    prefixed(vec![family::DUE_TIME])
}

/// The entry of a finished or dead job in the index of when it may be pruned.
pub(crate) fn expiry(at: Timestamp, id: JobId) -> Vec<u8> {
    key(family::EXPIRY, &[&at.as_millis().to_be_bytes(), &id.to_bytes()])
}

/// The finished and dead jobs by when they may be pruned.
pub(crate) fn expiries() -> Range {
    prefixed(vec![family::EXPIRY])
}

/// The time in the key of an index by time.
pub(crate) fn time_of(key: &[u8]) -> Option<Timestamp> {
    let bytes: [u8; 8] = key.get(1..9)?.try_into().ok()?;
    Some(Timestamp::from_millis(u64::from_be_bytes(bytes)))
}

/// The present place of a job that was requeued; for a ready job with a concurrency key, the key of its row.
pub(crate) fn place(id: JobId) -> Vec<u8> {
    key(family::PLACE, &[&id.to_bytes()])
}

/// All jobs that are not found by their ids alone.
pub(crate) fn places() -> Range {
    prefixed(vec![family::PLACE])
}

/// A2: below which birth clients may have been dropped.
pub(crate) const CLIENT_HORIZON: &[u8] = &[family::CLIENT_HORIZON];

/// The answers that a client of a stone may still ask for.
pub(crate) fn client(client: ClientId) -> Vec<u8> {
    key(family::CLIENT, &[&client.born.0.to_be_bytes(), &client.random.to_be_bytes()])
}

/// The answers kept for all clients, those of the oldest first.
pub(crate) fn clients() -> Range {
    prefixed(vec![family::CLIENT])
}

/// The client in the key of its row.
pub(crate) fn client_of(key: &[u8]) -> Option<ClientId> {
    let (born, random) = key.get(1..)?.split_first_chunk::<8>()?;
    let random: [u8; 8] = random.try_into().ok()?;
    Some(ClientId { born: Version(u64::from_be_bytes(*born)), random: u64::from_be_bytes(random) })
}

/// A named lock that is held.
pub(crate) fn lock(name: &str) -> Vec<u8> {
    key(family::LOCK, &[name.as_bytes()])
}

/// All named locks that are held, in order of their names.
pub(crate) fn locks() -> Range {
    prefixed(vec![family::LOCK])
}

/// The name in the key of a named lock.
pub(crate) fn lock_name(key: &[u8]) -> Option<&str> {
    let (family, name) = key.split_first()?;
    if *family == family::LOCK { std::str::from_utf8(name).ok() } else { None }
}

/// The entry of a lock in the index by session: one that the session holds, or waits for.
pub(crate) fn lock_session(session: SessionId, name: &str) -> Vec<u8> {
    key(family::LOCK_SESSION, &[&session.0, name.as_bytes()])
}

/// The locks that a session holds or waits for.
pub(crate) fn lock_sessions_of(session: SessionId) -> Range {
    prefixed(key(family::LOCK_SESSION, &[&session.0]))
}

/// The locks that all sessions hold or wait for.
pub(crate) fn lock_sessions() -> Range {
    prefixed(vec![family::LOCK_SESSION])
}

/// The session and the lock's name in the key of an entry of that index.
pub(crate) fn lock_session_parts(key: &[u8]) -> Option<(SessionId, String)> {
    let (session, name) = key.get(1..)?.split_first_chunk::<16>()?;
    Some((SessionId(*session), String::from_utf8(name.to_vec()).ok()?))
}

/// The queue whose jobs a row may make claimable: that of a ready job, or of a concurrency key that lets one run; of a
/// queue's head, its limits, or its tokens.
pub(crate) fn claimable_queue(key: &[u8]) -> Option<&str> {
    let (family, rest) = key.split_first()?;
    let name = match *family {
        family::READY | family::KEY_INDEX => &rest[..rest.iter().position(|byte| *byte == 0)?],
        family::HEAD | family::QUEUE_CONFIG | family::BUCKET => rest,
        _ => return None,
    };
    std::str::from_utf8(name).ok()
}

/// Whether a key is one of the few that change after change reads: of settings, tasks, and queues' own rows.
pub(crate) fn is_read_often(key: &[u8]) -> bool {
    matches!(
        key.first(),
        Some(
            &(family::SETTING
                | family::TASK_NUMBER
                | family::TASK_NAME
                | family::HEAD
                | family::COUNT
                | family::LANE
                | family::QUEUE_CONFIG)
        )
    )
}

/// Whether a key is of a ready job or of a lane, or begins as those do: what each claim looks through.
pub(crate) fn is_claimed_from(key: &[u8]) -> bool {
    matches!(key.first(), Some(&(family::READY | family::LANE)))
}

/// Whether a key is of a ready job, or begins as those do.
pub(crate) fn is_ready(key: &[u8]) -> bool {
    matches!(key.first(), Some(&(family::READY | family::KEY_INDEX)))
}

/// Where no key may be: before, between and behind the families.
pub(crate) fn between_families() -> Vec<Range> {
    let mut gaps = Vec::new();
    let mut start = Vec::new();
    for family in family::ALL {
        gaps.push(Range { start, end: vec![family] });
        start = vec![family + 1];
    }
    gaps.push(Range { start, end: vec![u8::MAX; 1024] });
    gaps
}
