//! Where clients are told to find the account: the addresses in the account document.
//!
//! Clients send all later traffic there, so an address must be one the client that asks can reach. Unless told otherwise
//! that is the address it has just used. A client that called a name ([`crate::names`]) is told names.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use http::uri::Authority;
use http::{HeaderMap, Uri, request};
use orrery_node::account::Account;

use crate::names::Suffix;
use crate::wire::account::{Location, Locations};

/// How a region is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// By the scheme, host and port of the request.
    AsCalled,
    /// By the scheme and host of the request and this port.
    Port(u16),
    /// By this URL, whatever was called.
    Url(String),
}

/// The addresses of regions, by display name. A region that is not named is reached as it was called. Clones share what
/// they know: regions come and go while the account is served.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    known: Arc<RwLock<HashMap<String, Address>>>,
    /// Of names, where regions have any.
    suffix: Option<Suffix>,
}

impl Addresses {
    pub fn with_names(suffix: Option<Suffix>) -> Addresses {
        Addresses {
            suffix,
            ..Addresses::default()
        }
    }

    pub fn set(&self, region: &str, address: Address) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(region.to_owned(), address);
    }

    /// Was a name called, and not an address with a port?
    pub fn are_named_by(&self, head: &request::Parts) -> bool {
        self.suffix_of(&authority(&head.uri, &head.headers)).is_some()
    }

    fn suffix_of(&self, called: &Authority) -> Option<&Suffix> {
        self.suffix.as_ref().filter(|suffix| suffix.covers(called.host()))
    }

    /// The account's regions as the sender of this request should call them.
    pub fn locations(&self, account: &Account, head: &request::Parts, tls: bool) -> Locations {
        let authority = authority(&head.uri, &head.headers);
        let suffix = self.suffix_of(&authority);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let location = |region: &String| Location {
            region: region.clone(),
            endpoint: match suffix {
                Some(suffix) => url(tls, &suffix.region(&account.id, region), authority.port_u16()),
                None => known.get(region).unwrap_or(&Address::AsCalled).url(&authority, tls),
            },
        };
        let mut regions = account.regions.iter();
        let write = regions.next().map_or_else(|| location(&"Local".to_owned()), location);
        Locations {
            write,
            read_only: regions.map(location).collect(),
        }
    }
}

impl Address {
    fn url(&self, called: &Authority, tls: bool) -> String {
        match self {
            Address::Url(url) => url.clone(),
            Address::Port(port) => url(tls, called.host(), Some(*port)),
            Address::AsCalled => url(tls, called.host(), called.port_u16()),
        }
    }
}

fn url(tls: bool, host: &str, port: Option<u16>) -> String {
    let scheme = if tls { "https" } else { "http" };
    match port {
        Some(port) => format!("{scheme}://{host}:{port}/"),
        None => format!("{scheme}://{host}/"),
    }
}

/// The host a client called: from the URL over HTTP/2, from the Host header over HTTP/1.1.
pub(crate) fn authority(uri: &Uri, headers: &HeaderMap) -> Authority {
    let from_header = || headers.get(http::header::HOST)?.to_str().ok()?.parse().ok();
    uri.authority()
        .cloned()
        .or_else(from_header)
        .unwrap_or_else(|| Authority::from_static("localhost"))
}

#[cfg(test)]
mod tests {
    use http::Request;
    use orrery_node::api::Consistency;
    use orrery_node::geo::bounds::Staleness;

    use super::*;

    fn endpoints(host: &str, tls: bool, addresses: &[(&str, Address)]) -> Vec<String> {
        endpoints_of(&Addresses::default(), host, tls, addresses)
    }

    fn endpoints_of(known: &Addresses, host: &str, tls: bool, addresses: &[(&str, Address)]) -> Vec<String> {
        let (head, ()) = Request::get("/").header("host", host).body(()).unwrap().into_parts();
        let account = Account {
            id: "orrery".to_owned(),
            consistency: Consistency::Session,
            staleness: Staleness::default(),
            regions: vec!["West US".to_owned(), "North Europe".to_owned()],
        };
        for (name, address) in addresses {
            known.set(name, address.clone());
        }
        let locations = known.locations(&account, &head, tls);
        std::iter::once(locations.write)
            .chain(locations.read_only)
            .map(|location| location.endpoint)
            .collect()
    }

    #[test]
    fn names_are_told_from_addresses() {
        let is_named = |addresses: &Addresses, host: &str| {
            let (head, ()) = Request::get("/").header("host", host).body(()).unwrap().into_parts();
            addresses.are_named_by(&head)
        };
        let addresses = Addresses::with_names(Suffix::new("orrery.test"));
        assert!(is_named(&addresses, "orrery-northeurope.orrery.test:8081"));
        assert!(!is_named(&addresses, "localhost:8083"));
        assert!(!is_named(&Addresses::default(), "orrery.orrery.test:8081"));
    }

    #[test]
    fn regions_are_reached_as_the_client_called_unless_told_otherwise() {
        assert_eq!(
            endpoints("localhost:8081", false, &[]),
            ["http://localhost:8081/", "http://localhost:8081/"]
        );
        assert_eq!(endpoints("db.example", true, &[])[0], "https://db.example/");
        assert_eq!(
            endpoints("[::1]:9000", true, &[("West US", Address::Port(9001))])[0],
            "https://[::1]:9001/"
        );
        let url = Address::Url("https://eu.example/".to_owned());
        assert_eq!(
            endpoints("localhost", false, &[("North Europe", url)])[1],
            "https://eu.example/"
        );
    }

    #[test]
    fn who_calls_a_name_is_told_names_and_the_port_that_was_called() {
        let named = Addresses::with_names(Suffix::new("orrery.test"));
        let ports = [("West US", Address::Port(9001)), ("North Europe", Address::Port(9002))];
        assert_eq!(
            endpoints_of(&named, "orrery.orrery.test:8081", true, &ports),
            [
                "https://orrery-westus.orrery.test:8081/",
                "https://orrery-northeurope.orrery.test:8081/"
            ]
        );
        assert_eq!(
            endpoints_of(&named, "Orrery-WestUS.ORRERY.test", false, &ports)[1],
            "http://orrery-northeurope.orrery.test/"
        );
        assert_eq!(
            endpoints_of(&named, "localhost:8081", false, &ports)[0],
            "http://localhost:9001/"
        );
    }

    #[test]
    fn a_host_that_is_none_falls_back_to_localhost() {
        assert_eq!(endpoints("what ever", false, &[])[0], "http://localhost/");
    }
}
