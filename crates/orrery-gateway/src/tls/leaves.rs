//! Server certificates on demand: one for every name a client asks for, kept for the next one who does.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use orrery_node::Clock;
use rcgen::KeyPair;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey};

use super::{Authority, TlsError};

/// Strangers choose the names, so only so many are kept; beyond that the cache starts anew.
const NAMES_MAX: usize = 256;
/// A certificate is made anew long before it ends.
const FRESH_SECONDS: u64 = 60 * 24 * 60 * 60;

pub struct Leaves {
    authority: Arc<Authority>,
    clock: Arc<dyn Clock>,
    /// One key serves all names: making keys is what costs.
    key: KeyPair,
    signing_key: Arc<dyn SigningKey>,
    /// By name; the empty name is for clients that name none, as those do that call an address.
    by_name: RwLock<HashMap<String, Leaf>>,
}

#[derive(Clone)]
struct Leaf {
    certified: Arc<CertifiedKey>,
    made_seconds: u64,
}

impl Leaves {
    pub fn new(authority: Arc<Authority>, clock: Arc<dyn Clock>) -> Result<Leaves, TlsError> {
        let key = KeyPair::generate()?;
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let signing_key = any_supported_type(&private)?;
        Ok(Leaves {
            authority,
            clock,
            key,
            signing_key,
            by_name: RwLock::default(),
        })
    }

    fn of(&self, name: &str) -> Result<Arc<CertifiedKey>, TlsError> {
        let now = self.clock.now();
        let known = self
            .by_name
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned();
        if let Some(leaf) = known.filter(|leaf| now.seconds().abs_diff(leaf.made_seconds) < FRESH_SECONDS) {
            return Ok(leaf.certified);
        }
        let certificate = self
            .authority
            .issue(Some(name).filter(|name| !name.is_empty()), &self.key, now)?;
        let chain = vec![certificate, self.authority.certificate().clone()];
        let certified = Arc::new(CertifiedKey::new(chain, Arc::clone(&self.signing_key)));
        let mut by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        if by_name.len() >= NAMES_MAX {
            by_name.clear();
        }
        by_name.insert(
            name.to_owned(),
            Leaf {
                certified: Arc::clone(&certified),
                made_seconds: now.seconds(),
            },
        );
        Ok(certified)
    }
}

impl ResolvesServerCert for Leaves {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().unwrap_or_default().to_ascii_lowercase();
        self.of(&name)
            .inspect_err(|error| tracing::warn!(%error, "no certificate for this name"))
            .ok()
    }
}

impl fmt::Debug for Leaves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leaves(…)")
    }
}

#[cfg(test)]
mod tests {
    use orrery_node::SystemClock;

    use super::*;

    #[test]
    fn certificates_are_kept_by_name_and_their_number_is_bounded() {
        let clock = Arc::new(SystemClock::default());
        let authority = Arc::new(Authority::in_memory(clock.now()).unwrap());
        let leaves = Leaves::new(authority, clock).unwrap();
        let first = leaves.of("a.example").unwrap();
        assert!(Arc::ptr_eq(&first, &leaves.of("a.example").unwrap()));
        assert!(!Arc::ptr_eq(&first, &leaves.of("b.example").unwrap()));
        for n in 0..NAMES_MAX {
            leaves.of(&format!("{n}.example")).unwrap();
        }
        assert!(leaves.by_name.read().unwrap().len() <= NAMES_MAX);
    }
}
