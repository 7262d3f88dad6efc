//! The account's keys with their HMAC states prepared, so that checking a signature costs two hash blocks and no setup.

use std::fmt;
use std::sync::Arc;

use orrery_node::account::{AccountKeys, Secret};
use ring::hmac;

/// Prepared keys of one account.
pub struct Keyring {
    source: Arc<AccountKeys>,
    /// With whether the key may only read; the most used first.
    account: [(hmac::Key, bool); 4],
    internal: hmac::Key,
}

impl Keyring {
    pub fn new(source: Arc<AccountKeys>) -> Keyring {
        let prepare = |secret: &Secret| hmac::Key::new(hmac::HMAC_SHA256, &secret.0);
        let account = [
            (prepare(&source.primary), false),
            (prepare(&source.secondary), false),
            (prepare(&source.primary_read_only), true),
            (prepare(&source.secondary_read_only), true),
        ];
        let internal = prepare(&source.internal);
        Keyring {
            source,
            account,
            internal,
        }
    }

    /// Was this ring made from exactly these keys?
    pub fn is_of(&self, keys: &Arc<AccountKeys>) -> bool {
        Arc::ptr_eq(&self.source, keys)
    }

    /// Whether the key that made this signature is read-only; `None` if no key of the account made it.
    pub fn verify_account(&self, payload: &[u8], signature: &[u8]) -> Option<bool> {
        self.account
            .iter()
            .find(|(key, _)| hmac::verify(key, payload, signature).is_ok())
            .map(|(_, read_only)| *read_only)
    }

    /// Signs with the secret that never leaves the server.
    pub fn sign_internal(&self, payload: &[u8]) -> hmac::Tag {
        hmac::sign(&self.internal, payload)
    }

    /// Was this signed by [`Keyring::sign_internal`]?
    pub fn verify_internal(&self, payload: &[u8], signature: &[u8]) -> bool {
        hmac::verify(&self.internal, payload, signature).is_ok()
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keyring(…)")
    }
}
