//! A client's process: this program, run again with an errand. It says when it is ready, begins when it is told, tells
//! every few milliseconds how much was answered, and leaves when its input ends.

use std::{
    io::{self, BufRead as _, Read as _},
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{
    peer::{Client, Purpose, Style, Tally, payload},
    peers,
};

/// How often a client tells its count.
const TELL: Duration = Duration::from_millis(20);

/// What a client's process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Errand {
    pub peer: String,
    pub address: String,
    pub threads: usize,
    pub seconds: f64,
    pub kind: ErrandKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrandKind {
    /// Enqueues so many at once.
    Enqueue { jobs: usize },
    /// Enqueues one for each line of its input.
    EnqueueWhenTold,
    /// Works.
    Work { style: Style },
    /// Works, and tells of each job at once.
    WorkAndTell,
}

impl ErrandKind {
    fn purpose(self) -> Purpose {
        match self {
            Self::Enqueue { .. } | Self::Work { .. } => Purpose::Rate,
            Self::EnqueueWhenTold | Self::WorkAndTell => Purpose::Wakeup,
        }
    }
}

pub fn run(errand: &str) {
    let errand: Errand = serde_json::from_str(errand).expect("the parent's errand is JSON");
    let peer = peers::named(&errand.peer).expect("the parent's peer is known");
    let mut clients = peer.clients(&errand.address, errand.threads, errand.kind.purpose());
    let tally = Arc::new(if errand.kind == ErrandKind::WorkAndTell { Tally::telling() } else { Tally::default() });
    println!("ready");
    read_line();
    if errand.kind == ErrandKind::EnqueueWhenTold {
        while read_line() == "one" {
            clients[0].enqueue(&payload(), 1);
            tally.add(1);
        }
        println!("done {}", tally.count());
        return;
    }
    let leaving = leave_with_the_parent();
    let telling = (errand.kind != ErrandKind::WorkAndTell).then(|| tell_until_stopped(&tally));
    work(&errand, &mut clients, &tally);
    if let Some(telling) = telling {
        telling.stop();
    }
    println!("done {}", tally.count());
    // All that they hold stays open until the parent has counted the syncs.
    leaving.stop();
}

fn work(errand: &Errand, clients: &mut [Box<dyn Client>], tally: &Arc<Tally>) {
    let deadline = Instant::now() + Duration::from_secs_f64(errand.seconds);
    let payload = payload();
    thread::scope(|scope| {
        for client in clients {
            scope.spawn(|| match errand.kind {
                ErrandKind::Enqueue { jobs } => {
                    while Instant::now() < deadline {
                        client.enqueue(&payload, jobs);
                        tally.add(jobs);
                    }
                }
                ErrandKind::Work { style } => client.work(style, deadline, tally),
                ErrandKind::WorkAndTell => client.work(Style::One, deadline, tally),
                ErrandKind::EnqueueWhenTold => unreachable!("it has no deadline"),
            });
        }
    });
}

/// A thread that goes on until it is told.
struct Until {
    thread: thread::JoinHandle<()>,
    is_over: Arc<AtomicBool>,
}

impl Until {
    fn start(run: impl FnOnce(&AtomicBool) + Send + 'static) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        Self { thread: thread::spawn(move || run(&over)), is_over }
    }

    fn stop(self) {
        self.is_over.store(true, Ordering::Release);
        self.thread.join().expect("it does not panic");
    }
}

fn tell_until_stopped(tally: &Arc<Tally>) -> Until {
    let tally = tally.clone();
    Until::start(move |is_over| {
        while !is_over.load(Ordering::Acquire) {
            println!("n {}", tally.count());
            thread::sleep(TELL);
        }
    })
}

/// Ends this process where the parent has left before the work is done; else it waits until the parent leaves.
fn leave_with_the_parent() -> Until {
    Until::start(|is_over| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        if !is_over.load(Ordering::Acquire) {
            process::exit(1);
        }
    })
}

/// The next line of the input, empty at its end.
fn read_line() -> String {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).expect("the parent's lines are text");
    line.trim_end().to_owned()
}
