//! Stores that are not as casque wrote them: single rows that were changed, and files with other bytes in them. All
//! that reads or works on them refuses or goes on, and a file that opens is sound, or `check` says what is not.

#[path = "../../tests/golden/blocks.rs"]
mod blocks;

use std::{fs, ops::ControlFlow, path::Path, time::Duration};

use crate::{
    JobFilter, JobRequest, Store, StoreOptions,
    check::check_rows,
    codec,
    engine::RowSet,
    fuzz::{Fuzz, notice_panics},
    queue::admin::Admin,
    store::change::Intent,
};

/// The golden store of the first format, put into a folder, and its path there.
fn golden(folder: &Path) -> std::path::PathBuf {
    notice_panics();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1");
    let path = folder.join("app.redb");
    fs::copy(kept.join("app.redb"), &path).unwrap();
    // The folder beside a store is its owner's alone, as a store makes it.
    Store::open(folder.join("other.redb")).unwrap().close().unwrap();
    fs::rename(folder.join("other.redb.d"), folder.join("app.redb.d")).unwrap();
    fs::write(folder.join("app.redb.d/log"), blocks::spread(&fs::read(kept.join("log")).unwrap())).unwrap();
    path
}

/// All rows of the golden store, its log's too.
fn golden_rows() -> RowSet {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(golden(folder.path())).unwrap();
    let rows = store.inner.rows().unwrap();
    let mut all = RowSet::new();
    let mut note = |key: &[u8], value: &[u8]| {
        all.insert(key.to_vec(), Some(value.to_vec()));
        Ok(ControlFlow::Continue(()))
    };
    rows.visit(&[], &[0xff; 64], &mut note).unwrap();
    assert!(all.len() > 50, "{} rows", all.len());
    all
}

/// What a program may ask of a store and do with it; answers of any kind are good.
fn use_all(store: &Store) {
    let _ = store.queues();
    let _ = store.locks();
    let _ = store.schedules();
    let _ = store.list::<serde_json::Value>("");
    let queue = store.queue("default");
    let _ = queue.enqueue(JobRequest::new("ready", &1_u32).unique("video-7"));
    for job in store.jobs(&JobFilter::new(), 8).unwrap_or_default() {
        let _ = (store.job(job.id), store.log(job.id, 0), store.status(job.id));
        let _ = (store.requeue(job.id), store.retry(job.id), store.cancel(job.id));
    }
    for lease in queue.claim(3, Duration::ZERO).unwrap_or_default() {
        let _ = lease.start();
        let _ = lease.fail("it must", Some(Duration::ZERO));
    }
    for lease in queue.claim(3, Duration::ZERO).unwrap_or_default() {
        let _ = lease.complete_with(&1);
    }
    for intent in [Intent::Promote { limit: 100 }, Intent::Administer(Admin::Prune { limit: 100 })] {
        let _ = store.inner.perform(intent);
    }
    let _ = store.retry_all(&JobFilter::new());
    let _ = store.purge(&JobFilter::new());
}

#[test]
fn fuzz_rows() {
    let golden = golden_rows();
    let inputs: Vec<Vec<u8>> = golden.iter().map(|(key, value)| joined(key, value.as_deref().unwrap())).collect();
    Fuzz::new("rows", inputs).run(|input| {
        let Some((key, value)) = parted(input) else { return };
        let mut rows = golden.clone();
        rows.insert(key.to_vec(), Some(value.to_vec()));
        let Ok(store) = StoreOptions::new().open_with_rows(&rows) else { return };
        let _ = check_rows(store.inner.rows().unwrap().as_ref());
        use_all(&store);
    });
}

/// A row in one piece: the length of its key comes first.
fn joined(key: &[u8], value: &[u8]) -> Vec<u8> {
    let length = u8::try_from(key.len()).unwrap();
    [&[length], key, value].concat()
}

fn parted(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = input.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

#[test]
fn fuzz_store_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = golden(folder.path());
    let whole = Store::open(&path).unwrap();
    whole.close().unwrap();
    let whole = fs::read(&path).unwrap();
    // An input is a list of places and of what is to be there.
    let inputs = (0..8_u32).map(|number| [&(number * 16_111).to_le_bytes()[..], &[0xa5, 1]].concat());
    Fuzz::new("store_files", inputs).run(|input| {
        let mut bytes = whole.clone();
        for part in input.chunks(6) {
            let Some((at, what)) = part.split_first_chunk::<4>() else { continue };
            let at = u32::from_le_bytes(*at) as usize % bytes.len();
            bytes[at] ^= what.first().copied().unwrap_or(1);
            if what.get(1).is_some_and(|much| *much == 0) {
                bytes.truncate(at);
                bytes.push(0);
            }
        }
        fs::write(&path, &bytes).unwrap();
        if let Ok(store) = StoreOptions::new().timeout(Duration::from_mins(1)).open(&path) {
            if let Ok(findings) = store.check()
                && findings.is_empty()
            {
                // What is sound can be read to its end.
                store.jobs(&JobFilter::new(), 1_000).unwrap();
            }
            let _ = store.queue("default").enqueue(JobRequest::new("ready", &1_u32));
            for lease in store.queue("default").claim(2, Duration::ZERO).unwrap_or_default() {
                let _ = lease.complete();
            }
            let _ = store.close();
        }
    });
}

#[test]
fn fuzz_payloads() {
    let inputs = ["{\"n\": 1}", "[1, \"two\", null, 3.5e7]", "\"\\u00fc\"", "-0", "18446744073709551616", "[[[[]]]]"];
    Fuzz::new("payloads", inputs.map(|text| text.as_bytes().to_vec())).run(|input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let Ok(payload) = codec::Payload::from_json_text(text) else { return };
        // Numbers are kept as they are written, also those that no number here can hold.
        if let Ok(value) = payload.decode::<serde_json::Value>() {
            assert_eq!(payload.to_json(), value);
        }
        let _ = payload.decode::<(u32, String)>();
        let _ = payload.decode::<Vec<u8>>();
    });
}
