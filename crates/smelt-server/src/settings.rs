//! What the operator decides.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use smelt_engine::scheduler::SchedulerSettings;

use crate::access::ApiKey;
use crate::daemon::Launch;
use crate::pull::Puller;
use crate::tls::Tls;
use crate::trace::Traces;

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name or address to listen on.
    pub host: String,
    /// Port to listen on; 0 for any that is free.
    pub port: u16,
    /// How connections are encrypted, if they are.
    pub tls: Option<Tls>,
    /// Keys of which a request needs one; empty to ask for none.
    pub api_keys: Vec<ApiKey>,
    /// Origins whose web pages may ask this server: `https://example.org`, or `*`.
    pub cors_origins: Vec<String>,
    /// Serve the chat page.
    pub page: bool,
    /// What a request may take.
    pub limits: Limits,
    /// How requests share the engine.
    pub scheduler: SchedulerSettings,
    /// How engines' processes are started.
    pub launch: Launch,
    /// Bytes for all models that are loaded; `None` for any number.
    pub memory: Option<u64>,
    /// How long a model is kept that nobody uses; `None` for ever.
    pub idle_time: Option<Duration>,
    /// What fetches models that clients ask for, if they may.
    pub puller: Option<Arc<dyn Puller>>,
    /// Where spans of requests are sent, if they are.
    pub traces: Option<Traces>,
    /// End at SIGINT and SIGTERM.
    pub stop_on_signals: bool,
}

/// What a request may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a body.
    pub body: usize,
    /// Bytes of a request's head.
    pub head: usize,
    /// Until a request's head is complete.
    pub head_time: Duration,
    /// Until its body is.
    pub body_time: Duration,
    /// Until the engine begins with it.
    pub queue_time: Duration,
    /// Until an engine that does nothing of what it is asked counts as stuck.
    pub step_time: Duration,
    /// Between two signs of life in a stream.
    pub keep_alive: Duration,
    /// For open requests, once the server is told to stop.
    pub drain_time: Duration,
    /// Connections at a time.
    pub connections: usize,
    /// Bytes of responses that are kept, so that they can be had again and gone on behind.
    pub responses: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 64 << 20,
            head: 64 << 10,
            head_time: Duration::from_secs(30),
            body_time: Duration::from_secs(60),
            queue_time: Duration::from_secs(600),
            step_time: Duration::from_secs(300),
            keep_alive: Duration::from_secs(15),
            drain_time: Duration::from_secs(30),
            connections: 512,
            responses: 64 << 20,
        }
    }
}

/// The port on which a server listens unless told otherwise.
pub const DEFAULT_PORT: u16 = 11435;

impl Default for Settings {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".into(),
            port: DEFAULT_PORT,
            tls: None,
            api_keys: Vec::new(),
            cors_origins: Vec::new(),
            page: true,
            limits: Limits::default(),
            scheduler: SchedulerSettings::default(),
            launch: Launch::default(),
            memory: None,
            idle_time: Some(Duration::from_secs(300)),
            puller: None,
            traces: None,
            stop_on_signals: false,
        }
    }
}

/// Why a server doesn't run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is taken, or isn't of this machine.
    #[error("cannot listen on port {port} of {host}: {source}")]
    Bind {
        /// As in the settings.
        host: String,
        /// As in the settings.
        port: u16,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The machine refuses threads, or signals.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A model can't be loaded.
    #[error("{file}: {why}")]
    Model {
        /// Its file.
        file: PathBuf,
        /// Why.
        why: String,
    },
    /// Two models have one name.
    #[error("two models have the name {0:?}; give each its own")]
    SameName(String),
    /// Spans can't be sent there.
    #[error("{endpoint:?} is no address of a collector: {why}")]
    Collector {
        /// As in the settings.
        endpoint: String,
        /// Why.
        why: String,
    },
    /// Nothing to serve.
    #[error("there is no model to serve")]
    NoModel,
}
