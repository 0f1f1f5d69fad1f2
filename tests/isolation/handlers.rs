//! What the jobs of these tests do; each in a process of its own, but for those that are spawned.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use casque::{Isolation, Job, JobRequest, Registry, TaskError, types::StopReason};

use crate::{kin::me_and_my_parent, processes::Observer};

/// What `hog` may have, and asks for four times.
pub const MEMORY_MAX: u64 = 32 << 20;

pub fn tasks() -> Registry {
    let mut tasks = Registry::new();
    let mut isolated = |id: &str, run: fn(&Job) -> Result<(u32, u32), TaskError>| {
        tasks.register(id, move |job, ()| run(job)).unwrap().isolated(Isolation::PROCESS).backoff(|_| Duration::ZERO);
    };
    isolated("whoami", |_| Ok(me_and_my_parent()));
    isolated("abort", |_| {
        eprintln!("about to abort");
        std::process::abort()
    });
    isolated("exit", |_| std::process::exit(0));
    isolated("hang", |_| {
        loop {
            thread::park();
        }
    });
    isolated("ask", |job| {
        loop {
            job.check()?;
        }
    });
    isolated("fail", |_| {
        eprintln!("{}the last line", "much else\n".repeat(10_000));
        Err(TaskError::failed("no good"))
    });
    isolated("note", |job| {
        observer(job).note_run(job);
        Ok(me_and_my_parent())
    });
    isolated("hold", hold);
    isolated("leave-another", |job| {
        let child = std::process::Command::new("sleep").arg("1000").spawn()?;
        observer(job).note(&child.id().to_string());
        loop {
            thread::park();
        }
    });
    isolated("until-stopped", |job| {
        observer(job).note_run(job);
        while job.stop_reason().is_none() {
            thread::sleep(Duration::from_millis(1)); // waits: for the worker to be stopped, as a handler does
        }
        assert_eq!((job.stop_reason(), job.is_cancelled()), (Some(StopReason::Stopping), false));
        Err(TaskError::Release)
    });
    isolated("report", |job| {
        job.check()?;
        job.progress(0.5, "halfway")?;
        let store = job.store();
        store.put("seen", &store.job(job.id())?.progress.map(|(_, message)| message))?;
        store.queue("more").enqueue(JobRequest::new("whoami", &()))?;
        Ok(me_and_my_parent())
    });
    isolated("complete", |job| {
        job.complete_with(&"by itself")?;
        let refused = job.progress(1.0, "late").unwrap_err().kind();
        job.store().put("refused", &format!("{refused:?}"))?;
        Ok(me_and_my_parent())
    });
    isolated("complete-in", |job| {
        eprintln!("what is written before and");
        job.complete_in(|tx| {
            tx.add("counter", 1)?;
            Ok("in a transaction")
        })?;
        eprintln!("after it was completed");
        Ok(me_and_my_parent())
    });
    isolated("read", |_| {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut std::io::stdin(), &mut text)?;
        if text.is_empty() { Ok(me_and_my_parent()) } else { Err(TaskError::fatal(text)) }
    });
    tasks
        .register("hog", |_, ()| {
            let hoard: Vec<Vec<u8>> = (0..4).map(|_| vec![1; usize::try_from(MEMORY_MAX).unwrap()]).collect();
            Ok(hoard.iter().map(Vec::len).sum::<usize>())
        })
        .unwrap()
        .isolated(Isolation::Process { memory_max: Some(MEMORY_MAX) });
    tasks.register("spawned", |job, ()| hold(job)).unwrap();
    tasks
}

/// Notes that it runs, says how far it is, and waits for the file `go`.
fn hold(job: &Job) -> Result<(u32, u32), TaskError> {
    observer(job).note_run(job);
    job.progress(0.25, "waits")?;
    let go = folder(job).join("go");
    while !go.exists() && go.parent().is_some_and(Path::exists) {
        thread::sleep(Duration::from_millis(2)); // waits: for the test, which may have ended
    }
    fs::metadata(&go)?;
    Ok(me_and_my_parent())
}

fn observer(job: &Job) -> Observer {
    Observer::open(&folder(job).join("runs"))
}

/// The test's folder, which its jobs carry: a spawned one's process has nothing of the test's environment to rely on.
fn folder(job: &Job) -> PathBuf {
    let folder = job.metadata().iter().find(|(key, _)| key == "folder");
    PathBuf::from(&folder.expect("the job names the folder").1)
}
