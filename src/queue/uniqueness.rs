//! What makes a job unique, as a user says it.

use std::time::Duration;

use serde::Serialize;

use crate::{
    codec::{Codec, Payload, hex},
    error::{Error, Result},
    queue::{
        canonical::{canonical, fields},
        enqueue::NewUnique,
        extra::{StateSet, UniqueScope},
        state::State,
    },
};

/// What makes a job unique: while one holds the key, enqueueing another gives that one's id.
///
/// A key is one of its queue, and held from the enqueueing until the job has ended, where nothing else is said.
///
/// ```
/// use casque::{JobRequest, Unique};
/// use std::time::Duration;
///
/// # let store = casque::Store::in_memory()?;
/// let queue = store.queue("mail");
/// // At most one such mail to each user in an hour, whether it was sent already or not.
/// let mail = |user: u64| {
///     let once = Unique::by(&user).per_task().within(Duration::from_secs(3600));
///     JobRequest::new("remind", &(user, "hello")).unique_by(once)
/// };
/// let first = queue.enqueue(mail(7))?;
/// assert_eq!(queue.enqueue(mail(7))?, first);
/// assert_ne!(queue.enqueue(mail(8))?, first);
/// # Ok::<(), casque::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it does nothing until a job is told of it"]
pub struct Unique {
    of: Of,
    per_task: bool,
    scope: UniqueScope,
    states: Option<StateSet>,
    within: Option<Duration>,
}

/// What the key is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Of {
    Key(String),
    /// All arguments.
    Args,
    /// These fields of the arguments.
    Fields(Vec<String>),
    /// The digest of a value; why there is none.
    Value(Result<u128, String>),
}

impl Unique {
    /// Jobs with this key; the same key of another task is the same.
    pub fn key(key: impl Into<String>) -> Self {
        Self::of(Of::Key(key.into()))
    }

    /// Jobs of one task with the same arguments. The order of keys in JSON does not matter; the same arguments from
    /// Rust and as JSON are not the same.
    pub fn args() -> Self {
        Self { per_task: true, ..Self::of(Of::Args) }
    }

    /// Jobs of one task whose arguments are a JSON object with the same values in these fields. From Rust, say what
    /// counts by [`Unique::by`].
    pub fn fields<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self { per_task: true, ..Self::of(Of::Fields(names.into_iter().map(Into::into).collect())) }
    }

    /// Jobs with the same value: a number, or a tuple of what counts. The same value of another task is the same.
    pub fn by<T: Serialize + ?Sized>(value: &T) -> Self {
        let digest = Payload::bincode(value).map(|value| digest_of(&[value.as_bytes()]));
        Self::of(Of::Value(digest.map_err(|error| error.full_message())))
    }

    fn of(of: Of) -> Self {
        Self { of, per_task: false, scope: UniqueScope::Queue, states: None, within: None }
    }

    /// Only jobs of the same task stand in each other's way.
    pub fn per_task(mut self) -> Self {
        self.per_task = true;
        self
    }

    /// Jobs of all queues stand in each other's way, not only those of one.
    pub fn across_queues(mut self) -> Self {
        self.scope = UniqueScope::Store;
        self
    }

    /// The key is held for so long at most, from the enqueueing on; and, where no states are named, also after the job
    /// has succeeded. Without this it is held in its states, for however long.
    pub fn within(mut self, within: Duration) -> Self {
        self.within = Some(within);
        self
    }

    /// The key is held while its job is in one of these states. Jobs whose end is among them are kept for as long.
    pub fn while_in(mut self, states: &[State]) -> Self {
        self.states = Some(StateSet::of(states));
        self
    }

    /// The key to take, for a job of this task with these arguments.
    pub(crate) fn resolve(self, task: &str, args: &Payload) -> Result<NewUnique> {
        let key = match (self.of, self.per_task) {
            (Of::Key(key), false) => key,
            (Of::Key(key), true) => digest_key(task, "key", key.as_bytes()),
            (Of::Args, _) => match args.codec() {
                Codec::Json => digest_key(task, "json", &canonical(args.as_bytes())?),
                Codec::Bincode => digest_key(task, "bincode", args.as_bytes()),
            },
            (Of::Fields(names), _) => {
                if names.is_empty() {
                    return Err(Error::invalid("a unique key can't be made of no fields; name some of the arguments"));
                }
                if args.codec() != Codec::Json {
                    return Err(Error::invalid(
                        "the arguments are not JSON, so their fields have no names here; say what counts by Unique::by",
                    ));
                }
                let values = fields(args.as_bytes(), &names)?;
                let mut parts: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
                parts.push(&values);
                digest_key(task, "fields", &digest_of(&parts).to_be_bytes())
            }
            (Of::Value(digest), per_task) => {
                let digest = digest
                    .map_err(|why| Error::invalid(format!("the value that a job is unique by can't be used: {why}")))?;
                if per_task { digest_key(task, "value", &digest.to_be_bytes()) } else { hex(&digest.to_be_bytes()) }
            }
        };
        let usual = if self.within.is_some() { StateSet::UNENDED_OR_COMPLETED } else { StateSet::UNENDED };
        Ok(NewUnique { key, scope: self.scope, states: self.states.unwrap_or(usual), within: self.within })
    }
}

