//! The `casque` command.
#![warn(clippy::disallowed_methods, clippy::unwrap_used)]

fn main() {}
