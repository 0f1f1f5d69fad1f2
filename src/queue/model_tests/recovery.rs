//! The jobs of a session that died, in the rows and in the model.

use super::{Job, Model, Rig, SESSIONS};
use crate::queue::{reclaim::Reclaim, state::State};

pub(super) fn reclaim(rig: &mut Rig, model: &mut Model, session: usize, (started, ended): (u16, u16), power_cut: bool) {
    let now = rig.now;
    let mut notes = Reclaim { session: SESSIONS[session], power_cut, ..super::super::rig_tests::reclaim() };
    let held = |job: &Job| job.state == Some(State::Running) && job.session == session;
    let mut held: Vec<&mut Job> = model.jobs.iter_mut().filter(|job| held(job)).collect();
    for (bit, job) in held.iter_mut().enumerate() {
        let is_set = |bits: u16| bits & (1 << (bit % 16)) != 0;
        let (has_started, has_ended) = (is_set(started), is_set(started) && is_set(ended));
        if has_started {
            notes.started.push((job.id, job.token, now));
        }
        if has_ended {
            notes.ended.push((job.id, job.token));
        }
        if has_ended && !power_cut {
            job.complete(false, now);
            model.completed[job.queue] += 1;
            continue;
        }
        if has_started && !power_cut {
            job.attempt += 1;
            job.has_begun = true;
        }
        job.suspect |= has_started || power_cut;
        if job.cancelling {
            job.end(State::Cancelled, now);
        } else if job.attempt == job.attempts_max {
            job.end(State::Dead, now);
        } else {
            job.state = Some(State::Ready);
        }
    }
    rig.reclaim(notes);
}
