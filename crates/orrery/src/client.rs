//! A small client of a running server: signed requests over HTTP/1.1, one connection at a time.
//!
//! Commands that talk to a server share the flags, the signature and the rule for what may be sent again. A connection is
//! opened when it is first needed and opened again after it broke.

mod connection;
mod sign;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use clap::Args;
use http::{HeaderMap, Method, StatusCode, Uri};
use serde_json::Value;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

pub use connection::Connection;
use sign::Signer;
pub use sign::percent_encode;

use crate::config::DEVELOPMENT_KEY;

/// Flags of commands that talk to a running server.
#[derive(Args, Clone, Debug)]
pub struct RemoteFlags {
    /// Address of the account
    #[arg(long, value_name = "URL", default_value = "http://localhost:8081")]
    endpoint: String,
    /// Key of the account [default: the well-known development key]
    #[arg(long, value_name = "BASE64", env = "ORRERY_KEY", hide_env_values = true, default_value = DEVELOPMENT_KEY, hide_default_value = true)]
    key: String,
    /// Certificate authority to trust when the address is https; a server gives its own at /_orrery/ca.pem
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

#[cfg(feature = "processor")]
impl RemoteFlags {
    /// As it was given.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub fn key(&self) -> &str {
        &self.key
    }
}

/// Where the server is and how to speak to it.
#[derive(Debug)]
pub struct Client {
    /// As the `Host` header wants it.
    authority: String,
    host: String,
    port: u16,
    tls: Option<Tls>,
    signer: Signer,
}

struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Tls")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Client {
    pub fn new(flags: &RemoteFlags) -> Result<Arc<Client>> {
        let invalid = || format!("'{}' is not an address like http://localhost:8081", flags.endpoint);
        let uri: Uri = flags.endpoint.parse().ok().with_context(invalid)?;
        let authority = uri.authority().with_context(invalid)?;
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let (tls, default_port) = match uri.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => (Some(Tls::new(&host, flags.ca.as_ref())?), 443),
            _ => bail!(invalid()),
        };
        Ok(Arc::new(Client {
            authority: authority.as_str().to_owned(),
            host,
            port: authority.port_u16().unwrap_or(default_port),
            tls,
            signer: Signer::new(&flags.key)?,
        }))
    }

    /// A connection that is not open yet.
    pub fn connection(self: &Arc<Client>) -> Connection {
        Connection::new(Arc::clone(self))
    }
}

impl Tls {
    fn new(host: &str, ca: Option<&PathBuf>) -> Result<Tls> {
        let path = ca.context("an https address needs --ca FILE, the certificate authority to trust")?;
        let mut roots = RootCertStore::empty();
        let certificates =
            CertificateDer::pem_file_iter(path).with_context(|| format!("cannot read {}", path.display()))?;
        for certificate in certificates {
            let certificate = certificate.with_context(|| format!("{} is not a PEM file", path.display()))?;
            roots
                .add(certificate)
                .with_context(|| format!("{} holds a bad certificate", path.display()))?;
        }
        ensure!(!roots.is_empty(), "{} holds no certificate", path.display());
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).with_context(|| format!("'{host}' is not a host name"))?;
        Ok(Tls {
            connector: TlsConnector::from(Arc::new(config)),
            name,
        })
    }
}

/// One request. Cheap to send again.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: Method,
    /// Of the signature: `docs`, `colls`, …; empty for administration.
    resource_type: &'static str,
    link: String,
    /// Percent-encoded, with the query string.
    path_and_query: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: Bytes,
}

impl Call {
    /// About the resource that these segments name, such as `["dbs", "store", "colls", "orders"]`.
    pub fn resource(method: Method, segments: &[&str]) -> Call {
        let resource_type = segments.len().checked_sub(2).map_or("", |index| kind(segments[index]));
        Call::new(method, resource_type, segments.join("/"), encoded(segments))
    }

