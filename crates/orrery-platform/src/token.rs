//! Who sends a request: a seam for any kind of token, and signed tokens for development.
//!
//! A development token is what it says and an HMAC over it. Invariant: a token is believed only if it was signed with this
//! secret and has not expired; comparing takes the same time whatever is wrong with it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use ring::hmac;
use serde::{Deserialize, Serialize};

/// How long a development token is good.
const LIFETIME_MS: u64 = 24 * 3600 * 1000;
/// Longest token that is looked at.
const TOKEN_BYTES_MAX: usize = 4096;

/// A token that is not believed. Why is nobody's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token is not valid")]
pub struct TokenRefused;

/// Finds out whose token it is. Other kinds of tokens are other implementations.
pub trait TokenVerifier: Send + Sync + 'static {
    /// The user's id.
    fn verify<'a>(&'a self, token: &'a str, now_ms: u64) -> BoxFuture<'a, Result<String, TokenRefused>>;

    /// A token for whoever asks, where that is offered, and until when it is good.
    fn issue(&self, _user: &str, _now_ms: u64) -> Option<(String, u64)> {
        None
    }
}

/// Tokens signed with a secret that all regions share.
pub struct DevelopmentTokens {
    key: hmac::Key,
}

impl std::fmt::Debug for DevelopmentTokens {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("DevelopmentTokens(..)")
    }
}

#[derive(Serialize, Deserialize)]
struct Claims {
    sub: String,
    exp: u64,
}

impl DevelopmentTokens {
    pub fn new(secret: &[u8]) -> DevelopmentTokens {
        DevelopmentTokens {
            key: hmac::Key::new(hmac::HMAC_SHA256, secret),
        }
    }

    fn read(&self, token: &str, now_ms: u64) -> Result<String, TokenRefused> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenRefused);
        }
        let (claims, signature) = token.split_once('.').ok_or(TokenRefused)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenRefused)?;
        hmac::verify(&self.key, claims.as_bytes(), &signature).map_err(|_| TokenRefused)?;
        let claims = URL_SAFE_NO_PAD.decode(claims).map_err(|_| TokenRefused)?;
        let claims: Claims = serde_json::from_slice(&claims).map_err(|_| TokenRefused)?;
        if claims.exp <= now_ms {
            return Err(TokenRefused);
        }
        Ok(claims.sub)
    }
}

impl TokenVerifier for DevelopmentTokens {
    fn verify<'a>(&'a self, token: &'a str, now_ms: u64) -> BoxFuture<'a, Result<String, TokenRefused>> {
        async move { self.read(token, now_ms) }.boxed()
    }

    fn issue(&self, user: &str, now_ms: u64) -> Option<(String, u64)> {
        let exp = now_ms + LIFETIME_MS;
        let claims = Claims {
            sub: user.to_owned(),
            exp,
        };
        let claims = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&claims).ok()?);
        let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&self.key, claims.as_bytes()));
        Some((format!("{claims}.{signature}"), exp))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_token_is_good_for_its_user_until_it_expires() {
        let tokens = DevelopmentTokens::new(b"secret");
        let (token, until) = tokens.issue("ann", 1000).unwrap();
        assert_eq!(tokens.read(&token, 1001), Ok("ann".to_owned()));
        assert_eq!(tokens.read(&token, until), Err(TokenRefused));
        assert_eq!(DevelopmentTokens::new(b"other").read(&token, 1001), Err(TokenRefused));
    }

    #[test]
    fn claims_cannot_be_changed() {
        let tokens = DevelopmentTokens::new(b"secret");
        let (token, _) = tokens.issue("ann", 1000).unwrap();
        let (_, signature) = token.split_once('.').unwrap();
        let claims = URL_SAFE_NO_PAD.encode(r#"{"sub":"bob","exp":99999999999999}"#);
        assert_eq!(tokens.read(&format!("{claims}.{signature}"), 1001), Err(TokenRefused));
    }

    proptest! {
        #[test]
        fn what_strangers_send_is_refused(token in ".{0,300}") {
            prop_assert_eq!(DevelopmentTokens::new(b"secret").read(&token, 0), Err(TokenRefused));
        }
    }
}
