//! What the commands that tend jobs share: each of the jobs in turn, the next one also where one failed.

use serde_json::json;

use super::{
    context::Context,
    exit::{Exit, Failure},
    output::Output,
};
use crate::{
    error::Result,
    queue::{id::JobId, state::State},
    store::Store,
};

/// What was done to a job.
pub(super) enum Tended {
    /// It is in this state now.
    Now(State),
    /// It runs, and is cancelled when its handler has ended.
    Cancelling,
    /// Its state is to be looked up.
    Look,
}

/// Does something to each job and prints the state that it is in then. The exit code is that of the first failure.
pub(super) fn each(
    context: &Context,
    out: &mut Output,
    ids: &[JobId],
    tend: impl Fn(&Store, JobId) -> Result<Tended>,
) -> Result<(), Failure> {
    let store = context.write()?;
    let mut first: Option<Exit> = None;
    for id in ids {
        match tend(&store, *id) {
            Ok(tended) => {
                let is_cancelling = matches!(tended, Tended::Cancelling);
                let state = match tended {
                    Tended::Now(state) => state.to_string(),
                    Tended::Cancelling => State::Running.to_string(),
                    // A worker may have taken it already, and be done with it.
                    Tended::Look => store.job(*id).map_or("gone".to_owned(), |job| job.state.to_string()),
                };
                let (mut object, mut text) = (json!({ "id": id.to_string(), "state": state }), format!("{id} {state}"));
                if is_cancelling {
                    object["cancelling"] = true.into();
                    text.push_str(", to be cancelled when its handler ends");
                }
                out.either(&object, text)?;
            }
            Err(error) => {
                let failure = Failure::of_job(&error);
                failure.tell(&context.program);
                first.get_or_insert(failure.exit);
            }
        }
    }
    first.map_or(Ok(()), |exit| Err(Failure::told(exit)))
}
