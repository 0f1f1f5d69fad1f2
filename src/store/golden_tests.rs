//! The bytes of each record and of each kind of key, as stores out there hold them. A test that fails here says that
//! the format was changed: then a schema number is to be added (see `crate::codec`), and a line here, not replaced.

use std::time::Duration;

use crate::{
    clock::Timestamp,
    codec::{self, Payload, Record},
    error::ErrorKind,
    queue::{
        CatchUp, JobRequest,
        config::{ConfigRecord, RateRecord},
        extra::{Extra, OnFailure, StateSet, UniqueRecord, UniqueScope, WaitsRecord},
        id::{JobId, SessionId, Token},
        keyed::KeyStateRecord,
        lane::Lane,
        log::LineRecord,
        rate::bucket_of,
        record::{CountRecord, ErrorRecord, Finish, HeadRecord, JobRecord, LeaseRecord, ProgressRecord, TaskRecord},
        reference::JobRef,
        schedule::{ScheduleRecord, spec::Spec},
        unique::Holder,
    },
    store::{
        change::{ChangeId, ClientId},
        conflict::{Version, Writer},
        keys::{self, ById},
        lock::{
            Fence,
            rules::{Claimant, LockRecord},
        },
        object::{FormatRecord, LogRecord, ObjectRecord, StoreRecord, Value},
        settings::SettingRecord,
    },
};

/// What reading `2^63` takes where a length is expected: the marker of an eight-byte number, and the number.
const HUGE: [u8; 9] = [253, 0, 0, 0, 0, 0, 0, 0, 0x80];
/// The same for 32 GiB, which an allocator may well promise.
const LARGE: [u8; 9] = [253, 0, 0, 0, 0, 8, 0, 0, 0];

fn hex(bytes: &[u8]) -> String {
    codec::hex(bytes)
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16));
    pairs.collect::<Result<_, _>>().unwrap()
}

/// Bytes that must be refused as damage, with a message that holds `why`.
fn assert_corrupt<R: Record + std::fmt::Debug>(bytes: &[u8], why: &str) {
    let error = codec::decode::<R>(bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{}", hex(bytes));
    let message = error.full_message();
    assert!(message.contains(R::NAME) && message.contains(why), "{message}");
}

/// A record is written as these bytes and read from them, and from no others that are like them (S30).
fn golden<R: Record + PartialEq + std::fmt::Debug>(record: &R, text: &str) {
    let bytes = unhex(text);
    assert_eq!(hex(&codec::encode(record).unwrap()), hex(&bytes), "{}", R::NAME);
    assert_eq!(codec::decode::<R>(&bytes).unwrap(), *record);

    assert_corrupt::<R>(&[], "empty");
    assert_corrupt::<R>(&[&[9], &bytes[1..]].concat(), "format 9");
    assert_corrupt::<R>(&[&bytes[..1], &[99], &bytes[2..]].concat(), "schema 99");
    assert_corrupt::<R>(&[&bytes[..], &[0]].concat(), "left over");
    for end in 1..bytes.len() {
        assert_corrupt::<R>(&bytes[..end], "");
    }
    for at in 2..bytes.len() {
        for number in [&HUGE, &LARGE] {
            let wrong = [&bytes[..at], number, &bytes[at + 1..]].concat();
            match codec::decode::<R>(&wrong) {
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt),
                // A number that may be that large was hit.
                Ok(record) => assert_eq!(codec::encode(&record).unwrap(), wrong),
            }
        }
    }
}

