//! Decides whether a history of one object is linearizable: whether its operations can be put into an order that keeps
//! real time and that the object, done one at a time, would have answered in that way.
//!
//! The search is that of Wing and Gong, with the memory of Lowe: configurations (which operations were put in order,
//! and the state after them) that led nowhere are not looked at again. What may never have happened is *optional*: it
//! has no end, and an order may do without it.

use std::{collections::HashSet, fmt::Debug, hash::Hash};

/// An object, done one operation at a time.
pub trait Object {
    type State: Clone + Eq + Hash + Debug;
    type Act: Clone + Eq + Debug;

    /// The state after it; nothing where it would not have been answered like this.
    fn step(state: &Self::State, act: &Self::Act) -> Option<Self::State>;
}

/// One operation, from the line of its call to that of its answer.
#[derive(Clone, Debug)]
pub struct Operation<A> {
    pub called: usize,
    /// Nothing for what may come at any later time, or never.
    pub answered: Option<usize>,
    pub act: A,
}

/// There is no legal order.
#[derive(Debug)]
pub struct Illegal {
    /// What was about to be put in order in the longest attempt, and the state that refused it.
    pub told: String,
}

/// How many configurations are looked at before a history is given up for too hard.
const CONFIGURATIONS_MAX: usize = 5_000_000;

/// A place in the search: what of the required operations is in order (all before `front`, and these behind it), what
/// of the optional ones, and the state.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Place<S> {
    front: usize,
    behind: Vec<usize>,
    optional: Vec<usize>,
    state: S,
}

/// Whether there is a legal order.
///
/// # Errors
/// Where there is none.
///
/// # Panics
/// Where the search takes too much memory.
pub fn check<O: Object>(initial: O::State, operations: &[Operation<O::Act>]) -> Result<(), Illegal> {
    let mut required: Vec<_> = operations.iter().filter(|operation| operation.answered.is_some()).collect();
    required.sort_by_key(|operation| operation.called);
    let mut optional: Vec<_> = operations.iter().filter(|operation| operation.answered.is_none()).collect();
    optional.sort_by_key(|operation| operation.called);
    // Of two that are alike the one that was called first is as good as the other, so it is taken first.
    let twin = |at: usize| (0..at).rev().find(|older| optional[*older].act == optional[at].act);
    let twins: Vec<Option<usize>> = (0..optional.len()).map(twin).collect();

    let mut seen: HashSet<Place<O::State>> = HashSet::new();
    let mut furthest: Option<Place<O::State>> = None;
    let mut stack = vec![Place { front: 0, behind: Vec::new(), optional: Vec::new(), state: initial }];
    while let Some(place) = stack.pop() {
        if place.front == required.len() {
            return Ok(());
        }
        assert!(seen.len() < CONFIGURATIONS_MAX, "the history is too hard to decide");
        let depth = |place: &Place<O::State>| place.front + place.behind.len();
        if furthest.as_ref().is_none_or(|known| depth(known) < depth(&place)) {
            furthest = Some(place.clone());
        }
        let (candidates, limit) = open::<O>(&required, &place);
        let mut next = Vec::new();
        for at in 0..optional.len() {
            let operation = optional[at];
            if operation.called >= limit {
                break;
            }
            let Some(state) = O::step(&place.state, &operation.act).filter(|state| *state != place.state) else {
                continue;
            };
            let is_done = |at: usize| place.optional.binary_search(&at).is_ok();
            if !is_done(at) && twins[at].is_none_or(is_done) {
                let mut done = place.optional.clone();
                done.push(at);
                done.sort_unstable();
                next.push(Place { optional: done, state, ..place.clone() });
            }
        }
        // What is looked at last is popped first: required before optional, what was answered first before the others.
        let mut candidates: Vec<usize> = candidates.into_iter().filter(|at| required[*at].called < limit).collect();
        candidates.sort_by_key(|at| std::cmp::Reverse(required[*at].answered));
        for at in candidates {
            if let Some(state) = O::step(&place.state, &required[at].act) {
                next.push(place.with(at, state));
            }
        }
        for next in next {
            if seen.insert(next.clone()) {
                stack.push(next);
            }
        }
    }
    let place = furthest.expect("the search begins somewhere");
    let (candidates, limit) = open::<O>(&required, &place);
    let open: Vec<_> =
        candidates.into_iter().map(|at| required[at]).filter(|operation| operation.called < limit).collect();
    let told = format!(
        "after {} of {} operations the state is {:?}, and none of these can be next: {open:#?}",
        place.front + place.behind.len(),
        required.len(),
        place.state
    );
    Err(Illegal { told })
}

