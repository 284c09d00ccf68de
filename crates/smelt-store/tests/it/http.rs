//! Downloads from a server that misbehaves.

use std::fs;
use std::ops::ControlFlow;

use smelt_store::{Event, Reference, Settings, Store, StoreError};

use crate::support::{Page, Random, Server, blobs, model_bytes, partials, quick, recorder, sha256, store};

fn m() -> Reference {
    Reference::parse("m").unwrap()
}

/// The reason of the only source that was tried.
fn reason(error: StoreError) -> StoreError {
    match error {
        StoreError::AllSourcesFailed { mut failures, .. } if failures.len() == 1 => *failures.remove(0).error,
        other => panic!("not one failed source: {other}"),
    }
}

#[test]
fn cut_connections_are_resumed_at_any_byte() {
    let server = Server::start();
    let body = model_bytes(700_001, 3);
    let mut random = Random(4);
    for round in 0..8 {
        let cuts: Vec<usize> = (0..6).map(|_| random.below(body.len() / 4)).chain([0, 1]).collect();
        server.put("/m.gguf", Page { cuts: cuts.clone(), ..Page::of(&body) });
        let root = tempfile::tempdir().unwrap();
        // Alternately with a known hash, and with nothing but the entity tag.
        let reference = match round % 2 {
            0 => m(),
            _ => Reference::parse(&server.url("/m.gguf")).unwrap(),
        };
        let store = store(root.path(), &body, &server.url("/m.gguf"));
        let installed = store.pull(&reference, &quick(), &mut ()).unwrap_or_else(|e| panic!("{cuts:?}: {e}"));
        assert_eq!(fs::read(&installed.path).unwrap(), body, "{cuts:?}");
        assert_eq!(installed.manifest.unwrap().files[0].sha256, sha256(&body));
        assert_eq!(partials(root.path()), [""; 0]);
    }
    assert!(server.requests().iter().any(|r| r.headers.contains_key("if-range")));
}

#[test]
fn a_cancelled_download_goes_on_later() {
    let server = Server::start();
    let body = model_bytes(3_000_000, 5);
    server.put("/m.gguf", Page::of(&body));
    let root = tempfile::tempdir().unwrap();
    let store = store(root.path(), &body, &server.url("/m.gguf"));
    for reference in [m(), Reference::parse(&server.url("/m.gguf")).unwrap()] {
        let mut stop = |event: Event<'_>| match event {
            Event::Advanced { bytes } if bytes > 1_000_000 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        let error = store.pull(&reference, &quick(), &mut stop).unwrap_err();
        assert!(matches!(error, StoreError::Cancelled));
        assert!(store.resolve(&reference).unwrap().is_none());
        assert!(partials(root.path()).iter().any(|n| n.ends_with(".part")));
        let mut events = Vec::new();
        let installed = store.pull(&reference, &quick(), &mut recorder(&mut events)).unwrap();
        assert_eq!(fs::read(installed.path).unwrap(), body);
        let started = events.iter().find(|e| e.starts_with("Started")).unwrap();
        assert!(!started.ends_with("resumed: 0 }"), "{started}");
        store.remove(&reference).unwrap();
    }
}

#[test]
fn a_file_that_changed_between_two_attempts_is_fetched_anew() {
    let server = Server::start();
    let (old, new) = (model_bytes(500_000, 6), model_bytes(500_000, 7));
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path()).unwrap();
    let reference = Reference::parse(&server.url("/m.gguf")).unwrap();
    server.put("/m.gguf", Page { cuts: vec![200_000; 4], no_ranges: true, ..Page::of(&old) });
    store.pull(&reference, &quick(), &mut ()).unwrap_err();
    server.put("/m.gguf", Page::of(&new));
    let installed = store.pull(&reference, &quick(), &mut ()).unwrap();
    assert_eq!(fs::read(installed.path).unwrap(), new);
}

