//! The held jobs of a store: as many as run now.

use crate::{
    engine::Rows,
    error::Result,
    queue::{
        id::{JobId, SessionId, Token},
        record::JobRecord,
    },
    store::{keys, view::for_each},
};

/// What a held job's row says of its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HeldJob {
    pub(crate) job: JobId,
    pub(crate) session: SessionId,
    pub(crate) token: Token,
}

/// All held jobs: as many as run now. A row that this build can't read is somebody else's.
pub(crate) fn held(rows: &dyn Rows) -> Result<Vec<HeldJob>> {
    let mut jobs = Vec::new();
    for_each(rows, &keys::ById::Held.all(), |_, bytes| {
        if let Ok(JobRecord { id, lease: Some(lease), .. }) = crate::codec::decode(bytes) {
            jobs.push(HeldJob { job: id, session: lease.session, token: lease.token });
        }
        Ok(())
    })?;
    Ok(jobs)
}
