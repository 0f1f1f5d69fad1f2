//! What the disk of a bench does without a store.

use std::{
    fs::{self, File},
    io,
    path::Path,
    time::Duration,
};

use super::per_second;
use crate::{
    cli::exit::{Exit, Failure},
    local::files::write_at,
};

/// How much is written before each sync.
const WRITE_BYTES: usize = 4096;

/// How often a second a small write can be made to last.
pub(super) fn syncs_per_second(folder: &Path, duration: Duration) -> Result<f64, Failure> {
    let path = folder.join("raw");
    let file = File::create(&path).map_err(|error| failed(&path, &error))?;
    let bytes = [7; WRITE_BYTES];
    let rate = per_second(duration, || {
        let synced = write_at(&file, &bytes, 0).and_then(|()| file.sync_data());
        synced.map(|()| 1).map_err(|error| crate::local::files::refused("write", &path, error))
    })?;
    // The folder goes soon anyway.
    let _ = fs::remove_file(&path);
    Ok(rate)
}

pub(super) fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Exit::Unavailable, format!("{} can't be made: {error}; name a folder with --folder", path.display()))
}
