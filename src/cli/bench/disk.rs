//! A folder for one bench, and what its disk does without a store.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::per_second;
use crate::{
    cli::exit::{Exit, Failure},
    codec::hex,
    local::files::write_at,
};

/// How much is written before each sync.
const WRITE_BYTES: usize = 4096;

/// A folder that is removed when this is dropped.
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(super) fn make(within: &Path) -> Result<Self, Failure> {
        let random: [u8; 16] = crate::random::bytes();
        let path = within.join(format!("casque-bench-{}", hex(&random[..4])));
        fs::create_dir(&path).map_err(|error| failed(&path, &error))?;
        Ok(Self { path })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What can't be removed is named so that one sees whose it is.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// How often a second a small write can be made to last.
pub(super) fn syncs_per_second(folder: &Folder, duration: Duration) -> Result<f64, Failure> {
    let path = folder.path("raw");
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

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Exit::Unavailable, format!("{} can't be made: {error}; name a folder with --folder", path.display()))
}
