//! Which boot of the machine this is: a pid or a note of another boot says nothing about the processes of this one.

use std::{path::Path, sync::OnceLock};

use super::files;

/// The longest boot id that is noted anywhere.
pub(super) const BOOT_ID_BYTES: usize = 63;

/// The name of the machine's current boot, "unknown" where the system does not tell.
pub(crate) fn boot_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        let read = files::read_at_most(Path::new("/proc/sys/kernel/random/boot_id"), 2 * BOOT_ID_BYTES);
        let text = read.ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
        let id = text.trim();
        let is_usable = !id.is_empty() && id.len() <= BOOT_ID_BYTES && id.bytes().all(|byte| byte.is_ascii_graphic());
        if is_usable { id.to_owned() } else { "unknown".to_owned() }
    })
}
