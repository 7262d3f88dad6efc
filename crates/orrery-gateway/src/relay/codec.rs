//! A request or an answer of the public protocol as bytes between two nodes.
//!
//! ```text
//! request   version (1) · tls (1) · method · uri · headers · body
//! answer    version (1) · kind (1): 1 answered, 2 not here · known (8) · status (2) · headers · body
//! headers   count (2) · (name, value) …
//! text      length (4) · bytes; method, uri, names, values and bodies alike
//! ```
//!
//! Numbers are big-endian. A reader refuses a version it does not know, and anything that is cut off or goes on after its end.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri, header};

use crate::wire::headers::names;

const VERSION: u8 = 1;
const ANSWERED: u8 = 1;
const NOT_HERE: u8 = 2;
/// More headers than a client may send.
const HEADERS_MAX: u16 = 1024;

/// Headers about the connection, which is another one here.
const OF_THE_CONNECTION: [HeaderName; 6] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::EXPECT,
];

/// A request to be passed on.
#[derive(Debug)]
pub struct RelayedRequest<'a> {
    pub method: &'a Method,
    pub uri: &'a Uri,
    pub headers: &'a HeaderMap,
    pub body: &'a Bytes,
    /// Did the client come by TLS?
    pub tls: bool,
    /// The same on both nodes, also when the client named none.
    pub activity_id: &'a HeaderValue,
}

/// What a node that was asked says.
#[derive(Debug)]
pub enum RelayedAnswer {
    Answered {
        response: Response<Bytes>,
        /// How much of the catalogue it may rest on.
        known: u64,
    },
    /// Another node has to be asked; nothing was done.
    NotHere,
}

pub fn encode_request(request: &RelayedRequest<'_>) -> Bytes {
    let mut bytes = BytesMut::with_capacity(1024 + request.body.len());
    bytes.put_u8(VERSION);
    bytes.put_u8(u8::from(request.tls));
    put_text(&mut bytes, request.method.as_str().as_bytes());
    put_text(&mut bytes, request.uri.to_string().as_bytes());
    let kept = |name: &HeaderName| !OF_THE_CONNECTION.contains(name) && *name != names::ACTIVITY_ID;
    let headers = request.headers.iter().filter(|(name, _)| kept(name));
    let activity_id = (&names::ACTIVITY_ID, request.activity_id);
    put_headers(&mut bytes, headers.chain([activity_id]));
    put_text(&mut bytes, request.body);
    bytes.freeze()
}

/// The request, and whether it came by TLS. `None` when it cannot be understood.
pub fn decode_request(bytes: Bytes) -> Option<(http::Request<Bytes>, bool)> {
    let mut rest = Reader::open(bytes)?;
    let tls = match rest.u8()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let method = Method::from_bytes(&rest.text()?).ok()?;
    let uri = Uri::from_maybe_shared(rest.text()?).ok()?;
    let headers = rest.headers()?;
    let mut request = http::Request::new(rest.last()?);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    Some((request, tls))
}

pub fn encode_answer(answer: &RelayedAnswer) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(VERSION);
    match answer {
        RelayedAnswer::NotHere => bytes.put_u8(NOT_HERE),
        RelayedAnswer::Answered { response, known } => {
            bytes.reserve(1024 + response.body().len());
            bytes.put_u8(ANSWERED);
            bytes.put_u64(*known);
            bytes.put_u16(response.status().as_u16());
            put_headers(&mut bytes, response.headers().iter());
            put_text(&mut bytes, response.body());
        }
    }
    bytes.freeze()
}

/// `None` when it cannot be understood.
pub fn decode_answer(bytes: Bytes) -> Option<RelayedAnswer> {
    let mut rest = Reader::open(bytes)?;
    match rest.u8()? {
        NOT_HERE => rest.0.is_empty().then_some(RelayedAnswer::NotHere),
        ANSWERED => {
            let known = rest.0.try_get_u64().ok()?;
            let status = StatusCode::from_u16(rest.0.try_get_u16().ok()?).ok()?;
            let headers = rest.headers()?;
            let mut response = Response::new(rest.last()?);
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            Some(RelayedAnswer::Answered { response, known })
        }
        _ => None,
    }
}

fn put_text(bytes: &mut BytesMut, text: &[u8]) {
    let length = u32::try_from(text.len()).expect("bodies and heads are bounded far below 4 GiB");
    bytes.put_u32(length);
    bytes.extend_from_slice(text);
}

