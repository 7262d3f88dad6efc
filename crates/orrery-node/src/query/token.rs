//! Where a page of a query stopped: what the engine needs to go on, and the last item for queries that stream. Bound to the
//! query's text and parameters, its container and key, and signed like every continuation.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use orrery_model::id::ChainHash;
use orrery_model::json::{self, Value};
use orrery_model::{EpkRange, Error, ResourceId, Result};
use orrery_query::plan::Plan;
use orrery_query::run::Resume;

use crate::account::Secret;
use crate::api::QueryText;
use crate::continuation::{Continuation, mac};

const VERSION: u8 = 4;
/// Bytes of a continuation's signature.
const MAC_BYTES: usize = 12;

#[derive(Clone, Debug, PartialEq)]
pub struct QueryContinuation {
    pub resume: Resume,
    pub last: Option<Continuation>,
    /// For rows that are counted off: the part of the key space they are counted in.
    pub counted_over: Option<[u8; 8]>,
}

/// A short hash of a part of the key space.
pub fn range_hash(range: &EpkRange) -> [u8; 8] {
    short(ChainHash::ZERO.chain(range.min.as_bytes()).chain(range.max.as_bytes()))
}

fn short(hash: ChainHash) -> [u8; 8] {
    hash.0[..8].try_into().expect("the hash has 16 bytes")
}

/// A short hash of what was asked, of which container, and of which partition key if it was asked of one (as `keyed`, what belongs
/// to that key). Ranges that a client names are not part of it: after a split they are others.
pub fn fingerprint(container: &ResourceId, keyed: Option<&EpkRange>, query: &QueryText) -> [u8; 8] {
    let mut text = container.to_string();
    text.push('\0');
    text.push_str(&query.text);
    for (name, value) in &query.parameters {
        text.push('\0');
        text.push_str(name);
        text.push('\0');
        text.push_str(&value.as_ref().map(Value::to_text).unwrap_or_default());
    }
    let asked = ChainHash::ZERO.chain(text.as_bytes());
    short(match keyed {
        Some(range) => asked.chain(range.min.as_bytes()).chain(range.max.as_bytes()),
        None => asked,
    })
}

impl QueryContinuation {
    pub fn encode(&self, secret: &Secret, fingerprint: [u8; 8]) -> String {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&fingerprint);
        match &self.last {
            Some(last) => {
                bytes.push(1);
                last.write(&mut bytes);
            }
            None => bytes.push(0),
        }
        match &self.counted_over {
            Some(hash) => {
                bytes.push(1);
                bytes.extend_from_slice(hash);
            }
            None => bytes.push(0),
        }
        bytes.extend_from_slice(self.resume.to_json().to_text().as_bytes());
        let signature = mac(secret, &bytes);
        bytes.extend_from_slice(&signature);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// What it means for a part of the key space. Where rows were counted in another one, which was split or merged since, the
    /// count says nothing: rows come from the beginning again, as whoever puts distinct rows together can bear. Groups would
    /// be added up twice.
    pub fn over(self, range: &EpkRange, plan: &Plan) -> Result<QueryContinuation> {
        match self.counted_over {
            Some(hash) if hash != range_hash(range) && plan.is_grouped() => Err(Error::bad_request(
                "The continuation was issued for a partition that was split or merged since: begin this query again.",
            )),
            Some(hash) if hash != range_hash(range) => Ok(QueryContinuation {
                resume: Resume::default(),
                ..self
            }),
            _ => Ok(self),
        }
    }

    /// Reads what [`QueryContinuation::encode`] wrote for the same query; anything else is refused in the service's words.
    pub fn decode(text: &str, secret: &Secret, fingerprint: [u8; 8]) -> Result<QueryContinuation> {
        decode(text, secret, fingerprint).ok_or_else(|| Error::bad_request("Invalid Continuation Token"))
    }
}

fn decode(text: &str, secret: &Secret, fingerprint: [u8; 8]) -> Option<QueryContinuation> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (content, signature) = bytes.split_at_checked(bytes.len().checked_sub(MAC_BYTES)?)?;
    if mac(secret, content) != signature {
        return None;
    }
    let rest = content.strip_prefix(&[VERSION])?.strip_prefix(&fingerprint)?;
    let (last, rest) = match rest.split_first()? {
        (0, rest) => (None, rest),
        (_, rest) => {
            let (last, rest) = Continuation::read(rest)?;
            (Some(last), rest)
        }
    };
    let (counted_over, rest) = match rest.split_first()? {
        (0, rest) => (None, rest),
        (_, rest) => {
            let (hash, rest) = rest.split_first_chunk::<8>()?;
            (Some(*hash), rest)
        }
    };
    let resume = Resume::from_json(&json::parse_value(rest).ok()?)?;
    Some(QueryContinuation {
        resume,
        last,
        counted_over,
    })
}
