//! `casque backup`.

use std::path::PathBuf;

use clap::Args;

use super::{bar, context::Context, exit::Failure, output::Output, units::about_size};
use crate::{
    local::check_free,
    store::{backup::back_up, open::resolve},
};

/// Copy the store into a new file, while others work
#[derive(Debug, Args)]
#[command(after_help = "\
The copy shows the store at one moment, with all that was answered before; nobody has to
wait meanwhile. It is a store of its own, for its owner only, and `casque restore` puts it
in place. It is written beside DEST first, and takes that name when it is whole; for that
while there must be room for twice what the store holds. What is at DEST is never
overwritten: exit code 4.

What runs now is taken up by workers of the restored store, as after a crash.

Examples:
  casque backup backups/monday.redb
  casque backup \"backups/$(date +%F).redb\"")]
pub(super) struct Backup {
    /// The file to make
    dest: PathBuf,
}

impl Backup {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        let dest = resolve(&self.dest)?;
        check_free(&dest).map_err(|error| Failure::of_job(&error))?;
        let bar = bar::of(Some(0), bar::PARTS);
        // Where the store can't be read it is recovered and read again; where the copy can't be written it is not.
        let backup = context.read(|store| {
            let rows = store.inner.rows()?;
            Ok(back_up(&store.inner, rows, &dest, &mut |done, all| bar::show(&bar, done, all)))
        });
        bar.finish_and_clear();
        let backup = backup??;
        out.either(
            &serde_json::json!({ "path": backup.path, "version": backup.version.0, "bytes": backup.bytes }),
            format!("{}: version {}, {}", backup.path.display(), backup.version, about_size(backup.bytes)),
        )
    }
}
