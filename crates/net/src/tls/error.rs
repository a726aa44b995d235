//! What can go wrong with TLS, one clear sentence each.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use rustls::{CertificateError, InvalidMessage};

/// Why TLS cannot be set up, or why a connection over it failed.
#[derive(Debug)]
pub enum TlsError {
    /// A file cannot be read.
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file is readable but is not what it should be.
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The system has no certificates of authorities to trust.
    NoSystemRoots,
    /// The name to connect to is neither a DNS name nor an address.
    ServerName(String),
    /// The development certificate cannot be made.
    SelfSigned(rcgen::Error),
    /// The peer's certificate was not accepted, or ours was not by it.
    Certificate(String),
    /// As much was sent as the keys of this version allow.
    KeysExhausted,
    /// The peer broke TLS, or has nothing in common with us.
    Protocol(rustls::Error),
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        if let rustls::Error::InvalidCertificate(error) = error {
            return Self::Certificate(sentence(&error));
        }
        Self::Protocol(error)
    }
}

/// The reason for refusing a certificate as a person would say it.
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "the rest is said by rustls, more to come"
)]
fn sentence(error: &CertificateError) -> String {
    let reason = match error {
        CertificateError::BadEncoding => "it is malformed".to_owned(),
        CertificateError::BadSignature => "its signature is wrong".to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".to_owned()
        }
        CertificateError::NotValidForName => "it is for another name".to_owned(),
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => format!(
            "it is not for {} but for {}",
            expected.to_str(),
            names(presented),
        ),
        CertificateError::Revoked => "it was revoked".to_owned(),
        CertificateError::UnknownIssuer => "no trusted authority signed it".to_owned(),
        // The error inside is of a crate that rustls does not show.
        CertificateError::Other(error) if format!("{error:?}").contains("CaUsedAsEndEntity") => {
            "it is an authority's own (CA:TRUE), which no server may show; make one with \
             basicConstraints=CA:FALSE"
                .to_owned()
        }
        error => error.to_string(),
    };
    format!("the peer's certificate was not accepted: {reason}")
}

/// The names of a certificate, which rustls gives as Rust would print them: `DnsName("a")`.
fn names(presented: &[String]) -> String {
    if presented.is_empty() {
        return "no name at all".to_owned();
    }
    let plain = |name: &String| {
        let inner = name
            .split_once('(')
            .and_then(|(_, rest)| rest.strip_suffix(')'));
        let inner = inner.unwrap_or(name).trim_matches('"');
        inner
            .parse::<IpAddr>()
            .map_or_else(|_| inner.to_owned(), |addr| addr.to_string())
    };
    presented.iter().map(plain).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, error } => write!(f, "cannot read {}: {error}", path.display()),
            Self::Content { path, problem } => write!(f, "{}: {problem}", path.display()),
            Self::NoSystemRoots => {
                f.write_str("this system has no certificates of authorities to trust")
            }
            Self::ServerName(name) => write!(f, "{name:?} is no name that TLS can check"),
            Self::SelfSigned(error) => {
                write!(f, "cannot make a development certificate: {error}")
            }
            Self::Certificate(sentence) => f.write_str(sentence),
            Self::KeysExhausted => f.write_str(
                "so much was sent that the keys must not be used any more, which TLS 1.2 cannot \
                 change: connect again",
            ),
            Self::Protocol(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
                f.write_str("TLS failed: the peer does not speak TLS; is its URL ws://?")
            }
            Self::Protocol(error) => write!(f, "TLS failed: {error}"),
        }
    }
}

impl Error for TlsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::File { error, .. } => Some(error),
            Self::SelfSigned(error) => Some(error),
            Self::Protocol(error) => Some(error),
            Self::Content { .. }
            | Self::KeysExhausted
            | Self::NoSystemRoots
            | Self::ServerName(_)
            | Self::Certificate(_) => None,
        }
    }
}
