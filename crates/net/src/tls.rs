//! TLS 1.2 and 1.3, server and client: configurations here, the records of one connection in
//! `records`.
//!
//! rustls shakes hands, resumes and checks certificates, all of it behind [`Records`]; then a
//! record layer of our own can take its place.

mod certificates;
mod client;
mod connection;
mod error;
mod facts;
mod record_key;
mod record_layer;
mod records;
mod server;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite};

pub use certificates::CertificateFiles;
pub use client::{ClientTls, NameCheck, Trust};
pub use error::TlsError;
pub use facts::{CertificateKey, TlsFacts};
pub(crate) use records::Records;
pub use server::{ClientCertificates, ServerTls, ServerTlsRules, TlsRecords, TlsVersions};

/// The cipher suites in our order: AES-128 first, it is the fastest where the processor has AES
/// instructions, and as good as AES-256 for this purpose.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(provider)
}

/// What is spoken inside: the handshake of WebSocket is HTTP/1.1 (RFC 6455, 4.1).
fn alpn() -> Vec<Vec<u8>> {
    vec![b"http/1.1".to_vec()]
}

#[cfg(test)]
mod tests;
