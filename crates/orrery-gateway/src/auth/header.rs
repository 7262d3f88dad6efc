//! The `authorization` header: `type=…&ver=…&sig=…`, percent-encoded by some clients and raw from others.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use orrery_model::{Error, Result};

use super::unauthorized;

/// Longest header of each kind, in characters.
const MASTER_CHARACTERS_MAX: usize = 1024;
const RESOURCE_CHARACTERS_MAX: usize = 8 * 1024;
const ENTRA_CHARACTERS_MAX: usize = 16 * 1024;

/// Clients disagree on padding; the bytes are what counts.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Signed with an account key.
    Master,
    /// Issued by a permission.
    Resource,
    /// Issued by Microsoft Entra ID.
    Entra,
}

/// A well-formed authorization header.
pub struct Authorization {
    kind: TokenKind,
    /// Decoded for the master kind, as text for the others.
    signature: Vec<u8>,
}

impl Authorization {
    pub fn parse(header: &str) -> Result<Authorization> {
        if header.len() > ENTRA_CHARACTERS_MAX {
            return Err(unauthorized("The authorization token is too long."));
        }
        let decoded = percent_decode(header).ok_or_else(malformed)?;
        // As every SDK spells it; anything else is taken apart with care.
        if let Some(signature) = decoded.strip_prefix("type=master&ver=1.0&sig=")
            && !signature.is_empty()
            && memchr::memchr(b',', signature.as_bytes()).is_none()
        {
            return Authorization::of("master", signature, header.len());
        }
        let mut parts = decoded.splitn(3, '&');
        let kind = field(parts.next(), "type").ok_or_else(malformed)?;
        let version = field(parts.next(), "ver").ok_or_else(malformed)?;
        let signature = field(parts.next(), "sig").ok_or_else(malformed)?;
        let signature = signature.split(',').next().unwrap_or_default();
        if !matches!(version, "1" | "1.0") {
            return Err(malformed());
        }
        Authorization::of(kind, signature, header.len())
    }

    fn of(kind: &str, signature: &str, n_characters: usize) -> Result<Authorization> {
        let (kind, characters_max) = match () {
            () if kind.eq_ignore_ascii_case("master") => (TokenKind::Master, MASTER_CHARACTERS_MAX),
            () if kind.eq_ignore_ascii_case("resource") => (TokenKind::Resource, RESOURCE_CHARACTERS_MAX),
            () if kind.eq_ignore_ascii_case("aad") => (TokenKind::Entra, ENTRA_CHARACTERS_MAX),
            () => return Err(malformed()),
        };
        if n_characters > characters_max {
            return Err(unauthorized("The authorization token is too long."));
        }
        let signature = match kind {
            TokenKind::Master => BASE64
                .decode(with_plus(signature).as_bytes())
                .map_err(|_| malformed())?,
            TokenKind::Resource | TokenKind::Entra => signature.as_bytes().to_vec(),
        };
        Ok(Authorization { kind, signature })
    }

    pub fn kind(&self) -> TokenKind {
        self.kind
    }

    pub fn signature(&self) -> &[u8] {
        &self.signature
    }
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authorization({:?})", self.kind)
    }
}

/// A signature that was form-decoded on its way has blanks where its plus signs were.
fn with_plus(signature: &str) -> Cow<'_, str> {
    if signature.contains(' ') {
        Cow::Owned(signature.replace(' ', "+"))
    } else {
        Cow::Borrowed(signature)
    }
}

fn field<'a>(part: Option<&'a str>, name: &str) -> Option<&'a str> {
    let (found, value) = part?.split_once('=')?;
    (found.eq_ignore_ascii_case(name) && !value.is_empty()).then_some(value)
}

fn malformed() -> Error {
    unauthorized(
        "The input authorization header is not well formed. Expected type={master|resource}&ver={version}&sig={signature}, URL-encoded.",
    )
}

/// Decodes `%XX`; leaves everything else, also `+`, alone. `None` when the result is not UTF-8 or an escape is broken.
pub(crate) fn percent_decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some(at) = memchr::memchr(b'%', rest) {
        let (plain, escape) = rest.split_at(at);
        bytes.extend_from_slice(plain);
        let (&[_, high, low], after) = escape.split_first_chunk()?;
        bytes.push((hex(high)? << 4) | hex(low)?);
        rest = after;
    }
    bytes.extend_from_slice(rest);
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNATURE: &str = "c09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu+c+c=";

    #[test]
    fn a_header_is_read_however_the_client_encoded_it() {
        for header in [
            format!("type=master&ver=1.0&sig={SIGNATURE}"),
            "type%3Dmaster%26ver%3D1.0%26sig%3Dc09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu%2Bc%2Bc%3D".to_owned(),
            "type%3dmaster%26ver%3d1.0%26sig%3dc09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu%2bc%2bc%3d".to_owned(),
            "type=master&ver=1.0&sig=c09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu c c=".to_owned(),
            format!("TYPE=Master&ver=1.0&sig={SIGNATURE},type=other"),
        ] {
            let parsed = Authorization::parse(&header).expect(&header);
            assert_eq!(parsed.kind(), TokenKind::Master);
            assert_eq!(parsed.signature(), BASE64.decode(SIGNATURE).unwrap(), "{header}");
        }
    }

    #[test]
    fn a_malformed_header_is_refused_with_401() {
        let long = format!("type=master&ver=1.0&sig={}", "A".repeat(2000));
        let very_long = format!("type=aad&ver=1.0&sig={}", "A".repeat(20_000));
        for header in [
            "",
            "Bearer abc",
            "type=master",
            "type=master&ver=1.0",
            "type=master&ver=1.0&sig=",
            "type=master&ver=9&sig=AAAA",
            "type=sas&ver=1.0&sig=AAAA",
            "type=master&ver=1.0&sig=***",
            "type=master&ver=1.0&sig=%4",
            "type=master&ver=1.0&sig=%FF",
            &long,
            &very_long,
        ] {
            let error = Authorization::parse(header).expect_err(header);
            assert_eq!(error.status().code, 401, "{header}");
        }
    }
}
