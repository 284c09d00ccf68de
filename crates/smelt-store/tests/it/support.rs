//! An HTTP server that misbehaves on request, and little helpers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sha2::{Digest, Sha256};
use smelt_store::{Catalogue, Event, Settings, Store};

/// How the server treats one path.
#[derive(Clone, Default)]
pub(crate) struct Page {
    pub(crate) body: Vec<u8>,
    pub(crate) etag: Option<String>,
    /// Extra header lines.
    pub(crate) headers: Vec<String>,
    /// Ignores `Range`.
    pub(crate) no_ranges: bool,
    /// Statuses that the first requests get instead of the body.
    pub(crate) statuses: Vec<u16>,
    /// Byte counts after which the connections of the first (good) requests are cut.
    pub(crate) cuts: Vec<usize>,
    /// Where a redirect leads, with its status.
    pub(crate) redirect: Option<(u16, String)>,
    /// Wait between two pieces of 4 KiB.
    pub(crate) slow: Option<Duration>,
    /// Sends no `Content-Length`; the end of the connection ends the body.
    pub(crate) no_length: bool,
}

impl Page {
    pub(crate) fn of(body: &[u8]) -> Page {
        Page { body: body.into(), etag: Some(format!("\"{}\"", &sha256(body)[..16])), ..Page::default() }
    }
}

/// One request as the server saw it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) headers: BTreeMap<String, String>,
}

pub(crate) struct Server {
    pub(crate) address: String,
    pages: Arc<Mutex<BTreeMap<String, Page>>>,
    log: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub(crate) fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let pages = Arc::new(Mutex::new(BTreeMap::new()));
        let log = Arc::new(Mutex::new(Vec::new()));
        let server = Server { address, pages: Arc::clone(&pages), log: Arc::clone(&log) };
        // The thread ends with the test process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (pages, log) = (Arc::clone(&pages), Arc::clone(&log));
                std::thread::spawn(move || {
                    // A client that goes away in the middle is part of the tests.
                    let _ = answer(&stream, &pages, &log);
                });
            }
        });
        server
    }

    pub(crate) fn put(&self, path: &str, page: Page) {
        self.pages.lock().unwrap().insert(path.into(), page);
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.log.lock().unwrap().clone()
    }
}

fn answer(
    stream: &TcpStream,
    pages: &Mutex<BTreeMap<String, Page>>,
    log: &Mutex<Vec<Request>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = BTreeMap::new();
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    log.lock().unwrap().push(Request { headers: headers.clone() });
    let (page, status, cut) = {
        let mut pages = pages.lock().unwrap();
        let Some(page) = pages.get_mut(&path) else { return head(stream, 404, "content-length: 0\r\n") };
        let status = (!page.statuses.is_empty()).then(|| page.statuses.remove(0));
        let cut = (status.is_none() && !page.cuts.is_empty()).then(|| page.cuts.remove(0));
        (page.clone(), status, cut)
    };
    let extra: String = page.headers.iter().map(|line| format!("{line}\r\n")).collect();
    if let Some(status) = status {
        return head(stream, status, "content-length: 0\r\n");
    }
    if let Some((status, to)) = page.redirect {
        return head(stream, status, &format!("location: {to}\r\ncontent-length: 0\r\n{extra}"));
    }
    let total = page.body.len();
    let start = headers.get("range").and_then(|r| r.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    let fresh = headers.get("if-range").is_none_or(|tag| page.etag.as_ref() == Some(tag));
    let start = start.filter(|_| fresh && !page.no_ranges);
    let etag = page.etag.map_or(String::new(), |e| format!("etag: {e}\r\n"));
    let mut lines = format!("{etag}{extra}");
    let body = match start {
        Some(start) if start >= total => return head(stream, 416, "content-length: 0\r\n"),
        Some(start) => {
            lines.push_str(&format!("content-range: bytes {start}-{}/{total}\r\n", total - 1));
            &page.body[start..]
        }
        None => &page.body[..],
    };
    if !page.no_length {
        lines.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    head(stream, if start.is_some() { 206 } else { 200 }, &lines)?;
    let body = &body[..cut.unwrap_or(body.len()).min(body.len())];
    let mut stream = stream;
    match page.slow {
        None => stream.write_all(body),
        Some(pause) => body.chunks(4096).try_for_each(|piece| {
            std::thread::sleep(pause);
            stream.write_all(piece)
        }),
    }
}

fn head(mut stream: &TcpStream, status: u16, lines: &str) -> std::io::Result<()> {
    stream.write_all(format!("HTTP/1.1 {status} X\r\nconnection: close\r\n{lines}\r\n").as_bytes())
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// A small deterministic generator (splitmix64), so that a failure can be repeated.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }
}

/// Something that begins like a GGUF file and does not repeat.
pub(crate) fn model_bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let mut bytes = b"GGUF".to_vec();
    bytes.resize_with(length, || random.below(256) as u8);
    bytes
}

/// Settings that retry fast.
pub(crate) fn quick() -> Settings {
    Settings {
        backoff: Duration::from_millis(1),
        connect_timeout: Duration::from_secs(5),
        stall_timeout: Duration::from_secs(5),
        retries: 3,
        hf_endpoint: "http://127.0.0.1:9".into(),
        ..Settings::default()
    }
}

/// A catalogue with the one model `m:1`.
pub(crate) fn catalogue(body: &[u8], sources: &str) -> Catalogue {
    let (size, sha) = (body.len(), sha256(body));
    Catalogue::parse(&format!(
        "[[model]]\nname='m'\ntag='1'\ntitle='M'\nfamily='llama'\nformat='F32'\nlicence='MIT'\nsize={size}\n\
         sha256='{sha}'\n{sources}"
    ))
    .unwrap()
}

pub(crate) fn url_source(url: &str) -> String {
    format!("[[model.source]]\nkind='url'\nurl='{url}'\n")
}

/// A store in `root` whose catalogue has the one model `m:1` at `url`.
pub(crate) fn store(root: &Path, body: &[u8], url: &str) -> Store {
    Store::with_catalogue(root, catalogue(body, &url_source(url)))
}

/// A progress that keeps what it is told.
pub(crate) fn recorder(events: &mut Vec<String>) -> impl FnMut(Event<'_>) -> ControlFlow<()> {
    |event| {
        events.push(format!("{event:?}"));
        ControlFlow::Continue(())
    }
}

/// Names of what lies in `partial/`.
pub(crate) fn partials(root: &Path) -> Vec<String> {
    names(&root.join("partial"))
}

pub(crate) fn blobs(root: &Path) -> Vec<String> {
    names(&root.join("blobs"))
}

fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
