//! The disk by itself: how many small appends a second it makes durable, one after the other.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

const APPEND_BYTES: usize = 4096;
const FILE_APPENDS: u64 = 1024;
const PROBE: Duration = Duration::from_millis(120);

/// How much the disk may move from one end of a pair to the other.
const MOVE_MAX: f64 = 0.3;

/// A preallocated file that is written from end to end, again and again.
pub struct Disk {
    file: File,
    at: u64,
}

impl Disk {
    pub fn new(folder: &Path) -> Self {
        let path = folder.join("raw");
        let file = File::options().create(true).truncate(true).write(true).open(path).expect("the folder is writable");
        let zeros = [0; APPEND_BYTES];
        (0..FILE_APPENDS).for_each(|at| write(&file, &zeros, at));
        file.sync_all().expect("a file can be synced");
        Self { file, at: 0 }
    }

    /// Appends and fdatasyncs a second, over a short time.
    pub fn rate(&mut self) -> f64 {
        let bytes = [1; APPEND_BYTES];
        let (mut count, began) = (0_u32, Instant::now());
        while began.elapsed() < PROBE {
            write(&self.file, &bytes, self.at % FILE_APPENDS);
            self.file.sync_data().expect("a file can be synced");
            self.at += 1;
            count += 1;
        }
        f64::from(count) / began.elapsed().as_secs_f64()
    }
}

/// Whether rates are further apart than a pair bears.
pub fn has_moved(rates: &[f64]) -> bool {
    let (least, most) = (rates.iter().copied().fold(f64::MAX, f64::min), rates.iter().copied().fold(0.0, f64::max));
    (most - least) / most > MOVE_MAX
}

/// Writes out what was prepared, lest it be written while something is measured.
pub fn flush(folder: &Path) {
    let _ = Command::new("sync").arg("-f").arg(folder).status();
}

fn write(file: &File, bytes: &[u8], at: u64) {
    file.write_all_at(bytes, at * APPEND_BYTES as u64).expect("the disk has room for the probe");
}
