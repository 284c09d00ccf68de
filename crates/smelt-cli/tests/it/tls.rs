//! TLS, spoken with by Python's own.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::served::{Served, agent};
use crate::support::{done, llama, smelt};

/// A certificate of this machine, and its key, as files.
fn certificate(folder: &Path, name: &str) -> [String; 2] {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let write = |ending: &str, text: String| {
        let path = folder.join(format!("{name}.{ending}"));
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    [write("crt", made.cert.pem()), write("key", made.signing_key.serialize_pem())]
}

/// Asks for an answer as a stream, as a client that trusts the certificate does.
const CLIENT: &str = "
import json, ssl, sys, urllib.request
url, certificate = sys.argv[1:]
body = json.dumps({'prompt': 'Once', 'max_tokens': 8, 'stream': True}).encode()
context = ssl.create_default_context(cafile=certificate)
with urllib.request.urlopen(url + '/v1/completions', body, context=context) as answer:
    print(answer.status, answer.read().decode().endswith('data: [DONE]\\n\\n'))
";

fn ask(url: &str, certificate: &str) -> Output {
    Command::new("python3").args(["-c", CLIENT, url, certificate]).output().unwrap()
}

#[test]
fn a_server_speaks_tls() {
    let home = tempfile::tempdir().unwrap();
    let [[certificate, key], [foreign, _]] = ["own", "foreign"].map(|name| certificate(home.path(), name));
    let served =
        Served::new(home.path(), &[llama().to_str().unwrap(), "--tls-cert", &certificate, "--tls-key", &key]);
    assert!(served.address.starts_with("https://127.0.0.1:"), "{}", served.address);
    let answer = ask(&served.address, &certificate);
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "200 True\n", "{answer:?}");
    let answer = ask(&served.address, &foreign);
    assert!(String::from_utf8_lossy(&answer.stderr).contains("CERTIFICATE_VERIFY_FAILED"), "{answer:?}");
    // Who doesn't speak TLS is told so.
    let plain = served.address.replace("https", "http");
    let mut answer = agent().get(format!("{plain}/health")).call().unwrap();
    assert_eq!(answer.status(), 400);
    let text = answer.body_mut().read_to_string().unwrap();
    assert!(text.contains("this port speaks TLS: ask it by https://"), "{text}");
    // The commands find their way in.
    let listed = done(smelt(home.path()).args(["ps"]).spawn().unwrap()).ok();
    assert!(listed.contains(&served.address) && listed.contains(" ok "), "{listed}");
    done(smelt(home.path()).arg("stop").spawn().unwrap()).ok();
}

#[test]
fn a_new_certificate_is_used_without_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let [[certificate, key], [next, next_key]] = ["own", "next"].map(|name| certificate(home.path(), name));
    let served =
        Served::new(home.path(), &[llama().to_str().unwrap(), "--tls-cert", &certificate, "--tls-key", &key]);
    let is_trusted = |certificate: &str| ask(&served.address, certificate).status.success();
    assert!(is_trusted(&certificate) && !is_trusted(&next));
    // Half of a change is none: the key isn't the new certificate's.
    let old = home.path().join("old.crt").to_str().unwrap().to_owned();
    fs::copy(&certificate, &old).unwrap();
    fs::copy(&next, &certificate).unwrap();
    for _ in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(500));
        assert!(is_trusted(&old));
    }
    fs::copy(&next_key, &key).unwrap();
    while !is_trusted(&next) {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(!is_trusted(&old));
    done(smelt(home.path()).arg("stop").spawn().unwrap()).ok();
}

#[test]
fn what_makes_no_tls_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let [[certificate, key], [_, other]] = ["own", "other"].map(|name| certificate(home.path(), name));
    let serve = |flags: &[&str]| {
        let model = llama();
        done(
            smelt(home.path())
                .args(["serve", model.to_str().unwrap(), "--port", "0"])
                .args(flags)
                .spawn()
                .unwrap(),
        )
    };
    serve(&["--tls-cert", &certificate]).failed(2, "--tls-cert needs --tls-key, too");
    serve(&["--tls-key", &key]).failed(2, "--tls-key needs --tls-cert, too");
    serve(&["--tls-cert", "absent", "--tls-key", &key]).failed(1, "absent: cannot read it");
    serve(&["--tls-cert", &key, "--tls-key", &key]).failed(1, "it holds no certificate in PEM");
    serve(&["--tls-cert", &certificate, "--tls-key", &certificate])
        .failed(1, "it holds no private key in PEM");
    serve(&["--tls-cert", &certificate, "--tls-key", &other]).failed(1, "make no TLS");
}
