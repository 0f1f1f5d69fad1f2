//! How far a command is, drawn on stderr where that is a terminal.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What is counted is bytes.
pub(super) const BYTES: &str = "{bar:40} {percent}% {bytes}/{total_bytes} {eta}";
/// What is counted tells nobody anything.
pub(super) const PARTS: &str = "{bar:40} {percent}% {eta}";

/// A bar for so much in all, where that is known.
pub(super) fn of(length: Option<u64>, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
    if length.is_none() {
        return bar;
    }
    ProgressStyle::with_template(template).map_or(bar.clone(), |style| bar.with_style(style))
}

/// Shows that so much is done, of so much in all.
pub(super) fn show(bar: &ProgressBar, done: u64, all: u64) {
    bar.set_length(all);
    bar.set_position(done);
}
