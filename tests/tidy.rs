//! The style of this repository, as far as a program can check it. Each rule says where it is broken and what to do.
//!
//! A rule is a function from a file to its findings, so that the tests at the end can feed it files that break it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The longest line, in characters. A line that holds a link may be longer.
const LINE_CHARS_MAX: usize = 120;
/// The longest file in src, in lines.
const FILE_LINES_MAX: usize = 600;

/// What a module of src may name of the others as `crate::...`, in the order in which the modules build on each other.
/// The longest name that fits a file decides; a module may always name itself.
const DIRECTIONS: &[(&str, May)] = &[
    // A conflict is part of the error, and is told in terms of jobs and versions.
    ("error", May::Name(&["store::conflict"])),
    ("store::conflict", May::Name(&["queue::id"])),
    ("queue::id", May::Name(&["error", "random"])),
    ("clock", May::Name(&[])),
    ("random", May::Name(&["clock"])),
    // Switches that are no code where no bug is planted.
    ("planted", May::Name(&[])),
    ("codec", May::Name(&["error", "queue::id", "store::conflict"])),
    // Rows and bytes: an engine knows neither jobs, nor files beside the store, nor who may write.
    ("engine", May::Name(&["error", "clock"])),
    // Locks and files beside a store: no rows and no rules.
    ("local", May::Name(&["error", "clock", "random", "queue::id"])),
    // Commits for all: rows and versions. Of jobs it knows which claims wait, and of sessions whose file is to go.
    (
        "stone",
        May::Name(&[
            "error",
            "clock",
            "planted",
            "random",
            "codec",
            "engine",
            "local",
            "store",
            "queue::id",
            "queue::claim",
        ]),
    ),
    // The queue's rules live in the store's changes and the store serves the queue, so these know each other.
    ("queue", May::NameLibrary),
    ("store", May::NameLibrary),
    ("task", May::NameLibrary),
    ("child", May::NameLibrary),
    ("worker", May::NameLibrary),
    ("check", May::NameLibrary),
    ("sessions", May::NameLibrary),
    ("testing", May::NameLibrary),
    // Inputs for tests of what reads bytes.
    ("fuzz", May::Name(&["clock"])),
    // The command line stands on the library, and nothing on it.
    ("cli", May::NameLibrary),
];

/// What a module may name.
#[derive(Clone, Copy)]
enum May {
    /// These modules, and what is in them.
    Name(&'static [&'static str]),
    /// Every module but `cli`.
    NameLibrary,
}

/// Words that one place alone may use: the word, where, and what the others do instead.
const OWNED: &[(&str, &[&str], &str)] = &[
    ("bincode::", &["src/codec.rs"], "encode and decode with crate::codec"),
    ("Instant::now", &["src/clock.rs"], "use crate::clock"),
    ("SystemTime::now", &["src/clock.rs"], "use crate::clock"),
    ("UNIX_EPOCH", &["src/clock.rs"], "use crate::clock"),
    ("jiff::Timestamp::now", &["src/clock.rs"], "use crate::clock"),
    ("Zoned::now", &["src/clock.rs"], "use crate::clock"),
    ("thread::sleep", &["src/clock.rs"], "use crate::clock::sleep"),
    ("RandomState", &["src/random.rs", "src/clock.rs"], "use crate::random"),
    // The suite of the engines repeats a random test from its seed.
    ("fastrand", &["src/engine/conformance/", "src/fuzz.rs"], "use crate::random"),
    // In src/engine/mod.rs, and where a store is opened, `redb::` is the module of the engine itself.
    (
        "redb::",
        &["src/engine/redb/", "src/engine/conformance/", "src/engine/mod.rs", "src/store/open.rs"],
        "go through crate::engine",
    ),
];

/// What says that something was left unfinished, in code and in comments. Split, lest this file break its own rule.
const LEFT_IN_CODE: &[&str] = &["todo!(", "unimplemented!(", "dbg!("];
const LEFT_ANYWHERE: &[&str] = &[concat!("FIX", "ME"), concat!("XX", "X")];