#[test]
fn stale_bytes_under_a_known_hash_cost_one_more_attempt() {
    let server = Server::start();
    let (old, new) = (model_bytes(500_000, 6), model_bytes(500_000, 7));
    server.put("/m.gguf", Page { etag: None, ..Page::of(&new) });
    let root = tempfile::tempdir().unwrap();
    let store = store(root.path(), &new, &server.url("/m.gguf"));
    fs::create_dir_all(root.path().join("partial")).unwrap();
    let part = format!("partial/sha256-{}-0.part", sha256(&new));
    fs::write(root.path().join(part), &old[..300_000]).unwrap();
    let installed = store.pull(&m(), &quick(), &mut ()).unwrap();
    assert_eq!(fs::read(installed.path).unwrap(), new);
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn the_wrong_file_is_never_installed() {
    let server = Server::start();
    let body = model_bytes(100_000, 8);
    let mut flipped = body.clone();
    flipped[99_999] ^= 1;
    let root = tempfile::tempdir().unwrap();
    let store = store(root.path(), &body, &server.url("/m.gguf"));
    let wrong = [
        Page::of(&flipped),
        Page::of(&body[..99_999]),
        Page::of(&[&body[..], b"!"].concat()),
        Page { no_length: true, ..Page::of(&[&body[..], b"!"].concat()) },
        Page { no_length: true, ..Page::of(&body[..50_000]) },
    ];
    for (case, page) in wrong.into_iter().enumerate() {
        server.put("/m.gguf", page);
        let error = reason(store.pull(&m(), &quick(), &mut ()).unwrap_err());
        let right = match case {
            0 => matches!(error, StoreError::WrongHash { .. }),
            3 => matches!(error, StoreError::BadAnswer { .. }),
            _ => matches!(error, StoreError::WrongSize { .. }),
        };
        assert!(right, "{case}: {error}");
        assert!(store.resolve(&m()).unwrap().is_none());
        assert_eq!(blobs(root.path()), [""; 0]);
    }
    // The refused bytes are gone, so the good file comes at once.
    server.put("/m.gguf", Page::of(&body));
    store.pull(&m(), &quick(), &mut ()).unwrap();
}

#[test]
fn a_server_without_ranges_or_length_works_too() {
    let server = Server::start();
    let body = model_bytes(400_000, 9);
    let root = tempfile::tempdir().unwrap();
    let store = store(root.path(), &body, &server.url("/m.gguf"));
    server.put("/m.gguf", Page { no_ranges: true, cuts: vec![300_000, 100_000], ..Page::of(&body) });
    assert_eq!(fs::read(store.pull(&m(), &quick(), &mut ()).unwrap().path).unwrap(), body);
    store.remove(&m()).unwrap();
    server.put("/m.gguf", Page { no_length: true, etag: None, ..Page::of(&body) });
    assert_eq!(fs::read(store.pull(&m(), &quick(), &mut ()).unwrap().path).unwrap(), body);
}

#[test]
fn passing_errors_are_retried_and_lasting_ones_are_not() {
    let server = Server::start();
    let body = model_bytes(10_000, 10);
    let root = tempfile::tempdir().unwrap();
    let store = store(root.path(), &body, &server.url("/m.gguf"));
    server.put("/m.gguf", Page { statuses: vec![404], ..Page::of(&body) });
    let error = reason(store.pull(&m(), &quick(), &mut ()).unwrap_err());
    assert!(matches!(error, StoreError::Status { status: 404, .. }), "{error}");
    assert_eq!(server.requests().len(), 1);
    server.put("/m.gguf", Page { statuses: vec![500; 4], ..Page::of(&body) });
    let error = reason(store.pull(&m(), &quick(), &mut ()).unwrap_err());
    assert!(matches!(error, StoreError::Transfer { attempts: 4, .. }), "{error}");
    server.put("/m.gguf", Page { statuses: vec![503, 429, 500], ..Page::of(&body) });
    let mut events = Vec::new();
    store.pull(&m(), &quick(), &mut recorder(&mut events)).unwrap();
    assert_eq!(events.iter().filter(|e| e.starts_with("Retrying")).count(), 3);
}

#[test]
fn redirects_are_followed_and_endless_ones_are_not() {
    let server = Server::start();
    let body = model_bytes(10_000, 11);
    let root = tempfile::tempdir().unwrap();
    let store = store(root.path(), &body, &server.url("/a"));
    server.put("/a", Page { redirect: Some((302, "/b".into())), ..Page::default() });
    server.put("/b", Page { redirect: Some((307, server.url("/c.gguf"))), ..Page::default() });
    server.put("/c.gguf", Page::of(&body));
    store.pull(&m(), &quick(), &mut ()).unwrap();
    store.remove(&m()).unwrap();
    server.put("/b", Page { redirect: Some((301, "/a".into())), ..Page::default() });
    let error = reason(store.pull(&m(), &quick(), &mut ()).unwrap_err());
    assert!(error.to_string().contains("redirects without end"), "{error}");
}

#[test]
fn the_hub_gives_the_hash_and_keeps_the_token() {
    let (hub, storage) = (Server::start(), Server::start());
    let body = model_bytes(50_000, 12);
    let linked = |sha: &str| Page {
        redirect: Some((302, storage.url("/blob"))),
        headers: vec![format!("x-linked-etag: \"{sha}\""), format!("x-linked-size: {}", body.len())],
        ..Page::default()
    };
    let settings = Settings { hf_endpoint: hub.address.clone(), hf_token: Some("secret".into()), ..quick() };
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path()).unwrap();
    let reference = Reference::parse("hf:o/r/m.gguf").unwrap();
    storage.put("/blob", Page::of(&body));

    hub.put("/o/r/resolve/main/m.gguf", linked(&sha256(b"other")));
    let error = reason(store.pull(&reference, &settings, &mut ()).unwrap_err());
    assert!(matches!(error, StoreError::WrongHash { .. }), "{error}");

    hub.put("/o/r/resolve/main/m.gguf", linked(&sha256(&body)));
    let installed = store.pull(&reference, &settings, &mut ()).unwrap();
    assert_eq!(fs::read(installed.path).unwrap(), body);
    assert!(hub.requests().iter().all(|r| r.headers["authorization"] == "Bearer secret"));
    assert!(storage.requests().iter().all(|r| !r.headers.contains_key("authorization")));

    // A second pull asks, and fetches only if the hub has something else.
    let mut events = Vec::new();
    store.pull(&reference, &settings, &mut recorder(&mut events)).unwrap();
    assert!(!events.iter().any(|e| e.starts_with("Started")), "{events:?}");
    let newer = model_bytes(60_000, 13);
    storage.put("/blob", Page::of(&newer));
    let page = Page {
        redirect: Some((302, storage.url("/blob"))),
        headers: vec![format!("x-linked-etag: \"{}\"", sha256(&newer))],
        ..Page::default()
    };
    hub.put("/o/r/resolve/main/m.gguf", page);
    let installed = store.pull(&reference, &settings, &mut ()).unwrap();
    assert_eq!(fs::read(installed.path).unwrap(), newer);
    assert_eq!(blobs(root.path()), [format!("sha256-{}", sha256(&newer))]);
}

