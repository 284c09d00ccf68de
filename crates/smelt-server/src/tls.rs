//! TLS: the server's certificate, and connections that speak it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

/// What a record that begins a TLS connection begins with.
const HANDSHAKE: u8 = 22;

/// What a client is told that doesn't speak TLS.
const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n\
    {\"error\": {\"message\": \"this port speaks TLS: ask it by https://\", \"type\": \"invalid_request_error\", \
    \"param\": null, \"code\": \"tls_required\"}}\n";

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read, or isn't PEM.
    #[error("{file}: {reason}")]
    File {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// The key isn't the certificate's, or one of them isn't usable.
    #[error("{certificate} and {key} make no TLS: {source}")]
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of its key.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
}

/// Between two looks at whether the files have changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A certificate with its key. Both are read again when their files have changed.
#[derive(Clone)]
pub struct Tls(Arc<Pair>);

struct Pair {
    certificate: PathBuf,
    key: PathBuf,
    current: Mutex<Current>,
}

/// What connections are greeted with.
struct Current {
    acceptor: TlsAcceptor,
    stamps: Stamps,
    looked: Instant,
}

/// When the two files were written, and how long they are.
type Stamps = [Option<(SystemTime, u64)>; 2];

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls(..)")
    }
}

fn stamps(certificate: &Path, key: &Path) -> Stamps {
    [certificate, key].map(|file| {
        let meta = std::fs::metadata(file).ok()?;
        Some((meta.modified().ok()?, meta.len()))
    })
}

impl Pair {
    /// What connections are greeted with now. Files that make no TLS, as they may while they are being written, change
    /// nothing until they have changed again.
    fn acceptor(&self) -> TlsAcceptor {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.looked.elapsed() < LOOK_EVERY {
            return current.acceptor.clone();
        }
        current.looked = Instant::now();
        let stamps = stamps(&self.certificate, &self.key);
        if std::mem::replace(&mut current.stamps, stamps) != stamps {
            match read(&self.certificate, &self.key) {
                Ok(acceptor) => {
                    tracing::info!(certificate = %self.certificate.display(), "the certificate was read again");
                    current.acceptor = acceptor;
                }
                Err(error) => tracing::warn!(%error, "the certificate from before is used on"),
            }
        }
        current.acceptor.clone()
    }
}

impl Tls {
    /// Reads a certificate, with those that vouch for it behind it, and its private key: PEM files.
    ///
    /// # Errors
    /// If a file can't be read or lacks them, or the key isn't the certificate's.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        // Before they are read: what is written meanwhile shows at the next look.
        let stamps = stamps(certificate, key);
        let current = Current { acceptor: read(certificate, key)?, stamps, looked: Instant::now() };
        let (certificate, key) = (certificate.into(), key.into());
        Ok(Self(Arc::new(Pair { certificate, key, current: Mutex::new(current) })))
    }

    /// Greets a client. One that speaks plain HTTP is told what to do.
    ///
    /// # Errors
    /// If it speaks something else, or takes longer than `patience`.
    pub(crate) async fn accept(
        &self,
        mut stream: TcpStream,
        patience: Duration,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let greet = async {
            let mut first = [0];
            if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE {
                stream.write_all(PLAIN).await?;
                stream.shutdown().await?;
                return Err(std::io::Error::other("it speaks no TLS"));
            }
            self.0.acceptor().accept(stream).await
        };
        let late = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
        tokio::time::timeout(patience, greet).await.map_err(late)?
    }
}

/// What the two files make.
fn read(certificate: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
    let wrong = |file: &Path, reason: String| TlsError::File { file: file.into(), reason };
    let pem = |file: &Path, what: &str, e: rustls::pki_types::pem::Error| match e {
        rustls::pki_types::pem::Error::Io(e) => wrong(file, format!("cannot read it: {e}")),
        rustls::pki_types::pem::Error::NoItemsFound => wrong(file, format!("it holds no {what} in PEM")),
        other => wrong(file, format!("it is no PEM: {other}")),
    };
    let of_certificate = |e| pem(certificate, "certificate", e);
    let chain = CertificateDer::pem_file_iter(certificate).map_err(of_certificate)?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(of_certificate)?;
    if chain.is_empty() {
        return Err(of_certificate(rustls::pki_types::pem::Error::NoItemsFound));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|e| pem(key, "private key", e))?;
    let pair = |source| TlsError::Pair { certificate: certificate.into(), key: key.into(), source };
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(pair)?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, private).map_err(pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
