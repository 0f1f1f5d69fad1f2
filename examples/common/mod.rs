//! What all examples do alike: `--help` prints the head comment, an unknown option is refused, an error is printed for
//! people.

use std::{env, error::Error, process::ExitCode};

/// Runs the body of an example with its arguments; `source` is the example's own text.
pub fn run(source: &str, options: &[&str], body: impl FnOnce(&[&str]) -> Result<ExitCode, Box<dyn Error>>) -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let head = source.lines().map_while(|line| line.strip_prefix("//!")).map(|line| line.trim_start_matches(' '));
    if args.iter().any(|arg| ["--help", "-h"].contains(arg)) {
        head.filter(|line| !line.starts_with("```")).for_each(|line| println!("{line}"));
        return ExitCode::SUCCESS;
    }
    if let Some(option) = args.iter().find(|arg| arg.starts_with('-') && !options.contains(arg)) {
        let usage = head.into_iter().find(|line| line.starts_with("cargo run")).unwrap_or_default();
        eprintln!("there is no option {option}; usage: {usage}");
        return ExitCode::from(2);
    }
    body(&args).unwrap_or_else(|error| {
        let casque = error.downcast_ref::<casque::Error>();
        eprintln!("{}", casque.map_or_else(|| error.to_string(), casque::Error::full_message));
        ExitCode::FAILURE
    })
}
