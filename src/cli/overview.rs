//! The overview that `casque help` gives: the commands by what they are for.

/// How the help of the whole program is laid out: with the groups below in the place of clap's list.
pub(super) const TEMPLATE: &str = "\
{about}

{usage-heading} {usage}{after-help}

Options:
{options}
";

pub(super) const GROUPS: &str = "\
Jobs:
  enqueue     Enqueue a job, many of the same, or one per line of a file
  exec        Enqueue a command as a job
  seal        Say that nothing more is added to open batches
  work        Run the jobs of queues
  show        Show a job
  wait        Wait until a job has ended, and print its result
  log         Print what a job's handler wrote to the job's log
  list        List jobs

Tending jobs:
  cancel      Call jobs off
  retry       Put dead or cancelled jobs back, or let scheduled ones run now
  reschedule  Give jobs that have not begun another priority or time
  release     Take jobs from whoever holds them, and put them back
  requeue     Put jobs to the back of their queue
  purge       Remove jobs of a queue for good

Queues and processes:
  stats       The queues in numbers, and the store's figures
  queues      The queues, and how long their oldest job has waited
  pause       Keep the jobs of a queue or a task from being claimed
  resume      Let the jobs of a queue or a task be claimed again
  sessions    The processes that work on the store
  schedule    Jobs that are enqueued again and again: add, list, show, rm, pause, ...

The store:
  config      The store's settings; with --queue, a queue's
  serve       Commit for all processes on the store, until it is stopped
  lock        Run a command while holding a named lock
  locks       The named locks that are held, and who waits for them
  root        The objects on the persistent root: get, put, rm, ls, watch
  check       Check that the store is sound
  doctor      Tell who has what of the store, and what to do about what is wrong
  backup      Copy the store into a new file, while others work
  restore     Make the store from a backup
  compact     Make the file as small as what it holds
  bench       Measure what this machine and its disk give a store

`casque help COMMAND` tells more, with an example. Data goes to stdout, all else to stderr.
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 conflict, lost lease, or a
state that forbids the command, 5 store unavailable, 6 store damaged, 7 timed out.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::GROUPS;

    #[test]
    fn every_command_is_in_the_overview_and_has_an_example() {
        let cli = crate::cli::Cli::command();
        cli.clone().debug_assert();
        for command in cli.get_subcommands() {
            let name = command.get_name();
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let line = format!("  {name:<11} {about}\n");
            assert!(GROUPS.contains(&line), "the overview has no line {line:?}");
            let example = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(example.contains(&format!("casque {name}")), "{name} has no example");
        }
        let listed = GROUPS.lines().filter(|line| line.starts_with("  ")).count();
        assert_eq!(listed, cli.get_subcommands().count());
    }
}
