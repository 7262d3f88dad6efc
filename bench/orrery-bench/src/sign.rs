//! Signatures of requests, made as an SDK makes them and checked as the server must check them.
//!
//! The limit programs use this instead of the server's own code, so that a slow check in the server shows.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// The public key of emulators.
pub const DEVELOPMENT_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// The account's key, prepared.
#[derive(Debug)]
pub struct Key(hmac::Key);

impl Key {
    pub fn development() -> Key {
        let secret = STANDARD.decode(DEVELOPMENT_KEY).expect("the constant is base64");
        Key(hmac::Key::new(hmac::HMAC_SHA256, &secret))
    }

    /// The `authorization` header of a request, percent-encoded.
    pub fn sign(&self, verb: &str, path: &str, date: &str) -> String {
        let signature = STANDARD.encode(hmac::sign(&self.0, payload(verb, path, date).as_bytes()));
        let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        format!("type%3Dmaster%26ver%3D1.0%26sig%3D{signature}")
    }

    /// Was this request signed with this key?
    pub fn admits(&self, verb: &str, path: &str, date: &str, authorization: &str) -> bool {
        let Some(decoded) = percent_decode(authorization) else {
            return false;
        };
        let mut parts = decoded.splitn(3, '&');
        let is_master = parts.next() == Some("type=master") && parts.next() == Some("ver=1.0");
        let signature = parts.next().and_then(|part| part.strip_prefix("sig="));
        let Some(Ok(signature)) = signature.map(|text| STANDARD.decode(text)) else {
            return false;
        };
        is_master && hmac::verify(&self.0, payload(verb, path, date).as_bytes(), &signature).is_ok()
    }
}

/// Now, as requests carry it.
pub fn date_now() -> String {
    #[expect(clippy::disallowed_methods, reason = "signatures hold for minutes of real time")]
    let now = SystemTime::now();
    httpdate::fmt_http_date(now)
}

/// The string to sign: verb, kind of resource, resource link, date.
fn payload(verb: &str, path: &str, date: &str) -> String {
    let path = path.trim_matches('/');
    let names_a_feed = path.split('/').count() % 2 == 1;
    let (parent, last) = path.rsplit_once('/').unwrap_or(("", path));
    let (kind, link) = if path.starts_with("_orrery/") {
        ("", path)
    } else if names_a_feed {
        (last, parent)
    } else {
        (parent.rsplit('/').next().unwrap_or_default(), path)
    };
    let mut text = String::with_capacity(64 + link.len());
    for part in [verb, kind] {
        push_lower(&mut text, part);
    }
    text.push_str(link);
    text.push('\n');
    push_lower(&mut text, date);
    text.push('\n');
    text
}

fn push_lower(text: &mut String, part: &str) {
    let start = text.len();
    text.push_str(part);
    text[start..].make_ascii_lowercase();
    text.push('\n');
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Thu, 27 Apr 2017 00:51:12 GMT";

    #[test]
    fn an_item_is_signed_by_its_own_link_and_a_feed_by_its_parents() {
        assert_eq!(
            payload("GET", "/dbs/b/colls/C/docs/x", DATE),
            "get\ndocs\ndbs/b/colls/C/docs/x\nthu, 27 apr 2017 00:51:12 gmt\n\n"
        );
        assert_eq!(
            payload("POST", "/dbs/b/colls/C/docs", DATE),
            "post\ndocs\ndbs/b/colls/C\nthu, 27 apr 2017 00:51:12 gmt\n\n"
        );
        assert_eq!(
            payload("POST", "/dbs", DATE),
            "post\ndbs\n\nthu, 27 apr 2017 00:51:12 gmt\n\n"
        );
    }

    #[test]
    fn a_signature_admits_the_request_it_was_made_for_and_no_other() {
        let key = Key::development();
        let signature = key.sign("GET", "/dbs/b/colls/c/docs/x", DATE);
        assert!(key.admits("GET", "/dbs/b/colls/c/docs/x", DATE, &signature));
        assert!(!key.admits("GET", "/dbs/b/colls/c/docs/y", DATE, &signature));
        assert!(!key.admits("DELETE", "/dbs/b/colls/c/docs/x", DATE, &signature));
        assert!(!key.admits("GET", "/dbs/b/colls/c/docs/x", DATE, "type%3Dmaster"));
    }
}
