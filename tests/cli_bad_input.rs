//! Bad input: each gets an error that names the thing and the remedy, the right exit code, and changes nothing.

mod cli_support;
#[path = "processes/disk.rs"]
mod disk;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use cli_support::{Cli, Ran};
use disk::Disk;
use redb::{Builder, ConcurrencyMode, ReadableDatabase as _, TableDefinition};
use serde_json::Value;

const OK: i32 = 0;
const USAGE: i32 = 2;
const UNAVAILABLE: i32 = 5;
const DAMAGED: i32 = 6;

/// What reads, writes and checks.
const EVERYTHING: [&[&str]; 6] =
    [&["list"], &["stats"], &["enqueue", "a"], &["exec", "--", "true"], &["work", "--drain"], &["check"]];

/// All that is in a folder: names and bytes.
fn contents(folder: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
            found.push((path, None));
        } else {
            let bytes = fs::read(&path).unwrap();
            found.push((path, Some(bytes)));
        }
    }
    found.sort();
    found
}

/// A store's bytes, and the names of what is in its folder beside it.
fn files(cli: &Cli) -> (Vec<u8>, Vec<PathBuf>) {
    let folder = contents(&cli.store().with_file_name("app.redb.d"));
    (fs::read(cli.store()).unwrap(), folder.into_iter().map(|(path, _)| path).collect())
}

/// Reading, writing and checking all fail in the same way, and leave the folder as it was.
fn refuses(cli: &Cli, code: i32, names: &[&str]) {
    let before = contents(&cli.path(""));
    for args in EVERYTHING {
        cli.run(args).fails(code, names);
        assert!(contents(&cli.path("")) == before, "{args:?} changed something");
    }
}

/// A command with wrong arguments fails, and neither makes a store nor changes a byte of one.
fn is_wrong_usage(args: &[&str], stdin: &str, names: &[&str]) {
    let cli = Cli::new();
    cli.run_with_stdin(args, stdin).fails(USAGE, names);
    assert_eq!(contents(&cli.path("")), [], "{args:?} made something");

    cli.id(&["enqueue", "a"]);
    let before = files(&cli);
    cli.run_with_stdin(args, stdin).fails(USAGE, names);
    assert!(files(&cli) == before, "{args:?} changed a byte");
}

/// The same for what only an open store can tell, by its settings: redb keeps books of its own in the file when it is
/// opened and closed, so the store's version and all that can be seen of it must be as they were.
fn is_refused_by_the_store(args: &[&str], stdin: &str, names: &[&str]) {
    let cli = Cli::new();
    cli.run_with_stdin(args, stdin).fails(USAGE, names);
    assert_eq!(contents(&cli.path("")), [], "{args:?} made something");
    cli.id(&["enqueue", "a"]);
    let before = everything_seen(&cli);
    cli.run_with_stdin(args, stdin).fails(USAGE, names);
    assert_eq!(everything_seen(&cli), before, "{args:?} changed something");
}

/// The store's version, queues, jobs, objects and sessions.
fn everything_seen(cli: &Cli) -> [Vec<Value>; 4] {
    [cli.figures(), cli.json(&["list"]), cli.json(&["root", "ls"]), cli.json(&["sessions"])]
}

#[test]
fn store_path_that_is_a_folder() {
    let cli = Cli::new().at("folder");
    fs::create_dir(cli.store()).unwrap();
    refuses(&cli, UNAVAILABLE, &["folder", "it is a folder", "name another path"]);
}

#[test]
fn store_path_below_a_file_or_in_no_folder() {
    let cli = Cli::new().at("file/app.redb");
    cli.write("file", "text");
    let before = contents(&cli.path(""));
    cli.run(&["enqueue", "a"]).fails(UNAVAILABLE, &["file", "not a folder"]);
    assert_eq!(contents(&cli.path("")), before);
    let cli = cli.at("none/app.redb");
    cli.run(&["enqueue", "a"]).fails(UNAVAILABLE, &["none", "make it, or name another"]);
    cli.run(&["list"]).fails(UNAVAILABLE, &["none/app.redb", "--store"]);
    assert_eq!(contents(&cli.path("")), before);
}

#[test]
fn store_path_with_a_name_that_is_too_long() {
    // What is beside it has two letters more.
    let cli = Cli::new().at(&"x".repeat(254));
    cli.run(&["enqueue", "a"]).fails(UNAVAILABLE, &["shorter name"]);
    let cli = cli.at(&"x".repeat(300));
    let ran = cli.run(&["enqueue", "a"]).fails(UNAVAILABLE, &["shorter name"]);
    assert!(!ran.stderr.contains("mount"), "{ran:?}");
}

