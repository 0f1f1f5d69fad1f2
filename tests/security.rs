//! What SECURITY.md says: files are their owner's, what strangers planted is refused, and arguments are in no log.
#![cfg(unix)]

mod cli_support;

use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use cli_support::{Cli, Ran, until};

const UNAVAILABLE: i32 = 5;
/// A user who owns nothing.
const NOBODY: u32 = 65_534;
/// What a command that meets something planted may take: less than it would wait for a lock that is never free.
const SOON: Duration = Duration::from_secs(9);

/// All that is at and below a path.
fn all(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    if fs::symlink_metadata(path).unwrap().is_dir() {
        let below = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        found.extend(below.flat_map(|path| all(&path)));
    }
    found
}

/// The folder beside the store.
fn beside(cli: &Cli) -> PathBuf {
    cli.path("app.redb.d")
}

fn is_root(cli: &Cli) -> bool {
    fs::metadata(cli.path("")).unwrap().uid() == 0
}

#[test]
fn store_folder_log_socket_and_session_files_are_their_owners_alone() {
    let cli = Cli::new();
    // A umask that takes nothing away, so that what is private was made so.
    let script = "umask 000 && exec \"$0\" \"$@\"";
    let masked = |args: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_casque")]).args(args).env("CASQUE_STORE", cli.store());
        command.current_dir(cli.path(""));
        command
    };
    let mut serving = masked(&["serve"]).spawn().unwrap();
    until("the socket", || beside(&cli).join("sock").exists().then_some(()));
    Ran::of(masked(&["exec", "--", "sh", "-c", "read line < go"]).output().unwrap()).succeeds();
    assert!(Command::new("mkfifo").arg(cli.path("go")).status().unwrap().success());
    let mut work = masked(&["work", "--drain", "--allow-exec"]).spawn().unwrap();
    let child = beside(&cli).join("children");
    until("the command's lock", || fs::read_dir(&child).unwrap().next().map(drop));

    let mut kinds = Vec::new();
    for path in [cli.store().to_owned()].into_iter().chain(all(&beside(&cli))) {
        let metadata = fs::symlink_metadata(&path).unwrap();
        assert_eq!(metadata.mode() & 0o077, 0, "{} is open to others", path.display());
        kinds.push(path.strip_prefix(cli.path("")).unwrap().to_owned());
    }
    for name in ["app.redb.d/log", "app.redb.d/sock", "app.redb.d/lock", "app.redb.d/wakes"] {
        assert!(kinds.contains(&PathBuf::from(name)), "{name} was not looked at: {kinds:?}");
    }
    for folder in ["app.redb.d/sessions", "app.redb.d/children"] {
        assert!(kinds.iter().filter(|kind| kind.starts_with(folder)).count() > 1, "none in {folder}: {kinds:?}");
    }

    fs::write(cli.path("go"), "\n").unwrap();
    assert!(work.wait().unwrap().success());
    serving.kill().unwrap();
    serving.wait().unwrap();
}

#[test]
fn folder_that_others_may_write_to_or_own_is_refused_by_name_and_left_alone() {
    for is_new in [true, false] {
        let cli = Cli::new();
        if is_new {
            fs::create_dir(beside(&cli)).unwrap();
        } else {
            cli.id(&["enqueue", "a"]);
        }
        let before = all(&beside(&cli));
        let refused = |why: &str| {
            for args in [["enqueue", "a"].as_slice(), &["work", "--drain"], &["list"], &["check"], &["serve"]] {
                if is_new && matches!(args[0], "list" | "check") {
                    continue; // there is no store to read
                }
                cli.run(args).fails(UNAVAILABLE, &["app.redb.d", why, "move it away"]);
            }
            assert_eq!(all(&beside(&cli)), before);
            assert_eq!(cli.store().exists(), !is_new, "nothing was made beside a folder that is refused");
        };
        for mode in [0o777, 0o720, 0o702] {
            fs::set_permissions(beside(&cli), fs::Permissions::from_mode(mode)).unwrap();
            refused("may be written to by others");
        }
        fs::set_permissions(beside(&cli), fs::Permissions::from_mode(0o700)).unwrap();
        if is_root(&cli) {
            chown(beside(&cli), Some(NOBODY), Some(NOBODY)).unwrap();
            refused("neither to this user nor to the store's owner");
        } else {
            eprintln!("SKIPPED: this user can't give a folder away");
        }
    }
}

