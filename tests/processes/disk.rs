//! A small disk of its own, for tests of full ones.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A small disk of its own, for who may mount one.
pub struct Disk(PathBuf);

impl Disk {
    pub fn mount(path: &Path, size: &str) -> Option<Self> {
        fs::create_dir(path).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(path).output();
        if mounted.is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self(path.to_owned()));
        }
        eprintln!("SKIPPED: this user may not mount a disk of its own");
        None
    }

    pub fn make_read_only(&self) {
        let made = Command::new("mount").args(["-o", "remount,ro"]).arg(&self.0).status().unwrap();
        assert!(made.success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
