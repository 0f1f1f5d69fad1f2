//! What the commands that tend jobs share: each of the jobs is judged by itself, whatever became of the others.

use serde_json::json;

use super::{
    context::Context,
    exit::{Exit, Failure},
    output::Output,
    units::counted,
};
use crate::{
    error::{Error, Result},
    queue::{admin::Tend, id::JobId, jobs::TEND_JOBS_MAX, state::State},
    store::Store,
};

/// Tends the jobs, many in one change, and prints the state that each is in then. The exit code is that of the first
/// failure.
pub(super) fn together(context: &Context, out: &mut Output, ids: &[JobId], verb: Tend) -> Result<(), Failure> {
    let store = context.write()?;
    let mut ended = Ended::new(context);
    for some in ids.chunks(TEND_JOBS_MAX) {
        match store.tend_each(verb, some) {
            Ok(each) => {
                for (id, tended) in some.iter().zip(each) {
                    ended.note(out, *id, tended, verb == Tend::Cancel)?;
                }
            }
            Err(error) => ended.note_all(some, &error),
        }
    }
    ended.result()
}

/// Does something to one job after the other and prints the state that each is in then. The exit code is that of the
/// first failure.
pub(super) fn one_by_one(
    context: &Context,
    out: &mut Output,
    ids: &[JobId],
    tend: impl Fn(&Store, JobId) -> Result<()>,
) -> Result<(), Failure> {
    let store = context.write()?;
    let mut ended = Ended::new(context);
    for id in ids {
        // A worker may have taken it already, and be done with it.
        let state = tend(&store, *id).map(|()| store.job(*id).map_or("gone".to_owned(), |job| job.state.to_string()));
        ended.note(out, *id, state, false)?;
    }
    ended.result()
}

/// What became of the jobs so far.
struct Ended<'a> {
    context: &'a Context,
    first: Option<Exit>,
}

impl<'a> Ended<'a> {
    fn new(context: &'a Context) -> Self {
        Self { context, first: None }
    }

    fn note(
        &mut self,
        out: &mut Output,
        id: JobId,
        state: Result<impl ToString>,
        is_cancelled: bool,
    ) -> Result<(), Failure> {
        let state = match state {
            Ok(state) => state.to_string(),
            Err(error) => {
                self.fail(&Failure::of_job(&error));
                return Ok(());
            }
        };
        let (mut object, mut text) = (json!({ "id": id.to_string(), "state": state }), format!("{id} {state}"));
        if is_cancelled && state == State::Running.to_string() {
            object["cancelling"] = true.into();
            text.push_str(", to be cancelled when its handler ends");
        }
        out.either(&object, text)
    }

    /// The change that they were to be tended in failed.
    fn note_all(&mut self, jobs: &[JobId], error: &Error) {
        let failure = Failure::of_job(error);
        match jobs {
            [first, .., last] => {
                let which = format!("{}, {first} to {last}", counted(jobs.len() as u64, "job"));
                self.fail(&failure.about(&which));
            }
            _ => self.fail(&failure),
        }
    }

    fn fail(&mut self, failure: &Failure) {
        failure.tell(&self.context.program);
        self.first.get_or_insert(failure.exit);
    }

    fn result(self) -> Result<(), Failure> {
        self.first.map_or(Ok(()), |exit| Err(Failure::told(exit)))
    }
}
