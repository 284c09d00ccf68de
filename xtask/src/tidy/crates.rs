//! Rules about crates: which may know which, their lints, their documentation.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Tree;
use crate::workspace;

/// Which of our crates a crate may depend on. A layer never names one above it.
static EDGES: &[(&str, &[&str])] = &[
    ("smelt-quant", &[]),
    ("smelt-tokenizer", &[]),
    ("smelt-api", &[]),
    ("smelt-store", &[]),
    ("smelt-testdata", &[]),
    ("smelt-checkpoint", &["smelt-quant"]),
    ("smelt-backend", &["smelt-quant"]),
    ("smelt-cpu", &["smelt-backend", "smelt-quant"]),
    ("smelt-hip", &["smelt-backend", "smelt-quant"]),
    ("smelt-models", &["smelt-backend", "smelt-checkpoint", "smelt-quant"]),
    (
        "smelt-engine",
        &[
            "smelt-api",
            "smelt-backend",
            "smelt-checkpoint",
            "smelt-cpu",
            "smelt-hip",
            "smelt-models",
            "smelt-quant",
            "smelt-tokenizer",
        ],
    ),
    ("smelt-server", &["smelt-api", "smelt-engine", "smelt-store"]),
    (
        "smelt-cli",
        &["smelt-api", "smelt-checkpoint", "smelt-engine", "smelt-quant", "smelt-server", "smelt-store"],
    ),
    ("smelt-capi", &["smelt-engine"]),
    ("xtask", &["smelt-checkpoint", "smelt-quant"]),
];

/// Reads test data; every crate's tests may use it, and nothing that ships may.
const TEST_HELPER: &str = "smelt-testdata";

/// A workspace member as `cargo metadata` tells it.
#[derive(Deserialize)]
pub(super) struct Package {
    pub(super) name: String,
    /// An absolute path.
    manifest_path: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// `None` is a normal dependency; otherwise "dev" or "build".
    kind: Option<String>,
    /// Set for crates of this workspace.
    path: Option<String>,
}

impl Package {
    /// The crate's folder relative to the workspace's root, with `/`.
    pub(super) fn folder(&self) -> String {
        let root = workspace::root().to_string_lossy().replace('\\', "/");
        let manifest = self.manifest_path.replace('\\', "/");
        let below = manifest.strip_prefix(root.as_str()).unwrap_or(&manifest);
        below.trim_start_matches('/').trim_end_matches("/Cargo.toml").to_owned()
    }
}

/// The workspace's members.
pub(super) fn packages() -> Result<Vec<Package>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    let flags = ["metadata", "--format-version", "1", "--no-deps"];
    let metadata = workspace::output(workspace::cargo().args(flags))?;
    let metadata: Metadata =
        serde_json::from_str(&metadata).context("can't read what cargo metadata wrote")?;
    Ok(metadata.packages)
}

pub(super) fn edges(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for package in &tree.packages {
        let name = &package.name;
        let Some((_, allowed)) = EDGES.iter().find(|(of, _)| of == name) else {
            problems.push(format!("{name}: not in the list of crates: say in EDGES what it may depend on"));
            continue;
        };
        for edge in package.dependencies.iter().filter(|edge| edge.path.is_some()) {
            let is_test_helper = edge.name == TEST_HELPER && edge.kind.as_deref() == Some("dev");
            if !is_test_helper && !allowed.contains(&edge.name.as_str()) {
                let kind = edge.kind.as_deref().unwrap_or("normal");
                problems.push(format!(
                    "{name}: a {kind} dependency on {} is not allowed; it may use {allowed:?}",
                    edge.name
                ));
            }
        }
    }
    problems
}

pub(super) fn lints(tree: &Tree) -> Vec<String> {
    let manifests = tree.packages.iter().map(|package| format!("{}/Cargo.toml", package.folder()));
    manifests
        .filter(|path| {
            let inherits = tree.file(path).and_then(|file| {
                let manifest: toml::Table = file.text.parse().ok()?;
                manifest.get("lints")?.get("workspace")?.as_bool()
            });
            inherits != Some(true)
        })
        .map(|path| format!("{path}: add `[lints]` with `workspace = true`"))
        .collect()
}

pub(super) fn documented(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for package in &tree.packages {
        let folder = package.folder();
        for name in ["lib.rs", "main.rs"] {
            let path = format!("{folder}/src/{name}");
            if tree.file(&path).is_some_and(|file| !file.text.starts_with("//!")) {
                problems.push(format!("{path}: begin with a `//!` comment that says what the crate is for"));
            }
        }
    }
    problems
}
