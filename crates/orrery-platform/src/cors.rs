//! Which pages of other origins may call the service: those that are listed, and in development those of this machine.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue};

use crate::settings::PlatformSettings;

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT, DELETE");
const REQUEST_HEADERS: HeaderValue =
    HeaderValue::from_static("authorization, content-type, idempotency-key, if-match, x-request-id");
const ANSWER_HEADERS: HeaderValue = HeaderValue::from_static("etag, retry-after, x-request-id");
const KEEP: HeaderValue = HeaderValue::from_static("600");

/// Adds what lets the page of this request read the answer.
pub fn allow(settings: &PlatformSettings, request: &HeaderMap, answer: &mut HeaderMap) {
    answer.insert(VARY, HeaderValue::from_static("origin"));
    let Some(origin) = request.get(ORIGIN) else {
        return;
    };
    if is_known(settings, origin) {
        answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        answer.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        answer.insert(ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS);
        answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, ANSWER_HEADERS);
        answer.insert(ACCESS_CONTROL_MAX_AGE, KEEP);
    }
}

/// The request comes from a page that may not call the service. A browser sends it all the same, and only keeps the answer to
/// itself; so what a request without a token can change must ask first.
pub fn is_foreign(settings: &PlatformSettings, request: &HeaderMap) -> bool {
    request.get(ORIGIN).is_some_and(|origin| !is_known(settings, origin))
}

fn is_known(settings: &PlatformSettings, origin: &HeaderValue) -> bool {
    let text = origin.to_str().unwrap_or_default();
    settings.origins.iter().any(|known| known == text) || (settings.development && is_of_this_machine(text))
}

fn is_of_this_machine(origin: &str) -> bool {
    let Some((_, place)) = origin.split_once("://") else {
        return false;
    };
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|host| {
        place
            .strip_prefix(host)
            .is_some_and(|rest| rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_this_machine_are_let_in_during_development_only() {
        for (origin, is_fine) in [
            ("http://localhost:8080", true),
            ("http://127.0.0.1:5173", true),
            ("https://[::1]", true),
            ("http://localhost.example.org", false),
            ("http://localhost:80.example.org", false),
            ("null", false),
        ] {
            assert_eq!(is_of_this_machine(origin), is_fine, "{origin}");
        }
        let mut request = HeaderMap::new();
        request.insert(ORIGIN, HeaderValue::from_static("http://localhost:8080"));
        let mut answer = HeaderMap::new();
        allow(&PlatformSettings::default(), &request, &mut answer);
        assert!(!answer.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN));
    }
}