#[test]
fn a_split_file_is_pulled_wholly() {
    let server = Server::start();
    let shards: Vec<Vec<u8>> = (0..3).map(|n| model_bytes(20_000 + n, n as u64)).collect();
    for (n, shard) in shards.iter().enumerate() {
        server.put(&format!("/o/r/resolve/main/q/m-0000{}-of-00003.gguf", n + 1), Page::of(shard));
    }
    let settings = Settings { hf_endpoint: server.address.clone(), ..quick() };
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path()).unwrap();
    let reference = Reference::parse("hf:o/r/q/m-00002-of-00003.gguf").unwrap();
    let installed = store.pull(&reference, &settings, &mut ()).unwrap();
    assert!(installed.path.ends_with("m-00001-of-00003.gguf"));
    for (n, shard) in shards.iter().enumerate() {
        let path = installed.path.with_file_name(format!("m-0000{}-of-00003.gguf", n + 1));
        assert_eq!(&fs::read(path).unwrap(), shard);
    }
    assert_eq!(store.list().unwrap().installed.len(), 1);
    let freed = store.remove(&reference).unwrap().freed;
    assert_eq!(freed, 60_003);
    assert_eq!(blobs(root.path()), [""; 0]);
    assert_eq!(fs::read_dir(root.path().join("splits")).unwrap().count(), 0);
}

#[test]
fn a_web_page_is_no_model() {
    let server = Server::start();
    server.put("/m.gguf", Page::of(b"<!doctype html>"));
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path()).unwrap();
    let reference = Reference::parse(&server.url("/m.gguf")).unwrap();
    let error = reason(store.pull(&reference, &quick(), &mut ()).unwrap_err());
    assert!(error.to_string().contains("no GGUF file: it begins with \"<!do\""), "{error}");
    assert_eq!(blobs(root.path()), [""; 0]);
}

