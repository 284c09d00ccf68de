//! Several processes, and processes that are killed.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use smelt_store::{Reference, Settings, Store};

use crate::support::{
    Page, Random, Server, blobs, catalogue, model_bytes, partials, quick, recorder, sha256, store,
};

const ROOT: &str = "SMELT_STORE_TEST_ROOT";
const URL: &str = "SMELT_STORE_TEST_URL";
const SIZE: usize = 400_000;

/// Not a test of its own: what the children of the tests below run.
#[test]
#[ignore = "run as a child process by other tests"]
fn child_pull() {
    let (root, url) = (std::env::var(ROOT).unwrap(), std::env::var(URL).unwrap());
    let mut events = Vec::new();
    let store = store(Path::new(&root), &model_bytes(SIZE, 20), &url);
    store.pull(&Reference::parse("m").unwrap(), &quick(), &mut recorder(&mut events)).unwrap();
    println!("waited: {}", events.iter().any(|e| e.starts_with("WaitingForOther")));
}

fn spawn(what: &str, root: &Path, url: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("processes::{what}"), "--ignored", "--nocapture"])
        .env(ROOT, root)
        .env(URL, url)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// A slow server: the file takes about 200 ms.
fn slow_server(body: &[u8]) -> (Server, String) {
    let server = Server::start();
    server.put("/m.gguf", Page { slow: Some(Duration::from_millis(2)), ..Page::of(body) });
    let url = server.url("/m.gguf");
    (server, url)
}

fn assert_consistent(store: &Store, body: &[u8]) {
    let listing = store.list().unwrap();
    assert!(listing.problems.is_empty(), "{:?}", listing.problems);
    for installed in listing.installed {
        assert_eq!(fs::read(installed.path).unwrap(), body);
    }
    for blob in blobs(store.root()) {
        assert_eq!(blob, format!("sha256-{}", sha256(body)));
        assert_eq!(fs::read(store.root().join("blobs").join(blob)).unwrap(), body);
    }
}

#[test]
fn a_pull_may_be_killed_at_any_time() {
    let body = model_bytes(SIZE, 20);
    let (server, url) = slow_server(&body);
    let root = tempfile::tempdir().unwrap();
    let store = store(root.path(), &body, &url);
    let reference = Reference::parse("m").unwrap();
    let mut random = Random(21);
    let mut killed = 0;
    for _ in 0..20 {
        let requests = server.requests().len();
        let mut child = spawn("child_pull", root.path(), &url);
        // The time of a process's start says nothing; what counts is how long it has been downloading.
        let deadline = Instant::now() + Duration::from_secs(20);
        while server.requests().len() == requests
            && child.try_wait().unwrap().is_none()
            && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(random.below(60) as u64));
        child.kill().unwrap();
        killed += usize::from(!child.wait().unwrap().success());
        assert_consistent(&store, &body);
        if store.resolve(&reference).unwrap().is_some() {
            store.remove(&reference).unwrap();
        }
    }
    assert!(killed >= 10, "only {killed} of 20 children were killed before they were done");
    let installed = store.pull(&reference, &quick(), &mut ()).unwrap();
    assert_eq!(fs::read(installed.path).unwrap(), body);
    assert_eq!(partials(root.path()), [""; 0]);
}

#[test]
fn two_pulls_at_once_make_one_download() {
    let body = model_bytes(SIZE, 20);
    let (server, url) = slow_server(&body);
    let root = tempfile::tempdir().unwrap();
    let children = [
        spawn("child_pull", root.path(), &url),
        spawn("child_pull", root.path(), &url),
        spawn("child_pull", root.path(), &url),
    ];
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    assert_eq!(server.requests().len(), 1);
    let store = store(root.path(), &body, &url);
    assert_consistent(&store, &body);
    assert!(store.resolve(&Reference::parse("m").unwrap()).unwrap().is_some());
}

#[test]
fn removals_beside_pulls_leave_no_half() {
    let body = model_bytes(20_000, 22);
    let server = Server::start();
    server.put("/m.gguf", Page::of(&body));
    let root = tempfile::tempdir().unwrap();
    let url = server.url("/m.gguf");
    let reference = Reference::parse("m").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let store = store(root.path(), &body, &url);
                for _ in 0..30 {
                    match store.pull(&reference, &quick(), &mut ()) {
                        Ok(_) => {}
                        // Removed by the other thread between the commit and the look at it.
                        Err(smelt_store::StoreError::NotInstalled { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        scope.spawn(|| {
            let store = store(root.path(), &body, &url);
            for _ in 0..100 {
                let _ = store.remove(&reference);
            }
        });
    });
    let store = store(root.path(), &body, &url);
    assert_consistent(&store, &body);
    store.pull(&reference, &quick(), &mut ()).unwrap();
    assert_consistent(&store, &body);
}

/// Not a test of its own: a pull by a pip whose index never answers.
#[test]
#[ignore = "run as a child process by the test below"]
fn child_pip() {
    let (root, url) = (std::env::var(ROOT).unwrap(), std::env::var(URL).unwrap());
    let source = "[[model.source]]\nkind='python'\npackages=['p==1']\nmember='*.gguf'\n";
    let store = Store::with_catalogue(&root, catalogue(b"GGUF", source));
    let env = [("PIP_INDEX_URL", url), ("PIP_CONFIG_FILE", "/dev/null".to_owned())];
    let settings = Settings {
        python: Path::new(&root).join("python"),
        python_env: env.map(|(key, value)| (key.to_owned(), value)).into(),
        ..quick()
    };
    store.pull(&Reference::parse("m").unwrap(), &settings, &mut ()).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn pip_ends_with_a_pull_that_is_killed() {
    use std::os::unix::fs::PermissionsExt;

    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let root = tempfile::tempdir().unwrap();
    let (python, pid_file) = (root.path().join("python"), root.path().join("pid"));
    // A Python that tells its process id.
    fs::write(&python, format!("#!/bin/sh\necho $$ > '{}'\nexec python3 \"$@\"\n", pid_file.display()))
        .unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    let mut child = spawn("child_pip", root.path(), &url);
    let until = |what: &str, holds: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !holds() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let pid = || fs::read_to_string(&pid_file).ok().filter(|pid| pid.ends_with('\n'));
    until("pip was not started", &|| pid().is_some());
    // Waiting for the index, at the latest.
    let (_connection, _) = silent.accept().unwrap();
    let stat = format!("/proc/{}/stat", pid().unwrap().trim());
    // Who is dead and not yet buried counts as dead.
    let lives = || fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
    assert!(lives());
    child.kill().unwrap();
    child.wait().unwrap();
    until("pip goes on without its pull", &|| !lives());
}
