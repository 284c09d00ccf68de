//! Bodies that are written piece by piece.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use hyper::body::Frame;
use serde::Serialize;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

/// Pieces that wait for a slow reader.
const BUFFER: usize = 32;

/// How the pieces of a body are marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events.
    Events,
    /// A JSON document per line.
    Lines,
}

impl Framing {
    fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Events => "text/event-stream",
            Self::Lines => "application/x-ndjson",
        })
    }
}

/// Where a task writes the pieces of a body.
#[derive(Debug)]
pub(crate) struct Pieces {
    sender: Sender<Bytes>,
    framing: Framing,
}

/// Nobody reads the body any more.
#[derive(Debug)]
pub(crate) struct Gone;

impl Pieces {
    /// Writes a document.
    pub(crate) async fn json(&self, value: &impl Serialize) -> Result<(), Gone> {
        let text = to_json(value);
        self.write(match self.framing {
            Framing::Events => format!("data: {text}\n\n"),
            Framing::Lines => format!("{text}\n"),
        })
        .await
    }

    /// Writes an event with a name.
    pub(crate) async fn event(&self, name: &str, value: &impl Serialize) -> Result<(), Gone> {
        self.write(format!("event: {name}\ndata: {}\n\n", to_json(value))).await
    }

    /// Writes text as it is.
    pub(crate) async fn write(&self, text: impl Into<Bytes>) -> Result<(), Gone> {
        self.sender.send(text.into()).await.map_err(|_| Gone)
    }

    /// Waits for `future`, and writes `sign` whenever that takes long, so that nobody on the way takes the connection
    /// for dead.
    pub(crate) async fn alive<T>(
        &self,
        every: Duration,
        sign: &'static str,
        future: impl Future<Output = T>,
    ) -> Result<T, Gone> {
        let mut future = std::pin::pin!(future);
        loop {
            match tokio::time::timeout(every, &mut future).await {
                Ok(value) => return Ok(value),
                Err(_) => self.write(sign).await?,
            }
        }
    }
}

/// A document as text. Wire types have string keys and finite numbers, so that it can't fail.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// A body that a task writes. If the reader goes away the body is dropped, which ends the task wherever it waits.
struct Written {
    receiver: Receiver<Bytes>,
    task: JoinHandle<()>,
}

impl Drop for Written {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl hyper::body::Body for Written {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.receiver.poll_recv(context).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// A response whose body `write` writes.
pub(crate) fn respond<F>(framing: Framing, write: impl FnOnce(Pieces) -> F) -> Response
where
    F: Future<Output = Result<(), Gone>> + Send + 'static,
{
    let (sender, receiver) = channel(BUFFER);
    let writing = write(Pieces { sender, framing });
    let task = tokio::spawn(async move {
        // That nobody reads any more is no failure.
        let _ = writing.await;
    });
    let mut response = Response::new(Body::new(Written { receiver, task }));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, framing.content_type());
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies that hold a stream back defeat it; nginx listens to this.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