fn job() -> JobRecord {
    let args = JobRequest::new("resize", &("cat.png", 640u32)).for_queue("media").unwrap().args;
    JobRecord {
        id: JobId { version: 1042, index: 3 },
        change: ChangeId { client: ClientId { born: Version(7), random: 0x0123_4567_89ab_cdef }, number: 12 },
        queue: "media".into(),
        task: 5,
        priority: -100,
        place: JobId { version: 2000, index: 0 },
        args,
        args_version: 2,
        metadata: vec![("tenant".into(), "acme".into())],
        attempt: 1,
        attempts_max: 20,
        suspect: true,
        cancelling: false,
        keep: true,
        enqueued_at: Timestamp::from_millis(1_700_000_000_000),
        run_at: Some(Timestamp::from_millis(1_700_000_000_001)),
        started_at: Some(Timestamp::from_millis(1_700_000_000_002)),
        finished_at: None,
        expires_at: None,
        lease: Some(LeaseRecord { session: SessionId([0xab; 16]), token: Token(2001), label: "worker.7".into() }),
        progress: Some(ProgressRecord { fraction: 0.5, message: "half".into() }),
        result: None,
        errors: vec![ErrorRecord {
            attempt: 1,
            at: Timestamp::from_millis(1_700_000_000_003),
            session: "worker.6".into(),
            message: "no".into(),
        }],
        finish: None,
        extra: Some(Box::new(Extra {
            unique: Some(UniqueRecord {
                key: "cat".into(),
                scope: UniqueScope::Store,
                states: StateSet::UNENDED,
                until: Some(Timestamp::from_millis(1_700_000_000_005)),
            }),
            key: Some("acme".into()),
            timeout: Some(Duration::from_secs(30)),
            at_most_once: true,
            waits: Some(WaitsRecord {
                pending: 1,
                completed: 2,
                dead: 3,
                cancelled: 4,
                is_open: true,
                on_failure: OnFailure::Run,
                delay: Some(Duration::from_secs(5)),
            }),
            has_dependents: true,
            log_lines: 6,
            refs: vec![JobRef {
                change: ChangeId { client: ClientId { born: Version(7), random: 8 }, number: 9 },
                index: 4,
            }],
        })),
    }
}

#[test]
fn held_job_has_its_golden_bytes() {
    golden(
        &job(),
        "0101fb12040307fdefcdab89674523010c056d65646961059cfbd00700000b076361742e706e67fb800202010674656e \
         616e740461636d650114010001fd0068e5cf8b01000001fd0168e5cf8b01000001fd0268e5cf8b01000000 \
         0001ababababababababababababababababfbd10708776f726b65722e37010000003f0468616c66000101fd0368e5cf \
         8b01000008776f726b65722e36026e6f00010103636174010f01fd0568e5cf8b010000010461636d65011e0001010102 \
         0304010101050001060107080904",
    );
}

#[test]
fn finished_job_has_its_golden_bytes() {
    let finished = JobRecord {
        lease: None,
        progress: None,
        errors: Vec::new(),
        finished_at: Some(Timestamp::from_millis(1_700_000_000_004)),
        expires_at: Some(Timestamp::from_millis(1_700_086_400_004)),
        result: Some(Payload::json(&[1, 2]).unwrap()),
        finish: Some(Finish::Completed),
        extra: None,
        ..job()
    };
    golden(
        &finished,
        "0101fb12040307fdefcdab89674523010c056d65646961059cfbd00700000b076361742e706e67fb800202010674656e \
         616e740461636d650114010001fd0068e5cf8b01000001fd0168e5cf8b01000001fd0268e5cf8b01000001 \
         fd0468e5cf8b01000001fd04c40bd58b01000000000101055b312c325d00010000",
    );
    let cancelled = JobRecord { result: None, finish: Some(Finish::Cancelled), ..finished };
    let bytes = codec::encode(&cancelled).unwrap();
    assert_eq!(bytes[bytes.len() - 3..], [1, 1, 0], "the last bytes are the finish, and that there is no more");
}

