//! Rules about third-party crates.

use super::Tree;

/// The table of third-party crates: one line each, with why it is there.
const REASONS: &str = "docs/dependencies.md";

pub(super) fn reasons(tree: &Tree) -> Vec<String> {
    let Some(reasons) = tree.file(REASONS) else {
        return vec![format!("{REASONS}: missing; list each third-party crate with its reason")];
    };
    let listed: Vec<&str> = reasons.text.lines().filter_map(listed_crate).collect();
    let used = third_party(tree);
    let mut problems = Vec::new();
    for name in &used {
        if !listed.contains(&name.as_str()) {
            problems.push(format!("{REASONS}: no line for {name}: say what for, and why this crate"));
        }
    }
    for name in listed {
        if !used.iter().any(|used| used == name) {
            problems.push(format!("{REASONS}: {name} is no dependency of the workspace: drop its line"));
        }
    }
    problems
}

/// The crate that a line of the table is about: its first cell, without back-ticks.
fn listed_crate(line: &str) -> Option<&str> {
    let cell = line.strip_prefix('|')?.split('|').next()?.trim().trim_matches('`');
    let is_rule = cell.starts_with(['-', ':']);
    (!cell.is_empty() && !is_rule && cell != "crate").then_some(cell)
}

/// The names under `[workspace.dependencies]` that are not paths into this workspace.
fn third_party(tree: &Tree) -> Vec<String> {
    let dependencies = tree.manifest.get("workspace").and_then(|table| table.get("dependencies"));
    let Some(dependencies) = dependencies.and_then(toml::Value::as_table) else {
        return Vec::new();
    };
    dependencies
        .iter()
        .filter(|(_, value)| value.get("path").is_none())
        .map(|(name, _)| name.clone())
        .collect()
}

pub(super) fn inherited(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for package in &tree.packages {
        let path = format!("{}/Cargo.toml", package.folder());
        let Some(manifest) = tree.file(&path).and_then(|file| file.text.parse::<toml::Table>().ok()) else {
            problems.push(format!("{path}: can't read it"));
            continue;
        };
        for (name, value) in dependency_tables(&manifest) {
            if value.get("workspace").and_then(toml::Value::as_bool) != Some(true) {
                problems.push(format!(
                    "{path}: {name} states its own version: move it to [workspace.dependencies] and write \
                     `{name}.workspace = true`"
                ));
            }
        }
    }
    problems
}

/// Every dependency of a manifest, those of `[target.'cfg(…)'.dependencies]` among them.
fn dependency_tables(manifest: &toml::Table) -> Vec<(&String, &toml::Value)> {
    const KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let targets = targets.into_iter().flat_map(toml::Table::values).filter_map(toml::Value::as_table);
    std::iter::once(manifest)
        .chain(targets)
        .flat_map(|table| KINDS.iter().filter_map(|kind| table.get(*kind)?.as_table()))
        .flatten()
        .collect()
}
