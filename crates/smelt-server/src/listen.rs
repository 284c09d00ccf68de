//! The server's life: address, models, end.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use tokio::sync::watch;

use crate::app::App;
use crate::connections::Connections;
use crate::info::Cards;
use crate::metrics::Metrics;
use crate::models::{ModelSource, Models};
use crate::openai::responses::Store;
use crate::pull::Pulls;
use crate::settings::{Error, Settings};
use crate::trace::Tracer;

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
