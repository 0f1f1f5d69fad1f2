//! Which jobs another still waits for, and which wait for it, for people. Rows lead from a job to those that wait for
//! it, so the former are looked for among all that are waited for, and not for long.

use std::ops::ControlFlow;

use crate::{
    engine::Rows,
    error::Result,
    queue::id::JobId,
    store::{
        Store, keys,
        view::{first_rows, get_record},
    },
};

use super::extra::WaitsRecord;

/// How many jobs are named.
pub(crate) const NAMED_MAX: usize = 100;
/// How many rows are looked at for them.
const LOOKED_AT_MAX: usize = 200_000;

/// The neighbours of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Neighbours {
    /// It waits for the end of these; not all, where they are many.
    pub(crate) waits_for: Vec<JobId>,
    /// These wait for its end; not all, where they are many.
    pub(crate) waited_for_by: Vec<JobId>,
}

impl Store {
    /// Which jobs one waits for that have not ended, and which wait for it.
    pub(crate) fn neighbours(&self, job: JobId) -> Result<Neighbours> {
        neighbours(self.inner.look()?.as_ref(), job)
    }
}

fn neighbours(rows: &dyn Rows, job: JobId) -> Result<Neighbours> {
    let waits: Option<WaitsRecord> = get_record(rows, &keys::wait(job))?;
    let pending = waits.map_or(0, |waits| waits.pending as usize).min(NAMED_MAX);
    let waited_for_by = first_rows(rows, &keys::dependents(job), NAMED_MAX)?;
    Ok(Neighbours {
        waits_for: waits_for(rows, job, pending)?,
        waited_for_by: waited_for_by.iter().filter_map(|(key, _)| keys::id_at_end(key)).collect(),
    })
}

fn waits_for(rows: &dyn Rows, job: JobId, most: usize) -> Result<Vec<JobId>> {
    let (mut found, mut looked_at) = (Vec::new(), 0);
    if most == 0 {
        return Ok(found);
    }
    let all = keys::all_dependents();
    rows.visit(&all.start, &all.end, &mut |key, _| {
        looked_at += 1;
        if keys::id_at_end(key) == Some(job) {
            found.extend(keys::waited_for(key));
        }
        let is_enough = found.len() == most || looked_at == LOOKED_AT_MAX;
        Ok(if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(found)
}