#[test]
fn the_next_source_is_tried_and_every_failure_told() {
    let server = Server::start();
    let body = model_bytes(10_000, 14);
    let sources =
        ["/gone", "/broken", "/m.gguf"].map(|p| crate::support::url_source(&server.url(p))).concat();
    server.put("/broken", Page::of(&body[..5000]));
    let root = tempfile::tempdir().unwrap();
    let store = Store::with_catalogue(root.path(), crate::support::catalogue(&body, &sources));
    match store.pull(&m(), &quick(), &mut ()).unwrap_err() {
        StoreError::AllSourcesFailed { failures, .. } => assert_eq!(failures.len(), 3),
        other => panic!("{other}"),
    }
    server.put("/m.gguf", Page::of(&body));
    let mut events = Vec::new();
    let installed = store.pull(&m(), &quick(), &mut recorder(&mut events)).unwrap();
    assert_eq!(installed.manifest.unwrap().source, server.url("/m.gguf"));
    assert_eq!(events.iter().filter(|e| e.starts_with("SourceFailed")).count(), 2);
}

#[test]
fn an_unprotected_address_needs_a_hash() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path()).unwrap();
    let pull = |text: &str| store.pull(&Reference::parse(text).unwrap(), &quick(), &mut ());
    let refused = pull("http://smelt.invalid/m.gguf").unwrap_err();
    assert!(matches!(refused, StoreError::Unprotected { .. }), "{refused}");
    assert!(refused.hint().unwrap().contains("#sha256="));
    assert!(!root.path().join("partial").exists());
    // With one it is tried; this name can't be found.
    let sha = sha256(b"x");
    let settings = Settings { retries: 0, ..quick() };
    let tried = Reference::parse(&format!("http://smelt.invalid/m.gguf#sha256={sha}")).unwrap();
    let tried = reason(store.pull(&tried, &settings, &mut ()).unwrap_err());
    assert!(matches!(tried, StoreError::Transfer { .. } | StoreError::BadAnswer { .. }), "{tried}");
    let split = pull(&format!("https://smelt.invalid/m-00001-of-00002.gguf#sha256={sha}")).unwrap_err();
    assert!(matches!(split, StoreError::HashOfSplit { .. }), "{split}");
    // This machine may send nobody there.
    let server = Server::start();
    let redirect = Some((302, "http://smelt.invalid/m.gguf".to_owned()));
    server.put("/m.gguf", Page { redirect, ..Page::default() });
    let sent = reason(pull(&server.url("/m.gguf")).unwrap_err());
    assert!(sent.to_string().contains("unprotected address"), "{sent}");
}

#[test]
fn a_hash_behind_an_address_is_checked() {
    let server = Server::start();
    let body = model_bytes(5000, 30);
    server.put("/m.gguf", Page::of(&body));
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path()).unwrap();
    let with = |sha: &str| Reference::parse(&format!("{}#sha256={sha}", server.url("/m.gguf"))).unwrap();
    let wrong = reason(store.pull(&with(&sha256(b"other")), &quick(), &mut ()).unwrap_err());
    assert!(matches!(wrong, StoreError::WrongHash { .. }), "{wrong}");
    let right = with(&sha256(&body));
    assert_eq!(fs::read(store.pull(&right, &quick(), &mut ()).unwrap().path).unwrap(), body);
    // The second time nothing is asked.
    let asked = server.requests().len();
    store.pull(&right, &quick(), &mut ()).unwrap();
    assert_eq!(server.requests().len(), asked);
    assert_eq!(partials(root.path()), [""; 0]);
}

#[test]
fn a_failed_pull_leaves_nothing_empty_and_says_things_once() {
    let server = Server::start();
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path()).unwrap();
    let url = server.url("/absent.gguf");
    let error = store.pull(&Reference::parse(&url).unwrap(), &quick(), &mut ()).unwrap_err().to_string();
    assert_eq!(error, format!("{url} answered 404"));
    assert_eq!(partials(root.path()), [""; 0]);
    // What a killed pull leaves goes with the next one.
    for name in ["ref-0-0.part", "ref-0-0.json", "ref-0.lock", "ref-1.lock", "ref-1-0.part"] {
        fs::write(root.path().join("partial").join(name), if name == "ref-1-0.part" { "GG" } else { "" })
            .unwrap();
    }
    store.pull(&Reference::parse(&url).unwrap(), &quick(), &mut ()).unwrap_err();
    assert_eq!(partials(root.path()), ["ref-1-0.part"]);
}
