//! Tokens that come back from clients: session, continuation, resource and feed tokens.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use orrery_gateway::auth::{keyring::Keyring, resource_token};
use orrery_gateway::wire;
use orrery_gateway::wire::headers::Headers;
use orrery_model::{PartitionKey, ResourceId, SessionToken, Timestamp};
use orrery_node::account::{AccountKeys, Secret};
use orrery_node::api::Consistency;
use ring::hmac;

use super::account::{SECRET, served};

pub(super) const WORDS: &[&str] = &[
    "0:0#42",
    "-1#",
    ":",
    "#",
    "=",
    ",",
    ";",
    "resources:",
    "[\"a\",1.5,null,{}]",
    "\"",
    "AQ",
    "Ag",
    "00000000-0000-0000",
];

/// The bytes as every kind of token, as they are and under a right signature.
pub(super) fn token(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    session(&text);
    let _ = ResourceId::parse(&text);
    if let Ok(key) = PartitionKey::parse(&text) {
        let printed = key.to_string();
        assert_eq!(PartitionKey::parse(&printed).ok().as_ref(), Some(&key), "{printed}");
    }
    resource(bytes);
    for continuation in [text.into_owned(), signed(bytes)] {
        QUERIES.iter().for_each(|query| page(query, &continuation));
    }
}

fn session(text: &str) {
    if let Some(token) = SessionToken::parse(text) {
        let printed = token.to_string();
        assert_eq!(
            SessionToken::parse(&printed),
            Some(token),
            "{text} was printed as {printed}"
        );
    }
}

fn resource(payload: &[u8]) {
    let secret = || Secret(SECRET.to_vec());
    let keyring = Keyring::new(Arc::new(AccountKeys {
        primary: secret(),
        secondary: secret(),
        primary_read_only: secret(),
        secondary_read_only: secret(),
        internal: secret(),
    }));
    let tag = keyring.sign_internal(&[b"resource token\0", payload].concat());
    let token = format!("{};{};", URL_SAFE_NO_PAD.encode(tag), URL_SAFE_NO_PAD.encode(payload));
    for signature in [payload, token.as_bytes()] {
        let _ = resource_token::verify(&keyring, signature, Timestamp(1_700_000_000_000));
    }
}

/// A continuation with this content that the account would have issued.
fn signed(content: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &SECRET);
    let tag = hmac::sign(&key, &[b"continuation:", content].concat());
    URL_SAFE_NO_PAD.encode([content, &tag.as_ref()[..12]].concat())
}

/// Header in which the token goes, and the query it continues; none for the feeds.
const QUERIES: [(&str, Option<&str>); 4] = [
    ("x-ms-continuation", None),
    ("if-none-match", None),
    ("x-ms-continuation", Some("SELECT * FROM c")),
    ("x-ms-continuation", Some("SELECT * FROM c ORDER BY c.n")),
];

fn page((header, query): &(&str, Option<&str>), token: &str) {
    let method = if query.is_some() { "POST" } else { "GET" };
    let mut head = http::Request::builder()
        .method(method)
        .uri("/dbs/db/colls/c/docs")
        .header(*header, token)
        .header("x-ms-max-item-count", "1")
        .header("x-ms-documentdb-partitionkeyrangeid", "0");
    match query {
        Some(_) => head = head.header("x-ms-documentdb-isquery", "True"),
        None if *header == "if-none-match" => head = head.header("a-im", "Incremental feed"),
        None => {}
    }
    let Ok(head) = head.body(()) else { return };
    let (head, ()) = head.into_parts();
    let body = query.map(|query| format!(r#"{{"query":"{query}","parameters":[]}}"#));
    let decoded = wire::route(&head.uri).and_then(|route| {
        wire::decode(
            route,
            &head.method,
            Headers::of(&head.headers),
            body.unwrap_or_default().into(),
            Consistency::Session,
        )
    });
    if let Ok(decoded) = decoded {
        let _ = served().execute(decoded);
    }
}