/// A Rust file, twice: as it stands, and with comments and the insides of strings blanked out.
struct Source {
    path: String,
    lines: Vec<String>,
    code: Vec<String>,
    /// Whether a line is part of a test.
    is_test: Vec<bool>,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        let code: Vec<String> = blank(text).lines().map(str::to_owned).collect();
        let all_test = path.starts_with("tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs");
        let all_test = all_test || path.contains("/tests/") || path.contains("/conformance/");
        let is_test = if all_test { vec![true; code.len()] } else { test_lines(&code) };
        Self { path: path.to_owned(), lines: text.lines().map(str::to_owned).collect(), code, is_test }
    }

    fn in_src(&self) -> bool {
        self.path.starts_with("src/")
    }

    /// The path of the module: `engine::redb` for src/engine/redb.rs, empty for the crate's root.
    fn module(&self) -> String {
        let path = self.path.trim_start_matches("src/").trim_end_matches(".rs");
        let path = path.strip_suffix("/mod").unwrap_or(path);
        if matches!(path, "lib" | "main") { String::new() } else { path.replace('/', "::") }
    }

    fn finding(&self, index: usize, text: &str) -> String {
        format!("{}:{}: {text}", self.path, index + 1)
    }

    /// Findings for the lines whose code `is_wrong`.
    fn lines_where(&self, text: &str, is_wrong: impl Fn(usize, &str) -> bool) -> Vec<String> {
        let wrong = self.code.iter().enumerate().filter(|(index, code)| is_wrong(*index, code));
        wrong.map(|(index, _)| self.finding(index, text)).collect()
    }
}

fn line_length(file: &Source) -> Vec<String> {
    let long = |line: &String| line.chars().count() > LINE_CHARS_MAX && !line.contains("://");
    let lines = file.lines.iter().enumerate().filter(|(_, line)| long(line));
    lines.map(|(index, _)| file.finding(index, &format!("break the line: over {LINE_CHARS_MAX} characters"))).collect()
}

fn file_length(file: &Source) -> Vec<String> {
    let lines = file.lines.len();
    if file.in_src() && lines > FILE_LINES_MAX {
        return vec![file.finding(lines - 1, &format!("split the file by subject: over {FILE_LINES_MAX} lines"))];
    }
    Vec::new()
}

fn leftovers(file: &Source) -> Vec<String> {
    let mut findings = file.lines_where("finish what was left, or take it out", |_, code| {
        LEFT_IN_CODE.iter().any(|word| !finds(code, word).is_empty())
    });
    for (index, line) in file.lines.iter().enumerate() {
        if LEFT_ANYWHERE.iter().any(|word| !finds(line, word).is_empty()) {
            findings.push(file.finding(index, "settle the note, or say in a sentence what holds"));
        }
    }
    findings
}

fn ignored_tests(file: &Source) -> Vec<String> {
    file.lines_where("make the test pass everywhere, or remove it", |_, code| {
        code.contains("#[ignore") || (code.contains("cfg_attr(") && !finds(code, "ignore").is_empty())
    })
}

fn sleeps_in_tests(file: &Source) -> Vec<String> {
    let text = "wait for a signal or use a manual clock; where only sleeping will do, say so: `// waits: <for what>`";
    file.lines_where(text, |index, code| {
        let calls = finds(code, "sleep(");
        let sleeps = calls.into_iter().any(|at| !code[..at].ends_with('.') && !code[..at].ends_with("fn "));
        let told = |index: usize| file.lines[index].contains("// waits: ");
        file.is_test[index] && sleeps && !told(index) && !(index > 0 && told(index - 1))
    })
}

fn owned_words(file: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    for (word, owners, instead) in OWNED {
        let owns = |owner: &str| file.path == owner || (owner.ends_with('/') && file.path.starts_with(owner));
        if !file.in_src() || owners.iter().any(|owner| owns(owner)) {
            continue;
        }
        // After `::` it is a module of ours that has the same name.
        let named = |code: &str| finds(code, word).into_iter().any(|at| at == 0 || !code[..at].ends_with("engine::"));
        let text = format!("{instead}; only {} may name `{word}`", owners[0]);
        findings.extend(file.lines_where(&text, |_, code| named(code)));
    }
    findings
}

