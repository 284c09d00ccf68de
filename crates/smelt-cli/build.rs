//! Tells the program which commit it was built from.

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn main() {
    // Outside of a repository, as in an unpacked archive, there is no commit to tell.
    let commit = git(&["rev-parse", "--short", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=SMELT_COMMIT={commit}");
    println!("cargo::rerun-if-changed=build.rs");
    if let Some(log) =
        git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|path| std::path::Path::new(path).exists())
    {
        println!("cargo::rerun-if-changed={log}");
    }
}
