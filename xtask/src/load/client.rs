//! One client: a connection per request, the answer's events, and what goes wrong.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request as HttpRequest, Response};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use super::requests::{Manner, Request, Requests};
use super::tally::Tally;

/// Where chats are answered.
const CHAT: &str = "/v1/chat/completions";
/// Without a byte for so long a server counts as stuck.
const SILENCE: Duration = Duration::from_secs(120);
/// What a slow reader's socket takes, so that the server feels it.
const SLOW_BUFFER: u32 = 2048;

/// What is read of an event.
#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Delta,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    completion_tokens: u64,
}

/// Sends one request after the other, for ever.
pub(super) async fn run(address: String, mut requests: Requests, tally: Rc<RefCell<Tally>>) {
    loop {
        let request = requests.next();
        tally.borrow_mut().sent += 1;
        if let Err(error) = ask(&address, request, &tally).await {
            tally.borrow_mut().error(format!("{error:#}"));
            // A server that refuses connections must not be asked a thousand times a second.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Sends a request and behaves as it says. Errors are the server's.
async fn ask(address: &str, request: Request, tally: &RefCell<Tally>) -> Result<()> {
    if request.manner == Manner::Half {
        return half(address, &request.body, tally).await;
    }
    let start = Instant::now();
    let is_slow = matches!(request.manner, Manner::Slow(_));
    let response = silence(send(address, "POST", CHAT, request.body, is_slow)).await??;
    let status = response.status();
    if request.manner == Manner::Malformed {
        let body = silence(response.into_body().collect()).await??.to_bytes();
        ensure!(status.is_client_error(), "a malformed body got {status}");
        ensure!(serde_json::from_slice::<Chunk>(&body).is_ok_and(|c| c.error.is_some()), "no error document");
        tally.borrow_mut().refused += 1;
        return Ok(());
    }
    if !status.is_success() {
        let body = silence(response.into_body().collect()).await??.to_bytes();
        bail!("{status}: {}", String::from_utf8_lossy(&body[..body.len().min(200)]));
    }
    Answer { manner: request.manner, start, last: None, counted: 0, tally }.read(response.into_body()).await
}

/// Announces a body, sends half of it and goes away.
async fn half(address: &str, body: &[u8], tally: &RefCell<Tally>) -> Result<()> {
    let host = host(address);
    let mut stream = TcpStream::connect(host).await.context("can't connect")?;
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&body[..body.len() / 2]).await?;
    tally.borrow_mut().left += 1;
    Ok(())
}

/// An answer under way.
struct Answer<'a> {
    manner: Manner,
    start: Instant,
    /// When the last piece of text came.
    last: Option<Instant>,
    /// Tokens counted so far: one for each piece of text, until the server tells the number.
    counted: u64,
    tally: &'a RefCell<Tally>,
}

impl Answer<'_> {
    async fn read(mut self, mut body: Incoming) -> Result<()> {
        let (mut text, mut events) = (Vec::new(), 0);
        while let Some(frame) = silence(body.frame()).await? {
            let now = Instant::now();
            if let Some(data) = frame?.data_ref() {
                text.extend_from_slice(data);
            }
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                let Some(data) = line.strip_prefix(b"data: ") else { continue };
                if data.trim_ascii() == b"[DONE]" {
                    self.tally.borrow_mut().complete += 1;
                    return Ok(());
                }
                self.event(data, now)?;
                events += 1;
                if matches!(self.manner, Manner::Leaving(after) if events > after) {
                    self.tally.borrow_mut().left += 1;
                    return Ok(());
                }
            }
            if let Manner::Slow(pause) = self.manner {
                tokio::time::sleep(pause).await;
            }
        }
        bail!("the stream ended after {events} events without [DONE]")
    }

    fn event(&mut self, data: &[u8], now: Instant) -> Result<()> {
        let chunk: Chunk = serde_json::from_slice(data).context("an event is no JSON document")?;
        if let Some(error) = chunk.error {
            bail!("an error in the stream: {error}");
        }
        let mut tally = self.tally.borrow_mut();
        if let Some(usage) = chunk.usage {
            tally.tokens += usage.completion_tokens.saturating_sub(self.counted);
            self.counted = self.counted.max(usage.completion_tokens);
        }
        if chunk.choices.iter().all(|choice| choice.delta.content.as_deref().unwrap_or_default().is_empty()) {
            return Ok(());
        }
        self.counted += 1;
        tally.tokens += 1;
        // What a slow reader sees is its own doing.
        if !matches!(self.manner, Manner::Slow(_)) {
            match self.last {
                None => tally.first.push((now - self.start).as_secs_f64()),
                Some(last) => tally.between.push((now - last).as_secs_f64()),
            }
        }
        self.last = Some(now);
        Ok(())
    }
}

/// What `future` gives, unless the server is silent for too long.
async fn silence<T>(future: impl Future<Output = T>) -> Result<T> {
    let waited = tokio::time::timeout(SILENCE, future).await;
    waited.with_context(|| format!("nothing came for {} s", SILENCE.as_secs()))
}

/// The host and port of `http://HOST:PORT`.
fn host(address: &str) -> &str {
    address.strip_prefix("http://").unwrap_or(address)
}

/// Sends a request on a connection of its own, which ends with the response.
async fn send(
    address: &str,
    method: &str,
    path: &str,
    body: Vec<u8>,
    is_slow: bool,
) -> Result<Response<Incoming>> {
    let host = host(address);
    let socket = TcpSocket::new_v4()?;
    if is_slow {
        socket.set_recv_buffer_size(SLOW_BUFFER)?;
    }
    let stream = socket.connect(host.parse()?).await.context("can't connect")?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // It ends when the response is dropped; what goes wrong in it is told there.
    tokio::task::spawn_local(async { drop(connection.await) });
    let request = HttpRequest::builder()
        .method(method)
        .uri(path)
        .header("host", host)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))?;
    Ok(sender.send_request(request).await?)
}

/// Waits until `/health` says 200.
pub(super) async fn until_healthy(address: &str, time: Duration) -> Result<()> {
    let start = Instant::now();
    loop {
        let response = send(address, "GET", "/health", Vec::new(), false).await;
        match response {
            Ok(response) if response.status().is_success() => return Ok(()),
            _ if start.elapsed() < time => tokio::time::sleep(Duration::from_millis(100)).await,
            Ok(response) => bail!("/health says {}", response.status()),
            Err(error) => return Err(error),
        }
    }
}
