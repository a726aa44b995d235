//! What the two ends of a connection agreed on, for a reader.

use rustls::pki_types::CertificateDer;
use rustls::{CommonState, HandshakeKind, ProtocolVersion};
use webpki::EndEntityCert;

/// What a handshake led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFacts {
    /// `1.2` or `1.3`.
    pub version: &'static str,
    /// The suite, as rustls names it: `TLS13_AES_128_GCM_SHA256`.
    pub cipher: &'static str,
    /// The group of the key exchange, such as `X25519`; `None` where a session of TLS 1.2 was
    /// resumed, for which there is no exchange.
    pub group: Option<&'static str>,
    /// The key of the peer's certificate; `None` where there is none, or of another kind.
    pub key: Option<CertificateKey>,
    /// What is spoken inside, if they agreed on it by ALPN (RFC 7301).
    pub alpn: Option<String>,
    /// Whether an earlier session was resumed, which spares the signature.
    pub is_resumed: bool,
}

/// The public key of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateKey {
    /// `ECDSA`, `RSA` or `Ed25519`.
    pub kind: &'static str,
    /// Of the modulus, or of the curve's field.
    pub bits: u32,
}

impl TlsFacts {
    /// `None` before they have agreed.
    pub(super) fn of(state: &CommonState) -> Option<Self> {
        let certificate = state.peer_certificates().and_then(<[_]>::first);
        Some(Self {
            version: version_name(state.protocol_version()?)?,
            cipher: state.negotiated_cipher_suite()?.suite().as_str()?,
            group: state
                .negotiated_key_exchange_group()
                .and_then(|group| group.name().as_str()),
            key: certificate.and_then(CertificateKey::of),
            alpn: state
                .alpn_protocol()
                .map(|name| String::from_utf8_lossy(name).into_owned()),
            is_resumed: state.handshake_kind()? == HandshakeKind::Resumed,
        })
    }
}

/// No other is offered.
fn version_name(version: ProtocolVersion) -> Option<&'static str> {
    let known = [
        (ProtocolVersion::TLSv1_2, "1.2"),
        (ProtocolVersion::TLSv1_3, "1.3"),
    ];
    let named = known.iter().find(|(known, _)| *known == version);
    named.map(|(_, name)| *name)
}

impl CertificateKey {
    fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        Self::parse(&certificate.subject_public_key_info())
    }

    /// Reads a SubjectPublicKeyInfo (RFC 5280, 4.1.2.7).
    fn parse(info: &[u8]) -> Option<Self> {
        let (info, _) = element(info, SEQUENCE)?;
        let (algorithm, rest) = element(info, SEQUENCE)?;
        let (identifier, parameters) = element(algorithm, OBJECT_IDENTIFIER)?;
        let (kind, bits) = match identifier {
            RSA => {
                let (bits, _) = element(rest, BIT_STRING)?;
                // After the number of bits that are none.
                let (key, _) = element(bits.get(1..)?, SEQUENCE)?;
                let (modulus, _) = element(key, INTEGER)?;
                ("RSA", significant_bits(modulus)?)
            }
            ELLIPTIC_CURVE => match element(parameters, OBJECT_IDENTIFIER)?.0 {
                P_256 => ("ECDSA", 256),
                P_384 => ("ECDSA", 384),
                P_521 => ("ECDSA", 521),
                _ => return None,
            },
            ED25519 => ("Ed25519", 256),
            _ => return None,
        };
        Some(Self { kind, bits })
    }
}

/// The content of the element of DER that `bytes` begin with, and what follows it; `None` if it has
/// another tag.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..LONG_LENGTH => (usize::from(first), rest),
        // Four bytes are more than a certificate has.
        LONG_LENGTH..=LONG_LENGTH_MAX => {
            let (length, rest) = rest.split_at_checked(usize::from(first - LONG_LENGTH))?;
            let length = length.iter();
            let length = length.fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            (length, rest)
        }
        _ => return None,
    };
    (*found == tag).then_some(())?;
    rest.split_at_checked(length)
}

/// Bits of an unsigned number, without the zeros it begins with.
fn significant_bits(number: &[u8]) -> Option<u32> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    let digits = number.get(zeros..)?;
    let first = digits.first()?;
    let bits = u32::try_from(digits.len()).ok()? * 8;
    Some(bits - first.leading_zeros())
}

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
/// From here on the byte says how many bytes the length has.
const LONG_LENGTH: u8 = 0x80;
const LONG_LENGTH_MAX: u8 = 0x84;

/// 1.2.840.113549.1.1.1 (RFC 8017).
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
/// 1.2.840.10045.2.1 (RFC 5480), as are the curves.
const ELLIPTIC_CURVE: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P_256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P_384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const P_521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];
/// 1.3.101.112 (RFC 8410).
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_certificates_are_told_by_kind_and_size() {
        for (algorithm, kind, bits) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, "ECDSA", 256),
            (&rcgen::PKCS_ECDSA_P384_SHA384, "ECDSA", 384),
            (&rcgen::PKCS_ED25519, "Ed25519", 256),
            (&rcgen::PKCS_RSA_SHA256, "RSA", 2048),
        ] {
            let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
            let names = vec!["localhost".to_owned()];
            let made = rcgen::CertificateParams::new(names).unwrap();
            let made = made.self_signed(&key).unwrap();
            let found = CertificateKey::of(made.der());
            assert_eq!(found, Some(CertificateKey { kind, bits }));
        }
    }

    #[test]
    fn what_is_cut_off_or_of_another_kind_is_no_key() {
        let key = rcgen::KeyPair::generate().unwrap();
        let made = rcgen::CertificateParams::new(Vec::new()).unwrap();
        let made = made.self_signed(&key).unwrap();
        let certificate = EndEntityCert::try_from(made.der()).unwrap();
        let info = certificate.subject_public_key_info();
        assert!(CertificateKey::parse(&info).is_some());
        for length in 0..info.len() {
            assert_eq!(CertificateKey::parse(&info[..length]), None, "{length}");
        }
        let mut other = info.to_vec();
        let at = other.windows(P_256.len()).position(|it| it == P_256);
        other[at.unwrap() + P_256.len() - 1] = 0x66;
        assert_eq!(CertificateKey::parse(&other), None);
    }
}