#[test]
fn file_that_is_no_store() {
    let cli = Cli::new();
    for text in ["hello\n".to_owned(), "x".repeat(1 << 20), String::new()] {
        cli.write("app.redb", text);
        refuses(&cli, UNAVAILABLE, &["app.redb", "not a casque store", "name another path"]);
    }
}

#[test]
fn database_that_is_no_store() {
    let cli = Cli::new();
    let database = builder().create(cli.store()).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(TableDefinition::<&str, u64>::new("other")).unwrap().insert("a", 1).unwrap();
    write.commit().unwrap();
    drop(database);
    refuses(&cli, UNAVAILABLE, &["app.redb", "not a casque store", "name another path"]);
}

#[test]
fn store_of_a_newer_format() {
    const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("rows");
    const FORMAT: &[u8] = &[1];
    let cli = Cli::new();
    cli.id(&["enqueue", "a"]);
    let database = builder().open(cli.store()).unwrap();
    let read = database.begin_read().unwrap();
    let mut record = read.open_table(ROWS).unwrap().get(FORMAT).unwrap().unwrap().value().to_vec();
    drop(read);
    assert_eq!(record[2], 1, "after the codec's two bytes comes the format's number");
    record[2] = 99;
    let write = database.begin_write().unwrap();
    write.open_table(ROWS).unwrap().insert(FORMAT, &record[..]).unwrap();
    write.commit().unwrap();
    drop(database);
    refuses(&cli, UNAVAILABLE, &["app.redb", "format 99", "use a newer casque"]);
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_concurrency_mode(ConcurrencyMode::MultiWriter);
    builder
}

#[test]
fn truncated_store() {
    let cli = Cli::new();
    cli.id(&["enqueue", "a", "--count", "1000"]);
    let whole = fs::read(cli.store()).unwrap();
    for part in [5_000, whole.len() / 2] {
        cli.write("app.redb", &whole[..part]);
        refuses(&cli, DAMAGED, &["app.redb", "truncated", "keep the file", "backup"]);
    }
    // Where all rows are there, they can be read; nothing is written.
    let part = &whole[..whole.len() - 1];
    cli.write("app.redb", part);
    cli.run(&["stats"]).succeeds();
    cli.run(&["enqueue", "a"]).fails(DAMAGED, &["app.redb", "truncated", "keep the file", "backup"]);
    let ran = cli.run(&["check"]);
    assert_eq!(ran.code, DAMAGED, "{ran:?}");
    assert!(ran.stdout.contains("truncated"), "{ran:?}");
    assert!(fs::read(cli.store()).unwrap() == part);
    cli.write("app.redb", whole);
    cli.run(&["check"]).succeeds();
}

#[test]
fn store_on_a_disk_that_may_only_be_read() {
    let cli = Cli::new().at("disk/app.redb");
    let Some(disk) = Disk::mount(&cli.path("disk"), "1m") else { return };
    cli.id(&["enqueue", "a"]);
    disk.make_read_only();
    let before = contents(&cli.path("disk"));
    cli.run(&["enqueue", "a"]).fails(UNAVAILABLE, &["app.redb", "owner"]);
    assert_eq!(cli.json(&["list"]).len(), 1, "it may still be read");
    assert!(contents(&cli.path("disk")) == before);
}

#[cfg(unix)]
#[test]
fn store_that_its_owner_made_read_only() {
    use std::os::unix::fs::{PermissionsExt as _, chown};

    let cli = Cli::new();
    cli.id(&["enqueue", "a"]);
    fs::set_permissions(cli.store(), fs::Permissions::from_mode(0o400)).unwrap();
    let owner = Ordinary::new();
    if owner.is_another() {
        let all = contents(&cli.path("")).into_iter().map(|(path, _)| path);
        all.chain([cli.path("")]).for_each(|path| chown(path, Some(NOBODY), Some(NOBODY)).unwrap());
    }
    let before = files(&cli);
    owner.run(&cli, &["enqueue", "a"]).fails(UNAVAILABLE, &["app.redb", "permission", "owner"]);
    owner.run(&cli, &["check"]).fails(UNAVAILABLE, &["app.redb", "permission", "owner"]);
    assert_eq!(owner.run(&cli, &["--json", "list"]).succeeds().json().len(), 1, "it may still be read");
    assert!(files(&cli) == before);
}

