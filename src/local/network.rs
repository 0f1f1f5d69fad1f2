//! Whether a path lies on a network file system, where locks may hold on each machine for itself only.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// The type of the network file system that holds `path` (a canonical one), such as `nfs4`. `None` where it lies on a
/// local disk, and where the system does not tell.
pub(crate) fn network_file_system(path: &Path) -> Option<String> {
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    network_type(&String::from_utf8_lossy(&mounts), path)
}

/// Whether something is mounted at `path` itself (a canonical one), as one file of another folder.
pub(crate) fn is_mount_point(path: &Path) -> bool {
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    String::from_utf8_lossy(&mounts)
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .any(|point| unescape(point) == path)
}

/// The format is that of `proc_pid_mountinfo(5)`.
pub(super) fn network_type(mounts: &str, path: &Path) -> Option<String> {
    let mut nearest: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let Some((mount, source)) = line.split_once(" - ") else { continue };
        let (Some(point), Some(kind)) = (mount.split(' ').nth(4), source.split(' ').next()) else { continue };
        let point = unescape(point);
        let depth = point.components().count();
        // Of two mounts on one point the later hides the earlier.
        if path.starts_with(&point) && nearest.is_none_or(|(deepest, _)| depth >= deepest) {
            nearest = Some((depth, kind));
        }
    }
    nearest.map(|(_, kind)| kind).filter(|kind| is_network(kind)).map(str::to_owned)
}

/// 9p, virtiofs and their like are left out: they join a guest to its own host, and locks hold among the guest's
/// processes.
fn is_network(kind: &str) -> bool {
    let kind = kind.strip_prefix("fuse.").unwrap_or(kind);
    let starts = ["nfs", "smb", "sshfs", "s3fs", "gluster", "ceph", "davfs", "rclone", "goofys", "gcsfuse", "beegfs"];
    let names = ["cifs", "afs", "coda", "ncpfs", "lustre", "gfs2", "ocfs2", "gpfs", "orangefs", "juicefs"];
    starts.iter().any(|start| kind.starts_with(start)) || names.contains(&kind)
}

/// Blanks and backslashes of a mount point are written as three octal digits.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = (first == b'\\').then(|| after.get(..3)).flatten().and_then(|digits| {
            digits
                .iter()
                .try_fold(0_u32, |sum, digit| (b'0'..=b'7').contains(digit).then(|| sum * 8 + u32::from(digit - b'0')))
        });
        if let Some(byte) = octal.and_then(|value| u8::try_from(value).ok()) {
            bytes.push(byte);
            rest = &after[3..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    #[cfg(unix)]
    return PathBuf::from(<OsString as std::os::unix::ffi::OsStringExt>::from_vec(bytes));
    #[cfg(not(unix))]
    return PathBuf::from(OsString::from(String::from_utf8_lossy(&bytes).into_owned()));
}
