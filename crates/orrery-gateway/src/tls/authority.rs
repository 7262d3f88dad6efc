//! The local certificate authority: made once, kept beside the data, trusted by whoever imports its certificate.
//!
//! Its key never leaves the directory (readable by its owner only) and the process. The certificate's name is derived from
//! the key, so that two authorities on one machine are never taken for each other.

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::Path;

use orrery_model::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType, SerialNumber,
};
use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use time::{Duration, OffsetDateTime};

use super::TlsError;

const CERTIFICATE_FILE: &str = "ca.pem";
const KEY_FILE: &str = "ca.key";
const AUTHORITY_DAYS: i64 = 3650;
/// Browsers refuse certificates that live much longer than a year.
const LEAF_DAYS: i64 = 390;
/// Clients whose clock is behind shall not take a certificate for one of the future.
const BACKDATED_DAYS: i64 = 2;

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
}

impl Authority {
    /// A new authority that is gone with the process.
    pub fn in_memory(now: Timestamp) -> Result<Authority, TlsError> {
        let key = KeyPair::generate()?;
        let params = authority_params(&key, now)?;
        let certificate = params.self_signed(&key)?;
        let pem = certificate.pem();
        Ok(Authority {
            issuer: Issuer::new(params, key),
            certificate: certificate.der().clone(),
            pem,
        })
    }

    /// The authority of a directory; made there if there is none.
    pub fn in_directory(directory: &Path, now: Timestamp) -> Result<Authority, TlsError> {
        let (certificate_path, key_path) = (directory.join(CERTIFICATE_FILE), directory.join(KEY_FILE));
        match (read(&certificate_path)?, read(&key_path)?) {
            (Some(pem), Some(key)) => Authority::load(pem, &key, &certificate_path, now),
            // A key without a certificate is left by a crash between the two writes; nobody can have trusted it.
            _ => {
                let authority = Authority::in_memory(now)?;
                let failed = |source| TlsError::File {
                    path: directory.to_owned(),
                    source,
                };
                fs::create_dir_all(directory).map_err(failed)?;
                write(&key_path, &authority.issuer.key().serialize_pem(), 0o600)?;
                write(&certificate_path, &authority.pem, 0o644)?;
                Ok(authority)
            }
        }
    }

    fn load(pem: String, key: &str, path: &Path, now: Timestamp) -> Result<Authority, TlsError> {
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|source| TlsError::Pem {
            path: path.to_owned(),
            source,
        })?;
        let key = KeyPair::from_pem(key)?;
        let params = authority_params(&key, now)?;
        Ok(Authority {
            issuer: Issuer::new(params, key),
            certificate,
            pem,
        })
    }

    /// What clients import.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// A certificate for a server of this name, always good for loopback as well.
    pub fn issue(
        &self,
        name: Option<&str>,
        key: &KeyPair,
        now: Timestamp,
    ) -> Result<CertificateDer<'static>, TlsError> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
        for address in [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1u16])] {
            params.subject_alt_names.push(SanType::IpAddress(address));
        }
        if let Some(name) = name.filter(|name| *name != "localhost") {
            params.subject_alt_names.push(SanType::DnsName(name.try_into()?));
        }
        params.distinguished_name.push(DnType::CommonName, "Orrery");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(random_serial());
        set_validity(&mut params, now, LEAF_DAYS);
        Ok(params.signed_by(key, &self.issuer)?.der().clone())
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority(…)")
    }
}

/// The authority's name and rights, which its certificate and everything it signs must agree on.
fn authority_params(key: &KeyPair, now: Timestamp) -> Result<CertificateParams, TlsError> {
    let fingerprint = digest::digest(&digest::SHA256, key.public_key_raw());
    let suffix: String = fingerprint.as_ref()[..4]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mut params = CertificateParams::new(Vec::new())?;
    params
        .distinguished_name
        .push(DnType::CommonName, format!("Orrery local authority {suffix}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.serial_number = Some(random_serial());
    set_validity(&mut params, now, AUTHORITY_DAYS);
    Ok(params)
}

fn set_validity(params: &mut CertificateParams, now: Timestamp, n_days: i64) {
    let now = i64::try_from(now.seconds())
        .ok()
        .and_then(|now| OffsetDateTime::from_unix_timestamp(now).ok());
    let now = now.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    params.not_before = now - Duration::days(BACKDATED_DAYS);
    params.not_after = now + Duration::days(n_days);
}

/// Leaves share one key, so their numbers cannot be derived from it: clients refuse two certificates with one number.
fn random_serial() -> SerialNumber {
    let mut bytes = [0; 16];
    // A repeated number is the worst that missing randomness could cause here; the keys have their own source.
    let _ = SystemRandom::new().fill(&mut bytes);
    bytes[0] = (bytes[0] & 0x7F) | 0x40;
    SerialNumber::from_slice(&bytes)
}

fn read(path: &Path) -> Result<Option<String>, TlsError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TlsError::File {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Writes a file whole or not at all.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), TlsError> {
    let part = path.with_extension("part");
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    options
        .open(&part)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&part, path))
        .map_err(|source| TlsError::File {
            path: path.to_owned(),
            source,
        })
}
