//! `/` and what belongs to it: a chat page, whole in the binary.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use sha2::{Digest, Sha256};
use smelt_api::{ApiError, Code};

use crate::app::Call;

/// A file of the page.
struct Asset {
    name: &'static str,
    content_type: &'static str,
    text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! assets {
    ($($name:literal: $content_type:ident,)*) => {
        /// Every file of the page, and what it hashes to.
        static ASSETS: LazyLock<Vec<(Asset, HeaderValue)>> = LazyLock::new(|| {
            let assets = [$(Asset {
                name: $name,
                content_type: $content_type,
                text: include_str!(concat!("../page/", $name)),
            }),*];
            assets.into_iter().map(|asset| { let tag = tag(asset.text); (asset, tag) }).collect()
        });
    };
}

assets! {
    "index.html": HTML,
    "style.css": CSS,
    "icon.svg": SVG,
    "app.js": JAVASCRIPT,
    "api.js": JAVASCRIPT,
    "dom.js": JAVASCRIPT,
    "highlight.js": JAVASCRIPT,
    "markdown.js": JAVASCRIPT,
    "settings.js": JAVASCRIPT,
    "store.js": JAVASCRIPT,
    "view.js": JAVASCRIPT,
}

/// An answer's text comes from a model, and a model's from anywhere: even if it were taken for markup, nothing in it could
/// run, be fetched, or be sent elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// Headers of every file.
static HEADERS: [(HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    // A browser keeps it and asks whether it is still the same, which a restart with another version changes.
    (header::CACHE_CONTROL, "no-cache"),
];

/// What tells a text from its other versions.
fn tag(text: &str) -> HeaderValue {
    let hash = Sha256::digest(text.as_bytes());
    let digits: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::try_from(format!("\"{digits}\"")).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

/// The page, or the file that the path names.
pub(crate) async fn show(call: Call) -> Result<Response, ApiError> {
    if !call.app.settings.page {
        return Err(ApiError::new(Code::NotFound, "this server has no page"));
    }
    let name = call.tail.as_deref().unwrap_or("index.html");
    let Some((asset, tag)) = ASSETS.iter().find(|(asset, _)| asset.name == name) else {
        return Err(ApiError::new(Code::NotFound, format!("the page has no file {name:?}")));
    };
    let known = call.headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    let is_known = known.is_some_and(|tags| {
        // Proxies that compress make a tag weak.
        tags.split(',').any(|known| known.trim().trim_start_matches("W/").as_bytes() == tag.as_bytes())
    });
    let mut response = Response::new(if is_known { Body::empty() } else { Body::from(asset.text) });
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    headers.insert(header::ETAG, tag.clone());
    for (name, value) in &HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/page");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let mut served: Vec<&str> = ASSETS.iter().map(|(asset, _)| asset.name).collect();
        served.sort_unstable();
        assert_eq!(served, files);
    }

    #[test]
    fn no_script_makes_markup_of_text_or_names_another_host() {
        let forbidden = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            " onclick",
            " onload",
            " onerror",
        ];
        for (asset, _) in ASSETS.iter() {
            for word in forbidden {
                assert!(!asset.text.contains(word), "{}: {word}", asset.name);
            }
            // Names of XML's vocabularies are never fetched.
            let text = asset.text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("://"), "{}: an address", asset.name);
        }
    }
}
