//! Who may ask: API keys, origins of web pages, and names of this host.

use axum::http::{HeaderMap, HeaderValue, header};
use sha2::{Digest, Sha256};
use smelt_api::{ApiError, Code};
use subtle::ConstantTimeEq;

use crate::settings::Settings;

/// A key, as its hash: the key itself is nowhere in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ApiKey([u8; 32]);

impl ApiKey {
    /// The hash of a key. Keys are long and random, so that a plain SHA-256 can't be undone.
    #[must_use]
    pub fn new(key: &str) -> Self {
        Self(Sha256::digest(key.as_bytes()).into())
    }
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiKey(..)")
    }
}

/// Which of the keys the request has, as `Authorization: Bearer KEY` or `x-api-key: KEY`.
///
/// # Errors
/// If there are keys and it has none of them.
pub(crate) fn check_key(headers: &HeaderMap, keys: &[ApiKey]) -> Result<Option<usize>, ApiError> {
    if keys.is_empty() {
        return Ok(None);
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text("authorization").and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
    });
    let Some(key) = bearer.or(text("x-api-key")) else {
        let message =
            "this server needs an API key: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`";
        return Err(ApiError::new(Code::InvalidApiKey, message));
    };
    let ApiKey(given) = ApiKey::new(key);
    // Every key is compared, whether or not one before it was right.
    let found = keys.iter().enumerate().fold(None, |found, (i, key)| {
        let is_it = bool::from(key.0.ct_eq(&given));
        found.or(is_it.then_some(i))
    });
    match found {
        Some(_) => Ok(found),
        None => Err(ApiError::new(Code::InvalidApiKey, "the API key is wrong")),
    }
}

/// The origin to answer to in `access-control-allow-origin`, if the request's is one of the settings'.
pub(crate) fn allowed_origin(headers: &HeaderMap, settings: &Settings) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    let allowed = |o: &String| o == "*" || o.as_bytes().eq_ignore_ascii_case(origin.as_bytes());
    settings.cors_origins.iter().any(allowed).then(|| origin.clone())
}

/// Refuses what a web page that is not this server's own sends, and names that a page can point here.
///
/// A browser lets any page send a request to a server on the same machine, and keeps only the answer from it; and a page
/// whose own name is made to point to this machine gets the answer too. Neither needs to be possible.
///
/// # Errors
/// If the request's `Origin` or `Host` is not expected.
pub(crate) fn check_origin(headers: &HeaderMap, settings: &Settings, loopback: bool) -> Result<(), ApiError> {
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    // Which one counts would be a matter of who reads them.
    if headers.get_all(header::HOST).iter().nth(1).is_some() {
        return Err(ApiError::new(Code::ForbiddenOrigin, "the request names several hosts"));
    }
    let host = text(header::HOST).unwrap_or_default();
    if let Some(origin) = text(header::ORIGIN) {
        let authority = origin.split_once("://").map_or(origin, |(_, authority)| authority);
        if !authority.eq_ignore_ascii_case(host) && allowed_origin(headers, settings).is_none() {
            let message =
                format!("web pages of {origin} may not ask this server; allow it with --cors-origin");
            return Err(ApiError::new(Code::ForbiddenOrigin, message));
        }
    }
    // With a key, a page can't do anything; beyond the loopback the server's names are unknown.
    if !loopback || !settings.api_keys.is_empty() || is_local_name(host) || host_of(host) == settings.host {
        return Ok(());
    }
    let message = format!("this server is for this machine only, and {host:?} is none of its names");
    Err(ApiError::new(Code::ForbiddenOrigin, message))
}

/// A `Host` without its port and brackets.
fn host_of(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

fn is_local_name(host: &str) -> bool {
    let name = host_of(host);
    let is_localhost =
        name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost");
    // An old client without a Host is no browser.
    name.is_empty()
        || is_localhost
        || name.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (header::HeaderName::from_static(name), HeaderValue::from_static(value)));
        pairs.collect()
    }

    #[test]
    fn keys_are_asked_for_and_compared() {
        let keys = [ApiKey::new("first"), ApiKey::new("second")];
        let fine = |pairs: &[_]| check_key(&headers(pairs), &keys).is_ok();
        assert!(fine(&[("authorization", "Bearer second")]));
        assert!(fine(&[("authorization", "bearer first")]));
        assert!(fine(&[("x-api-key", "first")]));
        assert!(!fine(&[("x-api-key", "third")]));
        assert!(!fine(&[("authorization", "Basic first")]));
        assert!(!fine(&[]));
        assert!(check_key(&headers(&[]), &[]).is_ok());
        assert_eq!(format!("{:?}", keys[0]), "ApiKey(..)");
    }

    #[test]
    fn foreign_pages_and_names_are_refused() {
        let settings = Settings::default();
        let fine = |pairs: &[_], settings: &Settings| check_origin(&headers(pairs), settings, true).is_ok();
        assert!(fine(&[("host", "localhost:11435")], &settings));
        assert!(fine(&[("host", "[::1]:11435")], &settings));
        assert!(fine(&[("host", "127.0.0.1")], &settings));
        assert!(!fine(&[("host", "evil.example:11435")], &settings));
        let mut two = headers(&[("host", "localhost")]);
        two.append("host", HeaderValue::from_static("evil.example"));
        assert!(check_origin(&two, &settings, true).is_err());
        assert!(fine(&[("host", "localhost:1"), ("origin", "http://localhost:1")], &settings));
        assert!(!fine(&[("host", "localhost:1"), ("origin", "https://evil.example")], &settings));
        let open = Settings { cors_origins: vec!["https://good.example".into()], ..settings };
        assert!(fine(&[("host", "localhost"), ("origin", "https://good.example")], &open));
        assert!(!fine(&[("host", "localhost"), ("origin", "null")], &open));
        let keyed = Settings { api_keys: vec![ApiKey::new("k")], ..open };
        assert!(fine(&[("host", "my.name")], &keyed));
    }
}