fn directions(file: &Source) -> Vec<String> {
    let module = file.module();
    if !file.in_src() || module.is_empty() {
        return Vec::new();
    }
    let Some((rule, may)) = direction_of(&module) else {
        return vec![file.finding(0, "add the module to DIRECTIONS in tests/tidy.rs: what may it name?")];
    };
    let top = module.split("::").next().unwrap_or_default();
    let mut findings = Vec::new();
    for (index, target) in named_modules(file) {
        let first = target.split("::").next().unwrap_or_default();
        // Tests may put together what the code keeps apart.
        if file.is_test[index] || within(&target, rule) || (first == top && rule == top) {
            continue;
        }
        let allowed = match may {
            May::Name(modules) => modules.iter().any(|allowed| within(&target, allowed)),
            May::NameLibrary => first != "cli",
        };
        if !allowed {
            let remedy = match may {
                _ if first.starts_with(|letter: char| letter.is_uppercase()) => "name the module that owns it",
                May::Name(_) => "move what is shared below both, or hand it in as an argument",
                May::NameLibrary => "the command line stands on the library: move what is needed out of it",
            };
            let text = format!("`{rule}` may not name `crate::{target}` (DIRECTIONS in tests/tidy.rs): {remedy}");
            findings.push(file.finding(index, &text));
        }
    }
    findings
}

/// The row of [`DIRECTIONS`] for a module: the one with the longest name.
fn direction_of(module: &str) -> Option<(&'static str, May)> {
    DIRECTIONS.iter().filter(|(name, _)| within(module, name)).max_by_key(|(name, _)| name.len()).copied()
}

