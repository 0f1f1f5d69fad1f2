//! Goes through all states that can be reached, those of few actions first: the first wrong one has the shortest story.

use std::{
    collections::HashSet,
    fmt,
    hash::{BuildHasherDefault, Hash, Hasher},
};

use crate::{
    checks::broken,
    rules::Scope,
    state::State,
    steps::{Action, Steps},
};

/// What a search found: a broken invariant with the actions that lead to it, or only how many states there are.
pub struct Report {
    pub states: usize,
    pub depth: usize,
    pub story: Option<Story>,
}

/// The invariant that is broken, and the shortest list of actions after which it is.
pub struct Story {
    pub broken: &'static str,
    actions: Vec<Action>,
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, after", self.broken)?;
        (1..).zip(&self.actions).try_for_each(|(number, action)| writeln!(f, "{number:4}. {action:?}"))
    }
}

pub fn search(scope: &Scope) -> Report {
    // Of a state that was gone on from, only its number and how it was reached are kept.
    let mut reached: Vec<(usize, Option<Action>)> = vec![(0, None)];
    let mut seen: HashSet<u64, BuildHasherDefault<Mixer>> = HashSet::default();
    let mut layer = vec![(0, State::first(scope))];
    let mut depth = 0;
    let mut found = Vec::new();
    while !layer.is_empty() {
        let mut next = Vec::new();
        for (number, from) in layer {
            Steps { from: &from, scope, found: &mut found }.all();
            if found.is_empty() && from.waits() {
                let story = Story { broken: "INV-10: nobody can go on", actions: story(&reached, number) };
                return Report { states: reached.len(), depth, story: Some(story) };
            }
            for (action, state) in found.drain(..) {
                if !seen.insert(fingerprint(&state)) {
                    continue;
                }
                reached.push((number, Some(action)));
                let number = reached.len() - 1;
                if let Some(broken) = broken(&from, &state, scope) {
                    let story = Story { broken, actions: story(&reached, number) };
                    return Report { states: reached.len(), depth: depth + 1, story: Some(story) };
                }
                next.push((number, state));
            }
        }
        layer = next;
        depth += 1;
    }
    Report { states: reached.len(), depth, story: None }
}

fn story(reached: &[(usize, Option<Action>)], last: usize) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut at = last;
    while let (before, Some(action)) = reached[at] {
        actions.push(action);
        at = before;
    }
    actions.reverse();
    actions
}

/// Stands for a state: that two of a million states share one of 2^64 is out of the question, and states are large.
fn fingerprint(state: &State) -> u64 {
    let mut hasher = Mixer(0);
    state.hash(&mut hasher);
    hasher.finish()
}

/// The hashers of the standard library are several times slower in a build without optimization.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        (self.0 ^ (self.0 >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0.rotate_left(23) ^ value).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.0 = mixed ^ (mixed >> 29);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_usize(value.cast_unsigned());
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}
