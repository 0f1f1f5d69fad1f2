//! The rules of schedules on rows: each slot once, whoever says so and when; what was missed; clocks that jump.

use std::time::Duration;

use super::{
    Fire, ScheduleAct, ScheduleRecord, Scheduled,
    define::{CatchUp, Definition, Schedule},
    handle::intent,
    plan::{due_schedules, plan},
    spec::Spec,
};
use crate::{
    check::check_rows,
    clock::Timestamp,
    engine::RowSet,
    error::{ErrorKind, Result},
    queue::{
        JobRequest,
        admin::Admin,
        config::QueueSetting,
        id::JobId,
        rig_tests::{QUEUE, Rig, claim},
        state::State,
    },
    store::{change::Outcome, keys, view::get_record},
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

fn hourly(catch_up: CatchUp) -> Schedule {
    Schedule::every("hourly", HOUR, JobRequest::new("a", &()).priority(3)).queue(QUEUE).catch_up(catch_up)
}

fn record(rig: &Rig, name: &str) -> ScheduleRecord {
    get_record(&rig.rows, &keys::schedule(name)).unwrap().expect("the schedule is there")
}

fn act(rig: &mut Rig, name: &str, act: ScheduleAct) -> Result<Scheduled> {
    match rig.intent(intent(name, act))? {
        Outcome::Scheduled(scheduled) => Ok(scheduled),
        other => panic!("no outcome of a schedule: {other:?}"),
    }
}

fn definition(rig: &Rig, schedule: Schedule) -> (String, ScheduleAct) {
    let Definition { name, spec, job, catch_up } = schedule.checked().unwrap();
    let before: Option<ScheduleRecord> = get_record(&rig.rows, &keys::schedule(&name)).unwrap();
    let seen_last = before.and_then(|before| before.last);
    let first = Some(spec.first(rig.now, seen_last).unwrap());
    (name, ScheduleAct::Define { spec, job: Box::new(job), catch_up, seen_last, first })
}

fn define(rig: &mut Rig, schedule: Schedule) -> Scheduled {
    let (name, definition) = definition(rig, schedule);
    act(rig, &name, definition).unwrap()
}

/// Does what maintenance does in one look; gives the slots of the jobs that it enqueued.
fn look(rig: &mut Rig) -> Vec<Timestamp> {
    let mut slots = Vec::new();
    for name in due_schedules(&rig.rows, rig.now).unwrap() {
        let Some(fire) = plan(&rig.rows, &name, rig.now).unwrap() else { continue };
        if let Scheduled::Fired(jobs) = act(rig, &name, ScheduleAct::Fire(fire)).unwrap() {
            slots.extend(jobs.into_iter().map(|job| rig.record(job).run_at.unwrap()));
        }
    }
    slots
}

fn metadata(rig: &Rig, job: JobId, key: &str) -> Option<String> {
    rig.record(job).metadata.into_iter().find(|(name, _)| name == key).map(|(_, value)| value)
}

#[test]
fn slot_gets_its_job_at_its_time_and_not_a_millisecond_before() {
    let mut rig = Rig::new();
    assert_eq!(define(&mut rig, hourly(CatchUp::One)), Scheduled::Changed);
    let slot = rig.now.after(HOUR);
    rig.advance(HOUR.checked_sub(Duration::from_millis(1)).unwrap());
    assert_eq!(look(&mut rig), []);
    rig.advance(Duration::from_millis(1));
    assert_eq!(look(&mut rig), [slot]);
    assert_eq!(look(&mut rig), []);
    let job = record(&rig, "hourly").last_job.unwrap();
    assert_eq!((rig.state(job), rig.record(job).priority), (Some(State::Ready), 3));
    assert_eq!(metadata(&rig, job, "schedule").unwrap(), "hourly");
    assert_eq!(metadata(&rig, job, "scheduled_for").unwrap(), slot.to_string());
    assert_eq!(record(&rig, "hourly").next, Some(slot.after(HOUR)));
}

#[test]
fn of_all_that_say_that_a_slot_has_come_one_enqueues_it() {
    let mut rig = Rig::new();
    define(&mut rig, hourly(CatchUp::All(100)));
    rig.advance(3 * HOUR);
    let plans: Vec<Fire> = (0..3).map(|_| plan(&rig.rows, "hourly", rig.now).unwrap().unwrap()).collect();
    let fired: Vec<_> =
        plans.into_iter().map(|fire| act(&mut rig, "hourly", ScheduleAct::Fire(fire)).unwrap()).collect();
    assert!(matches!(&fired[0], Scheduled::Fired(jobs) if jobs.len() == 3), "{fired:?}");
    assert_eq!(fired[1..], [Scheduled::Moved, Scheduled::Moved]);
    assert_eq!(rig.stats(QUEUE).ready, 3);
}

/// S27: a process whose clock is ahead of that of whoever commits.
#[test]
fn slot_that_has_not_come_by_the_clock_of_the_commit_is_left_for_later() {
    let mut rig = Rig::new();
    define(&mut rig, hourly(CatchUp::One));
    let version = rig.version;
    let ahead = plan(&rig.rows, "hourly", rig.now.after(2 * HOUR)).unwrap().unwrap();
    assert_eq!(act(&mut rig, "hourly", ScheduleAct::Fire(ahead)).unwrap(), Scheduled::Unchanged);
    assert_eq!((rig.version, rig.stats(QUEUE).ready), (version, 0));
}

#[test]
fn slots_that_do_not_follow_each_other_are_refused() {
    let mut rig = Rig::new();
    define(&mut rig, hourly(CatchUp::All(100)));
    rig.advance(3 * HOUR);
    let right = plan(&rig.rows, "hourly", rig.now).unwrap().unwrap();
    let mut backwards = right.clone();
    backwards.slots.reverse();
    let late = Fire { over: right.expected, ..right.clone() };
    let again = Fire { next: Some(right.over), ..right.clone() };
    for wrong in [backwards, late, again] {
        let error = act(&mut rig, "hourly", ScheduleAct::Fire(wrong)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    assert!(matches!(act(&mut rig, "hourly", ScheduleAct::Fire(right)).unwrap(), Scheduled::Fired(_)));
}

/// S26: everything was down across five slots.
#[test]
fn slots_that_were_missed_are_made_up_for_as_configured_and_no_more() {
    for (catch_up, expected) in [
        (CatchUp::Skip, &[][..]),
        (CatchUp::One, &[5]),
        (CatchUp::All(100), &[1, 2, 3, 4, 5]),
        (CatchUp::All(2), &[4, 5]),
    ] {
        let mut rig = Rig::new();
        define(&mut rig, hourly(catch_up));
        let begun = rig.now;
        rig.advance(5 * HOUR + 10 * MINUTE);
        let hours = |hours: &[u32]| hours.iter().map(|hour| begun.after(HOUR * *hour)).collect::<Vec<_>>();
        assert_eq!(look(&mut rig), hours(expected), "{catch_up:?}");
        assert_eq!(look(&mut rig), [], "{catch_up:?}");
        rig.advance(50 * MINUTE);
        assert_eq!(look(&mut rig), hours(&[6]), "{catch_up:?}: it goes on");
    }
}

#[test]
fn slot_is_missed_a_minute_after_its_time_and_not_before() {
    for (late, runs) in [(MINUTE, true), (MINUTE + Duration::from_millis(1), false)] {
        let mut rig = Rig::new();
        define(&mut rig, hourly(CatchUp::Skip));
        rig.advance(HOUR + late);
        assert_eq!(look(&mut rig).len(), usize::from(runs), "{late:?}");
        assert_eq!(record(&rig, "hourly").next, Some(Timestamp::from_millis(1_700_000_000_000).after(2 * HOUR)));
    }
}

/// S27: nothing early, nothing twice, nothing stuck.
#[test]
fn clock_that_steps_back_waits_and_then_goes_on_with_the_next_slot() {
    let mut rig = Rig::new();
    define(&mut rig, hourly(CatchUp::All(100)));
    let begun = rig.now;
    rig.advance(2 * HOUR + SECOND);
    assert_eq!(look(&mut rig).len(), 2);
    rig.now = begun.after(HOUR);
    for _ in 0..7_200 {
        assert_eq!(look(&mut rig), []);
        rig.is_checked = false;
        rig.advance(SECOND);
    }
    assert_eq!(look(&mut rig), [begun.after(3 * HOUR)]);
}

#[test]
fn large_jobs_are_made_up_for_in_changes_that_are_small_enough() {
    let mut rig = Rig::new();
    let large = JobRequest::new("a", &"x".repeat(900_000));
    define(&mut rig, Schedule::every("large", HOUR, large).queue(QUEUE).catch_up(CatchUp::All(10)));
    let begun = rig.now;
    rig.advance(10 * HOUR);
    let mut slots = Vec::new();
    loop {
        let fired = look(&mut rig);
        if fired.is_empty() {
            break;
        }
        assert!(fired.len() < 8);
        slots.extend(fired);
    }
    assert_eq!(slots, (1..=10).map(|hour| begun.after(HOUR * hour)).collect::<Vec<_>>());
}

#[test]
fn same_definition_again_changes_nothing_and_another_job_keeps_the_slots() {
    let mut rig = Rig::new();
    define(&mut rig, hourly(CatchUp::One));
    let (version, next) = (rig.version, record(&rig, "hourly").next);
    rig.advance(10 * MINUTE);
    assert_eq!(define(&mut rig, hourly(CatchUp::One)), Scheduled::Unchanged);
    assert_eq!(rig.version, version);
    assert_eq!(define(&mut rig, hourly(CatchUp::Skip)), Scheduled::Changed);
    let other = Schedule::every("hourly", HOUR, JobRequest::new("b", &())).queue(QUEUE);
    assert_eq!(define(&mut rig, other), Scheduled::Changed);
    assert_eq!(record(&rig, "hourly").next, next);
    let half_hourly = Schedule::every("hourly", HOUR / 2, JobRequest::new("b", &())).queue(QUEUE);
    assert_eq!(define(&mut rig, half_hourly), Scheduled::Changed);
    assert_eq!(record(&rig, "hourly").next, Some(rig.now.after(HOUR / 2)));
}

#[test]
fn definition_that_relies_on_slots_that_have_passed_is_made_anew() {
    let mut rig = Rig::new();
    define(&mut rig, hourly(CatchUp::One));
    let other = || Schedule::every("hourly", HOUR / 2, JobRequest::new("a", &())).queue(QUEUE);
    let (name, stale) = definition(&rig, other());
    rig.advance(HOUR);
    assert_eq!(look(&mut rig).len(), 1);
    assert_eq!(act(&mut rig, &name, stale).unwrap(), Scheduled::Moved);
    assert_eq!(define(&mut rig, other()), Scheduled::Changed);
}

#[test]
fn paused_schedule_lets_its_slots_pass_and_goes_on_with_the_next() {
    let mut rig = Rig::new();
    define(&mut rig, hourly(CatchUp::All(100)));
    let begun = rig.now;
    let early = plan(&rig.rows, "hourly", rig.now.after(HOUR)).unwrap().unwrap();
    assert_eq!(act(&mut rig, "hourly", ScheduleAct::Pause).unwrap(), Scheduled::Changed);
    assert_eq!(act(&mut rig, "hourly", ScheduleAct::Pause).unwrap(), Scheduled::Unchanged);
    rig.advance(3 * HOUR + MINUTE);
    assert_eq!(act(&mut rig, "hourly", ScheduleAct::Fire(early)).unwrap(), Scheduled::Moved);
    assert_eq!(look(&mut rig), []);
    define(&mut rig, hourly(CatchUp::One));
    assert!(record(&rig, "hourly").paused, "a definition does not resume it");
    let (seen, next) = (record(&rig, "hourly").next, Some(begun.after(4 * HOUR)));
    let stale = ScheduleAct::Resume { seen: next, next };
    assert_eq!(act(&mut rig, "hourly", stale).unwrap(), Scheduled::Moved);
    assert_eq!(act(&mut rig, "hourly", ScheduleAct::Resume { seen, next }).unwrap(), Scheduled::Changed);
    assert_eq!(act(&mut rig, "hourly", ScheduleAct::Resume { seen, next }).unwrap(), Scheduled::Unchanged);
    assert_eq!(look(&mut rig), []);
    rig.advance(HOUR);
    assert_eq!(look(&mut rig), [begun.after(4 * HOUR)]);
}

#[test]
fn removed_schedule_does_nothing_more_and_its_jobs_stay() {
    let mut rig = Rig::new();
    define(&mut rig, hourly(CatchUp::One));
    rig.advance(HOUR);
    look(&mut rig);
    rig.advance(HOUR);
    let stale = plan(&rig.rows, "hourly", rig.now).unwrap().unwrap();
    assert_eq!(act(&mut rig, "hourly", ScheduleAct::Remove).unwrap(), Scheduled::Changed);
    assert_eq!(act(&mut rig, "hourly", ScheduleAct::Fire(stale)).unwrap(), Scheduled::Moved);
    assert_eq!((look(&mut rig).len(), rig.stats(QUEUE).ready), (0, 1));
    let resume = ScheduleAct::Resume { seen: None, next: None };
    for gone in [ScheduleAct::Remove, ScheduleAct::Pause, resume, ScheduleAct::Run] {
        let error = rig.intent(intent("hourly", gone)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("no schedule \"hourly\""), "{error}");
    }
}

#[test]
fn run_beside_the_slots_moves_none_of_them() {
    let mut rig = Rig::new();
    define(&mut rig, hourly(CatchUp::One));
    let before = record(&rig, "hourly");
    let Outcome::Enqueued { job, .. } = rig.intent(intent("hourly", ScheduleAct::Run)).unwrap() else {
        panic!("not enqueued")
    };
    assert_eq!(record(&rig, "hourly"), before);
    assert_eq!((rig.state(job), rig.record(job).run_at), (Some(State::Ready), None));
    assert_eq!(metadata(&rig, job, "schedule").unwrap(), "hourly");
    assert_eq!(metadata(&rig, job, "scheduled_for"), None);
}

#[test]
fn slot_whose_unique_key_is_held_passes_with_the_job_that_holds_it() {
    let mut rig = Rig::new();
    let job = JobRequest::new("a", &()).unique("one at a time").delay(MINUTE);
    define(&mut rig, Schedule::every("hourly", HOUR, job).queue(QUEUE));
    rig.advance(HOUR);
    let first = look(&mut rig);
    assert_eq!(first, [rig.now.after(MINUTE)], "a delay counts from the slot");
    let job = record(&rig, "hourly").last_job;
    rig.advance(HOUR);
    assert_eq!(look(&mut rig), first);
    assert_eq!((record(&rig, "hourly").last_job, rig.stats(QUEUE).scheduled), (job, 1));
}

#[test]
fn check_finds_schedules_that_never_run_and_slots_of_none() {
    let found = |key: fn(&Rig) -> Vec<u8>, value: Option<Vec<u8>>| {
        let mut rig = Rig::new();
        define(&mut rig, hourly(CatchUp::One));
        rig.rows.write(RowSet::from([(key(&rig), value)]));
        check_rows(&rig.rows).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let never = found(|rig| keys::slot(record(rig, "hourly").next.unwrap(), "hourly"), None);
    assert_eq!(never, ["schedule \"hourly\" has no entry in its index by time, so it never runs"]);
    let removed = found(|_| keys::schedule("hourly"), None);
    let other = found(|rig| keys::slot(rig.now, "hourly"), Some(Vec::new()));
    for stray in [removed, other] {
        assert!(stray.len() == 1 && stray[0].contains("index of slots names no such schedule"), "{stray:?}");
    }
}

#[test]
fn what_can_not_be_a_schedule_is_refused_with_its_name() {
    let job = || JobRequest::new("a", &());
    let wrong = [
        (Schedule::every("s", Duration::ZERO, job()), "an interval of 0ns is out of range"),
        (Schedule::every("s", 2 * super::spec::EVERY_MAX, job()), "out of range"),
        (Schedule::every("", HOUR, job()), "name is empty"),
        (Schedule::every("s", HOUR, job().run_at(Timestamp::from_millis(1))), "has a time of its own"),
        (Schedule::every("s", HOUR, job()).queue(""), "the queue name is empty"),
        (Schedule::every("s", HOUR, job()).catch_up(CatchUp::All(0)), "from 1 to 1000"),
        (Schedule::every("s", HOUR, job()).catch_up(CatchUp::All(1_001)), "from 1 to 1000"),
        (Schedule::every("s", HOUR, job().priority(101)), "101"),
    ];
    for (schedule, says) in wrong {
        let error = schedule.checked().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.full_message().contains(says), "{error} does not say {says}");
    }
}

#[test]
fn job_with_as_much_metadata_as_there_may_be_leaves_room_for_its_slot() {
    let mut job = JobRequest::new("a", &());
    for number in 0..crate::queue::enqueue::METADATA_PAIRS_MAX {
        job = job.metadata(number.to_string(), "x");
    }
    let error = Schedule::every("s", HOUR, job).checked().unwrap_err();
    assert!(error.to_string().contains("34 pairs"), "{error}");
}

/// A queue that takes fewer jobs than a schedule makes up for gets as many as fit; the others come when there is room.
#[test]
fn slots_that_do_not_fit_into_a_limited_queue_come_when_there_is_room() {
    let mut rig = Rig::new();
    let settings = vec![QueueSetting::SizeMax(Some(2))];
    rig.administer(Admin::ConfigureQueue { queue: QUEUE.into(), settings }).unwrap();
    define(&mut rig, hourly(CatchUp::All(100)));
    let first = rig.now.after(HOUR);
    rig.advance(5 * HOUR);
    assert_eq!(look(&mut rig), [first, first.after(HOUR)]);
    let fire = plan(&rig.rows, "hourly", rig.now).unwrap().unwrap();
    assert_eq!(act(&mut rig, "hourly", ScheduleAct::Fire(fire)).unwrap_err().kind(), ErrorKind::Full);
    rig.claim(claim(1));
    assert_eq!(look(&mut rig), [first.after(2 * HOUR)]);
    rig.claim(claim(2));
    assert_eq!(look(&mut rig), [first.after(3 * HOUR), first.after(4 * HOUR)]);
    assert_eq!(record(&rig, "hourly").next, Some(first.after(5 * HOUR)));
}

/// As another program may send it: who looks what is due divides by the interval, and lists the slots.
#[test]
fn intervals_and_catch_ups_out_of_range_are_refused_by_whoever_commits() {
    let mut rig = Rig::new();
    let every = |every| (Spec::Every(every), CatchUp::One);
    let most = |most| (Spec::Every(HOUR), CatchUp::All(most));
    for (spec, catch_up) in [every(Duration::from_nanos(1)), every(Duration::MAX), most(0), most(u32::MAX)] {
        let job = Box::new(JobRequest::new("a", &()).for_queue(QUEUE).unwrap());
        let first = Some(rig.now);
        let define = ScheduleAct::Define { spec: spec.clone(), job, catch_up, seen_last: None, first };
        let error = act(&mut rig, "wrong", define).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{spec:?} {catch_up:?}");
    }
}
