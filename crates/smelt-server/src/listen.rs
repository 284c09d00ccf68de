//! The server's life: address, connections, end.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::app::{App, router};
use crate::info::Cards;
use crate::metrics::Metrics;
use crate::models::{ModelSource, Models};
use crate::openai::responses::Store;
use crate::pull::Pulls;
use crate::settings::{Error, Settings};
use crate::tls::Tls;
use crate::trace::Tracer;

/// For engines to end behind the time that answers have, which is five seconds at most, and for what is written by then.
const LAST_WORDS: Duration = Duration::from_secs(8);
/// After the system refused a connection, for want of files most of the time.
const BREATH: Duration = Duration::from_millis(100);
/// Threads for connections; the engine has its own.
const THREADS: usize = 2;

/// A server that has its address, and doesn't answer yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
    stopper: Stopper,
}

/// Ends a server from anywhere.
#[derive(Debug, Clone)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    /// Tells the server to take no more requests, answer those that it has, and end.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Server {
    /// Takes the address. Connections wait until [`Server::run`].
    ///
    /// # Errors
    /// If the address is taken, or the models or the collector's address make no sense.
    pub fn bind(settings: Settings, models: Vec<ModelSource>) -> Result<Self, Error> {
        let models = Models::new(models, &settings)?;
        let tracer = Tracer::new(settings.traces.as_ref())?;
        let (host, port) = (settings.host.clone(), settings.port);
        let failed = |source| Error::Bind { host: host.clone(), port, source };
        let listener = TcpListener::bind((host.as_str(), port)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let app = App {
            models,
            metrics: Metrics::default(),
            tracer,
            pulls: Pulls::default(),
            responses: Store::new(settings.limits.responses),
            cards: Cards::default(),
            warming: AtomicBool::new(true),
            draining: AtomicBool::new(false),
            loopback: address.ip().is_loopback(),
            started: Timestamp::now(),
            settings,
        };
        let stopper = Stopper(watch::Sender::new(false));
        Ok(Self { listener, address, app: Arc::new(app), stopper })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What ends it.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Answers requests until told to stop. Until the models that are to be warm are loaded, `/health` says 503.
    ///
    /// # Errors
    /// If a model can't be loaded, or the machine refuses threads.
    pub fn run(self) -> Result<(), Error> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(THREADS).thread_name("smelt-http").enable_all().build();
        let runtime = runtime.map_err(|source| Error::System { what: "start threads", source })?;
        let result = runtime.block_on(self.serve());
        // What is still being loaded, or written to whoever doesn't read, holds nothing up.
        runtime.shutdown_background();
        result
    }

    async fn serve(self) -> Result<(), Error> {
        let failed = |what| move |source| Error::System { what, source };
        let listener = tokio::net::TcpListener::from_std(self.listener).map_err(failed("listen"))?;
        if self.app.settings.stop_on_signals {
            stop_on_signals(self.stopper.clone()).map_err(failed("listen to signals"))?;
        }
        let app = self.app.clone();
        let mut loading = tokio::spawn(async move { app.models.run().await });
        let connections = Connections::new(&self.app);
        let mut stopped = self.stopper.0.subscribe();
        let mut is_loading = true;
        let result = loop {
            tokio::select! {
                _ = stopped.wait_for(|stop| *stop) => break Ok(()),
                loaded = &mut loading, if is_loading => {
                    is_loading = false;
                    match loaded {
                        Ok(Ok(())) => self.app.warming.store(false, Ordering::Relaxed),
                        Ok(Err(error)) => break Err(error),
                        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
                    }
                }
                (permit, accepted) = connections.next(&listener) => connections.accept(permit, accepted).await,
            }
        };
        drop(listener);
        self.app.draining.store(true, Ordering::Relaxed);
        tracing::info!("stopping");
        let (app, drain) = (self.app.clone(), self.app.settings.limits.drain_time);
        let engines = tokio::spawn(async move { app.models.shutdown(drain).await });
        connections.close(drain, engines).await;
        let app = self.app.clone();
        // By then every answer has ended, and its span with it.
        let _ = tokio::task::spawn_blocking(move || app.tracer.finish()).await;
        result
    }
}

/// A connection, or why there is none.
type Accepted = std::io::Result<(tokio::net::TcpStream, SocketAddr)>;

/// Open connections.
struct Connections {
    graceful: GracefulShutdown,
    builder: http1::Builder,
    service: axum::Router,
    permits: Arc<Semaphore>,
    tls: Option<Tls>,
    /// For a client to greet a server that speaks TLS.
    patience: Duration,
}

impl Connections {
    fn new(app: &Arc<App>) -> Self {
        let limits = &app.settings.limits;
        let mut builder = http1::Builder::new();
        // Some clients look for names as most servers write them.
        builder.title_case_headers(true);
        builder.timer(TokioTimer::new()).header_read_timeout(limits.head_time).max_buf_size(limits.head);
        Self {
            graceful: GracefulShutdown::new(),
            builder,
            service: router(app),
            permits: Arc::new(Semaphore::new(limits.connections)),
            tls: app.settings.tls.clone(),
            patience: limits.head_time,
        }
    }

    /// The next connection, once there may be one more; meanwhile others wait in the system's queue.
    async fn next(&self, listener: &tokio::net::TcpListener) -> (OwnedSemaphorePermit, Accepted) {
        // The semaphore is never closed.
        let permit = self.permits.clone().acquire_owned().await.expect("an open semaphore");
        (permit, listener.accept().await)
    }

    /// Serves a connection.
    async fn accept(&self, permit: OwnedSemaphorePermit, accepted: Accepted) {
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                return tokio::time::sleep(BREATH).await;
            }
        };
        // Small pieces of a stream must not wait for each other.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(self.service.clone());
        let (builder, watcher) = (self.builder.clone(), self.graceful.watcher());
        let (tls, patience) = (self.tls.clone(), self.patience);
        tokio::spawn(async move {
            let ended = match tls {
                None => watcher.watch(builder.serve_connection(TokioIo::new(stream), service)).await,
                Some(tls) => match tls.accept(stream, patience).await {
                    Ok(stream) => {
                        watcher.watch(builder.serve_connection(TokioIo::new(stream), service)).await
                    }
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
    async fn close(self, drain: Duration, engines: tokio::task::JoinHandle<()>) {
        let closed = self.graceful.shutdown();
        let both = async {
            closed.await;
            // Whether an engine ended by a defect matters to nobody any more.
            let _ = engines.await;
        };
        let _ = tokio::time::timeout(drain + LAST_WORDS, both).await;
    }
}

#[cfg(unix)]
fn stop_on_signals(stopper: Stopper) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        stopper.stop();
    });
    Ok(())
}

#[cfg(not(unix))]
fn stop_on_signals(stopper: Stopper) -> std::io::Result<()> {
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stopper.stop();
        }
    });
    Ok(())
}
