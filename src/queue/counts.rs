//! INV-9: the counters of a queue, changed in the same commit as the rows they count. A change adds up what it moved
//! and writes one count row per queue at its end.

use crate::{
    engine::Rows,
    error::{Error, Result},
    queue::{record::CountRecord, state::State},
    store::{
        apply::Context,
        keys,
        view::{get_record, inconsistent},
    },
};

/// What a change adds to a queue's counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    states: [i64; State::ALL.len()],
    completed: u64,
    hijacks: u64,
    /// The row as it was before the change, once it was read.
    before: Option<CountRecord>,
}

impl Context<'_> {
    fn tally(&mut self, queue: &str) -> &mut Tally {
        // Mostly there is one, and it is there.
        if !self.tallies.contains_key(queue) {
            self.tallies.insert(queue.to_owned(), Tally::default());
        }
        self.tallies.get_mut(queue).expect("it was put there just now")
    }

    /// A queue that is paused or configured before its first job is a queue all the same.
    pub(crate) fn note_queue(&mut self, queue: &str) -> Result<()> {
        if self.rows.get(&keys::count(queue))?.is_none() {
            self.rows.put_record(keys::count(queue), &CountRecord::default())?;
        }
        Ok(())
    }

    pub(crate) fn count_in(&mut self, queue: &str, state: State) {
        self.tally(queue).states[state as usize] += 1;
    }

    pub(crate) fn count_out(&mut self, queue: &str, state: State) {
        self.tally(queue).states[state as usize] -= 1;
    }

    /// How many jobs of a queue are in a state, with all that this change has done so far.
    pub(crate) fn count_now(&mut self, queue: &str, state: State) -> Result<u64> {
        let mut count = match self.tallies.get(queue).and_then(|tally| tally.before) {
            Some(before) => before,
            None => get_record(&self.rows, &keys::count(queue))?.unwrap_or_default(),
        };
        let tally = self.tally(queue);
        tally.before = Some(count);
        let now = count.now_in(state).checked_add_signed(tally.states[state as usize]);
        now.ok_or_else(|| too_few(queue, state))
    }

    pub(crate) fn count_completed(&mut self, queue: &str) {
        self.tally(queue).completed += 1;
    }

    pub(crate) fn count_hijacks(&mut self, queue: &str, hijacks: u64) {
        self.tally(queue).hijacks += hijacks;
    }
}

/// Writes the count rows of the queues that the change has touched.
pub(crate) fn settle_tallies(context: &mut Context<'_>) -> Result<()> {
    for (queue, tally) in std::mem::take(&mut context.tallies) {
        let key = keys::count(&queue);
        let before = match tally.before {
            Some(before) => before,
            None => get_record(&context.rows, &key)?.unwrap_or_default(),
        };
        let mut after = before;
        for (state, delta) in State::ALL.into_iter().zip(tally.states) {
            let count = after.now_in(state);
            *count = count.checked_add_signed(delta).ok_or_else(|| too_few(&queue, state))?;
        }
        after.completed += tally.completed;
        after.hijacks += tally.hijacks;
        if after != before {
            context.rows.put_record(key, &after)?;
        }
        if after.running < before.running {
            context.tell_if_below_maximum(&queue, before.running, after.running)?;
        }
    }
    Ok(())
}

fn too_few(queue: &str, state: State) -> Error {
    inconsistent(format!("queue \"{queue}\" counts too few {state} jobs"))
}
