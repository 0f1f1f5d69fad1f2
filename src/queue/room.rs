//! What a queue's limits leave room for: how many more of its jobs may be claimed now, and by which rules of its keys.

use crate::{
    clock::Timestamp,
    engine::Rows,
    error::{Error, ErrorKind, Result},
    queue::{
        config::{ConfigRecord, config},
        keyed::KeyRules,
        rate::tokens,
        record::CountRecord,
        state::State,
    },
    store::{apply::Context, keys, view::get_record},
};

/// What a claim may take from one queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// How many jobs at most.
    pub(crate) jobs: u64,
    pub(crate) keys: KeyRules,
}

impl Room {
    /// The room in a queue as its rows show it.
    pub(crate) fn seen(rows: &dyn Rows, queue: &str, now: Timestamp) -> Result<Self> {
        let config = config(rows, queue)?.unwrap_or_default();
        let room = Self::of(rows, queue, &config)?;
        match &config.rate {
            Some(rate) if room.jobs > 0 => Ok(Self { jobs: room.jobs.min(tokens(rows, queue, rate, now)?), ..room }),
            _ => Ok(room),
        }
    }

    /// The same, whether or not its rate has a token for it now: one will come by itself.
    pub(crate) fn seen_in_time(rows: &dyn Rows, queue: &str) -> Result<Self> {
        Self::of(rows, queue, &config(rows, queue)?.unwrap_or_default())
    }

    fn of(rows: &dyn Rows, queue: &str, config: &ConfigRecord) -> Result<Self> {
        let running = match config.running_max {
            Some(_) => get_record::<CountRecord>(rows, &keys::count(queue))?.unwrap_or_default().running,
            None => 0,
        };
        Ok(Self { jobs: below_maximum(config.running_max, running), keys: config.key_rules() })
    }
}

fn below_maximum(most: Option<u32>, running: u64) -> u64 {
    most.map_or(u64::MAX, |most| u64::from(most).saturating_sub(running))
}

impl Context<'_> {
    /// The room in a queue, with all that this change has done so far.
    pub(crate) fn room(&mut self, queue: &str) -> Result<Room> {
        let config = self.config(queue)?;
        let (rate, keys, most) = (config.rate, config.key_rules(), config.running_max);
        let running = if most.is_some() { self.count_now(queue, State::Running)? } else { 0 };
        let room = Room { jobs: below_maximum(most, running), keys };
        match rate {
            Some(rate) if room.jobs > 0 => {
                Ok(Room { jobs: room.jobs.min(tokens(&self.rows, queue, &rate, self.now)?), ..room })
            }
            _ => Ok(room),
        }
    }

    /// # Errors
    /// `Full` where one job more does not fit into a queue.
    pub(crate) fn check_size(&mut self, queue: &str) -> Result<()> {
        let Some(most) = self.config(queue)?.size_max else { return Ok(()) };
        let mut waiting = 0;
        for state in [State::Waiting, State::Scheduled, State::Ready] {
            waiting += self.count_now(queue, state)?;
        }
        if waiting < most {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Full,
            format!(
                "queue \"{queue}\" is full: with this job {} of its jobs would not have begun, and its size-max is \
                 {most}; wait for room, enqueue fewer at once, or raise the limit with `casque config --queue {queue} \
                 size-max`",
                waiting + 1
            ),
        ))
    }
}
