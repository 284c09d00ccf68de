//! What is installed, what is not, and what is removed.

use std::fs;

use smelt_store::{Catalogue, Reference, Store, StoreError};

use crate::support::{blobs, catalogue, model_bytes, quick, sha256, store};

fn path_source(path: &std::path::Path) -> String {
    format!("[[model.source]]\nkind='path'\npath='{}'\n", path.display())
}

/// A store with the model `m:1` installed from a local file of 1000 bytes.
fn installed(root: &std::path::Path) -> (Store, Reference) {
    let body = model_bytes(1000, 1);
    let file = root.join("source.gguf");
    fs::write(&file, &body).unwrap();
    let store = Store::with_catalogue(root.join("store"), catalogue(&body, &path_source(&file)));
    let reference = Reference::parse("m").unwrap();
    store.pull(&reference, &quick(), &mut ()).unwrap();
    (store, reference)
}

#[test]
fn a_store_is_not_created_by_looking() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("new")).unwrap();
    assert!(store.list().unwrap().installed.is_empty());
    let known = Reference::parse("smollm2").unwrap();
    assert!(store.resolve(&known).unwrap().is_none());
    assert!(matches!(store.remove(&known), Err(StoreError::NotInstalled { .. })));
    assert!(!store.root().exists());
}

#[test]
fn a_local_file_is_used_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store")).unwrap();
    let file = dir.path().join("a.gguf");
    let reference = Reference::parse(file.to_str().unwrap()).unwrap();
    assert!(matches!(store.resolve(&reference), Err(StoreError::NoSuchFile { .. })));
    fs::write(&file, b"GGUF").unwrap();
    assert_eq!(store.pull(&reference, &quick(), &mut ()).unwrap().path, file);
    assert!(!store.root().exists());
}

#[test]
fn an_unknown_name_offers_the_nearest() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    for (text, first) in
        [("smolm2", "smollm2:135m"), ("gemma:270m", "gemma3:270m"), ("smollm2:135", "smollm2:135m")]
    {
        match store.pull(&Reference::parse(text).unwrap(), &quick(), &mut ()) {
            Err(StoreError::UnknownModel { nearest, .. }) => assert_eq!(nearest[0], first),
            other => panic!("{text}: {other:?}"),
        }
    }
    match store.resolve(&Reference::parse("xyzzy").unwrap()) {
        Err(StoreError::UnknownModel { nearest, .. }) => assert_eq!(nearest, [""; 0]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_model_is_listed_shown_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (store, reference) = installed(dir.path());
    let listing = store.list().unwrap();
    assert!(listing.problems.is_empty());
    let manifest = listing.installed[0].manifest.as_ref().unwrap();
    assert_eq!((manifest.reference.as_str(), manifest.size()), ("m:1", 1000));
    assert_eq!(store.show(&reference).unwrap().manifest.as_ref(), Some(manifest));
    let removed = store.remove(&reference).unwrap();
    assert_eq!((removed.reference.as_str(), removed.freed), ("m:1", 1000));
    assert!(store.list().unwrap().installed.is_empty());
    assert!(!store.root().join("manifests/m").exists());
    assert!(matches!(store.remove(&reference), Err(StoreError::NotInstalled { .. })));
}

#[test]
fn an_installed_model_outlives_its_catalogue_entry() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = installed(dir.path());
    let later = Store::with_catalogue(store.root(), Catalogue { models: Vec::new() });
    for text in ["m", "m:1"] {
        assert!(later.resolve(&Reference::parse(text).unwrap()).unwrap().is_some());
    }
    later.remove(&Reference::parse("m").unwrap()).unwrap();
}

#[test]
fn a_blob_stays_while_anybody_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, first) = installed(dir.path());
    // The same file under a second name: nothing is copied, and the first removal frees nothing.
    let body = model_bytes(1000, 1);
    let text =
        "[[model]]\nname='n'\ntag='1'\ntitle='N'\nfamily='llama'\nformat='F32'\nlicence='MIT'\nsize=1000\n";
    let text = format!("{text}sha256='{}'\n{}", sha256(&body), path_source("/nonexistent".as_ref()));
    let other = Store::with_catalogue(store.root(), Catalogue::parse(&text).unwrap());
    let second = Reference::parse("n").unwrap();
    other.pull(&second, &quick(), &mut ()).unwrap();
    assert_eq!(store.remove(&first).unwrap().freed, 0);
    assert!(other.resolve(&second).unwrap().is_some());
    assert_eq!(other.remove(&second).unwrap().freed, 1000);
}

#[test]
fn damage_is_named_listed_and_repaired_by_a_pull() {
    let dir = tempfile::tempdir().unwrap();
    let (store, reference) = installed(dir.path());
    let manifest = store.root().join("manifests/m/1.json");
    let good = fs::read_to_string(&manifest).unwrap();
    let blob = store.root().join("blobs").join(&blobs(store.root())[0]);
    let sha = sha256(&model_bytes(1000, 1));
    let wrong_manifests = [
        String::new(),
        "{".into(),
        good.replace("\"files\"", "\"filed\""),
        good.replace(&sha, "../../../etc/passwd"),
        good.replace("\"size\": 1000", "\"size\": -1"),
        good.replace("\"size\": 1000", "\"size\": 999"),
        "\0".repeat(100),
    ];
    for text in wrong_manifests {
        fs::write(&manifest, &text).unwrap();
        let error = store.resolve(&reference).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{text}: {error}");
        assert_eq!(error.hint().unwrap(), "`smelt pull m:1` repairs it");
        let listing = store.list().unwrap();
        assert_eq!((listing.installed.len(), listing.problems.len()), (0, 1));
        store.pull(&reference, &quick(), &mut ()).unwrap();
        assert!(store.resolve(&reference).unwrap().is_some());
    }
    for damage in [0, 1] {
        match damage {
            0 => fs::remove_file(&blob).unwrap(),
            _ => fs::write(&blob, b"short").unwrap(),
        }
        assert!(matches!(store.resolve(&reference), Err(StoreError::Damaged { .. })));
        store.pull(&reference, &quick(), &mut ()).unwrap();
        assert_eq!(fs::read(&blob).unwrap(), model_bytes(1000, 1));
    }
    fs::write(&manifest, good.replace("\"version\": 1", "\"version\": 2, \"new\": 0")).unwrap();
    assert!(matches!(store.resolve(&reference), Err(StoreError::NewerManifest { found: 2, .. })));
    // An unreadable manifest may name any blob, so no blob is collected beside it.
    fs::create_dir_all(store.root().join("manifests/z")).unwrap();
    fs::write(store.root().join("manifests/z/9.json"), "?").unwrap();
    store.remove(&reference).unwrap();
    assert!(blob.exists());
}

#[test]
fn removal_discards_an_unfinished_download() {
    let dir = tempfile::tempdir().unwrap();
    let body = model_bytes(1000, 1);
    let store = store(dir.path(), &body, "http://127.0.0.1:9/m.gguf");
    let partial = dir.path().join("partial");
    fs::create_dir_all(&partial).unwrap();
    let file = partial.join(format!("sha256-{}-0.part", sha256(&body)));
    fs::write(&file, &body[..400]).unwrap();
    assert_eq!(store.remove(&Reference::parse("m").unwrap()).unwrap().freed, 400);
    assert!(!file.exists());
}
