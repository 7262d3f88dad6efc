//! Who sends a request, decided from its `authorization` header and nothing else.
//!
//! Two kinds of senders exist: holders of an account key, who sign every request, and holders of a resource token, who
//! show it. What either may do is checked where the resource is known, in the node. Nothing here logs a key, a
//! token or a signature, and every comparison with a secret takes the same time whatever it is compared with.

pub mod date;
pub mod header;
pub mod keyring;
pub mod resource_token;
pub mod signature;

use std::sync::{Arc, PoisonError, RwLock};

use orrery_model::{Error, Result, Status, Timestamp};
use orrery_node::account::AccountKeys;
use orrery_node::api::Principal;

use header::{Authorization, TokenKind};
use keyring::Keyring;
pub use signature::Signed;

/// The headers that take part, as they were sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Credentials<'a> {
    pub authorization: Option<&'a str>,
    pub x_ms_date: Option<&'a str>,
    pub date: Option<&'a str>,
}

/// Checks credentials. Keeps the keys' prepared HMAC states until the account's keys change.
#[derive(Debug)]
pub struct Authenticator {
    keyring: RwLock<Arc<Keyring>>,
}

impl Authenticator {
    pub fn new(keys: Arc<AccountKeys>) -> Authenticator {
        Authenticator {
            keyring: RwLock::new(Arc::new(Keyring::new(keys))),
        }
    }

    /// Who sent this request, or why it is refused: 401 when the sender is unknown, 403 when the request is too old.
    pub fn authenticate(
        &self,
        keys: &Arc<AccountKeys>,
        signed: Signed<'_>,
        credentials: Credentials<'_>,
        now: Timestamp,
    ) -> Result<Principal> {
        let text = credentials.authorization.ok_or_else(|| {
            unauthorized("Required Header authorization is missing. Ensure a valid Authorization token is passed.")
        })?;
        let authorization = Authorization::parse(text)?;
        let keyring = self.keyring(keys);
        match authorization.kind() {
            TokenKind::Master => {
                let payload = signature::payload(signed, credentials)?;
                let read_only = keyring.verify_account(payload.as_bytes(), authorization.signature()).ok_or_else(|| {
                    unauthorized(format!(
                        "The input authorization token can't serve the request. Please check that the expected payload is built \
                         as per the protocol, and check the key being used. Server used the following payload to sign: '{payload}'"
                    ))
                })?;
                date::check_window(credentials.x_ms_date.or(credentials.date), now)?;
                Ok(Principal::Account { read_only })
            }
            TokenKind::Resource => {
                resource_token::verify(&keyring, authorization.signature(), now).map(Principal::Grant)
            }
            TokenKind::Entra => Err(unauthorized(
                "Microsoft Entra ID tokens (type=aad) are not supported here. Sign requests with an account key or use a resource token.",
            )),
        }
    }

    /// The prepared keys; made anew when the account's keys have been rotated.
    pub fn keyring(&self, keys: &Arc<AccountKeys>) -> Arc<Keyring> {
        let current = Arc::clone(&self.keyring.read().unwrap_or_else(PoisonError::into_inner));
        if current.is_of(keys) {
            return current;
        }
        let fresh = Arc::new(Keyring::new(Arc::clone(keys)));
        *self.keyring.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&fresh);
        fresh
    }
}

fn unauthorized(message: impl Into<String>) -> Error {
    Error::new(Status::UNAUTHORIZED, message)
}

#[cfg(test)]
mod tests;
