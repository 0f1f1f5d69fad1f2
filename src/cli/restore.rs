//! `casque restore`.

use std::path::PathBuf;

use clap::Args;

use super::{bar, context::Context, exit::Failure, output::Output, units::about_size};
use crate::store::{
    open::resolve,
    restore::{check_target, refuse_store_at_work},
};

/// Make the store from a backup
#[derive(Debug, Args)]
#[command(after_help = "\
Makes the store at --store from a backup, which stays as it is. The backup is checked
first: exit code 6 if it is damaged. Nothing is overwritten: where a store is at that path,
or the folder beside it has the log or the processes of one that was there, nothing is
done: exit code 4. Move the old file and its folder away together.

Jobs that ran when the backup was taken are taken up again; what was enqueued after it is
not there, and its ids are given again.

Example:
  casque restore backups/monday.redb --store app.redb")]
pub(super) struct Restore {
    /// The backup
    src: PathBuf,
}

impl Restore {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        let free = check_target(&resolve(context.path())?).and_then(|()| refuse_store_at_work(&self.src));
        free.map_err(|error| Failure::of_job(&error))?;
        let bar = bar::of(Some(0), bar::BYTES);
        let restored = context.options().restore_telling(&self.src, context.path(), &mut |done, all| {
            bar::show(&bar, done, all);
        });
        bar.finish_and_clear();
        let restored = restored?;
        out.either(
            &serde_json::json!({ "path": restored.path, "version": restored.version.0, "bytes": restored.bytes }),
            format!("{}: version {}, {}", restored.path.display(), restored.version, about_size(restored.bytes)),
        )
    }
}
