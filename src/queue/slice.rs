//! A slice of a walk over rows of jobs: as much as one change does.

use std::ops::ControlFlow;

use crate::{
    codec,
    engine::Rows,
    error::Result,
    queue::record::JobRecord,
    store::{change::CHANGE_BYTES_MAX, keys::Range},
};

/// The jobs among the first rows of a range that are wanted, and the key of the last row, where there may be more
/// behind it. At most `limit` rows are walked, and fewer where those wanted are large. A row that this build can't read
/// is left to one that can.
pub(crate) fn slice(
    rows: &dyn Rows,
    range: &Range,
    limit: usize,
    is_wanted: impl Fn(&JobRecord) -> bool,
) -> Result<(Vec<JobRecord>, Option<Vec<u8>>)> {
    let (mut jobs, mut walked, mut taken_bytes, mut last) = (Vec::new(), 0, 0, None);
    let is_cut = |walked: usize, taken_bytes: usize| walked == limit || taken_bytes >= CHANGE_BYTES_MAX;
    rows.visit(&range.start, &range.end, &mut |key, bytes| {
        walked += 1;
        if let Ok(job) = codec::decode::<JobRecord>(bytes)
            && is_wanted(&job)
        {
            taken_bytes += bytes.len();
            jobs.push(job);
        }
        if !is_cut(walked, taken_bytes) {
            return Ok(ControlFlow::Continue(()));
        }
        last = Some(key.to_vec());
        Ok(ControlFlow::Break(()))
    })?;
    Ok((jobs, last))
}
