//! Open connections: how many there may be, and how they end.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use crate::app::{App, router};
use crate::tls::Tls;

/// For engines to end behind the time that answers have, which is five seconds at most, and for what is written by then.
const LAST_WORDS: Duration = Duration::from_secs(8);
/// After the system refused a connection, for want of files most of the time.
const BREATH: Duration = Duration::from_millis(100);

/// A connection, or why there is none.
type Accepted = std::io::Result<(TcpStream, SocketAddr)>;

/// Open connections.
pub(crate) struct Connections {
    /// Tells those that have been answered to make room. Without a sender the server ends, and all do.
    leave: watch::Sender<()>,
    builder: http1::Builder,
    service: axum::Router,
    permits: Arc<Semaphore>,
    most: u32,
    tls: Option<Tls>,
    /// For a client to greet a server that speaks TLS.
    patience: Duration,
}

impl Connections {
    pub(crate) fn new(app: &Arc<App>) -> Self {
        let limits = &app.settings.limits;
        let mut builder = http1::Builder::new();
        // Some clients look for names as most servers write them.
        builder.title_case_headers(true);
        builder.timer(TokioTimer::new()).header_read_timeout(limits.head_time).max_buf_size(limits.head);
        let most = u32::try_from(limits.connections).unwrap_or(u32::MAX).min(1 << 20);
        Self {
            leave: watch::Sender::new(()),
            builder,
            service: router(app),
            permits: Arc::new(Semaphore::new(most as usize)),
            most,
            tls: app.settings.tls.clone(),
            patience: limits.head_time,
        }
    }

    /// The next connection, once there may be one more; meanwhile others wait in the system's queue. Clients that keep
    /// connections for later have to give way: they know that a server may close these.
    pub(crate) async fn next(&self, listener: &TcpListener) -> (OwnedSemaphorePermit, Accepted) {
        if self.permits.available_permits() == 0 {
            self.leave.send_replace(());
        }
        // The semaphore is never closed.
        let permit = self.permits.clone().acquire_owned().await.expect("an open semaphore");
        (permit, listener.accept().await)
    }

    /// Serves a connection.
    pub(crate) async fn accept(&self, permit: OwnedSemaphorePermit, accepted: Accepted) {
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                return tokio::time::sleep(BREATH).await;
            }
        };
        // Small pieces of a stream must not wait for each other.
        let _ = stream.set_nodelay(true);
        let (builder, service, leave) = (self.builder.clone(), self.service.clone(), self.leave.subscribe());
        let (tls, patience) = (self.tls.clone(), self.patience);
        tokio::spawn(async move {
            let ended = match tls {
                None => serve(&builder, TokioIo::new(stream), service, leave).await,
                Some(tls) => match tls.accept(stream, patience).await {
                    Ok(stream) => serve(&builder, TokioIo::new(stream), service, leave).await,
                    Err(error) => return tracing::debug!(%peer, %error, "a client was not greeted"),
                },
            };
            if let Err(error) = ended {
                tracing::debug!(%peer, %error, "a connection ended early");
            }
            drop(permit);
        });
    }

    /// Lets open requests end. Idle connections close at once; the engines end what is open after `drain`.
    pub(crate) async fn close(self, drain: Duration, engines: tokio::task::JoinHandle<()>) {
        drop(self.leave);
        let both = async {
            // All of them are there again when no connection is.
            let _ = self.permits.acquire_many(self.most).await;
            // Whether an engine ended by a defect matters to nobody any more.
            let _ = engines.await;
        };
        let _ = tokio::time::timeout(drain + LAST_WORDS, both).await;
    }
}

/// Serves a connection until it ends. Told to leave, it ends behind the answer that is waited for, or at once if none is;
/// but one that has just come may ask first.
async fn serve(
    builder: &http1::Builder,
    io: impl Read + Write + Unpin,
    service: axum::Router,
    mut leave: watch::Receiver<()>,
) -> hyper::Result<()> {
    let (service, first) = (TowerToHyperService::new(service), Notify::new());
    let service = service_fn(|request| {
        first.notify_one();
        service.call(request)
    });
    let mut connection = pin!(builder.serve_connection(io, service));
    let (mut has_asked, mut told, mut ends) = (false, false, false);
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            () = first.notified(), if !has_asked => has_asked = true,
            gone = leave.changed(), if !ends => (told, ends) = (true, gone.is_err()),
        }
        if ends || told && has_asked {
            connection.as_mut().graceful_shutdown();
        }
    }
}