#[test]
fn records_of_a_queue_have_their_golden_bytes() {
    let by = Writer { label: "worker.7".into(), job: Some(JobId { version: 9, index: 1 }) };
    golden(&HeadRecord { version: Version(300), paused: true, by }, "0101fb2c010108776f726b65722e37010901");
    let count = CountRecord {
        waiting: 1,
        scheduled: 2,
        ready: 3,
        running: 4,
        dead: 5,
        cancelled: 6,
        kept: 7,
        completed: 70_000,
        hijacks: 8,
    };
    golden(&count, "010101020304050607fc7011010008");
    golden(
        &ConfigRecord {
            running_max: Some(4),
            key_running_max: Some(2),
            is_strict_by_key: true,
            rate: Some(RateRecord { jobs: 10, period: Duration::from_secs(1), burst: 20 }),
            size_max: Some(1_000),
            retention_completed: Some(Duration::from_mins(1)),
            retention_dead: None,
            retention_cancelled: Some(Duration::from_millis(5)),
            keeps_completed: true,
        },
        "01010104010201010a01001401fbe803013c00000100fc404b4c0001",
    );
    let line = LineRecord { at: Timestamp::from_millis(1_700_000_000_000), attempt: 1, text: "ok".into() };
    golden(&line, "0101fd0068e5cf8b01000001026f6b");
    golden(&bucket_of(70_000, Timestamp::from_millis(1_700_000_000_000)), "0101fc70110100fd0068e5cf8b010000");
    let holding = vec![JobId { version: 9, index: 1 }, JobId { version: 300, index: 0 }];
    golden(&KeyStateRecord { running: 2, holding }, "010102020901fb2c0100");
    let new = JobRequest::new("report", &7u32).unique("key").for_queue("media").unwrap();
    let schedule = ScheduleRecord {
        spec: Spec::Cron { expression: "30 4 * * *".into(), zone: "Europe/Berlin".into() },
        job: new,
        catch_up: CatchUp::All(100),
        paused: true,
        last: Some(Timestamp::from_millis(1_700_000_000_000)),
        last_job: Some(JobId { version: 1042, index: 3 }),
        next: Some(Timestamp::from_millis(1_700_000_000_001)),
    };
    golden(
        &schedule,
        "0101010a33302034202a202a202a0d4575726f70652f4265726c696e056d65646961067265706f7274000107010000140000 \
         0101036b6579000f00000000000000000002640101fd0068e5cf8b01000001fb12040301fd0168e5cf8b010000",
    );
    golden(
        &WaitsRecord {
            pending: 300,
            completed: 2,
            dead: 3,
            cancelled: 4,
            is_open: true,
            on_failure: OnFailure::Cancel,
            delay: Some(Duration::from_secs(5)),
        },
        "0101fb2c010203040100010500",
    );
    golden(&TaskRecord { number: 5, name: "resize".into(), paused: true }, "01010506726573697a6501");
}

#[test]
fn records_of_the_store_have_their_golden_bytes() {
    let stamp = Timestamp::from_millis(1_700_000_000_000);
    golden(&StoreRecord { version: Version(1042), stamp }, "0101fb1204fd0068e5cf8b010000");
    golden(&FormatRecord { format: 1, store: [0xcd; 16] }, "010101cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd");
    golden(&LogRecord::None, "010100");
    golden(&LogRecord::InUse { log: [0xef; 16] }, "010101efefefefefefefefefefefefefefefef");
    golden(&SettingRecord { value: 30_000 }, "0101fb3075");
    let writer = Writer { label: "importer".into(), job: None };
    let value = Value::Plain(JobRequest::new("t", &7u8).for_queue("q").unwrap().args);
    golden(
        &ObjectRecord { version: Version(1042), writer: writer.clone(), value },
        "0101fb120408696d706f727465720000000107",
    );
    golden(
        &ObjectRecord { version: Version(1042), writer, value: Value::Counter(-3) },
        "0101fb120408696d706f72746572000105",
    );
}

#[test]
fn holders_of_unique_keys_have_their_golden_bytes() {
    let job = JobId { version: 1042, index: 3 };
    let until = Some(Timestamp::from_millis(1_700_000_000_000));
    for (holder, text) in [
        (Holder { job, until: None }, "000000000000041200000003"),
        (Holder { job, until }, "0000000000000412000000030000018bcfe56800"),
    ] {
        let bytes = unhex(text);
        assert_eq!(hex(&holder.to_bytes()), text);
        assert_eq!(Holder::from_bytes(&bytes), Some(holder));
        assert_eq!(Holder::from_bytes(&bytes[1..]), None);
        assert_eq!(Holder::from_bytes(&[&bytes[..], &[0]].concat()), None);
    }
}

#[test]
fn named_lock_has_its_golden_bytes() {
    let claimant = |byte, nonce| Claimant { session: SessionId([byte; 16]), nonce };
    let lock = LockRecord {
        holder: claimant(0xab, 7),
        label: "worker.7".into(),
        fence: Fence(1042),
        since: Timestamp::from_millis(1_700_000_000_000),
        waiters: vec![(claimant(0xcd, 300), "worker.8".into())],
    };
    golden(
        &lock,
        "0101abababababababababababababababab0708776f726b65722e37fb1204fd0068e5cf8b01000001cdcdcdcd \
         cdcdcdcdcdcdcdcdcdcdcdcdfb2c0108776f726b65722e38",
    );
}

