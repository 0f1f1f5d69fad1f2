//! Inputs that nobody has written on purpose, for what reads bytes or text from outside: kept ones first, then changes
//! of them at random, for as long as `CASQUE_FUZZ_SECONDS` says. A target panics for what must not be, and may refuse
//! all.
//!
//! `cargo nextest run --all-features -E 'test(fuzz)'` runs them all; `CASQUE_FUZZ_SECONDS=600` makes it a long run,
//! and `CASQUE_SEED` another one: without it each run goes the same way, as far as its time lets it. An input
//! that was found is written down, to be kept in `tests/fuzz/<target>/`.

use std::{
    fs,
    panic::{set_hook, take_hook},
    path::{Path, PathBuf},
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::clock::{deadline_after, monotonic};

/// What the suite tries, so that it fails for what was changed, not for what chance has found.
const SEED: u64 = 1;
/// How long a target is tried where nothing else is said.
const SECONDS: f64 = 1.0;
/// No target takes more memory than this.
#[cfg(target_os = "linux")]
const MEMORY_MAX: u64 = 256 << 20;
/// No input is made longer.
const INPUT_BYTES_MAX: usize = 1 << 20;
/// Numbers at which lengths and counts go wrong.
const EDGES: [u64; 12] =
    [0, 1, 127, 128, 250, 251, 255, u16::MAX as u64, i32::MAX as u64, u32::MAX as u64, i64::MAX as u64, u64::MAX];

/// Some thread has panicked, the target's own or another.
static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

/// Has panics of all threads noticed. To be called before a store is opened: panics that become errors there are not to
/// be seen here.
pub(crate) fn notice_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            HAS_PANICKED.store(true, Ordering::SeqCst);
            usual(panic);
        }));
    });
}

/// A target's inputs.
pub(crate) struct Fuzz {
    name: &'static str,
    rng: fastrand::Rng,
    corpus: Vec<Vec<u8>>,
}

impl Fuzz {
    /// The inputs of a target: these, those that are kept for it, and changes of them.
    pub(crate) fn new(name: &'static str, corpus: impl IntoIterator<Item = Vec<u8>>) -> Self {
        notice_panics();
        let seed = std::env::var("CASQUE_SEED").map_or(SEED, |seed| seed.parse().unwrap());
        println!("CASQUE_SEED={seed}");
        let mut corpus: Vec<Vec<u8>> = corpus.into_iter().collect();
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz").join(name);
        let mut files: Vec<PathBuf> =
            fs::read_dir(kept).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        corpus.extend(files.into_iter().map(|file| fs::read(file).unwrap()));
        assert!(!corpus.is_empty());
        Self { name, rng: fastrand::Rng::with_seed(seed), corpus }
    }

    /// Tries the target with each input, and looks at what memory that took.
    pub(crate) fn run(mut self, mut target: impl FnMut(&[u8])) {
        let seconds = std::env::var("CASQUE_FUZZ_SECONDS").map_or(SECONDS, |seconds| seconds.parse().unwrap());
        let end = deadline_after(Duration::from_secs_f64(seconds));
        for input in &self.corpus {
            tried(self.name, input, &mut target);
        }
        let mut inputs = 0_u64;
        while monotonic() < end {
            let input = self.next();
            tried(self.name, &input, &mut target);
            inputs += 1;
        }
        println!("{}: {inputs} inputs made of {} in {seconds} s", self.name, self.corpus.len());
        #[cfg(target_os = "linux")]
        {
            let status = fs::read_to_string("/proc/self/status").unwrap();
            let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
            let peak = peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
            assert!(peak < MEMORY_MAX, "{}: {peak} bytes of memory at the most", self.name);
        }
    }

    /// One of the inputs, changed in some places.
    fn next(&mut self) -> Vec<u8> {
        let mut input = self.one().clone();
        for _ in 0..self.rng.usize(1..=6) {
            self.change(&mut input);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn one(&mut self) -> &Vec<u8> {
        let index = self.rng.usize(..self.corpus.len());
        &self.corpus[index]
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.rng.usize(..=input.len());
        let range = at..(at + self.rng.usize(..=16)).min(input.len());
        match self.rng.u8(..8) {
            0 if at < input.len() => input[at] ^= 1 << self.rng.u8(..8),
            1 if at < input.len() => input[at] = self.rng.u8(..),
            2 => {
                // A number at an edge, as long as the place holds.
                let edge = EDGES[self.rng.usize(..EDGES.len())].to_le_bytes();
                let most = [1, 2, 4, 8][self.rng.usize(..4)].min(input.len() - at);
                input[at..at + most].copy_from_slice(&edge[..most]);
            }
            3 => drop(input.drain(range)),
            4 => {
                let again = input[range].to_vec();
                drop(input.splice(at..at, again));
            }
            5 => {
                let some: Vec<u8> = (0..self.rng.usize(..=8)).map(|_| self.rng.u8(..)).collect();
                drop(input.splice(at..at, some));
            }
            6 => input.truncate(at),
            _ => {
                let other = self.one().clone();
                let from = self.rng.usize(..=other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
    }
}

/// Calls the target; an input at which it panics is written down.
fn tried(name: &str, input: &[u8], target: &mut impl FnMut(&[u8])) {
    struct Kept<'a>(&'a str, &'a [u8]);
    impl Drop for Kept<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let path = std::env::temp_dir().join(format!("casque-fuzz-{}", self.0));
                let written = fs::write(&path, self.1);
                println!("{written:?}: this input is in {}; keep it in tests/fuzz/{}", path.display(), self.0);
            }
        }
    }
    let _kept = Kept(name, input);
    target(input);
    assert!(!HAS_PANICKED.load(Ordering::SeqCst), "another thread has panicked");
}
