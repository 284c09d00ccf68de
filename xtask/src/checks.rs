//! `test` and `ci`: the commands that a change must pass.

use std::time::Instant;

use anyhow::Result;

use crate::{clients, fetch, fuzz_http, page, routers, tidy, workspace};

/// Everything that a change must pass on any machine.
pub(crate) fn test() -> Result<()> {
    let start = Instant::now();
    step("tidy", tidy::run)?;
    step("fetch", fetch::run)?;
    step("test", || workspace::run(workspace::cargo().args(["test", "--workspace", "--no-fail-fast"])))?;
    step("clients", clients::run)?;
    step("fuzz-http", fuzz_http::run)?;
    eprintln!("all passed in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Formatting, lints and docs with warnings denied, everything that [`test()`] does, and what needs a browser or
/// other servers.
pub(crate) fn ci() -> Result<()> {
    step("format", || workspace::run(workspace::cargo().args(["fmt", "--all", "--check"])))?;
    step("clippy", || {
        let flags = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
        workspace::run(workspace::cargo().args(flags))
    })?;
    step("docs", || {
        let flags = ["doc", "--workspace", "--no-deps", "--document-private-items"];
        workspace::run(
            workspace::cargo()
                .args(flags)
                .env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links"),
        )
    })?;
    test()?;
    step("page", || page::run(&page::Arguments::default()))?;
    step("routers", || routers::run(&routers::Arguments::default()))
}

/// Runs one step and says how long it took, so that a slow one is seen.
fn step(name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("xtask: {name}");
    let start = Instant::now();
    run()?;
    eprintln!("xtask: {name} passed in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}
