//! Asking a server of this machine.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::http::Response;
use ureq::tls::TlsConfig;
use ureq::{Agent, Body};

use super::Record;

/// For a server to answer what it knows without computing.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server's client.
#[derive(Debug)]
pub(crate) struct Client {
    agent: Agent,
    url: String,
    key: Option<String>,
}

/// A model that a server has loaded.
#[derive(Debug, Deserialize, serde::Serialize)]
pub(crate) struct Running {
    pub(crate) name: String,
    /// Bytes of its weights.
    pub(crate) size: u64,
    pub(crate) context_length: Option<u64>,
    /// When it is let go, as RFC 3339 writes it.
    pub(crate) expires_at: Option<String>,
}

#[derive(Deserialize)]
struct Models {
    models: Vec<Running>,
}

#[derive(Deserialize)]
struct Health {
    status: String,
}

impl Client {
    pub(crate) fn new(record: &Record) -> Self {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .user_agent(concat!("smelt/", env!("CARGO_PKG_VERSION")))
            // A proxy is for other machines.
            .proxy(None)
            // Whoever holds the lock of the file holds the address too, and its certificate names some other one.
            .tls_config(TlsConfig::builder().disable_verification(true).build())
            .build();
        Self { agent: agent.into(), url: record.url(), key: record.key.clone() }
    }

    fn get(&self, path: &str) -> Result<Response<Body>> {
        let mut request = self.agent.get(format!("{}{path}", self.url));
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let response = request.config().timeout_global(Some(PATIENCE)).build().call();
        response.with_context(|| format!("the server on {} doesn't answer", self.url))
    }

    /// The lines of an answer that comes as a stream.
    ///
    /// # Errors
    /// If the server doesn't answer, or refuses: then what it says.
    pub(crate) fn stream(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<impl Iterator<Item = std::io::Result<String>> + use<>> {
        let mut request = self.agent.post(format!("{}{path}", self.url)).content_type("application/json");
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let mut response = request.send(body.to_string()).context("it doesn't answer")?;
        if !response.status().is_success() {
            let text = response.body_mut().read_to_string().unwrap_or_default();
            let error = serde_json::from_str::<Value>(&text).unwrap_or_default();
            bail!("{}", error["error"]["message"].as_str().unwrap_or(response.status().as_str()));
        }
        Ok(BufReader::new(response.into_body().into_reader()).lines())
    }

    fn json<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let mut response = self.get(path)?;
        if !response.status().is_success() {
            bail!("the server on {} answers {path} with {}", self.url, response.status());
        }
        let text = response.body_mut().read_to_string();
        let text = text.with_context(|| format!("the answer of {} breaks off", self.url))?;
        serde_json::from_str(&text).with_context(|| format!("{}{path} is no server of smelt's", self.url))
    }

    /// Its state, in a word: `ok`, `loading` …
    ///
    /// # Errors
    /// If it doesn't answer.
    pub(crate) fn health(&self) -> Result<String> {
        let text = self.get("/health")?.body_mut().read_to_string().context("its answer breaks off")?;
        Ok(serde_json::from_str::<Health>(&text).context("it is no server of smelt's")?.status)
    }

    /// The models that it has loaded.
    ///
    /// # Errors
    /// If it doesn't answer.
    pub(crate) fn running(&self) -> Result<Vec<Running>> {
        Ok(self.json::<Models>("/api/ps")?.models)
    }
}
