//! The server's end of TLS.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::{SupportedProtocolVersion, version};

use super::error::TlsError;

/// A server's certificate, key and rules; cheap to clone, shared by all its connections.
#[derive(Clone, Debug)]
pub struct ServerTls {
    pub(super) config: Arc<ServerConfig>,
    /// The development certificate in PEM, if it is one.
    self_signed: Option<Arc<str>>,
    pub(super) records: TlsRecords,
}

/// Who opens and seals the records of TLS 1.3 after the handshake; those of 1.2 are rustls's.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TlsRecords {
    /// Our own layer.
    Own,
    /// rustls.
    #[default]
    Rustls,
}

/// Which versions of TLS an end speaks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TlsVersions {
    /// 1.3 with peers that can, 1.2 with others.
    #[default]
    Both,
    /// 1.2 only.
    Tls12,
    /// 1.3 only.
    Tls13,
}

impl TlsVersions {
    /// As rustls takes them.
    pub(super) fn supported(self) -> &'static [&'static SupportedProtocolVersion] {
        static NEWEST_FIRST: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
        match self {
            Self::Both => &NEWEST_FIRST,
            Self::Tls12 => &NEWEST_FIRST[1..],
            Self::Tls13 => &NEWEST_FIRST[..1],
        }
    }
}

impl ServerTls {
    /// The same with other records.
    #[must_use]
    pub fn with_records(self, records: TlsRecords) -> Self {
        Self { records, ..self }
    }

    /// The same with other versions than both.
    pub fn limited_to(self, versions: TlsVersions) -> Result<Self, TlsError> {
        let resolver = Arc::clone(&self.config.cert_resolver);
        if versions == TlsVersions::Both {
            return Ok(self);
        }
        let config = ServerConfig::builder_with_provider(super::provider())
            .with_protocol_versions(versions.supported())?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        Ok(Self {
            config: Arc::new(with_our_rules(config)?),
            ..self
        })
    }

    /// Takes the certificate (with those of intermediate authorities after it) and its key from
    /// PEM files. An error names the file.
    pub fn from_pem(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let chain = certificates(certificate)?;
        let content = read(key)?;
        let private_key = PrivateKeyDer::from_pem_slice(&content).map_err(|error| {
            let problem = if matches!(error, pem::Error::NoItemsFound) {
                "there is no private key in it".to_owned()
            } else {
                format!("the private key cannot be read: {error}")
            };
            TlsError::Content {
                path: key.to_owned(),
                problem,
            }
        })?;
        Self::new(chain, private_key, None).map_err(|error| {
            if let TlsError::Protocol(rustls::Error::InconsistentKeys(_)) = error {
                let problem = format!("it is not the key of {}", certificate.display());
                return TlsError::Content {
                    path: key.to_owned(),
                    problem,
                };
            }
            let problem = format!("it cannot be used with {}: {error}", key.display());
            TlsError::Content {
                path: certificate.to_owned(),
                problem,
            }
        })
    }

    /// Makes a new certificate for localhost, 127.0.0.1 and ::1 that nobody trusts: for
    /// development and tests.
    pub fn self_signed() -> Result<Self, TlsError> {
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names).map_err(TlsError::SelfSigned)?;
        let pem: Arc<str> = made.cert.pem().into();
        let key = made.signing_key.serialize_der();
        let key = PrivateKeyDer::try_from(key).map_err(|problem| TlsError::Content {
            path: "the development certificate".into(),
            problem: problem.to_owned(),
        })?;
        Self::new(vec![made.cert.der().clone()], key, Some(pem))
    }

    /// The development certificate in PEM, for clients that are to trust it; None if the
    /// certificate came from files.
    pub fn self_signed_pem(&self) -> Option<&str> {
        self.self_signed.as_deref()
    }

    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        self_signed: Option<Arc<str>>,
    ) -> Result<Self, TlsError> {
        let config = ServerConfig::builder_with_provider(super::provider())
            .with_protocol_versions(TlsVersions::Both.supported())?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        Ok(Self {
            config: Arc::new(with_our_rules(config)?),
            self_signed,
            records: TlsRecords::default(),
        })
    }
}

impl TlsRecords {
    /// All of them, as they are written.
    pub const NAMES: [&'static str; 2] = ["own", "rustls"];
}

impl FromStr for TlsRecords {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "own" => Ok(Self::Own),
            "rustls" => Ok(Self::Rustls),
            _ => Err("it is own or rustls".to_owned()),
        }
    }
}

fn with_our_rules(mut config: ServerConfig) -> Result<ServerConfig, TlsError> {
    config.alpn_protocols = super::alpn();
    // Our order of cipher suites, not the client's.
    config.ignore_client_order = true;
    // Tickets carry the state of a session to resume, so the server keeps none; one per
    // connection is enough, and each costs the server a seal and the client memory.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = Ticketer::new()?;
    config.send_tls13_tickets = 1;
    // For our own record layer.
    config.enable_secret_extraction = true;
    Ok(config)
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
