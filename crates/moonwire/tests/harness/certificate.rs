//! Certificates for foreign servers.

use std::path::{Path, PathBuf};

/// Writes a self-signed certificate for the loopback address and its key as PEM files.
pub(crate) fn write(folder: &Path) -> (PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed(["localhost".into(), "127.0.0.1".into()])
        .expect("a key pair can be made");
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).expect("the folder is writable");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("the folder is writable");
    (certificate, key)
}