#[test]
fn keys_have_their_golden_bytes() {
    let lane = Lane::new(-100, 5, true);
    let id = JobId { version: 1042, index: 3 };
    let at = Timestamp::from_millis(1_700_000_000_000);
    let change = ChangeId { client: ClientId { born: Version(7), random: 8 }, number: 9 };
    let keys: [(Vec<u8>, &str); 38] = [
        (keys::FORMAT.to_vec(), "01"),
        (keys::STORE.to_vec(), "02"),
        (keys::LOG.to_vec(), "03"),
        (keys::setting("lease"), "046c65617365"),
        (keys::task_number("resize"), "05726573697a65"),
        (keys::task_name(5), "0600000005"),
        (keys::root("a/b"), "10612f62"),
        (keys::head("media"), "206d65646961"),
        (keys::count("media"), "216d65646961"),
        (keys::queue_config("media"), "236d65646961"),
        (keys::lane("media", lane), "226d6564696100c80000000501"),
        (keys::lane("media", Lane::new(100, 5, false)), "226d6564696100000000000500"),
        (keys::ready("media", lane, id), "306d6564696100c80000000501000000000000041200000003"),
        (ById::Held.key(id), "31000000000000041200000003"),
        (ById::Due.key(id), "32000000000000041200000003"),
        (keys::due_time(at, id), "330000018bcfe56800000000000000041200000003"),
        (ById::Waiting.key(id), "34000000000000041200000003"),
        (ById::Finished.key(id), "35000000000000041200000003"),
        (ById::Dead.key(id), "36000000000000041200000003"),
        (keys::place(id), "37000000000000041200000003"),
        (keys::expiry(at, id), "380000018bcfe56800000000000000041200000003"),
        (keys::unique("media", "cat"), "396d6564696100636174"),
        (keys::lock("report"), "527265706f7274"),
        (keys::lock_session(SessionId([0xab; 16]), "report"), "53abababababababababababababababab7265706f7274"),
        (keys::schedule("nightly"), "506e696768746c79"),
        (keys::slot(at, "nightly"), "510000018bcfe568006e696768746c79"),
        (keys::job_log(id, 5), "3e00000000000004120000000300000005"),
        (keys::bucket("media"), "246d65646961"),
        (keys::lane("media", lane.with_key()), "226d6564696100c80000000503"),
        (
            keys::keyed("media", "acme", lane.with_key(), id),
            "3a6d656469610061636d6500c80000000503000000000000041200000003",
        ),
        (keys::key_index("media", lane.with_key(), id), "3b6d6564696100c80000000503000000000000041200000003"),
        (keys::key_state("media", "acme"), "3c6d656469610061636d65"),
        (keys::dependent(id, JobId { version: 1043, index: 0 }), "3d000000000000041200000003000000000000041300000000"),
        (keys::job_ref(change, 4), "3f00000000000000070000000000000008000000000000000900000004"),
        (keys::wait(id), "42000000000000041200000003"),
        (keys::untold(id), "330000000000000000000000000000041200000003"),
        (keys::ready_lane("media", lane).start, "306d6564696100c80000000501"),
        (keys::ready_lane("media", lane).end, "306d6564696100c80000000502"),
    ];
    for (key, text) in keys {
        assert_eq!(hex(&key), text);
    }
    assert_eq!(keys::ready_queue(&keys::ready("media", lane, id)), Some("media"));
    let keyed = keys::keyed("media", "acme", lane.with_key(), id);
    assert_eq!((keys::ready_queue(&keyed), keys::key_of_keyed(&keyed)), (Some("media"), Some("acme")));
    assert_eq!(keys::keyed_lane_of(&keyed), Some(lane.with_key()));
    assert_eq!(keys::key_of_state(&keys::key_state("media", "acme")), Some(("media", "acme")));
    assert_eq!((keys::time_of(&keys::due_time(at, id)), keys::id_at_end(&ById::Dead.key(id))), (Some(at), Some(id)));
}

