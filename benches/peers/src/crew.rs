//! Processes of this same program that start together, and what the parent sees of them: the outside observer, with its
//! own clock.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use crate::client::{Errand, ErrandKind};

/// How long a client may be silent beyond its time.
const PATIENCE: Duration = Duration::from_mins(1);

pub struct Crew {
    members: Vec<Member>,
}

struct Member {
    child: Child,
    said: Receiver<Said>,
    /// When which count was heard.
    heard: Arc<Mutex<Vec<(Instant, u64)>>>,
}

enum Said {
    Ready,
    Started { latency_ns: u64 },
    Done { count: u64 },
}

impl Crew {
    /// Starts so many processes, and waits until all are ready.
    pub fn start(processes: usize, errand: &Errand) -> Self {
        let text = serde_json::to_string(errand).expect("an errand is JSON");
        let crew = Self { members: (0..processes).map(|_| Member::start(&text)).collect() };
        for member in &crew.members {
            assert!(matches!(member.hear(), Said::Ready), "a client began before it was told");
        }
        crew
    }

    pub fn pids(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.child.id()).collect()
    }

    pub fn go(&mut self) {
        self.members.iter_mut().for_each(|member| member.tell("go"));
    }

    /// Has an enqueuer enqueue one.
    pub fn enqueue_one(&mut self) {
        self.members.iter_mut().for_each(|member| member.tell("one"));
    }

    pub fn enqueue_no_more(&mut self) {
        self.members.iter_mut().for_each(|member| member.tell("enough"));
    }

    /// How long the next job took to its start, as its worker has told after it completed it.
    pub fn latency_ms(&self) -> f64 {
        match self.members[0].hear() {
            Said::Started { latency_ns } => Duration::from_nanos(latency_ns).as_secs_f64() * 1e3,
            Said::Ready | Said::Done { .. } => panic!("a worker ended early"),
        }
    }

    /// How many jobs were answered in all; waits until each process has done what it had to.
    pub fn count(&self) -> u64 {
        let count = |member: &Member| {
            loop {
                if let Said::Done { count } = member.hear() {
                    return count;
                }
            }
        };
        self.members.iter().map(count).sum()
    }

    /// Jobs a second between two moments, by the counts heard in between.
    pub fn rate(&self, from: Instant, to: Instant) -> f64 {
        let rate = |member: &Member| {
            let heard = member.heard.lock().expect("nobody panics while listening");
            let within: Vec<_> = heard.iter().filter(|(at, _)| *at >= from && *at <= to).collect();
            let (Some(first), Some(last)) = (within.first(), within.last()) else {
                panic!("a client told nothing while it was measured");
            };
            let took = last.0.duration_since(first.0).as_secs_f64();
            assert!(took > 0.0, "a client told one count only while it was measured; take more --seconds");
            float(last.1 - first.1) / took
        };
        self.members.iter().map(rate).sum()
    }

    /// Ends all, and waits for them.
    pub fn leave(self) {
        drop(self);
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // All at once, and only then is waited for each.
        self.members.iter_mut().for_each(|member| drop(member.child.stdin.take()));
        for member in &mut self.members {
            if thread::panicking() {
                let _ = member.child.kill();
            }
            let _ = member.child.wait();
        }
    }
}

impl Member {
    fn start(errand: &str) -> Self {
        let program = env::current_exe().expect("a program has a path");
        let mut command = Command::new(program);
        command.args(["--client", errand]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process can be started");
        let out = BufReader::new(child.stdout.take().expect("its output is piped"));
        let (say, said) = channel();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hearing = heard.clone();
        thread::spawn(move || listen(out, &hearing, &say));
        Self { child, said, heard }
    }

    fn hear(&self) -> Said {
        self.said.recv_timeout(PATIENCE).expect("a client died, or says nothing any more")
    }

    fn tell(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("its input is piped");
        writeln!(input, "{line}").expect("a client listens");
    }
}

fn listen(out: BufReader<ChildStdout>, heard: &Mutex<Vec<(Instant, u64)>>, say: &Sender<Said>) {
    for line in out.lines().map_while(Result::ok) {
        let now = Instant::now();
        let (word, number) = line.split_once(' ').unwrap_or((&line, "0"));
        let number: u64 = number.parse().expect("a client tells numbers");
        let said = match word {
            "n" => {
                heard.lock().expect("nobody panics while listening").push((now, number));
                continue;
            }
            "ready" => Said::Ready,
            "s" => Said::Started { latency_ns: number },
            "done" => Said::Done { count: number },
            other => panic!("a client says {other:?}"),
        };
        if say.send(said).is_err() {
            return;
        }
    }
}

/// An errand for a peer; the rest of it is the run's.
pub fn errand(peer: &str, address: &str, kind: ErrandKind) -> Errand {
    Errand { peer: peer.to_owned(), address: address.to_owned(), threads: 1, seconds: 0.0, kind }
}

/// Counts are far below 2^52.
#[allow(clippy::cast_precision_loss)]
pub fn float(count: u64) -> f64 {
    count as f64
}
