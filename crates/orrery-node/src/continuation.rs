//! Where a page of items stopped: an EPK and an item number, never a partition, so that it stays valid when partitions
//! split or merge. Signed with the account's internal secret; what we did not issue is refused.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use orrery_model::{Epk, Error, Result};
use ring::hmac;

use crate::account::Secret;

/// Tokens of version 1 had one byte for the length of the EPK, which those of several components can exceed.
const VERSION: u8 = 2;
const VERSION_SHORT: u8 = 1;
const MAC_BYTES: usize = 12;

/// The last item of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuation {
    pub epk: Epk,
    pub number: u64,
}

impl Continuation {
    pub fn encode(&self, secret: &Secret) -> String {
        let mut bytes = vec![VERSION];
        self.write(&mut bytes);
        let mac = mac(secret, &bytes);
        bytes.extend_from_slice(&mac);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The length of the EPK, the EPK and the number.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        // An EPK is made of at most three components of at most 2 KiB.
        bytes.extend_from_slice(&(self.epk.as_bytes().len() as u16).to_be_bytes());
        bytes.extend_from_slice(self.epk.as_bytes());
        bytes.extend_from_slice(&self.number.to_be_bytes());
    }

    /// What [`Continuation::write`] has written, and what follows it.
    pub fn read(bytes: &[u8]) -> Option<(Continuation, &[u8])> {
        let (length, rest) = bytes.split_first_chunk::<2>()?;
        Continuation::read_after(usize::from(u16::from_be_bytes(*length)), rest)
    }

    fn read_after(length: usize, bytes: &[u8]) -> Option<(Continuation, &[u8])> {
        let (epk, rest) = bytes.split_at_checked(length)?;
        let (number, rest) = rest.split_first_chunk::<8>()?;
        let continuation = Continuation {
            epk: Epk::from_bytes(epk),
            number: u64::from_be_bytes(*number),
        };
        Some((continuation, rest))
    }

    pub fn decode(text: &str, secret: &Secret) -> Result<Continuation> {
        decode(text, secret)
            .ok_or_else(|| Error::bad_request("The continuation token is not one that this account issued."))
    }
}

fn decode(text: &str, secret: &Secret) -> Option<Continuation> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (content, signature) = bytes.split_at_checked(bytes.len().checked_sub(MAC_BYTES)?)?;
    if mac(secret, content) != signature {
        return None;
    }
    let (continuation, rest) = match content.split_first()? {
        (&VERSION, rest) => Continuation::read(rest)?,
        (&VERSION_SHORT, rest) => {
            let (length, rest) = rest.split_first()?;
            Continuation::read_after(usize::from(*length), rest)?
        }
        _ => return None,
    };
    rest.is_empty().then_some(continuation)
}

pub fn mac(secret: &Secret, content: &[u8]) -> [u8; MAC_BYTES] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &secret.0);
    let tag = hmac::sign(&key, &[b"continuation:", content].concat());
    tag.as_ref()[..MAC_BYTES]
        .try_into()
        .expect("a SHA-256 tag is longer than the part kept")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Continuation {
        Continuation {
            epk: Epk::from_bytes([1, 2, 3]),
            number: 42,
        }
    }

    #[test]
    fn a_token_comes_back_as_it_was() {
        let secret = Secret(vec![7; 64]);
        assert_eq!(
            Continuation::decode(&token().encode(&secret), &secret).unwrap(),
            token()
        );
    }

    #[test]
    fn a_token_of_a_long_key_comes_back_as_it_was() {
        let secret = Secret(vec![7; 64]);
        for length in [255, 256, 310, 3 * 2100] {
            let token = Continuation {
                epk: Epk::from_bytes(vec![5; length]),
                number: 42,
            };
            assert_eq!(Continuation::decode(&token.encode(&secret), &secret).unwrap(), token);
        }
    }

    #[test]
    fn a_token_of_the_version_before_is_still_good() {
        let secret = Secret(vec![7; 64]);
        let mut bytes = vec![1, 3, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 42];
        let mac = mac(&secret, &bytes);
        bytes.extend_from_slice(&mac);
        let text = URL_SAFE_NO_PAD.encode(bytes);
        assert_eq!(Continuation::decode(&text, &secret).unwrap(), token());
    }

    #[test]
    fn a_changed_or_foreign_token_is_refused() {
        let secret = Secret(vec![7; 64]);
        let text = token().encode(&secret);
        let mut changed = text.clone().into_bytes();
        changed[3] ^= 1;
        for bad in [
            String::from_utf8(changed).unwrap(),
            String::new(),
            "x".repeat(10_000),
            text[1..].to_owned(),
        ] {
            assert!(Continuation::decode(&bad, &secret).is_err(), "{bad}");
        }
        assert!(Continuation::decode(&text, &Secret(vec![8; 64])).is_err());
    }
}
