//! Resource tokens: what a permission hands to a client that must not have an account key.
//!
//! A token carries its own grant and expiry, authenticated with the account's internal secret, so that checking one needs
//! no look-up. Clients treat it as opaque. Form: `type=resource&ver=1&sig={MAC};{grant};`, both parts base64url.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use orrery_model::{Error, PartitionKey, ResourceId, Result, Status, Timestamp};
use orrery_node::api::Grant;

use super::keyring::Keyring;
use super::unauthorized;
use crate::wire::headers::names;

/// Lifetime of a token unless the client asks for another one, and what it may ask for.
pub const LIFETIME_SECONDS_DEFAULT: u64 = 3_600;
pub const LIFETIME_SECONDS_MIN: u64 = 10;
pub const LIFETIME_SECONDS_MAX: u64 = 18_000;

const FORMAT: u8 = 1;
const READ_ONLY: u8 = 1;
const HAS_PARTITION_KEY: u8 = 2;
const HAS_ITEM: u8 = 4;
/// Keeps these signatures apart from everything else the internal secret signs.
const PURPOSE: &[u8] = b"resource token\0";

/// A token for this grant that ends `lifetime_seconds` from now.
pub fn issue(keyring: &Keyring, grant: &Grant, lifetime_seconds: u64, now: Timestamp) -> String {
    let payload = encode(grant, now.seconds() + lifetime_seconds);
    let tag = keyring.sign_internal(&authenticated(&payload));
    format!(
        "type=resource&ver=1&sig={};{};",
        URL_SAFE_NO_PAD.encode(tag),
        URL_SAFE_NO_PAD.encode(payload)
    )
}

/// The grant of a token's `sig` part: 401 for a token this account never issued, 403 for one that has ended.
pub fn verify(keyring: &Keyring, signature: &[u8], now: Timestamp) -> Result<Grant> {
    let (tag, payload) = split(signature).ok_or_else(invalid)?;
    if !keyring.verify_internal(&authenticated(&payload), &tag) {
        return Err(invalid());
    }
    let (grant, expires_seconds) = decode(&payload).ok_or_else(invalid)?;
    if expires_seconds < now.seconds() {
        return Err(Error::new(
            Status::FORBIDDEN,
            "The resource token has expired. Read its permission again for a new one.",
        ));
    }
    Ok(grant)
}

/// The lifetime a client asked for in the header of that name.
pub fn lifetime_seconds(header: Option<&str>) -> Result<u64> {
    let Some(text) = header else {
        return Ok(LIFETIME_SECONDS_DEFAULT);
    };
    text.trim()
        .parse()
        .ok()
        .filter(|seconds| (LIFETIME_SECONDS_MIN..=LIFETIME_SECONDS_MAX).contains(seconds))
        .ok_or_else(|| {
            Error::bad_request(format!(
                "{} must be a number between {LIFETIME_SECONDS_MIN} and {LIFETIME_SECONDS_MAX}.",
                names::EXPIRY_SECONDS
            ))
        })
}

fn invalid() -> Error {
    unauthorized("The resource token is not valid for this account.")
}

fn split(signature: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut parts = std::str::from_utf8(signature).ok()?.split(';');
    let tag = URL_SAFE_NO_PAD.decode(parts.next()?).ok()?;
    let payload = URL_SAFE_NO_PAD.decode(parts.next()?).ok()?;
    Some((tag, payload))
}

fn authenticated(payload: &[u8]) -> Vec<u8> {
    [PURPOSE, payload].concat()
}

fn encode(grant: &Grant, expires_seconds: u64) -> Vec<u8> {
    let rid = grant.resource.as_bytes();
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let flags = flag(grant.read_only, READ_ONLY)
        | flag(grant.partition_key.is_some(), HAS_PARTITION_KEY)
        | flag(grant.item.is_some(), HAS_ITEM);
    let mut payload = vec![FORMAT, flags];
    payload.extend_from_slice(&expires_seconds.to_be_bytes());
    payload.push(rid.len() as u8);
    payload.extend_from_slice(rid);
    if let Some(item) = &grant.item {
        // An id has 1,023 bytes at most.
        payload.extend_from_slice(&(item.len() as u16).to_be_bytes());
        payload.extend_from_slice(item.as_bytes());
    }
    if let Some(key) = &grant.partition_key {
        payload.extend_from_slice(key.to_string().as_bytes());
    }
    payload
}

