//! What the store's objects do, one operation at a time: the registers of the root with a counter, a job, a named lock.

use super::{
    checker::Object,
    record::{REGISTERS, Step, Value},
};

/// The registers, and the counter; an act reads and writes any of them at once.
pub struct Root;

impl Object for Root {
    type State = ([Value; REGISTERS], i64);
    type Act = Step;

    fn step((registers, count): &Self::State, act: &Step) -> Option<Self::State> {
        let as_read = act.reads.iter().all(|(key, value)| registers[*key] == *value);
        if !as_read || act.count.is_some_and(|read| read != *count) {
            return None;
        }
        let mut registers = *registers;
        for (key, value) in &act.writes {
            registers[*key] = *value;
        }
        Some((registers, count + act.add))
    }
}

/// One job, told by its arguments, which no other has.
pub struct Job;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum JobState {
    Absent,
    /// Its id where that is known, and the token that it was held under last.
    Ready(Option<String>, u64),
    Held(String, u64),
    Completed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobAct {
    Enqueue(Option<String>),
    Claim {
        id: String,
        token: u64,
    },
    /// Ended under this token; else back to be claimed.
    Settle {
        token: u64,
        completes: bool,
    },
    /// A settlement under this token was refused.
    Refused(u64),
    /// Taken back from whoever held it under this token.
    Back(u64),
    /// Taken back from whoever held it.
    Released,
}

impl Object for Job {
    type State = JobState;
    type Act = JobAct;

    fn step(state: &JobState, act: &JobAct) -> Option<JobState> {
        match (state, act) {
            (JobState::Absent, JobAct::Enqueue(id)) => Some(JobState::Ready(id.clone(), 0)),
            (JobState::Ready(known, last), JobAct::Claim { id, token }) => {
                let is_it = known.as_ref().is_none_or(|known| known == id);
                (is_it && token > last).then(|| JobState::Held(id.clone(), *token))
            }
            // INV-3: only the current token settles.
            (JobState::Held(_, held), JobAct::Settle { token, completes: true }) if held == token => {
                Some(JobState::Completed)
            }
            (JobState::Held(id, held), JobAct::Settle { token, completes: false } | JobAct::Back(token))
                if held == token =>
            {
                Some(JobState::Ready(Some(id.clone()), *held))
            }
            (JobState::Held(id, held), JobAct::Released) => Some(JobState::Ready(Some(id.clone()), *held)),
            (JobState::Held(_, held), JobAct::Refused(token)) if held == token => None,
            (_, JobAct::Refused(_)) => Some(state.clone()),
            _ => None,
        }
    }
}

/// One named lock: who holds it, by number, and the greatest number that there was.
pub struct Lock;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockAct {
    Lock(u64),
    Unlock(u64),
    /// Something was done that only this number's holder may do.
    Within(u64),
    /// Something was refused since the lock is not held under this number.
    Refused(u64),
    /// Taken from whoever held it under this number.
    Back(u64),
}

impl Object for Lock {
    type State = (Option<u64>, u64);
    type Act = LockAct;

    fn step(state: &Self::State, act: &LockAct) -> Option<Self::State> {
        let (held, last) = *state;
        match *act {
            LockAct::Lock(fence) => (held.is_none() && fence > last).then_some((Some(fence), fence)),
            LockAct::Unlock(fence) | LockAct::Back(fence) => (held == Some(fence)).then_some((None, last)),
            LockAct::Within(fence) => (held == Some(fence)).then_some(*state),
            LockAct::Refused(fence) => (held != Some(fence)).then_some(*state),
        }
    }
}
