//! Downloads over HTTP that go on where they stopped.

use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use ureq::http::{HeaderMap, Response, StatusCode, header};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body};
use url::Url;

use super::{Context, Expected, Fetched, Outcome, check_size, finish};
use crate::error::StoreError;
use crate::files::{Part, is_sha256, remove_file, require_space, write_atomically};
use crate::manifest::ManifestFile;
use crate::progress::{Event, tell};
use crate::pull::part_path;
use crate::reference::{is_local, is_unprotected};
use crate::settings::Settings;

const MAX_REDIRECTS: usize = 10;

/// Bytes asked of the connection at once; also the most that a cut connection loses.
const READ: usize = 256 << 10;

/// Longest wait that a server may ask for with `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);

/// Fetches a model's files, one after the other.
pub(super) fn fetch_all(
    context: &mut Context<'_>,
    urls: Vec<Result<Url, StoreError>>,
    fallback: &str,
) -> Result<Outcome, StoreError> {
    let agent = agent(context.settings);
    let mut files = Vec::with_capacity(urls.len());
    let several = urls.len() > 1;
    for (index, url) in urls.into_iter().enumerate() {
        let url = url?;
        let segment = url.path_segments().and_then(|mut s| s.next_back()).unwrap_or_default();
        let name = match percent_decode(segment) {
            name if name.is_empty() || name.contains(['/', '\\', '\0']) || name.starts_with('.') => {
                fallback.into()
            }
            name => name,
        };
        let known = context.known.and_then(|m| m.files.iter().find(|f| f.name == name)).cloned();
        let path = part_path(context.partial, context.key, index);
        let mut download = Download {
            agent: &agent,
            url,
            name,
            known,
            state_path: path.with_extension("json"),
            path,
            expected: context.expected.filter(|_| !several).cloned(),
            resumable: true,
        };
        files.push(download.run(context)?);
    }
    let same = context.known.is_some_and(|m| m.files.len() == files.len());
    match same && files.iter().all(|f| f.part.is_none()) {
        true => Ok(Outcome::Unchanged),
        false => Ok(Outcome::Files(files)),
    }
}

fn agent(settings: &Settings) -> Agent {
    Agent::config_builder()
        .user_agent(concat!("smelt/", env!("CARGO_PKG_VERSION")))
        .http_status_as_error(false)
        // Redirects are followed here: the hub's answer carries the file's hash, its storage must not get the token.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_connect(Some(settings.connect_timeout))
        .timeout_resolve(Some(settings.connect_timeout))
        .timeout_recv_response(Some(settings.stall_timeout))
        .timeout_per_read(Some(settings.stall_timeout))
        .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build())
        .build()
        .into()
}

/// What is remembered beside a partial file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    url: String,
    /// Strong entity tag or date, for `If-Range`.
    validator: Option<String>,
    /// SHA-256 that the hub promised.
    sha256: Option<String>,
    total: Option<u64>,
}

/// One file's download.
struct Download<'a> {
    agent: &'a Agent,
    url: Url,
    name: String,
    /// What is installed under this name.
    known: Option<ManifestFile>,
    path: PathBuf,
    state_path: PathBuf,
    expected: Option<Expected>,
    /// Turned off once going on after old bytes has led to a wrong file.
    resumable: bool,
}

/// Why an attempt ended.
enum Failure {
    /// Trying again may help.
    Transient {
        reason: String,
        wait: Option<Duration>,
    },
    Final(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::Final(error)
    }
}