fn decode(payload: &[u8]) -> Option<(Grant, u64)> {
    let (&[format, flags], rest) = payload.split_first_chunk()?;
    let (expires, rest) = rest.split_first_chunk::<8>()?;
    let (&n_rid_bytes, rest) = rest.split_first()?;
    let (rid, rest) = rest.split_at_checked(usize::from(n_rid_bytes))?;
    if format != FORMAT {
        return None;
    }
    let (item, key) = match flags & HAS_ITEM {
        0 => (None, rest),
        _ => {
            let (n_item_bytes, rest) = rest.split_first_chunk()?;
            let (item, key) = rest.split_at_checked(usize::from(u16::from_be_bytes(*n_item_bytes)))?;
            (Some(String::from_utf8(item.to_vec()).ok()?), key)
        }
    };
    let partition_key = match flags & HAS_PARTITION_KEY {
        0 => None,
        _ => Some(PartitionKey::parse(std::str::from_utf8(key).ok()?).ok()?),
    };
    let grant = Grant {
        resource: ResourceId::from_bytes(rid)?,
        read_only: flags & READ_ONLY != 0,
        partition_key,
        item,
    };
    Some((grant, u64::from_be_bytes(*expires)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use orrery_node::account::{AccountKeys, Secret};

    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000);

    fn keyring(internal: u8) -> Keyring {
        let secret = |byte| Secret(vec![byte; 64]);
        Keyring::new(Arc::new(AccountKeys {
            primary: secret(1),
            secondary: secret(2),
            primary_read_only: secret(3),
            secondary_read_only: secret(4),
            internal: secret(internal),
        }))
    }

    fn grant(read_only: bool, key: Option<&str>) -> Grant {
        grant_of(read_only, key, None)
    }

    fn grant_of(read_only: bool, key: Option<&str>, item: Option<&str>) -> Grant {
        let container = ResourceId::container(&ResourceId::database(1), 7);
        Grant {
            resource: container,
            read_only,
            partition_key: key.map(|text| PartitionKey::parse(text).unwrap()),
            item: item.map(str::to_owned),
        }
    }

    fn signature(token: &str) -> &[u8] {
        token.strip_prefix("type=resource&ver=1&sig=").expect("form").as_bytes()
    }

    #[test]
    fn a_token_brings_back_the_grant_it_was_issued_for() {
        for grant in [
            grant(true, None),
            grant(false, Some(r#"["a;b",1.5,null]"#)),
            grant(true, Some("[]")),
            grant_of(true, None, Some("")),
            grant_of(false, Some(r#"["a"]"#), Some("ü;1")),
            grant_of(false, None, Some(&"x".repeat(1023))),
        ] {
            let token = issue(&keyring(5), &grant, 3_600, NOW);
            assert_eq!(verify(&keyring(5), signature(&token), NOW).unwrap(), grant);
        }
    }

    #[test]
    fn a_token_ends_after_its_lifetime_with_403() {
        let token = issue(&keyring(5), &grant(true, None), 10, NOW);
        assert!(verify(&keyring(5), signature(&token), Timestamp(NOW.0 + 10_000)).is_ok());
        let error = verify(&keyring(5), signature(&token), Timestamp(NOW.0 + 11_000)).expect_err("expired");
        assert_eq!(error.status(), Status::FORBIDDEN);
    }

    #[test]
    fn a_token_that_was_changed_or_made_elsewhere_is_refused_with_401() {
        let token = issue(&keyring(5), &grant(true, None), 3_600, NOW);
        assert_eq!(
            verify(&keyring(6), signature(&token), NOW)
                .expect_err("other secret")
                .status(),
            Status::UNAUTHORIZED
        );
        for index in 0..signature(&token).len() - 1 {
            let mut bytes = signature(&token).to_vec();
            bytes[index] ^= 1;
            assert!(verify(&keyring(5), &bytes, NOW).is_err(), "byte {index} changed");
        }
        assert!(verify(&keyring(5), b"", NOW).is_err());
        assert!(verify(&keyring(5), b";;;", NOW).is_err());
    }

    #[test]
    fn a_lifetime_outside_the_limits_is_refused() {
        assert_eq!(lifetime_seconds(None).unwrap(), 3_600);
        assert_eq!(lifetime_seconds(Some("18000")).unwrap(), 18_000);
        for text in ["9", "18001", "-1", "soon", ""] {
            assert!(lifetime_seconds(Some(text)).is_err(), "{text}");
        }
    }
}