fn put_headers<'a>(bytes: &mut BytesMut, headers: impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)>) {
    let headers: Vec<_> = headers.take(usize::from(HEADERS_MAX)).collect();
    bytes.put_u16(headers.len() as u16);
    for (name, value) in headers {
        put_text(bytes, name.as_str().as_bytes());
        put_text(bytes, value.as_bytes());
    }
}

struct Reader(Bytes);

impl Reader {
    fn open(bytes: Bytes) -> Option<Reader> {
        let mut reader = Reader(bytes);
        (reader.u8()? == VERSION).then_some(reader)
    }

    fn u8(&mut self) -> Option<u8> {
        self.0.try_get_u8().ok()
    }

    fn text(&mut self) -> Option<Bytes> {
        let length = self.0.try_get_u32().ok()? as usize;
        (length <= self.0.len()).then(|| self.0.split_to(length))
    }

    /// A text that nothing follows.
    fn last(&mut self) -> Option<Bytes> {
        let text = self.text()?;
        self.0.is_empty().then_some(text)
    }

    fn headers(&mut self) -> Option<HeaderMap> {
        let count = self.0.try_get_u16().ok().filter(|count| *count <= HEADERS_MAX)?;
        let mut headers = HeaderMap::with_capacity(usize::from(count));
        for _ in 0..count {
            let name = HeaderName::from_bytes(&self.text()?).ok()?;
            headers.append(name, HeaderValue::from_maybe_shared(self.text()?).ok()?);
        }
        Some(headers)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers() -> impl Strategy<Value = HeaderMap> {
        let header = ("x-ms-[a-z]{1,10}", "[ -~]{0,40}");
        proptest::collection::vec(header, 0..20).prop_map(|pairs| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
                headers.append(name, HeaderValue::from_str(&value).unwrap());
            }
            headers
        })
    }

    fn body() -> impl Strategy<Value = Bytes> {
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from)
    }

    proptest! {
        #[test]
        fn a_request_arrives_as_it_was_sent(headers in headers(), body in body(), tls: bool, path in "/[a-z/]{0,30}") {
            let (method, uri) = (Method::PATCH, path.parse::<Uri>().unwrap());
            let activity_id = HeaderValue::from_static("5c6f");
            let request = RelayedRequest { method: &method, uri: &uri, headers: &headers, body: &body, tls, activity_id: &activity_id };
            let (read, read_tls) = decode_request(encode_request(&request)).unwrap();
            prop_assert_eq!((read.method(), read.uri(), read.body(), read_tls), (&method, &uri, &body, tls));
            let mut expected = headers.clone();
            expected.insert(names::ACTIVITY_ID, activity_id);
            prop_assert_eq!(read.headers(), &expected);
        }

        #[test]
        fn an_answer_arrives_as_it_was_given(headers in headers(), body in body(), known: u64, status in 200u16..600) {
            let mut response = Response::new(body.clone());
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            *response.headers_mut() = headers.clone();
            let read = decode_answer(encode_answer(&RelayedAnswer::Answered { response, known }));
            let Some(RelayedAnswer::Answered { response, known: read_known }) = read else {
                panic!("it was an answer")
            };
            prop_assert_eq!((response.body(), response.headers(), read_known), (&body, &headers, known));
            prop_assert_eq!(response.status().as_u16(), status);
        }

        #[test]
        fn what_is_cut_off_or_made_up_is_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in any::<prop::sample::Index>()) {
            let made_up = Bytes::from(bytes.clone());
            let _ = (decode_request(made_up.clone()), decode_answer(made_up));
            let whole = encode_answer(&RelayedAnswer::Answered { response: Response::new(bytes.into()), known: 1 });
            prop_assert!(decode_answer(whole.slice(..cut.index(whole.len()))).is_none());
        }
    }

    #[test]
    fn headers_of_the_connection_stay_behind() {
        let mut headers = HeaderMap::new();
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("7"));
        let request = RelayedRequest {
            method: &Method::GET,
            uri: &Uri::from_static("/dbs"),
            headers: &headers,
            body: &Bytes::new(),
            tls: false,
            activity_id: &HeaderValue::from_static("a"),
        };
        let (read, _) = decode_request(encode_request(&request)).unwrap();
        assert_eq!(read.headers().len(), 1);
    }

    #[test]
    fn another_version_is_refused() {
        let mut bytes = encode_answer(&RelayedAnswer::NotHere).to_vec();
        assert!(matches!(
            decode_answer(bytes.clone().into()),
            Some(RelayedAnswer::NotHere)
        ));
        bytes[0] = 2;
        assert!(decode_answer(bytes.into()).is_none());
    }
}