/// The required operations that may be next, and the first answer among those that are not in order: nothing that was
/// called after it may come before it.
fn open<O: Object>(required: &[&Operation<O::Act>], place: &Place<O::State>) -> (Vec<usize>, usize) {
    let (mut open, mut limit) = (Vec::new(), usize::MAX);
    for (at, operation) in required.iter().enumerate().skip(place.front) {
        if operation.called >= limit {
            break;
        }
        if !place.behind.contains(&at) {
            limit = limit.min(operation.answered.unwrap_or(usize::MAX));
            open.push(at);
        }
    }
    (open, limit)
}

impl<S: Clone> Place<S> {
    /// With one more required operation in order.
    fn with(&self, at: usize, state: S) -> Self {
        let mut next = Self { state, ..self.clone() };
        next.behind.push(at);
        next.behind.sort_unstable();
        while next.behind.first() == Some(&next.front) {
            next.behind.remove(0);
            next.front += 1;
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Register;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Act {
        Write(u8),
        Read(u8),
    }

    impl Object for Register {
        type State = u8;
        type Act = Act;

        fn step(state: &u8, act: &Act) -> Option<u8> {
            match *act {
                Act::Write(value) => Some(value),
                Act::Read(value) => (value == *state).then_some(value),
            }
        }
    }

    fn is_legal(operations: &[(usize, usize, Act)]) -> bool {
        let operations: Vec<_> = operations
            .iter()
            .map(|&(called, answered, act)| Operation { called, answered: (answered > 0).then_some(answered), act })
            .collect();
        check::<Register>(0, &operations).is_ok()
    }

    #[test]
    fn reads_beside_a_write_may_see_either_and_then_only_the_new() {
        assert!(is_legal(&[(1, 10, Act::Write(1)), (2, 3, Act::Read(0)), (4, 5, Act::Read(1))]));
        assert!(!is_legal(&[(1, 10, Act::Write(1)), (2, 3, Act::Read(1)), (4, 5, Act::Read(0))]));
        assert!(!is_legal(&[(1, 2, Act::Write(1)), (3, 4, Act::Read(0))]));
    }

    #[test]
    fn what_may_never_have_happened_is_taken_where_it_is_needed_and_not_before_its_call() {
        assert!(is_legal(&[(1, 0, Act::Write(1)), (2, 3, Act::Read(0)), (4, 5, Act::Read(1))]));
        assert!(is_legal(&[(1, 0, Act::Write(1)), (2, 3, Act::Read(0)), (4, 5, Act::Read(0))]));
        assert!(!is_legal(&[(1, 2, Act::Read(1)), (3, 0, Act::Write(1))]));
        assert!(!is_legal(&[(1, 0, Act::Write(1)), (2, 3, Act::Read(1)), (4, 5, Act::Read(0))]));
    }

    /// The search agrees with trying all orders.
    #[test]
    fn small_histories_are_decided_as_by_all_their_orders() {
        fn by_all_orders(left: &[(usize, usize, Act)], state: u8) -> bool {
            let limit = left.iter().map(|one| one.1).filter(|end| *end > 0).min().unwrap_or(usize::MAX);
            limit == usize::MAX
                || (0..left.len()).any(|at| {
                    let mut rest = left.to_vec();
                    let (called, _, act) = rest.remove(at);
                    called < limit && Register::step(&state, &act).is_some_and(|state| by_all_orders(&rest, state))
                })
        }
        let seed = crate::seed();
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut legal, mut illegal) = (0, 0);
        for _ in 0..3_000 {
            let operations: Vec<_> = (0..random.usize(2..6))
                .map(|_| {
                    let called = random.usize(1..20);
                    let answered = if random.u8(..5) == 0 { 0 } else { called + random.usize(1..8) };
                    let value = random.u8(..3);
                    (called, answered, if random.bool() { Act::Write(value) } else { Act::Read(value) })
                })
                .collect();
            let expected = by_all_orders(&operations, 0);
            assert_eq!(is_legal(&operations), expected, "CASQUE_SEED={seed}: {operations:?}");
            *(if expected { &mut legal } else { &mut illegal }) += 1;
        }
        assert!(legal > 300 && illegal > 300, "{legal} legal, {illegal} not");
    }
}