/// Whether a path is that module or in it.
fn within(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// What a file names of its own crate: the line, and the path after `crate::`. A path up to the root by `super::` is
/// the same; one that stays within its top-level module is no business of ours.
fn named_modules(file: &Source) -> Vec<(usize, String)> {
    let module = file.module();
    let depth = module.split("::").count();
    let code = file.code.join("\n");
    let to_root = "super::".repeat(depth);
    let mut named = Vec::new();
    for prefix in ["crate::", to_root.as_str()] {
        for at in finds(&code, prefix) {
            if code[..at].ends_with(['$', ':']) {
                continue;
            }
            let mut paths = Vec::new();
            expand(&code[at + prefix.len()..], at + prefix.len(), "", &mut paths);
            for (offset, path) in paths {
                let line = code[..offset].matches('\n').count();
                named.push((line, path));
            }
        }
    }
    named
}

/// Takes a path, or a group of paths in braces, from the start of `code`, which stands at `offset`; adds each full path
/// to `paths`. Returns how many bytes it took.
fn expand(code: &str, offset: usize, prefix: &str, paths: &mut Vec<(usize, String)>) -> usize {
    let mut at = code.len() - code.trim_start().len();
    let rest = &code[at..];
    if rest.starts_with('{') {
        at += 1;
        loop {
            at += expand(&code[at..], offset + at, prefix, paths);
            let rest = code[at..].trim_start();
            at = code.len() - rest.len();
            match rest.chars().next() {
                Some(',') => at += 1,
                Some('}') => return at + 1,
                // Not a group of paths after all, or one with a rename: go on behind the next word.
                Some(letter) => at += letter.len_utf8(),
                None => return at,
            }
            if code[at..].trim_start().starts_with('}') {
                return code.len() - code[at..].trim_start().len() + 1;
            }
        }
    }
    let word_len = rest.find(|letter: char| !is_word(letter)).unwrap_or(rest.len());
    let word = &rest[..word_len];
    let after = &rest[word_len..];
    // A macro has no module of its own.
    if word.is_empty() || (prefix.is_empty() && after.starts_with('!')) {
        return at + word_len;
    }
    let path = if prefix.is_empty() { word.to_owned() } else { format!("{prefix}::{word}") };
    match after.strip_prefix("::") {
        Some(next) if next.starts_with(|letter: char| letter == '{' || is_word(letter)) => {
            let taken = at + word_len + 2;
            taken + expand(next, offset + taken, &path, paths)
        }
        _ => {
            paths.push((offset + at, path));
            at + word_len
        }
    }
}

/// Files in src that no `mod` line leads to from src/lib.rs or src/main.rs.
fn dead_files(files: &[Source]) -> Vec<String> {
    let mut alive: BTreeSet<String> = ["src/lib.rs", "src/main.rs"].map(str::to_owned).into();
    let mut next: Vec<String> = alive.iter().cloned().collect();
    while let Some(path) = next.pop() {
        let Some(file) = files.iter().find(|file| file.path == path) else { continue };
        let folder = match path.strip_suffix("/mod.rs") {
            Some(folder) => folder.to_owned(),
            None if matches!(path.as_str(), "src/lib.rs" | "src/main.rs") => "src".to_owned(),
            None => path.trim_end_matches(".rs").to_owned(),
        };
        for name in file.code.iter().filter_map(|code| declared_module(code)) {
            for child in [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")] {
                if alive.insert(child.clone()) {
                    next.push(child);
                }
            }
        }
    }
    let dead = files.iter().filter(|file| file.in_src() && !alive.contains(&file.path));
    dead.map(|file| file.finding(0, "remove the file, or add the `mod` line that leads to it")).collect()
}

/// The name in a line that says `mod name;`, with or without a visibility.
fn declared_module(code: &str) -> Option<&str> {
    let code = code.trim().strip_suffix(';')?;
    let at = finds(code, "mod ").into_iter().next()?;
    let name = &code[at + "mod ".len()..];
    ((at == 0 || code.starts_with("pub")) && !name.is_empty() && name.chars().all(is_word)).then_some(name)
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Where `word` stands in `text` as a word of its own.
fn finds(text: &str, word: &str) -> Vec<usize> {
    let whole = |at: &usize| {
        let goes_on = word.ends_with(is_word) && text[at + word.len()..].starts_with(is_word);
        !goes_on && !text[..*at].ends_with(is_word)
    };
    text.match_indices(word).map(|(at, _)| at).filter(whole).collect()
}

/// The lines from `#[cfg(test)]` to the end of what it stands before, told by the indentation that rustfmt gives.
fn test_lines(code: &[String]) -> Vec<bool> {
    let mut test = vec![false; code.len()];
    let mut index = 0;
    while index < code.len() {
        let line = &code[index];
        let indent = line.len() - line.trim_start().len();
        if line.trim_start().starts_with("#[cfg(test)]") || line.trim_start().starts_with("#[cfg(all(test") {
            let close = format!("{}}}", " ".repeat(indent));
            let ends = |line: &String| {
                line.starts_with(&close) || (line.ends_with(';') && line.len() - line.trim_start().len() == indent)
            };
            let end = code[index..].iter().position(ends).map_or(code.len() - 1, |length| index + length);
            test[index..=end].fill(true);
            index = end;
        }
        index += 1;
    }
    test
}

/// The text with each letter of a comment, and of a string's or character's inside, turned into a space.
fn blank(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < letters.len() {
        let end = match letters[at] {
            '/' if letters.get(at + 1) == Some(&'/') => find(&letters, at, |rest| rest[0] == '\n'),
            '/' if letters.get(at + 1) == Some(&'*') => block_comment(&letters, at),
            'r' if at == 0 || !is_word(letters[at - 1]) || letters[at - 1] == 'b' => raw_string(&letters, at),
            '"' => quoted(&letters, at, '"'),
            // A lifetime has no closing quote right after one letter; a character has, or begins with a backslash.
            '\'' if letters.get(at + 1) == Some(&'\\') || letters.get(at + 2) == Some(&'\'') => {
                quoted(&letters, at, '\'')
            }
            _ => at,
        };
        if end == at {
            out.push(letters[at]);
            at += 1;
        } else {
            out.extend(letters[at..end].iter().map(|letter| if *letter == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    out
}

/// The first place from `at` whose rest `is_end`, or the end.
fn find(letters: &[char], at: usize, is_end: impl Fn(&[char]) -> bool) -> usize {
    (at..letters.len()).find(|place| is_end(&letters[*place..])).unwrap_or(letters.len())
}

fn block_comment(letters: &[char], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at < letters.len() {
        let step = match letters[at..] {
            ['/', '*', ..] => 1,
            ['*', '/', ..] => -1,
            _ => {
                at += 1;
                continue;
            }
        };
        depth += step;
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    letters.len()
}

fn quoted(letters: &[char], start: usize, quote: char) -> usize {
    let mut at = start + 1;
    while at < letters.len() && letters[at] != quote {
        at += if letters[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(letters.len())
}

/// The end of a raw string that starts here, or `start` if none does.
fn raw_string(letters: &[char], start: usize) -> usize {
    let hashes = letters[start + 1..].iter().take_while(|letter| **letter == '#').count();
    let inside = start + 1 + hashes;
    if letters.get(inside) != Some(&'"') {
        return start;
    }
    let closes =
        |rest: &[char]| rest[0] == '"' && rest[1..].iter().take_while(|letter| **letter == '#').count() >= hashes;
    (find(letters, inside + 1, closes) + 1 + hashes).min(letters.len())
}

/// All Rust files of the repository, by path.
fn files() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = ["src", "tests", "examples", "benches"].map(|name| root.join(name)).into();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.expect("a folder of the repository can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a file of the repository can be read");
                let short = path.strip_prefix(root).expect("the path began with the root").to_string_lossy();
                files.push(Source::new(&short.replace('\\', "/"), &text));
            }
        }
    }
    assert!(files.iter().any(|file| file.path == "src/lib.rs"), "src/lib.rs is not where it should be");
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

fn assert_tidy(rule: impl Fn(&Source) -> Vec<String>) {
    assert_none(&files().iter().flat_map(rule).collect::<Vec<_>>());
}

fn assert_none(findings: &[String]) {
    assert!(findings.is_empty(), "{} to tidy up:\n{}", findings.len(), findings.join("\n"));
}

#[test]
fn lines_are_short() {
    assert_tidy(line_length);
}

#[test]
fn files_fit_in_the_head() {
    assert_tidy(file_length);
}

#[test]
fn nothing_is_left_unfinished() {
    assert_tidy(leftovers);
}

#[test]
fn no_test_is_ignored() {
    assert_tidy(ignored_tests);
}

#[test]
fn tests_that_sleep_say_what_for() {
    assert_tidy(sleeps_in_tests);
}

#[test]
fn modules_name_only_what_they_may() {
    assert_tidy(directions);
}

#[test]
fn what_one_module_owns_is_named_there_only() {
    assert_tidy(owned_words);
}

#[test]
fn every_file_is_compiled() {
    assert_none(&dead_files(&files()));
}

/// The rules, on files that break them.
mod rules {
    use super::*;

    fn lines(rule: impl Fn(&Source) -> Vec<String>, path: &str, text: &str) -> Vec<usize> {
        let findings = rule(&Source::new(path, text));
        findings.iter().map(|finding| finding.split(':').nth(1).unwrap().parse().unwrap()).collect()
    }

    #[test]
    fn comments_and_strings_are_no_code() {
        let text = "a // b\n\"c\\\"d\" 'e' '\\'' &'f g /* h /* i */\n j */ k r#\"l\"m\"# br\"n\" for";
        let code: Vec<String> = blank(text).lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(code, ["a", "&'fg", "kbfor"]);
        assert_eq!(blank(text).chars().count(), text.chars().count());
    }

    #[test]
    fn directions_see_through_groups_and_supers() {
        assert_eq!(lines(directions, "src/engine/mod.rs", "use crate::error::Result;\nuse crate::store::Store;"), [2]);
        let group =
            "use crate::{\n    error::{Error, Result},\n    queue::id::JobId,\n    engine::Rows,\n};\nuse a::{b};\n";
        assert_eq!(lines(directions, "src/engine/redb.rs", group), [3]);
        assert_eq!(lines(directions, "src/engine/redb.rs", "use super::Rows;\nuse super::super::store;"), [2]);
        assert_eq!(lines(directions, "src/engine/mod.rs", "fn f() -> super::local::Folder;"), [1]);
        assert_eq!(lines(directions, "src/local/mod.rs", "use crate::queue::{id::JobId, records::Job};"), [1]);
        assert_eq!(lines(directions, "src/local/mod.rs", "use crate::Error;"), [1]);
        assert_eq!(lines(directions, "src/worker/mod.rs", "use crate::{cli::Args, store::Store, Error};"), [1]);
        assert_eq!(lines(directions, "src/cli/work.rs", "use crate::{cli::Args, store::Store};"), [0; 0]);
        assert_eq!(lines(directions, "src/novelty.rs", ""), [1]);
    }

    #[test]
    fn directions_leave_tests_alone() {
        let text = "#[cfg(test)]\nmod tests {\n    use crate::store::Store;\n}\nuse crate::store::Store;\n";
        assert_eq!(lines(directions, "src/engine/mod.rs", text), [5]);
    }

    #[test]
    fn owned_words_are_found_elsewhere() {
        let text = "use redb::Database;\nuse crate::engine::redb::File;\nlet now = Instant::now();\n// bincode\n";
        assert_eq!(lines(owned_words, "src/store/mod.rs", text), [3, 1]);
        assert_eq!(lines(owned_words, "src/engine/redb/mod.rs", "use redb::Database;\nuse bincode::config;"), [2]);
        assert_eq!(lines(owned_words, "tests/rig.rs", text), [0; 0]);
    }

    #[test]
    fn leftovers_and_ignored_tests_are_found() {
        let text = format!("dbg!(1);\n\"dbg!(2)\"\n// {}: later\n", LEFT_ANYWHERE[0]);
        assert_eq!(lines(leftovers, "src/store/mod.rs", &text), [1, 3]);
        assert_eq!(lines(ignored_tests, "tests/a.rs", "#[ignore]\n#[ignore = \"slow\"]\n// #[ignore]"), [1, 2]);
    }

    #[test]
    fn sleeps_need_their_reason() {
        let text =
            "thread::sleep(a);\nthread::sleep(a); // waits: for the lock\nclock.sleep(a);\n// waits: b\nsleep(a);\n";
        assert_eq!(lines(sleeps_in_tests, "tests/a.rs", text), [1]);
        assert_eq!(lines(sleeps_in_tests, "src/clock.rs", text), [0; 0]);
    }

    #[test]
    fn lengths_are_counted() {
        let long = "é".repeat(LINE_CHARS_MAX + 1);
        let text = format!("{}\n{long}\n{long} https://a.example\n", "é".repeat(LINE_CHARS_MAX));
        assert_eq!(lines(line_length, "src/store/mod.rs", &text), [2]);
        assert_eq!(lines(file_length, "src/store/mod.rs", &"\n".repeat(FILE_LINES_MAX)), [0; 0]);
        assert_eq!(lines(file_length, "src/store/mod.rs", &"\n".repeat(FILE_LINES_MAX + 1)), [FILE_LINES_MAX + 1]);
    }

    #[test]
    fn dead_files_are_found() {
        let files = [
            ("src/lib.rs", "mod a;\npub(crate) mod b;\n// mod c;\n"),
            ("src/a.rs", "#[cfg(test)]\nmod tests;\n"),
            ("src/a/tests.rs", ""),
            ("src/b/mod.rs", "mod d;\n"),
            ("src/b/d.rs", ""),
            ("src/c.rs", ""),
        ];
        let files: Vec<Source> = files.iter().map(|(path, text)| Source::new(path, text)).collect();
        let dead = dead_files(&files);
        assert_eq!(dead.len(), 1);
        assert!(dead[0].starts_with("src/c.rs:1: "), "{}", dead[0]);
    }
}
