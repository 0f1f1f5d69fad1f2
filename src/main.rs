//! The `casque` command. A binary with tasks of its own has the same commands by the same call.
#![warn(clippy::disallowed_methods, clippy::unwrap_used)]

fn main() -> std::process::ExitCode {
    casque::cli::run(casque::Registry::new())
}
