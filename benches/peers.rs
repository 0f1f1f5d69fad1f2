//! casque beside its peers: `cargo bench --bench peers -- [OPTIONS]`, where `--help` names the options.
//!
//! The bench is a package of its own, in the folder beside this file: nobody who builds or checks casque shall have to
//! build its peers and their clients. This here only builds and runs it; `scripts/bench-peers` installs the peers too.

use std::{
    env,
    path::Path,
    process::{Command, ExitCode},
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn main() -> ExitCode {
    let root = Path::new(ROOT);
    let manifest = root.join("benches/peers/Cargo.toml");
    if !manifest.exists() {
        eprintln!("there is no {}: the bench beside the peers is in the repository only", manifest.display());
        return ExitCode::FAILURE;
    }
    // A folder of its own, for it is built with other settings.
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into).join("peers");
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["run", "--release", "--quiet", "--manifest-path"]).arg(manifest);
    command.arg("--target-dir").arg(target).arg("--").args(env::args_os().skip(1));
    match command.status() {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            eprintln!("cargo can't be run: {error}");
            ExitCode::FAILURE
        }
    }
}
