//! The server's end of TLS.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use rustls::{SupportedProtocolVersion, version};

use super::certificates::{self, CertificateFiles, Certificates};
use super::error::TlsError;

/// A server's certificates, keys and rules; cheap to clone, shared by all its connections.
#[derive(Clone, Debug)]
pub struct ServerTls {
    pub(super) config: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
    /// Where they are read from again; none if they were made here.
    files: Arc<[CertificateFiles]>,
    /// The development certificate in PEM, if it is one.
    self_signed: Option<Arc<str>>,
    pub(super) records: TlsRecords,
}

/// How a server is to speak TLS, apart from its certificates.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ServerTlsRules {
    /// Which versions.
    pub versions: TlsVersions,
    /// Who opens and seals records.
    pub records: TlsRecords,
    /// Whose certificates clients have to show; None: they are not asked for any.
    pub clients: Option<ClientCertificates>,
}

/// What clients have to show for themselves (mutual TLS).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClientCertificates {
    /// The authorities that sign their certificates, in PEM.
    pub authorities: PathBuf,
    /// Whether a client without one is refused; if not, one that is shown must be valid all the
    /// same.
    pub is_required: bool,
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

impl TlsRecords {
    /// All of them, as they are written.
    pub const NAMES: [&'static str; 2] = ["own", "rustls"];

    /// Its name in configurations and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Rustls => "rustls",
        }
    }
}

impl FromStr for TlsRecords {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "own" => Ok(Self::Own),
            "rustls" => Ok(Self::Rustls),
            _ => Err("must be \"own\" or \"rustls\"".to_owned()),
        }
    }
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
    /// Takes one certificate and its key from PEM files. An error names the file.
    pub fn from_pem(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let files = CertificateFiles {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        };
        Self::from_files(&[files], &ServerTlsRules::default())
    }

    /// Takes all certificates from their files, at least one. A client that names a server is shown
    /// the first one that is valid for that name, and others the first of all.
    pub fn from_files(
        files: &[CertificateFiles],
        rules: &ServerTlsRules,
    ) -> Result<Self, TlsError> {
        let certificates = certificates::load(files)?;
        Self::new(certificates, files, None, rules)
    }

    /// Makes a new certificate for localhost, 127.0.0.1 and ::1 that nobody trusts: for
    /// development and tests.
    pub fn self_signed() -> Result<Self, TlsError> {
        Self::self_signed_with(&ServerTlsRules::default())
    }

    /// The same by other rules.
    pub fn self_signed_with(rules: &ServerTlsRules) -> Result<Self, TlsError> {
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names).map_err(TlsError::SelfSigned)?;
        let pem: Arc<str> = made.cert.pem().into();
        let key = made.signing_key.serialize_der();
        let key = PrivateKeyDer::try_from(key).map_err(|problem| TlsError::Content {
            path: "the development certificate".into(),
            problem: problem.to_owned(),
        })?;
        let chain = vec![made.cert.der().clone()];
        let certificate = CertifiedKey::from_der(chain, key, &super::provider())?;
        Self::new(vec![certificate], &[], Some(pem), rules)
    }

    /// Reads the files again: later handshakes are made with what is in them now, and connections
    /// stay as they are. After an error everything is as it was.
    pub fn reload(&self) -> Result<(), TlsError> {
        if !self.files.is_empty() {
            self.certificates.exchange(certificates::load(&self.files)?);
        }
        Ok(())
    }

    /// How many certificates it reads from files.
    pub fn certificate_files(&self) -> usize {
        self.files.len()
    }

    /// The same with other records.
    #[must_use]
    pub fn with_records(self, records: TlsRecords) -> Self {
        Self { records, ..self }
    }

    /// The development certificate in PEM, for clients that are to trust it; None if the
    /// certificate came from files.
    pub fn self_signed_pem(&self) -> Option<&str> {
        self.self_signed.as_deref()
    }

    fn new(
        certificates: Vec<CertifiedKey>,
        files: &[CertificateFiles],
        self_signed: Option<Arc<str>>,
        rules: &ServerTlsRules,
    ) -> Result<Self, TlsError> {
        let certificates = Arc::new(Certificates::new(certificates));
        let builder = ServerConfig::builder_with_provider(super::provider())
            .with_protocol_versions(rules.versions.supported())?;
        let builder = match &rules.clients {
            None => builder.with_no_client_auth(),
            Some(clients) => builder.with_client_cert_verifier(verifier(clients)?),
        };
        let resolver = Arc::clone(&certificates);
        let config = with_our_rules(builder.with_cert_resolver(resolver))?;
        Ok(Self {
            config: Arc::new(config),
            certificates,
            files: files.into(),
            self_signed,
            records: rules.records,
        })
    }
}

fn verifier(clients: &ClientCertificates) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let ClientCertificates {
        authorities,
        is_required,
    } = clients;
    let problem = |problem: String| TlsError::Content {
        path: authorities.clone(),
        problem,
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates::certificates(authorities)? {
        let added = roots.add(certificate);
        added.map_err(|error| problem(format!("it holds no authority: {error}")))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), super::provider());
    let builder = match is_required {
        true => builder,
        false => builder.allow_unauthenticated(),
    };
    builder.build().map_err(|error| problem(error.to_string()))
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
