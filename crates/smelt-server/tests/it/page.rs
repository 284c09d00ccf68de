//! The chat page's files. What it does is tested in a browser (`cargo xtask page-test`).

use smelt_server::{ApiKey, Settings};

use crate::support::Running;

#[test]
fn the_page_is_open_guarded_and_kept_by_browsers() {
    let server =
        Running::with(Settings { api_keys: vec![ApiKey::new("secret")], ..Settings::default() }, 512);
    for (path, content_type) in [
        ("/", "text/html; charset=utf-8"),
        ("/page/style.css", "text/css; charset=utf-8"),
        ("/page/app.js", "text/javascript; charset=utf-8"),
        ("/page/icon.svg", "image/svg+xml"),
    ] {
        let reply = server.get(path);
        assert_eq!((reply.status, reply.header("content-type")), (200, content_type), "{path}");
        assert!(reply.header("content-security-policy").starts_with("default-src 'none';"), "{path}");
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
        assert_eq!(reply.header("cache-control"), "no-cache");
        let tag = reply.header("etag").to_owned();
        assert!(!reply.text().is_empty());
        for known in [tag.clone(), format!("\"other\", W/{tag}")] {
            let again = server.get_with(path, &[("if-none-match", &known)]);
            assert_eq!((again.status, again.header("etag")), (304, tag.as_str()), "{path} {known}");
            assert_eq!(again.text(), "");
        }
        assert_eq!(server.get_with(path, &[("if-none-match", "\"other\"")]).status, 200);
    }
    assert_eq!(server.get("/page/").status, 404);
    for path in ["/page/absent.js", "/page/../Cargo.toml", "/page/%2e%2e/Cargo.toml"] {
        assert_eq!(server.get(path).json()["error"]["code"], "not_found", "{path}");
    }
}

#[test]
fn a_server_may_have_no_page() {
    let server = Running::with(Settings { page: false, ..Settings::default() }, 256);
    for path in ["/", "/page/app.js"] {
        assert_eq!(server.get(path).json()["error"]["code"], "not_found", "{path}");
    }
}
