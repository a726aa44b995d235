//! Certificates for servers.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Writes a self-signed certificate for the loopback address and its key as PEM files.
pub(crate) fn write(folder: &Path) -> (PathBuf, PathBuf) {
    write_for(folder, &["localhost", "127.0.0.1"])
}

/// The same for these names and addresses.
pub(crate) fn write_for(folder: &Path, names: &[&str]) -> (PathBuf, PathBuf) {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).expect("a key pair can be made");
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).expect("the folder is writable");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("the folder is writable");
    (certificate, key)
}

/// Writes `localhost.ca.pem`, `localhost.crt` and `localhost.key` as an installation of LAppS has
/// them: an authority, and a certificate that it signed for localhost only.
pub(crate) fn write_as_lapps(folder: &Path) {
    let write = |name: &str, pem: String| {
        std::fs::write(folder.join(name), pem).expect("the folder is writable");
    };
    let key = || KeyPair::generate().expect("a key pair can be made");
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = key();
    let made = authority.self_signed(&authority_key);
    write("localhost.ca.pem", made.expect("it can be signed").pem());
    let issuer = Issuer::new(authority, authority_key);
    let server = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    let server_key = key();
    let made = server.signed_by(&server_key, &issuer);
    write("localhost.crt", made.expect("it can be signed").pem());
    write("localhost.key", server_key.serialize_pem());
}