#[test]
fn keys_keep_the_order_of_what_they_name() {
    let id = |version, index| JobId { version, index };
    let places = [id(1, 0), id(1, 1), id(1, 256), id(2, 0), id(255, 9), id(256, 0), id(u64::MAX, 0)];
    assert!(places.map(|place| keys::ready("q", Lane::new(0, 1, false), place)).is_sorted());
    let lanes = [Lane::new(100, 9, true), Lane::new(1, 0, false), Lane::new(0, 7, false), Lane::new(-100, 0, false)];
    assert!(lanes.map(|lane| keys::lane("q", lane)).is_sorted(), "higher priorities come first");
    let times = [0, 1, 255, 256, 1_700_000_000_000, u64::MAX];
    assert!(times.map(|at| keys::due_time(Timestamp::from_millis(at), id(9, 9))).is_sorted());
}

#[test]
fn no_name_of_a_queue_is_the_beginning_of_anothers_rows() {
    let range = keys::lanes("a");
    for other in ["ab", "a b", "a\u{7f}", "aa"] {
        let key = keys::lane(other, Lane::new(0, 0, false));
        assert!(!(range.start.clone()..range.end.clone()).contains(&key), "{other}");
    }
}

#[test]
fn range_of_a_prefix_ends_after_its_last_key() {
    assert_eq!(keys::prefixed(vec![1, 2]).end, [1, 3]);
    assert_eq!(keys::prefixed(vec![1, 0xff, 0xff]).end, [2]);
    let range = keys::roots("a\u{10ffff}");
    assert!((range.start..range.end).contains(&keys::root("a\u{10ffff}\u{10ffff}")));
}

#[test]
fn unsound_records_are_refused_on_both_sides() {
    let too_many = JobRecord { attempt: 21, ..job() };
    assert_eq!(codec::encode(&too_many).unwrap_err().kind(), ErrorKind::Invalid);
    let unsound = [
        // INV-7, INV-3 and a state without its time, each made by changing one byte of a sound one.
        (JobRecord { attempts_max: 77, attempt: 77, ..job() }, vec![77, 77], vec![78, 77], "attempts"),
    ];
    for (sound, bytes, wrong, why) in unsound {
        let mut encoded = codec::encode(&sound).unwrap();
        let at = encoded.windows(bytes.len()).position(|window| window == bytes).unwrap();
        encoded[at..at + wrong.len()].copy_from_slice(&wrong);
        assert_corrupt::<JobRecord>(&encoded, why);
    }
    let both = JobRecord { finished_at: Some(Timestamp::default()), ..job() };
    assert_eq!(codec::encode(&both).unwrap_err().kind(), ErrorKind::Invalid);
    let timeless = JobRecord { finish: Some(Finish::Cancelled), lease: None, ..job() };
    assert_eq!(codec::encode(&timeless).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn record_over_the_limit_is_refused_and_names_it() {
    let label = "x".repeat(codec::RECORD_BYTES_MAX);
    let head = HeadRecord { version: Version(1), paused: false, by: Writer { label, job: None } };
    let error = codec::encode(&head).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("queue head"), "{error}");
}

/// S30. In a process of its own, where no other test needs memory meanwhile.
#[cfg(target_os = "linux")]
#[test]
fn length_prefix_that_lies_reserves_no_memory_for_it() {
    const ALONE: &str = "CASQUE_TEST_ALONE";
    const BOUND_KIB: u64 = 16 << 10;
    if std::env::var_os(ALONE).is_none() {
        let module = module_path!().split_once("::").unwrap().1;
        let name = format!("{module}::length_prefix_that_lies_reserves_no_memory_for_it");
        let mut test = std::process::Command::new(std::env::current_exe().unwrap());
        let ran = test.args([&name, "--exact", "--test-threads=1"]).env(ALONE, "1").output().unwrap();
        let told = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && told.contains("1 passed"), "{told}{}", String::from_utf8_lossy(&ran.stderr));
        return;
    }
    let peak_kib = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmPeak:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let before = peak_kib();
    for number in [&HUGE, &LARGE] {
        // The label of the writer, and the bytes of the value.
        let in_text = [&[1, 1, 0, 0][..], number].concat();
        assert_corrupt::<HeadRecord>(&in_text, "not sound");
        let in_bytes = [&[1, 1, 0, 0, 0, 0, 1][..], number, &[5; 100]].concat();
        assert_corrupt::<ObjectRecord>(&in_bytes, "not sound");
    }
    let more = peak_kib() - before;
    assert!(more < BOUND_KIB, "{more} KiB more were reserved");
}
