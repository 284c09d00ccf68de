//! Rules about Rust files.

use std::path::Path;

use super::{SourceFile, Tree};

/// Above this a file needs a reason in [`LONG_FILES`].
const SOFT_LINES: usize = 600;
/// Above this a file is split, whatever the reason.
const HARD_LINES: usize = 1_000;

/// Files that may have more than [`SOFT_LINES`] lines, each with why it is one piece.
static LONG_FILES: &[(&str, &str)] = &[];

/// Folders below a crate whose files are lists of cases, not code to be read through.
static CASE_FOLDERS: &[&str] = &["/tests/", "/benches/", "/tables/"];
/// File names that say the same.
static TABLE_FILES: &[&str] = &["tables.rs", "tests.rs"];

/// Folders in which every file is one entry of a list, and the file that holds the list.
static REGISTRIES: &[(&str, &str)] = &[
    ("crates/smelt-models/src/families/", "crates/smelt-models/src/families/mod.rs"),
    ("crates/smelt-quant/src/formats/", "crates/smelt-quant/src/formats/mod.rs"),
];

/// Files of those folders that are no entry of the list, each with what it is.
static UNREGISTERED: &[(&str, &str)] = &[];

/// The one file that reads Smelt's settings from the environment.
const ENVIRONMENT: &str = "crates/smelt-cli/src/env.rs";

pub(super) fn sizes(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for file in tree.rust() {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        if CASE_FOLDERS.iter().any(|folder| file.path.contains(folder)) || TABLE_FILES.contains(&name) {
            continue;
        }
        let lines = file.text.lines().count();
        let has_reason = LONG_FILES.iter().any(|(path, _)| *path == file.path);
        if lines > HARD_LINES {
            problems.push(format!("{}: {lines} lines, more than {HARD_LINES}: split it", file.path));
        } else if lines > SOFT_LINES && !has_reason {
            problems.push(format!(
                "{}: {lines} lines, more than {SOFT_LINES}: split it, or say in LONG_FILES why not",
                file.path
            ));
        } else if lines <= SOFT_LINES && has_reason {
            problems.push(format!("{}: short again: drop it from LONG_FILES", file.path));
        }
    }
    problems
}

pub(super) fn simd(tree: &Tree) -> Vec<String> {
    let modules = [concat!("std::", "arch"), concat!("core::", "arch")];
    let files = tree.rust().filter(|file| !file.path.starts_with("crates/smelt-cpu/"));
    files
        .flat_map(|file| find(file, &modules))
        .map(|place| format!("{place}: only smelt-cpu may use it"))
        .collect()
}

pub(super) fn environment(tree: &Tree) -> Vec<String> {
    // Covers `var`, `var_os` and `vars`; the compile-time `env!` is another thing.
    let readers = [concat!("env::", "var")];
    // A test's child process gets its orders that way.
    let exempt = |path: &str| path == ENVIRONMENT || path.starts_with("xtask/") || path.contains("/tests/");
    let files = tree.rust().filter(|file| !exempt(&file.path));
    files
        .flat_map(|file| find(file, &readers))
        .map(|place| {
            format!("{place}: only {ENVIRONMENT} reads the environment; pass the value as a setting")
        })
        .collect()
}

/// Where `file` has one of `words` outside comments: `path:line: word`.
fn find(file: &SourceFile, words: &[&str]) -> Vec<String> {
    let mut places = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for word in words.iter().filter(|word| code.contains(**word)) {
            places.push(format!("{}:{}: {word}", file.path, index + 1));
        }
    }
    places
}

pub(super) fn registered(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for &(folder, list) in REGISTRIES {
        let text = tree.file(list).map_or("", |file| file.text.as_str());
        for file in tree.rust().filter(|file| file.path.starts_with(folder) && file.path != list) {
            let below = &file.path[folder.len()..];
            let entry = below.split(['/', '.']).next().unwrap_or_default();
            let is_exempt = UNREGISTERED.iter().any(|(path, _)| *path == file.path);
            if !is_exempt && !is_in_list(text, entry) {
                let name = Path::new(list).display();
                problems.push(format!("{}: {name} has no entry `{entry}::…` for it", file.path));
            }
        }
    }
    problems
}

/// Whether a list's file names something of `module`, as `&q8_0::Q8_0` does.
fn is_in_list(text: &str, module: &str) -> bool {
    text.match_indices(&format!("{module}::")).any(|(start, _)| {
        let before = text[..start].chars().next_back();
        !before.is_some_and(|before| before.is_alphanumeric() || before == '_')
    })
}