impl Download<'_> {
    fn run(&mut self, context: &mut Context<'_>) -> Result<Fetched, StoreError> {
        let mut state = self.read_state();
        // The last byte is always asked for again, so that a complete file is confirmed by the server too.
        let keep = match &state {
            Some(state) => state.total.map_or(u64::MAX, |total| total.saturating_sub(1)),
            // A hash without a size tells of a wrong file only after all of it.
            None if self.expected.is_some() => {
                self.expected.as_ref().and_then(|e| e.size).map_or(0, |size| size.saturating_sub(1))
            }
            None => 0,
        };
        let mut part = self.open_part(context, keep)?;
        let (mut attempt, mut farthest) = (0, part.len());
        loop {
            let old_bytes = part.len();
            let failure = match self.attempt(context, &mut part, &mut state) {
                Ok(None) => return self.unchanged(),
                Ok(Some(etag)) => match self.verify(context, &part, state.as_ref()) {
                    Ok(fetched) => return Ok(Fetched { etag, ..fetched }),
                    // Bytes of an earlier attempt may be of another version of the file: once more, from the start.
                    Err(StoreError::WrongHash { .. } | StoreError::WrongSize { .. })
                        if old_bytes > 0 && self.resumable =>
                    {
                        self.resumable = false;
                        state = None;
                        part = self.open_part(context, 0)?;
                        continue;
                    }
                    Err(error) => return Err(error),
                },
                Err(failure) => failure,
            };
            let (reason, wait) = match failure {
                Failure::Transient { reason, wait } => (reason, wait),
                Failure::Final(error) => return Err(error),
            };
            if part.len() > farthest {
                farthest = part.len();
                attempt = 0;
            }
            attempt += 1;
            if attempt > context.settings.retries {
                return Err(StoreError::Transfer { url: self.url.to_string(), attempts: attempt, reason });
            }
            self.pause(context, attempt, wait, &reason)?;
        }
    }

    fn open_part(&self, context: &mut Context<'_>, keep: u64) -> Result<Part, StoreError> {
        let length = self.path.metadata().map_or(0, |m| m.len()).min(keep);
        if length > 0 {
            tell(context.progress, Event::Checking { file: &self.name, bytes: length })?;
        }
        Part::open(&self.path, keep, |_| tell(context.progress, Event::Tick))
    }

    fn read_state(&self) -> Option<State> {
        let text = std::fs::read(&self.state_path).ok()?;
        serde_json::from_slice::<State>(&text).ok().filter(|s| s.url == self.url.as_str())
    }

    /// The store has what the server has.
    fn unchanged(&self) -> Result<Fetched, StoreError> {
        let Some(known) = &self.known else {
            return Err(self.bad_answer("it did not send the file"));
        };
        remove_file(&self.path)?;
        Ok(Fetched {
            name: known.name.clone(),
            part: None,
            size: known.size,
            sha256: known.sha256.clone(),
            etag: known.etag.clone(),
        })
    }

    /// One request and its body. `None` if the server's file is the one that is installed; else its entity tag.
    fn attempt(
        &mut self,
        context: &mut Context<'_>,
        part: &mut Part,
        state: &mut Option<State>,
    ) -> Result<Option<Option<String>>, Failure> {
        let (response, linked) = self.request(context.settings, part.len(), state.as_ref())?;
        let headers = response.headers();
        let etag = linked.sha256.clone().or_else(|| strong_etag(headers));
        if let Some(known) = &self.known
            && (linked.sha256.as_ref() == Some(&known.sha256) || etag.is_some() && etag == known.etag)
        {
            return Ok(None);
        }
        let total = match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let (start, total) = content_range(headers)
                    .ok_or_else(|| self.bad_answer("a partial answer without a usable Content-Range"))?;
                if start != part.len() {
                    return Err(self.bad_answer("it sent another range than asked for").into());
                }
                total
            }
            _ => {
                part.restart()?;
                header_number(headers, header::CONTENT_LENGTH.as_str())
            }
        };
        let total = total.or(linked.size);
        if let Some(total) = total {
            check_size(&self.name, total, self.expected.as_ref())?;
        }
        let new =
            State { url: self.url.to_string(), validator: validator(headers), sha256: linked.sha256, total };
        if state.as_ref() != Some(&new) {
            let text = serde_json::to_vec(&new).map_err(|e| self.bad_answer(&e.to_string()))?;
            write_atomically(&self.state_path, &text, &self.path.with_extension("tmp"))?;
            *state = Some(new);
        }
        require_space(context.partial, total.map_or(0, |t| t.saturating_sub(part.len())))?;
        let linked = state.as_ref().and_then(|state| state.sha256.as_deref());
        let sha256 = self.expected.as_ref().map(|expected| expected.sha256.as_str()).or(linked);
        let started = Event::Started { file: &self.name, sha256, total, resumed: part.len() };
        tell(context.progress, started)?;
        self.receive(context, response, part, total)?;
        Ok(Some(etag))
    }

    fn receive(
        &self,
        context: &mut Context<'_>,
        response: Response<Body>,
        part: &mut Part,
        total: Option<u64>,
    ) -> Result<(), Failure> {
        let limit = total.or(self.expected.as_ref().and_then(|e| e.size)).unwrap_or(u64::MAX);
        let mut body = response.into_body().into_with_config().limit(u64::MAX).reader();
        let mut buffer = vec![0; READ];
        loop {
            let n = match body.read(&mut buffer) {
                Ok(n) => n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(transient(format!("the connection broke: {e}"))),
            };
            if n == 0 {
                break;
            }
            if part.len() + n as u64 > limit {
                remove_file(&self.path)?;
                remove_file(&self.state_path)?;
                return Err(self.bad_answer("it sent more bytes than the file has").into());
            }
            part.append(&buffer[..n])?;
            tell(context.progress, Event::Advanced { bytes: part.len() })?;
        }
        match total {
            Some(total) if part.len() < total => {
                Err(transient(format!("the connection ended after {} of {total} bytes", part.len())))
            }
            _ => Ok(()),
        }
    }

    fn verify(
        &self,
        context: &mut Context<'_>,
        part: &Part,
        state: Option<&State>,
    ) -> Result<Fetched, StoreError> {
        // Where the catalogue says nothing the hub's own hash is the promise.
        let promised = state.and_then(|s| s.sha256.clone()).map(|sha256| Expected { sha256, size: None });
        let expected = self.expected.as_ref().or(promised.as_ref());
        let mut context = Context {
            settings: context.settings,
            progress: &mut *context.progress,
            partial: context.partial,
            key: context.key,
            expected,
            known: context.known,
        };
        let result = finish(&mut context, part, &self.path, &self.name);
        if result.is_err() {
            remove_file(&self.state_path)?;
        }
        result
    }

    /// Asks for the file from byte `offset` on, following redirects.
    fn request(
        &self,
        settings: &Settings,
        offset: u64,
        state: Option<&State>,
    ) -> Result<(Response<Body>, Linked), Failure> {
        let hub = Url::parse(&settings.hf_endpoint).ok();
        let mut linked = Linked::default();
        let mut url = self.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let of_hub = hub.as_ref().is_some_and(|hub| hub.origin() == url.origin());
            let mut request = self.agent.get(url.as_str());
            // Weights don't compress, and ranges count the bytes of the file itself.
            request = request.header(header::ACCEPT_ENCODING, "identity");
            if let Some(token) = settings.hf_token.as_ref().filter(|_| of_hub) {
                request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
            }
            if let Some(range) = self.range(offset, state, &linked) {
                request = request.header(header::RANGE, format!("bytes={offset}-"));
                if let Some(validator) = range {
                    request = request.header(header::IF_RANGE, validator);
                }
            }
            let response = request.call().map_err(|e| self.call_failed(&e))?;
            if of_hub {
                linked.read(response.headers());
            }
            if !is_redirect(response.status()) {
                return self.check_status(&url, response, state).map(|response| (response, linked));
            }
            url = self.follow(&url, response.headers())?;
        }
        Err(self.bad_answer("it redirects without end").into())
    }

    /// Whether to go on after `offset` bytes, and with which `If-Range`.
    fn range(&self, offset: u64, state: Option<&State>, linked: &Linked) -> Option<Option<String>> {
        if offset == 0 || !self.resumable {
            return None;
        }
        let promised = state.and_then(|s| s.sha256.as_ref());
        if self.expected.is_some() || linked.sha256.is_some() && linked.sha256.as_ref() == promised {
            // A hash watches over the result, and mirrors tag the same file differently.
            return Some(None);
        }
        state.and_then(|s| s.validator.clone()).filter(|_| linked.sha256.is_none()).map(Some)
    }

    fn follow(&self, url: &Url, headers: &HeaderMap) -> Result<Url, StoreError> {
        let location = headers.get(header::LOCATION).and_then(|l| l.to_str().ok());
        let next = location
            .and_then(|l| url.join(l).ok())
            .ok_or_else(|| self.bad_answer("a redirect without a usable Location"))?;
        if url.scheme() == "https" && next.scheme() != "https" {
            return Err(self.bad_answer("it redirects from https to an unprotected address"));
        }
        // From this machine, as from https, a redirect must not lead where anybody on the way can change the file.
        if is_local(url) && is_unprotected(&next) && self.expected.is_none() {
            return Err(self.bad_answer("it redirects from this machine to an unprotected address"));
        }
        if !matches!(next.scheme(), "https" | "http") {
            return Err(self.bad_answer("it redirects to something that is not on the web"));
        }
        Ok(next)
    }

    fn check_status(
        &self,
        url: &Url,
        response: Response<Body>,
        state: Option<&State>,
    ) -> Result<Response<Body>, Failure> {
        let status = response.status().as_u16();
        match status {
            200 | 206 => Ok(response),
            // Our partial file is longer than theirs: the file has changed.
            416 if state.is_some() || self.path.exists() => {
                remove_file(&self.state_path)?;
                remove_file(&self.path)?;
                let reason = "the file has changed on the server; its unfinished download was removed";
                Err(self.bad_answer(reason).into())
            }
            408 | 425 | 429 | 500 | 502 | 503 | 504 => {
                let wait = header_number(response.headers(), header::RETRY_AFTER.as_str());
                let wait = wait.map(|s| Duration::from_secs(s).min(MAX_RETRY_AFTER));
                Err(Failure::Transient { reason: format!("the server answered {status}"), wait })
            }
            _ => Err(StoreError::Status { url: without_query(url), status }.into()),
        }
    }

    fn call_failed(&self, error: &ureq::Error) -> Failure {
        use ureq::Error as E;
        match error {
            E::Io(_)
            | E::Timeout(_)
            | E::ConnectionFailed
            | E::HostNotFound
            | E::Protocol(_)
            | E::BodyStalled => transient(error.to_string()),
            _ => self.bad_answer(&error.to_string()).into(),
        }
    }

    fn bad_answer(&self, reason: &str) -> StoreError {
        StoreError::BadAnswer { url: without_query(&self.url), reason: reason.into() }
    }

    fn pause(
        &self,
        context: &mut Context<'_>,
        attempt: u32,
        wait: Option<Duration>,
        reason: &str,
    ) -> Result<(), StoreError> {
        const STEP: Duration = Duration::from_millis(50);
        let doubled = context.settings.backoff.saturating_mul(1 << (attempt - 1).min(16));
        let delay = wait.unwrap_or(doubled.min(Settings::MAX_BACKOFF));
        tell(context.progress, Event::Retrying { attempt, delay, reason })?;
        let end = Instant::now() + delay;
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            tell(context.progress, Event::Tick)?;
            std::thread::sleep(left.min(STEP));
        }
        Ok(())
    }
}

