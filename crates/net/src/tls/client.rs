//! The client's end of TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use super::certificates::certificates;
use super::error::TlsError;
use super::server::{TlsRecords, TlsVersions};

/// A client's rules; cheap to clone, shared by all its connections.
///
/// Sessions are not resumed unless that is asked for: each connection of a load makes a full
/// handshake, as those of as many independent clients would.
#[derive(Clone, Debug)]
pub struct ClientTls {
    pub(super) config: Arc<ClientConfig>,
    pub(super) records: TlsRecords,
}

/// Whose certificates a client accepts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Trust {
    /// Those signed by the authorities that the system trusts.
    System,
    /// Those signed by an authority in this PEM file, or themselves in it.
    Authorities(PathBuf),
    /// Any certificate for any name: encrypted, but with whom is not known.
    Anyone,
}

/// Whether a server's certificate must be for the name that is connected to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NameCheck {
    /// It must.
    Required,
    /// Any name will do, as long as the certificate is trusted: whoever has one of the same
    /// authority could take the server's place.
    Skipped,
}

impl ClientTls {
    /// Prepares for connections to servers that are to be trusted according to `trust`.
    pub fn new(trust: &Trust) -> Result<Self, TlsError> {
        Self::with_rules(trust, TlsVersions::Both, NameCheck::Required)
    }

    /// The same with these versions, and perhaps without a look at names.
    pub fn with_rules(
        trust: &Trust,
        versions: TlsVersions,
        names: NameCheck,
    ) -> Result<Self, TlsError> {
        let provider = super::provider();
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions.supported())?;
        let roots = match trust {
            Trust::System => Some(system_roots()?),
            Trust::Authorities(path) => Some(authorities(path)?),
            Trust::Anyone => None,
        };
        let builder = match (roots, names) {
            (Some(roots), NameCheck::Required) => builder.with_root_certificates(roots),
            (Some(roots), NameCheck::Skipped) => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyName::new(roots, provider)?)),
            (None, _) => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate { provider })),
        };
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = super::alpn();
        config.resumption = Resumption::disabled();
        // For our own record layer.
        config.enable_secret_extraction = true;
        Ok(Self {
            config: Arc::new(config),
            records: TlsRecords::default(),
        })
    }

    /// The same, with sessions resumed where a server lets one: all connections share what they
    /// were given for it, the latest of each server.
    #[must_use]
    pub fn with_resumption(mut self) -> Self {
        let config = Arc::make_mut(&mut self.config);
        config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        self
    }

    /// The same with other records.
    #[must_use]
    pub fn with_records(self, records: TlsRecords) -> Self {
        Self { records, ..self }
    }
}

/// Servers of which sessions are kept.
const SESSIONS_MAX: usize = 256;

#[cfg(test)]
impl ClientTls {
    pub(super) fn with_config(mut config: ClientConfig) -> Self {
        config.enable_secret_extraction = true;
        Self {
            config: Arc::new(config),
            records: TlsRecords::default(),
        }
    }

    /// One that speaks `version` only, and trusts anyone.
    pub(crate) fn of_version(
        version: &'static rustls::SupportedProtocolVersion,
        provider: CryptoProvider,
    ) -> Self {
        let builder = ClientConfig::builder_with_provider(Arc::new(provider));
        let builder = builder.with_protocol_versions(&[version]).unwrap();
        let provider = super::provider();
        let builder = builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate { provider }));
        Self::with_config(builder.with_no_client_auth())
    }

    /// One of TLS 1.2 whose keys seal only so many records.
    pub(crate) fn of_few_records(records_max: u64) -> Self {
        use rustls::crypto::aws_lc_rs::{self, cipher_suite};
        let suite = cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
        let rustls::SupportedCipherSuite::Tls12(known) = suite else {
            panic!("a suite of TLS 1.2");
        };
        let weak = rustls::Tls12CipherSuite {
            common: rustls::crypto::CipherSuiteCommon {
                suite: known.common.suite,
                hash_provider: known.common.hash_provider,
                confidentiality_limit: records_max,
            },
            prf_provider: known.prf_provider,
            kx: known.kx,
            sign: known.sign,
            aead_alg: known.aead_alg,
        };
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites = vec![rustls::SupportedCipherSuite::Tls12(Box::leak(Box::new(
            weak,
        )))];
        Self::of_version(&rustls::version::TLS12, provider)
    }

    pub(super) fn verifier(&self) -> Arc<dyn ServerCertVerifier> {
        Arc::new(AnyCertificate {
            provider: super::provider(),
        })
    }
}

/// The name that a certificate must be for: a DNS name or an address, without brackets.
pub(super) fn server_name(name: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(name.to_owned()).map_err(|_| TlsError::ServerName(name.to_owned()))
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        Err(TlsError::NoSystemRoots)
    } else {
        Ok(roots)
    }
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| TlsError::Content {
            path: path.to_owned(),
            problem: format!("a certificate in it cannot be used: {error}"),
        })?;
    }
    Ok(roots)
}

/// Accepts what a trusted authority signed, whatever name it is for.
#[derive(Debug)]
struct AnyName {
    verifier: Arc<WebPkiServerVerifier>,
}

impl AnyName {
    fn new(roots: RootCertStore, provider: Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.build();
        let verifier = verifier.map_err(|error| rustls::Error::General(error.to_string()))?;
        Ok(Self { verifier })
    }
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.verifier.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            // It looks at the name last, once everything else was found right.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// Accepts every certificate; signatures of the handshake are still checked, so that the peer
/// does hold the key of the certificate it shows.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
