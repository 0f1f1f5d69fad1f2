//! What the commands that tend jobs share: each of the jobs in turn, the next one also where one failed.

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
                let state = match tended {
                    Tended::Now(state) => state.to_string(),
                    // A worker may have taken it already, and be done with it.
                    Tended::Look => store.job(*id).map_or("gone".to_owned(), |job| job.state.to_string()),
                };
                let object = serde_json::json!({ "id": id.to_string(), "state": state });
                out.either(&object, format!("{id} {state}"))?;
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