/// What the hub says about a file before it redirects to its storage.
#[derive(Debug, Default)]
struct Linked {
    sha256: Option<String>,
    size: Option<u64>,
}

impl Linked {
    fn read(&mut self, headers: &HeaderMap) {
        let etag = headers.get("x-linked-etag").or_else(|| headers.get(header::ETAG));
        let etag = etag.and_then(|v| v.to_str().ok()).map(|v| v.trim_start_matches("W/").trim_matches('"'));
        // Small files have a git hash here, which is no SHA-256 of the content.
        if let Some(sha256) = etag.filter(|e| is_sha256(e)) {
            self.sha256 = Some(sha256.into());
        }
        self.size = header_number(headers, "x-linked-size").or(self.size);
    }
}

fn transient(reason: String) -> Failure {
    Failure::Transient { reason, wait: None }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn header_text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn header_number(headers: &HeaderMap, name: &str) -> Option<u64> {
    header_text(headers, name)?.parse().ok()
}

fn strong_etag(headers: &HeaderMap) -> Option<String> {
    header_text(headers, header::ETAG.as_str()).filter(|e| e.starts_with('"')).map(Into::into)
}

/// What `If-Range` may carry: a strong entity tag, else the date of the last change.
fn validator(headers: &HeaderMap) -> Option<String> {
    strong_etag(headers).or_else(|| header_text(headers, header::LAST_MODIFIED.as_str()).map(Into::into))
}

/// Start and whole size from `bytes 5-9/10`; a size of `*` is unknown.
fn content_range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let text = header_text(headers, header::CONTENT_RANGE.as_str())?.strip_prefix("bytes ")?;
    let (range, total) = text.split_once('/')?;
    let (start, _) = range.split_once('-')?;
    let total = match total {
        "*" => None,
        total => Some(total.parse().ok()?),
    };
    Some((start.parse().ok()?, total))
}

/// Signed addresses carry secrets behind the question mark.
fn without_query(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    let _ = url.set_password(None);
    url.to_string()
}

fn percent_decode(segment: &str) -> String {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = tail.get(..2).filter(|_| *first == b'%').and_then(|d| std::str::from_utf8(d).ok());
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded() {
        assert_eq!(percent_decode("a%20b%2Fc%zz%4"), "a b/c%zz%4");
    }

    #[test]
    fn ranges_are_read() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_RANGE, text.parse().unwrap());
            content_range(&headers)
        };
        assert_eq!(of("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(of("bytes 5-9/*"), Some((5, None)));
        assert_eq!(of("bytes */10"), None);
        assert_eq!(of("lines 5-9/10"), None);
    }
}
