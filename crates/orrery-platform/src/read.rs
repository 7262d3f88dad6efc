//! What a request brings besides its path: parameters, headers and a body, each bounded and checked.

use std::net::IpAddr;

use bytes::Bytes;
use http::header::{FORWARDED, VIA};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use orrery_publishing::database::PageRequest;
use serde::de::DeserializeOwned;

use crate::answer::Failure;
use crate::route::decode;

/// Longest value of a parameter: a continuation of many accounts fits.
const PARAMETER_BYTES_MAX: usize = 16 << 10;
const REQUEST_ID_BYTES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 256;

/// The value of a query parameter.
pub fn parameter(parts: &Parts, name: &str) -> Result<Option<String>, Failure> {
    let query = parts.uri.query().unwrap_or_default();
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let Some((_, value)) = pairs.find(|(key, _)| *key == name) else {
        return Ok(None);
    };
    let value = decode(value, true).filter(|value| value.len() <= PARAMETER_BYTES_MAX);
    value
        .map(Some)
        .ok_or_else(|| Failure::invalid(format!("the parameter `{name}` cannot be read")))
}

pub fn page_request(parts: &Parts) -> Result<PageRequest, Failure> {
    let mut request = PageRequest {
        continuation: parameter(parts, "continuation")?,
        ..PageRequest::default()
    };
    if let Some(size) = parameter(parts, "pageSize")? {
        request.size = size
            .parse()
            .map_err(|_| Failure::invalid("`pageSize` is a whole number"))?;
    }
    request.complete = match parameter(parts, "complete")?.as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(Failure::invalid("`complete` is true or false")),
    };
    Ok(request)
}

/// A header's text.
pub fn header<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Failure> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let text = value
        .to_str()
        .ok()
        .filter(|text| text.len() <= NAME_BYTES_MAX && !text.is_empty());
    text.map(Some)
        .ok_or_else(|| Failure::invalid(format!("the header `{name}` cannot be read")))
}

/// The client's own name for its request, if it may stand in a log.
pub fn request_id(headers: &HeaderMap) -> Option<String> {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let text = headers.get("x-request-id")?.to_str().ok()?;
    let is_id = (1..=REQUEST_ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_fine);
    is_id.then(|| text.to_owned())
}

/// The token in a header, or in the parameter that `EventSource` needs.
pub fn bearer(parts: &Parts, is_stream: bool) -> Result<Option<String>, Failure> {
    let header = parts
        .headers
        .get(http::header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    // Names of schemes are the same in any case.
    let scheme = header.and_then(|text| text.split_once(' '));
    let token = scheme.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    match token.map(|(_, token)| token.trim_start().to_owned()) {
        None if is_stream => parameter(parts, "access_token"),
        token => Ok(token),
    }
}

/// Whether a request comes from this machine itself. One that a proxy on this machine passes on does not, and says so.
pub fn is_local(headers: &HeaderMap, peer: IpAddr) -> bool {
    let is_passed_on = [FORWARDED.as_str(), VIA.as_str(), "x-forwarded-for", "x-real-ip"]
        .iter()
        .any(|name| headers.contains_key(*name));
    peer.to_canonical().is_loopback() && !is_passed_on
}

/// The bytes of a body. Nothing is read beyond the limit.
pub async fn bytes(body: Incoming, bytes_max: usize) -> Result<Bytes, Failure> {
    match Limited::new(body, bytes_max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let message = format!("a body has at most {bytes_max} bytes");
            Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", message))
        }
        Err(_) => Err(Failure::invalid("the body ended before its end")),
    }
}

/// The body as a value of a type: an object, whose members say what they are. Values in a row would be taken for members too.
pub async fn body<T: DeserializeOwned>(body: Incoming, bytes_max: usize) -> Result<T, Failure> {
    let bytes = bytes(body, bytes_max).await?;
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(Failure::invalid("the body: it is an object"));
    }
    serde_json::from_slice(&bytes).map_err(|error| Failure::invalid(format!("the body: {error}")))
}