#[cfg(unix)]
#[test]
fn store_of_somebody_else() {
    use std::os::unix::fs::PermissionsExt as _;

    let cli = Cli::new();
    let stranger = Ordinary::new();
    if !stranger.is_another() {
        eprintln!("SKIPPED: this user may not act as another");
        return;
    }
    cli.id(&["enqueue", "a"]);
    fs::set_permissions(cli.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let before = contents(&cli.path(""));
    for args in EVERYTHING {
        stranger.run(&cli, args).fails(UNAVAILABLE, &["app.redb", "permission", "owner"]);
        assert!(contents(&cli.path("")) == before, "{args:?} changed something");
    }
    assert_eq!(cli.json(&["list"]).len(), 1);
    // Doctor tells what can be seen all the same.
    let ran = stranger.run(&cli, &["doctor"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    for part in ["file      ", "what is beside the store can't be looked at", "run this as the owner"] {
        assert!(ran.stdout.contains(part), "no \"{part}\" in: {ran:?}");
    }
    assert!(contents(&cli.path("")) == before);
}

/// The user of that number, who owns nothing.
#[cfg(unix)]
const NOBODY: u32 = 65_534;

/// An ordinary user, for whom permissions count: the one who runs the tests, or `NOBODY` where that is root.
#[cfg(unix)]
struct Ordinary {
    /// Where `NOBODY` finds the binary: others may not enter the folder that it was built in.
    folder: tempfile::TempDir,
}

#[cfg(unix)]
impl Ordinary {
    fn new() -> Self {
        let user = Self { folder: tempfile::tempdir().unwrap() };
        if user.is_another() {
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(user.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
            fs::copy(env!("CARGO_BIN_EXE_casque"), user.binary()).unwrap();
        }
        user
    }

    fn binary(&self) -> PathBuf {
        self.folder.path().join("casque")
    }

    /// Whether commands run as another user than the tests do.
    fn is_another(&self) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        self.folder.path().metadata().unwrap().uid() == 0
    }

    fn run(&self, cli: &Cli, args: &[&str]) -> Ran {
        use std::os::unix::process::CommandExt as _;
        let mut command = cli.command(args);
        if self.is_another() {
            command = Command::new(self.binary());
            command.args(args).env("CASQUE_STORE", cli.store()).env_remove("CASQUE_LOG").current_dir(&self.folder);
            command.uid(NOBODY).gid(NOBODY);
        }
        Ran::of(command.stdin(Stdio::null()).output().unwrap())
    }
}

#[test]
fn full_disk() {
    let cli = Cli::new().at("disk/app.redb");
    let Some(_disk) = Disk::mount(&cli.path("disk"), "512k") else { return };
    cli.id(&["enqueue", "a"]);
    let before = cli.figures();
    let large = format!("\"{}\"", "x".repeat(600_000));
    cli.run_with_stdin(&["enqueue", "a", "--args", "-"], &large)
        .fails(UNAVAILABLE, &["app.redb", "nothing was written", "disk is full", "free some space"]);
    assert_eq!(cli.figures(), before);
    cli.run(&["check"]).succeeds();
    cli.run(&["enqueue", "a"]).succeeds();
}

#[test]
fn disk_that_is_too_small_for_a_store() {
    let cli = Cli::new().at("disk/app.redb");
    let Some(_disk) = Disk::mount(&cli.path("disk"), "16k") else { return };
    cli.run(&["enqueue", "a"]).fails(UNAVAILABLE, &["app.redb", "free some"]);
    assert!(!cli.store().exists());
}

#[test]
fn task_that_nobody_here_knows() {
    let cli = Cli::new();
    let id = cli.id(&["enqueue", "resize"]);
    let before = everything_seen(&cli);
    let ran = cli.run(&["work", "--drain"]);
    assert_eq!(ran.code, OK, "{ran:?}");
    assert!(ran.stderr.contains("task \"resize\", which is unknown here"), "{ran:?}");
    assert!(!ran.stdout.contains("left alone"), "it is said once: {ran:?}");
    assert_eq!(everything_seen(&cli), before);
    assert_eq!(cli.state(&id), "ready");
    assert_eq!(cli.one(&["show", &id])["attempt"], 0);
    is_wrong_usage(&["enqueue", ""], "", &["task name is empty"]);
    is_wrong_usage(&["enqueue", "exec", "--args", "[]"], "", &["arguments of task \"exec\""]);
}

#[test]
fn bad_json() {
    is_wrong_usage(&["enqueue", "a", "--args", "{\"x\":"], "", &["arguments", "not valid JSON", "line 1 column 5"]);
    is_wrong_usage(&["enqueue", "a", "--args", "-"], "{]", &["arguments", "not valid JSON", "column 2"]);
    is_wrong_usage(&["enqueue", "a", "--args", ""], "", &["arguments", "not valid JSON"]);
    let says = ["value of \"k\"", "not valid JSON", "a string needs quotes: '\"nope\"'"];
    is_wrong_usage(&["root", "put", "k", "nope"], "", &says);
}

#[test]
fn payload_over_the_limit() {
    let large = format!("\"{}\"", "x".repeat(1 << 20));
    is_refused_by_the_store(
        &["enqueue", "a", "--args", "-"],
        &large,
        &["arguments of \"a\"", "1048578", "1048576", "payload-max"],
    );
    is_refused_by_the_store(&["root", "put", "k", "-"], &large, &["value of \"k\"", "1048578", "1048576"]);
    let line = format!("{{}}\n{{\"args\": {large}}}");
    is_refused_by_the_store(
        &["enqueue", "a", "--from", "-"],
        &line,
        &["line 2 of stdin", "1048576", "nothing was enqueued"],
    );
}

#[test]
fn empty_or_too_long_key() {
    is_wrong_usage(&["root", "put", "", "1"], "", &["key is empty"]);
    is_wrong_usage(&["root", "put", &"k".repeat(513), "1"], "", &["513 bytes", "at most 512"]);
    is_wrong_usage(&["enqueue", "a", "--unique", ""], "", &["unique key name is empty"]);
    is_wrong_usage(&["enqueue", &"t".repeat(129)], "", &["129 bytes", "at most 128"]);
    let cli = Cli::new();
    cli.run(&["root", "put", &"k".repeat(512), "1"]).succeeds();
    cli.run(&["root", "get", ""]).fails(USAGE, &["key is empty"]);
}

#[test]
fn priority_out_of_range() {
    for priority in ["101", "-101", "9999999999"] {
        is_wrong_usage(&["enqueue", "a", "--priority", priority], "", &[priority, "-100 to 100"]);
    }
    is_wrong_usage(&["enqueue", "a", "--priority", "high"], "", &["high", "--priority"]);
    is_wrong_usage(&["exec", "--priority", "101", "--", "true"], "", &["101", "-100 to 100"]);
    is_wrong_usage(&["enqueue", "a", "--max-attempts", "0"], "", &["at least one attempt"]);
}

#[test]
fn numbers_and_pairs_say_what_is_allowed() {
    is_wrong_usage(&["enqueue", "a", "--count", "0"], "", &["--count", "a whole number, 1 or more"]);
    is_wrong_usage(&["work", "--concurrency", "x"], "", &["--concurrency", "a whole number, 1 or more"]);
    is_wrong_usage(&["exec", "--env", "FOO", "--", "true"], "", &["\"FOO\" is not NAME=VALUE"]);
    is_wrong_usage(&["enqueue", "a", "--metadata", "FOO"], "", &["\"FOO\" is not KEY=VALUE"]);
}

/// redb panics on some of these pages: that is told as damage, and nothing of a panic is to be seen.
#[test]
fn zeroed_page() {
    let cli = Cli::new();
    cli.id(&["enqueue", "a", "--count", "300"]);
    let whole = fs::read(cli.store()).unwrap();
    let mut gave_up = 0;
    for page in (1..whole.len() / 4096).filter(|page| whole[page * 4096..][..4096].iter().any(|byte| *byte != 0)) {
        let mut damaged = whole.clone();
        damaged[page * 4096..][..4096].fill(0);
        cli.write("app.redb", damaged);
        let ran = cli.run(&["list"]);
        assert!(!ran.stderr.contains("panicked at") && !ran.stderr.contains("stack backtrace"), "{ran:?}");
        if ran.stderr.contains("redb gave up") {
            assert_eq!(ran.code, DAMAGED, "{ran:?}");
            gave_up += 1;
        }
    }
    assert!(gave_up > 0, "no page makes redb panic");
}

#[test]
fn queue_name_with_a_control_character() {
    for args in [
        &["enqueue", "a", "--queue", "me\tdia"][..],
        &["exec", "--queue", "me\tdia", "--", "true"],
        &["work", "--drain", "--queue", "me\tdia"],
        &["pause", "me\tdia"],
        &["resume", "me\tdia"],
    ] {
        is_wrong_usage(args, "", &["\"me\\tdia\"", "control character", "printable"]);
    }
    is_wrong_usage(&["enqueue", "a", "--queue", ""], "", &["queue name is empty"]);
}

#[cfg(unix)]
#[test]
fn child_that_nobody_but_a_person_started_says_so() {
    for role in ["serve", "once"] {
        let ran = Cli::new().run(&[&format!("casque-child:{role}")]);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{ran:?}");
    }
    let ran = Cli::new().run(&["casque-child:serve"]);
    assert!(ran.stderr.contains("the worker that should have started this process can't be reached"), "{ran:?}");
}
