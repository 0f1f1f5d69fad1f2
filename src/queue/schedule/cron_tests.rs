//! Cron expressions: what they mean at daylight saving changes, and a year of slots that three processes enqueue, while
//! they die and their clocks step back.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Fire, ScheduleAct, Scheduled,
    define::{CatchUp, Definition, Schedule},
    handle::intent,
    plan::{due_schedules, plan},
    spec::Spec,
};
use crate::{
    check::check_rows,
    clock::Timestamp,
    error::ErrorKind,
    queue::{
        JobRequest,
        rig_tests::{QUEUE, Rig},
    },
    store::change::Outcome,
};

const BERLIN: &str = "Europe/Berlin";
const NEW_YORK: &str = "America/New_York";

fn at(text: &str) -> Timestamp {
    let time: jiff::Timestamp = text.parse().unwrap();
    Timestamp::from_millis(u64::try_from(time.as_millisecond()).unwrap())
}

fn cron(expression: &str, zone: &str) -> Spec {
    Spec::Cron { expression: expression.into(), zone: zone.into() }.checked().unwrap()
}

/// The slots from one time to another, both included.
fn slots(expression: &str, zone: &str, from: &str, to: &str) -> Vec<Timestamp> {
    let spec = cron(expression, zone);
    let first = spec.first(Timestamp::from_millis(at(from).as_millis() - 1), None).unwrap();
    spec.due(first, at(to), usize::MAX).unwrap().slots
}

#[track_caller]
fn assert_slots(expression: &str, zone: &str, day: &str, expected: &[&str]) {
    let (from, to) = (format!("{day}T00:00:00Z"), format!("{day}T23:59:59Z"));
    let expected: Vec<Timestamp> = expected.iter().map(|time| at(&format!("{day}T{time}:00Z"))).collect();
    assert_eq!(slots(expression, zone, &from, &to), expected, "{expression} {zone}");
}

/// On 2026-03-29 the clocks of Berlin go from 02:00 to 03:00 (01:00 UTC), and those of New York on 2026-03-08 (07:00
/// UTC).
#[test]
fn fixed_time_that_is_skipped_comes_at_the_first_moment_after_the_gap() {
    assert_slots("30 2 * * *", BERLIN, "2026-03-28", &["01:30"]);
    assert_slots("30 2 * * *", BERLIN, "2026-03-29", &["01:00"]);
    assert_slots("30 2 * * *", BERLIN, "2026-03-30", &["00:30"]);
    assert_slots("0 2 * * *", BERLIN, "2026-03-29", &["01:00"]);
    assert_slots("30 2 * * *", NEW_YORK, "2026-03-08", &["07:00"]);
    assert_slots("30 1 * * *", BERLIN, "2026-03-29", &["00:30", "23:30"]);
    assert_slots("0 3 * * *", BERLIN, "2026-03-29", &["01:00"]);
}

/// On 2026-10-25 the clocks of Berlin go from 03:00 to 02:00 (01:00 UTC), and those of New York on 2026-11-01 (06:00
/// UTC).
#[test]
fn fixed_time_that_comes_twice_is_a_slot_at_the_first() {
    assert_slots("30 2 * * *", BERLIN, "2026-10-25", &["00:30"]);
    assert_slots("0 3 * * *", BERLIN, "2026-10-25", &["02:00"]);
    assert_slots("30 1 * * *", NEW_YORK, "2026-11-01", &["05:30"]);
}

#[test]
fn wildcards_steps_and_ranges_have_a_slot_at_each_real_moment() {
    let hours = |from: u32, to: u32| (from..=to).map(|hour| format!("{hour:02}:00")).collect::<Vec<_>>();
    let all = hours(0, 23);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    for day in ["2026-03-29", "2026-10-25", "2026-11-01", "2026-03-08"] {
        assert_slots("0 * * * *", BERLIN, day, &all);
        assert_slots("0 * * * *", NEW_YORK, day, &all);
    }
    assert_slots("*/30 2 * * *", BERLIN, "2026-03-29", &[]);
    assert_slots("*/30 2 * * *", BERLIN, "2026-10-25", &["00:00", "00:30", "01:00", "01:30"]);
}

