//! The signature of requests with an account key.

use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orrery_node::{Clock as _, SystemClock};
use ring::hmac;

#[derive(Debug)]
pub struct Signer {
    key: hmac::Key,
    clock: SystemClock,
}

impl Signer {
    pub fn new(key: &str) -> Result<Signer> {
        let key = STANDARD.decode(key).ok().context("the key must be base64")?;
        Ok(Signer {
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            clock: SystemClock::default(),
        })
    }

    /// The values of `x-ms-date` and `authorization`.
    pub fn sign(&self, verb: &str, resource_type: &str, link: &str) -> (String, String) {
        let now = UNIX_EPOCH + Duration::from_millis(self.clock.now().0);
        let date = httpdate::fmt_http_date(now);
        let token = self.token(verb, resource_type, link, &date);
        (date, token)
    }

    fn token(&self, verb: &str, resource_type: &str, link: &str, date: &str) -> String {
        let text = format!(
            "{}\n{resource_type}\n{link}\n{}\n\n",
            verb.to_lowercase(),
            date.to_lowercase()
        );
        let signature = STANDARD.encode(hmac::sign(&self.key, text.as_bytes()));
        percent_encode(&format!("type=master&ver=1.0&sig={signature}"))
    }
}

/// Escapes all but letters, digits and `-_.~`.
pub fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DEVELOPMENT_KEY;

    #[test]
    fn signatures_are_those_of_published_vectors() {
        let signer = Signer::new(DEVELOPMENT_KEY).unwrap();
        let date = "Thu, 27 Apr 2017 00:51:12 GMT";
        let token = |verb, kind, link| signer.token(verb, kind, link, date);
        let expected = |signature: &str| percent_encode(&format!("type=master&ver=1.0&sig={signature}"));
        assert_eq!(
            token("GET", "", ""),
            expected("gFB1bRB/PLJTG3bCgMuoVgNzOyFvZAamzEtLuSITjRc=")
        );
        let items = token("POST", "docs", "dbs/MyDb/colls/MyColl");
        assert_eq!(items, expected("s0xP8VO0ZOVHL99FhcwggjhrnponOpQXEk+T5PrPBUg="));
        assert!(!items.contains(['=', '&', '+', '/']), "{items}");
    }
}