/// What may be in place of a file.
#[derive(Clone, Copy, Debug)]
enum Planted {
    Link,
    Pipe,
    Folder,
}

#[test]
fn links_pipes_and_folders_in_place_of_files_are_neither_followed_nor_waited_for() {
    for name in ["lock", "bell", "log", "sock", "wakes", "turn-suspects", "sessions", "children"] {
        for planted in [Planted::Link, Planted::Pipe, Planted::Folder] {
            let cli = Cli::new();
            cli.id(&["enqueue", "a"]);
            let path = beside(&cli).join(name);
            let precious = cli.write("precious", "what others wrote");
            // A command that has ended leaves a folder or a file, or nothing.
            let _ = fs::remove_dir_all(&path);
            let _ = fs::remove_file(&path);
            match planted {
                Planted::Link => symlink(&precious, &path).unwrap(),
                Planted::Pipe => assert!(Command::new("mkfifo").arg(&path).status().unwrap().success()),
                Planted::Folder => fs::create_dir(&path).unwrap(),
            }
            for args in [["enqueue", "a"].as_slice(), &["list"], &["exec", "--", "true"], &["doctor"], &["check"]] {
                let begun = Instant::now();
                let ran = cli.run(args);
                assert!(begun.elapsed() < SOON, "{planted:?} {name}: {args:?} took {:?}", begun.elapsed());
                assert!(
                    ran.code == 0 || ran.code == 1 && args == ["doctor"] || ran.code == UNAVAILABLE,
                    "{planted:?} {name}: {args:?}: {ran:?}"
                );
                if ran.code == UNAVAILABLE {
                    assert!(ran.stderr.contains(name), "{planted:?} {name}: {args:?} names it not: {ran:?}");
                }
            }
            work(&cli, planted, name);
            assert_eq!(fs::read_to_string(&precious).unwrap(), "what others wrote", "{planted:?} {name}");
            assert_eq!(fs::metadata(&precious).unwrap().mode() & 0o777, 0o644, "{planted:?} {name}");
        }
    }
}

/// A worker either works or says what is in its way; it does not hang.
fn work(cli: &Cli, planted: Planted, name: &str) {
    let mut worker = cli.start(&["work", "--drain", "--allow-exec"]);
    let until = Instant::now() + SOON;
    while worker.runs() && Instant::now() < until {
        // waits: for the worker to end, however long it takes
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!worker.runs(), "{planted:?} {name}: the worker hangs");
    let ran = worker.end();
    assert!([0, UNAVAILABLE].contains(&ran.code), "{planted:?} {name}: {ran:?}");
}

#[test]
fn arguments_metadata_and_results_are_in_no_log_above_debug() {
    const SECRET: &str = "hunter2-is-no-password";
    let cli = Cli::new();
    let args = format!("{{\"token\": \"{SECRET}\"}}");
    let metadata = format!("tenant={SECRET}");
    let all: [&[&str]; 12] = [
        &["enqueue", "mail", "--args", &args, "--metadata", &metadata, "--unique", SECRET],
        &["enqueue", "mail", "--args", &args, "--metadata", &metadata, "--unique", SECRET],
        &["exec", "--max-attempts", "1", "--", "sh", "-c", "exit 3", SECRET],
        &["exec", "--keep", "--", "echo", SECRET],
        &["root", "put", "settings", &args],
        &["list", "--queue", "none"],
        &["work", "--drain", "--allow-exec"],
        &["work", "--drain", "--allow-exec", "--strict"],
        &["cancel", "1"],
        &["retry", "--all"],
        &["check"],
        &["doctor"],
    ];
    for args in all {
        let command = |level: &str| {
            let mut command = cli.command(&[&["-v"], args].concat());
            Ran::of(command.env("CASQUE_LOG", level).output().unwrap())
        };
        let ran = command("casque=info");
        assert!(!ran.stderr.contains(SECRET), "{args:?}: {ran:?}");
    }
    // What is asked for is shown: the secret was there.
    assert!(cli.run(&["list"]).stdout.contains(SECRET) || cli.run(&["show", "1"]).stdout.contains(SECRET));
}

#[test]
fn socket_is_a_socket_and_gone_with_its_stone() {
    let cli = Cli::new();
    let serving = cli.start(&["serve"]);
    let socket = beside(&cli).join("sock");
    until("the socket", || {
        fs::symlink_metadata(&socket).is_ok_and(|found| found.file_type().is_socket()).then_some(())
    });
    serving.signal("TERM");
    serving.end();
    assert!(!socket.exists());
}
