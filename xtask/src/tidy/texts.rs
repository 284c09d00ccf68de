//! Rules about every text file.

use super::Tree;
use crate::workspace;

/// Texts that name one machine or one registry's host. In pieces, so that this file does not hold what it looks for.
static FORBIDDEN: &[(&str, &str)] = &[
    (concat!("/", "root", "/"), "a path of one machine"),
    (concat!("/", "work", "/"), "a path of one machine"),
    (concat!("/", "tmp", "/", "peers"), "a path of one machine"),
    (concat!("/opt/", "wheels"), "a path of one machine"),
    (concat!(".", "library", "/"), "a path of one machine"),
    (concat!("pypi", ".org"), "a registry's host: name the package, pip knows the index"),
    (concat!("python", "hosted"), "a registry's host: name the package, pip knows the index"),
    (concat!("registry.", "npmjs"), "a registry's host: name the package, npm knows it"),
    (concat!("index.", "crates.io"), "a registry's host: cargo knows it"),
    (concat!("static.", "crates.io"), "a registry's host: cargo knows it"),
    (concat!("deb.", "debian.org"), "a registry's host: apt knows it"),
];

/// Files that tools write, registry addresses and all.
static GENERATED: &[&str] = &["Cargo.lock", "fuzz/Cargo.lock"];

pub(super) fn machines(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for file in tree.files.iter().filter(|file| !GENERATED.contains(&file.path.as_str())) {
        for &(word, why) in FORBIDDEN {
            for (start, _) in
                file.text.match_indices(word).filter(|&(start, _)| begins_word(&file.text, start))
            {
                let line = file.text[..start].matches('\n').count() + 1;
                problems.push(format!("{}:{line}: {word:?} is {why}", file.path));
            }
        }
    }
    problems
}

/// Whether a path or name begins at `start`, and not in the middle of another (as in `frame/work/x`).
fn begins_word(text: &str, start: usize) -> bool {
    let before = text[..start].chars().next_back();
    !before.is_some_and(|before| before.is_alphanumeric() || "_-~".contains(before))
}

/// Links of Markdown files to other files of the tree lead somewhere.
pub(super) fn links(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        let folder = workspace::root().join(&file.path);
        let Some(folder) = folder.parent() else { continue };
        for (start, _) in file.text.match_indices("](") {
            let rest = &file.text[start + 2..];
            let link = rest.split([')', '#', ' ', '\n']).next().unwrap_or_default();
            if !link.is_empty() && !link.contains(':') && !folder.join(link).exists() {
                let line = file.text[..start].matches('\n').count() + 1;
                problems.push(format!("{}:{line}: there is no {link}", file.path));
            }
        }
    }
    problems
}
