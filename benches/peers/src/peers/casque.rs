//! casque itself, through its public interface, as whoever uses it has it.

use std::{
    env,
    path::Path,
    process::Stdio,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use casque::{Event, JobRequest, Lease, Queue, Registry, Store, Worker};

use crate::{
    peer::{BEST_JOBS, Client, Peer, Purpose, Running, Style, Tally},
    server::{Server, guarded},
};

const QUEUE: &str = "default";
const TASK: &str = "noop";
/// What the command line begins with where this program is to be `casque` itself.
pub const COMMAND: &str = "--store";
/// How long the process that commits for others may take to come up.
const STONE_PATIENCE: Duration = Duration::from_secs(5);

pub struct Casque;

impl Peer for Casque {
    fn name(&self) -> &'static str {
        "casque"
    }

    fn durability(&self) -> &'static str {
        "all synced at the answer"
    }

    fn is_durable(&self) -> bool {
        true
    }

    fn start(&self, folder: &Path, has_workers: bool) -> Running {
        let path = folder.join("jobs.redb");
        Store::open(&path).and_then(Store::close).expect("the store is made");
        let mut running = Running::file(&path);
        if !has_workers {
            running.server = start_stone(&path);
        }
        running
    }

    fn clients(&self, address: &str, count: usize, _: Purpose) -> Vec<Box<dyn Client>> {
        let store = Store::open(address).expect("the store opens");
        let client = |_| {
            let queue = store.queue(QUEUE);
            Box::new(Handle { store: store.clone(), queue, in_hand: Vec::new() }) as Box<dyn Client>
        };
        (0..count).map(client).collect()
    }
}

/// The process that commits for enqueuers where no worker does: `casque serve` beside them. This is the one place that
/// knows of it. Where this casque has no such command, each process commits for itself, and there is no server.
fn start_stone(store: &Path) -> Option<Server> {
    let program = env::current_exe().expect("a program has a path");
    let program = program.to_str().expect("a path of text");
    let mut command = guarded(&[program, COMMAND], "TERM");
    command.arg(store).arg("serve").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("a process can be started");
    let mut folder = store.as_os_str().to_owned();
    folder.push(".d");
    let socket = Path::new(&folder).join("sock");
    let began = Instant::now();
    // Its socket is elsewhere where the path is long; then it gets all of its time.
    while began.elapsed() < STONE_PATIENCE && !socket.exists() {
        if child.try_wait().expect("a child can be waited for").is_some() {
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
    Some(Server::of(child))
}

struct Handle {
    store: Store,
    queue: Queue,
    in_hand: Vec<Lease>,
}

impl Client for Handle {
    fn enqueue(&mut self, payload: &[u8], jobs: usize) {
        if jobs == 1 {
            self.queue.enqueue(JobRequest::new(TASK, payload)).expect("a job is enqueued");
        } else {
            let jobs = (0..jobs).map(|_| JobRequest::new(TASK, payload));
            self.queue.enqueue_batch(jobs).expect("a batch is enqueued");
        }
    }

    fn claim(&mut self, jobs: usize, wait: Duration, handle: &mut dyn FnMut(&[u8])) -> usize {
        self.in_hand = self.queue.claim(jobs, wait).expect("a claim is answered");
        for lease in &self.in_hand {
            handle(&lease.args::<Vec<u8>>().expect("the arguments are bytes"));
        }
        self.in_hand.len()
    }

    fn complete(&mut self) {
        let in_hand = std::mem::take(&mut self.in_hand);
        match &in_hand[..] {
            [] => {}
            [lease] => lease.complete().expect("the lease stands"),
            leases => {
                let all = self.store.transaction(|tx| leases.iter().try_for_each(|lease| tx.complete(lease)));
                all.expect("the leases stand");
            }
        }
    }

    fn work(&mut self, style: Style, deadline: Instant, tally: &Arc<Tally>) {
        let (handled, completed) = (tally.clone(), tally.clone());
        let mut tasks = Registry::new();
        let registered = tasks.register(TASK, move |_, payload: Vec<u8>| {
            handled.handle(&payload);
            Ok(())
        });
        registered.expect("the registry is empty");
        let worker = Worker::new(&self.store).queue(QUEUE).tasks(tasks);
        let worker = match style {
            Style::One => worker.concurrency(1).prefetch(0),
            Style::Ordinary => worker,
            Style::Best => worker.concurrency(1).prefetch(BEST_JOBS - 1),
        };
        // Told when the completion is on the disk.
        let worker = worker.listen(move |event| match event {
            Event::Completed { .. } => completed.add(1),
            Event::Trouble { doing, message } => eprintln!("a worker failed to {doing}: {message}"),
            _ => {}
        });
        let stop = worker.stop_handle();
        let stopper = thread::spawn(move || {
            thread::sleep(deadline.saturating_duration_since(Instant::now()));
            stop.stop();
        });
        worker.run().expect("the worker runs");
        stopper.join().expect("waiting does not panic");
    }

    fn left(&mut self) -> u64 {
        let stats = self.queue.stats().expect("the queue is counted");
        stats.ready + stats.running
    }
}
