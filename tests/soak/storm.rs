//! What happens to the processes of a round: kills, stops, a full disk, clocks that jump, a disk that is slow. And how
//! long nothing was completed meanwhile.

use std::{
    fs,
    io::Read as _,
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{
    ground::{Ground, Part},
    processes::Committer,
};

/// Who may be stopped at once.
const STOPPED_MAX: usize = 2;

/// What was done to the processes, and how long nothing was completed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Blows {
    pub kills: usize,
    pub stops: usize,
    pub killed_while_stopped: usize,
    pub full_disks: usize,
    pub clock_jumps: usize,
    pub slow_disks: usize,
    pub gap: Duration,
    /// Of this, while nobody was stopped and the disk was not full.
    pub gap_unhindered: Duration,
}

/// The processes of a round, and what is done to them.
pub struct Storm<'a> {
    pub ground: &'a Ground,
    pub committer: Committer,
    pub random: fastrand::Rng,
    pub parts: Vec<Part>,
    pub blows: Blows,
    pub findings: Vec<String>,
    full_until: Option<Instant>,
}

impl<'a> Storm<'a> {
    /// Starts all and waits until they take part.
    pub fn begin(ground: &'a Ground, committer: Committer, roles: &[&'static str], seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut parts: Vec<Part> = roles.iter().map(|role| ground.start(role, committer, &mut random)).collect();
        parts.iter_mut().for_each(Part::await_begun);
        let (blows, findings) = (Blows::default(), Vec::new());
        Self { ground, committer, random, parts, blows, findings, full_until: None }
    }

    /// Lets them work for so long, with blows every so many milliseconds at most, or with none.
    pub fn pass(&mut self, length: Duration, pause_ms: Option<u64>) {
        let (hindrances, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let notes = self.ground.notes();
        (self.blows.gap, self.blows.gap_unhindered) = thread::scope(|scope| {
            let watch = scope.spawn(|| watch(&notes, &hindrances, &is_over));
            let begun = Instant::now();
            while begun.elapsed() < length {
                let pause = pause_ms.map_or(50, |most| self.random.u64(10..=most));
                thread::sleep(Duration::from_millis(pause)); // waits: for the work that is to be disturbed
                self.end_what_is_over();
                self.replace_the_ended();
                if pause_ms.is_some() {
                    self.strike();
                }
                let stopped = self.parts.iter().filter(|part| part.stopped_until.is_some()).count();
                hindrances.store(stopped + usize::from(self.full_until.is_some()), Ordering::SeqCst);
            }
            is_over.store(true, Ordering::SeqCst);
            watch.join().unwrap()
        });
        self.calm_down();
    }

    fn strike(&mut self) {
        let victim = self.random.usize(..self.parts.len());
        match self.random.u8(..20) {
            0..6 => self.kill(victim),
            6 => {
                // Whoever commits is among them.
                for victim in 0..self.parts.len() {
                    if ["serve", "worker", "work"].contains(&self.parts[victim].role) {
                        self.kill(victim);
                    }
                }
            }
            7..12 => {
                let most_ms = if self.random.u8(..3) == 0 { 300 } else { 4_000 };
                self.stop(victim, most_ms);
            }
            12 => {
                // In its snapshot, more often than not.
                if let Some(reader) = self.parts.iter().position(|part| part.role == "reader") {
                    self.stop(reader, 6_000);
                }
            }
            13 if self.ground.is_small() && self.full_until.is_none() => {
                self.ground.fill();
                self.full_until = Some(self.later(1_500));
                self.blows.full_disks += 1;
            }
            14 | 15 => {
                let line = self.random.choice(["ahead", "behind", "day", "right", "right"]).unwrap();
                self.parts.iter_mut().for_each(|part| part.tell(line));
                self.blows.clock_jumps += 1;
            }
            16 | 17 => {
                let line = self.random.choice(["slow", "quick", "quick"]).unwrap();
                self.parts[victim].tell(line);
                self.blows.slow_disks += usize::from(line == "slow");
            }
            _ => {}
        }
    }

    fn later(&mut self, most_ms: u64) -> Instant {
        Instant::now() + Duration::from_millis(self.random.u64(..most_ms))
    }

    fn kill(&mut self, victim: usize) {
        let part = &mut self.parts[victim];
        self.blows.killed_while_stopped += usize::from(part.stopped_until.is_some());
        self.blows.kills += 1;
        part.kill();
        *part = self.ground.start(part.role, self.committer, &mut self.random);
    }

    fn stop(&mut self, victim: usize, most_ms: u64) {
        let stopped = self.parts.iter().filter(|part| part.stopped_until.is_some()).count();
        if stopped < STOPPED_MAX && self.parts[victim].stopped_until.is_none() {
            let until = self.later(most_ms);
            self.parts[victim].stop_until(Some(until));
            self.blows.stops += 1;
        }
    }

    /// Who was stopped for long enough goes on, or is killed instead.
    fn end_what_is_over(&mut self) {
        let is_over = |until: Option<Instant>| until.is_some_and(|until| until <= Instant::now());
        for at in 0..self.parts.len() {
            if is_over(self.parts[at].stopped_until) {
                if self.random.u8(..4) == 0 {
                    self.kill(at);
                } else {
                    self.parts[at].stop_until(None);
                }
            }
        }
        if is_over(self.full_until) {
            self.full_until = None;
            self.ground.free();
        }
    }

    fn replace_the_ended(&mut self) {
        for part in &mut self.parts {
            if let Some(status) = part.ended() {
                if !part.is_expected(status) || status.success() {
                    self.findings.push(format!("a {} ended by itself: {status}", part.role));
                }
                *part = self.ground.start(part.role, self.committer, &mut self.random);
            }
        }
    }

    /// Nothing holds anybody up any more; then no process has a child that it does not wait for.
    fn calm_down(&mut self) {
        self.ground.free();
        self.full_until = None;
        for part in self.parts.iter_mut().filter(|part| part.stopped_until.is_some()) {
            part.stop_until(None);
        }
        for line in ["right", "quick"] {
            self.parts.iter_mut().for_each(|part| part.tell(line));
        }
        let begun = Instant::now();
        let mut seen = self.zombies();
        while !seen.is_empty() && begun.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(50)); // waits: for parents that were stopped
            let now = self.zombies();
            seen.retain(|zombie| now.contains(zombie));
        }
        for zombie in seen {
            self.findings.push(format!("a zombie: {zombie}"));
        }
    }

    fn zombies(&self) -> Vec<String> {
        let parents: Vec<u32> = self.parts.iter().map(Part::pid).collect();
        let stats = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let stats = stats.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
        let is_zombie = |stat: &String| {
            let mut words = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
            words.next() == Some("Z")
                && words.next().and_then(|pid| pid.parse().ok()).is_some_and(|pid| parents.contains(&pid))
        };
        stats.filter(is_zombie).map(|stat| stat.split(" Z ").next().unwrap_or_default().to_owned()).collect()
    }

    /// Has all of them leave in order, or kills them all at once.
    pub fn end(&mut self, by_force: bool) {
        if by_force {
            self.blows.kills += self.parts.len();
            self.parts.iter_mut().for_each(Part::kill);
            return;
        }
        // A library process that has not begun hears it all the same; the binary may not listen yet.
        let begun = Instant::now();
        let mut asked = None::<Instant>;
        while !self.parts.is_empty() {
            if asked.is_none_or(|asked| asked.elapsed() > Duration::from_secs(1)) {
                self.parts.iter_mut().for_each(Part::ask_to_leave);
                asked = Some(Instant::now());
            }
            let findings = &mut self.findings;
            let patience = Duration::from_mins(1);
            self.parts.retain_mut(|part| match part.ended() {
                Some(status) if part.is_expected(status) || status.to_string().contains("SIGTERM") => false,
                Some(status) => {
                    findings.push(format!("a {} ended with {status}", part.role));
                    false
                }
                None if begun.elapsed() > patience => {
                    findings.push(format!("a {} with pid {} does not end", part.role, part.pid()));
                    part.kill();
                    false
                }
                None => true,
            });
            thread::sleep(Duration::from_millis(5)); // waits: for their ends
        }
    }
}

/// Follows the notes until it is over; gives the longest time without a completion, and the longest unhindered one.
fn watch(notes: &Path, hindrances: &AtomicUsize, is_over: &AtomicBool) -> (Duration, Duration) {
    let mut file = fs::File::open(notes).unwrap();
    let (mut last, mut free_since) = (Instant::now(), Instant::now());
    let (mut longest, mut longest_free) = (Duration::ZERO, Duration::ZERO);
    let mut text = Vec::new();
    while !is_over.load(Ordering::SeqCst) {
        text.clear();
        file.read_to_end(&mut text).unwrap();
        longest = longest.max(last.elapsed());
        if hindrances.load(Ordering::SeqCst) > 0 {
            free_since = Instant::now();
        } else {
            longest_free = longest_free.max(free_since.max(last).elapsed());
        }
        if text.windows(10).any(|word| word == b"completed ") {
            last = Instant::now();
        }
        thread::sleep(Duration::from_millis(5)); // waits: for notes
    }
    (longest, longest_free)
}