    /// About the children of a resource: creating one, or reading their feed.
    pub fn children(method: Method, parent: &[&str], child: &str) -> Call {
        let path = encoded(&[parent, &[child]].concat());
        Call::new(method, kind(child), parent.join("/"), path)
    }

    /// An administration request, to a path below `/_orrery/v1/`.
    pub fn administration(method: Method, path: &str, query: &[(&str, &str)]) -> Call {
        let link = format!("_orrery/v1/{path}");
        let query: Vec<String> = query
            .iter()
            .map(|(name, value)| format!("{name}={}", percent_encode(value)))
            .collect();
        let separator = if query.is_empty() { "" } else { "?" };
        let path_and_query = format!("/{link}{separator}{}", query.join("&"));
        Call::new(method, "", link, path_and_query)
    }

    fn new(method: Method, resource_type: &'static str, link: String, path_and_query: String) -> Call {
        Call {
            method,
            resource_type,
            link,
            path_and_query,
            headers: Vec::new(),
            body: Bytes::new(),
        }
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Call {
        self.headers.push((name, value.into()));
        self
    }

    pub fn json(mut self, body: impl Into<Bytes>) -> Call {
        self.body = body.into();
        self.header("content-type", "application/json")
    }
}

/// The resource type that a path's segment stands for.
fn kind(segment: &str) -> &'static str {
    match segment {
        "dbs" => "dbs",
        "colls" => "colls",
        "docs" => "docs",
        "pkranges" => "pkranges",
        other => unreachable!("this client never asks for {other}"),
    }
}

fn encoded(segments: &[&str]) -> String {
    segments
        .iter()
        .map(|segment| format!("/{}", percent_encode(segment)))
        .collect()
}

/// What a server answered, whatever the status.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// The answer, unless it is a refusal.
    pub fn success(self) -> Result<Answer> {
        if self.status.is_success() {
            Ok(self)
        } else {
            bail!("{}", self.refusal())
        }
    }

    pub fn parse(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).context("the server's answer is not JSON")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The status and the first line of what the server says about it.
    pub fn refusal(&self) -> String {
        let body: Option<Value> = serde_json::from_slice(&self.body).ok();
        let message = body
            .as_ref()
            .and_then(|body| body["message"].as_str())
            .unwrap_or_default();
        let line = message.lines().next().unwrap_or_default().trim();
        format!("{} {line}", self.status.as_u16()).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_in_the_path_and_plain_in_the_link() {
        let call = Call::children(Method::POST, &["dbs", "my db", "colls", "größe"], "docs");
        assert_eq!(call.path_and_query, "/dbs/my%20db/colls/gr%C3%B6%C3%9Fe/docs");
        assert_eq!(
            (call.resource_type, call.link.as_str()),
            ("docs", "dbs/my db/colls/größe")
        );
        let call = Call::resource(Method::GET, &["dbs", "a", "colls", "b"]);
        assert_eq!((call.resource_type, call.link.as_str()), ("colls", "dbs/a/colls/b"));
        let call = Call::administration(Method::GET, "partitions", &[("database", "a&b"), ("container", "c")]);
        assert_eq!(call.path_and_query, "/_orrery/v1/partitions?database=a%26b&container=c");
        assert_eq!((call.resource_type, call.link.as_str()), ("", "_orrery/v1/partitions"));
    }

    #[test]
    fn an_address_that_cannot_work_is_refused_with_a_reason() {
        let flags = |endpoint: &str| RemoteFlags {
            endpoint: endpoint.into(),
            key: DEVELOPMENT_KEY.into(),
            ca: None,
        };
        for (endpoint, reason) in [
            ("localhost", "http://"),
            ("ftp://localhost", "http://"),
            ("https://localhost", "--ca"),
        ] {
            let error = Client::new(&flags(endpoint)).unwrap_err();
            assert!(error.to_string().contains(reason), "{endpoint}: {error}");
        }
        let client = Client::new(&flags("http://[::1]:9/")).unwrap();
        assert_eq!((client.host.as_str(), client.port), ("::1", 9));
    }
}
