//! What goes to stdout: lines for people, or one JSON object per line.

use std::io::{self, BufWriter, Stdout, Write};

use serde::Serialize;

use super::exit::{Exit, Failure};

pub(super) struct Output {
    pub(super) json: bool,
    stdout: BufWriter<Stdout>,
}

impl Output {
    pub(super) fn new(json: bool) -> Self {
        Self { json, stdout: BufWriter::new(io::stdout()) }
    }

    pub(super) fn line(&mut self, text: impl std::fmt::Display) -> Result<(), Failure> {
        writeln!(self.stdout, "{text}").map_err(|error| Failure::of_output(&error))
    }

    pub(super) fn object(&mut self, object: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(object)
            .map_err(|error| Failure::new(Exit::Failed, format!("the output can't be written as JSON: {error}")))?;
        self.line(text)
    }

    /// The object where JSON was asked for, else the text.
    pub(super) fn either(&mut self, object: &impl Serialize, text: impl std::fmt::Display) -> Result<(), Failure> {
        if self.json { self.object(object) } else { self.line(text) }
    }

    /// What is printed so far reaches whoever reads it.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        self.stdout.flush().map_err(|error| Failure::of_output(&error))
    }
}