#[test]
fn seconds_names_and_nicknames_are_known() {
    assert_eq!(slots("*/20 0 0 * * *", "UTC", "2026-01-01T00:00:00Z", "2026-01-01T12:00:00Z").len(), 3);
    assert_eq!(cron(" 0  4 * *\tMON ", "utc"), cron("0 4 * * MON", "UTC"), "white space and the zone's spelling");
    assert_slots("@daily", BERLIN, "2026-06-01", &["22:00"]);
    assert_slots("0 12 L * *", "UTC", "2026-02-28", &["12:00"]);
    assert_slots("0 12 * * 7", "UTC", "2026-11-29", &["12:00"]);
    assert_slots("0 12 * * 0", "UTC", "2026-11-29", &["12:00"]);
}

#[test]
fn what_is_no_time_is_refused_and_says_how_one_looks() {
    let wrong = |expression: &str, zone: &str, says: &[&str]| {
        let spec = Spec::Cron { expression: expression.into(), zone: zone.into() };
        let error = spec.checked().and_then(|spec| spec.first(at("2026-01-01T00:00:00Z"), None)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let message = error.full_message();
        assert!(says.iter().all(|part| message.contains(part)), "\"{message}\" lacks one of {says:?}");
    };
    for expression in
        ["", "* * * *", "61 * * * *", "* 25 * * *", "every day", "@nightly", "* * * * * * * *", "5-1 * * * *"]
    {
        wrong(expression, "UTC", &["is not a cron expression", "30 4 * * 1-5"]);
    }
    wrong("0 0 * * *", "Europe/Berln", &["no time zone \"Europe/Berln\"", "Europe/Berlin"]);
    wrong("0 0 30 2 *", "UTC", &["\"0 0 30 2 *\" never comes"]);
    wrong("0 0 0 1 1 * 2020", "UTC", &["never comes"]);
}

#[test]
fn expression_that_has_come_for_the_last_time_has_no_next_slot() {
    let mut rig = Rig::new();
    rig.now = at("2026-12-30T00:00:00Z");
    define(&mut rig, "once", "0 0 0 31 12 * 2026", "UTC");
    rig.now = at("2026-12-31T00:00:01Z");
    assert_eq!(look(&rig, &mut BTreeMap::new()).len(), 1);
    for (name, fire) in look(&rig, &mut BTreeMap::new()) {
        assert_eq!((fire.slots.len(), fire.next), (1, None));
        rig.intent(intent(&name, ScheduleAct::Fire(fire))).unwrap();
    }
    rig.now = at("2031-12-31T00:00:01Z");
    assert!(look(&rig, &mut BTreeMap::new()).is_empty());
}

#[test]
fn latest_slots_are_found_at_once_after_years_in_which_nobody_was_there() {
    for (expression, every) in [("* * * * * *", 1), ("*/5 * * * *", 300), ("0 0 * * *", 86_400), ("0 0 1 1 *", 0)] {
        let spec = cron(expression, "UTC");
        let first = spec.first(at("2020-01-01T00:00:00Z"), None).unwrap();
        let now = at("2026-06-15T12:00:00Z");
        let due = spec.due(first, now, 3).unwrap();
        assert_eq!(due.slots.len(), 3, "{expression}");
        assert!(due.next.unwrap() > now);
        if every > 0 {
            let next = due.next.unwrap().as_millis();
            let expected: Vec<u64> = (1..=3).rev().map(|back| next - back * every * 1_000).collect();
            assert_eq!(due.slots.iter().map(|slot| slot.as_millis()).collect::<Vec<_>>(), expected, "{expression}");
        }
    }
}

fn define(rig: &mut Rig, name: &str, expression: &str, zone: &str) {
    let job = JobRequest::new("a", &());
    let schedule = Schedule::cron(name, expression, job).zone(zone).queue(QUEUE).catch_up(CatchUp::All(100));
    let Definition { name, spec, job, catch_up } = schedule.checked().unwrap();
    let first = Some(spec.first(rig.now, None).unwrap());
    let act = ScheduleAct::Define { spec, job: Box::new(job), catch_up, seen_last: None, first };
    rig.intent(intent(&name, act)).unwrap();
}

/// Chance that a seed repeats: xorshift (Marsaglia, 2003, "Xorshift RNGs").
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// What one process is about to do.
type Plans = BTreeMap<String, Fire>;

fn look(rig: &Rig, plans: &mut Plans) -> Plans {
    for name in due_schedules(&rig.rows, rig.now).unwrap() {
        plans.extend(plan(&rig.rows, &name, rig.now).unwrap().map(|fire| (name, fire)));
    }
    plans.clone()
}

/// The year 2026 with both daylight saving changes of two zones. Three processes look whenever they like, and do what
/// they saw sooner or later, or die before that, or right after. Each slot is enqueued once.
#[test]
fn each_slot_of_a_year_is_enqueued_once_by_three_processes_that_die_and_whose_clocks_step_back() {
    let seed: u64 =
        std::env::var("CASQUE_SEED").map_or_else(|_| crate::random::words()[0], |seed| seed.parse().unwrap());
    println!("CASQUE_SEED={seed}");
    let mut dice = Dice(seed | 1);
    let expressions = [
        ("berlin night", "30 2 * * *", BERLIN),
        ("new york night", "30 2 * * *", NEW_YORK),
        ("new york late", "30 1 * * *", NEW_YORK),
        ("berlin hours", "0 * * * *", BERLIN),
        ("new york weekdays", "*/30 1-3 * * 0,1", NEW_YORK),
        ("months", "0 9 1 * *", BERLIN),
    ];
    let (begin, end) = ("2026-01-01T12:00:00Z", "2027-01-01T12:00:00Z");
    let mut rig = Rig::new();
    rig.is_checked = false;
    rig.now = at(begin);
    for (name, expression, zone) in expressions {
        define(&mut rig, name, expression, zone);
    }

    let mut processes: [Plans; 3] = Default::default();
    let mut enqueued: BTreeMap<String, Vec<Timestamp>> = BTreeMap::new();
    let (mut lost, mut late) = (0, 0);
    let mut newest = rig.now;
    while newest < at(end) {
        if dice.below(200) == 0 {
            rig.now = Timestamp::from_millis(rig.now.as_millis() - dice.below(2 * 3_600_000));
        } else {
            rig.advance(Duration::from_millis(dice.below(40 * 60_000)));
        }
        newest = newest.max(rig.now);
        let is_last = newest >= at(end);
        if is_last {
            rig.now = at(end);
        }
        for process in &mut processes {
            // Some do not look, and act on what they saw before.
            if is_last || dice.below(2) == 0 {
                *process = look(&rig, &mut Plans::new());
            }
            if !is_last && dice.below(2) == 0 {
                continue;
            }
            if !is_last && dice.below(10) == 0 {
                lost += process.len();
                process.clear();
                continue;
            }
            for (name, fire) in process.clone() {
                match rig.intent(intent(&name, ScheduleAct::Fire(fire))).unwrap() {
                    Outcome::Scheduled(Scheduled::Fired(jobs)) => {
                        let slots = jobs.iter().map(|job| rig.record(*job).run_at.unwrap());
                        enqueued.entry(name).or_default().extend(slots);
                    }
                    _ => late += 1,
                }
            }
            if dice.below(10) > 0 {
                process.clear();
            }
        }
    }

    assert!(lost > 100 && late > 100, "it was to be put to the test: {lost} plans lost, {late} too late");
    for (name, expression, zone) in expressions {
        // What falls on the moment of the definition is no slot.
        let expected = slots(expression, zone, "2026-01-01T12:00:01Z", end);
        let differing = enqueued[name].iter().zip(&expected).find(|(slot, expected)| slot != expected);
        assert_eq!(differing, None, "{name}: each slot once, in order");
        assert_eq!(enqueued[name].len(), expected.len(), "{name}");
        let count = match name {
            "berlin hours" => 365 * 24,
            "new york weekdays" => continue,
            "months" => 12,
            _ => 365,
        };
        assert_eq!(expected.len(), count, "{name}");
    }
    assert_eq!(check_rows(&rig.rows).unwrap(), []);
}
