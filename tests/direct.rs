//! The tests with processes once more, where each process commits for itself and there is no stone. By themselves they
//! let their workers be the stone.
#![allow(clippy::duplicate_mod, reason = "each file brings the processes that it starts")]

#[path = "control.rs"]
mod control;
#[path = "flows.rs"]
mod flows;
#[path = "hijack.rs"]
mod hijack;
#[path = "kill_points.rs"]
mod kill_points;
#[path = "leases.rs"]
mod leases;
#[path = "limits.rs"]
mod limits;
#[path = "many_processes.rs"]
mod many_processes;
#[path = "named_locks.rs"]
mod named_locks;
#[path = "stress_main_job.rs"]
mod stress_main_job;
