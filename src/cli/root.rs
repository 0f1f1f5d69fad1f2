//! `casque root`: the objects on the persistent root.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::{
    context::Context,
    enqueue::{payload, stdin_text},
    exit::{Exit, Failure},
    output::Output,
    submit::payload_max_of_new_stores,
    table::{Table, brief},
    units::{DURATION_MAX, look_until, number_from, parse_duration},
};
use crate::{
    clock::monotonic,
    error::ErrorKind,
    store::{
        conflict::Version,
        object::check_key,
        snapshot::{Object, Snapshot},
        transaction,
        watch::watch,
    },
};

/// How much of an object's value a listing shows.
const VALUE_LETTERS: usize = 60;

/// The objects on the persistent root: get, put, rm, ls, watch
#[derive(Debug, Args)]
#[command(after_help = "\
Values are JSON. What a Rust program stored in bincode shows as {\"bincode\": \"<hex>\"}.

Examples:
  casque root put config/limit 10
  casque root get config/limit
  casque root ls config/
  casque root watch config/limit --count 1")]
pub(super) struct Root {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print an object's value
    Get {
        /// Its key
        key: String,
    },
    /// Put a value under a key, whatever was there
    Put {
        /// Its key
        key: String,
        /// The value as JSON; - reads it from stdin
        #[arg(value_name = "JSON|-", allow_hyphen_values = true)]
        value: String,
    },
    /// Remove an object
    Rm {
        /// Its key
        key: String,
    },
    /// List objects
    Ls {
        /// Only keys that begin so
        #[arg(default_value = "")]
        prefix: String,
    },
    /// Print an object each time it changes, until interrupted
    Watch(WatchArgs),
}

#[derive(Debug, Args)]
struct WatchArgs {
    /// Its key
    key: String,
    /// The version that is known, 0 for an absent object [default: the present one]
    #[arg(long, value_name = "VERSION")]
    from: Option<u64>,
    /// End after so many changes
    #[arg(long, value_name = "N", value_parser = number_from::<u64>(1))]
    count: Option<u64>,
    /// Wait no longer than this for each change, as 30s; exit code 7
    #[arg(long, value_name = "DUR", value_parser = parse_duration, allow_hyphen_values = true)]
    timeout: Option<Duration>,
}

impl Root {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        match self.action {
            Action::Get { key } => get(context, out, &key),
            Action::Put { key, value } => put(context, out, &key, value),
            Action::Rm { key } => rm(context, out, &key),
            Action::Ls { prefix } => ls(context, out, &prefix),
            Action::Watch(args) => args.run(context, out),
        }
    }
}

fn get(context: &Context, out: &mut Output, key: &str) -> Result<(), Failure> {
    let object = context.read(|store| Ok(store.snapshot()?.object_json(key)?))?;
    let object = object.ok_or_else(|| absent(context, key))?;
    out.either(&line(key, Some(&object)), &object.value)
}

fn put(context: &Context, out: &mut Output, key: &str, value: String) -> Result<(), Failure> {
    check_key(key)?;
    let text = if value == "-" { stdin_text("the value")? } else { value };
    let payload = payload(&text, &format!("the value of \"{key}\""))?;
    let bytes = payload.as_bytes().len() as u64;
    if !context.path().exists() && bytes > payload_max_of_new_stores() {
        let message = format!("the value of \"{key}\" takes {bytes} bytes; a new store allows at most");
        return Err(Failure::usage(format!("{message} {}", payload_max_of_new_stores())));
    }
    let store = context.create()?;
    let ((), version) = transaction::run(&store, None, |tx| tx.put_payload(key, payload.clone()))?;
    out.either(&serde_json::json!({ "key": key, "version": version.0 }), format!("{key} is at version {version}"))
}

fn rm(context: &Context, out: &mut Output, key: &str) -> Result<(), Failure> {
    check_key(key)?;
    let store = context.write()?;
    if store.snapshot()?.object_json(key)?.is_none() {
        return Err(absent(context, key));
    }
    let version = store.remove(key)?;
    out.either(&serde_json::json!({ "key": key, "version": version.0 }), format!("{key} removed"))
}

fn ls(context: &Context, out: &mut Output, prefix: &str) -> Result<(), Failure> {
    let objects = context.read(|store| Ok(store.snapshot()?.list_json(prefix)?))?;
    if out.json {
        return objects.iter().try_for_each(|object| out.object(&line(&object.key, Some(object))));
    }
    let mut table = Table::with_head(["KEY", "VERSION", "VALUE"]);
    for object in objects {
        table.row([object.key, object.version.to_string(), brief(&object.value.to_string(), VALUE_LETTERS)]);
    }
    table.print(out)
}

impl WatchArgs {
    fn run(&self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        let mut known = if let Some(version) = self.from {
            (version > 0).then_some(Version(version))
        } else {
            let object = context.read(|store| Ok(store.snapshot()?.object_json(&self.key)?))?;
            object.map(|object| object.version)
        };
        for _ in 0..self.count.unwrap_or(u64::MAX) {
            let object = self.next(context, known)?;
            known = object.as_ref().map(|object| object.version);
            let text = object.as_ref().map_or("removed".to_owned(), |object| object.value.to_string());
            out.either(&line(&self.key, object.as_ref()), text)?;
            // Each change is to be seen when it happens.
            out.flush()?;
        }
        Ok(())
    }

    /// What is there when the object has another version than the one known.
    fn next(&self, context: &Context, known: Option<Version>) -> Result<Option<Object<Value>>, Failure> {
        let deadline = monotonic() + self.timeout.unwrap_or(DURATION_MAX);
        context.read(|store| {
            let object = |snapshot: &Snapshot| snapshot.object_json(&self.key);
            match look_until(deadline, |patience| watch(store, &self.key, known, patience, object)) {
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    let waited = self.timeout.unwrap_or(DURATION_MAX);
                    let message = format!("\"{}\" has not changed in {waited:?}", self.key);
                    Err(Failure::new(Exit::TimedOut, message))
                }
                changed => Ok(changed?),
            }
        })
    }
}

/// An object in JSON; of one that is gone, neither version nor value.
fn line(key: &str, object: Option<&Object<Value>>) -> Value {
    serde_json::json!({
        "key": key,
        "version": object.map(|object| object.version.0),
        "value": object.map(|object| &object.value),
    })
}

fn absent(context: &Context, key: &str) -> Failure {
    let list = format!("`{} root ls` lists those there are", context.program);
    Failure::new(Exit::NotFound, format!("there is no object \"{key}\"; {list}"))
}