/// How much of a task's name a key shows.
const TASK_SHOWN: usize = 64;

/// A key that is of one task: the name for people, the digest to tell keys apart.
fn digest_key(task: &str, kind: &str, bytes: &[u8]) -> String {
    let digest = digest_of(&[task.as_bytes(), kind.as_bytes(), bytes]);
    let shown = task.char_indices().map(|(at, letter)| at + letter.len_utf8()).take_while(|end| *end <= TASK_SHOWN);
    format!("{}:{}", &task[..shown.last().unwrap_or(0)], hex(&digest.to_be_bytes()))
}

/// A digest that is the same in every build: XXH3 with 128 bits, of the parts and their lengths.
fn digest_of(parts: &[&[u8]]) -> u128 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.digest128()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Payload {
        Payload::from_json_text(text).unwrap()
    }

    fn key(unique: Unique, task: &str, args: &str) -> String {
        unique.resolve(task, &json(args)).unwrap().key
    }

    #[test]
    fn keys_are_the_same_in_every_build() {
        assert_eq!(key(Unique::key("video-7"), "resize", "null"), "video-7");
        assert_eq!(key(Unique::key("video-7").per_task(), "resize", "null"), "resize:9685718d3c3863df86cc1a51283eedcc");
        assert_eq!(key(Unique::args(), "resize", r#"{"b": 1, "a": 2}"#), "resize:86c3c97fe9e5a6135682fe831f229b2a");
        assert_eq!(
            key(Unique::fields(["a"]), "resize", r#"{"b": 1, "a": 2}"#),
            "resize:3fb57ba06cb855d09bced63291efe6df"
        );
        assert_eq!(key(Unique::by(&(7u32, "day")), "resize", "null"), "554e01e47e1bd6ec1cadfc1621cae480");
        let bincode = Payload::bincode(&("cat.png", 640u32)).unwrap();
        assert_eq!(Unique::args().resolve("resize", &bincode).unwrap().key, "resize:2aadde26fda09339cf5518f5dd330063");
    }

    #[test]
    fn keys_differ_where_what_they_are_made_of_does() {
        let args = r#"{"a": 1, "b": 2}"#;
        let keys = [
            key(Unique::key("x"), "t", args),
            key(Unique::key("x").per_task(), "t", args),
            key(Unique::key("x").per_task(), "u", args),
            key(Unique::args(), "t", args),
            key(Unique::args(), "u", args),
            key(Unique::args(), "t", r#"{"a": 1}"#),
            key(Unique::fields(["a"]), "t", args),
            key(Unique::fields(["b"]), "t", args),
            key(Unique::fields(["a", "b"]), "t", args),
            key(Unique::by(&1u8), "t", args),
            key(Unique::by(&1u8).per_task(), "t", args),
            key(Unique::by(&2u8), "t", args),
        ];
        assert_eq!(keys.iter().collect::<std::collections::HashSet<_>>().len(), keys.len(), "{keys:?}");
        assert_eq!(key(Unique::args(), "t", args), key(Unique::args(), "t", r#"{"b":2,"a":1}"#));
        assert_eq!(key(Unique::fields(["a"]), "t", args), key(Unique::fields(["a"]), "t", r#"{"a":1,"b":3}"#));
    }

    #[test]
    fn keys_of_long_task_names_are_short_enough() {
        let task = "ä".repeat(64);
        crate::queue::enqueue::check_name("unique key", &key(Unique::args(), &task, "null")).unwrap();
    }

    #[test]
    fn what_can_not_be_a_key_is_named() {
        let wrong = |unique: Unique, args: &Payload| unique.resolve("t", args).unwrap_err().to_string();
        let bincode = Payload::bincode(&1u8).unwrap();
        assert!(wrong(Unique::fields(["a"]), &bincode).contains("Unique::by"));
        assert!(wrong(Unique::fields(Vec::<String>::new()), &json("{}")).contains("no fields"));
        assert!(wrong(Unique::fields(["a"]), &json("{}")).contains("no field \"a\""));
    }

    #[test]
    fn key_with_a_time_is_held_beyond_success_and_one_without_until_the_end() {
        let states = |unique: Unique| unique.resolve("t", &json("null")).unwrap().states;
        assert_eq!(states(Unique::key("x")), StateSet::UNENDED);
        assert_eq!(states(Unique::key("x").within(Duration::from_secs(1))), StateSet::UNENDED_OR_COMPLETED);
        let ready = Unique::key("x").within(Duration::from_secs(1)).while_in(&[State::Ready]);
        assert_eq!(states(ready), StateSet::of(&[State::Ready]));
    }
}
