//! `tidy`: the project's rules that neither the compiler nor clippy knows.
//!
//! Each rule is a function from the [`Tree`] to its problems; a problem names the file and what to do.

mod crates;
mod dependencies;
mod sources;
mod texts;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// A rule: what it is called, and how it is checked.
type Rule = (&'static str, fn(&Tree) -> Vec<String>);

static RULES: &[Rule] = &[
    ("crates depend only on what design allows", crates::edges),
    ("crates inherit the workspace's lints", crates::lints),
    ("crates open with documentation", crates::documented),
    ("third-party dependencies have a reason", dependencies::reasons),
    ("versions live in the workspace's manifest", dependencies::inherited),
    ("files stay readable in one sitting", sources::sizes),
    ("SIMD stays in smelt-cpu", sources::simd),
    ("the environment is read in one place", sources::environment),
    ("every family and format file is registered", sources::registered),
    ("no machine's paths or hosts in the tree", texts::machines),
    ("links between documents lead somewhere", texts::links),
];

/// The tracked files and what cargo says of the workspace's crates.
struct Tree {
    files: Vec<SourceFile>,
    packages: Vec<crates::Package>,
    manifest: toml::Table,
}

/// One tracked text file.
struct SourceFile {
    /// Relative to the workspace's root, with `/`.
    path: String,
    text: String,
}

impl Tree {
    fn load() -> Result<Self> {
        let root = workspace::root();
        let files = tracked(root)?
            .into_iter()
            .filter_map(|path| {
                // Binary test data has no lines to check.
                let text = String::from_utf8(fs::read(root.join(&path)).ok()?).ok()?;
                Some(SourceFile { path: path.to_string_lossy().replace('\\', "/"), text })
            })
            .collect();
        let manifest = fs::read_to_string(root.join("Cargo.toml")).context("can't read Cargo.toml")?;
        let manifest = manifest.parse().context("can't parse Cargo.toml")?;
        Ok(Self { files, packages: crates::packages()?, manifest })
    }

    fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The Rust files of the project.
    fn rust(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }
}

/// Checks every rule and prints every problem.
pub(crate) fn run() -> Result<()> {
    let tree = Tree::load()?;
    let mut count = 0;
    for &(rule, check) in RULES {
        let problems = check(&tree);
        count += problems.len();
        if !problems.is_empty() {
            eprintln!("tidy: {rule}:");
        }
        for problem in problems {
            eprintln!("  {problem}");
        }
    }
    match count {
        0 => {
            eprintln!("tidy: {} rules hold", RULES.len());
            Ok(())
        }
        count => bail!("tidy found {count} problems"),
    }
}

/// The files that git tracks or would track; in an unpacked archive without git, all but the build folder.
fn tracked(root: &Path) -> Result<Vec<PathBuf>> {
    let flags = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    if let Ok(listing) = workspace::output(Command::new("git").args(flags).current_dir(root)) {
        return Ok(listing.split('\0').filter(|path| !path.is_empty()).map(PathBuf::from).collect());
    }
    let mut files = Vec::new();
    walk(root, Path::new(""), &mut files).context("can't list the project's files")?;
    Ok(files)
}

fn walk(root: &Path, below: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if !entry.file_type()?.is_dir() {
            files.push(path);
        } else if path.file_name().is_some_and(|name| name != "target" && name != ".git") {
            walk(root, &path, files)?;
        }
    }
    Ok(())
}
