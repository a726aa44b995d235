//! The certificates of a server: which of them a client is shown, and new ones in their place.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use webpki::EndEntityCert;

use super::error::TlsError;

/// A certificate (with those of intermediate authorities after it) and its key, both in PEM.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateFiles {
    /// The chain, the server's own certificate first.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// All that a server has, the one for clients that name no server or an unknown one first. They can
/// be exchanged while handshakes go on: each has the old ones or the new ones.
#[derive(Debug)]
pub(super) struct Certificates {
    current: RwLock<Arc<[Arc<CertifiedKey>]>>,
}

impl Certificates {
    pub(super) fn new(certificates: Vec<CertifiedKey>) -> Self {
        Self {
            current: RwLock::new(shared(certificates)),
        }
    }

    /// From here on clients are shown these.
    pub(super) fn exchange(&self, certificates: Vec<CertifiedKey>) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = shared(certificates);
    }

    fn current(&self) -> Arc<[Arc<CertifiedKey>]> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current)
    }
}

fn shared(certificates: Vec<CertifiedKey>) -> Arc<[Arc<CertifiedKey>]> {
    certificates.into_iter().map(Arc::new).collect()
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.current();
        let name = match current.len() {
            0 | 1 => None,
            _ => hello.server_name(),
        };
        let name = name.and_then(|name| ServerName::try_from(name).ok());
        let named = name.and_then(|name| current.iter().find(|it| is_valid_for(it, &name)));
        named.or_else(|| current.first()).cloned()
    }
}

fn is_valid_for(certificate: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let leaf = certificate.cert.first();
    let leaf = leaf.and_then(|leaf| EndEntityCert::try_from(leaf).ok());
    leaf.is_some_and(|leaf| leaf.verify_is_valid_for_subject_name(name).is_ok())
}

/// Reads all of them. An error names the file.
pub(super) fn load(files: &[CertificateFiles]) -> Result<Vec<CertifiedKey>, TlsError> {
    files.iter().map(load_one).collect()
}

fn load_one(files: &CertificateFiles) -> Result<CertifiedKey, TlsError> {
    let CertificateFiles { certificate, key } = files;
    let chain = certificates(certificate)?;
    let content = read(key)?;
    let private_key = PrivateKeyDer::from_pem_slice(&content).map_err(|error| {
        let problem = if matches!(error, pem::Error::NoItemsFound) {
            "there is no private key in it".to_owned()
        } else {
            format!("the private key cannot be read: {error}")
        };
        TlsError::Content {
            path: key.clone(),
            problem,
        }
    })?;
    let made = CertifiedKey::from_der(chain, private_key, &super::provider());
    made.map_err(|error| {
        if matches!(error, rustls::Error::InconsistentKeys(_)) {
            let problem = format!("it is not the key of {}", certificate.display());
            return TlsError::Content {
                path: key.clone(),
                problem,
            };
        }
        let problem = format!("it cannot be used with {}: {error}", key.display());
        TlsError::Content {
            path: certificate.clone(),
            problem,
        }
    })
}

/// The certificates in a PEM file; at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let content = read(path)?;
    let problem = |problem: String| TlsError::Content {
        path: path.to_owned(),
        problem,
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    let chain = chain.map_err(|error| problem(format!("it is not valid PEM: {error}")))?;
    if chain.is_empty() {
        return Err(problem("there is no certificate in it".to_owned()));
    }
    Ok(chain)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|error| TlsError::File {
        path: path.to_owned(),
        error,
    })
}
