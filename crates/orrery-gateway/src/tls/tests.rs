use orrery_node::SystemClock;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection};

use super::*;

/// A handshake in memory with a client that trusts this PEM; what the client thinks of it.
fn handshake(acceptor: &TlsAcceptor, ca_pem: &str, name: &str) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap())
        .unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut server = ServerConnection::new(Arc::clone(acceptor.config())).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets().map_err(|error| error.to_string())?;
        wire.clear();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut wire.as_slice()).unwrap();
        client.process_new_packets().map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn clock() -> Arc<SystemClock> {
    Arc::new(SystemClock::default())
}

#[test]
fn any_name_and_both_loopback_addresses_are_trusted_by_whoever_trusts_the_authority() {
    let authority = Arc::new(Authority::in_memory(clock().now()).unwrap());
    let acceptor = acceptor(Arc::clone(&authority), clock()).unwrap();
    for name in [
        "localhost",
        "orrery.internal",
        "West-US.db.example.com",
        "127.0.0.1",
        "::1",
    ] {
        assert_eq!(handshake(&acceptor, authority.pem(), name), Ok(()), "{name}");
    }
    let other = Authority::in_memory(clock().now()).unwrap();
    assert!(handshake(&acceptor, other.pem(), "localhost").is_err());
    assert!(
        handshake(&acceptor, authority.pem(), "10.1.2.3").is_err(),
        "an address nobody vouched for"
    );
}

#[test]
fn an_authority_in_a_directory_is_made_once_and_its_key_is_private() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("tls");
    let first = Authority::in_directory(&place, clock().now()).unwrap();
    let again = Arc::new(Authority::in_directory(&place, clock().now()).unwrap());
    assert_eq!(first.pem(), again.pem());
    let acceptor = acceptor(again, clock()).unwrap();
    assert_eq!(handshake(&acceptor, first.pem(), "localhost"), Ok(()));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(place.join("ca.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }
}

#[test]
fn a_certificate_of_ones_own_is_served_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["db.example".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    let (chain_path, key_path) = (directory.path().join("chain.pem"), directory.path().join("key.pem"));
    std::fs::write(&chain_path, certificate.pem()).unwrap();
    std::fs::write(&key_path, key.serialize_pem()).unwrap();
    let acceptor = acceptor_from_files(&chain_path, &key_path).unwrap();
    assert_eq!(handshake(&acceptor, &certificate.pem(), "db.example"), Ok(()));
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let (empty, missing) = (directory.path().join("empty.pem"), directory.path().join("missing.pem"));
    std::fs::write(&empty, "").unwrap();
    for (chain, named) in [(&empty, "empty.pem"), (&missing, "missing.pem")] {
        let error = acceptor_from_files(chain, &missing).err().expect("refused").to_string();
        assert!(error.contains(named), "{error}");
    }
}
