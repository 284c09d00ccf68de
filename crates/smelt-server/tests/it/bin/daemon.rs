//! An engine's process, as `smelt daemon` is one: what the tests' servers start.

use std::process::ExitCode;

fn main() -> ExitCode {
    match smelt_server::run_daemon() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "a process of tests tells why it ends")]
            {
                eprintln!("{error}");
            }
            ExitCode::FAILURE
        }
    }
}
